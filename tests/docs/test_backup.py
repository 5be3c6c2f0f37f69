# SPDX-License-Identifier: Apache-2.0
"""docs/backup.md: a state with a template, a session on disk and a server is moved."""

import os
import re
import shutil
import subprocess

import pages
import pytest

PAGE = (pages.ROOT / "docs" / "backup.md").read_text(encoding="utf-8")


def block(section, number=0):
    """A block of commands of the page, in a state directory of the test."""
    found = re.findall(r"(?<!-->\n)^```sh\n(.*?)^```$", PAGE.split(f"\n## {section}")[1], re.M | re.S)
    assert "/var/lib/cay" in found[number]
    return found[number].replace("/var/lib/cay", '"$CAY_HOME"')


SERVE = """
server=
end() {
    test -z "$server" || kill $server || true
    wait
    cay rm --all
    test -z "$(cay ls --quiet)"
}
trap end EXIT
serve() {
    cay serve --listen 127.0.0.1:0 --reserve 0 >exports 2>log &
    server=$!
    until grep -q E2B_API_KEY exports; do sleep 0.05; kill -0 $server; done
    . ./exports
}
"""


@pytest.fixture
def machine(tmp_path):
    """Runs scripts as root in mounts of their own, so that `cay kill --all` means no others."""
    if os.geteuid() != 0:
        pytest.skip("templates and disks are for root")

    def run(script):
        setup = f"mount -t tmpfs none /run\nexport CAY_WARM=off\ncd '{tmp_path}'\n{SERVE}"
        done = subprocess.run(["unshare", "--mount", "bash", "-euo", "pipefail", "-c",
                               setup + script], env=pages.environment(), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for name in ("sh", "cat", "rm", "ls"):
        (tmp_path / "root" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / "bin" / name).symlink_to("busybox")
    shutil.copy("/bin/busybox", tmp_path / "root" / "bin")
    (tmp_path / "root" / "etc").mkdir()
    (tmp_path / "root" / "etc" / "motd").write_text("deleted inside")
    (tmp_path / "cay.yaml").write_text("template: tiny\nstorage: disk\n")
    return run


def test_a_state_works_elsewhere(machine):
    """A file that was removed inside is a device on the disk, which tar has to copy."""
    first = machine(f"""
export CAY_HOME=$PWD/one
cay template create tiny --from-dir root
id=$(cay session start --config cay.yaml report)
cay exec $id -- sh -c 'echo draft > report.txt'
cay exec -u root $id -- sh -c 'rm /etc/motd; echo mine > /bin/own'
serve
echo "key=$(cay key new alice)" >key
curl -fsS -H "X-API-KEY: $E2B_API_KEY" -d '{{"templateID": "host", "timeout": 3600}}' \
    -H 'Content-Type: application/json' $E2B_API_URL/sandboxes >/dev/null
kill $server; wait $server || true; server=
{block("Back up", 0)}
cay ls
stat -c %a cay.tar.gz
""")
    assert "stopped" in first and "\n600\n" in first
    second = machine(f"""
export CAY_HOME=$PWD/two
{block("Restore")}
id=$(cay session start report)
cay exec $id -- sh -c 'cat report.txt /bin/own; ls -ln report.txt; ls /etc/motd 2>&1 || true'
serve
. ./key
curl -fsS -H "X-API-KEY: $key" $E2B_API_URL/v2/sandboxes
kill $server; wait $server || true; server=
""")
    for text in ("tiny", "report", "alice", "draft\nmine\n", "No such file", "1000", "[]"):
        assert text in second, second


def test_databases_are_copied_while_the_server_runs(machine, tmp_path):
    copied = machine(f"""
export CAY_HOME=$PWD/one
cay template create tiny --from-dir root
cay session start --config cay.yaml report >/dev/null
serve
cay key new alice >/dev/null
mkdir -m 700 two; cd two
{block("Back up", 1)}
cd ..
kill $server; wait $server || true; server=
cay kill --all
export CAY_HOME=$PWD/two
cay key ls
cay session ls --quiet
cmp one/serve.key two/serve.key
""")
    assert "alice" in copied and "report" in copied
