# SPDX-License-Identifier: Apache-2.0
"""`cay mcp`, to the byte: what SDKs do is in tests/python/test_mcp_sdk.py."""

import base64
import json
import os
import signal
import subprocess
import time

import jsonschema
import pytest

from conftest import CAY, PATIENCE
from mcp_client import INFO, Client
from sandboxes import gone

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientCapabilities": {},
          "io.modelcontextprotocol/clientInfo": INFO}


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def shared():
    with Client("--sandboxes", "1", "-m", "256M") as client:
        client.initialize()
        yield client


# --- Revisions and messages


@pytest.mark.parametrize("asked, given", [
    ("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"),
    ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")])
def test_the_revision_is_the_clients_or_the_newest_one_with_a_handshake(asked, given):
    with Client() as client:
        result = client.initialize(asked)
        assert result["protocolVersion"] == given
        assert result["capabilities"] == {"tools": {}, "resources": {}}


def test_the_newest_revision_needs_no_handshake():
    with Client() as client:
        found = client.request("server/discover", {"_meta": MODERN})["result"]
        assert found["supportedVersions"][0] == "2026-07-28"
        assert found["resultType"] == "complete"
        assert client.request("tools/list", {"_meta": MODERN})["result"]["ttlMs"] == 0
        done = client.request("tools/call", {
            "name": "run_command", "arguments": {"command": "echo hi"}, "_meta": MODERN})["result"]
        assert (done["resultType"], done["structuredContent"]["stdout"]) == ("complete", "hi\n")
        wrong = {**MODERN, "io.modelcontextprotocol/protocolVersion": "3000-01-01"}
        error = client.request("tools/list", {"_meta": wrong})["error"]
        assert error["code"] == -32022
        assert error["data"]["requested"] == "3000-01-01"
        assert client.request("tools/list")["error"]["code"] == -32600


def test_malformed_messages_get_errors_and_the_session_goes_on(shared):
    for raw, code in ((b"{", -32700), (b"nul\n", -32700), (b"[]", -32600), (b"7", -32700),
                      (b'{"id":1}', -32600), (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', -32600),
                      (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
                      (b'{"jsonrpc":"2.0","id":1,"method":"none"}', -32601),
                      (b'{"a":1,"a":2}', -32700), (b"\xff\xfe", -32700), (b"[" * 5000, -32700),
                      (b"[" + b"{}," * 400000 + b"{}]", -32700)):
        shared.send_raw(raw.rstrip(b"\n") + b"\n")
        assert shared.receive()["error"]["code"] == code, raw[:60]
    shared.send_raw(b"\n\r\n")
    shared.send({"jsonrpc": "2.0", "id": "nobody", "result": {}})
    shared.notify("notifications/cancelled", {"requestId": 12345})
    shared.notify("notifications/none")
    assert shared.request("ping")["result"] == {}


def test_a_message_that_is_too_large_is_dropped_and_the_next_one_is_read(shared):
    shared.send_raw(b'{"jsonrpc":"2.0","id":9,"method":"' + b"x" * (17 << 20) + b'"}\n')
    error = shared.receive()
    assert (error["id"], error["error"]["code"]) == (None, -32600)
    assert shared.request("ping")["result"] == {}


def test_a_batch_is_answered_as_one_in_the_revision_that_has_them():
    with Client() as client:
        client.initialize("2025-03-26")
        call = {"name": "run_command", "arguments": {"command": "echo hi"}}
        client.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"},
                     {"jsonrpc": "2.0", "method": "notifications/none"},
                     {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, 5])
        replies = client.receive()
        assert sorted(map(str, (one["id"] for one in replies))) == ["1", "2", "None"]


def test_arguments_are_checked_and_the_model_is_told(shared):
    for tool, arguments, word in (
            ("read_file", {}, "path"), ("read_file", {"path": 1}, "path"),
            ("read_file", {"path": "a\0b"}, "NUL"), ("read_file", {"pth": "a"}, "did you mean path"),
            ("read_file", {"path": "a", "limit": 0}, "limit"),
            ("read_file", {"path": "a", "encoding": "x"}, "text|base64"),
            ("run_command", {"command": "true", "env": {"A": 1}}, "env"),
            ("edit_file", {"path": "a", "edits": [{"old_text": "a"}]}, "new_text"),
            ("read_process", {"process": "1", "after": "1-"}, "next"),
            ("run_command", {"command": "true", "sandbox": "sb-none"}, "list_sandboxes")):
        result = shared.call(tool, **arguments)
        assert result["isError"] and word in result["content"][0]["text"], result
        assert result["_meta"]["cay/error"]["hint"]
    assert shared.request("tools/call", {"name": "none"})["error"]["code"] == -32602


# --- Tools


def test_every_result_matches_its_schema_and_schemas_are_valid(shared):
    tools = shared.tools()
    calls = [
        ("run_command", {"command": "printf 'a\\377b'; mkdir d; echo x >d/y.txt; exit 2"}),
        ("run_code", {"code": "1/0"}), ("run_code", {"code": "print('caf\u00e9')\n[1]"}),
        ("write_file", {"path": "f", "content": "one\ntwo\0\n"}),
        ("write_file", {"path": "b", "content": base64.b64encode(b"\xff\0").decode(),
                        "encoding": "base64"}),
        ("read_file", {"path": "b", "encoding": "base64"}),
        ("read_file", {"path": "f", "offset": 2, "limit": 1}),
        ("edit_file", {"path": "f", "edits": [{"old_text": "one", "new_text": "1"}]}),
        ("list_files", {"depth": 0}), ("glob", {"pattern": "**/*.txt"}),
        ("grep", {"regex": "^X$", "ignore_case": True}),
        ("start_process", {"command": "read a; echo \"$a\"; sleep 1000", "tag": "reader"}),
        ("write_process", {"process": "reader", "text": "line\n"}),
        ("read_process", {"process": "reader", "wait_ms": 60000}),
        ("list_processes", {}), ("ports", {}), ("stop_process", {"process": "reader"}),
        ("list_sandboxes", {}),
    ]
    found = {}
    for name, arguments in calls:
        jsonschema.validate(arguments, tools[name]["inputSchema"])
        data = found[name] = shared.data(name, **arguments)
        jsonschema.validate(data, tools[name]["outputSchema"])
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
    assert found["read_file"] == {
        "content": "two\0\n", "offset": 2, "count": 1, "total": 2, "truncated": False}
    assert found["glob"]["paths"] == ["/home/user/d/y.txt"]
    assert found["grep"]["matches"][0]["line"] == 1
    assert found["read_process"]["stdout"] == "line\n"
    assert found["stop_process"] == {"stopped": True}


def test_a_picture_is_an_image(shared):
    code = ("import base64\nclass P:\n    def _repr_png_(self):\n"
            "        return base64.b64decode('iVBORw0KGgo=')\nP()")
    result = shared.call("run_code", code=code)
    images = [item for item in result["content"] if item["type"] == "image"]
    assert [(item["mimeType"], item["data"]) for item in images] == [("image/png", "iVBORw0KGgo=")]
    shared.data("write_file", path="p.png", content="iVBORw0KGgo=", encoding="base64")
    result = shared.call("read_file", path="p.png", encoding="base64")
    assert result["content"][1]["mimeType"] == "image/png"


def test_checkpoints_and_differences(shared):
    if "unsupported" in shared.call("checkpoint", name="before")["content"][0]["text"]:
        pytest.skip("this host has no checkpoints")
    shared.data("write_file", path="later", content="x")
    assert "later" in shared.data("diff", **{"from": "before"}, format="names")["diff"]
    shared.data("rollback", checkpoint="before")
    assert shared.call("read_file", path="later")["isError"]
    assert len(shared.data("list_checkpoints")["checkpoints"]) >= 2


def test_further_sandboxes_are_apart_and_limited(shared):
    first = shared.data("create_sandbox")["sandbox"]
    assert shared.call("create_sandbox")["isError"]
    shared.data("write_file", path="only-here", content="", sandbox=first)
    assert "only-here" in str(shared.data("list_files", sandbox=first))
    assert "only-here" not in str(shared.data("list_files"))
    assert shared.data("kill_sandbox", sandbox=first) == {"removed": True}
    until(lambda: gone(first))
    own = shared.data("list_sandboxes")["sandboxes"][0]["sandbox"]
    assert shared.call("kill_sandbox", sandbox=own)["isError"]


def test_resources_are_files_and_output(shared):
    shared.data("write_file", path="a b%.txt", content="text")
    shared.data("write_file", path="raw", content="/w==", encoding="base64")
    pid = shared.data("start_process", command="echo out")["pid"]
    listed = {one["uri"] for one in shared.request("resources/list")["result"]["resources"]}
    assert {"cay://files/home/user/a%20b%25.txt", f"cay://processes/{pid}"} <= listed
    contents = [shared.request("resources/read", {"uri": uri})["result"]["contents"][0]
                for uri in ("cay://files/home/user/a%20b%25.txt", "cay://files/home/user/raw")]
    assert (contents[0]["text"], contents[1]["blob"]) == ("text", "/w==")
    for uri in ("cay://files/none", "file:///etc/passwd", "cay://processes/x"):
        assert shared.request("resources/read", {"uri": uri})["error"]["code"] == -32002
    assert len(shared.request("resources/templates/list")["result"]["resourceTemplates"]) == 2


def test_a_cancelled_command_is_dead_and_gets_no_reply(shared):
    number = shared.start("tools/call", {
        "name": "run_command", "arguments": {"command": "touch began; sleep 1000.25"}})
    until(lambda: "began" in str(shared.data("list_files")))
    assert shared.request("ping")["result"] == {}
    shared.notify("notifications/cancelled", {"requestId": number})
    until(lambda: "1000.25" not in str(shared.data("list_processes")))
    assert number not in shared.replies


def test_cancelled_code_keeps_its_variables(shared):
    shared.data("run_code", code="kept = 7")
    number = shared.start("tools/call", {"name": "run_code", "arguments": {
        "code": "open('code-began', 'w').close()\nimport time\ntime.sleep(1000)"}})
    until(lambda: "code-began" in str(shared.data("list_files")))
    shared.notify("notifications/cancelled", {"requestId": number})
    assert shared.call("run_code", code="kept")["structuredContent"]["results"][0]["text"] == "7"


def test_progress_is_reported_while_a_call_runs(shared):
    before = len(shared.notifications)
    number = shared.start("tools/call", {
        "name": "run_code", "arguments": {"code": "print('half way')"},
        "_meta": {"progressToken": "t"}})
    shared.reply(number)
    sent = [one["params"] for one in shared.notifications[before:]]
    assert any("half way" in one["message"] for one in sent)
    assert all(one["progressToken"] == "t" for one in sent)
    assert [one["progress"] for one in sent] == sorted({one["progress"] for one in sent})


def test_more_calls_than_workers_are_all_answered(shared):
    numbers = [shared.start("tools/call", {
        "name": "run_command", "arguments": {"command": f"echo {i}"}}) for i in range(40)]
    outputs = [shared.reply(number)["result"]["structuredContent"]["stdout"]
               for number in numbers]
    assert outputs == [f"{i}\n" for i in range(40)]


# --- The life of a session


def session_box(client):
    return client.data("list_sandboxes")["sandboxes"][0]["sandbox"]


def test_too_many_variables_are_refused_at_once(shared):
    done = shared.call("run_command", command="true", env={f"a{i}": "" for i in range(200_000)})
    assert done["isError"] and "the arguments and environment are too long" in done["content"][0]["text"]


def test_calls_that_wait_cost_bounded_memory(shared):
    """While some that are large wait for a worker, nothing else is read."""
    shared.call("run_command", command="true")
    asleep = [shared.start("tools/call", {"name": "run_command", "arguments": {"command": "sleep 3"}})
              for _ in range(16)]
    large = {"name": "run_command", "arguments": {"command": "true", "env": {f"a{i}": "" for i in range(200_000)}}}
    waiting = [shared.start("tools/call", large) for _ in range(3)]
    ping = shared.start("ping")
    order = []
    while len(order) < len(asleep) + len(waiting) + 1:
        message = shared.receive()
        order += [message["id"]] if "method" not in message else []
    assert order[0] in asleep and order.index(ping) > order.index(asleep[0])
    assert set(order) == {*asleep, *waiting, ping}


def test_no_sandbox_is_created_before_it_is_needed():
    with Client("--sandboxes", "1") as client:
        client.initialize()
        client.tools()
        assert client.request("resources/list")["result"]["resources"] == []
        assert client.data("list_sandboxes") == {"sandboxes": []}


@pytest.mark.parametrize("how", ["eof", "term", "kill"])
def test_the_sandbox_ends_with_the_session(how):
    with Client("--sandboxes", "1") as client:
        client.initialize()
        client.data("run_command", command="true")
        box = session_box(client)
        client.start("tools/call", {"name": "run_command", "arguments": {"command": "sleep 1000"}})
        assert client.request("ping")["result"] == {}
        if how == "eof":
            assert client.end() == 0
        else:
            client.process.send_signal(getattr(signal, f"SIG{how.upper()}"))
            assert client.process.wait(PATIENCE) == -getattr(signal, f"SIG{how.upper()}")
        until(lambda: gone(box))


def test_a_client_that_does_not_read_costs_bounded_memory():
    with Client() as client:
        client.initialize()
        client.data("write_file", path="big", content="x" * 1000000 + "\n")
        line = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {
            "name": "read_file", "arguments": {"path": "big"}}}).encode() + b"\n"
        os.set_blocking(client.process.stdin.fileno(), False)
        sent = 0
        quiet = 0
        while quiet < 20 and sent < 4 << 20:
            try:
                sent += os.write(client.process.stdin.fileno(), line)
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.05)
        status = open(f"/proc/{client.process.pid}/status", encoding="ascii").read()
        resident = int(status.split("VmHWM:")[1].split()[0])
        assert sent < 4 << 20 and resident < 200 << 10
        os.set_blocking(client.process.stdin.fileno(), True)


