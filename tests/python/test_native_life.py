# SPDX-License-Identifier: Apache-2.0
"""Making, finding and ending sandboxes, from Python."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import unavailable
from native import ledger, make_sandbox, traces
from test_native_exec import wait_for

import cay
from cay import errors
from cay.filesystem import PathConfig, SandboxConfig
from cay.sandbox import (
    Bind,
    Sandbox,
    SandboxBusyError,
    SandboxError,
    SandboxNotFoundError,
    SandboxUnsupportedError,
    SandboxValueError,
    TemplateNotFoundError,
    UserNotFoundError,
)


def test_options_are_seen_from_outside_and_inside() -> None:
    with (
        ledger(),
        make_sandbox(
            memory="256M",
            disk="64M",
            pids=99,
            cpus=0.5,
            hostname="box",
            workdir="/tmp",
            ttl=600,
        ) as sandbox,
    ):
        info = sandbox.inspect()
        assert (info.id, info.state, info.template) == (sandbox.id, "running", "host")
        assert (info.memory, info.disk, info.pids) == (256 << 20, 64 << 20, 99)
        assert (info.cpus, info.network, info.storage) == (0.5, "none", "memory")
        assert info.ephemeral and info.ttl_left and 500 < info.ttl_left <= 600
        assert abs(info.created - time.time()) < 60
        assert info.layers == sandbox.layers and "seccomp" in info.enforced
        assert sandbox.shell("hostname; pwd").stdout == "box\n/tmp\n"
        assert info.id in [one.id for one in Sandbox.list()]


def test_a_sandbox_is_found_by_its_id_and_lives_on_without_its_object() -> None:
    with ledger() as made:
        id = Sandbox.create().id
        assert made == {id}
        with Sandbox.open(id) as again:
            assert again.exec(["true"]).ok


def test_an_ephemeral_one_dies_with_its_object_and_with_its_process() -> None:
    with ledger() as made:
        sandbox = make_sandbox()
        id = sandbox.id
        sandbox.close()
        assert wait_for(lambda: Sandbox.collect() + 1 and traces({id}) == [])
        script = (
            "from cay import Sandbox\n"
            "sandbox = Sandbox.create(ephemeral=True)\n"
            "sandbox.start(['sleep', '1000'], background=True)\n"
            "print(sandbox.id, flush=True)\ninput()\n"
        )
        maker = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with maker:
            assert maker.stdout is not None
            made.add(maker.stdout.readline().strip())
            maker.send_signal(signal.SIGKILL)
        assert wait_for(lambda: Sandbox.collect() + 1 and traces(made) == [])


def end_by_itself(sandbox: Sandbox) -> None:
    init = os.pidfd_open(sandbox.inspect().init_pid)
    signal.pidfd_send_signal(init, signal.SIGKILL)
    select.select([init], [], [])
    os.close(init)


def test_a_kill_of_an_ended_ephemeral_sandbox_leaves_its_disk_to_its_creator_or_to_gc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path))
    with ledger(), make_sandbox(storage="disk") as sandbox:
        sandbox.shell("echo kept > file; sync")
        other = Sandbox.open(sandbox.id)
        end_by_itself(sandbox)
        other.kill()
        sandbox.restart()
        assert sandbox.shell("cat file").stdout == "kept\n"
        end_by_itself(sandbox)
        other.kill()
        assert Sandbox.collect() > 0
        assert os.listdir(tmp_path / "sandboxes") == []


def test_a_limit_on_disk_is_enforced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path))
    with ledger(), make_sandbox(storage="disk", disk="32M") as sandbox:
        assert "No space left" in sandbox.shell("head -c 64M /dev/zero > big").stderr
        info = sandbox.inspect()
        assert info.disk == 32 << 20 and "disk" in info.layers
        assert 16 << 20 < info.disk_used <= 32 << 20
        sandbox.shell("rm big")
        sandbox.kill()
        sandbox.restart()
        assert sandbox.inspect().disk == 32 << 20
        sandbox.remove()
        assert os.listdir(tmp_path / "sandboxes") == []


MAKERS = {
    "idle": "box = Sandbox.create(ephemeral=True)\nid = box.id\n",
    "lent": (  # to a thread that is not in the child
        "box = Sandbox.create(ephemeral=True)\nid = box.id\n"
        "threading.Thread(target=box._handles.take).start()\n"
    ),
    "configured": "box = NativeSandbox.create(ephemeral=True)\nid = box.sandbox_id\n",
    "local": "box = LocalSandbox.create(ephemeral=True)\nid = box.sandbox_id\n",
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_child_of_its_maker_does_not_keep_an_ephemeral_one_alive(maker: str) -> None:
    script = (
        "import os, signal, threading, time\n"
        "from cay import Sandbox\n"
        "from cay.nexau import LocalSandbox, NativeSandbox\n"
        f"{MAKERS[maker]}"
        "child = os.fork()\n"
        "if child == 0:\n    time.sleep(60)\n    os._exit(0)\n"
        "print(id, child, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    if os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as made:
        assert made.stdout is not None
        id, child = made.stdout.readline().split()
    try:
        assert wait_for(lambda: Sandbox.collect() + 1 and traces({id}) == [])
        os.kill(int(child), 0)
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_forked_child_opens_its_own_way_to_the_sandbox() -> None:
    with ledger(), make_sandbox() as sandbox:
        sandbox.files.write("a", "1")
        child = os.fork()
        if child == 0:
            ok = sandbox.exec(["true"]).ok and sandbox.files.read_text("a") == "1"
            sandbox.close()
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert sandbox.exec(["true"]).ok


def test_pause_stops_the_clock_inside() -> None:
    with ledger(), make_sandbox() as sandbox:
        with sandbox.start(["sh", "-c", "while :; do echo; sleep 0.02; done"]) as process:
            process.read(timeout=10)
            sandbox.pause()
            assert sandbox.inspect().state == "paused"
            with pytest.raises(SandboxBusyError):
                sandbox.exec(["true"])
            sandbox.resume()
            assert sandbox.inspect().state == "running"
            assert process.read(timeout=10) is not None


def test_a_time_to_live_ends_it() -> None:
    with ledger() as made:
        sandbox = make_sandbox(ttl=60)
        sandbox.set_ttl(0.2)
        assert wait_for(lambda: Sandbox.collect() + 1 and traces(made) == [])
        sandbox.close()


def test_what_is_on_disk_survives_a_kill() -> None:
    with ledger():
        sandbox = Sandbox.create(storage="disk", memory="256M")
        try:
            sandbox.files.write("kept", "here")
            sandbox.kill()
            assert sandbox.inspect().state == "stopped"
            sandbox.restart()
            assert sandbox.files.read_text("kept") == "here"
        finally:
            sandbox.remove()
            sandbox.close()


@pytest.mark.parametrize("spelling", ["string", "bind", "mapping"])
def test_host_directories_are_shown_inside(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "f").write_text("host")
    tmp_path.chmod(0o755)
    volumes: Any = {
        "string": [f"{tmp_path}:/src:ro"],
        "bind": [Bind(tmp_path, "/src")],
        "mapping": {str(tmp_path): "/src:ro"},
    }[spelling]
    with ledger(), make_sandbox(volumes=volumes) as sandbox:
        assert sandbox.exec(["cat", "/src/f"]).stdout == "host"
        assert not sandbox.shell("echo x > /src/g").ok


def test_a_policy_shows_its_directories(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "f").write_text("text")
    config = SandboxConfig(
        paths={
            "docs": PathConfig(root=str(tmp_path / "open"), mode="ro"),
            "work": PathConfig(
                root=str(tmp_path / "work"), mode="rw", write_approval=False
            ),
        }
    )
    (tmp_path / "work").mkdir()
    with ledger(), make_sandbox(policy=config) as sandbox:
        assert sandbox.exec(["cat", "/docs/f"]).stdout == "text"
        assert not sandbox.shell("echo > /docs/f").ok
        assert sandbox.shell("echo new > /work/g").ok
    assert (tmp_path / "work" / "g").read_text() == "new\n"
    file = tmp_path / "policy.yaml"
    file.write_text(f"paths:\n  docs:\n    root: {tmp_path / 'open'}\n    mode: ro\n")
    with ledger(), make_sandbox(policy=file) as sandbox:
        assert sandbox.exec(["cat", "/docs/f"]).stdout == "text"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"template": "no-such-template"}, TemplateNotFoundError),
        ({"template": "/no/such/directory"}, SandboxError),
        ({"memory": "lots"}, SandboxValueError),
        ({"memory": 0}, SandboxValueError),
        ({"memory": 1.5}, SandboxValueError),
        ({"memory": 2**64 + (64 << 20)}, SandboxValueError),
        ({"disk": "16777216T"}, SandboxValueError),
        ({"pids": 2**32}, SandboxValueError),
        ({"pids": 2**32 + 5}, SandboxValueError),
        ({"cpus": 0}, SandboxValueError),
        ({"cpus": "two"}, SandboxValueError),
        ({"ttl": "5m"}, SandboxValueError),
        ({"cpus": -1}, SandboxValueError),
        ({"cpus": 1e9}, SandboxValueError),
        ({"cpus": float("nan")}, SandboxValueError),
        ({"cpus": float("inf")}, SandboxValueError),
        ({"memory": "16M", "disk": "32M"}, SandboxValueError),
        ({"storage": "disk", "disk": "1M"}, SandboxValueError),
        ({"network": "bridge"}, SandboxValueError),
        ({"level": "none"}, SandboxValueError),
        ({"require": ["walls"]}, SandboxValueError),
        ({"volumes": ["nowhere"]}, SandboxValueError),
        ({"volumes": ["/etc:/a:rwx"]}, SandboxValueError),
        ({"volumes": ["/no/such/source:/a"]}, FileNotFoundError),
        ({"workdir": "/no/such/directory"}, FileNotFoundError),
        ({"policy": "/no/such/file"}, FileNotFoundError),
        ({"user": "stranger"}, UserNotFoundError),
        ({"env": {"": "x"}}, SandboxValueError),
        ({"user": "a\0b"}, SandboxValueError),
        ({"ttl": 0}, SandboxValueError),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(
    options: dict[str, Any], kind: type[Exception]
) -> None:
    with ledger() as made:
        with pytest.raises(kind) as caught:
            make_sandbox(**options)
        error = caught.value
        assert isinstance(error, SandboxError) and error.hint and made == set()
        if isinstance(error, FileNotFoundError):
            assert error.filename == error.subject


def test_a_layer_that_is_not_there_is_an_error_if_it_is_required() -> None:
    with ledger():
        with pytest.raises(SandboxUnsupportedError):
            make_sandbox(network="host", require=["network"])


def test_an_id_that_is_none_is_not_found_or_refused() -> None:
    for id in ("sb-aaaaaaaaaaaaaaaa", "../etc", "", "a\0b"):
        with pytest.raises((SandboxNotFoundError, SandboxValueError)) as caught:
            Sandbox.open(id)
        assert isinstance(caught.value, cay.CayError)


def test_errors_know_their_code_and_survive_pickling() -> None:
    with pytest.raises(SandboxNotFoundError) as caught:
        Sandbox.open("sb-aaaaaaaaaaaaaaaa")
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, errors.NotFoundError) and isinstance(error, LookupError)
    assert (error.slug, str(error)) == ("not-found", str(caught.value))


def test_killing_twice_is_no_error_for_the_context_manager() -> None:
    with ledger(), make_sandbox() as sandbox:
        sandbox.kill()


def test_one_that_somebody_else_has_removed_is_said_to_be_gone() -> None:
    with ledger(), make_sandbox(storage="disk") as sandbox:
        Sandbox.open(sandbox.id).remove()
        with pytest.raises(SandboxNotFoundError, match="there is no such sandbox"):
            sandbox.remove()


@pytest.mark.parametrize("ephemeral", [False, True])
def test_the_context_manager_ends_one_that_was_closed_inside(ephemeral: bool) -> None:
    if os.geteuid() != 0:
        unavailable("the tests of sandboxes are run by root")
    with ledger() as made:
        with Sandbox.create(ephemeral=ephemeral) as sandbox:
            sandbox.close()
        assert wait_for(lambda: Sandbox.collect() + 1 and traces(made) == [])


def test_the_host_is_looked_at() -> None:
    checks = cay.doctor()
    assert len(checks) > 5
    assert {check.finding for check in checks} <= {"ok", "weaker", "missing"}
    assert all(check.facility and check.detail for check in checks)


def test_templates_are_made_used_and_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("bin", "etc", "tmp", "home"):
        (root / name).mkdir(parents=True)
    program = "/bin/busybox"
    if not Path(program).exists():
        source = tmp_path / "hello.c"
        source.write_text(
            'int puts(const char *); int main(void) { puts("hi"); return 0; }'
        )
        program = str(tmp_path / "hello")
        subprocess.run(["cc", "-static", "-o", program, source], check=True)
    (root / "bin" / "hello").write_bytes(Path(program).read_bytes())
    (root / "bin" / "hello").chmod(0o755)
    name = f"test-{tmp_path.name}"[:40]
    steps: list[str] = []
    cay.create_template(name, "dir", root, on_progress=lambda step, _: steps.append(step))
    try:
        assert name in [one.name for one in cay.templates()]
        with pytest.raises(SandboxError) as caught:
            cay.create_template(name, "dir", root)
        assert caught.value.slug == "exists"
        with ledger(), make_sandbox(template=name) as sandbox:
            assert sandbox.inspect().template == name
            assert sandbox.exec(["/bin/hello"]).exit_code in (0, 127)
    finally:
        cay.remove_template(name)
    assert name not in [one.name for one in cay.templates()]
    with pytest.raises(TemplateNotFoundError):
        cay.remove_template(name)
    with pytest.raises(SandboxError, match="none: not found"):
        cay.create_template(name, "image", f"oci:{tmp_path / 'none'}")
