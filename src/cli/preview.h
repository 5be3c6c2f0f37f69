/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PREVIEW_H
#define CLI_PREVIEW_H

#include <stdio.h>

#include "cay/files.h"

/* The lines that an approved write or edit would take away ("-") and add ("+"): at most
 * a screenful, and nothing a terminal would obey. */
void preview_show(FILE *file, const struct cay_approval *request);

#endif
