/* SPDX-License-Identifier: Apache-2.0 */

/* Every public operation is run again and again: the first time its first allocation
 * fails, then its second, and so on until a run meets no failure.  A run that fails says
 * CAY_E_NO_MEMORY and leaves the files as they were, byte for byte; one that succeeds all
 * the same has done its whole work; none leaves memory, descriptors or stray names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "failing.h"
#include "tree.h"

/* --- The world the operations act in --------------------------------------------------
 */

enum { LARGE = 300000 };

static const char policy_text[] = "paths:\n"
                                  "  data: {root: data, mode: rw, read_approval: true}\n"
                                  "  other:\n"
                                  "    root: other\n"
                                  "    mode: rw\n"
                                  "    write_approval: false\n"
                                  "  docs:\n"
                                  "    root: docs\n"
                                  "    suffixes: [.md, .txt]\n"
                                  "    max_file_bytes: 1000\n";

static char world[4096];
static cay_policy *policy;
static cay_files *files;
static bool far_apart; /* as if the mounts were on two file systems */

static char large[LARGE];

static const char *place(const char *name)
{
    static char path[sizeof world + 64];

    snprintf(path, sizeof path, "%s/%s", world, name);
    return path;
}

static void put_text(const char *name, const char *text)
{
    tree_put(place(name), text, strlen(text));
}

static void make_world(void)
{
    for (size_t i = 0; i + 6 <= LARGE; i += 6)
        memcpy(large + i, i % 60 ? "caf\xc3\xa9 " : "line.\n", 6);
    snprintf(world, sizeof world, "%s/world", scratch());
    tree_clear(world);
    put_text("policy.yaml", policy_text);
    put_text("data/a.txt", "alpha\nbeta\nalpha\n");
    put_text("data/dos.txt", "one\r\ntwo\r\n");
    put_text("data/dir/b.txt", "bravo\n");
    put_text("data/dir/deep/c.txt", "charlie\n");
    tree_put(place("data/large.txt"), large, sizeof large);
    put_text("other/o.txt", "other\n");
    put_text("docs/read.md", "docs\n");
    ASSERT(symlink("a.txt", place("data/link.txt")) == 0);
}

static enum cay_verdict approve_always(void *cookie, const struct cay_approval *request,
                                       char note[CAY_NOTE_MAX])
{
    (void)cookie;
    (void)request;
    (void)note;
    return CAY_VERDICT_REMEMBER;
}

static const struct cay_files_options asking = {.size = sizeof asking,
                                                .approver = approve_always};

static void open_world(void)
{
    ASSERT_OK(cay_policy_load(place("policy.yaml"), NULL, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &asking, &files, &err));
}

static void close_world(void)
{
    cay_files_free(files);
    cay_policy_free(policy);
    files = NULL;
    policy = NULL;
}

ssize_t __real_copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at,
                               size_t len, unsigned flags);
ssize_t __wrap_copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at,
                               size_t len, unsigned flags);
int __real_renameat2(int from, const char *name, int to, const char *other,
                     unsigned flags);
int __wrap_renameat2(int from, const char *name, int to, const char *other,
                     unsigned flags);

ssize_t __wrap_copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at,
                               size_t len, unsigned flags)
{
    if (!far_apart)
        return __real_copy_file_range(from, from_at, to, to_at, len, flags);
    errno = EXDEV;
    return -1;
}

int __wrap_renameat2(int from, const char *name, int to, const char *other,
                     unsigned flags)
{
    if (!far_apart || flags != RENAME_NOREPLACE)
        return __real_renameat2(from, name, to, other, flags);
    errno = EXDEV;
    return -1;
}

/* --- One operation, over and over -----------------------------------------------------
 */

enum wholeness {
    WHOLE, /* all or nothing */
    PARTS  /* made of parts, each of which is all or nothing */
};

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static struct failing_tally attempt(int (*run)(void), enum failing_where where,
                                    unsigned nth, int *ret_code)
{
    open_world();
    memset(&err, 0, sizeof err);
    unsigned before = open_descriptors();
    failing_start(where, nth);
    *ret_code = run();
    struct failing_tally tally = failing_stop();
    ASSERT_INT(open_descriptors(), before);
    close_world();
    if (failing_unfreed())
        harness_fail(__FILE__, __LINE__, "%zu blocks leak when allocation %u fails",
                     failing_unfreed(), nth);
    return tally;
}

