/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "native/make/blueprint.h"

/* What programs cannot do without and everybody may read anyway.  Nothing of /home,
 * /root, /var, /run or /tmp, no process of the host's, and of /etc only what says nothing
 * about who is who and what runs where. */
static const char *const readable[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/adduser.conf",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/debian_version",
    "/etc/group",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/login.defs",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/ostype",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
};

static const char *const for_network[] = {"/etc/hosts", "/etc/host.conf", "/etc/gai.conf",
                                          "/etc/resolv.conf"};

/* /dev/tty is whatever terminal a process was given, of the sandbox's own if any. */
static const char *const devices[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty"};

static void add_all(struct blueprint *blueprint, enum plan_kind kind,
                    const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (access(paths[i], R_OK) == 0)
            blueprint_step(blueprint, kind, paths[i]);
}

void blueprint_places(struct blueprint *blueprint, bool with_network)
{
    add_all(blueprint, PLAN_READABLE, readable, sizeof readable / sizeof *readable);
    add_all(blueprint, PLAN_WRITABLE, devices, sizeof devices / sizeof *devices);
    if (with_network)
        add_all(blueprint, PLAN_READABLE, for_network,
                sizeof for_network / sizeof *for_network);
}
