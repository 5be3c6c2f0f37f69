/* SPDX-License-Identifier: Apache-2.0 */
/* Included before each file that tools/tidy looks at.  The analyzer sees one file at a
 * time and cannot know that these never return 0; told so, it stops following paths on
 * which a failure goes on as a success. */
#include "base/error.h"

#define cay_fail(err, code, ...) ((void)(cay_fail)(err, code, __VA_ARGS__), (code))
#define cay_fail_errno(...)      ((void)(cay_fail_errno)(__VA_ARGS__), CAY_E_IO)
#define cay_fail_memory(...)     ((void)(cay_fail_memory)(__VA_ARGS__), CAY_E_NO_MEMORY)
