/* SPDX-License-Identifier: Apache-2.0 */

/* Values come from a variable, a file or the store of the server, never from the command
 * line: other users of the machine can read that. */
#include "cli/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

static const char op[] = "cli.options";

enum { VALUE_MAX = 4096 };

static int fail(const char *option, const char *text, const char *message,
                const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, message, "write %s %s", option,
                    hint);
}

/* What the descriptor has, without the line end that editors add. */
static int read_value(int fd, const char *subject, char **ret_value,
                      struct cay_error *err)
{
    char bytes[VALUE_MAX + 2];
    size_t len = 0;
    ssize_t got = 1;

    while (got > 0 && len < sizeof bytes - 1) {
        got = read(fd, bytes + len, sizeof bytes - 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return cay_fail_errno(err, errno, op, subject);
    if (len && bytes[len - 1] == '\n')
        len--;
    bool is_text = !memchr(bytes, '\0', len);
    *ret_value = is_text ? strndup(bytes, len) : NULL;
    explicit_bzero(bytes, sizeof bytes);
    if (!is_text)
        return cay_fail(err, CAY_E_INVALID, 0, op, subject, "the secret is not text",
                        "use a file with one line");
    return *ret_value ? CAY_OK : cay_fail_memory(err, op);
}

static int read_file(const char *path, char **ret_value, struct cay_error *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    return fd < 0 ? cay_fail_errno(err, errno, op, path)
                  : read_value(fd, path, ret_value, err);
}

/* [TENANT/]NAME in the store, which another program reads: this one would start more
 * slowly with the libraries that it needs.  Its output goes to `to`. */
static int start_give(const char *which, int to, pid_t *ret_pid)
{
    const char *slash = strrchr(which, '/');
    AUTO_FREE char *tenant =
        slash ? strndup(which, (size_t)(slash - which)) : strdup("default");
    AUTO_FREE char *name = strdup(slash ? slash + 1 : which);
    char words[][16] = {"cay", "secret", "give", "--tenant"};
    char *argv[] = {words[0], words[1], words[2], words[3], tenant, name, NULL};
    posix_spawn_file_actions_t actions;

    if (!tenant || !name)
        return ENOMEM;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
    int error = posix_spawn(ret_pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static int read_stored(const char *which, char **ret_value, struct cay_error *err)
{
    int ends[2], status = -1;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    AUTO_FD from = ends[0];
    int error = start_give(which, ends[1], &pid);
    (void)close(ends[1]);
    if (error)
        return cay_fail_errno(err, error, op, "cay secret");
    int code = read_value(from, which, ret_value, err);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!code && status != 0)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, op, which,
                        "the stored secret cannot be read",
                        "cay secret ls lists the secrets of this user");
    return code;
}

/* NAME=env:VARIABLE, NAME=file:PATH or NAME=stored:SECRET. */
static int read_secret(const char *text, char **ret_name, char **ret_value,
                       struct cay_error *err)
{
    static const char form[] = "NAME=env:VARIABLE, NAME=file:PATH or NAME=stored:SECRET";
    const char *source = strchr(text, '=');

    if (!source || source == text)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--secret", "missing NAME or source",
                        "write --secret %s", form);
    *ret_name = strndup(text, (size_t)(source - text));
    if (!*ret_name)
        return cay_fail_memory(err, op);
    source++;
    if (strncmp(source, "file:", 5) == 0)
        return read_file(source + 5, ret_value, err);
    if (strncmp(source, "stored:", 7) == 0)
        return read_stored(source + 7, ret_value, err);
    if (strncmp(source, "env:", 4) != 0) /* it may be the value itself: not repeated */
        return fail("--secret", *ret_name,
                    "the source is none of env:, file: and stored:", form, err);
    const char *value = getenv(source + 4);
    if (!value)
        return cay_fail(err, CAY_E_INVALID, 0, op, source + 4,
                        "the variable of the secret is not set",
                        "set it, or write "
                        "--secret NAME=file:PATH");
    *ret_value = strdup(value);
    return *ret_value ? CAY_OK : cay_fail_memory(err, op);
}

/* [NAME=]HOST[:WAY]: the index of the secret, and where HOST begins.  "header=NAME" has
 * the sign, too, but after a colon. */
static int find_secret(const struct cli_secrets *secrets, const char *text,
                       size_t *ret_index, const char **ret_host, struct cay_error *err)
{
    size_t len = strcspn(text, "=:");
    bool has_name = text[len] == '=';

    *ret_host = has_name ? text + len + 1 : text;
    *ret_index = 0;
    if (!secrets->count)
        return fail("--secret", text, "no secret is given for this host",
                    "NAME=env:VARIABLE with it", err);
    if (!has_name && secrets->count > 1)
        return fail("--secret-for", text, "several secrets are given",
                    "NAME=HOST with the name of one", err);
    for (size_t i = 0; has_name && i <= secrets->count; i++) {
        if (i == secrets->count)
            return fail("--secret-for", text, "no secret has this name",
                        "NAME=HOST with the name of a --secret", err);
        const char *name = secrets->list[i].name;
        if (name && strncmp(name, text, len) == 0 && !name[len]) {
            *ret_index = i;
            break;
        }
    }
    return CAY_OK;
}

static int add_hosts(const struct option_list *list, struct cli_secrets *secrets,
                     struct cay_error *err)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *host;
        size_t index;
        TRY(find_secret(secrets, list->items[i], &index, &host, err));
        struct cay_secret *secret = &secrets->list[index];
        const char **hosts = secrets->hosts + index * list->count;
        secret->hosts = hosts;
        hosts[secret->host_count++] = host;
    }
    return CAY_OK;
}

int secret_plan(const struct options *options, struct cli_secrets *ret_secrets,
                struct cay_error *err)
{
    struct cli_secrets *secrets = ret_secrets;
    size_t count = options->secrets.count;
    int code = CAY_OK;

    *secrets = (struct cli_secrets){.list = NULL};
    if (!count && !options->secrets_for.count)
        return CAY_OK;
    secrets->list = calloc(count + 1, sizeof *secrets->list);
    secrets->texts = calloc(2 * count + 1, sizeof *secrets->texts);
    secrets->hosts =
        calloc(count * options->secrets_for.count + 1, sizeof *secrets->hosts);
    if (!secrets->list || !secrets->texts || !secrets->hosts)
        code = cay_fail_memory(err, op);
    for (size_t i = 0; !code && i < count; i++) {
        char **texts = secrets->texts + 2 * i;
        code = read_secret(options->secrets.items[i], &texts[0], &texts[1], err);
        secrets->list[i].name = texts[0];
        secrets->list[i].value = texts[1];
        secrets->count++;
    }
    if (!code)
        code = add_hosts(&options->secrets_for, secrets, err);
    if (code)
        secret_done(secrets);
    return code;
}

void secret_done(struct cli_secrets *secrets)
{
    for (size_t i = 0; secrets->texts && i < 2 * secrets->count; i++) {
        if (secrets->texts[i])
            explicit_bzero(secrets->texts[i], strlen(secrets->texts[i]));
        free(secrets->texts[i]);
    }
    free(secrets->texts);
    free(secrets->hosts);
    free(secrets->list);
    *secrets = (struct cli_secrets){.list = NULL};
}
