/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <search.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/record/state.h"
#include "native/record/userns.h"
#include "native/record/users.h"
#include "native/template/template.h"
#include "sys/copy.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/spawn.h"

static const char op[] = TEMPLATE_OP;

enum { TELL_NS = 100000000 };

int template_report(struct template_draft *draft, const char *step, struct cay_error *err)
{
    const struct cay_template_options *options = draft->options;

    if (!options->on_progress)
        return CAY_OK;
    uint64_t now = clock_ns();
    if (now - draft->reported_ns < TELL_NS)
        return CAY_OK;
    draft->reported_ns = now;
    if (options->on_progress(options->cookie, step, draft->bytes) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_CANCELLED, 0, op, options->name,
                    "creating the template was cancelled",
                    "its files were removed; start it again if needed");
}

/* --- From a directory --- */

/* Creates a template from a directory.  Other file systems are left out, so that a copy
 * of "/" does not include /proc; so are devices, sockets and FIFOs. */

/* A file with several hard links, and its first path below the root. */
struct original {
    dev_t dev;
    ino_t ino;
    char path[];
};

struct copying {
    struct template_draft *draft;
    dev_t dev;        /* of the source */
    struct stat self; /* the draft: a copy must not recurse into itself */
    void *originals;  /* a tree of tsearch(3) */
    char path[PATH_MAX];
};

static int by_file(const void *left, const void *right)
{
    const struct original *a = left, *b = right;

    return a->ino != b->ino ? (a->ino < b->ino ? -1 : 1)
                            : (a->dev > b->dev) - (a->dev < b->dev);
}

static int fail(const struct copying *copying, int sys_errno, struct cay_error *err)
{
    return cay_fail_errno(err, sys_errno, op, copying->path);
}

/* In the user namespace of an ordinary user, files of the host's users appear as
 * nobody's: they become root's. */
static unsigned copied_id(const struct copying *copying, unsigned id)
{
    if (*copying->draft->info.map && id == TEMPLATE_NOBODY)
        return 0;
    return id <= UINT16_MAX ? id : TEMPLATE_NOBODY;
}

static int copy_file(const struct copying *copying, int held, const struct stat *st,
                     int to_dir, const char *name, struct cay_error *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
    AUTO_FD from = path_reopen(held, O_RDONLY);
    uint64_t copied;

    if (from < 0)
        return fail(copying, -from, err);
    AUTO_FD to =
        openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int error = to < 0 ? -errno : copy_bytes(from, to, (uint64_t)st->st_size, &copied);
    if (!error && (fchown(to, copied_id(copying, st->st_uid),
                          copied_id(copying, st->st_gid)) != 0 ||
                   fchmod(to, st->st_mode & 07777) != 0 || futimens(to, times) != 0))
        error = -errno;
    return error ? fail(copying, -error, err) : CAY_OK;
}

static int add_file(struct copying *copying, int held, const struct stat *st, int to_dir,
                    const char *name, struct cay_error *err)
{
    struct template_draft *draft = copying->draft;
    const struct original wanted = {st->st_dev, st->st_ino};
    struct original **known =
        st->st_nlink > 1 ? tfind(&wanted, &copying->originals, by_file) : NULL;

    if (known)
        return linkat(draft->root, (*known)->path, to_dir, name, 0) == 0
                   ? CAY_OK
                   : fail(copying, errno, err);
    draft->bytes += (uint64_t)st->st_size;
    if (draft->bytes > TEMPLATE_BYTES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, copying->path,
                        "the directory is too large for a template",
                        "the limit is %llu bytes",
                        (unsigned long long)TEMPLATE_BYTES_MAX);
    int code = copy_file(copying, held, st, to_dir, name, err);
    if (code || st->st_nlink <= 1)
        return code;
    AUTO_FREE struct original *original =
        malloc(sizeof *original + strlen(copying->path) + 1);
    if (!original)
        return cay_fail_memory(err, op);
    *original = wanted;
    memcpy(original->path, copying->path, strlen(copying->path) + 1);
    if (!tsearch(original, &copying->originals, by_file))
        return cay_fail_memory(err, op);
    (void)TAKE_PTR(original);
    return CAY_OK;
}

