/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_BLUEPRINT_H
#define NATIVE_BLUEPRINT_H

#include <stdbool.h>

#include "cay/sandbox.h"
#include "init/plan.h"

/* A plan in the making.  Adding to it cannot fail visibly; blueprint_seal() tells. */
struct blueprint {
    struct plan *plan; /* with room for PLAN_BYTES_MAX */
    bool overflow;
};

int blueprint_init(struct blueprint *ret_blueprint, struct cay_error *err);
void blueprint_done(struct blueprint *blueprint);

void blueprint_directory(struct blueprint *blueprint, const char *path, unsigned mode,
                         unsigned owner);
void blueprint_file(struct blueprint *blueprint, const char *path, unsigned mode,
                    const char *text);
void blueprint_bytes(struct blueprint *blueprint, const char *path, unsigned mode,
                     const void *data, size_t len);
void blueprint_link(struct blueprint *blueprint, const char *path, const char *target);
void blueprint_bind(struct blueprint *blueprint, const char *path, const char *source,
                    unsigned flags);
void blueprint_step(struct blueprint *blueprint, enum plan_kind kind, const char *path,
                    unsigned mode, uint64_t number);

/* The environment of every command, NULL-terminated; NULL is none.  At most ENV_COUNT_MAX
 * of ENV_MAX bytes together. */
int blueprint_env(struct blueprint *blueprint, const char *const *env,
                  struct cay_error *err);

/* The template "host": this machine's programs, read-only, and a fresh everything else.
 */
void blueprint_host(struct blueprint *blueprint, const char *hostname);

/* The finished plan in a sealed memfd; the caller owns the descriptor. */
int blueprint_seal(struct blueprint *blueprint, int *ret_fd, struct cay_error *err);

#endif
