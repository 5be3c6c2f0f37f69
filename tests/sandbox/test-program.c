/* SPDX-License-Identifier: Apache-2.0 */

/* The program of PID 1, which all sandboxes of root share as one file. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ledger.h"
#include "ordinary.h"

/* A runtime directory of this process alone. */
static void have_own_run(unsigned long flags)
{
    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount("none", "/run", "tmpfs", flags, "mode=755") == 0);
}

static void stat_program(cay_sandbox *sandbox, struct stat *ret_st)
{
    struct cay_sandbox_info info;
    char path[64];

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    snprintf(path, sizeof path, "/proc/%d/exe", info.init_pid);
    ASSERT_INT(stat(path, ret_st), 0);
}

/* Its only file whose name starts with "cay-init-", of so many. */
static const char *program_file(unsigned count)
{
    static char path[300];
    unsigned found = 0;
    DIR *list = opendir("/run/cay");

    ASSERT(list);
    for (struct dirent *entry; (entry = readdir(list));)
        if (strncmp(entry->d_name, "cay-init-", 9) == 0) {
            snprintf(path, sizeof path, "/run/cay/%s", entry->d_name);
            found++;
        }
    closedir(list);
    ASSERT_INT(found, count);
    return path;
}

static void share_it(void)
{
    struct stat first, second;

    have_own_run(MS_NOSUID | MS_NODEV);
    AUTO(cay_sandbox) one = make_sandbox(NULL);
    AUTO(cay_sandbox) other = make_sandbox(NULL);
    stat_program(one, &first);
    stat_program(other, &second);
    ASSERT_INT(first.st_ino, second.st_ino);
    ASSERT_INT(first.st_uid, 0);
    ASSERT_INT(first.st_mode, S_IFREG | 0555);
    (void)program_file(1);
    run_as(one, "root", "test -r /proc/1/exe || test -w /proc/1/exe || echo neither",
           PATIENCE_MS);
    ASSERT_STR(result.out, "neither\n");
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_kill(one, &err));
    ASSERT_OK(cay_sandbox_kill(other, &err));
}

TEST(sandboxes_of_root_share_one_program_that_none_of_them_can_change)
{
    need_root();
    in_own_process(share_it);
}

static void forbid_execution(void)
{
    struct statvfs fs;
    struct stat st;

    have_own_run(MS_NOSUID | MS_NODEV | MS_NOEXEC);
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    stat_program(sandbox, &st);
    ASSERT_INT(st.st_mode, S_IFREG | 0555);
    run(sandbox, "echo works");
    ASSERT_STR(result.out, "works\n");
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT(statvfs("/run", &fs) == 0 && fs.f_flag & ST_NOEXEC);
}

TEST(a_runtime_directory_without_execution_has_the_program_too)
{
    need_root();
    in_own_process(forbid_execution);
}

static void make_and_kill(void)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
}

static void damage_it(void)
{
    struct stat st;

    have_own_run(0);
    make_and_kill();
    const char *path = program_file(1);
    ASSERT(stat(path, &st) == 0 && truncate(path, st.st_size / 2) == 0);
    make_and_kill();
    off_t whole = st.st_size;
    ASSERT(stat(program_file(1), &st) == 0 && st.st_size == whole);
    ASSERT(chmod(path, 0777) == 0);
    make_and_kill();
    ASSERT(stat(program_file(1), &st) == 0);
    ASSERT_INT(st.st_mode, S_IFREG | 0555);
    ASSERT(unlink(path) == 0 && symlink("/bin/true", path) == 0);
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL); /* without the file */
    run(sandbox, "echo works");
    ASSERT_STR(result.out, "works\n");
    cay_exec_done(&result);
}

TEST(a_damaged_program_is_replaced_and_a_link_is_not_followed)
{
    need_root();
    in_own_process(damage_it);
}

/* Another thread writes the program, and a child of a third one has its descriptor. */
static void write_it(void)
{
    int ready[2];
    char byte;

    have_own_run(0);
    make_and_kill();
    const char *path = program_file(1);
    ASSERT(pipe(ready) == 0);
    pid_t writer = fork();
    if (writer == 0) {
        while (open(path, O_WRONLY | O_CLOEXEC) < 0) /* until PID 1 has ended */
            usleep(1000);
        (void)!write(ready[1], "", 1);
        usleep(50000);
        _exit(0);
    }
    ASSERT(writer > 0 && read(ready[0], &byte, 1) == 1);
    make_and_kill();
    ASSERT(waitpid(writer, NULL, 0) == writer);
    close(ready[0]);
    close(ready[1]);
}

TEST(a_sandbox_waits_for_the_last_writer_of_its_program)
{
    need_root();
    in_own_process(write_it);
}

static void have_another(void)
{
    static const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    static const char other[] = "/run/cay/cay-init-0123456789abcdef";
    size_t count;

    have_own_run(0);
    __attribute__((unused)) AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0555);
    ASSERT(fd >= 0 && close(fd) == 0);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    (void)program_file(2); /* another process may be about to use it */
    ASSERT(utimensat(AT_FDCWD, other, old, 0) == 0);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT(strcmp(program_file(1), other) != 0);
}

TEST(a_collect_removes_programs_of_other_versions)
{
    need_root();
    in_own_process(have_another);
}
