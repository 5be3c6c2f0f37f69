/* SPDX-License-Identifier: Apache-2.0 */

/* Processes that their starter holds on to. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cay/approval.h"
#include "cay/backend.h"
#include "processes.h"

TEST(the_streams_are_separate_and_every_byte_comes)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    process = start(sandbox, 0, "printf 'a\\0b\\377'; printf 'e\\0r' >&2; exit 3");
    struct heard heard = {0};

    hear_all(process, &heard);
    ASSERT_MEM(heard.text[0], heard.len[0], "a\0b\377", 4);
    ASSERT_MEM(heard.text[1], heard.len[1], "e\0r", 3);
    wait_for(process);
    ASSERT_INT(result.exit_code, 3);
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.out_len, 0);
    cay_exec_done(&result);
}

TEST(what_was_not_read_is_in_the_result)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) process = start(sandbox, 0, "echo out; echo error >&2");

    wait_for(process);
    ASSERT_STR(result.out, "out\n");
    ASSERT_STR(result.error, "error\n");
    wait_for(process);
    ASSERT_STR(result.out, "");
    cay_exec_done(&result);
}

TEST(what_is_over_the_limit_is_counted)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *process = NULL;

    ASSERT_OK(start_script(sandbox, "seq 1 100000",
                           (struct cay_exec_options){.output_limit = 14}, &process));
    wait_for(process);
    ASSERT_STR(result.out, "\n99999\n100000\n");
    ASSERT_INT(result.out_dropped, 588895 - 14);
    cay_process_free(process);
    const struct cay_exec_options failing = {.output_limit = 1000,
                                             .flags = CAY_EXEC_FAIL_ON_LIMIT};
    ASSERT_OK(start_script(sandbox, "yes", failing, &process));
    wait_for(process);
    ASSERT_INT(result.cause, CAY_CAUSE_OUTPUT_LIMIT);
    ASSERT_INT(result.out_len, 1000);
    cay_process_free(process);
    cay_exec_done(&result);
}

/* 50 MiB through a program that answers only now and then. */
TEST(input_goes_in_while_output_comes_out)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) process = start(sandbox, CAY_EXEC_INPUT, "tee /dev/stderr | wc -c");
    enum { LEN = 50 << 20, PART = 1 << 20 };
    AUTO_FREE char *data = malloc(PART);
    struct heard heard = {0};
    size_t sent = 0;

    memset(data, 'x', PART);
    while (sent < LEN) {
        size_t put = 0, left = LEN - sent < PART ? LEN - sent : PART;
        ASSERT_OK(cay_process_write(process, data, left, &put, &err));
        sent += put;
        hear_once(process, &heard);
    }
    ASSERT_OK(cay_process_close_input(process, &err));
    hear_all(process, &heard);
    ASSERT_STR(heard.text[0], "52428800\n");
    ASSERT_INT(heard.len[1], LEN);
}

TEST(input_that_is_given_ends_by_itself)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { LEN = 3 << 20 };
    AUTO_FREE char *data = malloc(LEN);
    cay_process *process = NULL;
    size_t put;

    memset(data, 'x', LEN);
    for (unsigned i = 0; i < 2; i++) {
        const struct cay_exec_options options = {
            .input = data, .input_len = LEN, .flags = i ? CAY_EXEC_BACKGROUND : 0};
        ASSERT_OK(start_script(sandbox, "sleep 0.1; wc -c", options, &process));
        ASSERT_CODE(cay_process_write(process, "x", 1, &put, &err), CAY_E_INVALID);
        wait_for(process);
        ASSERT_STR(result.out, "3145728\n");
        cay_process_free(process);
    }
    const struct cay_exec_options both = {
        .input = "first ", .input_len = 6, .flags = CAY_EXEC_INPUT};
    ASSERT_OK(start_script(sandbox, "cat", both, &process));
    ASSERT_OK(cay_process_write(process, "second", 6, &put, &err));
    ASSERT_INT(put, 6);
    ASSERT_OK(cay_process_close_input(process, &err));
    ASSERT_CODE(cay_process_write(process, "x", 1, &put, &err), CAY_E_INVALID);
    wait_for(process);
    ASSERT_STR(result.out, "first second");
    cay_process_free(process);
    const struct cay_exec_options huge = {
        .input = data, .input_len = LEN, .flags = CAY_EXEC_INPUT};
    ASSERT_CODE(start_script(sandbox, "cat", huge, &process), CAY_E_LIMIT);
    cay_exec_done(&result);
}

