/* SPDX-License-Identifier: Apache-2.0 */

/* Three processes, as with the real thing: the one that is forked here stays outside and
 * writes the user maps; its clone is PID 1 in the namespaces, makes the root and locks
 * the door; its child executes the probe.  All report a failure by a line on the pipe
 * that the probe's output goes to, and end. */
#include "weak.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layer.h"
#include "own-filter.h"
#include "weak-lock.h"
#include "weak-root.h"

/* Just above the ranges that the library hands out. */
enum { BASE = 0x7FFE0000, USER = 1000 };

static void give_up(const char *step)
{
    dprintf(1, "weak: %s: %s\n", step, strerror(errno));
    _exit(3);
}

void weak_need(bool fine, const char *step)
{
    if (!fine)
        give_up(step);
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    weak_need(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(fd);
}

/* --- Outside --- */

/* Without IDMAP whoever runs the probe is the host's root, as in the first finding. */
static void write_maps(const struct weak *weak, long pid)
{
    char path[64], map[128];

    if (weak->layers & IDMAP)
        snprintf(map, sizeof map, "0 %u 65536\n", BASE);
    else if (weak->as_user)
        snprintf(map, sizeof map, "0 %u 1000\n%u 0 1\n", BASE, USER);
    else
        snprintf(map, sizeof map, "0 0 65536\n");
    snprintf(path, sizeof path, "/proc/%ld/uid_map", pid);
    put(path, map);
    snprintf(path, sizeof path, "/proc/%ld/gid_map", pid);
    put(path, map);
}

static unsigned long namespaces(unsigned layers)
{
    return CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP |
           (layers & USERNS ? CLONE_NEWUSER : 0) | (layers & PIDNS ? CLONE_NEWPID : 0) |
           (layers & NETNS ? CLONE_NEWNET : 0);
}

/* --- PID 1 --- */

static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    weak_need(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0, "loopback");
    close(fd);
}

static _Noreturn void execute(const struct weak *weak)
{
    char program[] = "/opt/probe", *inside = program;
    char *name = (char *)(uintptr_t)weak->name;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (!(weak->layers & ROOTFS))
        inside = (char *)(uintptr_t)weak->program;
    weak_need(null >= 0 && dup2(null, 0) == 0 && dup2(1, 2) == 2, "stdio");
    if (weak->layers & FDS)
        weak_need(syscall(SYS_close_range, 3, ~0u, 0) == 0, "close_range");
    else
        weak_need(dup2(weak->leaked, 100) == 100, "leak");
    if (weak->as_user)
        weak_need(setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 &&
                      setresuid(USER, USER, USER) == 0,
                  "user");
    weak_need(chdir("/tmp") == 0, "chdir");
    execve(inside, (char *[]){inside, name, NULL}, weak->env);
    give_up("execve");
    _exit(3);
}

static _Noreturn void be_init(const struct weak *weak, int go)
{
    char byte;
    int status;

    weak_need(read(go, &byte, 1) == 1, "maps");
    close(go);
    setsid(); /* the caller's terminal is not ours */
    if (weak->layers & USERNS)
        weak_need(setgroups(0, NULL) == 0 && setresgid(0, 0, 0) == 0 &&
                      setresuid(0, 0, 0) == 0,
                  "root");
    if (weak->layers & NETNS)
        raise_loopback();
    weak_make_root(weak);
    weak_lock(weak);
    pid_t child = fork();
    if (child == 0)
        execute(weak);
    weak_need(child > 0, "fork");
    while (waitpid(child, &status, 0) != child)
        continue;
    if (WIFSIGNALED(status))
        dprintf(1, "weak: the probe died of signal %d\n", WTERMSIG(status));
    _exit(0);
}

static _Noreturn void stay_outside(const struct weak *weak)
{
    int go[2];

    weak_need(pipe2(go, O_CLOEXEC) == 0, "pipe");
    long child = syscall(SYS_clone, namespaces(weak->layers) | SIGCHLD, 0, 0, 0, 0);
    weak_need(child >= 0, "clone");
    if (child == 0) {
        close(go[1]);
        be_init(weak, go[0]);
    }
    if (weak->layers & USERNS)
        write_maps(weak, child);
    weak_need(write(go[1], "", 1) == 1, "go");
    (void)waitpid((pid_t)child, NULL, 0);
    _exit(0);
}

bool weak_run(const struct weak *weak, char *output, size_t room)
{
    struct sock_filter *code;
    int out[2];
    size_t len = 0;

    (void)own_filter(&code); /* it takes longer than the rest: once for all children */
    fflush(stdout);
    if (pipe2(out, O_CLOEXEC) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        weak_need(dup2(out[1], 1) == 1, "stdout");
        stay_outside(weak);
    }
    close(out[1]);
    for (ssize_t got; len + 1 < room; len += (size_t)got) {
        got = read(out[0], output + len, room - len - 1);
        if (got <= 0)
            break;
    }
    output[len] = '\0';
    close(out[0]);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    return child > 0 && len > 0 && !strstr(output, "weak: ");
}
