/* SPDX-License-Identifier: Apache-2.0 */

/* Every check tries the operation itself, since a kernel that supports it may still
 * refuse it to this user: because of a security module, a container's seccomp profile or
 * a sysctl.  Mounts and namespaces for this are created in a separate process (probe.h)
 * and go with it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/make/probe.h"
#include "native/record/cgroup.h"
#include "native/record/idmap.h"
#include "native/record/image.h"
#include "native/record/runtime.h"
#include "relay/collect.h"
#include "sys/caps.h"
#include "sys/io.h"
#include "sys/landlock.h"
#include "sys/shift.h"

enum { DOCTOR_MAX = 48 };

/* The checks so far, and results that later checks depend on. */
struct doctor {
    struct cay_check *checks; /* DOCTOR_MAX entries */
    size_t count;
    bool is_root; /* may map any ids */
    bool lacks_something, lacks_capabilities;
    bool has_namespaces; /* user namespaces, with mounts in them */
    bool has_own_root;   /* also a new /proc: all that a root of its own needs */
    bool has_range;      /* of subordinate ids */
};

__attribute__((format(printf, 5, 6))) static void
add_check(struct doctor *doctor, enum cay_finding finding, const char *facility,
          const char *fix, const char *detail, ...)
{
    va_list values;

    if (doctor->count == DOCTOR_MAX)
        return;
    struct cay_check *check = &doctor->checks[doctor->count++];
    check->finding = finding;
    doctor->lacks_something |= finding == CAY_FINDING_MISSING;
    cay_copy_text(check->facility, sizeof check->facility, facility);
    cay_copy_text(check->fix, sizeof check->fix, finding == CAY_FINDING_OK ? "" : fix);
    va_start(values, detail);
    vsnprintf(check->detail, sizeof check->detail, detail, values);
    va_end(values);
}

static void add_result(struct doctor *doctor, const char *facility, int error,
                       enum cay_finding otherwise, const char *fix, const char *fine,
                       const char *not_fine)
{
    if (!error)
        add_check(doctor, CAY_FINDING_OK, facility, "", "%s", fine);
    else
        add_check(doctor, otherwise, facility, fix, "%s: %s", not_fine,
                  cay_errno_words(error));
}

static long read_number(const char *path)
{
    char text[32];

    return io_read_text(AT_FDCWD, path, text, sizeof text) > 0 ? strtol(text, NULL, 10)
                                                               : -1;
}

/* --- The host --- */

static void check_kernel(struct doctor *doctor)
{
    struct utsname name;
    char *end;

    if (uname(&name) != 0)
        return;
    unsigned long major = strtoul(name.release, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
    bool fine = major > 6 || (major == 6 && minor >= 1);
    add_check(doctor, fine ? CAY_FINDING_OK : CAY_FINDING_MISSING, "kernel",
              "install Linux 6.1 or newer", "Linux %.60s on %.30s%s", name.release,
              name.machine, fine ? "" : "; 6.1 is the oldest supported version");
}

static void check_calls(struct doctor *doctor)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
    AUTO_FD opened = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how);
    int error = opened < 0 ? errno : 0;

    add_result(
        doctor, "openat2", error, CAY_FINDING_MISSING,
        "allow the system call openat2, for example in the container's seccomp profile",
        "paths are resolved without races", "refused");
    AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    error = pidfd < 0 ? errno : 0;
    add_result(doctor, "pidfd", error, CAY_FINDING_MISSING,
               "allow the system call pidfd_open, for example in the container's seccomp "
               "profile",
               "processes are signalled without races", "refused");
}

static void check_memfd(struct doctor *doctor)
{
    AUTO_FD fd = memfd_create("cay-doctor", MFD_CLOEXEC | 0x0010u /* MFD_EXEC */);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("cay-doctor", MFD_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    add_result(doctor, "executable memfd", error, CAY_FINDING_MISSING,
               "sysctl -w vm.memfd_noexec=1",
               "cay-init is started from a sealed copy in memory",
               "cay-init cannot be started from memory");
}

static void check_seccomp(struct doctor *doctor)
{
    uint32_t kill = SECCOMP_RET_KILL_PROCESS, refuse = SECCOMP_RET_ERRNO;
    int error = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &kill) != 0 ||
                        syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &refuse) != 0
                    ? errno
                    : 0;

    add_result(doctor, "seccomp", error, CAY_FINDING_MISSING,
               "use a kernel with CONFIG_SECCOMP_FILTER",
               "system calls are filtered by an allow-list",
               "seccomp filters are not available");
}

