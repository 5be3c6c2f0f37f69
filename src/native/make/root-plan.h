/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_BLUEPRINT_H
#define NATIVE_MAKE_BLUEPRINT_H

#include <stdbool.h>

#include "base/buf.h"
#include "cay/sandbox.h"
#include "init/plan.h"
#include "native/make/overlay.h"
#include "native/record/binds.h"
#include "native/record/storage.h"
#include "native/template/template.h"

/* A plan in the making.  Adding to it cannot fail visibly; blueprint_seal() tells. */
struct blueprint {
    struct plan head; /* counts and sizes are filled in at the end */
    const struct plan_filter *filter;
    struct plan_step steps[PLAN_STEPS_MAX];
    uint32_t step_count;
    struct buf bytes;
    const char *const *env;
    bool overflow;
    const struct binds *binds; /* BIND steps with a number N are of its N-th, from 1 */
    struct overlay overlay;    /* of a ROOT step; the descriptors are the caller's */
    bool keeps_root;           /* what is in it is not made again */
};

void blueprint_init(struct blueprint *ret_blueprint);
void blueprint_done(struct blueprint *blueprint);

void blueprint_tree(struct blueprint *blueprint, const char *path, unsigned mode,
                    uint64_t size, unsigned flags);
void blueprint_directory(struct blueprint *blueprint, const char *path, unsigned mode,
                         unsigned owner);
void blueprint_file(struct blueprint *blueprint, const char *path, unsigned mode,
                    const char *text);
void blueprint_bytes(struct blueprint *blueprint, const char *path, unsigned mode,
                     const void *data, size_t len);
/* What the host has there, "etc/services", if everybody may read it. */
void blueprint_copy(struct blueprint *blueprint, const char *path, unsigned mode);
void blueprint_link(struct blueprint *blueprint, const char *path, const char *target);
void blueprint_node(struct blueprint *blueprint, const char *path, unsigned mode,
                    uint64_t device);
void blueprint_bind(struct blueprint *blueprint, const char *path, const char *source,
                    unsigned flags);
void blueprint_need(struct blueprint *blueprint, const char *path, unsigned mode,
                    unsigned owner);
void blueprint_replace(struct blueprint *blueprint, const char *path, unsigned mode,
                       const void *data, size_t len);
void blueprint_binds(struct blueprint *blueprint, const struct binds *binds);
void blueprint_step(struct blueprint *blueprint, enum plan_kind kind, const char *path);

/* The environment of every command, NULL-terminated and the caller's; NULL is none.  At
 * most ENV_COUNT_MAX of ENV_MAX bytes together. */
int blueprint_env(struct blueprint *blueprint, const char *const *env,
                  struct cay_error *err);

const char *blueprint_text(const struct blueprint *blueprint, uint32_t offset);

/* The template "host": this machine's programs, read-only, and a fresh everything else
 * of at most `disk_bytes`, or on the overlay's disk if it has one. */
void blueprint_host(struct blueprint *blueprint, uint64_t disk_bytes);

/* A regular file of the host that everybody may read and that is not too large, for
 * example "etc/services": a descriptor, or -1. */
int root_plan_open_host_file(const char *path, size_t *ret_len);

/* Removes what it does not need any more of what sandboxes share. */
void blueprint_host_sweep(void);

/* What landlock lets a sandbox without a root of its own read of this machine's, and
 * which devices it may use. */
void blueprint_places(struct blueprint *blueprint, bool with_network);
void blueprint_places_of(struct blueprint *blueprint, const struct binds *binds);

/* Any other template, with a writable root of at most `disk_bytes` over it. */
int blueprint_template(struct blueprint *blueprint, const struct template *template,
                       uint64_t disk_bytes, struct cay_error *err);

/* What both have: devices, with shared memory of at most `shm_bytes`, /proc, and that
 * landlock allows writing where the mounts do. */
void blueprint_kernel(struct blueprint *blueprint, uint64_t shm_bytes);

/* The host's /etc/resolv.conf; the caller's, or NULL if there is none. */
char *blueprint_resolver(size_t *ret_len);

/* The finished plan in a sealed memfd; the caller owns the descriptor. */
int blueprint_seal(struct blueprint *blueprint, int *ret_fd, struct cay_error *err);

/* Makes the mounts of its TREE, ROOT and BIND steps, in order, for a sandbox whose
 * root is `id_base` outside; `users` is its user namespace, if its own root is an
 * overlay. The caller owns the descriptors.  Needs the host's privilege. */
int prepare_mounts(const struct blueprint *blueprint, int users, uint32_t id_base,
                   int ret_fds[PLAN_MOUNTS_MAX], size_t *ret_count,
                   struct cay_error *err);

/* What a sandbox's root is put together from, opened before anything is made of it. */
struct parts {
    struct template template; /* its root is -1 for "host" */
    struct binds binds;
    struct storage storage; /* -1: in memory */
    bool is_start;          /* of one that has been before */
    const char **env;       /* the caller's, and what an image sets besides */
};

/* `start` is the storage of a sandbox that is started again, held; else NULL.  Close them
 * in any case, and not before the options are done with: what these leave open an image
 * may know. */
int parts_open(struct cay_sandbox_options *options, const char *start,
               struct parts *ret_parts, struct cay_error *err);
void parts_close(struct parts *parts);

/* Puts the root and what is mounted in it on the blueprint. */
int parts_draw(const struct parts *parts, const struct cay_sandbox_options *options,
               struct blueprint *blueprint, struct cay_error *err);

#endif
