# SPDX-License-Identifier: Apache-2.0
"""Sessions and managers: what outlives a program, and who gets which sandbox."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from ctypes import byref, sizeof
from pathlib import Path
from typing import Any

import pytest
import worlds
from native import traces
from worlds import World

from cay import _c
from cay.nexau import (
    Agent,
    AgentConfig,
    E2BSandboxConfig,
    E2BSandboxManager,
    InMemoryDatabaseEngine,
    LocalSandboxConfig,
    LocalSandboxManager,
    NativeSandbox,
    NativeSandboxConfig,
    NativeSandboxManager,
    SQLiteDatabaseEngine,
    SandboxAlias,
    SandboxError,
    SandboxStatus,
    SandboxValueError,
    Session,
    SessionManager,
    make_manager,
    parse_sandbox_config,
)
from cay.sandbox import Sandbox
from cay.nexau import base as base_module
from cay.nexau.registry import manager_class


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("CAY_HOME", str(home))
    return home


@pytest.fixture(params=worlds.BUILT_IN)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds.world_of(request.param, tmp_path)


@pytest.fixture
def native(tmp_path: Path) -> Iterator[World]:
    yield from worlds.world_of("native", tmp_path)


def get(session_manager: Any, user: str = "u", session: str = "s") -> Any:
    return asyncio.run(session_manager.get_session(user_id=user, session_id=session))


# --- The store ----------------------------------------------------------------------------------

STATE = {"sandbox_id": "sb-1", "sandbox_type": "NativeSandbox", "work_dir": "/w"}


def update(session_manager: SessionManager, user: str, session: str, state: Any) -> Any:
    return asyncio.run(
        session_manager.update_session_sandbox(
            user_id=user, session_id=session, sandbox_state=state
        )
    )


@pytest.mark.parametrize("kind", ["memory", "file", "home"])
def test_what_is_saved_is_found(kind: str, tmp_path: Path, home: Path) -> None:
    engines = {
        "memory": InMemoryDatabaseEngine,
        "file": lambda: SQLiteDatabaseEngine(tmp_path / "own.db"),
        "home": lambda: None,
    }
    manager = SessionManager(engine=engines[kind]())  # type: ignore[abstract]
    asyncio.run(manager.setup_models())
    assert get(manager) is None
    update(manager, "u", "s", STATE)
    update(manager, "u", "other", {**STATE, "sandbox_id": "sb-2"})
    update(manager, "v", "s", {**STATE, "sandbox_id": "sb-3"})
    session = get(manager)
    assert isinstance(session, Session) and session.sandbox_state == STATE
    assert session.status == "running" and session.created_at is not None
    listed = asyncio.run(manager.list_sessions())
    assert [(one.user_id, one.session_id) for one in listed] == [
        ("v", "s"),
        ("u", "other"),
        ("u", "s"),
    ]
    assert len(asyncio.run(manager.list_sessions("u"))) == 2
    update(manager, "u", "s", {})
    assert get(manager).sandbox_state is None
    assert asyncio.run(manager.delete_session("u", "s")) is True
    assert asyncio.run(manager.delete_session("u", "s")) is False
    assert get(manager) is None
    assert (home / "cay.db").exists() is (kind == "home")


@pytest.mark.parametrize("data", [b"[1, 2]", b"5", b"null", b'"text"'])
def test_what_other_programs_keep_with_a_session_is_no_state(data: bytes) -> None:
    engine, err = SQLiteDatabaseEngine(), _c.Error()
    record = _c.Session(
        size=sizeof(_c.Session), user_id=b"u", session_id=b"s", data=data
    )
    assert _c.store_put(engine.handle(), byref(record), byref(err)) == 0
    manager = SessionManager(engine=engine)
    assert get(manager).sandbox_state is None
    assert [one.session_id for one in asyncio.run(manager.list_sessions())] == ["s"]


def test_a_status_that_cannot_be_is_refused() -> None:
    manager = SessionManager(engine=InMemoryDatabaseEngine())
    with pytest.raises(SandboxValueError, match="running, paused, stopped"):
        asyncio.run(manager.update_session_sandbox("u", "s", STATE, "lost"))


def test_the_memory_that_is_shared_is_one() -> None:
    first = InMemoryDatabaseEngine.get_shared_instance()
    assert InMemoryDatabaseEngine.get_shared_instance() is first
    assert copy.deepcopy(first) is first
    update(SessionManager(engine=first), "shared", "s", STATE)
    assert get(SessionManager(engine=first), "shared").sandbox_state == STATE
    assert get(SessionManager(engine=InMemoryDatabaseEngine()), "shared") is None
    first.remove("shared", "s")


def test_names_that_cannot_be_are_refused() -> None:
    manager = SessionManager(engine=InMemoryDatabaseEngine())
    for user, session in (("", "s"), ("u", ""), ("u\0", "s"), ("u" * 257, "s")):
        with pytest.raises(SandboxValueError):
            update(manager, user, session, STATE)


def test_a_store_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no-such"):
        SQLiteDatabaseEngine(tmp_path / "no-such" / "cay.db")


def test_a_forked_child_uses_the_same_store(home: Path) -> None:
    manager = SessionManager()
    update(manager, "u", "s", STATE)
    pid = os.fork()
    if pid == 0:
        try:
            assert manager.engine.get("u", "s") is not None
            manager.engine.put(
                Session(user_id="u", session_id="child", sandbox_state=STATE)
            )
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert get(manager, "u", "child").sandbox_state == STATE


def in_child(call: Any) -> int:
    """The exit status of a forked child: 0 if the call is true."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if call() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_goes_on_with_the_session(native: World) -> None:
    manager = NativeSandboxManager()
    sandbox = manager.start(SessionManager(), "u", "s")
    assert in_child(lambda: manager.pause() and not manager.is_running()) == 0
    assert sandbox.state() == "paused"
    assert in_child(lambda: manager.instance.sandbox_id == sandbox.sandbox_id) == 0
    assert manager.is_running() and manager.pause() is True
    assert in_child(manager.stop) == 0
    assert get(SessionManager()).sandbox_state is None and not manager.is_running()
    assert manager.instance is not None and manager.stop() is True


