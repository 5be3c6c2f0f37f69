/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SESSIONS_H
#define TESTS_SESSIONS_H

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#include "stores.h"

/* Sessions with real sandboxes.  /run/cay is this program's own, so that all that is
 * there was made by the test. */

static inline void auto_cay_manager(cay_manager **manager)
{
    cay_manager_free(*manager);
}

static inline void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

/* Of either backend; NULL if there is none. */
static inline cay_sandbox *open_by_id(const char *id)
{
    static const char text[] = "{type: local}";
    cay_config *local = NULL;
    cay_sandbox *sandbox = NULL;

    if (cay_sandbox_open(id, &sandbox, NULL) == CAY_E_INVALID &&
        cay_config_parse(text, strlen(text), "test", NULL, &local, NULL) == CAY_OK)
        (void)!cay_backend_connect(local, id, &sandbox, NULL);
    cay_config_free(local);
    return sandbox;
}

/* Kills whatever there is; for tests that fail. */
static inline void kill_all(void)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    if (cay_sandbox_list(&infos, &count, NULL) != CAY_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        cay_sandbox *sandbox = open_by_id(infos[i].id);
        if (sandbox)
            (void)!cay_sandbox_remove(sandbox, NULL);
        cay_sandbox_free(sandbox);
    }
    cay_free(infos);
    (void)!cay_sandbox_collect(&count, NULL);
}

static inline void need_own_world(void)
{
    static bool is_there;

    if (geteuid() != 0)
        SKIP("this is tested as root");
    if (!is_there) {
        ASSERT_INT(unshare(CLONE_NEWNS), 0);
        ASSERT_INT(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
        ASSERT(mkdir("/run/cay", 0700) == 0 || errno == EEXIST);
        ASSERT_INT(mount("cay-test", "/run/cay", "tmpfs", 0, "mode=0700"), 0);
        is_there = true;
    }
    setenv("CAY_HOME", scratch_path("home"), 1); /* of disks */
    harness_at_end(kill_all);
}

static inline size_t count_in(const char *path, const char *part)
{
    DIR *directory = opendir(path);
    size_t count = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
    if (directory)
        closedir(directory);
    return count;
}

/* Nothing of any sandbox, without anybody's having cleaned up. */
static inline void assert_empty_world(void)
{
    ASSERT_INT(count_in("/run/cay", "sb-"), 0);
    ASSERT_INT(count_in("/run/cay/ranges", ""), 0);
    ASSERT_INT(count_in(scratch_path("home/sandboxes"), ""), 0);
}

/* Without the spares of a pool. */
static inline size_t count_sandboxes(void)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, spares = 0;

    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        spares += infos[i].state == CAY_STATE_SPARE;
    cay_free(infos);
    return count - spares;
}

static inline cay_config *config_of(const char *text)
{
    cay_config *config = NULL;

    ASSERT_OK(cay_config_parse(text, strlen(text), "test", NULL, &config, &err));
    return config;
}

static const char *pool_of_sessions; /* of manage(): its name, or NULL */

static inline cay_manager *manage(cay_store *store, const char *session,
                                  const cay_config *config)
{
    const struct cay_manager_options options = {.size = sizeof options,
                                                .store = store,
                                                .user_id = "ann",
                                                .session_id = session,
                                                .config = config,
                                                .pool = pool_of_sessions};
    cay_manager *manager = NULL;

    ASSERT_OK(cay_manager_new(&options, &manager, &err));
    return manager;
}

/* The manager's sandbox, which runs. */
static inline cay_sandbox *sandbox_of(cay_manager *manager)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_manager_sandbox(manager, &sandbox, &err));
    return sandbox;
}

/* What `sh -c script` writes inside, without its last newline; until the next. */
static inline const char *told(cay_sandbox *sandbox, const char *script)
{
    static struct cay_exec_result result;
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 60000};

    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    if (result.exit_code != 0)
        harness_fail(__FILE__, __LINE__, "%s: exit %d: %s", script, result.exit_code,
                     result.error);
    if (result.out_len && result.out[result.out_len - 1] == '\n')
        result.out[result.out_len - 1] = '\0';
    return result.out;
}

static inline enum cay_state state_of(const char *id)
{
    enum cay_state state = (enum cay_state)0;
    cay_sandbox *sandbox = open_by_id(id);

    ASSERT(sandbox);
    ASSERT_OK(cay_sandbox_state(sandbox, &state, &err));
    cay_sandbox_free(sandbox);
    return state;
}

#endif
