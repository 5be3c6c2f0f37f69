/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_PROCESS_H
#define SERVER_FRONT_PROCESS_H

#include "server/front/front.h"
#include "server/wire/fields.h"

/* {"process": {"pid": 7}} or {"process": {"tag": "web"}}: adds which one is meant. */
bool process_add_selector(struct fields *fields, struct buf *strings);

/* {"input": {"stdin": ...}} or {"input": {"pty": ...}} */
bool process_fill_input(struct fields *fields, struct ask *ask, struct buf *strings);

#endif
