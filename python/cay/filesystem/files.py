# SPDX-License-Identifier: Apache-2.0
"""File operations in a sandbox.

Each is one call into libcay: the path is resolved once and checked, and the file found is
the one that is read or written.  Results and errors spell paths as the caller does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref, c_void_p, pointer, sizeof
from types import NoneType
from typing import IO, Any

from cay import _c
from cay.errors import SandboxNotADirectoryError
from cay.filesystem.approver import Approver
from cay.filesystem.errors import PathNotInSandboxError, SandboxError, invalid
from cay.filesystem.results import (
    Entry,
    FileStat,
    GrepMatch,
    GrepResult,
    LinesResult,
    ReadResult,
    TarResult,
)
from cay.filesystem.sandbox import Handle, Sandbox

DEFAULT_MAX_READ_CHARS = 20_000
"""The default length of a page, in characters."""

EditPair = tuple[str, str] | Mapping[str, str | bool]
"""(old_text, new_text), or a mapping with those keys and optionally replace_all."""

_READ_SIZE = sizeof(_c.ReadOptions)
_WRITE_SIZE = sizeof(_c.WriteOptions)
_NAME_SIZE = sizeof(_c.NameOptions)

_DEFAULT_MAX_LINES = 2_000
_EVERYTHING = "**/*"
# From this size on, a file is read into the memory of the str that is returned.
_DIRECT_READ = 1 << 20


class Pin:
    """The file that a path led to when pin() was called.

    An operation that gets it fails with SandboxChangedError if the path leads to another
    file now, or if the file has changed.
    """

    __slots__ = ("_pin",)

    def __init__(self, pin: _c.Pin) -> None:
        self._pin = pin


class Files:
    """The file operations of a sandbox, for several threads at once.

    ``approver`` is called before each operation for which the sandbox's configuration
    requires approval; the operation then acts on exactly what the approver saw.
    """

    def __init__(self, sandbox: Sandbox, *, approver: Approver | None = None) -> None:
        if not isinstance(getattr(sandbox, "_handle", None), Handle):
            raise TypeError(f"sandbox: expected a Sandbox, not {sandbox!r}")
        self._sandbox = sandbox
        self._handle: Handle = (
            sandbox._handle if approver is None else sandbox._handle_with(approver)
        )
        self._pointer = self._handle.pointer

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox these are the files of."""
        return self._sandbox

    # --- Reading -----------------------------------------------------------------------

    def read(
        self,
        path: str,
        max_chars: int = DEFAULT_MAX_READ_CHARS,
        offset: int = 0,
        *,
        pin: Pin | None = None,
    ) -> ReadResult:
        """A page of a text file, counted in characters; every kind of line end becomes a
        newline."""
        options = _read_options(offset, max_chars, "chars", pin)
        options.flags |= _c.READ_LARGE
        page = _c.Page()
        placement = None
        if max_chars >= _DIRECT_READ and offset == 0:
            placement = _c.Placement()
            options.allocate = placement.allocate
        self._call(_c.files_read, [path], byref(options), byref(page))
        return _read_result(page, offset, placement)

    def open(self, path: str) -> Reader:
        """A reader, for many pages of one text file."""
        return Reader(self, path)

    def read_lines(
        self,
        path: str,
        max_lines: int = _DEFAULT_MAX_LINES,
        offset: int = 0,
        *,
        pin: Pin | None = None,
    ) -> LinesResult:
        """Whole lines of a text file; ``offset`` is the number of the first one, from 0.
        A lone carriage return is part of its line."""
        if max_lines == 0:
            raise invalid("max_lines must be 1 or more, not 0", "Pass a larger number")
        options, page = _read_options(offset, max_lines, "lines", pin), _c.Page()
        self._call(_c.files_read_lines, [path], byref(options), byref(page))
        truncated, total, count = page.truncated, page.total, page.count
        return LinesResult(
            content=_take_text(page),
            truncated=truncated,
            total_lines=total,
            offset=offset,
            lines_read=count,
        )

    def read_bytes(
        self,
        path: str,
        max_bytes: int | None = None,
        offset: int = 0,
        *,
        pin: Pin | None = None,
    ) -> bytes:
        """The file's bytes, at most ``max_bytes``; SandboxLimitError over 100 MiB."""
        most = _c.U64_MAX if max_bytes is None else max_bytes
        options, page = _read_options(offset, most, "bytes", pin, flags=0), _c.Page()
        self._call(_c.files_read_bytes, [path], byref(options), byref(page))
        try:
            return _c.data(page.text, page.len)
        finally:
            _c.page_done(byref(page))

    def read_many(self, paths: Sequence[str]) -> list[bytes | SandboxError]:
        """The bytes of many files in one call; for each that failed, the error."""
        results: list[bytes | SandboxError] = [b""] * len(paths)
        items = (_c.ReadItem * max(len(paths), 1))()
        requested: list[int] = []
        for index, path in enumerate(paths):
            try:
                items[len(requested)].path = self._name(path)
                requested.append(index)
            except SandboxError as error:
                results[index] = error
        self._call(_c.files_read_many, [], items, len(requested))
        try:
            for item, index in zip(items, requested):
                results[index] = (
                    self._error(item.error, paths[index])
                    if item.error.code
                    else _c.data(item.page.text, item.page.len)
                )
            return results
        finally:
            for item in items:
                _c.page_done(byref(item.page))

    # --- Writing -----------------------------------------------------------------------

    def write(
        self,
        path: str,
        content: str,
        *,
        in_place: bool = False,
        new: bool = False,
        durable: bool = False,
        pin: Pin | None = None,
    ) -> str:
        """Writes a text file and creates missing directories; readers see the old file or
        the new one.

        ``in_place`` overwrites the file's bytes and keeps its inode, ``new`` fails if the
        file exists, ``durable`` waits until it is on the disk.
        """
        address, length = _utf8(content, "content")
        flags = _write_flags(in_place, new, durable)
        self._write(path, address, length, flags, pin)
        return f"Written {len(content)} characters to {self._sandbox._shown(path)}"

    def write_bytes(
        self,
        path: str,
        data: bytes,
        *,
        in_place: bool = False,
        new: bool = False,
        durable: bool = False,
        pin: Pin | None = None,
    ) -> str:
        """As write(), for bytes."""
        content = _to_bytes(data)
        flags = _write_flags(in_place, new, durable)
        self._write(path, content, len(content), flags, pin)
        return f"Written {len(content)} bytes to {self._sandbox._shown(path)}"

    def append(self, path: str, content: str, *, pin: Pin | None = None) -> str:
        """Adds text at the end of a file, which is created if it does not exist."""
        address, length = _utf8(content, "content")
        self._write(path, address, length, _c.WRITE_APPEND, pin)
        return f"Appended {len(content)} characters to {self._sandbox._shown(path)}"

    def _write(
        self, path: str, data: int | bytes, length: int, flags: int, pin: Pin | None
    ) -> None:
        options = _c.WriteOptions(_WRITE_SIZE, flags, _pointer_to(pin))
        self._call(_c.files_write, [path], data, length, byref(options))

    def write_many(
        self, files: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]
    ) -> list[SandboxError | None]:
        """Writes many files in one call; for each, None or the error."""
        pairs = list(files.items() if isinstance(files, Mapping) else files)
        results: list[SandboxError | None] = [None] * len(pairs)
        items = (_c.WriteItem * max(len(pairs), 1))()
        requested: list[int] = []
        contents = []  # referenced until the call is done
        for index, (path, content) in enumerate(pairs):
            item = items[len(requested)]
            try:
                data = _content_bytes(content)
                item.path, item.len = self._name(path), len(data)
            except SandboxError as error:
                results[index] = error
                continue
            contents.append(data)
            item.data = _c.address(data)
            requested.append(index)
        options = _c.WriteOptions(_WRITE_SIZE, 0, None)
        self._call(_c.files_write_many, [], items, len(requested), byref(options))
        for item, index in zip(items, requested):
            if item.error.code:
                results[index] = self._error(item.error, pairs[index][0])
        return results

    def edit(
        self,
        path: str,
        old_text: str,
        new_text: str,
        replace_all: bool = False,
        *,
        pin: Pin | None = None,
    ) -> str:
        """Replaces ``old_text``, which must occur exactly once unless ``replace_all``;
        the file keeps its kind of line end."""
        flags = _c.EDIT_ALL if replace_all else 0
        replaced = self._edit(path, [(old_text, new_text, flags)], pin)
        times = f" {replaced} times" if replace_all else ""
        return (
            f"Edited {self._sandbox._shown(path)}: replaced {len(old_text)} chars "
            f"with {len(new_text)} chars{times}"
        )

    def multi_edit(
        self, path: str, edits: Sequence[EditPair], *, pin: Pin | None = None
    ) -> str:
        """Applies edits one after the other, each to the result of the one before: all
        of them, or none."""
        parsed = [_parse_edit(edit) for edit in edits]
        self._edit(path, parsed, pin)
        return f"Edited {self._sandbox._shown(path)}: applied {len(parsed)} edits"

    def _edit(
        self, path: str, parsed: Sequence[tuple[str, str, int]], pin: Pin | None
    ) -> int:
        edits = (_c.Edit * max(len(parsed), 1))()
        for edit, (old_text, new_text, flags) in zip(edits, parsed):
            edit.old_text, edit.old_len = _utf8(old_text, "old_text")
            edit.new_text, edit.new_len = _utf8(new_text, "new_text")
            edit.flags = flags
        options = _c.WriteOptions(_WRITE_SIZE, 0, _pointer_to(pin))
        result = _c.EditResult()
        self._call(
            _c.files_edit,
            [path],
            edits,
            len(parsed),
            byref(options),
            byref(result),
            old_texts=[old for old, _, _ in parsed],
        )
        return int(result.replaced)

    # --- Names -------------------------------------------------------------------------

    def delete(
        self, path: str, *, recursive: bool = False, pin: Pin | None = None
    ) -> str:
        """Deletes a file, or a link itself; with ``recursive`` also a directory and
        everything below it."""
        shown = self._sandbox._shown(path)
        flags = _c.NAME_RECURSIVE if recursive else 0
        self._change(_c.files_delete, [path], flags, pin)
        return f"Deleted {shown}"

    def move(
        self,
        source: str,
        destination: str,
        *,
        directory: bool = False,
        pin: Pin | None = None,
        destination_pin: Pin | None = None,
    ) -> str:
        """Moves or renames a file (with ``directory``, also a directory) to a path that
        does not exist."""
        shown = self._sandbox._shown(source)
        flags = _c.NAME_DIRECTORY if directory else 0
        self._change(_c.files_move, [source, destination], flags, pin, destination_pin)
        return f"Moved {shown} to {self._sandbox._shown(destination)}"

    def copy(
        self,
        source: str,
        destination: str,
        *,
        pin: Pin | None = None,
        destination_pin: Pin | None = None,
    ) -> str:
        """Copies a file, which may be read-only, to a path that does not exist."""
        self._change(_c.files_copy, [source, destination], 0, pin, destination_pin)
        shown = self._sandbox._shown
        return f"Copied {shown(source)} to {shown(destination)}"

    def create_directory(
        self, path: str, *, exist_ok: bool = False, pin: Pin | None = None
    ) -> str:
        """Creates a directory and its parents."""
        self._change(_c.files_mkdir, [path], _c.NAME_EXIST_OK if exist_ok else 0, pin)
        return f"Created directory {self._sandbox._shown(path)}"

    def _change(
        self,
        function: Any,
        paths: Sequence[str],
        flags: int,
        pin: Pin | None,
        other: Pin | None = None,
    ) -> None:
        options = _c.NameOptions(_NAME_SIZE, flags, _pointer_to(pin), _pointer_to(other))
        self._call(function, paths, byref(options))

    def exists(self, path: str) -> bool:
        """Whether the path exists; SandboxError if it may not be read."""
        return bool(self._call(_c.files_exists, [path]))

    def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Type, size, mode and times; without ``follow``, of a link itself."""
        stat = _c.Stat()
        self._call(_c.files_stat, [path], not follow, byref(stat))
        return FileStat._of(stat)

    def pin(self, path: str) -> Pin:
        """The file that the path leads to now, to be passed to a later operation."""
        pin = _c.Pin()
        self._call(_c.files_pin, [path], byref(pin))
        return Pin(pin)

    # --- Listing and searching ----------------------------------------------------------

    def list_files(self, path: str = ".", pattern: str = _EVERYTHING) -> list[str]:
        """The files below a directory whose relative path matches, sorted.

        "*" and "?" match within one name, "**" any number of directories.  "." means
        everything readable; a directory that does not exist has no files.
        """
        return self._paths(path, pattern, _c.LIST_FILES)

    def glob(
        self,
        pattern: str,
        path: str = ".",
        *,
        exclude: Sequence[str] = (),
        directories: bool = True,
    ) -> list[str]:
        """As list_files(), with the directories that match; paths that match ``exclude``
        are skipped with everything below them."""
        flags = _c.LIST_FILES | (_c.LIST_DIRECTORIES if directories else 0)
        return self._paths(path, pattern, flags, exclude)

    def list_dir(
        self, path: str = ".", pattern: str = "*", *, exclude: Sequence[str] = ()
    ) -> list[Entry]:
        """The entries of a directory, of every type, with sizes and times."""
        flags = (
            _c.LIST_FILES
            | _c.LIST_DIRECTORIES
            | _c.LIST_LINKS
            | _c.LIST_OTHER
            | _c.LIST_STAT
        )
        return [
            Entry(_c.decode(entry.path), FileStat._of(entry.stat))
            for entry in self._list(path, pattern, flags, exclude)
        ]

    def _paths(
        self, path: str, pattern: str, flags: int, exclude: Sequence[str] = ()
    ) -> list[str]:
        try:
            entries = self._list(path, pattern, flags, exclude)
            return [_c.decode(entry.path) for entry in entries]
        except SandboxNotADirectoryError:
            return []

    def _list(
        self, path: str, pattern: str, flags: int, exclude: Sequence[str]
    ) -> Iterator[Any]:
        """The entries, each valid until the next; all in one call, since each call
        requests approval again."""
        if path == "/" and self._sandbox._style == _c.STYLE_PATHS:
            raise PathNotInSandboxError(path, self._sandbox.readable_roots)
        excluded = _encode_patterns(exclude)
        options = _c.ListOptions(
            size=sizeof(_c.ListOptions),
            flags=flags,
            pattern=_encode_pattern(pattern),
            exclude=_c.string_array(excluded),
            exclude_count=len(excluded),
            max_entries=_c.U64_MAX,
        )
        listing = _c.Listing()
        self._call(_c.files_list, [path], byref(options), byref(listing))
        try:
            for index in range(listing.count):
                yield listing.entries[index]
        finally:
            _c.listing_done(byref(listing))

    def grep(
        self,
        regex: str,
        path: str = ".",
        pattern: str = _EVERYTHING,
        *,
        ignore_case: bool = False,
        fixed: bool = False,
        exclude: Sequence[str] = (),
        max_matches: int = 1_000,
        timeout: float = 10.0,
    ) -> GrepResult:
        """Lines that match a regular expression (``fixed``: contain the text) in the text
        files below a directory, or in one file."""
        excluded = _encode_patterns(exclude)
        options = _c.GrepOptions(
            size=sizeof(_c.GrepOptions),
            flags=(_c.GREP_IGNORE_CASE if ignore_case else 0)
            | (_c.GREP_FIXED if fixed else 0),
            pattern=_encode_pattern(pattern),
            exclude=_c.string_array(excluded),
            exclude_count=len(excluded),
            max_matches=min(max(max_matches, 1), 2**32 - 1),
            timeout_ms=_milliseconds(timeout),
        )
        matches, expression = _c.Matches(), _encode(regex, "regex")
        self._call(_c.files_grep, [path], expression, byref(options), byref(matches))
        try:
            return GrepResult(
                matches=[
                    GrepMatch(
                        path=_c.decode(item.path),
                        line=item.line,
                        column=item.column,
                        text=_c.decode(item.text),
                    )
                    for item in matches.items[: matches.count]
                ],
                files_searched=matches.files_searched,
                files_skipped=matches.files_skipped,
                truncated=matches.truncated,
            )
        finally:
            _c.matches_done(byref(matches))

    # --- Tar streams -------------------------------------------------------------------

    def export_tar(self, path: str, target: int | IO[bytes]) -> TarResult:
        """Writes a directory as a tar stream to a descriptor or binary file."""
        with _writable_fd(target) as fd:
            return self._tar(_c.files_export, path, fd)

    def import_tar(self, path: str, source: int | bytes | IO[bytes]) -> TarResult:
        """Unpacks a tar stream (plain or gzip) below a directory, which is created if it
        does not exist; the sandbox's rules apply to each entry."""
        with _readable_fd(source) as fd:
            return self._tar(_c.files_import, path, fd)

    def _tar(self, function: Any, path: str, fd: int) -> TarResult:
        result = _c.TarResult()
        self._call(function, [path], fd, None, byref(result))
        return TarResult(
            entries=result.entries, bytes=result.bytes, skipped=result.skipped
        )

    # --- Internals ---------------------------------------------------------------------

    def _size(self, path: str) -> int:
        """The size of a file; 0 if it cannot be determined."""
        stat, name = _c.Stat(), _c.encode(path)
        if name is None or _c.files_stat(self._pointer, name, False, byref(stat), None):
            return 0
        return int(stat.bytes)

    def _name(self, path: str) -> bytes:
        return self._sandbox._name(path)

    def _call(
        self,
        function: Any,
        paths: Sequence[str],
        *arguments: Any,
        old_texts: Sequence[str] = (),
    ) -> int:
        """Calls a function of files.h whose first arguments are the handle and paths."""
        err = _c.Error()
        names = [self._name(path) for path in paths]
        status: int = function(self._pointer, *names, *arguments, byref(err))
        if status < 0:
            raise self._error(err, *paths, old_texts=old_texts)
        return status

    def _error(
        self, err: Any, *paths: str, old_texts: Sequence[str] = ()
    ) -> SandboxError:
        """The exception for a failed call; raises what the approver raised, if it did."""
        bridge = self._handle.bridge
        raised = None if bridge is None else bridge.take_raised()
        if raised is not None:
            raise raised
        return self._sandbox._error(err, *paths, old_texts=old_texts)


