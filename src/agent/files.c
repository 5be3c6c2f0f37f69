/* SPDX-License-Identifier: Apache-2.0 */

#include "agent/place.h"

int cay_read_file(cay_sandbox *sandbox, const char *user, const char *path,
                  struct cay_content *ret_content, struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    return code ? code : place_read_all(&place, path, ret_content, err);
}

int cay_write_file(cay_sandbox *sandbox, const char *user, const char *path,
                   const void *data, size_t len, unsigned flags, struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    return code ? code : place.ops->write(&place, path, data, len, flags, NULL, err);
}

int cay_delete_file(cay_sandbox *sandbox, const char *user, const char *path,
                    struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    return code ? code : place.ops->remove(&place, path, err);
}

int cay_file_exists(cay_sandbox *sandbox, const char *user, const char *path,
                    struct cay_error *err)
{
    AUTO_PLACE place = {0};
    struct cay_stat stat;
    struct cay_error why = {0};

    int code = place_open(sandbox, user, &place, &why);
    if (!code)
        code = place.ops->stat(&place, path, false, &stat, &why);
    if (code == CAY_OK)
        return 1;
    if (place.ops && (code == CAY_E_NOT_FOUND || code == CAY_E_NOT_A_DIRECTORY))
        return 0;
    if (err)
        *err = why;
    return code;
}

int cay_create_directory(cay_sandbox *sandbox, const char *user, const char *path,
                         bool parents, struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    return code ? code
                : place.ops->mkdir(&place, path,
                                   CAY_NAME_EXIST_OK |
                                       (parents ? 0u : (unsigned)CAY_NAME_NO_PARENTS),
                                   err);
}
