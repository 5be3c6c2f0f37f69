/* SPDX-License-Identifier: Apache-2.0 */
#include "build/dockerfile.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "base/nearest.h"

struct parsing {
    struct dockerfile *dockerfile;
    const char *name, *at, *end;
    unsigned line; /* of `at` */
    char subject[320];
};

struct rule {
    const char *word;
    /* Names of the flags that it accepts, separated by blanks. */
    const char *flags;
    int (*parse)(struct parsing *parsing, struct build_instruction *instruction,
                 const char *rest, struct cay_error *err);
};

static const char *subject_at(struct parsing *parsing, unsigned line)
{
    snprintf(parsing->subject, sizeof parsing->subject, "%.255s:%u", parsing->name, line);
    return parsing->subject;
}

static int fail(struct parsing *parsing, const struct build_instruction *instruction,
                const char *message, const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP,
                    subject_at(parsing, instruction->line), message, "%s", hint);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* --- Lines --- */

/* The next line without its end; false at the end of the text. */
static bool next_line(struct parsing *parsing, const char **ret_line, size_t *ret_len)
{
    if (parsing->at == parsing->end)
        return false;
    const char *newline = memchr(parsing->at, '\n', (size_t)(parsing->end - parsing->at));
    const char *end = newline ? newline : parsing->end;
    *ret_line = parsing->at;
    *ret_len = (size_t)(end - parsing->at);
    if (*ret_len && end[-1] == '\r')
        --*ret_len;
    parsing->at = newline ? newline + 1 : parsing->end;
    parsing->line++;
    return true;
}

static bool is_left_out(const char *line, size_t len)
{
    while (len && is_space(*line)) {
        line++;
        len--;
    }
    return len == 0 || *line == '#';
}

/* Removes the escape at the end of a line that continues on the next one. */
static bool continues(char escape, const char *line, size_t *len)
{
    size_t used = *len;

    while (used && is_space(line[used - 1]))
        used--;
    if (!used || line[used - 1] != escape || (used > 1 && line[used - 2] == escape))
        return false;
    *len = used - 1;
    return true;
}

/* One instruction from all its lines; comments and empty lines between these are left
 * out.  False at the end of the text. */
static bool next_instruction(struct parsing *parsing, struct buf *text,
                             unsigned *ret_line)
{
    const char *line;
    size_t len;
    bool has_more = true, has_any = false;

    while (has_more && next_line(parsing, &line, &len)) {
        if (is_left_out(line, len))
            continue;
        if (!has_any)
            *ret_line = parsing->line;
        has_any = true;
        has_more = continues(parsing->dockerfile->escape, line, &len);
        (void)buf_append(text, line, len);
    }
    while (text->len && is_space(text->data[text->len - 1]))
        text->data[--text->len] = '\0';
    return has_any;
}

/* --- Parser directives --- */

static int take_directive(struct parsing *parsing, const char *key, const char *value,
                          bool *has_escape, struct cay_error *err)
{
    const struct build_instruction here = {.line = parsing->line};

    if (strcasecmp(key, "escape") == 0) {
        if ((strcmp(value, "\\") != 0 && strcmp(value, "`") != 0) || *has_escape)
            return fail(parsing, &here, "invalid parser directive \"escape\"",
                        "write it once: # escape=\\ or # escape=`", err);
        parsing->dockerfile->escape = *value;
        *has_escape = true;
    } else if (strcasecmp(key, "syntax") == 0 && !strstr(value, "docker/dockerfile")) {
        return fail(parsing, &here, "unsupported syntax of the Dockerfile",
                    "only docker/dockerfile is supported", err);
    }
    return CAY_OK;
}

/* Copies `len` bytes without blanks around them. */
static void copy_trimmed(char *field, size_t room, const char *text, size_t len)
{
    while (len && is_space(*text)) {
        text++;
        len--;
    }
    while (len && is_space(text[len - 1]))
        len--;
    snprintf(field, room, "%.*s", len < room ? (int)len : (int)room - 1, text);
}

