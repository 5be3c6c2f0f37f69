/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/libarchive.h"
#include "files/tar.h"
#include "sys/library.h"
#include "sys/worker.h"

enum { INPUT_SIZE = 64 << 10, WORKER_MEMORY = 256 << 20, WORKER_SECONDS = 3600 };

struct libarchive libarchive;

int libarchive_load(const char *op, struct cay_error *err)
{
    static const struct library_call calls[] = {
#define X(name) LIBRARY_CALL(struct libarchive, name),
        LIBARCHIVE_CALLS(X)
#undef X
    };
    static struct library library = {.file = "libarchive.so.13",
                                     .calls = calls,
                                     .call_count = sizeof calls / sizeof *calls,
                                     .table = &libarchive,
                                     .mutex = PTHREAD_MUTEX_INITIALIZER};

    return library_load(&library) ? CAY_OK
                                  : cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "libarchive",
                                             "the library for archives is not installed",
                                             "install it: apt-get install libarchive13");
}

/* --- In the confined process -----------------------------------------------------------
 */

struct reading {
    const struct tar_reader *reader;
    bool input_failed;
    bool stopped; /* the receiver is gone */
    char input[INPUT_SIZE];
    char message[TAR_MESSAGE_MAX];
};

static bool send_frame(struct reading *reading, const struct tar_frame *frame,
                       const void *first, const void *second, size_t second_len)
{
    size_t first_len = frame->path_len;

    memcpy(reading->message, frame, sizeof *frame);
    if (first_len)
        memcpy(reading->message + sizeof *frame, first, first_len);
    if (second_len)
        memcpy(reading->message + sizeof *frame + first_len, second, second_len);
    reading->stopped = !reading->reader->send(reading->reader->cookie, reading->message,
                                              sizeof *frame + first_len + second_len);
    return !reading->stopped;
}

static bool send_plain(struct reading *reading, enum tar_kind kind, uint32_t detail)
{
    struct tar_frame frame = {.kind = kind, .detail = detail};

    return send_frame(reading, &frame, "", "", 0);
}

static la_ssize_t feed(struct archive *archive, void *cookie, const void **ret_data)
{
    struct reading *reading = cookie;
    ssize_t len =
        reading->reader->read(reading->reader->cookie, reading->input, INPUT_SIZE);

    *ret_data = reading->input;
    if (len < 0) {
        reading->input_failed = true;
        libarchive.archive_set_error(archive, EIO, "input");
    }
    return len;
}

static bool open_archive(struct reading *reading, struct archive *archive)
{
    if (reading->reader->any_compression &&
        (libarchive.archive_read_support_filter_bzip2(archive) != ARCHIVE_OK ||
         libarchive.archive_read_support_filter_xz(archive) != ARCHIVE_OK ||
         libarchive.archive_read_support_filter_zstd(archive) != ARCHIVE_OK))
        return false;
    return libarchive.archive_read_support_filter_gzip(archive) == ARCHIVE_OK &&
           (reading->reader->only_expands
                ? libarchive.archive_read_support_format_raw(archive)
                : libarchive.archive_read_support_format_tar(archive)) == ARCHIVE_OK &&
           libarchive.archive_read_open(archive, reading, NULL, feed, NULL) == ARCHIVE_OK;
}

static bool send_data(struct reading *reading, const char *data, size_t len,
                      int64_t offset)
{
    while (len) {
        size_t piece = len < TAR_DATA_MAX ? len : TAR_DATA_MAX;
        struct tar_frame frame = {.kind = TAR_DATA, .size = (uint64_t)offset};
        if (!send_frame(reading, &frame, "", data, piece))
            return false;
        data += piece;
        len -= piece;
        offset += (int64_t)piece;
    }
    return true;
}

/* False if the archive is damaged or the receiver is gone.  The parts of a sparse file
 * may claim any offset. */
static bool send_content(struct reading *reading, struct archive *archive, int64_t size)
{
    int64_t end = 0;

    for (;;) {
        const void *data;
        size_t len;
        int64_t offset;
        int result = libarchive.archive_read_data_block(archive, &data, &len, &offset);
        if (result == ARCHIVE_EOF)
            return send_plain(reading, TAR_FILE_END, 0);
        if (result != ARCHIVE_OK || offset < end || offset > size ||
            len > (uint64_t)(size - offset) || !send_data(reading, data, len, offset))
            return false;
        end = offset + (int64_t)len;
    }
}

