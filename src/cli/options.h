/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cay/error.h"
#include "cli/output.h"

/* The words after a command that has subcommands: one of those, its arguments, and
 * options anywhere among them until "--".  An option is for some of the subcommands, and
 * may mean different things to different ones.  Where a subcommand takes a command line
 * for another program, options end with its first word. */

struct option_number { /* OPTION_NUMBER */
    uint64_t value;
    bool given;
};

struct option_list { /* OPTION_LIST: may be given many times */
    const char **items;
    size_t count;
};

enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char * */
    OPTION_NUMBER, /* struct option_number */
    OPTION_CHOICE, /* int: which of the words in `value`, "text|json" */
    OPTION_LIST,   /* struct option_list */
    OPTION_PARSED  /* whatever the rule's own function makes of it */
};

struct option_rule {
    const char *name;
    char letter; /* or 0 */
    enum option_kind kind;
    uint32_t takers;   /* bit N: subcommand N takes it */
    size_t field;      /* where its value goes in the caller's struct */
    const char *value; /* what help calls the value */
    const char *help;
    /* OPTION_PARSED: fills the field; false if the text is not such a value, and then
     * `allowed` describes the valid ones. */
    bool (*parse)(const char *text, void *field);
    const char *allowed;
};

struct subcommand {
    const char *name;
    const char *arguments; /* as in the usage line: "REGEX [PATH]" */
    const char *help;
    unsigned least, most; /* arguments */
    unsigned command_at;  /* from this argument on (1 is the first) the words are those
                             of a command; 0: never */
};

/* An option that people know from elsewhere, and what to do instead. */
struct option_habit {
    uint32_t takers; /* the subcommands for which it is one */
    const char *word, *hint;
};

struct grammar {
    const char *program; /* "cay files" */
    const struct subcommand *subcommands;
    size_t subcommand_count;
    const struct option_rule *options;
    size_t option_count;
    const struct option_habit *habits;
    size_t habit_count;
    bool stands_alone; /* the help for a subcommand has all its options */
};

/* options_done() frees it, and the items of lists. */
struct command_line {
    const struct subcommand *subcommand; /* NULL if there was none */
    const char **arguments;              /* NULL-terminated */
    unsigned count;
    const char **items; /* of the lists, `room` for each */
    size_t list_count, room;
};
void options_done(struct command_line *line);

/* Fills the fields of `values`, which the caller has zeroed.  CAY_E_INVALID names the
 * word that is wrong and the nearest right one.  The number of arguments is left to
 * options_check(), so that help can be asked for without them. */
int options_parse(const struct grammar *grammar, char *const *argv, void *values,
                  struct command_line *ret_line, struct cay_error *err);
int options_check(const struct grammar *grammar, const struct command_line *line,
                  struct cay_error *err);

/* Whether the words ask for `-o json`, as far as they can be understood. */
bool options_want_json(char *const *argv);

/* All subcommands and the options common to them; or one subcommand and its own. */
void options_help(FILE *file, const struct grammar *grammar,
                  const struct subcommand *subcommand);

/* A command whose first word is a subcommand: `cay session ls`. */
struct call {
    void *options; /* the command's own, filled in */
    struct command_line line;
    struct output output;
};

typedef int call_runner(struct call *call, struct cay_error *err);

struct call_rules {
    const struct grammar *grammar; /* one option is "help", a flag */
    const char *about;             /* a sentence for its help */
    const char *manual;            /* "cay-session(1)" */
    call_runner *prepare;          /* before any of them, or NULL */
    call_runner *const *run;       /* by subcommand */
};

/* Parses the words, runs the subcommand, prints an error; returns the exit status.
 * `options` are zeroed. */
int call_run(const struct call_rules *rules, char *const *argv, void *options);

#endif
