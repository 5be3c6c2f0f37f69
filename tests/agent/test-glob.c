/* SPDX-License-Identifier: Apache-2.0 */

/* Patterns inside, as Python's glob.glob() has them. */
#include "agent.h"

static struct cay_strings paths;

static const char *found(cay_sandbox *sandbox, const char *pattern, bool recursive)
{
    static char text[8192];
    size_t used = 0;

    cay_strings_done(&paths);
    ASSERT_OK(cay_file_glob(sandbox, NULL, pattern, recursive, &paths, &err));
    *text = '\0';
    for (size_t i = 0; i < paths.count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                                 paths.items[i]);
        ASSERT(used < sizeof text);
    }
    return text;
}

static void make_tree(cay_sandbox *sandbox)
{
    bash(sandbox,
         "rm -f .bash* .profile; mkdir -p src/pkg/.git docs .cfg && "
         "touch a.py b.txt .env src/m.py src/pkg/n.py src/pkg/.git/o.py .cfg/p.py "
         "docs/r.md 'we ird [x].py' && ln -s none dangling && ln -s src/pkg linked && "
         "ln -s .. src/up");
    ASSERT_INT(answer.exit_code, 0);
    clear_answer();
}

BOTH(names_are_found_sorted_without_dot_files)
{
    make_tree(sandbox);
    ASSERT_STR(found(sandbox, "*", true),
               "a.py b.txt dangling docs linked src we ird [x].py");
    ASSERT_STR(found(sandbox, "*.py", true), "a.py we ird [x].py");
    ASSERT_STR(found(sandbox, ".*", true), ".cfg .env");
    ASSERT_STR(found(sandbox, "[ab].*", true), "a.py b.txt");
    ASSERT_STR(found(sandbox, "we ird [[]x].py", true), "we ird [x].py");
    ASSERT_STR(found(sandbox, "none*", true), "");
    ASSERT_STR(found(sandbox, "", true), "");
    cay_strings_done(&paths);
}

BOTH(a_plain_name_is_found_if_it_is_there_even_as_a_dangling_link)
{
    make_tree(sandbox);
    ASSERT_STR(found(sandbox, "a.py", true), "a.py");
    ASSERT_STR(found(sandbox, "dangling", true), "dangling");
    ASSERT_STR(found(sandbox, "none", true), "");
    ASSERT_STR(found(sandbox, "src/m.py", false), "src/m.py");
    ASSERT_STR(found(sandbox, "a.py/x", true), "");
    ASSERT_STR(found(sandbox, "src/../a.py", true), "src/../a.py");
    cay_strings_done(&paths);
}

BOTH(patterns_go_through_directories_and_links_to_them)
{
    make_tree(sandbox);
    ASSERT_STR(found(sandbox, "*/*.py", true), "linked/n.py src/m.py");
    ASSERT_STR(found(sandbox, "src/*/*.py", true),
               "src/pkg/n.py src/up/a.py src/up/we ird [x].py");
    ASSERT_STR(found(sandbox, "*/", true), "docs linked src");
    ASSERT_STR(found(sandbox, ".c*/*", true), ".cfg/p.py");
    ASSERT_STR(found(sandbox, "s*/pkg/n.py", true), "src/pkg/n.py");
    cay_strings_done(&paths);
}

BOTH(two_stars_are_any_number_of_directories)
{
    make_tree(sandbox);
    ASSERT_STR(found(sandbox, "rm -f", true), "");
    bash(sandbox, "rm src/up");
    ASSERT_STR(found(sandbox, "**/*.py", true),
               "a.py linked/n.py src/m.py src/pkg/n.py we ird [x].py");
    ASSERT_STR(found(sandbox, "src/**", true), "src src/m.py src/pkg src/pkg/n.py");
    ASSERT_STR(found(sandbox, "**/pkg/*", true), "src/pkg/n.py");
    ASSERT_STR(found(sandbox, "**/.git/*", true), "linked/.git/o.py src/pkg/.git/o.py");
    ASSERT_STR(found(sandbox, "**/", true), ". docs linked src src/pkg");
    ASSERT_STR(found(sandbox, "docs/**/*", true), "docs/r.md");
    ASSERT_STR(found(sandbox, "docs/**", true), "docs docs/r.md");
    ASSERT_HAS(found(sandbox, "**", true), ". a.py b.txt dangling docs docs/r.md");
    /* Without being asked for it they are no more than one. */
    ASSERT_STR(found(sandbox, "**/*.py", false), "linked/n.py src/m.py");
    ASSERT_STR(found(sandbox, "src/**", false), "src/m.py src/pkg");
    clear_answer();
    cay_strings_done(&paths);
}