def test_a_forked_child_ends_no_session_of_its_parents_memory(native: World) -> None:
    manager = NativeSandboxManager()
    manager.start(SessionManager(engine=InMemoryDatabaseEngine()), "u", "s")
    assert in_child(manager.stop) == 1
    assert manager.is_running() and manager.stop() is True


def test_the_lock_of_a_session_is_held_by_one(home: Path) -> None:
    one, other = SessionManager(), SessionManager()
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with other.session_lock("u", "s"):
            order.append("second")

    thread = threading.Thread(target=second)
    with one.session_lock("u", "s"):
        thread.start()
        assert waiting.wait(30)
        with one.session_lock("u", "another"):
            order.append("first")
    thread.join()
    assert order == ["first", "second"]


# --- Restoring ------------------------------------------------------------------------------------

PROGRAM = """
import json, os, signal, sys
import cay.nexau
manager = getattr(cay.nexau, sys.argv[1])()
sandbox = manager.start(cay.nexau.SessionManager(), "u", "s", json.loads(sys.argv[2]))
sandbox.write_file("here.txt", "here")
done = sandbox.execute_bash("echo on; sleep 1000", background=True)
if sys.argv[3] == "pause":
    assert manager.pause()
print(sandbox.sandbox_id, done.background_pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("then", ["pause", "nothing"])
def test_a_session_outlives_the_program(world: World, then: str) -> None:
    config = {**world.config, "envs": {"A": "b"}, "clean_output": True}
    died = subprocess.run(
        [sys.executable, "-c", PROGRAM, world.make.__name__, json.dumps(config), then],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert died.returncode == -signal.SIGKILL
    id, pid = died.stdout.split()
    world.ids.add(id)
    paused = then == "pause" and world.can_pause
    assert get(SessionManager()).status == ("paused" if paused else "running")

    manager = world.manager()
    sandbox = manager.start(SessionManager(), "u", "s", world.config)
    assert (
        sandbox.sandbox_id == id and sandbox.envs == {"A": "b"} and sandbox.clean_output
    )
    assert sandbox.read_file("here.txt").content == "here"
    assert sandbox.execute_bash("echo $A").stdout == "b\n"
    assert sandbox.get_background_task_status(int(pid)).status == SandboxStatus.RUNNING
    assert get(SessionManager()).status == "running"
    assert manager.stop() is True
    assert get(SessionManager()).sandbox_state is None


def test_a_saved_sandbox_that_is_gone_makes_room_for_a_new_one(world: World) -> None:
    for session_manager in (world.session_manager, Store()):
        manager = world.manager()
        first = manager.start(session_manager, "u", "gone", world.config)
        first.remove()
        assert not manager.is_running()
        second = world.manager().start(session_manager, "u", "gone", world.config)
        assert second.sandbox_id != first.sandbox_id
        assert (
            get(session_manager, "u", "gone").sandbox_state["sandbox_id"]
            == second.sandbox_id
        )
        third = manager.instance
        assert third is not None and third.sandbox_id == second.sandbox_id


class Store:
    """A session manager of somebody else."""

    def __init__(self) -> None:
        self.sessions: dict[Any, Any] = {}

    async def get_session(self, *, user_id: str, session_id: str) -> Any:
        return self.sessions.get((user_id, session_id))

    async def update_session_sandbox(
        self, *, user_id: str, session_id: str, sandbox_state: dict[str, Any]
    ) -> Any:
        text = json.dumps(sandbox_state)
        session = Session(
            user_id=user_id, session_id=session_id, sandbox_state=json.loads(text)
        )
        self.sessions[user_id, session_id] = session
        return session


def test_any_session_manager_will_do(world: World) -> None:
    store: Any = Store()
    manager = world.manager()
    first = manager.start(store, "u", "s", {**world.config, "envs": {"A": "b"}})
    state = store.sessions["u", "s"].sandbox_state
    assert state["sandbox_id"] == first.sandbox_id and state["sandbox_type"]
    assert manager.pause() is True
    again = world.manager().start(store, "u", "s", world.config)
    assert again.sandbox_id == first.sandbox_id and again.envs == {"A": "b"}
    assert again.execute_bash("echo $A").stdout == "b\n"
    assert manager.stop() is True
    assert not store.sessions["u", "s"].sandbox_state


def test_a_sandbox_that_cannot_be_saved_is_not_left_behind(native: World) -> None:
    states: list[dict[str, Any]] = []

    class Full(Store):
        async def update_session_sandbox(self, **named: Any) -> Any:
            states.append(named["sandbox_state"])
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        native.manager().start(Full(), "u", "s", native.config)
    (state,) = states
    assert state["sandbox_id"] not in {info.id for info in Sandbox.list()}


_TAKEN = """
import sys
from cay.nexau import NativeSandboxManager, SessionManager
manager = NativeSandboxManager()
if sys.argv[1] == "stop":
    manager.start(SessionManager(), "u", "s", {})
