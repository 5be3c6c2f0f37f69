# SPDX-License-Identifier: Apache-2.0
"""package/all builds what the wanted kinds of packages need, and nothing else."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT

STEPS = ("fetch", "dependencies", "build", "sdist", "wheel", "tarball", "image", "deb")
STEP = '#!/bin/sh\necho "${0##*/} $*" >>"$CALLS"\n'


@pytest.fixture
def build(tmp_path):
    """Runs package/all with steps that write down their arguments; returns these."""
    package = tmp_path / "package"
    package.mkdir()
    for name in ("all", "toolchain"):
        shutil.copy(ROOT / "package" / name, package)
    for name in STEPS:
        (package / name).write_text(STEP)
        (package / name).chmod(0o755)
    # The compiler is there, as after an earlier build.
    venv = tmp_path / "build-package/venv"
    for path in (venv / "bin/python", venv / "bin/pip",
                 venv / "lib/python3/site-packages/ziglang/zig"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STEP)
        path.chmod(0o755)

    def run(*kinds):
        calls = tmp_path / "calls"
        calls.write_text("")
        done = subprocess.run([package / "all", tmp_path / "dist", *kinds], text=True,
                              env={**os.environ, "CALLS": str(calls), "SOURCE_DATE_EPOCH": "1",
                                   "CAY_PROCESSORS": "x86_64 aarch64"},
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done, [line.split() for line in calls.read_text().splitlines()]
    return run


def targets(calls):
    """Those that cay is built for, if the libraries were built for the same."""
    (libraries,) = (words[3:] for words in calls if words[0] == "dependencies")
    assert [words[1] for words in calls if words[0] == "build"] == libraries
    return libraries


MUSL = ["x86_64-linux-musl", "aarch64-linux-musl"]


def test_sources_and_debian_packages_need_no_libraries(build):
    done, calls = build("sdist", "deb")
    assert done.returncode == 0, done.stderr
    assert [words[0] for words in calls] == ["sdist", "deb"]
    assert calls[1][2:] == ["x86_64", "aarch64"]


@pytest.mark.parametrize("kind", ["tarball", "image"])
def test_tarballs_and_images_need_only_the_libraries_of_musl(build, kind):
    done, calls = build(kind)
    assert done.returncode == 0, done.stderr
    assert targets(calls) == MUSL
    made = [words for words in calls if words[0] == kind]
    assert [words[1] for words in made] == ["x86_64", "aarch64"]
    assert made[1][2].endswith("/build-package/aarch64-linux-musl/root")


def test_an_image_has_a_program_of_the_debian_packages(build):
    done, calls = build("image")
    assert done.returncode == 0, done.stderr
    names = [words[0] for words in calls]
    assert names.count("deb") == 1
    assert names.index("deb") < names.index("image")
    assert "deb" not in [words[0] for words in build("tarball")[1]]


def test_all_kinds_are_built_if_none_is_given(build):
    done, calls = build()
    assert done.returncode == 0, done.stderr
    assert sorted(set(targets(calls)) - set(MUSL)) == [
        "aarch64-linux-gnu.2.34", "x86_64-linux-gnu.2.34"]
    assert {words[0] for words in calls} - {"pip"} == set(STEPS)
    tags = {words[1]: words[2].split("/")[-2] for words in calls if words[0] == "wheel"}
    assert tags == {
        "manylinux_2_34_x86_64": "x86_64-linux-gnu.2.34", "musllinux_1_2_x86_64": MUSL[0],
        "manylinux_2_34_aarch64": "aarch64-linux-gnu.2.34", "musllinux_1_2_aarch64": MUSL[1]}


def test_an_unknown_kind_is_refused_before_anything_is_built(build):
    done, calls = build("wheels")
    assert (done.returncode, calls) == (2, [])
    assert "invalid kind wheels (sdist, wheel, tarball, image and deb are valid)" in done.stderr
