/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_USAGE_H
#define SERVER_WIRE_USAGE_H

#include <stdint.h>

#include "server/wire/channel.h"

/* What the sampler sends to the broker, one struct in a packet: what sandboxes of this
 * machine use.  A round takes as many packets as it needs. */

enum { USAGE_PACKET = 256, SAMPLER_MS = 5000 };

enum usage_kind { USAGE_SAMPLES = 0, USAGE_EVENT = 1 };

struct usage_sample {
    char id[SANDBOX_ID_MAX]; /* as clients see it */
    int64_t numbers[USAGE_NUMBERS];
};

struct usage_packet {
    uint32_t version; /* CHANNEL_VERSION */
    uint32_t count;   /* of samples; the packet has no others */
    uint32_t is_last; /* of the round */
    uint32_t kind;    /* enum usage_kind */
    int64_t at_ms;    /* since 1970: a multiple of SAMPLER_MS */
    struct usage_sample samples[USAGE_PACKET];
};

/* What a sandbox has tried to reach: USAGE_EVENT. */
struct usage_event {
    uint32_t version;        /* CHANNEL_VERSION */
    uint32_t count, is_last; /* 0 */
    uint32_t kind;
    int64_t at_ms;
    char id[SANDBOX_ID_MAX];
    uint32_t event;     /* enum cay_event_kind */
    uint32_t is_denied; /* else it was allowed */
    uint32_t port;
    uint32_t left_out; /* events after this one that were too many to be reported */
    char name[256], address[48], rule[192], program[16];
};

/* The raw bytes of REPLY_SAMPLES: as many of these as fit. */
struct usage_record {
    int64_t at_ms;
    int64_t numbers[USAGE_NUMBERS];
};

#endif
