# SPDX-License-Identifier: Apache-2.0
"""cay try, diff, apply and discard: a command changes a view of a directory, as root and as an
ordinary user, and the directory changes when it is told to, all at once or not at all."""

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import PATIENCE, TRACED, copy_command

UID = 54322  # nobody's, and without a range in /etc/subuid


class Place:
    """A directory of somebody, and the command as that user."""

    def __init__(self, uid):
        self.uid = uid
        self.base = Path(tempfile.mkdtemp())
        self.dir = self.base / "project"
        self.dir.mkdir()
        (self.base / "run").mkdir(mode=0o700)
        copy_command(self.base)
        self.own()
        self.prefix = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        self.env = {**os.environ, "HOME": str(self.base), "CAY_HOME": str(self.base / "state"),
                    "XDG_RUNTIME_DIR": str(self.base / "run")}
        if uid:
            self.env.pop("XDG_STATE_HOME", None)

    def own(self):
        for path in (self.base, *self.base.rglob("*")):
            if "state" not in path.relative_to(self.base).parts:
                os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def run(self, *words, stdin="", before=(), env=None):
        return subprocess.run([*before, *self.prefix, self.base / "cay", *map(str, words)],
                              input=stdin, capture_output=True, text=True, timeout=PATIENCE,
                              cwd=self.dir, env=env or self.env, check=False)

    def ok(self, *words, **more):
        done = self.run(*words, **more)
        assert done.returncode == 0, done
        return done.stdout

    def put(self, path, text="", mode=None):
        file = self.dir / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if mode is not None:
            file.chmod(mode)

    def sh(self, script, *words):
        """Tries a script; the id of the try."""
        self.own()
        done = self.run("try", *words, "--", "sh", "-ec", script)
        assert done.returncode == 0, done
        assert "untouched" in done.stderr, done
        return done.stderr.split()[2].rstrip(":")

    def names(self, *words):
        return self.ok("diff", "--names", *words).splitlines()

    def verdicts(self, *words, check=True):
        done = self.run("apply", *words)
        assert not check or done.returncode == 0, done
        return [(line.split()[0], line.split(" (")[0].split(None, 1)[1].strip())
                for line in done.stdout.splitlines()]


