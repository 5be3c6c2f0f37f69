/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODE_DRIVER_H
#define CODE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cay/error.h"

/* A text of data/code, embedded in the library. */
struct code_source {
    const char *text;
    const unsigned long *size;
};

enum { CODE_ALIASES_MAX = 5 };

/* How the interpreter of a language is started, and what it is sent first. */
struct code_language {
    const char *names[CODE_ALIASES_MAX]; /* the first is that of results */
    const char *kernel; /* whose default context it uses: "javascript" for typescript */
    uint64_t interrupt_ms; /* SIGINT is repeated after this time; 0: once is enough */
    const char *dialect;   /* sent with each execution, or NULL */
    const char *argv[6];   /* before the loader */
    struct code_source loader;
    const char *last;         /* an argument behind the loader, or NULL */
    struct code_source start; /* the first line; none: text NULL */
};

/* NULL if the language has no contexts. */
const struct code_language *code_language_find(const char *name);

/* CAY_E_INVALID with a suggestion, or CAY_E_UNSUPPORTED for a language of
 * cay_code_run(). */
int code_fail_language(const char *name, struct cay_error *err);

/* Appends what a DRIVER message has behind the language. */
int code_language_pack(const struct code_language *language, struct buf *message,
                       uint32_t *ret_words, struct cay_error *err);

#endif
