# SPDX-License-Identifier: Apache-2.0
"""File operations in a sandbox.

Each is one call into libcay: the name is looked up once, checked, and the file so found
is what is read or written.  Results and errors name files the way the caller does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import byref, sizeof, string_at
from typing import IO, Any

from cay import _lib
from cay.filesystem.approver import Approver
from cay.filesystem.arguments import (
    EditPair,
    content_bytes,
    lend_text,
    milliseconds,
    pattern_text,
    pattern_texts,
    plain_text,
    take_edit,
    to_bytes,
    write_flags,
)
from cay.filesystem.errors import (
    PathNotInSandboxError,
    SandboxError,
    SandboxNotADirectoryError,
    invalid,
)
from cay.filesystem.reader import (
    DEFAULT_MAX_READ_CHARS,
    Pin,
    Reader,
    pointer_to,
    read_options,
    read_result,
    take_text,
)
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
from cay.filesystem.streams import readable_fd, writable_fd

__all__ = ["DEFAULT_MAX_READ_CHARS", "EditPair", "Files", "Pin", "Reader"]

_WRITE_SIZE = sizeof(_lib.WriteOptions)
_NAME_SIZE = sizeof(_lib.NameOptions)

_DEFAULT_MAX_LINES = 2_000
_EVERYTHING = "**/*"
# From here on a file is read straight into the str that is returned.
_WORTH_PLACING = 1 << 20


class Files:
    """The file operations of a sandbox, for several threads at once.

    ``approver`` is asked before what the sandbox's configuration says a person must
    approve, and the operation then acts on exactly what was shown.
    """

    def __init__(self, sandbox: Sandbox, *, approver: Approver | None = None) -> None:
        if not isinstance(getattr(sandbox, "_handle", None), Handle):
            raise TypeError(f"the files are those of a Sandbox, not of {sandbox!r}")
        self._sandbox = sandbox
        self._handle: Handle = (
            sandbox._handle if approver is None else sandbox._handle_asking(approver)
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
        """A page of a text file, counted in characters; every kind of line end reads as a
        newline."""
        options = read_options(offset, max_chars, "chars", pin)
        options.flags |= _lib.READ_LARGE
        page, err = _lib.Page(), _lib.Error()
        placement = None
        if max_chars >= _WORTH_PLACING and offset == 0:
            placement = _lib.Placement()
            options.allocate = placement.allocate
        code = _lib.files_read(
            self._pointer, self._name(path), byref(options), byref(page), byref(err)
        )
        if code:
            raise self._failed(err, path)
        return read_result(page, offset, placement)

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
        """Whole lines of a text file; ``offset`` is the first one's number, from 0.  A
        lone carriage return is part of its line."""
        if max_lines == 0:
            raise invalid("max_lines must be 1 or more, not 0", "Ask for some lines")
        options = read_options(offset, max_lines, "lines", pin)
        page, err = _lib.Page(), _lib.Error()
        code = _lib.files_read_lines(
            self._pointer, self._name(path), byref(options), byref(page), byref(err)
        )
        if code:
            raise self._failed(err, path)
        truncated, total, count = page.truncated, page.total, page.count
        return LinesResult(
            content=take_text(page),
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
        most = _lib.U64_MAX if max_bytes is None else max_bytes
        options = read_options(offset, most, "bytes", pin, flags=0)
        page, err = _lib.Page(), _lib.Error()
        code = _lib.files_read_bytes(
            self._pointer, self._name(path), byref(options), byref(page), byref(err)
        )
        if code:
            raise self._failed(err, path)
        try:
            return string_at(page.text, page.len) if page.len else b""
        finally:
            _lib.page_done(byref(page))

    def read_many(self, paths: Sequence[str]) -> list[bytes | SandboxError]:
        """The bytes of many files in one call, or what went wrong with each."""
        results: list[bytes | SandboxError] = [b""] * len(paths)
        items = (_lib.ReadItem * max(len(paths), 1))()
        asked: list[int] = []
        for index, path in enumerate(paths):
            try:
                items[len(asked)].path = self._name(path)
                asked.append(index)
            except SandboxError as error:
                results[index] = error
        err = _lib.Error()
        if _lib.files_read_many(self._pointer, items, len(asked), byref(err)):
            raise self._failed(err)
        try:
            for item, index in zip(items, asked):
                results[index] = (
                    self._failed(item.error, paths[index])
                    if item.error.code
                    else string_at(item.page.text, item.page.len)
                )
            return results
        finally:
            for item in items:
                _lib.page_done(byref(item.page))

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
        """Writes a text file, with its directories; readers see the old file or the new.

        ``in_place`` overwrites the file's bytes and keeps its inode, ``new`` refuses what
        exists, ``durable`` waits until it is on the disk.
        """
        address, length = lend_text(content, "content")
        flags = write_flags(in_place, new, durable)
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
        """As write(), of any bytes."""
        content = to_bytes(data)
        flags = write_flags(in_place, new, durable)
        self._write(path, content, len(content), flags, pin)
        return f"Written {len(content)} bytes to {self._sandbox._shown(path)}"

    def append(self, path: str, content: str, *, pin: Pin | None = None) -> str:
        """Adds text at the end of a file, which is created if need be."""
        address, length = lend_text(content, "content")
        self._write(path, address, length, _lib.WRITE_APPEND, pin)
        return f"Appended {len(content)} characters to {self._sandbox._shown(path)}"

    def _write(
        self, path: str, data: int | bytes, length: int, flags: int, pin: Pin | None
    ) -> None:
        options = _lib.WriteOptions(_WRITE_SIZE, flags, pointer_to(pin))
        err = _lib.Error()
        code = _lib.files_write(
            self._pointer, self._name(path), data, length, byref(options), byref(err)
        )
        if code:
            raise self._failed(err, path)

    def write_many(
        self, files: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]
    ) -> list[SandboxError | None]:
        """Writes many files in one call, each by itself; None for each that worked."""
        pairs = list(files.items() if isinstance(files, Mapping) else files)
        results: list[SandboxError | None] = [None] * len(pairs)
        items = (_lib.WriteItem * max(len(pairs), 1))()
        asked: list[int] = []
        held = []
        for index, (path, content) in enumerate(pairs):
            item = items[len(asked)]
            try:
                data = content_bytes(content)
                item.path, item.len = self._name(path), len(data)
            except SandboxError as error:
                results[index] = error
                continue
            held.append(data)
            item.data = _lib.address(data)
            asked.append(index)
        options = _lib.WriteOptions(_WRITE_SIZE, 0, None)
        err = _lib.Error()
        if _lib.files_write_many(
            self._pointer, items, len(asked), byref(options), byref(err)
        ):
            raise self._failed(err)
        for item, index in zip(items, asked):
            if item.error.code:
                results[index] = self._failed(item.error, pairs[index][0])
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
        flags = _lib.EDIT_ALL if replace_all else 0
        replaced = self._edit(path, [(old_text, new_text, flags)], pin)
        times = f" {replaced} times" if replace_all else ""
        return (
            f"Edited {self._sandbox._shown(path)}: replaced {len(old_text)} chars "
            f"with {len(new_text)} chars{times}"
        )

    def multi_edit(
        self, path: str, edits: Sequence[EditPair], *, pin: Pin | None = None
    ) -> str:
        """Applies edits one after the other, each to the outcome of the one before: all
        of them, or none."""
        taken = [take_edit(edit) for edit in edits]
        self._edit(path, taken, pin)
        return f"Edited {self._sandbox._shown(path)}: made {len(taken)} edits"

    def _edit(
        self, path: str, taken: Sequence[tuple[str, str, int]], pin: Pin | None
    ) -> int:
        edits = (_lib.Edit * max(len(taken), 1))()
        for edit, (old_text, new_text, flags) in zip(edits, taken):
            edit.old_text, edit.old_len = lend_text(old_text, "old_text")
            edit.new_text, edit.new_len = lend_text(new_text, "new_text")
            edit.flags = flags
        options = _lib.WriteOptions(_WRITE_SIZE, 0, pointer_to(pin))
        result, err = _lib.EditResult(), _lib.Error()
        code = _lib.files_edit(
            self._pointer,
            self._name(path),
            edits,
            len(taken),
            byref(options),
            byref(result),
            byref(err),
        )
        if code:
            raise self._failed(err, path, old_texts=[old for old, _, _ in taken])
        return int(result.replaced)

    # --- Names -------------------------------------------------------------------------

    def delete(
        self, path: str, *, recursive: bool = False, pin: Pin | None = None
    ) -> str:
        """Deletes a file, or a link itself; with ``recursive`` also a directory and all
        below it."""
        shown = self._sandbox._shown(path)
        flags = _lib.NAME_RECURSIVE if recursive else 0
        self._change(_lib.files_delete, path, flags=flags, pin=pin)
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
        """Moves or renames a file (with ``directory``, also a directory) to a name that
        is not taken."""
        shown = self._sandbox._shown(source)
        flags = _lib.NAME_DIRECTORY if directory else 0
        self._change(
            _lib.files_move,
            source,
            destination,
            flags=flags,
            pin=pin,
            other=destination_pin,
        )
        return f"Moved {shown} to {self._sandbox._shown(destination)}"

    def copy(
        self,
        source: str,
        destination: str,
        *,
        pin: Pin | None = None,
        destination_pin: Pin | None = None,
    ) -> str:
        """Copies a file, which may be read-only, to a name that is not taken."""
        self._change(_lib.files_copy, source, destination, pin=pin, other=destination_pin)
        shown = self._sandbox._shown
        return f"Copied {shown(source)} to {shown(destination)}"

    def create_directory(
        self, path: str, *, exist_ok: bool = False, pin: Pin | None = None
    ) -> str:
        """Creates a directory, with those above it."""
        flags = _lib.NAME_EXIST_OK if exist_ok else 0
        self._change(_lib.files_mkdir, path, flags=flags, pin=pin)
        return f"Created directory {self._sandbox._shown(path)}"

    def _change(
        self,
        function: Any,
        *paths: str,
        flags: int = 0,
        pin: Pin | None = None,
        other: Pin | None = None,
    ) -> None:
        options = _lib.NameOptions(_NAME_SIZE, flags, pointer_to(pin), pointer_to(other))
        names = [self._name(path) for path in paths]
        err = _lib.Error()
        if function(self._pointer, *names, byref(options), byref(err)):
            raise self._failed(err, *paths)

    def exists(self, path: str) -> bool:
        """Whether something is there; SandboxError if the path may not be read."""
        err = _lib.Error()
        code = _lib.files_exists(self._pointer, self._name(path), byref(err))
        if code < 0:
            raise self._failed(err, path)
        return bool(code)

    def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Type, size, mode and times; without ``follow``, of a link itself."""
        stat, err = _lib.Stat(), _lib.Error()
        code = _lib.files_stat(
            self._pointer, self._name(path), not follow, byref(stat), byref(err)
        )
        if code:
            raise self._failed(err, path)
        return FileStat._of(stat)

    def pin(self, path: str) -> Pin:
        """What the path leads to now, to be given to an operation later."""
        pin, err = _lib.Pin(), _lib.Error()
        if _lib.files_pin(self._pointer, self._name(path), byref(pin), byref(err)):
            raise self._failed(err, path)
        return Pin(pin)

    # --- Listing and searching ----------------------------------------------------------

    def list_files(self, path: str = ".", pattern: str = _EVERYTHING) -> list[str]:
        """The files below a directory whose path from there matches, sorted.

        "*" and "?" match within one name, "**" any number of directories.  "." means
        everything readable; a directory that is missing has no files.
        """
        return self._paths(path, pattern, _lib.LIST_FILES)

    def glob(
        self,
        pattern: str,
        path: str = ".",
        *,
        exclude: Sequence[str] = (),
        directories: bool = True,
    ) -> list[str]:
        """As list_files(), with the directories that match; what matches ``exclude`` is
        skipped with all below it."""
        flags = _lib.LIST_FILES | (_lib.LIST_DIRECTORIES if directories else 0)
        return self._paths(path, pattern, flags, exclude)

    def list_dir(
        self, path: str = ".", pattern: str = "*", *, exclude: Sequence[str] = ()
    ) -> list[Entry]:
        """What is in a directory, of every type, with sizes and times."""
        flags = (
            _lib.LIST_FILES
            | _lib.LIST_DIRECTORIES
            | _lib.LIST_LINKS
            | _lib.LIST_OTHER
            | _lib.LIST_STAT
        )
        return [
            Entry(_lib.decode(entry.path), FileStat._of(entry.stat))
            for entry in self._list(path, pattern, flags, exclude)
        ]

    def _paths(
        self, path: str, pattern: str, flags: int, exclude: Sequence[str] = ()
    ) -> list[str]:
        try:
            return [
                _lib.decode(entry.path)
                for entry in self._list(path, pattern, flags, exclude)
            ]
        except SandboxNotADirectoryError:
            return []

    def _list(
        self, path: str, pattern: str, flags: int, exclude: Sequence[str]
    ) -> Iterator[Any]:
        """The entries, each good until the next; one call, for each would ask anew."""
        if path == "/" and self._sandbox._style == _lib.STYLE_PATHS:
            raise PathNotInSandboxError(path, self._sandbox.readable_roots)
        excluded = pattern_texts(exclude)
        options = _lib.ListOptions(
            size=sizeof(_lib.ListOptions),
            flags=flags,
            pattern=pattern_text(pattern),
            exclude=_lib.string_array(excluded),
            exclude_count=len(excluded),
            max_entries=_lib.U64_MAX,
        )
        listing, err = _lib.Listing(), _lib.Error()
        if _lib.files_list(
            self._pointer, self._name(path), byref(options), byref(listing), byref(err)
        ):
            raise self._failed(err, path)
        try:
            for index in range(listing.count):
                yield listing.entries[index]
        finally:
            _lib.listing_done(byref(listing))

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
        excluded = pattern_texts(exclude)
        options = _lib.GrepOptions(
            size=sizeof(_lib.GrepOptions),
            flags=(_lib.GREP_IGNORE_CASE if ignore_case else 0)
            | (_lib.GREP_FIXED if fixed else 0),
            pattern=pattern_text(pattern),
            exclude=_lib.string_array(excluded),
            exclude_count=len(excluded),
            max_matches=min(max(max_matches, 1), 2**32 - 1),
            timeout_ms=milliseconds(timeout),
        )
        matches, err = _lib.Matches(), _lib.Error()
        code = _lib.files_grep(
            self._pointer,
            self._name(path),
            plain_text(regex, "regex"),
            byref(options),
            byref(matches),
            byref(err),
        )
        if code:
            raise self._failed(err, path)
        try:
            return GrepResult(
                matches=[
                    GrepMatch(
                        path=_lib.decode(item.path),
                        line=item.line,
                        column=item.column,
                        text=_lib.decode(item.text),
                    )
                    for item in matches.items[: matches.count]
                ],
                files_searched=matches.files_searched,
                files_skipped=matches.files_skipped,
                truncated=matches.truncated,
            )
        finally:
            _lib.matches_done(byref(matches))

    # --- Tar streams -------------------------------------------------------------------

    def export_tar(self, path: str, target: int | IO[bytes]) -> TarResult:
        """Writes a directory as a tar stream to a descriptor or binary file."""
        with writable_fd(target) as fd:
            return self._tar(_lib.files_export, path, fd)

    def import_tar(self, path: str, source: int | bytes | IO[bytes]) -> TarResult:
        """Unpacks a tar stream (plain or gzip) below a directory, which is created if
        need be; each entry is written under the sandbox's rules."""
        with readable_fd(source) as fd:
            return self._tar(_lib.files_import, path, fd)

    def _tar(self, function: Any, path: str, fd: int) -> TarResult:
        result, err = _lib.TarResult(), _lib.Error()
        code = function(
            self._pointer, self._name(path), fd, None, byref(result), byref(err)
        )
        if code:
            raise self._failed(err, path)
        return TarResult(
            entries=result.entries, bytes=result.bytes, skipped=result.skipped
        )

    # --- Inside ------------------------------------------------------------------------

    def _size(self, path: str) -> int:
        """The bytes of a file; 0 if that cannot be told."""
        stat, name = _lib.Stat(), _lib.encode(path)
        if name is None or _lib.files_stat(
            self._pointer, name, False, byref(stat), None
        ):
            return 0
        return int(stat.bytes)

    def _name(self, path: str) -> bytes:
        return self._sandbox._name(path)

    def _failed(
        self, err: Any, *paths: str, old_texts: Sequence[str] = ()
    ) -> SandboxError:
        """The exception for a failed call; raises what the approver raised, if it did."""
        bridge = self._handle.bridge
        raised = None if bridge is None else bridge.take_raised()
        if raised is not None:
            raise raised
        return self._sandbox._error(err, *paths, old_texts=old_texts)
