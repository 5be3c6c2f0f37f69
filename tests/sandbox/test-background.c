/* SPDX-License-Identifier: Apache-2.0 */

/* Processes that outlive their starter, and whoever comes to look at them. */
#include <errno.h>
#include <signal.h>

#include "processes.h"

static cay_process *start_tagged(cay_sandbox *sandbox, unsigned flags, const char *tag,
                                 const char *script)
{
    const struct cay_exec_options options = {.flags = flags | CAY_EXEC_BACKGROUND,
                                             .tag = tag};
    cay_process *process = NULL;

    ASSERT_OK(start_script(sandbox, script, options, &process));
    return process;
}

/* Starts a server that answers, and ends itself. */
static void begin(const char *id)
{
    cay_sandbox *sandbox = open_sandbox(id);

    (void)start_tagged(sandbox, CAY_EXEC_INPUT, "web",
                       "echo out-early; echo error-early >&2; "
                       "while read line; do echo got $line; done; echo over; exit 5");
}

static void talk(const char *id)
{
    cay_sandbox *sandbox = open_sandbox(id);
    cay_process *process = attach(sandbox, "web");
    struct heard heard = {0};
    size_t put;

    hear_until(process, &heard, 1, "out-early\n");
    hear_until(process, &heard, 2, "error-early\n");
    ASSERT_INT(heard.dropped[0], 0);
    ASSERT_OK(cay_process_write(process, "hello\n", 6, &put, &err));
    ASSERT_INT(put, 6);
    hear_until(process, &heard, 1, "got hello\n");
}

static void finish(const char *id)
{
    cay_sandbox *sandbox = open_sandbox(id);
    struct cay_process_info *infos;
    size_t count;
    char pid[16];

    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT_INT(count, 1);
    snprintf(pid, sizeof pid, "%d", infos[0].pid);
    cay_process *process = attach(sandbox, pid);
    ASSERT_INT(cay_process_pid(process), infos[0].pid);
    ASSERT_OK(cay_process_close_input(process, &err));
    wait_for(process);
    ASSERT_STR(result.out, "out-early\ngot hello\nover\n");
    ASSERT_STR(result.error, "error-early\n");
    ASSERT_INT(result.exit_code, 5);
}

TEST(it_outlives_its_starter_and_is_found_by_tag_and_by_number)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    elsewhere(begin, cay_sandbox_id(sandbox));
    elsewhere(talk, cay_sandbox_id(sandbox));
    elsewhere(finish, cay_sandbox_id(sandbox));
    cay_process *process = NULL;
    int code = CAY_OK;
    for (int i = 0; i < PATIENCE_MS / 10 && code == CAY_OK;
         i++) { /* what held it may still be there */
        rest_ms(10);
        code = cay_process_attach(sandbox, "web", &process, &err);
        if (code == CAY_OK)
            cay_process_free(process);
    }
    ASSERT_INT(code, CAY_E_NOT_FOUND);
}

TEST(the_last_mebibyte_is_kept_and_the_rest_counted)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { LEN = 3000000, KEPT = 1 << 20 };
    cay_process *starter =
        start_tagged(sandbox, 0, "seq",
                     "head -c 3000000 /dev/zero | tr '\\0' a; echo end; "
                     "head -c 2000000 /dev/zero | tr '\\0' b >&2; echo last >&2");

    cay_process_free(starter); /* no reader is left */
    for (bool ended = false; !ended; rest_ms(10)) {
        struct cay_process_info *infos = NULL;
        size_t count = 0;
        ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
        for (size_t i = 0; i < count; i++)
            ended = ended || (strcmp(infos[i].tag, "seq") == 0 && infos[i].has_ended);
        cay_free(infos);
    }
    for (int i = 0; i < 2; i++) {
        AUTO(cay_process) process = attach(sandbox, "seq");
        struct heard heard = {0};
        hear_all(process, &heard);
        ASSERT_INT(heard.len[0], KEPT);
        ASSERT_INT(heard.dropped[0], LEN + 4 - KEPT);
        ASSERT_INT(heard.len[1], KEPT);
        ASSERT_INT(heard.dropped[1], 2000000 + 5 - KEPT);
    }
    AUTO(cay_process) process = attach(sandbox, "seq");
    wait_for(process);
    ASSERT_INT(result.out_len, KEPT);
    ASSERT_INT(result.out_dropped, LEN + 4 - KEPT);
    ASSERT_STR(result.out + result.out_len - 5, "aend\n");
    ASSERT_STR(result.error + result.error_len - 6, "blast\n");
    cay_exec_done(&result);
}

