# SPDX-License-Identifier: Apache-2.0
"""What Inspect's contract says beyond its own checks, one sentence at a time."""

from __future__ import annotations

import inspect
import os
import pty
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import CHECKOUT, unavailable
from inspect_ai._util.error import exception_message
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox.environment import deserialize_sandbox_specific_config
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
from inspect_ai.util._sandbox.limits import (
    override_max_exec_output_size,
    override_max_read_file_size,
)
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from native import BACKENDS, ledger, run_async, traces
from test_native_exec import MARK, sleepers, wait_for

from cay import errors
from cay.inspect import CayConfig, CaySandboxEnvironment, cleanup, pools
from cay.nexau import SessionManager
from cay.sandbox import Sandbox

DONE = CaySandboxEnvironment.sample_cleanup
ARGUMENT_MAX = 32 * os.sysconf("SC_PAGE_SIZE")


def make(config: Any = None, **metadata: str) -> dict[str, SandboxEnvironment]:
    made: dict[str, SandboxEnvironment] = run_async(
        "asyncio", CaySandboxEnvironment.sample_init, "task", config, metadata
    )
    return made


def clean(made: dict[str, SandboxEnvironment]) -> None:
    run_async("asyncio", DONE, "task", None, made, False)


@pytest.fixture(scope="module")
def environment() -> Iterator[CaySandboxEnvironment]:
    with ledger():
        made = make()
        yield made["default"].as_type(CaySandboxEnvironment)
        clean(made)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the module's own sandbox were another process's."""
    monkeypatch.setattr(cleanup, "_tracked", {})
    monkeypatch.setattr(cleanup, "_untracked", [])


def run(function: Any, *arguments: Any, **options: Any) -> Any:
    async def call() -> Any:
        return await function(*arguments, **options)

    return run_async("asyncio", call)


# --- The class -----------------------------------------------------------------------------


def test_inspect_finds_it_by_name() -> None:
    assert registry_find_sandboxenv("cay").__name__ == "CaySandboxEnvironment"


def test_exec_takes_exactly_what_inspect_passes() -> None:
    taken = inspect.signature(CaySandboxEnvironment.exec).parameters
    assert list(taken) == ["self"] + (
        "cmd input cwd env user timeout timeout_retry concurrency".split()
    )


def test_numbers_inspect_asks_for(environment: CaySandboxEnvironment) -> None:
    assert environment.default_polling_interval() == 0.2
    assert CaySandboxEnvironment.default_concurrency() is None
    assert CaySandboxEnvironment.is_docker_compatible()
    files = CaySandboxEnvironment.config_files()
    assert files[0] == "cay.yaml" and {"compose.yaml", "Dockerfile"} <= set(files)


def test_nothing_of_inspect_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys, cay, cay.sandbox, cay.inspect; print('inspect_ai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_without_inspect_it_is_told_how_to_have_it() -> None:
    script = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'inspect_ai':\n"
        "            raise ModuleNotFoundError('No module', name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from cay.inspect import CaySandboxEnvironment"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install inspect-ai" in done.stderr


# --- exec ----------------------------------------------------------------------------------


def test_what_cannot_be_run_is_a_failed_result_that_says_why(
    environment: CaySandboxEnvironment,
) -> None:
    for options, name in (
        ({"cmd": ["no-such-program"]}, "no-such-program"),
        ({"cmd": ["true"], "cwd": "/no/where"}, "/no/where"),
        ({"cmd": ["true"], "user": "no-such-user"}, "no-such-user"),
        # What a model writes is not to fail its sample.
        ({"cmd": ["bash", "-c", "#" * ARGUMENT_MAX]}, f"{ARGUMENT_MAX >> 10} KiB"),
        ({"cmd": ["true", *["x" * 100_000] * 40]}, "2 MiB"),
        ({"cmd": ["bash", "-c", "echo \ud83d"]}, "lone surrogate"),
        ({"cmd": ["python3", "-"], "input": "print('\ud83d')"}, "lone surrogate"),
    ):
        result = run(environment.exec, **options)
        assert not result.success and result.returncode in (126, 127)
        assert name in result.stderr


@pytest.mark.parametrize("user", [None, "user", "root", "1234"])
def test_the_working_directory_is_the_samples_whoever_runs_the_command(
    environment: CaySandboxEnvironment, user: str | None
) -> None:
    run(environment.write_file, "below/it.txt", "there")
    for cwd, file in ((None, "below/it.txt"), ("below", "it.txt"), ("./", "below/it.txt")):
        result = run(environment.exec, ["cat", file], cwd=cwd, user=user)
        assert result.stdout == "there", result
    assert run(environment.exec, ["pwd"], cwd="/tmp", user=user).stdout == "/tmp\n"


def test_the_working_directory_of_a_configuration_is_everybodys() -> None:
    made = make(CayConfig(workdir="/srv/work", user="root"))
    environment = made["default"].as_type(CaySandboxEnvironment)
    for user in (None, "root", "user"):
        assert run(environment.exec, ["pwd"], user=user).stdout == "/srv/work\n"
    clean(made)


def test_a_program_inside_cannot_change_the_working_directory_of_other_users() -> None:
    made = make(CayConfig(env={"PATH": "/home/user/bin:/usr/bin:/bin"}))
    environment = made["default"].as_type(CaySandboxEnvironment)
    plant = "mkdir bin; printf '#!/bin/bash\\necho /tmp\\n' > bin/sh; chmod +x bin/sh"
    run(environment.exec, ["/bin/sh", "-c", plant])
    assert run(environment.exec, ["sh"]).stdout == "/tmp\n"
    assert run(environment.exec, ["pwd"], user="root").stdout == "/home/user\n"
    clean(made)


def test_a_sandbox_full_of_processes_is_a_failed_result_that_says_so() -> None:
    made = make(CayConfig(pids=20))
    environment = made["default"].as_type(CaySandboxEnvironment)
    script = (
        "import os, time\n"
        "try:\n"
        "    while os.fork(): pass\n"
        "except OSError: print('full', flush=True)\n"
        "time.sleep(60)"
    )
    with environment.sandbox.sync.start(["python3", "-c", script]) as full:
        assert full.read(timeout=20)
        for user in (None, "root"):
            result = run(environment.exec, ["pwd"], user=user)
            assert result.returncode == 126 and "process limit" in result.stderr
        full.kill()
    result = run(environment.exec, ["pwd"], user="root")
    assert result.stdout == "/home/user\n"
    clean(made)


@pytest.mark.parametrize("timeout", [None, 10])
def test_what_may_not_be_executed_is_a_permission_error(
    environment: CaySandboxEnvironment, timeout: int | None
) -> None:
    with pytest.raises(PermissionError) as caught:
        run(environment.exec, ["/etc/passwd"], timeout=timeout)
    assert (caught.value.errno, caught.value.filename) == (13, "/etc/passwd")
    assert caught.value.strerror == os.strerror(13)


def test_a_timeout_has_the_output_until_then(environment: CaySandboxEnvironment) -> None:
    proxy = SandboxEnvironmentProxy(environment)
    for seconds in (1, 10, 60):
        with pytest.raises(TimeoutError) as caught:
            script = "echo out; echo err >&2; sleep 1000"
            run(proxy.exec, ["sh", "-c", script], timeout=seconds)
        told = str(caught.value.truncated_output)  # type: ignore[attr-defined]
        if "err" in told:  # else the machine is too slow for that
            break
    assert told == "out\nerr\n"


def test_a_kill_before_the_time_is_over_is_a_result(
    environment: CaySandboxEnvironment,
) -> None:
    result = run(environment.exec, ["sh", "-c", "kill -KILL $$"], timeout=30)
    assert result.returncode == 137


def test_running_out_of_memory_is_said() -> None:
    with ledger():
        made = make(CayConfig(memory="64M", disk="16M"))
        result = run(made["default"].exec, ["python3", "-c", "b'x' * (1 << 30)"])
        assert result.returncode == 137 and "memory limit" in result.stderr
        clean(made)


def test_over_the_limit_the_end_of_the_output_is_given(
    environment: CaySandboxEnvironment,
) -> None:
    async def work() -> OutputLimitExceededError:
        with override_max_exec_output_size(1024):
            with pytest.raises(OutputLimitExceededError) as caught:
                await environment.exec(["seq", "1", "1000"])
        return caught.value

    error: OutputLimitExceededError = run_async("asyncio", work)
    assert error.limit_str == "1 KiB"
    assert error.truncated_output is not None
    assert error.truncated_output.endswith("\n999\n1000\n")
    assert len(error.truncated_output) == 1024


def test_up_to_the_limit_nothing_is_missing(environment: CaySandboxEnvironment) -> None:
    async def work() -> Any:
        with override_max_exec_output_size(1024):
            return await SandboxEnvironmentProxy(environment).exec(
                ["sh", "-c", "head -c 1024 /dev/zero | tr '\\0' x"]
            )

    assert run_async("asyncio", work).stdout == "x" * 1024


def test_bytes_that_grow_when_decoded_are_held_to_the_limit(
    environment: CaySandboxEnvironment,
) -> None:
    async def work(proxy: SandboxEnvironment) -> Any:
        with override_max_exec_output_size(1000):
            return await proxy.exec(
                ["sh", "-c", "head -c 500 /dev/zero | tr '\\0' '\\377'"]
            )

    with pytest.raises(OutputLimitExceededError) as caught:
        run_async("asyncio", work, environment)
    assert caught.value.truncated_output == "�" * 333
    with pytest.raises(OutputLimitExceededError):
        run_async("asyncio", work, SandboxEnvironmentProxy(environment))


def test_a_raised_limit_is_honoured(environment: CaySandboxEnvironment) -> None:
    async def work() -> Any:
        with override_max_exec_output_size(64 << 20):
            return await environment.exec(["head", "-c", str(20 << 20), "/dev/zero"])

    assert len(run_async("asyncio", work).stdout) == 20 << 20


def test_output_that_is_no_text_is_replaced(environment: CaySandboxEnvironment) -> None:
    result = run(environment.exec, ["printf", "a\\377b\\r\\n"])
    assert result.stdout == "a�b\r\n"


def test_a_null_byte_is_the_error_inspect_knows(
    environment: CaySandboxEnvironment,
) -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        run(environment.exec, ["echo", "a\0b"])


def test_retries_and_the_limit_on_subprocesses_change_nothing(
    environment: CaySandboxEnvironment,
) -> None:
    for flag in (True, False):
        result = run(
            environment.exec, ["echo", "x"], timeout_retry=flag, concurrency=flag
        )
        assert result.stdout == "x\n"


def test_children_in_the_background_live_on(environment: CaySandboxEnvironment) -> None:
    box = environment.sandbox.sync
    result = run(environment.exec, ["sh", "-c", f"{MARK} & echo ready"], timeout=20)
    try:
        assert result.stdout == "ready\n"
        assert wait_for(lambda: len(sleepers(box)) == 1)
    finally:
        box.exec(["pkill", "-f", MARK], user="root")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancelled_call_ends_its_command(
    environment: CaySandboxEnvironment, backend: str
) -> None:
    async def work() -> None:
        with anyio.move_on_after(0.3):
            await environment.exec(["sh", "-c", f"setsid {MARK} & {MARK}"])

    run_async(backend, work)
    assert sleepers(environment.sandbox.sync) == []


# --- Files ---------------------------------------------------------------------------------


def test_line_ends_and_bytes_are_kept(environment: CaySandboxEnvironment) -> None:
    run(environment.write_file, "crlf", "a\r\nb\rc\n")
    assert run(environment.read_file, "crlf") == "a\r\nb\rc\n"
    run(environment.write_file, "bytes", b"\xff\0")
    assert run(environment.read_file, "bytes", False) == b"\xff\0"
    with pytest.raises(UnicodeDecodeError):
        run(environment.read_file, "bytes", True)


@pytest.mark.parametrize("name", ["none", "dir", "closed", "fifo", "."])
def test_errors_of_files_have_number_words_and_name(
    environment: CaySandboxEnvironment, name: str
) -> None:
    script = (
        "rm -rf dir closed fifo; mkdir dir; touch closed; chmod 0 closed; mkfifo fifo"
    )
    run(environment.exec, ["sh", "-c", script])
    kind = {
        "none": FileNotFoundError,
        "closed": PermissionError,
        "dir": IsADirectoryError,
        ".": IsADirectoryError,
        "fifo": OSError,
    }[name]
    with pytest.raises(kind) as caught:
        run(environment.read_file, name)
    assert caught.value.errno and caught.value.strerror
    assert caught.value.filename == name and name in str(caught.value)


def test_a_file_over_the_limit_is_never_read(environment: CaySandboxEnvironment) -> None:
    async def work() -> str:
        await environment.write_file("exact", "x" * 1024)
        with override_max_read_file_size(1024):
            whole = await environment.read_file("exact")
            await environment.write_file("exact", "x" * 1025)
            with pytest.raises(OutputLimitExceededError, match="1 KiB") as caught:
                await environment.read_file("exact")
        assert caught.value.truncated_output is None
        return whole

    assert run_async("asyncio", work) == "x" * 1024


def test_a_written_file_keeps_its_mode_and_its_links(
    environment: CaySandboxEnvironment,
) -> None:
    script = "rm -f one two; echo old > one; chmod 600 one; ln one two"
    run(environment.exec, ["sh", "-c", script])
    run(environment.write_file, "one", "new")
    assert run(environment.read_file, "two") == "new"
    assert run(environment.exec, ["stat", "-c", "%a", "one"]).stdout == "600\n"


def test_a_link_cannot_lead_to_the_host(
    environment: CaySandboxEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of the host")
    run(environment.exec, ["ln", "-sf", str(tmp_path / "secret"), "out"])
    with pytest.raises(FileNotFoundError):
        run(environment.read_file, "out")


# --- From outside --------------------------------------------------------------------------


def test_the_connection_is_a_line_for_a_shell(environment: CaySandboxEnvironment) -> None:
    id = environment.sandbox.id
    connection = run(environment.connection)
    assert (connection.type, connection.command) == ("cay", f"cay shell {id}")
    assert connection.ports is None and connection.container == id
    named = run(environment.connection, user="root")
    assert named.command == f"cay shell -u root {id}"


def test_the_line_opens_a_shell(environment: CaySandboxEnvironment) -> None:
    program = CHECKOUT / "build" / "cay"
    if not program.exists():
        unavailable("build/cay is not there")
    _, *words = shlex.split(run(environment.connection, user="root").command)
    ours, theirs = pty.openpty()
    shell = subprocess.Popen([program, *words], stdin=theirs, stdout=theirs)
    os.close(theirs)
    os.write(ours, b"echo I am $(id -un); exit 3\n")
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:
        pass  # how a terminal ends
    os.close(ours)
    assert shell.wait(timeout=20) == 3 and b"I am root" in said


def test_where_there_is_one_user_only_inspect_is_told_so() -> None:
    with ledger():
        made = make(CayConfig(level="single", workdir="/tmp/made"))
        environment = made["default"].as_type(CaySandboxEnvironment)
        with pytest.raises(SandboxUserUnsupportedError):
            run(environment.exec, ["id"], user="root")
        assert run(environment.exec, ["pwd"]).stdout == "/tmp/made\n"
        clean(made)


@pytest.mark.parametrize("how", ["killed", "cleaned up"])
def test_a_sandbox_that_is_gone_is_unavailable(how: str) -> None:
    with ledger():
        made = make()
        environment = made["default"].as_type(CaySandboxEnvironment)
        run(environment.write_file, "x", "")
        if how == "killed":
            environment.sandbox.sync.kill()
        else:
            clean(made)
        for call in (
            lambda: run(environment.exec, ["true"]),
            lambda: run(environment.read_file, "x"),
            lambda: run(environment.write_file, "x", ""),
        ):
            with pytest.raises(SandboxUnavailableError):
                call()
        with pytest.raises(ConnectionError):
            run(environment.connection)
        clean(made)


def test_a_sandbox_that_ends_under_a_command_is_unavailable() -> None:
    async def work(environment: CaySandboxEnvironment) -> None:
        async with anyio.create_task_group() as group:

            async def kill() -> None:
                await anyio.sleep(0.3)
                await environment.sandbox.kill()

            group.start_soon(kill)
            with pytest.raises(SandboxUnavailableError):
                await environment.exec(["sleep", "60"])

    with ledger():
        made = make()
        run_async("asyncio", work, made["default"].as_type(CaySandboxEnvironment))
        clean(made)


def told(function: Any, *arguments: Any) -> str:
    """What Inspect's log has of the error."""
    with pytest.raises(errors.CayError) as caught:
        run(function, *arguments)
    message = exception_message(caught.value)
    assert message == str(caught.value)
    return message


