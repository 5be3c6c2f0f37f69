/* SPDX-License-Identifier: Apache-2.0 */
#include "init/ring.h"

#include <stdlib.h>
#include <string.h>

#include "init/protocol.h"

enum { LEAST = 4096 };

static size_t budget = (size_t)4 * RESULTS_MAX * OUTPUT_KEPT;
static size_t taken; /* by all rings together */

void ring_set_budget(size_t bytes)
{
    budget = bytes;
}

static void put(struct ring *ring, uint64_t at, const char *data, size_t len)
{
    size_t start = (size_t)at & (ring->room - 1);
    size_t first = ring->room - start < len ? ring->room - start : len;

    memcpy(ring->data + start, data, first);
    memcpy(ring->data, data + first, len - first);
}

size_t ring_copy(const struct ring *ring, uint64_t at, char *data, size_t room)
{
    uint64_t left = ring->end - at;
    size_t len = left < room ? (size_t)left : room;

    if (len == 0)
        return 0;
    size_t start = (size_t)at & (ring->room - 1);
    size_t first = ring->room - start < len ? ring->room - start : len;
    memcpy(data, ring->data + start, first);
    memcpy(data + first, ring->data, len - first);
    return len;
}

static size_t room_for(const struct ring *ring, size_t len)
{
    uint64_t want = ring->end - ring->begin + len;
    size_t room = ring->room ? ring->room : LEAST;

    while (room < want && room < OUTPUT_KEPT)
        room *= 2;
    return room;
}

static bool is_affordable(const struct ring *ring, size_t room)
{
    return room == ring->room || room == LEAST ||
           (taken <= budget && room - ring->room <= budget - taken);
}

bool ring_is_affordable(const struct ring *ring, size_t len)
{
    return is_affordable(ring, room_for(ring, len));
}

bool ring_reserve(struct ring *ring, size_t len)
{
    size_t room = room_for(ring, len);
    bool is_enough = is_affordable(ring, room);

    if (!is_enough && !ring->room)
        room = LEAST;
    else if (!is_enough)
        return false;
    if (room == ring->room)
        return true;
    struct ring larger = {.room = room, .begin = ring->begin, .end = ring->end};
    if (!(larger.data = malloc(room)))
        return false;
    for (uint64_t at = ring->begin; at < ring->end;) {
        size_t start = (size_t)at & (ring->room - 1);
        uint64_t left = ring->end - at;
        size_t part = ring->room - start < left ? ring->room - start : (size_t)left;
        put(&larger, at, ring->data + start, part);
        at += part;
    }
    taken += room - ring->room;
    free(ring->data);
    *ring = larger;
    return is_enough;
}

void ring_add(struct ring *ring, const char *data, size_t len)
{
    size_t kept = len < ring->room ? len : ring->room;

    if (kept)
        put(ring, ring->end + (len - kept), data + (len - kept), kept);
    ring->end += len;
    if (ring->end - ring->begin > ring->room)
        ring->begin = ring->end - ring->room;
}

void ring_empty(struct ring *ring)
{
    free(ring->data);
    taken -= ring->room;
    ring->data = NULL;
    ring->room = 0;
    ring->begin = ring->end;
}