def tree(top):
    """What a directory holds: kinds, modes, contents."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        st = path.lstat()
        if stat.S_ISLNK(st.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISDIR(st.st_mode):
            found[name] = ("directory", oct(st.st_mode & 0o777))
        else:
            found[name] = ("file", oct(st.st_mode & 0o777), path.read_bytes())
    return found


@pytest.fixture(name="place", params=["root", "user"])
def fixture_place(request):
    if os.geteuid() != 0:
        pytest.skip("needs root, also to become another user")
    if Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
        pytest.skip("this machine has no user namespaces")
    place = Place(UID if request.param == "user" else 0)
    yield place
    assert place.run("discard", "--all").returncode == 0
    left = [path.name for path in (place.base / "state" / "tries").glob("*")]
    stage = [path.name for path in place.dir.glob(".cay-apply-*")]
    shutil.rmtree(place.base)
    assert (left, stage) == ([], [])


def test_nothing_changes_before_an_apply(place):
    place.put("a.txt", "one\n")
    place.put("old/b", "b\n")
    before = tree(place.dir)
    place.sh("echo two >> a.txt; rm -r old; mkdir new; echo n > new/file; ln -s a.txt link; pwd >&2")
    assert tree(place.dir) == before
    assert place.names() == ["M\ta.txt", "A\tlink", "A\tnew/", "R100\told/b\tnew/file"] or \
        place.names() == ["M\ta.txt", "A\tlink", "A\tnew/", "A\tnew/file", "D\told/", "D\told/b"]
    assert json.loads(place.ok("diff", "-o", "json"))["insertions"] >= 1
    assert [name for verdict, name in place.verdicts() if verdict != "applied"] == []
    assert (place.dir / "a.txt").read_text() == "one\ntwo\n"
    assert not (place.dir / "old").exists() and (place.dir / "new/file").read_text() == "n\n"
    assert os.readlink(place.dir / "link") == "a.txt"
    assert {path.lstat().st_uid for path in place.dir.rglob("*")} == {place.uid}
    assert place.names() == []


def test_a_try_without_changes_is_not_kept(place):
    done = place.run("try", "--", "true")
    assert (done.returncode, done.stderr) == (0, "cay: nothing changed\n")
    assert json.loads(place.ok("try", "--list", "-o", "json"))["tries"] == []
    done = place.run("diff")
    assert done.returncode != 0 and "there is no try of this directory" in done.stderr


def test_the_status_is_that_of_the_command(place):
    assert place.run("try", "--", "sh", "-c", "exit 7").returncode == 7
    done = place.run("try")
    assert done.returncode == 125 and "no command given" in done.stderr
    done = place.run("try", "-C", "/nowhere", "--", "true")
    assert done.returncode == 125 and "cannot open the directory" in done.stderr
    assert json.loads(place.ok("try", "--list", "-o", "json"))["tries"] == []


def test_a_try_is_continued_and_applied_again(place):
    place.put("a", "1\n")
    first = place.sh("echo 2 >> a")
    place.ok("try", "--use", first, "--", "sh", "-c", "echo 3 >> a; mkdir d; echo x > d/x")
    assert place.ok("diff", first).count("+") >= 3
    place.verdicts()
    place.ok("try", "--use", first, "--", "sh", "-c", "cat a; echo 4 >> a; echo y > d/y; rm d/x")
    assert place.verdicts() == [("applied", "M a"), ("applied", "D d/x"), ("applied", "A d/y")]
    assert (place.dir / "a").read_text() == "1\n2\n3\n4\n"
    assert os.listdir(place.dir / "d") == ["y"]


def test_some_paths_are_applied(place):
    place.put("one/a", "")
    place.put("two/a", "")
    place.sh("echo x > one/a; echo x > two/a; mkdir -p new/deep; echo x > new/deep/x; echo x > new/y")
    assert place.verdicts("one", "new/deep/x") == [
        ("applied", "A new"), ("applied", "A new/deep"), ("applied", "A new/deep/x"),
        ("applied", "M one/a")]
    assert place.names() == ["A\tnew/y", "M\ttwo/a"]
    done = place.run("apply", "/etc")
    assert done.returncode != 0 and "without a slash" in done.stderr
    assert place.names() == ["A\tnew/y", "M\ttwo/a"]


def test_paths_are_chosen_one_by_one(place):
    place.sh("echo a > a; echo b > b; echo c > c")
    assert [line.split()[-1] for line in place.ok("apply", "-i", stdin="n\ny\nq\n").splitlines()] == ["b"]
    assert os.listdir(place.dir) == ["b"]
    done = place.run("apply", "-i", stdin="q\n")
    assert done.returncode != 0 and "nothing was chosen" in done.stderr
    place.ok("apply", "-i", stdin="a\n")
    assert sorted(os.listdir(place.dir)) == ["a", "b", "c"]


def test_a_chosen_directory_is_not_all_that_is_in_it(place):
    place.put("old/a", "a\n")
    place.put("old/b", "b\n")
    place.sh("mkdir -p new/sub; echo 1 > new/1; echo 2 > new/sub/2; echo run > new/.envrc; rm -r old")
    # new yes, new/1 no, new/sub no and with it new/sub/2, old yes, old/a yes, old/b no
    done = place.run("apply", "-i", stdin="y\nn\nn\ny\ny\nn\n")
    assert "held     A new/.envrc  (direnv runs it)\n" in done.stderr, done
    assert done.stdout.splitlines() == ["applied  A new", "held     D old  (something below it stays)",
                                        "applied  D old/a"], done
    assert tree(place.dir).keys() == {"new", "old", "old/b"}
    done = place.run("apply", "-i", stdin="a\n")
    assert done.returncode == 0 and tree(place.dir).keys() == {"new", "new/1", "new/sub", "new/sub/2"}
    place.ok("apply", "-i", "new/.envrc", stdin="?\ny\n")
    assert (place.dir / "new/.envrc").read_text() == "run\n"


def test_conflicts_are_shown_between_the_questions(place):
    place.put("a", "base\n")
    place.sh("echo theirs > a; echo b > b")
    (place.dir / "a").write_text("mine\n")
    done = place.run("apply", "-i", stdin="y\n")
    assert done.returncode == 0 and (place.dir / "b").exists(), done
    assert "conflict M a  (it was changed in the directory)\n" in done.stderr, done
    assert (place.dir / "a").read_text() == "mine\n"


def test_a_path_without_a_change_is_an_error(place):
    place.put("sub/a", "a\n")
    place.sh("echo b > sub/a; echo c > c; echo d > d")
    for words in (["c", "cc"], ["sub/../../c"], [place.dir / "c"], ["su"]):
        done = place.run("apply", *words)
        assert done.returncode != 0 and str(words[-1]) in done.stderr, done
    assert tree(place.dir)["sub/a"] == ("file", "0o644", b"a\n") and not (place.dir / "c").exists()
    place.dir = place.dir / "sub"
    try:
        assert place.verdicts("./..//c", "./a") == [("applied", "A c"), ("applied", "M sub/a")]
    finally:
        place.dir = place.dir.parent


@pytest.mark.parametrize("change, reason", [
    ("echo mine > a", "changed"), ("rm a", "deleted"), ("mv a x; cp x a", "changed"),
    ("chmod 600 a", "changed"), ("rm a; mkdir a", ""), ("touch a", "changed")])
def test_what_the_user_changed_meanwhile_is_a_conflict(place, change, reason):
    place.put("a", "base\n")
    place.put("other", "base\n")
    place.sh("echo theirs > a; echo theirs > other")
    subprocess.run(["sh", "-c", change], cwd=place.dir, check=True)
    before = tree(place.dir)
    done = place.run("apply")
    assert done.returncode != 0 and "nothing was applied" in done.stderr, done
    assert done.stdout.startswith("conflict ") and reason in done.stdout, done
    assert "waiting  M other" in done.stdout and tree(place.dir) == before
    place.ok("apply", "--skip-conflicts")
    after = tree(place.dir)
    assert after.pop("other") == ("file", "0o644", b"theirs\n")
    before.pop("other")
    assert after == before


def test_new_and_deleted_paths_conflict_too(place):
    place.put("d/a", "base\n")
    place.put("e/a", "base\n")
    place.sh("echo theirs > new; rm -r d; echo theirs > e/a")
    place.put("new", "mine\n")
    place.put("d/mine", "mine\n")
    os.rename(place.dir / "e", place.dir / "e.old")
    place.put("e/a", "base\n")
    os.utime(place.dir / "e/a", (1, 1))
    before = tree(place.dir)
    done = place.run("apply")
    assert done.returncode != 0 and tree(place.dir) == before
    conflicts = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("conflict")]
    assert {"new", "d/mine", "e/a"} <= set(conflicts), done.stdout


def test_lines_are_merged(place):
    if not shutil.which("git"):
        pytest.skip("needs git")
    git = [*place.prefix, "git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    place.put("a", "".join(f"{number}\n" for number in range(1, 10)))
    place.put("b", "1\n")
    place.own()
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], cwd=place.dir, env=place.env, check=True)
    place.sh("sed -i s/9/nine/ a; echo theirs > b")
    subprocess.run(["sed", "-i", "s/1/one/", "a"], cwd=place.dir, check=True)
    done = place.run("apply", "--merge")
    assert done.returncode == 0 and "merged   M a" in done.stdout, done
    assert (place.dir / "a").read_text() == "one\n2\n3\n4\n5\n6\n7\n8\nnine\n"
    place.sh("sed -i s/5/five/ a")
    subprocess.run(["sed", "-i", "s/5/FIVE/", "a"], cwd=place.dir, check=True)
    assert place.run("apply", "--merge").returncode != 0
    assert "FIVE" in (place.dir / "a").read_text()


def test_what_runs_on_the_host_is_held_back(place):
    place.put(".git/config", "[core]\n")
    place.put("a", "")
    place.sh("echo x >> .git/config; mkdir .git/hooks; echo evil > .git/hooks/pre-commit; echo x > .envrc;"
             "mkdir -p sub/.vscode; echo x > sub/.vscode/tasks.json; ln -s /etc/passwd out;"
             "ln -s ../../up up; ln -s a fine; mkfifo pipe; mkdir -p deep/er; ln -s ../.. deep/er/top;"
             "ln -s deep/er/top/../up past; ln -s deep/er/top inside; touch .gitignore; chmod 4755 a")
    held = [name for verdict, name in place.verdicts() if verdict == "held"]
    assert held == ["A .envrc", "M .git/config", "A .git/hooks", "A .git/hooks/pre-commit", "A out",
                    "A past", "A pipe", "A sub/.vscode", "A sub/.vscode/tasks.json", "A up"]
    assert sorted(os.listdir(place.dir)) == [".git", ".gitignore", "a", "deep", "fine", "inside", "sub"]
    assert (place.dir / "a").stat().st_mode & 0o7777 == 0o755
    assert (place.dir / ".git/config").read_text() == "[core]\n"
    assert ("held", "A pipe") in place.verdicts(".envrc", "pipe")
    assert (place.dir / ".envrc").read_text() == "x\n"


def test_a_link_on_the_way_is_not_followed(place):
    outside = place.base / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside\n")
    place.put("d/a", "base\n")
    place.own()
    place.sh("echo theirs > d/a")
    shutil.rmtree(place.dir / "d")
    os.symlink(outside, place.dir / "d")
    assert place.run("apply").returncode != 0
    assert (outside / "a").read_text() == "outside\n"
    (place.dir / "d").unlink()


def test_tries_are_found_and_discarded(place):
    place.put("sub/a", "")
    first = place.sh("echo 1 > x")
    second = place.sh("echo 2 > y", "-C", "sub")
    tries = json.loads(place.ok("try", "--list", "-o", "json"))["tries"]
    assert [one["id"] for one in tries] == [second, first]
    assert [one["dir"] for one in tries] == [str(place.dir / "sub"), str(place.dir)]
    assert place.names() == ["A\tx"] and place.names(second[:12]) == ["A\ty"]
    place.ok("discard")
    done = place.run("diff")
    assert done.returncode != 0
    place.ok("discard", second)
    done = place.run("discard", second)
    assert done.returncode != 0 and "there is no such try" in done.stderr


def test_a_try_in_use_is_seen_from_elsewhere_and_kept(place):
    place.own()
    with subprocess.Popen([*place.prefix, place.base / "cay", "try", "-i", "--", "sh", "-c",
                           "echo x > x; echo ready; read line"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, cwd=place.dir, env=place.env) as running:
        assert running.stdout.readline() == b"ready\n"
        assert place.names() == ["A\tx"]
        done = place.run("discard")
        assert done.returncode != 0 and "a sandbox shows this try" in done.stderr
        running.stdin.write(b"\n")
        running.stdin.close()
        assert running.wait(PATIENCE) == 0
    assert place.names() == ["A\tx"]


def test_a_directory_with_the_state_of_cay_is_refused(place):
    (place.base / "state").mkdir(exist_ok=True)
    os.chown(place.base / "state", place.uid, place.uid)
    os.chmod(place.base / "state", 0o700)
    done = place.run("try", "-C", place.base, "--", "true")
    assert done.returncode == 125 and "contains the state of Cay" in done.stderr


# What each operation of a random script may touch.
SCRIPT = r"""
import os, random, sys
draw = random.Random(int(sys.argv[1]))
names = ["a", "b", "c", "d"]
def path():
    return "/".join(draw.choice(names) for _ in range(draw.randint(1, 3)))
