# SPDX-License-Identifier: Apache-2.0
"""What package/finish adds to the packages: checksums, a list of libraries, a signature."""

import gzip
import io
import json
import os
import re
import subprocess
import tarfile

import pytest
from conftest import ROOT


STATUS = """Package: libexample1
Architecture: amd64
Version: 1:2.0-3
Description: an example
 Version: of another

Package: example-data
Architecture: all
Version: 4
"""


def listed(name):
    """The names and versions in a file of package/."""
    lines = (ROOT / "package" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if not line.startswith("#"))


def pack(files, **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def dist(tmp_path):
    tmp_path /= "dist"
    tmp_path.mkdir()
    for name in ("cay_1_amd64.deb", "cay-1-py3-none-any.whl", "cay-1.tar.gz"):
        (tmp_path / name).write_text(name)
    layer = gzip.compress(pack({"var/lib/dpkg/status": STATUS.encode()}))
    manifest = json.dumps([{"Config": "config", "Layers": ["layer"]}]).encode()
    (tmp_path / "cay-1-image-x86_64.tar").write_bytes(
        pack({"manifest.json": manifest, "layer": layer}))
    return tmp_path


def finish(dist, *key):
    subprocess.run([ROOT / "package/finish", dist, *key], check=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})


def test_checksums_name_every_file_and_are_the_same_each_time(dist):
    finish(dist)
    first = (dist / "SHA256SUMS").read_bytes()
    finish(dist)
    assert (dist / "SHA256SUMS").read_bytes() == first
    assert first.count(b"\n") == 5
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    assert not (dist / "SHA256SUMS.sig").exists()


def test_the_list_of_libraries_has_those_that_are_linked(dist):
    finish(dist)
    document = json.loads((dist / "sbom.cdx.json").read_text(encoding="utf-8"))
    found = {each["name"]: each["version"] for each in document["components"]
             if each["type"] == "library"}
    linked = {}
    for name in ("sources", "toolchain", "vendored"):
        linked |= listed(name)
    assert found == linked | {"libexample1": "1:2.0-3", "example-data": "4"}
    assert {"musl", "zig", "@xterm/xterm"} <= set(linked)
    assert "pkg:npm/%40xterm/xterm@" in {each["purl"].rstrip("0123456789.")
                                         for each in document["components"] if "purl" in each}
    depends = {each["ref"]: set(each["dependsOn"]) for each in document["dependencies"]}
    image = depends["cay-1-image-x86_64.tar"]
    assert image - depends["cay-1-py3-none-any.whl"] == {
        "pkg:deb/debian/libexample1@1%3A2.0-3?arch=amd64", "pkg:deb/debian/example-data@4?arch=all"}
    assert depends["cay"] <= image
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_the_list_of_vendored_packages_is_that_of_their_licenses():
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("data/*/vendor/LICENSE")]
    named = {name for text in texts for name in re.findall(r"^--- (\S+) ---$", text, re.M)}
    vendored = listed("vendored")
    assert set(vendored) == named
    for name, version in vendored.items():
        assert any(name in text and version in text for text in texts), name


def test_the_lines_of_the_page_verify_until_something_changes(dist):
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8").split("\n## Verify\n")[1]
    lines = re.search(r"^```sh\n(.*?)^```$", page, re.M | re.S)[1].splitlines()
    key, public = dist / "../key.pem", dist / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    finish(dist, key)

    def verify():
        return [subprocess.run(["sh", "-c", line], cwd=dist, capture_output=True,
                               check=False).returncode == 0 for line in lines]
    assert verify() == [True, True]
    (dist / "cay-1.tar.gz").write_text("other")
    assert verify() == [True, False]
    finish(dist)
    assert verify() == [False, True]