/* "# KEY=VALUE" with a known key. */
static bool is_directive(const char *line, size_t len, char key[16], char value[200])
{
    static const char *const known[] = {"escape", "syntax", "check"};
    const char *mark = memchr(line, '#', len), *equals = memchr(line, '=', len);

    if (!mark || !equals || equals < mark)
        return false;
    copy_trimmed(key, 16, mark + 1, (size_t)(equals - mark) - 1);
    copy_trimmed(value, 200, equals + 1, (size_t)(line + len - equals) - 1);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_left_out(line, len) && strcasecmp(key, known[i]) == 0)
            return true;
    return false;
}

/* They stand before everything else; after another comment they are comments. */
static int take_directives(struct parsing *parsing, struct cay_error *err)
{
    bool has_escape = false;

    for (;;) {
        const struct parsing before = *parsing;
        const char *line;
        size_t len;
        char key[16], value[200];
        if (!next_line(parsing, &line, &len))
            return CAY_OK;
        if (!is_directive(line, len, key, value)) {
            *parsing = before;
            return CAY_OK;
        }
        TRY(take_directive(parsing, key, value, &has_escape, err));
    }
}

/* --- Arguments --- */

static bool add_word(struct build_instruction *instruction, const char *text)
{
    return build_texts_add(&instruction->words, text, strlen(text));
}

/* A JSON array of texts.  Anything else, such as the shell's "[", is no array. */
static int take_array(struct build_instruction *instruction, const char *rest,
                      struct cay_error *err)
{
    if (*rest != '[')
        return CAY_OK;
    json_t *array = json_loads(rest, JSON_REJECT_DUPLICATES, NULL);
    size_t count = json_array_size(array);
    bool are_texts = count > 0 && count <= BUILD_WORDS_MAX, has_room = true;
    for (size_t i = 0; are_texts && i < count; i++)
        are_texts = json_is_string(json_array_get(array, i));
    for (size_t i = 0; are_texts && has_room && i < count; i++)
        has_room = add_word(instruction, json_string_value(json_array_get(array, i)));
    json_decref(array);
    instruction->is_exec = are_texts;
    return has_room ? CAY_OK : cay_fail_memory(err, BUILD_OP);
}

static const char *no_value(void *cookie, const char *name, size_t len)
{
    (void)cookie;
    (void)name;
    (void)len;
    return NULL;
}

/* Reports words that could not be expanded before the first step runs. */
static int check_word(struct parsing *parsing,
                      const struct build_instruction *instruction, const char *raw,
                      struct cay_error *err)
{
    AUTO_FREE char *text = NULL;

    return build_expand(raw, parsing->dockerfile->escape, no_value, NULL,
                        subject_at(parsing, instruction->line), &text, err);
}

static int check_words(struct parsing *parsing,
                       const struct build_instruction *instruction, struct cay_error *err)
{
    for (size_t i = 0; i < instruction->words.count; i++)
        TRY(check_word(parsing, instruction, instruction->words.list[i], err));
    return CAY_OK;
}

static int take_words(struct parsing *parsing, struct build_instruction *instruction,
                      const char *rest, struct cay_error *err)
{
    TRY(build_split(rest, parsing->dockerfile->escape,
                    subject_at(parsing, instruction->line), &instruction->words, err));
    return check_words(parsing, instruction, err);
}

static bool is_stage_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";

    return isalpha((unsigned char)*name) && strspn(name, letters) == strlen(name);
}