static enum tar_kind kind_of(struct archive_entry *entry, const char *path,
                             const char *target)
{
    if (!path || strlen(path) > TAR_PATH_MAX || (target && strlen(target) > TAR_PATH_MAX))
        return TAR_SPECIAL;
    if (libarchive.archive_entry_hardlink(entry))
        return TAR_HARD_LINK;
    switch (libarchive.archive_entry_filetype(entry)) {
    case AE_IFREG:
        return TAR_FILE;
    case AE_IFDIR:
        return TAR_DIRECTORY;
    case AE_IFLNK:
        return target ? TAR_LINK : TAR_SPECIAL;
    default:
        return TAR_SPECIAL;
    }
}

static uint16_t clamp_id(int64_t id)
{
    return id >= 0 && id <= UINT16_MAX ? (uint16_t)id : TAR_NOBODY;
}

static bool send_entry(struct reading *reading, struct archive *archive,
                       struct archive_entry *entry)
{
    const char *path = libarchive.archive_entry_pathname(entry);
    const char *target = libarchive.archive_entry_hardlink(entry);
    if (!target)
        target = libarchive.archive_entry_symlink(entry);
    struct tar_frame frame = {.kind = kind_of(entry, path, target)};

    if (frame.kind == TAR_SPECIAL)
        return send_frame(reading, &frame, "", "", 0);
    bool is_link = frame.kind == TAR_LINK || frame.kind == TAR_HARD_LINK;
    frame.detail = libarchive.archive_entry_perm(entry);
    frame.uid = clamp_id(libarchive.archive_entry_uid(entry));
    frame.gid = clamp_id(libarchive.archive_entry_gid(entry));
    if (frame.kind == TAR_FILE && !reading->reader->names_only)
        frame.size = (uint64_t)libarchive.archive_entry_size(entry);
    frame.mtime = libarchive.archive_entry_mtime(entry);
    frame.mtime_ns = (uint32_t)libarchive.archive_entry_mtime_nsec(entry);
    frame.path_len = (uint32_t)strlen(path);
    frame.link_len = is_link ? (uint32_t)strlen(target) : 0;
    return send_frame(reading, &frame, path, is_link ? target : "", frame.link_len) &&
           (frame.kind != TAR_FILE ||
            (reading->reader->names_only
                 ? send_plain(reading, TAR_FILE_END, 0)
                 : send_content(reading, archive, (int64_t)frame.size)));
}

static enum tar_defect defect_of(const struct reading *reading, struct archive *archive,
                                 bool has_begun)
{
    return libarchive.archive_errno(archive) == ENOMEM ? TAR_NO_MEMORY
           : reading->input_failed                     ? TAR_UNREADABLE
           : has_begun                                 ? TAR_DAMAGED
                                                       : TAR_NOT_TAR;
}

static void read_archive(struct reading *reading, struct archive *archive)
{
    bool has_begun = false;

    for (;;) {
        struct archive_entry *entry;
        int result = libarchive.archive_read_next_header(archive, &entry);
        if (result == ARCHIVE_EOF) {
            send_plain(reading, TAR_END, 0);
            return;
        }
        /* A warning is about owners or character sets: the entry itself is valid. */
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            break;
        has_begun = true;
        if (!send_entry(reading, archive, entry))
            break;
    }
    if (!reading->stopped)
        send_plain(reading, TAR_BROKEN, defect_of(reading, archive, has_begun));
}

/* The whole input is one entry of the format "raw". */
static void expand(struct reading *reading, struct archive *archive)
{
    struct archive_entry *entry;
    const void *data;
    size_t len;
    int64_t offset;
    int result = libarchive.archive_read_next_header(archive, &entry);
    bool has_begun = result == ARCHIVE_OK;

    while (result == ARCHIVE_OK) {
        result = libarchive.archive_read_data_block(archive, &data, &len, &offset);
        if (result == ARCHIVE_OK && !send_data(reading, data, len, offset))
            return;
    }
    if (result == ARCHIVE_EOF && has_begun)
        send_plain(reading, TAR_END, 0);
    else
        send_plain(reading, TAR_BROKEN, defect_of(reading, archive, has_begun));
}