TEST(each_attached_handle_reads_everything_at_its_own_pace)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    first = start_tagged(sandbox, CAY_EXEC_INPUT, "pair",
                         "echo one; read x; echo two; read x; echo three");
    AUTO(cay_process) second = attach(sandbox, "pair");
    struct heard heard[3] = {0};
    size_t put;

    hear_until(first, &heard[0], 1, "one\n");
    ASSERT_OK(cay_process_write(second, "\n", 1, &put, &err));
    hear_until(first, &heard[0], 1, "one\ntwo\n");
    AUTO(cay_process) third = attach(sandbox, "pair");
    hear_until(third, &heard[2], 1, "one\ntwo\n");
    ASSERT_OK(cay_process_write(third, "\n", 1, &put, &err));
    hear_all(first, &heard[0]);
    hear_all(second, &heard[1]);
    hear_all(third, &heard[2]);
    for (int i = 0; i < 3; i++)
        ASSERT_STR(heard[i].text[0], "one\ntwo\nthree\n");
}

TEST(a_slow_reader_stalls_nobody_and_is_told_what_it_lost)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { LEN = 20 << 20 };
    AUTO(cay_process)
    slow = start_tagged(sandbox, CAY_EXEC_INPUT, "flood",
                        "echo ready; read x; head -c 20971514 /dev/zero; echo over >&2");
    AUTO(cay_process) quick = attach(sandbox, "flood");
    struct heard heard = {0}, later = {0};
    size_t put;

    hear_until(slow, &later, 1, "ready\n");
    ASSERT_OK(cay_process_write(quick, "\n", 1, &put, &err));
    hear_all(quick, &heard);
    ASSERT_STR(heard.text[1], "over\n");
    ASSERT_INT(heard.len[0] + heard.dropped[0], LEN);
    run(sandbox, "echo no wait");
    ASSERT_STR(result.out, "no wait\n");
    hear_all(slow, &later);
    ASSERT_INT(later.len[0] + later.dropped[0], LEN);
    ASSERT(later.dropped[0] > LEN / 2);
    ASSERT_STR(later.text[1], "over\n");
    cay_exec_done(&result);
}

TEST(two_that_run_never_share_a_tag)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) first = start_tagged(sandbox, 0, "only", "sleep 1000");
    const char *const argv[] = {"true", NULL};
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .tag = "only"};
    cay_process *process = NULL;

    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_EXISTS);
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_EXISTS);
    ASSERT_STR(err.subject, "only");
    ASSERT_OK(cay_process_kill(first, &err));
    AUTO(cay_process) second = start_tagged(sandbox, 0, "only", "echo second");
    AUTO(cay_process) found = attach(sandbox, "only");
    ASSERT_INT(cay_process_pid(found), cay_process_pid(second));
    wait_for(found);
    ASSERT_STR(result.out, "second\n");
    static const char *const wrong[] = {"12",  "-a", "a b",      "a/b",
                                        "a\n", ".a", "\xC3\xA9", "_a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.tag = wrong[i];
        ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_INVALID);
        ASSERT_STR(err.op, "exec.tag");
    }
    char tag[66];
    memset(tag, 'a', sizeof tag);
    tag[64] = '\0';
    options.tag = tag;
    ASSERT_CODE(cay_process_start(sandbox, &options, &process, &err), CAY_E_INVALID);
    tag[63] = '\0';
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    cay_exec_done(&result);
}

TEST(what_was_kept_is_there_at_the_first_read)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    first =
        start_tagged(sandbox, CAY_EXEC_INPUT, "kept", "seq 100000; echo all >&2; read x");
    struct heard heard = {0};

    hear_until(first, &heard, 2, "all\n");
    for (int i = 0; i < 20; i++) {
        AUTO(cay_process) later = attach(sandbox, "kept");
        char piece[4096];
        size_t total = 0, len = 0;
        int stream = 1;
        for (; stream > 0; total += len) /* without waiting */
            ASSERT_OK(
                cay_process_read(later, &stream, piece, sizeof piece, &len, NULL, &err));
        ASSERT_INT(stream, 0);
        ASSERT_INT(total, 588895 + 4);
    }
}

TEST(attach_fails_without_a_background_command_of_that_pid_or_tag)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) foreground = start(sandbox, 0, "sleep 1000");
    AUTO(cay_process) background = start_tagged(sandbox, 0, "there", "sleep 1000");
    cay_process *process = NULL;
    char pid[32];
    static const char *const wrong[] = {"nobody",       "1", "0", "-1",
                                        "999999999999", "",  "2x"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ASSERT_CODE(cay_process_attach(sandbox, wrong[i], &process, &err),
                    CAY_E_NOT_FOUND);
    snprintf(pid, sizeof pid, "%d", cay_process_pid(foreground));
    ASSERT_CODE(cay_process_attach(sandbox, pid, &process, &err), CAY_E_NOT_FOUND);
    snprintf(pid, sizeof pid, "there (%d)", cay_process_pid(background));
    ASSERT_HAS(err.hint, pid);
}

