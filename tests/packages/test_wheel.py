# SPDX-License-Identifier: Apache-2.0
"""The wheels, in a Debian system without a compiler and without the libraries of cay."""

import platform
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import PACKAGES

PROCESSOR = platform.machine()
SIZE_MAX = 15 << 20
# What every system with glibc has: PEP 600.
GLIBC = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1",
         "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

WHEELS = sorted(PACKAGES.glob("cay-*.whl"))


def test_the_wheel_of_this_machine_is_there():
    names = [path.name.partition("-py3-none-")[2] for path in WHEELS]
    assert f"manylinux_2_34_{PROCESSOR}.whl" in names, "run `make packages`"


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda path: path.name)
def test_the_wheel_is_small_and_has_the_programs(wheel):
    assert wheel.stat().st_size <= SIZE_MAX
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    data = re.match(r"cay-[^-]+", wheel.name)[0] + ".data"
    for name in ("scripts/cay", "data/libexec/cay/cay-full", "data/libexec/cay/cay-serve"):
        assert modes[f"{data}/{name}"] == 0o100755
    assert modes["cay/libcay.so"] == 0o100644


def dynamic(path):
    return subprocess.run(["readelf", "--wide", "--dynamic", "--version-info", path], check=True,
                          capture_output=True, text=True).stdout


@pytest.mark.parametrize("wheel", [path for path in WHEELS if "manylinux" in path.name],
                         ids=lambda path: path.name)
def test_programs_and_library_need_only_the_c_library_of_the_tag(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    oldest = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)", wheel.name).groups()))
    files = [tmp_path / "cay" / "libcay.so", *tmp_path.glob("*.data/data/libexec/cay/*")]
    assert len(files) == 3
    for path in files:
        about = dynamic(path)
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", about))
        assert needed <= GLIBC and "libc.so.6" in needed, path
        versions = {tuple(map(int, found.split(".")))
                    for found in re.findall(r"GLIBC_([0-9.]+)", about)}
        assert versions and max(versions)[:2] <= oldest, path
    (small,) = tmp_path.glob("*.data/scripts/cay")
    assert "NEEDED" not in dynamic(small)


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """The wheel and, as from an index, what it requires."""
    folder = tmp_path_factory.mktemp("index")
    folder.chmod(0o755)  # also for ordinary users
    (wheel,) = PACKAGES.glob(f"cay-*manylinux_*_{PROCESSOR}.whl")
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
                    "--python-version=3.11", f"--platform=manylinux2014_{PROCESSOR}",
                    f"--platform=manylinux_2_34_{PROCESSOR}", "--dest", folder, wheel], check=True)
    return folder


INSTALL = """
! type cc gcc ld >/dev/null 2>&1
python3 -m venv /tmp/venv
/tmp/venv/bin/pip install --quiet --no-index --find-links /share cay
export PATH=/tmp/venv/bin:$PATH
"""


def test_the_wheel_needs_no_compiler_and_no_package_of_the_distribution(python, share):
    done = python.run(INSTALL + """
cay --version
cay doctor >/dev/null
cay run -- echo run
id=$(cay create)
cay exec "$id" -- echo executed
cay config schema >/tmp/schema
head -c 1 /tmp/schema
echo
python - <<END
import cay, cay.filesystem, cay.inspect, cay.nexau, os
from importlib.metadata import entry_points, metadata
assert metadata("cay")["Version"] == cay.__version__
assert {"inspect", "nexau", "pydantic-ai"} <= set(metadata("cay").get_all("Provides-Extra"))
assert [point.value for point in entry_points(group="inspect_ai", name="cay")]
with cay.Sandbox.create(ephemeral=True) as sandbox:
    print(sandbox.exec(["echo", "inside"]).stdout, end="")
END
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[1:] == ["run", "executed", "{", "inside"]


def test_the_wheel_works_for_an_ordinary_user(python, share):
    done = python.run("""
useradd --create-home ordinary
su ordinary -c '
    set -e
    cd
    python3 -m venv ~/venv
    ~/venv/bin/pip install --quiet --no-index --find-links /share cay
    ~/venv/bin/cay run -- echo run
    echo "import cay; sandbox = cay.Sandbox.create(ephemeral=True)" >program
    echo "print(sandbox.exec([\\"echo\\", \\"inside\\"]).stdout)" >>program
    ~/venv/bin/python program
'""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["run", "inside"]


def test_the_server_of_the_wheel_speaks_tls(python, share):
    """It has its own TLS library."""
    done = python.run(INSTALL + """
python - <<END
import json, os, ssl, subprocess, time, urllib.request
subprocess.run("openssl req -x509 -newkey rsa:2048 -nodes -keyout /tmp/key -out /tmp/cert "
               "-days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost", shell=True,
               check=True, stderr=subprocess.DEVNULL)
server = subprocess.Popen(["cay", "serve", "--listen", "127.0.0.1:3999", "--tls-cert", "/tmp/cert",
                           "--tls-key", "/tmp/key"])
trust = ssl.create_default_context(cafile="/tmp/cert")
for _ in range(600):
    try:
        print(urllib.request.urlopen("https://localhost:3999/health", context=trust).status)
        break
    except OSError:
        time.sleep(0.1)
server.terminate()
server.wait()
END
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith(("200", "204"))


def test_removal_leaves_nothing(python, share):
    done = python.run(INSTALL + """
find /tmp/venv | sort >/tmp/with
pip uninstall --quiet --yes cay
find /tmp/venv -name '*cay*'
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