void tar_read(const struct tar_reader *reader)
{
    struct tar_frame no_memory = {.kind = TAR_BROKEN, .detail = TAR_NO_MEMORY};
    AUTO_FREE struct reading *reading = malloc(sizeof *reading);
    struct archive *archive = libarchive.archive_read_new();

    if (!reading || !archive) {
        reader->send(reader->cookie, &no_memory, sizeof no_memory);
        libarchive.archive_read_free(archive);
        return;
    }
    reading->reader = reader;
    reading->input_failed = reading->stopped = false;
    if (!open_archive(reading, archive))
        send_plain(reading, TAR_BROKEN, defect_of(reading, archive, false));
    else if (libarchive.archive_filter_count(archive) > 2) /* tar itself counts as one */
        send_plain(reading, TAR_BROKEN, TAR_COMPRESSED_TWICE);
    else if (reader->only_expands)
        expand(reading, archive);
    else
        read_archive(reading, archive);
    libarchive.archive_read_free(archive);
}

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

struct worker_reading {
    locale_t locale;
    struct tar_reader reader;
};

static void run_reader(void *cookie)
{
    const struct worker_reading *reading = cookie;

    if (reading->locale)
        uselocale(reading->locale);
    tar_read(&reading->reader);
}

/* --- In our process -------------------------------------------------------------------
 */

static int fail_dead(const char *op, struct cay_error *err)
{
    return cay_fail(err, CAY_E_KILLED, 0, op, NULL,
                    "the process that reads the archive died",
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
        TRY(tar_filter_take(filter, input->op, message, (size_t)len, &item, err));
        TRY(input->take(input->cookie, &item, err));
        if (item.kind == TAR_END)
            return CAY_OK;
    }
}

static int start(const char *op, int fd, struct worker_reading *reading,
                 struct worker *ret_worker, struct cay_error *err)
{
    struct worker_job job = {.run = run_reader,
                             .cookie = reading,
                             .input = fd,
                             .memory = WORKER_MEMORY,
                             .cpu_seconds = WORKER_SECONDS};

    TRY(libarchive_load(op, err));
    return worker_start(op, &job, ret_worker, err);
}

int tar_receive(const struct tar_input *input, struct tar_filter *filter,
                struct cay_error *err)
{
    AUTO_LOCALE locale = tar_locale_new();
    struct worker_reading reading = {.locale = locale,
                                     .reader = {.read = read_input,
                                                .send = send_message,
                                                .any_compression = input->any_compression,
                                                .names_only = input->names_only}};
    AUTO_WORKER worker = WORKER_NONE;

    TRY(start(input->op, input->fd, &reading, &worker, err));
    return take_all(input, &worker, filter, err);
}

int tar_expand(const char *op, int fd, tar_take_bytes *take, void *cookie,
               struct cay_error *err)
{
    struct worker_reading reading = {.reader = {.read = read_input,
                                                .send = send_message,
                                                .any_compression = true,
                                                .only_expands = true}};
    AUTO_FREE char *message = malloc(TAR_MESSAGE_MAX + 1);
    AUTO_FREE struct tar_filter *filter = calloc(1, sizeof *filter);
    AUTO_WORKER worker = WORKER_NONE;
    struct tar_frame frame = {0};
    struct tar_item item;

    if (!message || !filter)
        return cay_fail_memory(err, op);
    filter->is_root = true;
    TRY(start(op, fd, &reading, &worker, err));
    for (;;) {
        ssize_t len = read(worker.channel, message, TAR_MESSAGE_MAX + 1);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0)
            return fail_dead(op, err);
        bool has_data = (size_t)len > sizeof frame && len <= (ssize_t)TAR_MESSAGE_MAX;
        if (has_data)
            memcpy(&frame, message, sizeof frame);
        if (has_data && frame.kind == TAR_DATA) {
            TRY(take(cookie, message + sizeof frame, (size_t)len - sizeof frame, err));
            continue;
        }
        /* The end, a defect, or nothing that an expansion may send: no entry passes,
         * since the filter allows none. */
        TRY(tar_filter_take(filter, op, message, (size_t)len, &item, err));
        if (item.kind == TAR_END)
            return CAY_OK;
    }
}
