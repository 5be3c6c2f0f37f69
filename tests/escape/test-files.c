/* SPDX-License-Identifier: Apache-2.0 */

/* The host's side of a sandbox's files, against what can be planted there.  The control
 * of each is the way not to do it: the path glued to /proc/PID/root and opened, which
 * leads to the host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "world.h"

static cay_sandbox *sandbox;
static cay_files *files;

static void end(void)
{
    cay_files_free(files);
    files = NULL;
    world_end();
}

/* A script that has the host's directory of secrets as $H. */
static void plant(const char *script)
{
    char text[PATH_MAX + 1024];

    snprintf(text, sizeof text, "set -e; H=%s; mkdir -p w; cd w; %s",
             scratch_path("host"), script);
    world_run(sandbox, NULL, text);
    if (result.exit_code != 0)
        harness_fail(__FILE__, __LINE__, "%s: %s", script, result.error);
}

static int read_it(const char *path)
{
    struct cay_page page = {0};
    int code = cay_files_read_bytes(files, path, NULL, &page, &err);

    if (code == CAY_OK)
        ASSERT(!memmem(page.text, page.len, world_token, 32));
    cay_page_done(&page);
    return code;
}

static void report(const char *row, int code)
{
    printf("# probe %s as user%s: %s %s\n", row, world_level_name(),
           code < 0 ? "BLOCKED" : "VIRTUALISED",
           code < 0 ? cay_code_slug(code) : "the sandbox's own");
}

/* A level without a root of its own: the same files, and landlock between. */
static bool has_root(void)
{
    return world_level() != CAY_LEVEL_LANDLOCK;
}

static bool is_away(int code)
{
    return code == CAY_E_NOT_FOUND || (!has_root() && code == CAY_E_DENIED);
}

/* Where the user's home is, seen from outside. */
static char home[PATH_MAX];

static void begin(void)
{
    world_begin();
    sandbox = world_sandbox(NULL);
    ASSERT_OK(cay_sandbox_files(sandbox, NULL, &files, &err));
    world_run(sandbox, NULL, "pwd");
    result.out[strcspn(result.out, "\n")] = '\0';
    if (has_root())
        snprintf(home, sizeof home, "/proc/%d/root%s", (int)world_init(sandbox),
                 result.out);
    else
        snprintf(home, sizeof home, "%s", result.out);
}

/* The probe, seen from "w". */
static const char *probe_from_here(void)
{
    return has_root() ? "/tmp/probe" : "../probe";
}

/* As one must not: by name, from outside. */
static int open_naively(const char *path, int flags)
{
    char glued[PATH_MAX + 64];

    snprintf(glued, sizeof glued, "%s/w/%s", home, path);
    return open(glued, flags | O_CLOEXEC | O_NOCTTY);
}

static void must_read_the_secret_naively(const char *row, const char *path)
{
    char text[33] = "";
    int fd = open_naively(path, O_RDONLY);

    ASSERT(fd >= 0 && read(fd, text, 32) == 32);
    close(fd);
    ASSERT_STR(text, world_token);
    printf("# control %s by name: ESCAPE read the secret\n", row);
}

TEST(F01_a_link_to_a_file_of_the_host_is_one_of_the_sandbox)
{
    begin();
    plant("ln -s $H/canary a; ln -s /etc/shadow s");
    int code = read_it("w/a");
    report("F01_link", code);
    ASSERT(is_away(code));
    if (world_level() < CAY_LEVEL_SINGLE) /* the sandbox's, and not user's to read */
        ASSERT_INT(read_it("w/s"), CAY_E_DENIED);
    must_read_the_secret_naively("F01_link", "a");
    end();
}

TEST(F02_links_and_dots_on_the_way_stay_inside)
{
    static const char *const paths[] = {"w/d/canary", "w/up/canary", "w/root/canary"};
    char path[PATH_MAX];

    begin();
    plant("ln -s $H d; ln -s ../../../../../../../..$H up; "
          "ln -s /../../../../../..$H root");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int code = read_it(paths[i]);
        report("F02_parents", code);
        ASSERT(is_away(code));
    }
    snprintf(path, sizeof path, "../../../../../..%s", scratch_path("host/canary"));
    ASSERT(is_away(read_it(path)));
    ASSERT(is_away(read_it(scratch_path("host/canary"))));
    must_read_the_secret_naively("F02_parents", "d/canary");
    end();
}

TEST(F03_links_of_proc_lead_nowhere)
{
    static const char *const paths[] = {"/proc/1/root/etc/passwd",
                                        "/proc/1/cwd",
                                        "/proc/self/exe",
                                        "/proc/self/fd/5",
                                        "/proc/self/root/etc",
                                        "w/magic/etc/passwd",
                                        "w/held/canary"};
    char script[128];

    begin();
    snprintf(script, sizeof script,
             "ln -s /proc/1/root magic; ln -s /proc/self/fd/%d held", world_canary_fd);
    plant(script);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int code = read_it(paths[i]);
        report("F03_magic", code);
        ASSERT(code < 0);
        ASSERT(cay_files_write(files, paths[i], "x", 1, NULL, &err) < 0);
    }
    must_read_the_secret_naively("F03_magic", "held/canary");
    end();
}

