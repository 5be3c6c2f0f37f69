# SPDX-License-Identifier: Apache-2.0
"""/files by hand: what no SDK asks for, and what is asked wrongly."""

import gzip
import json
import os
import signal
import time

import pytest
import raw
from serving import traces, wait_until
from test_wire import ask

def test_server_has_no_route_to_compose_files(server, shared):
    """No SDK sends it: docs/design/server.md."""
    assert ask(server, shared, "POST", "/files/compose", "{}")[0] == 404


def test_a_sandbox_whose_keeper_is_busy_is_killed(own_server):
    server = own_server()
    status, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 600})
    assert status == 201
    name = made["sandboxID"]
    (keeper,) = server.keepers()
    os.kill(keeper, signal.SIGSTOP)
    begun = time.monotonic()
    assert server.api("DELETE", f"/sandboxes/{name}")[0] == 204
    assert time.monotonic() - begun >= 1  # it had its chance
    assert traces(name) == [] and keeper not in server.keepers()
    wait_until(lambda: not server.keepers(), "the keeper that killed it does not end")
    status, answer = server.api("GET", f"/sandboxes/{name}")
    assert status == 404 and "was killed" in answer["message"]


# --- Forms ------------------------------------------------------------------------------


def send_form(server, sandbox, *dispositions, path=""):
    body = "".join(f"--bb\r\nContent-Disposition: form-data; {words}\r\n\r\n{number}\r\n"
                   for number, words in enumerate(dispositions)) + "--bb--\r\n"
    status, _, answer = ask(server, sandbox, "POST", "/files" + path, body,
                            Content_Type="multipart/form-data; boundary=bb")
    return status, json.loads(answer)


@pytest.mark.parametrize("sent, name", [
    (r'"q\"x"', 'q"x'), (r'"q\\x"', r"q\x"), (r'"q\x"', r"q\x"), ('"q%22%0A%0Dx"', "q%22%0A%0Dx"),
    ("plain", "plain"), ('"with; name=\\"file\\""', 'with; name="file"')])
def test_names_in_forms_are_unescaped(server, shared, sent, name):
    for order in (f'name="file"; filename={sent}', f'filename={sent} ; name=file'):
        status, answer = send_form(server, shared, order)
        assert (status, [entry["name"] for entry in answer]) == (200, [name])
        assert shared.files.read(name) == "0"


def test_several_files_have_the_names_that_were_given(shared):
    names = [r"d/a\b", 'd/a"b', r"d/a\\b\n", "d/%22"]
    shared.files.write_files([{"path": name, "data": name} for name in names])
    for name in names:
        expected = name.replace('"', "%22") if name == 'd/a"b' else name
        assert shared.files.exists(expected), (name, shared.commands.run("ls d").stdout)


@pytest.mark.parametrize("other", ["m3", "./m3", "x/../m3", "~/m3", "/home/user/m3"])
def test_a_form_does_not_write_a_file_twice(server, shared, other):
    status, answer = send_form(server, shared, 'name="file"; filename="m3"',
                               f'name="file"; filename="{other}"')
    assert status == 400 and "same path" in answer["message"]


@pytest.mark.parametrize("body", [
    "", "no form at all", "--bb\r\n", "--bb", "--bb-", "--bx--",
    '--bb\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b',
    '--bb\r\nContent-Disposition: form-data; name="file"; filename="f\0g"\r\n\r\nx\r\n--bb--'])
def test_what_is_no_form_is_refused(server, shared, body):
    status, _, _ = ask(server, shared, "POST", "/files", body,
                       Content_Type="multipart/form-data; boundary=bb")
    assert status == 400


# --- Downloads --------------------------------------------------------------------------


def test_metadata_is_kept_whole_or_refused(server, shared):
    for size, expected in ((4095, 200), (4096, 400), (4097, 400)):
        status, _, _ = ask(server, shared, "POST", "/files?path=meta", b"x", X_Metadata_k="v" * size,
                           Content_Type="application/octet-stream")
        assert status == expected, size
    assert shared.files.get_info("meta").metadata == {"k": "v" * 4095}


def test_a_path_does_not_end_at_a_nul(server, shared):
    shared.files.write("sec", "secret")
    assert ask(server, shared, "GET", "/files?path=sec%00zzz")[0] == 400
    assert ask(server, shared, "POST", "/files?path=cut%00zzz", b"x",
               Content_Type="application/octet-stream")[0] == 400
    assert not shared.files.exists("cut")
    shared.files.write("of%00", "as it is")
    assert ask(server, shared, "GET", "/files?path=of%2500")[2] == b"as it is"


EARLY, LATE = "Thu, 01 Jan 1970 00:00:01 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"


