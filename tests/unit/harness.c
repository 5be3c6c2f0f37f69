/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TESTS_MAX 1024
#define FDS_MAX   1024
#define KEPT_MAX  4096

enum outcome { PASSED = 0, FAILED = 1, SKIPPED = 2, REMARKED = 3 };

static struct {
    const char *name;
    void (*run)(void);
} tests[TESTS_MAX];
static size_t test_count;

static sigjmp_buf leave_test;
static pid_t runner;
static char reason[256];

static char scratch_dir[PATH_MAX];
static char *kept[KEPT_MAX];
static size_t kept_count;
static bool open_before[FDS_MAX];
static void (*at_end)(void);

/* --- Saying no ---------------------------------------------------------------------- */

/* Only the thread that runs the tests can jump back; a child or another thread ends. */
static _Noreturn void leave(enum outcome outcome)
{
    fflush(stdout);
    if (getpid() != runner)
        _exit(1);
    if (gettid() != runner)
        abort();
    siglongjmp(leave_test, (int)outcome);
}

static void print_comment(const char *text)
{
    fputs("# ", stdout);
    for (; *text; text++) {
        putchar(*text);
        if (*text == '\n')
            fputs("# ", stdout);
    }
    putchar('\n');
}

_Noreturn void harness_fail(const char *file, int line, const char *format, ...)
{
    char text[8192];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("# %s:%d:\n", file, line);
    print_comment(text);
    leave(FAILED);
}

_Noreturn void harness_skip(const char *file, int line, const char *why)
{
    const char *must = getenv("CAY_MUST_WORK");

    if (must && strcmp(must, "1") == 0)
        harness_fail(file, line, "would be skipped, but CAY_MUST_WORK=1: %s", why);
    snprintf(reason, sizeof reason, "%s", why);
    leave(SKIPPED);
}

_Noreturn void harness_remark(const char *remark)
{
    snprintf(reason, sizeof reason, "%s", remark);
    leave(REMARKED);
}

void harness_code(const char *file, int line, const char *expression, int returned,
                  int expected, const struct cay_error *error)
{
    if (returned != expected)
        harness_fail(file, line,
                     "%s\n  returned %d (%s), expected %d (%s)\n"
                     "  op: %s\n  subject: %s\n  message: %s\n  hint: %s\n  errno: %d",
                     expression, returned, cay_code_slug(returned), expected,
                     cay_code_slug(expected), error->op, error->subject, error->message,
                     error->hint, error->sys_errno);
    if (error->code == 0)
        return;
    if (error->code != returned)
        harness_fail(file, line, "%s\n  returned %d (%s) but err.code is %d (%s)",
                     expression, returned, cay_code_slug(returned), error->code,
                     cay_code_slug(error->code));
    if (!error->message[0] || !error->hint[0] || !error->op[0])
        harness_fail(file, line,
                     "%s\n  one is missing: op \"%s\", message \"%s\", hint \"%s\"",
                     expression, error->op, error->message, error->hint);
}

void harness_int(const char *file, int line, const char *expression, intmax_t value,
                 intmax_t expected)
{
    if (value != expected)
        harness_fail(file, line, "%s is %jd, expected %jd", expression, value, expected);
}

void harness_str(const char *file, int line, const char *expression, const char *value,
                 const char *expected)
{
    if (!value && !expected)
        return;
    if (!value || !expected || strcmp(value, expected) != 0)
        harness_fail(file, line, "%s\n  is       \"%s\"\n  expected \"%s\"", expression,
                     value ? value : "(NULL)", expected ? expected : "(NULL)");
}

void harness_has(const char *file, int line, const char *expression, const char *text,
                 const char *part)
{
    if (!text || !strstr(text, part))
        harness_fail(file, line, "%s\n  is          \"%s\"\n  and lacks   \"%s\"",
                     expression, text ? text : "(NULL)", part);
}

void harness_mem(const char *file, int line, const char *expression, const void *value,
                 size_t len, const void *expected, size_t expected_len)
{
    if (len != expected_len)
        harness_fail(file, line, "%s has %zu bytes, expected %zu", expression, len,
                     expected_len);
    for (size_t i = 0; i < len; i++)
        if (((const char *)value)[i] != ((const char *)expected)[i])
            harness_fail(file, line, "%s differs at byte %zu: 0x%02x, expected 0x%02x",
                         expression, i, ((const unsigned char *)value)[i],
                         ((const unsigned char *)expected)[i]);
}

/* --- Scratch files ------------------------------------------------------------------ */