/* Until a run in which nothing failed; the tally of that one. */
static struct failing_tally fail_each(int (*run)(void), enum failing_where where,
                                      enum wholeness wholeness, const char *old,
                                      const char *now)
{
    for (unsigned nth = 1;; nth++) {
        int code;
        struct failing_tally tally = attempt(run, where, nth, &code);
        AUTO_FREE char *words = tree_words(world);
        if (code == CAY_OK) {
            ASSERT_INT(err.code, 0);
            ASSERT_STR(words, now);
        } else {
            ASSERT(tally.failed);
            harness_code(__FILE__, __LINE__, "the run", code, CAY_E_NO_MEMORY, &err);
            ASSERT_INT(err.code, code);
            if (wholeness == WHOLE)
                ASSERT_STR(words, old);
            else
                ASSERT(tree_is_mixture(words, old, now));
        }
        if (!tally.failed)
            return tally;
        if (strcmp(words, old) != 0)
            make_world();
    }
}

static void survive(int (*run)(void), enum wholeness wholeness)
{
    int code;

    far_apart = false;
    make_world();
    AUTO_FREE char *old = tree_words(world);
    attempt(run, FAILING_HERE, 0, &code);
    harness_code(__FILE__, __LINE__, "the run without a failure", code, CAY_OK, &err);
    AUTO_FREE char *now = tree_words(world);
    make_world();
    struct failing_tally tally = fail_each(run, FAILING_HERE, wholeness, old, now);
    if (tally.child) {
        make_world();
        tally = fail_each(run, FAILING_CHILD, wholeness, old, now);
    }
    printf("# %u allocations, %u in a child\n", tally.here, tally.child);
}

