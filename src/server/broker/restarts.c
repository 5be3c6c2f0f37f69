/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/restarts.h"

bool restarts_note(struct restarts *restarts, int64_t now_ms)
{
    uint64_t count = restarts->count++;
    int64_t *oldest = &restarts->started_ms[count % RESTARTS_MAX];
    bool is_often = count >= RESTARTS_MAX && now_ms - *oldest < RESTARTS_MS;

    if (count > 0) {
        int64_t last = restarts->started_ms[(count - 1) % RESTARTS_MAX];
        restarts->deaths = now_ms - last < ALIVE_MS ? restarts->deaths + 1 : 0;
    }
    *oldest = now_ms;
    return !is_often && restarts->deaths < DEATHS_MAX;
}
