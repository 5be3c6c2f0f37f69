/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FUZZ_FRONT_H
#define TESTS_FUZZ_FRONT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/front/front.h"

/* The half of the server that speaks HTTP, in this process, and behind it somebody who
 * answers whatever it asks.  Everywhere: what it asks is an ask (channel.h), and when the
 * client is gone it holds nothing for him any more. */

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);    \
            abort();                                                                     \
        }                                                                                \
    } while (0)

enum { TALK_FILE = 1000 }; /* bytes of the file that can be read: talk_byte(0), ... */

unsigned char talk_byte(size_t at);

/* What came of a connection. */
struct talk {
    struct buf response; /* all that the client heard */
    struct buf upstream; /* all that a port of the sandbox heard */
    struct buf file;     /* what was written to the first file */
    unsigned files;      /* that were opened for writing */
    unsigned request[OP_COUNT];
    struct request last; /* of them */
};

/* A client sends these bytes, hears what he is told, and leaves.  `says` is what a port
 * of the sandbox answers, or NULL for something harmless. */
void talk(const void *data, size_t len, const void *says, size_t says_len,
          struct talk *ret_talk);
void talk_done(struct talk *talk);

/* Unless NULL, it makes a descriptor that a port of the sandbox sends with its bytes. */
extern int (*talk_gift)(void);

/* One reply with its head, as it is on the wire. */
struct response {
    unsigned status;
    const char *head; /* "\r\n" before each line; NUL-terminated */
    struct buf body;  /* without the chunks, if it has some */
    bool is_whole;
};

/* The first of what was heard, and where it ends; NULL if there is none. */
const char *response_parse(const char *data, size_t len, struct response *ret_response);
void response_done(struct response *response);
bool response_has(const struct response *response, const char *line);

#endif