/* --- F04, F16: while it is being looked up --- */

static int flip(void *cookie)
{
    cay_sandbox *own;
    const char *const argv[] = {probe_from_here(), "load", "flip", "1500", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .cwd = "w", .timeout_ms = 60000};
    struct cay_exec_result ignored = {0};

    return cay_sandbox_open(cookie, &own, NULL) != CAY_OK ||
           cay_sandbox_exec(own, &options, &ignored, NULL) != CAY_OK ||
           ignored.exit_code != 0 || !strstr(ignored.out, "errno 0");
}

static bool reads_naively(void)
{
    char text[33] = "";
    int fd = open_naively("d/canary", O_RDONLY);
    bool secret = fd >= 0 && read(fd, text, 32) == 32 && strcmp(text, world_token) == 0;

    if (fd >= 0)
        close(fd);
    return secret;
}

TEST(F04_a_directory_that_keeps_becoming_a_link_is_never_followed_out)
{
    unsigned long tries = 0, inside = 0, naive = 0;

    begin();
    plant("mkdir d; echo inside > d/canary; ln -s $H l");
    char id[CAY_ID_MAX];
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    pid_t other = world_fork(flip, id);
    double until = world_now() + 1.0;
    for (; world_now() < until; tries++) {
        inside += read_it("w/d/canary") == CAY_OK;
        (void)!cay_files_write(files, "w/d/new", "x", 1, NULL, &err);
        naive += reads_naively();
    }
    for (int i = 0; naive == 0 && i < 100000; i++)
        naive += reads_naively();
    world_join(other);
    printf("# probe F04_race as user: BLOCKED 0 of %lu led out, %lu read inside\n", tries,
           inside);
    printf("# control F04_race by name: ESCAPE %lu led out\n", naive);
    ASSERT(tries > 0 && inside > 0 && naive > 0);
    end();
}

TEST(F16_deleting_a_tree_that_changes_deletes_nothing_of_the_host)
{
    const struct cay_name_options recursive = {.size = sizeof recursive,
                                               .flags = CAY_NAME_RECURSIVE};
    unsigned long tries = 0;

    begin();
    plant("mkdir -p d/x; ln -s $H l");
    char id[CAY_ID_MAX];
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    pid_t other = world_fork(flip, id);
    double until = world_now() + 1.0;
    for (; world_now() < until; tries++) {
        (void)!cay_files_write(files, "w/d/x/y", "x", 1, NULL, &err);
        (void)!cay_files_delete(files, "w/d/x", &recursive, &err);
    }
    world_join(other);
    printf("# probe F16_delete as user: BLOCKED the host's are all there after %lu\n",
           tries);
    int fd = open_naively("l", O_RDONLY | O_DIRECTORY);
    fd = fd >= 0 ? fd : open_naively("d", O_RDONLY | O_DIRECTORY);
    ASSERT(fd >= 0);
    close(fd);
    printf("# control F16_delete by name: ESCAPE opens the host's directory\n");
    end(); /* which compares the host's directory */
}

/* --- What is not a file --- */

TEST(F05_a_fifo_holds_nobody)
{
    begin();
    plant("mkfifo p");
    alarm(60);
    int code = read_it("w/p");
    report("F05_fifo", code);
    ASSERT_INT(code, CAY_E_NOT_A_FILE);
    ASSERT_INT(cay_files_write(files, "w/p", "x", 1, NULL, &err), CAY_E_NOT_A_FILE);
    alarm(0);
    int fd = open_naively("p", O_RDONLY | O_NONBLOCK);
    ASSERT(fd >= 0);
    close(fd);
    printf("# control F05_fifo by name: ESCAPE opened, and would have waited\n");
    end();
}

TEST(F06_devices_and_sockets_are_not_opened)
{
    static const char *const paths[] = {"/dev/zero", "/dev/tty",      "/dev/ptmx",
                                        "w/ptmx",    "/dev/pts/ptmx", "w/socket"};

    begin();
    plant("ln -s /dev/ptmx ptmx");
    if (has_root())
        plant("python3 -c 'import socket; "
              "socket.socket(socket.AF_UNIX).bind(\"socket\")'");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int code = read_it(paths[i]);
        report("F06_device", code);
        ASSERT(code == CAY_E_NOT_A_FILE || (!has_root() && code < 0));
    }
    int fd = open_naively("../../../dev/zero", O_RDONLY);
    ASSERT(fd >= 0);
    close(fd);
    printf("# control F06_device by name: ESCAPE opened\n");
    end(); /* which counts the terminals */
}

