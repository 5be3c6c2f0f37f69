/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"

#define NAME_MAX_LEN 32 /* of options and subcommands */

/* The command line, one word or option at a time. */
struct cursor {
    const struct grammar *grammar;
    uint32_t takers; /* only options for these are known */
    char *const *next;
    const char *cluster; /* rest of "-abc" */
    bool options_ended;
};

struct token {
    const struct option_rule *rule; /* NULL: a word, or an option that is not known */
    const char *word;               /* as written; of a cluster the whole cluster */
    const char *value;              /* of an option that takes one; NULL if missing */
    bool is_option;
    bool has_excess; /* "--flag=value" */
};

/* By its long name, or if that is NULL by its letter. */
static const struct option_rule *find_rule(const struct cursor *cursor, const char *name,
                                           size_t len, char letter)
{
    for (size_t i = 0; i < cursor->grammar->option_count; i++) {
        const struct option_rule *rule = &cursor->grammar->options[i];
        if (rule->takers & cursor->takers &&
            (name ? strlen(rule->name) == len && memcmp(rule->name, name, len) == 0
                  : rule->letter == letter))
            return rule;
    }
    return NULL;
}

static void next_letter(struct cursor *cursor, struct token *token)
{
    token->rule = find_rule(cursor, NULL, 0, *cursor->cluster++);
    token->is_option = true;
    if (token->rule && token->rule->kind != OPTION_FLAG) {
        token->value = *cursor->cluster ? cursor->cluster : *cursor->next;
        if (!*cursor->cluster && *cursor->next)
            cursor->next++;
        cursor->cluster = NULL;
    } else if (!*cursor->cluster) {
        cursor->cluster = NULL;
    }
}

static void next_long(struct cursor *cursor, struct token *token)
{
    const char *name = token->word + 2;
    size_t len = strcspn(name, "=");

    token->rule = find_rule(cursor, name, len, 0);
    token->is_option = true;
    if (!token->rule)
        return;
    if (token->rule->kind == OPTION_FLAG)
        token->has_excess = name[len] == '=';
    else if (name[len] == '=')
        token->value = name + len + 1;
    else if (*cursor->next)
        token->value = *cursor->next++;
}

static bool next_token(struct cursor *cursor, struct token *token)
{
    if (cursor->cluster) {
        *token = (struct token){.word = cursor->next[-1]};
        next_letter(cursor, token);
        return true;
    }
    if (!*cursor->next)
        return false;
    *token = (struct token){.word = *cursor->next++};
    if (cursor->options_ended || token->word[0] != '-' || token->word[1] == '\0')
        return true;
    if (strcmp(token->word, "--") == 0) {
        cursor->options_ended = true;
        return next_token(cursor, token);
    }
    if (token->word[1] == '-') {
        next_long(cursor, token);
    } else {
        cursor->cluster = token->word + 1;
        next_letter(cursor, token);
    }
    return true;
}

/* "run, create": those that do take it, if it is an option of others. */
static void name_takers(const struct grammar *grammar, uint32_t takers,
                        const struct token *token, char *text, size_t room)
{
    const struct cursor all = {.grammar = grammar, .takers = ~takers};
    const struct option_rule *rule = NULL;
    size_t used = 0;

    if (strncmp(token->word, "--", 2) == 0)
        rule = find_rule(&all, token->word + 2, strcspn(token->word + 2, "="), 0);
    else if (!token->word[2]) /* of a cluster it is not clear which */
        rule = find_rule(&all, NULL, 0, token->word[1]);
    text[0] = '\0';
    for (size_t i = 0; rule && i < grammar->subcommand_count && used < room; i++)
        if (rule->takers >> i & 1)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "",
                                     grammar->subcommands[i].name);
}

