/* SPDX-License-Identifier: Apache-2.0 */

/* Backends from shared objects: $FOLDER_LIBRARY is one, $BROKEN_MODULES has some that are
 * none. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "cay/backend.h"

static const char *good(void)
{
    const char *path = getenv("FOLDER_LIBRARY");

    ASSERT(path);
    return path;
}

static int load_code(const char *file)
{
    const struct cay_backend *loaded = NULL;
    int code = cay_backend_load(file, &loaded, &err);

    ASSERT((code == CAY_OK) == (loaded != NULL));
    return code;
}

static int load_broken(const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/broken-%s.so", getenv("BROKEN_MODULES"), name);
    return load_code(path);
}

static void copy_to(const char *name)
{
    static char bytes[8 << 20];
    FILE *file = fopen(good(), "re");

    ASSERT(file);
    size_t len = fread(bytes, 1, sizeof bytes, file);
    ASSERT(len > 0 && len < sizeof bytes);
    (void)fclose(file);
    put_bytes(name, bytes, len);
}

/* --- What is no backend ----------------------------------------------------------- */

TEST(a_file_that_is_not_there_is_not_found)
{
    ASSERT_CODE(load_code(scratch_path("none.so")), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, scratch_path("none.so"));
    ASSERT_CODE(load_code(""), CAY_E_NOT_FOUND);
}

TEST(what_is_no_file_is_not_opened)
{
    ASSERT_CODE(load_code(scratch()), CAY_E_NOT_A_FILE);
    ASSERT_INT(mkfifo(scratch_path("fifo"), 0600), 0);
    ASSERT_CODE(load_code(scratch_path("fifo")), CAY_E_NOT_A_FILE);
    ASSERT_CODE(load_code("/dev/null"), CAY_E_NOT_A_FILE);
}

TEST(what_is_no_shared_object_is_refused_in_the_callers_spelling)
{
    put_file("text.so", "hello\n");
    put_file("empty.so", "");
    ASSERT_INT(symlink("text.so", scratch_path("link.so")), 0);
    ASSERT_CODE(load_code(scratch_path("text.so")), CAY_E_INVALID);
    ASSERT_CODE(load_code(scratch_path("empty.so")), CAY_E_INVALID);
    ASSERT_CODE(load_code(scratch_path("link.so")), CAY_E_INVALID);
    ASSERT_STR(err.subject, scratch_path("link.so"));
    ASSERT(!strstr(err.message, "text.so"));
}

TEST(an_object_without_the_entry_is_told_what_it_looks_like)
{
    ASSERT_CODE(load_broken("no_entry"), CAY_E_INVALID);
    ASSERT_HAS(err.message, CAY_BACKEND_ENTRY);
    ASSERT_HAS(err.hint, "const struct cay_backend *");
    ASSERT_CODE(load_broken("null"), CAY_E_INVALID);
    ASSERT_HAS(err.message, CAY_BACKEND_ENTRY);
}

TEST(a_symbol_that_nobody_has_is_named)
{
    ASSERT_CODE(load_broken("symbol"), CAY_E_INVALID);
    ASSERT_HAS(err.message, "nobody_has_this");
}

TEST(a_table_that_is_not_whole_is_refused_each_time)
{
    for (int i = 0; i < 2; i++) {
        ASSERT_CODE(load_broken("lacks"), CAY_E_INVALID);
        ASSERT_HAS(err.hint, "`create`");
        ASSERT(!cay_backend_find("lacking"));
    }
}

TEST(a_name_that_is_taken_is_refused)
{
    ASSERT_CODE(load_broken("taken"), CAY_E_EXISTS);
    ASSERT_STR(err.subject, "native");
}

/* --- What is one ------------------------------------------------------------------ */

TEST(a_configuration_that_names_the_library_loads_it)
{
    static const char text[] = "type: folder\n"
                               "library: ${env.FOLDER_LIBRARY}\n"
                               "prefix: folders\n";
    cay_config *config = NULL;

    ASSERT(!cay_backend_find("folder"));
    ASSERT_OK(cay_config_parse(text, strlen(text), "test", scratch(), &config, &err));
    ASSERT(cay_backend_find("folder"));
    ASSERT_STR(cay_config_type(config), "folder");
    ASSERT_STR(cay_config_text(config, "prefix"), scratch_path("folders"));
    cay_config_free(config);
}

TEST(the_same_file_again_changes_nothing)
{
    const struct cay_backend *first = NULL, *again = NULL;

    ASSERT_OK(cay_backend_load(good(), &first, &err));
    ASSERT(first && first == cay_backend_find("folder"));
    ASSERT_OK(cay_backend_load(good(), &again, &err));
    ASSERT(again == first);
    ASSERT_OK(cay_backend_load(good(), NULL, &err));

    /* By another name, and by one in the current directory. */
    char before[4096];
    ASSERT(getcwd(before, sizeof before));
    ASSERT_INT(symlink(good(), scratch_path("other.so")), 0);
    ASSERT_INT(chdir(scratch()), 0);
    ASSERT_OK(cay_backend_load("other.so", &again, &err));
    ASSERT_INT(chdir(before), 0);
    ASSERT(again == first);
}

TEST(another_file_with_a_backend_of_that_name_is_refused)
{
    ASSERT_OK(cay_backend_load(good(), NULL, &err));
    copy_to("copy.so");
    ASSERT_CODE(load_code(scratch_path("copy.so")), CAY_E_EXISTS);
    ASSERT_STR(err.subject, "folder");
}
