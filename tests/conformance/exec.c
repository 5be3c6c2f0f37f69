/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are waited for. */
#include <errno.h>
#include <signal.h>

#include "conformance.h"

CASE(streams_are_apart_and_their_bytes_as_they_were)
{
    cay_sandbox *sandbox = make();
    char bytes[512];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)i;
    run_with(sandbox, "cat; printf 'e\\000\\377\\r\\n\\n' >&2",
             (struct cay_exec_options){.input = bytes, .input_len = sizeof bytes});
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.exit_code, 0);
    ASSERT_MEM(result.out, result.out_len, bytes, sizeof bytes);
    ASSERT_MEM(result.error, result.error_len, "e\0\xff\r\n\n", 6);
    ASSERT_INT(result.out_dropped, 0);
}

CASE(a_command_that_says_nothing_leaves_empty_streams)
{
    run(make(), ":");
    ASSERT_INT(result.exit_code, 0);
    ASSERT_MEM(result.out, result.out_len, "", 0);
    ASSERT_MEM(result.error, result.error_len, "", 0);
}

CASE(exit_codes_are_the_programs)
{
    static const int codes[] = {0, 1, 2, 42, 126, 127, 255};
    cay_sandbox *sandbox = make();
    char script[32];

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        snprintf(script, sizeof script, "exit %d", codes[i]);
        run(sandbox, script);
        ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
        ASSERT_INT(result.exit_code, codes[i]);
        ASSERT_INT(result.signal, 0);
    }
}

CASE(a_signal_is_told_as_such)
{
    cay_sandbox *sandbox = make();

    run(sandbox, "kill -KILL $$");
    ASSERT_INT(result.cause, CAY_CAUSE_SIGNALLED);
    ASSERT_INT(result.signal, SIGKILL);
    ASSERT_INT(result.exit_code, 128 + SIGKILL);
    run(sandbox, "kill -TERM $$");
    ASSERT_INT(result.signal, SIGTERM);
    ASSERT_INT(result.exit_code, 128 + SIGTERM);
}

static void run_words(cay_sandbox *sandbox, const char *const *argv)
{
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = PATIENCE_MS};

    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
}

CASE(a_program_that_is_not_there_is_a_result)
{
    const char *const argv[] = {"/no/such/program", NULL};

    run_words(make(), argv);
    ASSERT_INT(result.exit_code, 127);
    if (result.cause == CAY_CAUSE_NOT_STARTED)
        ASSERT_INT(result.exec_errno, ENOENT);
    else
        ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
}

CASE(no_word_means_anything_but_itself)
{
    const char *const argv[] = {
        "sh",        "-c",     "for word; do printf '[%s]' \"$word\"; done",
        "sh",        "",       " ",
        "a b",       "'\"`",   "$HOME $(id) !! \\n",
        "-rf",       "--",     "*",
        "~",         "x\ny\n", "\xc3\xa9",
        "a;b&c|d>e", NULL};

    run_words(make(), argv);
    ASSERT_STR(result.out, "[][ ][a b]['\"`][$HOME $(id) !! \\n][-rf][--][*][~][x\ny\n]"
                           "[\xc3\xa9][a;b&c|d>e]");
}

CASE(arguments_that_are_not_utf8_pass_or_are_refused)
{
    const char *const argv[] = {"printf", "%s", "\xc3\xa9\xff", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};

    cay_exec_done(&result);
    int code = cay_sandbox_exec(make(), &options, &result, &err);
    if (code == CAY_E_UNSUPPORTED)
        report_unsupported("bytes");
    ASSERT_OK(code);
    ASSERT_STR(result.out, "\xc3\xa9\xff");
}

CASE(a_long_command_line_passes)
{
    enum { LEN = 100000 };
    cay_sandbox *sandbox = make();
    AUTO_FREE char *word = malloc(LEN + 1);
    const char *const argv[] = {"printf", "%s", word, NULL};

    ASSERT(word);
    memset(word, 'w', LEN);
    word[LEN] = '\0';
    run_words(sandbox, argv);
    ASSERT_MEM(result.out, result.out_len, word, LEN);
}

