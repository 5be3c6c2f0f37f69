# SPDX-License-Identifier: Apache-2.0
"""The driver of Python contexts."""

import base64
import os
import time

import pytest

from driver import skip


def lines_of(execution):
    return execution.error["traceback"].splitlines()


# --- Values and state ------------------------------------------------------------------------


def test_the_driver_reports_its_version(python):
    assert python.ready["version"].startswith("3.")


def test_variables_live_in_main_and_stay(python):
    python.run("x = 40\nclass Thing: pass\nimport os")
    assert python.run("x + 2").value == "42"
    assert python.run("__name__, Thing.__module__").value == "('__main__', '__main__')"
    loaded = python.run("import pickle\nisinstance(pickle.loads(pickle.dumps(Thing())), Thing)")
    assert loaded.value == "True"
    assert python.run("sorted(n for n in dir() if not n.startswith('__'))").value == \
        "['Thing', 'os', 'pickle', 'x']"


@pytest.mark.parametrize("code, value", [
    ("x = 1; x", "1"),
    ("'text'", "'text'"),
    ("None", None),
    ("x = 5", None),
    ("5;", None),
    ("5 ; # quiet", None),
    ("(5)", "5"),
    ("(5);", None),
    ("'a;'", "'a;'"),
    ("'é' ;", None),
    ("for i in range(3): i", None),
    ("_x = 7\n_x  # a comment;", "7"),
    ("", None),
    ("# only a comment", None),
])
def test_the_last_expression_is_the_main_result(python, code, value):
    execution = python.run(code)
    assert execution.error is None
    assert execution.value == value


def test_an_underscore_is_the_last_value(python):
    python.run("6 * 7")
    assert python.run("_ + 1").value == "43"


def test_executions_are_counted_except_silent_ones(python):
    assert python.run("1").count == 1
    silent = python.run("y = 3\ny", silent=True)
    assert silent.lines == []
    assert python.run("y").count == 2
    assert python.run("1 / 0").count == 3
    assert python.run("1 / 0", silent=True).error["name"] == "ZeroDivisionError"
    assert python.run("1").count == 4


def test_indented_code_is_dedented(python):
    execution = python.run("\n    if True:\n        x = 3\n    x\n")
    assert execution.value == "3"
    assert python.run("if True:\n    y = 1\n  z").error["name"] == "IndentationError"


def test_variables_of_one_call_are_restored(python, start):
    assert python.run("import os; os.environ['A']", env={"A": "1"}).value == "'1'"
    assert python.run("os.environ.get('A')").value is None
    other = start("python", env={"B": "before"})
    assert other.run("import os; os.environ['B']", env={"B": "now"}).value == "'now'"
    assert other.run("os.environ['B']").value == "'before'"
    assert other.run("1 / 0", env={"B": "now"}).error
    assert other.run("os.environ['B']").value == "'before'"


def test_modules_of_the_working_directory_are_found(python, tmp_path):
    (tmp_path / "own_module.py").write_text("value = 'found'\n")
    assert python.run("import own_module, sys; own_module.value, sys.argv").value == \
        "('found', [''])"


def test_modules_that_pip_installs_while_the_context_runs_are_found(start, tmp_path):
    python = start("python", env={"HOME": str(tmp_path)})
    python.run("x = 1")
    place = python.run("import site; print(site.getusersitepackages())").out.strip()
    assert place.startswith(str(tmp_path))
    os.makedirs(place)
    for name, value in ("fresh", 42), ("shlex", "taken"):
        with open(f"{place}/{name}.py", "w", encoding="utf-8") as module:
            module.write(f"value = {value!r}\n")
    assert python.run("import fresh; fresh.value").value == "42"
    assert python.run("import shlex; hasattr(shlex, 'split')").value == "True"  # the system's
    ranks = python.run("import sys; [sys.path.index(path) for path in (site.getusersitepackages(), "
                       "*site.getsitepackages()) if path in sys.path]").value
    assert ranks == str(sorted(map(int, ranks.strip("[]").split(", "))))


