# SPDX-License-Identifier: Apache-2.0
"""Volumes of tenants, with the real SDK."""

import shutil
import tempfile

import javascript
import pytest
import raw
from e2b import Sandbox, Volume
from e2b.exceptions import (
    RateLimitException,
    SandboxException,
    VolumeException,
    VolumeNotFoundException,
    VolumePathNotFoundException,
)
from serving import rss_kib, wait_until


@pytest.fixture(name="tenant")
def fixture_tenant(server):
    """Arguments for the SDK; all volumes of the tenant are removed."""
    options = server.options_of("volumes")
    yield options
    for one in Volume.list(**options):
        assert Volume.destroy(one.volume_id, **options)


def test_a_volume_is_created_listed_and_removed(tenant):
    volume = Volume.create("data_1-x", **tenant)
    assert volume.name == "data_1-x" and volume.token
    [listed] = Volume.list(**tenant)
    assert (listed.volume_id, listed.name) == (volume.volume_id, volume.name)
    found = Volume.get_info(volume.volume_id, **tenant)
    assert (found.name, found.token) == (volume.name, volume.token)
    with pytest.raises(VolumeException, match="400"):
        Volume.create("data_1-x", **tenant)
    assert Volume.destroy(volume.volume_id, **tenant)
    assert not Volume.destroy(volume.volume_id, **tenant)
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id, **tenant)
    assert Volume.list(**tenant) == []


def test_sandboxes_share_a_volume_that_outlives_them(tenant):
    volume = Volume.create("data", **tenant)
    with Sandbox.create(volume_mounts={"/mnt/data": volume}, **tenant) as one:
        one.files.write("/mnt/data/file", "shared")
        assert one.get_info().volume_mounts == [{"name": "data", "path": "/mnt/data"}]
        with Sandbox.create(volume_mounts={"/d": "data"}, **tenant) as other:
            assert other.commands.run("cat /d/file; stat -c %U /d/file").stdout == "shareduser\n"
        with pytest.raises(VolumeException, match="409"):
            Volume.destroy(volume.volume_id, **tenant)
    with Sandbox.create(volume_mounts={"/d": volume}, **tenant) as later:
        assert later.files.read("/d/file") == "shared"


def test_a_tenant_has_a_limit_of_volumes(own_server):
    server = own_server()
    first = Volume.create("v0")
    [made] = (server.home / "volumes").iterdir()
    for i in range(1, 500):
        shutil.copytree(made, made.with_name(f"{made.name[:-1]}{i}"))
    assert {one.name for one in Volume.list()} == {f"v{i}" for i in range(500)}
    with pytest.raises(RateLimitException, match="too many volumes"):
        Volume.create("more")
    assert Volume.create("more", **server.options_of("others")).name == "more"
    assert Volume.destroy(first.volume_id)
    assert Volume.create("more").name == "more"


def test_tenants_do_not_see_each_others_volumes(server, tenant):
    volume = Volume.create("data", **tenant)
    other = server.options_of("others")
    assert Volume.list(**other) == [] and not Volume.destroy(volume.volume_id, **other)
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id, **other)
    with pytest.raises(SandboxException, match="no such volume"):
        Sandbox.create(volume_mounts={"/d": "data"}, **other)
    own = Volume.create("data", **other)
    assert own.token != volume.token and Volume.destroy(own.volume_id, **other)
    assert [one.name for one in Volume.list(**tenant)] == ["data"]


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "a b"}, {"name": "a/b"}, {"name": "x" * 43},
                                  {"name": 1}, {"name": "a.b"}])
def test_an_invalid_name_is_refused(server, body):
    assert server.api("POST", "/volumes", body)[0] == 400


@pytest.mark.parametrize("mounts", [
    "x", [1], [{}], [{"name": "x"}], [{"name": "x", "path": "relative"}], [{"name": "x", "path": "/a/../b"}],
    [{"name": "../x", "path": "/a"}], [{"name": "no-such", "path": "/a"}], [{"name": "x", "path": "/a\nb"}]])
def test_invalid_mounts_are_refused(server, mounts):
    body = {"templateID": "base", "volumeMounts": mounts}
    assert server.api("POST", "/sandboxes", body)[0] == 400


@pytest.mark.parametrize("method, path", [("GET", "/volumes"), ("POST", "/volumes"), ("GET", "/volumes/x"),
                                          ("DELETE", "/volumes/x")])
def test_volumes_need_a_key(server, method, path):
    assert server.api(method, path, {"name": "x"} if method == "POST" else None, X_API_KEY="no")[0] == 401


# --- The files of a volume ---


def content(server, method, volume, query, headers):
    """The status and the JSON of a response."""
    if method == "PUT":
        headers = {**headers, "Content-Type": "application/octet-stream"}
    body = b"x" if method == "PUT" else b"{}" if method == "PATCH" else None
    answer = raw.web(method, f"{server.url}/volumecontent/{volume.volume_id}/{query}", headers=headers, content=body)
    return answer.status_code, answer.json()


