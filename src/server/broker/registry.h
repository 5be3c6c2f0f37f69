/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_REGISTRY_H
#define SERVER_BROKER_REGISTRY_H

#include <stddef.h>

#include "cay/error.h"
#include "server/wire/channel.h"

/* The server's database: API keys (hashes) and sandboxes.  Several processes may use it
 * at the same time, each with its own handle. */
struct registry;

/* Creates `path` with mode 0600 if it is missing; ":memory:": no file.  The file may also
 * hold the sessions of src/session. */
int registry_open(const char *path, struct registry **ret_registry,
                  struct cay_error *err);
void registry_close(struct registry *registry); /* may be NULL */

/* A random id, drawn when the store was created; and its path, absolute if it is a file.
 */
enum { STORE_ID_MAX = 40, REGISTRY_SCHEMA = 1 };
const char *registry_identity(const struct registry *registry);
const char *registry_path(const struct registry *registry);

/* Reports each problem that SQLite finds, as one line.  `thorough`: also compares indexes
 * with their tables.  CAY_E_IO if there is a problem. */
int registry_check(struct registry *registry, bool thorough,
                   void (*visit)(const char *line), struct cay_error *err);

/* For the tables of other files: the database, or NULL while it cannot be opened; and the
 * error of the last call. */
struct sqlite3;
struct sqlite3 *registry_db(struct registry *registry);
int registry_fail(struct registry *registry, const char *what, struct cay_error *err);

/* Whether registry_open() created the tables. */
bool registry_is_new(const struct registry *registry);

/* The disk was full when the store was opened: no other process can use the store, and
 * nothing can be written until registry_recover() returns true. */
bool registry_is_exclusive(const struct registry *registry);
/* Reopens the store, in normal mode if there is space again, without waiting for other
 * processes; call it from time to time.  If it cannot be opened at all, every call fails
 * with CAY_E_UNAVAILABLE until the next attempt succeeds. */
bool registry_recover(struct registry *registry);

/* Whether to wait for other processes that are writing (default: true). */
void registry_set_waiting(struct registry *registry, bool waits);

/* --- Keys --- */

enum { KEY_HASH = 32, KEY_NAME_MAX = 129 /* includes the NUL */ };

struct key_row {
    int64_t number;
    char tenant[TENANT_MAX];
    char shown[16]; /* first characters of the key */
    int64_t created_ms;
    unsigned char hash[KEY_HASH];
    char name[KEY_NAME_MAX];
    bool is_admin; /* may manage the keys of all tenants: keys.h */
};

int registry_add_key(struct registry *registry, const unsigned char hash[KEY_HASH],
                     const struct key_row *row, struct cay_error *err);
/* CAY_E_NOT_FOUND: unknown key. */
int registry_find_key(struct registry *registry, const unsigned char hash[KEY_HASH],
                      char ret_tenant[TENANT_MAX], struct cay_error *err);
int registry_remove_key(struct registry *registry, int64_t number, struct cay_error *err);
int registry_visit_keys(struct registry *registry,
                        void (*visit)(const struct key_row *row, void *cookie),
                        void *cookie, struct cay_error *err);

/* --- Stored secrets --- */

enum {
    STORED_ID_MAX = 32,
    STORED_NAME_MAX = 129, /* these include the NUL */
    STORED_METADATA_MAX = 12 << 10,
    STORED_VALUE_MAX = 8 << 10
};

/* The value is sealed: stored.h. */
struct stored_row {
    char id[STORED_ID_MAX], tenant[TENANT_MAX], name[STORED_NAME_MAX];
    int64_t version, created_ms, updated_ms;
    struct buf metadata; /* key, value, ..., each with its NUL */
    struct buf value;
};

static inline void stored_done(struct stored_row *row)
{
    buf_done(&row->metadata);
    buf_done(&row->value);
}

#define STORED_INIT                                                                      \
    {                                                                                    \
        .metadata = {.max = STORED_METADATA_MAX}, .value = {.max = STORED_VALUE_MAX }    \
    }
#define AUTO_STORED __attribute__((cleanup(stored_done))) struct stored_row

/* CAY_E_EXISTS: the tenant has a secret with this name. */
int registry_add_stored(struct registry *registry, const struct stored_row *row,
                        struct cay_error *err);