static int parse_from(struct parsing *parsing, struct build_instruction *instruction,
                      const char *rest, struct cay_error *err)
{
    struct dockerfile *dockerfile = parsing->dockerfile;
    struct build_texts *words = &instruction->words;

    TRY(take_words(parsing, instruction, rest, err));
    bool is_named = words->count == 3 && strcasecmp(words->list[1], "as") == 0 &&
                    is_stage_name(words->list[2]);
    if (words->count != 1 && !is_named)
        return fail(parsing, instruction, "invalid FROM",
                    "write FROM IMAGE or FROM IMAGE AS NAME; a name starts with a letter",
                    err);
    if (is_named) {
        free(words->list[1]);
        words->list[1] = words->list[2];
        words->list[words->count = 2] = NULL;
        if (build_find_stage(dockerfile, words->list[1], dockerfile->stage_count) >= 0)
            return fail(parsing, instruction, "two stages have the same name",
                        "give each stage its own name", err);
    }
    if (!array_reserve(&dockerfile->stages, &dockerfile->stage_room,
                       dockerfile->stage_count + 1, sizeof *dockerfile->stages))
        return cay_fail_memory(err, BUILD_OP);
    dockerfile->stages[dockerfile->stage_count++] = (struct build_stage){
        .name = is_named ? words->list[1] : NULL, .first = dockerfile->count};
    return CAY_OK;
}

static int parse_command(struct parsing *parsing, struct build_instruction *instruction,
                         const char *rest, struct cay_error *err)
{
    TRY(take_array(instruction, rest, err));
    if (instruction->is_exec)
        return CAY_OK;
    if (instruction->kind == BUILD_SHELL)
        return fail(parsing, instruction, "invalid SHELL",
                    "write a JSON array: SHELL [\"/bin/bash\", \"-c\"]", err);
    return add_word(instruction, rest) ? CAY_OK : cay_fail_memory(err, BUILD_OP);
}

static int parse_healthcheck(struct parsing *parsing,
                             struct build_instruction *instruction, const char *rest,
                             struct cay_error *err)
{
    static const char hint[] = "write HEALTHCHECK NONE or HEALTHCHECK CMD COMMAND";
    size_t len = strcspn(rest, " \t");

    if (len == 4 && strncasecmp(rest, "none", 4) == 0 && !rest[len])
        return add_word(instruction, "NONE") ? CAY_OK : cay_fail_memory(err, BUILD_OP);
    if (len != 3 || strncasecmp(rest, "cmd", 3) != 0 || !rest[len])
        return fail(parsing, instruction, "invalid HEALTHCHECK", hint, err);
    rest += len + strspn(rest + len, " \t");
    if (!*rest)
        return fail(parsing, instruction, "invalid HEALTHCHECK", hint, err);
    if (!add_word(instruction, "CMD"))
        return cay_fail_memory(err, BUILD_OP);
    return parse_command(parsing, instruction, rest, err);
}

/* "NAME=VALUE ..."; of ENV also the old "NAME the rest". */
static int parse_pairs(struct parsing *parsing, struct build_instruction *instruction,
                       const char *rest, struct cay_error *err)
{
    struct build_texts words = {0}, *pairs = &instruction->words;
    const char *subject = subject_at(parsing, instruction->line);
    const char *hint = instruction->kind == BUILD_ENV ? "write ENV NAME=VALUE"
                                                      : "write LABEL NAME=VALUE";
    size_t len = strcspn(rest, " \t=");
    bool is_old = rest[len] && rest[len] != '=';
    bool has_room = true, is_valid = true;

    int code = is_old
                   ? CAY_OK
                   : build_split(rest, parsing->dockerfile->escape, subject, &words, err);
    if (!code && is_old) {
        const char *value = rest + len + strspn(rest + len, " \t");
        has_room = build_texts_add(pairs, rest, len) && add_word(instruction, value);
        is_valid = len > 0;
    }
    for (size_t i = 0; !code && has_room && is_valid && i < words.count; i++) {
        const char *equals = strchr(words.list[i], '=');
        is_valid = equals && equals != words.list[i];
        has_room = !is_valid || (build_texts_add(pairs, words.list[i],
                                                 (size_t)(equals - words.list[i])) &&
                                 add_word(instruction, equals + 1));
    }
    build_texts_done(&words);
    if (!code && !has_room)
        code = cay_fail_memory(err, BUILD_OP);
    if (!code && !is_valid)
        code = fail(parsing, instruction, "a variable or label has no value", hint, err);
    return code ? code : check_words(parsing, instruction, err);
}

