/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_OUTPUT_H
#define AGENT_OUTPUT_H

#include "agent/results.h"
#include "agent/userfs.h"

/* What a command has written, on its way into a result: the last bytes of each stream,
 * and where all of it is. */
struct output {
    struct raw {
        char *data; /* NUL-terminated */
        size_t len;
        uint64_t total; /* bytes in all; those before `data` are only in the files */
    } raw[2];
    struct userfs *fs;       /* set once the files are there... */
    struct results *results; /* ...and here */

    /* Sees to it that all bytes are in the files and sets fs and results; NULL if that
     * is so from the beginning. */
    int (*keep)(void *cookie, struct output *output, struct cay_error *err);
    void *cookie;
    bool failed; /* and it was said */
};

void output_done(struct output *output);

/* The largest `len` of a stream. */
#define OUTPUT_MAX ((size_t)CAY_OUTPUT_DEFAULT)

/* Fills in the streams, lengths, files and truncation of a result, cleaned if the options
 * say so.  Where the files could not be made the result's message says so. */
int output_show(struct output *output, const struct cay_command_options *options,
                struct cay_command_result *result, struct cay_error *err);

#endif