/* Replaces version, time, metadata and value.  CAY_E_BUSY: the stored version is not the
 * one before. */
int registry_change_stored(struct registry *registry, const struct stored_row *row,
                           struct cay_error *err);
/* By id or name; CAY_E_NOT_FOUND. */
int registry_find_stored(struct registry *registry, const char *tenant, const char *which,
                         struct stored_row *ret_row, struct cay_error *err);
int registry_remove_stored(struct registry *registry, const char *tenant,
                           const char *which, struct cay_error *err);
/* By tenant and name, those after the given name (""): all; `visit` returns false to
 * stop.  `tenant` may be NULL: all. */
int registry_visit_stored(struct registry *registry, const char *tenant,
                          const char *after,
                          bool (*visit)(const struct stored_row *row, void *cookie),
                          void *cookie, struct cay_error *err);

/* --- Ports of servers --- */

int registry_add_listener(struct registry *registry, uint16_t port, bool has_tls,
                          struct cay_error *err);
/* A port without a row is served without TLS. */
int registry_find_listener(struct registry *registry, uint16_t port, bool *ret_has_tls,
                           struct cay_error *err);

/* --- Time --- */

/* The clock of the rows: CLOCK_BOOTTIME plus an offset that the store keeps until the
 * next boot.  It starts as the time since 1970 at the first start of a server; setting
 * the system clock does not change it, so no sandbox loses or gains time. */
int64_t server_clock_ms(void);

/* Offset to CLOCK_BOOTTIME: from server_clock_set(), or computed at the first use. */
int64_t server_clock_offset(void);
void server_clock_set(int64_t offset_ms);

/* How far the system clock was set since then: added to times that clients see, and
 * subtracted from times that they send. */
int64_t server_clock_step_ms(void);

/* The offset of the clock for this boot: the stored one, else the given one, which is
 * stored if possible. */
int registry_find_clock(struct registry *registry, const char *boot_id,
                        int64_t *offset_ms, struct cay_error *err);

/* --- Sandboxes --- */

enum { REASON_MAX = 64, METADATA_MAX = 48 << 10 };

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

static inline void record_done(struct record_row *row)
{
    buf_done(&row->metadata);
}

#define RECORD_INIT                                                                      \
    {                                                                                    \
        .metadata = {.max = METADATA_MAX }                                               \
    }
#define AUTO_RECORD __attribute__((cleanup(record_done))) struct record_row

/* `env` is the sealed environment, or NULL. */
int registry_add(struct registry *registry, const struct record_row *row,
                 const struct buf *env, struct cay_error *err);
/* Appends the sealed environment of a sandbox that has not ended; nothing if it has
 * none. */
int registry_find_env(struct registry *registry, const char *id, struct buf *ret_env,
                      struct cay_error *err);
/* Updates state, times, flags and reason; removes the environment of an ended one. */
int registry_update(struct registry *registry, const struct record_row *row,
                    struct cay_error *err);
int registry_set_metadata(struct registry *registry, const char *id,
                          const struct buf *metadata, struct cay_error *err);
/* CAY_E_NOT_FOUND: there is no row, or it was deleted a day after the end. */
int registry_find(struct registry *registry, const char *id, struct record_row *ret_row,
                  struct cay_error *err);

enum { RECORD_LIVING = 1 << RECORD_RUNNING | 1 << RECORD_PAUSED };

struct registry_filter {
    const char *tenant; /* NULL: all tenants */
    unsigned states;    /* bits: 1 << enum record_state; RECORD_LIVING */
    const char *template_name;
    int64_t started_after_ms; /* inclusive; 0: any time */
    bool oldest_first;
    int64_t after_ms; /* the last row of the previous page; 0: the first page */
    const char *after_id;
};

/* In the order of their start; `visit` returns false to stop. */
int registry_visit(struct registry *registry, const struct registry_filter *filter,
                   bool (*visit)(const struct record_row *row, void *cookie),
                   void *cookie, struct cay_error *err);

/* Number of sandboxes in this state; `tenant` may be NULL: of all. */
int registry_count(struct registry *registry, const char *tenant, enum record_state state,
                   int64_t *ret_count, struct cay_error *err);

/* Deletes rows of sandboxes that ended before this time. */
int registry_forget(struct registry *registry, int64_t before_ms, struct cay_error *err);

#endif
