/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>

#include "processes.h"

static cay_process *start_terminal(cay_sandbox *sandbox, unsigned flags,
                                   const char *script)
{
    const struct cay_exec_options options = {
        .flags = flags | CAY_EXEC_TTY, .rows = 33, .columns = 111};
    cay_process *process = NULL;

    ASSERT_OK(start_script(sandbox, script, options, &process));
    return process;
}

static void type(cay_process *process, const char *text)
{
    size_t put = 0;

    ASSERT_OK(cay_process_write(process, text, strlen(text), &put, &err));
    ASSERT_INT(put, strlen(text));
}

/* One in the foreground and one in the background must not differ. */
static const unsigned both[] = {CAY_EXEC_INPUT, CAY_EXEC_INPUT | CAY_EXEC_BACKGROUND};

TEST(a_command_has_a_terminal_of_its_own)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 2; i++) {
        AUTO(cay_process)
        process =
            start_terminal(sandbox, both[i],
                           "test -t 0 -a -t 1 -a -t 2 && echo all three; tty; stty size; "
                           "echo $TERM; stat -c '%U %G %a' $(tty); echo via >/dev/tty; "
                           "echo error >&2; ps -o tty= -p $$; exit 9");
        struct heard heard = {0};
        hear_all(process, &heard);
        ASSERT_STR(heard.text[0],
                   "all three\r\n/dev/pts/0\r\n33 111\r\nxterm-256color\r\n"
                   "user tty 620\r\nvia\r\nerror\r\npts/0\r\n");
        ASSERT_STR(heard.text[1], "");
        wait_for(process);
        ASSERT_INT(result.exit_code, 9);
    }
    cay_exec_done(&result);
}

TEST(a_list_tells_which_commands_have_a_terminal)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) plain = start(sandbox, CAY_EXEC_BACKGROUND, "exec sleep 1000");
    AUTO(cay_process)
    terminal = start_terminal(sandbox, CAY_EXEC_BACKGROUND, "exec sleep 1000");
    struct cay_process_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT_INT(count, 2);
    for (size_t i = 0; i < count; i++)
        ASSERT_INT(infos[i].has_terminal, infos[i].pid == cay_process_pid(terminal));
    cay_free(infos);
    ASSERT_OK(cay_process_kill(plain, &err));
    ASSERT_OK(cay_process_kill(terminal, &err));
}

TEST(a_program_that_closes_its_terminal_is_not_hung_up)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 2; i++) {
        AUTO(cay_process)
        process = start_terminal(sandbox, both[i],
                                 "echo bye; exec <&- >&- 2>&-; sleep 0.3; exit 9");
        struct heard heard = {0};
        hear_all(process, &heard);
        ASSERT_STR(heard.text[0], "bye\r\n");
        wait_for(process);
        ASSERT_INT(result.exit_code, 9);
    }
    cay_exec_done(&result);
}

TEST(the_size_can_change_and_the_program_hears_of_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 2; i++) {
        AUTO(cay_process)
        process = start_terminal(sandbox, both[i],
                                 "trap 'stty size' WINCH; echo ready; "
                                 "while :; do sleep 0.05; done");
        struct heard heard = {0};
        hear_until(process, &heard, 1, "ready\r\n");
        ASSERT_OK(cay_process_resize(process, 50, 200, &err));
        hear_until(process, &heard, 1, "50 200\r\n");
        ASSERT_OK(cay_process_resize(process, 0, 0, &err));
        hear_until(process, &heard, 1, "24 80\r\n");
        ASSERT_OK(cay_process_kill(process, &err));
    }
}

TEST(what_is_typed_is_read_and_echoed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 2; i++) {
        AUTO(cay_process)
        process = start_terminal(sandbox, both[i], "read line; echo got $line; cat");
        struct heard heard = {0};
        type(process, "hello\n");
        hear_until(process, &heard, 1, "hello\r\ngot hello\r\n");
        type(process, "more\n");
        hear_until(process, &heard, 1, "more\r\nmore\r\n");
        ASSERT_OK(cay_process_close_input(process, &err)); /* which is ^D */
        wait_for(process);
        ASSERT_INT(result.exit_code, 0);
    }
    cay_exec_done(&result);
}

TEST(control_c_interrupts_what_runs_in_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 2; i++) {
        AUTO(cay_process)
        process = start_terminal(sandbox, both[i], "echo ready; exec sleep 1000");
        struct heard heard = {0};
        hear_until(process, &heard, 1, "ready\r\n");
        type(process, "\x03");
        wait_for(process);
        ASSERT_INT(result.signal, SIGINT);
        ASSERT_INT(result.exit_code, 130);
    }
    cay_exec_done(&result);
}

TEST(a_shell_has_job_control)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"bash", "--norc", "-i", NULL}, *const env[] = {"PS1=% ",
                                                                               NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .env = env,
                                             .flags = CAY_EXEC_TTY | CAY_EXEC_INPUT};
    AUTO(cay_process) process = NULL;
    struct heard heard = {0};

    ASSERT_OK(cay_process_start(sandbox, &options, &process, &err));
    hear_until(process, &heard, 1, "% ");
    type(process, "sh -c 'echo u\"\"p; exec sleep 1000'\r");
    hear_until(process, &heard, 1, "up\r\n"); /* not what was typed */
    type(process, "\x1a");
    hear_until(process, &heard, 1, "Stopped");
    type(process, "kill -9 %1; exec sh -c 'exit 6'\r");
    hear_all(process, &heard);
    ASSERT(!strstr(heard.text[0], "no job control"));
    wait_for(process);
    ASSERT_INT(result.exit_code, 6);
    cay_exec_done(&result);
}

