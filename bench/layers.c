/* SPDX-License-Identifier: Apache-2.0 */

/* bench-layers [--quick] CAY CONTEXT DIRECTORY: measures checkpoints, rollbacks and forks
 * against creates, cp and tar, and `cay build CONTEXT` if it is built already.  DIRECTORY
 * is for files of cp and tar. */
#include <cay/diff.h>
#include <cay/pool.h>
#include <cay/sandbox.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "contest.h"
#include "race.h"
#include "remount.h"

enum {
    ROUNDS = 100,
    QUICK_ROUNDS = 3,
    FILES_MAX = 100000,
    QUICK_FILES_MAX = 2000,
    AT_ONCE = 100,
    QUICK_AT_ONCE = 8,
    POOL_MS = 120000,
    MOST_US = 500,
    BUILD_US = 200000
};

static bool quick;
static const char *directory;

static void need(int code, const struct cay_error *err)
{
    if (!code)
        return;
    fprintf(stderr, "bench-layers: %s: %s: %s (%s)\n", err->op, err->subject,
            err->message, err->hint);
    exit(1);
}

static const struct cay_sandbox_options usual = {.size = sizeof usual,
                                                 .memory_bytes = 4ull << 30,
                                                 .disk_bytes = 2ull << 30,
                                                 .ephemeral = true};

static cay_sandbox *create(void)
{
    cay_sandbox *sandbox;
    struct cay_error err;

    need(cay_sandbox_create(&usual, &sandbox, &err), &err);
    return sandbox;
}

static void end(cay_sandbox *sandbox)
{
    struct cay_error err;

    if (sandbox)
        need(cay_sandbox_remove(sandbox, &err), &err);
    cay_sandbox_free(sandbox);
}

static void run_script(cay_sandbox *sandbox, const char *script, unsigned number)
{
    char text[16];
    const char *const argv[] = {"/bin/sh", "-c", script, "sh", text, NULL};
    const struct cay_exec_options exec = {
        .size = sizeof exec, .argv = argv, .user = "root", .cwd = "/"};
    struct cay_exec_result result;
    struct cay_error err;

    snprintf(text, sizeof text, "%u", number);
    need(cay_sandbox_exec(sandbox, &exec, &result, &err), &err);
    if (result.exit_code != 0)
        contest_die(script);
    cay_exec_done(&result);
}

static const char write_files[] = "mkdir -p /w && cd /w && i=0 && "
                                  "while [ $i -lt $1 ]; do echo $i > f$i; i=$((i+1)); "
                                  "done";

static struct cay_checkpoint seal(cay_sandbox *sandbox)
{
    struct cay_checkpoint checkpoint;
    struct cay_error err;

    need(cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err), &err);
    return checkpoint;
}

/* --- Checkpoints and rollbacks --- */

struct state {
    unsigned files; /* that change before each operation */
    bool is_kept;   /* one sandbox for all rounds, whose layers get more */
    cay_sandbox *sandbox;
    unsigned turns;
    char last[16]; /* checkpoint */
};

static void prepare(void *cookie)
{
    struct state *state = cookie;

    if (!state->is_kept) {
        end(state->sandbox);
        state->sandbox = create();
        run_script(state->sandbox, "echo $1 > /a", 0);
    }
    if (!state->is_kept || !state->turns)
        snprintf(state->last, sizeof state->last, "%u", seal(state->sandbox).id);
    if (state->files == 1)
        run_script(state->sandbox, "echo $1 > /a", ++state->turns);
    else
        run_script(state->sandbox, write_files, state->files);
}

static double checkpoint(void *cookie)
{
    struct state *state = cookie;
    double start = race_now_us();
    uint32_t id = seal(state->sandbox).id;
    double us = race_now_us() - start;

    snprintf(state->last, sizeof state->last, "%u", id);
    return us;
}

static double roll_back(void *cookie)
{
    struct state *state = cookie;
    struct cay_checkpoint undone;
    struct cay_error err;
    double start = race_now_us();

    need(cay_sandbox_rollback(state->sandbox, state->last, &undone, &err), &err);
    return race_now_us() - start;
}

