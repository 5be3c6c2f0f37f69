/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_STORES_H
#define TESTS_STORES_H

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "cay/session.h"

static inline void auto_cay_store(cay_store **store)
{
    cay_store_free(*store);
}

static inline void auto_cay_session_lock(cay_session_lock **lock)
{
    cay_session_lock_free(*lock);
}

/* A store in a file of this test's own. */
static inline cay_store *open_store(void)
{
    cay_store *store = NULL;

    ASSERT_OK(cay_store_open(scratch_path("sessions.db"), &store, &err));
    return store;
}

static inline struct cay_session session_of(const char *user, const char *session)
{
    return (struct cay_session){
        .size = sizeof(struct cay_session), .user_id = user, .session_id = session};
}

/* Lives until the next call. */
static inline const struct cay_session *get_session(cay_store *store, const char *user,
                                                    const char *session)
{
    static struct cay_session *found;

    cay_free(found);
    found = NULL;
    ASSERT_OK(cay_store_get(store, user, session, &found, &err));
    return found;
}

/* Runs a function in a child, which must end well. */
static inline pid_t in_child(void (*run)(void *cookie), void *cookie)
{
    fflush(stdout);
    pid_t pid = fork();

    ASSERT(pid >= 0);
    if (pid == 0) {
        run(cookie);
        fflush(stdout);
        _exit(0);
    }
    return pid;
}

static inline int end_of(pid_t pid)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0)
        ASSERT_INT(errno, EINTR);
    return status;
}

#endif
