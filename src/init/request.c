/* SPDX-License-Identifier: Apache-2.0 */
#include "init/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"

enum { DEFAULTS = 5 };

static int fail(struct cay_error *err, const char *what)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, "exec.request", what,
                    "the request is malformed", "use the library that made this sandbox");
}

/* The strings, from the packet or from the memfd beside it. */
static int take_strings(const struct packet *packet, const struct exec_request *head,
                        char **ret_strings, struct cay_error *err)
{
    size_t here = packet->head.len - sizeof *head;
    size_t len = head->strings_len;
    struct stat st;

    if (len == 0 || len > EXEC_STRINGS_MAX || head->in_memfd > 1 ||
        packet->head.fd_count != 3 + head->in_memfd || here != (head->in_memfd ? 0 : len))
        return fail(err, "strings");
    AUTO_FREE char *strings = malloc(len + 1);
    if (!strings)
        return cay_fail_memory(err, "exec.request");
    if (head->in_memfd) {
        if (fstat(packet->fds[3], &st) != 0 || !S_ISREG(st.st_mode) ||
            io_pread(packet->fds[3], strings, len, 0) != (ssize_t)len)
            return fail(err, "memfd");
    } else {
        memcpy(strings, packet->payload + sizeof *head, len);
    }
    if (strings[len - 1] != '\0')
        return fail(err, "strings");
    *ret_strings = TAKE_PTR(strings);
    return CAY_OK;
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

static bool is_set(char *const *env, const char *assignment)
{
    size_t len = strcspn(assignment, "=") + 1;

    for (; *env; env++)
        if (strncmp(*env, assignment, len) == 0)
            return true;
    return false;
}

/* What every program expects to find, unless the request says otherwise. */
static int add_defaults(struct request *request, size_t used, struct cay_error *err)
{
    const struct user *user = &request->command.user;
    char **env = request->command.env;
    size_t room = sizeof user->home + 2 * sizeof user->name + 256;
    char *text = malloc(room);

    if (!text)
        return cay_fail_memory(err, "exec.request");
    request->defaults = text;
    int len =
        snprintf(text, room,
                 "HOME=%s%cUSER=%s%cLOGNAME=%s%c"
                 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin%c"
                 "LANG=C.UTF-8%c",
                 user->home, 0, user->name, 0, user->name, 0, 0, 0);
    for (const char *at = text; at < text + len; at += strlen(at) + 1)
        if (!is_set(env, at))
            env[used++] = (char *)(uintptr_t)at;
    env[used] = NULL;
    return CAY_OK;
}

int request_parse(struct packet *packet, struct request *ret_request,
                  struct cay_error *err)
{
    struct exec_request head;
    struct command *command = &ret_request->command;
    char *first[2] = {NULL, NULL};

    *ret_request = (struct request){0};
    if (packet->head.len < sizeof head)
        return fail(err, "length");
    memcpy(&head, packet->payload, sizeof head);
    if (head.argc == 0 || head.argc > EXEC_COUNT_MAX || head.envc > EXEC_COUNT_MAX)
        return fail(err, "count");
    int code = take_strings(packet, &head, &ret_request->strings, err);
    if (code)
        return code;
    command->argv = calloc(head.argc + 1, sizeof *command->argv);
    command->env = calloc(head.envc + DEFAULTS + 1, sizeof *command->env);
    if (!command->argv || !command->env)
        return cay_fail_memory(err, "exec.request");
    const char *end = ret_request->strings + head.strings_len;
    const char *at = split(ret_request->strings, end, first, 2);
    at = at ? split(at, end, command->argv, head.argc) : NULL;
    at = at ? split(at, end, command->env, head.envc) : NULL;
    if (at != end)
        return fail(err, "strings");
    command->cwd = first[0];
    ret_request->timeout_ms = head.timeout_ms;
    memcpy(command->stdio, packet->fds, sizeof command->stdio);
    code = user_find(first[1], &command->user, err);
    return code ? code : add_defaults(ret_request, head.envc, err);
}

void request_done(struct request *request)
{
    free(request->command.argv);
    free(request->command.env);
    free(request->strings);
    free(request->defaults);
}
