/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_OUTPUT_H
#define AGENT_OUTPUT_H

#include "agent/userfs.h"
#include "base/tail.h"

/* Where the output of commands is stored inside.
 *
 * Each user has a base directory in userfs_temp(), /tmp/cay-results-<16 random hex
 * digits>, of mode 0700.  It is created on first use, and found again by its name, owner
 * and mode.  In it each command has a directory with command.txt, stdout.txt and
 * stderr.txt. */

#define RESULTS_COMMAND "command.txt"

enum { RESULTS_NAME = 9 }; /* a command's directory: 8 hex digits and a NUL */

struct results {
    char *base, *dir; /* absolute */
    char *files[2];   /* stdout.txt and stderr.txt in it */
};
#define AUTO_RESULTS __attribute__((cleanup(results_done))) struct results

void results_done(struct results *results);

/* A new, empty directory for a command. */
int results_new(struct userfs *fs, struct results *ret_results, struct cay_error *err);

/* Writes command.txt beside the output.  free() *ret_path; ret_path may be NULL. */
int results_keep_command(struct userfs *fs, const struct results *results,
                         const char *command, char **ret_path, struct cay_error *err);

/* Copies the paths into a result. */
int results_name(const struct results *results, struct cay_command_result *result,
                 struct cay_error *err);

/* The directory of an earlier command, by its base and its name there. */
int results_at(const char *base, const char *name, struct results *ret_results,
               struct cay_error *err);

struct results_base {
    char *path;
    uint32_t uid;
};
struct results_bases {
    struct results_base *items;
    size_t count, own_count; /* those that the user of the userfs owns come first */
};
#define AUTO_BASES __attribute__((cleanup(results_bases_done))) struct results_bases

int results_bases(struct userfs *fs, struct results_bases *ret_bases,
                  struct cay_error *err);
void results_bases_done(struct results_bases *bases);

/* A new private directory beside the bases, "/tmp/PREFIX-<16 hex>"; free() it. */
int results_private(struct userfs *fs, const char *prefix, char **ret_path,
                    struct cay_error *err);

/* Random hexadecimal digits; `digits` is even and at most 16. */
void results_hex(char *text, unsigned digits);

/* A file for an interpreter, in a private directory outside the working directory, both
 * of which script_done() removes. */
struct script {
    struct userfs fs;
    char *dir, *path;
};
#define AUTO_SCRIPT __attribute__((cleanup(script_done))) struct script

/* Always safe to script_done() after, also on failure. */
int script_create(cay_sandbox *sandbox, const char *user, const char *name,
                  const void *text, size_t len, struct script *ret_script,
                  struct cay_error *err);
void script_done(struct script *script);

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
