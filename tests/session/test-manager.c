/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include "sandbox/backend.h"
#include "session/manager.h"
#include "sessions.h"

static const char small[] = "type: native\nlimits: {memory: 128M, pids: 64}\n"
                            "envs: {MOOD: calm}\nwork_dir: /home/user/work\n";

/* --- One life --- */

TEST(a_session_is_started_used_and_stopped)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of(small);
    AUTO(cay_manager) manager = manage(store, "s", config);

    ASSERT(!cay_manager_is_running(manager));
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT(cay_manager_is_running(manager));
    cay_sandbox *sandbox = sandbox_of(manager);
    ASSERT_STR(told(sandbox, "echo $MOOD; pwd"), "calm\n/home/user/work");
    const struct cay_session *stored = get_session(store, "ann", "s");
    ASSERT_STR(stored->backend, "native");
    ASSERT_STR(stored->sandbox_id, cay_sandbox_id(sandbox));
    ASSERT_INT(stored->state, CAY_STATE_RUNNING);
    ASSERT_HAS(stored->config, "\"type\":\"native\"");
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT(!cay_manager_is_running(manager));
    stored = get_session(store, "ann", "s");
    ASSERT_STR(stored->backend, "");
    ASSERT_STR(stored->sandbox_id, "");
    ASSERT_INT(stored->state, 0);
    assert_empty_world();
}

TEST(starting_again_changes_nothing)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);
    cay_sandbox *sandbox = sandbox_of(manager);
    uint64_t revision = get_session(store, "ann", "s")->revision;

    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT(sandbox_of(manager) == sandbox);
    ASSERT_INT(get_session(store, "ann", "s")->revision, revision);
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

TEST(what_has_no_sandbox_cannot_be_paused_or_stopped)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    ASSERT_CODE(cay_manager_pause(manager, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "s");
    ASSERT_CODE(cay_manager_stop(manager, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_manager_pause_no_wait(manager, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_manager_run_done(manager, &err));
    ASSERT_OK(cay_manager_wait(manager, &err));
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_CODE(cay_manager_stop(manager, &err), CAY_E_NOT_FOUND);
}

TEST(another_manager_finds_the_same_sandbox)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of(small);
    AUTO(cay_manager) one = manage(store, "s", config);

    (void)told(sandbox_of(one), "echo kept > file");
    AUTO(cay_manager) other = manage(store, "s", NULL); /* by the stored configuration */
    ASSERT(!cay_manager_is_running(other));
    ASSERT_STR(told(sandbox_of(other), "cat file"), "kept");
    ASSERT_STR(cay_sandbox_id(sandbox_of(one)), cay_sandbox_id(sandbox_of(other)));
    ASSERT_INT(count_sandboxes(), 1);
    AUTO(cay_manager) third = manage(store, "t", NULL);
    ASSERT(strcmp(cay_sandbox_id(sandbox_of(third)), cay_sandbox_id(sandbox_of(one))));
    ASSERT_OK(cay_manager_stop(third, &err));
    ASSERT_OK(cay_manager_stop(other, &err)); /* from under the first one's feet */
    assert_empty_world();
    ASSERT(!cay_manager_is_running(one));
    ASSERT_STR(told(sandbox_of(one), "ls -A"), ""); /* which gets a new one */
    ASSERT_OK(cay_manager_stop(one, &err));
    assert_empty_world();
}

TEST(a_sandbox_outlives_its_manager)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    char id[CAY_ID_MAX];
    cay_manager *manager = manage(store, "s", NULL);

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox_of(manager)));
    cay_manager_free(manager);
    ASSERT_INT(state_of(id), CAY_STATE_RUNNING);
    manager = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_stop(manager, &err)); /* without having started it */
    cay_manager_free(manager);
    cay_manager_free(NULL);
    assert_empty_world();
}

TEST(without_a_store_nothing_is_kept)
{
    need_own_world();
    AUTO(cay_config) config = config_of(small);
    AUTO(cay_manager) one = manage(NULL, NULL, config);
    AUTO(cay_manager) other = manage(NULL, NULL, config);

    ASSERT(strcmp(cay_sandbox_id(sandbox_of(one)), cay_sandbox_id(sandbox_of(other))));
    ASSERT_OK(cay_manager_stop(other, &err));
    cay_sandbox *sandbox = sandbox_of(one);
    ASSERT_OK(cay_manager_pause(one, &err));
    ASSERT(sandbox_of(one) == sandbox); /* resumed, not made anew */
    ASSERT_OK(cay_manager_stop(one, &err));
    assert_empty_world();
}

