/* SPDX-License-Identifier: Apache-2.0 */
#ifndef APPROVAL_RULES_H
#define APPROVAL_RULES_H

#include "base/buf.h"
#include "cay/approval.h"

/* Rules are lines of a file: "allow" or "deny", the kind, the scope and the subject, with
 * a tab between them.  "*" in the last two matches any text; "\" is before a "*", a "\",
 * a tab ("\t") or a line end ("\n") of the text itself. */

enum { RULES_MAX = 1 << 20 };

/* One text of a line, escaped; `wild` also escapes "*". */
bool rules_put(struct buf *buf, const char *text, bool wild);

/* Undoes rules_put() in place. */
void rules_unescape(char *text);

/* A line of the rules: its fields begin with the kind, each ends before `ends`. */
struct rules_line {
    const char *text, *end;
    bool allows;
    const char *fields[3], *ends[3];
};

/* The next rule at or after *at, which then is behind it; false: there is none. */
bool rules_next(const char **at, struct rules_line *ret_line);

/* What the rules say; a denial comes first. */
enum cay_decision rules_decide(const char *rules, const char *kind, const char *scope,
                               const char *subject);

#endif
