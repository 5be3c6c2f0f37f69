# SPDX-License-Identifier: Apache-2.0
"""Isolation of contexts, of sandboxes, and of copies of a saved interpreter: probes that look
for what belongs to another, and a control for each that must find it."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from native import ledger
from warm import cold_context, is_warm, need_libraries, run, warm_home

from cay import Sandbox
from cay.errors import SandboxNotFoundError
from cay.sandbox import Context

INSIDE = Path(__file__).with_name("code_probes.py").read_text()
HOST_SECRET = f"host-{uuid.uuid4().hex}"
PATIENCE = 120
USERS = (None, "nobody", "root")  # None: the default user


@pytest.fixture(name="image", scope="module")
def fixture_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A saved interpreter; the host had a secret in its environment when it was saved."""
    with pytest.MonkeyPatch.context() as patch, ledger():
        patch.setenv("CAY_TEST_SECRET", HOST_SECRET)
        with warm_home(tmp_path_factory.mktemp("home")) as image:
            yield image


@pytest.fixture(name="sandbox", scope="module")
def fixture_sandbox(image: Path) -> Iterator[Sandbox]:
    """One with the probes loaded in the default context of each user."""
    with Sandbox.create(ephemeral=True) as sandbox:
        for user in USERS:
            run(sandbox, INSIDE, user=user)
        assert is_warm(sandbox)
        yield sandbox


def probe(sandbox: Sandbox, call: str, **options: Any) -> Any:
    """What a function of code_probes.py returns."""
    execution = sandbox.execute_code(f"print(repr({call}))", timeout=PATIENCE, **options)
    assert execution.error is None, execution.error
    return ast.literal_eval(execution.stdout)


def halves(marker: str) -> str:
    return f"{marker[:9]!r}, {marker[9:]!r}"


def search(sandbox: Sandbox, marker: str) -> list[int]:
    """The processes of the default user that have the marker in their memory."""
    done = sandbox.exec(["python3", "-c", INSIDE, marker[:9], marker[9:]])
    assert done.exit_code == 0, done.stderr
    return ast.literal_eval(done.stdout)


def only(verdicts: dict[str, str], *allowed: str) -> dict[str, str]:
    """Those verdicts that are not allowed."""
    return {name: one for name, one in verdicts.items() if one not in allowed}


REFUSED = ("BLOCKED(EACCES)", "BLOCKED(EPERM)")

# --- Contexts of one sandbox -----------------------------------------------------------------


@pytest.mark.parametrize("user", USERS)
def test_a_process_of_the_same_user_is_reached(sandbox: Sandbox, user: str | None) -> None:
    """The control of the probes below: a child, and for the default user also the code
    service and another context, since a user may trace its own processes."""
    assert only(probe(sandbox, "of_child()", user=user), "FOUND") == {}
    if user is None:
        other = sandbox.create_context()
        assert only(probe(sandbox, f"of_process({other.pid})"), "FOUND") == {}
        assert only(probe(sandbox, "of_process(os.getppid())"), "FOUND") == {}
        sandbox.remove_context(other)


@pytest.mark.parametrize("user, other", [(None, "nobody"), ("nobody", None), (None, "root")])
def test_a_context_of_another_user_is_not_reached(
    sandbox: Sandbox, user: str | None, other: str | None
) -> None:
    interpreter, service = probe(sandbox, "(os.getpid(), os.getppid())", user=other)
    for pid in interpreter, service:
        assert only(probe(sandbox, f"of_process({pid})", user=user), *REFUSED) == {}


@pytest.mark.parametrize("user", USERS)
def test_pid_1_is_not_reached(sandbox: Sandbox, user: str | None) -> None:
    assert only(probe(sandbox, "of_process(1)", user=user), *REFUSED) == {}
    assert probe(sandbox, "read('/proc/1/cmdline')", user=user).startswith(b"cay-init\0")


