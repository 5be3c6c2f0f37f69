/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_CLOCK_H
#define SERVER_BROKER_CLOCK_H

#include <stdint.h>

/* The clock of the rows: CLOCK_BOOTTIME plus an offset that the store keeps for as long
 * as the machine is up.  It shows the time since 1970 as of the first start of a server,
 * and setting the system's clock does not move it: a sandbox neither loses nor gains
 * time. */
int64_t server_clock_ms(void);

/* Between the two; without server_clock_set() that of the first use. */
int64_t server_clock_offset(void);
void server_clock_set(int64_t offset_ms);
int64_t server_clock_boot_ms(void);

/* How far the system's clock was set since: add it to times that clients see, and
 * subtract it from those that they send. */
int64_t server_clock_step_ms(void);

#endif
