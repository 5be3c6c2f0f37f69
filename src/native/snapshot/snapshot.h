/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_SNAPSHOT_SNAPSHOT_H
#define NATIVE_SNAPSHOT_SNAPSHOT_H

#include "cay/snapshot.h"
#include "native/template/template.h"

/* A snapshot is a template (native/template/template.h) of source TEMPLATE_SNAPSHOT.  Its
 * root is one layer with what the sandbox's own layers show; those of its template are
 * below it.  The own root of a template that has layers is part of that one layer, so no
 * snapshot needs another one. */

/* A snapshot that is being made. */
struct snapshot_draft {
    const char *op;
    const char *name; /* without ":latest" */
    bool replaces;
    int store, dir; /* of the templates; of the draft, locked */
    char draft[NAME_MAX + 1];
    int layers; /* of builds and images, locked: none is removed meanwhile */
    struct template_info info;
};

int snapshot_begin(const char *who, const char *name, bool replaces,
                   struct snapshot_draft *ret_draft, struct cay_error *err);
/* Gives the complete draft its name. */
int snapshot_publish(struct snapshot_draft *draft, struct cay_error *err);
/* Removes the draft if it is still there. */
void snapshot_end(struct snapshot_draft *draft);

/* cay_template_create() from CAY_TEMPLATE_SANDBOX. */
int snapshot_template(const struct cay_template_options *options, struct cay_error *err);

/* Removes Cay's own files from the root, which each sandbox gets anew. */
int snapshot_clean(const struct snapshot_draft *draft, struct cay_error *err);

/* CAY_E_NOT_FOUND unless there is a snapshot of this name. */
int snapshot_check(const char *who, const char *name, struct cay_error *err);

/* A new directory in the draft; a descriptor or a code. */
int snapshot_mkdir(const struct snapshot_draft *draft, const char *name,
                   struct cay_error *err);

#endif
