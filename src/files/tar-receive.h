/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_TAR_RECEIVE_H
#define FILES_TAR_RECEIVE_H

#include "files/tar-filter.h"

/* An archive to be read in a confined process. */
struct tar_input {
    const char *op;
    int fd;
    bool any_compression, names_only; /* as in tar-reader.h */
    /* Gets each item, checked by `filter`, TAR_END last; other than CAY_OK stops. */
    int (*take)(void *cookie, const struct tar_item *item, struct cay_error *err);
    void *cookie;
};

int tar_receive(const struct tar_input *input, struct tar_filter *filter,
                struct cay_error *err);

#endif
