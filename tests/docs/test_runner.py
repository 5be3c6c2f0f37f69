# SPDX-License-Identifier: Apache-2.0
"""tools/run-tests: a test that fails once is flaky, one that fails three times has failed."""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "run-tests"
FLAKY = """
from pathlib import Path
def test_fails_at_first():
    mark = Path(__file__).with_name("ran")
    ran = mark.exists()
    mark.touch()
    assert ran
def test_passes():
    pass
"""


@pytest.fixture
def runner(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("run_tests", str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "pytest").touch()
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    return module


def entry(*lines, result="OK", name="cay:unit / test-x"):
    return {"name": name, "result": result, "stdout": "\n".join(lines) + "\n"}


def fake_meson(suite, monkeypatch, *runs):
    """Each element of runs is what one `meson test` reports, as a list of entries."""
    remaining = list(runs)
    asked = []

    def meson_run(_directory, options, _env):
        asked.append(list(options))
        entries = remaining.pop(0)
        return 1, {one["name"].rpartition(" / ")[2]: one for one in entries}

    monkeypatch.setattr(suite, "meson_run", meson_run)
    return asked


def test_a_program_that_passes_the_second_time_is_flaky(runner, monkeypatch):
    suite = runner.Suite("x")
    asked = fake_meson(suite, monkeypatch,
                       [entry("1..2", "ok 1 - a", "not ok 2 - b", result="FAIL"),
                        entry("1..1", "ok 1 - c", name="cay:unit / test-y")],
                       [entry("1..2", "ok 1 - a", "ok 2 - b")])
    suite.meson_test("build", "--suite", "unit")
    assert (suite.passed, suite.failed, suite.flaky) == (3, 0, ["test-x: b"])
    assert asked[1] == ["--num-processes", "1", "--suite", "unit", "test-x"]


def test_a_program_that_fails_three_times_has_failed(runner, monkeypatch):
    suite = runner.Suite("x")
    bad = [entry("1..2", "ok 1 - a", "not ok 2 - b", result="FAIL")]
    asked = fake_meson(suite, monkeypatch, bad, bad, bad)
    suite.meson_test("build")
    assert (suite.passed, suite.failed, suite.flaky) == (1, 1, [])
    assert len(asked) == 3


@pytest.mark.parametrize("one", [entry("1..2", "ok 1 - a", result="FAIL"),
                                 entry("1..1", "ok 1 - a", result="TIMEOUT"),
                                 entry("no plan", result="FAIL")])
def test_a_crash_counts_as_one_failure(runner, monkeypatch, one):
    suite = runner.Suite("x")
    fake_meson(suite, monkeypatch, [one], [one], [one])
    suite.meson_test("build")
    assert suite.failed == 1


def test_pytest_runs_only_what_failed_again(runner, tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "test_once.py").write_text(FLAKY)
    suite = runner.Suite("x")
    suite.pytest("cases")
    assert (suite.passed, suite.failed) == (2, 0)
    assert [name.split()[1] for name in suite.flaky] == ["test_fails_at_first"]


def test_pytest_that_fails_three_times_has_failed(runner, tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "test_bad.py").write_text("def test_x():\n    assert False\n")
    suite = runner.Suite("x")
    suite.pytest("cases")
    assert (suite.passed, suite.failed, suite.flaky) == (0, 1, [])


def test_a_command_that_hangs_is_ended_and_fails(runner, monkeypatch):
    monkeypatch.setattr(runner, "COMMAND_SECONDS", 0.2)
    suite = runner.Suite("x")
    assert suite.run(["sleep", "600"]) != 0
    assert "ended after 0.2 s" in suite.log_path.read_text(encoding="utf-8")
