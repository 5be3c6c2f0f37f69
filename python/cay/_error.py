# SPDX-License-Identifier: Apache-2.0
"""The base of every exception Cay raises; cay.errors has one class per error code."""

from __future__ import annotations

from typing import Any

__all__ = ["CayError"]

_OS_FIELDS = ("strerror", "filename", "filename2")


class CayError(Exception):
    """A failure, told so that a program, a person and a model can each act on it.

    ``message`` says what happened and ``hint`` what is allowed or what to do next;
    ``code`` and ``slug`` are stable, ``errno`` is that of the system call that failed (0
    if none did), ``op`` the step ("files.read") and ``subject`` what it failed on, as the
    caller spelled it.
    """

    code: int = 0
    slug: str = "unknown"
    # int | None only because OSError, a base of some subclasses, declares it so.
    errno: int | None
    op: str
    subject: str
    message: str
    hint: str

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

    def __str__(self) -> str:
        text = f"{self.subject}: {self.message}" if self.subject else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state["errno"] = self.errno
            state.update({name: getattr(self, name) for name in _OS_FIELDS})
        return _rebuild, (type(self), self.args, state)


def _rebuild(
    cls: type[CayError], args: tuple[Any, ...], state: dict[str, Any]
) -> CayError:
    """Unpickles without the constructor, whose arguments differ from class to class."""
    error = cls.__new__(cls)
    error.args = args
    for name, value in state.items():
        setattr(error, name, value)
    return error
