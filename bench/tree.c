/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "field.h"
#include "plain.h"

/* Listing a directory of many small files, and searching it, and one large file. */
struct tree {
    const struct field *field;
    const char *name; /* a directory of `count` files, or one file if that is 0 */
    unsigned count;
    uint64_t file_bytes;
    const char *needle; /* occurs once in each file */
};

static bool ours_list(void *cookie)
{
    const struct tree *tree = cookie;
    struct cay_listing listing = {0};
    struct cay_error err;

    bool ok = field_ok(
        cay_files_list(tree->field->files, tree->name, NULL, &listing, &err), &err);
    ok = ok && listing.count == tree->count;
    cay_listing_done(&listing);
    return ok;
}

static bool plain_read_names(void *cookie)
{
    const struct tree *tree = cookie;

    return plain_list(tree->field->dir, tree->name) == tree->count;
}

static bool plain_sort_names(void *cookie)
{
    const struct tree *tree = cookie;

    return plain_list_sorted(tree->field->dir, tree->name) == tree->count;
}

static bool ours_search(const struct tree *tree, const char *regex, unsigned flags)
{
    const struct cay_grep_options options = {
        .size = sizeof options, .flags = flags, .max_matches = 1000000};
    struct cay_matches matches = {0};
    struct cay_error err;

    bool ok = field_ok(
        cay_files_grep(tree->field->files, tree->name, regex, &options, &matches, &err),
        &err);
    ok = ok && matches.count == (tree->count ? tree->count : 1);
    cay_matches_done(&matches);
    return ok;
}

static bool ours_fixed(void *cookie)
{
    const struct tree *tree = cookie;

    return ours_search(tree, tree->needle, CAY_GREP_FIXED);
}

static bool ours_regex(void *cookie)
{
    return ours_search(cookie, "^0+5 \\w+ qu[a-i]ck", 0);
}

static bool plain_find(void *cookie)
{
    const struct tree *tree = cookie;
    size_t found = 0;

    if (!tree->count)
        return plain_search(tree->field->dir, tree->name, tree->needle) == 1;
    for (unsigned i = 0; i < tree->count; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%06u.txt", tree->name, i);
        found += plain_search(tree->field->dir, path, tree->needle);
    }
    return found == tree->count;
}

static void make_files(struct tree *tree)
{
    char *text = field_lines(tree->file_bytes, false);

    if (mkdirat(tree->field->dir, tree->name, 0755) != 0)
        contest_die(tree->name);
    for (unsigned i = 0; i < tree->count; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%06u.txt", tree->name, i);
        if (!plain_write_atomic(tree->field->dir, path, text, tree->file_bytes))
            contest_die(path);
    }
    free(text);
}

static void run(struct tree *tree, struct contest contest)
{
    contest.part = "trees";
    contest.bytes = contest.run[OURS] == ours_list
                        ? 0
                        : tree->file_bytes * (tree->count ? tree->count : 1);
    contest.rounds = tree->field->quick ? 5 : 50;
    contest.cookie = tree;
    contest_run(&contest);
}

static void run_lists(struct tree *tree, const char *op)
{
    run(tree, (struct contest){
                  .op = op, .floor = "readdir", .run = {ours_list, plain_read_names}});
    run(tree, (struct contest){.op = op,
                               .floor = "scandir, sorted",
                               .run = {ours_list, plain_sort_names}});
}

static void run_searches(struct tree *tree, const char *fixed, const char *regex)
{
    run(tree, (struct contest){
                  .op = fixed, .floor = "read, memmem", .run = {ours_fixed, plain_find}});
    run(tree, (struct contest){
                  .op = regex, .floor = "read, memmem", .run = {ours_regex, plain_find}});
}

void tree_contests(struct field *field, uint64_t bytes)
{
    struct tree few = {field, "few", 1000, bytes, "000000000005 "};
    struct tree many = {field, "many", 10000, bytes, "000000000005 "};
    struct tree large = {field, "large.txt", 0, 64 * MIB, "000000000005 "};

    make_files(&few);
    make_files(&many);
    field->bytes = large.file_bytes;
    field->text = field_lines(large.file_bytes, false);
    field_make(field, large.name);
    free(field->text);
    field_settle(field);
    run_lists(&few, "list 1,000 files");
    run_lists(&many, "list 10,000 files");
    run_searches(&few, "grep 1,000 files, fixed text", "grep 1,000 files, regex");
    run_searches(&large, "grep 64 MiB, fixed text", "grep 64 MiB, regex");
    field_remove(field, large.name);
}
