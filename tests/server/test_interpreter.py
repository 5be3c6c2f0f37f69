# SPDX-License-Identifier: Apache-2.0
"""The code interpreter, port 49999 of a sandbox, with HTTP by hand."""

import json
import selectors
import time
from contextlib import closing

import pytest
import raw
from serving import PATIENCE, descriptors, rss_kib, wait_until

UNKNOWN = "ctx-aaaaaaaaaaaaaaaa"


def of(sandbox, *headers):
    return (f"E2b-Sandbox-Id: {sandbox.sandbox_id}", "E2b-Sandbox-Port: 49999",
            f"X-Access-Token: {sandbox._envd_access_token}", *headers)


def execution(sandbox, code, *headers, **options):
    """The bytes of a request.  E2B's SDK for Python sends all four keys."""
    body = {"code": code, "context_id": None, "language": None, "env_vars": None, **options}
    return raw.sized("POST /execute", json.dumps(body).encode(), *of(sandbox), *headers)


class Lines(raw.Stream):
    """Reads the lines of an execution as they come.  A slow machine gets keepalives."""

    def all(self):
        while True:
            while b"\n" not in self.data:
                if not self.more():
                    return
            line, _, self.data = self.data.partition(b"\n")
            yield json.loads(line)
            if line == b'{"type":"end_of_execution"}':
                return

    def __iter__(self):
        return (line for line in self.all() if line["type"] != "keepalive")

    def until(self, kind):
        return next(line for line in self if line["type"] == kind)


@pytest.fixture(name="execute")
def fixture_execute(server):
    """Runs code: all lines."""
    def execute(sandbox, code, **options):
        with server.connect() as client:
            client.sendall(execution(sandbox, code, **options))
            lines = list(Lines(client))
        assert lines and lines[-1] == {"type": "end_of_execution"}, lines
        return lines[:-1]

    return execute


@pytest.fixture(name="run")
def fixture_run(execute):
    """Runs code: its text, or its error."""
    def run(sandbox, code, **options):
        lines = execute(sandbox, code, **options)
        texts = [line["text"] for line in lines if line["type"] in ("stdout", "result")]
        return "".join(texts) or [line for line in lines if line["type"] == "error"]

    return run


