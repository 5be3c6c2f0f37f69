# SPDX-License-Identifier: Apache-2.0
"""libcay.so: loading it, calling it, its errors, and text in and out of it."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from ctypes import POINTER, PYFUNCTYPE, Structure, byref, c_char_p, c_int, c_ssize_t
from ctypes import c_void_p, py_object, string_at
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from cay import errors

U64_MAX = 2**64 - 1


SYSTEM = "libcay.so.0"


def _load() -> ctypes.CDLL:
    """The library in the package, else CAY_LIBRARY, else the one of the system."""
    packaged = Path(__file__).parent.with_name("libcay.so")
    path = str(packaged) if packaged.exists() else os.environ.get("CAY_LIBRARY") or SYSTEM
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        hint = (
            "install a wheel of cay or Debian's libcay0, or set CAY_LIBRARY to a built libcay.so"
            if path == SYSTEM
            else "its dependencies: apt install libarchive13 libfyaml0 libjansson4 libnettle8 "
            "libpcre2-8-0 libseccomp2"
        )
        raise ImportError(f"{path} cannot be loaded ({error}); {hint}") from error


dll = _load()


def bind(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the library, with its types."""
    try:
        function = getattr(dll, name)
    except AttributeError:
        raise ImportError(
            f"{dll._name} has no {name}(): it is older than this package"
        ) from None
    function.restype = result
    function.argtypes = arguments
    return function


_TYPES = {
    "size_t": ctypes.c_size_t,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "char *": c_char_p,
    "char **": POINTER(c_char_p),
    "void *": c_void_p,
}


def members(declarations: str, **types: Any) -> list[tuple[str, Any]]:
    """The ``_fields_`` of a struct from its members in C, without ``const``: "int a, b;
    char *c, d[8];".  ``types`` has other types by their names."""
    known, found = {**_TYPES, **types}, []
    for declaration in declarations.split(";")[:-1]:
        base, names = declaration.split(maxsplit=1)
        for name in names.split(","):
            stars, plain, count = re.fullmatch(  # type: ignore[union-attr]
                r"\s*(\**)(\w+)(?:\[(\d+)\])?", name
            ).groups()
            kind: Any = known.get(f"{base} {stars}" if stars else base)
            if kind is None:
                kind = POINTER(known[base])
            found.append((plain, kind * int(count) if count else kind))
    return found


# --- Errors -----------------------------------------------------------------------------


class Error(Structure):
    _fields_ = members("""
        int32_t code, sys_errno; char op[32], subject[256], message[512], hint[512];
    """)


HANDLE, PATH, TEXT, ERR = c_void_p, c_char_p, c_char_p, POINTER(Error)


def bind_call(name: str, *arguments: Any) -> Any:
    """A function that returns 0 or a negative code and takes a cay_error at the end."""
    return bind(name, c_int, *arguments, ERR)



# The errno of an OSError for which C has none.
_ERRNO: dict[type[errors.CayError], int] = {
    errors.SandboxPermissionError: errno.EACCES,
    errors.SandboxMemoryError: errno.ENOMEM,
    errors.SandboxExistsError: errno.EEXIST,
    errors.SandboxBusyError: errno.EBUSY,
    errors.SandboxTimeoutError: errno.ETIMEDOUT,
    errors.SandboxNoSpaceError: errno.ENOSPC,
    errors.SandboxUnsupportedError: errno.ENOTSUP,
    errors.ReadOnlyError: errno.EROFS,
    errors.SandboxFileNotFoundError: errno.ENOENT,
    errors.SandboxNotAFileError: errno.EINVAL,
    errors.SandboxIsADirectoryError: errno.EISDIR,
    errors.SandboxNotADirectoryError: errno.ENOTDIR,
    errors.ApprovalError: errno.EPERM,
    errors.SandboxIOError: errno.EIO,
}

_FILE_OPS = (
    "backend.load",
    "config.",
    "directory.",
    "exec.cwd",
    "file.",
    "files.",
    "policy.",
    "reader.",
    "sandbox.mount",
)


def _class_of(code: int, sys_errno: int, op: str) -> type[errors.CayError]:
    if code == errors.NotFoundError.code:
        is_workdir = op == "sandbox.create" and sys_errno == errno.ENOENT
        if op.startswith(_FILE_OPS) or is_workdir:
            return errors.SandboxFileNotFoundError
        # Opening the files of a sandbox fails this way only if the user is missing.
        if op in ("exec.user", "sandbox.files"):
            return errors.UserNotFoundError
        if op.startswith("template."):
            return errors.TemplateNotFoundError
        return errors.SandboxNotFoundError
    if code == errors.SandboxNotAFileError.code and sys_errno == errno.EISDIR:
        return errors.SandboxIsADirectoryError
    return errors.BY_CODE.get(code, errors.CayError)


