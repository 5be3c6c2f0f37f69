# SPDX-License-Identifier: Apache-2.0
"""The provider: Inspect's SandboxEnvironment on a native sandbox.

Each call reads the limits, since Inspect changes them during an eval.  Nothing is retried:
there is no transport that could lose a command.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn, overload

from inspect_ai._util.error import PrerequisiteError
from inspect_ai.util import (
    ComposeConfig,
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    is_compose_yaml,
    is_dockerfile,
)
from inspect_ai.util._sandbox.compose import ComposeService
from rich.markup import escape

from cay.errors import (
    CayError,
    SandboxBusyError,
    SandboxNotFoundError,
    SandboxProtocolError,
    SandboxUnsupportedError,
    SandboxValueError,
    TemplateNotFoundError,
    UserNotFoundError,
)
from cay.errors import SandboxUnavailableError as CayUnavailableError
from cay.inspect import cleanup, compose, images, pools
from cay.inspect.cleanup import remove_all, untrack_all
from cay.inspect.config import (
    CONFIG_FILE,
    CayConfig,
    is_path,
    load_config,
    raise_all,
    validated,
)
from cay.inspect.startup import start_all
from cay.inspect.variables import interpolate, metadata_variables
from cay.sandbox import AsyncSandbox, Sandbox
from cay.sandbox import ExecResult as CayResult
from cay.sandbox.event_loop import in_thread

logger = logging.getLogger(__name__)

_COMPOSE_FILES = [
    "compose.yaml",
    "compose.yml",
    "docker-compose.yaml",
    "docker-compose.yml",
    "Dockerfile",
]
# The sandbox does not run, or does not answer.
_UNAVAILABLE = (
    SandboxNotFoundError,
    SandboxBusyError,
    SandboxProtocolError,
    CayUnavailableError,
)
# Errors that a model can cause are results: they must not fail the sample.
_COMMAND_OPS = ("exec.cwd", "exec.clone")
_COMMAND_ERRNOS = (errno.E2BIG, errno.EILSEQ)
# The exit status of a shell that cannot execute a file.
_NOT_EXECUTED = 126


class CaySandboxEnvironment(SandboxEnvironment):
    """A sandbox for a sample; ``sandbox().as_type(CaySandboxEnvironment).sandbox`` is the
    AsyncSandbox, for calls that Inspect does not have."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._workdir: str | None = None

    # --- Commands ----------------------------------------------------------------------

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command, without retries and without Inspect's limit of subprocesses.

        OutputLimitExceededError has the end of an output over the limit.
        """
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            result = await self.sandbox.exec(
                cmd,
                input=input,
                cwd=await self._directory(cwd, user),
                env=env,
                user=user or None,
                timeout=timeout,
                output_limit=limit,
            )
        except CayError as error:
            if isinstance(error, UserNotFoundError) or (
                error.op in _COMMAND_OPS or error.errno in _COMMAND_ERRNOS
            ):
                return ExecResult(False, _NOT_EXECUTED, "", f"{error}\n")
            self._raise(error, user)
        return self._result(result, cmd, timeout, limit)

    async def _directory(self, cwd: str | None, user: str | None) -> str | None:
        """Starts the commands of every user in the sample's working directory, where its
        files are; the sandbox would start other users in their homes."""
        if not user or (cwd and cwd.startswith("/")):
            return cwd
        if self._workdir is None:
            # Not from PATH, where a program may have put another shell.
            result = await self.sandbox.shell("pwd", timeout=30)
            if result.exit_code != 0:
                return cwd
            self._workdir = result.stdout.removesuffix("\n")
        return f"{self._workdir}/{cwd or ''}"

    def _result(
        self, result: CayResult, cmd: list[str], timeout: int | None, limit: int
    ) -> ExecResult[str]:
        if result.cause == "gone":
            raise SandboxUnavailableError(
                f"The sandbox {self.sandbox.id} ended while the command ran."
            )
        if result.cause == "not-started":
            return _not_started(result, cmd)
        stdout, stderr = (
            _Text(result.stdout_bytes, limit),
            _Text(result.stderr_bytes, limit),
        )
        if result.cause == "timeout":
            late = TimeoutError(f"Command timed out after {timeout} seconds")
            late.truncated_output = stdout.text + stderr.text  # type: ignore[attr-defined]
            raise late
        dropped = result.stdout_dropped + result.stderr_dropped
        if dropped or stdout.is_cut or stderr.is_cut:
            raise OutputLimitExceededError(
                limit_str=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR,
                truncated_output=stdout.text + stderr.text,
            )
        errors = stderr.text
        if result.cause == "memory":
            errors += "killed: the sandbox's memory limit was reached\n"
        return ExecResult(result.exit_code == 0, result.exit_code, stdout.text, errors)

    # --- Files -------------------------------------------------------------------------

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file in place as the default user, and creates missing directories."""
        try:
            await self.sandbox.files.write(file, contents, in_place=True)
        except CayError as error:
            self._raise(error)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Reads a file as the default user; text must be UTF-8 and keeps its line ends."""
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.sandbox.files.read_bytes(file, limit + 1)
        except CayError as error:
            self._raise(error)
        if len(data) > limit:
            raise OutputLimitExceededError(
                limit_str=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR,
                truncated_output=None,
            )
        return data.decode() if text else data

    def _raise(self, error: CayError, user: str | None = None) -> NoReturn:
        """Raises the exception that Inspect has for it."""
        # An invalid value whose subject is the sandbox: its handle is closed.
        is_closed = isinstance(error, SandboxValueError) and error.subject == self.sandbox.id
        if is_closed or isinstance(error, _UNAVAILABLE):
            raise SandboxUnavailableError(str(error)) from error
        if user and isinstance(error, SandboxUnsupportedError):
            raise SandboxUserUnsupportedError(str(error)) from error
        with _full_message():
            raise error

    # --- Connection --------------------------------------------------------------------

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """The command for a shell in the sandbox; ConnectionError if it does not run."""
        try:
            state = (await self.sandbox.inspect()).state
        except CayError as error:
            raise ConnectionError(f"The sandbox is not running: {error}") from error
        if state != "running":
            raise ConnectionError(f"The sandbox {self.sandbox.id} is {state}.")
        words = ["cay", "shell", *(["-u", user] if user else []), self.sandbox.id]
        return SandboxConnection(
            type="cay", command=shlex.join(words), ports=None, container=self.sandbox.id
        )

    def default_polling_interval(self) -> float:
        return 0.2

    @classmethod
    def default_concurrency(cls) -> int | None:
        return None

    # --- Configuration -----------------------------------------------------------------

    @classmethod
    def config_files(cls) -> list[str]:
        return [CONFIG_FILE, *_COMPOSE_FILES]

    @classmethod
    def is_docker_compatible(cls) -> bool:
        return True

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> CayConfig:
        return CayConfig.model_validate(config)

    # --- Lifecycle ----------------------------------------------------------------------

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        """Checks the configuration and its templates, before any sample starts."""
        with _full_message(), _without_traceback():
            await in_thread(_prepare, task_name, config)

    @classmethod
    async def task_init_environment(
        cls, config: Any, metadata: dict[str, str]
    ) -> dict[str, str]:
        """The metadata that a compose file refers to, for task_init()."""
        if isinstance(config, ComposeConfig):
            content = config.model_dump_json(by_alias=True, exclude_none=True)
        elif _is_compose_file(config := _file(config)):
            content = Path(config).read_text(encoding="utf-8")
        else:
            return {}
        named = metadata_variables(metadata)
        if "env_file" in content:
            return named  # such a file may refer to any
        return {name: value for name, value in named.items() if name in content}

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        environments: dict[str, SandboxEnvironment] = {}
        sample = secrets.token_hex(compose.NETWORK_PREFIX // 2)
        try:
            with _full_message():
                services = await in_thread(_services, config, metadata)
                sandboxes = {}
                for service in services:
                    sandbox = await _create(service, sample)
                    sandboxes[service.name] = sandbox
                    environments[service.name] = cls(sandbox)
                    volumes = _volumes(service, sample)
                    cleanup.track(sandbox.sync, service.config.ephemeral, volumes)
                await start_all(services, sandboxes)
        except BaseException:
            await in_thread(_remove_all, environments)
            await in_thread(cleanup.remove_volumes, sample)
            raise
        return environments

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        with _full_message():
            await in_thread(_remove_all, environments)

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool) -> None:
        """Removes the remaining sandboxes; without ``cleanup``, prints how to."""
        await in_thread(pools.end, task_name)
        if cleanup:
            with _full_message():
                await in_thread(remove_all)
            return
        for line in untrack_all():
            print(line, file=sys.stderr)

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Removes the sandbox with this id, or all of earlier evals; an error ends the
        command, since Inspect would print only a traceback."""
        try:
            await in_thread(cleanup.remove, id)
        except CayError as error:
            raise SystemExit(f"cay: {error}") from None


