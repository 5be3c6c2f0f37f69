# SPDX-License-Identifier: Apache-2.0
"""Descriptors for what a caller gives as a stream; what has none goes through a file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


def _need(stream: object, method: str) -> None:
    if not callable(getattr(stream, method, None)):
        raise TypeError(
            f"a descriptor or a binary file that one can {method} is needed, "
            f"not {stream!r}"
        )


@contextmanager
def readable_fd(source: int | bytes | IO[bytes]) -> Iterator[int]:
    if isinstance(source, int):
        yield source
        return
    if not isinstance(source, bytes):
        _need(source, "read")
        try:
            fd = source.fileno()
        except (AttributeError, OSError):
            fd = -1
        if fd >= 0:
            if source.seekable():
                # The descriptor may be ahead of the file object, which reads in blocks.
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
def writable_fd(target: int | IO[bytes]) -> Iterator[int]:
    if isinstance(target, int):
        yield target
        return
    _need(target, "write")
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
