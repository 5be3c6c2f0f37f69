# SPDX-License-Identifier: Apache-2.0
"""Templates, the read-only roots that sandboxes start from; and the host itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import POINTER, byref, c_size_t, sizeof
from typing import Literal

from cay import _lib, _sandbox_lib
from cay.sandbox import options as _options
from cay.sandbox.errors import error_of
from cay.sandbox.results import Check, TemplateInfo

__all__ = ["create_template", "doctor", "remove_template", "templates"]


def templates() -> list[TemplateInfo]:
    """Every template there is, "host" among them."""
    infos, count = POINTER(_sandbox_lib.TemplateInfo)(), c_size_t()
    err = _lib.Error()
    if _sandbox_lib.template_list(byref(infos), byref(count), byref(err)):
        raise error_of(err)
    found = _sandbox_lib.copied(infos, _sandbox_lib.TemplateInfo, count.value)
    return [TemplateInfo._of(info) for info in found]


def create_template(
    name: str,
    source: Literal["dir", "tar", "oci", "debootstrap"],
    origin: str | os.PathLike[str],
    *,
    on_progress: Callable[[str, int], object] | None = None,
) -> None:
    """Makes a template from a directory, a tar file, what ``docker save`` wrote or an OCI
    layout, or a suite of Debian's.

    ``on_progress`` is called now and then with what is being done and a number of bytes;
    what it raises cancels the work.
    """
    raised: list[BaseException] = []

    def tell(_cookie: int | None, step: bytes, count: int) -> int:
        try:
            if on_progress is not None:
                on_progress(_lib.decode(step), count)
            return 0
        except BaseException as error:
            raised.append(error)
            return 1

    options = _sandbox_lib.TemplateOptions(
        size=sizeof(_sandbox_lib.TemplateOptions),
        name=_options.text(name, "name"),
        source=_options.choice(source, _sandbox_lib.TEMPLATE_SOURCES, "source"),
        on_progress=_sandbox_lib.OnProgress(tell),
    )
    path = origin if source == "debootstrap" else os.path.abspath(origin)
    setattr(options, "from", _options.text(path, "origin"))
    err = _lib.Error()
    code = _sandbox_lib.template_create(byref(options), byref(err))
    if raised:
        raise raised[0]
    if code:
        raise error_of(err)


def remove_template(name: str) -> None:
    """Sandboxes that were made from it are not touched."""
    err = _lib.Error()
    if _sandbox_lib.template_remove(_options.text(name, "name"), byref(err)):
        raise error_of(err)


def doctor() -> list[Check]:
    """What this machine offers sandboxes, a check for each facility."""
    checks, count = POINTER(_sandbox_lib.Check)(), c_size_t()
    err = _lib.Error()
    if _sandbox_lib.doctor(byref(checks), byref(count), byref(err)):
        raise error_of(err)
    found = _sandbox_lib.copied(checks, _sandbox_lib.Check, count.value)
    return [Check._of(check) for check in found]
