/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions with remote sandboxes: no sandbox is lost, at whatever point a process dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "../session/steps.h"
#include "../session/stores.h"
#include "peer.h"

enum { PATIENCE_MS = 60000, STEPS_MAX = 100000 };

static const char mark[] = "abcdefgh234567xy";

static inline void auto_cay_manager(cay_manager **manager)
{
    cay_manager_free(*manager);
}

static void rest_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* The number of the peer's sandboxes in that state. */
static int count_boxes(const char *state)
{
    char wanted[64];
    int count = 0;

    snprintf(wanted, sizeof wanted, "\"state\": \"%s", state);
    for (const char *at = peer_request("{\"boxes\": null}"); (at = strstr(at, wanted));
         at++)
        count++;
    return count;
}

static cay_manager *manage(cay_store *store, const cay_config *config)
{
    const struct cay_manager_options options = {.size = sizeof options,
                                                .store = store,
                                                .user_id = "ann",
                                                .session_id = "s",
                                                .config = config};
    cay_manager *manager = NULL;

    ASSERT_OK(cay_manager_new(&options, &manager, &err));
    return manager;
}

static cay_sandbox *sandbox_of(cay_manager *manager)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_manager_sandbox(manager, &sandbox, &err));
    return sandbox;
}

/* A sandbox that a killed process requested may be created a moment later. */
static void collect_until(cay_store *store, int count)
{
    size_t collected;

    for (int i = 0; i < PATIENCE_MS / 20 && count_boxes("") != count; i++) {
        ASSERT_OK(cay_store_collect(store, &collected, &err));
        rest_ms(20);
    }
    ASSERT_INT(count_boxes(""), count);
}

/* --- Marks --- */

WITH_PEER(sandbox_is_found_by_its_mark)
{
    const cay_config *config = configure(NULL);
    void *made = NULL, *found = NULL, *box = make_box(NULL);

    ASSERT_CODE(backend_e2b.find_marked(NULL, config, mark, &found, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(backend_e2b.create_marked(NULL, config, mark, &made, &err));
    ASSERT_OK(backend_e2b.find_marked(NULL, config, mark, &found, &err));
    ASSERT_STR(backend_e2b.id(found), backend_e2b.id(made));
    ASSERT_STR(output_of(found, "echo here"), "here");
    ASSERT(strcmp(backend_e2b.id(found), backend_e2b.id(box)) != 0);
    backend_e2b.free(found);
    ASSERT_OK(backend_e2b.kill(made, &err));
    ASSERT_CODE(backend_e2b.find_marked(NULL, config, mark, &found, &err),
                CAY_E_NOT_FOUND);
    backend_e2b.free(made);
}

WITH_PEER(paused_sandbox_is_found_and_stays_paused)
{
    const cay_config *config = configure(NULL);
    void *made = NULL, *found = NULL;

    ASSERT_OK(backend_e2b.create_marked(NULL, config, mark, &made, &err));
    ASSERT_OK(backend_e2b.pause(made, &err));
    ASSERT_OK(backend_e2b.find_marked(NULL, config, mark, &found, &err));
    ASSERT_INT(count_boxes("paused"), 1);
    ASSERT_OK(backend_e2b.resume(found, &err));
    ASSERT_STR(output_of(found, "echo here"), "here");
    ASSERT_OK(backend_e2b.kill(found, &err));
    ASSERT_INT(count_boxes(""), 0);
    backend_e2b.free(found);
    backend_e2b.free(made);
}

WITH_PEER(sandbox_is_found_on_any_page_of_an_unfiltered_list)
{
    const cay_config *config = configure("metadata: {who: me}\n");
    void *made = NULL, *found = NULL;

    (void)make_box(NULL);
    (void)make_box(NULL);
    ASSERT_OK(backend_e2b.create_marked(NULL, config, mark, &made, &err));
    (void)peer_request("{\"set\": {\"page\": 1, \"filters\": false}}");
    (void)count_requests(".");
    ASSERT_OK(backend_e2b.find_marked(NULL, config, mark, &found, &err));
    ASSERT_INT(count_requests("GET /v2/sandboxes"), 3);
    ASSERT_STR(backend_e2b.id(found), backend_e2b.id(made));
    ASSERT_HAS(peer_request("{\"boxes\": null}"), "\"who\": \"me\"");
    backend_e2b.free(found);
    (void)peer_request("{\"set\": {\"old\": true}}");
    ASSERT_OK(backend_e2b.find_marked(NULL, config, mark, &found, &err));
    ASSERT_STR(backend_e2b.id(found), backend_e2b.id(made));
    backend_e2b.free(found);
    backend_e2b.free(made);
}

WITH_PEER(invalid_marks_and_lists_are_refused)
{
    const cay_config *config = configure("max_retries: 0\n");
    void *box = NULL;

    ASSERT_CODE(backend_e2b.create_marked(NULL, config, "../../etc", &box, &err),
                CAY_E_INVALID);
    ASSERT_CODE(backend_e2b.find_marked(NULL, config, "ABCDEFGH234567XY", &box, &err),
                CAY_E_INVALID);
    (void)peer_request("{\"rule\": {\"on\": \"GET /v2/sandboxes\", \"status\": 200, "
                       "\"body\": \"{}\"}}");
    ASSERT_CODE(backend_e2b.find_marked(NULL, config, mark, &box, &err), CAY_E_PROTOCOL);
    (void)peer_request("{\"rule\": {\"on\": \"GET /v2/sandboxes\", \"status\": 503}}");
    ASSERT_CODE(backend_e2b.find_marked(NULL, config, mark, &box, &err),
                CAY_E_UNAVAILABLE);
}

/* --- Lost replies --- */

WITH_PEER(sandbox_of_a_lost_reply_is_removed)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, configure(NULL));

    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"lose\": true}}");
    ASSERT_CODE(cay_manager_start(manager, &err), CAY_E_PROTOCOL);
    ASSERT_INT(count_boxes(""), 0);
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_INT(count_boxes("running"), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_INT(count_boxes(""), 0);
}

