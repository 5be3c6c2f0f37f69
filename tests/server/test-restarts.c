/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/restarts.h"

#include "../unit/harness.h"

TEST(what_ends_now_and_then_is_started_for_years)
{
    struct restarts restarts = {0};
    const int64_t hour_ms = 3600 * 1000, year_ms = 365 * 24 * hour_ms;

    for (int64_t now_ms = 1; now_ms < year_ms; now_ms += hour_ms)
        ASSERT(restarts_note(&restarts, now_ms));
}

TEST(what_ends_again_and_again_is_not)
{
    struct restarts restarts = {0};
    int64_t now_ms = 12345;

    for (int i = 0; i < RESTARTS_MAX; i++, now_ms += ALIVE_MS)
        ASSERT(restarts_note(&restarts, now_ms));
    ASSERT(!restarts_note(&restarts, now_ms));
    ASSERT(!restarts_note(&restarts, now_ms + ALIVE_MS));
    ASSERT(restarts_note(&restarts, now_ms + RESTARTS_MS + ALIVE_MS));
}

TEST(what_ends_at_once_is_tried_a_few_times)
{
    struct restarts restarts = {0};
    int64_t now_ms = 0;

    for (int i = 0; i < DEATHS_MAX; i++)
        ASSERT(restarts_note(&restarts, now_ms++));
    ASSERT(restarts_note(&restarts, now_ms += ALIVE_MS)); /* that one has lived */
    for (int i = 1; i < DEATHS_MAX; i++)
        ASSERT(restarts_note(&restarts, now_ms++));
    ASSERT(!restarts_note(&restarts, now_ms));
}
