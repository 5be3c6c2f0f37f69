# SPDX-License-Identifier: Apache-2.0
"""A sandbox: create or open it, run commands, remove it."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_size_t, c_uint64, c_void_p, sizeof
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar

from cay import _c
from cay.errors import (
    SandboxExecError,
    SandboxNotFoundError,
    SandboxValueError,
    TemplateNotFoundError,
)
from cay.filesystem.config import SandboxConfig
from cay.sandbox import options as _options
from cay.sandbox.code import CodeMethods, SavedContexts
from cay.sandbox.files import SandboxFiles
from cay.sandbox.handles import Handles, open_handle
from cay.sandbox.checkpoint import Checkpoint, Rollback
from cay.sandbox.network import NetworkEvent, NetworkInfo, network_of
from cay.sandbox.options import (
    Command,
    Layer,
    Level,
    Network,
    Policy,
    Secret,
    Size,
    Spares,
    Storage,
    Volumes,
)
from cay.sandbox.process import Process
from cay.sandbox.results import ExecResult, Output, ProcessInfo, SandboxInfo, layer_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

OnOutput = Callable[[Output], object]
_Self = TypeVar("_Self", bound="Sandbox")


class CommandOptions(TypedDict, total=False):
    """The options of exec() and start()."""

    input: str | bytes | None
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    user: str | int | None
    timeout: float | None
    output_limit: Size | None


class ExecOptions(CommandOptions, total=False):
    """The options of exec()."""

    fail_on_limit: bool
    on_output: OnOutput | None


_P = ParamSpec("_P")
_R = TypeVar("_R")

# Names that other sandboxes have for the arguments of create().
_OTHER_NAMES = {
    "cpu": "cpus=",
    "cpu_count": "cpus=",
    "cwd": "workdir=",
    "work_dir": "workdir=",
    "working_dir": "workdir=",
    "environment": "env=",
    "envs": "env=",
    "image": "template=, the name of a template: cay template create NAME --from-oci FILE",
    "lifetime": "ttl=",
    "mem_limit": "memory=",
    "mounts": "volumes=",
    "timeout": "ttl= for the life of the sandbox, or exec(timeout=) for a command",
}


def _suggest_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A TypeError about an unknown keyword argument suggests the right one."""
    known = list(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                other = _OTHER_NAMES.get(name) or (f"{near[0]}=" if near else None)
                hint = f"use {other}" if other else f"it takes {', '.join(known)}"
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument "
                    f"{name!r}; {hint}"
                )
        return function(*args, **kwargs)

    return checked


