# SPDX-License-Identifier: Apache-2.0
"""Approvals: by pydantic-ai-blocking-approval, and by our own approver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from conftest import World, make_config, make_world
from pydantic_ai.tools import RunContext
from pydantic_ai_blocking_approval import (
    ApprovalBlocked,
    ApprovalDecision,
    ApprovalDenied,
    ApprovalRequest,
    ApprovalToolset,
)
from test_toolset import call, run

from cay import _c
from cay.filesystem import (
    ApprovableFileSystemToolset,
    Decision,
    Files,
    FileSystemToolset,
    Mount,
    PathNotWritableError,
    Request,
    Sandbox,
    SandboxConfig,
)
from cay.errors import ApprovalError, SandboxChangedError

CONTEXT = MagicMock(spec=RunContext)
Asked = list[ApprovalRequest]


@pytest.fixture(params=["mounts", "paths"])
def style(request: pytest.FixtureRequest) -> str:
    """The styles in which approvals can be configured."""
    return str(request.param)


def approvable(style: str, host: Path, **rules: Any) -> tuple[World, Any]:
    world = make_world(style, host, **rules)
    return world, ApprovableFileSystemToolset(world.sandbox, raise_errors=True)


def wrapped(
    toolset: Any, then: Callable[[ApprovalRequest], None] | None = None, yes: bool = True
) -> tuple[Any, Asked]:
    """The toolset behind a person who does something and then says yes or no."""
    asked: Asked = []

    def decide(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request)
        if then is not None:
            then(request)
        return ApprovalDecision(approved=yes, note=None if yes else "not today")

    return ApprovalToolset(inner=toolset, approval_callback=decide), asked


# --- needs_approval ---------------------------------------------------------------------


def result(toolset: Any, name: str, args: dict[str, Any], config: Any = None) -> Any:
    return toolset.needs_approval(name, args, CONTEXT, config)


def args_of(name: str, path: str) -> dict[str, Any]:
    if name in ("move_file", "copy_file"):
        return {"source": path, "destination": path + "2"}
    return {"path": path, "content": "x", "old_text": "a", "new_text": "b"}


WRITES = ["write_file", "edit_file", "delete_file", "move_file", "copy_file"]


def test_writes_need_approval_where_configured(style: str, tmp_path: Path) -> None:
    world, asking = approvable(style, tmp_path / "a", mode="rw")
    free_world, free = approvable(style, tmp_path / "b", mode="rw", write_approval=False)
    for name in WRITES:
        assert result(asking, name, args_of(name, world.path("x"))).is_needs_approval
        assert result(free, name, args_of(name, free_world.path("x"))).is_pre_approved


def test_reads_need_approval_where_configured(style: str, tmp_path: Path) -> None:
    world, asking = approvable(style, tmp_path / "a", read_approval=True)
    free_world, free = approvable(style, tmp_path / "b")
    assert result(asking, "read_file", {"path": world.path("x")}).is_needs_approval
    assert result(free, "read_file", {"path": free_world.path("x")}).is_pre_approved


def test_a_move_from_where_reads_ask_to_another_mount_asks(tmp_path: Path) -> None:
    free: dict[str, Any] = {"mode": "rw", "write_approval": False}
    asking, other = (
        Mount(host_path=tmp_path / "a", mount_point="/a", read_approval=True, **free),
        Mount(host_path=tmp_path / "b", mount_point="/b", **free),
    )
    sandbox = Sandbox(SandboxConfig(mounts=[asking, other]))
    toolset = ApprovableFileSystemToolset(sandbox, raise_errors=True)
    for source, destination, asks in (
        ("/a/x", "/b/x", True),
        ("/a/x", "/a/y", False),
        ("/b/x", "/a/x", False),
    ):
        args = {"source": source, "destination": destination}
        assert result(toolset, "move_file", args).is_needs_approval == asks


def test_listing_asks_at_mounts_only(style: str, tmp_path: Path) -> None:
    world, asking = approvable(style, tmp_path / "a", read_approval=True)
    for args in ({"path": world.top}, {}, {"path": "."}, {"path": ""}):
        found = result(asking, "list_files", args)
        assert found.is_needs_approval if style == "mounts" else found.is_pre_approved
    _, free = approvable(style, tmp_path / "b")
    assert result(free, "list_files", {}).is_pre_approved


@pytest.mark.parametrize("name", ["stat_file", "list_directory", "read_file"])
def test_the_same_is_asked_by_an_approver_and_outside(
    style: str, name: str, tmp_path: Path
) -> None:
    world = make_world(style, tmp_path / "a", read_approval=True)
    (world.host / "x").write_text("x")
    asked: list[Request] = []

    def approve(request: Request) -> Decision:
        asked.append(request)
        return Decision(True)

    args = {"path": world.top if name == "list_directory" else world.path("x")}
    own = FileSystemToolset(world.sandbox, extra_tools=True, approver=approve)
    call(own, name, args)
    outside = ApprovableFileSystemToolset(world.sandbox, extra_tools=True)
    assert result(outside, name, args).is_needs_approval == bool(asked)
    assert result(outside, name, {"path": "unknown/x"}).is_blocked


@pytest.mark.parametrize("name", WRITES)
def test_what_cannot_be_done_is_blocked_without_asking(
    style: str, tmp_path: Path, name: str
) -> None:
    where = "mount" if style == "mounts" else "sandbox"
    world, toolset = approvable(style, tmp_path / "a", mode="ro")
    outside = result(toolset, name, args_of(name, "unknown/x"))
    assert outside.is_blocked and f"not in any {where}: unknown/x" in outside.block_reason
    readonly = result(toolset, name, args_of(name, world.path("x")))
    assert readonly.is_blocked and "read-only" in readonly.block_reason
    nouns = ("Source", "Destination") if name in ("move_file", "copy_file") else ("Path",)
    assert outside.block_reason.startswith(nouns)


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, "path") for name in ("read_file", "write_file", "edit_file", "delete_file")]
    + [
        (name, arg)
        for name in ("move_file", "copy_file")
        for arg in ("source", "destination")
    ],
)
def test_a_missing_path_is_blocked(
    style: str, tmp_path: Path, name: str, argument: str
) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    args = args_of(name, world.path("x"))
    del args[argument]
    blocked = result(toolset, name, args)
    assert blocked.block_reason == f"Missing required '{argument}' argument for {name}"


def test_a_copy_asks_for_its_source_at_mounts_only(style: str, tmp_path: Path) -> None:
    world, toolset = approvable(
        style, tmp_path / "a", mode="rw", write_approval=False, read_approval=True
    )
    found = result(toolset, "copy_file", args_of("copy_file", world.path("x")))
    assert found.is_needs_approval if style == "mounts" else found.is_pre_approved


def test_a_move_asks_if_either_end_does(tmp_path: Path) -> None:
    toolset = ApprovableFileSystemToolset(
        Sandbox(
            SandboxConfig(
                mounts=[
                    Mount(host_path=tmp_path / "a", mount_point="/a", mode="rw"),
                    Mount(
                        host_path=tmp_path / "b",
                        mount_point="/b",
                        mode="rw",
                        write_approval=False,
                    ),
                ]
            )
        )
    )
    for source, destination, asks in [
        ("/a/x", "/b/x", True),
        ("/b/x", "/a/x", True),
        ("/b/x", "/b/y", False),
    ]:
        args = {"source": source, "destination": destination}
        assert result(toolset, "move_file", args).is_needs_approval is asks


def test_unknown_tools_need_approval_and_configured_ones_do_not(
    style: str, tmp_path: Path
) -> None:
    _, toolset = approvable(style, tmp_path / "a")
    assert result(toolset, "format_disk", {}).is_needs_approval
    config = {"write_file": {"pre_approved": True}}
    assert result(toolset, "write_file", {"path": "/out"}, config).is_pre_approved


def test_descriptions(style: str, tmp_path: Path) -> None:
    _, toolset = approvable(style, tmp_path / "a")

    def said(name: str, **args: str) -> str:
        return str(toolset.get_approval_description(name, args, CONTEXT))

    assert said("write_file", path="p", content="data") == "Write 4 chars to p"
    assert said("read_file", path="p") == "Read from p"
    assert said("edit_file", path="p", old_text="old", new_text="n") == (
        "Edit p: replace 3 chars with 1 chars"
    )
    edit = {"old_text": "old", "new_text": "n", "replace_all": True}
    every = toolset.get_approval_description("edit_file", {"path": "p", **edit}, CONTEXT)
    assert every == "Edit p: replace 3 chars with 1 chars everywhere"
    assert said("list_files", path="p") == "List file paths in p matching **/*"
    assert said("delete_file", path="p") == "Delete p"
    assert said("move_file", source="a", destination="b") == "Move a to b"
    assert said("copy_file", source="a", destination="b") == "Copy a to b"
    assert said("other", path="p") == "other(p)"


# --- ApprovalToolset around it ----------------------------------------------------------


def test_an_approved_write_is_done_and_a_denied_one_not(
    style: str, tmp_path: Path
) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    args = {"path": world.path("x"), "content": "test"}
    denied, asked = wrapped(toolset, yes=False)
    with pytest.raises(ApprovalDenied, match="not today"):
        call(denied, "write_file", args)
    assert os.listdir(world.host) == [] and len(asked) == 1
    assert asked[0].description == f"Write 4 chars to {world.path('x')}"
    approved, _ = wrapped(toolset)
    call(approved, "write_file", args)
    assert (world.host / "x").read_text() == "test"


def test_a_path_without_approval_gets_no_prompt(style: str, tmp_path: Path) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw", write_approval=False)
    approved, asked = wrapped(toolset)
    call(approved, "write_file", {"path": world.path("x"), "content": "x"})
    assert asked == []


def test_an_agent_runs_through_an_approval_toolset(style: str, tmp_path: Path) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    approved, asked = wrapped(toolset)
    back = run(approved, ("write_file", {"path": world.path("x"), "content": "hello"}))
    assert back == [f"Written 5 characters to {world.path('x')}"]
    assert asked[0].tool_args == {"path": world.path("x"), "content": "hello"}


def test_a_blocked_call_is_not_asked_about(style: str, tmp_path: Path) -> None:
    _, toolset = approvable(style, tmp_path / "a")
    approved, asked = wrapped(toolset)
    with pytest.raises(ApprovalBlocked, match="not in any"):
        call(approved, "write_file", {"path": "unknown/x", "content": "x"})
    assert asked == []


# --- The call acts on what was approved -------------------------------------------------


def swap_for_a_link(world: World) -> Callable[[Any], None]:
    """While somebody thinks, x becomes a link to y."""

    def swap(_: Any) -> None:
        (world.host / "x").unlink(missing_ok=True)
        (world.host / "x").symlink_to("y")

    return swap


def change(world: World) -> Callable[[Any], None]:
    def rewrite(_: Any) -> None:
        (world.host / "x").write_text("something else")

    return rewrite


@pytest.mark.parametrize("attack", [swap_for_a_link, change])
@pytest.mark.parametrize("name", WRITES + ["read_file"])
def test_what_changed_after_the_approval_is_left_alone(
    style: str,
    tmp_path: Path,
    name: str,
    attack: Callable[[World], Callable[[Any], None]],
) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw", read_approval=True)
    (world.host / "x").write_text("a")
    (world.host / "y").write_text("a")
    approved, asked = wrapped(toolset, then=attack(world))
    with pytest.raises(SandboxChangedError):
        call(approved, name, args_of(name, world.path("x")))
    assert len(asked) == 1
    assert (world.host / "y").read_text() == "a"
    assert sorted(os.listdir(world.host)) == ["x", "y"]


def test_a_destination_taken_after_the_approval_is_left_alone(
    style: str, tmp_path: Path
) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    (world.host / "y").write_text("y")

    def take(_: Any) -> None:
        (world.host / "x").write_text("theirs")

    approved, _ = wrapped(toolset, then=take)
    with pytest.raises(SandboxChangedError):
        call(approved, "write_file", {"path": world.path("x"), "content": "mine"})
    assert (world.host / "x").read_text() == "theirs"


def test_a_denied_call_leaves_no_pin_behind(style: str, tmp_path: Path) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    (world.host / "x").write_text("a")
    args = {"path": world.path("x"), "content": "new"}
    denied, _ = wrapped(toolset, then=change(world), yes=False)
    with pytest.raises(ApprovalDenied):
        call(denied, "write_file", args)
    approved, _ = wrapped(toolset)
    call(approved, "write_file", args)
    assert (world.host / "x").read_text() == "new"


def test_the_model_hears_that_it_changed(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    (world.host / "x").write_text("a")
    approved, _ = wrapped(ApprovableFileSystemToolset(world.sandbox), then=change(world))
    back = run(approved, ("edit_file", args_of("edit_file", world.path("x"))))
    assert "changed" in back[0]


def test_pending_calls_are_bounded(style: str, tmp_path: Path) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    for number in range(2000):
        result(toolset, "write_file", {"path": world.path(str(number)), "content": "x"})
    assert len(toolset._pins) == 1024


# --- Links are deleted and moved themselves ---------------------------------------------


@pytest.mark.parametrize("target", ["/etc/passwd", "../out", "nothing", "self", "file"])
@pytest.mark.parametrize("name", ["delete_file", "move_file"])
def test_a_link_is_asked_about_itself(
    style: str, tmp_path: Path, target: str, name: str
) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    (world.host / "file").write_text("x")
    (world.host / "self").symlink_to(target)
    approved, asked = wrapped(toolset)
    call(approved, name, args_of(name, world.path("self")))
    assert len(asked) == 1 and not (world.host / "self").is_symlink()
    assert (world.host / "self2").is_symlink() is (name == "move_file")
    assert (world.host / "file").read_text() == "x"


@pytest.mark.parametrize("name", ["delete_file", "move_file"])
def test_a_link_that_became_another_is_left_alone(
    style: str, tmp_path: Path, name: str
) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    (world.host / "x").symlink_to("/etc/passwd")
    (world.host / "y").write_text("y")
    approved, _ = wrapped(toolset, then=swap_for_a_link(world))
    with pytest.raises(SandboxChangedError):
        call(approved, name, args_of(name, world.path("x")))
    assert (world.host / "x").is_symlink()


@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file", "copy_file"])
def test_a_link_that_leads_out_is_blocked_where_it_is_followed(
    style: str, tmp_path: Path, name: str
) -> None:
    world, toolset = approvable(style, tmp_path / "a", mode="rw")
    (world.host / "x").symlink_to("/etc/passwd")
    assert result(toolset, name, args_of(name, world.path("x"))).is_blocked


def test_a_link_from_where_one_may_write_can_be_deleted_wherever_it_leads(
    style: str, tmp_path: Path
) -> None:
    world = make_world(style, tmp_path / "a", mode="rw", write_approval=False)
    for name in ("open", "closed"):
        (world.host / name).mkdir()
    (world.host / "open" / "link").symlink_to("../closed")
    (world.host / "closed" / "link").symlink_to("../open")
    child = world.sandbox.derive(allow_read=world.top, allow_write=world.path("open"))
    toolset = ApprovableFileSystemToolset(child, raise_errors=True)
    free = result(toolset, "delete_file", {"path": world.path("open/link")})
    assert free.is_pre_approved
    blocked = result(toolset, "delete_file", {"path": world.path("closed/link")})
    assert blocked.is_blocked


# --- Our own approver -------------------------------------------------------------------


def test_the_approver_is_shown_what_will_happen(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    seen: list[Request] = []

    def approve(request: Request) -> Decision:
        seen.append(request)
        return Decision(True)

    files = Files(world.sandbox, approver=approve)
    files.write(world.path("x"), "héllo\n")
    files.edit(world.path("x"), "h", "H")
    files.copy(world.path("x"), world.path("y"))
    files.read(world.path("x"))
    assert [request.op for request in seen] == ["write", "edit", "copy"]
    write, edit, copy = seen
    assert (write.path, write.other, write.after) == (world.path("x"), None, "héllo\n")
    assert write.summary == f"Write 6 chars to {world.path('x')}"
    assert (edit.before, edit.after) == ("héllo\n", "Héllo\n")
    assert (copy.path, copy.other) == (world.path("x"), world.path("y"))


def test_a_denial_touches_nothing_and_carries_the_note(
    style: str, tmp_path: Path
) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    files = Files(
        world.sandbox, approver=lambda request: Decision(False, note="nö" * 200)
    )
    with pytest.raises(PermissionError, match="nönö") as caught:
        files.write(world.path("x"), "x")
    assert isinstance(caught.value, ApprovalError)
    assert caught.value.slug == "not-approved"
    assert os.listdir(world.host) == []


def test_a_yes_for_the_session_is_remembered(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    asked: list[str] = []

    def approve(request: Request) -> Decision:
        asked.append(request.path)
        return Decision(True, remember="session")

    files = Files(world.sandbox, approver=approve)
    for name in ("x", "x", "y", "x"):
        files.write(world.path(name), "x")
    assert asked == [world.path("x"), world.path("y")]


@pytest.mark.parametrize("pinned", [False, True])
def test_the_approver_of_a_long_read_is_asked_once(
    style: str, pinned: bool, tmp_path: Path
) -> None:
    world = make_world(style, tmp_path / "a", mode="ro", read_approval=True)
    with open(world.host / "long", "wb") as file:
        file.write(b"\xc3\xa9")
        file.truncate(_c.READ_MAX + 2)
    asked: list[str] = []

    def approve(request: Request) -> Decision:
        asked.append(request.path)
        return Decision(True)

    files = Files(world.sandbox, approver=approve)
    pin = files.pin(world.path("long")) if pinned else None
    result = files.read(world.path("long"), max_chars=10**12, pin=pin)
    assert asked == [world.path("long")]
    assert result.chars_read == len(result.content) == _c.READ_MAX + 1


def test_the_approver_of_a_long_listing_is_asked_once(tmp_path: Path) -> None:
    world = make_world("mounts", tmp_path / "a", read_approval=True)
    (world.host / "d").mkdir()
    for number in range(320):
        (world.host / "d" / str(number)).write_text("x")
        (world.host / f"link{number}").symlink_to("d")
    asked: list[str] = []

    def approve(request: Request) -> Decision:
        asked.append(request.op)
        return Decision(True)

    files = Files(world.sandbox, approver=approve)
    names = files.list_files("/data", "link*/*")
    assert len(names) == 320 * 320 and names == sorted(names)
    assert files.glob("link*/*", "/data") == names
    assert len(files.grep("x", "/data", "link1/*").matches) == 320
    assert asked == ["list", "list", "search"]


def test_what_changed_while_the_approver_thought_is_left_alone(
    style: str, tmp_path: Path
) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    (world.host / "x").write_text("a")

    def approve(request: Request) -> Decision:
        (world.host / "x").write_text("changed")
        return Decision(True)

    with pytest.raises(SandboxChangedError):
        Files(world.sandbox, approver=approve).edit(world.path("x"), "a", "b")
    assert (world.host / "x").read_text() == "changed"


@pytest.mark.parametrize("raised", [RuntimeError("broken"), KeyboardInterrupt()])
def test_what_the_approver_raises_comes_out(
    style: str, tmp_path: Path, raised: BaseException
) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")

    def approve(request: Request) -> Decision:
        raise raised

    files = Files(world.sandbox, approver=approve)
    with pytest.raises(type(raised)) as caught:
        files.write(world.path("x"), "x")
    assert caught.value is raised and os.listdir(world.host) == []


async def later(request: Request) -> Decision:
    return Decision(True)


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: None,
        lambda request: True,
        lambda request: "yes",
        lambda request: (True, None, "none"),
        lambda request: Decision(cast(Any, "no")),
        lambda request: Decision(False, note=cast(Any, 5)),
        lambda request: Decision(True, remember=cast(Any, None)),
        lambda request: MagicMock(),
        later,
    ],
)
def test_what_is_no_decision_approves_nothing(
    style: str, tmp_path: Path, answer: Any
) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    for files in (
        Files(world.sandbox, approver=answer),
        FileSystemToolset(world.sandbox, approver=answer),
    ):
        with pytest.raises(TypeError, match="returns a Decision"):
            files.write(world.path("x"), "x")
    assert os.listdir(world.host) == []


def test_the_approver_may_use_the_same_files(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    (world.host / "x").write_text("shown")
    seen: list[str] = []

    def approve(request: Request) -> Decision:
        seen.append(files.read(request.path).content)
        return Decision(True)

    files = Files(world.sandbox, approver=approve)
    files.delete(world.path("x"))
    assert seen == ["shown"]


def test_a_blocking_approval_decision_is_understood(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    files = Files(world.sandbox, approver=lambda request: ApprovalDecision(approved=True))
    files.write(world.path("x"), "x")
    assert (world.host / "x").read_text() == "x"


def test_a_toolset_with_an_approver_asks_and_tells_the_model(
    style: str, tmp_path: Path
) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    asked: list[str] = []

    def approve(request: Request) -> Decision:
        asked.append(request.summary)
        return Decision("yes" in request.path, note="only yes")

    toolset = FileSystemToolset(world.sandbox, approver=approve)
    back = run(
        toolset,
        ("write_file", {"path": world.path("no"), "content": "x"}),
        ("write_file", {"path": world.path("yes"), "content": "x"}),
    )
    assert "only yes" in back[0] and "Written" in back[1]
    assert len(asked) == 2 and os.listdir(world.host) == ["yes"]


@pytest.mark.parametrize("whose", ["toolset", "sandbox", "child"])
def test_the_event_loop_goes_on_while_an_approver_thinks(
    style: str, whose: str, tmp_path: Path
) -> None:
    threads: list[threading.Thread] = []

    def approve(request: Request) -> Decision:
        threads.append(threading.current_thread())
        return Decision(True)

    config = make_config(style, tmp_path / "a", mode="rw")
    if whose == "toolset":
        toolset = FileSystemToolset(Sandbox(config), approver=approve)
    else:
        sandbox = Sandbox(config, approver=approve)
        if whose == "child":
            sandbox = sandbox.derive(inherit=True).derive(inherit=True)
        toolset = FileSystemToolset(sandbox)
    call(toolset, "write_file", {"path": "data/x", "content": "x"})
    assert len(threads) == 1 and threads[0] is not threading.current_thread()


def test_a_derived_sandbox_asks_too(style: str, tmp_path: Path) -> None:
    world = make_world(style, tmp_path / "a", mode="rw")
    child = world.sandbox.derive(allow_write=world.path("sub")).derive(inherit=True)
    asked: list[Request] = []

    def approve(request: Request) -> Decision:
        asked.append(request)
        return Decision(True)

    files = Files(child, approver=approve)
    files.write(world.path("sub/x"), "x")
    assert len(asked) == 1
    with pytest.raises(PathNotWritableError):
        files.write(world.path("x"), "x")


def test_a_sandbox_may_carry_the_approver_to_its_children(
    style: str, tmp_path: Path
) -> None:
    asked: list[Request] = []

    def approve(request: Request) -> Decision:
        asked.append(request)
        return Decision(False)

    sandbox = Sandbox(make_config(style, tmp_path / "a", mode="rw"), approver=approve)
    path = "/data/x" if style == "mounts" else "data/x"
    for one in (sandbox, sandbox.derive(inherit=True)):
        with pytest.raises(ApprovalError):
            Files(one).write(path, "x")
    assert len(asked) == 2
