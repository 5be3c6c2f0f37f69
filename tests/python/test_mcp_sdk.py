# SPDX-License-Identifier: Apache-2.0
"""`cay mcp` and `cay mcp wrap` with the official SDKs of MCP and PydanticAI, unmodified."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

mcp = pytest.importorskip("mcp")
mcp_stdio = pytest.importorskip("mcp.client.stdio")

ROOT = Path(__file__).resolve().parents[2]
CAY = os.environ.get("CAY_BIN", str(ROOT / "build" / "cay"))
PATIENCE = 120
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def server(*words):
    return mcp.StdioServerParameters(command=CAY, args=["mcp", *map(str, words)],
                                     env=dict(os.environ))


async def use(call):
    """A client's work: `call` is call_tool() of a session or of a client."""
    done = await call("run_command", {"command": "echo hi; exit 3"})
    assert (done.is_error, done.structured_content["exit_code"]) == (False, 3)
    await call("write_file", {"path": "a.txt", "content": "one\ntwo\n"})
    await call("edit_file", {"path": "a.txt",
                             "edits": [{"old_text": "two", "new_text": "2"}]})
    read = await call("read_file", {"path": "a.txt"})
    assert (read.content[0].text, read.structured_content["total"]) == ("one\n2\n", 2)
    missing = await call("read_file", {"path": "none"})
    assert missing.is_error and missing.content[0].text.startswith("not-found: none")
    code = await call("run_code", {"code": "x = 40\nx + 2"})
    assert code.structured_content["results"][0]["text"] == "42"


def test_the_python_sdk_with_a_handshake():
    async def run():
        progress = []
        async with mcp_stdio.stdio_client(server()) as streams, \
                mcp.ClientSession(*streams) as session:
            found = await session.initialize()
            assert found.protocol_version == "2025-11-25"
            tools = (await session.list_tools()).tools
            assert {"run_command", "read_file", "checkpoint"} <= {tool.name for tool in tools}
            await use(session.call_tool)

            async def note(done, _total, message):
                progress.append((done, message))

            await session.call_tool("run_code", {"code": "print('half')"}, progress_callback=note)
            assert any("half" in message for _, message in progress)
            listed = (await session.list_resources()).resources
            uri = next(one.uri for one in listed if str(one.uri).endswith("/a.txt"))
            assert (await session.read_resource(uri)).contents[0].text == "one\n2\n"

    asyncio.run(run())


def test_a_cancelled_call_of_the_python_sdk_ends_its_command():
    async def run():
        async with mcp_stdio.stdio_client(server()) as streams, \
                mcp.ClientSession(*streams) as session:
            await session.initialize()

            async def listed(tool):
                return json.dumps((await session.call_tool(tool, {})).structured_content)

            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as group:
                    group.start_soon(session.call_tool, "run_command",
                                     {"command": "touch began; sleep 1000.5"})
                    while "began" not in await listed("list_files"):
                        pass
                    group.cancel_scope.cancel()
                while "1000.5" in await listed("list_processes"):
                    pass

    asyncio.run(run())


def test_the_python_sdk_without_a_handshake():
    async def run():
        async with mcp.Client(mcp_stdio.stdio_client(server())) as client:
            assert client.protocol_version == "2026-07-28"
            await use(client.call_tool)

    asyncio.run(run())


class User:
    """Replies to forms, in this order."""

    def __init__(self, *decisions):
        self.decisions, self.seen = list(decisions), []

    async def reply(self, _context, params):
        from mcp_types import ElicitResult
        self.seen.append(params.message)
        assert set(params.requested_schema["properties"]) == {"decision"}
        decision = self.decisions.pop(0)
        if decision in ("decline", "cancel"):
            return ElicitResult(action=decision)
        return ElicitResult(action="accept", content={"decision": decision})


async def ask_the_user(call, user):
    """Of 'echo guarded ...', each needs approval."""
    async def run(command):
        done = await call("run_command", {"command": command})
        return done.content[0].text

    assert await run("echo free") == "free\n" and not user.seen
    assert await run("echo guarded 1") == "guarded 1\n"
    assert len(user.seen) == 1 and "echo guarded 1" in user.seen[0]
    assert (await run("echo guarded 1")).startswith("not-approved: ")
    assert (await run("echo guarded 'it'\"'\"'s'")).startswith("not-approved: ")
    assert await run("echo guarded 2") == "guarded 2\n"
    assert await run("echo guarded 2") == "guarded 2\n"  # a rule
    assert len(user.seen) == 4 and not user.decisions
    user.decisions += ["deny", "deny"]
    await call("run_command", {"command": "echo guarded 3", "env": {"OTHER": "1"}, "cwd": "/tmp"})
    assert "directory, 4 bytes: /tmp\nvariable, 5 bytes: OTHER (" in user.seen[4]
    await call("run_command", {"command": f"echo guarded 4; {' ' * 5000}true"})
    assert user.seen[5].endswith(" true\n")


def approving(tmp_path):
    return mcp.StdioServerParameters(
        command=CAY, args=["mcp", "--approve", "*guarded*"],
        env={**os.environ, "CAY_HOME": str(tmp_path)})


