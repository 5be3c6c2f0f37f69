/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_REPLACE_H
#define FILES_REPLACE_H

#include <stdint.h>
#include <sys/types.h>

#include "cay/files.h"

/* Text replacement as a stream: one pass, memory for a window of the file and no more. */

/* Where the outcome goes; a negative errno stops the stream. */
struct replace_sink {
    int (*put)(void *cookie, const void *data, size_t len);
    void *cookie;
};

/* Where the text comes from: bytes read, 0 at the end, or a negative errno. */
struct replace_source {
    ssize_t (*get)(void *cookie, void *data, size_t len, uint64_t offset);
    void *cookie;
};

/* Copies the source to the sink with `edit` applied.  *ret_found is how often its text
 * occurs; unless that is what the edit wants (see replace_fits) what reached the sink is
 * of no use.  0, -EILSEQ if the source is not UTF-8, or the errno of source or sink. */
int replace_stream(const struct replace_source *source, const struct cay_edit *edit,
                   const struct replace_sink *sink, uint64_t *ret_found);

bool replace_fits(const struct cay_edit *edit, uint64_t found);

#endif
