# SPDX-License-Identifier: Apache-2.0
"""Code in contexts: interpreters in a sandbox that keep their variables.

The C call runs in a thread of its own and passes on what happens, so that callbacks run in
the caller's thread and Ctrl-C takes effect at once: it interrupts the code inside.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from ctypes import byref, sizeof
from dataclasses import dataclass, field
from typing import Any

from cay import _c
from cay.errors import SandboxValueError
from cay.sandbox import options as _options
from cay.sandbox.handles import Handles
from cay.sandbox.options import Size

_NAMES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
_BINARY = ("image/", "audio/", "video/", "application/pdf")


@dataclass(frozen=True)
class Result:
    """A value that the code displayed, or the value of its last expression."""

    parts: Mapping[str, Any]
    """by MIME type: str; bytes for pictures; or the value of JSON"""
    is_main_result: bool = False
    """of the last expression"""

    @property
    def text(self) -> str | None:
        return self.parts.get("text/plain")

    @property
    def html(self) -> str | None:
        return self.parts.get("text/html")

    @property
    def markdown(self) -> str | None:
        return self.parts.get("text/markdown")

    @property
    def svg(self) -> str | None:
        return self.parts.get("image/svg+xml")

    @property
    def png(self) -> bytes | None:
        return self.parts.get("image/png")

    @property
    def jpeg(self) -> bytes | None:
        return self.parts.get("image/jpeg")

    @property
    def pdf(self) -> bytes | None:
        return self.parts.get("application/pdf")

    @property
    def latex(self) -> str | None:
        return self.parts.get("text/latex")

    @property
    def json(self) -> Any:
        return self.parts.get("application/json")

    @property
    def javascript(self) -> str | None:
        return self.parts.get("application/javascript")

    @property
    def data(self) -> Any:
        """of a pandas frame: its columns as lists"""
        return self.parts.get("e2b/data")

    @property
    def chart(self) -> Any:
        """of a matplotlib figure: its title, axes and points"""
        return self.parts.get("e2b/chart")

    def formats(self) -> list[str]:
        """The names of the properties that have a value."""
        return [_NAMES.get(mime, mime) for mime in self.parts]

    def __repr__(self) -> str:
        return f"Result({', '.join(self.formats())}: {self.text!r})"


@dataclass
class Logs:
    """The output of the code, in the pieces in which it came."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CodeError:
    """An exception of the code.  ContextRestarting: the interpreter has ended."""

    name: str
    value: str
    traceback: str


@dataclass(frozen=True)
class Execution:
    """What one execution gave."""

    status: str
    """success, error, timeout, interrupted, or lost"""
    results: list[Result]
    logs: Logs
    error: CodeError | None
    context: str
    language: str
    execution_count: int
    restarted: str | None = None
    """why the interpreter is new and has no variables, if the caller cannot know"""
    dropped: int = 0
    """bytes of output beyond the limit"""

    @property
    def text(self) -> str | None:
        """The value of the last expression."""
        return next((one.text for one in self.results if one.is_main_result), None)

    @property
    def stdout(self) -> str:
        return "".join(self.logs.stdout)

    @property
    def stderr(self) -> str:
        return "".join(self.logs.stderr)


@dataclass(frozen=True)
class Context:
    """An interpreter of a sandbox."""

    id: str
    language: str
    cwd: str
    """as requested; "": the working directory"""
    is_default: bool
    is_busy: bool
    pid: int
    """in the sandbox; 0: it has ended"""

    @staticmethod
    def _of(info: Any) -> Context:
        return Context(
            info.id.decode(),
            info.language.decode(),
            _c.decode(info.cwd or b""),
            info.is_default,
            info.is_busy,
            info.pid,
        )


OnText = Callable[[str], object]
OnResult = Callable[[Result], object]
OnError = Callable[[CodeError], object]


def _part(part: Any) -> Any:
    if part.is_json:
        return json.loads(_c.data(part.data, part.len))
    mime = part.mime.decode(errors="replace")
    if mime.startswith(_BINARY) and mime != "image/svg+xml":
        return _c.data(part.data, part.len)
    return _c.text(part.data, part.len)


def _result(value: Any) -> Result:
    parts = (value.parts[at] for at in range(value.part_count))
    return Result(
        {part.mime.decode(errors="replace"): _part(part) for part in parts}, value.is_main
    )


