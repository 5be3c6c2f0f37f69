# SPDX-License-Identifier: Apache-2.0
# generated from include/cay/error.h by tools/gen-errors; do not edit
"""The exceptions: one class per error code; see cay-errors(7)."""

from cay._error import CayError, SandboxExecutionError, SandboxFileError

SandboxError = CayError
"""The name of the base class in NexAU and pydantic-ai-filesystem-sandbox."""

__all__ = [
    "BY_CODE",
    "CayError",
    "SandboxError",
    "SandboxExecutionError",
    "SandboxFileError",
    "SandboxValueError",
    "SandboxPermissionError",
    "NotFoundError",
    "SandboxMemoryError",
    "SandboxExistsError",
    "SandboxBusyError",
    "SandboxTimeoutError",
    "SandboxCancelledError",
    "SandboxLimitError",
    "SandboxNoSpaceError",
    "SandboxUnsupportedError",
    "SandboxUnavailableError",
    "SandboxProtocolError",
    "SandboxExecError",
    "SandboxKilledError",
    "SandboxInternalError",
    "OutsideError",
    "ReadOnlyError",
    "SandboxPermissionEscalationError",
    "SuffixError",
    "TooLargeError",
    "NoMatchError",
    "SandboxNotAFileError",
    "SandboxNotADirectoryError",
    "SandboxNotTextError",
    "ApprovalError",
    "SandboxChangedError",
    "SandboxIOError",
    "SandboxNotFoundError",
    "TemplateNotFoundError",
    "UserNotFoundError",
    "SandboxFileNotFoundError",
    "SandboxIsADirectoryError",
]


class SandboxValueError(CayError, ValueError):
    """The request is invalid; a retry does not help."""

    code = -1
    slug = "invalid"


class SandboxPermissionError(SandboxFileError, PermissionError):
    """The operating system or a rule denies access."""

    code = -2
    slug = "denied"


class NotFoundError(CayError):
    """The file, sandbox or other object does not exist."""

    code = -3
    slug = "not-found"


class SandboxMemoryError(CayError, MemoryError):
    """There is not enough memory."""

    code = -4
    slug = "no-memory"


class SandboxExistsError(SandboxFileError, FileExistsError):
    """An object with this name already exists."""

    code = -5
    slug = "exists"


class SandboxBusyError(CayError, OSError):
    """Another process uses or changes the object; try again."""

    code = -6
    slug = "busy"


class SandboxTimeoutError(CayError, TimeoutError):
    """The operation exceeded its timeout."""

    code = -7
    slug = "timeout"


class SandboxCancelledError(CayError):
    """The caller cancelled the operation."""

    code = -8
    slug = "cancelled"


class SandboxLimitError(CayError):
    """The operation exceeds a limit; request less at a time."""

    code = -9
    slug = "limit"


class SandboxNoSpaceError(SandboxFileError, OSError):
    """The disk or a quota is full; nothing was changed."""

    code = -10
    slug = "no-space"


class SandboxUnsupportedError(CayError, OSError):
    """The kernel, file system, backend or build does not support the operation."""

    code = -11
    slug = "unsupported"


class SandboxUnavailableError(CayError, OSError):
    """The operation needs a facility or service that is not available."""

    code = -12
    slug = "unavailable"


class SandboxProtocolError(CayError):
    """The peer sent a malformed message."""

    code = -13
    slug = "protocol"


class SandboxExecError(SandboxExecutionError):
    """The program could not be executed."""

    code = -14
    slug = "exec-failed"


class SandboxKilledError(CayError):
    """The process was killed before it finished."""

    code = -15
    slug = "killed"


class SandboxInternalError(CayError):
    """A bug in Cay; please report it."""

    code = -16
    slug = "internal"


class OutsideError(SandboxFileError):
    """The path is outside the directories of the policy."""

    code = -17
    slug = "outside"


class ReadOnlyError(SandboxPermissionError):
    """The policy allows reading this path, but not writing."""

    code = -18
    slug = "read-only"


class SandboxPermissionEscalationError(CayError):
    """A derived policy requests more access than its parent."""

    code = -19
    slug = "escalation"


class SuffixError(SandboxFileError):
    """The policy does not allow files with this suffix."""

    code = -20
    slug = "suffix"


class TooLargeError(SandboxFileError):
    """The file exceeds the policy's size limit."""

    code = -21
    slug = "too-large"


class NoMatchError(SandboxFileError):
    """The text to replace does not occur exactly once."""

    code = -22
    slug = "no-match"


class SandboxNotAFileError(SandboxFileError, OSError):
    """The path is not a regular file."""

    code = -23
    slug = "not-a-file"


class SandboxNotADirectoryError(SandboxFileError, NotADirectoryError):
    """The path is not a directory."""

    code = -24
    slug = "not-a-directory"


class SandboxNotTextError(SandboxFileError, ValueError):
    """The file is not UTF-8 text."""

    code = -25
    slug = "not-text"


class ApprovalError(SandboxFileError, PermissionError):
    """The operation needs approval and did not get it."""

    code = -26
    slug = "not-approved"


class SandboxChangedError(SandboxFileError):
    """The object has changed since it was read or approved."""

    code = -27
    slug = "changed"


class SandboxIOError(SandboxFileError, OSError):
    """Reading from or writing to storage failed."""

    code = -28
    slug = "io"


class SandboxNotFoundError(NotFoundError, LookupError):
    """The sandbox or the session does not exist."""


class TemplateNotFoundError(NotFoundError, LookupError):
    """The template does not exist."""


class UserNotFoundError(NotFoundError, LookupError, ValueError):
    """The sandbox has no such user."""


class SandboxFileNotFoundError(NotFoundError, SandboxFileError, FileNotFoundError):
    """The file or directory does not exist."""


class SandboxIsADirectoryError(SandboxNotAFileError, IsADirectoryError):
    """The path is a directory, not a regular file."""


BY_CODE: dict[int, type[CayError]] = {
    -1: SandboxValueError,
    -2: SandboxPermissionError,
    -3: NotFoundError,
    -4: SandboxMemoryError,
    -5: SandboxExistsError,
    -6: SandboxBusyError,
    -7: SandboxTimeoutError,
    -8: SandboxCancelledError,
    -9: SandboxLimitError,
    -10: SandboxNoSpaceError,
    -11: SandboxUnsupportedError,
    -12: SandboxUnavailableError,
    -13: SandboxProtocolError,
    -14: SandboxExecError,
    -15: SandboxKilledError,
    -16: SandboxInternalError,
    -17: OutsideError,
    -18: ReadOnlyError,
    -19: SandboxPermissionEscalationError,
    -20: SuffixError,
    -21: TooLargeError,
    -22: NoMatchError,
    -23: SandboxNotAFileError,
    -24: SandboxNotADirectoryError,
    -25: SandboxNotTextError,
    -26: ApprovalError,
    -27: SandboxChangedError,
    -28: SandboxIOError,
}
