/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_MESSAGES_H
#define E2B_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The messages of envd and the service, parsed without I/O.  All bytes are hostile. */

/* --- Envelopes --- */

/* A stream of the Connect protocol consists of envelopes: a byte of flags, a big-endian
 * length of four bytes, and a JSON message.  The last envelope has the flag 2 and an
 * error, if there was one. */
enum { E2B_ENVELOPE_HEAD = 5, E2B_ENVELOPE_MAX = 4 << 20, E2B_ENVELOPE_END = 2 };

struct e2b_envelope {
    unsigned flags;
    const char *data;
    size_t len;
};

/* Reads the envelope at the start of `bytes`.  Returns its size, 0 if it is incomplete,
 * or -1 if it is invalid. */
ptrdiff_t e2b_envelope_read(const char *bytes, size_t len,
                            struct e2b_envelope *ret_envelope);

/* Writes the five bytes before a message of `len` bytes. */
void e2b_envelope_head(size_t len, unsigned char *ret_head);

/* --- Events of a process --- */

enum e2b_event_kind {
    E2B_EVENT_NOTHING, /* a keepalive, or an event of a later version */
    E2B_EVENT_START,
    E2B_EVENT_OUTPUT,
    E2B_EVENT_END
};

/* Release it with e2b_event_done(). */
struct e2b_event {
    enum e2b_event_kind kind;
    int pid;    /* START */
    int stream; /* OUTPUT: 1 or 2 */
    bool is_terminal;
    char *data;
    size_t len;
    int exit_code; /* END, unless is_signalled */
    bool is_signalled;
    int signal; /* 0: unknown */
};
void e2b_event_done(struct e2b_event *event);

/* NULL, or what is wrong with the message. */
const char *e2b_event_read(const char *json, size_t len, struct e2b_event *ret_event);

/* An error of the Connect protocol, from the end of a stream or from a reply. */
struct e2b_refusal {
    char code[32]; /* "not_found"; "" for a success */
    char message[400];
};

/* NULL, or what is wrong with the message. */
const char *e2b_refusal_read(const char *json, size_t len, bool is_trailer,
                             struct e2b_refusal *ret_refusal);

/* --- Values --- */

/* Values of protobuf's JSON: a 64-bit number may be a string, "exitCode" may be spelled
 * "exit_code", and zero is left out.  A value of another type counts as absent. */
int64_t e2b_value_int(const json_t *object, const char *name);
const char *e2b_value_text(const json_t *object, const char *name);

/* "2026-01-31T10:00:00.5Z" as nanoseconds since 1970; 0 if it is invalid. */
int64_t e2b_value_time(const json_t *object, const char *name);

#endif
