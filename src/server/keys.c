/* SPDX-License-Identifier: Apache-2.0 */

/* `cay key` */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "server/commands.h"
#include "json/json.h"

enum { WORDS = 4 };

static void print_key(const struct key_row *row, void *cookie)
{
    time_t made = (time_t)(row->created_ms / 1000);
    struct tm tm;
    char day[32];

    (void)cookie;
    gmtime_r(&made, &tm);
    strftime(day, sizeof day, "%Y-%m-%d %H:%M", &tm);
    printf("%lld\t%s\t%s\t%s\n", (long long)row->number, row->tenant, row->shown, day);
}

static void put_key(const struct key_row *row, void *cookie)
{
    struct json *json = cookie;
    time_t made = (time_t)(row->created_ms / 1000);
    struct tm tm;
    char text[32];

    gmtime_r(&made, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_put_object(json);
    json_set_int(json, "number", row->number);
    json_set_text(json, "tenant", row->tenant);
    json_set_text(json, "key", row->shown);
    json_set_text(json, "created", text);
    json_put_end(json);
}

/* {"keys": [...]} */
static int list_keys(struct registry *registry, bool as_json, struct cay_error *err)
{
    struct json json;

    if (!as_json)
        return registry_visit_keys(registry, print_key, NULL, err);
    json_to_file(&json, stdout);
    json_put_object(&json);
    json_put_key(&json, "keys");
    json_put_array(&json);
    int code = registry_visit_keys(registry, put_key, &json, err);
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', stdout);
    return code;
}

static void show_key(const char *key, const char *tenant, bool as_json)
{
    struct json json;

    if (!as_json) {
        printf("%s\n", key);
        return;
    }
    json_to_file(&json, stdout);
    json_put_object(&json);
    json_set_text(&json, "key", key);
    json_set_text(&json, "tenant", tenant);
    json_put_end(&json);
    fputc('\n', stdout);
}

static int new_key(struct registry *registry, const char *tenant, bool as_json,
                   struct cay_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char key[API_KEY_MAX];

    if (!*tenant || strlen(tenant) >= TENANT_MAX ||
        strspn(tenant, letters) != strlen(tenant))
        return cay_fail(err, CAY_E_INVALID, 0, "key.new", tenant, "invalid tenant name",
                        "use letters, digits, \"-\", \"_\" and \".\"");
    int code = api_key_new(registry, tenant, key, err);
    if (code)
        return code;
    show_key(key, tenant, as_json);
    code = keys_finish_output(err);
    if (code && err)
        cay_copy_text(err->hint, sizeof err->hint,
                      "the new key was not printed; remove it with cay key rm");
    return code;
}

static int remove_key(struct registry *registry, const char *text, struct cay_error *err)
{
    char *end;
    long long number = strtoll(text, &end, 10);

    if (end == text || *end)
        return cay_fail(err, CAY_E_INVALID, 0, "key.rm", text, "invalid key number",
                        "cay key ls shows the numbers");
    return registry_remove_key(registry, number, err);
}

static bool is_output_option(const char *word)
{
    return strcmp(word, "-o") == 0 || strcmp(word, "--output") == 0;
}

/* Splits off the options, which may be anywhere: --store STORE and -o text|json. */
static int take_options(char *const *argv, char *ret_words[WORDS + 1], bool *ret_json,
                        struct serve_options *options, struct cay_error *err)
{
    char *store[3] = {NULL};
    size_t count = 0;

    for (; *argv; argv++) {
        const char *output = strncmp(*argv, "--output=", 9) == 0 ? *argv + 9
                             : is_output_option(*argv)           ? argv[1]
                                                                 : NULL;
        if (strncmp(*argv, "--store", 7) == 0) {
            store[0] = *argv;
            if (strcmp(*argv, "--store") == 0 && (store[1] = argv[1]))
                argv++;
        } else if (output || is_output_option(*argv)) {
            *ret_json = output && strcmp(output, "json") == 0;
            if (!*ret_json && (!output || strcmp(output, "text") != 0))
                return cay_fail(err, CAY_E_INVALID, 0, "key", "--output",
                                "invalid output format", "give text or json");
            argv += is_output_option(*argv);
        } else if (count < WORDS) {
            ret_words[count++] = *argv;
        }
    }
    int code = options_parse(store, options, err);
    if (!code && options->store && strstr(options->store, "memory:"))
        code = cay_fail(err, CAY_E_INVALID, 0, "key", "--store",
                        "a store in memory belongs to the server process",
                        "start the server with --api-key-file");
    return code;
}

int keys_command(char *const *argv, bool *ret_json, struct cay_error *err)
{
    static const char usage[] =
        "Usage: cay key [-o text|json] [--store STORE] new [TENANT] | ls | rm "
        "NUMBER\nAll keys of a tenant see the sandboxes of that tenant, and no others.\n";
    struct state state = {0};
    char *words[WORDS + 1] = {NULL};
    int code = take_options(argv, words, ret_json, &state.options, err);

    if (code)
        return code;
    if (!words[0] || strcmp(words[0], "--help") == 0) {
        fputs(usage, stdout);
        return CAY_OK;
    }
    code = server_state_open(&state, false, err);
    if (code)
        return code;
    bool has_word = words[1] != NULL, has_more = has_word && words[2];
    if (strcmp(words[0], "new") == 0 && !has_more)
        code = new_key(state.registry, has_word ? words[1] : "default", *ret_json, err);
    else if (strcmp(words[0], "ls") == 0 && !has_word)
        code = list_keys(state.registry, *ret_json, err);
    else if (strcmp(words[0], "rm") == 0 && has_word && !has_more)
        code = remove_key(state.registry, words[1], err);
    else
        code = cay_fail(err, CAY_E_INVALID, 0, "key", words[0],
                        "unknown command or wrong number of arguments",
                        "use cay key new [TENANT], cay key ls, or cay key rm NUMBER");
    registry_close(state.registry);
    return code;
}

int keys_finish_output(struct cay_error *err)
{
    bool was_lost = ferror(stdout);

    errno = EIO;
    if (fflush(stdout) == 0 && !was_lost)
        return CAY_OK;
    return cay_fail_errno(err, errno, "cli.output", "standard output");
}
