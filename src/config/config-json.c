/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as JSON that can be parsed again: everything that was written, without
 * secrets in clear text.  Replaced "${...}" are written as their value, except for
 * environment variables in secrets and in maps (envs), which keep their "${env.NAME}". */
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "config/config.h"
#include "policy/policy.h"
#include "json/json.h"

#define JSON_MAX ((size_t)16 << 20)

static const char op[] = "config.json";

/* Escapes a literal "${". */
static void put_plain(struct json *json, const char *text)
{
    AUTO_BUF escaped = {.max = JSON_MAX};

    if (!strstr(text, "${")) {
        json_put_text(json, text);
        return;
    }
    for (const char *start; (start = strstr(text, "${")); text = start + 2) {
        buf_append(&escaped, text, (size_t)(start - text));
        buf_text(&escaped, "$${");
    }
    buf_text(&escaped, text);
    if (escaped.failed)
        json->failed = true;
    else
        json_put_bytes(json, escaped.data, escaped.len);
}

static void put_items(struct json *json, const struct value *value)
{
    bool is_map = value->field->type == CAY_FIELD_MAP;

    if (is_map)
        json_put_object(json);
    else
        json_put_array(json);
    for (size_t i = 0; i < value->total; i++) {
        const struct item *item = &value->items[i];
        if (is_map)
            json_put_key(json, item->key);
        if (item->written)
            json_put_text(json, item->written);
        else
            put_plain(json, item->text);
    }
    json_put_end(json);
}

static void put_rules(struct json *json, const struct cay_mount *mount)
{
    if (mount->limit_suffixes) {
        json_put_key(json, "suffixes");
        json_put_array(json);
        for (size_t i = 0; i < mount->suffix_count; i++)
            put_plain(json, mount->suffixes[i]);
        json_put_end(json);
    }
    if (mount->max_file_bytes != CAY_NO_LIMIT)
        json_set_int(json, "max_file_bytes", mount->max_file_bytes);
    if (mount->exec != CAY_EXEC_DEFAULT)
        json_set_text(json, "exec", mount->exec == CAY_EXEC_RW ? "rw" : "ro");
}

static void put_mount(struct json *json, enum cay_style style,
                      const struct cay_mount *mount)
{
    if (style == CAY_STYLE_PATHS)
        json_put_key(json, mount->name);
    json_put_object(json);
    json_put_key(json, style == CAY_STYLE_MOUNTS ? "host_path" : "root");
    put_plain(json, mount->host);
    if (style == CAY_STYLE_MOUNTS) {
        json_put_key(json, "mount_point");
        put_plain(json, mount->name);
    }
    if (style == CAY_STYLE_ROOT) {
        json_set_bool(json, "readonly", !mount->writable);
    } else {
        json_set_text(json, "mode", mount->writable ? "rw" : "ro");
        json_set_bool(json, "write_approval", mount->write_approval);
        json_set_bool(json, "read_approval", mount->read_approval);
    }
    put_rules(json, mount);
    json_put_end(json);
}

/* The rules that allow, or those that deny, without their "!". */
static void put_network_rules(struct json *json, const struct network_rules *rules,
                              bool denies)
{
    char text[NETWORK_RULE_MAX];

    json_put_key(json, denies ? "deny" : "allow");
    json_put_array(json);
    for (size_t i = 0; i < network_rules_count(rules); i++) {
        network_rules_text(rules, i, text);
        if ((text[0] == '!') == denies)
            put_plain(json, text + denies);
    }
    json_put_end(json);
}

static void put_limits(struct json *json, const struct network_limits *limits)
{
    bool has_some = false;

    for (unsigned i = 0; i < NETWORK_LIMITS; i++) {
        if (!limits->at[i])
            continue;
        if (!has_some) {
            json_put_key(json, "limits");
            json_put_object(json);
            has_some = true;
        }
        json_set_uint(json, network_limit_slug((enum network_limit)i), limits->at[i]);
    }
    if (has_some)
        json_put_end(json);
}

static void put_network(struct json *json, const cay_policy *policy)
{
    json_put_key(json, "network");
    json_put_object(json);
    json_set_text(json, "mode",
                  cay_policy_network(policy) == CAY_NETWORK_OPEN ? "open" : "rules");
    put_network_rules(json, policy->network, false);
    put_network_rules(json, policy->network, true);
    put_limits(json, network_rules_limits(policy->network));
    json_put_end(json);
}

