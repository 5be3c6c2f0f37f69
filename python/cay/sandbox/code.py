# SPDX-License-Identifier: Apache-2.0
"""Code in contexts: interpreters in a sandbox that keep their variables.

The C call runs in another thread and passes on what happens, so that callbacks run in
the caller's thread and Ctrl-C takes effect at once: it interrupts the code inside.
"""

from __future__ import annotations

import base64
import difflib
import html
import itertools
import json
import os
import queue
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_size_t, sizeof
from dataclasses import dataclass, field
from typing import Any, TypedDict

from cay import _c
from cay.errors import SandboxUnsupportedError, SandboxValueError
from cay.sandbox import options as _options
from cay.sandbox.event_loop import interruptibly, readable
from cay.sandbox.handles import Handles
from cay.sandbox.options import Size
from cay.sandbox.threads import Task

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


_FRAME = (
    '<iframe sandbox="" srcdoc="{}" style="width: 100%; height: 20em; border: 0"></iframe>'
)
_SHORT = 200


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= _SHORT:
        return text
    return f"{text[:_SHORT]}... ({len(text):,} characters)"


def _picture(mime: str, data: bytes) -> str:
    return f'<img src="data:{mime};base64,{base64.b64encode(data).decode()}">'


def _preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>" if text else ""


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
        return f"Result({', '.join(self.formats())}: {_short(self.text)!r})"

    # Notebooks call these.  HTML and SVG come from inside and may have scripts: an iframe
    # with "sandbox", and an img, do not run them.

    def _repr_png_(self) -> bytes | None:
        return self.png

    def _repr_jpeg_(self) -> bytes | None:
        return self.jpeg

    def _repr_html_(self) -> str | None:
        if self.png is not None or self.jpeg is not None:
            return None
        if self.html is not None:
            return _FRAME.format(html.escape(self.html))
        if self.svg is not None:
            return _picture("image/svg+xml", self.svg.encode())
        return None

    def _shown(self) -> str:
        """As HTML without scripts."""
        for mime in ("image/png", "image/jpeg"):
            if mime in self.parts:
                return _picture(mime, self.parts[mime])
        return self._repr_html_() or _preformatted(self.text or "")


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

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.value else self.name


@dataclass(frozen=True, repr=False)
class Execution:
    """What one execution gave."""

    status: str
    """success, error, timeout, interrupted, or lost"""
    results: list[Result]
    logs: Logs
    error: CodeError | None
    context: str
    """its id; "" if the language has no contexts"""
    language: str
    execution_count: int
    restarted: str | None = None
    """why the interpreter is new and has no variables, if the caller cannot know"""
    dropped: int = 0
    """bytes of output beyond the limit"""
    is_warm: bool = False
    """the interpreter is a copy of a WarmInterpreter"""

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

    def __repr__(self) -> str:
        shown: list[tuple[str, Any]] = [("text", _short(self.text))]
        shown += [("stdout", _short(self.stdout)), ("stderr", _short(self.stderr))]
        if len(self.results) > 1 or (self.results and self.text is None):
            shown.append(("results", self.results))
        if self.error is not None:
            shown.append(("error", _short(str(self.error))))
        if self.restarted:
            shown.append(("restarted", self.restarted))
        if self.dropped:
            shown.append(("dropped", self.dropped))
        parts = "".join(f", {name}={value!r}" for name, value in shown if value)
        return f"Execution({self.status}{parts})"

    def _repr_html_(self) -> str:
        parts = [_preformatted(self.stdout), _preformatted(self.stderr)]
        parts += [result._shown() for result in self.results]
        if self.error is not None:
            parts.append(_preformatted(self.error.traceback or str(self.error)))
        return "".join(parts) or _preformatted(repr(self))


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


class CodeOptions(TypedDict, total=False):
    """The options of execute_code()."""

    context: Context | str | None
    timeout: float | None
    env: Mapping[str, str] | None
    user: str | int | None
    output_limit: Size | None
    preload: Sequence[str] | None
    on_stdout: OnText | None
    on_stderr: OnText | None
    on_result: OnResult | None
    on_error: OnError | None


