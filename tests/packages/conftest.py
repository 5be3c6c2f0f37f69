# SPDX-License-Identifier: Apache-2.0
"""Packages in clean systems: a distribution and nothing else, made by debootstrap.

CAY_PACKAGES is the directory of packages, dist/ if it is not set; CAY_ROOTS is where the
systems stay between runs, and what is downloaded from PyPI."""

import fcntl
import os
import re
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(os.environ.get("CAY_PACKAGES", ROOT / "dist"))
ROOTS = Path(os.environ.get("CAY_ROOTS", ROOT / "build-roots"))
DEBIAN = os.environ.get("CAY_DEBIAN_MIRROR", "http://deb.debian.org/debian")
UBUNTU = os.environ.get("CAY_UBUNTU_MIRROR", "http://archive.ubuntu.com/ubuntu")
KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
PYTHONS = {"bookworm": "3.11", "trixie": "3.13", "noble": "3.12"}


# Functions for scripts: what apt and pip print is shown only if they fail.
FUNCTIONS = r"""
quietly() {
    "$@" >/tmp/quietly 2>&1 || { cat /tmp/quietly; return 1; }
}
install() {
    quietly apt-get -q update
    quietly apt-get -q -y install --no-install-recommends "$@"
}
serve() {  # COMMAND...: starts a server and prints its exports
    : >/tmp/exports
    "$@" >/tmp/exports 2>/tmp/serve.log </dev/null &
    server=$!
    until grep -q E2B_API_KEY= /tmp/exports; do
        kill -0 $server || { cat /tmp/serve.log; return 1; }
        sleep 0.1
    done
    cat /tmp/exports
}
"""
DONE = "--- done ---"
# What the script `use` prints first.
USED = ["doctor", "run", "session", "copied", "files"]


class Live:
    """A system that runs: its shell gets one script after the other."""

    def __init__(self, process):
        self.process, self.exports = process, {}

    def do(self, script):
        """What the script prints, if every command of it succeeds."""
        self.process.stdin.write(f"{{\n{script}\n}} </dev/null\necho '{DONE}'\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == DONE:
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"the script failed: {script}\n{''.join(lines)}")

    def serve(self, port=0, user=None):
        """Starts `cay serve`, which the SDK will use; returns its port."""
        command = f"cay serve --reserve 0 --listen 127.0.0.1:{port}"
        said = self.do(f"serve su {user} -c '{command}'" if user else f"serve {command}")
        self.exports = dict(re.findall(r"export (\w+)=(.*)", said))
        return int(self.exports["E2B_API_URL"].rpartition(":")[2])

    def dashboard(self):
        """The first line of the server's page for browsers."""
        with urllib.request.urlopen(f"{self.exports['E2B_API_URL']}/ui/") as reply:
            return reply.readline().decode().strip()

    def stop_server(self):
        self.do("kill $server; wait $server || true")

    def sdk(self, *words):
        """Runs sdk.py, which is not in the system but uses its server."""
        done = subprocess.run([sys.executable, ROOT / "tests/packages/sdk.py", *words],
                              env={**os.environ, **self.exports}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


class System:
    """A clean system; each run starts from it anew."""

    def __init__(self, suite, root):
        self.suite, self.root = suite, root

    def command(self, *words):
        return [ROOT / "tests/packages/in-root", self.root, "bash", "-euo", "pipefail", *words]

    def run(self, script, share=PACKAGES):
        """Runs a shell script in it, with the directory `share` as /share."""
        return subprocess.run(self.command("-c", FUNCTIONS + script),
                              env={**os.environ, "SHARE": str(share)}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)

    @contextmanager
    def live(self, share=PACKAGES):
        """The system, until the end of the block."""
        with subprocess.Popen(self.command(), env={**os.environ, "SHARE": str(share)},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as process:
            try:
                live = Live(process)
                live.do(FUNCTIONS)
                yield live
            finally:
                process.stdin.close()  # the shell ends, and in-root all others with it
                process.wait()


def debootstrap(suite, packages, target):
    """Makes a system with its essential packages, apt and these."""
    options = [f"--include={','.join(packages)}"] if packages else []
    source = [DEBIAN]
    if suite == "noble":
        options += ["--components=main,universe", f"--keyring={ubuntu_keyring()}"]
        # debootstrap of Debian 12 does not know noble, but its script for Ubuntu fits.
        source = [UBUNTU, "/usr/share/debootstrap/scripts/gutsy"]
    subprocess.run(["rm", "-rf", "--one-file-system", target], check=True)
    # What it mounts ends with it, also if it is killed.
    subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase", *options, suite,
                    target, *source], check=True, stdout=subprocess.PIPE)


def ubuntu_keyring():
    """Ubuntu's keys, which Debian has as a package from version 13 on."""
    keyring = ROOTS / "ubuntu-archive-keyring.gpg"
    if not keyring.exists():
        with keyring.with_suffix(".part").open("wb") as file:
            subprocess.run(system("trixie").command(
                "-c", f"{FUNCTIONS}\ninstall ubuntu-archive-keyring\ncat {KEYRING}"),
                stdout=file, stdin=subprocess.DEVNULL, check=True)
        keyring.with_suffix(".part").rename(keyring)
    return keyring


@contextmanager
def alone(name):
    """Other processes of the tests wait until the end of the block."""
    ROOTS.mkdir(exist_ok=True)
    with (ROOTS / f"{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def system(suite, *packages):
    root = ROOTS / "-".join((suite, *packages))
    with alone(root.name):
        if not root.exists():
            unfinished = root.with_name(f"{root.name}.part")
            debootstrap(suite, packages, unfinished)
            (unfinished / "etc/apt/apt.conf.d/90tests").write_text('Acquire::Languages "none";\n')
            unfinished.rename(root)
    return System(suite, root)


def index(suite, name, *requirements):
    """A directory with these and what they require, as from an index, for the Python of a
    system.  Requirements of another day stay: pip takes the newest."""
    version = PYTHONS[suite]
    folder = ROOTS / f"index-{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # also for ordinary users
    machine = os.uname().machine
    platforms = [f"--platform=manylinux{tag}_{machine}"
                 for tag in ("2014", "_2_17", "_2_27", "_2_28", "_2_31", "_2_34")]
    with alone(folder.name):
        for old in folder.glob("cay-*.whl"):
            old.unlink()
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
                        f"--python-version={version}", *platforms, "--find-links", folder,
                        "--dest", folder, *requirements], check=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def as_root():
    if os.geteuid() != 0:
        pytest.skip("only root can make a clean system")


@pytest.fixture(scope="session", params=["bookworm", "trixie", "noble"])
def suite(request):
    """Debian 12 and 13, and Ubuntu 24.04 if it can be reached."""
    if request.param == "noble":
        host = UBUNTU.split("/")[2]
        try:
            socket.create_connection((host, 80), timeout=30).close()
        except OSError as error:
            pytest.skip(f"{host}: {error}")
    return request.param


@pytest.fixture(scope="session")
def clean(suite):
    """Each distribution, with nothing else."""
    return system(suite)


@pytest.fixture(scope="session")
def python(suite):
    """Each distribution with Python and pip, without a compiler."""
    return system(suite, "python3-venv")


@pytest.fixture(scope="session")
def bookworm():
    return system("bookworm")


@pytest.fixture(scope="session")
def trixie():
    return system("trixie")