static int add_link(const struct copying *copying, int held, const struct stat *st,
                    int to_dir, const char *name, struct cay_error *err)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(held, "", target, sizeof target);

    if (len <= 0 || (size_t)len >= sizeof target)
        return fail(copying, len < 0 ? errno : ENAMETOOLONG, err);
    target[len] = '\0';
    if (symlinkat(target, to_dir, name) != 0 ||
        fchownat(to_dir, name, copied_id(copying, st->st_uid),
                 copied_id(copying, st->st_gid), AT_SYMLINK_NOFOLLOW) != 0)
        return fail(copying, errno, err);
    return CAY_OK;
}

static int copy_directory(struct copying *copying, int from, int to, unsigned depth,
                          struct cay_error *err);

static int add_directory(struct copying *copying, int held, const struct stat *st,
                         int to_dir, const char *name, unsigned depth,
                         struct cay_error *err)
{
    int code = CAY_OK;

    if (mkdirat(to_dir, name, 0700) != 0)
        return fail(copying, errno, err);
    AUTO_FD to = path_open(to_dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (to < 0)
        return fail(copying, -to, err);
    bool is_self =
        st->st_dev == copying->self.st_dev && st->st_ino == copying->self.st_ino;
    if (st->st_dev == copying->dev && !is_self)
        code = copy_directory(copying, held, to, depth + 1, err);
    if (!code && (fchown(to, copied_id(copying, st->st_uid),
                         copied_id(copying, st->st_gid)) != 0 ||
                  fchmod(to, st->st_mode & 07777) != 0))
        code = fail(copying, errno, err);
    return code;
}

/* Even root cannot stat a FUSE file system of another user, or one whose server is
 * gone. */
static bool is_mounted(int from, const char *name)
{
    AUTO_FD fd =
        path_open(from, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_XDEV);

    return fd == -EXDEV;
}

static int add(struct copying *copying, int from, int to, const char *name,
               unsigned depth, struct cay_error *err)
{
    struct stat st;
    AUTO_FD held = path_open(from, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH);

    if (held == -ENOENT) /* removed meanwhile */
        return CAY_OK;
    if (held < 0)
        return fail(copying, -held, err);
    if (fstat(held, &st) != 0) {
        int error = errno;
        return is_mounted(from, name) ? CAY_OK : fail(copying, error, err);
    }
    if (++copying->draft->entries > TEMPLATE_ENTRIES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, copying->path,
                        "the directory has too many files for a template",
                        "the limit is %d", TEMPLATE_ENTRIES_MAX);
    if (S_ISDIR(st.st_mode))
        return add_directory(copying, held, &st, to, name, depth, err);
    if (S_ISREG(st.st_mode))
        return add_file(copying, held, &st, to, name, err);
    if (S_ISLNK(st.st_mode))
        return add_link(copying, held, &st, to, name, err);
    return CAY_OK; /* a device, a socket or a FIFO */
}

static int copy_directory(struct copying *copying, int from, int to, unsigned depth,
                          struct cay_error *err)
{
    size_t len = strlen(copying->path);
    int code = CAY_OK;