BOTH(links_that_go_round_are_followed_only_so_far)
{
    make_tree(sandbox);
    const char *all = found(sandbox, "**/b.txt", true);
    ASSERT_HAS(all, "b.txt src/up/b.txt src/up/src/up/b.txt");
    ASSERT(paths.count < 10);
    cay_strings_done(&paths);
}

/* Four links deep there are 10^13 directories to be seen. */
TEST(many_links_that_go_round_end_a_search)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    (void)says(sandbox,
               "mkdir round && cd round && for i in $(seq 2000); do "
               "echo $i; done | xargs -n 100 sh -c 'for i; do ln -s . $i; done' sh");
    ASSERT_CODE(cay_file_glob(sandbox, NULL, "round/**/none", true, &paths, &err),
                CAY_E_LIMIT);
    ASSERT_HAS(err.hint, "narrower");
    ASSERT_CODE(cay_file_glob(sandbox, NULL, "round/*/*/*/[n]one", true, &paths, &err),
                CAY_E_LIMIT);
    ASSERT_STR(found(sandbox, "round/7/8/9", true), "round/7/8/9");
    clear_answer();
    cay_strings_done(&paths);
}

BOTH(absolute_patterns_give_relative_paths_where_they_can)
{
    make_tree(sandbox);
    ASSERT_STR(found(sandbox, "/home/user/*.txt", true), "b.txt");
    ASSERT_STR(found(sandbox, "/home/user/src/m*", true), "src/m.py");
    ASSERT_STR(found(sandbox, "/etc/pass*d", true), "/etc/passwd");
    ASSERT_STR(found(sandbox, "/home/user", true), ".");
    ASSERT_STR(found(sandbox, "/home/use*", true), ".");
    ASSERT_STR(found(sandbox, "/hom?", true), "/home");
    ASSERT_STR(found(sandbox, "../user/b.t*", true), "../user/b.txt");
    ASSERT_STR(found(sandbox, "./b.t*", true), "b.txt");
    cay_strings_done(&paths);
}

BOTH(what_may_not_be_looked_into_matches_nothing)
{
    ASSERT_STR(found(sandbox, "/root/*", true), "");
    ASSERT_STR(found(sandbox, "/root/x", true), "");
    if (cay_sandbox_backend(sandbox)->open_files)
        ASSERT_CODE(cay_file_glob(sandbox, "no-such-user", "*", true, &paths, &err),
                    CAY_E_NOT_FOUND);
    cay_strings_done(&paths);
}

BOTH(odd_names_are_found)
{
    for (size_t i = 0; i < ODD_NAMES; i++) {
        char path[64];
        snprintf(path, sizeof path, "odd/%s", odd_names[i]);
        put_inside(sandbox, path, "");
    }
    (void)found(sandbox, "odd/*", true);
    ASSERT_INT(paths.count, ODD_NAMES);
    (void)found(sandbox, "odd/**/*", true);
    ASSERT_INT(paths.count, ODD_NAMES);
    cay_strings_done(&paths);
}

TEST(a_pattern_with_too_many_parts_is_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char pattern[1024];

    for (size_t i = 0; i < 600; i += 2)
        memcpy(pattern + i, "a/", 3);
    ASSERT_CODE(cay_file_glob(sandbox, NULL, pattern, true, &paths, &err), CAY_E_INVALID);
}
