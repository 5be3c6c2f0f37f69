/* SPDX-License-Identifier: Apache-2.0 */
#include "code/warm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "cay/sandbox.h"
#include "code/client.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

/* src/init/warm-save.c, embedded. */
extern const unsigned char warm_save[] __attribute__((visibility("hidden")));
extern const uint64_t warm_save_size __attribute__((visibility("hidden")));

static const char op[] = "code.warm", directory[] = "warm", draft_suffix[] = ".new";

enum { NAME_ROOM = 32, IDLE_S = 600, TOUCH_S = 60, TIMEOUT_MS = 60000 };

static const uint64_t bytes_max = 1ull << 30;

/* --- The files --- */

static bool name_file(const char *template_name, char name[NAME_ROOM])
{
    static const char boot_id[] = "/proc/sys/kernel/random/boot_id";
    char boot[64] = "";
    uint64_t hash = HASH_STABLE;

    if (io_read_text(AT_FDCWD, boot_id, boot, sizeof boot) <= 0)
        return false;
    hash = hash_stable(hash, boot, strlen(boot));
    hash = hash_stable(hash, CAY_VERSION, sizeof CAY_VERSION);
    hash = hash_stable(hash, template_name, strlen(template_name));
    snprintf(name, NAME_ROOM, "%016llx", (unsigned long long)hash);
    return true;
}

static int open_directory(bool make, struct cay_error *err)
{
    AUTO_FD home = state_home_open(make, err);

    if (home < 0)
        return home;
    int error = make ? state_home_make(home, directory) : 0;
    if (error && error != -EEXIST)
        return cay_fail_errno(err, -error, op, directory);
    int fd = openat(home, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? cay_fail_errno(err, errno, op, directory) : fd;
}

/* Removes files that were not used for ten minutes, also those of crashed processes. */
static void sweep(int dir)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_DIR list = copy < 0 ? NULL : fdopendir(copy);
    struct stat st;

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (entry->d_name[0] != '.' && fstatat(dir, entry->d_name, &st, 0) == 0 &&
            st.st_mtime + IDLE_S < time(NULL))
            (void)unlinkat(dir, entry->d_name, 0);
}

/* The file through a mount of its own, which is read-only and has no other path than "/":
 * the descriptor goes to code that may belong to the owner of the file, and must neither
 * change the next copies nor see a path of the host.  -1 without the privilege for it. */
static int detach(int fd)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID,
                                    .propagation = MS_PRIVATE};
    AUTO_FD tree = (int)syscall(SYS_open_tree, fd, "",
                                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes,
                            sizeof attributes) != 0)
        return -1;
    int own = path_reopen(tree, O_RDONLY);
    return own < 0 ? -1 : own;
}

/* The time of the file is that of its last use. */
int code_warm_open(const char *template_name)
{
    char name[NAME_ROOM];
    struct stat st;
    AUTO_FD dir = open_directory(false, NULL);
    AUTO_FD fd = dir >= 0 && name_file(template_name, name)
                     ? openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
                     : -1;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return -1;
    if (st.st_mtime + TOUCH_S < time(NULL)) {
        (void)utimensat(dir, name, NULL, 0);
        sweep(dir);
    }
    return detach(fd);
}

void code_warm_remove(const char *template_name)
{
    char name[NAME_ROOM];
    AUTO_FD dir = open_directory(false, NULL);

    if (dir >= 0 && name_file(template_name, name))
        (void)unlinkat(dir, name, 0);
}

/* --- Making one --- */

static char *base64(const unsigned char *data, size_t len)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((len + 2) / 3 * 4 + 1), *at = text;

    for (size_t i = 0; text && i < len; i += 3) {
        uint32_t three = (uint32_t)data[i] << 16;
        three |= i + 1 < len ? (uint32_t)data[i + 1] << 8 : 0;
        three |= i + 2 < len ? data[i + 2] : 0;
        *at++ = digits[three >> 18];
        *at++ = digits[three >> 12 & 63];
        *at++ = i + 1 < len ? digits[three >> 6 & 63] : '=';
        *at++ = i + 2 < len ? digits[three & 63] : '=';
    }
    if (text)
        *at = '\0';
    return text;
}

static const char file_inside[] = "/tmp/.cay-warm";

/* Members of the line that makes the driver save its interpreter. */
static char *make_body(void)
{
    AUTO_FREE char *library = base64(warm_save, warm_save_size);
    AUTO_FREE char *whole = NULL;
    json_t *line =
        json_pack("{s:s, s:{}, s:b, s:{s:s, s:s, s:[s, s, s]}}", "code", "", "env",
                  "silent", 1, "save", "library", library ? library : "", "file",
                  file_inside, "modules", "numpy", "pandas", "matplotlib.pyplot");

    if (line && library)
        whole = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    return whole ? strndup(whole + 1, strlen(whole) - 2) : NULL;
}

