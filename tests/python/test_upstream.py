# SPDX-License-Identifier: Apache-2.0
"""The tests of the package we replace, run as they are against ours."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from conftest import pip

PACKAGE = "pydantic-ai-filesystem-sandbox"
# Their integration tests use what later versions of the approval package dropped.
APPROVAL = "pydantic-ai-blocking-approval==0.8.0"

# How many tests each version has, and those that must fail because we promise otherwise.
VERSIONS: dict[str, tuple[int, set[str]]] = {
    "0.8.0": (58, set()),
    "0.9.0": (
        80,
        {
            # readonly=False under a read-only parent asks for more than the parent has:
            # SandboxPermissionEscalationError, in every style.
            "test_readonly_false_on_ro_mount_inherits_no_write",
        },
    ),
}


@pytest.fixture(scope="module")
def approval(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("approval")
    pip("install", "--quiet", "--no-deps", "--target", folder, APPROVAL)
    return folder


def unpack(version: str, folder: Path) -> Path:
    pip(
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary=:all:",
        f"--dest={folder}",
        f"{PACKAGE}=={version}",
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        # Debian 12's own Python is older than filters.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        sdist.extractall(folder, **safely)
    (unpacked,) = folder.glob("*/tests")
    return unpacked


@pytest.mark.parametrize("version", VERSIONS)
def test_upstreams_own_suite_passes(version: str, approval: Path, tmp_path: Path) -> None:
    count, expected = VERSIONS[version]
    report = tmp_path / "report.xml"
    plugins = Path(__file__).parent / "upstream"
    path = os.pathsep.join(
        [str(approval), str(plugins), os.environ.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "alias", "-p", "no:cacheprovider"]
        + [
            "--rootdir",
            str(tmp_path),
            f"--junitxml={report}",
            str(unpack(version, tmp_path)),
        ],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert report.exists(), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    bad = {
        case.get("name")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    assert bad == expected, done.stdout
    assert len(cases) == count and not any(case.find("skipped") for case in cases)
