/* SPDX-License-Identifier: Apache-2.0 */
/* cay cp, cat and put: files into a sandbox and out of it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/input.h"
#include "cli/local-file.h"
#include "cli/progress.h"

static const char op[] = "cli.copy";

#define PIECE      (8u << 20)
#define SPOOL_MAX  (UINT64_C(1) << 40)
#define PLACE_ROOM 4352 /* a path and a name */

/* One end of a copy in a sandbox. */
struct inside {
    cay_sandbox *sandbox;
    cay_files *files;
    const char *path;
    struct cay_stat stat;
    bool exists;
};

static int open_inside(const char *id, const char *path, const char *user,
                       cp_opener *opener, struct inside *ret_inside,
                       struct cay_error *err)
{
    struct inside inside = {.path = *path ? path : "."};

    int code = opener(id, &inside.sandbox, err);
    if (!code)
        code = cay_sandbox_files(inside.sandbox, user, &inside.files, err);
    *ret_inside = inside;
    return code;
}

static void close_inside(struct inside *inside)
{
    cay_files_free(inside->files);
    cay_sandbox_free(inside->sandbox);
}

/* --- Content --- */

static int read_out(const struct inside *inside, int fd, const char *name,
                    struct cay_error *err)
{
    struct cay_read_options options = {.size = sizeof options, .max = PIECE};
    bool more = true;

    while (more) {
        struct cay_page page;
        TRY(cay_files_read_bytes(inside->files, inside->path, &options, &page, err));
        int failed = output_write(fd, page.text, page.len);
        options.offset += page.len;
        more = page.truncated && page.len;
        cay_page_done(&page);
        if (failed)
            return cay_fail_errno(err, failed, op, name);
    }
    return CAY_OK;
}

/* For what has no size or mode to keep: a pipe, a terminal. */
static int write_in(int fd, const char *name, const struct inside *inside,
                    const char *path, struct cay_error *err)
{
    struct input input;

    TRY(input_read(fd, name, SPOOL_MAX, &input, err));
    int code = cay_files_write(inside->files, path, input.data, input.len, NULL, err);
    input_done(&input);
    return code;
}

int cmd_cat(struct call *call, struct cay_error *err)
{
    const char *const *words = call->line.arguments;
    struct inside inside;

    int code =
        open_inside(words[0], words[1], call->options.user, find_sandbox, &inside, err);
    if (!code)
        code = read_out(&inside, STDOUT_FILENO, "standard output", err);
    close_inside(&inside);
    return code;
}

int cmd_put(struct call *call, struct cay_error *err)
{
    const char *const *words = call->line.arguments;
    struct inside inside;

    int code =
        open_inside(words[0], words[1], call->options.user, find_sandbox, &inside, err);
    if (!code)
        code = write_in(STDIN_FILENO, "standard input", &inside, words[1], err);
    close_inside(&inside);
    return code;
}

/* --- Names --- */

/* The last name of a path; "" if it ends in "/", "." or "..", which name no new thing. */
static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "" : name;
}

/* Slashes at the end say "directory", which last_name() must not see. */
static char *without_slashes(const char *path)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    return strndup(path, len);
}

static bool ends_as_directory(const char *path)
{
    size_t len = strlen(path);

    return len == 0 || path[len - 1] == '/';
}

static int look_inside(struct inside *inside, struct cay_error *err)
{
    struct cay_error own;
    int code = cay_files_stat(inside->files, inside->path, false, &inside->stat, &own);

    inside->exists = code == CAY_OK;
    if (code == CAY_OK || code == CAY_E_NOT_FOUND)
        return CAY_OK;
    *err = own;
    return code;
}

static int fail_onto_file(const char *target, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, target,
                    "a directory cannot be copied onto a file",
                    "give a directory, or a path that does not exist");
}

/* --- Into the sandbox --- */

static int send_dir(const char *source, const struct inside *inside,
                    struct cay_error *err)
{
    AUTO_FREE char *plain = without_slashes(source);
    char target[PLACE_ROOM];

    if (!plain)
        return cay_fail_memory(err, op);
    if (inside->exists && inside->stat.type != CAY_TYPE_DIRECTORY)
        return fail_onto_file(inside->path, err);
    bool goes_below = inside->exists && *last_name(plain);
    snprintf(target, sizeof target, "%s%s%s", inside->path, goes_below ? "/" : "",
             goes_below ? last_name(plain) : "");
    return sandbox_program.send_dir(inside->files, source, target, err);
}

static int send_file(int file, const char *source, const struct inside *inside,
                     struct cay_error *err)
{
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_KEEP};
    char target[PLACE_ROOM];
    bool goes_below = (inside->exists && inside->stat.type == CAY_TYPE_DIRECTORY) ||
                      !*last_name(inside->path);

    snprintf(target, sizeof target, "%s%s%s", inside->path, goes_below ? "/" : "",
             goes_below ? last_name(source) : "");
    return cay_files_write_from(inside->files, target, file, &options, NULL, err);
}

static int send_stream(int fd, const char *name, const struct inside *inside,
                       struct cay_error *err)
{
    bool is_tar = ends_as_directory(inside->path) ||
                  (inside->exists && inside->stat.type == CAY_TYPE_DIRECTORY);