class _Text:
    """The end of a stream as text that fits into the limit when it is encoded again: each
    byte that is not UTF-8 becomes three bytes."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.text = data.decode("utf-8", "replace")
        self.is_cut = False
        if len(data) * 3 > limit:
            encoded = self.text.encode()
            self.is_cut = len(encoded) > limit
            if self.is_cut:
                self.text = encoded[len(encoded) - limit :].decode("utf-8", "ignore")


def _not_started(result: CayResult, cmd: list[str]) -> ExecResult[str]:
    if result.exec_errno in (errno.EACCES, errno.EPERM):
        what, _, why = result.reason.rpartition(": ")
        raise PermissionError(result.exec_errno, why, what or cmd[0])
    return ExecResult(False, result.exit_code, "", f"{result.reason}\n")


@contextmanager
def _full_message() -> Iterator[None]:
    """Inspect logs only the `message` of an exception: puts the whole text into it."""
    try:
        yield
    except CayError as error:
        error.restate(str(error))
        raise


class _InvalidConfig(SandboxValueError, PrerequisiteError):
    """Inspect prints no traceback of a PrerequisiteError, only its message."""


class _TemplateMissing(TemplateNotFoundError, PrerequisiteError):
    pass


@contextmanager
def _without_traceback() -> Iterator[None]:
    """Errors in the configuration as PrerequisiteErrors, printed with rich's markup."""
    try:
        yield
    except (SandboxValueError, TemplateNotFoundError) as error:
        is_value = isinstance(error, SandboxValueError)
        cls = _InvalidConfig if is_value else _TemplateMissing
        raise cls(escape(str(error)), code=error.code, op=error.op) from None


