# SPDX-License-Identifier: Apache-2.0
"""The names of NexAU's sandbox package, their types and their spellings, old and new."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cay.nexau
import cay.sandbox
from cay.nexau import (
    HEREDOC_PATTERN,
    AgentConfig,
    BaseSandbox,
    BaseSandboxConfig,
    CodeExecutionResult,
    CodeLanguage,
    CommandResult,
    E2BSandbox,
    E2BSandboxConfig,
    E2BSandboxManager,
    FileInfo,
    FileOperationResult,
    LocalSandbox,
    LocalSandboxConfig,
    LocalSandboxManager,
    NativeSandbox,
    NativeSandboxConfig,
    NativeSandboxManager,
    SandboxAlias,
    SandboxError,
    SandboxExecutionError,
    SandboxFileError,
    SandboxStatus,
    SandboxTimeoutError,
    SandboxValueError,
    clean_shell_output,
    collapse_repetitive,
    contains_heredoc,
    extract_dataclass_init_kwargs,
    make_manager,
    parse_sandbox_config,
    parse_single_bash_heredoc,
    resolve_cr,
    smart_truncate_output,
    strip_ansi,
)

NAMES = """
    BaseSandbox LocalSandbox E2BSandbox BaseSandboxManager LocalSandboxManager
    E2BSandboxManager SandboxStatus BaseSandboxConfig LocalSandboxConfig E2BSandboxConfig
    SandboxConfig parse_sandbox_config CodeLanguage CommandResult CodeExecutionResult
    FileInfo FileOperationResult SandboxError SandboxTimeoutError SandboxExecutionError
    SandboxFileError extract_dataclass_init_kwargs HEREDOC_PATTERN contains_heredoc
    strip_ansi resolve_cr collapse_repetitive clean_shell_output
""".split()
FROM_BASE_SANDBOX = """
    smart_truncate_output parse_single_bash_heredoc BashHeredocBlock SandboxAlias
    E2B_DEFAULT_WORK_DIR
""".split()
OURS = """
    NativeSandbox NativeSandboxManager NativeSandboxConfig SessionManager AgentState
    InMemoryDatabaseEngine SQLiteDatabaseEngine Agent AgentConfig
