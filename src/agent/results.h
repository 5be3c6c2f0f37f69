/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_RESULTS_H
#define AGENT_RESULTS_H

#include "agent/userfs.h"

/* Where the output of commands is kept inside.
 *
 * Each user has a base directory in userfs_temp() whose name nobody can guess and into
 * which nobody else can look: /tmp/cay-results-<16 hex>.  It is made when it is
 * first needed, and found again by its name, owner and mode.  In it each command has a
 * directory with command.txt, stdout.txt and stderr.txt. */

#define RESULTS_COMMAND "command.txt"

enum { RESULTS_NAME = 9 }; /* of such a directory: 8 hex and a NUL */

struct results {
    char *base, *dir; /* absolute */
    char *files[2];   /* stdout.txt and stderr.txt in it */
};
#define AUTO_RESULTS __attribute__((cleanup(results_done))) struct results

void results_done(struct results *results);

/* A new directory for a command; it has no files yet. */
int results_new(struct userfs *fs, struct results *ret_results, struct cay_error *err);

/* Writes command.txt beside the output.  *ret_path, if asked for: where it is; free() it.
 */
int results_keep_command(struct userfs *fs, const struct results *results,
                         const char *command, char **ret_path, struct cay_error *err);

/* That of a command, by its base and its name there. */
int results_at(const char *base, const char *name, struct results *ret_results,
               struct cay_error *err);

struct results_base {
    char *path;
    uint32_t uid;
    bool is_own; /* of the fs's user */
};
struct results_bases {
    struct results_base *items; /* one's own first */
    size_t count;
};
#define AUTO_BASES __attribute__((cleanup(results_bases_done))) struct results_bases

int results_bases(struct userfs *fs, struct results_bases *ret_bases,
                  struct cay_error *err);
void results_bases_done(struct results_bases *bases);

/* A private directory of its own beside the bases: "/tmp/PREFIX-<16 hex>"; free() it. */
int results_private(struct userfs *fs, const char *prefix, char **ret_path,
                    struct cay_error *err);

/* Hexadecimal digits that nobody can guess; `digits` is even and at most 16. */
void results_hex(char *text, unsigned digits);

#endif
