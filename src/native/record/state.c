/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/record/userns.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

static const char op[] = "state.open";

enum { TRIES = 16 };

int state_open(const char *below, bool make, struct cay_error *err)
{
    AUTO_FD home = state_home_open(make, err);

    if (home < 0)
        return home;
    int error = make ? state_home_make(home, below) : 0;
    if (error && error != -EEXIST)
        return cay_fail_errno(err, -error, op, below);
    AUTO_FD fd = path_open(home, below, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd < 0)
        return cay_fail_errno(err, -fd, op, below);
    int code = state_home_check(fd, below, 0077, err);
    return code ? code : TAKE_FD(fd);
}

/* Locks the directory and checks that it still exists: a sweep may have removed it before
 * it was locked. */
static bool hold(int fd)
{
    struct stat st;

    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0;
}

static void draw_name(const char *prefix, char ret_name[NAME_MAX + 1])
{
    uint64_t random = 0;

    (void)!getrandom(&random, sizeof random, 0);
    snprintf(ret_name, NAME_MAX + 1, "%s%016llx", prefix, (unsigned long long)random);
}

int state_draft(int dir, const char *prefix, char ret_name[NAME_MAX + 1],
                struct cay_error *err)
{
    for (int tries = 0; tries < TRIES; tries++) {
        draw_name(prefix, ret_name);
        int error = state_home_make(dir, ret_name);
        if (error)
            return cay_fail_errno(err, -error, op, ret_name);
        AUTO_FD fd = path_open(dir, ret_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (fd >= 0 && hold(fd))
            return TAKE_FD(fd);
    }
    return cay_fail(err, CAY_E_BUSY, 0, op, prefix,
                    "another process keeps removing the new directory", "try again");
}

struct removal {
    int dir;
    const char *name, *who, *label;
};

static int remove_inside(void *cookie, struct cay_error *err)
{
    const struct removal *removal = cookie;

    return tree_remove(&fs_direct, removal->who, removal->dir, removal->name,
                       removal->label, err);
}

/* An ordinary user's sandboxes and templates leave files of subordinate ids. */
int state_remove_tree(int dir, const char *name, const char *who, const char *label,
                      struct cay_error *err)
{
    struct removal removal = {dir, name, who, label};
    struct cay_error own;
    int code = remove_inside(&removal, &own);

    if (code == CAY_E_DENIED && geteuid() != 0)
        code = userns_run(remove_inside, &removal, &own);
    if (code && err)
        *err = own;
    if (code != CAY_E_DENIED || geteuid() == 0)
        return code;
    return cay_fail(err, CAY_E_DENIED, EACCES, who, label,
                    "some of its files belong to user ids that this user does not have",
                    "restore the former range in /etc/subuid and /etc/subgid and run cay "
                    "gc, or remove the files as root");
}

int state_remove(int dir, const char *name, const char *who, struct cay_error *err)
{
    char grave[NAME_MAX + 1];

    draw_name(".old-", grave);
    if (renameat(dir, name, dir, grave) != 0)
        return cay_fail_errno(err, errno, who, name);
    return state_remove_tree(dir, grave, who, name, err);
}

size_t state_sweep(int dir, const char *prefix)
{
    AUTO_DIR directory = path_list(dir);
    size_t count = 0;

    for (struct dirent *entry; (entry = path_next(directory));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        AUTO_FD fd = path_open(dir, entry->d_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (fd >= 0 && hold(fd) &&
            state_remove_tree(dir, entry->d_name, op, entry->d_name, NULL) == CAY_OK)
            count++;
    }
    return count;
}

static int write_file(int dir, const char *name, const void *data, size_t len,
                      bool is_durable, struct cay_error *err)
{
    char temp[NAME_MAX + 1];

    snprintf(temp, sizeof temp, ".%.200s.new", name);
    AUTO_FD fd = path_open(dir, temp, O_WRONLY | O_CREAT | O_TRUNC, 0600, PATH_PLAIN);
    int error = fd < 0 ? fd : io_write(fd, data, len);
    if (!error && (fchmod(fd, 0600) != 0 || (is_durable && fsync(fd) != 0)))
        error = -errno;
    if (!error && renameat(dir, temp, dir, name) != 0)
        error = -errno;
    return error ? cay_fail_errno(err, -error, "state.write", name) : CAY_OK;
}

int state_write(int dir, const char *name, const void *data, size_t len,
                struct cay_error *err)
{
    return write_file(dir, name, data, len, true, err);
}

int state_replace(int dir, const char *name, const void *data, size_t len,
                  struct cay_error *err)
{
    return write_file(dir, name, data, len, false, err);
}

char *state_read(int dir, const char *name, size_t max, size_t *ret_len)
{
    struct stat st;
    AUTO_FD fd = path_open(dir, name, O_RDONLY | O_NONBLOCK, 0, PATH_PLAIN);

    if (fd < 0 || fstat(fd, &st) != 0) {
        errno = fd < 0 ? -fd : errno;
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size > max) {
        errno = EFBIG;
        return NULL;
    }
    char *text = malloc((size_t)st.st_size + 1);
    ssize_t len = text ? io_pread(fd, text, (size_t)st.st_size, 0) : -ENOMEM;
    if (len < 0) {
        free(text);
        errno = (int)-len;
        return NULL;
    }
    text[len] = '\0';
    *ret_len = (size_t)len;
    return text;
}

/* --- Files of keys and values --- */

static const char first[] = "version=2";

void kvfile_begin(struct buf *file, size_t max)
{
    buf_init(file, max);
    (void)buf_append(file, first, sizeof first);
}

bool kvfile_is_valid(const struct kvfile *kvfile)
{
    return kvfile->len >= sizeof first &&
           memcmp(kvfile->data, first, sizeof first) == 0 &&
           kvfile->data[kvfile->len - 1] == '\0';
}

void kvfile_add(struct buf *file, const char *key, const char *value)
{
    if (value && buf_format(file, "%s=", key))
        (void)buf_append(file, value, strlen(value) + 1);
}

void kvfile_add_number(struct buf *file, const char *key, uint64_t value)
{
    if (buf_format(file, "%s=%llu", key, (unsigned long long)value))
        (void)buf_append(file, "", 1);
}

const char *kvfile_next(const struct kvfile *kvfile, const char *key, const char *last)
{
    size_t len = strlen(key);
    const char *end = kvfile->data + kvfile->len;

    for (const char *at = last ? last + strlen(last) + 1 : kvfile->data; at < end;
         at += strlen(at) + 1)
        if (strncmp(at, key, len) == 0 && at[len] == '=')
            return at + len + 1;
    return NULL;
}

const char *kvfile_text(const struct kvfile *kvfile, const char *key)
{
    return kvfile_next(kvfile, key, NULL);
}

uint64_t kvfile_number(const struct kvfile *kvfile, const char *key)
{
    const char *text = kvfile_text(kvfile, key);

    return text ? strtoull(text, NULL, 10) : 0;
}

size_t kvfile_count(const struct kvfile *kvfile, const char *key)
{
    size_t count = 0;

    for (const char *at = NULL; (at = kvfile_next(kvfile, key, at));)
        count++;
    return count;
}
