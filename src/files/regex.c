/* SPDX-License-Identifier: Apache-2.0 */
#include "files/regex.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

enum {
    PATTERN_MAX = 64 << 10,
    STEPS_MAX = 2000000, /* of one match: some tens of milliseconds */
    HEAP_KIB_MAX = 16 << 10,
    STACK_START = 32 << 10,
    STACK_MAX = 1 << 20
};

static int fail_syntax(const char *op, const char *text, int number, size_t offset,
                       struct cay_error *err)
{
    char reason[256], message[384];

    pcre2_get_error_message(number, (PCRE2_UCHAR *)reason, sizeof reason);
    snprintf(message, sizeof message, "the regular expression is wrong at byte %zu: %s",
             offset, reason);
    return cay_fail(err, CAY_E_INVALID, 0, op, text, message,
                    "correct it, or search for the text as it is (fixed)");
}

static pcre2_code *compile(const char *text, unsigned flags, int *ret_number,
                           size_t *ret_offset)
{
    uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);

    *ret_number = PCRE2_ERROR_NOMEMORY;
    if (!context)
        return NULL;
    options |= flags & REGEX_FIXED ? PCRE2_LITERAL : PCRE2_NEVER_BACKSLASH_C;
    options |= flags & REGEX_IGNORE_CASE ? PCRE2_CASELESS : 0;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(context, PATTERN_MAX);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, strlen(text), options, ret_number,
                                     ret_offset, context);
    pcre2_compile_context_free(context);
    return code;
}

int regex_compile(const char *op, const char *text, unsigned flags,
                  struct regex *ret_regex, struct cay_error *err)
{
    size_t offset = 0;
    int number;

    *ret_regex = (struct regex){.code = compile(text, flags, &number, &offset)};
    if (!ret_regex->code)
        return number == PCRE2_ERROR_NOMEMORY
                   ? cay_fail_memory(err, op)
                   : fail_syntax(op, text, number, offset, err);
    ret_regex->data = pcre2_match_data_create(1, NULL);
    ret_regex->context = pcre2_match_context_create(NULL);
    if (!ret_regex->data || !ret_regex->context)
        return cay_fail_memory(err, op);
    pcre2_set_match_limit(ret_regex->context, STEPS_MAX);
    pcre2_set_heap_limit(ret_regex->context, HEAP_KIB_MAX);
    /* Without a compiler to machine code (no memory may be executable, say) it is slower
     * and does the same. */
    if (pcre2_jit_compile(ret_regex->code, PCRE2_JIT_COMPLETE) == 0) {
        ret_regex->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
        if (ret_regex->stack)
            pcre2_jit_stack_assign(ret_regex->context, NULL, ret_regex->stack);
    }
    return CAY_OK;
}

void regex_done(struct regex *regex)
{
    pcre2_jit_stack_free(regex->stack);
    pcre2_match_context_free(regex->context);
    pcre2_match_data_free(regex->data);
    pcre2_code_free(regex->code);
    *regex = (struct regex){0};
}

int regex_fail(int code, const char *op, struct cay_error *err)
{
    if (code == CAY_E_NO_MEMORY)
        return cay_fail_memory(err, op);
    return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                    "the regular expression takes too many steps on a line",
                    "use a simpler one: avoid nested repeats such as (a+)+");
}

int regex_match(const struct regex *regex, const char *op, const struct regex_text *text,
                struct regex_span *ret_span, struct cay_error *err)
{
    int found =
        pcre2_match(regex->code, (PCRE2_SPTR)text->bytes, text->len, text->start,
                    text->goes_on ? PCRE2_NOTEOL : 0, regex->data, regex->context);

    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0)
        return regex_fail(found == PCRE2_ERROR_NOMEMORY ? CAY_E_NO_MEMORY : CAY_E_LIMIT,
                          op, err);
    const size_t *spans = pcre2_get_ovector_pointer(regex->data);
    /* "\K" in a lookahead can put the start after the end, in a lookbehind before what is
     * searched. */
    ret_span->end = spans[1] > text->start ? spans[1] : text->start;
    ret_span->start = spans[0] < ret_span->end ? spans[0] : ret_span->end;
    if (ret_span->start < text->start)
        ret_span->start = text->start;
    return 1;
}
