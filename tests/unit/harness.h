/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "cay/error.h"
#include "cay/files.h"

/* One executable per file, one process for its tests, TAP on stdout.  A test is named by
 * the sentence that is true:
 *
 *     TEST(a_denial_says_what_is_granted)
 *     {
 *         ASSERT_CODE(cay_files_read(files, "/x", NULL, &page, &err), CAY_E_OUTSIDE);
 *         ASSERT_STR(err.subject, "/x");
 *     }
 *
 * After each test its scratch directory is removed, and the test fails if it leaves a
 * descriptor open or a child behind.  Arguments of the program are name patterns ("*" and
 * "?"): only the tests that match one are run; CAY_LEAVE_OUT has those that are not, with
 * blanks between them. */
#define TEST(name)                                                                       \
    static void name(void);                                                              \
    __attribute__((constructor)) static void register_##name(void)                       \
    {                                                                                    \
        harness_register(#name, name);                                                   \
    }                                                                                    \
    static void name(void)

/* The error that every assertion on a code looks at: pass &err. */
static struct cay_error err __attribute__((unused));

#define ASSERT(condition)                                                                \
    do {                                                                                 \
        if (!(condition))                                                                \
            harness_fail(__FILE__, __LINE__, "not true: %s", #condition);                \
    } while (0)

/* Also checks what holds for every call: success leaves err alone, and a failure that
 * fills it has the code that is returned, a message and a hint. */
#define ASSERT_CODE(expression, code)                                                    \
    do {                                                                                 \
        memset(&err, 0, sizeof err);                                                     \
        int returned_ = (expression);                                                    \
        harness_code(__FILE__, __LINE__, #expression, returned_, (code), &err);          \
    } while (0)
#define ASSERT_OK(expression) ASSERT_CODE(expression, CAY_OK)

#define ASSERT_INT(value, expected)                                                      \
    harness_int(__FILE__, __LINE__, #value, (intmax_t)(value), (intmax_t)(expected))

/* NULL equals only NULL. */
#define ASSERT_STR(value, expected)                                                      \
    harness_str(__FILE__, __LINE__, #value, (value), (expected))
#define ASSERT_HAS(text, part) harness_has(__FILE__, __LINE__, #text, (text), (part))

#define ASSERT_MEM(value, len, expected, expected_len)                                   \
    harness_mem(__FILE__, __LINE__, #value, (value), (len), (expected), (expected_len))

/* For what this machine lacks.  A failure when CAY_MUST_WORK=1. */
#define SKIP(reason) harness_skip(__FILE__, __LINE__, (reason))

/* Ends the current test, which passes with this remark behind its name. */
_Noreturn void harness_remark(const char *remark);

/* Called at the end of the current test, also if it fails. */
void harness_at_end(void (*clean)(void));

/* An empty directory of this test's own; absolute and link-free. */
const char *scratch(void);

/* "SCRATCH/name"; lives until the end of the test. */
const char *scratch_path(const char *name);

/* A file below scratch() with its parents made, and the whole of one, NUL-terminated
 * (NULL if there is none); the latter lives until the end of the test. */
void put_file(const char *name, const char *text);
void put_bytes(const char *name, const void *data, size_t len);
const char *get_file(const char *name);

static inline void auto_cay_policy(cay_policy **policy)
{
    cay_policy_free(*policy);
}

static inline void auto_cay_files(cay_files **files)
{
    cay_files_free(*files);
}

static inline void auto_cay_reader(cay_reader **reader)
{
    cay_reader_free(*reader);
}

/* The tests whose name matches one of the patterns, or all; the exit status.  A program
 * that has a main() of its own calls it. */
int harness_run(int patterns, char *const *pattern);

void harness_register(const char *name, void (*run)(void));
_Noreturn void harness_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void harness_skip(const char *file, int line, const char *reason);
void harness_code(const char *file, int line, const char *expression, int returned,
                  int expected, const struct cay_error *error);
void harness_int(const char *file, int line, const char *expression, intmax_t value,
                 intmax_t expected);
void harness_str(const char *file, int line, const char *expression, const char *value,
                 const char *expected);
void harness_has(const char *file, int line, const char *expression, const char *text,
                 const char *part);
void harness_mem(const char *file, int line, const char *expression, const void *value,
                 size_t len, const void *expected, size_t expected_len);

#endif
