/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/userfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/passwd.h"
#include "sandbox/backend.h"
#include "sys/io.h"

enum { ENTRIES_MAX = 1000000, COMMAND_MS = 60000, MODES_BATCH = 256, PERMISSIONS = 0777 };

#define ID_MAX (UINT32_MAX - 1)

int userfs_open(cay_sandbox *sandbox, const char *user, struct userfs *ret_fs,
                struct cay_error *err)
{
    const struct cay_backend *backend = cay_sandbox_backend(sandbox);
    struct userfs fs = {.sandbox = sandbox, .user = user};

    *ret_fs = (struct userfs){0};
    if (backend->open_files) {
        int code = cay_sandbox_files(sandbox, user, &fs.files, err);
        if (code)
            return code;
    } else {
        fs.backend = backend->files;
        fs.cookie = sandbox->cookie;
    }
    *ret_fs = fs;
    return CAY_OK;
}

void userfs_close(struct userfs *fs)
{
    cay_files_free(fs->files);
    free(fs->base);
    free(fs->temp);
    *fs = (struct userfs){0};
}

static int run_inside(const struct userfs *fs, const char *const *argv,
                      struct cay_exec_result *ret_result, struct cay_error *err)
{
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = fs->user, .timeout_ms = COMMAND_MS};

    return cay_sandbox_exec(fs->sandbox, &options, ret_result, err);
}

/* The output of a command without its trailing newline, or NULL.  The exit code does not
 * count: id(1) fails if the user has no name, and prints the numbers. */
static char *output_of(const struct userfs *fs, const char *const *argv)
{
    struct cay_exec_result result = {0};
    char *text = NULL;

    if (!fs->sandbox)
        return NULL;
    if (run_inside(fs, argv, &result, NULL) == CAY_OK && result.out &&
        !memchr(result.out, 0, result.out_len)) {
        text = TAKE_PTR(result.out);
        size_t len = result.out_len;
        if (len && text[len - 1] == '\n')
            text[len - 1] = '\0';
    }
    cay_exec_done(&result);
    return text;
}

/* --- Paths ----------------------------------------------------------------------------
 */

/* The text if it is an absolute path, else NULL. */
static char *only_absolute(char *text)
{
    if (text && *text == '/')
        return text;
    free(text);
    return NULL;
}

static char *find_base(const struct userfs *fs)
{
    static const char *const pwd[] = {"pwd", NULL};
    struct cay_sandbox_info info;
    struct cay_location top;

    if (fs->files) {
        if (cay_files_locate(fs->files, ".", 0, &top, NULL) != CAY_OK)
            return NULL;
        char *base = TAKE_PTR(top.path);
        cay_location_done(&top);
        return base;
    }
    if (fs->sandbox && cay_sandbox_inspect(fs->sandbox, &info, NULL) == CAY_OK &&
        *info.workdir == '/')
        return strdup(info.workdir);
    return only_absolute(output_of(fs, pwd));
}

const char *userfs_base(struct userfs *fs)
{
    if (!fs->base)
        fs->base = find_base(fs);
    if (!fs->base)
        fs->base = strdup("/");
    return fs->base;
}

static bool is_built_in(const cay_sandbox *sandbox)
{
    const char *name = cay_sandbox_backend(sandbox)->name;

    return strcmp(name, "native") == 0 || strcmp(name, "local") == 0;
}

const char *userfs_temp(struct userfs *fs)
{
    static const char *const print_temp[] = {"sh", "-c", "printf %s \"$TMPDIR\"", NULL};
    bool shares_root =
        fs->files && fs->sandbox && !(cay_sandbox_layers(fs->sandbox) & CAY_LAYER_MOUNT);

    if (fs->temp)
        return fs->temp;
    if (shares_root && is_built_in(fs->sandbox)) {
        if (asprintf(&fs->temp, SANDBOX_TEMP, cay_sandbox_id(fs->sandbox)) < 0)
            fs->temp = NULL;
        return fs->temp;
    }
    if (shares_root)
        fs->temp = only_absolute(output_of(fs, print_temp));
    if (!fs->temp)
        fs->temp = strdup("/tmp");
    return fs->temp;
}

/* Adds the names of a path, each after a slash, without ".". */
static void add_names(struct buf *text, const char *path)
{
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len > 1 || (len == 1 && *path != '.')) {
            buf_append(text, "/", 1);
            buf_append(text, path, len);
        }
        path += len + (path[len] == '/');
    }
}

