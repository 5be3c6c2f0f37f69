# SPDX-License-Identifier: Apache-2.0
"""docs/first-ten-minutes.md, by an ordinary user, with an index of packages of this test."""

import functools
import http.server
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

import pages
import pytest
import test_sessions

UID = 54322  # nobody's, and without a range in /etc/subuid
PAGE = "docs/first-ten-minutes.md"


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def index(tmp_path):
    """The address of an index that has a small humanize."""
    folder = tmp_path / "simple" / "humanize"
    folder.mkdir(parents=True)
    about = "Metadata-Version: 2.1\nName: humanize\nVersion: 1.0\n"
    with zipfile.ZipFile(folder / "humanize-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("humanize.py", "def intcomma(number):\n    return f'{number:,}'\n")
        wheel.writestr("humanize-1.0.dist-info/METADATA", about)
        wheel.writestr("humanize-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: cay\n"
                       "Root-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("humanize-1.0.dist-info/RECORD", "")
    handler = functools.partial(Handler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


class Person:
    """An ordinary user with a home."""

    def __init__(self, folder):
        self.folder, self.home = folder, folder / "home"
        for path in self.home, folder / "run", folder / "bin":
            path.mkdir(mode=0o700)
        for part in ("cay", "cay-full", "cay-serve", "libcay.so"):
            shutil.copy(pages.BUILD / part, folder / "bin")
        for path in folder, *folder.rglob("*"):
            os.chown(path, UID, UID)

    def run(self, *words, **more):
        env = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HOME": str(self.home),
               "XDG_RUNTIME_DIR": str(self.folder / "run"), "LC_ALL": "C.UTF-8",
               "CAY_WARM": "off", "LD_LIBRARY_PATH": str(self.folder / "bin"), **more}
        return subprocess.run(words, cwd=self.home, env=env, user=UID, group=UID, extra_groups=[],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout


@pytest.fixture
def person():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        someone = Person(Path(folder))
        yield someone
        someone.run("cay", "rm", "--all")
        assert someone.run("cay", "ls", "--quiet") == ""


def without_ids(text):
    return re.sub(r"\bsb-[a-z0-9]{16}\b", "sb-ID", text)


def test_the_commands_print_what_is_shown(person, index):
    shown, printed = "", ""
    for command in pages.sessions(PAGE):
        shown += f"$ {command.text}\n{command.output}"
        text = command.text.replace("cay create ", f"cay create -e PIP_INDEX_URL={index} ")
        printed += f"$ {command.text}\n{person.run('bash', '-c', text)}"
    assert without_ids(printed) == without_ids(shown)
    assert shown.count("cay create ") == 1


def is_reachable(path):
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(path).resolve().parents)


def test_the_python_prints_what_is_shown(person):
    ((program, output),) = test_sessions.programs("python", PAGE)
    assert len(program.splitlines()) == 6
    more = {name: os.environ[name] for name in ("PYTHONPATH", "CAY_LIBRARY") if name in os.environ}
    if is_reachable(sys.executable) and is_reachable(pages.ROOT):
        assert person.run(sys.executable, "-c", program, **more) == output
    else:
        assert pages.run([sys.executable, "-c", program], person.home).stdout == output
