/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
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

static void put_check(struct json *json, const void *item)
{
    const struct cay_check *check = item;

    json_set_text(json, "facility", check->facility);
    json_set_text(json, "finding", finding_of(check));
    json_set_text(json, "detail", check->detail);
    json_set_text(json, "fix", check->fix[0] ? check->fix : NULL);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_check *check = item;

    table_cell(table, "%s", finding_of(check));
    table_cell(table, "%s", check->facility);
    table_cell(table, "%s", check->detail);
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

int cmd_doctor(struct call *call, struct cay_error *err)
{
    static const struct call_list listed = {
        "checks", "FOUND|FACILITY|DETAIL", sizeof(struct cay_check), put_check, add_row,
        NULL};
    AUTO_FREE struct cay_check *checks = NULL;
    size_t count = 0;
    int status = CAY_OK;

    TRY(cay_doctor(&checks, &count, err));
    TRY(call_list(call, &listed, checks, count, err));
    if (!call->options.as_json)
        print_fixes(call->output.file, checks, count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(checks[i].facility, "sandboxes") == 0 &&
            checks[i].finding == CAY_FINDING_MISSING)
            status = STATUS_MISSING;
    return status;
}
