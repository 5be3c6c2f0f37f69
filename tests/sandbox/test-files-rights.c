/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "inside.h"

TEST(the_user_is_refused_what_belongs_to_root_and_told_who_was_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_listing listing;

    (void)told(sandbox, "cd /root; echo secret > s; cd /home/user; echo x > read-only; "
                        "mkdir closed; chmod 700 closed; touch closed/f");
    ASSERT_CODE(read_code(files, "/root/s"), CAY_E_DENIED);
    ASSERT_STR(err.subject, "/root/s");
    ASSERT_HAS(err.hint, "\"user\"");
    assert_discreet(&err);
    ASSERT_CODE(read_code(files, "/etc/shadow"), CAY_E_DENIED);
    ASSERT_CODE(write_code(files, "/etc/passwd"), CAY_E_DENIED);
    ASSERT_CODE(write_code(files, "/root/new"), CAY_E_DENIED);
    ASSERT_CODE(write_code(files, "closed/new"), CAY_E_DENIED);
    /* The directory is the user's, and the file could be replaced: but it says no. */
    ASSERT_CODE(write_code(files, "read-only"), CAY_E_DENIED);
    ASSERT_CODE(cay_files_mkdir(files, "/etc/d", NULL, &err), CAY_E_DENIED);
    ASSERT_CODE(cay_files_delete(files, "/etc/passwd", NULL, &err), CAY_E_DENIED);
    ASSERT_CODE(cay_files_move(files, "/etc/passwd", "p", NULL, &err), CAY_E_DENIED);
    ASSERT_CODE(cay_files_copy(files, "/etc/shadow", "p", NULL, &err), CAY_E_DENIED);
    ASSERT_CODE(cay_files_copy(files, "/etc/passwd", "/etc/p", NULL, &err), CAY_E_DENIED);
    ASSERT_CODE(cay_files_list(files, "closed", NULL, &listing, &err), CAY_E_DENIED);
    ASSERT_STR(told(sandbox, "ls -A /home/user; ls /home/user/closed"),
               "closed\nread-only\nf");
    cay_exec_done(&result);
}

TEST(names_can_be_told_where_no_more_of_them_can)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO(cay_files) root = files_of(sandbox, "root");
    const struct cay_list_options options = {.size = sizeof options,
                                             .flags = CAY_LIST_FILES | CAY_LIST_STAT};
    struct cay_listing refused = {0}, seen = {0};

    (void)told(sandbox, "cd /srv; mkdir d; echo 12345 > d/f; chmod 744 d");
    ASSERT_OK(cay_files_list(files, "/srv/d", &options, &refused, &err));
    ASSERT_INT(refused.count, 1);
    ASSERT_INT(refused.entries[0].stat.type, CAY_TYPE_FILE);
    ASSERT_INT(refused.entries[0].stat.bytes, 0);
    ASSERT_OK(cay_files_list(root, "/srv/d", &options, &seen, &err));
    ASSERT_INT(seen.entries[0].stat.bytes, 6);
    cay_listing_done(&refused);
    cay_listing_done(&seen);
    cay_exec_done(&result);
}

TEST(root_inside_may_do_what_root_may)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    AUTO(cay_files) by_number = files_of(sandbox, "0");

    (void)told(sandbox, "su user -s /bin/sh -c 'umask 077; echo hi > /home/user/mine'");
    expect(files, "/home/user/mine", "hi\n");
    put(files, "/home/user/mine", "changed");
    ASSERT_STR(told(sandbox, "stat -c '%u %a' /home/user/mine"), "1000 600");
    put(files, "/root/new", "root's");
    put(by_number, "/etc/new", "root's");
    ASSERT_STR(told(sandbox, "stat -c '%u %g' /root/new /etc/new"), "0 0\n0 0");
    cay_exec_done(&result);
}