static void check_landlock(struct doctor *doctor)
{
    unsigned abi = landlock_abi();

    if (!abi)
        add_check(doctor, CAY_FINDING_WEAKER, "landlock",
                  "add \"landlock\" to the kernel parameter lsm=", "not available: %s",
                  cay_errno_words(errno));
    else
        add_check(doctor, abi >= 6 ? CAY_FINDING_OK : CAY_FINDING_WEAKER, "landlock",
                  "use Linux 6.12 or newer", "ABI %u: %s", abi,
                  abi >= 6 ? "files, signals and abstract sockets"
                           : "files, but neither signals nor abstract sockets (ABI 6)");
}

struct device {
    const char *path;
    unsigned major, minor;
};

/* False if the device is wrong; that is reported. */
static bool check_device(struct doctor *doctor, const struct device *device)
{
    static const char facility[] = "devices";
    const char *path = device->path;
    char fix[96];
    struct stat st;
    bool is_there = lstat(path, &st) == 0;

    snprintf(fix, sizeof fix, "%s%s%smknod -m 666 %s c %u %u", is_there ? "rm -f " : "",
             is_there ? path : "", is_there ? " && " : "", path, device->major,
             device->minor);
    if (!is_there)
        add_check(doctor, CAY_FINDING_MISSING, facility, fix, "%s is missing", path);
    else if (stat(path, &st) != 0 || !S_ISCHR(st.st_mode) ||
             st.st_rdev != makedev(device->major, device->minor))
        add_check(doctor, CAY_FINDING_MISSING, facility, fix,
                  "%s is not the expected device", path);
    else if (access(path, R_OK | W_OK) != 0) {
        snprintf(fix, sizeof fix, "chmod 666 %s", path);
        add_check(doctor, CAY_FINDING_MISSING, facility, fix,
                  "this user cannot read and write %s", path);
    } else
        return true;
    return false;
}

