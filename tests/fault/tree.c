/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <errno.h>
#include <fts.h>
#include <ftw.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tree_put(const char *path, const void *data, size_t len)
{
    char text[PATH_MAX];

    snprintf(text, sizeof text, "%s", path);
    for (char *slash = strchr(text + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(text, 0777) != 0 && errno != EEXIST)
            abort();
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    if (!file || fwrite(data, 1, len, file) != len || fclose(file) != 0)
        abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void tree_clear(const char *directory)
{
    if (nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        abort();
}

static int by_name(const FTSENT **left, const FTSENT **right)
{
    return strcmp((*left)->fts_name, (*right)->fts_name);
}

static uint64_t hash(uint64_t value, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        value = (value ^ (unsigned char)data[i]) * UINT64_C(1099511628211);
    return value;
}

static uint64_t hash_content(const char *path, bool is_link)
{
    static char piece[64 << 10];
    uint64_t value = UINT64_C(14695981039346656037);
    size_t len;

    if (is_link) {
        ssize_t got = readlink(path, piece, sizeof piece);
        return got < 0 ? 0 : hash(value, piece, (size_t)got);
    }
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while ((len = fread(piece, 1, sizeof piece, file)) > 0)
        value = hash(value, piece, len);
    fclose(file);
    return value;
}

char *tree_words(const char *directory)
{
    char top[PATH_MAX];
    char *const tops[] = {top, NULL};
    char *words = NULL;
    size_t len;

    snprintf(top, sizeof top, "%s", directory);
    FILE *out = open_memstream(&words, &len);
    FTS *walk = fts_open(tops, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    if (!out || !walk)
        abort();
    for (const FTSENT *entry = fts_read(walk); entry; entry = fts_read(walk)) {
        if (entry->fts_info == FTS_DP)
            continue;
        bool is_directory = entry->fts_info == FTS_D;
        const struct stat *st = entry->fts_statp;
        fprintf(out, "%s %o", entry->fts_path + strlen(top), st->st_mode);
        if (!is_directory)
            fprintf(
                out, " %lld %llx", (long long)st->st_size,
                (unsigned long long)hash_content(entry->fts_path, S_ISLNK(st->st_mode)));
        fputc('\n', out);
    }
    fts_close(walk);
    fclose(out);
    return words;
}

static bool has_line(const char *words, const char *line, size_t len)
{
    for (; *words; words += strcspn(words, "\n") + 1)
        if (strncmp(words, line, len) == 0)
            return true;
    return false;
}

bool tree_is_mixture(const char *words, const char *old, const char *now)
{
    for (; *words; words += strcspn(words, "\n") + 1) {
        size_t len = strcspn(words, "\n") + 1;
        if (!has_line(old, words, len) && !has_line(now, words, len))
            return false;
    }
    return true;
}
