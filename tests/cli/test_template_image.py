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


def test_a_name_that_is_no_image_is_refused(cay):
    for name in ("--policy", "a b", "/etc", "docker://", "oci:", "./x"):
        assert "invalid name of an image" in cay("template", "create", "x", f"--from={name}", status=2)
