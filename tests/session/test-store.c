/* SPDX-License-Identifier: Apache-2.0 */
#include "session/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "stores.h"

/* --- What goes in comes out --- */

TEST(a_session_comes_back_as_it_was_put)
{
    AUTO(cay_store) store = open_store();
    struct cay_session session = session_of("ann", "first one\n\xc3\xa9");

    session.backend = "native";
    session.sandbox_id = "sb-abcdefgh234567xy";
    session.state = CAY_STATE_PAUSED;
    session.config = "{\"type\": \"native\"}";
    session.data = "{\"big\": 123456789012345678901234567890, \"nul\": \"\\u0000\"}";
    ASSERT_OK(cay_store_put(store, &session, &err));
    const struct cay_session *found = get_session(store, "ann", "first one\n\xc3\xa9");
    ASSERT_INT(found->size, sizeof *found);
    ASSERT_STR(found->user_id, "ann");
    ASSERT_STR(found->session_id, session.session_id);
    ASSERT_STR(found->backend, "native");
    ASSERT_STR(found->sandbox_id, "sb-abcdefgh234567xy");
    ASSERT_INT(found->state, CAY_STATE_PAUSED);
    ASSERT_STR(found->config, session.config);
    ASSERT_STR(found->data, session.data);
    ASSERT_INT(found->revision, 1);
    ASSERT(found->created_ms > 1700000000000 && found->updated_ms == found->created_ms);
}

TEST(texts_that_are_not_given_are_empty)
{
    AUTO(cay_store) store = open_store();
    struct cay_session session = session_of("ann", "s");

    ASSERT_OK(cay_store_put(store, &session, &err));
    const struct cay_session *found = get_session(store, "ann", "s");
    ASSERT_STR(found->backend, "");
    ASSERT_STR(found->sandbox_id, "");
    ASSERT_STR(found->config, "");
    ASSERT_STR(found->data, "");
    ASSERT_INT(found->state, 0);
}

TEST(sessions_of_different_users_are_different)
{
    AUTO(cay_store) store = open_store();
    struct cay_session ann = session_of("ann", "s"), bob = session_of("bob", "s");

    ann.data = "1";
    bob.data = "2";
    ASSERT_OK(cay_store_put(store, &ann, &err));
    ASSERT_OK(cay_store_put(store, &bob, &err));
    ASSERT_STR(get_session(store, "ann", "s")->data, "1");
    ASSERT_OK(cay_store_remove(store, "ann", "s", &err));
    ASSERT_STR(get_session(store, "bob", "s")->data, "2");
}

TEST(a_session_outlives_the_handle)
{
    struct cay_session session = session_of("ann", "s");
    cay_store *store = open_store();

    session.data = "{}";
    ASSERT_OK(cay_store_put(store, &session, &err));
    cay_store_free(store);
    store = open_store();
    ASSERT_STR(get_session(store, "ann", "s")->data, "{}");
    cay_store_free(store);
}

TEST(each_change_is_one_more_revision_and_keeps_the_time_of_creation)
{
    AUTO(cay_store) store = open_store();
    struct cay_session session = session_of("ann", "s");

    ASSERT_OK(cay_store_put(store, &session, &err));
    int64_t created = get_session(store, "ann", "s")->created_ms;
    ASSERT_OK(cay_store_put(store, &session, &err));
    session.revision = 2;
    ASSERT_OK(cay_store_put(store, &session, &err));
    const struct cay_session *found = get_session(store, "ann", "s");
    ASSERT_INT(found->revision, 3);
    ASSERT_INT(found->created_ms, created);
    ASSERT(found->updated_ms >= created);
}

