/* SPDX-License-Identifier: Apache-2.0 */
#include "plain.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 256 << 10 };

static const char temporary[] = ".plain-temporary";

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, data, len);
        if (put < 0)
            return false;
        data += put;
        len -= (size_t)put;
    }
    return true;
}

char *plain_read(int dir, const char *name, size_t *ret_len)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) != 0)
        return NULL;
    size_t size = (size_t)st.st_size, have = 0;
    char *data = malloc(size + 1);
    while (data && have < size) {
        ssize_t got = read(fd, data + have, size - have);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    if (data)
        data[have] = '\0';
    close(fd);
    *ret_len = have;
    return data;
}

bool plain_page_of(int fd, uint64_t offset, size_t len)
{
    char *data = malloc(len + 1);
    size_t have = 0;

    while (data && have < len) {
        ssize_t got = pread(fd, data + have, len - have, (off_t)(offset + have));
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    free(data);
    return have == len;
}

bool plain_page(int dir, const char *name, uint64_t offset, size_t len)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

    return fd >= 0 && plain_page_of(fd, offset, len) && close(fd) == 0;
}

bool plain_read_in_steps(int dir, const char *name, size_t step)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, &st) == 0;

    for (off_t at = 0; ok && at < st.st_size; at += (off_t)step) {
        off_t left = st.st_size - at;
        ok = plain_page_of(fd, (uint64_t)at, left < (off_t)step ? (size_t)left : step);
    }
    return ok && close(fd) == 0;
}

bool plain_pass(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    char *piece = malloc(PIECE);
    ssize_t got = -1;

    if (fd >= 0 && piece)
        while ((got = read(fd, piece, PIECE)) > 0)
            continue;
    free(piece);
    return got == 0 && close(fd) == 0;
}

bool plain_write_atomic(int dir, const char *name, const void *data, size_t len)
{
    int fd = openat(dir, temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);

    return fd >= 0 && write_all(fd, data, len) && close(fd) == 0 &&
           renameat(dir, temporary, dir, name) == 0;
}

bool plain_write_in_place(int dir, const char *name, const void *data, size_t len)
{
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write_all(fd, data, len) && ftruncate(fd, (off_t)len) == 0 &&
           close(fd) == 0;
}

bool plain_append(int dir, const char *name, const void *data, size_t len)
{
    int fd = openat(dir, name, O_WRONLY | O_APPEND | O_CLOEXEC);

    return fd >= 0 && write_all(fd, data, len) && close(fd) == 0;
}

static bool pump(int from, int to, off_t bytes)
{
    char *piece = malloc(PIECE);
    off_t left = bytes;

    while (piece && left > 0) {
        ssize_t got = read(from, piece, PIECE);
        if (got <= 0 || !write_all(to, piece, (size_t)got))
            break;
        left -= got;
    }
    free(piece);
    return left == 0;
}

static bool pump_in_kernel(int from, int to, off_t bytes)
{
    while (bytes > 0) {
        ssize_t got = copy_file_range(from, NULL, to, NULL, (size_t)bytes, 0);
        if (got <= 0)
            return false;
        bytes -= got;
    }
    return true;
}

static bool copy_by(bool (*way)(int, int, off_t), int dir, const char *from,
                    const char *to)
{
    struct stat st;
    int in = openat(dir, from, O_RDONLY | O_CLOEXEC);
    int out = openat(dir, to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    if (in < 0 || out < 0 || fstat(in, &st) != 0 || !way(in, out, st.st_size))
        return false;
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    return fchmod(out, st.st_mode & 0777) == 0 && futimens(out, times) == 0 &&
           close(in) == 0 && close(out) == 0;
}

bool plain_copy(int dir, const char *from, const char *to)
{
    return copy_by(pump, dir, from, to);
}

bool plain_copy_range(int dir, const char *from, const char *to)
{
    return copy_by(pump_in_kernel, dir, from, to);
}

static bool write_edited(int dir, const char *text, size_t len, const char *place,
                         size_t old_len, const char *new_text)
{
    int fd = openat(dir, temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    const char *rest = place + old_len;

    return fd >= 0 && write_all(fd, text, (size_t)(place - text)) &&
           write_all(fd, new_text, strlen(new_text)) &&
           write_all(fd, rest, len - (size_t)(rest - text)) && fchmod(fd, 0644) == 0 &&
           close(fd) == 0;
}

bool plain_edit(int dir, const char *name, const char *old_text, const char *new_text)
{
    size_t len, old_len = strlen(old_text);
    char *text = plain_read(dir, name, &len);
    const char *place = text ? memmem(text, len, old_text, old_len) : NULL;
    bool ok = place != NULL;

    if (ok) {
        const char *rest = place + old_len;
        ok = !memmem(rest, len - (size_t)(rest - text), old_text, old_len) &&
             write_edited(dir, text, len, place, old_len, new_text) &&
             renameat(dir, temporary, dir, name) == 0;
    }
    free(text);
    return ok;
}

static DIR *open_directory(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? NULL : fdopendir(fd);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

size_t plain_list(int dir, const char *name)
{
    DIR *stream = open_directory(dir, name);
    const struct dirent *entry;
    size_t count = 0;

    if (!stream)
        return 0;
    while ((entry = readdir(stream)))
        count += !is_dots(entry->d_name);
    closedir(stream);
    return count;
}

size_t plain_list_sorted(int dir, const char *name)
{
    struct dirent **entries;
    int found = scandirat(dir, name, &entries, NULL, alphasort);

    if (found < 0)
        return 0;
    size_t count = 0;
    for (int i = 0; i < found; i++) {
        count += !is_dots(entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return count;
}

size_t plain_search(int dir, const char *name, const char *text)
{
    size_t len, text_len = strlen(text), count = 0;
    char *data = plain_read(dir, name, &len);
    const char *end = data + len;

    if (!data)
        return 0;
    for (const char *at = data; (at = memmem(at, (size_t)(end - at), text, text_len));
         at += text_len)
        count++;
    free(data);
    return count;
}
