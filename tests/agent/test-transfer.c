/* SPDX-License-Identifier: Apache-2.0 */

/* Files and directories between the host and the sandbox. */
#include <fcntl.h>
#include <sys/stat.h>

#include "agent.h"

static struct cay_transfer transfer;

static void put_odd_names(void)
{
    for (size_t i = 0; i < ODD_NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, "from/odd/%s", odd_names[i]);
        put_file(name, odd_names[i]);
    }
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(scratch_path(name), &st) == 0;
}

static unsigned mode_of(const char *name)
{
    struct stat st;

    ASSERT_INT(lstat(scratch_path(name), &st), 0);
    return st.st_mode & 07777;
}

BOTH(a_file_goes_in_and_comes_out)
{
    put_file("from", "hello");
    ASSERT_INT(chmod(scratch_path("from"), 04755), 0);
    ASSERT_OK(cay_file_upload(sandbox, NULL, scratch_path("from"), "new dir/it's",
                              &transfer, &err));
    ASSERT_INT(transfer.files, 1);
    ASSERT_INT(transfer.bytes, 5);
    expect_inside(sandbox, "new dir/it's", "hello");
    ASSERT_STR(says(sandbox, "stat -c %a:%U \"new dir/it's\""), "755:user");
    ASSERT_OK(cay_file_download(sandbox, NULL, "new dir/it's", scratch_path("to/a/b"),
                                &transfer, &err));
    ASSERT_INT(transfer.files, 1);
    ASSERT_INT(transfer.bytes, 5);
    ASSERT_STR(get_file("to/a/b"), "hello");
    clear_answer();
}

BOTH(a_file_of_proc_comes_with_its_mode_and_its_size)
{
    struct stat st;

    ASSERT_OK(cay_file_download(sandbox, NULL, "/proc/version", scratch_path("version"),
                                &transfer, &err));
    ASSERT_INT(stat(scratch_path("version"), &st), 0);
    ASSERT_INT(st.st_mode & 07777, 0444);
    ASSERT(st.st_size > 0);
    ASSERT_INT(transfer.bytes, (uint64_t)st.st_size);
}

BOTH(what_is_no_file_is_refused_and_leaves_nothing)
{
    put_file("dir/a", "x");
    ASSERT_INT(mkfifo(scratch_path("fifo"), 0600), 0);
    ASSERT_CODE(
        cay_file_upload(sandbox, NULL, scratch_path("none"), "a", &transfer, &err),
        CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_file_upload(sandbox, NULL, scratch_path("dir"), "a", &transfer, &err),
                CAY_E_NOT_A_FILE);
    ASSERT_CODE(
        cay_file_upload(sandbox, NULL, scratch_path("fifo"), "a", &transfer, &err),
        CAY_E_NOT_A_FILE);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "a", &err), 0);
    ASSERT_CODE(
        cay_file_upload(sandbox, NULL, scratch_path("dir/a"), "/etc/x", &transfer, &err),
        CAY_E_DENIED);
    ASSERT_CODE(
        cay_file_download(sandbox, NULL, "none", scratch_path("new/a"), &transfer, &err),
        CAY_E_NOT_FOUND);
    ASSERT(!is_there("new"));
    ASSERT_CODE(
        cay_file_download(sandbox, NULL, "/home", scratch_path("b"), &transfer, &err),
        CAY_E_NOT_A_FILE);
    ASSERT(!is_there("b"));
    ASSERT_CODE(cay_file_download(sandbox, NULL, "/etc/passwd", scratch_path("dir"),
                                  &transfer, &err),
                CAY_E_NOT_A_FILE);
    ASSERT_INT(count_names(scratch(), ".cay-"), 0);
}

BOTH(a_download_replaces_a_file_whole_and_goes_through_a_link)
{
    put_inside(sandbox, "a", "new");
    put_file("real", "old and long");
    ASSERT_INT(symlink("real", scratch_path("link")), 0);
    ASSERT_OK(
        cay_file_download(sandbox, NULL, "a", scratch_path("link"), &transfer, &err));
    ASSERT_STR(get_file("real"), "new");
    struct stat st;
    ASSERT_INT(lstat(scratch_path("link"), &st), 0);
    ASSERT(S_ISLNK(st.st_mode));
}

