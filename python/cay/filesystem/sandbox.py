# SPDX-License-Identifier: Apache-2.0
"""The policy: which paths exist, and what may be done with them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from ctypes import byref, c_void_p, cast, c_char_p, sizeof
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

from cay import _c, errors
from cay.filesystem.approver import Approver, Bridge
from cay.filesystem.config import Mount, PathConfig, SandboxConfig
from cay.filesystem.errors import (
    EditError,
    EscalatedReadError,
    EscalatedWriteError,
    FileTooLargeError,
    PathNotInSandboxError,
    PathNotWritableError,
    SandboxError,
    SuffixNotAllowedError,
    error_for_model,
    invalid,
)

__all__ = ["Sandbox"]

_ACCESS = {"read": _c.ACCESS_READ, "write": _c.ACCESS_WRITE}
_READONLY = {
    None: _c.READONLY_UNSET,
    True: _c.READONLY_TRUE,
    False: _c.READONLY_FALSE,
}
_SUFFIX = re.compile(r"suffix '(.*)' not allowed", re.DOTALL)
_SIZE = re.compile(r"([\d,]+) bytes is over the limit of ([\d,]+) bytes")
_SUBJECT_MAX = 255
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
# A path in its normal form contains none of these.
_NOT_NORMAL = re.compile(r"//|/\.|[\\:\s]")

_Model = Mount | PathConfig


class Handle(_c.Owner):
    """Owns a cay_files, and the callback it calls."""

    __slots__ = ("pointer", "bridge")

    def __init__(self, pointer: int | None, bridge: Bridge | None) -> None:
        self.pointer = pointer
        self.bridge = bridge

    def __del__(self, free: Any = _c.files_free) -> None:
        free(self.pointer)  # a default argument: at exit, modules may be gone already


class Sandbox:
    """The policy of a toolset: which paths may be read and written.

    It may be used from several threads at once.  The constructor creates and opens the
    directories; renaming one later does not change which directory is used.
    """

    config: SandboxConfig
    _style: int
    _models: list[_Model]
    _hosts: list[Path]
    _base: Path
    _handle: Handle

    def __init__(
        self,
        config: SandboxConfig,
        base_path: Path | None = None,
        *,
        approver: Approver | None = None,
    ) -> None:
        """Relative host directories start at ``base_path`` (the current directory).

        ``approver`` is called before each operation for which the configuration requires
        approval; without one the caller handles approvals (for instance with
        pydantic-ai-blocking-approval).
        """
        if not isinstance(config, SandboxConfig):
            raise TypeError(f"config: expected a SandboxConfig, not {config!r}")
        self.config = config
        self._base = Path.cwd() if base_path is None else Path(base_path).absolute()
        self._style, self._models = _models_of(config)
        self._handle = self._open(approver)
        self._hosts = [self._host_of(i) for i in range(len(self._models))]
        if config.root is not None:
            self._models[0] = self._models[0].model_copy(
                update={"root": os.fspath(self._hosts[0])}
            )

    def __repr__(self) -> str:
        return f"Sandbox(read={self.readable_roots}, write={self.writable_roots})"

    # --- Queries -----------------------------------------------------------------------

    def resolve(self, path: str) -> Path:
        """The host path of a readable path; else PathNotInSandboxError."""
        return self._locate(path, _c.ACCESS_READ)[1]

    def can_read(self, path: str) -> bool:
        """Whether the path may be read; it need not exist."""
        return self._query(_c.files_can, path, _c.ACCESS_READ)

    def can_write(self, path: str) -> bool:
        """Whether the path may be written; it need not exist."""
        return self._query(_c.files_can, path, _c.ACCESS_WRITE)

    def needs_read_approval(self, path: str) -> bool:
        """Whether reading here needs approval; False where reading is not allowed."""
        return self._query(_c.files_needs_approval, path, _c.ACCESS_READ)

    def needs_write_approval(self, path: str) -> bool:
        """Whether writing here needs approval; False where writing is not allowed."""
        return self._query(_c.files_needs_approval, path, _c.ACCESS_WRITE)

    def explain(self, path: str) -> str:
        """Which rule applies to the path and what it allows, in one sentence."""
        sentence = c_void_p()
        name = self._name(path)
        arguments = (self._handle.pointer, name, byref(sentence))
        self._call(_c.files_explain, *arguments, paths=[path])
        try:
            return _c.decode(cast(sentence, c_char_p).value or b"")
        finally:
            _c.free(sentence)

    @property
    def readable_roots(self) -> list[str]:
        """The topmost paths that may be read."""
        return self._roots(_c.ACCESS_READ)

    @property
    def writable_roots(self) -> list[str]:
        """The topmost paths that may be written."""
        return self._roots(_c.ACCESS_WRITE)

    def get_path_config(
        self, path: str, *, op: Literal["read", "write"] | None = None
    ) -> tuple[str, Path, _Model]:
        """The name of the directory of a path, its host path, and its configuration.

        ``op`` is the access to check; without it, either is enough.
        """
        if op is not None:
            if op not in _ACCESS:
                raise invalid(f"Invalid op {op!r}", "Pass 'read' or 'write'")
            name, host, model, _ = self._locate(path, _ACCESS[op])
            return name, host, model
        try:
            return self.get_path_config(path, op="read")
        except PathNotInSandboxError:
            if self._style == _c.STYLE_MOUNTS or not self.can_write(path):
                raise
        return self.get_path_config(path, op="write")

    def get_mount_root(self, mount_point: str) -> Path:
        """The host directory at a mount point, or of a name."""
        for index, model in enumerate(self._models):
            if self._label(index, model) == mount_point:
                return self._hosts[index]
        raise PathNotInSandboxError(mount_point, self.readable_roots)

    def check_suffix(
        self, path: Path, config: _Model, *, virtual_path: str | None = None
    ) -> None:
        """SuffixNotAllowedError unless ``config`` allows files with this suffix."""
        if config.suffixes is None:
            return
        stem, dot, last = path.name.rpartition(".")
        suffix = _lower(dot + last) if stem and last else ""
        if suffix not in map(_lower, config.suffixes):
            shown = virtual_path or self._virtual(path)
            raise SuffixNotAllowedError(shown, suffix, config.suffixes)

    def check_size(
        self, path: Path, config: _Model, *, virtual_path: str | None = None
    ) -> None:
        """FileTooLargeError if the file is larger than ``config`` allows; a file that is
        missing or cannot be examined passes."""
        if config.max_file_bytes is None:
            return
        try:
            size = path.stat().st_size
        except OSError:
            return
        if size > config.max_file_bytes:
            shown = virtual_path or self._virtual(path)
            raise FileTooLargeError(shown, size, config.max_file_bytes)

    # --- Derivation --------------------------------------------------------------------

    def derive(
        self,
        *,
        allow_read: str | list[str] | None = None,
        allow_write: str | list[str] | None = None,
        readonly: bool | None = None,
        inherit: bool = False,
    ) -> Sandbox:
        """A sandbox with fewer rights.

        ``allow_write`` alone allows reading the same; ``allow_read`` alone allows no
        writing; neither allows nothing, unless ``inherit`` passes on all rights.
        SandboxPermissionEscalationError if the result would have a right that this one
        lacks.
        """
        if readonly not in (None, True, False) or inherit not in (True, False):
            raise invalid(
                f"Invalid readonly {readonly!r} or inherit {inherit!r}",
                "Pass True or False; readonly may also be None",
            )
        read, write = _entries(allow_read), _entries(allow_write)
        options = _c.Derive(
            size=sizeof(_c.Derive),
            allow_read=self._names(read),
            allow_read_count=len(read or ()),
            allow_write=self._names(write),
            allow_write_count=len(write or ()),
            readonly=_READONLY[readonly],
            inherit=inherit,
        )
        pointer = c_void_p()
        self._call(
            _c.files_derive,
            self._handle.pointer,
            byref(options),
            byref(pointer),
            paths=[*(read or []), *(write or [])],
        )
        child = type(self).__new__(type(self))
        child.__dict__.update(self.__dict__)
        child._handle = Handle(pointer.value, self._handle.bridge)
        return child

    def _names(self, entries: list[str] | None) -> Any:
        return _c.string_array(
            None if entries is None else [self._name(entry) for entry in entries]
        )

    # --- Internals ---------------------------------------------------------------------

    def _open(self, approver: Approver | None) -> Handle:
        policy = new_policy(self.config, self._base, self._models)
        try:
            return self._new_handle(_c.files_open, policy, approver)
        finally:
            _c.policy_free(policy)

    def _handle_with(self, approver: Approver) -> Handle:
        """A handle with the same policy that calls `approver`."""
        return self._new_handle(_c.files_clone, self._handle.pointer, approver)

    def _new_handle(
        self, function: Any, source: int | None, approver: Approver | None
    ) -> Handle:
        bridge = None if approver is None else Bridge(approver)
        options = _c.FilesOptions(
            size=sizeof(_c.FilesOptions), flags=_c.FILES_CREATE_ALL
        )
        if bridge is None:
            options.flags |= _c.FILES_APPROVED_OUTSIDE
        else:
            options.approver = bridge.callback
        pointer = c_void_p()
        self._call(function, source, byref(options), byref(pointer))
        return Handle(pointer.value, bridge)

    def _label(self, index: int, model: _Model) -> str:
        """The name of a directory: mount point, name, or "/"."""
        return _label(self.config, index, model)

    def _host_of(self, index: int) -> Path:
        return self._locate(self._label(index, self._models[index]), 0)[1]

    def _virtual(self, host: Path) -> str:
        """The virtual path of a host path; outside all directories, its last name."""
        for index, root in enumerate(self._hosts):
            if host == root or root in host.parents:
                label = self._label(index, self._models[index])
                return (
                    os.path.join(label, host.relative_to(root)) if host != root else label
                )
        return host.name

    def _name(self, path: str) -> bytes:
        name = _encode(path)
        if name is None:
            raise PathNotInSandboxError(path, self.readable_roots)
        return name

    def _query(self, function: Any, path: str, access: int) -> bool:
        name = _encode(path)
        return name is not None and bool(function(self._handle.pointer, name, access))

    def _locate(self, path: str, access: int) -> tuple[str, Path, _Model, str]:
        """The directory's name, the host path, its configuration, and the full path."""
        location, name = _c.Location(), self._name(path)
        self._call(
            _c.files_locate,
            self._handle.pointer,
            name,
            access,
            byref(location),
            paths=[path],
        )
        try:
            return (
                _c.decode(location.name),
                Path(os.fsdecode(location.host)),
                self._models[location.mount],
                _c.decode(location.path),
            )
        finally:
            _c.location_done(byref(location))

    def _roots(self, access: int) -> list[str]:
        strings = _c.Strings()
        self._call(_c.files_roots, self._handle.pointer, access, byref(strings))
        try:
            return [_c.decode(strings.items[i]) for i in range(strings.count)]
        finally:
            _c.strings_done(byref(strings))

    def _shown(self, path: str) -> str:
        """The path for results: with mounts as the caller spelled it, else normalised."""
        if self._style == _c.STYLE_MOUNTS:
            return path
        _need_path(path)
        top, _, rest = path.partition("/")
        is_normal = rest and not rest.endswith("/") and not _NOT_NORMAL.search(path)
        if is_normal and (top in self.config.paths if self.config.paths else not top):
            return path
        try:
            return self._locate(path, 0)[3]
        except SandboxError:
            return path

    def _call(self, function: Any, *arguments: Any, paths: Sequence[str] = ()) -> None:
        err = _c.Error()
        if function(*arguments, byref(err)) < 0:
            raise self._error(err, *paths)

    def _error(
        self, err: Any, *paths: str, old_texts: Sequence[str] = ()
    ) -> SandboxError:
        """The exception for a failure on one of `paths`, as the caller spelled it."""
        code, op = err.code, err.op.decode()
        path = _caller_path(err.subject, paths)
        message, hint = _c.decode(err.message), _c.decode(err.hint)
        if code == errors.SandboxPermissionEscalationError.code and path in paths:
            error = self._escalation(path, err.sys_errno)
        else:
            error = self._special(code, path, message, old_texts)
        if error is None:
            return error_for_model(err, path)
        error.op, error.errno = op, err.sys_errno
        if isinstance(error, EditError):
            error.message = f"{error.message}\n{hint[:1].upper()}{hint[1:]}"
        return error

    def _escalation(self, entry: str, sys_errno: int) -> SandboxError | None:
        if sys_errno == errno.EACCES:
            return EscalatedReadError(entry, self.readable_roots)
        return EscalatedWriteError(entry, self.writable_roots)

    def _special(
        self, code: int, path: str, message: str, old_texts: Sequence[str]
    ) -> SandboxError | None:
        """The exception, for codes whose exception has attributes of its own."""
        if code == errors.OutsideError.code:
            why = message.removeprefix("outside sandbox: ")
            return PathNotInSandboxError(path, self.readable_roots, why)
        if code == errors.ReadOnlyError.code:
            return PathNotWritableError(path, self.writable_roots)
        if code == errors.SuffixError.code and (found := _SUFFIX.fullmatch(message)):
            return SuffixNotAllowedError(path, found[1], self._suffixes(path))
        if code == errors.TooLargeError.code and (found := _SIZE.fullmatch(message)):
            size, limit = (int(number.replace(",", "")) for number in found.groups())
            return FileTooLargeError(path, size, limit)
        if code == errors.NoMatchError.code:
            return EditError(path, message, _failed_text(message, old_texts))
        return None

    def _suffixes(self, path: str) -> list[str]:
        try:
            return self._locate(path, 0)[2].suffixes or []
        except SandboxError:
            return []