print("here", flush=True)
try:
    sys.stdin.readline()
    manager.stop() if sys.argv[1] == "stop" else manager.start(SessionManager(), "u", "s")
except KeyboardInterrupt:
    print("heard", flush=True)
"""


@pytest.mark.parametrize("what", ["start", "stop"])
def test_ctrl_c_interrupts_the_wait_for_a_session(native: World, what: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _TAKEN, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as waits:
        assert waits.stdin is not None and waits.stdout is not None
        assert waits.stdout.readline() == "here\n"
        with SessionManager().session_lock("u", "s"):
            waits.stdin.write("go on\n")
            waits.stdin.flush()
            heard = threading.Event()

            def interrupt() -> None:
                for _ in range(100):
                    if heard.wait(0.3):
                        return
                    waits.send_signal(signal.SIGINT)
                waits.kill()

            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                assert waits.stdout.readline() == "heard\n"
            finally:
                heard.set()
                thread.join()
                waits.kill()
    manager = NativeSandboxManager()
    manager.start(SessionManager(), "u", "s")
    assert manager.stop() is True


def test_sessions_are_by_user_and_session(native: World) -> None:
    ids = set()
    for user, session in (("u", "1"), ("u", "2"), ("v", "1")):
        sandbox = native.manager().start(native.session_manager, user, session)
        ids.add(sandbox.sandbox_id)
    assert len(ids) == 3


def test_a_sandbox_reached_by_its_id_is_saved_with_the_session(native: World) -> None:
    existing = native.start("another")
    for session_manager in (native.session_manager, Store()):
        config = {"sandbox_id": existing.sandbox_id}
        native.manager().start(session_manager, "u", "mine", config)
        again = native.manager().start(session_manager, "u", "mine")
        assert again.sandbox_id == existing.sandbox_id


def test_a_saved_sandbox_of_another_kind_is_not_taken(tmp_path: Path) -> None:
    store: Any = Store()
    for local in worlds.world_of("local", tmp_path):
        for native in worlds.world_of("native", tmp_path):
            first = local.manager().start(store, "u", "s", local.config)
            second = native.manager().start(store, "u", "s", native.config)
            assert first.sandbox_id != second.sandbox_id


# --- Racing ---------------------------------------------------------------------------------------


def test_threads_that_race_for_a_session_get_one_sandbox(native: World) -> None:
    for session_manager in (native.session_manager, Store()):
        barrier = threading.Barrier(6)
        ids: list[Any] = []

        def start() -> None:
            manager = native.manager()
            barrier.wait()
            ids.append(manager.start(session_manager, "u", "race").sandbox_id)

        threads = [threading.Thread(target=start) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        native.ids.update(ids)
        assert len(ids) == 6 and len(set(ids)) == 1


def test_processes_that_race_for_a_session_get_one_sandbox(native: World) -> None:
    program = (
        "import sys; from cay.nexau import NativeSandboxManager, SessionManager\n"
        "sessions = SessionManager(); print('ready', flush=True); sys.stdin.read()\n"
        "print(NativeSandboxManager().start(sessions, 'u', 's').sandbox_id)\n"
    )
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in racing:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in racing:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    ids = {process.communicate()[0].strip() for process in racing}
    native.ids |= ids
    assert len(ids) == 1 and ids != {""}
    assert native.manager().start(SessionManager(), "u", "s").sandbox_id in ids


def test_one_manager_used_by_many_threads_has_one_sandbox(native: World) -> None:
    manager = native.manager()
    manager.prepare_session_context(None, "u", "s", native.config)
    ids: list[Any] = []
    threads = [
        threading.Thread(target=lambda: ids.append(manager.instance.sandbox_id))  # type: ignore[union-attr]
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 5 and len(set(ids)) == 1


# --- The managers ---------------------------------------------------------------------------------


def test_stop_and_pause_say_whether_they_did(world: World) -> None:
    manager = world.manager()
    assert manager.stop() is False and manager.pause() is False
    assert not manager.is_running()
    sandbox = manager.start(world.session_manager, "u", "s", world.config)
    assert manager.is_running() and manager.pause() is True
    assert manager.stop() is True and manager.stop() is False
    assert not manager.is_running()
    with pytest.raises(SandboxError):
        sandbox.execute_bash("true")


def test_no_wait_methods_start_and_pause_in_the_background(world: World) -> None:
    manager = world.manager()
    future = manager.start_no_wait(world.session_manager, "u", "s", world.config)
    assert manager.instance is future.result()
    manager.pause_no_wait().join()
    assert manager.is_running() is not world.can_pause
    assert manager.instance is not None and manager.is_running()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Threads of managers have nothing to do until it is set."""
    gate, begin = threading.Event(), base_module._run_in_thread

    def begin_later(future: Any, call: Any) -> threading.Thread:
        return begin(future, lambda: (gate.wait(), call())[1])

    monkeypatch.setattr(base_module, "_run_in_thread", begin_later)
    yield gate
    gate.set()