class Call:
    """One execution, in a thread.

    run() does all of it.  A caller that cannot block does the same: it takes events until
    there are none, and calls end(), or interrupt() if an exception ends it before.
    """

    def __init__(
        self,
        handles: Handles,
        code: str,
        language: str | None,
        given: CodeOptions,
        is_async: bool = False,
    ) -> None:
        for name in given.keys() - CodeOptions.__annotations__.keys():
            near = difflib.get_close_matches(name, CodeOptions.__annotations__, 1)
            raise TypeError(
                f"execute_code() got an unexpected keyword argument {name!r}"
                + (f"; use {near[0]}=" if near else "")
            )
        context = given.get("context")
        if not isinstance(code, str):
            raise TypeError(f"code: expected str, not {type(code).__name__}")
        if context is not None and language is not None:
            raise SandboxValueError(
                "both a context and a language are given",
                hint="pass one of them: a context has a language",
            )
        self._handles = handles
        self._code = code
        self._language = language
        self._given = given
        self._events: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._execution = _c.CodeExecution()
        self.failure: BaseException | None = None
        self._results: list[Result] = []
        self._logs = Logs()
        self._options = _c.CodeOptions(
            size=sizeof(_c.CodeOptions),
            language=_options.optional(language, "language"),
            context=_options.optional(
                context.id if isinstance(context, Context) else context, "context"
            ),
            user=_user(given.get("user")),
            env=_options.environment(given.get("env")),
            timeout_ms=_options.milliseconds(given.get("timeout"), "timeout"),
            output_limit=_options.size(given.get("output_limit"), "output_limit"),
            preload=_options.preload(given.get("preload")),
            on_text=_c.CODE_ON_TEXT(self._on_text),
            on_value=_c.CODE_ON_VALUE(self._on_value),
        )
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) if is_async else -1
        self._options.cancel_fd, self._cancel = os.pipe2(os.O_CLOEXEC)
        self._thread = Task(self._run)
        self._is_started = False

    def _on_text(self, _: Any, stream: int, text: int, length: int, _time: int) -> int:
        self._put((stream, _c.text(text, length)))
        return 0

    def _on_value(self, _: Any, value: Any) -> int:
        self._put((0, _result(value.contents)))
        return 0

    def _put(self, event: tuple[int, Any] | None) -> None:
        self._events.put(event)
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

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
            self.failure = error
        self._put(None)

    def run(self) -> Execution | None:
        """The execution, or None if the language or the backend has no contexts."""
        try:
            self.start()
            while self.take():
                pass
            return self.end()
        except BaseException:
            self.interrupt()
            raise
        finally:
            self.close()

    def start(self) -> None:
        self._is_started = True  # also if Ctrl-C interrupts start()
        try:
            self._thread.start()
        except RuntimeError:
            self._is_started = False  # no more threads
            raise

    def take(self) -> bool:
        """Waits for the next event; False if it was the last."""
        return self._deliver(self._events.get())

    async def take_async(self) -> bool:
        while True:
            try:
                return self._deliver(self._events.get_nowait())
            except queue.Empty:
                await readable(self._wake)
                os.eventfd_read(self._wake)

    def _deliver(self, event: tuple[int, Any] | None) -> bool:
        if event is None:
            return False
        stream, what = event
        kept, callback = (
            (self._results, self._given.get("on_result")),
            (self._logs.stdout, self._given.get("on_stdout")),
            (self._logs.stderr, self._given.get("on_stderr")),
        )[stream]
        kept.append(what)
        if callback is not None:
            callback(what)
        return True

    def interrupt(self) -> None:
        """Interrupts the code, which keeps its variables; the C call returns at once."""
        if self._cancel >= 0:
            os.close(self._cancel)  # a hang-up is readable
            self._cancel = -1
        if self._is_started:
            self._thread.join()
        _c.code_execution_done(byref(self._execution))

    def close(self) -> None:
        if self._wake >= 0:
            if self._is_started:
                self._thread.join()  # it may be about to write to the descriptor
            os.close(self._wake)
        os.close(self._options.cancel_fd)
        if self._cancel >= 0:
            os.close(self._cancel)
        del self._options  # its callbacks refer to this object

    def end(self) -> Execution | None:
        """The result of run(), after the last event."""
        if isinstance(self.failure, SandboxUnsupportedError) and self._language:
            return None
        if self.failure is not None:
            raise self.failure
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
                self._results,
                self._logs,
                error,
                done.context.decode(),
                done.language.decode(),
                done.count,
                done.restarted.decode(errors="replace") if done.restarted else None,
                done.out_dropped + done.error_dropped,
                done.is_warm,
            )
        finally:
            _c.code_execution_done(byref(done))

    def run_once(self) -> Execution:
        """In a fresh interpreter, for a language without contexts."""
        given, result = self._given, _c.CodeResult()
        options = _c.CommandOptions(
            size=sizeof(_c.CommandOptions),
            timeout_ms=_options.milliseconds(given.get("timeout"), "timeout")
            or _c.TIMEOUT_NONE,
            user=_user(given.get("user")),
            env=_options.environment(given.get("env")),
        )
        language = _options.optional(self._language, "language")
        with self._handles.borrow() as handle:
            _c.call(
                _c.execute_code,
                handle,
                *_c.utf8(self._code),
                language,
                byref(options),
                byref(result),
            )
        try:
            return _execution_of(result)
        finally:
            _c.code_done(byref(result))

    def report(self, execution: Execution) -> Execution:
        """Calls on_error(), and the other callbacks for code that ran once."""
        if not execution.context:
            for stream, pieces in enumerate((execution.logs.stdout, execution.logs.stderr)):
                for text in pieces:
                    self._deliver((stream + 1, text))
        on_error = self._given.get("on_error")
        if execution.error is not None and on_error is not None:
            on_error(execution.error)
        return execution


