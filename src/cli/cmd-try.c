/* SPDX-License-Identifier: Apache-2.0 */
/* cay try, apply and discard: a command on a copy-on-write view of a directory. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cay/try.h"
#include "cli/approve.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/race.h"
#include "json/json.h"

static const char op[] = "cli.try";

/* --- try --- */

static void put_try(struct json *json, const void *item)
{
    const struct cay_try_info *info = item;

    json_set_text(json, "id", info->id);
    json_set_text(json, "dir", info->dir);
    json_set_text(json, "note", info->note);
    json_set_text(json, "race", info->race);
    json_set_int(json, "created_ms", info->created_ms);
}

static void add_row(struct table *table, const void *item)
{
    const struct cay_try_info *info = item;
    char room[QUANTITY_ROOM];

    table_cell(table, "%s", info->id);
    table_cell(table, "%s", quantity_age(info->created_ms, room));
    table_cell(table, "%s", info->dir);
    table_cell(table, "%s", info->note);
}

static const char *id_of(const void *item)
{
    return ((const struct cay_try_info *)item)->id;
}

static int list_tries(struct call *call, struct cay_error *err)
{
    static const struct call_list tries = {"tries",
                                           "ID|AGE|DIRECTORY|COMMAND",
                                           sizeof(struct cay_try_info),
                                           put_try,
                                           add_row,
                                           id_of};
    AUTO_FREE struct cay_try_info *infos = NULL;
    size_t count = 0;

    TRY(cay_try_list(&infos, &count, err));
    return call_list(call, &tries, infos, count, err);
}

/* One try while its command runs. */
struct trial {
    struct cay_try_info info;
    char changes[4096];
    bool is_new;
    plan_adjuster *adjust; /* or NULL */
    void *cookie;
};

static const char *dir_of(const struct call *call)
{
    return call->options.directory ? call->options.directory : ".";
}

/* The command, shortened if necessary. */
enum { NOTE_ROOM = 256 };
static const char *note_of(const struct call *call, char note[NOTE_ROOM])
{
    size_t used = 0;

    *note = '\0';
    for (size_t i = 0; i < call->line.count && used < NOTE_ROOM; i++)
        used += (size_t)snprintf(note + used, NOTE_ROOM - used, "%s%s", i ? " " : "",
                                 call->line.arguments[i]);
    return note;
}

static int begin(struct trial *trial, const struct call *call, struct cay_error *err)
{
    char note[NOTE_ROOM];

    if (call->options.use) {
        TRY(cay_try_find(call->options.use, NULL, &trial->info, err));
    } else {
        const struct cay_try_options wanted = {
            .size = sizeof wanted, .dir = dir_of(call), .note = note_of(call, note)};
        TRY(cay_try_create(&wanted, &trial->info, err));
        trial->is_new = true;
    }
    return cay_try_changes(trial->info.id, trial->changes, err);
}

/* The directory has the same path inside, so that paths in its files stay right; but only
 * root enters /root, and /usr and others belong to the system. */
static const char *place_of(const char *dir)
{
    static const char *const closed[] = {"/root", "/usr", "/etc",
                                         "/bin",  "/lib", "/sbin"};

    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        size_t len = strlen(closed[i]);
        if (strncmp(dir, closed[i], len) == 0 && (dir[len] == '/' || !dir[len]))
            return "/workspace";
    }
    return strcmp(dir, "/") == 0 ? "/workspace" : dir;
}

/* The command starts there. */
static int show_dir(struct sandbox_plan *plan, void *cookie, struct cay_error *err)
{
    const struct trial *trial = cookie;
    const char *place = place_of(trial->info.dir);
    size_t count = plan->sandbox.bind_count;
    struct cay_bind *binds = calloc(count + 1, sizeof *binds);

    if (!binds)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < count; i++)
        binds[i] = plan->sandbox.binds[i];
    binds[count] = (struct cay_bind){.source = trial->info.dir,
                                     .target = place,
                                     .writable = true,
                                     .changes = trial->changes};
    free(plan->binds);
    plan->binds = binds;
    plan->sandbox.binds = binds;
    plan->sandbox.bind_count = count + 1;
    if (!plan->exec.cwd)
        plan->exec.cwd = place;
    return trial->adjust ? trial->adjust(plan, trial->cookie, err) : CAY_OK;
}

