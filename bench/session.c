/* SPDX-License-Identifier: Apache-2.0 */

/* bench-session [--quick] DIRECTORY: measures sessions, whose store is in the directory,
 * against a bare posix_spawn of /bin/true, in turns.  What a store has written is on the
 * disk: much of it is the disk's time. */
#include <cay/session.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contest.h"
#include "race.h"

enum { ROUNDS = 200, QUICK_ROUNDS = 10 };

static const char *const truth[] = {"/bin/true", NULL};
static char store_path[4096];

static void need(int code, const struct cay_error *err)
{
    if (!code)
        return;
    fprintf(stderr, "bench: %s: %s: %s (%s)\n", err->op, err->subject, err->message,
            err->hint);
    exit(1);
}

static cay_store *open_store(void)
{
    struct cay_error err;
    cay_store *store;

    need(cay_store_open(store_path, &store, &err), &err);
    return store;
}

static cay_manager *manage(cay_store *store, const char *session)
{
    const struct cay_manager_options options = {.size = sizeof options,
                                                .store = store,
                                                .user_id = "bench",
                                                .session_id = session};
    struct cay_error err;
    cay_manager *manager;

    need(cay_manager_new(&options, &manager, &err), &err);
    return manager;
}

static void run_true(cay_manager *manager)
{
    const struct cay_exec_options options = {.size = sizeof options, .argv = truth};
    struct cay_exec_result result;
    struct cay_error err;
    cay_sandbox *sandbox;

    need(cay_manager_sandbox(manager, &sandbox, &err), &err);
    need(cay_sandbox_exec(sandbox, &options, &result, &err), &err);
    if (result.exit_code)
        contest_die("/bin/true inside");
    cay_exec_done(&result);
}

static void stop(cay_manager *manager)
{
    struct cay_error err;

    need(cay_manager_stop(manager, &err), &err);
    cay_manager_free(manager);
}

/* --- What is measured --- */

static double start_new(void *cookie)
{
    double start = race_now_us();
    cay_manager *manager = manage(cookie, "new");

    run_true(manager);
    double answered = race_now_us();
    stop(manager);
    return answered - start;
}

/* Nothing is kept, and so nothing is written down. */
static double start_unkept(void *cookie)
{
    (void)cookie;
    return start_new(NULL);
}

static double restore(void *cookie)
{
    double start = race_now_us();
    cay_manager *manager = manage(cookie, "kept");

    run_true(manager);
    double answered = race_now_us();
    cay_manager_free(manager);
    return answered - start;
}

/* As a program does that has just been started. */
static double restore_from_disk(void *cookie)
{
    double start = race_now_us();
    cay_store *store = open_store();

    (void)cookie;
    (void)restore(store);
    double answered = race_now_us();
    cay_store_free(store);
    return answered - start;
}

static double pause_and_resume(void *cookie)
{
    double start = race_now_us();
    struct cay_error err;

    need(cay_manager_pause(cookie, &err), &err);
    need(cay_manager_start(cookie, &err), &err);
    return race_now_us() - start;
}

static double write_down(void *cookie)
{
    const struct cay_session session = {
        .size = sizeof session, .user_id = "bench", .session_id = "put", .data = "{}"};
    double start = race_now_us();
    struct cay_error err;

    need(cay_store_put(cookie, &session, &err), &err);
    return race_now_us() - start;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;

    if (argc != 2 + quick) {
        fprintf(stderr, "usage: bench-session [--quick] DIRECTORY\n");
        return 2;
    }
    snprintf(store_path, sizeof store_path, "%s/sessions.db", argv[1 + quick]);
    cay_store *store = open_store();
    cay_manager *kept = manage(store, "kept");
    run_true(kept);
    const struct entrant entrants[] = {
        {"posix_spawn of /bin/true", .run = race_spawn,
         .cookie = (void *)(uintptr_t)truth},
        {"start to first command", .run = start_new, .cookie = store},
        {"start to first command, no store", .run = start_unkept},
        {"restore to first command", .run = restore, .cookie = store},
        {"restore to first command, store opened", .run = restore_from_disk},
        {"pause + resume", .run = pause_and_resume, .cookie = kept},
        {"one change of the store", .run = write_down, .cookie = store},
    };
    race("sessions", entrants, sizeof entrants / sizeof *entrants,
         quick ? QUICK_ROUNDS : ROUNDS);
    stop(kept);
    cay_store_free(store);
    return 0;
}
