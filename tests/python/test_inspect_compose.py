# SPDX-License-Identifier: Apache-2.0
"""Compose files and Dockerfiles as configurations of sandboxes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import CHECKOUT
from inspect_ai.util import ComposeConfig, SandboxEnvironment
from inspect_ai.util._sandbox.compose import ComposeService
from native import ledger, traces
from test_inspect_provider import clean, make, run

from cay.errors import CayError
from cay.inspect import CayConfig, CaySandboxEnvironment, compose
from cay.inspect.compose import Service, image_template
from cay.inspect.environment import _services
from cay.sandbox import SandboxValueError, TemplateNotFoundError, Volume

BASE: dict[str, Any] = {"x-cay-template": "host"}


def write(folder: Path, services: dict[str, Any], **top: Any) -> str:
    file = folder / "compose.yaml"
    file.write_text(yaml.safe_dump({"services": services, **top}))
    return str(file)


def one(folder: Path, **keys: Any) -> Service:
    (service,) = _services(write(folder, {"default": {**BASE, **keys}}), {})
    return service


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts the services of a compose file, and ends them."""
    made: dict[str, SandboxEnvironment] = {}

    def start(services: dict[str, Any]) -> dict[str, SandboxEnvironment]:
        made.update(make(write(tmp_path, services)))
        return made

    with ledger():
        yield start
        clean(made)


# --- What is honoured ----------------------------------------------------------------------


def test_a_service_is_a_sandbox_with_what_its_keys_say(
    started: Any, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "f").write_text("shown")
    tmp_path.chmod(0o755)
    (tmp_path / "vars").write_text("# comment\nFROM_FILE='1'\n\nBOTH=file\n")
    made = started(
        {
            "default": {
                **BASE,
                "working_dir": "/tmp",
                "environment": {"A": "x y", "BOTH": "key"},
                "env_file": "vars",
                "user": "root",
                "hostname": "box",
                "network_mode": "none",
                "mem_limit": "256m",
                "cpus": 0.5,
                "pids_limit": 77,
                "volumes": ["./data:/data:ro"],
                "x-cay-disk": "64M",
            }
        }
    )
    script = "id -un; pwd; hostname; echo $A,$BOTH,$FROM_FILE; cat /data/f"
    result = run(made["default"].exec, ["sh", "-c", script])
    assert result.stdout == "root\n/tmp\nbox\nx y,key,1\nshown"
    info = made["default"].as_type(CaySandboxEnvironment).sandbox.sync.inspect()
    assert (info.memory, info.disk, info.pids, info.cpus) == (
        256 << 20,
        64 << 20,
        77,
        0.5,
    )
    assert (info.network, info.user) == ("none", "root")


def test_several_services_are_several_sandboxes_the_default_one_first(
    started: Any,
) -> None:
    made = started({"other": BASE, "main": {**BASE, "x-default": True}, "third": BASE})
    assert list(made) == ["main", "other", "third"]
    for name, environment in made.items():
        run(environment.write_file, "who", name)
    assert [run(one.read_file, "who") for one in made.values()] == list(made)


def test_a_working_directory_that_is_missing_is_made(started: Any) -> None:
    made = started({"default": {**BASE, "working_dir": "/srv/new/app"}})
    run(made["default"].write_file, "f", "x")
    result = run(made["default"].exec, ["sh", "-c", "pwd; ls"])
    assert result.stdout == "/srv/new/app\nf\n"


def test_a_command_runs_in_the_background(started: Any) -> None:
    made = started({"default": {**BASE, "command": "sh -c 'echo up; exec sleep 60'"}})
    box = made["default"].as_type(CaySandboxEnvironment).sandbox.sync
    with box.attach("command") as process:
        output = process.read(timeout=10)
        assert output is not None and output.data == b"up\n"


@pytest.mark.parametrize("command", ["tail -f /dev/null", ["sleep", "infinity"]])
def test_what_only_keeps_a_container_alive_is_not_run(
    tmp_path: Path, command: Any
) -> None:
    assert one(tmp_path, command=command).command == ()


