# SPDX-License-Identifier: Apache-2.0
"""tools/check-layers, check-english and messages, on small trees of their own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
ROOMS = """
import csource
CALLS.clear()
EXCEPTIONS.clear()
ROOMS.clear()
ROOMS.update({
    "base": ("", "error"),
    "server": ("base", "error"),
    "server/front": ("base server", "error"),
    "server/keeper": ("base server", "sandbox"),
})
PUBLIC = ("error", "sandbox", "files")
"""


@pytest.fixture
def tree(tmp_path):
    """A checkout with the tools and two public headers."""
    (tmp_path / "tools").mkdir()
    for name in ("check-layers", "check-english", "messages", "csource.py", "texts.py"):
        shutil.copy(TOOLS / name, tmp_path / "tools")
    write(tmp_path, "include/cay/error.h", "struct error;")
    write(tmp_path, "include/cay/sandbox.h", '#include "cay/error.h"\nstruct box;')
    write(tmp_path, "include/cay/files.h", "struct files;")
    write(tmp_path, "CONTRIBUTING.md", "<!-- printed by tools/check-layers --write -->\n"
          "<!-- end of the list -->\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def write(tree, name, text):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"/* SPDX */\n{text}\n" if name.endswith((".c", ".h")) else text)


def run(tree, tool, *options):
    """The exit status and the output of a tool in the tree."""
    result = subprocess.run([sys.executable, f"tools/{tool}", *options], cwd=tree,
                            capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def layers(tree, *options, rooms=ROOMS):
    """check-layers with the rooms of this test."""
    path = tree / "tools" / "check-layers"
    text = (TOOLS / "check-layers").read_text()
    path.write_text(text.replace('if __name__ == "__main__":', f'{rooms}\nif __name__:'))
    return run(tree, "check-layers", *options)


def checked(tree, rooms=ROOMS):
    """What check-layers finds, with the list in CONTRIBUTING.md up to date."""
    assert layers(tree, "--write", rooms=rooms)[0] == 0
    return layers(tree, rooms=rooms)


@pytest.mark.parametrize(("path", "include"), [
    ("src/server/front/http.c", "server/wire.h"),
    ("src/server/front/http.c", "cay/error.h"),
    ("src/server/front/deep/http.c", "server/front/http.h"),
    ("src/server/keeper/keep.c", "cay/sandbox.h"),
    ("src/server/keeper/keep.c", "cay/error.h"),  # sandbox.h includes it
])
def test_a_room_may_include_what_the_table_names(tree, path, include):
    write(tree, "src/server/wire.h", "")
    write(tree, "src/server/front/http.h", "")
    write(tree, path, f'#include "{include}"')
    assert checked(tree) == (0, "")


@pytest.mark.parametrize(("path", "include", "finding"), [
    ("src/server/front/http.c", "server/keeper/keep.h",
     "server/front/ may not include server/keeper/ (only: base, server)"),
    ("src/server/front/deep/http.c", "server/keeper/keep.h", "may not include server/keeper/"),
    ("src/server/wire.c", "server/keeper/keep.h", "server/ may not include server/keeper/"),
    ("src/server/front/http.c", "cay/sandbox.h",
     "server/front/ may not include cay/sandbox.h (only: cay/error.h)"),
    ("src/server/keeper/keep.c", "cay/files.h", "may not include cay/files.h"),
    ("src/base/buf.c", "server/wire.h", "base/ may not include server/ (only: nothing else)"),
    ("src/base/buf.c", "wire.h", "write the path from src/"),
    ("src/other/x.c", "cay/error.h", "src/other/ is not in ROOMS"),
])
def test_a_room_may_include_nothing_else(tree, path, include, finding):
    write(tree, "src/server/wire.h", "")
    write(tree, "src/server/keeper/keep.h", "")
    write(tree, path, f'#include "{include}"')
    status, output = checked(tree)
    assert status == 1 and finding in output and path.rpartition("/")[0] in output


def test_the_rooms_form_no_circle(tree):
    rooms = ROOMS + 'ROOMS["base"] = ("server", "")\n'
    status, output = checked(tree, rooms)
    assert status == 1 and "base names server, which does not stand above it" in output


def test_an_exception_to_the_layers_must_be_needed(tree):
    rooms = ROOMS + 'EXCEPTIONS[("server", "server/keeper")] = "a reason"\n'
    assert "is not needed" in checked(tree, rooms)[1]
    write(tree, "src/server/keeper/keep.h", "")
    write(tree, "src/server/wire.c", '#include "server/keeper/keep.h"')
    assert checked(tree, rooms) == (0, "")


def test_contributing_has_the_printed_list_of_rooms(tree):
    status, output = layers(tree)
    assert status == 1 and "tools/check-layers --write" in output
    assert checked(tree) == (0, "")
    printed = layers(tree, "--list")[1]
    written = (tree / "CONTRIBUTING.md").read_text()
    assert all(f"    {line}\n" in written for line in printed.splitlines())


def compiled(tree, **sources):
    """A build directory with an object of each source: folder__name to its text."""
    commands = []
    (tree / "build").mkdir()
    for name, text in sources.items():
        path = f"src/{name.replace('__', '/')}.c"
        write(tree, path, text)
        subprocess.run(["gcc", "-c", path, "-o", f"build/{name}.o"], cwd=tree, check=True)
        commands.append({"file": f"../{path}", "output": f"{name}.o"})
    (tree / "build" / "compile_commands.json").write_text(json.dumps(commands))


def test_a_room_may_call_only_rooms_above_it(tree):
    compiled(tree, base__a="int base_a(void) { return 0; }",
             server__w="int base_a(void); int server_w(void) { return base_a(); }")
    assert layers(tree, "--write")[0] == 0
    assert layers(tree, "build") == (0, "")


def test_a_public_header_gives_no_right_to_call_a_room_below(tree):
    compiled(tree, base__a="int server_w(void); int base_a(void) { return server_w(); }",
             server__w="int server_w(void) { return 0; }")
    assert layers(tree, "--write")[0] == 0
    status, output = layers(tree, "build")
    assert status == 1
    assert "server_w() is defined in server/, which stands below base/" in output
    rooms = ROOMS + 'CALLS[("base", "server")] = "a reason"\n'
    assert layers(tree, "--write", rooms=rooms)[0] == 0
    assert layers(tree, "build", rooms=rooms) == (0, "")


@pytest.mark.parametrize(("name", "text"), [
    ("src/a.c", "/* Some words.  Who asks is answered. */"),
    ("src/a.c", "int x; /* nobody waits */"),
    ("src/a.c", "/* A sentence that\n * ends here.  Whoever\n * reads on. */"),
    ("src/a.c", 'int f(void) { return cay_fail(0, "nobody has this key"); }'),
    ("docs/a.md", "# Title\n\n- Whom to ask is said there.\n"),
    ("docs/a.1.scd", "*--x*\n\tWho may use it.\n"),
    ("tests/x/a.py", '"""Nobody knows."""\n'),
    ("tests/x/a.py", "x = 1  # whoever comes first\n"),
    ("tools/a", "#!/bin/sh\n# Who runs this.\n"),
])
def test_a_sentence_that_opens_with_a_pronoun_is_found(tree, name, text):
    write(tree, name, text)
    status, output = run(tree, "check-english")
    assert status == 1 and f"{name}:" in output and "a sentence opens with" in output


@pytest.mark.parametrize(("name", "text"), [
    ("src/a.c", "/* The client, who asks, is answered; the user nobody is not. */"),
    ("src/a.c", 'const char *passwd = "nobody:x:65534";'),
    ("docs/a.md", "    Who in code is not a sentence\n"),
    ("docs/a.md", "The text of a person who reads.\n"),
])
def test_a_pronoun_inside_a_sentence_is_no_finding(tree, name, text):
    write(tree, name, text)
    assert run(tree, "check-english")[0] == 0


@pytest.mark.parametrize(("name", "text"), [
    ("tests/x/test-a.c", "TEST(who_waits_is_served)\n"),
    ("tests/x/test_a.py", "def test_nobody_waits():\n    pass\n"),
])
def test_the_name_of_a_test_that_opens_with_a_pronoun_is_found(tree, name, text):
    write(tree, name, text)
    status, output = run(tree, "check-english")
    assert status == 1 and f"{name}:" in output and "the name of a test opens with" in output


def test_words_that_users_should_not_read_are_found(tree):
    write(tree, "src/a.c", 'int f(void) { return cay_fail(0, "the rung is not to be had"); }\n'
          "/* a rung in a comment */")
    write(tree, "README.md", "It is told. `rung` is code, and a level is fine.\n")
    status, output = run(tree, "check-english")
    assert status == 1 and 'src/a.c:2: "rung": write isolation level' in output
    assert output.count(": write ") == 3 and "README.md:1" in output


def test_words_used_rightly_are_no_finding(tree):
    write(tree, "docs/a.1.scd", "*--approve ask*|*yes*\n\tThe user *nobody* runs it.\n")
    assert run(tree, "check-english")[0] == 0


def test_messages_lists_what_a_user_can_see(tree):
    write(tree, "src/a.c", """#include "base/error.h"
int f(void) {
    query_new("SELECT id FROM keys");
    warn_line("the front does not respond");
    return cay_fail(err, CODE, 0, "op", path, "no such file", "list the "
                    "directory: %s", name); /* a comment */
}
static const struct option options[] = {{"--memory", "the limit of memory"}};""")
    write(tree, "python/cay/a.py", '"""Module text."""\nraise ValueError(f"no such file: {x}")\n')
    status, output = run(tree, "messages")
    assert status == 0
    assert output.splitlines() == [
        "src/a.c:5: log: the front does not respond",
        "src/a.c:6: error: no such file",
        "src/a.c:6: hint: list the directory: %s",
        "src/a.c:9: text: the limit of memory",
        "python/cay/a.py:2: error: no such file: {}",
    ]
    assert run(tree, "messages", "log")[1] == "src/a.c:5: log: the front does not respond\n"
