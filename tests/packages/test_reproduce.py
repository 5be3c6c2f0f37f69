# SPDX-License-Identifier: Apache-2.0
"""package/reproduce finds files that depend on the directory of the build."""

import shutil
import subprocess

import pytest
from conftest import ROOT

ALL = """#!/bin/sh
mkdir -p "$1" && echo same >"$1/one" && echo {contents} >"$1/two"
"""
FINISH = """#!/bin/sh
cd "$1" && sha256sum one two >SHA256SUMS
"""


@pytest.mark.parametrize("contents, differs", [("same", False), ('"$PWD"', True)])
def test_a_file_that_differs_is_named(tmp_path, contents, differs):
    (tmp_path / "package").mkdir()
    shutil.copy(ROOT / "package" / "reproduce", tmp_path / "package")
    for name, text in (("all", ALL.format(contents=contents)), ("finish", FINISH)):
        (tmp_path / "package" / name).write_text(text)
        (tmp_path / "package" / name).chmod(0o755)

    def run(*words):
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    for words in (["init"], ["add", "."],
                  ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-m", "a"]):
        assert run("git", *words).returncode == 0
    assert "run make release" in run("package/reproduce", ".").stderr
    run("package/all", "dist")
    run("package/finish", "dist")
    done = run("package/reproduce", "dist")
    if differs:
        assert (done.returncode, done.stderr) == (1, "package/reproduce: differs: two\n")
    else:
        assert (done.returncode, done.stdout) == (0, "2 files are the same\n")