def test_the_user_of_a_client_with_forms_approves_commands(tmp_path):
    user = User("allow", "deny", "decline", "always")
    tmp_path.chmod(0o700)

    async def run():
        async with mcp_stdio.stdio_client(approving(tmp_path)) as streams, \
                mcp.ClientSession(*streams, elicitation_callback=user.reply) as session:
            await session.initialize()
            await ask_the_user(session.call_tool, user)

    asyncio.run(run())


def test_the_user_of_a_client_without_a_handshake_approves_commands(tmp_path):
    user = User("allow", "deny", "cancel", "always")
    tmp_path.chmod(0o700)

    async def run():
        async with mcp.Client(mcp_stdio.stdio_client(approving(tmp_path)),
                              elicitation_callback=user.reply) as client:
            assert client.protocol_version == "2026-07-28"
            await ask_the_user(client.call_tool, user)

    asyncio.run(run())


def test_a_command_waits_in_the_queue_if_the_client_has_no_forms(tmp_path):
    tmp_path.chmod(0o700)
    env = {**os.environ, "CAY_HOME": str(tmp_path)}

    def cay(*words):
        return subprocess.run([CAY, *words], env=env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False).stdout

    async def run():
        async with mcp_stdio.stdio_client(approving(tmp_path)) as streams, \
                mcp.ClientSession(*streams) as session:
            await session.initialize()
            found = []

            async def call():
                done = await session.call_tool("run_command", {"command": "echo guarded"})
                found.append(done.content[0].text)

            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as group:
                    group.start_soon(call)
                    while not (listed := json.loads(cay("approve", "list", "-o", "json"))[
                            "requests"]):
                        await anyio.sleep(0.01)
                    cay("approve", "allow", listed[0]["id"])
            assert found == ["guarded\n"]

    asyncio.run(run())


def test_pydantic_ai_uses_the_tools():
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai import messages
    transports = pytest.importorskip("fastmcp.client.transports")
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.models.function import FunctionModel
    steps = [("write_file", {"path": "f", "content": "written"}),
             ("run_command", {"command": "cat f"})]

    def model(history, info):
        done = sum(isinstance(one, messages.ModelResponse) for one in history)
        assert "run_command" in {tool.name for tool in info.function_tools}
        if done < len(steps):
            return messages.ModelResponse([messages.ToolCallPart(*steps[done])])
        last = history[-1].parts[0].content
        return messages.ModelResponse([messages.TextPart(str(last))])

    async def run():
        toolset = MCPToolset(transports.StdioTransport(
            CAY, ["mcp", "--tools", "run_command,write_file"], env=dict(os.environ)))
        agent = pydantic_ai.Agent(FunctionModel(model), toolsets=[toolset])
        return (await agent.run("go")).output

    assert "written" in asyncio.run(run())


SERVER = """
from mcp.server import MCPServer

server = MCPServer("theirs")


@server.tool()
def look(path: str) -> list[str]:
    import os
    return sorted(os.listdir(path))


server.run()
"""


def test_a_wrapped_server_of_the_python_sdk_works_and_is_confined(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "secret").write_text("")
    program = f"/usr/bin/python3.{sys.version_info.minor}"
    if not os.path.exists(program):
        pytest.skip(f"{program} is not there")
    packages = Path(mcp.__file__).parents[1].resolve()
    words = ["wrap", "-v", f"{tmp_path}/server.py:/server/server.py:ro",
             "-v", f"{packages}:/packages:ro", "-e", "PYTHONPATH=/packages", "--", program,
             "/server/server.py"]

    async def run():
        async with mcp_stdio.stdio_client(server(*words)) as streams, \
                mcp.ClientSession(*streams) as session:
            await session.initialize()
            done = await session.call_tool("look", {"path": "/server"})
            assert done.structured_content["result"] == ["server.py"]
            assert (await session.call_tool("look", {"path": str(tmp_path)})).is_error

    asyncio.run(run())


def install():
    """The folder with the SDK in JavaScript."""
    place = ROOT / "build" / "mcp-js"
    package = json.loads((Path(__file__).parent / "js" / "package.json").read_text())
    wanted = package["dependencies"]["@modelcontextprotocol/sdk"]
    if not shutil.which("npm", path=PATH):
        pytest.skip("npm is not there; tools/make-venv brings it")
    shutil.copytree(Path(__file__).parent / "js", place, dirs_exist_ok=True)
    installed = place / "node_modules/@modelcontextprotocol/sdk/package.json"
    if not installed.exists() or json.loads(installed.read_text())["version"] != wanted:
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
            cwd=place, env={**os.environ, "PATH": PATH}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=10 * PATIENCE, check=False)
        if done.returncode:
            pytest.skip(f"npm install: {done.stderr.strip().splitlines()[:1]}")
    return place


def test_the_javascript_sdk(tmp_path):
    place = install()
    (tmp_path / "shown").write_text("of the host")
    done = subprocess.run(["node", "mcp.mjs", CAY, tmp_path], cwd=place, timeout=PATIENCE,
                          env={**os.environ, "PATH": PATH}, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
