/* SPDX-License-Identifier: Apache-2.0 */

/* Code in one language or another. */
#include "agent.h"

static struct cay_code_result code;

static void run_with(cay_sandbox *sandbox, const char *language, const char *text,
                     size_t len, struct cay_command_options options)
{
    options.size = sizeof options;
    cay_code_done(&code);
    ASSERT_OK(cay_code_run(sandbox, text, len, language, &options, &code, &err));
}

static void run_code(cay_sandbox *sandbox, const char *language, const char *text)
{
    run_with(sandbox, language, text, strlen(text), (struct cay_command_options){0});
}

/* Leaves nothing behind, wherever it went. */
static void end(cay_sandbox *sandbox)
{
    ASSERT_STR(says(sandbox, "ls -A /tmp . | grep -v '^\\.\\(bash\\|profile\\)'"),
               ".:\n\n/tmp:");
    cay_code_done(&code);
    clear_answer();
}

static void need(cay_sandbox *sandbox, const char *program)
{
    char command[64];

    snprintf(command, sizeof command, "command -v %s", program);
    bash(sandbox, command);
    if (answer.exit_code != 0)
        SKIP(program);
}

BOTH(python_runs)
{
    run_code(sandbox, "python", "import sys\nprint(6 * 7)\nprint('e', file=sys.stderr)");
    ASSERT_INT(code.status, CAY_STATUS_SUCCESS);
    ASSERT_STR(code.language, "python");
    ASSERT_STR(code.command.out, "42\n");
    ASSERT_STR(code.command.error, "e\n");
    ASSERT_STR(code.error_type, "");
    ASSERT_STR(code.error_value, "");
    end(sandbox);
}

BOTH(a_python_error_is_named_and_the_traceback_shows_the_code)
{
    run_code(sandbox, "python", "def f():\n    return 1 / 0\n\nf()\n");
    ASSERT_INT(code.status, CAY_STATUS_ERROR);
    ASSERT_STR(code.error_type, "ExecutionError");
    ASSERT_STR(code.error_value, "ZeroDivisionError: division by zero");
    ASSERT_INT(code.command.exit_code, 1);
    ASSERT_HAS(code.command.error, "/main.py\", line 4, in <module>\n    f()\n");
    ASSERT_HAS(code.command.error, "/main.py\", line 2, in f\n    return 1 / 0\n");
    ASSERT(!strstr(code.command.error, "<string>"));
    run_code(sandbox, "python", "print(");
    ASSERT_HAS(code.error_value, "SyntaxError: ");
    ASSERT_HAS(code.command.error, "/main.py\", line 1\n");
    run_code(sandbox, "python", "raise SystemExit(7)");
    ASSERT_INT(code.command.exit_code, 7);
    ASSERT_STR(code.error_value, "Command failed with exit code 7");
    end(sandbox);
}

/* As if the file were in the working directory, and called by its name. */
BOTH(python_code_is_a_program_of_its_own)
{
    put_inside(sandbox, "own_module.py", "value = 'found'\n");
    run_code(sandbox, "python",
             "import os, sys, pickle, own_module\n"
             "class Thing: pass\n"
             "assert isinstance(pickle.loads(pickle.dumps(Thing())), Thing)\n"
             "print(own_module.value, __name__, os.getcwd(), len(sys.argv),\n"
             "      sys.argv[0] == __file__, os.path.basename(__file__))\n");
    ASSERT_STR(code.command.error, "");
    ASSERT_STR(code.command.out, "found __main__ /home/user 1 True main.py\n");
    run_code(sandbox, "python", "print(sys)");
    ASSERT_HAS(code.error_value, "NameError: name 'sys' is not defined");
    ASSERT_STR(says(sandbox, "rm -r own_module.py __pycache__"), "");
    end(sandbox);
}

BOTH(code_longer_than_an_argument_can_be_is_run)
{
    static const char *const languages[] = {"python", "bash", "javascript"};
    static const char *const ends[] = {"print(x)", "echo $x", "console.log(x)"};
    enum { LEN = 400000 };
    AUTO_FREE char *text = malloc(LEN + 64);

    for (size_t i = 0; i < 3; i++) {
        memcpy(text, "x='", 3);
        memset(text + 3, 'a', LEN);
        int tail = snprintf(text + 3 + LEN, 61, "';x='z'\n%s\n", ends[i]);
        if (i == 2)
            need(sandbox, "node");
        run_with(sandbox, languages[i], text, 3 + LEN + (size_t)tail,
                 (struct cay_command_options){0});
        ASSERT_STR(code.command.out, "z\n");
    }
    end(sandbox);
}

