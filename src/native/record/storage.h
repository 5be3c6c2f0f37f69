/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_STORAGE_H
#define NATIVE_RECORD_STORAGE_H

#include "cay/sandbox.h"
#include "native/record/binds.h"
#include "native/record/idmap.h"
#include "native/record/runtime.h"
#include "native/record/state.h"

/* The disk of a sandbox, in STATE/sandboxes/ID/: "disk" with its files (owners as
 * inside), or an image with them if its size is limited (image.h), "options" for the next
 * start, 0600, and "rules" if it has network rules.  "options" is written once the
 * sandbox runs; a directory without it and without a held lock is left from a crash. */
struct storage {
    int dir;  /* locked while the sandbox is created, started or removed; -1: none */
    int disk; /* for struct overlay: a directory, or a detached mount of the image */
};
#define STORAGE_NONE                                                                     \
    {                                                                                    \
        .dir = -1, .disk = -1                                                            \
    }

/* `bytes` is the size limit, or 0. */
int storage_create(const char *id, uint64_t bytes, struct storage *ret_storage,
                   struct cay_error *err);

/* CAY_E_NOT_FOUND: it has no disk.  CAY_E_BUSY: another process starts or removes it. */
int storage_lock(const char *id, struct storage *ret_storage, struct cay_error *err);

/* The same of a running sandbox, for several processes at a time: it is not removed
 * meanwhile. */
int storage_share(const char *id, struct storage *ret_storage, struct cay_error *err);
void storage_done(struct storage *storage);

/* The files belong to the ids of `map`; `given` are the limits that the caller set
 * (CAY_LAYER_...); `template_name` is the name to find the template by later, or NULL;
 * `binds` are the opened bind mounts of the options and their policy. */
int storage_save(const struct storage *storage, const struct cay_sandbox_options *options,
                 const struct idmap *map, unsigned given, const char *template_name,
                 const struct binds *binds, struct cay_error *err);

struct storage_saved {
    struct cay_sandbox_options options; /* without a policy: its paths are in binds */
    int64_t created_ms;                 /* since 1970 */
    const char *map;                    /* idmap_text() of its files, or NULL */
    unsigned given;                     /* limits that its creator set */
    struct cay_bind *binds;
    const char **env, **networks, **approve;
    struct kvfile kvfile; /* the text that the options point into */
};
int storage_load(const char *id, struct storage_saved *ret_saved, struct cay_error *err);
void storage_saved_done(struct storage_saved *saved);

/* The network rules of the next start, as text: "rules" beside "options". */
int storage_save_rules(const char *id, const char *text, size_t len,
                       struct cay_error *err);
/* The caller frees the text. */
int storage_load_rules(const char *id, char **ret_text, size_t *ret_len,
                       struct cay_error *err);

/* A file "paused" beside "options": a resume starts the sandbox. */
int storage_set_paused(const char *id, bool is_paused, struct cay_error *err);
bool storage_is_paused(const char *id);

/* Moves the files of a locked, stopped sandbox, its "upper", to `name` in the directory
 * `to`.  The sandbox can then only be removed.  As an ordinary user: in userns_run(). */
int storage_take(const struct storage *storage, int to, const char *name,
                 struct cay_error *err);

/* Whether its disk is in this state directory: CAY_E_NOT_FOUND if not. */
int storage_check(const char *id, struct cay_error *err);
/* Whether its disk is in another state directory than this process's. */
bool storage_in_other_home(const struct record *record);
int storage_remove(const char *id, struct cay_error *err);

/* Calls `visit` for each sandbox on disk, running or not. */
int storage_visit(void (*visit)(const char *id, void *cookie), void *cookie,
                  struct cay_error *err);

/* Removes what crashes left; returns the number. */
size_t storage_sweep(void);

#endif