TEST(a_user_made_inside_has_its_own_rights_and_groups)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    (void)told(sandbox,
               "groupadd -g 777 team && useradd -m -u 1234 -G team anna && "
               "mkdir /srv/team && chgrp team /srv/team && chmod 2770 /srv/team");
    AUTO(cay_files) anna = files_of(sandbox, "anna");
    AUTO(cay_files) user = files_of(sandbox, NULL);
    put(anna, "a", "hers");
    put(anna, "/srv/team/t", "theirs");
    ASSERT_STR(told(sandbox, "stat -c '%u %g' /home/anna/a /srv/team/t"),
               "1234 1234\n1234 777");
    ASSERT_CODE(read_code(user, "/srv/team/t"), CAY_E_DENIED);
    ASSERT_CODE(write_code(user, "/home/anna/b"), CAY_E_DENIED);
    /* One after the other: each has its own groups. */
    expect(anna, "/srv/team/t", "theirs");
    ASSERT_CODE(read_code(user, "/srv/team/t"), CAY_E_DENIED);
    /* A command in between is not touched by them. */
    run(sandbox, "id -G; cat /srv/team/t");
    ASSERT_STR(result.out, "1000\n");
    cay_exec_done(&result);
}

TEST(a_number_without_a_name_is_a_user_too)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "4321");

    put(files, "/tmp/n", "x");
    ASSERT_STR(told(sandbox, "stat -c '%u %g' /tmp/n"), "4321 4321");
    expect(files, "tmp/n", "x"); /* without a home it starts at the root */
    ASSERT_CODE(write_code(files, "/home/user/n"), CAY_E_DENIED);
    ASSERT_HAS(err.hint, "4321");
    cay_exec_done(&result);
}

TEST(a_user_that_is_not_there_is_an_error)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char long_name[100];
    const char *const nobody[] = {"nosuch", "",       "65536",  "-1",
                                  "00",     "user:x", "user\n", long_name};
    cay_files *files = NULL;

    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++) {
        ASSERT_CODE(cay_sandbox_files(sandbox, nobody[i], &files, &err), CAY_E_NOT_FOUND);
        ASSERT_STR(err.op, "sandbox.files");
        ASSERT(!files);
    }
}

TEST(what_lies_on_the_host_is_read_only_and_its_roots_secrets_are_nobodys)
{
    static const char secret[] = "/usr/local/cay-test-secret";
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    struct cay_stat stat;

    AUTO_FD fd = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && write(fd, "host", 4) == 4);
    int code = read_code(files, secret);
    int stat_code = cay_files_stat(files, secret, false, &stat, &err);
    int written = write_code(files, secret);
    int beside = write_code(files, "/usr/local/cay-test-other");
    int removed = cay_files_delete(files, secret, NULL, &err);
    ASSERT_INT(unlink(secret), 0);
    ASSERT_INT(code, CAY_E_DENIED);
    ASSERT_INT(stat_code, CAY_OK);
    ASSERT_INT(stat.uid, 65534);
    ASSERT_INT(written, CAY_E_DENIED);
    ASSERT_INT(beside, CAY_E_DENIED);
    ASSERT_INT(removed, CAY_E_DENIED);
}

TEST(kinds_that_are_not_files_have_their_own_errors)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);

    (void)told(sandbox, "cd /home/user; mkdir d; echo x > f; chown user d f");
    ASSERT_CODE(read_code(files, "d"), CAY_E_NOT_A_FILE);
    ASSERT_CODE(write_code(files, "d"), CAY_E_NOT_A_FILE);
    ASSERT_CODE(read_code(files, "/"), CAY_E_NOT_A_FILE);
    ASSERT_CODE(write_code(files, "/"), CAY_E_NOT_A_FILE);
    ASSERT_CODE(write_code(files, "f/x"), CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(read_code(files, "missing"), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "missing");
    cay_exec_done(&result);
}

