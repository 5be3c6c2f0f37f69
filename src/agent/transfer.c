/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/output.h"
#include "agent/userfs.h"
#include "base/auto.h"
#include "base/error.h"
#include "sys/path.h"

/* The name of the one mount of a handle on a host directory. */
#define HOST_TOP "d"

static const char download_op[] = "file.download";
static const char copy_op[] = "directory.copy";

/* --- A file of the host ---------------------------------------------------------------
 */

/* Creates the missing directories above a path; 0 or an errno. */
static int make_parents(const char *path)
{
    char above[PATH_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        size_t len = (size_t)(slash - path);
        memcpy(above, path, len);
        above[len] = '\0';
        if (mkdir(above, 0777) != 0 && errno != EEXIST)
            return errno;
    }
    return 0;
}

static int fail_name(const char *path, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, download_op, path,
                    "the path has no file name, or one that is too long",
                    "give the path of a file");
}

/* The path of the existing file, links followed, or `path` itself.  It is read from the
 * open descriptor: the kernel follows no other user's links in a sticky directory
 * (fs.protected_symlinks), and a second lookup could lead elsewhere. */
static int resolve(const char *path, char ret_path[PATH_MAX], struct cay_error *err)
{
    AUTO_FD held = open(path, O_PATH | O_CLOEXEC);
    struct stat st, there;

    if (held < 0 && errno == ENOENT) {
        memcpy(ret_path, path, strlen(path) + 1);
        return CAY_OK;
    }
    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, download_op, path);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, S_ISDIR(st.st_mode) ? EISDIR : 0,
                        download_op, path, "exists and is not a regular file",
                        "name the file itself, not its directory");
    if (path_name(held, ret_path) != 0 || lstat(ret_path, &there) != 0)
        return cay_fail_errno(err, errno, download_op, path);
    return there.st_dev == st.st_dev && there.st_ino == st.st_ino
               ? CAY_OK
               : cay_fail_errno(err, ESTALE, download_op, path);
}

int host_file_open(const char *path, struct host_file *ret_file, struct cay_error *err)
{
    char real[PATH_MAX];

    *ret_file = (struct host_file)HOST_FILE_NONE;
    if (!*path || strlen(path) >= PATH_MAX)
        return fail_name(path, err);
    int error = make_parents(path);
    if (error)
        return cay_fail_errno(err, error, download_op, path);
    int code = resolve(path, real, err);
    if (code)
        return code;
    char *slash = strrchr(real, '/');
    const char *name = slash ? slash + 1 : real;
    if (!*name || strlen(name) >= sizeof ret_file->name)
        return fail_name(path, err);
    cay_copy_text(ret_file->name, sizeof ret_file->name, name);
    if (slash)
        slash[slash == real] = '\0';
    ret_file->dir = open(slash ? real : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret_file->dir < 0)
        return cay_fail_errno(err, errno, download_op, path);
    memcpy(ret_file->temp, ".cay-", 5);
    results_hex(ret_file->temp + 5, 16);
    ret_file->fd = openat(ret_file->dir, ret_file->temp,
                          O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (ret_file->fd < 0) {
        error = errno;
        ret_file->temp[0] = '\0';
        return cay_fail_errno(err, error, download_op, path);
    }
    return CAY_OK;
}

static bool set_metadata(int fd, const struct cay_stat *stat)
{
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {stat->mtime_ns / 1000000000, stat->mtime_ns % 1000000000}};

    return fchmod(fd, stat->mode & 0777) == 0 &&
           (stat->mtime_ns <= 0 || futimens(fd, times) == 0);
}

int host_file_commit(struct host_file *file, const char *path,
                     const struct cay_stat *stat, struct cay_error *err)
{
    if (!set_metadata(file->fd, stat) ||
        renameat(file->dir, file->temp, file->dir, file->name) != 0)
        return cay_fail_errno(err, errno, download_op, path);
    file->temp[0] = '\0';
    return CAY_OK;
}

void host_file_done(struct host_file *file)
{
    if (file->temp[0])
        (void)unlinkat(file->dir, file->temp, 0);
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->dir >= 0)
        (void)close(file->dir);
    *file = (struct host_file)HOST_FILE_NONE;
}

