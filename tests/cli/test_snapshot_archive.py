# SPDX-License-Identifier: Apache-2.0
"""cay snapshot export and import: what an archive has, and what of one is refused."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile

import pytest
from conftest import CAY, PATIENCE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

IMAGE = os.path.join(os.path.dirname(__file__), "../sandbox/make-image")
CHANGES = """
rm /etc/issue; rm -r /srv; mkdir -p /srv /data/new; echo one > /data/new/file
chmod 4751 /data/new/file; chown 1000:7 /data/new/file; chmod 4751 /data/new/file
ln /data/new/file /data/hard; ln -s new/file /data/soft; chown -h 5:6 /data/soft; chmod 1777 /data
mkdir -p /long/$(printf %0120d 1)/$(printf %0120d 2); touch -d '2001-02-03 04:05:06' /data /long
head -c 200000 /dev/zero > /data/zeros; touch "/data/new
line"; mkfifo /data/fifo
"""
LOOK = """find / -xdev -path /proc -prune -o -path /sys -prune -o -path /dev -prune -o -path /tmp -prune \\
    -o -path /run -prune -o ! -type p ! -type d -print |
sort | while IFS= read -r file; do stat -c '%n %f %u %g %s' "$file"; done
stat -c '%n %f %u %g %Y' /data /long; stat -c '%n %f %u %g' / /srv; readlink /data/soft; cat /data/hard
test /data/hard -ef /data/new/file && echo linked; ls /srv; cat /etc/issue"""


class Cay:
    def __init__(self, folder):
        self.folder = folder

    def run(self, *words, **more):
        return subprocess.run([CAY, *map(str, words)], cwd=self.folder, capture_output=True,
                              timeout=PATIENCE, check=False,
                              env=os.environ | {"CAY_HOME": str(self.folder / "home")}, **more)

    def __call__(self, *words, **more):
        done = self.run(*words, **more)
        assert done.returncode == 0, done
        return done.stdout.decode()

    def fails(self, *words, **more):
        done = self.run(*words, **more)
        assert done.returncode > 0 and not done.stdout, done
        return done.stderr.decode()

    def look(self, *words):
        return self("run", *words, "--user", "root", "--", "sh", "-c", LOOK + " 2>&1; true")

    def stored(self):
        places = [self.folder / "home" / name for name in ("templates", "layers")]
        return sorted(str(x) for place in places if place.exists() for x in place.iterdir())


@pytest.fixture(scope="module")
def cay(tmp_path_factory):
    """Its store has the snapshot "s:1", above a template of two layers; "s.tar" is its archive."""
    folder = tmp_path_factory.mktemp("archive")
    cay = Cay(folder)
    subprocess.run([IMAGE, "oci-tar", str(folder / "image.tar")], check=True, timeout=PATIENCE)
    cay("template", "create", "tiny", "--from", f"oci-archive:{folder / 'image.tar'}")
    store(cay, ("--template", "tiny"), CHANGES, "s:1")
    cay("snapshot", "export", "s:1", "s.tar")
    return cay


def store(cay, options, script, name):
    sandbox = cay("create", *options).strip()
    try:
        cay("exec", "--user", "root", sandbox, "--", "sh", "-c", script)
        cay("snapshot", "create", sandbox, name)
    finally:
        cay("kill", sandbox)


def read(path):
    """{name: bytes} of an archive."""
    with tarfile.open(path) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}


def write(files, path):
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def parts(files):
    """The manifest and the configuration."""
    def blob(one):
        return json.loads(files["blobs/sha256/" + one["digest"].removeprefix("sha256:")])
    manifest = blob(json.loads(files["index.json"])["manifests"][0])
    return manifest, blob(manifest["config"])


def rebuilt(files, change=lambda config: None, layers=lambda layers: layers):
    """The same with another configuration and other layers; all digests are right."""
    manifest, config = parts(files)
    tars = layers([files["blobs/sha256/" + one["digest"].removeprefix("sha256:")]
                   for one in manifest["layers"]])
    out = {"oci-layout": files["oci-layout"]}

    def blob(data, **more):
        digest = hashlib.sha256(data).hexdigest()
        out["blobs/sha256/" + digest] = data
        return {"digest": "sha256:" + digest, "size": len(data), **more}

    manifest["layers"] = [blob(data, mediaType=manifest["layers"][0]["mediaType"]) for data in tars]
    config["rootfs"]["diff_ids"] = [one["digest"] for one in manifest["layers"]]
    change(config)
    manifest["config"].update(blob(json.dumps(config).encode()))
    index = json.loads(files["index.json"])
    index["manifests"][0].update(blob(json.dumps(manifest).encode()))
    out["index.json"] = json.dumps(index).encode()
    return out


def layer(*entries):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            if kind == tarfile.SYMTYPE:
                info.linkname, data = data, b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def test_an_imported_snapshot_has_the_same_files(cay):
    before = cay.look("--from", "s:1")
    assert "linked" in before and "/data/new/file 89e9 1000 7 4\n" in before and "fifo" not in before
    assert "/data/soft a1ff 5 6" in before and "issue': No such" in before
    info = json.loads(cay("snapshot", "inspect", "s:1"))
    cay("snapshot", "rm", "s:1")
    if "tiny" in cay("template", "ls", "-q").split():
        cay("template", "rm", "tiny")
    before_import = cay.stored()
    assert cay("snapshot", "import", "s.tar") == "s:1\n"
    again = json.loads(cay("snapshot", "inspect", "s:1"))
    for key in ("name", "sandbox", "template", "user", "workdir"):
        assert again[key] == info[key]
    assert cay.look("--from", "s:1") == before
    # Another name, from a pipe, compressed; and from that a second time.
    packed = gzip.compress((cay.folder / "s.tar").read_bytes())
    assert cay("snapshot", "import", "-", "t", input=packed) == ""
    assert cay.look("--from", "t", "--storage", "disk") == before
    cay("snapshot", "export", "t", "t.tar")
    first, second = (parts(read(cay.folder / name)) for name in ("s.tar", "t.tar"))
    assert first[0]["layers"][-1] == second[0]["layers"][-1]
    assert first[1]["config"] == second[1]["config"]
    cay("snapshot", "rm", "t", "s:1")
    assert cay.stored() == before_import
    cay("snapshot", "import", "s.tar")


def without_times(text):
    """Of directories, which templates do not keep."""
    return [line for line in text.splitlines() if not line.startswith(("/data 4", "/long 4"))]


def test_an_archive_is_an_image_in_the_same_bytes_each_time(cay):
    path = cay.folder / "again.tar"
    cay("snapshot", "export", "s:1", path)
    assert cay.run("snapshot", "export", "s:1", "-").stdout == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    files = read(path)
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(data).hexdigest() == name.rsplit("/", 1)[1]
    manifest, config = parts(files)
    assert len(manifest["layers"]) == 3
    assert config["rootfs"]["diff_ids"] == [one["digest"] for one in manifest["layers"]]
    own = files["blobs/sha256/" + manifest["layers"][-1]["digest"].removeprefix("sha256:")]
    with tarfile.open(fileobj=io.BytesIO(own)) as archive:
        names = archive.getnames()
    assert "etc/.wh.issue" in names and "srv/.wh..wh..opq" in names and "data/fifo" not in names
    cay("template", "create", "whole", "--from", f"oci-archive:{path}")
    assert without_times(cay.look("--template", "whole")) == without_times(cay.look("--from", "s:1"))
    cay("template", "rm", "whole")
    if shutil.which("skopeo"):
        done = subprocess.run(["skopeo", "inspect", f"oci-archive:{path}"], check=True,
                              capture_output=True, timeout=PATIENCE)
        assert json.loads(done.stdout)["Layers"] == [x["digest"] for x in manifest["layers"]]


def test_an_archive_of_base_has_only_what_differs(cay):
    store(cay, ("--template", "base"),
          "echo x > /usr/local/new; rm /usr/bin/cut; rm /etc/shells; echo y > /srv/y", "b")
    cay("snapshot", "export", "b", "b.tar")
    assert (cay.folder / "b.tar").stat().st_size < 1 << 20
    cay("snapshot", "rm", "b")
    assert "cay snapshot import" in cay.fails("template", "create", "t", "--from",
                                        f"oci-archive:{cay.folder}/b.tar")
    cay("snapshot", "import", "b.tar")
    assert cay("run", "--from", "b", "--", "sh", "-c", "cat /usr/local/new /srv/y; ls /usr/bin/cut "
               "/etc/shells 2>/dev/null; ls -d /usr/bin/env") == "x\ny\n/usr/bin/env\n"
    cay("snapshot", "rm", "b")


def test_a_built_template_is_exported_and_becomes_a_snapshot(cay):
    show = ("--", "sh", "-c", "cat /made; id -u; pwd; echo $COLOR")
    cay("template", "create", "small", "--from", f"oci-archive:{cay.folder / 'image.tar'}")
    (cay.folder / "context").mkdir()
    (cay.folder / "context" / "Dockerfile").write_text(
        "FROM small\nUSER root\nENV COLOR=blue\nLABEL cay.snapshot.base=host kept=yes\nRUN echo x > /made\nWORKDIR /srv/deep\nUSER 1000\n")
    cay("build", "-t", "built", "context")
    cay("snapshot", "export", "built", "built.tar")
    labels = parts(read(cay.folder / "built.tar"))[1]["config"]["Labels"]
    assert labels["kept"] == "yes" and "cay.snapshot.base" not in labels
    before = cay("run", "--template", "built", *show)
    cay("template", "rm", "built", "small")
    cay("snapshot", "import", "built.tar", "again")
    assert cay("run", "--from", "again", *show) == before == "x\n1000\n/srv/deep\nblue\n"
    cay("snapshot", "rm", "again")


def test_a_part_that_does_not_match_its_digest_is_refused(cay):
    files, before = read(cay.folder / "s.tar"), cay.stored()
    for name in [x for x in files if x.startswith("blobs/")]:
        data = files[name]
        for changed in (data[:-1] + bytes([data[-1] ^ 1]), data + b"\0", None):
            other = {x: y for x, y in files.items() if x != name}
            if changed is not None:
                other[name] = changed
            error = cay.fails("snapshot", "import", write(other, cay.folder / "x.tar"), "x")
            assert "does not match its digest" in error or "missing" in error, error
    # The layers match their digests, and the configuration is of others.
    wrong = rebuilt(files, lambda config: config["rootfs"]["diff_ids"].reverse())
    assert "diff_id" in cay.fails("snapshot", "import", write(wrong, cay.folder / "x.tar"), "x")
    assert cay.stored() == before


def test_what_is_not_an_archive_of_a_snapshot_is_refused(cay):
    files, before = read(cay.folder / "s.tar"), cay.stored()

    def refused(words, change):
        write(rebuilt(files, change), cay.folder / "x.tar")
        assert words in cay.fails("snapshot", "import", "x.tar", "x")

    def labels(**other):
        def change(config):
            names = {"base": "cay.snapshot.base", "template": "cay.snapshot.template"}
            for key, value in other.items():
                config["config"]["Labels"][names[key]] = value
        return change

    whole = (cay.folder / "s.tar").read_bytes()
    refused("no snapshot", lambda config: config.update(config={}))
    refused("no snapshot", labels(base="../../tiny"))
    refused("too few or too many layers", labels(base="host"))
    refused("too few or too many layers", labels(base="base"))
    assert "no snapshot" in cay.fails("snapshot", "import", "image.tar", "x")
    assert "not a tar archive" in cay.fails("snapshot", "import", "-", "x", input=b"text\n" * 99)
    assert "damaged" in cay.fails("snapshot", "import", "-", "x", input=whole[:9000])
    assert "exists" in cay.fails("snapshot", "import", "s.tar")
    assert "invalid template name" in cay.fails("snapshot", "import", "s.tar", "a/b")
    assert "exists" in cay.fails("snapshot", "export", "s:1", "s.tar")
    assert "no such snapshot" in cay.fails("snapshot", "export", "tiny", "y.tar")
    assert not (cay.folder / "y.tar").exists() and cay.stored() == before


def test_a_hostile_layer_stays_in_its_snapshot(cay):
    folder, file, link = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE
    canary = cay.folder / "canary"
    canary.mkdir()
    (canary / "hosts").write_text("alive\n")
    files = read(cay.folder / "s.tar")

    def outcome(*entries):
        change = rebuilt(files, layers=lambda layers: [*layers[:-1], layer(*entries)])
        write(change, cay.folder / "x.tar")
        done = cay.run("snapshot", "import", "x.tar", "x")
        assert (canary / "hosts").read_text() == "alive\n" and os.listdir(canary) == ["hosts"]
        return done.returncode, done.stderr.decode()

    for entries, words in [
        ([("out", link, str(canary)), ("out/new", file, b"x")], "leads through a link"),
        ([("out", link, str(canary)), ("out/.wh.hosts", file, b"")], "does not have"),
        ([("none/.wh.file", file, b"")], "does not have"),
        ([("etc", folder, b""), ("etc/.wh...", file, b"")], "invalid name"),
        ([("../x", file, b"")], "climbs out"),
    ]:
        status, error = outcome(*entries)
        assert status > 0 and words in error, error
    # A file is above its own whiteout, a directory opaque with one; Cay writes etc/hosts anew.
    status, error = outcome(
        ("etc", folder, b""), ("etc/.wh.motd", file, b""), ("etc/motd", file, b"own\n"),
        ("etc/hosts", link, str(canary / "hosts")), ("srv", folder, b""), (".wh.srv", file, b""),
        ("bin", folder, b""), ("bin/.wh.wc", file, b""), ("bin/.wh.wc", file, b""))
    assert (status, error) == (0, "")
    assert cay("run", "--from", "x", "--user", "root", "--", "sh", "-c",
               "cat /etc/motd; ls -A /srv; ls /bin/wc 2>/dev/null; ls /bin/sh") == "own\n/bin/sh\n"
    assert (canary / "hosts").read_text() == "alive\n"
    cay("snapshot", "rm", "x")


def test_a_name_that_an_archive_cannot_have_is_refused(cay):
    store(cay, ("--from", "s:1"), "touch /data/.wh.x", "w")
    assert "data/.wh.x" in cay.fails("snapshot", "export", "w", "w.tar")
    assert not (cay.folder / "w.tar").exists()
    cay("snapshot", "rm", "w")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([CAY, "snapshot", "export", "s:1", "-"], stdout=full, check=False,
                              stderr=subprocess.PIPE, timeout=PATIENCE,
                              env=os.environ | {"CAY_HOME": str(cay.folder / "home")})
    assert done.returncode > 0 and b"space" in done.stderr