CASE(what_makes_no_sense_is_refused)
{
    cay_sandbox *sandbox = make();
    const char *const none[] = {NULL}, *const some[] = {"true", NULL};
    struct cay_exec_options options = {.size = sizeof options};
    struct cay_exec_result unused = {0};

    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &unused, &err), CAY_E_INVALID);
    options.argv = none;
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &unused, &err), CAY_E_INVALID);
    options.argv = some;
    options.flags = 1u << 20;
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &unused, &err), CAY_E_INVALID);
    options.flags = CAY_EXEC_BACKGROUND; /* is for cay_process_start() */
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &unused, &err), CAY_E_INVALID);
    ASSERT_STR(told(sandbox, "echo still here"), "still here");
}

/* --- Input --- */

CASE(without_input_there_is_the_end_at_once)
{
    cay_sandbox *sandbox = make();

    ASSERT_STR(told(sandbox, "cat; echo end"), "end");
    run_with(sandbox, "cat; echo end",
             (struct cay_exec_options){
                 .input = "", .input_len = 0, .timeout_ms = PATIENCE_MS});
    ASSERT_STR(result.out, "end\n");
}

static char *make_bytes(size_t len)
{
    char *bytes = malloc(len);
    uint32_t random = 12345;

    ASSERT(bytes);
    for (size_t i = 0; i < len; i++) {
        random = random * 1664525 + 1013904223;
        bytes[i] = (char)(random >> 24);
    }
    return bytes;
}

CASE(input_of_many_megabytes_goes_in_while_output_comes)
{
    enum { LEN = 8 << 20 };
    cay_sandbox *sandbox = make();
    AUTO_FREE char *bytes = make_bytes(LEN);

    run_with(sandbox, "cat",
             (struct cay_exec_options){
                 .input = bytes, .input_len = LEN, .timeout_ms = 4 * PATIENCE_MS});
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_MEM(result.out, result.out_len, bytes, LEN);
}

CASE(input_that_nobody_reads_is_no_harm)
{
    enum { LEN = 1 << 20 };
    cay_sandbox *sandbox = make();
    AUTO_FREE char *bytes = make_bytes(LEN);

    run_with(sandbox, "exit 7",
             (struct cay_exec_options){
                 .input = bytes, .input_len = LEN, .timeout_ms = PATIENCE_MS});
    ASSERT_INT(result.exit_code, 7);
}

/* --- Surroundings --- */

CASE(variables_are_added_as_they_are)
{
    cay_sandbox *sandbox = make();
    const char *const env[] = {"ONE=a b", "TWO='\"$HOME`id`\n=", "EMPTY=", NULL};

    run_with(sandbox, "printf '[%s][%s][%s]' \"$ONE\" \"$TWO\" \"${EMPTY-unset}\"",
             (struct cay_exec_options){.env = env, .timeout_ms = PATIENCE_MS});
    ASSERT_STR(result.out, "[a b]['\"$HOME`id`\n=][]");
    ASSERT_STR(told(sandbox, "echo ${ONE-unset}"), "unset"); /* only for that command */
    ASSERT_STR(told(sandbox, "test -n \"$PATH\" && echo path"), "path");
}

CASE(variables_of_the_configuration_are_everywhere)
{
    cay_sandbox *sandbox = make();
    const char *name, *value;
    char script[256];

    for (size_t i = 0; cay_config_item(configuration(), "envs", i, &name, &value); i++) {
        snprintf(script, sizeof script, "printenv -- %s", name);
        ASSERT_STR(told(sandbox, script), value);
    }
}

static void run_at(cay_sandbox *sandbox, const char *cwd, const char *script)
{
    run_with(sandbox, script,
             (struct cay_exec_options){.cwd = cwd, .timeout_ms = PATIENCE_MS});
    ASSERT_INT(result.exit_code, 0);
}

