/* SPDX-License-Identifier: Apache-2.0 */

/* bench-sandbox [--quick] CAY [BUNDLE]: measures sandboxes against a bare posix_spawn of
 * /bin/true and against what else there is on this machine, in turns.  CAY is the command
 * to measure; BUNDLE an OCI bundle that runs /bin/true, for crun. */
#include <cay/pool.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contest.h"
#include "race.h"
#include "scale.h"

enum {
    ROUNDS = 300,
    QUICK_ROUNDS = 20,
    POOL_COUNT = 16,
    POOL_READY = 8,
    POOL_MS = 60000
};

static const char *const truth[] = {"/bin/true", NULL};

void sandbox_ok(int code, const struct cay_error *err)
{
    if (!code)
        return;
    fprintf(stderr, "bench: %s: %s: %s (%s)\n", err->op, err->subject, err->message,
            err->hint);
    exit(1);
}

static void run_true(cay_sandbox *sandbox)
{
    const struct cay_exec_options options = {.size = sizeof options, .argv = truth};
    struct cay_exec_result result;
    struct cay_error err;

    sandbox_ok(cay_sandbox_exec(sandbox, &options, &result, &err), &err);
    if (result.exit_code)
        contest_die("/bin/true inside");
    cay_exec_done(&result);
}

static double exec_running(void *cookie)
{
    double start = race_now_us();

    run_true(cookie);
    return race_now_us() - start;
}

static cay_sandbox *make(void)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    struct cay_error err;
    cay_sandbox *sandbox;

    sandbox_ok(cay_sandbox_create(&options, &sandbox, &err), &err);
    return sandbox;
}

static void destroy(cay_sandbox *sandbox)
{
    struct cay_error err;

    sandbox_ok(cay_sandbox_kill(sandbox, &err), &err);
    cay_sandbox_free(sandbox);
}

/* When the answer is there. */
static double run_cold(cay_sandbox **ret_sandbox)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    const struct cay_exec_options exec = {
        .size = sizeof exec, .argv = truth, .flags = CAY_EXEC_LAST};
    struct cay_exec_result result;
    cay_process *process;
    struct cay_error err;

    sandbox_ok(cay_sandbox_run(&options, &exec, ret_sandbox, &process, &err), &err);
    sandbox_ok(cay_process_wait(process, UINT64_MAX, &result, &err), &err);
    double answered = race_now_us();
    if (result.exit_code)
        contest_die("/bin/true inside");
    cay_exec_done(&result);
    cay_process_free(process);
    return answered;
}

static double cold_answer(void *cookie)
{
    double start = race_now_us();
    cay_sandbox *sandbox;

    (void)cookie;
    double answered = run_cold(&sandbox);
    destroy(sandbox);
    return answered - start;
}

static double cold_whole(void *cookie)
{
    double start = race_now_us();
    cay_sandbox *sandbox;

    (void)cookie;
    (void)run_cold(&sandbox);
    destroy(sandbox);
    return race_now_us() - start;
}

static double cold_apart(void *cookie)
{
    double start = race_now_us();
    cay_sandbox *sandbox = make();

    (void)cookie;
    run_true(sandbox);
    destroy(sandbox);
    return race_now_us() - start;
}

/* --- From a pool --- */

static cay_pool *pool;

static void await_spares(void *cookie)
{
    struct cay_error err;

    (void)cookie;
    sandbox_ok(cay_pool_wait(pool, POOL_READY, POOL_MS, &err), &err);
}

static double pooled_answer(void *cookie)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .ephemeral = true, .pool = cay_pool_name(pool)};
    struct cay_error err;
    cay_sandbox *sandbox;
    double start = race_now_us();

    (void)cookie;
    sandbox_ok(cay_sandbox_create(&options, &sandbox, &err), &err);
    run_true(sandbox);
    double took = race_now_us() - start;
    destroy(sandbox);
    return took;
}

static double pooled_whole(void *cookie)
{
    double start = race_now_us();

    (void)pooled_answer(cookie);
    return race_now_us() - start;
}

/* The command takes spares of a shared pool only, so the pool is one.  `cay run` without
 * a pool is then one whose spares do not fit: with another disk limit. */
static void open_pool(void)
{
    const struct cay_pool_options options = {
        .size = sizeof options, .count = POOL_COUNT, .is_shared = true};
    struct cay_error err;

    sandbox_ok(cay_pool_create(&options, &pool, &err), &err);
    sandbox_ok(cay_pool_wait(pool, 0, POOL_MS, &err), &err);
}

