/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_DESCENDANTS_H
#define INIT_DESCENDANTS_H

#include <stdbool.h>
#include <sys/types.h>

/* Kills everything below us, but for children that `spares` is true of and what is below
 * them; `has_spared` is whether there may be any.  Whether there were children of ours
 * besides; if not, all is over. */
bool descendants_kill(bool (*spares)(pid_t pid), bool has_spared);

#endif
