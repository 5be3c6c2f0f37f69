/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/local-side.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/input.h"
#include "cli/output.h"

static const char op[] = "cli.copy";

enum { BLOCK = 512, NAME_ROOM = 100, PIECE = 256 << 10, SMALL_MAX = 1 << 20 };
#define MOST (UINT64_C(1) << 40)

/* What the process is to do, and what it says in the end. */
struct job {
    int (*run)(const struct job *job, int fd, struct cay_tar_result *result,
               struct cay_error *err);
    const char *path; /* on this machine, as the caller spelled it */
    const char *name; /* of the file in the archive */
    int file;
};

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
    int code = cay_policy_new(&config, &policy, err);
    if (code)
        return code;
    code = cay_files_open(policy, NULL, ret_files, err);
    cay_policy_free(policy);
    return code && err->sys_errno ? cay_fail_errno(err, err->sys_errno, op, path) : code;
}

/* The library knows the directory as "/"; the caller called it something else. */
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

static int send_dir(const struct job *job, int fd, struct cay_tar_result *result,
                    struct cay_error *err)
{
    cay_files *files;
    int code = open_files(job->path, false, &files, err);

    if (code)
        return code;
    code = cay_files_export(files, "/", fd, NULL, result, err);
    cay_files_free(files);
    return spell(job->path, code, err);
}

static int receive(const struct job *job, int fd, struct cay_tar_result *result,
                   struct cay_error *err)
{
    cay_files *files;
    int code = open_files(job->path, true, &files, err);

    if (code)
        return code;
    code = cay_files_import(files, "/", fd, NULL, result, err);
    cay_files_free(files);
    return spell(job->path, code, err);
}

/* --- One file as an archive: its content, mode and time --- */

