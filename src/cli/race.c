/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/race.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/tail.h"
#include "cli/output.h"
#include "cli/signals.h"

static const char op[] = "cli.try";

enum { RACERS_MAX = 64, STREAMS = 2, PIECE = 64 << 10, FAILED = 125 };

struct racer {
    struct cay_try_info info;
    unsigned index; /* from 1 */
    pid_t pid;      /* 0: it has ended */
    int outputs[STREAMS];
    struct tail kept[STREAMS];
    uint64_t started_ms, wall_ms;
    int status;
    bool is_kept; /* the try: it has changes */
    size_t files;
    uint64_t insertions, deletions;
};

struct race {
    struct call *call;
    struct racer *racers;
    size_t count;
    int signal;
};

/* --- A racer's process --- */

static int add_index(struct call *call, unsigned index, struct cay_error *err)
{
    static char text[32];
    struct option_list *env = &call->options.env;
    const char **items = calloc(env->count + 1, sizeof *items);

    if (!items)
        return cay_fail_memory(err, op);
    snprintf(text, sizeof text, "CAY_TRY_INDEX=%u", index);
    items[0] = text;
    for (size_t i = 0; i < env->count; i++)
        items[i + 1] = env->items[i];
    *env = (struct option_list){items, env->count + 1};
    return CAY_OK;
}

/* Programs that the racer executes have it, too. */
static bool take_over(int fd, int standard)
{
    return dup3(fd, standard, O_CLOEXEC) >= 0 && fcntl(standard, F_SETFD, 0) == 0;
}

static _Noreturn void run_child(
    struct call *call, const struct racer *racer, const int streams[STREAMS],
    int (*run)(struct call *call, const struct cay_try_info *info, struct cay_error *err))
{
    struct cay_error err;
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC), status = CAY_E_IO;

    if (input < 0 || !take_over(input, STDIN_FILENO) ||
        !take_over(streams[0], STDOUT_FILENO) || !take_over(streams[1], STDERR_FILENO))
        status = cay_fail_errno(&err, errno, op, "output");
    else
        status = add_index(call, racer->index, &err);
    call->options.as_json = 0;
    call->output.is_terminal = false;
    if (!status)
        status = run(call, &racer->info, &err);
    if (status < 0) {
        (void)output_error(&err, false);
        status = FAILED;
    }
    (void)fflush(NULL);
    _exit(status);
}

static int start(struct race *race, struct racer *racer,
                 int (*run)(struct call *call, const struct cay_try_info *info,
                            struct cay_error *err),
                 struct cay_error *err)
{
    int out[2] = {-1, -1}, error[2] = {-1, -1};
    pid_t parent = getpid();

    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
        auto_close(&out[0]);
        auto_close(&out[1]);
        return cay_fail_errno(err, errno, op, "pipe");
    }
    racer->started_ms = clock_ms();
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        /* Its sandbox ends with it. */
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(FAILED);
        run_child(race->call, racer, (const int[]){out[1], error[1]}, run);
    }
    int failed = pid < 0 ? errno : 0;
    auto_close(&out[1]);
    auto_close(&error[1]);
    if (failed) {
        auto_close(&out[0]);
        auto_close(&error[0]);
        return cay_fail_errno(err, failed, op, "fork");
    }
    racer->pid = pid;
    racer->outputs[0] = out[0];
    racer->outputs[1] = error[0];
    return CAY_OK;
}

/* --- Output --- */

/* A line at a time: what a racer prints must not pass for the table. */
static void show_lines(const struct output *output, FILE *file, const char *text,
                       size_t len)
{
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t shown = end ? (size_t)(end - text) - at : len - at;
        if (output->is_terminal)
            show_text(file, text + at, shown, SIZE_MAX);
        else
            fwrite(text + at, 1, shown, file);
        fputc('\n', file);
        at += shown + (end != NULL);
    }
}

static void show_racer(struct race *race, struct racer *racer)
{
    struct output *output = &race->call->output;
    FILE *const files[] = {output->file, stderr};
    char time[QUANTITY_ROOM];

    if (race->call->options.as_json)
        return;
    fprintf(output->file, "==> %u: try %s, status %d, %s <==\n", racer->index,
            racer->info.id, racer->status, quantity_time(racer->wall_ms, time));
    for (int i = 0; i < STREAMS; i++) {
        size_t len = 0;
        AUTO_FREE char *text = tail_take(&racer->kept[i], &len);
        if (racer->kept[i].dropped)
            fprintf(files[i], "... %" PRIu64 " bytes before these were dropped\n",
                    racer->kept[i].dropped);
        show_lines(output, files[i], text, text ? len : 0);
        (void)fflush(files[i]);
    }
}

