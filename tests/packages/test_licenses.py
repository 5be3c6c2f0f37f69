# SPDX-License-Identifier: Apache-2.0
"""The licences of the libraries that are linked into the programs, and of the scripts that the
dashboard has from others, are beside them."""

import tarfile
import zipfile

import pytest
from conftest import PACKAGES, ROOT

LINKED = {line.split()[0] for line in
          (ROOT / "package" / "sources").read_text(encoding="utf-8").splitlines()
          if not line.startswith("#")} | {"musl", "zig"}
VENDORED = {f"{path.parents[1].name}-vendor" for path in ROOT.glob("data/*/vendor/LICENSE")}
TEXTS = {"LGPL-2.1", "LGPL-3", "GPL-2", "GPL-3"}  # which Debian's files only name
FILES = sorted([*PACKAGES.glob("cay-*.whl"), *PACKAGES.glob("cay-*-linux-*.tar.gz")])


def names(path):
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    with tarfile.open(path) as archive:
        return archive.getnames()


def test_there_are_packages():
    assert FILES, "run `make packages`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_linked_library_has_its_license(path):
    folder = ".dist-info/licenses/" if path.suffix == ".whl" else "/share/doc/cay/licenses/"
    found = {name.rpartition("/")[2] for name in names(path) if folder in name}
    assert VENDORED and LINKED | TEXTS | VENDORED <= found
