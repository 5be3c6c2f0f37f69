/* SPDX-License-Identifier: Apache-2.0 */

/* Making sandboxes, finding them again, and their end. */
#include <unistd.h>

#include "conformance.h"

static enum cay_state state_of(cay_sandbox *sandbox)
{
    enum cay_state state = 0;

    ASSERT_OK(cay_sandbox_state(sandbox, &state, &err));
    return state;
}

CASE(a_new_sandbox_runs_and_knows_its_backend)
{
    cay_sandbox *sandbox = make();

    ASSERT(cay_sandbox_id(sandbox)[0]);
    ASSERT(cay_sandbox_backend(sandbox) == backend());
    ASSERT_INT(state_of(sandbox), CAY_STATE_RUNNING);
    ASSERT_STR(told(sandbox, "echo yes"), "yes");
}

CASE(every_sandbox_has_an_id_of_its_own)
{
    cay_sandbox *one = make(), *other = make();

    ASSERT(strcmp(cay_sandbox_id(one), cay_sandbox_id(other)) != 0);
}

CASE(another_handle_reaches_it_by_its_id)
{
    cay_sandbox *one = make();

    ASSERT_STR(told(one, "echo here > file && cat file"), "here");
    cay_sandbox *other = reach(cay_sandbox_id(one));
    ASSERT_STR(cay_sandbox_id(other), cay_sandbox_id(one));
    ASSERT(cay_sandbox_backend(other) == backend());
    ASSERT_STR(told(other, "cat file"), "here");
}

CASE(it_outlives_the_handle)
{
    cay_sandbox *sandbox = make();
    char id[256];

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    (void)told(sandbox, "echo kept > file");
    let_go(sandbox);
    ASSERT_STR(told(reach(id), "cat file"), "kept");
}

ACT(say_who)
{
    ASSERT_STR(told(sandbox, "cat file"), argument);
    (void)told(sandbox, "echo there > answer");
}

CASE(another_process_reaches_it_by_its_id)
{
    cay_sandbox *sandbox = make();

    (void)told(sandbox, "echo somebody > file");
    elsewhere("say_who", cay_sandbox_id(sandbox), "somebody");
    ASSERT_STR(told(sandbox, "cat answer"), "there");
}