/* As many layers, each with one file. */
static cay_sandbox *create_deep(unsigned depth)
{
    cay_sandbox *sandbox = create();

    for (unsigned i = 0; i < depth; i++) {
        run_script(sandbox, "echo $1 > /f$1", i);
        (void)seal(sandbox);
    }
    return sandbox;
}

/* --- cp and tar --- */

static char files_path[512], copy_path[512];
static const char *cp[] = {"cp", "-a", "--reflink=auto", files_path, copy_path, NULL};
static const char *tar[] = {"tar", "-cf", copy_path, files_path, NULL};
static const char *rm[] = {"rm", "-rf", copy_path, NULL};

static void remove_copy(void *cookie)
{
    (void)cookie;
    (void)race_spawn(rm);
}

static void write_plain(unsigned count)
{
    char script[2048];
    const char *argv[] = {"/bin/sh", "-c", script, NULL};

    snprintf(files_path, sizeof files_path, "%s/files-%u", directory, count);
    snprintf(copy_path, sizeof copy_path, "%s/copy", directory);
    snprintf(script, sizeof script,
             "mkdir '%s'; cd '%s'; i=0; while [ $i -lt %u ]; do echo $i > f$i; "
             "i=$((i+1)); done",
             files_path, files_path, count);
    if (race_spawn(argv) < 0)
        contest_die("files");
}

static void race_files(const char *part, unsigned count, unsigned rounds)
{
    static const char *true_argv[] = {"/bin/true", NULL};
    static char names[2][64];
    struct state states[2] = {{.files = count}, {.files = count}};

    snprintf(names[0], sizeof names[0], "checkpoint, %u changed before", count);
    snprintf(names[1], sizeof names[1], "rollback, %u changed before", count);
    write_plain(count);
    const struct entrant entrants[] = {
        {"posix_spawn of /bin/true", .run = race_spawn, .cookie = true_argv},
        {"the mounts of a checkpoint alone, by system calls", .run = remount_run},
        {names[0], 0, MOST_US, .before = prepare, checkpoint, &states[0]},
        {names[1], 0, MOST_US, .before = prepare, roll_back, &states[1]},
        {"cp -a --reflink=auto of them", .is_peer = true, remove_copy, race_spawn, cp},
        {"tar of them", .is_peer = true, remove_copy, race_spawn, tar}};
    race(part, entrants, sizeof entrants / sizeof *entrants, rounds);
    end(states[0].sandbox);
    end(states[1].sandbox);
    remove_copy(NULL);
    snprintf(copy_path, sizeof copy_path, "%s", files_path);
    remove_copy(NULL);
}

/* --- Depth, and processes --- */

static bool can_run_meanwhile(cay_sandbox *sandbox)
{
    struct cay_checkpoint checkpoint_now;
    struct cay_error err;

    run_script(sandbox, "sleep 100000 > /dev/null 2>&1 < /dev/null & echo $1 > /a", 0);
    return cay_sandbox_checkpoint(sandbox, NULL, &checkpoint_now, &err) == CAY_OK;
}

static void race_depths(const char *part, unsigned rounds)
{
    unsigned deep = quick ? 10 : 100, deepest = quick ? 40 : 500;
    struct state states[6];
    cay_sandbox *busy = create();
    char names[5][64];

    for (size_t i = 0; i < 6; i++)
        states[i] = (struct state){.files = 1,
                                   .is_kept = true,
                                   .sandbox = create_deep(i < 2   ? 1
                                                          : i < 4 ? deep
                                                                  : deepest)};
    snprintf(names[0], sizeof names[0], "checkpoint at depth 1");
    snprintf(names[1], sizeof names[1], "rollback at depth %u", deep);
    snprintf(names[2], sizeof names[2], "checkpoint at depth %u", deep);
    snprintf(names[3], sizeof names[3], "rollback at depth %u", deepest);
    snprintf(names[4], sizeof names[4], "checkpoint at depth %u", deepest);
    struct state running = {.files = 1, .is_kept = true, .sandbox = busy};
    const struct entrant entrants[] = {
        {names[0], 0, MOST_US, .before = prepare, checkpoint, &states[0]},
        {"rollback at depth 1", 0, MOST_US, .before = prepare, roll_back, &states[1]},
        {names[2], 0, MOST_US, .before = prepare, checkpoint, &states[2]},
        {names[1], 0, MOST_US, .before = prepare, roll_back, &states[3]},
        {names[4], 0, MOST_US, .before = prepare, checkpoint, &states[4]},
        {names[3], 0, MOST_US, .before = prepare, roll_back, &states[5]},
        {"checkpoint while a process runs", .before = prepare, checkpoint, &running}};
    race(part, entrants, 6 + can_run_meanwhile(busy), rounds);
    for (size_t i = 0; i < 6; i++)
        end(states[i].sandbox);
    end(busy);
}

