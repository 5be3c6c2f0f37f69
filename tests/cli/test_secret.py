# SPDX-License-Identifier: Apache-2.0
"""Secrets: programs inside use a value that they cannot read."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import textwrap
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE, copy_command
from service import TALK, Service
from test_relay import INSIDE, processes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

VALUE = "s3cr3t/value+of-the-tests=9f8e7d"
PREPARE = INSIDE + TALK + "import os\ntoken = os.environ['TOKEN']\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = Service(tmp_path_factory.mktemp("service"))
    yield made
    made.stop()


@pytest.fixture
def create(service):
    ids = []

    def make(*words):
        done = cay(service, "create", *words)
        assert done.returncode == 0, done
        ids.append(done.stdout.decode().strip())
        return ids[-1]

    yield make
    for each in ids:
        service.cay("kill", each, check=False)


def cay(service, *words):
    return subprocess.run(service.command(CAY, *words), capture_output=True, timeout=PATIENCE,
                          env={**os.environ, "TEST_TOKEN": VALUE})


def secret(*places):
    words = ["--secret", "TOKEN=env:TEST_TOKEN"]
    return words + [word for place in places for word in ("--secret-for", place)]


def run(service, words, code):
    done = cay(service, "run", "--allow", "api.test", "--allow", "bad.test", "--allow", "good.test",
               *words, "--", "python3", "-c", PREPARE + textwrap.dedent(code))
    assert done.returncode == 0, done
    assert VALUE.encode() not in done.stdout + done.stderr
    return done.stdout.decode().splitlines()


def test_the_value_reaches_the_host_and_its_reply_is_masked(service):
    before = len(service.requests())
    lines = run(service, secret("api.test:bearer,basic,query,header=X-Api-Key"), """
        from base64 import b64encode
        print(token.startswith("CAY_PLACEHOLDER_"), len(token))
        basic = b64encode(f"me:{token}".encode()).decode()
        for more, path in ((f"Authorization: Bearer {token}\\r\\n", "/a"),
                           (f"Authorization: Basic {basic}\\r\\n", "/b"),
                           (f"x-api-key: {token}\\r\\n", "/c"), ("", f"/d?key={token}&x=1")):
            sock = secure("api.test")
            print(talk(sock, get(path, more=more), get("/kept"))[0])
    """)
    assert lines[0] == "True 48"
    assert all(line.startswith("(200, ") for line in lines[1:])
    assert all("****" in line for line in lines[1:])
    bearer, kept, basic, _, key, _, query, _ = service.requests()[before:]
    assert bearer["headers"]["authorization"] == f"Bearer {VALUE}"
    assert "authorization" not in kept["headers"]
    import base64
    assert basic["headers"]["authorization"] == "Basic " + base64.b64encode(f"me:{VALUE}".encode()).decode()
    assert key["headers"]["x-api-key"] == VALUE
    from urllib.parse import quote
    assert query["path"] == f"/d?key={quote(VALUE, safe='-_.~')}&x=1"
    # The base64 form of the value is masked, too.
    assert base64.b64encode(f"me:{VALUE}".encode()).decode() not in "".join(lines)


def test_a_host_of_secrets_is_not_asked_for_replies_that_cannot_be_masked(service):
    before = len(service.requests())
    run(service, secret("api.test:bearer"), """
        more = "Range: bytes=0-3\\r\\nAccept-Encoding: gzip\\r\\nAccept: text/plain\\r\\n"
        print(talk(secure("api.test"), get("/a", more=more))[0][0])
    """)
    asked = service.requests()[before]["headers"]
    assert asked["accept"] == "text/plain" and not {"range", "accept-encoding"} & {*asked}


def test_a_value_that_the_server_sends_in_two_pieces_is_masked(service):
    lines = run(service, secret("api.test:bearer"), """
        for size in (8, 20):
            sock = secure("api.test")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(get(f"/split/{size}", more=f"Authorization: Bearer {token}\\r\\n").encode())
            time.sleep(0.8)  # the client does not read: its reply waits in two pieces, too
            file = sock.makefile("rb")
            while file.readline().strip():
                pass
            print(file.read(30000 + len("Bearer ") + 31).strip(b"xy").decode())
    """)
    # Three bytes may be anything: they wait a short time only.
    for line in lines:
        assert line.startswith("Bearer ") and line.endswith("*" * (len(VALUE) - 3)), line
        assert VALUE[:4] not in line


def test_a_host_of_secrets_is_not_asked_in_a_disguise_either(service):
    before = len(service.requests())
    run(service, secret("api.test:bearer"), """
        more = "Accept_Encoding: gzip\\r\\nTE: gzip\\r\\nRANGE: bytes=0-3\\r\\nX-Kept: yes\\r\\n"
        print(talk(secure("api.test"), get("/a", more=more))[0][0])
    """)
    asked = service.requests()[before]["headers"]
    assert asked["x-kept"] == "yes" and not {"range", "te", "accept_encoding"} & {*asked}


def test_a_placeholder_in_any_other_place_is_refused(service):
    before = len(service.requests())
    lines = run(service, secret("api.test:bearer"), """
        bearer = f"Authorization: Bearer {token}\\r\\n"
        print(talk(dial("api.test", 80), get("/", more=bearer))[0])
        print(talk(secure("api.test"), get("/", more=f"X-Api-Key: {token}\\r\\n"))[0])
        print(talk(secure("api.test"), get(f"/?q={token}"))[0])
        print(talk(secure("api.test"), get(f"/{token}"))[0])
        print(talk(secure("api.test"), get("/", more=f"Cookie: {token}\\r\\n"))[0])
        print(talk(secure("api.test"), get("/", host="good.test", more=bearer))[0])
    """)
    assert lines[0] == "(403, 'cay: the secret TOKEN is sent over TLS only (https)')"
    assert all("(403, 'cay: the secret TOKEN is not allowed in this part" in line for line in lines[1:5])
    assert lines[5].startswith("(421, ")
    assert service.requests()[before:] == []


def test_other_hosts_get_the_placeholder_at_most(service):
    before = len(service.requests())
    lines = run(service, secret("api.test"), """
        import urllib.request
        bearer = f"Authorization: Bearer {token}\\r\\n"
        print(talk(dial("bad.test", 80), get("/", host="bad.test", more=bearer))[0][0])
        request = urllib.request.Request("https://api.test/redirect/bad.test/x",
                                         headers={"Authorization": f"Bearer {token}"})
        try:
            urllib.request.urlopen(request)
        except OSError as error:
            print(type(error.reason).__name__)
    """)
    # The second host is not opened, and its certificate not valid.
    assert lines == ["200", "SSLCertVerificationError"]
    other, redirect = service.requests()[before:]
    assert other["headers"]["authorization"].startswith("Bearer CAY_PLACEHOLDER_")
    assert redirect["headers"]["authorization"] == f"Bearer {VALUE}"


def test_a_host_whose_certificate_is_not_valid_gets_nothing(service):
    before = len(service.requests())
    lines = run(service, secret("bad.test"), """
        print(talk(secure("bad.test"), get("/", host="bad.test", more=f"Authorization: Bearer {token}\\r\\n"))[0])
    """)
    assert lines[0].startswith("(502, 'cay: no verified connection to bad.test: ")
    assert service.requests()[before:] == []


def test_bodies_are_not_changed_and_large_replies_arrive(service):
    lines = run(service, secret("api.test"), """
        data = token + "x" * 200000
        more = f"Content-Length: {len(data)}\\r\\nAuthorization: Bearer {token}\\r\\n"
        status, text = talk(secure("api.test"), get("/", method="POST", more=more) + data)[0]
        print(status, json.loads(text)["body"] == data)
    """)
    assert lines == ["200 True"]


JAVA = """
import java.io.*; import java.net.*; import java.security.*;
class Main {
    public static void main(String[] words) throws Exception {
        var link = (HttpURLConnection) new URL("https://api.test/java").openConnection();
        link.setRequestProperty("Authorization", "Bearer " + System.getenv("TOKEN"));
        System.out.println(link.getResponseCode());
        // Its checksum is right, as keytool checks it.
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(new FileInputStream("/etc/cay/cacerts"), "changeit".toCharArray());
        System.out.println(store.size() > 100);
    }
}
"""


# Installations that are inside as a whole; Debian's has a part in /etc.
JAVAS = [path for path in sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
         if (path.parents[1] / "conf/security/java.security").resolve().is_relative_to("/usr")]


@pytest.mark.long
@pytest.mark.skipif(not (JAVAS and Path("/etc/ssl/certs/java/cacerts").exists()),
                    reason="needs java with Debian's certificates")
def test_java_trusts_the_authority_of_the_sandbox(service):
    before = len(service.requests())
    lines = run(service, secret("api.test"), f"""
        import subprocess
        open("/tmp/Main.java", "w").write({JAVA!r})
        done = subprocess.run(["{JAVAS[-1]}", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "/tmp/Main.java"],
                              capture_output=True)
        print((done.stdout + done.stderr).decode())
    """)
    assert lines[:2] == ["200", "true"], lines
    assert service.requests()[before]["headers"]["authorization"] == f"Bearer {VALUE}"


FIND = """
import glob, os
needle = {needle!r}
found = []
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        if needle in open(path, "rb").read():
            found.append(path)
    except OSError:
        pass
