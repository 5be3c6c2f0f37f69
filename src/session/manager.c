/* SPDX-License-Identifier: Apache-2.0 */
#include "session/manager.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"

static void auto_cay_manager(cay_manager **manager)
{
    cay_manager_free(*manager);
}

static void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

static void auto_cay_session(struct cay_session **session)
{
    cay_free(*session);
}
#define AUTO_SESSION __attribute__((cleanup(auto_cay_session))) struct cay_session

enum { DEFAULTS_MAX = 256 };

/* --- Configuration and assets --- */

int cay_manager_new(const struct cay_manager_options *options, cay_manager **ret_manager,
                    struct cay_error *err)
{
    static const char op[] = "manager.new";
    struct cay_manager_options known;

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code && known.store)
        code = store_check_ids(op, known.user_id, known.session_id, err);
    if (code)
        return code;
    AUTO(cay_manager) manager = calloc(1, sizeof *manager);
    if (!manager)
        return cay_fail_memory(err, op);
    manager->store = known.store;
    manager->config = known.config;
    manager->away = (struct away)AWAY_NONE;
    manager->user_id = strdup(known.user_id ? known.user_id : "");
    manager->session_id = strdup(known.session_id ? known.session_id : "");
    manager->pool = known.pool ? strdup(known.pool) : NULL;
    if (!manager->user_id || !manager->session_id || !manager->pool != !known.pool)
        return cay_fail_memory(err, op);
    *ret_manager = TAKE_PTR(manager);
    return CAY_OK;
}

void manager_drop(cay_manager *manager)
{
    cay_sandbox_free(manager->sandbox);
    manager->sandbox = NULL;
}

void cay_manager_free(cay_manager *manager)
{
    if (!manager)
        return;
    if (manager->away.pid > 0)
        (void)!cay_manager_wait(manager, NULL);
    manager_drop(manager);
    cay_config_free(manager->own_config);
    for (size_t i = 0; i < manager->asset_count; i++) {
        free(manager->assets[i].local);
        free(manager->assets[i].inside);
    }
    free(manager->assets);
    free(manager->user_id);
    free(manager->session_id);
    free(manager->pool);
    free(manager);
}

/* *ret_lock is NULL without a store. */
static int lock_session(cay_manager *manager, uint64_t timeout_ms,
                        cay_session_lock **ret_lock, struct cay_error *err)
{
    *ret_lock = NULL;
    return manager->store
               ? cay_session_lock_take(manager->store, manager->user_id,
                                       manager->session_id, timeout_ms, ret_lock, err)
               : CAY_OK;
}

int manager_read(cay_manager *manager, struct cay_session **ret_stored,
                 struct cay_error *err)
{
    struct cay_error own;

    *ret_stored = NULL;
    if (!manager->store)
        return CAY_OK;
    int code = cay_store_get(manager->store, manager->user_id, manager->session_id,
                             ret_stored, &own);
    return code && code != CAY_E_NOT_FOUND ? manager_report(&own, err) : CAY_OK;
}

/* The backend is not usable in this program; the sandbox may still exist. */
static int fail_backend(const struct cay_session *stored, const char *reason,
                        struct cay_error *err)
{
    char message[sizeof err->message];

    snprintf(message, sizeof message, "the session's backend cannot be used here: %.160s",
             reason);
    return cay_fail(
        err, CAY_E_UNAVAILABLE, 0, "manager.backend", stored->backend, message,
        "use the program that registers it; its sandbox %.64s is left unchanged",
        stored->sandbox_id);
}

/* Its configuration, as far as the values are known here. */
static int restore(const struct cay_session *stored, cay_config **ret_config,
                   struct cay_error *err)
{
    AUTO(cay_config) config = NULL;
    const char *backend = *stored->backend ? stored->backend : "native";
    char defaults[DEFAULTS_MAX];
    struct cay_error own;

    if (!*stored->config && !cay_backend_find(backend))
        return fail_backend(stored, "no backend of this name", err);
    snprintf(defaults, sizeof defaults, "{type: %s}", backend);
    int code =
        cay_config_restore(*stored->config ? stored->config : defaults, &config, &own);
    if (code && (!*stored->sandbox_id || code == CAY_E_NO_MEMORY))
        return manager_report(&own, err);
    if (code)
        return fail_backend(stored, own.message, err);
    if (*stored->sandbox_id && strcmp(cay_config_type(config), backend) != 0)
        return fail_backend(stored, "the stored configuration is for another backend",
                            err);
    *ret_config = TAKE_PTR(config);
    return CAY_OK;
}

