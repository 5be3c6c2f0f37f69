/* SPDX-License-Identifier: Apache-2.0 */

/* Pools of forks of a checkpoint. */
#include "base/error.h"
#include "inside.h"
#include "native/native.h"
#include "pools.h"
#include "sandbox/backend.h"
#include "templates.h"

static cay_sandbox *make_source(const struct cay_sandbox_options *given)
{
    struct cay_checkpoint checkpoint;
    cay_sandbox *sandbox = make_sandbox(given);

    run_as(sandbox, "root",
           "echo one > /a; mkdir /d; echo x > /d/x; chown user:users /d/x; rm -r /srv; "
           "echo own > /etc/hosts; chmod 600 /etc/hosts; chmod 751 /",
           PATIENCE_MS);
    if (cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err) == CAY_E_UNSUPPORTED)
        SKIP("checkpoints need Linux 6.15");
    run_as(sandbox, "root", "echo two > /a", PATIENCE_MS);
    return sandbox;
}

static cay_pool *make_pool_from(cay_sandbox *source, const char *checkpoint,
                                uint32_t count)
{
    struct cay_sandbox_options options = {.size = sizeof options};
    char from[CAY_ID_MAX + 16];

    snprintf(from, sizeof from, "%s:%s", cay_sandbox_id(source), checkpoint);
    options.from = from;
    return make_pool_of(&options, count, false);
}

static cay_sandbox *fork_by(cay_pool *pool, cay_sandbox *sandbox, const char *checkpoint)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .pool = pool ? cay_pool_name(pool) : NULL,
                                                .ephemeral = true};
    cay_sandbox *made = NULL;

    if (pool)
        ASSERT_OK(cay_pool_wait(pool, 1, PATIENCE_MS, &err));
    ASSERT_OK(cay_sandbox_fork(sandbox, checkpoint, &options, 1, &made, NULL, &err));
    return made;
}

/* All that a program can see of the files and mounts, but the name and the times. */
static void look(cay_sandbox *sandbox, char *text, size_t room)
{
    run_as(sandbox, "root",
           "find / -xdev ! -path '/proc*' ! -path '/sys*' -printf '%p %M %U %G %n %l\\n' "
           "| sort; "
           "cat /a /etc/hosts | sed \"s/$(hostname)/NAME/g\"; "
           "[ \"$(cat /etc/hostname)\" = \"$(hostname)\" ] || echo other name; "
           "cut -d' ' -f5,6 /proc/self/mountinfo | sort; touch /new /usr/new 2>&1; id -u",
           PATIENCE_MS);
    cay_copy_text(text, room, result.out);
    ASSERT(strlen(text) > 1000 && strlen(text) < room - 1);
}

static void compare(cay_pool *pool, cay_sandbox *source)
{
    static char usual[1 << 20], taken[1 << 20];
    uint64_t before = claimed(pool);
    AUTO(cay_sandbox) one = fork_by(NULL, source, "1");
    AUTO(cay_sandbox) other = fork_by(pool, source, "1");

    await_claims(pool, before + 1);
    look(one, usual, sizeof usual);
    look(other, taken, sizeof taken);
    ASSERT_STR(taken, usual);
    const struct native *source_native = source->cookie, *native = other->cookie;
    ASSERT(native->record.id_base != source_native->record.id_base);
}

TEST(a_fork_from_a_pool_is_like_any_other_fork)
{
    AUTO(cay_sandbox) source = make_source(NULL);
    AUTO(cay_pool) pool = make_pool_from(source, "1", 2);

    compare(pool, source);
    compare(pool, source);
}

TEST(a_fork_from_a_pool_has_the_changed_usr_of_base)
{
    const struct cay_sandbox_options base = {.size = sizeof base,
                                             .template_name = "base"};
    struct cay_checkpoint checkpoint;
    AUTO(cay_sandbox) source = make_source(&base);

    run_as(source, "root", "echo tool > /usr/local/tool; rm /usr/bin/yes", PATIENCE_MS);
    ASSERT_OK(cay_sandbox_checkpoint(source, NULL, &checkpoint, &err));
    AUTO(cay_pool) pool = make_pool_from(source, "2", 2);
    AUTO(cay_sandbox) made = fork_by(pool, source, "2");
    await_claims(pool, 1);
    run_as(made, "root", "cat /usr/local/tool; ls /usr/bin/yes 2>&1 | grep -c No",
           PATIENCE_MS);
    ASSERT_STR(result.out, "tool\n1\n");
}