@pytest.fixture(name="refusal")
def fixture_refusal(server):
    """(status, text) of a request with a body."""
    def refusal(sandbox, line, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = raw.ask(server, raw.sized(line, data, *of(sandbox), "Connection: close"))
        return answer.status, answer.body.decode()

    return refusal


@pytest.fixture(name="contexts")
def fixture_contexts(server):
    """A request about contexts: (status, JSON or text)."""
    def contexts(sandbox, method, path="", body=None):
        answer = raw.web(method, f"{server.url}/contexts{path}", json=body, headers=dict(
            header.split(": ") for header in of(sandbox)))
        is_json = answer.headers.get("content-type") == "application/json"
        return answer.status_code, answer.json() if is_json else answer.text

    return contexts


# --- Executions --------------------------------------------------------------------------


def test_an_execution_is_lines_in_order_and_keeps_its_variables(execute, sandbox):
    first = execute(sandbox, "x = 1\nprint('hello')\nx")
    assert [line["type"] for line in first] == ["number_of_executions", "stdout", "result"]
    assert first[0] == {"type": "number_of_executions", "execution_count": 1}
    stamp = first[1].pop("timestamp")
    assert isinstance(stamp, int) and abs(stamp / 1e9 - time.time()) < PATIENCE
    assert first[1] == {"type": "stdout", "text": "hello\n"}
    assert first[2] == {"type": "result", "text": "1", "extra": {}, "is_main_result": True}
    second = execute(sandbox, "import sys; print('no', file=sys.stderr); x + y")
    assert [line["type"] for line in second] == ["number_of_executions", "stderr", "error"]
    assert second[0]["execution_count"] == 2
    assert second[2]["name"] == "NameError" and second[2]["value"] == "name 'y' is not defined"
    assert second[2]["traceback"].startswith("Traceback") and "\x1b" not in second[2]["traceback"]


def test_a_line_is_sent_when_it_is_printed(server, sandbox):
    code = "import os, time\nfor name in ('a', 'b'):\n    print(name)\n" \
           "    while not os.path.exists(name): time.sleep(0.01)"
    silence = 0
    with server.connect() as client:
        client.sendall(execution(sandbox, code))
        lines = Lines(client)
        for line in lines.all():
            if line["type"] == "keepalive":
                silence = time.time()
            elif line["type"] == "stdout":
                assert line["timestamp"] / 1e9 > silence - 4, "it came with a keepalive"
                sandbox.files.write(line["text"].strip(), "")
    assert lines.status == 200 and line["type"] == "end_of_execution"


def test_text_is_ascii_on_the_wire(server, shared):
    """E2B's SDK for JavaScript decodes each piece alone."""
    with server.connect() as client:
        client.sendall(execution(shared, "print('é 😀'); {'ü': 'ö'}"))
        lines, wire = Lines(client), b""
        while not wire.endswith(b'end_of_execution"}\n'):
            assert lines.more()
            wire += lines.data
            lines.data = b""
    texts = [json.loads(line) for line in wire.splitlines()]
    assert wire.isascii() and texts[1]["text"] == "é 😀\n" and texts[2]["json"] == {"ü": "ö"}


def test_a_result_has_the_keys_of_e2b_and_no_others(execute, shared):
    show = "from IPython.display import display\ndisplay({}, raw=True)"
    parts = {"text/plain": "'a'b'", "text/html": "h", "text/markdown": "m", "image/svg+xml": "s",
             "image/png": "aGk=", "image/jpeg": "aGk=", "application/pdf": "aGk=",
             "text/latex": "l", "application/json": {"n": [1, None]},
             "application/javascript": "j", "e2b/data": {"a": [1]}, "e2b/chart": {"type": "line"},
             "application/vnd.own": {"x": 1}, "text/own": "o"}
    line = execute(shared, show.format(repr(parts)))[1]
    assert line == {
        "type": "result", "text": "a'b", "html": "h", "markdown": "m", "svg": "s", "png": "aGk=",
        "jpeg": "aGk=", "pdf": "aGk=", "latex": "l", "json": {"n": [1, None]}, "javascript": "j",
        "data": {"a": [1]}, "chart": {"type": "line"}, "is_main_result": False,
        "extra": {"application/vnd.own": {"x": 1}, "text/own": "o"}}
    assert execute(shared, show.format({"text/latex": "l"}))[1] == {
        "type": "result", "latex": "l", "extra": {}, "is_main_result": False}
    assert execute(shared, "[float('nan')]")[1]["json"] == [None]


def test_keepalives_fill_the_silence(server, shared):
    with server.connect() as client:
        began = time.monotonic()
        client.sendall(execution(shared, "import time; time.sleep(6.5); print(1)"))
        kinds = [(line["type"], time.monotonic() - began) for line in Lines(client).all()]
    assert ("keepalive" in dict(kinds)) and dict(kinds)["keepalive"] > 4.5
    assert {"number_of_executions", "stdout", "end_of_execution"} < set(dict(kinds))


def test_code_may_be_indented_as_a_whole(run, shared):
    assert run(shared, "    a = 2\n    if a:\n        print(a)\n    ") == "2\n"


def test_variables_of_a_call_are_restored(run, create):
    sandbox = create(envs={"MINE": "sandbox"})
    code = "import os; print(os.environ.get('MINE'), os.environ.get('OTHER'))"
    assert run(sandbox, code) == "sandbox None\n"
    assert run(sandbox, code, env_vars={"MINE": "call", "OTHER": "="}) == "call =\n"
    assert run(sandbox, code) == "sandbox None\n"
    assert run(sandbox, "echo $MINE", language="bash") == "sandbox\n"


def test_code_runs_as_root_in_the_home_directory(run, shared):
    code = "import os; print(os.getuid(), os.getcwd(), os.environ['E2B_SANDBOX_ID'])"
    assert run(shared, code) == f"0 /home/user {shared.sandbox_id}\n"


def test_languages_have_default_contexts(run, shared):
    assert run(shared, "var a = 20; await 1; a + 1", language="js") == "21"
    assert run(shared, "a + 2", language="javascript") == "22"
    assert run(shared, "b=3; pwd", language="bash") == "/home/user\n"
    assert run(shared, "echo $b", context_id="bash") == "3\n"


def test_other_languages_run_as_programs(execute, run, shared):
    perl = "use Cwd; print \"it's \", getcwd(), \" $ENV{A}\\n\";"
    assert run(shared, perl, language="perl", env_vars={"A": "1"}) == "it's /home/user 1\n"
    lines = execute(shared, "exit 3", language="perl")
    assert lines[-1]["type"] == "error" and lines[-1]["value"] == "3"
    assert run(shared, "echo \"$0\" | grep -c main.sh", language="sh") == "1\n"


# --- Refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("body, status, text", [
    (b"{", 422, "the body must be a JSON object"), (b"[]", 422, "JSON object"),
    ({}, 422, "code: a string is required"), ({"code": None}, 422, "code: a string is required"),
    ({"code": {"a": 1}}, 422, "code: must be a string"),
    ({"code": "1", "context_id": 1}, 422, "context_id: must be a string"),
    ({"code": "1", "language": ["python"]}, 422, "language: must be a string"),
    ({"code": "1", "env_vars": []}, 422, "env_vars: must be an object"),
    ({"code": "1", "env_vars": {"A": 1}}, 422, "env_vars: must be an object"),
    ({"code": "1", "env_vars": {"A=B": "1"}}, 422, "env_vars: must be an object"),
    ({"code": "1", "context_id": "python", "language": "python"}, 400, "Only one of"),
    ({"code": "1", "context_id": UNKNOWN}, 404, f"Context {UNKNOWN} not found"),
    ({"code": "1", "language": "cobol"}, 500, "Unsupported language: cobol")])
