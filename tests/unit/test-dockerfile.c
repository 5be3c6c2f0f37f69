/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "build/dockerfile.h"
#include "build/ignore.h"
#include "harness.h"

static struct dockerfile file;

static int parse(const char *text)
{
    return dockerfile_parse("Dockerfile", text, strlen(text), &file, &err);
}

/* The words of the last instruction, each between brackets. */
static const char *words(void)
{
    static char shown[4096];
    const struct build_instruction *last = &file.list[file.count - 1];
    size_t used = 0;

    shown[0] = '\0';
    for (size_t i = 0; i < last->words.count; i++)
        used += (size_t)snprintf(shown + used, sizeof shown - used, "[%s]",
                                 last->words.list[i]);
    return shown;
}

#define ASSERT_WORDS(text, expected)                                                     \
    do {                                                                                 \
        ASSERT_OK(parse("FROM a\n" text));                                               \
        ASSERT_STR(words(), expected);                                                   \
        dockerfile_done(&file);                                                          \
    } while (0)

#define ASSERT_REFUSED(text, code, where)                                                \
    do {                                                                                 \
        ASSERT_CODE(parse(text), code);                                                  \
        ASSERT_STR(err.subject, where);                                                  \
        dockerfile_done(&file);                                                          \
    } while (0)

TEST(instructions_are_split_into_words)
{
    ASSERT_WORDS("RUN make  all\n", "[make  all]");
    ASSERT_WORDS("RUN [\"make\", \"a b\"]\n", "[make][a b]");
    ASSERT_WORDS("RUN [ -f x ] && y\n", "[[ -f x ] && y]");
    ASSERT_WORDS("copy a b /c/\n", "[a][b][/c/]");
    ASSERT_WORDS("COPY [\"a b\", \"/c\"]\n", "[a b][/c]");
    ASSERT_WORDS("ENV a=1 b=\"x y\" c=x\\ y\n", "[a][1][b][\"x y\"][c][x\\ y]");
    ASSERT_WORDS("ENV a x  y\n", "[a][x  y]");
    ASSERT_WORDS("LABEL a.b=c\n", "[a.b][c]");
    ASSERT_WORDS("ARG a b=2\n", "[a][b=2]");
    ASSERT_WORDS("EXPOSE 80 443/tcp\n", "[80][443/tcp]");
    ASSERT_WORDS("WORKDIR /a b\n", "[/a b]");
    ASSERT_WORDS("SHELL [\"/bin/bash\", \"-c\"]\n", "[/bin/bash][-c]");
    ASSERT_WORDS("HEALTHCHECK --interval=5s CMD curl x\n", "[CMD][curl x]");
    ASSERT_WORDS("HEALTHCHECK none\n", "[NONE]");
    ASSERT_WORDS("CMD [\"a\"]\n", "[a]");
    ASSERT_WORDS("ENTRYPOINT exec top -b\n", "[exec top -b]");
}

TEST(lines_are_continued_and_comments_left_out)
{
    ASSERT_WORDS("RUN a \\\n  # comment\n\n  b\n", "[a   b]");
    ASSERT_WORDS("RUN a \\  \n b\\\\\n", "[a  b\\\\]");
    ASSERT_WORDS("# RUN x\nRUN a\r\n", "[a]");
    ASSERT_WORDS("RUN echo # kept\n", "[echo # kept]");
    ASSERT_OK(parse("# syntax=docker/dockerfile:1\n# escape=`\nFROM a\nRUN a `\n b\\\n"));
    ASSERT_STR(words(), "[a  b\\]");
    ASSERT_INT(file.list[1].line, 4);
    dockerfile_done(&file);
    ASSERT_OK(parse("\xEF\xBB\xBF# a comment\n# escape=`\nFROM a\nRUN b \\\n c\n"));
    ASSERT_STR(words(), "[b  c]"); /* after a comment there is no directive */
    dockerfile_done(&file);
}

