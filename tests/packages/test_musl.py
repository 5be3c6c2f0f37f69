# SPDX-License-Identifier: Apache-2.0
"""The musllinux wheel and the tarball in a system without glibc, which musl-root makes."""

import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import PACKAGES, ROOT, ROOTS

PROCESSOR = platform.machine()
PROGRAMS = {"cay", "cay-full", "cay-serve"}


def packed(pattern):
    found = list(PACKAGES.glob(pattern))
    assert len(found) == 1, f"run `make packages`: {pattern} is {found}"
    return found[0]


@pytest.fixture(scope="module")
def wheel():
    return packed(f"cay-*musllinux_1_2_{PROCESSOR}.whl")


@pytest.fixture(scope="module")
def tarball():
    return packed(f"cay-*-linux-{PROCESSOR}.tar.gz")


@pytest.fixture(scope="module")
def root():
    """busybox and a Python of musl."""
    path = ROOTS / "musl"
    if not path.exists():
        ROOTS.mkdir(exist_ok=True)
        unfinished = path.with_name("musl.part")
        subprocess.run(["rm", "-rf", "--one-file-system", unfinished], check=True)
        subprocess.run([ROOT / "tests/packages/musl-root", unfinished], check=True)
        unfinished.rename(path)
    return path


def run(root, script, share=PACKAGES):
    """What a shell script prints in a copy of the system, with `share` as /share."""
    done = subprocess.run([ROOT / "tests/packages/in-root", root, "sh", "-euc", script],
                          env={**os.environ, "SHARE": str(share)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def dynamic(path):
    return subprocess.run(["readelf", "--wide", "--program-headers", "--dynamic", path], check=True,
                          capture_output=True, text=True).stdout


def check_static(paths):
    assert {path.name for path in paths} == PROGRAMS
    for path in paths:
        about = dynamic(path)
        assert "(NEEDED)" not in about and "INTERP" not in about, path


def test_programs_of_the_tarball_are_static(tarball, tmp_path):
    with tarfile.open(tarball) as archive:
        archive.extractall(tmp_path)
    check_static([*tmp_path.glob("cay-*/bin/*"), *tmp_path.glob("cay-*/libexec/cay/*")])


def test_programs_of_the_wheel_are_static_and_its_library_needs_only_musl(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    check_static([*tmp_path.glob("*.data/scripts/*"), *tmp_path.glob("*.data/data/libexec/cay/*")])
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic(tmp_path / "cay/libcay.so"))
    assert needed == ["libc.so"]


# cay serve prints its exports when it listens.
SERVE = """
cay serve --reserve 0 --listen 127.0.0.1:0 >/tmp/exports 2>/tmp/log &
server=$!
until grep -q E2B_API_KEY= /tmp/exports; do
    kill -0 $server || { cat /tmp/log; exit 1; }
    sleep 0.1
done
. /tmp/exports
wget -q -O - "$E2B_API_URL/health"
wget -q -O - --header "X-API-Key: $E2B_API_KEY" --header 'Content-Type: application/json' \
    --post-data '{"templateID": "base", "timeout": 60}' "$E2B_API_URL/sandboxes" |
    grep -o sandboxID
kill $server
wait $server || true
"""
USE = """
cay doctor >/dev/null
cay run -- echo run
id=$(cay create)
cay exec "$id" -- sh -c 'echo executed; kill -SEGV $$' || echo $?
echo copied >/tmp/here
cay cp /tmp/here "$id:/tmp/there"
cay cat "$id" /tmp/there
cay kill "$id"
id=$(cay session start work)
cay session rm work
cay pool start --count 1 >/dev/null
cay run -- echo pooled
cay pool stop --all
cay config schema >/tmp/schema
head -c 1 /tmp/schema
echo
mkdir -p /etc/ssl/certs
echo none >/etc/ssl/certs/ca-certificates.crt
TOKEN=12345678 cay run --allow example.com --secret TOKEN=env:TOKEN --secret-for example.com -- \\
    head -n 1 /etc/cay/ca.crt
printf 'sandbox_config:\\n  type: folder\\n  library: /tmp/here\\n' >/tmp/config.yaml
cay create --config /tmp/config.yaml 2>&1 | grep -o 'a static program cannot load a backend'
""" + SERVE
USED = ["run", "executed", "139", "copied", "pooled", "{", "-----BEGIN CERTIFICATE-----",
        "a static program cannot load a backend", "sandboxID"]
INSTALL_TARBALL = f"""
tar -xzf /share/cay-*-linux-{PROCESSOR}.tar.gz -C /tmp
/tmp/cay-*/install.sh --prefix /opt/cay >/dev/null
PATH=/opt/cay/bin:$PATH
"""


def test_the_tarball_works_without_glibc(root, tarball):
    assert run(root, INSTALL_TARBALL + USE + """
/opt/cay/share/cay/uninstall.sh --prefix /opt/cay --force >/dev/null
test ! -e /opt
""") == USED


@pytest.fixture(scope="module")
def share(wheel, tmp_path_factory):
    """The wheel and, as from an index, what it requires."""
    folder = tmp_path_factory.mktemp("index")
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
                    "--python-version=3.11", f"--platform=musllinux_1_1_{PROCESSOR}",
                    f"--platform=musllinux_1_2_{PROCESSOR}", "--dest", folder, wheel], check=True)
    return folder


# As pip does, which cannot run: this Python has no expat.  The rules for tags are pip's.  An
# extension module loses the name of its system: Python 3.11 takes itself for one of glibc.
INSTALL_WHEEL = """
python3 -m venv --without-pip /tmp/venv
PATH=/tmp/venv/bin:$PATH
python - <<END
import glob, os, re, sys, sysconfig, zipfile
sys.path += glob.glob("/usr/lib/python3*/ensurepip/_bundled/pip-*.whl")
from pip._vendor.packaging.tags import sys_tags
tags = {str(tag) for tag in sys_tags()}
(wheel,) = glob.glob("/share/cay-*.whl")
assert re.search("py3-none-.*(?=[.]whl)", wheel)[0] in tags
for wheel in glob.glob("/share/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for entry in (one for one in archive.infolist() if not one.is_dir()):
            path = os.path.join(sysconfig.get_path("purelib"),
                                re.sub("[.]cpython-311-.*-musl", "", entry.filename))
            if found := re.match("[^/]+[.]data/(scripts|data)/(.*)", entry.filename):
                path = os.path.join(sysconfig.get_path(found[1]), found[2])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.read(entry))
            os.chmod(path, entry.external_attr >> 16 & 0o777)
END
"""


def test_the_wheel_works_with_a_python_of_musl(root, share):
    assert run(root, INSTALL_WHEEL + USE + """
python - <<END
import cay, threading
with cay.Sandbox.create(ephemeral=True) as sandbox:
    print(sandbox.exec(["echo", "inside"]).stdout, end="")
def create():
    with cay.Sandbox.create(ephemeral=True) as sandbox:
        print(sandbox.exec(["echo", "in a thread"]).stdout, end="")
thread = threading.Thread(target=create)
thread.start()
thread.join()
with cay.Pool(1) as pool:
    with pool.create(ephemeral=True) as sandbox:
        print(sandbox.exec(["echo", "of a pool"]).stdout, end="")
END
""", share) == [*USED, "inside", "in a thread", "of a pool"]
