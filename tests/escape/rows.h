/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_ROWS_H
#define ESCAPE_ROWS_H

#include "layer.h"
#include "probe.h"

/* Every probe that the table-driven tests know.  X(class, name, who, layers, also, want,
 * errors, probe, argument):
 *
 *   class     of the checklist: E escapes, S system calls, W network, B resources
 *   who       BOTH, ROOT or USER: who tries it, inside
 *   layers    each of them alone stops it; without all of them it must succeed
 *   also      is taken away besides, for the control to succeed
 *   want      the verdict in a sandbox, and
 *   errors    the answers that are right there
 *
 * MAY_LACK in `also`: this kernel may not have the thing at all, and then the control is
 * allowed to find just that. */
#define MAY_LACK (1 << 30)

#define CALL(X, class, name, who, layers, also, ...)                                     \
    X(class, name, who, layers, also, BLOCKED, (__VA_ARGS__), probe_call, #name)

#define ROWS_OF_CALLS(X)                                                                 \
    CALL(X, S01, io_uring_setup, BOTH, SECCOMP, 0, ENOSYS)                               \
    CALL(X, S01, io_uring_enter, BOTH, SECCOMP, 0, ENOSYS)                               \
    CALL(X, S01, io_uring_register, BOTH, SECCOMP, 0, ENOSYS)                            \
    CALL(X, B04, io_setup, BOTH, SECCOMP, MAY_LACK, ENOSYS)                              \
    CALL(X, S02, bpf, BOTH, SECCOMP, 0, EPERM)                                           \
    CALL(X, S03, perf_event_open, BOTH, SECCOMP, 0, EPERM)                               \
    CALL(X, S04, userfaultfd, BOTH, SECCOMP, 0, EPERM)                                   \
    CALL(X, S05, kexec_load, BOTH, SECCOMP | USERNS, CAPS | MAY_LACK, EPERM)             \
    CALL(X, S05, kexec_file_load, BOTH, SECCOMP | USERNS, CAPS | MAY_LACK, EPERM)        \
    CALL(X, S05, init_module, BOTH, SECCOMP | USERNS, CAPS | MAY_LACK, EPERM)            \
    CALL(X, S05, finit_module, BOTH, SECCOMP | USERNS, CAPS | MAY_LACK, EPERM)           \
    CALL(X, S05, delete_module, BOTH, SECCOMP | USERNS, CAPS | MAY_LACK, EPERM)          \
    CALL(X, S06, clock_settime, BOTH, SECCOMP, 0, EPERM)                                 \
    CALL(X, S06, settimeofday, BOTH, SECCOMP, 0, EPERM)                                  \
    CALL(X, S06, clock_adjtime, BOTH, SECCOMP, 0, EPERM)                                 \
    X(S06, adjtimex_write, BOTH, USERNS | CAPS, 0, BLOCKED, (EPERM), probe_adjtimex, "") \
    CALL(X, S07, reboot, BOTH, SECCOMP | CAPS, 0, EPERM)                                 \
    CALL(X, S07, swapon, BOTH, SECCOMP, 0, EPERM)                                        \
    CALL(X, S07, swapoff, BOTH, SECCOMP | USERNS, CAPS, EPERM)                           \
    CALL(X, S07, acct, BOTH, SECCOMP | USERNS, CAPS | MAY_LACK, EPERM)                   \
    CALL(X, S07, syslog, BOTH, SECCOMP, USERNS | CAPS, EPERM)                            \
    CALL(X, S07, quotactl, BOTH, SECCOMP, MAY_LACK, EPERM)                               \
    CALL(X, S07, quotactl_fd, BOTH, SECCOMP, MAY_LACK, EPERM)                            \
    CALL(X, S07, vhangup, BOTH, SECCOMP | USERNS, CAPS, EPERM)                           \
    CALL(X, S07, sethostname, BOTH, SECCOMP | CAPS, 0, EPERM)                            \
    CALL(X, S07, setdomainname, BOTH, SECCOMP | CAPS, 0, EPERM)                          \
    CALL(X, S08, keyctl, BOTH, SECCOMP, 0, ENOSYS)                                       \
    CALL(X, S08, add_key, BOTH, SECCOMP, 0, ENOSYS)                                      \
    CALL(X, S08, request_key, BOTH, SECCOMP, 0, ENOSYS)                                  \
    CALL(X, S09, mount, BOTH, SECCOMP, 0, EPERM)                                         \
    CALL(X, S09, umount2, BOTH, SECCOMP, 0, EPERM)                                       \
    CALL(X, S09, pivot_root, BOTH, SECCOMP | CAPS, 0, EPERM)                             \
    CALL(X, S09, fsopen, BOTH, SECCOMP | CAPS, 0, EPERM)                                 \
    CALL(X, S09, fsconfig, BOTH, SECCOMP, 0, EPERM)                                      \
    CALL(X, S09, fsmount, BOTH, SECCOMP | CAPS, 0, EPERM)                                \
    CALL(X, S09, fspick, BOTH, SECCOMP | CAPS, 0, EPERM)                                 \
    CALL(X, S09, open_tree, BOTH, SECCOMP, 0, EPERM)                                     \
    CALL(X, S09, move_mount, BOTH, SECCOMP | CAPS, 0, EPERM)                             \
    CALL(X, S09, mount_setattr, BOTH, SECCOMP, 0, EPERM)                                 \
    CALL(X, S09, setns, BOTH, SECCOMP, 0, EPERM)                                         \
    /* Older kernels ask for the capability first. */                                    \
    CALL(X, S10, open_by_handle_at, BOTH, SECCOMP, USERNS | CAPS, EPERM)                 \
    CALL(X, S11, fanotify_init, BOTH, SECCOMP, 0, EPERM)                                 \
    CALL(X, S11, fanotify_mark, BOTH, SECCOMP, 0, EPERM)                                 \
    CALL(X, S11, lookup_dcookie, BOTH, SECCOMP, MAY_LACK, EPERM)                         \
    CALL(X, S11, pidfd_getfd, BOTH, SECCOMP, 0, EPERM)                                   \
    CALL(X, S11, move_pages, BOTH, SECCOMP, MAY_LACK, EPERM)                             \
    CALL(X, S11, migrate_pages, BOTH, SECCOMP, MAY_LACK, EPERM)                          \
    CALL(X, S14, memfd_secret, BOTH, SECCOMP, MAY_LACK, EPERM, ENOSYS)                   \
    CALL(X, S14, nfsservctl, BOTH, SECCOMP, MAY_LACK, EPERM, ENOSYS)                     \
    CALL(X, S14, remap_file_pages, BOTH, SECCOMP, 0, EPERM, ENOSYS)                      \
    X(S00, numbers_newer_than_the_list, BOTH, SECCOMP, MAY_LACK, BLOCKED, (ENOSYS),      \
      probe_new_calls, "")                                                               \
    X(S13, read_implies_exec, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_personality,     \
      "0x0400000")                                                                       \
    X(S13, map_page_zero, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_personality,         \
      "0x0100000")                                                                       \
    X(S13, compatible_layout, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_personality,     \
      "0x0200000")

#define FAMILY(X, class, name, number, also)                                             \
    X(class, family_##name, BOTH, SECCOMP, also, BLOCKED, (EAFNOSUPPORT, EPERM),         \
      probe_family, #number)
#define NETLINK(X, name, number)                                                         \
    X(S16, netlink_##name, BOTH, SECCOMP, MAY_LACK, BLOCKED, (EPROTONOSUPPORT, EPERM),   \
      probe_netlink, #number)
#define PROTOCOL(X, name, number)                                                        \
    X(S18, protocol_##name, BOTH, SECCOMP, MAY_LACK, BLOCKED, (EPROTONOSUPPORT, EPERM),  \
      probe_protocol, #number)

#define ROWS_OF_SOCKETS(X)                                                               \
    FAMILY(X, S15, vsock, 40, MAY_LACK)                                                  \
    FAMILY(X, E25, alg, 38, MAY_LACK)                                                    \
    FAMILY(X, S17, packet, 17, CAPS | MAY_LACK)                                          \
    FAMILY(X, S17, xdp, 44, CAPS | MAY_LACK)                                             \
    FAMILY(X, S17, key, 15, CAPS | MAY_LACK)                                             \
    FAMILY(X, S17, rds, 21, MAY_LACK)                                                    \
    FAMILY(X, S17, tipc, 30, MAY_LACK)                                                   \
    FAMILY(X, S17, can, 29, MAY_LACK)                                                    \
    FAMILY(X, S17, bluetooth, 31, MAY_LACK)                                              \
    FAMILY(X, S17, nfc, 39, MAY_LACK)                                                    \
    FAMILY(X, S17, rxrpc, 33, MAY_LACK)                                                  \
    FAMILY(X, S17, smc, 43, MAY_LACK)                                                    \
    FAMILY(X, S17, qipcrtr, 42, MAY_LACK)                                                \
    FAMILY(X, S17, pppox, 24, MAY_LACK)                                                  \
    FAMILY(X, S17, mctp, 45, MAY_LACK)                                                   \
    FAMILY(X, S17, kcm, 41, MAY_LACK)                                                    \
    FAMILY(X, S17, llc, 26, CAPS | MAY_LACK)                                             \
    FAMILY(X, E25, inet6, 10, MAY_LACK)                                                  \
    X(S17, every_other_family, BOTH, SECCOMP, CAPS, BLOCKED, (EAFNOSUPPORT, EPERM),      \
      probe_family, "")                                                                  \
    NETLINK(X, xfrm, 6)                                                                  \
    NETLINK(X, audit, 9)                                                                 \
    NETLINK(X, netfilter, 12)                                                            \
    NETLINK(X, uevent, 15)                                                               \
    NETLINK(X, generic, 16)                                                              \
    NETLINK(X, crypto, 21)                                                               \
    X(S16, every_other_netlink, BOTH, SECCOMP, 0, BLOCKED, (EPROTONOSUPPORT, EPERM),     \
      probe_netlink, "")                                                                 \
    PROTOCOL(X, sctp, 132)                                                               \
    PROTOCOL(X, dccp, 33)                                                                \
    PROTOCOL(X, mptcp, 262)                                                              \
    PROTOCOL(X, udplite, 136)                                                            \
    PROTOCOL(X, l2tp, 115)                                                               \
    PROTOCOL(X, smc, 256)                                                                \
    X(S18, every_other_protocol, BOTH, SECCOMP, MAY_LACK, BLOCKED,                       \
      (EPROTONOSUPPORT, EPERM), probe_protocol, "")                                      \
    X(W08, raw_socket, BOTH, CAPS, 0, BLOCKED, (EPERM), probe_raw_socket, "")            \
    X(S19, tiocsti, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_tty, "0x5412")             \
    X(S19, tioclinux, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_tty, "0x541C")           \
    X(S19, tioccons, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_tty, "0x541D")            \
    X(S19, tiocsserial, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_tty, "0x541F")         \
    X(S19, tiocsetd, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_tty, "0x5423")            \
    X(W11, tiocsti_on_its_own_terminal, BOTH, SECCOMP, 0, BLOCKED, (EPERM), probe_tty,   \
      "own")                                                                             \
    X(E24, socket_upper_half, BOTH, BITS32, MAY_LACK, BLOCKED, (EAFNOSUPPORT),           \
      probe_high, "socket")                                                              \
    X(E24, ioctl_upper_half, BOTH, BITS32, 0, BLOCKED, (EPERM), probe_high, "ioctl")     \
    X(E24, unshare_upper_half, BOTH, BITS32, 0, BLOCKED, (EPERM), probe_high, "unshare") \
    X(E24, personality_upper_half, BOTH, BITS32, 0, BLOCKED, (EPERM), probe_high,        \
      "personality")                                                                     \
    X(E24, lease_upper_half, BOTH, BITS32, 0, BLOCKED, (EPERM), probe_high, "fcntl")     \
    X(E24, clone_upper_half, BOTH, BITS32 | NONEST, 0, BLOCKED, (EPERM), probe_high,     \
      "clone")

#define ROWS_OF_MOUNTS(X)                                                                \
    X(E09, mount_cgroup2, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM),          \
      probe_mount, "cgroup2")                                                            \
    X(E09, release_agent, BOTH, ROOTFS, IDMAP | MAY_LACK, BLOCKED, (BY_NOTHING_THERE),   \
      probe_cgroup_file, "release_agent")                                                \
    X(E12, mknod_block, BOTH, USERNS, CAPS, BLOCKED, (EPERM), probe_mknod, "b")          \
    X(E12, mknod_char, BOTH, USERNS, CAPS, BLOCKED, (EPERM), probe_mknod, "c")           \
    X(E12, open_a_made_node, ROOT, USERNS | NODEV, CAPS, BLOCKED, (EPERM),               \
      probe_device_node, "")                                                             \
    X(E13, setuid_program, USER, NNP | NOSUID, 0, BLOCKED, (EPERM), probe_setuid, "")    \
    /* Finding S2: without a root of its own a sandbox's home is the host's. */          \
    X(E13, set_user_id_on_the_host, BOTH, ROOTFS, 0, VIRTUALISED, (0), probe_set_id, "") \
    X(E13, file_capability, BOTH, CAPS, 0, BLOCKED, (EPERM), probe_file_capability, "")  \
    X(E16, unshare_user, BOTH, SECCOMP | NONEST, 0, BLOCKED, (EPERM), probe_unshare,     \
      "0x10000000")                                                                      \
    X(E16, clone_user, BOTH, SECCOMP | NONEST, 0, BLOCKED, (EPERM), probe_clone,         \
      "0x10000000")                                                                      \
    X(E16, clone3_user, BOTH, NONEST, 0, BLOCKED, (ENOSPC, ENOSYS), probe_clone3,        \
      "0x10000000")                                                                      \
    X(E16, unshare_mount, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_unshare,      \
      "0x00020000")                                                                      \
    X(E16, unshare_net, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_unshare,        \
      "0x40000000")                                                                      \
    X(E16, unshare_pid, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_unshare,        \
      "0x20000000")                                                                      \
    X(E16, unshare_ipc, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_unshare,        \
      "0x08000000")                                                                      \
    X(E16, unshare_uts, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_unshare,        \
      "0x04000000")                                                                      \
    X(E16, unshare_cgroup, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_unshare,     \
      "0x02000000")                                                                      \
    X(E16, unshare_time, BOTH, SECCOMP | CAPS, MAY_LACK, BLOCKED, (EPERM),               \
      probe_unshare, "0x00000080")                                                       \
    X(E16, clone3_mount, BOTH, CAPS, 0, BLOCKED, (EPERM, ENOSYS), probe_clone3,          \
      "0x00020000")                                                                      \
    X(E16, clone3_net, BOTH, CAPS, 0, BLOCKED, (EPERM, ENOSYS), probe_clone3,            \
      "0x40000000")                                                                      \
    X(E16, raise_max_user_namespaces, BOTH, MASKS | CAPS, 0, BLOCKED, (EROFS, EACCES),   \
      probe_max_users, "")                                                               \
    X(E17, mount_tmpfs, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM),            \
      probe_mount, "tmpfs")                                                              \
    X(E17, mount_proc, BOTH, SECCOMP | CAPS | LANDLOCK, MASKS, BLOCKED, (EPERM),         \
      probe_mount, "proc")                                                               \
    X(E17, bind_root, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM), probe_bind,  \
      "")                                                                                \
    X(E17, unmount_a_mask, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM),         \
      probe_unmount, "")                                                                 \
    X(E17, remount_proc_sys, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM),       \
      probe_remount, "/proc/sys")                                                        \
    X(E17, remount_usr, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM),            \
      probe_remount, "/usr")                                                             \
    X(E17, setattr_usr, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_setattr_usr,    \
      "")                                                                                \
    X(E17, new_mount_calls, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM),        \
      probe_new_mount, "")                                                               \
    X(E17, pivot_root, BOTH, SECCOMP | CAPS | LANDLOCK, 0, BLOCKED, (EPERM),             \
      probe_pivot, "")                                                                   \
    X(E17, chroot, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM), probe_chroot, "")          \
    X(E17, chroot_breakout, BOTH, SECCOMP | CAPS | PIVOT, 0, BLOCKED, (EPERM),           \
      probe_chroot_breakout, "")                                                         \
    X(E18, open_by_handle, BOTH, SECCOMP | USERNS, CAPS, BLOCKED, (EPERM), probe_handle, \
      "")                                                                                \
    X(E21, link_across, BOTH, ROOTFS, IDMAP | LANDLOCK, BLOCKED, (EXDEV), probe_link,    \
      "")                                                                                \
    X(S20, trusted_attribute, BOTH, USERNS, CAPS, BLOCKED, (EPERM), probe_xattr,         \
      "trusted.cay")                                                                     \
    X(E22, overlay_attribute, BOTH, USERNS, CAPS, BLOCKED, (EPERM), probe_xattr,         \
      "trusted.overlay.redirect")                                                        \
    X(E17, write_usr, BOTH, RDONLY | IDMAP, 0, BLOCKED, (EROFS, EACCES), probe_usr, "")