@pytest.mark.parametrize("status, conditions", [
    (200, {"If_Match": "*"}), (412, {"If_Match": '"x"'}),
    (412, {"If_Unmodified_Since": EARLY}), (200, {"If_Unmodified_Since": LATE}),
    (200, {"If_Unmodified_Since": EARLY, "If_Match": "*"}),
    (304, {"If_None_Match": "*"}), (200, {"If_None_Match": '"x"'}),
    (304, {"If_Modified_Since": LATE}), (200, {"If_Modified_Since": EARLY}),
    (200, {"If_Modified_Since": "yesterday"}),
    (200, {"If_Modified_Since": LATE, "If_None_Match": '"x"'}),
    (412, {"If_Match": '"x"', "If_None_Match": "*"})])
def test_conditions(server, shared, status, conditions):
    shared.files.write("f", "0123456789")
    assert ask(server, shared, "GET", "/files?path=f", **conditions)[0] == status
    assert ask(server, shared, "HEAD", "/files?path=f", **conditions)[0] == status


@pytest.mark.parametrize("accepted, status, encoding", [
    ("gzip", 200, "gzip"), ("gzip, identity;q=0", 200, "gzip"), ("gzip, *;q=0", 200, "gzip"),
    ("gzip;q=0.5, identity; q=0.0", 200, "gzip"), ("*;q=0, identity", 200, None),
    ("gzip, deflate", 200, None), ("identity", 200, None), ("br", 200, None), ("", 200, None),
    ("gzip;q=0", 200, None), ("identity;q=0", 406, None), ("*;q=0", 406, None),
    ("gzip;q=0, identity;q=0", 406, None), ("br, identity;q=0", 406, None)])
def test_a_file_is_sent_as_the_client_takes_it(server, shared, accepted, status, encoding):
    for content in ("content", ""):
        shared.files.write("f", content)
        got, headers, body = ask(server, shared, "GET", "/files?path=f", Accept_Encoding=accepted)
        assert got == status
        if status == 200 and content:
            assert headers["Content-Encoding"] == encoding
        if status == 200:
            plain = gzip.decompress(body) if headers["Content-Encoding"] else body
            assert plain == content.encode()


def test_a_download_of_what_has_become_shorter_is_cut(server, create):
    sandbox = create()
    sandbox.commands.run("truncate -s 100M f")
    with raw.connect(server) as client:
        client.settimeout(20)  # much less than an idle connection has
        client.sendall(raw.request("GET /files?path=f", *raw.of(sandbox)))
        heard = client.recv(1 << 16)
        assert b"Content-Length: 104857600" in heard
        sandbox.commands.run("truncate -s 10 f")
        assert len(raw.hear(client)) < 100 << 20


# --- Times ------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [1 << 62, -(1 << 62), 99999999999999, -99999999999])
def test_a_time_that_no_header_can_tell_is_left_out(server, shared, when):
    shared.commands.run(f"echo old > aged && touch -d @{when} aged")
    status, headers, body = ask(server, shared, "GET", "/files?path=aged")
    assert (status, body) == (200, b"old\n")
    assert "Last-Modified" not in headers
    assert {entry.name for entry in shared.files.list(".")} >= {"aged"}


# --- Lists ------------------------------------------------------------------------------


def test_a_list_of_many_is_whole(server, create):
    sandbox, count = create(), 100_500
    sandbox.commands.run(f"mkdir many && cd many && seq -f %.0f {count} | xargs mkdir", timeout=0)
    status, _, body = ask(server, sandbox, "POST", "/filesystem.Filesystem/ListDir",
                          json.dumps({"path": "many"}), Content_Type="application/json")
    assert status == 200
    names = [entry["name"] for entry in json.loads(body)["entries"]]
    assert len(names) == count and set(names) == {str(number) for number in range(1, count + 1)}


# --- Forms ------------------------------------------------------------------------------


def test_files_of_a_form_are_not_all_open_at_once(server, shared):
    """One that is whole takes no descriptor of the server's, though the form goes on."""
    parts = [f'--bb\r\nContent-Disposition: form-data; name="file"; filename="many/{number}"'
             .encode() + b"\r\n\r\n" + b"x" * 60_000 + b"\r\n" for number in range(200)]
    before = server.held()
    with raw.connect(server) as client:
        client.sendall(raw.request("POST /files", *raw.of(
            shared, "Content-Type: multipart/form-data; boundary=bb", "Transfer-Encoding: chunked")))
        for part in parts:
            client.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        wait_until(lambda: len(shared.files.list("many")) == len(parts), "not all are written")
        assert server.held() - before < 10
        end = b"--bb--\r\n"
        client.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))
        assert len(raw.Answers(client).next().json) == len(parts)
    assert {entry.size for entry in shared.files.list("many")} == {60_000}
