# SPDX-License-Identifier: Apache-2.0
"""Pages of text, and a file held open for many of them."""

from __future__ import annotations

from ctypes import byref, c_void_p, pointer, sizeof
from types import NoneType
from typing import TYPE_CHECKING, Any

from cay import _lib
from cay._owner import Owner
from cay.filesystem.errors import invalid
from cay.filesystem.results import ReadResult

if TYPE_CHECKING:
    from cay.filesystem.files import Files

__all__ = ["DEFAULT_MAX_READ_CHARS", "Pin", "Reader"]

DEFAULT_MAX_READ_CHARS = 20_000
"""Characters read() returns unless told."""

_SIZE = sizeof(_lib.ReadOptions)


class Pin:
    """What a path led to when pin() was called; an operation given it fails with
    ChangedError if the path leads elsewhere since, or the file was changed."""

    __slots__ = ("_pin",)

    def __init__(self, pin: _lib.Pin) -> None:
        self._pin = pin


def pointer_to(pin: Pin | None) -> Any:
    if not isinstance(pin, (Pin, NoneType)):
        raise TypeError(f"a pin is what pin() gave, not {pin!r}")
    return None if pin is None else pointer(pin._pin)


def read_options(
    offset: int,
    maximum: int,
    unit: str,
    pin: Pin | None = None,
    flags: int = _lib.READ_UNIVERSAL_NEWLINES,
) -> _lib.ReadOptions:
    for name, value in (("offset", offset), (f"max_{unit}", maximum)):
        if value < 0:
            raise invalid(
                f"{name} must be 0 or more, not {value}", "Count from the start"
            )
    most = _lib.U64_MAX
    return _lib.ReadOptions(
        _SIZE, flags, min(offset, most), min(maximum, most), pointer_to(pin)
    )


def take_text(page: _lib.Page) -> str:
    try:
        return _lib.page_text(page)
    finally:
        _lib.page_done(byref(page))


def read_result(
    page: _lib.Page, offset: int, placement: _lib.Placement | None = None
) -> ReadResult:
    truncated, total, count = page.truncated, page.total, page.count
    placed = placement is not None and placement.owns(page)
    return ReadResult(
        content=placement.take(page) if placement and placed else take_text(page),
        truncated=truncated,
        total_chars=total,
        offset=offset,
        chars_read=count,
    )


class Reader(Owner):
    """One open file, for many pages; it stays the same file whatever its name comes to
    mean.  For one thread at a time, best in a ``with`` statement."""

    _pointer: int | None = None

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        reader, err = c_void_p(), _lib.Error()
        name = files._name(path)
        if _lib.reader_open(files._pointer, name, byref(reader), byref(err)):
            raise files._failed(err, path)
        self._pointer = reader.value

    def page(
        self, max_chars: int = DEFAULT_MAX_READ_CHARS, offset: int = 0
    ) -> ReadResult:
        """As Files.read(), of the file that is open."""
        if self._pointer is None:
            raise invalid(f"'{self._path}' is closed", "Open it again")
        options = read_options(offset, max_chars, "chars")
        page, err = _lib.Page(), _lib.Error()
        if _lib.reader_page(self._pointer, byref(options), byref(page), byref(err)):
            raise self._files._failed(err, self._path)
        return read_result(page, offset)

    def close(self, _free: Any = _lib.reader_free) -> None:
        """Lets go of the file; again is fine."""
        held, self._pointer = self._pointer, None
        _free(held)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
