# SPDX-License-Identifier: Apache-2.0
"""The sandbox of a sample, described: as a model, in a YAML file, or by a compose file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cay.sandbox.configs import (
    NativeSandboxConfig,
    environment,
    parsed,
    read_yaml,
)
from cay.sandbox.errors import SandboxValueError
from cay.sandbox.options import CPUS_MAX, Layer, Rung
from cay.sandbox.spelling import written

__all__ = ["CONFIG_FILE", "CayConfig"]

CONFIG_FILE = "cay.yaml"

_Model = TypeVar("_Model", bound=BaseModel)


class CayConfig(BaseModel):
    """One sandbox for each sample.

    ``sandbox=SandboxEnvironmentSpec("cay", CayConfig(memory="2G"))``, or the same keys in
    a file: ``sandbox=("cay", "cay.yaml")``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: str | None = Field(
        default=None, description="What it starts from: 'host', a name or a directory"
    )
    memory: int | str | None = Field(
        default=None, description="Most memory, as bytes or '512M'; 1 GiB if not given"
    )
    disk: int | str | None = Field(
        default=None, description="Most written files, alike; 512 MiB if not given"
    )
    pids: int | None = Field(default=None, description="Most processes; 512 if not given")
    cpus: float | None = Field(
        default=None, ge=0.01, le=CPUS_MAX, description="Most CPUs; all if not given"
    )
    network: Literal["none", "host"] = Field(
        default="none", description="'none': only a loopback; 'host': this machine's"
    )
    user: str | None = Field(
        default=None, description="Who runs commands; 'user' if not given"
    )
    workdir: str | None = Field(
        default=None, description="Where they start; that user's home if not given"
    )
    env: dict[str, str] = Field(default={}, description="Variables for every command")
    volumes: tuple[str, ...] = Field(
        default=(), description="Host directories shown inside: 'SOURCE:TARGET[:ro]'"
    )
    ttl: float | None = Field(
        default=None, description="Seconds after which it ends by itself"
    )
    hostname: str | None = Field(default=None, description="Its name inside")
    storage: Literal["memory", "disk"] = Field(
        default="memory", description="Where what is written is kept"
    )
    require: tuple[Layer, ...] = Field(
        default=(), description="Layers without which it must not start"
    )
    rung: Rung = Field(
        default="best", description="How much of the kernel's help to use at most"
    )
    ephemeral: bool = Field(
        default=True,
        description="Whether it dies with the eval's process, however that ends; "
        "False keeps it for --no-sandbox-cleanup",
    )

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def options(self) -> dict[str, Any]:
        """For Sandbox.create()."""
        return {**self.model_dump(), "make_workdir": True}


def load_config(file: str) -> CayConfig:
    """From a YAML file; relative paths in it start at its directory."""
    import yaml

    with open(file, encoding="utf-8") as stream:
        content = yaml.safe_load(stream)
    if not isinstance(content, dict):
        raise SandboxValueError(
            "it is not a mapping",
            subject=file,
            hint=f"the keys there are: {', '.join(CayConfig.model_fields)}",
        )
    unknown = [str(key) for key in content if key not in CayConfig.model_fields]
    if _CONFIGURATION.intersection(unknown):
        return _of_configuration(file)
    if unknown:
        raise SandboxValueError(
            f"unknown key{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}",
            subject=file,
            hint=f"the keys there are: {', '.join(CayConfig.model_fields)}",
        )
    config = validated(CayConfig, content, file)
    base = Path(file).resolve().parent
    volumes = tuple(from_directory(volume, base) for volume in config.volumes)
    template = template_from(config.template, base)
    return config.model_copy(update={"volumes": volumes, "template": template})


def validated(model: type[_Model], content: Any, subject: str) -> _Model:
    """The model with this content, or one sentence about each thing wrong with it."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = sorted(error.errors(), key=lambda one: -len(one["loc"]))
    # Of the types that were tried, the one that came furthest is the one meant.
    wrong: dict[tuple[str, ...], Any] = {}
    for one in found:
        wrong.setdefault(tuple(_keys(one["loc"], content)), one)
    raise_all(
        [
            _problem(keys, one, subject)
            for keys, one in wrong.items()
            if not any(other[: len(keys)] == keys != other for other in wrong)
        ],
        subject,
    )
    raise AssertionError("a ValidationError has errors")


class _Problems(SandboxValueError):
    """Several at once."""

    problems: tuple[SandboxValueError, ...]


def raise_all(found: Sequence[SandboxValueError], subject: str) -> None:
    """One exception for all problems; nothing without any."""
    problems = [
        one
        for error in found
        for one in (error.problems if isinstance(error, _Problems) else (error,))
    ]
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        error = _Problems(f"{len(problems)} problems:{lines}", subject=subject)
        error.problems = tuple(problems)
        raise error


def _problem(keys: tuple[str, ...], wrong: Any, subject: str) -> SandboxValueError:
    return SandboxValueError(
        "".join(f"{key}: " for key in keys) + wrong["msg"].removeprefix("Value error, "),
        subject=subject,
        hint="put it in quotes"
        if wrong["type"] == "string_type"
        else "write it so, or leave it out",
    )


def _keys(location: tuple[int | str, ...], content: Any) -> Iterator[str]:
    """Without the names of types, which pydantic has among them."""
    for part in location:
        try:
            content = content[part]
        except (LookupError, TypeError):
            continue
        yield str(part)


def is_path(template: str) -> bool:
    """Whether it is a directory and no name, as Sandbox.create() tells them apart."""
    return "/" in template or template in (".", "..")


def template_from(template: str | None, base: Path) -> str | None:
    """A directory made absolute; a name stays one."""
    if template is None or not is_path(template):
        return template
    return str((base / Path(template).expanduser()).resolve())


def from_directory(volume: str, base: Path) -> str:
    """SOURCE:TARGET with the source made absolute."""
    source, colon, rest = volume.partition(":")
    return f"{(base / Path(source).expanduser()).resolve()}{colon}{rest}"


_CONFIGURATION = {
    *(one.name for one in fields(NativeSandboxConfig)),
    *("_work_dir", "library", "persist_sandbox", "sandbox_config", "timeout"),
}
"""keys by which a file is told to be one for ``cay run --config``, too"""


def _of_configuration(file: str) -> CayConfig:
    """The same sandbox as ``cay run --config`` makes: cay-config(5)."""
    config = read_yaml(file)
    if (
        not isinstance(config, NativeSandboxConfig)
        or config.policy is not None
        or config.sandbox_id is not None
    ):
        raise SandboxValueError(
            "this configuration cannot be one of samples",
            subject=file,
            hint="write type: native, mounts instead of a policy, and no sandbox_id",
        )
    given, limits = written(config), config.limits
    with parsed(given) as handle:
        env = environment(handle)
    content = {
        **{name: one for name, one in given.items() if name in CayConfig.model_fields},
        **{name: limits.get(name) for name in ("memory", "disk", "pids")},
        "cpus": limits["cpu"] / 100 if "cpu" in limits else None,
        "workdir": str(given["work_dir"]) if "work_dir" in given else None,
        "env": env,
        "volumes": tuple(config.mounts),
    }
    return validated(CayConfig, content, file)
