/* SPDX-License-Identifier: Apache-2.0 */
/* cay volume: directories with a name that outlive sandboxes. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cay/volume.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/options.h"
#include "cli/output.h"
#include "json/json.h"

static const char op[] = "cli.volume";

enum { CREATE, LS, RM, CP, COUNT };

static call_runner create, list, remove_each, copy;

static const struct subcommand subcommands[] = {
    [CREATE] = {"create", "NAME", "Create a volume", 1, 1, create},
    [LS] = {"ls", "", "List the volumes", 0, 0, list},
    [RM] = {"rm", "NAME...", "Remove volumes with their files", 1, UINT32_MAX,
            remove_each},
    [CP] = {"cp", "SRC DST", "Copy files into a volume or out of it: NAME:PATH", 2, 2,
            copy},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"size", 0, OPTION_PARSED, BIT(CREATE), FIELD(limit), "SIZE",
     "size limit of its files, reserved at once: 1G (default: none)", quantity_parse_size,
     SIZE_ALLOWED},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the names"},
    {"user", 'u', OPTION_TEXT, BIT(CP), FIELD(user), "USER",
     "owner of new files: a name or a number inside (default: user)"},
    {"output", 'o', OPTION_CHOICE, BIT(LS), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar volume_grammar = {
    .program = "cay volume",
    .usage = "COMMAND [ARGUMENT]...\n"
             "Create, list and remove volumes, which outlive sandboxes, and copy files.",
    .manual = "Manual: cay-volume(1).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

static int create(struct call *call, struct cay_error *err)
{
    const struct cay_volume_options options = {.size = sizeof options,
                                               .name = call->line.arguments[0],
                                               .bytes = call->options.limit};

    return cay_volume_create(&options, err);
}

/* --- ls --- */

static void put_volume(struct json *json, const void *item)
{
    const struct cay_volume_info *info = item;

    json_set_text(json, "name", info->name);
    json_set_int(json, "created_ms", info->created_ms);
    json_set_uint(json, "bytes", info->bytes);
    json_set_uint(json, "sandboxes", info->sandboxes);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_volume_info *info = item;
    char room[QUANTITY_ROOM];

    table_cell(table, "%s", info->name);
    table_cell(table, "%s", quantity_age(info->created_ms, room));
    table_cell(table, "%s", info->bytes ? quantity_bytes(info->bytes, room) : "");
    table_cell(table, "%u", info->sandboxes);
}

static const char *name_of(const void *item)
{
    return ((const struct cay_volume_info *)item)->name;
}

static int list(struct call *call, struct cay_error *err)
{
    static const struct call_list volumes = {"volumes",
                                             "NAME|AGE|SIZE|SANDBOXES",
                                             sizeof(struct cay_volume_info),
                                             put_volume,
                                             add_row,
                                             name_of};
    AUTO_FREE struct cay_volume_info *infos = NULL;
    size_t count = 0;

    TRY(cay_volume_list(&infos, &count, err));
    return call_list(call, &volumes, infos, count, err);
}

/* --- rm --- */

static int remove_one(struct call *call, const char *name, struct json *json,
                      struct cay_error *err)
{
    (void)call;
    (void)json;
    return cay_volume_remove(name, err);
}

static int remove_each(struct call *call, struct cay_error *err)
{
    return call_each(call, call->line.arguments, call->line.count, remove_one, NULL, err);
}

/* --- cp --- */

static bool climbs(const char *path)
{
    for (const char *part = path; *part;) {
        size_t len = strcspn(part, "/");
        if (len == 2 && part[0] == '.' && part[1] == '.')
            return true;
        part += len + (part[len] == '/');
    }
    return false;
}

static int copy(struct call *call, struct cay_error *err)
{
    const char *source = call->line.arguments[0], *target = call->line.arguments[1];
    const char *from = cp_path_inside(source), *into = cp_path_inside(target);

    if (!from == !into)
        return cay_fail(err, CAY_E_INVALID, 0, op, source,
                        from ? "source and destination are both in a volume"
                             : "neither source nor destination is in a volume",
                        "write one as NAME:PATH, and the other as a path of the host, or "
                        "- for a pipe");
    const char *word = from ? source : target, *path = from ? from : into;
    if (climbs(path))
        return cay_fail(err, CAY_E_OUTSIDE, 0, op, word, "the path leaves the volume",
                        "use a path without \"..\"");
    AUTO_FREE char *name = strndup(word, (size_t)(path - word) - 1);
    AUTO_FREE char *inside = NULL;
    if (!name || asprintf(&inside, CAY_VOLUME_PATH "/%s", path) < 0)
        return cay_fail_memory(err, op);
    const struct cp_ends ends = {name, inside, from ? target : source, from != NULL};
    return cp_copy(&ends, call->options.user, cay_volume_open, err);
}
