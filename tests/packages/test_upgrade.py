# SPDX-License-Identifier: Apache-2.0
"""A newer package is installed under living sandboxes, sessions and a server.

CAY_NEXT is a directory with packages of a later version; if it is not set, those of the kinds that
were built are built again from the same sources."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import PACKAGES, ROOT, ROOTS, index

DEB = "cay_*_$(dpkg --print-architecture).deb"

KINDS = {"wheel": "cay-*.whl", "tarball": "cay-*-linux-*.tar.gz", "deb": "cay_*.deb"}


@pytest.fixture(scope="session")
def versions(tmp_path_factory):
    """A directory with the packages of both versions, in `old` and `new`."""
    following = os.environ.get("CAY_NEXT")
    if not following:
        following = ROOTS / "next"
        names = sorted(PACKAGES.glob("*cay*"))
        state = hashlib.sha256(b"".join(path.read_bytes() for path in names)).hexdigest()
        stamp = following / "made-for"
        if not stamp.exists() or stamp.read_text() != state:
            kinds = [kind for kind, pattern in KINDS.items() if list(PACKAGES.glob(pattern))]
            subprocess.run([ROOT / "tests/packages/make-next", following, *kinds], check=True,
                           stdout=subprocess.PIPE)
            stamp.write_text(state)
    share = tmp_path_factory.mktemp("versions")
    share.chmod(0o755)
    for name, source in (("old", PACKAGES), ("new", Path(following))):
        (share / name).mkdir()
        for path in source.glob("*cay*"):
            shutil.copy(path, share / name)
    return share


# Each user has a sandbox that runs, one that is paused, and a session with a process.
BEGIN = """
cay create --name living >/dev/null
cay exec living -- sh -c 'echo kept >file'
cay create --name paused >/dev/null
cay exec paused -- sh -c 'echo kept >file'
cay pause paused >/dev/null 2>&1 || true
cay session start work >/tmp/session-$(id -u)
cay exec --detach $(cay session start work) -- sleep 1000 >/dev/null
cay ls --all --quiet | sort >/tmp/sandboxes-$(id -u)
"""
USE = """
cay ls --all --quiet | sort | comm -23 /tmp/sandboxes-$(id -u) -
cay exec living -- cat file
echo copied >/tmp/copied-$(id -u)
cay cp /tmp/copied-$(id -u) living:there
cay cat living there
cay resume paused >/dev/null 2>&1 || true
cay exec paused -- cat file
cay session start work | diff /tmp/session-$(id -u) -
cay ps $(cat /tmp/session-$(id -u)) | grep -o 'sleep 1000'
cay kill living paused
cay session rm work
cay ls --all --quiet | sort | comm -12 /tmp/sandboxes-$(id -u) -
cay run -- echo run
"""
USED = ["kept", "copied", "kept", "sleep 1000", "run"]


def as_user(script):
    return f"cat >/tmp/script <<'END'\nset -euo pipefail\n{script}END\n" \
           'su ordinary -c "PATH=$PATH bash /tmp/script"\n'  # su of Ubuntu sets another PATH


def check(system, versions, old, new):
    """The scripts `old` and `new` install the versions."""
    with system.live(versions) as live:
        live.do(old)
        live.do("useradd --create-home ordinary")
        before = live.do("cay --version")
        live.do(BEGIN)
        live.do(as_user(BEGIN))
        port = live.serve()
        sandbox = live.sdk("--keep")
        live.do(new)
        assert live.do("cay --version") != before
        assert live.do(USE).splitlines() == USED
        assert live.do(as_user(USE)).splitlines() == USED
        live.sdk()  # the old server still runs, and creates sandboxes
        live.stop_server()
        assert live.serve(port) == port
        assert live.sdk(sandbox) == sandbox
        live.sdk()
        live.stop_server()


def test_sandboxes_outlive_an_upgrade_of_the_debian_package(clean, versions):
    check(clean, versions, f"install /share/old/{DEB}", f"install /share/new/{DEB}")


def test_sandboxes_outlive_an_upgrade_of_the_tarball(clean, versions):
    def install(version):
        return f"""
mkdir /tmp/{version}
tar -xf /share/{version}/cay-*-linux-{os.uname().machine}.tar.gz -C /tmp/{version}
quietly /tmp/{version}/cay-*/install.sh
"""
    check(clean, versions, install("old"), install("new"))


def test_sandboxes_outlive_an_upgrade_of_the_wheel(python, versions):
    """Programs of an ordinary user are elsewhere: both have the environment of root."""
    folder = index(python.suite, "upgrade", "pydantic>=2", "pyyaml>=6")
    for path in folder.iterdir():
        target = versions / "index" / path.name
        target.parent.mkdir(exist_ok=True)
        if not target.exists():
            shutil.copy(path, target)
    install = ("quietly /opt/venv/bin/pip install --upgrade --no-index --find-links "
               "/share/index --find-links /share/{} cay")
    check(python, versions,
          "python3 -m venv /opt/venv\nexport PATH=/opt/venv/bin:$PATH\n" + install.format("old"),
          install.format("new"))

