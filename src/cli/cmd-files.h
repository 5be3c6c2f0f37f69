/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CMD_FILES_H
#define CLI_CMD_FILES_H

#include "cay/files.h"
#include "cli/options.h"
#include "cli/output.h"

enum { APPROVE_ASK, APPROVE_YES, APPROVE_NO };

/* The options of `cay files`; which command takes which is in cmd-files.c. */
struct files_options {
    const char *config, *base;
    int as_json; /* 0 or 1 */
    int approve;
    bool yes, help;
    bool host, no_follow;                  /* resolve; stat */
    struct option_number offset, max;      /* read; max also list, grep */
    bool lines, bytes, universal_newlines; /* read */
    const char *content;                   /* write, append */
    bool in_place, append, new_file, durable, no_parents, exist_ok;
    const char *old_text, *new_text, *edits; /* edit */
    bool exact;
    bool all, recursive;             /* edit, list; delete, move */
    bool directories, details, null; /* list, glob; null also grep */
    const char *pattern, *after;
    struct option_list exclude;
    bool ignore_case, fixed; /* grep */
};

/* One run of `cay files`.  The functions return a negative code with `err` filled in, or
 * else the exit status. */
struct files_run {
    struct files_options options;
    struct command_line line;
    struct output output;
    cay_files *files;
};

int cmd_files_resolve(struct files_run *run, struct cay_error *err);
int cmd_files_explain(struct files_run *run, struct cay_error *err);
int cmd_files_roots(struct files_run *run, struct cay_error *err);
int cmd_files_stat(struct files_run *run, struct cay_error *err);
int cmd_files_exists(struct files_run *run, struct cay_error *err);

int cmd_files_read(struct files_run *run, struct cay_error *err);

int cmd_files_write(struct files_run *run, struct cay_error *err);
int cmd_files_append(struct files_run *run, struct cay_error *err);
int cmd_files_edit(struct files_run *run, struct cay_error *err);

int cmd_files_delete(struct files_run *run, struct cay_error *err);
int cmd_files_move(struct files_run *run, struct cay_error *err);
int cmd_files_copy(struct files_run *run, struct cay_error *err);
int cmd_files_mkdir(struct files_run *run, struct cay_error *err);
int cmd_files_export(struct files_run *run, struct cay_error *err);
int cmd_files_import(struct files_run *run, struct cay_error *err);

int cmd_files_list(struct files_run *run, struct cay_error *err);
int cmd_files_glob(struct files_run *run, struct cay_error *err);
int cmd_files_grep(struct files_run *run, struct cay_error *err);

/* "file", "directory", "link" or "other". */
const char *cmd_files_type(enum cay_type type);

/* The members of a cay_stat, into the object that is open. */
struct json;
void cmd_files_put_stat(struct json *json, const struct cay_stat *stat);

/* The modification time, "2024-05-01T12:00:00Z". */
#define TIME_ROOM 40
const char *cmd_files_time(const struct cay_stat *stat, char room[TIME_ROOM]);

#endif
