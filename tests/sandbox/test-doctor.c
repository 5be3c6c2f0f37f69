/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

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

TEST(root_is_told_of_each_facility_and_its_level)
{
    need_root();
    examine();
    ASSERT_INT(check("kernel")->finding, CAY_FINDING_OK);
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_OK);
    ASSERT_HAS(check("landlock")->detail, "ABI ");
    ASSERT(strncmp(check("runtime directory")->detail, "/run/cay", 8) == 0);
    ASSERT_HAS(check("sandboxes")->detail, "isolation level \"root\"");
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
    ASSERT_HAS(check("sandboxes")->detail, "isolation level \"range\"");
    ASSERT_HAS(check("capabilities")->detail, "not needed");
    /* Before Linux 6.6 a tmpfs cannot be the upper layer. */
    if (check("overlayfs")->finding == CAY_FINDING_OK)
        ASSERT_HAS(check("overlayfs")->detail, "can be created and used");
    else
        ASSERT_STR(check("overlayfs")->fix, "use Linux 6.6 or newer");
    done();
}

TEST(a_user_with_subordinate_ids_is_on_the_level_range)
{
    as_ordinary(ordinary_user(true), expect_range);
}

static void expect_single(void)
{
    examine();
    ASSERT_INT(check("range of user ids")->finding, CAY_FINDING_WEAKER);
    ASSERT_STR(check("range of user ids")->fix, "sudo $(which cay) setup");
    if (strcmp(check("overlayfs")->fix, "use Linux 6.6 or newer") != 0)
        ASSERT_STR(check("overlayfs")->fix, "see \"range of user ids\"");
    ASSERT_HAS(check("sandboxes")->detail, "isolation level \"single\"");
    ASSERT_INT(check("sandboxes")->finding, CAY_FINDING_WEAKER);
    done();
}

TEST(a_user_without_is_on_the_level_single_and_told_the_command)
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
    ASSERT_HAS(check("sandboxes")->detail, "isolation level \"single\"");
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
    ASSERT_STR(check("range of user ids")->fix, "sudo apt-get install uidmap");
    done();
}

TEST(a_host_without_newuidmap_is_told_what_to_install)
{
    in_own_mounts("/usr/bin/newuidmap", ordinary_user(true), expect_no_newuidmap);
}

/* The last level, or none where its floor is not met. */
static void expect_the_last_level(void)
{
    ASSERT_INT(check("sandboxes")->finding,
               has_landlock() ? CAY_FINDING_WEAKER : CAY_FINDING_MISSING);
    ASSERT_HAS(check("sandboxes")->detail, has_landlock() ? "isolation level \"landlock\""
                                                          : "cannot create a sandbox");
}

static void expect_no_proc(void)
{
    examine();
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_OK);
    ASSERT_INT(check("/proc")->finding, CAY_FINDING_MISSING);
    ASSERT_HAS(check("/proc")->fix, "systempaths=unconfined");
    expect_the_last_level();
    done();
}

TEST(a_masked_proc_as_in_containers_is_found_out)
{
    in_own_mounts("/proc/cmdline", ordinary_user(false), expect_no_proc);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    ASSERT(file);
    ASSERT(fputs(text, file) >= 0);
    ASSERT(fclose(file) == 0);
}

/* What is refused is refused for the level that there is. */
static void expect_landlock(const char *subject, struct cay_sandbox_options wish)
{
    cay_sandbox *sandbox = NULL;

    wish.size = sizeof wish;
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, subject);
    ASSERT_HAS(err.message, "isolation level \"landlock\"");
    ASSERT(!strstr(err.hint, "subuid"));
}

/* A user namespace in which no others of a kind can be made: what a hardened host is
 * like. */
static void switch_off(const char *kind)
{
    char path[64];

    ASSERT(unshare(CLONE_NEWUSER) == 0);
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", "0 4242 1");
    write_text("/proc/self/gid_map", "0 4242 1");
    snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kind);
    write_text(path, "0");
}

