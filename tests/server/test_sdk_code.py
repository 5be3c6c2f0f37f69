# SPDX-License-Identifier: Apache-2.0
"""E2B's code interpreter for Python, unmodified: each test with its sync and its async form."""

import asyncio
import base64
import inspect
import threading

import pytest
from serving import PATIENCE, unavailable

pytest.importorskip("e2b_code_interpreter", reason="it needs Python 3.11")
from e2b_code_interpreter import (  # noqa: E402
    AsyncSandbox,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    TimeoutException,
)


class Waiting:
    """An AsyncSandbox whose methods wait for their results, so that a test has one form."""

    def __init__(self, loop, sandbox):
        self.loop, self.sandbox = loop, sandbox

    def __getattr__(self, name):
        value = getattr(self.sandbox, name)
        if name in ("files", "commands"):
            return Waiting(self.loop, value)
        return self.call(value) if callable(value) else value

    def call(self, function):
        def wait(*arguments, **options):
            result = function(*arguments, **options)
            return self.loop.run_until_complete(result) if inspect.isawaitable(result) else result

        return wait


@pytest.fixture(scope="module", name="loop")
def fixture_loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module", params=["sync", "async"], name="create")
def fixture_create(request, server, loop):
    """Creates sandboxes, or connects to them; they are killed at the end."""
    made = {}

    def create(connect=None, **options):
        kind = Sandbox if request.param == "sync" else AsyncSandbox
        result = kind.connect(connect) if connect else kind.create(**{"timeout": 3600, **options})
        if request.param == "async":
            result = Waiting(loop, loop.run_until_complete(result))
        return made.setdefault(result.sandbox_id, result) if not connect else result

    yield create
    for sandbox in made.values():
        sandbox.kill(request_timeout=PATIENCE)


@pytest.fixture(scope="module", name="box")
def fixture_box(create):
    """A sandbox for the tests that do not disturb one another."""
    return create(envs={"OF_SANDBOX": "global"})


@pytest.fixture(scope="module", name="plots")
def fixture_plots(create):
    """A sandbox whose Python has the libraries."""
    sandbox = create()
    error = sandbox.run_code("import datetime, io\nimport numpy as np, pandas as pd\n"
                             "import matplotlib.pyplot as plt\nfrom PIL import Image").error
    if error:
        unavailable(f"Debian's python3-pandas and python3-matplotlib are needed: {error.value}")
    return sandbox


def out(execution):
    return "".join(execution.logs.stdout)


# --- Values, state and contexts --------------------------------------------------------------


@pytest.mark.parametrize("code, text", [
    ("x =1; x", "1"), ("'text'", "text"), ('"it\'s"', "it's"), ("'é😀'", "é😀"), ("None", None),
    ("", None), ("\n    y = 2\n    if y:\n        y += 1\n    y", "3"), ("[1, 'a']", "[1, 'a']")])
def test_the_last_expression_is_the_text(box, code, text):
    execution = box.run_code(code)
    assert (execution.text, execution.error) == (text, None)
    assert [result.is_main_result for result in execution.results] == [True] * (text is not None)


def test_variables_and_the_count_stay_with_the_context(box):
    context = box.create_code_context()
    assert box.run_code("x = 1", context=context).execution_count == 1
    execution = box.run_code("x += 1; x", context=context)
    assert (execution.execution_count, execution.text) == (2, "2")


def test_variables_stay_when_another_client_connects(create, box):
    box.run_code("mine = 'kept'")
    assert create(connect=box.sandbox_id).run_code("mine").text == "kept"


def test_variables_stay_while_the_sandbox_is_paused(create):
    sandbox = create()
    sandbox.run_code("x = 5")
    sandbox.pause()
    assert create(connect=sandbox.sandbox_id).run_code("x").text == "5"


def test_a_sandbox_without_public_traffic_runs_code_with_its_token(create):
    sandbox = create(network={"allow_public_traffic": False})
    assert sandbox.traffic_access_token
    assert sandbox.run_code("1 + 1").text == "2"
    assert "python" in [context.language for context in sandbox.list_code_contexts()]


def test_a_sandbox_without_a_token_runs_code(create):
    assert create(secure=False).run_code("1 + 1").text == "2"


def test_the_default_contexts_are_there_from_the_start(create):
    contexts = create().list_code_contexts()
    assert [(context.language, context.cwd) for context in contexts] == [
        ("python", "/home/user"), ("javascript", "/home/user")]


