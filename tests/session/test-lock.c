/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "../unit/not-under-valgrind.h"
#include "stores.h"

NOT_UNDER_VALGRIND("valgrind stops all threads while one waits for an open file's lock")

static const void *volatile left_open;

static cay_session_lock *lock(cay_store *store, const char *session)
{
    cay_session_lock *taken = NULL;

    ASSERT_OK(cay_session_lock_take(store, "ann", session, 0, &taken, &err));
    return taken;
}

static void assert_locked(cay_store *store, const char *session)
{
    cay_session_lock *other = NULL;

    ASSERT_CODE(cay_session_lock_take(store, "ann", session, 1, &other, &err),
                CAY_E_TIMEOUT);
    ASSERT(!other);
}

static void check_locks(cay_store *store)
{
    cay_session_lock *taken = lock(store, "s");

    assert_locked(store, "s");
    cay_session_lock_free(lock(store, "t"));
    cay_session_lock_free(taken);
    cay_session_lock_free(lock(store, "s"));
    cay_session_lock_free(NULL);
}

TEST(a_lock_holds_off_others_of_the_same_session_only)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_store) memory = NULL;

    check_locks(store);
    ASSERT_OK(cay_store_open(":memory:", &memory, &err));
    check_locks(memory);
    cay_session_lock *taken = lock(store, "s");
    cay_session_lock_free(lock(memory, "s"));
    cay_session_lock_free(taken);
    ASSERT_CODE(cay_session_lock_take(store, "", "s", 0, &taken, &err), CAY_E_INVALID);
}

TEST(a_lock_holds_off_other_processes_and_is_gone_with_its_own)
{
    AUTO(cay_store) store = open_store();
    int ends[2];
    char up;

    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)lock(open_store(), "s");
        ASSERT_INT(write(ends[1], "", 1), 1);
        for (;;)
            pause();
    }
    ASSERT_INT(read(ends[0], &up, 1), 1);
    assert_locked(store, "s");
    ASSERT_INT(kill(pid, SIGKILL), 0);
    ASSERT(WIFSIGNALED(end_of(pid)));
    cay_session_lock_free(lock(store, "s"));
    (void)close(ends[0]);
    (void)close(ends[1]);
}

TEST(a_child_that_was_forked_meanwhile_does_not_keep_the_lock)
{
    AUTO(cay_store) store = open_store();
    cay_session_lock *taken = lock(store, "s");
    fflush(stdout);
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    cay_session_lock_free(taken);
    cay_session_lock_free(lock(store, "s"));
    taken = lock(store, "s");
    ASSERT_INT(kill(pid, SIGKILL), 0);
    (void)end_of(pid);
    pid = fork();
    if (pid == 0) {
        left_open = store; /* for valgrind, which must not call it lost */
        cay_session_lock_free(taken);
        _exit(0);
    }
    ASSERT_INT(end_of(pid), 0);
    assert_locked(store, "s"); /* nor does it let go of its parent's */
    cay_session_lock_free(taken);
}

enum { THREADS = 4 };

struct counter {
    cay_store *store;
    int value;
    bool torn;
};

static void *count_up(void *cookie)
{
    struct counter *counter = cookie;

    for (int i = 0; i < 50; i++) {
        cay_session_lock *taken = NULL;
        if (cay_session_lock_take(counter->store, "ann", "s", i % 2 ? UINT64_MAX : 600000,
                                  &taken, NULL) != CAY_OK)
            counter->torn = true;
        int before = counter->value;
        sched_yield();
        counter->value = before + 1;
        cay_session_lock_free(taken);
    }
    return NULL;
}

TEST(threads_wait_for_each_others_locks)
{
    AUTO(cay_store) store = open_store();
    struct counter counter = {.store = store};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        ASSERT_INT(pthread_create(&threads[i], NULL, count_up, &counter), 0);
    for (int i = 0; i < THREADS; i++)
        ASSERT_INT(pthread_join(threads[i], NULL), 0);
    ASSERT(!counter.torn);
    ASSERT_INT(counter.value, THREADS * 50);
}
