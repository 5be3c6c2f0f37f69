/* SPDX-License-Identifier: Apache-2.0 */
/* cay session: named sandboxes that persist between runs. */
#include <inttypes.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "cay/session.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/scope.h"
#include "json/json.h"

/* --- Showing sessions --- */

enum { DEFAULTS_MAX = 256 };

static int reach(const struct cay_session *session, cay_sandbox **ret_sandbox)
{
    char defaults[DEFAULTS_MAX];
    AUTO(cay_config) config = NULL;

    if (strcmp(session->backend, "native") == 0)
        return cay_sandbox_open(session->sandbox_id, ret_sandbox, NULL);
    snprintf(defaults, sizeof defaults, "{type: %s}", session->backend);
    if (cay_config_restore(*session->config ? session->config : defaults, &config,
                           NULL) != CAY_OK ||
        strcmp(cay_config_type(config), session->backend) != 0)
        return CAY_E_UNAVAILABLE;
    return cay_backend_connect(config, session->sandbox_id, ret_sandbox, NULL);
}

static bool look(const struct cay_session *session, enum cay_state *ret_state)
{
    AUTO(cay_sandbox) sandbox = NULL;
    int code = reach(session, &sandbox);

    if (!code)
        code = cay_sandbox_state(sandbox, ret_state, NULL);
    return code != CAY_E_NOT_FOUND;
}

static bool is_gone(const struct cay_session *session)
{
    enum cay_state state;

    return *session->sandbox_id && !look(session, &state);
}

/* The state of a sandbox on this machine can be read without resuming it; for other
 * backends the store has the last known state. */
static const char *state_of(const struct cay_session *session)
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

static void put_session(struct json *json, const struct cay_session *session,
                        const char *state)
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

static void put_listed(struct json *json, const void *item)
{
    put_session(json, item, state_of(item));
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_session *session = item;
    char age[QUANTITY_ROOM];

    table_cell(table, "%s", session->session_id);
    table_cell(table, "%s", session->user_id);
    table_cell(table, "%s", state_of(session));
    table_cell(table, "%s ago", quantity_age(session->updated_ms, age));
    table_cell(table, "%s", session->backend);
    table_cell(table, "%s", session->sandbox_id);
}

static const char *name_of(const void *item)
{
    return ((const struct cay_session *)item)->session_id;
}

static int list_sessions(struct call *call, struct cay_error *err)
{
    static const struct call_list listed = {"sessions",
                                            "SESSION|USER|STATE|CHANGED|BACKEND|SANDBOX",
                                            sizeof(struct cay_session),
                                            put_listed,
                                            add_row,
                                            name_of};
    AUTO_FREE struct cay_session *sessions = NULL;
    size_t count = 0;

    TRY(cay_store_list(call->store, call->options.user, &sessions, &count, err));
    return call_list(call, &listed, sessions, count, err);
}

static void print_line(FILE *file, const char *key, const char *text)
{
    fprintf(file, "%-9s", key);
    show_name(file, *text ? text : "none");
    fputc('\n', file);
}

static void print_session(struct call *call, const struct cay_session *session)
{
    FILE *file = call->output.file;
    char room[QUANTITY_ROOM];

    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        put_session(json, session, state_of(session));
        return;
    }
    print_line(file, "session:", session->session_id);
    print_line(file, "user:", session->user_id);
    print_line(file, "state:", state_of(session));
    print_line(file, "backend:", session->backend);
    print_line(file, "sandbox:", session->sandbox_id);
    fprintf(file, "%-9s%s ago\n", "created:", quantity_age(session->created_ms, room));
    fprintf(file, "%-9s%s ago (revision %" PRIu64 ")\n",
            "changed:", quantity_age(session->updated_ms, room), session->revision);
    print_line(file, "config:", session->config);
    print_line(file, "data:", session->data);
}

/* --- Commands --- */

static const char op[] = "cli.session";

enum { LS, SHOW, START, PAUSE, RESUME, STOP, RM, COUNT };
enum { USER_MAX = 257, NAMES_MAX = 300 };

static call_runner show, start, do_each, with_store;