TEST(a_heredoc_is_the_script_or_the_input_of_run)
{
    ASSERT_WORDS("RUN <<EOF\na\n b\nEOF\n", "[a\n b\n]");
    ASSERT_WORDS("RUN <<-\"EOF\"\n\ta\n\tEOF\n", "[a\n]");
    ASSERT_WORDS("RUN python3 <<E && x\nprint(1)\nE\n",
                 "[python3 <<E && x\nprint(1)\nE\n]");
    ASSERT_WORDS("RUN cat <<<word\n", "[cat <<<word]");
    ASSERT_WORDS("RUN echo '<<EOF' $((1<<N))\n", "[echo '<<EOF' $((1<<N))]");
    ASSERT_REFUSED("FROM a\nRUN <<EOF\na\n", CAY_E_INVALID, "Dockerfile:2");
    ASSERT_REFUSED("FROM a\nRUN <<EOF\nEOF\n", CAY_E_INVALID, "Dockerfile:2");
    ASSERT_REFUSED("FROM a\nRUN <<EOF\n#!/bin/x\nEOF\n", CAY_E_INVALID, "Dockerfile:2");
    ASSERT_REFUSED("FROM a\nRUN a <<A b <<B\nA\nB\n", CAY_E_INVALID, "Dockerfile:2");
    ASSERT_REFUSED("FROM a\nCOPY <<EOF /x\na\nEOF\n", CAY_E_INVALID, "Dockerfile:2");
}

TEST(stages_have_names_and_numbers)
{
    ASSERT_OK(parse("ARG V=1\nFROM a:$V AS One\nRUN x\nFROM --platform=linux/amd64 b\n"
                    "COPY --from=one --chown=1:2 /x /y\n"));
    ASSERT_INT(file.stage_count, 2);
    ASSERT_INT(file.stages[0].first, 1);
    ASSERT_INT(file.stages[0].count, 2);
    ASSERT_INT(file.stages[1].count, 2);
    ASSERT_STR(file.stages[0].name, "One");
    ASSERT_STR(file.list[1].words.list[0], "a:$V");
    ASSERT_STR(build_flag(&file.list[3], "platform"), "linux/amd64");
    ASSERT_STR(build_flag(&file.list[4], "from"), "one");
    ASSERT_STR(build_flag(&file.list[4], "chown"), "1:2");
    ASSERT_STR(build_flag(&file.list[4], "chmod"), NULL);
    ASSERT_INT(build_find_stage(&file, "one", 1), 0);
    ASSERT_INT(build_find_stage(&file, "0", 1), 0);
    ASSERT_INT(build_find_stage(&file, "1", 1), -1);
    ASSERT_INT(build_find_stage(&file, "python", 2), -1);
    dockerfile_done(&file);
}

