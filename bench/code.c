/* SPDX-License-Identifier: Apache-2.0 */

/* bench-code [--quick] CAY: measures code in contexts, against bare interpreters of this
 * machine.  Contexts that name their user start Python as usual; those of the default
 * user start as copies of a saved interpreter. */
#include <cay/code.h>
#include <cay/pool.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contest.h"
#include "race.h"

enum {
    ROUNDS = 100,
    QUICK_ROUNDS = 5,
    CALL_ROUNDS = 2000,
    QUICK_CALL_ROUNDS = 50,
    POOL_COUNT = 8,
    POOL_READY = 4,
    POOL_MS = 60000,
    SANDBOXES = 100,
    IDLE = 10,
    IDLE_KIB = 3 << 10
};

/* The interpreter that sandboxes find: PATH of the host may begin with another one. */
#define PYTHON "/usr/bin/python3"

static const char small[] = "print(1)";
static const char large[] = "import numpy, pandas\n"
                            "print(pandas.DataFrame({'a': numpy.arange(3)}).a.sum())";
static const char *const bare_small[] = {PYTHON, "-c", small, NULL};
static const char *const bare_large[] = {PYTHON, "-c", large, NULL};

static void need(int code, const struct cay_error *err)
{
    if (!code)
        return;
    fprintf(stderr, "bench: %s: %s: %s (%s)\n", err->op, err->subject, err->message,
            err->hint);
    exit(1);
}

/* --- First results --- */

static cay_pool *pool;

struct first {
    const char *code;
    bool is_warm, is_pooled;
    bool is_whole; /* until the sandbox is destroyed, not only until the result */
};

static cay_sandbox *make(bool is_pooled)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true,
                                                .pool = is_pooled ? cay_pool_name(pool)
                                                                  : NULL};
    struct cay_error err;
    cay_sandbox *sandbox;

    need(cay_sandbox_create(&options, &sandbox, &err), &err);
    return sandbox;
}

static void destroy(cay_sandbox *sandbox)
{
    struct cay_error err;

    need(cay_sandbox_kill(sandbox, &err), &err);
    cay_sandbox_free(sandbox);
}

static struct cay_code_execution execute(cay_sandbox *sandbox, const char *code,
                                         const char *language, const char *user)
{
    const struct cay_code_options options = {
        .size = sizeof options, .language = language, .user = user};
    struct cay_code_execution execution;
    struct cay_error err;

    need(cay_code_execute(sandbox, code, strlen(code), &options, &execution, &err), &err);
    if (execution.status != CAY_CODE_SUCCESS) {
        fprintf(stderr, "bench: %s: %s\n", execution.error_name, execution.error_value);
        exit(1);
    }
    return execution;
}

/* In a new sandbox, with the result "1" or "3" on stdout. */
static void execute_first(cay_sandbox *sandbox, const char *code, bool is_warm)
{
    struct cay_code_execution execution =
        execute(sandbox, code, NULL, is_warm ? NULL : "user");

    if (execution.out_len != 2 || execution.is_warm != is_warm) {
        fprintf(stderr, "bench: the output is %s, the interpreter %s\n", execution.out,
                execution.is_warm ? "warm" : "cold");
        exit(1);
    }
    cay_code_execution_done(&execution);
}

static double run_first(void *cookie)
{
    const struct first *first = cookie;
    double start = race_now_us();
    cay_sandbox *sandbox = make(first->is_pooled);

    execute_first(sandbox, first->code, first->is_warm);
    double answered = race_now_us();
    destroy(sandbox);
    return (first->is_whole ? race_now_us() : answered) - start;
}

static void await_spares(void *cookie)
{
    struct cay_error err;

    (void)cookie;
    need(cay_pool_wait(pool, POOL_READY, POOL_MS, &err), &err);
}

static void open_pool(void)
{
    const struct cay_pool_options options = {.size = sizeof options, .count = POOL_COUNT};
    struct cay_error err;

    need(cay_pool_create(&options, &pool, &err), &err);
    need(cay_pool_wait(pool, 0, POOL_MS, &err), &err);
}

static void write_file(char *template, const char *text)
{
    int fd = mkstemp(template);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        contest_die(template);
    close(fd);
}

