/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_KIN_H
#define INIT_KIN_H

#include <stdbool.h>
#include <sys/types.h>

/* Kills everything below us, but for children that `spares` is true of and what is below
 * them; `has_spared` is whether there may be any.  How many children of ours there are
 * besides; when there are none, all is over. */
size_t kin_kill(bool (*spares)(pid_t pid), bool has_spared);

#endif
