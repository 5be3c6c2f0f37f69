/* SPDX-License-Identifier: Apache-2.0 */

/* bench-files [--quick] DIRECTORY [PART...]: measures the file layer against plain system
 * calls in a directory that it makes below the given one.  Each line it prints is one
 * contest as a JSON object: the op and its floor, [p50, p95, p99] of both in
 * microseconds, the ratio of the two p50, and what the ratio or the time is meant to be
 * at most. */
#include <stdio.h>
#include <string.h>

#include "field.h"

/* Sizes end with 0. */
static const uint64_t sizes[] = {KIB, 16 * KIB, MIB, 16 * MIB, 100 * MIB, GIB, 0};
static const uint64_t paged_sizes[] = {MIB, 10 * MIB, 100 * MIB, GIB, 0};
static const uint64_t small[] = {KIB, 0}, one_page[] = {4 * KIB, 0};

static const struct part {
    const char *name;
    void (*run)(struct field *field, uint64_t bytes);
    const uint64_t *sizes;
} parts[] = {
    {"read", read_contests, sizes},     {"paging", paging_contests, paged_sizes},
    {"write", write_contests, sizes},   {"change", change_contests, sizes},
    {"names", name_contests, small},    {"trees", tree_contests, small},
    {"diffs", diff_contests, one_page},
};

static void run_part(const struct part *part, struct field *field)
{
    for (const uint64_t *bytes = part->sizes; *bytes; bytes++) {
        if (field->quick && *bytes > 16 * MIB)
            continue;
        if (field_has_room(field, *bytes))
            part->run(field, *bytes);
        else
            fprintf(stderr, "bench: %s: no room for files of %llu MiB\n", part->name,
                    (unsigned long long)(*bytes / MIB));
    }
}

static bool is_wanted(const char *name, char **wanted)
{
    bool any = *wanted == NULL;

    for (; *wanted; wanted++)
        any = any || strcmp(name, *wanted) == 0;
    return any;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    char **rest = argv + 1 + quick;
    struct field field;

    if (argc < 2 + quick) {
        fprintf(stderr, "usage: bench-files [--quick] DIRECTORY [PART...]\n");
        return 2;
    }
    field_open(&field, rest[0], quick);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (is_wanted(parts[i].name, rest + 1))
            run_part(&parts[i], &field);
    field_close(&field);
    return 0;
}