def test_a_named_sandbox_is_kept_and_used_again():
    name = f"mcp-{os.getpid()}"
    try:
        for text in ("", "one\n"):
            with Client("--name", name, "--keep") as client:
                client.initialize()
                assert client.data("run_command", command="cat f; echo one >f")["stdout"] == text
    finally:
        subprocess.run([CAY, "rm", "-f", name], check=True, timeout=PATIENCE)


# --- What the client may do


def test_options_decide_which_tools_there_are():
    with Client("--tools", "run_command,read_file") as client:
        client.initialize()
        assert sorted(client.tools()) == ["read_file", "run_command"]
        assert client.request("tools/call", {"name": "write_file"})["error"]["code"] == -32602
    with Client("--read-only", "--sandboxes", "1") as client:
        client.initialize()
        assert all(tool["annotations"]["readOnlyHint"] for tool in client.tools().values())
        assert "read_file" in client.tools() and "run_command" not in client.tools()


def test_roots_become_mounts_and_limit_copies(tmp_path):
    root = tmp_path / "a root"
    root.mkdir()
    (root / "in.txt").write_text("from the host")
    (tmp_path / "secret").write_text("no")
    (root / "link").symlink_to(tmp_path / "secret")
    with Client("--roots", "rw") as client:
        client.initialize(roots={"listChanged": True})
        number = client.start("tools/call", {
            "name": "run_command", "arguments": {"command": f"cat '{root}/in.txt'"}})
        asked = client.receive()
        assert asked["method"] == "roots/list"
        client.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [
            {"uri": f"file://{str(root).replace(' ', '%20')}"}, {"uri": "https://x"}]}})
        assert client.reply(number)["result"]["structuredContent"]["stdout"] == "from the host"
        done = client.data("upload", host_path=f"{root}/in.txt", path="copy.txt")
        assert done == {"files": 1, "bytes": 13, "skipped": 0}
        client.data("run_command", command="mkdir out; echo 1 >out/one")
        client.data("download", path="out", host_path=f"{root}/new")
        assert (root / "new" / "one").read_text() == "1\n"
        for path in (f"{tmp_path}/secret", f"{root}/../secret", f"{root}/link", "/etc/passwd"):
            assert client.call("upload", host_path=path, path="x")["isError"], path
            assert client.call("download", path="copy.txt", host_path=path)["isError"], path
        assert (tmp_path / "secret").read_text() == "no"