class _Call:
    """One execution, in a thread."""

    def __init__(self, handles: Handles, code: str, options: Any) -> None:
        self._handles = handles
        self._code = code
        self._options = options
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._execution = _c.CodeExecution()
        self._failure: BaseException | None = None
        options.on_text = _c.CODE_ON_TEXT(self._on_text)
        options.on_value = _c.CODE_ON_VALUE(self._on_value)

    def _on_text(self, _: Any, stream: int, text: int, length: int, _time: int) -> int:
        self._events.put((stream, _c.text(text, length)))
        return 0

    def _on_value(self, _: Any, value: Any) -> int:
        self._events.put((0, _result(value.contents)))
        return 0

    def _run(self) -> None:
        try:
            with self._handles.borrow() as handle:
                _c.call(
                    _c.code_execute,
                    handle,
                    *_c.utf8(self._code),
                    byref(self._options),
                    byref(self._execution),
                )
        except BaseException as error:
            self._failure = error
        self._events.put(None)

    def events(self) -> Generator[tuple[int, Any], None, None]:
        """(1, text), (2, text) and (0, Result).  An exception interrupts the code."""
        stop, cancel = os.pipe2(os.O_CLOEXEC)
        self._options.cancel_fd = stop
        thread = threading.Thread(target=self._run, name="cay-code", daemon=True)
        try:
            thread.start()
            while (event := self._events.get()) is not None:
                yield event
            if self._failure is not None:
                raise self._failure
        except BaseException:
            os.close(cancel)  # a hang-up is readable
            cancel = -1
            if thread.ident is not None:
                thread.join()
            _c.code_execution_done(byref(self._execution))
            raise
        finally:
            del self._options  # its callbacks refer to this object
            os.close(stop)
            if cancel >= 0:
                os.close(cancel)

    def end(self, results: list[Result], logs: Logs) -> Execution:
        done = self._execution
        try:
            error = None
            if done.error_name is not None:
                error = CodeError(
                    *(
                        text.decode(errors="replace")
                        for text in (done.error_name, done.error_value, done.traceback)
                    )
                )
            return Execution(
                _c.CODE_STATUSES[done.status],
                results,
                logs,
                error,
                done.context.decode(),
                done.language.decode(),
                done.count,
                done.restarted.decode(errors="replace") if done.restarted else None,
                done.out_dropped + done.error_dropped,
            )
        finally:
            _c.code_execution_done(byref(done))


def _user(user: str | int | None) -> bytes | None:
    return None if user is None else _options.text(str(user), "user")


class CodeMethods:
    """The methods of Sandbox about code."""

    _handles: Handles

    def execute_code(
        self,
        code: str,
        language: str | None = None,
        *,
        context: Context | str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        output_limit: Size | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
    ) -> Execution:
        """Runs code in an interpreter of the sandbox that keeps its variables.

        That is ``context``, or the default context of the ``language`` (python).  Code
        that fails is a result with an ``error``.  After ``timeout`` seconds the code is
        interrupted and keeps its variables; so does Ctrl-C.  ``env`` is for this execution.
        The callbacks are called as things happen; the result has everything, too.
        """
        if not isinstance(code, str):
            raise TypeError(f"code: expected str, not {type(code).__name__}")
        if context is not None and language is not None:
            raise SandboxValueError(
                "both a context and a language are given",
                hint="pass one of them: a context has a language",
            )
        id = context.id if isinstance(context, Context) else context
        call = _Call(
            self._handles,
            code,
            _c.CodeOptions(
                size=sizeof(_c.CodeOptions),
                language=_options.optional(language, "language"),
                context=_options.optional(id, "context"),
                user=_user(user),
                env=_options.environment(env),
                timeout_ms=_options.milliseconds(timeout, "timeout"),
                output_limit=_options.size(output_limit, "output_limit"),
            ),
        )
        results: list[Result] = []
        logs = Logs()
        takers: tuple[tuple[list[Any], Callable[[Any], object] | None], ...] = (
            (results, on_result),
            (logs.stdout, on_stdout),
            (logs.stderr, on_stderr),
        )
        with closing(call.events()) as events:
            for kind, what in events:
                kept, callback = takers[kind]
                kept.append(what)
                if callback is not None:
                    callback(what)
        execution = call.end(results, logs)
        if execution.error is not None and on_error is not None:
            on_error(execution.error)
        return execution

    def create_context(
        self,
        language: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
    ) -> Context:
        """Starts another interpreter, with variables and a directory of its own."""
        options = _c.ContextOptions(
            size=sizeof(_c.ContextOptions),
            language=_options.optional(language, "language"),
            cwd=_options.optional(cwd, "cwd"),
            user=_user(user),
            env=_options.environment(env),
            timeout_ms=_options.milliseconds(timeout, "timeout"),
        )
        info = _c.ContextInfo()
        with self._handles.borrow() as handle:
            _c.call(_c.context_create, handle, byref(options), byref(info))
        try:
            return Context._of(info)
        finally:
            _c.context_info_done(byref(info))

    def contexts(self, *, user: str | int | None = None) -> list[Context]:
        """The contexts of a user, in the order of their creation."""
        infos = _c.ContextInfos()
        with self._handles.borrow() as handle:
            _c.call(_c.context_list, handle, _user(user), byref(infos))
        try:
            return [Context._of(infos.items[at]) for at in range(infos.count)]
        finally:
            _c.context_infos_done(byref(infos))

    def restart_context(
        self, context: Context | str, *, user: str | int | None = None
    ) -> None:
        """A new interpreter for the context, without variables."""
        self._change_context(_c.context_restart, context, user)

    def remove_context(
        self, context: Context | str, *, user: str | int | None = None
    ) -> None:
        """Ends its interpreter and forgets the context."""
        self._change_context(_c.context_remove, context, user)

    def interrupt_context(
        self, context: Context | str, *, user: str | int | None = None
    ) -> None:
        """Interrupts the code that it runs; variables are kept."""
        self._change_context(_c.context_interrupt, context, user)

    def _change_context(
        self, function: Any, context: Context | str, user: str | int | None
    ) -> None:
        id = context.id if isinstance(context, Context) else context
        with self._handles.borrow() as handle:
            _c.call(function, handle, _user(user), _options.text(id, "context"))
