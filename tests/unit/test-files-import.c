/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"
#include "not-under-valgrind.h"
#include "policies.h"

/* It knows no pidfds either. */
NOT_UNDER_VALGRIND("valgrind cannot live below a seccomp filter")

/* --- Archives made by hand, so that they can be as wrong as an enemy's --- */

struct entry {
    const char *name;
    char
        type; /* '0' file, '1' hard link, '2' link, '3' device, '5' directory, '6' FIFO */
    const char *link;
    unsigned mode;
    const char *data;
};

static void add_block(struct buf *tar, const char *name, char type, const char *link,
                      unsigned mode, size_t size)
{
    char block[512] = {0};
    unsigned sum = 0;

    snprintf(block, 100, "%s", name);
    snprintf(block + 100, 8, "%07o", mode & 07777777);
    snprintf(block + 108, 8, "%07o", 0u);
    snprintf(block + 116, 8, "%07o", 0u);
    snprintf(block + 124, 12, "%011o", (unsigned)size);
    snprintf(block + 136, 12, "%011o", 1234567890u);
    memset(block + 148, ' ', 8);
    block[156] = type;
    snprintf(block + 157, 100, "%s", link ? link : "");
    memcpy(block + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    ASSERT(buf_append(tar, block, sizeof block));
}

static void add_content(struct buf *tar, const char *data, size_t len)
{
    static const char zeros[512];

    ASSERT(buf_append(tar, data, len));
    ASSERT(buf_append(tar, zeros, (512 - len % 512) % 512));
}

static void add(struct buf *tar, struct entry entry)
{
    size_t len = entry.data ? strlen(entry.data) : 0;

    add_block(tar, entry.name, entry.type, entry.link, entry.mode ? entry.mode : 0644,
              len);
    if (len)
        add_content(tar, entry.data, len);
}

static void add_end(struct buf *tar)
{
    static const char zeros[1024];

    ASSERT(buf_append(tar, zeros, sizeof zeros));
}

static int memory_file(const void *data, size_t len)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT(write(fd, data, len) == (ssize_t)len);
    ASSERT(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static struct cay_tar_result result;

static int import_bytes(cay_files *files, const char *path, const struct buf *tar,
                        const struct cay_tar_options *options)
{
    AUTO_FD fd = memory_file(tar->data, tar->len);

    return cay_files_import(files, path, fd, options, &result, &err);
}

/* Imports the entries, and an end unless the last one has no name, below "data/in". */
static int import_entries(cay_files *files, const struct entry *entries)
{
    AUTO_BUF tar;

    buf_init(&tar, 1 << 20);
    for (; entries->name; entries++)
        add(&tar, *entries);
    add_end(&tar);
    return import_bytes(files, "data/in", &tar, NULL);
}
#define IMPORT(files, ...)                                                               \
    import_entries((files), (const struct entry[]){__VA_ARGS__, {.name = NULL}})

static bool exists(const char *name)
{
    struct stat st;

    return lstat(scratch_path(name), &st) == 0;
}

static mode_t mode_of(const char *name)
{
    struct stat st;

    ASSERT(lstat(scratch_path(name), &st) == 0);
    return st.st_mode & 07777;
}

/* --- Import --- */

TEST(an_archive_is_unpacked_below_the_directory_which_is_made_if_need_be)
{
    struct stat st;

    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(
        files, {"dir/", '5', NULL, 0750, NULL}, {"dir/file", '0', NULL, 0640, "content"},
        {"./dotted", '0', NULL, 0, ""}, {"not/announced/file", '0', NULL, 0, "x"},
        {"dir/link", '2', "file", 0777, NULL}));
    ASSERT_STR(get_file("data/in/dir/file"), "content");
    ASSERT_STR(get_file("data/in/dir/link"), "content");
    ASSERT_STR(get_file("data/in/dotted"), "");
    ASSERT_STR(get_file("data/in/not/announced/file"), "x");
    ASSERT_INT(mode_of("data/in/dir/file"), 0640);
    ASSERT_INT(mode_of("data/in/dir"), 0750);
    ASSERT(stat(scratch_path("data/in/dir/file"), &st) == 0);
    ASSERT_INT(st.st_mtime, 1234567890);
    ASSERT(stat(scratch_path("data/in/dir"), &st) == 0);
    ASSERT_INT(st.st_mtime, 1234567890);
    ASSERT_INT(result.entries, 5);
    ASSERT_INT(result.bytes, 8);
    ASSERT_INT(result.skipped, 0);
}

TEST(an_empty_archive_is_fine)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {.name = NULL}));
    ASSERT_INT(result.entries, 0);
}