def test_the_log_has_what_an_error_is_about_and_what_to_do(
    environment: CaySandboxEnvironment, tmp_path: Path
) -> None:
    assert told(environment.read_file, "nofile.txt").startswith("nofile.txt: ")
    assert told(environment.write_file, "/usr/x", "").startswith("/usr/x: ")
    assert told(environment.exec, ["true"], None, "a\0b").startswith("cwd: ")
    sample_init = CaySandboxEnvironment.sample_init
    message = told(sample_init, "task", CayConfig(memory="abc"), {})
    assert message.startswith("memory: invalid size 'abc' (")
    assert "zz" in told(sample_init, "task", CayConfig(user="zz"), {})
    file = tmp_path / "cay.yaml"
    file.write_text("ram: 1G\n")
    message = told(CaySandboxEnvironment.task_init, "startup", str(file))
    assert message.startswith(f"{file}: ") and "memory" in message


# --- Life ----------------------------------------------------------------------------------


def test_a_configuration_is_what_the_sandbox_gets(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "f").write_text("host")
    tmp_path.chmod(0o755)
    file = tmp_path / "cay.yaml"
    file.write_text(
        "memory: 256M\ndisk: 64M\npids: 50\nworkdir: /tmp\nenv: {A: b}\n"
        "volumes: ['./shown:/shown:ro']\nttl: 600\n"
    )
    with ledger():
        made = make(str(file))
        environment = made["default"].as_type(CaySandboxEnvironment)
        info = environment.sandbox.sync.inspect()
        assert (info.memory, info.pids, info.ephemeral) == (256 << 20, 50, True)
        said = run(environment.exec, ["sh", "-c", "echo $A; pwd; cat /shown/f"]).stdout
        assert said == "b\n/tmp\nhost"
        clean(made)


