/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_NAMES_H
#define NATIVE_RECORD_NAMES_H

#include "native/record/runtime.h"

/* Names of sandboxes: symbolic links in the runtime directory from "names/NAME" to "ID",
 * or to "ID:HOME" for storage on disk.  A link is valid as long as the sandbox has a
 * record, or a disk in HOME. */

/* Starts with a letter or a digit, followed by letters, digits, "_", "." and "-"; never
 * an id. */
bool names_is_valid(const char *name);

/* Reserves record->name for the sandbox.  CAY_E_EXISTS: another sandbox has this name. */
int names_claim(const struct record *record, struct cay_error *err);
void names_release(const char *name, const char *id);

/* The id of the sandbox with this name; CAY_E_NOT_FOUND if there is none. */
int names_find(const char *name, char ret_id[CAY_ID_MAX], struct cay_error *err);

/* Removes links to sandboxes that no longer exist. */
void names_sweep(void);

#endif
