/* SPDX-License-Identifier: Apache-2.0 */
#include "init/suid-filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "init/confine.h"
#include "sys/raw.h"

enum {
    PROGRAM_MAX = 80,
    FCHMODAT2 = 452, /* newer than the kernel headers of Debian 12 */
    MAKES_FILES = O_CREAT | (O_TMPFILE & ~O_DIRECTORY)
};

static struct sock_filter program[PROGRAM_MAX];
static unsigned short length;

static void put(unsigned code, uint32_t value, uint8_t if_true, uint8_t if_false)
{
    program[length++] = (struct sock_filter){(uint16_t)code, if_true, if_false, value};
}

static void load_argument(int number)
{
    /* The lower half: both architectures are little-endian. */
    put(BPF_LD | BPF_W | BPF_ABS,
        (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)number), 0, 0);
}

static void forbid(uint32_t call, int error)
{
    put(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error, 0, 0);
}

/* A call that sets a file's mode, which is argument `mode`. If it does so only with
 * certain flags, those are argument `flags`; else that is -1. */
static void forbid_set_id(uint32_t call, int mode, int flags)
{
    put(BPF_JMP | BPF_JEQ | BPF_K, call, 0, flags < 0 ? 4 : 7);
    if (flags >= 0) {
        load_argument(flags);
        put(BPF_JMP | BPF_JSET | BPF_K, MAKES_FILES, 1, 0);
        put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    }
    load_argument(mode);
    put(BPF_JMP | BPF_JSET | BPF_K, S_ISUID | S_ISGID, 0, 1);
    put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
    put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

/* A file that belongs to a host user and is writable inside must not become a set-user-id
 * program, which would run as that user for anyone who executes it outside. */
static void forbid_set_ids(void)
{
    forbid_set_id(SYS_fchmod, 1, -1);
    forbid_set_id(SYS_fchmodat, 2, -1);
    forbid_set_id(FCHMODAT2, 2, -1);
    forbid_set_id(SYS_mknodat, 2, -1);
    forbid_set_id(SYS_openat, 3, 2);
    forbid(SYS_openat2, ENOSYS); /* a filter cannot read its struct argument */
#ifdef SYS_chmod
    forbid_set_id(SYS_chmod, 1, -1);
    forbid_set_id(SYS_creat, 1, -1);
    forbid_set_id(SYS_mknod, 1, -1);
    forbid_set_id(SYS_open, 2, 1);
#endif
}

void suid_filter_prepare(const struct plan *plan)
{
    bool has_host_namespaces = plan->no_namespaces && !plan->unconfined;

    if (!has_host_namespaces && !plan->no_set_ids)
        return;
    put(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    /* A filter cannot read the flags of clone3(2) either.  That matters where nothing
     * else forbids new user namespaces. */
    if (has_host_namespaces)
        forbid(SYS_clone3, ENOSYS);
    if (plan->no_set_ids)
        forbid_set_ids();
    put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

unsigned suid_filter_count(void)
{
    return length > 0;
}

int suid_filter_install(void)
{
    const struct sock_fprog filter = {.len = length, .filter = program};

    if (length == 0)
        return 0;
    long error = raw_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0,
                          (long)(uintptr_t)&filter, (long)confine_pass(), 0);
    return error < 0 ? (int)-error : 0;
}