def test_a_configuration_for_the_command_does_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "f").write_text("host")
    tmp_path.chmod(0o755)
    monkeypatch.setenv("CAY_TEST_WORD", "word")
    file = tmp_path / "cay.yaml"
    file.write_text(
        "limits: {memory: 256M, disk: 64M, pids: 50, cpu: 150}\nwork_dir: /srv/deep\n"
        "envs: {A: '${env.CAY_TEST_WORD}'}\nhostname: box\n"
        "mounts: ['${this_file_dir}/shown:/shown:ro']\n"
    )
    with ledger():
        made = make(str(file))
        environment = made["default"].as_type(CaySandboxEnvironment)
        info = environment.sandbox.sync.inspect()
        assert (info.memory, info.pids, info.ephemeral) == (256 << 20, 50, True)
        script = "echo $A; pwd; hostname; cat /shown/f"
        said = run(environment.exec, ["sh", "-c", script]).stdout
        assert said == "word\n/srv/deep\nbox\nhost"
        clean(made)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("limits: {memry: 1G}\n", "line 1: limits.memry: unknown key"),
        ("sandbox_config: {type: local}\n", "cannot be used for samples"),
        ("policy: {root: .}\n", "cannot be used for samples"),
        ("limits: {pids: 9}\nnetworks: [a]\n", "a compose file instead of networks"),
        ("limits: {memory: 1G}\nram: 1G\n", "line 2: ram: unknown key"),
        ("memory: 1G\nram: 1G\n", "unknown key 'ram'"),
    ],
)
def test_a_configuration_that_no_sample_can_have_is_told(
    tmp_path: Path, content: str, said: str
) -> None:
    file = tmp_path / "cay.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match=said):
        run(CaySandboxEnvironment.task_init, "startup", str(file))


