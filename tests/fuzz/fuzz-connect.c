/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are a stream of the Connect protocol, or are not: what is read from them lies
 * within them, and is what it says it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "e2b/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

static void check_event(const struct e2b_event *event, size_t len)
{
    CHECK((event->kind == E2B_EVENT_OUTPUT) == (event->data != NULL));
    if (event->kind == E2B_EVENT_OUTPUT) {
        CHECK(event->stream == 1 || event->stream == 2);
        CHECK(event->len <= len);
    }
    if (event->kind == E2B_EVENT_START)
        CHECK(event->pid > 0);
    if (event->kind == E2B_EVENT_END) {
        CHECK(event->is_signalled || event->exit_code >= 0);
        CHECK(event->signal >= 0 && event->signal < 65);
    }
}

static void check_refusal(const struct e2b_refusal *refusal)
{
    CHECK(memchr(refusal->code, 0, sizeof refusal->code));
    CHECK(memchr(refusal->message, 0, sizeof refusal->message));
    CHECK(utf8_is_valid(refusal->message, strlen(refusal->message)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct e2b_envelope envelope;
    ptrdiff_t used;

    while ((used = e2b_envelope_read(bytes, size, &envelope)) > 0) {
        struct e2b_event event = {0};
        struct e2b_refusal refusal;
        CHECK((size_t)used <= size && envelope.len + E2B_ENVELOPE_HEAD == (size_t)used);
        if (!e2b_event_read(envelope.data, envelope.len, &event))
            check_event(&event, envelope.len);
        else
            CHECK(!event.data);
        e2b_event_done(&event);
        if (!e2b_refusal_read(envelope.data, envelope.len,
                              envelope.flags & E2B_ENVELOPE_END, &refusal))
            check_refusal(&refusal);
        bytes += used;
        size -= (size_t)used;
    }
    return 0;
}