TEST(F07_files_of_proc_are_bounded_and_those_of_pid_1_closed)
{
    static const char *const paths[] = {"/proc/1/mem", "/proc/1/environ", "/proc/kmsg",
                                        "/proc/kcore", "/proc/1/auxv"};

    begin();
    plant(":");
    if (has_root())
        ASSERT_INT(read_it("/proc/meminfo"), CAY_OK);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int code = read_it(paths[i]);
        report("F07_proc", code);
        ASSERT(code < 0);
    }
    ASSERT(cay_files_write(files, "/proc/sys/kernel/core_pattern", "x", 1, NULL, &err) <
           0);
    int fd = open_naively("../../../proc/1/status", O_RDONLY);
    ASSERT(fd >= 0);
    close(fd);
    printf("# control F07_proc by name: ESCAPE opened\n");
    end();
}

/* Finding S6: the kernel lets every process read its own, so PID 1 could read these for
 * callers of the files API: addresses, mounts, descriptors. */
static void must_not_list_own(const char *path)
{
    const struct cay_list_options options = {.size = sizeof options, .max_depth = 2};
    struct cay_listing listing = {0};

    if (cay_files_list(files, path, &options, &listing, &err) == CAY_OK)
        for (size_t i = 0; i < listing.count; i++)
            ASSERT(strncmp(listing.entries[i].path, "/proc/1/", 8) != 0 &&
                   !strstr(listing.entries[i].path, "task"));
    cay_listing_done(&listing);
}

static void must_not_read_own(const char *const *paths, size_t count, const char *user)
{
    cay_files_free(files);
    files = NULL;
    ASSERT_OK(cay_sandbox_files(sandbox, user, &files, &err));
    for (size_t i = 0; i < count; i++) {
        int code = read_it(paths[i]);
        printf("# probe F22_own as %s%s: %s %s\n", user ? user : "user",
               world_level_name(), code < 0 ? "BLOCKED" : "ESCAPE", paths[i]);
        ASSERT_INT(code, CAY_E_DENIED);
    }
    must_not_list_own("/proc/1");
    must_not_list_own("/proc/self/task");
    must_not_list_own("w/task");
    must_not_list_own("/proc");
}

TEST(F22_entries_of_init_in_proc_are_refused)
{
    enum { ABSOLUTE = 10 };
    static const char *const paths[] = {"/proc/self/maps",
                                        "/proc/self/auxv",
                                        "/proc/self/status",
                                        "/proc/self/mountinfo",
                                        "/proc/self/cmdline",
                                        "/proc/1/maps",
                                        "/proc/1/status",
                                        "/proc/1/task/1/maps",
                                        "/proc/thread-self/maps",
                                        "/proc/self/attr/current",
                                        "w/maps",
                                        "w/own/status",
                                        "w/task/1/mountinfo"};

    begin();
    plant("ln -s /proc/self/maps maps; ln -s /proc/1 own; ln -s own/task task");
    must_not_read_own(paths, sizeof paths / sizeof *paths, NULL);
    if (world_level() < CAY_LEVEL_SINGLE)
        must_not_read_own(paths, ABSOLUTE, "root");
    /* Of commands, and of the machine, they are there. */
    if (has_root())
        ASSERT_INT(read_it("/proc/uptime"), CAY_OK);
    world_run(sandbox, NULL, "grep -c . /proc/self/maps /proc/1/status | grep -v :0");
    printf("# control F22_own by a command for itself: ESCAPE %s", result.out);
    ASSERT_INT(result.exit_code, has_root() ? 0 : 1);
    end();
}

static int grow(void *cookie)
{
    cay_sandbox *own;
    const char *const argv[] = {"python3", "-c",
                                "import time\n"
                                "f=open('w/g','r+b',0); e=time.monotonic()+1\n"
                                "while time.monotonic()<e:\n"
                                "  for i in range(64): f.write(b'x'*4096)\n"
                                "  f.truncate(0); f.seek(0)\n",
                                NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 60000};
    struct cay_exec_result ignored = {0};

    return cay_sandbox_open(cookie, &own, NULL) != CAY_OK ||
           cay_sandbox_exec(own, &options, &ignored, NULL) != CAY_OK;
}

/* A file that is mapped and then shortened kills who reads it. */
TEST(F09_a_file_that_grows_and_shrinks_does_no_harm)
{
    unsigned long reads = 0;

    begin();
    plant("echo x > g");
    char id[CAY_ID_MAX];
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    pid_t other = world_fork(grow, id);
    for (double until = world_now() + 0.8; world_now() < until; reads++)
        (void)read_it("w/g");
    world_join(other);
    printf("# probe F09_growing as user: VIRTUALISED %lu reads\n", reads);
    end();
}

