# SPDX-License-Identifier: Apache-2.0
"""A toolset for the ApprovalToolset of pydantic-ai-blocking-approval."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from cay import _c
from cay.filesystem.errors import (
    PathNotInSandboxError,
    PathNotWritableError,
    SandboxError,
)
from cay.filesystem.sandbox import Sandbox
from cay.filesystem.tools import Pins, Tool, Touch
from cay.filesystem.toolset import _UNPINNED, FileSystemToolset

if TYPE_CHECKING:
    from pydantic_ai.tools import RunContext
    from pydantic_ai_blocking_approval import ApprovalResult

__all__ = ["ApprovableFileSystemToolset"]

# Calls whose approval is pending; a denied call is never made and stays here.
_PENDING_MAX = 1024

_Key = tuple[str | None, str, bytes]


class _Blocked(Exception):
    """Why a call is refused without a request for approval."""


class ApprovableFileSystemToolset(FileSystemToolset):
    """FileSystemToolset that reports which calls need approval.

    needs_approval() pins the files of a call: if a path leads to another file, or a file
    has changed, when the approved call is made, the call fails and changes nothing.
    """

    def __init__(self, sandbox: Sandbox, *args: Any, **kwargs: Any) -> None:
        super().__init__(sandbox, *args, **kwargs)
        self._pins: dict[_Key, Pins] = {}

    def needs_approval(
        self,
        name: str,
        tool_args: Any,
        ctx: RunContext[Any],
        config: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> ApprovalResult:
        """Whether a call is blocked, needs approval, or neither."""
        try:
            from pydantic_ai_blocking_approval import ApprovalResult
        except ImportError:
            raise ImportError(
                "approvals need pydantic-ai-blocking-approval: "
                "pip install pydantic-ai-blocking-approval"
            ) from None

        args = _as_mapping(tool_args)
        tool = self._tools.get(name)
        if (config or {}).get(name, {}).get("pre_approved"):
            return ApprovalResult.pre_approved()
        if tool is None:
            return ApprovalResult.needs_approval()
        try:
            needed = self._is_approval_needed(tool, args)
        except _Blocked as blocked:
            return ApprovalResult.blocked(str(blocked))
        self._pin_call(tool, args, ctx, needed)
        return ApprovalResult.needs_approval() if needed else ApprovalResult.pre_approved()

    def get_approval_description(
        self, name: str, tool_args: Any, ctx: RunContext[Any]
    ) -> str:
        """The text of the request for approval."""
        args = _as_mapping(tool_args)
        tool = self._tools.get(name)
        if tool is None:
            return f"{name}({args.get('path', '')})"
        return _c.display(tool.describe(args))

    # --- Internals ---------------------------------------------------------------------

    def _is_approval_needed(self, tool: Tool, args: dict[str, Any]) -> bool:
        for touch in tool.touches:
            if touch.argument not in args and not _has_default(tool, touch):
                raise _Blocked(
                    f"Missing required '{touch.argument}' argument for {tool.name}"
                )
        # Without mounts, names are readable and a copy counts only as a write.
        mounts = self._sandbox._style == _c.STYLE_MOUNTS
        if tool.name == "list_files" and not mounts:
            return False
        needs = [self._needs_for(touch, args, tool) for touch in tool.touches]
        if tool.name == "stat_file" or (tool.name == "list_directory" and not mounts):
            return False  # as in libcay
        if tool.name == "move_file" and mounts:
            needs.append(self._is_read_by_move(args["source"], args["destination"]))
        return needs[-1] if tool.name == "copy_file" and not mounts else any(needs)

    def _needs_for(self, touch: Touch, args: dict[str, Any], tool: Tool) -> bool:
        path = args.get(touch.argument, ".")
        if tool.walks and path in ("/", ".", ""):
            return any(
                map(self._sandbox.needs_read_approval, self._sandbox.readable_roots)
            )
        access = _c.ACCESS_READ if touch.access == "read" else _c.ACCESS_WRITE
        if touch.is_name:
            access |= _c.ACCESS_NAME
        try:
            config = self._sandbox._locate(path, access)[2]
        except PathNotWritableError:
            raise _Blocked(f"{touch.noun} is read-only: {path}") from None
        except PathNotInSandboxError:
            where = "mount" if self._sandbox._style == _c.STYLE_MOUNTS else "sandbox"
            raise _Blocked(f"{touch.noun} not in any {where}: {path}") from None
        except SandboxError as error:
            raise _Blocked(error.message) from None
        return config.read_approval if touch.access == "read" else config.write_approval

    def _is_read_by_move(self, source: str, destination: str) -> bool:
        """Whether a move makes content readable that needs approval to be read."""
        sandbox, write = self._sandbox, _c.ACCESS_WRITE
        leaves = sandbox._locate(source, write | _c.ACCESS_NAME)[0]
        read = _c.ACCESS_READ | _c.ACCESS_NAME
        return (
            leaves != sandbox._locate(destination, write)[0]
            and sandbox._query(_c.files_needs_approval, source, read)
            and sandbox.can_read(destination)
        )

    def _pin_call(
        self, tool: Tool, args: dict[str, Any], ctx: RunContext[Any], needed: bool
    ) -> None:
        try:
            valid = tool.args.model_validate(args)
        except ValidationError:
            return  # the call fails in the same way
        key = _key(tool.name, valid, ctx)
        self._pins.pop(key, None)
        if not needed or tool.walks:
            return
        while len(self._pins) >= _PENDING_MAX:
            del self._pins[next(iter(self._pins))]
        self._pins[key] = [
            self.pin(getattr(valid, touch.argument)) for touch in tool.touches
        ]

    def _take_pins(self, name: str, args: BaseModel, ctx: RunContext[Any]) -> Pins:
        return self._pins.pop(_key(name, args, ctx), _UNPINNED)


def _as_mapping(tool_args: Any) -> dict[str, Any]:
    return tool_args.model_dump() if isinstance(tool_args, BaseModel) else dict(tool_args)


def _has_default(tool: Tool, touch: Touch) -> bool:
    return not tool.args.model_fields[touch.argument].is_required()


def _key(name: str, args: BaseModel, ctx: Any) -> _Key:
    """Identifies a call: the model's call id, if there is one, and the arguments."""
    call = getattr(ctx, "tool_call_id", None)
    shown = repr(args.model_dump()).encode("utf-8", "surrogatepass")
    return (call if isinstance(call, str) else None, name, blake2b(shown).digest())
