# SPDX-License-Identifier: Apache-2.0
"""What a document shows: fenced blocks, and sessions of commands with their output."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CAY_BUILD", ROOT / "build"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass
class Block:
    language: str
    text: str


@dataclass
class Command:
    text: str
    output: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a Markdown page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(match[1], match[2]) for match in FENCE.finditer(text)]


def session(text: str) -> list[Command]:
    """"$ command", its "> " lines, and then what it prints, up to the next one."""
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], ""))
        elif line.startswith("> ") and not commands[-1].output:
            commands[-1].text += "\n" + line[2:]
        else:
            commands[-1].output += line + "\n"
    return commands


def sessions(page: str) -> list[Command]:
    return [command for block in blocks(page) if block.text.startswith("$ ")
            for command in session(block.text)]


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8",
            "LD_LIBRARY_PATH": str(BUILD)}


def run(command: list[str], folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Both streams in one, as a terminal shows them."""
    return subprocess.run(command, cwd=folder, env=environment(), input=stdin, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
