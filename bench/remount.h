/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_REMOUNT_H
#define BENCH_REMOUNT_H

#include <stdbool.h>

/* The floor of a checkpoint: the system calls that give one idle process a root with one
 * more layer, and nothing else. */

/* Starts the process, on the processors of this one, and ends the one before.  It ends
 * with this process.  False: this machine cannot. */
bool remount_start(void);

/* An entrant, see race.h. */
double remount_run(void *cookie);

#endif