int manager_configure(cay_manager *manager, const struct cay_session *stored,
                      struct cay_error *err)
{
    static const struct cay_session none = {
        .backend = "", .sandbox_id = "", .config = ""};

    if (manager->config)
        return CAY_OK;
    int code = restore(stored ? stored : &none, &manager->own_config, err);
    if (!code)
        manager->config = manager->own_config;
    return code;
}

const char *manager_configured_id(const cay_manager *manager)
{
    const char *id = manager->config && manager->config != manager->own_config
                         ? cay_config_text(manager->config, "sandbox_id")
                         : NULL;

    return id && *id ? id : NULL;
}

int manager_complete(cay_manager *manager, struct cay_error *err)
{
    AUTO_FREE char *text = NULL;
    cay_config *config = NULL;

    if (manager->config != manager->own_config)
        return CAY_OK;
    int code = cay_config_json(manager->own_config, &text, err);
    if (!code)
        code =
            cay_config_parse(text, strlen(text), manager->session_id, NULL, &config, err);
    if (code)
        return code;
    cay_config_free(manager->own_config);
    manager->config = manager->own_config = config;
    return CAY_OK;
}

int manager_connect(const cay_manager *manager, const struct cay_session *stored,
                    cay_sandbox **ret_sandbox, struct cay_error *err)
{
    AUTO(cay_config) restored = NULL;
    const cay_config *config = manager->config;

    if (strcmp(stored->backend, "native") == 0)
        return cay_sandbox_open(stored->sandbox_id, ret_sandbox, err);
    if (!config || strcmp(cay_config_type(config), stored->backend) != 0) {
        int code = restore(stored, &restored, err);
        if (code)
            return code;
        config = restored;
    }
    return cay_backend_connect(config, stored->sandbox_id, ret_sandbox, err);
}

/* --- Assets --- */

static int upload(cay_sandbox *sandbox, const char *local, const char *inside,
                  struct cay_error *err)
{
    struct cay_transfer transfer;
    struct stat st;

    if (stat(local, &st) == 0 && S_ISDIR(st.st_mode))
        return cay_directory_upload(sandbox, NULL, local, inside, &transfer, err);
    return cay_file_upload(sandbox, NULL, local, inside, &transfer, err);
}

int manager_upload(const cay_manager *manager, cay_sandbox *sandbox,
                   struct cay_error *err)
{
    int code = CAY_OK;

    for (size_t i = 0; !code && i < manager->asset_count; i++)
        code = upload(sandbox, manager->assets[i].local, manager->assets[i].inside, err);
    return code;
}

int manager_supply(cay_manager *manager, struct cay_error *err)
{
    int code = manager_upload(manager, manager->sandbox, err);

    manager->lacks_assets = code != CAY_OK;
    return code;
}

int cay_manager_add_asset(cay_manager *manager, const char *local, const char *inside,
                          struct cay_error *err)
{
    static const char op[] = "manager.add_asset";

    if (!local || !*local || !inside || !*inside)
        return cay_fail(err, CAY_E_INVALID, 0, op, local, "a path is missing",
                        "pass a file or directory of this machine, and its path inside");
    if (cay_manager_is_running(manager)) {
        int code = upload(manager->sandbox, local, inside, err);
        if (code)
            return code;
    }
    struct asset *more =
        reallocarray(manager->assets, manager->asset_count + 1, sizeof *manager->assets);
    if (!more)
        return cay_fail_memory(err, op);
    manager->assets = more;
    struct asset asset = {strdup(local), strdup(inside)};
    if (!asset.local || !asset.inside) {
        free(asset.local);
        free(asset.inside);
        return cay_fail_memory(err, op);
    }
    more[manager->asset_count++] = asset;
    return CAY_OK;
}

/* --- Errands --- */

static int pause_locked(cay_manager *manager, struct cay_error *err);

/* With the lock held.  A backend without pause: do nothing. */
static int finish_pause(cay_manager *manager, const struct away_outcome *outcome,
                        struct cay_error *err)
{
    int code = outcome->error.code;

    if (code && code != CAY_E_UNSUPPORTED)
        return manager_report(&outcome->error, err);
    return manager->store && !code
               ? ledger_set_state(manager->store, manager->user_id, manager->session_id,
                                  outcome->id, CAY_STATE_PAUSED, err)
               : CAY_OK;
}

