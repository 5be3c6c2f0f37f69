/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_CODE_H
#define AGENT_CODE_H

#include <stdbool.h>
#include <stddef.h>

/* The line of a Python traceback that names the error: "ZeroDivisionError: division by
 * zero".  False if the text has no traceback. */
bool code_traceback_error(const char *text, size_t len, char *ret_line, size_t room);

#endif
