/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_LEVEL_H
#define NATIVE_MAKE_LEVEL_H

#include "native/record/idmap.h"
#include "native/record/runtime.h"

/* The ladder: what this user can be given of what keeps a sandbox in. */

/* The best rung that is not above `limit` (CAY_RUNG_BEST: any), or 0 if there is none. */
enum cay_rung rung_from(enum cay_rung limit);
int rung_fail_none(struct cay_error *err);

/* Whether a sandbox that could not be made for this reason may still be, lower down. */
bool rung_may_fall(const struct cay_error *error);

/* Fills in who is who: the record's ids, the map, and who cay-init is outside. */
int rung_identify(enum cay_rung rung, struct record *record, struct idmap *ret_map,
                  uint32_t *ret_owner, struct cay_error *err);

/* Refuses options that mean nothing on this rung. */
int rung_check(enum cay_rung rung, const struct cay_sandbox_options *options,
               struct cay_error *err);

/* The layers a sandbox on this rung has, given the limits its cgroups keep.  Those that
 * `given` has are options, which a sandbox without them would not be; `require` is the
 * caller's.  CAY_E_UNSUPPORTED says which are missing, and what would help. */
unsigned rung_layers(const struct record *record, unsigned limits);
int rung_demand(const struct record *record, unsigned layers, unsigned given,
                unsigned require, struct cay_error *err);

#endif