def test_arguments_of_processes_have_no_code_and_no_variables(sandbox: Sandbox) -> None:
    """Arguments are visible to all users of a sandbox."""
    marker = f"code-{uuid.uuid4().hex}"
    run(sandbox, f"kept = {marker!r}")
    sandbox.create_context(env={"KEPT": marker})
    lines = probe(sandbox, "command_lines()", user="nobody")
    assert marker.encode() not in lines and b"python3\0-c\0" in lines
    child = f"import subprocess; child = subprocess.Popen(['cat', '-', {marker!r}], stdin=-1)"
    run(sandbox, child)
    assert marker.encode() in probe(sandbox, "command_lines()", user="nobody")  # the control
    run(sandbox, "child.communicate()")


def test_a_context_of_another_user_cannot_be_named(sandbox: Sandbox) -> None:
    mine = sandbox.contexts()[0]
    assert sandbox.execute_code("1", context=mine).text == "1"
    for user in USERS[1:]:
        assert mine.id not in [one.id for one in sandbox.contexts(user=user)]
        with pytest.raises(SandboxNotFoundError):
            sandbox.execute_code("1", context=mine, user=user)
        with pytest.raises(SandboxNotFoundError):
            sandbox.remove_context(mine, user=user)


def test_contexts_of_one_user_share_rights_and_nothing_else(sandbox: Sandbox) -> None:
    one = sandbox.create_context(cwd="/tmp", env={"MINE": "1"})
    two = sandbox.create_context(cwd="/", env={"MINE": "2"})
    look = "(os.getcwd(), os.environ['MINE'], 'kept' in dir(), sorted(descriptors()))"
    for context in one, two:
        run(sandbox, INSIDE, context=context)
    before = probe(sandbox, look, context=two)
    run(
        sandbox,
        "kept = 1; os.environ['MINE'] = '3'; os.chdir('/usr'); os.umask(0o077)\n"
        "file = open('/etc/passwd'); os.set_inheritable(file.fileno(), True)",
        context=one,
    )
    assert probe(sandbox, look, context=two) == before
    assert before[:3] == ("/", "2", False)
    assert probe(sandbox, look, context=one)[:3] == ("/usr", "3", True)  # the control
    assert len(probe(sandbox, look, context=one)[3]) == len(before[3]) + 1
    assert probe(sandbox, "os.umask(0)", context=two) != 0o077
    three = sandbox.create_context()  # created when the others had all of that
    run(sandbox, INSIDE, context=three)
    assert probe(sandbox, "sorted(descriptors())", context=three) == before[3]
    for context in one, two, three:
        sandbox.remove_context(context)


# --- Sandboxes -------------------------------------------------------------------------------


def test_a_sandbox_has_nothing_of_another(image: Path, sandbox: Sandbox) -> None:
    marker = f"put-{uuid.uuid4().hex}"
    run(sandbox, f"put({marker!r})")
    with Sandbox.create(ephemeral=True) as other:
        run(other, INSIDE)
        assert is_warm(other)
        assert only(
            probe(other, f"of_sandbox({halves(marker)})"),
            "NOTHING", "BLOCKED(ENOENT)", "BLOCKED(ECONNREFUSED)",
        ) == {}  # fmt: skip
        assert search(other, marker) == []
        # No user number of the one is a user number of the other.
        maps = {probe(one, "read('/proc/self/uid_map')") for one in (sandbox, other)}
        assert len(maps) == 2
    # The control: a search in the same sandbox, and another context of it.
    context = sandbox.create_context()
    run(sandbox, INSIDE, context=context)
    found = search(sandbox, marker)
    assert probe(sandbox, "os.getpid()") in found and context.pid not in found
    seen = probe(sandbox, f"of_sandbox({halves(marker)})", context=context)
    assert only(seen, "FOUND") == {}
    run(sandbox, "clean()")
    sandbox.remove_context(context)


def test_no_process_inside_has_the_secret_of_the_host(sandbox: Sandbox) -> None:
    assert search(sandbox, HOST_SECRET) == []
    run(sandbox, f"import os; os.environ['SECRET'] = {HOST_SECRET!r}")
    assert probe(sandbox, "os.getpid()") in search(sandbox, HOST_SECRET)  # the control
    # So that the tests after this one find nothing.
    sandbox.restart_context(sandbox.contexts()[0])
    run(sandbox, INSIDE)


