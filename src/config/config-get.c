/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

static const struct value none;

static const struct value *find(const cay_config *config, const char *field)
{
    const struct value *value = config_find(config, field);

    return value ? value : &none;
}

const char *cay_config_type(const cay_config *config)
{
    return config->backend->name;
}

const struct cay_field *cay_config_field(const cay_config *config, size_t index)
{
    return index < config->count ? config->values[index].field : NULL;
}

bool cay_config_has(const cay_config *config, const char *field)
{
    return find(config, field)->is_written;
}

const char *cay_config_text(const cay_config *config, const char *field)
{
    return find(config, field)->text;
}

int64_t cay_config_integer(const cay_config *config, const char *field)
{
    return find(config, field)->integer;
}

double cay_config_number(const cay_config *config, const char *field)
{
    return find(config, field)->number;
}

bool cay_config_boolean(const cay_config *config, const char *field)
{
    return find(config, field)->boolean;
}

size_t cay_config_count(const cay_config *config, const char *field)
{
    return find(config, field)->count;
}

bool cay_config_item(const cay_config *config, const char *field, size_t index,
                     const char **ret_key, const char **ret_value)
{
    const struct value *value = find(config, field);

    if (index >= value->count)
        return false;
    *ret_key = value->items[index].key;
    *ret_value = value->items[index].text;
    return true;
}

const cay_policy *cay_config_policy(const cay_config *config, const char *field)
{
    return find(config, field)->policy;
}
