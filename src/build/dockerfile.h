/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BUILD_DOCKERFILE_H
#define BUILD_DOCKERFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "cay/error.h"

/* Reads the text of a Dockerfile.  Everything that Cay does not support is an error here,
 * with the number of its line, so that a build refuses it before the first step. */

#define BUILD_OP "build"

enum {
    BUILD_TEXT_MAX = 1 << 20,
    BUILD_INSTRUCTIONS_MAX = 1000,
    BUILD_WORDS_MAX = 1000,
    BUILD_VALUE_MAX = 64 << 10 /* of a word after expansion */
};

enum build_kind {
    BUILD_ADD,
    BUILD_ARG,
    BUILD_CMD,
    BUILD_COPY,
    BUILD_ENTRYPOINT,
    BUILD_ENV,
    BUILD_EXPOSE,
    BUILD_FROM,
    BUILD_HEALTHCHECK,
    BUILD_LABEL,
    BUILD_RUN,
    BUILD_SHELL,
    BUILD_USER,
    BUILD_WORKDIR,
    BUILD_KINDS
};

struct build_texts {
    char **list; /* NULL-terminated once it has an element */
    size_t count, room;
};
bool build_texts_add(struct build_texts *texts, const char *text, size_t len);
void build_texts_done(struct build_texts *texts);

/* "raw" words still have quotes and variables: build_expand() resolves these. */
struct build_instruction {
    enum build_kind kind;
    unsigned line; /* its first one, from 1 */
    bool is_exec;  /* of RUN, CMD, ENTRYPOINT, HEALTHCHECK, COPY, ADD: a JSON array */
    char *text;    /* as written, on one line; with the bodies of heredocs */
    struct build_texts flags; /* "from=NAME", raw */
    /* FROM: the image, raw, and the name of the stage if it has one.
     * RUN, CMD, ENTRYPOINT: the array, or one text for the shell.  SHELL: the array.
     * HEALTHCHECK: "NONE", or "CMD" and the array or text.
     * ENV, LABEL: name and value in turns, raw.  ARG: "NAME" or "NAME=VALUE", raw.
     * COPY, ADD: sources and the target, raw.  EXPOSE: ports, raw.
     * USER, WORKDIR: one, raw. */
    struct build_texts words;
};

struct build_stage {
    const char *name;    /* or NULL */
    size_t first, count; /* its instructions; the first one is FROM */
};

struct dockerfile {
    char escape; /* "\\" or "`" */
    struct build_instruction *list;
    size_t count, room;
    struct build_stage *stages; /* instructions before the first one are ARG */
    size_t stage_count, stage_room;
};

/* `name` is the name of the file in errors: the subject is "NAME:LINE".  The caller calls
 * dockerfile_done() in any case. */
int dockerfile_parse(const char *name, const char *text, size_t len,
                     struct dockerfile *ret_dockerfile, struct cay_error *err);
void dockerfile_done(struct dockerfile *dockerfile);

/* The flag's raw value, or NULL. */
const char *build_flag(const struct build_instruction *instruction, const char *name);

/* The index of a stage before `before`, by name or number; -1 if there is none. */
int build_find_stage(const struct dockerfile *dockerfile, const char *name,
                     size_t before);

/* --- Words --- */

/* The value of a variable; NULL if it is not set. */
typedef const char *build_lookup(void *cookie, const char *name, size_t len);

/* Resolves quotes, escapes and variables of a raw word: $x, ${x}, ${x:-word},
 * ${x:+word}.  The caller frees the result.  CAY_E_INVALID names `subject`. */
int build_expand(const char *raw, char escape, build_lookup *lookup, void *cookie,
                 const char *subject, char **ret_text, struct cay_error *err);

/* Splits at blanks outside of quotes, which stay in the words. */
int build_split(const char *text, char escape, const char *subject,
                struct build_texts *ret_words, struct cay_error *err);

#endif
