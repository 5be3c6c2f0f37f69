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
    """The request itself is wrong; repeating it cannot help."""

    code = -1
    slug = "invalid"


class SandboxPermissionError(SandboxFileError, PermissionError):
    """The operating system or a rule refuses this access."""

    code = -2
    slug = "denied"


class NotFoundError(CayError):
    """There is nothing of that name."""

    code = -3
    slug = "not-found"


class SandboxMemoryError(CayError, MemoryError):
    """Memory is exhausted."""

    code = -4
    slug = "no-memory"


class SandboxExistsError(SandboxFileError, FileExistsError):
    """Something of that name is there already."""

    code = -5
    slug = "exists"


class SandboxBusyError(CayError, OSError):
    """Somebody else is changing the same thing; try again."""

    code = -6
    slug = "busy"


class SandboxTimeoutError(CayError, TimeoutError):
    """The time given for the operation is over."""

    code = -7
    slug = "timeout"


class SandboxCancelledError(CayError):
    """The caller asked to stop."""

    code = -8
    slug = "cancelled"


class SandboxLimitError(CayError):
    """A limit of the call is reached; ask for less at a time."""

    code = -9
    slug = "limit"


class SandboxNoSpaceError(SandboxFileError, OSError):
    """The disk or a quota is full; nothing was changed."""

    code = -10
    slug = "no-space"


class SandboxUnsupportedError(CayError, OSError):
    """This kernel, file system or build cannot do it."""

    code = -11
    slug = "unsupported"


class SandboxUnavailableError(CayError, OSError):
    """The host is not set up for it."""

    code = -12
    slug = "unavailable"


class SandboxProtocolError(CayError):
    """The other side sent something malformed."""

    code = -13
    slug = "protocol"


class SandboxExecError(SandboxExecutionError):
    """The program could not be started."""

    code = -14
    slug = "exec-failed"


class SandboxKilledError(CayError):
    """The process was killed before it was done."""

    code = -15
    slug = "killed"


class SandboxInternalError(CayError):
    """A bug in Cay; please report it."""

    code = -16
    slug = "internal"


class OutsideError(SandboxFileError):
    """The path lies outside what the policy shows."""

    code = -17
    slug = "outside"


class ReadOnlyError(SandboxPermissionError):
    """The policy grants reading here, but not writing."""

    code = -18
    slug = "read-only"


class SandboxPermissionEscalationError(CayError):
    """A derived policy asked for more than its parent."""

    code = -19
    slug = "escalation"


class SuffixError(SandboxFileError):
    """The policy does not allow files of this suffix."""

    code = -20
    slug = "suffix"


class TooLargeError(SandboxFileError):
    """The file is over the policy's size limit."""

    code = -21
    slug = "too-large"


class NoMatchError(SandboxFileError):
    """The text to replace is not there exactly once."""

    code = -22
    slug = "no-match"


class SandboxNotAFileError(SandboxFileError, OSError):
    """A regular file is needed; this is something else."""

    code = -23
    slug = "not-a-file"


class SandboxNotADirectoryError(SandboxFileError, NotADirectoryError):
    """A directory is needed here."""

    code = -24
    slug = "not-a-directory"


class SandboxNotTextError(SandboxFileError, ValueError):
    """The file is not UTF-8 text."""

    code = -25
    slug = "not-text"


class ApprovalError(SandboxFileError, PermissionError):
    """A person must approve this and has not."""

    code = -26
    slug = "not-approved"


class SandboxChangedError(SandboxFileError):
    """What was approved is no longer what is there."""

    code = -27
    slug = "changed"


class SandboxIOError(SandboxFileError, OSError):
    """Reading or writing the storage failed."""

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
    """A regular file is needed; this is a directory."""


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
