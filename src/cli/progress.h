/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>

enum progress_counter { PROGRESS_READ, PROGRESS_WRITTEN };

/* From the second after this call on, a terminal on standard error shows how many bytes
 * this process has read or written since, and how fast: "Importing: 12 MiB, 6 MiB/s".
 * Nothing happens where standard error is not a terminal.  `what` must live until
 * progress_stop(), which wipes the line again. */
void progress_start(const char *what, enum progress_counter counter);
void progress_stop(void);

/* The number of bytes that there will be: "Copying: 12 of 1024 MiB, 230 MiB/s". */
void progress_expect(uint64_t bytes);

/* For work that reports its own progress: "Unpacking: 12 MiB", under the same rules.
 * The first second counts from the first call; a NULL step wipes the line. */
void progress_step(const char *step, uint64_t bytes);

/* Prints a note if a copy skipped entries. */
void progress_skipped(uint64_t count);

/* Around a prompt on the terminal.  May be called when nothing is in progress. */
void progress_pause(void);
void progress_resume(void);

#endif