def new_policy(
    config: SandboxConfig, base: Path, models: list[_Model] | None = None
) -> int | None:
    """A cay_policy, to be freed with policy_free(); `models` replace those of `config`."""
    style, own = _models_of(config)
    models = own if models is None else models
    mounts = (_c.Mount * max(len(models), 1))()
    for index, model in enumerate(models):
        label = None if style == _c.STYLE_ROOT else _label(config, index, model)
        _fill(mounts[index], label, model)
    c_config = _c.PolicyConfig(
        size=sizeof(_c.PolicyConfig),
        style=style,
        mounts=mounts,
        mount_count=len(models),
        base=os.fsencode(base),
    )
    policy, err = c_void_p(), _c.Error()
    if _c.policy_new(byref(c_config), byref(policy), byref(err)):
        raise error_for_model(err)
    return policy.value


def _fill(mount: Any, label: str | None, model: _Model) -> None:
    host = model.host_path if isinstance(model, Mount) else Path(model.root)
    mount.size = sizeof(_c.Mount)
    if label is not None:
        mount.name = _c_text(label, "name")
    mount.host = _c_text(os.fspath(host), "host directory")
    mount.writable = model.mode == "rw"
    mount.write_approval = model.write_approval
    mount.read_approval = model.read_approval
    if model.suffixes is not None:
        mount.limit_suffixes = True
        mount.suffixes = _c.string_array(
            [_c_text(_lower(suffix), "suffix") for suffix in model.suffixes]
        )
        mount.suffix_count = len(model.suffixes)
    limit = model.max_file_bytes
    mount.max_file_bytes = _c.NO_LIMIT if limit is None else min(limit, 2**63 - 1)


