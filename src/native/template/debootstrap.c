/* SPDX-License-Identifier: Apache-2.0 */

/* Creates a Debian system with debootstrap.
 *
 * It runs package scripts as root, so it is trusted as far as the signatures of the
 * archive go.  It gets its own mount and PID namespaces, so that its mounts and processes
 * end with it, and it ends with this process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/template/template.h"
#include "sys/fs.h"
#include "sys/path.h"

static const char op[] = TEMPLATE_OP;

enum { LINE = 256, POLL_MS = 200, ENV_MAX = 8, DEATH_MS = 10000 };

/* What Inspect's tools and users expect beyond a minimal system. */
#define PACKAGES "--include=procps,adduser,passwd,ca-certificates"

struct bootstrap_run {
    pid_t pid;
    int output;
    char line[LINE];  /* the last complete one */
    char error[LINE]; /* the last one that reports an error */
    char part[LINE];
    size_t part_len;
};

static bool is_suite(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len < 64 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == len &&
           text[0] != '-' && text[0] != '.';
}

static bool is_installed(void)
{
    static const char *const places[] = {"/usr/sbin/debootstrap", "/usr/bin/debootstrap",
                                         "/sbin/debootstrap"};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], X_OK) == 0)
            return true;
    return false;
}

/* Only variables for reaching the archive. */
static void pick_env(char *ret_env[ENV_MAX], char path[64])
{
    static const char *const names[] = {
        "http_proxy=", "https_proxy=", "no_proxy=", "HTTP_PROXY=", "HTTPS_PROXY="};
    size_t count = 0;

    snprintf(path, 64, "PATH=/usr/sbin:/usr/bin:/sbin:/bin");
    ret_env[count++] = path;
    for (char **env = environ; *env; env++)
        for (size_t i = 0; i < sizeof names / sizeof *names && count < ENV_MAX - 1; i++)
            if (strncmp(*env, names[i], strlen(names[i])) == 0)
                ret_env[count++] = *env;
    ret_env[count] = NULL;
}

static int spawn(const struct template_draft *draft, int output, pid_t *ret_pid)
{
    char words[][64] = {"setpriv",
                        "--pdeathsig",
                        "KILL",
                        "unshare",
                        "--mount",
                        "--pid",
                        "--fork",
                        "--kill-child",
                        "--mount-proc",
                        "debootstrap",
                        "--variant=minbase",
                        PACKAGES,
                        "SUITE",
                        "root"};
    enum { WORDS = sizeof words / sizeof *words };
    char path[64], *argv[WORDS + 1], *env[ENV_MAX];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;

    for (size_t i = 0; i < WORDS; i++)
        argv[i] = words[i];
    argv[WORDS] = NULL;
    cay_copy_text(words[WORDS - 2], sizeof words[0], draft->options->from);
    pick_env(env, path);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addfchdir_np(&actions, draft->dir);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int error =
        posix_spawn(ret_pid, "/usr/bin/setpriv", &actions, &attributes, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -error;
}

static void end_line(struct bootstrap_run *bootstrap_run)
{
    bootstrap_run->part[bootstrap_run->part_len] = '\0';
    bootstrap_run->part_len = 0;
    bool is_error = strncmp(bootstrap_run->part, "E: ", 3) == 0;
    /* Removes the "I: " of progress lines. */
    const char *text = bootstrap_run->part[0] && bootstrap_run->part[1] == ':' &&
                               bootstrap_run->part[2] == ' '
                           ? bootstrap_run->part + 3
                           : bootstrap_run->part;
    if (*text)
        cay_copy_text(bootstrap_run->line, sizeof bootstrap_run->line, text);
    if (is_error)
        cay_copy_text(bootstrap_run->error, sizeof bootstrap_run->error, text);
}

static void take_output(struct bootstrap_run *bootstrap_run, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n')
            end_line(bootstrap_run);
        else if (bootstrap_run->part_len + 1 < sizeof bootstrap_run->part)
            bootstrap_run->part[bootstrap_run->part_len++] = data[i];
    }
}

/* Until it closes its output or the caller cancels. */
static int watch(struct bootstrap_run *bootstrap_run, struct template_draft *draft,
                 struct cay_error *err)
{
    struct pollfd output = {.fd = bootstrap_run->output, .events = POLLIN};
    char data[4096];

    for (;;) {
        int code = template_report(
            draft, bootstrap_run->line[0] ? bootstrap_run->line : "debootstrap", err);
        if (code)
            return code;
        if (poll(&output, 1, POLL_MS) <= 0)
            continue;
        ssize_t len = read(bootstrap_run->output, data, sizeof data);
        if (len == 0)
            return CAY_OK;
        if (len < 0 && errno != EINTR && errno != EAGAIN)
            return cay_fail_errno(err, errno, op, "debootstrap");
        if (len > 0)
            take_output(bootstrap_run, data, (size_t)len);
    }
}