char *userfs_absolute(struct userfs *fs, const char *path)
{
    const char *base = *path == '/' ? "" : userfs_base(fs);
    AUTO_BUF text;

    buf_init(&text, SIZE_MAX / 2);
    if (!base)
        return NULL;
    add_names(&text, base);
    add_names(&text, path);
    if (!text.len)
        buf_append(&text, "/", 1);
    return buf_take(&text);
}

char *userfs_join(const char *dir, const char *name)
{
    AUTO_BUF text;
    size_t len = strlen(dir);

    buf_init(&text, SIZE_MAX / 2);
    buf_append(&text, dir, len);
    if (len && dir[len - 1] != '/' && *name)
        buf_append(&text, "/", 1);
    buf_text(&text, name);
    return buf_take(&text);
}

/* --- Content --------------------------------------------------------------------------
 */

/* A memfd of exactly so many bytes, sealed against growing. */
static int open_sealed(uint64_t bytes, int *ret_fd, struct cay_error *err)
{
    AUTO_FD fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) != 0)
        return cay_fail_errno(err, errno, "file.read", "memfd");
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

static int take_bytes(int fd, uint64_t offset, size_t len,
                      struct cay_content *ret_content, struct cay_error *err)
{
    static const char op[] = "file.read";
    AUTO_FREE char *data = malloc(len + 1);

    if (!data)
        return cay_fail_memory(err, op);
    ssize_t got = io_pread(fd, data, len, offset);
    if (got != (ssize_t)len)
        return cay_fail_errno(err, got < 0 ? (int)-got : EIO, op, "memfd");
    data[len] = '\0';
    *ret_content = (struct cay_content){TAKE_PTR(data), len};
    return CAY_OK;
}

/* The backend only reads whole files.  It writes into a sealed memfd of the wanted size:
 * a longer file fails with EPERM there, after the wanted bytes have arrived. */
static int read_remote(struct userfs *fs, const char *path, uint64_t offset, uint64_t max,
                       struct cay_content *ret_content, uint64_t *ret_total,
                       struct cay_error *err)
{
    struct cay_error why = {0};
    struct cay_stat stat = {0};
    AUTO_FD fd = -1;

    if (offset > CAY_READ_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "file.read", path,
                        "the offset is beyond the first 100 MiB of the file",
                        "download the file, or read this part with a command");
    uint64_t room = max < CAY_READ_MAX - offset ? offset + max : CAY_READ_MAX;
    int code = open_sealed(room, &fd, err);
    if (code)
        return code;
    code = fs->backend->read(fs->cookie, fs->user, path, fd, &why);
    off_t got = lseek(fd, 0, SEEK_CUR);
    bool full = got >= 0 && (uint64_t)got == room;
    if (code && !full)
        return cay_fail_as(err, code, &why);
    *ret_total = got > 0 ? (uint64_t)got : 0;
    if (full && userfs_stat(fs, path, false, &stat, NULL) == CAY_OK &&
        stat.bytes > *ret_total)
        *ret_total = stat.bytes;
    uint64_t len = got > 0 && (uint64_t)got > offset ? (uint64_t)got - offset : 0;
    return take_bytes(fd, offset, (size_t)len, ret_content, err);
}

int userfs_read(struct userfs *fs, const char *path, uint64_t offset, uint64_t max,
                struct cay_content *ret_content, uint64_t *ret_total,
                struct cay_error *err)
{
    const struct cay_read_options options = {
        .size = sizeof options, .offset = offset, .max = max};
    struct cay_page page;

    if (!fs->files)
        return read_remote(fs, path, offset, max, ret_content, ret_total, err);
    int code = cay_files_read_bytes(fs->files, path, &options, &page, err);
    if (code)
        return code;
    *ret_content = (struct cay_content){page.text, page.len};
    *ret_total = page.total;
    return CAY_OK;
}

int userfs_read_all(struct userfs *fs, const char *path, struct cay_content *ret_content,
                    struct cay_error *err)
{
    uint64_t total = 0;

    int code = userfs_read(fs, path, 0, CAY_READ_MAX, ret_content, &total, err);
    if (code || ret_content->len == total)
        return code;
    free(ret_content->data);
    *ret_content = (struct cay_content){0};
    return cay_fail(err, CAY_E_LIMIT, 0, "file.read", path,
                    "the file is larger than 100 MiB",
                    "download it, or read it in parts with a command");
}