# --- The saved interpreter -------------------------------------------------------------------


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def host_number(sandbox: Sandbox) -> int:
    """The host's number of the default user."""
    inside, outside, _ = map(int, probe(sandbox, "read('/proc/self/uid_map')").split())
    return outside + int(run(sandbox, "os.getuid()") or 0) - inside


def test_the_file_of_the_saved_interpreter_cannot_be_changed(
    image: Path, sandbox: Sandbox
) -> None:
    before, status = digest(image), image.stat()
    (path,) = probe(sandbox, "images()")
    refused = ("BLOCKED(EROFS)", "BLOCKED(EXDEV)", *REFUSED)
    assert only(probe(sandbox, f"of_file({path!r})"), *refused) == {}
    assert only(probe(sandbox, f"of_file({path!r})", user="root"), *refused) == {}
    assert only(probe(sandbox, "of_own_file()"), "FOUND") == {}  # the control
    # Without the mode and the owner of the file the mount alone protects it.
    os.chown(image, host_number(sandbox), 0)
    image.chmod(0o666)
    found = probe(sandbox, f"of_file({path!r})")
    assert found.pop("link") == "BLOCKED(EXDEV)"
    assert (found.pop("shared"), found.pop("shared_later")) == ("BLOCKED(EACCES)",) * 2
    assert only(found, "BLOCKED(EROFS)") == {}
    os.chown(image, status.st_uid, status.st_gid)
    image.chmod(status.st_mode)
    call = f"verdict(opens, map_file({image.stat().st_ino}), os.O_RDWR)"
    assert probe(sandbox, call) == "BLOCKED(EPERM)"  # needs CAP_CHECKPOINT_RESTORE
    assert probe(sandbox, "scribble()") > 0
    after = image.stat()
    assert digest(image) == before
    assert (after.st_size, after.st_nlink, after.st_ino, after.st_mtime_ns) == (
        status.st_size, status.st_nlink, status.st_ino, status.st_mtime_ns,
    )  # fmt: skip
    with Sandbox.create(ephemeral=True) as other:  # the next copy
        assert is_warm(other)
        assert search(other, "scribblescribble") == []


def test_the_file_of_the_saved_interpreter_has_no_name_inside(
    image: Path, sandbox: Sandbox
) -> None:
    """Neither its directory nor the files of other templates can be listed."""
    (path,) = probe(sandbox, "images()")
    assert probe(sandbox, f"os.readlink({path!r})") == "/"
    for way in ("..", ".", image.name, f"../{image.name}"):
        call = f"verdict(os.listdir, {path!r} + '/{way}')"
        assert probe(sandbox, call) in ("BLOCKED(ENOTDIR)", "BLOCKED(ENOENT)")
    for text in ("/proc/self/maps", "/proc/self/mountinfo", f"/proc/{path.split('/')[2]}/maps"):
        assert image.name.encode() not in probe(sandbox, f"read({text!r})")
    assert probe(sandbox, f"verdict(os.listdir, {str(image.parent)!r})") == "BLOCKED(ENOENT)"
    assert probe(sandbox, "verdict(os.listdir, '/proc')") == "FOUND"  # the control


def test_the_saved_interpreter_has_nothing_of_the_host(image: Path) -> None:
    saved = image.read_bytes()
    host = [HOST_SECRET, "CAY_TEST_SECRET", "CAY_HOME", str(image.parent), str(Path.cwd()),
            os.environ.get("CAY_LIBRARY", HOST_SECRET), sys.executable]  # fmt: skip
    assert [one for one in host if one.encode() in saved] == []
    inside = ["/home/user", "/usr/local/sbin:/usr/local/bin", "/usr/lib/python3"]
    assert [one for one in inside if one.encode() not in saved] == []  # the control


DIFFERENT = (
    "status Pid", "status Tgid", "status NSpid", "status NStgid", "status NSpgid",
    "status voluntary_ctxt_switches", "status nonvoluntary_ctxt_switches",
)  # fmt: skip


