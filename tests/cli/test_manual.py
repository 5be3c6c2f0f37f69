# SPDX-License-Identifier: Apache-2.0
"""The manual pages and completions say what the command does."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import CAY, PATIENCE, ROOT
from test_options import (COMMANDS, CONFIG_COMMANDS, EXPLAIN_COMMANDS, SANDBOX_COMMANDS,
                          SESSION_COMMANDS, SNAPSHOT_COMMANDS, TEMPLATE_COMMANDS,
                          VOLUME_COMMANDS)

DOCS = ROOT / "docs"
COMPLETIONS = ROOT / "data" / "completions"


def page(name):
    return (DOCS / name).read_text()


def blocks(text):
    """The literal blocks of a page as they are shown: scdoc takes a backslash away."""
    return [re.sub(r"\\(.)", r"\1", block)
            for block in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)]


def transcripts(block):
    """(command, expected output) for each "$ " of a block; "> " continues a command."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append([line[2:] + "\n", ""])
        elif line.startswith("> ") and found[-1][1] == "":
            found[-1][0] += line[2:] + "\n"
        else:
            found[-1][1] += line + "\n"
    return found


# Which page tells of which commands.
CONTEXT_COMMANDS = ["ls", "create", "restart", "interrupt", "rm"]
PAGES = {
    "cay-run": ["run"],
    "cay-try": ["try"],
    "cay-create": ["create"],
    "cay-exec": ["exec", "shell"],
    "cay-ls": ["ls", "inspect"],
    "cay-ps": ["ps", "logs"],
    "cay-cp": ["cp", "cat", "put"],
    "cay-kill": ["kill", "rm", "start", "pause", "resume", "gc"],
    "cay-network": ["network"],
    "cay-events": ["events"],
    "cay-forward": ["forward", "port"],
    "cay-checkpoint": ["checkpoint", "rollback", "checkpoints", "fork"],
    "cay-doctor": ["doctor"],
    "cay-mcp": ["mcp"],
}


def options_of(*helps):
    """Every option that these helps name, with its letter: "-o" and "--output"."""
    def show(*words):
        return subprocess.run([CAY, *words], capture_output=True, text=True,
                              timeout=PATIENCE, check=True).stdout

    texts = [show(*words, "--help") for words in helps]
    texts += [show(*words, "--help-all") for words, text in zip(helps, texts)
              if "--help-all" in text]
    lines = [line for text in texts for line in re.findall(r"^  .*--[a-z-]+", text, re.M)]
    return {option for line in lines for option in re.findall(r"(?<!\S)--?[a-z-]+", line)}


def files_options():
    helps = [["files"]] + [["files", command] for command in COMMANDS]
    return {option for option in options_of(*helps) if option.startswith("--")}


def test_the_examples_of_the_manual_do_what_it_says(tmp_path):
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "cay").symlink_to(os.path.abspath(CAY))
    home = tmp_path / "home"
    home.mkdir()
    environ = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
    ran = 0
    for block in blocks(page("cay-files.1.scd").split("# EXAMPLES")[1]):
        for command, expected in transcripts(block):
            done = subprocess.run(["bash", "-c", command], cwd=home, env=environ, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=PATIENCE, check=False)
            assert done.stdout == expected, command
            ran += 1
    assert ran >= 12


def test_the_policies_of_the_manual_can_be_loaded(world):
    for name in ("src", "out", "etc", "manual", "work"):
        (world.base / name).mkdir(exist_ok=True)
    policies = [block for block in blocks(page("cay-policy.5.scd"))
                if not block.startswith(("cay:", "network:"))]  # those are in test_explain.py
    assert len(policies) == 5
    for number, text in enumerate(policies):
        text = text.replace("/srv/notes", "notes")
        world.put(f"policy{number}.yaml", text)
        assert world.ok("roots", config=f"policy{number}.yaml").out


def test_the_error_in_the_policy_page_is_the_real_one(world):
    told = next(block for block in blocks(page("cay-policy.5.scd")) if block.startswith("cay:"))
    world.put("policy.yaml", "paths:\n  docs:\n    mode: xx\n    root: docs\n")
    assert world.fails(2, "roots", config="policy.yaml") + "\n" == told


def test_the_manual_has_every_command_and_option():
    text = page("cay-files.1.scd")
    for command in COMMANDS:
        assert re.search(rf"^\*{command}\*", text, re.M), command
    for option in files_options():
        assert f"*{option}*" in text, option
    for option in re.findall(r"\*(--[a-z-]+)", text):
        assert option in files_options(), option