/* --- Forks --- */

struct forks {
    cay_sandbox *source; /* NULL: creates */
    cay_pool *pool;
    size_t count;
    cay_sandbox *made[AT_ONCE];
    size_t next;
    pthread_mutex_t mutex;
};

static void end_forks(void *cookie)
{
    struct forks *forks = cookie;

    for (size_t i = 0; i < forks->count; i++) {
        end(forks->made[i]);
        forks->made[i] = NULL;
    }
    struct cay_error err;
    if (forks->pool)
        need(cay_pool_wait(forks->pool, 0, POOL_MS, &err), &err);
}

static struct cay_sandbox_options options_of(const struct forks *forks)
{
    struct cay_sandbox_options options = usual;

    options.pool = forks->pool ? cay_pool_name(forks->pool) : NULL;
    return options;
}

static void *create_some(void *cookie)
{
    struct forks *forks = cookie;
    const struct cay_sandbox_options options = options_of(forks);
    struct cay_error err;

    for (;;) {
        pthread_mutex_lock(&forks->mutex);
        size_t i = forks->next++;
        pthread_mutex_unlock(&forks->mutex);
        if (i >= forks->count)
            return NULL;
        need(cay_sandbox_create(&options, &forks->made[i], &err), &err);
    }
}

/* By as many threads as cay_sandbox_fork() has. */
static void create_many(struct forks *forks)
{
    pthread_t threads[16];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = processors < 8 ? 2 * (size_t)processors : 16, count = 0;

    forks->next = 0;
    while (count + 1 < wanted && count + 1 < forks->count &&
           pthread_create(&threads[count], NULL, create_some, forks) == 0)
        count++;
    (void)create_some(forks);
    while (count > 0)
        pthread_join(threads[--count], NULL);
}

static double create_forks(void *cookie)
{
    struct forks *forks = cookie;
    const struct cay_sandbox_options options = options_of(forks);
    struct cay_error err;
    double start = race_now_us();

    if (!forks->source)
        create_many(forks);
    else
        need(cay_sandbox_fork(forks->source, "1", &options, forks->count, forks->made,
                              NULL, &err),
             &err);
    return race_now_us() - start;
}

/* For creates, or for forks of the first checkpoint. */
static cay_pool *create_pool(cay_sandbox *source, size_t count)
{
    struct cay_sandbox_options sandbox = usual;
    const struct cay_pool_options options = {.size = sizeof options,
                                             .sandbox = &sandbox,
                                             .count = (uint32_t)count + 2,
                                             .memory_bytes = 8ull << 30};
    struct cay_error err;
    cay_pool *pool = NULL;
    char from[64];

    if (source) {
        snprintf(from, sizeof from, "%s:1", cay_sandbox_id(source));
        sandbox.from = from;
    }
    need(cay_pool_create(&options, &pool, &err), &err);
    return pool;
}

