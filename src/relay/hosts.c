/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/hash.h"

/* The slot of the name, or the free one where it belongs. */
static uint16_t *find_slot(const struct hosts *hosts, uint16_t *slots, size_t slot_count,
                           const char *name)
{
    size_t at = hash_bytes(name, strlen(name)) & (slot_count - 1);

    while (slots[at] && strcmp(hosts->at[slots[at] - 1]->name, name) != 0)
        at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

/* Twice as many slots as names. */
static bool grow(struct hosts *hosts)
{
    size_t room = hosts->room ? 2 * hosts->room : 16, slot_count = 2 * room;
    uint16_t *slots = calloc(slot_count, sizeof *slots);
    struct named **at = slots ? realloc(hosts->at, room * sizeof(struct named *)) : NULL;

    if (!at) {
        free(slots);
        return false;
    }
    hosts->at = at;
    hosts->room = room;
    for (size_t i = 0; i < hosts->count; i++)
        *find_slot(hosts, slots, slot_count, at[i]->name) = (uint16_t)(i + 1);
    free(hosts->slots);
    hosts->slots = slots;
    hosts->slot_count = slot_count;
    return true;
}

uint32_t hosts_address(struct hosts *hosts, const char *name)
{
    uint16_t *slot =
        hosts->slots ? find_slot(hosts, hosts->slots, hosts->slot_count, name) : NULL;

    if (slot && *slot)
        return HOSTS_FIRST + (uint32_t)(*slot - 1);
    if (hosts->count == HOSTS_MAX)
        return 0;
    if (!slot || hosts->count == hosts->room) {
        if (!grow(hosts))
            return 0;
        slot = find_slot(hosts, hosts->slots, hosts->slot_count, name);
    }
    AUTO_FREE struct named *named = calloc(1, sizeof *named);
    if (!named || !(named->name = strdup(name)))
        return 0;
    hosts->at[hosts->count++] = TAKE_PTR(named);
    *slot = (uint16_t)hosts->count;
    return HOSTS_FIRST + (uint32_t)hosts->count - 1;
}

struct named *hosts_find(const struct hosts *hosts, uint32_t address)
{
    uint32_t index = address - HOSTS_FIRST;

    return index < hosts->count ? hosts->at[index] : NULL;
}
