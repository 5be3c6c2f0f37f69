# SPDX-License-Identifier: Apache-2.0
"""What the Debian package runs as ordinary users when it is removed."""

import os
import pty
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "debian/cay.prerm"
UID = 54324


def test_commands_of_users_have_no_terminal(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    os.chown(tmp_path, UID, UID)
    function = re.search(r"^as_owner\(\) \{.*?^\}\n", SCRIPT.read_text(), re.M | re.S).group()
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-euc", function + """
(: </dev/tty) && echo root has a terminal
as_owner "$0" sh -c 'id -u; (: </dev/tty) || echo no terminal'
""", str(tmp_path)])
    seen = b""
    try:
        while data := os.read(fd, 4096):
            seen += data
    except OSError:  # EIO: all have closed it
        pass
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, seen
    assert seen.decode().splitlines() == ["root has a terminal", str(UID), "no terminal"]
