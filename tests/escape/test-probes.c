/* SPDX-License-Identifier: Apache-2.0 */

/* Every row of rows.h, twice: tried by user and by root in a sandbox, and in a
 * confinement with holes (weak.h).  There, each layer that the row names must stop the
 * probe alone, and without all of them it must get away with it: a probe that cannot
 * succeed proves nothing. */
#include <errno.h>
#include <stdio.h>

#include "rows.h"
#include "weak.h"
#include "world.h"

enum { ERRORS_MAX = 4 };

struct row {
    const char *name;
    bool by_user, by_root;
    unsigned layers, also;
    enum verdict want;
    int errors[ERRORS_MAX];
};

static const char *const layer_names[] = {
    "userns",   "idmap",  "pidns",  "rootfs", "pivot",  "netns",   "caps",
    "nnp",      "nosuid", "nodev",  "rdonly", "masks",  "seccomp", "bits32",
    "landlock", "scopes", "nonest", "fds",    "undump", "rlimits"};

static void name_layers(unsigned layers, char *text, size_t room)
{
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++)
        if (layers & 1u << i)
            len += (size_t)snprintf(text + len, room - len, "%s%s", len ? "+" : "",
                                    layer_names[i]);
}

static const char *name_error(int error)
{
    const char *name = error == BY_SIGSYS          ? "SIGSYS"
                       : error == BY_NOTHING_THERE ? "empty"
                                                   : strerrorname_np(error);

    return error == 0 ? "-" : name ? name : "?";
}

static struct answer parse(const char *output)
{
    static const char *const verdicts[] = {"BLOCKED ", "VIRTUALISED ", "LIMITED ",
                                           "ESCAPE ", "ERROR "};
    struct answer answer = {.verdict = ERROR};

    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        size_t len = strlen(verdicts[i]);
        if (strncmp(output, verdicts[i], len) != 0)
            continue;
        char *rest;
        answer.verdict = (enum verdict)(i + 1);
        answer.error = (int)strtol(output + len, &rest, 10);
        snprintf(answer.detail, sizeof answer.detail, "%.*s",
                 (int)strcspn(rest + 1, "\n"), rest + 1);
        return answer;
    }
    snprintf(answer.detail, sizeof answer.detail, "%.190s", output);
    return answer;
}

static const char *name_verdict(const struct answer *answer)
{
    static const char *const names[] = {"",        "BLOCKED", "VIRTUALISED",
                                        "LIMITED", "ESCAPE",  "ERROR"};
    static char text[64];

    snprintf(text, sizeof text, answer->error ? "%s(%s)" : "%s", names[answer->verdict],
             name_error(answer->error));
    return text;
}

/* --- In a sandbox --- */

static bool is_right(const struct row *row, const struct answer *answer)
{
    /* Where there are no namespaces another layer says no, and earlier. */
    if (world_level() == CAY_LEVEL_LANDLOCK && answer->verdict < ESCAPE)
        return true;
    for (size_t i = 0; i < ERRORS_MAX && (i == 0 || row->errors[i]); i++)
        if (row->errors[i] == answer->error)
            return answer->verdict == row->want;
    return false;
}

static bool is_held(const struct row *row, cay_sandbox *sandbox, const char *user)
{
    world_probe_as(sandbox, user, row->name);
    struct answer answer = parse(result.out);
    printf("# probe %s as %s%s: %s %s\n", row->name, user, world_level_name(),
           name_verdict(&answer), answer.detail);
    if (is_right(row, &answer) && result.exit_code == 0)
        return true;
    printf("# NOT HELD: %s as %s: %s %s; exit %d, %s\n", row->name, user,
           name_verdict(&answer), answer.detail, result.exit_code, result.error);
    return false;
}

/* Where there is one user it has no root to make it a setuid program. */
static bool is_tried(const struct row *row, bool by_root)
{
    if (by_root)
        return row->by_root && world_level() < CAY_LEVEL_SINGLE;
    return row->by_user && (row->by_root || world_level() < CAY_LEVEL_SINGLE);
}

static bool try_row(const struct row *row, cay_sandbox *sandbox)
{
    bool held = true;

    if (is_tried(row, false))
        held &= is_held(row, sandbox, "user");
    if (is_tried(row, true))
        held &= is_held(row, sandbox, "root");
    return held && world_visits() == 0;
}