/* --- Which sandbox --- */

TEST(the_configured_sandbox_must_be_there)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) gone = config_of("sandbox_id: sb-abcdefgh234567xy");
    AUTO(cay_manager) lost = manage(store, "lost", gone);
    char text[64];

    ASSERT_CODE(cay_manager_start(lost, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_manager_start_no_wait(lost, &err), CAY_OK);
    ASSERT_CODE(cay_manager_wait(lost, &err), CAY_E_NOT_FOUND);
    ASSERT_INT(count_sandboxes(), 0);
    AUTO(cay_manager) maker = manage(store, "maker", NULL);
    snprintf(text, sizeof text, "sandbox_id: %s", cay_sandbox_id(sandbox_of(maker)));
    AUTO(cay_config) config = config_of(text);
    AUTO(cay_manager) user = manage(store, "user", config);
    ASSERT_STR(cay_sandbox_id(sandbox_of(user)), text + 12);
    ASSERT_STR(get_session(store, "ann", "user")->sandbox_id, text + 12);
    ASSERT_OK(cay_manager_stop(user, &err));
    ASSERT_CODE(cay_manager_start(user, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_manager_stop(maker, &err)); /* it is gone; so is the record */
    ASSERT_STR(get_session(store, "ann", "maker")->sandbox_id, "");
    assert_empty_world();
}

TEST(a_stored_sandbox_that_is_gone_is_replaced)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);
    char before[CAY_ID_MAX];

    snprintf(before, sizeof before, "%s", cay_sandbox_id(sandbox_of(manager)));
    kill_all();
    ASSERT(!cay_manager_is_running(manager));
    AUTO(cay_manager) other = manage(store, "s", NULL);
    ASSERT_CODE(cay_manager_pause(other, &err), CAY_E_NOT_FOUND);
    ASSERT(strcmp(cay_sandbox_id(sandbox_of(manager)), before) != 0);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id,
               cay_sandbox_id(sandbox_of(manager)));
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

TEST(a_configured_sandbox_takes_the_place_of_the_sessions_own)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) maker = manage(store, "maker", NULL);
    AUTO(cay_manager) plain = manage(store, "s", NULL);
    char text[64];

    snprintf(text, sizeof text, "sandbox_id: %s", cay_sandbox_id(sandbox_of(maker)));
    ASSERT_OK(cay_manager_start(plain, &err));
    AUTO(cay_config) config = config_of(text);
    AUTO(cay_manager) other = manage(store, "s", config);
    ASSERT_OK(cay_manager_start_no_wait(other, &err));
    ASSERT_STR(cay_sandbox_id(sandbox_of(other)), text + 12);
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id, text + 12);
    ASSERT_INT(count_sandboxes(), 2); /* the other is as it was */
    ASSERT_OK(cay_manager_stop(other, &err));
    kill_all();
    assert_empty_world();
}

TEST(a_sandbox_on_disk_is_started_again_with_its_files)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of("storage: disk");
    AUTO(cay_manager) manager = manage(store, "s", config);
    char before[CAY_ID_MAX];

    (void)told(sandbox_of(manager), "echo kept > file; sync");
    snprintf(before, sizeof before, "%s", cay_sandbox_id(sandbox_of(manager)));
    ASSERT_OK(cay_sandbox_kill(sandbox_of(manager), &err));
    ASSERT(!cay_manager_is_running(manager));
    ASSERT_STR(told(sandbox_of(manager), "cat file"), "kept");
    ASSERT_STR(cay_sandbox_id(sandbox_of(manager)), before);
    ASSERT_OK(cay_sandbox_kill(sandbox_of(manager), &err));
    AUTO(cay_manager) other = manage(store, "s", NULL);
    ASSERT_STR(told(sandbox_of(other), "cat file"), "kept");
    ASSERT_OK(cay_manager_stop(other, &err));
    assert_empty_world();
}