def later(gate: threading.Event, *calls: Any) -> list[Any]:
    """What calls return that have begun before the gate is opened."""
    with ThreadPoolExecutor() as threads:
        futures = [threads.submit(call) for call in calls]
        wait(futures, 0.3)
        gate.set()
        return [future.result() for future in futures]


def test_all_who_ask_for_it_get_what_is_being_started(gate: threading.Event) -> None:
    manager = NativeSandboxManager()
    future = manager.start_no_wait(None, "u", "s")
    asked = later(gate, *3 * [lambda: manager.instance])
    assert asked == 3 * [future.result()] and len({one.sandbox_id for one in asked}) == 1
    assert manager.start_future is None and manager.instance is asked[0]
    assert manager.stop() is True


def test_all_who_ask_for_it_hear_why_it_does_not_start(gate: threading.Event) -> None:
    manager = NativeSandboxManager()
    manager.start_no_wait(None, "u", "s", {"template": "none"})

    def ask() -> str:
        with pytest.raises(SandboxError) as raised:
            manager.instance  # noqa: B018
        return str(raised.value)

    first, second = later(gate, ask, ask)
    assert first == second


@pytest.mark.parametrize("end", ["stop", "pause"])
def test_what_is_being_started_is_ended_afterwards(
    end: str, gate: threading.Event
) -> None:
    manager = NativeSandboxManager()
    manager.start_no_wait(None, "u", "s")
    assert later(gate, getattr(manager, end)) == [True]
    assert not manager.is_running()
    assert manager.instance is not None and manager.is_running()
    assert manager.stop() is True


def test_a_start_may_end_what_it_has_started(gate: threading.Event) -> None:
    @dataclasses.dataclass(kw_only=True)
    class Changing(NativeSandboxManager):
        def start(self, *args: Any, **kwargs: Any) -> Any:
            self._instance = super().start(*args, **kwargs)
            assert self.instance is not None and self.stop() is True
            return super().start(*args, **kwargs)

    gate.set()
    manager = Changing()
    future = manager.start_no_wait(None, "u", "s")
    assert manager.instance is future.result(30)
    assert manager.stop() is True


