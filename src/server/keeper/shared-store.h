/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_SHARED_STORE_H
#define SERVER_KEEPER_SHARED_STORE_H

#include "base/buf.h"
#include "server/keeper/keeper.h"

/* Where --shared has its files, for one tenant, in a keeper without a sandbox:
 *
 *     cay-shared              the id of the store
 *     tenant-NAME/records/ID  what there is: lines of text, at most SHARED_RECORD_MAX
 *     tenant-NAME/files/ID    the archive of cay_snapshot_export()
 *
 * Files are complete before they get their names, and never change afterwards. */

enum {
    SHARED_RECORD_MAX = 16 << 10, /* that of a template has its commands */
    SHARED_NAME_ROOM = 80,
    SHARED_STALE_S = 24 * 3600 /* of an archive without a record */
};

/* "s.ID": other names are no records. */
bool shared_is_name(const char *name);

struct shared_store {
    const struct shared_calls *calls;
};

struct shared_calls {
    /* Calls `note` with the name of each record; a code of that ends it. */
    int (*list)(struct shared_store *store, int (*note)(void *cookie, const char *name),
                void *cookie, struct cay_error *err);
    /* The number of bytes; 0: there is no such record, or it is no file.  `text` has
     * SHARED_RECORD_MAX bytes. */
    int (*read_record)(struct shared_store *store, const char *name, char *text,
                       size_t *ret_len, struct cay_error *err);
    int (*put_record)(struct shared_store *store, const char *name,
                      const struct buf *text, struct cay_error *err);
    /* An empty file for an archive, until put_archive() or close(). */
    int (*new_archive)(struct shared_store *store, int *ret_fd, struct cay_error *err);
    int (*put_archive)(struct shared_store *store, const char *name, const char *digest,
                       uint64_t bytes, struct cay_error *err);
    /* Copies the archive to a file that is empty.  CAY_E_NOT_FOUND: there is none. */
    int (*fetch)(struct shared_store *store, const char *name, int to,
                 struct cay_error *err);
    /* The record, then the archive. */
    int (*remove)(struct shared_store *store, const char *name, struct cay_error *err);
    void (*close)(struct shared_store *store); /* frees it */
};

/* Fails unless the store has this id.  `make`: the tenant may have nothing yet. */
int shared_directory_open(const struct keeper *keeper, const char *id, const char *tenant,
                          bool make, struct shared_store **ret_store,
                          struct cay_error *err);
int shared_s3_open(const struct keeper *keeper, const char *id, const char *tenant,
                   struct shared_store **ret_store, struct cay_error *err);

/* CAY_E_UNAVAILABLE, for a client; the words are for the operator. */
int shared_fail(const char *what, int error, const char *words, struct cay_error *err);

#endif
