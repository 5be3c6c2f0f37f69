/* SPDX-License-Identifier: Apache-2.0 */

/* E2B_SANDBOX_ID and its like, which programs inside read to learn where they run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "server/keeper/keep.h"
#include "sys/io.h"

void keep_identity_set(struct keep *keep, const char *id, const char *template_name,
                       const char *tenant)
{
    snprintf(keep->identity.sandbox, sizeof keep->identity.sandbox, "E2B_SANDBOX_ID=%s",
             id);
    snprintf(keep->identity.template_name, sizeof keep->identity.template_name,
             "E2B_TEMPLATE_ID=%s", template_name);
    snprintf(keep->identity.team, sizeof keep->identity.team, "E2B_TEAM_ID=%s", tenant);
}

static void write_file(cay_files *files, const char *variable)
{
    const char *value = strchr(variable, '=') + 1;
    char path[64];
    AUTO_FD fd = -1;

    snprintf(path, sizeof path, "/run/e2b/.%.*s", (int)(value - variable) - 1, variable);
    if (cay_files_descriptor(files, path, CAY_DESCRIPTOR_WRITE, &fd, NULL) != CAY_OK)
        return;
    (void)io_write(fd, value, strlen(value));
    (void)fchmod(fd, 0444);
}

void keep_identity_give(struct keep *keep, const char *template_name, const char *tenant)
{
    keep_identity_set(keep, cay_sandbox_id(keep->sandbox) + strlen("sb-"), template_name,
                      tenant);
    const char *const env[] = {IDENTITY_ENV(keep)};
    /* One without a root of its own has no /run to write to, and does without. */
    cay_files *files = keep_files(keep, "root", NULL);
    for (size_t i = 0; files && i < sizeof env / sizeof *env - 1; i++) /* not the team */
        write_file(files, env[i]);
}

static bool is_same_name(const char *left, const char *right)
{
    size_t len = strcspn(left, "=");

    return strcspn(right, "=") == len && strncmp(left, right, len) == 0;
}

const char **keep_identity_env(const struct keep *keep, const char *const *given)
{
    const char *const own[] = {IDENTITY_ENV(keep)};
    enum { OWN = sizeof own / sizeof *own };
    size_t count = 0, used = 0;

    while (given[count])
        count++;
    const char **env = calloc(count + OWN + 1, sizeof *env);
    for (size_t i = 0; env && i < count; i++) {
        bool hides = false;
        for (size_t j = 0; j < OWN; j++)
            hides |= is_same_name(given[i], own[j]);
        if (!hides)
            env[used++] = given[i];
    }
    if (env)
        memcpy(env + used, own, sizeof own);
    return env;
}