@pytest.mark.parametrize("options, language, cwd", [
    ({}, "python", "/home/user"), ({"cwd": "/root"}, "python", "/root"),
    ({"language": "javascript", "cwd": "/tmp"}, "javascript", "/tmp"),
    ({"language": "ts"}, "typescript", "/home/user"), ({"language": "bash"}, "bash", "/home/user")])
def test_a_new_context_is_the_last_of_the_list_until_it_is_removed(box, options, language, cwd):
    context = box.create_code_context(**options)
    assert (context.language, context.cwd) == (language, cwd)
    assert vars(box.list_code_contexts()[-1]) == vars(context)
    box.remove_code_context(context)
    assert context.id not in [other.id for other in box.list_code_contexts()]
    for gone in (box.remove_code_context, box.restart_code_context):
        with pytest.raises(NotFoundException):
            gone(context.id)
    with pytest.raises(NotFoundException):
        box.run_code("1", context=context)


def test_contexts_do_not_share_variables(box):
    first, second = box.create_code_context(), box.create_code_context()
    box.run_code("secret = 1", context=first)
    assert box.run_code("secret", context=second).error.name == "NameError"
    assert box.run_code("secret", context=first).text == "1"


def test_a_restart_keeps_the_context_and_forgets_its_variables(box):
    context = box.create_code_context(cwd="/tmp")
    box.run_code("x = 1", context=context)
    box.restart_code_context(context.id)
    error = box.run_code("x", context=context).error
    assert (error.name, error.value) == ("NameError", "name 'x' is not defined")
    assert box.run_code("import os; os.getcwd()", context=context).text == "/tmp"


def test_a_context_and_a_language_exclude_each_other(box):
    context = box.list_code_contexts()[0]
    with pytest.raises(InvalidArgumentException):
        box.run_code("1", context=context, language="python")


def test_a_language_that_does_not_exist_is_named(box):
    for call in (lambda: box.run_code("1", language="cobol"),
                 lambda: box.create_code_context(language="cobol")):
        with pytest.raises(SandboxException, match="cobol"):
            call()
    assert box.run_code("1").text == "1"


# --- Output, results and errors as they come -------------------------------------------------


CALLBACKS = ("on_stdout", "on_stderr", "on_result", "on_error")


@pytest.mark.parametrize("code, name, text", [
    ("print('hello')", "on_stdout", "hello\n"),
    ("import sys; print('hello', file=sys.stderr)", "on_stderr", "hello\n"),
    ("7", "on_result", "7"), ("nothing", "on_error", "NameError")])
def test_each_callback_is_called_once_for_what_it_is_for(box, code, name, text):
    calls = []
    execution = box.run_code(code, **{key: lambda value, key=key: calls.append((key, value))
                                      for key in CALLBACKS})
    (called, value), = calls
    assert called == name
    assert {"on_result": lambda: value.text, "on_error": lambda: value.name}.get(
        name, lambda: value.line)() == text
    if name in ("on_stdout", "on_stderr"):
        assert value.error is (name == "on_stderr")
        assert abs(value.timestamp / 1e9 - box_time(box)) < 3600  # nanoseconds
        assert [*execution.logs.stdout, *execution.logs.stderr] == [text]


def box_time(box):
    return float(box.run_code("import time; time.time()").text)


def test_output_arrives_while_the_code_runs(create, box):
    """The code waits for a file that is written when its first line has arrived."""
    other = create(connect=box.sandbox_id)
    arrived = threading.Event()
    writer = threading.Thread(target=lambda: arrived.wait(PATIENCE) and write_answer(other))
    writer.start()
    execution = box.run_code("import os, time\nprint('first')\n"
                             "while not os.path.exists('answer'): time.sleep(0.01)\nprint('last')",
                             on_stdout=lambda message: arrived.set())
    writer.join()
    assert execution.logs.stdout == ["first\n", "last\n"]


def write_answer(sandbox):
    if isinstance(sandbox, Waiting):  # its loop is busy in another thread
        sandbox = Sandbox.connect(sandbox.sandbox_id)
    sandbox.files.write("answer", "42")


def test_output_of_children_and_of_shell_lines_is_reported(box):
    assert out(box.run_code("!pwd")) == "/home/user\n"
    assert out(box.run_code("import subprocess\nsubprocess.run('echo child; echo bad >&2', shell=True)"
                            ".returncode")) == "child\n"
    assert box.run_code("!echo bad >&2").logs.stderr == ["bad\n"]


