/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "files/walk.h"
#include "harness.h"
#include "policies.h"

static void auto_listing(struct cay_listing *listing)
{
    cay_listing_done(listing);
}
#define AUTO_LISTING __attribute__((cleanup(auto_listing))) struct cay_listing

/* The paths of a listing, each followed by a blank; valid until the next call. */
static const char *paths_of(const struct cay_listing *listing)
{
    static struct buf paths;

    buf_done(&paths);
    buf_init(&paths, 1 << 20);
    for (size_t i = 0; i < listing->count; i++) {
        buf_text(&paths, listing->entries[i].path);
        buf_text(&paths, " ");
    }
    buf_append(&paths, "", 0);
    ASSERT(!paths.failed);
    return paths.data;
}

static const char *list_with(cay_files *files, const char *path,
                             struct cay_list_options options)
{
    AUTO_LISTING listing = {0};

    options.size = sizeof options;
    ASSERT_OK(cay_files_list(files, path, &options, &listing, &err));
    return paths_of(&listing);
}

static const char *list(cay_files *files, const char *path, const char *pattern)
{
    return list_with(files, path, (struct cay_list_options){.pattern = pattern});
}

static const char *list_types(cay_files *files, const char *path, const char *pattern,
                              unsigned flags)
{
    return list_with(files, path,
                     (struct cay_list_options){.flags = flags, .pattern = pattern});
}

static cay_files *open_two_mounts(const char *first, const char *second)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};

    mounts[0].name = first;
    mounts[0].host = "one";
    mounts[1].name = second;
    mounts[1].host = "two";
    return open_mounts(CAY_STYLE_MOUNTS, mounts, 2);
}

TEST(a_listing_has_the_files_below_a_directory_sorted_by_path)
{
    put_file("data/b", "");
    put_file("data/a/z", "");
    put_file("data/a.txt", "");
    put_file("data/.hidden", "");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", NULL), "data/.hidden data/a.txt data/a/z data/b ");
    ASSERT_STR(list(files, "data", ""), "data/.hidden data/a.txt data/a/z data/b ");
    ASSERT_STR(list(files, "data/a", NULL), "data/a/z ");
}

TEST(a_pattern_chooses_among_them)
{
    put_file("data/src/main.c", "");
    put_file("data/src/sub/util.c", "");
    put_file("data/src/sub/util.h", "");
    put_file("data/main.c", "");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", "*.c"), "data/main.c ");
    ASSERT_STR(list(files, "data", "src/*.c"), "data/src/main.c ");
    ASSERT_STR(list(files, "data", "**/*.c"),
               "data/main.c data/src/main.c data/src/sub/util.c ");
    ASSERT_STR(list(files, "data", "src/**"),
               "data/src/main.c data/src/sub/util.c data/src/sub/util.h ");
    ASSERT_STR(list(files, "data", "*/sub/util.?"),
               "data/src/sub/util.c data/src/sub/util.h ");
    ASSERT_STR(list(files, "data", "none/*"), "");
    ASSERT_STR(list(files, "data", "main.c/"), "");
}

TEST(a_pattern_that_leaves_the_directory_is_invalid)
{
    struct cay_list_options options = {.size = sizeof options};
    static const char *const patterns[] = {"/etc/*", "~/x", "../x", "a/../b", "c:x"};
    AUTO(cay_files) files = open_data();
    struct cay_listing listing;

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        options.pattern = patterns[i];
        ASSERT_CODE(cay_files_list(files, "data", &options, &listing, &err),
                    CAY_E_INVALID);
        ASSERT_STR(err.subject, patterns[i]);
    }
}

TEST(what_is_excluded_is_left_out_with_all_below_it)
{
    static const char *const exclude[] = {"**/node_modules/", "*.log", ".git",
                                          "**/*.js/"};

    put_file("data/node_modules/a", "");
    put_file("data/web/node_modules/b/c", "");
    put_file("data/web/index.js", "");
    put_file("data/x.log", "");
    put_file("data/web/y.log", "");
    put_file("data/.git/config", "");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(
        list_with(files, "data",
                  (struct cay_list_options){.exclude = exclude, .exclude_count = 4}),
        "data/web/index.js data/web/y.log ");
}

