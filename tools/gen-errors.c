/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cay/error.h"

/* Prints what is made from CAY_CODES:
 *     gen-errors --python          python/cay/errors.py
 *     gen-errors --man TEMPLATE    the template with its line "@CODES@" replaced by the
 *                                  table of codes, as scdoc */
static const struct {
    const char *name, *slug, *meaning;
    int code;
} codes[] = {
#define X(name, value, slug, meaning) {#name, slug, meaning, value},
    CAY_CODES(X)
#undef X
};
#define CODE_COUNT (sizeof codes / sizeof *codes)

/* The Python class of each code: its name and its bases, in the order of CAY_CODES. */
static const struct {
    int code;
    const char *name, *bases;
} classes[] = {
    {CAY_E_INVALID, "SandboxValueError", "CayError, ValueError"},
    {CAY_E_DENIED, "SandboxPermissionError", "SandboxFileError, PermissionError"},
    {CAY_E_NOT_FOUND, "NotFoundError", "CayError"},
    {CAY_E_NO_MEMORY, "SandboxMemoryError", "CayError, MemoryError"},
    {CAY_E_EXISTS, "SandboxExistsError", "SandboxFileError, FileExistsError"},
    {CAY_E_BUSY, "SandboxBusyError", "CayError, OSError"},
    {CAY_E_TIMEOUT, "SandboxTimeoutError", "CayError, TimeoutError"},
    {CAY_E_CANCELLED, "SandboxCancelledError", "CayError"},
    {CAY_E_LIMIT, "SandboxLimitError", "CayError"},
    {CAY_E_NO_SPACE, "SandboxNoSpaceError", "SandboxFileError, OSError"},
    {CAY_E_UNSUPPORTED, "SandboxUnsupportedError", "CayError, OSError"},
    {CAY_E_UNAVAILABLE, "SandboxUnavailableError", "CayError, OSError"},
    {CAY_E_PROTOCOL, "SandboxProtocolError", "CayError"},
    {CAY_E_EXEC_FAILED, "SandboxExecError", "SandboxExecutionError"},
    {CAY_E_KILLED, "SandboxKilledError", "CayError"},
    {CAY_E_INTERNAL, "SandboxInternalError", "CayError"},
    {CAY_E_OUTSIDE, "OutsideError", "SandboxFileError"},
    {CAY_E_READ_ONLY, "ReadOnlyError", "SandboxPermissionError"},
    {CAY_E_ESCALATION, "SandboxPermissionEscalationError", "CayError"},
    {CAY_E_SUFFIX, "SuffixError", "SandboxFileError"},
    {CAY_E_TOO_LARGE, "TooLargeError", "SandboxFileError"},
    {CAY_E_NO_MATCH, "NoMatchError", "SandboxFileError"},
    {CAY_E_NOT_A_FILE, "SandboxNotAFileError", "SandboxFileError, OSError"},
    {CAY_E_NOT_A_DIRECTORY, "SandboxNotADirectoryError",
     "SandboxFileError, NotADirectoryError"},
    {CAY_E_NOT_TEXT, "SandboxNotTextError", "SandboxFileError, ValueError"},
    {CAY_E_NOT_APPROVED, "ApprovalError", "SandboxFileError, PermissionError"},
    {CAY_E_CHANGED, "SandboxChangedError", "SandboxFileError"},
    {CAY_E_IO, "SandboxIOError", "SandboxFileError, OSError"},
};
_Static_assert(sizeof classes / sizeof *classes == CODE_COUNT,
               "a code has no Python class");

/* Classes for part of what a code means: their callers catch them by these names. */
static const struct {
    const char *name, *bases, *meaning;
} narrower[] = {
    {"SandboxNotFoundError", "NotFoundError, LookupError",
     "The sandbox or the session does not exist."},
    {"TemplateNotFoundError", "NotFoundError, LookupError",
     "The template does not exist."},
    {"UserNotFoundError", "NotFoundError, LookupError, ValueError",
     "The sandbox has no such user."},
    {"SandboxFileNotFoundError", "NotFoundError, SandboxFileError, FileNotFoundError",
     "The file or directory does not exist."},
    {"SandboxIsADirectoryError", "SandboxNotAFileError, IsADirectoryError",
     "The path is a directory, not a regular file."},
};

static void print_python(void)
{
    puts("# SPDX-License-Identifier: Apache-2.0\n"
         "# generated from include/cay/error.h by tools/gen-errors; do not edit\n"
         "\"\"\"The exceptions: one class per error code; see cay-errors(7).\"\"\"\n"
         "\n"
         "from cay._error import CayError, SandboxExecutionError, SandboxFileError\n"
         "\n"
         "SandboxError = CayError\n"
         "\"\"\"The name of the base class in NexAU and "
         "pydantic-ai-filesystem-sandbox.\"\"\"\n"
         "\n"
         "__all__ = [\n"
         "    \"BY_CODE\",\n"
         "    \"CayError\",\n"
         "    \"SandboxError\",\n"
         "    \"SandboxExecutionError\",\n"
         "    \"SandboxFileError\",");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("    \"%s\",\n", classes[i].name);
    for (size_t i = 0; i < sizeof narrower / sizeof *narrower; i++)
        printf("    \"%s\",\n", narrower[i].name);
    puts("]");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("\n\nclass %s(%s):\n"
               "    \"\"\"%s\"\"\"\n"
               "\n"
               "    code = %d\n"
               "    slug = \"%s\"\n",
               classes[i].name, classes[i].bases, codes[i].meaning, codes[i].code,
               codes[i].slug);
    for (size_t i = 0; i < sizeof narrower / sizeof *narrower; i++)
        printf("\n\nclass %s(%s):\n"
               "    \"\"\"%s\"\"\"\n",
               narrower[i].name, narrower[i].bases, narrower[i].meaning);
    puts("\n\nBY_CODE: dict[int, type[CayError]] = {");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("    %d: %s,\n", codes[i].code, classes[i].name);
    puts("}");
}

static void print_table(void)
{
    puts("|[ *slug*\n:] *code*\n:] *exit*\n:[ *Python*\n:< *meaning*");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("|  *%s*\n:  %d\n:  %d\n:  %s\n:  %s\n", codes[i].slug, codes[i].code,
               1 - codes[i].code, classes[i].name, codes[i].meaning);
}

static int print_man(const char *template)
{
    FILE *file = fopen(template, "re");
    char line[1024];

    if (!file) {
        perror(template);
        return 1;
    }
    while (fgets(line, sizeof line, file))
        if (strcmp(line, "@CODES@\n") == 0)
            print_table();
        else
            fputs(line, stdout);
    return fclose(file) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < CODE_COUNT; i++)
        if (classes[i].code != codes[i].code) {
            fprintf(stderr, "gen-errors: classes[] is not in the order of CAY_CODES\n");
            return 1;
        }
    if (argc == 2 && strcmp(argv[1], "--python") == 0) {
        print_python();
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--man") == 0)
        return print_man(argv[2]);
    fputs("usage: gen-errors --python | --man TEMPLATE\n", stderr);
    return 2;
}
