/* SPDX-License-Identifier: Apache-2.0 */
#include "config/common-fields.h"

static const char *const after_run[] = {"stop", "pause", "none", NULL};

const struct cay_field common_fields[] = {
    {.name = "type",
     .type = CAY_FIELD_TEXT,
     .about = "the backend that runs it; below sandbox_config the default is local, "
              "elsewhere native"},
    {.name = "library",
     .type = CAY_FIELD_PATH,
     .about = "a shared object with a backend of your own, which is loaded first; its "
              "code runs, so name none that you do not trust"},
    {.name = "sandbox_id",
     .type = CAY_FIELD_TEXT,
     .about = "use the sandbox of this id, which must be there, and no new one"},
    {.name = "work_dir",
     .alias = "_work_dir",
     .type = CAY_FIELD_TEXT,
     .about = "where commands start, and relative paths inside"},
    {.name = "envs",
     .alias = "env",
     .type = CAY_FIELD_MAP,
     .about = "environment variables of every command"},
    {.name = "persist_sandbox",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "true",
     .about = "whether it outlives a run: if so it is paused then, else stopped"},
    {.name = "status_after_run",
     .type = CAY_FIELD_CHOICE,
     .choices = after_run,
     .about = "what becomes of it after a run; if not given, persist_sandbox decides, "
              "and the two must not contradict each other"},
    {.name = "output_char_threshold",
     .type = CAY_FIELD_INTEGER,
     .fallback = "10000",
     .most = INT32_MAX,
     .about = "output of this many characters or more is shortened, with clean_output"},
    {.name = "truncate_head_chars",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5000",
     .most = INT32_MAX,
     .about = "how many characters of its beginning are then kept"},
    {.name = "truncate_tail_chars",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5000",
     .most = INT32_MAX,
     .about = "how many characters of its end are then kept"},
    {.name = "clean_output",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "true",
     .about = "whether output is made fit to read: escape sequences, overwritten and "
              "repeated lines taken out, and what is long shortened"},
    {.name = "raise_errors",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "false",
     .about = "whether failures that can be expected are exceptions in Python, rather "
              "than results"},
};

const size_t common_fields_count = sizeof common_fields / sizeof *common_fields;