for _ in range(int(sys.argv[2])):
    one, other, what = path(), path(), draw.randint(0, 8)
    text = draw.choice(["", "x\n", "y\n" * 50])
    try:
        if what <= 2:
            os.makedirs(os.path.dirname(one) or ".", exist_ok=True)
            with open(one, draw.choice("wa")) as file:
                file.write(text)
        elif what == 3:
            os.unlink(one)
        elif what == 4:
            os.rename(one, other)
        elif what == 5:
            os.symlink("a", one)
        elif what == 6:
            os.chmod(one, draw.choice([0o755, 0o700, 0o750]))
        elif what == 7:
            os.rmdir(one)
        else:
            os.link(one, other, follow_symlinks=False)
    except OSError:
        pass
"""


def check_random(place, seed, count):
    """The same operations on a copy and in a try, then applied: both must be the same.  Renames
    of directories differ (overlayfs refuses some), so the view is compared, too."""
    for top in (place.dir, place.base / "script.py"):
        if top.is_dir():
            shutil.rmtree(top)
    place.dir.mkdir()
    (place.dir / "script.py").write_text(SCRIPT)
    subprocess.run(["python3", "script.py", str(seed), "40"], cwd=place.dir, check=True)
    place.own()
    done = place.run("try", "--", "sh", "-c",
                     f"python3 script.py {seed + 1} {count} && tar -cf view.tar --exclude=view.tar .; [ $? -le 1 ]")
    assert done.returncode == 0, (seed, done)
    place.ok("apply")
    view = place.base / "view"
    view.mkdir()
    subprocess.run(["tar", "-xpf", place.dir / "view.tar", "-C", view], check=True)
    (place.dir / "view.tar").unlink()
    assert tree(place.dir) == tree(view), seed
    shutil.rmtree(view)
    place.ok("discard", "--all")


def test_random_changes_are_applied(place):
    start = random.SystemRandom().randrange(1 << 30)
    for number in range(8):
        check_random(place, start + 2 * number, 60)


@pytest.mark.long
def test_many_random_changes_are_applied(place):
    start = random.SystemRandom().randrange(1 << 30)
    for number in range(int(os.environ.get("CAY_TREES", 40))):  # 500: a thousand of both users
        check_random(place, start + 2 * number, 60)


CALLS = ("mkdirat", "openat2", "fchmod", "renameat2", "renameat", "unlinkat", "fsync", "syncfs", "symlinkat",
         "write", "flock", "fchmodat")


def test_the_first_command_of_a_try_waits_for_no_disk(place):
    """What has to be on the disk is there before a diff or an apply relies on it."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    place.put("a")
    place.own()
    env = {**place.env, **{name: TRACED[name] for name in ("LSAN_OPTIONS",)}}
    log = place.base / "calls"

    def calls(*words):
        done = place.run(*words, env=env, before=[
            "strace", "-f", "-qq", "-o", log, "-e", "trace=fsync,fdatasync,syncfs,execve"])
        assert done.returncode == 0, done
        return log.read_text()

    # The last execve is that of the command.
    before, _, after = calls("try", "--", "sh", "-c", "echo b > b").rpartition("echo b > b")
    assert "sync(" not in before and "sync(" in after, (before, after)
    assert "sync(" in calls("apply")


