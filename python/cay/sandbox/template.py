# SPDX-License-Identifier: Apache-2.0
"""Templates from Dockerfiles, and what is stored with a template."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from ctypes import byref, c_size_t, c_uint64, c_void_p, sizeof, string_at
from dataclasses import dataclass
from typing import Any, Literal

from cay import _c
from cay.sandbox import options as _options
from cay.sandbox.options import Policy, Size
from cay.sandbox.results import TemplateInfo


@dataclass(frozen=True)
class BuildProgress:
    """What happens in a build."""

    event: Literal["step", "cached", "output"]
    """a step begins, its layer exists, or output of the command of RUN"""
    step: int
    steps: int
    """those that change files"""
    text: str
    """the instruction, or the output"""


@dataclass(frozen=True)
class Template:
    """A stored template, by its name."""

    name: str

    def _load(self) -> tuple[TemplateInfo, Any]:
        info, config = _c.TemplateInfo(), c_void_p()
        name = _options.text(self.name, "name")
        _c.call(_c.template_inspect, name, byref(info), byref(config))
        try:
            return TemplateInfo._of(info), json.loads(string_at(config.value or 0))
        finally:
            _c.free(config)

    def info(self) -> TemplateInfo:
        return self._load()[0]

    def config(self) -> dict[str, Any]:
        """The configuration of its image, as in OCI: Env, Cmd, Entrypoint, Labels..."""
        config: dict[str, Any] = self._load()[1]
        return config

    def remove(self) -> None:
        """SandboxBusyError while a sandbox or a template needs it."""
        _c.call(_c.template_remove, _options.text(self.name, "name"))

    @staticmethod
    def prune() -> int:
        """Removes layers that no template needs; returns how many."""
        count, size = c_size_t(), c_uint64()
        _c.call(_c.template_prune, byref(count), byref(size))
        return count.value


def _progress(
    on_progress: Callable[[BuildProgress], object] | None, raised: list[BaseException]
) -> Any:
    def report(_cookie: int | None, progress: Any) -> int:
        try:
            if on_progress is not None:
                it = progress.contents
                text = _c.decode(string_at(it.text, it.len))
                event: Any = _c.BUILD_EVENTS[it.event]
                on_progress(BuildProgress(event, it.step, it.step_count, text))
            return 0
        except BaseException as error:
            raised.append(error)
            return 1

    return _c.OnBuildProgress(report)


def build(
    directory: str | os.PathLike[str],
    name: str | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    args: Mapping[str, str] | None = None,
    target: str | None = None,
    allow: Iterable[str] = (),
    deny: Iterable[str] = (),
    memory: Size | None = None,
    cache: bool = True,
    pull: bool = False,
    on_progress: Callable[[BuildProgress], object] | None = None,
) -> Template | None:
    """Builds a template from the Dockerfile in a directory, as ``cay build`` does.

    ``file`` is another Dockerfile, ``args`` are values of ARG, ``target`` is a stage.
    ``allow`` and ``deny`` are the network rules of RUN, which has no network without them,
    and ``memory`` is the limit of each.  ``pull`` downloads images of FROM that are not
    templates.  Without a ``name`` only the layers are stored, and the result is None.

    An exception that ``on_progress`` raises cancels the build.
    """
    raised: list[BaseException] = []
    with Policy(None) as policy:
        policy.add_network("none", allow, deny)
        options = _c.BuildOptions(
            size=sizeof(_c.BuildOptions),
            dir=_options.text(os.path.abspath(directory), "directory"),
            file=_options.optional(file, "file"),
            name=_options.optional(name, "name"),
            args=_options.environment(args, "args"),
            target=_options.optional(target, "target"),
            policy=policy.pointer,
            memory_bytes=_options.size(memory, "memory"),
            no_cache=not cache,
            on_progress=_progress(on_progress, raised),
            pull=pull,
        )
        try:
            _c.call(_c.build, byref(options))
        finally:
            if raised:
                raise raised[0]
    return None if name is None else Template(name)
