# SPDX-License-Identifier: Apache-2.0
"""MCP over HTTP: `cay serve --mcp` with clients that are right, and with ones that are not."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import raw
from described import undescribed
from serving import CAY, PATIENCE, ROOT, Server, name_of, rss_kib, state, unavailable, wait_until

sys.path.append(str(ROOT / "tests" / "python"))

TYPES = {"Accept": "application/json, text/event-stream"}
HELLO = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"}}}
MODERN = "2026-07-28"


@pytest.fixture(scope="module", name="mcp")
def fixture_mcp(tmp_path_factory):
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    server = Server(tmp_path_factory.mktemp("home"), "--reserve", "0", "--mcp",
                    "--mcp-sandboxes", "1").start()
    yield server
    left = sessions(server)
    server.clean()
    wait_until(lambda: not any(map(lives, left)),
               "the process of a session outlives the server")
    assert undescribed(server.home / "access.log") == set(), "docs/openapi.yaml does not tell"


def sessions(server):
    return [pid for pid in server.children() if name_of(pid) == "cay-mcp"]


def running(seconds):
    """The processes `sleep SECONDS` of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(path.parent.name)
    return found


def lives(pid):
    return state(pid) not in ("", "Z")


def events(lines):
    """(id, message) of each event of a stream; the message None for none."""
    found, name = [], None
    for line in lines:
        if line.startswith("id: "):
            name = line[4:]
        elif line.startswith("data:"):
            found.append((name, json.loads(line[5:]) if line[5:].strip() else None))
            yield found[-1]


class Client:
    """One that says exactly what a test wants it to say."""

    def __init__(self, server, key=None, hello=HELLO):
        self.url, self.next = server.url + "/mcp", 0
        self.http = httpx.Client(timeout=PATIENCE, headers={
            **TYPES, "X-API-Key": key or server.key})
        if hello:
            done = self.post(hello)
            assert done.status_code == 200, done.text
            self.http.headers["Mcp-Session-Id"] = done.headers["mcp-session-id"]
            self.http.headers["MCP-Protocol-Version"] = hello["params"]["protocolVersion"]
            assert self.post({"jsonrpc": "2.0",
                              "method": "notifications/initialized"}).status_code == 202

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if "Mcp-Session-Id" in self.http.headers:
            self.http.delete(self.url)
        self.http.close()

    def post(self, message, **headers):
        return self.http.post(self.url, json=message, headers=headers)

    def request(self, method, **params):
        self.next += 1
        return {"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}

    def call(self, name, **arguments):
        return self.request("tools/call", name=name, arguments=arguments)

    def stream(self, message, **headers):
        return self.http.stream("POST", self.url, json=message, headers=headers)

    def result(self, name, **arguments):
        """Of a tool."""
        done = self.post(self.call(name, **arguments))
        assert done.status_code == 200, done.text
        if done.headers["content-type"] == "application/json":
            return done.json()["result"]
        *_, (_, last) = events(done.text.splitlines())
        return last["result"]

    def output(self, command):
        return self.result("run_command", command=command)["structuredContent"]["stdout"]


def modern(method, request_id=1, **params):
    """The message of a client without a session, and its headers."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {}}}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = params.get("name") or params.get("uri")
    return message, {**headers, **({"Mcp-Name": name} if name else {})}


# --- The SDKs ---


async def use(call):
    """A client's work: `call` is call_tool() of a session or of a client."""
    done = await call("run_command", {"command": "echo hi; exit 3"})
    assert (done.is_error, done.structured_content["exit_code"]) == (False, 3)
    await call("write_file", {"path": "a.txt", "content": "one\ntwo\n"})
    read = await call("read_file", {"path": "a.txt"})
    assert (read.content[0].text, read.structured_content["total"]) == ("one\ntwo\n", 2)
    missing = await call("read_file", {"path": "none"})
    assert missing.is_error and missing.content[0].text.startswith("not-found: none")
    code = await call("run_code", {"code": "x = 40\nx + 2"})
    assert code.structured_content["results"][0]["text"] == "42"


def test_the_python_sdk_with_a_handshake_keeps_one_sandbox(mcp):
    sdk = pytest.importorskip("mcp")
    http = pytest.importorskip("mcp.client.streamable_http")
    httpx2 = pytest.importorskip("httpx2")

    async def run():
        progress = []
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {mcp.key}"},
                                      timeout=PATIENCE) as own, \
                http.streamable_http_client(mcp.url + "/mcp", http_client=own) as streams, \
                sdk.ClientSession(*streams[:2]) as session:
            assert (await session.initialize()).protocol_version == "2025-11-25"
            await use(session.call_tool)

            async def note(_done, _total, message):
                progress.append(message)

            await session.call_tool("run_code", {"code": "print('half')"}, progress_callback=note)
            assert any("half" in message for message in progress)
            listed = (await session.list_resources()).resources
            uri = next(one.uri for one in listed if str(one.uri).endswith("/a.txt"))
            assert (await session.read_resource(uri)).contents[0].text == "one\ntwo\n"

    asyncio.run(run())


def test_the_python_sdk_without_a_handshake_keeps_one_sandbox(mcp):
    sdk = pytest.importorskip("mcp")
    http = pytest.importorskip("mcp.client.streamable_http")
    httpx2 = pytest.importorskip("httpx2")
    key = mcp.new_key("modern-sdk")

    async def run():
        async with httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=PATIENCE) as own, \
                sdk.Client(http.streamable_http_client(mcp.url + "/mcp",
                                                       http_client=own)) as client:
            assert client.protocol_version == MODERN
            await use(client.call_tool)

    asyncio.run(run())


