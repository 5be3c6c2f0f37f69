/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIFF_DIFF_H
#define DIFF_DIFF_H

#include <stdint.h>
#include <sys/stat.h>

#include "cay/diff.h"

#define DIFF_OP "diff"

enum diff_side { DIFF_BEFORE, DIFF_AFTER };

enum {
    DIFF_NO_LAYER = UINT16_MAX,
    DIFF_DEFAULT_CHANGES = 1000000,
    DIFF_DEFAULT_TEXT = 32 << 20,
    DIFF_SCRATCH = 256 << 10,
};

struct diff_layer {
    int fd;
    enum cay_diff_marks marks;
    uint32_t id_base;
    dev_t dev;
    ino_t ino;
    bool is_nodev; /* no device of it can be opened */
};

/* One layer of the diff's table may be in both stacks. */
struct cay_diff {
    struct diff_layer *layers;
    size_t layer_count;
    uint16_t *stacks[2]; /* by enum diff_side: layers, the uppermost first */
    size_t depths[2];

    unsigned flags;
    uint64_t deadline_ns; /* 0: none */
    uint64_t max_changes, max_text;

    struct cay_change *changes;
    size_t count, room;
    uint64_t cut;
    uint64_t line_steps; /* that remain for comparing lines: see lines.h */
    bool is_measured;
    char *scratch; /* DIFF_SCRATCH bytes for one call at a time */
};

/* CAY_E_TIMEOUT after the deadline. */
int diff_check_time(const cay_diff *diff, struct cay_error *err);

/* The failure of a system call on a path inside the layers. */
int diff_fail(int sys_errno, const char *path, struct cay_error *err);

/* Walks both stacks and fills in the changes, in no order. */
int compare_trees(cay_diff *diff, struct cay_error *err);

/* Turns pairs of deleted and added files into renamed ones. */
int rename_find(cay_diff *diff, struct cay_error *err);

/* Changes by path; those without a path, which rename_find() leaves, are dropped. */
void diff_sort(cay_diff *diff);

/* The change of a path, once they are sorted; NULL if there is none. */
struct cay_change *diff_find(const cay_diff *diff, const char *path);

#endif