static void try_alone(const struct row *row)
{
    world_begin();
    ASSERT(try_row(row, world_sandbox(NULL)));
    world_end();
}

/* --- Where there are holes --- */

static struct answer try_weak(const struct row *row, bool as_user, unsigned layers)
{
    char output[4096];
    const struct weak weak = {.layers = layers,
                              .as_user = as_user,
                              .program = scratch_path("host/probe"),
                              .program_fd = world_probe_fd,
                              .name = row->name,
                              .env = world_facts(),
                              .leaked = world_canary_fd};

    if (!weak_run(&weak, output, sizeof output)) {
        char text[256];
        name_layers(EVERY_LAYER & ~layers, text, sizeof text);
        harness_fail(__FILE__, __LINE__, "%s without %s: %s", row->name, text, output);
    }
    return parse(output);
}

static void must_hold(const struct row *row, bool as_user, unsigned layers,
                      const char *which)
{
    struct answer answer = try_weak(row, as_user, layers);

    if (answer.verdict == ESCAPE || answer.verdict == ERROR)
        harness_fail(__FILE__, __LINE__, "%s with %s: %s %s", row->name, which,
                     name_verdict(&answer), answer.detail);
}

/* What a kernel or a host without the thing answers. */
static bool is_lacking(const struct answer *answer)
{
    static const int errors[] = {ENOSYS, EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT,
                                 ENOENT, ENETUNREACH,  BY_NOTHING_THERE};

    if (answer->verdict == VIRTUALISED)
        return true;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (answer->verdict == BLOCKED && answer->error == errors[i])
            return true;
    return false;
}

static void control(const struct row *row)
{
    bool as_user = !row->by_root;
    unsigned also = row->also & ~(unsigned)MAY_LACK, claimed = row->layers;
    char text[256];
    int abi = weak_landlock_abi();

    if (abi < 1)
        claimed &= ~(unsigned)LANDLOCK;
    if (abi < 6)
        claimed &= ~(unsigned)SCOPES;
    world_begin();
    must_hold(row, as_user, EVERY_LAYER, "every layer");
    for (unsigned one = 1; one < EVERY_LAYER; one <<= 1)
        if (claimed & one) {
            name_layers(one, text, sizeof text);
            must_hold(row, as_user, EVERY_LAYER & ~((row->layers & ~one) | also), text);
        }
    ASSERT_INT(world_visits(), 0);
    struct answer answer = try_weak(row, as_user, EVERY_LAYER & ~(row->layers | also));
    (void)world_visits();
    bool lacking = row->also & MAY_LACK && is_lacking(&answer);
    name_layers(row->layers, text, sizeof text);
    printf("# control %s without %s: %s %s\n", row->name, text, name_verdict(&answer),
           !lacking                 ? answer.detail
           : is_right(row, &answer) ? "this host has no such thing"
                                    : "the kernel's own answer");
    if (answer.verdict != ESCAPE && !lacking)
        harness_fail(__FILE__, __LINE__, "%s cannot succeed even without %s: %s %s",
                     row->name, text, name_verdict(&answer), answer.detail);
    world_end();
}

#define LIST(...)                                                                        \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }
#define WHO_BOTH true, true
#define WHO_ROOT false, true
#define WHO_USER true, false

#define ROW(class, name, who, layers, also, want, errors, function, argument)            \
    static const struct row row_##class##_##name = {                                     \
        #class "_" #name, WHO_##who, layers, also, want, LIST errors};                   \
    TEST(class##_##name)                                                                 \
    {                                                                                    \
        try_alone(&row_##class##_##name);                                                \
    }                                                                                    \
    TEST(class##_##name##_control)                                                       \
    {                                                                                    \
        control(&row_##class##_##name);                                                  \
    }

EVERY_ROW(ROW)

#define POINTER(class, name, who, layers, also, want, errors, function, argument)        \
    &row_##class##_##name,

static const struct row *const rows[] = {EVERY_ROW(POINTER)};

/* One probe must not open the way for the next; and this is quick. */
TEST(all_of_them_in_one_sandbox)
{
    size_t held = 0;

    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        held += try_row(rows[i], sandbox);
    ASSERT_INT(held, sizeof rows / sizeof *rows);
    world_end();
}
