/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_LEVEL_H
#define NATIVE_MAKE_LEVEL_H

#include "native/record/idmap.h"
#include "native/record/runtime.h"

/* Isolation levels: which layers this user's sandboxes can have. */

/* The best level that is not above `limit` (CAY_LEVEL_BEST: any), or 0 if there is
 * none. */
enum cay_level level_from(enum cay_level limit);
int level_fail_none(struct cay_error *err);

/* Whether creation may still succeed at a lower level after this error. */
bool level_may_fall(const struct cay_error *error);

/* Fills in the ids of the record, the id map, and the host uid of cay-init. */
int level_identify(enum cay_level level, struct record *record, struct idmap *ret_map,
                   uint32_t *ret_owner, struct cay_error *err);

/* Refuses options that this level does not support. */
int level_check(enum cay_level level, const struct cay_sandbox_options *options,
                struct cay_error *err);

/* level_layers() returns the layers of a sandbox at this level, given the limits that its
 * cgroups enforce.  level_demand() fails with CAY_E_UNSUPPORTED, naming the missing
 * layers and a fix, if one of `given` (limits that the caller set) or `require` is
 * missing. */
unsigned level_layers(const struct record *record, unsigned limits);
int level_demand(const struct record *record, unsigned layers, unsigned given,
                 unsigned require, struct cay_error *err);

#endif