@pytest.mark.parametrize("unit, times", [("é😀", 50_000), ("line\n", 20_000),
                                         ("\x1b[31m\0\"\\\u2028", 1)])
def test_output_of_any_size_and_kind_is_complete(box, unit, times):
    assert out(box.run_code(f"print({unit!a} * {times})")) == unit * times + "\n"


def test_an_error_has_a_name_a_value_and_a_traceback(box):
    execution = box.run_code("def f():\n    return 1 / 0\nprint('before')\nf()")
    assert (execution.error.name, execution.error.value) == \
        ("ZeroDivisionError", "division by zero")
    assert "return 1 / 0" in execution.error.traceback and "\x1b" not in execution.error.traceback
    assert (out(execution), execution.results) == ("before\n", [])
    assert box.run_code("x = (").error.name == "SyntaxError"


def test_an_interpreter_that_ends_is_an_error_and_the_next_one_works(box):
    context = box.create_code_context()
    box.run_code("x = 1", context=context)
    assert box.run_code("import os; os._exit(3)", context=context).error.name == "ContextRestarting"
    assert box.run_code("1 + 1", context=context).text == "2"
    assert box.run_code("x", context=context).error.name == "NameError"


# --- Results of every type -------------------------------------------------------------------


RESULTS = {"html": ("text/html", "<b>x</b>"), "markdown": ("text/markdown", "*x*"),
           "svg": ("image/svg+xml", "<svg/>"), "png": ("image/png", b"png"),
           "jpeg": ("image/jpeg", b"jpeg"), "pdf": ("application/pdf", b"pdf"),
           "latex": ("text/latex", "$x$"), "json": ("application/json", {"a": [1, None]}),
           "javascript": ("application/javascript", "1"), "text": ("text/plain", "x"),
           "data": ("e2b/data", {"a": [1]}), "application/x-own": ("application/x-own", "own")}


@pytest.mark.parametrize("name", RESULTS)
def test_a_displayed_type_has_one_format(box, name):
    mime, data = RESULTS[name]
    result, = box.run_code(f"display({{{mime!r}: {data!r}}}, raw=True)").results
    assert (result.formats(), result.is_main_result) == ([name], False)
    wanted = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    assert (result.extra if "/" in name else vars(result))[name] == wanted
    assert "/" in name or not result.extra


def test_a_value_is_shown_by_its_own_methods(box):
    execution = box.run_code("class Own:\n    def __repr__(self): return 'own'\n"
                             "    def _repr_html_(self): return '<b>own</b>'\n"
                             "    def _repr_latex_(self): return '$o$'\ndisplay(Own())\nOwn()")
    assert [(result.text, result.html, result.latex, result.is_main_result)
            for result in execution.results] == [
        ("own", "<b>own</b>", "$o$", False), ("own", "<b>own</b>", "$o$", True)]
    assert execution.text == "own"


@pytest.mark.parametrize("code, value", [
    ("[1, None, 'a', float('nan')]", [1, None, "a", None]), ("{'a': {'b': [True]}}", {"a": {"b": [True]}})])
def test_lists_and_dictionaries_are_json(box, code, value):
    assert box.run_code(code).results[0].json == value


def test_a_data_frame_is_data_html_and_text(plots):
    result, = plots.run_code("pd.DataFrame({'a': [1, 2, 3], 't': pd.Timestamp('2020-01-02')})").results
    assert result.data == {"a": [1, 2, 3], "t": ["2020-01-02T00:00:00"] * 3}
    assert sorted(result.formats()) == ["data", "html", "text"]


@pytest.mark.parametrize("code, is_main", [
    ("plt.plot([1, 2]); plt.show()", False), ("plt.plot([1, 2]);", False),
    ("f, a = plt.subplots(); a.plot([1, 2]); f", True),
    ("Image.new('RGB', (2, 2)).show()", False), ("Image.new('RGB', (2, 2))", True),
    ("Image.new('RGB', (2, 2)).save('x.png')", False)])
def test_a_picture_is_one_result_with_text(plots, code, is_main):
    result, = plots.run_code(code).results
    assert base64.b64decode(result.png).startswith(b"\x89PNG")
    assert result.text and not result.extra
    assert result.is_main_result is is_main


