/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/try.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/state.h"
#include "native/record/volume.h"
#include "sys/path.h"

static const char op[] = "try";

int try_check_unused(const char *id, struct cay_error *err)
{
    struct volume_users users;
    char name[CAY_ID_MAX + 8];
    int code = volume_find_users(&users, err);

    snprintf(name, sizeof name, TRY_NAME "%s", id);
    for (size_t i = 0; !code && i < users.count; i++)
        if (!users.list[i].is_unknown && volume_is_used_by(&users.list[i], name))
            code = cay_fail(err, CAY_E_BUSY, 0, op, id, "a sandbox shows this try",
                            "cay kill %s ends it", users.list[i].id);
    free(users.list);
    return code;
}

int try_claim(int dir, const char *id, struct cay_error *err)
{
    AUTO_FD lock = path_open(dir, ".", O_RDONLY | O_DIRECTORY, 0, 0);

    if (lock < 0)
        return cay_fail_errno(err, -lock, op, id);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, op, id, "another process uses this try",
                        "try again when it has ended");
    TRY(try_check_unused(id, err));
    return TAKE_FD(lock);
}

size_t try_sweep(void)
{
    AUTO_FD store = state_open(TRY_STORE, false, NULL);

    return store < 0 ? 0 : state_sweep(store, ".new-") + state_sweep(store, ".old-");
}
