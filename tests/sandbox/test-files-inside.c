/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "inside.h"

/* --- Reading and writing --- */

TEST(what_is_written_outside_is_there_inside_and_belongs_to_the_user)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_stat stat;

    put(files, "/home/user/a.txt", "written outside");
    ASSERT_STR(told(sandbox, "cat /home/user/a.txt"), "written outside");
    ASSERT_STR(told(sandbox, "stat -c '%u %g %a' /home/user/a.txt"), "1000 1000 644");
    (void)told(sandbox, "echo written inside > /home/user/b.txt");
    expect(files, "/home/user/b.txt", "written inside\n");
    ASSERT_OK(cay_files_stat(files, "/home/user/a.txt", false, &stat, &err));
    ASSERT_INT(stat.uid, 1000);
    ASSERT_INT(stat.gid, 1000);
    ASSERT_INT(stat.bytes, 15);
    ASSERT_INT(stat.mode, 0644);
    cay_exec_done(&result);
}

TEST(relative_paths_start_at_the_users_home)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO(cay_files) as_root = files_of(sandbox, "root");

    put(files, "a", "user's");
    put(as_root, "a", "root's");
    expect(files, "/home/user/a", "user's");
    expect(as_root, "/root/a", "root's");
    expect(files, "./a", "user's");
    expect(files, "../user/a", "user's");
}

TEST(bytes_are_bytes_and_no_bytes_are_a_file_too)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const char bytes[] = "a\0b\r\n\xff\xfe";
    struct cay_page page;

    ASSERT_OK(cay_files_write(files, "b", bytes, sizeof bytes, NULL, &err));
    ASSERT_OK(cay_files_read_bytes(files, "b", NULL, &page, &err));
    ASSERT_MEM(page.text, page.len, bytes, sizeof bytes);
    cay_page_done(&page);
    ASSERT_CODE(cay_files_read(files, "b", NULL, &page, &err), CAY_E_NOT_TEXT);
    put(files, "empty", "");
    expect(files, "empty", "");
    ASSERT_STR(told(sandbox, "stat -c %s /home/user/empty"), "0");
    cay_exec_done(&result);
}

TEST(parents_are_made_as_the_user_and_go_again_if_the_write_fails)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const struct cay_write_options no_parents = {.size = sizeof no_parents,
                                                 .flags = CAY_WRITE_NO_PARENTS};
    enum { TOO_MUCH = 600 << 20 };
    void *nothing = mmap(NULL, TOO_MUCH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    put(files, "a/b/c/d", "deep");
    ASSERT_STR(told(sandbox, "cd /home/user; stat -c '%u %a' a a/b a/b/c"),
               "1000 755\n1000 755\n1000 755");
    ASSERT_CODE(cay_files_write(files, "n/x", "x", 1, &no_parents, &err),
                CAY_E_NOT_FOUND);
    /* The disk has 512 MiB. */
    ASSERT(nothing != MAP_FAILED);
    ASSERT_CODE(cay_files_write(files, "m/n/o", nothing, TOO_MUCH, NULL, &err),
                CAY_E_NO_SPACE);
    ASSERT_INT(cay_files_exists(files, "m", &err), 0);
    ASSERT_STR(told(sandbox, "ls -A /home/user"), "a");
    munmap(nothing, TOO_MUCH);
    cay_exec_done(&result);
}

TEST(in_place_keeps_inode_and_mode_and_a_replacement_keeps_mode_and_owner)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const struct cay_write_options in_place = {.size = sizeof in_place,
                                               .flags = CAY_WRITE_IN_PLACE};
    const char look[] = "stat -c '%i %a %u' /home/user/x";
    char before[64];

    put(files, "x", "first");
    (void)told(sandbox, "chmod 750 /home/user/x");
    snprintf(before, sizeof before, "%s", told(sandbox, look));
    ASSERT_OK(cay_files_write(files, "x", "2", 1, &in_place, &err));
    ASSERT_STR(told(sandbox, look), before);
    expect(files, "x", "2");
    put(files, "x", "third");
    ASSERT(strcmp(told(sandbox, look), before) != 0);
    ASSERT_STR(told(sandbox, "stat -c '%a %u' /home/user/x"), "750 1000");
    cay_exec_done(&result);
}

TEST(a_root_owned_file_that_the_user_may_write_stays_roots)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);

    (void)told(sandbox, "cd /tmp; echo old > f; chmod 666 f");
    put(files, "/tmp/f", "new");
    ASSERT_STR(told(sandbox, "cat /tmp/f; stat -c ' %u %a' /tmp/f"), "new 0 666");
    cay_exec_done(&result);
}

