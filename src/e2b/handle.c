/* SPDX-License-Identifier: Apache-2.0 */

/* The configuration of the backend, and handles made from it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/e2b.h"

static const char default_domain[] = "e2b.app";
static const char default_workdir[] = "/home/user";

const struct cay_field e2b_fields[] = {
    {.name = "api_key",
     .type = CAY_FIELD_SECRET,
     .about = "API key of the E2B service ($E2B_API_KEY)"},
    {.name = "api_url",
     .type = CAY_FIELD_TEXT,
     .about = "URL of the E2B service ($E2B_API_URL, or https://api.DOMAIN)"},
    {.name = "domain",
     .type = CAY_FIELD_TEXT,
     .about = "domain of the service and the sandboxes ($E2B_DOMAIN, or e2b.app)"},
    {.name = "sandbox_url",
     .type = CAY_FIELD_TEXT,
     .about = "URL of the sandboxes, if all share one ($E2B_SANDBOX_URL)"},
    {.name = "force_http",
     .type = CAY_FIELD_BOOLEAN,
     .about = "whether URLs built from the domain use HTTP without TLS, for a server of "
              "your own ($E2B_FORCE_HTTP)"},
    {.name = "template",
     .type = CAY_FIELD_TEXT,
     .fallback = "base",
     .about = "template that new sandboxes start from"},
    {.name = "timeout",
     .type = CAY_FIELD_INTEGER,
     .fallback = "300",
     .least = 1,
     .most = 7 * 24 * 3600,
     .about = "seconds that a sandbox lives without being used"},
    {.name = "metadata",
     .type = CAY_FIELD_MAP,
     .about = "texts that the service stores with the sandbox; the key cay-mark is "
              "reserved"},
    {.name = "keepalive_interval",
     .type = CAY_FIELD_INTEGER,
     .fallback = "60",
     .most = 24 * 3600,
     .about = "seconds after which the lifetime of a sandbox in use is extended to the "
              "timeout again, never shortened; 0: never"},
    {.name = "max_retries",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5",
     .most = 20,
     .about = "how often a request that had no effect is sent again"},
};
_Static_assert(sizeof e2b_fields / sizeof *e2b_fields == E2B_FIELDS, "E2B_FIELDS");

/* --- Settings --- */

/* The field, else the environment variable, else NULL. */
static const char *configured(const cay_config *config, const char *field,
                              const char *variable)
{
    const char *text = cay_config_text(config, field);

    if (!text || !*text)
        text = getenv(variable);
    return text && *text ? text : NULL;
}

static bool is_http_forced(const cay_config *config)
{
    const char *text = getenv("E2B_FORCE_HTTP");

    if (cay_config_has(config, "force_http"))
        return cay_config_boolean(config, "force_http");
    return text && (strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0 ||
                    strcasecmp(text, "yes") == 0);
}

/* The key is sent as a header: a line end in it would start another header. */
static int check_key(const char *key, const char *op, struct cay_error *err)
{
    static const char hint[] =
        "set E2B_API_KEY, or api_key: ${env.NAME}; a key is one word of ASCII";

    if (!key)
        return cay_fail(err, CAY_E_DENIED, 0, op, "api_key", "no API key given", hint);
    for (const char *at = key; *at; at++)
        if (!isgraph((unsigned char)*at))
            return cay_fail(err, CAY_E_INVALID, 0, op, "api_key",
                            "invalid character in the API key", hint);
    return CAY_OK;
}

static int read_api_url(const cay_config *config, const char *op,
                        struct e2b_settings *settings, struct cay_error *err)
{
    const char *url = configured(config, "api_url", "E2B_API_URL");
    char made[sizeof settings->api.url];

    if (url)
        return e2b_origin_parse(url, op, "api_url", &settings->api, err);
    snprintf(made, sizeof made, "%s://api.%s", settings->force_http ? "http" : "https",
             settings->domain);
    return e2b_origin_parse(made, op, "domain", &settings->api, err);
}

