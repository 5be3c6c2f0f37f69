# SPDX-License-Identifier: Apache-2.0
"""include/cay/policy.h and files.h in Python.

Members of structs have the names and the order of the headers, and so in the other modules
of this package; tests/python/test_abi.py compares them.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, byref, c_bool, c_char_p
from ctypes import c_int, c_size_t, c_ssize_t, c_uint, c_uint64, c_void_p, py_object
from ctypes import string_at

from cay._c.library import HANDLE, PATH, Error, bind, bind_call, members, text, utf8

# --- Constants --------------------------------------------------------------------------

STYLE_ROOT, STYLE_PATHS, STYLE_MOUNTS = 1, 2, 3
ACCESS_READ, ACCESS_WRITE, ACCESS_NAME = 1, 2, 4
NO_LIMIT = -1

FILES_CREATE_ALL, FILES_APPROVED_OUTSIDE = 1, 2
READONLY_UNSET, READONLY_TRUE, READONLY_FALSE = 0, 1, 2
VERDICT_DENY, VERDICT_APPROVE, VERDICT_REMEMBER = 0, 1, 2
NOTE_MAX = 256
_OPS = "read write edit delete move copy list search mkdir append export import"
OPS = dict(enumerate(_OPS.split(), 1))

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


class Mount(Structure):
    _fields_ = members("""
        size_t size; char *name, *host;
        bool writable, write_approval, read_approval, limit_suffixes; char **suffixes;
        size_t suffix_count; int64_t max_file_bytes; int exec; char *origin;
    """)


class PolicyConfig(Structure):
    _fields_ = members("""
        size_t size; int style; Mount *mounts; size_t mount_count; char *base;
    """, Mount=Mount)


class Approval(Structure):
    _fields_ = members("""
        size_t size; int op; char *path, *other, *summary; void *before;
        size_t before_len; void *after; size_t after_len;
    """)


# cay_approver: cookie, request, note[NOTE_MAX]
Approver = CFUNCTYPE(c_int, c_void_p, POINTER(Approval), c_void_p)


class FilesOptions(Structure):
    _fields_ = members("""
        size_t size; unsigned flags; Approver approver; void *cookie;
    """, Approver=Approver)


class Derive(Structure):
    _fields_ = members("""
        size_t size; char **allow_read; size_t allow_read_count; char **allow_write;
        size_t allow_write_count; int readonly; bool inherit;
    """)


class Location(Structure):
    _fields_ = members("""
        size_t size, mount; char *name, *host, *path; unsigned access;
        bool exists, read_approval, write_approval;
    """)


class Strings(Structure):
    _fields_ = [("items", POINTER(c_char_p)), ("count", c_size_t)]


class Pin(Structure):
    _fields_ = [("words", c_uint64 * 8)]


ALLOCATE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)


class ReadOptions(Structure):
    _fields_ = members("""
        size_t size; unsigned flags; uint64_t offset, max; Pin *pin; ALLOCATE allocate;
        void *cookie;
    """, ALLOCATE=ALLOCATE, Pin=Pin)


class Page(Structure):
    _fields_ = members("""
        void *text; size_t len; uint64_t offset, count, total; bool truncated;
        uint32_t highest;
    """)


class ReadItem(Structure):
    _fields_ = [("path", c_char_p), ("page", Page), ("error", Error)]


class WriteOptions(Structure):
    _fields_ = [("size", c_size_t), ("flags", c_uint), ("pin", POINTER(Pin))]


class WriteItem(Structure):
    _fields_ = members("""
        char *path; void *data; size_t len; Error error;
    """, Error=Error)


class Edit(Structure):
    _fields_ = members("""
        void *old_text; size_t old_len; void *new_text; size_t new_len; unsigned flags;
    """)


class EditResult(Structure):
    _fields_ = [("replaced", c_uint64), ("bytes", c_uint64)]


class NameOptions(Structure):
    _fields_ = members("""
        size_t size; unsigned flags; Pin *pin, *other_pin; uint32_t mode;
    """, Pin=Pin)


class Stat(Structure):
    _fields_ = members("""
        int type; uint32_t mode, uid, gid; uint64_t bytes, links; int64_t mtime_ns;
    """)


class ListOptions(Structure):
    _fields_ = members("""
        size_t size; unsigned flags; char *pattern, **exclude; size_t exclude_count;
        char *after; uint64_t max_entries; uint32_t max_depth, timeout_ms;
    """)


class Entry(Structure):
    _fields_ = [("path", c_char_p), ("stat", Stat)]


class Listing(Structure):
    _fields_ = members("""
        Entry *entries; size_t count; bool truncated; uint64_t skipped;
    """, Entry=Entry)


class GrepOptions(Structure):
    _fields_ = members("""
        size_t size; unsigned flags; char *pattern, **exclude; size_t exclude_count;
        uint32_t max_matches, max_line_bytes; uint64_t max_file_bytes;
        uint32_t timeout_ms;
    """)


class Match(Structure):
    _fields_ = members("""
        char *path; uint64_t line, column; char *text;
    """)


class Matches(Structure):
    _fields_ = members("""
        Match *items; size_t count; uint64_t files_searched, files_skipped;
        bool truncated;
    """, Match=Match)


class TarOptions(Structure):
    _fields_ = members("""
        size_t size; uint64_t max_entries, max_bytes; uint32_t max_depth, flags;
    """)


class TarResult(Structure):
    _fields_ = members("""
        uint64_t entries, bytes, skipped, files;
    """)


# --- Functions --------------------------------------------------------------------------


policy_new = bind_call("cay_policy_new", POINTER(PolicyConfig), POINTER(HANDLE))
policy_free = bind("cay_policy_free", None, HANDLE)

files_open = bind_call("cay_files_open", HANDLE, POINTER(FilesOptions), POINTER(HANDLE))
files_free = bind("cay_files_free", None, HANDLE)
files_derive = bind_call("cay_files_derive", HANDLE, POINTER(Derive), POINTER(HANDLE))
files_clone = bind_call("cay_files_clone", HANDLE, POINTER(FilesOptions), POINTER(HANDLE))
files_locate = bind_call("cay_files_locate", HANDLE, PATH, c_uint, POINTER(Location))
location_done = bind("cay_location_done", None, POINTER(Location))
files_can = bind("cay_files_can", c_bool, HANDLE, PATH, c_uint)
files_needs_approval = bind("cay_files_needs_approval", c_bool, HANDLE, PATH, c_uint)
files_explain = bind_call("cay_files_explain", HANDLE, PATH, POINTER(c_void_p))
files_roots = bind_call("cay_files_roots", HANDLE, c_uint, POINTER(Strings))
strings_done = bind("cay_strings_done", None, POINTER(Strings))
files_pin = bind_call("cay_files_pin", HANDLE, PATH, POINTER(Pin))

_READ = (HANDLE, PATH, POINTER(ReadOptions), POINTER(Page))
files_read = bind_call("cay_files_read", *_READ)
files_read_lines = bind_call("cay_files_read_lines", *_READ)
files_read_bytes = bind_call("cay_files_read_bytes", *_READ)
page_done = bind("cay_page_done", None, POINTER(Page))
page_widen = bind_call("cay_page_widen", POINTER(Page), c_uint, c_void_p)
reader_open = bind_call("cay_reader_open", HANDLE, PATH, POINTER(HANDLE))
reader_page = bind_call("cay_reader_page", HANDLE, POINTER(ReadOptions), POINTER(Page))
reader_free = bind("cay_reader_free", None, HANDLE)
files_read_many = bind_call("cay_files_read_many", HANDLE, POINTER(ReadItem), c_size_t)

files_write = bind_call(
    "cay_files_write", HANDLE, PATH, c_void_p, c_size_t, POINTER(WriteOptions)
)
files_write_many = bind_call(
    "cay_files_write_many", HANDLE, POINTER(WriteItem), c_size_t, POINTER(WriteOptions)
)
files_edit = bind_call(
    "cay_files_edit",
    HANDLE,
    PATH,
    POINTER(Edit),
    c_size_t,
    POINTER(WriteOptions),
    POINTER(EditResult),
)

files_delete = bind_call("cay_files_delete", HANDLE, PATH, POINTER(NameOptions))
_PAIR = (HANDLE, PATH, PATH, POINTER(NameOptions))
files_move = bind_call("cay_files_move", *_PAIR)
files_copy = bind_call("cay_files_copy", *_PAIR)
files_mkdir = bind_call("cay_files_mkdir", HANDLE, PATH, POINTER(NameOptions))
files_stat = bind_call("cay_files_stat", HANDLE, PATH, c_bool, POINTER(Stat))
files_exists = bind_call("cay_files_exists", HANDLE, PATH)

files_list = bind_call(
    "cay_files_list", HANDLE, PATH, POINTER(ListOptions), POINTER(Listing)
)
listing_done = bind("cay_listing_done", None, POINTER(Listing))
files_grep = bind_call(
    "cay_files_grep", HANDLE, PATH, c_char_p, POINTER(GrepOptions), POINTER(Matches)
)
matches_done = bind("cay_matches_done", None, POINTER(Matches))

_TAR = (HANDLE, PATH, c_int, POINTER(TarOptions), POINTER(TarResult))
files_export = bind_call("cay_files_export", *_TAR)
files_import = bind_call("cay_files_import", *_TAR)


# --- Text -------------------------------------------------------------------------------

# PyUnicode_New(length, highest character): a str whose content is not set yet.
_new_str = PYFUNCTYPE(py_object, c_ssize_t, ctypes.c_uint32)(
    ("PyUnicode_New", ctypes.pythonapi)
)

# Python decodes shorter text as fast.
_WIDEN_MIN = 4 << 10


def _header(character: str, width: int) -> int | None:
    """The offset of the characters in a str object; None if they are not there."""
    sample = character * 3
    header = sys.getsizeof(sample) - (len(sample) + 1) * width
    expected = ord(character).to_bytes(width, sys.byteorder) * 3 + bytes(width)
    if not 0 < header < 256 or string_at(id(sample) + header, len(expected)) != expected:
        return None
    return header


def _headers() -> dict[int, tuple[int, int]]:
    """By the highest character of a str: the bytes per character, and their offset.

    CPython documents that a new str may be filled, but has only a macro for the address of
    its characters; so the offset is verified.  Empty if it is wrong.
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
    if page.len < _WIDEN_MIN or page.highest not in _HEADERS:
        return text(page.text, page.len)
    width, header = _HEADERS[page.highest]
    result: str = _new_str(page.count, page.highest)
    if page_widen(byref(page), width, id(result) + header, None):
        return text(page.text, page.len)
    return result


class Placement:
    """A str as the buffer for the text of a whole file, which avoids a copy.

    No other code may see the str before it is filled, or if the content is not ASCII.
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
        """The page's text: the str itself if it is ASCII, else decoded from it."""
        buffer, self._str = self._str, None
        if buffer is not None and page.len == page.count == len(buffer):
            return buffer
        return page_text(page)
