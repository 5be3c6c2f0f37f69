# SPDX-License-Identifier: Apache-2.0
"""cay.WarmInterpreter, and executions that start from one."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

import cay
from cay.errors import NotFoundError, SandboxValueError

PATIENCE = 120
BUILD = Path(os.environ.get("CAY_BUILD", "build"))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "home"))


def test_a_saved_interpreter_is_used_listed_and_removed() -> None:
    assert cay.WarmInterpreter.list() == []
    cay.WarmInterpreter.create(preload=["fractions", "no_such_module"])
    (found,) = cay.WarmInterpreter.list()
    assert (found.template, found.language) == ("host", "python")
    assert found.preload == ("fractions", "no_such_module")
    assert found.size > 1 << 20 and found.created <= found.used and found.failure is None
    with cay.CodeInterpreter(preload=found.preload) as interpreter:
        done = interpreter.run("import sys; 'fractions' in sys.modules")
        assert (done.text, done.is_warm) == ("True", True)
    assert not cay.run_code("1", preload=["json"]).is_warm
    found.remove()
    assert cay.WarmInterpreter.list() == []
    with pytest.raises(NotFoundError):
        found.remove()


def digest(path: str) -> str:
    return hashlib.sha256((BUILD / path).read_bytes()).hexdigest()[:16]


def test_the_name_depends_on_the_driver_and_cannot_be_chosen() -> None:
    cay.WarmInterpreter.create(preload=[])
    (found,) = cay.WarmInterpreter.list()
    parts = (
        Path("/proc/sys/kernel/random/boot_id").read_text(),
        cay.__version__,
        "python",
        digest("src/code/code_python_start.json"),
        digest("src/init/warm-save.so"),
        "",  # no modules
        "",  # the default user
        "host",
    )
    texts = "".join(f"{part}\0" for part in parts).encode()
    no_identity = bytes(32)  # of the template "host"
    assert found.id == hashlib.sha256(texts + no_identity).hexdigest()[:32]


def test_the_first_execution_saves_one_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAY_WARM", "on")
    assert not cay.run_code("1", preload=[]).is_warm
    end = time.monotonic() + PATIENCE
    while not cay.WarmInterpreter.list() and time.monotonic() < end:
        time.sleep(0.05)
    assert [one.preload for one in cay.WarmInterpreter.list()] == [()]
    assert cay.run_code("1", preload=[]).is_warm


def test_a_failure_has_its_reason() -> None:
    with pytest.raises(NotFoundError):
        cay.WarmInterpreter.create("no-such-template")
    (found,) = cay.WarmInterpreter.list()
    assert found.size == 0 and "template" in str(found.failure)


def test_a_list_that_is_none_is_refused() -> None:
    with pytest.raises(SandboxValueError, match="invalid list of modules"):
        cay.WarmInterpreter.create(preload=["a b"])
    with pytest.raises(TypeError, match="sequence"):
        cay.WarmInterpreter.create(preload="numpy")
