/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/doctor/doctor.h"
#include "native/record/runtime.h"
#include "sys/landlock.h"

static void check_kernel(struct doctor *doctor)
{
    struct utsname name;
    char *end;

    if (uname(&name) != 0)
        return;
    unsigned long major = strtoul(name.release, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
    bool fine = major > 6 || (major == 6 && minor >= 1);
    doctor_say(doctor, fine ? CAY_FINDING_OK : CAY_FINDING_MISSING, "kernel",
               "install a kernel of version 6.1 or newer", "Linux %.60s on %.30s%s",
               name.release, name.machine,
               fine ? "" : "; 6.1 is the oldest that is known to work");
}

static void check_calls(struct doctor *doctor)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
    AUTO_FD opened = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how);
    int error = opened < 0 ? errno : 0;

    doctor_tell(doctor, "openat2", error, CAY_FINDING_MISSING,
                "allow the call openat2, in a container's filter for example",
                "files are opened without races", "refused");
    AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    error = pidfd < 0 ? errno : 0;
    doctor_tell(doctor, "pidfd", error, CAY_FINDING_MISSING,
                "allow the call pidfd_open, in a container's filter for example",
                "processes are signalled without races", "refused");
}

static void check_memfd(struct doctor *doctor)
{
    AUTO_FD fd = memfd_create("cay-doctor", MFD_CLOEXEC | 0x0010u /* MFD_EXEC */);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("cay-doctor", MFD_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    doctor_tell(doctor, "executable memfd", error, CAY_FINDING_MISSING,
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

    doctor_tell(doctor, "seccomp", error, CAY_FINDING_MISSING,
                "use a kernel with CONFIG_SECCOMP_FILTER",
                "system calls are filtered by an allow-list", "filters cannot be used");
}

static void check_landlock(struct doctor *doctor)
{
    unsigned abi = landlock_abi();

    if (!abi)
        doctor_say(doctor, CAY_FINDING_WEAKER, "landlock",
                   "add \"landlock\" to the kernel's parameter lsm=", "not to be had: %s",
                   cay_errno_words(errno));
    else
        doctor_say(doctor, abi >= 6 ? CAY_FINDING_OK : CAY_FINDING_WEAKER, "landlock",
                   "use Linux 6.12 or newer", "ABI %u: %s", abi,
                   abi >= 6 ? "files, signals and abstract sockets"
                            : "files, but neither signals nor abstract sockets (ABI 6)");
}

struct device {
    const char *path;
    unsigned major, minor;
};

/* False if something is wrong with it, and that was told. */
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
        doctor_say(doctor, CAY_FINDING_MISSING, facility, fix, "%s is not there", path);
    else if (stat(path, &st) != 0 || !S_ISCHR(st.st_mode) ||
             st.st_rdev != makedev(device->major, device->minor))
        doctor_say(doctor, CAY_FINDING_MISSING, facility, fix,
                   "%s is not the device it should be", path);
    else if (access(path, R_OK | W_OK) != 0) {
        snprintf(fix, sizeof fix, "chmod 666 %s", path);
        doctor_say(doctor, CAY_FINDING_MISSING, facility, fix,
                   "%s cannot be read and written to by this user", path);
    } else
        return true;
    return false;
}

static void check_devices(struct doctor *doctor)
{
    static const struct device devices[] = {{"/dev/null", 1, 3},    {"/dev/zero", 1, 5},
                                            {"/dev/full", 1, 7},    {"/dev/random", 1, 8},
                                            {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};

    /* Root makes those inside itself. */
    size_t needed = doctor->is_root ? 1 : sizeof devices / sizeof *devices;

    for (size_t i = 0; i < needed; i++)
        if (!check_device(doctor, &devices[i]))
            return;
    doctor_say(doctor, CAY_FINDING_OK, "devices", "", "%s",
               doctor->is_root ? "each sandbox gets its own"
                               : "null, zero, full, random, urandom and tty are there to "
                                 "be shown inside");
}

/* Whether a directory, or where it will be made, is in memory. */
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
        doctor_say(doctor, CAY_FINDING_OK, "runtime directory", "", "%.200s", path);
    else if (!error.code) {
        snprintf(fix, sizeof fix, "mount -t tmpfs -o mode=0700 tmpfs %.200s", path);
        doctor_say(doctor, CAY_FINDING_OK, "runtime directory", geteuid() == 0 ? fix : "",
                   "%.160s, on a disk: sandboxes start a little later", path);
    } else
        doctor_say(doctor, CAY_FINDING_MISSING, "runtime directory", error.hint,
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
        {"CAP_SYS_RESOURCE", CAP_SYS_RESOURCE, false},
    };
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    char missing[160] = "";
    bool needed = false;

    if (!doctor->is_root) {
        doctor_say(doctor, CAY_FINDING_OK, "capabilities", "", "none are needed");
        return;
    }
    (void)syscall(SYS_capget, &header, data);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!(data[wanted[i].number / 32].effective & 1u << wanted[i].number % 32)) {
            size_t used = strlen(missing);
            snprintf(missing + used, sizeof missing - used, " %s", wanted[i].name);
            needed |= wanted[i].needed;
        }
    doctor->lacks_capabilities = needed;
    if (needed)
        doctor_say(
            doctor, CAY_FINDING_MISSING, "capabilities",
            "start the container with --privileged, or with the capabilities named",
            "root lacks%s", missing);
    else if (*missing)
        doctor_say(doctor, CAY_FINDING_WEAKER, "capabilities",
                   "add it where the container or virtual machine is set up",
                   "root lacks%s: limits on open files stay below this process's own",
                   missing);
    else
        doctor_say(doctor, CAY_FINDING_OK, "capabilities", "", "root has all it needs");
}

void doctor_host(struct doctor *doctor)
{
    check_kernel(doctor);
    check_calls(doctor);
    check_memfd(doctor);
    check_seccomp(doctor);
    check_landlock(doctor);
    check_devices(doctor);
    check_runtime(doctor);
    check_capabilities(doctor);
}
