# SPDX-License-Identifier: Apache-2.0
"""The driver of bash contexts."""

import pytest


def out(execution):
    assert execution.error is None, execution
    return execution.raw[1].decode()


def status(execution):
    return execution.error["name"], execution.error["value"]


def test_the_driver_reports_its_version(bash):
    assert bash.ready["version"][0] in "45"


def test_state_stays(bash, tmp_path):
    (tmp_path / "sub").mkdir()
    bash.run("x=5; f() { echo \"in $1\"; }; declare -A map; map[a]=1; declare -i n=3\n"
             "cd sub; export E=exported; shopt -s extglob; set -o pipefail")
    assert out(bash.run("echo $x ${map[a]} $n; f y; pwd; sh -c 'echo $E'; shopt -q extglob")) == \
        f"5 1 3\nin y\n{tmp_path}/sub\nexported\n"
    assert status(bash.run("false | true")) == ("ExitStatus", "1")


def test_code_is_text_of_any_kind(bash):
    code = "echo \"q'\\\"\\\\\" 'a\\nb' $'\\t|' é 😀 \x1b / {} \"\"\n\n\techo 'x\"'\ny=\"\"\n"
    assert out(bash.run(code)) == "q'\"\\ a\\nb \t| é 😀 \x1b / {} \nx\"\n"
    assert out(bash.run("cat <<'END'\n\"\\\\\"\\\nEND\n")) == '"\\\\"\\\n'
    assert out(bash.run("printf '%s' '\"\\' \"\\\\\" '\\\\\"'")) == "\"\\\\\\\\\""
    assert out(bash.run("")) == ""
    long = "x='" + "a\"\\" * 100000 + "'\necho ${#x}"
    assert out(bash.run(long)) == "300000\n"


def test_a_status_other_than_0_is_an_error(bash):
    assert status(bash.run("true; false")) == ("ExitStatus", "1")
    assert status(bash.run("(exit 42)")) == ("ExitStatus", "42")
    assert status(bash.run("return 3")) == ("ExitStatus", "3")
    assert out(bash.run("false; true")) == ""
    missing = bash.run("\nno-such-program")
    assert status(missing) == ("ExitStatus", "127")
    assert missing.raw[2].endswith(b": line 2: no-such-program: command not found\n")


def test_a_syntax_error_is_an_error(bash):
    execution = bash.run("echo before\nif then")
    assert execution.error["name"] == "ExitStatus"
    assert b"line 2: syntax error" in execution.raw[2]
    assert bash.run("echo 'open").error["name"] == "ExitStatus"
    assert out(bash.run("echo here")) == "here\n"


def test_executions_are_counted_except_silent_ones(bash):
    assert bash.run("true").count == 1
    assert bash.run("y=3", silent=True).lines == []
    assert bash.run("y=3", env={"A": "1"}, silent=True).lines == []
    execution = bash.run("echo $y")
    assert (execution.count, out(execution)) == (2, "3\n")


def test_variables_of_one_call_are_restored(bash):
    bash.run("plain=1; export exported=1")
    env = {"plain": "it's \"q\" \\ \n$x", "exported": "2", "new": "}", "not-a-name": "x"}
    assert out(bash.run("echo \"$plain|$exported|$new\"; sh -c 'echo \"$plain\"'", env=env)) == \
        "it's \"q\" \\ \n$x|2|}\nit's \"q\" \\ \n$x\n"
    assert out(bash.run("echo \"$plain|$exported|${new-unset}\"; sh -c 'echo \"<$plain>\"'")) == \
        "1|1|unset\n<>\n"


def test_errexit_ends_the_execution_and_not_the_shell(bash):
    execution = bash.run("x=1\nset -e\nf() {\n  false\n  echo no\n}\nf\necho no")
    assert status(execution) == ("ExitStatus", "1")
    assert execution.error["traceback"] == "line 4: exit status 1 (set -e)"
    assert execution.raw[1] == b""
    assert status(bash.run("for i in 1 2; do (exit 7); echo no; done")) == ("ExitStatus", "7")
    assert out(bash.run("echo $x; if false; then :; fi; false || true")) == "1\n"
    assert bash.run("(false; echo no); echo no").raw[1] == b""
    assert status(bash.run("set +e; false; echo on; false")) == ("ExitStatus", "1")
    assert out(bash.run("false; echo on")) == "on\n"


