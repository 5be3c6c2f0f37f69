/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_SIGNAL_H
#define BASE_SIGNAL_H

#include <stddef.h>

/* The same for each C library.  All return constants. */

/* "SEGV" for SIGSEGV; "?" if the number has no name, as real-time signals. */
const char *signal_name(int number);

/* "Segmentation fault" for SIGSEGV; "unknown" if the number has no description. */
const char *signal_words(int number);

/* SIGSEGV for "SEGV"; 0 if there is none. */
int signal_by_name(const char *name);

/* SIGSEGV for the first `len` bytes of "segmentation fault", in any case; 0 if there is
 * none. */
int signal_by_words(const char *words, size_t len);

#endif
