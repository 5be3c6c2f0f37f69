/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_HOST_TREE_H
#define AGENT_HOST_TREE_H

#include "agent/place.h"

/* Directories between the host and a place that has no cay_files: as an archive if its
 * backend takes archives, else file by file. */
int host_tree_upload(struct place *place, const char *local, const char *path,
                     struct cay_transfer *ret_transfer, struct cay_error *err);
int host_tree_download(struct place *place, const char *path, const char *local,
                       struct cay_transfer *ret_transfer, struct cay_error *err);

/* A handle on a host directory, in which that is HOST_TREE_TOP; a writable one is made if
 * need be. */
#define HOST_TREE_TOP "d"
int host_tree_open(const char *local, bool writable, cay_files **ret_files,
                   struct cay_error *err);

/* A file without a name, in the directory if that can be; -1 and errno. */
int host_tree_spool(const char *local);

#endif