static void check_devices(struct doctor *doctor)
{
    static const struct device devices[] = {{"/dev/null", 1, 3},    {"/dev/zero", 1, 5},
                                            {"/dev/full", 1, 7},    {"/dev/random", 1, 8},
                                            {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};

    /* As root the library creates the other devices. */
    size_t needed = doctor->is_root ? 1 : sizeof devices / sizeof *devices;

    for (size_t i = 0; i < needed; i++)
        if (!check_device(doctor, &devices[i]))
            return;
    add_check(doctor, CAY_FINDING_OK, "devices", "", "%s",
              doctor->is_root
                  ? "each sandbox gets its own devices"
                  : "null, zero, full, random, urandom and tty can be mounted inside");
}

/* Whether a directory, or its future parent, is in memory. */
static bool is_in_memory(const char *path)
{
    struct statfs fs;
    char parent[PATH_MAX];

    if (statfs(path, &fs) == 0)
        return fs.f_type == TMPFS_MAGIC;
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    return statfs(parent, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static void check_runtime(struct doctor *doctor)
{
    struct cay_error error = {0};
    char path[PATH_MAX], fix[256];

    if (runtime_check(path, &error) == CAY_OK && is_in_memory(path))
        add_check(doctor, CAY_FINDING_OK, "runtime directory", "", "%.200s", path);
    else if (!error.code) {
        snprintf(fix, sizeof fix, "mount -t tmpfs -o mode=0700 tmpfs %.200s", path);
        add_check(doctor, CAY_FINDING_OK, "runtime directory", geteuid() == 0 ? fix : "",
                  "%.160s, on a disk: sandboxes start more slowly", path);
    } else
        add_check(doctor, CAY_FINDING_MISSING, "runtime directory", error.hint,
                  "%.100s: %.140s", error.subject, error.message);
}

static void check_capabilities(struct doctor *doctor)
{
    static const struct {
        const char *name;
        int number;
        bool needed;
    } wanted[] = {
        {"CAP_SYS_ADMIN", CAP_SYS_ADMIN, true},
        {"CAP_SETUID", CAP_SETUID, true},
        {"CAP_SETGID", CAP_SETGID, true},
        {"CAP_CHOWN", CAP_CHOWN, true},
        {"CAP_DAC_OVERRIDE", CAP_DAC_OVERRIDE, true},
        {"CAP_KILL", CAP_KILL, true},
        {"CAP_MKNOD", CAP_MKNOD, true},
        {"CAP_SYS_PTRACE", CAP_SYS_PTRACE, true}, /* to open /proc/PID/ns/user */
        {"CAP_SYS_RESOURCE", CAP_SYS_RESOURCE, false},
    };
    char missing[160] = "";
    bool needed = false;

    if (!doctor->is_root) {
        add_check(doctor, CAY_FINDING_OK, "capabilities", "", "not needed");
        return;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!caps_has(wanted[i].number)) {
            size_t used = strlen(missing);
            snprintf(missing + used, sizeof missing - used, " %s", wanted[i].name);
            needed |= wanted[i].needed;
        }
    doctor->lacks_capabilities = needed;
    if (needed)
        add_check(doctor, CAY_FINDING_MISSING, "capabilities",
                  "start the container with --privileged, or with these capabilities",
                  "root lacks%s", missing);
    else if (*missing)
        add_check(doctor, CAY_FINDING_WEAKER, "capabilities",
                  "add it to the container's or virtual machine's capabilities",
                  "root lacks%s: open file limits inside cannot exceed the limit of this "
                  "process",
                  missing);
    else
        add_check(doctor, CAY_FINDING_OK, "capabilities", "",
                  "root has all required capabilities");
}

/* --- Limits --- */

/* How an ordinary user gets a cgroup with controllers: from systemd alone. */
static const char *fix_delegation(void)
{
    char path[128], there[256] = "";

    if (access("/run/systemd/system", F_OK) != 0)
        return "create sandboxes as root: only systemd delegates cgroups to users";
    snprintf(path, sizeof path,
             "/sys/fs/cgroup/user.slice/user-%u.slice/user@%u.service/cgroup.controllers",
             (unsigned)geteuid(), (unsigned)geteuid());
    if (io_read_text(AT_FDCWD, path, there, sizeof there) >= 0 &&
        !(strstr(there, "cpu") && strstr(there, "memory") && strstr(there, "pids")))
        return "sudo $(which cay) setup, then log in again";
    return "run the program with systemd-run --user --scope -p Delegate=yes";
}

/* How this user can get a writable cgroup2; in containers it is read-only. */
static const char *fix_for_cgroup(const struct doctor *doctor)
{
    static const char *const commands[][2] = {
        {"/sys/fs/cgroup", "mount -o remount,rw /sys/fs/cgroup"},
        {"/sys/fs/cgroup/unified", "mount -o remount,rw /sys/fs/cgroup/unified"}};
    struct statfs fs;

    if (!doctor->is_root)
        return fix_delegation();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (statfs(commands[i][0], &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC)
            return fs.f_flags & ST_RDONLY
                       ? commands[i][1]
                       : "allow this process to create cgroups below its own";
    return "mount -t cgroup2 none /sys/fs/cgroup";
}

static bool has_v1(const struct cgroup *groups)
{
    bool found = false;

    for (size_t i = 0; i < CGROUP_V1; i++)
        found |= groups->v1[i][0] != '\0';
    return found;
}

/* Disabled by a kernel parameter; the last of four columns shows it. */
static bool is_memory_off(void)
{
    char line[256];
    bool is_off = false;
    FILE *file = fopen("/proc/cgroups", "re");

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "memory\t", 7) == 0)
            is_off = strcmp(strrchr(line, '\t'), "\t0\n") == 0;
    if (file)
        fclose(file);
    return is_off;
}

static const char *fix_for_controller(const struct cgroup *groups, unsigned layer)
{
    if (!groups->unified[0] && !has_v1(groups))
        return "see \"cgroup2\"";
    if (layer == CAY_LAYER_MEMORY && is_memory_off())
        return "add cgroup_enable=memory to the kernel parameters";
    return groups->unified[0] && !has_v1(groups)
               ? "enable the controller in cgroup.subtree_control of the parent cgroups "
                 "(for a container, on its host)"
               : "mount the controller, or use a kernel that supports it";
}

static void check_limit(struct doctor *doctor, const struct cgroup *groups,
                        unsigned layer, const char *facility, const char *without)
{
    char by[64];

    if (cgroup_has_limit(groups, layer, by, sizeof by))
        add_check(doctor, CAY_FINDING_OK, facility, "", "%s", by);
    else
        add_check(doctor, CAY_FINDING_WEAKER, facility,
                  !doctor->is_root ? fix_delegation() : fix_for_controller(groups, layer),
                  "%s", without);
}

static void check_exec_cgroup(struct doctor *doctor, int leaf)
{
    const struct probe probe = {.cgroup = leaf};
    static const char without[] = "each command runs under a subreaper instead";

    if (leaf < 0) {
        add_check(doctor, CAY_FINDING_WEAKER, "clone into a cgroup",
                  fix_for_cgroup(doctor), "no cgroup; %s", without);
        return;
    }
    struct probe_result outcome = probe_run(&probe);
    add_result(doctor, "clone into a cgroup",
               outcome.step == PROBE_OK ? 0 : outcome.error, CAY_FINDING_WEAKER,
               fix_for_cgroup(doctor), "every command starts in its own cgroup", without);
}

/* Storage in memory has its own tmpfs; quotas of disks are not used, even where the file
 * system has them. */
static void check_disk(struct doctor *doctor)
{
    struct cay_error why = {0};
    bool has_image = image_check_host("doctor", "disk", &why) == CAY_OK;

    if (doctor->has_own_root && has_image)
        add_check(doctor, CAY_FINDING_OK, "disk limit", "",
                  "enforced in memory by the tmpfs size, on disk by an ext4 on a loop "
                  "device");
    else if (doctor->has_own_root)
        add_check(doctor, CAY_FINDING_WEAKER, "disk limit",
                  "use storage in memory (the default) if the limit must be enforced",
                  "enforced for storage in memory by the tmpfs size; not on disk: %s",
                  why.message);
    else
        add_check(doctor, CAY_FINDING_WEAKER, "disk limit",
                  "see \"user namespaces\" and \"/proc\"", "not enforced");
}

/* Creates a cgroup with limits as for a sandbox, checks it and removes it. */
static void check_limits(struct doctor *doctor)
{
    const struct cgroup_limits limits = {
        .memory_bytes = 64 << 20, .pids = 16, .cpu_percent = 100};
    struct cay_error error = {0};
    struct cgroup groups;
    uint32_t number = 0;
    char name[32];

    (void)!getrandom(&number, sizeof number, 0);
    snprintf(name, sizeof name, "doctor-%08x", number);
    AUTO_FD leaf = -1;
    int code = cgroup_name(name, &limits, &groups, &error);
    if (!code)
        code = cgroup_create(&groups, &leaf, &error);
    if (!code)
        code = cgroup_set_limits(&groups, &limits, &error);
    if (!code && *groups.unified)
        add_check(doctor, CAY_FINDING_OK, "cgroup2", "",
                  "each sandbox gets its own cgroup: pause works, and process trees are "
                  "killed as a whole");
    else
        add_check(doctor, CAY_FINDING_WEAKER, "cgroup2", fix_for_cgroup(doctor),
                  "cannot create a cgroup: %.150s",
                  *error.message ? error.message : "no writable cgroup");
    check_exec_cgroup(doctor, leaf);
    check_limit(doctor, &groups, CAY_LAYER_MEMORY, "memory limit", "not enforced");
    check_limit(doctor, &groups, CAY_LAYER_PIDS, "process limit",
                doctor->has_own_root ? "enforced only per user inside (RLIMIT_NPROC)"
                                     : "not enforced");
    check_limit(doctor, &groups, CAY_LAYER_CPU, "cpu limit", "not enforced");
    check_disk(doctor);
    (void)cgroup_remove(&groups);
}

/* --- Namespaces --- */

enum { MOUNTS = CLONE_NEWUSER | CLONE_NEWNS };

/* --- Operations tried in a probe process --- */

static int try_tmpfs(void)
{
    return probe_mount("tmpfs", "size=65536,mode=755");
}

static int try_proc(void)
{
    return probe_mount("proc", NULL);
}

static int try_devpts(void)
{
    return probe_mount("devpts", "newinstance,ptmxmode=0666,mode=620");
}

#define LAYERS "lowerdir=" PROBE_DIR "/l,upperdir=" PROBE_DIR "/u,workdir=" PROBE_DIR "/w"

static int mount_overlay(const char *options)
{
    if (mkdir(PROBE_DIR "/l", 0755) != 0 || mkdir(PROBE_DIR "/u", 0755) != 0 ||
        mkdir(PROBE_DIR "/w", 0755) != 0 || mkdir(PROBE_DIR "/m", 0755) != 0 ||
        mount("overlay", PROBE_DIR "/m", "overlay", MS_NOSUID, options) != 0)
        return errno;
    return 0;
}

static int try_overlay(void)
{
    int error = try_tmpfs();

    return error ? error : mount_overlay(LAYERS);
}

/* EOPNOTSUPP: the overlay could not mark removed files in its tmpfs. */
static int try_own_overlay(void)
{
    int error = try_tmpfs();

    if (!error && setxattr(PROBE_DIR, "user.cay", "", 0, 0) != 0)
        error = errno;
    return error ? error : mount_overlay(LAYERS ",userxattr");
}

static int try_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0 ? 0 : errno;
}

/* The step that try_collect() reports; others count as success. */
static enum collect_step collect_asked;

static int try_collect(void)
{
    struct collect collect;
    int sockets[COLLECT_SOCKETS];
    enum collect_step step;

    collect_build(&collect);
    int error = collect_start(&collect, sockets, &step);
    return error && step == collect_asked ? -error : 0;
}

/* Runs outside: a mount idmapped by the user namespace of the process.  It is never
 * attached, so closing it removes it. */
static int try_shifted_mount(pid_t pid)
{
    AUTO_FD users = shift_of_process(pid);
    AUTO_FD dir = open(PROBE_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD mount = users < 0 || dir < 0 ? -1 : shift_mount(dir, users, 0);

    return users < 0 ? -users : dir < 0 ? errno : mount < 0 ? -mount : 0;
}

static int result_of(uint64_t namespaces, int (*inside)(void), int (*outside)(pid_t))
{
    const struct probe probe = {
        .namespaces = namespaces, .cgroup = -1, .inside = inside, .outside = outside};
    struct probe_result outcome = probe_run(&probe);

    if (outcome.step == PROBE_OK)
        return 0;
    return outcome.error ? outcome.error : ECANCELED;
}

/* --- Results --- */

/* cay-setup(1) */
/* The PATH of sudo often has neither ~/.local/bin nor a virtual environment. */
static const char set_up[] = "sudo $(which cay) setup";
static const char profile[] = "/etc/apparmor.d/cay"; /* that it writes */

static const char see_namespaces[] = "see \"user namespaces\"";
static const char see_capabilities[] = "see \"capabilities\"";
static const char in_container[] =
    "in a container, allow clone3, unshare, mount and pivot_root: for example "
    "--security-opt seccomp=unconfined";

/* A disabled kind of namespace, as its sysctl names it; NULL if none is disabled. */
static const char *find_switch(uint64_t namespaces)
{
    static const struct {
        uint64_t flag;
        const char *name;
    } kinds[] = {{CLONE_NEWUSER, "user"},    {CLONE_NEWNS, "mnt"},  {CLONE_NEWPID, "pid"},
                 {CLONE_NEWNET, "net"},      {CLONE_NEWIPC, "ipc"}, {CLONE_NEWUTS, "uts"},
                 {CLONE_NEWCGROUP, "cgroup"}};
    char path[64];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kinds[i].name);
        if (namespaces & kinds[i].flag && read_number(path) == 0)
            return kinds[i].name;
    }
    return NULL;
}