def test_an_apply_that_was_undone_can_be_repeated(place):
    """Undoing gives the files back with new change times, which are no conflict."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    env = {**place.env, **{name: TRACED[name] for name in ("LSAN_OPTIONS",)}}

    def apply(what):
        return place.run("apply", before=["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2",
                                          "-e", f"inject=renameat2:{what}"], env=env)

    place.put("a", "1\n")
    place.put("b", "b\n")
    place.sh("echo 2 >> a; rm b; echo new > new; mkdir d; echo n > d/n")
    old = tree(place.dir)
    count = 0
    # The last renames fail, the next ones are killed, and one more time without either.
    for what in ("error=ENOSPC:when=3", "signal=KILL:when=3", "error=EACCES:when=2", "signal=KILL:when=4"):
        done = apply(what)
        if done.returncode:
            count += 1
            assert "conflict" not in done.stdout, (what, done)
            assert sorted(place.names()) == ["A\td/", "A\td/n", "A\tnew", "D\tb", "M\ta"]
            assert tree(place.dir) == old, what
    assert count >= 2
    # What the user changes in the meantime is a conflict nevertheless.
    (place.dir / "a").write_text("mine\n")
    assert place.verdicts(check=False)[0] == ("conflict", "M a")
    assert ("applied", "A new") in place.verdicts("--skip-conflicts")
    assert (place.dir / "a").read_text() == "mine\n" and not (place.dir / "b").exists()


KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


def apply_killed(place, call, step, *options):
    """Whether the apply was killed at this call."""
    env = {**place.env, **{name: TRACED[name] for name in ("LSAN_OPTIONS",)}}
    done = place.run("apply", *options, before=["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}",
                                                "-e", f"inject={call}:signal=KILL:when={step}"], env=env)
    # Without its git, a merge is a conflict.
    assert done.returncode in (0, *KILLED) or (options and "changed on both sides" in done.stderr), done
    place.names()  # restores the directory if necessary
    return done.returncode != 0


def begin_changes(place):
    """A try that changes, removes, creates and links."""
    if place.dir.exists():
        shutil.rmtree(place.dir)
    place.put("a", "1\n")
    place.put("old/deep/b", "b\n")
    place.put("mode", "m\n", 0o600)
    place.sh("echo 2 >> a; rm -r old; mkdir -p new/deep; echo n > new/deep/n; ln -s a l; chmod 755 mode;"
             "mkdir old; echo o > old/o")


def with_changes(old):
    """The directory, which was `old`, when they are applied."""
    rest = {path: what for path, what in old.items() if not path.startswith("old/")}
    return {**rest, "a": ("file", "0o644", b"1\n2\n"), "mode": ("file", "0o755", b"m\n"),
            "l": ("link", "a"), "new": ("directory", "0o755"), "new/deep": ("directory", "0o755"),
            "new/deep/n": ("file", "0o644", b"n\n"), "old/o": ("file", "0o644", b"o\n")}


@pytest.mark.parametrize("call", CALLS)
def test_an_apply_that_is_killed_leaves_the_old_or_the_new(place, call):
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    step, old = 1, None
    while True:
        begin_changes(place)
        old = tree(place.dir)
        killed = apply_killed(place, call, step)
        now = tree(place.dir)
        new = with_changes(old)
        assert now in (old, new), (call, step)
        assert now == new or killed
        place.ok("discard", "--all")
        if not killed:
            break
        step += 1


def calls_of_apply(place, *options):
    """All system calls of an apply that ends well, from the first one that is about the try: names and numbers."""
    log = place.base / "calls"
    env = {**place.env, **{name: TRACED[name] for name in ("LSAN_OPTIONS",)}}
    done = place.run("apply", *options, before=["strace", "-f", "-qq", "-o", log], env=env)
    assert done.returncode == 0, done
    numbers, found, first = {}, [], None
    for line in log.read_text(errors="replace").splitlines():
        called = re.match(r"(\d+) +(\w+)\((.*)", line)
        if not called or (first and called[1] != first):
            continue
        name = called[2]
        numbers[name] = numbers.get(name, 0) + 1
        if first or "tries" in called[3]:
            first = called[1]
            found.append((name, numbers[name]))
    return found


def check_killed_everywhere(place, begin, new, *options):
    """begin() makes a directory with a try, whose apply leads to new(old)."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    begin()
    old = tree(place.dir)
    points = calls_of_apply(place, *options)
    wanted = new(old)
    assert tree(place.dir) == wanted and len({name for name, _ in points}) > 20
    is_new = True
    for call, number in points:
        if is_new:
            place.ok("discard", "--all")
            begin()
            old = tree(place.dir)
            wanted = new(old)
        # Otherwise the try goes on: the next apply begins where the last one was undone.
        killed = apply_killed(place, call, number, *options)
        now = tree(place.dir)
        assert now in (old, wanted), (call, number)
        is_new = now == wanted
        assert is_new or killed
    place.ok("discard", "--all")


