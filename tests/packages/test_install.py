# SPDX-License-Identifier: Apache-2.0
"""install.sh and uninstall.sh of the tarball, with a tree of small files."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "package"
UNIT = "lib/systemd/system/cay.service"


class Tarball:
    """A tarball as it is unpacked; its cay prints nothing."""

    def __init__(self, folder):
        self.folder, self.prefix = folder / "unpacked", folder / "installed/here"
        for name in ("install.sh", "uninstall.sh"):
            self.folder.mkdir(exist_ok=True)
            shutil.copy(SCRIPTS / name, self.folder)
        self.put("bin/cay", "#!/bin/sh\n")
        (self.folder / "bin/cay").chmod(0o755)
        self.put("libexec/cay/helper")
        self.put("share/man/man1/cay.1")
        self.put(UNIT, "ExecStart=/usr/bin/cay serve\n")

    def put(self, path, text=""):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def run(self, script, prefix=None, umask=0o022):
        return subprocess.run([self.folder / script, "--prefix", prefix or self.prefix],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              umask=umask)

    def ok(self, script, **more):
        done = self.run(script, **more)
        assert (done.returncode, done.stderr) == (0, ""), done


@pytest.fixture(name="tarball")
def fixture_tarball(tmp_path):
    return Tarball(tmp_path)


def test_nothing_is_left_after_an_upgrade_and_removal(tarball):
    tarball.put("share/cay/only-before/file")
    tarball.ok("install.sh")
    shutil.rmtree(tarball.folder / "share/cay")
    tarball.ok("install.sh")
    assert not (tarball.prefix / "share/cay/only-before/file").exists()
    assert (tarball.prefix / "bin/cay").exists()
    tarball.ok("uninstall.sh")
    assert not tarball.prefix.parent.exists()


def test_an_upgrade_through_a_link_keeps_all_files(tarball):
    tarball.ok("install.sh")
    link = tarball.prefix.parent / "link"
    link.symlink_to(tarball.prefix)
    tarball.ok("install.sh", prefix=link)
    for path in ("bin/cay", "libexec/cay/helper", "share/cay/uninstall.sh"):
        assert (link / path).exists()
    tarball.ok("uninstall.sh", prefix=link)
    assert os.listdir(tarball.prefix.parent) == ["link"]


def test_users_can_read_what_root_installs_with_a_strict_umask(tarball):
    tarball.ok("install.sh", umask=0o077)
    for path in [tarball.prefix, *tarball.prefix.rglob("*")]:
        wanted = 0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644
        assert path.stat().st_mode & 0o777 == wanted, path


def test_what_a_failed_installation_has_copied_can_be_removed(tarball):
    (tarball.prefix / "share/man").mkdir(parents=True)
    (tarball.prefix / "share/man/man1").write_text("in the way")
    done = tarball.run("install.sh")
    assert done.returncode != 0 and (tarball.prefix / "bin/cay").exists()
    tarball.ok("uninstall.sh")
    left = sorted(str(path.relative_to(tarball.prefix)) for path in tarball.prefix.rglob("*"))
    assert left == ["share", "share/man", "share/man/man1"]


@pytest.mark.parametrize("name", ["with space", "a|b", "a&b", "a%nb", "a\nb", "a$b", "a'b"])
def test_a_prefix_that_a_unit_cannot_have_is_refused(tarball, name):
    prefix = tarball.prefix.parent / name
    done = tarball.run("install.sh", prefix=prefix)
    assert done.returncode == 2 and "other characters than" in done.stderr
    assert not prefix.exists()


def test_the_unit_names_the_prefix(tarball):
    tarball.ok("install.sh")
    assert (tarball.prefix / UNIT).read_text() == f"ExecStart={tarball.prefix}/bin/cay serve\n"
