# SPDX-License-Identifier: Apache-2.0
"""The server dies under the JavaScript SDK."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60  # seconds: for a machine that is very slow, not for waiting
SCRIPT = Path(__file__).parent / "js" / "broken.mjs"


def installed(version):
    """The directory that has this version of the SDK, and nothing else."""
    if not shutil.which("node") or not shutil.which("npm"):
        if os.environ.get("CAY_MUST_WORK") == "1":
            pytest.fail("node and npm are needed")
        pytest.skip("node and npm are needed")
    place = Path(os.environ.get("CAY_NPM", ROOT / "build" / "npm")) / version.rpartition(".")[0]
    if not (place / "node_modules" / "e2b" / "package.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}\n')
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", f"e2b@{version}"],
                       cwd=place, check=True, timeout=300, stdin=subprocess.DEVNULL)
    return place


def is_alive(pid):
    try:
        return not re.search(r"^State:\t[ZX]", Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return False


def crash(server):
    """Nothing of it is left when this returns."""
    pids = server.children()
    server.stop(signal.SIGKILL)
    end = time.monotonic() + PATIENCE
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("version", ["2.45.0", "2.51.0"])
def test_a_server_killed_in_the_middle_of_a_stream(own_server, version):
    place, server = installed(version), own_server()
    script = place / f"broken-{os.getpid()}.mjs"
    shutil.copy(SCRIPT, script)
    try:
        with subprocess.Popen(["node", script.name], cwd=place, env={**os.environ, **server.exports},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as client:
            watch = threading.Timer(2 * PATIENCE, client.kill)  # then its lines end
            watch.start()
            try:
                assert client.stdout.readline() == "streaming\n", client.stderr.read()
                crash(server)
                assert client.stdout.readline() == "broken\n", client.stderr.read()
                server.start()
                out, err = client.communicate("go\n", timeout=PATIENCE)
                assert (out, client.returncode) == ("ok\n", 0), err
            finally:
                watch.cancel()
                client.kill()
    finally:
        script.unlink()
