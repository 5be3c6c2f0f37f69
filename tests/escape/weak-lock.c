/* SPDX-License-Identifier: Apache-2.0 */
#include "weak-lock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "layer.h"
#include "own-filter.h"
#include "weak-root.h"

static bool is_kept(int capability)
{
    static const int kept[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,
                               CAP_FSETID, CAP_KILL,         CAP_SETGID,
                               CAP_SETUID, CAP_AUDIT_WRITE,  CAP_NET_BIND_SERVICE};

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i] == capability)
            return true;
    return false;
}

static void drop_capabilities(void)
{
    for (int i = 0; prctl(PR_CAPBSET_READ, i) >= 0; i++)
        if (!is_kept(i))
            weak_need(prctl(PR_CAPBSET_DROP, i) == 0, "capabilities");
}

static void set_limits(void)
{
    const struct rlimit none = {1, 1};

    weak_need(setrlimit(RLIMIT_CORE, &none) == 0, "limits");
}

/* --- Landlock: what lies below the root, and no mounts --- */

int weak_landlock_abi(void)
{
    return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1u);
}

static void allow(int ruleset, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {
        .allowed_access = access, .parent_fd = open(path, O_PATH | O_CLOEXEC)};

    if (rule.parent_fd < 0)
        return;
    weak_need(syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule,
                      0) == 0,
              "landlock rule");
    close(rule.parent_fd);
}

static void restrict_files(unsigned layers)
{
    const uint64_t all = weak_landlock_abi() < 2 ? (1u << 13) - 1 : (1u << 14) - 1;
    int abi = weak_landlock_abi();
    struct {
        uint64_t fs, net, scoped;
    } rules = {.fs = layers & LANDLOCK ? all : 0, .scoped = layers & SCOPES ? 3 : 0};

    if (abi < 6)
        rules.scoped = 0;
    if (abi < 1 || !(rules.fs | rules.scoped))
        return;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, abi < 6 ? 8 : 24, 0);
    weak_need(ruleset >= 0, "landlock");
    if (rules.fs)
        allow(ruleset, "/", all);
    weak_need(syscall(SYS_landlock_restrict_self, ruleset, 0) == 0, "landlock");
    close(ruleset);
}

/* --- The filter --- */

static void install(struct sock_filter *code, size_t len)
{
    struct sock_fprog program = {.len = (unsigned short)len, .filter = code};

    weak_need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "filter");
}

/* What a filter must not be: it denies by comparing all 64 bits of an argument. */
static void install_naive(void)
{
    static const struct {
        unsigned number, argument;
        uint32_t value, error;
    } denied[] = {
        {SYS_socket, 0, 40, EAFNOSUPPORT},
        {SYS_ioctl, 1, TIOCSTI, EPERM},
        {SYS_unshare, 0, CLONE_NEWUSER, EPERM},
        {SYS_personality, 0, 0x0400000, EPERM},
        {SYS_fcntl, 1, F_SETLEASE, EPERM},
        {SYS_clone, 0, CLONE_NEWUSER | SIGCHLD, EPERM},
    };
    struct sock_filter code[64];
    size_t len = 0;

    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        uint32_t low = (uint32_t)offsetof(struct seccomp_data, args) +
                       denied[i].argument * (uint32_t)sizeof(uint64_t);
        const struct sock_filter piece[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i].number, 0, 5),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i].value, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low + 4),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | denied[i].error),
        };
        memcpy(code + len, piece, sizeof piece);
        len += sizeof piece / sizeof *piece;
    }
    code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    install(code, len);
}

static void filter_calls(unsigned layers)
{
    struct sock_filter *code;

    if (!(layers & SECCOMP))
        return;
    if (!(layers & BITS32)) {
        install_naive();
        return;
    }
    size_t len = own_filter(&code);
    weak_need(len > 0, "own_filter");
    install(code, len);
}

void weak_lock(const struct weak *weak)
{
    unsigned layers = weak->layers;

    if (layers & CAPS)
        drop_capabilities();
    if (layers & RLIMITS)
        set_limits();
    if (layers & NNP)
        weak_need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    restrict_files(layers);
    filter_calls(layers);
    /* Becoming root made us undumpable already. */
    weak_need(prctl(PR_SET_DUMPABLE, layers & UNDUMP ? 0 : 1) == 0, "dumpable");
}
