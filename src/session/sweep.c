/* SPDX-License-Identifier: Apache-2.0 */

/* What starts that crashed have left. */
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "sandbox/backend.h"
#include "session/manager.h"

static void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

/* Whether one that is not there will not be there later. */
static bool is_too_late(const struct begun *begun, const cay_config *config)
{
    const struct cay_backend *backend = cay_backend_find(cay_config_type(config));
    int64_t age = clock_since_1970_ms() - begun->begun_ms;

    return !backend || !backend->late_ms || age < 0 || (uint64_t)age >= backend->late_ms;
}

struct sweep {
    cay_store *store;
    size_t count;
    const cay_config *config; /* what this text was made of, and a key beside; or NULL */
    char *json;
};

/* Whether nothing is left of it.  One whose backend cannot tell is left alone, once and
 * for all; one that cannot be reached now is tried again next time. */
static bool remove_marked(const struct sweep *sweep, const struct begun *begun)
{
    const cay_config *config = sweep->config;
    AUTO(cay_config) restored = NULL;
    cay_sandbox *sandbox = NULL;

    if (!sweep->json || strcmp(sweep->json, begun->config) != 0) {
        if (cay_config_restore(begun->config, &restored, NULL) != CAY_OK)
            return false;
        config = restored;
    }
    int code = sandbox_find_marked(config, begun->mark, &sandbox, NULL);
    if (code)
        return code == CAY_E_UNSUPPORTED ||
               (code == CAY_E_NOT_FOUND && is_too_late(begun, config));
    code = cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    return code == CAY_OK;
}

static void sweep_one(const struct begun *begun, void *cookie)
{
    struct sweep *sweep = cookie;

    if (remove_marked(sweep, begun) &&
        ledger_abandon(sweep->store, begun->mark, NULL) == CAY_OK)
        sweep->count++;
}

void manager_sweep(const cay_manager *manager)
{
    struct sweep sweep = {.store = manager->store, .config = manager->config};

    if (!manager->store)
        return;
    if (manager->config && cay_config_json(manager->config, &sweep.json, NULL) != CAY_OK)
        sweep.json = NULL;
    (void)ledger_visit(manager->store, manager->user_id, manager->session_id, sweep_one,
                       &sweep, NULL);
    cay_free(sweep.json);
}

/* Unless it is under way at this moment. */
static void sweep_crashed(const struct begun *begun, void *cookie)
{
    struct sweep *sweep = cookie;
    AUTO_LOCK lock = NULL;

    if (cay_session_lock_take(sweep->store, begun->user_id, begun->session_id, 0, &lock,
                              NULL) != CAY_OK)
        return;
    if (ledger_has(sweep->store, begun->mark, NULL) == 1)
        sweep_one(begun, sweep);
}

int cay_store_collect(cay_store *store, size_t *ret_count, struct cay_error *err)
{
    struct sweep sweep = {.store = store};
    int code = ledger_visit(store, NULL, NULL, sweep_crashed, &sweep, err);

    if (!code)
        *ret_count = sweep.count;
    return code;
}
