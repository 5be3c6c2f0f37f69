/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_INSIDE_H
#define TESTS_INSIDE_H

#include "ledger.h"

/* Files of a sandbox, for tests of its files. */

static inline cay_files *files_of(cay_sandbox *sandbox, const char *user)
{
    cay_files *files = NULL;

    ASSERT_OK(cay_sandbox_files(sandbox, user, &files, &err));
    return files;
}

static inline void put(cay_files *files, const char *path, const char *text)
{
    ASSERT_OK(cay_files_write(files, path, text, strlen(text), NULL, &err));
}

static inline void expect(cay_files *files, const char *path, const char *text)
{
    struct cay_page page = {0};

    ASSERT_OK(cay_files_read_bytes(files, path, NULL, &page, &err));
    ASSERT_STR(page.text, text);
    cay_page_done(&page);
}

static inline int read_code(cay_files *files, const char *path)
{
    struct cay_page page = {0};
    int code = cay_files_read_bytes(files, path, NULL, &page, &err);

    cay_page_done(&page);
    return code;
}

static inline int write_code(cay_files *files, const char *path)
{
    return cay_files_write(files, path, "x", 1, NULL, &err);
}

/* What a command inside says, without its last newline; until the next. */
static inline const char *told(cay_sandbox *sandbox, const char *script)
{
    run_as(sandbox, "root", script, PATIENCE_MS);
    if (result.exit_code != 0)
        harness_fail(__FILE__, __LINE__, "%s: exit %d: %s", script, result.exit_code,
                     result.error);
    if (result.out_len && result.out[result.out_len - 1] == '\n')
        result.out[result.out_len - 1] = '\0';
    return result.out;
}

/* The same for what goes on after it. */
static inline void start(cay_sandbox *sandbox, const char *command)
{
    char script[4096];

    snprintf(script, sizeof script, "setsid %s >/dev/null 2>&1 </dev/null &", command);
    (void)told(sandbox, script);
}

/* Says nothing about the machine outside. */
static inline void assert_discreet(const struct cay_error *error)
{
    const char *const texts[] = {error->subject, error->message, error->hint};

    for (size_t i = 0; i < 3; i++)
        ASSERT(!strstr(texts[i], "/run/cay") && !strstr(texts[i], "/proc/self") &&
               !strstr(texts[i], "187904") && !strstr(texts[i], "memfd"));
}

#endif