    if (depth > TEMPLATE_DEPTH_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, copying->path,
                        "the directory is nested too deeply for a template",
                        "the limit is %d", TEMPLATE_DEPTH_MAX);
    AUTO_DIR directory = path_list(from);
    if (!directory)
        return fail(copying, errno, err);
    for (struct dirent *entry; !code && (entry = path_next(directory));) {
        const char *name = entry->d_name;
        size_t name_len = strlen(name);
        if (len + 1 + name_len >= PATH_MAX) {
            code = fail(copying, ENAMETOOLONG, err);
            break;
        }
        char *at = copying->path + len;
        if (len)
            *at++ = '/';
        memcpy(at, name, name_len + 1);
        code = template_report(copying->draft, "copying", err);
        if (!code)
            code = add(copying, from, to, name, depth, err);
        copying->path[len] = '\0';
    }
    return code;
}

int template_copy(struct template_draft *draft, int from, struct cay_error *err)
{
    AUTO_FREE struct copying *copying = calloc(1, sizeof *copying);
    struct stat st;

    if (!copying)
        return cay_fail_memory(err, op);
    if (fstat(from, &st) != 0 || fstat(draft->dir, &copying->self) != 0)
        return cay_fail_errno(err, errno, op, draft->options->from);
    copying->draft = draft;
    copying->dev = st.st_dev;
    int code = copy_directory(copying, from, draft->root, 1, err);
    tdestroy(copying->originals, free);
    return code;
}

static int from_directory(struct template_draft *draft, struct cay_error *err)
{
    const char *path = draft->options->from;
    AUTO_FD from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return from < 0 ? cay_fail_errno(err, errno, op, path)
                    : template_copy(draft, from, err);
}

/* --- With debootstrap --- */

/* Creates a Debian system with debootstrap.
 *
 * It runs package scripts as root, so it is trusted as far as the signatures of the
 * archive go.  It gets its own mount and PID namespaces, so that its mounts and processes
 * end with it, and it ends with this process. */

enum { LINE = 512, POLL_MS = 200, ENV_MAX = 8, DEATH_MS = 10000 };

enum { PACKAGES_MAX = 4096 };

/* What Inspect's tools and users expect beyond a minimal system. */
static const char usual_packages[] = "procps,adduser,passwd,ca-certificates";

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

static bool are_packages(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len < PACKAGES_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.+,") == len &&
           text[0] != '-' && !strstr(text, ",-");
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
    const struct cay_template_options *options = draft->options;
    char words[][32] = {"setpriv",     "--pdeathsig",      "KILL",
                        "unshare",     "--mount",          "--pid",
                        "--fork",      "--kill-child",     "--mount-proc",
                        "debootstrap", "--variant=minbase"};
    enum { WORDS = sizeof words / sizeof *words };
    char packages[PACKAGES_MAX + 64], suite[64], root[] = "root", path[64];
    char *argv[WORDS + 4] = {NULL}, *env[ENV_MAX];

    for (size_t i = 0; i < WORDS; i++)
        argv[i] = words[i];
    argv[WORDS] = packages;
    argv[WORDS + 1] = suite;
    argv[WORDS + 2] = root;
    cay_copy_text(suite, sizeof suite, options->from);
    snprintf(packages, sizeof packages, "--include=%s%s%s", usual_packages,
             options->packages ? "," : "", options->packages ? options->packages : "");
    pick_env(env, path);
    const struct spawn spawn = {
        "/usr/bin/setpriv", argv, env, draft->dir, {-1, output, output}};
    return spawn_program(&spawn, ret_pid);
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
                 const char *name, struct cay_error *err)
{
    struct pollfd output = {.fd = bootstrap_run->output, .events = POLLIN};
    char data[4096];

    for (;;) {
        int code = template_report(
            draft, bootstrap_run->line[0] ? bootstrap_run->line : name, err);
        if (code)
            return code;
        if (poll(&output, 1, POLL_MS) <= 0)
            continue;
        ssize_t len = read(bootstrap_run->output, data, sizeof data);
        if (len == 0)
            return CAY_OK;
        if (len < 0 && errno != EINTR && errno != EAGAIN)
            return cay_fail_errno(err, errno, op, name);
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
                    "a program that the source needs is not installed",
                    "apt-get install %s", package);
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

typedef int start_tool(const struct template_draft *draft, int output, pid_t *ret_pid);

/* Runs a program to its end; `ret_run` has its last messages. */
static int run_tool(struct template_draft *draft, const char *name, start_tool *start,
                    struct bootstrap_run *ret_run, bool *ret_succeeded,
                    struct cay_error *err)
{
    int ends[2];

    *ret_run = (struct bootstrap_run){.output = -1};

    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    AUTO_FD output = ends[0], theirs = ends[1];
    ret_run->output = output;
    int error = start(draft, theirs, &ret_run->pid);
    (void)close(TAKE_FD(theirs));
    if (error == -ENOENT)
        return fail_missing("setpriv", "util-linux", err);
    if (error)
        return cay_fail_errno(err, -error, op, name);
    int code = watch(ret_run, draft, name, err);
    if (code) {
        (void)kill(ret_run->pid, SIGKILL);
        wait_for_all(output);
    }
    *ret_succeeded = has_succeeded(ret_run);
    return code;
}

static int bootstrap(struct template_draft *draft, struct cay_error *err)
{
    struct bootstrap_run bootstrap_run;
    bool succeeded = false;

    TRY(run_tool(draft, "debootstrap", spawn, &bootstrap_run, &succeeded, err));
    if (succeeded)
        return CAY_OK;
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

/* Debian's pip installs nothing beside Debian's packages unless its configuration allows
 * it. */
static int allow_pip(const struct template_draft *draft, struct cay_error *err)
{
    static const char text[] = "[global]\nbreak-system-packages = true\n";
    AUTO_FD fd = path_open(draft->root, "etc/pip.conf", O_WRONLY | O_CREAT | O_EXCL, 0644,
                           PATH_PLAIN);

    if (fd == -EEXIST)
        return CAY_OK;
    int error = fd < 0 ? fd : io_write(fd, text, strlen(text));
    return error ? cay_fail_errno(err, -error, op, "etc/pip.conf") : CAY_OK;
}

int template_count_bytes(const char *who, int root, uint64_t *ret_bytes,
                         struct cay_error *err)
{
    const struct walk_options options = {
        .fs = &fs_direct, .root = root, .real = "", .max_depth = TEMPLATE_DEPTH_MAX};
    struct walk_step step;
    struct walk *walk;
    struct stat st;

    *ret_bytes = 0;
    int code = walk_new(who, root, &options, &walk, err);
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
            *ret_bytes += (uint64_t)st.st_size;
    }
    walk_free(walk);
    return code;
}

static int from_debootstrap(struct template_draft *draft, struct cay_error *err)
{
    if (!is_suite(draft->options->from))
        return cay_fail(
            err, CAY_E_INVALID, 0, op, draft->options->from, "invalid suite name",
            "use a suite that debootstrap supports: bookworm, trixie, stable");
    if (draft->options->packages && !are_packages(draft->options->packages))
        return cay_fail(err, CAY_E_INVALID, 0, op, draft->options->packages,
                        "invalid list of packages",
                        "write names of Debian's packages with commas between them: "
                        "python3,git");
    if (*draft->info.map)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, draft->options->from,
                        "debootstrap needs root, since it creates device nodes",
                        "run it with sudo, or import an image or a tar file");
    if (!is_installed())
        return fail_missing("debootstrap", "debootstrap", err);
    int code = bootstrap(draft, err);
    if (!code)
        code = clean(draft, err);
    if (!code)
        code = allow_pip(draft, err);
    return code ? code : template_count_bytes(op, draft->root, &draft->bytes, err);
}

/* --- From a registry --- */

static const char policy_file[] = "policy.json";

/* The variables by which skopeo finds credentials, certificates and proxies. */
static size_t pick_registry_env(char *ret_env[], size_t room, char path[64])
{
    static const char *const names[] = {
        "HOME=",        "XDG_RUNTIME_DIR=", "REGISTRY_AUTH_FILE=", "DOCKER_CONFIG=",
        "http_proxy=",  "https_proxy=",     "no_proxy=",           "HTTP_PROXY=",
        "HTTPS_PROXY=", "NO_PROXY=",        "SSL_CERT_FILE=",      "SSL_CERT_DIR="};
    size_t count = 0;

    snprintf(path, 64, "PATH=/usr/local/bin:/usr/bin:/bin");
    ret_env[count++] = path;
    for (char **env = environ; *env; env++)
        for (size_t i = 0; i < sizeof names / sizeof *names && count < room - 1; i++)
            if (strncmp(*env, names[i], strlen(names[i])) == 0)
                ret_env[count++] = *env;
    ret_env[count] = NULL;
    return count;
}

static int spawn_skopeo(const struct template_draft *draft, int output, pid_t *ret_pid)
{
    char words[][32] = {"setpriv",         "--pdeathsig",  "KILL",          "skopeo",
                        "--policy",        "policy.json",  "--override-os", "linux",
                        "--override-arch", "ARCHITECTURE", "copy",          "--quiet"};
    enum { WORDS = sizeof words / sizeof *words, ARCHITECTURE = 9 };
    const char *from = draft->options->from;
    char source[320], target[] = "oci:image:cay", path[64], *env[16], *argv[WORDS + 3];

    for (size_t i = 0; i < WORDS; i++)
        argv[i] = words[i];
    cay_copy_text(words[ARCHITECTURE], sizeof *words, template_architecture());
    snprintf(source, sizeof source, "%s%s",
             strncmp(from, "docker://", 9) == 0 ? "" : "docker://", from);
    argv[WORDS] = source;
    argv[WORDS + 1] = target;
    argv[WORDS + 2] = NULL;
    (void)pick_registry_env(env, sizeof env / sizeof *env, path);
    const struct spawn spawn = {
        "/usr/bin/setpriv", argv, env, draft->dir, {-1, output, output}};
    return spawn_program(&spawn, ret_pid);
}

/* Images are trusted as far as their digests go: the caller's own policy, if any, is
 * about other programs. */
static int write_policy(const struct template_draft *draft, struct cay_error *err)
{
    static const char text[] = "{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}\n";

    return state_write(draft->dir, policy_file, text, strlen(text), err);
}

static int download(struct template_draft *draft, struct cay_error *err)
{
    struct bootstrap_run run;
    bool succeeded = false;

    if (access("/usr/bin/skopeo", X_OK) != 0 &&
        access("/usr/local/bin/skopeo", X_OK) != 0)
        return cay_fail(err, CAY_E_UNAVAILABLE, ENOENT, op, draft->options->from,
                        "skopeo, which downloads images, is not installed",
                        "apt-get install skopeo; or use docker save on another machine "
                        "and --from docker-archive:FILE");
    TRY(write_policy(draft, err));
    TRY(run_tool(draft, "skopeo", spawn_skopeo, &run, &succeeded, err));
    if (unlinkat(draft->dir, policy_file, 0) != 0)
        return cay_fail_errno(err, errno, op, policy_file);
    if (succeeded)
        return CAY_OK;
    if (strstr(run.line, "dial tcp"))
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, draft->options->from,
                        "the registry cannot be reached",
                        "check its name and the network of this machine, or use docker "
                        "save on another machine and --from docker-archive:FILE; "
                        "skopeo: %s",
                        run.line);
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, draft->options->from,
                    "the image could not be downloaded", "check its name; skopeo: %s",
                    run.line);
}