class Reader(_c.Owner):
    """An open file, for many pages: the same file even if its path is renamed.

    For one thread at a time, best in a ``with`` statement.
    """

    _pointer: int | None = None

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        reader = c_void_p()
        files._call(_c.reader_open, [path], byref(reader))
        self._pointer = reader.value

    def page(
        self, max_chars: int = DEFAULT_MAX_READ_CHARS, offset: int = 0
    ) -> ReadResult:
        """As Files.read(), for the open file."""
        if self._pointer is None:
            raise invalid(f"'{self._path}' is closed", "Open it again")
        options = _read_options(offset, max_chars, "chars")
        page, err = _c.Page(), _c.Error()
        if _c.reader_page(self._pointer, byref(options), byref(page), byref(err)):
            raise self._files._error(err, self._path)
        return _read_result(page, offset)

    def close(self, _free: Any = _c.reader_free) -> None:
        """Closes the file; may be called again."""
        reader, self._pointer = self._pointer, None
        _free(reader)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


# --- Arguments --------------------------------------------------------------------------


def _pointer_to(pin: Pin | None) -> Any:
    if not isinstance(pin, (Pin, NoneType)):
        raise TypeError(f"pin: expected the result of pin(), not {pin!r}")
    return None if pin is None else pointer(pin._pin)


