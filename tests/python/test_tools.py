# SPDX-License-Identifier: Apache-2.0
"""cay.tools: the tools of one sandbox, as functions and under a real PydanticAI agent."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from conftest import unavailable
from native import BACKENDS, run_async
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from cay import AsyncSandbox, Sandbox
from cay.errors import SandboxNotFoundError, SandboxValueError
from cay.sandbox import Execution, Logs, Result
from cay.tools import DEFAULT_TOOLS, TOOL_NAMES, Reply, SandboxTools, SandboxToolset
from cay.tools.reply import IMAGE_BYTES, cut, images_of, of_execution

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16
JPEG = b"\xff\xd8\xff\xe0" + b"0" * 16
PATIENCE = 120


@pytest.fixture(name="sandbox", scope="module")
def fixture_sandbox() -> Iterator[Sandbox]:
    with Sandbox.create(ephemeral=True) as sandbox:
        yield sandbox


@pytest.fixture(name="tools")
def fixture_tools(sandbox: Sandbox) -> SandboxTools:
    return SandboxTools(sandbox, tools=TOOL_NAMES)


def shows(png: bytes, mime: str = "image/png") -> str:
    """Code whose value has a picture."""
    return (
        f"class Picture:\n    def _repr_{mime.rpartition('/')[2]}_(self): return {png!r}\n"
        "Picture()"
    )


# --- Replies --------------------------------------------------------------------------------


def test_code_keeps_its_variables_and_shows_its_value(tools: SandboxTools) -> None:
    assert tools.call("run_code", {"code": "x = 40\nprint('set')"}) == "set"
    assert tools.call("run_code", {"code": "x + 2"}) == "42"
    assert tools.call("run_code", {"code": "None"}) == "[no output]"


def test_code_that_fails_is_its_traceback(tools: SandboxTools) -> None:
    reply = tools.call("run_code", {"code": "import sys\nprint('no', file=sys.stderr)\n1 / 0"})
    assert reply.startswith("[stderr]\nno\nTraceback") and not reply.is_error
    assert reply.endswith("ZeroDivisionError: division by zero")
    reply = tools.call("run_code", {"code": "echo why >&2; exit 3", "language": "sh"})
    assert reply == "[stderr]\nwhy\nExecutionError: Command failed with exit code 3"


def test_a_timeout_says_so_and_the_variables_stay(tools: SandboxTools) -> None:
    tools.call("run_code", {"code": "kept = 1"})
    reply = tools.call("run_code", {"code": "while True: pass", "timeout": 0.3})
    assert reply.endswith("[interrupted after 0.3 s; variables are kept]")
    assert tools.call("run_code", {"code": "kept"}) == "1"
    reply = tools.call("run_command", {"command": "echo on; sleep 1000", "timeout": 0.3})
    assert reply.startswith("on\n[killed after 0.3 s") and "nohup" in reply


def test_the_model_cannot_raise_the_timeout(sandbox: Sandbox) -> None:
    tools = SandboxTools(sandbox, timeout=0.3)
    arguments = {"command": "sleep 1000", "timeout": 1000}
    assert tools.call("run_command", arguments).startswith("[killed after 0.3 s")


def test_a_crash_and_the_new_interpreter_are_reported(tools: SandboxTools) -> None:
    crash = tools.call("run_code", {"code": "import os; os._exit(3)"})
    assert "exited with status 3; its variables are lost" in crash
    after = tools.call("run_code", {"code": "1"})
    assert after.startswith("[new interpreter: ") and after.endswith("\n1")


def test_commands_show_output_and_exit_codes(tools: SandboxTools) -> None:
    reply = tools.call("run_command", {"command": "echo out; echo err >&2; exit 4"})
    assert reply == "out\n[stderr]\nerr\n[exit code 4]"
    assert tools.call("run_command", {"command": "true"}) == "[no output; exit code 0]"
    assert tools.call("run_command", {"command": "kill -9 $$"}).endswith("by signal 9]")
    colors = "printf '10%%\\r\\033[31m100%%\\033[0m\\n'"
    assert tools.call("run_command", {"command": colors}) == "100%"


def test_files_are_written_read_edited_listed_and_searched(tools: SandboxTools) -> None:
    call = tools.call
    assert "d/x.txt" in call("write_file", {"path": "d/x.txt", "content": "one\ntwo\n"})
    assert call("read_file", {"path": "d/x.txt"}) == "one\ntwo\n"
    assert "d/x.txt" in call(
        "edit_file", {"path": "d/x.txt", "old_text": "two", "new_text": "three"}
    )
    assert call("list_files", {"path": "d"}).endswith("/d/x.txt")
    assert call("grep_files", {"regex": "thr", "path": "d"}).endswith("/d/x.txt:2: three")
    assert call("grep_files", {"regex": "none", "path": "d"}) == "[no match in 1 files]"
    assert "x.txt (file 10 bytes)" in call("list_directory", {"path": "d"})
    assert json.loads(call("stat_file", {"path": "d"}))["type"] == "directory"
    assert call("read_file_lines", {"path": "d/x.txt", "max_lines": 1}) == (
        "one\n\n[lines 0 to 1 of 2; read on with offset=1]"
    )
    edits = [{"old_text": "one", "new_text": "1"}, {"old_text": "three", "new_text": "3"}]
    call("multi_edit_file", {"path": "d/x.txt", "edits": edits})
    call("append_file", {"path": "d/x.txt", "content": "4\n"})
    call("copy_file", {"source": "d/x.txt", "destination": "e/y.txt"})
    call("move_file", {"source": "e/y.txt", "destination": "e/z.txt"})
    assert call("read_file", {"path": "e/z.txt"}) == "1\n3\n4\n"
    call("delete_file", {"path": "e/z.txt"})
    call("create_directory", {"path": "f/g"})
    assert call("list_files", {"path": "e"}) == "[nothing]"


def test_errors_are_text_that_says_what_to_do(tools: SandboxTools) -> None:
    for name, arguments, text in (
        ("read_file", {"path": "none"}, "Error: none: not found (list the directory"),
        ("read_file", {}, "Error: invalid arguments: path: Field required"),
        ("read_file", '{"path": ', "Error: invalid arguments: arguments: Invalid JSON"),
        ("run_code", {"code": "1", "language": "cobol"}, "this sandbox has: python"),
        ("run_code", {"code": "'\ud800'"}, "Error: "),
        ("run_code", {"code": "1", "timeout": -1}, "Error: invalid arguments: timeout"),
        ("grep_files", {"regex": "("}, "invalid regular expression"),
        ("run", {}, "Error: run: there is no such tool (tools: run_code, run_command"),
    ):
        reply = tools.call(name, arguments)
        assert text in reply and reply.is_error, (name, arguments)


def test_a_sandbox_that_has_ended_is_an_exception() -> None:
    sandbox = Sandbox.create(ephemeral=True)
    tools = SandboxTools(sandbox)
    sandbox.kill()
    for name, arguments in (
        ("run_code", {"code": "1"}),
        ("run_command", {"command": "true"}),
        ("read_file", {"path": "x"}),
    ):
        with pytest.raises(SandboxNotFoundError):
            tools.call(name, arguments)
    sandbox.close()
    with pytest.raises(SandboxValueError, match="closed"):
        tools.call("run_code", {"code": "1"})


# --- Limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("run_code", {"code": "print(*range(10_000), sep='\\n')"}),
        ("run_command", {"command": "seq 0 9999"}),
    ],
)
def test_long_output_keeps_head_and_tail_and_a_file_has_all_of_it(
    sandbox: Sandbox, name: str, arguments: dict[str, str]
) -> None:
    tools = SandboxTools(sandbox, limit=1000)
    reply = tools.call(name, arguments)
    assert len(reply) < 1200
    assert reply.startswith("0\n1\n2\n") and reply.endswith("\n9998\n9999")
    (note,) = [line for line in reply.splitlines() if line.startswith("[...")]
    assert "of 48,889 characters are cut here" in note
    path = next(word for word in note.split() if word.startswith("/tmp/")).rstrip(":")
    page = tools.call("read_file", {"path": path, "offset": 10_000})
    assert "[characters 10,000 to 11,000 of 48,889; read on with offset=11000]" in page
    assert tools.call("grep_files", {"regex": "^5000$", "path": path}).endswith(": 5000")


def test_a_full_disk_does_not_lose_the_reply() -> None:
    with Sandbox.create(ephemeral=True, disk="1M") as sandbox:
        tools = SandboxTools(sandbox, limit=1000)
        tools.call("run_command", {"command": "cat /dev/zero > /tmp/full"})
        reply = tools.call("run_command", {"command": "seq 0 9999"})
        assert reply.endswith("9999") and "write the output to a file" in reply


def test_lists_and_pages_are_cut(sandbox: Sandbox) -> None:
    tools = SandboxTools(sandbox, limit=500, tools=TOOL_NAMES)
    sandbox.files.write_many({f"many/{n:03}": "word " * 300 for n in range(100)})
    assert "narrow it with path or pattern" in tools.call("list_files", {"path": "many"})
    assert len(tools.call("grep_files", {"regex": "word", "path": "many"})) < 700
    page = tools.call("read_file", {"path": "many/000", "max_chars": 10_000})
    assert page.endswith("[characters 0 to 500 of 1,500; read on with offset=500]")
    lines = tools.call("read_file_lines", {"path": "many/000"})
    assert len(lines) < 700 and "cut here; read fewer lines" in lines


@pytest.mark.parametrize("length", [999, 1000, 1001, 5000, 100_000])
def test_cut_keeps_both_ends(length: int) -> None:
    for text in ("x" * length, "line\n" * (length // 5), "\n" * length):
        short = cut(text, 1000, "more")
        assert (short == text) == (len(text) <= 1000)
        assert short[:400] == text[:400] and short[-400:] == text[-400:]
        assert len(short) < 1100


# --- Pictures -------------------------------------------------------------------------------


def test_pictures_are_images_and_a_line_of_text(tools: SandboxTools) -> None:
    for data, mime in ((PNG, "image/png"), (JPEG, "image/jpeg")):
        reply = tools.call("run_code", {"code": shows(data, mime)})
        assert [(one.data, one.media_type) for one in reply.images] == [(data, mime)]
        assert reply.startswith("[picture: ") and len(reply) < 200
        (text, image) = reply.anthropic_parts()
        assert text == {"type": "text", "text": str(reply)} and type(text["text"]) is str
        assert image["source"] == {
            "type": "base64",
            "media_type": mime,
            "data": reply.images[0].base64,
        }
        (_, image) = reply.openai_parts()
        assert image["image_url"]["url"].startswith(f"data:{mime};base64,")


def test_invalid_and_large_pictures_are_left_out(tools: SandboxTools) -> None:
    for data in (b"no picture", b"", PNG + b"0" * IMAGE_BYTES):
        reply = tools.call("run_code", {"code": shows(data)})
        assert not reply.images and "1 of 1 pictures are not shown" in reply
    many = "from IPython.display import display\nfor _ in range(20): display(Picture())"
    tools.call("run_code", {"code": shows(PNG)})
    reply = tools.call("run_code", {"code": many})
    assert len(reply.images) == 8 and "12 of 20 pictures are not shown" in reply


def test_a_picture_in_a_file_can_be_looked_at(sandbox: Sandbox, tools: SandboxTools) -> None:
    sandbox.files.write("a.png", PNG + b"\xff")
    sandbox.files.write("b.png", b"\xff\xfe\x00")
    assert tools.call("read_file", {"path": "a.png"}).images[0].media_type == "image/png"
    assert tools.call("read_file", {"path": "b.png"}).is_error


def test_without_images_there_is_only_text(sandbox: Sandbox) -> None:
    tools = SandboxTools(sandbox, images=False)
    sandbox.files.write("a.png", PNG + b"\xff")
    assert not tools.call("run_code", {"code": shows(PNG)}).images
    assert tools.call("read_file", {"path": "a.png"}).is_error


def test_charts_and_frames_are_short(tools: SandboxTools) -> None:
    code = (
        "import pandas as pd\nimport matplotlib.pyplot as plt\n"
        "plt.plot([1, 4, 9], label='squares'); plt.title('Growth'); plt.xlabel('n')\n"
        "plt.legend(); plt.show()\n"
        "pd.DataFrame({'a': range(100_000), 'b': range(100_000)})"
    )
    reply = tools.call("run_code", {"code": code})
    if "ModuleNotFoundError" in reply:
        unavailable(reply.splitlines()[-1])
    assert '[picture: line chart "Growth", x: n; squares (3 points)]' in reply
    assert "[100000 rows x 2 columns]" in reply and len(reply) < 1000
    assert reply.images[0].data.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "parts, text",
    [
        ({"text/plain": "<HTML object>", "text/html": "<b>x</b>"}, "<b>x</b>"),
        ({"text/plain": "<M>", "text/markdown": "# x", "text/html": "<h1>"}, "# x"),
        ({"application/json": {"ä": 1}}, '{"ä": 1}'),
        ({"application/pdf": b"%PDF"}, "[pdf]"),
        ({"image/png": PNG, "e2b/chart": "not a map", "text/plain": "F"}, "[picture: F]"),
        ({"image/png": PNG, "e2b/chart": {"elements": 3}}, "[picture: None chart]"),
        (
            {"image/png": PNG, "e2b/chart": {"type": "bar", "elements": [{"label": "a", "value": 1}, 2]}},
            "[picture: bar chart; a: 1]",
        ),
    ],
)
def test_each_kind_of_result_has_a_text(parts: dict[str, Any], text: str) -> None:
    execution = Execution("success", [Result(parts)], Logs(), None, "c", "python", 1)
    assert of_execution(execution, 1) == text
    assert len(images_of(execution)[0]) == ("image/png" in parts)


# --- Schemas and functions ------------------------------------------------------------------


def test_schemas_are_valid_and_name_neither_sandbox_nor_user(tools: SandboxTools) -> None:
    openai, anthropic = tools.openai(), tools.anthropic()
    assert [one["function"]["name"] for one in openai] == list(TOOL_NAMES)
    for one, other in zip(openai, anthropic, strict=True):
        assert one["type"] == "function" and other["name"] == one["function"]["name"]
        schema = other["input_schema"]
        assert schema == one["function"]["parameters"] and schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(schema)
        assert not {"sandbox", "sandbox_id", "id", "user", "context"} & set(schema["properties"])
    assert list(SandboxTools(tools._sandbox).tools) == list(DEFAULT_TOOLS)


def test_descriptions_say_what_the_sandbox_lacks(sandbox: Sandbox) -> None:
    described = SandboxTools(sandbox, timeout=7).tools["run_command"].description
    assert "There is no network." in described and "7 seconds" in described
    with Sandbox.create(ephemeral=True, network="host", workdir="/tmp") as other:
        described = SandboxTools(other).tools["run_command"].description
    assert "network" not in described and "starts in /tmp" in described


def test_no_argument_reaches_another_sandbox(tools: SandboxTools) -> None:
    with Sandbox.create(ephemeral=True) as other:
        other.files.write("secret", "x")
        for extra in ("sandbox", "sandbox_id", "context", "user"):
            arguments = {"code": "open('secret').read()", extra: other.id}
            assert tools.call("run_code", arguments).is_error
        assert tools.call("read_file", {"path": "secret", "sandbox": other.id}).is_error


def test_functions_have_names_types_and_docstrings(tools: SandboxTools) -> None:
    functions = {function.__name__: function for function in tools.functions()}
    assert list(functions) == list(TOOL_NAMES)
    read = functions["read_file"]
    assert list(inspect.signature(read).parameters) == ["path", "max_chars", "offset"]
    assert typing.get_type_hints(read)["path"] is str
    assert "Args:\n    path: File to read" in (inspect.getdoc(read) or "")
    assert functions["run_code"]("6 * 7") == "42"
    assert isinstance(functions["run_code"](code="6 * 7"), Reply)
    assert functions["run_code"](cod="1").is_error
    for function in tools.async_functions():
        assert inspect.iscoroutinefunction(function)


@pytest.mark.parametrize("backend", BACKENDS)
def test_async_functions_do_the_same(sandbox: Sandbox, backend: str) -> None:
    tools = SandboxTools(AsyncSandbox(sandbox), limit=1000)
    functions = {function.__name__: function for function in tools.async_functions()}

    async def main() -> None:
        assert await functions["run_code"]("y = 2; y + 1") == "3"
        assert await functions["run_command"]("echo 1; exit 2") == "1\n[exit code 2]"
        assert "cut here" in await functions["run_command"]("seq 9999")
        await functions["write_file"]("note", "text")
        assert await functions["read_file"](path="note") == "text"
        assert (await functions["read_file"](path="none")).is_error
        reply = await functions["run_code"](shows(PNG))
        assert reply.images[0].data == PNG

    run_async(backend, main)


def test_wrong_options_are_errors(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxValueError, match="run_cod: unknown tool .*run_code"):
        SandboxTools(sandbox, tools=["run_cod"])
    with pytest.raises(SandboxValueError, match="limit"):
        SandboxTools(sandbox, limit=3)
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(SandboxValueError, match="timeout"):
            SandboxTools(sandbox, timeout=timeout)
    with pytest.raises(TypeError, match="Sandbox or AsyncSandbox"):
        SandboxTools("sb-1")  # type: ignore[arg-type]


# --- PydanticAI -----------------------------------------------------------------------------


def scripted(*turns: list[tuple[str, dict[str, Any]]]) -> FunctionModel:
    """A model that makes the calls of each turn at once, then ends."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made = sum(isinstance(message, ModelResponse) for message in messages)
        if made < len(turns):
            calls = [ToolCallPart(name, args) for name, args in turns[made]]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("done")])

    return FunctionModel(answer)


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [
        part.content
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]


