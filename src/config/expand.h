/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_EXPAND_H
#define CONFIG_EXPAND_H

#include "base/buf.h"
#include "config/yaml.h"

struct record;

/* "${...}" within values, replaced after the text was parsed: whatever stands in the
 * environment becomes part of one value and is never read as YAML.
 *
 *     ${env.NAME}        the environment variable
 *     ${this_file_dir}   the directory that relative paths start at, absolute
 *     ${variables.a.b}   the value of b: below a: below variables:, in the same text;
 *                        the first two may be in it
 *     $${                a plain "${"
 */
struct expand {
    const char *directory;
    const struct record *variables;
    struct buf text;    /* what the last event became */
    struct buf written; /* the same with each "${env.NAME}" left, and "$${" */
    bool has_no_form;   /* it cannot be written so: `written` is of no use */
    bool is_lax;        /* a variable that is not set makes the event a missing one */
    bool is_missing;
    size_t spent; /* bytes made so far: few bytes refer to a long text many times */
};

void expand_done(struct expand *expand);

/* Leaves an event without "${" as it is.  What it becomes lives until the next one; what
 * comes from the environment can be told by event->written. */
int expand_event(struct expand *expand, const struct yaml *yaml, struct yaml_event *event,
                 struct cay_error *err);

/* The text is nothing but one "${env.NAME}". */
bool expand_is_env(const char *text);

#endif
