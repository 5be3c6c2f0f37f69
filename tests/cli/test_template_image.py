# SPDX-License-Identifier: Apache-2.0
"""cay template create --from IMAGE: layouts, archives, and a registry of the test's own."""

import http.server
import json
import os
import subprocess
import threading

import pytest
from conftest import CAY, PATIENCE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

IMAGE = os.path.join(os.path.dirname(__file__), "../sandbox/make-image")


@pytest.fixture
def cay(tmp_path, monkeypatch):
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))

    def run(*words, status=0):
        done = subprocess.run([CAY, *map(str, words)], cwd=tmp_path, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        assert done.returncode == status, done
        return done.stdout if status == 0 else done.stderr
    return run


def make(kind, path):
    subprocess.run([IMAGE, kind, str(path)], check=True, timeout=PATIENCE)
    return path


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Serves an OCI layout as 127.0.0.1:PORT/team/tiny; its answers can be changed."""
    layout = make("oci-directory", tmp_path / "layout")
    top = json.loads((layout / "index.json").read_text())["manifests"][0]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            digest = top["digest"] if self.path.endswith("/tiny/manifests/1") else self.path.rsplit("/", 1)[1]
            blob = layout / "blobs" / "sha256" / digest.removeprefix("sha256:")
            found = self.path == "/v2/" or (digest.startswith("sha256:") and blob.exists())
            body = blob.read_bytes() if found and self.path != "/v2/" else b"{}"
            self.send_response(200 if found else 404)
            if "/manifests/" in self.path and found:
                kind = "index" if "manifests" in json.loads(body) else "manifest"
                self.send_header("Content-Type", f"application/vnd.oci.image.{kind}.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = f"127.0.0.1:{server.server_port}"
        config = tmp_path / ".config" / "containers" / "registries.conf"
        config.parent.mkdir(parents=True)
        config.write_text(f'[[registry]]\nlocation = "{place}"\ninsecure = true\n')
        monkeypatch.setenv("HOME", str(tmp_path))
        yield place, layout
        server.shutdown()
        thread.join()


def test_layouts_and_archives_are_named_by_their_kind(cay, tmp_path):
    sources = [f"oci:{make('oci-directory', tmp_path / 'layout')}",
               f"oci-archive:{make('oci-tar', tmp_path / 'layout.tar')}",
               f"docker-archive:{make('saved', tmp_path / 'saved.tar')}"]
    for number, source in enumerate(sources):
        cay("template", "create", f"tiny:{number}", "--from", source)
        assert cay("run", "--template", f"tiny:{number}", "--", "cat", "/srv/new") == "new\n"
    names = [one["source"] for one in json.loads(cay("template", "ls", "-o", "json"))["templates"]]
    assert names == ["builtin", "builtin", "image", "image", "image"]
    index = tmp_path / "layout" / "index.json"
    text = json.loads(index.read_text())
    text["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    index.write_text(json.dumps(text))
    cay("template", "create", "tagged", "--from", f"oci:{tmp_path}/layout:v1")
    assert "no image with this tag" in cay("template", "create", "other", "--from",
                                           f"oci:{tmp_path}/layout:v2", status=4)


def test_an_image_of_a_registry_is_downloaded(cay, registry):
    place, layout = registry
    for number, name in enumerate([f"{place}/team/tiny:1", f"docker://{place}/team/tiny:1"]):
        cay("template", "create", f"tiny:{number}", "--from", name)
        assert cay("run", "--template", f"tiny:{number}", "--", "cat", "/srv/new") == "new\n"
    home = os.environ["CAY_HOME"]
    assert sorted(os.listdir(f"{home}/templates/tiny:0")) == ["info", "root"]
    told = cay("template", "create", "none", "--from", f"{place}/team/missing:1", status=13)
    assert "could not be downloaded" in told and "skopeo: " in told
    largest = max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1] + b"x")
    cay("template", "create", "none", "--from", f"{place}/team/tiny:1", status=13)
    assert sorted(os.listdir(f"{home}/templates")) == ["tiny:0", "tiny:1"]


def test_inspect_prints_the_configuration_of_the_image(cay, tmp_path):
    cay("template", "create", "tiny", "--from", f"oci-archive:{make('oci-tar', tmp_path / 'layout.tar')}")
    told = json.loads(cay("template", "inspect", "tiny:latest"))
    assert told["name"] == "tiny" and told["source"] == "image" and told["user"] == "33:33"
    assert told["config"] == {"User": "33:33", "WorkingDir": "/srv",
                              "Env": ["FROM_IMAGE=yes", "PATH=/bin:/from-image"]}
    (tmp_path / "Dockerfile").write_text(
        'FROM tiny\nCMD ["sh"]\nEXPOSE 80\nLABEL a="\u00e9\\"" b=2\nHEALTHCHECK --interval=5s CMD true\n')
    cay("build", "-t", "app", ".")
    config = json.loads(cay("template", "inspect", "app"))["config"]
    assert config["Cmd"] == ["sh"] and config["ExposedPorts"] == {"80/tcp": {}}
    assert config["Labels"] == {"a": 'é"', "b": "2"} and config["User"] == "33:33"
    assert config["Healthcheck"] == {"Test": ["CMD-SHELL", "true"], "Interval": 5000000000}
    assert json.loads(cay("template", "inspect", "host")) == {
        "name": "host", "source": "builtin", "from": "", "created_ms": 0, "bytes": 0, "user": "",
        "workdir": "", "config": {}}
    assert "there is no such template" in cay("template", "inspect", "none", status=4)
    assert "invalid template name" in cay("template", "inspect", "../x", status=2)


def test_a_build_downloads_images_if_it_may(cay, registry, tmp_path):
    place, layout = registry
    (tmp_path / "Dockerfile").write_text(f"FROM {place}/team/tiny:1\nRUN cat /srv/new\n")
    assert "or pass --pull" in cay("build", ".", status=4)
    done = subprocess.run([CAY, "build", "--pull", "-t", "app", "."], cwd=tmp_path, capture_output=True,
                          text=True, timeout=PATIENCE, check=True)
    assert done.stderr == f"downloading {place}/team/tiny:1\n[1/1] RUN cat /srv/new\nnew\n"
    name = f"{place.replace(':', '_')}_team_tiny:1"
    assert sorted(cay("template", "ls", "-q").split()) == sorted(["host", "base", name, "app"])
    (tmp_path / "Dockerfile").write_text(f"FROM {place}/team/tiny:1\nCOPY --from={place}/team_tiny:1 / /\n")
    assert "is of another source" in cay("build", ".", status=6)
    digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    (tmp_path / "Dockerfile").write_text(f"FROM {place}/team/tiny@{digest}\n")
    cay("build", "--pull", "-q", "-t", "pinned", ".")
    assert f"{place.replace(':', '_')}_team_tiny:{digest[7:23]}" in cay("template", "ls", "-q").split()
    (tmp_path / "Dockerfile").write_text(f"FROM {place}/team/missing:1\n")
    assert "could not be downloaded" in cay("build", "--pull", ".", status=13)


def test_an_image_without_skopeo_or_a_network_names_what_is_missing(cay, tmp_path):
    """In a mount and a network namespace of its own, where skopeo is another program."""
    def told(program, name):
        done = subprocess.run(
            ["unshare", "-mn", "sh", "-c", 'mount --bind "$0" /usr/bin/skopeo && exec "$@"', program,
             CAY, "template", "create", "x", "--from", name],
            capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 13, done
        return done.stderr

    assert "skopeo, which downloads images, is not installed (apt-get install skopeo; " in told(
        "/dev/null", "python:3")
    unreachable = told("/usr/bin/skopeo", "192.0.2.1:5000/python:3")
    assert "the registry cannot be reached (" in unreachable
    assert "docker-archive:FILE" in unreachable and "network is unreachable" in unreachable
    spy = tmp_path / "skopeo"
    spy.write_text("#!/bin/sh\necho $@\nexit 1\n")
    spy.chmod(0o755)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    assert f"--override-os linux --override-arch {arch} copy --quiet docker://python:3 oci:" in told(
        spy, "python:3")


def test_a_name_that_is_no_image_is_refused(cay):
    for name in ("--policy", "a b", "/etc", "docker://", "oci:", "./x"):
        assert "invalid name of an image" in cay("template", "create", "x", f"--from={name}", status=2)
