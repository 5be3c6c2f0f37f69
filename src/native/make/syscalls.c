/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/syscalls.h"

/* Calls that newer architectures have only under other names. */
#if defined(__x86_64__)
#define OF_X86_64(name) CALL(name)
#else
#define OF_X86_64(name) (-1)
#endif

/* Newer than the kernel headers of Debian 12; the same on every architecture. */
enum { CACHESTAT = 451, FCHMODAT2 = 452 };

/* Allowed only with namespaces: memory of other processes; extended attributes and
 * inotify, which landlock does not cover; and message queues, semaphores and shared
 * memory, which belong to all programs of the user. */
#define NEED_NAMESPACES                                                                  \
    CALL(process_mrelease), CALL(process_vm_readv), CALL(process_vm_writev),             \
        CALL(ptrace), CALL(fremovexattr), CALL(fsetxattr), CALL(inotify_add_watch),      \
        CALL(lremovexattr), CALL(lsetxattr), CALL(removexattr), CALL(setxattr),          \
        CALL(mq_getsetattr), CALL(mq_notify), CALL(mq_open), CALL(mq_timedreceive),      \
        CALL(mq_timedsend), CALL(mq_unlink), CALL(msgctl), CALL(msgget), CALL(msgrcv),   \
        CALL(msgsnd), CALL(semctl), CALL(semget), CALL(semop), CALL(semtimedop),         \
        CALL(shmat), CALL(shmctl), CALL(shmdt), CALL(shmget)

const int calls_allowed[] = {
    /* files */
    OF_X86_64(access), CALL(chdir), OF_X86_64(chmod), OF_X86_64(chown), CALL(close),
    CALL(close_range), CALL(copy_file_range), OF_X86_64(creat), CALL(dup),
    OF_X86_64(dup2), CALL(dup3), CALL(faccessat), CALL(faccessat2), CALL(fadvise64),
    CALL(fallocate), CALL(fchdir), CALL(fchmod), CALL(fchmodat), FCHMODAT2, CALL(fchown),
    CALL(fchownat), CALL(fcntl), CALL(fdatasync), CALL(fgetxattr), CALL(flistxattr),
    CALL(flock), CALL(fstat), CALL(fstatfs), CALL(fsync), CALL(ftruncate),
    OF_X86_64(futimesat), CALL(getcwd), OF_X86_64(getdents), CALL(getdents64),
    CALL(getxattr), OF_X86_64(inotify_init), CALL(inotify_init1), CALL(inotify_rm_watch),
    OF_X86_64(lchown), CALL(lgetxattr), OF_X86_64(link), CALL(linkat), CALL(listxattr),
    CALL(llistxattr), CALL(lseek), OF_X86_64(lstat), OF_X86_64(mkdir), CALL(mkdirat),
    OF_X86_64(mknod), CALL(mknodat), CALL(name_to_handle_at), CALL(newfstatat),
    OF_X86_64(open), CALL(openat), CALL(openat2), CALL(pread64), CALL(preadv),
    CALL(preadv2), CALL(pwrite64), CALL(pwritev), CALL(pwritev2), CALL(read),
    CALL(readahead), OF_X86_64(readlink), CALL(readlinkat), CALL(readv),
    OF_X86_64(rename), CALL(renameat), CALL(renameat2), OF_X86_64(rmdir), CALL(sendfile),
    CALL(splice), OF_X86_64(stat), CALL(statfs), CALL(statx), OF_X86_64(symlink),
    CALL(symlinkat), CALL(sync), CALL(sync_file_range), CALL(syncfs), CALL(tee),
    CALL(truncate), CALL(umask), OF_X86_64(unlink), CALL(unlinkat), OF_X86_64(utime),
    CALL(utimensat), OF_X86_64(utimes), CALL(vmsplice), CALL(write), CALL(writev),
    CACHESTAT,
    /* memory */
    CALL(brk), CALL(madvise), CALL(membarrier), CALL(memfd_create), CALL(mincore),
    CALL(mlock), CALL(mlock2), CALL(mlockall), CALL(mmap), CALL(mprotect), CALL(mremap),
    CALL(msync), CALL(munlock), CALL(munlockall), CALL(munmap), CALL(pkey_alloc),
    CALL(pkey_free), CALL(pkey_mprotect),
    /* processes */
    OF_X86_64(arch_prctl), CALL(clone), CALL(clone3), CALL(execve), CALL(execveat),
    CALL(exit), CALL(exit_group), OF_X86_64(fork), CALL(getpgid), OF_X86_64(getpgrp),
    CALL(getpid), CALL(getppid), CALL(getpriority), CALL(getrlimit), CALL(getrusage),
    CALL(getsid), CALL(gettid), CALL(kill), CALL(personality), CALL(pidfd_open),
    CALL(pidfd_send_signal), CALL(prctl), CALL(prlimit64), CALL(rseq),
    CALL(sched_get_priority_max), CALL(sched_get_priority_min), CALL(sched_getaffinity),
    CALL(sched_getattr), CALL(sched_getparam), CALL(sched_getscheduler),
    CALL(sched_rr_get_interval), CALL(sched_setaffinity), CALL(sched_setattr),
    CALL(sched_setparam), CALL(sched_setscheduler), CALL(sched_yield),
    CALL(set_robust_list), CALL(get_robust_list), CALL(set_tid_address), CALL(setpgid),
    CALL(setpriority), CALL(setrlimit), CALL(setsid), CALL(tgkill), CALL(times),
    CALL(tkill), CALL(unshare), OF_X86_64(vfork), CALL(wait4), CALL(waitid),
    CALL(ioprio_get), CALL(ioprio_set), CALL(getcpu), CALL(capget), CALL(capset),
    CALL(seccomp), CALL(landlock_create_ruleset), CALL(landlock_add_rule),
    CALL(landlock_restrict_self), OF_X86_64(set_thread_area), OF_X86_64(get_thread_area),
    /* users */
    CALL(getegid), CALL(geteuid), CALL(getgid), CALL(getgroups), CALL(getresgid),
    CALL(getresuid), CALL(getuid), CALL(setfsgid), CALL(setfsuid), CALL(setgid),
    CALL(setgroups), CALL(setregid), CALL(setresgid), CALL(setresuid), CALL(setreuid),
    CALL(setuid),
    /* signals, time, waiting */
    OF_X86_64(alarm), CALL(clock_getres), CALL(clock_gettime), CALL(clock_nanosleep),
    OF_X86_64(epoll_create), CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait),
    CALL(epoll_pwait2), OF_X86_64(epoll_wait), OF_X86_64(eventfd), CALL(eventfd2),
    CALL(futex), CALL(futex_waitv), CALL(getitimer), CALL(gettimeofday), CALL(nanosleep),
    OF_X86_64(pause), OF_X86_64(poll), CALL(ppoll), CALL(pselect6), CALL(restart_syscall),
    CALL(rt_sigaction), CALL(rt_sigpending), CALL(rt_sigprocmask), CALL(rt_sigqueueinfo),
    CALL(rt_sigreturn), CALL(rt_sigsuspend), CALL(rt_sigtimedwait),
    CALL(rt_tgsigqueueinfo), OF_X86_64(select), CALL(setitimer), CALL(sigaltstack),
    OF_X86_64(signalfd), CALL(signalfd4), OF_X86_64(time), CALL(timer_create),
    CALL(timer_delete), CALL(timer_getoverrun), CALL(timer_gettime), CALL(timer_settime),
    CALL(timerfd_create), CALL(timerfd_gettime), CALL(timerfd_settime), CALL(adjtimex),
    /* sockets and pipes */
    CALL(accept), CALL(accept4), CALL(bind), CALL(connect), CALL(getpeername),
    CALL(getsockname), CALL(getsockopt), CALL(listen), OF_X86_64(pipe), CALL(pipe2),
    CALL(recvfrom), CALL(recvmmsg), CALL(recvmsg), CALL(sendmmsg), CALL(sendmsg),
    CALL(sendto), CALL(setsockopt), CALL(shutdown), CALL(socket), CALL(socketpair),
    CALL(ioctl),
    /* the machine */
    CALL(getrandom), CALL(sysinfo), CALL(uname), NEED_NAMESPACES};

