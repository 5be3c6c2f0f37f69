/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_GLOB_H
#define AGENT_GLOB_H

#include "agent/place.h"

int glob_find(struct place *place, const char *pattern, bool recursive,
              struct cay_strings *ret_paths, struct cay_error *err);

#endif
