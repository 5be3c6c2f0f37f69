# SPDX-License-Identifier: Apache-2.0
"""The command line: options anywhere, help that fits a screen, errors that help."""

import re
import subprocess

import pytest
from conftest import CAY, PATIENCE

COMMANDS = ("resolve explain roots read stat exists list glob grep write append edit delete move "
            "copy mkdir export import").split()
SANDBOX_COMMANDS = ("run try create exec shell ls inspect ps logs cp cat put pause resume start kill rm gc "
                    "network events forward port checkpoint rollback checkpoints fork doctor mcp").split()
TEMPLATE_COMMANDS = ["create", "ls", "inspect", "rm", "prune"]
SNAPSHOT_COMMANDS = ["create", "ls", "inspect", "export", "import", "rm"]
VOLUME_COMMANDS = ["create", "ls", "rm", "cp"]
SESSION_COMMANDS = ["ls", "show", "start", "pause", "resume", "stop", "rm"]
CONFIG_COMMANDS = ["check", "schema"]
EXPLAIN_COMMANDS = ["network"]


def run(*words):
    done = subprocess.run([CAY, *words], capture_output=True, text=True, timeout=PATIENCE,
                          check=False)
    return done.returncode, done.stdout, done.stderr


def fits(text, rows):
    return len(text.splitlines()) <= rows and all(len(line) <= 80 for line in text.splitlines())


def test_options_stand_before_and_after_the_command(world):
    world.put("docs/a", "abc")
    for words in (["-o", "json", "--max", "1", "read", "docs/a"],
                  ["read", "docs/a", "--max=1", "--output=json"],
                  ["--max", "1", "read", "-ojson", "--", "docs/a"]):
        assert world.ok(*words).json["content"] == "a"


def test_letters_can_be_put_together(world):
    world.put("docs/a", "abc\n")
    assert world.ok("grep", "-iF0", "ABC", "docs").out == b"docs/a\x001:abc\n"
    assert world.ok("list", "docs", "-l0").out.endswith(b" docs/a\0")


def test_an_option_may_mean_something_else_to_another_command(world):
    world.ok("write", "--new", "notes/a", stdin="x")
    world.ok("edit", "notes/a", "--old", "x", "--new", "write")
    assert world.get("notes/a") == b"write"


def test_the_value_of_an_option_may_look_like_an_option(world):
    world.ok("write", "notes/a", "--content", "--yes")
    assert world.get("notes/a") == b"--yes"


@pytest.mark.parametrize("words, subject, hint", [
    (["read", "docs/a", "--ofset", "1"], "--ofset", "did you mean --offset?"),
    (["read", "docs/a", "--univ"], "--univ", "did you mean --universal-newlines?"),
    (["list", "--patern=x"], "--patern=x", "did you mean --pattern?"),
    (["read", "docs/a", "--xyzzy"], "--xyzzy", "cay files --help"),
    (["read", "docs/a", "-Z"], "-Z", "cay files --help"),
    (["read", "docs/a", "--append"], "--append", "it is an option of write; cay files read --help"),
    (["--aprove", "yes", "read", "docs/a"], "--aprove", "did you mean --approve?"),
    (["--xyzzy", "yes", "read", "docs/a"], "--xyzzy", "cay files --help"),
    (["reade", "docs/a"], "reade", "did you mean read?"),
    (["frobnicate"], "frobnicate", "cay files --help"),
    ([], "cay files", "cay files --help"),
    (["read"], "read", "usage: cay files read PATH"),
    (["read", "a", "b"], "b", "usage: cay files read PATH"),
    (["move", "a"], "move", "usage: cay files move SOURCE DESTINATION"),
    (["read", "a", "--offset"], "--offset", "write --offset N"),
    (["read", "a", "--offset", "-1"], "--offset", "write --offset N"),
    (["read", "a", "--offset", "1x"], "--offset", "write --offset N"),
    (["read", "a", "--offset", ""], "--offset", "write --offset N"),
    (["read", "a", "--offset", "18446744073709551616"], "--offset", "write --offset N"),
    (["read", "a", "-o", "xml"], "-o", "write --output text|json"),
    (["read", "a", "--approve=maybe"], "--approve=maybe", "write --approve ask|yes|no|queue"),
    (["read", "a", "--yes=no"], "--yes=no", "write --yes"),
])
def test_a_wrong_word_is_named_with_the_right_one(world, words, subject, hint):
    line = world.fails(2, *words)
    assert line.startswith(f"cay: invalid: {subject}: ") and hint in line