BOTH(code_is_bytes)
{
    run_with(sandbox, "python", "print('\xC3\xA9\\0' + \"'$(id)'\")", 25,
             (struct cay_command_options){0});
    ASSERT_MEM(code.command.out, code.command.out_len, "\xC3\xA9\0'$(id)'\n", 11);
    run_code(sandbox, "python", "");
    ASSERT_INT(code.status, CAY_STATUS_SUCCESS);
    end(sandbox);
}

BOTH(shells_and_others_run)
{
    run_code(sandbox, "bash", "x=(a b); echo ${#x[@]} $0 | sed 's/ .*\\// /'; exit 4");
    ASSERT_STR(code.command.out, "2 main.sh\n");
    ASSERT_STR(code.error_type, "ExecutionError");
    ASSERT_STR(code.error_value, "Command failed with exit code 4");
    run_code(sandbox, "shell", "echo $((1+1))");
    ASSERT_STR(code.language, "sh");
    ASSERT_STR(code.command.out, "2\n");
    run_code(sandbox, "perl", "print 'p', 1 + 1, \"\\n\"");
    ASSERT_STR(code.command.out, "p2\n");
    end(sandbox);
}

BOTH(javascript_finds_modules_of_the_working_directory)
{
    need(sandbox, "node");
    put_inside(sandbox, "own.js", "module.exports = 'found';");
    run_code(sandbox, "js", "console.log(require('./own.js'), 1 + 1)");
    ASSERT_STR(code.language, "javascript");
    ASSERT_STR(code.command.error, "");
    ASSERT_STR(code.command.out, "found 2\n");
    run_code(sandbox, "node", "\nthrow new Error('no')");
    ASSERT_INT(code.status, CAY_STATUS_ERROR);
    ASSERT_HAS(code.command.error, "[stdin]:2");
    ASSERT_STR(says(sandbox, "rm own.js"), "");
    end(sandbox);
}

BOTH(c_is_compiled_and_run)
{
    need(sandbox, "cc");
    run_code(
        sandbox, "c",
        "#include <math.h>\n#include <stdio.h>\n"
        "int main(int n, char **v) { (void)v; printf(\"%d %.0f\\n\", n, sqrt(n + 3));\n"
        "fputs(\"e\\n\", stderr); return 7; }\n");
    ASSERT_STR(code.language, "c");
    ASSERT_STR(code.command.out, "1 2\n");
    ASSERT_STR(code.command.error, "e\n");
    ASSERT_STR(code.error_value, "Command failed with exit code 7");
    run_code(sandbox, "C", "int main(void) { return nothing; }\n");
    ASSERT_INT(code.status, CAY_STATUS_ERROR);
    ASSERT_HAS(code.command.error, "main.c:1:25: error: ");
    ASSERT_STR(code.command.out, "");
    need(sandbox, "c++");
    run_code(sandbox, "cpp", "#include <iostream>\nint main() { std::cout << 6 * 7; }\n");
    ASSERT_STR(code.error_value, "");
    ASSERT_STR(code.language, "c++");
    ASSERT_STR(code.command.out, "42");
    end(sandbox);
}

/* A program that is called NAME in ./bin of the sandbox; code then runs with ./bin first.
 */
static void put_program(cay_sandbox *sandbox, const char *name, const char *script)
{
    char path[64], command[128];

    snprintf(path, sizeof path, "bin/%s", name);
    snprintf(command, sizeof command, "chmod +x %s", path);
    put_inside(sandbox, path, script);
    ASSERT_STR(says(sandbox, command), "");
}

static void run_with_bin(cay_sandbox *sandbox, const char *language, const char *text)
{
    static const char *const path[] = {"PATH=/home/user/bin:/usr/bin:/bin", NULL};

    run_with(sandbox, language, text, strlen(text),
             (struct cay_command_options){.env = path});
}

