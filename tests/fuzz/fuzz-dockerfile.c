/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are a Dockerfile or an error with a message and a hint.  Every word of one
 * that is accepted can be expanded, unless it becomes too long.  The same bytes as a
 * .dockerignore. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "build/dockerfile.h"
#include "build/ignore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

static const char *look_up(void *cookie, const char *name, size_t len)
{
    (void)cookie;
    CHECK(len > 0);
    return *name == 'a' ? "value" : NULL;
}

static void check_words(const struct dockerfile *file,
                        const struct build_instruction *instruction)
{
    static const bool is_raw[BUILD_KINDS] = {
        [BUILD_ADD] = true,   [BUILD_ARG] = true,    [BUILD_COPY] = true,
        [BUILD_ENV] = true,   [BUILD_EXPOSE] = true, [BUILD_FROM] = true,
        [BUILD_LABEL] = true, [BUILD_USER] = true,   [BUILD_WORKDIR] = true};
    struct cay_error err;

    CHECK(instruction->kind < BUILD_KINDS && instruction->line > 0);
    CHECK(instruction->text[0] && instruction->words.count > 0);
    for (size_t i = 0; is_raw[instruction->kind] && i < instruction->words.count; i++) {
        AUTO_FREE char *text = NULL;
        int code = build_expand(instruction->words.list[i], file->escape, look_up, NULL,
                                "word", &text, &err);
        CHECK(code == CAY_OK || code == CAY_E_LIMIT);
        CHECK((text != NULL) == (code == CAY_OK));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cay_error err = {.code = 0};
    struct dockerfile file;
    struct ignore ignore;

    int code = dockerfile_parse("file", (const char *)data, size, &file, &err);
    if (code)
        CHECK(err.message[0] && err.hint[0] && err.subject[0]);
    else
        CHECK(file.stage_count > 0 && file.count >= file.stage_count);
    for (size_t i = 0; !code && i < file.count; i++)
        check_words(&file, &file.list[i]);
    dockerfile_done(&file);
    if (ignore_parse((const char *)data, size, &ignore, &err) == CAY_OK)
        (void)ignore_matches(&ignore, "some/path/below");
    ignore_done(&ignore);
    return 0;
}