@pytest.fixture(name="volume")
def fixture_volume(tenant):
    return Volume.create("files", **tenant)


def test_files_are_written_read_listed_and_removed(volume):
    written = volume.write_file("a.txt", "text")
    assert (written.path, written.name, written.type.value, written.size) == ("/a.txt", "a.txt", "file", 4)
    assert (written.mode, written.uid, written.gid) == (0o644, 0, 0)
    assert written.mtime <= written.ctime and written.atime.tzinfo
    assert volume.read_file("/a.txt") == "text"
    made = volume.make_dir("/d", mode=0o700, uid=1000, gid=1001)
    assert (made.type.value, made.mode, made.uid, made.gid) == ("directory", 0o700, 1000, 1001)
    volume.write_file("/d/b", b"\0\xff", uid=7, gid=8, mode=0o600)
    found = volume.get_info("d/b")
    assert (found.mode, found.uid, found.gid, found.size) == (0o600, 7, 8, 2)
    assert volume.read_file("d/b", format="bytes") == b"\0\xff"
    assert sorted(one.path for one in volume.list("/")) == ["/a.txt", "/d"]
    assert sorted(one.path for one in volume.list("/", depth=2)) == ["/a.txt", "/d", "/d/b"]
    assert [one.path for one in volume.list("d")] == ["/d/b"]
    changed = volume.update_metadata("/d/b", mode=0o640, uid=1000)
    assert (changed.mode, changed.uid, changed.gid) == (0o640, 1000, 8)
    assert volume.exists("/d/b")
    volume.remove("/d")
    assert not volume.exists("/d/b") and not volume.exists("/d")


def test_what_is_there_or_is_missing_is_reported(volume):
    volume.write_file("f", "1")
    volume.make_dir("d")
    for refused in (lambda: volume.write_file("f", "2"), lambda: volume.make_dir("d"),
                    lambda: volume.make_dir("f"), lambda: volume.write_file("d", "x", force=True),
                    lambda: volume.make_dir("f", force=True)):
        with pytest.raises(VolumeException, match="409"):
            refused()
    for missing in (lambda: volume.write_file("no/f", "2"), lambda: volume.make_dir("no/d"),
                    lambda: volume.remove("no"), lambda: volume.remove("/"), lambda: volume.list("no"),
                    lambda: volume.list("f"), lambda: volume.read_file("no"), lambda: volume.read_file("d"),
                    lambda: volume.get_info("f/x"), lambda: volume.update_metadata("no", mode=0o600)):
        with pytest.raises(VolumePathNotFoundException):
            missing()
    assert volume.read_file("f") == "1"
    assert volume.write_file("f", "", force=True).size == 0
    assert volume.read_file("f") == "" and volume.read_file("f", format="bytes") == b""
    assert volume.make_dir("a/b/c", force=True).path == "/a/b/c"
    assert volume.make_dir("a/b/c", force=True).mode == 0o755


def test_sandboxes_and_the_api_see_the_same_files(tenant, volume):
    volume.write_file("from-api", "api")
    with Sandbox.create(volume_mounts={"/v": volume}, **tenant) as sandbox:
        assert sandbox.files.read("/v/from-api") == "api"
        sandbox.commands.run("echo inside > /v/from-inside; ln -s from-inside /v/link; mkfifo /v/fifo")
        assert volume.read_file("from-inside") == "inside\n"
        assert volume.read_file("link") == "inside\n"
        link = volume.get_info("link")
        assert (link.type.value, link.target) == ("symlink", "from-inside")
        assert volume.get_info("from-inside").uid == 1000
        assert volume.get_info("fifo").type.value == "unknown"
        with pytest.raises(VolumePathNotFoundException):
            volume.read_file("fifo")


LEADS_OUT = ["/etc", "../../etc", "/", "..", "/proc/self/root/etc", "/proc/1/root"]


@pytest.mark.parametrize("target", LEADS_OUT)
def test_no_link_of_a_volume_leads_out(tenant, volume, target):
    with Sandbox.create(volume_mounts={"/v": volume}, **tenant) as sandbox:
        sandbox.commands.run(f"cd /v && ln -s '{target}' out && ln -s '{target}/passwd' file; mkdir in; echo x > in/y")
        for refused in (lambda: volume.read_file("out/passwd"), lambda: volume.list("out"),
                        lambda: volume.read_file("file"), lambda: volume.write_file("out/new", "x"),
                        lambda: volume.write_file("file", "x", force=True),
                        lambda: volume.make_dir("out/new", force=True), lambda: volume.remove("out/passwd"),
                        lambda: volume.update_metadata("out/passwd", mode=0o777)):
            with pytest.raises((VolumeException, VolumePathNotFoundException)):
                refused()
        volume.remove("out")
        assert sandbox.commands.run("ls /v").stdout.split() == ["file", "in"]
        assert volume.read_file("in/y") == "x\n"


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/../etc/passwd", "a/../../../etc/passwd", "./.././etc/passwd"])
def test_dots_do_not_climb_out_of_a_volume(volume, path):
    with pytest.raises(VolumePathNotFoundException):
        volume.read_file(path)
    volume.make_dir("etc")
    assert volume.write_file(path, "own").path == "/etc/passwd"
    assert volume.read_file("etc/passwd") == "own"


