/* SPDX-License-Identifier: Apache-2.0 */

/* The same tests for ordinary users: the programs of this suite are run again by one that
 * is made for it, on each level of the ladder.  Controls are root's, and were had.  What
 * a level does not have is left out here: other users on those with one, limits that only
 * cgroups keep on all of them.
 *
 * Then again for sandboxes that are claimed from a pool, by root as well: every probe,
 * the rules, the requests of a hostile sandbox, and the limits that a claim changes.
 * Files and roots are left out: the claim changes neither, and a spare's are those of any
 * sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../sandbox/ordinary.h"
#include "cay/sandbox.h"

static int open_program(const char *name)
{
    const char *directory = getenv("CAY_ESCAPE_PROGRAMS");
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", directory ? directory : ".", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        harness_fail(__FILE__, __LINE__, "%s: %s", path, strerror(errno));
    return fd;
}

/* Where the user can read it; the build directory may be somebody else's. */
static const char *copy_probe(void)
{
    static char bytes[4 << 20];
    int fd = open_program("probe");
    ssize_t len = read(fd, bytes, sizeof bytes);

    close(fd);
    ASSERT(len > 0 && len < (ssize_t)sizeof bytes);
    put_bytes("probe", bytes, (size_t)len);
    ASSERT(chmod(scratch(), 0755) == 0 && chmod(scratch_path("probe"), 0755) == 0);
    return scratch_path("probe");
}

static bool is_pooled;

static _Noreturn void be_program(const struct ordinary *user, enum cay_level level,
                                 int program, const char *const *patterns)
{
    char *argv[16] = {(char[]){"test"}};

    for (size_t i = 0; patterns && patterns[i] && i < 14; i++)
        argv[i + 1] = strdup(patterns[i]);
    setenv("CAY_PROBE", scratch_path("probe"), 1);
    setenv("CAY_ESCAPE_LEVEL", cay_level_slug(level), 1);
    if (is_pooled)
        setenv("CAY_ESCAPE_POOL", "1", 1);
    if (user)
        become_ordinary(user);
    fexecve(program, argv, environ);
    _exit(127);
}

/* Repeats what its tests say of probes, and of failures; how many passed. */
static size_t listen_to(FILE *output, bool *ret_failed)
{
    char line[8192], said[8192] = "";
    size_t passed = 0;

    while (fgets(line, sizeof line, output)) {
        if (strncmp(line, "# probe ", 8) == 0)
            fputs(line, stdout);
        else if (*line == '#')
            snprintf(said + strlen(said), sizeof said - strlen(said), "%s", line);
        if (strncmp(line, "not ok ", 7) == 0) {
            printf("%s# %s", said, line);
            *ret_failed = true;
        }
        if (*line != '#')
            said[0] = '\0';
        passed += strncmp(line, "ok ", 3) == 0;
    }
    return passed;
}

static void run_on(enum cay_level level, const char *name, const char *const *patterns)
{
    const struct ordinary *user =
        level == CAY_LEVEL_ROOT ? NULL : ordinary_user(level == CAY_LEVEL_RANGE);
    const char *pooled = is_pooled ? "pooled " : "";
    bool failed = false;
    int ends[2], status = -1;

    if (level == CAY_LEVEL_LANDLOCK && !has_landlock()) {
        printf("# %s is left out on the level landlock: it needs Linux 6.2\n", name);
        return;
    }
    (void)copy_probe();
    int program = open_program(name);
    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        be_program(user, level, program, patterns);
    }
    close(ends[1]);
    close(program);
    FILE *output = fdopen(ends[0], "re");
    size_t passed = listen_to(output, &failed);
    fclose(output);
    ASSERT(waitpid(child, &status, 0) == child);
    printf("# %s on %s%s: %zu passed\n", name, pooled, cay_level_slug(level), passed);
    if (failed || status != 0 || passed == 0)
        harness_fail(__FILE__, __LINE__, "%s on %s%s: status 0x%x", name, pooled,
                     cay_level_slug(level), (unsigned)status);
}

