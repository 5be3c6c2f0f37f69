# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the policy, with messages for a model: each says what is allowed.

They are subclasses of those in cay.errors, which this package raises for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cay import _c
from cay.errors import (
    NoMatchError,
    OutsideError,
    ReadOnlyError,
    SandboxError,
    SandboxIsADirectoryError,
    SandboxPermissionEscalationError,
    SandboxValueError,
    SuffixError,
    TooLargeError,
)

__all__ = [
    "EditError",
    "FileTooLargeError",
    "PathNotInSandboxError",
    "PathNotWritableError",
    "SandboxError",
    "SandboxPermissionEscalationError",
    "SuffixNotAllowedError",
]

_PREVIEW = 100


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items) or "none"


class PathNotInSandboxError(OutsideError):
    """The path is outside what may be read."""

    is_complete = True

    def __init__(
        self,
        path: str,
        readable_roots: list[str],
        why: str = "no readable path covers it",
    ) -> None:
        self.path = path
        self.readable_roots = readable_roots
        hint = f"Paths you can read: {_listed(readable_roots)}"
        super().__init__(
            f"Cannot use '{path}', which is outside sandbox limits: {why}.\n{hint}",
            subject=path,
            hint=hint,
        )


class PathNotWritableError(ReadOnlyError):
    """The path may not be written."""

    is_complete = True

    def __init__(self, path: str, writable_roots: list[str]) -> None:
        self.path = path
        self.writable_roots = writable_roots
        hint = f"Paths you can write to: {_listed(writable_roots)}"
        super().__init__(
            f"Cannot change '{path}': it is read-only.\n{hint}", subject=path, hint=hint
        )


class EscalatedReadError(SandboxPermissionEscalationError, PathNotInSandboxError):
    """The child requests read access that the parent does not have."""


class EscalatedWriteError(SandboxPermissionEscalationError, PathNotWritableError):
    """The child requests write access that the parent does not have."""


class SuffixNotAllowedError(SuffixError):
    """Files with this suffix may not be used."""

    is_complete = True

    def __init__(self, path: str, suffix: str, allowed: list[str]) -> None:
        self.path = path
        self.suffix = suffix
        self.allowed = allowed
        hint = f"Suffixes allowed here: {_listed(allowed)}"
        super().__init__(
            f"Cannot use '{path}': suffix '{suffix}' not allowed.\n{hint}",
            subject=path,
            hint=hint,
        )


class FileTooLargeError(TooLargeError):
    """The file is, or would become, larger than allowed."""

    is_complete = True

    def __init__(self, path: str, size: int, limit: int) -> None:
        self.path = path
        self.size = size
        self.limit = limit
        hint = f"The largest file allowed here has {limit:,} bytes"
        super().__init__(
            f"Cannot use '{path}': {size:,} bytes are too many.\n{hint}",
            subject=path,
            hint=hint,
        )


class EditError(NoMatchError):
    """The text to replace does not occur exactly once."""

    is_complete = True

    def __init__(self, path: str, reason: str, old_text: str) -> None:
        self.path = path
        self.reason = reason
        self.old_text = old_text
        preview = repr(old_text[:_PREVIEW]) + ("..." if len(old_text) > _PREVIEW else "")
        hint = f"The text that was searched for: {preview}"
        super().__init__(
            f"Cannot edit '{path}': {reason}.\n{hint}", subject=path, hint=hint
        )


def invalid(message: str, hint: str) -> SandboxValueError:
    """The exception for an argument that is refused before libcay sees it."""
    error = SandboxValueError(hint=hint)
    error.restate(f"{message}. {hint}")
    return error


# The verb after "Cannot" for each operation of files.h.
_VERBS = {
    "files.read": "read",
    "files.read_lines": "read",
    "files.read_bytes": "read",
    "files.read_many": "read",
    "reader.open": "read",
    "reader.page": "read",
    "files.write": "write",
    "files.write_many": "write",
    "files.edit": "edit",
    "files.delete": "delete",
    "files.move": "move",
    "files.copy": "copy",
    "files.mkdir": "create",
    "files.stat": "look at",
    "files.exists": "look at",
    "files.list": "list",
    "files.grep": "search",
    "files.export": "export",
    "files.import": "unpack into",
    "files.derive": "allow",
    "files.open": "open",
    "policy.new": "configure",
}


def error_for_model(err: Any, path: str | None = None) -> SandboxError:
    """The exception for a cay_error on ``path``, in sentences."""
    # A FIFO, socket or device counts as a directory here: neither can be read.
    is_no_file = err.code == SandboxIsADirectoryError.code
    error = _c.error_of(err, path, SandboxIsADirectoryError if is_no_file else None)
    what, hint = error.message, error.hint
    if error.subject:
        what = f"Cannot {_VERBS.get(error.op, 'use')} '{error.subject}': {what}"
    what = f"{what[:1].upper()}{what[1:]}."
    error.restate(f"{what}\n{hint[:1].upper()}{hint[1:]}" if hint else what)
    return error