TEST(root_can_become_somebody_else_on_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *process = NULL;
    const struct cay_exec_options options = {.flags = CAY_EXEC_TTY, .user = "root"};

    ASSERT_OK(start_script(sandbox,
                           "su user -c 'id -un; tty; cat /dev/null >/dev/tty'; mesg",
                           options, &process));
    wait_for(process);
    ASSERT_HAS(result.out, "user\r\n/dev/pts/0\r\n");
    ASSERT_HAS(result.out, "is y");
    cay_process_free(process);
    cay_exec_done(&result);
}

TEST(exec_can_have_a_terminal_too)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"sh", "-c", "stty size; tty; cat; echo over >&2", NULL};
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_TTY};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_STR(result.out, "24 80\r\n/dev/pts/0\r\nover\r\n");
    ASSERT_STR(result.error, "");
    cay_exec_done(&result);
    options.input = "line\nunfinished";
    options.input_len = strlen(options.input);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_HAS(result.out, "line\r\nunfinished");
    ASSERT_HAS(result.out, "over\r\n");
    cay_exec_done(&result);
    options.timeout_ms = 3000;
    options.argv = (const char *const[]){"sh", "-c", "echo before; sleep 1000", NULL};
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_HAS(result.out, "before\r\n");
    cay_exec_done(&result);
    options.argv = (const char *const[]){"no-such-program", NULL};
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.cause, CAY_CAUSE_NOT_STARTED);
    cay_exec_done(&result);
}

TEST(much_output_of_a_terminal_comes_whole)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"seq", "1", "50000", NULL};
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_TTY};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.out_len, 288894 + 50000);
    ASSERT_STR(result.out + result.out_len - 14, "49999\r\n50000\r\n");
    cay_exec_done(&result);
    AUTO(cay_process)
    process = start_terminal(sandbox, CAY_EXEC_BACKGROUND, "seq 1 50000");
    wait_for(process);
    ASSERT_INT(result.out_len, 288894 + 50000);
    cay_exec_done(&result);
}

TEST(terminals_are_numbered_and_given_back)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 20; i++) {
        AUTO(cay_process) first = start_terminal(sandbox, CAY_EXEC_INPUT, "tty; cat");
        AUTO(cay_process) second = start_terminal(sandbox, CAY_EXEC_INPUT, "tty; cat");
        struct heard heard[2] = {0};
        hear_until(first, &heard[0], 1, "/dev/pts/0\r\n");
        hear_until(second, &heard[1], 1, "/dev/pts/1\r\n");
        ASSERT_OK(cay_process_kill(first, &err));
        ASSERT_OK(cay_process_kill(second, &err));
    }
}

TEST(nothing_of_the_callers_goes_inside)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *log = scratch_path("log");
    int saved = fcntl(1, F_DUPFD_CLOEXEC, 10);
    int fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    fflush(stdout);
    ASSERT(saved >= 0 && fd >= 0 && dup2(fd, 1) == 1);
    run(sandbox, "ls -l /proc/self/fd | awk '{print $9, $11}'");
    AUTO(cay_process)
    process = start_terminal(sandbox, 0, "ls -l /proc/self/fd | awk '{print $9, $11}'");
    struct heard heard = {0};
    hear_all(process, &heard);
    AUTO(cay_process)
    background = start(sandbox, CAY_EXEC_BACKGROUND,
                       "ls -l /proc/self/fd | awk '{print $9, $11}'");
    struct heard later = {0};
    hear_all(background, &later);
    ASSERT(dup2(saved, 1) == 1);
    (void)close(saved);
    (void)close(fd);
    const char *const texts[] = {result.out, heard.text[0], later.text[0]};
    for (int i = 0; i < 3; i++) {
        ASSERT(!strstr(texts[i], "log") && !strstr(texts[i], "(deleted)"));
        ASSERT_HAS(texts[i], "\n3 /proc/"); /* the directory that ls looks at */
        ASSERT(!strstr(texts[i], "\n4 "));
    }
    ASSERT_HAS(result.out, "0 /dev/null\n1 pipe:");
    ASSERT_HAS(heard.text[0], "0 /dev/pts/0\r\n1 pipe:");
    ASSERT_HAS(later.text[0], "0 /dev/null\n1 pipe:");
    ASSERT_STR(get_file("log"), "");
    cay_exec_done(&result);
}

TEST(too_much_input_at_the_start_is_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { LEN = 1 << 20 };
    AUTO_FREE char *data = malloc(LEN);
    cay_process *process = NULL;

    memset(data, '\n', LEN);
    for (int i = 0; i < 2; i++) {
        const struct cay_exec_options options = {
            .flags = both[i] | CAY_EXEC_TTY, .input = data, .input_len = LEN};
        ASSERT_CODE(start_script(sandbox, "sleep 1000", options, &process), CAY_E_LIMIT);
    }
}
