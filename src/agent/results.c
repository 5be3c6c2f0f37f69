/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/error.h"

#define PREFIX "cay-results"

static const char op[] = "command.results";

enum { TRIES = 8, DIGITS = 16 };

void results_hex(char *text, unsigned digits)
{
    unsigned char random[8];

    /* Up to 256 bytes are never cut short, once the pool is initialized. */
    while (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        continue;
    for (unsigned i = 0; i < digits / 2; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", random[i]);
}

void results_done(struct results *results)
{
    free(results->base);
    free(results->dir);
    free(results->files[0]);
    free(results->files[1]);
    *results = (struct results){0};
}

int results_at(const char *base, const char *name, struct results *ret_results,
               struct cay_error *err)
{
    struct results *results = ret_results;

    *results = (struct results){.base = strdup(base), .dir = userfs_join(base, name)};
    if (results->dir) {
        results->files[0] = userfs_join(results->dir, "stdout.txt");
        results->files[1] = userfs_join(results->dir, "stderr.txt");
    }
    if (results->base && results->files[0] && results->files[1])
        return CAY_OK;
    results_done(results);
    return cay_fail_memory(err, op);
}

/* --- Base directories -----------------------------------------------------------------
 */

void results_bases_done(struct results_bases *bases)
{
    for (size_t i = 0; i < bases->count; i++)
        free(bases->items[i].path);
    free(bases->items);
    *bases = (struct results_bases){0};
}

static bool is_base(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    const size_t prefix = strlen(PREFIX "-");

    return strncmp(name, PREFIX "-", prefix) == 0 && strlen(name + prefix) == DIGITS &&
           strspn(name + prefix, hex) == DIGITS;
}

/* A directory that other users can read or write is not a base. */
static int add_base(struct userfs *fs, const char *name, const struct identity *identity,
                    struct results_bases *bases, struct cay_error *err)
{
    AUTO_FREE char *path = userfs_join(userfs_temp(fs), name);
    struct cay_stat stat;

    if (!path)
        return cay_fail_memory(err, op);
    if (userfs_stat(fs, path, true, &stat, NULL) != CAY_OK ||
        stat.type != CAY_TYPE_DIRECTORY || stat.mode & 077)
        return CAY_OK;
    struct results_base *grown =
        reallocarray(bases->items, bases->count + 1, sizeof *bases->items);
    if (!grown)
        return cay_fail_memory(err, op);
    bases->items = grown;
    const struct results_base base = {TAKE_PTR(path), stat.uid,
                                      !identity->is_known || identity->uid == stat.uid};
    grown[bases->count++] = base;
    if (base.is_own && bases->count > 1) {
        grown[bases->count - 1] = grown[0];
        grown[0] = base;
    }
    return CAY_OK;
}

int results_bases(struct userfs *fs, struct results_bases *ret_bases,
                  struct cay_error *err)
{
    const struct identity identity = userfs_identity(fs);
    struct cay_listing listing = {0};
    AUTO_BASES bases = {0};

    if (!userfs_temp(fs))
        return cay_fail_memory(err, op);
    int code = userfs_list(fs, userfs_temp(fs), false, false, &listing, err);
    for (size_t i = 0; !code && i < listing.count; i++)
        if (is_base(listing.entries[i].path))
            code = add_base(fs, listing.entries[i].path, &identity, &bases, err);
    cay_listing_done(&listing);
    if (code)
        return code;
    *ret_bases = bases;
    bases = (struct results_bases){0};
    return CAY_OK;
}

int results_private(struct userfs *fs, const char *prefix, char **ret_path,
                    struct cay_error *err)
{
    const char *top = userfs_temp(fs);
    char name[64], hex[DIGITS + 1];

    if (!top)
        return cay_fail_memory(err, op);
    for (int i = 0; i < TRIES; i++) {
        results_hex(hex, DIGITS);
        snprintf(name, sizeof name, "%s-%s", prefix, hex);
        AUTO_FREE char *path = userfs_join(top, name);
        int code = path ? userfs_mkdir_private(fs, path, err) : cay_fail_memory(err, op);
        if (!code)
            *ret_path = TAKE_PTR(path);
        if (code != CAY_E_EXISTS)
            return code;
    }
    return CAY_E_EXISTS;
}

static int find_base(struct userfs *fs, char **ret_base, struct cay_error *err)
{
    AUTO_BASES bases = {0};
    int code = results_bases(fs, &bases, err);

    if (code)
        return code;
    if (!bases.count || !bases.items[0].is_own)
        return results_private(fs, PREFIX, ret_base, err);
    *ret_base = TAKE_PTR(bases.items[0].path);
    return CAY_OK;
}

int results_new(struct userfs *fs, struct results *ret_results, struct cay_error *err)
{
    AUTO_FREE char *base = NULL;
    AUTO_RESULTS results = {0};
    char name[RESULTS_NAME];

    int code = find_base(fs, &base, err);
    for (int i = 0; !code && i < TRIES; i++) {
        results_done(&results);
        results_hex(name, RESULTS_NAME - 1);
        code = results_at(base, name, &results, err);
        if (!code)
            code = userfs_mkdir(fs, results.dir, CAY_NAME_NO_PARENTS, err);
        if (code == CAY_E_EXISTS && i + 1 < TRIES)
            code = CAY_OK;
        else
            break;
    }
    if (code)
        return code;
    *ret_results = results;
    results = (struct results){0};
    return CAY_OK;
}

int results_keep_command(struct userfs *fs, const struct results *results,
                         const char *command, char **ret_path, struct cay_error *err)
{
    AUTO_FREE char *path = userfs_join(results->dir, RESULTS_COMMAND);

    if (!path)
        return cay_fail_memory(err, op);
    int code = userfs_write(fs, path, command, strlen(command), 0, NULL, err);
    if (!code && ret_path)
        *ret_path = TAKE_PTR(path);
    return code;
}

/* --- Scripts ---------------------------------------------------------------------------
 */

int script_create(cay_sandbox *sandbox, const char *user, const char *name,
                  const void *text, size_t len, struct script *ret_script,
                  struct cay_error *err)
{
    struct script *script = ret_script;

    *script = (struct script){0};
    int code = userfs_open(sandbox, user, &script->fs, err);
    if (!code)
        code = results_private(&script->fs, "cay-code", &script->dir, err);
    if (code)
        return code;
    script->path = userfs_join(script->dir, name);
    if (!script->path)
        return cay_fail_memory(err, "code.script");
    return userfs_write(&script->fs, script->path, text, len,
                        CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS, NULL, err);
}

void script_done(struct script *script)
{
    if (script->dir)
        (void)!userfs_remove(&script->fs, script->dir, NULL);
    free(script->dir);
    free(script->path);
    userfs_close(&script->fs);
    *script = (struct script){0};
}