def run(toolset: SandboxToolset, *turns: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    agent = Agent(scripted(*turns), toolsets=[toolset])
    done = agent.run_sync("go")
    assert done.output == "done"
    return returned(done.all_messages())


def test_an_agent_runs_code_commands_and_file_tools(sandbox: Sandbox) -> None:
    missing = "Error: none: not found (list the directory to see what is there)"
    replies = run(
        SandboxToolset(sandbox),
        [("run_code", {"code": "z = 5; print('five', file=open('z.txt', 'w'))"})],
        [("run_code", {"code": "z * 2"})],
        [("run_command", {"command": "cat z.txt; exit 1"})],
        [("edit_file", {"path": "z.txt", "old_text": "five", "new_text": "six"})],
        [("read_file", {"path": "z.txt"})],
        [("read_file", {"path": "none"})],
        [("read_file", {"path": "none"})],
        [("read_file", {"path": "none"})],
        [("run_code", {"code": "1 / 0"})],
    )
    assert replies[:3] == ["[no output]", "10", "five\n[exit code 1]"]
    assert replies[4:8] == ["six\n", missing, missing, missing]
    assert replies[8].endswith("ZeroDivisionError: division by zero")


def test_calls_of_one_turn_run_in_their_order(sandbox: Sandbox) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("run_command", {"command": "sleep 0.2; echo 1 > order"}),
        ("run_code", {"code": "print(open('order').read())"}),
        ("write_file", {"path": "order", "content": "2"}),
        ("read_file", {"path": "order"}),
    ]
    replies = run(SandboxToolset(sandbox), calls)
    assert [replies[1].strip(), replies[3]] == ["1", "2"]