TEST(a_configuration_that_cannot_be_is_told_and_leaves_nothing)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of("template: no-such-template");
    AUTO(cay_manager) manager = manage(store, "s", config);
    struct cay_session *found = NULL;
    size_t left = 9;

    ASSERT_CODE(cay_manager_start(manager, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    cay_sandbox *sandbox = NULL;
    ASSERT_CODE(cay_manager_sandbox(manager, &sandbox, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_store_get(store, "ann", "s", &found, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_store_collect(store, &left, &err));
    ASSERT_INT(left, 0);
    assert_empty_world();
}

TEST(a_manager_of_no_session_is_refused)
{
    AUTO(cay_store) store = open_store();
    struct cay_manager_options options = {
        .size = sizeof options, .store = store, .user_id = "ann", .session_id = ""};
    cay_manager *manager = NULL;

    ASSERT_CODE(cay_manager_new(&options, &manager, &err), CAY_E_INVALID);
    ASSERT_STR(err.subject, "session_id");
    options.session_id = "s";
    options.user_id = NULL;
    ASSERT_CODE(cay_manager_new(&options, &manager, &err), CAY_E_INVALID);
    ASSERT(!manager);
}

/* --- Pausing --- */

TEST(a_paused_session_goes_on_where_it_was)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);
    cay_sandbox *sandbox = sandbox_of(manager);
    char id[CAY_ID_MAX];

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    (void)told(sandbox, "echo kept > file; setsid sleep 1000 >/dev/null 2>&1 & "
                        "until pgrep -x sleep; do :; done");
    ASSERT_OK(cay_manager_pause(manager, &err));
    ASSERT(!cay_manager_is_running(manager));
    ASSERT_INT(state_of(id), CAY_STATE_PAUSED);
    ASSERT_INT(get_session(store, "ann", "s")->state, CAY_STATE_PAUSED);
    ASSERT_OK(cay_manager_pause(manager, &err)); /* again is fine */
    ASSERT(sandbox_of(manager) == sandbox);      /* auto-resume, by the same handle */
    ASSERT_INT(state_of(id), CAY_STATE_RUNNING);
    ASSERT_INT(get_session(store, "ann", "s")->state, CAY_STATE_RUNNING);
    ASSERT_STR(told(sandbox, "cat file; pgrep -c sleep"), "kept\n1");
    AUTO(cay_manager) other = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_pause(other, &err)); /* by somebody who never started it */
    ASSERT_INT(state_of(id), CAY_STATE_PAUSED);
    ASSERT_STR(told(sandbox_of(other), "cat file"), "kept");
    ASSERT_OK(cay_manager_pause(other, &err));
    ASSERT_OK(cay_manager_stop(other, &err)); /* while it is paused */
    assert_empty_world();
}

TEST(what_happens_after_a_run_is_configured)
{
    static const struct {
        const char *text;
        enum cay_state state; /* 0: gone */
    } cases[] = {
        {"{}", CAY_STATE_PAUSED},
        {"persist_sandbox: true", CAY_STATE_PAUSED},
        {"persist_sandbox: false", (enum cay_state)0},
        {"status_after_run: stop", (enum cay_state)0},
        {"status_after_run: pause", CAY_STATE_PAUSED},
        {"status_after_run: none", CAY_STATE_RUNNING},
    };

    need_own_world();
    AUTO(cay_store) store = open_store();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(cay_config) config = config_of(cases[i].text);
        AUTO(cay_manager) manager = manage(store, "s", config);
        ASSERT_OK(cay_manager_start(manager, &err));
        ASSERT_OK(cay_manager_run_done(manager, &err));
        const struct cay_session *stored = get_session(store, "ann", "s");
        ASSERT_INT(stored->state, cases[i].state);
        if (cases[i].state) {
            ASSERT_INT(state_of(stored->sandbox_id), cases[i].state);
            ASSERT_OK(cay_manager_stop(manager, &err));
        }
        assert_empty_world();
    }
}

/* --- A full disk --- */