static void race_first(const char *part, const char *cay, bool is_large, unsigned rounds)
{
    const char *code = is_large ? large : small;
    const double most = is_large ? 0.05 : 0.5;
    struct first cold = {code, .is_whole = false}, cold_whole = {code, .is_whole = true};
    struct first cold_pool = {code, .is_pooled = true};
    struct first warm = {code, true}, warm_whole = {code, true, .is_whole = true};
    struct first warm_pool = {code, true, true};
    char file[] = "/tmp/cay-bench-XXXXXX";
    const char *command[] = {cay, "code", "--new", file, NULL};
    const struct entrant entrants[] = {
        {is_large ? "bare python3, import numpy, pandas" : "bare python3 -c 'print(1)'",
         .run = race_spawn,
         .cookie = (void *)(uintptr_t)(is_large ? bare_large : bare_small)},
        {"first result, cold", .run = run_first, .cookie = &cold},
        {"first result and destroy, cold", .run = run_first, .cookie = &cold_whole},
        {"first result from a pool, cold", .before = await_spares, .run = run_first,
         .cookie = &cold_pool},
        {"first result, warm", most, .run = run_first, .cookie = &warm},
        {"first result and destroy, warm", most, .run = run_first, .cookie = &warm_whole},
        {"first result from a pool, warm", most, .before = await_spares, .run = run_first,
         .cookie = &warm_pool},
        {"cay code --new, warm", .run = race_spawn, .cookie = command},
    };

    write_file(file, code);
    open_pool();
    race(part, entrants, sizeof entrants / sizeof *entrants, rounds);
    cay_pool_free(pool);
    (void)unlink(file);
}

/* --- Calls in a live context --- */

struct live {
    const char *language, *code;
    const char *const *bare; /* an interpreter that executes what it reads */
    cay_sandbox *sandbox;
    pid_t pid;
    int to, from;
};

static const char *const bare_python[] = {
    PYTHON, "-c",
    "import os\nwhile code := os.read(0, 4096): exec(code); os.write(1, b'.')", NULL};
static const char *const bare_node[] = {
    "node", "-e",
    "process.stdin.on('data', (code) => { eval(String(code)); fs.writeSync(1, '.'); })",
    NULL};
static const char *const bare_bash[] = {
    "bash", "-c", "while read -r code; do eval \"$code\"; printf .; done", NULL};

static void start_bare(struct live *live)
{
    posix_spawn_file_actions_t actions;
    int in[2], out[2];

    if (pipe(in) != 0 || pipe(out) != 0)
        contest_die("pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    if (posix_spawnp(&live->pid, live->bare[0], &actions, NULL,
                     (char *const *)(uintptr_t)live->bare, environ) != 0)
        contest_die(live->bare[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    live->to = in[1];
    live->from = out[0];
}

static bool call_bare(void *cookie)
{
    const struct live *live = cookie;
    char line[64], answer;
    int len = snprintf(line, sizeof line, "%s\n", live->code);

    return write(live->to, line, (size_t)len) == len && read(live->from, &answer, 1) == 1;
}

static bool call_live(void *cookie)
{
    const struct live *live = cookie;
    struct cay_code_execution execution =
        execute(live->sandbox, live->code, live->language, NULL);

    cay_code_execution_done(&execution);
    return true;
}

static void contest_calls(const char *part, unsigned rounds)
{
    struct live lives[] = {{"python", "x = 1", bare_python},
                           {"javascript", "x = 1", bare_node},
                           {"bash", "x=1", bare_bash}};
    static const char *const ops[] = {"a call in a live context, python",
                                      "a call in a live context, javascript",
                                      "a call in a live context, bash"};

    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        struct live *live = &lives[i];
        live->sandbox = make(false);
        start_bare(live);
        const struct contest contest = {.part = part,
                                        .op = ops[i],
                                        .floor = "a bare loop: read, evaluate, write",
                                        .rounds = rounds,
                                        .most_us = 300,
                                        .run = {call_live, call_bare},
                                        .cookie = live};
        (void)call_live(live);
        (void)call_bare(live);
        contest_run(&contest);
        destroy(live->sandbox);
        close(live->to);
        close(live->from);
        (void)waitpid(live->pid, NULL, 0);
    }
}

/* --- Many at once --- */

static void *run_one(void *cookie)
{
    (void)run_first(cookie);
    return NULL;
}

static double run_many(void *cookie)
{
    pthread_t threads[SANDBOXES];
    double start = race_now_us();

    for (size_t i = 0; i < SANDBOXES; i++)
        if (pthread_create(&threads[i], NULL, run_one, cookie) != 0)
            contest_die("pthread_create");
    for (size_t i = 0; i < SANDBOXES; i++)
        (void)pthread_join(threads[i], NULL);
    return race_now_us() - start;
}

