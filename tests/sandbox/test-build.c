/* SPDX-License-Identifier: Apache-2.0 */

/* cay_build(), on a tiny template of busybox. */
#include "inside.h"
#include "templates.h"

struct seen {
    unsigned steps, cached;
    char output[4096];
    bool cancels;
};
static struct seen seen;

static int watch(void *cookie, const struct cay_build_progress *progress)
{
    size_t used = strlen(seen.output);

    (void)cookie;
    seen.steps += progress->event == CAY_BUILD_STEP;
    seen.cached += progress->event == CAY_BUILD_CACHED;
    if (progress->event == CAY_BUILD_OUTPUT && used + progress->len < sizeof seen.output)
        memcpy(seen.output + used, progress->text, progress->len);
    return seen.cancels && progress->event == CAY_BUILD_OUTPUT && progress->len;
}

static int build_with(const char *text, const char *const *args, const char *target)
{
    static char dir[512];

    snprintf(dir, sizeof dir, "%s", scratch_path("context"));
    const struct cay_build_options options = {.size = sizeof options,
                                              .dir = dir,
                                              .name = "built:1",
                                              .args = args,
                                              .target = target,
                                              .on_progress = watch};
    seen = (struct seen){.cancels = seen.cancels};
    put_file("context/Dockerfile", text);
    return cay_build(&options, &err);
}

static int build(const char *text)
{
    return build_with(text, NULL, NULL);
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

static void use_tiny(void)
{
    use_own_home();
    make_template("tar");
}

/* Neither sandboxes nor drafts: "." and "..". */
static void assert_nothing_left(int layers)
{
    ASSERT_INT(count_names(scratch_path("home/sandboxes"), ""), 2);
    ASSERT_INT(count_names(scratch_path("home/layers"), ""), 2 + layers);
}

TEST(a_build_runs_commands_and_copies_files)
{
    use_tiny();
    put_file("context/a", "content\n");
    put_file("context/sub/b", "below\n");
    put_file("context/.dockerignore", "*.log\nDockerfile\n");
    put_file("context/c.log", "no\n");
    ASSERT_OK(build("FROM tiny\n"
                    "ARG V=1\n"
                    "ENV A=b$V\n"
                    "RUN echo \"$A $V\" > /x; whoami; rm /bin/wc; mkdir -p /deep/er\n"
                    "WORKDIR /app\n"
                    "COPY . .\n"
                    "COPY --chown=1000:1000 --chmod=700 a sub /owned/\n"
                    "RUN [\"touch\", \"here\"]\n"
                    "USER 1000\n"
                    "RUN whoami > /tmp/me\n"));
    ASSERT_INT(seen.steps, 6);
    ASSERT_STR(seen.output, "root\n");
    ASSERT_STR(shell_in_built("cat /x a sub/b /tmp/me; echo *; pwd; ls /bin/wc; "
                              "stat -c '%u %a' /owned/a /owned/b /app/a /deep"),
               "b1 1\ncontent\nbelow\nuser\na here sub\n/app\n"
               "1000 700\n1000 700\n0 644\n0 755\n");
    assert_nothing_left(6);
}

TEST(a_build_uses_the_layers_of_an_earlier_one)
{
    static const char text[] = "FROM tiny\nRUN echo 1 > /x\nCOPY a /a\nRUN echo 2 > /y\n";

    use_tiny();
    put_file("context/a", "one\n");
    ASSERT_OK(build(text));
    ASSERT_INT(seen.steps, 3);
    struct stat before = {0}, after = {0};
    ASSERT(stat(scratch_path("home/templates/built:1"), &before) == 0);
    ASSERT_OK(build(text));
    ASSERT_INT(seen.steps, 0);
    ASSERT_INT(seen.cached, 3);
    ASSERT(stat(scratch_path("home/templates/built:1"), &after) == 0);
    ASSERT_INT(after.st_ino, before.st_ino);
    put_file("context/a", "two\n");
    ASSERT_OK(build(text));
    ASSERT_INT(seen.steps, 2);
    ASSERT_INT(seen.cached, 1);
    ASSERT_STR(shell_in_built("cat /x /a /y"), "1\ntwo\n2\n");
    ASSERT(chmod(scratch_path("context/a"), 0755) == 0);
    ASSERT_OK(build(text));
    ASSERT_INT(seen.steps, 2);
    /* A variable that the command could use. */
    ASSERT_OK(build("FROM tiny\nENV A=1\nRUN echo 1 > /x\n"));
    ASSERT_INT(seen.steps, 1);
}

TEST(a_stage_is_copied_from_and_others_are_left_out)
{
    const char *const args[] = {"WHAT=given", NULL};
    static const char text[] = "ARG WHAT=default\n"
                               "FROM tiny AS unused\nRUN exit 1\n"
                               "FROM tiny AS Maker\nARG WHAT\nRUN echo $WHAT > /made; "
                               "mkdir /out; ln -s /made /out/link; chown 7 /made\n"
                               "FROM scratch\n"
                               "COPY --from=maker /bin /bin\n"
                               "COPY --from=tiny /etc/passwd /etc/\n"
                               "COPY --from=1 /made /out /\n"
                               "COPY --from=maker /ma* /second\n"
                               "CMD [\"sh\"]\n";

    use_tiny();
    ASSERT_OK(build_with(text, args, NULL));
    ASSERT_INT(seen.steps, 5);
    ASSERT_STR(shell_in_built("cat /link /second; stat -c %u /made; ls /deep"),
               "given\ngiven\n7\n");
    ASSERT_OK(build_with(text, args, "maker"));
    ASSERT_INT(seen.cached, 1);
    ASSERT_CODE(build_with(text, args, "nobody"), CAY_E_NOT_FOUND);
    ASSERT_CODE(build_with(text, args, "unused"), CAY_E_EXEC_FAILED);
}

TEST(what_a_build_does_not_support_is_refused_before_its_first_step)
{
    static const struct {
        const char *text, *subject;
        int code;
    } cases[] = {
        {"FROM tiny\nRUN echo\nVOLUME /x\n", "Dockerfile:3", CAY_E_UNSUPPORTED},
        {"FROM tiny\nRUN echo\nFROM missing\nCOPY --from=0 / /\n", "Dockerfile:3",
         CAY_E_NOT_FOUND},
        {"FROM tiny AS a\nRUN echo\nFROM --platform=linux/pdp11 a\n", "Dockerfile:3",
         CAY_E_UNSUPPORTED},
        {"FROM host\nRUN echo\n", "host", CAY_E_UNSUPPORTED},
    };

    use_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_CODE(build(cases[i].text), cases[i].code);
        ASSERT_STR(err.subject, cases[i].subject);
        ASSERT_INT(seen.steps, 0);
    }
}

