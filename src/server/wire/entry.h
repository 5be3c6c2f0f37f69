/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_ENTRY_H
#define SERVER_WIRE_ENTRY_H

#include "server/wire/channel.h"
#include "json/json.h"

/* EntryInfo: a file as E2B's envd describes it, from what a keeper told.
 *
 * Strings: name, path, owner, group, link target ("": none), then metadata. */
enum entry_number { ENTRY_TYPE, ENTRY_SIZE, ENTRY_MODE, ENTRY_MTIME_NS, ENTRY_IS_LINK };

void entry_put(struct json *json, const struct told *told);
void entry_put_after(struct json *json, const struct told *told, const char *before);

#endif
