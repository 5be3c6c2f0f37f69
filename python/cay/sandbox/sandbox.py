# SPDX-License-Identifier: Apache-2.0
"""A sandbox: made, found, used and ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import POINTER, byref, c_size_t, c_void_p, sizeof
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from cay import _lib, _sandbox_lib
from cay._owner import Owner
from cay.filesystem.config import SandboxConfig
from cay.sandbox import options as _options
from cay.sandbox.arguments import helpful
from cay.sandbox.errors import (
    SandboxExecError,
    SandboxNotFoundError,
    TemplateNotFoundError,
    error_of,
)
from cay.sandbox.files import SandboxFiles
from cay.sandbox.handles import Handles, open_handle
from cay.sandbox.options import (
    Command,
    Layer,
    Network,
    Policy,
    Rung,
    Size,
    Storage,
    Volumes,
)
from cay.sandbox.process import Process
from cay.sandbox.results import ExecResult, Output, ProcessInfo, SandboxInfo, layer_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Sandbox"]

OnOutput = Callable[[Output], object]
_Self = TypeVar("_Self", bound="Sandbox")


class ExecOptions(TypedDict, total=False):
    """What exec() takes beside the command."""

    input: str | bytes | None
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    user: str | int | None
    timeout: float | None
    output_limit: Size | None
    fail_on_limit: bool
    on_output: OnOutput | None


class Sandbox(Owner):
    """A place of its own on this machine in which commands run.

    Use it from any number of threads.  As a context manager it is killed at the end;
    otherwise it lives on when this object is gone, unless it is ephemeral, and
    Sandbox.open() finds it again from any process of the same user.
    """

    _instead = "pickle its id, and Sandbox.open(id) finds it again"

    def __init__(self, handles: Handles) -> None:
        """Use create() or open()."""
        self._handles = handles

    @classmethod
    @helpful
    def create(
        cls: type[_Self],
        template: str | os.PathLike[str] | None = None,
        *,
        memory: Size | None = None,
        disk: Size | None = None,
        pids: int | None = None,
        cpus: float | None = None,
        network: Network = "none",
        volumes: Volumes | None = None,
        env: Mapping[str, str] | None = None,
        policy: SandboxConfig | str | os.PathLike[str] | None = None,
        ttl: float | None = None,
        user: str | int | None = None,
        workdir: str | None = None,
        make_workdir: bool = False,
        hostname: str | None = None,
        storage: Storage = "memory",
        require: Iterable[Layer] = (),
        rung: Rung = "best",
        ephemeral: bool = False,
        name: str | None = None,
    ) -> _Self:
        """Makes one.

        ``template`` is "host" (this machine's programs, the default), a name that
        cay.templates() lists, or a directory.  Sizes are bytes or "512M"; ``ttl`` is the
        seconds after which it ends by itself.  ``volumes`` shows host directories inside;
        ``policy`` shows those of a cay.filesystem configuration, or of a YAML file, with
        their rules.  ``require`` names layers without which it must not start.  One that
        is ``ephemeral`` dies with this process, however that ends.  With ``make_workdir`` a
        ``workdir`` that is not there is made, and the user's.  open() also takes its ``name``;
        SandboxExistsError if another sandbox has it.
        """
        array, count = _options.bind_array(volumes)
        with Policy(policy) as c_policy:
            made = _sandbox_lib.SandboxOptions(
                size=sizeof(_sandbox_lib.SandboxOptions),
                template_name=_template(template),
                memory_bytes=_size(memory, "memory"),
                disk_bytes=_size(disk, "disk"),
                pids=_size(pids, "pids", _options.PIDS_MAX),
                cpu_percent=_options.cpu_percent(cpus),
                network=_options.choice(network, _sandbox_lib.NETWORKS, "network"),
                binds=array,
                bind_count=count,
                env=_options.environment(env),
                hostname=_options.optional(hostname, "hostname"),
                require=_options.layers(require),
                ephemeral=ephemeral,
                policy=c_policy,
                ttl_ms=_options.milliseconds(ttl, "ttl"),
                user=None if user is None else _options.text(str(user), "user"),
                workdir=_options.optional(workdir, "workdir"),
                make_workdir=make_workdir,
                storage=_options.choice(storage, _sandbox_lib.STORAGES, "storage"),
                rung=_options.choice(rung, _sandbox_lib.RUNGS_ASKED_FOR, "rung"),
                name=_options.optional(name, "name"),
            )
            return cls(_create(made, template))

    @classmethod
    def open(cls: type[_Self], id: str) -> _Self:
        """One that exists, by id or name; SandboxNotFoundError if there is none."""
        handle = open_handle(id)
        return cls(Handles(_sandbox_lib.sandbox_id(handle).decode(), handle))

    @staticmethod
    def collect() -> int:
        """Cleans up after sandboxes and makers that ended by themselves; how many."""
        count, err = c_size_t(), _lib.Error()
        if _sandbox_lib.sandbox_collect(byref(count), byref(err)):
            raise error_of(err)
        return count.value

    @property
    def id(self) -> str:
        return self._handles.id

    @cached_property
    def layers(self) -> frozenset[str]:
        """What keeps it in: "seccomp", "memory", ..."""
        with self._handles.borrow() as handle:
            return layer_names(_sandbox_lib.sandbox_layers(handle))

    @cached_property
    def files(self) -> SandboxFiles:
        """Its files, with the rights of its default user."""
        return SandboxFiles(self._handles)

    def __repr__(self) -> str:
        return f"Sandbox({self.id!r})"

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        sandbox: Sandbox = self
        try:
            if self._handles.is_closed:  # which ends an ephemeral one only
                sandbox = Sandbox.open(self.id)
            sandbox.remove()
        except SandboxNotFoundError:
            pass  # killed before, or its time was over
        finally:
            sandbox.close()

    def close(self) -> None:
        """Lets go of it; it lives on unless it is ephemeral."""
        if "files" in self.__dict__:
            self.files.close()
        self._handles.close()

    # --- Commands ----------------------------------------------------------------------

    def exec(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        output_limit: Size | None = None,
        fail_on_limit: bool = False,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Runs a command, without a shell, and returns when its first process ends.

        A command that fails, or cannot be started, is a result and not an error.  After
        ``timeout`` seconds it and all it started are dead, and the result has what it
        wrote until then.  Of each stream the last ``output_limit`` bytes are kept (10
        MiB; ``fail_on_limit`` kills it instead).  With ``on_output`` nothing is kept: it
        is called with each piece as it comes.
        """
        command = Command(
            argv,
            input=input,
            cwd=cwd,
            env=env,
            user=user,
            timeout=timeout,
            output_limit=output_limit,
            flags=_sandbox_lib.EXEC_FAIL_ON_LIMIT if fail_on_limit else 0,
        )
        with Process(self._handles) as process:
            try:
                process._start(command)
            except SandboxExecError as error:
                return ExecResult.not_started(error)
            if on_output is not None:
                for output in process:
                    on_output(output)
            return process.wait()

    def shell(self, script: str, **options: Unpack[ExecOptions]) -> ExecResult:
        """exec() of a script for the sandbox's /bin/sh."""
        return self.exec(["/bin/sh", "-c", script], **options)

    def start(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        keep_input: bool = False,
        background: bool = False,
        tty: bool = False,
        size: tuple[int, int] | None = None,
        tag: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        output_limit: Size | None = None,
    ) -> Process:
        """Starts a command and returns at once.

        One in the ``background`` outlives this process: attach() finds it again, by its
        pid or its ``tag``, with the last MiB of each stream.  ``keep_input`` leaves stdin
        open for write(), after ``input`` if there is any.  With ``tty`` it has a terminal
        of ``size`` rows and columns, and all it writes is stream 1.
        """
        flags = (
            (_sandbox_lib.EXEC_INPUT if keep_input else 0)
            | (_sandbox_lib.EXEC_BACKGROUND if background else 0)
            | (_sandbox_lib.EXEC_TTY if tty else 0)
        )
        command = Command(
            argv,
            input=input,
            cwd=cwd,
            env=env,
            user=user,
            timeout=timeout,
            output_limit=output_limit,
            flags=flags,
            tag=tag,
            size=size,
        )
        return Process(self._handles)._start(command)

    def attach(self, which: int | str) -> Process:
        """A background process by its pid or tag, running or not long ended."""
        return Process(self._handles)._attach(_options.text(str(which), "which"))

    def processes(self) -> list[ProcessInfo]:
        """Everything that runs inside, by pid."""
        infos, count = POINTER(_sandbox_lib.ProcessInfo)(), c_size_t()
        self._call(_sandbox_lib.process_list, byref(infos), byref(count))
        found = _sandbox_lib.copied(infos, _sandbox_lib.ProcessInfo, count.value)
        return [ProcessInfo._of(info) for info in found]

    # --- Its life ----------------------------------------------------------------------

    def inspect(self) -> SandboxInfo:
        """Its state, its options, and what it uses now."""
        info = _sandbox_lib.SandboxInfo()
        self._call(_sandbox_lib.sandbox_inspect, byref(info))
        return SandboxInfo._of(info)

    def pause(self) -> None:
        """Stops the clock for everything inside."""
        self._call(_sandbox_lib.sandbox_pause)

    def resume(self) -> None:
        """Lets it go on."""
        self._call(_sandbox_lib.sandbox_resume)

    def set_ttl(self, ttl: float | None) -> None:
        """It ends by itself so many seconds from now; None: it does not."""
        self._call(_sandbox_lib.sandbox_set_ttl, _options.milliseconds(ttl, "ttl"))

    def kill(self) -> None:
        """Ends every process inside.  With storage on disk, restart() brings it back;
        otherwise nothing is left of it."""
        self._call(_sandbox_lib.sandbox_kill)

    def restart(self) -> None:
        """Starts it again after kill(), with the options and files it had."""
        self._call(_sandbox_lib.sandbox_start)
        self._handles.life += 1

    def remove(self) -> None:
        """Kills it, and removes what it has on disk."""
        self._call(_sandbox_lib.sandbox_remove)

    # --- Inside ------------------------------------------------------------------------

    def _call(self, function: Any, *arguments: Any) -> None:
        err = _lib.Error()
        with self._handles.borrow() as handle:
            if function(handle, *arguments, byref(err)):
                raise error_of(err)

    # Last, for it hides the type of the same name.
    @staticmethod
    def list() -> list[SandboxInfo]:
        """Every sandbox of this user, oldest first."""
        infos, count = POINTER(_sandbox_lib.SandboxInfo)(), c_size_t()
        err = _lib.Error()
        if _sandbox_lib.sandbox_list(byref(infos), byref(count), byref(err)):
            raise error_of(err)
        found = _sandbox_lib.copied(infos, _sandbox_lib.SandboxInfo, count.value)
        return [SandboxInfo._of(info) for info in found]


def _create(made: Any, template: str | os.PathLike[str] | None) -> Handles:
    handle, err = c_void_p(), _lib.Error()
    if _sandbox_lib.sandbox_create(byref(made), byref(handle), byref(err)):
        no_template = err.code == TemplateNotFoundError.code and (
            template is not None and err.subject == _template(template)
        )
        raise error_of(err, cls=TemplateNotFoundError if no_template else None)
    assert handle.value is not None
    id = _sandbox_lib.sandbox_id(handle).decode()
    return Handles(id, handle.value, ephemeral=made.ephemeral)


def _template(template: str | os.PathLike[str] | None) -> bytes | None:
    """A name stays one; what has a slash, or is a dot, is a directory here."""
    if template is None:
        return None
    name = os.fspath(template)
    if "/" in name or name in (".", "..") or not isinstance(template, str):
        name = os.path.abspath(name)
    return _options.text(name, "template")


def _size(value: Size | None, what: str, most: int = _lib.U64_MAX) -> int:
    return 0 if value is None else _options.parse_size(value, what, most)