struct header { /* POSIX ustar */
    char name[NAME_ROOM], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type,
        link[100], magic[6], version[2], owner[32], group[32], device[16], prefix[155],
        rest[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header is one block");

static void fill_header(struct header *header, const char *name, char type, uint64_t size,
                        const struct stat *st)
{
    size_t len = strlen(name);
    unsigned sum = 0;

    *header = (struct header){.type = type, .magic = "ustar", .version = {'0', '0'}};
    memcpy(header->name, name, len < NAME_ROOM ? len : NAME_ROOM);
    snprintf(header->mode, sizeof header->mode, "%07o", st->st_mode & 0777u);
    snprintf(header->size, sizeof header->size, "%011llo",
             (unsigned long long)size & 077777777777ULL);
    snprintf(header->mtime, sizeof header->mtime, "%011llo",
             st->st_mtime > 0 ? (unsigned long long)st->st_mtime & 077777777777ULL : 0);
    memset(header->checksum, ' ', sizeof header->checksum);
    for (size_t i = 0; i < sizeof *header; i++)
        sum += ((const unsigned char *)header)[i];
    snprintf(header->checksum, sizeof header->checksum, "%06o", sum);
}

/* "LEN KEY=VALUE\n", where LEN counts itself. */
static void add_record(struct buf *buf, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3, len = rest + 1;
    char digits[24];

    while ((size_t)snprintf(digits, sizeof digits, "%zu", len) + rest != len)
        len = (size_t)snprintf(digits, sizeof digits, "%zu", len) + rest;
    buf_format(buf, "%zu %s=%s\n", len, key, value);
}

/* What has no room in the old header goes into a pax one before it. */
static int write_headers(int fd, const char *name, const struct stat *st)
{
    static const char zeros[BLOCK];
    struct header header;
    char size[24];
    AUTO_BUF records;
    int failed = 0;

    buf_init(&records, 64 << 10);
    snprintf(size, sizeof size, "%llu", (unsigned long long)st->st_size);
    if (strlen(name) > NAME_ROOM || st->st_size > 077777777777LL) {
        add_record(&records, "path", name);
        add_record(&records, "size", size);
        if (records.failed)
            return ENAMETOOLONG;
        fill_header(&header, "pax", 'x', records.len, st);
        failed = output_write(fd, &header, sizeof header);
        if (!failed)
            failed = output_write(fd, records.data, records.len);
        if (!failed)
            failed = output_write(fd, zeros, (BLOCK - records.len % BLOCK) % BLOCK);
    }
    fill_header(&header, name, '0', (uint64_t)st->st_size, st);
    return failed ? failed : output_write(fd, &header, sizeof header);
}

static int send_large(const struct job *job, int fd, uint64_t size, struct cay_error *err)
{
    AUTO_FREE char *piece = malloc(PIECE);
    int failed = 0;

    if (!piece)
        return cay_fail_memory(err, op);
    while (size && !failed) {
        ssize_t got = read(job->file, piece, size < PIECE ? (size_t)size : PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cay_fail_errno(err, errno, op, job->path);
        if (got == 0)
            return cay_fail(err, CAY_E_CHANGED, 0, op, job->path,
                            "the file became shorter while it was copied",
                            "copy it again when nobody changes it");
        size -= (uint64_t)got;
        failed = output_write(fd, piece, (size_t)got);
    }
    return failed ? cay_fail_errno(err, failed, op, "pipe") : CAY_OK;
}

static int send_file(const struct job *job, int fd, struct cay_tar_result *result,
                     struct cay_error *err)
{
    static const char zeros[3 * BLOCK]; /* the padding, and the end of the archive */
    struct input input = {.len = 0};
    struct stat st;

    if (fstat(job->file, &st) != 0)
        return cay_fail_errno(err, errno, op, job->path);
    /* The files of /proc and /sys do not tell their size: what seems to be small is read
     * before its size is told. */
    bool is_large = st.st_size > SMALL_MAX;
    int code = is_large ? CAY_OK : input_read(job->file, job->path, MOST, &input, err);
    if (code)
        return code;
    if (!is_large)
        st.st_size = (off_t)input.len;
    uint64_t size = (uint64_t)st.st_size;
    int failed = write_headers(fd, job->name, &st);
    if (!failed && is_large)
        code = send_large(job, fd, size, err);
    else if (!failed)
        failed = output_write(fd, input.data, input.len);
    if (!failed && !code)
        failed =
            output_write(fd, zeros, (size_t)(BLOCK - size % BLOCK) % BLOCK + 2 * BLOCK);
    input_done(&input);
    *result = (struct cay_tar_result){.entries = 1, .bytes = size};
    return failed ? cay_fail_errno(err, failed, op, job->path) : code;
}

/* --- The process --- */

_Noreturn static void run_job(const struct job *job, int fd, int report_fd)
{
    struct report report = {.code = 0};

    report.code = job->run(job, fd, &report.result, &report.err);
    (void)output_write(report_fd, &report, sizeof report);
    _exit(0);
}

static void note_nothing(int number)
{
    (void)number;
}

static int start(const struct job *job, bool sends, struct local_side *ret_side,
                 struct cay_error *err)
{
    /* When one side fails the other is to hear of it, not to die of it. */
    struct sigaction told = {.sa_handler = note_nothing};
    int data[2] = {-1, -1}, report[2] = {-1, -1};

    sigaction(SIGPIPE, &told, NULL);
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
        run_job(job, data[sends ? 1 : 0], report[1]);
    }
    int saved = errno;
    (void)close(report[1]);
    (void)close(data[sends ? 1 : 0]);
    *ret_side = (struct local_side){data[sends ? 0 : 1], report[0], pid, sends};
    if (pid > 0)
        return CAY_OK;
    (void)close(ret_side->fd);
    (void)close(ret_side->report);
    return cay_fail_errno(err, saved, op, "process");
}

int local_side_send_dir(const char *path, struct local_side *ret_side,
                        struct cay_error *err)
{
    return start(&(struct job){send_dir, path, NULL, -1}, true, ret_side, err);
}

int local_side_send_file(int file, const char *path, const char *name,
                         struct local_side *ret_side, struct cay_error *err)
{
    return start(&(struct job){send_file, path, name, file}, true, ret_side, err);
}

int local_side_receive(const char *path, struct local_side *ret_side,
                       struct cay_error *err)
{
    return start(&(struct job){receive, path, NULL, -1}, false, ret_side, err);
}

int local_side_finish(struct local_side *side, int code,
                      struct cay_tar_result *ret_result, struct cay_error *err)
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
                               "the process that copies was killed", "copy it again");
    /* When a side fails its reader finds the archive broken, and its writer the pipe:
     * neither is the cause. */
    bool is_cause =
        !code || (side->sends ? report.err.sys_errno != EPIPE : err->sys_errno == EPIPE);
    if (report.code && is_cause) {
        *err = report.err;
        return report.code;
    }
    if (!code && ret_result)
        *ret_result = report.result;
    return code;
}
