/* SPDX-License-Identifier: Apache-2.0 */

/* The registry, with backends that do next to nothing. */
#include <pthread.h>
#include <stdio.h>

#include "cay/backend.h"
#include "harness.h"

static int create(void *data, const cay_config *config, void **ret_cookie,
                  struct cay_error *error)
{
    (void)data;
    (void)config;
    (void)error;
    *ret_cookie = NULL;
    return CAY_OK;
}

static int connect_to(void *data, const cay_config *config, const char *id,
                      void **ret_cookie, struct cay_error *error)
{
    (void)id;
    return create(data, config, ret_cookie, error);
}

static void forget(void *cookie)
{
    (void)cookie;
}

static const char *id_of(const void *cookie)
{
    (void)cookie;
    return "one";
}

static int state_of(void *cookie, enum cay_state *ret_state, struct cay_error *error)
{
    (void)cookie;
    (void)error;
    *ret_state = CAY_STATE_RUNNING;
    return CAY_OK;
}

static int execute(void *cookie, const struct cay_exec_options *options,
                   struct cay_exec_result *ret_result, struct cay_error *error)
{
    (void)cookie;
    (void)options;
    (void)ret_result;
    (void)error;
    return CAY_OK;
}

static int end(void *cookie, struct cay_error *error)
{
    (void)cookie;
    (void)error;
    return CAY_OK;
}

static int open_files(void *cookie, const char *user, cay_files **ret_files,
                      struct cay_error *error)
{
    (void)cookie;
    (void)user;
    (void)ret_files;
    (void)error;
    return CAY_OK;
}

/* The least that is a backend. */
static struct cay_backend least(const char *name)
{
    return (struct cay_backend){.size = sizeof(struct cay_backend),
                                .name = name,
                                .about = "a test",
                                .create = create,
                                .connect = connect_to,
                                .free = forget,
                                .id = id_of,
                                .state = state_of,
                                .exec = execute,
                                .kill = end,
                                .open_files = open_files};
}

/* Registered tables must stay. */
static const struct cay_backend *keep(struct cay_backend table)
{
    static struct cay_backend kept[64];
    static size_t count;

    ASSERT(count < sizeof kept / sizeof *kept);
    kept[count] = table;
    return &kept[count++];
}

static int try_to_register(struct cay_backend table)
{
    return cay_backend_register(keep(table), &err);
}

static size_t count_backends(void)
{
    size_t count = 0;

    while (cay_backend_at(count))
        count++;
    return count;
}

TEST(native_is_always_there_and_first)
{
    const struct cay_backend *native = cay_backend_find("native");

    ASSERT(native && native == cay_backend_at(0));
    ASSERT_STR(native->name, "native");
    ASSERT(native->about && native->field_count > 0);
}

TEST(what_is_built_in_passes_the_checks_of_what_is_registered)
{
    static const char *const names[] = {"copy-0", "copy-1", "copy-2", "copy-3"};
    size_t count = count_backends();

    ASSERT(count <= sizeof names / sizeof *names);
    for (size_t i = 0; i < count; i++) {
        struct cay_backend copy = *cay_backend_at(i);
        copy.name = names[i];
        ASSERT_OK(try_to_register(copy));
    }
}

TEST(a_backend_that_is_registered_is_found_and_listed_last)
{
    size_t before = count_backends();

    ASSERT(!cay_backend_find("mine"));
    ASSERT_OK(try_to_register(least("mine")));
    const struct cay_backend *mine = cay_backend_find("mine");
    ASSERT(mine);
    ASSERT_INT(count_backends(), before + 1);
    ASSERT(cay_backend_at(before) == mine);
    ASSERT(mine->exec == execute && !mine->pause && !mine->processes);
}

TEST(a_name_that_is_taken_is_refused)
{
    ASSERT_OK(try_to_register(least("taken")));
    ASSERT_CODE(try_to_register(least("taken")), CAY_E_EXISTS);
    ASSERT_STR(err.subject, "taken");
    ASSERT_CODE(try_to_register(least("native")), CAY_E_EXISTS);
}

TEST(names_are_a_letter_and_then_letters_digits_and_dashes)
{
    static const char *const wrong[] = {"",    "1a",       "-a",  "a b", "a/b",
                                        "a.b", "\xc3\xa4", "a\n", NULL};
    char longest[65];

    for (size_t i = 0; wrong[i]; i++)
        ASSERT_CODE(try_to_register(least(wrong[i])), CAY_E_INVALID);
    ASSERT_CODE(try_to_register(least(NULL)), CAY_E_INVALID);
    memset(longest, 'x', sizeof longest);
    longest[64] = '\0';
    ASSERT_CODE(try_to_register(least(longest)), CAY_E_INVALID);
    ASSERT(!cay_backend_find(longest));
    ASSERT_OK(try_to_register(least("Firecracker_2-b")));
}

TEST(each_function_that_every_backend_needs_is_asked_for_by_name)
{
    struct cay_backend table;

#define WITHOUT(member)                                                                  \
    table = least("without");                                                            \
    table.member = NULL;                                                                 \
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);                                  \
    ASSERT_STR(err.subject, "without");                                                  \
    ASSERT_HAS(err.hint, "`" #member)
    WITHOUT(create);
    WITHOUT(connect);
    WITHOUT(free);
    WITHOUT(id);
    WITHOUT(state);
    WITHOUT(exec);
    WITHOUT(kill);
    WITHOUT(open_files);
#undef WITHOUT
    ASSERT(!cay_backend_find("without"));
}