def test_an_invalid_execution_is_refused_with_what_is_allowed(refusal, shared, body, status, text):
    assert refusal(shared, "POST /execute", body)[0] == status
    assert text in refusal(shared, "POST /execute", body)[1]


def test_a_body_that_is_too_large_is_413(server, shared):
    head = raw.request("POST /execute", *of(shared), f"Content-Length: {9 << 20}")
    assert raw.ask(server, head).status == 413


@pytest.mark.parametrize("body, status, text", [
    ({"cwd": 1}, 422, "cwd: must be a string"), ({"language": 1}, 422, "language: must be"),
    ({"cwd": "/" + "x" * 5000}, 422, "cwd: the path is too long"),
    ({"cwd": "/no/such"}, 422, "/no/such: No such file"),
    ({"language": "cobol"}, 500, "Unsupported language: cobol")])
def test_an_invalid_context_is_refused(refusal, shared, body, status, text):
    assert refusal(shared, "POST /contexts", body)[0] == status
    assert text in refusal(shared, "POST /contexts", body)[1]


def test_other_paths_and_methods_are_refused(server, shared):
    def status(line):
        return raw.ask(server, raw.request(line, *of(shared), "Connection: close")).status

    assert (status("GET /execute"), status("PUT /contexts"), status("GET /x")) == (405, 405, 404)


def test_execution_needs_the_token_and_contexts_what_ports_need(server, create):
    sandbox = create(network={"allow_public_traffic": False})
    own = dict(header.split(": ") for header in of(sandbox))
    token, traffic = own.pop("X-Access-Token"), sandbox.traffic_access_token

    def status(method, path, **headers):
        body = None if method == "GET" else {"code": "1"}
        return raw.web(method, server.url + path, json=body, headers={**own, **{
            name.replace("_", "-"): value for name, value in headers.items()}}).status_code

    assert status("POST", "/execute", E2B_Traffic_Access_Token=traffic) == 401
    assert status("POST", "/execute", X_Access_Token="x" + token) == 401
    assert status("POST", "/execute", X_Access_Token=token,
                  E2B_Traffic_Access_Token=traffic) == 200
    for path in ("/contexts", "/health"):
        assert status("GET", path) == 403
        assert status("GET", path, E2B_Traffic_Access_Token=traffic) == 200
    assert status("GET", "/contexts", E2B_Traffic_Access_Token=traffic,
                  Origin="http://elsewhere.example") == 403


