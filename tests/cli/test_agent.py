# SPDX-License-Identifier: Apache-2.0
"""cay agent: a stand-in for an agent CLI works in a try, with its files, without its key."""

import json
import os
import subprocess
import textwrap

import pytest

from conftest import CAY, PATIENCE
from service import TALK, Service
from test_relay import INSIDE
from test_try import fixture_place  # noqa: F401

VALUE = "k3y/of-the-agent+tests=0a1b2c3d"

# Works on a project as an agent does, and reports what it sees.
STANDIN = """#!{interpreter}
import json, os, subprocess, sys
from pathlib import Path
home = Path.home()
seen = {{"arguments": sys.argv[1:], "key": os.environ.get("STANDIN_KEY"), "mode": os.environ.get("MODE"),
        "settings": (home / ".standin/settings").read_text(), "note": (home / ".note").read_text(),
        "home": sorted(os.listdir(home)), "outside": os.path.exists("{secret}")}}
(home / ".standin/settings").write_text("changed inside")
(home / ".standin/state").write_text("new")
try:
    (home / ".note").write_text("changed inside")
except OSError as error:
    seen["note_error"] = error.errno
project = Path.cwd()
(project / "edited").write_text("edited inside")
(project / "deleted").unlink()
(project / "old-name").rename(project / "new-name")
(project / "link").symlink_to("edited")
(project / "check").write_text("test -f edited && test -L link\\n")
seen["checked"] = subprocess.run(["sh", "check"]).returncode
print(json.dumps(seen))
"""


def install(base, profile=""):
    """A home directory with the stand-in as its own installer leaves it, and its profile."""
    home = base / "home"
    for each in (".local/bin", ".local/share/standin/versions", ".standin", ".config/cay/agents"):
        (home / each).mkdir(parents=True)
    (home / ".local/share/keyring").write_text("not for agents")
    put_program(home, STANDIN.format(interpreter="/usr/bin/env python-own", secret=home / ".local/share/keyring"))
    (home / ".local/bin/standin").symlink_to(home / ".local/share/standin/versions/1.0")
    (home / ".standin/settings").write_text("of the host")
    (home / ".note").write_text("a note")
    (home / ".config/cay/agents/standin.yaml").write_text(textwrap.dedent("""\
        title: A stand-in
        command: standin
        arguments: [--first]
        secrets: {STANDIN_KEY: "api.test:bearer,header=x-api-key"}
        allow: [api.test]
        copy: [~/.standin, ~/.is-missing]
        show: [~/.note]
        env: {MODE: sandboxed}
        """) + profile)
    # An interpreter as version managers install it: links, and a library beside bin.
    for name in ("bin", "lib"):
        (home / ".versions/3" / name).mkdir(parents=True)
    (home / ".versions/3/bin/python-3").symlink_to("/usr/bin/python3")
    (home / ".versions/3/bin/python-own").symlink_to("python-3")
    return home


def put_program(home, text):
    real = home / ".local/share/standin/versions/1.0"
    real.write_text(text)
    real.chmod(0o755)


def environment(home, env=os.environ):
    more = {key: value for key, value in env.items() if key != "XDG_CONFIG_HOME"}
    return {**more, "HOME": str(home), "PATH": f"{home}/.local/bin:{home}/.versions/3/bin:{os.environ['PATH']}"}


def test_an_agent_works_on_a_view_and_its_configuration_stays(place):  # noqa: F811
    home = install(place.base)
    names = {name: name for name in ("edited", "deleted", "old-name")}
    for name in names:
        (place.dir / name).write_text(name)
    place.own()
    done = place.run("agent", "standin", "--", "fix", "--it", env=environment(home, place.env))
    assert done.returncode == 0, done
    assert "standin has no key: set STANDIN_KEY" in done.stderr and "paths changed" in done.stderr, done
    seen = json.loads(done.stdout)
    assert seen["settings"] == "of the host" and seen["note"] == "a note" and seen["key"] is None
    assert seen["arguments"] == ["--first", "fix", "--it"] and seen["mode"] == "sandboxed"
    assert seen["note_error"] and seen["checked"] == 0 and not seen["outside"]
    assert {".note", ".standin"} <= {*seen["home"]} and ".local" not in seen["home"]
    assert (home / ".standin/settings").read_text() == "of the host"
    assert not (home / ".standin/state").exists() and (home / ".note").read_text() == "a note"
    assert {path.name: path.read_text() for path in place.dir.iterdir()} == names
    assert "M\tedited" in place.names()
    place.ok("apply")
    assert (place.dir / "edited").read_text() == "edited inside" and not (place.dir / "deleted").exists()
    assert os.readlink(place.dir / "link") == "edited" and (place.dir / "new-name").exists()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root for network namespaces")
    made = Service(tmp_path_factory.mktemp("service"))
    yield made
    made.stop()


