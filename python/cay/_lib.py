# SPDX-License-Identifier: Apache-2.0
"""libcay through ctypes: include/cay/*.h in Python, and nothing more.

Struct members have the names and the order they have in C (tests/python/test_abi.py
compares them with the headers).  Text crosses without a copy in between: utf8() lends C
the bytes a str holds, text() makes a str straight from C memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    byref,
    c_bool,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
    string_at,
)
from pathlib import Path
from typing import Any

U64_MAX = 2**64 - 1


def _load() -> ctypes.CDLL:
    packaged = Path(__file__).with_name("libcay.so")
    path = str(packaged) if packaged.exists() else os.environ.get("CAY_LIBRARY", "")
    if not path:
        raise ImportError(
            "libcay.so is not in the cay package; install it with `pip install ./python` "
            "from a checkout, or set CAY_LIBRARY to a built libcay.so"
        )
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"libcay.so cannot be loaded ({error}); what it needs: apt install "
            "libarchive13 libfyaml0 libjansson4 libnettle8 libpcre2-8-0 libseccomp2"
        ) from error


_dll = _load()


# --- Constants --------------------------------------------------------------------------

STYLE_ROOT, STYLE_PATHS, STYLE_MOUNTS = 1, 2, 3
ACCESS_READ, ACCESS_WRITE, ACCESS_NAME = 1, 2, 4
NO_LIMIT = -1

FILES_CREATE_ALL, FILES_APPROVED_OUTSIDE = 1, 2
READONLY_UNSET, READONLY_TRUE, READONLY_FALSE = 0, 1, 2
VERDICT_DENY, VERDICT_APPROVE, VERDICT_REMEMBER = 0, 1, 2
NOTE_MAX = 256
OPS = {
    1: "read",
    2: "write",
    3: "edit",
    4: "delete",
    5: "move",
    6: "copy",
    7: "list",
    8: "search",
    9: "mkdir",
    10: "append",
    11: "export",
    12: "import",
}

READ_UNIVERSAL_NEWLINES = 1
READ_LARGE = 2
READ_MAX = 100 << 20
WRITE_IN_PLACE, WRITE_APPEND, WRITE_NEW, WRITE_DURABLE = 1, 2, 4, 8
EDIT_ALL, EDIT_EXACT = 1, 2
NAME_RECURSIVE, NAME_NO_PARENTS, NAME_EXIST_OK, NAME_DIRECTORY = 1, 2, 4, 8
TYPES = {1: "file", 2: "directory", 3: "link", 4: "other"}
LIST_FILES, LIST_DIRECTORIES, LIST_LINKS, LIST_OTHER, LIST_STAT = 1, 2, 4, 8, 16
GREP_IGNORE_CASE, GREP_FIXED = 1, 2


# --- Structs ----------------------------------------------------------------------------


class Error(Structure):
    _fields_ = [
        ("code", c_int32),
        ("sys_errno", c_int32),
        ("op", c_char * 32),
        ("subject", c_char * 256),
        ("message", c_char * 512),
        ("hint", c_char * 512),
    ]


class Mount(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("host", c_char_p),
        ("writable", c_bool),
        ("write_approval", c_bool),
        ("read_approval", c_bool),
        ("limit_suffixes", c_bool),
        ("suffixes", POINTER(c_char_p)),
        ("suffix_count", c_size_t),
        ("max_file_bytes", c_int64),
        ("exec", c_int),
        ("origin", c_char_p),
    ]


class PolicyConfig(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("style", c_int),
        ("mounts", POINTER(Mount)),
        ("mount_count", c_size_t),
        ("base", c_char_p),
    ]


class Approval(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("op", c_int),
        ("path", c_char_p),
        ("other", c_char_p),
        ("summary", c_char_p),
        ("before", c_void_p),
        ("before_len", c_size_t),
        ("after", c_void_p),
        ("after_len", c_size_t),
    ]


# cay_approver: cookie, request, note[NOTE_MAX]
Approver = CFUNCTYPE(c_int, c_void_p, POINTER(Approval), c_void_p)


class FilesOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("approver", Approver),
        ("cookie", c_void_p),
    ]


class Derive(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("allow_read", POINTER(c_char_p)),
        ("allow_read_count", c_size_t),
        ("allow_write", POINTER(c_char_p)),
        ("allow_write_count", c_size_t),
        ("readonly", c_int),
        ("inherit", c_bool),
    ]


class Location(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("mount", c_size_t),
        ("name", c_char_p),
        ("host", c_char_p),
        ("path", c_char_p),
        ("access", c_uint),
        ("exists", c_bool),
        ("read_approval", c_bool),
        ("write_approval", c_bool),
    ]


class Strings(Structure):
    _fields_ = [("items", POINTER(c_char_p)), ("count", c_size_t)]


class Pin(Structure):
    _fields_ = [("words", c_uint64 * 8)]


ALLOCATE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)


class ReadOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("offset", c_uint64),
        ("max", c_uint64),
        ("pin", POINTER(Pin)),
        ("allocate", ALLOCATE),
        ("cookie", c_void_p),
    ]


class Page(Structure):
    _fields_ = [
        ("text", c_void_p),
        ("len", c_size_t),
        ("offset", c_uint64),
        ("count", c_uint64),
        ("total", c_uint64),
        ("truncated", c_bool),
        ("highest", c_uint32),
    ]


class ReadItem(Structure):
    _fields_ = [("path", c_char_p), ("page", Page), ("error", Error)]


class WriteOptions(Structure):
    _fields_ = [("size", c_size_t), ("flags", c_uint), ("pin", POINTER(Pin))]


class WriteItem(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("data", c_void_p),
        ("len", c_size_t),
        ("error", Error),
    ]


class Edit(Structure):
    _fields_ = [
        ("old_text", c_void_p),
        ("old_len", c_size_t),
        ("new_text", c_void_p),
        ("new_len", c_size_t),
        ("flags", c_uint),
    ]


class EditResult(Structure):
    _fields_ = [("replaced", c_uint64), ("bytes", c_uint64)]


class NameOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("pin", POINTER(Pin)),
        ("other_pin", POINTER(Pin)),
        ("mode", c_uint32),
    ]


class Stat(Structure):
    _fields_ = [
        ("type", c_int),
        ("mode", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("bytes", c_uint64),
        ("links", c_uint64),
        ("mtime_ns", c_int64),
    ]


class ListOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("pattern", c_char_p),
        ("exclude", POINTER(c_char_p)),
        ("exclude_count", c_size_t),
        ("after", c_char_p),
        ("max_entries", c_uint64),
        ("max_depth", c_uint32),
        ("timeout_ms", c_uint32),
    ]


class Entry(Structure):
    _fields_ = [("path", c_char_p), ("stat", Stat)]


class Listing(Structure):
    _fields_ = [
        ("entries", POINTER(Entry)),
        ("count", c_size_t),
        ("truncated", c_bool),
        ("skipped", c_uint64),
    ]


class GrepOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("pattern", c_char_p),
        ("exclude", POINTER(c_char_p)),
        ("exclude_count", c_size_t),
        ("max_matches", c_uint32),
        ("max_line_bytes", c_uint32),
        ("max_file_bytes", c_uint64),
        ("timeout_ms", c_uint32),
    ]


class Match(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("line", c_uint64),
        ("column", c_uint64),
        ("text", c_char_p),
    ]


class Matches(Structure):
    _fields_ = [
        ("items", POINTER(Match)),
        ("count", c_size_t),
        ("files_searched", c_uint64),
        ("files_skipped", c_uint64),
        ("truncated", c_bool),
    ]


class TarOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("max_entries", c_uint64),
        ("max_bytes", c_uint64),
        ("max_depth", c_uint32),
        ("flags", c_uint32),
    ]


class TarResult(Structure):
    _fields_ = [
        ("entries", c_uint64),
        ("bytes", c_uint64),
        ("skipped", c_uint64),
        ("files", c_uint64),
    ]


# --- Functions --------------------------------------------------------------------------


def _bind(name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = getattr(_dll, name)
    except AttributeError:
        raise ImportError(
            f"{_dll._name} has no {name}(): it is older than this package"
        ) from None
    function.restype = result
    function.argtypes = arguments
    return function


_HANDLE, _PATH, _ERR = c_void_p, c_char_p, POINTER(Error)

_version = _bind("cay_version", c_char_p)
free = _bind("cay_free", None, c_void_p)

policy_new = _bind("cay_policy_new", c_int, POINTER(PolicyConfig), POINTER(_HANDLE), _ERR)
policy_free = _bind("cay_policy_free", None, _HANDLE)

files_open = _bind(
    "cay_files_open", c_int, _HANDLE, POINTER(FilesOptions), POINTER(_HANDLE), _ERR
)
files_free = _bind("cay_files_free", None, _HANDLE)
files_derive = _bind(
    "cay_files_derive", c_int, _HANDLE, POINTER(Derive), POINTER(_HANDLE), _ERR
)
files_clone = _bind(
    "cay_files_clone", c_int, _HANDLE, POINTER(FilesOptions), POINTER(_HANDLE), _ERR
)
files_locate = _bind(
    "cay_files_locate", c_int, _HANDLE, _PATH, c_uint, POINTER(Location), _ERR
)
location_done = _bind("cay_location_done", None, POINTER(Location))
files_can = _bind("cay_files_can", c_bool, _HANDLE, _PATH, c_uint)
files_needs_approval = _bind("cay_files_needs_approval", c_bool, _HANDLE, _PATH, c_uint)
files_explain = _bind("cay_files_explain", c_int, _HANDLE, _PATH, POINTER(c_void_p), _ERR)
files_roots = _bind("cay_files_roots", c_int, _HANDLE, c_uint, POINTER(Strings), _ERR)
strings_done = _bind("cay_strings_done", None, POINTER(Strings))
files_pin = _bind("cay_files_pin", c_int, _HANDLE, _PATH, POINTER(Pin), _ERR)

_READ = (c_int, _HANDLE, _PATH, POINTER(ReadOptions), POINTER(Page), _ERR)
files_read = _bind("cay_files_read", *_READ)
files_read_lines = _bind("cay_files_read_lines", *_READ)
files_read_bytes = _bind("cay_files_read_bytes", *_READ)
page_done = _bind("cay_page_done", None, POINTER(Page))
page_widen = _bind("cay_page_widen", c_int, POINTER(Page), c_uint, c_void_p, _ERR)
reader_open = _bind("cay_reader_open", c_int, _HANDLE, _PATH, POINTER(_HANDLE), _ERR)
reader_page = _bind(
    "cay_reader_page", c_int, _HANDLE, POINTER(ReadOptions), POINTER(Page), _ERR
)
reader_free = _bind("cay_reader_free", None, _HANDLE)
files_read_many = _bind(
    "cay_files_read_many", c_int, _HANDLE, POINTER(ReadItem), c_size_t, _ERR
)

files_write = _bind(
    "cay_files_write",
    c_int,
    _HANDLE,
    _PATH,
    c_void_p,
    c_size_t,
    POINTER(WriteOptions),
    _ERR,
)
files_write_many = _bind(
    "cay_files_write_many",
    c_int,
    _HANDLE,
    POINTER(WriteItem),
    c_size_t,
    POINTER(WriteOptions),
    _ERR,
)
files_edit = _bind(
    "cay_files_edit",
    c_int,
    _HANDLE,
    _PATH,
    POINTER(Edit),
    c_size_t,
    POINTER(WriteOptions),
    POINTER(EditResult),
    _ERR,
)

files_delete = _bind(
    "cay_files_delete", c_int, _HANDLE, _PATH, POINTER(NameOptions), _ERR
)
_PAIR = (c_int, _HANDLE, _PATH, _PATH, POINTER(NameOptions), _ERR)
files_move = _bind("cay_files_move", *_PAIR)
files_copy = _bind("cay_files_copy", *_PAIR)
files_mkdir = _bind("cay_files_mkdir", c_int, _HANDLE, _PATH, POINTER(NameOptions), _ERR)
files_stat = _bind("cay_files_stat", c_int, _HANDLE, _PATH, c_bool, POINTER(Stat), _ERR)
files_exists = _bind("cay_files_exists", c_int, _HANDLE, _PATH, _ERR)

files_list = _bind(
    "cay_files_list", c_int, _HANDLE, _PATH, POINTER(ListOptions), POINTER(Listing), _ERR
)
listing_done = _bind("cay_listing_done", None, POINTER(Listing))
files_grep = _bind(
    "cay_files_grep",
    c_int,
    _HANDLE,
    _PATH,
    c_char_p,
    POINTER(GrepOptions),
    POINTER(Matches),
    _ERR,
)
matches_done = _bind("cay_matches_done", None, POINTER(Matches))

_TAR = (c_int, _HANDLE, _PATH, c_int, POINTER(TarOptions), POINTER(TarResult), _ERR)
files_export = _bind("cay_files_export", *_TAR)
files_import = _bind("cay_files_import", *_TAR)


# --- Text -------------------------------------------------------------------------------

# Prototypes of our own: ctypes.pythonapi's function objects are shared with everybody.
_decode = PYFUNCTYPE(py_object, c_void_p, c_ssize_t, c_char_p)(
    ("PyUnicode_DecodeUTF8", ctypes.pythonapi)
)
_as_utf8 = PYFUNCTYPE(c_void_p, py_object, POINTER(c_ssize_t))(
    ("PyUnicode_AsUTF8AndSize", ctypes.pythonapi)
)


# A str of that length for characters up to that one, its content not set yet.
_new_str = PYFUNCTYPE(py_object, c_ssize_t, ctypes.c_uint32)(
    ("PyUnicode_New", ctypes.pythonapi)
)

# Shorter text that is not ASCII is decoded by Python as fast.
_WORTH_WIDENING = 4 << 10


def _header(character: str, width: int) -> int | None:
    """How far into a str its characters are, if they are where they must be."""
    sample = character * 3
    header = sys.getsizeof(sample) - (len(sample) + 1) * width
    expected = ord(character).to_bytes(width, sys.byteorder) * 3 + bytes(width)
    if not 0 < header < 256 or string_at(id(sample) + header, len(expected)) != expected:
        return None
    return header


def _headers() -> dict[int, tuple[int, int]]:
    """By the highest character of a str: the bytes that each takes, and where they begin.

    CPython documents that a new str may be filled, but for where its characters are only a
    macro; so what is known about that is tried out.  Empty if it is not so.
    """
    found = {}
    if sys.implementation.name == "cpython" and sys.byteorder == "little":
        for highest, width in ((0xFF, 1), (0xFFFF, 2), (0x10FFFF, 4)):
            header = _header(chr(highest), width)
            if header is not None:
                found[highest] = (width, header)
    return found


_HEADERS = _headers()


def page_text(page: Page) -> str:
    """The text of a page of characters; decoded by C if that is faster."""
    if page.len < _WORTH_WIDENING or page.highest not in _HEADERS:
        return text(page.text, page.len)
    width, header = _HEADERS[page.highest]
    made: str = _new_str(page.count, page.highest)
    if page_widen(byref(page), width, id(made) + header, None):
        return text(page.text, page.len)
    return made


class Placement:
    """Memory for the text of a whole file that is already a str, so that nothing is copied.

    A str made so must not be seen by anybody before it is filled, and not at all unless
    what it was filled with is ASCII.
    """

    def __init__(self) -> None:
        self._str: str | None = None
        self._address: int | None = None
        self.allocate = ALLOCATE(self._allocate)

    def _allocate(self, _cookie: int | None, length: int) -> int | None:
        try:
            self._str = _new_str(length, 127)
            self._address, _ = utf8(self._str)
        except MemoryError:
            return None
        return self._address

    def owns(self, page: Page) -> bool:
        return page.text is not None and page.text == self._address

    def take(self, page: Page) -> str:
        """The page's text: the str itself if it can be, else decoded from it."""
        made, self._str = self._str, None
        if made is not None and page.len == page.count == len(made):
            return made
        return page_text(page)


def version() -> str:
    return str(_version().decode())


def utf8(content: str) -> tuple[int, int]:
    """The address and length of the str's UTF-8, good while the str lives.

    UnicodeEncodeError if it holds half a surrogate pair.
    """
    length = c_ssize_t()
    address = _as_utf8(content, byref(length))
    return address, length.value


def address(data: bytes) -> int | None:
    """Where the bytes are, good while the object lives."""
    return ctypes.cast(c_char_p(data), c_void_p).value


def text(address: int | None, length: int) -> str:
    """A str of UTF-8 that C holds."""
    return _decode(address, length, None) if length else ""


def encode(path: str) -> bytes | None:
    """A path as C takes it, or None if it has no spelling: NUL, half a surrogate pair."""
    try:
        name = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return None if b"\0" in name else name


def decode(name: bytes) -> str:
    """A path from C; bytes that are no UTF-8 survive the way back through encode()."""
    return name.decode("utf-8", "surrogateescape")


def display(text: str) -> str:
    """The text with U+FFFD for what is no Unicode, fit to be sent anywhere."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def string_array(items: list[bytes] | None) -> Any:
    """A `const char *const *`; an empty list is not NULL."""
    if items is None:
        return None
    return (c_char_p * max(len(items), 1))(*items)
