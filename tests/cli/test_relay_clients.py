# SPDX-License-Identifier: Apache-2.0
"""Package clients, unmodified, in sandboxes whose rules allow the group of their registry.

They use the machine's own network: a client that fails outside a sandbox, or is not installed in /usr,
is skipped.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import CAY, PATIENCE, copy_command

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")

UID, RANGE_UID = 54324, 54325  # the second has a range of ids
GROUPS = Path(__file__).parents[2] / "data" / "network" / "groups"


def host_of(group):
    """The first host of a group."""
    for line in GROUPS.read_text().splitlines():
        words = line.replace(":", " ").split()
        if words[:1] == [group]:
            return words[1]
    raise LookupError(group)


APT = """
mkdir -p state/lists/partial cache/archives/partial
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \\
http://{host}/debian stable-updates main" > sources
apt-get -qq -o Dir::Etc::sourcelist=$PWD/sources -o Dir::Etc::sourceparts=/dev/null \\
  -o Dir::State=$PWD/state -o Dir::Cache=$PWD/cache -o APT::Sandbox::User= \\
  -o Acquire::Check-Valid-Until=false update
ls state/lists/*InRelease
"""

# A program, the group of its registry, and what it does there; the directory is empty.
CLIENTS = {
    "pip": ("/usr/bin/python3", "pypi", "python3 -m pip download -q --no-deps six && ls six-*"),
    "npm": ("/usr/bin/npm", "npm", "npm view left-pad version"),
    "go": ("/usr/local/go/bin/go", "go",
           "go mod init x && GOFLAGS=-mod=mod /usr/local/go/bin/go get golang.org/x/text@v0.3.7"),
    "cargo": ("/usr/bin/cargo", "crates",
              "mkdir src && touch src/lib.rs && printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n"
              "[dependencies]\\ncfg-if=\"1\"\\n' > Cargo.toml && cargo fetch"),
    "apt": ("/usr/bin/apt-get", "debian", APT),
    "curl": ("/usr/bin/curl", "pypi", "curl -sSf -o page https://{host}/ && test -s page"),
}
PLACES = {"root-user": (0, "user"), "root-root": (0, "root"), "single-user": (UID, "user"),
          "range-user": (RANGE_UID, "user"), "range-root": (RANGE_UID, "root")}


def script_of(client):
    _, group, script = CLIENTS[client]
    start = "set -e; mkdir /tmp/work.$$; cd /tmp/work.$$; export HOME=$PWD PATH=$PATH:/usr/local/go/bin\n"
    return start + script.replace("{host}", host_of(group))


@pytest.fixture(scope="module", name="works_outside")
def fixture_works_outside():
    known = {}

    def works(client):
        if client not in known:
            done = Path(CLIENTS[client][0]).exists() and subprocess.run(
                ["sh", "-c", f"({script_of(client)}\n); code=$?; rm -rf /tmp/work.$$; exit $code"],
                capture_output=True, timeout=PATIENCE)
            known[client] = bool(done) and done.returncode == 0
        return known[client]

    return works


@pytest.fixture(scope="module", name="folder")
def fixture_folder():
    """The command for ordinary users, and an /etc in which one of them has ids."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    copy_command(folder)
    for uid in (UID, RANGE_UID):
        (folder / str(uid)).mkdir(0o700)
        os.chown(folder / str(uid), uid, uid)
    subprocess.run(["cp", "-a", "/etc", folder], check=True)
    for name, line in (("passwd", f"ranged:x:{RANGE_UID}:{RANGE_UID}::/:/bin/sh"),
                       ("subuid", "ranged:2100000000:65536"), ("subgid", "ranged:2100000000:65536")):
        with (folder / "etc" / name).open("a") as file:
            file.write(line + "\n")
    yield folder
    shutil.rmtree(folder)


def command_of(folder, uid):
    if not uid:
        return [CAY]
    return ["unshare", "-m", "sh", "-c", f'mount --bind {folder}/etc /etc && exec "$@"', "sh",
            "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env",
            f"HOME={folder}/{uid}", f"XDG_RUNTIME_DIR={folder}/{uid}", f"{folder}/cay"]


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_package_client_works_under_the_rule_of_its_group(client, place, folder, works_outside):
    if not works_outside(client):
        pytest.skip(f"{client} does not reach its registry outside a sandbox")
    uid, user = PLACES[place]
    for rules, is_allowed in ((["--allow", CLIENTS[client][1]], True), (["--allow", "example.com"], False)):
        done = subprocess.run([*command_of(folder, uid), "run", "-q", "-u", user, *rules, "--", "sh", "-c",
                               script_of(client)],
                              capture_output=True, timeout=PATIENCE, cwd="/")
        if b"Invalid cross-device link" in done.stderr:
            pytest.xfail("rename(2) between directories fails at this isolation level")
        assert (done.returncode == 0) == is_allowed, done
        if not is_allowed or place != "root-user":
            break
