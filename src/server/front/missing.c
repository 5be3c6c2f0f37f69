/* SPDX-License-Identifier: Apache-2.0 */

/* Routes of E2B's API that this server does not implement.  Each responds with 501 and
 * the name of the feature.  If the route is about a sandbox, that is looked up first, so
 * that an ended one responds with 404. */
#include "server/front/front.h"

#include <stdio.h>

enum { SMALL = 64 << 10 };

static void refuse(struct exchange *exchange)
{
    char message[128];

    snprintf(message, sizeof message, "%s: not supported by this server",
             exchange->handler->missing_feature);
    exchange_refuse(exchange, 501, message);
}

static void on_reply(struct exchange *exchange, struct reply_packet *reply)
{
    (void)reply;
    refuse(exchange);
}

#define ON(name, route, feature, ...)                                                    \
    {                                                                                    \
        .method = (name), .path = (route), .on_error = exchange_refuse_with,             \
        .on_reply = on_reply, .missing_feature = (feature), .body_max = SMALL,           \
        __VA_ARGS__                                                                      \
    }
#define FOR_SANDBOX .act = exchange_send_plain, .op = OP_INFO
#define FOR_KEY     .act = exchange_send_plain, .op = OP_CHECK
#define FOR_ALL     .act = refuse

static const char builds[] = "older routes of builds (use POST /v3/templates)",
                  teams[] = "teams", nodes[] = "nodes";

const struct handler missing_handlers[] = {
    ON("DELETE", "/sandboxes/{id}/checkpoints", "removal of checkpoints", FOR_SANDBOX),
    ON("POST", "/templates", builds, FOR_KEY),
    ON("POST", "/v2/templates", builds, FOR_KEY),
    ON("POST", "/templates/{id}", builds, FOR_KEY),
    ON("POST", "/templates/{id}/builds/{build}", builds, FOR_KEY),
    /* These use credentials that this server does not have. */
    ON("GET", "/teams", teams, FOR_ALL),
    ON("GET", "/teams/{id}/metrics", teams, FOR_ALL),
    ON("GET", "/teams/{id}/metrics/max", teams, FOR_ALL),
    ON("POST", "/access-tokens", "access tokens", FOR_ALL),
    ON("DELETE", "/access-tokens/{id}", "access tokens", FOR_ALL),
    ON("GET", "/nodes", nodes, FOR_ALL),
    ON("GET", "/nodes/{id}", nodes, FOR_ALL),
    ON("POST", "/nodes/{id}", nodes, FOR_ALL),
    {0},
};