def test_a_read_only_mount_takes_no_download(tmp_path):
    with Client("-v", f"{tmp_path}:/data:ro") as client:
        client.initialize()
        client.data("write_file", path="f", content="x")
        assert client.call("download", path="f", host_path=f"{tmp_path}/f")["isError"]
        assert not (tmp_path / "f").exists()


def test_mistakes_on_the_command_line_are_named(tmp_path):
    for words, word in ((["--tools", "run_comand"], "run_command"), (["--keep"], "--name"),
                        (["wrap"], "wrap"), (["install", "clod"], "claude"),
                        (["install", "claude", "--memry"], "--memory"), (["serve"], "wrap|install"),
                        (["wrap", "--tools", "x", "--", "true"], "--tools")):
        done = subprocess.run([CAY, "mcp", *words], capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE, check=False)
        assert done.returncode and word in done.stderr.decode(), (words, done)


# --- wrap and install

SERVER = """
import os, sys
sys.stderr.write("ready\\n")
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(b"got " + line)
    sys.stdout.buffer.flush()
print(os.path.exists(sys.argv[1]))
sys.exit(7)
"""


def test_wrap_passes_everything_through_and_confines(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    done = subprocess.run(
        [CAY, "mcp", "wrap", "-v", f"{tmp_path}/server.py:/server.py:ro", "--", "python3",
         "/server.py", tmp_path], input=b'{"a": "\xff"}\n\r\n', capture_output=True,
        timeout=PATIENCE, check=False)
    assert done.stdout == b'got {"a": "\xff"}\ngot \r\nFalse\n'
    assert done.returncode == 7 and done.stderr.startswith(b"ready\n")


def install(home, *words):
    done = subprocess.run([CAY, "mcp", "install", *words], capture_output=True,
                          timeout=PATIENCE, check=False,
                          env={**os.environ, "HOME": str(home), "CODEX_HOME": "",
                               "XDG_CONFIG_HOME": ""})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_install_prints_or_writes_the_configuration(tmp_path):
    words = ["mcp", "-v", "/src:/src", "--read-only"]
    for client, file, key in (("claude", ".claude.json", "mcpServers"),
                              ("cursor", ".cursor/mcp.json", "mcpServers"),
                              ("vscode", ".config/Code/User/mcp.json", "servers")):
        status, out, _ = install(tmp_path, client, *words[1:])
        assert status == 0 and json.loads(out)[key]["cay"]["args"] == words
        assert not (tmp_path / file).exists()
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(json.dumps({"other": 1, key: {"x": {"command": "y"}}}))
        status, out, _ = install(tmp_path, client, *words[1:], "--write")
        assert (status, out) == (0, f"{tmp_path}/{file}\n")
        written = json.loads((tmp_path / file).read_text())
        assert written["other"] == 1 and list(written[key]) == ["x", "cay"]
        assert written[key]["cay"]["args"] == words
    status, out, _ = install(tmp_path, "codex", *words[1:])
    assert tomllib.loads(out)["mcp_servers"]["cay"]["args"] == words
    assert install(tmp_path, "--write", "codex")[0] == 0
    assert tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"]["cay"]
    assert install(tmp_path, "codex", "--write")[0] != 0


KEYS = {"claude": ("${E2B_API_KEY}", ".claude.json", "mcpServers"),
        "cursor": ("${env:E2B_API_KEY}", ".cursor/mcp.json", "mcpServers"),
        "vscode": ("${input:cay-api-key}", ".config/Code/User/mcp.json", "servers")}


@pytest.mark.parametrize("client", [*KEYS, "codex"])
def test_install_names_a_server_and_the_variable_of_its_key(tmp_path, client):
    words = ["--url", "https://cay.example.com:3000", "--keep", "--name", "mine"]
    url = "https://cay.example.com:3000/mcp"
    status, out, error = install(tmp_path, client, *words)
    assert status == 0, error
    if client == "codex":
        assert tomllib.loads(out)["mcp_servers"]["cay"] == {
            "url": url, "bearer_token_env_var": "E2B_API_KEY",
            "http_headers": {"Cay-Sandbox": "mine"}}
        assert "http_headers" not in install(tmp_path, client, *words[:2])[1]
        return
    key, file, servers = KEYS[client]
    entry = json.loads(out)[servers]["cay"]
    assert entry.pop("type", "http") == "http"
    assert entry == {"url": url, "headers": {"X-API-Key": key, "Cay-Sandbox": "mine"}}
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):  # the second time replaces it
        assert install(tmp_path, client, "--write", "--url=http://[::1]:3000/mcp")[0] == 0
    written = json.loads((tmp_path / file).read_text())
    assert written[servers]["cay"]["url"] == "http://[::1]:3000/mcp"
    assert "Cay-Sandbox" not in written[servers]["cay"]["headers"]
    inputs = [one["id"] for one in written.get("inputs", [])]
    assert inputs == (["cay-api-key"] if client == "vscode" else [])


