# SPDX-License-Identifier: Apache-2.0
"""Asking a person: a Python callable as the library's approver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import CoroutineType, NoneType
from typing import Any, Literal, Protocol

from cay import _lib

__all__ = ["Approver", "Decision", "Request"]


@dataclass(frozen=True)
class Request:
    """What is about to happen, before anything is touched."""

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
    """the file as it is (edits of up to 1 MiB)"""
    after: str | None
    """the file as it will be (writes, and edits of up to 1 MiB); of an append what is
    added"""


class _Verdict(Protocol):
    """What an approver answers; pydantic-ai-blocking-approval's decision fits too."""

    @property
    def approved(self) -> bool: ...
    @property
    def note(self) -> str | None: ...
    @property
    def remember(self) -> str: ...


@dataclass(frozen=True)
class Decision:
    """A person's answer.  The note of a denial reaches the caller's error; "session"
    means not to ask again for this path and kind of access while the toolset lives."""

    approved: bool
    note: str | None = None
    remember: Literal["none", "session"] = "none"


Approver = Callable[[Request], _Verdict]


def _shown(address: int | None, length: int) -> str | None:
    if address is None:
        return None
    return ctypes.string_at(address, length).decode("utf-8", "replace")


def _optional(name: bytes | None) -> str | None:
    return None if name is None else _lib.decode(name)


def _check(decision: object) -> None:
    """Nothing that is merely true approves: a coroutine, say, of an ``async def``."""
    if not (
        isinstance(getattr(decision, "approved", None), bool)
        and isinstance(getattr(decision, "note", 0), (str, NoneType))
        and isinstance(getattr(decision, "remember", None), str)
    ):
        if isinstance(decision, CoroutineType):
            decision.close()  # or Python warns of it, too
        raise TypeError(
            f"the approver returned {decision!r}, which approves nothing: return a "
            "Decision, from a plain function"
        )


class Bridge:
    """The C callback for an approver; must outlive the handle it is given to."""

    def __init__(self, approver: Approver) -> None:
        if not callable(approver):
            raise TypeError(f"an approver is a function, not {approver!r}")
        self._approver = approver
        self._raised = threading.local()
        self.callback = _lib.Approver(self._ask)

    def _ask(self, cookie: int | None, request: Any, note: int) -> int:
        try:
            shown = request.contents
            decision = self._approver(
                Request(
                    op=_lib.OPS.get(shown.op, "other"),
                    path=_lib.decode(shown.path),
                    other=_optional(shown.other),
                    summary=_lib.decode(shown.summary),
                    before=_shown(shown.before, shown.before_len),
                    after=_shown(shown.after, shown.after_len),
                )
            )
            _check(decision)
            if decision.approved:
                remember = decision.remember == "session"
                return _lib.VERDICT_REMEMBER if remember else _lib.VERDICT_APPROVE
            # Cut between characters: what the slice broke, "ignore" drops.
            cut = (decision.note or "").encode("utf-8", "replace")[: _lib.NOTE_MAX - 1]
            told = cut.decode("utf-8", "ignore").replace("\0", " ").encode()
            ctypes.memmove(note, told + b"\0", len(told) + 1)
        except BaseException as error:  # C cannot carry it; take_raised() gives it back
            self._raised.error = error
        return _lib.VERDICT_DENY

    def take_raised(self) -> BaseException | None:
        """What the approver raised in this thread's last call, if it did."""
        error: BaseException | None = getattr(self._raised, "error", None)
        self._raised.error = None
        return error
