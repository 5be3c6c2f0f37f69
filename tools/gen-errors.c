/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
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

/* NOT_A_FILE is NotAFile in Python. */
static const char *class_name(const char *name)
{
    static char text[64];
    size_t len = 0;

    for (const char *p = name; *p && len + 1 < sizeof text; p++)
        if (*p != '_')
            text[len++] = (char)(p == name || p[-1] == '_' ? *p : tolower(*p));
    text[len] = '\0';
    return text;
}

static void print_python(void)
{
    puts("# SPDX-License-Identifier: Apache-2.0\n"
         "# generated from include/cay/error.h by tools/gen-errors; do not edit\n"
         "\"\"\"One exception class per error code; see cay-errors(7).\"\"\"\n"
         "from cay._error import CayError\n"
         "\n"
         "__all__ = [\n"
         "    \"BY_CODE\",\n"
         "    \"CayError\",");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("    \"%s\",\n", class_name(codes[i].name));
    puts("]");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("\n\nclass %s(CayError):\n"
               "    \"\"\"%s\"\"\"\n"
               "\n"
               "    code = %d\n"
               "    slug = \"%s\"\n",
               class_name(codes[i].name), codes[i].meaning, codes[i].code, codes[i].slug);
    puts("\n\nBY_CODE: dict[int, type[CayError]] = {\n"
         "    cls.code: cls\n"
         "    for cls in (");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("        %s,\n", class_name(codes[i].name));
    puts("    )\n}");
}

static void print_table(void)
{
    puts("|[ *slug*\n:] *code*\n:] *exit*\n:[ *Python*\n:< *meaning*");
    for (size_t i = 0; i < CODE_COUNT; i++)
        printf("|  *%s*\n:  %d\n:  %d\n:  %s\n:  %s\n", codes[i].slug, codes[i].code,
               1 - codes[i].code, class_name(codes[i].name), codes[i].meaning);
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
    if (argc == 2 && strcmp(argv[1], "--python") == 0) {
        print_python();
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--man") == 0)
        return print_man(argv[2]);
    fputs("usage: gen-errors --python | --man TEMPLATE\n", stderr);
    return 2;
}