int cay_manager_wait(cay_manager *manager, struct cay_error *err)
{
    AUTO_LOCK lock = NULL;
    struct away_outcome outcome;
    bool is_start = manager->pending == AWAY_START, was_sent = manager->away.pid > 0;

    if (manager->pending == AWAY_NOTHING)
        return CAY_OK;
    if (was_sent)
        away_wait(&manager->away, is_start ? "manager.start" : "manager.pause", &outcome);
    manager->pending = AWAY_NOTHING;
    int code = lock_session(manager, MANAGER_LOCK_MS, &lock, err);
    if (code)
        return code;
    if (is_start)
        return was_sent ? manager_finish_start(manager, &outcome, err)
                        : manager_start(manager, err);
    return was_sent ? finish_pause(manager, &outcome, err) : pause_locked(manager, err);
}

/* --- Starting --- */

static bool runs(cay_manager *manager)
{
    enum cay_state state;

    return manager->sandbox &&
           cay_sandbox_state(manager->sandbox, &state, NULL) == CAY_OK &&
           state == CAY_STATE_RUNNING;
}

bool cay_manager_is_running(cay_manager *manager)
{
    if (manager->pending != AWAY_NOTHING && manager->away.pid > 0 &&
        away_has_ended(&manager->away))
        (void)!cay_manager_wait(manager, NULL);
    return runs(manager);
}

int cay_manager_start(cay_manager *manager, struct cay_error *err)
{
    AUTO_LOCK lock = NULL;

    (void)!cay_manager_wait(manager, NULL); /* if that has failed it is tried again */
    if (runs(manager))
        return manager->lacks_assets ? manager_supply(manager, err) : CAY_OK;
    int code = lock_session(manager, MANAGER_LOCK_MS, &lock, err);
    return code ? code : manager_start(manager, err);
}

int cay_manager_sandbox(cay_manager *manager, cay_sandbox **ret_sandbox,
                        struct cay_error *err)
{
    int code = manager->pending == AWAY_START ? cay_manager_wait(manager, err) : CAY_OK;

    if (!code)
        code = cay_manager_start(manager, err);
    if (!code)
        *ret_sandbox = manager->sandbox;
    return code;
}

int cay_manager_start_no_wait(cay_manager *manager, struct cay_error *err)
{
    cay_session_lock *lock = NULL;
    struct cay_error own;

    if (manager->pending == AWAY_START)
        return CAY_OK;
    (void)!cay_manager_wait(manager, NULL);
    if (runs(manager)) {
        if (manager->lacks_assets)
            manager->pending = AWAY_START;
        return CAY_OK;
    }
    int code = lock_session(manager, 0, &lock, &own);
    if (code == CAY_E_TIMEOUT) { /* another process is starting it: use its sandbox */
        manager->pending = AWAY_START;
        return CAY_OK;
    }
    return code ? manager_report(&own, err) : manager_send_start(manager, lock, err);
}

/* --- Pausing and stopping --- */

static int forget(cay_manager *manager, const char *id, struct cay_error *err)
{
    return manager->store
               ? ledger_set_state(manager->store, manager->user_id, manager->session_id,
                                  id, (enum cay_state)0, err)
               : CAY_OK;
}

/* With the lock held: opens the session's sandbox, which may be paused.  CAY_E_NOT_FOUND:
 * there is none, and its record was removed. */
static int find(cay_manager *manager, const struct cay_session *stored, const char *op,
                struct cay_error *err)
{
    bool is_recorded = stored && *stored->sandbox_id;
    struct cay_session wanted = {.config = ""};

    if (manager->sandbox &&
        (!is_recorded ||
         strcmp(stored->sandbox_id, cay_sandbox_id(manager->sandbox)) == 0))
        return CAY_OK;
    wanted.sandbox_id = manager_configured_id(manager);
    if (is_recorded)
        wanted = *stored;
    else if (wanted.sandbox_id)
        wanted.backend = cay_config_type(manager->config);
    else
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, manager->session_id,
                        "the session has no sandbox", "start the session first");
    manager_drop(manager);
    int code = manager_connect(manager, &wanted, &manager->sandbox, err);
    if (code == CAY_E_NOT_FOUND)
        (void)forget(manager, wanted.sandbox_id, NULL);
    return code;
}

