/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_TEMPLATE_BASE_FILES_H
#define NATIVE_TEMPLATE_BASE_FILES_H

#include <stdint.h>

/* A file inside: settings of apt where there is no network. */
#define BASE_APT_OFFLINE "/etc/apt-offline.conf"

/* What the template "base" consists of: see template-base.c. */

/* Differs as soon as it would be made from something else. */
uint64_t base_version(void);

/* Fills two empty directories: the lower layer of its root, and the layer above the
 * host's /usr.  0 or a negative errno. */
int base_fill(int root, int usr);

#endif
