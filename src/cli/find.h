/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_FIND_H
#define CLI_FIND_H

#include "cay/sandbox.h"

/* The sandbox of this id, or the only one whose id starts so.  CAY_E_NOT_FOUND if there
 * is none, CAY_E_INVALID if there are several; the hint names them. */
int find_sandbox(const char *word, cay_sandbox **ret_sandbox, struct cay_error *err);

#endif