def test_assets_are_uploaded_on_every_start(world: World, tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "a.txt").write_text("a")
    manager = world.manager()
    context = (world.session_manager, "u", "s", world.config)
    manager.prepare_session_context(*context, upload_assets=[(str(assets), "in")])
    sandbox: Any = manager.instance
    assert sandbox.read_file("in/a.txt").content == "a"
    sandbox.delete_file("in")
    manager.add_upload_assets([(str(assets / "a.txt"), "b.txt")])
    assert sandbox.read_file("b.txt").content == "a"
    manager.start(*context)
    assert sandbox.glob("**/*.txt") == ["b.txt", "in/a.txt"]


def test_an_asset_that_is_not_there_is_told(native: World, tmp_path: Path) -> None:
    manager = native.manager()
    manager.add_upload_assets([(str(tmp_path / "none"), "x")])
    with pytest.raises(SandboxError, match="none"):
        manager.start(native.session_manager, "u", "s")
    assert manager.stop() is True


@pytest.mark.parametrize("is_kept", [True, False])
def test_assets_that_could_not_be_uploaded_are_when_it_is_asked_for_again(
    native: World, tmp_path: Path, is_kept: bool
) -> None:
    manager, asset = native.manager(), tmp_path / "later"
    sessions = native.session_manager if is_kept else None
    manager.add_upload_assets([(str(asset), "x")])
    with pytest.raises(SandboxError, match="later"):
        manager.start(sessions, "u", "s")
    for ask in (lambda: manager.instance, manager.start_sync):
        with pytest.raises(SandboxError, match="later"):
            ask()
    asset.write_text("now")
    sandbox: Any = manager.instance
    assert sandbox.read_file("x").content == "now"
    sandbox.delete_file("x")
    assert manager.instance is sandbox and not sandbox.file_exists("x")
    asset.unlink()
    assert manager.pause() is True
    with pytest.raises(SandboxError, match="later"):
        manager.instance  # noqa: B018
    asset.write_text("then")
    again: Any = manager.start_sync()
    assert again.read_file("x").content == "then"
    assert manager.stop() is True


def test_what_the_configuration_says_goes_before_the_manager(native: World) -> None:
    manager = native.manager(work_dir="/tmp", envs={"A": "manager"})
    sandbox = manager.start(None, "u", "s", {"envs": {"A": "config"}})
    assert sandbox.execute_bash("pwd; echo $A").stdout == "/tmp\nconfig\n"
    typed = NativeSandboxConfig(work_dir="/usr", limits={"memory": "256M"})
    sandbox = manager.start(None, "u", "s", typed)
    assert sandbox.execute_bash("pwd; echo $A").stdout == "/usr\nmanager\n"
    assert sandbox.config["limits"] == {"memory": 256 << 20}


@pytest.mark.parametrize(
    ("config", "state"),
    [
        ({}, "paused"),
        ({"persist_sandbox": None}, "paused"),
        ({"status_after_run": None}, "paused"),
        ({"persist_sandbox": True}, "paused"),
        ({"status_after_run": "none"}, "running"),
        ({"persist_sandbox": False}, "gone"),
        ({"persist_sandbox": "no"}, "gone"),
        (NativeSandboxConfig(persist_sandbox="no"), "gone"),  # type: ignore[call-arg]
        (NativeSandboxConfig(), "paused"),
    ],
)
def test_after_a_run_comes_what_the_configuration_says(
    native: World, config: Any, state: str
) -> None:
    manager = native.manager()
    sandbox = manager.start(native.session_manager, "u", "s", config)
    assert manager.run_done() is True
    if state == "gone":
        assert not manager.is_running()
        with pytest.raises(SandboxError):
            sandbox.state()
    else:
        assert sandbox.state() == state


@pytest.mark.parametrize("own", [False, True])
def test_after_a_run_comes_what_the_session_has_saved(native: World, own: bool) -> None:
    session_manager = native.session_manager if own else Store()
    for saved, later, goes in (
        ({"persist_sandbox": False}, None, True),
        ({"persist_sandbox": False}, {"persist_sandbox": True}, False),
        ({"persist_sandbox": True}, {"status_after_run": "stop"}, True),
    ):
        native.manager().start(session_manager, "u", "s", saved)
        manager = native.manager()
        sandbox = manager.start(session_manager, "u", "s", later)
        assert manager.run_done() is True
        assert bool(get(session_manager).sandbox_state) is not goes
        assert goes or sandbox.state() == "paused"
        native.manager().start(session_manager, "u", "s")
        assert native.started[-1].stop() is True


