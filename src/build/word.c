/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "build/dockerfile.h"

enum { NESTED_MAX = 8 };

bool build_texts_add(struct build_texts *texts, const char *text, size_t len)
{
    if (!array_reserve(&texts->list, &texts->room, texts->count + 2, sizeof *texts->list))
        return false;
    char *copy = strndup(text, len);
    texts->list[texts->count] = copy;
    texts->list[texts->count + (copy != NULL)] = NULL;
    texts->count += copy != NULL;
    return copy != NULL;
}

void build_texts_done(struct build_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        free(texts->list[i]);
    free(texts->list);
    *texts = (struct build_texts){0};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int fail_quote(const char *subject, char quote, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP, subject, "a quote is not closed",
                    "add the missing %c, or escape the first one", quote);
}

/* --- Splitting --- */

/* The end of the word that starts at `at`; NULL if a quote in it is not closed. */
static const char *word_end(const char *at, char escape, char *ret_quote)
{
    *ret_quote = 0;
    for (; *at && (*ret_quote || !is_blank(*at)); at++) {
        if (*at == escape && *ret_quote != '\'' && at[1])
            at++;
        else if (*ret_quote ? *at == *ret_quote : *at == '"' || *at == '\'')
            *ret_quote = *ret_quote ? 0 : *at;
    }
    return *ret_quote ? NULL : at;
}

int build_split(const char *text, char escape, const char *subject,
                struct build_texts *ret_words, struct cay_error *err)
{
    char quote;

    for (;;) {
        while (is_blank(*text))
            text++;
        if (!*text)
            return CAY_OK;
        const char *end = word_end(text, escape, &quote);
        if (!end)
            return fail_quote(subject, quote, err);
        if (ret_words->count == BUILD_WORDS_MAX)
            return cay_fail(err, CAY_E_LIMIT, 0, BUILD_OP, subject,
                            "the instruction has too many words", "the limit is %d",
                            BUILD_WORDS_MAX);
        if (!build_texts_add(ret_words, text, (size_t)(end - text)))
            return cay_fail_memory(err, BUILD_OP);
        text = end;
    }
}

/* --- Expansion --- */

struct expansion {
    const char *at;
    char escape;
    build_lookup *lookup;
    void *cookie;
    const char *subject;
    struct buf *out;
    unsigned depth;
};

static bool is_name_start(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static size_t name_len(const char *text)
{
    size_t len = 0;

    if (!is_name_start(*text))
        return 0;
    while (is_name_start(text[len]) || isdigit((unsigned char)text[len]))
        len++;
    return len;
}

static int expand_until(struct expansion *expansion, char end, struct cay_error *err);

static int fail_variable(const struct expansion *expansion, const char *message,
                         struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP, expansion->subject, message,
                    "write $NAME, ${NAME}, ${NAME:-word} or ${NAME:+word}");
}

/* After "${NAME:-" or "${NAME:+": the word up to "}" is used or left out. */
static int expand_word(struct expansion *expansion, bool is_used, struct cay_error *err)
{
    AUTO_BUF left_out = {.max = BUILD_VALUE_MAX};
    struct expansion inner = *expansion;

    if (++inner.depth > NESTED_MAX)
        return fail_variable(expansion, "variables are nested too deeply", err);
    if (!is_used)
        inner.out = &left_out;
    TRY(expand_until(&inner, '}', err));
    if (*inner.at != '}')
        return fail_variable(expansion, "a variable's brace is not closed", err);
    expansion->at = inner.at + 1;
    return CAY_OK;
}

/* After "${". */
static int expand_braces(struct expansion *expansion, struct cay_error *err)
{
    const char *name = expansion->at;
    size_t len = name_len(name);

    if (len == 0)
        return fail_variable(expansion, "invalid name of a variable", err);
    const char *value = expansion->lookup(expansion->cookie, name, len);
    bool is_set = value && *value;
    expansion->at += len;
    if (*expansion->at == '}') {
        expansion->at++;
        (void)buf_text(expansion->out, value ? value : "");
        return CAY_OK;
    }
    char kind = expansion->at[0] == ':' ? expansion->at[1] : '\0';
    if (kind != '-' && kind != '+')
        return fail_variable(expansion,
                             *expansion->at ? "unsupported form of a variable"
                                            : "a variable's brace is not closed",
                             err);
    expansion->at += 2;
    if (kind == '-' && is_set)
        (void)buf_text(expansion->out, value);
    return expand_word(expansion, (kind == '+') == is_set, err);
}

/* After "$". */
static int expand_variable(struct expansion *expansion, struct cay_error *err)
{
    size_t len = name_len(expansion->at);

    if (*expansion->at == '{') {
        expansion->at++;
        return expand_braces(expansion, err);
    }
    if (len == 0) {
        (void)buf_text(expansion->out, "$");
        return CAY_OK;
    }
    const char *value = expansion->lookup(expansion->cookie, expansion->at, len);
    (void)buf_text(expansion->out, value ? value : "");
    expansion->at += len;
    return CAY_OK;
}

/* Inside double quotes the escape character only escapes these and itself. */
static bool is_escape(const struct expansion *expansion, char quote)
{
    char next = expansion->at[1];

    return *expansion->at == expansion->escape && next &&
           (!quote || next == '"' || next == '$' || next == expansion->escape);
}

static int expand_until(struct expansion *expansion, char end, struct cay_error *err)
{
    char quote = 0;

    for (; *expansion->at && (quote || *expansion->at != end);) {
        char c = *expansion->at;
        if (quote != '\'' && is_escape(expansion, quote)) {
            (void)buf_append(expansion->out, expansion->at + 1, 1);
            expansion->at += 2;
        } else if (quote != '\'' && c == '$') {
            expansion->at++;
            TRY(expand_variable(expansion, err));
        } else if (quote ? c == quote : c == '"' || c == '\'') {
            quote = quote ? 0 : c;
            expansion->at++;
        } else {
            (void)buf_append(expansion->out, expansion->at++, 1);
        }
    }
    return quote ? fail_quote(expansion->subject, quote, err) : CAY_OK;
}

int build_expand(const char *raw, char escape, build_lookup *lookup, void *cookie,
                 const char *subject, char **ret_text, struct cay_error *err)
{
    AUTO_BUF out = {.max = BUILD_VALUE_MAX};
    struct expansion expansion = {.at = raw,
                                  .escape = escape,
                                  .lookup = lookup,
                                  .cookie = cookie,
                                  .subject = subject,
                                  .out = &out};

    *ret_text = NULL;
    TRY(expand_until(&expansion, '\0', err));
    if (out.failed)
        return cay_fail(err, CAY_E_LIMIT, 0, BUILD_OP, subject,
                        "a value is too long after its variables were replaced",
                        "the limit is %d bytes", BUILD_VALUE_MAX);
    *ret_text = out.data ? buf_take(&out) : strdup("");
    return *ret_text ? CAY_OK : cay_fail_memory(err, BUILD_OP);
}