def test_limits_may_be_under_deploy(tmp_path: Path) -> None:
    deploy = {"resources": {"limits": {"cpus": "1.5", "memory": "2g"}}}
    config = one(tmp_path, deploy=deploy).config
    assert (config.memory, config.cpus) == ("2g", 1.5)


def test_what_asks_for_nothing_is_accepted(tmp_path: Path) -> None:
    keys = {
        "init": True,
        "stop_grace_period": "1s",
        "tty": True,
        "stdin_open": True,
        "expose": ["80"],
        "restart": "no",
        "privileged": False,
        "security_opt": ["no-new-privileges:true"],
        "pull_policy": "never",
        "mem_reservation": "1g",
    }
    assert one(tmp_path, **keys).config == one(tmp_path).config


def test_the_network_is_none_unless_it_is_the_hosts(tmp_path: Path) -> None:
    assert one(tmp_path).config.network == "none"
    assert one(tmp_path, network_mode="host").config.network == "host"


def test_variables_come_from_the_surroundings_and_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "blue")
    file = write(
        tmp_path,
        {
            "default": {
                "x-cay-template": "${SAMPLE_METADATA_WHICH_ONE}",
                "mem_limit": "${MEMORY:-1g}",
                "environment": ["A=$COLOUR", "B=$$HOME", "COLOUR", "NOT_SET"],
            }
        },
    )
    (service,) = _services(file, {"which one": "host"})
    assert service.config.template == "host" and service.config.memory == "1g"
    assert service.config.env == {"A": "blue", "B": "$HOME", "COLOUR": "blue"}
    needed = run(
        CaySandboxEnvironment.task_init_environment, file, {"which one": "host", "b": "c"}
    )
    assert needed == {"SAMPLE_METADATA_WHICH_ONE": "host"}
    with pytest.raises(SandboxValueError, match="SAMPLE_METADATA_WHICH_ONE"):
        _services(file, {})


def test_a_model_will_do_for_a_file() -> None:
    config = ComposeConfig.model_validate({"services": {"default": {**BASE, "cpus": 2}}})
    (service,) = _services(config, {})
    assert service.config.cpus == 2.0


@pytest.mark.parametrize("kind", ["model", "env_file"])
def test_metadata_is_there_before_any_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vars").write_text("A=$SAMPLE_METADATA_NAME\n")
    keys = {"model": {"hostname": "$SAMPLE_METADATA_NAME"}, "env_file": {"env_file": "vars"}}
    config = ComposeConfig.model_validate({"services": {"default": {**BASE, **keys[kind]}}})
    metadata = {"name": "box"}
    needed = run(CaySandboxEnvironment.task_init_environment, config, metadata)
    assert needed == {"SAMPLE_METADATA_NAME": "box"}
    for name, value in needed.items():
        monkeypatch.setenv(name, value)
    run(CaySandboxEnvironment.task_init, "startup", config)


def test_a_file_of_variables_may_be_missing_if_it_says_so(
    started: Any, tmp_path: Path
) -> None:
    (tmp_path / "vars").write_text("A=file\n")
    files = ["vars", {"path": "none", "required": False}, {"path": "vars"}]
    made = started({"default": {**BASE, "env_file": files}})
    assert run(made["default"].exec, ["sh", "-c", "echo $A"]).stdout == "file\n"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"path": "none"}, "No such file"),
        ({"path": "none", "required": "no"}, "required must be true or false"),
        ({"path": "vars", "format": "raw"}, "unknown key 'format'"),
    ],
)
def test_a_file_of_variables_in_the_long_form_is_looked_at(
    started: Any, file: dict[str, Any], said: str
) -> None:
    with pytest.raises(SandboxValueError, match=said) as caught:
        started({"default": {**BASE, "env_file": [file]}})
    assert "env_file" in str(caught.value) and "'default'" in str(caught.value)


