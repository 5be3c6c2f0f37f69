# SPDX-License-Identifier: Apache-2.0
"""The tarball: installed below a prefix, used, removed."""

import platform

import pytest
from conftest import PACKAGES

UNPACK = f"tar -xf /share/cay-*-linux-{platform.machine()}.tar.gz -C /tmp\ncd /tmp/cay-*\n"


@pytest.fixture(scope="module", autouse=True)
def tarball():
    assert list(PACKAGES.glob(f"cay-*-linux-{platform.machine()}.tar.gz")), "run `make packages`"


@pytest.mark.parametrize("prefix", ["/usr/local", "/opt/cay"])
def test_cay_is_installed_used_and_removed(clean, prefix):
    done = clean.run(UNPACK + f"""
files() {{ {{ find /opt /usr/local || true; }} | sort; }}
files >/tmp/before
./install.sh --prefix {prefix} >/dev/null
./install.sh --prefix {prefix} >/dev/null
{prefix}/bin/cay doctor >/dev/null
{prefix}/bin/cay run -- echo run
{prefix}/bin/cay config schema >/tmp/schema
head -c 1 /tmp/schema
echo
grep -o 'ExecStart={prefix}/bin/cay serve' {prefix}/lib/systemd/system/cay.service
useradd --system plain
cp /etc/subuid /tmp
{prefix}/bin/cay setup --yes --user plain >/dev/null
grep -o plain /etc/subuid
{prefix}/bin/cay create --name living >/dev/null
{prefix}/share/cay/uninstall.sh --prefix {prefix} >/tmp/said 2>&1 || echo refused
grep -o living /tmp/said
{prefix}/share/cay/uninstall.sh --prefix {prefix} --force >/dev/null
cmp /etc/subuid /tmp/subuid
userdel plain
files | diff /tmp/before -
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["run", "{", f"ExecStart={prefix}/bin/cay serve",
                                        "plain", "refused", "living"]


def test_bad_arguments_are_refused(bookworm):
    done = bookworm.run(UNPACK + """
./install.sh --prefix relative || echo $?
./install.sh --bogus || echo $?
./uninstall.sh --prefix /nowhere || echo $?
""")
    assert done.stdout.split() == ["2", "2", "1"]
    assert 'not an absolute path' in done.stderr and "not installed in /nowhere" in done.stderr