TEST(signals_and_kills_come_from_whoever_is_attached)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    first = start_tagged(sandbox, 0, "target",
                         "trap 'echo hup' HUP; echo up; while :; do sleep 0.05; done");
    AUTO(cay_process) second = attach(sandbox, "target");
    struct heard heard = {0};

    hear_until(first, &heard, 1, "up\n");
    ASSERT_OK(cay_process_signal(second, SIGHUP, &err));
    hear_until(first, &heard, 1, "hup\n");
    ASSERT_OK(cay_process_kill(second, &err));
    hear_all(first, &heard);
    wait_for(first);
    ASSERT_INT(result.signal, SIGKILL);
    cay_exec_done(&result);
}

TEST(so_many_run_and_no_more)
{
    const struct cay_sandbox_options roomy = {.size = sizeof roomy, .pids = 1000};
    AUTO(cay_sandbox) sandbox = make_sandbox(&roomy);
    enum { MOST = 512 };
    cay_process *process[MOST], *one_more = NULL;

    for (int i = 0; i < MOST; i++)
        process[i] = start(sandbox, CAY_EXEC_BACKGROUND, "exec sleep 1000");
    const struct cay_exec_options options = {.flags = CAY_EXEC_BACKGROUND};
    ASSERT_CODE(start_script(sandbox, "true", options, &one_more), CAY_E_LIMIT);
    ASSERT_HAS(err.hint, "512");
    run(sandbox, "echo others do");
    ASSERT_STR(result.out, "others do\n");
    ASSERT_OK(cay_process_kill(process[7], &err));
    ASSERT_OK(start_script(sandbox, "true", options, &one_more));
    cay_process_free(one_more);
    for (int i = 0; i < MOST; i++)
        cay_process_free(process[i]);
    cay_exec_done(&result);
}

TEST(results_wait_to_be_fetched_until_too_many_newer_ones_have_ended)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { KEPT = 64, MORE = 3 };
    cay_process *gone = NULL;

    for (int i = 0; i < KEPT + MORE; i++) {
        char script[64], tag[16];
        snprintf(script, sizeof script, "echo number %d", i);
        snprintf(tag, sizeof tag, "t%d", i);
        cay_process *process = start_tagged(sandbox, 0, tag, script);
        struct heard heard = {0};
        hear_all(process, &heard); /* reading is not fetching */
        cay_process_free(process);
    }
    ASSERT_CODE(cay_process_attach(sandbox, "t2", &gone, &err), CAY_E_NOT_FOUND);
    AUTO(cay_process) oldest = attach(sandbox, "t3");
    wait_for(oldest);
    ASSERT_STR(result.out, "number 3\n");
    ASSERT_CODE(cay_process_attach(sandbox, "t3", &gone, &err), CAY_E_NOT_FOUND);
    AUTO(cay_process) newest = attach(sandbox, "t66");
    cay_exec_done(&result);
    ASSERT_OK(cay_process_wait(newest, 0, &result, &err));
    ASSERT_STR(result.out, "number 66\n");
    cay_exec_done(&result);
}

static const struct cay_process_info *find(const struct cay_process_info *infos,
                                           size_t count, const char *command)
{
    const struct cay_process_info *found = NULL;

    for (size_t i = 0; i < count; i++) {
        ASSERT(i == 0 || infos[i - 1].pid <= infos[i].pid);
        if (strcmp(infos[i].command, command) == 0 && !found)
            found = &infos[i];
    }
    ASSERT(found);
    return found;
}