static int fail_unknown_option(const struct grammar *grammar, uint32_t takers,
                               const struct token *token, struct cay_error *err)
{
    const char *known[64];
    char name[NAME_MAX_LEN + 1], others[128];
    size_t count = 0, len = strcspn(token->word, "=");

    for (size_t i = 0; i < grammar->option_count; i++)
        if ((grammar->options[i].takers & takers) && count < 64)
            known[count++] = grammar->options[i].name;
    for (size_t i = 0; i < grammar->habit_count; i++)
        if (grammar->habits[i].takers & takers &&
            strlen(grammar->habits[i].word) == len &&
            memcmp(grammar->habits[i].word, token->word, len) == 0)
            return cay_fail(err, CAY_E_INVALID, 0, "cli.options", token->word,
                            "unknown option", "%s", grammar->habits[i].hint);
    const char *nearest = NULL;
    if (strncmp(token->word, "--", 2) == 0 && len - 2 <= NAME_MAX_LEN) {
        memcpy(name, token->word + 2, len - 2);
        name[len - 2] = '\0';
        nearest = nearest_name(name, known, sizeof *known, count);
    }
    name_takers(grammar, takers, token, others, sizeof others);
    if (others[0])
        return cay_fail(
            err, CAY_E_INVALID, 0, "cli.options", token->word, "unknown option",
            "it is an option of %s; %s %s --help lists the options", others,
            grammar->program, grammar->subcommands[__builtin_ctz(takers)].name);
    if (nearest)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", token->word,
                        "unknown option", "did you mean --%s?", nearest);
    return cay_fail(
        err, CAY_E_INVALID, 0, "cli.options", token->word, "unknown option",
        "%s%s%s --help lists the options; put -- before a name that starts with a "
        "dash",
        grammar->program, grammar->overview ? "" : " ",
        grammar->overview ? "" : grammar->subcommands[__builtin_ctz(takers)].name);
}

static int fail_value(const struct token *token, const char *message,
                      struct cay_error *err)
{
    const char *allowed = token->rule->allowed;
    char text[512];

    snprintf(text, sizeof text, "%s \"%s\"", message, token->value ? token->value : "");
    return cay_fail(err, CAY_E_INVALID, 0, "cli.options", token->word,
                    token->value ? text : message, "write --%s %s%s%s", token->rule->name,
                    token->rule->value, allowed ? ": " : "", allowed ? allowed : "");
}

static int take_number(const struct token *token, struct option_number *ret_number,
                       struct cay_error *err)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(token->value, &end, 10);
    if (errno || *end || token->value[0] < '0' || token->value[0] > '9')
        return fail_value(token, "invalid number", err);
    *ret_number = (struct option_number){.value = value, .given = true};
    return CAY_OK;
}

static int take_choice(const struct token *token, int *ret_choice, struct cay_error *err)
{
    const char *choice = token->rule->value;

    for (int i = 0; *choice; i++) {
        size_t len = strcspn(choice, "|");
        if (strlen(token->value) == len && memcmp(choice, token->value, len) == 0) {
            *ret_choice = i;
            return CAY_OK;
        }
        choice += len + (choice[len] == '|');
    }
    return fail_value(token, "invalid value", err);
}

static int take_option(const struct token *token, struct call *call,
                       struct cay_error *err)
{
    void *field = (char *)&call->options + token->rule->field;
    struct command_line *line = &call->line;
    struct option_list *list = field;

    if (token->has_excess)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", token->word,
                        "this option takes no value", "write --%s", token->rule->name);
    if (token->rule->kind != OPTION_FLAG && !token->value)
        return fail_value(token, "missing value", err);

    switch (token->rule->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return CAY_OK;
    case OPTION_TEXT:
        *(const char **)field = token->value;
        return CAY_OK;
    case OPTION_NUMBER:
        return take_number(token, field, err);
    case OPTION_CHOICE:
        return take_choice(token, field, err);
    case OPTION_LIST:
        if (!list->items)
            list->items = line->items + line->list_count++ * line->room;
        list->items[list->count++] = token->value;
        return CAY_OK;
    case OPTION_PARSED:
        if (token->rule->parse(token->value, field))
            return CAY_OK;
        return fail_value(token, "invalid value", err);
    }
    return CAY_OK;
}

static int find_subcommand(struct cursor cursor, const struct subcommand **ret_subcommand,
                           struct cay_error *err)
{
    const struct grammar *grammar = cursor.grammar;
    struct token token, unknown = {0};

    *ret_subcommand = NULL;
    do {
        if (!next_token(&cursor, &token))
            return CAY_OK;
        if (token.is_option && !token.rule && !unknown.word)
            unknown = token;
    } while (token.is_option);

    for (size_t i = 0; i < grammar->subcommand_count; i++)
        if (strcmp(token.word, grammar->subcommands[i].name) == 0) {
            *ret_subcommand = &grammar->subcommands[i];
            return CAY_OK;
        }
    if (unknown.word) /* the word may be its value */
        return fail_unknown_option(grammar, UINT32_MAX, &unknown, err);
    const char *nearest =
        nearest_name(token.word, &grammar->subcommands[0].name,
                     sizeof *grammar->subcommands, grammar->subcommand_count);
    if (nearest)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", token.word,
                        "unknown command", "did you mean %s?", nearest);
    return cay_fail(err, CAY_E_INVALID, 0, "cli.options", token.word, "unknown command",
                    "%s --help lists the commands", grammar->program);
}

