/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions of backends that cannot do everything, or not always. */
#include "session/store.h"
#include "toys.h"

/* The same without a pause; and with marks, of which it says how late they may come. */
static struct cay_backend restless_backend, prompt_backend, late_backend;

static int toy_create_marked(void *data, const cay_config *config, const char *mark,
                             void **ret_cookie, struct cay_error *error)
{
    (void)mark;
    return toy_create(data, config, ret_cookie, error);
}

/* It remembers no marks. */
static int toy_find_marked(void *data, const cay_config *config, const char *mark,
                           void **ret_cookie, struct cay_error *error)
{
    (void)data, (void)config, (void)mark, (void)ret_cookie;
    return toy_fail(CAY_E_NOT_FOUND, error);
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
        prompt_backend = toy_backend;
        prompt_backend.name = "prompt";
        prompt_backend.create_marked = toy_create_marked;
        prompt_backend.find_marked = toy_find_marked;
        prompt_backend.late_ms = 1;
        ASSERT_OK(cay_backend_register(&prompt_backend, &err));
        late_backend = prompt_backend;
        late_backend.name = "late";
        late_backend.late_ms = 3600000;
        ASSERT_OK(cay_backend_register(&late_backend, &err));
        is_registered = true;
    }
    toys_reset();
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

TEST(what_may_still_come_is_looked_for_again)
{
    AUTO(cay_store) store = open_store();
    const struct timespec moment = {.tv_nsec = 5000000};
    size_t count = 9;

    cay_config_free(toy_config("")); /* which registers them */
    ASSERT_OK(ledger_begin(store, "ann", "a", "abcdefgh234567xy", "{type: late}", &err));
    ASSERT_OK(
        ledger_begin(store, "ann", "b", "bbcdefgh234567xy", "{type: prompt}", &err));
    nanosleep(&moment, NULL);
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_INT(ledger_has(store, "abcdefgh234567xy", &err), 1);
    ASSERT_INT(ledger_has(store, "bbcdefgh234567xy", &err), 0);
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 0);
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

TEST(a_configured_sandbox_comes_first_and_a_stored_wish_does_not_stay)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_config)
    named = config_of("{type: toy, api_key: '${env.TOY_KEY}', sandbox_id: toy-2}");
    AUTO(cay_manager) manager = manage(store, "s", config);
    AUTO(cay_manager) maker = manage(store, "other", config);
    AUTO(cay_manager) chooser = manage(store, "s", named);
    AUTO(cay_manager) plain = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_OK(cay_manager_start(maker, &err));
    ASSERT_STR(cay_sandbox_id(sandbox_of(chooser)), "toy-2");
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, "toy-2");
    ASSERT_INT(living(), 2);
    ASSERT_STR(cay_sandbox_id(sandbox_of(plain)), "toy-2");
    toys[1].lives = false;
    ASSERT_CODE(cay_manager_start(chooser, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(cay_sandbox_id(sandbox_of(plain)), "toy-3");
    ASSERT_OK(cay_manager_stop(plain, &err));
    ASSERT_CODE(cay_manager_pause(plain, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(cay_sandbox_id(sandbox_of(plain)), "toy-4");
    ASSERT_CODE(cay_manager_start(chooser, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, "toy-4");
}

TEST(values_that_are_not_known_here_are_needed_for_a_new_one_only)
{
    AUTO(cay_store) store = open_store();
    setenv("TOY_MOOD", "calm", 1);
    AUTO(cay_config) config = toy_config(", envs: {MOOD: '${env.TOY_MOOD}'}");
    AUTO(cay_manager) manager = manage(store, "s", config);
    AUTO(cay_manager) later = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_start(manager, &err));
    unsetenv("TOY_MOOD");
    ASSERT_OK(cay_manager_pause(later, &err));
    ASSERT_OK(cay_manager_pause_no_wait(later, &err));
    ASSERT_STR(cay_sandbox_id(sandbox_of(later)), "toy-1");
    ASSERT_OK(cay_manager_stop(later, &err));
    ASSERT_INT(living(), 0);
    ASSERT_CODE(cay_manager_start(later, &err), CAY_E_INVALID);
    ASSERT_HAS(err.message, "TOY_MOOD");
    ASSERT_CODE(cay_manager_start_no_wait(later, &err), CAY_E_INVALID);
    setenv("TOY_MOOD", "calm", 1);
    ASSERT_OK(cay_manager_start(later, &err));
    unsetenv("TOY_MOOD");
    toys[1].lives = false;
    AUTO(cay_manager) last = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_start_no_wait(last, &err)); /* it may be there still */
    ASSERT_CODE(cay_manager_wait(last, &err), CAY_E_INVALID);
    ASSERT_HAS(get_session(store, "ann", "s")->config, "${env.TOY_MOOD}");
}

TEST(a_sandbox_is_not_gone_because_its_backend_is_not_here)
{
    static const char *const configs[] = {
        "", "{\"type\": \"elsewhere\"}", "{\"type\": \"toy\"}",
        "{\"type\": \"elsewhere\", \"library\": \"/nowhere/elsewhere.so\"}"};
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");

    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct cay_session mine = session_of("ann", "s");
        mine.backend = "elsewhere";
        mine.sandbox_id = "there-1";
        mine.state = CAY_STATE_RUNNING;
        mine.config = configs[i];
        ASSERT_OK(cay_store_put(store, &mine, &err));
        AUTO(cay_manager) plain = manage(store, "s", NULL);
        AUTO(cay_manager) other = manage(store, "s", config);
        ASSERT_CODE(cay_manager_stop(plain, &err), CAY_E_UNAVAILABLE);
        ASSERT_STR(err.subject, "elsewhere");
        ASSERT_HAS(err.hint, "there-1");
        ASSERT_CODE(cay_manager_pause(plain, &err), CAY_E_UNAVAILABLE);
        ASSERT_CODE(cay_manager_start(plain, &err), CAY_E_UNAVAILABLE);
        ASSERT_CODE(cay_manager_start(other, &err), CAY_E_UNAVAILABLE);
        ASSERT_CODE(cay_manager_stop(other, &err), CAY_E_UNAVAILABLE);
        ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, "there-1");
    }
    ASSERT_INT(toy.created, 0);
}

TEST(a_sandbox_is_stopped_by_its_own_backend)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = toy_config("");
    AUTO(cay_config) native = config_of("{}");
    AUTO(cay_manager) manager = manage(store, "s", config);
    AUTO(cay_manager) changed = manage(store, "s", native);
    AUTO(cay_manager) plain = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_OK(cay_manager_pause_no_wait(changed, &err));
    ASSERT_OK(cay_manager_wait(changed, &err));
    ASSERT_OK(cay_manager_stop(changed, &err));
    ASSERT_INT(living(), 0);
    ASSERT_OK(cay_manager_start(manager, &err));
    struct cay_session bare = *get_session(store, "ann", "s");
    bare.config = "";
    ASSERT_OK(cay_store_put(store, &bare, &err));
    ASSERT_OK(cay_manager_stop(plain, &err));
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
