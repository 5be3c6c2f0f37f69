/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "not-under-valgrind.h"

NOT_UNDER_VALGRIND("valgrind does not know clones that share memory")

/* Runs a shell script whose output is the file "output"; its wait status. */
static int run_script(char *script, int dir)
{
    char shell[] = "sh", option[] = "-c", *argv[] = {shell, option, script, NULL};
    char value[] = "KEY=value", *env[] = {value, NULL};
    pid_t pid;
    int status;

    AUTO_FD output =
        open(scratch_path("output"), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    const struct spawn spawn = {"/bin/sh", argv, env, dir, {-1, output, output}};
    ASSERT_INT(spawn_program(&spawn, &pid), 0);
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    return status;
}

TEST(a_program_has_its_streams_environment_and_directory)
{
    char script[] = "pwd; echo $KEY >&2; read line || echo end; exit 7";

    AUTO_FD dir = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int status = run_script(script, dir);
    ASSERT_INT(WEXITSTATUS(status), 7);
    ASSERT_STR(get_file("output"), "/usr\nvalue\nend\n");
}

TEST(a_program_has_no_other_descriptor)
{
    char script[] = "[ -e /proc/$$/fd/9 ] && echo open || echo closed";
    int plain = fcntl(0, F_DUPFD, 9); /* stays open in a program that execve(2) starts */

    ASSERT_INT(plain, 9);
    ASSERT_INT(run_script(script, -1), 0);
    (void)close(plain);
    ASSERT_STR(get_file("output"), "closed\n");
}

TEST(a_stream_may_have_the_number_of_another_one)
{
    char script[] = "exec sh -c 'echo error >&2; echo output'";
    int saved = fcntl(1, F_DUPFD_CLOEXEC, 3);
    char shell[] = "sh", option[] = "-c", *argv[] = {shell, option, script, NULL};
    pid_t pid;

    AUTO_FD first = open(scratch_path("1"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    AUTO_FD second = open(scratch_path("2"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    int saved_error = fcntl(2, F_DUPFD_CLOEXEC, 3);
    ASSERT(saved >= 0 && saved_error >= 0 && dup2(second, 1) == 1 && dup2(first, 2) == 2);
    const struct spawn spawn = {"/bin/sh", argv, (char *[]){NULL}, -1, {-1, 2, 1}};
    int error = spawn_program(&spawn, &pid);
    ASSERT(dup2(saved, 1) == 1 && dup2(saved_error, 2) == 2);
    (void)close(saved);
    (void)close(saved_error);
    ASSERT_INT(error, 0);
    ASSERT_INT(waitpid(pid, NULL, 0), pid);
    ASSERT_STR(get_file("1"), "output\n");
    ASSERT_STR(get_file("2"), "error\n");
}

TEST(signals_are_neither_blocked_nor_ignored_in_a_program)
{
    char script[] = "kill -USR1 $$; echo lives";
    sigset_t set, before;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &before);
    void (*handler)(int) = signal(SIGUSR1, SIG_IGN);
    int status = run_script(script, -1);
    signal(SIGUSR1, handler);
    sigprocmask(SIG_SETMASK, &before, NULL);
    ASSERT(WIFSIGNALED(status));
    ASSERT_INT(WTERMSIG(status), SIGUSR1);
}

TEST(a_program_that_is_missing_is_an_error)
{
    char name[] = "missing", *argv[] = {name, NULL};
    const struct spawn missing = {"/nowhere/missing", argv, argv + 1, -1, {-1, -1, -1}};
    const struct spawn nowhere = {"/bin/true", argv, argv + 1, 1000, {-1, -1, -1}};
    pid_t pid = 0;

    ASSERT_INT(spawn_program(&missing, &pid), -ENOENT);
    ASSERT_INT(spawn_program(&nowhere, &pid), -EBADF);
    ASSERT_INT(pid, 0);
}