def test_a_cell_can_import_what_it_has_installed(start, tmp_path):
    python = start("python", env={"HOME": str(tmp_path)})
    python.run("import site")
    execution = python.run("!mkdir -p {site.getusersitepackages()}; "
                           "echo value = 7 > {site.getusersitepackages()}/fresh.py\n"
                           "import fresh\nfresh.value")
    assert execution.value == "7", execution.err


def test_an_import_of_json_does_not_come_with_the_driver(python):
    loaded = python.run("import sys; sorted({'json', 're', 'enum', 'asyncio', 'traceback',"
                        " 'ast', 'subprocess'} & set(sys.modules))")
    assert loaded.value == "[]"


# --- Streams ---------------------------------------------------------------------------------


def test_a_printed_line_is_one_message(python):
    assert python.run("print('hello')").texts("stdout") == ["hello\n"]
    assert python.run("import sys; print('hello', file=sys.stderr)").texts("stderr") == ["hello\n"]
    assert python.run("print('a', 'b', sep='\\n')").texts("stdout") == ["a\n", "b\n"]
    assert python.run("print('a\\nb\\n\\nc')").out == "a\nb\n\nc\n"


def test_text_without_a_newline_is_reported_at_a_flush_and_before_a_result(python):
    execution = python.run("print('a', end='', flush=True)\nprint('b', end='')\n5")
    assert [line["type"] for line in execution.lines] == ["count", "stdout", "stdout", "result"]
    assert execution.texts("stdout") == ["a", "b"]
    assert python.run("print('c', end='')\n1 / 0").texts("stdout") == ["c"]


def test_long_text_is_reported_in_bounded_pieces(python):
    execution = python.run("print('x' * 100000, end='')")
    assert execution.out == "x" * 100000
    assert max(map(len, execution.texts("stdout"))) <= 8192


def test_output_results_and_errors_keep_their_order(python):
    execution = python.run("print(1)\ndisplay('two')\nprint(3)\n1 / 0")
    assert [line["type"] for line in execution.lines] == \
        ["count", "stdout", "result", "stdout", "error"]


def test_text_of_any_kind_is_printed(python):
    assert python.run("print('é\\0\\x1b\"\\\\ \\U0001F600')").out == "é\0\x1b\"\\ \U0001F600\n"
    assert python.run("print('a\\udcffb')").out == "a\ufffdb\n"
    assert python.run("'\\ud800'").value == "'\\ud800'"
    assert python.run("['\\ud800']").main["application/json"] == ["\ufffd"]


def test_children_and_descriptors_print_to_the_pipes(python):
    execution = python.run("import os, subprocess, sys\nprint('text')\n"
                           "subprocess.run(['echo', 'child'])\nos.write(2, b'direct\\n')\n"
                           "sys.stdout.buffer.write(b'bytes\\n')\nsys.__stdout__.write('old\\n');")
    assert execution.texts("stdout") == ["text\n"]
    assert execution.raw == {1: b"child\nbytes\nold\n", 2: b"direct\n"}


def test_a_replaced_stream_does_not_stop_the_driver(python):
    python.run("import io, sys\nkept = sys.stdout\nsys.stdout = io.StringIO()\nprint('caught')")
    assert python.run("sys.stdout.getvalue()").value == "'caught\\n'"
    python.run("sys.stdout = None")
    assert python.run("print('nothing')\n3").value == "3"
    assert python.run("sys.stdout = kept\nprint('back')").out == "back\n"
    assert python.run("sys.stdout.close()\nprint('still')").out == "still\n"


def test_threads_print_whole_lines_into_the_execution(python):
    execution = python.run(
        "import threading\n"
        "def work(name):\n    for i in range(200): print(f'{name}-{i}')\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in 'abcd']\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\n")
    assert len(execution.out.splitlines()) == 800
    assert all(text.endswith("\n") for text in execution.texts("stdout"))


def test_a_thread_prints_into_the_execution_that_runs_then(python):
    python.run("import threading, time\ngo, done = threading.Event(), threading.Event()\n"
               "def late():\n    go.wait(); print('late'); done.set()\n"
               "threading.Thread(target=late).start()")
    assert python.run("go.set(); done.wait()\n5").out == "late\n"


