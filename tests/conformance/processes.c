/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are not waited for. */
#include <poll.h>
#include <signal.h>

#include "cay/agent.h"
#include "conformance.h"

/* Without processes every one of these calls says so, and the case is over. */
static void need_processes(cay_sandbox *sandbox)
{
    const char *const argv[] = {"true", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    cay_process *process = NULL;
    struct cay_process_info *infos = NULL;
    size_t count = 0;

    if (backend()->processes)
        return;
    ASSERT_CODE(cay_process_attach(sandbox, "1", &process, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(cay_process_list(sandbox, &infos, &count, &err), CAY_E_UNSUPPORTED);
    MAY_LACK("processes", false, cay_process_start(sandbox, &options, &process, &err));
}

static int try_to_start(cay_sandbox *sandbox, const char *script,
                        struct cay_exec_options options, cay_process **ret_process)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    options.size = sizeof options;
    options.argv = argv;
    return cay_process_start(sandbox, &options, ret_process, &err);
}

static cay_process *start(cay_sandbox *sandbox, unsigned flags, const char *script)
{
    cay_process *process = NULL;

    ASSERT_OK(try_to_start(sandbox, script, (struct cay_exec_options){.flags = flags},
                           &process));
    ASSERT(cay_process_pid(process) > 0);
    return process;
}

static void wait_for(cay_process *process)
{
    cay_exec_done(&result);
    ASSERT_OK(cay_process_wait(process, PATIENCE_MS, &result, &err));
}

/* Output as it comes, of both streams. */
struct heard {
    char text[2][4096];
    size_t len[2];
    bool ended;
};

static void hear_once(cay_process *process, struct heard *heard)
{
    struct pollfd waiting = {.fd = cay_process_fd(process), .events = POLLIN};
    char data[1024];
    int stream = 0;
    size_t len = 0;

    ASSERT(poll(&waiting, 1, PATIENCE_MS) > 0);
    ASSERT_OK(cay_process_read(process, &stream, data, sizeof data, &len, NULL, &err));
    ASSERT(stream >= -1 && stream <= 2);
    heard->ended = stream < 0;
    if (stream <= 0) {
        ASSERT_INT(len, 0);
        return;
    }
    size_t *used = &heard->len[stream - 1];
    ASSERT(*used + len < sizeof heard->text[0]);
    memcpy(heard->text[stream - 1] + *used, data, len);
    *used += len;
}

static void hear_until(cay_process *process, struct heard *heard, const char *part)
{
    while (!heard->ended && !strstr(heard->text[0], part))
        hear_once(process, heard);
    ASSERT_HAS(heard->text[0], part);
}

CASE(output_of_a_process_is_read_as_it_comes)
{
    cay_sandbox *sandbox = make();
    struct heard heard = {0};

    need_processes(sandbox);
    AUTO(cay_process)
    process = start(sandbox, 0, "echo out; echo err >&2; printf 'a\\nb'; exit 5");
    while (!heard.ended)
        hear_once(process, &heard);
    ASSERT_STR(heard.text[0], "out\na\nb");
    ASSERT_STR(heard.text[1], "err\n");
    wait_for(process);
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.exit_code, 5);
    ASSERT_INT(result.out_len, 0); /* it was read */
}

CASE(waiting_gives_the_output_that_nobody_read)
{
    cay_sandbox *sandbox = make();

    need_processes(sandbox);
    AUTO(cay_process) process = start(sandbox, 0, "echo out; echo err >&2; exit 3");
    wait_for(process);
    ASSERT_INT(result.exit_code, 3);
    ASSERT_STR(result.out, "out\n");
    ASSERT_STR(result.error, "err\n");
}

CASE(waiting_can_be_given_up)
{
    cay_sandbox *sandbox = make();
    struct cay_exec_result none = {0};

    need_processes(sandbox);
    AUTO(cay_process) process = start(sandbox, 0, "sleep 86400");
    ASSERT_CODE(cay_process_wait(process, 0, &none, &err), CAY_E_TIMEOUT);
    ASSERT_CODE(cay_process_wait(process, 100, &none, &err), CAY_E_TIMEOUT);
    ASSERT(!none.out);
    ASSERT_OK(cay_process_kill(process, &err));
    wait_for(process);
    ASSERT_INT(result.cause, CAY_CAUSE_SIGNALLED);
    ASSERT_INT(result.exit_code, 128 + SIGKILL);
}

CASE(a_process_that_cannot_be_started_is_an_error_or_a_result)
{
    cay_sandbox *sandbox = make();
    const char *const argv[] = {"/no/such/program", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};

    need_processes(sandbox);
    AUTO(cay_process) process = NULL;
    int code = cay_process_start(sandbox, &options, &process, &err);
    if (code == CAY_E_EXEC_FAILED)
        return;
    ASSERT_INT(code, CAY_OK);
    wait_for(process);
    ASSERT_INT(result.exit_code, 127);
}

CASE(freeing_a_foreground_process_ends_its_tree)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char script[128];

    need_processes(sandbox);
    snprintf(script, sizeof script, "setsid sleep %s & sleep %s", mark, mark);
    cay_process *process = start(sandbox, 0, script);
    await_marked(sandbox, mark, 3);
    cay_process_free(process);
    await_marked(sandbox, mark, 0);
}

