# SPDX-License-Identifier: Apache-2.0
"""Code in contexts: Sandbox.execute_code(), cay.run_code() and cay.CodeInterpreter."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
from conftest import unavailable

import cay
from cay import CodeInterpreter, Sandbox, run_code
from cay.errors import SandboxNotFoundError, SandboxUnsupportedError, SandboxValueError
from cay.sandbox import threads

PATIENCE = 120


@pytest.fixture(name="sandbox", scope="module")
def fixture_sandbox() -> Iterator[Sandbox]:
    with Sandbox.create(ephemeral=True) as sandbox:
        yield sandbox


def test_run_code_returns_the_value_and_the_output() -> None:
    execution = run_code("print('hello')\n6 * 7")
    assert (execution.text, execution.stdout, execution.error) == ("42", "hello\n", None)
    assert execution.status == "success" and execution.logs.stdout == ["hello\n"]


def test_an_interpreter_keeps_variables_and_writes_files() -> None:
    with CodeInterpreter(memory="256M") as interpreter:
        interpreter.run("x = 40; open('note', 'w').write('kept')")
        assert interpreter.run("x + 2").text == "42"
        assert interpreter.files.read_text("note") == "kept"
        interpreter.restart()
        assert interpreter.run("x").error.name == "NameError"
        id = interpreter.sandbox.id
    with pytest.raises(SandboxNotFoundError):
        Sandbox.open(id)
    with pytest.raises(SandboxValueError, match="it has ended; create a new one"):
        interpreter.run("1")


def test_a_language_that_is_not_installed_is_named(sandbox: Sandbox) -> None:
    with Sandbox.create(ephemeral=True, env={"PATH": "/nowhere"}) as sandbox:
        with pytest.raises(SandboxUnsupportedError, match="ruby: the sandbox has no program"):
            sandbox.execute_code("1", "ruby", env={"PATH": "/nowhere"})


def test_results_have_their_types(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code(
        "class Thing:\n"
        "    def _repr_html_(self): return '<b>'\n"
        "    def _repr_png_(self): return b'png'\n"
        "    def _repr_json_(self): return {'a': [1, None]}\n"
        "    def __repr__(self): return 'thing'\n"
        "Thing()"
    )
    result = execution.results[0]
    assert result.is_main_result and result.text == "thing" and result.html == "<b>"
    assert result.png == b"png" and result.json == {"a": [1, None]}
    assert {"text", "html", "png", "json"} <= set(result.formats())
    assert result.svg is None and result.data is None


def test_an_error_is_a_result(sandbox: Sandbox) -> None:
    errors: list[cay.sandbox.CodeError] = []
    execution = sandbox.execute_code("1 / 0", on_error=errors.append)
    assert execution.status == "error" and execution.text is None
    assert execution.error.name == "ZeroDivisionError"
    assert execution.error.value == "division by zero" and errors == [execution.error]
    assert "line 1" in execution.error.traceback


def test_callbacks_run_in_the_callers_thread_as_things_happen(sandbox: Sandbox) -> None:
    seen: list[tuple[str, object]] = []

    def note(kind: str):
        def take(what: object) -> None:
            seen.append((kind, threading.current_thread() is threading.main_thread()))

        return take

    sandbox.execute_code(
        "import sys; print('a'); print('b', file=sys.stderr); 1",
        on_stdout=note("out"),
        on_stderr=note("err"),
        on_result=note("result"),
    )
    assert seen == [("out", True), ("err", True), ("result", True)]


def test_an_exception_of_a_callback_interrupts_the_code(sandbox: Sandbox) -> None:
    def fail(text: str) -> None:
        raise LookupError(text)

    with pytest.raises(LookupError):
        sandbox.execute_code("y = 1\nprint('x')\nwhile True: pass", on_stdout=fail)
    assert sandbox.execute_code("y").text == "1"


def test_a_timeout_interrupts_and_keeps_the_variables(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code("z = 5\nwhile True: pass", timeout=0.3)
    assert (execution.status, execution.error.name) == ("timeout", "KeyboardInterrupt")
    assert sandbox.execute_code("z").text == "5"


def test_ctrl_c_interrupts_the_code() -> None:
    script = (
        "import cay, os, signal, threading\n"
        "with cay.CodeInterpreter() as ci:\n"
        "    ci.run('x = 3')\n"
        "    kill = lambda text: os.kill(os.getpid(), signal.SIGINT)\n"
        "    timer = lambda text: threading.Timer(0.2, kill, [text]).start()\n"
        "    try:\n"
        "        ci.run('print(1)\\nwhile True: pass', on_stdout=timer)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', ci.run('x').text)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.stdout, done.stderr) == ("interrupted 3\n", "")


def test_the_environment_is_that_of_one_execution(sandbox: Sandbox) -> None:
    code = "import os; os.environ.get('ONCE')"
    assert sandbox.execute_code(code, env={"ONCE": "1"}).text == "'1'"
    assert sandbox.execute_code("repr(os.environ.get('ONCE'))").text == "'None'"


def test_contexts_are_separate() -> None:
    with Sandbox.create(ephemeral=True) as sandbox:
        sandbox.execute_code("x = 1")
        other = sandbox.create_context("python", cwd="/tmp", env={"A": "7"})
        assert not other.is_default and other.cwd == "/tmp" and other.pid > 0
        found = sandbox.execute_code(
            "import os; (os.getcwd(), os.environ['A'], 'x' in dir())", context=other
        )
        assert found.text == "('/tmp', '7', False)" and found.context == other.id
        assert [one.id for one in sandbox.contexts()][1] == other.id
        sandbox.execute_code("y = 2", context=other.id)
        sandbox.restart_context(other)
        assert sandbox.execute_code("y", context=other).error.name == "NameError"
        sandbox.interrupt_context(other)
        sandbox.remove_context(other)
        with pytest.raises(SandboxNotFoundError):
            sandbox.execute_code("1", context=other)
        with pytest.raises(SandboxNotFoundError):
            sandbox.remove_context(other.id)


def test_a_crash_is_reported_and_the_next_run_says_so(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code("import os; os.kill(os.getpid(), 11)")
    assert (execution.status, execution.error.name) == ("lost", "ContextRestarting")
    assert "SIGSEGV" in execution.error.value
    execution = sandbox.execute_code("1")
    assert execution.text == "1" and "SIGSEGV" in execution.restarted


def test_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    sandbox.execute_code("total = 0")
    threads = [
        threading.Thread(target=sandbox.execute_code, args=("total += 1",))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sandbox.execute_code("total").text == "8"


@pytest.mark.parametrize("language, text", [("python", "3\n"), ("bash", "3\n")])
def test_languages(sandbox: Sandbox, language: str, text: str) -> None:
    code = {"python": "print(1 + 2)", "bash": "echo $((1 + 2))"}[language]
    assert sandbox.execute_code(code, language).stdout == text


def test_wrong_arguments_are_errors(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxUnsupportedError, match=r"cobol: unknown .*\(this sandbox has: p"):
        sandbox.execute_code("1", "cobol")
    with pytest.raises(SandboxUnsupportedError, match="did you mean python?"):
        sandbox.execute_code("1", "pyton")
    with pytest.raises(SandboxUnsupportedError, match="languages with contexts: python"):
        sandbox.create_context("perl")
    with pytest.raises(SandboxValueError):
        sandbox.execute_code("1", "python", context="x")
    with pytest.raises(SandboxNotFoundError):
        sandbox.execute_code("1", context="x")
    with pytest.raises(TypeError):
        sandbox.execute_code(b"1")  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        sandbox.execute_code("'\ud800'")
    with pytest.raises(TypeError):
        CodeInterpreter(memroy="1G")
    with pytest.raises(TypeError, match="timout"):
        sandbox.execute_code("1", timout=1)  # type: ignore[call-arg]


def test_output_beyond_the_limit_is_counted(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code("print('x' * 100)", output_limit=10)
    assert execution.stdout == "x" * 10 and execution.dropped == 91


def test_a_call_without_a_thread_leaves_nothing_behind(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sandbox.execute_code("1")
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(threads, "_idle", [])
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            sandbox.execute_code("1")
    assert len(os.listdir("/proc/self/fd")) == before
    assert sandbox.execute_code("1").text == "1"


def test_an_execution_leaves_nothing_behind(sandbox: Sandbox) -> None:
    from cay.sandbox import code

    made: list[weakref.ref[object]] = []
    original = code.Call.__init__

    def spy(self: object, *arguments: object) -> None:
        original(self, *arguments)
        made.append(weakref.ref(self))

    sandbox.execute_code("1")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    code.Call.__init__ = spy
    try:
        for _ in range(20):
            sandbox.execute_code("1")
        assert [one for one in made if one() is not None] == []
    finally:
        code.Call.__init__ = original
        gc.enable()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_thread_is_kept_for_the_next_call_and_ends_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[int] = []

    def call() -> None:
        task = threads.Task(lambda: ran.append(threading.get_ident()))
        task.start()
        task.join()

    call()
    call()
    assert ran[0] == ran[1] != threading.get_ident()
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.01)
    call()  # from now on it waits that long
    deadline = time.monotonic() + PATIENCE
    while any(one.ident == ran[0] for one in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    call()


def test_a_forked_child_runs_code(sandbox: Sandbox) -> None:
    sandbox.execute_code("1")  # leaves a thread, which the child does not have
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        os._exit(0 if sandbox.execute_code("6 * 7").text == "42" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- Languages without contexts -------------------------------------------------------------


def test_a_language_without_contexts_runs_in_a_fresh_interpreter(sandbox: Sandbox) -> None:
    said: list[str] = []
    execution = sandbox.execute_code("x=1; echo $x$A", "sh", env={"A": "b"}, on_stdout=said.append)
    assert (execution.status, execution.stdout, said) == ("success", "1b\n", ["1b\n"])
    assert execution.context == "" and execution.language == "sh"
    assert sandbox.execute_code("echo $x", "sh").stdout == "\n"


def test_code_that_fails_in_such_a_language_is_a_result(sandbox: Sandbox) -> None:
    errors: list[cay.sandbox.CodeError] = []
    execution = sandbox.execute_code("echo no >&2; exit 3", "sh", on_error=errors.append)
    assert execution.status == "error" and execution.stderr == "no\n"
    assert "exit code 3" in execution.error.value and errors == [execution.error]
    late = sandbox.execute_code("echo so far; sleep 1000", "sh", timeout=0.3)
    assert (late.status, late.stdout) == ("timeout", "so far\n")


# --- Notebooks and terminals ----------------------------------------------------------------


def test_a_result_is_shown_by_notebooks_without_running_its_scripts() -> None:
    from cay.sandbox import Result

    picture = Result({"image/png": b"\x89PNG", "text/html": "<b>"})
    assert picture._repr_png_() == b"\x89PNG" and picture._repr_html_() is None
    page = Result({"text/html": '<script>a("b")</script>'})._repr_html_()
    assert '<iframe sandbox="" srcdoc="&lt;script&gt;' in page and "<script" not in page
    drawing = Result({"image/svg+xml": "<svg onload='x()'>"})._repr_html_()
    assert drawing.startswith('<img src="data:image/svg+xml;base64,')
    assert Result({"text/plain": "1"})._repr_html_() is None
    assert Result({"image/jpeg": b"\xff\xd8"})._repr_jpeg_() == b"\xff\xd8"


def test_an_execution_is_shown_by_notebooks(sandbox: Sandbox) -> None:
    shown = sandbox.execute_code("print('<b>')\n1 / 0")._repr_html_()
    assert "<pre>&lt;b&gt;\n</pre>" in shown and "ZeroDivisionError" in shown
    assert "<pre>None</pre>" not in sandbox.execute_code("None")._repr_html_()


def test_reprs_are_short_and_say_what_happened(sandbox: Sandbox) -> None:
    assert repr(sandbox.execute_code("6 * 7")) == "Execution(success, text='42')"
    failed = sandbox.execute_code("1 / 0")
    assert repr(failed) == "Execution(error, error='ZeroDivisionError: division by zero')"
    assert str(failed.error) == "ZeroDivisionError: division by zero"
    long = sandbox.execute_code("print('x' * 10_000); 'y' * 10_000")
    assert len(repr(long)) < 1000 and "(10,001 characters)" in repr(long)
    assert len(repr(long.results)) < 1000


# --- Libraries ------------------------------------------------------------------------------


def test_charts_are_png_and_frames_are_data() -> None:
    for name in ("matplotlib", "pandas"):
        found = run_code(f"import importlib.util; importlib.util.find_spec({name!r}) is None")
        if found.text == "True":
            unavailable(f"this machine's Python has no {name}")
    with CodeInterpreter(memory="1G") as interpreter:
        frame = interpreter.run("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [3, 4]})")
        assert frame.results[0].data == {"a": [1, 2], "b": [3, 4]}
        chart = interpreter.run("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()")
        assert chart.results[0].png.startswith(b"\x89PNG\r\n\x1a\n")
        assert chart.results[0].chart["type"] == "line"