static int count_changes(const char *id, size_t *ret_count, struct cay_error *err)
{
    const struct cay_diff_options how = {.size = sizeof how};
    cay_diff *diff = NULL;

    TRY(cay_try_diff(id, &how, &diff, err));
    (void)cay_diff_changes(diff, ret_count);
    *ret_count += (size_t)cay_diff_cut(diff);
    cay_diff_free(diff);
    return CAY_OK;
}

/* A try without changes is not kept. */
static void report(const struct trial *trial, bool is_quiet)
{
    struct cay_error err;
    size_t count = 0;
    const char *id = trial->info.id;

    if (count_changes(id, &count, &err) != CAY_OK) {
        fprintf(stderr, "cay: try %s: %s\n", id, err.message);
        return;
    }
    if (!count && trial->is_new) {
        (void)!cay_try_discard(id, NULL);
        if (!is_quiet)
            fputs("cay: nothing changed\n", stderr);
    } else if (!is_quiet) {
        fprintf(stderr,
                "cay: try %s: %zu path%s changed; %s is untouched (cay diff, cay apply, "
                "cay discard)\n",
                id, count, count == 1 ? "" : "s", trial->info.dir);
    }
}

static void after_run(void *cookie)
{
    const struct trial *trial = cookie;

    report(trial, false);
}

int try_run(struct call *call, plan_adjuster *adjust, void *cookie, struct cay_error *err)
{
    struct trial trial = {.adjust = adjust, .cookie = cookie};

    TRY(begin(&trial, call, err));
    int status = run_in_new(call, show_dir, after_run, &trial, err);
    if (status < 0 && trial.is_new)
        (void)!cay_try_discard(trial.info.id, NULL);
    return status;
}

/* One of several: see race.h. */
static int run_racer(struct call *call, const struct cay_try_info *info,
                     struct cay_error *err)
{
    struct trial trial = {.info = *info};

    TRY(cay_try_changes(info->id, trial.changes, err));
    return run_in_new(call, show_dir, NULL, &trial, err);
}

int cmd_try(struct call *call, struct cay_error *err)
{
    char note[NOTE_ROOM];

    if (call->options.list)
        return list_tries(call, err);
    if (!call->line.count)
        return cay_fail(err, CAY_E_INVALID, 0, op, "COMMAND", "no command given",
                        "cay try -- COMMAND runs it on a copy-on-write view of this "
                        "directory");
    if (call->options.jobs.given)
        return race_run(call, dir_of(call), note_of(call, note), run_racer, err);
    return try_run(call, NULL, NULL, err);
}

/* --- apply and discard --- */

enum { APPLY, DISCARD, COUNT };

static call_runner apply, discard;

