/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_LAYER_H
#define ESCAPE_LAYER_H

/* What keeps a sandbox in, in the pieces that weak.c can leave out one by one.  A row of
 * rows.h names those of which each alone stops its probe. */
enum layer {
    USERNS = 1 << 0,    /* a user namespace: capabilities mean nothing outside */
    IDMAP = 1 << 1,     /* no user of the host is mapped, least of all its root */
    PIDNS = 1 << 2,     /* own processes only */
    ROOTFS = 1 << 3,    /* own root: nothing of the host but what is shown */
    PIVOT = 1 << 4,     /* by pivot_root and not by chroot */
    NETNS = 1 << 5,     /* own network with a loopback */
    CAPS = 1 << 6,      /* the bounding set of everything but PID 1 */
    NNP = 1 << 7,       /* no_new_privs */
    NOSUID = 1 << 8,    /* on every mount */
    NODEV = 1 << 9,     /* on every mount */
    RDONLY = 1 << 10,   /* of /usr */
    MASKS = 1 << 11,    /* of /proc: what is covered, and /proc/sys read-only */
    SECCOMP = 1 << 12,  /* the library's own filter */
    BITS32 = 1 << 13,   /* that filter compares as many bits as the kernel uses */
    LANDLOCK = 1 << 14, /* only what lies below the root, and no mounts */
    SCOPES = 1 << 15,   /* landlock, ABI 6: signals and abstract sockets */
    NONEST = 1 << 16,   /* max_user_namespaces is 0 */
    FDS = 1 << 17,      /* close_range before execve */
    UNDUMP = 1 << 18,   /* PID 1 is not dumpable */
    RLIMITS = 1 << 19,  /* no cores */
    EVERY_LAYER = (1 << 20) - 1
};

#endif
