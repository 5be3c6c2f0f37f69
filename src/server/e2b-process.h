/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_E2B_PROCESS_H
#define SERVER_E2B_PROCESS_H

#include "server/fields.h"
#include "server/front.h"

/* {"process": {"pid": 7}} or {"process": {"tag": "web"}}: adds which one is meant. */
bool process_add_selector(struct fields *fields, struct buf *strings);

/* {"input": {"stdin": ...}} or {"input": {"pty": ...}} */
bool process_fill_input(struct fields *fields, struct ask *ask, struct buf *strings);

/* All of a stream's reply at once: an empty message, or with a code nothing but that it
 * failed, since streams always begin with success. */
void process_reply_stream(struct exchange *exchange, const char *code,
                          const char *message);

#endif
