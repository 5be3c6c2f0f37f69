/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FILTER_H
#define SERVER_FRONT_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/wire/channel.h"

/* What stands in the query of a list. */

/* "running,paused": LIST_RUNNING and LIST_PAUSED; 0 if it is something else.  NULL and ""
 * are both. */
uint32_t filter_states(const char *text);

/* "1699999999999-abc": where the last page ended.  NULL and "" are the first. */
bool filter_page(const char *text, int64_t *ret_ms, char ret_id[SANDBOX_ID_MAX]);

/* "2026-01-31T12:00:00.5+01:00": milliseconds since 1970. */
bool filter_time(const char *text, int64_t *ret_ms);

/* "base:latest": the template without a tag that stands for the only version there is.
 * Other tags stay, and there is no template of such a name. */
enum { FILTER_TEMPLATE_MAX = 256 };
const char *filter_template(const char *text, char ret_name[FILTER_TEMPLATE_MAX]);

/* Digits, and a number that is in the range. */
bool filter_number(const char *text, int64_t least, int64_t most, int64_t *ret_number);

/* "key=value&...", each part of which was escaped twice: adds both of each pair, and
 * returns how many there are.  NULL is none. */
int64_t filter_metadata(const char *text, struct buf *strings);

#endif
