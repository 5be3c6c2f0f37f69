/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_SCRIPT_H
#define SERVER_KEEPER_SCRIPT_H

#include "base/buf.h"
#include "cay/error.h"

/* Turns the steps of E2B's builds into a Dockerfile for cay_build().  Pure, no I/O. */

enum { SCRIPT_LINES = 1000, SCRIPT_STEP_TEXT = 200, SCRIPT_USER_MAX = 33 };

struct script {
    struct buf text;
    unsigned lines;
    /* The step of a line, and of each line that changes files; 0: the source. */
    unsigned short line_steps[SCRIPT_LINES + 1], change_steps[SCRIPT_LINES + 1];
    unsigned changes;
    unsigned step; /* being added; the failed one after an error */
    char user[SCRIPT_USER_MAX];
};

struct script_source {
    const char *name;
    bool is_own;       /* made by a build: it has its user and working directory */
    bool is_forced;    /* no step is taken from the cache */
    const char *user;  /* of it, if is_own */
    const char *build; /* an id, for the keys of steps that are forced */
};

/* One step: type, "1" if it is forced, hash of its files, number of arguments, arguments.
 * *at advances to the next one; false if these are not steps. */
struct script_step {
    const char *type, *hash;
    bool is_forced;
    size_t count;
    const char *const *args;
};
bool script_next(const char *const *strings, size_t count, size_t *at,
                 struct script_step *ret_step);

/* The name of uploaded files: lower-case letters and digits. */
bool script_is_hash(const char *hash);

/* `strings` are the steps, as script_next() reads them.  The files of a hash are an
 * archive of that name in the build's directory.  The caller frees ret_script->text in
 * any case. */
int script_write(const struct script_source *source, const char *const *strings,
                 size_t count, struct script *ret_script, struct cay_error *err);

/* A step for people: "RUN pip install numpy". */
void script_show(const struct script_step *step, char ret_text[SCRIPT_STEP_TEXT]);

#endif