def test_a_model_survives_inspects_log() -> None:
    config = CayConfig(memory="1G", env={"A": "b"}, volumes=("/usr:/u:ro",))
    spec = SandboxEnvironmentSpec("cay", config)
    again = SandboxEnvironmentSpec.model_validate(spec.model_dump(mode="json"))
    assert again.config == config and hash(again.config) == hash(config)
    assert isinstance(
        deserialize_sandbox_specific_config("cay", {"memory": "2G"}), CayConfig
    )
    with pytest.raises(ValueError):
        CayConfig.model_validate({"ram": "1G"})


@pytest.mark.parametrize(
    "content", ["ram: 1G\n", "- a\n", "network: bridge\n", "cpus: -1\n", "cpus: .nan\n"]
)
def test_a_wrong_file_is_told_before_any_sample(tmp_path: Path, content: str) -> None:
    file = tmp_path / "cay.yaml"
    file.write_text(content)
    with pytest.raises(ValueError):
        run(CaySandboxEnvironment.task_init, "startup", str(file))


def test_samples_that_are_not_cleaned_up_are_at_the_end_of_the_task(alone: None) -> None:
    with ledger() as made:
        make()
        make()
        assert len(made) == 2 and traces(made) != []
        run(CaySandboxEnvironment.task_cleanup, "shutdown", None, True)
        assert traces(made) == []