def test_every_command_about_sandboxes_is_on_a_page():
    assert sorted(name for names in PAGES.values() for name in names) == sorted(SANDBOX_COMMANDS)
    for name, commands in PAGES.items():
        text = page(f"{name}.1.scd")
        assert f"\n{', '.join(f'cay-{command}' for command in commands)} - " in text
        for command in commands:
            assert re.search(rf"^\*cay {command}\*", text, re.M), command
    overview = page("cay.1.scd")
    for command in [*SANDBOX_COMMANDS, "config", "session", "template", "files", "code", "context", "setup", "warm",
                    "build", "diff", "volume", "snapshot", "agent", "approve"]:
        assert re.search(rf"^\*.*\b{command}\*", overview, re.M), command


@pytest.mark.parametrize("name, helps", [
    *((name, [[command] for command in commands]) for name, commands in PAGES.items()),
    ("cay-code", [["code"], *(["context", command] for command in CONTEXT_COMMANDS),
                  ["warm", "create"], ["warm", "rm"]]),
    ("cay-agent", [["agent"]]),
    ("cay-approve", [["approve", command] for command in
                     ("list", "show", "allow", "deny", "remember", "rules", "request", "watch", "notify")]),
    ("cay-config", [["config", command] for command in CONFIG_COMMANDS]),
    ("cay-setup", [["setup"]]),
    ("cay-build", [["build"]]),
    ("cay-diff", [["diff"]]),
    ("cay-explain", [["explain", command] for command in EXPLAIN_COMMANDS]),
    ("cay-session", [["session", command] for command in SESSION_COMMANDS]),
    ("cay-template", [["template", command] for command in TEMPLATE_COMMANDS]),
    ("cay-snapshot", [["snapshot", command] for command in SNAPSHOT_COMMANDS]),
    ("cay-volume", [["volume", command] for command in VOLUME_COMMANDS])])
def test_each_page_has_the_options_of_its_commands_and_no_others(name, helps):
    text = page(f"{name}.1.scd")
    assert set(re.findall(r"\*(--?[a-z][a-z-]*)\*", text.split("# OPTIONS")[1].split("# JSON")[0])
               ) - {"-it"} >= options_of(*helps)
    if name == "cay-try":  # the page has those of two more commands
        helps = [*helps, ["apply"], ["discard"]]
    known = options_of(*helps, *([["exec"], ["create"]] if name not in ("cay-run", "cay-create") else []))
    known |= {"--storage", "--template", "--network", "--require", "-it", "--help", "--version"}
    assert set(re.findall(r"\*(--?[a-z][a-z-]*)\*", text)) <= known


@pytest.mark.parametrize("name", sorted(path.name for path in DOCS.glob("*.scd")))
def test_the_pages_are_well_formed(name):
    done = subprocess.run(["scdoc"], input=page(name), capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def complete_in_bash(words, path):
    script = (f"source {COMPLETIONS / 'cay.bash'}; compopt() {{ :; }}; COMP_WORDS=(\"$@\"); "
              "COMP_CWORD=$(($# - 1)); _cay; printf '%s\\n' \"${COMPREPLY[@]}\"")
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
                          timeout=PATIENCE, check=False)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cay").symlink_to(os.path.abspath(CAY))
    return tmp_path / "bin"


def test_bash_completes_commands_options_and_values(path):
    assert complete_in_bash(["cay", "fi"], path) == ["files"]
    assert sorted(complete_in_bash(["cay", "p"], path)) == ["pause", "pool", "port", "ps", "put"]
    assert complete_in_bash(["cay", "run", "--ti"], path) == ["--timeout"]
    assert complete_in_bash(["cay", "create", "--storage", ""], path) == ["memory", "disk"]
    assert complete_in_bash(["cay", "template", "create", "--from-d"], path) == ["--from-dir"]
    assert complete_in_bash(["cay", "template", "c"], path) == ["create"]
    assert complete_in_bash(["cay", "volume", ""], path) == ["create", "ls", "rm", "cp"]
    assert complete_in_bash(["cay", "config", ""], path) == ["check", "schema"]
    assert complete_in_bash(["cay", "explain", ""], path) == ["network"]
    assert complete_in_bash(["cay", "explain", "network", "--meth"], path) == ["--method"]
    assert complete_in_bash(["cay", "run", "--allow", "py"], path) == ["pypi"]
    assert complete_in_bash(["cay", "session", "st"], path) == ["start", "stop"]
    assert complete_in_bash(["cay", "session", "start", "--c"], path) == ["--config"]
    assert complete_in_bash(["cay", "config", "check", "--out"], path) == ["--output"]
    assert complete_in_bash(["cay", "setup", "--un"], path) == ["--undo"]
    assert "nobody" in complete_in_bash(["cay", "setup", "--user", "nob"], path)
    assert complete_in_bash(["cay", "files", "gl"], path) == ["glob"]
    assert complete_in_bash(["cay", "files", "read", "--of"], path) == ["--offset"]
    assert complete_in_bash(["cay", "files", "read", "--conf"], path) == ["--config"]
    assert complete_in_bash(["cay", "files", "-o", "j"], path) == ["json"]
    assert complete_in_bash(["cay", "files", "--approve", ""], path) == ["ask", "yes", "no", "queue"]