/* --- Directories ----------------------------------------------------------------------
 */

/* In this style every byte of a name is itself.  A writable directory is created if it is
 * missing. */
static int open_host(const char *local, bool writable, struct userfs *ret_fs,
                     struct cay_error *err)
{
    const struct cay_mount mount = {.size = sizeof mount,
                                    .name = HOST_TOP,
                                    .host = local,
                                    .writable = writable,
                                    .max_file_bytes = CAY_NO_LIMIT};
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_PATHS,
                                             .mounts = &mount,
                                             .mount_count = 1};
    cay_policy *policy = NULL;

    int code = cay_policy_new(&config, &policy, err);
    if (!code)
        code = cay_files_open(policy, NULL, &ret_fs->files, err);
    cay_policy_free(policy);
    return code;
}

int transfer_spool(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? memfd_create("spool", MFD_CLOEXEC) : fd;
}

static int open_spool(const char *dir, int *ret_fd, struct cay_error *err)
{
    *ret_fd = transfer_spool(dir);
    return *ret_fd < 0 ? cay_fail_errno(err, errno, copy_op, "spool") : CAY_OK;
}

static int rewind_spool(int fd, struct cay_error *err)
{
    return lseek(fd, 0, SEEK_SET) < 0 ? cay_fail_errno(err, errno, copy_op, "spool")
                                      : CAY_OK;
}

static int upload_archive(struct userfs *fs, const struct userfs *host, const char *local,
                          const char *path, struct cay_transfer *ret_transfer,
                          struct cay_error *err)
{
    struct cay_tar_result out, in;
    AUTO_FD spool = -1;

    int code = open_spool(local, &spool, err);
    if (!code)
        code = cay_files_export(host->files, HOST_TOP, spool, NULL, &out, err);
    if (!code)
        code = rewind_spool(spool, err);
    if (!code)
        code = fs->backend->import_tar(fs->cookie, fs->user, path, spool, &in, err);
    if (!code)
        *ret_transfer = (struct cay_transfer){
            .files = out.files, .bytes = in.bytes, .skipped = out.skipped + in.skipped};
    return code;
}

/* The host directory is created once the archive has arrived. */
static int download_archive(struct userfs *fs, const char *path, const char *local,
                            struct cay_transfer *ret_transfer, struct cay_error *err)
{
    struct cay_tar_result out = {0}, in;
    AUTO_USERFS host = {0};
    AUTO_FD spool = -1;

    int code = open_spool("/tmp", &spool, err);
    if (!code)
        code = fs->backend->export_tar(fs->cookie, fs->user, path, spool, &out, err);
    if (!code)
        code = rewind_spool(spool, err);
    if (!code)
        code = open_host(local, true, &host, err);
    if (!code)
        code = cay_files_import(host.files, HOST_TOP, spool, NULL, &in, err);
    if (!code)
        *ret_transfer = (struct cay_transfer){
            .files = in.files, .bytes = in.bytes, .skipped = out.skipped + in.skipped};
    return code;
}

/* A copy file by file, one side of which is remote. */
struct tree_copy {
    struct userfs *from, *to;
    const char *source, *destination;
    struct cay_transfer *transfer;
};

/* Copies a file into a spool.  Files of the host too: what is below a directory there may
 * change, and a path that was checked may lead through a link by now. */
static int open_copy(const struct tree_copy *copy, const char *path, int *ret_fd,
                     struct cay_error *err)
{
    AUTO_FREE char *source = userfs_join(copy->source, path);
    struct cay_stat stat;

    if (!source)
        return cay_fail_memory(err, copy_op);
    int code = open_spool("/tmp", ret_fd, err);
    if (!code)
        code = userfs_read_to(copy->from, source, *ret_fd, &stat, err);
    return code ? code : rewind_spool(*ret_fd, err);
}

static int copy_file(const struct tree_copy *copy, const struct cay_entry *entry,
                     const char *destination, struct cay_error *err)
{
    unsigned flags = 0;
    uint64_t bytes = 0;
    AUTO_FD fd = -1;

    int code = open_copy(copy, entry->path, &fd, err);
    /* A mode without permissions is unknown. */
    if (!code && copy->to->files && entry->stat.mode & 0777 &&
        set_metadata(fd, &entry->stat))
        flags = CAY_WRITE_KEEP;
    if (!code)
        code = userfs_write_from(copy->to, destination, fd, flags, &bytes, err);
    if (!code) {
        copy->transfer->files++;
        copy->transfer->bytes += bytes;
    }
    return code;
}