def test_the_port_means_the_interpreter_whatever_listens_inside(server, sandbox):
    sandbox.commands.run("python3 -m http.server 49999", background=True)
    answer = raw.ask(server, raw.request("GET /health", *of(sandbox), "Connection: close"))
    assert (answer.status, answer.body) == (200, b"OK")
    host = f"49999-{sandbox.sandbox_id}.localhost"
    answer = raw.ask(server, raw.request("GET /health", "Connection: close", host=host))
    assert (answer.status, answer.body) == (200, b"OK")


# --- Contexts ------------------------------------------------------------------------------


def test_default_contexts_are_listed_before_an_interpreter_runs(contexts, sandbox):
    assert contexts(sandbox, "GET") == (200, [
        {"id": "python", "language": "python", "cwd": "/home/user"},
        {"id": "javascript", "language": "javascript", "cwd": "/home/user"}])
    assert "python3 -c" not in sandbox.commands.run("ps ax").stdout


def test_contexts_are_listed_in_the_order_of_their_creation(contexts, run, sandbox):
    assert run(sandbox, "x = 1; 'default'") == "default"
    made = [contexts(sandbox, "POST", body=body) for body in (
        {}, {"language": "ts", "cwd": None}, {"language": None, "cwd": "/root"})]
    assert [status for status, _ in made] == [200] * 3
    assert [(one["language"], one["cwd"]) for _, one in made] == [
        ("python", "/home/user"), ("typescript", "/home/user"), ("python", "/root")]
    assert contexts(sandbox, "GET")[1][2:] == [one for _, one in made]
    own = made[2][1]["id"]
    assert run(sandbox, "import os; os.getcwd()", context_id=own) == "/root"
    assert run(sandbox, "x", context_id=own)[0]["value"] == "name 'x' is not defined"
    assert run(sandbox, "x", context_id="python") == "1"


def test_a_restarted_context_has_its_id_and_no_variables(contexts, run, sandbox):
    own = contexts(sandbox, "POST", body={"cwd": "/tmp"})[1]
    for name in (own["id"], "python"):
        assert run(sandbox, "x = 1; x", context_id=name) == "1"
        status, context = contexts(sandbox, "POST", f"/{name}/restart")
        assert status == 200 and context["id"] == name
        assert run(sandbox, "x", context_id=name)[0]["value"] == "name 'x' is not defined"
    assert context == {"id": "python", "language": "python", "cwd": "/home/user"}
    assert contexts(sandbox, "POST", "/javascript/restart")[0] == 200  # it never ran
    assert contexts(sandbox, "POST", f"/{UNKNOWN}/restart") == (404, f"Context {UNKNOWN} not found")


def test_a_removed_context_is_unknown(contexts, refusal, sandbox):
    own = contexts(sandbox, "POST", body={})[1]["id"]
    assert contexts(sandbox, "DELETE", f"/{own}") == (204, "")
    assert contexts(sandbox, "DELETE", f"/{own}") == (404, f"Context {own} not found")
    assert refusal(sandbox, "POST /execute", {"code": "1", "context_id": own})[0] == 404
    assert contexts(sandbox, "DELETE", "/python")[0] == 204
    assert len(contexts(sandbox, "GET")[1]) == 2


def test_there_are_as_many_contexts_as_the_limit_says(contexts, sandbox):
    made = [contexts(sandbox, "POST", body={"language": "bash"})[0] for _ in range(65)]
    assert made == [200] * 64 + [429]


# --- Ends ----------------------------------------------------------------------------------


def test_a_client_that_leaves_interrupts_its_code(server, run, sandbox):
    with server.connect() as client:
        client.sendall(execution(sandbox, "x = 5\nprint('in')\nimport time\n"
                                          "try: time.sleep(1000)\nfinally: x = 6"))
        assert Lines(client).until("stdout")["text"] == "in\n"
    began = time.monotonic()
    assert run(sandbox, "x") == "6"
    assert time.monotonic() - began < PATIENCE


