/* SPDX-License-Identifier: Apache-2.0 */

/* bench-transfer [--quick] DIRECTORY: measures how files come into a sandbox and out of
 * it, against cp -a of the same from one place in the directory to another. */
#include <cay/agent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contest.h"

enum { FILES = 1000, FOLDERS = 20, FILE_BYTES = 2048 };

struct field {
    cay_sandbox *sandbox;
    char source[512], copy[512]; /* on the host */
    bool is_tree, is_out;
};

static void must(bool truth, const char *what)
{
    if (!truth)
        contest_die(what);
}

static void must_work(int code, const struct cay_error *err)
{
    if (!code)
        return;
    fprintf(stderr, "bench: %s: %s: %s\n", err->op, err->subject, err->message);
    exit(1);
}

static bool spawn(const char *const *argv)
{
    pid_t pid;
    int status = -1;

    if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ))
        return false;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0;
}

/* --- The two sides --- */

static void clear(void *cookie, enum side side)
{
    struct field *field = cookie;
    const char *const argv[] = {"rm", "-rf", field->copy, NULL};
    struct cay_error err;

    if (side == PLAIN || field->is_out) {
        must(spawn(argv), "rm");
        return;
    }
    int code = cay_file_delete(field->sandbox, NULL, "copy", &err);
    if (code != CAY_E_NOT_FOUND)
        must_work(code, &err);
}

static bool copy_plainly(void *cookie)
{
    const struct field *field = cookie;
    const char *const argv[] = {"cp", "-a", field->source, field->copy, NULL};

    return spawn(argv);
}

static bool transfer(void *cookie)
{
    struct field *field = cookie;
    struct cay_transfer done;
    struct cay_error err;

    int code =
        field->is_tree
            ? (field->is_out ? cay_directory_download(field->sandbox, NULL, "original",
                                                      field->copy, &done, &err)
                             : cay_directory_upload(field->sandbox, NULL, field->source,
                                                    "copy", &done, &err))
            : (field->is_out ? cay_file_download(field->sandbox, NULL, "original",
                                                 field->copy, &done, &err)
                             : cay_file_upload(field->sandbox, NULL, field->source,
                                               "copy", &done, &err));
    must_work(code, &err);
    return done.files == (field->is_tree ? FILES : 1);
}

static void compete(struct field *field, const char *op, uint64_t bytes, unsigned rounds,
                    double most_ratio)
{
    const struct contest contest = {.part = "transfer",
                                    .op = op,
                                    .floor = "cp -a",
                                    .bytes = bytes,
                                    .rounds = rounds,
                                    .most_ratio = most_ratio,
                                    .run = {transfer, copy_plainly},
                                    .before = clear,
                                    .cookie = field};

    contest_run(&contest);
}

/* In, and then out what went in. */
static void both_ways(struct field *field, const char *in, const char *out,
                      uint64_t bytes, unsigned rounds, double most_ratio)
{
    struct cay_transfer done;
    struct cay_error err;

    field->is_out = false;
    compete(field, in, bytes, rounds, most_ratio);
    clear(field, OURS);
    must_work(field->is_tree ? cay_directory_upload(field->sandbox, NULL, field->source,
                                                    "original", &done, &err)
                             : cay_file_upload(field->sandbox, NULL, field->source,
                                               "original", &done, &err),
              &err);
    field->is_out = true;
    compete(field, out, bytes, rounds, most_ratio);
    must_work(cay_file_delete(field->sandbox, NULL, "original", &err), &err);
    const char *const argv[] = {"rm", "-rf", field->source, field->copy, NULL};
    must(spawn(argv), "rm");
}

/* --- What is transferred --- */

static void put(const char *path, const char *piece, size_t piece_len, uint64_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    must(fd >= 0, path);
    for (uint64_t left = len; left;) {
        size_t part = left < piece_len ? (size_t)left : piece_len;
        must(write(fd, piece, part) == (ssize_t)part, path);
        left -= part;
    }
    close(fd);
}

static void make_tree(const char *top, const char *piece, size_t piece_len)
{
    char path[600];

    must(mkdir(top, 0755) == 0, top);
    for (unsigned i = 0; i < FOLDERS; i++) {
        snprintf(path, sizeof path, "%s/%u", top, i);
        must(mkdir(path, 0755) == 0, path);
    }
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%u/%u.txt", top, i % FOLDERS, i);
        put(path, piece, piece_len, FILE_BYTES);
    }
}

int main(int argc, char **argv)
{
    enum { PIECE = 1 << 20 };
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true,
                                                .memory_bytes = 6ull << 30,
                                                .disk_bytes = 3ull << 30};
    uint64_t large = quick ? 64ull << 20 : 1ull << 30;
    struct field field = {0};
    struct cay_error err;
    char *piece = malloc(PIECE);

    if (argc != 2 + quick || !piece) {
        fprintf(stderr, "usage: bench-transfer [--quick] DIRECTORY\n");
        return 2;
    }
    for (size_t i = 0; i < PIECE; i++)
        piece[i] = (char)(i * 2654435761u >> 24);
    snprintf(field.source, sizeof field.source, "%s/source", argv[1 + quick]);
    snprintf(field.copy, sizeof field.copy, "%s/copy", argv[1 + quick]);
    must_work(cay_sandbox_create(&options, &field.sandbox, &err), &err);

    make_tree(field.source, piece, PIECE);
    field.is_tree = true;
    both_ways(&field, "upload 1,000 files", "download 1,000 files",
              (uint64_t)FILES * FILE_BYTES, quick ? 3 : 30, 3);
    put(field.source, piece, PIECE, large);
    field.is_tree = false;
    both_ways(&field, "upload one file", "download one file", large, quick ? 3 : 5, 0);

    must_work(cay_sandbox_kill(field.sandbox, &err), &err);
    cay_sandbox_free(field.sandbox);
    free(piece);
    return 0;
}
