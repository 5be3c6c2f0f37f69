# SPDX-License-Identifier: Apache-2.0
"""Templates (the read-only root file systems of sandboxes), and checks of the host."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ctypes import byref, sizeof
from typing import Literal

from cay import _c
from cay.sandbox import options as _options
from cay.sandbox.results import Check, TemplateInfo


def templates() -> list[TemplateInfo]:
    """All templates, including "host"."""
    infos = _c.listed(_c.template_list, _c.TemplateInfo)
    return [TemplateInfo._of(info) for info in infos]


def create_template(
    name: str,
    source: Literal[
        "dir", "tar", "oci", "debootstrap", "image", "sandbox"
    ] = "debootstrap",
    origin: str | os.PathLike[str] = "bookworm",
    *,
    packages: Sequence[str] = (),
    on_progress: Callable[[str, int], object] | None = None,
) -> None:
    """Creates a template from a directory, a tar file, an OCI layout or the output of
    ``docker save``, a Debian suite with these packages, an image ("oci:DIR",
    "docker-archive:FILE", "python:3.12" of a registry), or the files of a sandbox ("ID" or
    "ID:CHECKPOINT") or of a snapshot, by its name. ``create_template("code")`` needs
    nothing else: Python with numpy, pandas, matplotlib, requests and pip, and Node.js.

    ``on_progress`` is called from time to time with the current step and a number of
    bytes; an exception that it raises cancels the work.
    """
    raised: list[BaseException] = []

    def report(_cookie: int | None, step: bytes, count: int) -> int:
        try:
            if on_progress is not None:
                on_progress(_c.decode(step), count)
            return 0
        except BaseException as error:
            raised.append(error)
            return 1

    options = _c.TemplateOptions(
        size=sizeof(_c.TemplateOptions),
        name=_options.text(name, "name"),
        source=_options.choice(source, _c.TEMPLATE_SOURCES, "source"),
        on_progress=_c.OnProgress(report),
        packages=_options.text(",".join(packages), "packages") if packages else None,
    )
    path = origin if source in ("debootstrap", "image", "sandbox") else os.path.abspath(origin)
    setattr(options, "from", _options.text(path, "origin"))
    try:
        _c.call(_c.template_create, byref(options))
    finally:
        if raised:
            raise raised[0]


def remove_template(name: str) -> None:
    """Removes a template; sandboxes created from it are not affected."""
    _c.call(_c.template_remove, _options.text(name, "name"))


def doctor() -> list[Check]:
    """Checks this machine, one result per facility."""
    return [Check._of(check) for check in _c.listed(_c.doctor, _c.Check)]