TEST(a_fork_from_a_pool_has_checkpoints_and_forks_of_its_own)
{
    struct cay_checkpoint checkpoint, undone;
    AUTO(cay_sandbox) source = make_source(NULL);
    AUTO(cay_pool) pool = make_pool_from(source, "1", 2);
    AUTO(cay_sandbox) made = fork_by(pool, source, "1");
    char number[16];

    await_claims(pool, 1);
    ASSERT_OK(cay_sandbox_checkpoint(made, NULL, &checkpoint, &err));
    run_as(made, "root", "echo three > /a; rm /d/x", PATIENCE_MS);
    AUTO(cay_sandbox) again = fork_by(NULL, made, NULL);
    run_as(again, "root", "cat /a; ls /d", PATIENCE_MS);
    ASSERT_STR(result.out, "three\n");
    snprintf(number, sizeof number, "%u", checkpoint.id);
    ASSERT_OK(cay_sandbox_rollback(made, number, &undone, &err));
    run_as(made, "root", "cat /a /d/x", PATIENCE_MS);
    ASSERT_STR(result.out, "one\nx\n");
    run_as(source, "root", "cat /a", PATIENCE_MS);
    ASSERT_STR(result.out, "two\n");
}

TEST(a_fork_from_a_pool_keeps_the_files_of_a_removed_sandbox)
{
    const enum cay_storage storages[] = {CAY_STORAGE_MEMORY, CAY_STORAGE_DISK};

    for (size_t i = 0; i < 2; i++) {
        const struct cay_sandbox_options options = {.size = sizeof options,
                                                    .storage = storages[i]};
        AUTO(cay_sandbox) source = make_source(&options);
        AUTO(cay_pool) pool = make_pool_from(source, "1", 1);
        AUTO(cay_sandbox) made = fork_by(pool, source, "1");
        await_claims(pool, 1);
        ASSERT_OK(cay_sandbox_remove(source, &err));
        run_as(made, "root", "cat /a /d/x", PATIENCE_MS);
        ASSERT_STR(result.out, "one\nx\n");
    }
}

/* Other checkpoints, sandboxes with the same numbers, and creates, have other files. */
TEST(only_forks_of_its_checkpoint_take_the_spares_of_a_pool)
{
    struct cay_checkpoint checkpoint;
    AUTO(cay_sandbox) source = make_source(NULL);
    AUTO(cay_sandbox) like = make_source(NULL);
    AUTO(cay_pool) pool = make_pool_from(source, "1", 1);

    ASSERT_OK(cay_sandbox_checkpoint(source, NULL, &checkpoint, &err));
    AUTO(cay_sandbox) later = fork_by(pool, source, "2");
    run_as(later, "root", "cat /a", PATIENCE_MS);
    ASSERT_STR(result.out, "two\n");
    AUTO(cay_sandbox) present = fork_by(pool, source, NULL);
    AUTO(cay_sandbox) other = fork_by(pool, like, "1");
    run_as(present, "root", "cat /a", PATIENCE_MS);
    ASSERT_STR(result.out, "two\n");
    run_as(other, "root", "cat /a", PATIENCE_MS);
    ASSERT_STR(result.out, "one\n");
    AUTO(cay_sandbox) plain = claim(pool, NULL);
    run_as(plain, "root", "ls /a 2>&1 | grep -c No", PATIENCE_MS);
    ASSERT_STR(result.out, "1\n");
    ASSERT_INT(claimed(pool), 0);
    AUTO(cay_sandbox) made = fork_by(pool, source, "1");
    await_claims(pool, 1);
    run_as(made, "root", "cat /a", PATIENCE_MS);
    ASSERT_STR(result.out, "one\n");
}

TEST(the_options_of_a_fork_count_and_not_those_of_its_pool)
{
    const char *const env[] = {"A=b", NULL};
    AUTO(cay_sandbox) source = make_source(NULL);
    AUTO(cay_pool) pool = make_pool_from(source, "1", 1);
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .pool = cay_pool_name(pool),
                                                .env = env,
                                                .name = "fork-of-pool",
                                                .memory_bytes = 2ull << 30};
    cay_sandbox *made = NULL;

    ASSERT_OK(cay_sandbox_fork(source, "1", &options, 1, &made, NULL, &err));
    await_claims(pool, 1);
    run_as(made, "root", "echo $A", PATIENCE_MS);
    ASSERT_STR(result.out, "b\n");
    const struct native *native = made->cookie;
    ASSERT(native->record.memory_bytes == 2ull << 30);
    ASSERT_STR(native->record.name, "fork-of-pool");
    ASSERT_OK(cay_sandbox_remove(made, &err));
    cay_sandbox_free(made);
}

TEST(a_pool_of_forks_needs_a_checkpoint_that_is_there)
{
    cay_pool *pool = NULL;
    AUTO(cay_sandbox) source = make_source(NULL);
    struct cay_sandbox_options sandbox = {.size = sizeof sandbox,
                                          .from = cay_sandbox_id(source)};
    const struct cay_pool_options options = {.size = sizeof options, .sandbox = &sandbox};
    char from[CAY_ID_MAX + 16];

    ASSERT_INT(cay_pool_create(&options, &pool, &err), CAY_E_INVALID);
    ASSERT(strstr(err.hint, "ID:CHECKPOINT"));
    snprintf(from, sizeof from, "%s:9", cay_sandbox_id(source));
    sandbox.from = from;
    ASSERT_INT(cay_pool_create(&options, &pool, &err), CAY_E_NOT_FOUND);
}