@pytest.mark.parametrize("ephemeral", [True, False])
def test_without_cleanup_the_ids_are_told_and_no_later_eval_removes_them(
    alone: None,
    ephemeral: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cleanup, "_directory", lambda: tmp_path / "kept")
    with ledger() as made:
        make(CayConfig(ephemeral=ephemeral))
        (id,) = made
        run(CaySandboxEnvironment.task_cleanup, "shutdown", None, False)
        assert id in capsys.readouterr().err
        make()
        run(CaySandboxEnvironment.task_cleanup, "shutdown", None, True)
        assert [one.id for one in Sandbox.list() if one.id in made] == [id]
        run(CaySandboxEnvironment.cli_cleanup, id)
        cleanup._untracked.clear()


def test_what_is_kept_is_cleaned_up_from_the_command_line(
    alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "_directory", lambda: tmp_path / "kept")
    with ledger() as ids:
        for arguments in ([], "id"):
            made = make(CayConfig(ephemeral=False))
            environment = made["default"].as_type(CaySandboxEnvironment)
            id = environment.sandbox.id
            cleanup._tracked.clear()  # as in another process
            environment.sandbox.close()
            assert traces({id}) != []
            run(CaySandboxEnvironment.cli_cleanup, id if arguments else None)
            assert traces(ids) == [] and list((tmp_path / "kept").iterdir()) == []