CASE(inspect_tells_the_id_and_the_state)
{
    cay_sandbox *sandbox = make();
    struct cay_sandbox_info info;

    MAY_LACK("inspect", backend()->inspect, cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_STR(info.id, cay_sandbox_id(sandbox));
    ASSERT_INT(info.state, CAY_STATE_RUNNING);
}

/* --- Its end --- */

/* 16 letters; the number of the process tells runs apart. */
static const char *draw_mark(void)
{
    static char mark[17];

    snprintf(mark, sizeof mark, "conformance%05u", (unsigned)getpid() % 100000u);
    for (char *at = mark + 11; *at; at++)
        *at = (char)(*at - '0' + 'a');
    return mark;
}

CASE(one_whose_id_nobody_heard_is_found_by_its_mark)
{
    const struct cay_backend *table = backend();
    const char *mark = draw_mark();
    void *made = NULL, *found = NULL;
    char id[256];

    if (!table->create_marked)
        report_unsupported("marks");
    ASSERT_CODE(table->find_marked(table->data, configuration(), mark, &found, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(table->create_marked(table->data, configuration(), mark, &made, &err));
    snprintf(id, sizeof id, "%s", table->id(made));
    note_made(id);
    table->free(made);
    ASSERT_OK(table->find_marked(table->data, configuration(), mark, &found, &err));
    int same = strcmp(table->id(found), id);
    table->free(found);
    ASSERT_INT(same, 0);
    ASSERT_OK(cay_sandbox_remove(reach(id), &err));
    ASSERT_CODE(table->find_marked(table->data, configuration(), mark, &found, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(table->find_marked(table->data, configuration(), "no-mark", &found, &err),
                CAY_E_INVALID);
}

CASE(nothing_is_left_of_one_that_was_removed)
{
    cay_sandbox *sandbox = make();
    const char *mark = new_mark();
    struct cay_exec_result none = {0};
    enum cay_state state;
    char id[256], script[256];

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    snprintf(script, sizeof script,
             "setsid sleep %s >/dev/null 2>&1 & sleep %s >/dev/null 2>&1 &", mark, mark);
    (void)told(sandbox, script);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_INT(count_marked_here(mark), 0);
    ASSERT_CODE(cay_sandbox_state(sandbox, &state, &err), CAY_E_NOT_FOUND);
    const char *const argv[] = {"true", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    ASSERT(cay_sandbox_exec(sandbox, &options, &none, &err) != CAY_OK);
    ASSERT(!none.out && !none.error);
    ASSERT_CODE(try_to_reach(id), CAY_E_NOT_FOUND);
}

CASE(removing_what_is_gone_is_no_harm)
{
    cay_sandbox *one = make(), *other = reach(cay_sandbox_id(one));

    ASSERT_OK(cay_sandbox_remove(one, &err));
    int code = cay_sandbox_remove(other, &err);
    ASSERT(code == CAY_OK || code == CAY_E_NOT_FOUND);
}

ACT(end_it)
{
    (void)argument;
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

CASE(one_that_somebody_else_removed_is_gone_here_too)
{
    cay_sandbox *sandbox = make();
    enum cay_state state;

    ASSERT_STR(told(sandbox, "echo yes"), "yes");
    elsewhere("end_it", cay_sandbox_id(sandbox), "");
    ASSERT_CODE(cay_sandbox_state(sandbox, &state, &err), CAY_E_NOT_FOUND);
}

CASE(a_killed_one_is_gone_unless_it_can_be_started)
{
    cay_sandbox *sandbox = make();
    enum cay_state state;
    char id[256];

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    (void)told(sandbox, "echo kept > file");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    int code = cay_sandbox_state(sandbox, &state, &err);
    if (code == CAY_E_NOT_FOUND) {
        ASSERT_CODE(try_to_reach(id), CAY_E_NOT_FOUND);
        return;
    }
    ASSERT_INT(code, CAY_OK);
    ASSERT_INT(state, CAY_STATE_STOPPED);
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    ASSERT_INT(state_of(sandbox), CAY_STATE_RUNNING);
    ASSERT_STR(told(sandbox, "cat file"), "kept");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_STR(told(reach(id), "cat file"), "kept"); /* which starts it, too */
}

/* --- Standing still --- */

CASE(a_paused_sandbox_goes_on_where_it_was)
{
    cay_sandbox *sandbox = make();

    (void)told(sandbox, "echo kept > file");
    MAY_LACK("pause", backend()->pause, cay_sandbox_pause(sandbox, &err));
    ASSERT_INT(state_of(sandbox), CAY_STATE_PAUSED);
    MAY_LACK("pause", backend()->resume, cay_sandbox_resume(sandbox, &err));
    ASSERT_INT(state_of(sandbox), CAY_STATE_RUNNING);
    ASSERT_STR(told(sandbox, "cat file"), "kept");
}

CASE(connecting_to_a_paused_sandbox_resumes_it)
{
    cay_sandbox *sandbox = make();

    (void)told(sandbox, "echo kept > file");
    MAY_LACK("pause", backend()->pause, cay_sandbox_pause(sandbox, &err));
    cay_sandbox *other = reach(cay_sandbox_id(sandbox));
    ASSERT_INT(state_of(other), CAY_STATE_RUNNING);
    ASSERT_STR(told(other, "cat file"), "kept");
    ASSERT_INT(state_of(sandbox), CAY_STATE_RUNNING);
}

/* The longest time between two lines of a file of times in nanoseconds. */
static long long longest_gap_ms(const char *times)
{
    long long longest = 0, before = 0;

    for (char *end; *times; times = end) {
        long long now = strtoll(times, &end, 10);
        if (end == times)
            break;
        if (before && now - before > longest)
            longest = now - before;
        before = now;
    }
    return longest / 1000000;
}

CASE(nothing_runs_on_in_a_paused_sandbox)
{
    enum { PAUSE_MS = 1500 };
    cay_sandbox *sandbox = make();

    MAY_LACK("pause", backend()->pause, cay_sandbox_pause(sandbox, &err));
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    (void)told(sandbox, "sh -c 'while :; do date +%s%N >> ticks; sleep 0.05; done' "
                        ">/dev/null 2>&1 </dev/null & while ! test -s ticks; do "
                        "sleep 0.05; done");
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    rest_ms(PAUSE_MS);
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    (void)told(sandbox, "lines() { wc -l < ticks; }; before=$(lines); "
                        "while test $(lines) -le $((before + 1)); do sleep 0.05; done");
    ASSERT(longest_gap_ms(told(sandbox, "cat ticks")) >= PAUSE_MS);
}

/* --- Time to live --- */

CASE(a_sandbox_ends_by_itself_when_its_time_is_over)
{
    cay_sandbox *sandbox = make();
    uint64_t end = now_ms() + PATIENCE_MS;
    enum cay_state state = CAY_STATE_RUNNING;
    int code = CAY_OK;

    MAY_LACK("ttl", backend()->set_ttl, cay_sandbox_set_ttl(sandbox, 1000, &err));
    while (now_ms() < end && code == CAY_OK && state == CAY_STATE_RUNNING) {
        rest_ms(100);
        code = cay_sandbox_state(sandbox, &state, &err);
    }
    ASSERT(code == CAY_E_NOT_FOUND || (code == CAY_OK && state != CAY_STATE_RUNNING));
}

CASE(a_time_to_live_can_be_taken_away)
{
    cay_sandbox *sandbox = make();

    MAY_LACK("ttl", backend()->set_ttl, cay_sandbox_set_ttl(sandbox, 60000, &err));
    MAY_LACK("endless", true, cay_sandbox_set_ttl(sandbox, 0, &err));
    ASSERT_INT(state_of(sandbox), CAY_STATE_RUNNING);
}
