/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/cmd-files.h"
#include "cli/prompt.h"

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

static const struct subcommand subcommands[] = {
    [RESOLVE] = {"resolve", "PATH", "Show where a path leads", 1, 1},
    [EXPLAIN] = {"explain", "PATH", "Show which rule decides about a path", 1, 1},
    [ROOTS] = {"roots", "", "List the directories of the policy", 0, 0},
    [READ] = {"read", "PATH", "Print a file or a part of it", 1, 1},
    [STAT] = {"stat", "PATH", "Print type, size, mode and time", 1, 1},
    [EXISTS] = {"exists", "PATH", "Print true or false (exit status 4)", 1, 1},
    [LIST] = {"list", "[PATH]", "List the files below a directory", 0, 1},
    [GLOB] = {"glob", "PATTERN [PATH]", "List the files that match a pattern", 1, 2},
    [GREP] = {"grep", "REGEX [PATH]", "Print the lines that match", 1, 2},
    [WRITE] = {"write", "PATH", "Write standard input to a file", 1, 1},
    [APPEND] = {"append", "PATH", "Append standard input to a file", 1, 1},
    [EDIT] = {"edit", "PATH", "Replace text in a file", 1, 1},
    [DELETE] = {"delete", "PATH", "Delete a file, or with -r a directory", 1, 1},
    [MOVE] = {"move", "SOURCE DESTINATION", "Move or rename a file", 2, 2},
    [COPY] = {"copy", "SOURCE DESTINATION", "Copy a file", 2, 2},
    [MKDIR] = {"mkdir", "PATH", "Create a directory and its parents", 1, 1},
    [EXPORT] = {"export", "PATH", "Write a directory to standard output as tar", 1, 1},
    [IMPORT] = {"import", "PATH", "Unpack a tar from standard input", 1, 1},
};

static int (*const run_subcommand[])(struct files_run *, struct cay_error *) = {
    [RESOLVE] = cmd_files_resolve, [EXPLAIN] = cmd_files_explain,
    [ROOTS] = cmd_files_roots,     [READ] = cmd_files_read,
    [STAT] = cmd_files_stat,       [EXISTS] = cmd_files_exists,
    [LIST] = cmd_files_list,       [GLOB] = cmd_files_glob,
    [GREP] = cmd_files_grep,       [WRITE] = cmd_files_write,
    [APPEND] = cmd_files_append,   [EDIT] = cmd_files_edit,
    [DELETE] = cmd_files_delete,   [MOVE] = cmd_files_move,
    [COPY] = cmd_files_copy,       [MKDIR] = cmd_files_mkdir,
    [EXPORT] = cmd_files_export,   [IMPORT] = cmd_files_import,
};

#define ALL         UINT32_MAX
#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct files_options, name)
#define LISTS       (BIT(LIST) | BIT(GLOB))
#define WALKS       (LISTS | BIT(GREP))
#define WRITES      (BIT(WRITE) | BIT(APPEND))

static const struct option_rule option_rules[] = {
    {"config", 0, OPTION_TEXT, ALL, FIELD(config), "FILE",
     "the policy, YAML or JSON: see cay-policy(5)"},
    {"base", 0, OPTION_TEXT, ALL, FIELD(base), "DIR",
     "base of relative directories in the policy"},
    {"output", 'o', OPTION_CHOICE, ALL, FIELD(as_json), "text|json",
     "format of results and errors: text or json"},
    {"approve", 0, OPTION_CHOICE, ALL, FIELD(approve), "ask|yes|no",
     "what to do if the policy asks for approval"},
    {"yes", 0, OPTION_FLAG, ALL, FIELD(yes), NULL, "the same as --approve yes"},
    {"help", 'h', OPTION_FLAG, ALL, FIELD(help), NULL,
     "show this help, or the help for a command"},

    {"host", 0, OPTION_FLAG, BIT(RESOLVE), FIELD(host), NULL, "show the host's path"},

    {"offset", 0, OPTION_NUMBER, BIT(READ), FIELD(offset), "N",
     "skip N characters (lines, bytes)"},
    {"max", 0, OPTION_NUMBER, BIT(READ), FIELD(max), "N",
     "print at most N characters (lines, bytes)"},
    {"max-chars", 0, OPTION_NUMBER, BIT(READ), FIELD(max), "N", "the same as --max"},
    {"lines", 0, OPTION_FLAG, BIT(READ), FIELD(lines), NULL, "count lines"},
    {"bytes", 0, OPTION_FLAG, BIT(READ), FIELD(bytes), NULL, "count bytes"},
    {"universal-newlines", 0, OPTION_FLAG, BIT(READ), FIELD(universal_newlines), NULL,
     "read \\r\\n and \\r as \\n"},

    {"no-follow", 0, OPTION_FLAG, BIT(STAT), FIELD(no_follow), NULL,
     "describe a link itself"},

    {"pattern", 0, OPTION_TEXT, BIT(LIST) | BIT(GREP), FIELD(pattern), "PATTERN",
     "only names that match: *.c, src/**/*.h"},
    {"exclude", 0, OPTION_LIST, WALKS, FIELD(exclude), "PATTERN",
     "skip what matches and all below it (repeatable)"},
    {"dirs", 0, OPTION_FLAG, LISTS, FIELD(directories), NULL,
     "directories instead of files"},
    {"all", 0, OPTION_FLAG, LISTS, FIELD(all), NULL,
     "files, directories, links and the rest"},
    {"long", 'l', OPTION_FLAG, LISTS, FIELD(details), NULL,
     "with type, mode, size and time"},
    {"max", 0, OPTION_NUMBER, LISTS, FIELD(max), "N", "print at most N entries"},
    {"max", 0, OPTION_NUMBER, BIT(GREP), FIELD(max), "N",
     "print at most N lines (default: 1,000)"},
    {"after", 0, OPTION_TEXT, LISTS, FIELD(after), "PATH",
     "only what sorts after PATH: the next page"},
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
    {"new", 0, OPTION_FLAG, BIT(WRITE), FIELD(new_file), NULL,
     "the file must not exist yet"},
    {"in-place", 0, OPTION_FLAG, BIT(WRITE) | BIT(EDIT), FIELD(in_place), NULL,
     "overwrite the file's bytes instead of replacing it"},
    {"durable", 0, OPTION_FLAG, WRITES | BIT(EDIT), FIELD(durable), NULL,
     "sync the file to disk before returning"},
    {"no-parents", 0, OPTION_FLAG, WRITES | BIT(MOVE) | BIT(COPY) | BIT(MKDIR),
     FIELD(no_parents), NULL, "the parent directory must exist"},
    {"exist-ok", 0, OPTION_FLAG, BIT(MKDIR), FIELD(exist_ok), NULL,
     "an existing directory is fine"},

    {"old", 0, OPTION_TEXT, BIT(EDIT), FIELD(old_text), "TEXT", "what to replace"},
    {"new", 0, OPTION_TEXT, BIT(EDIT), FIELD(new_text), "TEXT", "the replacement"},
    {"all", 0, OPTION_FLAG, BIT(EDIT), FIELD(all), NULL, "replace every occurrence"},
    {"exact", 0, OPTION_FLAG, BIT(EDIT), FIELD(exact), NULL,
     "\\n in TEXT does not match \\r\\n"},
    {"edits", 0, OPTION_TEXT, BIT(EDIT), FIELD(edits), "FILE",
     "many edits: [{\"old\":TEXT,\"new\":TEXT}], - for stdin"},

    {"recursive", 'r', OPTION_FLAG, BIT(DELETE), FIELD(recursive), NULL,
     "a directory and all below it"},
    {"recursive", 'r', OPTION_FLAG, BIT(MOVE), FIELD(recursive), NULL,
     "a directory may be moved too"},
};

