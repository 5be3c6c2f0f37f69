# SPDX-License-Identifier: Apache-2.0
"""Compose files and Dockerfiles as sandboxes: each service is a sandbox, in a network with
the others.

An image stands for the template that was created from it; docs/inspect.md has the rule for
its name.  A key is supported or an error; the keys in _NO_EFFECT change nothing in a
sandbox, and those in _IGNORED are ignored with a warning.  All problems of a file are
reported at once.
"""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeVar

from cay.errors import SandboxValueError
from cay.inspect.config import CayConfig, raise_all, template_from, validated
from cay.inspect.health import Health, health_of
from cay.inspect.variables import read_env_file
from cay.sandbox.options import is_volume

_SUPPORTED = {
    *("image", "build", "command", "entrypoint", "working_dir", "environment", "env_file"),
    *("user", "hostname", "volumes", "network_mode", "mem_limit", "cpus", "pids_limit"),
    *("deploy", "depends_on", "platform", "privileged", "read_only", "restart"),
    *("security_opt", "x_default", "networks", "healthcheck"),
}
_NO_EFFECT = {
    *("expose", "init", "mem_reservation", "pull_policy", "stdin_open"),
    *("stop_grace_period", "tty"),
}
_IGNORED = {
    "ports": "no port is published on this machine; other services reach all ports",
}
_ALTERNATIVES = {
    "privileged": "a sandbox cannot have more privileges; remove the key",
    "read_only": "the root is writable and removed with the sandbox; remove the key",
    "restart": 'a command that ends is not restarted; use "no" or remove the key',
}
# Common commands that only keep a container alive; a sandbox does not need them.
_IDLE = (
    ["tail", "-f", "/dev/null"],
    ["sleep", "infinity"],
    ["sleep", "inf"],
    ["/bin/sleep", "infinity"],
)
# The keys of a network, and of a service in it, that change nothing here.
_NETWORK_KEYS = {"internal", "driver", "name", "labels", "attachable"}
_MEMBER_KEYS = {"aliases", "priority", "gw_priority"}
_NETWORK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST_NAME = re.compile(r"([a-z0-9_-]{1,63}\.)*(?![0-9]+$)[a-z0-9_-]{1,63}", re.IGNORECASE)
# The names of volumes of samples begin with it.
SAMPLE_VOLUME = "inspect.sample."
_VOLUME_NAME_MAX = 30

# Of all names of a sandbox in its networks (CAY_NETWORKS_MAX), and of one network.
_NAMES_MAX, _NETWORK_MAX = 255, 63
NETWORK_PREFIX = 13
"""characters before the name of a network, which make it that of one sample"""
_Number = TypeVar("_Number", int, float)
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


@dataclass(frozen=True)
class Build:
    """The Dockerfile of a service."""

    context: str
    file: str
    """an absolute path"""
    cache: bool = True


