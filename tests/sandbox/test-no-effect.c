/* SPDX-License-Identifier: Apache-2.0 */

/* Finding S9: a kernel, or an outer sandbox, that answers 0 to a call and does not act.
 * A filter around the library plays that part.  PID 1 looks afterwards, and a sandbox
 * without a layer that it claims is not created. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "ladder.h"

/* Of prctl(2) the first argument, of other calls `anything`. */
static struct lie {
    unsigned call, argument;
    const char *op;
} lie;

enum { anything = ~0u };

static void answer_nothing(void)
{
    const uint32_t first = offsetof(struct seccomp_data, args);
    bool any = lie.argument == anything;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, lie.call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, first),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, lie.argument, 0, any ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = 6, .filter = code};

    if (geteuid() != 0)
        ASSERT_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_INT(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
}

static void create_there(void)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .level = level_here, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    answer_nothing();
    if (!lie.op) {
        ASSERT_OK(cay_sandbox_create(&options, &sandbox, &err));
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        cay_sandbox_free(sandbox);
        return;
    }
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_UNAVAILABLE);
    ASSERT_STR(err.op, lie.op);
    ASSERT_HAS(err.message, "no effect");
}

/* Finding A2: setfsuid(2) reports no failure at all. */
static void do_not_create_as_root(void)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .template_name = "base", .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    answer_nothing();
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_DENIED);
    ASSERT_STR(err.op, lie.op);
}

static void as_root(void (*act)(void))
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        level_here = CAY_LEVEL_BEST;
        act();
        fflush(stdout);
        _exit(0);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
}

TEST(S9_a_sandbox_is_not_created_if_seccomp_has_no_effect)
{
    need_root();
    lie = (struct lie){SYS_seccomp, anything, "init.seccomp"};
    as_root(create_there);
    on_level(CAY_LEVEL_SINGLE, create_there);
    on_level(CAY_LEVEL_LANDLOCK, create_there);
}

TEST(S9_a_sandbox_is_not_created_if_landlock_has_no_effect)
{
    need_root();
    need_landlock();
    lie = (struct lie){SYS_landlock_restrict_self, anything, "init.landlock"};
    as_root(create_there);
    on_level(CAY_LEVEL_SINGLE, create_there);
    on_level(CAY_LEVEL_LANDLOCK, create_there);
}

TEST(S9_a_sandbox_is_not_created_if_no_new_privs_has_no_effect)
{
    need_root();
    lie = (struct lie){SYS_prctl, PR_SET_NO_NEW_PRIVS, "init.lock"};
    as_root(create_there);
}

/* With the lower overlay of /usr mounted as root, root inside would read what only root
 * of the host may. */
TEST(A2_a_sandbox_is_not_created_if_usr_cannot_be_shown_as_everybody_sees_it)
{
    need_root();
    lie = (struct lie){SYS_setfsuid, (unsigned)-2, "sandbox.mounts"};
    as_root(do_not_create_as_root);
    lie = (struct lie){SYS_setfsgid, (unsigned)-2, "sandbox.mounts"};
    as_root(do_not_create_as_root);
}

TEST(A2_a_sandbox_is_not_created_if_its_files_would_be_those_of_root)
{
    need_root();
    lie = (struct lie){SYS_setfsuid, anything, "sandbox.mounts"};
    as_root(do_not_create_as_root);
}

/* The control: that filter alone is no obstacle. */
TEST(S9_a_sandbox_is_created_below_a_filter_that_lies_about_nothing_of_it)
{
    need_root();
    lie = (struct lie){SYS_acct, anything, NULL};
    as_root(create_there);
    on_level(CAY_LEVEL_SINGLE, create_there);
    on_level(CAY_LEVEL_LANDLOCK, create_there);
}
