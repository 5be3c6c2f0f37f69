/* SPDX-License-Identifier: Apache-2.0 */

/* Builds and creators of templates that are killed. */
#include "inside.h"
#include "killed.h"
#include "templates.h"

/* scratch_path() keeps each of its results. */
static struct {
    char layers[512], sandboxes[512], templates[512], built[512], context[512], from[600];
} paths;

static void set_paths(void)
{
    snprintf(paths.layers, 512, "%s", scratch_path("home/layers"));
    snprintf(paths.sandboxes, 512, "%s", scratch_path("home/sandboxes"));
    snprintf(paths.templates, 512, "%s", scratch_path("home/templates"));
    snprintf(paths.built, 512, "%s", scratch_path("home/templates/built:1"));
    snprintf(paths.context, 512, "%s", scratch_path("context"));
}

static void build(const char *text)
{
    static char file[600];
    const struct cay_build_options options = {
        .size = sizeof options, .dir = paths.context, .file = file, .name = "built:1"};
    snprintf(file, sizeof file, "%s/Dockerfile", paths.context);
    FILE *out = fopen(file, "w");
    ASSERT(out && fputs(text, out) >= 0 && fclose(out) == 0);
    ASSERT_OK(cay_build(&options, &err));
}

/* The output of a shell in the template that was built. */
static const char *shell_in_built(const char *script)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "built:1"};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);

    run_as(sandbox, NULL, script, PATIENCE_MS);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    return result.out;
}

/* The sandbox of a killed build ends soon, but not at once. */
static void collect_all(void)
{
    size_t removed;

    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        ASSERT_OK(cay_sandbox_collect(&removed, &err));
        if (count_names(paths.sandboxes, "sb-") == 0 &&
            count_names(paths.layers, ".") == 2)
            return;
        usleep(10000);
    }
    ASSERT_INT(count_names(paths.sandboxes, "sb-"), 0);
    ASSERT_INT(count_names(paths.layers, "."), 2);
}

/* What is left is complete: a template with all its layers, or none. */
static void assert_whole_or_none(const char *script, const char *expected)
{
    size_t count;
    uint64_t bytes;

    collect_all();
    ASSERT_INT(count_names(paths.templates, "."), 2);
    if (access(paths.built, F_OK) == 0) {
        ASSERT_STR(shell_in_built(script), expected);
        ASSERT_OK(cay_template_remove("built:1", &err));
    }
    int code = CAY_E_BUSY; /* while processes of the killed build still end */
    for (int i = 0; i < PATIENCE_MS / 10 && code == CAY_E_BUSY; i++) {
        code = cay_template_prune(&count, &bytes, &err);
        if (code == CAY_E_BUSY)
            usleep(10000);
    }
    ASSERT_OK(code);
    ASSERT_INT(count_names(paths.layers, ""), 2);
}

static void build_copies(void)
{
    build("FROM tiny\nWORKDIR /w\nCOPY a b\n");
}

static void build_runs(void)
{
    build("FROM tiny\nRUN echo 1 > /x; rm /etc/motd\n");
}

static void create_from_image(void)
{
    ASSERT_OK(try_template("built:1", CAY_TEMPLATE_IMAGE, paths.from));
}

/* At every `step`th system call, or with CAY_EVERY_CALL in the environment at each. */
static void kill_at(void (*act)(void), int step, const char *script, const char *expected)
{
    int calls = 1;

    if (getenv("CAY_EVERY_CALL"))
        step = 1;
    set_paths();
    act(); /* the directories exist from now on */
    assert_whole_or_none(script, expected);
    for (; dies_after(act, calls); calls += step)
        assert_whole_or_none(script, expected);
    printf("# %d system calls\n", calls);
    ASSERT(calls > 50);
    ASSERT_STR(shell_in_built(script), expected);
    assert_whole_or_none(script, expected);
}

TEST(a_build_killed_at_any_system_call_leaves_a_whole_template_or_none)
{
    use_own_home();
    make_template("tar");
    put_file("context/a", "content\n");
    kill_at(build_copies, 1, "cat b", "content\n");
}

TEST(a_build_killed_while_a_command_runs_leaves_no_sandbox)
{
    use_own_home();
    make_template("tar");
    put_file("context/a", "content\n");
    kill_at(build_runs, 2, "cat /x; ls /etc/motd", "1\n");
}

TEST(an_image_killed_while_it_is_unpacked_leaves_nothing)
{
    use_own_home();
    snprintf(paths.from, sizeof paths.from, "oci-archive:%s", make_image("oci-tar"));
    kill_at(create_from_image, 7, "cat /etc/issue", "upper\n");
}
