# SPDX-License-Identifier: Apache-2.0
"""What a tool returns to a model: text of a limited length, and pictures.

Everything here comes from inside the sandbox, so pictures are checked before they are
sent: a service that gets an invalid one refuses the whole conversation.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cay import _c
from cay.sandbox.code import Execution, Result
from cay.sandbox.results import ExecResult

IMAGE_BYTES = 3_500_000
"""the largest picture: in base64 it is below the 5 MB that services accept"""
_IMAGES = 8
_SERIES = 10
_SIGNATURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


@dataclass(frozen=True)
class Image:
    """A picture."""

    data: bytes
    media_type: str
    """image/png or image/jpeg"""

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """As a data: URL."""
        return f"data:{self.media_type};base64,{self.base64}"

    def __repr__(self) -> str:
        return f"Image({self.media_type}, {len(self.data):,} bytes)"


class Reply(str):
    """The text for the model, with the pictures that belong to it."""

    images: tuple[Image, ...]
    is_error: bool
    """the tool failed; code or a command that fails is an ordinary result"""

    def __new__(
        cls, text: str, images: Iterable[Image] = (), is_error: bool = False
    ) -> Reply:
        reply = super().__new__(cls, _c.display(text))
        reply.images, reply.is_error = tuple(images), is_error
        return reply

    def openai_parts(self) -> list[dict[str, Any]]:
        """Content parts of OpenAI's chat messages."""
        pictures = [
            {"type": "image_url", "image_url": {"url": one.url}} for one in self.images
        ]
        return [{"type": "text", "text": str(self)}, *pictures]

    def anthropic_parts(self) -> list[dict[str, Any]]:
        """Content blocks of Anthropic's tool_result."""
        pictures = [
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": one.media_type,
                    "data": one.base64,
                },
            }
            for one in self.images
        ]
        return [{"type": "text", "text": str(self)}, *pictures]

    def __str__(self) -> str:
        return self[:]


# --- Text -----------------------------------------------------------------------------------


def cut(text: str, limit: int, more: str) -> str:
    """The head and the tail of a text that is too long, in whole lines if they are short;
    ``more`` says how to see the rest."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[len(text) - (limit - limit // 2) :]
    end, start = head.rfind("\n") + 1, tail.find("\n") + 1
    if end > len(head) // 2:
        head = head[:end]
    if 0 < start < len(tail) // 2:
        tail = tail[start:]
    lost = len(text) - len(head) - len(tail)
    note = f"[... {lost:,} of {len(text):,} characters are cut here; {more} ...]"
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{note}\n{tail}"


def _plain(text: str) -> str:
    """Without escape sequences of terminals, and with the last state of progress bars."""
    if "\x1b" not in text and "\r" not in text:
        return text
    return _c.clean(_c.text_resolve_cr, _c.clean(_c.text_strip_ansi, text))


def _lines(*sections: str) -> str:
    """The sections that are not empty, each on lines of its own."""
    return "\n".join(one.removesuffix("\n") for one in sections if one)


def _streams(stdout: str, stderr: str) -> str:
    return _lines(_plain(stdout), f"[stderr]\n{_plain(stderr)}" if stderr else "")


def _dropped(count: int) -> str:
    return f"[{count:,} bytes of output beyond the limit were dropped]" if count else ""


# --- Commands -------------------------------------------------------------------------------


def of_command(result: ExecResult, timeout: float) -> str:
    ends = {
        "timeout": f"[killed after {timeout:g} s, with its children; start what runs longer "
        "in the background: nohup COMMAND > FILE 2>&1 &]",
        "memory": "[killed: the sandbox is out of memory]",
        "not-started": f"[not started: {result.reason}]",
        "signalled": f"[killed by signal {result.signal}]",
    }
    end = ends.get(result.cause, "")
    if not end and result.exit_code:
        end = f"[exit code {result.exit_code}]"
    return _lines(
        _dropped(result.stdout_dropped + result.stderr_dropped),
        _streams(result.stdout, result.stderr),
        end,
    ) or "[no output; exit code 0]"


# --- Code -----------------------------------------------------------------------------------


def of_execution(execution: Execution, timeout: float) -> str:
    error, end = "", ""
    if execution.error is not None:
        error = execution.error.traceback or str(execution.error)
        if execution.error.traceback == execution.stderr:  # of code that ran once
            error = str(execution.error)
    if execution.status == "timeout":
        end = f"[interrupted after {timeout:g} s; variables are kept]"
        if not execution.context:
            end = f"[killed after {timeout:g} s]"
    return _lines(
        f"[new interpreter: {execution.restarted}]" if execution.restarted else "",
        _dropped(execution.dropped),
        _streams(execution.stdout, execution.stderr),
        *(_of_result(result) for result in execution.results),
        error,
        end,
    ) or "[no output]"


def _of_result(result: Result) -> str:
    """In short: a picture has a line, a data frame its text."""
    pictures = [mime for mime in _SIGNATURES if mime in result.parts]
    if pictures:
        return f"[picture: {_of_chart(result.chart) or result.text or pictures[0]}]"
    text = result.text
    if text is None or (text.startswith("<") and text.endswith(">")):
        text = result.markdown or result.latex or result.html or result.svg or text
    if text is None and result.json is not None:
        text = json.dumps(result.json, ensure_ascii=False)
    return text if text is not None else f"[{', '.join(result.formats())}]"


def _of_chart(chart: Any) -> str:
    """'line chart "Prices", x: day, y: euro; a (3 points)'"""
    if not isinstance(chart, dict):
        return ""
    found = chart.get("elements")
    elements = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    text = f"{chart.get('type')} chart"
    if chart.get("title"):
        text += f" {json.dumps(str(chart['title']), ensure_ascii=False)}"
    for axis in ("x", "y"):
        if chart.get(f"{axis}_label"):
            text += f", {axis}: {chart[f'{axis}_label']}"
    if chart.get("type") == "superchart":
        return "; ".join(filter(None, map(_of_chart, elements[:_SERIES])))
    series = [_of_series(one) for one in elements[:_SERIES]]
    if len(elements) > _SERIES:
        series.append(f"{len(elements) - _SERIES} more")
    return f"{text}; {', '.join(series)}" if series else text


def _of_series(element: dict[str, Any]) -> str:
    points = element.get("points")
    if isinstance(points, list):
        return f"{element.get('label')} ({len(points)} points)"
    if "value" in element:
        return f"{element.get('label')}: {element['value']}"
    return str(element.get("label"))


# --- Pictures -------------------------------------------------------------------------------


def image_of(data: bytes) -> Image | None:
    """A picture that services accept, or None."""
    for mime, signature in _SIGNATURES.items():
        if data.startswith(signature) and len(data) <= IMAGE_BYTES:
            return Image(data, mime)
    return None


def images_of(execution: Execution) -> tuple[list[Image], str]:
    """The pictures of an execution, and a line about those that are left out."""
    found = [
        next(result.parts[mime] for mime in _SIGNATURES if mime in result.parts)
        for result in execution.results
        if any(mime in result.parts for mime in _SIGNATURES)
    ]
    images = [image for image in map(image_of, found) if image is not None][:_IMAGES]
    left = len(found) - len(images)
    if not left:
        return images, ""
    return images, (
        f"[{left} of {len(found)} pictures are not shown: at most {_IMAGES}, each a PNG or "
        f"JPEG of at most {IMAGE_BYTES:,} bytes]"
    )
