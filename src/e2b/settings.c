/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
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
     .about = "The key for the E2B service; E2B_API_KEY if it is not given."},
    {.name = "api_url",
     .type = CAY_FIELD_TEXT,
     .about = "Where the service is; E2B_API_URL, else https://api.DOMAIN."},
    {.name = "domain",
     .type = CAY_FIELD_TEXT,
     .about = "The domain of service and sandboxes; E2B_DOMAIN, else e2b.app."},
    {.name = "sandbox_url",
     .type = CAY_FIELD_TEXT,
     .about = "Where the sandboxes are, if they share one address; E2B_SANDBOX_URL."},
    {.name = "force_http",
     .type = CAY_FIELD_BOOLEAN,
     .about = "Speak plain HTTP to addresses made from the domain, for a service of "
              "your own without TLS; E2B_FORCE_HTTP."},
    {.name = "template",
     .type = CAY_FIELD_TEXT,
     .fallback = "base",
     .about = "The template that new sandboxes start from."},
    {.name = "timeout",
     .type = CAY_FIELD_INTEGER,
     .fallback = "300",
     .least = 1,
     .most = 7 * 24 * 3600,
     .about = "Seconds that a sandbox lives without being used."},
    {.name = "metadata",
     .type = CAY_FIELD_MAP,
     .about = "Texts that the service keeps with the sandbox; cay-mark is Cay's own."},
    {.name = "keepalive_interval",
     .type = CAY_FIELD_INTEGER,
     .fallback = "60",
     .most = 24 * 3600,
     .about = "Seconds after which a sandbox in use has its life prolonged to the "
              "timeout again, never shortened; 0 leaves it alone."},
    {.name = "max_retries",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5",
     .most = 20,
     .about = "How often a request that did nothing is sent again."},
};
_Static_assert(sizeof e2b_fields / sizeof *e2b_fields == E2B_FIELDS, "E2B_FIELDS");

/* As configured, else from the environment, else NULL. */
static const char *configured(const cay_config *config, const char *field,
                              const char *variable)
{
    const char *text = cay_config_text(config, field);

    if (!text || !*text)
        text = getenv(variable);
    return text && *text ? text : NULL;
}

static bool is_forced(const cay_config *config)
{
    const char *text = getenv("E2B_FORCE_HTTP");

    if (cay_config_has(config, "force_http"))
        return cay_config_boolean(config, "force_http");
    return text && (strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0 ||
                    strcasecmp(text, "yes") == 0);
}

/* It goes into a header. */
static int check_key(const char *key, const char *op, struct cay_error *err)
{
    static const char hint[] =
        "set E2B_API_KEY, or api_key: ${env.NAME}; a key is one word of ASCII";

    if (!key)
        return cay_fail(err, CAY_E_DENIED, 0, op, "api_key", "there is no API key", hint);
    for (const char *at = key; *at; at++)
        if (!isgraph((unsigned char)*at))
            return cay_fail(err, CAY_E_INVALID, 0, op, "api_key",
                            "the API key has characters that no key has", hint);
    return CAY_OK;
}

static int find_api(const cay_config *config, const char *op,
                    struct e2b_settings *settings, struct cay_error *err)
{
    const char *url = configured(config, "api_url", "E2B_API_URL");
    AUTO_BUF made = {0};

    if (url)
        return e2b_origin_parse(url, op, "api_url", &settings->api, err);
    buf_init(&made, sizeof settings->api.url);
    buf_format(&made, "%s://api.%s", settings->force_http ? "http" : "https",
               settings->domain);
    if (made.failed)
        return cay_fail_memory(err, op);
    return e2b_origin_parse(made.data, op, "domain", &settings->api, err);
}

static int copy_texts(const cay_config *config, const char *op,
                      struct e2b_settings *settings, struct cay_error *err)
{
    const char *key = configured(config, "api_key", "E2B_API_KEY");
    const char *domain = configured(config, "domain", "E2B_DOMAIN");
    const char *url = configured(config, "sandbox_url", "E2B_SANDBOX_URL");
    const char *workdir = cay_config_text(config, "work_dir");
    struct e2b_origin origin;

    int code = check_key(key, op, err);
    if (!code && url)
        code = e2b_origin_parse(url, op, "sandbox_url", &origin, err);
    if (!code && domain && !e2b_origin_is_domain(domain))
        code = cay_fail(err, CAY_E_INVALID, 0, op, "domain", "this is not a domain",
                        "write it like e2b.app or localhost:8080");
    if (!code && workdir && *workdir && *workdir != '/')
        code = cay_fail(err, CAY_E_INVALID, 0, op, "work_dir",
                        "the working directory inside must be absolute",
                        "write it like %s", default_workdir);
    if (code)
        return code;
    settings->key = strdup(key);
    settings->domain = strdup(domain ? domain : default_domain);
    settings->sandbox_url = url ? strdup(url) : NULL;
    settings->workdir = strdup(workdir && *workdir ? workdir : default_workdir);
    if (!settings->key || !settings->domain || !settings->workdir ||
        (url && !settings->sandbox_url))
        return cay_fail_memory(err, op);
    return CAY_OK;
}

int e2b_settings_read(const cay_config *config, const char *op,
                      struct e2b_settings *ret_settings, struct cay_error *err)
{
    *ret_settings = (struct e2b_settings){
        .force_http = is_forced(config),
        .retries = (unsigned)cay_config_integer(config, "max_retries"),
        .timeout_s = (uint32_t)cay_config_integer(config, "timeout"),
        .keepalive_s = (uint32_t)cay_config_integer(config, "keepalive_interval"),
    };
    int code = copy_texts(config, op, ret_settings, err);
    if (!code)
        code = find_api(config, op, ret_settings, err);
    if (code)
        e2b_settings_done(ret_settings);
    return code;
}

void e2b_settings_done(struct e2b_settings *settings)
{
    if (settings->key)
        explicit_bzero(settings->key, strlen(settings->key));
    free(settings->key);
    free(settings->domain);
    free(settings->sandbox_url);
    free(settings->workdir);
    *settings = (struct e2b_settings){0};
}