TEST(mode_and_time_come_out_too_but_no_set_user_id)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct stat st;

    ASSERT_STR(says(sandbox, "echo x >a; chmod 4751 a; touch -d @1234567 a"), "");
    ASSERT_OK(cay_file_download(sandbox, NULL, "a", scratch_path("a"), &transfer, &err));
    ASSERT_INT(stat(scratch_path("a"), &st), 0);
    ASSERT_INT(st.st_mode & 07777, 0751);
    ASSERT_INT(st.st_mtime, 1234567);
    clear_answer();
}

TEST(a_file_larger_than_what_can_be_read_at_once_passes)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO_FD fd = open(scratch_path("big"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    ASSERT_INT(ftruncate(fd, (110 << 20) + 3), 0);
    ASSERT_INT(pwrite(fd, "end", 3, 110 << 20), 3);
    ASSERT_OK(
        cay_file_upload(sandbox, NULL, scratch_path("big"), "big", &transfer, &err));
    ASSERT_INT(transfer.bytes, (110 << 20) + 3);
    ASSERT_STR(says(sandbox, "stat -c %s big; tail -c 3 big"), "115343363\nend");
    ASSERT_OK(
        cay_file_download(sandbox, NULL, "big", scratch_path("back"), &transfer, &err));
    struct stat st;
    ASSERT_INT(stat(scratch_path("back"), &st), 0);
    ASSERT_INT(st.st_size, (110 << 20) + 3);
    clear_answer();
}

static void directory_round(cay_sandbox *sandbox, bool with_links)
{
    put_odd_names();
    put_file("from/sub/deep/a", "deep");
    ASSERT_INT(chmod(scratch_path("from/sub/deep/a"), 04640), 0);
    ASSERT_INT(chmod(scratch_path("from/sub"), 0700), 0); /* is there already */
    ASSERT_INT(mkdir(scratch_path("from/new"), 0750), 0);
    ASSERT_INT(mkdir(scratch_path("from/empty"), 0755), 0);
    ASSERT_INT(symlink("sub/deep", scratch_path("from/link")), 0);
    ASSERT_INT(symlink("/etc/passwd", scratch_path("from/absolute")), 0);
    ASSERT_INT(symlink("../../x", scratch_path("from/out")), 0);
    ASSERT_INT(mkfifo(scratch_path("from/fifo"), 0600), 0);
    put_inside(sandbox, "to/there", "stays");
    put_inside(sandbox, "to/sub/deep/a", "old");
    ASSERT_OK(
        cay_directory_upload(sandbox, NULL, scratch_path("from"), "to", &transfer, &err));
    ASSERT_INT(transfer.files, ODD_NAMES + 1);
    ASSERT_STR(says(sandbox, "stat -c %a to/sub/deep/a to/new to/sub; umask"),
               "640\n750\n755\n0022");
    ASSERT_INT(transfer.skipped, with_links ? 3 : 4);
    expect_inside(sandbox, "to/there", "stays");
    expect_inside(sandbox, "to/sub/deep/a", "deep");
    for (size_t i = 0; i < ODD_NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, "to/odd/%s", odd_names[i]);
        expect_inside(sandbox, name, odd_names[i]);
    }
    if (with_links)
        expect_inside(sandbox, "to/link/a", "deep");
    ASSERT_STR(says(sandbox, "stat -c %F:%U to/empty"), "directory:user");
    ASSERT_OK(cay_directory_download(sandbox, NULL, "to", scratch_path("new/back"),
                                     &transfer, &err));
    ASSERT_INT(transfer.files, ODD_NAMES + 2);
    ASSERT_INT(mode_of("new/back/sub/deep/a"), 0640);
    ASSERT_INT(mode_of("new/back/new"), 0750);
    ASSERT_INT(transfer.skipped, 0);
    for (size_t i = 0; i < ODD_NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, "new/back/odd/%s", odd_names[i]);
        ASSERT_STR(get_file(name), odd_names[i]);
    }
    ASSERT(is_there("new/back/empty") && is_there("new/back/there"));
    ASSERT(!is_there("new/back/absolute") && !is_there("new/back/out"));
    clear_answer();
}

TEST(a_directory_goes_in_and_comes_out)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    directory_round(sandbox, true);
    ASSERT_STR(get_file("new/back/link/a"), "deep");
}

