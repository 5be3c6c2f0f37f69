# SPDX-License-Identifier: Apache-2.0
"""The files of a sandbox, read and written from the host without starting a process.

The operations are those of cay.filesystem.Files on the sandbox's whole file system, with
the rights of one of its users.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_void_p
from errno import ECONNRESET, ETIME
from typing import IO, Any, Concatenate, ParamSpec, TypeVar, cast

from cay import _c
from cay.errors import SandboxError, SandboxUnavailableError
from cay.filesystem.files import DEFAULT_MAX_READ_CHARS, EditPair, Files
from cay.filesystem.results import (
    Entry,
    FileStat,
    GrepResult,
    LinesResult,
    ReadResult,
    TarResult,
)
from cay.filesystem.sandbox import Handle
from cay.sandbox.handles import Handles
from cay.sandbox.options import text

P = ParamSpec("P")
R = TypeVar("R")

_IDLE_MAX = 2


class _Root:
    """The members of cay.filesystem.Sandbox that Files uses, without a policy."""

    readable_roots = ["/"]
    _style = _c.STYLE_MOUNTS

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def _name(self, path: str) -> bytes:
        return text(path, "path")

    def _shown(self, path: str) -> str:
        return path

    def _error(
        self, err: Any, *paths: str, old_texts: Sequence[str] = ()
    ) -> SandboxError:
        subject = err.subject
        for path in paths:
            name = _c.encode(path) or b""
            if name == subject or (len(subject) == 255 and name.startswith(subject)):
                return _c.error_of(err, path)
        return _c.error_of(err)


def _read_bytes(files: Files, path: str, max_bytes: int | None, offset: int) -> bytes:
    pieces: list[bytes] = []
    got = 0
    while True:  # at least once: the call checks the arguments
        left = _c.READ_MAX if max_bytes is None else max_bytes - got
        most = min(left, _c.READ_MAX)
        pieces.append(files.read_bytes(path, most, offset + got))
        got += len(pieces[-1])
        if len(pieces[-1]) < most or got == max_bytes:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class SandboxFiles(_c.Owner):
    """File operations in the sandbox, for several threads at once.

    Relative paths start at the working directory, and links are resolved in the sandbox.
    A failure raises a SandboxError that is also the matching OSError of Python.
    """

    _instead = "pickle the sandbox's id and use Sandbox.open(id).files"

    def __init__(self, handles: Handles, user: str | int | None = None) -> None:
        self._handles = handles
        self._user = None if user is None else text(str(user), "user")
        self._idle: list[Files] = []
        self._lock = threading.Lock()
        self._connected = self._connection()

    def as_user(self, user: str | int) -> SandboxFiles:
        """The same files, with the rights of another user of the sandbox."""
        return SandboxFiles(self._handles, user)

    def close(self) -> None:
        """Closes idle connections; the next operation opens another one."""
        with self._lock:
            self._idle = []

    def _connection(self) -> tuple[int, int]:
        """Identifies valid connections: fork() and a restart of the sandbox end them."""
        return os.getpid(), self._handles.generation

    def _call(
        self,
        operation: Callable[Concatenate[Files, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Runs an operation on a connection that no other thread uses meanwhile.

        An idle connection may be broken because another process has restarted the
        sandbox: then the operation is repeated on a new one.
        """
        files = self._idle_one()
        if files is not None:
            try:
                return self._on(files, operation, *args, **kwargs)
            except SandboxUnavailableError as error:
                if error.errno != ECONNRESET:
                    raise
            self.close()  # the other idle ones are as old
        return self._on(self._open(), operation, *args, **kwargs)

    def _on(
        self,
        files: Files,
        operation: Callable[Concatenate[Files, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        is_good = True
        try:
            return operation(files, *args, **kwargs)
        except SandboxError as error:
            is_good = error.errno not in (ECONNRESET, ETIME)
            raise
        finally:
            if is_good:
                with self._lock:
                    if len(self._idle) < _IDLE_MAX:
                        self._idle.append(files)

    def _call_many(
        self, operation: Callable[[Files, Any], list[Any]], argument: Any
    ) -> list[Any]:
        """The same for an operation that returns an error per item."""
        results = self._call(operation, argument)
        if any(isinstance(one, SandboxUnavailableError) for one in results):
            self.close()
            results = self._call(operation, argument)
        return results

    def _connect(self) -> None:
        """Before an operation on a stream, which cannot be repeated."""
        self._call(Files.exists, "/")

    def _idle_one(self) -> Files | None:
        with self._lock:
            if self._connected != self._connection():
                self._idle, self._connected = [], self._connection()
            return self._idle.pop() if self._idle else None

    def _open(self) -> Files:
        pointer = c_void_p()
        with self._handles.borrow() as sandbox:
            _c.call(_c.sandbox_files, sandbox, self._user, byref(pointer))
        return Files(cast(Any, _Root(Handle(pointer.value, None))))

    # --- Reading -----------------------------------------------------------------------

    def read_bytes(
        self, path: str, max_bytes: int | None = None, offset: int = 0
    ) -> bytes:
        """The bytes of a file, of any size unless ``max_bytes`` is given."""
        return self._call(_read_bytes, path, max_bytes, offset)

    def read_text(self, path: str) -> str:
        """A UTF-8 file with unchanged line ends; UnicodeDecodeError for other bytes."""
        return self.read_bytes(path).decode()

    def read(
        self, path: str, max_chars: int = DEFAULT_MAX_READ_CHARS, offset: int = 0
    ) -> ReadResult:
        """A page of a text file, counted in characters."""
        return self._call(Files.read, path, max_chars, offset)

    def read_lines(
        self, path: str, max_lines: int = 2_000, offset: int = 0
    ) -> LinesResult:
        """Whole lines of a text file; ``offset`` is the first one's number, from 0.  A
        lone carriage return is part of its line."""
        return self._call(Files.read_lines, path, max_lines, offset)

    def read_many(self, paths: Sequence[str]) -> list[bytes | SandboxError]:
        """The bytes of many files in one call; for each that failed, the error."""
        return cast(list[bytes | SandboxError], self._call_many(Files.read_many, paths))

    # --- Writing -----------------------------------------------------------------------

    def write(
        self,
        path: str,
        content: str | bytes,
        *,
        in_place: bool = False,
        new: bool = False,
        durable: bool = False,
    ) -> None:
        """Writes a file atomically, and creates missing directories.

        ``in_place`` overwrites the file instead, which keeps its owner, mode and links;
        ``new`` fails if the file exists; ``durable`` waits until it is on the disk.
        """
        write: Any = Files.write if isinstance(content, str) else Files.write_bytes
        self._call(write, path, content, in_place=in_place, new=new, durable=durable)

    def append(self, path: str, content: str) -> None:
        """Adds text at the end of a file, which is created if it does not exist."""
        self._call(Files.append, path, content)

    def write_many(
        self, files: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]
    ) -> list[SandboxError | None]:
        """Writes many files in one call; for each, None or the error."""
        pairs = list(files.items() if isinstance(files, Mapping) else files)
        return cast(list[SandboxError | None], self._call_many(Files.write_many, pairs))

    def edit(
        self, path: str, old_text: str, new_text: str, *, replace_all: bool = False
    ) -> int:
        """Replaces text that must occur exactly once, unless ``replace_all``; returns the
        number of replacements."""
        flags = _c.EDIT_ALL if replace_all else 0
        return self._call(Files._edit, path, [(old_text, new_text, flags)], None)

    def multi_edit(self, path: str, edits: Sequence[EditPair]) -> None:
        """Applies edits one after the other: all of them, or none."""
        self._call(Files.multi_edit, path, edits)

    # --- Names -------------------------------------------------------------------------

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Deletes a file or a link; with ``recursive`` also a directory tree."""
        self._call(Files.delete, path, recursive=recursive)

    def move(self, source: str, destination: str) -> None:
        """Moves or renames a file or directory to a path that does not exist."""
        self._call(Files.move, source, destination, directory=True)

    def copy(self, source: str, destination: str) -> None:
        """Copies a file to a path that does not exist."""
        self._call(Files.copy, source, destination)

    def mkdir(self, path: str, *, exist_ok: bool = False) -> None:
        """Creates a directory and its parents."""
        self._call(Files.create_directory, path, exist_ok=exist_ok)

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        return self._call(Files.exists, path)

    def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Type, size, mode and times; without ``follow``, of a link itself."""
        return self._call(Files.stat, path, follow=follow)

    # --- Listing and searching ----------------------------------------------------------

    def glob(
        self,
        pattern: str,
        path: str = ".",
        *,
        exclude: Sequence[str] = (),
        directories: bool = True,
    ) -> list[str]:
        """The paths below a directory that match; "**" is any number of directories."""
        return self._call(
            Files.glob, pattern, path, exclude=exclude, directories=directories
        )

    def grep(
        self,
        regex: str,
        path: str = ".",
        pattern: str = "**/*",
        *,
        ignore_case: bool = False,
        fixed: bool = False,
        exclude: Sequence[str] = (),
        max_matches: int = 1_000,
        timeout: float = 10.0,
    ) -> GrepResult:
        """Lines that match in the text files below a directory, or in one file."""
        return self._call(
            Files.grep,
            regex,
            path,
            pattern,
            ignore_case=ignore_case,
            fixed=fixed,
            exclude=exclude,
            max_matches=max_matches,
            timeout=timeout,
        )

    # --- Directories -------------------------------------------------------------------

    def export_tar(self, path: str, target: int | IO[bytes]) -> TarResult:
        """Writes a directory as a tar stream to a descriptor or binary file."""
        self._connect()
        return self._call(Files.export_tar, path, target)

    def import_tar(self, path: str, source: int | bytes | IO[bytes]) -> TarResult:
        """Unpacks a tar stream (plain or gzip) below a directory."""
        self._connect()
        return self._call(Files.import_tar, path, source)

    # Last in the class: it hides the type of the same name.
    def list(
        self, path: str = ".", pattern: str = "*", *, exclude: Sequence[str] = ()
    ) -> list[Entry]:
        """The entries of a directory, of every type, with sizes and times."""
        return self._call(Files.list_dir, path, pattern, exclude=exclude)
