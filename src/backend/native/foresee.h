/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_FORESEE_H
#define NATIVE_FORESEE_H

#include "backend/native/groups.h"
#include "backend/native/runtime.h"

/* What can be known of a sandbox before anything is made. */

/* Fills in the defaults and refuses what cannot be.  *ret_given: the limits that are not
 * defaults, CAY_LAYER_... */
int foresee_complete(struct cay_sandbox_options *options, unsigned *ret_given,
                     struct cay_error *err);

struct groups_limits foresee_limits(const struct cay_sandbox_options *options);

/* Refuses what its cgroups, which are named in the record, will not keep. */
int foresee_layers(const struct record *record, const struct cay_sandbox_options *options,
                   unsigned given, struct cay_error *err);

/* Refuses a disk in memory that is larger than a memory limit that is kept: one of
 * `layers`.  One that was given is checked when the options are completed. */
int foresee_disk(const struct cay_sandbox_options *options, unsigned layers,
                 struct cay_error *err);

/* All of it, for options that nobody has completed: whether there could be such a
 * sandbox here and now. */
int foresee(const struct cay_sandbox_options *options, struct cay_error *err);

#endif
