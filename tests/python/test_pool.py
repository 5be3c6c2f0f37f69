# SPDX-License-Identifier: Apache-2.0
"""cay.Pool: sandboxes that are ready before they are requested."""

from __future__ import annotations

import threading
import time

import pytest
from cay import Pool, Sandbox
from cay.errors import SandboxTimeoutError, SandboxValueError
from cay.nexau import NativeSandboxManager, SessionManager

PATIENCE = 120


def await_claims(pool: Pool, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while pool.stats().claimed < count and time.monotonic() < end:
        time.sleep(0.001)
    assert pool.stats().claimed == count


def test_pool_create_uses_a_spare() -> None:
    with Pool(2) as pool:
        pool.wait(timeout=PATIENCE)
        with pool.create(env={"COLOR": "blue"}, workdir="/tmp") as sandbox:
            assert sandbox.shell("echo $COLOR $PWD").stdout == "blue /tmp\n"
            await_claims(pool, 1)


def test_pool_create_keeps_the_options_of_the_pool(tmp_path) -> None:
    (tmp_path / "data").write_text("42")
    with Pool(1, volumes=[f"{tmp_path}:/data:ro"], hostname="worker") as pool:
        with pool.create() as sandbox:
            assert sandbox.shell("cat /data/data; hostname").stdout == "42worker\n"
            await_claims(pool, 1)


def test_forks_take_the_spares_of_a_pool_of_their_checkpoint() -> None:
    with Sandbox.create() as source:
        source.shell("echo one > /tmp/one")
        checkpoint = source.checkpoint()
        with Pool(2, from_=f"{source.id}:{checkpoint.id}") as pool:
            pool.wait(timeout=PATIENCE)
            with pool.create() as one, source.fork(checkpoint, pool=pool) as other:
                assert one.shell("cat /tmp/one").stdout == "one\n"
                assert other.shell("cat /tmp/one").stdout == "one\n"
                await_claims(pool, 2)


def test_sandbox_create_takes_a_pool_and_may_not_fit() -> None:
    with Pool(1) as pool:
        with Sandbox.create(pool=pool, hostname="other") as sandbox:
            assert sandbox.shell("hostname").stdout == "other\n"
        assert pool.stats().claimed == 0


def test_sandbox_outlives_its_pool() -> None:
    pool = Pool(1)
    sandbox = pool.create()
    pool.close()
    pool.close()
    with sandbox:
        assert sandbox.shell("echo here").stdout == "here\n"


def test_wait_in_another_thread_ends_when_the_pool_is_closed() -> None:
    pool = Pool(2)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            while True:
                pool.wait(2, timeout=PATIENCE)
        except SandboxValueError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    pool.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(errors) == 4


def test_closed_pool_is_refused() -> None:
    pool = Pool(1)
    pool.close()
    with pytest.raises(SandboxValueError, match="closed"):
        pool.create()
    with pytest.raises(SandboxValueError, match="closed"):
        pool.wait()
    assert pool.stats().ready == 0


def test_pool_wait_reports_a_timeout() -> None:
    with Pool(200) as pool:
        with pytest.raises(SandboxTimeoutError):
            pool.wait(timeout=0.001)


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_pool_refuses_an_invalid_count(count: int) -> None:
    with pytest.raises(SandboxValueError):
        Pool(count)


def test_session_takes_a_spare_and_outlives_the_pool(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path))
    with Pool(1) as pool:
        sessions = SessionManager(pool=pool)
        manager = NativeSandboxManager()
        sandbox = manager.start(sessions, "u", "s", {"envs": {"COLOR": "blue"}})
        await_claims(pool, 1)
        assert sandbox.execute_bash("echo $COLOR").stdout == "blue\n"
    again = NativeSandboxManager().start(SessionManager(), "u", "s")
    assert again.sandbox_id == sandbox.sandbox_id
    assert manager.stop()
    try:
        new = manager.start(sessions, "u", "s")  # the pool is closed
        assert new.sandbox_id != sandbox.sandbox_id
    finally:
        manager.stop()


def test_session_without_a_pool_creates_its_own_sandbox(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path))
    with Pool(1) as pool:
        manager = NativeSandboxManager()
        manager.start(SessionManager(), "u", "s")
        assert manager.stop()
        assert pool.stats().claimed == 0


def test_session_refuses_a_pool_that_is_none(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path))
    with pytest.raises(SandboxValueError, match="invalid pool"):
        SessionManager(pool="other")  # type: ignore[arg-type]
    with Pool(1) as pool:
        pass
    with pytest.raises(SandboxValueError, match="the pool is closed"):
        SessionManager(pool=pool)
    assert SessionManager(pool="shared") is not None
