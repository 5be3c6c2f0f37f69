/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_REGISTRY_H
#define SERVER_BROKER_REGISTRY_H

#include <stddef.h>

#include "cay/error.h"
#include "server/wire/record.h"

/* The server's own database: API keys, by their hash, and the sandboxes it made.  Several
 * processes may use it at a time; each has a handle of its own. */
struct registry;

/* `path` is made if it is not there, 0600; ":memory:" is nowhere else.  It may be the
 * database of sessions, too. */
int registry_open(const char *path, struct registry **ret_registry,
                  struct cay_error *err);
void registry_close(struct registry *registry); /* NULL is fine */

/* Which store it is: drawn at random when it was made.  And where: its path, absolute if
 * it is a file. */
enum { STORE_ID_MAX = 40, REGISTRY_SCHEMA = 1 };
const char *registry_identity(const struct registry *registry);
const char *registry_path(const struct registry *registry);

/* What SQLite finds wrong with the file, a line each; `thorough`: compares indexes with
 * their tables, too.  CAY_E_IO if there was something. */
int registry_check(struct registry *registry, bool thorough,
                   void (*visit)(const char *line), struct cay_error *err);

/* It had no records of a server before it was opened. */
bool registry_is_new(const struct registry *registry);

/* The disk had no room when it was opened, not even to read it as usual: no other process
 * can use the store, and nothing can be written until registry_recover() returns true. */
bool registry_is_exclusive(const struct registry *registry);
/* Opens it once more, as usual if there is room again, and does not wait for other
 * processes; call it now and then.  If the store cannot be opened at all, everything
 * fails with CAY_E_UNAVAILABLE until the next call opens it. */
bool registry_recover(struct registry *registry);

/* Whether to wait for other processes that are writing; true at first. */
void registry_set_waiting(struct registry *registry, bool waits);

/* --- Keys --- */

struct key_row {
    int64_t number;
    char tenant[TENANT_MAX];
    char shown[16]; /* its first characters */
    int64_t created_ms;
};

enum { KEY_HASH = 32 };

int registry_add_key(struct registry *registry, const unsigned char hash[KEY_HASH],
                     const struct key_row *row, struct cay_error *err);
/* CAY_E_NOT_FOUND: nobody has this key. */
int registry_find_key(struct registry *registry, const unsigned char hash[KEY_HASH],
                      char ret_tenant[TENANT_MAX], struct cay_error *err);
int registry_remove_key(struct registry *registry, int64_t number, struct cay_error *err);
int registry_visit_keys(struct registry *registry,
                        void (*visit)(const struct key_row *row, void *cookie),
                        void *cookie, struct cay_error *err);

/* --- Ports that a server listens on, or has --- */

int registry_add_listener(struct registry *registry, uint16_t port, bool has_tls,
                          struct cay_error *err);
/* One that nobody has noted is plain. */
int registry_find_listener(struct registry *registry, uint16_t port, bool *ret_has_tls,
                           struct cay_error *err);

/* --- Time --- */

/* The clock of the rows: CLOCK_BOOTTIME plus an offset that the store keeps for as long
 * as the machine is up.  It shows the time since 1970 as of the first start of a server,
 * and setting the system's clock does not move it: a sandbox neither loses nor gains
 * time. */
int64_t server_clock_ms(void);

/* Between the two; without server_clock_set() that of the first use. */
int64_t server_clock_offset(void);
void server_clock_set(int64_t offset_ms);
int64_t server_clock_boot_ms(void);

/* How far the system's clock was set since: add it to times that clients see, and
 * subtract it from those that they send. */
int64_t server_clock_step_ms(void);

/* The offset of server-clock.h for this boot: that of the first who asks, if it can be
 * written, else the given one. */
int registry_find_clock(struct registry *registry, const char *boot_id,
                        int64_t *offset_ms, struct cay_error *err);

/* --- Sandboxes --- */

int registry_add(struct registry *registry, const struct record_row *row,
                 struct cay_error *err);
/* Its state, times, flags and reason. */
int registry_update(struct registry *registry, const struct record_row *row,
                    struct cay_error *err);
/* CAY_E_NOT_FOUND: there never was one, as far as is remembered. */
int registry_find(struct registry *registry, const char *id, struct record_row *ret_row,
                  struct cay_error *err);

struct registry_filter {
    const char *tenant; /* NULL: everybody's */
    unsigned states;    /* bits: 1 << enum record_state */
    const char *template_name;
    int64_t started_after_ms; /* or at that time; 0: any time */
    bool oldest_first;
    int64_t after_ms; /* the last of the page before; 0: from the start */
    const char *after_id;
};

/* By the time they were started; `visit` returns false to stop. */
int registry_visit(struct registry *registry, const struct registry_filter *filter,
                   bool (*visit)(const struct record_row *row, void *cookie),
                   void *cookie, struct cay_error *err);

/* How many of a tenant's run. */
int registry_count_running(struct registry *registry, const char *tenant,
                           int64_t *ret_count, struct cay_error *err);

/* Those that are gone are remembered for a day, to tell why. */
int registry_forget(struct registry *registry, int64_t before_ms, struct cay_error *err);

#endif