int userfs_read_to(struct userfs *fs, const char *path, int fd, struct cay_stat *ret_stat,
                   struct cay_error *err)
{
    if (fs->files)
        return cay_files_read_to(fs->files, path, fd, ret_stat, err);
    int code = userfs_stat(fs, path, false, ret_stat, err);
    if (!code && ret_stat->type != CAY_TYPE_FILE)
        code = cay_fail(err, CAY_E_NOT_A_FILE, 0, "file.read", path,
                        "is not a regular file", "name a regular file");
    return code ? code : fs->backend->read(fs->cookie, fs->user, path, fd, err);
}

bool userfs_pin(struct userfs *fs, const char *path, struct cay_pin *ret_pin)
{
    return fs->files && cay_files_pin(fs->files, path, ret_pin, NULL) == CAY_OK;
}

static int write_remote(struct userfs *fs, const char *path, const void *data, size_t len,
                        unsigned flags, struct cay_error *err)
{
    AUTO_FD fd = io_memfd("file", 0, data, len);

    if (fd < 0)
        return cay_fail_errno(err, -fd, "file.write", path);
    return fs->backend->write(fs->cookie, fs->user, path, fd, flags, err);
}

int userfs_write(struct userfs *fs, const char *path, const void *data, size_t len,
                 unsigned flags, const struct cay_pin *pin, struct cay_error *err)
{
    const struct cay_write_options options = {
        .size = sizeof options, .flags = flags, .pin = pin};

    return fs->files ? cay_files_write(fs->files, path, data, len, &options, err)
                     : write_remote(fs, path, data, len, flags, err);
}

static int chmod_inside(struct userfs *fs, uint32_t mode, char *const *paths,
                        size_t count, struct cay_error *err)
{
    char digits[8];
    const char *argv[MODES_BATCH + 4] = {"chmod", digits, "--"};
    struct cay_exec_result result = {0};

    snprintf(digits, sizeof digits, "%o", mode & PERMISSIONS);
    for (size_t i = 0; i < count; i++)
        argv[3 + i] = paths[i];
    int code = run_inside(fs, argv, &result, err);
    cay_exec_done(&result);
    return code;
}

static int keep_mode(struct userfs *fs, const char *path, int fd, struct cay_error *err)
{
    struct cay_stat now = {0};
    struct stat st;

    if (!fs->sandbox || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        userfs_stat(fs, path, false, &now, NULL) != CAY_OK ||
        (now.mode & PERMISSIONS) == (st.st_mode & PERMISSIONS))
        return CAY_OK;
    AUTO_FREE char *copy = strdup(path);
    return copy ? chmod_inside(fs, st.st_mode, &copy, 1, err)
                : cay_fail_memory(err, "file.mode");
}

int userfs_write_from(struct userfs *fs, const char *path, int fd, unsigned flags,
                      uint64_t *ret_bytes, struct cay_error *err)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};
    struct cay_stat stat = {0};

    if (fs->files)
        return cay_files_write_from(fs->files, path, fd, &options, ret_bytes, err);
    int code = fs->backend->write(fs->cookie, fs->user, path, fd,
                                  flags & ~(unsigned)CAY_WRITE_KEEP, err);
    if (!code && flags & CAY_WRITE_KEEP)
        code = keep_mode(fs, path, fd, err);
    if (code || !ret_bytes)
        return code;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0 && userfs_stat(fs, path, false, &stat, NULL) == CAY_OK)
        at = (off_t)stat.bytes;
    *ret_bytes = at > 0 ? (uint64_t)at : 0;
    return CAY_OK;
}

/* --- Listing --------------------------------------------------------------------------
 */

static int add_page(struct cay_listing *listing, struct cay_listing *page,
                    const char *path, struct cay_error *err)
{
    size_t count = listing->count + page->count;

    if (count > ENTRIES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "file.list", path,
                        "the directory has more than a million entries",
                        "list its subdirectories one by one");
    struct cay_entry *grown =
        reallocarray(listing->entries, count + !count, sizeof *listing->entries);
    if (!grown)
        return cay_fail_memory(err, "file.list");
    listing->entries = grown;
    for (size_t i = 0; i < page->count; i++)
        grown[listing->count + i] = page->entries[i];
    listing->count = count;
    page->count = 0;
    return CAY_OK;
}

