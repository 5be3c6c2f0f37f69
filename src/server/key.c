/* SPDX-License-Identifier: Apache-2.0 */

/* `cay key`: API keys of a server, or of all servers with the same database. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/keys.h"
#include "server/commands.h"
#include "server/store-client.h"
#include "json/json.h"

/* --- In the store of this server --- */

/* `cookie`: the JSON document, or NULL for a line of text. */
static void print_key(const struct key_row *row, void *cookie)
{
    struct json *json = cookie;
    time_t made = (time_t)(row->created_ms / 1000);
    struct tm tm;
    char text[32];

    gmtime_r(&made, &tm);
    if (!json) {
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &tm);
        printf("%lld\t%s\t%s\t%s%s%s%s\n", (long long)row->number, row->tenant,
               row->shown, text,
               row->is_admin ? "\tadmin"
               : *row->name  ? "\t"
                             : "",
               *row->name ? "\t" : "", row->name);
        return;
    }
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_put_object(json);
    json_set_int(json, "number", row->number);
    json_set_text(json, "tenant", row->tenant);
    json_set_text(json, "key", row->shown);
    json_set_text(json, "created", text);
    if (*row->name)
        json_set_text(json, "name", row->name);
    json_set_bool(json, "admin", row->is_admin);
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
    int code = registry_visit_keys(registry, print_key, &json, err);
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', stdout);
    return code;
}

static int check_tenant(const char *tenant, struct cay_error *err)
{
    if (options_is_tenant(tenant))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "key", tenant, "invalid tenant name",
                    "use letters, digits, \"-\", \"_\" and \".\"");
}

static int print_new(const char *key, const char *tenant, bool as_json,
                     struct cay_error *err)
{
    struct json json;

    if (as_json) {
        json_to_file(&json, stdout);
        json_put_object(&json);
        json_set_text(&json, "key", key);
        json_set_text(&json, "tenant", tenant);
        json_put_end(&json);
        fputc('\n', stdout);
    } else {
        printf("%s\n", key);
    }
    int code = commands_finish_output(err);
    if (code && err)
        cay_copy_text(err->hint, sizeof err->hint,
                      "the new key was not printed; remove it with cay key rm");
    return code;
}

static int new_key(struct registry *registry, const char *tenant, bool is_admin,
                   bool as_json, struct cay_error *err)
{
    char key[API_KEY_MAX];
    unsigned char hash[KEY_HASH];

    TRY(check_tenant(tenant, err));
    TRY(secrets_new_key(registry, tenant, key, err));
    secrets_hash_key(key, hash);
    if (is_admin)
        TRY(keys_describe(registry, hash, "", true, err));
    return print_new(key, tenant, as_json, err);
}

static int parse_number(const char *text, const char *what, int64_t *ret_number,
                        struct cay_error *err)
{
    char *end;

    *ret_number = strtoll(text, &end, 10);
    if (end != text && !*end && *ret_number >= 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "key", text, what,
                    "give a whole number; cay key ls shows those of keys");
}

static int run_alone(struct state *state, char *const *words, bool is_admin, bool as_json,
                     struct cay_error *err)
{
    bool has_word = words[1] != NULL, has_more = has_word && words[2];
    int64_t number;

    if (strcmp(words[0], "new") == 0 && !has_more)
        return new_key(state->registry, has_word ? words[1] : "default", is_admin,
                       as_json, err);
    if (strcmp(words[0], "ls") == 0 && !has_word)
        return list_keys(state->registry, as_json, err);
    if (strcmp(words[0], "rm") == 0 && has_word && !has_more) {
        TRY(parse_number(words[1], "invalid key number", &number, err));
        return registry_remove_key(state->registry, number, err);
    }
    if (strcmp(words[0], "limit") == 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "key.limit", "--store",
                        "limits of tenants need PostgreSQL",
                        "give --store postgresql://USER@HOST/DATABASE");
    return cay_fail(
        err, CAY_E_INVALID, 0, "key", words[0],
        "unknown command or wrong number of arguments",
        "use cay key new [--admin] [TENANT], cay key ls, cay key rm NUMBER, or "
        "cay key limit [TENANT N]");
}

/* --- In the database of several servers --- */

static int add_shared(struct store_client *client, const char *tenant, bool as_json,
                      struct cay_error *err)
{
    char key[API_KEY_MAX], hash[2 * KEY_HASH + 1], shown[16];
    unsigned char digest[KEY_HASH];
    struct store_message message = {.kind = STORE_KEY_ADD};
    AUTO_BUF strings = {.max = STORE_PACKET};

    TRY(check_tenant(tenant, err));
    TRY(secrets_draw_key(key, err));
    secrets_hash_key(key, digest);
    secrets_hash_text(digest, hash);
    snprintf(shown, sizeof shown, "%.10s...", key);
    strings_add(&strings, hash);
    strings_add(&strings, tenant);
    strings_add(&strings, shown);
    message.numbers[STORE_KEY_CREATED_MS] = clock_since_1970_ms();
    TRY(store_client_ask(client, &message, &strings, NULL, NULL, err));
    return print_new(key, tenant, as_json, err);
}

/* `cookie`: as of print_key(). */
static void print_shared(const struct store_packet *packet, void *cookie)
{
    struct key_row row = {.number = packet->head.numbers[STORE_KEY_NUMBER],
                          .created_ms = packet->head.numbers[STORE_KEY_CREATED_MS]};
    const char *strings[2];

    if (!store_strings(packet, strings, 2))
        return;
    cay_copy_text(row.tenant, sizeof row.tenant, strings[0]);
    cay_copy_text(row.shown, sizeof row.shown, strings[1]);
    print_key(&row, cookie);
}

