# SPDX-License-Identifier: Apache-2.0
"""R9: an upload that fails leaves no partial file, and the disk is free again.  S4: uploads
count against the memory limit.  H2, M4, L2, L3: several uploads to one file, and refused ones."""

import gzip
import json
import os
import signal

import pytest
from raw import Answers, of, request, reset
from serving import PATIENCE, unavailable, wait_until

DISK = 16 << 20
PIECE = bytes(1 << 20)
NEW = "/home/user/new"


@pytest.fixture(name="own")
def fixture_own(own_server):
    """A server whose sandboxes have a small disk, and one of them."""
    from e2b import Sandbox

    server = own_server("--disk", f"{DISK >> 20}M")
    sandbox = Sandbox.create()
    sandbox.files.list("/home/user")
    yield server, sandbox
    sandbox.kill()


def free(sandbox):
    """KiB of its disk."""
    return int(sandbox.commands.run("df --output=avail -k /home/user | tail -1").stdout)


def upload(server, sandbox, path, *headers, pieces, framed=True):
    """Sends a body in chunks or as they are; the status of the reply."""
    client = server.connect()
    query = f"?path={path}" if path else ""
    client.sendall(request(f"POST /files{query}", *of(sandbox), *headers,
                           *(["Transfer-Encoding: chunked"] if framed else [])))
    for piece in pieces:
        client.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if framed else piece)
    client.sendall(b"0\r\n\r\n" if framed else b"")
    with client:
        return Answers(client).next().status


OCTETS = "Content-Type: application/octet-stream"
FORM = "Content-Type: multipart/form-data; boundary=bound"