static int parse_arg(struct parsing *parsing, struct build_instruction *instruction,
                     const char *rest, struct cay_error *err)
{
    TRY(take_words(parsing, instruction, rest, err));
    for (size_t i = 0; i < instruction->words.count; i++) {
        const char *word = instruction->words.list[i];
        size_t len = strcspn(word, "=");
        for (size_t c = 0; c < len; c++)
            if (!isalnum((unsigned char)word[c]) && word[c] != '_')
                len = 0;
        if (len == 0 || isdigit((unsigned char)*word))
            return fail(parsing, instruction, "invalid name of an argument",
                        "write ARG NAME or ARG NAME=VALUE", err);
    }
    return CAY_OK;
}

static int parse_copy(struct parsing *parsing, struct build_instruction *instruction,
                      const char *rest, struct cay_error *err)
{
    TRY(take_array(instruction, rest, err));
    if (!instruction->is_exec)
        TRY(take_words(parsing, instruction, rest, err));
    for (size_t i = 0; i < instruction->words.count; i++) {
        const char *word = instruction->words.list[i];
        if (strncmp(word, "<<", 2) == 0)
            return fail(parsing, instruction,
                        "a heredoc is supported only as the script of RUN",
                        "write the file in the directory of the build, or with RUN", err);
        if (strstr(word, "://") || strncmp(word, "git@", 4) == 0)
            return fail(parsing, instruction, "the source is on the network",
                        "download it with RUN, under the network rules of the build",
                        err);
        TRY(check_word(parsing, instruction, word, err));
    }
    if (instruction->words.count < 2)
        return fail(parsing, instruction, "a source or the target is missing",
                    "write COPY SOURCE... TARGET", err);
    return CAY_OK;
}

static int parse_list(struct parsing *parsing, struct build_instruction *instruction,
                      const char *rest, struct cay_error *err)
{
    return take_words(parsing, instruction, rest, err);
}

static int parse_one(struct parsing *parsing, struct build_instruction *instruction,
                     const char *rest, struct cay_error *err)
{
    if (!add_word(instruction, rest))
        return cay_fail_memory(err, BUILD_OP);
    return check_words(parsing, instruction, err);
}

/* --- Heredocs of RUN --- */

enum { DELIMITER_MAX = 64 };

/* The end of a word "<<NAME", "<<-NAME" or with quotes around the name; NULL if it is
 * something else. */
static const char *heredoc_end(const char *at, char delimiter[DELIMITER_MAX],
                               bool *ret_tabs)
{
    size_t skip = strspn(at, "<"), len = 0;
    const char *word = at + skip + (at[skip] == '-');
    char around = *word == '"' || *word == '\'' ? *word++ : 0;

    while (isalnum((unsigned char)word[len]) || word[len] == '_')
        len++;
    if (skip != 2 || !len || len >= DELIMITER_MAX || (around && word[len] != around))
        return NULL;
    *ret_tabs = at[skip] == '-';
    memcpy(delimiter, word, len);
    delimiter[len] = '\0';
    return word + len + (around != 0);
}

static const char *find_heredoc(const char *text, char delimiter[DELIMITER_MAX],
                                bool *ret_tabs)
{
    char quote = 0;

    for (const char *at = text; *at; at++) {
        bool is_start = !quote && (at == text || is_space(at[-1]));
        const char *end =
            is_start && *at == '<' ? heredoc_end(at, delimiter, ret_tabs) : NULL;
        if (end)
            return end;
        if (*at == '\\' && at[1] && quote != '\'')
            at++;
        else if (quote ? *at == quote : *at == '"' || *at == '\'')
            quote = quote ? 0 : *at;
    }
    return NULL;
}

/* Appends the lines up to the delimiter: without it if the heredoc is the whole script,
 * else as the shell reads them. */