TEST(a_name_that_climbs_or_is_absolute_is_outside)
{
    static const char *const names[] = {"../x",   "a/../../x", "..",
                                        "/tmp/x", "a/..",      "//x"};

    put_file("data/keep", "");
    AUTO(cay_files) files = open_data();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ASSERT_CODE(IMPORT(files, {"before", '0', NULL, 0, "kept"},
                           {names[i], '0', NULL, 0, "evil"}),
                    CAY_E_OUTSIDE);
        ASSERT_STR(err.subject, names[i]);
        ASSERT_CODE(IMPORT(files, {names[i], '5', NULL, 0755, NULL}), CAY_E_OUTSIDE);
        ASSERT_CODE(IMPORT(files, {"link", '1', names[i], 0, NULL}), CAY_E_OUTSIDE);
    }
    ASSERT(!exists("x") && !exists("data/x"));
    ASSERT_STR(get_file("data/in/before"), "kept");
}

TEST(what_was_unpacked_before_an_error_stays_and_is_counted)
{
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(IMPORT(files, {"a", '0', NULL, 0, "aaa"}, {"b", '0', NULL, 0, "b"},
                       {"../c", '0', NULL, 0, ""}),
                CAY_E_OUTSIDE);
    ASSERT_INT(result.entries, 2);
    ASSERT_INT(result.bytes, 4);
    ASSERT_STR(get_file("data/in/a"), "aaa");
}

TEST(a_link_that_leads_out_is_skipped)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(
        files, {"a", '2', "/etc/passwd", 0, NULL}, {"b", '2', "../../outside", 0, NULL},
        {"c", '2', "sub/../../../x", 0, NULL}, {"sub/d", '2', "../../../x", 0, NULL}));
    ASSERT_INT(result.skipped, 4);
    ASSERT_INT(result.entries, 0);
    ASSERT(!exists("data/in/a") && !exists("data/in/b") && !exists("data/in/c"));
}

TEST(a_link_that_stays_below_the_mount_is_made)
{
    put_file("data/shared", "shared");
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"sub/up", '2', "../../shared", 0, NULL},
                     {"dangling", '2', "later", 0, NULL},
                     {"later", '0', NULL, 0, "late"}));
    ASSERT_STR(get_file("data/in/sub/up"), "shared");
    ASSERT_STR(get_file("data/in/dangling"), "late");
}

TEST(a_file_through_a_link_of_the_archive_is_outside)
{
    put_file("data/target/x", "old");
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(IMPORT(files, {"link", '2', "../target", 0, NULL},
                       {"link/x", '0', NULL, 0, "evil"}),
                CAY_E_OUTSIDE);
    ASSERT_STR(err.subject, "data/in/link/x");
    ASSERT_STR(get_file("data/target/x"), "old");
    ASSERT_CODE(IMPORT(files, {"link2", '2', "../target", 0, NULL},
                       {"link2", '5', NULL, 0700, NULL}),
                CAY_E_OUTSIDE);
    ASSERT_CODE(IMPORT(files, {"link3", '2', "../target/x", 0, NULL},
                       {"hard", '1', "link3", 0, NULL}),
                CAY_E_OUTSIDE);
    ASSERT_CODE(IMPORT(files, {"link4", '2', "../target", 0, NULL},
                       {"hard", '1', "link4/x", 0, NULL}),
                CAY_E_OUTSIDE);
}