    return is_tar ? sandbox_program.send_archive(inside->files, fd, inside->path, err)
                  : write_in(fd, name, inside, inside->path, err);
}

static int copy_in(const char *source, struct inside *inside, struct cay_error *err)
{
    AUTO_FD file = -1;
    struct stat st;

    TRY(look_inside(inside, err));
    if (strcmp(source, "-") == 0)
        return send_stream(STDIN_FILENO, "standard input", inside, err);
    TRY(local_file_read(source, &file, &st, err));
    if (S_ISDIR(st.st_mode))
        return send_dir(source, inside, err);
    progress_expect((uint64_t)st.st_size);
    if (S_ISREG(st.st_mode))
        return send_file(file, source, inside, err);
    return send_stream(file, source, inside, err);
}

/* --- Out of the sandbox --- */

static int receive_dir(const struct inside *inside, const char *target,
                       struct cay_error *err)
{
    bool is_stream = strcmp(target, "-") == 0;
    struct stat st;

    if (is_stream && isatty(STDOUT_FILENO))
        return cay_fail(err, CAY_E_INVALID, 0, op, inside->path,
                        "refusing to write a tar stream to a terminal",
                        "redirect it to a file: cay cp ID:DIR - > FILE");
    if (!is_stream && stat(target, &st) == 0 && !S_ISDIR(st.st_mode))
        return fail_onto_file(target, err);
    return sandbox_program.receive_dir(inside->files, inside->path, target, err);
}

static int receive_file(const struct inside *inside, const char *target,
                        struct cay_error *err)
{
    AUTO_LOCAL_FILE file = LOCAL_FILE_NONE;

    progress_expect(inside->stat.bytes);
    if (strcmp(target, "-") == 0)
        return read_out(inside, STDOUT_FILENO, "standard output", err);
    /* Never more rights than the umask leaves, and no set-user-id bits from inside. */
    int code = local_file_create(target, inside->stat.mode & 0777, &file, err);
    if (!code) /* a new file keeps the holes, of which there may be more than disk */
        code = *file.place
                   ? cay_files_read_to(inside->files, inside->path, file.fd, NULL, err)
                   : read_out(inside, file.fd, target, err);
    return code ? code : local_file_commit(&file, target, err);
}

static int copy_out(struct inside *inside, const char *target, struct cay_error *err)
{
    AUTO_FREE char *plain = without_slashes(inside->path);
    char place[PLACE_ROOM];
    struct stat st;

    TRY(cay_files_stat(inside->files, inside->path, false, &inside->stat, err));
    if (!*target) /* PATH below it would be a file in the root directory */
        return cay_fail(err, CAY_E_INVALID, 0, op, target, "the destination is empty",
                        "give a path of the host, or - for standard output");
    if (!plain)
        return cay_fail_memory(err, op);
    bool is_dir = inside->stat.type == CAY_TYPE_DIRECTORY;
    bool goes_below =
        strcmp(target, "-") != 0 && ((stat(target, &st) == 0 && S_ISDIR(st.st_mode)) ||
                                     (!is_dir && ends_as_directory(target)));
    snprintf(place, sizeof place, "%s%s%s", target,
             goes_below && *last_name(plain) ? "/" : "",
             goes_below ? last_name(plain) : "");
    return is_dir ? receive_dir(inside, place, err) : receive_file(inside, place, err);
}

/* --- cp --- */

const char *cp_path_inside(const char *word)
{
    const char *colon = strchr(word, ':');

    return colon && colon > word && !memchr(word, '/', (size_t)(colon - word)) ? colon + 1
                                                                               : NULL;
}

int cp_copy(const struct cp_ends *ends, const char *user, cp_opener *opener,
            struct cay_error *err)
{
    struct inside inside = {.files = NULL};
    int code = open_inside(ends->id, ends->path, user, opener, &inside, err);

    if (!code) {
        progress_start("Copying", ends->is_out ? PROGRESS_READ : PROGRESS_WRITTEN);
        code = ends->is_out ? copy_out(&inside, ends->host, err)
                            : copy_in(ends->host, &inside, err);
        progress_stop();
    }
    close_inside(&inside);
    return code;
}

int cmd_cp(struct call *call, struct cay_error *err)
{
    const char *source = call->line.arguments[0], *target = call->line.arguments[1];
    const char *from = cp_path_inside(source), *into = cp_path_inside(target);

    if (!from == !into)
        return cay_fail(err, CAY_E_INVALID, 0, op, source,
                        from ? "source and destination are both in a sandbox"
                             : "neither source nor destination is in a sandbox",
                        "write one as ID:PATH, and the other as a path of the host, or - "
                        "for a pipe");
    const char *word = from ? source : target, *path = from ? from : into;
    AUTO_FREE char *id = strndup(word, (size_t)(path - word) - 1);
    if (!id)
        return cay_fail_memory(err, op);
    const struct cp_ends ends = {id, path, from ? target : source, from != NULL};
    return cp_copy(&ends, call->options.user, find_sandbox, err);
}