static int pause_sandbox(cay_sandbox *sandbox, struct cay_error *err)
{
    enum cay_state state;
    int code = cay_sandbox_state(sandbox, &state, err);

    return code || state == CAY_STATE_PAUSED ? code : cay_sandbox_pause(sandbox, err);
}

static int pause_locked(cay_manager *manager, struct cay_error *err)
{
    AUTO_SESSION *stored = NULL;
    struct away_outcome outcome;
    int code = manager_read(manager, &stored, err);

    if (!code)
        code = find(manager, stored, "manager.pause", err);
    if (code)
        return code;
    memset(&outcome, 0, sizeof outcome);
    cay_copy_text(outcome.id, sizeof outcome.id, cay_sandbox_id(manager->sandbox));
    (void)!pause_sandbox(manager->sandbox, &outcome.error);
    return finish_pause(manager, &outcome, err);
}

int cay_manager_pause(cay_manager *manager, struct cay_error *err)
{
    AUTO_LOCK lock = NULL;
    int code = cay_manager_wait(manager, err);

    if (!code)
        code = lock_session(manager, MANAGER_LOCK_MS, &lock, err);
    return code ? code : pause_locked(manager, err);
}

struct pause {
    const cay_manager *manager;
    const struct cay_session *stored; /* or NULL */
};

static void pause_away(void *cookie, struct away_outcome *ret_outcome)
{
    const struct pause *pause = cookie;
    const cay_sandbox *sandbox = pause->manager->sandbox;
    const struct cay_session wanted = {
        .backend = cay_sandbox_backend(sandbox)->name,
        .sandbox_id = cay_sandbox_id(sandbox),
        .config = pause->stored ? pause->stored->config : "",
    };
    cay_sandbox *own = NULL;

    cay_copy_text(ret_outcome->id, sizeof ret_outcome->id, wanted.sandbox_id);
    if (manager_connect(pause->manager, &wanted, &own, &ret_outcome->error) == CAY_OK)
        (void)!pause_sandbox(own, &ret_outcome->error);
}

int cay_manager_pause_no_wait(cay_manager *manager, struct cay_error *err)
{
    static const char op[] = "manager.pause";
    AUTO_SESSION *stored = NULL;
    cay_session_lock *lock = NULL;
    struct cay_error own;

    int code = cay_manager_wait(manager, err);
    if (code)
        return code;
    code = lock_session(manager, 0, &lock, &own);
    if (code == CAY_E_TIMEOUT) {
        manager->pending = AWAY_PAUSE;
        return CAY_OK;
    }
    if (code)
        return manager_report(&own, err);
    code = manager_read(manager, &stored, err);
    if (!code)
        code = find(manager, stored, op, err);
    struct pause pause = {manager, stored};
    if (!code)
        code = away_start(op, pause_away, &pause, &manager->away, err);
    if (code) {
        cay_session_lock_free(lock);
        return code;
    }
    session_lock_leave_to_child(lock);
    manager->pending = AWAY_PAUSE;
    return CAY_OK;
}

int cay_manager_stop(cay_manager *manager, struct cay_error *err)
{
    AUTO_LOCK lock = NULL;
    AUTO_SESSION *stored = NULL;
    struct cay_error own;

    (void)!cay_manager_wait(manager, NULL);
    int code = lock_session(manager, MANAGER_LOCK_MS, &lock, err);
    if (!code)
        code = manager_read(manager, &stored, err);
    if (code)
        return code;
    manager_sweep(manager);
    code = find(manager, stored, "manager.stop", &own);
    if (code == CAY_E_NOT_FOUND && stored && *stored->sandbox_id)
        return CAY_OK; /* a sandbox that is already gone counts as removed */
    if (!code)
        code = cay_sandbox_remove(manager->sandbox, &own);
    if (code)
        return manager_report(&own, err);
    code = forget(manager, cay_sandbox_id(manager->sandbox), err);
    manager_drop(manager);
    return code;
}

int cay_manager_run_done(cay_manager *manager, struct cay_error *err)
{
    AUTO_SESSION *stored = NULL;
    int code = cay_manager_wait(manager, err);

    if (!code)
        code = manager_read(manager, &stored, err);
    if (!code)
        code = manager_configure(manager, stored, err);
    if (code || !manager->sandbox)
        return code;
    const char *after = cay_config_text(manager->config, "status_after_run");
    if (after && strcmp(after, "stop") == 0)
        return cay_manager_stop(manager, err);
    return after && strcmp(after, "pause") == 0 ? cay_manager_pause(manager, err)
                                                : CAY_OK;
}