const int calls_refused[] = {
    /* administration of the machine, and interfaces that programs inside do not need */
    CALL(acct),
    CALL(bpf),
    CALL(chroot),
    CALL(clock_adjtime),
    CALL(clock_settime),
    CALL(delete_module),
    CALL(fanotify_init),
    CALL(fanotify_mark),
    CALL(finit_module),
    CALL(fsconfig),
    CALL(fsmount),
    CALL(fsopen),
    CALL(fspick),
    CALL(init_module),
    OF_X86_64(iopl),
    OF_X86_64(ioperm),
    CALL(kcmp),
    CALL(kexec_file_load),
    CALL(kexec_load),
    CALL(lookup_dcookie),
    CALL(mount),
    CALL(mount_setattr),
    CALL(move_mount),
    CALL(move_pages),
    CALL(migrate_pages),
    CALL(nfsservctl),
    CALL(open_by_handle_at),
    CALL(open_tree),
    CALL(perf_event_open),
    CALL(pidfd_getfd),
    CALL(pivot_root),
    CALL(quotactl),
    CALL(quotactl_fd),
    CALL(reboot),
    CALL(setdomainname),
    CALL(sethostname),
    CALL(setns),
    CALL(settimeofday),
    CALL(swapoff),
    CALL(swapon),
    CALL(syslog),
    CALL(umount2),
    CALL(userfaultfd),
    CALL(vhangup),
    OF_X86_64(modify_ldt),
    CALL(memfd_secret)};

const int calls_refused_alone[] = {NEED_NAMESPACES};

const size_t calls_allowed_count = sizeof calls_allowed / sizeof *calls_allowed;
const size_t calls_refused_count = sizeof calls_refused / sizeof *calls_refused;
const size_t calls_refused_alone_count =
    sizeof calls_refused_alone / sizeof *calls_refused_alone;