static bool is_below(const char *path, const char *top, size_t len)
{
    return strncmp(path, top, len) == 0 && path[len] == '/';
}

static size_t depth_of(const char *path)
{
    size_t depth = 0;

    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

/* Without the slashes at its end. */
static size_t length_of(const char *path)
{
    size_t len = strlen(path);

    while (len && path[len - 1] == '/')
        len--;
    return len;
}

/* Listed paths are relative, or below `wanted`, or, where links lead there, below another
 * spelling of it: then below the parent of the least deep path.  The length of the prefix
 * of *ret_top that each of them has; -1 if they are relative. */
static ssize_t find_top(const struct cay_listing *listing, const char *wanted,
                        const char **ret_top)
{
    size_t len = length_of(wanted);

    *ret_top = NULL;
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->entries[i].path;
        if (!path || *path != '/')
            return -1;
        if (is_below(path, wanted, len)) {
            *ret_top = wanted;
            return (ssize_t)len;
        }
        if (!*ret_top || depth_of(path) < depth_of(*ret_top))
            *ret_top = path;
    }
    return *ret_top ? strrchr(*ret_top, '/') - *ret_top : -1;
}

/* Without empty components, "." and "..". */
static bool is_plain(const char *path)
{
    for (;;) {
        size_t len = strcspn(path, "/");
        if (len == 0 || (len <= 2 && strncmp(path, "..", len) == 0))
            return false;
        if (!path[len])
            return true;
        path += len + 1;
    }
}

/* Removes the first `len` bytes, which are those of `top`, from the paths, and drops the
 * entries that are not below it.  A negative `len`: the paths are relative. */
static int make_relative(struct cay_listing *listing, const char *top, ssize_t len,
                         struct cay_error *err)
{
    AUTO_FREE char *prefix = strndup(len < 0 ? "" : top, len < 0 ? 0 : (size_t)len);
    size_t kept = 0;

    if (!prefix) /* `top` may be an entry's path, which changes below */
        return cay_fail_memory(err, "file.list");
    for (size_t i = 0; i < listing->count; i++) {
        struct cay_entry entry = listing->entries[i];
        bool fits = entry.path && (len < 0 || is_below(entry.path, prefix, (size_t)len));
        if (fits && len >= 0)
            memmove(entry.path, entry.path + len + 1, strlen(entry.path + len + 1) + 1);
        if (fits && is_plain(entry.path))
            listing->entries[kept++] = entry;
        else
            free(entry.path);
    }
    listing->count = kept;
    return CAY_OK;
}

static int compare_paths(const void *one, const void *other)
{
    return strcmp(((const struct cay_entry *)one)->path,
                  ((const struct cay_entry *)other)->path);
}

/* Page by page: cay_files_list() reserves memory for the most entries it may return. */
static int read_pages(const struct userfs *fs, const char *path, bool recursive,
                      bool with_stat, struct cay_listing *listing, struct cay_error *err)
{
    struct cay_list_options options = {.size = sizeof options,
                                       .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES |
                                                CAY_LIST_LINKS | CAY_LIST_OTHER |
                                                (with_stat ? (unsigned)CAY_LIST_STAT : 0),
                                       .pattern = recursive ? NULL : "*"};
    bool more = true;
    int code = CAY_OK;

    while (!code && more) {
        struct cay_listing page = {0};
        if (listing->count)
            options.after = listing->entries[listing->count - 1].path;
        code = cay_files_list(fs->files, path, &options, &page, err);
        more = page.truncated && page.count;
        if (!code)
            code = add_page(listing, &page, path, err);
        cay_listing_done(&page);
    }
    return code;
}

static int list_local(const struct userfs *fs, const char *path, bool recursive,
                      bool with_stat, struct cay_listing *listing, struct cay_error *err)
{
    struct cay_location top;

    int code = cay_files_locate(fs->files, path, CAY_ACCESS_READ, &top, err);
    if (code)
        return code;
    code = read_pages(fs, path, recursive, with_stat, listing, err);
    if (!code)
        code = make_relative(listing, top.path, (ssize_t)length_of(top.path), err);
    cay_location_done(&top);
    return code;
}

static int list_remote(const struct userfs *fs, const char *path, bool recursive,
                       struct cay_listing *listing, struct cay_error *err)
{
    const char *top;