def test_a_client_that_leaves_the_queue_does_not_run(server, run, sandbox):
    with server.connect() as first, server.connect() as second:
        first.sendall(execution(sandbox, "print('in')\nimport os, time\n"
                                         "while not os.path.exists('go'): time.sleep(0.01)"))
        lines = Lines(first)
        lines.until("stdout")
        second.sendall(execution(sandbox, "ran = True"))
        waiting = Lines(second)
        while waiting.status is None:  # the response begins although the code waits
            assert waiting.more()
        assert waiting.status == 200
        second.close()
        sandbox.files.write("go", "")
        lines.until("end_of_execution")
    assert run(sandbox, "ran")[0]["name"] == "NameError"


def test_an_interpreter_that_dies_is_an_error_and_the_next_one_works(execute, run, sandbox):
    for code, why in (("import os; os._exit(3)", "exited with status 3"),
                      ("import os; os.kill(os.getpid(), 9)", "signal 9 (SIGKILL)")):
        *_, error = execute(sandbox, code)
        assert error["type"] == "error" and error["name"] == "ContextRestarting"
        assert why in error["value"] and run(sandbox, "1 + 1") == "2"


def test_an_interpreter_without_memory_says_so(execute, own_server):
    server = own_server("--memory", "128M")
    from e2b import Sandbox
    sandbox = Sandbox.create(**server.options_of("default"))
    with server.connect() as client:
        client.sendall(execution(sandbox, "x = bytearray(1 << 30); x[::4096] = b'1' * (1 << 18)"))
        *_, error, _ = Lines(client)
    assert error["name"] == "ContextRestarting" and "out of memory" in error["value"]


def test_the_service_may_be_killed(server, run, sandbox):
    with server.connect() as client:
        client.sendall(execution(sandbox, "print('in')\nimport time; time.sleep(1000)"))
        lines = Lines(client)
        lines.until("stdout")
        sandbox.commands.run("pkill -9 -f '^cay-code$'", user="root")
        error, end = lines
    assert error["name"] == "ContextRestarting" and end["type"] == "end_of_execution"
    assert run(sandbox, "1 + 1") == "2"


def test_a_killed_sandbox_cuts_the_stream(server, create):
    """SDKs then look whether the sandbox exists."""
    sandbox = create()
    with server.connect() as client:
        client.sendall(execution(sandbox, "print('in')\nimport time; time.sleep(1000)"))
        lines = Lines(client)
        lines.until("stdout")
        sandbox.kill()
        assert raw.hear(client) == b""
    answer = raw.ask(server, execution(sandbox, "1", "Connection: close"))
    assert answer.status == 502 and answer.json["message"] == "The sandbox was not found"


def test_a_paused_sandbox_resumes_for_an_execution(create, run):
    sandbox = create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    assert run(sandbox, "x = 7; x") == "7"
    sandbox.pause()
    assert run(sandbox, "x") == "7"


def test_an_execution_finishes_while_the_server_shuts_down(own_server):
    from e2b import Sandbox
    server = own_server()
    sandbox = Sandbox.create(**server.options_of("default"))
    with server.connect() as client:
        client.sendall(execution(sandbox, "print('in')\nimport time; time.sleep(2); 'done'"))
        lines = Lines(client)
        lines.until("stdout")
        server.process.terminate()
        assert lines.until("result")["text"] == "done"
        assert lines.until("end_of_execution")
    assert server.process.wait(PATIENCE) == 0


# --- Limits --------------------------------------------------------------------------------


def test_a_client_that_does_not_read_makes_the_code_wait(server, sandbox):
    front = server.front()
    before = rss_kib(front)
    with server.connect() as client:
        client.sendall(execution(sandbox, "open('on', 'w')\n"
                                          "for i in range(10**9): print('x' * 1000)"))
        wait_until(lambda: sandbox.files.exists("on"), "the code does not run")
        for _ in range(20):
            time.sleep(0.05)
            assert rss_kib(front) - before < 32 << 10
    wait_until(lambda: server.held() < 40, "the front keeps descriptors")


