# SPDX-License-Identifier: Apache-2.0
"""Errors: their name, value and a traceback without the frames of the driver."""

import traceback

TRACEBACK_MAX = 256 << 10
VALUE_MAX = 64 << 10


def clean(summary, seen):
    """Removes the driver's frames from an exception, its causes and its group."""
    if summary is None or id(summary) in seen:
        return
    seen.add(id(summary))
    summary.stack[:] = [frame for frame in summary.stack
                        if not frame.filename.startswith("<cay")]
    clean(summary.__cause__, seen)
    clean(summary.__context__, seen)
    for member in getattr(summary, "exceptions", None) or ():
        clean(member, seen)


def complete(error):
    """Adds the line of a SyntaxError that the compiler found after parsing."""
    if isinstance(error, SyntaxError) and error.text is None and error.lineno:
        lines = cells.get(error.filename, "").splitlines()
        if error.lineno <= len(lines):
            error.text = lines[error.lineno - 1]


def own_frames(error):
    """The traceback from the first frame of the code on."""
    frame = error.__traceback__
    while frame and frame.tb_frame.f_code.co_filename not in cells:
        frame = frame.tb_next
    return frame or error.__traceback__


def text_of(error):
    complete(error)
    frames = own_frames(error)
    summary = traceback.TracebackException(type(error), error, frames)
    clean(summary, set())
    text = "".join(summary.format())
    if len(text) > TRACEBACK_MAX:
        half = TRACEBACK_MAX // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters ...\n{text[-half:]}"
    return text


def value_of(error):
    try:
        return str(error)[:VALUE_MAX]
    except Exception:
        return "<exception str() failed>"


def describe(error):
    try:
        text = text_of(error)
    except Exception as failure:
        text = f"{type(error).__name__}: no traceback: {type(failure).__name__}\n"
    return (f'{{"type":"error","name":{quote(type(error).__name__)},'
            f'"value":{quote(value_of(error))},"traceback":{quote(text)}}}')
