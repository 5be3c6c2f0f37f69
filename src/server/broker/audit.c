/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/audit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "sys/path.h"

#define END        ".jsonl"
#define HASH_KEY   ",\"hash\":\""
#define FIRST_HASH "0000000000000000000000000000000000000000000000000000000000000000"

enum { DAY_MAX = 1 << 30, DAY_LEN = 10, DAY_ROOM = 32, TAIL = AUDIT_LINE_MAX + 1 };

static const char op[] = "audit";

struct audit {
    int directory, lock, file; /* -1: none */
    unsigned days;
    char day[DAY_ROOM]; /* name of the file, without END */
    off_t size;         /* of the file after the last line of this process */
    bool is_new_day;    /* files that are too old are still there */
    uint64_t number;
    char last[AUDIT_HASH];
    uint64_t failures;
};

/* --- Lines --- */

static void hash_text(const char *text, size_t len, char ret_hash[AUDIT_HASH])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_update(&ctx, len, (const uint8_t *)text);
    sha256_digest(&ctx, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_hash + 2 * i, 3, "%02x", digest[i]);
}

/* The parts of a whole line without its line end; false if it has another form. */
struct line {
    uint64_t number;
    char previous[AUDIT_HASH], hash[AUDIT_HASH];
    size_t hashed; /* bytes that the hash covers */
};

static bool parse_line(const char *text, size_t len, struct line *ret_line)
{
    static const char first[] = "{\"number\":", second[] = ",\"previous\":\"";
    const size_t end = strlen(HASH_KEY) + AUDIT_HASH - 1 + strlen("\"}");
    char *after;

    if (len < sizeof first + sizeof second + AUDIT_HASH + end ||
        strncmp(text, first, strlen(first)) != 0 || text[len - 2] != '"' ||
        text[len - 1] != '}')
        return false;
    ret_line->number = strtoull(text + strlen(first), &after, 10);
    if (strncmp(after, second, strlen(second)) != 0 ||
        after + strlen(second) + AUDIT_HASH > text + len - end)
        return false;
    memcpy(ret_line->previous, after + strlen(second), AUDIT_HASH - 1);
    ret_line->previous[AUDIT_HASH - 1] = '\0';
    ret_line->hashed = len - end;
    if (strncmp(text + ret_line->hashed, HASH_KEY, strlen(HASH_KEY)) != 0)
        return false;
    memcpy(ret_line->hash, text + len - strlen("\"}") - (AUDIT_HASH - 1), AUDIT_HASH - 1);
    ret_line->hash[AUDIT_HASH - 1] = '\0';
    return true;
}

/* --- Files --- */

static bool is_day(const char *name)
{
    static const char form[] = "dddd-dd-dd" END;

    if (strlen(name) != strlen(form))
        return false;
    for (size_t i = 0; form[i]; i++)
        if (form[i] == 'd' ? name[i] < '0' || name[i] > '9' : name[i] != form[i])
            return false;
    return true;
}

/* The names of the files, in the order of time. */
struct days {
    char (*names)[DAY_ROOM];
    size_t count, room;
};

static void days_done(struct days *days)
{
    free(days->names);
}

#define AUTO_DAYS __attribute__((cleanup(days_done))) struct days

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool list_days(int directory, struct days *ret_days)
{
    struct days *days = ret_days;
    const struct dirent *entry;
    AUTO_FD fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_DIR list = fd < 0 ? NULL : fdopendir(fd);

    if (!list)
        return false;
    (void)TAKE_FD(fd); /* closed with the list */
    while ((entry = readdir(list))) {
        if (!is_day(entry->d_name))
            continue;
        if (!array_reserve(&days->names, &days->room, days->count + 1,
                           sizeof *days->names))
            return false;
        cay_copy_text(days->names[days->count++], DAY_ROOM, entry->d_name);
    }
    if (days->count)
        qsort(days->names, days->count, sizeof *days->names, by_name);
    return true;
}