#define SURVIVES(name, wholeness)                                                        \
    static int name(void);                                                               \
    TEST(name##_survives_any_failing_allocation)                                         \
    {                                                                                    \
        survive(name, wholeness);                                                        \
    }                                                                                    \
    static int name(void)

/* --- The test itself ------------------------------------------------------------------
 */

TEST(exactly_the_nth_allocation_fails)
{
    void *volatile first, *volatile second,
                              *volatile third; /* or they are optimized out */

    failing_start(FAILING_HERE, 2);
    first = malloc(1);
    second = malloc(1);
    third = calloc(1, 1);
    struct failing_tally tally = failing_stop();

    ASSERT(first && !second && third);
    ASSERT_INT(tally.here, 3);
    ASSERT(tally.failed);
    free(first);
    free(third);
    ASSERT_INT(failing_unfreed(), 0);
}

TEST(a_block_that_is_not_freed_is_noticed)
{
    void *volatile kept, *volatile grown;

    failing_start(FAILING_HERE, 0);
    kept = strdup("kept");
    grown = realloc(NULL, 1);
    grown = realloc(grown, 100000);
    failing_stop();

    ASSERT_INT(failing_unfreed(), 2);
    free(kept);
    free(grown);
    ASSERT_INT(failing_unfreed(), 0);
}

TEST(a_tree_with_a_stray_name_is_no_mixture)
{
    ASSERT(tree_is_mixture("/a 1\n/b 2\n", "/a 1\n", "/a 2\n/b 2\n"));
    ASSERT(!tree_is_mixture("/a 1\n/.cay-1 2\n", "/a 1\n", "/a 2\n"));
    ASSERT(!tree_is_mixture("/a 3\n", "/a 1\n", "/a 2\n"));
}

/* --- Policies -------------------------------------------------------------------------
 */

static int make_policy(enum cay_style style, const char *name)
{
    static const char *const suffixes[] = {".md", ".TXT"};
    struct cay_mount mount = CAY_MOUNT_INIT;
    const struct cay_policy_config config = {
        .size = sizeof config, .style = style, .mounts = &mount, .mount_count = 1};
    cay_policy *made;

    mount.name = name;
    mount.host = "relative";
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 2;
    mount.origin = "here";
    int code = cay_policy_new(&config, &made, &err);
    if (!code)
        cay_policy_free(made);
    return code;
}

SURVIVES(a_new_policy_of_named_paths, WHOLE)
{
    return make_policy(CAY_STYLE_PATHS, "data");
}

SURVIVES(a_new_policy_of_mounts, WHOLE)
{
    return make_policy(CAY_STYLE_MOUNTS, "/data//special/");
}

SURVIVES(a_new_policy_of_one_root, WHOLE)
{
    return make_policy(CAY_STYLE_ROOT, NULL);
}

static int parse(const char *text)
{
    cay_policy *made;
    int code = cay_policy_parse(text, strlen(text), "test", NULL, &made, &err);

    if (!code)
        cay_policy_free(made);
    return code;
}

SURVIVES(parsing_yaml, WHOLE)
{
    return parse("note: of another program\n"
                 "policy:\n"
                 "  mounts:\n"
                 "    - {host_path: a, mount_point: /a, mode: rw, read_approval: true}\n"
                 "    - host_path: b\n"
                 "      mount_point: /b\n"
                 "      suffixes: [.md, '.txt']\n"
                 "      max_file_bytes: 10\n");
}

SURVIVES(parsing_json, WHOLE)
{
    return parse("{\"root\": {\"root\": \"a\", \"readonly\": true}}");
}

SURVIVES(loading_a_policy, WHOLE)
{
    cay_policy *made;
    int code = cay_policy_load(place("policy.yaml"), NULL, &made, &err);

    if (!code)
        cay_policy_free(made);
    return code;
}

/* --- Handles and questions ------------------------------------------------------------
 */

SURVIVES(opening, WHOLE)
{
    cay_files *opened;
    int code = cay_files_open(policy, &asking, &opened, &err);

    if (!code)
        cay_files_free(opened);
    return code;
}

SURVIVES(opening_missing_roots, PARTS)
{
    static const char text[] = "paths: {a: {root: new/a, mode: rw}, b: {root: b}}";
    const struct cay_files_options options = {.size = sizeof options,
                                              .flags = CAY_FILES_CREATE_ALL};
    cay_policy *made;
    cay_files *opened;
    int code = cay_policy_parse(text, strlen(text), "test", world, &made, &err);

    if (code)
        return code;
    code = cay_files_open(made, &options, &opened, &err);
    cay_policy_free(made);
    if (!code)
        cay_files_free(opened);
    return code;
}

static int derive(const struct cay_derive *how)
{
    cay_files *child, *grandchild;
    const struct cay_derive all = {
        .size = sizeof all, .inherit = true, .readonly = CAY_READONLY_FALSE};
    int code = cay_files_derive(files, how, &child, &err);

    if (code)
        return code;
    code = cay_files_derive(child, &all, &grandchild, &err);
    cay_files_free(child);
    if (!code)
        cay_files_free(grandchild);
    return code;
}

SURVIVES(deriving_by_lists, WHOLE)
{
    static const char *const read[] = {"data/dir", "docs"}, *const write[] = {"other"};

    return derive(&(struct cay_derive){.size = sizeof(struct cay_derive),
                                       .allow_read = read,
                                       .allow_read_count = 2,
                                       .allow_write = write,
                                       .allow_write_count = 1});
}

SURVIVES(deriving_all, WHOLE)
{
    return derive(
        &(struct cay_derive){.size = sizeof(struct cay_derive), .inherit = true});
}

SURVIVES(locating, WHOLE)
{
    struct cay_location location = {.size = sizeof location};
    int code = cay_files_locate(files, "data/link.txt", CAY_ACCESS_READ, &location, &err);

    if (!code) {
        ASSERT_STR(location.path, "data/a.txt");
        ASSERT_STR(location.host, place("data/a.txt"));
        cay_location_done(&location);
    }
    return code;
}

static int explain(const char *path, const char *part)
{
    char *sentence;
    int code = cay_files_explain(files, path, &sentence, &err);

    if (!code) {
        ASSERT_HAS(sentence, part);
        cay_free(sentence);
    }
    return code;
}

SURVIVES(explaining_a_path, WHOLE)
{
    return explain("docs/read.md", "docs");
}

SURVIVES(explaining_a_path_outside, WHOLE)
{
    return explain("elsewhere/x", "data");
}

SURVIVES(telling_the_roots, WHOLE)
{
    struct cay_strings roots;
    int code = cay_files_roots(files, CAY_ACCESS_READ, &roots, &err);

    if (!code) {
        ASSERT_INT(roots.count, 3);
        cay_strings_done(&roots);
    }
    return code;
}

SURVIVES(asking_about_a_path, WHOLE)
{
    struct cay_stat st;
    struct cay_pin pin;
    int code = cay_files_stat(files, "data/a.txt", false, &st, &err);

    ASSERT(cay_files_can(files, "data/a.txt", CAY_ACCESS_WRITE));
    ASSERT(cay_files_needs_approval(files, "data/a.txt", CAY_ACCESS_READ));
    if (!code)
        code = cay_files_exists(files, "data/none", &err);
    return code ? code : cay_files_pin(files, "data/a.txt", &pin, &err);
}

/* --- Reading --------------------------------------------------------------------------
 */

typedef int reading(cay_files *, const char *, const struct cay_read_options *,
                    struct cay_page *, struct cay_error *);

static int read_by(reading *read, const char *path, uint64_t offset, uint64_t max,
                   const char *expected, size_t len)
{
    const struct cay_read_options options = {.size = sizeof options,
                                             .flags = CAY_READ_UNIVERSAL_NEWLINES,
                                             .offset = offset,
                                             .max = max};
    struct cay_page page;
    int code = read(files, path, &options, &page, &err);

    if (!code) {
        ASSERT_MEM(page.text, page.len, expected, len);
        cay_page_done(&page);
    }
    return code;
}

SURVIVES(reading_a_small_file, WHOLE)
{
    return read_by(cay_files_read, "data/a.txt", 2, 5, "pha\nb", 5);
}

SURVIVES(reading_dos_lines, WHOLE)
{
    return read_by(cay_files_read_lines, "data/dos.txt", 1, 1, "two\n", 4);
}

SURVIVES(reading_pages_of_a_large_file, WHOLE)
{
    int code = read_by(cay_files_read, "data/large.txt", 6, 5, "caf\xc3\xa9 ", 6);

    return code ? code
                : read_by(cay_files_read, "data/large.txt", 11, 5, "caf\xc3\xa9 ", 6);
}

SURVIVES(reading_lines_of_a_large_file, WHOLE)
{
    return read_by(cay_files_read_lines, "data/large.txt", 0, 1, "line.\n", 6);
}

SURVIVES(reading_all_of_a_large_file, WHOLE)
{
    return read_by(cay_files_read, "data/large.txt", 0, UINT64_MAX, large, LARGE);
}

SURVIVES(reading_bytes, WHOLE)
{
    return read_by(cay_files_read_bytes, "data/a.txt", 6, 4, "beta", 4);
}

SURVIVES(a_reader, WHOLE)
{
    const struct cay_read_options options = {.size = sizeof options, .max = 5};
    struct cay_page page;
    cay_reader *reader;
    int code = cay_reader_open(files, "data/large.txt", &reader, &err);

    if (code)
        return code;
    for (int i = 0; i < 2 && !code; i++) {
        code = cay_reader_page(reader, &options, &page, &err);
        if (!code) {
            ASSERT_STR(page.text, "line.");
            cay_page_done(&page);
        }
    }
    cay_reader_free(reader);
    return code;
}

SURVIVES(reading_many, WHOLE)
{
    struct cay_read_item items[] = {
        {.path = "data/a.txt"}, {.path = "data/none"}, {.path = "docs/read.md"}};
    int code = cay_files_read_many(files, items, 3, &err);

    if (code)
        return code;
    ASSERT_STR(items[0].page.text, "alpha\nbeta\nalpha\n");
    ASSERT_INT(items[1].error.code, CAY_E_NOT_FOUND);
    ASSERT_STR(items[2].page.text, "docs\n");
    cay_page_done(&items[0].page);
    cay_page_done(&items[2].page);
    return CAY_OK;
}

/* --- Writing --------------------------------------------------------------------------
 */

static int write_to(const char *path, unsigned flags)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    return cay_files_write(files, path, "new content\n", 12, &options, &err);
}