def test_the_key_stays_outside_and_other_hosts_are_refused(service, tmp_path):
    home = install(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "ask.py").write_text(INSIDE + TALK + textwrap.dedent("""
        import os
        key = os.environ["STANDIN_KEY"]
        print(key.startswith("CAY_PLACEHOLDER_"))
        print(talk(secure("api.test"), get("/a", more=f"X-Api-Key: {key}\\r\\n"))[0][0])
        try:
            dial("bad.test", 443)
            print("reached")
        except OSError:
            print("refused")
    """))
    before = len(service.requests())
    put_program(home, '#!/bin/sh\nexec python3 "$2"\n')
    env = {**environment(home), "STANDIN_KEY": VALUE, "CAY_HOME": str(tmp_path / "state")}
    words = ("agent", "-C", tmp_path / "project", "-v", f"{tmp_path}/ask.py:/ask.py:ro", "standin", "--", "/ask.py")
    done = subprocess.run(service.command(CAY, *words), capture_output=True, text=True, timeout=PATIENCE,
                          env=env, check=False)
    assert done.returncode == 0, done
    assert done.stdout.split() == ["True", "200", "refused"], done
    assert VALUE not in done.stdout + done.stderr
    assert service.requests()[before]["headers"]["x-api-key"] == VALUE


def run(home, *words, **more):
    return subprocess.run([CAY, "agent", *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=PATIENCE, cwd=home, env={**environment(home), **more})


def test_list_and_explain_show_what_an_agent_gets(tmp_path):
    home = install(tmp_path)
    found = {each["name"]: each for each in json.loads(run(home, "--list", "-o", "json").stdout)["agents"]}
    assert {"aider", "any", "claude", "codex", "gemini", "opencode", "standin"} <= {*found}
    assert all(each["error"] is None for each in found.values()), found
    assert found["standin"]["installed"] and not found["standin"]["key"]
    shown = json.loads(run(home, "--explain", "standin", "-o", "json", STANDIN_KEY=VALUE).stdout)
    assert shown["program"] == f"{home}/.local/share/standin/versions/1.0"
    assert shown["show"] == [f"{home}/.local/share/standin/versions", f"{home}/.versions/3", "~/.note"]
    assert shown["copy"] == ["~/.standin"] and shown["secrets"] == ["STANDIN_KEY=env:STANDIN_KEY"]
    assert [each["rule"].split(":")[0] for each in shown["rules"]] == ["api.test"]
    text = run(home, "standin", "--explain").stdout
    assert "copy      ~/.standin\n" in text and "memory    1 GiB" in text and "secret" not in text
    # A package below node_modules shows the tree that node looks in; a lone file only itself.
    package = home / ".node/lib/node_modules/standin/cli.js"
    package.parent.mkdir(parents=True)
    package.write_text("#!/bin/sh\n")
    package.chmod(0o755)
    for target, place in ((package, ".node"), (home / ".local/bin/alone", ".local/bin/alone")):
        if target != package:
            package.rename(target)
        (home / ".local/bin/standin").unlink()
        (home / ".local/bin/standin").symlink_to(target)
        shown = json.loads(run(home, "--explain", "standin", "-o", "json").stdout)
        assert shown["show"][0] == f"{home}/{place}"


def test_a_mistake_in_a_profile_is_reported(tmp_path):
    home = install(tmp_path, profile="colour: red\n")
    done = run(home, "--explain", "standin")
    assert done.returncode != 0 and "line 9: colour: unknown key" in done.stderr, done
    assert "standin   invalid" in run(home, "--list").stdout
    for text, words in [("copy: [/etc/passwd]", "line 1: copy[0]: invalid path"),
                        ("show: [~/a/../../b]", "show[0]: invalid path"),
                        ("env: {A-B: c}", "env: invalid name of a variable"),
                        ("secrets: {KEY: ''}", "secrets.KEY: must not be empty"),
                        ("allow: [no such rule]", "allow: "),
                        ("allow: [a.test]\nallow: [b.test]", "line 2: allow"),
                        ("memory: much", "memory: invalid size"),
                        ("command: ../sh", "command: must be a name in PATH"),
                        ("- a", "the text is not a map of keys"), ("", "")]:
        (home / "own.yaml").write_text(text + "\n")
        done = run(home, "--profile", "own.yaml", "--explain")
        assert done.returncode != 0 and "own.yaml" in done.stderr and words in done.stderr, (text, done)
    assert "the agents are aider, any, claude" in run(home, "--explain", "nobody").stderr
    (home / "own.yaml").write_text("command: not-installed\ninstall: apt install it\n")
    assert "(apt install it installs it)" in run(home, "--profile", "own.yaml", "--explain").stderr
