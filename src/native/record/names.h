/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_NAMES_H
#define NATIVE_RECORD_NAMES_H

#include "native/record/runtime.h"

/* Names of sandboxes: links in the runtime directory, "names/NAME" to "ID", or "ID:HOME"
 * of one on disk.  A link counts as long as the sandbox has a record, or its disk in
 * HOME. */

/* Starts with a letter or a digit, which "_", "." and "-" may follow; never an id. */
bool names_is_valid(const char *name);

/* Reserves record->name for the sandbox.  CAY_E_EXISTS: another one has it. */
int names_claim(const struct record *record, struct cay_error *err);
void names_release(const char *name, const char *id);

/* The id of the sandbox of that name; CAY_E_NOT_FOUND if there is none. */
int names_find(const char *name, char ret_id[CAY_ID_MAX], struct cay_error *err);

/* Removes links to sandboxes that are gone. */
void names_sweep(void);

#endif
