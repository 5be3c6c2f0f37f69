/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_REPORT_H
#define INIT_REPORT_H

/* Tells the library why the sandbox cannot be made, and ends the process. */
_Noreturn void report_failure(int sys_errno, const char *step, const char *subject);

/* The same about a call that returned 0 and did nothing. */
_Noreturn void report_no_effect(const char *step, const char *subject);

/* The same about a place that the caller chose for a mount. */
_Noreturn void report_place(int sys_errno, const char *path);

/* Everything is made. */
void report_ready(void);

#endif
