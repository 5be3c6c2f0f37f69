/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "relay/server.h"

/* A sandbox can cause events without end: a burst, and then so many a second.  Events
 * that are not written are counted. */
enum { BURST = 256, PER_SECOND = 32, SECOND_MS = 1000 };

static bool may_write(struct server *server)
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
    if (!server->event_tokens)
        return false;
    server->event_tokens--;
    return true;
}

void events_write(struct server *server, struct relay_event *event)
{
    if (!may_write(server)) {
        server->event_lost++;
        server->counts.events_lost++;
        return;
    }
    event->number = ++server->counts.events;
    event->time_ms = clock_since_1970_ms();
    event->lost = server->event_lost;
    server->event_lost = 0;
    (void)!pwrite(server->events_file, event, sizeof *event,
                  (off_t)(event->number % RELAY_EVENTS_MAX) * RELAY_EVENT_BYTES);
}