TEST(append_and_new_and_durable_do_what_they_say)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_write_options options = {.size = sizeof options,
                                        .flags = CAY_WRITE_APPEND | CAY_WRITE_DURABLE};

    ASSERT_OK(cay_files_write(files, "log", "one\n", 4, &options, &err));
    ASSERT_OK(cay_files_write(files, "log", "two\n", 4, &options, &err));
    expect(files, "log", "one\ntwo\n");
    options.flags = CAY_WRITE_NEW | CAY_WRITE_DURABLE;
    ASSERT_CODE(cay_files_write(files, "log", "x", 1, &options, &err), CAY_E_EXISTS);
    ASSERT_OK(cay_files_write(files, "fresh", "x", 1, &options, &err));
}

TEST(text_is_edited_and_paged)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const struct cay_edit edits[] = {{"two", 3, "2", 1, 0}, {"one", 3, "1", 1, 0}};
    const struct cay_read_options second = {.size = sizeof second, .offset = 1, .max = 1};
    struct cay_edit_result outcome;
    struct cay_page page;

    put(files, "t", "one\r\ntwo\r\n");
    (void)told(sandbox, "chmod 600 /home/user/t");
    ASSERT_OK(cay_files_edit(files, "t", edits, 2, NULL, &outcome, &err));
    ASSERT_INT(outcome.replaced, 2);
    expect(files, "t", "1\r\n2\r\n");
    ASSERT_STR(told(sandbox, "stat -c %a /home/user/t"), "600");
    ASSERT_CODE(cay_files_edit(files, "t", edits, 1, NULL, NULL, &err), CAY_E_NO_MATCH);
    ASSERT_OK(cay_files_read_lines(files, "t", &second, &page, &err));
    ASSERT_STR(page.text, "2\r\n");
    cay_page_done(&page);
    cay_exec_done(&result);
}

static void fill(char *data, size_t len)
{
    uint64_t seed = 88172645463325252u;

    for (size_t i = 0; i + 8 <= len; i += 8) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        memcpy(data + i, &seed, 8);
    }
}

TEST(a_hundred_mebibytes_go_in_and_come_out)
{
    const struct cay_sandbox_options options = {.size = sizeof options};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const size_t sizes[] = {50u << 20, CAY_READ_MAX};
    AUTO_FREE char *data = malloc(CAY_READ_MAX);
    struct cay_page page;

    fill(data, CAY_READ_MAX);
    for (size_t i = 0; i < 2; i++) {
        ASSERT_OK(cay_files_write(files, "big", data, sizes[i], NULL, &err));
        ASSERT_OK(cay_files_read_bytes(files, "big", NULL, &page, &err));
        ASSERT_INT(page.len, sizes[i]);
        ASSERT(memcmp(page.text, data, sizes[i]) == 0);
        cay_page_done(&page);
    }
}

TEST(many_files_go_in_one_call_each_with_its_own_outcome)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_write_item writes[] = {{.path = "a", .data = "A", .len = 1},
                                      {.path = "/etc/no", .data = "B", .len = 1},
                                      {.path = "d/c", .data = "C", .len = 1}};
    struct cay_read_item reads[] = {{.path = "a"}, {.path = "missing"}, {.path = "d/c"}};

    ASSERT_OK(cay_files_write_many(files, writes, 3, NULL, &err));
    ASSERT_INT(writes[0].error.code, CAY_OK);
    ASSERT_INT(writes[1].error.code, CAY_E_DENIED);
    ASSERT_INT(writes[2].error.code, CAY_OK);
    ASSERT_OK(cay_files_read_many(files, reads, 3, &err));
    ASSERT_STR(reads[0].page.text, "A");
    ASSERT_INT(reads[1].error.code, CAY_E_NOT_FOUND);
    ASSERT_STR(reads[2].page.text, "C");
    cay_page_done(&reads[0].page);
    cay_page_done(&reads[2].page);
}

/* --- Names --- */

