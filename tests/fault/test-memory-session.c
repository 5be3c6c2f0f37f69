/* SPDX-License-Identifier: Apache-2.0 */

/* No memory for sessions: each call fails as a whole, and no sandbox is lost. */
#include "../session/toys.h"
#include "failing.h"

static cay_config *config;
static const char *path;

static int use_store(cay_store *store)
{
    struct cay_session session = session_of("ann", "data"), *found = NULL;
    cay_session_lock *lock = NULL;
    size_t count;

    session.data = "{\"a\": 1}";
    int code = cay_store_put(store, &session, &err);
    if (!code)
        code = cay_store_get(store, "ann", "data", &found, &err);
    cay_free(found);
    found = NULL;
    if (!code)
        code = cay_store_list(store, NULL, &found, &count, &err);
    cay_free(found);
    if (!code)
        code = cay_session_lock_take(store, "ann", "data", 0, &lock, &err);
    cay_session_lock_free(lock);
    return code;
}

static int use_manager(cay_store *store)
{
    const struct cay_manager_options options = {.size = sizeof options,
                                                .store = store,
                                                .user_id = "ann",
                                                .session_id = "s",
                                                .config = config};
    cay_manager *manager = NULL, *other = NULL;
    size_t count;

    int code = cay_manager_new(&options, &manager, &err);
    if (!code)
        code = cay_manager_start(manager, &err);
    if (!code)
        code = cay_manager_pause(manager, &err);
    if (!code)
        code = cay_manager_new(&options, &other, &err);
    if (!code)
        code = cay_manager_start(other, &err);
    if (!code)
        code = cay_manager_run_done(other, &err);
    if (!code)
        code = cay_manager_stop(other, &err);
    if (!code)
        code = cay_store_collect(store, &count, &err);
    cay_manager_free(other);
    cay_manager_free(manager);
    return code;
}

static int use_both(void)
{
    cay_store *store = NULL;
    int code = cay_store_open(path, &store, &err);

    if (!code)
        code = use_store(store);
    if (!code)
        code = use_manager(store);
    cay_store_free(store);
    return code;
}

/* What the session has is what there is. */
static void assert_nothing_lost(void)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", config);
    struct cay_session *found = NULL;
    const char *id = "";

    if (cay_store_get(store, "ann", "s", &found, NULL) == CAY_OK)
        id = found->sandbox_id;
    ASSERT_INT(living(), *id ? 1 : 0);
    cay_free(found);
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_INT(living(), 0);
}

TEST(sessions_survive_any_failing_allocation)
{
    unsigned nth = 0;
    struct failing_tally tally;

    ASSERT_OK(cay_backend_register(&toy_backend, &err));
    toys_reset();
    path = scratch_path("sessions.db");
    config = config_of("{type: toy, api_key: '${env.TOY_KEY}'}");
    ASSERT_OK(use_both()); /* what is loaded once is loaded */
    do {
        toys_reset();
        memset(&err, 0, sizeof err);
        failing_start(FAILING_HERE, ++nth);
        int code = use_both();
        tally = failing_stop();
        if (code)
            ASSERT_INT(code, CAY_E_NO_MEMORY);
        ASSERT_INT(err.code, code);
        ASSERT(!code || tally.failed);
        if (failing_unfreed())
            harness_fail(__FILE__, __LINE__, "%zu blocks leak when allocation %u fails",
                         failing_unfreed(), nth);
        assert_nothing_lost();
    } while (tally.failed);
    cay_config_free(config);
    printf("# %u allocations\n", tally.here);
}
