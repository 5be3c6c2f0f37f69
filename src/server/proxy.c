/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front.h"

static void act(struct exchange *exchange)
{
    exchange_refuse(exchange, 501, "ports of sandboxes are not served yet");
}

const struct handler port_handler = {.method = "*", .path = "*", .act = act};