def _read_options(
    offset: int,
    maximum: int,
    unit: str,
    pin: Pin | None = None,
    flags: int = _c.READ_UNIVERSAL_NEWLINES,
) -> _c.ReadOptions:
    for name, value in (("offset", offset), (f"max_{unit}", maximum)):
        if value < 0:
            raise invalid(
                f"{name} must be 0 or more, not {value}", "Count from the start"
            )
    most = _c.U64_MAX
    return _c.ReadOptions(
        _READ_SIZE, flags, min(offset, most), min(maximum, most), _pointer_to(pin)
    )


def _parse_edit(edit: EditPair) -> tuple[str, str, int]:
    """Old text, new text and flags."""
    given: Any = edit
    if isinstance(edit, (tuple, list)) and len(edit) == 2:
        given = {"old_text": edit[0], "new_text": edit[1]}
    if not isinstance(given, Mapping) or not (
        {"old_text", "new_text"} <= given.keys() <= _EDIT.keys()
        and all(isinstance(value, _EDIT[key]) for key, value in given.items())
    ):
        raise invalid(
            f"Invalid edit {edit!r}",
            "Pass a pair (old_text, new_text), or a mapping with these keys and "
            "optionally replace_all",
        )
    flags = _c.EDIT_ALL if given.get("replace_all") else 0
    return given["old_text"], given["new_text"], flags