TEST(a_full_disk_is_told_as_one_and_the_session_is_there_afterwards)
{
    need_own_world();
    static const char zeros[1 << 16];
    char home[PATH_MAX / 2], fill[PATH_MAX];

    snprintf(home, sizeof home, "%s", scratch_path("small"));
    snprintf(fill, sizeof fill, "%s/fill", home);
    ASSERT_INT(mkdir(home, 0700), 0);
    ASSERT_INT(mount("cay-test", home, "tmpfs", 0, "mode=0700,size=1m"), 0);
    setenv("CAY_HOME", home, 1);
    cay_store *store = NULL;
    ASSERT_OK(cay_store_open(NULL, &store, &err));
    cay_manager *manager = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_start(manager, &err));
    cay_manager_free(manager);
    cay_store_free(store);
    int fd = open(fill, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    while (write(fd, zeros, sizeof zeros) > 0)
        continue;
    (void)close(fd);
    ASSERT_CODE(cay_store_open(NULL, &store, &err), CAY_E_NO_SPACE);
    ASSERT_HAS(err.hint, "free some space");
    ASSERT_INT(unlink(fill), 0);
    ASSERT_OK(cay_store_open(NULL, &store, &err));
    manager = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_stop(manager, &err));
    cay_manager_free(manager);
    cay_store_free(store);
    ASSERT_INT(umount2(home, MNT_DETACH), 0);
    assert_empty_world();
}

/* --- Assets --- */

TEST(assets_are_there_after_every_start)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    put_file("skill.txt", "one");
    put_file("skills/deep/a file", "two");
    ASSERT_OK(cay_manager_add_asset(manager, scratch_path("skill.txt"),
                                    "/home/user/.skills/skill.txt", &err));
    ASSERT_STR(told(sandbox_of(manager), "cat .skills/skill.txt"), "one");
    ASSERT_OK(cay_manager_add_asset(manager, scratch_path("skills"), "more", &err));
    ASSERT_STR(told(sandbox_of(manager), "cat 'more/deep/a file'"), "two"); /* at once */
    (void)told(sandbox_of(manager), "rm -r .skills more");
    ASSERT_OK(cay_manager_pause(manager, &err));
    put_file("skill.txt", "changed");
    ASSERT_STR(told(sandbox_of(manager), "cat .skills/skill.txt 'more/deep/a file'"),
               "changedtwo");
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    ASSERT_STR(told(sandbox_of(manager), "cat .skills/skill.txt"), "changed");
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

TEST(an_asset_that_is_not_there_fails_the_start_and_not_the_session)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    ASSERT_CODE(cay_manager_add_asset(manager, "", "x", &err), CAY_E_INVALID);
    ASSERT_CODE(cay_manager_add_asset(manager, "x", NULL, &err), CAY_E_INVALID);
    ASSERT_OK(cay_manager_add_asset(manager, scratch_path("later"), "later", &err));
    ASSERT_CODE(cay_manager_start(manager, &err), CAY_E_NOT_FOUND);
    put_file("later", "now");
    ASSERT_OK(cay_manager_pause(manager, &err));
    ASSERT_STR(told(sandbox_of(manager), "cat later"), "now");
    ASSERT_CODE(cay_manager_add_asset(manager, scratch_path("no"), "no", &err),
                CAY_E_NOT_FOUND);
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