TEST(names_are_deleted_moved_copied_and_made)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_name_options options = {.size = sizeof options};

    put(files, "a", "A");
    (void)told(sandbox, "touch -d '2001-02-03 04:05:06' /home/user/a");
    ASSERT_OK(cay_files_copy(files, "a", "new/copy", NULL, &err));
    ASSERT_STR(told(sandbox, "stat -c '%y %u' /home/user/new/copy | cut -c1-19,36-"),
               "2001-02-03 04:05:06 1000");
    ASSERT_CODE(cay_files_copy(files, "a", "new/copy", NULL, &err), CAY_E_EXISTS);
    ASSERT_OK(cay_files_move(files, "new/copy", "moved", NULL, &err));
    expect(files, "moved", "A");
    ASSERT_CODE(cay_files_move(files, "new", "old", NULL, &err), CAY_E_NOT_A_FILE);
    options.flags = CAY_NAME_DIRECTORY;
    ASSERT_OK(cay_files_move(files, "new", "old", &options, &err));
    options.flags = CAY_NAME_REPLACE;
    put(files, "mine", "M");
    ASSERT_CODE(cay_files_move(files, "/etc/passwd", "mine", &options, &err),
                CAY_E_DENIED);
    expect(files, "mine", "M");
    ASSERT_OK(cay_files_move(files, "mine", "moved", &options, &err));
    expect(files, "moved", "M");
    ASSERT_OK(cay_files_mkdir(files, "p/q", NULL, &err));
    ASSERT_CODE(cay_files_mkdir(files, "p/q", NULL, &err), CAY_E_EXISTS);
    ASSERT_OK(cay_files_delete(files, "a", NULL, &err));
    ASSERT_CODE(cay_files_delete(files, "a", NULL, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_delete(files, "p", NULL, &err), CAY_E_NOT_A_FILE);
    options.flags = CAY_NAME_RECURSIVE;
    ASSERT_OK(cay_files_delete(files, "p", &options, &err));
    ASSERT_STR(told(sandbox, "ls -A /home/user"), "moved\nold");
    ASSERT_CODE(cay_files_delete(files, "/", &options, &err), CAY_E_INVALID);
    cay_exec_done(&result);
}

TEST(names_may_have_any_bytes_and_255_of_them)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const struct cay_list_options everything = {.size = sizeof everything};
    char longest[300];
    const char *const names[] = {"new\nline", " blanks ", "back\\slash", "\xff\xfe",
                                 "~",         "C:",       "-rf",         "a (deleted)",
                                 "\x01\x7f",  "*?[x]",    longest};
    struct cay_listing listing;

    memset(longest, 'n', 255);
    longest[255] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[320];
        put(files, names[i], names[i]);
        snprintf(path, sizeof path, "/home/user/%s", names[i]);
        expect(files, path, names[i]);
    }
    ASSERT_OK(cay_files_list(files, "", &everything, &listing, &err));
    ASSERT_INT(listing.count, sizeof names / sizeof *names);
    for (size_t i = 0; i < listing.count; i++)
        expect(files, listing.entries[i].path,
               listing.entries[i].path + strlen("/home/user/"));
    cay_listing_done(&listing);
    longest[255] = 'n';
    longest[256] = '\0';
    ASSERT_CODE(write_code(files, longest), CAY_E_INVALID);
    ASSERT_CODE(read_code(files, longest), CAY_E_INVALID);
}

TEST(two_dots_mean_what_they_mean_to_a_program)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);

    (void)told(sandbox, "cd /home/user; mkdir -p real/deep; echo side > real/side; "
                        "echo home > side; ln -s real/deep link; chown -R user .");
    expect(files, "link/../side", "side\n"); /* not "side" beside the link */
    expect(files, "../../../../home/user/side", "home\n");
    expect(files, "/../../home/user/side", "home\n");
    ASSERT_CODE(read_code(files, "missing/../side"), CAY_E_NOT_FOUND);
    ASSERT_CODE(read_code(files, "side/../side"), CAY_E_NOT_A_DIRECTORY);
    put(files, "link/../made", "beside");
    expect(files, "real/made", "beside");
    cay_exec_done(&result);
}

TEST(a_file_is_made_where_a_link_that_leads_nowhere_points)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);

    (void)told(sandbox, "cd /home/user; mkdir real; ln -s real/new relative; "
                        "ln -s /home/user/real/abs absolute; ln -s relative twice; "
                        "ln -s real/./x/../no up; chown -R user .");
    put(files, "absolute", "absolute");
    put(files, "twice", "relative");
    ASSERT_STR(told(sandbox, "cd /home/user; cat real/abs real/new; test -L twice"),
               "absoluterelative");
    ASSERT_CODE(write_code(files, "up"), CAY_E_NOT_FOUND);
    cay_exec_done(&result);
}

/* --- Listing, searching, archives --- */

