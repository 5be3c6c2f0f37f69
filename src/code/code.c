/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "code/client.h"
#include "code/driver.h"
#include "code/warm.h"
#include "sys/rights.h"

static const char python[] = "python";

/* The service gives contexts shorter ids, and hangs up on a longer one. */
static int check_id(const char *id, const char *op, struct cay_error *err)
{
    if (!id || !*id)
        return cay_fail(err, CAY_E_INVALID, 0, op, "context", "no context given",
                        "pass the id of a context");
    if (strlen(id) >= CODE_NAME_MAX)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no such context",
                        "list the contexts");
    return CAY_OK;
}

/* --- Executions --- */

struct run {
    struct code_collector collector;
    struct code_client client;
};

static bool on_event(void *cookie, const struct code_event *event, const char *payload)
{
    struct run *run = cookie;

    return code_collect_event(&run->collector, event, payload);
}

/* Whether the kernel has killed a process for the memory limit during the execution, and
 * this interpreter by SIGKILL. */
static bool is_out_of_memory(const struct run *run, const struct code_end *end)
{
    uint64_t kills = 0;
    int fd = -1;

    if (!code_is_killed(end) ||
        code_dial(run->client.sandbox, run->client.user, &fd, &kills, NULL) != CAY_OK)
        return false;
    rights_hang_up(fd);
    return kills > run->client.memory_kills;
}

static int finish(struct run *run, const struct code_query *query,
                  const struct code_end *end, struct cay_error *err)
{
    if (!code_is_executed(end))
        return code_fail_end(query, run->client.op, end, err);
    code_collect_end(&run->collector, end, is_out_of_memory(run, end));
    return run->collector.failed ? cay_fail_memory(err, run->client.op) : CAY_OK;
}

/* A cancelled execution is interrupted when the caller hangs up. */
static int request_execution(struct run *run, const struct code_query *query,
                             struct code_end *ret_end, struct cay_error *err)
{
    struct cay_error why = {0};
    int code = code_request(&run->client, query, on_event, run, &run->collector.stopped,
                            ret_end, &why);

    if (code != CAY_E_CANCELLED)
        return cay_fail_as(err, code, &why);
    *ret_end = (struct code_end){.reason = CODE_DONE, .interrupted = 1};
    return CAY_OK;
}

int code_execute_body(cay_sandbox *sandbox, const char *body,
                      const struct cay_code_options *options,
                      const struct code_language *driver,
                      struct cay_code_execution *ret_execution, struct cay_error *err)
{
    struct cay_code_execution execution = {0};
    struct code_end end = {0};
    struct run run;

    const struct code_query query = {.op = CODE_EXECUTE,
                                     .id = options->context,
                                     .language =
                                         options->context ? NULL : options->language,
                                     .body = body,
                                     .body_len = strlen(body),
                                     .timeout_ms = options->timeout_ms,
                                     .driver = driver,
                                     .preload = options->preload};
    run = (struct run){0};
    code_collector_init(&run.collector, options, &execution);
    int failure = code_connect(&run.client, sandbox, options->user, "code.execute", err);
    run.client.cancel_fd = options->cancel_fd;
    if (!failure)
        failure = request_execution(&run, &query, &end, err);
    if (!failure)
        failure = finish(&run, &query, &end, err);
    code_hang_up(&run.client);
    if (!failure)
        code_note_warm(&run.client, execution.is_warm);
    code_collector_done(&run.collector);
    if (!failure && run.collector.failed)
        failure = cay_fail_memory(err, "code.execute");
    if (failure)
        cay_code_execution_done(&execution);
    else
        *ret_execution = execution;
    return failure;
}

int code_execute(cay_sandbox *sandbox, const char *code, size_t len,
                 const struct cay_code_options *options,
                 const struct code_language *driver,
                 struct cay_code_execution *ret_execution, struct cay_error *err)
{
    AUTO_FREE char *body = NULL;

    TRY(code_make_body(code, len, options->env, driver ? driver->dialect : NULL, &body,
                       err));
    return code_execute_body(sandbox, body, options, driver, ret_execution, err);
}

static int check_preload(const char *preload, struct cay_error *err)
{
    struct warm_key key;

    return preload ? warm_key_init(&key, "", NULL, preload, err) : CAY_OK;
}

int cay_code_execute(cay_sandbox *sandbox, const char *code, size_t len,
                     const struct cay_code_options *options,
                     struct cay_code_execution *ret_execution, struct cay_error *err)
{
    static const char op[] = "code.execute";
    struct cay_code_options known;
    const struct code_language *language = NULL;

    TRY(cay_take_struct(&known, sizeof known, options, op, err));
    if (!code || (known.context && known.language))
        return cay_fail(err, CAY_E_INVALID, 0, op, code ? "language" : "code",
                        code ? "both a context and a language are given"
                             : "the code is missing",
                        code ? "pass one of them: a context has a language"
                             : "pass the code; it may be empty");
    if (known.context) {
        TRY(check_id(known.context, op, err));
    } else {
        language = code_language_find(known.language ? known.language : python);
        if (!language)
            return code_fail_language(known.language, err);
        known.language = language->kernel;
    }
    TRY(check_preload(known.preload, err));
    return code_execute(sandbox, code, len, &known, language, ret_execution, err);
}