def test_a_wrong_option_is_json_if_json_was_asked_for(world):
    for words in (["--bad", "-o", "json"], ["-ojson", "--bad"], ["--output=json", "--bad"]):
        error = world.cay("read", "docs/a", *words).error
        assert (error["slug"], error["subject"], error["code"]) == ("invalid", "--bad", -1)


def test_a_policy_must_be_given():
    status, out, err = run("files", "read", "a")
    assert (status, out) == (2, "") and "--config FILE" in err


def test_the_first_word_must_be_a_command():
    status, out, err = run()
    assert (status, out) == (2, "") and err.startswith("cay: invalid: ")
    status, _, err = run("flies")
    assert status == 2 and "did you mean files?" in err
    status, _, err = run("--frobnicate")
    assert status == 2 and "--frobnicate" in err


def test_the_help_fits_a_screen():
    for words in (["--help"], ["-h"], ["help"]):
        status, out, err = run(*words)
        assert (status, err) == (0, "") and out.startswith("Usage: cay ") and fits(out, 24)
    for words in (["files", "--help"], ["help", "files"], ["files", "-h"]):
        status, out, err = run(*words)
        assert (status, err) == (0, "") and out.startswith("Usage: cay files ") and fits(out, 50)
        assert re.findall(r"^  ([a-z]+) ", out, re.M) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_short_help(command):
    status, out, err = run("files", command, "--help")
    assert (status, err) == (0, "") and fits(out, 24)
    assert out.startswith(f"Usage: cay files {command} ")
    assert run("help", "files", command) == (0, out, "")


def test_the_help_names_every_command():
    named = [name for names in re.findall(r"^  ([a-z, ]+[a-z]) +[A-Z]", run("--help")[1], re.M)
             for name in names.split(", ")]
    assert sorted(named) == sorted([*SANDBOX_COMMANDS, "config", "session", "template", "explain", "files", "help",
                                    "version", "serve", "key", "env", "pool", "code", "context",
                                    "setup", "warm", "build", "diff", "secret", "volume", "snapshot",
                                    "apply", "discard", "agent", "approve", "audit"])


@pytest.mark.parametrize("command", SANDBOX_COMMANDS)
def test_each_command_about_sandboxes_has_a_help_that_fits_a_screen(command):
    status, out, err = run(command, "--help")
    assert (status, err) == (0, "") and fits(out, 24)
    assert out.startswith(f"Usage: cay {command} ")
    assert run("help", command) == (0, out, "")
    assert run(command, "-h", "no", "such") == (0, out, "")