TEST(the_list_shows_everything_that_runs)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const char script[] = "(sleep 1111; true) & sleep 2222; true";
    AUTO(cay_process) tree = start_tagged(sandbox, 0, "tree", script);
    AUTO(cay_process) root = NULL;
    AUTO(cay_process) over = start_tagged(sandbox, 0, "over", "exit 7");
    struct heard heard = {0};
    struct cay_process_info *infos = NULL;
    size_t count = 0, sleeps = 0;

    ASSERT_OK(start_script(sandbox, "exec sleep 3333",
                           (struct cay_exec_options){.user = "root"}, &root));
    hear_all(over, &heard);
    for (int i = 0; i < PATIENCE_MS / 10 && sleeps != 3; i++) {
        rest_ms(10);
        cay_free(infos);
        ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
        sleeps = 0;
        for (size_t k = 0; k < count; k++)
            sleeps += strncmp(infos[k].command, "sleep", 5) == 0 && infos[k].state == 'S';
    }
    ASSERT_INT(count, 6); /* three sleeps, a shell for the first two and one between */
    const struct cay_process_info *leader =
        find(infos, count, "sh -c (sleep 1111; true) & sleep 2222; true");
    ASSERT(leader->is_command && leader->is_background && !leader->has_ended);
    ASSERT_STR(leader->tag, "tree");
    ASSERT_INT(leader->parent, 0);
    ASSERT_INT(leader->uid, 1000);
    ASSERT_INT(leader->pid, cay_process_pid(tree));
    ASSERT(leader->memory_bytes > 0 && leader->started_ms > 1500000000000);
    const struct cay_process_info *child = find(infos, count, "sleep 2222");
    ASSERT(!child->is_command && !child->is_background);
    ASSERT_INT(child->parent, leader->pid);
    ASSERT_INT(child->state, 'S');
    ASSERT(find(infos, count, "sleep 1111")->parent != leader->pid);
    const struct cay_process_info *foreground = find(infos, count, "sleep 3333");
    ASSERT(foreground->is_command && !foreground->is_background);
    ASSERT_INT(foreground->uid, 0);
    const struct cay_process_info *ended = find(infos, count, "sh -c exit 7");
    ASSERT(ended->has_ended && ended->is_background);
    ASSERT_INT(ended->exit_code, 7);
    ASSERT_STR(ended->tag, "over");
    cay_free(infos);
}

TEST(a_command_does_not_leave_the_list_between_its_life_and_its_end)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 60; i++) {
        AUTO(cay_process) process = start_tagged(sandbox, 0, "brief", "true");
        bool ended = false;
        while (!ended) {
            struct cay_process_info *infos = NULL;
            size_t count = 0;
            ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
            ASSERT_INT(count, 1);
            ASSERT_STR(infos[0].tag, "brief");
            ended = infos[0].has_ended;
            cay_free(infos);
        }
        wait_for(process);
    }
    cay_exec_done(&result);
}

TEST(hostile_names_are_cut_and_cleaned)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char name[1001];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *const odd_words[] = {"bash", "-c", "exec -a \"$0\" sleep 1000",
                                     "\x1b]0;owned\a\xff\n) R 1 1", NULL};
    const char *const long_words[] = {"sh", "-c", "sleep 2000; true", name, NULL};
    const struct cay_exec_options odd_options = {.size = sizeof odd_options,
                                                 .argv = odd_words};
    const struct cay_exec_options long_options = {.size = sizeof long_options,
                                                  .argv = long_words};
    AUTO(cay_process) odd = NULL;
    AUTO(cay_process) lengthy = NULL;
    struct cay_process_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_process_start(sandbox, &odd_options, &odd, &err));
    ASSERT_OK(cay_process_start(sandbox, &long_options, &lengthy, &err));
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        cay_free(infos);
        ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
        if (count == 3 && strstr(infos[0].command, "R 1 1 1000") &&
            strcmp(infos[2].command, "sleep 2000") == 0)
            break;
        rest_ms(10);
    }
    ASSERT_INT(count, 3);
    ASSERT_STR(infos[0].command, "?]0;owned??"
                                 "?) R 1 1 1000");
    ASSERT_INT(strlen(infos[1].command), sizeof infos[1].command - 1);
    ASSERT(strncmp(infos[1].command, "sh -c sleep 2000; true nnnn", 27) == 0);
    cay_free(infos);
}

TEST(kept_output_is_bounded_by_the_memory_limit)
{
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .memory_bytes = 32 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);
    enum { COUNT = 20, LEN = 1 << 20 };
    uint64_t kept = 0;

    for (int i = 0; i < COUNT; i++) {
        cay_process_free(
            start(sandbox, CAY_EXEC_BACKGROUND, "head -c 1048576 /dev/zero"));
        for (int k = 0; k < PATIENCE_MS / 10; k++) {
            struct cay_process_info *infos = NULL;
            size_t count = 0, ended = 0;
            ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
            for (size_t m = 0; m < count; m++)
                ended += infos[m].has_ended;
            cay_free(infos);
            if (ended == (size_t)i + 1)
                break;
            rest_ms(5);
        }
    }
    struct cay_process_info *infos = NULL;
    size_t count = 0;
    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT_INT(count, COUNT);
    for (size_t i = 0; i < count; i++) {
        char pid[16];
        snprintf(pid, sizeof pid, "%d", infos[i].pid);
        AUTO(cay_process) process = attach(sandbox, pid);
        struct heard heard = {0};
        hear_all(process, &heard);
        ASSERT_INT(heard.len[0] + heard.dropped[0], LEN);
        kept += heard.len[0];
        if (i == count - 1)
            ASSERT_INT(heard.dropped[0], 0);
    }
    ASSERT(kept >= LEN && kept <= (32 << 20) / 8);
    cay_free(infos);
}
