/* SPDX-License-Identifier: Apache-2.0 */
/* cay snapshot: files of sandboxes that outlive them. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cay/snapshot.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/options.h"
#include "cli/output.h"
#include "json/json.h"

enum { CREATE, LS, INSPECT, EXPORT, IMPORT, RM, COUNT };

static call_runner create, list, inspect, export_one, import_one, remove_each;

static const struct subcommand subcommands[] = {
    [CREATE] = {"create", "ID[:CHECKPOINT] NAME[:TAG]",
                "Store the files of a sandbox under a name", 2, 2, create},
    [LS] = {"ls", "", "List the snapshots", 0, 0, list},
    [INSPECT] = {"inspect", "NAME", "Print a snapshot as JSON", 1, 1, inspect},
    [EXPORT] = {"export", "NAME FILE", "Write a snapshot to an OCI archive (-: stdout)",
                2, 2, export_one},
    [IMPORT] = {"import", "FILE [NAME[:TAG]]",
                "Create a snapshot from an archive (-: stdin)", 1, 2, import_one},
    [RM] = {"rm", "NAME...", "Remove snapshots", 1, UINT32_MAX, remove_each},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"stop", 0, OPTION_FLAG, BIT(CREATE), FIELD(stop), NULL,
     "kill all processes in the sandbox first"},
    {"force", 'f', OPTION_FLAG, BIT(CREATE), FIELD(force), NULL,
     "replace a snapshot of this name that no sandbox uses"},
    {"quiet", 'q', OPTION_FLAG, BIT(LS), FIELD(quiet), NULL, "print only the names"},
    {"output", 'o', OPTION_CHOICE, BIT(LS), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar snapshot_grammar = {
    .program = "cay snapshot",
    .usage = "COMMAND [ARGUMENT]...\n"
             "Store the files of sandboxes under names; create sandboxes from them.",
    .manual = "Manual: cay-snapshot(1).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* --- create --- */

static int create(struct call *call, struct cay_error *err)
{
    AUTO_FREE char *id = strdup(call->line.arguments[0]);
    AUTO(cay_sandbox) sandbox = NULL;
    struct cay_snapshot_options options = {
        .size = sizeof options,
        .name = call->line.arguments[1],
        .mode = call->options.stop ? CAY_CHECKPOINT_STOP : CAY_CHECKPOINT_IDLE,
        .replace = call->options.force};

    if (!id)
        return cay_fail_memory(err, "cli.snapshot");
    char *colon = strchr(id, ':');
    if (colon) {
        *colon = '\0';
        options.checkpoint = colon + 1;
    }
    TRY(find_sandbox(id, &sandbox, err));
    return cay_snapshot_create(sandbox, &options, NULL, err);
}

/* --- ls --- */

static void put_snapshot(struct json *json, const void *item)
{
    const struct cay_snapshot_info *info = item;

    json_set_text(json, "name", info->name);
    json_set_text(json, "sandbox", info->sandbox);
    json_set_text(json, "template", info->template_name);
    json_set_text(json, "user", info->user);
    json_set_text(json, "workdir", info->workdir);
    json_set_int(json, "created_ms", info->created_ms);
    json_set_uint(json, "bytes", info->bytes);
    json_set_uint(json, "sandboxes", info->sandboxes);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_snapshot_info *info = item;
    char age[QUANTITY_ROOM], size[QUANTITY_ROOM];

    table_cell(table, "%s", info->name);
    table_cell(table, "%s", info->template_name);
    table_cell(table, "%s", quantity_age(info->created_ms, age));
    table_cell(table, "%s", quantity_bytes(info->bytes, size));
    table_cell(table, "%s", info->sandbox);
    table_cell(table, "%u", info->sandboxes);
}

static const char *name_of(const void *item)
{
    return ((const struct cay_snapshot_info *)item)->name;
}

static int list(struct call *call, struct cay_error *err)
{
    static const struct call_list snapshots = {"snapshots",
                                               "NAME|TEMPLATE|AGE|SIZE|FROM|SANDBOXES",
                                               sizeof(struct cay_snapshot_info),
                                               put_snapshot,
                                               add_row,
                                               name_of};
    AUTO_FREE struct cay_snapshot_info *infos = NULL;
    size_t count = 0;

    TRY(cay_snapshot_list(&infos, &count, err));
    return call_list(call, &snapshots, infos, count, err);
}

static int inspect(struct call *call, struct cay_error *err)
{
    struct cay_snapshot_info info;
    struct json json;

    TRY(cay_snapshot_inspect(call->line.arguments[0], &info, err));
    json_to_file(&json, stdout);
    json_put_object(&json);
    put_snapshot(&json, &info);
    json_put_end(&json);
    (void)putchar('\n');
    return CAY_OK;
}

/* --- export, import --- */

static bool is_stream(const char *file)
{
    return strcmp(file, "-") == 0;
}

static int fail_file(const char *file, int error, struct cay_error *err)
{
    if (error == EEXIST)
        return cay_fail(err, CAY_E_EXISTS, error, "cli.snapshot", file,
                        "a file of this name exists",
                        "remove it first, or use another name");
    return cay_fail_errno(err, error, "cli.snapshot", file);
}

/* Only the caller can read the file: it has the files of all users inside. */
static int export_one(struct call *call, struct cay_error *err)
{
    const char *name = call->line.arguments[0], *file = call->line.arguments[1];

    if (is_stream(file) && isatty(STDOUT_FILENO))
        return cay_fail(err, CAY_E_INVALID, 0, "cli.snapshot", file,
                        "the standard output is a terminal",
                        "redirect it to a file or a program, or name a file");
    if (is_stream(file))
        return cay_snapshot_export(name, STDOUT_FILENO, err);
    AUTO_FD fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_file(file, errno, err);
    int code = cay_snapshot_export(name, fd, err);
    if (!code && fsync(fd) != 0 && errno != EINVAL)
        code = fail_file(file, errno, err);
    if (code)
        (void)unlink(file);
    return code;
}

static int import_one(struct call *call, struct cay_error *err)
{
    const char *file = call->line.arguments[0];
    const char *name = call->line.count > 1 ? call->line.arguments[1] : NULL;
    struct cay_snapshot_info info;
    AUTO_FD fd = is_stream(file) ? -1 : open(file, O_RDONLY | O_CLOEXEC);

    if (fd < 0 && !is_stream(file))
        return fail_file(file, errno, err);
    TRY(cay_snapshot_import(fd < 0 ? STDIN_FILENO : fd, name, &info, err));
    if (!name)
        (void)puts(info.name);
    return CAY_OK;
}

/* --- rm --- */

static int remove_one(struct call *call, const char *name, struct json *json,
                      struct cay_error *err)
{
    (void)call;
    (void)json;
    return cay_snapshot_remove(name, err);
}

static int remove_each(struct call *call, struct cay_error *err)
{
    return call_each(call, call->line.arguments, call->line.count, remove_one, NULL, err);
}
