/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODE_WARM_H
#define CODE_WARM_H

#include <stdbool.h>

#include "cay/code.h"

/* Warm interpreters (docs/design/warm.md).  Their files are in "warm" of the state
 * directory, which no other user can reach:
 *
 *   NAME        the saved interpreter
 *   NAME.json   template, language, modules, and why it could not be saved
 *   NAME.new    a draft, locked by the process that writes it or checks NAME
 *   NAME.check  empty; its time is that of the last check
 *
 * The time of a file is that of the last use.  NAME is a hash of the template and its
 * identity, the user, the language, the modules, the version of cay, the driver and the
 * boot id. */

enum { WARM_NAME_MAX = 33 };

struct warm_key {
    const char *template_name;
    const char *user; /* NULL: the default user of the template */
    char preload[CAY_PRELOAD_MAX];
    char name[WARM_NAME_MAX];
};

/* --- Files: warm-files.c --- */

/* `preload` NULL: the default list, or that of $CAY_PRELOAD.  CAY_E_INVALID: a list that
 * is not one, or a variable with an unknown value. */
int warm_key_init(struct warm_key *key, const char *template_name, const char *user,
                  const char *preload, struct cay_error *err);

/* A descriptor for sandboxes, or -1. */
int warm_open(const struct warm_key *key);

/* Whether a minute has passed since it was last true. */
bool warm_may_check(const struct warm_key *key);

/* Removes the saved interpreter. */
void warm_forget(const struct warm_key *key);

/* Whether a process saves it now, or has recently failed to. */
bool warm_is_tried(const struct warm_key *key);

/* A descriptor of the draft, locked; rename it by warm_commit() or remove it by
 * warm_abandon(), which stores why, unless that is NULL.  CAY_E_BUSY: another process has
 * locked it. */
int warm_draft(const struct warm_key *key, struct cay_error *err);
int warm_commit(const struct warm_key *key, struct cay_error *err);
void warm_abandon(const struct warm_key *key, const struct cay_error *why);

/* --- Saving: warm.c --- */

/* Members of the line that makes a driver save its interpreter for a fork; to be freed.
 * NULL: memory is exhausted. */
char *warm_save_body(void);

/* Saves one in another process, unless that is switched off or was tried recently. */
void warm_later(const struct warm_key *key);

/* A sandbox says that its copy did not fit, which code inside may say for no reason.
 * Another process tries a copy in a sandbox of its own, at most once a minute, and saves
 * a new one if that does not fit either. */
void warm_misfit(const struct warm_key *key);

#endif