static int take_body(struct parsing *parsing, const struct build_instruction *instruction,
                     const char *delimiter, bool strips_tabs, bool is_script,
                     struct buf *ret_body, struct cay_error *err)
{
    const char *line;
    size_t len;

    while (next_line(parsing, &line, &len)) {
        size_t tabs = 0;
        while (strips_tabs && tabs < len && line[tabs] == '\t')
            tabs++;
        bool is_end = len - tabs == strlen(delimiter) &&
                      memcmp(line + tabs, delimiter, len - tabs) == 0;
        if (is_end && is_script)
            return CAY_OK;
        size_t from = is_script ? tabs : 0;
        (void)buf_append(ret_body, line + from, len - from);
        (void)buf_text(ret_body, "\n");
        if (is_end)
            return CAY_OK;
    }
    return fail(parsing, instruction, "the end of a heredoc is missing",
                "end it with a line that has only its delimiter", err);
}

static int parse_run(struct parsing *parsing, struct build_instruction *instruction,
                     const char *rest, struct cay_error *err)
{
    char delimiter[DELIMITER_MAX];
    bool strips_tabs;
    AUTO_BUF body = {.max = BUILD_TEXT_MAX}, whole = {.max = 2 * BUILD_TEXT_MAX};
    const char *end = find_heredoc(rest, delimiter, &strips_tabs);

    if (!end)
        return parse_command(parsing, instruction, rest, err);
    bool is_script = strncmp(rest, "<<", 2) == 0 && !*end;
    char other[DELIMITER_MAX];
    bool tabs;
    if (find_heredoc(end, other, &tabs))
        return fail(parsing, instruction, "RUN has several heredocs",
                    "use one heredoc for each RUN", err);
    if (!is_script) {
        (void)buf_text(&body, rest);
        (void)buf_text(&body, "\n");
    }
    TRY(take_body(parsing, instruction, delimiter, strips_tabs, is_script, &body, err));
    if (is_script && (!body.data || strncmp(body.data, "#!", 2) == 0))
        return fail(parsing, instruction,
                    body.data ? "a heredoc with its own interpreter is not supported"
                              : "the heredoc is empty",
                    "pass it to the interpreter: RUN python3 <<EOF", err);
    (void)buf_format(&whole, "%s\n%s", instruction->text, body.data ? body.data : "");
    free(instruction->text);
    instruction->text = buf_take(&whole);
    bool is_added =
        !body.failed && build_texts_add(&instruction->words, body.data, body.len);
    return instruction->text && is_added ? CAY_OK : cay_fail_memory(err, BUILD_OP);
}

/* --- Instructions --- */

static const struct rule rules[BUILD_KINDS] = {
    [BUILD_ADD] = {"ADD", "chown chmod", parse_copy},
    [BUILD_ARG] = {"ARG", "", parse_arg},
    [BUILD_CMD] = {"CMD", "", parse_command},
    [BUILD_COPY] = {"COPY", "from chown chmod", parse_copy},
    [BUILD_ENTRYPOINT] = {"ENTRYPOINT", "", parse_command},
    [BUILD_ENV] = {"ENV", "", parse_pairs},
    [BUILD_EXPOSE] = {"EXPOSE", "", parse_list},
    [BUILD_FROM] = {"FROM", "platform", parse_from},
    [BUILD_HEALTHCHECK] = {"HEALTHCHECK",
                           "interval timeout start-period start-interval retries",
                           parse_healthcheck},
    [BUILD_LABEL] = {"LABEL", "", parse_pairs},
    [BUILD_RUN] = {"RUN", "", parse_run},
    [BUILD_SHELL] = {"SHELL", "", parse_command},
    [BUILD_USER] = {"USER", "", parse_one},
    [BUILD_WORKDIR] = {"WORKDIR", "", parse_one},
};

static bool is_one_of(const char *list, const char *word, size_t len)
{
    for (; *list; list += strspn(list, " ")) {
        size_t each = strcspn(list, " ");
        if (each == len && strncmp(list, word, len) == 0)
            return true;
        list += each;
    }
    return false;
}