def test_large_output_arrives_without_a_pause(server, shared):
    """A keepalive is a pause of five seconds; a slow machine may make one."""
    pauses = 0
    for _ in range(8):
        with server.connect() as client:
            client.sendall(execution(shared, "print(('x' * 8000 + '\\n') * 400)"))
            lines = list(Lines(client).all())
        assert sum(len(line["text"]) for line in lines if line["type"] == "stdout") == 8001 * 400 + 1
        pauses += sum(line["type"] == "keepalive" for line in lines)
    assert pauses <= 2


def test_a_large_result_arrives_and_one_beyond_the_limit_is_reported(execute, shared):
    code = "from IPython.display import display\n" \
           "display({{f'text/{{i}}': 'a' * (7 << 20) for i in range({})}}, raw=True)"
    lines = execute(shared, code.format(2))
    assert [line["type"] for line in lines] == ["number_of_executions", "result"]
    assert len(lines[1]["extra"]["text/1"]) == 7 << 20
    forged = """import os
names = ["/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")]
channel = [name for name in names if os.path.islink(name) and "socket" in os.readlink(name)][0]
line = b'{"type":"result","data":{"a":"' + b"a" * (17 << 20) + b'"}}\\n'
while line: line = line[os.write(int(channel[14:]), line):]"""
    lines = execute(shared, forged)
    assert [line["type"] for line in lines] == ["number_of_executions", "stderr"]
    assert lines[1]["text"].startswith("1 results were dropped")


def test_many_executions_at_a_time_are_served_in_turn(server, run, sandbox):
    clients = [server.connect() for _ in range(40)]
    assert run(sandbox, "n = 0; 'ready'") == "ready"
    for client in clients:
        client.sendall(execution(sandbox, "n += 1; n"))
    counts = []
    for client in clients:
        with closing(client):
            counts.append(int(Lines(client).until("result")["text"]))
    assert sorted(counts) == list(range(1, 41))


def test_executions_beyond_the_limit_are_429(server, run, sandbox):
    clients = set()

    def send():
        client = server.connect()
        client.sendall(execution(sandbox, "import time; time.sleep(1000)", "Connection: close"))
        clients.add(client)
        ready.register(client, selectors.EVENT_READ)

    refused = b""
    with selectors.DefaultSelector() as ready:
        for _ in range(258):  # one runs, 256 wait
            send()
        while not refused:  # the others run or wait, and get keepalives
            heard = ready.select(PATIENCE)
            assert heard, "no response"
            for client in [key.fileobj for key, _ in heard]:
                data = client.recv(1 << 16)
                if data.startswith(b"HTTP/1.1 429 "):
                    refused = data
                elif not data or data.startswith(b"HTTP/1.1 503 "):  # the broker has too many
                    ready.unregister(client)
                    clients.remove(client)
                    client.close()
                    send()
    assert b"too many executions are waiting" in refused
    for client in clients:
        client.close()
    assert run(sandbox, "1 + 1") == "2"


def test_the_front_leaves_no_descriptors_behind(server, run, contexts, sandbox):
    run(sandbox, "1")
    before = descriptors(server.front())
    for _ in range(20):
        run(sandbox, "1")
        contexts(sandbox, "GET")
    wait_until(lambda: descriptors(server.front()) <= before, "descriptors are left")


# --- Templates -----------------------------------------------------------------------------


def test_the_default_template_of_the_sdk_is_the_stored_one_if_there_is_one(
        own_server, tmp_path):
    from e2b import Sandbox
    server = own_server()
    sandbox = Sandbox.create("code-interpreter-v1", **server.options_of("default"))
    assert sandbox.commands.run("test -e /etc/code || echo base").stdout == "base\n"
    root = tmp_path / "root"
    for name in ("bin", "etc"):
        (root / name).mkdir(parents=True)
    (root / "etc" / "code").write_text("")
    done = server.cay("template", "create", "code", "--from-dir", str(root))
    assert done.returncode == 0, done.stderr
    sandbox = Sandbox.create("code-interpreter-v1", **server.options_of("default"))
    assert sandbox.files.exists("/etc/code")
    status, info = server.api("GET", f"/sandboxes/{sandbox.sandbox_id}")
    assert (status, info["templateID"]) == (200, "code-interpreter-v1")