def test_a_plot_and_a_value_are_two_results(plots):
    seen = []
    execution = plots.run_code("x = 5\nplt.plot([1, 2]); plt.show()\nx", on_result=seen.append)
    assert seen == execution.results and len(seen) == 2
    assert [bool(result.png) for result in seen] == [True, False]
    assert execution.text == "5"


CHARTS = {
    "line": ("plt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2], label='a');"
             "plt.xlabel('Day (d)')", lambda chart: (
                 chart.x_unit, chart.x_scale.value, chart.elements[0].label,
                 chart.elements[0].points) == (
                     "d", "datetime", "a", [("2024-01-01", 1), ("2024-01-02", 2)])),
    "scatter": ("plt.scatter([1, 10], [2, 3]); plt.xscale('log')", lambda chart: (
        chart.x_scale.value, chart.y_scale.value, chart.elements[0].points) == (
            "log", "linear", [(1, 2), (10, 3)])),
    "bar": ("plt.bar(['A', 'B'], [1, 2]); plt.ylabel('n [pieces]')", lambda chart: (
        chart.y_unit, [(bar.label, bar.group, bar.value) for bar in chart.elements]) == (
            "pieces", [("A", "Group 0", 1), ("B", "Group 0", 2)])),
    "pie": ("plt.pie([90, 10], labels=['A', 'B'])", lambda chart: [
        (part.label, part.angle, part.radius) for part in chart.elements] == [
            ("A", 324, 1), ("B", 36, 1)]),
    "box_and_whisker": ("plt.boxplot([[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 87]],"
                        " labels=['A', 'B'], patch_artist=True)", lambda chart: [
                            (box.label, box.min, box.first_quartile, box.median,
                             box.third_quartile, box.max, box.outliers) for box in chart.elements
                        ] == [("A", 78, 85, 88, 90, 92, []), ("B", 84, 84.75, 88, 90.5, 95, [76])]),
    "superchart": ("f, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.scatter([1], [2]);"
                   "f.suptitle('T')", lambda chart: [
                       element.type.value for element in chart.elements] == ["line", "scatter"]),
    "unknown": ("plt.imshow([[1, 2]])", lambda chart: chart.elements == []),
}


@pytest.mark.parametrize("kind", CHARTS)
def test_a_figure_is_a_chart_of_its_type(plots, kind):
    code, is_right = CHARTS[kind]
    title = "" if kind == "superchart" else "; plt.title('T')"
    result, = plots.run_code(f"{code}{title}\nplt.show()").results
    assert (result.chart.type.value, result.chart.title) == (kind, "T")
    assert result.png and is_right(result.chart), result.chart.to_dict()
    assert result.formats() == ["text", "png", "chart"]


# --- Languages, directories and variables ----------------------------------------------------


