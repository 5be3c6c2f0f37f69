# SPDX-License-Identifier: Apache-2.0
"""cay.build() and cay.Template; tests/sandbox/test-build.c has what the library does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from native import make_sandbox

import cay
from cay.errors import SandboxBusyError
from cay.sandbox import BuildProgress, SandboxError, TemplateNotFoundError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

IMAGE = Path(__file__).parent.parent / "sandbox" / "make-image"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))
    layout = tmp_path / "layout.tar"
    subprocess.run([IMAGE, "oci-tar", layout], check=True)
    cay.create_template("tiny", "image", f"oci-archive:{layout}")
    path = tmp_path / "context"
    path.mkdir()
    (path / "Dockerfile").write_text(
        "FROM tiny AS first\nARG WHO\nUSER 0\nRUN echo hello $WHO\n"
        "FROM first\nLABEL a=b\nRUN echo made > /made\n"
    )
    return path


def test_a_template_is_built_and_inspected(context: Path) -> None:
    seen: list[BuildProgress] = []
    template = cay.build(
        context, "app:1", args={"WHO": "you"}, memory="256M", on_progress=seen.append
    )
    assert template == cay.Template("app:1")
    assert [one.text for one in seen if one.event == "step"] == [
        "RUN echo hello $WHO",
        "RUN echo made > /made",
    ]
    assert "".join(one.text for one in seen if one.event == "output") == "hello you\n"
    assert {(one.step, one.steps) for one in seen} == {(1, 2), (2, 2)}
    assert template.info().source == "build"
    assert template.config()["Labels"] == {"a": "b"}
    assert template.config()["WorkingDir"] == "/srv"
    with make_sandbox(template="app:1") as sandbox:
        assert sandbox.exec(["cat", "/made"]).stdout == "made\n"
        with pytest.raises(SandboxBusyError):
            template.remove()
    assert cay.build(context, args={"WHO": "me"}, target="first", cache=False) is None
    assert cay.Template.prune() == 1
    template.remove()
    with pytest.raises(TemplateNotFoundError):
        template.info()
    assert cay.Template("host").config() == {}


def test_a_build_fails_and_is_cancelled_by_exceptions(context: Path) -> None:
    def stop(progress: BuildProgress) -> None:
        raise KeyError(progress.event)

    with pytest.raises(KeyError, match="step"):
        cay.build(context, on_progress=stop)
    (context / "other").write_text("FROM tiny\nRUN exit 3\n")
    with pytest.raises(SandboxError, match="a command of RUN failed") as caught:
        cay.build(context, file="other", allow=["pypi"])
    assert caught.value.slug == "exec-failed"
    with pytest.raises(SandboxError, match="a part of the image|not a container image"):
        cay.create_template("none", "image", f"oci:{context}")


def test_a_template_is_created_from_a_sandbox(context: Path) -> None:
    with make_sandbox(template="tiny") as sandbox:
        sandbox.files.write("/tmp/made", "x")
        cay.create_template("of-sandbox", "sandbox", sandbox.id)
    assert {one.name: one.source for one in cay.templates()}["of-sandbox"] == "sandbox"
    with make_sandbox(template="of-sandbox") as sandbox:
        assert sandbox.exec(["cat", "/tmp/made"]).stdout == "x"
