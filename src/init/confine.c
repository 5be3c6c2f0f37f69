/* SPDX-License-Identifier: Apache-2.0 */
#include "init/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/report.h"
#include "sys/landlock.h"
#include "sys/raw.h"

_Static_assert(sizeof(struct plan_filter) == sizeof(struct sock_filter),
               "the same thing");

void confine_bounding_set(void)
{
    for (int i = 0;; i++) {
        bool is_kept = i < 32 && CONFINE_ROOT_CAPS & 1u << i;
        if (is_kept || prctl(PR_CAPBSET_DROP, i) == 0)
            continue;
        if (errno == EINVAL) /* past the last capability of this kernel */
            break;
        report_failure(errno, "init.capabilities", "bounding set");
    }
}

static void keep_capabilities(uint32_t kept)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
        report_failure(errno, "init.capabilities", "ambient");
    if (syscall(SYS_capget, &header, data) != 0)
        report_failure(errno, "init.capabilities", "capget");
    data[0].permitted &= kept;
    data[0].effective &= kept;
    data[1].permitted = data[1].effective = 0;
    data[0].inheritable = data[1].inheritable = 0;
    if (syscall(SYS_capset, &header, data) != 0)
        report_failure(errno, "init.capabilities", "capset");
}

static void limit(int resource, const char *name, rlim_t value)
{
    struct rlimit now;

    if (prlimit(0, resource, NULL, &now) != 0)
        report_failure(errno, "init.limits", name);
    /* Raising a limit needs a privilege in the initial user namespace. */
    rlim_t most = now.rlim_max < value ? now.rlim_max : value;
    const struct rlimit bounds = {most, most};
    if (prlimit(0, resource, &bounds, NULL) != 0)
        report_failure(errno, "init.limits", name);
}

/* --- Landlock --- */

static const uint64_t reading = LANDLOCK_ACCESS_FS_EXECUTE |
                                LANDLOCK_ACCESS_FS_READ_FILE |
                                LANDLOCK_ACCESS_FS_READ_DIR;

/* The rights that apply to a single file. */
static const uint64_t for_files =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
    LANDLOCK_ACCESS_FS_READ_FILE | (1u << 14) /* truncate */ | (1u << 15) /* ioctl */;

/* The mount below the root, for rules about "/": the root may be replaced; or -1. */
static int bottom = -1;

/* The ruleset that commands have in addition to PID 1's, or -1. */
static int for_commands = -1;

static void allow_fd(int ruleset, int fd, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};

    if (fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH,
                          &rule, 0) != 0)
        report_failure(errno, "init.landlock", path);
}

