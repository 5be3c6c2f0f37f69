/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cay/backend.h"
#include "config/config.h"

/* Prints cay-config(5): the template with its line "@FIELDS@" replaced by every field of
 * every backend, as scdoc. */

static void print_text(const char *text)
{
    for (; *text; text++) {
        if (strchr("\\*_~#`", *text))
            putchar('\\');
        putchar(*text);
    }
}

/* As a sentence, which tables do not have. */
static void print_sentence(const char *text)
{
    size_t len = strlen(text);

    putchar(toupper((unsigned char)*text));
    print_text(text + 1);
    fputs(len > 0 && text[len - 1] == '.' ? " " : ". ", stdout);
}

static const char *type_words(enum cay_field_type type)
{
    switch (type) {
    case CAY_FIELD_TEXT:
        return "A text";
    case CAY_FIELD_SECRET:
        return "A secret text";
    case CAY_FIELD_INTEGER:
        return "A whole number";
    case CAY_FIELD_NUMBER:
        return "A number";
    case CAY_FIELD_BOOLEAN:
        return "True or false";
    case CAY_FIELD_BYTES:
        return "A number of bytes";
    case CAY_FIELD_CHOICE:
        return "One of";
    case CAY_FIELD_TEXTS:
        return "A list of texts";
    case CAY_FIELD_MAP:
        return "A map of texts";
    case CAY_FIELD_POLICY:
        return "A policy";
    case CAY_FIELD_PATH:
        return "A path on this machine";
    }
    return "?";
}

static void print_type(const struct cay_field *field)
{
    fputs(type_words(field->type), stdout);
    for (size_t i = 0; field->type == CAY_FIELD_CHOICE && field->choices[i]; i++) {
        fputs(i ? ", _" : " _", stdout);
        print_text(field->choices[i]);
        putchar('_');
    }
    if (field->most == INT64_MAX && field->least)
        printf(", %" PRId64 " or more", field->least);
    else if (field->most && field->most < INT64_MAX)
        printf(", %" PRId64 " to %" PRId64, field->least, field->most);
}

static void print_field(const struct cay_field *field)
{
    putchar('*');
    print_text(field->name);
    putchar('*');
    if (field->alias) {
        fputs(", *", stdout);
        print_text(field->alias);
        putchar('*');
    }
    fputs("\n\t", stdout);
    print_sentence(field->about);
    print_type(field);
    if (field->fallback) {
        fputs("; the default is _", stdout);
        print_text(field->fallback);
        putchar('_');
    }
    puts(".\n");
}

static void print_fields(void)
{
    const struct cay_backend *backend;

    puts("# KEYS OF EVERY BACKEND\n");
    for (size_t i = 0; i < config_common_count; i++)
        print_field(&config_common_fields[i]);
    for (size_t i = 0; (backend = cay_backend_at(i)); i++) {
        printf("# KEYS OF ");
        for (const char *c = backend->name; *c; c++)
            putchar(toupper((unsigned char)*c));
        printf("\n\n*type: %s*\n\t", backend->name);
        print_sentence(backend->about);
        puts("\n");
        for (size_t j = 0; j < backend->field_count; j++)
            print_field(&backend->fields[j]);
    }
}

int main(int argc, char **argv)
{
    char line[1024];
    FILE *file = argc == 2 ? fopen(argv[1], "re") : NULL;

    if (!file) {
        fputs("usage: gen-config TEMPLATE\n", stderr);
        return 2;
    }
    while (fgets(line, sizeof line, file))
        if (strcmp(line, "@FIELDS@\n") == 0)
            print_fields();
        else
            fputs(line, stdout);
    return fclose(file) == 0 ? 0 : 1;
}
