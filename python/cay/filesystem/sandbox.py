# SPDX-License-Identifier: Apache-2.0
"""The policy: which paths there are and what may be done with them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from ctypes import byref, c_void_p, cast, c_char_p, sizeof
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

from cay import _lib, errors
from cay._owner import Owner
from cay.filesystem.approver import Approver, Bridge
from cay.filesystem.config import Mount, PathConfig, SandboxConfig
from cay.filesystem.errors import (
    EditError,
    FileTooLargeError,
    PathNotInSandboxError,
    PathNotWritableError,
    SandboxError,
    SuffixNotAllowedError,
    _EscalatedRead,
    _EscalatedWrite,
    invalid,
    plain,
)

__all__ = ["Sandbox"]

_ACCESS = {"read": _lib.ACCESS_READ, "write": _lib.ACCESS_WRITE}
_READONLY = {
    None: _lib.READONLY_UNSET,
    True: _lib.READONLY_TRUE,
    False: _lib.READONLY_FALSE,
}
_SUFFIX = re.compile(r"suffix '(.*)' not allowed", re.DOTALL)
_SIZE = re.compile(r"([\d,]+) bytes is over the limit of ([\d,]+) bytes")
_SUBJECT_MAX = 255
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
# What keeps a path from being its own plain spelling.
_UNTIDY = re.compile(r"//|/\.|[\\:\s]")

_Model = Mount | PathConfig


class Handle(Owner):
    """Owns a cay_files, and the callback it calls."""

    __slots__ = ("pointer", "bridge")

    def __init__(self, pointer: int | None, bridge: Bridge | None) -> None:
        self.pointer = pointer
        self.bridge = bridge

    def __del__(self, free: Any = _lib.files_free) -> None:
        free(self.pointer)  # bound early: at exit, modules are gone before objects


class Sandbox:
    """Says which paths may be used and how; FileSystemToolset reads and writes.

    It may be used from several threads at once.  The directories are created and opened
    here, and are the same from then on whatever their names come to mean.
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

        ``approver`` is asked before what the configuration says needs approval; without
        one, asking is up to the caller (pydantic-ai-blocking-approval, for instance).
        """
        if not isinstance(config, SandboxConfig):
            raise TypeError(f"the configuration is a SandboxConfig, not {config!r}")
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

    # --- Questions ---------------------------------------------------------------------

    def resolve(self, path: str) -> Path:
        """The host path of a readable path; else PathNotInSandboxError."""
        return self._locate(path, _lib.ACCESS_READ)[1]

    def can_read(self, path: str) -> bool:
        """Whether the path may be read; it need not exist."""
        return self._ask(_lib.files_can, path, _lib.ACCESS_READ)

    def can_write(self, path: str) -> bool:
        """Whether the path may be written; it need not exist."""
        return self._ask(_lib.files_can, path, _lib.ACCESS_WRITE)

    def needs_read_approval(self, path: str) -> bool:
        """Whether a person approves reads here; False where nothing may be read."""
        return self._ask(_lib.files_needs_approval, path, _lib.ACCESS_READ)

    def needs_write_approval(self, path: str) -> bool:
        """Whether a person approves writes here; False where nothing may be written."""
        return self._ask(_lib.files_needs_approval, path, _lib.ACCESS_WRITE)

    def explain(self, path: str) -> str:
        """Which rule decides about the path and what it grants, in one sentence."""
        sentence, err = c_void_p(), _lib.Error()
        code = _lib.files_explain(
            self._handle.pointer, self._name(path), byref(sentence), byref(err)
        )
        if code:
            raise self._error(err, path)
        try:
            return _lib.decode(cast(sentence, c_char_p).value or b"")
        finally:
            _lib.free(sentence)

    @property
    def readable_roots(self) -> list[str]:
        """The tops of what may be read."""
        return self._roots(_lib.ACCESS_READ)

    @property
    def writable_roots(self) -> list[str]:
        """The tops of what may be written."""
        return self._roots(_lib.ACCESS_WRITE)

    def get_path_config(
        self, path: str, *, op: Literal["read", "write"] | None = None
    ) -> tuple[str, Path, _Model]:
        """The name of the directory a path is in, its host path, and its configuration.

        ``op`` is what is about to be done; without it, whatever is allowed there will do.
        """
        if op is not None:
            if op not in _ACCESS:
                raise invalid(f"op is {op!r}", "Write 'read' or 'write'")
            name, host, model, _ = self._locate(path, _ACCESS[op])
            return name, host, model
        try:
            return self.get_path_config(path, op="read")
        except PathNotInSandboxError:
            if self._style == _lib.STYLE_MOUNTS or not self.can_write(path):
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
        """FileTooLargeError if there is a file, as far as can be told, and it is larger
        than ``config`` allows."""
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
        """A sandbox that may do less.

        ``allow_write`` alone allows reading the same; ``allow_read`` alone allows no
        writing; neither allows nothing, unless ``inherit`` keeps what this one has.
        SandboxPermissionEscalationError if anything would be allowed that is not here.
        """
        if readonly not in (None, True, False) or inherit not in (True, False):
            raise invalid(
                f"readonly is {readonly!r} and inherit is {inherit!r}",
                "Write True or False; readonly may be None, too",
            )
        read, write = _entries(allow_read), _entries(allow_write)
        options = _lib.Derive(
            size=sizeof(_lib.Derive),
            allow_read=self._names(read),
            allow_read_count=len(read or ()),
            allow_write=self._names(write),
            allow_write_count=len(write or ()),
            readonly=_READONLY[readonly],
            inherit=inherit,
        )
        pointer, err = c_void_p(), _lib.Error()
        if _lib.files_derive(
            self._handle.pointer, byref(options), byref(pointer), byref(err)
        ):
            raise self._error(err, *(read or []), *(write or []))
        child = type(self).__new__(type(self))
        child.__dict__.update(self.__dict__)
        child._handle = Handle(pointer.value, self._handle.bridge)
        return child

    def _names(self, entries: list[str] | None) -> Any:
        return _lib.string_array(
            None if entries is None else [self._name(entry) for entry in entries]
        )

    # --- Inside ------------------------------------------------------------------------

    def _open(self, approver: Approver | None) -> Handle:
        policy = new_policy(self.config, self._base, self._models)
        try:
            return self._new_handle(_lib.files_open, policy, approver)
        finally:
            _lib.policy_free(policy)

    def _handle_asking(self, approver: Approver) -> Handle:
        """A handle that sees what this sandbox sees, and asks `approver`."""
        return self._new_handle(_lib.files_clone, self._handle.pointer, approver)

    def _new_handle(
        self, function: Any, source: int | None, approver: Approver | None
    ) -> Handle:
        bridge = None if approver is None else Bridge(approver)
        options = _lib.FilesOptions(
            size=sizeof(_lib.FilesOptions), flags=_lib.FILES_CREATE_ALL
        )
        if bridge is None:
            options.flags |= _lib.FILES_APPROVED_OUTSIDE
        else:
            options.approver = bridge.callback
        pointer, err = c_void_p(), _lib.Error()
        if function(source, byref(options), byref(pointer), byref(err)):
            raise self._error(err)
        return Handle(pointer.value, bridge)

    def _label(self, index: int, model: _Model) -> str:
        """What a directory is called: mount point, name, or "/"."""
        return _label(self.config, index, model)

    def _host_of(self, index: int) -> Path:
        return self._locate(self._label(index, self._models[index]), 0)[1]

    def _virtual(self, host: Path) -> str:
        """A host path in the sandbox's spelling; of one outside only the last name."""
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

    def _ask(self, question: Any, path: str, access: int) -> bool:
        name = _encode(path)
        return name is not None and bool(question(self._handle.pointer, name, access))

    def _locate(self, path: str, access: int) -> tuple[str, Path, _Model, str]:
        """Name, host path and configuration of where a path leads, and its spelling."""
        location, err = _lib.Location(), _lib.Error()
        code = _lib.files_locate(
            self._handle.pointer, self._name(path), access, byref(location), byref(err)
        )
        if code:
            raise self._error(err, path)
        try:
            return (
                _lib.decode(location.name),
                Path(os.fsdecode(location.host)),
                self._models[location.mount],
                _lib.decode(location.path),
            )
        finally:
            _lib.location_done(byref(location))

    def _roots(self, access: int) -> list[str]:
        strings, err = _lib.Strings(), _lib.Error()
        if _lib.files_roots(self._handle.pointer, access, byref(strings), byref(err)):
            raise self._error(err)
        try:
            return [_lib.decode(strings.items[i]) for i in range(strings.count)]
        finally:
            _lib.strings_done(byref(strings))

    def _shown(self, path: str) -> str:
        """The path as results name it: mounts as the caller spelled it, else tidied."""
        if self._style == _lib.STYLE_MOUNTS:
            return path
        _need_path(path)
        top, _, rest = path.partition("/")
        tidy = rest and not rest.endswith("/") and not _UNTIDY.search(path)
        if tidy and (top in self.config.paths if self.config.paths else not top):
            return path
        try:
            return self._locate(path, 0)[3]
        except SandboxError:
            return path

    def _error(
        self, err: Any, *paths: str, old_texts: Sequence[str] = ()
    ) -> SandboxError:
        """The exception for a failure on one of `paths`, as the caller spelled them."""
        code, op = err.code, err.op.decode()
        path = _spelled(err.subject, paths)
        message, hint = _lib.decode(err.message), _lib.decode(err.hint)
        if code == errors.Escalation.code and path in paths:
            error = self._escalation(path, err.sys_errno)
        else:
            error = self._special(code, path, message, old_texts)
        if error is None:
            return plain(code, err.sys_errno, op, path, message, hint)
        error.op, error.errno = op, err.sys_errno
        if isinstance(error, EditError):
            error.message = f"{error.message}\n{hint[:1].upper()}{hint[1:]}"
        return error

    def _escalation(self, entry: str, sys_errno: int) -> SandboxError | None:
        if sys_errno == errno.EACCES:
            return _EscalatedRead(entry, self.readable_roots)
        return _EscalatedWrite(entry, self.writable_roots)

    def _special(
        self, code: int, path: str, message: str, old_texts: Sequence[str]
    ) -> SandboxError | None:
        """The exceptions that carry more than a message."""
        if code == errors.Outside.code:
            why = message.removeprefix("outside sandbox: ")
            return PathNotInSandboxError(path, self.readable_roots, why)
        if code == errors.ReadOnly.code:
            return PathNotWritableError(path, self.writable_roots)
        if code == errors.Suffix.code and (found := _SUFFIX.fullmatch(message)):
            return SuffixNotAllowedError(path, found[1], self._suffixes(path))
        if code == errors.TooLarge.code and (found := _SIZE.fullmatch(message)):
            size, limit = (int(number.replace(",", "")) for number in found.groups())
            return FileTooLargeError(path, size, limit)
        if code == errors.NoMatch.code:
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
    """A cay_policy, for _lib.policy_free(); `models` stand in for those of `config`."""
    style, own = _models_of(config)
    models = own if models is None else models
    mounts = (_lib.Mount * max(len(models), 1))()
    for index, model in enumerate(models):
        label = None if style == _lib.STYLE_ROOT else _label(config, index, model)
        _fill(mounts[index], label, model)
    c_config = _lib.PolicyConfig(
        size=sizeof(_lib.PolicyConfig),
        style=style,
        mounts=mounts,
        mount_count=len(models),
        base=os.fsencode(base),
    )
    policy, err = c_void_p(), _lib.Error()
    if _lib.policy_new(byref(c_config), byref(policy), byref(err)):
        raise plain(
            err.code,
            err.sys_errno,
            err.op.decode(),
            _lib.decode(err.subject),
            _lib.decode(err.message),
            _lib.decode(err.hint),
        )
    return policy.value


