/* SPDX-License-Identifier: Apache-2.0 */

/* Files inside, one by one and in lists. */
#include "agent.h"

static struct cay_file_info info;
static struct cay_file_infos infos;

static void look(cay_sandbox *sandbox, const char *user, const char *path)
{
    cay_file_info_done(&info);
    ASSERT_OK(cay_file_inspect(sandbox, user, path, &info, &err));
    ASSERT_STR(info.path, path);
}

static void list(cay_sandbox *sandbox, const char *path, bool recursive,
                 const char *pattern)
{
    cay_file_infos_done(&infos);
    ASSERT_OK(cay_file_list(sandbox, NULL, path, recursive, pattern, &infos, &err));
}

/* The names in the last list, below a directory. */
static const char *listed(const char *top)
{
    static char text[4096];
    size_t used = 0;

    *text = '\0';
    for (size_t i = 0; i < infos.count; i++) {
        ASSERT(strncmp(infos.items[i].path, top, strlen(top)) == 0);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                                 infos.items[i].path + strlen(top));
        ASSERT(used < sizeof text);
    }
    return text;
}

BOTH(what_is_written_is_read_byte_by_byte)
{
    static const char bytes[] = "a\0b\r\n\xFF\n";
    struct cay_content content = {0};

    ASSERT_OK(cay_file_write(sandbox, NULL, "new/dir/file", bytes, 7, 0, &err));
    ASSERT_OK(cay_file_read(sandbox, NULL, "/home/user/new/dir/file", &content, &err));
    ASSERT_MEM(content.data, content.len, bytes, 7);
    ASSERT_INT(content.data[7], 0);
    cay_free(content.data);
    put_inside(sandbox, "new/dir/file", "");
    expect_inside(sandbox, "new/dir/file", "");
    ASSERT_STR(says(sandbox, "stat -c %U:%a new/dir/file"), "user:644");
    clear_answer();
}

BOTH(ways_of_writing_are_those_of_files_h)
{
    put_inside(sandbox, "a", "one");
    ASSERT_OK(cay_file_write(sandbox, NULL, "a", "two", 3, CAY_WRITE_APPEND, &err));
    expect_inside(sandbox, "a", "onetwo");
    ASSERT_CODE(cay_file_write(sandbox, NULL, "a", "x", 1, CAY_WRITE_NEW, &err),
                CAY_E_EXISTS);
    ASSERT_CODE(cay_file_write(sandbox, NULL, "no/b", "x", 1, CAY_WRITE_NO_PARENTS, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_file_write(sandbox, NULL, "/home", "x", 1, 0, &err),
                CAY_E_NOT_A_FILE);
    ASSERT_CODE(cay_file_write(sandbox, NULL, "/etc/x", "x", 1, 0, &err), CAY_E_DENIED);
    ASSERT_OK(cay_file_write(sandbox, "root", "/etc/x", "x", 1, 0, &err));
}

BOTH(what_cannot_be_read_is_told)
{
    ASSERT_CODE(read_code(sandbox, NULL, "none"), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "none");
    ASSERT_CODE(read_code(sandbox, NULL, "/home"), CAY_E_NOT_A_FILE);
    ASSERT_OK(cay_file_write(sandbox, "root", "/root/secret", "x", 1, 0, &err));
    ASSERT_CODE(read_code(sandbox, NULL, "/root/secret"), CAY_E_DENIED);
    ASSERT_OK(read_code(sandbox, "root", "secret"));
    ASSERT_CODE(read_code(sandbox, "no-such-user", "a"), CAY_E_NOT_FOUND);
}

TEST(a_file_that_is_too_large_to_hold_is_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_sandbox) native = make_sandbox(NULL);
    __attribute__((cleanup(auto_far))) cay_sandbox *far = far_new(native);

    ASSERT_STR(says(sandbox, "truncate -s 200M big"), "");
    ASSERT_CODE(read_code(sandbox, NULL, "big"), CAY_E_LIMIT);
    ASSERT_STR(says(far, "truncate -s 200M big"), "");
    ASSERT_CODE(read_code(far, NULL, "big"), CAY_E_LIMIT);
    ASSERT_INT(far_sent, CAY_READ_MAX);
    clear_answer();
}

