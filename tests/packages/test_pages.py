# SPDX-License-Identifier: Apache-2.0
"""The lines of docs/install.md, in clean systems: install, use, uninstall."""

import platform
import re
import subprocess
import sys

import pytest
from conftest import PACKAGES, PYTHONS, ROOT

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
# apt asks no questions, and sudo is not there: root runs the lines.
SETUP = """
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/yes
apt-get -qq update
sudo() { "$@"; }
cp /share/* /tmp
cd /tmp
"""
USE = """
{
cay run -- echo hello
cay doctor >/dev/null
cay create --name living >/dev/null
cay exec living -- echo inside
} | tee used
"""
END = """
hash -r
type cay 2>/dev/null || echo gone
"""


def line(section, way):
    """The command of the page for one way."""
    text = PAGE if section == "install" else PAGE.split(f"\n## {section}\n")[1]
    return re.search(rf"^\| {way} \| `([^`]+)` \|", text, re.M)[1]


def end_what_runs():
    return re.search(r"^```sh\n(.*?)^```$", PAGE.split("\n## Uninstall\n")[1], re.M | re.S)[1]


def check(system, way, share, before="", after=""):
    done = system.run(SETUP + before + f"{line('install', way)} >log 2>&1 || {{ cat log; exit 1; }}\n"
                      + USE + after + f"{line('Uninstall', way)} >log 2>&1 || {{ cat log; exit 1; }}\n"
                      + END, share)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["hello", "inside", "gone"]


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """The packages of this machine and, as from an index, uv and what the wheel requires."""
    folder = tmp_path_factory.mktemp("share")
    folder.chmod(0o755)
    machine = platform.machine()
    for path in [*PACKAGES.glob(f"cay-*manylinux*_{machine}.whl"), *PACKAGES.glob("cay_*.deb"),
                 *PACKAGES.glob(f"cay-*-linux-{machine}.tar.gz")]:
        (folder / path.name).write_bytes(path.read_bytes())
    (wheel,) = folder.glob("cay-*.whl")
    for version in PYTHONS.values():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
                        f"--python-version={version}", f"--platform=manylinux2014_{machine}",
                        f"--platform=manylinux_2_34_{machine}", "--dest", folder, "uv", wheel],
                       check=True)
    return folder


def test_the_lines_for_apt_work(bookworm, share):
    check(bookworm, "apt", share)


def test_the_lines_for_the_tarball_work(bookworm, share):
    check(bookworm, "tarball", share, after=end_what_runs())


def test_the_lines_for_pip_work(python, share):
    environment = re.search(r"`(python3 -m venv [^`]+)`", PAGE)[1]
    check(python, "pip", share, after=end_what_runs(),
          before=f"export PIP_NO_INDEX=1 PIP_FIND_LINKS=/share\n{environment}\n")


def test_the_lines_for_uv_work(python, share):
    check(python, "uv", share, after=end_what_runs(), before="""
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/share UV_OFFLINE=1 UV_FIND_LINKS=/share
python3 -m venv venv
venv/bin/pip install --quiet uv
export PATH=/tmp/venv/bin:/root/.local/bin:$PATH
""")


def test_every_way_of_the_page_is_known():
    """tests/docs/test_version.py installs and uninstalls the source, test_image.py runs the
    image."""
    ways = [re.findall(r"^\| ([\w ]+) \| `", text, re.M)
            for text in PAGE.split("\n## Uninstall\n")]
    assert ways == [["pip", "uv", "apt", "tarball", "source", "container"]] * 2
    assert line("install", "source") == "sudo make install"
    assert line("Uninstall", "source") == "sudo make uninstall"