TEST(every_probe_is_held_on_every_level)
{
    static const char *const all[] = {"all_of_them*", NULL};

    for (enum cay_level level = CAY_LEVEL_RANGE; level <= CAY_LEVEL_LANDLOCK; level++)
        run_on(level, "test-probes", all);
}

TEST(the_rules_hold_on_every_level)
{
    for (enum cay_level level = CAY_LEVEL_RANGE; level <= CAY_LEVEL_LANDLOCK; level++)
        run_on(level, "test-rules", NULL);
}

TEST(files_are_served_safely_on_every_level)
{
    static const char *const most[] = {"F0[1-7]*", "F10*", "F15*", "F19*", "F22*", NULL};

    for (enum cay_level level = CAY_LEVEL_RANGE; level <= CAY_LEVEL_LANDLOCK; level++)
        run_on(level, "test-files", most);
}

TEST(requests_are_served_safely_on_every_level)
{
    static const char *const single[] = {"E01*",          "E14*",      "W*",
                                         "B14_a_killed*", "B14_coll*", NULL};
    static const char *const alone[] = {"E14*", "W11*", "B14_a_killed*", "B14_coll*",
                                        NULL};

    run_on(CAY_LEVEL_RANGE, "test-api", NULL);
    run_on(CAY_LEVEL_SINGLE, "test-api", single);
    run_on(CAY_LEVEL_LANDLOCK, "test-api", alone);
}

TEST(what_can_be_limited_without_cgroups_is_on_every_level)
{
    static const char *const most[] = {"B01*", "B02*", "B04_S3*", "B09*",
                                       "B10*", "B11*", "B12*",    NULL};
    static const char *const alone[] = {"B04_S3*", "B10*", "B11*", "B12*", NULL};

    run_on(CAY_LEVEL_RANGE, "test-load", most);
    run_on(CAY_LEVEL_SINGLE, "test-load", most);
    run_on(CAY_LEVEL_LANDLOCK, "test-load", alone);
}

static void run_pooled_on(enum cay_level level, const char *name,
                          const char *const *patterns)
{
    is_pooled = true;
    run_on(level, name, patterns);
    is_pooled = false;
}

TEST(every_probe_is_held_in_claimed_sandboxes)
{
    static const char *const all[] = {"all_of_them*", NULL};

    for (enum cay_level level = CAY_LEVEL_ROOT; level <= CAY_LEVEL_SINGLE; level++)
        run_pooled_on(level, "test-probes", all);
}

TEST(the_rules_hold_in_claimed_sandboxes)
{
    for (enum cay_level level = CAY_LEVEL_ROOT; level <= CAY_LEVEL_SINGLE; level++)
        run_pooled_on(level, "test-rules", NULL);
}

TEST(requests_are_served_safely_in_claimed_sandboxes)
{
    static const char *const single[] = {"E01*",          "E14*",      "W*",
                                         "B14_a_killed*", "B14_coll*", NULL};

    run_pooled_on(CAY_LEVEL_ROOT, "test-api", NULL);
    run_pooled_on(CAY_LEVEL_RANGE, "test-api", NULL);
    run_pooled_on(CAY_LEVEL_SINGLE, "test-api", single);
}

TEST(limits_are_those_of_the_claim)
{
    static const char *const most[] = {"B01_proc*", "B02_thr*", "B03_priv*",
                                       "B05*",      "B06*",     "B09*",
                                       "B12*",      "B15*",     NULL};
    static const char *const other[] = {"B01_proc*", "B02_thr*", "B09*", "B12*", NULL};

    run_pooled_on(CAY_LEVEL_ROOT, "test-load", most);
    run_pooled_on(CAY_LEVEL_RANGE, "test-load", other);
    run_pooled_on(CAY_LEVEL_SINGLE, "test-load", other);
}
