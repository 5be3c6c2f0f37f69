/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_SNAPSHOT_H
#define CAY_SNAPSHOT_H

#include "cay/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A snapshot is the files of a sandbox at one moment, on disk, under a name.  It outlives
 * the sandbox and a restart of the machine.  It has what differs from the sandbox's
 * template and needs that template.  Processes, their memory, environment, mounts,
 * network and checkpoints are not part of it.
 *
 * A sandbox begins with the files of a snapshot if its name is `from`, or
 * `template_name`, of struct cay_sandbox_options; template, user and working directory
 * are then those of the snapshot's sandbox.  Any number of sandboxes share the files.
 *
 * Snapshots are stored with the templates, below $CAY_HOME, and have names of the same
 * kind: NAME or NAME:TAG, up to 63 letters, digits, "-", "_" and "."; NAME:latest is
 * NAME.  A template and a snapshot cannot have the same name.  Sandboxes at isolation
 * level "root" have snapshots. */

struct cay_snapshot_options {
    size_t size;
    const char *name;
    /* By number or name; NULL: the files as they are now, which makes a checkpoint unless
     * nothing has changed since the last one: CAY_E_BUSY as there.  A sandbox on disk may
     * also be stopped. */
    const char *checkpoint;
    enum cay_checkpoint_mode mode; /* without a checkpoint given */
    bool replace; /* a snapshot of the same name, unless a sandbox uses it: CAY_E_BUSY */
};

struct cay_snapshot_info {
    char name[CAY_NAME_MAX];
    char sandbox[CAY_ID_MAX]; /* the one it was created from */
    char template_name[256];  /* the one it stands on */
    char user[64], workdir[256];
    int64_t created_ms; /* since 1970 */
    uint64_t bytes;     /* of the files that differ from the template */
    uint32_t sandboxes; /* that use it, running or stopped */
};

/* CAY_E_EXISTS: a template or a snapshot has this name.  A failure, or the death of this
 * process, leaves no snapshot.  `ret_info` may be NULL. */
CAY_PUBLIC CAY_NODISC int cay_snapshot_create(cay_sandbox *sandbox,
                                              const struct cay_snapshot_options *options,
                                              struct cay_snapshot_info *ret_info,
                                              struct cay_error *err);

/* By name.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_snapshot_list(struct cay_snapshot_info **ret_infos,
                                            size_t *ret_count, struct cay_error *err);

/* CAY_E_NOT_FOUND: there is no such snapshot. */
CAY_PUBLIC CAY_NODISC int cay_snapshot_inspect(const char *name,
                                               struct cay_snapshot_info *ret_info,
                                               struct cay_error *err);

/* CAY_E_BUSY while a sandbox uses it, running or stopped, or another snapshot or template
 * stands on it: the hint names that. */
CAY_PUBLIC CAY_NODISC int cay_snapshot_remove(const char *name, struct cay_error *err);

/* Writes a snapshot to `fd`, a file or a pipe, as an OCI image layout in a tar archive
 * (skopeo's "oci-archive:"), with the SHA-256 of everything in it.  The archive has the
 * layers of the snapshot's template too, and needs nothing else; but if that is "host" or
 * "base", it has only what differs from it, which no other program can use.
 *
 * A template that root has built with cay_build() is exported in the same way, and
 * becomes a snapshot when it is imported.
 *
 * The same snapshot is always the same bytes.  FIFOs, sockets, devices and extended
 * attributes are left out.  CAY_E_UNSUPPORTED: the name of a file begins with ".wh.",
 * which such archives use for files that are hidden. */
CAY_PUBLIC CAY_NODISC int cay_snapshot_export(const char *name, int fd,
                                              struct cay_error *err);

/* Creates a snapshot from such an archive; `name` may be NULL for the one that it has.
 * A part that does not match its digest is CAY_E_INVALID, and so is an image that was not
 * exported from a snapshot.  The archive may be hostile: the same limits hold as for
 * templates.  A failure, or the death of this process, leaves no snapshot.  `ret_info`
 * may be NULL. */
CAY_PUBLIC CAY_NODISC int cay_snapshot_import(int fd, const char *name,
                                              struct cay_snapshot_info *ret_info,
                                              struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
