/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/entry.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cay/files.h"

static const char *type_name(int64_t type)
{
    return type == CAY_TYPE_FILE        ? "FILE_TYPE_FILE"
           : type == CAY_TYPE_DIRECTORY ? "FILE_TYPE_DIRECTORY"
           : type == CAY_TYPE_LINK      ? "FILE_TYPE_SYMLINK"
                                        : "FILE_TYPE_UNSPECIFIED";
}

/* "Lrwxrwxrwx" for a link, "urwxr-xr-x" for a program that is run as its owner, and
 * "dtrwxrwxrwx" for /tmp, as Go writes them. */
static void put_permissions(struct json *json, const int64_t *numbers)
{
    static const char letters[] = "rwxrwxrwx";
    int64_t mode = numbers[ENTRY_MODE];
    const struct {
        char letter;
        bool is_set;
    } kinds[] = {
        {'d', numbers[ENTRY_TYPE] == CAY_TYPE_DIRECTORY && !numbers[ENTRY_IS_LINK]},
        {'L', numbers[ENTRY_IS_LINK]},
        {'u', mode & S_ISUID},
        {'g', mode & S_ISGID},
        {'t', mode & S_ISVTX}};
    char text[sizeof kinds / sizeof *kinds + sizeof letters];
    size_t len = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].is_set)
            text[len++] = kinds[i].letter;
    if (len == 0)
        text[len++] = '-';
    for (int i = 0; i < 9; i++)
        text[len++] = mode & 0400 >> i ? letters[i] : '-';
    text[len] = '\0';
    json_set_text(json, "permissions", text);
}

static void put_time(struct json *json, int64_t ns)
{
    int64_t rest = ns % 1000000000;
    time_t seconds = (time_t)(ns / 1000000000 - (rest < 0));
    char text[48], day[32];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%09lldZ", day,
             (long long)(rest < 0 ? rest + 1000000000 : rest));
    json_set_text(json, "modifiedTime", text);
}

static void set_bytes(struct json *json, const char *key, const char *text)
{
    json_put_key(json, key);
    json_put_bytes(json, text, strlen(text));
}

static void put(struct json *json, const struct told *told, const int64_t *numbers,
                const char *name)
{
    static const char *const keys[] = {"name", "path", "owner", "group"};
    const char *at = name;
    char size[24];

    json_put_object(json);
    for (int i = 0; i < 4 && at; i++, at = told_next(told, at))
        set_bytes(json, keys[i], at);
    json_set_text(json, "type", type_name(numbers[ENTRY_TYPE]));
    snprintf(size, sizeof size, "%lld", (long long)numbers[ENTRY_SIZE]);
    json_set_text(json, "size", size);
    json_set_int(json, "mode", numbers[ENTRY_MODE] & 0777);
    put_permissions(json, numbers);
    put_time(json, numbers[ENTRY_MTIME_NS]);
    if (at && *at)
        set_bytes(json, "symlinkTarget", at);
    at = at ? told_next(told, at) : NULL;
    if (at) {
        json_put_key(json, "metadata");
        json_put_object(json);
        while (at) {
            const char *value = told_next(told, at);
            if (!value)
                break;
            json_set_text(json, at, value);
            at = told_next(told, value);
        }
        json_put_end(json);
    }
    json_put_end(json);
}

void entry_put(struct json *json, const struct told *told)
{
    put(json, told, told->head.numbers, told_next(told, NULL));
}

void entry_put_after(struct json *json, const struct told *told, const char *before)
{
    put(json, told, told->head.numbers + CHANGE_ENTRY, told_next(told, before));
}
