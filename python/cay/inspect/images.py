# SPDX-License-Identifier: Apache-2.0
"""The templates of a compose file: services with ``build`` are built, images downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cay.errors import SandboxError, SandboxValueError, TemplateNotFoundError
from cay.inspect.compose import Service
from cay.inspect.config import is_path, raise_all
from cay.sandbox import BuildProgress, build, create_template, templates


class _Checked(Exception):
    """The first step of a build would begin."""


def prepare(services: Sequence[Service], subject: str) -> None:
    """Makes the templates that are missing, after all of them were checked."""
    sources = {template.name: template.source for template in templates()}
    built: dict[str, Service] = {}
    missing: dict[str, Service] = {}
    problems: list[SandboxValueError] = []
    for service in services:
        name = service.config.template
        if name is None or (is_path(name) and Path(name).is_dir()):
            continue
        # A template of this name that was not built stays: an image that was imported.
        if service.build and sources.get(name) in (None, "build"):
            built[name] = service
        elif name not in sources:
            missing[name] = service
    for service in built.values():
        problems += _problems(service)
    raise_all(problems, subject)
    for service in missing.values():
        _download(service)
    for service in built.values():
        _build(service)


def _problems(service: Service) -> list[SandboxValueError]:
    """What the Dockerfile has that is not supported; nothing is run."""
    assert service.build is not None
    where = f"service {service.name!r}"
    if not Path(service.build.file).is_file():
        hint = f"write {service.build.file}, or set build: dockerfile"
        return [SandboxValueError("build: there is no Dockerfile", subject=where, hint=hint)]

    def stop(progress: BuildProgress) -> None:
        if progress.event != "output":  # of a download
            raise _Checked

    try:
        build(service.build.context, file=service.build.file, pull=_can_pull(), on_progress=stop)
    except _Checked:
        pass
    except SandboxError as error:
        hint = error.hint or "change the Dockerfile"
        return [SandboxValueError(f"build: {error.message}", subject=where, hint=hint)]
    return []


def _can_pull() -> bool:
    return shutil.which("skopeo") is not None


def _build(service: Service) -> None:
    """RUN has the network rules of the service."""
    assert service.build is not None
    config = service.config
    build(
        service.build.context,
        config.template,
        file=service.build.file,
        allow=config.allow or (),
        deny=config.deny or (),
        memory=config.memory,
        cache=service.build.cache,
        pull=_can_pull(),
    )


def _download(service: Service) -> None:
    name = service.config.template or ""
    if not service.image or service.build or not _can_pull():
        raise no_template(service)
    try:
        create_template(name, "image", service.image)
    except SandboxError as error:
        raise no_template(service) from error


def no_template(service: Service) -> TemplateNotFoundError:
    name, image = service.config.template or "", service.image
    if not image:
        return TemplateNotFoundError(
            f"the template of service {service.name!r} does not exist",
            subject=name,
            hint="use one that `cay template ls` prints, or a directory",
        )
    return TemplateNotFoundError(
        f"the image {image!r} of service {service.name!r} has no template",
        subject=name,
        hint=f"create it: cay template create {name} --from {image} (with skopeo, or "
        f"--from docker-archive:image.tar after docker save {image} -o image.tar); "
        "or set another one with x-cay-template",
    )