/* Creates and forks, without and with a pool. */
static void race_forks(const char *part, const char *const names[4], size_t count,
                       unsigned rounds)
{
    static struct forks forks[4];
    cay_sandbox *source = create();
    cay_pool *pools[2];

    run_script(source, write_files, 100);
    (void)seal(source);
    pools[0] = create_pool(NULL, count);
    pools[1] = create_pool(source, count);
    for (size_t i = 0; i < 4; i++) {
        forks[i] = (struct forks){.source = i % 2 ? source : NULL,
                                  .pool = i < 2 ? NULL : pools[i % 2],
                                  .count = count};
        pthread_mutex_init(&forks[i].mutex, NULL);
    }
    const struct entrant entrants[] = {
        {names[0], .before = end_forks, create_forks, &forks[0]},
        {names[1], 1.2, .before = end_forks, create_forks, &forks[1]},
        {names[2], .before = end_forks, create_forks, &forks[2]},
        {names[3], 0.6, .before = end_forks, create_forks, &forks[3]}};
    race(part, entrants, 4, rounds);
    for (size_t i = 0; i < 4; i++) {
        forks[i].pool = NULL;
        end_forks(&forks[i]);
    }
    cay_pool_free(pools[0]);
    cay_pool_free(pools[1]);
    end(source);
}

/* --- Differences, and builds --- */

static double compare(void *cookie)
{
    cay_sandbox *sandbox = cookie;
    cay_diff *diff = NULL;
    struct cay_error err;
    double start = race_now_us();

    need(cay_sandbox_diff_checkpoints(cay_sandbox_id(sandbox), "1", "2", NULL, &diff,
                                      &err),
         &err);
    cay_diff_free(diff);
    return race_now_us() - start;
}

static cay_sandbox *create_changed(unsigned files)
{
    cay_sandbox *sandbox = create();

    (void)seal(sandbox);
    run_script(sandbox, write_files, files);
    (void)seal(sandbox);
    return sandbox;
}

static void race_rest(const char *part, const char *cay, const char *context,
                      unsigned rounds)
{
    static const char *build[] = {NULL, "build", "-q", "-t", "bench", NULL, NULL};
    cay_sandbox *one = create_changed(1), *thousand = create_changed(1000),
                *many = create_changed(quick ? 2000 : 10000);
    const struct entrant entrants[] = {
        {"diff of 1 changed file", .run = compare, .cookie = one},
        {"diff of 1,000 changed files", .run = compare, .cookie = thousand},
        {"diff of 10,000 changed files", .run = compare, .cookie = many},
        {"cay build, all steps cached", 0, BUILD_US, .run = race_spawn, .cookie = build}};

    build[0] = cay;
    build[5] = context;
    race(part, entrants, sizeof entrants / sizeof *entrants, rounds);
    end(one);
    end(thousand);
    end(many);
}

static void run_all(const char *suffix, const char *cay, const char *context)
{
    static const char *const one[] = {"create", "fork", "create from a pool",
                                      "fork from a pool"};
    static const char *const many[] = {
        "100 creates", "100 forks", "100 creates from a pool", "100 forks from a pool"};
    static const char *const some[] = {"8 creates", "8 forks", "8 creates from a pool",
                                       "8 forks from a pool"};
    unsigned rounds = quick ? QUICK_ROUNDS : ROUNDS, few = quick ? 1 : 5;
    char part[64];

    if (!remount_start())
        contest_die("remount");
    snprintf(part, sizeof part, "layers%s", suffix);
    race_files(part, 1, rounds);
    race_files(part, 1000, quick ? 2 : rounds / 4);
    if (!*suffix) /* cp takes minutes */
        race_files(part, quick ? QUICK_FILES_MAX : FILES_MAX, 2);
    race_depths(part, rounds);
    snprintf(part, sizeof part, "forks%s", suffix);
    race_forks(part, one, 1, rounds);
    race_forks(part, quick ? some : many, quick ? QUICK_AT_ONCE : AT_ONCE, few);
    snprintf(part, sizeof part, "layers rest%s", suffix);
    race_rest(part, cay, context, rounds / 4 + 1);
}

int main(int argc, char **argv)
{
    struct rlimit files;

    quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (argc != 4 + quick) {
        fprintf(stderr, "usage: bench-layers [--quick] CAY CONTEXT DIRECTORY\n");
        return 2;
    }
    directory = argv[argc - 1];
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* each sandbox of ours takes three */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    run_all("", argv[argc - 3], argv[argc - 2]);
    race_pin(true);
    run_all(" on one processor", argv[argc - 3], argv[argc - 2]);
    race_pin(false);
    return 0;
}