def test_rare_options_are_named_and_explained_on_demand():
    for command in SANDBOX_COMMANDS:
        _, short, _ = run(command, "--help")
        status, whole, err = run(command, "--help-all")
        explained = {*re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", short, re.M)}
        named = {*re.findall(r"--[a-z-]+", short.partition("(--help-all):")[2])}
        everything = {*re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", whole, re.M)}
        assert (status, err) == (0, "") and explained | named == everything
        assert not explained & named
    assert "--storage" in run("run", "--help-all")[1]


@pytest.mark.parametrize("group, commands", [
    ("template", TEMPLATE_COMMANDS), ("volume", VOLUME_COMMANDS), ("snapshot", SNAPSHOT_COMMANDS), ("config", CONFIG_COMMANDS), ("explain", EXPLAIN_COMMANDS),
    ("session", SESSION_COMMANDS)])
def test_groups_of_commands_have_their_help(group, commands):
    status, out, err = run(group, "--help")
    assert (status, err) == (0, "") and fits(out, 24)
    assert re.findall(r"^  ([a-z]+) ", out, re.M) == commands
    for command in commands:
        status, out, err = run(group, command, "--help")
        assert (status, err) == (0, "") and out.startswith(f"Usage: cay {group} {command} ")


@pytest.mark.parametrize("words, subject, hint", [
    (["creat"], "creat", "did you mean create?"),
    (["ls", "--quite"], "--quite", "did you mean --quiet?"),
    (["rnu", "ls"], "rnu", "did you mean run?"),
    (["stop", "x"], "stop", "did you mean kill?"),
    (["images"], "images", "did you mean template ls?"),
    (["wait", "x"], "wait", "cay logs -f ID PID|TAG waits"),
    (["stats"], "stats", "cay inspect ID reports memory and CPU use"),
    (["create", "--gpus", "all"], "--gpus", "no access to GPUs"),
    (["cp", "-r", "a", "b"], "-r", "leave it out"),
    (["cp", "-a", "a", "b"], "-a", "leave it out"),
    (["create", "-v", ".:/src,ro"], ".:/src,ro", "write -v SRC:DST, SRC:DST:ro or SRC:DST:rw"),
    (["create", "-e", "A B=1"], "A B=1", "write -e NAME=VALUE"),
    (["create", "--rm"], "--rm", "leave it out"),
    (["ls", "--follow"], "--follow", "it is an option of logs; cay ls --help lists the options"),
    (["create", "--timeout", "5"], "--timeout", "it is an option of run, try, exec; cay create --help"),
    (["create", "-d"], "-d", "it is an option of exec; cay create --help"),
    (["ls", "--rm"], "--rm", "cay ls --help lists the options"),
    (["ls", "x"], "x", "(usage: cay ls)"),
    (["inspect"], "inspect", "usage: cay inspect ID"),
    (["cp", "a"], "cp", "usage: cay cp SOURCE DESTINATION"),
    (["create", "--ttl", "soon"], "--ttl", '"soon" (write --ttl TIME: for example 500ms'),
    (["create", "-m", "1Q"], "-m", '"1Q" (write --memory SIZE: for example 512M'),
    (["create", "--memory", ""], "--memory", '"" (write --memory SIZE: for example 512M'),
    (["create", "--pids", "-1"], "--pids", '"-1" (write --pids N: a whole number'),
    (["create", "--memory"], "--memory", "write --memory SIZE"),
    (["kill", "--signal", "65"], "--signal", "a name like TERM"),
])
def test_a_wrong_word_about_sandboxes_is_named_with_the_right_one(words, subject, hint):
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert err.startswith(f"cay: invalid: {subject}: " if subject else "cay: invalid: ")
    assert hint in err


@pytest.mark.parametrize("words", [["run", "--bad"], ["exec", "--bad"], ["exec", "sb-a"], ["shell"],
                                   ["run", "-m", "x", "true"]])
def test_commands_that_run_others_fail_with_125(words):
    status, out, err = run(*words)
    assert (status, out) == (125, "") and err.startswith("cay: invalid: ")


def test_a_limit_above_the_machine_s_memory_is_noted():
    done = subprocess.run([CAY, "run", "-m", "100T", "--", "true"], capture_output=True,
                          check=False)
    assert done.returncode == 0
    assert re.match(rb"cay: note: --memory 100 TiB is more than this machine has: ", done.stderr)


def test_every_way_to_ask_for_the_version_answers():
    status, out, err = run("--version")
    assert (status, err) == (0, "") and re.fullmatch(r"cay \d+\.\d+\.\d+\n", out)
    assert run("version") == run("-V") == (0, out, "")
    assert run("version", "x")[0] == 2


def test_no_word_for_the_server_is_lost():
    status, _, told = run("serve", *["--quiet"] * 300, "last")
    assert status == 2 and told.startswith("cay: invalid: last: ")
