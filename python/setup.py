# SPDX-License-Identifier: Apache-2.0
"""Builds libcay from the checkout around this folder, and adds it to the package."""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

CHECKOUT = Path(__file__).resolve().parent.parent
LIBRARY = "libcay.so"


def stop(why: str) -> SystemExit:
    return SystemExit(f"cay: {why}")


def version() -> str:
    try:
        text = (CHECKOUT / "meson.build").read_text()
    except FileNotFoundError:
        raise stop(
            "the C library's sources are not beside this folder; install from a checkout"
        ) from None
    found = re.search(r"version:\s*'([^']+)'", text)
    assert found, "meson.build names no version"
    return found[1]


def run(*command: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        output = done.stdout.decode(errors="replace")
        raise stop(
            f"`{' '.join(command)}` failed:\n{output}\n"
            "If a tool or a library is missing, `make deps` in the checkout installs it."
        )


def build_library(target: Path) -> None:
    for tool in ("meson", "ninja", "pkg-config"):
        if not shutil.which(tool):
            raise stop(
                f"{tool} is not installed; `make deps` in the checkout installs it"
            )
    with tempfile.TemporaryDirectory(prefix="cay-") as folder:
        run(
            "meson",
            "setup",
            folder,
            str(CHECKOUT),
            "-Dtests=false",
            "-Dbuildtype=release",
        )
        run("meson", "compile", "-C", folder, "cay:shared_library")
        shutil.copy(Path(folder, LIBRARY).resolve(), target)


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        # An editable install takes the library from CAY_LIBRARY.
        if not self.editable_mode:
            build_library(Path(self.build_lib, "cay", LIBRARY))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = list(super().get_outputs(include_bytecode))
        return outputs + [str(Path(self.build_lib, "cay", LIBRARY))]


class PlatformWheel(bdist_wheel):
    """For any Python 3, but one architecture: ctypes calls the library."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class NoSources(sdist):
    """The sources of the library are outside this folder: such a file would not install."""

    def run(self) -> None:
        raise stop("a source distribution needs the whole checkout; make a wheel: pip wheel .")


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


# Outside the checkout: no build files stay there, and no old ones get into a wheel.
scratch = tempfile.TemporaryDirectory(prefix="cay-build-")
atexit.register(scratch.cleanup)
setup(
    version=version(),
    options={
        "build": {"build_base": scratch.name},
        "egg_info": {"egg_base": scratch.name},
    },
    distclass=BinaryDistribution,
    cmdclass={
        "build_py": BuildWithLibrary,
        "bdist_wheel": PlatformWheel,
        "sdist": NoSources,
    },
)