@pytest.mark.parametrize("words, error", [
    (["--url", "cay.example.com"], "https://"), (["--url", "https://"], "https://"),
    (["--url", "https://key@cay.example.com"], "E2B_API_KEY"),
    (["--url", "https://h/${HOME}"], "--url"), (["--url", "https://h/\"x"], "--url"),
    (["--url", "https://h", "-v", "/a:/a"], "cay serve"),
    (["--url", "https://h", "--read-only"], "cay serve"),
    (["--url", "https://h", "--name", "x"], "--keep"),
    (["--url", "https://h", "--keep"], "--name"),
    (["--url", "https://h", "--keep", "--name", "a/b"], "--name"),
    (["--url", "https://h", "--keep", "--name", "a" * 33], "--name")])
def test_install_refuses_what_is_no_server(tmp_path, words, error):
    status, out, shown = install(tmp_path, "claude", *words, "--write")
    assert status and not out and error in shown
    assert not (tmp_path / ".claude.json").exists()


def test_a_url_without_install_is_refused():
    done = subprocess.run([CAY, "mcp", "--url", "https://h"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode and "install" in done.stderr


def test_install_leaves_a_file_that_it_cannot_read_as_it_is(tmp_path):
    text = '// a comment\n{"mcpServers": {}}\n'
    (tmp_path / ".claude.json").write_text(text)
    status, _, error = install(tmp_path, "claude", "--write")
    assert status and "--write" in error
    assert (tmp_path / ".claude.json").read_text() == text


def test_the_server_on_a_terminal_says_what_it_waits_for(screen):
    server = screen("mcp")
    server.wait_for(b"waits for messages of an MCP client; cay mcp install CLIENT configures one\r\n")
    server.type(b"\x04")
    server.end()
    assert server.process.returncode == 0
    quiet = screen("mcp", "-q")
    quiet.type(b"\x04")
    quiet.end()
    assert b"waits for" not in quiet.seen