@dataclass(frozen=True)
class Service:
    """A sandbox, and the command that starts with it."""

    name: str
    config: CayConfig
    command: tuple[str, ...] = ()
    is_default: bool = False
    networks: tuple[str, ...] = ()
    """NETWORK:NAME, with the file's names of networks"""
    health: Health | None = None
    needs: tuple[tuple[str, str], ...] = ()
    """services that start before it, each with the condition to wait for"""
    image: str = field(default="", compare=False)
    """the image for the template, which is created from it"""
    build: Build | None = field(default=None, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """about keys that are ignored"""


def invalid_key(service: str, key: str, why: str, hint: str) -> SandboxValueError:
    return SandboxValueError(f"{key}: {why}", subject=_subject(service), hint=hint)


def take_unknown(content: Any, models: tuple[Any, Any]) -> list[SandboxValueError]:
    """Removes keys that Inspect's models do not have, and returns a problem for each; the
    models themselves would report only the first."""
    top, service = models
    problems = [*_unknown("", content, top)]
    for name, given in _mapping(_mapping(content).get("services")).items():
        problems += _unknown(f"services: {name}: ", given, service)
    return problems


def _unknown(where: str, given: Any, model: Any) -> Iterator[SandboxValueError]:
    fields = model.model_fields
    known = {*fields, *(one.alias for one in fields.values())}
    for key in [*_mapping(given)]:
        if key not in known and not str(key).startswith("x-"):
            del given[key]
            yield SandboxValueError(
                f"{where}unknown key {str(key)!r}",
                subject=COMPOSE_SUBJECT,
                hint="remove it",
            )


COMPOSE_SUBJECT = "the compose file"


def _subject(service: str) -> str:
    return f"service {service!r} of the compose file"


def as_inspect_reads(content: Any, base: Path) -> Any:
    """The file in the form of Inspect's model, which has less than compose: without keys
    that have no effect, with numbers in variables and sizes as text, and with files of
    variables as paths."""
    if not isinstance(content, dict):
        return content
    for name, service in _mapping(content.get("services")).items():
        service = _mapping(service)
        if isinstance(service.get("env_file"), list):
            service["env_file"] = list(_env_files(str(name), service["env_file"], base))
        for key in ("container_name", "labels"):
            service.pop(key, None)
        resources = _mapping(_mapping(service.get("deploy")).get("resources"))
        _numbers_to_text(_mapping(service.get("environment")))
        _numbers_to_text(service, "mem_limit")
        _numbers_to_text(_mapping(resources.get("limits")), "memory")
    return {key: value for key, value in content.items() if key not in ("version", "name")}


def _env_files(name: str, files: list[Any], base: Path) -> Iterator[Any]:
    """The paths, without optional files that do not exist."""
    for file in files:
        if not isinstance(file, dict):
            yield file
            continue
        path, required = file.get("path"), file.get("required", True)
        if not isinstance(path, str) or not isinstance(required, bool):
            why = "the long form needs a path, and required must be true or false"
            raise invalid_key(name, "env_file", why, "use {path: FILE, required: false}")
        for key in sorted(map(str, file.keys() - {"path", "required"})):
            why = f"unknown key {key!r}"
            raise invalid_key(name, "env_file", why, "the keys are path and required")
        if required or (base / path).exists():
            yield path


def _numbers_to_text(given: dict[Any, Any], *only: str) -> None:
    for name in only or tuple(given):
        if type(given.get(name)) in (int, float):
            given[name] = str(given[name])


def _mapping(given: Any) -> dict[Any, Any]:
    return given if isinstance(given, dict) else {}


def image_template(image: str) -> str:
    """The name of the template for an image: "python:3.12" is python-3.12."""
    name = image.removesuffix(":latest")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")


def services_of(config: Any, base: Path, environment: Mapping[str, str]) -> list[Service]:
    """The services of a ComposeConfig, the default one first."""
    problems = [*_network_problems(config.networks or {})]
    tried = [
        _service(name, config, base, environment, problems) for name in config.services
    ]
    problems += _cycles(one for one in tried if one is not None)
    problems += _collisions(one for one in tried if one is not None)
    raise_all(problems, COMPOSE_SUBJECT)
    found = [one for one in tried if one is not None]
    defaults = [one for one in found if one.is_default]
    defaults = defaults or [one for one in found if one.name == "default"]
    if not defaults and len(found) == 1:
        defaults = found
    if len(defaults) != 1:
        raise SandboxValueError(
            f"there are {'several' if defaults else 'no'} default services",
            subject=COMPOSE_SUBJECT,
            hint="name one 'default', or set 'x-default: true' in exactly one",
        )
    return defaults + [one for one in found if one is not defaults[0]]


def dockerfile_service(file: str) -> Service:
    """The service for a Dockerfile."""
    image = _project_image(Path(file).resolve().parent, "default")
    path = Path(file).resolve()
    return Service(
        "default",
        CayConfig(template=image_template(image)),
        image=image,
        build=Build(str(path.parent), str(path)),
    )


def _service(
    name: str,
    file: Any,
    base: Path,
    variables: Mapping[str, str],
    problems: list[SandboxValueError],
) -> Service | None:
    """None if there are problems."""
    before, service = len(problems), file.services[name]
    problems += _unsupported(name, service)

    def tried(call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except SandboxValueError as problem:
            problems.append(problem)
            return None

    template, image = tried(_template, name, service, base) or ("", "")
    own: dict[str, Any] = {
        "template": template,
        "memory": _memory(service),
        "cpus": tried(_cpus, name, service),
        "pids": tried(_pids, name, service),
        "network": tried(_network, name, service),
        "user": None if service.user is None else str(service.user),
        "workdir": service.working_dir,
        "hostname": service.hostname,
        "env": tried(lambda: dict(_environment(name, service, base, variables))),
        "volumes": tried(lambda: tuple(_volumes(name, service, base, file.volumes or {}))),
        **(tried(lambda: dict(_extensions(name, service))) or {}),
    }
    command = tried(_command, name, service)
    networks = tried(lambda: tuple(dict.fromkeys(_networks(name, file))))
    if networks and own["network"] == "none":
        own["network"] = "rules"  # what allow allows, and the other services
    elif networks and own["network"] == "host":
        why = "a service with the network of this machine is in no other"
        problems.append(invalid_key(name, "networks", why, "set network_mode: host"))
    health = tried(_health, name, service)
    needs = tried(lambda: tuple(_needs(name, file)))
    if len(problems) > before:
        return None
    config = tried(validated, CayConfig, own, _subject(name))
    return config and Service(
        name,
        config,
        command,
        is_default=bool(service.x_default),
        networks=networks,
        health=health,
        needs=needs,
        image=image,
        build=_build(service, base) if image else None,
        warnings=tuple(_warnings(name, service)),
    )


def _extensions(name: str, service: Any) -> Iterator[tuple[str, Any]]:
    """Keys such as x-cay-disk, for settings that compose does not have."""
    for key, value in service.extensions.items():
        wanted = key.removeprefix("x-cay-")
        if wanted == key or wanted == "template":
            continue
        if wanted not in CayConfig.model_fields:
            raise invalid_key(
                name,
                key,
                "unknown setting",
                f"use one of: {', '.join(CayConfig.model_fields)}",
            )
        yield wanted, tuple(value) if isinstance(value, list) else value


def _warnings(name: str, service: Any) -> Iterator[str]:
    for key, what in _IGNORED.items():
        if getattr(service, key) not in (None, [], {}):
            yield f"{_subject(name)}: {key} is ignored: {what}"


def _unsupported(name: str, service: Any) -> Iterator[SandboxValueError]:
    """A problem for each key that a sandbox does not support."""
    cannot = "not supported in a sandbox"
    for key in type(service).model_fields:
        given = getattr(service, key)
        if given not in (None, [], {}) and key not in _SUPPORTED | _NO_EFFECT | {*_IGNORED}:
            yield invalid_key(name, key, cannot, "remove it")
    for key in ("privileged", "read_only"):
        if getattr(service, key):
            yield invalid_key(name, key, cannot, _ALTERNATIVES[key])
    if service.restart not in (None, "no"):
        yield invalid_key(name, "restart", cannot, _ALTERNATIVES["restart"])
    for option in service.security_opt or []:
        if option not in ("no-new-privileges", "no-new-privileges:true"):
            why = f"{option!r} is not available"
            yield invalid_key(name, "security_opt", why, "remove it")
    ours = _PLATFORMS.get(platform.machine(), "")
    if service.platform not in (None, ours):
        why = f"{service.platform!r} is not {ours!r}"
        yield invalid_key(name, "platform", why, "remove it")


# --- The image ---------------------------------------------------------------------------


def _template(name: str, service: Any, base: Path) -> tuple[str, str]:
    """The template, and the image for it."""
    given = service.extensions.get("x-cay-template")
    if given is not None:
        return template_from(str(given), base) or "", ""
    if service.image:
        return image_template(service.image), service.image
    if service.build is None:
        raise invalid_key(
            name,
            "image",
            "the service has neither an image nor a build",
            "add one, or set a template with x-cay-template",
        )
    image = _project_image(base, name)
    return image_template(image), image


def _build(service: Any, base: Path) -> Build | None:
    given = service.build
    if given is None:
        return None
    is_plain = isinstance(given, str)
    context = base / ((given if is_plain else given.context) or ".")
    name = (None if is_plain else given.dockerfile) or "Dockerfile"
    cache = is_plain or not given.no_cache
    return Build(str(context.resolve()), str((context / name).resolve()), cache)


def _project_image(directory: Path, service: str) -> str:
    """The name that `docker compose build` gives the image of a service."""
    project = re.sub(r"[^a-z0-9_-]", "", directory.name.lower()).lstrip("_-")
    return f"{project or 'default'}-{service}"


# --- Limits ------------------------------------------------------------------------------


def _limits(service: Any) -> Any:
    resources = service.deploy.resources if service.deploy is not None else None
    return resources.limits if resources is not None else None


def _memory(service: Any) -> str | None:
    limits = _limits(service)
    found = service.mem_limit or (limits.memory if limits is not None else None)
    return None if found is None else str(found)


def _cpus(name: str, service: Any) -> float | None:
    _refuse_devices(name, service)
    limits = _limits(service)
    found = service.cpus or (limits.cpus if limits is not None else None)
    return _number(name, "cpus", float, found) if found else None


def _number(name: str, key: str, kind: Callable[[Any], _Number], given: Any) -> _Number:
    try:
        return kind(given)
    except ValueError:
        raise invalid_key(name, key, f"invalid number {given!r}", "correct it") from None


def _refuse_devices(name: str, service: Any) -> None:
    resources = service.deploy.resources if service.deploy is not None else None
    reserved = resources.reservations if resources is not None else None
    if reserved is not None and reserved.devices:
        raise invalid_key(
            name,
            "deploy.resources.reservations.devices",
            "a sandbox has no devices",
            "remove it",
        )


def _pids(name: str, service: Any) -> int | None:
    if service.pids_limit is None:
        return None
    count = _number(name, "pids_limit", int, service.pids_limit)
    if count <= 0:
        raise invalid_key(name, "pids_limit", "the limit must be positive", "set a number")
    return count


# --- Other services ----------------------------------------------------------------------


def _network_problems(networks: Mapping[str, Any]) -> Iterator[SandboxValueError]:
    """Of the file's networks; each sample gets its own."""
    for network, given in networks.items():

        def problem(why: str, hint: str, network: str = network) -> SandboxValueError:
            return SandboxValueError(
                f"networks: {network}: {why}", subject=COMPOSE_SUBJECT, hint=hint
            )

        longest = _NETWORK_MAX - NETWORK_PREFIX
        if not _NETWORK_NAME.fullmatch(network) or len(network) > longest:
            hint = f"use up to {longest} letters, digits, '_', '.' and '-'"
            yield problem("invalid name", hint)
        for key, value in _mapping(given).items():
            if key not in _NETWORK_KEYS and not str(key).startswith("x-"):
                yield problem(f"{key}: not supported", "remove it")
            elif key == "driver" and value not in ("bridge", "default"):
                yield problem(f"driver: {value!r} is not available", "remove it")


def _networks(name: str, file: Any) -> Iterator[str]:
    """The networks of a service, as NETWORK:NAME.  The only service of a file is in none,
    unless it says so."""
    service, known = file.services[name], {"default", *(file.networks or {})}
    given = service.networks or ([] if len(file.services) == 1 else ["default"])
    if service.network_mode is not None:
        if service.networks:
            why = "a service with network_mode is in no network"
            raise invalid_key(name, "networks", why, "remove one of the two keys")
        return
    length = 0
    for network in given:
        member = _mapping(given[network]) if isinstance(given, dict) else {}
        if network not in known:
            hint = "add it to the networks of the file"
            raise invalid_key(name, "networks", f"there is no network {network!r}", hint)
        for key in member.keys() - _MEMBER_KEYS:
            why = f"{network}: {key}: not supported"
            raise invalid_key(name, "networks", why, "remove it")
        for host in (name, *(member.get("aliases") or ())):
            if not _HOST_NAME.fullmatch(str(host)) or host.lower() == "localhost":
                hint = "use letters, digits, '-' and '_', and not only digits"
                raise invalid_key(name, "networks", f"invalid host name {host!r}", hint)
            length += NETWORK_PREFIX + len(f"{network}:{host} ")
            yield f"{network}:{host.lower()}"
    if length > _NAMES_MAX + 1:
        why = "the names of the service in its networks are too long"
        raise invalid_key(name, "networks", why, "use fewer aliases, or shorter names")


def _collisions(services: Iterable[Service]) -> Iterator[SandboxValueError]:
    owners: dict[str, str] = {}
    for service in services:
        for one in service.networks:
            owner = owners.setdefault(one, service.name)
            if owner != service.name:
                network, _, host = one.partition(":")
                why = f"{host!r} is a name of {owner!r} in the network {network!r}, too"
                yield invalid_key(service.name, "networks", why, "use another alias")


def _health(name: str, service: Any) -> Health | None:
    try:
        return health_of(service.healthcheck)
    except SandboxValueError as error:
        raise invalid_key(name, "healthcheck", error.message, error.hint) from None


def _needs(name: str, file: Any) -> Iterator[tuple[str, str]]:
    given = file.services[name].depends_on or {}
    if not isinstance(given, dict):
        given = dict.fromkeys(given, {})
    for other, how in given.items():
        how = _mapping(how)
        condition = how.get("condition", "service_started")
        if other not in file.services:
            if how.get("required") is False:
                continue
            why = f"there is no service {other!r}"
            raise invalid_key(name, "depends_on", why, "correct the name, or remove it")
        if condition not in _CONDITIONS:
            why = f"unknown condition {condition!r} of {other!r}"
            raise invalid_key(name, "depends_on", why, f"use {' or '.join(_CONDITIONS)}")
        key, has_key = _CONDITIONS[condition]
        if not has_key(file.services[other]):
            why = f"{condition} of {other!r}, which has no {key}"
            hint = f"add a {key} to {other!r}, or use service_started"
            raise invalid_key(name, "depends_on", why, hint)
        yield other, condition


def _has_check(service: Any) -> bool:
    check = service.healthcheck
    return check is not None and check.test not in (None, ["NONE"])


_CONDITIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "service_started": ("", lambda service: True),
    "service_healthy": ("healthcheck", _has_check),
    "service_completed_successfully": (
        "command",
        lambda service: bool(service.command or service.entrypoint),
    ),
}


def start_order(services: Iterable[Service]) -> list[Service]:
    """Each service after those that it depends on; CycleError."""
    by_name = {one.name: one for one in services}
    graph = {name: [other for other, _ in one.needs] for name, one in by_name.items()}
    order = TopologicalSorter(graph).static_order()
    return [by_name[name] for name in order if name in by_name]


def _cycles(services: Iterable[Service]) -> Iterator[SandboxValueError]:
    try:
        start_order(services)
    except CycleError as error:
        circle = " on ".join(map(repr, error.args[1][::-1]))
        yield SandboxValueError(
            f"depends_on: {circle}: services that wait for each other",
            subject=COMPOSE_SUBJECT,
            hint="remove one of the dependencies",
        )


# --- Network, variables, volumes, command ------------------------------------------------


def _network(name: str, service: Any) -> str:
    mode = service.network_mode or "none"
    if mode not in ("none", "host"):
        raise invalid_key(
            name,
            "network_mode",
            f"{mode!r} is not available",
            "use none (only loopback) or host (this machine's network)",
        )
    return str(mode)


def _environment(
    name: str, service: Any, base: Path, variables: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    given = dict(_given_variables(service.environment or {}, variables))
    files = service.env_file or []
    for file in [files] if isinstance(files, str) else files:
        try:
            found = read_env_file(base / file, {**variables, **given})
        except (OSError, UnicodeDecodeError) as error:
            raise invalid_key(
                name, "env_file", str(error), "use a file with lines NAME=value"
            ) from error
        yield from found.items()
    yield from given.items()


def _given_variables(
    given: list[str] | dict[str, str | None], variables: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    if isinstance(given, list):
        split = (line.partition("=") for line in given)
        given = {name: value if equals else None for name, equals, value in split}
    for name, value in given.items():
        # A name without a value has that of the environment, if it is set there.
        found = variables.get(name) if value is None else value
        if found is not None:
            yield name, found


def _volumes(
    name: str, service: Any, base: Path, known: Mapping[str, Any]
) -> Iterator[str]:
    for volume in service.volumes or []:
        if isinstance(volume, str):
            source, target, mode = _short_volume(name, volume)
        elif volume.type in ("bind", "volume") and volume.source and volume.target:
            _refuse_options(name, volume, base)
            source, target = volume.source, volume.target
            mode = "ro" if volume.read_only else "rw"
        else:
            raise invalid_key(
                name,
                "volumes",
                f"a volume of type {volume.type!r} is not supported",
                "use a bind mount: SOURCE:TARGET",
            )
        is_named = isinstance(volume, str) and not source.startswith(("/", ".", "~"))
        if is_named or getattr(volume, "type", "") == "volume":
            source = _named_volume(name, source, target, known)
        else:
            source = str(_directory(source, base))
        yield f"{source}:{target}:{mode}"


def _named_volume(
    name: str, source: str, target: str, known: Mapping[str, Any]
) -> str:
    """An external one is that of `cay volume create`: it outlives the samples, and they
    share it.  Others are created for each sample, and removed with it."""
    if source not in known:
        raise invalid_key(
            name,
            "volumes",
            f"the volume {source!r} is not declared",
            f"add it to the volumes of the file, or use a directory: ./{source}:{target}",
        )
    given = _mapping(known[source])
    external = given.get("external") is True
    for key in given.keys() - {"external", "name", "labels"}:
        why = f"{source}: {key}: not supported"
        raise invalid_key(name, "volumes", why, "remove it")
    if not external and "name" in given:
        why = f"{source}: name: only an external volume has a name of its own"
        raise invalid_key(name, "volumes", why, "set external: true, or remove it")
    found = str(given.get("name", source))
    if not is_volume(found) or not (external or len(found) <= _VOLUME_NAME_MAX):
        hint = "use one without a slash"
        if not external:
            hint += f", of at most {_VOLUME_NAME_MAX} characters"
        raise invalid_key(name, "volumes", f"{source}: invalid name {found!r}", hint)
    return found if external else SAMPLE_VOLUME + found


def of_sample(volume: str, sample: str) -> str:
    """The volume of this sample, if it is one that is created for each."""
    if not volume.startswith(SAMPLE_VOLUME):
        return volume
    return f"{SAMPLE_VOLUME}{sample}.{volume.removeprefix(SAMPLE_VOLUME)}"


def _directory(source: str, base: Path) -> Path:
    return (base / Path(source).expanduser()).resolve()


def _refuse_options(name: str, volume: Any, base: Path) -> None:
    """Options of the long form that are not supported."""
    for kind in ("bind", "volume", "tmpfs", "image"):
        options = getattr(volume, kind, None)
        for key in type(options).model_fields if options is not None else ():
            given = getattr(options, key)
            if given is not None and key not in ("create_host_path", "selinux"):
                raise invalid_key(
                    name, "volumes", f"{kind}.{key} is not supported", "remove it"
                )
            if key == "create_host_path" and given:
                if not _directory(volume.source, base).is_dir():
                    raise invalid_key(
                        name,
                        "volumes",
                        f"{volume.source!r} does not exist and is not created",
                        "create the directory, and remove create_host_path",
                    )


def _short_volume(name: str, volume: str) -> tuple[str, str, str]:
    source, *rest = volume.split(":")
    modes = set(rest[1].split(",")) - {"z", "Z", "rw", "ro"} if len(rest) == 2 else set()
    if len(rest) not in (1, 2) or modes:
        raise invalid_key(
            name, "volumes", f"{volume!r} is not supported", "use SOURCE:TARGET:ro"
        )
    read_only = len(rest) == 2 and "ro" in rest[1].split(",")
    return source, rest[0], "ro" if read_only else "rw"


def _command(name: str, service: Any) -> tuple[str, ...]:
    words = _words(name, "entrypoint", service) + _words(name, "command", service)
    return () if words in _IDLE else tuple(words)


def _words(name: str, key: str, service: Any) -> list[str]:
    given = getattr(service, key) or []
    try:
        return shlex.split(given) if isinstance(given, str) else list(given)
    except ValueError as error:
        hint = "close the quotes, or use a list of words"
        raise invalid_key(name, key, f"{given!r}: {error}", hint) from None
