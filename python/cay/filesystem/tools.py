# SPDX-License-Identifier: Apache-2.0
"""The tools for a model: their arguments, calls, and the paths they access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cay.filesystem.files import DEFAULT_MAX_READ_CHARS, Files, Pin


class ReadFileArgs(BaseModel):
    path: str = Field(description="File to read")
    max_chars: int = Field(
        default=DEFAULT_MAX_READ_CHARS,
        description=f"How many characters to return at most ({DEFAULT_MAX_READ_CHARS:,})",
    )
    offset: int = Field(default=0, description="Character to start at, counted from 0")


class WriteFileArgs(BaseModel):
    path: str = Field(description="File to write")
    content: str = Field(description="The whole new content of the file")


class ListFilesArgs(BaseModel):
    path: str = Field(default="/", description="Directory to list; '/' for everything")
    pattern: str = Field(
        default="**/*", description="Glob pattern, relative to the directory"
    )


class _NamedListFilesArgs(ListFilesArgs):
    model_config = ConfigDict(title="ListFilesArgs")

    path: str = Field(default=".", description="Directory to list; '.' for everything")


class EditFileArgs(BaseModel):
    path: str = Field(description="File to edit")
    old_text: str = Field(
        description="Text to replace: exactly as in the file, and only once in it"
    )
    new_text: str = Field(description="Text to put in its place")
    replace_all: bool = Field(
        default=False, description="Replace every occurrence of the text"
    )


class DeleteFileArgs(BaseModel):
    path: str = Field(description="File to delete")


class MoveFileArgs(BaseModel):
    source: str = Field(description="File to move")
    destination: str = Field(description="Its new path, which must not exist")


class CopyFileArgs(BaseModel):
    source: str = Field(description="File to copy")
    destination: str = Field(description="Path of the copy, which must not exist")


class ReadFileLinesArgs(BaseModel):
    path: str = Field(description="File to read")
    max_lines: int = Field(default=200, description="How many lines to return at most")
    offset: int = Field(default=0, description="Line to start at, counted from 0")


class GrepFilesArgs(BaseModel):
    regex: str = Field(description="Regular expression, matched line by line")
    path: str = Field(default=".", description="Directory or file to search")
    pattern: str = Field(
        default="**/*", description="Glob pattern of the files to search"
    )
    ignore_case: bool = Field(default=False, description="Ignore the difference between upper and lower case")
    max_matches: int = Field(
        default=100, description="How many matches to return at most"
    )


class AppendFileArgs(BaseModel):
    path: str = Field(description="File to append to; created if it does not exist")
    content: str = Field(description="Text to add at its end")


class Edit(BaseModel):
    old_text: str = Field(description="Text to replace, exactly once in the file")
    new_text: str = Field(description="Text to put in its place")
    replace_all: bool = Field(
        default=False, description="Replace every occurrence of the text"
    )


class MultiEditFileArgs(BaseModel):
    path: str = Field(description="File to edit")
    edits: list[Edit] = Field(
        description="Edits, applied one after the other: all of them, or none"
    )


class CreateDirectoryArgs(BaseModel):
    path: str = Field(description="Directory to create, with its parents")


class ListDirectoryArgs(BaseModel):
    path: str = Field(default=".", description="Directory to list")


class StatFileArgs(BaseModel):
    path: str = Field(description="File or directory to look at")


@dataclass(frozen=True)
class Touch:
    """An argument that is a path, and how the tool accesses it."""

    argument: str
    access: Literal["read", "write"]
    noun: str = "Path"
    is_name: bool = False
    """it acts on the name itself: a link is not followed"""


Pins = Sequence[Pin | None]
"""One per path, in the order of the tool's arguments."""


@dataclass(frozen=True)
class Tool:
    name: str
    args: type[BaseModel]
    description: str
    touches: tuple[Touch, ...]
    call: Callable[[Files, Any, Pins], Any]
    describe: Callable[[dict[str, Any]], str]
    """the text of the request for approval, from the arguments"""
    walks: bool = False
    """it visits any number of files"""


def _length(args: dict[str, Any], name: str) -> int:
    return len(args.get(name, ""))


def _multi_edit(files: Files, args: MultiEditFileArgs, pins: Pins) -> str:
    edits = [edit.model_dump() for edit in args.edits]
    return files.multi_edit(args.path, edits, pin=pins[0])


_PAIR = (
    Touch("source", "write", "Source", is_name=True),
    Touch("destination", "write", "Destination"),
)

