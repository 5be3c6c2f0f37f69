/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/cmd-files.h"
#include "cli/prompt.h"

enum { APPROVE_ASK, APPROVE_YES, APPROVE_NO };

enum {
    RESOLVE,
    EXPLAIN,
    ROOTS,
    READ,
    STAT,
    EXISTS,
    LIST,
    GLOB,
    GREP,
    WRITE,
    APPEND,
    EDIT,
    DELETE,
    MOVE,
    COPY,
    MKDIR,
    EXPORT,
    IMPORT,
    COUNT
};

static call_runner run_in_policy;

static const struct subcommand subcommands[] = {
    [RESOLVE] = {"resolve", "PATH", "Show what a path resolves to", 1, 1,
                 cmd_files_resolve},
    [EXPLAIN] = {"explain", "PATH", "Show which rule of the policy applies", 1, 1,
                 cmd_files_explain},
    [ROOTS] = {"roots", "", "List the directories of the policy", 0, 0, cmd_files_roots},
    [READ] = {"read", "PATH", "Print a file or a part of it", 1, 1, cmd_files_read},
    [STAT] = {"stat", "PATH", "Print type, size, mode and time", 1, 1, cmd_files_stat},
    [EXISTS] = {"exists", "PATH", "Print true, or false with exit status 4", 1, 1,
                cmd_files_exists},
    [LIST] = {"list", "[PATH]", "List the files below a directory", 0, 1, cmd_files_list},
    [GLOB] = {"glob", "PATTERN [PATH]", "List the files that match a pattern", 1, 2,
              cmd_files_glob},
    [GREP] = {"grep", "REGEX [PATH]", "Print the lines that match", 1, 2, cmd_files_grep},
    [WRITE] = {"write", "PATH", "Write standard input to a file", 1, 1, cmd_files_write},
    [APPEND] = {"append", "PATH", "Append standard input to a file", 1, 1,
                cmd_files_append},
    [EDIT] = {"edit", "PATH", "Replace text in a file", 1, 1, cmd_files_edit},
    [DELETE] = {"delete", "PATH", "Delete a file, or with -r a directory", 1, 1,
                cmd_files_delete},
    [MOVE] = {"move", "SOURCE DESTINATION", "Move or rename a file", 2, 2,
              cmd_files_move},
    [COPY] = {"copy", "SOURCE DESTINATION", "Copy a file", 2, 2, cmd_files_copy},
    [MKDIR] = {"mkdir", "PATH", "Create a directory and its parents", 1, 1,
               cmd_files_mkdir},
    [EXPORT] = {"export", "PATH", "Write a directory to standard output as tar", 1, 1,
                cmd_files_export},
    [IMPORT] = {"import", "PATH", "Unpack a tar from standard input", 1, 1,
                cmd_files_import},
};

#define ALL         UINT32_MAX
#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)
#define LISTS       (BIT(LIST) | BIT(GLOB))
#define WALKS       (LISTS | BIT(GREP))
#define WRITES      (BIT(WRITE) | BIT(APPEND))