TEST(a_missing_directory_and_a_file_give_an_empty_listing)
{
    put_file("data/file", "");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data/nowhere", NULL), "");
    ASSERT_STR(list(files, "data/nowhere/below", NULL), "");
    ASSERT_STR(list(files, "data/file", NULL), "");
}

TEST(a_path_outside_is_an_error)
{
    AUTO(cay_files) files = open_data();
    struct cay_listing listing;

    ASSERT_CODE(cay_files_list(files, "other", NULL, &listing, &err), CAY_E_OUTSIDE);
    ASSERT_CODE(cay_files_list(files, "data/../..", NULL, &listing, &err), CAY_E_OUTSIDE);
}

TEST(everything_is_the_union_of_what_is_readable)
{
    static const char *const everything[] = {"/", ".", ""};

    put_file("one/a", "");
    put_file("one/c", "");
    put_file("two/b", "");
    AUTO(cay_files) files = open_two_mounts("/x", "/x-y");
    for (size_t i = 0; i < 3; i++)
        ASSERT_STR(list(files, everything[i], NULL), "/x-y/b /x/a /x/c ");
    ASSERT_STR(list(files, "/", "a"), "/x/a ");
}

TEST(a_mount_inside_another_is_in_the_union_but_not_in_the_outer_one)
{
    put_file("one/a", "");
    put_file("one/sub/phantom", "");
    put_file("one/z", "");
    put_file("two/b", "");
    AUTO(cay_files) files = open_two_mounts("/x", "/x/sub");
    ASSERT_STR(list(files, "/", NULL), "/x/a /x/sub/b /x/z ");
    ASSERT_STR(list(files, "/x", NULL), "/x/a /x/z ");
    ASSERT_STR(list(files, "/x/sub", NULL), "/x/sub/b ");
    ASSERT_STR(list_types(files, "/x", NULL, CAY_LIST_DIRECTORIES | CAY_LIST_LINKS), "");
}

TEST(a_link_does_not_lead_to_a_phantom)
{
    put_file("one/a", "");
    put_file("one/sub/phantom", "");
    put_file("two/b", "");
    ASSERT(symlink("sub", scratch_path("one/link")) == 0);
    ASSERT(symlink("sub/phantom", scratch_path("one/file-link")) == 0);
    AUTO(cay_files) files = open_two_mounts("/x", "/x/sub");
    ASSERT_STR(list(files, "/x", "*/*"), "");
    ASSERT_STR(list(files, "/x", NULL), "/x/a ");
}

TEST(the_root_style_lists_from_the_slash)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.host = "data";
    put_file("data/a/b", "");
    AUTO(cay_files) files = open_mounts(CAY_STYLE_ROOT, &mount, 1);
    ASSERT_STR(list(files, "/", NULL), "/a/b ");
    ASSERT_STR(list(files, "a", NULL), "/a/b ");
}

TEST(a_derived_view_lists_only_what_it_may_read)
{
    static const char *const allow[] = {"data/a", "data/a/deeper", "data/c"};
    struct cay_derive derive = {
        .size = sizeof derive, .allow_read = allow, .allow_read_count = 3};
    struct cay_listing listing;
    cay_files *child_files;

    put_file("data/a/x", "");
    put_file("data/a/deeper/y", "");
    put_file("data/b/secret", "");
    put_file("data/c/z", "");
    ASSERT(symlink("../b/secret", scratch_path("data/a/link")) == 0);
    ASSERT(symlink("../b", scratch_path("data/a/dir-link")) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_derive(files, &derive, &child_files, &err));
    AUTO(cay_files) child = child_files;
    ASSERT_STR(list(child, ".", NULL), "data/a/deeper/y data/a/x data/c/z ");
    ASSERT_STR(list(child, "data/a", "*/*"), "data/a/deeper/y ");
    ASSERT_CODE(cay_files_list(child, "data/b", NULL, &listing, &err), CAY_E_OUTSIDE);
    ASSERT_CODE(cay_files_list(child, "data", NULL, &listing, &err), CAY_E_OUTSIDE);
}