def _unsupported(language: str, installed: str) -> SandboxUnsupportedError:
    count = itertools.takewhile(_c.code_language, itertools.count())
    known = [_c.code_language(at).decode() for at in count]
    if language in known:
        message = "the sandbox has no program for this language"
        hint = f"install it inside, or use one of those it has: {installed}"
    else:
        message = "unknown language"
        near = difflib.get_close_matches(language, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        hint += f"this sandbox has: {installed}"
    return SandboxUnsupportedError(message, op="code.run", subject=language, hint=hint)


def _execution_of(result: Any) -> Execution:
    """From a cay_code_result."""
    name, value = (
        text.decode(errors="replace") for text in (result.error_type, result.error_value)
    )
    language = result.language.decode(errors="replace")
    if name == "ValueError":
        raise _unsupported(language, value.rpartition(": ")[2])
    command = result.command
    out = _c.data(command.out, command.out_len)
    error = _c.data(command.error, command.error_len)
    streams = [[one.decode(errors="replace")] if one else [] for one in (out, error)]
    lost = command.original_out_len + command.original_error_len - len(out) - len(error)
    return Execution(
        status=_c.STATUSES[result.status],
        results=[],
        logs=Logs(*streams),
        error=CodeError(name, value, "".join(streams[1])) if name else None,
        context="",
        language=language,
        execution_count=0,
        dropped=max(lost, 0) if command.truncated else 0,
    )


def _user(user: str | int | None) -> bytes | None:
    return None if user is None else _options.text(str(user), "user")


@dataclass(frozen=True)
class SavedContext:
    """A context of SavedContexts."""

    id: str
    language: str
    is_default: bool
    size: int
    """bytes of its memory"""
    reason: str | None
    """why it is not saved, and begins anew in forks; code inside may have written it"""


class SavedContexts(_c.Owner):
    """The memory of contexts, for forks: see Sandbox.save_contexts()."""

    __slots__ = ("__weakref__", "_finish", "_handle", "contexts")

    _instead = "save the contexts again"

    contexts: Sequence[SavedContext]

    def __init__(self, handle: Any) -> None:
        count = c_size_t()
        items = _c.saved_contexts_items(handle, byref(count))
        self._handle = handle
        self._finish = weakref.finalize(self, _c.saved_contexts_free, handle)
        self.contexts = tuple(
            SavedContext(
                one.id.decode(),
                one.language.decode(),
                one.is_default,
                one.bytes,
                None if one.is_saved else one.reason.decode("utf-8", "replace"),
            )
            for one in items[: count.value]
        )

    def close(self) -> None:
        """Frees the memory; forks keep what they use."""
        self._finish()

    def __enter__(self) -> SavedContexts:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _restore(self, sandbox: Any) -> None:
        if not self._finish.alive:
            raise SandboxValueError("the saved contexts are closed")
        _c.call(_c.contexts_restore, sandbox, self._handle)


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
        preload: Sequence[str] | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
    ) -> Execution:
        """Runs code in an interpreter of the sandbox that keeps its variables.

        That is ``context``, or the default context of the ``language`` (python, javascript,
        typescript or bash; others run in a fresh interpreter each time).  Code that fails
        is a result with an ``error``.  After ``timeout`` seconds the code is interrupted
        and keeps its variables; so does Ctrl-C.  ``env`` is for this execution.  The
        callbacks are called as things happen; the result has everything, too.
        ``preload`` names the modules of the WarmInterpreter that the first Python of the
        sandbox may start from.
        """
        call = Call(
            self._handles,
            code,
            language,
            {
                "context": context,
                "timeout": timeout,
                "env": env,
                "user": user,
                "output_limit": output_limit,
                "preload": preload,
                "on_stdout": on_stdout,
                "on_stderr": on_stderr,
                "on_result": on_result,
                "on_error": on_error,
            },
        )
        return call.report(call.run() or interruptibly(call.run_once))

    def create_context(
        self,
        language: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        preload: Sequence[str] | None = None,
    ) -> Context:
        """Starts another interpreter, with variables and a directory of its own."""
        options = _c.ContextOptions(
            size=sizeof(_c.ContextOptions),
            language=_options.optional(language, "language"),
            cwd=_options.optional(cwd, "cwd"),
            user=_user(user),
            env=_options.environment(env),
            timeout_ms=_options.milliseconds(timeout, "timeout"),
            preload=_options.preload(preload),
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

    def save_contexts(self, *, user: str | int | None = None) -> SavedContexts:
        """Saves the memory of the idle Python contexts of a user, for fork(contexts=...).

        Contexts that cannot be saved have a ``reason``, for instance threads, child
        processes, connections or another language.
        """
        handle = _c.HANDLE()
        with self._handles.borrow() as sandbox:
            _c.call(_c.contexts_save, sandbox, _user(user), byref(handle))
        return SavedContexts(handle)

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