TEST(a_tree_is_listed_by_pattern_with_owners_as_they_are_inside)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const struct cay_list_options options = {.size = sizeof options,
                                             .flags = CAY_LIST_FILES | CAY_LIST_STAT,
                                             .pattern = "**/*.c"};
    struct cay_listing listing;

    (void)told(sandbox, "cd /home/user; mkdir -p src/sub; touch src/a.c src/b.h "
                        "src/sub/c.c; chown 1234:77 src/sub/c.c; ln -s src link");
    ASSERT_OK(cay_files_list(files, ".", &options, &listing, &err));
    ASSERT_INT(listing.count, 2);
    ASSERT_STR(listing.entries[0].path, "/home/user/src/a.c");
    ASSERT_INT(listing.entries[0].stat.uid, 0);
    ASSERT_STR(listing.entries[1].path, "/home/user/src/sub/c.c");
    ASSERT_INT(listing.entries[1].stat.uid, 1234);
    ASSERT_INT(listing.entries[1].stat.gid, 77);
    cay_listing_done(&listing);
    ASSERT_OK(cay_files_list(files, "src/a.c", NULL, &listing, &err));
    ASSERT_INT(listing.count, 0);
    /* Of the host: its root is nobody inside. */
    ASSERT_OK(cay_files_list(files, "/usr/bin",
                             &(struct cay_list_options){.size = sizeof options,
                                                        .flags = options.flags,
                                                        .pattern = "env"},
                             &listing, &err));
    ASSERT_INT(listing.count, 1);
    ASSERT_INT(listing.entries[0].stat.uid, 65534);
    cay_listing_done(&listing);
    cay_exec_done(&result);
}

TEST(many_names_are_looked_at_together_and_each_is_told_its_own)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const struct cay_list_options options = {.size = sizeof options,
                                             .flags = CAY_LIST_FILES | CAY_LIST_STAT};
    struct cay_listing listing = {0};

    /* More than go into one question, by their number and by their length. */
    (void)told(sandbox,
               "cd /srv; mkdir b; long=$(printf %0200d 0); for i in $(seq 100 299); "
               "do truncate -s $i $i b/$i-$long; done; ln -s 200 c");
    ASSERT_OK(cay_files_list(files, "/srv", &options, &listing, &err));
    ASSERT_INT(listing.count, 401);
    for (size_t i = 0; i < listing.count; i++) {
        const char *name = strrchr(listing.entries[i].path, '/') + 1;
        long size = strtol(name, NULL, 10);
        /* 0: the link, which leads to the one of 200. */
        ASSERT_INT(listing.entries[i].stat.bytes, size ? size : 200);
        ASSERT_INT(listing.entries[i].stat.mode, 0644);
    }
    cay_listing_done(&listing);
    cay_exec_done(&result);
}

TEST(a_time_that_nanoseconds_cannot_count_is_the_last_they_can)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_stat stat;

    (void)told(sandbox,
               "cd /srv; touch -d @99999999999 late; touch -d @-99999999999 early");
    ASSERT_OK(cay_files_stat(files, "/srv/late", false, &stat, &err));
    ASSERT(stat.mtime_ns == INT64_MAX);
    ASSERT_OK(cay_files_stat(files, "/srv/early", false, &stat, &err));
    ASSERT(stat.mtime_ns == INT64_MIN);
    cay_exec_done(&result);
}

TEST(a_tree_is_searched)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_matches matches;

    (void)told(sandbox, "cd /home/user; mkdir d; echo 'the needle' > d/a; "
                        "echo needle > d/secret; chmod 600 d/secret; mkfifo d/fifo; "
                        "ln -s a d/link; echo hay > d/b");
    ASSERT_OK(cay_files_grep(files, "d", "n..dle", NULL, &matches, &err));
    ASSERT_INT(matches.count, 2);
    ASSERT_STR(matches.items[0].path, "/home/user/d/a");
    ASSERT_INT(matches.items[0].column, 5);
    ASSERT_STR(matches.items[1].path, "/home/user/d/link");
    ASSERT_INT(matches.files_skipped, 1); /* root's */
    cay_matches_done(&matches);
    ASSERT_OK(cay_files_grep(files, "d/a", "needle", NULL, &matches, &err));
    ASSERT_INT(matches.count, 1);
    cay_matches_done(&matches);
    cay_exec_done(&result);
}

