/* SPDX-License-Identifier: Apache-2.0 */
/* cay template: root file systems for sandboxes. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cay/sandbox.h"
#include "cay/snapshot.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/network.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/scope.h"
#include "cli/signals.h"
#include "json/json.h"

enum { CREATE, LS, INSPECT, RM, PRUNE, COUNT };

static call_runner create, list, inspect, remove_each, prune;

static const struct subcommand subcommands[] = {
    [CREATE] = {"create", "NAME", "Create a template", 1, 1, create},
    [LS] = {"ls", "", "List the templates", 0, 0, list},
    [INSPECT] = {"inspect", "NAME", "Print a template and its image's configuration", 1,
                 1, inspect},
    [RM] = {"rm", "NAME...", "Remove templates", 1, UINT32_MAX, remove_each},
    [PRUNE] = {"prune", "", "Remove layers that no template needs", 0, 0, prune},
};

#define BIT(word)    (UINT32_C(1) << (word))
#define FIELD(name)  offsetof(struct options, name)
#define SOURCE(kind) offsetof(struct options, sources[CAY_TEMPLATE_##kind - 1])

static const struct option_rule option_rules[] = {
    {"from", 0, OPTION_TEXT, BIT(CREATE), SOURCE(IMAGE), "IMAGE|ID|SNAPSHOT",
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
    {"add", 0, OPTION_LIST, BIT(CREATE), FIELD(add), "PACKAGE",
     "install packages of Debian; --from may be a template"},
    {"allow", 0, OPTION_LIST, BIT(CREATE), FIELD(allow), "RULE",
     "what --add may reach (default: debian)"},
    {"deny", 0, OPTION_LIST, BIT(CREATE), FIELD(deny), "RULE",
     "what --add may not reach"},
    {"memory", 'm', OPTION_PARSED, BIT(CREATE), FIELD(memory), "SIZE",
     "memory limit of --add (default: 1G)", quantity_parse_size, SIZE_ALLOWED},
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

/* --- create --add --- */

static int show_install(void *cookie, const struct cay_build_progress *progress)
{
    int *signal = cookie;

    if (progress->event == CAY_BUILD_OUTPUT)
        (void)!fwrite(progress->text, 1, progress->len, stderr);
    *signal = signals_take();
    return *signal;
}

static int install(struct options *options, const char *name, const char *from,
                   int *signal, struct cay_error *err)
{
    static const char *const debian[] = {"debian", NULL};
    AUTO(cay_policy) policy = NULL;
    struct cay_install_options wish = {.size = sizeof wish,
                                       .name = name,
                                       .from = from,
                                       .packages = options->add.items,
                                       .memory_bytes = options->memory,
                                       .on_progress = show_install,
                                       .cookie = signal};
    struct options rules = *options;

    if (!rules.allow.count) {
        rules.allow.items = (const char **)(uintptr_t)debian;
        rules.allow.count = 1;
    }
    TRY(network_plan(&rules, NULL, &policy, err));
    wish.policy = policy;
    scope_join();
    return cay_template_install(&wish, err);
}

static bool is_template(const struct cay_template_options *wish)
{
    struct cay_template_info info;
    AUTO_FREE char *config = NULL;

    return wish->source == CAY_TEMPLATE_IMAGE &&
           cay_template_inspect(wish->from, &info, &config, NULL) == CAY_OK;
}

/* A new system stays as a template of its own, since the packages are a layer above it.
 */
static int create_with(struct options *options, const struct cay_template_options *wish,
                       int *signal, struct cay_error *err)
{
    struct cay_template_options base = *wish;
    char name[80];

    if (is_template(wish))
        return install(options, wish->name, wish->from, signal, err);
    snprintf(name, sizeof name, "%s-base", wish->name);
    base.name = name;
    TRY(cay_template_create(&base, err));
    progress_step(NULL, 0);
    int code = install(options, wish->name, name, signal, err);
    if (code)
        (void)!cay_template_remove(name, NULL);
    return code;
}

/* A sandbox or a snapshot of this name, rather than an image. */
static bool is_sandbox(const char *from)
{
    char id[CAY_NAME_MAX];
    struct cay_snapshot_info info;
    cay_sandbox *sandbox = NULL;
    size_t len = strcspn(from, ":");

    if (strncmp(from, "sb-", 3) == 0 || cay_snapshot_inspect(from, &info, NULL) == CAY_OK)
        return true;
    if (len >= sizeof id)
        return false;
    memcpy(id, from, len);
    id[len] = '\0';
    bool found = cay_sandbox_open(id, &sandbox, NULL) == CAY_OK;
    cay_sandbox_free(sandbox);
    return found;
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
    if (wish.source == CAY_TEMPLATE_IMAGE && is_sandbox(wish.from))
        wish.source = CAY_TEMPLATE_SANDBOX;
    wish.packages = call->options.packages;
    if (wish.packages && wish.source && wish.source != CAY_TEMPLATE_DEBOOTSTRAP)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.template", wish.name,
                        "only a Debian system can get packages",
                        "use --packages with --debootstrap SUITE");
    bool has_recipe =
        strcmp(wish.name, "code") == 0 || strcmp(wish.name, "e2b-base") == 0;
    if (!wish.from && !has_recipe)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.template", wish.name,
                        "no source given",
                        "add --from IMAGE, --from-dir DIR, --from-tar FILE, "
                        "--from-oci FILE or --debootstrap SUITE");
    signals_catch();
    int code = call->options.add.count ? create_with(&call->options, &wish, &signal, err)
                                       : cay_template_create(&wish, err);
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

/* --- inspect --- */

static int inspect(struct call *call, struct cay_error *err)
{
    struct cay_template_info info;
    AUTO_FREE char *config = NULL;
    struct json json;

    TRY(cay_template_inspect(call->line.arguments[0], &info, &config, err));
    json_to_file(&json, stdout);
    json_put_object(&json);
    put_template(&json, &info);
    json_put_key(&json, "config");
    json_put_raw(&json, config);
    json_put_end(&json);
    (void)putchar('\n');
    return CAY_OK;
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

/* --- prune --- */

static int prune(struct call *call, struct cay_error *err)
{
    char room[QUANTITY_ROOM];
    size_t count;
    uint64_t bytes;

    (void)call;
    TRY(cay_template_prune(&count, &bytes, err));
    printf("%zu layers removed, %s\n", count, quantity_bytes(bytes, room));
    return CAY_OK;
}