TEST(an_unsupported_or_invalid_line_is_refused_with_its_number)
{
    static const struct {
        const char *text;
        int code;
        const char *where;
    } cases[] = {
        {"", CAY_E_INVALID, "Dockerfile"},
        {"ARG a\n", CAY_E_INVALID, "Dockerfile"},
        {"RUN x\n", CAY_E_INVALID, "Dockerfile:1"},
        {"FROM\n", CAY_E_INVALID, "Dockerfile:1"},
        {"FROM a b\n", CAY_E_INVALID, "Dockerfile:1"},
        {"FROM a AS 1\n", CAY_E_INVALID, "Dockerfile:1"},
        {"FROM a AS x\nFROM b AS X\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\n\nVOLUME /x\n", CAY_E_UNSUPPORTED, "Dockerfile:3"},
        {"FROM a\nONBUILD RUN x\n", CAY_E_UNSUPPORTED, "Dockerfile:2"},
        {"FROM a\nRUM x\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nRUN \\\n\n# c\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nRUN --mount=type=cache x\n", CAY_E_UNSUPPORTED, "Dockerfile:2"},
        {"FROM a\nCOPY --link a b\n", CAY_E_UNSUPPORTED, "Dockerfile:2"},
        {"FROM a\nCOPY --from= a b\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nADD https://x/y /z\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nCOPY a\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nSHELL bash -c\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nENV a\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nENV a=\"b\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nENV a=${b:?c}\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nENV a=${b\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nARG 1x\n", CAY_E_INVALID, "Dockerfile:2"},
        {"FROM a\nHEALTHCHECK maybe\n", CAY_E_INVALID, "Dockerfile:2"},
        {"# escape=x\nFROM a\n", CAY_E_INVALID, "Dockerfile:1"},
        {"# syntax=other/one\nFROM a\n", CAY_E_INVALID, "Dockerfile:1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_REFUSED(cases[i].text, cases[i].code, cases[i].where);
    ASSERT_CODE(dockerfile_parse("Dockerfile", "FROM a\0b", 8, &file, &err),
                CAY_E_INVALID);
    dockerfile_done(&file);
    ASSERT_CODE(parse("FROM a\nRUM x\n"), CAY_E_INVALID);
    ASSERT(strstr(err.hint, "did you mean RUN"));
    dockerfile_done(&file);
}

static const char *look_up(void *cookie, const char *name, size_t len)
{
    (void)cookie;
    return len == 1 && *name == 'x' ? "X Y" : len == 1 && *name == 'e' ? "" : NULL;
}

TEST(variables_quotes_and_escapes_are_resolved)
{
    static const struct {
        const char *raw, *expected;
    } cases[] = {
        {"a$x.b", "aX Y.b"},
        {"${x}y", "X Yy"},
        {"$y-", "-"},
        {"${y:-d}", "d"},
        {"${e:-d}", "d"},
        {"${x:-d}", "X Y"},
        {"${x:+d}", "d"},
        {"${y:+d}", ""},
        {"${y:-${x}!}", "X Y!"},
        {"${y:-${z:-\"a}b\"}}", "a}b"},
        {"'$x'", "$x"},
        {"\"$x\"", "X Y"},
        {"\\$x \\\"", "$x \""},
        {"\"\\n\\$\\\\\"", "\\n$\\"},
        {"$", "$"},
        {"$1", "$1"},
        {"", ""},
        {"a\\", "a\\"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_FREE char *text = NULL;
        ASSERT_OK(build_expand(cases[i].raw, '\\', look_up, NULL, "1", &text, &err));
        ASSERT_STR(text, cases[i].expected);
    }
}

TEST(expansion_has_limits)
{
    AUTO_BUF deep = {.max = 4096};
    char *text;

    for (int i = 0; i < 20; i++)
        buf_text(&deep, "${y:-");
    for (int i = 0; i < 20; i++)
        buf_text(&deep, "}");
    ASSERT_CODE(build_expand(deep.data, '\\', look_up, NULL, "1", &text, &err),
                CAY_E_INVALID);
    AUTO_BUF wide = {.max = 1 << 20};
    for (int i = 0; i < BUILD_VALUE_MAX / 2; i++)
        buf_text(&wide, "$x");
    ASSERT_CODE(build_expand(wide.data, '\\', look_up, NULL, "1", &text, &err),
                CAY_E_LIMIT);
}

TEST(the_last_pattern_of_dockerignore_decides)
{
    static const char text[] = "# comment\n\n*.log\n/build/\n**/*.o\n!keep.log\n"
                               "docs\n!docs/README\n  .git \r\n!\n";
    static const struct {
        const char *path;
        bool is_left_out;
    } cases[] = {
        {"a.log", true},     {"keep.log", false},    {"sub/a.log", false},
        {"build/x/y", true}, {"src/build", false},   {"a/b/c.o", true},
        {"docs/a", true},    {"docs/README", false}, {".git/config", true},
        {"main.c", false},
    };
    struct ignore ignore;

    ASSERT_OK(ignore_parse(text, strlen(text), &ignore, &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_INT(ignore_matches(&ignore, cases[i].path), cases[i].is_left_out);
    ASSERT(ignore_has_exceptions(&ignore));
    ignore_done(&ignore);
}
