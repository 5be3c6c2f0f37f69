/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ORDINARY_H
#define TESTS_ORDINARY_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/landlock.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../unit/harness.h"

/* Ordinary users for tests that need one: one with a range in /etc/subuid and one
 * without, made when first asked for and removed when the program ends.  Their names have
 * the program's pid, so that a later program finds those of one that was killed. */

#define ORDINARY_PREFIX "caytest"

struct ordinary {
    char name[32];
    uid_t uid;
    gid_t gid;
    char runtime[64]; /* its XDG_RUNTIME_DIR */
};

static struct ordinary ordinary_users[2];

static inline int ordinary_spawn(char *const argv[])
{
    char *const env[] = {(char[]){"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, NULL};
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    if (error || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The files of users are locked by whoever changes them, another test for example. */
static inline int ordinary_tool(char *const argv[])
{
    const struct timespec moment = {.tv_nsec = 200000000};
    int code = -1;

    for (int tries = 0; tries < 50 && code != 0; tries++) {
        code = ordinary_spawn(argv);
        if (code != 1 && code != 10) /* what they exit with if it is locked */
            break;
        nanosleep(&moment, NULL);
    }
    return code;
}

static inline void ordinary_remove(const char *name)
{
    char word[] = "userdel";
    char *const argv[] = {word, (char *)(uintptr_t)name, NULL};

    (void)ordinary_tool(argv);
}

/* A creator that was killed leaves an empty record, which a collect removes when it is
 * some seconds old. */
static inline void ordinary_remove_empty(const char *path)
{
    DIR *list = opendir(path);
    struct stat st;

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strncmp(entry->d_name, "sb-", 3) == 0 &&
            fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_size == 0)
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
}

/* What is left in their directories by then is a failure of its own. */
static inline void ordinary_remove_all(void)
{
    static const char *const below[] = {"/ranges", "/names", "/pools", "/spares", ""};
    bool empty = true;

    for (size_t i = 0; i < 2; i++)
        if (ordinary_users[i].name[0]) {
            char cay[80];
            for (size_t j = 0; j < sizeof below / sizeof *below; j++) {
                snprintf(cay, sizeof cay, "%s/cay%s", ordinary_users[i].runtime,
                         below[j]);
                ordinary_remove_empty(cay);
                (void)rmdir(cay);
            }
            empty &= rmdir(ordinary_users[i].runtime) == 0;
            ordinary_remove(ordinary_users[i].name);
        }
    if (!empty) {
        printf("# something was left in the directory of an ordinary user\n");
        fflush(stdout);
        _exit(1);
    }
}

/* Those of programs that were killed. */
static inline void ordinary_remove_stale(void)
{
    char stale[16][32];
    size_t count = 0;

    setpwent();
    for (struct passwd *entry; count < 16 && (entry = getpwent());)
        if (strncmp(entry->pw_name, ORDINARY_PREFIX, strlen(ORDINARY_PREFIX)) == 0) {
            long pid = strtol(entry->pw_name + strlen(ORDINARY_PREFIX) + 1, NULL, 10);
            if (pid > 0 && kill((pid_t)pid, 0) != 0)
                snprintf(stale[count++], 32, "%.31s", entry->pw_name);
        }
    endpwent();
    while (count > 0)
        ordinary_remove(stale[--count]);
}

static inline void ordinary_give_range(const struct ordinary *user)
{
    char word[] = "usermod", users[] = "--add-subuids", groups[] = "--add-subgids";
    char range[32];
    /* Each pid its own, so that programs that run at once do not share one. */
    unsigned first = 0x60000000u + ((unsigned)getpid() & 0xFFF) * 65536u;

    snprintf(range, sizeof range, "%u-%u", first, first + 65535);
    char *const argv[] = {
        word, users, range, groups, range, (char *)(uintptr_t)user->name, NULL};
    ASSERT_INT(ordinary_tool(argv), 0);
}

/* One of that name is of a program that was killed and had our number. */
static inline void ordinary_make_directory(char *path)
{
    char word[] = "rm", flags[] = "-rf";
    char *const argv[] = {word, flags, path, NULL};

    if (mkdir(path, 0700) == 0)
        return;
    ASSERT_INT(errno, EEXIST);
    ASSERT_INT(ordinary_spawn(argv), 0);
    ASSERT_INT(mkdir(path, 0700), 0);
}

static inline const struct ordinary *ordinary_user(bool with_range)
{
    struct ordinary *user = &ordinary_users[with_range];
    char word[] = "useradd", system[] = "--system", home[] = "--no-create-home";
    char group[] = "--user-group", name[32];

    if (geteuid() != 0)
        SKIP("only root can make an ordinary user");
    if (user->name[0])
        return user;
    if (!ordinary_users[!with_range].name[0]) {
        ordinary_remove_stale();
        atexit(ordinary_remove_all);
    }
    snprintf(name, sizeof name, ORDINARY_PREFIX "%c%d", with_range ? 'r' : 's',
             (int)getpid());
    /* A system user gets no subordinate ids by itself. */
    char *const argv[] = {word, system, home, group, name, NULL};
    ASSERT_INT(ordinary_tool(argv), 0);
    snprintf(user->name, sizeof user->name, "%s", name);
    const struct passwd *entry = getpwnam(name);
    ASSERT(entry);
    user->uid = entry->pw_uid;
    user->gid = entry->pw_gid;
    snprintf(user->runtime, sizeof user->runtime, "/tmp/%s-run", name);
    ordinary_make_directory(user->runtime);
    ASSERT(chown(user->runtime, user->uid, user->gid) == 0);
    if (with_range)
        ordinary_give_range(user);
    return user;
}

/* For good; as in a program that this user has started. */
static inline void become_ordinary(const struct ordinary *user)
{
    if (setgroups(0, NULL) != 0 || setresgid(user->gid, user->gid, user->gid) != 0 ||
        setresuid(user->uid, user->uid, user->uid) != 0 || chdir("/") != 0)
        _exit(2);
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    setenv("XDG_RUNTIME_DIR", user->runtime, 1);
    setenv("HOME", user->runtime, 1); /* it has no other place */
    unsetenv("XDG_STATE_HOME");
    unsetenv("CAY_HOME");
    setenv("CAY_TEST_LEVEL", "any", 0);
}

/* Landlock alone is enough for a sandbox from Linux 6.2 on (ABI 3), and 6.1 is the floor.
 */
static inline bool has_landlock_abi(int abi)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0,
                   LANDLOCK_CREATE_RULESET_VERSION) >= abi;
}

static inline bool has_landlock(void)
{
    return has_landlock_abi(3);
}

static inline void need_landlock(void)
{
    if (!has_landlock())
        harness_remark("left out: the level landlock needs Linux 6.2");
}

/* Calls `act` in a process that is the user's; a failed assertion there is one here. */
static inline void as_ordinary(const struct ordinary *user, void (*act)(void))
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        become_ordinary(user);
        act();
        fflush(stdout);
        _exit(0);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    if (status != 0)
        harness_fail(__FILE__, __LINE__, "as %s it failed, see above: status 0x%x",
                     user->name, (unsigned)status);
}

/* Runs `act` as the user where a mount of ours hides something of the host's. */
static inline void in_own_mounts(const char *hidden, const struct ordinary *user,
                                 void (*act)(void))
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        ASSERT(unshare(CLONE_NEWNS) == 0);
        ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        ASSERT(mount("/dev/null", hidden, NULL, MS_BIND, NULL) == 0);
        as_ordinary(user, act);
        _exit(0);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
}

#endif