def error_of(
    err: Any, subject: str | None = None, cls: type[errors.CayError] | None = None
) -> errors.CayError:
    """The exception for a cay_error.

    ``subject`` replaces that of the cay_error, and ``cls`` the class of its code.
    """
    op = err.op.decode()
    cls = cls or _class_of(err.code, err.sys_errno, op)
    message = decode(err.message)
    error = cls(
        message,
        code=err.code,
        errno=err.sys_errno or _ERRNO.get(cls, 0),
        op=op,
        subject=decode(err.subject) if subject is None else subject,
        hint=decode(err.hint),
    )
    if isinstance(error, OSError):
        error.strerror = message
        error.filename = error.subject
    return error


def call(function: Any, *arguments: Any) -> int:
    """Calls a function whose last argument is a cay_error, and raises its exception.

    Returns the status, which is 0 or, for a query, 1.
    """
    err = Error()
    status: int = function(*arguments, byref(err))
    if status < 0:
        raise error_of(err)
    return status


# --- Handles ----------------------------------------------------------------------------

_Self = TypeVar("_Self", bound="Owner")


class Owner:
    """Owns a C handle and frees it once: a copy is the object itself, and pickling is
    refused."""

    __slots__ = ()

    _instead = "pickle the configuration and create a new one from it"

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, _memo: Any) -> _Self:
        return self

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} owns open files of this process and cannot be "
            f"pickled; {self._instead}"
        )


# --- Text and memory --------------------------------------------------------------------

# Own prototypes: the function objects of ctypes.pythonapi are shared by the process.
_decode = PYFUNCTYPE(py_object, c_void_p, c_ssize_t, c_char_p)(
    ("PyUnicode_DecodeUTF8", ctypes.pythonapi)
)
_as_utf8 = PYFUNCTYPE(c_void_p, py_object, POINTER(c_ssize_t))(
    ("PyUnicode_AsUTF8AndSize", ctypes.pythonapi)
)

_version = bind("cay_version", c_char_p)
free = bind("cay_free", None, c_void_p)


def version() -> str:
    return str(_version().decode())


def utf8(content: str) -> tuple[int, int]:
    """The address and length of the str's UTF-8, valid while the str lives.

    UnicodeEncodeError if it contains a lone surrogate.
    """
    length = c_ssize_t()
    address = _as_utf8(content, byref(length))
    return address, length.value


def address(data: bytes) -> int | None:
    """The address of the bytes, valid while the object lives."""
    return ctypes.cast(c_char_p(data), c_void_p).value


def text(address: int | None, length: int) -> str:
    """A str of UTF-8 in C memory."""
    return _decode(address, length, None) if length else ""


def data(address: int | None, length: int) -> bytes:
    """A copy of C memory."""
    return string_at(address, length) if address and length else b""


def encode(path: str) -> bytes | None:
    """A path for C, or None if it contains NUL or a lone surrogate."""
    try:
        name = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return None if b"\0" in name else name


def decode(name: bytes) -> str:
    """A path from C; encode() restores bytes that are not UTF-8."""
    return name.decode("utf-8", "surrogateescape")


def display(text: str) -> str:
    """The text with U+FFFD for bytes that are not UTF-8, so that it can be encoded."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def string_array(items: list[bytes] | None) -> Any:
    """A `const char *const *`; an empty list is not NULL."""
    if items is None:
        return None
    return (c_char_p * max(len(items), 1))(*items)


def null_terminated(items: list[bytes]) -> Any:
    """A `const char *const *` with a NULL after the last."""
    return (c_char_p * (len(items) + 1))(*items, None)


_Item = TypeVar("_Item", bound=Structure)


def copied(items: Any, kind: type[_Item], count: int) -> list[_Item]:
    """Copies of the structs in an array that C allocated, which is freed."""
    try:
        size = ctypes.sizeof(kind)
        whole = data(ctypes.cast(items, c_void_p).value, count * size)
        return [kind.from_buffer_copy(whole, at * size) for at in range(count)]
    finally:
        free(items)


def listed(function: Any, kind: type[_Item], *arguments: Any) -> list[_Item]:
    """The structs that a function returns as an array and its length."""
    items, count = POINTER(kind)(), ctypes.c_size_t()
    call(function, *arguments, byref(items), byref(count))
    return copied(items, kind, count.value)