SURVIVES(replacing_a_file, WHOLE)
{
    return write_to("data/a.txt", CAY_WRITE_DURABLE);
}

SURVIVES(replacing_through_a_link, WHOLE)
{
    return write_to("data/link.txt", 0);
}

SURVIVES(a_new_file_with_its_parents, WHOLE)
{
    return write_to("data/x/y/z.txt", CAY_WRITE_NEW);
}

SURVIVES(overwriting_in_place, WHOLE)
{
    return write_to("data/a.txt", CAY_WRITE_IN_PLACE);
}

SURVIVES(appending, WHOLE)
{
    return write_to("data/a.txt", CAY_WRITE_APPEND);
}

SURVIVES(writing_many, PARTS)
{
    struct cay_write_item items[] = {{.path = "data/a.txt", .data = "A", .len = 1},
                                     {.path = "other/b.txt", .data = "B", .len = 1}};
    int code = cay_files_write_many(files, items, 2, NULL, &err);

    if (!code)
        ASSERT_INT(items[0].error.code + items[1].error.code, 0);
    return code;
}

#define EDIT(old, new, edit_flags)                                                       \
    {                                                                                    \
        .old_text = (old), .old_len = strlen(old), .new_text = (new),                    \
        .new_len = strlen(new), .flags = (edit_flags)                                    \
    }

static int edit(const char *path, const struct cay_edit *edits, size_t count,
                unsigned flags)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    return cay_files_edit(files, path, edits, count, &options, NULL, &err);
}

SURVIVES(an_edit, WHOLE)
{
    return edit("data/a.txt", (struct cay_edit[]){EDIT("beta", "gamma", 0)}, 1, 0);
}