@pytest.fixture(name="pair")
def fixture_pair(image: Path) -> Iterator[tuple[Sandbox, Context]]:
    """A sandbox whose default context is a copy, and a context that has started Python."""
    with Sandbox.create(ephemeral=True) as sandbox:
        run(sandbox, INSIDE)
        cold = cold_context(sandbox)
        run(sandbox, INSIDE, context=cold)
        assert is_warm(sandbox) and not is_warm(sandbox, cold)
        yield sandbox, cold


def test_a_copy_has_the_rights_of_a_process_that_starts_python(
    pair: tuple[Sandbox, Context],
) -> None:
    sandbox, cold = pair
    copy = probe(sandbox, "kernel_state()")
    python = probe(sandbox, "kernel_state()", context=cold)
    different = {
        name for name in copy.keys() | python.keys()
        if copy.get(name) != python.get(name) and name not in DIFFERENT
        and not name.startswith(("status Vm", "status Rss"))
    }  # fmt: skip
    # The kernel lets only privileged processes change the link to the program; glibc has
    # installed a handler for its own signal 33, since libraries had started threads.
    assert different <= {"exe", "status SigCgt"}
    assert copy["exe"] == "/memfd:cay-code (deleted)"
    assert int(copy["status SigCgt"], 16) & ~(3 << 31) == int(python["status SigCgt"], 16)
    assert (copy["prctl no_new_privs"], copy["prctl dumpable"]) == (1, 1)
    assert copy["status Seccomp"] == "2" and int(copy["status CapBnd"], 16) == int(
        python["status CapBnd"], 16
    )
    # The control: a change of rights is seen.
    run(sandbox, "os.nice(1); os.dup(1); os.umask(0)", context=cold)
    changed = probe(sandbox, "kernel_state()", context=cold)
    assert {"status Umask", "scheduler", "descriptors"} <= {
        name for name in changed if changed[name] != python[name]
    }


RANDOM = """
import os, random, secrets, ssl, tempfile, uuid, multiprocessing, numpy
print(repr({
    'random': random.random(),
    'system': secrets.token_hex(8),
    'uuid4': uuid.uuid4().hex,
    'uuid1': uuid.uuid1().clock_seq,
    'numpy': float(numpy.random.random()),
    'generator': float(numpy.random.default_rng().random()),
    'shuffle': list(map(int, numpy.random.permutation(30))),
    'ssl': ssl.RAND_bytes(8),
    'tempfile': tempfile.mktemp(),
    'authkey': bytes(multiprocessing.current_process().authkey),
}))
hash('cay')
"""


def test_copies_draw_different_numbers_and_have_one_hash_seed(image: Path) -> None:
    need_libraries()
    drawn, hashes = [], set()
    for _ in range(3):
        with Sandbox.create(ephemeral=True) as sandbox:
            assert is_warm(sandbox)
            execution = sandbox.execute_code(RANDOM)
            assert execution.error is None, execution.error
            drawn.append(ast.literal_eval(execution.stdout))
            hashes.add(execution.text)
    assert [name for name in drawn[0] if len({str(one[name]) for one in drawn}) < 3] == []
    assert len(hashes) == 1  # docs/design/warm.md


def test_variables_that_many_programs_set_do_not_prevent_a_copy(image: Path) -> None:
    """A copy follows them; for others, such as PYTHONPATH, Python is started."""
    usual = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "TZ": "JST-9"}
    look = "import sys, time; (sys.dont_write_bytecode, time.strftime('%Z'))"
    for env, seen in ((usual, "(True, 'JST')"), ({}, "(False, 'UTC')")):
        with Sandbox.create(ephemeral=True, env=env) as sandbox:
            assert is_warm(sandbox) and run(sandbox, look) == seen
            cold = cold_context(sandbox)
            assert run(sandbox, look, context=cold) == seen  # the control
    assert image.exists()


# --- A template that attacks while its interpreter is saved ----------------------------------