/* Flags "--name=value" in front of the arguments; *rest is then after them. */
static int take_flags(struct parsing *parsing, struct build_instruction *instruction,
                      const char **rest, struct cay_error *err)
{
    const struct rule *rule = &rules[instruction->kind];

    while (strncmp(*rest, "--", 2) == 0) {
        const char *flag = *rest + 2;
        size_t len = strcspn(flag, " \t"), name = strcspn(flag, "= \t");
        char shown[64];
        snprintf(shown, sizeof shown, "%s --%.*s", rule->word, name < 40 ? (int)name : 40,
                 flag);
        if (!is_one_of(rule->flags, flag, name) || name + 1 >= len)
            return cay_fail(err,
                            is_one_of(rule->flags, flag, name) ? CAY_E_INVALID
                                                               : CAY_E_UNSUPPORTED,
                            0, BUILD_OP, subject_at(parsing, instruction->line),
                            is_one_of(rule->flags, flag, name)
                                ? "a flag of an instruction has no value"
                                : "unsupported flag of an instruction",
                            "%s: write --NAME=VALUE; supported: %s", shown,
                            *rule->flags ? rule->flags : "none");
        if (!build_texts_add(&instruction->flags, flag, len))
            return cay_fail_memory(err, BUILD_OP);
        const char *added = instruction->flags.list[instruction->flags.count - 1];
        TRY(check_word(parsing, instruction, added + name + 1, err));
        *rest = flag + len + strspn(flag + len, " \t");
    }
    return CAY_OK;
}

static int fail_unknown(struct parsing *parsing, unsigned line, const char *word,
                        struct cay_error *err)
{
    static const char *const unsupported[] = {"MAINTAINER", "ONBUILD", "STOPSIGNAL",
                                              "VOLUME"};
    const char *near = nearest_name(word, rules, sizeof *rules, BUILD_KINDS);

    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (strcmp(word, unsupported[i]) == 0)
            return cay_fail(err, CAY_E_UNSUPPORTED, 0, BUILD_OP,
                            subject_at(parsing, line), "the instruction is not supported",
                            "%s: remove it; cay-build(1) lists what is supported", word);
    return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP, subject_at(parsing, line),
                    "unknown instruction", "%.40s%s%s", word,
                    near ? ": did you mean " : ": cay-build(1) lists the instructions",
                    near ? near : "");
}

static int find_kind(struct parsing *parsing, unsigned line, const char *text, size_t len,
                     enum build_kind *ret_kind, struct cay_error *err)
{
    char word[64];

    snprintf(word, sizeof word, "%.*s", len < 60 ? (int)len : 60, text);
    for (char *at = word; *at; at++)
        *at = (char)toupper((unsigned char)*at);
    for (size_t i = 0; i < BUILD_KINDS; i++)
        if (strcmp(word, rules[i].word) == 0) {
            *ret_kind = (enum build_kind)i;
            return CAY_OK;
        }
    return fail_unknown(parsing, line, word, err);
}

/* ARG may stand before the first FROM, nothing else. */
static int check_order(struct parsing *parsing,
                       const struct build_instruction *instruction, struct cay_error *err)
{
    if (parsing->dockerfile->stage_count || instruction->kind == BUILD_ARG ||
        instruction->kind == BUILD_FROM)
        return CAY_OK;
    return fail(parsing, instruction, "an instruction stands before FROM",
                "start the Dockerfile with FROM; only ARG may stand before it", err);
}

static int parse_instruction(struct parsing *parsing, unsigned line, const char *text,
                             struct cay_error *err)
{
    struct dockerfile *dockerfile = parsing->dockerfile;

