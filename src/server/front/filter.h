/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FILTER_H
#define SERVER_FRONT_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/wire/channel.h"

/* Parses query parameters. */

/* "running,paused": LIST_RUNNING and LIST_PAUSED; NULL and "": both.  0 if invalid. */
uint32_t filter_states(const char *text);

/* "1699999999999-abc": the end of the previous page.  NULL and "": the first page. */
bool filter_page(const char *text, int64_t *ret_ms, char ret_id[SANDBOX_ID_MAX]);

/* "2026-01-31T12:00:00.5+01:00": milliseconds since 1970. */
bool filter_time(const char *text, int64_t *ret_ms);

/* "base:latest": removes a tag that names the only version.  Other tags are kept, so the
 * template is not found. */
enum { FILTER_TEMPLATE_MAX = 256 };
const char *filter_template(const char *text, char ret_name[FILTER_TEMPLATE_MAX]);

/* Parses digits; false if the number is out of range. */
bool filter_number(const char *text, int64_t least, int64_t most, int64_t *ret_number);

/* "key=value&...", each part escaped twice: adds the pairs and returns their number.
 * NULL: none. */
int64_t filter_metadata(const char *text, struct buf *strings);

#endif
