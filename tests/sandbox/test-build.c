/* SPDX-License-Identifier: Apache-2.0 */

/* cay_build(), on a tiny template of busybox. */
#include "inside.h"
#include "templates.h"

#include <sys/file.h>

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
                    "COPY --chown=user:daemon a /named/\n"
                    "COPY --chown=7:daemon a /named/b\n"
                    "COPY --chown=daemon a /named/c\n"
                    "RUN [\"touch\", \"here\"]\n"
                    "USER 1000\n"
                    "RUN whoami > /tmp/me\n"));
    ASSERT_INT(seen.steps, 9);
    ASSERT_STR(seen.output, "root\n");
    ASSERT_STR(shell_in_built("cat /x a sub/b /tmp/me; echo *; pwd; ls /bin/wc; "
                              "stat -c '%u %a' /owned/a /owned/b /app/a /deep; "
                              "stat -c %u:%g /named/*"),
               "b1 1\ncontent\nbelow\nuser\na here sub\n/app\n"
               "1000 700\n1000 700\n0 644\n0 755\n1000:1\n7:1\n1:1\n");
    assert_nothing_left(9);
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
    ASSERT_CODE(build("FROM tiny\nCOPY --chown=0:nobody-here Dockerfile /\n"),
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

TEST(special_files_of_the_directory_are_refused)
{
    use_tiny();
    put_file("context/a", "x");
    ASSERT_INT(mkfifo(scratch_path("context/pipe"), 0600), 0);
    ASSERT_CODE(build("FROM tiny\nCOPY . /x\n"), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "pipe: ");
    ASSERT_CODE(build("FROM tiny\nCOPY pipe /x\n"), CAY_E_UNSUPPORTED);
    put_file("context/.dockerignore", "pipe\n");
    ASSERT_OK(build("FROM tiny\nCOPY . /x\n"));
    ASSERT_CODE(build("FROM tiny AS one\nRUN mkfifo /p\nFROM tiny\n"
                      "COPY --from=one /p /x\n"),
                CAY_E_UNSUPPORTED);
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

static int install(const char *from, const char *const *packages)
{
    const struct cay_install_options options = {.size = sizeof options,
                                                .name = "more",
                                                .from = from,
                                                .packages = packages,
                                                .on_progress = watch};

    seen = (struct seen){0};
    return cay_template_install(&options, &err);
}

/* A script stands for apt-get. */
TEST(packages_are_installed_in_a_sandbox_as_a_layer)
{
    static const char *const some[] = {"git,curl=1.2~3", "python3-numpy", NULL};
    static const char *const wrong[][2] = {
        {"", NULL},     {"-y", NULL},  {"a b", NULL},  {"git;id", NULL}, {"$(id)", NULL},
        {"git,", NULL}, {"GIT", NULL}, {"../x", NULL}, {"git\"]", NULL}, {NULL, NULL}};
    char text[512] = "";

    use_tiny();
    ASSERT_CODE(install("tiny", some), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "apt-get");
    put_file("context/apt", "#!/bin/sh\necho \"$@\" >> /log; id -u\n");
    ASSERT_OK(build("FROM tiny\nCOPY --chmod=755 apt /usr/bin/apt-get\nUSER 1000\n"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ASSERT_CODE(install("built:1", wrong[i]), CAY_E_INVALID);
    ASSERT_OK(install("built:1", some));
    ASSERT_STR(seen.output, "0\n0\n0\n");
    ASSERT_CODE(install("built:1", some), CAY_E_EXISTS);
    assert_nothing_left(2);
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "more"};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run_as(sandbox, NULL, "cat /log; id -u", PATIENCE_MS);
    snprintf(text, sizeof text, "%s", result.out);
    ASSERT_STR(text, "-q update\n-qy --no-install-recommends install -- git curl=1.2~3 "
                     "python3-numpy\nclean\n1000\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    put_file("context/apt", "#!/bin/sh\necho no such package >&2; exit 100\n");
    ASSERT_OK(cay_template_remove("more", &err));
    ASSERT_OK(build("FROM tiny\nCOPY --chmod=755 apt /usr/bin/apt-get\n"));
    ASSERT_CODE(install("built:1", some), CAY_E_EXEC_FAILED);
    ASSERT_CODE(cay_template_remove("more", &err), CAY_E_NOT_FOUND);
}

TEST(layers_that_no_template_needs_are_pruned)
{
    const struct cay_build_options unnamed = {.size = sizeof unnamed,
                                              .dir = strdupa(scratch_path("context"))};
    size_t count = 7;
    uint64_t bytes = 7;

    use_own_home();
    ASSERT_OK(cay_template_prune(&count, &bytes, &err));
    ASSERT_INT(count + bytes, 0);
    make_template("tar");
    ASSERT_OK(build("FROM tiny\nRUN echo 1 > /x\nRUN echo 2 > /y\n"));
    put_file("context/Dockerfile", "FROM tiny\nRUN echo 1 > /x\nRUN echo 333 > /y\n");
    ASSERT_OK(cay_build(&unnamed, &err));
    put_file("home/layers/.new-0123456789abcdef/view/upper/x", "x");
    put_file("home/layers/.old-0123456789abcdef/root/x", "x");
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    assert_nothing_left(3);
    ASSERT_OK(cay_template_prune(&count, &bytes, &err));
    ASSERT_INT(count, 1);
    ASSERT_INT(bytes, 4);
    assert_nothing_left(2);
    ASSERT_STR(shell_in_built("cat /x /y"), "1\n2\n");
    /* A build holds the layers; a template that cannot be read may need any of them. */
    int layers = open(scratch_path("home/layers"), O_RDONLY | O_CLOEXEC);
    ASSERT(flock(layers, LOCK_SH) == 0);
    ASSERT_CODE(cay_template_prune(&count, &bytes, &err), CAY_E_BUSY);
    ASSERT(close(layers) == 0);
    put_file("home/templates/built:1/info", "damaged");
    ASSERT_CODE(cay_template_prune(&count, &bytes, &err), CAY_E_IO);
    ASSERT_STR(err.subject, "built:1");
    assert_nothing_left(2);
    ASSERT_OK(cay_template_remove("built:1", &err));
    ASSERT_OK(cay_template_prune(&count, &bytes, &err));
    assert_nothing_left(0);
}

static int image(const char *name, const char *scheme, const char *kind)
{
    char from[512];

    snprintf(from, sizeof from, "%s:%s", scheme, make_image(kind));
    return try_template(name, CAY_TEMPLATE_IMAGE, from);
}

TEST(images_share_their_layers)
{
    use_own_home();
    ASSERT_OK(image("tiny", "oci-archive", "oci-tar"));
    ASSERT_OK(image("built:1", "docker-archive", "saved"));
    ASSERT_INT(count_names(scratch_path("home/layers"), ""), 4);
    ASSERT_INT(count_names(scratch_path("home/templates/tiny"), ""), 4);
    ASSERT_STR(shell_in_built("cat /etc/issue /srv/* /opt; ls /etc/motd /bin/wc; id -u; "
                              "stat -c %a /tmp; id -u user; echo $FROM_IMAGE"),
               "upper\nnew\nnow a file\n33\n1777\n1000\nyes\n");
    ASSERT_OK(cay_template_remove("built:1", &err));
    ASSERT_OK(build("FROM tiny\nUSER 0\nRUN cat /srv/new; rm /etc/issue\n"));
    ASSERT_STR(seen.output, "new\n");
    ASSERT_STR(shell_in_built("ls /etc/issue"), "");
    assert_nothing_left(3);
    /* What is built from layers needs these, not the name of the template. */
    ASSERT_OK(cay_template_remove("tiny", &err));
    assert_nothing_left(3);
    ASSERT_STR(shell_in_built("cat /srv/new"), "new\n");
    ASSERT_OK(cay_template_remove("built:1", &err));
    assert_nothing_left(0);
}

TEST(the_lowest_layers_of_a_deep_image_become_one)
{
    use_own_home();
    ASSERT_OK(image("built:1", "oci-archive", "oci-seventy"));
    ASSERT_INT(count_names(scratch_path("home/layers"), ""), 2 + 59);
    ASSERT_STR(shell_in_built("echo /n/*; cat /n/68"), "/n/67 /n/68\n68\n");
}

TEST(hostile_layers_that_are_kept_apart_reach_nothing_and_leave_nothing)
{
    static const struct {
        const char *kind;
        int code;
    } cases[] = {
        {"oci-through-link", CAY_E_OUTSIDE},  {"oci-hard-link", CAY_E_OUTSIDE},
        {"oci-other-diff-id", CAY_E_INVALID}, {"oci-damaged-gzip", CAY_E_INVALID},
        {"oci-few-diff-ids", CAY_E_INVALID},  {"oci-many-layers", CAY_E_INVALID}};

    use_own_home();
    ASSERT_OK(image("built:1", "oci-archive", "oci-links"));
    char expected[512];
    snprintf(expected, sizeof expected, "%s\n33\n", scratch_path("canary"));
    ASSERT_STR(shell_in_built("ls -d /gone /null /disk; readlink /whole; cat /srv/owned"),
               expected);
    assert_canary();
    ASSERT_OK(cay_template_remove("built:1", &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_CODE(image("built:1", "oci-archive", cases[i].kind), cases[i].code);
        ASSERT_INT(count_names(scratch_path("home/layers"), ""), 2);
        assert_canary();
        ASSERT_INT(count_names(scratch_path("home/templates"), ""), 2);
    }
}

TEST(more_layers_than_a_template_has_are_squashed)
{
    char text[4096] = "FROM tiny\nRUN echo 1 > /x; ln /x /y; rm /etc/motd; chown 7 /x\n";

    use_tiny();
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "WORKDIR /d/%d\n", i);
    snprintf(text + strlen(text), sizeof text - strlen(text), "RUN pwd; cat /x\n");
    ASSERT_OK(build(text));
    ASSERT_INT(seen.steps, 62);
    ASSERT_STR(seen.output, "/d/59\n1\n");
    ASSERT_STR(shell_in_built("stat -c '%u %h' /x; ls /d | wc -l; ls /etc/motd; ls -d "
                              "/d/0 /d/58 /d/59"),
               "7 2\n60\n/d/0\n/d/58\n/d/59\n");
    ASSERT_OK(build(text));
    ASSERT_INT(seen.steps, 0);
    ASSERT_INT(seen.cached, 62);
    /* It no longer needs the template that it was built from. */
    ASSERT_OK(cay_template_remove("tiny", &err));
    ASSERT_STR(shell_in_built("cat /y"), "1\n");
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
