/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/output.h"

#define SMALL_MAX ((size_t)1 << 20)

static int fail_full(int sys_errno, const char *name, struct cay_error *err)
{
    if (sys_errno != ENOSPC && sys_errno != EDQUOT)
        return cay_fail_errno(err, sys_errno, "cli.input", name);
    return cay_fail(err, CAY_E_NO_SPACE, sys_errno, "cli.input", name,
                    "no space to buffer the input",
                    "free space for temporary files, or set TMPDIR to a directory "
                    "with free space");
}

/* 0 at the end, -1 with errno; else up to `len` bytes, fewer only at the end. */
static ssize_t read_fully(int fd, char *data, size_t len)
{
    size_t done = 0;

    while (done < len) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t got = read(fd, data + done, len - done);
        if (got == 0)
            break;
        if (got > 0)
            done += (size_t)got;
        else if (errno == EAGAIN) /* as in output_write() */
            (void)poll(&ready, 1, -1);
        else if (errno != EINTR)
            return -1;
    }
    return (ssize_t)done;
}

static int open_spool(void)
{
    const char *directory = getenv("TMPDIR");

    if (!directory || !*directory)
        directory = "/tmp";
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 ? fd : memfd_create("cay-input", MFD_CLOEXEC);
}

static int fail_limit(const char *name, uint64_t max, struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, "cli.input", name, "the input is too long",
                    "at most %llu bytes are accepted; append the rest, or import a tar",
                    (unsigned long long)max);
}

/* The small buffer is full: moves it and the rest of `fd` into a file and maps that. */
static int spool(int fd, const char *name, uint64_t max, struct input *input,
                 struct cay_error *err)
{
    AUTO_FD file = open_spool();
    AUTO_FREE char *piece = malloc(SMALL_MAX);
    uint64_t total = input->small.len;

    if (!piece)
        return cay_fail_memory(err, "cli.input");
    if (file < 0)
        return cay_fail_errno(err, errno, "cli.input", name);
    int failed = output_write(file, input->small.data, input->small.len);
    if (failed)
        return fail_full(failed, name, err);
    buf_done(&input->small);
    for (;;) {
        ssize_t got = read_fully(fd, piece, SMALL_MAX);
        if (got < 0)
            return cay_fail_errno(err, errno, "cli.input", name);
        if (got == 0)
            break;
        if ((uint64_t)got > max - total)
            return fail_limit(name, max, err);
        failed = output_write(file, piece, (size_t)got);
        if (failed)
            return fail_full(failed, name, err);
        total += (uint64_t)got;
    }
    void *map = mmap(NULL, total, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED)
        return cay_fail_errno(err, errno, "cli.input", name);
    input->data = input->map = map;
    input->len = total;
    return CAY_OK;
}

int input_read(int fd, const char *name, uint64_t max, struct input *ret_input,
               struct cay_error *err)
{
    struct input input = {.len = 0};

    buf_init(&input.small, SMALL_MAX);
    if (!buf_reserve(&input.small, SMALL_MAX))
        return cay_fail_memory(err, "cli.input");
    ssize_t got = read_fully(fd, input.small.data, SMALL_MAX);
    int rc = CAY_OK;
    if (got < 0) {
        rc = cay_fail_errno(err, errno, "cli.input", name);
    } else {
        input.small.len = (size_t)got;
        input.data = input.small.data;
        input.len = (size_t)got;
    }
    if (!rc && input.len > max)
        rc = fail_limit(name, max, err);
    else if (!rc && input.len == SMALL_MAX)
        rc = spool(fd, name, max, &input, err);
    if (rc)
        input_done(&input);
    else
        *ret_input = input;
    return rc;
}

void input_done(struct input *input)
{
    if (input->map)
        munmap(input->map, input->len);
    buf_done(&input->small);
    *input = (struct input){.len = 0};
}
