# SPDX-License-Identifier: Apache-2.0
"""The build backend of `pip install`: builds cay from the sources around this folder.

It needs no package of an index, only what a distribution has.  `pip -v` prints the build's
progress."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

SOURCES = Path(__file__).resolve().parent.parent
# What the build looks for, and Debian's packages of it.
PROGRAMS = {
    "cc": "gcc",
    "meson": "meson",
    "ninja": "ninja-build",
    "pkg-config": "pkg-config",
    "scdoc": "scdoc",
}
LIBRARIES = {
    "gnutls": "libgnutls28-dev",
    "jansson": "libjansson-dev",
    "libarchive": "libarchive-dev",
    "libcurl": "libcurl4-gnutls-dev",
    "libfyaml": "libfyaml-dev",
    "libmicrohttpd": "libmicrohttpd-dev",
    "libpcre2-8": "libpcre2-dev",
    "libseccomp": "libseccomp-dev",
    "libuv": "libuv1-dev",
    "nettle": "nettle-dev",
    "sqlite3": "libsqlite3-dev",
    "zlib": "zlib1g-dev",
}


def packer() -> ModuleType:
    path = SOURCES / "package" / "wheel"
    if not path.exists():
        raise SystemExit(
            f"cay: {SOURCES} has only the Python package; install from a checkout, or from "
            "cay-VERSION.tar.gz"
        )
    sys.dont_write_bytecode = True
    loader = SourceFileLoader("packer", str(path))
    module = ModuleType(loader.name)
    module.__file__ = str(path)
    loader.exec_module(module)
    return module


def has_library(name: str) -> bool:
    return subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0


def check_tools() -> None:
    programs = [name for name in PROGRAMS if not (
        shutil.which(name) or (name == "cc" and "CC" in os.environ))]
    missing = [(name, PROGRAMS[name]) for name in programs]
    if "pkg-config" not in programs:
        missing += [each for each in LIBRARIES.items() if not has_library(each[0])]
    if missing:
        names = ", ".join(name for name, _ in missing)
        packages = " ".join(package for _, package in missing)
        raise SystemExit(
            f"cay: building needs {names}\n"
            f"cay: on Debian and Ubuntu: apt install {packages}"
        )


def run(*command: str | Path, **env: str) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, env={**os.environ, **env}, check=False
    )
    if done.returncode:
        raise SystemExit(f"cay: `{' '.join(words)}` failed")


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    wheel = packer()
    wheel.write_tree(Path(metadata_directory), wheel.about())
    name: str = wheel.INFO
    return name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    check_tools()
    with tempfile.TemporaryDirectory(prefix="cay-build-") as folder:
        build, root = Path(folder, "build"), Path(folder, "root")
        run("meson", "setup", build, SOURCES, "--prefix=/usr/local", "-Dlibdir=lib",
            "-Dtests=false", "-Dbuildtype=release", "--wrap-mode=nodownload")
        run("meson", "compile", "-C", build)
        run("meson", "install", "-C", build, "--no-rebuild", "--strip", "--quiet",
            DESTDIR=str(root))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        path: Path = packer().write_wheel(platform, root / "usr/local", Path(wheel_directory))
    return path.name


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The package stays in this folder; the library is that of CAY_LIBRARY."""
    path: Path = packer().write_editable(Path(wheel_directory))
    return path.name


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    run(SOURCES / "package" / "sdist", sdist_directory)
    return f"cay-{packer().VERSION}.tar.gz"