static const struct subcommand subcommands[] = {
    [APPLY] = {"apply", "[PATH]...", "Apply the changes of a try to its directory", 0,
               UINT32_MAX, apply},
    [DISCARD] = {"discard", "[ID]...", "Remove tries with their changes", 0, UINT32_MAX,
                 discard},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"use", 0, OPTION_TEXT, BIT(APPLY), FIELD(use), "ID",
     "the try (default: the newest one of this directory)"},
    {"interactive", 'i', OPTION_FLAG, BIT(APPLY), FIELD(interactive), NULL,
     "confirm each path"},
    {"dry-run", 0, OPTION_FLAG, BIT(APPLY), FIELD(dry_run), NULL,
     "change nothing, only report"},
    {"merge", 0, OPTION_FLAG, BIT(APPLY), FIELD(merge), NULL,
     "merge lines of files that changed on both sides"},
    {"skip-conflicts", 0, OPTION_FLAG, BIT(APPLY), FIELD(skip_conflicts), NULL,
     "apply the other paths"},
    {"approve", 0, OPTION_CHOICE, BIT(APPLY), FIELD(approve), "yes|queue",
     "queue: apply after a reply of cay approve"},
    {"all", 0, OPTION_FLAG, BIT(DISCARD), FIELD(all), NULL, "all your tries"},
    {"race", 0, OPTION_FLAG, BIT(DISCARD), FIELD(race), NULL,
     "also the other tries of its race"},
    {"output", 'o', OPTION_CHOICE, BIT(APPLY), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar try_grammar = {
    .program = "cay",
    .manual = "Manual: cay-try(1).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

static const char *const verdicts[] = {[CAY_APPLY_DONE] = "applied",
                                       [CAY_APPLY_MERGED] = "merged",
                                       [CAY_APPLY_CONFLICT] = "conflict",
                                       [CAY_APPLY_HELD] = "held"};

static const char letters[] = {
    [CAY_CHANGE_ADDED] = 'A', [CAY_CHANGE_DELETED] = 'D', [CAY_CHANGE_MODIFIED] = 'M',
    [CAY_CHANGE_MODE] = 'M',  [CAY_CHANGE_TYPE] = 'T',    [CAY_CHANGE_RENAMED] = 'R'};

static void print_json(struct output *output, const struct cay_applied *list,
                       size_t count)
{
    struct json *json = output_json(output);

    json_put_key(json, "paths");
    json_put_array(json);
    for (size_t i = 0; i < count; i++) {
        json_put_object(json);
        json_put_key(json, "path");
        json_put_bytes(json, list[i].path, strlen(list[i].path));
        json_set_text(json, "verdict", verdicts[list[i].verdict]);
        if (list[i].reason)
            json_set_text(json, "reason", list[i].reason);
        json_put_end(json);
    }
    json_put_end(json);
}

static void print_one(FILE *file, const struct cay_applied *applied, const char *verdict)
{
    fprintf(file, "%-8s %c ", verdict, letters[applied->kind]);
    show_name(file, applied->path);
    if (applied->reason)
        fprintf(file, "  (%s)", applied->reason);
    fputc('\n', file);
}

/* If there was a conflict, nothing was applied. */
static void print_text(FILE *file, const struct cay_applied *list, size_t count,
                       bool is_done)
{
    for (size_t i = 0; i < count; i++) {
        bool waits = !is_done && (list[i].verdict == CAY_APPLY_DONE ||
                                  list[i].verdict == CAY_APPLY_MERGED);
        print_one(file, &list[i], waits ? "waiting" : verdicts[list[i].verdict]);
    }
}

/* What the user has to do for the rest. */
static void print_next(const struct options *options, const struct cay_applied *list,
                       size_t count, bool is_failed)
{
    bool has_held = false, has_conflict = false;

    for (size_t i = 0; i < count; i++) {
        has_held = has_held || list[i].verdict == CAY_APPLY_HELD;
        has_conflict = has_conflict || list[i].verdict == CAY_APPLY_CONFLICT;
    }
    if (is_failed && has_conflict)
        fprintf(stderr, "cay: cay apply%s --skip-conflicts applies the other paths\n",
                options->merge ? "" : " --merge merges lines, cay apply");
    else if (has_held && !is_failed && !options->interactive)
        fputs("cay: paths that are held back are applied if they are named: cay apply "
              "PATH\n",
              stderr);
}

/* Without empty components, "." and "..": false if it leads above, or nothing is left. */
static bool clean_path(char *path)
{
    char *end = path;

    for (const char *at = path; *at;) {
        size_t len = strcspn(at, "/");
        bool is_up = len == 2 && strncmp(at, "..", 2) == 0;
        if (is_up && end == path)
            return false;
        if (is_up) {
            while (end > path && *--end != '/')
                continue;
        } else if (len && !(len == 1 && *at == '.')) {
            if (end > path)
                *end++ = '/';
            memmove(end, at, len);
            end += len;
        }
        at += len + (at[len] == '/');
    }
    *end = '\0';
    return end > path;
}

/* Of a try that begins at a directory above: the paths are those of this directory. */
static int name_paths(const struct call *call, const struct cay_try_info *info,
                      char **ret_paths, struct cay_error *err)
{
    char here[4096];
    const char *below = "";
    size_t len = strlen(info->dir);

    if (!getcwd(here, sizeof here))
        return cay_fail_errno(err, 0, op, ".");
    if (strncmp(here, info->dir, len) == 0 && here[len] == '/')
        below = here + len + 1;
    for (size_t i = 0; i < call->line.count; i++) {
        const char *word = call->line.arguments[i];
        size_t room = strlen(below) + strlen(word) + 2;
        ret_paths[i] = malloc(room);
        if (!ret_paths[i])
            return cay_fail_memory(err, op);
        snprintf(ret_paths[i], room, "%s/%s", below, word);
        if (*word == '/' || !clean_path(ret_paths[i]))
            return cay_fail(err, CAY_E_INVALID, 0, op, word, "invalid path of a change",
                            *word == '/' ? "write it from the current directory, without "
                                           "a slash at the beginning"
                                         : "the path has to be below the directory of "
                                           "the try; without one, all is applied");
    }
    return CAY_OK;
}

/* --- --interactive --- */

/* 'y', 'n', 'a' for all that are left, or 'q'. */
static int prompt(const struct cay_applied *applied)
{
    char line[16];

    for (;;) {
        fprintf(stderr, "%c ", letters[applied->kind]);
        show_name(stderr, applied->path);
        fputs(" - apply? [y,n,a,q] ", stderr);
        if (!fgets(line, sizeof line, stdin))
            return 'q';
        if (*line && strchr("ynaq", *line) && (line[1] == '\n' || !line[1]))
            return *line;
        fputs("y: yes, n: no, a: this and all others, q: no more\n", stderr);
    }
}

/* Whether `path` is new in a directory that was refused. */
static bool is_refused(const struct cay_applied *refused,
                       const struct cay_applied *applied)
{
    size_t len = refused ? strlen(refused->path) : 0;

    return len && applied->kind == CAY_CHANGE_ADDED &&
           (refused->kind == CAY_CHANGE_ADDED || refused->kind == CAY_CHANGE_TYPE) &&
           strncmp(applied->path, refused->path, len) == 0 && applied->path[len] == '/';
}

static int choose(struct cay_apply_options *how, const char **ret_paths,
                  const cay_apply_report *report, struct cay_error *err)
{
    size_t count, used = 0;
    const struct cay_applied *list = cay_apply_entries(report, &count);
    const struct cay_applied *refused = NULL;
    int answer = 0;

    for (size_t i = 0; i < count && answer != 'q'; i++) {
        if (is_refused(refused, &list[i]))
            continue;
        if (list[i].verdict == CAY_APPLY_HELD || list[i].verdict == CAY_APPLY_CONFLICT) {
            print_one(stderr, &list[i], verdicts[list[i].verdict]);
            continue;
        }
        if (answer != 'a')
            answer = prompt(&list[i]);
        if (answer == 'y' || answer == 'a')
            ret_paths[used++] = list[i].path;
        else
            refused = &list[i];
    }
    how->only = ret_paths;
    how->only_count = used;
    return used ? CAY_OK
                : cay_fail(err, CAY_E_CANCELLED, 0, op, NULL, "nothing was chosen",
                           "nothing was applied");
}

static int apply_chosen(const char *id, struct cay_apply_options how,
                        cay_apply_report **ret_report, struct cay_error *err)
{
    struct cay_apply_options look = how;
    cay_apply_report *seen = NULL;
    size_t count;

    look.flags |= CAY_APPLY_CHECK | CAY_APPLY_SKIP_CONFLICTS;
    TRY(cay_try_apply(id, &look, &seen, err));
    (void)cay_apply_entries(seen, &count);
    const char **paths = calloc(count + 1, sizeof *paths);
    int code = paths ? choose(&how, paths, seen, err) : cay_fail_memory(err, op);
    if (!code)
        code = cay_try_apply(id, &how, ret_report, err);
    free(paths);
    cay_apply_free(seen);
    return code;
}

/* --- With approval --- */

static int add_text(void *cookie, enum cay_diff_line line, const char *text, size_t len)
{
    (void)line;
    return buf_append(cookie, text, len) ? 0 : E2BIG;
}

/* All that the try changes, as the user sees it. */
static int show_changes(const char *id, struct buf *text, struct cay_error *err)
{
    const struct cay_diff_options how = {.size = sizeof how, .flags = CAY_DIFF_BINARY};
    cay_diff *diff = NULL;

    TRY(cay_try_diff(id, &how, &diff, err));
    bool is_cut = cay_diff_cut(diff) > 0;
    int code = cay_diff_print(diff, CAY_DIFF_UNIFIED, add_text, text, err);
    cay_diff_free(diff);
    if (code != CAY_E_NO_MEMORY && (is_cut || text->failed))
        return cay_fail(err, CAY_E_LIMIT, 0, op, id,
                        "the changes are too large to be shown for approval",
                        "the limit is 1 MiB; apply them without --approve");
    return code;
}

/* While no sandbox shows the try, only its user can change it. */
static int check_idle(const char *id, struct cay_apply_options how, struct cay_error *err)
{
    cay_apply_report *seen = NULL;

    how.flags |= CAY_APPLY_CHECK | CAY_APPLY_SKIP_CONFLICTS | CAY_APPLY_IDLE;
    int code = cay_try_apply(id, &how, &seen, err);
    cay_apply_free(seen);
    return code;
}

/* Waits for approval of exactly what is there now. */
static int approve_changes(const struct cay_try_info *info,
                           const struct cay_apply_options *how, struct cay_error *err)
{
    AUTO_BUF before = {.max = CAY_PENDING_CONTENT_MAX};
    AUTO_BUF after = {.max = CAY_PENDING_CONTENT_MAX};
    AUTO_BUF subject = {.max = CAY_PENDING_TEXT_MAX};
    AUTO_FREE char *summary = NULL;

    TRY(check_idle(info->id, *how, err));
    TRY(show_changes(info->id, &before, err));
    for (size_t i = 0; i < how->path_count; i++)
        if (!buf_format(&subject, "%s%s", i ? " " : "", how->paths[i]))
            return cay_fail_memory(err, op);
    if (asprintf(&summary, "Apply%s try %s to %s%s", subject.len ? " these paths of" : "",
                 info->id, info->dir,
                 how->flags & CAY_APPLY_MERGE ? ", merging lines" : "") < 0) {
        summary = NULL;
        return cay_fail_memory(err, op);
    }
    const struct cay_request ask = {.size = sizeof ask,
                                    .kind = "apply",
                                    .scope = info->dir,
                                    .subject = subject.len ? subject.data : ".",
                                    .summary = summary,
                                    .content = before.data,
                                    .content_len = before.len};
    TRY(approve_wait(&ask, err));
    TRY(check_idle(info->id, *how, err));
    TRY(show_changes(info->id, &after, err));
    if (before.len == after.len && memcmp(before.data, after.data, after.len) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_CHANGED, 0, op, info->id,
                    "the changes are not those that were approved any more",
                    "repeat cay apply --approve queue");
}

static int apply_paths(struct call *call, char *const *paths,
                       const struct cay_try_info *info, struct cay_error *err)
{
    const struct options *options = &call->options;
    struct cay_apply_options how = {
        .size = sizeof how,
        .flags = (options->dry_run ? CAY_APPLY_CHECK : 0u) |
                 (options->merge ? CAY_APPLY_MERGE : 0u) |
                 (options->skip_conflicts ? CAY_APPLY_SKIP_CONFLICTS : 0u),
        .paths = (const char *const *)paths,
        .path_count = call->line.count};
    cay_apply_report *report = NULL;
    size_t count;

    if (options->approve) {
        TRY(approve_changes(info, &how, err));
        how.flags |= CAY_APPLY_IDLE;
    }
    int code = options->interactive ? apply_chosen(info->id, how, &report, err)
                                    : cay_try_apply(info->id, &how, &report, err);
    const struct cay_applied *list = cay_apply_entries(report, &count);
    if (report && options->as_json && !code)
        print_json(&call->output, list, count);
    else if (report)
        print_text(call->output.file, list, count, !code && !options->dry_run);
    if (report && !options->as_json)
        print_next(options, list, count, code != 0);
    if (!code && !count)
        fputs("cay: nothing to apply\n", stderr);
    cay_apply_free(report);
    return code ? code : output_finish(&call->output, err);
}

static int apply(struct call *call, struct cay_error *err)
{
    struct cay_try_info info;
    char **paths = calloc(call->line.count + 1, sizeof *paths);
    int code = paths ? cay_try_find(call->options.use, ".", &info, err)
                     : cay_fail_memory(err, op);

    if (!code)
        code = name_paths(call, &info, paths, err);
    if (!code)
        code = apply_paths(call, paths, &info, err);
    for (size_t i = 0; paths && i < call->line.count; i++)
        free(paths[i]);
    free(paths);
    return code;
}

/* All of them, or those of a race. */
static int discard_all(const char *race, struct cay_error *err)
{
    AUTO_FREE struct cay_try_info *infos = NULL;
    size_t count = 0;

    TRY(cay_try_list(&infos, &count, err));
    for (size_t i = 0; i < count; i++)
        if (!race || strcmp(infos[i].race, race) == 0)
            TRY(cay_try_discard(infos[i].id, err));
    return CAY_OK;
}

static int discard_one(struct call *call, const char *word, struct json *json,
                       struct cay_error *err)
{
    struct cay_try_info info;

    (void)json;
    TRY(cay_try_find(word, NULL, &info, err));
    return call->options.race ? discard_all(info.race, err)
                              : cay_try_discard(info.id, err);
}

static int discard(struct call *call, struct cay_error *err)
{
    struct cay_try_info info;

    if (call->options.all)
        return discard_all(NULL, err);
    if (call->line.count)
        return call_each(call, call->line.arguments, call->line.count, discard_one, NULL,
                         err);
    if (call->options.race)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--race", "no try given",
                        "name one of the race; cay try --list shows them");
    TRY(cay_try_find(NULL, ".", &info, err));
    return cay_try_discard(info.id, err);
}

/* --- Checkpoints --- */

static int roll_back(struct call *call, const char *id, struct cay_error *err)
{
    struct cay_rollback rollback = {.ended = NULL};
    const char *which = call->line.count > 1 ? call->line.arguments[1] : NULL;

    TRY(cay_try_rollback(id, which, &rollback.undone, err));
    rollback_print(call, &rollback);
    return CAY_OK;
}

static int save(struct call *call, const char *id, struct cay_error *err)
{
    struct cay_checkpoint checkpoint;
    const char *word = call->line.count > 1 ? call->line.arguments[1] : NULL;

    if (call->options.remove && !word)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--rm", "no checkpoint given",
                        "pass the try and its number or name");
    if (call->options.remove)
        return cay_try_remove_checkpoint(id, word, err);
    TRY(cay_try_checkpoint(id, word, &checkpoint, err));
    checkpoint_print(call, &checkpoint);
    return CAY_OK;
}

int cmd_checkpoint_try(struct call *call, bool *ret_is_try, struct cay_error *err)
{
    struct cay_try_info info;
    const char *command = call->line.subcommand->name;

    TRY(cay_try_find(call->line.count ? call->line.arguments[0] : NULL, ".", &info, err));
    *ret_is_try = true;
    if (strcmp(command, "checkpoint") == 0)
        return save(call, info.id, err);
    if (strcmp(command, "rollback") == 0)
        return roll_back(call, info.id, err);
    AUTO_FREE struct cay_checkpoint *list = NULL;
    size_t count = 0;
    TRY(cay_try_checkpoints(info.id, &list, &count, err));
    return checkpoints_print(call, list, count, err);
}
