# SPDX-License-Identifier: Apache-2.0
"""The configuration of a sample's sandbox: a model, or a YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cay.errors import SandboxValueError
from cay.sandbox import config as c_config
from cay.sandbox.options import CPUS_MAX, Layer, Level, is_volume

CONFIG_FILE = "cay.yaml"

_Model = TypeVar("_Model", bound=BaseModel)


class CayConfig(BaseModel):
    """One sandbox for each sample.

    ``sandbox=SandboxEnvironmentSpec("cay", CayConfig(memory="2G"))``, or the same keys in
    a file: ``sandbox=("cay", "cay.yaml")``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: str | None = Field(
        default=None, description="The root file system: 'host', a template or a directory"
    )
    memory: int | str | None = Field(
        default=None, description="Memory limit, as bytes or '512M'; default 1 GiB"
    )
    disk: int | str | None = Field(
        default=None, description="Limit of written files, likewise; default 512 MiB in memory"
    )
    pids: int | None = Field(default=None, description="Limit of processes; default 512")
    cpus: float | None = Field(
        default=None, ge=0.01, le=CPUS_MAX, description="Limit of CPUs; default all"
    )
    network: Literal["none", "host", "rules", "open"] = Field(
        default="none",
        description="'none': only loopback; 'host': that of this machine; 'rules': what "
        "allow allows; 'open': every public address",
    )
    allow: tuple[str, ...] = Field(
        default=(), description="Network rules: 'pypi', 'api.example.com:443'"
    )
    deny: tuple[str, ...] = Field(
        default=(), description="Network rules for what must not be reached"
    )
    user: str | None = Field(
        default=None, description="The user of commands; default 'user'"
    )
    workdir: str | None = Field(
        default=None, description="The directory of commands; default that user's home"
    )
    env: dict[str, str] = Field(default={}, description="Variables for every command")
    volumes: tuple[str, ...] = Field(
        default=(), description="Visible host directories or volumes: 'SOURCE:TARGET[:ro]'"
    )
    ttl: float | None = Field(
        default=None, description="Time to live in seconds"
    )
    hostname: str | None = Field(default=None, description="Its host name")
    storage: Literal["memory", "disk"] = Field(
        default="memory", description="Where written files are stored"
    )
    require: tuple[Layer, ...] = Field(
        default=(), description="Isolation layers without which it must not start"
    )
    level: Level = Field(
        default="best", description="The highest isolation level to use"
    )
    pool: int = Field(
        default=4,
        ge=0,
        le=1024,
        description="How many sandboxes are created ahead during the task; 0: none",
    )
    ephemeral: bool = Field(
        default=True,
        description="Whether it ends with the eval's process; use False with "
        "--no-sandbox-cleanup",
    )

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def options(self) -> dict[str, Any]:
        """The arguments of Sandbox.create()."""
        return {**self.model_dump(exclude={"pool"}), "make_workdir": True}


def load_config(file: str) -> CayConfig:
    """Reads a YAML file; relative paths start at its directory."""
    import yaml

    with open(file, encoding="utf-8") as stream:
        content = yaml.safe_load(stream)
    if not isinstance(content, dict):
        raise SandboxValueError(
            "the file is not a mapping",
            subject=file,
            hint=f"the keys are: {', '.join(CayConfig.model_fields)}",
        )
    unknown = [str(key) for key in content if key not in CayConfig.model_fields]
    if _SANDBOX_CONFIG_KEYS.intersection(unknown):
        return _from_sandbox_config(file)
    if unknown:
        raise SandboxValueError(
            f"unknown key{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}",
            subject=file,
            hint=f"the keys are: {', '.join(CayConfig.model_fields)}",
        )
    config = validated(CayConfig, content, file)
    base = Path(file).resolve().parent
    volumes = tuple(from_directory(volume, base) for volume in config.volumes)
    template = template_from(config.template, base)
    return config.model_copy(update={"volumes": volumes, "template": template})


def validated(model: type[_Model], content: Any, subject: str) -> _Model:
    """The model with this content; SandboxValueError with every problem in it."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = sorted(error.errors(), key=lambda one: -len(one["loc"]))
    # Report the alternative of a union that matched furthest.
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
    """Several problems in one exception."""

    problems: tuple[SandboxValueError, ...]


def raise_all(found: Sequence[SandboxValueError], subject: str) -> None:
    """Raises one exception for all problems, if there are any."""
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
        else "correct it, or remove it",
    )


def _keys(location: tuple[int | str, ...], content: Any) -> Iterator[str]:
    """The keys of a location, without pydantic's names of types."""
    for part in location:
        try:
            content = content[part]
        except (LookupError, TypeError):
            continue
        yield str(part)


def is_path(template: str) -> bool:
    """Whether it is a directory instead of a name, as in Sandbox.create()."""
    return "/" in template or template in (".", "..")


def template_from(template: str | None, base: Path) -> str | None:
    """The absolute path of a directory; a name is returned unchanged."""
    if template is None or not is_path(template):
        return template
    return str((base / Path(template).expanduser()).resolve())


def from_directory(volume: str, base: Path) -> str:
    """SOURCE:TARGET with an absolute source; the name of a volume is unchanged."""
    source, colon, rest = volume.partition(":")
    if is_volume(source):
        return volume
    return f"{(base / Path(source).expanduser()).resolve()}{colon}{rest}"


_SANDBOX_CONFIG_KEYS = {
    *("type", "limits", "mounts", "policy", "work_dir", "envs", "sandbox_id"),
    *("status_after_run", "clean_output", "raise_errors", "output_char_threshold"),
    *("truncate_head_chars", "truncate_tail_chars"),
    *("_work_dir", "library", "persist_sandbox", "sandbox_config", "timeout"),
}
"""Keys that only a file for ``cay run --config`` has."""


def _from_sandbox_config(file: str) -> CayConfig:
    """The same sandbox as with ``cay run --config``: cay-config(5)."""
    config = c_config.load(file)
    values = config.values()
    if config.type != "native" or values.keys() & {"policy", "sandbox_id", "networks"}:
        raise SandboxValueError(
            "this configuration cannot be used for samples",
            subject=file,
            hint="use type: native, mounts instead of a policy, no sandbox_id, and a compose "
            "file instead of networks: each sample has its own",
        )
    limits, keys = values.get("limits", {}), CayConfig.model_fields
    content = {
        **{name: one for name, one in values.items() if name in keys},
        **{name: limits.get(name) for name in ("memory", "disk", "pids")},
        "cpus": limits["cpu"] / 100 if "cpu" in limits else None,
        "workdir": values.get("work_dir", values.get("_work_dir")),
        "env": config.environment(),
        "volumes": tuple(values.get("mounts", ())),
    }
    return validated(CayConfig, content, file)