TEST(a_link_that_was_there_before_is_not_followed_either)
{
    put_file("outside/file", "old");
    put_file("data/in/keep", "");
    ASSERT(symlink("../../outside", scratch_path("data/in/out")) == 0);
    ASSERT(symlink("../../outside/file", scratch_path("data/in/file")) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(IMPORT(files, {"out/file", '0', NULL, 0, "evil"}), CAY_E_OUTSIDE);
    /* A file replaces a link of its name, not what the link points to. */
    ASSERT_OK(IMPORT(files, {"file", '0', NULL, 0, "new"}));
    ASSERT_STR(get_file("outside/file"), "old");
    ASSERT_STR(get_file("data/in/file"), "new");
}

TEST(a_hard_link_is_another_name_for_a_file_of_the_archive)
{
    struct stat one, two;

    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"sub/one", '0', NULL, 0, "same"},
                     {"two", '1', "./sub/one", 0, NULL},
                     {"two", '1', "sub/one", 0, NULL}));
    ASSERT_STR(get_file("data/in/two"), "same");
    ASSERT(stat(scratch_path("data/in/sub/one"), &one) == 0);
    ASSERT(stat(scratch_path("data/in/two"), &two) == 0);
    ASSERT(one.st_ino == two.st_ino);
    ASSERT_INT(one.st_nlink, 2); /* nothing is left of replacing a name by itself */
    ASSERT_CODE(IMPORT(files, {"three", '1', "missing", 0, NULL}), CAY_E_NOT_FOUND);
    ASSERT_CODE(
        IMPORT(files, {"dir", '5', NULL, 0755, NULL}, {"four", '1', "dir", 0, NULL}),
        CAY_E_NOT_A_FILE);
}

TEST(devices_and_fifos_are_skipped_and_counted)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"char", '3', NULL, 0, NULL}, {"block", '4', NULL, 0, NULL},
                     {"fifo", '6', NULL, 0, NULL}, {"file", '0', NULL, 0, "x"}));
    ASSERT_INT(result.skipped, 3);
    ASSERT_INT(result.entries, 1);
    ASSERT(!exists("data/in/char") && !exists("data/in/fifo"));
}

TEST(bits_beyond_read_write_and_execute_are_not_taken_over)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"setuid", '0', NULL, 06755, "x"},
                     {"sticky/", '5', NULL, 03755, NULL}));
    ASSERT_INT(mode_of("data/in/setuid"), 0755);
    ASSERT_INT(mode_of("data/in/sticky"), 0755);
}

TEST(the_umask_is_respected)
{
    AUTO(cay_files) files = open_data();
    mode_t before = umask(077);
    int code =
        IMPORT(files, {"file", '0', NULL, 0666, "x"}, {"dir/", '5', NULL, 0777, NULL});
    umask(before);
    ASSERT_INT(code, CAY_OK);
    ASSERT_INT(mode_of("data/in/file"), 0600);
    ASSERT_INT(mode_of("data/in/dir"), 0700);
}

TEST(a_directory_gets_its_mode_after_what_is_in_it)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"locked/", '5', NULL, 0500, NULL},
                     {"locked/sub/", '5', NULL, 0555, NULL},
                     {"locked/sub/file", '0', NULL, 0444, "x"}));
    ASSERT_INT(mode_of("data/in/locked"), 0500);
    ASSERT_INT(mode_of("data/in/locked/sub"), 0555);
    ASSERT_STR(get_file("data/in/locked/sub/file"), "x");
}

TEST(of_two_entries_with_one_name_the_last_wins)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"a", '0', NULL, 0, "first"}, {"a", '0', NULL, 0, "second"},
                     {"b", '2', "a", 0, NULL}, {"b", '0', NULL, 0, "file"},
                     {"c", '0', NULL, 0, "file"}, {"c", '2', "a", 0, NULL}));
    ASSERT_STR(get_file("data/in/a"), "second");
    ASSERT_STR(get_file("data/in/b"), "file");
    ASSERT_STR(get_file("data/in/c"), "second");
}

TEST(a_file_does_not_replace_a_directory_nor_the_other_way_round)
{
    put_file("data/in/dir/x", "");
    put_file("data/in/file", "old");
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(IMPORT(files, {"dir", '0', NULL, 0, "x"}), CAY_E_NOT_A_FILE);
    ASSERT_CODE(IMPORT(files, {"dir", '2', "x", 0, NULL}), CAY_E_NOT_A_FILE);
    ASSERT_CODE(IMPORT(files, {"file", '5', NULL, 0755, NULL}), CAY_E_EXISTS);
    ASSERT_CODE(IMPORT(files, {"file/x", '0', NULL, 0, "x"}), CAY_E_NOT_A_DIRECTORY);
    ASSERT_STR(get_file("data/in/file"), "old");
    ASSERT(exists("data/in/dir/x"));
}

