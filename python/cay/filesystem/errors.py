# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, told to a model: each message says what is allowed instead.

Failures that Python has a name for are that too: ``except FileNotFoundError`` and
``except SandboxError`` both catch a missing file.  ``errno``, ``strerror`` and
``filename`` (as the caller spelled it) are set on those that are OSErrors.
"""

from __future__ import annotations

import errno as _errno
from collections.abc import Sequence

from cay import errors

__all__ = [
    "ApprovalError",
    "ChangedError",
    "EditError",
    "FileTooLargeError",
    "NotTextError",
    "PathNotInSandboxError",
    "PathNotWritableError",
    "SandboxBusyError",
    "SandboxCancelledError",
    "SandboxError",
    "SandboxExecError",
    "SandboxFileExistsError",
    "SandboxFileNotFoundError",
    "SandboxIOError",
    "SandboxInternalError",
    "SandboxIsADirectoryError",
    "SandboxKilledError",
    "SandboxLimitError",
    "SandboxMemoryError",
    "SandboxNoSpaceError",
    "SandboxNotADirectoryError",
    "SandboxPermissionError",
    "SandboxPermissionEscalationError",
    "SandboxProtocolError",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "SandboxUnsupportedError",
    "SandboxValueError",
    "SuffixNotAllowedError",
]

_PREVIEW = 100


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items) or "none"


class SandboxError(errors.CayError):
    """Base of what the filesystem sandbox raises; ``message`` is fit for a model."""

    def __str__(self) -> str:
        return self.message


class PathNotInSandboxError(SandboxError, errors.Outside):
    """The path leads outside what may be read."""

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


class PathNotWritableError(SandboxError, errors.ReadOnly):
    """The path may not be written."""

    def __init__(self, path: str, writable_roots: list[str]) -> None:
        self.path = path
        self.writable_roots = writable_roots
        hint = f"Paths you can write to: {_listed(writable_roots)}"
        super().__init__(
            f"Cannot change '{path}': it is read-only.\n{hint}", subject=path, hint=hint
        )


class SandboxPermissionEscalationError(SandboxError, errors.Escalation):
    """A derived sandbox would be allowed more than its parent."""


class _EscalatedRead(SandboxPermissionEscalationError, PathNotInSandboxError):
    """The parent cannot read what the child should."""


class _EscalatedWrite(SandboxPermissionEscalationError, PathNotWritableError):
    """The parent cannot write what the child should."""


class SuffixNotAllowedError(SandboxError, errors.Suffix):
    """Files with this suffix may not be used."""

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


class FileTooLargeError(SandboxError, errors.TooLarge):
    """The file is, or would become, larger than allowed."""

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


class EditError(SandboxError, errors.NoMatch):
    """The text to replace is not there exactly once."""

    def __init__(self, path: str, reason: str, old_text: str) -> None:
        self.path = path
        self.reason = reason
        self.old_text = old_text
        preview = repr(old_text[:_PREVIEW]) + ("..." if len(old_text) > _PREVIEW else "")
        hint = f"The text that was looked for: {preview}"
        super().__init__(
            f"Cannot edit '{path}': {reason}.\n{hint}", subject=path, hint=hint
        )


class NotTextError(SandboxError, errors.NotText, ValueError):
    """The file is not UTF-8 text."""


class ApprovalError(SandboxError, errors.NotApproved, PermissionError):
    """A person had to approve this and has not."""


class ChangedError(SandboxError, errors.Changed):
    """What was approved is no longer what is there; nothing was done."""


class SandboxValueError(SandboxError, errors.Invalid, ValueError):
    """The request is wrong in itself."""


def invalid(message: str, hint: str) -> SandboxValueError:
    """A request that is refused before the library sees it."""
    return SandboxValueError(f"{message}.\n{hint}", hint=hint)


class SandboxPermissionError(SandboxError, errors.Denied, PermissionError):
    """The operating system refuses."""


class SandboxFileNotFoundError(SandboxError, errors.NotFound, FileNotFoundError):
    """There is nothing of that name."""


class SandboxFileExistsError(SandboxError, errors.Exists, FileExistsError):
    """Something of that name is there already."""


class SandboxIsADirectoryError(SandboxError, errors.NotAFile, IsADirectoryError):
    """A directory, or a FIFO, socket or device, where a file is needed."""


class SandboxNotADirectoryError(SandboxError, errors.NotADirectory, NotADirectoryError):
    """A directory is needed."""


class SandboxTimeoutError(SandboxError, errors.Timeout, TimeoutError):
    """The time given is over."""


class SandboxMemoryError(SandboxError, errors.NoMemory, MemoryError):
    """Memory is exhausted."""


class SandboxLimitError(SandboxError, errors.Limit):
    """A limit of the call is reached."""


class SandboxBusyError(SandboxError, errors.Busy, OSError):
    """Somebody else is changing the same thing."""


class SandboxNoSpaceError(SandboxError, errors.NoSpace, OSError):
    """The disk or a quota is full; nothing was changed."""


class SandboxIOError(SandboxError, errors.Io, OSError):
    """Reading or writing the storage failed."""


class SandboxUnsupportedError(SandboxError, errors.Unsupported, OSError):
    """This kernel, file system or build cannot do it."""


class SandboxUnavailableError(SandboxError, errors.Unavailable, OSError):
    """The host is not set up for it."""


class SandboxCancelledError(SandboxError, errors.Cancelled):
    """The caller asked to stop."""


class SandboxProtocolError(SandboxError, errors.Protocol):
    """The bytes given (an archive, say) are malformed."""


class SandboxExecError(SandboxError, errors.ExecFailed):
    """A process the library needs could not be started."""


class SandboxKilledError(SandboxError, errors.Killed):
    """A process the library needs was killed."""


class SandboxInternalError(SandboxError, errors.Internal):
    """A bug in Cay."""


# The class for a code whose constructor takes a message, and its errno if C gave none.
BY_CODE: dict[int, tuple[type[SandboxError], int]] = {
    errors.Invalid.code: (SandboxValueError, 0),
    errors.Denied.code: (SandboxPermissionError, _errno.EACCES),
    errors.NotFound.code: (SandboxFileNotFoundError, _errno.ENOENT),
    errors.NoMemory.code: (SandboxMemoryError, _errno.ENOMEM),
    errors.Exists.code: (SandboxFileExistsError, _errno.EEXIST),
    errors.Busy.code: (SandboxBusyError, _errno.EBUSY),
    errors.Timeout.code: (SandboxTimeoutError, _errno.ETIMEDOUT),
    errors.Cancelled.code: (SandboxCancelledError, 0),
    errors.Limit.code: (SandboxLimitError, 0),
    errors.NoSpace.code: (SandboxNoSpaceError, _errno.ENOSPC),
    errors.Unsupported.code: (SandboxUnsupportedError, _errno.ENOTSUP),
    errors.Unavailable.code: (SandboxUnavailableError, 0),
    errors.Protocol.code: (SandboxProtocolError, 0),
    errors.ExecFailed.code: (SandboxExecError, 0),
    errors.Killed.code: (SandboxKilledError, 0),
    errors.Internal.code: (SandboxInternalError, 0),
    errors.Escalation.code: (SandboxPermissionEscalationError, 0),
    errors.NotAFile.code: (SandboxIsADirectoryError, _errno.EISDIR),
    errors.NotADirectory.code: (SandboxNotADirectoryError, _errno.ENOTDIR),
    errors.NotText.code: (NotTextError, 0),
    errors.NotApproved.code: (ApprovalError, _errno.EPERM),
    errors.Changed.code: (ChangedError, 0),
    errors.Io.code: (SandboxIOError, _errno.EIO),
}

# How an operation of files.h reads after "Cannot".
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


def plain(
    code: int, sys_errno: int, op: str, subject: str, message: str, hint: str
) -> SandboxError:
    """The exception for a code that has no constructor of its own."""
    cls, usual = BY_CODE.get(code, (SandboxError, 0))
    verb = _VERBS.get(op, "use")
    what = f"Cannot {verb} '{subject}': {message}."
    if not subject:
        what = f"{message[:1].upper()}{message[1:]}."
    told = f"{what}\n{hint[:1].upper()}{hint[1:]}" if hint else what
    error = cls(
        told, code=code, errno=sys_errno or usual, op=op, subject=subject, hint=hint
    )
    if isinstance(error, OSError):
        error.strerror = message
        error.filename = subject
    return error
