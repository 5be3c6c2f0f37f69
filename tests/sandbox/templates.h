/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TEMPLATES_H
#define TESTS_TEMPLATES_H

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ledger.h"
#include "native/record/idmap.h"
#include "native/record/state.h"

/* A state directory of the test's own, which goes with its scratch directory. */
static inline void remove_own_home(void)
{
    int dir = open(scratch(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)state_remove_tree(dir, "home", "test", "home", NULL);
    (void)close(dir);
}

static inline void use_own_home(void)
{
    need_root();
    ASSERT(setenv("CAY_HOME", scratch_path("home"), 1) == 0);
    if (geteuid() != 0) /* its files belong to subordinate ids */
        harness_at_end(remove_own_home);
}

static inline int run_program(char *const argv[])
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    ASSERT_INT(error, 0);
    ASSERT(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What make-image writes, in the scratch directory; links that lead out lead to
 * SCRATCH/canary. */
static inline const char *make_image(const char *kind)
{
    const char *path = scratch_path(kind), *canary = scratch_path("canary");
    char *argv[] = {(char[]){"python3"}, (char[]){MAKE_IMAGE}, strdupa(kind),
                    strdupa(path),       strdupa(canary),      NULL};

    put_file("canary/canary", "alive\n");
    if (access("/bin/busybox", X_OK) != 0)
        SKIP("busybox-static is not installed");
    ASSERT_INT(run_program(argv), 0);
    return path;
}

static inline void assert_canary(void)
{
    ASSERT_STR(get_file("canary/canary"), "alive\n");
    ASSERT_INT(count_names(scratch_path("canary"), ""), 3); /* ".", ".." and it */
}

static inline int try_template(const char *name, enum cay_template_source source,
                               const char *from)
{
    const struct cay_template_options options = {
        .size = sizeof options, .name = name, .source = source, .from = from};

    return cay_template_create(&options, &err);
}

static inline enum cay_template_source source_of(const char *kind)
{
    if (strcmp(kind, "directory") == 0)
        return CAY_TEMPLATE_DIR;
    return strncmp(kind, "oci", 3) == 0 || strncmp(kind, "saved", 5) == 0 ||
                   strncmp(kind, "hostile-whiteout", 16) == 0
               ? CAY_TEMPLATE_OCI
               : CAY_TEMPLATE_TAR;
}

/* A template called "tiny" of that kind of source. */
static inline void make_template(const char *kind)
{
    ASSERT_OK(try_template("tiny", source_of(kind), make_image(kind)));
}

static inline cay_sandbox *make_tiny(void)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "tiny"};

    return make_sandbox(&options);
}

/* "SCRATCH/home/templates/tiny/root/PATH" */
static inline const char *in_tiny(const char *path)
{
    static char name[512];

    snprintf(name, sizeof name, "home/templates/tiny/root/%s", path);
    return scratch_path(name);
}

static inline struct stat stat_in_tiny(const char *path)
{
    struct stat st = {0};
    struct subids users;

    if (lstat(in_tiny(path), &st) != 0)
        st.st_mode = 0;
    if (geteuid() != 0 && subids_own(SUBIDS_USERS, &users)) /* as inside */
        st.st_uid = st.st_uid == geteuid() ? 1000 : st.st_uid - users.first;
    return st;
}

#endif
