/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_EDIT_H
#define AGENT_EDIT_H

#include "agent/place.h"

int edit_file(struct place *place, const char *path, const char *old_text, size_t old_len,
              const char *new_text, size_t new_len, enum cay_edit_kind *ret_kind,
              struct cay_error *err);

#endif