# --- Images --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "template"),
    [
        ("python:3.12-bookworm", "python-3.12-bookworm"),
        ("ubuntu", "ubuntu"),
        ("ubuntu:latest", "ubuntu"),
        ("example.org:5000/team/tool:1.0", "example.org-5000-team-tool-1.0"),
        ("tool@sha256:0123", "tool-sha256-0123"),
    ],
)
def test_an_image_is_the_template_of_its_name(image: str, template: str) -> None:
    assert image_template(image) == template


@pytest.mark.parametrize("kind", ["image", "build", "both", "Dockerfile"])
def test_a_sandbox_of_an_image_without_a_template_is_refused_with_how_to_make_it(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "Pro.ject"
    folder.mkdir()
    keys, image = {
        "image": ({"image": "no/such:1"}, "no/such:1"),
        "build": ({"build": "."}, "project-default"),
        "both": ({"build": {"context": "."}, "image": "own:2"}, "own:2"),
        "Dockerfile": ({}, "project-default"),
    }[kind]
    config = str(folder / "Dockerfile")
    if kind != "Dockerfile":
        config = write(folder, {"default": keys})
    with pytest.raises(TemplateNotFoundError) as caught:
        make(config)
    assert image in str(caught.value)
    assert f"cay template create {image_template(image)}" in str(caught.value)


@pytest.mark.parametrize("template", ["no-such", "./no-such", "/no/such"])
def test_a_template_that_is_not_there_is_told_before_any_sample(
    tmp_path: Path, template: str
) -> None:
    for config in (
        write(tmp_path, {"default": BASE, "other": {"x-cay-template": template}}),
        CayConfig(template=template),
    ):
        with pytest.raises(TemplateNotFoundError, match="no-such|/no/such") as caught:
            run(CaySandboxEnvironment.task_init, "startup", config)
        assert "cay template ls" in str(caught.value)


@pytest.mark.parametrize("template", [None, "host", "/usr", "/", ".", "./."])
def test_a_template_that_is_there_is_none_to_stop_for(template: str | None) -> None:
    run(CaySandboxEnvironment.task_init, "startup", CayConfig(template=template))


def test_a_directory_as_the_template_starts_where_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    file = tmp_path / "cay.yaml"
    file.write_text("template: ./root\n")
    compose_file = write(tmp_path, {"default": {"x-cay-template": "./root"}})
    for config in (str(file), compose_file):
        (service,) = _services(config, {})
        assert service.config.template == str(tmp_path / "root")
        run(CaySandboxEnvironment.task_init, "startup", config)


# --- What is refused -----------------------------------------------------------------------

REFUSED: dict[str, Any] = {
    "cap_add": ["SYS_PTRACE"],
    "cap_drop": ["ALL"],
    "cgroup": "host",
    "depends_on": {"x": {"condition": "service_healthy"}},
    "deploy": {"resources": {"reservations": {"devices": [{"driver": "nvidia"}]}}},
    "devices": ["/dev/kvm"],
    "extra_hosts": ["a:1.2.3.4"],
    
    "memswap_limit": "2g",
    "network_mode": "bridge",

    "pids_limit": -1,
    "platform": "linux/s390x",

    "privileged": True,
    "read_only": True,
    "restart": "always",
    "runtime": "nvidia",
    "security_opt": ["seccomp=unconfined"],
    "shm_size": "1g",
    "tmpfs": "/scratch",
    "ulimits": {"nofile": 10},
    "volumes": ["named:/data"],
    "x-cay-colour": "blue",
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_its_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(SandboxValueError, match=key) as caught:
        one(tmp_path, **{key: REFUSED[key]})
    assert caught.value.hint and "default" in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"pids_limit": "abc"}, "pids_limit: invalid number 'abc'"),
        ({"deploy": {"resources": {"limits": {"cpus": "abc"}}}}, "cpus: invalid number 'abc'"),
        ({"command": "echo 'a"}, "command: .*echo 'a"),
        ({"entrypoint": 'sh "'}, "entrypoint: 'sh "),
    ],
)
def test_a_value_that_cannot_be_read_is_told_with_its_key(
    tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(SandboxValueError, match=f"'default'.*{said}") as caught:
        one(tmp_path, **keys)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("services", "top", "said"),
    [
        ({"a": {**BASE, "dns": ["x"]}}, {}, "services: a: .*'dns'"),
        ({"a": {**BASE, "build": {"args": {}}}}, {}, "services: a: build: .*'args'"),
        ({"a": {**BASE, "environment": {"A": True}}}, {}, "a: environment: A: .*quotes"),
        ({"a": {**BASE, "mem_limit": True}}, {}, "a: mem_limit: .*quotes"),
        ({"a": {**BASE, "cpus": 0.001}}, {}, "service 'a'.*cpus: "),
        ({"a": {**BASE, "x-cay-storage": "tape"}}, {}, "service 'a'.*storage: .*disk"),
        ({"a": BASE}, {"secrets": {}}, "the compose file: .*'secrets'"),
        (["a"], {}, "the compose file: services: "),
        (None, {}, "the compose file: services: "),
    ],
)
def test_what_inspect_cannot_read_is_told_in_a_sentence(
    tmp_path: Path, services: Any, top: dict[str, Any], said: str
) -> None:
    with pytest.raises(SandboxValueError, match=said) as caught:
        _services(write(tmp_path, services, **top), {})
    assert caught.value.hint and "\n" not in str(caught.value)


