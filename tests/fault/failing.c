/* SPDX-License-Identifier: Apache-2.0 */
#include "failing.h"

#include <errno.h>
#include <libfyaml.h>
#include <locale.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { BLOCKS_MAX = 65536 };

/* Shared with the children: what happens there is to be seen here. */
static struct {
    atomic_uint tried[2]; /* by enum failing_where */
    atomic_bool failed;
} * shared;

static bool armed;
static enum failing_where armed_where;
static unsigned armed_nth;
static pid_t owner;

static uintptr_t blocks[BLOCKS_MAX];
static size_t block_count;

void failing_start(enum failing_where where, unsigned nth)
{
    if (!shared) {
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            abort();
    }
    atomic_store(&shared->tried[FAILING_HERE], 0);
    atomic_store(&shared->tried[FAILING_CHILD], 0);
    atomic_store(&shared->failed, false);
    block_count = 0;
    owner = getpid();
    armed_where = where;
    armed_nth = nth;
    armed = true;
}

struct failing_tally failing_stop(void)
{
    armed = false;
    return (struct failing_tally){.here = atomic_load(&shared->tried[FAILING_HERE]),
                                  .child = atomic_load(&shared->tried[FAILING_CHILD]),
                                  .failed = atomic_load(&shared->failed)};
}

size_t failing_unfreed(void)
{
    return block_count;
}

static bool fails(void)
{
    if (!armed)
        return false;
    enum failing_where here = getpid() == owner ? FAILING_HERE : FAILING_CHILD;
    unsigned number = atomic_fetch_add(&shared->tried[here], 1) + 1;
    if (here != armed_where || number != armed_nth)
        return false;
    atomic_store(&shared->failed, true);
    errno = ENOMEM;
    return true;
}

static void *note(void *block)
{
    if (!armed || !block)
        return block;
    if (block_count == BLOCKS_MAX)
        abort();
    blocks[block_count++] = (uintptr_t)block;
    return block;
}

/* A block of a library's is not known, and that is fine. */
static void forget(uintptr_t block)
{
    for (size_t i = block_count; i-- > 0;)
        if (blocks[i] == block) {
            blocks[i] = blocks[--block_count];
            return;
        }
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__real_strndup(const char *text, size_t max);
char *__wrap_strndup(const char *text, size_t max);
int __wrap_asprintf(char **ret_text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int __wrap___asprintf_chk(char **ret_text, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void __real_free(void *block);
void __wrap_free(void *block);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : note(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : note(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    uintptr_t was = (uintptr_t)old;

    if (fails())
        return NULL;
    void *grown = __real_realloc(old, size);
    if (grown)
        forget(was);
    return note(grown);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return __wrap_realloc(old, bytes);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : note(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t max)
{
    return fails() ? NULL : note(__real_strndup(text, max));
}

__attribute__((format(printf, 2, 0))) static int print(char **ret_text,
                                                       const char *format, va_list args)
{
    if (fails())
        return -1;
    int len = vasprintf(ret_text, format, args);
    if (len >= 0)
        note(*ret_text);
    return len;
}

int __wrap_asprintf(char **ret_text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int len = print(ret_text, format, args);
    va_end(args);
    return len;
}

int __wrap___asprintf_chk(char **ret_text, int level, const char *format, ...)
{
    va_list args;

    (void)level;
    va_start(args, format);
    int len = print(ret_text, format, args);
    va_end(args);
    return len;
}

void __wrap_free(void *block)
{
    forget((uintptr_t)block);
    __real_free(block);
}

#define CONSTRUCTOR(type, name, parameters, arguments)                                   \
    type __real_##name parameters;                                                       \
    type __wrap_##name parameters;                                                       \
    type __wrap_##name parameters                                                        \
    {                                                                                    \
        return fails() ? NULL : __real_##name arguments;                                 \
    }

CONSTRUCTOR(struct fy_diag *, fy_diag_create, (const struct fy_diag_cfg *config),
            (config))
CONSTRUCTOR(struct fy_parser *, fy_parser_create, (const struct fy_parse_cfg *config),
            (config))
CONSTRUCTOR(pcre2_compile_context *, pcre2_compile_context_create_8,
            (pcre2_general_context * general), (general))
CONSTRUCTOR(pcre2_match_context *, pcre2_match_context_create_8,
            (pcre2_general_context * general), (general))
CONSTRUCTOR(pcre2_match_data *, pcre2_match_data_create_8,
            (uint32_t pairs, pcre2_general_context *general), (pairs, general))
CONSTRUCTOR(pcre2_jit_stack *, pcre2_jit_stack_create_8,
            (size_t start, size_t most, pcre2_general_context *general),
            (start, most, general))
CONSTRUCTOR(struct archive *, archive_read_new, (void), ())
CONSTRUCTOR(struct archive *, archive_write_new, (void), ())
CONSTRUCTOR(struct archive_entry *, archive_entry_new, (void), ())
CONSTRUCTOR(locale_t, newlocale, (int mask, const char *name, locale_t base),
            (mask, name, base))
