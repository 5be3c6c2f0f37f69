# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: files."""

import gzip
import hashlib
import io
import itertools
import os
import random
import shlex

import httpx
import pytest
from e2b import (
    AuthenticationException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    Sandbox,
    SandboxException,
)
from raw import web
from serving import PATIENCE, rss_kib

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LARGE = int(os.environ.get("CAY_LARGE_FILE", GIB))  # bytes
SIZES = [0, 1, 2, 4095, 4096, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB + 1, 16 * MIB]

NAMES = [
    "plain", "two words", " leading", "trailing ", "tab\there", "new\nline", "cr\rhere", "quo'te",
    'double"quote', "back\\slash", "per%cent", "%2e%2e", "%00", "a+b", "a&b=c", "quest?ion",
    "ha#sh", "semi;colon", "co:lon", "com,ma", "st*r", "br[ack]et", "{brace}", "<angle>", "pi|pe",
    "dol$lar", "back`tick", "til~de", "~", "at@", "ex!claim", ".hidden", "..two", "...", "-dash",
    "--", "ümläut", "日本語", "😀", "e\u0301 is not \u00e9", "\u202eright to left", "\u200b",
    "\x01\x7f", "x" * 255, "ü" * 127, "CON", "nul.txt", "boundary--------",
    'name="file"; filename="x"',
]


def content(size, seed=0):
    return random.Random(seed * 1000 + size).randbytes(size)


def inside(sandbox, path):
    """The digest of a file as a program in the sandbox sees it."""
    return sandbox.commands.run(f"sha256sum < {shlex.quote(path)}").stdout.split()[0]


def digest(data):
    return hashlib.sha256(data).hexdigest()


# --- Contents ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"use_octet_stream": True}, {"gzip": True}],
                         ids=["form", "bytes", "gzip"])
@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_there_and_comes_back(shared, size, how):
    data = content(size)
    info = shared.files.write("data", data, **how)
    assert (info.path, info.name, info.type) == ("/home/user/data", "data", FileType.FILE)
    assert inside(shared, "data") == digest(data)
    assert shared.files.read("data", format="bytes") == data
    assert shared.files.get_info("data").size == size
    if how == {"gzip": True}:
        assert shared.files.read("data", format="bytes", gzip=True) == data