TEST(a_program_that_does_not_read_takes_no_more_than_fits)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) process = start(sandbox, CAY_EXEC_INPUT, "exec sleep 1000");
    AUTO_FREE char *data = calloc(1, 1 << 20);
    size_t put = 0;

    ASSERT_OK(cay_process_write(process, data, 1 << 20, &put, &err));
    ASSERT(put > 0 && put < 1 << 20);
    ASSERT_OK(cay_process_write(process, data, 1 << 20, &put, &err));
    ASSERT_INT(put, 0);
    ASSERT_OK(cay_process_kill(process, &err));
    ASSERT_CODE(cay_process_write(process, data, 1, &put, &err), CAY_E_IO);
}

TEST(a_wait_has_its_time_and_loses_nothing)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    process = start(sandbox, CAY_EXEC_INPUT, "echo early; read line; echo $line");
    struct heard heard = {0};
    size_t put;

    do
        ASSERT_CODE(cay_process_wait(process, 300, &result, &err), CAY_E_TIMEOUT);
    while (!poll_process(process, 0));
    ASSERT_CODE(cay_process_wait(process, 0, &result, &err), CAY_E_TIMEOUT);
    ASSERT(poll_process(process,
                        PATIENCE_MS)); /* what the wait took in is still to be read */
    hear_once(process, &heard);
    ASSERT_STR(heard.text[0], "early\n");
    ASSERT(!poll_process(process, 0));
    hear_once(process, &heard);
    ASSERT(!heard.ended);
    ASSERT_OK(cay_process_write(process, "late\n", 5, &put, &err));
    wait_for(process);
    ASSERT_STR(result.out, "late\n");
    ASSERT(poll_process(process, 0));
    hear_once(process, &heard);
    ASSERT(heard.ended);
    cay_exec_done(&result);
}

TEST(the_end_is_the_first_process_and_not_who_holds_its_output)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    process = start(sandbox, 0,
                    "sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; "
                    "echo started");
    AUTO(cay_process) noisy = start(sandbox, 0, "yes & echo started; exit 4");
    struct heard heard = {0};

    hear_all(process, &heard);
    ASSERT_STR(heard.text[0], "started\n");
    wait_for(noisy);
    ASSERT_INT(result.exit_code, 4);
    run(sandbox, "ps -eo comm | grep -c sleep");
    ASSERT_STR(result.out, "1\n");
    /* What it left behind can still be killed with it. */
    ASSERT_OK(cay_process_kill(process, &err));
    run(sandbox, "ps -eo comm | grep -c sleep");
    ASSERT_STR(result.out, "0\n");
    cay_exec_done(&result);
}

TEST(a_signal_goes_to_the_first_process)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    process = start(sandbox, 0,
                    "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done");
    struct heard heard = {0};

    hear_until(process, &heard, 1, "ready\n");
    ASSERT_OK(cay_process_signal(process, SIGUSR1, &err));
    hear_until(process, &heard, 1, "usr1\n");
    ASSERT_CODE(cay_process_signal(process, 0, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_process_signal(process, 65, &err), CAY_E_INVALID);
    ASSERT_OK(cay_process_signal(process, SIGTERM, &err));
    wait_for(process);
    ASSERT_INT(result.signal, SIGTERM);
    ASSERT_INT(result.exit_code, 143);
    ASSERT_CODE(cay_process_signal(process, SIGTERM, &err), CAY_E_NOT_FOUND);
    cay_exec_done(&result);
}

static const char stubborn[] =
    "trap '' TERM INT HUP; setsid sleep 1000 & "
    "(setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &) ; echo up; sleep 1000";

TEST(a_kill_leaves_nothing_of_the_tree)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (unsigned i = 0; i < 2; i++) {
        AUTO(cay_process)
        process = start(sandbox, i ? CAY_EXEC_BACKGROUND : 0, stubborn);
        struct heard heard = {0};
        hear_until(process, &heard, 1, "up\n");
        ASSERT_OK(cay_process_kill(process, &err));
        run(sandbox, "ps -eo comm | grep -c sleep");
        ASSERT_STR(result.out, "0\n");
        wait_for(process);
        ASSERT_INT(result.signal, SIGKILL);
        ASSERT_INT(result.cause, CAY_CAUSE_SIGNALLED);
        ASSERT_OK(cay_process_kill(process, &err));
    }
    cay_exec_done(&result);
}

