/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_PROBE_H
#define ESCAPE_PROBE_H

#include <stdbool.h>

/* A probe tries one thing that must not work, from inside, and says how that ended. */

enum verdict {
    BLOCKED = 1, /* refused: error tells how */
    VIRTUALISED, /* it works, on what is the sandbox's own */
    LIMITED,     /* it works up to a limit */
    ESCAPE,      /* it works, or gets further than the layer that should stop it */
    ERROR        /* the probe could not do what it is for */
};

/* In place of an errno. */
enum { BY_SIGSYS = 4096, BY_NOTHING_THERE = 4097 };

struct answer {
    enum verdict verdict;
    int error;
    char detail[200];
};

struct answer answer_make(enum verdict verdict, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For the result of a system call, and errno: refused by a layer, or reached the kernel's
 * own code. */
struct answer answer_call(long result);

/* The same for a path: not there, or not to be opened. */
struct answer answer_path(long result);

/* What the tests say about the host, or NULL.  The probe's environment has it. */
const char *host_fact(const char *name);
long host_number(const char *name);

/* Runs `what` in a child and gives its answer; a child that dies of SIGSYS was blocked,
 * of another signal is an error. */
struct answer answer_of_child(struct answer (*what)(const char *arg), const char *arg);

/* Visits what lies below a directory, not too deep, until `look` returns true, and then
 * gives the path; else NULL. */
struct stat;
const char *find_below(const char *path, bool (*look)(const char *path, const char *name,
                                                      const struct stat *st));

/* probe-exe.c */
struct answer attack_program(const char *which);

typedef struct answer probe(const char *arg);

probe probe_call, probe_personality, probe_family, probe_netlink, probe_protocol,
    probe_new_calls, probe_tty, probe_high, probe_int80, probe_x32, probe_arm32,
    probe_clone, probe_unshare, probe_clone3, probe_adjtimex, probe_raw_socket;
probe probe_mount, probe_unmount, probe_remount, probe_bind, probe_chroot,
    probe_chroot_breakout, probe_handle, probe_mknod, probe_device_node, probe_setuid,
    probe_file_capability, probe_set_id, probe_xattr, probe_link, probe_usr, probe_pivot,
    probe_new_mount, probe_setattr_usr, probe_max_users;
probe probe_read_file, probe_log, probe_write_file, probe_host_file, probe_devices,
    probe_sys, probe_descriptors, probe_leaked, probe_init_file, probe_init_links,
    probe_init_memory, probe_init_trace, probe_host_process, probe_host_signal,
    probe_host_trace, probe_host_pidfd, probe_namespaces, probe_keyring, probe_priority,
    probe_scheduler, probe_io_priority, probe_core, probe_cgroup_file;
probe probe_route, probe_tcp, probe_udp, probe_abstract, probe_unix_path, probe_pair,
    probe_sockets_around, probe_promiscuous, probe_interfaces;

#endif
