# SPDX-License-Identifier: Apache-2.0
"""What meson installs is in every package: a new program or a new file cannot be forgotten."""

import gzip
import io
import json
import platform
import re
import subprocess
import tarfile
import zipfile

import pytest
from conftest import PACKAGES

PROCESSORS = sorted({path.name.removesuffix(".tar.gz").rpartition("-")[2]
                     for path in PACKAGES.glob("cay-*-linux-*.tar.gz")})
FOLDERS = re.compile(r"(bin|libexec|share)/(?!doc/|man/man3/).")


def one(pattern):
    found = list(PACKAGES.glob(pattern))
    assert len(found) == 1, f"run `make packages`: {pattern} is {found}"
    return found[0]


def installed(names):
    """Those that all packages have, below their prefix."""
    return {name for name in names if FOLDERS.match(name)}


def of_tarball(processor):
    with tarfile.open(one(f"cay-*-linux-{processor}.tar.gz")) as archive:
        return installed(entry.name.partition("/")[2] for entry in archive if entry.isfile())


def of_wheel(path):
    with zipfile.ZipFile(path) as archive:
        names = [name.partition(".data/")[2] for name in archive.namelist()]
    return installed(re.sub("^data/", "", re.sub("^scripts/", "bin/", name)) for name in names)


def of_image(processor):
    with tarfile.open(one(f"cay-*-image-{processor}.tar")) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))
        data = gzip.decompress(image.extractfile(manifest["Layers"][-1]).read())
    with tarfile.open(fileobj=io.BytesIO(data)) as layer:
        return installed(entry.name.removeprefix("usr/local/") for entry in layer if entry.isfile())


def of_debian(architecture):
    paths = [*PACKAGES.glob(f"cay_*_{architecture}.deb"), *PACKAGES.glob(f"cay-*_{architecture}.deb")]
    names = set()
    for path in paths:
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True,
                              stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            names |= {entry.name.removeprefix("./usr/").removesuffix(".gz")
                      for entry in archive if not entry.isdir()}
    return installed(name.replace("zsh/vendor-completions", "zsh/site-functions") for name in names)


def test_there_is_a_tarball():
    assert platform.machine() in PROCESSORS, "run `make packages`"


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_packages_of_a_processor_have_the_same_files(processor):
    """The image has no manual pages, but cay-store, and Debian's packages have more."""
    files = of_tarball(processor)
    assert {"bin/cay", "libexec/cay/cay-full", "libexec/cay/cay-serve",
            "share/cay/cay-config.schema.json", "share/cay/ui/index.html",
            "share/man/man1/cay-run.1"} <= files
    for path in PACKAGES.glob(f"cay-*linux_*_{processor}.whl"):
        assert of_wheel(path) == files, path
    store = {"libexec/cay/cay-store"}
    assert of_image(processor) - {"bin/cay-container"} == store | {
        name for name in files if name.startswith(("bin/", "libexec/", "share/cay/"))}
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[processor]
    assert files | store <= of_debian(architecture)
