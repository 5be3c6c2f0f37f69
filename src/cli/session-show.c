/* SPDX-License-Identifier: Apache-2.0 */
/* cay session ls and show: which sessions there are, and all about one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd-session.h"
#include "cli/quantity.h"
#include "cli/show.h"
#include "cli/table.h"
#include "json/json.h"

enum { DEFAULTS_MAX = 256 };

static int reach(const struct cay_session *session, cay_sandbox **ret_sandbox)
{
    char defaults[DEFAULTS_MAX];
    cay_config *config = NULL;

    if (strcmp(session->backend, "native") == 0)
        return cay_sandbox_open(session->sandbox_id, ret_sandbox, NULL);
    snprintf(defaults, sizeof defaults, "{type: %s}", session->backend);
    int code = cay_config_restore(*session->config ? session->config : defaults, &config,
                                  NULL) == CAY_OK &&
                       strcmp(cay_config_type(config), session->backend) == 0
                   ? cay_backend_connect(config, session->sandbox_id, ret_sandbox, NULL)
                   : CAY_E_UNAVAILABLE;
    cay_config_free(config);
    return code;
}

static bool look(const struct cay_session *session, enum cay_state *ret_state)
{
    cay_sandbox *sandbox = NULL;
    int code = reach(session, &sandbox);

    if (!code)
        code = cay_sandbox_state(sandbox, ret_state, NULL);
    cay_sandbox_free(sandbox);
    return code != CAY_E_NOT_FOUND;
}

bool session_is_gone(const struct cay_session *session)
{
    enum cay_state state;

    return *session->sandbox_id && !look(session, &state);
}

/* What is on this machine can be looked at without waking it; of others the store says
 * what was last seen. */
const char *session_state(const struct cay_session *session)
{
    enum cay_state state = session->state;
    bool is_here =
        strcmp(session->backend, "native") == 0 || strcmp(session->backend, "local") == 0;

    if (!*session->sandbox_id)
        return "none";
    return is_here && !look(session, &state) ? "gone" : show_state(state);
}

/* --- For programs --- */

static void put_if_any(struct json *json, const char *key, const char *text)
{
    json_set_text(json, key, *text ? text : NULL);
}

static void put_value(struct json *json, const char *key, const char *text)
{
    json_put_key(json, key);
    if (*text)
        json_put_raw(json, text);
    else
        json_put_null(json);
}

void session_put(struct json *json, const struct cay_session *session, const char *state)
{
    json_set_text(json, "session_id", session->session_id);
    json_set_text(json, "user_id", session->user_id);
    json_set_text(json, "state", state);
    put_if_any(json, "backend", session->backend);
    put_if_any(json, "sandbox_id", session->sandbox_id);
    put_value(json, "config", session->config);
    put_value(json, "data", session->data);
    json_set_int(json, "created_ms", session->created_ms);
    json_set_int(json, "updated_ms", session->updated_ms);
    json_set_uint(json, "revision", session->revision);
}

static void list_as_json(struct call *call, const struct cay_session *sessions,
                         size_t count)
{
    struct json json;

    output_begin_json(&call->output, &json);
    json_put_key(&json, "sessions");
    json_put_array(&json);
    for (size_t i = 0; i < count; i++) {
        json_put_object(&json);
        session_put(&json, &sessions[i], session_state(&sessions[i]));
        json_put_end(&json);
    }
    json_put_end(&json);
    output_end_json(&call->output, &json);
}

/* --- For people --- */

static int list_as_table(struct call *call, const struct cay_session *sessions,
                         size_t count, struct cay_error *err)
{
    struct table table;
    char age[QUANTITY_ROOM];
    int code = table_open(&table, "SESSION|USER|STATE|CHANGED|BACKEND|SANDBOX", err);

    if (code)
        return code;
    for (size_t i = 0; i < count; i++) {
        const struct cay_session *session = &sessions[i];
        table_cell(&table, "%s", session->session_id);
        table_cell(&table, "%s", session->user_id);
        table_cell(&table, "%s", session_state(session));
        table_cell(&table, "%s ago", quantity_age(session->updated_ms, age));
        table_cell(&table, "%s", session->backend);
        table_cell(&table, "%s", session->sandbox_id);
    }
    return table_print(&table, &call->output, err);
}

int session_list(struct call *call, struct cay_error *err)
{
    const struct session_options *options = call->options;
    struct cay_session *sessions = NULL;
    size_t count = 0;
    int code = cay_store_list(options->store, options->user, &sessions, &count, err);

    if (code)
        return code;
    if (options->as_json)
        list_as_json(call, sessions, count);
    else if (!options->quiet)
        code = list_as_table(call, sessions, count, err);
    else
        for (size_t i = 0; i < count; i++) {
            output_name(&call->output, sessions[i].session_id);
            fputc('\n', call->output.file);
        }
    cay_free(sessions);
    return code;
}

static void tell_line(FILE *file, const char *key, const char *text)
{
    fprintf(file, "%-9s", key);
    show_name(file, *text ? text : "none");
    fputc('\n', file);
}

int session_tell(struct call *call, const struct cay_session *session,
                 struct cay_error *err)
{
    const struct session_options *options = call->options;
    FILE *file = call->output.file;
    char room[QUANTITY_ROOM];
    struct json json;

    (void)err;
    if (options->as_json) {
        output_begin_json(&call->output, &json);
        session_put(&json, session, session_state(session));
        output_end_json(&call->output, &json);
        return CAY_OK;
    }
    tell_line(file, "session:", session->session_id);
    tell_line(file, "user:", session->user_id);
    tell_line(file, "state:", session_state(session));
    tell_line(file, "backend:", session->backend);
    tell_line(file, "sandbox:", session->sandbox_id);
    fprintf(file, "%-9s%s ago\n", "made:", quantity_age(session->created_ms, room));
    fprintf(file, "%-9s%s ago (revision %" PRIu64 ")\n",
            "changed:", quantity_age(session->updated_ms, room), session->revision);
    tell_line(file, "config:", session->config);
    tell_line(file, "data:", session->data);
    return CAY_OK;
}