static void put_policy(struct json *json, const cay_policy *policy)
{
    static const char *const keys[] = {[CAY_STYLE_ROOT] = "root",
                                       [CAY_STYLE_PATHS] = "paths",
                                       [CAY_STYLE_MOUNTS] = "mounts"};
    enum cay_style style = cay_policy_style(policy);
    struct cay_mount mount = {.size = sizeof mount};

    json_put_object(json);
    json_put_key(json, keys[style]);
    if (style == CAY_STYLE_PATHS)
        json_put_object(json);
    if (style == CAY_STYLE_MOUNTS)
        json_put_array(json);
    for (size_t i = 0; cay_policy_mount(policy, i, &mount); i++)
        put_mount(json, style, &mount);
    if (style != CAY_STYLE_ROOT)
        json_put_end(json);
    if (policy->network)
        put_network(json, policy);
    json_put_end(json);
}

static void put_value(struct json *json, const struct value *value)
{
    switch (value->field->type) {
    case CAY_FIELD_TEXT:
    case CAY_FIELD_CHOICE:
    case CAY_FIELD_PATH:
        put_plain(json, value->text);
        return;
    case CAY_FIELD_SECRET:
        json_put_text(json, value->reference);
        return;
    case CAY_FIELD_INTEGER:
    case CAY_FIELD_BYTES:
        json_put_int(json, value->integer);
        return;
    case CAY_FIELD_NUMBER:
        json_put_number(json, value->number);
        return;
    case CAY_FIELD_BOOLEAN:
        json_put_bool(json, value->boolean);
        return;
    case CAY_FIELD_TEXTS:
    case CAY_FIELD_MAP:
        put_items(json, value);
        return;
    case CAY_FIELD_POLICY:
        put_policy(json, value->policy);
        return;
    }
}

static bool is_shown(const struct value *value)
{
    if (value->field->type == CAY_FIELD_SECRET)
        return value->is_written && value->reference;
    return value->is_written ||
           (value->is_set && strcmp(value->field->name, "type") == 0);
}

/* --- Dotted names as nested objects ---------------------------------------------------
 */

/* Whether the value at `index` is the first that is shown of the group that the first
 * `len` bytes of its name are. */
static bool is_first(const cay_config *config, size_t index, size_t len)
{
    const char *name = config->values[index].field->name;

    for (size_t i = 0; i < index; i++)
        if (is_shown(&config->values[i]) &&
            strncmp(config->values[i].field->name, name, len) == 0)
            return false;
    return true;
}

/* The fields below the first `len` bytes of `group`: "limits." */
static void put_group(struct json *json, const cay_config *config, const char *group,
                      size_t len)
{
    json_put_object(json);
    for (size_t i = 0; i < config->count; i++) {
        const struct value *value = &config->values[i];
        const char *name = value->field->name;
        if (!is_shown(value) || strncmp(name, group, len) != 0)
            continue;
        size_t rest = strcspn(name + len, ".");
        bool is_group = name[len + rest] == '.';
        if (is_group && !is_first(config, i, len + rest + 1))
            continue;
        char key[CONFIG_NAME_MAX];
        memcpy(key, name + len, rest);
        key[rest] = '\0';
        json_put_key(json, key);
        if (is_group)
            put_group(json, config, name, len + rest + 1);
        else
            put_value(json, value);
    }
    json_put_end(json);
}

/* --- Values that JSON cannot represent --- */

static bool is_text(const char *text)
{
    return !text || utf8_is_valid(text, strlen(text));
}

/* Configurations are UTF-8; but a relative path in one is resolved against a directory
 * whose name may have any bytes. */
static bool has_only_text(const struct value *value)
{
    struct cay_mount mount = {.size = sizeof mount};
    bool fine = value->field->type == CAY_FIELD_SECRET || is_text(value->text);

    for (size_t i = 0; fine && i < value->total; i++)
        fine = value->items[i].written || is_text(value->items[i].text);
    for (size_t i = 0;
         fine && value->policy && cay_policy_mount(value->policy, i, &mount); i++)
        fine = is_text(mount.host) && is_text(mount.name);
    return fine;
}

static int check_texts(const cay_config *config, struct cay_error *err)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct value *value = &config->values[i];
        if (is_shown(value) && !has_only_text(value))
            return cay_fail(err, CAY_E_INVALID, 0, op, value->field->name,
                            "the absolute path is not UTF-8",
                            "use an absolute path in UTF-8, or rename the directory of "
                            "the configuration");
    }
    return CAY_OK;
}

int cay_config_json(const cay_config *config, char **ret_json, struct cay_error *err)
{
    AUTO_BUF text = {.max = JSON_MAX};
    struct json json;

    TRY(check_texts(config, err));
    json_to_buf(&json, &text);
    put_group(&json, config, "", 0);
    if (!json_finish(&json))
        return cay_fail_memory(err, op);
    *ret_json = buf_take(&text);
    return *ret_json ? CAY_OK : cay_fail_memory(err, op);
}
