/* SPDX-License-Identifier: Apache-2.0 */
#include "code/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/sandbox.h"
#include "code/client.h"

/* src/init/warm-save.c, embedded. */
extern const unsigned char warm_save[] __attribute__((visibility("hidden")));
extern const uint64_t warm_save_size __attribute__((visibility("hidden")));

static const char op[] = "code.warm";

enum { TIMEOUT_MS = 60000, LIFE_S = 180, NICE = 19 };

static const uint64_t bytes_max = 1ull << 30;

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

static json_t *list_modules(const char *preload)
{
    json_t *list = json_array();

    for (const char *at = preload; *at; at += *at == ',') {
        size_t len = strcspn(at, ",");
        (void)json_array_append_new(list, json_stringn(at, len));
        at += len;
    }
    return list;
}

char *warm_save_body(void)
{
    AUTO_FREE char *library = base64(warm_save, warm_save_size);
    char *body = NULL;

    if (!library ||
        asprintf(&body, "\"code\":\"\",\"env\":{},\"silent\":true,\"library\":\"%s\"",
                 library) < 0)
        return NULL;
    return body;
}

/* Members of the line that makes the driver save its interpreter. */
static char *make_body(const char *preload)
{
    AUTO_FREE char *library = base64(warm_save, warm_save_size);
    AUTO_FREE char *whole = NULL;
    json_t *line = json_pack("{s:s, s:{}, s:b, s:{s:s, s:s, s:o}}", "code", "", "env",
                             "silent", 1, "save", "library", library ? library : "",
                             "file", file_inside, "modules", list_modules(preload));

    if (line && library)
        whole = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    return whole ? strndup(whole + 1, strlen(whole) - 2) : NULL;
}

static int save_inside(cay_sandbox *sandbox, const struct warm_key *key,
                       struct cay_error *err)
{
    const struct cay_code_options options = {
        .size = sizeof options,
        .language = "python",
        .user = key->user,
        .timeout_ms = TIMEOUT_MS,
        .preload = key->preload}; /* the one being saved, so that it is not tried again */
    struct cay_code_execution done = {0};
    AUTO_FREE char *body = make_body(key->preload);

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

static int copy_out(cay_sandbox *sandbox, const struct warm_key *key, int fd,
                    struct cay_error *err)
{
    struct copy copy = {.fd = fd};
    const char *const argv[] = {"cat", file_inside, NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .user = key->user,
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
        return cay_fail_errno(err, -copy.error, op, file_inside);
    return is_done && copy.len
               ? CAY_OK
               : cay_fail(err, CAY_E_IO, 0, op, file_inside,
                          "the saved interpreter cannot be read", "try again");
}

typedef int sandbox_work(cay_sandbox *sandbox, const struct warm_key *key, void *cookie,
                         struct cay_error *err);

/* In a sandbox of its own, in which nothing else has run. */
static int work_alone(const struct warm_key *key, sandbox_work *work, void *cookie,
                      struct cay_error *err)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .template_name = key->template_name, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    TRY(cay_sandbox_create(&options, &sandbox, err));
    int code = work(sandbox, key, cookie, err);
    struct cay_error own;
    int killed = cay_sandbox_kill(sandbox, &own);
    cay_sandbox_free(sandbox);
    return code || !killed ? code : cay_fail_as(err, killed, &own);
}

static int save(cay_sandbox *sandbox, const struct warm_key *key, void *cookie,
                struct cay_error *err)
{
    const int *fd = cookie;

    TRY(save_inside(sandbox, key, err));
    return copy_out(sandbox, key, *fd, err);
}

static int fill(const struct warm_key *key, int fd, struct cay_error *err)
{
    struct cay_error why = {0};
    int code = work_alone(key, save, &fd, &why);

    if (!code)
        code = warm_commit(key, &why);
    if (code)
        warm_abandon(key, &why);
    return cay_fail_as(err, code, &why);
}

static int create(const struct warm_key *key, struct cay_error *err)
{
    struct cay_error why = {0};

    AUTO_FD there = warm_open(key);
    if (there >= 0)
        return CAY_OK;
    AUTO_FD fd = warm_draft(key, &why);
    return fd < 0 ? cay_fail_as(err, fd, &why) : fill(key, fd, err);
}

int cay_warm_create(const char *template_name, const char *preload, struct cay_error *err)
{
    struct warm_key key;

    TRY(warm_key_init(&key, template_name ? template_name : "host", NULL, preload, err));
    return create(&key, err);
}

/* --- Checking one --- */

static int start_copy(cay_sandbox *sandbox, const struct warm_key *key, void *cookie,
                      struct cay_error *err)
{
    const struct cay_code_options options = {.size = sizeof options,
                                             .language = "python",
                                             .user = key->user,
                                             .timeout_ms = TIMEOUT_MS,
                                             .preload = key->preload};
    struct cay_code_execution done = {0};
    bool *fits = cookie;

    TRY(code_execute(sandbox, "", 0, &options, code_language_find("python"), &done, err));
    *fits = done.is_warm;
    cay_code_execution_done(&done);
    return CAY_OK;
}

static int check(const struct warm_key *key, struct cay_error *err)
{
    bool fits = false;

    AUTO_FD fd = warm_draft(key, err);
    if (fd < 0)
        return fd;
    int code = work_alone(key, start_copy, &fits, err);
    if (code || fits) {
        warm_abandon(key, NULL);
        return code;
    }
    warm_forget(key); /* or the new one would begin with it */
    return fill(key, fd, err);
}

/* --- In the background --- */

typedef int background_task(const struct warm_key *key, struct cay_error *err);

/* As in session/start.c: fork(3) gives the child a working allocator, and the alarm ends
 * a child that waits for a lock which another thread held.  Nothing of the host program
 * is used: no descriptor, terminal, directory or signal handler. */
static _Noreturn void run_alone(background_task *task, const struct warm_key *key)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t only;

    (void)setsid();
    if (fork() != 0) /* allow: fork (so that the host program has no child to reap) */
        _exit(0);
    (void)sigaction(SIGALRM, &by_default, NULL); /* allow: sigaction (in our own child) */
    sigemptyset(&only);
    sigaddset(&only, SIGALRM);
    (void)alarm(LIFE_S);
    (void)pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    (void)syscall(SYS_close_range, 0, ~0U, 0);
    if (open("/dev/null", O_RDWR) != 0 ||           /* allow: cloexec for children */
        dup3(0, 1, 0) != 1 || dup3(0, 2, 0) != 2 || /* allow: cloexec for children */
        chdir("/") != 0)
        _exit(1);
    _exit(task(key, NULL) != CAY_OK);
}

static void run_later(background_task *task, const struct warm_key *key)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork(); /* allow: fork (the child runs on without its parent) */
    if (pid == 0)
        run_alone(task, key);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

static bool is_off(void)
{
    const char *value = getenv("CAY_WARM");

    return value && strcmp(value, "off") == 0;
}

void warm_later(const struct warm_key *key)
{
    if (!is_off() && !warm_is_tried(key))
        run_later(create, key);
}

void warm_misfit(const struct warm_key *key)
{
    if (!is_off() && warm_may_check(key))
        run_later(check, key);
}