def test_a_thread_that_prints_between_executions_is_not_heard(python):
    python.run("import threading, time\n"
               "def talk():\n    for i in range(100): print('x'); time.sleep(0.001)\n"
               "t = threading.Thread(target=talk); t.start()")
    time.sleep(0.3)
    assert python.run("t.join()\n'end'").value == "'end'"


def test_closed_descriptors_do_not_stop_the_driver(python):
    assert python.run("import os; os.closerange(3, 100)\n7").value == "7"
    assert python.run("os.close(1); os.close(2)\nprint('still')\n8").value == "8"
    assert python.run("print('here')").out == "here\n"


# --- Processes -------------------------------------------------------------------------------


def test_a_forked_child_does_not_speak_on_the_channel(python):
    execution = python.run("import os\npid = os.fork()\n"
                           "if pid == 0:\n    print('child')\nelse:\n"
                           "    os.waitpid(pid, 0)\n    print('parent')\n'end'")
    assert execution.texts("stdout") == ["parent\n"]
    assert execution.raw[1] == b"child\n"
    assert execution.value == "'end'"
    assert python.run("1 + 1").value == "2"


def test_an_error_in_a_forked_child_ends_the_child(python):
    execution = python.run("import os\npid = os.fork()\nif pid == 0: 1 / 0\n"
                           "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])")
    assert execution.value == "1"
    assert execution.error is None
    assert b"ZeroDivisionError" in execution.raw[2]


def test_multiprocessing_works(python):
    execution = python.run("import multiprocessing as m\n"
                           "def square(x):\n    print('in', x)\n    return x * x\n"
                           "with m.get_context('fork').Pool(2) as pool: r = pool.map(square, [1, 2, 3])\nr")
    assert execution.value == "[1, 4, 9]"
    assert sorted(execution.raw[1].decode().split()) == ["1", "2", "3", "in", "in", "in"]


def test_a_child_program_has_no_channel(python):
    execution = python.run("import subprocess\nsubprocess.run("
                           "['sh', '-c', 'ls -l /proc/self/fd | grep -c socket'], close_fds=False)")
    assert execution.raw[1] == b"0\n"


# --- Errors ----------------------------------------------------------------------------------


def test_an_error_has_name_value_and_the_lines_of_the_code(python):
    python.run("def f(x):\n    return 1 / x")
    execution = python.run("a = 1\nf(0)")
    assert execution.error["name"] == "ZeroDivisionError"
    assert execution.error["value"] == "division by zero"
    lines = lines_of(execution)
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1:3] == ['  File "<cell 2>", line 2, in <module>', "    f(0)"]
    assert '  File "<cell 1>", line 2, in f' in lines
    assert "    return 1 / x" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "cay" not in execution.error["traceback"]
    assert "\x1b" not in execution.error["traceback"]


def test_a_name_that_is_not_defined_is_an_error(python):
    error = python.run("x").error
    assert (error["name"], error["value"]) == ("NameError", "name 'x' is not defined")


def test_an_error_with_a_cause_has_no_frames_of_the_driver(python):
    error = python.run("try:\n    input()\nexcept EOFError as e:\n    raise ValueError('no') from e")
    text = error.error["traceback"]
    assert "direct cause" in text and "<cay" not in text and "ValueError: no" in text


def test_code_can_print_its_own_traceback(python):
    execution = python.run("try:\n    1 / 0\nexcept Exception:\n"
                           "    import traceback; traceback.print_exc()")
    assert "    1 / 0\n" in execution.err


def test_a_syntax_error_has_its_position(python):
    execution = python.run("x = 1\nprint(x")
    assert execution.error["name"] == "SyntaxError"
    assert lines_of(execution)[:3] == ['  File "<cell 1>", line 2', "    print(x", "         ^"]
    assert execution.count == 1
    late = python.run("\nreturn 5")
    assert lines_of(late)[:2] == ['  File "<cell 2>", line 2', "    return 5"]
    assert python.run("x = 'a\0b'").error["name"] in ("ValueError", "SyntaxError")


