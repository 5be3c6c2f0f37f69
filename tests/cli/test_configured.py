# SPDX-License-Identifier: Apache-2.0
"""cay run and cay create with --config: a cay.yaml, and options over it."""

import os

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="templates and mounts need root")

FULL = """\
limits: {memory: 200M, disk: 50M, pids: 40}
user: root
work_dir: /srv/deep/down
hostname: shop
envs: {ONE: one, TWO: two}
mounts: ["${this_file_dir}/shared:/shared:ro", "${this_file_dir}/other:/other"]
policy: {paths: {docs: {root: docs}}}
network: none
"""
TELL = "id -un; pwd; hostname; echo $ONE $TWO; ls -d /shared /other /docs; cat /shared/name"


@pytest.fixture
def written(boxes):
    """Writes cay.yaml, and what FULL shows inside."""
    for name in ("shared", "other", "docs"):
        (boxes.folder / name).mkdir()
        (boxes.folder / name / "name").write_text(name + "\n")

    def write(text=FULL):
        (boxes.folder / "cay.yaml").write_text(text)
        return ("--config", "cay.yaml")
    return write


def test_a_run_is_as_its_configuration_says(boxes, written):
    done = boxes.ok("run", *written(), "--", "sh", "-c", TELL)
    assert done.text == ("root\n/srv/deep/down\nshop\none two\n/docs\n/other\n/shared\n"
                         "shared\n")
    agents = "name: my_agent\nsandbox_config:\n  type: native\n  env: {ONE: below}\n"
    assert boxes.ok("run", *written(agents), "--", "sh", "-c", "echo $ONE").text == "below\n"


def test_a_sandbox_that_stays_is_as_its_configuration_says(boxes, written):
    box = boxes.create(*written())
    info = boxes.ok("inspect", box, "-o", "json").json
    assert info["limits"] == {"memory_bytes": 200 << 20, "disk_bytes": 50 << 20, "pids": 40,
                              "cpu_percent": None}
    assert info["workdir"] == "/srv/deep/down"
    assert boxes.ok("exec", box, "--", "sh", "-c", TELL).text.startswith("root\n/srv/deep/down\n")


def test_options_win_over_the_configuration(boxes, written):
    words = (*written(), "-m", "300M", "--pids", "50", "-e", "ONE=1", "-e", "THREE=3", "-u",
             "user", "-w", "/tmp", "-v", "./other:/shared")
    tell = "id -un; pwd; echo $ONE $TWO $THREE; cat /shared/name /other/name"
    expected = "user\n/tmp\n1 two 3\nother\nother\n"
    assert boxes.ok("run", *words, "--", "sh", "-c", tell).text == expected
    box = boxes.create(*words)
    assert boxes.ok("exec", box, "--", "sh", "-c", tell).text == expected
    info = boxes.ok("inspect", box, "-o", "json").json
    assert info["limits"] == {"memory_bytes": 300 << 20, "disk_bytes": 50 << 20, "pids": 50,
                              "cpu_percent": None}


def test_a_choice_that_is_the_default_wins_too(boxes, written):
    config = written("network: host\nstorage: disk\n")
    for options, expected in (((), ("host", "disk")),
                              (("--network", "none", "--storage", "memory"),
                               ("none", "memory"))):
        info = boxes.ok("inspect", boxes.create(*config, *options), "-o", "json").json
        assert (info["network"], info["storage"]) == expected


@pytest.mark.parametrize("command", [("run", "--", "true"), ("create",)])
@pytest.mark.parametrize("text, line", [
    ("type: e2b\n", "unsupported: cay.yaml: this command creates native sandboxes only "
     "(its type is e2b: cay session start --config cay.yaml starts it)"),
    ("sandbox_config: {}\n", "(its type is local: cay session start --config cay.yaml"),
    ("sandbox_id: sb-aaaa\n", "invalid: cay.yaml: the configuration has a sandbox_id, but "
     "this command creates a new sandbox (cay exec sb-aaaa -- COMMAND uses that one)"),
    ("limts: {memory: 1G}\npolicy: {paths: {docs: {root: docs}}}\n",
     "invalid: cay.yaml: line 1: limts: unknown key (did you mean limits?"),
    ("limits: {memory: 8M, disk: 16M}\n", "the disk limit is larger than the memory limit"),
])
def test_what_it_cannot_be_made_of_is_told(boxes, written, command, text, line):
    name, *rest = command
    status = 125 if name == "run" else None
    done = boxes.cay(name, *written(text), *rest)
    assert done.out == b"" and (done.status == status if status else 0 < done.status < 125)
    assert line in done.line


def test_one_that_stays_cannot_be_ephemeral(boxes, written):
    config = written("ephemeral: true\n")
    assert "an ephemeral sandbox would end with this command" in boxes.fails(2, "create", *config)
    assert boxes.ok("run", *config, "--", "echo", "fine").text == "fine\n"