TEST(a_tree_goes_out_and_in_again_as_an_archive)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO_FD archive = memfd_create("archive", MFD_CLOEXEC);
    struct cay_tar_result outcome;

    (void)told(sandbox, "cd /home/user; mkdir -p t/sub; echo a > t/a; echo b > t/sub/b; "
                        "chmod 640 t/a; ln -s a t/link; ln t/a t/hard; chown -R user t; "
                        "touch -d '2001-02-03 04:05:06' t/a");
    ASSERT_OK(cay_files_export(files, "t", archive, NULL, &outcome, &err));
    ASSERT_INT(outcome.skipped, 0);
    ASSERT_INT(lseek(archive, 0, SEEK_SET), 0);
    ASSERT_OK(cay_files_import(files, "new/place", archive, NULL, &outcome, &err));
    ASSERT_STR(told(sandbox, "cd /home/user/new/place; cat link sub/b; "
                             "stat -c '%a %u %y' a | cut -c1-28; readlink link"),
               "a\nb\n640 1000 2001-02-03 04:05:06\na");
    cay_exec_done(&result);
}

/* --- The handle --- */

TEST(a_derived_handle_is_narrower_and_outlives_its_parent)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_files *files = files_of(sandbox, NULL);
    const char *const below[] = {"/home/user/open"};
    const struct cay_derive derive = {
        .size = sizeof derive, .allow_read = below, .allow_read_count = 1};
    cay_files *derived = NULL;

    put(files, "open/a", "A");
    put(files, "closed", "no");
    (void)told(sandbox, "ln -s ../closed /home/user/open/link");
    ASSERT_OK(cay_files_derive(files, &derive, &derived, &err));
    cay_files_free(files);
    AUTO(cay_files) child = derived;
    expect(child, "open/a", "A");
    ASSERT_CODE(read_code(child, "closed"), CAY_E_OUTSIDE);
    ASSERT_CODE(read_code(child, "open/link"), CAY_E_OUTSIDE);
    ASSERT_CODE(write_code(child, "open/a"), CAY_E_READ_ONLY);
    cay_exec_done(&result);
}

TEST(too_few_descriptors_here_are_not_taken_for_a_lie_of_init)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct rlimit before, few;

    put(files, "a", "A");
    int next = dup(0);
    close(next);
    ASSERT(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    few.rlim_cur = (rlim_t)next;
    ASSERT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int code = read_code(files, "a");
    int written = write_code(files, "a");
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    ASSERT_INT(code, CAY_E_UNAVAILABLE);
    ASSERT_INT(written, CAY_E_UNAVAILABLE);
    expect(files, "a", "A");
}

struct share {
    cay_files *files;
    int number;
};

static void *write_and_read(void *cookie)
{
    const struct share *share = cookie;
    struct cay_page page = {0};
    struct cay_error error;
    char name[16];
    bool fine = true;

    snprintf(name, sizeof name, "n%d", share->number);
    for (int i = 0; i < 300 && fine; i++) {
        char text[32];
        snprintf(text, sizeof text, "%d %d", share->number, i);
        fine = cay_files_write(share->files, name, text, strlen(text), NULL, &error) ==
                   CAY_OK &&
               cay_files_read_bytes(share->files, name, NULL, &page, &error) == CAY_OK &&
               strcmp(page.text, text) == 0;
        cay_page_done(&page);
    }
    return fine ? NULL : cookie;
}

TEST(threads_may_share_a_handle)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct share shares[4];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        shares[i] = (struct share){files, i};
        ASSERT(pthread_create(&threads[i], NULL, write_and_read, &shares[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        ASSERT(pthread_join(threads[i], &failed) == 0);
        ASSERT(!failed);
    }
}

TEST(files_are_there_while_everything_else_stands_still)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);

    put(files, "a", "before");
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    expect(files, "a", "before");
    put(files, "a", "meanwhile");
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    ASSERT_STR(told(sandbox, "cat /home/user/a"), "meanwhile");
    cay_exec_done(&result);
}

TEST(when_the_sandbox_is_gone_only_what_is_open_is_read)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    cay_reader *reader;
    struct cay_listing listing;
    struct cay_page page;

    put(files, "a", "still there");
    ASSERT_OK(cay_reader_open(files, "a", &reader, &err));
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_CODE(read_code(files, "a"), CAY_E_UNAVAILABLE);
    assert_discreet(&err);
    ASSERT_CODE(write_code(files, "a"), CAY_E_UNAVAILABLE);
    ASSERT_INT(cay_files_exists(files, "a", &err), CAY_E_UNAVAILABLE);
    ASSERT_CODE(cay_files_list(files, "/", NULL, &listing, &err), CAY_E_UNAVAILABLE);
    ASSERT_OK(cay_reader_page(reader, NULL, &page, &err));
    ASSERT_STR(page.text, "still there");
    cay_page_done(&page);
    cay_reader_free(reader);
    ASSERT_CODE(cay_sandbox_files(sandbox, NULL, &files, &err), CAY_E_NOT_FOUND);
}
