# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/examples, run on a copy of the sample folder."""

import ctypes
import os
import shutil
from pathlib import Path

import pages
import pytest
import test_sessions


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    shutil.copytree(pages.ROOT / "data" / "sample", tmp_path / "sample")
    return tmp_path / "sample"


def example(name: str, sample: Path, *arguments: str, stdin: str = "") -> tuple[int, str]:
    program = pages.BUILD / "docs" / "examples" / name
    result = pages.run([str(program), "policy.yaml", *arguments], sample, stdin)
    return result.returncode, result.stdout


def test_pages_put_together_are_the_file(sample: Path) -> None:
    status, output = example("read-pages", sample, "reference/release.md")
    assert status == 0
    text = "".join(page.split("\n", 1)[1][:-1] for page in output.split("--- ")[1:])
    assert text == (sample / "reference" / "release.md").read_text()


def test_a_path_outside_is_refused_with_the_exit_status_of_its_code(sample: Path) -> None:
    status, output = example("read-pages", sample, "../secret")
    assert status == 18
    assert output.startswith("outside: ../secret: ")


def test_a_yes_lets_the_edit_through(sample: Path) -> None:
    status, output = example("edit-approved", sample, "src/greet.py", "Hello", "Welcome",
                             stdin="y\n")
    assert status == 0
    assert "Approve?" in output and "replaced 1" in output
    assert "Welcome" in (sample / "src" / "greet.py").read_text()


def test_a_no_touches_nothing(sample: Path) -> None:
    before = (sample / "src" / "greet.py").read_text()
    status, output = example("edit-approved", sample, "src/greet.py", "Hello", "Welcome",
                             stdin="n\n")
    assert status == 27
    assert "the person at the terminal said no" in output
    assert (sample / "src" / "greet.py").read_text() == before


def test_a_path_without_approval_gets_no_prompt(sample: Path) -> None:
    status, output = example("edit-approved", sample, "notes/todo.md", "refuse", "reject")
    assert status == 0
    assert "Approve?" not in output


def test_a_derived_view_cannot_be_widened(sample: Path) -> None:
    status, output = example("derive", sample, "src")
    assert status == 0
    assert "the helper may read: src\n" in output
    assert "and cannot get more: " in output


def page_blocks() -> list[str]:
    """The examples in cay-backends(7), as the reader sees them."""
    text = (pages.ROOT / "docs" / "cay-backends.7.scd").read_text()
    return text.split("\n```\n")[1::2]


def test_the_examples_in_the_manual_of_backends_are_those_that_are_tested() -> None:
    examples = [path.read_text() for path in
                (pages.ROOT / "docs" / "examples").glob("backend-*/*")]
    blocks = page_blocks()
    assert len(blocks) == 7
    for block in blocks:
        if not block.startswith(("cc ", "build/")):
            assert any(block in text for text in examples), block


def test_the_command_that_builds_a_shared_backend_does(tmp_path: Path) -> None:
    (line,) = [block for block in page_blocks() if block.startswith("cc ")]
    shutil.copytree(pages.ROOT / "docs" / "examples", tmp_path / "examples")
    folder = tmp_path / "examples" / "backend-shared"
    found = test_sessions.install(tmp_path)
    done = pages.run(["bash", "-c", f"export {found}\n" + line.replace("\\\\", "\\")], folder)
    assert (done.returncode, done.stdout) == (0, "")
    library = ctypes.CDLL(str(pages.BUILD / "libcay.so"))
    assert library.cay_backend_load(bytes(folder / "folder.so"), None, None) == 0


def test_a_registered_backend_runs_commands_and_keeps_files(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("directories are shown inside by root")
    monkeypatch.setenv("FOLDERS", str(tmp_path / "folders"))
    program = pages.BUILD / "docs" / "examples" / "backend-registered"
    done = pages.run([str(program), "echo $GREETING; touch file; exit 3"], tmp_path)
    assert done.stdout == "hello\nexit code 3\nfile\nexit code 0\n"
    assert done.returncode == 0
    assert list((tmp_path / "folders").iterdir()) == []


def test_a_registered_backend_refuses_what_its_fields_do_not_allow(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOLDERS", raising=False)
    program = pages.BUILD / "docs" / "examples" / "backend-registered"
    done = pages.run([str(program), "true"], tmp_path)
    assert done.returncode == 2
    assert "FOLDERS" in done.stdout


def test_a_session_is_found_again_by_the_next_run(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("sandboxes that stay are tested by root")
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))
    (tmp_path / "cay.yaml").write_text(
        "envs: {GREETING: hello}\nclean_output: true\nwork_dir: /srv/notes\n")

    def run(command: str) -> str:
        program = pages.BUILD / "docs" / "examples" / "session"
        return pages.run([str(program), "cay.yaml", "demo", command], tmp_path).stdout

    try:
        assert run(r"printf '\033[31m%s\n' $GREETING | tee note; exit 3") == (
            "hello\n[error, exit code 3]\n")
        shown = pages.run([str(pages.BUILD / "cay"), "session", "show", "demo"], tmp_path).stdout
        assert "state:   paused" in shown
        assert run("pwd; wc -l < note") == "/srv/notes\n1\n[success, exit code 0]\n"
    finally:
        (tmp_path / "cay.yaml").write_text("persist_sandbox: false\n")
        assert run("cat note | wc -l") == "1\n[success, exit code 0]\n"
    shown = pages.run([str(pages.BUILD / "cay"), "session", "show", "demo"], tmp_path).stdout
    assert "state:   none" in shown
    (tmp_path / "cay.yaml").write_text("limts: {memory: 1G}\n")
    assert "line 1: limts: unknown key (did you mean limits?" in run("true")


def test_the_plain_sandbox_runs_a_command_with_its_limits(tmp_path: Path) -> None:
    """Section 4 of issue 15: no example in C created a plain sandbox."""
    program = str(pages.BUILD / "docs" / "examples" / "sandbox")
    result = pages.run([program, "sh", "-c", "echo out; id -un; ls /proc | grep -c '^[0-9]'; "
                        "exit 7"], tmp_path)
    assert result.returncode == 7
    lines = result.stdout.splitlines()
    assert lines[:2] == ["out", "user"] and int(lines[2]) < 10
    memory = "x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}"
    assert "400000000" not in pages.run([program, "sh", "-c", memory], tmp_path).stdout
    assert pages.run([program, "no-such-program"], tmp_path).returncode == 127
