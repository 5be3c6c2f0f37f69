/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LOCAL_H
#define TESTS_LOCAL_H

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>

#include "cay/backend.h"
#include "ladder.h"
#include "processes.h"

/* The backend "local", as root and as an ordinary user, each with a directory of its own.
 */

static inline void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

static char place[PATH_MAX]; /* this half's own directory */

/* What every command of a test has in its environment, and nothing else. */
static char mark[64];

static inline void set_mark(void)
{
    snprintf(mark, sizeof mark, "%d-%lld", (int)getpid(), (long long)now_ms());
    ASSERT(setenv("CAY_TEST_MARK", mark, 1) == 0);
}

static inline size_t read_proc(const char *pid, const char *name, char *text, size_t room)
{
    char path[300];

    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, room);
    return len > 0 ? (size_t)len : 0;
}

/* Those that are dead have no environment. */
static inline bool is_marked(const char *pid, const char *program)
{
    static char text[128 << 10];
    char wanted[96], comm[32];
    int len = snprintf(wanted, sizeof wanted, "CAY_TEST_MARK=%s", mark);

    if (pid[0] < '1' || pid[0] > '9' || strtol(pid, NULL, 10) == getpid() ||
        !memmem(text, read_proc(pid, "environ", text, sizeof text), wanted,
                (size_t)len + 1))
        return false;
    size_t named = read_proc(pid, "comm", comm, sizeof comm);
    return !*program ||
           (named == strlen(program) + 1 && memcmp(comm, program, named - 1) == 0);
}

/* Processes that commands of this test have started. */
static inline size_t count_programs(const char *program)
{
    DIR *directory = opendir("/proc");
    size_t count = 0;

    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += is_marked(entry->d_name, program);
    closedir(directory);
    return count;
}

static inline size_t count_marked(void)
{
    return count_programs("");
}

/* On their way to execve they are something else, or have no environment. */
static inline void await(size_t count, const char *program)
{
    uint64_t end = now_ms() + PATIENCE_MS;
    size_t found = count_programs(program);

    while (found != count && now_ms() < end) {
        rest_ms(5);
        found = count_programs(program);
    }
    ASSERT_INT(found, count);
}

static inline cay_config *configure(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static inline cay_config *configure(const char *format, ...)
{
    char text[4096];
    cay_config *config = NULL;
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    ASSERT_OK(cay_config_parse(text, strlen(text), "test", NULL, &config, &err));
    return config;
}

static inline cay_sandbox *make(const cay_config *config)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_backend_create(config, &sandbox, &err));
    return sandbox;
}

/* One in `place`, which does not outlive a test that fails. */
static inline cay_sandbox *make_local(void)
{
    AUTO(cay_config)
    config = configure("{\"type\": \"local\", \"work_dir\": \"%s\", \"ephemeral\": true}",
                       place);

    return make(config);
}

static inline cay_sandbox *reach(const char *id)
{
    AUTO(cay_config) config = configure("{\"type\": \"local\"}");
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_backend_connect(config, id, &sandbox, &err));
    return sandbox;
}

static inline void expect_refusal(const cay_config *config, int code, const char *hint)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_CODE(cay_backend_create(config, &sandbox, &err), code);
    ASSERT_HAS(err.hint, hint);
    ASSERT(!sandbox);
}

/* Root may have others. */
static inline void expect_no_records(void)
{
    if (geteuid() != 0)
        ASSERT_INT(count_names(runtime_path(), "sb-"), 0);
}

/* `act` as root, and again as somebody ordinary. */
static inline void as_both(void (*act)(void))
{
    const struct ordinary *user = ordinary_user(false);

    need_root();
    ASSERT(chmod(scratch(), 0711) == 0);
    snprintf(place, sizeof place, "%s", scratch_path("root"));
    ASSERT(mkdir(place, 0755) == 0);
    set_mark();
    act();
    cay_exec_done(&result);
    snprintf(place, sizeof place, "%s", scratch_path("ordinary"));
    ASSERT(mkdir(place, 0755) == 0 && chown(place, user->uid, user->gid) == 0);
    set_mark();
    as_ordinary(user, act);
}

#endif
