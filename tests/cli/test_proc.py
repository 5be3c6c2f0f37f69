# SPDX-License-Identifier: Apache-2.0
"""Hosts that have done something to their own /proc, as containers do."""

import os
import subprocess

import pytest
from conftest import CAY, PATIENCE


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can change its /proc")
    return tmp_path


def inside(folder, script):
    """Runs a script in a mount namespace of its own."""
    return subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True,
                          env={**os.environ, "FOLDER": str(folder), "CAY": CAY,
                               "CAY_HOME": str(folder / "home")},
                          timeout=PATIENCE, check=False)


def test_what_a_host_hides_by_another_file_of_its_proc_is_hidden_inside(folder):
    """The other one is nobody's inside, what it hides is not."""
    done = inside(folder, """
        mkdir "$FOLDER/proc" && mount -t proc proc "$FOLDER/proc" &&
        mount --bind /proc/kmsg /proc/kallsyms && mount --bind /proc/kmsg /proc/interrupts &&
        "$CAY" run -- sh -c 'id -u; cat /proc/kallsyms /proc/interrupts | wc -c; cat /proc/kmsg'
    """)
    assert done.stdout == "1000\n0\n", done.stderr
    assert "/proc/kmsg: Permission denied" in done.stderr


def test_where_proc_cannot_be_made_that_is_what_is_told(folder):
    """By PID 1, which may be gone by the time its root is made."""
    # One that is whole elsewhere on the machine, in a chroot for instance, would allow another.
    done = inside(folder, """
        findmnt -nr -t proc -o TARGET | grep -vx /proc | xargs -r umount -l
        mount -t tmpfs none /proc/sys && "$CAY" create --storage disk
    """)
    assert done.returncode == 13
    assert done.stderr.startswith("cay: unavailable: proc: Operation not permitted"), done.stderr
    assert os.listdir(folder / "home" / "sandboxes") == []
