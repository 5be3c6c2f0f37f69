/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_POLICIES_H
#define TESTS_POLICIES_H

#include "harness.h"

/* Opens the mounts below scratch() without asking anybody for approval. */
static inline cay_files *open_mounts(enum cay_style style, struct cay_mount *mounts,
                                     size_t count)
{
    AUTO(cay_policy) policy = NULL;
    cay_files *files = NULL;
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = style,
                                             .mounts = mounts,
                                             .mount_count = count,
                                             .base = scratch()};
    const struct cay_files_options options = {.size = sizeof options,
                                              .flags = CAY_FILES_CREATE_ALL |
                                                       CAY_FILES_APPROVED_OUTSIDE};

    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    return files;
}

/* One writable path "data" on SCRATCH/data. */
static inline cay_files *open_data(void)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "data";
    mount.host = "data";
    mount.writable = true;
    return open_mounts(CAY_STYLE_PATHS, &mount, 1);
}

#endif
