/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "ledger.h"
#include "ordinary.h"

static struct cay_check *checks;
static size_t check_count;

static void examine(void)
{
    ASSERT_OK(cay_doctor(&checks, &check_count, &err));
    ASSERT(check_count > 15);
    for (size_t i = 0; i < check_count; i++) {
        ASSERT(checks[i].facility[0] && checks[i].detail[0]);
        ASSERT_INT(checks[i].fix[0] != '\0', checks[i].finding != CAY_FINDING_OK);
    }
}

static const struct cay_check *check(const char *facility)
{
    for (size_t i = 0; i < check_count; i++)
        if (strcmp(checks[i].facility, facility) == 0)
            return &checks[i];
    harness_fail(__FILE__, __LINE__, "the doctor says nothing of \"%s\"", facility);
}

static void done(void)
{
    cay_free(checks);
    checks = NULL;
}

/* Mount points of this process, which a check must not change. */
static size_t count_mounts(void)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    size_t count = 0;

    ASSERT(file);
    for (int c; (c = fgetc(file)) != EOF;)
        count += c == '\n';
    fclose(file);
    return count;
}

TEST(root_is_told_of_each_facility_and_its_rung)
{
    need_root();
    examine();
    ASSERT_INT(check("kernel")->finding, CAY_FINDING_OK);
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_OK);
    ASSERT_HAS(check("landlock")->detail, "ABI ");
    ASSERT(strncmp(check("runtime directory")->detail, "/run/cay", 8) == 0);
    ASSERT_HAS(check("sandboxes")->detail, "rung \"root\"");
    done();
}

TEST(the_doctor_leaves_nothing)
{
    size_t mounts = count_mounts();

    examine();
    ASSERT_INT(count_mounts(), mounts);
    ASSERT_INT(count_groups("cay-doctor"), 0);
    done();
}

static void expect_range(void)
{
    examine();
    ASSERT_INT(check("range of user ids")->finding, CAY_FINDING_OK);
    ASSERT_HAS(check("sandboxes")->detail, "rung \"range\"");
    ASSERT_HAS(check("capabilities")->detail, "none are needed");
    done();
}

TEST(a_user_with_subordinate_ids_is_on_the_rung_range)
{
    as_ordinary(ordinary_user(true), expect_range);
}

static void expect_single(void)
{
    examine();
    ASSERT_INT(check("range of user ids")->finding, CAY_FINDING_WEAKER);
    ASSERT_HAS(check("range of user ids")->fix, "usermod --add-subuids ");
    ASSERT(!strchr(check("range of user ids")->fix, ',')); /* it is typed as it is */
    ASSERT_HAS(check("sandboxes")->detail, "rung \"single\"");
    ASSERT_INT(check("sandboxes")->finding, CAY_FINDING_WEAKER);
    done();
}

TEST(a_user_without_is_on_the_rung_single_and_told_the_command)
{
    as_ordinary(ordinary_user(false), expect_single);
}

static void expect_no_new_privs(void)
{
    ASSERT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    examine();
    ASSERT_INT(check("range of user ids")->finding, CAY_FINDING_WEAKER);
    ASSERT_HAS(check("range of user ids")->detail, "no_new_privs");
    done();
}

TEST(newuidmap_is_no_use_to_a_process_without_new_privileges)
{
    as_ordinary(ordinary_user(true), expect_no_new_privs);
}

static void expect_not_dumpable(void)
{
    ASSERT(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    examine();
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_WEAKER);
    ASSERT_HAS(check("user namespaces")->detail, "not dumpable");
    ASSERT_HAS(check("sandboxes")->detail, "rung \"single\"");
    done();
}

TEST(a_process_that_has_changed_its_user_can_still_make_sandboxes)
{
    as_ordinary(ordinary_user(false), expect_not_dumpable);
}

static void expect_no_newuidmap(void)
{
    examine();
    ASSERT_INT(check("range of user ids")->finding, CAY_FINDING_WEAKER);
    ASSERT_STR(check("range of user ids")->fix, "apt-get install uidmap");
    done();
}

TEST(a_host_without_newuidmap_is_told_what_to_install)
{
    in_own_mounts("/usr/bin/newuidmap", ordinary_user(true), expect_no_newuidmap);
}

