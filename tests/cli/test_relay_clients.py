# SPDX-License-Identifier: Apache-2.0
"""Package clients, unmodified, in sandboxes whose rules allow the group of their registry.

They use the machine's own network: a client that fails outside a sandbox, or is not installed in /usr,
is skipped.  Cargo, which Debian has too old, may be that of rustup.
"""

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
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


def sysroot():
    """The directory of the Rust toolchain; /usr if there is none."""
    for program in (Path.home() / ".cargo" / "bin" / "rustc", "rustc"):
        with suppress(OSError, subprocess.CalledProcessError):
            return subprocess.run([program, "--print", "sysroot"], capture_output=True, text=True,
                                  check=True).stdout.strip()
    return "/usr"


RUST, RUST_INSIDE = sysroot(), "/opt/rust"


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
    "go": ("/usr/local/go/bin/go", "go", "go mod init x && GOFLAGS=-mod=mod go get golang.org/x/text@v0.3.7"),
    "cargo": (f"{RUST}/bin/cargo", "crates",
              "mkdir src && touch src/lib.rs && printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n"
              "[dependencies]\\ncfg-if=\"1\"\\n' > Cargo.toml && cargo fetch"),
    "apt": ("/usr/bin/apt-get", "debian", APT),
    "curl": ("/usr/bin/curl", "pypi", "curl -sSf -o page https://{host}/ && test -s page"),
}
PLACES = {"root-user": (0, "user"), "root-root": (0, "root"), "single-user": (UID, "user"),
          "range-user": (RANGE_UID, "user"), "range-root": (RANGE_UID, "root")}


def script_of(client, rust=RUST_INSIDE):
    _, group, script = CLIENTS[client]
    start = ("set -e; mkdir /tmp/work.$$; cd /tmp/work.$$\n"
             f"export HOME=$PWD PATH={rust}/bin:$PATH:/usr/local/go/bin:/usr/lib/go/bin\n")
    return start + script.replace("{host}", host_of(group))


@pytest.fixture(scope="module", name="works_outside")
def fixture_works_outside():
    known = {}

    def works(client):
        if client not in known:
            done = Path(CLIENTS[client][0]).exists() and subprocess.run(
                ["sh", "-c", f"({script_of(client, RUST)}\n); code=$?; rm -rf /tmp/work.$$; exit $code"],
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
    (folder / "rust").mkdir()
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
    mounts = f"mount --bind {RUST} {folder}/rust"
    if not uid:
        return ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", CAY]
    return ["unshare", "-m", "sh", "-c", f'{mounts} && mount --bind {folder}/etc /etc && exec "$@"', "sh",
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
        done = subprocess.run([*command_of(folder, uid), "run", "-q", "-u", user,
                               "-v", f"{folder}/rust:{RUST_INSIDE}:ro", *rules, "--", "sh", "-c",
                               script_of(client)],
                              capture_output=True, timeout=PATIENCE, cwd="/")
        assert (done.returncode == 0) == is_allowed, done
        if not is_allowed or place != "root-user":
            break


@pytest.mark.parametrize("place", PLACES)
def test_a_place_has_the_isolation_level_of_its_name(place, folder):
    uid, _ = PLACES[place]
    cay = command_of(folder, uid)
    box = subprocess.run([*cay, "create", "-q", "--allow", "pypi"], capture_output=True, text=True,
                         timeout=PATIENCE, cwd="/", check=True).stdout.strip()
    try:
        shown = subprocess.run([*cay, "inspect", "-o", "json", box], capture_output=True, text=True,
                               timeout=PATIENCE, cwd="/", check=True).stdout
        assert json.loads(shown)["level"] == place.partition("-")[0]
    finally:
        subprocess.run([*cay, "kill", box], timeout=PATIENCE, cwd="/", check=True)


@pytest.mark.parametrize("words", [["--allow", "pypi"], ["--network", "open"], ["--join", "team"]])
def test_a_sandbox_at_the_level_landlock_has_no_rules(words, tmp_path):
    config = tmp_path / "weak.yaml"
    config.write_text("type: native\nlevel: landlock\n")
    done = subprocess.run([CAY, "run", "-q", "--config", config, *words, "--", "true"],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 125 and done.stdout == ""
    assert "landlock" in done.stderr and "no network namespace" in done.stderr