static int save_inside(cay_sandbox *sandbox, struct cay_error *err)
{
    const struct cay_code_options options = {
        .size = sizeof options, .language = "python", .timeout_ms = TIMEOUT_MS};
    struct cay_code_execution done = {0};
    AUTO_FREE char *body = make_body();

    if (!body)
        return cay_fail_memory(err, op);
    TRY(code_execute_body(sandbox, body, &options, code_language_find("python"), &done,
                          err));
    int code = done.status == CAY_CODE_SUCCESS
                   ? CAY_OK
                   : cay_fail(err, CAY_E_UNSUPPORTED, 0, op, done.error_name,
                              "the interpreter of this template cannot be saved", "%s",
                              done.error_value ? done.error_value : "");
    cay_code_execution_done(&done);
    return code;
}

struct copy {
    int fd, error;
    uint64_t len;
};

static bool is_zero(const char *data, size_t len)
{
    return len == 0 || (*data == 0 && memcmp(data, data + 1, len - 1) == 0);
}

/* Most of the memory of a process is empty: zeros become holes of the file. */
static int copy_piece(void *cookie, int stream, const void *data, size_t len)
{
    enum { PAGE = 4096 };
    struct copy *copy = cookie;
    const char *from = data;

    while (stream == 1 && len > 0 && !copy->error) {
        size_t part = PAGE - copy->len % PAGE < len ? PAGE - copy->len % PAGE : len;
        if (copy->len + part > bytes_max)
            copy->error = -EFBIG;
        else if (!is_zero(from, part) &&
                 pwrite(copy->fd, from, part, (off_t)copy->len) != (ssize_t)part)
            copy->error = errno ? -errno : -EIO;
        copy->len += part;
        from += part;
        len -= part;
    }
    return copy->error;
}

static int copy_out(cay_sandbox *sandbox, int fd, struct cay_error *err)
{
    struct copy copy = {.fd = fd};
    const char *const argv[] = {"cat", file_inside, NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .timeout_ms = TIMEOUT_MS,
                                             .on_output = copy_piece,
                                             .cookie = &copy};
    struct cay_exec_result result = {0};

    TRY(cay_sandbox_exec(sandbox, &options, &result, err));
    bool is_done = result.cause == CAY_CAUSE_EXITED && result.exit_code == 0;
    cay_exec_done(&result);
    if (!copy.error && ftruncate(fd, (off_t)copy.len) != 0)
        copy.error = -errno;
    if (copy.error)
        return cay_fail_errno(err, -copy.error, op, directory);
    return is_done && copy.len
               ? CAY_OK
               : cay_fail(err, CAY_E_IO, 0, op, file_inside,
                          "the saved interpreter cannot be read", "try again");
}

/* In a sandbox of its own, in which nothing else has run. */
static int fill(const char *template_name, int fd, struct cay_error *err)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .template_name = template_name, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    TRY(cay_sandbox_create(&options, &sandbox, err));
    int code = save_inside(sandbox, err);
    if (!code)
        code = copy_out(sandbox, fd, err);
    struct cay_error own;
    int killed = cay_sandbox_kill(sandbox, &own);
    cay_sandbox_free(sandbox);
    return code || !killed ? code : cay_fail_as(err, killed, &own);
}

int cay_code_warm(const char *template_name, struct cay_error *err)
{
    const char *template = template_name ? template_name : "host";
    char name[NAME_ROOM], draft[NAME_ROOM + sizeof draft_suffix];

    AUTO_FD there = code_warm_open(template);
    if (there >= 0)
        return CAY_OK;
    AUTO_FD dir = open_directory(true, err);
    if (dir < 0)
        return dir;
    if (!name_file(template, name))
        return cay_fail_errno(err, EIO, op, "boot_id");
    snprintf(draft, sizeof draft, "%s%s", name, draft_suffix);
    AUTO_FD fd = openat(dir, draft, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fchmod(fd, 0600) != 0)
        return cay_fail_errno(err, errno, op, draft);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, op, template,
                        "another process saves an interpreter of this template",
                        "wait for it");
    AUTO_FD detached = detach(fd);
    int code = detached < 0
                   ? cay_fail(err, CAY_E_UNSUPPORTED, EPERM, op, template,
                              "only root can let sandboxes share a saved interpreter",
                              "use contexts without it: they start Python as usual")
               : ftruncate(fd, 0) == 0 ? fill(template, fd, err)
                                       : cay_fail_errno(err, errno, op, draft);
    if (!code && renameat(dir, draft, dir, name) != 0)
        code = cay_fail_errno(err, errno, op, name);
    if (code)
        (void)unlinkat(dir, draft, 0);
    return code;
}
