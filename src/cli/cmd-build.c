/* SPDX-License-Identifier: Apache-2.0 */
/* cay build: a template from a Dockerfile. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cay/sandbox.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/network.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/scope.h"
#include "cli/signals.h"

struct shown {
    bool is_quiet;
    int signal;
};

/* On standard error, as it goes.  Only the first line of an instruction is shown. */
static int show(void *cookie, const struct cay_build_progress *progress)
{
    struct shown *shown = cookie;
    const char *newline = memchr(progress->text, '\n', progress->len);
    int len = newline ? (int)(newline - progress->text) : (int)progress->len;

    if (!shown->is_quiet && progress->event == CAY_BUILD_OUTPUT)
        (void)!fwrite(progress->text, 1, progress->len, stderr);
    else if (!shown->is_quiet)
        fprintf(stderr, "[%u/%u]%s %.*s\n", progress->step, progress->step_count,
                progress->event == CAY_BUILD_CACHED ? " cached:" : "", len,
                progress->text);
    shown->signal = signals_take();
    return shown->signal;
}

static int build(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    struct shown shown = {.is_quiet = options->quiet};
    AUTO(cay_policy) policy = NULL;
    struct cay_build_options wish = {.size = sizeof wish,
                                     .dir = call->line.arguments[0],
                                     .file = options->file,
                                     .name = options->name,
                                     .args = options->args.items,
                                     .target = options->target,
                                     .memory_bytes = options->memory,
                                     .no_cache = options->no_cache,
                                     .pull = options->pull,
                                     .on_progress = show,
                                     .cookie = &shown};

    for (size_t i = 0; i < options->args.count; i++)
        if (!strchr(options->args.items[i], '='))
            return cay_fail(err, CAY_E_INVALID, 0, "cli.build", options->args.items[i],
                            "--build-arg has no value", "write --build-arg NAME=VALUE");
    TRY(network_plan(options, NULL, &policy, err));
    wish.policy = policy;
    scope_join();
    signals_catch();
    int code = cay_build(&wish, err);
    if (code == CAY_E_CANCELLED && shown.signal)
        signals_die(shown.signal);
    return code;
}

#define FIELD(name) offsetof(struct options, name)

static const struct subcommand subcommands[] = {
    {"build", "DIR", "Build a template from a Dockerfile", 1, 1, build,
     "Manual: cay-build(1).", 0, 0},
};

static const struct option_rule option_rules[] = {
    {"file", 'f', OPTION_TEXT, 1, FIELD(file), "FILE",
     "the Dockerfile (default: Dockerfile in DIR)"},
    {"tag", 't', OPTION_TEXT, 1, FIELD(name), "NAME[:TAG]", "name of the template"},
    {"target", 0, OPTION_TEXT, 1, FIELD(target), "STAGE",
     "build this stage, not the last"},
    {"build-arg", 0, OPTION_LIST, 1, FIELD(args), "NAME=VALUE", "the value of an ARG"},
    {"pull", 0, OPTION_FLAG, 1, FIELD(pull), NULL,
     "download images of FROM that are not templates"},
    {"allow", 0, OPTION_LIST, 1, FIELD(allow), "RULE",
     "let RUN reach a host or a group: pypi, debian, npm, ..."},
    {"deny", 0, OPTION_LIST, 1, FIELD(deny), "RULE", "keep RUN from reaching a host"},
    {"memory", 'm', OPTION_PARSED, 1, FIELD(memory), "SIZE",
     "memory limit of each RUN (default: 1G)", quantity_parse_size, SIZE_ALLOWED},
    {"no-cache", 0, OPTION_FLAG, 1, FIELD(no_cache), NULL, "run every step again"},
    {"quiet", 'q', OPTION_FLAG, 1, FIELD(quiet), NULL, "print no progress"},
    {"help", 'h', OPTION_FLAG, UINT32_MAX, FIELD(help), NULL, "show this help"},
};

const struct grammar build_grammar = {
    .program = "cay",
    .subcommands = subcommands,
    .subcommand_count = sizeof subcommands / sizeof *subcommands,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};
