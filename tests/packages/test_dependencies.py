# SPDX-License-Identifier: Apache-2.0
"""The libraries of the release builds: which are built, and in which order."""

import os
import re
import subprocess

import pytest
from conftest import ROOT

SCRIPT = ROOT / "package" / "dependencies"
NAMES = [line.split()[0] for line in (ROOT / "package/sources").read_text().splitlines()
         if not line.startswith("#")]
TARGETS = ["x86_64-linux-gnu.2.34", "aarch64-linux-musl"]


@pytest.fixture
def sources(tmp_path):
    """Sources without a program to build them: their configure fails."""
    for name in NAMES:
        folder = tmp_path / "sources" / name
        (folder / "debian").mkdir(parents=True)
        (folder / "debian/copyright").write_text(f"the licence of {name}\n")
        (folder / ".version").write_text("1\n")
        (folder / "configure").write_text("#!/bin/sh\necho no such compiler\nexit 1\n")
        (folder / "configure").chmod(0o755)
    return tmp_path / "sources"


def build(sources):
    return subprocess.run([SCRIPT, sources, sources.parent / "built", *TARGETS], text=True,
                          env={**os.environ, "CAY_ZIG": "false"}, stdin=subprocess.DEVNULL,
                          capture_output=True, check=False)


def mark_built(sources, names, version="1\n"):
    for target in TARGETS:
        folder = sources.parent / "built" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / f".{name}").write_text(version)


def test_libraries_that_are_there_are_not_built_again(sources):
    mark_built(sources, NAMES)
    done = build(sources)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for target in TARGETS:
        licenses = sources.parent / "built" / target / "share/licenses"
        assert sorted(path.name for path in licenses.iterdir()) == sorted(NAMES)


def test_a_library_of_another_version_is_built_again(sources):
    mark_built(sources, NAMES)
    mark_built(sources, ["pcre2"], "0\n")
    done = build(sources)
    assert done.returncode != 0
    assert "no such compiler" in done.stderr
    assert re.search(r"package/dependencies: pcre2 does not build for \S+-linux-", done.stderr)
    assert len(re.findall("does not build", done.stderr)) <= len(TARGETS)


def test_a_library_is_not_built_before_those_that_it_needs(sources):
    mark_built(sources, set(NAMES) - {"gmp", "nettle", "gnutls28", "curl", "libmicrohttpd"})
    done = build(sources)
    assert done.returncode != 0
    assert set(re.findall(r"dependencies: (\S+) does not build", done.stderr)) == {"gmp"}
