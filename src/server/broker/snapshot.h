/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_SNAPSHOT_H
#define SERVER_BROKER_SNAPSHOT_H

#include "server/broker/registry.h"

/* Snapshots of tenants.  A row has the name that the tenant gave; the files are a
 * snapshot of Cay, "e2b.STORE.ID", which is created before the row and removed before it.
 * A start removes what a killed server left of either. */

enum {
    SNAPSHOT_ID_MAX = 24, /* these include the NUL */
    SNAPSHOT_NAME_MAX = 129,
    SNAPSHOT_SOURCE_MAX = 64,
    SNAPSHOT_SHOWN_MAX = TENANT_MAX + 2 * SNAPSHOT_NAME_MAX
};

struct snapshot_row {
    char id[SNAPSHOT_ID_MAX], tenant[TENANT_MAX];
    char name[SNAPSHOT_NAME_MAX]; /* "": none */
    char tag[SNAPSHOT_NAME_MAX];
    char sandbox[SANDBOX_ID_MAX];
    int64_t created_ms;
    /* Of the sandbox, which comes back on another node; -1: it does not.  Only of a row
     * that is written to the shared directory, or read from it. */
    int64_t flags;
};

/* "[TENANT/]NAME[:TAG]" in lower case.  CAY_E_INVALID: it is no name, or of another
 * tenant.  The tag is "" if there is none. */
int snapshot_parse(const char *tenant, const char *text, struct snapshot_row *ret_row,
                   struct cay_error *err);

/* "TENANT/NAME:TAG", or "ID:default". */
void snapshot_show(const struct snapshot_row *row, char ret_text[SNAPSHOT_SHOWN_MAX]);

/* The name of the snapshot of Cay. */
void snapshot_source(struct registry *registry, const char *id,
                     char ret_name[SNAPSHOT_SOURCE_MAX]);
/* The id of such a name, if it is of this store, or NULL. */
const char *snapshot_source_id(struct registry *registry, const char *name);

int snapshot_draw_id(char ret_id[SNAPSHOT_ID_MAX], struct cay_error *err);

/* Replaces a row with the same name and tag, whose id is *ret_old; "": there was none. */
int snapshot_add(struct registry *registry, const struct snapshot_row *row,
                 char ret_old[SNAPSHOT_ID_MAX], struct cay_error *err);
int snapshot_remove(struct registry *registry, const char *id, struct cay_error *err);

/* By name or id, with a tag or the default one.  CAY_E_NOT_FOUND. */
int snapshot_find(struct registry *registry, const char *tenant, const char *text,
                  struct snapshot_row *ret_row, struct cay_error *err);

/* Whether there is a row with this name or id, or perhaps one.  `tenant` NULL: of any. */
bool snapshot_has(struct registry *registry, const char *tenant, const char *name);

struct snapshot_filter {
    const char *tenant;  /* NULL: all */
    const char *sandbox; /* "": all; the same for the others */
    const char *name;    /* a name or an id */
    const char *tag;
    int64_t after_ms; /* the last row of the previous page; 0: the first page */
    const char *after_id;
};
/* Newest first; `visit` returns false to stop. */
int snapshot_visit(struct registry *registry, const struct snapshot_filter *filter,
                   bool (*visit)(const struct snapshot_row *row, void *cookie),
                   void *cookie, struct cay_error *err);

#endif