static void expect_no_proc(void)
{
    examine();
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_OK);
    ASSERT_INT(check("/proc")->finding, CAY_FINDING_MISSING);
    ASSERT_HAS(check("/proc")->fix, "systempaths=unconfined");
    ASSERT_HAS(check("sandboxes")->detail, "rung \"landlock\"");
    done();
}

TEST(a_masked_proc_as_in_containers_is_found_out)
{
    need_landlock();
    in_own_mounts("/proc/cmdline", ordinary_user(false), expect_no_proc);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    ASSERT(file);
    ASSERT(fputs(text, file) >= 0);
    ASSERT(fclose(file) == 0);
}

/* What is refused is refused for the rung that there is. */
static void expect_landlock(const char *subject, struct cay_sandbox_options wish)
{
    cay_sandbox *sandbox = NULL;

    wish.size = sizeof wish;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, subject);
    ASSERT_HAS(err.message, "rung \"landlock\"");
    ASSERT(!strstr(err.hint, "subuid"));
}

/* A user namespace in which no other can be made: what a hardened host is like. */
static void expect_no_namespaces(void)
{
    ASSERT(unshare(CLONE_NEWUSER) == 0);
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", "0 4242 1");
    write_text("/proc/self/gid_map", "0 4242 1");
    write_text("/proc/sys/user/max_user_namespaces", "0");
    examine();
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_MISSING);
    ASSERT_HAS(check("user namespaces")->fix, "sysctl -w user.max_user_namespaces=");
    ASSERT_HAS(check("sandboxes")->detail, "rung \"landlock\"");
    ASSERT_INT(check("sandboxes")->finding, CAY_FINDING_WEAKER);
    ASSERT_STR(check("disk limit")->detail, "not kept");
    ASSERT_STR(check("process limit")->detail, "not kept");
    done();
    expect_landlock("user", (struct cay_sandbox_options){.user = "root"});
    expect_landlock("storage", (struct cay_sandbox_options){.storage = CAY_STORAGE_DISK});
    expect_landlock("template", (struct cay_sandbox_options){.template_name = "/"});
}

TEST(user_namespaces_switched_off_name_the_switch)
{
    const struct ordinary nobody = {.name = "4242", .uid = 4242, .gid = 4242};

    static const char runtime[] =
        "/tmp/cay-0"; /* of who is root there, and nobody here */
    struct stat st;

    need_root();
    need_landlock();
    as_ordinary(&nobody, expect_no_namespaces);
    if (lstat(runtime, &st) == 0 && st.st_uid == nobody.uid)
        ASSERT(rmdir(runtime) == 0);
}

/* As a program's own filter, or a container's, may do. */
static void forbid(unsigned call, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    if (geteuid() != 0)
        ASSERT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    ASSERT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void expect_no_clone(void)
{
    examine();
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_MISSING);
    ASSERT_STR(check("range of user ids")->fix, "allow user namespaces first");
    ASSERT_INT(check("sandboxes")->finding, CAY_FINDING_MISSING);
    for (size_t i = 0; i < check_count; i++)
        ASSERT(!strstr(checks[i].fix, "cay doctor"));
    done();
}

TEST(what_only_lacks_user_namespaces_is_not_blamed_on_anything_else)
{
    const struct ordinary *user = ordinary_user(true);
    int status;

    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        forbid(SYS_clone3, EPERM);
        as_ordinary(user, expect_no_clone);
        _exit(0);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
}

static void fail_to_execute(void)
{
    const struct cay_sandbox_options best = {.size = sizeof best, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    forbid(SYS_execveat, EACCES);
    ASSERT_CODE(cay_sandbox_create(&best, &sandbox, &err), CAY_E_UNAVAILABLE);
    ASSERT_INT(err.sys_errno, EACCES);
    ASSERT_HAS(err.message, "cannot be executed");
    ASSERT_INT(count_names(runtime_path(), "sb-"), 0);
}

/* At once, and not because nothing was heard of it. */
TEST(that_pid_1_cannot_be_executed_is_told)
{
    as_ordinary(ordinary_user(false), fail_to_execute);
}
