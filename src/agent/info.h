/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_INFO_H
#define AGENT_INFO_H

#include "agent/identity.h"
#include "agent/place.h"

int info_get(struct place *place, const char *path, struct cay_file_info *ret_info,
             struct cay_error *err);

int info_list(struct place *place, const char *path, bool recursive, const char *pattern,
              struct cay_file_infos *ret_infos, struct cay_error *err);

#endif
