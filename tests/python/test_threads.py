# SPDX-License-Identifier: Apache-2.0
"""One sandbox, several threads; and nothing left behind."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

from conftest import World, make_world

from cay.filesystem import Decision, Files, PathNotInSandboxError, Request


def together(*jobs: object) -> list[BaseException]:
    """Runs the jobs at the same time and gives what they raised."""
    raised: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(job: object) -> None:
        try:
            start.wait()
            job()  # type: ignore[operator]
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_two_threads_use_one_sandbox(world: World) -> None:
    files = world.files

    def work(name: str) -> None:
        path = world.path(name)
        for number in range(200):
            content = f"{name} {number} é\n" * 20
            files.write(path, content)
            assert files.read(path).content == content
            files.edit(path, content, "x")
            assert world.sandbox.can_read(path)
            try:
                files.read("/nowhere:")
            except PathNotInSandboxError as error:
                assert error.readable_roots == [world.top]

    assert together(lambda: work("a"), lambda: work("b")) == []


def test_readers_see_whole_files_while_a_writer_replaces_them(world: World) -> None:
    files, path = world.files, world.path("x")
    files.write(path, "0" * 5000)
    done = threading.Event()

    def write() -> None:
        for number in range(300):
            files.write(path, str(number % 10) * 5000)
        done.set()

    def read() -> None:
        while not done.is_set():
            content = files.read(path).content
            assert len(content) == 5000 and len(set(content)) == 1

    assert together(write, read, read) == []


def test_each_thread_gets_what_its_own_approver_call_raised(tmp_path: Path) -> None:
    world = make_world("mounts", tmp_path / "data", mode="rw")

    def approve(request: Request) -> Decision:
        if "bad" in request.path:
            raise LookupError(request.path)
        return Decision(True)

    files = Files(world.sandbox, approver=approve)

    def work(name: str) -> None:
        for _ in range(100):
            try:
                files.write(f"/data/{name}", "x")
                assert "bad" not in name
            except LookupError as error:
                assert error.args == (f"/data/{name}",)

    assert (
        together(*(lambda name=name: work(name) for name in ("a", "bad1", "bad2"))) == []
    )


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_sandboxes_and_readers_let_go_of_their_descriptors(
    style: str, tmp_path: Path
) -> None:
    world = make_world(style, tmp_path / "data", mode="rw")
    world.files.write(world.path("x"), "x")
    before = descriptors()
    for _ in range(50):
        again = make_world(style, tmp_path / "data", mode="rw")
        child = again.sandbox.derive(inherit=True)
        reader = Files(child).open(again.path("x"))
        assert reader.page().content == "x"
        try:
            again.files.read(again.path("missing"))
        except FileNotFoundError:
            pass
    del again, child, reader
    assert descriptors() == before