for path in glob.glob("/proc/[0-9]*/maps"):
    try:
        memory = open(path[:-4] + "mem", "rb", 0)
        for line in open(path):
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if "r" not in line.split()[1] or "/" in line or "[v" in line:
                continue
            memory.seek(low)
            if int(path.split("/")[2]) != os.getpid() and needle in memory.read(high - low):
                found.append(path)
    except (OSError, OverflowError):
        pass
for top in ("/etc", "/home", "/tmp", "/run", "/var", "/root", "/dev/shm"):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if os.path.isfile(path) and needle in open(path, "rb").read():
                    found.append(path)
            except OSError:
                pass
print(found)
"""


def test_the_value_is_nowhere_inside_nor_in_the_records(service, create):
    created = create("--allow", "api.test", *secret("api.test"))
    call = PREPARE + 'print(talk(secure("api.test"), get("/", more=f"Authorization: Bearer {token}\\r\\n"))[0][0])'
    assert service.cay("exec", created, "--", "python3", "-c", call) == "200\n"
    # The needle is spelled in two halves, so that the search does not find itself.
    search = FIND.replace("{needle!r}", f"{VALUE[:9].encode()!r} + {VALUE[9:].encode()!r}")
    for user in ("user", "root"):
        out = service.cay("exec", "-u", user, created, "--", "python3", "-c", search)
        assert out == "[]\n"
    # The control: the same search finds a value that is there.
    service.cay("exec", created, "--", "sh", "-c", f"echo {VALUE} > /tmp/here")
    service.cay("exec", "-d", created, "--", "sh", "-c", f"x={VALUE}; sleep 1000; echo $x")
    out = service.cay("exec", created, "--", "python3", "-c", search)
    assert "/tmp/here" in out and "/cmdline" in out and "/maps" in out
    service.cay("exec", created, "--", "rm", "/tmp/here")
    for path in Path("/run/cay").glob(f"**/{created}*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path
    assert VALUE not in service.cay("inspect", created, "-o", "json")
    events = [json.loads(line) for line in service.cay("events", created, "-o", "json").splitlines()]
    assert ("request", "allow", "api.test", "secret TOKEN") in {
        (event["event"], event["verdict"], event["name"], event["rule"]) for event in events}
    for path, _ in [*processes("cay-net"), *processes("cay-net-tls"), *processes("cay-init")]:
        for name in ("environ", "cmdline"):
            try:
                assert VALUE.encode() not in (path / name).read_bytes()
            except OSError:
                continue


def test_checkpoints_snapshots_and_forks_have_no_value(home, service, create):
    created = create("--allow", "api.test", *secret("api.test"))
    call = PREPARE + 'print(talk(secure("api.test"), get("/", more=f"Authorization: Bearer {token}\\r\\n"))[0][0])'
    assert service.cay("exec", created, "--", "python3", "-c", call) == "200\n"
    # The control: what the search finds if it is there.
    service.cay("exec", created, "--", "sh", "-c", f"echo {VALUE[::-1]} > $HOME/control")
    service.cay("checkpoint", created)
    service.cay("snapshot", "create", created, "kept")
    fork = service.cay("fork", created).split()[-1]
    try:
        paths = [path for top in (home, Path("/run/cay")) for path in top.glob("**/*") if path.is_file()]
        found = {word for path in paths for word in (VALUE, VALUE[::-1]) if word.encode() in path.read_bytes()}
        assert found == {VALUE[::-1]}
        out = service.cay("exec", fork, "--", "sh", "-c", f"cat $HOME/control; env; grep -r {VALUE[:20]} / --include=* "
                          "--exclude-dir=proc --exclude-dir=sys --exclude-dir=usr -s || echo none")
        assert out.startswith(VALUE[::-1]) and out.endswith("none\n") and VALUE not in out
    finally:
        service.cay("kill", fork)


def test_the_process_that_has_the_values_is_confined_and_ends_with_the_sandbox(service, create):
    created = create("--allow", "api.test", *secret("api.test"))
    mine = [(path, pid) for path, pid in processes("cay-net-tls")
            if created in (path / "cgroup").read_text()]
    ((path, pid),) = mine
    status = dict(line.split(":\t", 1) for line in (path / "status").read_text().splitlines()
                  if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert status["CapEff"] == status["CapPrm"] == status["CapInh"] == "0" * 16
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    (init,) = [init for init, _ in processes("cay-init") if created in (init / "cgroup").read_text()]
    groups, expected = ({line.split(":")[1] for line in (each / "cgroup").read_text().splitlines()
                         if created in line} for each in (path, init))
    assert groups == expected and groups
    kinds = {os.readlink(fd).split(":")[0] for fd in (path / "fd").iterdir()}
    assert {kind for kind in kinds if kind.startswith("/")} <= {
        "/dev/null", "/etc/ssl/certs/ca-certificates.crt", str(service.base / "roots.pem")}
    service.cay("kill", created)
    from test_relay import wait_for_end
    wait_for_end(pid)


@pytest.mark.parametrize("words, message", [
    (["--allow", "api.test", "--secret", "TOKEN=" + VALUE], "none of env:, file: and stored:"),
    (["--allow", "api.test", "--secret", "TOKEN=env:NOT_SET", "--secret-for", "api.test"], "not set"),
    (["--allow", "api.test", "--secret", "TOKEN=file:/none", "--secret-for", "api.test"], "not found"),
    (["--allow", "api.test", *secret()], "for no host"),
    (["--allow", "api.test", *secret("other.test")], "no network rule allows"),
    (["--allow", "api.test", *secret("*.api.test")], "not a host name"),
    (["--allow", "api.test", *secret("api.test:body")], "unknown place"),
    (["--allow", "api.test", *secret("OTHER=api.test")], "no secret has this name"),
    (["--allow", "api.test", "--secret-for", "api.test"], "no secret is given"),
    (secret("api.test"), "secrets need a network with rules"),
    (["--network", "host", *secret("api.test")], "secrets need a network with rules"),
])
def test_options_that_make_no_sense_are_refused_without_the_value(service, words, message):
    done = cay(service, "run", *words, "--", "true")
    assert done.returncode == 125 and message.lower() in done.stderr.decode().lower(), done
    assert VALUE.encode() not in done.stderr


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CAY_HOME", str(tmp_path))
    return tmp_path


def store(name, value, *words):
    return subprocess.run([CAY, "secret", *words, "set", name], input=value.encode(), capture_output=True,
                          timeout=PATIENCE)


def listed(*words):
    done = subprocess.run([CAY, "secret", "-o", "json", *words, "ls"], capture_output=True, timeout=PATIENCE,
                          check=True)
    return [(row["name"], row["tenant"], row["version"]) for row in json.loads(done.stdout)["secrets"]]


def test_stored_secrets_are_sealed_for_each_tenant(home):
    other = "the-value-of-another-tenant"
    assert store("api-key", VALUE + "\n").returncode == 0
    assert store("API-Key", VALUE + "2").returncode == 0  # replaces it
    assert store("api-key", other, "--tenant", "alice").returncode == 0
    assert listed() == [("api-key", "alice", 1), ("api-key", "default", 2)]
    assert listed("--tenant", "alice") == [("api-key", "alice", 1)]
    assert sorted(path.name for path in home.iterdir()) == ["serve.db", "serve.key"]
    for path in home.iterdir():
        data = path.read_bytes()
        assert VALUE.encode() not in data and other.encode() not in data, path
        assert path.stat().st_mode & 0o077 == 0
    printed = subprocess.run([CAY, "secret", "give", "api-key"], stdout=(home / "out").open("w"),
                             stderr=subprocess.PIPE, timeout=PATIENCE)
    assert b"values are not printed" in printed.stderr and (home / "out").read_text() == ""
    assert subprocess.run([CAY, "secret", "rm", "api-key"], timeout=PATIENCE).returncode == 0
    assert listed() == [("api-key", "alice", 1)]


@pytest.mark.parametrize("name, value, message", [
    ("key", "tiny", "too short, too long or not text"),
    ("key", "x" * 4097, "too long or not text"),
    ("key", "two\nlines of text", "not text"),
    ("sec_key", VALUE, "invalid name"),
    ("a b", VALUE, "invalid name"),
    ("x" * 129, VALUE, "invalid name"),
])
def test_values_and_names_that_cannot_be_stored_are_refused(home, name, value, message):
    done = store(name, value)
    assert done.returncode != 0 and message in done.stderr.decode(), done
    assert value.encode() not in done.stderr and listed() == []


def test_a_stored_secret_opens_with_its_own_key_and_row_only(home, service):
    assert store("one", VALUE).returncode == store("two", VALUE[::-1]).returncode == 0

    def use(name):
        return cay(service, "run", "--allow", "api.test", "--secret", f"TOKEN=stored:{name}", "--secret-for",
                   "api.test", "--", "python3", "-c", PREPARE +
                   'print(talk(secure("api.test"), get("/", more=f"Authorization: Bearer {token}\\r\\n"))[0][0])')

    assert use("one").stdout == b"200\n"
    assert service.requests()[-1]["headers"]["authorization"] == "Bearer " + VALUE
    assert use("default/one").stdout == b"200\n"
    for name in ("three", "alice/one"):
        done = use(name)
        assert done.returncode == 125 and b"cannot be read" in done.stderr, done
    # A value that was moved to another row, and a store with another key.
    with contextlib.closing(sqlite3.connect(home / "serve.db")) as db, db:
        db.execute("UPDATE secrets SET value = (SELECT value FROM secrets WHERE name = 'two') WHERE name = 'one'")
    assert b"sealed with another key" in use("one").stderr
    assert use("two").stdout == b"200\n"
    (home / "serve.key").unlink()
    done = use("two")
    assert done.returncode == 125 and b"sealed with another key" in done.stderr
    assert VALUE[::-1].encode() not in done.stderr


CONFIG = """
type: native
allow: [api.test]
secrets: {{TOKEN: "{source}"}}
secrets_for: ["{host}"]
"""


@pytest.mark.parametrize("source", ["env:TEST_TOKEN", "file:{}"])
def test_a_configuration_refers_to_secrets(service, tmp_path, source):
    (tmp_path / "value").write_text(VALUE + "\n")
    config = tmp_path / "cay.yaml"
    config.write_text(CONFIG.format(source=source.format(tmp_path / "value"), host="TOKEN=api.test:bearer"))
    done = cay(service, "run", "--config", config, "--", "python3", "-c", PREPARE +
               'print(talk(secure("api.test"), get("/", more=f"Authorization: Bearer {token}\\r\\n"))[0][0])')
    assert done.stdout == b"200\n", done
    assert service.requests()[-1]["headers"]["authorization"] == "Bearer " + VALUE
    shown = cay(service, "config", "show", config)
    assert VALUE.encode() not in shown.stdout + shown.stderr


@pytest.mark.parametrize("source, host, message", [
    (VALUE, "TOKEN=api.test", "neither env: nor file:"), ("env:NOT_SET", "TOKEN=api.test", "not set"),
    ("file:/none", "TOKEN=api.test", "not found"), ("env:TEST_TOKEN", "api.test", "names no secret"),
    ("env:TEST_TOKEN", "OTHER=api.test", "names no secret"),
    ("env:TEST_TOKEN", "TOKEN=other.test", "no network rule allows")])
def test_a_configuration_with_invalid_secrets_is_refused_without_the_value(service, tmp_path, source, host,
                                                                          message):
    config = tmp_path / "cay.yaml"
    config.write_text(CONFIG.format(source=source, host=host))
    done = cay(service, "run", "--config", config, "--", "true")
    assert done.returncode == 125 and message.lower() in done.stderr.decode().lower(), done
    assert VALUE.encode() not in done.stderr


def test_secrets_come_from_files_and_each_has_its_hosts(service, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(VALUE + "\n")
    second.write_text("another-value-of-the-tests")
    before = len(service.requests())
    done = cay(service, "run", "--allow", "api.test", "--allow", "good.test",
               "--secret", f"TOKEN=file:{first}", "--secret", f"KEY=file:{second}",
               "--secret-for", "TOKEN=api.test", "--secret-for", "KEY=api.test:header=x-key",
               "--secret-for", "KEY=good.test", "--", "python3", "-c", PREPARE + textwrap.dedent("""
        more = f"Authorization: Bearer {token}\\r\\nX-Key: {os.environ['KEY']}\\r\\n"
        print(talk(secure("api.test"), get("/", more=more))[0][0])
        print(talk(secure("api.test"), get("/", more=f"Authorization: Bearer {os.environ['KEY']}\\r\\n"))[0][0])
    """))
    assert done.stdout == b"200\n403\n", done
    (seen,) = service.requests()[before:]
    assert seen["headers"]["authorization"] == f"Bearer {VALUE}"
    assert seen["headers"]["x-key"] == "another-value-of-the-tests"


CLIENTS = {
    "curl": 'curl -s -H "Authorization: Bearer $TOKEN" https://api.test/x',
    "node": "node -e \"fetch('https://api.test/x', {headers: {authorization: 'Bearer ' + process.env.TOKEN}})"
            ".then(r => r.text()).then(console.log)\"",
    "python3": "python3 -c \"import os, urllib.request as r; print(r.urlopen(r.Request('https://api.test/x',"
               " headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})).read().decode())\"",
    "git": 'git -c http.extraHeader="Authorization: Bearer $TOKEN" ls-remote https://api.test/x; echo 200',
}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_use_the_secret_unmodified(service, client):
    before = len(service.requests())
    done = cay(service, "run", "--allow", "api.test", *secret("api.test"), "--", "sh", "-c",
               f"command -v {client} >/dev/null || {{ echo none; exit; }}; {CLIENTS[client]}")
    if done.stdout == b"none\n":
        pytest.skip(f"no {client}")
    assert VALUE.encode() not in done.stdout + done.stderr
    seen = service.requests()[before:]
    assert seen and seen[0]["headers"]["authorization"] == f"Bearer {VALUE}", done


CALL = 'print(talk(secure("api.test"), get("/", more=f"Authorization: Bearer {token}\\r\\n"))[0][0])'


def test_an_ordinary_user_has_secrets_too(service):
    uid = 54321
    folder = Path(tempfile.mkdtemp())
    (folder / "run").mkdir()
    copy_command(folder)
    for path in (folder, *folder.iterdir()):
        os.chown(path, uid, uid)
    before = len(service.requests())
    try:
        done = subprocess.run(
            service.command("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", folder / "cay", "run",
                            "-q", "--allow", "api.test", *secret("api.test"), "--", "python3", "-c",
                            PREPARE + CALL),
            capture_output=True, timeout=PATIENCE, cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TEST_TOKEN": VALUE,
                 "XDG_RUNTIME_DIR": str(folder / "run")})
    finally:
        shutil.rmtree(folder)
    assert done.stdout == b"200\n", done
    assert service.requests()[before]["headers"]["authorization"] == f"Bearer {VALUE}"


def test_a_template_with_its_own_certificates_trusts_the_authority(service):
    before = len(service.requests())
    lines = run(service, [*secret("api.test"), "--template", "base"], CALL)
    assert lines == ["200"]
    assert service.requests()[before]["headers"]["authorization"] == f"Bearer {VALUE}"
