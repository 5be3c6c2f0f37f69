# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: installed in clean systems, used, removed, purged."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import PACKAGES, ROOT, USED

ARCHITECTURE = subprocess.run(["dpkg", "--print-architecture"], check=True, text=True,
                              capture_output=True).stdout.strip()
INSTALL = """
arch=$(dpkg --print-architecture)
install /share/cay_*_$arch.deb
"""
# Processes by their programs: sandboxes run PID 1 from a file in memory.
COUNT = """
count() {
    local process programs=0
    for process in /proc/[0-9]*; do
        case $(readlink $process/exe) in *cay*) programs=$((programs + 1)) ;; esac
    done 2>/dev/null
    echo $programs
}
"""


@pytest.fixture(scope="module", autouse=True)
def packages():
    names = [path.name.split("_")[0] for arch in (ARCHITECTURE, "all")
             for path in sorted(PACKAGES.glob(f"*_{arch}.deb"))]
    assert names == ["cay-store", "cay", "libcay-dev", "libcay0", "python3-cay"], "run `package/deb dist`"


def test_the_flags_of_debian_leave_the_strongest_checks_of_buffers():
    """meson.build sets _FORTIFY_SOURCE=3; Debian's 2 would come after it."""
    done = subprocess.run(
        ["make", "--silent", "--eval=cay-flags:;@dpkg-buildflags --get CPPFLAGS", "-f",
         "debian/rules", "cay-flags"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "-Wdate-time" in done.stdout
    assert "FORTIFY" not in done.stdout
    assert "'-D_FORTIFY_SOURCE=3'" in (ROOT / "meson.build").read_text()


def test_lintian_finds_no_error():
    done = subprocess.run(["lintian", "--allow-root", "--fail-on=error", "--tag-display-limit=0",
                           *PACKAGES.glob("*.deb")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_works_for_root_and_for_a_user(clean):
    done = clean.run(INSTALL + """
/tests/use
useradd --create-home ordinary
su ordinary -c /tests/use
for page in cay.1 cay-run.1 cay-config.5 cay-errors.7; do
    ls /usr/share/man/man?/$page.gz >/dev/null || echo "no $page"
done
test -e /lib/systemd/system/cay.service -a -e /lib/systemd/system/cay.socket
test -e /usr/share/bash-completion/completions/cay
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [*USED, "python3", "removed"] * 2


def test_the_server_serves_the_sdk_of_e2b(clean):
    with clean.live() as live:
        live.do(INSTALL + "useradd --create-home ordinary")
        for user, options in ((None, []), ("ordinary", ["--no-pause"])):
            live.serve(user=user)
            live.sdk(*options)
            assert live.dashboard().lower() == "<!doctype html>"
            live.stop_server()


def test_removal_prints_what_runs_and_ends_it(clean):
    done = clean.run(INSTALL + COUNT + """
cay create --name of-root >/dev/null
cay create --name of-root-2 >/dev/null
useradd --create-home ordinary
su ordinary -c 'cay create --name of-user >/dev/null'
serve cay serve --listen 127.0.0.1:0 >/dev/null
useradd --system plain
cp /etc/subuid /etc/subgid /tmp
cay setup --yes --user plain >/dev/null
grep -q plain /etc/subgid
ls /sys/fs/cgroup >/tmp/before
test "$(count)" -gt 3
apt-get -qq -y remove cay
echo "left $(count)"
cmp /etc/subuid /tmp/subuid && cmp /etc/subgid /tmp/subgid && echo "setup undone"
test -d /var/lib/cay && echo "state kept"
apt-get -qq -y purge cay >/dev/null
find / -xdev -name '*cay*' -not -path '/share/*'
find /run /tmp -name '*cay*'
""")
    assert done.returncode == 0, done.stdout + done.stderr
    said, _, left = done.stdout.partition("left ")
    for text in ("ending the processes of cay", "serve --listen 127.0.0.1:0",
                 "ending the sandboxes of root", "of-root-2", "ending the sandboxes of ordinary",
                 "of-user", "remove from /etc/subuid: plain:"):
        assert text in said
    assert left.splitlines() == ["0", "setup undone", "state kept"]


# Programs in the place of systemd's, which write down their arguments.
SYSTEMD = """
mkdir -p /run/systemd/system
for program in systemctl deb-systemd-invoke; do
    printf '#!/bin/sh\\necho "%s $*" >>/tmp/calls\\n' $program >/usr/bin/$program
    chmod +x /usr/bin/$program
done
"""


def test_the_package_restarts_the_server_and_leaves_sandboxes_at_an_upgrade(clean):
    """Installing the same version again runs the same scripts as an upgrade."""
    done = clean.run(INSTALL + SYSTEMD + """
id=$(cay create)
quietly apt-get -q -y install --reinstall /share/cay_*_$arch.deb
cay exec $id -- echo living
grep cay /tmp/calls
rm /tmp/calls
quietly apt-get -q -y remove cay
grep cay /tmp/calls
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "living", "deb-systemd-invoke try-restart cay.service",
        "deb-systemd-invoke stop cay.socket cay.service"]


# Prints the sandbox and the numbers of its process before and after.
RESTARTS = """
request() {
    curl -sS -f --retry 100 --retry-connrefused -H "X-API-KEY: $E2B_API_KEY" "$@" \\
        "$E2B_API_URL/sandboxes"
}
show() {
    echo "$1 $(cay ls --all --quiet) $(pgrep -x cay-init) $(request | grep -c $id)"
}
cd /tmp
systemctl start cay.service
. <(cay env)
request -H "Content-Type: application/json" -d '{"templateID": "base", "timeout": 600}' >sandbox
id=$(grep -o '"sandboxID":"[^"]*' sandbox | cut -d '"' -f 4)
show started
systemctl restart cay.service
show restarted
server=$(systemctl show -P MainPID cay.service)
systemctl kill --signal=KILL --kill-who=main cay.service
while [ "$(systemctl show -P MainPID cay.service)" = $server ]; do
    sleep 0.1
done
show killed
cay kill --all >/dev/null
systemctl stop cay.service cay.socket
pgrep -x cay-serve || echo stopped
"""


def test_sandboxes_outlive_their_service_of_systemd(clean, tmp_path):
    for path in PACKAGES.glob("cay_*.deb"):
        shutil.copy(path, tmp_path)
    (tmp_path / "script").write_text(RESTARTS)
    cgroup = f"cay-test-{os.getpid()}"
    done = clean.run(f"""{INSTALL}
install curl procps systemd
exec /tests/boot {cgroup} /share/script
""", share=tmp_path)
    subprocess.run(["find", *Path("/sys/fs/cgroup").glob(f"**/{cgroup}"), "-depth", "-type", "d",
                    "-exec", "rmdir", "{}", "+"], check=True)
    assert (tmp_path / "out").exists(), done.stdout + done.stderr
    lines = (tmp_path / "out").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [
        "started", "restarted", "killed", "stopped", "status"], lines
    assert len({tuple(line.split()[1:]) for line in lines[:3]}) == 1, lines
    assert lines[0].endswith(" 1") and lines[-1] == "status 0", lines


def test_python_uses_the_library_of_the_system(trixie):
    """Debian 12 has no pydantic 2."""
    done = trixie.run(INSTALL + """
apt-get -qq -y install --no-install-recommends /share/libcay0_*_$arch.deb \\
    /share/python3-cay_*.deb >/dev/null
python3 - <<END
import cay, cay.nexau
from importlib.metadata import version
assert version("cay") == cay.__version__
with cay.Sandbox.create(ephemeral=True) as sandbox:
    print(sandbox.exec(["echo", "inside"]).stdout, end="")
END
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "inside\n"


SERVE_STORE = """
store=(cay serve --node naaa --reserve 0 --listen 127.0.0.1:0 --store postgresql://cay@127.0.0.1:1/cay)
"""


def test_servers_share_a_database_with_a_package_of_its_own(bookworm):
    """No database listens there: the server goes on, and logs the attempt of cay-store."""
    done = bookworm.run(INSTALL + SERVE_STORE + """
! "${store[@]}" 2>/tmp/error
grep -o 'install the Debian package cay-store' /tmp/error
install /share/cay-store_*_$arch.deb
serve "${store[@]}" >/tmp/said
until grep -q '^cay.*: store: ' /tmp/serve.log; do
    kill -0 $server || { cat /tmp/serve.log; exit 1; }
    sleep 0.1
done
grep -o "lists have only this node's sandboxes" /tmp/serve.log
kill $server
wait $server
apt-get -qq -y remove cay >/dev/null
test ! -e /usr/libexec/cay && echo removed
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["install the Debian package cay-store",
                                        "lists have only this node's sandboxes", "removed"]


def test_a_program_is_built_with_the_development_package(bookworm):
    done = bookworm.run(INSTALL + """
apt-get -qq -y install --no-install-recommends gcc libc6-dev pkg-config \\
    /share/libcay0_*_$arch.deb /share/libcay-dev_*_$arch.deb >/dev/null
cat >/tmp/a.c <<END
#include <cay/sandbox.h>
#include <stdio.h>
int main(void) { return puts(cay_version()) < 0; }
END
cc $(pkg-config --cflags libcay) /tmp/a.c $(pkg-config --libs libcay) -o /tmp/a && /tmp/a
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(".") == 2
