# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: installed in Debian 12 and nothing else, used, removed, purged."""

import subprocess

import pytest
from conftest import PACKAGES

ARCHITECTURE = subprocess.run(["dpkg", "--print-architecture"], check=True, text=True,
                              capture_output=True).stdout.strip()
INSTALL = """
arch=$(dpkg --print-architecture)
apt-get -qq update
apt-get -qq -y install --no-install-recommends /share/cay_*_$arch.deb >/dev/null
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
    assert names == ["cay", "libcay-dev", "libcay0", "python3-cay"], "run `package/deb dist`"


def test_lintian_finds_no_error():
    done = subprocess.run(["lintian", "--allow-root", "--fail-on=error", "--tag-display-limit=0",
                           *PACKAGES.glob("*.deb")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_works_for_root_and_for_a_user(bookworm):
    done = bookworm.run(INSTALL + """
cay --version
cay doctor >/dev/null
cay run -- echo root
id=$(cay create)
cay exec "$id" -- echo executed
useradd --create-home ordinary
su ordinary -c 'cay run -- echo ordinary'
for page in cay.1 cay-run.1 cay-config.5 cay-errors.7; do
    ls /usr/share/man/man?/$page.gz >/dev/null || echo "no $page"
done
test -e /lib/systemd/system/cay.service -a -e /lib/systemd/system/cay.socket
test -e /usr/share/bash-completion/completions/cay
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[1:] == ["root", "executed", "ordinary"]


def test_the_server_creates_sandboxes(bookworm):
    done = bookworm.run(INSTALL + """
apt-get -qq -y install --no-install-recommends curl >/dev/null
cay serve --listen 127.0.0.1:3999 >/tmp/log 2>&1 &
for i in $(seq 300); do
    eval "$(cay env 2>/dev/null)"
    test "${E2B_API_KEY:-}" && break
    sleep 0.1
done
curl -sS --fail -H "X-API-Key: $E2B_API_KEY" -H 'Content-Type: application/json' \\
    -d '{"templateID": "base"}' "$E2B_API_URL/sandboxes"
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"sandboxID"' in done.stdout


def test_removal_prints_what_runs_and_ends_it(bookworm):
    done = bookworm.run(INSTALL + COUNT + """
cay create --name of-root >/dev/null
cay create --name of-root-2 >/dev/null
useradd --create-home ordinary
su ordinary -c 'cay create --name of-user >/dev/null'
cay serve --listen 127.0.0.1:3999 >/dev/null 2>&1 &
for i in $(seq 300); do cay env >/dev/null 2>&1 && break; sleep 0.1; done
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
    for text in ("ending the processes of cay", "serve --listen 127.0.0.1:3999",
                 "ending the sandboxes of root", "of-root-2", "ending the sandboxes of ordinary",
                 "of-user", "remove from /etc/subuid: plain:"):
        assert text in said
    assert left.splitlines() == ["0", "setup undone", "state kept"]


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
