/* SPDX-License-Identifier: Apache-2.0 */
#include "session/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sys/path.h"

enum { FIRST_REST_NS = 50000, LAST_REST_NS = 10000000 };

int lock_open_file(int dir, const char *name, struct cay_error *err)
{
    int fd = dir < 0 ? memfd_create("cay-locks", MFD_CLOEXEC)
                     : openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    /* Whatever the umask. */
    if (dir >= 0 && fd >= 0)
        (void)!fchmod(fd, 0600);
    return fd < 0 ? cay_fail_errno(err, errno, "store.open", name) : fd;
}

static struct flock range(short type, uint64_t byte)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

/* 0, -ETIMEDOUT or another negative errno.  The kernel's own wait knows no deadline. */
static int take(int fd, uint64_t byte, uint64_t timeout_ms)
{
    struct flock lock = range(F_WRLCK, byte);
    struct timespec rest = {.tv_nsec = FIRST_REST_NS};
    uint64_t start = clock_ms();

    if (timeout_ms == UINT64_MAX) {
        while (fcntl(fd, F_OFD_SETLKW, &lock) != 0)
            if (errno != EINTR)
                return -errno;
        return 0;
    }
    while (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return -errno;
        if (clock_ms() - start >= timeout_ms)
            return -ETIMEDOUT;
        nanosleep(&rest, NULL);
        if (rest.tv_nsec < LAST_REST_NS)
            rest.tv_nsec *= 2;
    }
    return 0;
}

int lock_byte(const cay_store *store, const char *op, const char *subject, uint64_t byte,
              uint64_t timeout_ms, struct cay_error *err)
{
    AUTO_FD fd = path_reopen(store->locks, O_RDWR);

    if (fd < 0)
        return cay_fail_errno(err, -fd, op, subject);
    int error = take(fd, byte, timeout_ms);
    if (error == -ETIMEDOUT)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, subject,
                        "another process is starting, pausing or stopping this session",
                        "try again, or use a longer timeout");
    return error ? cay_fail_errno(err, -error, op, subject) : TAKE_FD(fd);
}

/* An OFD lock is shared by copies of the descriptor in forked children: unlock
 * explicitly. */
void lock_release(int fd, uint64_t byte)
{
    struct flock lock = range(F_UNLCK, byte);

    (void)fcntl(fd, F_OFD_SETLK, &lock);
    (void)close(fd);
}

static uint64_t byte_of(const char *user_id, const char *session_id)
{
    struct sha256_ctx context;
    uint8_t digest[8];
    uint64_t byte = 0;

    sha256_init(&context);
    sha256_update(&context, strlen(user_id) + 1, (const uint8_t *)user_id);
    sha256_update(&context, strlen(session_id), (const uint8_t *)session_id);
    sha256_digest(&context, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        byte = byte << 8 | digest[i];
    return (byte >> 2) + 1;
}

int cay_session_lock_take(cay_store *store, const char *user_id, const char *session_id,
                          uint64_t timeout_ms, cay_session_lock **ret_lock,
                          struct cay_error *err)
{
    static const char op[] = "session.lock";
    int code = store_check_ids(op, user_id, session_id, err);

    if (!code)
        code = store_check_owner(store, op, err);
    if (code)
        return code;
    cay_session_lock *lock = malloc(sizeof *lock);
    if (!lock)
        return cay_fail_memory(err, op);
    lock->byte = byte_of(user_id, session_id);
    lock->owner = getpid();
    lock->fd = lock_byte(store, op, session_id, lock->byte, timeout_ms, err);
    if (lock->fd < 0) {
        code = lock->fd;
        free(lock);
        return code;
    }
    *ret_lock = lock;
    return CAY_OK;
}

void cay_session_lock_free(cay_session_lock *lock)
{
    if (lock && lock->owner == getpid())
        lock_release(lock->fd, lock->byte);
    else if (lock) /* a copy, in a child */
        (void)close(lock->fd);
    free(lock);
}

void lock_leave_to_child(cay_session_lock *lock)
{
    if (lock)
        (void)close(lock->fd);
    free(lock);
}