TEST(a_directory_goes_file_by_file_where_there_is_no_other_way)
{
    AUTO(cay_sandbox) native = make_sandbox(NULL);
    __attribute__((cleanup(auto_far))) cay_sandbox *sandbox = far_new(native);

    directory_round(sandbox, false);
}

TEST(a_directory_goes_as_an_archive_where_that_is_taken)
{
    AUTO(cay_sandbox) native = make_sandbox(NULL);
    __attribute__((cleanup(auto_far))) cay_sandbox *sandbox = far_new(native);

    far_take_archives(true);
    directory_round(sandbox, true);
    put_file("from2/a", "x");
    (void)far_calls();
    ASSERT_OK(cay_directory_upload(sandbox, NULL, scratch_path("from2"), "to2", &transfer,
                                   &err));
    ASSERT_STR(far_calls(), "t");
}

static void lead_out(void)
{
    (void)rename(scratch_path("from/sub"), scratch_path("moved"));
    (void)!symlink(scratch_path("secret"), scratch_path("from/sub"));
}

/* Programs that see the directory may be changing it. */
TEST(a_directory_that_becomes_a_link_leads_no_upload_elsewhere)
{
    AUTO(cay_sandbox) native = make_sandbox(NULL);
    __attribute__((cleanup(auto_far))) cay_sandbox *sandbox = far_new(native);

    put_file("from/sub/file", "ours");
    put_file("secret/file", "a secret");
    far_meanwhile = lead_out;
    int code =
        cay_directory_upload(sandbox, NULL, scratch_path("from"), "to", &transfer, &err);
    far_meanwhile = NULL;
    ASSERT(code != CAY_OK);
    ASSERT_STR(says(sandbox, "cat to/sub/file 2>/dev/null; true"), "");
    clear_answer();
}

BOTH(what_is_no_directory_cannot_be_transferred_as_one)
{
    put_file("file", "x");
    put_inside(sandbox, "file", "x");
    ASSERT_CODE(
        cay_directory_upload(sandbox, NULL, scratch_path("none"), "to", &transfer, &err),
        CAY_E_NOT_FOUND);
    ASSERT_INT(cay_file_exists(sandbox, NULL, "to", &err), 0);
    memset(&err, 0, sizeof err);
    ASSERT(cay_directory_upload(sandbox, NULL, scratch_path("file"), "to", &transfer,
                                &err) < 0);
    ASSERT_CODE(cay_directory_download(sandbox, NULL, "none", scratch_path("new"),
                                       &transfer, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_directory_download(sandbox, NULL, "file", scratch_path("new"),
                                       &transfer, &err),
                CAY_E_NOT_A_DIRECTORY);
    ASSERT(!is_there("new"));
    ASSERT_CODE(cay_directory_upload(sandbox, NULL, scratch(), "/etc", &transfer, &err),
                CAY_E_DENIED);
}

/* A process inside may know the destination on the host. */
TEST(nothing_from_inside_leads_out_of_where_it_is_downloaded_to)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    put_file("outside/keep", "x");
    ASSERT_STR(says(sandbox, "mkdir t && cd t && ln -s ../outside a && ln -s . here && "
                             "ln -s here/../outside b && ln -s /etc c && mkfifo fifo && "
                             "mkdir d && ln -s ../../outside d/e && ln -s .. d/up"),
               "");
    ASSERT_OK(
        cay_directory_download(sandbox, NULL, "t", scratch_path("to"), &transfer, &err));
    ASSERT_INT(transfer.skipped, 5);
    ASSERT(!is_there("to/a") && !is_there("to/b") && !is_there("to/c") &&
           !is_there("to/d/e") && is_there("to/here") && is_there("to/d/up"));
    clear_answer();
}

TEST(a_link_of_the_host_in_the_way_is_not_followed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    put_inside(sandbox, "t/dir/a", "evil");
    put_file("outside/keep", "x");
    put_file("to/x", "x");
    ASSERT_INT(symlink("../outside", scratch_path("to/dir")), 0);
    memset(&err, 0, sizeof err);
    ASSERT(cay_directory_download(sandbox, NULL, "t", scratch_path("to"), &transfer,
                                  &err) < 0);
    ASSERT(!is_there("outside/a"));
}
