# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/examples, run on a copy of the sample folder."""

import shutil
from pathlib import Path

import pages
import pytest


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


def test_nobody_is_asked_where_the_policy_does_not_want_it(sample: Path) -> None:
    status, output = example("edit-approved", sample, "notes/todo.md", "refuse", "reject")
    assert status == 0
    assert "Approve?" not in output


def test_a_derived_view_cannot_be_widened(sample: Path) -> None:
    status, output = example("derive", sample, "src")
    assert status == 0
    assert "the helper may read: src\n" in output
    assert "and cannot get more: " in output
