# SPDX-License-Identifier: Apache-2.0
"""Every package has the version of meson.build, and Debian's the date of the sources."""

import gzip
import io
import subprocess
import tarfile
import zipfile
from email.utils import parsedate_to_datetime

import pytest
from conftest import PACKAGES, ROOT

VERSION = subprocess.run([ROOT / "package" / "version"], check=True, text=True,
                         capture_output=True).stdout.strip()
FILES = sorted(path for kind in ("deb", "whl", "tar.gz", "tar") for path in PACKAGES.glob(f"*.{kind}"))


def test_there_are_packages():
    assert FILES, "run `make packages`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_package_has_the_version_in_its_name(path):
    assert f"-{VERSION}" in path.name or f"_{VERSION}_" in path.name


@pytest.mark.parametrize("path", sorted(PACKAGES.glob("*.deb")), ids=lambda path: path.name)
def test_a_debian_package_has_the_version(path):
    done = subprocess.run(["dpkg-deb", "--field", path, "Version"], check=True, text=True,
                          capture_output=True)
    assert done.stdout.strip() == VERSION


@pytest.mark.parametrize("path", sorted(PACKAGES.glob("*.deb")), ids=lambda path: path.name)
def test_a_debian_package_has_the_date_of_the_sources(path):
    """Without a date in its changelog, dpkg takes the time of the build and only warns."""
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True,
                          stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        (name,) = (name for name in archive.getnames() if name.endswith("/changelog.Debian.gz"))
        said = gzip.decompress(archive.extractfile(name).read()).decode()
        dates = {entry.mtime for entry in archive.getmembers()}
    when = parsedate_to_datetime(said.rstrip().splitlines()[-1].partition(">  ")[2])
    assert max(dates) == when.timestamp()


@pytest.mark.parametrize("path", sorted(PACKAGES.glob("*.whl")), ids=lambda path: path.name)
def test_a_wheel_has_the_version_in_its_metadata_and_its_library(path):
    with zipfile.ZipFile(path) as archive:
        metadata = archive.read(f"cay-{VERSION}.dist-info/METADATA").decode()
        library = archive.read("cay/libcay.so")
    assert f"\nVersion: {VERSION}\n" in metadata
    assert f"\0{VERSION}\0".encode() in library


def test_the_sources_have_the_version():
    with tarfile.open(PACKAGES / f"cay-{VERSION}.tar.gz") as archive:
        about = archive.extractfile(f"cay-{VERSION}/PKG-INFO").read().decode()
    assert f"\nVersion: {VERSION}\n" in about