def test_the_command_says_what_comes_after_a_run(native: World, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("type: native\npersist_sandbox: false\n")
    native.ids.add(cay_session("start", "--user", "u", "--config", str(file), "s").strip())
    manager = native.manager()
    manager.start(SessionManager(), "u", "s")
    assert manager.run_done() is True
    assert get(SessionManager()).sandbox_state is None


def test_what_is_written_counts_also_if_it_is_the_usual(native: World) -> None:
    manager = native.manager(work_dir="/tmp", status_after_run="stop")
    usual: dict[str, Any] = {"work_dir": "/home/user", "status_after_run": "pause"}
    for config in (usual, NativeSandboxConfig(**usual)):
        sandbox = manager.start(None, "u", "s", config)
        assert str(sandbox.work_dir) == "/home/user"
        assert sandbox.config["status_after_run"] == "pause"
    for config in ({"work_dir": None}, NativeSandboxConfig(work_dir=None)):
        assert str(manager.start(None, "u", "s", config).work_dir) == "/tmp"


def test_what_a_session_has_saved_can_be_made_the_usual_again(native: World) -> None:
    asked = {"clean_output": False, "raise_errors": True, "work_dir": "/home/user/p"}
    usual = {"clean_output": True, "raise_errors": False, "work_dir": "/home/user"}
    for config in (asked, usual, {}):
        sandbox = native.manager().start(native.session_manager, "u", "s", config)
        told = {name: getattr(sandbox, name) for name in usual}
        told["work_dir"] = str(sandbox.work_dir)
        assert told == (config or usual)


def test_a_copy_of_a_configuration_knows_what_was_explicit_values() -> None:
    from cay.nexau.arguments import explicit_values

    config = NativeSandboxConfig(network="none", template="host")
    for copied in (copy.copy(config), copy.deepcopy(config)):
        assert copied == config
        assert explicit_values(copied) == {
            "type": "native",
            "network": "none",
            "template": "host",
        }


class Wrapping(NativeSandbox):
    """A subclass of a sandbox of libcay's."""

    def execute_shell(self, command: str, **options: Any) -> Any:
        return super().execute_shell(f"echo wrapped; {command}", **options)


@pytest.mark.parametrize(
    ("type", "name"),
    [("mine", "NativeSandbox"), ("wrapping", "Wrapping"), ("native", "Wrapping")],
)
@pytest.mark.parametrize("way", ["map", "file"])
def test_an_alias_may_name_a_sandbox_of_libcays_or_a_subclass(
    native: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    type: str,
    name: str,
    way: str,
) -> None:
    monkeypatch.setitem(SandboxAlias, type, name)
    file = tmp_path / "agent.yaml"
    file.write_text(f"sandbox_config: {{type: {type}, limits: {{memory: 256M}}}}")
    config: Any = {"type": type, "limits": {"memory": "256M"}}
    if way == "file":
        config = AgentConfig.from_yaml(file).sandbox_config
    manager, rest = make_manager(config)
    native.started.append(manager)
    for session_manager in (native.session_manager, Store()):
        sandbox = manager.start(session_manager, "u", "s", rest)
        assert sandbox.__class__.__name__ == name
        told = sandbox.execute_bash("echo hi").stdout
        assert told == ("wrapped\nhi\n" if name == "Wrapping" else "hi\n")
        assert sandbox.config["type"] == "native"
        assert sandbox.config["limits"] == {"memory": 256 << 20}
        again, _ = make_manager(config)
        restored = again.start(session_manager, "u", "s", rest)
        assert restored.sandbox_id == sandbox.sandbox_id
        assert restored.__class__ is sandbox.__class__
        assert manager.stop() is True
    with pytest.raises(SandboxValueError, match="takes a LocalSandboxConfig, not"):
        LocalSandboxManager().start(None, "u", "s", {"type": type})


def test_an_alias_of_a_class_that_is_not_there_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SandboxAlias, "ghost", "GhostSandbox")
    with pytest.raises(SandboxValueError, match=r"GhostSandbox.*import the module"):
        AgentConfig(sandbox_config={"type": "ghost"})
    (tmp_path / "agent.yaml").write_text("sandbox_config: {type: ghost}")
    with pytest.raises(SandboxValueError, match=r"GhostSandbox.*import the module"):
        AgentConfig.from_yaml(tmp_path / "agent.yaml")
    monkeypatch.setitem(SandboxAlias, "no name!", "NativeSandbox")
    assert isinstance(parse_sandbox_config({"type": "native"}), NativeSandboxConfig)
    with pytest.raises(SandboxValueError, match="type"):
        parse_sandbox_config({"type": "no name!"})