TEST(half_a_table_of_files_or_processes_is_refused)
{
    static const struct cay_file_backend files = {.size = sizeof files};
    static const struct cay_process_backend processes = {.size = sizeof processes};
    static const struct cay_process_backend no_size;
    struct cay_backend table = least("half");

    table.files = &files;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "files.stat");
    table.files = NULL;
    table.processes = &processes;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "processes.start");
    table.processes = &no_size;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "`size`");
}

TEST(marks_are_made_and_found_or_neither)
{
    struct cay_backend table = least("marks");

    table.create_marked = cay_backend_find("native")->create_marked;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "find_marked");
}

/* As a program that was built before `open_files` and what follows was thought of. */
TEST(a_shorter_table_has_nothing_of_what_it_does_not_cover)
{
    struct cay_backend table = least("shorter");

    table.processes = (const struct cay_process_backend *)&table; /* is not looked at */
    table.size = offsetof(struct cay_backend, files);
    ASSERT_OK(try_to_register(table));
    const struct cay_backend *found = cay_backend_find("shorter");
    ASSERT(found && found->open_files == open_files);
    ASSERT(!found->files && !found->processes);
    ASSERT_INT(found->size, sizeof *found);

    table.name = "too-short";
    table.size = offsetof(struct cay_backend, exec);
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "`exec`");
}

TEST(a_longer_table_is_taken_as_far_as_it_is_known)
{
    static struct {
        struct cay_backend known;
        void (*later)(void);
    } table;

    table.known = least("longer");
    table.known.size = sizeof table;
    table.later = (void (*)(void))end;
    ASSERT_OK(cay_backend_register(&table.known, &err));
    ASSERT_INT(cay_backend_find("longer")->size, sizeof(struct cay_backend));
}

TEST(a_size_that_cannot_be_is_refused)
{
    struct cay_backend table = least("sizes");

    table.size = 0;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    table.size = sizeof(size_t);
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    table.size = offsetof(struct cay_backend, pause) + 1;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    table.size = SIZE_MAX / 2;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "sizeof");
}

TEST(fields_that_no_configuration_could_have_are_refused)
{
    static const struct cay_field good = {"size", NULL, CAY_FIELD_INTEGER, NULL,
                                          "how big"};
    static const char *const none[] = {NULL};
    char longest[129];
    memset(longest, 'x', 128);
    longest[128] = '\0';
    const struct cay_field wrong[] = {
        {longest, NULL, CAY_FIELD_TEXT, NULL, "a name that is too long"},
        {NULL, NULL, CAY_FIELD_TEXT, NULL, "no name"},
        {"", NULL, CAY_FIELD_TEXT, NULL, "no name"},
        {"x", NULL, CAY_FIELD_TEXT, NULL, NULL},
        {"x", NULL, (enum cay_field_type)0, NULL, "no type"},
        {"x", NULL, (enum cay_field_type)99, NULL, "no type"},
        {"x", NULL, CAY_FIELD_CHOICE, NULL, "no choices"},
        {"x", NULL, CAY_FIELD_CHOICE, NULL, "no choices", none},
    };
    struct cay_backend table = least("fields");

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        table.fields = &wrong[i];
        table.field_count = 1;
        ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    }
    const struct cay_field twice[] = {good, good};
    table.fields = twice;
    table.field_count = 2;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    ASSERT_STR(err.subject, "size");
    table.fields = NULL;
    ASSERT_CODE(try_to_register(table), CAY_E_INVALID);
    table.fields = &good;
    table.field_count = 1;
    ASSERT_OK(try_to_register(table));
    AUTO_FREE char *schema = NULL; /* of all that are there */
    ASSERT_OK(cay_config_schema(&schema, &err));
}

/* --- Threads --- */

enum { THREADS = 8, EACH = 50 };

static struct cay_backend tables[THREADS][EACH];
static char names[THREADS][EACH][16];

static void *register_many(void *cookie)
{
    size_t thread = (size_t)(intptr_t)cookie;
    intptr_t right = 0;

    for (size_t i = 0; i < EACH; i++) {
        /* Half of the names are everybody's: one wins. */
        if (i % 2)
            snprintf(names[thread][i], sizeof names[thread][i], "own-%zu-%zu", thread, i);
        else
            snprintf(names[thread][i], sizeof names[thread][i], "all-%zu", i);
        tables[thread][i] = least(names[thread][i]);
        int code = cay_backend_register(&tables[thread][i], NULL);
        right += code == CAY_OK && cay_backend_find(names[thread][i]);
    }
    return (void *)right;
}

TEST(threads_may_register_at_the_same_time)
{
    pthread_t threads[THREADS];
    size_t before = count_backends();
    intptr_t registered = 0;

    for (intptr_t i = 0; i < THREADS; i++)
        ASSERT_INT(pthread_create(&threads[i], NULL, register_many, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *right = NULL;
        ASSERT_INT(pthread_join(threads[i], &right), 0);
        registered += (intptr_t)right;
    }
    ASSERT_INT(registered, THREADS * EACH / 2 + EACH / 2);
    ASSERT_INT(count_backends(), before + THREADS * EACH / 2 + EACH / 2);
}

TEST(a_layer_has_a_name_and_several_have_none)
{
    ASSERT_STR(cay_layer_slug(CAY_LAYER_USER), "user");
    ASSERT_STR(cay_layer_slug(CAY_LAYER_SECCOMP), "seccomp");
    ASSERT_STR(cay_layer_slug(CAY_LAYER_DISK), "disk");
    ASSERT(!cay_layer_slug(0));
    ASSERT(!cay_layer_slug(CAY_LAYER_DISK << 1));
    ASSERT(!cay_layer_slug(CAY_LAYER_USER | CAY_LAYER_PID));
}
