/* SPDX-License-Identifier: Apache-2.0 */

/* What the server keeps, and what it makes of its secrets. */
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/recovery.h"
#include "server/broker/secrets.h"

static const char *home;

#define IN_A_HOME (home = scratch())

static struct registry *open_registry(void)
{
    struct registry *registry = NULL;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/serve.db", home);
    ASSERT_OK(registry_open(path, &registry, &err));
    return registry;
}

static mode_t mode_of(const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", home, name);
    ASSERT(stat(path, &st) == 0);
    return st.st_mode & 0777;
}

TEST(a_key_is_known_by_its_hash_only)
{
    IN_A_HOME;
    struct registry *registry = open_registry();
    char key[API_KEY_MAX], tenant[TENANT_MAX], command[PATH_MAX];

    ASSERT_OK(secrets_new_key(registry, "them", key, &err));
    ASSERT_INT(strlen(key), 44);
    ASSERT_OK(secrets_key_tenant(registry, key, tenant, &err));
    ASSERT_STR(tenant, "them");
    key[43] = key[43] == '0' ? '1' : '0';
    ASSERT_CODE(secrets_key_tenant(registry, key, tenant, &err), CAY_E_NOT_FOUND);
    registry_close(registry);
    key[43] = '\0'; /* all but the last digit */
    snprintf(command, sizeof command, "grep -rqa '%s' '%s'", key + 12, home);
    ASSERT(system(command) != 0); /* allow: system it only looks */
    ASSERT_INT(mode_of("serve.db"), 0600);
}