static bool is_reference(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len < 256 && isalnum((unsigned char)*text) &&
           isalnum((unsigned char)text[len - 1]) &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                        "._-:/@") == len;
}

bool template_image_name(const char *reference, char ret_name[TEMPLATE_NAME_MAX])
{
    static const char digest[] = "@sha256:";
    enum { DIGITS = 16 };
    const char *at = strstr(reference, digest), *slash = strrchr(reference, '/');
    size_t len = at ? (size_t)(at - reference) : strlen(reference);
    char plain[TEMPLATE_NAME_MAX];

    if (!is_reference(reference) || len + (at ? 2 + DIGITS : 0) >= TEMPLATE_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool is_port = reference[i] == ':' && slash && reference + i < slash;
        plain[i] = reference[i] == '/' || is_port ? '_' : reference[i];
    }
    plain[len] = '\0';
    if (at) /* instead of a tag */
        snprintf(plain + strcspn(plain, ":"), sizeof plain - strcspn(plain, ":"), ":%.*s",
                 DIGITS, at + strlen(digest));
    cay_copy_text(ret_name, TEMPLATE_NAME_MAX, plain);
    return template_check_name(ret_name, op, NULL) == CAY_OK;
}

/* "DIR[:TAG]": a tag follows the last colon, unless a directory has the whole name. */
static void split_tag(struct template_draft *draft)
{
    struct stat st;
    char *colon = strrchr(draft->image, ':');

    if (!colon || strchr(colon, '/') || stat(draft->image, &st) == 0)
        return;
    cay_copy_text(draft->tag, sizeof draft->tag, colon + 1);
    *colon = '\0';
}