def test_a_file_of_settings_that_cannot_be_read_is_told_in_a_sentence(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cay.yaml"
    for content, said in [
        ("network: bridge\n", "network: .*'none'"),
        ("env: {A: 1}\n", "env: A: .*quotes"),
        ("require: [magic]\n", "require: 0: "),
    ]:
        file.write_text(content)
        with pytest.raises(SandboxValueError, match=f"^{file}: {said}") as caught:
            _services(str(file), {})
        assert "\n" not in str(caught.value)


def test_a_version_and_numbers_as_variables_are_fine(tmp_path: Path) -> None:
    keys = {**BASE, "environment": {"A": 1, "B": 1.5, "C": "x", "NONE": None}}
    (service,) = _services(write(tmp_path, {"default": keys}, version="3.8"), {})
    assert service.config.env == {"A": "1", "B": "1.5", "C": "x"}


def test_names_and_labels_say_nothing_and_a_size_may_be_a_number(tmp_path: Path) -> None:
    keys = {**BASE, "container_name": "c", "labels": ["a=b"], "mem_limit": 64 << 20}
    (service,) = _services(write(tmp_path, {"default": keys}, name="project"), {})
    assert service.config.memory == str(64 << 20)
    limits = {"resources": {"limits": {"memory": 96 << 20}}}
    assert one(tmp_path, deploy=limits).config.memory == str(96 << 20)


def volume(tmp_path: Path, **keys: Any) -> tuple[str, ...]:
    given = {"type": "bind", "source": "./data", "target": "/data", **keys}
    return one(tmp_path, volumes=[given]).config.volumes


@pytest.mark.parametrize(
    "keys",
    [
        {"bind": {"propagation": "rshared"}},
        {"bind": {"recursive": "disabled"}},
        {"bind": {"create_host_path": True}},
        {"volume": {"nocopy": True}},
        {"tmpfs": {"size": "1m"}},
        {"image": {"subpath": "a"}},
        {"type": "tmpfs"},
    ],
)
def test_what_a_volume_cannot_be_is_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(SandboxValueError, match="'default'.*volumes: "):
        volume(tmp_path, **keys)


def test_options_of_a_volume_that_ask_for_nothing_are_accepted(tmp_path: Path) -> None:
    plain = (f"{tmp_path}/data:/data:rw",)
    assert volume(tmp_path, consistency="cached") == plain
    assert volume(tmp_path, bind={"create_host_path": False, "selinux": "z"}) == plain
    (tmp_path / "data").mkdir()
    assert volume(tmp_path, bind={"create_host_path": True}) == plain


def named(tmp_path: Path, given: Any, volumes: Any) -> tuple[str, ...]:
    file = write(tmp_path, {"default": {**BASE, "volumes": [given]}}, volumes=volumes)
    (service,) = _services(file, {})
    return service.config.volumes


def test_an_external_volume_is_that_of_cay_volume(tmp_path: Path) -> None:
    external = {"data": {"external": True}}
    assert named(tmp_path, "data:/data", external) == ("data:/data:rw",)
    assert named(tmp_path, "data:/data:ro", external) == ("data:/data:ro",)
    long = {"type": "volume", "source": "data", "target": "/d", "read_only": True}
    assert named(tmp_path, long, {"data": {"external": True, "name": "x"}}) == ("x:/d:ro",)


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        ({}, "'data' is not declared .*./data:/data"),
        ({"data": {"external": True, "driver": "nfs"}}, "data: driver: not supported"),
        ({"data": {"external": True, "name": "a/b"}}, "data: invalid name 'a/b'"),
        ({"data": {"name": "own"}}, "only an external volume has a name"),
    ],
)
def test_a_named_volume_that_is_not_supported_is_refused(
    tmp_path: Path, volumes: Any, said: str
) -> None:
    with pytest.raises(SandboxValueError, match=said):
        named(tmp_path, "data:/data", volumes)


