# SPDX-License-Identifier: Apache-2.0
"""Approvals: a Python callable as libcay's approver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import CoroutineType, NoneType
from typing import Any, Literal, Protocol

from cay import _c


@dataclass(frozen=True)
class Request:
    """The operation to approve, before it starts."""

    op: str
    """read, write, edit, delete, move, copy, list, search, mkdir, append, export or
    import"""
    path: str
    """as the caller spelled it"""
    other: str | None
    """the destination of a move or copy"""
    summary: str
    """one line: 'Write 12 chars to notes/a.txt'"""
    before: str | None
    """the current content of the file (edits of up to 1 MiB)"""
    after: str | None
    """the new content of the file (writes, and edits of up to 1 MiB); for an append, the
    added text"""


class _Verdict(Protocol):
    """The result of an approver; that of pydantic-ai-blocking-approval fits, too."""

    @property
    def approved(self) -> bool: ...
    @property
    def note(self) -> str | None: ...
    @property
    def remember(self) -> str: ...


@dataclass(frozen=True)
class Decision:
    """The result of an approver.  The note of a denial becomes part of the caller's error;
    "session" approves this path and kind of access for the lifetime of the toolset."""

    approved: bool
    note: str | None = None
    remember: Literal["none", "session"] = "none"


Approver = Callable[[Request], _Verdict]


def _shown(address: int | None, length: int) -> str | None:
    if address is None:
        return None
    return ctypes.string_at(address, length).decode("utf-8", "replace")


def _optional(name: bytes | None) -> str | None:
    return None if name is None else _c.decode(name)


def _check(decision: object) -> None:
    """A truthy object does not approve: it may be the coroutine of an ``async def``."""
    if not (
        isinstance(getattr(decision, "approved", None), bool)
        and isinstance(getattr(decision, "note", 0), (str, NoneType))
        and isinstance(getattr(decision, "remember", None), str)
    ):
        if isinstance(decision, CoroutineType):
            decision.close()  # else Python warns about it, too
        raise TypeError(
            f"the approver returned {decision!r}; it must be a plain function that "
            "returns a Decision"
        )


class Bridge:
    """The C callback for an approver; it must outlive the handle that uses it."""

    def __init__(self, approver: Approver) -> None:
        if not callable(approver):
            raise TypeError(f"approver: expected a function, not {approver!r}")
        self._approver = approver
        self._raised = threading.local()
        self.callback = _c.Approver(self._request)

    def _request(self, cookie: int | None, request: Any, note: int) -> int:
        try:
            shown = request.contents
            decision = self._approver(
                Request(
                    op=_c.OPS.get(shown.op, "other"),
                    path=_c.decode(shown.path),
                    other=_optional(shown.other),
                    summary=_c.decode(shown.summary),
                    before=_shown(shown.before, shown.before_len),
                    after=_shown(shown.after, shown.after_len),
                )
            )
            _check(decision)
            if decision.approved:
                remember = decision.remember == "session"
                return _c.VERDICT_REMEMBER if remember else _c.VERDICT_APPROVE
            # The slice may split a character: "ignore" drops its first bytes.
            cut = (decision.note or "").encode("utf-8", "replace")[: _c.NOTE_MAX - 1]
            text = cut.decode("utf-8", "ignore").replace("\0", " ").encode()
            ctypes.memmove(note, text + b"\0", len(text) + 1)
        except BaseException as error:  # C has no exceptions; take_raised() returns it
            self._raised.error = error
        return _c.VERDICT_DENY

    def take_raised(self) -> BaseException | None:
        """The exception of the approver in this thread's last call, if there was one."""
        error: BaseException | None = getattr(self._raised, "error", None)
        self._raised.error = None
        return error
