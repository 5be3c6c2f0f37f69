/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles of agents: data/agents and those of the user. */
#include "cay/profile.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/quantity.h"
#include "base/words.h"
#include "cay/policy.h"
#include "config/yaml.h"

static const char op[] = "profile.load";

enum { ITEMS_MAX = 64, NAME_MAX_LEN = 40, PROFILES_MAX = 256 };

/* data/agents/NAME.yaml for each, in order. */
#define BUILT_IN(X) X(aider) X(any) X(claude) X(codex) X(gemini) X(opencode)

#define DECLARE(name)                                                                    \
    extern const char profile_##name[];                                                  \
    extern const uint64_t profile_##name##_size;
BUILT_IN(DECLARE)

#define ROW(name) {#name, profile_##name, &profile_##name##_size},
static const struct {
    const char *name, *text;
    const uint64_t *size;
} built_in[] = {BUILT_IN(ROW)};

enum { BUILT_IN_COUNT = sizeof built_in / sizeof *built_in };

/* --- The text --- */

/* Items of a list, NULL-terminated. */
struct items {
    char *at[ITEMS_MAX + 1];
    size_t count;
};

enum { ARGUMENTS, COPY, SHOW, ENV, ALLOW, SECRETS, LISTS };
enum { TITLE, COMMAND, INSTALL, MEMORY, TEXTS };

/* The view points into the rest. */
struct profile {
    struct cay_profile view;
    char *name, *origin;
    char *texts[TEXTS];
    struct items lists[LISTS];
};

static int fail(const struct yaml *yaml, const struct yaml_event *event,
                const char *message, const char *hint, struct cay_error *err)
{
    return yaml_fail(err, yaml, event->line, message, "%s", hint);
}

static bool is_variable(const char *text)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

    return *text && strspn(text, letters) == strlen(text) && !strchr("0123456789", *text);
}

static bool leads_up(const char *path)
{
    for (const char *at = path; at; at = strchr(at, '/')) {
        at += *at == '/';
        if (strncmp(at, "..", 2) == 0 && (!at[2] || at[2] == '/'))
            return true;
    }
    return false;
}

static int check_path(const struct yaml *yaml, const struct yaml_event *event,
                      size_t list, struct cay_error *err)
{
    const char *path = event->text;
    bool is_home = strncmp(path, "~/", 2) == 0 && path[2];

    if (leads_up(path) || (!is_home && (list == COPY || *path != '/')))
        return fail(yaml, event, "invalid path",
                    list == COPY ? "write ~/PATH, without \"..\""
                                 : "write ~/PATH or an absolute path, without \"..\"",
                    err);
    return CAY_OK;
}

static int add(struct yaml *yaml, const struct yaml_event *event, struct items *items,
               const char *key, struct cay_error *err)
{
    if (items->count == ITEMS_MAX)
        return fail(yaml, event, "has too many items", "the limit is 64", err);
    TRY(yaml_check_nul(yaml, event, err));
    if (key ? asprintf(&items->at[items->count], "%s=%s", key, event->text) < 0
            : !(items->at[items->count] = strdup(event->text))) {
        items->at[items->count] = NULL;
        return yaml_fail_memory(err, yaml);
    }
    items->count++;
    return CAY_OK;
}

static int take_item(struct yaml *yaml, const struct yaml_event *event, size_t list,
                     const char *key, struct items *items, struct cay_error *err)
{
    if (!yaml_is_text(event))
        return fail(yaml, event, "must be a string",
                    "put quotes around it if it is meant as text", err);
    if (list == COPY || list == SHOW)
        TRY(check_path(yaml, event, list, err));
    if (list == SECRETS && !*event->text)
        return fail(yaml, event, "must not be empty",
                    "write HOST or HOST:WAY, for example api.example.com:bearer", err);
    return add(yaml, event, items, key, err);
}

