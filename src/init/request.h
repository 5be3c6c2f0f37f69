/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_REQUEST_H
#define INIT_REQUEST_H

#include "init/command.h"
#include "init/packet.h"

/* An EXEC message, taken apart and checked. */
struct request {
    struct command command;
    uint64_t timeout_ms;
    char *strings;  /* what the command points into */
    char *defaults; /* HOME=, USER=, ... */
};

/* The command's descriptors stay the packet's.  request_done() in any case. */
int request_parse(struct packet *packet, struct request *ret_request,
                  struct cay_error *err);
void request_done(struct request *request);

#endif