static size_t count_lists(const struct grammar *grammar)
{
    size_t count = 0;

    for (size_t i = 0; i < grammar->option_count; i++)
        count += grammar->options[i].kind == OPTION_LIST;
    return count;
}

int options_parse(const struct grammar *grammar, char *const *argv, struct call *ret_call,
                  struct cay_error *err)
{
    struct cursor cursor = {.grammar = grammar, .takers = UINT32_MAX, .next = argv};
    struct command_line *line = &ret_call->line;
    struct token token;
    bool seen_subcommand = false;

    *line = (struct command_line){.room = 1};
    ret_call->options = (struct options){.network = -1, .storage = -1, .roots = -1};
    int rc = find_subcommand(cursor, &line->subcommand, err);
    if (rc)
        return rc;
    if (line->subcommand)
        cursor.takers = UINT32_C(1) << (line->subcommand - grammar->subcommands);

    while (argv[line->room - 1])
        line->room++;
    line->arguments = calloc(line->room, sizeof *line->arguments);
    line->items = calloc(line->room * (count_lists(grammar) + 1), sizeof *line->items);
    if (!line->arguments || !line->items)
        return cay_fail_memory(err, "cli.options");
    while (!rc && next_token(&cursor, &token)) {
        if (token.rule)
            rc = take_option(&token, ret_call, err);
        else if (token.is_option)
            rc = fail_unknown_option(grammar, cursor.takers, &token, err);
        else if (seen_subcommand)
            line->arguments[line->count++] = token.word;
        seen_subcommand = seen_subcommand || !token.is_option;
        if (line->count && line->subcommand &&
            line->count == line->subcommand->command_at)
            while (*cursor.next)
                line->arguments[line->count++] = *cursor.next++;
    }
    return rc;
}

void options_done(struct call *call)
{
    free(call->line.arguments);
    free(call->line.items);
}

int options_check(const struct grammar *grammar, const struct command_line *line,
                  struct cay_error *err)
{
    const struct subcommand *subcommand = line->subcommand;

    if (!subcommand)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", grammar->program,
                        "no command given", "%s --help lists the commands",
                        grammar->program);
    if (line->count > subcommand->most)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options",
                        line->arguments[subcommand->most], "too many arguments",
                        "usage: %s %s%s%s", grammar->program, subcommand->name,
                        *subcommand->arguments ? " " : "", subcommand->arguments);
    if (line->count < subcommand->least)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", subcommand->name,
                        "missing argument", "usage: %s %s %s", grammar->program,
                        subcommand->name, subcommand->arguments);
    return CAY_OK;
}

bool options_want_json(char *const *argv)
{
    for (; *argv && strcmp(*argv, "--") != 0; argv++)
        if (strcmp(*argv, "-ojson") == 0 || strcmp(*argv, "--output=json") == 0 ||
            ((strcmp(*argv, "-o") == 0 || strcmp(*argv, "--output") == 0) && argv[1] &&
             strcmp(argv[1], "json") == 0))
            return true;
    return false;
}

static void help_option(FILE *file, const struct option_rule *rule)
{
    char left[64];

    snprintf(left, sizeof left, "%s%c%s--%s%s%s", rule->letter ? "-" : " ",
             rule->letter ? rule->letter : ' ', rule->letter ? ", " : "  ", rule->name,
             rule->value ? " " : "", rule->value ? rule->value : "");
    fprintf(file, "  %-26s %s\n", left, rule->help);
}

/* Their names, in lines of a screen's width. */
static void help_rare(FILE *file, const struct grammar *grammar, uint32_t taker)
{
    enum { WIDTH = 78 };
    size_t column = 0;

    for (size_t i = 0; i < grammar->option_count; i++) {
        const struct option_rule *rule = &grammar->options[i];
        if (!rule->is_rare || rule->takers == UINT32_MAX || !(rule->takers & taker))
            continue;
        if (!column)
            column = (size_t)fprintf(file, "Also (--help-all):");
        else if (column + strlen(rule->name) + strlen(", --,") > WIDTH)
            column = (size_t)fprintf(file, ",\n ") - strlen(",\n");
        else
            column += (size_t)fprintf(file, ",");
        column += (size_t)fprintf(file, " --%s", rule->name);
    }
    if (column)
        fprintf(file, "\n");
}

