# SPDX-License-Identifier: Apache-2.0
"""The command and sandboxes of the backend "local", which nothing keeps in."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CAY, PATIENCE

LIBRARY = Path(CAY).parent / "libcay.so"


@pytest.fixture
def local(boxes, tmp_path):
    """The id of one that works in tmp_path."""
    if b"__asan_init" in LIBRARY.read_bytes():
        pytest.skip("a library with a sanitizer ends a Python that loads it")
    cay = ctypes.CDLL(str(LIBRARY))
    text = json.dumps({"type": "local", "work_dir": str(tmp_path), "ttl": 600}).encode()
    config, sandbox = ctypes.c_void_p(), ctypes.c_void_p()
    length = ctypes.c_size_t(len(text))
    assert cay.cay_config_parse(text, length, None, None, ctypes.byref(config), None) == 0
    assert cay.cay_backend_create(config, ctypes.byref(sandbox), None) == 0
    cay.cay_sandbox_id.restype = ctypes.c_char_p
    made = cay.cay_sandbox_id(sandbox).decode()
    cay.cay_sandbox_free(sandbox)
    cay.cay_config_free(config)
    boxes.made.append(made)
    return made


def test_ls_and_inspect_say_that_nothing_keeps_it_in(boxes, local, tmp_path):
    (row,) = [row for row in boxes.ok("ls").text.splitlines() if row.startswith(local)]
    assert row.split()[2:4] == ["local", "running"] and "no limit" in row
    text = boxes.ok("inspect", local).text
    assert "type:      local\n" in text and "isolation: none" in text
    info = boxes.ok("inspect", "-o", "json", local).json
    assert (info["type"], info["level"], info["layers"], info["enforced"]) == (
        "local", "none", [], [])
    assert (info["workdir"], info["network"]) == (str(tmp_path), "host")


def test_commands_files_and_processes_are_reached_by_its_id(boxes, local, tmp_path):
    done = boxes.ok("exec", local[:12], "--", "sh", "-c", "pwd; echo $$; echo 1 > made")
    assert done.text.splitlines()[0] == str(tmp_path)
    assert (tmp_path / "made").read_text() == "1\n"
    boxes.ok("exec", "--detach", "--tag", "sleeper", local, "--", "sleep", "1000")
    (row,) = [row for row in boxes.ok("ps", local).text.splitlines() if "sleeper" in row]
    assert os.path.exists(f"/proc/{row.split()[0]}")
    boxes.ok("kill", local)
    assert not os.path.exists(f"/proc/{row.split()[0]}")
    assert (tmp_path / "made").exists()


def test_a_pause_is_refused(boxes, local):
    assert boxes.fails(12, "pause", local).startswith("cay: unsupported: ")


def test_cay_full_starts_with_no_signal_blocked(local, tmp_path):
    """The small program becomes cay-full once it knows that the sandbox is local."""
    if not Path(CAY).with_name("cay-full").exists():
        pytest.skip("here the command is one program")
    shutil.copy(CAY, tmp_path / "cay")
    (tmp_path / "cay-full").write_text(
        f"#!{sys.executable}\nimport signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n")
    (tmp_path / "cay-full").chmod(0o755)
    done = subprocess.run([tmp_path / "cay", "logs", local], capture_output=True,
                          timeout=PATIENCE, check=True)
    assert done.stdout == b"set()\n"
