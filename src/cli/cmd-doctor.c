/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli/cmd-sandbox.h"
#include "cli/output.h"
#include "json/json.h"

/* Exit status if no sandbox can be created on this machine. */
enum { STATUS_MISSING = 1 };

static const char *finding_of(const struct cay_check *check)
{
    switch (check->finding) {
    case CAY_FINDING_OK:
        return "ok";
    case CAY_FINDING_WEAKER:
        return "weaker";
    case CAY_FINDING_MISSING:
        return "missing";
    }
    return "unknown";
}

static int print_json(struct sandbox_call *call, const struct cay_check *checks,
                      size_t count, struct cay_error *err)
{
    struct json json;

    output_begin_json(&call->output, &json);
    json_put_key(&json, "checks");
    json_put_array(&json);
    for (size_t i = 0; i < count; i++) {
        json_put_object(&json);
        json_set_text(&json, "facility", checks[i].facility);
        json_set_text(&json, "finding", finding_of(&checks[i]));
        json_set_text(&json, "detail", checks[i].detail);
        json_set_text(&json, "fix", checks[i].fix[0] ? checks[i].fix : NULL);
        json_put_end(&json);
    }
    json_put_end(&json);
    output_end_json(&call->output, &json);
    return output_finish(&call->output, err);
}

static int print_table(struct sandbox_call *call, const struct cay_check *checks,
                       size_t count, struct cay_error *err)
{
    struct table table;
    int code = table_open(&table, "FOUND|FACILITY|DETAIL", err);

    if (code)
        return code;
    for (size_t i = 0; i < count; i++) {
        table_cell(&table, "%s", finding_of(&checks[i]));
        table_cell(&table, "%s", checks[i].facility);
        table_cell(&table, "%s", checks[i].detail);
    }
    return table_print(&table, &call->output, err);
}

/* The index of the first check with the same fix. */
static size_t first_like(const struct cay_check *checks, size_t index)
{
    size_t first = 0;

    while (strcmp(checks[first].fix, checks[index].fix) != 0)
        first++;
    return first;
}

/* Each fix once, with all the facilities that it fixes. */
static void print_fixes(FILE *file, const struct cay_check *checks, size_t count)
{
    const char *heading = "\nTo fix:\n";

    for (size_t i = 0; i < count; i++) {
        if (!checks[i].fix[0] || first_like(checks, i) != i)
            continue;
        fprintf(file, "%s  # ", heading);
        heading = "";
        for (size_t k = i; k < count; k++)
            if (first_like(checks, k) == i) {
                fputs(k > i ? ", " : "", file);
                show_name(file, checks[k].facility);
            }
        fputs("\n  ", file);
        show_name(file, checks[i].fix);
        fputc('\n', file);
    }
}

static int print_text(struct sandbox_call *call, const struct cay_check *checks,
                      size_t count, struct cay_error *err)
{
    int code = print_table(call, checks, count, err);

    if (!code)
        print_fixes(call->output.file, checks, count);
    return code;
}

int cmd_doctor(struct sandbox_call *call, struct cay_error *err)
{
    struct cay_check *checks = NULL;
    size_t count = 0;
    int status = CAY_OK;
    int code = cay_doctor(&checks, &count, err);

    if (code)
        return code;
    code = (call->options.as_json ? print_json : print_text)(call, checks, count, err);
    for (size_t i = 0; i < count; i++)
        if (strcmp(checks[i].facility, "sandboxes") == 0 &&
            checks[i].finding == CAY_FINDING_MISSING)
            status = STATUS_MISSING;
    cay_free(checks);
    return code ? code : status;
}