HOSTILE = """
import os, sys
loot = [repr(dict(os.environ)), repr(sys.argv), repr(os.listdir('/'))]
def walk(top):
    for folder, directories, files in os.walk(top):
        directories[:] = directories[:50]
        loot.append(folder)
        for name in files[:50]:
            try:
                descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
                loot.append(repr(os.read(descriptor, 65536)))
                os.close(descriptor)
            except OSError:
                pass
for name in os.listdir('/proc'):
    if name.isdigit():
        for part in ('environ', 'cmdline', 'maps', 'mountinfo', 'cgroup'):
            try:
                loot.append(open(f'/proc/{name}/{part}').read())
            except OSError:
                pass
for name in os.listdir('/proc/self/fd'):
    try:
        loot.append(os.readlink(f'/proc/self/fd/{name}'))
    except OSError:
        pass
for top in os.environ.get('LOOK_AT', '/tmp:/root:/home:/run:/var:/dev/shm').split(':'):
    walk(top)
for target in ('/tmp/.cay-warm.new', '/usr/planted', '/etc/planted'):
    try:
        open(target, 'w').write('planted')
    except OSError:
        pass
sys.loot = '\\n'.join(loot)
import multiprocessing.process, random, ssl, tempfile
sys.drawn = tempfile.mktemp(), random.random(), ssl.RAND_bytes(8)
"""


# What the hostile code has drawn from before the save must not go on in each copy alike.
DRAW = """
import multiprocessing, random, ssl, tempfile
print([tempfile.mktemp(), random.random(), ssl.RAND_bytes(8),
       bytes(multiprocessing.current_process().authkey)])
"""


def python_root(root: Path) -> None:
    """A root with Python and nothing else, whose sitecustomize is hostile."""
    found = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    version = found.stdout.strip()
    for name in ("etc", "tmp", "proc", "dev", "root", "usr/bin", "usr/lib"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    programs = ["/usr/bin/python3", "/bin/cat", "/bin/sh"]
    extensions = [
        str(next(Path(f"/usr/lib/{version}/lib-dynload").glob(f"{name}.*")))
        for name in ("_ctypes", "_hashlib", "_ssl")
    ]
    listed = subprocess.run(
        ["ldd", *programs, *extensions], capture_output=True, text=True, check=True
    ).stdout
    files = {word for word in listed.split() if word.startswith("/") and word[-1] != ":"}
    for name in sorted(files | set(programs)):
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(os.path.realpath(name)).read_bytes())
        target.chmod(0o755)
    library = root / "usr" / "lib" / version
    subprocess.run(["cp", "-a", f"/usr/lib/{version}", library], check=True)
    (library / "sitecustomize.py").unlink(missing_ok=True)
    (library / "sitecustomize.py").write_text(HOSTILE)


def test_hostile_code_of_a_template_finds_nothing_when_its_interpreter_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"host-{uuid.uuid4().hex}"
    root, hidden = tmp_path / "root", tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "note").write_text(secret)
    python_root(root)
    monkeypatch.setenv("CAY_TEST_SECRET", secret)
    drawn = []
    with ledger(), warm_home(tmp_path / "home", str(root)) as image:
        assert secret.encode() not in image.read_bytes()
        for _ in range(2):
            with Sandbox.create(ephemeral=True, template=root) as sandbox:
                assert is_warm(sandbox)
                loot = sandbox.execute_code("import sys; print(sys.loot)").stdout
                assert secret not in loot and str(tmp_path) not in loot
                assert "/usr/local/sbin:/usr/local/bin" in loot
                execution = sandbox.execute_code(DRAW)
                assert execution.error is None, execution.error
                drawn.append(ast.literal_eval(execution.stdout))
    assert [one for one in zip(*drawn) if one[0] == one[1]] == []
    assert not Path("/usr/planted").exists() and not Path("/etc/planted").exists()
    # The control: on the host the same code finds the secret, twice.
    done = subprocess.run(
        ["/usr/bin/python3", "-c", HOSTILE.partition("for target in")[0] + "print(loot)"],
        capture_output=True, text=True, check=True,
        env={**os.environ, "LOOK_AT": str(hidden)},
    )  # fmt: skip
    assert done.stdout.count(secret) >= 2