static const struct option_rule option_rules[] = {
    {"config", 0, OPTION_TEXT, ALL, FIELD(config), "FILE",
     "the policy, YAML or JSON: see cay-policy(5)"},
    {"base", 0, OPTION_TEXT, ALL, FIELD(base), "DIR",
     "base directory of relative paths in the policy"},
    {"output", 'o', OPTION_CHOICE, ALL, FIELD(as_json), "text|json",
     "format of results and errors: text or json"},
    {"approve", 0, OPTION_CHOICE, ALL, FIELD(approve), "ask|yes|no",
     "the reply if the policy requires approval"},
    {"yes", 0, OPTION_FLAG, ALL, FIELD(yes), NULL, "the same as --approve yes"},
    {"help", 'h', OPTION_FLAG, ALL, FIELD(help), NULL,
     "show this help, or the help for a command"},

    {"host", 0, OPTION_FLAG, BIT(RESOLVE), FIELD(host), NULL, "show the host's path"},

    {"offset", 0, OPTION_NUMBER, BIT(READ), FIELD(offset), "N",
     "skip N characters (lines, bytes)"},
    {"max", 0, OPTION_NUMBER, BIT(READ), FIELD(max), "N",
     "print at most N characters (lines, bytes)"},
    {"max-chars", 0, OPTION_NUMBER, BIT(READ), FIELD(max), "N", "the same as --max"},
    {"lines", 0, OPTION_FLAG, BIT(READ), FIELD(lines), NULL, "count in lines"},
    {"bytes", 0, OPTION_FLAG, BIT(READ), FIELD(bytes), NULL, "count in bytes"},
    {"universal-newlines", 0, OPTION_FLAG, BIT(READ), FIELD(universal_newlines), NULL,
     "read \\r\\n and \\r as \\n"},

    {"no-follow", 0, OPTION_FLAG, BIT(STAT), FIELD(no_follow), NULL,
     "describe a link itself, not its target"},

    {"pattern", 0, OPTION_TEXT, BIT(LIST) | BIT(GREP), FIELD(pattern), "PATTERN",
     "only names that match: *.c, src/**/*.h"},
    {"exclude", 0, OPTION_LIST, WALKS, FIELD(exclude), "PATTERN",
     "skip matching paths and all below (repeatable)"},
    {"dirs", 0, OPTION_FLAG, LISTS, FIELD(directories), NULL,
     "list directories instead of files"},
    {"all", 0, OPTION_FLAG, LISTS, FIELD(all), NULL, "list entries of every type"},
    {"long", 'l', OPTION_FLAG, LISTS, FIELD(details), NULL,
     "also print type, mode, size and time"},
    {"max", 0, OPTION_NUMBER, LISTS, FIELD(max), "N", "print at most N entries"},
    {"max", 0, OPTION_NUMBER, BIT(GREP), FIELD(max), "N",
     "print at most N lines (default: 1,000)"},
    {"after", 0, OPTION_TEXT, LISTS, FIELD(after), "PATH",
     "list only paths that sort after PATH"},
    {"ignore-case", 'i', OPTION_FLAG, BIT(GREP), FIELD(ignore_case), NULL,
     "match case-insensitively"},
    {"fixed", 'F', OPTION_FLAG, BIT(GREP), FIELD(fixed), NULL, "REGEX is plain text"},
    {"null", '0', OPTION_FLAG, LISTS, FIELD(null), NULL,
     "end each name with NUL, not newline"},
    {"null", '0', OPTION_FLAG, BIT(GREP), FIELD(null), NULL,
     "put NUL after each name, not a colon"},

    {"content", 0, OPTION_TEXT, WRITES, FIELD(content), "TEXT",
     "write TEXT instead of standard input"},
    {"append", 0, OPTION_FLAG, BIT(WRITE), FIELD(append), NULL,
     "add to the end of the file"},
    {"new", 0, OPTION_FLAG, BIT(WRITE), FIELD(new_file), NULL, "fail if the file exists"},
    {"in-place", 0, OPTION_FLAG, BIT(WRITE) | BIT(EDIT), FIELD(in_place), NULL,
     "overwrite the file's bytes instead of replacing it"},
    {"durable", 0, OPTION_FLAG, WRITES | BIT(EDIT), FIELD(durable), NULL,
     "sync the file to disk before returning"},
    {"no-parents", 0, OPTION_FLAG, WRITES | BIT(MOVE) | BIT(COPY) | BIT(MKDIR),
     FIELD(no_parents), NULL, "fail if the parent directory does not exist"},
    {"exist-ok", 0, OPTION_FLAG, BIT(MKDIR), FIELD(exist_ok), NULL,
     "accept an existing directory"},

    {"old", 0, OPTION_TEXT, BIT(EDIT), FIELD(old_text), "TEXT", "what to replace"},
    {"new", 0, OPTION_TEXT, BIT(EDIT), FIELD(new_text), "TEXT", "the replacement"},
    {"all", 0, OPTION_FLAG, BIT(EDIT), FIELD(all), NULL, "replace every occurrence"},
    {"exact", 0, OPTION_FLAG, BIT(EDIT), FIELD(exact), NULL,
     "\\n in TEXT does not match \\r\\n"},
    {"edits", 0, OPTION_TEXT, BIT(EDIT), FIELD(edits), "FILE",
     "edits: [{\"old\":TEXT,\"new\":TEXT}]; - reads stdin"},

    {"recursive", 'r', OPTION_FLAG, BIT(DELETE), FIELD(recursive), NULL,
     "delete a directory and all below it"},
    {"recursive", 'r', OPTION_FLAG, BIT(MOVE), FIELD(recursive), NULL,
     "allow moving a directory"},
};

const struct grammar files_grammar = {
    .program = "cay files",
    .usage = "--config FILE [OPTION]... COMMAND [ARGUMENT]...\n"
             "Read and write files under a policy.",
    .manual = "Common options: see cay files --help.  Manual: cay-files(1).",
    .overview = "cay files COMMAND --help shows a command's own options, cay-files(1)\n"
                "and cay-policy(5) are the manual.",
    .around = run_in_policy,
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* Opens the directories of the policy and runs the command. */
static int run_in_policy(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    struct prompt prompt = {0};
    int approve = options->yes ? APPROVE_YES : options->approve;
    cay_policy *policy;
    struct cay_files_options how = {.size = sizeof how};

    if (!options->config)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--config",
                        "no policy given",
                        "pass --config FILE; cay-policy(5) describes the format");
    if (approve == APPROVE_YES)
        how.flags = CAY_FILES_APPROVED_OUTSIDE;
    if (approve == APPROVE_ASK)
        how.approver = prompt_ask, how.cookie = &prompt;

    TRY(cay_policy_load(options->config, options->base, &policy, err));
    int rc = cay_files_open(policy, &how, &call->files, err);
    cay_policy_free(policy);
    if (rc)
        return rc;
    rc = call->line.subcommand->run(call, err);
    if (rc == CAY_E_NOT_APPROVED && (prompt.no_terminal || approve == APPROVE_NO)) {
        cay_copy_text(err->message, sizeof err->message,
                      approve == APPROVE_NO
                          ? "approval is required, but --approve no refuses it"
                          : "approval is required, but there is no terminal to prompt");
        cay_copy_text(err->hint, sizeof err->hint,
                      "approve with --yes, or run in a terminal");
    }
    cay_files_free(call->files);
    prompt_done(&prompt);
    return rc;
}