def test_exit_is_an_error_and_not_the_end(python):
    python.run("x = 1")
    error = python.run("import sys; sys.exit(3)").error
    assert (error["name"], error["value"]) == ("SystemExit", "3")
    assert python.run("exit()").error["name"] == "SystemExit"
    assert python.run("x").value == "1"


def test_os_exit_is_the_end(python):
    execution = python.run("import os; print('last'); os._exit(7)")
    assert execution.out == "last\n"
    assert execution.lines[-1] == {"type": "died", "status": 7}


def test_a_crash_is_the_end(python):
    execution = python.run("import ctypes\nctypes.string_at(0)")
    assert execution.lines[-1] == {"type": "died", "status": -11}
    assert b"Segmentation fault" in execution.raw[2]
    assert b'File "<cell 1>", line 2 in <module>' in execution.raw[2]


def test_input_fails_clearly(python):
    error = python.run("name = input('Name? ')").error
    assert error["name"] == "EOFError"
    assert "no standard input; put the data into the code or into a file" in error["value"]
    assert "    input()" in lines_of(python.run("input()"))
    assert python.run("import sys; sys.stdin.read()").value == "''"


def test_errors_that_cannot_be_printed_are_reported(python):
    code = "class Bad(Exception):\n    def __str__(self): raise RuntimeError('x')\nraise Bad"
    error = python.run(code).error
    assert error["name"] == "Bad"
    error = python.run("class Odd:\n    def __repr__(self): return 1 / 0\nOdd()").error
    assert error["name"] == "ZeroDivisionError"
    assert "in __repr__" in error["traceback"]
    error = python.run("def f(): f()\nf()").error
    assert error["name"] == "RecursionError"
    assert len(error["traceback"]) < 10000
    assert len(python.run("raise ValueError('x' * 10000000)").error["traceback"]) < 300000


# --- Interrupts ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [
    "import time\nprint('up')\ntime.sleep(1000)",
    "print('up')\nwhile True: pass",
    "import asyncio\nprint('up')\nawait asyncio.sleep(1000)",
    "import subprocess\nprint('up')\nsubprocess.run(['sleep', '1000'])",
    "while True: print('up')",
    "import asyncio\nasync def main():\n    print('up')\n    await asyncio.sleep(1000)\n"
    "asyncio.run(main())",
])
def test_sigint_ends_an_execution_and_keeps_the_variables(python, code):
    python.run("kept = 5")
    execution = python.begin(code)
    python.until(execution, "up\n")
    python.interrupt()
    error = python.finish(execution).error
    assert error["name"] == "KeyboardInterrupt"
    assert "<cay" not in error["traceback"]
    assert python.run("kept").value == "5"


def test_sigint_between_executions_does_nothing(python):
    python.run("x = 1")
    for _ in range(20):
        python.interrupt()
    assert python.run("x").value == "1"


def test_lines_stay_whole_however_often_sigint_comes(python):
    for _ in range(20):
        execution = python.begin("while True:\n    try: print('y' * 5000)\n"
                                 "    except KeyboardInterrupt: break\nwhile True: print('x' * 5000)")
        python.until(execution, "y\n")
        python.interrupt()
        python.until(execution, "x\n")
        python.interrupt()
        python.interrupt()
        assert python.finish(execution).error["name"] == "KeyboardInterrupt"
    assert python.run("1 + 1").value == "2"


# --- Top-level await -------------------------------------------------------------------------


def test_await_works_at_the_top_level(python):
    assert python.run("import asyncio\nasync def f(): return 5\nx = await f()\nx + 1").value == "6"
    assert python.run("await f()").value == "5"
    assert python.run("async with asyncio.Lock(): print('in')").out == "in\n"
    assert python.run("[y async for y in (x async for x in f.__class__)]").error
    error = python.run("async def bad():\n    1 / 0\nawait bad()").error
    assert error["name"] == "ZeroDivisionError"
    assert '  File "<cell 5>", line 2, in bad' in error["traceback"]
    assert "asyncio" not in error["traceback"]


