/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_DIFF_PRINT_H
#define CLI_DIFF_PRINT_H

#include "cay/diff.h"
#include "cli/output.h"

/* Prints a diff on standard output.  A terminal gets it through the pager of $PAGER, with
 * colours unless $NO_COLOR is set, and control characters of names and files are shown as
 * show_text() does. */
int diff_print(struct output *output, cay_diff *diff, enum cay_diff_format format,
               struct cay_error *err);

#endif
