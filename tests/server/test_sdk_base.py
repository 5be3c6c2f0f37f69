# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK for Python, unmodified: what the default template has."""

import os
import shutil

import pytest
from e2b import CommandExitException

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="its /usr can be changed as root only")


def test_the_default_template_has_sudo_and_a_usr_that_root_changes(shared):
    assert shared.commands.run("sudo id -u").stdout == "0\n"
    shared.commands.run("sudo sh -c 'echo made > /usr/local/bin/base-made'")
    assert shared.commands.run("cat /usr/local/bin/base-made").stdout == "made\n"
    assert not os.path.exists("/usr/local/bin/base-made")
    with pytest.raises(CommandExitException) as caught:
        shared.commands.run("sudo sh -c 'exit 3'")
    assert caught.value.exit_code == 3


def test_sudo_works_on_a_terminal(shared):
    out = []
    terminal = shared.pty.create(size=type("S", (), {"rows": 24, "cols": 80})(), timeout=60)
    shared.pty.send_stdin(terminal.pid, b"sudo sh -c 'tty; stty size; id -u'; exit\n")
    terminal.wait(on_pty=out.append)
    text = b"".join(out).decode()
    assert "/dev/pts/" in text and "24 80" in text and "\n0\r" in text


@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="there is no python3")
def test_the_default_template_has_python_under_its_plain_name(shared):
    assert shared.commands.run("python -c 'print(6 * 7)'").stdout == "42\n"


@pytest.mark.skipif(not shutil.which("pip", path="/usr/bin"), reason="there is no pip")
def test_pip_without_a_network_does_not_retry(shared):
    with pytest.raises(CommandExitException) as caught:
        shared.commands.run("pip install no-such-package-of-cay")
    assert "Retrying" not in caught.value.stderr + caught.value.stdout
    assert "externally-managed" not in caught.value.stderr