@pytest.mark.long
def test_an_apply_that_is_killed_at_any_system_call_leaves_the_old_or_the_new(place):
    check_killed_everywhere(place, lambda: begin_changes(place), with_changes)


@pytest.mark.long
def test_a_merge_that_is_killed_at_any_system_call_leaves_the_old_or_the_new(place):
    if not shutil.which("git"):
        pytest.skip("needs git")

    def begin():
        begin_merge(place)

    check_killed_everywhere(place, begin, merged, "--merge")


LINES = [f"{number}\n" for number in range(1, 10)]


def begin_merge(place):
    git = [*place.prefix, "git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    if place.dir.exists():
        shutil.rmtree(place.dir)
    place.put("a", "".join(LINES))
    place.put("b", "base\n")
    place.own()
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], cwd=place.dir, env=place.env, check=True)
    place.sh("sed -i s/9/nine/ a; echo theirs > b; echo new > c")
    (place.dir / "a").write_text("".join(["one\n", *LINES[1:]]))


def merged(old):
    return {**old, "a": (*old["a"][:2], "".join(["one\n", *LINES[1:8], "nine\n"]).encode()),
            "b": (*old["b"][:2], b"theirs\n"), "c": ("file", "0o644", b"new\n")}


def check_killed_merge(place, call):
    if not shutil.which("strace") or not shutil.which("git"):
        pytest.skip("needs strace and git")
    step, killed = 0, True
    while killed:
        step += 1
        assert step < 400, call
        begin_merge(place)
        old = tree(place.dir)
        killed = apply_killed(place, call, step, "--merge")
        new = merged(old)
        now = tree(place.dir)
        assert now in (old, new), (call, step)
        assert now == new or killed
        place.ok("discard", "--all")


@pytest.mark.parametrize("call", ("renameat2", "unlinkat", "execve"))
def test_a_merge_that_is_killed_leaves_the_old_or_the_new(place, call):
    check_killed_merge(place, call)
