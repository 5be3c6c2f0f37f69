/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_TRACEBACK_H
#define AGENT_TRACEBACK_H

#include <stdbool.h>
#include <stddef.h>

/* The line of a Python traceback that names the error: "ZeroDivisionError: division by
 * zero".  False if what was written to stderr has none. */
bool traceback_error(const char *text, size_t len, char *ret_line, size_t room);

#endif
