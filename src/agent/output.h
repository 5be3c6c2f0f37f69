/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_OUTPUT_H
#define AGENT_OUTPUT_H

#include "agent/results.h"
#include "agent/userfs.h"
#include "base/tail.h"

/* The output of a command: the tail of each stream, and the files with all of it. */
struct output {
    struct raw {
        char *data; /* NUL-terminated */
        size_t len;
        uint64_t total; /* bytes of the stream; those before `data` are only in files */
    } raw[2];
    struct userfs *fs; /* these two are set once the files are complete */
    struct results *results;

    /* Writes all bytes to the files and sets fs and results; NULL if they are there from
     * the beginning. */
    int (*keep)(void *cookie, struct output *output, struct cay_error *err);
    void *cookie;
    bool failed; /* keep() failed, and the message of the result says so */
};

void output_done(struct output *output);

/* The most bytes of a stream in memory. */
#define OUTPUT_MAX ((size_t)CAY_OUTPUT_DEFAULT)

/* Fills in the streams, lengths, files and truncation of a result; cleans the streams
 * with CAY_COMMAND_CLEAN.  If the files cannot be written, the message says so. */
int output_show(struct output *output, const struct cay_command_options *options,
                struct cay_command_result *result, struct cay_error *err);

/* The output of a command while it runs.  Memory holds the last OUTPUT_MAX bytes of each
 * stream.  A longer stream also goes to a file: of a local sandbox straight to a file
 * inside, so that its disk limit applies; of a remote one, whose files cannot be written
 * while a command runs, to a spool here of up to SPOOL_MAX, sent at the end. */
struct capture {
    cay_sandbox *sandbox;
    const char *user, *command; /* the command: for command.txt, or NULL */
    struct {
        struct tail tail;
        uint64_t total;
        bool is_kept; /* the file or spool is complete so far */
        int spool;    /* or -1 */
    } streams[2];
    struct userfs fs;
    struct results results;
    struct cay_error failure; /* code set: why the files are incomplete */
    bool no_memory;
};

void capture_init(struct capture *capture, cay_sandbox *sandbox, const char *user,
                  const char *command);
void capture_done(struct capture *capture);

/* cay_exec_options.on_output; the cookie is the capture. */
int capture_take(void *cookie, int stream, const void *data, size_t len);

/* The output so far; the capture must outlive it. */
int capture_output(struct capture *capture, struct output *ret_output,
                   struct cay_error *err);

#endif
