/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_ROOT_SOURCES_H
#define NATIVE_MAKE_ROOT_SOURCES_H

#include "native/make/blueprint.h"
#include "native/record/storage.h"

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
