/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_PREFLIGHT_H
#define NATIVE_MAKE_PREFLIGHT_H

#include "native/record/cgroup.h"
#include "native/record/runtime.h"

/* Checks that are possible before anything is created. */

/* Fills in defaults and refuses invalid options.  *ret_given: the limits that the caller
 * set, CAY_LAYER_... */
int preflight_options(struct cay_sandbox_options *options, unsigned *ret_given,
                      struct cay_error *err);

struct cgroup_limits preflight_limits(const struct cay_sandbox_options *options);

/* Refuses limits and layers that the cgroups named in the record cannot enforce. */
int preflight_layers(const struct record *record,
                     const struct cay_sandbox_options *options, unsigned given,
                     struct cay_error *err);

/* Refuses a disk limit in memory above a memory limit that is enforced (in `layers`).  A
 * disk limit that the caller set is checked by preflight_options(). */
int preflight_disk(const struct cay_sandbox_options *options, unsigned layers,
                   struct cay_error *err);

/* All checks, for options that are not completed yet: whether such a sandbox can be
 * created here and now. */
int preflight(const struct cay_sandbox_options *options, struct cay_error *err);

#endif
