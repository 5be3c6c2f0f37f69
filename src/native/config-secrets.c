/* SPDX-License-Identifier: Apache-2.0 */
#include "native/config-secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"

static const char op[] = "sandbox.create";

enum { VALUE_MAX = 4096 };

/* Without the line end that editors add. */
static int read_file(const char *path, char **ret_value, struct cay_error *err)
{
    char bytes[VALUE_MAX + 2];
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t len = fd < 0 ? -errno : io_pread(fd, bytes, sizeof bytes - 1, 0);

    if (len < 0)
        return cay_fail_errno(err, (int)-len, op, path);
    if (len && bytes[len - 1] == '\n')
        len--;
    *ret_value = strndup(bytes, (size_t)len);
    explicit_bzero(bytes, sizeof bytes);
    return *ret_value ? CAY_OK : cay_fail_memory(err, op);
}

/* The source may be a value by mistake: it is not repeated. */
static int read_value(const char *name, const char *source, char **ret_value,
                      struct cay_error *err)
{
    if (strncmp(source, "file:/", 6) == 0)
        return read_file(source + 5, ret_value, err);
    if (strncmp(source, "env:", 4) != 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, name,
                        "the source of the secret is neither env: nor file:",
                        "write env:VARIABLE or file:/PATH");
    const char *value = getenv(source + 4);
    if (!value)
        return cay_fail(err, CAY_E_INVALID, 0, op, source + 4,
                        "the variable of the secret is not set",
                        "set it, or write file:/PATH");
    *ret_value = strdup(value);
    return *ret_value ? CAY_OK : cay_fail_memory(err, op);
}

/* "NAME=HOST[:WAY]" */
static int add_host(struct config_secrets *secrets, const char *text, size_t most,
                    struct cay_error *err)
{
    size_t len = strcspn(text, "=:");

    for (size_t i = 0; text[len] == '=' && i < secrets->count; i++) {
        struct cay_secret *secret = &secrets->list[i];
        const char **hosts = secrets->hosts + i * most;
        if (!secret->name || strncmp(secret->name, text, len) != 0 || secret->name[len])
            continue;
        secret->hosts = hosts;
        hosts[secret->host_count++] = text + len + 1;
        return CAY_OK;
    }
    return cay_fail(err, CAY_E_INVALID, 0, op, text,
                    "secrets_for names no secret of this configuration",
                    "write NAME=HOST or NAME=HOST:WAY with a name of secrets");
}

int config_secrets_init(const cay_config *config, struct config_secrets *ret_secrets,
                        struct cay_error *err)
{
    size_t count = cay_config_count(config, "secrets");
    size_t most = cay_config_count(config, "secrets_for");
    struct config_secrets *secrets = ret_secrets;
    const char *name, *text;

    if (!count && !most)
        return CAY_OK;
    secrets->list = calloc(count + 1, sizeof *secrets->list);
    secrets->values = calloc(count + 1, sizeof *secrets->values);
    secrets->hosts = calloc(count * most + 1, sizeof *secrets->hosts);
    if (!secrets->list || !secrets->values || !secrets->hosts)
        return cay_fail_memory(err, op);
    for (size_t i = 0; cay_config_item(config, "secrets", i, &name, &text); i++) {
        TRY(read_value(name, text, &secrets->values[i], err));
        secrets->list[i].name = name;
        secrets->list[i].value = secrets->values[i];
        secrets->count++;
    }
    for (size_t i = 0; cay_config_item(config, "secrets_for", i, &name, &text); i++)
        TRY(add_host(secrets, text, most, err));
    return CAY_OK;
}

void config_secrets_done(struct config_secrets *secrets)
{
    for (size_t i = 0; i < secrets->count; i++) {
        explicit_bzero(secrets->values[i], strlen(secrets->values[i]));
        free(secrets->values[i]);
    }
    free(secrets->values);
    free(secrets->hosts);
    free(secrets->list);
    *secrets = (struct config_secrets){.list = NULL};
}
