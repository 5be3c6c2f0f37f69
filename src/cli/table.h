/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdio.h>

#include "cli/output.h"

/* Aligned columns of text.  A cell may hold anything, also names that somebody inside a
 * sandbox chose: what a terminal would obey is written as \x1b (show.h). */
struct table {
    FILE *file; /* of memory: the cells, each with its NUL */
    char *text;
    size_t len;
    unsigned columns;
};

/* The headings are separated by '|': "ID|STATE".  table_print() frees the table. */
int table_open(struct table *table, const char *headings, struct cay_error *err);
void table_cell(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* On a terminal the last column is cut at its edge. */
int table_print(struct table *table, struct output *output, struct cay_error *err);

#endif
