/* SPDX-License-Identifier: Apache-2.0 */

/* Roots that somebody hostile has made, and what is mounted into them.  tests/sandbox has
 * more of them, as images and archives. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "world.h"

/* A root with nothing in it but the probe, and a link. */
static const char *make_root(const char *link, const char *target)
{
    static const char *const directories[] = {"",     "/bin", "/dev", "/proc", "/sys",
                                              "/etc", "/tmp", "/run", "/home"};
    static int made;
    char path[4200];

    /* a test may make several */
    snprintf(path, sizeof path, "%s-%d", scratch_path("used"), made++);
    (void)!rename(scratch_path("root"), path);
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        snprintf(path, sizeof path, "%s%s", scratch_path("root"), directories[i]);
        ASSERT(mkdir(path, 0755) == 0);
    }
    put_bytes("root/bin/probe", world_probe, world_probe_len);
    ASSERT(chmod(scratch_path("root/bin/probe"), 0755) == 0);
    snprintf(path, sizeof path, "%s/%s", scratch_path("root"), link);
    (void)rmdir(path);
    if (strncmp(link, "dev/pts/", 8) == 0)
        ASSERT(mkdir(scratch_path("root/dev/pts"), 0755) == 0);
    ASSERT(symlink(target, path) == 0);
    return scratch_path("root");
}

static bool is_canary(const char *path)
{
    struct stat there, canary;

    return stat(path, &there) == 0 && fstat(world_canary_fd, &canary) == 0 &&
           there.st_ino == canary.st_ino && there.st_dev == canary.st_dev;
}

static void must_hold(cay_sandbox *sandbox, const char *name)
{
    const char *const argv[] = {"/bin/probe", name, NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .user = "0",
                                             .cwd = "/",
                                             .timeout_ms = 60000};

    cay_exec_done(&result);
    memset(&result, 0, sizeof result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    if (!result.out || (strncmp(result.out, "BLOCKED", 7) != 0 &&
                        strncmp(result.out, "VIRTUALISED", 11) != 0))
        harness_fail(__FILE__, __LINE__, "%s: %d %s %s", name, result.exec_errno,
                     result.out, result.error);
}

/* Refused, or a sandbox in which the same is hidden as in any other. */
static void try_root(const char *row, const char *link, const char *target)
{
    cay_sandbox *sandbox = NULL;

    world_begin();
    const char *root = make_root(link, target);
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = root};
    int code = world_bare_sandbox(&options, &sandbox);
    printf("# probe %s %s as root: %s %s\n", row, link, code ? "BLOCKED" : "VIRTUALISED",
           code ? cay_code_slug(code) : "started inside");
    if (!code) {
        must_hold(sandbox, "E11_devices");
        must_hold(sandbox, "E10_core_pattern");
        must_hold(sandbox, "E11_sysrq_trigger");
        must_hold(sandbox, "E11_proc_kallsyms");
        must_hold(sandbox, "E02_open_descriptors");
    }
    world_end();
}

TEST(E03_a_null_device_that_is_a_link_masks_nothing_else)
{
    try_root("E03_null", "dev/null", "/proc/sys/kernel/core_pattern");
    try_root("E03_null", "dev/null", "../../../../../../etc/hostname");
}

TEST(E04_a_console_or_terminal_that_is_a_link_leads_nowhere)
{
    try_root("E04_terminal", "dev/console", "/proc/sysrq-trigger");
    try_root("E04_terminal", "dev/pts/0", "/proc/sysrq-trigger");
    try_root("E04_terminal", "dev/ptmx", "/proc/sysrq-trigger");
}

TEST(E05_a_proc_that_is_somewhere_else_is_no_proc)
{
    try_root("E05_proc", "proc", "/tmp");
    try_root("E05_proc", "proc", "etc");
}

TEST(E06_directories_that_lead_out_of_the_root_stay_in_it)
{
    static const char *const links[] = {"dev", "proc", "sys", "etc",
                                        "tmp", "run",  "home"};
    char up[4200];

    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        world_begin(); /* for the scratch directory's name */
        snprintf(up, sizeof up, "/../../../../..%s", scratch_path("host"));
        if (i == 0) {
            char naive[4200];
            snprintf(naive, sizeof naive, "%s/%s", make_root(links[0], up), links[0]);
            ASSERT(is_canary(naive));
            printf("# control E06_link by name: ESCAPE is the host's directory\n");
        }
        world_end();
        try_root("E06_link", links[i], up);
    }
}

/* The mount of a volume whose place in another volume is a link to the host's. */
TEST(E07_a_mount_on_a_link_in_a_volume_lands_inside)
{
    cay_sandbox *sandbox = NULL;

    world_begin();
    put_file("volume/x", "x");
    put_file("other/canary", "mounted");
    ASSERT(symlink(scratch_path("host"), scratch_path("volume/a")) == 0);
    const struct cay_bind binds[] = {{scratch_path("volume"), "/v", true},
                                     {scratch_path("other"), "/v/a", true}};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = binds, .bind_count = 2};
    int code = world_bare_sandbox(&options, &sandbox);
    printf("# probe E07_volume as root: %s\n", code ? "BLOCKED" : "VIRTUALISED");
    if (!code) {
        world_run(sandbox, "root", "cat /v/a/canary");
        ASSERT(!result.out_len || strcmp(result.out, "mounted") == 0);
    }
    ASSERT(is_canary(scratch_path("volume/a")));
    printf("# control E07_volume by name: ESCAPE is the host's directory\n");
    world_end();
}
