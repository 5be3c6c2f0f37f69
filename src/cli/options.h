/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/auto.h"
#include "cay/error.h"
#include "cay/files.h"
#include "cay/sandbox.h"
#include "cay/session.h"
#include "cli/output.h"
#include "json/json.h"

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

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the order of the tables */
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
    bool is_rare; /* --help only names it, --help-all explains it */
};

struct call;

/* Returns a negative code with `err` filled in, or else the exit status. */
typedef int call_runner(struct call *call, struct cay_error *err);

struct subcommand {
    const char *name;
    const char *arguments; /* as in the usage line: "REGEX [PATH]" */
    const char *help;
    unsigned least, most; /* arguments */
    call_runner *run;
    const char *manual;  /* the last line of its help; NULL: that of the grammar */
    unsigned command_at; /* from this argument on (1 is the first) the words are those
                            of a command; 0: never */
    int failure;         /* the exit status if cay itself fails; 0: that of the error */
};

/* An option that people know from elsewhere, and what to do instead. */
struct option_habit {
    uint32_t takers; /* the subcommands for which it is one */
    const char *word, *hint;
};

struct grammar {
    const char *program;  /* "cay files" */
    const char *usage;    /* follows the program in its help, with a sentence about it */
    const char *manual;   /* the last line of the help for a subcommand... */
    const char *overview; /* ...and of its own help, if only that has the options that all
                             subcommands take; else NULL */
    call_runner *around;  /* runs the subcommand with what all of them need; or NULL */
    const struct subcommand *subcommands;
    size_t subcommand_count;
    const struct option_rule *options;
    size_t option_count;
    const struct option_habit *habits;
    size_t habit_count;
};

/* Every option of every command: which command takes which is in the commands' tables. */
struct options {
    const char *config, *user;

    /* Sandboxes */
    uint64_t memory, disk, timeout_ms, ttl_ms;
    struct option_list env, binds, allow, deny, join, ports, secrets, secrets_for;
    const char *workdir, *template_name, *from, *tag, *name, *network_limit;
    uint32_t pids, cpu_percent;
    unsigned require;     /* enum cay_layer */
    int network, storage; /* which of the choices; -1: none was made */
    int signal;

    /* Pools; count also fork */
    struct option_number count;
    uint64_t limit;
    bool foreground, daemon;

    /* Setup */
    struct option_list users;
    const char *root;
    bool dry_run, undo;

    /* Code */
    const char *language, *context, *code, *save, *preload;

    /* Explaining */
    const char *method, *address, *sandbox;

    /* Approvals */
    const char *note, *scope;
    struct option_list approvals, approve_writes;
    uint64_t approve_timeout_ms;
    int approve_egress;
    const char *secret_file;

    /* MCP */
    const char *tools;
    uint32_t sandboxes;
    int roots; /* which of the choices; -1: none was made */

    /* Tries */
    const char *directory, *use;
    struct option_number jobs;

    /* Templates */
    const char *sources[CAY_TEMPLATE_IMAGE]; /* by enum cay_template_source - 1 */
    const char *packages;
    struct option_list add;

    /* Builds */
    const char *file, *target;
    struct option_list args;
    bool no_cache, pull;

    /* Files */
    const char *base;
    struct option_number offset, max;        /* read; max also list, grep */
    const char *content;                     /* write, append */
    const char *old_text, *new_text, *edits; /* edit */
    const char *pattern, *after;             /* list, glob; pattern also grep */
    struct option_list exclude;
    int approve;

    int as_json; /* 0 or 1 */
    bool help, help_all, quiet, all;
    bool reset, stop, remove, keep, checkpoint_each; /* network; checkpoint */
    bool partial, contexts, to_disk;                 /* fork, fork; pause */
    bool interactive, tty, detach, follow, force;    /* sandboxes */
    bool load;                                       /* config check */
    bool yes, host, no_follow;             /* files: all; resolve; stat; yes also setup */
    bool lines, bytes, universal_newlines; /* read */
    bool in_place, append, new_file, durable, no_parents, exist_ok; /* write and others */
    bool exact, recursive;                /* edit; delete, move */
    bool directories, details, null;      /* list, glob; null also grep */
    bool ignore_case, fixed;              /* grep */
    bool names, stat, binary, no_renames; /* diff */
    bool list, merge, skip_conflicts;     /* try; apply */
    bool race;                            /* discard */
    bool is_new;                          /* code */
    bool read_only, write;                /* mcp */
    const char *url;                      /* mcp install */
};

/* The rules for help, which every grammar has. */
#define OPTIONS_HELP(text)                                                               \
    {"help", 'h', OPTION_FLAG, UINT32_MAX, offsetof(struct options, help), NULL, text},  \
    {                                                                                    \
        "help-all", 0, OPTION_FLAG, UINT32_MAX, offsetof(struct options, help_all),      \
            NULL, "show every option", .is_rare = true                                   \
    }

struct command_line {
    const struct subcommand *subcommand; /* NULL if there was none */
    const char **arguments;              /* NULL-terminated */
    unsigned count;
    const char **items; /* of the lists, `room` for each */
    size_t list_count, room;
};

/* One command, as it was typed. */
struct call {
    char *const *words; /* all of them, as given to call_run() */
    struct options options;
    struct command_line line;
    struct output output;

    /* What grammar->around sets for its subcommands. */
    cay_config *config; /* of --config, or NULL, and its options */
    struct cay_sandbox_options *configured;
    cay_files *files;
    cay_store *store;
};

/* Fills in the options and the line; options_done() frees them.  CAY_E_INVALID names the
 * word that is wrong and the nearest right one.  The number of arguments is left to
 * options_check(), so that --help works without them. */
int options_parse(const struct grammar *grammar, char *const *argv, struct call *ret_call,
                  struct cay_error *err);
void options_done(struct call *call);
int options_check(const struct grammar *grammar, const struct command_line *line,
                  struct cay_error *err);

/* Whether the words contain `-o json`, as far as they can be parsed. */
bool options_want_json(char *const *argv);

/* For AUTO(type), which frees its pointer at the end of the scope. */
static inline void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

static inline void auto_cay_policy(cay_policy **policy)
{
    cay_policy_free(*policy);
}

static inline void auto_cay_process(cay_process **process)
{
    cay_process_free(*process);
}

static inline void auto_cay_sandbox(cay_sandbox **sandbox)
{
    cay_sandbox_free(*sandbox);
}

/* Parses the words, runs the subcommand, prints an error; returns the exit status. */
int call_run(const struct grammar *grammar, char *const *argv);

/* Calls `step` for each word and continues after a failure.  Prints every error but the
 * last, which is returned.  `json`, the result or NULL, is passed on and then ended. */
typedef int call_step(struct call *call, const char *word, struct json *json,
                      struct cay_error *err);
int call_each(struct call *call, const char *const *words, size_t count, call_step *step,
              struct json *json, struct cay_error *err);

/* Items of one kind: with -o json an array in an object, with -q their names, one on each
 * line, else a table. */
struct call_list {
    const char *key;                                  /* of the array */
    const char *headings;                             /* of the table: see table_open() */
    size_t size;                                      /* of an item */
    void (*put)(struct json *json, const void *item); /* its members */
    void (*row)(struct table *table, const void *item);
    const char *(*name)(const void *item); /* if there is -q */
};
int call_list(struct call *call, const struct call_list *list, const void *items,
              size_t count, struct cay_error *err);

#endif