def test_bash_completes_what_comes_next(path, boxes):
    box = boxes.create()
    boxes.ok("exec", "-d", "--tag", "counting", box, "--", "sleep", "1000")

    def complete(*words):
        return complete_in_bash(["cay", *words], path)

    for option in ("-m", "-w", "-e", "--timeout", "--pids"):
        assert complete("run", option, "") == [""]
    assert "true" in complete("run", "-m", "64M", "tru")
    assert box in complete("exec", "") and box in complete("exec", "-u", "root", box[:5])
    assert box not in complete("exec", box, "--", "")
    assert "true" in complete("exec", box, "--", "tru")
    assert complete("exec", box, "ls", "-") == [""]
    assert complete("run", "--", "ls", "--ti") == [""]
    assert complete("logs", box, "c") == ["counting"]
    assert complete("kill", "-s", "TERM", box, "") == ["counting"]
    assert box in complete("kill", box, "")
    assert complete("cp", box) == [box + ":"]
    assert "host" not in complete("template", "rm", "")


def test_bash_completes_paths_of_the_policy(world, path):
    world.put("docs/with space", "x")
    world.put("docs/sub/a", "x")
    start = ["cay", "files", "--config", str(world.config), "read"]
    assert complete_in_bash([*start, "do"], path) == ["docs"]
    assert complete_in_bash([*start, "docs/"], path) == ["docs/sub", "docs/with space"]
    assert complete_in_bash([*start, "docs/w"], path) == ["docs/with space"]


def test_bash_completes_ids_and_templates(boxes, box, path):
    assert box in complete_in_bash(["cay", "exec", ""], path)
    assert complete_in_bash(["cay", "kill", box[:-1]], path) == [box]
    assert "host" in complete_in_bash(["cay", "run", "--template", ""], path)


def test_every_command_has_a_page_by_its_own_name():
    built = os.path.join(os.path.dirname(os.path.abspath(CAY)), "docs")
    for command in [*SANDBOX_COMMANDS, "config", "session", "template", "files"]:
        assert os.path.exists(os.path.join(built, f"cay-{command}.1")), command


def complete_in_fish(line, path):
    done = subprocess.run(["fish", "-N", "-c", f"source {COMPLETIONS / 'cay.fish'}; complete -C '{line}'"],
                          capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"})
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish")
def test_fish_completes_what_the_command_takes_and_nothing_else(path, boxes):
    box = boxes.create()
    boxes.ok("exec", "-d", "--tag", "counting", box, "--", "sleep", "1000")
    commands = complete_in_fish("cay ", path)
    assert {"run", "inspect", "version"} <= set(commands) and "cay" not in commands
    assert set(commands) <= set(complete_in_fish("cay help ", path))
    assert complete_in_fish("cay run --ti", path) == ["--timeout"]
    assert complete_in_fish("cay run --content", path) == complete_in_fish("cay run --from-", path) == []
    assert complete_in_fish("cay run --storage ", path) == ["disk", "memory"]
    assert box in complete_in_fish("cay exec ", path)
    assert complete_in_fish(f"cay logs {box} c", path) == ["counting"]
    assert complete_in_fish(f"cay cp {box[:6]}", path) == [f"{box}:"]
    assert not {"host", box} & set(complete_in_fish("cay template rm ", path))


# Into an array, what is added; the rest of zsh's machinery is not needed for that.
ZSH = """
compadd() { while [[ $1 == -* && $1 != -- ]]; do [[ $1 == -S ]] && shift; shift; done
            shift; print -rl -- "$@" }
_files() { print files }
_command_names() { (( ${+commands[sh]} )) && print names }
zmodload zsh/parameter
complete_now() { source COMPLETIONS/_cay }
words=("$@") CURRENT=$# PREFIX=${@[-1]}
complete_now
"""


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh")
def test_zsh_completes_what_comes_next(path, boxes):
    box = boxes.create()
    boxes.ok("exec", "-d", "--tag", "counting", box, "--", "sleep", "1000")

    def complete(*words):
        script = ZSH.replace("COMPLETIONS", str(COMPLETIONS))
        done = subprocess.run(["zsh", "-f", "-c", script, "zsh", "cay", *words], text=True,
                              capture_output=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"})
        assert done.stderr == ""
        return done.stdout.split()

    assert {"run", "help"} <= set(complete("")) and "--timeout" in complete("run", "--t")
    assert complete("run", "--", "tru") == complete("exec", box, "tru") == ["names"]
    assert box in complete("exec", "") and box in complete("rm", box, "")
    assert complete("logs", box, "") == complete("kill", "-s", "TERM", box, "") == ["counting"]
    assert f"{box}:" in complete("cp", "") and "files" in complete("cp", "")
    assert "host" not in complete("template", "rm", "") and "read" in complete("files", "")
