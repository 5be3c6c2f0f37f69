# SPDX-License-Identifier: Apache-2.0
"""Compose files with ``build`` and ``image``, and Dockerfiles: their templates are made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from inspect_ai.util import SandboxEnvironment
from native import ledger
from test_inspect_provider import clean, make, run

import cay
from cay.errors import SandboxValueError, TemplateNotFoundError
from cay.inspect import CaySandboxEnvironment

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

IMAGE = Path(__file__).parent.parent / "sandbox" / "make-image"


@pytest.fixture(name="project")
def fixture_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for compose files; the only template is tiny, with busybox."""
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))
    archive = tmp_path / "tiny.tar"
    subprocess.run([IMAGE, "oci-tar", archive], check=True)
    cay.create_template("tiny", "image", f"oci-archive:{archive}")
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


def write(folder: Path, services: dict[str, Any]) -> str:
    file = folder / "compose.yaml"
    file.write_text(yaml.safe_dump({"services": services}))
    return str(file)


def prepare(config: str) -> None:
    run(CaySandboxEnvironment.task_init, "startup", config)
    run(CaySandboxEnvironment.task_cleanup, "startup", config, True)


def names() -> set[str]:
    return {template.name for template in cay.templates()} - {"host", "base"}


@pytest.fixture(name="started")
def fixture_started() -> Iterator[Any]:
    made: dict[str, SandboxEnvironment] = {}

    def start(config: str) -> dict[str, SandboxEnvironment]:
        prepare(config)
        made.update(make(config))
        return made

    with ledger():
        yield start
        clean(made)


def read(environment: SandboxEnvironment, *words: str) -> str:
    return run(environment.exec, [*words]).stdout


def test_services_are_built_and_wait_for_those_they_depend_on(
    project: Path, started: Any
) -> None:
    (project / "db").mkdir()
    (project / "db" / "Dockerfile").write_text(
        "FROM tiny\nUSER 0\nCOPY word /word\nRUN echo built > /made\n"
    )
    (project / "db" / "word").write_text("hello\n")
    (project / "web.docker").write_text("FROM tiny\nUSER 0\nRUN echo web > /made\n")
    config = write(
        project,
        {
            "default": {
                "build": {"context": ".", "dockerfile": "web.docker"},
                "depends_on": {"db": {"condition": "service_healthy"}},
            },
            "db": {
                "build": "./db",
                "command": ["sh", "-c", "sleep 1; touch /tmp/up; sleep 1000"],
                "healthcheck": {"test": ["CMD", "test", "-e", "/tmp/up"], "interval": "1s"},
            },
        },
    )
    made = started(config)
    assert names() == {"tiny", "shop-default", "shop-db"}
    assert read(made["default"], "cat", "/made") == "web\n"
    assert read(made["db"], "cat", "/made", "/word") == "built\nhello\n"
    assert run(made["db"].exec, ["test", "-e", "/tmp/up"]).success


def test_a_changed_file_is_built_again(project: Path, started: Any) -> None:
    (project / "Dockerfile").write_text("FROM tiny\nUSER 0\nCOPY word /word\n")
    config = write(project, {"default": {"build": "."}})
    for word in ("one\n", "two\n"):
        (project / "word").write_text(word)
        made = started(config)
        assert read(made["default"], "cat", "/word") == word
        clean(made)
        made.clear()


def test_a_dockerfile_is_built(project: Path, started: Any) -> None:
    (project / "Dockerfile").write_text("FROM tiny\nUSER 0\nRUN echo made > /made\n")
    made = started(str(project / "Dockerfile"))
    assert read(made["default"], "cat", "/made") == "made\n"


def test_an_image_with_a_build_has_the_name_of_the_image(project: Path, started: Any) -> None:
    (project / "Dockerfile").write_text("FROM tiny\nUSER 0\nRUN echo made > /made\n")
    started(write(project, {"default": {"build": ".", "image": "own/app:2"}}))
    assert names() == {"tiny", "own-app-2"}


def test_a_template_that_was_not_built_is_used_as_it_is(project: Path, started: Any) -> None:
    (project / "Dockerfile").write_text("FROM tiny\nRUN exit 1\n")
    made = started(write(project, {"default": {"build": ".", "image": "tiny"}}))
    assert run(made["default"].exec, ["true"]).success


def test_all_problems_of_all_builds_are_reported_before_the_first_runs(project: Path) -> None:
    for name, text in (("a", "FROM tiny\nVOLUME /x\n"), ("b", "FROM no-such-image-here\n"),
                       ("c", "FROM tiny\nUSER 0\nRUN echo c > /c\n")):
        (project / name).mkdir()
        (project / name / "Dockerfile").write_text(text)
    services: dict[str, Any] = {name: {"build": f"./{name}"} for name in "abc"}
    services["d"] = {"build": "./missing"}
    services["a"]["x-default"] = True
    with pytest.raises(SandboxValueError) as caught:
        prepare(write(project, services))
    text = str(caught.value)
    assert all(f"service {name!r}" in text for name in "abd") and "service 'c'" not in text
    assert names() == {"tiny"}
    assert cay.Template.prune() == 0


def test_an_image_that_cannot_be_downloaded_is_refused_with_how_to_make_it(
    project: Path,
) -> None:
    config = write(project, {"default": {"image": "localhost:1/no/such:1"}})
    with pytest.raises(TemplateNotFoundError, match="cay template create localhost-1-no-such-1"):
        prepare(config)


def test_a_command_that_fails_stops_the_eval(project: Path) -> None:
    (project / "Dockerfile").write_text("FROM tiny\nUSER 0\nRUN exit 3\n")
    with pytest.raises(Exception, match="a command of RUN failed"):
        prepare(write(project, {"default": {"build": "."}}))
    assert names() == {"tiny"}
