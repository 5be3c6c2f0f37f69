/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_RECORD_H
#define SERVER_WIRE_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "server/wire/channel.h"

enum { TENANT_MAX = 64, TEMPLATE_MAX = 64, REASON_MAX = 64, METADATA_MAX = 48 << 10 };

enum record_state { RECORD_RUNNING = 1, RECORD_PAUSED = 2, RECORD_GONE = 3 };

/* A row of the store: what the server records about one sandbox. */
struct record_row {
    char id[SANDBOX_ID_MAX]; /* as clients see it; the library's id is "sb-" and this */
    char tenant[TENANT_MAX];
    char template_name[TEMPLATE_MAX]; /* as the client named it */
    enum record_state state;
    int64_t started_ms, end_ms; /* since 1970, by server_clock_ms() */
    uint32_t flags;             /* CREATE_AUTO_PAUSE and so on */
    uint32_t token_version;
    char reason[REASON_MAX]; /* why it ended */
    struct buf metadata;     /* key, value, ..., each with its NUL */
};

/* REPLY_SANDBOX.  Strings: id, template, token, traffic token ("": none), domain, then
 * metadata. */
enum sandbox_number {
    SANDBOX_STATE,
    SANDBOX_STARTED_MS,
    SANDBOX_END_MS,
    SANDBOX_FLAGS,
    SANDBOX_CPUS,
    SANDBOX_MEMORY_MB,
    SANDBOX_DISK_MB,
    SANDBOX_RESUMED /* CONNECT: it was paused */
};

static inline void record_done(struct record_row *row)
{
    buf_done(&row->metadata);
}

#define RECORD_INIT                                                                      \
    {                                                                                    \
        .metadata = {.max = METADATA_MAX }                                               \
    }
#define AUTO_RECORD __attribute__((cleanup(record_done))) struct record_row

/* "[a-z0-9]{1,28}": other ids are not looked up. */
static inline bool record_is_id(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");

    return len > 0 && len < SANDBOX_ID_MAX - 3 && text[len] == '\0';
}

#endif