BOTH(odd_names_are_names)
{
    for (size_t i = 0; i < ODD_NAMES; i++) {
        char path[64];
        snprintf(path, sizeof path, "odd/%s", odd_names[i]);
        put_inside(sandbox, path, odd_names[i]);
        expect_inside(sandbox, path, odd_names[i]);
        ASSERT_INT(cay_file_exists(sandbox, NULL, path, &err), 1);
        look(sandbox, NULL, path);
        ASSERT_INT(info.stat.bytes, strlen(odd_names[i]));
    }
    list(sandbox, "odd", false, NULL);
    ASSERT_INT(infos.count, ODD_NAMES);
    for (size_t i = 0; i < ODD_NAMES; i++) {
        char path[64];
        snprintf(path, sizeof path, "odd/%s", odd_names[i]);
        ASSERT_OK(cay_file_delete(sandbox, NULL, path, &err));
        ASSERT_OK(cay_directory_create(sandbox, NULL, path, true, &err));
    }
    ASSERT_STR(
        says(sandbox, "find odd -mindepth 1 -type d -print0 | tr -cd '\\0' | wc -c"),
        "16");
    /* A leading dash, and nothing else of the path. */
    put_inside(sandbox, "-x", "dash");
    expect_inside(sandbox, "-x", "dash");
    ASSERT_OK(cay_file_delete(sandbox, NULL, "-x", &err));
    cay_file_info_done(&info);
    cay_file_infos_done(&infos);
    clear_answer();
}

BOTH(a_file_is_there_or_not)
{
    put_inside(sandbox, "dir/a", "x");
    ASSERT_STR(says(sandbox, "ln -s nowhere dangling; ln -s dir link"), "");
    ASSERT_INT(cay_file_exists(sandbox, NULL, "dir/a", &err), 1);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "dir", &err), 1);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "link/a", &err), 1);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "none", &err), 0);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "dir/a/below", &err), 0);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "dangling", &err), 0);
    ASSERT_CODE(cay_file_exists(sandbox, NULL, "/root/x", &err), CAY_E_DENIED);
    if (cay_sandbox_backend(sandbox)->open_files) /* others cannot tell them apart */
        ASSERT_CODE(cay_file_exists(sandbox, "no-such-user", "x", &err), CAY_E_NOT_FOUND);
    clear_answer();
}