static void name_day(int64_t now_ms, char ret_day[DAY_ROOM])
{
    time_t now = (time_t)(now_ms / 1000);
    struct tm tm;

    gmtime_r(&now, &tm);
    strftime(ret_day, DAY_ROOM, "%Y-%m-%d", &tm);
}

/* The last whole line of a file, or false if it has none.  Cuts off what a process that
 * was killed has left behind it. */
static bool read_last(int file, struct line *ret_line)
{
    char text[TAIL + 1];
    struct stat st;

    if (fstat(file, &st) != 0 || st.st_size == 0)
        return false;
    off_t from = st.st_size > TAIL ? st.st_size - TAIL : 0;
    ssize_t len = pread(file, text, TAIL, from);
    if (len <= 0) /* nothing is cut off that cannot be read */
        return false;
    size_t end = (size_t)len;
    while (end && text[end - 1] != '\n')
        end--;
    if (end != (size_t)len)
        (void)!ftruncate(file, from + (off_t)end);
    if (!end)
        return false;
    size_t begin = end - 1;
    while (begin && text[begin - 1] != '\n')
        begin--;
    text[end - 1] = '\0';
    return parse_line(text + begin, end - 1 - begin, ret_line);
}

/* Continues after the last line of the newest file. */
static void find_last(struct audit *audit)
{
    AUTO_DAYS days = {0};

    audit->number = 0;
    cay_copy_text(audit->last, AUDIT_HASH, FIRST_HASH);
    (void)list_days(audit->directory, &days);
    for (size_t i = days.count; i > 0 && !audit->number; i--) {
        AUTO_FD file =
            openat(audit->directory, days.names[i - 1], O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        struct line line;
        if (file >= 0 && read_last(file, &line)) {
            audit->number = line.number;
            memcpy(audit->last, line.hash, AUDIT_HASH);
        }
    }
}

/* Names of days are in the order of time. */
static void remove_old(const struct audit *audit, int64_t now_ms)
{
    const int64_t day_ms = INT64_C(24) * 3600 * 1000;
    char oldest[DAY_ROOM];
    AUTO_DAYS days = {0};

    name_day(now_ms - day_ms * audit->days, oldest);
    (void)list_days(audit->directory, &days);
    for (size_t i = 0; i < days.count; i++)
        if (strncmp(days.names[i], oldest, DAY_LEN) < 0)
            (void)unlinkat(audit->directory, days.names[i], 0);
}

static bool open_day(struct audit *audit, int64_t now_ms)
{
    char day[DAY_ROOM], name[DAY_ROOM + sizeof END];
    struct stat st;

    name_day(now_ms, day);
    if (audit->file >= 0 && strcmp(day, audit->day) > 0) {
        (void)close(audit->file);
        audit->file = -1;
    }
    if (audit->file < 0) {
        if (strcmp(day, audit->day) > 0) /* the clock may have been set back */
            cay_copy_text(audit->day, sizeof audit->day, day);
        snprintf(name, sizeof name, "%.*s%s", DAY_LEN, audit->day, END);
        audit->file = openat(audit->directory, name,
                             O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        audit->size = -1;
        audit->is_new_day = true;
    }
    if (audit->file < 0 || fstat(audit->file, &st) != 0)
        return false;
    if (st.st_size != audit->size) { /* of another process, or of the last server */
        find_last(audit);
        if (fstat(audit->file, &st) != 0)
            return false;
        audit->size = st.st_size;
    }
    return true;
}

/* Another server has it for microseconds. */
static bool take_lock(const struct audit *audit)
{
    enum { TRIES = 20 };

    for (int i = 0; i < TRIES; i++) {
        if (flock(audit->lock, LOCK_EX | LOCK_NB) == 0)
            return true;
        clock_sleep_ms(1);
    }
    return false;
}

static bool append(struct audit *audit, int64_t now_ms, const char *members)
{
    AUTO_BUF line = {.max = AUDIT_LINE_MAX};
    char hash[AUDIT_HASH];

    if (!open_day(audit, now_ms))
        return false;
    buf_format(&line, "{\"number\":%llu,\"previous\":\"%s\",%s",
               (unsigned long long)audit->number + 1, audit->last, members);
    if (line.failed || !line.data)
        return false;
    hash_text(line.data, line.len, hash);
    buf_format(&line, HASH_KEY "%s\"}\n", hash);
    if (line.failed)
        return false;
    if (audit->size + (off_t)line.len > DAY_MAX)
        return false;
    if (write(audit->file, line.data, line.len) != (ssize_t)line.len) {
        (void)!ftruncate(audit->file, audit->size);
        return false;
    }
    audit->size += (off_t)line.len;
    audit->number++;
    memcpy(audit->last, hash, AUDIT_HASH);
    if (audit->is_new_day) /* now that the chain goes on without them */
        remove_old(audit, now_ms);
    audit->is_new_day = false;
    return true;
}

void audit_append(struct audit *audit, int64_t now_ms, const char *members)
{
    if (!take_lock(audit)) {
        audit->failures++;
        return;
    }
    audit->failures += !append(audit, now_ms, members);
    (void)flock(audit->lock, LOCK_UN);
}

void audit_count_failure(struct audit *audit)
{
    audit->failures++;
}

uint64_t audit_room(const struct audit *audit, int64_t now_ms)
{
    char day[DAY_ROOM];

    name_day(now_ms, day);
    if (strcmp(day, audit->day) > 0 || audit->size < 0)
        return DAY_MAX;
    return audit->size < DAY_MAX ? (uint64_t)(DAY_MAX - audit->size) : 0;
}

uint64_t audit_failures(const struct audit *audit)
{
    return audit->failures;
}

/* --- Opening --- */

static int open_directory(const char *path, int *ret_directory, struct cay_error *err)
{
    struct stat st;
    AUTO_FD directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (directory < 0 || fstat(directory, &st) != 0)
        return cay_fail_errno(err, errno, op, "the audit record");
    if (st.st_uid != geteuid() || st.st_mode & 077)
        return cay_fail(err, CAY_E_DENIED, 0, op, "the audit record",
                        "other users can read or change the directory",
                        "restrict it: chmod 0700");
    *ret_directory = TAKE_FD(directory);
    return CAY_OK;
}

int audit_open(const char *path, unsigned days, struct audit **ret_audit,
               struct cay_error *err)
{
    struct audit *audit = calloc(1, sizeof *audit);

    if (!audit)
        return cay_fail_memory(err, op);
    *audit = (struct audit){.directory = -1, .lock = -1, .file = -1, .days = days};
    (void)mkdir(path, 0700);
    int code = open_directory(path, &audit->directory, err);
    if (!code) {
        audit->lock = openat(audit->directory, "lock",
                             O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (audit->lock < 0)
            code = cay_fail_errno(err, errno, op, "the audit record");
    }
    if (code) {
        audit_close(audit);
        return code;
    }
    *ret_audit = audit;
    return CAY_OK;
}

void audit_close(struct audit *audit)
{
    if (!audit)
        return;
    const int fds[] = {audit->directory, audit->lock, audit->file};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    free(audit);
}

/* --- Reading --- */

static int fail_line(const char *name, uint64_t line, const char *message,
                     struct cay_error *err)
{
    char subject[64];

    snprintf(subject, sizeof subject, "%.*s line %llu", DAY_LEN, name,
             (unsigned long long)line);
    return cay_fail(err, CAY_E_CHANGED, 0, op, subject, message,
                    "the record was changed; compare it with a copy");
}

/* The first line may continue files that were removed for their age. */
static int check_line(const char *text, size_t len, struct audit_result *result,
                      const char *expected, const char **ret_wrong)
{
    struct line line;
    char hash[AUDIT_HASH];

    *ret_wrong = "invalid line";
    if (!parse_line(text, len, &line))
        return CAY_E_CHANGED;
    hash_text(text, line.hashed, hash);
    *ret_wrong = "its hash does not match its content";
    if (strcmp(hash, line.hash) != 0)
        return CAY_E_CHANGED;
    *ret_wrong = "it does not follow the line before it";
    if (result->lines && (strcmp(line.previous, result->last) != 0 ||
                          line.number != result->first + result->lines))
        return CAY_E_CHANGED;
    if (!result->lines)
        result->first = line.number;
    result->lines++;
    memcpy(result->last, line.hash, AUDIT_HASH);
    result->has_expected |= expected && strcmp(expected, line.hash) == 0;
    return CAY_OK;
}

static int read_file(int directory, const char *name, const char *expected,
                     void (*visit)(const char *line), struct audit_result *result,
                     struct cay_error *err)
{
    char text[AUDIT_LINE_MAX + 2];
    uint64_t number = 0;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    int code = CAY_OK;

    if (!file) {
        if (fd >= 0)
            (void)close(fd);
        return cay_fail_errno(err, errno, op, name);
    }
    while (!code && fgets(text, sizeof text, file)) {
        size_t len = strlen(text);
        const char *wrong = "it is not complete";
        number++;
        code = len && text[len - 1] == '\n'
                   ? check_line(text, len - 1, result, expected, &wrong)
                   : CAY_E_CHANGED;
        if (code)
            code = fail_line(name, number, wrong, err);
        else if (visit)
            visit(text);
    }
    (void)fclose(file);
    return code;
}

int audit_read(const char *path, const char *expected, void (*visit)(const char *line),
               struct audit_result *ret_result, struct cay_error *err)
{
    AUTO_FD directory = -1;
    AUTO_DAYS days = {0};

    *ret_result = (struct audit_result){0};
    TRY(open_directory(path, &directory, err));
    if (!list_days(directory, &days))
        return cay_fail_errno(err, errno, op, "the audit record");
    for (size_t i = 0; i < days.count; i++)
        TRY(read_file(directory, days.names[i], expected, visit, ret_result, err));
    return CAY_OK;
}

/* --- Following --- */

static void follow_file(FILE *file, struct audit_place *place,
                        void (*visit)(const struct audit_line *line, void *cookie),
                        void *cookie)
{
    char text[AUDIT_LINE_MAX + 2];

    if (fseek(file, place->offset, SEEK_SET) != 0)
        return;
    while (fgets(text, sizeof text, file)) {
        size_t len = strlen(text);
        struct audit_line shown = {.text = text};
        struct line line;
        if (!len || text[len - 1] != '\n')
            return; /* not whole yet */
        text[len - 1] = '\0';
        place->offset += (long)len;
        if (!parse_line(text, len - 1, &line))
            continue;
        shown.number = line.number;
        memcpy(shown.hash, line.hash, AUDIT_HASH);
        visit(&shown, cookie);
    }
}

void audit_follow(const char *path, struct audit_place *place,
                  void (*visit)(const struct audit_line *line, void *cookie),
                  void *cookie)
{
    AUTO_FD directory = -1;
    AUTO_DAYS days = {0};

    if (open_directory(path, &directory, NULL) != CAY_OK)
        return;
    (void)list_days(directory, &days);
    for (size_t i = 0; i < days.count; i++) {
        const char *name = days.names[i];
        int order = strcmp(name, place->day);
        int fd =
            order < 0 ? -1 : openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
        if (order > 0 && file) {
            cay_copy_text(place->day, sizeof place->day, name);
            place->offset = 0;
        }
        if (file) {
            follow_file(file, place, visit, cookie);
            (void)fclose(file);
        } else if (fd >= 0) {
            (void)close(fd);
        }
    }
}
