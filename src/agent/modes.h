/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_MODES_H
#define AGENT_MODES_H

#include "agent/place.h"

/* Permission bits of files in a place whose functions cannot set them: no such function
 * is needed where commands run, for every system has chmod(1).  What it refuses to do is
 * no failure: not everything that has files has modes. */

int modes_set(struct place *place, const char *path, uint32_t mode,
              struct cay_error *err);

/* Of those entries of a listing whose `is_new` is set, which lie below `top` now. */
int modes_set_all(struct place *place, const char *top, const struct cay_listing *listing,
                  const bool *is_new, struct cay_error *err);

#endif
