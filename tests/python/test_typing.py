# SPDX-License-Identifier: Apache-2.0
"""The package is typed, strictly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import CHECKOUT

import cay

PACKAGE = Path(cay.__file__).parent


def mypy(cache: Path, *arguments: str | Path) -> str:
    """What mypy says, with the settings of python/pyproject.toml."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", *arguments],
        capture_output=True,
        text=True,
        cwd=CHECKOUT / "python",
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_package_is_strictly_typed(tmp_path: Path) -> None:
    assert mypy(tmp_path, "-p", "cay") == ""


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_a_user_sees_the_types(tmp_path: Path) -> None:
    program = tmp_path / "user.py"
    program.write_text(
        "from cay.filesystem import FileSystemToolset, ReadResult\n"
        "toolset = FileSystemToolset.create_default('x')\n"
        "page: ReadResult = toolset.read('data/a', max_chars=10)\n"
        "names: list[str] = toolset.list_files()\n"
        "toolset.read(1)\n"
    )
    said = mypy(tmp_path, program)
    assert said.count("error:") == 1 and "user.py:5" in said


def test_a_user_of_sandboxes_sees_the_types(tmp_path: Path) -> None:
    program = tmp_path / "user.py"
    program.write_text(
        "from cay import AsyncSandbox, Sandbox\n"
        "from cay.sandbox import ExecResult, Process\n"
        "async def main() -> None:\n"
        "    box = Sandbox.create(memory='1G', network='none')\n"
        "    result: ExecResult = box.exec(['true'])\n"
        "    process: Process = box.start(['true'])\n"
        "    other = await AsyncSandbox.create(memory='1G')\n"
        "    data: bytes = await other.files.read_bytes('a')\n"
        "    await AsyncSandbox.create(memory=1.5)\n"
        "    await other.files.read_bytes(1)\n"
        "    box.exec(['true'], time_out=1)\n"
        "    box.shell('true', time_out=1)\n"
        "    await other.shell('true', timeout='1')\n"
        "    class Mine(Sandbox): ...\n"
        "    with Mine.create() as made, Mine.open('x') as opened:\n"
        "        mine: list[Mine] = [made, opened]\n"
    )
    said = mypy(tmp_path, program)
    assert said.count("error:") == 5, said
    assert all(f"user.py:{line}:" in said for line in range(9, 14))


def test_a_user_of_agents_sandboxes_sees_the_types(tmp_path: Path) -> None:
    program = tmp_path / "user.py"
    program.write_text(
        "from dataclasses import dataclass\n"
        "from cay.nexau import BaseSandboxManager, CommandResult, FileInfo\n"
        "from cay.nexau import NativeSandbox, NativeSandboxManager, SessionManager\n"
        "manager = NativeSandboxManager(template='host', work_dir='/w')\n"
        "sandbox: NativeSandbox = manager.start(SessionManager(), 'u', 's', {})\n"
        "result: CommandResult = sandbox.execute_bash('ls', timeout=5)\n"
        "files: list[FileInfo] = sandbox.list_files('.')\n"
        "instance: NativeSandbox | None = manager.instance\n"
        "@dataclass(kw_only=True)\n"
        "class Mine(NativeSandbox):\n"
        "    more: str = 'x'\n"
        "Mine(more='y', envs={'A': 'b'})\n"
        "sandbox.execute_bash(1)\n"
        "NativeSandbox(envs=1)\n"
        "print(result.exit)\n"
    )
    said = mypy(tmp_path, program)
    assert said.count("error:") == 3, said
    assert all(f"user.py:{line}:" in said for line in (13, 14, 15))