SURVIVES(an_edit_of_dos_lines, WHOLE)
{
    return edit("data/dos.txt", (struct cay_edit[]){EDIT("one\n", "1\n2\n", 0)}, 1, 0);
}

SURVIVES(a_list_of_edits, WHOLE)
{
    return edit("data/a.txt",
                (struct cay_edit[]){EDIT("beta", "gamma", CAY_EDIT_EXACT),
                                    EDIT("alpha", "delta", CAY_EDIT_ALL)},
                2, CAY_WRITE_DURABLE);
}

SURVIVES(an_edit_in_place, WHOLE)
{
    return edit("data/a.txt", (struct cay_edit[]){EDIT("beta", "b", 0)}, 1,
                CAY_WRITE_IN_PLACE);
}

/* --- Names ----------------------------------------------------------------------------
 */

static const struct cay_name_options *named(unsigned flags)
{
    static struct cay_name_options options;

    options = (struct cay_name_options){.size = sizeof options, .flags = flags};
    return &options;
}

SURVIVES(deleting_a_file, WHOLE)
{
    return cay_files_delete(files, "data/a.txt", NULL, &err);
}

SURVIVES(deleting_a_link, WHOLE)
{
    return cay_files_delete(files, "data/link.txt", NULL, &err);
}

SURVIVES(deleting_a_directory, WHOLE)
{
    return cay_files_delete(files, "data/dir", named(CAY_NAME_RECURSIVE), &err);
}

SURVIVES(moving_a_file, WHOLE)
{
    return cay_files_move(files, "data/a.txt", "other/x/a.txt", NULL, &err);
}

SURVIVES(moving_a_file_to_another_file_system, WHOLE)
{
    far_apart = true;
    return cay_files_move(files, "data/a.txt", "other/x/a.txt", NULL, &err);
}

SURVIVES(moving_a_directory, WHOLE)
{
    return cay_files_move(files, "data/dir", "data/moved", named(CAY_NAME_DIRECTORY),
                          &err);
}

SURVIVES(copying, WHOLE)
{
    return cay_files_copy(files, "data/large.txt", "other/x/y.txt", NULL, &err);
}

SURVIVES(copying_to_another_file_system, WHOLE)
{
    far_apart = true;
    return cay_files_copy(files, "data/large.txt", "other/x/y.txt", NULL, &err);
}

SURVIVES(making_a_directory, WHOLE)
{
    return cay_files_mkdir(files, "data/x/y", NULL, &err);
}

/* --- Listing, searching, archives -----------------------------------------------------
 */

static int list(const char *path, const struct cay_list_options *options, size_t count)
{
    struct cay_listing listing;
    int code = cay_files_list(files, path, options, &listing, &err);

    if (!code) {
        ASSERT_INT(listing.count, count);
        cay_listing_done(&listing);
    }
    return code;
}

SURVIVES(listing_everything, WHOLE)
{
    return list("/", NULL, 8);
}

SURVIVES(listing_with_patterns, WHOLE)
{
    static const char *const exclude[] = {"dir/deep", "l*"};
    const struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_STAT,
        .pattern = "**/[a-d]*",
        .exclude = exclude,
        .exclude_count = 2,
        .after = "data/a.txt"};

    return list("data", &options, 3);
}

SURVIVES(searching, WHOLE)
{
    const struct cay_grep_options options = {.size = sizeof options,
                                             .flags = CAY_GREP_IGNORE_CASE};
    struct cay_matches matches;
    int code = cay_files_grep(files, "/", "^(ALPHA|o)", &options, &matches, &err);

    if (!code) {
        ASSERT_INT(matches.count, 6);
        cay_matches_done(&matches);
    }
    return code;
}

SURVIVES(exporting, WHOLE)
{
    struct cay_tar_result result;
    AUTO_FD fd = memfd_create("tar", MFD_CLOEXEC);
    int code = cay_files_export(files, "data", fd, NULL, &result, &err);

    if (!code)
        ASSERT_INT(result.entries, 8);
    return code;
}

/* An archive of data/, made once. */
static int archive = -1;

static int import(void)
{
    struct cay_tar_result result;

    ASSERT(lseek(archive, 0, SEEK_SET) == 0);
    int code = cay_files_import(files, "other/in", archive, NULL, &result, &err);
    if (!code)
        ASSERT_INT(result.entries, 8);
    return code;
}

TEST(importing_survives_any_failing_allocation)
{
    struct cay_tar_result result;

    make_world();
    open_world();
    archive = memfd_create("tar", MFD_CLOEXEC);
    ASSERT_OK(cay_files_export(files, "data", archive, NULL, &result, &err));
    close_world();
    survive(import, PARTS);
    close(archive);
}
