/* SPDX-License-Identifier: Apache-2.0 */
#include "code/driver.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/nearest.h"
#include "cay/code.h"

#define SOURCE(name)                                                                     \
    extern const char name[] __attribute__((visibility("hidden")));                      \
    extern const unsigned long name##_size __attribute__((visibility("hidden")));

/* Files of data/code: see meson.build. */
SOURCE(code_python_loader)
SOURCE(code_python_start)
SOURCE(code_node_loader)
SOURCE(code_node_start)
SOURCE(code_bash_core)

#define EMBEDDED(name)                                                                   \
    {                                                                                    \
        name, &name##_size                                                               \
    }

#define NODE                                                                             \
    .kernel = "javascript", .argv = {"node", "-e"},                                      \
    .loader = EMBEDDED(code_node_loader), .start = EMBEDDED(code_node_start)

static const struct code_language languages[] = {
    {.names = {"python", "py", "python3", "ipython"},
     .kernel = "python",
     .argv = {"python3", "-c"},
     .loader = EMBEDDED(code_python_loader),
     .start = EMBEDDED(code_python_start)},
    {.names = {"javascript", "js", "node", "nodejs"}, NODE},
    {.names = {"typescript", "ts"}, .dialect = "typescript", NODE},
    {.names = {"bash"},
     .kernel = "bash",
     .argv = {"bash", "--noprofile", "--norc", "-c"},
     .interrupt_ms = 250, /* a child that it forks after the signal does not get it */
     .loader = EMBEDDED(code_bash_core),
     .last = "bash"},
};

enum { LANGUAGES = sizeof languages / sizeof *languages };

const char *cay_context_language(size_t index)
{
    return index < LANGUAGES ? languages[index].names[0] : NULL;
}

const struct code_language *code_language_find(const char *name)
{
    for (size_t i = 0; i < LANGUAGES; i++)
        for (size_t k = 0; k < CODE_ALIASES_MAX && languages[i].names[k]; k++)
            if (strcasecmp(languages[i].names[k], name) == 0)
                return &languages[i];
    return NULL;
}

int code_fail_language(const char *name, struct cay_error *err)
{
    const char *near =
        nearest_name(name, languages[0].names, sizeof *languages, LANGUAGES);
    char all[128] = "";

    for (size_t i = 0, used = 0; i < LANGUAGES && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "",
                                 languages[i].names[0]);
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, "code.language", name,
                    "this language has no contexts", "%s%s%slanguages with contexts: %s",
                    near ? "did you mean " : "", near ? near : "", near ? "? " : "", all);
}

int code_language_pack(const struct code_language *language, struct buf *message,
                       uint32_t *ret_words, struct cay_error *err)
{
    uint32_t words = 1;

    if (language->dialect)
        buf_format(message, ",\"language\":\"%s\"", language->dialect);
    buf_append(message, "", 1);
    for (const char *const *word = language->argv; *word; word++, words++)
        buf_append(message, *word, strlen(*word) + 1);
    buf_append(message, language->loader.text, *language->loader.size);
    buf_append(message, "", 1);
    if (language->last) {
        buf_append(message, language->last, strlen(language->last) + 1);
        words++;
    }
    *ret_words = words;
    if (language->start.text)
        buf_append(message, language->start.text, *language->start.size);
    if (message->failed)
        return cay_fail_memory(err, "code.driver");
    return CAY_OK;
}