def test_an_agent_gets_pictures_as_binary_content(sandbox: Sandbox) -> None:
    sent: list[BinaryContent] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("run_code", {"code": shows(PNG)})])
        for part in messages[-1].parts:
            content = part.content if isinstance(part.content, list) else [part.content]
            sent.extend(one for one in content if isinstance(one, BinaryContent))
        return ModelResponse(parts=[TextPart("seen")])

    agent = Agent(FunctionModel(answer), toolsets=[SandboxToolset(sandbox)])
    assert agent.run_sync("draw").output == "seen"
    assert [(one.data, one.media_type) for one in sent] == [(PNG, "image/png")]


def test_every_tool_can_be_called_by_a_model(sandbox: Sandbox) -> None:
    agent = Agent(TestModel(), toolsets=[SandboxToolset(sandbox, id="box", tools=TOOL_NAMES)])
    done = agent.run_sync("go")
    assert len(returned(done.all_messages())) == len(TOOL_NAMES)


def test_invalid_arguments_are_a_retry_of_pydantic_ai(sandbox: Sandbox) -> None:
    replies = run(
        SandboxToolset(sandbox, max_retries=2),
        [("run_code", {"cod": "1"})],
        [("run_code", {"code": "1"})],
    )
    assert [type(replies[0]), replies[1]] == [list, "1"]


