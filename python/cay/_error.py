# SPDX-License-Identifier: Apache-2.0
"""The base classes of cay.errors, which has one class per error code."""

from __future__ import annotations

from typing import Any

__all__ = ["CayError", "SandboxExecutionError", "SandboxFileError"]

_OS_FIELDS = ("strerror", "filename", "filename2")


class CayError(Exception):
    """The base class of every exception that Cay raises.

    ``code`` and ``slug`` are stable.  ``message`` says what failed, ``hint`` what is
    allowed or what to do, ``subject`` on what it failed, as the caller spelled it, and
    ``op`` in which step ("files.read").  ``errno`` is that of the failed system call, or
    0.  ``result`` is the result object that a method of BaseSandbox returns without
    ``raise_errors``.
    """

    code: int = 0
    slug: str = "unknown"
    # int | None only because OSError, a base of some subclasses, declares it so.
    errno: int | None
    op: str
    subject: str
    message: str
    hint: str
    result: Any = None
    is_complete: bool = False
    """``message`` is the whole text: str() adds neither subject nor hint."""

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        errno: int = 0,
        op: str = "",
        subject: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.errno = errno
        self.op = op
        self.subject = subject
        self.message = message
        self.hint = hint

    def restate(self, text: str) -> None:
        """Makes ``text`` the message, and all that str() returns."""
        self.message, self.args, self.is_complete = text, (text,), True

    def __str__(self) -> str:
        if self.is_complete:
            return self.message
        text = f"{self.subject}: {self.message}" if self.subject else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state["errno"] = self.errno
            state.update({name: getattr(self, name) for name in _OS_FIELDS})
        return _rebuild, (type(self), self.args, state)


class SandboxExecutionError(CayError):
    """A command or code failed, or could not be started."""


class SandboxFileError(CayError):
    """An operation on a file failed."""


def _rebuild(
    cls: type[CayError], args: tuple[Any, ...], state: dict[str, Any]
) -> CayError:
    """Unpickles without the constructor, whose arguments differ from class to class."""
    error = cls.__new__(cls)
    error.args = args
    for name, value in state.items():
        setattr(error, name, value)
    return error
