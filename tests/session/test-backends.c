/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions of backends that cannot do everything, or not always. */
#include "session/ledger.h"
#include "sessions.h"

/* --- A backend that is a few numbers --- */

static struct toy {
    char id[32];
    bool lives;
    enum cay_state state;
} toys[16];
static int toy_count;

static struct {
    int create, connect, pause, remove; /* what they are to fail with; 0: they do not */
    int created, connected, paused;     /* how often they were called */
} toy;

static int toy_fail(int code, struct cay_error *error)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = code;
        snprintf(error->op, sizeof error->op, "toy");
        snprintf(error->message, sizeof error->message, "it was told to fail");
        snprintf(error->hint, sizeof error->hint, "tell it not to");
    }
    return code;
}

static int toy_create(void *data, const cay_config *config, void **ret_cookie,
                      struct cay_error *error)
{
    (void)data;
    toy.created++;
    if (toy.create)
        return toy_fail(toy.create, error);
    struct toy *made = &toys[toy_count++];
    snprintf(made->id, sizeof made->id, "toy-%d", toy_count);
    made->lives = true;
    made->state = CAY_STATE_RUNNING;
    const char *key = cay_config_text(config, "api_key");
    if (!key || strcmp(key, "very secret") != 0)
        return toy_fail(CAY_E_DENIED, error);
    *ret_cookie = made;
    return CAY_OK;
}

static int toy_connect(void *data, const cay_config *config, const char *id,
                       void **ret_cookie, struct cay_error *error)
{
    (void)data;
    (void)config;
    toy.connected++;
    if (toy.connect)
        return toy_fail(toy.connect, error);
    for (int i = 0; i < toy_count; i++)
        if (toys[i].lives && strcmp(toys[i].id, id) == 0) {
            toys[i].state = CAY_STATE_RUNNING;
            *ret_cookie = &toys[i];
            return CAY_OK;
        }
    return toy_fail(CAY_E_NOT_FOUND, error);
}

static void toy_free(void *cookie)
{
    (void)cookie;
}

static const char *toy_id(const void *cookie)
{
    return ((const struct toy *)cookie)->id;
}

static int toy_state(void *cookie, enum cay_state *ret_state, struct cay_error *error)
{
    const struct toy *one = cookie;

    *ret_state = one->state;
    return one->lives ? CAY_OK : toy_fail(CAY_E_NOT_FOUND, error);
}

static int toy_pause(void *cookie, struct cay_error *error)
{
    toy.paused++;
    if (toy.pause)
        return toy_fail(toy.pause, error);
    ((struct toy *)cookie)->state = CAY_STATE_PAUSED;
    return CAY_OK;
}

static int toy_resume(void *cookie, struct cay_error *error)
{
    (void)error;
    ((struct toy *)cookie)->state = CAY_STATE_RUNNING;
    return CAY_OK;
}

static int toy_kill(void *cookie, struct cay_error *error)
{
    if (toy.remove)
        return toy_fail(toy.remove, error);
    ((struct toy *)cookie)->lives = false;
    return CAY_OK;
}

static int toy_exec(void *cookie, const struct cay_exec_options *options,
                    struct cay_exec_result *ret_result, struct cay_error *error)
{
    (void)cookie, (void)options, (void)ret_result;
    return toy_fail(CAY_E_UNSUPPORTED, error);
}

static int toy_files(void *cookie, const char *user, cay_files **ret_files,
                     struct cay_error *error)
{
    (void)cookie, (void)user, (void)ret_files;
    return toy_fail(CAY_E_UNSUPPORTED, error);
}

static const struct cay_field fields[] = {
    {.name = "api_key", .type = CAY_FIELD_SECRET, .about = "its key"},
    {.name = "colour", .type = CAY_FIELD_TEXT, .about = "its colour"},
};