def test_a_sandbox_that_has_ended_ends_the_run() -> None:
    with Sandbox.create(ephemeral=True) as sandbox:
        toolset = SandboxToolset(sandbox)
        sandbox.kill()
        with pytest.raises(SandboxNotFoundError):
            run(toolset, [("run_code", {"code": "1"})])


def test_a_cancelled_run_interrupts_the_code_and_keeps_its_variables() -> None:
    async def main() -> None:
        async with await AsyncSandbox.create(ephemeral=True) as sandbox:
            await sandbox.execute_code("kept = 7")
            code = "open('on', 'w')\nwhile True: pass"
            agent = Agent(
                scripted([("run_code", {"code": code})]), toolsets=[SandboxToolset(sandbox)]
            )
            task = asyncio.create_task(agent.run("go"))
            while not (task.done() or await sandbox.files.exists("on")):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await sandbox.execute_code("kept", timeout=60)).text == "7"

    asyncio.run(main())


def test_the_plain_tools_do_not_need_pydantic_ai() -> None:
    script = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "import cay\n"
        "from cay.tools import SandboxTools, SandboxToolset\n"
        "with cay.Sandbox.create(ephemeral=True) as sandbox:\n"
        "    print(SandboxTools(sandbox).call('run_code', {'code': '6 * 7'}))\n"
        "    try: SandboxToolset(sandbox)\n"
        "    except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    first, second = done.stdout.splitlines()
    assert first == "42" and "pip install pydantic-ai-slim" in second
    assert "cay.tools.SandboxTools" in second
    script = "import sys, cay.tools; print('pydantic_ai' in sys.modules)"
    run_it = functools.partial(subprocess.run, capture_output=True, text=True, timeout=PATIENCE)
    assert run_it([sys.executable, "-c", script]).stdout == "False\n"
