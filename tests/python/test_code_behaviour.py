# SPDX-License-Identifier: Apache-2.0
"""What code does to its context: crashes, endless loops, hostile lines, unusual output."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from native import ledger
from warm import run

from cay import Sandbox
from cay.errors import SandboxKilledError, SandboxLimitError, SandboxProtocolError
from cay.sandbox import Execution

PATIENCE = 120
CHANNEL = 250  # the driver's descriptor to the code service


@pytest.fixture(name="sandbox", scope="module")
def fixture_sandbox() -> Iterator[Sandbox]:
    with ledger(), Sandbox.create(ephemeral=True, memory="512M") as sandbox:
        yield sandbox


# --- The end of an interpreter ---------------------------------------------------------------


@pytest.mark.parametrize(
    "code, cause",
    [
        ("import ctypes; ctypes.string_at(0)", "signal 11 (SIGSEGV)"),
        ("import os; os._exit(7)", "exited with status 7"),
        ("import os; os.abort()", "signal 6 (SIGABRT)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9 (SIGKILL)"),
        ("import os; os.killpg(0, 15)", "signal 15 (SIGTERM)"),
        (
            "import sys; sys.setrecursionlimit(10**9)\n"
            "class Deep:\n    def __eq__(self, other): return self == Deep()\n"
            "Deep() == 1",
            "signal 11 (SIGSEGV)",
        ),
        ("data = [b'x' * (64 << 20) for _ in range(64)]", "out of memory"),
        (f"import os; os.close({CHANNEL}); 1 / 0", "its variables are lost"),
    ],
    ids=["fault", "exit", "abort", "kill", "group", "stack", "memory", "channel"],
)
def test_a_crash_is_an_error_with_its_cause_and_the_next_result_says_so(
    sandbox: Sandbox, code: str, cause: str
) -> None:
    run(sandbox, "kept = 1")
    execution = sandbox.execute_code(code, timeout=PATIENCE)
    assert (execution.status, execution.error.name) == ("lost", "ContextRestarting")
    assert cause in execution.error.value and "variables are lost" in execution.error.value
    execution = sandbox.execute_code("print('kept' in dir())")
    assert execution.stdout == "False\n" and execution.restarted
    assert sandbox.execute_code("1").restarted is None


@pytest.mark.parametrize("between", [False, True], ids=["in an execution", "between two"])
def test_a_code_service_that_hostile_code_destroys_is_replaced_and_the_next_result_says_so(
    sandbox: Sandbox, between: bool
) -> None:
    """The service has the rights of the code, which can write to its memory."""
    run(sandbox, "kept = 1; import os, re; service = os.getppid()")
    destroy = (
        "memory = os.open(f'/proc/{service}/mem', os.O_RDWR)\n"
        "maps = open(f'/proc/{service}/maps').read()\n"
        "for start, end in re.findall(r'^(\\w+)-(\\w+) rw', maps, re.M):\n"
        "    os.pwrite(memory, b'x' * (int(end, 16) - int(start, 16)), int(start, 16))"
    )
    if between:
        sandbox.exec(["kill", "-9", run(sandbox, "service") or ""])
    else:
        with pytest.raises((SandboxKilledError, SandboxProtocolError)):
            sandbox.execute_code(destroy, timeout=PATIENCE)
    execution = sandbox.execute_code("print('kept' in dir())")
    assert execution.stdout == "False\n"
    assert "all variables are lost" in (execution.restarted or "")
    assert sandbox.execute_code("1").restarted is None


@pytest.mark.parametrize(
    "code",
    ["exit()", "quit()", "import sys; sys.exit(3)", "raise SystemExit('x')", "raise GeneratorExit"],
)
def test_an_exit_is_an_error_and_keeps_the_variables(sandbox: Sandbox, code: str) -> None:
    run(sandbox, "kept = 1")
    execution = sandbox.execute_code(code)
    assert execution.status == "error" and execution.error.name.endswith("Exit")
    assert run(sandbox, "kept") == "1"
    # exit() of the module site would close descriptor 0, and the next file would get it.
    assert run(sandbox, "import os; os.readlink('/proc/self/fd/0')") == "'/dev/null'"


def test_code_that_ignores_the_interrupt_is_killed_and_says_so(sandbox: Sandbox) -> None:
    loops = {
        "ignored": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "blocked": "import signal; signal.pthread_sigmask(0, {2})\nwhile True: pass",
        "caught": "import time\nwhile True:\n"
        "    try:\n        time.sleep(9)\n    except BaseException: pass",
        "in C": "sum(range(10**15))",
    }
    contexts = {name: sandbox.create_context() for name in loops}

    def loop(name: str) -> Execution:
        return sandbox.execute_code(loops[name], context=contexts[name], timeout=0.5)

    with ThreadPoolExecutor() as threads:
        executions = dict(zip(loops, threads.map(loop, loops)))
    for name, execution in executions.items():
        assert execution.status == "timeout", name
        assert "did not react to the interrupt and was killed" in execution.error.value, name
        again = sandbox.execute_code("1", context=contexts[name])
        assert again.text == "1" and "was killed" in again.restarted, name
        sandbox.remove_context(contexts[name])


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        "import subprocess; subprocess.run(['sleep', '1000'])",
        "import threading; threading.Event().wait()",
        "import asyncio; await asyncio.sleep(1000)",
        "while True: print('x' * 1000)",
    ],
)
def test_a_timeout_interrupts_every_kind_of_wait(sandbox: Sandbox, loop: str) -> None:
    execution = sandbox.execute_code(f"kept = 5\n{loop}", timeout=0.3, output_limit=5000)
    assert execution.status == "timeout" and "killed" not in execution.error.value
    assert run(sandbox, "kept") == "5"


def test_a_limit_of_contexts_says_what_is_allowed(sandbox: Sandbox) -> None:
    made = []
    with pytest.raises(SandboxLimitError, match="the limit is 64") as raised:
        for _ in range(100):
            made.append(sandbox.create_context("bash"))
    assert "too many contexts" in str(raised.value)
    assert len(sandbox.contexts()) == 64
    # A context that exists can be used; one that is removed makes room.
    assert sandbox.execute_code("echo $((6 * 7))", context=made[-1]).stdout == "42\n"
    sandbox.remove_context(made.pop())
    made.append(sandbox.create_context("bash"))
    for context in made:
        sandbox.remove_context(context)


# --- Output ----------------------------------------------------------------------------------


def test_large_output_is_complete_up_to_the_limit(sandbox: Sandbox) -> None:
    size = 5 << 20
    for code in (
        f"print('x' * {size}, end='')",
        f"import os\nfor _ in range({size} >> 12): os.write(1, b'x' * 4096)",
        "import subprocess; _ = subprocess.run(['sh', '-c', "
        f"'head -c {size} /dev/zero | tr \"\\\\000\" x'])",
    ):
        execution = sandbox.execute_code(code, output_limit=8 << 20)
        assert execution.stdout == "x" * size and execution.dropped == 0, code
        execution = sandbox.execute_code(code, output_limit=1000)
        assert len(execution.stdout) == 1000 and execution.dropped == size - 1000, code


def test_bytes_that_are_not_text_are_replaced(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code(
        "import os, sys\n"
        "_ = sys.stdout.buffer.write(b'a\\xff\\x00b\\n'); sys.stdout.flush()\n"
        "_ = os.write(2, bytes(range(256)))"
    )
    assert execution.stdout == "a\ufffd\0b\n"
    assert execution.stderr.startswith("".join(map(chr, range(128))))
    assert set(execution.stderr[128:]) == {"\ufffd"}


def test_lone_surrogates_and_every_plane_of_unicode_are_text(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code("print('\\ud800 \\U0001f600 \\0 \\u2028')\n'\\udfff|\\U0001f600'")
    assert execution.error is None
    assert execution.stdout.encode() and "\U0001f600 \0 \u2028" in execution.stdout
    assert execution.text.encode() and "|\U0001f600" in execution.text
    execution = sandbox.execute_code("raise ValueError('\\ud800' + 'é' * 3)")
    assert execution.error.value.endswith("ééé") and execution.error.value.encode()
    assert run(sandbox, "'é\U0001f600'") == "'é\U0001f600'"


def test_text_of_a_thread_after_the_end_belongs_to_no_execution(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code(
        "import threading, time\n"
        "go = threading.Event()\n"
        "def late():\n    go.wait()\n    print('late')\n    seen.set()\n"
        "seen = threading.Event()\n"
        "thread = threading.Thread(target=late); thread.start(); print('early')"
    )
    assert execution.stdout == "early\n"
    # It prints into the execution that runs then.
    assert sandbox.execute_code("go.set(); seen.wait(); thread.join()").stdout == "late\n"


def test_a_fork_in_code_prints_and_ends_without_the_channel(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code(
        "import os, sys\n"
        "child = os.fork()\n"
        "print('child' if child == 0 else 'parent')\n"
        "if child: os.waitpid(child, 0)"
    )
    assert sorted(execution.stdout.split()) == ["child", "parent"]
    assert execution.status == "success" and run(sandbox, "1 + 1") == "2"
    # A child that stays does not hold up the end of the execution.
    execution = sandbox.execute_code(
        "child = os.fork()\nif child == 0:\n    import time; time.sleep(1000)"
    )
    assert execution.status == "success" and run(sandbox, "2 + 2") == "4"
    run(sandbox, "os.kill(child, 9); os.waitpid(child, 0)")


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout = None; sys.stderr = None",
        "import sys; sys.stdout = open('/dev/full', 'w')",
        "import sys; sys.stdout.close(); sys.__stdout__ = 5",
        "import os; [os.close(number) for number in (0, 1, 2)]",
        "import builtins; del builtins.print, builtins.len, builtins.isinstance",
        "import sys; sys.modules.clear()",
        "import os; os.write = os.close = os.read = None",
        "import threading; threading.settrace(print)",
        "globals().clear()",
    ],
)
def test_a_context_whose_code_breaks_its_own_interpreter_harms_no_other(
    sandbox: Sandbox, code: str
) -> None:
    """It may break the context, which then reports that, or not; a restart repairs it."""
    context = sandbox.create_context()
    run(sandbox, "kept = 3")
    sandbox.execute_code(code, context=context, timeout=10)
    sandbox.execute_code("1", context=context, timeout=10)
    assert run(sandbox, "kept") == "3"
    sandbox.restart_context(context)
    execution = sandbox.execute_code("print(6 * 7)", context=context)
    assert execution.stdout == "42\n"
    sandbox.remove_context(context)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe garbage\n",
        b"x" * (1 << 20) + b"\n",
        b'{"type":"done","id":999999}\n',
        b'{"type":"ready"}\n',
        b'{"type":"result","data":{"image/png":"%%%"},"main":true}\n',
        b'{"type":"result","data":5}\n',
        b'{"type":"error","name":5}\n',
        b'{"type":"stdout","text":"\\ud800"}\n',
        b'{"type":"count","count":-1}\n',
        b"!exec 2\n",
        b"[" * 10000 + b"\n",
    ],
)
def test_a_line_that_code_writes_to_the_channel_harms_only_its_own_result(
    sandbox: Sandbox, line: bytes
) -> None:
    context = sandbox.create_context()
    hostile = f"import os; _ = os.write({CHANNEL}, {line!r})"
    execution = sandbox.execute_code(hostile, context=context, timeout=PATIENCE)
    assert execution.status in ("success", "error")
    sandbox.execute_code("2", context=context)  # the rest of a line may spoil this one
    assert sandbox.execute_code("3", context=context).text == "3"
    sandbox.remove_context(context)


def test_a_line_without_an_end_hides_the_end_of_the_execution_until_its_timeout(
    sandbox: Sandbox,
) -> None:
    context = sandbox.create_context()
    hostile = f"import os; _ = os.write({CHANNEL}, b'no newline')"
    execution = sandbox.execute_code(hostile, context=context, timeout=0.3)
    assert execution.status == "timeout" and "was killed" in execution.error.value
    assert "was killed" in sandbox.execute_code("1", context=context).restarted
    sandbox.remove_context(context)


def test_a_forged_end_does_not_become_the_end_of_the_next_execution(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    done = "".join(f'{{"type":"done","id":{number}}}\n' for number in range(1, 9))
    code = f"import os, time; _ = os.write({CHANNEL}, {done.encode()!r}); time.sleep(0.2); 7"
    sandbox.execute_code(code, context=context)
    for number in range(20):
        execution = sandbox.execute_code(f"print({number})", context=context)
        assert execution.stdout in ("", f"{number}\n")
    assert sandbox.execute_code("print(100)", context=context).stdout == "100\n"
    sandbox.remove_context(context)


# --- Clients ---------------------------------------------------------------------------------


def test_twenty_clients_of_two_contexts_each_get_their_own_output(sandbox: Sandbox) -> None:
    contexts = [sandbox.create_context() for _ in range(2)]
    for context in contexts:
        run(sandbox, "import time; running = 0", context=context)
    start = threading.Barrier(20)

    def client(number: int) -> str:
        start.wait()
        return sandbox.execute_code(
            f"running += 1; print({number}, running); time.sleep(0.005); running -= 1",
            context=contexts[number % 2],
        ).stdout

    with ThreadPoolExecutor(20) as threads:
        outputs = list(threads.map(client, range(20)))
    assert outputs == [f"{number} 1\n" for number in range(20)]
    for context in contexts:
        sandbox.remove_context(context)


def test_variables_of_one_call_are_restored_after_an_error(sandbox: Sandbox) -> None:
    run(sandbox, "import os; os.environ['BOTH'] = 'mine'")
    for code in ("1 / 0", "os.environ['BOTH'] = 'changed'", "del os.environ['BOTH']"):
        sandbox.execute_code(code, env={"BOTH": "yours", "ONCE": "1"})
        assert run(sandbox, "(os.environ['BOTH'], 'ONCE' in os.environ)") == "('mine', False)"


def test_input_fails_clearly(sandbox: Sandbox) -> None:
    execution = sandbox.execute_code("input('name? ')")
    assert execution.error.name == "EOFError" and "no standard input" in execution.error.value
    assert sandbox.execute_code("import sys; sys.stdin.read()").text == "''"