@pytest.mark.parametrize("is_modern", [False, True], ids=["session", "no-session"])
def test_the_user_approves_commands(own_server, is_modern):
    sdk = pytest.importorskip("mcp")
    http = pytest.importorskip("mcp.client.streamable_http")
    httpx2 = pytest.importorskip("httpx2")
    from test_mcp_sdk import User, ask_the_user
    server = own_server("--mcp", "--mcp-approve", "nothing,*guarded*")
    user = User("allow", "deny", "decline", "always")

    async def run():
        async with httpx2.AsyncClient(headers={"X-API-Key": server.key}, timeout=PATIENCE) as own:
            transport = http.streamable_http_client(server.url + "/mcp", http_client=own)
            if is_modern:
                async with sdk.Client(transport, elicitation_callback=user.reply) as client:
                    assert client.protocol_version == MODERN
                    await ask_the_user(client.call_tool, user)
                return
            async with transport as streams, sdk.ClientSession(
                    *streams[:2], elicitation_callback=user.reply) as session:
                await session.initialize()
                await ask_the_user(session.call_tool, user)

    asyncio.run(run())


def test_a_reply_of_another_session_approves_nothing(own_server):
    server = own_server("--mcp", "--mcp-approve", "*guarded*")
    hello = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}
    with Client(server, hello=hello) as client, Client(server, hello=hello) as other:
        with client.stream(client.call("run_command", command="echo guarded")) as reply:
            found = events(reply.iter_lines())
            asked = next(one for _, one in found if one)
            assert asked["method"] == "elicitation/create"
            yes = {"jsonrpc": "2.0", "id": asked["id"],
                   "result": {"action": "accept", "content": {"decision": "allow"}}}
            assert other.post(yes).status_code == 202
            assert other.output("echo other") == "other\n"
            assert len(server.api("GET", "/approvals")[1]) == 1
            no = {**yes, "result": {"action": "decline"}}
            assert client.post(no).status_code == 202
            assert list(found)[-1][1]["result"]["isError"]


def test_a_form_has_all_that_is_approved_and_goes_to_its_call_alone(own_server):
    server = own_server("--mcp", "--mcp-approve", "echo guarded*")
    hello = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}
    with Client(server, hello=hello) as client:
        call = client.call("run_command", command="echo guarded; sleep 1", cwd="/tmp/\x1b\u202e",
                           env={"GIT_SSH_COMMAND": "other"})
        with client.stream(call) as reply:
            found = events(reply.iter_lines())
            asked = next(one for _, one in found if one)
            message = asked["params"]["message"]
            assert "echo guarded; sleep 1" in message and " bytes: GIT_SSH_COMMAND (" in message
            assert "directory, 9 bytes: /tmp/\\u{1b}\\u{202e}\n" in message
            with client.stream(client.call("run_command", command="sleep 1")) as other:
                assert "elicitation" not in other.read().decode()  # a part of the other's text
            no = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}
            assert client.post(no).status_code == 202
            assert list(found)[-1][1]["result"]["isError"]


def test_the_form_of_a_long_command_has_its_end(own_server):
    server = own_server("--mcp", "--mcp-approve", "echo guarded*")
    hello = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}
    with Client(server, hello=hello) as client:
        command = "echo guarded " + "a" * 6000 + "; true the-end"
        with client.stream(client.call("run_command", command=command)) as reply:
            found = events(reply.iter_lines())
            asked = next(one for _, one in found if one)
            assert "; true the-end" in asked["params"]["message"]
            no = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}
            assert client.post(no).status_code == 202
            assert list(found)[-1][1]["result"]["isError"]


