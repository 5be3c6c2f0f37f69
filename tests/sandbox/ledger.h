/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LEDGER_H
#define TESTS_LEDGER_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "cay/sandbox.h"
#include "cgroups.h"

/* For a machine that is very slow, not for waiting. */
enum { PATIENCE_MS = 120000 };

/* What changes the process for good. */
static inline void in_own_process(void (*act)(void))
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        act();
        fflush(stdout);
        _exit(0);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
}

/* A kill waits ten seconds, and a slow machine needs longer for a thousand processes. */
static inline void auto_cay_sandbox(cay_sandbox **sandbox)
{
    for (int tries = 0; *sandbox && tries < 12; tries++) {
        if (cay_sandbox_kill(*sandbox, NULL) != CAY_E_BUSY)
            break;
        printf("# it was killed and has not ended yet\n");
    }
    cay_sandbox_free(*sandbox);
}

/* Tests run as root; those that test-ladder runs again, for ordinary users, on the level
 * that it names. */
static inline enum cay_level wanted_level(void)
{
    const char *name = getenv("CAY_TEST_LEVEL");

    for (int level = CAY_LEVEL_ROOT; name && level <= CAY_LEVEL_LANDLOCK; level++)
        if (strcmp(name, cay_level_slug((enum cay_level)level)) == 0)
            return (enum cay_level)level;
    return CAY_LEVEL_BEST;
}

static inline void need_root(void)
{
    if (geteuid() != 0 && !getenv("CAY_TEST_LEVEL"))
        SKIP("this is tested as root, and from there as others");
}

/* Where this user's sandboxes are recorded. */
static inline const char *runtime_path(void)
{
    static char path[256];

    if (geteuid() == 0)
        return "/run/cay";
    snprintf(path, sizeof path, "%.200s/cay", getenv("XDG_RUNTIME_DIR"));
    return path;
}

/* Made with defaults but for what `options` says; killed at the end of the scope. */
static inline cay_sandbox *make_sandbox(const struct cay_sandbox_options *options)
{
    struct cay_sandbox_options own = {.size = sizeof own};
    cay_sandbox *sandbox = NULL;

    need_root();
    if (options)
        own = *options;
    own.ephemeral = true; /* a test that fails must not leave it behind */
    if (!own.level)
        own.level = wanted_level();
    ASSERT_OK(cay_sandbox_create(&own, &sandbox, &err));
    if (own.level) {
        struct cay_sandbox_info info;
        ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
        ASSERT_STR(cay_level_slug(info.level), cay_level_slug(own.level));
    }
    return sandbox;
}

static struct cay_exec_result result;

/* Runs `sh -c script` as `user`; the result is in `result` until the next run. */
static inline void run_as(cay_sandbox *sandbox, const char *user, const char *script,
                          uint64_t timeout_ms)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = user, .timeout_ms = timeout_ms};

    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
}

static inline void run(cay_sandbox *sandbox, const char *script)
{
    run_as(sandbox, NULL, script, PATIENCE_MS);
}

/* Runs into a timeout that is long enough, on this machine, for some output. */
static inline void run_late(cay_sandbox *sandbox, const char *user, const char *script)
{
    for (uint64_t ms = 300; ms < PATIENCE_MS; ms *= 4) {
        run_as(sandbox, user, script, ms);
        ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
        if (result.out_len)
            break;
    }
}

/* Names in a directory that contain a text. */
static inline size_t count_names(const char *path, const char *part)
{
    DIR *directory = opendir(path);
    size_t count = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += strstr(entry->d_name, part) != NULL;
    if (directory)
        closedir(directory);
    return count;
}

#endif
