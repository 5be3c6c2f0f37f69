/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/approve.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-files.h"
#include "cli/progress.h"

enum { APPROVE_ASK, APPROVE_YES, APPROVE_NO, APPROVE_QUEUE };

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
    {"approve", 0, OPTION_CHOICE, ALL, FIELD(approve), "ask|yes|no|queue",
     "the reply if approval is required"},
    {"yes", 0, OPTION_FLAG, ALL, FIELD(yes), NULL, "the same as --approve yes"},
    OPTIONS_HELP("show this help, or the help for a command"),

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

/* --- The preview of a change --- */

#define LINES_MAX 10 /* of each kind */
#define WIDTH_MAX 74

struct span {
    const char *start, *end;
};

static const char *line_end(const struct span *span)
{
    size_t len = (size_t)(span->end - span->start);
    const char *newline = len ? memchr(span->start, '\n', len) : NULL;

    return newline ? newline + 1 : span->end;
}

static const char *last_line(const struct span *span)
{
    size_t len = (size_t)(span->end - span->start);
    const char *newline = len > 1 ? memrchr(span->start, '\n', len - 1) : NULL;

    return newline ? newline + 1 : span->start;
}

static bool same(const char *a, const char *a_end, const char *b, const char *b_end)
{
    return a_end - a == b_end - b && memcmp(a, b, (size_t)(a_end - a)) == 0;
}

/* Takes the lines off both ends that the two have in common; returns how many in front.
 */
static uint64_t trim(struct span *a, struct span *b)
{
    uint64_t skipped = 0;

    while (a->start < a->end && b->start < b->end &&
           same(a->start, line_end(a), b->start, line_end(b))) {
        a->start = line_end(a);
        b->start = line_end(b);
        skipped++;
    }
    while (a->start < a->end && b->start < b->end &&
           same(last_line(a), a->end, last_line(b), b->end)) {
        a->end = last_line(a);
        b->end = last_line(b);
    }
    return skipped;
}

static void show_lines(FILE *file, char sign, struct span lines)
{
    uint64_t more = 0;

    for (int i = 0; i < LINES_MAX && lines.start < lines.end; i++) {
        const char *end = line_end(&lines);
        size_t len = (size_t)(end - lines.start);
        fprintf(file, "  %c ", sign);
        show_text(file, lines.start, len - (end[-1] == '\n'), WIDTH_MAX);
        fputc('\n', file);
        lines.start = end;
    }
    for (; lines.start < lines.end; lines.start = line_end(&lines))
        more++;
    if (more)
        fprintf(file, "  %c (%" PRIu64 " more line%s)\n", sign, more,
                more == 1 ? "" : "s");
}

static void show_preview(FILE *file, const struct cay_approval *request)
{
    if (!request->after)
        return;

    struct span before = {request->before, request->before};
    struct span after = {request->after, request->after + request->after_len};
    if (!request->before) {
        show_lines(file, '+', after);
        return;
    }
    before.end += request->before_len;
    uint64_t skipped = trim(&before, &after);
    if (before.start == before.end && after.start == after.end) {
        fputs("  (the content stays the same)\n", file);
        return;
    }
    fprintf(file, "  line %" PRIu64 ":\n", skipped + 1);
    show_lines(file, '-', before);
    show_lines(file, '+', after);
}

/* --- Approval ---
 *
 * The question goes to the controlling terminal, for standard input and output carry the
 * content.  What was typed before the question was shown does not answer it. */