/* Programs that print how they are called, and compile by copying. */
BOTH(compilers_and_runners_get_the_file_of_the_code)
{
    static const char compiler[] = "#!/bin/sh\n"
                                   "echo \"${0##*/} $*\" | sed 's: /[^ ]*/: :g'\n"
                                   "[ \"$1\" != build ] || shift\n"
                                   "cp \"$3\" \"$2\" && chmod +x \"$2\"\n";
    static const char runner[] =
        "#!/bin/sh\necho \"${0##*/} $*\" | sed 's: /[^ ]*/: :g'\n"
        "for file; do :; done; cat \"$file\"\n";

    put_program(sandbox, "go", compiler);
    put_program(sandbox, "rustc", compiler);
    run_with_bin(sandbox, "golang", "#!/bin/sh\necho ran; exit 3\n");
    ASSERT_STR(code.language, "go");
    ASSERT_STR(code.command.out, "go build -o main.go.bin main.go\nran\n");
    ASSERT_STR(code.error_value, "Command failed with exit code 3");
    run_with_bin(sandbox, "rs", "#!/bin/sh\necho ran\n");
    ASSERT_STR(code.language, "rust");
    ASSERT_STR(code.command.out, "rustc -o main.rs.bin main.rs\nran\n");
    ASSERT_INT(code.status, CAY_STATUS_SUCCESS);

    put_program(sandbox, "java", runner);
    run_with_bin(sandbox, "java", "class Main {}\n");
    ASSERT_STR(code.command.out, "java Main.java\nclass Main {}\n");
    put_program(sandbox, "deno", runner);
    run_with_bin(sandbox, "ts", "let x: number\n");
    ASSERT_STR(code.language, "typescript");
    ASSERT_STR(code.command.out, "deno run -A main.ts\nlet x: number\n");
    put_program(sandbox, "tsx", runner);
    run_with_bin(sandbox, "typescript", "let x: number\n");
    ASSERT_STR(code.command.out, "tsx main.ts\nlet x: number\n");
    ASSERT_STR(says(sandbox, "rm -r bin"), "");
    end(sandbox);
}

BOTH(typescript_needs_a_node_that_strips_types)
{
    put_program(sandbox, "node",
                "#!/bin/sh\n[ \"$1\" = --experimental-strip-types ] && exit 9\n");
    run_with_bin(sandbox, "typescript", "let x: number\n");
    ASSERT_INT(code.status, CAY_STATUS_ERROR);
    ASSERT_STR(code.command.error,
               "TypeScript needs Node.js 22.6 or later, tsx, deno or bun\n");
    put_program(sandbox, "node",
                "#!/bin/sh\n[ \"$2\" != -e ] || exit 0\necho \"$1 $2 ${3##*/}\"\n");
    run_with_bin(sandbox, "typescript", "let x: number\n");
    ASSERT_STR(code.command.out, "--experimental-strip-types --no-warnings main.ts\n");
    ASSERT_STR(says(sandbox, "rm -r bin"), "");
    end(sandbox);
}

BOTH(a_compiler_that_is_not_there_is_not_supported)
{
    static const char *const path[] = {"PATH=/nowhere", NULL};

    run_with(sandbox, "go", "x", 1, (struct cay_command_options){.env = path});
    ASSERT_STR(code.error_type, "ValueError");
    ASSERT_HAS(code.error_value, "Unsupported language: go. This sandbox has: ");
    end(sandbox);
}

BOTH(a_language_that_is_not_known_is_a_result_that_names_those_there_are)
{
    run_code(sandbox, "COBOL", "x");
    ASSERT_INT(code.status, CAY_STATUS_ERROR);
    ASSERT_STR(code.error_type, "ValueError");
    ASSERT_HAS(code.error_value, "Unsupported language: COBOL. This sandbox has: python");
    ASSERT_HAS(code.error_value, "bash, sh");
    ASSERT_STR(code.language, "COBOL");
    ASSERT_INT(code.command.exit_code, -1);
    ASSERT_STR(code.command.out, "");
    run_code(sandbox, "a'b\"; touch x\n\xFF", "x");
    ASSERT_HAS(code.error_value, "Unsupported language: a'b\"; touch x\n\xEF\xBF\xBD. ");
    run_code(sandbox, "", "x");
    ASSERT_STR(code.error_type, "ValueError");
    end(sandbox);
}