TEST(a_foreground_process_goes_with_its_handle)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *process = start(sandbox, 0, stubborn);
    struct heard heard = {0};

    hear_until(process, &heard, 1, "up\n");
    cay_process_free(process);
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        run(sandbox, "ps -eo comm | grep -c sleep");
        if (strcmp(result.out, "0\n") == 0)
            break;
        rest_ms(10);
    }
    ASSERT_STR(result.out, "0\n");
    cay_exec_done(&result);
}

/* A child of a fork has the handles, too, and lets go of them; they are the parent's. */
TEST(a_forked_child_that_frees_handles_ends_nothing)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) process = start(sandbox, CAY_EXEC_INPUT, "read x; echo got $x");
    cay_files *files = NULL;
    size_t put = 0;
    int status = -1;

    ASSERT_OK(cay_sandbox_files(sandbox, NULL, &files, &err));
    pid_t child = fork();
    if (child == 0) {
        cay_process_free(process);
        cay_files_free(files);
        _exit(0);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_INT(status, 0);
    ASSERT_OK(cay_process_write(process, "it\n", 3, &put, &err));
    wait_for(process);
    ASSERT_STR(result.out, "got it\n");
    ASSERT_INT(cay_files_exists(files, "/etc/passwd", &err), 1);
    cay_files_free(files);
    cay_exec_done(&result);
}

TEST(a_timeout_ends_it_with_its_output_kept)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (unsigned i = 0; i < 2; i++) {
        struct cay_exec_options options = {.timeout_ms = 300,
                                           .flags = i ? CAY_EXEC_BACKGROUND : 0};
        do {
            cay_process *process = NULL;
            ASSERT_OK(start_script(sandbox, stubborn, options, &process));
            wait_for(process);
            ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
            ASSERT_INT(result.exit_code, 124);
            cay_process_free(process);
            options.timeout_ms *= 4; /* if it was too short for any output */
        } while (!result.out_len && options.timeout_ms < PATIENCE_MS);
        ASSERT_STR(result.out, "up\n");
        run(sandbox, "ps -eo comm | grep -c sleep");
        ASSERT_STR(result.out, "0\n");
    }
    cay_exec_done(&result);
}

TEST(the_memory_limit_is_told_as_such)
{
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .memory_bytes = 64 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);
    AUTO(cay_process)
    process = start(sandbox, CAY_EXEC_BACKGROUND, "exec tail /dev/zero");

    wait_for(process);
    ASSERT_INT(result.cause, CAY_CAUSE_MEMORY);
    ASSERT_INT(result.exit_code, 137);
    cay_exec_done(&result);
}

TEST(what_cannot_be_started_is_an_error_with_the_reason)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *process = NULL;
    const char *argv[] = {"no-such-program", NULL, NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv};

    for (unsigned i = 0; i < 2; i++) {
        options.flags = i ? CAY_EXEC_BACKGROUND : 0;
        argv[0] = "no-such-program";
        ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err),
                    CAY_E_EXEC_FAILED);
        ASSERT_INT(err.sys_errno, ENOENT);
        argv[0] = "/etc/passwd";
        ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err),
                    CAY_E_EXEC_FAILED);
        ASSERT_INT(err.sys_errno, EACCES);
        argv[0] = "true";
        options.user = "nobody-of-that-name";
        ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err),
                    CAY_E_NOT_FOUND);
        options.user = NULL;
        options.cwd = "/no/such/place";
        ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err),
                    CAY_E_NOT_FOUND);
        ASSERT_STR(err.op, "exec.cwd");
        options.cwd = NULL;
    }
    struct cay_process_info *infos = NULL;
    size_t count = 1;
    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT_INT(count, 0);
    cay_free(infos);
}

TEST(a_name_of_any_length_is_looked_for_and_not_found)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char name[PATH_MAX + 2];
    const char *const argv[] = {name, NULL}, *const env[] = {"PATH=:/usr/bin:", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .env = env};

    for (size_t len = PATH_MAX - 12; len <= PATH_MAX + 1; len++) {
        memset(name, 'x', len);
        name[len] = '\0';
        ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
        ASSERT_INT(result.cause, CAY_CAUSE_NOT_STARTED);
        cay_exec_done(&result);
    }
    run(sandbox, "echo fine");
    ASSERT_STR(result.out, "fine\n");
    cay_exec_done(&result);
}

