/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_EDITS_H
#define CLI_EDITS_H

#include "cay/files.h"

/* Edits from a JSON file, [{"old": "...", "new": "...", "all": false, "exact": false}].
 */
struct edits {
    struct cay_edit *items; /* pointing into the document */
    size_t count;
    void *document;
};

/* `file` is a host path, or "-" for standard input.  CAY_E_INVALID names the line, or the
 * edit and its key. */
int edits_load(const char *file, struct edits *ret_edits, struct cay_error *err);
void edits_done(struct edits *edits);

#endif