/* --- Names --- */

static bool has_entry(const struct cay_listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->count; i++) {
        const char *base = strrchr(listing->entries[i].path, '/');
        if (strcmp(base ? base + 1 : listing->entries[i].path, name) == 0)
            return true;
    }
    return false;
}

TEST(F10_names_are_bytes_and_what_is_listed_can_be_read)
{
    static const char *const names[] = {"a\nb",
                                        "a b",
                                        "back\\slash",
                                        "\xff\xfe",
                                        "\xc3\xa9",
                                        "e\xcc\x81",
                                        "CASE",
                                        "case",
                                        "..x",
                                        "x..",
                                        "-rf",
                                        ("\xe2\x80\xae"
                                         "rtl"),
                                        "*?[a]{b,c}",
                                        "'\"`$(id)"};
    struct cay_listing listing = {0};
    char path[512];

    begin();
    plant(":");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "w/%s", names[i]);
        ASSERT_OK(cay_files_write(files, path, names[i], strlen(names[i]), NULL, &err));
    }
    ASSERT_OK(cay_files_list(files, "w", NULL, &listing, &err));
    ASSERT_INT(listing.count, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ASSERT(has_entry(&listing, names[i]));
    for (size_t i = 0; i < listing.count; i++)
        ASSERT_INT(read_it(listing.entries[i].path), CAY_OK);
    cay_listing_done(&listing);
    ASSERT(read_it("") < 0);
    memset(path, 'n', sizeof path);
    memcpy(path, "w/", 2);
    path[2 + 255] = '\0';
    ASSERT_OK(cay_files_write(files, path, "x", 1, NULL, &err));
    path[2 + 255] = 'n';
    path[2 + 256] = '\0';
    ASSERT(cay_files_write(files, path, "x", 1, NULL, &err) < 0);
    printf("# probe F10_names as user: VIRTUALISED every one of %zu came back\n",
           sizeof names / sizeof *names);
    end();
}

TEST(F11_a_very_deep_tree_is_deleted_without_a_stack_to_match)
{
    const struct cay_name_options recursive = {.size = sizeof recursive,
                                               .flags = CAY_NAME_RECURSIVE};
    char script[64];

    begin();
    snprintf(script, sizeof script, "%s load dig 3000", probe_from_here());
    plant(script);
    ASSERT_HAS(result.out, "made 3000");
    ASSERT_OK(cay_files_delete(files, "w/d", &recursive, &err));
    ASSERT_INT(cay_files_exists(files, "w/d", &err), 0);
    printf("# probe F11_depth as user: VIRTUALISED 3000 levels deleted\n");
    end();
}

/* --- Writing --- */

TEST(F15_writing_through_a_link_touches_nothing_of_the_host)
{
    begin();
    plant("ln -s $H/canary out; ln -s /usr/bin/env program; ln -s $H dir");
    int code = cay_files_write(files, "w/out", "x", 1, NULL, &err);
    report("F15_write", code);
    code = cay_files_write(files, "w/program", "x", 1, NULL, &err);
    ASSERT(code == CAY_E_READ_ONLY || code == CAY_E_DENIED);
    (void)!cay_files_write(files, "w/dir/new", "x", 1, NULL, &err);
    int fd = open_naively("dir", O_RDONLY | O_DIRECTORY);
    ASSERT(fd >= 0);
    close(fd);
    printf("# control F15_write by name: ESCAPE opens the host's directory\n");
    end(); /* which compares the host's directory */
}

TEST(F19_what_is_written_belongs_to_whom_it_was_written_for)
{
    if (world_level() >= CAY_LEVEL_SINGLE)
        return; /* there is nobody else */
    begin();
    ASSERT_OK(cay_files_write(files, "w/mine", "x", 1, NULL, &err));
    world_run(sandbox, "root",
              "stat -c '%u %g %a' /home/user/w/mine; chmod 6755 /home/user/w/mine; "
              "chown root:root /home/user/w/mine; chmod 6777 /home/user/w/mine");
    ASSERT_STR(result.out, "1000 1000 644\n");
    /* a setuid file of root's that everybody may write does not stay one */
    (void)!cay_files_write(files, "w/mine", "y", 1, NULL, &err);
    world_run(sandbox, "root", "stat -c '%A' /home/user/w/mine");
    printf("# probe F19_owner as user: VIRTUALISED %s", result.out);
    ASSERT(!strchr(result.out, 's'));
    cay_files *as_root;
    ASSERT_OK(cay_sandbox_files(sandbox, "root", &as_root, &err));
    ASSERT_OK(cay_files_write(as_root, "/root/his", "x", 1, NULL, &err));
    cay_files_free(as_root);
    world_run(sandbox, "root", "stat -c '%u %g' /root/his");
    ASSERT_STR(result.out, "0 0\n");
    end();
}