static void expect_no_namespaces(void)
{
    switch_off("user");
    examine();
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_MISSING);
    ASSERT_HAS(check("user namespaces")->fix, "sysctl -w user.max_user_namespaces=");
    for (size_t i = 0; i < check_count; i++) /* findings, section 4 */
        ASSERT(!strstr(checks[i].detail, "No space left"));
    expect_the_last_level();
    ASSERT_STR(check("disk limit")->detail, "not enforced");
    ASSERT_STR(check("process limit")->detail, "not enforced");
    done();
    if (!has_landlock())
        return;
    expect_landlock("user", (struct cay_sandbox_options){.user = "root"});
    expect_landlock("storage", (struct cay_sandbox_options){.storage = CAY_STORAGE_DISK});
    expect_landlock("template", (struct cay_sandbox_options){.template_name = "/"});
}

static void as_nobody(void (*act)(void))
{
    const struct ordinary nobody = {.name = "4242", .uid = 4242, .gid = 4242};

    static const char runtime[] =
        "/tmp/cay-0"; /* of who is root there, and nobody here */
    struct stat st;

    need_root();
    as_ordinary(&nobody, act);
    if (lstat(runtime, &st) == 0 && st.st_uid == nobody.uid)
        ASSERT(rmdir(runtime) == 0);
}

static void expect_network_rules(void)
{
    examine();
    ASSERT_INT(check("network rules")->finding, CAY_FINDING_OK);
    ASSERT_HAS(check("network rules")->detail, "--allow");
    done();
}

TEST(network_rules_are_tried_in_a_namespace)
{
    expect_network_rules();
    as_nobody(expect_network_rules);
}

TEST(user_namespaces_switched_off_name_the_switch)
{
    as_nobody(expect_no_namespaces);
}

static const struct {
    const char *kind, *facility;
} switches[] = {{"mnt", "user namespaces"},    {"pid", "/proc"},
                {"net", "network namespaces"}, {"ipc", "other namespaces"},
                {"uts", "other namespaces"},   {"cgroup", "other namespaces"}};
static size_t now;

static void expect_switch(void)
{
    char fix[64];

    switch_off(switches[now].kind);
    examine();
    snprintf(fix, sizeof fix, "sysctl -w user.max_%s_namespaces=15000",
             switches[now].kind);
    ASSERT_INT(check(switches[now].facility)->finding, CAY_FINDING_MISSING);
    ASSERT_STR(check(switches[now].facility)->fix, fix);
    /* And nothing else is to be changed. */
    for (size_t i = 0; i < check_count; i++)
        if (checks[i].finding == CAY_FINDING_MISSING)
            ASSERT(strcmp(checks[i].fix, fix) == 0 ||
                   strncmp(checks[i].fix, "see ", 4) == 0);
    ASSERT_HAS(check("sandboxes")->fix, "see the other missing items");
    done();
}

TEST(other_namespaces_switched_off_name_their_own_switch)
{
    need_landlock();
    for (now = 0; now < sizeof switches / sizeof *switches; now++)
        as_nobody(expect_switch);
}

static void expect_no_more_processes(void)
{
    const struct rlimit none = {0, 0};

    ASSERT(setrlimit(RLIMIT_NPROC, &none) == 0);
    examine();
    ASSERT_HAS(check("user namespaces")->fix, "ulimit -u");
    for (size_t i = 0; i < check_count; i++)
        ASSERT(!strstr(checks[i].fix, "container"));
    done();
}

TEST(a_limit_on_processes_is_told_as_such)
{
    as_ordinary(ordinary_user(true), expect_no_more_processes);
}

static void expect_wrong_device(void)
{
    examine();
    ASSERT_HAS(check("devices")->detail, "/dev/full is not the expected device");
    ASSERT_STR(check("devices")->fix, "rm -f /dev/full && mknod -m 666 /dev/full c 1 7");
    done();
}

static void expect_wrong_tty(void)
{
    examine();
    ASSERT_STR(check("devices")->fix, "rm -f /dev/tty && mknod -m 666 /dev/tty c 5 0");
    ASSERT_STR(check("sandboxes")->fix, "see the other missing items");
    done();
}

TEST(a_device_that_is_none_can_be_made_anew)
{
    in_own_mounts("/dev/full", ordinary_user(true), expect_wrong_device);
    in_own_mounts("/dev/tty", ordinary_user(true), expect_wrong_tty);
}

