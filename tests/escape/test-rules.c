/* SPDX-License-Identifier: Apache-2.0 */

/* The ten rules that security depends on, in order: one test each, that would fail if the
 * rule were broken.  Most are proved in more detail, and with controls, by the rows of
 * rows.h that the comments name. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host-ledger.h"
#include "own-filter.h"
#include "probe.h"
#include "world.h"

static const char *const both[] = {"user", "root"};

/* On levels with one user id there is only user. */
static size_t users(void)
{
    return world_level() < CAY_LEVEL_SINGLE ? 2 : 1;
}

static void must_block(cay_sandbox *sandbox, const char *name)
{
    for (size_t i = 0; i < users(); i++) {
        world_probe_as(sandbox, both[i], name);
        if (strncmp(result.out, "BLOCKED ", 8) != 0 &&
            strncmp(result.out, "VIRTUALISED ", 12) != 0)
            harness_fail(__FILE__, __LINE__, "%s as %s: %s", name, both[i], result.out);
    }
}

static char *read_host(pid_t pid, const char *name)
{
    static char text[8192];
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ASSERT(fd >= 0);
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    ASSERT(len >= 0);
    text[len] = '\0';
    return text;
}

/* Rows: E10, write_usr, host_signal. */
TEST(rule_1_no_user_of_the_host_is_mapped)
{
    static const char *const maps[] = {"uid_map", "gid_map"};

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    pid_t init = world_init(sandbox);
    ASSERT(init > 1);
    if (world_level() == CAY_LEVEL_LANDLOCK) /* nothing is mapped, and nobody is root */
        ASSERT(!strstr(read_host(init, "status"), "\nUid:\t0"));
    for (size_t i = 0; i < 2 && world_level() != CAY_LEVEL_LANDLOCK; i++) {
        char *at = read_host(init, maps[i]);
        while (*at) {
            (void)strtoul(at, &at, 10);
            unsigned long outside = strtoul(at, &at, 10);
            (void)strtoul(at, &at, 10);
            at += strspn(at, "\n");
            ASSERT(outside != 0);
            if (geteuid() == 0)
                ASSERT(outside >= 0x70000000);
        }
    }
    world_end();
}

/* Rows: E23, E24, S00; test-filter.c. */
TEST(rule_2_arguments_in_all_their_bits_unknown_numbers_and_other_architectures)
{
    static const char *const names[] = {
        "E24_socket_upper_half",
        "E24_ioctl_upper_half",
        "E24_unshare_upper_half",
        "E24_personality_upper_half",
        "E24_lease_upper_half",
        "E24_clone_upper_half",
#if defined(__x86_64__)
        "E23_int80_getpid",
        "E23_int80_dup",
        "E23_x32_getpid",
#else
        "E23_arm32_getpid",
#endif
        "S00_numbers_newer_than_the_list"
    };

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        must_block(sandbox, names[i]);
    world_end();
}

/* Rows: S01 to S04, S08, S15 to S18. */
TEST(rule_3_families_are_a_list_and_there_is_no_io_uring_keyring_bpf_or_userfaultfd)
{
    static const char *const names[] = {"S17_every_other_family",
                                        "S16_every_other_netlink",
                                        "S18_every_other_protocol",
                                        "S01_io_uring_setup",
                                        "S08_keyctl",
                                        "S08_add_key",
                                        "S08_request_key",
                                        "S02_bpf",
                                        "S04_userfaultfd"};

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        must_block(sandbox, names[i]);
    world_end();
}

/* PID 1 has what root inside may have, and one more, so that it is not its equal; that
 * one means nothing in a user namespace. */
static void must_have_few(pid_t init)
{
    const char *at = strstr(read_host(init, "status"), "CapPrm:\t");

    ASSERT(at != NULL);
    unsigned long long held = strtoull(at + 8, NULL, 16);
    ASSERT_INT(held, world_level() >= CAY_LEVEL_SINGLE ? 0 : 0x200004fb | 1 << 20);
}

/* Rows: E16, E17. */
TEST(rule_4_no_nested_namespaces_and_no_capability_to_make_any)
{
    const unsigned long long admin = 1ull << 21, trace = 1ull << 19;

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    bool has_proc = world_level() != CAY_LEVEL_LANDLOCK;
    world_run(sandbox, NULL, "cat /proc/sys/user/max_user_namespaces");
    ASSERT_STR(result.out, has_proc ? "0\n" : "");
    for (size_t i = 0; i < users() && has_proc; i++) {
        world_run(sandbox, both[i], "grep ^Cap /proc/self/status | cut -f2");
        for (char *at = result.out; *at; at += strspn(at, "\n"))
            ASSERT_INT(strtoull(at, &at, 16) & (admin | trace), 0);
    }
    must_have_few(world_init(sandbox));
    must_block(sandbox, "E16_unshare_user");
    must_block(sandbox, "E16_clone_user");
    must_block(sandbox, "E16_clone3_user");
    must_block(sandbox, "E17_remount_usr");
    world_end();
}

static int fork_at_once(void *cookie)
{
    cay_sandbox *sandbox;
    const char *const argv[] = {
        "sh", "-c",
        "for i in 1 2 3 4 5 6 7 8; do (setsid sleep 3600 >/dev/null 2>&1 &) ; done",
        NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 60000};
    struct cay_exec_result ignored = {0};

    return cay_sandbox_open(cookie, &sandbox, NULL) != CAY_OK ||
           cay_sandbox_exec(sandbox, &options, &ignored, NULL) != CAY_OK;
}

/* Whenever one looks, every process of the sandbox is in its cgroups; and the way there,
 * which the host sees in full, is not to be seen inside. */
