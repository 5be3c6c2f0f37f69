/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_TRANSFER_H
#define AGENT_TRANSFER_H

#include "agent/place.h"

int transfer_upload(struct place *place, const char *local, const char *inside,
                    struct cay_transfer *ret_transfer, struct cay_error *err);
int transfer_download(struct place *place, const char *inside, const char *local,
                      struct cay_transfer *ret_transfer, struct cay_error *err);

#endif