static const struct grammar grammar = {
    .program = "cay files",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

static int show_help(struct files_run *run, struct cay_error *err)
{
    if (!run->line.subcommand)
        fputs("Usage: cay files --config FILE [OPTION]... COMMAND [ARGUMENT]...\n"
              "Read and write files under a policy.\n\n",
              run->output.file);
    options_help(run->output.file, &grammar, run->line.subcommand);
    if (run->line.subcommand)
        fputs("\nCommon options: see cay files --help.  Manual: cay-files(1).\n",
              run->output.file);
    else
        fputs("\ncay files COMMAND --help shows a command's own options, cay-files(1)\n"
              "and cay-policy(5) are the manual.\n",
              run->output.file);
    return output_finish(&run->output, err);
}

/* Opens the directories of the policy and runs the command. */
static int run_in_policy(struct files_run *run, struct cay_error *err)
{
    struct prompt prompt = {0};
    cay_policy *policy;
    struct cay_files_options how = {.size = sizeof how};

    if (run->options.yes)
        run->options.approve = APPROVE_YES;
    if (run->options.approve == APPROVE_YES)
        how.flags = CAY_FILES_APPROVED_OUTSIDE;
    if (run->options.approve == APPROVE_ASK)
        how.approver = prompt_ask, how.cookie = &prompt;

    int rc = cay_policy_load(run->options.config, run->options.base, &policy, err);
    if (rc)
        return rc;
    rc = cay_files_open(policy, &how, &run->files, err);
    cay_policy_free(policy);
    if (rc)
        return rc;
    rc = run_subcommand[run->line.subcommand - subcommands](run, err);
    if (rc == CAY_E_NOT_APPROVED &&
        (prompt.no_terminal || run->options.approve == APPROVE_NO)) {
        cay_copy_text(err->message, sizeof err->message,
                      "approval is required, but there is no terminal to ask on");
        cay_copy_text(err->hint, sizeof err->hint,
                      "approve with --yes, or run in a terminal");
    }
    cay_files_free(run->files);
    prompt_done(&prompt);
    return rc;
}

static int run_line(struct files_run *run, struct cay_error *err)
{
    if (run->options.help)
        return show_help(run, err);
    int rc = options_check(&grammar, &run->line, err);
    if (rc)
        return rc;
    if (!run->options.config)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--config",
                        "no policy given",
                        "pass --config FILE; cay-policy(5) describes the format");
    rc = run_in_policy(run, err);
    if (rc < 0)
        return rc;
    int finished = output_finish(&run->output, err);
    return finished ? finished : rc;
}

int cmd_files(char *const *argv)
{
    struct files_run run = {0};
    struct cay_error err = {0};
    bool as_json = options_want_json(argv);

    int rc = output_open(&run.output, &err);
    if (!rc)
        rc = options_parse(&grammar, argv, &run.options, &run.line, &err);
    if (!rc) {
        as_json = run.options.as_json;
        rc = run_line(&run, &err);
    }
    options_done(&run.line);
    output_close(&run.output);
    return rc < 0 ? output_error(&err, as_json) : rc;
}
