/* SPDX-License-Identifier: Apache-2.0 */

/* Routes of E2B's API that this server does not implement.  Each responds with 501 and
 * the name of the feature.  If the route is about a sandbox, that is looked up first, so
 * that an ended one responds with 404. */
#include "server/front/front.h"

#include <stdio.h>

#include "base/auto.h"

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
    if (reply->head.kind == REPLY_FAILED)
        exchange_refuse_with(exchange, reply);
    else
        refuse(exchange);
}

static void request(struct exchange *exchange, enum op op)
{
    AUTO_BUF none = {0};
    struct request request;

    buf_init(&none, 1);
    exchange_init_request(exchange, op, &request);
    exchange_send(exchange, &request, &none);
}

static void find_sandbox(struct exchange *exchange)
{
    request(exchange, OP_INFO);
}

static void check_key(struct exchange *exchange)
{
    request(exchange, OP_CHECK);
}

#define ON(name, route, action, feature)                                                 \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action), .on_reply = on_reply,        \
        .missing_feature = (feature), .body_max = SMALL                                  \
    }

static const char builds[] = "template builds (use cay template create)",
                  listings[] = "template listings (use cay template ls)",
                  tags[] = "template tags", volumes[] = "volumes", secrets[] = "secrets",
                  logs[] = "logs", teams[] = "teams",
                  keys[] = "API keys over HTTP (use cay key)", nodes[] = "nodes";

const struct handler missing_handlers[] = {
    ON("GET", "/sandboxes/metrics", check_key, "metrics of several sandboxes"),
    ON("GET", "/sandboxes/{id}/logs", find_sandbox, logs),
    ON("GET", "/v2/sandboxes/{id}/logs", find_sandbox, logs),
    ON("PUT", "/sandboxes/{id}/network", find_sandbox, "network rules"),
    ON("POST", "/sandboxes/{id}/snapshots", find_sandbox, "snapshots"),
    ON("POST", "/sandboxes/{id}/fork", find_sandbox, "fork"),
    ON("GET", "/snapshots", check_key, "snapshots"),
    ON("GET", "/templates", check_key, listings),
    ON("GET", "/v2/templates", check_key, listings),
    ON("POST", "/templates", check_key, builds),
    ON("POST", "/v2/templates", check_key, builds),
    ON("POST", "/v3/templates", check_key, builds),
    ON("POST", "/templates/tags", check_key, tags),
    ON("DELETE", "/templates/tags", check_key, tags),
    ON("GET", "/templates/{id}", check_key, listings),
    ON("POST", "/templates/{id}", check_key, builds),
    ON("PATCH", "/templates/{id}", check_key, "public templates"),
    ON("PATCH", "/v2/templates/{id}", check_key, "public templates"),
    ON("DELETE", "/templates/{id}", check_key,
       "template and snapshot removal (use cay template rm)"),
    ON("GET", "/templates/{id}/tags", check_key, tags),
    ON("GET", "/templates/{id}/files/{hash}", check_key, builds),
    ON("POST", "/templates/{id}/builds/{build}", check_key, builds),
    {.method = "POST",
     .path = "/v2/templates/{id}/builds/{build}",
     .act = check_key,
     .on_reply = on_reply,
     .missing_feature = builds,
     .body_max = BODY_CONTROL},
    ON("GET", "/templates/{id}/builds/{build}/status", check_key, builds),
    ON("GET", "/templates/{id}/builds/{build}/logs", check_key, builds),
    ON("GET", "/volumes", check_key, volumes),
    ON("POST", "/volumes", check_key, volumes),
    ON("GET", "/volumes/{id}", check_key, volumes),
    ON("DELETE", "/volumes/{id}", check_key, volumes),
    ON("GET", "/secrets", check_key, secrets),
    ON("POST", "/secrets", check_key, secrets),
    ON("GET", "/secrets/{id}", check_key, secrets),
    ON("POST", "/secrets/{id}", check_key, secrets),
    ON("DELETE", "/secrets/{id}", check_key, secrets),
    /* These use credentials that this server does not have. */
    ON("GET", "/volumecontent/{id}/path", refuse, volumes),
    ON("PATCH", "/volumecontent/{id}/path", refuse, volumes),
    ON("DELETE", "/volumecontent/{id}/path", refuse, volumes),
    ON("GET", "/volumecontent/{id}/dir", refuse, volumes),
    ON("POST", "/volumecontent/{id}/dir", refuse, volumes),
    ON("GET", "/volumecontent/{id}/file", refuse, volumes),
    ON("PUT", "/volumecontent/{id}/file", refuse, volumes),
    ON("GET", "/teams", refuse, teams),
    ON("GET", "/teams/{id}/metrics", refuse, teams),
    ON("GET", "/teams/{id}/metrics/max", refuse, teams),
    ON("GET", "/api-keys", refuse, keys),
    ON("POST", "/api-keys", refuse, keys),
    ON("PATCH", "/api-keys/{id}", refuse, keys),
    ON("DELETE", "/api-keys/{id}", refuse, keys),
    ON("POST", "/access-tokens", refuse, "access tokens"),
    ON("DELETE", "/access-tokens/{id}", refuse, "access tokens"),
    ON("GET", "/nodes", refuse, nodes),
    ON("GET", "/nodes/{id}", refuse, nodes),
    ON("POST", "/nodes/{id}", refuse, nodes),
    {0},
};
