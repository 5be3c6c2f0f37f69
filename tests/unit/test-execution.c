/* SPDX-License-Identifier: Apache-2.0 */

/* Executions without a sandbox: a backend without contexts, wrong options, and what a
 * driver sends (tests/sandbox/test-code.c has a real one). */
#include <stdio.h>

#include "code/execution.h"
#include "harness.h"
#include "sandbox/backend.h"

static const struct cay_backend without = {.size = sizeof without, .name = "plain"};
static struct cay_code_execution execution;

TEST(a_backend_without_contexts_says_what_to_do)
{
    cay_sandbox sandbox = {&without, NULL};
    struct cay_context_infos infos = {0};
    struct cay_context_info info = {0};

    ASSERT_CODE(cay_code_execute(&sandbox, "1", 1, NULL, &execution, &err),
                CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "plain");
    ASSERT_HAS(err.hint, "use the native backend");
    ASSERT_CODE(cay_context_list(&sandbox, NULL, &infos, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(cay_context_create(&sandbox, NULL, &info, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(cay_context_remove(&sandbox, NULL, "ctx-a", &err), CAY_E_UNSUPPORTED);
}

TEST(wrong_options_are_errors)
{
    cay_sandbox sandbox = {&without, NULL};
    struct cay_context_info info = {0};
    const char *const env[] = {"NAME", NULL};
    struct cay_code_options options = {.size = sizeof options};
    const struct cay_context_options created = {.size = sizeof created, .env = env};

    options.language = "javascrpt";
    ASSERT_CODE(cay_code_execute(&sandbox, "1", 1, &options, &execution, &err),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "did you mean javascript?");
    options.language = "JS";
    options.context = "ctx-a";
    ASSERT_CODE(cay_code_execute(&sandbox, "1", 1, &options, &execution, &err),
                CAY_E_INVALID);
    options.context = NULL;
    ASSERT_CODE(cay_code_execute(&sandbox, NULL, 0, &options, &execution, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_code_execute(&sandbox, "\xff", 1, &options, &execution, &err),
                CAY_E_INVALID);
    ASSERT_HAS(err.message, "UTF-8");
    options.env = env;
    ASSERT_CODE(cay_code_execute(&sandbox, "1", 1, &options, &execution, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_context_create(&sandbox, &created, &info, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_context_restart(&sandbox, NULL, "", &err), CAY_E_INVALID);
}

TEST(every_language_has_a_name)
{
    ASSERT_STR(cay_context_language(0), "python");
    for (size_t i = 0; i < 4; i++)
        ASSERT(cay_context_language(i));
    ASSERT_STR(cay_context_language(4), NULL);
}

/* --- Bytes from inside --- */

static void collect(const char *pieces[], int stream, uint64_t limit)
{
    const struct cay_code_options options = {.size = sizeof options,
                                             .output_limit = limit};
    struct code_collector collector;

    code_collector_init(&collector, &options, &execution);
    for (; *pieces; pieces++)
        if (stream)
            code_collect_bytes(&collector, stream, *pieces, strlen(*pieces), 1);
        else
            code_collect_lines(&collector, *pieces, strlen(*pieces), 1);
    code_collect_end(&collector, &(struct code_end){0}, false);
    code_collector_done(&collector);
    ASSERT(!collector.failed);
}

TEST(characters_may_be_split_between_pieces)
{
    const char *pieces[] = {"\xF0\x9F", "\x98", "\x80\xE2", "\x82x\xC3", NULL};

    collect(pieces, 1, 0);
    ASSERT_STR(execution.out, "\xF0\x9F\x98\x80\xEF\xBF\xBDx\xEF\xBF\xBD");
    cay_code_execution_done(&execution);
}

TEST(lines_may_be_split_between_pieces)
{
    const char *pieces[] = {"{\"type\":\"stdout\",\"te",
                            "xt\":\"a\\n\"}\n{\"type\":\"cou",
                            "nt\",\"count\":7}\nnonsense\n", NULL};

    collect(pieces, 0, 0);
    ASSERT_STR(execution.out, "a\n");
    ASSERT_INT(execution.count, 7);
    cay_code_execution_done(&execution);
}

TEST(only_the_first_error_counts)
{
    const char *pieces[] = {
        "{\"type\":\"error\",\"name\":\"A\",\"value\":\"x\\u0000y\"}\n",
        "{\"type\":\"error\",\"name\":\"B\",\"value\":\"2\"}\n", NULL};

    collect(pieces, 0, 0);
    ASSERT_STR(execution.error_name, "A");
    ASSERT_STR(execution.error_value, "x y");
    ASSERT_STR(execution.traceback, "");
    cay_code_execution_done(&execution);
}

TEST(text_is_cut_between_characters_and_stays_cut)
{
    const char *pieces[] = {"ab\xE2\x82\xAC", "c", NULL};

    collect(pieces, 2, 4);
    ASSERT_STR(execution.error, "ab");
    ASSERT_INT(execution.error_dropped, 4);
    cay_code_execution_done(&execution);
}
