/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_PROFILE_H
#define CAY_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a coding agent of this machine needs in a sandbox.  Cay has some profiles; a user
 * adds others, or replaces one, with a file NAME.yaml in $XDG_CONFIG_HOME/cay/agents
 * (~/.config/cay/agents).  cay-agent(1) describes the keys. */
struct cay_profile {
    const char *name;
    const char *origin;    /* the file, or "built-in" */
    const char *title;     /* never NULL */
    const char *command;   /* a name in PATH or an absolute path; NULL: the caller's */
    const char *install;   /* how to install it, or NULL */
    uint64_t memory_bytes; /* 0: the default of sandboxes */

    /* NULL-terminated, never NULL */
    const char *const *arguments; /* of the command, before the caller's */
    const char *const *copy;      /* "~/...": copied into the home directory inside */
    const char *const *show;      /* "~/..." or absolute: visible and read-only */
    const char *const *env;       /* "NAME=value" */
    const char *const *allow;     /* rules of cay_network_config */
    const char *const *secrets;   /* "NAME=HOST[:WAY]": as struct cay_secret */
};

/* A profile by its name, or with a "/" in it the one in this file.  The caller frees it.
 * CAY_E_NOT_FOUND lists the profiles; CAY_E_INVALID has the line and the key. */
CAY_PUBLIC CAY_NODISC int cay_profile_load(const char *name,
                                           struct cay_profile **ret_profile,
                                           struct cay_error *err);
CAY_PUBLIC void cay_profile_free(struct cay_profile *profile); /* NULL is allowed */

/* The names, in order.  Free the array with cay_free(), which frees the names, too. */
CAY_PUBLIC CAY_NODISC int cay_profile_list(const char *const **ret_names,
                                           size_t *ret_count, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
