/* SPDX-License-Identifier: Apache-2.0 */
#include "far.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "sandbox/backend.h"

uint64_t far_sent;
void (*far_meanwhile)(void);

static char calls[4096];

const char *far_calls(void)
{
    static char told[sizeof calls];

    memcpy(told, calls, sizeof told);
    *calls = '\0';
    return told;
}

static void note(char letter)
{
    size_t used = strlen(calls);

    if (used + 1 < sizeof calls) {
        calls[used] = letter;
        calls[used + 1] = '\0';
    }
}

static void auto_files(cay_files **files)
{
    cay_files_free(*files);
}

#define FILES(cookie, user, err)                                                         \
    __attribute__((cleanup(auto_files))) cay_files *files = NULL;                        \
    do {                                                                                 \
        int code_ = cay_sandbox_files(cookie, user, &files, err);                        \
        if (code_)                                                                       \
            return code_;                                                                \
    } while (0)

/* --- Files --- */

static int far_stat(void *cookie, const char *user, const char *path, bool no_follow,
                    struct cay_stat *ret_stat, struct cay_error *err)
{
    FILES(cookie, user, err);
    note('s');
    return cay_files_stat(files, path, no_follow, ret_stat, err);
}

/* In small pieces, as they would come from a network. */
static int far_read(void *cookie, const char *user, const char *path, int fd,
                    struct cay_error *err)
{
    struct cay_read_options options = {.size = sizeof options, .max = 4096};
    struct cay_page page = {.truncated = true};

    FILES(cookie, user, err);
    note('r');
    for (far_sent = 0; page.truncated; options.offset += 4096) {
        int code = cay_files_read_bytes(files, path, &options, &page, err);
        if (code)
            return code;
        ssize_t put = page.len ? write(fd, page.text, page.len) : 0;
        int error = errno;
        far_sent += put > 0 ? (uint64_t)put : 0;
        bool truncated = page.truncated;
        size_t len = page.len;
        cay_page_done(&page);
        page.truncated = truncated;
        if (put != (ssize_t)len)
            return cay_fail_errno(err, put < 0 ? error : ENOSPC, "far.read", path);
    }
    return CAY_OK;
}

static int far_write(void *cookie, const char *user, const char *path, int fd,
                     unsigned flags, struct cay_error *err)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    FILES(cookie, user, err);
    note('w');
    return cay_files_write_from(files, path, fd, &options, NULL, err);
}

static int far_list(void *cookie, const char *user, const char *path, uint32_t depth,
                    struct cay_listing *ret_listing, struct cay_error *err)
{
    const struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER |
                 CAY_LIST_STAT,
        .pattern = depth == 1 ? "*" : NULL};

    FILES(cookie, user, err);
    note('l');
    return cay_files_list(files, path, &options, ret_listing, err);
}

static int far_mkdir(void *cookie, const char *user, const char *path, unsigned flags,
                     struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options, .flags = flags};

    FILES(cookie, user, err);
    note('m');
    if (far_meanwhile)
        far_meanwhile();
    return cay_files_mkdir(files, path, &options, err);
}

static int far_remove(void *cookie, const char *user, const char *path, unsigned flags,
                      struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options, .flags = flags};

    FILES(cookie, user, err);
    note('d');
    return cay_files_delete(files, path, &options, err);
}

static int far_move(void *cookie, const char *user, const char *source,
                    const char *destination, struct cay_error *err)
{
    FILES(cookie, user, err);
    return cay_files_move(files, source, destination, NULL, err);
}

static int far_export(void *cookie, const char *user, const char *path, int fd,
                      struct cay_tar_result *ret_result, struct cay_error *err)
{
    FILES(cookie, user, err);
    note('t');
    return cay_files_export(files, path, fd, NULL, ret_result, err);
}

static int far_import(void *cookie, const char *user, const char *path, int fd,
                      struct cay_tar_result *ret_result, struct cay_error *err)
{
    FILES(cookie, user, err);
    note('t');
    return cay_files_import(files, path, fd, NULL, ret_result, err);
}

