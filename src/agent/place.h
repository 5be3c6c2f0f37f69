/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_PLACE_H
#define AGENT_PLACE_H

#include "cay/agent.h"

/* The files of a sandbox as one user sees them, whatever its backend.
 *
 * There are two kinds of places: those with a cay_files handle (place-files.c), which can
 * do everything, and those with the functions of a struct cay_file_backend
 * (place-backend.c), which move content through descriptors.  Nothing else in this folder
 * knows which it is. */
struct place;

struct place_ops {
    /* Up to `max` bytes from `offset` on, CAY_READ_MAX at most with what is before them,
     * and a NUL; *ret_total is how many the file has. */
    int (*read)(struct place *place, const char *path, uint64_t offset, uint64_t max,
                struct cay_content *ret_content, uint64_t *ret_total,
                struct cay_error *err);
    /* `pin` is NULL or of pin(); `flags` are those of enum cay_write_flag. */
    int (*write)(struct place *place, const char *path, const void *data, size_t len,
                 unsigned flags, const struct cay_pin *pin, struct cay_error *err);
    /* Whether there is a pin to hold on to. */
    bool (*pin)(struct place *place, const char *path, struct cay_pin *ret_pin);

    int (*read_to)(struct place *place, const char *path, int fd,
                   struct cay_stat *ret_stat, struct cay_error *err);
    int (*write_from)(struct place *place, const char *path, int fd, unsigned flags,
                      uint64_t *ret_bytes, struct cay_error *err);

    int (*stat)(struct place *place, const char *path, bool no_follow,
                struct cay_stat *ret_stat, struct cay_error *err);
    /* What is in a directory, or all below it: names of every kind, relative to it, links
     * as themselves; `stat` beyond the type only if asked for.  CAY_E_NOT_FOUND or
     * CAY_E_NOT_A_DIRECTORY if there is no directory. */
    int (*list)(struct place *place, const char *path, bool recursive, bool with_stat,
                struct cay_listing *ret_listing, struct cay_error *err);
    int (*read_link)(struct place *place, const char *path, char **ret_target,
                     struct cay_error *err);
    /* Bits of enum cay_access, or a code. */
    int (*access)(struct place *place, const char *path, const struct cay_stat *stat,
                  struct cay_error *err);
    int (*mkdir)(struct place *place, const char *path, unsigned flags,
                 struct cay_error *err);
    /* CAY_E_EXISTS if there is something; nobody else may look into it. */
    int (*mkdir_private)(struct place *place, const char *path, struct cay_error *err);
    int (*remove)(struct place *place, const char *path, struct cay_error *err);

    /* Directories of the host, by their paths there. */
    int (*upload)(struct place *place, const char *local, const char *path,
                  struct cay_transfer *ret_transfer, struct cay_error *err);
    int (*download)(struct place *place, const char *path, const char *local,
                    struct cay_transfer *ret_transfer, struct cay_error *err);
    char *(*base)(struct place *place); /* NULL if it cannot be told */
    void (*close)(struct place *place);
    bool is_near; /* on this machine: calls are cheap, and allowed while a command runs */
};

struct place {
    const struct place_ops *ops;
    cay_sandbox *sandbox; /* NULL: only files are needed */
    const char *user;     /* as asked for; NULL: the default */
    char *base;           /* the working directory, absolute; see place_base() */
    char *temp;           /* see place_temp() */

    cay_files *files;

    const struct cay_file_backend *backend;
    void *cookie;
};

#define AUTO_PLACE __attribute__((cleanup(place_close))) struct place

/* `user` must outlive it.  Always safe to place_close() after, also on failure. */
int place_open(cay_sandbox *sandbox, const char *user, struct place *ret_place,
               struct cay_error *err);
void place_close(struct place *place);

/* The two kinds by themselves.  The files are the place's from here on. */
void place_of_files(cay_files *files, struct place *ret_place);
void place_of_backend(const struct cay_file_backend *backend, void *cookie,
                      struct place *ret_place);

/* Where relative paths start; "/" if nobody can tell.  NULL for lack of memory. */
const char *place_base(struct place *place);

/* Where commands may make temporary files: /tmp, but for a sandbox that has no root of
 * its own SANDBOX_TEMP, or if its backend is not built in what TMPDIR says there.  NULL
 * for lack of memory. */
const char *place_temp(struct place *place);

/* The path as an absolute one, without "." and doubled slashes; free() it. */
char *place_absolute(struct place *place, const char *path);

/* "dir/name", or the name alone if the directory is ""; free() it. */
char *place_join(const char *dir, const char *name);

int place_read_all(struct place *place, const char *path, struct cay_content *ret_content,
                   struct cay_error *err);

#endif