static void start_and_die(void *cookie)
{
    cay_manager *manager = manage(open_store(), *(const cay_config **)cookie);

    (void)!cay_manager_start(manager, &err);
}

/* The next manager starts before the sandbox that a dead one requested is created. */
WITH_PEER(sandbox_created_late_is_removed_later)
{
    const cay_config *config = configure("max_retries: 0\n");

    (void)setenv("E2B_API_KEY", "e2b_5ec2e7", 1); /* for the collector */
    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"delay\": 2}}");
    (void)scratch_path(""); /* shared with the child */
    pid_t pid = in_child(start_and_die, &config);
    while (count_requests("POST /v2/sandboxes") == 0)
        rest_ms(5);
    ASSERT_INT(kill(pid, SIGKILL), 0);
    ASSERT(WIFSIGNALED(end_of(pid)));
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, config);
    ASSERT_OK(cay_manager_start(manager, &err));
    for (int i = 0; i < PATIENCE_MS / 20 && count_boxes("") != 2; i++)
        rest_ms(20);
    ASSERT_INT(count_boxes(""), 2);
    collect_until(store, 1);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id,
               cay_sandbox_id(sandbox_of(manager)));
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_INT(count_boxes(""), 0);
    (void)unsetenv("E2B_API_KEY");
}

/* --- Kills at every system call --- */

struct deed {
    bool begins; /* without a sandbox; else with a running or a paused one */
    bool from_pause;
    int (*run)(cay_manager *manager, struct cay_error *error);
    const char *then; /* the state of an acknowledged one's sandbox; NULL: it has none */
};

static void be_victim(const struct deed *deed, const cay_config *config, int pipe)
{
    be_stepped();
    cay_manager *manager = manage(open_store(), config);
    ASSERT_OK(deed->run(manager, &err));
    ASSERT_INT(write(pipe, "", 1), 1);
    _exit(0);
}

static void prepare(const struct deed *deed, const cay_config *config,
                    char before[CAY_ID_MAX])
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, config);

    before[0] = '\0';
    if (deed->begins)
        return;
    snprintf(before, CAY_ID_MAX, "%s", cay_sandbox_id(sandbox_of(manager)));
    if (deed->from_pause)
        ASSERT_OK(cay_manager_pause(manager, &err));
}

/* The store remembers the marks of starts that were killed early. */
static void forget_all(void)
{
    static const char *const names[] = {"sessions.db", "sessions.db-wal",
                                        "sessions.db-shm"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ASSERT(unlink(scratch_path(names[i])) == 0 || errno == ENOENT);
}

/* The next process gets the sandbox of the session, and removes it. */
static void go_on(const struct deed *deed, const cay_config *config, const char *before)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, config);
    const char *id = cay_sandbox_id(sandbox_of(manager));

    if (*before && deed->then)
        ASSERT_STR(id, before);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, id);
    collect_until(store, 1);
    ASSERT_INT(count_boxes("running"), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
    collect_until(store, 0);
}

/* True if the action was complete before the kill. */
static bool kill_after(const struct deed *deed, const cay_config *config, unsigned steps)
{
    char before[CAY_ID_MAX], byte;
    int ends[2];

    prepare(deed, config, before);
    ASSERT_INT(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        be_victim(deed, config, ends[1]);
    bool is_over = run_for(pid, steps);
    if (!deed->then) /* a kill that was sent may come late, and is not to be hit by it */
        ASSERT_STR(peer_request("{\"settle\": null}"), "true");
    if (read(ends[0], &byte, 1) == 1)
        ASSERT_INT(count_boxes(deed->then ? deed->then : ""), deed->then ? 1 : 0);
    else
        ASSERT(!is_over);
    (void)close(ends[0]);
    (void)close(ends[1]);
    go_on(deed, config, before);
    forget_all();
    return is_over;
}

static void survive(const struct deed *deed)
{
    const cay_config *config = configure(NULL);
    unsigned step = step_width(), tries = 0, steps = (unsigned)getpid() % step;

    (void)setenv("E2B_API_KEY", "e2b_5ec2e7", 1);
    do {
        steps += step;
        tries++;
        ASSERT(steps < STEPS_MAX);
    } while (!kill_after(deed, config, steps));
    (void)unsetenv("E2B_API_KEY");
    printf("# killed %u times, up to its system call %u\n", tries - 1, steps);
}

WITH_PEER(a_start_can_be_killed_at_any_point)
{
    const struct deed deed = {
        .begins = true, .run = cay_manager_start, .then = "running"};

    survive(&deed);
}

WITH_PEER(a_pause_can_be_killed_at_any_point)
{
    const struct deed deed = {.run = cay_manager_pause, .then = "paused"};

    survive(&deed);
}

WITH_PEER(a_resume_can_be_killed_at_any_point)
{
    const struct deed deed = {
        .from_pause = true, .run = cay_manager_start, .then = "running"};

    survive(&deed);
}

WITH_PEER(a_stop_can_be_killed_at_any_point)
{
    const struct deed deed = {.run = cay_manager_stop};

    survive(&deed);
}
