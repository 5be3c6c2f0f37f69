/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_ROOT_PLAN_H
#define NATIVE_MAKE_ROOT_PLAN_H

#include <stdbool.h>

#include "base/buf.h"
#include "cay/sandbox.h"
#include "init/plan.h"
#include "native/make/overlay.h"
#include "native/record/binds.h"
#include "native/record/storage.h"
#include "native/template/template.h"

/* A plan in the making.  Adding to it cannot fail visibly; blueprint_seal() tells. */
struct root_plan {
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

void root_plan_init(struct root_plan *ret_root_plan);
void root_plan_done(struct root_plan *root_plan);

void root_plan_tree(struct root_plan *root_plan, const char *path, unsigned mode,
                    uint64_t size, unsigned flags);
void root_plan_directory(struct root_plan *root_plan, const char *path, unsigned mode,
                         unsigned owner);
void root_plan_file(struct root_plan *root_plan, const char *path, unsigned mode,
                    const char *text);
void root_plan_bytes(struct root_plan *root_plan, const char *path, unsigned mode,
                     const void *data, size_t len);
/* What the host has there, "etc/services", if everybody may read it. */
void root_plan_copy(struct root_plan *root_plan, const char *path, unsigned mode);
void root_plan_link(struct root_plan *root_plan, const char *path, const char *target);
void root_plan_node(struct root_plan *root_plan, const char *path, unsigned mode,
                    uint64_t device);
void root_plan_bind(struct root_plan *root_plan, const char *path, const char *source,
                    unsigned flags);
void root_plan_need(struct root_plan *root_plan, const char *path, unsigned mode,
                    unsigned owner);
void root_plan_replace(struct root_plan *root_plan, const char *path, unsigned mode,
                       const void *data, size_t len);
void root_plan_binds(struct root_plan *root_plan, const struct binds *binds);
void root_plan_step(struct root_plan *root_plan, enum plan_kind kind, const char *path);

/* The environment of every command, NULL-terminated and the caller's; NULL is none.  At
 * most ENV_COUNT_MAX of ENV_MAX bytes together. */
int root_plan_env(struct root_plan *root_plan, const char *const *env,
                  struct cay_error *err);

const char *root_plan_text(const struct root_plan *root_plan, uint32_t offset);

/* The template "host": this machine's programs, read-only, and a fresh everything else
 * of at most `disk_bytes`, or on the overlay's disk if it has one. */
void root_plan_host(struct root_plan *root_plan, uint64_t disk_bytes);

/* A regular file of the host that everybody may read and that is not too large, for
 * example "etc/services": a descriptor, or -1. */
int root_plan_open_host_file(const char *path, size_t *ret_len);

/* Removes what it does not need any more of what sandboxes share. */
void root_plan_host_sweep(void);

/* What landlock lets a sandbox without a root of its own read of this machine's, and
 * which devices it may use. */
void root_plan_places(struct root_plan *root_plan, bool with_network);
void root_plan_places_of(struct root_plan *root_plan, const struct binds *binds);

/* Any other template, with a writable root of at most `disk_bytes` over it. */
int root_plan_template(struct root_plan *root_plan, const struct template *template,
                       uint64_t disk_bytes, struct cay_error *err);

/* What both have: devices, with shared memory of at most `shm_bytes`, /proc, and that
 * landlock allows writing where the mounts do. */
void root_plan_kernel(struct root_plan *root_plan, uint64_t shm_bytes);

/* The host's /etc/resolv.conf; the caller's, or NULL if there is none. */
char *root_plan_resolver(size_t *ret_len);

/* The finished plan in a sealed memfd; the caller owns the descriptor. */
int root_plan_seal(struct root_plan *root_plan, int *ret_fd, struct cay_error *err);

/* Makes the mounts of its TREE, ROOT and BIND steps, in order, for a sandbox whose
 * root is `id_base` outside; `users` is its user namespace, if its own root is an
 * overlay. The caller owns the descriptors.  Needs the host's privilege. */
int prepare_mounts(const struct root_plan *root_plan, int users, uint32_t id_base,
                   int ret_fds[PLAN_MOUNTS_MAX], size_t *ret_count,
                   struct cay_error *err);

/* What a sandbox's root is put together from, opened before anything is made of it. */
struct root_sources {
    struct template template; /* its root is -1 for "host" */
    struct binds binds;
    struct storage storage; /* -1: in memory */
    bool is_start;          /* of one that has been before */
    const char **env;       /* the caller's, and what an image sets besides */
};

/* `start` is the storage of a sandbox that is started again, held; else NULL.  Close them
 * in any case, and not before the options are done with: what these leave open an image
 * may know. */
int root_sources_open(struct cay_sandbox_options *options, const char *start,
                      struct root_sources *ret_sources, struct cay_error *err);
void root_sources_close(struct root_sources *sources);

/* Puts the root and what is mounted in it on the blueprint. */
int root_sources_plan(const struct root_sources *sources,
                      const struct cay_sandbox_options *options,
                      struct root_plan *root_plan, struct cay_error *err);

#endif