TEST(arguments_over_the_limit_are_an_error)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { LEN = 5 << 20 };
    const size_t one = 32 * (size_t)sysconf(_SC_PAGESIZE);
    AUTO_FREE char *word = malloc(LEN + 1);
    char limit[64];
    const char *const argv[] = {"true", word, NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    cay_process *process = NULL;

    memset(word, 'x', LEN);
    word[LEN] = '\0';
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_INVALID);
    ASSERT_INT(err.sys_errno, E2BIG);
    word[one] = '\0'; /* fits a request, but not the kernel's limit for one word */
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_INVALID);
    snprintf(limit, sizeof limit, "one argument may have %zu KiB", one >> 10);
    ASSERT_HAS(err.hint, limit);
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_INVALID);
    run(sandbox, "echo fine");
    ASSERT_STR(result.out, "fine\n");
    cay_exec_done(&result);
}

static int never(void *cookie, int stream, const void *data, size_t len)
{
    (void)cookie, (void)stream, (void)data, (void)len;
    return 0;
}

TEST(flags_that_do_not_fit_the_call_are_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"true", NULL}, *const none[] = {NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    cay_process *process = NULL;
    static const unsigned wrong[] = {CAY_EXEC_BACKGROUND, CAY_EXEC_INPUT, 1u << 20};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.flags = wrong[i];
        ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_INVALID);
    }
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_INVALID);
    options.flags = 0;
    options.on_output = never;
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_INVALID);
    options.on_output = NULL;
    options.argv = none;
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_INVALID);
    AUTO(cay_process) fine = start(sandbox, 0, "true");
    ASSERT_CODE(cay_process_resize(fine, 10, 10, &err), CAY_E_INVALID);
}

/* --- A sandbox and its first command at once --- */

static int run_first(const char *const *argv, unsigned flags, cay_sandbox **ret_sandbox,
                     cay_process **ret_process)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .ephemeral = true, .level = wanted_level()};
    const struct cay_exec_options exec = {
        .size = sizeof exec, .argv = argv, .flags = flags};

    need_root();
    return cay_sandbox_run(&options, &exec, ret_sandbox, ret_process, &err);
}

/* The name of a variable may have lines, too: they must not make one request of two. */
TEST(a_variable_cannot_look_like_two_in_a_request)
{
    static const char one[] = "8dcf605b0a981e35a00379ee66549215"
                              "f36f95f19a714942ee0c8fc88a9e9222";
    char both[256];
    const char *const patterns[] = {"true", NULL}, *const argv[] = {"true", NULL};
    const struct cay_sandbox_options asks = {.size = sizeof asks,
                                             .ephemeral = true,
                                             .level = wanted_level(),
                                             .approve = patterns};
    char ids[2][CAY_PENDING_ID_MAX];
    enum cay_decision decision;

    need_root();
    ASSERT(setenv("CAY_HOME", scratch_path("home"), 1) == 0); /* with the queue */
    snprintf(both, sizeof both, "A (SHA-256 of the value %s)\nvariable B=2", one);
    const char *const envs[2][3] = {{"A=1", "B=2"}, {both}};
    AUTO(cay_sandbox) sandbox = make_sandbox(&asks);
    for (int i = 0; i < 2; i++) {
        const struct cay_exec_options exec = {
            .size = sizeof exec, .argv = argv, .env = envs[i]};
        ASSERT_OK(cay_sandbox_request_command(sandbox, &exec, ids[i], &decision, &err));
        ASSERT_INT(decision, CAY_DECISION_NONE);
    }
    ASSERT(strcmp(ids[0], ids[1]) != 0);
}

static const char *const says_hello[] = {"sh", "-c", "echo hello; cat", NULL};

TEST(a_sandbox_can_come_with_its_first_command)
{
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO(cay_process) process = NULL;
    struct heard heard = {0};
    size_t put;

    ASSERT_OK(run_first(says_hello, CAY_EXEC_INPUT, &sandbox, &process));
    hear_until(process, &heard, 1, "hello\n");
    run(sandbox, "echo another");
    ASSERT_STR(result.out, "another\n");
    ASSERT_OK(cay_process_write(process, "more\n", 5, &put, &err));
    ASSERT_OK(cay_process_close_input(process, &err));
    hear_all(process, &heard);
    ASSERT_STR(heard.text[0], "hello\nmore\n");
    wait_for(process);
    ASSERT_INT(result.exit_code, 0);
    cay_exec_done(&result);
}