static const struct cay_backend toy_backend = {
    .size = sizeof toy_backend,
    .name = "toy",
    .about = "a few numbers",
    .fields = fields,
    .field_count = 2,
    .create = toy_create,
    .connect = toy_connect,
    .free = toy_free,
    .id = toy_id,
    .state = toy_state,
    .pause = toy_pause,
    .resume = toy_resume,
    .kill = toy_kill,
    .exec = toy_exec,
    .open_files = toy_files,
};

/* The same without a pause. */
static struct cay_backend restless_backend;

static size_t living(void)
{
    size_t count = 0;

    for (int i = 0; i < toy_count; i++)
        count += toys[i].lives;
    return count;
}

static cay_config *toy_config(const char *more)
{
    static bool is_registered;
    char text[256];

    if (!is_registered) {
        restless_backend = toy_backend;
        restless_backend.name = "restless";
        restless_backend.pause = NULL;
        ASSERT_OK(cay_backend_register(&toy_backend, &err));
        ASSERT_OK(cay_backend_register(&restless_backend, &err));
        is_registered = true;
    }
    memset(&toy, 0, sizeof toy);
    memset(toys, 0, sizeof toys);
    toy_count = 0;
    setenv("TOY_KEY", "very secret", 1);
    snprintf(text, sizeof text, "{type: toy, api_key: '${env.TOY_KEY}'%s}", more);
    return config_of(text);
}

/* --- What becomes of their sessions --- */

TEST(keys_are_stored_as_references)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config(", colour: red");
    AUTO(cay_manager) manager = manage(store, "s", config);

    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_HAS(get_session(store, "ann", "s")->config, "${env.TOY_KEY}");
    ASSERT(!strstr(get_session(store, "ann", "s")->config, "very secret"));
    cay_store_free(TAKE_PTR(store));
    ASSERT(!get_file("sessions.db-wal") || !strstr(get_file("sessions.db-wal"), "very"));
    store = open_store();
    AUTO(cay_manager) other = manage(store, "s", NULL); /* by the stored reference */
    ASSERT_STR(cay_sandbox_id(sandbox_of(other)), "toy-1");
    ASSERT_OK(cay_manager_stop(other, &err));
    ASSERT_INT(living(), 0);
    ASSERT_OK(cay_manager_start(other, &err));
    ASSERT_OK(cay_manager_stop(other, &err));
    unsetenv("TOY_KEY");
    AUTO(cay_manager) keyless = manage(store, "s", NULL);
    ASSERT_CODE(cay_manager_start(keyless, &err), CAY_E_INVALID);
    ASSERT_INT(living(), 0);
}

TEST(what_cannot_be_reached_now_is_not_replaced)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_manager) manager = manage(store, "s", config);

    ASSERT_OK(cay_manager_start(manager, &err));
    AUTO(cay_manager) other = manage(store, "s", config);
    toy.connect = CAY_E_UNAVAILABLE;
    ASSERT_CODE(cay_manager_start(other, &err), CAY_E_UNAVAILABLE);
    ASSERT_CODE(cay_manager_pause(other, &err), CAY_E_UNAVAILABLE);
    ASSERT_CODE(cay_manager_stop(other, &err), CAY_E_UNAVAILABLE);
    ASSERT_INT(toy.created, 1);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, "toy-1");
    toy.connect = 0;
    ASSERT_OK(cay_manager_start(other, &err));
    ASSERT_INT(living(), 1);
    toy.remove = CAY_E_TIMEOUT;
    ASSERT_CODE(cay_manager_stop(other, &err), CAY_E_TIMEOUT);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, "toy-1");
    toy.remove = 0;
    ASSERT_OK(cay_manager_stop(other, &err));
    ASSERT_INT(living(), 0);
}

TEST(a_creation_that_fails_leaves_no_session)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_manager) manager = manage(store, "s", config);
    struct cay_session *found = NULL;
    size_t count = 9;

    toy.create = CAY_E_LIMIT;
    ASSERT_CODE(cay_manager_start(manager, &err), CAY_E_LIMIT);
    ASSERT_CODE(cay_store_get(store, "ann", "s", &found, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 0);
    toy.create = 0;
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_OK(cay_manager_stop(manager, &err));
}

