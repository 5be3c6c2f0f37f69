/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/quantity.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

bool quantity_parse_time(const char *text, void *field)
{
    static const struct quantity_unit units[] = {
        {"", 1000},     {"ms", 1},    {"s", 1000}, {"m", 60000},
        {"h", 3600000}, {"d", 864e5}, {NULL, 0},
    };
    double ms;

    if (!quantity_parse(text, units, &ms) || ms < 1)
        return false;
    *(uint64_t *)field = (uint64_t)ms;
    return true;
}

bool quantity_parse_count(const char *text, void *field)
{
    static const struct quantity_unit units[] = {{"", 1}, {NULL, 0}};
    double value;

    if (!quantity_parse(text, units, &value) || value < 1 || value > UINT32_MAX ||
        strspn(text, "0123456789") != strlen(text))
        return false;
    *(uint32_t *)field = (uint32_t)value;
    return true;
}

bool quantity_parse_share(const char *text, void *field)
{
    static const struct quantity_unit units[] = {{"", 100}, {NULL, 0}};
    double value;

    if (!quantity_parse(text, units, &value) || value < 1 || value > 1e7)
        return false;
    *(uint32_t *)field = (uint32_t)(value + 0.5);
    return true;
}

const char *quantity_bytes(uint64_t bytes, char room[QUANTITY_ROOM])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    bool is_whole = value >= 100 || value == (double)(uint64_t)value;
    snprintf(room, QUANTITY_ROOM, is_whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return room;
}

const char *quantity_time(uint64_t ms, char room[QUANTITY_ROOM])
{
    static const struct {
        uint64_t ms;
        const char *name;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}, {1, "ms"}};
    size_t unit = 0;

    /* "90 min" tells more than "1 h". */
    while (unit < 4 && ms < 2 * units[unit].ms)
        unit++;
    uint64_t count = (ms + units[unit].ms / 2) / units[unit].ms;
    snprintf(room, QUANTITY_ROOM, "%llu %s", (unsigned long long)count, units[unit].name);
    return room;
}

const char *quantity_age(int64_t since_ms, char room[QUANTITY_ROOM])
{
    int64_t ms = clock_since_1970_ms() - since_ms;

    return quantity_time(ms > 0 ? (uint64_t)ms : 0, room);
}
