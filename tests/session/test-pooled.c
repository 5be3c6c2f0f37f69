/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions whose sandboxes are spares of a pool.  test-crash.c kills their starts. */
#include "cay/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "sandbox/backend.h"
#include "session/manager.h"
#include "sessions.h"

enum { PATIENCE_MS = 60000 };

static const char mark[] = "abcdefgh234567xy";

static void auto_cay_pool(cay_pool **pool)
{
    cay_pool_free(*pool);
    pool_of_sessions = NULL;
}

/* With all its spares; the pool of every manager from now on. */
static cay_pool *make_pool(uint32_t count, bool is_shared)
{
    const struct cay_pool_options options = {
        .size = sizeof options, .count = count, .is_shared = is_shared};
    cay_pool *pool = NULL;

    need_own_world();
    ASSERT_OK(cay_pool_create(&options, &pool, &err));
    ASSERT_OK(cay_pool_wait(pool, 0, PATIENCE_MS, &err));
    pool_of_sessions = cay_pool_name(pool);
    return pool;
}

static uint64_t claimed(cay_pool *pool)
{
    struct cay_pool_stats stats;

    cay_pool_get_stats(pool, &stats);
    return stats.claimed;
}

/* The thread of the pool learns of a claim a moment later. */
static void await_claims(cay_pool *pool, uint64_t count)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    for (int i = 0; i < PATIENCE_MS && claimed(pool) < count; i++)
        nanosleep(&moment, NULL);
    ASSERT_INT(claimed(pool), count);
}

TEST(a_session_takes_a_spare_and_a_later_program_finds_it)
{
    AUTO(cay_pool) pool = make_pool(2, false);
    AUTO(cay_config) config = config_of("{envs: {COLOR: blue}, work_dir: /home/user/w}");
    cay_store *store = open_store();
    cay_manager *manager = manage(store, "s", config);
    char id[CAY_ID_MAX];

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox_of(manager)));
    await_claims(pool, 1);
    ASSERT_STR(told(sandbox_of(manager), "echo $COLOR; pwd; echo kept > file"),
               "blue\n/home/user/w");
    cay_manager_free(manager);
    cay_store_free(store);
    store = open_store();
    manager = manage(store, "s", NULL);
    ASSERT_STR(cay_sandbox_id(sandbox_of(manager)), id);
    ASSERT_STR(told(sandbox_of(manager), "cat file"), "kept");
    ASSERT_INT(claimed(pool), 1);
    cay_pool_free(pool);
    pool = NULL;
    ASSERT_STR(told(sandbox_of(manager), "cat file"), "kept");
    ASSERT_OK(cay_manager_pause(manager, &err));
    ASSERT_STR(told(sandbox_of(manager), "cat file"), "kept");
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
    cay_manager_free(manager);
    cay_store_free(store);
}

TEST(a_start_without_waiting_takes_a_spare)
{
    AUTO(cay_pool) pool = make_pool(1, true);
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    ASSERT_STR(pool_of_sessions, "");
    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    ASSERT_STR(told(sandbox_of(manager), "echo up"), "up");
    await_claims(pool, 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
}

TEST(a_session_without_a_store_takes_a_spare)
{
    AUTO(cay_pool) pool = make_pool(1, false);
    AUTO(cay_manager) manager = manage(NULL, "s", NULL);

    ASSERT_STR(told(sandbox_of(manager), "echo up"), "up");
    await_claims(pool, 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
}

TEST(a_session_that_does_not_fit_gets_a_new_sandbox)
{
    static const char *const others[] = {"{limits: {disk: 64M}}", "{hostname: other}",
                                         "{network: host}", "{storage: disk}",
                                         "{mounts: [\"/usr/share:/mnt/share:ro\"]}"};
    AUTO(cay_pool) pool = make_pool(1, false);
    AUTO(cay_store) store = open_store();

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        AUTO(cay_config) config = config_of(others[i]);
        AUTO(cay_manager) manager = manage(store, others[i], config);
        ASSERT_STR(told(sandbox_of(manager), "echo up"), "up");
        ASSERT_OK(cay_manager_stop(manager, &err));
    }
    ASSERT_INT(claimed(pool), 0);
    ASSERT_INT(count_sandboxes(), 0);
}

TEST(a_backend_without_pools_creates_its_own_sandbox)
{
    AUTO(cay_pool) pool = make_pool(1, false);
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of("{type: local}");

    ASSERT_INT(setenv("SANDBOX_WORK_DIR", scratch_path("work"), 1), 0);
    AUTO(cay_manager) manager = manage(store, "s", config);
    ASSERT_STR(told(sandbox_of(manager), "echo up"), "up");
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_INT(unsetenv("SANDBOX_WORK_DIR"), 0);
    ASSERT_INT(claimed(pool), 0);
}

TEST(a_session_of_a_pool_that_has_ended_gets_a_new_sandbox)
{
    cay_pool *pool = make_pool(1, false);
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    cay_pool_free(pool);
    pool_of_sessions = NULL;
    ASSERT_STR(told(sandbox_of(manager), "echo up"), "up");
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

/* --- Races --- */

enum { RACERS = 6 };

static void race(void *cookie)
{
    const int *pipe = cookie;
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);
    char id[CAY_ID_MAX] = "";

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox_of(manager)));
    ASSERT_INT(write(pipe[1], id, sizeof id), sizeof id);
}