/* A list, or one string. */
static int take_list(struct yaml *yaml, const struct yaml_event *first, size_t list,
                     const char *key, struct items *items, struct cay_error *err)
{
    struct yaml_event item;

    if (first->kind == YAML_SCALAR)
        return take_item(yaml, first, list, key, items, err);
    if (first->kind != YAML_LIST)
        return fail(yaml, first, "must be a list", "write [A, B], or one string", err);
    for (size_t i = 0;; i++) {
        TRY(yaml_next(yaml, &item, err));
        if (item.kind == YAML_LIST_END)
            return CAY_OK;
        size_t mark = yaml_enter_index(yaml, i);
        TRY(take_item(yaml, &item, list, key, items, err));
        yaml_leave(yaml, mark);
    }
}

static int take_map(struct yaml *yaml, const struct yaml_event *first, size_t list,
                    struct items *items, struct cay_error *err)
{
    struct yaml_event key, value;

    if (first->kind != YAML_MAP)
        return fail(yaml, first, "must be a map",
                    list == ENV ? "write NAME: value on a line for each variable"
                                : "write NAME: HOST on a line for each variable",
                    err);
    for (;;) {
        TRY(yaml_next_key(yaml, &key, err));
        if (key.kind == YAML_MAP_END)
            return CAY_OK;
        if (!is_variable(key.text))
            return fail(yaml, &key, "invalid name of a variable",
                        "letters, digits and \"_\", not a digit first", err);
        AUTO_FREE char *name = strdup(key.text);
        if (!name)
            return yaml_fail_memory(err, yaml);
        size_t mark = yaml_enter(yaml, name);
        TRY(yaml_next(yaml, &value, err));
        TRY(list == ENV && value.kind != YAML_SCALAR
                ? fail(yaml, &value, "must be a string", "write NAME: value", err)
                : take_list(yaml, &value, list, name, items, err));
        yaml_leave(yaml, mark);
    }
}