def test_the_user_approves_what_tools_write(own_server):
    server = own_server("--mcp", "--mcp-approve-writes", "nothing,*.py")
    hello = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}
    with Client(server, hello=hello) as client:
        def write(content, decision):
            call = client.call("write_file", path="a.py", content=content)
            with client.stream(call) as reply:
                found = events(reply.iter_lines())
                asked = next(one for _, one in found if one)
                assert asked["params"]["message"].endswith(content)
                waiting = server.api("GET", "/approvals")[1]
                assert [one["kind"] for one in waiting] == ["write"]
                answer = {"action": "accept", "content": {"decision": decision}}
                client.post({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
                return list(found)[-1][1]["result"]

        client.result("write_file", path="a.txt", content="free")
        assert not write("one\n", "allow")["isError"]
        assert write("two\n", "deny")["isError"]
        assert client.output("cat a.py") == "one\n"


def test_unread_responses_are_charged_to_the_key(mcp):
    """Whatever else the requests have: a header that changes is not another client."""
    key = mcp.new_key("unread")
    with Client(mcp, key=key) as client, ExitStack() as stack:
        client.result("write_file", path="big", content="\x01" * 1_000_000)
        statuses = []
        for number in range(16):
            connection = stack.enter_context(raw.connect(mcp))
            connection.sendall(raw.sized(
                "POST /mcp", json.dumps(client.call("read_file", path="big")).encode(),
                f"X-API-Key: {key}", f"Mcp-Session-Id: {client.http.headers['Mcp-Session-Id']}",
                f"X-Access-Token: {number}", "Accept: application/json",
                "Content-Type: application/json"))
            statuses.append(raw.parse(connection.recv(4000)).status)
        assert statuses[0] == 200 and statuses[-1] == 503


def test_pydantic_ai_uses_the_tools(mcp):
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai import messages
    transports = pytest.importorskip("fastmcp.client.transports")
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.models.function import FunctionModel
    key = mcp.new_key("pydantic")
    steps = [("write_file", {"path": "f", "content": "written"}),
             ("run_command", {"command": "cat f"})]

    def model(history, info):
        done = sum(isinstance(one, messages.ModelResponse) for one in history)
        assert "run_command" in {tool.name for tool in info.function_tools}
        if done < len(steps):
            return messages.ModelResponse([messages.ToolCallPart(*steps[done])])
        return messages.ModelResponse([messages.TextPart(str(history[-1].parts[0].content))])

    async def run():
        toolset = MCPToolset(transports.StreamableHttpTransport(
            mcp.url + "/mcp", headers={"X-API-Key": key}))
        agent = pydantic_ai.Agent(FunctionModel(model), toolsets=[toolset])
        return (await agent.run("go")).output

    assert "written" in asyncio.run(run())


def test_the_javascript_sdk_keeps_one_sandbox(mcp):
    import test_mcp_sdk  # its SDK is installed once
    place = test_mcp_sdk.install()
    done = subprocess.run(["node", "mcp-http.mjs", mcp.url + "/mcp", mcp.key], cwd=place,
                          timeout=PATIENCE, env={**mcp.env, "PATH": test_mcp_sdk.PATH},
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


# --- Sessions ---


def test_a_session_has_one_sandbox_and_delete_removes_both(mcp):
    before = set(sessions(mcp))
    with Client(mcp) as client:
        client.result("write_file", path="/tmp/x", content="kept")
        assert client.output("cat /tmp/x") == "kept"
        (pid,) = set(sessions(mcp)) - before
        client.result("start_process", command="exec sleep 1000.125")
        wait_until(lambda: running("1000.125"), "the command does not start")
        assert client.http.delete(client.url).status_code == 204
        wait_until(lambda: pid not in sessions(mcp), "the process stays")
        wait_until(lambda: not running("1000.125"), "the sandbox stays")
        gone = client.post(client.request("tools/list"))
        assert gone.status_code == 404
        assert client.http.get(client.url).status_code == 404
        del client.http.headers["Mcp-Session-Id"]


def test_two_sessions_of_a_tenant_do_not_see_each_other(mcp):
    with Client(mcp) as one, Client(mcp) as other:
        one.result("write_file", path="/tmp/x", content="mine")
        assert other.output("cat /tmp/x 2>/dev/null; echo none") == "none\n"


def test_the_session_of_another_tenant_is_unknown(mcp):
    with Client(mcp) as client:
        thief = {"X-API-Key": mcp.new_key("thief")}
        for method in "POST", "GET", "DELETE":
            done = client.http.request(
                method, client.url, headers=thief,
                json=client.request("tools/list") if method == "POST" else None)
            assert done.status_code == 404, method
        assert client.output("echo here") == "here\n"


def test_requests_without_a_session_share_the_sandbox_of_their_tenant(mcp):
    key = mcp.new_key("alone")
    with Client(mcp, key, hello=None) as client:
        before = set(sessions(mcp))

        def output(command, **more):
            message, headers = modern("tools/call", name="run_command",
                                      arguments={"command": command})
            return client.post(message, **headers, **more).json()["result"][
                "structuredContent"]["stdout"]

        assert output("echo 1 > /tmp/x; cat /tmp/x") == "1\n"
        assert output("cat /tmp/x") == "1\n"
        assert output("cat /tmp/x 2>/dev/null; echo none", **{"Cay-Session": "b"}) == "none\n"
        assert len(set(sessions(mcp)) - before) == 2


def test_a_client_without_a_session_cancels_by_leaving(mcp):
    key = mcp.new_key("leaver")
    with Client(mcp, key, hello=None) as client:
        message, headers = modern("tools/call", name="run_command",
                                  arguments={"command": "touch /tmp/began; exec sleep 1000.25"})
        with mcp.connect() as leaving:
            body = json.dumps(message).encode()
            leaving.sendall(raw.sized("POST /mcp", body, f"X-API-Key: {key}",
                                      "Content-Type: application/json", "Accept: */*",
                                      *(f"{name}: {text}" for name, text in headers.items())))

            def shown(command):
                message, headers = modern("tools/call", 2, name="run_command",
                                          arguments={"command": command})
                return client.post(message, **headers).json()["result"]["structuredContent"][
                    "stdout"]

            wait_until(lambda: "began" in shown("ls /tmp"), "the command does not start")
            assert "1000.25" in shown("ps ax")
        wait_until(lambda: "1000.25" not in shown("ps ax"), "the command stays")


def test_a_client_that_left_a_session_gets_what_it_missed(mcp):
    with Client(mcp) as client:
        message = client.call("run_command", command="while ! [ -e /tmp/go ]; do sleep 0.01; done")
        with client.stream(message) as reply:
            name, first = next(events(reply.iter_lines()))
            assert first is None  # so that the client has an id in any case
        client.result("write_file", path="/tmp/go", content="")
        with client.http.stream("GET", client.url, headers={"Last-Event-ID": name}) as reply:
            found = list(events(reply.iter_lines()))
        last = [one for _, one in found if one]
        assert last[-1]["id"] == message["id"]
        assert last[-1]["result"]["structuredContent"]["exit_code"] == 0
        with client.http.stream("GET", client.url, headers={"Last-Event-ID": name}) as again:
            assert [one for _, one in events(again.iter_lines()) if one] == last


def test_a_cancelled_request_ends_its_command(mcp):
    with Client(mcp) as client:
        message = client.call("run_command", command="touch /tmp/began; exec sleep 1000.5")
        with client.stream(message) as reply:
            found = events(reply.iter_lines())
            next(found)
            wait_until(lambda: "began" in client.output("ls /tmp"), "the command does not start")
            done = client.post({"jsonrpc": "2.0", "method": "notifications/cancelled",
                                "params": {"requestId": message["id"]}})
            assert done.status_code == 202
            assert list(found)[-1][1]["error"]
        wait_until(lambda: "1000.5" not in client.output("ps ax"), "the command stays")


def test_a_batch_has_all_answers_in_one_stream(mcp):
    hello = {**HELLO, "params": {**HELLO["params"], "protocolVersion": "2025-03-26"}}
    with Client(mcp, hello=hello) as client:
        batch = [client.call("run_command", command="echo a"), client.request("tools/list"),
                 {"jsonrpc": "2.0", "method": "notifications/none"}, client.request("ping")]
        done = client.post(batch)
        found = {one["id"] for _, one in events(done.text.splitlines()) if one}
        assert found == {one["id"] for one in batch if "id" in one}
        assert client.post([]).status_code == 400
        assert client.post([client.request("ping")] * 65).status_code == 400


def test_a_request_that_its_own_batch_cancels_does_not_end_the_stream(mcp):
    hello = {**HELLO, "params": {**HELLO["params"], "protocolVersion": "2025-03-26"}}
    with Client(mcp, hello=hello) as client:
        first = client.call("run_command", command="exec sleep 1000")
        last = client.call("run_command", command="echo later")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled",
                  "params": {"requestId": first["id"]}}
        done = client.post([first, cancel, last])
        found = {one["id"]: one for _, one in events(done.text.splitlines()) if one}
        assert "cancelled" in found[first["id"]]["error"]["message"]
        assert found[last["id"]]["result"]["structuredContent"]["stdout"] == "later\n"
        # Nothing is left to wait for: the stream ends with the batch.
        done = client.post([first, cancel])
        (only,) = [one for _, one in events(done.text.splitlines()) if one]
        assert only["id"] == first["id"] and "error" in only


def test_requests_of_a_batch_that_a_session_cannot_take_are_answered(mcp):
    """9e15 has 18 digits for the process, whose messages have at most 16 MiB."""
    hello = {**HELLO, "params": {**HELLO["params"], "protocolVersion": "2025-03-26"}}
    with Client(mcp, hello=hello) as client:
        large = client.request("ping", x=[])
        small = client.request("ping")
        body = json.dumps([large, small]).replace("[]", "[" + "9e15," * 949_999 + "9e15]")
        done = client.http.post(client.url, content=body, headers={
            "Content-Type": "application/json"})
        found = {one["id"]: one for _, one in events(done.text.splitlines()) if one}
        assert found, done.text[:300]
        assert "too large" in found[large["id"]]["error"]["message"]
        assert found[small["id"]]["result"] == {}


def test_the_stream_of_a_get_ends_with_its_session(mcp):
    with Client(mcp) as client, client.http.stream("GET", client.url) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        assert client.http.delete(client.url).status_code == 204
        assert all(one is None for _, one in events(reply.iter_lines()))
        del client.http.headers["Mcp-Session-Id"]


def test_a_session_that_has_lost_its_process_is_unknown(mcp):
    before = set(sessions(mcp))
    with Client(mcp) as client:
        (pid,) = set(sessions(mcp)) - before
        with client.stream(client.call("run_command", command="exec sleep 1000")) as reply:
            found = events(reply.iter_lines())
            next(found)
            subprocess.run(["kill", "-9", str(pid)], check=True)
            *_, (_, last) = found
            assert last["error"]["message"] == "the session has ended"
        wait_until(lambda: client.post(client.request("ping")).status_code == 404, "it is known")
        del client.http.headers["Mcp-Session-Id"]


def test_open_streams_end_when_their_key_is_removed(mcp):
    leaving, staying = mcp.new_key("leaver"), mcp.new_key("leaver")
    with Client(mcp, leaving) as client, Client(mcp, staying) as other, \
            client.http.stream("GET", client.url) as listener, \
            client.stream(client.call("run_command", command="exec sleep 1000")) as calling, \
            other.http.stream("GET", other.url) as alive:
        [number] = [line.split("\t")[0] for line in mcp.cay("key", "ls").stdout.splitlines()
                    if line.split("\t")[2].startswith(leaving[:10])]
        assert mcp.cay("key", "rm", number).returncode == 0
        for reply in listener, calling:
            with pytest.raises(httpx.RemoteProtocolError):
                for _ in reply.iter_lines():
                    pass
        assert client.post(client.request("ping")).status_code == 401
        assert next(line for line in alive.iter_lines() if line.startswith(":"))
        assert other.post(other.request("ping")).status_code == 200
        client.http.headers["X-API-Key"] = staying  # ends the session of its tenant


def test_sessions_whose_processes_end_at_the_same_time_do_not_end_the_server(mcp):
    """The broker hears of both processes in one round: the first one's end, then the second's socket."""
    before = set(sessions(mcp))
    with Client(mcp) as one, Client(mcp) as other:
        ended = sorted(set(sessions(mcp)) - before)
        assert len(ended) == 2
        os.kill(mcp.broker, signal.SIGSTOP)
        try:
            for pid in ended:
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: state(pid) == "Z", "the process does not end")
        finally:
            os.kill(mcp.broker, signal.SIGCONT)
        for client in one, other:
            wait_until(lambda: client.post(client.request("ping")).status_code == 404, "it is known")
            del client.http.headers["Mcp-Session-Id"]
    assert mcp.process.poll() is None and not set(ended) & set(sessions(mcp))


# --- Refusals ---


def test_keys_and_origins_are_checked(mcp):
    with Client(mcp, hello=None) as client:
        for key in "", "e2b_0000", "x" * 5000:
            done = client.post(HELLO, **{"X-API-Key": key})
            assert done.status_code == 401, key
        assert client.post(HELLO, Origin="http://evil.example").status_code == 403
        assert client.post(HELLO, Host="evil.example").status_code == 421
        own = client.post(HELLO, Origin=mcp.url)
        assert own.status_code == 200
        client.http.headers["Mcp-Session-Id"] = own.headers["mcp-session-id"]


@pytest.mark.parametrize(("body", "code"), [
    (b"", -32700), (b"{", -32700), (b"[[[[", -32700), (b"7", -32700), (b'"x"', -32700),
    (b"\xff\xfe", -32700), (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
    (b"{}", -32600), (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
    (b"[" + b"[]," * 20000 + b"[]]", -32600), (b"[" * 100000, -32700),
    (b"[" + b"{}," * 5000000 + b"{}]", -32700),
])
def test_malformed_messages_are_refused(mcp, body, code):
    with Client(mcp) as client:
        done = client.http.post(client.url, content=body,
                                headers={"Content-Type": "application/json"})
        assert (done.status_code, done.json()["error"]["code"]) == (400, code), done.text
        assert client.post(client.request("ping")).json()["result"] == {}


def test_what_the_front_keeps_of_a_request_is_bounded(mcp):
    """Its id and its token wait there for the answer, without a connection, too."""
    long = "x" * 1025
    with Client(mcp) as client:
        for message in ({**client.request("ping"), "id": long},
                        client.request("ping", _meta={"progressToken": long})):
            done = client.post(message)
            assert (done.status_code, done.json()["error"]["code"]) == (400, -32600), done.text
            assert "1024 bytes" in done.json()["error"]["message"]
        done = client.post({**client.request("ping"), "id": long[1:]})
        assert done.json()["result"] == {} and done.json()["id"] == long[1:]
    with Client(mcp, hello={**HELLO, "params": {**HELLO["params"], "protocolVersion": "2025-03-26"}}) as client:
        done = client.post([client.request("ping"), {**client.request("ping"), "id": long}])
        assert done.status_code == 400 and "1024 bytes" in done.text


def test_a_message_that_is_too_large_is_refused(mcp):
    with Client(mcp) as client:
        message = client.call("write_file", path="/tmp/x", content="x" * (17 << 20))
        assert client.post(message).status_code == 413
        assert client.result("write_file", path="/tmp/x", content="x" * (7 << 20))[
            "isError"] is False
        assert client.output("wc -c < /tmp/x") == f"{7 << 20}\n"


def test_headers_are_checked(mcp):
    with Client(mcp) as client:
        ping = client.request("ping")
        for status, headers in [(415, {"Content-Type": "text/plain"}), (406, {"Accept": "text/html"}),
                                (400, {"MCP-Protocol-Version": "1999-01-01"}),
                                (404, {"Mcp-Session-Id": "0" * 32}), (404, {"Mcp-Session-Id": ""}),
                                (400, {"Cay-Session": "../x"})]:
            assert client.post(ping, **headers).status_code == status, headers
        assert client.http.get(client.url, headers={"Accept": "application/json"}).status_code == 406
        assert client.http.put(client.url).status_code == 405
        assert client.post(ping).status_code == 200
    with Client(mcp, hello=None) as client:
        assert client.post(ping).status_code == 400
        assert client.http.get(client.url).status_code == 400
        for wrong in "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name":
            message, headers = modern("tools/call", name="run_command", arguments={})
            done = client.post(message, **{**headers, wrong: "2025-11-25"})
            assert (done.status_code, done.json()["error"]["code"]) == (400, -32020), wrong


def test_the_revision_without_sessions_has_statuses_of_errors(mcp):
    key = mcp.new_key("statuses")
    with Client(mcp, key, hello=None) as client:
        message, headers = modern("no/such")
        done = client.post(message, **headers)
        assert done.status_code == 404, (done.headers, done.text)
        message, headers = modern("tools/call", name="none", arguments={})
        assert client.post(message, **headers).status_code == 400
        message, headers = modern("tools/list")
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01"
        done = client.post(message, **{**headers, "MCP-Protocol-Version": "2099-01-01"})
        assert (done.status_code, done.json()["error"]["code"]) == (400, -32022)


def test_slow_readers_and_clients_that_vanish_do_not_stop_others(mcp):
    with Client(mcp) as client:
        client.result("run_command", command="head -c 700000 /dev/zero | tr '\\0' x > /tmp/big")
        slow = []
        for number in range(20):
            body = json.dumps({"jsonrpc": "2.0", "id": f"slow{number}", "method": "tools/call",
                               "params": {"name": "read_file",
                                          "arguments": {"path": "/tmp/big"}}}).encode()
            connection = mcp.connect()
            connection.sendall(raw.sized(
                "POST /mcp", body, f"X-API-Key: {mcp.key}", "Content-Type: application/json",
                "Accept: text/event-stream", "MCP-Protocol-Version: 2025-11-25",
                f"Mcp-Session-Id: {client.http.headers['Mcp-Session-Id']}"))
            slow.append(connection)
        with Client(mcp) as other:
            assert other.output("echo other") == "other\n"
        for connection in slow[::2]:
            connection.close()
        assert client.output("echo own") == "own\n"
        for connection in slow[1::2]:
            connection.close()


def test_messages_for_sessions_that_do_not_read_are_bounded(mcp):
    """45 MiB for one of 32 and the message that passes it, 64 MiB for the sessions of a tenant."""
    large = json.dumps({"jsonrpc": "2.0", "method": "notifications/none",
                        "params": {"x": "x" * (15 << 20)}}).encode()
    small = {"jsonrpc": "2.0", "method": "notifications/none"}
    key, before = mcp.new_key("stopped"), set(sessions(mcp))
    with Client(mcp, key) as one, Client(mcp, key) as other, Client(mcp) as neighbour:
        def post(client):
            return client.http.post(client.url, content=large, headers={
                "Content-Type": "application/json"}).status_code

        one.output("true")
        stopped = set(sessions(mcp)) - before
        held = rss_kib(mcp.front())
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            assert [post(one) for _ in range(4)] == [202, 202, 202, 503]
            assert [post(other) for _ in range(2)] == [202, 503]
            assert other.post(small).status_code == 202
            assert post(neighbour) == 202
            assert rss_kib(mcp.front()) - held < 256 << 10
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        for client in one, other:
            wait_until(lambda client=client: client.post(client.request("ping")).status_code == 200,
                       "a session does not read what it was sent")
        assert one.output("echo one") == "one\n" and other.output("echo other") == "other\n"
        assert neighbour.output("echo neighbour") == "neighbour\n"


def test_a_client_that_does_not_read_a_large_reply_gets_all_of_it_later(mcp):
    """Control characters have six letters each in JSON: 12 MB, twice in the reply."""
    size, key = 1_000_000, mcp.new_key("large")
    with Client(mcp, key) as client, ExitStack() as stack:
        client.result("write_file", path="/tmp/big", content="\x01" * size)
        held, slow = rss_kib(mcp.front()), []
        for number in range(4):
            connection = stack.enter_context(raw.connect(mcp))
            message = {**client.call("read_file", path="/tmp/big"), "id": f"slow{number}"}
            connection.sendall(raw.sized(
                "POST /mcp", json.dumps(message).encode(), f"X-API-Key: {key}",
                "Content-Type: application/json", "Accept: text/event-stream",
                f"Mcp-Session-Id: {client.http.headers['Mcp-Session-Id']}", "Connection: close"))
            slow.append(connection)
        with Client(mcp) as other:
            for _ in range(10):
                assert other.output("echo other") == "other\n"
        assert rss_kib(mcp.front()) - held < 96 << 10
        with ThreadPoolExecutor(len(slow)) as pool:
            for number, heard in enumerate(pool.map(raw.hear, slow)):
                assert f'"slow{number}"'.encode() in heard, heard[:1000]
                assert heard.count(b"\\u0001") >= size, heard[-300:]


def test_calls_that_change_something_are_in_the_audit_record(own_server):
    server = own_server("--mcp")

    def record():
        done = server.cay("audit", "export")
        assert done.returncode == 0, done.stderr
        return [one for one in map(json.loads, done.stdout.splitlines()) if one["action"].startswith("mcp.")]

    with Client(server, server.new_key("ann")) as client:
        client.output("echo one")
        client.result("write_file", path="/tmp/note", content="not in the record")
        client.result("read_file", path="/tmp/note")
        client.result("run_code", code="print(6 * 7)" + " " * 1000)
        client.result("run_command", command=["true"])  # refused: it has another type
    wait_until(lambda: not sessions(server), "a session did not end")
    begin, *calls = record()
    assert begin["action"] == "mcp.start" and begin["tenant"] == "ann"
    assert [one["details"] for one in calls] == [
        {"tool": "run_command", "command": "echo one"}, {"tool": "write_file", "path": "/tmp/note"},
        {"tool": "run_code", "code": ("print(6 * 7)" + " " * 1000)[:511]}]
    assert {(one["action"], one["actor"], one["tenant"], one["verdict"], one["request"]) for one in calls} == {
        ("mcp.call", "client", "ann", "allow", begin["request"])}
    assert server.cay("audit", "verify").returncode == 0


def test_sessions_are_limited(mcp):
    key = mcp.new_key("many")
    clients = []
    try:
        for _ in range(32):
            clients.append(Client(mcp, key))
        with Client(mcp, key, hello=None) as client:
            assert client.post(HELLO).status_code == 429
        with Client(mcp) as other:
            assert other.post(other.request("ping")).status_code == 200
    finally:
        for client in clients:
            client.__exit__()


# --- Kept sandboxes ---


@pytest.fixture(scope="module", name="keeping")
def fixture_keeping(tmp_path_factory):
    if os.geteuid() != 0:
        unavailable("the tests of the server are run by root")
    server = Server(tmp_path_factory.mktemp("keeping"), "--reserve", "0", "--mcp",
                    "--mcp-keep", "2").start()
    yield server
    for one in kept(server):
        server.cay("rm", one["id"])
    server.clean()
    assert undescribed(server.home / "access.log") == set(), "docs/openapi.yaml does not tell"


def kept(server):
    """Those that belong to this server."""
    return [one for one in json.loads(server.cay("ls", "-o", "json").stdout)["sandboxes"]
            if (one["name"] or "").startswith("mcp-")]


def in_sandbox(server, name, key=None):
    client = Client(server, key, hello=None)
    client.http.headers["Cay-Sandbox"] = name
    done = client.post(HELLO)
    assert done.status_code == 200, done.text
    client.http.headers["Mcp-Session-Id"] = done.headers["mcp-session-id"]
    return client


def remove(server, name, key=None):
    return httpx.delete(server.url + "/mcp", timeout=PATIENCE, headers={
        "X-API-Key": key or server.key, "Cay-Sandbox": name}).status_code


def test_a_named_sandbox_outlives_its_sessions_and_the_server(keeping):
    key = keeping.new_key("outlives")
    with in_sandbox(keeping, "project", key) as client:
        client.result("write_file", path="/tmp/x", content="kept")
        client.result("start_process", command="exec sleep 1000.75")
    wait_until(lambda: not sessions(keeping), "the process of the session stays")
    assert running("1000.75")
    keeping.stop()
    keeping.start(exports=3)
    with in_sandbox(keeping, "project", key) as client:
        assert client.output("cat /tmp/x") == "kept"
        with in_sandbox(keeping, "project", key) as other:  # both at once
            assert other.output("cat /tmp/x") == "kept"
        assert remove(keeping, "project", key) == 409
        other = client.post(client.request("ping"), **{"Cay-Sandbox": "other"})
        assert other.status_code == 400 and "Cay-Sandbox" in other.text
    wait_until(lambda: not sessions(keeping), "the process of the session stays")
    assert remove(keeping, "project", key) == 204
    assert not running("1000.75")
    assert remove(keeping, "project", key) == 404


def test_a_named_sandbox_belongs_to_its_tenant(keeping):
    key, other = keeping.new_key("one"), keeping.new_key("two")
    with in_sandbox(keeping, "same", key) as client, in_sandbox(keeping, "same", other) as thief:
        client.result("write_file", path="/tmp/x", content="mine")
        assert thief.output("cat /tmp/x 2>/dev/null; echo none") == "none\n"
    wait_until(lambda: not sessions(keeping), "the processes of the sessions stay")
    assert (remove(keeping, "same", key), remove(keeping, "same", key)) == (204, 404)
    assert remove(keeping, "same", other) == 204


def test_kept_sandboxes_are_limited(keeping):
    key = keeping.new_key("limited")
    with in_sandbox(keeping, "a", key) as first, in_sandbox(keeping, "b", key) as second, \
            Client(keeping, key, hello=None) as third:
        first.output("true")
        full = third.post(HELLO, **{"Cay-Sandbox": "c"})
        assert full.status_code == 429 and "DELETE" in full.text
        with Client(keeping, key) as other:  # a session with a sandbox of its own
            assert other.output("echo own") == "own\n"
    wait_until(lambda: not sessions(keeping), "the processes of the sessions stay")
    assert remove(keeping, "b", key) == 404  # it was never used
    with in_sandbox(keeping, "c", key) as third:
        assert third.output("echo c") == "c\n"
    wait_until(lambda: not sessions(keeping), "the processes of the sessions stay")
    assert [remove(keeping, name, key) for name in "ac"] == [204, 204]


def test_invalid_names_of_sandboxes_are_refused(keeping):
    with Client(keeping, keeping.new_key("names"), hello=None) as client:
        for name in ("a/b", "a" * 33, "", "a b", "\x7f"):
            done = client.post(HELLO, **{"Cay-Sandbox": name})
            assert done.status_code == 400 and "Cay-Sandbox" in done.text, name
        done = client.http.post(client.url + "?sandbox=..%2Fx", json=HELLO)
        assert done.status_code == 400


def test_a_server_without_mcp_keep_refuses_names_of_sandboxes(mcp):
    with Client(mcp, hello=None) as client:
        done = client.post(HELLO, **{"Cay-Sandbox": "x"})
        assert done.status_code == 403 and "--mcp-keep" in done.text


@pytest.mark.parametrize("is_modern", [False, True], ids=["session", "no-session"])
def test_the_python_sdk_returns_to_the_sandbox_of_its_url(keeping, is_modern):
    sdk = pytest.importorskip("mcp")
    http = pytest.importorskip("mcp.client.streamable_http")
    httpx2 = pytest.importorskip("httpx2")
    key = keeping.new_key(f"sdk-{is_modern}")

    async def run(command):
        async with httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=PATIENCE) as own:
            transport = http.streamable_http_client(keeping.url + "/mcp?sandbox=sdk",
                                                    http_client=own)
            if is_modern:
                async with sdk.Client(transport) as client:
                    done = await client.call_tool("run_command", {"command": command})
            else:
                async with transport as streams, sdk.ClientSession(*streams[:2]) as session:
                    await session.initialize()
                    done = await session.call_tool("run_command", {"command": command})
            return done.structured_content["stdout"]

    asyncio.run(run("echo kept > /tmp/x"))
    for pid in sessions(keeping):  # one without a session stays until it is idle
        os.kill(pid, 9)
    wait_until(lambda: not sessions(keeping), "the process of the session stays")
    assert asyncio.run(run("cat /tmp/x")) == "kept\n"
    for pid in sessions(keeping):
        os.kill(pid, 9)
    wait_until(lambda: not sessions(keeping), "the process of the session stays")
    assert remove(keeping, "sdk", key) == 204


# --- E2B's gateway ---

GATEWAY = """#!/bin/sh
mkdir -p /etc/mcp-gateway /tmp/www
printf %s "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token
printf %s "$2" > /tmp/config
echo gateway > /tmp/www/mcp
cd /tmp/www
setsid python3 -m http.server 50005 > /dev/null 2>&1 < /dev/null &
"""


def test_the_mcp_option_of_e2b_without_a_gateway_leaves_no_sandbox(server):
    e2b = pytest.importorskip("e2b")
    options = server.options_of("no-gateway")
    with pytest.raises(e2b.SandboxException, match="Failed to start MCP gateway: .*mcp-gateway"):
        e2b.Sandbox.create("base", mcp={"time": {}}, **options)
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=options["api_key"]) == (200, [])
    assert server.api("POST", "/sandboxes", {"templateID": "base", "mcp": 7})[0] == 400


def test_the_mcp_option_of_e2b_starts_the_gateway_of_the_template(server):
    e2b = pytest.importorskip("e2b")
    options = server.options_of("gateway")
    source = e2b.Sandbox.create(**options)
    source.files.write("/usr/local/bin/mcp-gateway", GATEWAY, user="root")
    source.commands.run("chmod 755 /usr/local/bin/mcp-gateway", user="root")
    snapshot = source.create_snapshot()
    source.kill()
    sandbox = e2b.Sandbox.create(snapshot.snapshot_id, mcp={"time": {}}, **options)
    try:
        assert sandbox.get_mcp_url() == f"https://{sandbox.get_host(50005)}/mcp"
        assert json.loads(sandbox.files.read("/tmp/config", user="root")) == {"time": {}}
        other = e2b.Sandbox.connect(sandbox.sandbox_id, **options)
        assert other.get_mcp_token() == sandbox.get_mcp_token() != ""
        host = sandbox.get_host(50005)
        wait_until(lambda: raw.web("GET", server.url + "/mcp", headers={
            "Host": host}).text == "gateway\n", "the gateway does not listen")
    finally:
        sandbox.kill()
        e2b.Sandbox.delete_snapshot(snapshot.snapshot_id, **options)


# --- Options ---


@contextmanager
def served(own_server, *options):
    server = own_server(*options)
    yield server
    wait_until(lambda: not sessions(server), "a session does not end")


def test_a_server_without_the_option_has_no_mcp(server):
    with Client(server, hello=None) as client:
        assert client.post(HELLO).status_code == 404


def test_options_decide_which_tools_there_are(own_server):
    with served(own_server, "--mcp", "--mcp-tools", "read-only", "--mcp-idle", "1") as server:
        with Client(server) as client:
            tools = client.post(client.request("tools/list")).json()["result"]["tools"]
            assert "read_file" in {one["name"] for one in tools}
            assert all(one["annotations"]["readOnlyHint"] for one in tools)
            wait_until(lambda: not sessions(server), "an unused session does not end")
            assert client.post(client.request("ping")).status_code == 404
            del client.http.headers["Mcp-Session-Id"]


def test_each_tenant_has_the_tools_of_its_policy(own_server):
    policy = "read-only;ci=run_command,read_file; admin=all"
    with served(own_server, "--mcp", "--mcp-tools", policy) as server:
        def tools(tenant):
            with Client(server, server.new_key(tenant)) as client:
                listed = client.post(client.request("tools/list")).json()["result"]["tools"]
                if tenant == "ci":
                    refused = client.post(client.call("write_file", path="x", content="x")).json()
                    assert "unknown tool" in refused["error"]["message"]
                return {one["name"] for one in listed}

        assert tools("ci") == {"run_command", "read_file"}
        assert {"write_file", "run_code"} <= tools("admin")
        assert "read_file" in tools("guest") and "write_file" not in tools("guest")


def test_sessions_end_with_their_server(own_server):
    server = own_server("--mcp", "--max-sandboxes", "1")
    with Client(server) as client:
        assert client.output("echo x") == "x\n"
        with Client(server, hello=None) as other:
            assert other.post(HELLO).status_code == 429
        (pid,) = sessions(server)
        client.result("start_process", command="exec sleep 1000.375")
        wait_until(lambda: running("1000.375"), "the command does not start")
        server.kill()
        del client.http.headers["Mcp-Session-Id"]
        wait_until(lambda: not lives(pid) and not running("1000.375"), "the session stays")


def test_bad_options_are_refused():
    for words, error in [(["--mcp-tools", "x"], "--mcp-tools"),
                         (["--mcp", "--mcp-tools", "run_comand"], "run_comand"),
                         (["--mcp", "--mcp-tools", "all;ci=run_comand"], "run_comand"),
                         (["--mcp", "--mcp-tools", "all;c i=all"], "tenant"),
                         (["--mcp-keep", "1"], "--mcp-keep"),
                         (["--mcp", "--mcp-keep", "1", "--store", "memory:"], "--mcp-keep"),
                         (["--mcp", "--mcp-keep", "1", "--on-exit", "kill"], "--mcp-keep"),
                         (["--mcp", "--mcp-idle", "0"], "--mcp-idle"),
                         (["--mcp", "--mcp-sandboxes", "64"], "--mcp-sandboxes")]:
        done = subprocess.run([CAY, "serve", "--listen", "127.0.0.1:0", "--check", *words],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode != 0 and error in done.stderr + done.stdout, words
