/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "relay/server.h"

/* A sandbox can cause events without end: a burst, and then so many a second.  Events
 * that are not written are counted. */
enum { BURST = 256, PER_SECOND = 32, SECOND_MS = 1000 };

bool events_may_write(struct server *server)
{
    uint64_t now = clock_ms(), passed = now - server->event_refilled_ms;

    if (!server->event_refilled_ms) {
        server->event_tokens = BURST;
        server->event_refilled_ms = now;
    } else if (passed >= SECOND_MS / PER_SECOND) {
        uint64_t tokens = server->event_tokens + passed * PER_SECOND / SECOND_MS;
        server->event_tokens = (uint32_t)(tokens < BURST ? tokens : BURST);
        server->event_refilled_ms = now;
    }
    return server->event_tokens > 0;
}

static off_t slot_of(uint64_t number)
{
    return (off_t)(number % RELAY_EVENTS_MAX) * RELAY_EVENT_BYTES;
}

/* Readers wait for a process that is being looked up, a short time. */
static bool note_unknown(struct server *server, uint64_t request, uint64_t number)
{
    struct unknown_owners *unknown = &server->unknown;

    if (request <= server->owners_received || server->owners.fd < 0 ||
        unknown->count == UNKNOWN_OWNERS)
        return false;
    unknown->at[unknown->count++] = (struct unknown_owner){request, number};
    return true;
}

void events_take_owner(struct server *server, uint64_t request,
                       const struct relay_owner *owner)
{
    struct unknown_owners *unknown = &server->unknown;

    for (size_t i = unknown->count; i-- > 0;) {
        const struct unknown_owner found = unknown->at[i];
        if (found.request != request)
            continue;
        unknown->at[i] = unknown->at[--unknown->count];
        if (server->counts.events - found.number < RELAY_EVENTS_MAX)
            (void)!pwrite(server->events_file, owner, sizeof *owner,
                          slot_of(found.number) + RELAY_EVENT_OWNER);
    }
}

void events_write(struct server *server, struct relay_event *event, uint64_t request)
{
    if (!events_may_write(server)) {
        server->event_lost++;
        server->counts.events_lost++;
        return;
    }
    server->event_tokens--;
    event->number = ++server->counts.events;
    event->time_ms = clock_since_1970_ms();
    event->lost = server->event_lost;
    server->event_lost = 0;
    if (note_unknown(server, request, event->number))
        event->owner.pid = RELAY_OWNER_PENDING;
    (void)!pwrite(server->events_file, event, sizeof *event, slot_of(event->number));
}