static const struct field {
    const char *key;
    bool is_text, is_map;
    size_t at;
} fields[] = {
    {"title", true, false, TITLE},          {"command", true, false, COMMAND},
    {"install", true, false, INSTALL},      {"memory", true, false, MEMORY},
    {"arguments", false, false, ARGUMENTS}, {"copy", false, false, COPY},
    {"show", false, false, SHOW},           {"env", false, true, ENV},
    {"allow", false, false, ALLOW},         {"secrets", false, true, SECRETS},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static int take_text(struct yaml *yaml, const struct yaml_event *value,
                     const struct field *field, struct profile *profile,
                     struct cay_error *err)
{
    char **text = &profile->texts[field->at];

    if (value->kind != YAML_SCALAR)
        return fail(yaml, value, "must be a string", "write \"key: text\"", err);
    TRY(yaml_take_text(yaml, value, text, err));
    if (field->at == MEMORY && !quantity_parse_size(*text, &profile->view.memory_bytes))
        return fail(yaml, value, "invalid size", "for example 512M or 2G", err);
    if (field->at == COMMAND && (!**text || (strchr(*text, '/') && **text != '/')))
        return fail(yaml, value, "must be a name in PATH or an absolute path",
                    "leave it out to take the command from the command line", err);
    return CAY_OK;
}

static int read_field(struct yaml *yaml, const struct yaml_event *key, unsigned *seen,
                      struct profile *profile, struct cay_error *err)
{
    const char *keys[FIELDS + 1] = {NULL};
    const struct field *field = NULL;
    struct yaml_event value;

    for (size_t i = 0; i < FIELDS; i++) {
        keys[i] = fields[i].key;
        if (strcmp(key->text, fields[i].key) == 0)
            field = &fields[i];
    }
    if (!field)
        return yaml_fail_unknown(yaml, key->line, key->text, keys, err);
    size_t mark = yaml_enter(yaml, field->key);
    unsigned bit = 1u << (field - fields);
    if (*seen & bit)
        return fail(yaml, key, "is given twice", "keep one of the two", err);
    *seen |= bit;
    TRY(yaml_next(yaml, &value, err));
    struct items *items = &profile->lists[field->is_text ? 0 : field->at];
    TRY(field->is_text  ? take_text(yaml, &value, field, profile, err)
        : field->is_map ? take_map(yaml, &value, field->at, items, err)
                        : take_list(yaml, &value, field->at, NULL, items, err));
    yaml_leave(yaml, mark);
    return CAY_OK;
}

/* So that a mistake shows when the profile is listed, not when it runs. */
static int check_rules(const struct yaml *yaml, const struct items *rules,
                       struct cay_error *err)
{
    const struct cay_network_config config = {.size = sizeof config,
                                              .rules = (const char *const *)rules->at,
                                              .rule_count = rules->count};
    cay_policy *policy = NULL;
    struct cay_error own;
    char message[sizeof own.subject + sizeof own.message + 16];

    int code =
        rules->count ? cay_policy_add_network(NULL, &config, &policy, &own) : CAY_OK;
    cay_policy_free(policy);
    if (!code)
        return CAY_OK;
    snprintf(message, sizeof message, "allow: %s: %s", own.subject, own.message);
    return cay_fail(err, code, 0, op, yaml_origin(yaml)->name, message, "%s", own.hint);
}

static int read_profile(struct yaml *yaml, struct profile *profile, struct cay_error *err)
{
    struct yaml_event key;
    unsigned seen = 0;

    TRY(yaml_next(yaml, &key, err));
    if (key.kind != YAML_MAP)
        return fail(yaml, &key, "the text is not a map of keys",
                    "start with \"command: NAME\"", err);
    for (;;) {
        TRY(yaml_next_key(yaml, &key, err));
        if (key.kind == YAML_MAP_END)
            break;
        TRY(read_field(yaml, &key, &seen, profile, err));
    }
    TRY(yaml_next(yaml, &key, err)); /* more than one document is an error */
    return check_rules(yaml, &profile->lists[ALLOW], err);
}

static void publish(struct profile *profile)
{
    struct cay_profile *view = &profile->view;
    const char *const *lists[LISTS];

    for (size_t i = 0; i < LISTS; i++)
        lists[i] = (const char *const *)profile->lists[i].at;
    view->name = profile->name;
    view->origin = profile->origin;
    view->title = profile->texts[TITLE] ? profile->texts[TITLE] : profile->name;
    view->command = profile->texts[COMMAND];
    view->install = profile->texts[INSTALL];
    view->arguments = lists[ARGUMENTS];
    view->copy = lists[COPY];
    view->show = lists[SHOW];
    view->env = lists[ENV];
    view->allow = lists[ALLOW];
    view->secrets = lists[SECRETS];
}

void cay_profile_free(struct cay_profile *view)
{
    struct profile *profile = (struct profile *)view; /* its first member */

    if (!profile)
        return;
    for (size_t i = 0; i < LISTS; i++)
        for (size_t k = 0; k < profile->lists[i].count; k++)
            free(profile->lists[i].at[k]);
    for (size_t i = 0; i < TEXTS; i++)
        free(profile->texts[i]);
    free(profile->name);
    free(profile->origin);
    free(profile);
}

static int parse(const char *name, const char *origin, const char *text, size_t len,
                 struct cay_profile **ret_profile, struct cay_error *err)
{
    const struct yaml_origin from = {op, origin, NULL};
    AUTO_YAML *yaml = NULL;
    struct profile *profile = calloc(1, sizeof *profile);
    int code = profile ? CAY_OK : cay_fail_memory(err, op);

    if (!code && (!(profile->name = strdup(name)) || !(profile->origin = strdup(origin))))
        code = cay_fail_memory(err, op);
    if (!code && len > YAML_TEXT_MAX)
        code = cay_fail(err, CAY_E_INVALID, 0, op, origin, "the profile is too large",
                        "the limit is 1 MiB");
    if (!code)
        code = yaml_open(text ? text : "", len, &from, &yaml, err);
    if (!code)
        code = read_profile(yaml, profile, err);
    if (code) {
        cay_profile_free(profile ? &profile->view : NULL);
        return code;
    }
    publish(profile);
    *ret_profile = &profile->view;
    return CAY_OK;
}

/* --- Where profiles are --- */

/* false: the user has no such directory. */
static bool user_directory(char ret_path[PATH_MAX])
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int len = -1;

    if (config && *config == '/')
        len = snprintf(ret_path, PATH_MAX, "%s/cay/agents", config);
    else if (home && *home == '/')
        len = snprintf(ret_path, PATH_MAX, "%s/.config/cay/agents", home);
    return len > 0 && len < PATH_MAX;
}

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t len = strlen(name);

    return len && len <= NAME_MAX_LEN && strspn(name, letters) == len;
}