def _fill(mount: Any, label: str | None, model: _Model) -> None:
    host = model.host_path if isinstance(model, Mount) else Path(model.root)
    mount.size = sizeof(_lib.Mount)
    if label is not None:
        mount.name = _c_text(label, "name")
    mount.host = _c_text(os.fspath(host), "host directory")
    mount.writable = model.mode == "rw"
    mount.write_approval = model.write_approval
    mount.read_approval = model.read_approval
    if model.suffixes is not None:
        mount.limit_suffixes = True
        mount.suffixes = _lib.string_array(
            [_c_text(_lower(suffix), "suffix") for suffix in model.suffixes]
        )
        mount.suffix_count = len(model.suffixes)
    limit = model.max_file_bytes
    mount.max_file_bytes = _lib.NO_LIMIT if limit is None else min(limit, 2**63 - 1)


def _label(config: SandboxConfig, index: int, model: _Model) -> str:
    if isinstance(model, Mount):
        return model.mount_point
    return "/" if config.paths is None else list(config.paths)[index]


def _models_of(config: SandboxConfig) -> tuple[int, list[_Model]]:
    if config.mounts is not None:
        return _lib.STYLE_MOUNTS, list(config.mounts)
    if config.paths is not None:
        return _lib.STYLE_PATHS, list(config.paths.values())
    root = config.root
    assert root is not None  # SandboxConfig sees to it
    return _lib.STYLE_ROOT, [
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
            f"An allow list holds paths, and {value!r} is none", "Give a str, or a list"
        )
    return [value] if isinstance(value, str) else list(value)


