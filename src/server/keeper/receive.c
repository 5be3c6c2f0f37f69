/* SPDX-License-Identifier: Apache-2.0 */

/* Receives the files of a build, in a keeper without a sandbox, which exits afterwards.
 * The front writes them to a file without a name; it gets its name when the front reports
 * that it is complete and has closed it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"
#include "sys/state-home.h"

static const char op[] = "server.upload";

enum { UPLOAD_MS = 3600 * 1000, KEEP_S = 24 * 3600, LEASE_TRIES = 100, FREE_MIB = 512 };

static int open_directory(const struct keeper *keeper, const char *tenant,
                          struct cay_error *err)
{
    char path[PATH_MAX + 64], name[64];

    snprintf(path, sizeof path, "%s/" KEEPER_UPLOADS, keeper->options->home);
    (void)state_home_make(AT_FDCWD, path);
    snprintf(path, sizeof path, "%s/" KEEPER_UPLOADS "/%s", keeper->options->home,
             tenant);
    (void)state_home_make(AT_FDCWD, path);
    snprintf(name, sizeof name, KEEPER_UPLOADS "/%s", tenant);
    state_home_sweep(name, KEEP_S);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? cay_fail_errno(err, errno, op, "uploads") : dir;
}

static int fail_full(struct cay_error *err)
{
    return cay_fail(err, CAY_E_NO_SPACE, 0, op, NULL, "Not enough disk space available",
                    "free some space");
}

static int check_space(int dir, int64_t length, struct cay_error *err)
{
    struct statvfs space;

    if (length < 0 || length > UPLOAD_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "the files are too large",
                        "the limit is 4 GiB");
    if (fstatvfs(dir, &space) == 0 && (uint64_t)space.f_bavail * space.f_frsize <
                                          (uint64_t)length + ((uint64_t)FREE_MIB << 20))
        return fail_full(err);
    return CAY_OK;
}

/* Uploads at the same time must not fill the disk together. */
static int reserve(int file, int64_t length, struct cay_error *err)
{
    if (fallocate(file, FALLOC_FL_KEEP_SIZE, 0, length) == 0 || errno == EOPNOTSUPP)
        return CAY_OK;
    return errno == ENOSPC ? fail_full(err) : cay_fail_errno(err, errno, op, "uploads");
}

/* A read lease is granted only if no process has the file open for writing. */
static int open_closed(int *file, struct cay_error *err)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", *file);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    (void)close(*file);
    *file = again;
    for (int i = 0; again >= 0 && i < LEASE_TRIES; i++) {
        if (fcntl(again, F_SETLEASE, F_RDLCK) == 0) {
            (void)fcntl(again, F_SETLEASE, F_UNLCK);
            return CAY_OK;
        }
        (void)poll(NULL, 0, TICK_MS);
    }
    return cay_fail(err, CAY_E_BUSY, 0, op, NULL, "the upload is still written",
                    "upload the files again");
}

/* Waits for the front; false if it has hung up before the end. */
static bool is_complete(int channel, int file, int64_t length)
{
    struct pollfd waiting = {.fd = channel, .events = POLLIN};
    struct upload_step step;
    struct stat st;

    return poll(&waiting, 1, UPLOAD_MS) == 1 &&
           recv(channel, &step, sizeof step, MSG_DONTWAIT) == (ssize_t)sizeof step &&
           step.bytes == 0 && fstat(file, &st) == 0 && st.st_size == length;
}

static int publish(int dir, int file, const char *hash, struct cay_error *err)
{
    char path[32], draft[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    snprintf(draft, sizeof draft, ".new-%d", (int)getpid());
    (void)unlinkat(dir, draft, 0);
    if (linkat(AT_FDCWD, path, dir, draft, AT_SYMLINK_FOLLOW) != 0 ||
        renameat(dir, draft, dir, hash) != 0)
        return cay_fail_errno(err, errno, op, "uploads");
    return CAY_OK;
}

static int receive(const struct keeper *keeper, const struct keeper_request *request,
                   struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_FILE};
    int64_t length = request->head.numbers[UPLOAD_LENGTH];
    AUTO_FD dir = open_directory(keeper, request->strings[0], err);

    if (dir < 0)
        return TAKE_FD(dir);
    TRY(check_space(dir, length, err));
    AUTO_FD file = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0)
        return cay_fail_errno(err, errno, op, "uploads");
    TRY(reserve(file, length, err));
    (void)reply_send(request->channel, &reply, NULL, file);
    if (!is_complete(request->channel, file, length))
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "the upload is incomplete",
                        "upload the files again");
    TRY(open_closed(&file, err));
    return publish(dir, file, request->strings[1], err);
}

int keeper_op_upload(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    if (receive(keeper, request, err) != CAY_OK)
        (void)reply_send_error(request->channel, 0, err);
    else
        (void)reply_send_done(request->channel);
    _exit(0);
}
