/* SPDX-License-Identifier: Apache-2.0 */
/* cay template: root file systems for sandboxes. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cay/sandbox.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "json/json.h"

enum { CREATE, LS, RM, COUNT };

static call_runner create, list, remove_each;

static const struct subcommand subcommands[] = {
    [CREATE] = {"create", "NAME", "Create a template", 1, 1, create},
    [LS] = {"ls", "", "List the templates", 0, 0, list},
    [RM] = {"rm", "NAME...", "Remove templates", 1, UINT32_MAX, remove_each},
};

#define BIT(word)    (UINT32_C(1) << (word))
#define FIELD(name)  offsetof(struct options, name)
#define SOURCE(kind) offsetof(struct options, sources[CAY_TEMPLATE_##kind - 1])

static const struct option_rule option_rules[] = {
    {"from", 0, OPTION_TEXT, BIT(CREATE), SOURCE(IMAGE), "IMAGE",
     "python:3.12, oci:DIR[:TAG], oci-archive:FILE, docker-archive:FILE"},
    {"from-dir", 0, OPTION_TEXT, BIT(CREATE), SOURCE(DIR), "DIR",
     "copy a directory with a root file system"},
    {"from-tar", 0, OPTION_TEXT, BIT(CREATE), SOURCE(TAR), "FILE",
     "unpack a tar archive of a root file system"},
    {"from-oci", 0, OPTION_TEXT, BIT(CREATE), SOURCE(OCI), "FILE",
     "unpack an image of docker save, or an OCI layout"},
    {"debootstrap", 0, OPTION_TEXT, BIT(CREATE), SOURCE(DEBOOTSTRAP), "SUITE",
     "install Debian: bookworm"},
    {"packages", 0, OPTION_TEXT, BIT(CREATE), FIELD(packages), "LIST",
     "with these packages: python3,git"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the names"},
    {"output", 'o', OPTION_CHOICE, BIT(LS), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar template_grammar = {
    .program = "cay template",
    .usage = "COMMAND [ARGUMENT]...\n"
             "Create, list and remove templates, from which sandboxes start.",
    .manual = "Manual: cay-template(1).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* --- create --- */

static int show_progress(void *cookie, const char *step, uint64_t bytes)
{
    int *signal = cookie;

    progress_step(step, bytes);
    *signal = signals_take();
    return *signal;
}

static int create(struct call *call, struct cay_error *err)
{
    int signal = 0;
    struct cay_template_options wish = {.size = sizeof wish,
                                        .name = call->line.arguments[0],
                                        .on_progress = show_progress,
                                        .cookie = &signal};

    for (int i = 0; i < CAY_TEMPLATE_IMAGE; i++) {
        const char *from = call->options.sources[i];
        if (from && wish.from)
            return cay_fail(err, CAY_E_INVALID, 0, "cli.template", wish.name,
                            "a template has exactly one source",
                            "pass only one of --from, --from-dir, --from-tar, "
                            "--from-oci and --debootstrap");
        if (from) {
            wish.from = from;
            wish.source = (enum cay_template_source)(i + 1);
        }
    }
    wish.packages = call->options.packages;
    if (wish.packages && wish.source && wish.source != CAY_TEMPLATE_DEBOOTSTRAP)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.template", wish.name,
                        "only a Debian system can get packages",
                        "use --packages with --debootstrap SUITE");
    if (!wish.from && strcmp(wish.name, "code") != 0)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.template", wish.name,
                        "no source given",
                        "add --from IMAGE, --from-dir DIR, --from-tar FILE, "
                        "--from-oci FILE or --debootstrap SUITE");
    signals_catch();
    int code = cay_template_create(&wish, err);
    progress_step(NULL, 0);
    if (code == CAY_E_CANCELLED && signal)
        signals_die(signal);
    return code;
}

/* --- ls --- */

static void put_template(struct json *json, const void *item)
{
    const struct cay_template_info *info = item;

    json_set_text(json, "name", info->name);
    json_set_text(json, "source", info->source);
    json_set_text(json, "from", info->from);
    json_set_int(json, "created_ms", info->created_ms);
    json_set_uint(json, "bytes", info->bytes);
    json_set_text(json, "user", info->user);
    json_set_text(json, "workdir", info->workdir);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_template_info *info = item;
    char room[QUANTITY_ROOM];

    table_cell(table, "%s", info->name);
    table_cell(table, "%s", info->source);
    table_cell(table, "%s", info->created_ms ? quantity_age(info->created_ms, room) : "");
    table_cell(table, "%s", info->bytes ? quantity_bytes(info->bytes, room) : "");
    table_cell(table, "%s", info->from);
}

static const char *name_of(const void *item)
{
    return ((const struct cay_template_info *)item)->name;
}

static int list(struct call *call, struct cay_error *err)
{
    static const struct call_list templates = {"templates",
                                               "NAME|SOURCE|AGE|SIZE|FROM",
                                               sizeof(struct cay_template_info),
                                               put_template,
                                               add_row,
                                               name_of};
    AUTO_FREE struct cay_template_info *infos = NULL;
    size_t count = 0;

    TRY(cay_template_list(&infos, &count, err));
    return call_list(call, &templates, infos, count, err);
}

/* --- rm --- */

static int remove_one(struct call *call, const char *name, struct json *json,
                      struct cay_error *err)
{
    (void)call;
    (void)json;
    return cay_template_remove(name, err);
}

static int remove_each(struct call *call, struct cay_error *err)
{
    return call_each(call, call->line.arguments, call->line.count, remove_one, NULL, err);
}