    text += strspn(text, " \t");
    size_t len = strcspn(text, " \t");
    enum build_kind kind = BUILD_KINDS;
    TRY(find_kind(parsing, line, text, len, &kind, err));
    if (dockerfile->count == BUILD_INSTRUCTIONS_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, BUILD_OP, subject_at(parsing, line),
                        "too many instructions", "the limit is %d",
                        BUILD_INSTRUCTIONS_MAX);
    if (!array_reserve(&dockerfile->list, &dockerfile->room, dockerfile->count + 1,
                       sizeof *dockerfile->list))
        return cay_fail_memory(err, BUILD_OP);
    struct build_instruction *instruction = &dockerfile->list[dockerfile->count];
    *instruction =
        (struct build_instruction){.kind = kind, .line = line, .text = strdup(text)};
    if (!instruction->text)
        return cay_fail_memory(err, BUILD_OP);
    const char *rest = text + len + strspn(text + len, " \t");
    int code = check_order(parsing, instruction, err);
    if (!code)
        code = take_flags(parsing, instruction, &rest, err);
    if (!code && !*rest)
        code = fail(parsing, instruction, "the instruction has no arguments",
                    "cay-build(1) lists the instructions", err);
    if (!code)
        code = rules[kind].parse(parsing, instruction, rest, err);
    dockerfile->count++;
    return code;
}

int dockerfile_parse(const char *name, const char *text, size_t len,
                     struct dockerfile *ret_dockerfile, struct cay_error *err)
{
    static const char mark[] = "\xEF\xBB\xBF";
    struct parsing parsing = {
        .dockerfile = ret_dockerfile, .name = name, .at = text, .end = text + len};
    unsigned line = 1;
    int code = CAY_OK;

    *ret_dockerfile = (struct dockerfile){.escape = '\\'};
    if (len > BUILD_TEXT_MAX || (len && memchr(text, '\0', len)))
        return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP, name, "not a Dockerfile",
                        "use a text of at most %d bytes", BUILD_TEXT_MAX);
    if (len >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0)
        parsing.at += strlen(mark);
    TRY(take_directives(&parsing, err));
    for (bool has_more = true; !code && has_more;) {
        AUTO_BUF whole = {.max = BUILD_TEXT_MAX};
        has_more = next_instruction(&parsing, &whole, &line);
        if (has_more && (whole.failed || !whole.data))
            code = cay_fail_memory(err, BUILD_OP);
        else if (has_more)
            code = parse_instruction(&parsing, line, whole.data, err);
    }
    for (size_t i = 0; i < ret_dockerfile->stage_count; i++) {
        struct build_stage *stage = &ret_dockerfile->stages[i];
        stage->count = (i + 1 < ret_dockerfile->stage_count ? stage[1].first
                                                            : ret_dockerfile->count) -
                       stage->first;
    }
    if (!code && !ret_dockerfile->stage_count)
        code = cay_fail(err, CAY_E_INVALID, 0, BUILD_OP, name,
                        "the Dockerfile has no FROM", "start it with FROM IMAGE");
    return code;
}

void dockerfile_done(struct dockerfile *dockerfile)
{
    for (size_t i = 0; i < dockerfile->count; i++) {
        free(dockerfile->list[i].text);
        build_texts_done(&dockerfile->list[i].flags);
        build_texts_done(&dockerfile->list[i].words);
    }
    free(dockerfile->list);
    free(dockerfile->stages);
    *dockerfile = (struct dockerfile){0};
}

const char *build_flag(const struct build_instruction *instruction, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < instruction->flags.count; i++) {
        const char *flag = instruction->flags.list[i];
        if (strncmp(flag, name, len) == 0 && flag[len] == '=')
            return flag + len + 1;
    }
    return NULL;
}

int build_find_stage(const struct dockerfile *dockerfile, const char *name, size_t before)
{
    char *end;
    unsigned long number = strtoul(name, &end, 10);

    for (size_t i = 0; i < before; i++)
        if (dockerfile->stages[i].name &&
            strcasecmp(dockerfile->stages[i].name, name) == 0)
            return (int)i;
    return isdigit((unsigned char)*name) && !*end && number < before ? (int)number : -1;
}