""".split()


@pytest.mark.parametrize("name", [*NAMES, *FROM_BASE_SANDBOX, *OURS])
def test_every_name_is_there(name: str) -> None:
    assert len(NAMES) == 28
    assert getattr(cay.nexau, name) is not None and name in cay.nexau.__all__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSandbox"):
        cay.nexau.NoSandbox  # type: ignore[attr-defined]  # noqa: B018


def test_the_sandbox_package_does_not_load_nexau() -> None:
    program = "import sys, cay.sandbox; assert 'cay.nexau' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_names_of_0_1_0_are_found_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="cay.nexau"):
        moved = cay.sandbox.LocalSandbox
    assert moved is cay.nexau.LocalSandbox


# --- Results --------------------------------------------------------------------------------


def test_statuses_and_languages_are_words() -> None:
    assert {one.name: one.value for one in SandboxStatus} == {
        "RUNNING": "running",
        "STOPPED": "stopped",
        "ERROR": "error",
        "TIMEOUT": "timeout",
        "SUCCESS": "success",
    }
    assert CodeLanguage.PYTHON.value == "python"
    assert CodeLanguage("javascript") is CodeLanguage.JAVASCRIPT


def test_the_languages_are_those_that_libcay_knows() -> None:
    from itertools import count

    from cay import _c

    listed = []
    for at in count():
        name = _c.code_language(at)
        if name is None:
            break
        listed.append(name.decode())
    assert listed == [one.value for one in CodeLanguage]


def test_results_have_their_fields_in_order() -> None:
    def names(cls: Any) -> str:
        return " ".join(one.name for one in dataclasses.fields(cls))

    assert names(CommandResult) == (
        "status stdout stderr exit_code duration_ms error truncated "
        "original_stdout_length original_stderr_length background_pid output_dir "
        "stdout_file stderr_file"
    )
    assert names(CodeExecutionResult) == (
        "status language outputs error_type error_value traceback duration_ms truncated "
        "output_dir stdout_file stderr_file"
    )
    assert names(FileInfo) == (
        "path exists is_file is_directory size mode permissions modified_time "
        "symlink_target readable writable encoding"
    )
    assert names(FileOperationResult) == "status file_path content size error truncated"


def test_results_have_the_usual_where_nothing_is_said() -> None:
    command = CommandResult(SandboxStatus.SUCCESS, "out")
    assert (command.stderr, command.exit_code, command.background_pid) == ("", 0, None)
    assert command.stdout_bytes == b"out" and command.stderr_bytes == b""
    code = CodeExecutionResult(SandboxStatus.SUCCESS, CodeLanguage.PYTHON)
    assert code.outputs == [] and code.traceback is None
    assert code.stdout_bytes == b"" and code.stdout_file is None
    info = FileInfo("x")
    assert not info.exists and info.readable and info.writable and info.size == 0


def test_results_can_be_told_as_json() -> None:
    command = CommandResult(SandboxStatus.SUCCESS, "out")
    command._raw = (b"\xff", b"")
    told = dataclasses.asdict(command)
    told["status"] = told["status"].value
    assert json.loads(json.dumps(told))["stdout"] == "out"
    assert command.stdout_bytes == b"\xff"


def test_the_errors_are_one_family() -> None:
    for cls in (SandboxTimeoutError, SandboxExecutionError, SandboxFileError):
        assert issubclass(cls, SandboxError)
    assert issubclass(SandboxValueError, ValueError)
    assert issubclass(SandboxTimeoutError, TimeoutError)
    assert issubclass(cay.errors.SandboxFileNotFoundError, SandboxFileError)
    assert issubclass(cay.errors.SandboxExecError, SandboxExecutionError)
    assert str(SandboxError("text")) == "text"
    error = SandboxFileError("text")
    error.result = 7
    assert pickle.loads(pickle.dumps(error)).result == 7


# --- Configuration ----------------------------------------------------------------------------


def test_a_configuration_that_is_typed_already_stays_what_it_is() -> None:
    config = NativeSandboxConfig(template="host")
    assert parse_sandbox_config(config) is config
    assert parse_sandbox_config(None) is None


def test_a_map_becomes_the_dataclass_of_its_type() -> None:
    raw = {"type": "native", "template": "host", "timeout": "300"}
    before = dict(raw)
    config = parse_sandbox_config(raw)
    assert isinstance(config, NativeSandboxConfig)
    assert (config.template, config.ttl) == ("host", 300) and raw == before


@pytest.mark.parametrize(
    ("keys", "after"),
    [
        ({}, "pause"),
        ({"persist_sandbox": True}, "pause"),
        ({"persist_sandbox": False}, "stop"),
        ({"status_after_run": "none"}, "none"),
        ({"status_after_run": "stop"}, "stop"),
        ({"persist_sandbox": "no"}, "stop"),
        ({"persist_sandbox": "false"}, "stop"),
        ({"persist_sandbox": "yes"}, "pause"),
        ({"persist_sandbox": None}, "pause"),
        ({"status_after_run": None}, "pause"),
        ({"persist_sandbox": False, "status_after_run": None}, "stop"),
    ],
)
def test_both_spellings_of_what_happens_after_a_run_work(
    keys: dict[str, Any], after: str
) -> None:
    config = parse_sandbox_config({"type": "native", **keys})
    assert isinstance(config, NativeSandboxConfig)
    assert config.status_after_run == after
    assert NativeSandboxConfig(**keys).status_after_run == after
    assert NativeSandboxManager(**keys).status_after_run == after


def test_what_happens_after_a_run_is_none_of_other_words() -> None:
    for keys in ({"persist_sandbox": "maybe"}, {"status_after_run": "paused"}):
        for cls in (NativeSandboxConfig, NativeSandboxManager):
            with pytest.raises(SandboxValueError, match=next(iter(keys))):
                cls(**keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["work_dir", "_work_dir"])
@pytest.mark.parametrize(
    "cls",
    [
        NativeSandbox,
        LocalSandbox,
        E2BSandbox,
        NativeSandboxManager,
        LocalSandboxManager,
        E2BSandboxManager,
        NativeSandboxConfig,
        LocalSandboxConfig,
        E2BSandboxConfig,
    ],
)
def test_both_spellings_of_the_working_directory_work(key: str, cls: Any) -> None:
    made = cls(**{key: "/some/where"})
    assert made.work_dir == Path("/some/where")
    if not isinstance(made, BaseSandboxConfig):
        assert made._work_dir == "/some/where"


def test_the_new_spelling_goes_before_the_old() -> None:
    assert NativeSandbox(work_dir="/new", _work_dir="/old").work_dir == Path("/new")  # type: ignore[call-arg]


def test_a_sandbox_can_be_moved_by_its_old_spelling() -> None:
    sandbox = NativeSandbox(work_dir="/a")
    sandbox._work_dir = "/b"
    assert sandbox.work_dir == Path("/b")


def test_the_type_is_not_for_constructors() -> None:
    assert NativeSandbox(type="native", sandbox_type="NativeSandbox").envs == {}  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no_such"):
        NativeSandbox(no_such=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "cls", [NativeSandboxConfig, LocalSandboxConfig, E2BSandboxConfig]
)
def test_the_dataclasses_have_the_keys_that_libcay_knows(cls: Any) -> None:
    from cay import _c

    backend = _c.backend_find(cls().type.encode())
    if not backend:
        pytest.skip("this build has no such backend")
    listed = backend.contents.fields[: backend.contents.field_count]
    known = {one.name.decode().split(".")[0] for one in listed}
    usual = {one.name for one in dataclasses.fields(BaseSandboxConfig)}
    own = {one.name for one in dataclasses.fields(cls)}
    assert own - usual - {"type"} == known - usual


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"type": "native", "tmplate": "x"}, "did you mean template"),
        ({"type": "natve"}, "did you mean native"),
        ({"type": "native", "limits": {"pids": "many"}}, "pids"),
        ({"type": "native", "network": "some"}, "none, host|none or host"),
        ({"type": "native", "work_dir": "${env.CAY_TEST_UNSET}"}, "CAY_TEST_UNSET"),
    ],
)
def test_a_wrong_map_is_refused_with_what_helps(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_sandbox_config(raw)
    assert isinstance(caught.value, SandboxValueError)


def test_what_no_map_can_hold_is_refused() -> None:
    with pytest.raises(SandboxValueError, match="object"):
        parse_sandbox_config({"type": "native", "template": object()})


def test_variables_of_the_environment_are_values_and_never_syntax(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAY_TEST_DIR", "/a: {b: c}\n#")
    config = parse_sandbox_config({"type": "native", "work_dir": "${env.CAY_TEST_DIR}"})
    assert isinstance(config, NativeSandboxConfig)
    assert str(config.work_dir) == "/a: {b: c}\n#"


def test_an_agents_configuration_is_checked_when_it_is_set() -> None:
    config = AgentConfig(
        name="my_agent", llm_config={"model": "gpt-4"}, sandbox_config={"type": "native"}
    )
    assert isinstance(config.sandbox_config, NativeSandboxConfig)
    with pytest.raises(ValueError, match="Invalid sandbox_config type: int"):
        config.sandbox_config = 7  # type: ignore[assignment]
    with pytest.raises(ValueError, match="did you mean"):
        config.sandbox_config = {"type": "native", "netwrk": "none"}


def test_a_file_has_its_configuration_below_a_key_with_siblings(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(
        "name: my_agent\nllm_config:\n  model: gpt-4\n"
        "sandbox_config:\n  type: native\n  persist_sandbox: false\n"
        "  envs: {A: b}\n"
    )
    config = AgentConfig.from_yaml(file).sandbox_config
    assert isinstance(config, NativeSandboxConfig)
    assert (config.status_after_run, config.envs) == ("stop", {"A": "b"})
    file.write_text("sandbox_config:\n  type: native\n  netwrk: none\n")
    with pytest.raises(SandboxValueError, match=r"line 3.*did you mean network"):
        AgentConfig.from_yaml(file)
    with pytest.raises(FileNotFoundError, match="none.yaml"):
        AgentConfig.from_yaml(tmp_path / "none.yaml")


def test_a_file_of_an_agent_says_more_than_its_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    agent = "name: my_agent\nllm_config:\n  model: gpt-4\n  temperature: 0.5\n"
    file.write_text(agent + "tools: [a, b]\nsandbox_config: {type: local}\n")
    config = AgentConfig.from_yaml(file)
    assert config.name == "my_agent"
    assert config.llm_config == {"model": "gpt-4", "temperature": 0.5}
    assert isinstance(config.sandbox_config, LocalSandboxConfig)
    for none in ("", "sandbox_config:\n", "sandbox_config: null\n"):
        file.write_text(agent + "tools: [a, b]\n" + none)
        config = AgentConfig.from_yaml(file)
        assert (config.name, config.sandbox_config) == ("my_agent", None)
        manager, _ = make_manager(config.sandbox_config)
        assert isinstance(manager, NativeSandboxManager)
    file.write_text("type: native\ntemplate: host\n")
    config = AgentConfig.from_yaml(file)
    assert config == AgentConfig(sandbox_config=NativeSandboxConfig(template="host"))
    for wrong, said in (
        ("name: [", "invalid YAML"),
        ("name: 2024-13-45", r"agent.yaml: invalid YAML: month"),
        ("name: " + 3000 * "[" + 3000 * "]", r"agent.yaml: invalid YAML"),
        ("tmplate: x", "did you mean template"),
    ):
        file.write_text(wrong)
        with pytest.raises(SandboxValueError, match=said):
            AgentConfig.from_yaml(file)


# --- What every sandbox has -------------------------------------------------------------------


def test_the_arguments_of_a_dataclass_are_picked_from_a_map() -> None:
    @dataclass
    class Point:
        x: int
        y: int = 0
        z: int = dataclasses.field(default=0, init=False)

    given = {"x": 1, "z": 3, "w": 4}
    assert extract_dataclass_init_kwargs(Point, given) == {"x": 1}
    with pytest.raises(TypeError, match="w, z"):
        extract_dataclass_init_kwargs(Point, given, ignore_extra=False)
    with pytest.raises(TypeError, match="dataclass"):
        extract_dataclass_init_kwargs(int, given)


def test_a_sandbox_is_data() -> None:
    sandbox = NativeSandbox(sandbox_id="sb-x", envs={"A": "b"}, work_dir="/w")
    assert dataclasses.asdict(sandbox)["envs"] == {"A": "b"}
    state = sandbox.dict()
    assert state["work_dir"] == "/w" and "_background_tasks" not in state
    assert json.loads(json.dumps(state)) == state
    assert NativeSandbox(**state) == sandbox
    assert copy.deepcopy(sandbox) == sandbox == pickle.loads(pickle.dumps(sandbox))
    assert str(sandbox) == "NativeSandbox: sb-x (/w)"


def test_variables_of_a_call_go_before_those_of_the_sandbox() -> None:
    sandbox = NativeSandbox(envs={"A": "1", "B": "2"})
    assert sandbox._merge_envs({"B": "3"}) == {"A": "1", "B": "3"}
    assert NativeSandbox()._merge_envs() is None


def test_paths_are_joined_as_inside() -> None:
    sandbox = NativeSandbox()
    assert sandbox.join_path("/a", "b", "c") == "/a/b/c"
    assert sandbox.join_path(Path("/a"), "/b") == "/b"
    assert sandbox.to_shell_path("/a b") == "/a b"
    assert sandbox.get_temp_dir() == "/tmp"
    assert sandbox.get_tool_output_dir().startswith("/tmp/")
    assert sandbox.get_bash_tool_results_base_path().startswith("/tmp/")
    assert sandbox.get_python_command() == "python3"


def test_here_documents_go_to_bash_as_they_are() -> None:
    command = "cat <<EOF\nhi\nEOF"
    assert NativeSandbox().prepare_shell_command(command) == command
    assert NativeSandbox().scriptify_heredoc(command) == command


def test_an_encoding_is_guessed() -> None:
    assert BaseSandbox._detect_file_encoding("grün".encode()).lower() == "utf-8"


def test_the_aliases_name_classes() -> None:
    assert SandboxAlias["local"] == "LocalSandbox" and SandboxAlias["e2b"] == "E2BSandbox"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("cat <<EOF\nx\nEOF", True),
        ("cat <<-'EOF'", True),
        ('cat << "EOF"', True),
        ("echo $((1<<3))", True),
        ("echo hi < file", False),
        ("", False),
    ],
)
def test_what_may_be_a_here_document_is_found(command: str, found: bool) -> None:
    assert contains_heredoc(command) is found
    assert bool(HEREDOC_PATTERN.search(command)) is found


def test_a_command_with_one_here_document_is_taken_apart() -> None:
    block = parse_single_bash_heredoc("cat > 'a b' <<'EOF' && echo ok\n$x\n\ty\nEOF\n")
    assert block is not None
    assert (block.opener, block.body, block.delimiter) == ("<<'EOF'", "$x\n\ty\n", "EOF")
    assert (block.quoted, block.strip_tabs) == (True, False)
    assert (block.command_prefix, block.command_suffix) == ("cat > 'a b'", " && echo ok")
    stripped = parse_single_bash_heredoc("cat <<-END\n\t\tx\n\tEND")
    assert stripped is not None and (stripped.body, stripped.strip_tabs) == ("x\n", True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        block.body = ""  # type: ignore[misc]


@pytest.mark.parametrize(
    "command",
    [
        "echo hi",
        "cat <<A",
        "cat <<A\nno end",
        "cat <<A <<B\na\nA\nb\nB",
        "cat <<A\na\nA\necho more",
    ],
)
def test_other_commands_are_not_taken_apart(command: str) -> None:
    assert parse_single_bash_heredoc(command) is None


def test_a_skill_is_put_below_the_working_directory() -> None:
    done: list[Any] = []

    class Skill:
        folder = "/skills/pdf/"

    class Noting(NativeSandbox):
        def create_directory(self, *path: Any, **_: Any) -> bool:
            done.append(path)
            return True

        def upload_directory(self, *paths: Any) -> bool:
            done.append(paths)
            return True

    sandbox = Noting(work_dir="/w")
    assert sandbox.upload_skill(Skill()) == "/w/.skills/pdf"
    assert done == [("/w/.skills/pdf",), ("/skills/pdf/", "/w/.skills/pdf")]
    with pytest.raises(SandboxError, match="work_dir"):
        Noting(work_dir=None).upload_skill(Skill())


# --- Output made fit to read ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b(Bplain", "plain"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_escape_sequences_are_taken_out(given: str, shown: str) -> None:
    assert strip_ansi(given).endswith(shown[-4:]) and "\x1b" not in strip_ansi(given)


def test_what_was_written_over_is_taken_out() -> None:
    assert resolve_cr("a\r\nb\n") == "a\nb\n"
    assert resolve_cr("10%\r50%\r100%\nx") == "100%\nx"


def test_lines_that_repeat_are_counted() -> None:
    assert collapse_repetitive("x\n" * 3) == "x\n" * 3
    assert collapse_repetitive("x\n" * 5) == "x\n... [3 similar lines collapsed]\nx\n"
    assert collapse_repetitive("line 1\nline 2\nline 3\nline 4\n").count("\n") == 4
    assert collapse_repetitive("\n" * 9) == "\n" * 9
    assert collapse_repetitive("x\n" * 5, min_run=6) == "x\n" * 5


def test_all_of_it_together() -> None:
    assert clean_shell_output("\x1b[1ma\rb\x1b[0m\r\n" * 4).startswith("b\n... [2")
    assert clean_shell_output("grün → ☃\n") == "grün → ☃\n"


def test_long_output_is_cut_in_its_middle() -> None:
    out, err, cut, out_len, err_len = smart_truncate_output("a" * 90, "b" * 9, None, 100)
    assert (out, err, cut, out_len, err_len) == ("a" * 90, "b" * 9, False, None, None)
    text = "".join(chr(ord("a") + n % 26) for n in range(2000))
    out, err, cut, out_len, err_len = smart_truncate_output(
        text, "err", "/tmp/x", 100, 10, 0
    )
    assert out == (
        "abcdefghij\n\n[... 1,990 characters omitted ...]\n"
        "[The whole output: /tmp/x/stdout.txt]\n\n"
    )
    assert (err, cut, out_len, err_len) == ("err", True, 2000, 3)
