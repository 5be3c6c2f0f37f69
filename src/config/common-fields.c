/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "config/fields.h"

static const char *const after_run[] = {"stop", "pause", "none", NULL};

const struct cay_field fields_common[] = {
    {.name = "type",
     .type = CAY_FIELD_TEXT,
     .about = "The backend that runs the sandbox. Below sandbox_config the default is "
              "local, else native."},
    {.name = "library",
     .type = CAY_FIELD_PATH,
     .about = "A shared object with a backend of your own, loaded before anything else "
              "is looked at."},
    {.name = "sandbox_id",
     .type = CAY_FIELD_TEXT,
     .about = "Use the sandbox of this id, which must be there, instead of a new one."},
    {.name = "work_dir",
     .alias = "_work_dir",
     .type = CAY_FIELD_TEXT,
     .about = "Where commands start, and relative paths inside."},
    {.name = "envs",
     .alias = "env",
     .type = CAY_FIELD_MAP,
     .about = "Environment variables of every command."},
    {.name = "persist_sandbox",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "true",
     .about = "Whether the sandbox outlives a run: paused if so, else stopped."},
    {.name = "status_after_run",
     .type = CAY_FIELD_CHOICE,
     .choices = after_run,
     .about = "What becomes of the sandbox after a run; must agree with persist_sandbox, "
              "which decides if this is not given."},
    {.name = "output_char_threshold",
     .type = CAY_FIELD_INTEGER,
     .fallback = "10000",
     .most = INT32_MAX,
     .about = "Output of this many characters or more is shortened."},
    {.name = "truncate_head_chars",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5000",
     .most = INT32_MAX,
     .about = "How many characters of the beginning are then kept."},
    {.name = "truncate_tail_chars",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5000",
     .most = INT32_MAX,
     .about = "How many characters of the end are then kept."},
};

const size_t fields_common_count = sizeof fields_common / sizeof *fields_common;

bool fields_match(const struct cay_field *field, const char *name)
{
    return strcmp(field->name, name) == 0 ||
           (field->alias && strcmp(field->alias, name) == 0);
}