int template_find_image(struct template_draft *draft, struct cay_error *err)
{
    static const char *const files[] = {"oci:", "oci-archive:", "docker-archive:"};
    const char *from = draft->options->from;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t len = strlen(files[i]);
        if (strncmp(from, files[i], len) != 0 || !from[len])
            continue;
        cay_copy_text(draft->image, sizeof draft->image, from + len);
        split_tag(draft);
        return CAY_OK;
    }
    bool has_scheme = strncmp(from, "docker://", 9) == 0;
    if (is_reference(has_scheme ? from + 9 : from))
        return download(draft, err);
    return cay_fail(err, CAY_E_INVALID, 0, op, from, "invalid name of an image",
                    "write oci:DIR[:TAG], oci-archive:FILE, docker-archive:FILE, or the "
                    "name of an image in a registry: python:3.12");
}

/* --- From any source --- */

static int from_tar(struct template_draft *draft, struct cay_error *err)
{
    const char *path = draft->options->from;
    struct stat st;
    AUTO_FD held = open(path, O_PATH | O_CLOEXEC);

    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, path);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, path, "not a regular file",
                        "use a tar file, plain or compressed");
    AUTO_FD fd = path_reopen(held, O_RDONLY);
    if (fd < 0)
        return cay_fail_errno(err, -fd, op, path);
    return template_unpack(draft, draft->root, fd, TEMPLATE_WHOLE, err);
}