def test_unset_variables_and_pipefail_can_be_errors(bash):
    assert status(bash.run("set -o pipefail; false | true")) == ("ExitStatus", "1")
    assert out(bash.run("set -u; x=1; echo $x")) == "1\n"
    execution = bash.run("echo $no_such_variable")
    assert execution.lines[-1] == {"type": "died", "status": 127}
    assert b"no_such_variable: unbound variable" in execution.raw[2]


def test_exit_ends_the_shell(bash):
    execution = bash.run("echo last; exit 3")
    assert execution.raw[1] == b"last\n"
    assert execution.lines[-1] == {"type": "died", "status": 3}


def test_traps_of_the_code_run(bash):
    assert out(bash.run("trap 'echo usr' USR1; kill -USR1 $$; echo after")) == "usr\nafter\n"
    assert out(bash.run("trap 'echo error' ERR; false; trap - ERR; trap 'echo d' DEBUG; :; "
                        "trap - DEBUG")).startswith("error\n")
    assert out(bash.run("trap 'echo int' INT; trap - INT; echo fine")) == "fine\n"
    execution = bash.begin("echo up; sleep 1000")
    bash.wait_for_raw(execution, b"up\n")
    assert bash.finish_interrupted(execution).error["name"] == "KeyboardInterrupt"
    execution = bash.run("trap 'echo bye' EXIT; exit 0")
    assert execution.raw[1] == b"bye\n"


def test_tracing_does_not_show_the_driver(bash):
    assert b"cay" not in bash.run("set -x; echo traced").raw[2]
    execution = bash.run("echo again; set +x")
    assert b"echo again" in execution.raw[2]
    assert b"cay" not in execution.raw[2]
    assert bash.run("echo quiet").raw[2] == b""


def test_loops_of_the_driver_are_not_those_of_the_code(bash):
    for code in ("break", "continue", "while true; do break; done"):
        bash.run(code)
    assert out(bash.run("echo on")) == "on\n"


def test_words_that_the_code_sets_do_not_stop_the_driver(bash):
    bash.run("IFS=abc; set -f; shopt -s nullglob nocasematch; printf() { :; }; read() { :; }")
    assert out(bash.run("echo \"$IFS\"")) == "abc\n"
    assert out(bash.run("echo on", env={"A": "1"})) == "on\n"


@pytest.mark.parametrize("code", [
    "echo up; sleep 1000; echo no",
    "echo up; while :; do :; done; echo no",
    "f() { g; echo no; }; g() { while true; do sleep 0.01; done; echo no; }; echo up; f; echo no",
    "echo up; (sleep 1000; echo no); echo no",
    "echo up; x=$(sleep 1000); echo no",
    "echo up; sleep 1000 | cat; echo no",
    "sleep 1000 & echo up; wait; echo no",
    "set -e; echo up; sleep 1000; echo no",
    "echo up; for ((;;)); do :; done; echo no",
])
def test_sigint_ends_an_execution_and_keeps_the_variables(bash, code):
    bash.run("kept=5")
    execution = bash.begin(code)
    bash.wait_for_raw(execution, b"up\n")
    assert bash.finish_interrupted(execution).error["name"] == "KeyboardInterrupt"
    assert execution.raw[1] == b"up\n"
    assert out(bash.run("echo $kept; f() { echo f; }; f")) == "5\nf\n"


def test_sigint_between_executions_does_nothing(bash):
    bash.run("x=1")
    for _ in range(20):
        bash.interrupt()
    assert out(bash.run("echo $x")) == "1\n"


def test_a_child_has_no_channel(bash):
    assert out(bash.run("ls -l /proc/self/fd | grep -c socket; true")) == "0\n"
    assert bash.run("echo '{\"type\":\"done\",\"id\":1}' >&3").lines[1]["name"] == "ExitStatus"


def test_input_is_empty(bash):
    assert out(bash.run("cat; read line || echo none")) == "none\n"