CASE(a_command_starts_in_the_working_directory_or_where_it_is_told_to)
{
    cay_sandbox *sandbox = make();
    char home[1024], expected[1100];

    snprintf(home, sizeof home, "%s", told(sandbox, "pwd"));
    ASSERT(home[0] == '/' && home[1]);
    (void)told(sandbox, "mkdir -p 'sub dir/x'");
    run_at(sandbox, "/", "pwd");
    ASSERT_STR(result.out, "/\n");
    snprintf(expected, sizeof expected, "%s/sub dir/x\n", home);
    run_at(sandbox, "sub dir/x", "pwd");
    ASSERT_STR(result.out, expected);
    expected[strlen(expected) - 1] = '\0';
    run_at(sandbox, expected, "echo there > mark");
    ASSERT_STR(told(sandbox, "cat 'sub dir/x/mark'"), "there");
}

CASE(a_directory_to_start_in_that_is_not_there_is_told)
{
    static const char *const places[] = {"/no such/place", "dangling", "file"};
    const char *const argv[] = {"true", NULL};
    cay_sandbox *sandbox = make();
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = PATIENCE_MS};

    (void)told(sandbox, "echo > file; ln -s nowhere dangling");
    for (int i = 0; i < 3; i++) {
        options.cwd = places[i];
        ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err),
                    i == 2 ? CAY_E_NOT_A_DIRECTORY : CAY_E_NOT_FOUND);
        ASSERT_STR(err.op, "exec.cwd");
        ASSERT_STR(err.subject, places[i]);
    }
}

CASE(a_working_directory_that_was_configured_is_there)
{
    cay_sandbox *sandbox = make();

    if (cay_config_has(configuration(), "work_dir"))
        ASSERT_STR(told(sandbox, "pwd -P"), cay_config_text(configuration(), "work_dir"));
    ASSERT_STR(told(sandbox, "echo x > here && cat here"), "x");
}

CASE(commands_run_as_who_they_are_told_to)
{
    cay_sandbox *sandbox = make();
    const char *const argv[] = {"id", "-u", NULL};
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = "no-such-user-here"};

    int code = cay_sandbox_exec(sandbox, &options, &result, &err);
    ASSERT(code != CAY_OK || result.exit_code != 0);
    cay_exec_done(&result);
    options.user = "root";
    MAY_LACK("user", true, cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_STR(result.out, "0\n");
}

/* --- Output --- */

CASE(over_its_limit_the_tail_of_the_output_is_kept_and_the_rest_counted)
{
    enum { LIMIT = 1000 };
    cay_sandbox *sandbox = make();

    run_with(sandbox,
             "i=0; while test $i -lt 1000; do printf '%04d\\n' $i; i=$((i+1)); done; "
             "echo e >&2",
             (struct cay_exec_options){.output_limit = LIMIT, .timeout_ms = PATIENCE_MS});
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.out_len, LIMIT);
    ASSERT_INT(result.out_dropped, 5000 - LIMIT);
    ASSERT(memcmp(result.out, "0800\n0801\n", 10) == 0);
    ASSERT(memcmp(result.out + LIMIT - 5, "0999\n", 5) == 0);
    ASSERT_STR(result.error, "e\n");
    ASSERT_INT(result.error_dropped, 0);
}

CASE(fail_on_limit_ends_the_command_at_the_output_limit)
{
    cay_sandbox *sandbox = make();

    run_with(sandbox, "while :; do echo more; done",
             (struct cay_exec_options){.flags = CAY_EXEC_FAIL_ON_LIMIT,
                                       .output_limit = 10000,
                                       .timeout_ms = PATIENCE_MS});
    ASSERT_INT(result.cause, CAY_CAUSE_OUTPUT_LIMIT);
    ASSERT_INT(result.out_len, 10000);
}

struct heard {
    char text[2][256];
    size_t len[2];
    size_t stop_at;
};

static int hear(void *cookie, int stream, const void *data, size_t len)
{
    struct heard *heard = cookie;

    if (stream < 1 || stream > 2)
        return -1;
    size_t *used = &heard->len[stream - 1];
    for (size_t i = 0; i < len && *used + i < sizeof heard->text[0] - 1; i++)
        heard->text[stream - 1][*used + i] = ((const char *)data)[i];
    *used += len;
    return heard->stop_at && *used >= heard->stop_at;
}