/* An existing directory stays as it is. */
static int copy_directory(const struct tree_copy *copy, const struct cay_entry *entry,
                          const char *destination, bool *ret_is_new,
                          struct cay_error *err)
{
    struct userfs *to = copy->to;
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_EXIST_OK,
                                             .mode = (entry->stat.mode & 0777) | 0700};
    struct cay_stat stat;

    if (to->files)
        return cay_files_mkdir(to->files, destination, &options, err);
    *ret_is_new = userfs_stat(to, destination, false, &stat, NULL) == CAY_E_NOT_FOUND;
    return userfs_mkdir(to, destination, CAY_NAME_EXIST_OK, err);
}

/* Links are skipped: the backend has no function that creates one. */
static int copy_entry(const struct tree_copy *copy, const struct cay_entry *entry,
                      bool *ret_is_new, struct cay_error *err)
{
    AUTO_FREE char *destination = userfs_join(copy->destination, entry->path);

    if (!destination)
        return cay_fail_memory(err, copy_op);
    *ret_is_new = entry->stat.type == CAY_TYPE_FILE;
    if (entry->stat.type == CAY_TYPE_FILE)
        return copy_file(copy, entry, destination, err);
    if (entry->stat.type == CAY_TYPE_DIRECTORY)
        return copy_directory(copy, entry, destination, ret_is_new, err);
    copy->transfer->skipped++;
    return CAY_OK;
}

static int copy_by_file(const struct tree_copy *copy, struct cay_error *err)
{
    struct cay_listing listing = {0};
    int code = userfs_list(copy->from, copy->source, true, true, &listing, err);

    if (!code)
        code = userfs_mkdir(copy->to, copy->destination, CAY_NAME_EXIST_OK, err);
    AUTO_FREE bool *is_new = calloc(listing.count + 1, sizeof *is_new);
    if (!code && !is_new)
        code = cay_fail_memory(err, copy_op);
    for (size_t i = 0; !code && i < listing.count; i++)
        code = copy_entry(copy, &listing.entries[i], &is_new[i], err);
    if (!code && copy->to->backend)
        code = userfs_set_modes(copy->to, copy->destination, &listing, is_new, err);
    cay_listing_done(&listing);
    return code;
}

/* Between two local handles at once, else file by file. */
static int copy_tree(struct userfs *from, const char *source, struct userfs *to,
                     const char *destination, struct cay_transfer *ret_transfer,
                     struct cay_error *err)
{
    const struct tree_copy copy = {from, to, source, destination, ret_transfer};
    struct cay_tree_result result;

    if (!from->files || !to->files)
        return copy_by_file(&copy, err);
    int code = cay_files_copy_tree(from->files, source, to->files, destination, NULL,
                                   &result, err);
    *ret_transfer = (struct cay_transfer){
        .files = result.files, .bytes = result.bytes, .skipped = result.skipped};
    return code;
}

static int upload_directory(struct userfs *fs, const char *local, const char *path,
                            struct cay_transfer *ret_transfer, struct cay_error *err)
{
    struct cay_error why = {0};
    AUTO_USERFS host = {0};

    int code = open_host(local, false, &host, err);
    if (code)
        return code;
    if (!fs->files && fs->backend->import_tar) {
        code = upload_archive(fs, &host, local, path, ret_transfer, &why);
        if (code != CAY_E_UNSUPPORTED)
            return cay_fail_as(err, code, &why);
    }
    return copy_tree(&host, HOST_TOP, fs, path, ret_transfer, err);
}

/* The source is checked first: a wrong name must not leave a new directory behind. */
static int download_directory(struct userfs *fs, const char *path, const char *local,
                              struct cay_transfer *ret_transfer, struct cay_error *err)
{
    struct cay_error why = {0};
    AUTO_USERFS host = {0};
    struct cay_stat stat;

