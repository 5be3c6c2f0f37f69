/* SPDX-License-Identifier: Apache-2.0 */

/* --shared DIRECTORY, which has its id so that an empty mount point is no empty store. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/shared-store.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

static const char op[] = "server.shared";

struct directory {
    struct shared_store store;
    int records, files; /* -1: the tenant has none yet */
    int archive;        /* new_archive(); -1: none */
    char temporary[SHARED_NAME_ROOM];
};

static struct directory *of(struct shared_store *store)
{
    return (struct directory *)store;
}

static int fail_away(int error, struct cay_error *err)
{
    return shared_fail("the shared directory cannot be used", error,
                       cay_errno_words(error), err);
}

/* --- Opening --- */

static int open_directory(int parent, const char *name, bool make, int *ret_fd,
                          struct cay_error *err)
{
    int made = make ? state_home_make(parent, name) : 0;

    if (made < 0 && made != -EEXIST)
        return fail_away(-made, err);
    *ret_fd = path_open(parent, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return *ret_fd >= 0 || (*ret_fd == -ENOENT && !make) ? CAY_OK
                                                         : fail_away(-*ret_fd, err);
}

static void close_directory(struct shared_store *store)
{
    struct directory *directory = of(store);

    if (directory->archive >= 0 && *directory->temporary)
        (void)unlinkat(directory->files, directory->temporary, 0);
    auto_close(&directory->archive);
    auto_close(&directory->records);
    auto_close(&directory->files);
    free(directory);
}

static int open_places(struct directory *directory, const struct keeper *keeper,
                       const char *id, const char *name, bool make, struct cay_error *err)
{
    char mark[KEEPER_SHARED_ID + 1];
    AUTO_FD root = open(keeper->options->shared, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD tenant = -1;

    if (root < 0)
        return fail_away(errno, err);
    if (io_read_text(root, KEEPER_SHARED_MARK, mark, sizeof mark) != KEEPER_SHARED_ID ||
        strcmp(mark, id) != 0)
        return fail_away(ENOENT, err); /* it is not mounted */
    TRY(open_directory(root, name, make, &tenant, err));
    if (tenant < 0)
        return CAY_OK;
    TRY(open_directory(tenant, "records", make, &directory->records, err));
    return open_directory(tenant, "files", make, &directory->files, err);
}

/* --- Records --- */

static int list_records(struct shared_store *store,
                        int (*note)(void *cookie, const char *name), void *cookie,
                        struct cay_error *err)
{
    const struct directory *directory = of(store);

    if (directory->records < 0)
        return CAY_OK;
    AUTO_DIR entries = path_list(directory->records);
    if (!entries)
        return fail_away(errno, err);
    errno = 0;
    for (struct dirent *entry; (entry = path_next(entries)); errno = 0)
        if (shared_is_name(entry->d_name))
            TRY(note(cookie, entry->d_name));
    return errno ? fail_away(errno, err) : CAY_OK;
}

/* One that cannot be read was just removed. */
static int read_record(struct shared_store *store, const char *name, char *text,
                       size_t *ret_len, struct cay_error *err)
{
    AUTO_FD fd =
        path_open(of(store)->records, name, O_RDONLY | O_NONBLOCK, 0, PATH_PLAIN);
    struct stat st;

    (void)err;
    *ret_len = 0;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return CAY_OK;
    ssize_t len = io_pread(fd, text, SHARED_RECORD_MAX, 0);
    *ret_len = len > 0 ? (size_t)len : 0;
    return CAY_OK;
}

/* A new file without its name yet; the temporary one is in `ret_name`. */
static int make_file(int dir, char ret_name[SHARED_NAME_ROOM], int *ret_fd,
                     struct cay_error *err)
{
    unsigned long long number;

    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return cay_fail_errno(err, errno, op, "getrandom");
    snprintf(ret_name, SHARED_NAME_ROOM, ".new-%016llx", number);
    *ret_fd = path_open(dir, ret_name, O_RDWR | O_CREAT | O_EXCL, 0600, PATH_PLAIN);
    return *ret_fd < 0 ? fail_away(-*ret_fd, err) : CAY_OK;
}

/* On the disk, and then under its name. */
static int publish(int dir, int fd, const char *temporary, const char *name,
                   struct cay_error *err)
{
    int error = fsync(fd) != 0 ? errno : 0;

    if (!error)
        error = -path_rename(dir, temporary, dir, name, 0);
    if (!error && fsync(dir) != 0)
        error = errno;
    return error ? fail_away(error, err) : CAY_OK;
}

/* What killed processes left, by the clock of the directory itself. */
static void sweep(const struct directory *directory, int fd)
{
    AUTO_DIR list = path_list(directory->files);
    struct stat now, st;

    if (fstat(fd, &now) != 0)
        return;
    for (struct dirent *entry; (entry = path_next(list));) {
        const char *name = entry->d_name;
        bool is_left =
            strncmp(name, ".new-", 5) == 0 ||
            (shared_is_name(name) && faccessat(directory->records, name, F_OK, 0) != 0 &&
             errno == ENOENT);
        if (is_left && fstatat(directory->files, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && now.st_mtime - st.st_mtime > SHARED_STALE_S)
            (void)unlinkat(directory->files, name, 0);
    }
}

static int put_record(struct shared_store *store, const char *name,
                      const struct buf *text, struct cay_error *err)
{
    const struct directory *directory = of(store);
    char temporary[SHARED_NAME_ROOM];
    int fd = -1;

    TRY(make_file(directory->records, temporary, &fd, err));
    int error = io_write(fd, text->data, text->len);
    int code = error ? fail_away(-error, err)
                     : publish(directory->records, fd, temporary, name, err);
    if (code)
        (void)unlinkat(directory->records, temporary, 0);
    (void)close(fd);
    return code;
}

/* --- Archives --- */

static int new_archive(struct shared_store *store, int *ret_fd, struct cay_error *err)
{
    struct directory *directory = of(store);

    TRY(make_file(directory->files, directory->temporary, &directory->archive, err));
    *ret_fd = directory->archive;
    return CAY_OK;
}

static int put_archive(struct shared_store *store, const char *name, const char *digest,
                       uint64_t bytes, struct cay_error *err)
{
    struct directory *directory = of(store);

    (void)digest;
    (void)bytes;
    TRY(publish(directory->files, directory->archive, directory->temporary, name, err));
    directory->temporary[0] = '\0';
    sweep(directory, directory->archive);
    return CAY_OK;
}

static int fetch(struct shared_store *store, const char *name, int to,
                 struct cay_error *err)
{
    enum { PIECE = 128 << 10 };
    const struct directory *directory = of(store);
    AUTO_FREE char *piece = malloc(PIECE);
    AUTO_FD from = directory->files < 0 ? -ENOENT
                                        : path_open(directory->files, name,
                                                    O_RDONLY | O_NONBLOCK, 0, PATH_PLAIN);

    if (!piece)
        return cay_fail_memory(err, op);
    if (from == -ENOENT)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL,
                        "it was removed from what the servers share",
                        "list the templates and snapshots");
    if (from < 0)
        return fail_away(-from, err);
    for (uint64_t at = 0;;) {
        ssize_t got = io_pread(from, piece, PIECE, at);
        if (got <= 0)
            return got < 0 ? fail_away((int)-got, err) : CAY_OK;
        int error = io_write(to, piece, (size_t)got);
        if (error)
            return cay_fail_errno(err, -error, op, "the copy of the archive");
        at += (uint64_t)got;
    }
}

static int remove_both(struct shared_store *store, const char *name,
                       struct cay_error *err)
{
    const struct directory *directory = of(store);

    if (directory->records >= 0 && unlinkat(directory->records, name, 0) != 0 &&
        errno != ENOENT)
        return fail_away(errno, err);
    if (directory->records >= 0 && fsync(directory->records) != 0)
        return fail_away(errno, err);
    if (directory->files >= 0) /* else the sweep removes it */
        (void)unlinkat(directory->files, name, 0);
    return CAY_OK;
}

static const struct shared_calls calls = {.list = list_records,
                                          .read_record = read_record,
                                          .put_record = put_record,
                                          .new_archive = new_archive,
                                          .put_archive = put_archive,
                                          .fetch = fetch,
                                          .remove = remove_both,
                                          .close = close_directory};

int shared_directory_open(const struct keeper *keeper, const char *id, const char *tenant,
                          bool make, struct shared_store **ret_store,
                          struct cay_error *err)
{
    char name[TENANT_MAX + 8];
    struct directory *directory = malloc(sizeof *directory);

    if (!directory)
        return cay_fail_memory(err, op);
    *directory =
        (struct directory){.store = {&calls}, .records = -1, .files = -1, .archive = -1};
    snprintf(name, sizeof name, "tenant-%s", tenant);
    int code = open_places(directory, keeper, id, name, make, err);
    if (code)
        close_directory(&directory->store);
    else
        *ret_store = &directory->store;
    return code;
}