TEST(a_step_that_fails_names_its_line_and_leaves_nothing)
{
    use_tiny();
    ASSERT_CODE(build("FROM tiny\nRUN echo 1 > /x\n\nRUN echo 2 > /y; exit 3\n"),
                CAY_E_EXEC_FAILED);
    ASSERT_STR(err.subject, "Dockerfile:4");
    ASSERT(strstr(err.hint, "exit code 3"));
    assert_nothing_left(1);
    ASSERT_CODE(build("FROM tiny\nRUN [\"/no/such\"]\n"), CAY_E_EXEC_FAILED);
    ASSERT_STR(err.subject, "Dockerfile:2");
    ASSERT_CODE(build("FROM scratch\nRUN echo\n"), CAY_E_INVALID);
    ASSERT_CODE(build("FROM tiny\nCOPY missing /\n"), CAY_E_NOT_FOUND);
    ASSERT_CODE(build("FROM tiny\nCOPY --chown=nobody-here Dockerfile /\n"),
                CAY_E_INVALID);
    seen.cancels = true;
    ASSERT_CODE(build("FROM tiny\nRUN echo 1 > /x\nRUN echo; sleep 1000\n"),
                CAY_E_CANCELLED);
    seen.cancels = false;
    assert_nothing_left(1);
    ASSERT(access(scratch_path("home/templates/built:1"), F_OK) != 0);
}

