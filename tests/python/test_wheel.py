# SPDX-License-Identifier: Apache-2.0
"""A wheel works in an empty virtual environment, with the checkout gone."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import CHECKOUT, pip

SMOKE = """
import cay, cay._c, cay.inspect, cay.tools, os, sys
from importlib.metadata import entry_points
from cay.filesystem import Files, PathConfig, Sandbox, SandboxConfig, SandboxError
from cay.nexau import Agent, NativeSandboxManager, SessionManager

path = PathConfig(root=sys.argv[1], mode="rw")
files = Files(Sandbox(SandboxConfig(paths={"d": path})))
print(files.write("d/a.txt", "hello"), files.read("d/a.txt").content, files.list_files())
try:
    files.read("/etc/passwd")
except SandboxError as error:
    print(error.slug)
print(cay.__version__, cay._c.dll._name)
print([point.value for point in entry_points(group="inspect_ai", name="cay")])
if os.geteuid() == 0:
    with cay.Sandbox.create(ephemeral=True) as sandbox:
        print(sandbox.exec(["echo", "inside"]).stdout, end="")
else:
    print("inside")
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the wheel is built from, which can be taken away."""
    copy = tmp_path_factory.mktemp("checkout") / "cay"
    at_the_top = shutil.ignore_patterns("build*", ".git", ".venv", "tests")
    anywhere = shutil.ignore_patterns("__pycache__")

    def skipped(folder: str, names: list[str]) -> set[str]:
        rule = at_the_top if Path(folder) == CHECKOUT else anywhere
        return rule(folder, names)

    shutil.copytree(CHECKOUT, copy, ignore=skipped)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    before = sorted(checkout.rglob("*"))
    pip("wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", checkout / "python")
    shutil.rmtree(checkout / "python" / "__pycache__", ignore_errors=True)  # of pip
    assert sorted(checkout.rglob("*")) == before, "the build left something behind"
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_is_for_any_python_3_on_this_kind_of_machine(wheel: Path) -> None:
    assert "-py3-none-linux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "cay/libcay.so" in names and "cay/py.typed" in names
    assert not [name for name in names if "test" in name or name.endswith(".c")]
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "\nLicense-Expression: Apache-2.0\n" in text


def test_the_wheel_works_with_the_checkout_gone(
    wheel: Path, checkout: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip("--python", python, "install", "--quiet", wheel)
    checkout.rename(checkout.with_name("gone"))
    try:
        done = subprocess.run(
            [python, "-c", SMOKE, tmp_path / "data"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        )
    finally:
        checkout.with_name("gone").rename(checkout)
    assert done.returncode == 0, done.stderr
    first, second, third, fourth, fifth = done.stdout.splitlines()
    assert first == "Written 5 characters to d/a.txt hello ['d/a.txt']"
    assert second == "outside"
    assert third.endswith("site-packages/cay/libcay.so")
    assert (fourth, fifth) == ("['cay.inspect._registry']", "inside")


def test_a_build_names_the_packages_that_are_missing(
    wheel: Path, checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pkg-config").write_text("#!/bin/sh\n[ $2 != nettle ]\n")
    (tmp_path / "bin" / "pkg-config").chmod(0o755)
    for name in ("cc", "ninja", "scdoc", "sh", "sed", "dirname"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", checkout / "python"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path / "bin"), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "building needs meson, nettle\n" in said
    assert "apt install meson nettle-dev\n" in said


def test_the_list_of_what_a_build_needs_is_that_of_the_build_files(checkout: Path) -> None:
    backend = runpy.run_path(str(CHECKOUT / "python" / "backend.py"))
    text = "".join(
        (CHECKOUT / folder / "meson.build").read_text()
        for folder in (".", "src/server", "docs")
    )
    needed = re.findall(r"dependency\('([^']+)'(?!, required: false)", text)
    assert set(backend["LIBRARIES"]) == set(needed)
    listed = (CHECKOUT / "tools" / "packages").read_text().split()
    for package in (*backend["LIBRARIES"].values(), *backend["PROGRAMS"].values()):
        assert package in listed


def test_an_editable_installation_uses_the_checkout(checkout: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip("--python", python, "install", "--quiet", "--no-deps", "--editable", checkout / "python")
    done = subprocess.run(
        [python, "-c", "import importlib.util as u; print(u.find_spec('cay').origin)"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout.strip() == str(checkout / "python" / "cay" / "__init__.py")


def import_with(library: str, package: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import cay._c"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package)}
        | ({"CAY_LIBRARY": library} if library else {}),
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


def test_a_library_that_is_not_there_is_explained(tmp_path: Path) -> None:
    package = CHECKOUT / "python"  # has no library inside
    assert "CAY_LIBRARY" in import_with("", package)
    assert "apt install" in import_with(str(tmp_path / "none.so"), package)
    (tmp_path / "empty.c").write_text("")
    other = tmp_path / "other.so"
    subprocess.run(["cc", "-shared", "-o", other, tmp_path / "empty.c"], check=True)
    assert "older than this package" in import_with(str(other), package)