static int far_read_link(void *cookie, const char *user, const char *path,
                         char **ret_target, struct cay_error *err)
{
    FILES(cookie, user, err);
    return cay_files_read_link(files, path, ret_target, err);
}

static struct cay_file_backend far_files = {
    .size = sizeof far_files,
    .stat = far_stat,
    .read = far_read,
    .write = far_write,
    .list = far_list,
    .mkdir = far_mkdir,
    .remove = far_remove,
    .move = far_move,
    .read_link = far_read_link,
};

void far_take_archives(bool takes)
{
    far_files.export_tar = takes ? far_export : NULL;
    far_files.import_tar = takes ? far_import : NULL;
}

/* --- Processes --- */

static int far_start(void *cookie, const struct cay_exec_options *options,
                     void **ret_process, struct cay_error *err)
{
    return cay_process_start(cookie, options, (cay_process **)ret_process, err);
}

static int far_attach(void *cookie, const char *which, void **ret_process,
                      struct cay_error *err)
{
    cay_process *process;
    struct cay_process_info *infos = NULL;
    size_t count = 0;
    bool has_ended = false;

    int code = cay_process_attach(cookie, which, &process, err);
    if (!code)
        code = cay_process_list(cookie, &infos, &count, err);
    if (code)
        return code;
    for (size_t i = 0; i < count; i++)
        if (infos[i].pid == cay_process_pid(process))
            has_ended = infos[i].has_ended;
    cay_free(infos);
    *ret_process = process;
    if (!has_ended)
        return CAY_OK;
    cay_process_free(process);
    return cay_fail(err, CAY_E_NOT_FOUND, 0, "far.attach", which, "it has ended",
                    "its outcome is lost");
}

static int far_list_processes(void *cookie, struct cay_process_info **ret_infos,
                              size_t *ret_count, struct cay_error *err)
{
    return cay_process_list(cookie, ret_infos, ret_count, err);
}

static void far_free_process(void *process)
{
    cay_process_free(process);
}

static int far_pid(const void *process)
{
    return cay_process_pid(process);
}

static int far_fd(const void *process)
{
    return cay_process_fd(process);
}

static int far_read_process(void *process, int *ret_stream, void *data, size_t room,
                            size_t *ret_len, uint64_t *ret_dropped, struct cay_error *err)
{
    return cay_process_read(process, ret_stream, data, room, ret_len, ret_dropped, err);
}

static int far_kill_process(void *process, struct cay_error *err)
{
    return cay_process_kill(process, err);
}

static int far_wait(void *process, uint64_t timeout_ms,
                    struct cay_exec_result *ret_result, struct cay_error *err)
{
    return cay_process_wait(process, timeout_ms, ret_result, err);
}

static const struct cay_process_backend far_processes = {
    .size = sizeof far_processes,
    .start = far_start,
    .attach = far_attach,
    .list = far_list_processes,
    .free = far_free_process,
    .pid = far_pid,
    .fd = far_fd,
    .read = far_read_process,
    .kill = far_kill_process,
    .wait = far_wait,
};

/* --- The sandbox --- */

static int far_exec(void *cookie, const struct cay_exec_options *options,
                    struct cay_exec_result *ret_result, struct cay_error *err)
{
    return cay_sandbox_exec(cookie, options, ret_result, err);
}

static void far_let_go(void *cookie)
{
    (void)cookie;
}

static const char *far_id(const void *cookie)
{
    return cay_sandbox_id(cookie);
}

static const struct cay_backend far_backend = {
    .size = sizeof far_backend,
    .name = "far",
    .free = far_let_go,
    .id = far_id,
    .exec = far_exec,
    .files = &far_files,
    .processes = &far_processes,
};

cay_sandbox *far_new(cay_sandbox *native)
{
    cay_sandbox *sandbox = sandbox_new(&far_backend, NULL);

    *calls = '\0';
    far_take_archives(false);
    if (sandbox)
        sandbox->cookie = native;
    return sandbox;
}

void far_free(cay_sandbox *sandbox)
{
    cay_sandbox_free(sandbox);
}
