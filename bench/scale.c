/* SPDX-License-Identifier: Apache-2.0 */
#include "scale.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contest.h"
#include "race.h"

/* --- Files --- */

enum { SMALL = 1 << 10, LARGE = 100 << 20 };

struct place {
    cay_files *files;
    int plain; /* a directory in memory, as the sandbox's is */
    char *data;
    size_t len;
};

static bool ours_reads(void *cookie)
{
    const struct place *place = cookie;
    const struct cay_read_options options = {.size = sizeof options, .max = place->len};
    struct cay_page page;
    struct cay_error err;

    sandbox_ok(cay_files_read_bytes(place->files, "/tmp/file", &options, &page, &err),
               &err);
    bool whole = page.len == place->len;
    cay_page_done(&page);
    return whole;
}

static bool ours_writes(void *cookie)
{
    const struct place *place = cookie;
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_IN_PLACE};
    struct cay_error err;

    sandbox_ok(cay_files_write(place->files, "/tmp/file", place->data, place->len,
                               &options, &err),
               &err);
    return true;
}

static bool plain_reads(void *cookie)
{
    const struct place *place = cookie;
    int fd = openat(place->plain, "file", O_RDONLY | O_CLOEXEC);
    char *data = malloc(place->len + 1);
    size_t have = 0;
    ssize_t got = fd < 0 || !data ? -1 : 1;

    for (; got > 0 && have < place->len; have += (size_t)got)
        got = read(fd, data + have, place->len - have);
    free(data);
    return close(fd) == 0 && have == place->len;
}

static bool plain_writes(void *cookie)
{
    const struct place *place = cookie;
    int fd = openat(place->plain, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    size_t put = 0;
    ssize_t got = fd < 0 ? -1 : 1;

    for (; got > 0 && put < place->len; put += (size_t)got)
        got = write(fd, place->data + put, place->len - put);
    return got > 0 && ftruncate(fd, (off_t)place->len) == 0 && close(fd) == 0;
}

static void contest_size(struct place *place, size_t len, unsigned rounds)
{
    const bool small = len == SMALL;
    struct contest contest = {.part = "sandbox files",
                              .bytes = len,
                              .rounds = rounds,
                              .most_us = small ? 30 : 0,
                              .most_ratio = small ? 0 : 1.15,
                              .cookie = place};

    place->len = len;
    contest.op = "write a file of a sandbox";
    contest.floor = "openat, write, ftruncate, close on a tmpfs";
    contest.run[OURS] = ours_writes;
    contest.run[PLAIN] = plain_writes;
    contest_run(&contest);
    contest.op = "read a file of a sandbox";
    contest.floor = "openat, read, close on a tmpfs";
    contest.run[OURS] = ours_reads;
    contest.run[PLAIN] = plain_reads;
    contest_run(&contest);
}

void scale_files(bool quick)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .ephemeral = true, .memory_bytes = 1ull << 30};
    char directory[] = "/dev/shm/cay-bench-XXXXXX", file[64];
    struct place place = {.data = malloc(LARGE)};
    struct cay_error err;
    cay_sandbox *sandbox;

    if (!place.data || !mkdtemp(directory))
        contest_die("scale");
    memset(place.data, 'x', LARGE);
    place.plain = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    sandbox_ok(cay_sandbox_create(&options, &sandbox, &err), &err);
    sandbox_ok(cay_sandbox_files(sandbox, NULL, &place.files, &err), &err);
    contest_size(&place, SMALL, quick ? 50 : 2000);
    contest_size(&place, LARGE, quick ? 3 : 30);
    cay_files_free(place.files);
    sandbox_ok(cay_sandbox_kill(sandbox, &err), &err);
    cay_sandbox_free(sandbox);
    snprintf(file, sizeof file, "%s/file", directory);
    (void)unlink(file);
    (void)rmdir(directory);
    (void)close(place.plain);
    free(place.data);
}

/* --- Many at a time --- */

enum { MOST = 1000, EXECS = 100, MEASURED = 1000, SETTLE_S = 2, SETTLE_MAX_S = 30 };

/* Bytes that a new program could still have. */
static double available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    double kib = 0;

    while (file && kib == 0 && fgets(line, sizeof line, file))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtod(line + 13, NULL);
    if (file)
        fclose(file);
    return kib * 1024;
}

static void run_true(cay_sandbox *sandbox)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    struct cay_exec_result result;
    struct cay_error err;

    sandbox_ok(cay_sandbox_exec(sandbox, &options, &result, &err), &err);
    if (result.exit_code)
        contest_die("/bin/true inside");
    cay_exec_done(&result);
}

