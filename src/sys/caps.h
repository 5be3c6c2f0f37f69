/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_CAPS_H
#define SYS_CAPS_H

#include <stdbool.h>

/* Whether the calling thread has this capability (CAP_...) in its effective set. */
bool caps_has(int capability);

#endif
