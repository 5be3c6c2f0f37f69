/* SPDX-License-Identifier: Apache-2.0 */

/* `cay secret`: values that sandboxes use and never read, in the store of the server. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/stored.h"
#include "server/commands.h"
#include "json/json.h"

static const char op[] = "secret";

struct command {
    struct state state;
    struct secrets secrets;
    const char *tenant; /* NULL: not given */
};

/* --- set --- */

/* From standard input, without the line end that editors and echo(1) add. */
static int read_value(const char *name, char ret_value[STORED_OPEN_MAX],
                      struct cay_error *err)
{
    size_t len = 0;
    ssize_t got = 1;

    while (got > 0 && len < STORED_OPEN_MAX) {
        got = read(STDIN_FILENO, ret_value + len, STORED_OPEN_MAX - len);
        len += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return cay_fail_errno(err, errno, op, "standard input");
    if (len && ret_value[len - 1] == '\n')
        len--;
    if (len > STORED_TEXT_MAX || memchr(ret_value, '\0', len))
        return cay_fail(err, CAY_E_INVALID, 0, op, name,
                        "the value of the secret is too long or not text",
                        "use 8 to 4096 bytes without control characters");
    ret_value[len] = '\0';
    return CAY_OK;
}

static int set(const struct command *command, const char *name, struct cay_error *err)
{
    char value[STORED_OPEN_MAX];
    AUTO_STORED row = STORED_INIT;
    const struct stored_change change = {
        .tenant = command->tenant, .name = name, .value = value, .mode = STORED_EITHER};

    int code = read_value(name, value, err);
    if (!code)
        code = stored_set(command->state.registry, &command->secrets, &change, &row, err);
    explicit_bzero(value, sizeof value);
    return code;
}

/* --- ls --- */

/* `cookie`: the JSON document, or NULL for a line of text. */
static bool print_row(const struct stored_row *row, void *cookie)
{
    struct json *json = cookie;
    time_t updated = (time_t)(row->updated_ms / 1000);
    struct tm tm;
    char text[32];

    gmtime_r(&updated, &tm);
    if (!json) {
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &tm);
        printf("%s\t%s\t%lld\t%s\n", row->name, row->tenant, (long long)row->version,
               text);
        return true;
    }
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_put_object(json);
    json_set_text(json, "name", row->name);
    json_set_text(json, "tenant", row->tenant);
    json_set_int(json, "version", row->version);
    json_set_text(json, "updated", text);
    json_put_end(json);
    return true;
}

/* {"secrets": [...]} */
static int list(const struct command *command, bool as_json, struct cay_error *err)
{
    struct registry *registry = command->state.registry;
    struct json json;

    if (!as_json)
        return registry_visit_stored(registry, command->tenant, "", print_row, NULL, err);
    json_to_file(&json, stdout);
    json_put_object(&json);
    json_put_key(&json, "secrets");
    json_put_array(&json);
    int code =
        registry_visit_stored(registry, command->tenant, "", print_row, &json, err);
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', stdout);
    return code;
}

/* --- For other programs of Cay --- */

/* To a pipe only, so that no terminal, log or file gets it by accident. */
static int give(const struct command *command, const char *name, struct cay_error *err)
{
    char value[STORED_OPEN_MAX];
    struct stat st;

    if (fstat(STDOUT_FILENO, &st) != 0 || !S_ISFIFO(st.st_mode))
        return cay_fail(err, CAY_E_INVALID, 0, op, name, "values are not printed",
                        "use --secret NAME=stored:%s", name);
    TRY(stored_open(command->state.registry, &command->secrets, command->tenant, name,
                    value, err));
    size_t len = strlen(value);
    ssize_t sent = write(STDOUT_FILENO, value, len); /* at most PIPE_BUF: whole */
    explicit_bzero(value, sizeof value);
    return sent == (ssize_t)len ? CAY_OK
                                : cay_fail_errno(err, errno, op, "standard output");
}

static int run(struct command *command, char *const words[], bool as_json,
               struct cay_error *err)
{
    struct registry *registry = command->state.registry;
    bool is_all = !command->tenant, has_word = words[1] != NULL,
         has_more = has_word && words[2];

    if (strcmp(words[0], "ls") == 0 && !has_word)
        return list(command, as_json, err);
    if (is_all)
        command->tenant = "default";
    if (strcmp(words[0], "set") == 0 && has_word && !has_more)
        return set(command, words[1], err);
    if (strcmp(words[0], "rm") == 0 && has_word && !has_more)
        return registry_remove_stored(registry, command->tenant, words[1], err);
    if (strcmp(words[0], "give") == 0 && has_word && !has_more)
        return give(command, words[1], err);
    return cay_fail(err, CAY_E_INVALID, 0, op, words[0],
                    "unknown command or wrong number of arguments",
                    "use cay secret set NAME, cay secret ls, or cay secret rm NAME");
}

int secret_command(char *const *argv, bool *ret_json, struct cay_error *err)
{
    static const char usage[] =
        "Usage: cay secret [-o text|json] [--store STORE] [--tenant TENANT] set NAME | "
        "ls | rm NAME\n"
        "Values that sandboxes use and never read; set reads one from standard input.\n";
    struct command command = {0};
    char *words[COMMAND_WORDS + 1] = {NULL};
    int code = commands_take_options(argv, words, ret_json, &command.tenant,
                                     &command.state.options, err);

    if (code)
        return code;
    if (!words[0] || strcmp(words[0], "--help") == 0) {
        fputs(usage, stdout);
        return CAY_OK;
    }
    if (command.tenant && !options_is_tenant(command.tenant))
        return cay_fail(err, CAY_E_INVALID, 0, op, command.tenant, "invalid tenant name",
                        "use letters, digits, \"-\", \"_\" and \".\"");
    code = server_state_open(&command.state, false, err);
    if (!code)
        code = secrets_open(command.state.options.home, &command.secrets, err);
    if (!code)
        code = run(&command, words, *ret_json, err);
    explicit_bzero(&command.secrets, sizeof command.secrets);
    registry_close(command.state.registry);
    return code;
}
