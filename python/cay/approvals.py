# SPDX-License-Identifier: Apache-2.0
"""The queue of requests for approval: cay-approve(1)."""

from __future__ import annotations

import os
import time
from ctypes import addressof, byref, c_char, c_int, c_void_p, create_string_buffer
from ctypes import sizeof, string_at
from dataclasses import dataclass
from datetime import datetime, timezone

from cay import _c
from cay.errors import ApprovalError
from cay.sandbox import options as _options

__all__ = ["Pending", "ask", "pending", "rules_path"]

_LOOK_AGAIN = 0.1


@dataclass(frozen=True)
class Pending:
    """A request that waits for approval.  The texts may come from an agent."""

    id: str
    kind: str
    scope: str
    subject: str
    summary: str
    created: datetime
    expires: datetime
    is_decided: bool

    @property
    def content(self) -> bytes:
        """What is to be approved: a change, or the parts of a command."""
        found, text = _c.Pending(), c_void_p()
        _c.call(_c.pending_find, self.id.encode(), byref(found), byref(text))
        try:
            return string_at(text.value or 0, found.content_len) if text else b""
        finally:
            _c.free(text)

    def allow(self) -> None:
        """Allows it once; ExistsError if there is a reply already."""
        self._decide(_c.VERDICT_APPROVE, None)

    def remember(self) -> None:
        """Allows it, and adds a rule that allows the same subject from now on."""
        self._decide(_c.VERDICT_REMEMBER, None)

    def deny(self, note: str | None = None) -> None:
        self._decide(_c.VERDICT_DENY, _options.optional(note, "note"))

    def _decide(self, verdict: int, note: bytes | None) -> None:
        _c.call(_c.pending_decide, self.id.encode(), verdict, note)


def pending() -> list[Pending]:
    """Those that have not expired, the oldest first."""
    return [
        Pending(
            id=item.id.decode(),
            kind=item.kind.decode(),
            scope=os.fsdecode(item.scope),
            subject=os.fsdecode(item.subject),
            summary=os.fsdecode(item.summary),
            created=_time(item.created_ms),
            expires=_time(item.expires_ms),
            is_decided=item.is_decided,
        )
        for item in _c.listed(_c.pending_list, _c.Pending)
    ]


def ask(
    kind: str,
    subject: str,
    *,
    scope: str | None = None,
    summary: str | None = None,
    content: bytes = b"",
    timeout: float | None = None,
) -> None:
    """Waits for approval; ApprovalError if it is denied, or there is no reply in time."""
    limit = _options.milliseconds(timeout, "timeout") or _c.PENDING_TIMEOUT_MS
    buffer = create_string_buffer(content, len(content)) if content else None
    request = _c.Request(
        size=sizeof(_c.Request),
        kind=_options.text(kind, "kind"),
        scope=_options.optional(scope, "scope"),
        subject=_options.text(subject, "subject"),
        summary=_options.optional(summary, "summary"),
        content=None if buffer is None else addressof(buffer),
        content_len=len(content),
        timeout_ms=limit,
    )
    id_, decision = (c_char * _c.PENDING_ID_MAX)(), c_int()
    note = (c_char * _c.NOTE_MAX)()
    _c.call(_c.pending_submit, byref(request), id_, byref(decision))
    while decision.value == _c.DECISION_NONE:
        _c.call(_c.pending_wait, id_.value, 0, byref(decision), note)
        if decision.value == _c.DECISION_NONE:
            time.sleep(_LOOK_AGAIN)
    if decision.value != _c.DECISION_YES:
        raise ApprovalError(
            os.fsdecode(note.value) or "a rule of cay approve denies it",
            subject=subject,
        )


def rules_path() -> str:
    """The file of the rules, which need not exist: cay-approve(1) describes it."""
    path = (c_char * _c.PENDING_TEXT_MAX)()
    _c.call(_c.pending_rules, path)
    return os.fsdecode(path.value)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
