/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_AUDIT_H
#define SERVER_BROKER_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cay/error.h"

/* The audit record: lines of JSON in a directory next to the store, one file for each day
 * (UTC), that are only appended to.  Each line has the hash of the line before it, so a
 * line that is changed, removed or inserted is found.
 *
 * A file has at most 1 GiB, so that clients cannot fill the disk: lines that do not fit
 * are failures.  The caller leaves space for other clients: audit_room().
 *
 *     {"number":7,"previous":"HASH",...,"hash":"HASH"}
 *
 * The hash is the SHA-256 of everything before `,"hash":`, in hexadecimal. */
struct audit;

#define AUDIT_SUFFIX "-audit" /* after the path of the store */

enum { AUDIT_HASH = 64 + 1, AUDIT_LINE_MAX = 20 << 10 };

/* Creates the directory, mode 0700.  `days`: how long files are kept. */
int audit_open(const char *path, unsigned days, struct audit **ret_audit,
               struct cay_error *err);
void audit_close(struct audit *audit); /* may be NULL */

/* Appends a line with these members of an object, as JSON without braces.  Several
 * processes may append.  A failure is counted; the file keeps whole lines only. */
void audit_append(struct audit *audit, int64_t now_ms, const char *members);
void audit_count_failure(struct audit *audit); /* of the caller */
uint64_t audit_failures(const struct audit *audit);

/* Bytes that still fit into the file of the day, as far as this process knows. */
uint64_t audit_room(const struct audit *audit, int64_t now_ms);

/* For `cay audit`: reads all lines, oldest first, and checks them. */
struct audit_result {
    uint64_t lines, first; /* `first`: the number of the first line */
    char last[AUDIT_HASH]; /* the hash of the last line, "" if there is none */
    bool has_expected;     /* `expected` is among the hashes */
};
/* `visit` gets each line with its line end, and may be NULL.  CAY_E_CHANGED: a line does
 * not fit, the subject says which. */
int audit_read(const char *path, const char *expected, void (*visit)(const char *line),
               struct audit_result *ret_result, struct cay_error *err);

/* For webhooks: calls `visit` for each whole line after this place, and moves the place.
 */
struct audit_place {
    char day[32]; /* "": before the first */
    long offset;
};
struct audit_line {
    uint64_t number;
    char hash[AUDIT_HASH];
    const char *text; /* without its line end */
};
void audit_follow(const char *path, struct audit_place *place,
                  void (*visit)(const struct audit_line *line, void *cookie),
                  void *cookie);

#endif
