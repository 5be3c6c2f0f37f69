# SPDX-License-Identifier: Apache-2.0
"""cay build; tests/sandbox/test-build.c has what the library does."""

import os
import signal
import subprocess
import time

import pytest
from conftest import CAY, PATIENCE
from test_relay import PUBLIC, PUBLIC_TOO, internet  # noqa: F401 (internet is a fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# The static busybox cannot look up names, nor addresses.
DIAL = r"""
#include <arpa/inet.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7777)};
    char text[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (argc != 2 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        return 1;
    ssize_t len = read(fd, text, sizeof text);
    return len > 0 && write(1, text, (size_t)len) == len ? 0 : 1;
}
"""

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


APT = """#!/bin/sh
echo "$@" >> /log
dial 93.184.216.34 >> /log && echo reached >> /log || true
"""


def test_packages_are_added_to_a_template_or_a_new_system(cay, tmp_path):
    (cay.context / "apt").write_text('#!/bin/sh\necho "$@" >> /log\n')
    (cay.context / "Dockerfile").write_text("FROM tiny\nCOPY --chmod=755 apt /usr/bin/apt-get\n")
    cay("build", "-t", "like-debian", ".")
    cay("template", "create", "more", "--from", "like-debian", "--add", "git,curl", "--add", "less")
    ran = cay("run", "--template", "more", "--", "cat", "/log").stdout
    assert "install -- git curl less\n" in ran
    # Another source stays as NAME-base; a failure leaves neither.
    tar = str(tmp_path / "tiny.tar")
    line = cay("template", "create", "none", "--from-tar", tar, "--add", "git", status=12).stderr
    assert "none-base: the template has no apt-get" in line
    assert "none" not in cay("template", "ls", "-q").stdout
    assert "invalid name of a package" in cay(
        "template", "create", "x", "--from", "like-debian", "--add", "git;id", status=2).stderr


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


def test_prune_removes_the_layers_of_builds_without_a_name(cay):
    (cay.context / "Dockerfile").write_text("FROM tiny\nRUN echo 1 > /x\n")
    cay("build", ".")
    assert cay("template", "prune").stdout == "1 layers removed, 2 B\n"
    assert cay("template", "prune").stdout == "0 layers removed, 0 B\n"


def test_run_reaches_what_allow_names_and_nothing_else(cay, internet):  # noqa: F811
    def build(*words, status=0):
        done = subprocess.run(internet.command(CAY, "build", "--no-cache", *words, cay.context),
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == status, done
        return done.stderr

    subprocess.run(["cc", "-static", "-x", "c", "-", "-o", cay.context / "dial"], input=DIAL, text=True,
                   check=True, timeout=PATIENCE)
    (cay.context / "Dockerfile").write_text(f"FROM tiny\nCOPY dial /bin/\nRUN dial {PUBLIC}\n")
    assert build("--allow", f"{PUBLIC}:7777").endswith("\nbanner\n")
    assert "without --allow it has no network" in build(status=15)
    assert "banner" not in build("--allow", f"{PUBLIC_TOO}:7777", status=15)
    assert "banner" not in build("--allow", "93.184.216.0/24:7777", "--deny", PUBLIC, status=15)


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


def test_builds_that_are_killed_leave_nothing_that_gc_does_not_remove(cay, tmp_path):
    home = tmp_path / "home"
    (cay.context / "file").write_text("content\n")
    text = ("FROM tiny\nRUN echo {0} > /number; sleep 0.1\nCOPY file /copied/\nWORKDIR /work/{0}\n"
            "RUN cat /number /copied/file > result\n")

    def build(number, kill_after=None):
        (cay.context / "Dockerfile").write_text(text.format(number))
        began = time.monotonic()
        with subprocess.Popen([CAY, "build", "-q", "-t", "app", "."], cwd=cay.context) as running:
            try:
                status = running.wait(PATIENCE if kill_after is None else kill_after)
            except subprocess.TimeoutExpired:
                running.kill()
                status = running.wait(PATIENCE)
        assert status in ((0,) if kill_after is None else (0, -signal.SIGKILL))
        return time.monotonic() - began

    def leftovers():
        return [*(home / "sandboxes").glob("*"), *(home / "layers").glob(".*"),
                *(home / "templates").glob(".*")]

    whole = build(0)
    moments = 16
    for number in range(1, moments + 1):
        build(number, whole * number / moments)
        deadline = time.monotonic() + PATIENCE
        cay("gc")
        while left := leftovers():  # the sandbox of RUN ends by itself
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
            cay("gc")
    build(moments)
    assert cay("run", "--template", "app", "--", "cat", "result").stdout == f"{moments}\ncontent\n"
    cay("template", "prune")
    assert len(list((home / "layers").iterdir())) == 4