static const struct subcommand subcommands[] = {
    [LS] = {"ls", "", "List the sessions", 0, 0, list_sessions},
    [SHOW] = {"show", "SESSION", "Show a session in detail", 1, 1, show},
    [START] = {"start", "SESSION", "Start or resume a session; print the ID", 1, 1,
               start},
    [PAUSE] = {"pause", "SESSION...", "Freeze the sandboxes of sessions", 1, UINT32_MAX,
               do_each},
    [RESUME] = {"resume", "SESSION...", "Thaw the sandboxes of sessions", 1, UINT32_MAX,
                do_each},
    [STOP] = {"stop", "SESSION...", "Remove the sandbox, keep the session", 1, UINT32_MAX,
              do_each},
    [RM] = {"rm", "SESSION...", "Remove sessions with their sandboxes", 1, UINT32_MAX,
            do_each},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define EACH        (BIT(COUNT) - 1)
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"user", 0, OPTION_TEXT, EACH, FIELD(user), "NAME",
     "owner (default: you, or the only owner)"},
    {"config", 0, OPTION_TEXT, BIT(START), FIELD(config), "FILE",
     "configuration of a new sandbox: a cay.yaml"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the names"},
    {"output", 'o', OPTION_CHOICE, EACH, FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar session_grammar = {
    .program = "cay session",
    .usage = "COMMAND [ARGUMENT]...\nNamed sandboxes that persist between runs.",
    .manual = "Manual: cay-session(1).",
    .around = with_store,
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* --- The owner --- */

static void name_own_user(char ret_user[USER_MAX])
{
    const struct passwd *own = getpwuid(geteuid());

    if (own && *own->pw_name)
        cay_copy_text(ret_user, USER_MAX, own->pw_name);
    else
        snprintf(ret_user, USER_MAX, "%u", (unsigned)geteuid());
}

/* The owner without --user: that of the only session with this name, else the caller. */
static int choose(const struct cay_session *sessions, size_t count, const char *name,
                  char ret_user[USER_MAX], struct cay_error *err)
{
    struct buf names __attribute__((cleanup(buf_done)));
    size_t found = 0;

    name_own_user(ret_user);
    buf_init(&names, NAMES_MAX);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(sessions[i].session_id, name) != 0)
            continue;
        if (strcmp(sessions[i].user_id, ret_user) == 0)
            return CAY_OK;
        found++;
        (void)buf_format(&names, "%s%s", found > 1 ? ", " : "", sessions[i].user_id);
    }
    if (found > 1)
        return cay_fail(err, CAY_E_INVALID, 0, op, name,
                        "several users have a session with this name",
                        "write --user NAME, one of %s", names.data ? names.data : "them");
    for (size_t i = 0; found && i < count; i++)
        if (strcmp(sessions[i].session_id, name) == 0)
            cay_copy_text(ret_user, USER_MAX, sessions[i].user_id);
    return CAY_OK;
}

static int find_user(const struct call *call, const char *name, char ret_user[USER_MAX],
                     struct cay_error *err)
{
    const struct options *options = &call->options;
    AUTO_FREE struct cay_session *sessions = NULL;
    size_t count = 0;

    if (options->user && strlen(options->user) < USER_MAX) {
        cay_copy_text(ret_user, USER_MAX, options->user);
        return CAY_OK;
    }
    if (options->user)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--user", "the user name is too long",
                        "a user name is UTF-8 text of 1 to 256 bytes");
    TRY(cay_store_list(call->store, NULL, &sessions, &count, err));
    return choose(sessions, count, name, ret_user, err);
}

/* --- One session --- */

static void auto_cay_manager(cay_manager **manager)
{
    cay_manager_free(*manager);
}

static int open_manager(const struct call *call, const char *user, const char *name,
                        const cay_config *config, cay_manager **ret_manager,
                        struct cay_error *err)
{
    const struct cay_manager_options wish = {.size = sizeof wish,
                                             .store = call->store,
                                             .user_id = user,
                                             .session_id = name,
                                             .config = config,
                                             .pool = ""};

    scope_join();
    return cay_manager_new(&wish, ret_manager, err);
}

static int load_config(const char *file, cay_config **ret_config, struct cay_error *err)
{
    int code = cay_config_load(file, ret_config, err);

    if (!code && cay_config_boolean(*ret_config, "ephemeral"))
        return cay_fail(err, CAY_E_INVALID, 0, op, file,
                        "an ephemeral sandbox would end with this command",
                        "leave ephemeral out of the configuration");
    return code;
}

static void warn_if_local(const cay_sandbox *sandbox)
{
    if (strcmp(cay_sandbox_backend(sandbox)->name, "local") == 0)
        fputs("cay: warning: commands of this session run on this machine without "
              "isolation (type: native isolates them)\n",
              stderr);
}