/* So many at a time. */
static double spawn_many(void *cookie)
{
    const long at_a_time = *(const long *)cookie;
    char *const *argv = (char *const *)(uintptr_t)bare_small;
    posix_spawn_file_actions_t actions;
    double start = race_now_us();
    int status;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    for (long i = 0; i < SANDBOXES + at_a_time; i++) {
        pid_t pid;
        if (i >= at_a_time && (wait(&status) < 0 || status != 0))
            return -1;
        if (i < SANDBOXES &&
            posix_spawnp(&pid, PYTHON, &actions, NULL, argv, environ) != 0)
            return -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    return race_now_us() - start;
}

static void race_many(unsigned rounds)
{
    struct first cold = {small}, warm = {small, true}, warm_large = {large, true};
    long processors = sysconf(_SC_NPROCESSORS_ONLN), all = SANDBOXES;
    const struct entrant entrants[] = {
        {"100 bare python3, one for each processor at a time", .run = spawn_many,
         .cookie = &processors},
        {"100 bare python3 at once", .run = spawn_many, .cookie = &all},
        {"100 sandboxes at once, cold", .run = run_many, .cookie = &cold},
        {"100 sandboxes at once, warm", .run = run_many, .cookie = &warm},
        {"100 sandboxes at once, warm, numpy and pandas", .run = run_many,
         .cookie = &warm_large},
    };

    race("code, 100 at once", entrants, sizeof entrants / sizeof *entrants, rounds);
}

/* --- Forks --- */

struct forked {
    cay_sandbox *source;
    const char *user;          /* "user": a cold context; NULL: one that may be warm */
    bool saves;                /* the contexts of each fork */
    cay_saved_contexts *saved; /* or NULL */
};

static void restore(cay_sandbox *made, const cay_saved_contexts *saved)
{
    struct cay_error err;

    need(cay_contexts_restore(made, saved, &err), &err);
}

/* Until the variable of the first sandbox, or the same from new imports, is printed. */
static double run_fork(void *cookie)
{
    const struct forked *forked = cookie;
    cay_saved_contexts *own = NULL;
    const cay_saved_contexts *saved = forked->saved;
    struct cay_error err;
    cay_sandbox *made;

    double start = race_now_us();
    if (forked->saves) {
        need(cay_contexts_save(forked->source, NULL, &own, &err), &err);
        saved = own;
    }
    need(cay_sandbox_fork(forked->source, NULL, NULL, 1, &made, NULL, &err), &err);
    if (saved)
        restore(made, saved);
    struct cay_code_execution execution =
        execute(made, saved ? "print(kept)" : large, NULL, forked->user);
    double answered = race_now_us();
    if (strcmp(execution.out, "3\n") != 0) {
        fprintf(stderr, "bench: a fork printed %s\n", execution.out);
        exit(1);
    }
    cay_code_execution_done(&execution);
    cay_saved_contexts_free(own);
    destroy(made);
    return answered - start;
}

static void race_forks(unsigned rounds)
{
    static const char code[] = "import numpy, pandas\n"
                               "kept = pandas.DataFrame({'a': numpy.arange(3)}).a.sum()";
    cay_sandbox *source = make(false);
    struct forked cold = {source, "user", .saves = false},
                  warm = {source, .saves = false}, saves = {source, .saves = true},
                  shares = {source, .saves = false};
    struct cay_error err;
    const struct entrant entrants[] = {
        {"fork, import numpy and pandas, cold", .run = run_fork, .cookie = &cold},
        {"fork, import numpy and pandas, warm", .run = run_fork, .cookie = &warm},
        {"save the context, fork, result", 0.5, .run = run_fork, .cookie = &saves},
        {"fork with a saved context, result", 0.2, .run = run_fork, .cookie = &shares},
    };

    struct cay_code_execution execution = execute(source, code, NULL, NULL);
    cay_code_execution_done(&execution);
    need(cay_contexts_save(source, NULL, &shares.saved, &err), &err);
    race("code in forks", entrants, sizeof entrants / sizeof *entrants, rounds);
    cay_saved_contexts_free(shares.saved);
    destroy(source);
}

/* Forks need root and Linux 6.15. */
static bool has_forks(void)
{
    cay_sandbox *source = make(false), *made = NULL;
    struct cay_error err;
    int code = cay_sandbox_fork(source, NULL, NULL, 1, &made, NULL, &err);

    if (!code)
        destroy(made);
    destroy(source);
    return code == CAY_OK;
}

/* --- Memory --- */

static double number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtod(at + strlen(name), NULL) : 0;
}

