/* SPDX-License-Identifier: Apache-2.0 */
#include "weak-root.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "layer.h"

/* Where the root is put together; hidden by it in this namespace only. */
#define WORK "/tmp"

static void copy_program(int from, const char *to, mode_t mode)
{
    struct stat st;
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);

    weak_need(out >= 0 && fstat(from, &st) == 0, to);
    for (off_t at = 0; at < st.st_size;)
        weak_need(sendfile(out, from, &at, (size_t)(st.st_size - at)) > 0, to);
    weak_need(fchmod(out, mode) == 0, to);
    close(out);
}

static void show_usr(unsigned layers)
{
    static const char *const links[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV;
    char target[64];

    weak_need(mount("/usr", "usr", NULL, MS_BIND, NULL) == 0, "usr");
    if (layers & RDONLY)
        weak_need(mount(NULL, "usr", NULL, flags | MS_RDONLY, NULL) == 0, "usr");
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(target, sizeof target, "usr/%s", links[i]);
        weak_need(symlink(target, links[i]) == 0, links[i]);
    }
}

static void make_devices(void)
{
    static const char *const devices[] = {"null",   "zero",    "full",
                                          "random", "urandom", "tty"};
    char from[32], to[32];

    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        snprintf(from, sizeof from, "/dev/%s", devices[i]);
        snprintf(to, sizeof to, "dev/%s", devices[i]);
        close(open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
        weak_need(mount(from, to, NULL, MS_BIND, NULL) == 0, from);
    }
    weak_need(mkdir("dev/pts", 0755) == 0 &&
                  mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                        "newinstance,ptmxmode=0666,mode=620") == 0 &&
                  symlink("pts/ptmx", "dev/ptmx") == 0,
              "devpts");
}

/* Of our own processes, or the host's. */
static void show_proc(unsigned layers)
{
    int shown = layers & PIDNS ? mount("proc", "proc", "proc",
                                       MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL)
                               : mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL);

    weak_need(shown == 0, "proc");
}

static void cover(const char *path)
{
    struct stat st;

    /* As the real one: not what its owner, who has no number here, hides already. */
    if (lstat(path, &st) != 0 || (st.st_uid == 65534 && !(st.st_mode & 0007)))
        return;
    if (S_ISDIR(st.st_mode))
        weak_need(mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV,
                        "mode=555") == 0,
                  path);
    else
        weak_need(mount("dev/null", path, NULL, MS_BIND, NULL) == 0, path);
}

static void cover_proc(void)
{
    static const char *const hidden[] = {
        "acpi",        "asound",     "bootconfig",    "cmdline",       "interrupts",
        "kallsyms",    "kcore",      "keys",          "kmsg",          "kpagecgroup",
        "kpagecount",  "kpageflags", "latency_stats", "pagetypeinfo",  "pressure",
        "sched_debug", "scsi",       "slabinfo",      "sysrq-trigger", "timer_list",
        "timer_stats", "vmallocinfo"};
    const unsigned long flags =
        MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    char path[64];

    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        snprintf(path, sizeof path, "proc/%s", hidden[i]);
        cover(path);
    }
    /* With what is mounted in the host's, which cannot be left out, and its flags. */
    weak_need(mount("proc/sys", "proc/sys", NULL, MS_BIND | MS_REC, NULL) == 0 &&
                  mount(NULL, "proc/sys", NULL, flags, NULL) == 0,
              "proc/sys");
}

/* Only ever the number of our own user namespace. */
static void forbid_nesting(unsigned layers)
{
    if (!(layers & NONEST) || !(layers & USERNS))
        return;
    int fd = open("proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
    weak_need(fd >= 0 && write(fd, "0", 1) == 1, "max_user_namespaces");
    close(fd);
}

static void enter_root(unsigned layers)
{
    if (!(layers & PIVOT)) {
        weak_need(chroot(".") == 0 && chdir("/") == 0, "chroot");
        return;
    }
    weak_need(syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 &&
                  chdir("/") == 0,
              "pivot_root");
}

void weak_make_root(const struct weak *weak)
{
    static const char *const directories[] = {"usr", "opt", "tmp", "proc",
                                              "dev", "sys", "run", "etc"};
    unsigned layers = weak->layers;
    unsigned long flags =
        (layers & NOSUID ? MS_NOSUID : 0ul) | (layers & NODEV ? MS_NODEV : 0ul);

    weak_need(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private");
    if (!(layers & ROOTFS))
        return;
    umask(0);
    weak_need(mount("tmpfs", WORK, "tmpfs", flags, "mode=755,size=64m") == 0, "root");
    weak_need(chdir(WORK) == 0, "root");
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        weak_need(mkdir(directories[i], *directories[i] == 't' ? 01777 : 0755) == 0,
                  directories[i]);
    copy_program(weak->program_fd, "opt/probe", 0755);
    copy_program(weak->program_fd, "opt/probe-setuid", 06755);
    show_usr(layers);
    make_devices();
    show_proc(layers);
    forbid_nesting(layers);
    if (layers & MASKS)
        cover_proc();
    umask(022);
    enter_root(layers);
}