TEST(the_sandboxs_own_user_and_directory_are_the_defaults)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .user = "nobody",
                                                .workdir = "/tmp/work",
                                                .make_workdir = true};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO(cay_files) as_root = files_of(sandbox, "root");
    cay_sandbox *again = NULL;

    put(files, "a", "A");
    put(as_root, "r", "R");
    ASSERT_STR(told(sandbox, "cd /tmp/work; stat -c %u . a r"), "65534\n65534\n0");
    ASSERT_CODE(write_code(files, "/etc/passwd"), CAY_E_DENIED);
    ASSERT_HAS(err.hint, "\"nobody\"");
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
    AUTO(cay_files) others = files_of(again, NULL);
    cay_sandbox_free(again);
    expect(others, "r", "R");
    cay_exec_done(&result);
}

TEST(with_the_rights_of_root_what_is_made_is_still_the_users)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) plain = files_of(sandbox, NULL);
    AUTO(cay_files) files = files_of(sandbox, "root:user");
    AUTO(cay_files) others = files_of(sandbox, "root:");

    (void)told(sandbox, "echo R > /root/r; chmod 600 /root/r; mkdir -m 700 /root/d");
    ASSERT_CODE(read_code(plain, "/root/r"), CAY_E_DENIED);
    expect(files, "/root/r", "R\n");
    put(files, "/root/d/new/file", "made");
    put(files, "home", "made");
    put(others, "/opt/x", "made");
    ASSERT_STR(told(sandbox, "stat -c %U /root/d/new /root/d/new/file /home/user/home "
                             "/opt/x /root/d; stat -c %G /root/d/new/file"),
               "user\nuser\nuser\nuser\nroot\nuser");
    put(files, "/root/r", "S"); /* what was there stays who it was */
    ASSERT_STR(told(sandbox, "stat -c %U%a /root/r; cat /root/r"), "root600\nS");
    /* And the next without them has none. */
    ASSERT_CODE(read_code(plain, "/root/r"), CAY_E_DENIED);
    ASSERT_CODE(write_code(files, "/usr/x"), CAY_E_DENIED);
    cay_files *wrong = NULL;
    ASSERT_CODE(cay_sandbox_files(sandbox, "root:nobody-of-that-name", &wrong, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_sandbox_files(sandbox, "user:no-such-group", &wrong, &err),
                CAY_E_NOT_FOUND);
    cay_exec_done(&result);
}

TEST(a_group_can_be_chosen)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "user:4711");

    put(files, "/tmp/a", "a");
    ASSERT_STR(told(sandbox, "stat -c %u:%g /tmp/a"), "1000:4711");
    cay_exec_done(&result);
}

TEST(a_sandbox_reached_by_its_id_shows_the_same_files)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    cay_sandbox *again = NULL;

    put(files, "a", "A");
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
    AUTO(cay_files) others = files_of(again, NULL);
    cay_sandbox_free(again); /* the handle on the files stands alone */
    expect(others, "a", "A");
}

TEST(owners_change_inside_and_only_by_root)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) user = files_of(sandbox, NULL);
    AUTO(cay_files) root = files_of(sandbox, "root");
    struct cay_attributes wanted = {.size = sizeof wanted,
                                    .flags = CAY_ATTRIBUTE_OWNER | CAY_ATTRIBUTE_GROUP |
                                             CAY_ATTRIBUTE_MODE,
                                    .uid = 7,
                                    .gid = 8,
                                    .mode = 0640};

    (void)told(sandbox, "cd /home/user; echo x > f; ln -s f link");
    ASSERT_OK(cay_files_set_attributes(root, "/home/user/f", &wanted, &err));
    ASSERT_STR(told(sandbox, "stat -c '%u %g %a' /home/user/f"), "7 8 640");
    ASSERT_CODE(cay_files_set_attributes(user, "f", &wanted, &err), CAY_E_DENIED);
    wanted.flags = CAY_ATTRIBUTE_OWNER;
    ASSERT_OK(cay_files_set_attributes(root, "/home/user/link", &wanted, &err));
    ASSERT_STR(told(sandbox, "stat -c %u /home/user/link"), "7");
    wanted.uid = 70000; /* the sandbox has 65536 ids */
    ASSERT_CODE(cay_files_set_attributes(root, "/home/user/f", &wanted, &err),
                CAY_E_INVALID);
    cay_exec_done(&result);
}