TEST(a_put_with_an_old_revision_fails)
{
    AUTO(cay_store) store = open_store();
    struct cay_session session = session_of("ann", "s");

    ASSERT_OK(cay_store_put(store, &session, &err));
    session.revision = 1;
    session.data = "\"mine\"";
    ASSERT_OK(cay_store_put(store, &session, &err));
    session.data = "\"late\"";
    ASSERT_CODE(cay_store_put(store, &session, &err), CAY_E_CHANGED);
    ASSERT_STR(get_session(store, "ann", "s")->data, "\"mine\"");
    ASSERT_OK(cay_store_remove(store, "ann", "s", &err));
    session.revision = 2;
    ASSERT_CODE(cay_store_put(store, &session, &err), CAY_E_CHANGED);
}

TEST(what_is_not_there_is_not_found)
{
    AUTO(cay_store) store = open_store();
    struct cay_session *found = NULL;
    size_t count = 9;

    ASSERT_CODE(cay_store_get(store, "ann", "s", &found, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "s");
    ASSERT(!found);
    ASSERT_CODE(cay_store_remove(store, "ann", "s", &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_store_list(store, NULL, &found, &count, &err));
    ASSERT_INT(count, 0);
    cay_free(found);
}

TEST(a_list_is_by_last_change_newest_first)
{
    AUTO(cay_store) store = open_store();
    const char *const names[] = {"a", "b", "c", "a"};
    struct cay_session *list = NULL;
    size_t count = 0;

    for (size_t i = 0; i < 4; i++) {
        struct cay_session session = session_of("ann", names[i]);
        session.data = i == 3 ? "\"again\"" : "";
        ASSERT_OK(cay_store_put(store, &session, &err));
    }
    struct cay_session bobs = session_of("bob", "z");
    ASSERT_OK(cay_store_put(store, &bobs, &err));
    ASSERT_OK(cay_store_list(store, NULL, &list, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT_STR(list[0].session_id, "z");
    ASSERT_STR(list[1].session_id, "a");
    ASSERT_STR(list[1].data, "\"again\"");
    ASSERT_STR(list[2].session_id, "c");
    ASSERT_STR(list[3].session_id, "b");
    cay_free(list);
    ASSERT_OK(cay_store_list(store, "bob", &list, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(list[0].user_id, "bob");
    cay_free(list);
}

/* --- What is refused --- */

TEST(ids_are_text_of_up_to_256_bytes)
{
    AUTO(cay_store) store = open_store();
    char longest[258];
    const char *const wrong[] = {NULL, "", "a\xff", longest};

    memset(longest, 'x', 257);
    longest[257] = '\0';
    for (size_t i = 0; i < 4; i++) {
        struct cay_session session = session_of("ann", wrong[i]), *found = NULL;
        ASSERT_CODE(cay_store_put(store, &session, &err), CAY_E_INVALID);
        ASSERT_STR(err.subject, "session_id");
        ASSERT_HAS(err.hint, "256");
        session = session_of(wrong[i], "s");
        ASSERT_CODE(cay_store_put(store, &session, &err), CAY_E_INVALID);
        ASSERT_STR(err.subject, "user_id");
        ASSERT_CODE(cay_store_get(store, wrong[i], "s", &found, &err), CAY_E_INVALID);
        ASSERT_CODE(cay_store_remove(store, "ann", wrong[i], &err), CAY_E_INVALID);
    }
    longest[256] = '\0';
    struct cay_session session = session_of(longest, longest);
    ASSERT_OK(cay_store_put(store, &session, &err));
    ASSERT_STR(get_session(store, longest, longest)->user_id, longest);
}

TEST(what_cannot_be_kept_is_refused_and_nothing_changes)
{
    AUTO(cay_store) store = open_store();
    const struct cay_session right = session_of("ann", "s");
    size_t size = (16 << 20) + 2;
    AUTO_FREE char *large = malloc(size + 1);

    ASSERT(large);
    memset(large, ' ', size);
    large[0] = '1';
    large[size] = '\0';
    struct cay_session wrong = right;
    wrong.data = "{\"a\": }";
    ASSERT_CODE(cay_store_put(store, &wrong, &err), CAY_E_INVALID);
    ASSERT_STR(err.subject, "data");
    wrong = right;
    wrong.config = "type: native";
    ASSERT_CODE(cay_store_put(store, &wrong, &err), CAY_E_INVALID);
    ASSERT_STR(err.subject, "config");
    wrong = right;
    wrong.backend = "\xc3";
    ASSERT_CODE(cay_store_put(store, &wrong, &err), CAY_E_INVALID);
    ASSERT_STR(err.subject, "backend");
    wrong = right;
    wrong.data = large;
    ASSERT_CODE(cay_store_put(store, &wrong, &err), CAY_E_LIMIT);
    wrong = right;
    wrong.state = (enum cay_state)4;
    ASSERT_CODE(cay_store_put(store, &wrong, &err), CAY_E_INVALID);
    ASSERT_STR(err.subject, "state");
    large[16 << 20] = '\0';
    wrong = right;
    wrong.data = large;
    ASSERT_OK(cay_store_put(store, &wrong, &err));
    ASSERT_INT(strlen(get_session(store, "ann", "s")->data), 16 << 20);
    ASSERT_INT(get_session(store, "ann", "s")->revision, 1);
}

TEST(a_caller_from_the_future_is_refused)
{
    AUTO(cay_store) store = open_store();
    struct {
        struct cay_session known;
        int more;
    } later = {session_of("ann", "s"), 1};

    later.known.size = sizeof later;
    ASSERT_CODE(cay_store_put(store, &later.known, &err), CAY_E_UNSUPPORTED);
    later.known.size = 0;
    ASSERT_CODE(cay_store_put(store, &later.known, &err), CAY_E_INVALID);
}

/* --- Its files --- */

static mode_t mode_of(const char *name)
{
    struct stat st;

    if (stat(scratch_path(name), &st) != 0)
        harness_fail(__FILE__, __LINE__, "%s is not there", name);
    return st.st_mode & 07777;
}

TEST(the_store_is_private_to_its_user)
{
    mode_t before = umask(0);
    AUTO(cay_store) store = open_store();
    struct cay_session session = session_of("ann", "s");

    ASSERT_OK(cay_store_put(store, &session, &err));
    umask(before);
    ASSERT_INT(mode_of("sessions.db"), 0600);
    ASSERT_INT(mode_of("sessions.db-wal"), 0600);
    ASSERT_INT(mode_of("sessions.db-shm"), 0600);
    ASSERT_INT(mode_of("sessions.db-lock"), 0600);
}

TEST(the_default_is_below_cay_home)
{
    cay_store *store = NULL;
    mode_t before = umask(0);

    setenv("CAY_HOME", scratch_path("a/home"), 1);
    ASSERT_OK(cay_store_open(NULL, &store, &err));
    cay_store_free(store);
    umask(before);
    ASSERT_INT(mode_of("a/home"), 0700);
    ASSERT_INT(mode_of("a/home/cay.db"), 0600);
    setenv("CAY_HOME", "relative", 1);
    ASSERT_CODE(cay_store_open(NULL, &store, &err), CAY_E_UNAVAILABLE);
    unsetenv("CAY_HOME");
}

TEST(what_others_could_touch_is_not_used)
{
    cay_store *store = NULL;
    const char *path = scratch_path("open.db");

    put_file("open.db", "");
    ASSERT_INT(chmod(path, 0640), 0);
    ASSERT_CODE(cay_store_open(path, &store, &err), CAY_E_UNAVAILABLE);
    ASSERT_HAS(err.hint, "0600");
    ASSERT_INT(mkdir(scratch_path("shared"), 0700), 0);
    ASSERT_INT(chmod(scratch_path("shared"), 0777), 0);
    ASSERT_CODE(cay_store_open(scratch_path("shared/s.db"), &store, &err),
                CAY_E_UNAVAILABLE);
    ASSERT(access(scratch_path("shared/s.db"), F_OK) != 0);
}

TEST(what_is_no_file_is_no_store)
{
    cay_store *store = NULL;

    put_file("target", "");
    ASSERT_INT(chmod(scratch_path("target"), 0600), 0);
    ASSERT_INT(symlink("target", scratch_path("link.db")), 0);
    ASSERT_INT(mkdir(scratch_path("dir.db"), 0700), 0);
    ASSERT_INT(mkfifo(scratch_path("fifo.db"), 0600), 0);
    ASSERT_CODE(cay_store_open(scratch_path("link.db"), &store, &err), CAY_E_NOT_A_FILE);
    ASSERT_CODE(cay_store_open(scratch_path("dir.db"), &store, &err), CAY_E_NOT_A_FILE);
    ASSERT_CODE(cay_store_open(scratch_path("fifo.db"), &store, &err), CAY_E_NOT_A_FILE);
    ASSERT_CODE(cay_store_open(scratch_path("no/s.db"), &store, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_store_open("", &store, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_store_open(scratch_path(".."), &store, &err), CAY_E_INVALID);
}

TEST(one_in_memory_is_its_handles_own)
{
    cay_store *one = NULL, *other = NULL;
    struct cay_session session = session_of("ann", "s"), *found = NULL;

    ASSERT_OK(cay_store_open(":memory:", &one, &err));
    ASSERT_OK(cay_store_open(":memory:", &other, &err));
    ASSERT_OK(cay_store_put(one, &session, &err));
    ASSERT_INT(get_session(one, "ann", "s")->revision, 1);
    ASSERT_CODE(cay_store_get(other, "ann", "s", &found, &err), CAY_E_NOT_FOUND);
    ASSERT(access(":memory:", F_OK) != 0);
    cay_store_free(one);
    cay_store_free(other);
    cay_store_free(NULL);
}

/* --- Damage --- */

TEST(what_is_no_database_is_told_as_damaged)
{
    cay_store *store = NULL;
    static char noise[8192];

    memset(noise, 'x', sizeof noise);
    put_bytes("sessions.db", noise, sizeof noise);
    ASSERT_INT(chmod(scratch_path("sessions.db"), 0600), 0);
    ASSERT_CODE(cay_store_open(scratch_path("sessions.db"), &store, &err), CAY_E_IO);
    ASSERT_HAS(err.hint, "move it away");
    ASSERT_INT(strlen(get_file("sessions.db")), sizeof noise);
}

TEST(a_page_of_noise_is_told_as_damage_too)
{
    cay_store *store = open_store();
    struct cay_session session = session_of("ann", "s"), *found = NULL;
    static char noise[4096 * 8];

    ASSERT_OK(cay_store_put(store, &session, &err));
    cay_store_free(store);
    int fd = open(scratch_path("sessions.db"), O_WRONLY | O_CLOEXEC);
    memset(noise, 0x5a, sizeof noise);
    ASSERT_INT(pwrite(fd, noise, sizeof noise, 4096), sizeof noise);
    (void)close(fd);
    store = open_store();
    ASSERT_CODE(cay_store_get(store, "ann", "s", &found, &err), CAY_E_IO);
    ASSERT_CODE(cay_store_put(store, &session, &err), CAY_E_IO);
    cay_store_free(store);
}

TEST(a_full_disk_is_told_and_loses_nothing)
{
    AUTO(cay_store) store = open_store();
    struct cay_session session = session_of("ann", "s");
    struct rlimit before, small = {256 << 10, RLIM_INFINITY};
    AUTO_FREE char *large = malloc((1 << 20) + 1);

    session.data = "\"kept\"";
    ASSERT_OK(cay_store_put(store, &session, &err));
    ASSERT(large);
    memset(large, ' ', 1 << 20);
    large[0] = '1';
    large[1 << 20] = '\0';
    session.data = large;
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    ASSERT_INT(sigaction(SIGXFSZ, &ignore, &old), 0);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    int code = cay_store_put(store, &session, &err);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_INT(sigaction(SIGXFSZ, &old, NULL), 0);
    ASSERT(code == CAY_E_IO || code == CAY_E_NO_SPACE);
    ASSERT_STR(get_session(store, "ann", "s")->data, "\"kept\"");
    ASSERT_OK(cay_store_put(store, &session, &err));
}

/* --- Versions --- */

static cay_store *open_as(size_t versions, const char *const *steps)
{
    const struct schema schema = {steps, versions};
    cay_store *store = NULL;

    ASSERT_OK(store_open(scratch_path("sessions.db"), &schema, &store, &err));
    return store;
}

TEST(an_older_database_is_migrated_and_a_newer_one_refused)
{
    const char *const steps[] = {
        schema_current.steps[0],
        "ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",
        "CREATE TABLE more (a TEXT) STRICT; INSERT INTO more SELECT mood FROM sessions"};
    struct cay_session session = session_of("ann", "s");
    cay_store *store = NULL;

    ASSERT_INT(schema_current.count, 1);
    store = open_as(1, steps);
    session.data = "\"old\"";
    ASSERT_OK(cay_store_put(store, &session, &err));
    cay_store_free(store);
    store = open_as(3, steps); /* both steps at once */
    ASSERT_STR(get_session(store, "ann", "s")->data, "\"old\"");
    sqlite3_stmt *statement = NULL;
    ASSERT_INT(sqlite.sqlite3_prepare_v2(store->database, "SELECT a FROM more", -1,
                                         &statement, NULL),
               SQLITE_OK);
    ASSERT_INT(sqlite.sqlite3_step(statement), SQLITE_ROW);
    ASSERT_STR((const char *)sqlite.sqlite3_column_text(statement, 0), "calm");
    sqlite.sqlite3_finalize(statement);
    cay_store_free(store);
    store = open_as(3, steps); /* and not again */
    cay_store_free(store);
    ASSERT_CODE(cay_store_open(scratch_path("sessions.db"), &store, &err),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "newer");
}

TEST(a_migration_that_fails_leaves_the_old_database)
{
    const char *const steps[] = {schema_current.steps[0],
                                 "ALTER TABLE sessions ADD COLUMN mood TEXT", "NONSENSE"};
    const struct schema broken = {steps, 3};
    struct cay_session session = session_of("ann", "s");
    cay_store *store = open_store();

    ASSERT_OK(cay_store_put(store, &session, &err));
    cay_store_free(store);
    store = NULL;
    ASSERT_CODE(store_open(scratch_path("sessions.db"), &broken, &store, &err),
                CAY_E_INTERNAL);
    store = open_store();
    ASSERT_INT(get_session(store, "ann", "s")->revision, 1);
    cay_store_free(store);
}

static void make_foreign(const char *sql)
{
    sqlite3 *database = NULL;

    ASSERT_OK(sqlite_load("test", &err));
    (void)unlink(scratch_path("foreign.db"));
    ASSERT_INT(sqlite.sqlite3_open_v2(scratch_path("foreign.db"), &database,
                                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL),
               SQLITE_OK);
    ASSERT_INT(sqlite.sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite.sqlite3_close_v2(database);
    ASSERT_INT(chmod(scratch_path("foreign.db"), 0600), 0);
}

TEST(the_database_of_another_program_is_left_alone)
{
    const char *const all[] = {"CREATE TABLE t (a)", "PRAGMA user_version=1",
                               "PRAGMA application_id=7"};
    cay_store *store = NULL;

    for (size_t i = 0; i < 3; i++) {
        make_foreign(all[i]);
        ASSERT_CODE(cay_store_open(scratch_path("foreign.db"), &store, &err),
                    CAY_E_INVALID);
        ASSERT_HAS(err.message, "another program");
    }
}

/* --- Several at once --- */

/* Of a handle that a child cannot close; for valgrind, which must not call it lost. */
static const void *volatile left_open;

TEST(a_handle_is_of_no_use_after_a_fork)
{
    AUTO(cay_store) store = open_store();
    struct cay_session session = session_of("ann", "s"), *found = NULL;
    cay_session_lock *lock = NULL;

    ASSERT_OK(cay_store_put(store, &session, &err));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        ASSERT_CODE(cay_store_get(store, "ann", "s", &found, &err), CAY_E_INVALID);
        ASSERT_HAS(err.hint, "child");
        ASSERT_CODE(cay_store_put(store, &session, &err), CAY_E_INVALID);
        ASSERT_CODE(cay_session_lock_take(store, "ann", "s", 0, &lock, &err),
                    CAY_E_INVALID);
        left_open = store->database;
        cay_store_free(store);
        _exit(0);
    }
    ASSERT_INT(end_of(pid), 0);
    ASSERT_OK(cay_store_put(store, &session, &err));
    ASSERT_INT(get_session(store, "ann", "s")->revision, 2);
}

enum { WRITERS = 4, WRITES = 25 };

static void write_many(void *path)
{
    cay_store *store = NULL;

    ASSERT_OK(cay_store_open(path, &store, &err));
    for (int i = 0; i < WRITES; i++) {
        struct cay_session shared = session_of("ann", "shared");
        ASSERT_OK(cay_store_put(store, &shared, &err));
    }
    cay_store_free(store);
}

TEST(several_processes_open_and_write_it_at_once)
{
    const char *path = scratch_path("sessions.db");
    pid_t pids[WRITERS];

    for (int i = 0; i < WRITERS; i++)
        pids[i] = in_child(write_many, (void *)(uintptr_t)path);
    for (int i = 0; i < WRITERS; i++)
        ASSERT_INT(end_of(pids[i]), 0);
    AUTO(cay_store) store = open_store();
    ASSERT_INT(get_session(store, "ann", "shared")->revision, WRITERS * WRITES);
}

static void *write_by_thread(void *cookie)
{
    intptr_t right = 0;

    for (int i = 0; i < WRITES; i++) {
        struct cay_session shared = session_of("ann", "shared"), *found = NULL;
        right += cay_store_put(cookie, &shared, NULL) == CAY_OK &&
                 cay_store_get(cookie, "ann", "shared", &found, NULL) == CAY_OK;
        cay_free(found);
    }
    return (void *)right;
}

TEST(several_threads_share_a_handle)
{
    AUTO(cay_store) store = open_store();
    pthread_t threads[WRITERS];
    void *right;

    for (int i = 0; i < WRITERS; i++)
        ASSERT_INT(pthread_create(&threads[i], NULL, write_by_thread, store), 0);
    for (int i = 0; i < WRITERS; i++) {
        ASSERT_INT(pthread_join(threads[i], &right), 0);
        ASSERT_INT((intptr_t)right, WRITES);
    }
    ASSERT_INT(get_session(store, "ann", "shared")->revision, WRITERS * WRITES);
}

/* Puts 1, 2, 3 ... and tells each one over the pipe when it is stored. */
static void put_and_tell(const char *path, int pipe)
{
    cay_store *store = NULL;
    char text[32];

    ASSERT_OK(cay_store_open(path, &store, &err));
    for (int i = 1;; i++) {
        struct cay_session session = session_of("ann", "s");
        snprintf(text, sizeof text, "%d", i);
        session.data = text;
        ASSERT_OK(cay_store_put(store, &session, &err));
        ASSERT_INT(write(pipe, &i, sizeof i), sizeof i);
    }
}

TEST(what_was_acknowledged_survives_kill_9)
{
    const char *path = scratch_path("sessions.db");

    for (int round = 1; round <= 5; round++) {
        int ends[2], last = 0, told;
        ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            put_and_tell(path, ends[1]);
        (void)close(ends[1]);
        while (last < round * 3)
            ASSERT_INT(read(ends[0], &last, sizeof last), sizeof last);
        ASSERT_INT(kill(pid, SIGKILL), 0);
        while (read(ends[0], &told, sizeof told) == sizeof told)
            last = told;
        ASSERT(WIFSIGNALED(end_of(pid)));
        (void)close(ends[0]);
        AUTO(cay_store) store = open_store();
        int stored = (int)strtol(get_session(store, "ann", "s")->data, NULL, 10);
        ASSERT(stored == last || stored == last + 1);
        ASSERT_OK(cay_store_remove(store, "ann", "s", &err));
    }
}