    int code =
        fs->backend->list(fs->cookie, fs->user, path, recursive ? 0 : 1, listing, err);
    if (code)
        return code;
    if (listing->truncated || listing->count > ENTRIES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "file.list", path,
                        "the directory has too many entries",
                        "list its subdirectories one by one");
    ssize_t len = find_top(listing, path, &top);
    code = make_relative(listing, top, len, err);
    if (!code && listing->count)
        qsort(listing->entries, listing->count, sizeof *listing->entries, compare_paths);
    return code;
}

int userfs_list(struct userfs *fs, const char *path, bool recursive, bool with_stat,
                struct cay_listing *ret_listing, struct cay_error *err)
{
    AUTO_FREE char *top = fs->files ? strdup(path) : userfs_absolute(fs, path);
    struct cay_listing listing = {0};
    struct cay_stat stat;

    if (!top)
        return cay_fail_memory(err, "file.list");
    int code = userfs_stat(fs, top, false, &stat, err);
    if (!code && stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, "file.list", path,
                        "is not a directory", "name the directory the file is in");
    if (!code)
        code = fs->files ? list_local(fs, top, recursive, with_stat, &listing, err)
                         : list_remote(fs, top, recursive, &listing, err);
    if (code)
        cay_listing_done(&listing);
    else
        *ret_listing = listing;
    return code;
}

/* --- Names ----------------------------------------------------------------------------
 */

int userfs_stat(struct userfs *fs, const char *path, bool no_follow,
                struct cay_stat *ret_stat, struct cay_error *err)
{
    return fs->files
               ? cay_files_stat(fs->files, path, no_follow, ret_stat, err)
               : fs->backend->stat(fs->cookie, fs->user, path, no_follow, ret_stat, err);
}

int userfs_read_link(struct userfs *fs, const char *path, char **ret_target,
                     struct cay_error *err)
{
    if (fs->files)
        return cay_files_read_link(fs->files, path, ret_target, err);
    if (!fs->backend->read_link)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "file.read_link", path,
                        "this backend cannot read symbolic links",
                        "run readlink in the sandbox");
    return fs->backend->read_link(fs->cookie, fs->user, path, ret_target, err);
}

int userfs_access(struct userfs *fs, const char *path, const struct cay_stat *stat,
                  struct cay_error *err)
{
    if (fs->files)
        return cay_files_access(fs->files, path, err);
    struct identity identity = userfs_identity(fs);
    return identity_access(&identity, stat);
}

int userfs_mkdir(struct userfs *fs, const char *path, unsigned flags,
                 struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options, .flags = flags};

    return fs->files ? cay_files_mkdir(fs->files, path, &options, err)
                     : fs->backend->mkdir(fs->cookie, fs->user, path, flags, err);
}

/* A remote directory gets its mode from mkdir(1): the backend has no function for it. */
int userfs_mkdir_private(struct userfs *fs, const char *path, struct cay_error *err)
{
    const struct cay_name_options mode = {.size = sizeof mode, .mode = 0700};
    const char *const argv[] = {"mkdir", "-m", "700", "--", path, NULL};
    struct cay_exec_result result = {0};

    if (fs->files)
        return cay_files_mkdir(fs->files, path, &mode, err);
    int code = run_inside(fs, argv, &result, err);
    bool created = !code && result.cause == CAY_CAUSE_EXITED && result.exit_code == 0;
    cay_exec_done(&result);
    return code || created ? code : userfs_mkdir(fs, path, 0, err);
}

int userfs_remove(struct userfs *fs, const char *path, struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_RECURSIVE};

    return fs->files
               ? cay_files_delete(fs->files, path, &options, err)
               : fs->backend->remove(fs->cookie, fs->user, path, CAY_NAME_RECURSIVE, err);
}

/* Files by their modes, then directories from the deepest up: a new mode may forbid to
 * enter a directory. */
static int compare_modes(const void *one, const void *other)
{
    const struct cay_entry *a = *(const struct cay_entry *const *)one;
    const struct cay_entry *b = *(const struct cay_entry *const *)other;
    bool a_is_dir = a->stat.type == CAY_TYPE_DIRECTORY;
    bool b_is_dir = b->stat.type == CAY_TYPE_DIRECTORY;

    if (a_is_dir != b_is_dir)
        return a_is_dir - b_is_dir;
    if (!a_is_dir && a->stat.mode != b->stat.mode)
        return a->stat.mode < b->stat.mode ? -1 : 1;
    return strcmp(b->path, a->path);
}