TEST(a_first_command_that_cannot_be_started_leaves_the_sandbox)
{
    static const char *const missing[] = {"no-such-program", NULL}, *const none[] = {
                                                                        NULL};
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO(cay_process) process = NULL;
    AUTO(cay_sandbox) no_sandbox = NULL;

    ASSERT_CODE(run_first(missing, 0, &sandbox, &process), CAY_E_EXEC_FAILED);
    ASSERT_INT(err.sys_errno, ENOENT);
    ASSERT(sandbox && !process);
    run(sandbox, "echo there");
    ASSERT_STR(result.out, "there\n");
    ASSERT_CODE(run_first(none, 0, &no_sandbox, &process), CAY_E_INVALID);
    ASSERT(!no_sandbox && !process);
    cay_exec_done(&result);
}

static bool ends_soon(cay_sandbox *sandbox)
{
    enum cay_state state;

    for (int i = 0; i < PATIENCE_MS; i++) {
        if (cay_sandbox_state(sandbox, &state, NULL) != CAY_OK)
            return true;
        poll(NULL, 0, 1);
    }
    return false;
}

TEST(a_sandbox_ends_with_its_last_command)
{
    static const char *const last[] = {"sh", "-c", "sleep 1000 & echo bye", NULL};
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO(cay_process) process = NULL;

    ASSERT_OK(run_first(last, CAY_EXEC_LAST, &sandbox, &process));
    wait_for(process);
    ASSERT_STR(result.out, "bye\n");
    ASSERT_INT(result.exit_code, 0);
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT(ends_soon(sandbox));
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    cay_exec_done(&result);
}

TEST(a_last_command_that_fails_leaves_the_sandbox)
{
    const char *const argv[] = {"sh", "-c", "exit 3", NULL};
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_LAST};
    cay_process *process = NULL;

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.exit_code, 3);
    cay_exec_done(&result);
    run(sandbox, "echo there");
    ASSERT_STR(result.out, "there\n");
    options.flags = CAY_EXEC_LAST | CAY_EXEC_BACKGROUND;
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "CAY_EXEC_BACKGROUND");
    cay_exec_done(&result);
}

TEST(the_end_of_the_sandbox_is_told)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) near = start(sandbox, 0, "echo up; sleep 1000");
    AUTO(cay_process) far = start(sandbox, CAY_EXEC_BACKGROUND, "echo up; sleep 1000");
    struct heard heard = {0};
    size_t put;

    hear_until(near, &heard, 1, "up\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    wait_for(near);
    ASSERT_INT(result.cause, CAY_CAUSE_GONE);
    ASSERT_INT(result.exit_code, 137);
    wait_for(far);
    ASSERT_INT(result.cause, CAY_CAUSE_GONE);
    ASSERT_OK(cay_process_kill(near, &err));
    ASSERT_CODE(cay_process_signal(near, SIGTERM, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_process_write(far, "x", 1, &put, &err), CAY_E_NOT_FOUND);
    cay_exec_done(&result);
}

static int listen_slowly(void *cookie, int stream, const void *data, size_t len)
{
    (void)cookie;
    (void)stream;
    (void)data;
    (void)len;
    usleep(2000);
    return 0;
}

/* The pipe is never empty, as who writes is faster than who reads. */
TEST(the_end_is_heard_of_while_children_go_on_writing)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"sh", "-c", "yes & sleep 0.1; exit 3", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .on_output = listen_slowly};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.exit_code, 3);
    cay_exec_done(&result);
}

/* In clock ticks, of which a second has a hundred or more. */
static unsigned long cpu_time(pid_t pid)
{
    enum { BEFORE = 12 }; /* fields between the name and the time in user mode */
    char path[32], text[1024] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *stat = fopen(path, "re");
    ASSERT(stat && fgets(text, sizeof text, stat) && fclose(stat) == 0);
    char *at = strrchr(text, ')');
    for (int i = 0; at && i < BEFORE; i++)
        at = strchr(at + 1, ' ');
    ASSERT(at);
    unsigned long user = strtoul(at, &at, 10);
    return user + strtoul(at, NULL, 10);
}

TEST(init_sleeps_while_a_foreground_command_outlives_another)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    __attribute__((unused)) AUTO(cay_process) longer = start(sandbox, 0, "sleep 60");
    struct cay_sandbox_info info;

    run(sandbox, "true");
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    unsigned long before = cpu_time(info.init_pid);
    const struct timespec second = {.tv_sec = 1};
    (void)nanosleep(&second, NULL);
    ASSERT(cpu_time(info.init_pid) - before < 20);
}