def test_the_event_loop_is_kept(python):
    python.run("import asyncio\nfirst = asyncio.get_running_loop() if False else None\n"
               "async def later(): await asyncio.sleep(0); return 'done'\n"
               "async def begin(): return asyncio.ensure_future(later())\ntask = await begin()")
    assert python.run("await task").value == "'done'"
    assert python.run("asyncio.run(later())").value == "'done'"
    assert python.run("await later()").value == "'done'"


# --- Results ---------------------------------------------------------------------------------


def test_every_repr_method_is_a_part(python):
    execution = python.run('''
class All:
    def __repr__(self): return "all"
    def _repr_html_(self): return "<b>h</b>"
    def _repr_markdown_(self): return "*m*"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"png"
    def _repr_jpeg_(self): return b"jpeg"
    def _repr_pdf_(self): return b"pdf"
    def _repr_latex_(self): return "$x$"
    def _repr_json_(self): return {"a": float("inf")}
    def _repr_javascript_(self): return "1"
All()''')
    assert execution.main == {
        "text/plain": "all", "text/html": "<b>h</b>", "text/markdown": "*m*",
        "image/svg+xml": "<svg/>", "image/png": base64.b64encode(b"png").decode(),
        "image/jpeg": base64.b64encode(b"jpeg").decode(),
        "application/pdf": base64.b64encode(b"pdf").decode(), "text/latex": "$x$",
        "application/json": {"a": None}, "application/javascript": "1"}
    assert python.run("All").main.keys() == {"text/plain"}


def test_a_mime_bundle_is_the_result(python):
    execution = python.run('''
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": "x", "application/x-own": {"a": 1}}, {}
    def _repr_png_(self): return None
    def _repr_html_(self): return "less", {}
Bundle()''')
    assert execution.main["text/html"] == "x"
    assert execution.main["application/x-own"] == {"a": 1}
    assert "image/png" not in execution.main


def test_display_is_not_the_main_result(python):
    execution = python.run("display(1, 'two')\n3")
    assert [data["text/plain"] for data in execution.shown] == ["1", "'two'"]
    assert execution.value == "3"
    assert python.run("display(5)").main is None


def test_raw_display_shows_the_parts_alone(python):
    execution = python.run("display({'text/latex': '$x$'}, raw=True)\n"
                           "display({'image/png': b'1'}, raw=True)")
    assert execution.shown == [{"text/latex": "$x$"}, {"image/png": "MQ=="}]


def test_display_of_ipython_can_be_imported(python):
    execution = python.run("from IPython.display import display, HTML, Markdown, Image, JSON\n"
                           "display(HTML('<b>x</b>'))\ndisplay(JSON({'a': 1}))\n"
                           "display(Image(data=b'\\x89PNG'))\nMarkdown('*m*')")
    if execution.error:
        pytest.fail(execution.error["traceback"])
    assert execution.shown[0]["text/html"] == "<b>x</b>"
    assert execution.shown[1]["application/json"] == {"a": 1}
    assert base64.b64decode(execution.shown[2]["image/png"]) == b"\x89PNG"
    assert execution.main["text/markdown"] == "*m*"
    execution = python.run("from IPython.display import IFrame, Math\n"
                           "display(IFrame('http://a/', 10, 20))\nMath('x^2')")
    assert 'src="http://a/"' in execution.shown[0]["text/html"]
    assert execution.main["text/latex"] == r"$\displaystyle x^2$"
    assert python.run("import IPython; IPython.get_ipython()").value is None


def test_an_installed_ipython_is_used(start, tmp_path):
    package = tmp_path / "IPython"
    (package / "core").mkdir(parents=True)
    (package / "__init__.py").write_text("mark = 'real'\n")
    (package / "core" / "__init__.py").write_text("")
    (package / "core" / "display_functions.py").write_text("def display(*x): print('text', x)\n")
    (package / "display.py").write_text("from .core.display_functions import display\n")
    python = start("python", cwd=tmp_path)
    execution = python.run("from IPython.display import display\nimport IPython\n"
                           "display(5)\nIPython.mark")
    assert execution.value == "'real'"
    assert [data["text/plain"] for data in execution.shown] == ["5"]
    assert execution.out == ""