BOTH(deleting_takes_files_directories_and_links_but_not_what_links_lead_to)
{
    put_inside(sandbox, "dir/sub/a", "x");
    put_inside(sandbox, "keep/a", "x");
    ASSERT_STR(says(sandbox, "ln -s ../keep dir/link; ln -s keep top; ln -s no dangling"),
               "");
    ASSERT_OK(cay_file_delete(sandbox, NULL, "dir", &err));
    ASSERT_OK(cay_file_delete(sandbox, NULL, "top", &err));
    ASSERT_OK(cay_file_delete(sandbox, NULL, "dangling", &err));
    expect_inside(sandbox, "keep/a", "x");
    ASSERT_CODE(cay_file_delete(sandbox, NULL, "dir", &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_file_delete(sandbox, NULL, "/usr/bin/env", &err), CAY_E_DENIED);
    clear_answer();
}

BOTH(directories_are_made_with_or_without_their_parents)
{
    ASSERT_OK(cay_directory_create(sandbox, NULL, "a/b/c", true, &err));
    ASSERT_OK(cay_directory_create(sandbox, NULL, "a/b/c", true, &err));
    ASSERT_OK(cay_directory_create(sandbox, NULL, "a/d", false, &err));
    ASSERT_CODE(cay_directory_create(sandbox, NULL, "x/y", false, &err), CAY_E_NOT_FOUND);
    put_inside(sandbox, "file", "x");
    ASSERT_CODE(cay_directory_create(sandbox, NULL, "file", true, &err), CAY_E_EXISTS);
    ASSERT_STR(says(sandbox, "find a | sort | tr '\\n' ' '"), "a a/b a/b/c a/d ");
    clear_answer();
}

BOTH(a_file_is_described_with_all_its_fields)
{
    put_inside(sandbox, "a", "hello");
    ASSERT_STR(says(sandbox, "chmod 640 a; touch -d @1234567 a; ln -s a link"), "");
    look(sandbox, NULL, "link");
    ASSERT(info.exists);
    ASSERT_INT(info.stat.type, CAY_TYPE_FILE);
    ASSERT_INT(info.stat.bytes, 5);
    ASSERT_INT(info.stat.mode, 0640);
    ASSERT_INT(info.stat.uid, 1000);
    ASSERT_INT(info.stat.mtime_ns, 1234567000000000);
    ASSERT_STR(info.link_target, "a");
    ASSERT(info.readable && info.writable);
    ASSERT_STR(info.encoding, "utf-8");
    look(sandbox, NULL, "a");
    ASSERT_STR(info.link_target, NULL);
    look(sandbox, NULL, "/home");
    ASSERT_INT(info.stat.type, CAY_TYPE_DIRECTORY);
    ASSERT(info.readable && !info.writable);
    ASSERT_STR(info.encoding, "");
    cay_file_info_done(&info);
    clear_answer();
}

BOTH(what_is_not_there_is_described_as_that)
{
    ASSERT_STR(says(sandbox, "ln -s nowhere dangling; ln -s round round; echo x >file"),
               "");
    look(sandbox, NULL, "none");
    ASSERT(!info.exists);
    look(sandbox, NULL, "file/below");
    ASSERT(!info.exists);
    look(sandbox, NULL, "dangling");
    ASSERT(!info.exists);
    ASSERT_STR(info.link_target, "nowhere");
    look(sandbox, NULL, "round");
    ASSERT(!info.exists);
    ASSERT_CODE(cay_file_inspect(sandbox, NULL, "/root/x", &info, &err), CAY_E_DENIED);
    cay_file_info_done(&info);
    clear_answer();
}

BOTH(rights_are_those_of_who_asks)
{
    ASSERT_OK(cay_file_write(sandbox, "root", "/home/user/roots", "x", 1, 0, &err));
    bash_with(sandbox,
              "chmod 600 /home/user/roots; echo x >/home/user/all; "
              "chmod 666 /home/user/all; echo x >/home/user/seen",
              (struct cay_command_options){.user = "root"});
    look(sandbox, NULL, "roots");
    ASSERT(!info.readable && !info.writable);
    ASSERT_STR(info.encoding, "");
    look(sandbox, NULL, "all");
    ASSERT(info.readable && info.writable);
    look(sandbox, NULL, "seen");
    ASSERT(info.readable && !info.writable);
    look(sandbox, "root", "/home/user/roots");
    ASSERT(info.readable && info.writable);
    list(sandbox, ".", false, "[ars][loe]*");
    ASSERT_STR(listed("/home/user/"), "all roots seen");
    ASSERT(infos.items[0].readable && infos.items[0].writable);
    ASSERT(!infos.items[1].readable && !infos.items[1].writable);
    ASSERT(infos.items[2].readable && !infos.items[2].writable);
    cay_file_infos_done(&infos);
    cay_file_info_done(&info);
    clear_answer();
}

TEST(what_is_mounted_read_only_cannot_be_written_even_by_root)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    look(sandbox, "root", "/usr/bin/env");
    ASSERT(info.readable && !info.writable);
    cay_file_info_done(&info);
}

BOTH(an_encoding_is_guessed_from_the_first_64_kib)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *name;
    } cases[] = {{"", 0, "utf-8"},
                 {"caf\xC3\xA9", 5, "utf-8"},
                 {"caf\xE9", 4, "latin-1"},
                 {"\xFF\xFEh\0", 4, "utf-16"},
                 {"a\0b", 3, "binary"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_OK(
            cay_file_write(sandbox, NULL, "a", cases[i].bytes, cases[i].len, 0, &err));
        look(sandbox, NULL, "a");
        ASSERT_STR(info.encoding, cases[i].name);
    }
    /* A character across the border, and what is behind it. */
    ASSERT_STR(says(sandbox, "head -c 65535 /dev/zero | tr '\\0' x >a; printf "
                             "'\\303\\251\\0\\377' >>a"),
               "");
    look(sandbox, NULL, "a");
    ASSERT_STR(info.encoding, "utf-8");
    cay_file_info_done(&info);
    clear_answer();
}

