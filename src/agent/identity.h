/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_IDENTITY_H
#define AGENT_IDENTITY_H

#include "agent/place.h"

/* Who a place's user is, by the sandbox's own /etc/passwd. */
struct identity {
    bool is_known;
    uint32_t uid, gid;
};

struct identity identity_of(struct place *place);

/* What the mode of a file lets them do: bits of enum cay_access.  Who is not known is
 * taken for the owner. */
int identity_access(const struct identity *identity, const struct cay_stat *stat);

#endif
