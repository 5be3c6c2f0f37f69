/* SPDX-License-Identifier: Apache-2.0 */

/* Two hundred sessions at a time, by eight programs with one store. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "sessions.h"

enum { PROGRAMS = 8, SESSIONS = 25 };

/* So that all are there at the same time. */
static pthread_barrier_t *barrier;

static void make_barrier(void)
{
    pthread_barrierattr_t attributes;

    barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(barrier != MAP_FAILED);
    ASSERT_INT(pthread_barrierattr_init(&attributes), 0);
    ASSERT_INT(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
    ASSERT_INT(pthread_barrier_init(barrier, &attributes, PROGRAMS), 0);
    pthread_barrierattr_destroy(&attributes);
}

/* A process that fails ends the others: they would wait at the barrier for ever. */
static void meet(void)
{
    int met = pthread_barrier_wait(barrier);

    ASSERT(met == 0 || met == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* What a session's file says. */
static const char *words_of(int program, int session)
{
    static char words[32];

    snprintf(words, sizeof words, "%d %d", program, session);
    return words;
}

static void run_program(void *cookie)
{
    int program = *(const int *)cookie;
    cay_config *config = config_of("{limits: {memory: 64M, pids: 32}}");
    cay_store *store = open_store();
    cay_manager *managers[SESSIONS];
    char name[32];

    for (int i = 0; i < SESSIONS; i++) {
        snprintf(name, sizeof name, "s-%d-%d", program, i);
        managers[i] = manage(store, name, config);
        if (i % 2)
            ASSERT_OK(cay_manager_start_no_wait(managers[i], &err));
        else
            ASSERT_OK(cay_manager_start(managers[i], &err));
    }
    for (int i = 0; i < SESSIONS; i++) {
        char script[64];
        snprintf(script, sizeof script, "echo %s > file", words_of(program, i));
        (void)told(sandbox_of(managers[i]), script);
    }
    meet();
    ASSERT_INT(count_sandboxes(), PROGRAMS * SESSIONS);
    meet();
    for (int i = 0; i < SESSIONS; i++)
        if (i % 2)
            ASSERT_OK(cay_manager_pause_no_wait(managers[i], &err));
        else
            ASSERT_OK(cay_manager_pause(managers[i], &err));
    for (int i = 0; i < SESSIONS; i++)
        ASSERT_OK(cay_manager_wait(managers[i], &err));
    meet();
    for (int i = 0; i < SESSIONS; i++) {
        ASSERT_STR(told(sandbox_of(managers[i]), "cat file"), words_of(program, i));
        snprintf(name, sizeof name, "s-%d-%d", program, i);
        ASSERT_INT(get_session(store, "ann", name)->state, CAY_STATE_RUNNING);
    }
    meet();
    for (int i = 0; i < SESSIONS; i++) {
        ASSERT_OK(cay_manager_stop(managers[i], &err));
        cay_manager_free(managers[i]);
    }
    cay_store_free(store);
    cay_config_free(config);
}

TEST(two_hundred_sessions_live_side_by_side)
{
    int numbers[PROGRAMS];
    pid_t pids[PROGRAMS];
    struct cay_session *sessions = NULL;
    size_t count = 0;
    int failed = 0;

    need_own_world();
    make_barrier();
    for (int i = 0; i < PROGRAMS; i++) {
        numbers[i] = i;
        pids[i] = in_child(run_program, &numbers[i]);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, 0)) < 0)
            ASSERT_INT(errno, EINTR);
        for (int k = 0; status && k < PROGRAMS; k++)
            if (pids[k] != pid)
                (void)kill(pids[k], SIGKILL);
        failed += status != 0;
    }
    ASSERT_INT(failed, 0);
    (void)munmap(barrier, sizeof *barrier);
    assert_empty_world();
    AUTO(cay_store) store = open_store();
    ASSERT_OK(cay_store_list(store, NULL, &sessions, &count, &err));
    ASSERT_INT(count, PROGRAMS * SESSIONS);
    for (size_t i = 0; i < count; i++)
        ASSERT_STR(sessions[i].sandbox_id, "");
    cay_free(sessions);
    ASSERT_OK(cay_store_collect(store, &count, &err));
    ASSERT_INT(count, 0);
}