LANGUAGES = {  # the working directory, and a variable with a default
    "python": ("import os; print(os.getcwd())", "print(os.environ.get('{}', 'none'))"),
    "javascript": ("console.log(process.cwd())", "console.log(process.env.{} ?? 'none')"),
    "js": ("console.log(process.cwd())", "console.log(process.env.{} ?? 'none')"),
    "typescript": ("console.log(process.cwd())", "console.log(process.env.{} ?? 'none')"),
    "ts": ("console.log(process.cwd())", "console.log(process.env.{} ?? 'none')"),
    "bash": ("pwd", 'echo "${{{}:-none}}"'),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_runs_in_the_home_directory(box, language):
    assert box.run_code(LANGUAGES[language][0], language=language).logs.stdout == ["/home/user\n"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_variables_of_a_call_hide_those_of_the_sandbox(box, language):
    def value(name, **envs):
        code = LANGUAGES[language][1].format(name)
        if language == "python":
            code = f"import os\n{code}"
        return out(box.run_code(code, language=language, envs=envs))

    assert value("OF_SANDBOX") == "global\n"
    assert value("OF_SANDBOX", OF_SANDBOX="of the call") == "of the call\n"
    assert value("OF_SANDBOX") == "global\n"
    assert value("OF_CALL", OF_CALL="1") == "1\n"
    assert value("OF_CALL") == "none\n"


@pytest.mark.parametrize("code, text", [
    ("const add = (x, y) => x + y; add(1, 2)", "3"),
    ("import url from 'url'\nurl.parse('http://host/').host", "host"),
    ("async function main() { return 'late' }\nawait main()", "late"),
    ("const z = 1", None), ("z", "1")])
def test_javascript_has_imports_and_await(box, code, text):
    execution = box.run_code(code, language="js")
    assert (execution.error, execution.text) == (None, text)


def test_typescript_has_types_and_shares_the_variables_of_javascript(box):
    box.run_code("const shared = 40", language="javascript")
    execution = box.run_code("function plus(x: number): number { return x + 2 }\nplus(shared)",
                             language="typescript")
    if execution.error and execution.error.name == "UnsupportedLanguage":
        unavailable("Node.js 22.13 or Debian's node-typescript is needed")
    assert (execution.error, execution.text) == (None, "42")


def test_bash_keeps_its_variables_and_reports_a_status(box):
    assert box.run_code("x=5; cd /tmp", language="bash").error is None
    execution = box.run_code("echo $x; pwd; echo bad >&2; false", language="bash")
    assert (out(execution), execution.logs.stderr) == ("5\n/tmp\n", ["bad\n"])
    assert execution.error.value
    box.run_code("cd", language="bash")


@pytest.mark.parametrize("language, code", [
    ("perl", 'print "hello\\n"'),
    ("c", '#include <stdio.h>\nint main(void) { puts("hello"); }')])
def test_a_language_without_contexts_runs_a_program(box, language, code):
    execution = box.run_code(code, language=language)
    assert (out(execution), execution.error) == ("hello\n", None)


# --- Timeouts and ends -----------------------------------------------------------------------


@pytest.mark.parametrize("language, code", [
    ("python", "import time\ntry: time.sleep(1000)\nexcept KeyboardInterrupt: open('interrupted', 'w')"),
    ("javascript", "while (true);"), ("bash", "sleep 1000")])
def test_code_is_interrupted_when_its_client_leaves(create, language, code):
    sandbox = create()
    assert sandbox.run_code("1" if language != "bash" else "true", language=language).error is None
    with pytest.raises(TimeoutException, match="timed out"):
        sandbox.run_code(code, language=language, timeout=1)
    execution = sandbox.run_code("echo 2" if language == "bash" else "1 + 1", language=language,
                                 timeout=PATIENCE)
    assert (out(execution).strip() or execution.text) == "2"
    if language == "python":
        assert sandbox.files.exists("interrupted")


def test_a_timeout_of_zero_is_none(box):
    assert box.run_code("import time; time.sleep(0.1); 1", timeout=0).text == "1"


def test_executions_of_one_context_queue_and_those_of_two_do_not(create, loop):
    """Each waits for the other, in two contexts; in one context they would never end."""
    sandbox = create()
    if not isinstance(sandbox, Waiting):
        sandbox = Waiting(loop, loop.run_until_complete(AsyncSandbox.connect(sandbox.sandbox_id)))
    contexts = [sandbox.create_code_context() for _ in range(2)]
    meet = ("import pathlib, time\npathlib.Path('{0}').touch()\n"
            "while not pathlib.Path('{1}').exists(): time.sleep(0.01)\n'met'")

    async def both(codes, contexts):
        return await asyncio.gather(*(sandbox.sandbox.run_code(code, context=context)
                                      for code, context in zip(codes, contexts)))

    done = loop.run_until_complete(both([meet.format("a", "b"), meet.format("b", "a")], contexts))
    assert [execution.text for execution in done] == ["met", "met"]
    steps = "import time\nlog = globals().setdefault('log', [])\nlog.append('in'); time.sleep(0.05)\n"
    loop.run_until_complete(both([steps + "log.append('out')"] * 5, contexts[:1] * 5))
    assert sandbox.run_code("log", context=contexts[0]).results[0].json == ["in", "out"] * 5


def test_a_sandbox_that_is_killed_ends_its_executions_with_the_reason(create):
    sandbox = create()
    started = threading.Event()
    killer = threading.Thread(target=lambda: started.wait(PATIENCE)
                              and Sandbox.kill(sandbox.sandbox_id))
    killer.start()
    with pytest.raises(TimeoutException, match="sandbox was killed while the request"):
        sandbox.run_code("import time\nprint('up')\ntime.sleep(1000)", timeout=0,
                         on_stdout=lambda message: started.set())
    killer.join()
    with pytest.raises((TimeoutException, NotFoundException)):
        sandbox.run_code("1")