    int code = userfs_stat(fs, path, false, &stat, err);
    if (!code && stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, "directory.download", path,
                        "is not a directory", "download a single file instead");
    if (code)
        return code;
    if (!fs->files && fs->backend->export_tar) {
        code = download_archive(fs, path, local, ret_transfer, &why);
        if (code != CAY_E_UNSUPPORTED)
            return cay_fail_as(err, code, &why);
    }
    code = open_host(local, true, &host, err);
    return code ? code : copy_tree(fs, path, &host, HOST_TOP, ret_transfer, err);
}

/* --- Files ----------------------------------------------------------------------------
 */

static int upload_file(struct userfs *fs, const char *local, const char *path,
                       struct cay_transfer *ret_transfer, struct cay_error *err)
{
    static const char op[] = "file.upload";
    /* Its type is checked before it is opened: opening a device may do anything. */
    AUTO_FD held = open(local, O_PATH | O_CLOEXEC);
    struct stat st;
    uint64_t bytes = 0;

    if (held < 0 || fstat(held, &st) != 0)
        return cay_fail_errno(err, errno, op, local);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, S_ISDIR(st.st_mode) ? EISDIR : 0, op,
                        local, "is not a regular file",
                        "upload a directory with cay_directory_upload()");
    AUTO_FD fd = path_reopen(held, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return cay_fail_errno(err, -fd, op, local);
    int code = userfs_write_from(fs, path, fd, CAY_WRITE_KEEP, &bytes, err);
    if (!code)
        *ret_transfer = (struct cay_transfer){.files = 1, .bytes = bytes};
    return code;
}

static int download_file(struct userfs *fs, const char *path, const char *local,
                         struct cay_transfer *ret_transfer, struct cay_error *err)
{
    AUTO_HOST_FILE file = HOST_FILE_NONE;
    struct cay_stat stat;
    struct stat st;

    /* The source first: a missing one must not leave new directories here. */
    int code = userfs_stat(fs, path, false, &stat, err);
    if (!code)
        code = host_file_open(local, &file, err);
    if (!code)
        code = userfs_read_to(fs, path, file.fd, &stat, err);
    if (!code)
        code = host_file_commit(&file, local, &stat, err);
    if (!code && fstat(file.fd, &st) != 0)
        code = cay_fail_errno(err, errno, download_op, local);
    if (!code) /* the size of a file of /proc is not known before it is read */
        *ret_transfer = (struct cay_transfer){.files = 1, .bytes = (uint64_t)st.st_size};
    return code;
}

/* --- The public forms -----------------------------------------------------------------
 */

typedef int transfer_call(struct userfs *fs, const char *from, const char *to,
                          struct cay_transfer *ret_transfer, struct cay_error *err);

static int transfer(transfer_call *call, cay_sandbox *sandbox, const char *user,
                    const char *from, const char *to, struct cay_transfer *ret_transfer,
                    struct cay_error *err)
{
    AUTO_USERFS fs = {0};
    int code = userfs_open(sandbox, user, &fs, err);

    *ret_transfer = (struct cay_transfer){0};
    return code ? code : call(&fs, from, to, ret_transfer, err);
}

int cay_file_upload(cay_sandbox *sandbox, const char *user, const char *local,
                    const char *inside, struct cay_transfer *ret_transfer,
                    struct cay_error *err)
{
    return transfer(upload_file, sandbox, user, local, inside, ret_transfer, err);
}

int cay_file_download(cay_sandbox *sandbox, const char *user, const char *inside,
                      const char *local, struct cay_transfer *ret_transfer,
                      struct cay_error *err)
{
    return transfer(download_file, sandbox, user, inside, local, ret_transfer, err);
}

int cay_directory_upload(cay_sandbox *sandbox, const char *user, const char *local,
                         const char *inside, struct cay_transfer *ret_transfer,
                         struct cay_error *err)
{
    return transfer(upload_directory, sandbox, user, local, inside, ret_transfer, err);
}

int cay_directory_download(cay_sandbox *sandbox, const char *user, const char *inside,
                           const char *local, struct cay_transfer *ret_transfer,
                           struct cay_error *err)
{
    return transfer(download_directory, sandbox, user, inside, local, ret_transfer, err);
}
