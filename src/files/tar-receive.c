/* SPDX-License-Identifier: Apache-2.0 */
#include "files/tar-receive.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/libarchive.h"
#include "files/tar-options.h"
#include "files/tar-reader.h"
#include "sys/worker.h"

enum { WORKER_MEMORY = 256 << 20, WORKER_SECONDS = 3600 };

/* --- In the confined process ---------------------------------------------------------
 */

static ssize_t read_input(void *cookie, void *data, size_t len)
{
    struct pollfd input = {.fd = WORKER_INPUT, .events = POLLIN};

    (void)cookie;
    for (;;) {
        ssize_t got = read(WORKER_INPUT, data, len);
        if (got >= 0 || (errno != EINTR && errno != EAGAIN))
            return got;
        if (errno == EAGAIN)
            (void)poll(&input, 1, -1);
    }
}

static bool send_message(void *cookie, const void *message, size_t len)
{
    ssize_t sent;

    (void)cookie;
    do
        sent = write(WORKER_CHANNEL, message, len);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)len;
}

struct reading {
    locale_t locale;
    struct tar_reader reader;
};

static void read_archive(void *cookie)
{
    const struct reading *reading = cookie;

    if (reading->locale)
        uselocale(reading->locale);
    tar_read(&reading->reader);
}

/* --- In ours -------------------------------------------------------------------------
 */

static int fail_dead(const char *op, struct cay_error *err)
{
    return cay_fail(err, CAY_E_KILLED, 0, op, NULL,
                    "the process that reads the archive died before its end",
                    "the archive may need more than %d MiB of memory to read: split it",
                    WORKER_MEMORY >> 20);
}

static int take_all(const struct tar_input *input, const struct worker *worker,
                    struct tar_filter *filter, struct cay_error *err)
{
    AUTO_FREE char *message = malloc(TAR_MESSAGE_MAX + 1);
    struct tar_item item;

    if (!message)
        return cay_fail_memory(err, input->op);
    for (;;) {
        ssize_t len = read(worker->channel, message, TAR_MESSAGE_MAX + 1);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0)
            return fail_dead(input->op, err);
        int code = tar_filter_take(filter, input->op, message, (size_t)len, &item, err);
        if (!code)
            code = input->take(input->cookie, &item, err);
        if (code || item.kind == TAR_END)
            return code;
    }
}

int tar_receive(const struct tar_input *input, struct tar_filter *filter,
                struct cay_error *err)
{
    AUTO_LOCALE locale = tar_locale_new();
    struct reading reading = {.locale = locale,
                              .reader = {.read = read_input,
                                         .send = send_message,
                                         .any_compression = input->any_compression,
                                         .names_only = input->names_only}};
    struct worker_job job = {.run = read_archive,
                             .cookie = &reading,
                             .input = input->fd,
                             .memory = WORKER_MEMORY,
                             .cpu_seconds = WORKER_SECONDS};
    AUTO_WORKER worker = WORKER_NONE;

    int code = libarchive_load(input->op, err);
    if (!code)
        code = worker_start(input->op, &job, &worker, err);
    return code ? code : take_all(input, &worker, filter, err);
}