def test_an_object_that_displays_itself_does(python):
    execution = python.run("class Own:\n    def _ipython_display_(self): print('own')\nOwn()")
    assert execution.out == "own\n"
    assert execution.results == []


def test_lists_and_dictionaries_are_json_too(python):
    assert python.run("[1, 'a', None, True, (2.5,)]").main["application/json"] == \
        [1, "a", None, True, [2.5]]
    assert python.run("{'a': {1: float('nan')}, None: 1, True: 2}").main["application/json"] == \
        {"a": {"1": None}, "null": 1, "true": 2}
    assert python.run("import datetime; [datetime.date(2020, 1, 2)]").main["application/json"] == \
        ["2020-01-02"]
    assert python.run("[1 << 70]").main["application/json"] == [float(1 << 70)]
    assert python.run("[10 ** 400]").main["application/json"] == [None]
    assert python.run("[object]").main.keys() == {"text/plain"}
    assert python.run("{(1, 2): 3}").main.keys() == {"text/plain"}
    assert python.run("(1, 2)").main.keys() == {"text/plain"}


def test_cycles_are_text_only(python):
    assert python.run("a = []; a.append(a); a").main == {"text/plain": "[[...]]"}
    assert python.run("d = {}; d['d'] = [d]; d").main == {"text/plain": "{'d': [{...}]}"}


def test_huge_results_are_bounded(python):
    value = python.run("'x' * 5000000").value
    assert len(value) < 1 << 21
    assert value.endswith("more characters)")
    large = python.run("display({'text/html': 'x' * (20 << 20)}, raw=True)")
    assert large.shown[0] == {"text/plain": "(text/html left out: larger than 8 MiB)"}
    both = python.run("class Big:\n    def __repr__(self): return 'big'\n"
                      "    def _repr_html_(self): return 'x' * (20 << 20)\nBig()")
    assert both.value == "big\n(text/html left out: larger than 8 MiB)"


def test_numpy_values_are_json(python):
    need_numpy(python)
    data = python.run("import numpy as np\n"
                      "{'a': np.arange(3), 'f': np.float32(1.5), 'n': np.array([np.nan, 1.0]),"
                      " 'b': np.bool_(True), 'd': np.datetime64('2020-01-02'), np.int64(3): 1}")
    assert data.main["application/json"] == {
        "a": [0, 1, 2], "f": 1.5, "n": [None, 1.0], "b": True, "d": "2020-01-02", "3": 1}
    assert python.run("np.arange(2)").main == {"text/plain": "array([0, 1])"}


def need_numpy(python):
    """Skips where the system's Python has no numpy, pandas and matplotlib."""
    if python.run("import numpy, pandas, matplotlib, PIL").error:
        skip("python3-numpy, python3-pandas or python3-matplotlib is missing")


def test_a_data_frame_is_data_html_and_text(python):
    need_numpy(python)
    execution = python.run(
        "import pandas as pd\npd.DataFrame({'a': [1, 2, 3], 'f': [0.5, None, 1],\n"
        " 't': pd.to_datetime(['2020-01-02 00:00', None, '2020-01-03 04:05']), 'o': ['x', {1}, None]})")
    assert execution.main["e2b/data"] == {
        "a": [1, 2, 3], "f": [0.5, None, 1.0],
        "t": ["2020-01-02T00:00:00", None, "2020-01-03T04:05:00"], "o": ["x", "{1}", None]}
    assert "<table" in execution.main["text/html"]
    assert execution.value.splitlines()[1].startswith("0  1  0.5 2020-01-02 00:00:00")
    huge = python.run("pd.DataFrame({'a': range(1 << 21)})")
    assert huge.main.keys() == {"text/plain", "text/html"}
    assert python.run("pd.DataFrame([[1, 2]], columns=['a', 'a'])").main["e2b/data"] == {"a": [2]}