CASE(a_timeout_holds_for_processes_too)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char script[128];

    need_processes(sandbox);
    snprintf(script, sizeof script, "setsid sleep %s & sleep %s", mark, mark);
    AUTO(cay_process) process = NULL;
    ASSERT_OK(try_to_start(sandbox, script, (struct cay_exec_options){.timeout_ms = 1000},
                           &process));
    wait_for(process);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_INT(result.exit_code, 124);
    ASSERT_INT(count_marked(sandbox, mark), 0);
}

/* --- Input --- */

CASE(what_is_written_to_a_process_it_reads)
{
    cay_sandbox *sandbox = make();
    struct heard heard = {0};
    size_t written = 0;

    need_processes(sandbox);
    AUTO(cay_process)
    process = start(sandbox, CAY_EXEC_INPUT,
                    "while read line; do echo \"[$line]\"; done; echo end");
    MAY_LACK("input", backend()->processes->write,
             cay_process_write(process, "one\n", 4, &written, &err));
    ASSERT_INT(written, 4);
    hear_until(process, &heard, "[one]\n");
    ASSERT_OK(cay_process_write(process, "two\n", 4, &written, &err));
    hear_until(process, &heard, "[two]\n");
    MAY_LACK("close_input", backend()->processes->close_input,
             cay_process_close_input(process, &err));
    hear_until(process, &heard, "end\n");
}

CASE(signals_reach_the_process)
{
    cay_sandbox *sandbox = make();
    struct heard heard = {0};

    need_processes(sandbox);
    AUTO(cay_process)
    process = start(sandbox, 0,
                    "trap 'echo caught; exit 9' TERM; echo ready; "
                    "while :; do sleep 0.1; done");
    hear_until(process, &heard, "ready\n");
    MAY_LACK("signal", backend()->processes->signal,
             cay_process_signal(process, SIGTERM, &err));
    wait_for(process);
    ASSERT_INT(result.exit_code, 9);
    ASSERT_HAS(result.out, "caught");
}

CASE(a_terminal_is_one_and_has_the_size_it_is_given)
{
    cay_sandbox *sandbox = make();
    struct heard heard = {0};

    need_processes(sandbox);
    AUTO(cay_process) process = NULL;
    MAY_LACK("tty", true,
             try_to_start(
                 sandbox, "test -t 0 && test -t 1 && stty size; read line; stty size",
                 (struct cay_exec_options){
                     .flags = CAY_EXEC_TTY | CAY_EXEC_INPUT, .rows = 33, .columns = 77},
                 &process));
    hear_until(process, &heard, "33 77");
    MAY_LACK("resize", backend()->processes->resize,
             cay_process_resize(process, 44, 88, &err));
    size_t written = 0;
    ASSERT_OK(cay_process_write(process, "\n", 1, &written, &err));
    hear_until(process, &heard, "44 88");
}

/* --- In the background --- */

