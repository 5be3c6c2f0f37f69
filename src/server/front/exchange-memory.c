/* SPDX-License-Identifier: Apache-2.0 */

/* How much of the front's memory requests may have. */
#include <string.h>

#include "base/hash.h"
#include "server/front/front.h"

enum {
    HELD_ALWAYS = 64 << 10, /* of one request, whatever others hold */
    HELD_MAX = 512 << 20,   /* of all that have more than that */
    KEPT_STEP = 1 << 20,    /* all are looked at when it has grown by so much */
    KEPT_MAX = 512 << 20
};

bool exchange_hold(struct exchange *exchange, size_t len)
{
    size_t others = exchange->front->held - exchange->held;

    if (len > HELD_ALWAYS && len > exchange->held && others + len > HELD_MAX)
        return false;
    exchange->front->held = others + len;
    exchange->held = len;
    return true;
}

/* A hash of what the client has shown. */
static uint64_t client_of(const struct exchange *exchange)
{
    static const char *const names[] = {"X-Access-Token", "X-API-KEY", "Authorization"};
    const char *shown = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names && !shown; i++)
        shown = exchange_header(exchange, names[i]);
    return shown ? hash_bytes(shown, strlen(shown)) : 0;
}

bool exchange_keep(struct exchange *exchange, size_t len)
{
    size_t own = 0, all = 0;

    if (len <= exchange->kept || len <= HELD_ALWAYS)
        return true;
    uint64_t client = client_of(exchange);
    for (const struct exchange *other = exchange->front->exchanges; other;
         other = other->next) {
        all += other == exchange ? 0 : other->kept;
        own += other == exchange || other->kept_for != client ? 0 : other->kept;
    }
    len += KEPT_STEP - len % KEPT_STEP;
    if (own + len > KEPT_OF_ONE || all + len > KEPT_MAX)
        return false;
    exchange->kept = len;
    exchange->kept_for = client;
    return true;
}