TEST(copy_reaches_nothing_outside_of_the_directory_or_the_image)
{
    char text[1024];

    use_tiny();
    put_file("canary/canary", "alive\n");
    const char *canary = strdupa(scratch_path("canary"));
    put_file("context/file", "evil\n");
    ASSERT(symlink(canary, scratch_path("context/out")) == 0);
    ASSERT_CODE(build("FROM tiny\nCOPY ../canary /x\n"), CAY_E_OUTSIDE);
    ASSERT_CODE(build("FROM tiny\nCOPY out/canary /x\n"), CAY_E_NOT_FOUND);
    /* The image's link leads to a directory of the image. */
    snprintf(text, sizeof text,
             "FROM tiny\nRUN mkdir -p %s; ln -s %s /into\nCOPY file /into/\n"
             "COPY file /into/canary\nRUN cat %s/file %s/canary\n",
             canary, canary, canary, canary);
    ASSERT_OK(build(text));
    ASSERT_STR(seen.output, "evil\nevil\n");
    assert_canary();
    /* A directory does not replace a link. */
    put_file("context/tree/into/file", "evil\n");
    snprintf(text, sizeof text, "FROM tiny\nRUN ln -s %s /into\nCOPY tree /\n", canary);
    ASSERT_CODE(build(text), CAY_E_NOT_A_DIRECTORY);
    assert_canary();
}

TEST(add_unpacks_archives_and_copy_does_not)
{
    use_tiny();
    const char *made = make_image("tar");
    AUTO_FREE char *from = strdup(made);
    put_file("context/x", "");
    ASSERT(rename(from, scratch_path("context/file.tar")) == 0);
    ASSERT_OK(build("FROM tiny\nADD file.tar x /deep/\nCOPY file.tar /file.tar\n"));
    ASSERT_STR(shell_in_built("ls -d /deep/bin/sh /deep/x /file.tar"),
               "/deep/bin/sh\n/deep/x\n/file.tar\n");
}

TEST(a_template_in_use_is_not_replaced)
{
    use_tiny();
    ASSERT_OK(build("FROM tiny\nRUN echo 1 > /x\n"));
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "built:1"};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    ASSERT_OK(build("FROM tiny\nRUN echo 1 > /x\n"));
    ASSERT_CODE(build("FROM tiny\nRUN echo 2 > /x\n"), CAY_E_BUSY);
    run_as(sandbox, NULL, "cat /x", PATIENCE_MS);
    ASSERT_STR(result.out, "1\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(build("FROM tiny\nRUN echo 2 > /x\n"));
    ASSERT_STR(shell_in_built("cat /x"), "2\n");
}

TEST(removing_a_template_counts_what_others_need)
{
    use_tiny();
    ASSERT_OK(build("FROM tiny\nRUN echo 1 > /x\n"));
    const struct cay_build_options other = {
        .size = sizeof other, .dir = strdupa(scratch_path("context")), .name = "other"};
    put_file("context/Dockerfile", "FROM built:1\nRUN echo 2 > /y\n");
    ASSERT_OK(cay_build(&other, &err));
    ASSERT_INT(count_names(scratch_path("home/layers"), ""), 4);
    ASSERT_CODE(cay_template_remove("tiny", &err), CAY_E_BUSY);
    /* Both have the layer of /x. */
    ASSERT_OK(cay_template_remove("built:1", &err));
    assert_nothing_left(2);
    ASSERT_CODE(cay_template_remove("tiny", &err), CAY_E_BUSY);
    ASSERT_STR(err.hint, "remove that first: other");
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "other"};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run_as(sandbox, NULL, "cat /x /y", PATIENCE_MS);
    ASSERT_STR(result.out, "1\n2\n");
    ASSERT_CODE(cay_template_remove("other", &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_template_remove("other", &err));
    assert_nothing_left(0);
    /* A layer that has no template goes with the one below it. */
    const struct cay_build_options unnamed = {.size = sizeof unnamed, .dir = other.dir};
    put_file("context/Dockerfile", "FROM tiny\nRUN echo 3 > /z\n");
    ASSERT_OK(cay_build(&unnamed, &err));
    assert_nothing_left(1);
    ASSERT_OK(cay_template_remove("tiny", &err));
    assert_nothing_left(0);
}