TEST(assets_that_could_not_be_uploaded_are_at_the_next_start_though_it_runs)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_add_asset(manager, scratch_path("later"), "later", &err));
    ASSERT_CODE(cay_manager_start(manager, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_manager_start(manager, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    ASSERT_CODE(cay_manager_wait(manager, &err), CAY_E_NOT_FOUND);
    put_file("later", "now");
    ASSERT_STR(told(sandbox_of(manager), "cat later"), "now");
    (void)told(sandbox_of(manager), "rm later");
    ASSERT_OK(cay_manager_start(manager, &err));
    ASSERT_STR(told(sandbox_of(manager), "ls"), "");
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

/* --- The other backend that is always there --- */

TEST(a_local_session_lives_as_well)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    ASSERT_INT(setenv("SANDBOX_WORK_DIR", scratch_path("work"), 1), 0);
    AUTO(cay_config) config = config_of("type: local");
    AUTO(cay_manager) manager = manage(store, "s", config);
    (void)told(sandbox_of(manager), "echo kept > file");
    ASSERT_OK(cay_manager_pause(manager, &err)); /* which cannot be */
    ASSERT(cay_manager_is_running(manager));
    ASSERT_STR(get_session(store, "ann", "s")->backend, "local");
    AUTO(cay_manager) other = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_start_no_wait(other, &err));
    ASSERT_STR(told(sandbox_of(other), "cat file"), "kept");
    ASSERT_OK(cay_manager_stop(other, &err));
    ASSERT_STR(get_file("work/file"), "kept\n");
    ASSERT_INT(unsetenv("SANDBOX_WORK_DIR"), 0);
    assert_empty_world();
}

/* --- Races --- */

struct racer {
    const char *path;
    char id[CAY_ID_MAX];
    int code;
};

static void *race_by_thread(void *cookie)
{
    struct racer *racer = cookie;
    cay_store *store = NULL;
    cay_manager *manager = NULL;
    cay_sandbox *sandbox = NULL;
    struct cay_manager_options options = {
        .size = sizeof options, .user_id = "ann", .session_id = "s"};

    racer->code = cay_store_open(racer->path, &store, NULL);
    options.store = store;
    if (!racer->code)
        racer->code = cay_manager_new(&options, &manager, NULL);
    if (!racer->code)
        racer->code = cay_manager_sandbox(manager, &sandbox, NULL);
    if (!racer->code)
        snprintf(racer->id, sizeof racer->id, "%s", cay_sandbox_id(sandbox));
    cay_manager_free(manager);
    cay_store_free(store);
    return NULL;
}

static void race_by_process(void *cookie)
{
    int *pipe = cookie;
    struct racer racer = {.path = scratch_path("sessions.db")};

    (void)race_by_thread(&racer);
    ASSERT_INT(racer.code, CAY_OK);
    ASSERT_INT(write(pipe[1], racer.id, sizeof racer.id), sizeof racer.id);
}

static void stop_session(void)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

enum { RACERS = 6 };

TEST(threads_that_race_for_a_session_get_one_sandbox)
{
    struct racer racers[RACERS];
    pthread_t threads[RACERS];

    need_own_world();
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.path = scratch_path("sessions.db")};
        ASSERT_INT(pthread_create(&threads[i], NULL, race_by_thread, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++)
        ASSERT_INT(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < RACERS; i++) {
        ASSERT_INT(racers[i].code, CAY_OK);
        ASSERT_STR(racers[i].id, racers[0].id);
    }
    stop_session();
}

TEST(processes_that_race_for_a_session_get_one_sandbox)
{
    char ids[RACERS][CAY_ID_MAX];
    pid_t pids[RACERS];
    int ends[2];

    need_own_world();
    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < RACERS; i++)
        pids[i] = in_child(race_by_process, ends);
    for (int i = 0; i < RACERS; i++)
        ASSERT_INT(end_of(pids[i]), 0);
    for (int i = 0; i < RACERS; i++) {
        ASSERT_INT(read(ends[0], ids[i], CAY_ID_MAX), CAY_ID_MAX);
        ASSERT_STR(ids[i], ids[0]);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
    stop_session();
}

/* --- Crashes --- */

TEST(what_a_crashed_start_has_left_is_collected)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_config) config = config_of("{}");
    cay_session_lock *lock = NULL;
    cay_sandbox *sandbox = NULL;
    size_t count = 9;

    ASSERT_OK(ledger_begin(store, "ann", "s", "abcdefgh234567xy", "{}", &err));
    ASSERT_OK(sandbox_create_marked(config, "abcdefgh234567xy", NULL, &sandbox, &err));
    ASSERT_STR(cay_sandbox_id(sandbox), "sb-abcdefgh234567xy");
    cay_sandbox_free(sandbox);
    ASSERT_OK(cay_session_lock_take(store, "ann", "s", 0, &lock, &err));
    ASSERT_OK(cay_store_collect(store, &count, &err)); /* it may be under way */
    ASSERT_INT(count, 0);
    ASSERT_INT(count_sandboxes(), 1);
    cay_session_lock_free(lock);
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 1);
    assert_empty_world();
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 0);
}

TEST(a_mark_is_16_letters_and_digits)
{
    need_own_world();
    AUTO(cay_config) config = config_of("{}");
    cay_sandbox *sandbox = NULL;

    ASSERT_CODE(sandbox_create_marked(config, "../../etc", NULL, &sandbox, &err),
                CAY_E_INVALID);
    ASSERT_CODE(sandbox_find_marked(config, "../../etc", &sandbox, &err), CAY_E_INVALID);
    ASSERT_CODE(sandbox_find_marked(config, "abcdefgh234567xy", &sandbox, &err),
                CAY_E_NOT_FOUND);
}