/* Its descendants die with it, and keep this descriptor open until then. */
static void wait_for_all(int output)
{
    struct pollfd end = {.fd = output, .events = POLLIN};
    char data[4096];

    while (poll(&end, 1, DEATH_MS) > 0 && read(output, data, sizeof data) > 0)
        continue;
}

static int fail_missing(const char *program, const char *package, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, ENOENT, op, program,
                    "debootstrap is not installed", "apt-get install %s", package);
}

/* If the caller ignores SIGCHLD, only the last message shows the result. */
static bool has_succeeded(const struct bootstrap_run *bootstrap_run)
{
    siginfo_t info = {0};

    while (waitid(P_PID, (id_t)bootstrap_run->pid, &info, WEXITED) != 0)
        if (errno != EINTR)
            return errno == ECHILD && strcmp(bootstrap_run->line,
                                             "Base system installed successfully.") == 0;
    return info.si_code == CLD_EXITED && info.si_status == 0;
}

static int bootstrap(struct template_draft *draft, struct cay_error *err)
{
    struct bootstrap_run bootstrap_run = {.output = -1};
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    AUTO_FD output = ends[0], theirs = ends[1];
    bootstrap_run.output = output;
    int error = spawn(draft, theirs, &bootstrap_run.pid);
    (void)close(TAKE_FD(theirs));
    if (error == -ENOENT)
        return fail_missing("setpriv", "util-linux", err);
    if (error)
        return cay_fail_errno(err, -error, op, "debootstrap");
    int code = watch(&bootstrap_run, draft, err);
    if (code) {
        (void)kill(bootstrap_run.pid, SIGKILL);
        wait_for_all(output);
    }
    bool succeeded = has_succeeded(&bootstrap_run);
    if (code || succeeded)
        return code;
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, draft->options->from,
                    "debootstrap failed", "its last message: %s",
                    bootstrap_run.error[0] ? bootstrap_run.error : bootstrap_run.line);
}

/* Removes caches and files of the host. */
static int clean(const struct template_draft *draft, struct cay_error *err)
{
    static const struct {
        const char *parent, *name;
    } leftovers[] = {{"", "dev"},
                     {"", "proc"},
                     {"", "sys"},
                     {"etc", "resolv.conf"},
                     {"etc", "hostname"},
                     {"var/cache/apt", "archives"},
                     {"var/log", "bootstrap.log"}};
    static const char *const directories[] = {"dev", "proc", "sys",
                                              "var/cache/apt/archives"};
    int code = CAY_OK;

    for (size_t i = 0; !code && i < sizeof leftovers / sizeof *leftovers; i++) {
        AUTO_FD dir = path_open(draft->root, leftovers[i].parent, O_RDONLY | O_DIRECTORY,
                                0, PATH_PLAIN);
        if (dir >= 0)
            code = tree_remove(&fs_direct, op, dir, leftovers[i].name, leftovers[i].name,
                               err);
    }
    for (size_t i = 0; !code && i < sizeof directories / sizeof *directories; i++)
        if (mkdirat(draft->root, directories[i], 0755) != 0 ||
            fchmodat(draft->root, directories[i], 0755, 0) != 0)
            code = cay_fail_errno(err, errno, op, directories[i]);
    return code;
}

static int count(struct template_draft *draft, struct cay_error *err)
{
    const struct walk_options options = {.fs = &fs_direct,
                                         .root = draft->root,
                                         .real = "",
                                         .max_depth = TEMPLATE_DEPTH_MAX};
    struct walk_step step;
    struct walk *walk;
    struct stat st;

    int code = walk_new(op, draft->root, &options, &walk, err);
    if (code)
        return code;
    for (int more = 1; !code && more == 1;) {
        more = walk_next(walk, &step, err);
        if (more != 1)
            code = more;
        else if (step.event == WALK_BELOW && step.type == DT_DIR)
            code = walk_enter(walk, 0, err);
        else if (step.type == DT_REG &&
                 fstatat(step.dir, step.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            draft->bytes += (uint64_t)st.st_size;
    }
    walk_free(walk);
    return code;
}

int template_from_debootstrap(struct template_draft *draft, struct cay_error *err)
{
    if (!is_suite(draft->options->from))
        return cay_fail(
            err, CAY_E_INVALID, 0, op, draft->options->from, "invalid suite name",
            "use a suite that debootstrap supports: bookworm, trixie, stable");
    if (!is_installed())
        return fail_missing("debootstrap", "debootstrap", err);
    int code = bootstrap(draft, err);
    if (!code)
        code = clean(draft, err);
    return code ? code : count(draft, err);
}