CASE(output_can_be_had_as_it_comes)
{
    cay_sandbox *sandbox = make();
    struct heard heard = {0};

    run_with(sandbox, "printf one; printf two >&2; printf three",
             (struct cay_exec_options){
                 .on_output = hear, .cookie = &heard, .timeout_ms = PATIENCE_MS});
    ASSERT_STR(heard.text[0], "onethree");
    ASSERT_STR(heard.text[1], "two");
    ASSERT_INT(result.exit_code, 0);
    ASSERT_INT(result.out_len + result.error_len, 0);
}

CASE(an_output_callback_can_end_the_command)
{
    cay_sandbox *sandbox = make();
    struct heard heard = {.stop_at = 100};
    const char *mark = new_mark();
    char script[128];

    snprintf(script, sizeof script, "sleep %s & while :; do echo more; done", mark);
    run_with(sandbox, script,
             (struct cay_exec_options){
                 .on_output = hear, .cookie = &heard, .timeout_ms = PATIENCE_MS});
    ASSERT(result.cause != CAY_CAUSE_EXITED && result.cause != CAY_CAUSE_TIMEOUT);
    ASSERT_INT(count_marked(sandbox, mark), 0);
}

/* --- Ends --- */

CASE(a_command_ends_with_its_first_process)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char script[128];

    snprintf(script, sizeof script, "sleep %s & echo done", mark);
    run(sandbox, script); /* though sleep has the pipe open still */
    ASSERT_STR(result.out, "done\n");
    if (backend()->processes)
        await_marked(sandbox, mark, 1);
}

/* Twice the time each round, so that a slow machine only makes it longer. */
CASE(a_timeout_returns_what_was_written_until_then)
{
    cay_sandbox *sandbox = make();

    for (uint64_t ms = 500; ms < 4 * PATIENCE_MS; ms *= 2) {
        run_with(sandbox, "echo before; echo it >&2; sleep 86400; echo after",
                 (struct cay_exec_options){.timeout_ms = ms});
        ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
        ASSERT_INT(result.exit_code, 124);
        if (result.error_len)
            break;
    }
    ASSERT_STR(result.out, "before\n");
    ASSERT_STR(result.error, "it\n");
}

CASE(after_a_timeout_the_whole_tree_is_dead)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char script[512];
    bool has_started = false;

    /* A child, one in a session of its own, one whose parent is gone, one that minds no
     * signal that could be minded. */
    snprintf(script, sizeof script,
             "sleep %s & setsid sleep %s & (setsid sh -c 'sleep %s & exec sleep %s' &) & "
             "(trap '' TERM INT HUP; sleep %s) & echo started; sleep %s",
             mark, mark, mark, mark, mark, mark);
    for (uint64_t ms = 1000; !has_started && ms < 4 * PATIENCE_MS; ms *= 2) {
        run_with(sandbox, script, (struct cay_exec_options){.timeout_ms = ms});
        ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
        has_started = result.out_len > 0;
        ASSERT_INT(count_marked(sandbox, mark), 0);
    }
    ASSERT(has_started);
    ASSERT_STR(told(sandbox, "echo still here"), "still here");
}

CASE(after_the_output_limit_the_whole_tree_is_dead)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    char script[256];

    snprintf(script, sizeof script, "setsid sleep %s & while :; do echo more; done",
             mark);
    run_with(sandbox, script,
             (struct cay_exec_options){.flags = CAY_EXEC_FAIL_ON_LIMIT,
                                       .output_limit = 100000,
                                       .timeout_ms = PATIENCE_MS});
    ASSERT_INT(result.cause, CAY_CAUSE_OUTPUT_LIMIT);
    ASSERT_INT(count_marked(sandbox, mark), 0);
}

CASE(a_result_tells_how_long_it_took)
{
    run(make(), "sleep 0.2");
    ASSERT(result.wall_us >= 200000);
}

CASE(one_handle_runs_many_commands)
{
    cay_sandbox *sandbox = make();
    char script[64], expected[64];

    for (int i = 0; i < 50; i++) {
        snprintf(script, sizeof script, "echo %d; exit %d", i, i % 3);
        snprintf(expected, sizeof expected, "%d\n", i);
        run(sandbox, script);
        ASSERT_STR(result.out, expected);
        ASSERT_INT(result.exit_code, i % 3);
    }
}
