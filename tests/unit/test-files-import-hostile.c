/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>

#include "archives.h"

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
    put_file("data/in/keep/file", "old");
    ASSERT(symlink("keep", scratch_path("data/in/inside")) == 0);
    ASSERT(symlink("../../outside", scratch_path("data/in/out")) == 0);
    ASSERT(symlink("../../outside/file", scratch_path("data/in/file")) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(IMPORT(files, {"out/file", '0', NULL, 0, "evil"}), CAY_E_OUTSIDE);
    ASSERT_CODE(IMPORT(files, {"inside/file", '0', NULL, 0, "evil"}), CAY_E_OUTSIDE);
    ASSERT_STR(get_file("data/in/keep/file"), "old");
    /* A file replaces a link of its name, not what the link points to. */
    ASSERT_OK(IMPORT(files, {"file", '0', NULL, 0, "new"}));
    ASSERT_STR(get_file("outside/file"), "old");
    ASSERT_STR(get_file("data/in/file"), "new");
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
}

static void add_long_file(struct buf *tar, bool gnu, const char *name)
{
    add_long_name(tar, gnu, name);
    add(tar, (struct entry){"innocent", '0', NULL, 0, "x"});
}

/* Their paths are kept until the end. */
TEST(directories_with_long_paths_take_no_more_memory_than_entries_are_allowed)
{
    struct cay_tar_options few = {.size = sizeof few, .max_entries = 1000};
    char name[4000];
    AUTO_BUF tar;

    buf_init(&tar, 4 << 20);
    memset(name, 'd', sizeof name);
    for (size_t i = 200; i < sizeof name; i += 200)
        name[i] = '/';
    for (int i = 0; i < 400; i++) {
        snprintf(name + 3900, 8, "%d", i);
        add_long_name(&tar, true, name);
        add(&tar, (struct entry){"directory", '5', NULL, 0755, NULL});
    }
    add_end(&tar);
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(import_bytes(files, "data/in", &tar, &few), CAY_E_LIMIT);
    ASSERT_OK(import_bytes(files, "data/all", &tar, NULL));
    ASSERT_INT(result.entries, 400);
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
        add_long_file(&climbs, gnu, "../../evil");
        add_end(&climbs);
        ASSERT_CODE(import_bytes(files, "data/in", &climbs, NULL), CAY_E_OUTSIDE);
        memset(name, 'n', sizeof name);
        name[255] = '\0';
        add_long_file(&fine, gnu, name);
        add_end(&fine);
        ASSERT_OK(import_bytes(files, "data/in", &fine, NULL));
        name[255] = 'n';
        name[256] = '\0';
        add_long_file(&long_component, gnu, name);
        add_end(&long_component);
        ASSERT_CODE(import_bytes(files, "data/in", &long_component, NULL), CAY_E_INVALID);
        name[256] = 'n';
        name[sizeof name - 1] = '\0';
        for (size_t i = 100; i < sizeof name; i += 100)
            name[i] = '/';
        add_long_file(&long_path, gnu, name);
        add_end(&long_path);
        ASSERT_OK(import_bytes(files, "data/in", &long_path, NULL));
        ASSERT_INT(result.skipped, 1);
        ASSERT(!exists("data/in/innocent"));
    }
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