# --- Sandboxes from a configuration ----------------------------------------------------


def _file(config: Any) -> Any:
    """The path; normalised if it does not exist, as in "task.py/../x.yaml"."""
    if isinstance(config, str) and not os.path.exists(config):
        return os.path.normpath(config)
    return config


def _is_compose_file(config: Any) -> bool:
    """Whether its name is that of a compose file, or it has services."""
    import yaml

    if not isinstance(config, str) or is_dockerfile(config):
        return False
    if is_compose_yaml(config):
        return True
    try:
        content = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False  # load_config() reports why
    return isinstance(content, dict) and "services" in content


def _services(config: Any, metadata: Mapping[str, Any]) -> list[compose.Service]:
    config = _file(config)
    if config is None:
        return [compose.Service("default", CayConfig())]
    if isinstance(config, CayConfig):
        return [compose.Service("default", config)]
    if isinstance(config, str) and is_dockerfile(config):
        return [compose.dockerfile_service(config)]
    if isinstance(config, ComposeConfig) or _is_compose_file(config):
        return _compose_services(config, metadata)
    if isinstance(config, str):
        return [compose.Service("default", load_config(config))]
    raise TypeError(
        f"sandbox 'cay' takes a CayConfig, a compose file or a configuration file, "
        f"not {type(config).__name__}"
    )


def _compose_services(config: Any, metadata: Mapping[str, Any]) -> list[compose.Service]:
    import yaml

    if isinstance(config, str):
        base = Path(config).resolve().parent
        raw = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    else:
        base = Path.cwd()
        raw = config.model_dump(by_alias=True, exclude_none=True)
    environment = {**os.environ, **metadata_variables(metadata)}
    content = compose.as_inspect_reads(interpolate(raw, environment), base)
    problems = compose.take_unknown(content, (ComposeConfig, ComposeService))
    try:
        model = validated(ComposeConfig, content, compose.COMPOSE_SUBJECT)
        services = compose.services_of(model, base, environment)
    except SandboxValueError as error:
        problems.append(error)
    raise_all(problems, compose.COMPOSE_SUBJECT)
    return services


def _prepare(task_name: str, config: Any) -> None:
    Sandbox.collect()
    services = _services(config, {})
    for warning in [text for service in services for text in service.warnings]:
        logger.warning(warning)
    images.prepare(services, compose.COMPOSE_SUBJECT)
    pools.begin(task_name, [service.config for service in services])


def _volumes(service: compose.Service, sample: str) -> list[str]:
    return [compose.of_sample(one, sample) for one in service.config.volumes]


async def _create(service: compose.Service, sample: str) -> AsyncSandbox:
    volumes = _volumes(service, sample)
    await in_thread(cleanup.make_volumes, volumes)
    try:
        return await AsyncSandbox.create(
            **{**service.config.options(), "volumes": volumes},
            networks=[f"{sample}-{one}" for one in service.networks],
            pool=pools.find(service.config),
        )
    except TemplateNotFoundError:
        raise images.no_template(service) from None


def _remove_all(environments: Mapping[str, SandboxEnvironment]) -> None:
    for environment in environments.values():
        cleanup.remove_one(environment.as_type(CaySandboxEnvironment).sandbox.sync)