static void help_own(FILE *file, const struct grammar *grammar,
                     const struct subcommand *subcommand, bool all)
{
    uint32_t taker = UINT32_C(1) << (subcommand - grammar->subcommands);

    for (size_t i = 0; i < grammar->option_count; i++) {
        const struct option_rule *rule = &grammar->options[i];
        if (rule->takers != UINT32_MAX && (rule->takers & taker) &&
            (all || !rule->is_rare))
            help_option(file, rule);
    }
    if (!all)
        help_rare(file, grammar, taker);
}

/* One subcommand and its own options. */
static void help_subcommand(FILE *file, const struct grammar *grammar,
                            const struct subcommand *subcommand, bool all)
{
    fprintf(file, "Usage: %s %s [OPTION]...%s%s\n%s.\n\n", grammar->program,
            subcommand->name, *subcommand->arguments ? " " : "", subcommand->arguments,
            subcommand->help);
    help_own(file, grammar, subcommand, all);
    fprintf(file, "\n%s\n", subcommand->manual ? subcommand->manual : grammar->manual);
}

/* All subcommands and the options common to them. */
static void help_overview(FILE *file, const struct grammar *grammar)
{
    fprintf(file, "Usage: %s %s\n\n", grammar->program, grammar->usage);
    for (size_t i = 0; i < grammar->subcommand_count; i++)
        fprintf(file, "  %-8s %-20s %s\n", grammar->subcommands[i].name,
                grammar->subcommands[i].arguments, grammar->subcommands[i].help);
    fprintf(file, "\n");
    for (size_t i = 0; i < grammar->option_count; i++)
        if (grammar->options[i].takers == UINT32_MAX && !grammar->options[i].is_rare)
            help_option(file, &grammar->options[i]);
    fprintf(file, "\n%s\n", grammar->overview ? grammar->overview : grammar->manual);
}

/* --- Running a command --- */

static int run_line(const struct grammar *grammar, struct call *call,
                    struct cay_error *err)
{
    int status = CAY_OK;

    if (call->options.help || call->options.help_all) {
        if (call->line.subcommand)
            help_subcommand(call->output.file, grammar, call->line.subcommand,
                            call->options.help_all);
        else
            help_overview(call->output.file, grammar);
    } else {
        status = options_check(grammar, &call->line, err);
        if (!status)
            status = (grammar->around ? grammar->around
                                      : call->line.subcommand->run)(call, err);
    }
    int failed = status < 0 ? status : output_finish(&call->output, err);
    return failed ? failed : status;
}

int call_run(const struct grammar *grammar, char *const *argv)
{
    struct call call = {.words = argv};
    struct cay_error err = {0};
    bool as_json = options_want_json(argv);

    int status = output_open(&call.output, &err);
    if (!status)
        status = options_parse(grammar, argv, &call, &err);
    if (!status) {
        as_json = call.options.as_json;
        status = run_line(grammar, &call, &err);
    }
    options_done(&call);
    output_close(&call.output);
    if (status >= 0)
        return status;
    status = output_error(&err, as_json);
    return call.line.subcommand && call.line.subcommand->failure
               ? call.line.subcommand->failure
               : status;
}

int call_each(struct call *call, const char *const *words, size_t count, call_step *step,
              struct json *json, struct cay_error *err)
{
    int failed = CAY_OK;

    for (size_t i = 0; i < count; i++) {
        struct cay_error own;
        int code = step(call, words[i], json, &own);
        if (!code)
            continue;
        if (failed)
            (void)output_error(err, call->options.as_json);
        *err = own;
        failed = code;
    }
    if (json)
        (void)output_finish(&call->output, NULL);
    return failed;
}

int call_list(struct call *call, const struct call_list *list, const void *items,
              size_t count, struct cay_error *err)
{
    const char *item = items, *end = item + count * list->size;
    struct table table;

    if (call->options.as_json) {
        struct json *json = output_list(&call->output, list->key);
        for (; item < end; item += list->size) {
            json_put_object(json);
            list->put(json, item);
            json_put_end(json);
        }
        return CAY_OK;
    }
    if (call->options.quiet) {
        for (; item < end; item += list->size) {
            output_name(&call->output, list->name(item));
            fputc('\n', call->output.file);
        }
        return CAY_OK;
    }
    TRY(table_open(&table, list->headings, err));
    for (; item < end; item += list->size)
        list->row(&table, item);
    return table_print(&table, &call->output, err);
}