def test_an_image_is_png_as_value_by_show_and_by_save(python, tmp_path):
    need_numpy(python)
    python.run("from PIL import Image\nimg = Image.new('RGB', (2, 2))")
    is_png = base64.b64encode(b"\x89PNG\r\n").decode()[:6]
    assert python.run("img").main["image/png"].startswith(is_png)
    assert python.run("img.show()").shown[0]["image/png"].startswith(is_png)
    saved = python.run("img.save('x.png')")
    assert saved.shown[0]["image/png"].startswith(is_png)
    assert (tmp_path / "x.png").exists()
    assert python.run("import io; img.save(io.BytesIO(), 'PNG')").results == []


# --- Magics ----------------------------------------------------------------------------------


def test_shell_lines_run(python, tmp_path):
    execution = python.run("name = 'x'\n!pwd; echo {name}{1 + 1} $name $HOME\nif True:\n"
                           "    !exit 3\n_exit_code")
    assert execution.raw[1].decode() == f"{tmp_path}\nx2 x {os.environ['HOME']}\n"
    assert execution.value == "3"
    assert python.run("files = !echo a; echo b\nfiles").value == "['a', 'b']"
    assert python.run("!echo one \\\n  two").raw[1] == b"one two\n"


def test_magics_that_notebooks_have_run(python, tmp_path):
    (tmp_path / "sub").mkdir()
    assert python.run("%matplotlib inline\n%load_ext autoreload\n5").value == "5"
    assert python.run("%cd sub\n%pwd").value == repr(str(tmp_path / "sub"))
    assert python.run("%env A=1 2\nimport os; os.environ['A']").value == "'1 2'"
    assert "Wall time: " in python.run("%time y = sum(range(10))").out
    assert python.run("y").value == "45"
    assert python.run("%%time\nz = 1\nz").value == "1"
    assert python.run("%%bash\nx=5\necho $x\npwd").raw[1].decode() == f"5\n{tmp_path}/sub\n"
    assert python.run("%%bash\nexit 4").error["name"] == "CalledProcessError"
    assert python.run("%%writefile a.txt\nline\n").out == "Writing a.txt\n"
    assert (tmp_path / "sub" / "a.txt").read_text() == "line\n"
    assert python.run("%%html\n<b>x</b>").shown == [{"text/html": "<b>x</b>"}]
    assert "loops each" in python.run("%timeit 1 + 1").out
    assert "(best of 2, 4 loops each)" in python.run("%timeit -n4 -r 2 1 + 1").out
    assert "(best of 1, 1 loops each)" in python.run("%%timeit -n 1 -r1\n1 + 1").out
    captured = python.run("%%capture said\nprint('captured')")
    assert (captured.out, captured.error) == ("", None)
    assert python.run("said.stdout").value == "'captured\\n'"


def test_pip_magic_runs_pip_of_this_python(start, tmp_path):
    (tmp_path / "pip.py").write_text("import sys; print('pip', sys.argv[1:])\n")
    python = start("python", env={"PYTHONPATH": str(tmp_path)})
    assert python.run("%pip install 'a b' c").raw[1] == b"pip ['install', 'a b', 'c']\n"


def test_errors_in_code_with_magics_point_at_its_lines(python):
    execution = python.run("!true\n\n1 / 0")
    assert '  File "<cell 1>", line 3, in <module>\n    1 / 0' in execution.error["traceback"]
    execution = python.run("%%time\nx = 1\n1 / 0")
    assert '  File "<cell 2>", line 3, in <module>\n    1 / 0' in execution.error["traceback"]
    error = python.run("%nothing x").error
    assert error["name"] == "UsageError"
    assert "%nothing is not available here; there are %bash" in error["value"]


def test_text_that_looks_like_a_magic_is_left_alone(python):
    code = "text = '''\n!ls\n%cd /\n'''\n!echo it's\\''s\ntext"
    assert python.run("text = '''\n!ls\n%cd /\n'''\ntext").value == "'\\n!ls\\n%cd /\\n'"
    execution = python.run(code.replace("it's\\''s", "its"))
    assert execution.value == "'\\n!ls\\n%cd /\\n'"
    assert execution.raw[1] == b"its\n"
    assert python.run("a = 7\n(a\n% 4)").value == "3"
    assert python.run("a != 7").value == "False"
    assert python.run("print(!)").error["name"] == "SyntaxError"
