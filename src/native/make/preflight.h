/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_PREFLIGHT_H
#define NATIVE_MAKE_PREFLIGHT_H

#include "native/record/cgroup.h"
#include "native/record/runtime.h"

/* What can be known of a sandbox before anything is made. */

/* Fills in the defaults and refuses what cannot be.  *ret_given: the limits that are not
 * defaults, CAY_LAYER_... */
int preflight_options(struct cay_sandbox_options *options, unsigned *ret_given,
                      struct cay_error *err);

struct cgroup_limits preflight_limits(const struct cay_sandbox_options *options);

/* Refuses what its cgroups, which are named in the record, will not keep. */
int preflight_layers(const struct record *record,
                     const struct cay_sandbox_options *options, unsigned given,
                     struct cay_error *err);

/* Refuses a disk in memory that is larger than a memory limit that is kept: one of
 * `layers`.  One that was given is checked when the options are completed. */
int preflight_disk(const struct cay_sandbox_options *options, unsigned layers,
                   struct cay_error *err);

/* All of it, for options that nobody has completed: whether there could be such a
 * sandbox here and now. */
int preflight(const struct cay_sandbox_options *options, struct cay_error *err);

#endif
