/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ARCHIVES_H
#define TESTS_ARCHIVES_H

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"
#include "not-under-valgrind.h"
#include "policies.h"

/* It knows no pidfds either. */
NOT_UNDER_VALGRIND("valgrind cannot live below a seccomp filter")

/* Archives made by hand, so that they can be as wrong as an enemy's. */

struct entry {
    const char *name;
    char
        type; /* '0' file, '1' hard link, '2' link, '3' device, '5' directory, '6' FIFO */
    const char *link;
    unsigned mode;
    const char *data;
};

static inline void add_block(struct buf *tar, const char *name, char type,
                             const char *link, unsigned mode, size_t size)
{
    char block[512] = {0};
    unsigned sum = 0;

    snprintf(block, 100, "%s", name);
    snprintf(block + 100, 8, "%07o", mode & 07777777);
    snprintf(block + 108, 8, "%07o", 0u);
    snprintf(block + 116, 8, "%07o", 0u);
    snprintf(block + 124, 12, "%011o", (unsigned)size);
    snprintf(block + 136, 12, "%011o", 1234567890u);
    memset(block + 148, ' ', 8);
    block[156] = type;
    snprintf(block + 157, 100, "%s", link ? link : "");
    memcpy(block + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    ASSERT(buf_append(tar, block, sizeof block));
}

static inline void add_content(struct buf *tar, const char *data, size_t len)
{
    static const char zeros[512];

    ASSERT(buf_append(tar, data, len));
    ASSERT(buf_append(tar, zeros, (512 - len % 512) % 512));
}

static inline void add(struct buf *tar, struct entry entry)
{
    size_t len = entry.data ? strlen(entry.data) : 0;

    add_block(tar, entry.name, entry.type, entry.link, entry.mode ? entry.mode : 0644,
              len);
    if (len)
        add_content(tar, entry.data, len);
}

static inline void add_end(struct buf *tar)
{
    static const char zeros[1024];

    ASSERT(buf_append(tar, zeros, sizeof zeros));
}

static inline int memory_file(const void *data, size_t len)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT(write(fd, data, len) == (ssize_t)len);
    ASSERT(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static struct cay_tar_result result;

static inline int import_bytes(cay_files *files, const char *path, const struct buf *tar,
                               const struct cay_tar_options *options)
{
    AUTO_FD fd = memory_file(tar->data, tar->len);

    return cay_files_import(files, path, fd, options, &result, &err);
}

/* Imports the entries, and an end unless the last one has no name, below "data/in". */
static inline int import_entries(cay_files *files, const struct entry *entries)
{
    AUTO_BUF tar;

    buf_init(&tar, 1 << 20);
    for (; entries->name; entries++)
        add(&tar, *entries);
    add_end(&tar);
    return import_bytes(files, "data/in", &tar, NULL);
}
#define IMPORT(files, ...)                                                               \
    import_entries((files), (const struct entry[]){__VA_ARGS__, {.name = NULL}})

static inline bool exists(const char *name)
{
    struct stat st;

    return lstat(scratch_path(name), &st) == 0;
}

static inline mode_t mode_of(const char *name)
{
    struct stat st;

    ASSERT(lstat(scratch_path(name), &st) == 0);
    return st.st_mode & 07777;
}

#endif
