/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_REPLACE_H
#define FILES_REPLACE_H

#include <stdint.h>
#include <sys/types.h>

#include "cay/files.h"

/* Text replacement as a stream: one pass, with one window of the file in memory. */

/* Gets the output; a negative errno stops the stream. */
struct replace_sink {
    int (*put)(void *cookie, const void *data, size_t len);
    void *cookie;
};

/* Where the text comes from: bytes read, 0 at the end, or a negative errno. */
struct replace_source {
    ssize_t (*get)(void *cookie, void *data, size_t len, uint64_t offset);
    void *cookie;
};

/* Copies the source to the sink with `edit` applied.  *ret_found is the number of
 * matches; the output is valid only if replace_fits() accepts it.  0, -EILSEQ if the
 * source is not UTF-8, or the negative errno of source or sink. */
int replace_stream(const struct replace_source *source, const struct cay_edit *edit,
                   const struct replace_sink *sink, uint64_t *ret_found);

bool replace_fits(const struct cay_edit *edit, uint64_t found);

#endif
