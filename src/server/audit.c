/* SPDX-License-Identifier: Apache-2.0 */

/* `cay audit`: checks and prints the record of what clients and the server did. */
#include "server/broker/audit.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "server/commands.h"
#include "json/json.h"

static void print_line(const char *line)
{
    fputs(line, stdout);
}

static void print_result(const struct audit_result *result, bool as_json)
{
    struct json json;

    if (!as_json) {
        printf("%llu lines are unchanged", (unsigned long long)result->lines);
        if (result->lines)
            printf(", from number %llu to %llu; the last hash is %s",
                   (unsigned long long)result->first,
                   (unsigned long long)(result->first + result->lines - 1), result->last);
        putchar('\n');
        return;
    }
    json_to_file(&json, stdout);
    json_put_object(&json);
    json_set_uint(&json, "lines", result->lines);
    json_set_uint(&json, "first", result->first);
    json_set_text(&json, "last_hash", result->lines ? result->last : NULL);
    json_put_end(&json);
    putchar('\n');
}

static int verify(const char *path, const char *expected, bool as_json,
                  struct cay_error *err)
{
    struct audit_result result;

    TRY(audit_read(path, expected, NULL, &result, err));
    if (expected && !result.has_expected)
        return cay_fail(err, CAY_E_CHANGED, 0, "audit", expected,
                        "the record does not have this hash",
                        "it was replaced, or its files were removed for their age");
    print_result(&result, as_json);
    return CAY_OK;
}

static int run(const struct state *state, char *const words[], bool as_json,
               struct cay_error *err)
{
    char path[PATH_MAX];
    struct audit_result result;

    if (strcmp(state->store, ":memory:") == 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "audit", "--store",
                        "a store in memory has no audit record", "give a path");
    if (snprintf(path, sizeof path, "%s%s", state->store, AUDIT_SUFFIX) >=
        (int)sizeof path)
        return cay_fail(err, CAY_E_INVALID, 0, "audit", "--store", "the path is too long",
                        "give a shorter path");
    if (strcmp(words[0], "verify") == 0 && (!words[1] || !words[2]))
        return verify(path, words[1], as_json, err);
    if (strcmp(words[0], "export") == 0 && !words[1])
        return audit_read(path, NULL, print_line, &result, err);
    return cay_fail(err, CAY_E_INVALID, 0, "audit", words[0],
                    "unknown command or wrong number of arguments",
                    "use cay audit verify [HASH], or cay audit export");
}

int audit_command(char *const *argv, bool *ret_json, struct cay_error *err)
{
    static const char usage[] =
        "Usage: cay audit [-o text|json] [--store STORE] verify [HASH] | export\n"
        "Check or print the record of what clients and the server did.\n";
    struct state state = {0};
    char *words[COMMAND_WORDS + 1] = {NULL};
    int code = commands_take_options(argv, words, ret_json, NULL, &state.options, err);

    if (code)
        return code;
    if (!words[0] || strcmp(words[0], "--help") == 0) {
        fputs(usage, stdout);
        return CAY_OK;
    }
    TRY(options_home(&state.options, false, err));
    TRY(options_store(&state.options, state.store, err));
    return run(&state, words, *ret_json, err);
}