def part(name):
    return (f'--bound\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "\r\n").encode()


@pytest.mark.parametrize("kind", ["raw", "gzip", "form", "gzip form"])
@pytest.mark.parametrize("exists", [False, True])
def test_upload_without_space_leaves_no_file(own, kind, exists):
    server, sandbox = own
    if exists:
        sandbox.files.write(NEW, "old")
    before = free(sandbox)
    pieces = [PIECE] * (2 * DISK // len(PIECE))
    if "form" in kind:
        pieces = [part(NEW), *pieces, b"\r\n--bound--\r\n"]
    if "gzip" in kind:
        pieces = [gzip.compress(b"".join(pieces), 1)]
    headers = [FORM if "form" in kind else OCTETS,
               *(["Content-Encoding: gzip"] if "gzip" in kind else [])]
    assert upload(server, sandbox, "" if "form" in kind else NEW, *headers,
                  pieces=pieces) == 507
    wait_until(lambda: not sandbox.files.exists(NEW), "the partial file is still there")
    assert free(sandbox) >= before
    sandbox.files.write(NEW, b"x" * (DISK // 2))


def test_upload_that_cannot_fit_keeps_the_old_content(own):
    """Its length is known before the file is truncated."""
    server, sandbox = own
    sandbox.files.write(NEW, "old")
    for path in (NEW, "/home/user/other"):
        assert upload(server, sandbox, path, OCTETS, f"Content-Length: {2 * DISK}",
                      pieces=[PIECE] * (2 * DISK // len(PIECE)), framed=False) == 507
    assert sandbox.files.read(NEW) == "old"
    assert not sandbox.files.exists("/home/user/other")


def test_finished_files_of_a_form_stay(own):
    server, sandbox = own
    pieces = [part("/home/user/first"), b"whole\r\n", part(NEW),
              *[PIECE] * (2 * DISK // len(PIECE)), b"\r\n--bound--\r\n"]
    assert upload(server, sandbox, "", FORM, pieces=pieces) == 507
    wait_until(lambda: not sandbox.files.exists(NEW), "the partial file is still there")
    assert sandbox.files.read("/home/user/first") == "whole"


@pytest.mark.parametrize("how", ["client", "front"])
def test_broken_upload_leaves_no_file(own, how):
    """The client leaves, or the front crashes, in the middle of it."""
    server, sandbox = own
    client = server.connect()
    client.sendall(request(f"POST /files?path={NEW}", *of(sandbox), OCTETS,
                           f"Content-Length: {DISK // 2}", body=PIECE))
    wait_until(lambda: sandbox.files.exists(NEW), "the upload has not begun")
    if how == "client":
        reset(client)
    else:
        os.kill(server.first_front, signal.SIGKILL)
        wait_until(lambda: server.front() != server.first_front, "there is no other front")
        server.first_front = server.front()
        client.close()
    wait_until(lambda: not sandbox.files.exists(NEW), "the partial file is still there")


def test_broken_upload_spares_what_another_has_written(own):
    server, sandbox = own
    client = server.connect()
    client.sendall(request(f"POST /files?path={NEW}", *of(sandbox), OCTETS,
                           f"Content-Length: {DISK // 2}", body=b"x" * 5000))
    wait_until(lambda: sandbox.files.exists(NEW) and sandbox.files.get_info(NEW).size == 5000,
               "the upload has not begun")
    sandbox.files.write(NEW, "other")
    reset(client)
    wait_until(lambda: server.connections() <= 1, "the client has not left")
    assert sandbox.files.read(NEW) == "other"


def begin(server, sandbox, size, body):
    """An upload to NEW, in chunks unless there is a size, that has written `body`."""
    client = server.connect()
    framing = f"Content-Length: {size}" if size else "Transfer-Encoding: chunked"
    client.sendall(request(f"POST /files?path={NEW}", *of(sandbox), OCTETS, framing) +
                   (body if size else b"%x\r\n%b\r\n" % (len(body), body)))
    wait_until(lambda: sandbox.files.exists(NEW) and
               bytes(sandbox.files.read(NEW, format="bytes")) == body,
               "the upload has not begun")
    return client


def leave(server, client):
    """Resets the connection, and waits until the front has noticed."""
    before = server.connections()
    reset(client)
    wait_until(lambda: server.connections() < before, "the client has not left")


def settle(server, sandbox):
    """The keeper has handled the end of an upload to another file, hence those before it."""
    other = "/home/user/settled"
    client = server.connect()
    client.sendall(request(f"POST /files?path={other}", *of(sandbox), OCTETS,
                           "Content-Length: 10", body=b"x"))
    wait_until(lambda: sandbox.files.exists(other), "the upload has not begun")
    reset(client)
    wait_until(lambda: not sandbox.files.exists(other), "the partial file is still there")


def test_h2_broken_upload_spares_what_another_still_writes(own):
    server, sandbox = own
    first = begin(server, sandbox, 10000, b"a" * 5000)
    second = begin(server, sandbox, 8000, b"b" * 3000)
    leave(server, first)
    settle(server, sandbox)
    second.sendall(b"b" * 5000)
    with second:
        assert Answers(second).next().status == 200
    assert sandbox.files.read(NEW) == "b" * 8000


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_h2_last_broken_upload_removes_the_file(own, order):
    server, sandbox = own
    clients = [begin(server, sandbox, 10000, b"a" * 5000),
               begin(server, sandbox, 8000, b"b" * 3000)]
    leave(server, clients[order[0]])
    settle(server, sandbox)
    assert sandbox.files.exists(NEW)
    leave(server, clients[order[1]])
    wait_until(lambda: not sandbox.files.exists(NEW), "the partial file is still there")


def test_h2_file_is_removed_if_an_upload_truncated_what_another_had_finished(own):
    server, sandbox = own
    first = begin(server, sandbox, 10000, b"a" * 5000)
    sandbox.files.write(NEW, "whole")
    third = begin(server, sandbox, 8000, b"c" * 3000)
    leave(server, third)
    settle(server, sandbox)
    assert sandbox.files.exists(NEW)
    leave(server, first)
    wait_until(lambda: not sandbox.files.exists(NEW), "the partial file is still there")


def test_l2_refused_upload_spares_an_empty_file(own):
    server, sandbox = own
    sandbox.files.write(NEW, "")
    assert upload(server, sandbox, NEW, OCTETS, f"Content-Length: {2 * DISK}",
                  pieces=[PIECE] * (2 * DISK // len(PIECE)), framed=False) == 507
    assert sandbox.files.read(NEW) == ""


FILL = """
import errno, os
for size in 60000, 1000, 10:
    for i in range(1000):
        try:
            os.setxattr("%s", "user.%%d.%%d" %% (size, i), bytes(size))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP):
                raise
            break
"""


def test_l3_upload_whose_metadata_does_not_fit_leaves_no_file(own):
    """A tmpfs limits how much space its inodes and extended attributes take."""
    server, sandbox = own
    sandbox.files.write(NEW, "old")
    sandbox.files.write("/home/user/fill.py", FILL % NEW)
    sandbox.commands.run("python3 /home/user/fill.py")
    metadata = [f"X-Metadata-{i}: {'v' * 60}" for i in range(60)]
    assert upload(server, sandbox, NEW, OCTETS, *metadata, "Content-Length: 5",
                  pieces=[b"12345"], framed=False) != 200
    assert not sandbox.files.exists(NEW)


def test_upload_through_a_link_removes_the_file_and_not_the_link(own):
    server, sandbox = own
    sandbox.commands.run("ln -s target /home/user/link")
    assert upload(server, sandbox, "/home/user/link", OCTETS,
                  pieces=[PIECE] * (2 * DISK // len(PIECE))) == 507
    wait_until(lambda: not sandbox.files.exists("/home/user/target"), "it is still there")
    assert sandbox.commands.run("readlink /home/user/link").stdout == "target\n"


# --- S4: uploads count against the sandbox's memory limit

MEMORY = 64 << 20


@pytest.fixture(name="small")
def fixture_small(own_server):
    """A server whose sandboxes have little memory, and one of them; skips without the limit."""
    from e2b import Sandbox

    server = own_server("--memory", f"{MEMORY >> 20}M")
    sandbox = Sandbox.create()
    if not inspect(server, sandbox)["limits"].get("memory_bytes"):
        sandbox.kill()
        unavailable("sandboxes have no memory limit here")
    yield server, sandbox
    sandbox.kill()


def inspect(server, sandbox):
    return json.loads(server.cay("inspect", "-o", "json", f"sb-{sandbox.sandbox_id}").stdout)


def used(server, sandbox):
    """Bytes of memory that count for it."""
    return inspect(server, sandbox)["used"]["memory_bytes"]


def varied(mib):
    return [bytes([i % 251 + 1]) * len(PIECE) for i in range(mib)]


def send(server, sandbox, path, kind, pieces):
    """An upload of one of the KINDS; the status of the reply."""
    kinds = kind.split()
    size = sum(map(len, pieces))
    if "form" in kinds:
        pieces = [part(path), *pieces, b"\r\n--bound--\r\n"]
        size += len(pieces[0]) + len(pieces[-1])
    headers = [FORM if "form" in kinds else OCTETS]
    if "gzip" in kinds:
        pieces = [gzip.compress(b"".join(pieces), 1)]
        size = len(pieces[0])
        headers.append("Content-Encoding: gzip")
    framed = "chunked" in kinds
    return upload(server, sandbox, "" if "form" in kinds else path, *headers,
                  *([] if framed else [f"Content-Length: {size}"]), pieces=pieces, framed=framed)


KINDS = ["sized", "chunked", "gzip", "form", "chunked form", "gzip form"]


@pytest.mark.parametrize("kind", KINDS)
def test_s4_upload_counts_against_the_memory_limit(small, kind):
    server, sandbox = small
    before = used(server, sandbox)
    pieces = varied(40)
    assert send(server, sandbox, NEW, kind, pieces) == 200
    # The kernel counts in batches, and its own memory goes up and down.
    assert used(server, sandbox) >= before + (38 << 20)
    content = b"".join(pieces)
    assert bytes(sandbox.files.read(NEW, format="bytes")) == content
    blocks = int(sandbox.commands.run(f"stat -c %b {NEW}").stdout) * 512
    assert blocks <= len(content) + 65536, "space beyond the end of the file is reserved"
    with pytest.raises(Exception):
        sandbox.commands.run("head -c 50M /dev/zero > /home/user/inside")
    assert sandbox.files.get_info("/home/user/inside").size < 30 << 20


@pytest.mark.parametrize("kind", KINDS)
def test_s4_upload_over_the_memory_limit_leaves_nothing(small, kind):
    server, sandbox = small
    sleeper = sandbox.commands.run("sleep 600", background=True)
    sandbox.commands.run("head -c 25M /dev/zero > /dev/shm/inside")
    before = used(server, sandbox)
    assert send(server, sandbox, NEW, kind, varied(50)) == 507
    assert not sandbox.files.exists(NEW)
    assert used(server, sandbox) <= before + (4 << 20)
    assert send(server, sandbox, NEW, kind, varied(8)) == 200
    assert sandbox.files.get_info(NEW).size == 8 << 20
    assert sleeper.pid in [process.pid for process in sandbox.commands.list()]


def test_s4_upload_over_the_memory_limit_keeps_the_old_content(small):
    """Its length is known before the file is truncated."""
    server, sandbox = small
    old = b"".join(varied(10))
    sandbox.files.write(NEW, old)
    sandbox.commands.run("head -c 25M /dev/zero > /dev/shm/inside")
    assert send(server, sandbox, NEW, "sized", varied(42)) == 507
    assert bytes(sandbox.files.read(NEW, format="bytes")) == old
    # The pages of the old content count for the new one.
    sandbox.commands.run("rm /dev/shm/inside")
    assert send(server, sandbox, NEW, "sized", varied(40)) == 200
    assert send(server, sandbox, NEW, "sized", varied(40)) == 200


def test_l2_upload_over_the_memory_limit_spares_an_empty_file(small):
    server, sandbox = small
    sandbox.files.write(NEW, "")
    sandbox.commands.run("head -c 25M /dev/zero > /dev/shm/inside")
    assert send(server, sandbox, NEW, "sized", varied(50)) == 507
    assert sandbox.files.read(NEW) == ""
    assert int(sandbox.commands.run(f"stat -c %b {NEW}").stdout) * 512 <= 65536


def test_m4_finished_upload_keeps_the_space_that_another_has_reserved(small):
    server, sandbox = small
    first = begin(server, sandbox, None, b"a" * 4000)
    second = begin(server, sandbox, 8 << 20, b"b" * 3000)
    first.sendall(b"3e8\r\n%b\r\n0\r\n\r\n" % (b"a" * 1000))
    with first:
        assert Answers(first).next().status == 200
    settle(server, sandbox)

    def reserved():
        return int(sandbox.commands.run(f"stat -c %b {NEW}").stdout) * 512

    assert reserved() >= 8 << 20
    leave(server, second)
    wait_until(lambda: reserved() <= 65536, "space beyond the end of the file is reserved")
    assert sandbox.files.get_info(NEW).size == 5000


def test_s4_error_names_the_memory_limit(small):
    server, sandbox = small
    holder = sandbox.commands.run("python3 -c 'held = b\"x\" * (25 << 20); open(\"held\", \"w\"); input()'",
                                  background=True, stdin=True)
    wait_until(lambda: sandbox.files.exists("held"), "the memory is not in use")
    with server.connect() as client:
        client.sendall(request(f"POST /files?path={NEW}", *of(sandbox), OCTETS,
                               f"Content-Length: {50 << 20}", body=PIECE))
        client.settimeout(PATIENCE)
        for piece in varied(49):
            client.sendall(piece)
        answer = Answers(client).next()
    holder.kill()
    assert answer.status == 507
    assert "memory limit" in answer.json["message"]


def test_s4_small_files_fit_where_a_step_ahead_does_not(small):
    """An upload of unknown length is refused for its own bytes, not for those reserved ahead."""
    server, sandbox = small
    room = MEMORY - used(server, sandbox) - MEMORY // 64 - (3 << 20)
    sandbox.commands.run(f"head -c {room} /dev/zero > /home/user/inside")
    for kind in KINDS:
        assert send(server, sandbox, NEW, kind, [b"x" * 5000]) == 200
        assert sandbox.files.read(NEW) == "x" * 5000


def test_s4_files_of_a_form_have_their_own_room(small):
    """Several files in a form, smaller and larger than a step, also in one piece."""
    server, sandbox = small
    files = {f"/home/user/f{i}": bytes([65 + i]) * size
             for i, size in enumerate([5, 9 << 20, 0, 70000, 5 << 20, 1])}
    body = b"".join(part(name) + content + b"\r\n" for name, content in files.items())
    body += b"--bound--\r\n"
    for pieces in ([body[i:i + 50000] for i in range(0, len(body), 50000)], [body]):
        for framed in (True, False):
            length = [] if framed else [f"Content-Length: {len(body)}"]
            assert upload(server, sandbox, "", FORM, *length, pieces=pieces,
                          framed=framed) == 200
            for name, content in files.items():
                assert bytes(sandbox.files.read(name, format="bytes")) == content
            blocks = sandbox.commands.run("stat -c %b /home/user/f?").stdout.split()
            assert sum(map(int, blocks)) * 512 <= sum(map(len, files.values())) + 6 * 65536