/* --- Contexts --- */

struct listing {
    struct cay_context_infos infos;
    size_t room;
    bool failed;
};

void cay_context_info_done(struct cay_context_info *info)
{
    free(info->cwd);
    *info = (struct cay_context_info){0};
}

void cay_context_infos_done(struct cay_context_infos *infos)
{
    for (size_t i = 0; i < infos->count; i++)
        cay_context_info_done(&infos->items[i]);
    free(infos->items);
    *infos = (struct cay_context_infos){0};
}

static bool on_context(void *cookie, const struct code_event *event, const char *payload)
{
    struct listing *listing = cookie;
    struct code_context about;

    if (!code_take_context(event, payload, &about) ||
        listing->infos.count >= CODE_CONTEXTS_MAX)
        return false;
    struct cay_context_info info = {.is_default = about.is_default,
                                    .is_busy = about.is_busy,
                                    .pid = about.pid,
                                    .waiting = about.waiting,
                                    .cwd = strdup(about.cwd)};
    memcpy(info.id, about.id, sizeof info.id);
    memcpy(info.language, about.language, sizeof info.language);
    if (!info.cwd || !array_reserve(&listing->infos.items, &listing->room,
                                    listing->infos.count + 1, sizeof info)) {
        listing->failed = true;
        cay_context_info_done(&info);
        return true;
    }
    listing->infos.items[listing->infos.count++] = info;
    return true;
}

/* A request about contexts. */
static int request(cay_sandbox *sandbox, const char *user, const char *op,
                   const struct code_query *query, struct listing *listing,
                   struct cay_error *err)
{
    struct code_client client;
    struct code_end end = {0};
    int code = code_connect(&client, sandbox, user, op, err);

    if (!code)
        code = code_request(&client, query, on_context, listing, NULL, &end, err);
    code_hang_up(&client);
    if (!code)
        code_note_warm(&client, true); /* this reply does not say whether it is */
    if (!code && end.reason != CODE_DONE)
        code = code_fail_end(query, op, &end, err);
    if (!code && listing->failed)
        code = cay_fail_memory(err, op);
    if (code)
        cay_context_infos_done(&listing->infos);
    return code;
}

int cay_context_create(cay_sandbox *sandbox, const struct cay_context_options *options,
                       struct cay_context_info *ret_info, struct cay_error *err)
{
    static const char op[] = "context.create";
    struct cay_context_options known;
    struct listing listing = {0};

    TRY(cay_take_struct(&known, sizeof known, options, op, err));
    const struct code_language *language =
        code_language_find(known.language ? known.language : python);
    if (!language)
        return code_fail_language(known.language, err);
    const struct code_query query = {.op = CODE_CREATE,
                                     .language = language->names[0],
                                     .cwd = known.cwd,
                                     .words = known.env,
                                     .timeout_ms = known.timeout_ms,
                                     .driver = language,
                                     .preload = known.preload};
    TRY(check_preload(known.preload, err));
    for (const char *const *one = known.env; one && *one; one++)
        if (!strchr(*one, '=') || **one == '=')
            return cay_fail(err, CAY_E_INVALID, 0, op, *one,
                            "invalid environment variable", "a variable is NAME=value");
    if (known.cwd && strlen(known.cwd) >= sizeof((struct code_context *)0)->cwd)
        return cay_fail_errno(err, ENAMETOOLONG, op, known.cwd);
    TRY(request(sandbox, known.user, op, &query, &listing, err));
    if (listing.infos.count != 1) {
        cay_context_infos_done(&listing.infos);
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, NULL,
                        "the sandbox sent an invalid message", "kill the sandbox");
    }
    *ret_info = listing.infos.items[0];
    free(listing.infos.items);
    return CAY_OK;
}

int cay_context_list(cay_sandbox *sandbox, const char *user,
                     struct cay_context_infos *ret_infos, struct cay_error *err)
{
    const struct code_query query = {.op = CODE_LIST};
    struct listing listing = {0};

    TRY(request(sandbox, user, "context.list", &query, &listing, err));
    *ret_infos = listing.infos;
    return CAY_OK;
}

static int change(cay_sandbox *sandbox, const char *user, const char *id,
                  enum code_op what, const char *op, struct cay_error *err)
{
    const struct code_query query = {.op = what, .id = id};
    struct listing listing = {0};

    TRY(check_id(id, op, err));
    TRY(request(sandbox, user, op, &query, &listing, err));
    cay_context_infos_done(&listing.infos);
    return CAY_OK;
}

int cay_context_restart(cay_sandbox *sandbox, const char *user, const char *id,
                        struct cay_error *err)
{
    return change(sandbox, user, id, CODE_RESTART, "context.restart", err);
}

int cay_context_remove(cay_sandbox *sandbox, const char *user, const char *id,
                       struct cay_error *err)
{
    return change(sandbox, user, id, CODE_REMOVE, "context.remove", err);
}

int cay_context_interrupt(cay_sandbox *sandbox, const char *user, const char *id,
                          struct cay_error *err)
{
    return change(sandbox, user, id, CODE_INTERRUPT, "context.interrupt", err);
}
