# SPDX-License-Identifier: Apache-2.0
"""cay explain, and the network rules of cay run."""

import json
import os
import subprocess

import pytest
from conftest import CAY, PATIENCE
from test_manual import blocks, page, transcripts


def cay(*words, cwd=None):
    return subprocess.run([CAY, *words], capture_output=True, text=True, timeout=PATIENCE,
                          cwd=cwd, check=False)


def explain(*words, **options):
    done = cay("explain", "network", "-o", "json", *words, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_examples_of_the_page_do_what_it_says(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cay").symlink_to(os.path.abspath(CAY))
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    (example,) = blocks(page("cay-explain.1.scd").split("# EXAMPLES")[1])
    for command, expected in transcripts(example):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environ, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=PATIENCE, check=False)
        assert done.stdout == expected, command


@pytest.mark.parametrize("block", blocks(
    page("cay-policy.5.scd").split("# NETWORK RULES")[1].split("# DIRECTORIES")[0]))
def test_the_policies_of_the_manual_are_read(tmp_path, block):
    (tmp_path / "policy.yaml").write_text(block)
    answer = explain("--config", "policy.yaml", "pypi.org", cwd=tmp_path)
    assert answer["verdict"] == "allow"


@pytest.mark.parametrize(("words", "verdict", "rule"), [
    (["pypi.org"], "deny", "default"),
    (["--network", "host", "pypi.org"], "allow", "default"),
    (["--network", "rules", "pypi.org"], "deny", "default"),
    (["--network", "open", "--deny", "pypi", "pypi.org:22"], "deny", "!pypi.org (pypi)"),
    (["--allow", "a.test:22", "a.test"], "allow", "a.test:22"),
    (["--allow", "a.test:22", "A.test.:23"], "deny", "default"),
    (["--allow", "[2001:db8::/32]:22", "[2001:db8::1]:22"], "allow", "[2001:db8::/32]:22"),
    (["--allow", "192.0.2.1", "192.0.2.1:80"], "allow", "192.0.2.1"),
    (["--allow", "POST a.test", "a.test"], "requests", "POST a.test"),
    (["--allow", "POST a.test", "--method", "POST", "a.test/x"], "allow", "POST a.test"),
    (["--allow", "POST a.test", "a.test/x"], "deny", "default"),
])
def test_an_explanation_names_the_rule(words, verdict, rule):
    answer = explain(*words)
    assert (answer["verdict"], answer["rule"]) == (verdict, rule)
    assert answer["why"]


def test_rules_of_the_command_line_are_added_to_those_of_a_file(tmp_path):
    (tmp_path / "cay.yaml").write_text(
        "deny: [b.test]\nallow: [a.test]\nnetwork_groups: {pypi: 'm.test:1 n.test'}\n")
    words = ["--config", "cay.yaml", "--allow", "pypi", "--allow", "b.test"]
    found = {host: explain(*words, host, cwd=tmp_path)["rule"]
             for host in ("a.test", "b.test", "c.test", "m.test:1", "n.test", "pypi.org")}
    assert found == {"a.test": "a.test", "b.test": "!b.test", "c.test": "default",
                     "m.test:1": "m.test:1 (pypi)", "n.test": "n.test (pypi)",
                     "pypi.org": "pypi.org (pypi)"}


@pytest.mark.parametrize(("words", "part"), [
    (["a.test:0"], "write HOST, HOST:PORT"),
    (["a.test:70000"], "write HOST, HOST:PORT"),
    ([":80"], "write HOST, HOST:PORT"),
    (["[::1"], "write HOST, HOST:PORT"),
    (["--allow", "pypy", "a.test"], "did you mean pypi?"),
    (["--allow", "https://a.test", "a.test"], "leave out https://"),
    (["--network", "open", "--address", "x", "a.test"], "192.0.2.1"),
    (["--deny", "pypi", "a.test"], "add --allow RULE or --network open"),
    (["--network", "none", "--allow", "pypi", "a.test"], "--network open"),
])
def test_a_mistake_is_answered_with_what_is_allowed(words, part):
    done = cay("explain", "network", *words)
    assert done.returncode != 0 and part in done.stderr


@pytest.mark.parametrize("words", [["--allow", "pypi"], ["--network", "open"],
                                   ["--config", "policy.yaml"]])
def test_a_sandbox_with_network_rules_has_a_nameserver(tmp_path, words):
    (tmp_path / "policy.yaml").write_text("paths: {}\nnetwork: [pypi]\n")
    done = cay("run", *words, "--", "cat", "/etc/resolv.conf", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "nameserver 100.64.0.1\n"


def test_a_policy_with_network_rules_is_not_for_the_network_of_the_host(tmp_path):
    (tmp_path / "policy.yaml").write_text("paths: {}\nnetwork: [pypi]\n")
    done = cay("run", "--network", "host", "--config", "policy.yaml", "--", "true",
               cwd=tmp_path)
    assert done.returncode == 125 and "leave the network out" in done.stderr
