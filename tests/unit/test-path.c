/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "harness.h"

static char rel[PATH_MAX];
static struct stat st;

static int resolve(const char *path, int follow, bool *ret_exists)
{
    AUTO_FD root = open(scratch(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD fd = -1;
    int error = path_resolve(root, scratch(), path, follow, rel, &fd, &st);

    if (ret_exists)
        *ret_exists = fd >= 0;
    return error;
}

static void link_to(const char *target, const char *name)
{
    ASSERT_INT(symlink(target, scratch_path(name)), 0);
}

TEST(a_plain_path_stays_as_it_is)
{
    bool exists;

    put_file("a/b", "x");
    ASSERT_INT(resolve("a/b", 1, &exists), 0);
    ASSERT(exists);
    ASSERT_STR(rel, "a/b");
    ASSERT_INT(resolve("", 1, &exists), 0);
    ASSERT(exists && S_ISDIR(st.st_mode));
}

TEST(what_is_missing_is_found_missing_and_not_refused)
{
    bool exists = true;

    put_file("file", "x");
    ASSERT_INT(resolve("no/such", 1, &exists), 0);
    ASSERT(!exists);
    ASSERT_STR(rel, "no/such");
    ASSERT_INT(resolve("file/below", 1, &exists), 0);
    ASSERT(!exists);
}

TEST(links_that_stay_inside_are_followed_to_a_link_free_path)
{
    put_file("real/deep/file", "x");
    link_to("real", "dir");
    link_to("dir/deep/../deep/./file", "chain");
    ASSERT_INT(resolve("chain", 1, NULL), 0);
    ASSERT_STR(rel, "real/deep/file");
    ASSERT(S_ISREG(st.st_mode));
}

TEST(an_absolute_link_below_the_root_is_followed)
{
    put_file("real/file", "x");
    link_to(scratch_path("real/file"), "absolute");
    ASSERT_INT(resolve("absolute", 1, NULL), 0);
    ASSERT_STR(rel, "real/file");
}

TEST(a_link_that_climbs_above_the_root_and_comes_back_is_followed)
{
    const char *own = strrchr(scratch(), '/') + 1;
    char target[PATH_MAX];

    put_file("sub/file", "x");
    snprintf(target, sizeof target, "../%s/sub/file", own);
    link_to(target, "back");
    ASSERT_INT(resolve("back", 1, NULL), 0);
    ASSERT_STR(rel, "sub/file");
    snprintf(target, sizeof target, "../../../../../../../../..//.%s/sub/../sub",
             scratch());
    link_to(target, "sub/top");
    ASSERT_INT(resolve("sub/top/file", 1, NULL), 0);
    ASSERT_STR(rel, "sub/file");
    snprintf(target, sizeof target, "%s/../%s/sub", scratch(), own);
    link_to(target, "absolute");
    ASSERT_INT(resolve("absolute/file", 1, NULL), 0);
    ASSERT_STR(rel, "sub/file");
    snprintf(target, sizeof target, "../%sx/../%s/sub", own, own);
    link_to(target, "aside");
    ASSERT_INT(resolve("aside", 1, NULL), -EXDEV);
    link_to("..", "above");
    ASSERT_INT(resolve("above", 1, NULL), -EXDEV);
    snprintf(target, sizeof target, "../%.*s/sub", (int)strlen(own) - 1, own);
    link_to(target, "shorter");
    ASSERT_INT(resolve("shorter", 1, NULL), -EXDEV);
}

TEST(a_link_that_leads_out_is_refused)
{
    link_to("/etc/passwd", "absolute");
    link_to("../outside", "climbing");
    link_to("/etc", "directory");
    put_file("sub/x", "x");
    link_to("../../outside", "sub/deeper");
    ASSERT_INT(resolve("absolute", 1, NULL), -EXDEV);
    ASSERT_INT(resolve("climbing", 1, NULL), -EXDEV);
    ASSERT_INT(resolve("directory/passwd", 1, NULL), -EXDEV);
    ASSERT_INT(resolve("directory/no-such-file", 1, NULL), -EXDEV);
    ASSERT_INT(resolve("sub/deeper", 1, NULL), -EXDEV);
}

TEST(a_directory_whose_name_only_starts_like_the_root_is_outside)
{
    char target[PATH_MAX];

    snprintf(target, sizeof target, "%sx/file", scratch());
    link_to(target, "near");
    ASSERT_INT(resolve("near", 1, NULL), -EXDEV);
}

TEST(a_dangling_link_inside_leads_to_the_place_it_names)
{
    bool exists = true;

    link_to("later/file", "dangling");
    ASSERT_INT(resolve("dangling", 1, &exists), 0);
    ASSERT(!exists);
    ASSERT_STR(rel, "later/file");
}

TEST(what_climbs_back_through_something_missing_is_plain_text)
{
    bool exists = true;

    link_to("gone/../../x", "out");
    link_to("gone/../x", "in");
    ASSERT_INT(resolve("out", 1, NULL), -EXDEV);
    ASSERT_INT(resolve("in", 1, &exists), 0);
    ASSERT_STR(rel, "x");
    ASSERT(!exists);
}

TEST(after_it_has_climbed_back_links_are_links_again)
{
    bool exists = false;

    put_file("sub/file", "x");
    link_to("gone/deep/../../way/file", "in");
    link_to("sub", "way");
    ASSERT_INT(resolve("in", 1, &exists), 0);
    ASSERT_STR(rel, "sub/file");
    ASSERT(exists);
    link_to("/etc", "leads-out");
    link_to("gone/../leads-out/passwd", "out");
    ASSERT_INT(resolve("out", 1, NULL), -EXDEV);
}

TEST(links_that_go_round_are_found_out)
{
    link_to("b", "a");
    link_to("a", "b");
    link_to("self/x", "self");
    ASSERT_INT(resolve("a", 1, NULL), -ELOOP);
    ASSERT_INT(resolve("self", 1, NULL), -ELOOP);
}

TEST(without_following_the_last_link_is_the_target)
{
    put_file("real/file", "x");
    link_to("real", "dir");
    link_to("file", "real/link");
    ASSERT_INT(resolve("dir/link", 0, NULL), 0);
    ASSERT_STR(rel, "real/link");
    ASSERT(S_ISLNK(st.st_mode));
}

TEST(reopening_needs_no_name)
{
    AUTO_FD path = -1, file = -1;
    char byte;

    put_file("file", "x");
    path = open(scratch_path("file"), O_PATH | O_CLOEXEC);
    ASSERT_INT(unlink(scratch_path("file")), 0);
    file = path_reopen(path, O_RDONLY);
    ASSERT(file >= 0);
    ASSERT_INT(read(file, &byte, 1), 1);
}