/* One line without its end and the blanks around it; false at the end of input. */
static bool read_line(int fd, char *line, size_t room)
{
    size_t len = 0;
    char c;

    for (;;) {
        ssize_t got = read(fd, &c, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (c == '\n')
            break;
        if (len < room - 1 && (len > 0 || c != ' '))
            line[len++] = c;
    }
    while (len > 0 && line[len - 1] == ' ')
        len--;
    line[len] = '\0';
    return true;
}

static bool is_answer(const char *line, const char *word)
{
    return strcasecmp(line, word) == 0 ||
           (line[0] != '\0' && line[1] == '\0' && strncasecmp(line, word, 1) == 0);
}

static enum cay_verdict ask(int terminal, FILE *screen, char note[CAY_NOTE_MAX])
{
    char line[CAY_NOTE_MAX];

    for (;;) {
        fputs("Allow this? [y]es, [n]o, [s]ession, no with a [r]eason: ", screen);
        fflush(screen);
        if (!read_line(terminal, line, sizeof line))
            return CAY_VERDICT_DENY;
        if (is_answer(line, "yes"))
            return CAY_VERDICT_APPROVE;
        if (is_answer(line, "session"))
            return CAY_VERDICT_REMEMBER;
        if (is_answer(line, "no"))
            return CAY_VERDICT_DENY;
        if (!is_answer(line, "reason"))
            continue;
        fputs("Reason: ", screen);
        fflush(screen);
        if (read_line(terminal, line, sizeof line))
            memcpy(note, line, strlen(line) + 1);
        return CAY_VERDICT_DENY;
    }
}

/* The approver of the command: prompts at the terminal. */
struct prompt {
    bool no_terminal; /* an approval was needed, but there is no terminal */
    enum cay_op op;   /* what was last allowed, for files that are read page by page */
    char *path;
};

/* A listing or a large file is read in several calls, each of which asks. */
static bool was_allowed(const struct prompt *prompt, const struct cay_approval *request)
{
    bool is_reading = request->op == CAY_OP_READ || request->op == CAY_OP_LIST;

    return is_reading && prompt->path && prompt->op == request->op &&
           strcmp(prompt->path, request->path) == 0;
}

/* A cay_approver; its cookie is a struct prompt. */
static enum cay_verdict prompt_ask(void *cookie, const struct cay_approval *request,
                                   char note[CAY_NOTE_MAX])
{
    struct prompt *prompt = cookie;

    if (was_allowed(prompt, request))
        return CAY_VERDICT_APPROVE;

    bool has_terminal = isatty(STDIN_FILENO) || isatty(STDERR_FILENO);
    AUTO_FD terminal = has_terminal ? open("/dev/tty", O_RDONLY | O_CLOEXEC) : -1;
    FILE *screen = terminal >= 0 ? fopen("/dev/tty", "we") : NULL;
    if (!screen) {
        prompt->no_terminal = true;
        return CAY_VERDICT_DENY;
    }

    progress_pause();
    tcflush(terminal, TCIFLUSH);
    fputs("cay: ", screen);
    show_name(screen, request->summary);
    fputc('\n', screen);
    show_preview(screen, request);
    enum cay_verdict verdict = ask(terminal, screen, note);
    fclose(screen);
    progress_resume();

    if (verdict != CAY_VERDICT_DENY) {
        free(prompt->path);
        prompt->op = request->op;
        prompt->path = strdup(request->path); /* if NULL, the next page asks again */
    }
    return verdict;
}

/* The same for --approve queue. */
struct queue {
    struct cay_pending_files files;
    struct prompt prompt; /* what was last allowed */
};

static enum cay_verdict queue_ask(void *cookie, const struct cay_approval *request,
                                  char note[CAY_NOTE_MAX])
{
    struct queue *queue = cookie;

    if (was_allowed(&queue->prompt, request))
        return CAY_VERDICT_APPROVE;
    enum cay_verdict verdict = cay_pending_approve(&queue->files, request, note);
    if (verdict != CAY_VERDICT_DENY) {
        free(queue->prompt.path);
        queue->prompt.op = request->op;
        queue->prompt.path = strdup(request->path);
    }
    return verdict;
}

/* --- Running a command --- */

/* Opens the directories of the policy and runs the command. */
static int run_in_policy(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    struct prompt prompt = {0};
    int approve = options->yes ? APPROVE_YES : options->approve;
    cay_policy *policy;
    struct cay_files_options how = {.size = sizeof how};
    struct queue queue = {.files = {.size = sizeof queue.files, .waits = approve_waits}};

    if (!options->config)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--config",
                        "no policy given",
                        "pass --config FILE; cay-policy(5) describes the format");
    if (approve == APPROVE_YES)
        how.flags = CAY_FILES_APPROVED_OUTSIDE;
    if (approve == APPROVE_ASK)
        how.approver = prompt_ask, how.cookie = &prompt;
    AUTO_FREE char *scope = NULL;
    if (approve == APPROVE_QUEUE) {
        scope = realpath(options->config, NULL);
        if (!scope)
            return cay_fail_errno(err, errno, "cli.options", options->config);
        queue.files.scope = scope;
        how.approver = queue_ask, how.cookie = &queue;
    }

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
    free(prompt.path);
    free(queue.prompt.path);
    return rc;
}