/* In one of the usual places. */
static bool is_there(const char *program)
{
    static const char *const places[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    char path[128];

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s", places[i], program);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static const char *const bwrap[] = {"bwrap",
                                    "--unshare-all",
                                    "--ro-bind",
                                    "/usr",
                                    "/usr",
                                    "--symlink",
                                    "usr/bin",
                                    "/bin",
                                    "--symlink",
                                    "usr/lib",
                                    "/lib",
                                    "--symlink",
                                    "usr/lib64",
                                    "/lib64",
                                    "--proc",
                                    "/proc",
                                    "--dev",
                                    "/dev",
                                    "--tmpfs",
                                    "/tmp",
                                    "--die-with-parent",
                                    "/bin/true",
                                    NULL};

static void run_races(const char *part, const char *cay, const char *bundle,
                      unsigned rounds)
{
    const char *run[] = {cay, "run", "--disk", "511M", "--", "/bin/true", NULL};
    const char *run_pooled[] = {cay, "run", "--", "/bin/true", NULL};
    const char *crun[] = {"crun", "run", "--bundle", bundle, "cay-bench", NULL};
    cay_sandbox *running = make();
    const char *exec[] = {cay, "exec", cay_sandbox_id(running), "/bin/true", NULL};
    struct entrant entrants[12] = {
        {"posix_spawn of /bin/true", .run = race_spawn,
         .cookie = (void *)(uintptr_t)truth},
        {"exec in a running sandbox", 1.25, .run = exec_running, .cookie = running},
        {"create + exec, until the answer", 4.2, .run = cold_answer},
        {"create + exec + destroy", 5, .run = cold_whole},
        {"the same in three calls", .run = cold_apart},
        {"cay run -- /bin/true", 6, .run = race_spawn, .cookie = (void *)(uintptr_t)run},
        {"cay exec ID /bin/true", 1.6, .run = race_spawn,
         .cookie = (void *)(uintptr_t)exec},
        {"create + exec from a pool, until the answer", .run = pooled_answer,
         .before = await_spares},
        {"create + exec + destroy from a pool", 1.5, .run = pooled_whole,
         .before = await_spares},
        {"cay run -- /bin/true from a pool", 2.5, .run = race_spawn,
         .before = await_spares, .cookie = (void *)(uintptr_t)run_pooled},
    };
    unsigned count = 10;

    if (is_there("bwrap") && race_spawn((void *)(uintptr_t)bwrap) >= 0)
        entrants[count++] = (struct entrant){"bwrap", .is_peer = true, .run = race_spawn,
                                             .cookie = (void *)(uintptr_t)bwrap};
    /* It refuses some mixtures of cgroup versions. */
    if (bundle && is_there("crun") && race_spawn((void *)(uintptr_t)crun) >= 0)
        entrants[count++] =
            (struct entrant){"crun run", .is_peer = true, .run = race_spawn,
                             .cookie = (void *)(uintptr_t)crun};
    open_pool();
    race(part, entrants, count, rounds);
    cay_pool_free(pool);
    destroy(running);
}

/* Everything on one processor, and then beside a process that never sleeps. */
static void run_races_contended(const char *cay, const char *bundle, unsigned rounds)
{
    race_pin(true);
    run_races("sandbox on one processor", cay, bundle, rounds);
    race_pin(false);
    pid_t hog = fork();
    if (hog == 0)
        for (;;)
            continue;
    run_races("sandbox beside a busy process", cay, bundle, rounds);
    (void)kill(hog, SIGKILL);
    (void)waitpid(hog, NULL, 0);
}

static double freeze_and_thaw(void *cookie)
{
    double start = race_now_us();
    struct cay_error err;

    sandbox_ok(cay_sandbox_pause(cookie, &err), &err);
    sandbox_ok(cay_sandbox_resume(cookie, &err), &err);
    return race_now_us() - start;
}

static void run_pauses(unsigned rounds)
{
    static const char *const sleepers[] = {
        "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = sleepers};
    cay_sandbox *sandbox = make();
    struct cay_exec_result result;
    struct cay_error err;
    const struct entrant entrants[] = {{"posix_spawn of /bin/true", .run = race_spawn,
                                        .cookie = (void *)(uintptr_t)truth},
                                       {"pause + resume of 10 processes", .most_us = 200,
                                        .run = freeze_and_thaw, .cookie = sandbox}};

    sandbox_ok(cay_sandbox_exec(sandbox, &options, &result, &err), &err);
    cay_exec_done(&result);
    race("sandbox life", entrants, 2, rounds);
    destroy(sandbox);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    char **rest = argv + 1 + quick;
    unsigned rounds = quick ? QUICK_ROUNDS : ROUNDS;

    if (argc < 2 + quick) {
        fprintf(stderr, "usage: bench-sandbox [--quick] CAY [BUNDLE]\n");
        return 2;
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* each sandbox of ours takes three */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    run_races("sandbox", rest[0], rest[1], rounds);
    run_races_contended(rest[0], rest[1], rounds);
    run_pauses(rounds);
    scale_files(quick);
    scale_live(quick);
    scale_growth(rest[0], quick);
    return 0;
}