TOOLS: tuple[Tool, ...] = (
    Tool(
        "read_file",
        ReadFileArgs,
        "Read a text file, a page at a time. The result says how long the file is and "
        "whether more follows; request the next page with offset. For text only: pass "
        "images, PDFs and other binary files as attachments.",
        (Touch("path", "read"),),
        lambda files, a, pins: files.read(a.path, a.max_chars, a.offset, pin=pins[0]),
        lambda a: f"Read from {a.get('path', '')}",
    ),
    Tool(
        "write_file",
        WriteFileArgs,
        "Write a text file, replacing it if it exists. Missing directories are created.",
        (Touch("path", "write"),),
        lambda files, a, pins: files.write(a.path, a.content, pin=pins[0]),
        lambda a: f"Write {_length(a, 'content')} chars to {a.get('path', '')}",
    ),
    Tool(
        "list_files",
        ListFilesArgs,
        "List the files below a directory that match a glob pattern ('*.md' here, "
        "'**/*.md' at any depth).",
        (Touch("path", "read"),),
        lambda files, a, pins: files.list_files(a.path, a.pattern),
        lambda a: (
            f"List file paths in {a.get('path', '/')} matching {a.get('pattern', '**/*')}"
        ),
        walks=True,
    ),
    Tool(
        "edit_file",
        EditFileArgs,
        "Replace a piece of text in a file. The old text must be in the file exactly as "
        "given and only once; include neighbouring lines to make it unique, or set "
        "replace_all.",
        (Touch("path", "write"),),
        lambda files, a, pins: files.edit(
            a.path, a.old_text, a.new_text, a.replace_all, pin=pins[0]
        ),
        lambda a: (
            f"Edit {a.get('path', '')}: replace {_length(a, 'old_text')} chars "
            f"with {_length(a, 'new_text')} chars"
            + (" everywhere" if a.get("replace_all") else "")
        ),
    ),
    Tool(
        "delete_file",
        DeleteFileArgs,
        "Delete a file. Directories stay.",
        (Touch("path", "write", is_name=True),),
        lambda files, a, pins: files.delete(a.path, pin=pins[0]),
        lambda a: f"Delete {a.get('path', '')}",
    ),
    Tool(
        "move_file",
        MoveFileArgs,
        "Move or rename a file. Missing directories are created; an existing file is "
        "never replaced.",
        _PAIR,
        lambda files, a, pins: files.move(
            a.source, a.destination, pin=pins[0], destination_pin=pins[1]
        ),
        lambda a: f"Move {a.get('source', '')} to {a.get('destination', '')}",
    ),
    Tool(
        "copy_file",
        CopyFileArgs,
        "Copy a file. Missing directories are created; an existing file is never "
        "replaced.",
        (Touch("source", "read", "Source"), _PAIR[1]),
        lambda files, a, pins: files.copy(
            a.source, a.destination, pin=pins[0], destination_pin=pins[1]
        ),
        lambda a: f"Copy {a.get('source', '')} to {a.get('destination', '')}",
    ),
)

EXTRA_TOOLS: tuple[Tool, ...] = (
    Tool(
        "grep_files",
        GrepFilesArgs,
        "Search text files for lines that match a regular expression. Gives path, line "
        "number and line.",
        (Touch("path", "read"),),
        lambda files, a, pins: asdict(
            files.grep(
                a.regex,
                a.path,
                a.pattern,
                ignore_case=a.ignore_case,
                max_matches=a.max_matches,
            )
        ),
        lambda a: f"Search the files in {a.get('path', '.')} for {a.get('regex', '')!r}",
        walks=True,
    ),
    Tool(
        "read_file_lines",
        ReadFileLinesArgs,
        "Read whole lines of a text file, counted from 0.",
        (Touch("path", "read"),),
        lambda files, a, pins: files.read_lines(
            a.path, a.max_lines, a.offset, pin=pins[0]
        ),
        lambda a: f"Read from {a.get('path', '')}",
    ),
    Tool(
        "append_file",
        AppendFileArgs,
        "Add text at the end of a file.",
        (Touch("path", "write"),),
        lambda files, a, pins: files.append(a.path, a.content, pin=pins[0]),
        lambda a: f"Append {_length(a, 'content')} chars to {a.get('path', '')}",
    ),
    Tool(
        "multi_edit_file",
        MultiEditFileArgs,
        "Make several edits to one file, one after the other: all of them, or none.",
        (Touch("path", "write"),),
        _multi_edit,
        lambda a: f"Edit {a.get('path', '')}: {_length(a, 'edits')} edits",
    ),
    Tool(
        "create_directory",
        CreateDirectoryArgs,
        "Create a directory and its parents.",
        (Touch("path", "write"),),
        lambda files, a, pins: files.create_directory(a.path, pin=pins[0]),
        lambda a: f"Create the directory {a.get('path', '')}",
    ),
    Tool(
        "list_directory",
        ListDirectoryArgs,
        "List the entries of a directory with types and sizes.",
        (Touch("path", "read"),),
        lambda files, a, pins: [
            {"path": entry.path, "type": entry.stat.type, "bytes": entry.stat.bytes}
            for entry in files.list_dir(a.path)
        ],
        lambda a: f"List file paths in {a.get('path', '.')} matching *",
        walks=True,
    ),
    Tool(
        "stat_file",
        StatFileArgs,
        "Return type, size and time of a file or directory.",
        (Touch("path", "read"),),
        lambda files, a, pins: asdict(files.stat(a.path)),
        lambda a: f"Look at {a.get('path', '')}",
    ),
)
