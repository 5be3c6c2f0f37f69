/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of ../backend-registered as a shared object, for any program that uses
 * libcay: a configuration names its file by `library:`, as folder.yaml does. */
#include "../backend-registered/folder.h"

CAY_PUBLIC const struct cay_backend *cay_backend_entry(void);

const struct cay_backend *cay_backend_entry(void)
{
    return &folder_backend;
}
