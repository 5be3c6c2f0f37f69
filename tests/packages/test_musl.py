# SPDX-License-Identifier: Apache-2.0
"""The musllinux wheel and the tarball in a system without glibc, which musl-root makes."""

import os
import platform
import re
import subprocess
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


def run(root, script):
    """What a shell script prints in a copy of the system, with the packages as /share."""
    done = subprocess.run([ROOT / "tests/packages/in-root", root, "sh", "-euc", script],
                          env={**os.environ, "SHARE": str(PACKAGES)}, stdin=subprocess.DEVNULL,
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
until [ "$(grep -c = /tmp/exports)" = 3 ]; do
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
printf 'sandbox_config:\\n  type: folder\\n  library: /tmp/here\\n' >/tmp/config.yaml
cay create --config /tmp/config.yaml 2>&1 | grep -o 'a static program cannot load a backend'
""" + SERVE
USED = ["run", "executed", "139", "copied", "pooled", "{",
        "a static program cannot load a backend", "sandboxID"]
INSTALL_TARBALL = f"""
tar -xzf /share/cay-*-linux-{PROCESSOR}.tar.gz -C /tmp
/tmp/cay-*/install.sh --prefix /opt/cay >/dev/null
PATH=/opt/cay/bin:$PATH
"""


def test_the_tarball_works_without_glibc(root, tarball):
    assert run(root, INSTALL_TARBALL + USE + """
/opt/cay/share/cay/uninstall.sh --prefix /opt/cay >/dev/null
find /opt
""") == USED


def test_the_wheel_works_with_a_python_of_musl(root, wheel):
    """Its pip accepts the tag, and no compiler and no other package is needed."""
    assert run(root, """
python3 -m venv /tmp/venv
PATH=/tmp/venv/bin:$PATH
pip install --quiet --no-index --no-deps /share/cay-*musllinux*.whl
""" + USE + """
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
pip uninstall --quiet --yes cay
find /tmp/venv -name '*cay*'
""") == [*USED, "inside", "in a thread", "of a pool"]