static int fill(struct template_draft *draft, struct cay_error *err)
{
    static const char *const names[] = {"", "dir", "tar", "oci", "debootstrap", "image"};
    enum cay_template_source source = draft->options->source;
    int code = CAY_E_INVALID;

    switch (source) {
    case CAY_TEMPLATE_DIR:
        code = from_directory(draft, err);
        break;
    case CAY_TEMPLATE_TAR:
        code = from_tar(draft, err);
        break;
    case CAY_TEMPLATE_OCI:
    case CAY_TEMPLATE_IMAGE:
        code = template_from_image(draft, err);
        break;
    case CAY_TEMPLATE_DEBOOTSTRAP:
        code = from_debootstrap(draft, err);
        break;
    case CAY_TEMPLATE_SANDBOX: /* native/snapshot */
        break;
    }
    if (!code)
        cay_copy_text(draft->info.shown.source, sizeof draft->info.shown.source,
                      names[source]);
    else if (err && !*err->subject) /* the archive reader does not know its name */
        cay_copy_text(err->subject, sizeof err->subject, draft->options->from);
    return code;
}

/* Complete and synced to disk before it gets its name. */
static int finish(struct template_draft *draft, int store, const char *draft_name,
                  struct cay_error *err)
{
    struct cay_template_info *shown = &draft->info.shown;
    const char *name = draft->options->name;

    shown->created_ms = clock_since_1970_ms();
    shown->bytes = draft->bytes;
    cay_copy_text(shown->from, sizeof shown->from, draft->options->from);
    int code = template_info_save(draft->dir, &draft->info, err);
    if (code)
        return code;
    return template_publish(store, draft->dir, draft_name, name, false, op, err);
}

