/* SPDX-License-Identifier: Apache-2.0 */
#include "survive.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <unistd.h>

#include "failing.h"
#include "sys/path.h"
#include "tree.h"

/* --- The world the operations act in ----------------------------------------------- */

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

char world[4096];
cay_policy *policy;
cay_files *files;
bool far_apart;

char large[LARGE];

const char *place(const char *name)
{
    static char path[sizeof world + 64];

    snprintf(path, sizeof path, "%s/%s", world, name);
    return path;
}

static void put_text(const char *name, const char *text)
{
    tree_put(place(name), text, strlen(text));
}

void make_world(void)
{
    for (size_t i = 0; i + 6 <= LARGE; i += 6)
        memcpy(large + i, i % 60 ? "caf\xc3\xa9 " : "line.\n", 6);
    snprintf(world, sizeof world, "%s/world", scratch());
    tree_clear(world);
    put_text("policy.yaml", policy_text);
    put_text("cay.yaml", "limits: {memory: 1G}\n");
    put_text("library.yaml", "library: cay.yaml\nmine: {a: [b]}\nenvs: {A: b}\n");
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

const struct cay_files_options asking = {.size = sizeof asking,
                                         .approver = approve_always};

void open_world(void)
{
    ASSERT_OK(cay_policy_load(place("policy.yaml"), NULL, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &asking, &files, &err));
}

void close_world(void)
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
int __real_path_rename(int from, const char *name, int to, const char *other,
                       unsigned flags);
int __wrap_path_rename(int from, const char *name, int to, const char *other,
                       unsigned flags);

ssize_t __wrap_copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at,
                               size_t len, unsigned flags)
{
    if (!far_apart)
        return __real_copy_file_range(from, from_at, to, to_at, len, flags);
    errno = EXDEV;
    return -1;
}

int __wrap_path_rename(int from, const char *name, int to, const char *other,
                       unsigned flags)
{
    return far_apart && flags == RENAME_NOREPLACE
               ? -EXDEV
               : __real_path_rename(from, name, to, other, flags);
}

/* --- One operation, over and over -------------------------------------------------- */

static struct cay_error *told; /* by the operation */

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
    memset(told, 0, sizeof *told);
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
            ASSERT_INT(told->code, 0);
            ASSERT_STR(words, now);
        } else {
            ASSERT(tally.failed);
            harness_code(__FILE__, __LINE__, "the run", code, CAY_E_NO_MEMORY, told);
            ASSERT_INT(told->code, code);
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

void survive(int (*run)(void), enum wholeness wholeness, struct cay_error *error)
{
    int code;

    told = error;
    far_apart = false;
    make_world();
    AUTO_FREE char *old = tree_words(world);
    attempt(run, FAILING_HERE, 0, &code);
    harness_code(__FILE__, __LINE__, "the run without a failure", code, CAY_OK, told);
    AUTO_FREE char *now = tree_words(world);
    make_world();
    struct failing_tally tally = fail_each(run, FAILING_HERE, wholeness, old, now);
    if (tally.child) {
        make_world();
        tally = fail_each(run, FAILING_CHILD, wholeness, old, now);
    }
    printf("# %u allocations, %u in a child\n", tally.here, tally.child);
}