static int load_file(const char *name, const char *file, struct cay_profile **ret_profile,
                     struct cay_error *err)
{
    AUTO_FREE char *directory = NULL;
    AUTO_BUF text = {.max = 0};

    TRY(yaml_load_file(file, op, &text, &directory, err));
    return parse(name, file, text.data, text.len, ret_profile, err);
}

static int fail_unknown(const char *name, struct cay_error *err)
{
    AUTO_FREE const char *const *names = NULL;
    struct words_list known = {.len = 0};
    size_t count = 0;

    if (cay_profile_list(&names, &count, err) == CAY_OK)
        for (size_t i = 0; i < count; i++)
            words_add(&known, names[i]);
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, name, "no agent has this name",
                    "the agents are %s; any file NAME.yaml in ~/.config/cay/agents adds "
                    "one",
                    count ? words_end(&known) : "none");
}

int cay_profile_load(const char *name, struct cay_profile **ret_profile,
                     struct cay_error *err)
{
    char directory[PATH_MAX], file[PATH_MAX + NAME_MAX_LEN + 8];
    const char *slash = strrchr(name, '/');

    *ret_profile = NULL;
    if (slash) {
        AUTO_FREE char *own = strdup(slash + 1);
        if (!own)
            return cay_fail_memory(err, op);
        own[strcspn(own, ".")] = '\0';
        return load_file(own, name, ret_profile, err);
    }
    if (!is_name(name))
        return fail_unknown(name, err);
    if (user_directory(directory)) {
        snprintf(file, sizeof file, "%s/%s.yaml", directory, name);
        int code = load_file(name, file, ret_profile, err);
        if (code != CAY_E_NOT_FOUND)
            return code;
    }
    for (size_t i = 0; i < BUILT_IN_COUNT; i++)
        if (strcmp(name, built_in[i].name) == 0)
            return parse(name, "built-in", built_in[i].text, *built_in[i].size,
                         ret_profile, err);
    return fail_unknown(name, err);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* `names` has room for PROFILES_MAX; the names of the user are copied to `room`. */
static size_t collect(const char **names, char (*room)[NAME_MAX_LEN + 1])
{
    char directory[PATH_MAX];
    size_t count = 0;

    for (; count < BUILT_IN_COUNT; count++)
        names[count] = built_in[count].name;
    DIR *list = user_directory(directory) ? opendir(directory) : NULL;
    for (struct dirent *entry; list && count < PROFILES_MAX && (entry = readdir(list));) {
        const char *dot = strrchr(entry->d_name, '.');
        char *own = room[count];
        if (!dot || strcmp(dot, ".yaml") != 0 || dot - entry->d_name > NAME_MAX_LEN)
            continue;
        snprintf(own, sizeof *room, "%.*s", (int)(dot - entry->d_name), entry->d_name);
        bool is_new = is_name(own);
        for (size_t i = 0; is_new && i < BUILT_IN_COUNT; i++)
            is_new = strcmp(own, built_in[i].name) != 0;
        if (is_new)
            names[count++] = own;
    }
    if (list)
        (void)closedir(list);
    return count;
}

int cay_profile_list(const char *const **ret_names, size_t *ret_count,
                     struct cay_error *err)
{
    char room[PROFILES_MAX][NAME_MAX_LEN + 1];
    const char *names[PROFILES_MAX];
    size_t count = collect(names, room);
    const char **all = malloc(count * (sizeof *all + sizeof *room));

    *ret_names = NULL;
    *ret_count = 0;
    if (!all)
        return cay_fail_memory(err, op);
    qsort(names, count, sizeof *names, compare);
    char *text = (char *)(all + count);
    for (size_t i = 0; i < count; i++, text += sizeof *room) {
        snprintf(text, sizeof *room, "%s", names[i]);
        all[i] = text;
    }
    *ret_names = all;
    *ret_count = count;
    return CAY_OK;
}