/* Creates the root; for an ordinary user in a user namespace. */
static int make(void *cookie, struct cay_error *err)
{
    struct template_draft *draft = cookie;
    struct stat st;

    /* Independent of the caller's umask. */
    if (mkdirat(draft->dir, "root", 0755) != 0)
        return cay_fail_errno(err, errno, op, "root");
    draft->root = path_open(draft->dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (draft->root < 0 || fchmod(draft->root, 0755) != 0)
        return cay_fail_errno(err, draft->root < 0 ? -draft->root : errno, op, "root");
    int code = fill(draft, err);
    /* Without these it is not a root file system, and no command would ever start in
     * it. */
    if (!code && fstatat(draft->root, "bin", &st, AT_SYMLINK_NOFOLLOW) != 0 &&
        fstatat(draft->root, "usr", &st, AT_SYMLINK_NOFOLLOW) != 0)
        code = cay_fail(err, CAY_E_INVALID, 0, op, draft->options->from,
                        "the source has neither bin nor usr",
                        "use the complete root file system of a system");
    return code ? code : users_add(draft->root, err);
}

/* Sandboxes of an ordinary user map the same subordinate ids: the template's files belong
 * to these on the disk, and no mount has to shift them. */
static int make_as_user(struct template_draft *draft, struct cay_error *err)
{
    if (!template_own_map(draft->info.map))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, draft->options->name,
                        "the files of a template have several owners, and this user has "
                        "no range of subordinate ids in /etc/subuid and /etc/subgid",
                        "sudo $(which cay) setup adds one");
    return userns_run(make, draft, err);
}

static int check(const struct cay_template_options *options, int store,
                 struct cay_error *err)
{
    struct stat st;

    if (options->source < CAY_TEMPLATE_DIR || options->source > CAY_TEMPLATE_IMAGE)
        return cay_fail(err, CAY_E_INVALID, 0, op, options->name,
                        "unknown kind of template source",
                        "use one of enum cay_template_source");
    if (!options->from || !*options->from)
        return cay_fail(err, CAY_E_INVALID, 0, op, options->name,
                        "no template source given",
                        "pass a directory, a tar file, an image or a suite");
    if (fstatat(store, options->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return cay_fail(err, CAY_E_EXISTS, 0, op, options->name,
                        "a template or a snapshot with this name exists",
                        "remove it first, or use another name");
    return CAY_OK;
}

/* Templates with a recipe: see cay-template(1). */
static void use_recipe(struct cay_template_options *options)
{
    static const struct {
        const char *name, *packages;
    } recipes[] = {
        {"code", "python3-numpy,python3-pandas,python3-matplotlib,python3-requests,"
                 "python3-pip,nodejs,node-typescript"},
        {"e2b-base", "bash,ca-certificates,curl,git,iproute2,procps,python3,python3-pip,"
                     "python3-venv,nodejs,sudo,wget"},
    };
    size_t i = 0, count = sizeof recipes / sizeof *recipes;

    while (i < count && strcmp(options->name, recipes[i].name) != 0)
        i++;
    if (i == count)
        return;
    if (!options->from && !options->source) {
        options->source = CAY_TEMPLATE_DEBOOTSTRAP;
        options->from = "bookworm";
    }
    if (options->source == CAY_TEMPLATE_DEBOOTSTRAP && !options->packages)
        options->packages = recipes[i].packages;
}

int template_create(const struct cay_template_options *options,
                    struct template_layers *layers, struct cay_error *err)
{
    struct cay_template_options known;
    char draft_name[NAME_MAX + 1], plain[TEMPLATE_NAME_MAX];

    int code = cay_take_struct(&known, sizeof known, options, op, err);
    if (!code)
        code = template_check_name(known.name, op, err);
    if (code)
        return code;
    known.name = template_plain_name(known.name, plain);
    AUTO_FD store = state_open("templates", true, err);
    if (store < 0)
        return store;
    use_recipe(&known);
    code = check(&known, store, err);
    if (code)
        return code;
    (void)template_sweep();
    struct template_draft draft = {.options = &known, .layers = layers, .root = -1};
    draft.dir = state_draft(store, ".new-", draft_name, err);
    if (draft.dir < 0)
        return draft.dir;
    code = known.source == CAY_TEMPLATE_IMAGE ? template_find_image(&draft, err) : CAY_OK;
    if (!code)
        code = geteuid() == 0 ? make(&draft, err) : make_as_user(&draft, err);
    if (!code && layers)
        code = layers->close_root(layers, &draft, err);
    if (!code)
        code = finish(&draft, store, draft_name, err);
    if (code)
        (void)state_remove_tree(store, draft_name, op, draft_name, NULL);
    (void)close(draft.dir);
    auto_close(&draft.root);
    template_info_done(&draft.info);
    return code;
}
