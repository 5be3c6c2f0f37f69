# SPDX-License-Identifier: Apache-2.0
"""cay build; tests/sandbox/test-build.c has what the library does."""

import os
import signal
import subprocess
import time

import pytest
from conftest import CAY, PATIENCE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

IMAGE = os.path.join(os.path.dirname(__file__), "../sandbox/make-image")


@pytest.fixture
def cay(tmp_path, monkeypatch):
    """Runs cay with a state directory of its own that has the template tiny."""
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))
    context = tmp_path / "context"
    context.mkdir()

    def run(*words, status=0):
        done = subprocess.run([CAY, *words], cwd=context, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        assert done.returncode == status, done
        return done

    run.context = context
    subprocess.run([IMAGE, "tar", str(tmp_path / "tiny.tar")], check=True, timeout=PATIENCE)
    run("template", "create", "tiny", "--from-tar", str(tmp_path / "tiny.tar"))
    return run


def test_a_template_is_built_and_used(cay):
    (cay.context / "app.docker").write_text(
        "FROM tiny\nARG WHO\nRUN echo hello $WHO | \\\n cat > /x\nCOPY app.docker /\n")
    words = ("build", "-t", "app:1", "-f", "app.docker", "--build-arg", "WHO=you", ".")
    done = cay(*words)
    assert done.stdout == ""
    assert done.stderr == "[1/2] RUN echo hello $WHO |  cat > /x\n[2/2] COPY app.docker /\n"
    assert cay(*words).stderr.count(" cached: ") == 2
    assert cay(*words, "-q").stderr == ""
    assert cay("run", "--template", "app:1", "--", "cat", "/x").stdout == "hello you\n"
    rows = [line.split() for line in cay("template", "ls").stdout.splitlines()]
    assert ["app:1", "build"] in [row[:2] for row in rows]


def test_errors_name_the_line(cay):
    (cay.context / "Dockerfile").write_text("FROM tiny\nRUN true\nRUN echo no >&2; false\n")
    done = cay("build", ".", status=15)
    assert done.stderr.splitlines()[2] == "no"
    assert "exec-failed: Dockerfile:3: a command of RUN failed (exit code 1" in done.stderr
    (cay.context / "Dockerfile").write_text("FROM tiny\nRUN true\nVOLUME /x\n")
    done = cay("build", ".", status=12)
    assert done.stderr.startswith("cay: unsupported: Dockerfile:3: ") and "[" not in done.stderr
    assert "--build-arg" in cay("build", "--build-arg", "x", ".", status=2).stderr


def test_an_interrupted_build_leaves_no_sandbox(cay, tmp_path):
    (cay.context / "Dockerfile").write_text("FROM tiny\nRUN sleep 1000\n")
    with subprocess.Popen([CAY, "build", "."], cwd=cay.context, stderr=subprocess.PIPE) as build:
        assert build.stderr.readline().startswith(b"[1/1]")
        deadline = time.monotonic() + PATIENCE
        while not list((tmp_path / "home/sandboxes").glob("*/options")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        build.send_signal(signal.SIGINT)
        assert build.wait(PATIENCE) == -signal.SIGINT
    assert list((tmp_path / "home/sandboxes").iterdir()) == []
    assert list((tmp_path / "home/layers").iterdir()) == []