def test_cleaning_up_what_is_not_there_says_so_in_one_line() -> None:
    command = [sys.executable, "-m", "inspect_ai", "sandbox", "cleanup", "cay", "sb-none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done
    assert done.stderr.startswith("cay: sb-none: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_ids_are_kept_where_the_library_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))
    SessionManager()
    assert (cleanup._directory().parent / "cay.db").exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAY_HOME", "relative")
    for ask in (SessionManager, cleanup._directory):
        with pytest.raises(errors.SandboxUnavailableError) as caught:
            ask()
        assert caught.value.subject == "CAY_HOME"


@pytest.mark.parametrize(
    ("state", "home", "expected"),
    [
        ("/state", "/home/me", "/state/cay/inspect"),
        ("relative", "/home/me", "/home/me/.local/state/cay/inspect"),
        ("", "/home/me", "/home/me/.local/state/cay/inspect"),
        ("", "relative", None),
        ("", "", None),
    ],
)
def test_without_cay_home_ids_are_with_the_users_state(
    monkeypatch: pytest.MonkeyPatch, state: str, home: str, expected: str | None
) -> None:
    monkeypatch.delenv("CAY_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if expected:
        assert cleanup._directory() == Path(expected)
    else:
        with pytest.raises(errors.SandboxUnavailableError):
            cleanup._directory()


def test_an_interrupted_sample_init_leaves_nothing(alone: None) -> None:
    async def work() -> None:
        with anyio.move_on_after(0.002):
            await CaySandboxEnvironment.sample_init("task", None, {})

    with ledger():
        run_async("asyncio", work)
        run(CaySandboxEnvironment.task_cleanup, "shutdown", None, True)


def test_many_samples_start_at_once() -> None:
    async def one(all_made: list[dict[str, SandboxEnvironment]]) -> None:
        all_made.append(await CaySandboxEnvironment.sample_init("task", None, {}))

    async def work() -> list[dict[str, SandboxEnvironment]]:
        all_made: list[dict[str, SandboxEnvironment]] = []
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(one, all_made)
        return all_made

    with ledger() as ids:
        all_made = run_async("asyncio", work)
        assert len(ids) == 20
        for made in all_made:
            clean(made)


def test_processes_of_an_eval_that_is_gone_are_collected_at_the_next_start() -> None:
    with ledger() as made:
        script = (
            "import os; from cay import Sandbox\n"
            "print(Sandbox.create(ephemeral=True).id, flush=True); os.kill(os.getpid(), 9)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True
        )
        made.add(done.stdout.strip())

        def gone() -> bool:
            run(CaySandboxEnvironment.task_init, "startup", CayConfig(pool=0))
            return traces(made) == []

        assert wait_for(gone)


@pytest.mark.parametrize("config", ["'cay'", "('cay', 'x.yaml')"])
def test_an_inspect_that_is_too_old_is_reported_with_the_version_needed(
    tmp_path: Path, config: str
) -> None:
    """Section 6 of issue 15: Inspect said that it knows no such type of sandbox."""
    script = (
        "import inspect_ai.util as util\n"
        "del util.SandboxUnavailableError\n"
        "from inspect_ai import Task, eval\n"
        "from inspect_ai.dataset import Sample\n"
        f"task = Task(dataset=[Sample('x')], sandbox={config})\n"
        "eval(task, model='mockllm/model', display='plain')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    told = " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in told and "needs inspect-ai 0.3.275 or newer; 0.3." in told, told
    assert "pip install --upgrade inspect-ai" in told and "not recognized" not in told


def test_the_oldest_inspect_is_the_one_that_the_package_names() -> None:
    from cay.inspect._registry import OLDEST

    text = (CHECKOUT / "python" / "pyproject.toml").read_text()
    assert f'inspect = ["inspect-ai>={OLDEST}"]' in text


def test_dockers_root_and_its_directory_are_two_settings() -> None:
    """docs/inspect.md names them."""
    page = (CHECKOUT / "docs" / "inspect.md").read_text()
    assert "user: root" in page and "workdir: /" in page
    with ledger():
        made = make(CayConfig(user="root", workdir="/"))
        result = run(made["default"].exec, ["sh", "-c", "id -un; pwd"])
        assert result.stdout == "root\n/\n"
        clean(made)


def test_samples_use_sandboxes_that_are_created_ahead_for_the_task() -> None:
    config = CayConfig(pool=2)
    run(CaySandboxEnvironment.task_init, "ahead", config)
    try:
        pool = pools.find(config)
        assert pool is not None
        pool.wait(timeout=120)
        environments = run(CaySandboxEnvironment.sample_init, "ahead", config, {})
        result = run(environments["default"].exec, ["echo", "hi"])
        assert result.stdout == "hi\n"
        run(CaySandboxEnvironment.sample_cleanup, "ahead", config, environments, False)
        deadline = time.monotonic() + 60
        while pool.stats().claimed == 0 and time.monotonic() < deadline:
            time.sleep(0.01)  # the pool notices a claim a moment later
        assert pool.stats().claimed == 1
    finally:
        run(CaySandboxEnvironment.task_cleanup, "ahead", config, True)
    assert pools.find(config) is None


def test_tasks_with_the_same_options_share_a_pool() -> None:
    config = CayConfig(pool=1)
    run(CaySandboxEnvironment.task_init, "one", config)
    run(CaySandboxEnvironment.task_init, "other", config)
    pool = pools.find(config)
    run(CaySandboxEnvironment.task_cleanup, "one", config, True)
    assert pools.find(config) is pool is not None
    run(CaySandboxEnvironment.task_cleanup, "other", config, True)
    assert pools.find(config) is None


def test_no_pool_is_created_for_sandboxes_on_disk_or_without_one() -> None:
    for config in (CayConfig(pool=0), CayConfig(storage="disk")):
        run(CaySandboxEnvironment.task_init, "none", config)
        assert pools.find(config) is None
        run(CaySandboxEnvironment.task_cleanup, "none", config, True)