#define NEED(condition)                                                                  \
    do {                                                                                 \
        if (!(condition))                                                                \
            harness_fail(__FILE__, __LINE__, "%s: %s", #condition, strerror(errno));     \
    } while (0)

static char *keep(char *memory)
{
    NEED(memory);
    NEED(kept_count < KEPT_MAX);
    return kept[kept_count++] = memory;
}

const char *scratch(void)
{
    const char *parent = getenv("TMPDIR");
    char template[PATH_MAX];

    if (scratch_dir[0])
        return scratch_dir;
    snprintf(template, sizeof template, "%s/cay-test-XXXXXX", parent ? parent : "/tmp");
    NEED(mkdtemp(template));
    NEED(realpath(template, scratch_dir));
    return scratch_dir;
}

const char *scratch_path(const char *name)
{
    char *path = NULL;

    NEED(asprintf(&path, "%s/%s", scratch(), name) > 0);
    return keep(path);
}

void put_bytes(const char *name, const void *data, size_t len)
{
    char *path = keep(strdup(scratch_path(name)));

    for (char *slash = strchr(path + strlen(scratch()) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        NEED(mkdir(path, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    NEED(file);
    NEED(fwrite(data, 1, len, file) == len);
    NEED(fclose(file) == 0);
}

void put_file(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

const char *get_file(const char *name)
{
    FILE *file = fopen(scratch_path(name), "re");
    char *text = NULL;
    size_t room = 0;

    if (!file)
        return NULL;
    ssize_t len = getdelim(&text, &room, '\0', file);
    NEED(!ferror(file));
    NEED(fclose(file) == 0);
    if (len < 0) {
        free(text);
        return keep(strdup(""));
    }
    return keep(text);
}

/* By descriptor, so that a tree deeper than PATH_MAX goes away too. */
static void remove_tree(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return;
    (void)!fchmodat(parent, name, 0700, 0);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir) {
        for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                remove_tree(fd, entry->d_name);
        closedir(dir);
    }
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0)
        printf("# cannot remove %s: %s\n", name, strerror(errno));
}

/* --- What a test leaves behind ------------------------------------------------------ */

static void note_open(bool open[FDS_MAX])
{
    DIR *dir = opendir("/proc/self/fd");

    NEED(dir);
    memset(open, 0, FDS_MAX * sizeof *open);
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        long fd = strtol(entry->d_name, NULL, 10);
        if (entry->d_name[0] != '.' && fd != dirfd(dir) && fd < FDS_MAX)
            open[fd] = true;
    }
    closedir(dir);
}

static void check_descriptors(void)
{
    bool open_after[FDS_MAX];

    note_open(open_after);
    for (int fd = 0; fd < FDS_MAX; fd++) {
        char link[64], target[256] = "";
        if (open_after[fd] == open_before[fd])
            continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        (void)!readlink(link, target, sizeof target - 1);
        if (strncmp(target, "/memfd:cay-init", 15) == 0)
            continue; /* the library keeps one for all its sandboxes */
        harness_fail(__FILE__, __LINE__, "descriptor %d was %s by the test: %s", fd,
                     open_after[fd] ? "left open" : "closed", target);
    }
}

static void check_children(void)
{
    pid_t pid = waitpid(-1, NULL, WNOHANG | __WALL);

    if (pid > 0)
        harness_fail(__FILE__, __LINE__, "child %d was not waited for", (int)pid);
    if (pid == 0)
        harness_fail(__FILE__, __LINE__, "a child is still running");
}

void harness_at_end(void (*clean)(void))
{
    at_end = clean;
}

static void clean_up(void)
{
    if (at_end)
        at_end();
    at_end = NULL;
    if (scratch_dir[0])
        remove_tree(AT_FDCWD, scratch_dir);
    scratch_dir[0] = '\0';
    while (kept_count > 0)
        free(kept[--kept_count]);
}

/* --- The runner --------------------------------------------------------------------- */

void harness_register(const char *name, void (*run)(void))
{
    if (test_count == TESTS_MAX)
        abort();
    tests[test_count].name = name;
    tests[test_count++].run = run;
}

static bool is_left_out(const char *name)
{
    const char *next = getenv("CAY_LEAVE_OUT");
    char pattern[256];

    while (next && *next) {
        size_t len = strcspn(next, " ");
        if (len < sizeof pattern) {
            memcpy(pattern, next, len);
            pattern[len] = '\0';
            if (fnmatch(pattern, name, 0) == 0)
                return true;
        }
        next += len + strspn(next + len, " ");
    }
    return false;
}

static bool is_wanted(const char *name, int patterns, char *const *pattern)
{
    for (int i = 0; i < patterns; i++)
        if (fnmatch(pattern[i], name, 0) == 0)
            return true;
    return patterns == 0 && !is_left_out(name);
}

static enum outcome run_one(void (*run)(void))
{
    int outcome = sigsetjmp(leave_test, 1);

    if (outcome == PASSED) {
        note_open(open_before);
        run();
        check_descriptors();
        check_children();
    }
    clean_up();
    return (enum outcome)outcome;
}

int harness_run(int patterns, char *const *pattern)
{
    static const char *const between[] = {
        [PASSED] = "", [FAILED] = "", [SKIPPED] = " # SKIP ", [REMARKED] = ": "};
    size_t wanted = 0;
    int failed = 0;

    (void)setenv("CAY_WARM", "off", 0); /* no processes of their own behind a test */
    for (size_t i = 0; i < test_count; i++)
        if (is_wanted(tests[i].name, patterns, pattern))
            tests[wanted++] = tests[i];
    runner = getpid();
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%zu\n", wanted);
    for (size_t i = 0; i < wanted; i++) {
        reason[0] = '\0';
        enum outcome outcome = run_one(tests[i].run);
        failed += outcome == FAILED;
        printf("%s %zu - %s%s%s\n", outcome == FAILED ? "not ok" : "ok", i + 1,
               tests[i].name, between[outcome], reason);
    }
    return failed > 0 || wanted == 0;
}

__attribute__((weak)) int main(int argc, char **argv)
{
    return harness_run(argc - 1, argv + 1);
}
