# SPDX-License-Identifier: Apache-2.0
"""package/reproduce finds files that depend on the directory of the build; package/copy-sources
gives them the same date in every checkout."""

import os
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


@pytest.mark.parametrize("age", [-1000, 1000])
def test_copied_sources_have_the_date_of_the_last_commit(tmp_path, age):
    """Files that were edited before the commit are older, those of a clone are newer."""
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    (tree / "package").mkdir(parents=True)
    for name in ("copy-sources", "date"):
        shutil.copy(ROOT / "package" / name, tree / "package")
    when = 1700000000
    for path in tree.rglob("*"):
        os.utime(path, (when + age, when + age))
    for words in (["init", "--quiet"], ["add", "."],
                  ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet",
                   "-m", "a"]):
        subprocess.run(["git", *words], cwd=tree, check=True,
                       env={**os.environ, "GIT_COMMITTER_DATE": f"{when} +0000"})
    environment = {name: text for name, text in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run([tree / "package" / "copy-sources", copy], check=True, env=environment)
    dates = {path.name: path.stat().st_mtime for path in copy.rglob("*") if path.is_file()}
    assert dates == {"copy-sources": when, "date": when}