TEST(a_truncated_archive_is_an_error_and_its_last_file_does_not_appear)
{
    AUTO_BUF tar;

    buf_init(&tar, 1 << 20);
    add(&tar, (struct entry){"whole", '0', NULL, 0, "whole"});
    add_block(&tar, "half", '0', NULL, 0644, 100000);
    add_content(&tar, "only the beginning", 18);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(import_bytes(files, "data/in", &tar, NULL), CAY_E_INVALID);
    ASSERT_HAS(err.message, "damaged");
    ASSERT_STR(get_file("data/in/whole"), "whole");
    ASSERT(!exists("data/in/half"));
}

TEST(what_is_no_archive_is_refused)
{
    AUTO_BUF junk;

    buf_init(&junk, 4096);
    AUTO(cay_files) files = open_data();
    ASSERT(buf_text(&junk, ""));
    ASSERT_CODE(import_bytes(files, "data/in", &junk, NULL), CAY_E_INVALID);
    ASSERT(buf_text(&junk, "#!/bin/sh\necho this is not a tar archive\n"));
    ASSERT_CODE(import_bytes(files, "data/in", &junk, NULL), CAY_E_INVALID);
    ASSERT_HAS(err.message, "not a tar archive");
}

TEST(a_descriptor_that_cannot_be_read_or_written_is_refused)
{
    AUTO(cay_files) files = open_data();
    AUTO_FD reading = open("/dev/null", O_RDONLY | O_CLOEXEC);
    AUTO_FD writing = open("/dev/null", O_WRONLY | O_CLOEXEC);

    ASSERT_CODE(cay_files_import(files, "data/in", 999, NULL, &result, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_files_import(files, "data/in", writing, NULL, &result, &err),
                CAY_E_INVALID);
    ASSERT(!exists("data/in"));
    ASSERT_CODE(cay_files_export(files, "data", -1, NULL, &result, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_files_export(files, "data", reading, NULL, &result, &err),
                CAY_E_INVALID);
}

static void compress(const struct buf *plain, struct buf *ret_gzip)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    size_t used = 0;

    buf_init(ret_gzip, 64 << 20);
    ASSERT(buf_reserve(ret_gzip, plain->len + 4096));
    archive_write_set_format_raw(archive);
    archive_write_add_filter_gzip(archive);
    ASSERT(archive_write_open_memory(archive, ret_gzip->data, ret_gzip->room - 1,
                                     &used) == ARCHIVE_OK);
    archive_entry_set_filetype(entry, AE_IFREG);
    ASSERT(archive_write_header(archive, entry) == ARCHIVE_OK);
    ASSERT(archive_write_data(archive, plain->data, plain->len) ==
           (la_ssize_t)plain->len);
    ASSERT(archive_write_close(archive) == ARCHIVE_OK);
    archive_write_free(archive);
    archive_entry_free(entry);
    ret_gzip->len = used;
}

TEST(gzip_is_understood_once)
{
    AUTO_BUF tar, once, twice;

    buf_init(&tar, 1 << 20);
    add(&tar, (struct entry){"file", '0', NULL, 0, "compressed"});
    add_end(&tar);
    compress(&tar, &once);
    compress(&once, &twice);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(import_bytes(files, "data/in", &once, NULL));
    ASSERT_STR(get_file("data/in/file"), "compressed");
    ASSERT_CODE(import_bytes(files, "data/in", &twice, NULL), CAY_E_INVALID);
    ASSERT_HAS(err.message, "more than once");
}

TEST(a_gzip_bomb_stops_at_the_limit_of_bytes)
{
    enum { SIZE = 20 << 20 };
    struct cay_tar_options options = {.size = sizeof options, .max_bytes = 1 << 20};
    char *zeros = calloc(1, SIZE);
    AUTO_BUF tar, gzip;

    buf_init(&tar, 64 << 20);
    add_block(&tar, "bomb", '0', NULL, 0644, SIZE);
    add_content(&tar, zeros, SIZE);
    add_end(&tar);
    free(zeros);
    compress(&tar, &gzip);
    ASSERT(gzip.len < 1 << 20);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(import_bytes(files, "data/in", &gzip, &options), CAY_E_LIMIT);
    ASSERT_HAS(err.hint, "1048576");
    ASSERT(!exists("data/in/bomb"));
}

/* A GNU sparse file that says it has 8 EiB, in 512 bytes of header. */
TEST(a_sparse_file_of_exbibytes_is_over_the_limit)
{
    AUTO_BUF tar;

    buf_init(&tar, 4096);
    add_block(&tar, "sparse", 'S', NULL, 0644, 0);
    memcpy(tar.data + 257, "ustar  ", 8);
    memset(tar.data + 386, 0, 12 * 8);
    memcpy(tar.data + 483, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12);
    memset(tar.data + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)tar.data[i];
    snprintf(tar.data + 148, 8, "%06o", sum);
    add_end(&tar);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(import_bytes(files, "data/in", &tar, NULL), CAY_E_LIMIT);
    ASSERT(!exists("data/in/sparse"));
}

TEST(entries_depth_and_names_have_limits)
{
    struct cay_tar_options options = {
        .size = sizeof options, .max_entries = 2, .max_depth = 3};
    char name[100];
    AUTO_BUF three, deep;

    buf_init(&three, 1 << 20);
    buf_init(&deep, 1 << 20);
    add(&three, (struct entry){"a", '0', NULL, 0, ""});
    add(&three, (struct entry){"b", '6', NULL, 0, NULL}); /* skipped ones count too */
    add(&three, (struct entry){"c", '0', NULL, 0, ""});
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(import_bytes(files, "data/in", &three, &options), CAY_E_LIMIT);
    add(&deep, (struct entry){"a/b/c/d", '0', NULL, 0, ""});
    ASSERT_CODE(import_bytes(files, "data/in", &deep, &options), CAY_E_LIMIT);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ASSERT_OK(IMPORT(files, {name, '0', NULL, 0, ""}));
}

/* A name by a GNU or pax header before the entry, which overrides the entry's own. */
static void add_long_name(struct buf *tar, bool gnu, const char *name)
{
    char record[8192];
    size_t len = strlen(name);

    if (gnu) {
        add_block(tar, "././@LongLink", 'L', NULL, 0644, len + 1);
        add_content(tar, name, len + 1);
    } else {
        int size = (int)len + 7; /* " path=" and the newline */
        int digits = snprintf(NULL, 0, "%d", size);
        size += snprintf(NULL, 0, "%d", size + digits);
        snprintf(record, sizeof record, "%d path=%s\n", size, name);
        add_block(tar, "pax", 'x', NULL, 0644, strlen(record));
        add_content(tar, record, strlen(record));
    }
    add(tar, (struct entry){"innocent", '0', NULL, 0, "x"});
}

TEST(a_name_from_an_extended_header_is_judged_like_any_other)
{
    for (int gnu = 0; gnu < 2; gnu++) {
        char name[6000];
        AUTO_BUF climbs, fine, long_component, long_path;

        buf_init(&climbs, 1 << 20);
        buf_init(&fine, 1 << 20);
        buf_init(&long_component, 1 << 20);
        buf_init(&long_path, 1 << 20);
        AUTO(cay_files) files = open_data();
        add_long_name(&climbs, gnu, "../../evil");
        add_end(&climbs);
        ASSERT_CODE(import_bytes(files, "data/in", &climbs, NULL), CAY_E_OUTSIDE);
        memset(name, 'n', sizeof name);
        name[255] = '\0';
        add_long_name(&fine, gnu, name);
        add_end(&fine);
        ASSERT_OK(import_bytes(files, "data/in", &fine, NULL));
        name[255] = 'n';
        name[256] = '\0';
        add_long_name(&long_component, gnu, name);
        add_end(&long_component);
        ASSERT_CODE(import_bytes(files, "data/in", &long_component, NULL), CAY_E_INVALID);
        name[256] = 'n';
        name[sizeof name - 1] = '\0';
        for (size_t i = 100; i < sizeof name; i += 100)
            name[i] = '/';
        add_long_name(&long_path, gnu, name);
        add_end(&long_path);
        ASSERT_OK(import_bytes(files, "data/in", &long_path, NULL));
        ASSERT_INT(result.skipped, 1);
        ASSERT(!exists("data/in/innocent"));
    }
}

TEST(the_write_rules_of_the_mount_apply_to_each_file)
{
    static const char *const suffixes[] = {".txt"};
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "data";
    mount.host = "data";
    mount.writable = true;
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 1;
    mount.max_file_bytes = 5;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_OK(IMPORT(files, {"a.txt", '0', NULL, 0, "12345"}));
    ASSERT_CODE(IMPORT(files, {"a.md", '0', NULL, 0, "x"}), CAY_E_SUFFIX);
    ASSERT_STR(err.subject, "data/in/a.md");
    ASSERT_CODE(IMPORT(files, {"b.txt", '0', NULL, 0, "123456"}), CAY_E_TOO_LARGE);
    ASSERT_CODE(IMPORT(files, {"a.sh", '1', "a.txt", 0, NULL}), CAY_E_SUFFIX);
    ASSERT(!exists("data/in/a.md") && !exists("data/in/b.txt") &&
           !exists("data/in/a.sh"));
}

TEST(nothing_is_unpacked_where_writing_is_not_granted)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "data";
    mount.host = "data";
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_CODE(IMPORT(files, {"a", '0', NULL, 0, "x"}), CAY_E_READ_ONLY);
    ASSERT(!exists("data/in"));
}