static int read_settings(const cay_config *config, const char *op,
                         struct e2b_settings *settings, struct cay_error *err)
{
    const char *key = configured(config, "api_key", "E2B_API_KEY");
    const char *domain = configured(config, "domain", "E2B_DOMAIN");
    const char *url = configured(config, "sandbox_url", "E2B_SANDBOX_URL");
    const char *workdir = cay_config_text(config, "work_dir");

    int code = check_key(key, op, err);
    if (!code && url)
        code = e2b_origin_parse(url, op, "sandbox_url", &settings->sandbox, err);
    if (!code && domain && !e2b_origin_is_domain(domain))
        code = cay_fail(err, CAY_E_INVALID, 0, op, "domain", "invalid domain",
                        "for example e2b.app or localhost:8080");
    if (!code && workdir && *workdir && *workdir != '/')
        code = cay_fail(err, CAY_E_INVALID, 0, op, "work_dir",
                        "the working directory must be an absolute path",
                        "for example %s", default_workdir);
    if (code)
        return code;
    settings->force_http = is_http_forced(config);
    settings->retries = (unsigned)cay_config_integer(config, "max_retries");
    settings->timeout_s = (uint32_t)cay_config_integer(config, "timeout");
    settings->keepalive_s = (uint32_t)cay_config_integer(config, "keepalive_interval");
    settings->key = strdup(key);
    settings->workdir = strdup(workdir && *workdir ? workdir : default_workdir);
    if (!settings->key || !settings->workdir)
        return cay_fail_memory(err, op);
    cay_copy_text(settings->domain, sizeof settings->domain,
                  domain ? domain : default_domain);
    return read_api_url(config, op, settings, err);
}

/* --- Handles --- */

static void free_secret(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void e2b_free(struct e2b *e2b)
{
    if (!e2b)
        return;
    e2b_http_done(&e2b->http);
    free_secret(e2b->settings.key);
    free(e2b->settings.workdir);
    free_secret(e2b->token);
    free_secret(e2b->traffic_token);
    free(e2b->passwd);
    free(e2b->group);
    free(e2b);
}

static int new_handle(const char *op, struct e2b **ret_e2b, struct cay_error *err)
{
    AUTO_E2B e2b = calloc(1, sizeof *e2b);

    if (!e2b)
        return cay_fail_memory(err, op);
    int code = e2b_http_init(&e2b->http, op, err);
    if (!code)
        *ret_e2b = TAKE_PTR(e2b);
    return code;
}

int e2b_new(const cay_config *config, const char *op, struct e2b **ret_e2b,
            struct cay_error *err)
{
    AUTO_E2B e2b = NULL;
    int code = new_handle(op, &e2b, err);

    if (!code)
        code = read_settings(config, op, &e2b->settings, err);
    if (!code)
        *ret_e2b = TAKE_PTR(e2b);
    return code;
}

static bool copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

int e2b_dup(const struct e2b *e2b, const char *op, struct e2b **ret_copy,
            struct cay_error *err)
{
    AUTO_E2B copy = NULL;
    int code = new_handle(op, &copy, err);

    if (code)
        return code;
    copy->settings = e2b->settings;
    copy->settings.key = copy->settings.workdir = NULL;
    memcpy(copy->id, e2b->id, sizeof copy->id);
    copy->envd = e2b->envd;
    copy->version = e2b->version;
    copy->extended_ms = e2b->extended_ms;
    if (!copy_text(&copy->settings.key, e2b->settings.key) ||
        !copy_text(&copy->settings.workdir, e2b->settings.workdir) ||
        !copy_text(&copy->token, e2b->token) ||
        !copy_text(&copy->traffic_token, e2b->traffic_token))
        return cay_fail_memory(err, op);
    *ret_copy = TAKE_PTR(copy);
    return CAY_OK;
}
