# SPDX-License-Identifier: Apache-2.0
"""The wheels, in a Debian system without a compiler and without the libraries of cay."""

import platform
import re
import shutil
import subprocess
import zipfile

import pytest
from conftest import PACKAGES, ROOT, USED, index

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


def carve(library, folder):
    """The programs that are embedded in the library, as files."""
    data = library.read_bytes()
    for found in list(re.finditer(rb"\x7fELF\x02\x01\x01", data))[1:]:
        path = folder / f"embedded-{found.start()}"
        path.write_bytes(data[found.start():])
        yield path


@pytest.mark.parametrize("wheel", [path for path in WHEELS if "manylinux" in path.name],
                         ids=lambda path: path.name)
def test_programs_and_library_need_only_the_c_library_of_the_tag(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    oldest = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)", wheel.name).groups()))
    library = tmp_path / "cay" / "libcay.so"
    embedded = [about for about in map(dynamic, carve(library, tmp_path)) if "NEEDED" in about]
    assert len(embedded) == 1  # cay-net-tls; PID 1 and cay-net are static
    abouts = [dynamic(path) for path in (library, *tmp_path.glob("*.data/data/libexec/cay/*"))]
    assert len(abouts) == 3
    for about in abouts + embedded:
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", about))
        assert needed <= GLIBC and "libc.so.6" in needed, about
        versions = {tuple(map(int, found.split(".")))
                    for found in re.findall(r"GLIBC_([0-9.]+)", about)}
        assert versions and max(versions)[:2] <= oldest, about
    (small,) = tmp_path.glob("*.data/scripts/cay")
    assert "NEEDED" not in dynamic(small)


@pytest.fixture(scope="module")
def share(suite):
    """The wheel and, as from an index, what it and its extras require."""
    (wheel,) = PACKAGES.glob(f"cay-*manylinux_*_{PROCESSOR}.whl")
    folder = index(suite, "wheel", f"{wheel}[inspect,nexau,pydantic-ai]", "uv", "pipx", "pip")
    shutil.copy(ROOT / "tests/python/inspect_task.py", folder)
    return folder


# Without a network, for root or for a user.
INSTALL = """
! type cc gcc ld >/dev/null 2>&1
alone() { quietly unshare --map-current-user --net -- "$@"; }
python3 -m venv ~/venv
alone ~/venv/bin/pip install --no-index --find-links /share cay
export PATH=~/venv/bin:$PATH
"""


def test_the_wheel_needs_no_compiler_and_no_package_of_the_distribution(python, share):
    done = python.run(INSTALL + """
/tests/use
useradd --create-home ordinary
cp -r ~/venv /home/ordinary
chown -R ordinary /home/ordinary
su ordinary -c 'PATH=~/venv/bin:$PATH /tests/use'
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
    assert done.stdout.splitlines() == [*[*USED, "42", "removed"] * 2, "inside"]


def test_an_ordinary_user_installs_the_wheel(python, share):
    done = python.run(f"""
cat >/tmp/script <<'SCRIPT'
set -euo pipefail
quietly() {{ "$@" >/dev/null; }}
{INSTALL}
cay run -- echo run
python - <<END
import cay
with cay.Sandbox.create(ephemeral=True) as sandbox:
    print(sandbox.exec(["echo", "inside"]).stdout, end="")
END
SCRIPT
useradd --create-home ordinary
su - ordinary -c 'bash /tmp/script'
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["run", "inside"]


def test_the_programs_find_one_another_when_the_environment_moves(python, share):
    done = python.run(INSTALL + """
mv ~/venv /opt/moved
/opt/moved/bin/cay run -- echo run
/opt/moved/bin/cay config schema >/tmp/schema
ln -s /opt/moved/bin/cay /usr/local/bin/linked
linked serve --help >/tmp/help
head -c 1 /tmp/schema
/opt/moved/bin/python -c 'import cay; print(cay.__version__)' >/dev/null
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "run\n{"


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_the_wheel_is_installed_as_a_tool(python, share, tool):
    """pipx also links the manual pages to where man looks; uv leaves them in its directory."""
    command = {"uv": "uv tool install --quiet --offline --no-index --find-links /share cay",
               "pipx": "PIP_NO_INDEX=1 PIP_FIND_LINKS=/share pipx install --quiet cay"}[tool]
    done = python.run(f"""
python3 -m venv /opt/{tool}
quietly /opt/{tool}/bin/pip install --no-index --find-links /share {tool}
quietly unshare --net env PATH=/opt/{tool}/bin:$PATH {command.replace("PIP", "env PIP", 1)}
~/.local/bin/cay run -- echo run
find -L ~/.local/share -name cay-run.1 | sed -n "1s|.*/||p"
(find ~/.local/share/man -name cay-run.1 2>/dev/null || true) | sed "s|.*/||"
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[:2] == ["run", "cay-run.1"]
    assert done.stdout.split()[2:] == (["cay-run.1"] if tool == "pipx" else [])


def test_the_extras_resolve_and_inspect_evaluates_in_our_sandboxes(python, share):
    done = python.run(INSTALL + """
alone pip install --no-index --find-links /share 'cay[inspect,nexau,pydantic-ai]'
python -c 'import cay.filesystem.toolset, cay.tools.toolset, cay.nexau, pydantic_ai'
cp /share/inspect_task.py /tmp
cd /tmp
quietly inspect eval inspect_task.py --display=none --log-dir=/tmp/logs --log-format=json --limit=2
python - <<END
import glob, json
(log,) = glob.glob("/tmp/logs/*.json")
log = json.load(open(log))
print(log["status"], [sample["scores"]["includes"]["value"] for sample in log["samples"]])
END
cay ls --all --quiet
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "success ['C', 'C']"


def test_the_server_of_the_wheel_serves_the_sdk_of_e2b(python, share):
    with python.live(share) as live:
        live.do(INSTALL)
        live.serve()
        live.sdk()
        assert live.dashboard().lower() == "<!doctype html>"
        live.stop_server()


def test_the_server_of_the_wheel_speaks_tls(python, share):
    """It has its own TLS library."""
    done = python.run(INSTALL + """
cd /tmp
quietly openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 1 \\
    -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1
serve cay serve --listen 127.0.0.1:0 --tls-cert cert --tls-key key >/tmp/said
. /tmp/exports
python - <<END
import os, ssl, urllib.request
trust = ssl.create_default_context(cafile="/tmp/cert")
print(urllib.request.urlopen("$E2B_API_URL/health", context=trust).status)
END
kill $server
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout in ("200\n", "204\n")


def test_requests_are_read_without_a_tls_library_of_the_distribution(python, share):
    """The certificates that servers are verified with are those of the distribution."""
    done = python.run(INSTALL + """
rm -rf /etc/ssl /usr/lib/*/libgnutls*
show() {
    TOKEN=12345678 cay run --allow example.com --secret TOKEN=env:TOKEN --secret-for example.com -- \\
        head -n 1 /etc/cay/ca.crt
}
(show 2>&1 || true) | grep -o 'install the package ca-certificates'
mkdir -p /etc/ssl/certs
echo none >/etc/ssl/certs/ca-certificates.crt
show
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["install the package ca-certificates",
                                        "-----BEGIN CERTIFICATE-----"]


def test_removal_leaves_nothing(python, share):
    done = python.run(INSTALL + """
pip uninstall --quiet --yes cay
find ~/venv -name '*cay*'
""", share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
