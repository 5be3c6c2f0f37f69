/* SPDX-License-Identifier: Apache-2.0 */

/* Between cay-net, which holds connections that wait for approval, and the queue, which
 * belongs to the user.  All state is in these two, so any process of the user can do
 * this, and the next one continues. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/approval.h"
#include "native/make/network.h"
#include "native/native.h"
#include "sandbox/backend.h"

static const char op[] = "sandbox.egress";

enum { TEXT_MAX = NETWORK_NAME_MAX + 16 };

struct egress {
    struct native *native;
    const char *scope;
    size_t waiting;
    size_t in_queue; /* requests of the scope; SIZE_MAX: they are not counted yet */
};

/* "name:443", which is also the rule that allows it.  False: cay-net, which reads what
 * the sandbox sends, sent something else. */
static bool format_destination(const struct relay_destination *to, char text[TEXT_MAX])
{
    char name[NETWORK_NAME_MAX], address[NETWORK_ADDRESS_TEXT];
    size_t len = strnlen(to->name, sizeof to->name);

    if (!to->port || len == sizeof to->name)
        return false;
    if (len) {
        if (network_name_clean(to->name, len, name) || strcmp(name, to->name) != 0)
            return false;
        snprintf(text, TEXT_MAX, "%s:%d", name, to->port);
        return true;
    }
    if (to->address.len != 4 && to->address.len != 16)
        return false;
    network_address_format(&to->address, address);
    snprintf(text, TEXT_MAX, to->address.len == 16 ? "[%s]:%d" : "%s:%d", address,
             to->port);
    return true;
}

static int answer(const struct egress *egress, const struct relay_destination *to,
                  enum relay_answer_kind kind, struct cay_error *err)
{
    const struct relay_answer message = {.kind = kind, .to = *to};
    struct relay_reply reply;

    return network_request(egress->native->record.id, RELAY_ANSWER,
                           (const char *)&message, sizeof message, &reply, err);
}

/* A rule of the queue allows it: from now on a rule of the network does.  If the table is
 * full, the connections that wait pass all the same. */
static int allow_always(struct egress *egress, const char *rule)
{
    const char *const rules[] = {rule};
    const struct cay_network_config config = {
        .size = sizeof config, .rules = rules, .rule_count = 1};

    return native_change_network(egress->native, &config, false, NULL);
}

static int count_requests(const struct egress *egress, size_t *ret_own,
                          struct cay_error *err)
{
    AUTO_FREE struct cay_pending *all = NULL;
    size_t count = 0;

    *ret_own = 0;
    TRY(cay_pending_list(&all, &count, err));
    for (size_t i = 0; i < count; i++)
        *ret_own += strcmp(all[i].kind, "egress") == 0 &&
                    strcmp(all[i].scope, egress->scope) == 0;
    return CAY_OK;
}

/* Requests stay after their connections: a sandbox that dials ever more hosts must not
 * fill the queue, which is for all programs of the user, nor keep it locked by lists. */
static int has_room(struct egress *egress, bool *ret_room, struct cay_error *err)
{
    size_t own = egress->in_queue;

    if (own == SIZE_MAX)
        TRY(count_requests(egress, &own, err));
    egress->in_queue = own;
    *ret_room = own < RELAY_ASKED_MAX;
    return CAY_OK;
}

static int submit(struct egress *egress, const struct relay_destination *to,
                  const struct cay_request *request, enum cay_decision *ret_rule,
                  struct cay_error *err)
{
    char id[CAY_PENDING_ID_MAX];
    bool room = false;

    TRY(has_room(egress, &room, err));
    if (room)
        TRY(cay_pending_submit(request, id, ret_rule, err));
    if (*ret_rule != CAY_DECISION_NONE)
        return CAY_OK;
    egress->in_queue += room;
    egress->waiting++;
    return room ? answer(egress, to, RELAY_ANSWER_ASKED, err) : CAY_OK;
}

static int pass_one(struct egress *egress, const struct relay_destination *to,
                    const char *subject, struct cay_error *err)
{
    char id[CAY_PENDING_ID_MAX], summary[CAY_PENDING_TEXT_MAX], note[CAY_NOTE_MAX];
    enum cay_decision rule, reply = CAY_DECISION_NONE;

    snprintf(summary, sizeof summary, "connect to %s from %.1024s", subject,
             egress->scope);
    const struct cay_request request = {.size = sizeof request,
                                        .kind = "egress",
                                        .scope = egress->scope,
                                        .subject = subject,
                                        .summary = summary,
                                        .timeout_ms = to->left_ms ? to->left_ms : 1};
    TRY(cay_pending_check(&request, id, &rule, err));
    if (rule == CAY_DECISION_NONE && !to->is_asked) {
        TRY(submit(egress, to, &request, &rule, err));
        if (rule == CAY_DECISION_NONE)
            return CAY_OK;
    }
    if (to->is_asked) /* also uses up the reply of "remember" */
        TRY(cay_pending_wait(id, 0, &reply, note, err));
    if (rule == CAY_DECISION_NONE)
        rule = reply;
    else if (rule == CAY_DECISION_YES)
        (void)!allow_always(egress, subject);
    if (rule != CAY_DECISION_NONE)
        return answer(egress, to,
                      rule == CAY_DECISION_YES ? RELAY_ANSWER_YES : RELAY_ANSWER_NO, err);
    egress->waiting++;
    return CAY_OK;
}

/* Two processes at a time could both use a reply. */
static int lock(const struct native *native, struct cay_error *err)
{
    AUTO_FD file = runtime_open_events(native->record.id, err);

    if (file < 0)
        return file;
    while (flock(file, LOCK_EX) != 0)
        if (errno != EINTR)
            return cay_fail_errno(err, errno, op, native->record.id);
    return TAKE_FD(file);
}

static int pass_all(struct egress *egress, struct cay_error *err)
{
    AUTO_FREE struct relay_asked *asked = calloc(1, sizeof *asked);
    char subject[TEXT_MAX];
    AUTO_FD locked = asked ? lock(egress->native, err) : cay_fail_memory(err, op);
    int code = CAY_OK;

    if (locked < 0)
        return locked;
    TRY(network_list_asked(egress->native->record.id, asked, err));
    /* One that fails leaves the others: its connections are refused in time. */
    for (uint32_t i = 0; i < asked->count; i++)
        if (format_destination(&asked->at[i], subject)) {
            int one = pass_one(egress, &asked->at[i], subject, code ? NULL : err);
            code = code ? code : one;
        }
    return code;
}

int cay_sandbox_pass_egress(cay_sandbox *sandbox, size_t *ret_waiting,
                            struct cay_error *err)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;

    *ret_waiting = 0;
    if (sandbox->backend->get_network != native_get_network)
        return backend_lacks(sandbox->backend, op, err);
    struct native *native = sandbox->cookie;
    TRY(native_check(native, err));
    if (!native->record.is_relayed)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                        "the sandbox was created without network rules",
                        "create it with rules, and with approval of other destinations");
    TRY(native_approve(native, &text, &len, err));
    struct egress egress = {
        .native = native, .scope = native->record.id, .in_queue = SIZE_MAX};
    if (len) /* the scope comes first */
        egress.scope = text;
    else if (native->record.name[0])
        egress.scope = native->record.name;
    int code = pass_all(&egress, err);
    *ret_waiting = egress.waiting;
    return code;
}
