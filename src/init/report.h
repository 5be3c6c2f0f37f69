/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_REPORT_H
#define INIT_REPORT_H

#include <stdbool.h>

/* Reports to the library why the sandbox cannot be created, and exits. */
_Noreturn void report_failure(int sys_errno, const char *step, const char *subject);

/* The same for a call that returned 0 without effect. */
_Noreturn void report_no_effect(const char *step, const char *subject);

/* The same for a mount target that the caller chose. */
_Noreturn void report_place(int sys_errno, const char *path);

/* The same for an overlay that cannot store its marks, in memory or on disk. */
_Noreturn void report_no_marks(bool is_memory);

/* The sandbox is ready. */
void report_ready(void);

#endif