def test_a_volume_that_is_not_external_belongs_to_one_sample(tmp_path: Path) -> None:
    services = {
        "default": {**BASE, "volumes": ["data:/data"], "x-default": True},
        "other": {**BASE, "volumes": [{"type": "volume", "source": "data", "target": "/d"}]},
    }
    file = write(tmp_path, services, volumes={"data": None})
    before = {one.name for one in Volume.list()}
    first = run(CaySandboxEnvironment.sample_init, "task", file, {})
    second = run(CaySandboxEnvironment.sample_init, "task", file, {})
    run(first["default"].write_file, "/data/file", "shared")
    assert run(first["other"].read_file, "/d/file") == "shared"
    with pytest.raises(FileNotFoundError):
        run(second["other"].read_file, "/d/file")
    assert len({one.name for one in Volume.list()} - before) == 2
    for environments in (first, second):
        run(CaySandboxEnvironment.sample_cleanup, "task", file, environments, False)
    assert {one.name for one in Volume.list()} == before


def test_a_sample_that_fails_to_start_leaves_no_volume(tmp_path: Path) -> None:
    services = {"default": {**BASE, "volumes": ["data:/data"], "user": "nobody-like-this"}}
    file = write(tmp_path, services, volumes={"data": {}})
    before = {one.name for one in Volume.list()}
    with pytest.raises(CayError):
        run(CaySandboxEnvironment.sample_init, "task", file, {})
    assert {one.name for one in Volume.list()} == before


IGNORED: dict[str, Any] = {
    "ports": ["80:80"],
}