def test_a_class_of_ones_own_is_started_by_its_own_manager() -> None:
    class WrappingManager(NativeSandboxManager):
        sandbox_class = Wrapping

    assert manager_class(Wrapping) is WrappingManager
    assert manager_class(NativeSandbox) is NativeSandboxManager
    del WrappingManager
    gc.collect()


def test_a_working_directory_that_is_not_there_is_made(world: World) -> None:
    path = f"{world.config.get('work_dir', '/home/user')}/new/er"
    sandbox = world.start(work_dir=path)
    assert sandbox.execute_bash("pwd").stdout.endswith(f"{path}\n")


def test_a_manager_starts_only_its_own_kind() -> None:
    with pytest.raises(ValueError, match="'local'"):
        NativeSandboxManager().start(None, "u", "s", {"type": "local"})
    with pytest.raises(ValueError, match="'native'"):
        LocalSandboxManager().start(None, "u", "s", NativeSandboxConfig())
    with pytest.raises(SandboxValueError, match="did you mean"):
        NativeSandboxManager().start(None, "u", "s", {"tmplate": "x"})
    for wrong in ("native", 7):
        with pytest.raises(ValueError, match="Invalid sandbox_config type"):
            NativeSandboxManager().start(None, "u", "s", wrong)


def test_what_is_written_inside_stays_when_a_sandbox_on_disk_is_stopped_by_others(
    native: World,
) -> None:
    manager = native.manager()
    sandbox = manager.start(native.session_manager, "u", "s", {"storage": "disk"})
    sandbox.write_file("here.txt", "here")
    Sandbox.open(str(sandbox.sandbox_id)).kill()
    assert not manager.is_running()
    again: Any = manager.instance
    assert again.sandbox_id == sandbox.sandbox_id
    assert again.read_file("here.txt").content == "here"


