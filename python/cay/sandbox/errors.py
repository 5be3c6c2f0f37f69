# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a sandbox.

Every class is a SandboxError and one of cay.errors; those that Python has a name for are
that too.  ``errno``, ``strerror`` and ``filename`` are set on those that are OSErrors.
"""

from __future__ import annotations

import errno as _errno
from typing import Any

from cay import _lib, errors

__all__ = [
    "SandboxBusyError",
    "SandboxCancelledError",
    "SandboxChangedError",
    "SandboxDeniedError",
    "SandboxEditError",
    "SandboxError",
    "SandboxExecError",
    "SandboxExecutionError",
    "SandboxExistsError",
    "SandboxFileError",
    "SandboxFileNotFoundError",
    "SandboxIOError",
    "SandboxInternalError",
    "SandboxIsADirectoryError",
    "SandboxKilledError",
    "SandboxLimitError",
    "SandboxMemoryError",
    "SandboxNoSpaceError",
    "SandboxNotADirectoryError",
    "SandboxNotAFileError",
    "SandboxNotFoundError",
    "SandboxNotTextError",
    "SandboxProtocolError",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "SandboxUnsupportedError",
    "SandboxValueError",
    "TemplateNotFoundError",
    "UserNotFoundError",
]


class SandboxError(errors.CayError):
    """Base of what a sandbox raises; cay.filesystem has one of its own.

    ``result`` is what a method of BaseSandbox would have returned without
    ``raise_errors``.
    """

    result: Any = None


class SandboxExecutionError(SandboxError):
    """A command or a piece of code failed, or could not be run."""


class SandboxFileError(SandboxError):
    """Something went wrong with a file inside."""


# --- Sandboxes ---------------------------------------------------------------------------


class SandboxNotFoundError(SandboxError, errors.NotFound, LookupError):
    """There is no such sandbox, or it has ended."""


class TemplateNotFoundError(SandboxError, errors.NotFound, LookupError):
    """There is no such template."""


class UserNotFoundError(SandboxError, errors.NotFound, LookupError, ValueError):
    """There is no such user in the sandbox."""


class SandboxValueError(SandboxError, errors.Invalid, ValueError):
    """The request is wrong in itself."""


class SandboxTimeoutError(SandboxError, errors.Timeout, TimeoutError):
    """The time given is over."""


class SandboxBusyError(SandboxError, errors.Busy):
    """The sandbox is paused or stopped, or somebody else is changing it."""


class SandboxUnsupportedError(SandboxError, errors.Unsupported):
    """This kernel, this rung or this build cannot do it."""


class SandboxUnavailableError(SandboxError, errors.Unavailable):
    """The host is not set up for it; cay.doctor() says what is missing."""


class SandboxExecError(SandboxExecutionError, errors.ExecFailed):
    """A program could not be started."""


class SandboxKilledError(SandboxError, errors.Killed):
    """The sandbox died while it was being made."""


class SandboxCancelledError(SandboxError, errors.Cancelled):
    """The caller asked to stop."""


class SandboxLimitError(SandboxError, errors.Limit):
    """A limit of the call is reached."""


class SandboxProtocolError(SandboxError, errors.Protocol):
    """The other side sent something malformed."""


class SandboxMemoryError(SandboxError, errors.NoMemory, MemoryError):
    """Memory is exhausted."""


class SandboxInternalError(SandboxError, errors.Internal):
    """A bug in Cay."""


# --- Their files -------------------------------------------------------------------------


class SandboxDeniedError(SandboxFileError, errors.Denied, PermissionError):
    """The user inside, or the operating system, may not do that."""


class SandboxExistsError(SandboxFileError, errors.Exists, FileExistsError):
    """Something of that name is there already."""


class SandboxFileNotFoundError(SandboxFileError, errors.NotFound, FileNotFoundError):
    """There is nothing of that name inside."""


class SandboxIsADirectoryError(SandboxFileError, errors.NotAFile, IsADirectoryError):
    """A directory where a file is needed."""


class SandboxNotAFileError(SandboxFileError, errors.NotAFile, OSError):
    """A FIFO, socket or device where a file is needed."""


class SandboxNotADirectoryError(
    SandboxFileError, errors.NotADirectory, NotADirectoryError
):
    """A directory is needed."""


class SandboxNoSpaceError(SandboxFileError, errors.NoSpace, OSError):
    """The disk is full."""


class SandboxIOError(SandboxFileError, errors.Io, OSError):
    """Reading or writing the storage failed."""


class SandboxNotTextError(SandboxFileError, errors.NotText, ValueError):
    """The file is not UTF-8 text."""


class SandboxEditError(SandboxFileError, errors.NoMatch):
    """The text to replace is not there exactly once."""


class SandboxChangedError(SandboxFileError, errors.Changed):
    """What was looked at is no longer what is there."""


# The class for a code, and the errno of one that is an OSError if C gave none.
_BY_CODE: dict[int, tuple[type[SandboxError], int]] = {
    errors.Invalid.code: (SandboxValueError, 0),
    errors.Denied.code: (SandboxDeniedError, _errno.EACCES),
    errors.NotFound.code: (SandboxNotFoundError, 0),
    errors.NoMemory.code: (SandboxMemoryError, 0),
    errors.Exists.code: (SandboxExistsError, _errno.EEXIST),
    errors.Busy.code: (SandboxBusyError, 0),
    errors.Timeout.code: (SandboxTimeoutError, _errno.ETIMEDOUT),
    errors.Cancelled.code: (SandboxCancelledError, 0),
    errors.Limit.code: (SandboxLimitError, 0),
    errors.NoSpace.code: (SandboxNoSpaceError, _errno.ENOSPC),
    errors.Unsupported.code: (SandboxUnsupportedError, 0),
    errors.Unavailable.code: (SandboxUnavailableError, 0),
    errors.Protocol.code: (SandboxProtocolError, 0),
    errors.ExecFailed.code: (SandboxExecError, 0),
    errors.Killed.code: (SandboxKilledError, 0),
    errors.Internal.code: (SandboxInternalError, 0),
    errors.ReadOnly.code: (SandboxDeniedError, _errno.EROFS),
    errors.NoMatch.code: (SandboxEditError, 0),
    errors.NotAFile.code: (SandboxNotAFileError, _errno.EINVAL),
    errors.NotADirectory.code: (SandboxNotADirectoryError, _errno.ENOTDIR),
    errors.NotText.code: (SandboxNotTextError, 0),
    errors.Changed.code: (SandboxChangedError, 0),
    errors.Io.code: (SandboxIOError, _errno.EIO),
}

_FILE_OPS = (
    "backend.load",
    "config.",
    "directory.",
    "exec.cwd",
    "file.",
    "files.",
    "policy.load",
    "reader.",
    "sandbox.mount",
)


def _class_of(code: int, sys_errno: int, op: str) -> tuple[type[SandboxError], int]:
    if code == errors.NotFound.code:
        is_workdir = op == "sandbox.create" and sys_errno == _errno.ENOENT
        if op.startswith(_FILE_OPS) or is_workdir:
            return SandboxFileNotFoundError, _errno.ENOENT
        # Files are reached as a user, and that is all that may be missing then.
        if op in ("exec.user", "sandbox.files"):
            return UserNotFoundError, 0
        if op.startswith("template."):
            return TemplateNotFoundError, 0
    if code == errors.NotAFile.code and sys_errno == _errno.EISDIR:
        return SandboxIsADirectoryError, sys_errno
    return _BY_CODE.get(code, (SandboxError, 0))


def error_of(
    err: Any, subject: str | None = None, cls: type[SandboxError] | None = None
) -> SandboxError:
    """The exception for a cay_error; `subject` is how the caller spelled it, and `cls`
    what it is when C's code alone does not say."""
    op = err.op.decode()
    known, usual = _class_of(err.code, err.sys_errno, op)
    cls = cls or known
    message = _lib.decode(err.message)
    error = cls(
        message,
        code=err.code,
        errno=err.sys_errno or usual,
        op=op,
        subject=_lib.decode(err.subject) if subject is None else subject,
        hint=_lib.decode(err.hint),
    )
    if isinstance(error, OSError):
        error.strerror = message
        error.filename = error.subject
    return error