static bool read_proc(int pid, const char *name, char *text, size_t room)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "re");
    size_t len = file ? fread(text, 1, room - 1, file) : 0;
    text[len] = '\0';
    if (file)
        fclose(file);
    return len > 0;
}

/* The process on the host that has this number in the PID namespace of the sandbox: a
 * child of a child... of its PID 1. */
static int find_process(int parent, int inside)
{
    char text[4096], path[64];
    int found = 0;

    snprintf(path, sizeof path, "task/%d/children", parent);
    if (!read_proc(parent, path, text, sizeof text))
        return 0;
    for (char *at = text, *next; !found; at = next) {
        int pid = (int)strtol(at, &next, 10);
        char status[4096];
        if (next == at)
            return 0;
        if (!read_proc(pid, "status", status, sizeof status))
            continue;
        char *line = strstr(status, "NSpid:");
        if (line) {
            line[strcspn(line, "\n")] = '\0';
            char *last = strrchr(line, '\t');
            if (last && strtol(last + 1, NULL, 10) == inside)
                return pid;
        }
        found = find_process(pid, inside);
    }
    return found;
}

static void measure_memory(cay_sandbox *sandbox, double kib[3])
{
    struct cay_sandbox_info info;
    struct cay_context_infos contexts;
    struct cay_error err;
    char text[4096];

    need(cay_sandbox_inspect(sandbox, &info, &err), &err);
    need(cay_context_list(sandbox, NULL, &contexts, &err), &err);
    int pid = contexts.count ? find_process(info.init_pid, contexts.items[0].pid) : 0;
    cay_context_infos_done(&contexts);
    if (!pid || !read_proc(pid, "smaps_rollup", text, sizeof text))
        contest_die("smaps_rollup");
    kib[0] += number_after(text, "Private_Clean:") + number_after(text, "Private_Dirty:");
    kib[1] += number_after(text, "Shared_Clean:") + number_after(text, "Shared_Dirty:");
    kib[2] += number_after(text, "\nPss:");
}

static void measure_idle(const char *what, const char *code, bool is_warm, double most)
{
    static const char *const kinds[] = {"private", "shared", "proportional (PSS)"};
    cay_sandbox *sandboxes[IDLE];
    double kib[3] = {0};
    char op[128];

    for (size_t i = 0; i < IDLE; i++) {
        sandboxes[i] = make(false);
        execute_first(sandboxes[i], code, is_warm);
    }
    for (size_t i = 0; i < IDLE; i++)
        measure_memory(sandboxes[i], kib);
    for (size_t i = 0; i < IDLE; i++)
        destroy(sandboxes[i]);
    for (size_t i = 0; i < 3; i++) {
        snprintf(op, sizeof op, "%s: %s", what, kinds[i]);
        race_print("memory of idle contexts", op, IDLE, kib[i] / IDLE, i == 0 ? most : 0);
    }
}

static void run_all(const char *suffix, const char *cay, bool quick)
{
    unsigned rounds = quick ? QUICK_ROUNDS : ROUNDS;
    char part[3][64];

    snprintf(part[0], sizeof part[0], "code%s", suffix);
    snprintf(part[1], sizeof part[1], "code with pandas%s", suffix);
    snprintf(part[2], sizeof part[2], "code calls%s", suffix);
    race_first(part[0], cay, false, rounds);
    race_first(part[1], cay, true, quick ? rounds : rounds / 5);
    contest_calls(part[2], quick ? QUICK_CALL_ROUNDS : CALL_ROUNDS);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const char *cay = argv[argc - 1];
    struct cay_error err;

    if (argc != 2 + quick) {
        fprintf(stderr, "usage: bench-code [--quick] CAY\n");
        return 2;
    }
    need(cay_warm_create(NULL, NULL, &err), &err);
    run_all("", cay, quick);
    race_pin(true);
    run_all(" on one processor", cay, quick);
    race_pin(false);
    race_many(quick ? 2 : 10);
    if (has_forks())
        race_forks(quick ? QUICK_ROUNDS : ROUNDS / 5);
    measure_idle("cold, pandas used", large, false, 0);
    measure_idle("warm, pandas loaded", small, true, IDLE_KIB);
    measure_idle("warm, pandas used", large, true, IDLE_KIB);
    return 0;
}