/* Empty pages that the kernel's caches of objects have kept. */
static void shrink_caches(void)
{
    glob_t caches;

    if (glob("/sys/kernel/slab/*/shrink", 0, NULL, &caches) != 0)
        return;
    for (size_t i = 0; i < caches.gl_pathc; i++) {
        int fd = open(caches.gl_pathv[i], O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            (void)!write(fd, "1", 1);
            (void)close(fd);
        }
    }
    globfree(&caches);
}

/* The kernel frees what is gone when it has nothing else to do: a thousand networks take
 * it many seconds. */
static void settle(unsigned count)
{
    const double mib = 1024.0 * 1024;
    double seen = 0;

    if (count < MEASURED)
        return;
    for (int quiet = 0, i = 0; quiet < SETTLE_S && i < SETTLE_MAX_S; i++) {
        sleep(1);
        shrink_caches();
        double now = available();
        quiet = now > seen + mib ? 0 : quiet + 1;
        seen = now;
    }
}

static void live(cay_sandbox **sandboxes, unsigned count)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    struct cay_error err;

    settle(count);
    double before = available(), start = race_now_us();

    for (unsigned i = 0; i < count; i++)
        sandbox_ok(cay_sandbox_create(&options, &sandboxes[i], &err), &err);
    double created = race_now_us();
    settle(count);
    double used = before - available();
    srand(1);
    double execs = race_now_us();
    for (unsigned i = 0; i < EXECS; i++)
        run_true(sandboxes[(unsigned)rand() % count]);
    double ran = race_now_us();
    for (unsigned i = 0; i < count; i++) {
        sandbox_ok(cay_sandbox_kill(sandboxes[i], &err), &err);
        cay_sandbox_free(sandboxes[i]);
    }
    double destroyed = race_now_us();
    race_print("sandboxes at a time", "create, each", count, (created - start) / count,
               0);
    race_print("sandboxes at a time", "exec, at random", count, (ran - execs) / EXECS, 0);
    race_print("sandboxes at a time", "destroy, each", count, (destroyed - ran) / count,
               0);
    if (count >= MEASURED)
        race_print("memory of idle sandboxes", "KiB each", count, used / count / 1024,
                   450);
}

/* The commands about all sandboxes: ls -q, ls, gc and kill --all. */
static void together(unsigned count)
{
    static const char part[] = "sandboxes together";
    const struct cay_sandbox_options options = {.size = sizeof options};
    const double second = 1e6;
    char(*ids)[CAY_ID_MAX] = calloc(count, sizeof *ids);
    const char **names = calloc(count, sizeof *names);
    struct cay_error *errors = calloc(count, sizeof *errors), err;
    struct cay_sandbox_info *infos;
    cay_sandbox *sandbox;
    size_t found;

    if (!ids || !names || !errors)
        contest_die("sandboxes");
    for (unsigned i = 0; i < count; i++) {
        sandbox_ok(cay_sandbox_create(&options, &sandbox, &err), &err);
        snprintf(ids[i], sizeof ids[i], "%s", cay_sandbox_id(sandbox));
        names[i] = ids[i];
        cay_sandbox_free(sandbox);
    }
    double start = race_now_us();
    sandbox_ok(cay_sandbox_list_brief(&infos, &found, &err), &err);
    race_print(part, "list ids, all", count, race_now_us() - start, second);
    cay_free(infos);
    start = race_now_us();
    sandbox_ok(cay_sandbox_list(&infos, &found, &err), &err);
    race_print(part, "list, all", count, race_now_us() - start, second);
    cay_free(infos);
    start = race_now_us();
    sandbox_ok(cay_sandbox_collect(&found, &err), &err);
    race_print(part, "collect, all", count, race_now_us() - start, second);
    start = race_now_us();
    sandbox_ok(cay_sandbox_kill_many(names, count, errors), errors);
    race_print(part, "kill, all", count, race_now_us() - start, second);
    free(errors);
    free(names);
    free(ids);
}

void scale_live(bool quick)
{
    cay_sandbox **sandboxes = calloc(MOST, sizeof(cay_sandbox *));

    if (!sandboxes)
        contest_die("sandboxes");
    for (unsigned count = 1; count <= (quick ? 10 : MOST); count *= 10)
        live(sandboxes, count);
    together(quick ? 10 : MOST);
    free(sandboxes);
}
