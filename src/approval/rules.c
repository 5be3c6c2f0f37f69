/* SPDX-License-Identifier: Apache-2.0 */
#include "approval/rules.h"

#include <string.h>

bool rules_put(struct buf *buf, const char *text, bool wild)
{
    bool fits = true;

    for (; fits && *text; text++) {
        if (*text == '\n')
            fits = buf_text(buf, "\\n");
        else if (*text == '\t')
            fits = buf_text(buf, "\\t");
        else if (*text == '\\' || (wild && *text == '*'))
            fits = buf_append(buf, "\\", 1) && buf_append(buf, text, 1);
        else
            fits = buf_append(buf, text, 1);
    }
    return fits;
}

static char plain(char escaped)
{
    return (char)(escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped);
}

void rules_unescape(char *text)
{
    char *to = text;

    for (; *text; text++) {
        if (*text == '\\' && text[1])
            *to++ = plain(*++text);
        else
            *to++ = *text;
    }
    *to = '\0';
}

/* "*" would match "docs/../secret" for "docs/". */
static bool leads_up(const char *text)
{
    for (const char *at = text; (at = strstr(at, "..")); at += 2)
        if ((at == text || at[-1] == '/') && (!at[2] || at[2] == '/'))
            return true;
    return false;
}

/* `end` is that of the pattern.  Only the last "*" is ever tried again, so the time is
 * the product of the lengths at most. */
static bool matches(const char *pattern, const char *end, const char *text)
{
    const char *star = NULL, *again = NULL;
    const char *whole = text;

    for (;;) {
        if (pattern < end && *pattern == '*') {
            if (leads_up(whole))
                return false;
            star = ++pattern;
            again = text;
            continue;
        }
        if (pattern == end && !*text)
            return true;
        bool is_escaped = pattern + 1 < end && *pattern == '\\';
        char wanted = '\0';
        if (pattern < end)
            wanted = is_escaped ? plain(pattern[1]) : *pattern;
        if (pattern < end && *text && *text == wanted) {
            pattern += is_escaped ? 2 : 1;
            text++;
        } else if (star && *again) {
            pattern = star;
            text = ++again;
        } else {
            return false;
        }
    }
}

/* Takes the next field of a line off it; false if there is none. */
static bool next_field(const char **line, const char *end, const char **ret_field,
                       const char **ret_end)
{
    if (!*line || *line > end)
        return false;
    const char *tab = memchr(*line, '\t', (size_t)(end - *line));
    *ret_field = *line;
    *ret_end = tab ? tab : end;
    *line = tab ? tab + 1 : end + 1;
    return true;
}

static bool line_matches(const char *line, const char *end, const char *const texts[4])
{
    const char *field, *field_end;

    for (size_t i = 0; i < 4; i++)
        if (!next_field(&line, end, &field, &field_end) ||
            !matches(field, field_end, texts[i]))
            return false;
    return line > end; /* no fifth field */
}

/* Whether the line is one that rules_decide() uses. */
static bool parse_line(const char *text, const char *end, struct rules_line *ret_line)
{
    const char *at = text, *verdict, *verdict_end;
    struct rules_line line = {.text = text, .end = end};

    if (!next_field(&at, end, &verdict, &verdict_end))
        return false;
    for (size_t i = 0; i < 3; i++)
        if (!next_field(&at, end, &line.fields[i], &line.ends[i]))
            return false;
    line.allows = *text == 'a';
    *ret_line = line;
    return at > end && (line.allows || *text == 'd') &&
           matches(verdict, verdict_end, line.allows ? "allow" : "deny");
}

bool rules_next(const char **at, struct rules_line *ret_line)
{
    bool is_rule = false;

    while (**at && !is_rule) {
        const char *end = *at + strcspn(*at, "\n");
        is_rule = parse_line(*at, end, ret_line);
        *at = *end ? end + 1 : end;
    }
    return is_rule;
}

enum cay_decision rules_decide(const char *rules, const char *kind, const char *scope,
                               const char *subject)
{
    const char *const allowed[] = {"allow", kind, scope, subject};
    const char *const denied[] = {"deny", kind, scope, subject};
    enum cay_decision decision = CAY_DECISION_NONE;

    for (const char *line = rules; *line;) {
        const char *end = line + strcspn(line, "\n");
        /* A "*" is no verdict. */
        if (*line == 'd' && line_matches(line, end, denied))
            return CAY_DECISION_NO;
        if (*line == 'a' && line_matches(line, end, allowed))
            decision = CAY_DECISION_YES;
        line = *end ? end + 1 : end;
    }
    return decision;
}