TEST(rule_5_everything_is_born_in_the_cgroup_and_does_not_see_where_that_is)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    char id[CAY_ID_MAX];
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    if (world_level() != CAY_LEVEL_BEST &&
        !(cay_sandbox_layers(sandbox) & CAY_LAYER_CGROUP)) {
        world_end(); /* it has none, and says so */
        return;
    }
    pid_t other = world_fork(fork_at_once, id);
    for (int i = 0; i < 200; i++)
        ASSERT_INT(world_outside_cgroup(sandbox), 0);
    world_join(other);
    ASSERT_INT(world_processes(sandbox), 8);
    ASSERT_INT(world_outside_cgroup(sandbox), 0);
    ASSERT_HAS(read_host(world_init(sandbox), "cgroup"), id);
    world_run(sandbox, NULL, "cat /proc/self/cgroup /proc/1/cgroup");
    ASSERT(!strstr(result.out, id));
    world_end();
}

/* Rows: E02.  With descriptors of ours that are not close-on-exec. */
TEST(rule_6_only_the_three_standard_descriptors_are_open)
{
    int leaked[4];

    world_begin();
    for (size_t i = 0; i < 4; i++)
        leaked[i] = open(scratch(), O_RDONLY | O_DIRECTORY); /* as a careless caller's */
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (int i = 0; i < 20; i++) {
        must_block(sandbox, "E02_open_descriptors");
        must_block(sandbox, "E02_leaked_directory");
    }
    for (size_t i = 0; i < 4; i++)
        close(leaked[i]);
    world_end();
}

/* Rows: see test-files.c for the files of a sandbox.  Here what PID 1 and the library
 * read of their own accord. */
TEST(rule_7_a_fifo_or_device_in_the_way_is_never_opened)
{
    static const char *const plants[] = {
        "mkfifo /etc/passwd", "ln -s /dev/ptmx /etc/passwd",
        "ln -s /dev/zero /etc/passwd", "ln -s /proc/1/mem /etc/passwd",
        "mkdir /etc/passwd"};
    char script[128];

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (size_t i = 0; i < sizeof plants / sizeof *plants && users() == 2; i++) {
        snprintf(script, sizeof script, "rm -rf /etc/passwd /etc/group; %s; %.60s",
                 plants[i], "ln -s /etc/passwd /etc/group");
        world_run(sandbox, "0", script);
        world_run(sandbox, "0", "echo fine");
        ASSERT_STR(result.out, "fine\n");
    }
    world_end(); /* which counts the terminals */
}

/* Rows: E08 in test-api.c. */
TEST(rule_8_a_user_is_who_the_sandboxs_own_passwd_says)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    const char *const argv[] = {"id", "-u", NULL};
    struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 60000, .user = "daemon2"};
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err),
                users() == 2 ? CAY_E_NOT_FOUND : CAY_E_UNSUPPORTED);
    if (users() == 2) {
        world_run(sandbox, "root", "echo daemon2:x:4242:4242::/:/bin/sh >> /etc/passwd");
        world_run(sandbox, "daemon2", "id -u");
        ASSERT_STR(result.out, "4242\n");
    }
    world_end();
}

/* The secret is in our environment and our memory, and in a file; nothing that can be
 * read inside has it, nor where that file lies.  With control: what is passed on purpose
 * is found by the same search. */
TEST(rule_9_no_host_path_token_or_secret_inside)
{
    static const char search[] =
        /* first all of it, then the search: its own words are in /proc while it runs */
        "all=$(mktemp); "
        "{ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/mountinfo "
        "/proc/self/maps /proc/self/mounts /proc/net/unix /proc/self/cgroup /etc/* "
        "/proc/self/status /proc/keys; ls -laR /home /tmp /root /run /var /proc/self/fd "
        "/proc/1/fd; } >$all 2>&1; tr '\\0' '\\n' <$all | grep -a -e ";
    char script[1024];

    world_begin();
    ASSERT(setenv("SECRET_OF_THE_HOST", world_token, 1) == 0);
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (size_t i = 0; i < users(); i++) {
        const char *const argv[] = {"sh", "-c", script, NULL};
        struct cay_exec_options options = {
            .size = sizeof options, .argv = argv, .timeout_ms = 60000, .user = both[i]};
        /* in two halves, for the search is in its own command line */
        snprintf(script, sizeof script, "%s '%.16s''%s' -e '%s''%s'", search, world_token,
                 world_token + 16, "cay-te", "st-");
        cay_exec_done(&result);
        ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
        ASSERT_STR(result.out, "");
        char own[64];
        snprintf(own, sizeof own, "PASSED=%s", world_token);
        options.env = (const char *const[]){own, NULL};
        cay_exec_done(&result);
        ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
        ASSERT_HAS(result.out, own);
    }
    unsetenv("SECRET_OF_THE_HOST");
    world_end();
}

TEST(rule_10_a_limit_that_cannot_be_enforced_is_an_error)
{
    const struct cay_sandbox_options larger = {
        .size = sizeof larger, .memory_bytes = 64 << 20, .disk_bytes = 128 << 20};
    const struct cay_sandbox_options network = {.size = sizeof network,
                                                .network = CAY_NETWORK_HOST,
                                                .require = CAY_LAYER_NETWORK};
    const struct cay_sandbox_options unknown = {.size = sizeof unknown,
                                                .require = 1u << 30};
    cay_sandbox *sandbox = NULL;

    world_begin();
    ASSERT_CODE(cay_sandbox_create(&larger, &sandbox, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_sandbox_create(&network, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT(cay_sandbox_create(&unknown, &sandbox, &err) != CAY_OK);
    world_end();
}
