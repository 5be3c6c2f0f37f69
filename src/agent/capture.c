/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/capture.h"

#include <errno.h>
#include <unistd.h>

#include "agent/transfer.h"
#include "base/auto.h"
#include "base/error.h"
#include "cay/backend.h"

#define SPOOL_MAX (256ull << 20)

static const char op[] = "command.output";

void capture_init(struct capture *capture, cay_sandbox *sandbox, const char *user,
                  const char *command)
{
    *capture = (struct capture){.sandbox = sandbox, .user = user, .command = command};
    for (int i = 0; i < 2; i++) {
        tail_init(&capture->streams[i].tail, OUTPUT_MAX);
        capture->streams[i].spool = -1;
    }
}

void capture_done(struct capture *capture)
{
    for (int i = 0; i < 2; i++) {
        tail_done(&capture->streams[i].tail);
        if (capture->streams[i].spool >= 0)
            (void)close(capture->streams[i].spool);
    }
    userfs_close(&capture->fs);
    results_done(&capture->results);
}

/* The files' directory, once it is needed. */
static int open_results(struct capture *capture, struct cay_error *err)
{
    int code = CAY_OK;

    if (!capture->fs.sandbox)
        code = userfs_open(capture->sandbox, capture->user, &capture->fs, err);
    if (!code && !capture->results.dir)
        code = results_new(&capture->fs, &capture->results, err);
    return code;
}

/* --- While it runs --------------------------------------------------------------------
 */

static int append_inside(struct capture *capture, int stream, const char *data,
                         size_t len, struct cay_error *err)
{
    int code = open_results(capture, err);

    return code ? code
                : userfs_write(&capture->fs, capture->results.files[stream], data, len,
                               CAY_WRITE_APPEND, NULL, err);
}

static int append_here(struct capture *capture, int stream, const char *data, size_t len,
                       struct cay_error *err)
{
    int *spool = &capture->streams[stream].spool;

    if (*spool < 0)
        *spool = transfer_spool("/tmp");
    if (*spool < 0)
        return cay_fail_errno(err, errno, op, "spool");
    if (capture->streams[stream].total + len > SPOOL_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "of this kind of sandbox at most 256 MiB of a stream are kept",
                        "write the output to a file inside");
    while (len) {
        ssize_t put = write(*spool, data, len);
        if (put < 0 && errno != EINTR)
            return cay_fail_errno(err, errno, op, "spool");
        data += put > 0 ? put : 0;
        len -= put > 0 ? (size_t)put : 0;
    }
    return CAY_OK;
}

static void append(struct capture *capture, int stream, const char *data, size_t len)
{
    bool is_near = cay_sandbox_backend(capture->sandbox)->open_files;

    if (capture->failure.code || !len)
        return;
    int code = is_near ? append_inside(capture, stream, data, len, &capture->failure)
                       : append_here(capture, stream, data, len, &capture->failure);
    capture->streams[stream].is_kept = code == CAY_OK;
    /* Half of it is of no use, and may be what fills the disk. */
    if (code && capture->results.dir)
        (void)!userfs_remove(&capture->fs, capture->results.dir, NULL);
}

int capture_take(void *cookie, int stream, const void *data, size_t len)
{
    struct capture *capture = cookie;
    struct tail *tail = &capture->streams[stream - 1].tail;

    if (capture->streams[stream - 1].total + len > OUTPUT_MAX) {
        /* Nothing was dropped yet, so the tail is all there was, in order. */
        if (!capture->streams[stream - 1].is_kept && !tail->dropped)
            append(capture, stream - 1, tail->data, tail->len);
        append(capture, stream - 1, data, len);
    }
    capture->streams[stream - 1].total += len;
    if (tail_add(tail, data, len))
        return 0;
    capture->no_memory = true;
    return 1;
}

/* --- When it has ended ----------------------------------------------------------------
 */

static int keep_stream(struct capture *capture, const struct output *output, int stream,
                       struct cay_error *err)
{
    struct userfs *fs = &capture->fs;
    const struct raw *raw = &output->raw[stream];
    const char *file = capture->results.files[stream];
    int spool = capture->streams[stream].spool;

    if (spool < 0 && capture->streams[stream].is_kept)
        return CAY_OK;
    if (spool < 0)
        return userfs_write(fs, file, raw->data, raw->len, 0, NULL, err);
    if (lseek(spool, 0, SEEK_SET) < 0)
        return cay_fail_errno(err, errno, op, "spool");
    return userfs_write_from(fs, file, spool, 0, NULL, err);
}

static int keep(void *cookie, struct output *output, struct cay_error *err)
{
    struct capture *capture = cookie;

    if (capture->failure.code) {
        if (err)
            *err = capture->failure;
        return capture->failure.code;
    }
    int code = open_results(capture, err);
    if (!code && capture->command)
        code = results_keep_command(&capture->fs, &capture->results, capture->command,
                                    NULL, err);
    for (int i = 0; !code && i < 2; i++)
        code = keep_stream(capture, output, i, err);
    if (code && capture->results.dir)
        (void)!userfs_remove(&capture->fs, capture->results.dir, NULL);
    if (code)
        return code;
    output->fs = &capture->fs;
    output->results = &capture->results;
    return CAY_OK;
}

int capture_output(struct capture *capture, struct output *ret_output,
                   struct cay_error *err)
{
    *ret_output = (struct output){.keep = keep, .cookie = capture};
    for (int i = 0; i < 2; i++) {
        struct raw *raw = &ret_output->raw[i];
        raw->total = capture->streams[i].total;
        raw->data = tail_take(&capture->streams[i].tail, &raw->len);
        if (!raw->data) {
            output_done(ret_output);
            return cay_fail_memory(err, op);
        }
    }
    return CAY_OK;
}
