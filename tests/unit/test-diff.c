/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cay/diff.h"
#include "harness.h"

static int write_buf(void *cookie, enum cay_diff_line line, const char *text, size_t len)
{
    (void)line;
    return buf_append(cookie, text, len) ? 0 : ENOMEM;
}

static int open_dir(const char *name)
{
    (void)!mkdir(scratch_path(name), 0755);
    return open(scratch_path(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Compares the directory "old" with "new", which may be a layer above it. */
static cay_diff *compare(enum cay_diff_marks marks,
                         const struct cay_diff_options *options)
{
    AUTO_FD old = open_dir("old"), new = open_dir("new");
    const struct cay_diff_layer layers[] = {{.fd = new, .marks = marks},
                                            {.fd = old, .marks = marks}};
    const struct cay_diff_tree before = {layers + 1, 1};
    const struct cay_diff_tree after = {layers, marks == CAY_DIFF_MARKS_NONE ? 1 : 2};
    cay_diff *diff = NULL;

    ASSERT_OK(cay_diff_compare(&before, &after, options, &diff, &err));
    return diff;
}

static void check_print(cay_diff *diff, enum cay_diff_format format, const char *expected)
{
    AUTO_BUF text;

    buf_init(&text, SIZE_MAX / 2);
    ASSERT(buf_append(&text, "", 0));
    ASSERT_OK(cay_diff_print(diff, format, write_buf, &text, &err));
    ASSERT_STR(text.data, expected);
}

static void check_names(enum cay_diff_marks marks, const char *expected)
{
    cay_diff *diff = compare(marks, NULL);

    check_print(diff, CAY_DIFF_NAMES, expected);
    cay_diff_free(diff);
}

/* --- Formats --- */

static void put_example(void)
{
    umask(022);
    put_file("old/dir/same", "");
    put_file("new/dir/same", "");
    put_file("old/same", "same\n");
    put_file("new/same", "same\n");
    put_file("old/text", "1\n2\n3\n4\n5\n6\n7\n8\n");
    put_file("new/text", "1\n2\n3\n4\nfive\n6\n7\n8\nnine");
    put_file("old/gone", "gone\n");
    put_file("new/dir/added \"x\"", "added\n");
    put_file("old/moved", "a\nb\nc\nd\ne\nf\n");
    put_file("new/dir/moved", "a\nb\nc\nd\ne\n");
    put_file("old/run", "#!/bin/sh\n");
    put_file("new/run", "#!/bin/sh\n");
    ASSERT_INT(chmod(scratch_path("new/run"), 0755), 0);
    ASSERT_INT(chmod(scratch_path("old/run"), 0644), 0);
    put_bytes("new/zero", "\0\1", 2);
    ASSERT_INT(symlink("text", scratch_path("new/link")), 0);
}

TEST(names_are_those_of_git)
{
    put_example();
    check_names(CAY_DIFF_MARKS_NONE, "A\t\"dir/added \\\"x\\\"\"\n"
                                     "R083\tmoved\tdir/moved\n"
                                     "D\tgone\n"
                                     "A\tlink\n"
                                     "M\trun\n"
                                     "M\ttext\n"
                                     "A\tzero\n");
}

TEST(the_unified_output_is_that_of_git)
{
    put_example();
    cay_diff *diff = compare(CAY_DIFF_MARKS_NONE, NULL);
    check_print(diff, CAY_DIFF_UNIFIED,
                "diff --git \"a/dir/added \\\"x\\\"\" \"b/dir/added \\\"x\\\"\"\n"
                "new file mode 100644\n"
                "--- /dev/null\n"
                "+++ \"b/dir/added \\\"x\\\"\"\n"
                "@@ -0,0 +1 @@\n"
                "+added\n"
                "diff --git a/moved b/dir/moved\n"
                "similarity index 83%\n"
                "rename from moved\n"
                "rename to dir/moved\n"
                "--- a/moved\n"
                "+++ b/dir/moved\n"
                "@@ -3,4 +3,3 @@\n"
                " c\n"
                " d\n"
                " e\n"
                "-f\n"
                "diff --git a/gone b/gone\n"
                "deleted file mode 100644\n"
                "--- a/gone\n"
                "+++ /dev/null\n"
                "@@ -1 +0,0 @@\n"
                "-gone\n"
                "diff --git a/link b/link\n"
                "new file mode 120000\n"
                "--- /dev/null\n"
                "+++ b/link\n"
                "@@ -0,0 +1 @@\n"
                "+text\n"
                "\\ No newline at end of file\n"
                "diff --git a/run b/run\n"
                "old mode 100644\n"
                "new mode 100755\n"
                "diff --git a/text b/text\n"
                "--- a/text\n"
                "+++ b/text\n"
                "@@ -2,7 +2,8 @@\n"
                " 2\n"
                " 3\n"
                " 4\n"
                "-5\n"
                "+five\n"
                " 6\n"
                " 7\n"
                " 8\n"
                "+nine\n"
                "\\ No newline at end of file\n"
                "diff --git a/zero b/zero\n"
                "new file mode 100644\n"
                "Binary files /dev/null and b/zero differ\n");
    cay_diff_free(diff);
}

TEST(the_stat_is_that_of_git)
{
    put_example();
    cay_diff *diff = compare(CAY_DIFF_MARKS_NONE, NULL);
    check_print(diff, CAY_DIFF_STAT,
                " \"dir/added \\\"x\\\"\"  |   1 +\n"
                " moved => dir/moved |   1 -\n"
                " gone               |   1 -\n"
                " link               |   1 +\n"
                " run                |   0\n"
                " text               |   3 ++-\n"
                " zero               | Bin 0 -> 2 bytes\n"
                " 7 files changed, 4 insertions(+), 3 deletions(-)\n"
                " create mode 100644 \"dir/added \\\"x\\\"\"\n"
                " rename moved => dir/moved (83%)\n"
                " delete mode 100644 gone\n"
                " create mode 120000 link\n"
                " mode change 100644 => 100755 run\n"
                " create mode 100644 zero\n");
    cay_diff_free(diff);
}

TEST(the_graph_of_the_stat_fits_80_columns)
{
    AUTO_BUF text;

    buf_init(&text, 1 << 20);
    for (int i = 0; i < 5000; i++)
        ASSERT(buf_format(&text, "%d\n", i));
    put_file("new/many", text.data);
    put_file("new/few", "1\n");
    cay_diff *diff = compare(CAY_DIFF_MARKS_NONE, NULL);
    text.len = 0;
    ASSERT_OK(cay_diff_print(diff, CAY_DIFF_STAT, write_buf, &text, &err));
    ASSERT_HAS(text.data, " few  |    1 +\n");
    const char *many = strstr(text.data, " many |");
    ASSERT_INT(strchr(many, '\n') - many, 80);
    cay_diff_free(diff);
}

TEST(json_describes_both_sides)
{
    char expected[2048];

    put_file("old/a", "1\n");
    put_file("new/a", "1\n2\n");
    put_file("new/\xff", "");
    ASSERT_INT(chmod(scratch_path("old/a"), 0644), 0);
    ASSERT_INT(chmod(scratch_path("new/a"), 0600), 0);
    ASSERT_INT(chmod(scratch_path("new/\xff"), 0644), 0);
    cay_diff *diff = compare(CAY_DIFF_MARKS_NONE, NULL);
    snprintf(expected, sizeof expected,
             "{\"changes\":[{\"change\":\"modified\",\"path\":\"a\",\"changed\":"
             "[\"content\",\"mode\"],\"before\":{\"type\":\"file\",\"mode\":"
             "\"0644\",\"uid\":%u,\"gid\":%u,\"size\":2},\"after\":{\"type\":"
             "\"file\",\"mode\":\"0600\",\"uid\":%u,\"gid\":%u,\"size\":4},"
             "\"binary\":false,\"insertions\":1,\"deletions\":0},{\"change\":"
             "\"added\",\"path\":\"\\udcff\",\"before\":null,\"after\":{\"type\":"
             "\"file\",\"mode\":\"0644\",\"uid\":%u,\"gid\":%u,\"size\":0},"
             "\"binary\":false,\"insertions\":0,\"deletions\":0}],"
             "\"insertions\":1,\"deletions\":0,\"cut\":0}\n",
             geteuid(), getegid(), geteuid(), getegid(), geteuid(), getegid());
    check_print(diff, CAY_DIFF_JSON, expected);
    cay_diff_free(diff);
}

static int fail_late(void *cookie, enum cay_diff_line line, const char *text, size_t len)
{
    int *calls = cookie;

    (void)line;
    (void)text;
    (void)len;
    return ++*calls == 3 ? ENOSPC : 0;
}

TEST(a_failed_write_ends_the_output)
{
    int calls = 0;

    put_example();
    cay_diff *diff = compare(CAY_DIFF_MARKS_NONE, NULL);
    ASSERT_CODE(cay_diff_print(diff, CAY_DIFF_UNIFIED, fail_late, &calls, &err),
                CAY_E_NO_SPACE);
    ASSERT_INT(calls, 3);
    cay_diff_free(diff);
}

/* --- Marks --- */

static void set_mark(const char *name, const char *mark, const char *value)
{
    if (setxattr(scratch_path(name), mark, value, strlen(value), 0) != 0)
        SKIP("the file system has no extended attributes of users");
}

TEST(an_opaque_directory_hides_what_is_below)
{
    put_file("old/dir/a", "a");
    put_file("old/dir/sub/b", "b");
    put_file("new/dir/c", "c");
    set_mark("new/dir", "user.overlay.opaque", "y");
    check_names(CAY_DIFF_MARKS_USER, "D\tdir/a\nA\tdir/c\nD\tdir/sub/\nD\tdir/sub/b\n");
}

TEST(marks_of_the_other_kind_are_ignored)
{
    put_file("old/dir/a", "a");
    put_file("new/dir/c", "c");
    set_mark("new/dir", "user.overlay.opaque", "y");
    check_names(CAY_DIFF_MARKS_TRUSTED, "A\tdir/c\n");
}

TEST(an_attribute_is_a_whiteout_where_its_directory_says_so)
{
    put_file("old/dir/a", "a");
    put_file("old/dir/b", "b");
    put_file("old/other/a", "a");
    put_file("new/dir/a", "");
    put_file("new/other/a", "");
    set_mark("new/dir", "user.overlay.opaque", "x");
    set_mark("new/dir/a", "user.overlay.whiteout", "y");
    set_mark("new/other/a", "user.overlay.whiteout", "y");
    check_names(CAY_DIFF_MARKS_USER, "D\tdir/a\nM\tother/a\n");
}

TEST(a_device_0_0_is_a_whiteout_in_a_layer_only)
{
    put_file("old/a/b", "b");
    ASSERT_INT(mkdir(scratch_path("new"), 0755), 0);
    if (mknod(scratch_path("new/a"), S_IFCHR | 0600, makedev(0, 0)) != 0)
        SKIP("mknod() is denied");
    check_names(CAY_DIFF_MARKS_TRUSTED, "D\ta/\nD\ta/b\n");
    check_names(CAY_DIFF_MARKS_NONE, "T\ta\nD\ta/b\n");
}

TEST(owners_are_those_inside)
{
    if (geteuid() != 0)
        SKIP("chown() needs root");
    put_file("old/a", "a");
    put_file("new/a", "a");
    ASSERT_INT(chown(scratch_path("new/a"), 100000, 100000), 0);
    AUTO_FD old = open_dir("old"), new = open_dir("new");
    const struct cay_diff_layer before = {.fd = old},
                                after = {.fd = new, .id_base = 100000};
    cay_diff *diff = NULL;
    size_t count;
    ASSERT_OK(cay_diff_compare(&(struct cay_diff_tree){&before, 1},
                               &(struct cay_diff_tree){&after, 1}, NULL, &diff, &err));
    (void)cay_diff_changes(diff, &count);
    ASSERT_INT(count, 0);
    cay_diff_free(diff);
}

TEST(a_hard_link_names_a_path_of_its_file)
{
    size_t count;

    put_file("old/a", "text\n");
    put_file("new/a", "text\n");
    ASSERT_INT(link(scratch_path("new/a"), scratch_path("new/b")), 0);
    cay_diff *diff = compare(CAY_DIFF_MARKS_USER, NULL);
    const struct cay_change *changes = cay_diff_changes(diff, &count);
    ASSERT_INT(count, 1);
    ASSERT_STR(changes[0].path, "b");
    ASSERT_STR(changes[0].hard_link, "a");
    cay_diff_free(diff);
}

/* --- Hostile layers --- */

TEST(links_and_special_files_are_not_followed_or_opened)
{
    put_file("secret", "secret\n");
    put_file("old/a", "a\n");
    put_file("old/b", "b\n");
    put_file("old/dir/secret", "x\n");
    ASSERT_INT(mkdir(scratch_path("new"), 0755), 0);
    ASSERT_INT(symlink("../secret", scratch_path("new/a")), 0);
    ASSERT_INT(mkfifo(scratch_path("new/b"), 0600), 0);
    ASSERT_INT(symlink("..", scratch_path("new/dir")), 0);
    check_names(CAY_DIFF_MARKS_USER, "T\ta\nT\tb\nT\tdir\nD\tdir/secret\n");
    cay_diff *diff = compare(CAY_DIFF_MARKS_USER, NULL);
    AUTO_BUF text;
    buf_init(&text, 1 << 20);
    ASSERT_OK(cay_diff_print(diff, CAY_DIFF_UNIFIED, write_buf, &text, &err));
    ASSERT(!strstr(text.data, "+secret"));
    ASSERT_HAS(text.data, "+../secret\n");
    cay_diff_free(diff);
}

TEST(a_file_that_becomes_a_fifo_after_the_walk_is_not_opened)
{
    put_file("old/a", "a\n");
    put_file("new/a", "b\n");
    cay_diff *diff = compare(CAY_DIFF_MARKS_USER, NULL);
    ASSERT_INT(unlink(scratch_path("new/a")), 0);
    ASSERT_INT(mkfifo(scratch_path("new/a"), 0600), 0);
    check_print(diff, CAY_DIFF_UNIFIED,
                "diff --git a/a b/a\nBinary files a/a and b/a differ\n");
    cay_diff_free(diff);
}

TEST(a_tree_beyond_path_max_is_cut)
{
    enum { DEPTH = 400 };
    char name[12] = "0123456789";
    size_t count;

    AUTO_FD dir = open_dir("new");
    for (int i = 0; i < DEPTH; i++) {
        ASSERT_INT(mkdirat(dir, name, 0755), 0);
        int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT(below >= 0);
        (void)close(dir);
        dir = below;
    }
    cay_diff *diff = compare(CAY_DIFF_MARKS_USER, NULL);
    (void)cay_diff_changes(diff, &count);
    ASSERT_INT(count, 4095 / 11);
    ASSERT_INT(cay_diff_cut(diff), 1);
    cay_diff_free(diff);
    /* The scratch directory is removed by its path, which has a limit, too. */
    for (int i = 0; i < DEPTH; i++) {
        int above = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT_INT(unlinkat(above, name, AT_REMOVEDIR), 0);
        (void)close(dir);
        dir = above;
    }
}

TEST(the_number_of_changes_is_limited)
{
    const struct cay_diff_options options = {.size = sizeof options, .max_changes = 3};
    char name[16];
    size_t count;

    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "new/%d", i);
        put_file(name, "");
    }
    cay_diff *diff = compare(CAY_DIFF_MARKS_USER, &options);
    (void)cay_diff_changes(diff, &count);
    ASSERT_INT(count, 3);
    ASSERT_INT(cay_diff_cut(diff), 7);
    cay_diff_free(diff);
}

TEST(a_large_sparse_file_is_not_read)
{
    put_file("old/a", "a\n");
    put_file("new/a", "b\n");
    ASSERT_INT(truncate(scratch_path("old/a"), (off_t)1 << 42), 0);
    ASSERT_INT(truncate(scratch_path("new/a"), (off_t)1 << 42), 0);
    cay_diff *diff = compare(CAY_DIFF_MARKS_USER, NULL);
    check_print(diff, CAY_DIFF_UNIFIED,
                "diff --git a/a b/a\nBinary files a/a and b/a differ\n");
    cay_diff_free(diff);
}

TEST(a_comparison_ends_at_its_timeout)
{
    const struct cay_diff_options options = {.size = sizeof options, .timeout_ms = 1};
    AUTO_FD old = open_dir("old"), new = open_dir("new");
    const struct cay_diff_layer before = {.fd = old}, after = {.fd = new};
    cay_diff *diff = NULL;

    put_file("old/a", "");
    put_file("new/a", "");
    ASSERT_INT(truncate(scratch_path("old/a"), (off_t)4 << 30), 0);
    ASSERT_INT(truncate(scratch_path("new/a"), (off_t)4 << 30), 0);
    ASSERT_CODE(cay_diff_compare(&(struct cay_diff_tree){&before, 1},
                                 &(struct cay_diff_tree){&after, 1}, &options, &diff,
                                 &err),
                CAY_E_TIMEOUT);
    ASSERT(!diff);
}

/* --- Bad input --- */

TEST(bad_layers_and_options_are_refused)
{
    AUTO_FD dir = open_dir("old");
    AUTO_FD file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const struct cay_diff_layer good = {.fd = dir}, bad = {.fd = file}, none = {.fd = -1},
                                odd = {.fd = dir, .marks = (enum cay_diff_marks)7};
    const struct cay_diff_tree tree = {&good, 1}, empty = {&good, 0};
    const struct cay_diff_options options = {.size = sizeof options, .flags = 1 << 9};
    cay_diff *diff;

    ASSERT_CODE(cay_diff_compare(&tree, &empty, NULL, &diff, &err), CAY_E_INVALID);
    ASSERT_CODE(
        cay_diff_compare(&tree, &(struct cay_diff_tree){&bad, 1}, NULL, &diff, &err),
        CAY_E_INVALID);
    ASSERT_CODE(
        cay_diff_compare(&tree, &(struct cay_diff_tree){&odd, 1}, NULL, &diff, &err),
        CAY_E_INVALID);
    ASSERT_CODE(
        cay_diff_compare(&tree, &(struct cay_diff_tree){&none, 1}, NULL, &diff, &err),
        CAY_E_IO);
    ASSERT_CODE(cay_diff_compare(&tree, &tree, &options, &diff, &err), CAY_E_INVALID);
    ASSERT_OK(cay_diff_compare(&tree, &tree, NULL, &diff, &err));
    ASSERT_CODE(cay_diff_print(diff, (enum cay_diff_format)9, write_buf, NULL, &err),
                CAY_E_INVALID);
    cay_diff_free(diff);
    cay_diff_free(NULL);
}