def _lower(suffix: str) -> str:
    """As libcay compares them: only A to Z have another case."""
    return suffix.translate(_LOWER)


def _encode(path: str) -> bytes | None:
    _need_path(path)
    return _lib.encode(path)


def _need_path(path: object) -> None:
    if not isinstance(path, str):
        raise invalid(f"A path is text, not {type(path).__name__}", "Give it as a str")


def _c_text(value: str, what: str) -> bytes:
    try:
        text = os.fsencode(value)
    except UnicodeEncodeError:
        text = b"\0"
    if b"\0" in text:
        raise invalid(
            f"A {what} must not contain a NUL byte or half a surrogate pair: {value!r}",
            "Leave them out",
        )
    return text


def _spelled(subject: bytes, paths: Sequence[str]) -> str:
    """Which of the caller's paths an error is about; long ones are cut in the error."""
    for path in paths:
        name = _lib.encode(path) or b""
        if name == subject or (len(name) > _SUBJECT_MAX and name.startswith(subject)):
            return path
    return _lib.decode(subject)


def _failed_text(message: str, old_texts: Sequence[str]) -> str:
    """The text of the edit that "edit 2 of 3: ..." is about."""
    which = re.match(r"edit (\d+) of \d+: ", message)
    number = int(which[1]) if which else 1
    return old_texts[number - 1] if number <= len(old_texts) else ""