/* True if that is the cause. */
static bool blame_switch(struct doctor *doctor, const char *facility, uint64_t namespaces)
{
    const char *kind = find_switch(namespaces);
    char fix[64];

    if (!kind)
        return false;
    snprintf(fix, sizeof fix, "sysctl -w user.max_%s_namespaces=15000", kind);
    add_check(doctor, CAY_FINDING_MISSING, facility,
              geteuid() != 0 && strcmp(kind, "user") == 0 ? set_up : fix,
              "disabled: user.max_%s_namespaces is 0", kind);
    return true;
}

/* Several settings disable user namespaces, and each needs another command to enable
 * them. */
static void explain_namespaces(struct doctor *doctor, struct probe_result outcome)
{
    static const char facility[] = "user namespaces";

    if (blame_switch(doctor, facility, MOUNTS))
        return;
    if (read_number("/proc/sys/kernel/unprivileged_userns_clone") == 0)
        add_check(doctor, CAY_FINDING_MISSING, facility, set_up,
                  "disabled for ordinary users: kernel.unprivileged_userns_clone is 0");
    else if (read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
        add_check(doctor, CAY_FINDING_MISSING, facility,
                  access(profile, F_OK) != 0
                      ? set_up
                      : "run the program with aa-exec -p cay --, or let it run cay",
                  "AppArmor denies their capabilities to programs without a profile: "
                  "kernel.apparmor_restrict_unprivileged_userns is 1");
    else if (outcome.step == PROBE_CLONE && outcome.error == ENOSPC)
        add_check(doctor, CAY_FINDING_MISSING, facility,
                  "sysctl -w user.max_user_namespaces=15000",
                  "the limit user.max_user_namespaces is reached, or they are nested too "
                  "deeply");
    else if (outcome.step == PROBE_CLONE && outcome.error == EAGAIN)
        add_check(doctor, CAY_FINDING_MISSING, facility,
                  "end some processes, or raise the limit (ulimit -u, or pids.max of "
                  "this cgroup)",
                  "not checked: cannot start another process");
    else
        add_check(
            doctor, CAY_FINDING_MISSING, facility,
            doctor->lacks_capabilities ? see_capabilities : in_container, "%s fails: %s",
            outcome.step == PROBE_CLONE ? "creating one"
            : outcome.step == PROBE_MAP ? "mapping a user id"
                                        : "mounting in one",
            outcome.error ? cay_errno_words(outcome.error) : "the process was killed");
}

static void check_namespaces(struct doctor *doctor)
{
    const struct probe probe = {.namespaces = MOUNTS, .cgroup = -1, .inside = try_tmpfs};
    struct probe_result outcome = probe_run(&probe);

    doctor->has_namespaces = outcome.step == PROBE_OK;
    if (doctor->has_namespaces)
        add_check(doctor, CAY_FINDING_OK, "user namespaces", "",
                  "can be created, with their own mounts");
    else
        explain_namespaces(doctor, outcome);
}

/* newuidmap and newgidmap are tried too: they have their own rules. */
static void check_helpers(struct doctor *doctor, const struct subids *users,
                          const struct subids *groups)
{
    static const char facility[] = "range of user ids";
    const char *programs[] = {subids_program("newuidmap"), subids_program("newgidmap")};
    struct idmap map;
    const struct probe probe = {.namespaces = CLONE_NEWUSER, .cgroup = -1, .map = &map};

    if (!programs[0] || !programs[1]) {
        add_check(doctor, CAY_FINDING_WEAKER, facility, "sudo apt-get install uidmap",
                  "/etc/subuid has one, but newuidmap and newgidmap are missing");
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        const char *obstacle = subids_obstacle(programs[i]);
        if (obstacle) {
            add_check(doctor, CAY_FINDING_WEAKER, facility,
                      "sudo apt-get install --reinstall uidmap, and start this program "
                      "without no_new_privs",
                      "newuidmap and newgidmap cannot set ids: %s", obstacle);
            return;
        }
    }
    idmap_for_range(&map, users->first, groups->first);
    doctor->has_range = probe_run(&probe).step == PROBE_OK;
    if (doctor->has_range)
        add_check(doctor, CAY_FINDING_OK, facility, "",
                  "%u+%u for users, %u+%u for groups, by newuidmap and newgidmap",
                  users->first, users->count, groups->first, groups->count);
    else if (!doctor->has_namespaces)
        add_check(doctor, CAY_FINDING_WEAKER, facility, see_namespaces,
                  "/etc/subuid has a range for this user");
    else
        add_check(doctor, CAY_FINDING_WEAKER, facility,
                  "check the lines of /etc/subuid and /etc/subgid",
                  "newuidmap or newgidmap rejects the range");
}

static void check_range(struct doctor *doctor)
{
    static const char facility[] = "range of user ids";
    struct subids users, groups;

    if (doctor->is_root) {
        add_check(doctor, CAY_FINDING_OK, facility, "",
                  "each sandbox gets 65536 ids of its own, from 0x70000000 on");
        return;
    }
    bool found = subids_own(SUBIDS_USERS, &users);
    if (subids_own(SUBIDS_GROUPS, &groups) && found && users.count >= IDMAP_COUNT &&
        groups.count >= IDMAP_COUNT) {
        check_helpers(doctor, &users, &groups);
        return;
    }
    bool has_helpers = subids_program("newuidmap") && subids_program("newgidmap");
    add_check(doctor, CAY_FINDING_WEAKER, facility,
              geteuid() == 0 ? "run cay as an ordinary user of the host"
              : has_helpers  ? set_up
                             : "sudo apt-get install uidmap && sudo $(which cay) setup",
              "/etc/subuid has %u ids for this user and /etc/subgid %u; 65536 are needed",
              users.count, groups.count);
}

/* Returns an errno, or 0. */
static int check_one(struct doctor *doctor, const char *facility, uint64_t namespaces,
                     int (*inside)(void), const char *fix, const char *fine,
                     const char *not_fine)
{
    int error = result_of(namespaces, inside, NULL);

    if (error && !doctor->has_namespaces && !find_switch(namespaces))
        add_check(doctor, CAY_FINDING_MISSING, facility, see_namespaces,
                  "needs a user namespace, which cannot be created");
    else if (error != ENOSPC || !blame_switch(doctor, facility, namespaces))
        add_result(doctor, facility, error, CAY_FINDING_MISSING,
                   doctor->has_namespaces ? fix : see_namespaces, fine, not_fine);
    return error;
}

/* Each step in a namespace of its own, to name the one that fails. */
static void check_network_rules(struct doctor *doctor)
{
    char missing[96];
    int error = 0;

    for (int step = COLLECT_STEP_ROUTES; step <= COLLECT_STEP_LOG && !error; step++) {
        collect_asked = (enum collect_step)step;
        error = result_of(CLONE_NEWUSER | CLONE_NEWNET, try_collect, NULL);
    }
    snprintf(missing, sizeof missing, "sandboxes cannot have them: no %s",
             collect_step_text(collect_asked));
    add_result(
        doctor, "network rules", error, CAY_FINDING_WEAKER,
        "use a kernel with nf_tables, or modprobe nf_tables nft_tproxy nft_reject_inet "
        "nft_log nfnetlink_log",
        "sandboxes can have a network by rules (--allow)", missing);
}

static void check_mounts(struct doctor *doctor)
{
    doctor->has_own_root =
        !check_one(doctor, "/proc", MOUNTS | CLONE_NEWPID, try_proc,
                   "its /proc is masked: start the container with --security-opt "
                   "systempaths=unconfined",
                   "a new /proc can be mounted inside", "a new /proc cannot be mounted");
    check_one(doctor, "tmpfs", MOUNTS, try_tmpfs, in_container,
              "can be mounted inside, with a size limit", "cannot be mounted inside");
    check_one(doctor, "devpts", MOUNTS, try_devpts, in_container,
              "a separate devpts can be mounted inside", "cannot be mounted inside");
    if (!check_one(doctor, "network namespaces", CLONE_NEWUSER | CLONE_NEWNET,
                   try_loopback, in_container,
                   "can be created, with the loopback interface up", "cannot be created"))
        check_network_rules(doctor);
    check_one(doctor, "other namespaces",
              CLONE_NEWUSER | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP, NULL,
              in_container, "IPC, UTS and cgroup namespaces can be created",
              "IPC, UTS or cgroup namespaces cannot be created");
}

/* An ordinary user's templates are overlays in the sandbox's own user namespace. */
static void check_own_overlay(struct doctor *doctor)
{
    static const char facility[] = "overlayfs";
    int error = doctor->has_namespaces ? result_of(MOUNTS, try_own_overlay, NULL) : 0;

    if (!doctor->has_namespaces)
        add_check(doctor, CAY_FINDING_WEAKER, facility, see_namespaces,
                  "needs a user namespace, which cannot be created");
    else if (error == EOPNOTSUPP)
        add_check(doctor, CAY_FINDING_WEAKER, facility, "use Linux 6.6 or newer",
                  "templates other than \"host\" need storage on disk: tmpfs has no user "
                  "extended attributes");
    else if (error)
        add_result(doctor, facility, error, CAY_FINDING_WEAKER, "sudo modprobe overlay",
                   "", "only the template \"host\" can be used");
    else if (!doctor->has_range)
        add_check(doctor, CAY_FINDING_WEAKER, facility, "see \"range of user ids\"",
                  "templates other than \"host\" need a range of user ids");
    else
        add_check(doctor, CAY_FINDING_OK, facility, "",
                  "templates other than \"host\" can be created and used");
}

/* Root's templates are overlays with shifted owners, mounted from outside. */
static void check_overlay(struct doctor *doctor)
{
    if (!doctor->is_root) {
        check_own_overlay(doctor);
        return;
    }
    add_result(doctor, "overlayfs", result_of(CLONE_NEWNS, try_overlay, NULL),
               CAY_FINDING_WEAKER,
               doctor->lacks_capabilities ? see_capabilities : "modprobe overlay",
               "templates other than \"host\" can be used",
               "only the template \"host\" can be used");
}

static void check_shifted_mounts(struct doctor *doctor)
{
    if (!doctor->is_root) {
        add_check(doctor, CAY_FINDING_OK, "idmapped mounts", "",
                  "not needed: \"user\" inside is the user that creates the sandbox");
        return;
    }
    add_result(doctor, "idmapped mounts",
               result_of(CLONE_NEWUSER, NULL, try_shifted_mount), CAY_FINDING_WEAKER,
               doctor->lacks_capabilities
                   ? see_capabilities
                   : "use a kernel and a file system that support them, such as ext4, "
                     "xfs, btrfs or tmpfs",
               "supported on " PROBE_DIR
               ": \"user\" inside has the rights of a bind mount's owner",
               "not supported on " PROBE_DIR);
}

/* A probe does not execute another program, as sandboxes do, so it needs a dumpable
 * process. */
static bool can_try(struct doctor *doctor)
{
    if (prctl(PR_GET_DUMPABLE) == 1)
        return true;
    add_check(
        doctor, CAY_FINDING_WEAKER, "user namespaces",
        "start the program as this user instead of changing the user in it",
        "not checked, nor anything that depends on them: this process is not dumpable");
    return false;
}

/* The overall result: a sandbox is created, inspected and killed. */
static void add_level(struct doctor *doctor)
{
    static const char facility[] = "sandboxes";
    static const struct {
        enum cay_finding finding;
        const char *detail, *fix;
    } levels[] = {
        [CAY_LEVEL_ROOT] =
            {CAY_FINDING_OK,
             "isolation level \"root\": each sandbox gets its own range of user ids", ""},
        [CAY_LEVEL_RANGE] = {CAY_FINDING_OK,
                             "isolation level \"range\": user ids from /etc/subuid; "
                             "\"user\" inside is the calling user",
                             ""},
        [CAY_LEVEL_SINGLE] = {CAY_FINDING_WEAKER,
                              "isolation level \"single\": one user id inside, so only "
                              "\"user\" can run commands",
                              "give this user a range of ids: see \"range of user ids\""},
        [CAY_LEVEL_LANDLOCK] =
            {CAY_FINDING_WEAKER,
             "isolation level \"landlock\": no namespaces; host programs, and names and "
             "modes of some host files, are visible",
             "allow all kinds of namespaces: see the other missing items"},
    };
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    struct cay_sandbox_info info = {.level = CAY_LEVEL_BEST};
    struct cay_error error = {0};
    cay_sandbox *sandbox = NULL;

    int code = cay_sandbox_create(&options, &sandbox, &error);
    if (!code)
        code = cay_sandbox_inspect(sandbox, &info, &error);
    if (code)
        add_check(doctor, CAY_FINDING_MISSING, facility,
                  doctor->lacks_something || strstr(error.hint, "cay doctor")
                      ? "see the other missing items"
                      : error.hint,
                  "cannot create a sandbox: %.80s%s%.150s", error.subject,
                  *error.subject ? ", " : "", error.message);
    else
        add_check(doctor, levels[info.level].finding, facility,
                  doctor->lacks_capabilities ? "see \"capabilities\""
                                             : levels[info.level].fix,
                  "%s", levels[info.level].detail);
    if (sandbox)
        (void)!cay_sandbox_kill(sandbox, NULL);
    cay_sandbox_free(sandbox);
}

int cay_doctor(struct cay_check **ret_checks, size_t *ret_count, struct cay_error *err)
{
    AUTO_FREE struct cay_check *checks = calloc(DOCTOR_MAX, sizeof *checks);
    struct doctor doctor = {.checks = checks, .is_root = idmap_is_root()};

    if (!checks)
        return cay_fail_memory(err, "doctor");
    check_kernel(&doctor);
    check_calls(&doctor);
    check_memfd(&doctor);
    check_seccomp(&doctor);
    check_landlock(&doctor);
    check_devices(&doctor);
    check_runtime(&doctor);
    check_capabilities(&doctor);
    if (can_try(&doctor)) {
        check_namespaces(&doctor);
        check_range(&doctor);
        check_mounts(&doctor);
        check_overlay(&doctor);
        check_shifted_mounts(&doctor);
    }
    check_limits(&doctor);
    add_level(&doctor);
    *ret_checks = TAKE_PTR(checks);
    *ret_count = doctor.count;
    return CAY_OK;
}
