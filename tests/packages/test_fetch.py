# SPDX-License-Identifier: Apache-2.0
"""package/fetch with a mirror that no longer has the versions of package/sources."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT

APT_GET = """#!/bin/sh
case " $* " in *" source "*) echo 'E: Failed to fetch: 404  Not Found' >&2; exit 100 ;; esac
"""
APT_CACHE = """#!/bin/sh
case " $* " in *" pcre2 "*) printf 'Version: 10.42-1+deb12u2\\n\\nVersion: 10.42-1+deb12u1\\n' ;; esac
"""


@pytest.fixture
def fetch(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "package" / "fetch", tmp_path / "package")
    (tmp_path / "package" / "sources").write_text("# the list\npcre2 10.42-1\n")
    for name, text in (("apt-get", APT_GET), ("apt-cache", APT_CACHE)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def run(argument):
        return subprocess.run([tmp_path / "package" / "fetch", argument], capture_output=True,
                              env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
                              text=True, check=False)
    return run


def test_a_version_that_is_gone_is_reported_with_what_helps(fetch, tmp_path):
    done = fetch(tmp_path / "out")
    assert done.returncode == 1
    assert "cannot get pcre2 10.42-1; the mirror lists 10.42-1+deb12u1 10.42-1+deb12u2" in done.stderr
    assert "package/fetch --update" in done.stderr and "404" in done.stderr


def test_an_update_writes_the_newest_versions(fetch, tmp_path):
    assert fetch("--update").returncode == 0
    text = (tmp_path / "package" / "sources").read_text()
    assert text == "# the list\npcre2 10.42-1+deb12u2\n"


def test_an_update_without_the_lists_changes_nothing(fetch, tmp_path):
    before = "# the list\nzlib 1\n"
    (tmp_path / "package" / "sources").write_text(before)
    done = fetch("--update")
    assert done.returncode == 1 and "the mirror has no zlib" in done.stderr
    assert (tmp_path / "package" / "sources").read_text() == before
