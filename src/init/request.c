/* SPDX-License-Identifier: Apache-2.0 */
#include "init/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "sys/io.h"

enum { DEFAULTS = 6, FIRST = 3 /* cwd, user, tag */ };

static struct {
    const char *user, *workdir;
    size_t env_count;
} sandbox;

static LARGE char *sandbox_env[ENV_COUNT_MAX];

static int fail(struct cay_error *err, const char *what)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, "exec.request", what,
                    "the request is malformed",
                    "use the libcay version that created this sandbox");
}

/* Points `out` at the next `count` strings; NULL if there are not so many. */
static const char *split(const char *at, const char *end, char **out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (at >= end)
            return NULL;
        out[i] = (char *)(uintptr_t)at;
        at += strlen(at) + 1;
    }
    return at;
}

bool request_set_defaults(const struct plan_defaults *defaults, const char *env)
{
    const char *at = env, *end = env + defaults->env_len;

    if ((defaults->env_len && end[-1] != '\0') ||
        !memchr(defaults->user, 0, sizeof defaults->user) ||
        !memchr(defaults->workdir, 0, sizeof defaults->workdir))
        return false;
    sandbox.user = defaults->user[0] ? defaults->user : "user";
    sandbox.workdir = defaults->workdir;
    sandbox.env_count = 0;
    while (at < end && sandbox.env_count < ENV_COUNT_MAX)
        at = split(at, end, &sandbox_env[sandbox.env_count++], 1);
    return at == end;
}

const char *request_default_user(void)
{
    return sandbox.user;
}

const char *request_workdir(void)
{
    return sandbox.workdir;
}

/* The strings, from the packet or from the memfd beside it. */
static int take_strings(const struct packet *packet, const struct exec_request *head,
                        int memfd, char **ret_strings, struct cay_error *err)
{
    size_t here = packet->head.len - sizeof *head;
    size_t len = head->strings_len;
    struct stat st;

    if (len == 0 || len > EXEC_STRINGS_MAX || here != (memfd >= 0 ? 0 : len))
        return fail(err, "strings");
    AUTO_FREE char *strings = malloc(len + 1);
    if (!strings)
        return cay_fail_memory(err, "exec.request");
    if (memfd >= 0) {
        if (fstat(memfd, &st) != 0 || !S_ISREG(st.st_mode) ||
            io_pread(memfd, strings, len, 0) != (ssize_t)len)
            return fail(err, "memfd");
    } else {
        memcpy(strings, packet->payload + sizeof *head, len);
    }
    if (strings[len - 1] != '\0')
        return fail(err, "strings");
    *ret_strings = TAKE_PTR(strings);
    return CAY_OK;
}

/* Variables that must differ between users. */
static bool is_personal(const char *assignment)
{
    return strncmp(assignment, "HOME=", 5) == 0 || strncmp(assignment, "USER=", 5) == 0 ||
           strncmp(assignment, "LOGNAME=", 8) == 0;
}

/* Adds the sandbox's own environment and the usual variables that the request does not
 * set. */
static int complete_env(struct request *request, size_t used, struct cay_error *err)
{
    const struct user *user = &request->user;
    char **env = request->env;
    size_t room = strlen(user->home) + 2 * sizeof user->name + 256;
    char *text = malloc(room);

    if (!text)
        return cay_fail_memory(err, "exec.request");
    request->defaults = text;
    bool is_another = user_is_another(user);
    for (size_t i = 0; i < sandbox.env_count; i++)
        if (!env_sets((const char *const *)env, sandbox_env[i]) &&
            !(is_another && is_personal(sandbox_env[i]))) {
            env[used++] = sandbox_env[i];
            env[used] = NULL;
        }
    int len =
        snprintf(text, room,
                 "HOME=%s%cUSER=%s%cLOGNAME=%s%c"
                 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin%c"
                 "LANG=C.UTF-8%c%s",
                 user->home, 0, user->name, 0, user->name, 0, 0, 0,
                 request->flags & EXEC_TTY ? "TERM=xterm-256color" : "");
    for (const char *at = text; at < text + len; at += strlen(at) + 1)
        if (!env_sets((const char *const *)env, at)) {
            env[used++] = (char *)(uintptr_t)at;
            env[used] = NULL;
        }
    return CAY_OK;
}

/* "web-1": never looks like a pid and never needs quotes. */
static int check_tag(const char *tag, struct cay_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789-_.";

    size_t len = strlen(tag);
    if (len == 0 ||
        (strchr(letters, tag[0]) && strspn(tag, others) == len && len < TAG_MAX))
        return CAY_OK;
    return cay_fail(
        err, CAY_E_INVALID, 0, "exec.tag", tag, "invalid tag",
        "a tag is a letter followed by up to %d letters, digits, \"-\", \"_\" or \".\"",
        TAG_MAX - 2);
}

