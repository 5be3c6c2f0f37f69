/* SPDX-License-Identifier: Apache-2.0 */

/* What starts that crashed have left. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "sandbox/backend.h"
#include "session/manager.h"

static void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

/* Whether nothing is left of it.  One whose backend cannot tell is left alone, once and
 * for all; one that cannot be reached now is tried again next time. */
static bool remove_marked(const struct begun *begun)
{
    AUTO(cay_config) config = NULL;
    cay_sandbox *sandbox = NULL;

    int code = cay_config_parse(begun->config, strlen(begun->config), begun->session_id,
                                NULL, &config, NULL);
    if (code)
        return false;
    code = sandbox_find_marked(config, begun->mark, &sandbox, NULL);
    if (code)
        return code == CAY_E_NOT_FOUND || code == CAY_E_UNSUPPORTED;
    code = cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    return code == CAY_OK;
}

struct sweep {
    cay_store *store;
    size_t count;
};

static void sweep_one(const struct begun *begun, void *cookie)
{
    struct sweep *sweep = cookie;

    if (remove_marked(begun) && ledger_abandon(sweep->store, begun->mark, NULL) == CAY_OK)
        sweep->count++;
}

void manager_sweep(cay_store *store, const char *user_id, const char *session_id)
{
    struct sweep sweep = {.store = store};

    (void)ledger_visit(store, user_id, session_id, sweep_one, &sweep, NULL);
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