TEST(what_cannot_be_paused_goes_on)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_config) other = config_of("{type: restless, api_key: '${env.TOY_KEY}'}");
    AUTO(cay_manager) restless = manage(store, "restless", other);
    AUTO(cay_manager) refusing = manage(store, "refusing", config);

    ASSERT_OK(cay_manager_start(restless, &err));
    ASSERT_OK(cay_manager_pause(restless, &err));
    ASSERT(cay_manager_is_running(restless));
    ASSERT_INT(get_session(store, "ann", "restless")->state, CAY_STATE_RUNNING);
    ASSERT_OK(cay_manager_run_done(restless, &err));
    ASSERT_INT(living(), 1);
    ASSERT_OK(cay_manager_start(refusing, &err));
    toy.pause = CAY_E_TIMEOUT; /* but it could have been */
    ASSERT_CODE(cay_manager_pause(refusing, &err), CAY_E_TIMEOUT);
    ASSERT_INT(get_session(store, "ann", "refusing")->state, CAY_STATE_RUNNING);
    ASSERT_OK(cay_manager_pause_no_wait(refusing, &err));
    ASSERT_CODE(cay_manager_wait(refusing, &err), CAY_E_TIMEOUT);
    ASSERT_OK(cay_manager_wait(refusing, &err)); /* told once */
    ASSERT_OK(cay_manager_stop(refusing, &err));
    ASSERT_OK(cay_manager_stop(restless, &err));
}

TEST(a_session_stays_with_its_backend)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_config) other = config_of("{type: restless, api_key: '${env.TOY_KEY}'}");
    AUTO(cay_manager) manager = manage(store, "s", config);
    AUTO(cay_manager) changed = manage(store, "s", other);

    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_CODE(cay_manager_start(changed, &err), CAY_E_EXISTS);
    ASSERT_HAS(err.hint, "toy-1 (toy)");
    toys[0].lives = false; /* of one that is gone nothing can be lost */
    ASSERT_OK(cay_manager_start(changed, &err));
    ASSERT_STR(get_session(store, "ann", "s")->backend, "restless");
    ASSERT_OK(cay_manager_stop(changed, &err));
    ASSERT_INT(living(), 0);
}

TEST(the_callers_own_data_stay)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_manager) manager = manage(store, "s", config);
    struct cay_session mine = session_of("ann", "s");

    mine.data = "{\"mine\": 1}";
    ASSERT_OK(cay_store_put(store, &mine, &err));
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_OK(cay_manager_pause(manager, &err));
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_STR(get_session(store, "ann", "s")->data, "{\"mine\": 1}");
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_STR(get_session(store, "ann", "s")->data, "{\"mine\": 1}");
    ASSERT_INT(get_session(store, "ann", "s")->revision, 5);
}

TEST(a_crashed_start_of_a_backend_without_marks_is_forgotten)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_manager) manager = manage(store, "s", config);
    size_t count = 9;

    ASSERT_OK(ledger_begin(store, "ann", "s", "abcdefgh234567xy",
                           "{\"type\": \"toy\", \"api_key\": \"${env.TOY_KEY}\"}", &err));
    ASSERT_OK(ledger_begin(store, "ann", "t", "abcdefgh234567xz",
                           "{\"type\": \"nonsense\"}", &err));
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 0); /* the other cannot be understood now, and is kept */
    ASSERT_INT(ledger_has(store, "abcdefgh234567xy", &err), 0);
    ASSERT_INT(ledger_has(store, "abcdefgh234567xz", &err), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
}

TEST(a_session_whose_record_was_removed_keeps_its_handle)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_manager) manager = manage(store, "s", config);
    cay_sandbox *sandbox = sandbox_of(manager);

    ASSERT_OK(cay_store_remove(store, "ann", "s", &err));
    ASSERT_OK(cay_manager_pause(manager, &err));
    ASSERT(sandbox_of(manager) == sandbox);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, "toy-1"); /* and comes back */
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_INT(living(), 0);
}
