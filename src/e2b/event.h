/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_EVENT_H
#define E2B_EVENT_H

#include <stdbool.h>
#include <stddef.h>

/* What a stream of a process tells, one message at a time.  Pure: from bytes that are
 * not trusted to a struct that is plain. */

enum e2b_event_kind {
    E2B_EVENT_NOTHING, /* a sign of life, or something of a later version */
    E2B_EVENT_START,
    E2B_EVENT_OUTPUT,
    E2B_EVENT_END
};

/* e2b_event_done() frees it. */
struct e2b_event {
    enum e2b_event_kind kind;
    int pid;    /* START */
    int stream; /* OUTPUT: 1 or 2 */
    bool is_terminal;
    char *data;
    size_t len;
    int exit_code; /* END, or */
    bool is_signalled;
    int signal; /* 0: one that we do not know */
};
void e2b_event_done(struct e2b_event *event);

/* NULL, or what is wrong with the message. */
const char *e2b_event_read(const char *json, size_t len, struct e2b_event *ret_event);

/* A failure as the Connect protocol tells it, at the end of a stream or as a reply. */
struct e2b_refusal {
    char code[32]; /* "not_found"; "" if all went well */
    char message[400];
};

const char *e2b_refusal_read(const char *json, size_t len, bool is_trailer,
                             struct e2b_refusal *ret_refusal);

#endif