static void expect_less_of_root(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    ASSERT(syscall(SYS_capget, &header, data) == 0);
    data[0].permitted &= ~(1u << CAP_SYS_ADMIN);
    data[0].effective = data[0].permitted;
    ASSERT(syscall(SYS_capset, &header, data) == 0);
    examine();
    ASSERT_HAS(check("capabilities")->detail, "CAP_SYS_ADMIN");
    ASSERT_STR(check("overlayfs")->fix, "see \"capabilities\"");
    ASSERT_STR(check("idmapped mounts")->fix, "see \"capabilities\"");
    if (has_landlock()) {
        ASSERT_STR(check("sandboxes")->fix, "see \"capabilities\"");
        ASSERT_HAS(check("sandboxes")->detail, "isolation level \"landlock\"");
        for (int i = 0; i < 10; i++) /* not only if PID 1 is faster than we are */
            expect_landlock("user", (struct cay_sandbox_options){.user = "root"});
    }
    done();
}

TEST(what_root_lacks_capabilities_for_is_not_blamed_on_the_kernel)
{
    need_root();
    in_own_process(expect_less_of_root);
}

static void expect_read_only_groups(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    struct statfs fs;
    char fix[64];

    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    for (size_t i = 0; i < 2; i++) {
        if (statfs(places[i], &fs) != 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
            continue;
        snprintf(fix, sizeof fix, "mount -o remount,rw %s", places[i]);
        ASSERT(mount(NULL, places[i], NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
        examine();
        ASSERT_STR(check("cgroup2")->fix, fix);
        done();
        return;
    }
}

TEST(a_read_only_cgroup2_as_in_containers_is_made_writable)
{
    need_root();
    in_own_process(expect_read_only_groups);
}

static void expect_missing_controller(void)
{
    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    while (umount2("/sys/fs/cgroup", MNT_DETACH) == 0)
        continue;
    ASSERT(mount("none", "/sys/fs/cgroup", "cgroup2", 0, NULL) == 0);
    examine();
    /* Where the kernel has it in cgroup2, it is there. */
    const char *fix = check("memory limit")->fix;
    ASSERT(!*fix || strstr(fix, "cgroup.subtree_control"));
    done();
}

TEST(a_controller_that_cgroup2_was_not_given_is_not_blamed_on_the_kernel)
{
    need_root();
    in_own_process(expect_missing_controller);
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
    ASSERT_STR(check("range of user ids")->fix, "see \"user namespaces\"");
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

/* Sysctls that forbid namespaces to ordinary users only, as other kernels have them. */
static const char *sysctl_file, *sysctl_value;

static void expect_setup(void)
{
    examine();
    ASSERT_INT(check("user namespaces")->finding, CAY_FINDING_MISSING);
    ASSERT_HAS(check("user namespaces")->detail, sysctl_file);
    ASSERT_STR(check("user namespaces")->fix, "sudo $(which cay) setup");
    done();
}

static void with_sysctl(void)
{
    char path[128];

    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount("none", "/proc/sys/kernel", "tmpfs", 0, NULL) == 0);
    snprintf(path, sizeof path, "/proc/sys/kernel/%s", sysctl_file);
    write_text(path, sysctl_value);
    forbid(SYS_clone3, EPERM);
    as_ordinary(ordinary_user(false), expect_setup);
}

TEST(sysctls_that_forbid_namespaces_to_users_lead_to_setup)
{
    need_root();
    (void)ordinary_user(false);
    sysctl_file = "unprivileged_userns_clone";
    sysctl_value = "0";
    in_own_process(with_sysctl);
    sysctl_file = "apparmor_restrict_unprivileged_userns";
    sysctl_value = "1";
    in_own_process(with_sysctl);
}

static void fail_to_execute(void)
{
    const struct cay_sandbox_options best = {.size = sizeof best, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    forbid(SYS_execveat, EACCES);
    ASSERT_CODE(cay_sandbox_create(&best, &sandbox, &err), CAY_E_UNAVAILABLE);
    ASSERT_INT(err.sys_errno, EACCES);
    ASSERT_HAS(err.message, "cannot execute PID 1");
    ASSERT_INT(count_names(runtime_path(), "sb-"), 0);
}

/* At once, and not because nothing was heard of it. */
TEST(that_pid_1_cannot_be_executed_is_told)
{
    as_ordinary(ordinary_user(false), fail_to_execute);
}
