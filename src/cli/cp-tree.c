/* SPDX-License-Identifier: Apache-2.0 */
/* cay cp of directories and archives: both are tar streams between this process, which
 * works on the sandbox's files, and another that works on the host's. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/progress.h"

static const char op[] = "cli.copy";

/* The end of a copy on this machine.  It runs in a process of its own, so that both ends
 * of the tar stream work at the same time. */
struct side {
    int fd; /* our end of the pipe */
    int report;
    pid_t pid;
    bool sends;
};

/* What that process reports in the end. */
struct report {
    int32_t code;
    struct cay_error err;
    struct cay_tar_result result;
};

/* --- Directories --- */

static int open_files(const char *path, bool writable, cay_files **ret_files,
                      struct cay_error *err)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = CAY_STYLE_ROOT,
                                       .mounts = &mount,
                                       .mount_count = 1};
    cay_policy *policy;

    mount.host = path;
    mount.writable = writable;
    mount.write_approval = false;
    TRY(cay_policy_new(&config, &policy, err));
    int code = cay_files_open(policy, NULL, ret_files, err);
    cay_policy_free(policy);
    return code && err->sys_errno ? cay_fail_errno(err, err->sys_errno, op, path) : code;
}

/* The library calls the directory "/": put the caller's path into the error. */
static int spell(const char *path, int code, struct cay_error *err)
{
    AUTO_BUF whole;
    int len = (int)strlen(path);

    buf_init(&whole, 64 << 10);
    if (!code || *err->subject != '/')
        return code;
    while (len && path[len - 1] == '/')
        len--;
    bool is_below =
        err->subject[1] && buf_format(&whole, "%.*s%s", len, path, err->subject);
    cay_copy_text(err->subject, sizeof err->subject, is_below ? whole.data : path);
    return code;
}

/* --- The process --- */

_Noreturn static void run_side(const char *path, bool sends, int fd, int report_fd)
{
    struct report report = {.code = 0};
    cay_files *files = NULL;
    int code = open_files(path, !sends, &files, &report.err);

    if (!code)
        code = spell(
            path,
            sends ? cay_files_export(files, "/", fd, NULL, &report.result, &report.err)
                  : cay_files_import(files, "/", fd, NULL, &report.result, &report.err),
            &report.err);
    cay_files_free(files);
    report.code = code;
    (void)output_write(report_fd, &report, sizeof report);
    _exit(0);
}

static void ignore_signal(int number)
{
    (void)number;
}

/* `path` is on this machine, as the caller spelled it. */
static int start(const char *path, bool sends, struct side *ret_side,
                 struct cay_error *err)
{
    /* If one side fails, the other gets EPIPE instead of SIGPIPE. */
    struct sigaction ignored = {.sa_handler = ignore_signal};
    int data[2] = {-1, -1}, report[2] = {-1, -1};

    sigaction(SIGPIPE, &ignored, NULL);
    if (pipe2(data, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    if (pipe2(report, O_CLOEXEC) != 0) {
        int saved = errno;
        (void)close(data[0]);
        (void)close(data[1]);
        return cay_fail_errno(err, saved, op, "pipe");
    }
    (void)fflush(NULL);
    /* allow: fork both ends of the copy are functions of the library's */
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(data[sends ? 0 : 1]);
        (void)close(report[0]);
        run_side(path, sends, data[sends ? 1 : 0], report[1]);
    }
    int saved = errno;
    (void)close(report[1]);
    (void)close(data[sends ? 1 : 0]);
    *ret_side = (struct side){data[sends ? 0 : 1], report[0], pid, sends};
    if (pid > 0)
        return CAY_OK;
    (void)close(ret_side->fd);
    (void)close(ret_side->report);
    return cay_fail_errno(err, saved, op, "process");
}

/* Waits for the end of the process.  `code` and *err are the outcome of this side; if the
 * other one failed first, its error is returned. */
static int finish(struct side *side, int code, uint64_t *skipped, struct cay_error *err)
{
    struct report report;

    (void)close(side->fd);
    ssize_t got = read(side->report, &report, sizeof report);
    (void)close(side->report);
    while (waitpid(side->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (got != sizeof report)
        return code ? code
                    : cay_fail(err, CAY_E_KILLED, 0, op, "copy",
                               "the copying process was killed", "try again");
    /* When a side fails its reader finds the archive broken, and its writer the pipe:
     * neither is the cause. */
    bool is_cause =
        !code || (side->sends ? report.err.sys_errno != EPIPE : err->sys_errno == EPIPE);
    if (report.code && is_cause) {
        *err = report.err;
        return report.code;
    }
    *skipped += report.result.skipped;
    return code;
}

/* --- The calls --- */

int cp_send_archive(cay_files *files, int fd, const char *target, struct cay_error *err)
{
    struct cay_tar_result result = {0};
    int code = cay_files_import(files, target, fd, NULL, &result, err);

    if (!code)
        progress_skipped(result.skipped);
    return code;
}

static int write_archive(cay_files *files, const char *source, struct cay_error *err)
{
    const struct cay_tar_options whole = {.size = sizeof whole, .flags = CAY_TAR_WHOLE};
    struct cay_tar_result result = {0};
    int code = cay_files_export(files, source, STDOUT_FILENO, &whole, &result, err);

    if (!code && result.skipped)
        fprintf(stderr, "cay: note: %llu sockets and devices were skipped\n",
                (unsigned long long)result.skipped);
    return code;
}

static int copy_dir(cay_files *files, const char *inside, const char *path, bool sends,
                    struct cay_error *err)
{
    struct cay_tar_result result = {0};
    struct side side = {.fd = -1};

    TRY(start(path, sends, &side, err));
    int code = sends ? cay_files_import(files, inside, side.fd, NULL, &result, err)
                     : cay_files_export(files, inside, side.fd, NULL, &result, err);
    code = finish(&side, code, &result.skipped, err);
    if (!code)
        progress_skipped(result.skipped);
    return code;
}

int cp_send_dir(cay_files *files, const char *source, const char *target,
                struct cay_error *err)
{
    return copy_dir(files, target, source, true, err);
}

int cp_receive_dir(cay_files *files, const char *source, const char *target,
                   struct cay_error *err)
{
    return strcmp(target, "-") == 0 ? write_archive(files, source, err)
                                    : copy_dir(files, source, target, false, err);
}
