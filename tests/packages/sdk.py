# SPDX-License-Identifier: Apache-2.0
"""A program that uses E2B's SDK, with the server that the environment names.

    sdk.py            creates a sandbox, uses it, pauses it, kills it; prints its ID
    sdk.py --no-pause the same without the pause, which needs a cgroup
    sdk.py --keep     creates a sandbox, uses it and leaves it
    sdk.py ID         uses a sandbox that --keep left, and kills it
"""

import sys

from e2b_code_interpreter import Sandbox

PATIENCE = 60


def has_python(sandbox):
    return "python3" in sandbox.commands.run("command -v python3 || true", timeout=PATIENCE).stdout


def use(sandbox):
    result = sandbox.commands.run("cat kept; id -un", cwd="/tmp", timeout=PATIENCE)
    assert result.stdout == "kept\nuser\n", result
    sandbox.files.write("/tmp/a/b", "written")
    assert sandbox.files.read("/tmp/a/b") == "written"
    assert [entry.name for entry in sandbox.files.list("/tmp/a")] == ["b"]
    if has_python(sandbox):
        assert sandbox.run_code("x + 2", timeout=PATIENCE).text == "42"
    assert sandbox.is_running()


def begin():
    sandbox = Sandbox.create(timeout=3600)
    sandbox.files.write("/tmp/kept", "kept\n")
    if has_python(sandbox):
        sandbox.run_code("x = 40", timeout=PATIENCE)
    use(sandbox)
    return sandbox


def main():
    match sys.argv[1:]:
        case [] | ["--no-pause"]:
            sandbox = begin()
            if len(sys.argv) == 1:
                sandbox.pause()
                use(Sandbox.connect(sandbox.sandbox_id))
            assert sandbox.kill()
            assert not sandbox.is_running()
        case ["--keep"]:
            sandbox = begin()
            sandbox.commands.run("sleep 1000", background=True, timeout=0)
        case [sandbox_id]:
            sandbox = Sandbox.connect(sandbox_id)
            use(sandbox)
            found = sandbox.commands.list()
            assert ["sleep", "1000"] in [[each.cmd, *each.args] for each in found], found
            assert sandbox.kill()
    print(sandbox.sandbox_id)


if __name__ == "__main__":
    main()