TEST(nothing_is_unpacked_behind_another_mount)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};
    AUTO_BUF tar;

    mounts[0].name = "/x";
    mounts[0].host = "one";
    mounts[0].writable = true;
    mounts[1].name = "/x/sub";
    mounts[1].host = "two";
    AUTO(cay_files) files = open_mounts(CAY_STYLE_MOUNTS, mounts, 2);
    buf_init(&tar, 1 << 20);
    add(&tar, (struct entry){"sub/a", '0', NULL, 0, "x"});
    ASSERT_CODE(import_bytes(files, "/x", &tar, NULL), CAY_E_OUTSIDE);
    ASSERT(!exists("one/sub/a") && !exists("two/a"));
}

TEST(the_place_to_unpack_must_be_a_directory_inside)
{
    put_file("data/file", "");
    AUTO(cay_files) files = open_data();
    AUTO_FD fd = memory_file("", 0);
    ASSERT_CODE(cay_files_import(files, "data/file", fd, NULL, &result, &err),
                CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(cay_files_import(files, "other", fd, NULL, &result, &err), CAY_E_OUTSIDE);
}

static enum cay_verdict refuse(void *cookie, const struct cay_approval *request,
                               char note[CAY_NOTE_MAX])
{
    (void)note;
    *(enum cay_op *)cookie = request->op;
    return CAY_VERDICT_DENY;
}

TEST(both_ways_ask_for_approval_before_anything_is_touched)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    enum cay_op asked = CAY_OP_READ;
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = CAY_STYLE_PATHS,
                                       .mounts = &mount,
                                       .mount_count = 1,
                                       .base = scratch()};
    struct cay_files_options options = {
        .size = sizeof options, .approver = refuse, .cookie = &asked};
    AUTO(cay_policy) policy = NULL;
    AUTO(cay_files) files = NULL;

    mount.name = "data";
    mount.host = "data";
    mount.writable = mount.read_approval = true;
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    ASSERT_CODE(IMPORT(files, {"a", '0', NULL, 0, "x"}), CAY_E_NOT_APPROVED);
    ASSERT_INT(asked, CAY_OP_IMPORT);
    ASSERT(!exists("data/in"));
    AUTO_FD fd = memory_file("", 0);
    ASSERT_CODE(cay_files_export(files, "data", fd, NULL, &result, &err),
                CAY_E_NOT_APPROVED);
    ASSERT_INT(asked, CAY_OP_EXPORT);
}

