/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_SANDBOXES_H
#define SERVER_FRONT_SANDBOXES_H

#include "server/front/front.h"
#include "server/wire/record.h"

/* Of a handler of /sandboxes. */
enum sandbox_flag { SANDBOX_VERSION_2 = 1 << 0, SANDBOX_PLAIN_LIST = 1 << 1 };

/* The strings of a TELL_SANDBOX, in their order. */
struct sandbox_text {
    const char *id, *template_name, *token, *traffic, *domain;
    const char *metadata; /* the last before it */
};

struct sandbox_text sandbox_read_text(const struct told *told);

/* What every description has, and what one in a list has. */
void sandbox_put_common(struct json *json, const struct sandbox_text *text);
void sandbox_put_listed(struct json *json, const struct told *told,
                        const struct sandbox_text *text);
void sandbox_set_time(struct json *json, const char *key, int64_t ms);

void sandbox_list(struct exchange *exchange);
void sandbox_told_list(struct exchange *exchange, struct told *told);

#endif
