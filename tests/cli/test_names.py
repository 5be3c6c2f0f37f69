# SPDX-License-Identifier: Apache-2.0
"""Names of sandboxes: --name of create and run, taken wherever an id is."""

import os

import pytest
from sandboxes import Sandboxes, runtime, wait_until
from test_runtime import fixture_disk, inside  # noqa: F401


@pytest.fixture(name="sandboxes")
def fixture_sandboxes(tmp_path):
    made = Sandboxes(tmp_path)
    yield made
    made.clean()


@pytest.fixture(name="name")
def fixture_name():
    return f"Test_{os.getpid()}.a-b"


def test_a_name_is_taken_wherever_an_id_is(sandboxes, name, tmp_path):
    made = sandboxes.create("--name", name)
    (tmp_path / "file").write_text("text\n")
    sandboxes.ok("cp", "file", f"{name}:file")
    assert sandboxes.ok("exec", name, "--", "cat", "file").text == "text\n"
    assert sandboxes.ok("cat", name, "file").text == "text\n"
    sandboxes.ok("put", name, "other", stdin=b"more")
    sandboxes.ok("cp", f"{name}:other", "back")
    assert (tmp_path / "back").read_text() == "more"
    assert "sleep" not in sandboxes.ok("ps", name).text
    sandboxes.ok("exec", "-d", "--tag", "job", name, "--", "echo", "hello")
    wait_until(lambda: sandboxes.ok("logs", name, "job").text == "hello\n", "no output")
    info = sandboxes.ok("inspect", "-o", "json", name).json
    assert (info["id"], info["name"]) == (made, name)
    assert f"name:      {name}\n" in sandboxes.ok("inspect", name).text
    listed = {one["id"]: one["name"] for one in sandboxes.ok("ls", "-o", "json").json["sandboxes"]}
    assert listed[made] == name
    rows = [line.split() for line in sandboxes.ok("ls").text.splitlines()]
    assert rows[0][:2] == ["ID", "NAME"] and [made, name] in [row[:2] for row in rows]
    sandboxes.ok("pause", name)
    sandboxes.ok("resume", name)
    sandboxes.ok("kill", name)
    assert "no sandbox has this name" in sandboxes.fails(4, "inspect", name)


def test_a_name_in_use_is_refused_with_the_id_of_its_sandbox(sandboxes, name):
    made = sandboxes.create("--name", name)
    line = sandboxes.fails(6, "create", "--name", name)
    assert line.startswith(f"cay: exists: {name}: the name is in use by {made} (")
    assert f"in use by {made}" in sandboxes.fails(125, "run", "--name", name, "--", "true")
    sandboxes.ok("kill", made)
    assert sandboxes.create("--name", name) != made


def test_many_creates_with_one_name_make_one_sandbox(sandboxes, name):
    started = [sandboxes.start("create", "--name", name) for _ in range(8)]
    done = [process.communicate() for process in started]
    ids = [out.decode().strip() for out, _ in done if out]
    sandboxes.made += ids
    assert len(ids) == 1
    assert all(f"in use by {ids[0]}" in err.decode() for out, err in done if not out)


def test_run_takes_a_name_and_frees_it_at_its_end(sandboxes, name):
    process = sandboxes.start("run", "--name", name, "--", "sleep", "1000")
    wait_until(lambda: sandboxes.cay("exec", name, "--", "true").status == 0, "it does not run")
    sandboxes.ok("kill", name)
    process.wait()
    assert not os.path.lexists(runtime() / "names" / name)
    assert sandboxes.ok("run", "--name", name, "--", "echo", "again").text == "again\n"
    assert not os.path.lexists(runtime() / "names" / name)


@pytest.mark.parametrize("name", ["", "-a", ".a", "_a", "a/b", "a b", "a:b", "ä", "sb-a", "a" * 64])
def test_what_is_not_a_name_is_refused(sandboxes, name):
    assert "invalid" in sandboxes.fails(2, "create", f"--name={name}")


def test_an_unknown_name_ends_nothing(sandboxes, name):
    made = sandboxes.create()
    assert "no sandbox has this name" in sandboxes.fails(4, "kill", made, f"{name}x")
    assert sandboxes.ok("exec", made, "--", "echo", "lives").text == "lives\n"
    sandboxes.ok("rm", "-f", f"{name}x")


def test_a_stopped_sandbox_keeps_its_name_also_after_a_reboot(disk):
    told = inside(disk, """
        export CAY_HOME="$DISK/home"
        one() { sed "s/$id/ID/"; }
        id=$("$CAY" create --storage disk --name web)
        "$CAY" exec web -- sh -c 'echo kept > file'
        "$CAY" kill web
        "$CAY" gc
        "$CAY" create --name web 2>&1 | grep -o 'in use by .* (' | one
        CAY_HOME="$DISK/other" "$CAY" create --name web 2>&1 | grep -o 'in use by .* (' | one
        rm -rf /run/cay
        "$CAY" ls | awk 'NR > 1 {print $2, $4}'
        "$CAY" create --name web 2>&1 | grep -o 'in use by .* (' | one
        "$CAY" start web
        "$CAY" exec web -- cat file
        "$CAY" rm web
        "$CAY" inspect web 2>&1 | grep -c 'no sandbox has this name'
        "$CAY" create --name web > /dev/null; "$CAY" rm web; ls -A /run/cay/names
    """).splitlines()
    taken = "in use by ID ("
    assert told == ["removed 0 leftovers", taken, taken, "web stopped", taken, "kept", "1"]


def test_a_name_that_a_crash_left_is_free(disk):
    told = inside(disk, """
        id=$("$CAY" create --name web)
        init=$("$CAY" inspect -o json "$id" | sed 's/.*"init_pid":\\([0-9]*\\).*/\\1/')
        kill -9 "$init"
        while grep -q '^State:.[^ZX]' "/proc/$init/status" 2> /dev/null; do sleep 0.02; done
        "$CAY" create --name web > /dev/null && echo again
        "$CAY" rm web
        ln -s sb-aaaaaaaaaaaaaaaa /run/cay/names/old
        "$CAY" create --name old > /dev/null && "$CAY" rm old
        ln -s sb-aaaaaaaaaaaaaaaa /run/cay/names/stale; "$CAY" gc > /dev/null
        ls -A /run/cay/names
    """)
    assert told == "again\n"


def test_a_file_whose_name_has_a_colon_is_copied_by_its_path(sandboxes, tmp_path):
    made = sandboxes.create()
    (tmp_path / "a:b").write_text("colon")
    sandboxes.ok("cp", "./a:b", f"{made}:file")
    assert sandboxes.ok("cat", made, "file").text == "colon"