class Sandbox(CodeMethods, _c.Owner):
    """An isolated environment on this machine in which commands run.

    It can be used from any number of threads.  As a context manager it is removed at the
    end.  Otherwise it outlives this object, unless it is ephemeral, and any process of
    the same user can open it with Sandbox.open().
    """

    _instead = "pickle its id and open it with Sandbox.open(id)"

    def __init__(self, handles: Handles) -> None:
        """Use create() or open()."""
        self._handles = handles

    @classmethod
    @_suggest_arguments
    def create(
        cls: type[_Self],
        template: str | os.PathLike[str] | None = None,
        *,
        memory: Size | None = None,
        disk: Size | None = None,
        pids: int | None = None,
        cpus: float | None = None,
        network: Network = "none",
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        networks: Iterable[str] = (),
        secrets: Iterable[Secret] = (),
        network_limit: str | None = None,
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
        level: Level = "best",
        ephemeral: bool = False,
        name: str | None = None,
        pool: Spares | None = None,
        from_: str | None = None,
        checkpoint_each: bool = False,
        approve: Iterable[str] = (),
        approve_scope: str | None = None,
        approve_timeout: float | None = None,
        approve_egress: bool = False,
    ) -> _Self:
        """Creates a sandbox.

        ``template`` is "host" (this machine's programs, the default), a name in
        cay.templates(), or a directory.  Sizes are bytes or "512M"; ``ttl`` is the time to
        live in seconds.  ``volumes`` makes host directories visible, and a cay.Volume
        by its name; ``policy`` does so for the directories of a cay.filesystem
        configuration, or of a YAML file, with their rules.
        ``allow`` and ``deny`` are network rules as of --allow and --deny: "pypi",
        "api.example.com:443"; see cay.explain_network().  ``secrets`` are put into requests
        outside the sandbox: cay.Secret describes them.  Sandboxes that join the same of
        ``networks``, as "NETWORK" or "NETWORK:NAME", reach each other's TCP ports by name.
        ``network_limit`` is "connections=64,bytes=1G,rate=10M", or some of them.
        ``require`` names isolation layers without which it must not start.  An
        ``ephemeral`` sandbox ends with this process.  ``make_workdir`` creates a missing
        ``workdir``, owned by the user.  open() also takes the ``name``; SandboxExistsError
        if another sandbox has it.  A spare of the ``pool`` is used if one fits.  ``from_``
        is "ID" or "ID:CHECKPOINT": see fork().  ``checkpoint_each`` creates a checkpoint
        before each command.

        Commands that match a pattern of ``approve``, like "git push*", wait for approval
        before they start: ApprovalError if they do not get it within
        ``approve_timeout`` seconds.  With ``approve_egress`` connections to hosts that no
        rule names wait, too, outside of the sandbox; "cay approve watch ID" requests their
        approval.  See cay.approvals.
        """
        array, count = _options.bind_array(volumes)
        secret_array, secret_count = _options.secret_array(secrets)
        wait_ms = _options.milliseconds(approve_timeout, "approve_timeout")
        egress_ms = (wait_ms or _options.APPROVE_MS) if approve_egress else 0
        with Policy(policy) as c_policy:
            c_network = c_policy.add_network(network, allow, deny, network_limit, egress_ms)
            options = _c.SandboxOptions(
                size=sizeof(_c.SandboxOptions),
                template_name=_options.template_name(template),
                memory_bytes=_options.size(memory, "memory"),
                disk_bytes=_options.size(disk, "disk"),
                pids=_options.size(pids, "pids", _options.PIDS_MAX),
                cpu_percent=_options.cpu_percent(cpus),
                network=c_network,
                binds=array,
                bind_count=count,
                env=_options.environment(env),
                hostname=_options.optional(hostname, "hostname"),
                require=_options.layers(require),
                ephemeral=ephemeral,
                policy=c_policy.pointer,
                ttl_ms=_options.milliseconds(ttl, "ttl"),
                user=None if user is None else _options.text(str(user), "user"),
                workdir=_options.optional(workdir, "workdir"),
                make_workdir=make_workdir,
                storage=_options.choice(storage, _c.STORAGES, "storage"),
                level=_options.choice(level, _c.REQUESTABLE_LEVELS, "level"),
                name=_options.optional(name, "name"),
                networks=_options.strings(networks, "networks"),
                pool=None if pool is None else pool._name,
                secrets=secret_array,
                secret_count=secret_count,
                checkpoint_each=checkpoint_each,
                approve=_options.strings(approve, "approve"),
                approve_scope=_options.optional(approve_scope, "approve_scope"),
                approve_timeout_ms=wait_ms,
                **{"from": _options.optional(from_, "from_")},
            )
            return cls(_create(options, template))

    @classmethod
    def open(cls: type[_Self], id: str) -> _Self:
        """Opens a sandbox by id or name; SandboxNotFoundError if it does not exist."""
        handle = open_handle(id)
        return cls(Handles(_c.sandbox_id(handle).decode(), handle))

    @staticmethod
    def collect() -> int:
        """Removes the remains of sandboxes that have ended; returns how many."""
        count = c_size_t()
        _c.call(_c.sandbox_collect, byref(count))
        return count.value

    @property
    def id(self) -> str:
        return self._handles.id

    @cached_property
    def layers(self) -> frozenset[str]:
        """The active isolation layers: "seccomp", "memory", ..."""
        with self._handles.borrow() as handle:
            return layer_names(_c.sandbox_layers(handle))

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
            if self._handles.is_closed:  # close() ends only an ephemeral sandbox
                sandbox = Sandbox.open(self.id)
            sandbox.remove()
        except SandboxNotFoundError:
            pass  # killed before, or its time to live is over
        finally:
            sandbox.close()

    def close(self) -> None:
        """Closes the handle; the sandbox continues to run unless it is ephemeral."""
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

        If the command fails or cannot be started, the result reports it, without an
        exception.  After ``timeout`` seconds it is killed with its descendants, and the
        result has the output so far.  The result has the last ``output_limit`` bytes of
        each stream (default 10 MiB; ``fail_on_limit`` kills the command instead).
        ``on_output`` is called with each piece of output, which is then not in the result.
        """
        command = Command(
            argv,
            input=input,
            cwd=cwd,
            env=env,
            user=user,
            timeout=timeout,
            output_limit=output_limit,
            flags=_c.EXEC_FAIL_ON_LIMIT if fail_on_limit else 0,
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
        """Runs a script with the sandbox's /bin/sh; options as for exec()."""
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

        A ``background`` command outlives this process: attach() finds it by its pid or
        ``tag``, with the last MiB of each stream.  ``keep_input`` leaves stdin open for
        write(), after ``input``.  With ``tty`` it has a terminal of ``size`` rows and
        columns, and all output is stream 1.
        """
        flags = (
            (_c.EXEC_INPUT if keep_input else 0)
            | (_c.EXEC_BACKGROUND if background else 0)
            | (_c.EXEC_TTY if tty else 0)
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
        """A background process by its pid or tag, running or ended recently."""
        return Process(self._handles)._attach(_options.text(str(which), "which"))

    def processes(self) -> list[ProcessInfo]:
        """All processes in the sandbox, by pid."""
        with self._handles.borrow() as handle:
            infos = _c.listed(_c.process_list, _c.ProcessInfo, handle)
        return [ProcessInfo._of(info) for info in infos]

    # --- State -------------------------------------------------------------------------

    def inspect(self) -> SandboxInfo:
        """Its state, options and resource usage."""
        info = _c.SandboxInfo()
        self._call(_c.sandbox_inspect, byref(info))
        return SandboxInfo._of(info)

    def network(self) -> NetworkInfo:
        """Its network rules, and what was counted."""
        with self._handles.borrow() as handle:
            return network_of(handle)

    def change_network(
        self,
        network: Literal["rules", "open"] | None = None,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        replace: bool = False,
        network_limit: str | None = None,
    ) -> None:
        """Adds network rules, or with ``replace`` replaces all of them.

        ``network_limit`` changes limits: "bytes=none" removes one.

        New connections are decided by them before this returns, and existing ones that
        they do not allow are cut.  The sandbox must have been created with rules.
        """
        number = 0
        if network is not None:
            number = _options.choice(network, {2: "rules", 3: "open"}, "network")
        rules = _options.network_rules(allow, deny)
        config = _options.network_config(number, rules, network_limit)
        self._call(_c.sandbox_change_network, byref(config), replace)

    def network_events(self, after: int = 0) -> list[NetworkEvent]:
        """What it tried to reach: the last 1,024 events, oldest first, with a number
        above ``after``."""
        with self._handles.borrow() as handle:
            events = _c.listed(
                _c.sandbox_network_events, _c.NetworkEvent, handle, after
            )
        return [NetworkEvent._of(event) for event in events]

    def checkpoint(
        self, name: str | None = None, *, stop: bool = False, cause: str | None = None
    ) -> Checkpoint:
        """Saves the state of the files.

        If processes run inside, they are frozen while the files that have changed are
        copied; otherwise, or if ``stop`` ends them first, nothing is copied.  If nothing
        has changed since the last checkpoint, that one is returned.
        """
        options, found = _c.CheckpointOptions(), _c.Checkpoint()
        options.size = sizeof(options)
        options.name = _options.optional(name, "name")
        options.mode = int(stop)
        options.cause = _options.optional(cause, "cause")
        self._call(_c.sandbox_checkpoint, byref(options), byref(found))
        return Checkpoint._of(found)

    def rollback(
        self, which: int | str | Checkpoint, *, keep: bool = False
    ) -> Rollback:
        """Restores the files of a checkpoint and ends all processes.

        With ``keep``, processes run on that have no file, program or directory that the
        rollback replaces or removes.
        """
        word = which.id if isinstance(which, Checkpoint) else which
        options, found = _c.RollbackOptions(), _c.Rollback()
        options.size = sizeof(options)
        options.keep = keep
        try:
            self._call(
                _c.sandbox_rollback_with,
                _options.text(str(word), "which"),
                byref(options),
                byref(found),
            )
            return Rollback._of(found)
        finally:
            _c.free(found.ended)

    def remove_checkpoint(self, which: int | str | Checkpoint) -> int:
        """Removes a checkpoint; returns how many bytes that has freed.

        Those that were created from it stay.  Its space is given back when nothing is on
        it any more: the files of the sandbox, another checkpoint or a fork.
        """
        word = which.id if isinstance(which, Checkpoint) else which
        freed = c_uint64()
        self._call(
            _c.sandbox_remove_checkpoint,
            _options.text(str(word), "which"),
            byref(freed),
        )
        return freed.value

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints, in the order of their creation."""
        with self._handles.borrow() as handle:
            found = _c.listed(_c.sandbox_checkpoints, _c.Checkpoint, handle)
        return [Checkpoint._of(one) for one in found]

    def fork(
        self,
        which: int | str | Checkpoint | None = None,
        *,
        contexts: bool | SavedContexts = False,
        **options: Any,
    ) -> Sandbox:
        """Creates a sandbox that begins with the files of a checkpoint, or of now.

        The files are shared until one of the sandboxes changes them.  Processes,
        environment, mounts, network and checkpoints do not come along.  Template, user,
        working directory and limits are this sandbox's unless the ``options``, those of
        create(), have others.  Without ``which`` it creates a checkpoint.

        With ``contexts`` the idle Python contexts of the default user go on with their
        variables, and not with a checkpoint: True, or what save_contexts() returned, for
        several forks.  A context that cannot begins anew, and its first execution there
        has ``restarted``.
        """
        if contexts is not False:
            if which is not None:
                raise SandboxValueError("a checkpoint has no contexts: leave it out")
            return self._fork_contexts(contexts, options)
        word = which.id if isinstance(which, Checkpoint) else which
        source = self.id if word is None else f"{self.id}:{word}"
        return Sandbox.create(from_=source, **options)

    def pause(self, *, disk: bool = False) -> None:
        """Freezes all processes.

        With ``disk`` it ends them, which frees their memory, and keeps the files of a
        sandbox with storage on disk; resume() starts it afresh.
        """
        self._call(_c.sandbox_pause_disk if disk else _c.sandbox_pause)

    def resume(self) -> None:
        """Thaws all processes after pause(), or starts the sandbox again."""
        self._call(_c.sandbox_resume)

    def set_ttl(self, ttl: float | None) -> None:
        """Sets the time to live, in seconds from now; None: no limit."""
        self._call(_c.sandbox_set_ttl, _options.milliseconds(ttl, "ttl"))

    def kill(self) -> None:
        """Kills all processes.  With storage on disk, restart() starts it again;
        otherwise this removes the sandbox."""
        self._call(_c.sandbox_kill)

    def restart(self) -> None:
        """Starts it again after kill(), with its options and files."""
        self._call(_c.sandbox_start)
        self._handles.generation += 1

    def remove(self) -> None:
        """Kills it, and removes its files on disk."""
        self._call(_c.sandbox_remove)

    # --- Internals ---------------------------------------------------------------------

    def _fork_contexts(
        self, contexts: bool | SavedContexts, options: dict[str, Any]
    ) -> Sandbox:
        with contextlib.ExitStack() as stack:
            if isinstance(contexts, SavedContexts):
                saved = contexts
            else:
                saved = stack.enter_context(self.save_contexts())
            made = Sandbox.create(from_=self.id, **options)
            try:
                with made._handles.borrow() as handle:
                    saved._restore(handle)
            except BaseException:
                made.__exit__()
                raise
            return made

    def _call(self, function: Any, *arguments: Any) -> None:
        with self._handles.borrow() as handle:
            _c.call(function, handle, *arguments)

    # Last in the class: it hides the type of the same name.
    @staticmethod
    def list() -> list[SandboxInfo]:
        """Every sandbox of this user, oldest first."""
        infos = _c.listed(_c.sandbox_list, _c.SandboxInfo)
        return [SandboxInfo._of(info) for info in infos]


def _create(options: Any, template: str | os.PathLike[str] | None) -> Handles:
    handle, err = c_void_p(), _c.Error()
    if _c.sandbox_create(byref(options), byref(handle), byref(err)):
        is_template = err.code == TemplateNotFoundError.code and (
            template is not None and err.subject == _options.template_name(template)
        )
        raise _c.error_of(err, cls=TemplateNotFoundError if is_template else None)
    assert handle.value is not None
    id = _c.sandbox_id(handle).decode()
    return Handles(id, handle.value, ephemeral=options.ephemeral)