static int start(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    const char *name = call->line.arguments[0];
    char user[USER_MAX];
    AUTO(cay_config) config = NULL;
    AUTO(cay_manager) manager = NULL;
    cay_sandbox *sandbox = NULL; /* the manager's */
    AUTO_FREE struct cay_session *session = NULL;

    TRY(find_user(call, name, user, err));
    if (options->config)
        TRY(load_config(options->config, &config, err));
    TRY(open_manager(call, user, name, config, &manager, err));
    TRY(cay_manager_sandbox(manager, &sandbox, err));
    warn_if_local(sandbox);
    if (options->as_json)
        TRY(cay_store_get(call->store, user, name, &session, err));
    if (session)
        print_session(call, session);
    else
        fprintf(call->output.file, "%s\n", cay_sandbox_id(sandbox));
    return CAY_OK;
}

/* Resuming creates no new sandbox for a session without one. */
static int check_resumable(const struct cay_session *session, struct cay_error *err)
{
    if (*session->sandbox_id && !is_gone(session))
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, session->session_id,
                    *session->sandbox_id ? "the session's sandbox is gone"
                                         : "the session has no sandbox",
                    "cay session start creates a new one");
}

/* A session can be removed even if its backend is not available. */
static int stop_to_remove(cay_manager *manager, const struct cay_session *session,
                          struct cay_error *err)
{
    struct cay_error own;
    int code = *session->sandbox_id ? cay_manager_stop(manager, &own) : CAY_OK;

    if (code == CAY_E_UNAVAILABLE && !cay_backend_find(session->backend)) {
        fputs("cay: note: the sandbox ", stderr);
        show_name(stderr, session->sandbox_id);
        fputs(" was not removed: the backend ", stderr);
        show_name(stderr, session->backend);
        fputs(" is not available\n", stderr);
        return CAY_OK;
    }
    if (code)
        *err = own;
    return code;
}

static int do_step(struct call *call, const struct cay_session *session,
                   struct cay_error *err)
{
    AUTO(cay_manager) manager = NULL;

    TRY(open_manager(call, session->user_id, session->session_id, NULL, &manager, err));
    switch (call->line.subcommand - subcommands) {
    case PAUSE:
        return cay_manager_pause(manager, err);
    case RESUME:
        TRY(check_resumable(session, err));
        return cay_manager_start(manager, err);
    case STOP:
        return cay_manager_stop(manager, err);
    default:
        TRY(stop_to_remove(manager, session, err));
        return cay_store_remove(call->store, session->user_id, session->session_id, err);
    }
}

/* Not every backend can pause; that is no error. */
static void note_if_running(const struct cay_session *session)
{
    if (strcmp(state_of(session), "running") != 0)
        return;
    fputs("cay: note: ", stderr);
    show_name(stderr, session->session_id);
    fputs(": this sandbox cannot be paused and keeps running\n", stderr);
}

static int do_one(struct call *call, const char *name, struct json *json,
                  struct cay_error *err)
{
    AUTO_FREE struct cay_session *before = NULL, *after = NULL;
    const struct cay_session *session;
    char user[USER_MAX];
    bool is_removal = call->line.subcommand == &subcommands[RM];

    TRY(find_user(call, name, user, err));
    TRY(cay_store_get(call->store, user, name, &before, err));
    TRY(do_step(call, before, err));
    if (!is_removal)
        TRY(cay_store_get(call->store, user, name, &after, err));
    session = is_removal ? before : after;
    if (json) {
        json_put_object(json);
        put_session(json, session, is_removal ? "removed" : state_of(session));
        json_put_end(json);
    } else if (call->line.subcommand == &subcommands[PAUSE]) {
        note_if_running(session);
    }
    return CAY_OK;
}

static int show(struct call *call, struct cay_error *err)
{
    const char *name = call->line.arguments[0];
    AUTO_FREE struct cay_session *session = NULL;
    char user[USER_MAX];

    TRY(find_user(call, name, user, err));
    TRY(cay_store_get(call->store, user, name, &session, err));
    print_session(call, session);
    return CAY_OK;
}

static int do_each(struct call *call, struct cay_error *err)
{
    struct json *json =
        call->options.as_json ? output_list(&call->output, "sessions") : NULL;

    return call_each(call, call->line.arguments, call->line.count, do_one, json, err);
}

static int with_store(struct call *call, struct cay_error *err)
{
    size_t collected;

    TRY(cay_store_open(NULL, &call->store, err));
    /* Cleans up after crashed callers; failures do not matter here. */
    (void)!cay_sandbox_collect(&collected, NULL);
    (void)!cay_store_collect(call->store, &collected, NULL);
    int code = call->line.subcommand->run(call, err);
    cay_store_free(call->store);
    return code;
}
