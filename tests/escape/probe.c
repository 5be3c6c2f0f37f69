/* SPDX-License-Identifier: Apache-2.0 */

/* The program that is brought into a sandbox, static and on its own.
 *
 *     probe NAME            one probe of rows.h; prints "VERDICT errno detail"
 *     probe exe             attacks the program that PID 1 was started from
 *     probe own-exe         the same with a program that is not sealed
 *     probe load KIND N     something that takes up room: load.c
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"
#include "rows.h"

#define NAME(class, name, who, layers, also, want, errors, function, argument)           \
    {#class "_" #name, function, argument},

static const struct {
    const char *name;
    probe *run;
    const char *argument;
} probes[] = {EVERY_ROW(NAME)};

static const char *const verdicts[] = {"",        "BLOCKED", "VIRTUALISED",
                                       "LIMITED", "ESCAPE",  "ERROR"};

struct answer answer_make(enum verdict verdict, int error, const char *format, ...)
{
    struct answer answer = {.verdict = verdict, .error = error};
    va_list args;

    va_start(args, format);
    vsnprintf(answer.detail, sizeof answer.detail, format, args);
    va_end(args);
    return answer;
}

static struct answer judge(long result, const int *refusals)
{
    int error = errno;

    if (result >= 0)
        return answer_make(ESCAPE, 0, "succeeded");
    for (; *refusals; refusals++)
        if (error == *refusals)
            return answer_make(BLOCKED, error, "refused");
    return answer_make(ESCAPE, error, "reached");
}

struct answer answer_call(long result)
{
    static const int refusals[] = {EPERM,           EACCES,          ENOSYS, EAFNOSUPPORT,
                                   EPROTONOSUPPORT, ESOCKTNOSUPPORT, 0};

    return judge(result, refusals);
}

struct answer answer_path(long result)
{
    static const int refusals[] = {EPERM, EACCES, EROFS, ENOENT, ENOTDIR, 0};

    return judge(result, refusals);
}

const char *host_fact(const char *name)
{
    return getenv(name);
}

long host_number(const char *name)
{
    const char *text = getenv(name);

    return text ? strtol(text, NULL, 10) : -1;
}

struct answer answer_of_child(struct answer (*what)(const char *arg), const char *arg)
{
    struct answer *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;

    if (shared == MAP_FAILED)
        return answer_make(ERROR, errno, "mmap");
    pid_t child = fork();
    if (child == 0) {
        *shared = what(arg);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return answer_make(ERROR, errno, "fork");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        return answer_make(BLOCKED, BY_SIGSYS, "killed");
    if (WIFSIGNALED(status))
        return answer_make(ERROR, 0, "died of signal %d", WTERMSIG(status));
    return *shared;
}

static bool find_in(char *path, size_t len, int depth,
                    bool (*look)(const char *, const char *, const struct stat *))
{
    DIR *directory = opendir(path);
    bool found = false;

    for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
        const char *name = entry->d_name;
        struct stat st;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            len + strlen(name) + 2 > PATH_MAX)
            continue;
        snprintf(path + len, PATH_MAX - len, "/%s", name);
        if (lstat(path, &st) == 0)
            found = look(path, name, &st) ||
                    (S_ISDIR(st.st_mode) && depth > 0 &&
                     find_in(path, len + 1 + strlen(name), depth - 1, look));
    }
    if (directory)
        closedir(directory);
    if (!found)
        path[len] = '\0';
    return found;
}

const char *find_below(const char *path,
                       bool (*look)(const char *, const char *, const struct stat *))
{
    static char found[PATH_MAX];

    snprintf(found, sizeof found, "%s", path);
    return find_in(found, strlen(found), 6, look) ? found : NULL;
}

static int say(struct answer answer)
{
    printf("%s %d %s\n", verdicts[answer.verdict], answer.error, answer.detail);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "load") == 0)
        return load_run(argv[2], strtol(argv[3], NULL, 10));
    if (argc == 2 && (strcmp(argv[1], "exe") == 0 || strcmp(argv[1], "own-exe") == 0))
        return say(attack_program(argv[1]));
    for (size_t i = 0; argc == 2 && i < sizeof probes / sizeof *probes; i++)
        if (strcmp(argv[1], probes[i].name) == 0)
            return say(probes[i].run(probes[i].argument));
    fprintf(stderr, "usage: probe NAME | probe load KIND N\n");
    return 2;
}