/* One chmod for as many entries from the first on as have the same mode; their number. */
static int set_batch(struct userfs *fs, const char *top,
                     const struct cay_entry *const *entries, size_t count,
                     struct cay_error *err)
{
    char *paths[MODES_BATCH];
    uint32_t mode = entries[0]->stat.mode & PERMISSIONS;
    size_t used = 0;
    int code = CAY_OK;

    while (!code && used < count && used < MODES_BATCH &&
           (entries[used]->stat.mode & PERMISSIONS) == mode) {
        paths[used] = userfs_join(top, entries[used]->path);
        code = paths[used] ? CAY_OK : cay_fail_memory(err, "file.mode");
        used += !code;
    }
    if (!code)
        code = chmod_inside(fs, mode, paths, used, err);
    for (size_t i = 0; i < used; i++)
        free(paths[i]);
    return code ? code : (int)used;
}

int userfs_set_modes(struct userfs *fs, const char *top,
                     const struct cay_listing *listing, const bool *is_new,
                     struct cay_error *err)
{
    AUTO_FREE const struct cay_entry **entries =
        calloc(listing->count + 1, sizeof *entries);
    size_t count = 0;
    int used = 0;

    if (!entries)
        return cay_fail_memory(err, "file.mode");
    for (size_t i = 0; i < listing->count; i++)
        if (is_new[i])
            entries[count++] = &listing->entries[i];
    qsort(entries, count, sizeof *entries, compare_modes);
    for (size_t i = 0; used >= 0 && i < count; i += (size_t)used) {
        used = set_batch(fs, top, entries + i, count - i, err);
        if (used < 0)
            return used;
    }
    return CAY_OK;
}

/* --- The user -------------------------------------------------------------------------
 */

/* The number after "uid=" or "gid=" in the output of id(1). */
static bool parse_part(const char *text, const char *part, uint32_t *ret_id)
{
    const char *at = strstr(text, part);

    if (!at)
        return false;
    at += strlen(part);
    return passwd_parse_id(at, strspn(at, "0123456789"), ID_MAX, ret_id);
}

/* For backends that do not name their default user. */
static struct identity run_id(const struct userfs *fs)
{
    static const char *const argv[] = {"id", NULL};
    AUTO_FREE char *text = output_of(fs, argv);
    struct identity identity = {0};

    identity.is_known = text && parse_part(text, "uid=", &identity.uid) &&
                        parse_part(text, "gid=", &identity.gid);
    return identity;
}

/* A number needs no line in /etc/passwd. */
static struct identity look_up(struct userfs *fs, const char *user)
{
    struct cay_content passwd = {0};
    struct identity found = {0};
    struct passwd_line line;
    uint32_t number;
    uint64_t total;

    bool is_number = passwd_parse_id(user, strlen(user), ID_MAX, &number);
    if (userfs_read(fs, "/etc/passwd", 0, PASSWD_MAX, &passwd, &total, NULL) != CAY_OK)
        passwd.data = NULL;
    for (const char *at = passwd.data; at && !found.is_known && passwd_next(&at, &line);)
        found.is_known =
            passwd_id(&line, 2, ID_MAX, &found.uid) &&
            passwd_id(&line, 3, ID_MAX, &found.gid) &&
            (passwd_is(&line, user, strlen(user)) || (is_number && number == found.uid));
    free(passwd.data);
    if (!found.is_known && is_number)
        return (struct identity){true, number, number};
    return found;
}

struct identity userfs_identity(struct userfs *fs)
{
    struct cay_sandbox_info info = {0};

    if (fs->user)
        return look_up(fs, fs->user);
    if (!fs->sandbox)
        return (struct identity){0};
    if (cay_sandbox_inspect(fs->sandbox, &info, NULL) == CAY_OK && *info.user)
        return look_up(fs, info.user);
    return run_id(fs);
}

int identity_access(const struct identity *identity, const struct cay_stat *stat)
{
    bool is_owner = !identity->is_known || identity->uid == stat->uid;
    unsigned bits = is_owner                     ? stat->mode >> 6
                    : identity->gid == stat->gid ? stat->mode >> 3
                                                 : stat->mode;

    if (identity->is_known && identity->uid == 0)
        bits = 7;
    return (bits & 4 ? CAY_ACCESS_READ : 0) | (bits & 2 ? CAY_ACCESS_WRITE : 0);
}