static int take(int *fds, unsigned *at)
{
    int fd = fds[*at];

    fds[(*at)++] = -1;
    return fd;
}

/* Takes the descriptors in the order of protocol.h; false if their number does not match.
 */
static bool take_fds(struct packet *packet, struct request *request, int *ret_memfd)
{
    unsigned flags = request->flags;
    bool tty = flags & EXEC_TTY, background = flags & EXEC_BACKGROUND;
    unsigned at = 0;
    int *fds = packet->fds;

    if ((tty && flags & (EXEC_INPUT | EXEC_QUIET)) ||
        (background && flags & (EXEC_QUIET | EXEC_LAST)) ||
        (flags & (EXEC_KEEP_INPUT | EXEC_PIPED) && !background))
        return false;
    if (flags & EXEC_INPUT)
        request->stdio[0] = take(fds, &at);
    if (!tty && !background) {
        request->stdio[1] = take(fds, &at);
        request->stdio[2] = take(fds, &at);
    }
    if (flags & EXEC_KEEP_INPUT && !tty)
        request->keep_input = take(fds, &at);
    if (flags & EXEC_IN_MEMFD)
        *ret_memfd = fds[at++];
    return at == packet->head.fd_count &&
           (request->keep_input < 0 ||
            fcntl(request->keep_input, F_SETFL, O_WRONLY | O_NONBLOCK) == 0);
}

static int take_words(struct request *request, const struct exec_request *head,
                      struct cay_error *err)
{
    const char *end = request->strings + head->strings_len;
    char *first[FIRST] = {NULL};

    request->argv = calloc(head->argc + 1, sizeof *request->argv);
    request->env =
        calloc(head->envc + sandbox.env_count + DEFAULTS + 1, sizeof *request->env);
    if (!request->argv || !request->env)
        return cay_fail_memory(err, "exec.request");
    const char *at = split(request->strings, end, first, FIRST);
    at = at ? split(at, end, request->argv, head->argc) : NULL;
    at = at ? split(at, end, request->env, head->envc) : NULL;
    if (at != end)
        return fail(err, "strings");
    request->cwd = first[0];
    request->base = sandbox.workdir;
    request->tag = first[2];
    int code = check_tag(request->tag, err);
    if (code)
        return code;
    return user_find(head->flags & EXEC_DEFAULT_USER ? sandbox.user : first[1],
                     &request->user, err);
}

void request_init(struct request *request)
{
    request->argv = request->env = NULL;
    request->strings = request->defaults = NULL;
    request->keep_input = -1;
    request->is_own = false;
    for (int i = 0; i < 3; i++)
        request->stdio[i] = -1;
}

int request_parse(struct packet *packet, struct request *ret_request,
                  struct cay_error *err)
{
    struct exec_request head;
    int memfd = -1;

    if (packet->head.len < sizeof head)
        return fail(err, "length");
    memcpy(&head, packet->payload, sizeof head);
    ret_request->flags = head.flags;
    ret_request->timeout_ms = head.timeout_ms;
    ret_request->mark = head.mark;
    ret_request->rows = head.rows;
    ret_request->columns = head.columns;
    if (head.argc == 0 || head.argc > EXEC_COUNT_MAX || head.envc > EXEC_COUNT_MAX)
        return fail(err, "count");
    if (head.flags & ~(unsigned)EXEC_FLAGS || !take_fds(packet, ret_request, &memfd))
        return fail(err, "descriptors");
    int code = take_strings(packet, &head, memfd, &ret_request->strings, err);
    if (!code)
        code = take_words(ret_request, &head, err);
    return code ? code : complete_env(ret_request, head.envc, err);
}

int request_make_own(struct request *request, const char *user, const char *name,
                     struct cay_error *err)
{
    struct exec_request head = {.argc = 1, .flags = EXEC_BACKGROUND};
    AUTO_BUF strings;

    if (!*user)
        head.flags |= EXEC_DEFAULT_USER;
    buf_init(&strings, EXEC_STRINGS_MAX);
    const char *const words[] = {"", user, "", name}; /* cwd, user, tag, argv */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        buf_append(&strings, words[i], strlen(words[i]) + 1);
    head.strings_len = (uint32_t)strings.len;
    request->flags = EXEC_BACKGROUND;
    request->timeout_ms = request->mark = 0;
    request->is_own = true;
    request->strings = buf_take(&strings);
    if (!request->strings)
        return cay_fail_memory(err, "exec.request");
    int code = take_words(request, &head, err);
    return code ? code : complete_env(request, 0, err);
}

void request_done(struct request *request)
{
    free(request->argv);
    free(request->env);
    free(request->strings);
    free(request->defaults);
    const int fds[] = {request->stdio[0], request->stdio[1], request->stdio[2],
                       request->keep_input};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    request_init(request);
}
