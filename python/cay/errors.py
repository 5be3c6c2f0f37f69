# SPDX-License-Identifier: Apache-2.0
# generated from include/cay/error.h by tools/gen-errors; do not edit
"""One exception class per error code; see cay-errors(7)."""
from cay._error import CayError

__all__ = [
    "BY_CODE",
    "CayError",
    "Invalid",
    "Denied",
    "NotFound",
    "NoMemory",
    "Exists",
    "Busy",
    "Timeout",
    "Cancelled",
    "Limit",
    "NoSpace",
    "Unsupported",
    "Unavailable",
    "Protocol",
    "ExecFailed",
    "Killed",
    "Internal",
    "Outside",
    "ReadOnly",
    "Escalation",
    "Suffix",
    "TooLarge",
    "NoMatch",
    "NotAFile",
    "NotADirectory",
    "NotText",
    "NotApproved",
    "Changed",
    "Io",
]


class Invalid(CayError):
    """The request itself is wrong; repeating it cannot help."""

    code = -1
    slug = "invalid"


class Denied(CayError):
    """The operating system or a rule refuses this access."""

    code = -2
    slug = "denied"


class NotFound(CayError):
    """There is nothing of that name."""

    code = -3
    slug = "not-found"


class NoMemory(CayError):
    """Memory is exhausted."""

    code = -4
    slug = "no-memory"


class Exists(CayError):
    """Something of that name is there already."""

    code = -5
    slug = "exists"


class Busy(CayError):
    """Somebody else is changing the same thing; try again."""

    code = -6
    slug = "busy"


class Timeout(CayError):
    """The time given for the operation is over."""

    code = -7
    slug = "timeout"


class Cancelled(CayError):
    """The caller asked to stop."""

    code = -8
    slug = "cancelled"


class Limit(CayError):
    """A limit of the call is reached; ask for less at a time."""

    code = -9
    slug = "limit"


class NoSpace(CayError):
    """The disk or a quota is full; nothing was changed."""

    code = -10
    slug = "no-space"


class Unsupported(CayError):
    """This kernel, file system or build cannot do it."""

    code = -11
    slug = "unsupported"


class Unavailable(CayError):
    """The host is not set up for it."""

    code = -12
    slug = "unavailable"


class Protocol(CayError):
    """The other side sent something malformed."""

    code = -13
    slug = "protocol"


class ExecFailed(CayError):
    """The program could not be started."""

    code = -14
    slug = "exec-failed"


class Killed(CayError):
    """The process was killed before it was done."""

    code = -15
    slug = "killed"


class Internal(CayError):
    """A bug in Cay; please report it."""

    code = -16
    slug = "internal"


class Outside(CayError):
    """The path lies outside what the policy shows."""

    code = -17
    slug = "outside"


class ReadOnly(CayError):
    """The policy grants reading here, but not writing."""

    code = -18
    slug = "read-only"


class Escalation(CayError):
    """A derived policy asked for more than its parent."""

    code = -19
    slug = "escalation"


class Suffix(CayError):
    """The policy does not allow files of this suffix."""

    code = -20
    slug = "suffix"


class TooLarge(CayError):
    """The file is over the policy's size limit."""

    code = -21
    slug = "too-large"


class NoMatch(CayError):
    """The text to replace is not there exactly once."""

    code = -22
    slug = "no-match"


class NotAFile(CayError):
    """A regular file is needed; this is something else."""

    code = -23
    slug = "not-a-file"


class NotADirectory(CayError):
    """A directory is needed here."""

    code = -24
    slug = "not-a-directory"


class NotText(CayError):
    """The file is not UTF-8 text."""

    code = -25
    slug = "not-text"


class NotApproved(CayError):
    """A person must approve this and has not."""

    code = -26
    slug = "not-approved"


class Changed(CayError):
    """What was approved is no longer what is there."""

    code = -27
    slug = "changed"


class Io(CayError):
    """Reading or writing the storage failed."""

    code = -28
    slug = "io"


BY_CODE: dict[int, type[CayError]] = {
    cls.code: cls
    for cls in (
        Invalid,
        Denied,
        NotFound,
        NoMemory,
        Exists,
        Busy,
        Timeout,
        Cancelled,
        Limit,
        NoSpace,
        Unsupported,
        Unavailable,
        Protocol,
        ExecFailed,
        Killed,
        Internal,
        Outside,
        ReadOnly,
        Escalation,
        Suffix,
        TooLarge,
        NoMatch,
        NotAFile,
        NotADirectory,
        NotText,
        NotApproved,
        Changed,
        Io,
    )
}