static void print_limit(const struct store_packet *packet, void *cookie)
{
    const char *name = store_next(packet, NULL);
    long long most = packet->head.numbers[STORE_MAX_RUNNING];
    long long running = packet->head.numbers[STORE_RUNNING];
    struct json *json = cookie;

    if (!name)
        return;
    if (!json) {
        printf("%s\t%lld\t%lld\n", name, most, running);
        return;
    }
    json_put_object(json);
    json_set_text(json, "tenant", name);
    json_set_int(json, "limit", most);
    json_set_int(json, "running", running);
    json_put_end(json);
}

/* {"keys": [...]}, {"limits": [...]} */
static int list_shared(struct store_client *client, enum store_kind kind, bool as_json,
                       struct cay_error *err)
{
    struct store_message message = {.kind = kind};
    void (*print)(const struct store_packet *packet, void *cookie) =
        kind == STORE_KEYS ? print_shared : print_limit;
    struct json json;

    if (!as_json)
        return store_client_ask(client, &message, NULL, print, NULL, err);
    json_to_file(&json, stdout);
    json_put_object(&json);
    json_put_key(&json, kind == STORE_KEYS ? "keys" : "limits");
    json_put_array(&json);
    int code = store_client_ask(client, &message, NULL, print, &json, err);
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', stdout);
    return code;
}

static int set_limit(struct store_client *client, const char *tenant, const char *text,
                     struct cay_error *err)
{
    struct store_message message = {.kind = STORE_TENANT_SET};
    AUTO_BUF strings = {.max = TENANT_MAX};

    TRY(check_tenant(tenant, err));
    TRY(parse_number(text, "invalid limit", &message.numbers[STORE_MAX_RUNNING], err));
    strings_add(&strings, tenant);
    return store_client_ask(client, &message, &strings, NULL, NULL, err);
}

static int run_shared(struct store_client *client, char *const *words, bool as_json,
                      struct cay_error *err)
{
    struct store_message remove = {.kind = STORE_KEY_REMOVE};
    bool has_word = words[1] != NULL, has_more = has_word && words[2];

    if (strcmp(words[0], "new") == 0 && !has_more)
        return add_shared(client, has_word ? words[1] : "default", as_json, err);
    if (strcmp(words[0], "ls") == 0 && !has_word)
        return list_shared(client, STORE_KEYS, as_json, err);
    if (strcmp(words[0], "limit") == 0 && !has_word)
        return list_shared(client, STORE_TENANTS, as_json, err);
    if (strcmp(words[0], "limit") == 0 && has_more && !words[3])
        return set_limit(client, words[1], words[2], err);
    if (strcmp(words[0], "rm") == 0 && has_word && !has_more) {
        TRY(parse_number(words[1], "invalid key number",
                         &remove.numbers[STORE_KEY_NUMBER], err));
        int code = store_client_ask(client, &remove, NULL, NULL, NULL, err);
        return code != CAY_E_NOT_FOUND
                   ? code
                   : cay_fail(err, code, 0, "key.rm", words[1], "no such key",
                              "cay key ls shows the numbers");
    }
    return cay_fail(
        err, CAY_E_INVALID, 0, "key", words[0],
        "unknown command or wrong number of arguments",
        "use cay key new [--admin] [TENANT], cay key ls, cay key rm NUMBER, or "
        "cay key limit [TENANT N]");
}

/* --- The command --- */

static int use_database(const struct serve_options *options, char *const *words,
                        bool as_json, struct cay_error *err)
{
    struct store_client client;

    TRY(store_client_open(options, &client, err));
    int code = run_shared(&client, words, as_json, err);
    store_client_close(&client);
    return code;
}

/* Takes "--admin" out of the words of "new". */
static bool take_admin(char **words)
{
    size_t at = 1;

    while (words[0] && words[at] && strcmp(words[at], "--admin") != 0)
        at++;
    if (!words[0] || !words[at] || strcmp(words[0], "new") != 0)
        return false;
    for (; words[at]; at++)
        words[at] = words[at + 1];
    return true;
}

int key_command(char *const *argv, bool *ret_json, struct cay_error *err)
{
    static const char usage[] =
        "Usage: cay key [-o text|json] [--store STORE] [--store-password-file FILE]\n"
        "               new [--admin] [TENANT] | ls | rm NUMBER | limit [TENANT N]\n"
        "All keys of a tenant see the sandboxes of that tenant, and no others.  An "
        "admin\n"
        "key also manages the keys of all tenants, over HTTP and in the dashboard.  "
        "With\n"
        "PostgreSQL as STORE the keys are those of all servers, and tenants can have a\n"
        "limit of running sandboxes (0: none).\n";
    struct state state = {0};
    char *words[COMMAND_WORDS + 1] = {NULL};
    int code = commands_take_options(argv, words, ret_json, NULL, &state.options, err);

    if (code)
        return code;
    if (!words[0] || strcmp(words[0], "--help") == 0) {
        fputs(usage, stdout);
        return CAY_OK;
    }
    bool is_admin = take_admin(words);
    if (state.options.store_url && is_admin)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "key.new", "--admin",
                        "keys of a database cannot be admin keys",
                        "leave it out: cay key --store manages them");
    if (state.options.store_url)
        return use_database(&state.options, words, *ret_json, err);
    code = server_state_open(&state, false, err);
    if (code)
        return code;
    code = run_alone(&state, words, is_admin, *ret_json, err);
    registry_close(state.registry);
    return code;
}