static cay_process *attach(cay_sandbox *sandbox, const char *which)
{
    cay_process *process = NULL;

    MAY_LACK("attach", backend()->processes->attach,
             cay_process_attach(sandbox, which, &process, &err));
    return process;
}

static int start_in_background(cay_sandbox *sandbox, const char *script, const char *tag)
{
    cay_process *process = NULL;

    ASSERT_OK(try_to_start(
        sandbox, script,
        (struct cay_exec_options){.flags = CAY_EXEC_BACKGROUND, .tag = tag}, &process));
    int pid = cay_process_pid(process);
    cay_process_free(process);
    return pid;
}

CASE(a_background_process_outlives_its_handle_and_is_found_by_pid_and_tag)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char script[128], pid[16];

    need_processes(sandbox);
    snprintf(script, sizeof script, "echo started; sleep %s", mark);
    snprintf(pid, sizeof pid, "%d", start_in_background(sandbox, script, "my-tag"));
    await_marked(sandbox, mark, 2);
    AUTO(cay_process) by_pid = attach(sandbox, pid);
    AUTO(cay_process) by_tag = attach(sandbox, "my-tag");
    ASSERT_INT(cay_process_pid(by_pid), cay_process_pid(by_tag));
    struct heard heard = {0};
    hear_until(by_tag, &heard, "started\n");
    ASSERT_OK(cay_process_kill(by_pid, &err));
    ASSERT_INT(count_marked(sandbox, mark), 0);
}

/* More than anybody keeps, of which nothing is lost. */
CASE(output_can_wait_for_who_reads_it)
{
    enum { LEN = 5000000 };
    cay_sandbox *sandbox = make();
    AUTO(cay_process) process = NULL;
    struct pollfd waiting = {.events = POLLIN};
    uint64_t dropped = 0, all_dropped = 0;
    size_t len, heard = 0;
    char data[65536];
    int stream = 0;

    need_processes(sandbox);
    MAY_LACK("piped", true,
             try_to_start(
                 sandbox, "exec head -c 5000000 /dev/zero",
                 (struct cay_exec_options){.flags = CAY_EXEC_BACKGROUND | CAY_EXEC_PIPED},
                 &process));
    waiting.fd = cay_process_fd(process);
    rest_ms(20); /* it is far ahead if nothing holds it */
    while (stream >= 0) {
        ASSERT(poll(&waiting, 1, PATIENCE_MS) > 0);
        ASSERT_OK(
            cay_process_read(process, &stream, data, sizeof data, &len, &dropped, &err));
        heard += stream > 0 ? len : 0;
        all_dropped += stream > 0 ? dropped : 0;
    }
    ASSERT_INT(heard, LEN);
    ASSERT_INT(all_dropped, 0);
}

CASE(an_attach_to_an_unknown_process_is_not_found)
{
    cay_sandbox *sandbox = make();
    cay_process *process = NULL;

    need_processes(sandbox);
    if (!backend()->processes->attach)
        (void)attach(sandbox, "1");
    ASSERT_CODE(cay_process_attach(sandbox, "no-such-tag", &process, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_process_attach(sandbox, "999999", &process, &err), CAY_E_NOT_FOUND);
}

ACT(hear_the_end)
{
    AUTO(cay_process) process = attach(sandbox, argument);
    struct heard heard = {0};

    hear_until(process, &heard, "started\n");
    (void)told(sandbox, "echo > go-on");
    wait_for(process);
    ASSERT_INT(result.exit_code, 6);
    ASSERT_HAS(result.out, "went on\n");
}

CASE(another_process_attaches_and_hears_the_end)
{
    cay_sandbox *sandbox = make();
    char pid[16];

    need_processes(sandbox);
    snprintf(pid, sizeof pid, "%d",
             start_in_background(sandbox,
                                 "rm -f go-on; echo started; while ! test -e go-on; do "
                                 "sleep 0.1; done; echo went on; exit 6",
                                 NULL));
    if (!backend()->processes->attach)
        (void)attach(sandbox, pid);
    elsewhere("hear_the_end", cay_sandbox_id(sandbox), pid);
}

ACT(kill_it)
{
    AUTO(cay_process) process = attach(sandbox, argument);

    ASSERT_OK(cay_process_kill(process, &err));
}

CASE(another_process_kills_it_with_its_tree)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char script[128];

    need_processes(sandbox);
    if (!backend()->processes->attach)
        (void)attach(sandbox, "1");
    snprintf(script, sizeof script, "setsid sleep %s & sleep %s", mark, mark);
    (void)start_in_background(sandbox, script, "victim");
    await_marked(sandbox, mark, 3);
    elsewhere("kill_it", cay_sandbox_id(sandbox), "victim");
    ASSERT_INT(count_marked(sandbox, mark), 0);
}