#define HIDDEN(X, name, layers, also)                                                    \
    X(E11, proc_##name, BOTH, layers, (also) | MAY_LACK, BLOCKED,                        \
      (BY_NOTHING_THERE, ENOENT, EACCES), probe_read_file, "/proc/" #name)
#define CONTROL_FILE(X, class, name, layers, also, path)                                 \
    X(class, name, BOTH, layers, also, BLOCKED, (EROFS, EACCES, ENOENT),                 \
      probe_write_file, path)

#define ROWS_OF_FILES(X)                                                                 \
    X(E02, open_descriptors, BOTH, FDS, 0, VIRTUALISED, (0), probe_descriptors, "")      \
    X(E02, leaked_directory, BOTH, FDS | LANDLOCK, 0, BLOCKED, (EBADF), probe_leaked,    \
      "")                                                                                \
    X(E02, host_file, BOTH, ROOTFS, 0, BLOCKED, (ENOENT), probe_host_file, "")           \
    X(E11, devices, BOTH, ROOTFS, 0, VIRTUALISED, (0), probe_devices, "")                \
    X(E11, sys, BOTH, ROOTFS, 0, BLOCKED, (ENOENT, BY_NOTHING_THERE), probe_sys, "")     \
    CONTROL_FILE(X, E10, core_pattern, MASKS | IDMAP, 0,                                 \
                 "/proc/sys/kernel/core_pattern")                                        \
    X(E10, core_limit_lowered, BOTH, SECCOMP, 0, VIRTUALISED, (0), probe_core, "lower")  \
    X(E10, core_limit, BOTH, RLIMITS, 0, VIRTUALISED, (0), probe_core, "")               \
    CONTROL_FILE(X, E11, sysrq_trigger, MASKS | IDMAP, MAY_LACK, "/proc/sysrq-trigger")  \
    CONTROL_FILE(X, E11, modprobe, MASKS | IDMAP, MAY_LACK, "/proc/sys/kernel/modprobe") \
    CONTROL_FILE(X, E11, binfmt_misc, MASKS | IDMAP, MAY_LACK,                           \
                 "/proc/sys/fs/binfmt_misc/register")                                    \
    CONTROL_FILE(X, B04, pressure_trigger, MASKS, MAY_LACK, "/proc/pressure/memory")     \
    CONTROL_FILE(X, B19, drop_caches, MASKS | IDMAP, 0, "/proc/sys/vm/drop_caches")      \
    CONTROL_FILE(X, E11, ip_forward, MASKS | CAPS, 0, "/proc/sys/net/ipv4/ip_forward")   \
    CONTROL_FILE(X, E11, hostname, MASKS, IDMAP, "/proc/sys/kernel/hostname")            \
    CONTROL_FILE(X, E11, irq_affinity, IDMAP, MAY_LACK,                                  \
                 "/proc/irq/default_smp_affinity")                                       \
    X(E11, proc_kmsg, BOTH, MASKS, USERNS | CAPS, BLOCKED, (BY_NOTHING_THERE, EACCES),   \
      probe_log, "")                                                                     \
    HIDDEN(X, keys, MASKS, IDMAP)                                                        \
    /* Finding S5: the kernel's parameters can have secrets. */                          \
    HIDDEN(X, cmdline, MASKS, 0)                                                         \
    HIDDEN(X, bootconfig, MASKS, 0)                                                      \
    HIDDEN(X, kallsyms, MASKS, IDMAP)                                                    \
    HIDDEN(X, interrupts, MASKS, IDMAP)                                                  \
    HIDDEN(X, latency_stats, MASKS, IDMAP)                                               \
    HIDDEN(X, sched_debug, MASKS, IDMAP)                                                 \
    HIDDEN(X, scsi, MASKS, IDMAP)                                                        \
    HIDDEN(X, acpi, MASKS, IDMAP)                                                        \
    HIDDEN(X, asound, MASKS, IDMAP)                                                      \
    HIDDEN(X, kcore, MASKS | USERNS | CAPS, IDMAP)                                       \
    HIDDEN(X, timer_list, MASKS | IDMAP, 0)                                              \
    HIDDEN(X, slabinfo, MASKS | IDMAP, 0)                                                \
    HIDDEN(X, vmallocinfo, MASKS | IDMAP, 0)                                             \
    HIDDEN(X, pagetypeinfo, MASKS | IDMAP, 0)                                            \
    HIDDEN(X, kpagecount, MASKS | IDMAP, 0)                                              \
    HIDDEN(X, kpageflags, MASKS | IDMAP, 0)                                              \
    HIDDEN(X, kpagecgroup, MASKS | IDMAP, 0)

#define OF_INIT(X, name, errors)                                                         \
    X(E14, init_##name, BOTH, UNDUMP | CAPS, 0, BLOCKED, errors, probe_init_file,        \
      "/proc/1/" #name)

#define ROWS_OF_PROCESSES(X)                                                             \
    OF_INIT(X, environ, (EACCES))                                                        \
    OF_INIT(X, maps, (EACCES))                                                           \
    OF_INIT(X, mem, (EACCES))                                                            \
    X(E14, init_fd, BOTH, UNDUMP | CAPS, 0, BLOCKED, (EACCES), probe_init_links, "")     \
    OF_INIT(X, root, (EACCES))                                                           \
    OF_INIT(X, cwd, (EACCES))                                                            \
    OF_INIT(X, exe, (EACCES))                                                            \
    OF_INIT(X, auxv, (EACCES))                                                           \
    X(E14, init_namespaces, BOTH, UNDUMP | CAPS, 0, BLOCKED, (EACCES), probe_init_file,  \
      "/proc/1/ns/mnt")                                                                  \
    X(E14, init_memory, BOTH, UNDUMP | CAPS, 0, BLOCKED, (EPERM), probe_init_memory, "") \
    X(E14, init_trace, BOTH, UNDUMP | CAPS, 0, BLOCKED, (EPERM), probe_init_trace, "")   \
    X(E15, session_keyring, BOTH, SECCOMP, 0, BLOCKED, (ENOSYS), probe_keyring, "")      \
    X(E19, host_process, BOTH, PIDNS, 0, BLOCKED, (ESRCH), probe_host_process, "")       \
    X(E20, host_signal, BOTH, PIDNS | IDMAP | SCOPES, 0, BLOCKED, (ESRCH),               \
      probe_host_signal, "")                                                             \
    X(E20, host_pidfd, BOTH, PIDNS, 0, BLOCKED, (ESRCH), probe_host_pidfd, "")           \
    X(S12, host_trace, BOTH, PIDNS | USERNS, CAPS | SCOPES | LANDLOCK, BLOCKED, (ESRCH), \
      probe_host_trace, "")                                                              \
    X(E20, enter_namespaces, BOTH, SECCOMP | CAPS, 0, BLOCKED, (EPERM),                  \
      probe_namespaces, "")                                                              \
    X(B16, nice, BOTH, USERNS | CAPS, 0, BLOCKED, (EPERM, EACCES), probe_priority, "")   \
    X(B16, real_time, BOTH, USERNS | CAPS, 0, BLOCKED, (EPERM), probe_scheduler, "")     \
    X(B16, io_real_time, BOTH, USERNS | CAPS, 0, BLOCKED, (EPERM), probe_io_priority,    \
      "")                                                                                \
    X(B17, cgroup_procs, BOTH, ROOTFS, IDMAP, BLOCKED, (BY_NOTHING_THERE),               \
      probe_cgroup_file, "cgroup.procs")

#define ROWS_OF_NETWORK(X)                                                               \
    X(W01, metadata, BOTH, NETNS, MAY_LACK, BLOCKED, (ENETUNREACH), probe_route,         \
      "169.254.169.254")                                                                 \
    X(W01, metadata_elsewhere, BOTH, NETNS, MAY_LACK, BLOCKED, (ENETUNREACH),            \
      probe_route, "100.100.100.200")                                                    \
    X(W06, resolver, BOTH, NETNS, MAY_LACK, BLOCKED, (ENETUNREACH), probe_route,         \
      "8.8.8.8")                                                                         \
    X(W02, host_tcp, BOTH, NETNS, 0, BLOCKED, (ECONNREFUSED), probe_tcp, "127.0.0.1")    \
    X(W02, host_udp, BOTH, NETNS, 0, BLOCKED, (ECONNREFUSED), probe_udp, "127.0.0.1")    \
    X(W04, abstract_socket, BOTH, NETNS | SCOPES, 0, BLOCKED, (ECONNREFUSED, EPERM),     \
      probe_abstract, "")                                                                \
    X(W03, path_socket, BOTH, ROOTFS, 0, BLOCKED, (ENOENT), probe_unix_path, "")         \
    /* Finding S1: where nothing hides the path, only the filter is left. */             \
    X(W03, datagram_pair, BOTH, ROOTFS, 0, BLOCKED, (ENOENT), probe_pair, "2")           \
    X(W03, raw_pair, BOTH, ROOTFS, 0, BLOCKED, (ENOENT), probe_pair, "3")                \
    X(W05, sockets_in_the_tree, BOTH, ROOTFS, 0, VIRTUALISED, (0), probe_sockets_around, \
      "")                                                                                \
    X(W08, promiscuous, BOTH, CAPS, 0, BLOCKED, (EPERM), probe_promiscuous, "")          \
    X(W08, interfaces, BOTH, NETNS, MAY_LACK, VIRTUALISED, (0), probe_interfaces, "")

#if defined(__x86_64__)
#define ROWS_OF_MACHINE(X)                                                               \
    CALL(X, S07, iopl, BOTH, SECCOMP, MAY_LACK, EPERM)                                   \
    CALL(X, S07, ioperm, BOTH, SECCOMP, MAY_LACK, EPERM)                                 \
    CALL(X, S14, modify_ldt, BOTH, SECCOMP, MAY_LACK, EPERM, ENOSYS)                     \
    CALL(X, S14, ustat, BOTH, SECCOMP, MAY_LACK, EPERM, ENOSYS)                          \
    CALL(X, S14, sysfs, BOTH, SECCOMP, MAY_LACK, EPERM, ENOSYS)                          \
    CALL(X, S14, uselib, BOTH, SECCOMP, MAY_LACK, EPERM, ENOSYS)                         \
    X(E23, int80_getpid, BOTH, SECCOMP, MAY_LACK, BLOCKED, (BY_SIGSYS), probe_int80,     \
      "20")                                                                              \
    X(E23, int80_dup, BOTH, SECCOMP, MAY_LACK, BLOCKED, (BY_SIGSYS), probe_int80, "41")  \
    X(E23, x32_getpid, BOTH, SECCOMP, MAY_LACK, BLOCKED, (BY_SIGSYS), probe_x32, "39")   \
    X(E23, x32_socket, BOTH, SECCOMP, MAY_LACK, BLOCKED, (BY_SIGSYS), probe_x32, "41")
#else
#define ROWS_OF_MACHINE(X)                                                               \
    X(E23, arm32_getpid, BOTH, SECCOMP, MAY_LACK, BLOCKED, (BY_SIGSYS, ENOSYS),          \
      probe_arm32, "")
#endif

#define EVERY_ROW(X)                                                                     \
    ROWS_OF_CALLS(X)                                                                     \
    ROWS_OF_SOCKETS(X)                                                                   \
    ROWS_OF_MOUNTS(X)                                                                    \
    ROWS_OF_FILES(X)                                                                     \
    ROWS_OF_PROCESSES(X)                                                                 \
    ROWS_OF_NETWORK(X)                                                                   \
    ROWS_OF_MACHINE(X)

#endif