def _label(config: SandboxConfig, index: int, model: _Model) -> str:
    if isinstance(model, Mount):
        return model.mount_point
    return "/" if config.paths is None else list(config.paths)[index]


def _models_of(config: SandboxConfig) -> tuple[int, list[_Model]]:
    if config.mounts is not None:
        return _c.STYLE_MOUNTS, list(config.mounts)
    if config.paths is not None:
        return _c.STYLE_PATHS, list(config.paths.values())
    root = config.root
    assert root is not None  # SandboxConfig checks it
    return _c.STYLE_ROOT, [
        PathConfig(
            root=os.fspath(root.root),
            mode="ro" if root.readonly else "rw",
            suffixes=root.suffixes,
            max_file_bytes=root.max_file_bytes,
        )
    ]


def _entries(value: str | list[str] | None) -> list[str] | None:
    if value is None:
        return None
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise invalid(
            f"Invalid allow list {value!r}", "Pass a path, or a list of paths"
        )
    return [value] if isinstance(value, str) else list(value)


def _lower(suffix: str) -> str:
    """Lower case as libcay has it: only A to Z change."""
    return suffix.translate(_LOWER)


def _encode(path: str) -> bytes | None:
    _need_path(path)
    return _c.encode(path)


def _need_path(path: object) -> None:
    if not isinstance(path, str):
        raise invalid(f"A path must be a str, not {type(path).__name__}", "Pass a str")


def _c_text(value: str, what: str) -> bytes:
    try:
        text = os.fsencode(value)
    except UnicodeEncodeError:
        text = b"\0"
    if b"\0" in text:
        raise invalid(
            f"Invalid {what} {value!r}: it contains a NUL byte or a lone surrogate",
            "Remove it",
        )
    return text


def _caller_path(subject: bytes, paths: Sequence[str]) -> str:
    """The caller's path that an error is about; libcay truncates long ones."""
    for path in paths:
        name = _c.encode(path) or b""
        if name == subject or (len(name) > _SUBJECT_MAX and name.startswith(subject)):
            return path
    return _c.decode(subject)


def _failed_text(message: str, old_texts: Sequence[str]) -> str:
    """The text of the edit that a message such as "edit 2 of 3: ..." names."""
    which = re.match(r"edit (\d+) of \d+: ", message)
    number = int(which[1]) if which else 1
    return old_texts[number - 1] if number <= len(old_texts) else ""