/* --- Waiting --- */

/* Also counts what it has changed.  A try without changes is not kept. */
static void end(struct race *race, struct racer *racer)
{
    const struct cay_diff_options how = {.size = sizeof how};
    int status = 0;
    cay_diff *diff = NULL;
    struct cay_error err;

    while (waitpid(racer->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    racer->pid = 0;
    racer->wall_ms = clock_ms() - racer->started_ms;
    racer->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    int code = cay_try_diff(racer->info.id, &how, &diff, &err);
    if (!code)
        code = cay_diff_measure(diff, &err);
    if (code)
        fprintf(stderr, "cay: try %s: %s\n", racer->info.id, err.message);
    const struct cay_change *changes =
        diff ? cay_diff_changes(diff, &racer->files) : NULL;
    for (size_t i = 0; changes && i < racer->files; i++) {
        racer->insertions += changes[i].insertions;
        racer->deletions += changes[i].deletions;
    }
    racer->is_kept = code || racer->files || cay_diff_cut(diff);
    cay_diff_free(diff);
    show_racer(race, racer);
    if (!racer->is_kept)
        (void)!cay_try_discard(racer->info.id, NULL);
}

static void read_output(struct racer *racer, int stream)
{
    static char piece[PIECE];
    ssize_t got = read(racer->outputs[stream], piece, sizeof piece);

    if (got > 0)
        (void)tail_add(&racer->kept[stream], piece, (size_t)got);
    else if (got == 0 || errno != EINTR)
        (void)close(TAKE_FD(racer->outputs[stream]));
}

static void take_signal(struct race *race)
{
    int number = signals_take();

    if (!number)
        return;
    race->signal = number;
    for (size_t i = 0; i < race->count; i++)
        if (race->racers[i].pid > 0)
            (void)kill(race->racers[i].pid, SIGTERM);
}

static void wait_all(struct race *race)
{
    struct pollfd polls[RACERS_MAX * STREAMS];
    struct racer *owners[RACERS_MAX * STREAMS];
    int streams[RACERS_MAX * STREAMS];

    for (;;) {
        nfds_t count = 0;
        for (size_t i = 0; i < race->count; i++) {
            struct racer *racer = &race->racers[i];
            if (racer->pid > 0 && racer->outputs[0] < 0 && racer->outputs[1] < 0)
                end(race, racer);
            for (int j = 0; j < STREAMS; j++) {
                if (racer->outputs[j] < 0)
                    continue;
                polls[count] = (struct pollfd){racer->outputs[j], POLLIN, 0};
                owners[count] = racer;
                streams[count++] = j;
            }
        }
        if (!count)
            return;
        take_signal(race);
        if (ppoll(polls, count, NULL, signals_mask()) < 0)
            continue;
        for (nfds_t i = 0; i < count; i++)
            if (polls[i].revents)
                read_output(owners[i], streams[i]);
    }
}

/* --- The result --- */

static int print_table(struct race *race, struct cay_error *err)
{
    struct table table;
    char time[QUANTITY_ROOM];

    TRY(table_open(&table, "RACER|TRY|STATUS|TIME|FILES|+|-", err));
    for (size_t i = 0; i < race->count; i++) {
        const struct racer *racer = &race->racers[i];
        table_cell(&table, "%u", racer->index);
        table_cell(&table, "%s", racer->is_kept ? racer->info.id : "-");
        table_cell(&table, "%d", racer->status);
        table_cell(&table, "%s", quantity_time(racer->wall_ms, time));
        table_cell(&table, "%zu", racer->files);
        table_cell(&table, "%" PRIu64, racer->insertions);
        table_cell(&table, "%" PRIu64, racer->deletions);
    }
    TRY(table_print(&table, &race->call->output, err));
    for (size_t i = 0; i < race->count && !race->call->options.quiet; i++)
        if (race->racers[i].is_kept) {
            fprintf(stderr,
                    "cay: cay diff TRY shows one, cay apply --use TRY takes it, cay "
                    "discard --race %s forgets all\n",
                    race->racers[i].info.id);
            break;
        }
    return output_finish(&race->call->output, err);
}

static int print_json(struct race *race, struct cay_error *err)
{
    static const char *const names[][2] = {{"stdout", "stdout_dropped"},
                                           {"stderr", "stderr_dropped"}};
    struct json *json = output_list(&race->call->output, "tries");

    for (size_t i = 0; i < race->count; i++) {
        struct racer *racer = &race->racers[i];
        json_put_object(json);
        json_set_uint(json, "index", racer->index);
        json_put_key(json, "id");
        if (racer->is_kept)
            json_put_text(json, racer->info.id);
        else
            json_put_null(json);
        json_set_int(json, "status", racer->status);
        json_set_uint(json, "wall_us", racer->wall_ms * 1000);
        json_set_uint(json, "files", racer->files);
        json_set_uint(json, "insertions", racer->insertions);
        json_set_uint(json, "deletions", racer->deletions);
        for (int j = 0; j < STREAMS; j++) {
            size_t len = 0;
            AUTO_FREE char *text = tail_take(&racer->kept[j], &len);
            json_put_key(json, names[j][0]);
            json_put_bytes(json, text ? text : "", text ? len : 0);
            json_set_uint(json, names[j][1], racer->kept[j].dropped);
        }
        json_put_end(json);
    }
    return output_finish(&race->call->output, err);
}

/* --- The race --- */

static int create_tries(struct race *race, const char *dir, const char *note,
                        struct cay_error *err)
{
    struct cay_try_options wanted = {.size = sizeof wanted, .dir = dir, .note = note};

    for (size_t i = 0; i < race->count; i++) {
        struct racer *racer = &race->racers[i];
        *racer = (struct racer){.index = (unsigned)i + 1, .outputs = {-1, -1}};
        for (int j = 0; j < STREAMS; j++)
            tail_init(&racer->kept[j], CAY_OUTPUT_DEFAULT);
    }
    for (size_t i = 0; i < race->count; i++) {
        struct racer *racer = &race->racers[i];
        int code = cay_try_create(&wanted, &racer->info, err);
        if (code) {
            while (i-- > 0)
                (void)!cay_try_discard(race->racers[i].info.id, NULL);
            return code;
        }
        wanted.race = race->racers[0].info.race;
    }
    return CAY_OK;
}

static int check(const struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;

    if (options->jobs.value < 1 || options->jobs.value > RACERS_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, "-j", "invalid number of tries",
                        "use a number from 1 to %d", RACERS_MAX);
    if (options->use || options->interactive || options->tty)
        return cay_fail(err, CAY_E_INVALID, 0, op, "-j",
                        "several tries at a time have no input, and are new",
                        "leave out -j, or --use, -i and -t");
    return CAY_OK;
}

int race_run(struct call *call, const char *dir, const char *note,
             int (*run)(struct call *call, const struct cay_try_info *info,
                        struct cay_error *err),
             struct cay_error *err)
{
    TRY(check(call, err));
    struct race race = {.call = call, .count = (size_t)call->options.jobs.value};
    AUTO_FREE struct racer *racers = calloc(race.count, sizeof *racers);
    if (!racers)
        return cay_fail_memory(err, op);
    race.racers = racers;
    signals_catch();
    TRY(create_tries(&race, dir, note, err));
    int code = CAY_OK;
    for (size_t i = 0; i < race.count && !code; i++)
        code = start(&race, &racers[i], run, err);
    for (size_t i = 0; i < race.count; i++)
        if (code && !racers[i].pid)
            (void)!cay_try_discard(racers[i].info.id, NULL);
        else if (code)
            (void)kill(racers[i].pid, SIGTERM);
    wait_all(&race);
    if (!code)
        code = call->options.as_json ? print_json(&race, err) : print_table(&race, err);
    int status = racers[0].status;
    for (size_t i = 0; i < race.count; i++) {
        if (!racers[i].status)
            status = 0;
        for (int j = 0; j < STREAMS; j++)
            tail_done(&racers[i].kept[j]);
    }
    if (race.signal)
        signals_die(race.signal);
    return code ? code : status;
}