TEST(of_a_large_file_far_away_only_the_beginning_is_fetched)
{
    AUTO(cay_sandbox) native = make_sandbox(NULL);
    __attribute__((cleanup(auto_far))) cay_sandbox *sandbox = far_new(native);

    ASSERT_STR(says(sandbox, "head -c 3000000 /dev/zero | tr '\\0' x >a"), "");
    look(sandbox, NULL, "a");
    ASSERT_STR(info.encoding, "utf-8");
    ASSERT_INT(info.stat.bytes, 3000000);
    far_calls();
    look(sandbox, "root", "/home/user/a");
    ASSERT(far_sent == 65536 || far_sent < 5000); /* or /etc/passwd came after it */
    cay_file_info_done(&info);
    clear_answer();
}

static void make_tree(cay_sandbox *sandbox)
{
    bash(sandbox, "mkdir -p t/sub/deep t/.hidden && cd t && touch a.py b.txt .dot "
                  "sub/c.py sub/deep/d.py .hidden/e.py && ln -s sub link && "
                  "ln -s none dangling");
    ASSERT_INT(answer.exit_code, 0);
    clear_answer();
}

BOTH(a_list_has_files_directories_and_dot_files_sorted_and_absolute)
{
    make_tree(sandbox);
    list(sandbox, "t", false, NULL);
    ASSERT_STR(listed("/home/user/t/"), ".dot .hidden a.py b.txt link sub");
    ASSERT_INT(infos.items[1].stat.type, CAY_TYPE_DIRECTORY);
    ASSERT_INT(infos.items[4].stat.type, CAY_TYPE_DIRECTORY);
    ASSERT_STR(infos.items[4].link_target, "sub");
    ASSERT_STR(infos.items[2].encoding, "");
    ASSERT(infos.items[2].exists && infos.items[2].readable);
    list(sandbox, "/home/user/./t//", true, NULL);
    ASSERT_STR(listed("/home/user/t/"), ".dot .hidden .hidden/e.py a.py b.txt link sub "
                                        "sub/c.py sub/deep sub/deep/d.py");
    list(sandbox, "t/link", false, NULL);
    ASSERT_STR(listed("/home/user/t/link/"), "c.py deep");
    cay_file_infos_done(&infos);
}

BOTH(a_pattern_chooses_names_at_one_depth_or_any)
{
    make_tree(sandbox);
    list(sandbox, "t", false, "*.py");
    ASSERT_STR(listed("/home/user/t/"), "a.py");
    list(sandbox, "t", true, "*.py");
    ASSERT_STR(listed("/home/user/t/"), ".hidden/e.py a.py sub/c.py sub/deep/d.py");
    list(sandbox, "t", false, "sub/*.py");
    ASSERT_STR(listed("/home/user/t/"), "sub/c.py");
    list(sandbox, "t", true, "deep/*");
    ASSERT_STR(listed("/home/user/t/"), "sub/deep/d.py");
    list(sandbox, "t", false, "**/*.py");
    ASSERT_STR(listed("/home/user/t/"), ".hidden/e.py a.py sub/c.py sub/deep/d.py");
    list(sandbox, "t", false, "none*");
    ASSERT_INT(infos.count, 0);
    ASSERT_CODE(cay_file_list(sandbox, NULL, "t", false, "/etc/*", &infos, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_file_list(sandbox, NULL, "t", false, "", &infos, &err),
                CAY_E_INVALID);
    cay_file_infos_done(&infos);
}

BOTH(what_is_no_directory_has_no_list)
{
    put_inside(sandbox, "file", "x");
    ASSERT_CODE(cay_file_list(sandbox, NULL, "none", false, NULL, &infos, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_file_list(sandbox, NULL, "file", false, NULL, &infos, &err),
                CAY_E_NOT_A_DIRECTORY);
    ASSERT_OK(cay_directory_create(sandbox, NULL, "empty", true, &err));
    list(sandbox, "empty", true, NULL);
    ASSERT_INT(infos.count, 0);
}
