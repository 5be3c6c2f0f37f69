/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TAR_UNPACK_H
#define FILES_TAR_UNPACK_H

#include "files/draft.h"
#include "files/handle.h"
#include "files/tar-filter.h"

/* Puts the items of an archive below a directory, under the policy.  Every name is looked
 * up from that directory's descriptor and through no link at all; files appear whole, by
 * the same drafts as any other write. */
struct unpack {
    const char *op;
    bool exact; /* modes are taken over whatever the umask */
    const cay_files *files;
    const struct target *target; /* the directory; held by the caller */
    uint64_t max_made;           /* directories that may be made for entries below them */

    struct cay_tar_result result;
    uint64_t made_unasked;
    struct unpack_made *made;
    size_t made_count, made_room, made_bytes;
    int dir;                  /* the directory of the current entry... */
    char dir_path[PATH_MAX];  /* ...and its path below the target */
    char name[NAME_MAX + 1];  /* the entry's name in it */
    char rel[PATH_MAX];       /* its place below the mount... */
    char label[2 * PATH_MAX]; /* ...and that as the policy spells it */
    struct draft draft;       /* of the current file */
    struct timespec mtime;
};

void unpack_init(struct unpack *unpack, const cay_files *files,
                 const struct target *target, uint64_t max_made);

/* Before anybody is asked: fails if unpacking there is bound to. */
int unpack_check_directory(const cay_files *files, const struct target *target,
                           struct cay_error *err);

/* Makes the directory of a target if nothing is there; after that the target holds it,
 * and `ret_parent` what was made. */
int unpack_open_directory(cay_files *files, struct target *target,
                          struct parent *ret_parent, struct cay_error *err);

/* Also after a failure: sets modes and times of the directories made, drops a file that
 * is not complete. */
void unpack_done(struct unpack *unpack);

/* What is not allowed is an error; what is special is counted as skipped. */
int unpack_item(struct unpack *unpack, const struct tar_item *item,
                struct cay_error *err);

#endif