/* Fails if `inode` is not 0 and differs. */
static void allow_same(int ruleset, const char *path, uint64_t inode, uint64_t access)
{
    struct stat st;
    bool is_all = bottom >= 0 && strcmp(path, "/") == 0;
    AUTO_FD fd = is_all ? openat(bottom, ".", O_PATH | O_CLOEXEC)
                        : openat(AT_FDCWD, path, O_PATH | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        access &= for_files;
    if (fd >= 0 && inode && st.st_ino != inode)
        report_failure(ESTALE, "init.landlock", path);
    allow_fd(ruleset, fd, path, access);
}

static void allow(int ruleset, const char *path, uint64_t access)
{
    allow_same(ruleset, path, 0, access);
}

/* For child.c, which reads it.  A file of the host's, except for a memfd, which needs no
 * rule and for which there cannot be one. */
static void allow_own_program(int ruleset)
{
    AUTO_FD fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {
        .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE, .parent_fd = fd};

    (void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static int make_ruleset(uint64_t fs, uint64_t scoped)
{
    int fd = landlock_create(&(struct landlock_rights){.fs = fs, .scoped = scoped});

    if (fd < 0)
        report_failure(-fd, "init.landlock", "ruleset");
    return fd;
}

static void allow_planned(const struct plan *plan, int ruleset, uint64_t all)
{
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct plan_step *step = &plan_steps(plan)[i];
        const char *path = plan_bytes(plan) + step->path;
        if (step->kind == PLAN_WRITABLE)
            allow_same(ruleset, path, step->number, all);
        else if (step->kind == PLAN_READABLE)
            allow_same(ruleset, path, step->number, reading);
    }
}

static bool is_planned(const struct plan *plan, const char *path)
{
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (strcmp(plan_bytes(plan) + plan_steps(plan)[i].path, path) == 0)
            return true;
    return false;
}

/* A ruleset in force denies every change of mounts, which PID 1 may still make here, and
 * without namespaces every path that the plan does not name. */
static bool is_restricted(const struct plan *plan)
{
    if (!plan->no_namespaces)
        return mount(NULL, "/", NULL, MS_PRIVATE, NULL) != 0 &&
               (errno == EPERM ||
                errno == EACCES); /* EACCES: denied by another LSM, which comes first */
    AUTO_FD root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return is_planned(plan, "/") || (root < 0 && errno == EACCES);
}

/* The second layer behind the mounts: read everywhere, write where the plan allows it.
 * Without namespaces it is the only layer: then read only where the plan allows it; PID 1
 * itself also reads /proc. */
static void restrict_files(const struct plan *plan)
{
    const struct landlock_rights *all = landlock_all();

    if (!all) {
        if (plan->no_namespaces)
            report_failure(EOPNOTSUPP, "init.landlock", "version");
        return;
    }
    AUTO_FD ruleset = make_ruleset(all->fs, all->scoped);
    allow(ruleset, plan->no_namespaces ? "/proc" : "/", reading);
    allow_own_program(ruleset);
    /* PID 1 opens the terminals. */
    if (plan->no_namespaces && access("/dev/pts", F_OK) == 0) {
        allow(ruleset, "/dev/pts", all->fs);
        allow(ruleset, "/dev/ptmx", all->fs);
    }
    /* For the exec cgroups; no other process inside can reach this directory. */
    if (plan->has_cgroup)
        allow_fd(ruleset, CGROUP_FD, "cgroup", all->fs);
    allow_planned(plan, ruleset, all->fs);
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        report_failure(errno, "init.landlock", "restrict");
    if (!is_restricted(plan))
        report_no_effect("init.landlock", "restrict");
    /* A command must not signal its subreaper, which may have the same uid. */
    if (plan->no_namespaces) {
        for_commands = make_ruleset(all->fs, all->scoped);
        allow_planned(plan, for_commands, all->fs);
    } else if (!plan->has_cgroup && all->scoped) {
        /* Every ruleset denies renames to another directory that no rule allows. */
        for_commands = make_ruleset(LANDLOCK_ACCESS_FS_REFER, all->scoped);
        allow(for_commands, "/", LANDLOCK_ACCESS_FS_REFER);
    }
}

int confine_ruleset(void)
{
    return for_commands;
}

/* --- System calls --- */

/* The filter returns 0 where the kernel would fail to read the limit at that address. */
static bool is_filtered(void)
{
    return prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER &&
           syscall(SYS_prlimit64, 0L, (long)RLIMIT_CORE, 1L, NULL) == 0;
}

static int listener = -1;
static uint64_t
    pass; /* the fourth argument by which seccomp(2) accepts our filter uncounted */

int confine_listener(void)
{
    return listener;
}

static void choose_pass(const struct plan *plan, struct sock_filter *code)
{
    uint32_t at = plan->filter_pass_at;

    if (at == 0 || at + 2 >= plan->filter_len)
        report_failure(EINVAL, "init.plan", "filter");
    if (syscall(SYS_getrandom, &pass, sizeof pass, 0) != sizeof pass)
        report_failure(errno, "init.seccomp", "getrandom");
    code[at].k = (uint32_t)pass;
    code[at + 2].k = (uint32_t)(pass >> 32);
}

static void filter_calls(const struct plan *plan)
{
    static LARGE struct sock_filter code[PLAN_FILTER_MAX];
    struct sock_fprog program = {.len = (unsigned short)plan->filter_len, .filter = code};

    memcpy(code, plan_filters(plan), plan->filter_len * sizeof *code);
    choose_pass(plan, code);
    /* WAIT_KILLABLE_RECV: only its death interrupts a process that waits for the reply; a
     * restarted call would be counted twice. */
    long fd =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                &program);
    if (fd >= 0)
        listener = (int)fd;
    if (fd >= 0 || (errno == EBUSY &&
                    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)) {
        if (!is_filtered())
            report_no_effect("init.seccomp", "filter");
        return;
    }
    /* ENOTSUPP, unknown to C libraries: the filters of this machine have used up
     * net.core.bpf_jit_limit. */
    bool is_full = errno == 524 /* ENOTSUPP */;
    report_failure(is_full ? ENOMEM : errno, "init.seccomp",
                   is_full ? "net.core.bpf_jit_limit" : "filter");
}

void confine_self(const struct plan *plan, int below_root)
{
    bottom = below_root;
    if (prctl(PR_SET_DUMPABLE, 0) != 0)
        report_failure(errno, "init.lock", "dumpable");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        report_failure(errno, "init.lock", "no_new_privs");
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        report_no_effect("init.lock", "no_new_privs");
    /* Before the capabilities are dropped: see is_restricted(). */
    restrict_files(plan);
    /* The one user is PID 1's own: it must not gain rights through PID 1. */
    if (plan->one_user)
        keep_capabilities(0);
    else if (!plan->no_namespaces)
        keep_capabilities(CONFINE_ROOT_CAPS | CONFINE_INIT_CAP);
    /* With RLIMIT_CORE 0 the kernel still pipes cores to the host's handler; with 1 it
     * does not, and 1 byte is too small for a core file. */
    limit(RLIMIT_CORE, "core", 1);
    limit(RLIMIT_NOFILE, "nofile", plan->max_files);
    if (plan->max_data)
        limit(RLIMIT_DATA, "data", plan->max_data);
    filter_calls(plan);
}

/* --- Unconfined sandboxes --- */

static struct rlimit files_of_commands;

void confine_nothing(const struct plan *plan)
{
    if (prlimit(0, RLIMIT_NOFILE, NULL, &files_of_commands) != 0)
        report_failure(errno, "init.limits", "nofile");
    rlim_t most = files_of_commands.rlim_max;
    const struct rlimit ours = {most < plan->max_files ? most : plan->max_files, most};
    if (prlimit(0, RLIMIT_NOFILE, &ours, NULL) != 0)
        report_failure(errno, "init.limits", "nofile");
    if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        report_failure(errno, "init.lock", "no_new_privs");
}

const struct rlimit *confine_files_limit(void)
{
    return files_of_commands.rlim_max ? &files_of_commands : NULL;
}

/* --- The suid filter --- */

enum {
    PROGRAM_MAX = 80,
    FCHMODAT2 = 452, /* newer than the kernel headers of Debian 12 */
    MAKES_FILES = O_CREAT | (O_TMPFILE & ~O_DIRECTORY)
};

static struct sock_filter program[PROGRAM_MAX];
static unsigned short program_len;

static void put(unsigned code, uint32_t value, uint8_t if_true, uint8_t if_false)
{
    program[program_len++] =
        (struct sock_filter){(uint16_t)code, if_true, if_false, value};
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

void confine_prepare_suid_filter(const struct plan *plan)
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

unsigned confine_suid_filters(void)
{
    return program_len > 0;
}

int confine_add_suid_filter(void)
{
    const struct sock_fprog filter = {.len = program_len, .filter = program};

    if (program_len == 0)
        return 0;
    long error = raw_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0,
                          (long)(uintptr_t)&filter, (long)pass, 0);
    return error < 0 ? (int)-error : 0;
}
