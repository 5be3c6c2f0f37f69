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

struct template_options {
    bool help, quiet;
    int as_json;
    const char *sources[CAY_TEMPLATE_DEBOOTSTRAP]; /* by enum cay_template_source - 1 */
};

static const struct subcommand subcommands[] = {
    [CREATE] = {"create", "NAME", "Create a template", 1, 1, 0},
    [LS] = {"ls", "", "List the templates", 0, 0, 0},
    [RM] = {"rm", "NAME...", "Remove templates", 1, UINT32_MAX, 0},
};

#define BIT(word)    (UINT32_C(1) << (word))
#define FIELD(name)  offsetof(struct template_options, name)
#define SOURCE(kind) offsetof(struct template_options, sources[CAY_TEMPLATE_##kind - 1])

static const struct option_rule option_rules[] = {
    {"from-dir", 0, OPTION_TEXT, BIT(CREATE), SOURCE(DIR), "DIR",
     "copy a directory that holds a root file system"},
    {"from-tar", 0, OPTION_TEXT, BIT(CREATE), SOURCE(TAR), "FILE",
     "unpack a tar archive of a root file system"},
    {"from-oci", 0, OPTION_TEXT, BIT(CREATE), SOURCE(OCI), "FILE",
     "unpack an image of docker save, or an OCI layout"},
    {"debootstrap", 0, OPTION_TEXT, BIT(CREATE), SOURCE(DEBOOTSTRAP), "SUITE",
     "install Debian: bookworm"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the names"},
    {"output", 'o', OPTION_CHOICE, BIT(LS), FIELD(as_json), "text|json",
     "output format: text or json"},
    {"help", 'h', OPTION_FLAG, UINT32_MAX, FIELD(help), NULL, "show this help"},
};

static const struct grammar grammar = {
    .program = "cay template",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
    .stands_alone = true,
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
    const struct template_options *options = call->options;
    int signal = 0;
    struct cay_template_options wish = {.size = sizeof wish,
                                        .name = call->line.arguments[0],
                                        .on_progress = show_progress,
                                        .cookie = &signal};

    for (int i = 0; i < CAY_TEMPLATE_DEBOOTSTRAP; i++) {
        const char *from = options->sources[i];
        if (from && wish.from)
            return cay_fail(err, CAY_E_INVALID, 0, "cli.template", wish.name,
                            "a template has exactly one source",
                            "pass only one of --from-dir, --from-tar, --from-oci "
                            "and --debootstrap");
        if (from) {
            wish.from = from;
            wish.source = (enum cay_template_source)(i + 1);
        }
    }
    if (!wish.from)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.template", wish.name,
                        "no source given",
                        "add --from-dir DIR, --from-tar FILE, --from-oci FILE or "
                        "--debootstrap SUITE");
    signals_catch();
    int code = cay_template_create(&wish, err);
    progress_step(NULL, 0);
    if (code == CAY_E_CANCELLED && signal)
        signals_die(signal);
    return code;
}

/* --- ls --- */

static void list_as_json(struct call *call, const struct cay_template_info *infos,
                         size_t count)
{
    struct json json;

    output_begin_json(&call->output, &json);
    json_put_key(&json, "templates");
    json_put_array(&json);
    for (size_t i = 0; i < count; i++) {
        json_put_object(&json);
        json_set_text(&json, "name", infos[i].name);
        json_set_text(&json, "source", infos[i].source);
        json_set_text(&json, "from", infos[i].from);
        json_set_int(&json, "created_ms", infos[i].created_ms);
        json_set_uint(&json, "bytes", infos[i].bytes);
        json_set_text(&json, "user", infos[i].user);
        json_set_text(&json, "workdir", infos[i].workdir);
        json_put_end(&json);
    }
    json_put_end(&json);
    output_end_json(&call->output, &json);
}

static int list_as_table(struct call *call, const struct cay_template_info *infos,
                         size_t count, struct cay_error *err)
{
    struct table table;
    char room[QUANTITY_ROOM];
    int code = table_open(&table, "NAME|SOURCE|AGE|SIZE|FROM", err);

    if (code)
        return code;
    for (size_t i = 0; i < count; i++) {
        const struct cay_template_info *info = &infos[i];
        table_cell(&table, "%s", info->name);
        table_cell(&table, "%s", info->source);
        table_cell(&table, "%s",
                   info->created_ms ? quantity_age(info->created_ms, room) : "");
        table_cell(&table, "%s", info->bytes ? quantity_bytes(info->bytes, room) : "");
        table_cell(&table, "%s", info->from);
    }
    return table_print(&table, &call->output, err);
}

static int list(struct call *call, struct cay_error *err)
{
    const struct template_options *options = call->options;
    struct cay_template_info *infos = NULL;
    size_t count = 0;
    int code = cay_template_list(&infos, &count, err);

    if (code)
        return code;
    if (options->as_json)
        list_as_json(call, infos, count);
    else if (!options->quiet)
        code = list_as_table(call, infos, count, err);
    else
        for (size_t i = 0; i < count; i++)
            fprintf(call->output.file, "%s\n", infos[i].name);
    cay_free(infos);
    return code;
}

/* --- rm --- */

static int remove_each(struct call *call, struct cay_error *err)
{
    int failed = CAY_OK;

    for (unsigned i = 0; i < call->line.count; i++) {
        struct cay_error own;
        int code = cay_template_remove(call->line.arguments[i], &own);
        if (!code)
            continue;
        if (failed)
            (void)output_error(err, false);
        *err = own;
        failed = code;
    }
    return failed;
}

/* --- All --- */

int cmd_template(char *const *argv)
{
    static call_runner *const run[] = {
        [CREATE] = create, [LS] = list, [RM] = remove_each};
    static const struct call_rules rules = {
        .grammar = &grammar,
        .about = "Create, list and remove templates, from which sandboxes start.",
        .manual = "cay-template(1)",
        .run = run,
    };
    struct template_options own = {.help = false};

    return call_run(&rules, argv, &own);
}