TEST(a_link_to_a_file_inside_is_listed_as_a_file_by_its_own_name)
{
    put_file("data/real", "12345");
    ASSERT(symlink("real", scratch_path("data/link")) == 0);
    ASSERT(symlink(scratch_path("data/real"), scratch_path("data/absolute")) == 0);
    AUTO(cay_files) files = open_data();
    AUTO_LISTING listing = {0};
    struct cay_list_options options = {.size = sizeof options, .flags = CAY_LIST_STAT};

    ASSERT_OK(cay_files_list(files, "data", &options, &listing, &err));
    ASSERT_STR(paths_of(&listing), "data/absolute data/link data/real ");
    for (size_t i = 0; i < 3; i++) {
        ASSERT_INT(listing.entries[i].stat.type, CAY_TYPE_FILE);
        ASSERT_INT(listing.entries[i].stat.bytes, 5);
    }
}

TEST(links_that_lead_out_or_nowhere_are_listed_only_as_links)
{
    AUTO_LISTING listing = {0};
    struct cay_list_options options = {.size = sizeof options,
                                       .flags = CAY_LIST_FILES | CAY_LIST_LINKS};

    put_file("outside/secret", "");
    put_file("data/real", "");
    ASSERT(symlink("../outside/secret", scratch_path("data/out")) == 0);
    ASSERT(symlink("/etc/passwd", scratch_path("data/absolute")) == 0);
    ASSERT(symlink("nowhere", scratch_path("data/dangling")) == 0);
    ASSERT(symlink("loop", scratch_path("data/loop")) == 0);
    ASSERT(symlink("real", scratch_path("data/inside")) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", NULL), "data/inside data/real ");
    ASSERT_OK(cay_files_list(files, "data", &options, &listing, &err));
    ASSERT_STR(paths_of(&listing),
               "data/absolute data/dangling data/inside data/loop data/out data/real ");
    ASSERT_INT(listing.entries[2].stat.type, CAY_TYPE_LINK);
}

TEST(a_name_or_star_passes_through_a_link_to_a_directory_and_two_stars_do_not)
{
    put_file("data/dir/file", "");
    put_file("data/dir/sub/deep", "");
    ASSERT(symlink("dir", scratch_path("data/link")) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", "**/*"), "data/dir/file data/dir/sub/deep ");
    ASSERT_STR(list(files, "data", "link/*"), "data/link/file ");
    ASSERT_STR(list(files, "data", "*/file"), "data/dir/file data/link/file ");
    ASSERT_STR(list(files, "data", "link/**"), "data/link/file data/link/sub/deep ");
    ASSERT_STR(list(files, "data/link", NULL), "data/dir/file data/dir/sub/deep ");
}

TEST(a_link_to_a_directory_outside_is_not_entered)
{
    put_file("outside/secret", "");
    put_file("data/x", "");
    ASSERT(symlink("../outside", scratch_path("data/out")) == 0);
    ASSERT(symlink("/", scratch_path("data/slash")) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", "*/*"), "");
    ASSERT_STR(list(files, "data", "out/secret"), "");
    struct cay_listing listing;
    ASSERT_CODE(cay_files_list(files, "data/out", NULL, &listing, &err), CAY_E_OUTSIDE);
}

TEST(links_that_go_round_end)
{
    struct cay_listing listing;
    struct cay_list_options options = {.size = sizeof options,
                                       .pattern = "*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/x"};

    put_file("data/x", "");
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "data/l%d", i);
        ASSERT(symlink(".", scratch_path(name)) == 0);
    }
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", NULL), "data/x ");
    ASSERT_STR(list(files, "data", "l0/l1/x"), "data/l0/l1/x ");
    /* Four to the power of seventeen paths. */
    ASSERT_CODE(cay_files_list(files, "data", &options, &listing, &err), CAY_E_LIMIT);
}

TEST(each_type_is_listed_when_asked_for)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    put_file("data/dir/file", "");
    ASSERT(mkfifo(scratch_path("data/fifo"), 0600) == 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s",
             scratch_path("data/socket"));
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(bind(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", NULL), "data/dir/file ");
    ASSERT_STR(list_types(files, "data", NULL, CAY_LIST_DIRECTORIES), "data/dir ");
    ASSERT_STR(list_types(files, "data", NULL, CAY_LIST_OTHER), "data/fifo data/socket ");
    unsigned all = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_OTHER;
    ASSERT_STR(list_types(files, "data", NULL, all),
               "data/dir data/dir/file data/fifo data/socket ");
    ASSERT_STR(list_types(files, "data", "*/", all), "data/dir ");
}

TEST(stat_is_filled_in_when_asked_for)
{
    struct cay_list_options options = {.size = sizeof options};
    AUTO_LISTING plain = {0}, full = {0};

    put_file("data/file", "123");
    ASSERT(chmod(scratch_path("data/file"), 0640) == 0);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_list(files, "data", &options, &plain, &err));
    ASSERT_INT(plain.entries[0].stat.type, CAY_TYPE_FILE);
    options.flags = CAY_LIST_STAT;
    ASSERT_OK(cay_files_list(files, "data", &options, &full, &err));
    ASSERT_INT(full.entries[0].stat.bytes, 3);
    ASSERT_INT(full.entries[0].stat.mode, 0640);
}

TEST(unknown_flags_are_refused)
{
    struct cay_list_options options = {.size = sizeof options, .flags = 1u << 20};
    AUTO(cay_files) files = open_data();
    struct cay_listing listing;

    ASSERT_CODE(cay_files_list(files, "data", &options, &listing, &err),
                CAY_E_UNSUPPORTED);
}

TEST(max_depth_bounds_how_far_down_it_goes)
{
    put_file("data/1", "");
    put_file("data/a/2", "");
    put_file("data/a/b/3", "");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list_with(files, "data", (struct cay_list_options){.max_depth = 1}),
               "data/1 ");
    ASSERT_STR(list_with(files, "data", (struct cay_list_options){.max_depth = 2}),
               "data/1 data/a/2 ");
}

TEST(a_listing_stops_at_max_entries_and_goes_on_after_the_last_path)
{
    struct cay_list_options options = {.size = sizeof options, .max_entries = 2};
    char after[64] = "";
    size_t pages = 0;
    AUTO_BUF all;

    put_file("one/a", "");
    put_file("one/sub/phantom", "");
    put_file("one/sub.txt", "");
    put_file("one/z", "");
    put_file("two/b", "");
    put_file("two/c", "");
    AUTO(cay_files) files = open_two_mounts("/x", "/x/sub");
    buf_init(&all, 4096);
    for (bool more = true; more; pages++) {
        AUTO_LISTING listing = {0};
        options.after = after;
        ASSERT_OK(cay_files_list(files, "/", &options, &listing, &err));
        ASSERT(listing.count <= 2);
        buf_text(&all, paths_of(&listing));
        more = listing.truncated;
        snprintf(after, sizeof after, "%s", listing.entries[listing.count - 1].path);
    }
    ASSERT_INT(pages, 3);
    ASSERT_STR(all.data, "/x/a /x/sub.txt /x/sub/b /x/sub/c /x/z ");
}

TEST(exactly_max_entries_are_not_truncated)
{
    struct cay_list_options options = {.size = sizeof options, .max_entries = 2};
    AUTO_LISTING listing = {0};

    put_file("data/a", "");
    put_file("data/b", "");
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_list(files, "data", &options, &listing, &err));
    ASSERT_INT(listing.count, 2);
    ASSERT(!listing.truncated);
}

TEST(fifty_thousand_names_in_one_directory_are_paged_without_loss)
{
    enum { COUNT = 50000, PAGE = 7000 };
    struct cay_list_options options = {.size = sizeof options, .max_entries = PAGE};
    char last[64] = "", name[32];
    int count = 0;

    if (access("/dev/shm", W_OK) == 0)
        ASSERT(setenv("TMPDIR", "/dev/shm", 1) == 0);
    put_file("data/000000", "");
    AUTO_FD dir = open(scratch_path("data"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 1; i < COUNT; i++) {
        snprintf(name, sizeof name, "%06d", i * 7919 % COUNT);
        AUTO_FD fd = openat(dir, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        ASSERT(fd >= 0);
    }
    AUTO(cay_files) files = open_data();
    for (bool more = true; more;) {
        AUTO_LISTING listing = {0};
        options.after = last;
        ASSERT_OK(cay_files_list(files, "data", &options, &listing, &err));
        for (size_t i = 0; i < listing.count; i++) {
            snprintf(name, sizeof name, "data/%06d", count++);
            ASSERT_STR(listing.entries[i].path, name);
        }
        more = listing.truncated;
        snprintf(last, sizeof last, "%s", listing.entries[listing.count - 1].path);
    }
    ASSERT_INT(count, COUNT);
}

TEST(a_tree_of_any_depth_is_listed_as_far_as_it_can_be_named)
{
    struct cay_list_options options = {.size = sizeof options,
                                       .flags = CAY_LIST_DIRECTORIES};
    AUTO_LISTING listing = {0};

    if (access("/dev/shm", W_OK) == 0)
        ASSERT(setenv("TMPDIR", "/dev/shm", 1) == 0);
    put_file("data/x", "");
    AUTO_FD top = open(scratch_path("data"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int dir = dup(top);
    for (int i = 0; i < 100000; i++) {
        ASSERT(mkdirat(dir, "d", 0777) == 0);
        int next = openat(dir, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        ASSERT(next >= 0);
        close(dir);
        dir = next;
    }
    close(dir);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_list(files, "data", &options, &listing, &err));
    ASSERT(listing.count > 1000 && listing.count < 4096);
    ASSERT_OK(tree_remove(&fs_direct, "test", top, "d", "d", &err));
}

TEST(names_that_are_not_utf8_are_listed_as_they_are)
{
    put_file("data/\xff\xfe", "");
    put_file("data/new\nline", "");
    AUTO(cay_files) files = open_data();
    ASSERT_STR(list(files, "data", NULL), "data/new\nline data/\xff\xfe ");
}

/* What lists the names that some style takes for another, and what it counts. */
static const char *list_odd_names(enum cay_style style, const char *name, bool colon)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    AUTO_LISTING listing = {0};

    mount.name = name;
    mount.host = "data";
    AUTO(cay_files) files = open_mounts(style, &mount, 1);
    ASSERT_OK(cay_files_list(files, name ? name : "/", NULL, &listing, &err));
    ASSERT_INT(listing.skipped, style == CAY_STYLE_PATHS ? 0 : colon ? 3 : 2);
    return paths_of(&listing);
}

TEST(a_name_that_a_path_would_not_mean_is_left_out_and_counted)
{
    put_file("data/a/b", "");
    put_file("data/a\\b", "");
    put_file("data/c:d", "");
    put_file("data/trail", "");
    put_file("data/trail ", "");
    ASSERT_STR(list_odd_names(CAY_STYLE_ROOT, NULL, true), "/a/b /trail ");
    ASSERT_STR(list_odd_names(CAY_STYLE_MOUNTS, "/m", false), "/m/a/b /m/c:d /m/trail ");
    ASSERT_STR(list_odd_names(CAY_STYLE_PATHS, "p", false),
               "p/a/b p/a\\b p/c:d p/trail p/trail  ");
}

/* --- Approval --- */

struct asked {
    int count;
    char summary[128];
    enum cay_verdict verdict;
};

static enum cay_verdict answer(void *cookie, const struct cay_approval *request,
                               char note[CAY_NOTE_MAX])
{
    struct asked *asked = cookie;

    (void)note;
    ASSERT_INT(request->op, CAY_OP_LIST);
    asked->count++;
    snprintf(asked->summary, sizeof asked->summary, "%s", request->summary);
    return asked->verdict;
}

static cay_files *open_asking(enum cay_style style, struct asked *asked)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = style,
                                       .mounts = &mount,
                                       .mount_count = 1,
                                       .base = scratch()};
    struct cay_files_options options = {
        .size = sizeof options, .approver = answer, .cookie = asked};
    cay_policy *policy;
    cay_files *files;

    mount.name = style == CAY_STYLE_MOUNTS ? "/data" : "data";
    mount.host = "data";
    mount.read_approval = true;
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    cay_policy_free(policy);
    return files;
}

TEST(a_mount_with_read_approval_asks_once_before_it_is_listed)
{
    struct asked asked = {.verdict = CAY_VERDICT_APPROVE};
    struct cay_list_options options = {.size = sizeof options, .pattern = "*.txt"};
    AUTO_LISTING listing = {0};

    put_file("data/a.txt", "");
    put_file("data/b.txt", "");
    AUTO(cay_files) files = open_asking(CAY_STYLE_MOUNTS, &asked);
    ASSERT_OK(cay_files_list(files, "/", &options, &listing, &err));
    ASSERT_INT(asked.count, 1);
    ASSERT_STR(asked.summary, "List file paths in /data matching *.txt");
    ASSERT_INT(listing.count, 2);
    asked.verdict = CAY_VERDICT_DENY;
    ASSERT_CODE(cay_files_list(files, "/data", NULL, &listing, &err), CAY_E_NOT_APPROVED);
}

TEST(the_paths_style_lists_without_asking)
{
    struct asked asked = {.verdict = CAY_VERDICT_DENY};

    put_file("data/a.txt", "");
    AUTO(cay_files) files = open_asking(CAY_STYLE_PATHS, &asked);
    ASSERT_STR(list(files, "data", NULL), "data/a.txt ");
    ASSERT_INT(asked.count, 0);
}

TEST(a_named_directory_that_may_not_be_read_is_denied_and_others_are_left_out)
{
    enum { NOBODY = 65534 };
    AUTO(cay_files) files = open_data();
    AUTO_LISTING named = {0}, above = {0};
    bool is_root = geteuid() == 0;

    put_file("data/closed/a", "x");
    put_file("data/z", "x");
    ASSERT_INT(chmod(scratch_path("data/closed"), 0), 0);
    ASSERT(!is_root || seteuid(NOBODY) == 0);
    int code = cay_files_list(files, "data/closed", NULL, &named, &err);
    int above_code = cay_files_list(files, "data", NULL, &above, NULL);
    ASSERT(!is_root || seteuid(0) == 0);
    ASSERT_INT(chmod(scratch_path("data/closed"), 0700), 0);
    ASSERT_INT(code, CAY_E_DENIED);
    ASSERT_STR(err.subject, "data/closed");
    ASSERT_INT(above_code, CAY_OK);
    ASSERT_STR(paths_of(&above), "data/z ");
}

TEST(a_directory_that_may_be_read_but_not_searched_is_listed_from_wherever)
{
    enum { NOBODY = 65534 };
    AUTO(cay_files) files = open_data();
    AUTO_LISTING named = {0};

    put_file("data/nox/f", "x");
    ASSERT_INT(chmod(scratch_path("data/nox"), 0644), 0);
    ASSERT(geteuid() != 0 || seteuid(NOBODY) == 0);
    int code = cay_files_list(files, "data/nox", NULL, &named, NULL);
    ASSERT(getuid() != 0 || seteuid(0) == 0);
    ASSERT_INT(chmod(scratch_path("data/nox"), 0700), 0);
    ASSERT_INT(code, CAY_OK);
    ASSERT_STR(paths_of(&named), "data/nox/f ");
}
