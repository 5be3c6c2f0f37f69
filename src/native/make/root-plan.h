/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_ROOT_PLAN_H
#define NATIVE_MAKE_ROOT_PLAN_H

#include <stdbool.h>

#include "base/buf.h"
#include "cay/sandbox.h"
#include "init/plan.h"
#include "native/make/inherit.h"
#include "native/make/overlay.h"
#include "native/make/store.h"
#include "native/record/binds.h"
#include "native/record/storage.h"
#include "native/template/template.h"

enum { PLAN_USUAL_BYTES = 8 << 10 };

/* A plan for cay-init that is being built.  Adding to it never fails visibly;
 * root_plan_seal() reports errors. */
struct root_plan {
    struct plan head; /* counts and sizes are filled in at the end */
    const struct plan_filter *filter;
    struct plan_step steps[PLAN_STEPS_MAX];
    uint32_t step_count;
    struct buf bytes; /* in `usual` unless they are more */
    char usual[PLAN_USUAL_BYTES];
    const char *const *env;
    bool overflow;
    const struct binds *binds; /* a BIND step with number N uses its N-th entry, from 1 */
    struct store store;        /* at the bottom, or STORE_NONE */
    struct overlay overlay;    /* of a ROOT step; the caller owns the descriptors */
    const struct inherited *inherited; /* of a fork, or NULL */
    bool keeps_root;                   /* the root has its files already */
    bool is_copy;                      /* and they are those of another sandbox */
    const char *authority;             /* of cay-net-tls, as text; NULL: none */
};

void root_plan_init(struct root_plan *ret_root_plan);
void root_plan_done(struct root_plan *root_plan);

/* A new step, to be filled in; with a copy of the data. */
struct plan_step *root_plan_add(struct root_plan *root_plan, enum plan_kind kind,
                                const char *path);
struct plan_step *root_plan_add_data(struct root_plan *root_plan, enum plan_kind kind,
                                     const char *path, const void *data, size_t len);

/* A step whose data is the host path of an open directory, for cay-init to look up
 * again. */
struct plan_step *root_plan_add_source(struct root_plan *root_plan, enum plan_kind kind,
                                       int fd);

/* The environment of every command, NULL-terminated; the caller keeps it.  NULL: none.
 * At most ENV_COUNT_MAX variables and ENV_MAX bytes in total. */
int root_plan_env(struct root_plan *root_plan, const char *const *env,
                  struct cay_error *err);

/* The check alone; *ret_len is the number of bytes, each variable with its NUL. */
int root_plan_check_env(const char *const *env, size_t *ret_len, struct cay_error *err);

/* Whether it is created in a tree: by the library, if that creates the mounts. */
static inline bool root_plan_is_entry(const struct plan_step *step)
{
    return step->kind == PLAN_DIRECTORY || step->kind == PLAN_FILE ||
           step->kind == PLAN_LINK || step->kind == PLAN_NODE;
}

const char *root_plan_text(const struct root_plan *root_plan, uint32_t offset);

/* The template "host": the host's programs, read-only, and new directories for everything
 * else, or those of a snapshot; of at most `disk_bytes` in memory or on the overlay's
 * disk. */
void root_plan_host(struct root_plan *root_plan, const struct template *template,
                    uint64_t disk_bytes);

/* A number that changes when a file of the host does that it copies once for all
 * sandboxes. */
uint64_t root_plan_host_version(void);

/* Removes shared files that no sandbox uses any more. */
void root_plan_host_sweep(void);

/* Everything that landlock permits a sandbox without its own root: host files, devices,
 * its home and its mounts. */
void root_plan_landlock(struct root_plan *root_plan, bool with_network, const char *home,
                        const struct binds *binds);

/* Any other template, under a writable root of at most `disk_bytes`. */
int root_plan_template(struct root_plan *root_plan, const struct template *template,
                       uint64_t disk_bytes, struct cay_error *err);

/* Writes the plan to a sealed memfd; the caller owns the descriptor. */
int root_plan_seal(struct root_plan *root_plan, int *ret_fd, struct cay_error *err);

/* Creates the mounts of the TREE, ROOT and BIND steps, in order, for a sandbox whose root
 * is `id_base` on the host; `users` is its user namespace if its root is an overlay.  The
 * caller owns the descriptors.  Needs CAP_SYS_ADMIN on the host. */
int prepare_mounts(const struct root_plan *root_plan, int users, uint32_t id_base,
                   int ret_fds[PLAN_MOUNTS_MAX], size_t *ret_count,
                   struct cay_error *err);

/* The sources of a sandbox's root, opened before it is created. */
struct root_sources {
    struct template template; /* its root is -1 for "host" */
    struct binds binds;
    struct storage storage;            /* -1: in memory */
    const struct inherited *inherited; /* of a fork, or NULL */
    bool is_start;                     /* of a sandbox that is started again */
    const char **env;                  /* of the caller and of the image */
};

/* `start` is the id of a sandbox that is started again; else NULL.  Call
 * root_sources_close() in any case, and only after the last use of the options: an image
 * may supply user, workdir and env. */
int root_sources_open(struct cay_sandbox_options *options, const char *start,
                      struct root_sources *ret_sources, struct cay_error *err);
void root_sources_close(struct root_sources *sources);

/* Adds the root and its mounts to the plan. */
int root_sources_plan(const struct root_sources *sources,
                      const struct cay_sandbox_options *options,
                      struct root_plan *root_plan, struct cay_error *err);

#endif