def test_a_sandbox_that_no_session_keeps_ends_with_the_program(tmp_path: Path) -> None:
    program = """if True:
        import os, signal
        from cay.nexau import *
        class Mine(NativeSandbox): pass
        class MineManager(NativeSandboxManager):
            sandbox_class = Mine
        memory = SessionManager(engine=InMemoryDatabaseEngine.get_shared_instance())
        for at, manager in enumerate((
            NativeSandboxManager(), LocalSandboxManager(), MineManager()
        )):
            print(manager.start(None, 'u', str(at)).sandbox_id)
            print(manager.start(memory, 'u', str(at)).sandbox_id)
            manager.pause()
        print(Agent(config=AgentConfig()).state.get_sandbox().sandbox_id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    ids = set(done.stdout.split())
    assert len(ids) == 7
    deadline = time.monotonic() + 60
    while traces(ids):
        assert time.monotonic() < deadline
        Sandbox.collect()


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_a_sandbox_of_a_session_in_memory_does_not_hang_on_who_started_it(
    native: World, storage: str
) -> None:
    def start(**options: Any) -> Any:
        manager = NativeSandboxManager(**options)
        sandbox = manager.start(
            native.session_manager, "u", "s", {"storage": storage, "envs": {}}
        )
        native.ids.add(str(sandbox.sandbox_id))
        return manager, sandbox

    manager, sandbox = start()
    id = str(sandbox.sandbox_id)
    sandbox.write_file("here.txt", "here")
    for turn in range(4):
        if turn == 2 and storage == "disk":
            Sandbox.open(id).kill()
        else:
            manager.pause()
        del manager, sandbox
        gc.collect()
        manager, sandbox = start(envs={"TURN": str(turn)})
        assert sandbox.sandbox_id == id
        assert sandbox.read_file("here.txt").content == "here"
    assert Sandbox.open(id).inspect().ephemeral
    assert manager.stop() is True and start()[1].sandbox_id != id
    assert native.manager().start(native.session_manager, "u", "s") is not None


def test_threads_that_start_one_session_in_memory_share_its_sandbox(native: World) -> None:
    barrier = threading.Barrier(6)

    def start() -> None:
        barrier.wait()
        sandbox = NativeSandboxManager().start(native.session_manager, "u", "race")
        native.ids.add(str(sandbox.sandbox_id))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    (id,) = native.ids
    assert native.start("race").sandbox_id == id


def test_managers_are_data(native: World) -> None:
    manager = native.manager()
    manager.start(native.session_manager, "u", "s")
    told = dataclasses.asdict(manager)
    assert told["_instance"]["sandbox_id"] == manager._instance.sandbox_id  # type: ignore[union-attr]


# --- The command and the package share their sessions -----------------------------------------------


def cay_session(*arguments: str) -> str:
    done = subprocess.run(
        [os.environ.get("CAY_BIN", "cay"), "session", *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_sees_what_python_started(native: World) -> None:
    manager = native.manager()
    sandbox = manager.start(SessionManager(), "u", "s", {"envs": {"A": "b"}})
    (listed,) = json.loads(cay_session("ls", "-o", "json"))["sessions"]
    assert listed["session_id"] == "s" and listed["sandbox_id"] == sandbox.sandbox_id
    cay_session("pause", "--user", "u", "s")
    assert not manager.is_running() and get(SessionManager()).status == "paused"
    again: Any = manager.instance
    assert again.sandbox_id == sandbox.sandbox_id and again.envs == {"A": "b"}
    cay_session("stop", "--user", "u", "s")
    assert not manager.is_running() and get(SessionManager()).sandbox_state is None


def test_python_goes_on_with_what_the_command_started(native: World) -> None:
    id = cay_session("start", "--user", "u", "s").strip()
    native.ids.add(id)
    sandbox = native.manager().start(SessionManager(), "u", "s")
    assert sandbox.sandbox_id == id and str(sandbox.work_dir) == "/home/user"
    assert get(SessionManager()).sandbox_state["sandbox_type"] == "NativeSandbox"


# --- What is not saved ------------------------------------------------------------------------------


def test_variables_are_saved_as_they_were_explicit_values(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAY_TEST_SECRET", "hush-hush")
    envs = {"A": "${env.CAY_TEST_SECRET}", "B": "plain"}
    config = {**world.config, "envs": envs}
    manager = world.manager()
    sandbox = manager.start(SessionManager(), "u", "s", config)
    assert sandbox.execute_bash("echo $A $B").stdout == "hush-hush plain\n"
    assert sandbox.execute_bash("echo $A", envs={"A": "call"}).stdout == "call\n"
    code = sandbox.execute_code("echo $A", "bash")
    assert code.outputs[0]["text"] == "hush-hush\n"
    assert get(SessionManager()).sandbox_state["envs"] == envs
    for file in home.rglob("*"):
        assert not file.is_file() or b"hush-hush" not in file.read_bytes()

    # Where the variable is not set, the sandbox still has it.
    monkeypatch.delenv("CAY_TEST_SECRET")
    again = world.manager().start(SessionManager(), "u", "s", world.config)
    assert again.sandbox_id == sandbox.sandbox_id
    assert again.execute_bash("echo $A $B").stdout == "hush-hush plain\n"
    with pytest.raises(SandboxValueError, match="CAY_TEST_SECRET"):
        world.manager().start(SessionManager(), "u", "new", config)
    again.envs["A"] = "set"
    assert again.execute_bash("echo $A").stdout == "set\n"


# --- Section 6 of issue 15 -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manager", "config", "right"),
    [
        (LocalSandboxManager, E2BSandboxConfig(), "LocalSandboxConfig"),
        (E2BSandboxManager, LocalSandboxConfig(), "E2BSandboxConfig"),
        (NativeSandboxManager, {"type": "local"}, "NativeSandboxConfig"),
    ],
)
def test_a_configuration_of_a_wrong_type_is_answered_with_the_right_class(
    manager: Any, config: Any, right: str
) -> None:
    with pytest.raises(ValueError, match=f"{manager.__name__} takes a {right}, not"):
        manager().start(None, "u", "s", config)


def test_saved_state_has_both_spellings_of_the_working_directory(native: World) -> None:
    sandbox = native.start("spelled", work_dir="/home/user/p")
    state = native.manager().load_sandbox_state(native.session_manager, "u", "spelled")
    assert state is not None
    assert state["_work_dir"] == state["work_dir"] == "/home/user/p"
    assert native.start("spelled").work_dir == sandbox.work_dir


def test_an_agent_without_a_model_says_what_to_run_instead_of_a_prompt() -> None:
    agent = Agent(config=AgentConfig(), session_manager=None)
    with pytest.raises(ValueError, match="task: expected a function, not a str.*no model"):
        agent.run("write a poem")  # type: ignore[arg-type]