TEST(the_default_key_stays_the_same_until_it_is_removed)
{
    IN_A_HOME;
    struct registry *registry = open_registry();
    char first[API_KEY_MAX], second[API_KEY_MAX];

    ASSERT_OK(secrets_default_key(registry, home, first, &err));
    ASSERT_OK(secrets_default_key(registry, home, second, &err));
    ASSERT_STR(first, second);
    ASSERT_INT(mode_of("serve.api-key"), 0600);
    ASSERT_OK(registry_remove_key(registry, 1, &err));
    ASSERT_CODE(secrets_default_key(registry, home, second, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(registry_remove_key(registry, 1, &err), CAY_E_NOT_FOUND);
    registry_close(registry);
}

TEST(keys_of_another_shape_are_refused)
{
    IN_A_HOME;
    struct registry *registry = open_registry();
    static const char *const wrong[] = {"",    "e2b_",    "e2b_00",
                                        "key", "e2b_XYZ", "e2b_0123456789abcdef01234g"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ASSERT_CODE(secrets_add_key(registry, "t", wrong[i], &err), CAY_E_INVALID);
    ASSERT_OK(secrets_add_key(registry, "t", "e2b_0123456789abcdef01234567", &err));
    ASSERT_OK(secrets_add_key(registry, "t", "e2b_0123456789abcdef01234567", &err));
    registry_close(registry);
}

TEST(tokens_outlive_a_restart_and_differ_in_every_way)
{
    IN_A_HOME;
    struct secrets first, second;
    char token[5][TOKEN_MAX];

    ASSERT_OK(secrets_open(home, &first, &err));
    ASSERT_OK(secrets_open(home, &second, &err));
    ASSERT_INT(mode_of("serve.key"), 0600);
    secrets_token(&first, TOKEN_ENVD, "abc", 1, token[0]);
    secrets_token(&second, TOKEN_ENVD, "abc", 1, token[1]);
    ASSERT_STR(token[0], token[1]);
    ASSERT(secrets_are_equal(token[0], token[1]));
    secrets_token(&first, TOKEN_TRAFFIC, "abc", 1, token[1]);
    secrets_token(&first, TOKEN_ENVD, "abd", 1, token[2]);
    secrets_token(&first, TOKEN_ENVD, "abc", 2, token[3]);
    second.keys[0][0] ^= 1;
    secrets_token(&second, TOKEN_ENVD, "abc", 1, token[4]);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            ASSERT(!secrets_are_equal(token[i], token[j]));
}

TEST(a_key_file_that_others_can_read_is_not_used)
{
    IN_A_HOME;
    struct secrets secrets;
    char path[PATH_MAX];

    ASSERT_OK(secrets_open(home, &secrets, &err));
    snprintf(path, sizeof path, "%s/serve.key", home);
    ASSERT(chmod(path, 0640) == 0);
    ASSERT_CODE(secrets_open(home, &secrets, &err), CAY_E_DENIED);
}

TEST(a_signature_is_what_the_sdks_make)
{
    char signature[SIGNATURE_MAX];

    /* sha256("d/x:read::t"), and the same with a time */
    secrets_signature("d/x", "read", "", "t", -1, signature);
    ASSERT_STR(signature, "v1_UX/6bxo6L1sf1g0lbG37EH59T+HubprAcJ3QsckK700");
    secrets_signature("d/x", "read", "", "t", 5, signature);
    ASSERT_STR(signature, "v1_F+y1jtb/avrFEZjKvjGb+N5nJlGrihqtsUUq8IZ0ytk");
}

static struct record_row row_of(const char *id, const char *tenant, int64_t started_ms)
{
    struct record_row row;

    row = (struct record_row)RECORD_INIT;
    cay_copy_text(row.id, sizeof row.id, id);
    cay_copy_text(row.tenant, sizeof row.tenant, tenant);
    cay_copy_text(row.template_name, sizeof row.template_name, "base");
    row.state = RECORD_RUNNING;
    row.started_ms = started_ms;
    row.end_ms = started_ms + 1000;
    strings_add(&row.metadata, "key");
    strings_add(&row.metadata, "value");
    return row;
}

struct seen {
    char ids[8][SANDBOX_ID_MAX];
    size_t count, stop;
};

static bool see(const struct record_row *row, void *cookie)
{
    struct seen *seen = cookie;

    memcpy(seen->ids[seen->count++], row->id, SANDBOX_ID_MAX);
    return seen->count != seen->stop;
}

TEST(records_are_found_by_tenant_state_and_page)
{
    IN_A_HOME;
    struct registry *registry = open_registry();
    static const char *const ids[] = {"a", "b", "c", "d"};
    struct registry_filter filter = {.tenant = "me", .states = 1u << RECORD_RUNNING};
    struct seen seen = {.stop = 2};

    for (int i = 0; i < 4; i++) {
        AUTO_RECORD row = row_of(ids[i], i == 2 ? "other" : "me", 100 + i / 2);
        ASSERT_OK(registry_add(registry, &row, NULL, &err));
    }
    ASSERT_OK(registry_visit(registry, &filter, see, &seen, &err));
    ASSERT_INT(seen.count, 2);
    ASSERT_STR(seen.ids[0], "d");
    ASSERT_STR(seen.ids[1], "b");
    filter.after_ms = 100;
    filter.after_id = "b";
    ASSERT_OK(registry_visit(registry, &filter, see, &seen, &err));
    ASSERT_INT(seen.count, 3);
    ASSERT_STR(seen.ids[2], "a");
    filter.states = 1u << RECORD_PAUSED;
    ASSERT_OK(registry_visit(registry, &filter, see, &seen, &err));
    ASSERT_INT(seen.count, 3);
    registry_close(registry);
}

TEST(a_record_survives_and_is_forgotten_in_time)
{
    IN_A_HOME;
    struct registry *registry = open_registry();
    AUTO_RECORD row = row_of("abc", "me", 100), found = {0};

    found = (struct record_row)RECORD_INIT;
    ASSERT_OK(registry_add(registry, &row, NULL, &err));
    ASSERT_CODE(registry_add(registry, &row, NULL, &err), CAY_E_IO);
    row.state = RECORD_GONE;
    cay_copy_text(row.reason, sizeof row.reason, "was killed");
    ASSERT_OK(registry_update(registry, &row, &err));
    registry_close(registry);
    registry = open_registry();
    ASSERT_OK(registry_find(registry, "abc", &found, &err));
    ASSERT_INT(found.state, RECORD_GONE);
    ASSERT_STR(found.reason, "was killed");
    ASSERT_INT(found.metadata.len, 10);
    ASSERT_OK(registry_forget(registry, 2000, &err));
    ASSERT_CODE(registry_find(registry, "abc", &found, &err), CAY_E_NOT_FOUND);
    registry_close(registry);
}

TEST(only_ids_are_ids)
{
    static const char *const wrong[] = {
        "",    "..",  "a/b",
        "A",   "a b", "a-b",
        "a.b", "ü",   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

    ASSERT(record_is_id("abc123"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ASSERT(!record_is_id(wrong[i]));
}

/* R11: rows of dead sandboxes stay on disk for a day; in memory there is only a cache of
 * pages, which is full (2 MiB) after some 30,000 sandboxes. */
TEST(dead_sandboxes_take_no_more_memory_than_the_page_cache)
{
    enum { FULL = 40000, MORE = 40000, GROWTH = 64 << 10 };
    IN_A_HOME;
    struct registry *registry = open_registry();
    AUTO_RECORD row = {0};
    sqlite3_int64 before = 0;

    row = (struct record_row)RECORD_INIT;
    cay_copy_text(row.tenant, sizeof row.tenant, "default");
    cay_copy_text(row.template_name, sizeof row.template_name, "base");
    for (int i = 0; i < FULL + MORE; i++) {
        snprintf(row.id, sizeof row.id, "sandbox%08d", i);
        row.state = RECORD_RUNNING;
        row.started_ms = i;
        ASSERT_OK(registry_add(registry, &row, NULL, &err));
        row.state = RECORD_GONE;
        ASSERT_OK(registry_update(registry, &row, &err));
        if (i == FULL)
            before = sqlite3_memory_used();
    }
    printf("# %lld KiB, then %lld KiB\n", before >> 10, sqlite3_memory_used() >> 10);
    ASSERT(sqlite3_memory_used() - before < GROWTH);
    registry_close(registry);
}

/* L5: PID 1 of a sandbox reports the time that is left, and may report anything. */
TEST(the_time_that_a_sandbox_reports_is_at_most_the_largest_timeout)
{
    enum { MAX_S = 3600 };
    static const struct {
        uint64_t reported;
        int64_t left;
    } rows[] = {{60000 + KEEPER_GRACE_MS, 60000},
                {MAX_S * 1000 + KEEPER_GRACE_MS, MAX_S * 1000},
                {MAX_S * 1000 + KEEPER_GRACE_MS + 1, MAX_S * 1000},
                {INT64_MAX, MAX_S * 1000},
                {UINT64_MAX, MAX_S * 1000},
                {1, 1 - KEEPER_GRACE_MS},
                {0, 300000}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct cay_sandbox_info info = {.ttl_left_ms = rows[i].reported};
        ASSERT_INT(recovery_left_ms(&info, MAX_S), rows[i].left);
    }
}
