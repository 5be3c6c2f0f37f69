/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_DESCENDANTS_H
#define INIT_DESCENDANTS_H

#include <stdbool.h>
#include <sys/types.h>

/* Kills all descendants, except children for which `excludes` returns true and their
 * descendants; `has_excluded`: there may be such children.  False if there was no child
 * left to kill. */
bool descendants_kill(bool (*spares)(pid_t pid), bool has_spared);

#endif