def test_links_that_change_all_the_time_do_not_lead_out(tenant, volume):
    """A program exchanges a directory and a link to /etc while the API reads and writes."""
    with Sandbox.create(volume_mounts={"/v": volume}, **tenant) as sandbox:
        sandbox.commands.run("mkdir /v/dir && echo mine > /v/dir/passwd && ln -s /etc /v/link")
        flip = sandbox.commands.run(
            "python3 -c '\nimport ctypes\nc = ctypes.CDLL(None)\n"
            "while 1: c.renameat2(-100, b\"/v/dir\", -100, b\"/v/link\", 2)'", background=True)
        contents = set()
        for _ in range(200):
            try:
                contents.add(volume.read_file("dir/passwd"))
            except (VolumeException, VolumePathNotFoundException):
                contents.add(None)
        flip.kill()
    assert contents <= {"mine\n", None} and None in contents and len(contents) == 2


def test_a_volume_is_removed_right_after_its_files_were_used(server, tenant):
    for _ in range(5):
        volume = Volume.create("short", **tenant)
        volume.write_file("f", "x")
        assert Volume.destroy(volume.volume_id, **tenant)
        with pytest.raises((VolumeException, VolumePathNotFoundException)):
            volume.read_file("f")


def test_a_large_file_is_streamed(server, volume):
    """Neither the server nor its keepers have it in memory."""
    size = 96 << 20

    def pieces():
        for _ in range(size >> 20):
            yield b"x" * (1 << 20)

    with tempfile.TemporaryFile() as source:
        for piece in pieces():
            source.write(piece)
        source.seek(0)
        assert volume.write_file("large", source).size == size
    largest = total = 0
    for piece in volume.read_file("large", format="stream"):
        total += len(piece)
        largest = max(largest, *(rss_kib(pid) for pid in server.children()))
    assert total == size and largest < 48 << 10


def test_an_upload_that_breaks_off_leaves_no_file(server, volume):
    client = raw.connect(server)
    client.sendall((f"PUT /volumecontent/{volume.volume_id}/file?path=part HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                    f"Authorization: Bearer {volume.token}\r\nContent-Type: application/octet-stream\r\n"
                    "Content-Length: 100000\r\n\r\n").encode() + b"x" * 5000)
    wait_until(lambda: volume.exists("part"), "the upload does not begin")
    raw.reset(client)
    wait_until(lambda: not volume.exists("part"), "a partial file is left")


ROUTES = [("GET", "path"), ("PATCH", "path"), ("DELETE", "path"), ("GET", "dir"), ("POST", "dir"),
          ("GET", "file"), ("PUT", "file")]


@pytest.mark.parametrize("method, route", ROUTES)
def test_only_the_token_of_a_volume_opens_its_files(server, tenant, volume, method, route):
    """Neither another volume's token nor an API key, and the error code is text."""
    other = Volume.create("other", **tenant)
    volume.write_file("f", "x")
    for token in (None, "no", other.token, tenant["api_key"]):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        status, answer = content(server, method, volume, f"{route}?path=f", headers)
        assert (status, answer["code"]) == (401, "401")
    assert volume.read_file("f") == "x"


@pytest.mark.parametrize("method, query", [
    ("GET", "path"), ("POST", "dir?path=x&mode=0x1ff"), ("POST", "dir?path=x&mode=1024"),
    ("POST", "dir?path=x&mode=-1"), ("POST", "dir?path=x&uid=a"), ("POST", "dir?path=x&gid=4294967295"),
    ("GET", "dir?path=/&depth=-1"), ("GET", "path?path=" + 5000 * "x"), ("POST", "dir?path=x&uid=70000")])
def test_invalid_requests_about_files_are_refused(server, volume, method, query):
    status, answer = content(server, method, volume, query, {"Authorization": f"Bearer {volume.token}"})
    assert (status, answer["code"]) == (400, "400") and answer["message"]


def test_the_keeper_of_a_volume_leaves_nothing_behind(server, volume):
    """It ends its sandbox when nobody uses the files, and with the server."""
    before = set(server.keepers())
    volume.write_file("f", "x")
    assert len(set(server.keepers()) - before) <= 1
    wait_until(lambda: not set(server.keepers()) - before, "the keeper of the volume stays")
    assert volume.read_file("f") == "x"


@pytest.fixture(scope="module", name="script")
def fixture_script(server):
    return javascript.run("volumes.mjs", "e2b", server.exports)


@pytest.mark.parametrize("name", javascript.names("volumes.mjs"))
def test_javascript(script, name):
    javascript.check(script, name)
