/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

#include "cay/error.h"

/* CAY_E_INVALID, about `what`, if standard input is no terminal. */
int terminal_require(const char *what, const char *hint, struct cay_error *err);

/* Rows and columns of our terminal; false if they cannot be had. */
bool terminal_size(uint16_t *ret_rows, uint16_t *ret_columns);

/* Every key goes through as it is, until terminal_restore(), which is fine at any time.
 */
void terminal_make_raw(void);
void terminal_restore(void);

#endif
