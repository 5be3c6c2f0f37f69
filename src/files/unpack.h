/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_UNPACK_H
#define FILES_UNPACK_H

#include "files/tar.h"
#include "files/write.h"

/* Writes the items of an archive below a directory.  Every name is looked up from that
 * directory's descriptor and through no link; files appear whole, as by any other write.
 *
 * Either under the policy of `files`; or into a root file system (`files` is NULL), which
 * keeps owners and all bits of modes, and in which an entry replaces whatever has its
 * name. */
struct unpack {
    const char *op;
    bool exact; /* modes are kept whatever the umask */
    const struct fs *fs;
    int top; /* the directory; held by the caller */
    const cay_files *files;
    const struct target *target; /* the directory, under the policy */
    uint64_t max_made; /* limit of directories that have no entry of their own */

    struct cay_tar_result result;
    uint64_t made_without_entry;
    struct unpack_made *made;
    size_t made_count, made_room, made_bytes;
    int dir;                  /* the directory of the current entry... */
    char dir_path[PATH_MAX];  /* ...and its path below the target */
    char name[NAME_MAX + 1];  /* the entry's name in it */
    char rel[PATH_MAX];       /* its place below the mount... */
    char label[2 * PATH_MAX]; /* ...and that as the policy spells it */
    struct temp_file temp;    /* of the current file... */
    struct tar_item item;     /* ...and its entry, without texts */
};

void unpack_init(struct unpack *unpack, const cay_files *files,
                 const struct target *target, uint64_t max_made);
void unpack_init_root(struct unpack *unpack, const char *op, int root, uint64_t max_made);

/* Before an approver is asked: fails if unpacking there would. */
int unpack_check_directory(const cay_files *files, const struct target *target,
                           struct cay_error *err);

/* Creates the directory of a target if it is missing; then the target holds it, and
 * `ret_parent` the directories created. */
int unpack_open_directory(cay_files *files, struct target *target,
                          struct parent *ret_parent, struct cay_error *err);

/* Also after a failure: sets modes and times of the directories created, and deletes an
 * incomplete file. */
void unpack_done(struct unpack *unpack);

/* A forbidden item is an error; a special one counts as skipped. */
int unpack_item(struct unpack *unpack, const struct tar_item *item,
                struct cay_error *err);

#endif