TEST(the_sender_sees_no_broken_pipe_while_it_sends_the_padding)
{
    int ends[2];
    AUTO_BUF tar;

    buf_init(&tar, 1 << 20);
    add(&tar, (struct entry){"a", '0', NULL, 0, "x"});
    add_end(&tar);
    ASSERT(buf_reserve(&tar, 200000));
    memset(tar.data + tar.len, 0, 200000);
    tar.len += 200000;
    ASSERT(pipe(ends) == 0);
    ASSERT(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) >= (int)tar.len);
    ASSERT(write(ends[1], tar.data, tar.len) == (ssize_t)tar.len);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_import(files, "data/in", ends[0], NULL, &result, &err));
    int left = -1;
    ASSERT(ioctl(ends[0], FIONREAD, &left) == 0);
    ASSERT_INT(left, 0);
    close(ends[0]);
    close(ends[1]);
}

/* --- There and back --- */

static int export_to_memory(cay_files *files, const char *path,
                            const struct cay_tar_options *options, int *ret_fd)
{
    *ret_fd = memory_file("", 0);
    int code = cay_files_export(files, path, *ret_fd, options, &result, &err);
    ASSERT(lseek(*ret_fd, 0, SEEK_SET) == 0);
    return code;
}

TEST(what_is_exported_comes_back_the_same)
{
    enum { SIZE = 3 << 20 };
    struct stat before, after;
    char *large = malloc(SIZE);

    for (size_t i = 0; i < SIZE; i++)
        large[i] = (char)(i * 2654435761u >> 13);
    put_file("data/from/dir/small", "small");
    put_file("data/from/empty", "");
    put_bytes("data/from/large", large, SIZE);
    put_file("data/from/\xff\xfe bytes", "not UTF-8");
    put_file("data/from/\xc3\xa9t\xc3\xa9", "UTF-8");
    put_file(
        "data/from/dir/"
        "a name that is longer than the hundred bytes which an old tar header has for"
        " it, and then some more of it",
        "long");
    ASSERT(symlink("dir/small", scratch_path("data/from/link")) == 0);
    ASSERT(chmod(scratch_path("data/from/dir/small"), 0751) == 0);
    AUTO(cay_files) files = open_data();
    int fd;
    ASSERT_OK(export_to_memory(files, "data/from", NULL, &fd));
    AUTO_FD archive = fd;
    ASSERT_INT(result.entries, 8);
    ASSERT_INT(result.bytes, SIZE + 5 + 9 + 5 + 4);
    ASSERT_OK(cay_files_import(files, "data/to", archive, NULL, &result, &err));
    ASSERT_INT(result.entries, 8);
    ASSERT_STR(get_file("data/to/link"), "small");
    ASSERT_STR(get_file("data/to/empty"), "");
    ASSERT_STR(get_file("data/to/\xff\xfe bytes"), "not UTF-8");
    ASSERT_STR(get_file("data/to/\xc3\xa9t\xc3\xa9"), "UTF-8");
    ASSERT_INT(mode_of("data/to/dir/small"), 0751);
    ASSERT(lstat(scratch_path("data/from/dir/small"), &before) == 0);
    ASSERT(lstat(scratch_path("data/to/dir/small"), &after) == 0);
    ASSERT(before.st_mtim.tv_sec == after.st_mtim.tv_sec);
    AUTO_FD copy = open(scratch_path("data/to/large"), O_RDONLY | O_CLOEXEC);
    char *back = malloc(SIZE + 1);
    ssize_t len = read(copy, back, SIZE + 1);
    ASSERT_MEM(back, (size_t)len, large, SIZE);
    free(back);
    free(large);
}

TEST(an_archive_cut_off_by_an_error_does_not_look_complete)
{
    struct cay_tar_options bytes = {.size = sizeof bytes, .max_bytes = 5};
    int fd;

    put_file("data/a", "123");
    put_file("data/b", "456");
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(export_to_memory(files, "data", &bytes, &fd), CAY_E_LIMIT);
    AUTO_FD archive = fd;
    ASSERT(cay_files_import(files, "data/to", archive, NULL, &result, &err) != CAY_OK);
}