@pytest.mark.parametrize("size", [MIB, 64 * MIB])
def test_compressible_content_is_uploaded_packed(shared, size):
    line = b"the same line again and again, as logs have it\n"
    data = (line * (size // len(line) + 1))[:size]
    shared.files.write("packed", data, gzip=True)
    assert inside(shared, "packed") == digest(data)
    shared.files.write("packed", io.BytesIO(data), gzip=True)
    assert inside(shared, "packed") == digest(data)
    assert shared.files.read("packed", format="bytes", gzip=True) == data
    shared.files.remove("packed")


def packed(sandbox, body, path="packed", **more):
    return post(sandbox, content=body, params={"path": path} if path else {}, headers={
        "Content-Type": "application/octet-stream", "Content-Encoding": "gzip", **more})


def test_packed_content_may_have_several_parts(shared):
    parts = [b"one ", b"", b"two ", b"three" * 100_000]
    answer = packed(shared, b"".join(map(gzip.compress, parts)))
    assert answer.status_code == 200, answer.text
    assert shared.files.read("packed", format="bytes") == b"".join(parts)


@pytest.mark.parametrize("size", [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB, 3 * MIB + 1])
def test_packed_content_of_any_size_is_unpacked_whole(shared, size):
    """Of zeros, so that much comes of the last bytes that were sent."""
    for body in (gzip.compress(bytes(size)), gzip.compress(bytes(size)) * 3):
        for pieces in ([body], [body[:-1], body[-1:]], [body[:9], body[9:]],
                       [body[at:at + 1] for at in range(min(len(body), 3000))] + [body[3000:]]):
            assert packed(shared, iter(pieces)).status_code == 200
            assert shared.files.get_info("packed").size == size * (len(body) // len(
                gzip.compress(bytes(size))))


@pytest.mark.parametrize("tail", [b"x", b"\x1f\x8b", b"\0" * 20, gzip.compress(b"more", mtime=0)[:-1]])
def test_what_follows_packed_content_is_packed_too(shared, tail):
    assert packed(shared, gzip.compress(b"content") + tail).status_code == 400


def test_a_packed_form_names_its_files_as_any_form_does(shared):
    data = {f"form/{n}": bytes([n]) * (n * 100_000) for n in range(20)}
    form = httpx.Request("POST", "http://x", files=[("file", (name, content))
                                                    for name, content in data.items()])
    answer = packed(shared, gzip.compress(form.read()), path=None, **{
        "Content-Type": form.headers["Content-Type"]})
    assert answer.status_code == 200, answer.text
    assert [item["path"] for item in answer.json()] == [f"/home/user/{name}" for name in data]
    for name, content_ in data.items():
        assert shared.files.read(name, format="bytes") == content_


def test_what_is_no_file_in_a_form_may_not_be_large(shared):
    for size, wanted in ((60_000, 200), (70_000, 413)):
        form = httpx.Request("POST", "http://x", data={"note": "x" * size},
                             files=[("file", ("beside", b"content"))])
        body, kind = form.read(), form.headers["Content-Type"]
        answers = [post(shared, content=body, headers={"Content-Type": kind}),
                   packed(shared, gzip.compress(body), path=None, **{"Content-Type": kind})]
        assert [answer.status_code for answer in answers] == [wanted] * 2, answers[0].text


def test_text_is_written_and_read(shared):
    text = "ü€😀\r\n\0 end"
    shared.files.write("text", text)
    assert shared.files.read("text") == text


@pytest.mark.parametrize("how", [{}, {"use_octet_stream": True}, {"gzip": True}],
                         ids=["default", "bytes", "gzip"])
def test_a_file_is_streamed_both_ways(shared, how):
    data = content(5 * MIB + 3)
    shared.files.write("streamed", io.BytesIO(data), **how)
    with shared.files.read("streamed", format="stream") as stream:
        assert b"".join(stream) == data
    shared.files.write("pieces", (data[at:at + 9999] for at in range(0, len(data), 9999)))
    assert inside(shared, "pieces") == digest(data)


def test_a_shorter_content_replaces_a_longer_one(shared):
    for text in ("long " * 1000, "short", ""):
        shared.files.write("shrinks", text)
        assert shared.files.read("shrinks") == text
        assert shared.commands.run("cat shrinks").stdout == text


def test_several_files_are_written_at_once(shared):
    entries = [{"path": f"many/{n}/deep file", "data": content(n * 1000)} for n in range(20)]
    infos = shared.files.write_files(entries)
    assert [info.path for info in infos] == [f"/home/user/many/{n}/deep file" for n in range(20)]
    for number, entry in enumerate(entries):
        assert shared.files.read(f"many/{number}/deep file", format="bytes") == entry["data"]


def test_a_full_disk_is_said_and_can_be_emptied(create):
    sandbox = create()
    before = content(1000)
    sandbox.files.write("kept", before)
    sandbox.commands.run("head -c 2G /dev/zero > /filler || true", user="root", timeout=PATIENCE)
    with pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("more", content(MIB))
    assert sandbox.files.read("kept", format="bytes") == before
    sandbox.commands.run("rm /filler", user="root")
    sandbox.files.write("more", content(MIB))
    assert inside(sandbox, "more") == digest(content(MIB))


# --- Names ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_kept_as_it_is(shared, name):
    folder = "/home/user/names"
    path = f"{folder}/{name}"
    assert shared.files.write(path, name, use_octet_stream=True).path == path
    assert [entry.name for entry in shared.files.list(folder)] == [name]
    assert shared.files.read(path) == name
    assert shared.files.exists(path)
    info = shared.files.get_info(path)
    assert (info.name, info.path) == (name, path)
    seen = shared.commands.run("printf '%s/' *; cat -- *", cwd=folder).stdout if name[0] != "." \
        else f"{name}/{name}"
    assert seen == f"{name}/{name}"
    assert shared.files.rename(path, path[:-1] + "z").path == path[:-1] + "z"
    assert not shared.files.exists(path)
    shared.files.write(path, "form: " + name)
    assert shared.files.read(path) == "form: " + name
    shared.files.remove(path)
    shared.files.remove(path[:-1] + "z")
    assert shared.files.list(folder) == []


@pytest.mark.parametrize("path", ["/home/user/\0x", "/home/user/" + "x" * 256,
                                  "/home/user/" + "y/" * 3000])
def test_a_name_that_cannot_be_is_refused(shared, path):
    for use in (lambda: shared.files.write(path, "x"), lambda: shared.files.read(path),
                lambda: shared.files.make_dir(path), lambda: shared.files.list(path),
                lambda: shared.files.rename(path, "/home/user/z")):
        with pytest.raises(SandboxException):
            use()


@pytest.mark.parametrize("spelled", ["rel", "./rel", "x/../rel", "~/rel", "/home/user//rel",
                                     "/home/user/./rel", "/../../home/user/rel"])
def test_a_path_has_many_spellings(shared, spelled):
    shared.files.make_dir("x")
    shared.files.write("/home/user/rel", spelled)
    assert shared.files.read(spelled) == spelled
    assert shared.files.get_info(spelled).path == "/home/user/rel"


def test_no_path_leads_out_of_the_sandbox(shared, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("of the host")
    shared.commands.run(f"ln -sfn / root; ln -sfn {'../' * 40} up; ln -sfn /proc/1/root proc")
    for prefix in ("", "/home/user/root", "/home/user/up", "../" * 40, "/proc/1/root",
                   "/proc/self/root", "/home/user/proc"):
        with pytest.raises(SandboxException):
            shared.files.read(f"{prefix}{canary}")


# --- What there is ----------------------------------------------------------------------


def test_a_directory_is_listed_as_it_is(shared):
    shared.commands.run("rm -rf d; mkdir -p d/sub/deep && cd d && printf 123 > file && "
                        "chmod 751 file && ln -s file good && ln -s sub dirlink && "
                        "ln -s nowhere broken && mkfifo pipe && echo > sub/inner && "
                        "echo > sub/deep/inmost")
    found = {entry.name: entry for entry in shared.files.list("d")}
    assert set(found) >= {"file", "good", "sub", "dirlink"}
    file = found["file"]
    assert (file.type, file.size, file.mode, file.permissions) == \
        (FileType.FILE, 3, 0o751, "-rwxr-x--x")
    assert (file.owner, file.group, file.path) == ("user", "user", "/home/user/d/file")
    assert file.symlink_target is None
    assert found["sub"].type == FileType.DIR
    assert found["sub"].permissions.startswith("d")
    assert found["good"].symlink_target == "/home/user/d/file"
    assert found["dirlink"].symlink_target == "/home/user/d/sub"
    assert found["dirlink"].type == FileType.DIR
    assert "inner" not in found


def test_a_directory_is_listed_as_deep_as_asked(shared):
    shared.commands.run("rm -rf deep; mkdir -p deep/a/b/c && echo > deep/a/b/c/file")
    for depth in (1, 2, 3, 4, 9):
        paths = {entry.path for entry in shared.files.list("deep", depth=depth)}
        expected = [f"/home/user/deep/{path}" for path in ("a", "a/b", "a/b/c", "a/b/c/file")]
        assert paths == set(expected[:depth])


def test_a_list_goes_as_deep_as_it_is_asked_to(shared):
    shared.commands.run("mkdir -p deeper/" + "d/" * 400)
    for depth, count in ((257, 257), (1000, 400)):
        assert len(shared.files.list("deeper", depth=depth)) == count


def test_a_directory_through_a_link_is_listed_under_the_name_asked(shared):
    shared.commands.run("mkdir -p target && echo > target/x && ln -sfn target alias")
    assert [entry.path for entry in shared.files.list("alias")] == ["/home/user/alias/x"]


def test_a_directory_of_many_names_is_listed_whole(shared):
    shared.commands.run("rm -rf wide; mkdir wide; cd wide; seq 3000 | xargs touch")
    assert {entry.name for entry in shared.files.list("wide")} == {str(n) for n in range(1, 3001)}


def test_the_empty_directory_and_what_is_none(shared):
    shared.files.make_dir("empty")
    assert shared.files.list("empty") == []
    with pytest.raises(FileNotFoundException):
        shared.files.list("nowhere")
    shared.files.write("file", "x")
    with pytest.raises(InvalidArgumentException):
        shared.files.list("file")


def test_whether_something_exists(shared):
    shared.files.write("is", "x")
    assert shared.files.exists("is") is True
    assert shared.files.exists("is-not") is False
    assert shared.files.exists("/home/user") is True
    assert shared.files.exists("is/below") is False
    with pytest.raises(FileNotFoundException):
        shared.files.get_info("is-not")


def test_directories_are_made_with_their_parents_once(shared):
    assert shared.files.make_dir("made/a/b") is True
    assert shared.files.make_dir("made/a/b") is False
    info = shared.files.get_info("made/a")
    assert (info.type, info.owner) == (FileType.DIR, "user")
    shared.files.write("made/file", "x")
    with pytest.raises(InvalidArgumentException):
        shared.files.make_dir("made/file")


def test_files_and_directories_are_renamed(shared):
    shared.files.write("from/a", "1")
    shared.files.write("to", "2")
    assert shared.files.rename("from/a", "to").path == "/home/user/to"
    assert shared.files.read("to") == "1"
    assert not shared.files.exists("from/a")
    shared.files.rename("from", "moved/below")
    assert shared.files.list("moved/below") == []
    with pytest.raises(FileNotFoundException):
        shared.files.rename("nowhere", "x")


def test_a_rename_replaces_in_one_step_or_not_at_all(shared):
    shared.files.write("mine", "mine")
    with pytest.raises(SandboxException):
        shared.files.rename("/proc/version", "mine")
    assert shared.files.read("mine") == "mine"
    shared.files.write("better", "better")
    shared.files.rename("better", "mine")
    assert shared.files.read("mine") == "better" and not shared.files.exists("better")
    shared.files.make_dir("tree/below")
    with pytest.raises(InvalidArgumentException):
        shared.files.rename("tree", "tree/below/tree")
    assert shared.files.exists("tree/below")


def test_files_and_trees_are_removed(shared):
    shared.files.write("gone/a/b", "1")
    shared.commands.run("mkdir -p away && echo stays > away/file && ln -s ../away gone/link")
    shared.files.remove("gone")
    assert not shared.files.exists("gone")
    assert shared.files.read("away/file") == "stays\n"
    shared.files.remove("gone")  # that it is not there is what was asked for


def test_what_cannot_be_read_is_refused(shared):
    with pytest.raises(FileNotFoundException):
        shared.files.read("nowhere")
    with pytest.raises(InvalidArgumentException):
        shared.files.read("/home/user")
    shared.commands.run("rm -f pipe; mkfifo pipe")
    for path in ("pipe", "/dev/zero", "/dev/tty"):
        with pytest.raises(SandboxException):
            shared.files.read(path, request_timeout=PATIENCE)
    shared.files.write("file", "x")
    with pytest.raises(SandboxException):
        shared.files.write("file/below", "x")
    with pytest.raises(SandboxException):
        shared.files.write("/home/user", "x")


# --- Users ------------------------------------------------------------------------------


def test_files_belong_to_who_wrote_them(shared):
    shared.files.write("mine", "x")
    shared.files.write("/root/roots", "x", user="root")
    shared.files.make_dir("/root/dir", user="root")
    assert shared.files.get_info("mine").owner == "user"
    assert shared.files.get_info("/root/roots", user="root").owner == "root"
    assert shared.files.get_info("/root/dir", user="root").owner == "root"
    assert shared.files.write("in-home", "x", user="root").path == "/root/in-home"
    for use in (lambda: shared.files.write("x", "x", user="nobodyknows"),
                lambda: shared.files.read("mine", user="nobodyknows"),
                lambda: shared.files.list("/", user="nobodyknows")):
        with pytest.raises(AuthenticationException):
            use()


def test_the_user_says_whose_files_are_and_not_what_can_be_done(shared):
    """As in the cloud, where programs rely on it: whoever has the token may be root."""
    shared.files.write("/root/secret", "of root", user="root")
    assert shared.files.read("/root/secret") == "of root"
    assert "secret" in {entry.name for entry in shared.files.list("/root")}
    shared.files.watch_dir("/root").stop()
    shared.files.write("/path/to/file", "new")
    assert shared.files.make_dir("/data/deeper")
    shared.files.write("/etc/own", "x")
    owners = "stat -c %U /path /path/to /path/to/file /data /data/deeper /etc/own /root/secret"
    assert shared.commands.run(owners, user="root").stdout.split() == 6 * ["user"] + ["root"]
    shared.files.rename("/root/secret", "/root/moved")
    shared.files.remove("/root/moved")
    shared.files.write("/usr/bin/own", "x")  # this machine's own /usr stays as it is
    assert not os.path.exists("/usr/bin/own")
    with pytest.raises(SandboxException):
        shared.files.write("/proc/version", "x")


def test_metadata_of_a_file_is_kept_and_replaced(shared):
    info = shared.files.write("noted", "x", metadata={"Colour": "blue", "size": "10 x 10"})
    assert info.metadata == {"colour": "blue", "size": "10 x 10"}
    assert shared.files.get_info("noted").metadata == {"colour": "blue", "size": "10 x 10"}
    listed = {entry.name: entry.metadata for entry in shared.files.list("/home/user")}
    assert listed["noted"] == {"colour": "blue", "size": "10 x 10"}
    shared.files.write("noted", "y", metadata={"new": "1"})
    assert shared.files.get_info("noted").metadata == {"new": "1"}
    with pytest.raises(InvalidArgumentException):
        shared.files.write("noted", "z", metadata={"large": "x" * 5000})


# --- Signed addresses -------------------------------------------------------------------


def test_a_signed_address_reads_what_it_names_and_nothing_else(create):
    sandbox, other = create(), create()
    sandbox.files.write("a & b.txt", "signed")
    other.files.write("a & b.txt", "of another")
    url = sandbox.download_url("a & b.txt")
    assert web("GET", url).text == "signed"
    for wrong in (url.replace("a%20%26%20b.txt", "other"), url[:-1], url + "x",
                  url.replace("signature=v1_", "signature=v1_A"), url.split("&signature")[0],
                  url + "&username=root"):
        answer = web("GET", wrong)
        assert answer.status_code == 401, wrong
        assert answer.json()["code"] == 401
    assert web("GET", url, headers={"X-Access-Token": "wrong"}).status_code == 401
    for address in (url, url.split("&signature")[0]):  # whose token it is, is the one meant
        assert web("GET", address, headers={"X-Access-Token": sandbox._envd_access_token}
                   ).text == "signed"
    assert web("POST", url, files={"file": b"x"}).status_code == 401
    assert sandbox.files.read("a & b.txt") == "signed"


def test_a_signed_address_writes(create):
    sandbox = create()
    url = sandbox.upload_url("uploaded", user="root")
    answer = web("POST", url, files={"file": ("whatever", b"content")})
    assert answer.status_code == 200
    assert answer.json()[0]["path"] == "/root/uploaded"
    assert sandbox.files.read("/root/uploaded", user="root") == "content"
    assert web("GET", url).status_code == 401
    answer = web("POST", sandbox.upload_url(""), files=[("file", ("d/one", b"1")),
                                                        ("file", ("two", b"2"))])
    assert answer.status_code == 200, answer.text
    assert (sandbox.files.read("d/one"), sandbox.files.read("two")) == ("1", "2")
    assert web("POST", url, files={"file": content(3 * MIB)}).status_code == 200
    assert sandbox.files.read("/root/uploaded", format="bytes", user="root") == content(3 * MIB)


def test_a_signature_can_end(create):
    sandbox = create()
    sandbox.files.write("file", "x")
    assert web("GET", sandbox.download_url("file", use_signature_expiration=100)).text == "x"
    over = web("GET", sandbox.download_url("file", use_signature_expiration=-100))
    assert over.status_code == 401
    assert "expired" in over.json()["message"]
    url = sandbox.download_url("file", use_signature_expiration=-100)
    later = url.split("&signature_expiration=")[0] + "&signature_expiration=99999999999"
    assert web("GET", later).status_code == 401
    for wrong in ("9223372036854775807", "99999999999999999999", "-1", "1x", "+1"):
        refused = web("GET", url.split("&signature_expiration=")[0],
                      params={"signature_expiration": wrong})
        assert refused.status_code == 401


def test_an_address_of_a_dead_sandbox_is_refused(create):
    sandbox = create()
    sandbox.files.write("file", "x")
    url = sandbox.download_url("file")
    sandbox.kill()
    assert web("GET", url).status_code in (401, 502)


# --- Forms, as other programs send them -------------------------------------------------


def post(sandbox, headers=None, **request):
    return web("POST", f"{sandbox.envd_api_url}/files", headers={
        "X-Access-Token": sandbox._envd_access_token, "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "49983", **(headers or {})}, **request)


BYTES, PACKED = ({"Content-Type": "application/octet-stream"},
                 {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"})
WRONG_UPLOADS = {
    "one path twice": {"files": [("file", ("x", b"1")), ("file", ("x", b"2"))]},
    "text": {"content": b"x", "headers": {"Content-Type": "text/plain"}, "params": {"path": "x"}},
    "no type": {"content": b"x", "params": {"path": "x"}},
    "no path": {"content": b"x", "headers": BYTES},
    "no boundary": {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}},
    "no form": {"content": b"--bb\r\nnonsense",
                "headers": {"Content-Type": "multipart/form-data; boundary=bb"}},
    "an unknown encoding": {"content": b"x", "params": {"path": "x"},
                            "headers": {**BYTES, "Content-Encoding": "br"}},
    "metadata that is no text": {"content": b"x", "params": {"path": "x"},
                                 "headers": {**BYTES, "X-Metadata-Key": "ü".encode()}},
    "not packed": {"content": b"plain", "headers": PACKED, "params": {"path": "x"}},
    "broken off": {"content": gzip.compress(b"x" * 1000)[:-9], "headers": PACKED,
                   "params": {"path": "x"}},
}


@pytest.mark.parametrize("name", WRONG_UPLOADS)
def test_an_upload_that_is_none_is_refused(shared, name):
    shared.files.remove("x")
    answer = post(shared, **WRONG_UPLOADS[name])
    wanted = 415 if name == "an unknown encoding" else 400
    assert (answer.status_code, answer.json()["code"]) == (wanted, wanted), answer.text
    if name not in ("one path twice", "broken off", "not packed"):  # they had begun
        assert not shared.files.exists("x")


# --- Large ------------------------------------------------------------------------------


@pytest.mark.long
def test_a_large_file_goes_both_ways_without_being_held(own_server):
    """1 GiB unless CAY_LARGE_FILE says otherwise; on the disk, as it would not fit elsewhere."""
    server = own_server("--storage", "disk")
    sandbox = Sandbox.create()
    block = content(MIB)
    sent = hashlib.sha256()

    def blocks():
        for number in range(LARGE // MIB):
            piece = number.to_bytes(8, "big") + block[8:]
            sent.update(piece)
            yield piece

    before = rss_kib(server.front())
    most = before
    sandbox.files.write("large", blocks())
    most = max(most, rss_kib(server.front()))
    assert sandbox.files.get_info("large").size == LARGE
    got = hashlib.sha256()
    with sandbox.files.read("large", format="stream") as stream:
        for number, piece in zip(itertools.count(), stream):
            got.update(piece)
            if number % 256 == 0:
                most = max(most, rss_kib(server.front()))
    assert got.hexdigest() == sent.hexdigest()
    assert most - before < 8 * 1024, "the server held much of the file in memory"
    assert sandbox.kill() is True
    with pytest.raises(NotFoundException):
        sandbox.get_info()