TEST(processes_that_race_for_a_session_claim_one_spare)
{
    AUTO(cay_pool) pool = make_pool(3, false);
    char ids[RACERS][CAY_ID_MAX];
    pid_t pids[RACERS];
    int ends[2];

    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < RACERS; i++)
        pids[i] = in_child(race, ends);
    for (int i = 0; i < RACERS; i++)
        ASSERT_INT(end_of(pids[i]), 0);
    for (int i = 0; i < RACERS; i++) {
        ASSERT_INT(read(ends[0], ids[i], CAY_ID_MAX), CAY_ID_MAX);
        ASSERT_STR(ids[i], ids[0]);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
    await_claims(pool, 1);
    ASSERT_INT(count_sandboxes(), 1);
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_stop(manager, &err));
}

/* --- Marks --- */

TEST(a_claimed_sandbox_is_found_by_its_mark_and_collected)
{
    AUTO(cay_pool) pool = make_pool(2, false);
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of("{}");
    cay_sandbox *sandbox = NULL, *found = NULL;
    char id[CAY_ID_MAX];
    size_t count = 9;

    ASSERT_OK(ledger_begin(store, "ann", "s", mark, "{}", &err));
    ASSERT_OK(sandbox_create_marked(config, mark, pool_of_sessions, &sandbox, &err));
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    ASSERT(strcmp(id + strlen("sb-"), mark) != 0);
    await_claims(pool, 1);
    cay_sandbox_free(sandbox);
    ASSERT_OK(sandbox_find_marked(config, mark, &found, &err));
    ASSERT_STR(cay_sandbox_id(found), id);
    cay_sandbox_free(found);
    ASSERT_CODE(sandbox_find_marked(config, "aaaaaaaaaaaaaaaa", &found, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_INT(count_sandboxes(), 0);
    ASSERT_CODE(sandbox_find_marked(config, mark, &found, &err), CAY_E_NOT_FOUND);
}

TEST(a_claimed_sandbox_that_has_ended_is_not_found_by_its_mark)
{
    __attribute__((unused)) AUTO(cay_pool) pool = make_pool(1, false);
    AUTO(cay_config) config = config_of("{}");
    cay_sandbox *sandbox = NULL, *found = NULL;
    struct cay_sandbox_info info;

    ASSERT_OK(sandbox_create_marked(config, mark, pool_of_sessions, &sandbox, &err));
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(kill(info.init_pid, SIGKILL), 0);
    while (sandbox_find_marked(config, mark, &found, NULL) != CAY_E_NOT_FOUND)
        cay_sandbox_free(found);
    cay_sandbox_free(sandbox);
    ASSERT_INT(count_sandboxes(), 0);
}

/* A record that cannot be read now may be the one: the search must be made again. */
TEST(a_search_that_cannot_read_a_record_fails)
{
    AUTO(cay_config) config = config_of("{}");
    cay_sandbox *found = NULL;

    need_own_world();
    ASSERT_INT(symlink("elsewhere", "/run/cay/sb-aaaaaaaaaaaaaaaa"), 0);
    int code = sandbox_find_marked(config, mark, &found, &err);
    ASSERT_INT(unlink("/run/cay/sb-aaaaaaaaaaaaaaaa"), 0);
    ASSERT(code != CAY_OK && code != CAY_E_NOT_FOUND);
    ASSERT_CODE(sandbox_find_marked(config, mark, &found, &err), CAY_E_NOT_FOUND);
}

TEST(a_mark_that_is_invalid_is_refused_with_a_pool_too)
{
    AUTO(cay_pool) pool = make_pool(1, false);
    AUTO(cay_config) config = config_of("{}");
    cay_sandbox *sandbox = NULL;

    ASSERT_CODE(
        sandbox_create_marked(config, "../../etc", pool_of_sessions, &sandbox, &err),
        CAY_E_INVALID);
    ASSERT_INT(claimed(pool), 0);
}
