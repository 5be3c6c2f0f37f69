/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_CAPTURE_H
#define AGENT_CAPTURE_H

#include "agent/output.h"
#include "base/tail.h"

/* The output of a command while it runs.  Memory holds the last OUTPUT_MAX bytes of each
 * stream.  What comes to be more than that is also put into files: inside, as it comes,
 * where that can be done while the command runs, so that the sandbox's own limit on its
 * disk is the limit; else on this side, up to SPOOL_MAX, and sent when it has ended. */
struct capture {
    cay_sandbox *sandbox;
    const char *user, *command; /* the command: for command.txt, or NULL */
    struct {
        struct tail tail;
        uint64_t total;
        bool is_kept; /* in the file or spool there is all so far */
        int spool;    /* or -1 */
    } streams[2];
    struct userfs fs;
    struct results results;
    struct cay_error failure; /* why not all is kept, if its code is set */
    bool no_memory;
};

void capture_init(struct capture *capture, cay_sandbox *sandbox, const char *user,
                  const char *command);
void capture_done(struct capture *capture);

/* cay_exec_options.on_output; the cookie is the capture. */
int capture_take(void *cookie, int stream, const void *data, size_t len);

/* What there is now as output; the capture must outlive it. */
int capture_output(struct capture *capture, struct output *ret_output,
                   struct cay_error *err);

#endif
