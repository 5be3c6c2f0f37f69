/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_SCALE_H
#define BENCH_SCALE_H

#include <cay/sandbox.h>
#include <stdbool.h>

/* Ends the process unless the code is CAY_OK. */
void sandbox_ok(int code, const struct cay_error *err);

/* Files of a sandbox, small and large, against plain system calls. */
void scale_files(bool quick);

/* What it costs to have 1, 10, 100, 1000 of them. */
void scale_live(bool quick);

/* What each operation costs beside that many of them; `cay` is the program. */
void scale_growth(const char *cay, bool quick);

#endif
