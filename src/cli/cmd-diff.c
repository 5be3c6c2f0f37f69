/* SPDX-License-Identifier: Apache-2.0 */
/* cay diff: what changed in the files of a sandbox. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "cay/diff.h"
#include "cay/try.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/diff-print.h"
#include "cli/options.h"

static call_runner run;

static const struct subcommand subcommands[] = {
    {"diff", "[ID [CHECKPOINT [CHECKPOINT]]]",
     "Show what changed in a try or a sandbox, or between checkpoints", 0, 3, run,
     "Manual: cay-diff(1)."},
};

#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"names", 0, OPTION_FLAG, 1, FIELD(names), NULL, "print only the names"},
    {"stat", 0, OPTION_FLAG, 1, FIELD(stat), NULL, "print how many lines changed"},
    {"binary", 0, OPTION_FLAG, 1, FIELD(binary), NULL,
     "print binary files, for git apply"},
    {"no-renames", 0, OPTION_FLAG, 1, FIELD(no_renames), NULL,
     "print renamed files as deleted and added"},
    {"output", 'o', OPTION_CHOICE, 1, FIELD(as_json), "text|json",
     "output format: text or json"},
    {"help", 'h', OPTION_FLAG, UINT32_MAX, FIELD(help), NULL, "show this help"},
};

const struct grammar diff_grammar = {
    .program = "cay",
    .subcommands = subcommands,
    .subcommand_count = 1,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

static int choose_format(const struct options *options, enum cay_diff_format *ret_format,
                         struct cay_error *err)
{
    if (options->names + options->stat + options->as_json > 1)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.diff", "diff",
                        "more than one output format",
                        "pass one of --names, --stat and -o json");
    *ret_format = options->names     ? CAY_DIFF_NAMES
                  : options->stat    ? CAY_DIFF_STAT
                  : options->as_json ? CAY_DIFF_JSON
                                     : CAY_DIFF_UNIFIED;
    return CAY_OK;
}

static int compare_sandbox(const struct command_line *line,
                           const struct cay_diff_options *how, cay_diff **ret_diff,
                           struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;

    TRY(find_sandbox(line->arguments[0], &sandbox, err));
    const char *id = cay_sandbox_id(sandbox);
    return line->count > 1
               ? cay_sandbox_diff_checkpoints(id, line->arguments[1],
                                              line->count > 2 ? line->arguments[2] : NULL,
                                              how, ret_diff, err)
               : cay_sandbox_diff(id, how, ret_diff, err);
}

/* Without an ID: the newest try of this directory. */
static int compare(const struct command_line *line, const struct cay_diff_options *how,
                   cay_diff **ret_diff, struct cay_error *err)
{
    struct cay_try_info info;
    const char *id = line->count ? line->arguments[0] : NULL;

    if (!id)
        TRY(cay_try_find(NULL, ".", &info, err));
    else if (line->count > 1 || cay_try_find(id, NULL, &info, err) != CAY_OK)
        return compare_sandbox(line, how, ret_diff, err);
    return cay_try_diff(info.id, how, ret_diff, err);
}

static int run(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    const struct cay_diff_options how = {
        .size = sizeof how,
        .flags = (options->no_renames ? CAY_DIFF_NO_RENAMES : 0) |
                 (options->binary ? CAY_DIFF_BINARY : 0)};
    enum cay_diff_format format = CAY_DIFF_UNIFIED;
    cay_diff *diff = NULL;

    TRY(choose_format(options, &format, err));
    TRY(compare(&call->line, &how, &diff, err));
    int code = diff_print(&call->output, diff, format, err);
    uint64_t cut = cay_diff_cut(diff);
    if (!code && cut)
        fprintf(stderr, "cay: %" PRIu64 " changes are not shown: too many, or too deep\n",
                cut);
    cay_diff_free(diff);
    return code;
}
