/* SPDX-License-Identifier: Apache-2.0 */
#include "field.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "plain.h"

enum { FILES_AT_A_TIME = 5 };

static char place[4096];

bool field_ok(int code, const struct cay_error *err)
{
    if (code < 0)
        fprintf(stderr, "bench: %s: %s: %s (%s)\n", err->op, err->subject, err->message,
                err->hint);
    return code >= 0;
}

void field_open(struct field *field, const char *where, bool quick)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = CAY_STYLE_ROOT,
                                       .mounts = &mount,
                                       .mount_count = 1};
    struct cay_error err = {0};
    cay_policy *policy = NULL;

    *field = (struct field){.quick = quick};
    snprintf(place, sizeof place, "%s/cay-bench-XXXXXX", where);
    if (!mkdtemp(place))
        contest_die(where);
    field->dir = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mount.host = place;
    mount.writable = true;
    mount.write_approval = false;
    int code = cay_policy_new(&config, &policy, &err);
    if (!code)
        code = cay_files_open(policy, NULL, &field->files, &err);
    cay_policy_free(policy);
    if (field->dir < 0 || !field_ok(code, &err))
        contest_die(place);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void field_close(struct field *field)
{
    cay_files_free(field->files);
    close(field->dir);
    nftw(place, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

bool field_has_room(const struct field *field, uint64_t bytes)
{
    struct statvfs fs;
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    return fstatvfs(field->dir, &fs) == 0 &&
           (uint64_t)fs.f_bavail * fs.f_frsize > FILES_AT_A_TIME * bytes &&
           memory > 2 * FILES_AT_A_TIME * bytes;
}

unsigned field_rounds(const struct field *field, uint64_t bytes)
{
    unsigned rounds = bytes <= 64 * KIB    ? 2000
                      : bytes <= MIB       ? 400
                      : bytes <= 16 * MIB  ? 60
                      : bytes <= 100 * MIB ? 20
                                           : 5;

    return !field->quick ? rounds : rounds < 30 ? 3 : rounds / 10;
}

char *field_lines(uint64_t bytes, bool mixed)
{
    const char *line = mixed
                           ? "000000000000 na\xc3\xafve caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c"
                             "\xac\xe8\xaa\x9e and then \xf0\x9f\x98\x80 once more\n"
                           : "000000000000 the quick brown fox jumps over the lazy dog\n";
    size_t len = strlen(line), at = 0;
    char *text = malloc(bytes + 1);

    if (!text)
        contest_die("text");
    for (unsigned number = 0; at + len <= bytes; number++, at += len) {
        char digits[13];
        snprintf(digits, sizeof digits, "%012u", number);
        memcpy(text + at, line, len);
        memcpy(text + at, digits, 12);
    }
    memset(text + at, 'x', bytes - at);
    text[bytes] = '\0';
    return text;
}

void field_make(const struct field *field, const char *name)
{
    if (!plain_write_atomic(field->dir, name, field->text, field->bytes))
        contest_die(name);
}

void field_settle(const struct field *field)
{
    const struct timespec pause = {.tv_nsec = 200000000};

    if (syncfs(field->dir) != 0)
        contest_die("syncfs");
    nanosleep(&pause, NULL);
}

void field_remove(const struct field *field, const char *name)
{
    (void)unlinkat(field->dir, name, 0);
}