_EDIT = {"old_text": str, "new_text": str, "replace_all": bool}


def _need_str(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise invalid(f"{what} must be a str, not {type(value).__name__}", "Pass a str")


def _utf8(content: str, what: str) -> tuple[int, int]:
    _need_str(content, what)
    try:
        return _c.utf8(content)
    except UnicodeEncodeError:
        raise invalid(
            f"{what} contains a lone surrogate",
            "Remove characters from U+D800 to U+DFFF",
        ) from None


def _to_bytes(data: bytes) -> bytes:
    """All bytes of a buffer, whatever the type of its items."""
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise invalid(
            f"content must be bytes, not {type(data).__name__}",
            "Pass bytes, or encode the text",
        ) from None


def _content_bytes(content: str | bytes) -> bytes:
    if not isinstance(content, str):
        return _to_bytes(content)
    _utf8(content, "content")
    return content.encode()


def _milliseconds(timeout: float) -> int:
    if timeout != timeout:
        raise invalid("timeout is not a number", "Pass seconds")
    return int(min(max(timeout * 1000, 1), 2**32 - 1))


def _write_flags(in_place: bool, new: bool, durable: bool) -> int:
    return (
        (_c.WRITE_IN_PLACE if in_place else 0)
        | (_c.WRITE_NEW if new else 0)
        | (_c.WRITE_DURABLE if durable else 0)
    )


def _encode(value: str, what: str) -> bytes:
    _need_str(value, what)
    name = _c.encode(value)
    if name is None:
        raise invalid(
            f"Invalid {what} {value!r}: it contains a NUL byte or a lone surrogate",
            "Remove it",
        )
    return name


def _encode_pattern(pattern: str) -> bytes:
    _need_str(pattern, "pattern")
    return _encode(pattern.replace("\\", "/").strip(), "pattern")


def _encode_patterns(patterns: Sequence[str]) -> list[bytes]:
    # A str is a sequence, too: of one-letter patterns.
    if isinstance(patterns, (str, bytes)):
        raise invalid("exclude must be a list of patterns", f"Pass [{patterns!r}]")
    return [_encode_pattern(pattern) for pattern in patterns]


# --- Results ----------------------------------------------------------------------------


def _take_text(page: _c.Page) -> str:
    try:
        return _c.page_text(page)
    finally:
        _c.page_done(byref(page))


def _read_result(
    page: _c.Page, offset: int, placement: _c.Placement | None = None
) -> ReadResult:
    truncated, total, count = page.truncated, page.total, page.count
    is_placed = placement is not None and placement.owns(page)
    return ReadResult(
        content=placement.take(page) if placement and is_placed else _take_text(page),
        truncated=truncated,
        total_chars=total,
        offset=offset,
        chars_read=count,
    )


# --- Streams: an object without a descriptor goes through a temporary file ---------------


def _need_method(stream: object, method: str) -> None:
    if not callable(getattr(stream, method, None)):
        raise TypeError(
            f"expected a descriptor or a binary file with {method}(), not {stream!r}"
        )


@contextmanager
def _readable_fd(source: int | bytes | IO[bytes]) -> Iterator[int]:
    if isinstance(source, int):
        yield source
        return
    if not isinstance(source, bytes):
        _need_method(source, "read")
        try:
            fd = source.fileno()
        except (AttributeError, OSError):
            fd = -1
        if fd >= 0:
            if source.seekable():
                # The file object reads in blocks: its descriptor may be further ahead.
                os.lseek(fd, source.tell(), os.SEEK_SET)
            yield fd
            return
    with tempfile.TemporaryFile() as spool:
        if isinstance(source, bytes):
            spool.write(source)
        else:
            shutil.copyfileobj(source, spool)
        spool.flush()
        os.lseek(spool.fileno(), 0, os.SEEK_SET)
        yield spool.fileno()


@contextmanager
def _writable_fd(target: int | IO[bytes]) -> Iterator[int]:
    if isinstance(target, int):
        yield target
        return
    _need_method(target, "write")
    target.flush()
    try:
        fd = target.fileno()
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as spool:
            yield spool.fileno()
            spool.seek(0)
            shutil.copyfileobj(spool, target)
        return
    yield fd
