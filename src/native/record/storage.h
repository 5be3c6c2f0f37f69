/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_STORAGE_H
#define NATIVE_RECORD_STORAGE_H

#include "cay/sandbox.h"
#include "native/record/binds.h"
#include "native/record/kvfile.h"
#include "native/record/runtime.h"

/* What a sandbox has on disk, in STATE/sandboxes/ID/: "disk" with what was written inside
 * (owners as inside), and "options" to start it again with, 0600.  The latter is written
 * when the sandbox lives, so that without it, and without a lock, the rest is what a
 * crash left. */
struct storage {
    int dir;  /* locked by whoever makes, starts or removes the sandbox; -1: none */
    int disk; /* for struct overlay */
};
#define STORAGE_NONE                                                                     \
    {                                                                                    \
        .dir = -1, .disk = -1                                                            \
    }

int storage_create(const char *id, struct storage *ret_storage, struct cay_error *err);

/* CAY_E_NOT_FOUND: it has none.  CAY_E_BUSY: somebody else starts or removes it. */
int storage_lock(const char *id, struct storage *ret_storage, struct cay_error *err);
void storage_done(struct storage *storage);

/* The template is that of the options, as it is found again, or NULL; the binds are those
 * of the options and their policy, opened. */
int storage_save(const struct storage *storage, const struct cay_sandbox_options *options,
                 const char *template_name, const struct binds *binds,
                 struct cay_error *err);

struct storage_saved {
    struct cay_sandbox_options options; /* without a policy: binds have taken its place */
    int64_t created_ms;                 /* since 1970 */
    struct cay_bind *binds;
    const char **env;
    struct kvfile kvfile; /* what the options point into */
};
int storage_load(const char *id, struct storage_saved *ret_saved, struct cay_error *err);
void storage_saved_done(struct storage_saved *saved);

/* Whether it is among those of this home: CAY_E_NOT_FOUND if not. */
int storage_check(const char *id, struct cay_error *err);
/* Whether what it has on disk is below another home than this process's. */
bool storage_in_other_home(const struct record *record);
int storage_remove(const char *id, struct cay_error *err);

/* Calls `visit` for each that can be started, whether it runs or not. */
int storage_visit(void (*visit)(const char *id, void *cookie), void *cookie,
                  struct cay_error *err);

/* Removes what crashes left; how many that were. */
size_t storage_sweep(void);

#endif