def test_keys_without_an_effect_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 4 of issue 15: ports were refused."""
    config = write(tmp_path, {"default": {**BASE, **IGNORED}})
    run(CaySandboxEnvironment.task_init, "startup", config)
    assert set(IGNORED) == set(compose._IGNORED)
    for key in IGNORED:
        (line,) = [one for one in caplog.messages if f": {key} is ignored: " in one]
        assert "service 'default'" in line
    assert one(tmp_path, **IGNORED) == one(tmp_path)


def test_all_problems_of_a_compose_file_are_reported_at_once(tmp_path: Path) -> None:
    """Section 4 of issue 15: one key per run was reported."""
    services = {
        "default": {**BASE, "devices": ["/dev/kvm"], "dns": ["x"], "privileged": True},
        "other": {**BASE, "pids_limit": "abc", "shm_size": "1g", "x-cay-colour": "blue"},
    }
    config = write(tmp_path, services, secrets={})
    with pytest.raises(SandboxValueError) as caught:
        run(CaySandboxEnvironment.task_init, "startup", config)
    lines = str(caught.value).splitlines()
    assert lines[0] == "the compose file: 7 problems:"
    for key in (
        *("'default'.*devices", "default.*dns", "'default'.*privileged"),
        *("'other'.*pids_limit", "'other'.*shm_size", "'other'.*x-cay-colour", "secrets"),
    ):
        assert len([line for line in lines[1:] if re.search(key, line)]) == 1
    services = {"a": {"environment": {"A": True}, "mem_limit": True, "dns": []}}
    with pytest.raises(SandboxValueError, match="3 problems:") as caught:
        _services(write(tmp_path, services), {})
    assert len(str(caught.value).splitlines()) == 4


def test_inspect_prints_problems_of_a_compose_file_without_a_traceback(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"default": {**BASE, "devices": ["/dev/kvm"], "tmpfs": "/[a]"}})
    task = tmp_path / "task.py"
    task.write_text(
        "from inspect_ai import Task, task\n"
        "from inspect_ai.dataset import Sample\n"
        "@task\n"
        "def t():\n"
        "    return Task(dataset=[Sample('x')], sandbox=('cay', 'compose.yaml'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "inspect_ai", "eval", "task.py", "--model", "mockllm/model"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "INSPECT_LOG_DIR": str(tmp_path / "logs"), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
    )
    told = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in told
    assert told.count("service 'default' of the compose file") == 2
    assert "devices: not supported in a sandbox (remove it)" in told


@pytest.mark.parametrize("name", ["stack.yaml", "cay.yaml", "x.py/../stack.yml"])
def test_a_compose_file_of_any_name_is_known_by_its_services(
    tmp_path: Path, name: str
) -> None:
    """Section 6 of issue 15; such a path was a NotADirectoryError."""
    (tmp_path / "x.py").write_text("")
    file = tmp_path / Path(name).name
    file.write_text(yaml.safe_dump({"services": {"only": {**BASE, "user": "$WHO"}}}))
    config = f"{tmp_path}/{name}"
    metadata = {"who": "root"}
    file.write_text(file.read_text().replace("$WHO", "$SAMPLE_METADATA_WHO"))
    (service,) = _services(config, metadata)
    assert (service.name, service.config.user) == ("only", "root")
    named = run(CaySandboxEnvironment.task_init_environment, config, metadata)
    assert named == {"SAMPLE_METADATA_WHO": "root"}


def test_a_file_of_settings_may_be_named_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    (tmp_path / "own.yaml").write_text("memory: 64M\n")
    (service,) = _services(f"{tmp_path}/x.py/../own.yaml", {})
    assert service.config.memory == "64M"


def test_every_key_inspect_knows_is_honoured_accepted_or_refused() -> None:
    known = set(ComposeService.model_fields)
    assert compose._SUPPORTED | compose._NO_EFFECT | {*compose._IGNORED} | set(REFUSED) >= known
    assert not compose._SUPPORTED & compose._NO_EFFECT


@pytest.mark.parametrize(
    "services",
    [
        {"a": BASE, "b": BASE},
        {"a": {**BASE, "x-default": True}, "b": {**BASE, "x-default": True}},
        {"default": {}},
    ],
)
def test_without_a_default_or_an_image_there_is_nothing_to_start(
    tmp_path: Path, services: dict[str, Any]
) -> None:
    with pytest.raises(SandboxValueError):
        _services(write(tmp_path, services), {})


def test_if_one_service_cannot_start_the_others_are_ended(tmp_path: Path) -> None:
    file = write(
        tmp_path, {"default": BASE, "other": {**BASE, "command": "no-such-program"}}
    )
    with ledger() as made:
        with pytest.raises(Exception, match="no-such-program"):
            make(file)
        assert len(made) == 2 and traces(made) == []


def test_the_rule_is_written_down() -> None:
    page = (CHECKOUT / "docs" / "inspect.md").read_text()
    for key in compose._SUPPORTED | compose._NO_EFFECT | {*compose._IGNORED} | set(REFUSED):
        assert f"`{key.replace('x_default', 'x-default')}`" in page or key.startswith(
            "x-cay-"
        )