/* --- By an agent --- */

static int start_command(cay_sandbox *sandbox, const char *command, uint64_t timeout_ms)
{
    const struct cay_command_options options = {.size = sizeof options,
                                                .flags = CAY_COMMAND_BACKGROUND,
                                                .timeout_ms = timeout_ms};
    struct cay_command_result started = {0};

    ASSERT_OK(cay_bash_run(sandbox, command, &options, &started, &err));
    int pid = started.background_pid;
    cay_command_done(&started);
    return pid;
}

/* What it says when it has ended, but for its output. */
static struct cay_command_result end_of_command(cay_sandbox *sandbox, int pid)
{
    struct cay_command_result ended = {.status = CAY_STATUS_RUNNING};
    uint64_t begin = now_ms();

    for (; ended.status == CAY_STATUS_RUNNING; rest_ms(20)) {
        ASSERT(now_ms() - begin < PATIENCE_MS);
        ASSERT_OK(cay_background_poll(sandbox, pid, NULL, &ended, &err));
        struct cay_command_result told_once = ended;
        cay_command_done(&told_once);
    }
    return ended;
}

CASE(how_a_background_command_ended_is_known)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char command[128];

    need_processes(sandbox);
    int pid = start_command(sandbox, "exit 137", 0);
    ASSERT_INT(end_of_command(sandbox, pid).exit_code, 137);
    pid = start_command(sandbox, "kill -9 $$", 0);
    ASSERT_INT(end_of_command(sandbox, pid).exit_code, -9);
    snprintf(command, sizeof command, "sleep %s; :", mark);
    pid = start_command(sandbox, command, 700);
    for (int i = 0; i < 2; i++)
        ASSERT_INT(end_of_command(sandbox, pid).status, CAY_STATUS_TIMEOUT);
    ASSERT_INT(count_marked(sandbox, mark), 0);
}

CASE(a_background_command_is_killed_with_what_it_has_left)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    struct cay_command_result killed = {0};
    char command[128];

    need_processes(sandbox);
    snprintf(command, sizeof command, "setsid sleep %s & exit 3", mark);
    int pid = start_command(sandbox, command, 0);
    ASSERT_INT(end_of_command(sandbox, pid).exit_code, 3);
    await_marked(sandbox, mark, 1);
    ASSERT_OK(cay_background_kill(sandbox, pid, &killed, &err));
    cay_command_done(&killed);
    ASSERT_INT(count_marked(sandbox, mark), 0);
}

/* --- Lists --- */

static const struct cay_process_info *find(const struct cay_process_info *infos,
                                           size_t count, int pid)
{
    for (size_t i = 0; i < count; i++)
        if (infos[i].pid == pid)
            return &infos[i];
    return NULL;
}

ACT(list_it)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    const struct cay_process_info *info =
        find(infos, count, (int)strtol(argument, NULL, 10));
    ASSERT(info && info->is_command && info->is_background && !info->has_ended);
    ASSERT_STR(info->tag, "listed");
    ASSERT_HAS(info->command, "sleep");
}

CASE(another_process_sees_it_in_the_list)
{
    cay_sandbox *sandbox = make();
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0;
    char pid[16];

    need_processes(sandbox);
    MAY_LACK("list", backend()->processes->list,
             cay_process_list(sandbox, &infos, &count, &err));
    snprintf(pid, sizeof pid, "%d",
             start_in_background(sandbox, "sleep 86400; :", "listed"));
    elsewhere("list_it", cay_sandbox_id(sandbox), pid);
}