BOTH(a_language_that_is_not_there_is_not_supported)
{
    static const char *const path[] = {"PATH=/nowhere", NULL};

    run_with(sandbox, "Python", "print(1)", 8, (struct cay_command_options){.env = path});
    ASSERT_STR(code.error_type, "ValueError");
    ASSERT_HAS(code.error_value, "Unsupported language: Python. This sandbox has: ");
    ASSERT_STR(code.language, "python");
    end(sandbox);
}

BOTH(names_and_aliases_are_found_in_any_case)
{
    static const char *const names[] = {"PYTHON", "Py", "python3"};

    for (size_t i = 0; i < 3; i++) {
        run_code(sandbox, names[i], "print(1)");
        ASSERT_STR(code.language, "python");
        ASSERT_STR(code.command.out, "1\n");
    }
    end(sandbox);
}

BOTH(code_that_is_late_is_killed_and_its_file_is_gone)
{
    static const char late[] = "import time\nprint('up', flush=True)\ntime.sleep(98765)";

    char value[64];
    uint64_t limit = 500;

    do { /* as much as it needs to start and write */
        limit *= 4;
        run_with(sandbox, "python", late, sizeof late - 1,
                 (struct cay_command_options){.timeout_ms = limit});
        ASSERT_INT(code.status, CAY_STATUS_TIMEOUT);
    } while (code.command.out_len == 0 && limit < PATIENCE_MS);
    snprintf(value, sizeof value, "Command timed out after %ums", (unsigned)limit);
    ASSERT_STR(code.error_type, "ExecutionError");
    ASSERT_STR(code.error_value, value);
    ASSERT_STR(code.command.out, "up\n");
    run_with(sandbox, "python", "open('ran', 'w')", 16,
             (struct cay_command_options){.timeout_ms = CAY_TIMEOUT_AT_ONCE});
    ASSERT_INT(code.status, CAY_STATUS_TIMEOUT);
    ASSERT_STR(code.error_value, "Command timed out after 0ms");
    end(sandbox);
}

BOTH(user_and_environment_hold_for_code)
{
    static const char *const env[] = {"WORD=it's", NULL};
    static const char text[] = "import os; print(os.getuid(), os.environ['WORD'])";

    run_with(sandbox, "python", text, sizeof text - 1,
             (struct cay_command_options){.user = "root", .env = env, .cwd = "/"});
    ASSERT_STR(code.command.out, "0 it's\n");
    end(sandbox);
}

TEST(an_unknown_user_is_a_result_that_names_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    run_with(sandbox, "python", "1", 1, (struct cay_command_options){.user = "who"});
    ASSERT_INT(code.status, CAY_STATUS_ERROR);
    ASSERT_STR(code.error_type, "ExecutionError");
    ASSERT_HAS(code.error_value, "Execution failed: who: ");
    ASSERT_STR(code.command.out, "");
    end(sandbox);
}

BOTH(output_of_code_can_be_cleaned)
{
    static const char text[] = "print('\\x1b[1mbold\\x1b[0m')";

    run_with(sandbox, "python", text, sizeof text - 1,
             (struct cay_command_options){.flags = CAY_COMMAND_CLEAN});
    ASSERT_STR(code.command.out, "bold\n");
    expect_inside(sandbox, code.command.out_file, "\x1b[1mbold\x1b[0m\n");
    cay_code_done(&code);
}

TEST(what_makes_no_sense_is_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_command_options background = {.size = sizeof background,
                                                   .flags = CAY_COMMAND_BACKGROUND};

    ASSERT_CODE(cay_code_run(sandbox, NULL, 0, "python", NULL, &code, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_code_run(sandbox, "x", 1, NULL, NULL, &code, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_code_run(sandbox, "x", 1, "python", &background, &code, &err),
                CAY_E_INVALID);
}

TEST(the_languages_can_be_listed)
{
    bool python = false, javascript = false, bash_too = false;

    for (size_t i = 0; cay_code_language(i); i++) {
        python = python || strcmp(cay_code_language(i), "python") == 0;
        javascript = javascript || strcmp(cay_code_language(i), "javascript") == 0;
        bash_too = bash_too || strcmp(cay_code_language(i), "bash") == 0;
    }
    ASSERT(python && javascript && bash_too);
    ASSERT(!cay_code_language(1000));
}
