# SPDX-License-Identifier: Apache-2.0
"""tools/run-tests: retries, the count of flaky tests, and the tiers."""

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


def finished(runner, name, passed=0, failed=0, skipped=0, flaky=()):
    suite = runner.Suite(name)
    suite.passed, suite.failed, suite.skipped = passed, failed, skipped
    suite.flaky = list(flaky)
    return suite


def test_the_runner_counts_flaky_tests_at_the_end(runner):
    suites = [finished(runner, "x", passed=2, flaky=["a", "b"]),
              finished(runner, "y", passed=3, failed=1, flaky=["c"])]
    assert runner.summary(suites, 61.2) == "61 s\n3 flaky\n5 passed, 1 failed"


def test_the_last_line_counts_skipped_tests_if_there_are_any(runner):
    last = runner.summary([finished(runner, "x", passed=1, skipped=2)], 0).splitlines()[-1]
    assert last == "1 passed, 0 failed, 2 skipped"


def test_every_suite_is_in_one_tier(runner):
    suites = [name for some in runner.TIERS.values() for name in some]
    assert sorted(suites) == sorted(runner.SUITES)
    assert not runner.TIERS.keys() & runner.SUITES.keys()


def test_the_runner_prints_the_time_of_each_suite_and_tier(runner, monkeypatch, capsys):
    monkeypatch.setattr(runner, "SUITES", {"x": lambda suite: suite.count("a", True),
                                           "y": lambda suite: suite.count("b", False)})
    suites = runner.run_tiers([("check", ("x",)), (None, ("y",))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("x ") and lines[0].endswith(" s")
    assert lines[1].startswith("tier check: ") and lines[1].endswith(" s")
    assert [suite.failed for suite in suites] == [0, 1]
    assert not any(line.startswith("tier ") for line in lines[2:])


def test_the_jobs_of_later_suites_run_beside_earlier_ones(runner, monkeypatch):
    seen = []
    monkeypatch.setattr(runner, "NEEDS", {"late": ("job",)})
    monkeypatch.setattr(runner, "JOBS", {"job": lambda: [(["true"], {})]})

    def early(suite):
        suite.count("the job has been started", runner.Ahead.took("job"))

    def late(suite):
        seen.append(runner.Ahead.took("job"))
        suite.count("job", suite.ahead("job"))

    monkeypatch.setattr(runner, "SUITES", {"early": early, "late": late})
    suites = runner.run_tiers([(None, ("early", "late"))])
    assert [suite.failed for suite in suites] == [0, 0] and seen == [True]


@pytest.mark.parametrize("status", ["true", "false"])
def test_a_suite_alone_runs_its_job_itself(runner, monkeypatch, status):
    monkeypatch.setattr(runner, "NEEDS", {"late": ("job",)})
    monkeypatch.setattr(runner, "JOBS", {"job": lambda: [([status], {})]})
    monkeypatch.setattr(runner, "SUITES",
                        {"late": lambda suite: suite.count("job", suite.ahead("job"))})
    suite, = runner.run_tiers([(None, ("late",))])
    assert suite.failed == (status == "false")


def test_long_tests_are_left_to_their_tier(runner, tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "conftest.py").write_text(
        "def pytest_configure(config):\n    config.addinivalue_line('markers', 'long: x')\n")
    (tmp_path / "cases" / "test_marks.py").write_text(
        "import pytest\ndef test_short():\n    pass\n"
        "@pytest.mark.long\ndef test_long():\n    assert False\n")
    short, long = runner.Suite("short"), runner.Suite("long")
    short.pytest("cases")
    long.pytest("cases", marks="long")
    assert (short.passed, short.failed, long.passed, long.failed) == (1, 0, 0, 1)
