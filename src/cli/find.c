/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/find.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cmd-sandbox.h"

enum { ID_LEN = 19, NAMED_MAX = 4 };

static int fail_many(const char *word, const struct cay_sandbox_info *infos, size_t count,
                     struct cay_error *err)
{
    char names[128];
    size_t used = 0, named = 0;

    for (size_t i = 0; i < count && named < NAMED_MAX; i++)
        if (strncmp(infos[i].id, word, strlen(word)) == 0)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     named++ ? ", " : "", infos[i].id);
    return cay_fail(err, CAY_E_INVALID, 0, "cli.find", word,
                    "several sandbox IDs start with this", "give more letters of one: %s",
                    names);
}

static int find_prefix(const char *word, char ret_id[CAY_ID_MAX], struct cay_error *err)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, matches = 0;
    int code = cay_sandbox_list_brief(&infos, &count, err);

    if (code)
        return code;
    for (size_t i = 0; i < count; i++)
        if (strncmp(infos[i].id, word, strlen(word)) == 0) {
            memcpy(ret_id, infos[i].id, CAY_ID_MAX);
            matches++;
        }
    if (matches == 0)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, "cli.find", word,
                        "no sandbox ID starts with this", "cay ls lists them");
    else if (matches > 1)
        code = fail_many(word, infos, count, err);
    cay_free(infos);
    return code;
}

static int open_any(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    int code = cay_sandbox_open(id, ret_sandbox, err);

    return code == CAY_E_INVALID ? sandbox_program.open_local(id, ret_sandbox, err)
                                 : code;
}

int find_sandbox(const char *word, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    char id[CAY_ID_MAX];
    size_t len = strlen(word);

    if (strncmp(word, "sb-", 3) != 0)
        return open_any(word, ret_sandbox, err); /* a name */
    if (len < 4 || len > ID_LEN || strspn(word + 3, letters) != len - 3)
        return cay_fail(
            err, CAY_E_INVALID, 0, "cli.find", word, "invalid sandbox ID",
            "an ID is sb- and 16 letters or digits; its first few are enough; "
            "cay ls lists them");
    if (len == ID_LEN)
        return open_any(word, ret_sandbox, err);
    int code = find_prefix(word, id, err);
    return code ? code : open_any(id, ret_sandbox, err);
}
