/* SPDX-License-Identifier: Apache-2.0 */

/* Pools: claims, refills, limits, and what is left after a crash. */
#include "cay/pool.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "native/make/spare.h"
#include "native/native.h"
#include "pools.h"
#include "sandbox/backend.h"

TEST(a_request_gets_a_spare_and_the_pool_replaces_it)
{
    AUTO(cay_pool) pool = make_pool(2);
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);

    run(sandbox, "echo $$; pwd; id -un");
    ASSERT_STR(result.out + strcspn(result.out, "\n"), "\n/home/user\nuser\n");
    await_claims(pool, 1);
    ASSERT_OK(cay_pool_wait(pool, 2, PATIENCE_MS, &err));
}

TEST(a_claim_sets_environment_user_directory_name_limits_and_time_to_live)
{
    AUTO(cay_pool) pool = make_pool(1);
    const char *const env[] = {"COLOR=blue", "EMPTY=", NULL};
    const struct cay_sandbox_options options = {
        .size = sizeof options,
        .env = env,
        .workdir = "/tmp",
        .name = "from-a-pool",
        .memory_bytes = wanted_level() ? 0 : 600 << 20,
        .pids = wanted_level() ? 0 : 77,
        .ttl_ms = 3600000,
    };
    AUTO(cay_sandbox) sandbox = claim(pool, &options);
    AUTO(cay_sandbox) named = NULL;
    struct cay_sandbox_info info;

    await_claims(pool, 1);
    run(sandbox, "echo \"$COLOR,$EMPTY,$(pwd)\"");
    ASSERT_STR(result.out, "blue,,/tmp\n");
    ASSERT_OK(cay_sandbox_open("from-a-pool", &named, &err));
    ASSERT_STR(cay_sandbox_id(named), cay_sandbox_id(sandbox));
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT(info.ttl_left_ms > 3000000 && info.ttl_left_ms <= 3600000);
    ASSERT_STR(info.workdir, "/tmp");
    if (!wanted_level()) {
        ASSERT_INT(info.memory_bytes, 600 << 20);
        ASSERT_INT(info.pids, 77);
        run(sandbox, "i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done");
        ASSERT(result.exit_code != 0); /* the limit of processes is in force */
    }
}

TEST(a_spare_serves_no_request_until_it_is_claimed)
{
    AUTO(cay_pool) pool = make_pool(1);
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, spares = 0;
    const char *const argv[] = {"true", NULL};
    const struct cay_exec_options exec = {.size = sizeof exec, .argv = argv};

    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++) {
        if (infos[i].state != CAY_STATE_SPARE)
            continue;
        cay_sandbox *sandbox = NULL;
        spares++;
        if (cay_sandbox_open(infos[i].id, &sandbox, &err) == CAY_OK) {
            ASSERT_INT(cay_sandbox_exec(sandbox, &exec, &result, &err), CAY_E_BUSY);
            ASSERT(strstr(err.message, "spare"));
        }
        cay_sandbox_free(sandbox);
    }
    cay_free(infos);
    ASSERT(spares >= 1);
    ASSERT_INT(claimed(pool), 0);
}

TEST(a_request_that_does_not_fit_gets_a_new_sandbox)
{
    AUTO(cay_pool) pool = make_pool(1);
    const struct cay_sandbox_options options[] = {
        {.size = sizeof *options, .disk_bytes = 5 << 20},
        {.size = sizeof *options, .hostname = "other"},
        {.size = sizeof *options, .network = CAY_NETWORK_HOST},
    };

    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        AUTO(cay_sandbox) sandbox = claim(pool, &options[i]);
        run(sandbox, "hostname");
        if (i == 1)
            ASSERT_STR(result.out, "other\n");
    }
    rest_ms(50);
    ASSERT_INT(claimed(pool), 0);
}

TEST(a_spare_joins_the_named_networks_of_the_request_not_those_of_the_pool)
{
    char mine[CAY_NAME_MAX];
    const char *const of_pool[] = {"of-the-pool", NULL}, *const networks[] = {mine, NULL};
    struct cay_sandbox_options options = {.size = sizeof options, .networks = of_pool};
    AUTO(cay_pool) pool = make_pool_of(&options, 1, false);
    struct cay_sandbox_info info;

    snprintf(mine, sizeof mine, "pool-%d:one", (int)getpid());
    options.networks = networks;
    AUTO(cay_sandbox) sandbox = claim(pool, &options);
    await_claims(pool, 1);
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_STR(info.networks, mine);
    run(sandbox, "getent hosts one");
    ASSERT_INT(result.exit_code, 0);
}

TEST(a_program_with_other_limits_of_its_own_gets_a_new_sandbox)
{
    AUTO(cay_pool) pool = make_pool(1);
    struct rlimit before, lower;

    ASSERT(getrlimit(RLIMIT_STACK, &before) == 0);
    lower = before;
    lower.rlim_cur = 4 << 20;
    ASSERT(setrlimit(RLIMIT_STACK, &lower) == 0);
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    run(sandbox, "ulimit -s");
    ASSERT(setrlimit(RLIMIT_STACK, &before) == 0);
    ASSERT_STR(result.out, "4096\n");
    ASSERT_INT(claimed(pool), 0);
}

TEST(a_claimed_sandbox_outlives_its_pool)
{
    for (int i = 0; i < 10; i++) { /* the pool may not have heard of the claim yet */
        cay_pool *pool = make_pool(2);
        AUTO(cay_sandbox) sandbox = claim(pool, NULL);
        cay_pool_free(pool);
        run(sandbox, "echo still here");
        ASSERT_STR(result.out, "still here\n");
    }
}

static size_t count_spares(void)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, spares = 0;

    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        spares += infos[i].state == CAY_STATE_SPARE;
    cay_free(infos);
    return spares;
}

TEST(a_freed_pool_leaves_nothing_behind)
{
    char path[300];
    size_t before = count_spares();

    snprintf(path, sizeof path, "%s/spares", runtime_path());
    size_t offers = count_names(path, "-sb-");
    cay_pool *pool = make_pool(3);
    ASSERT_INT(count_spares(), before + 3);
    ASSERT_INT(count_names(path, "-sb-"), offers + 3);
    cay_pool_free(pool);
    ASSERT_INT(count_spares(), before);
    ASSERT_INT(count_names(path, "-sb-"), offers);
}

TEST(spares_of_a_killed_program_end_and_are_collected)
{
    size_t before = count_spares(), count = 0;
    int ends[2], status;
    char byte;

    need_root();
    if (wanted_level() == CAY_LEVEL_LANDLOCK)
        SKIP("a pool needs namespaces");
    ASSERT(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void)make_pool(2);
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    ASSERT(read(ends[0], &byte, 1) == 1);
    ASSERT_INT(count_spares(), before + 2);
    ASSERT(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    for (int i = 0; i < PATIENCE_MS && count_spares() > before; i++) {
        ASSERT_OK(cay_sandbox_collect(&count, &err));
        rest_ms(1);
    }
    ASSERT_INT(count_spares(), before);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

TEST(concurrent_claims_never_get_the_same_spare)
{
    enum { PROCESSES = 8, EACH = 4 };
    AUTO(cay_pool) pool = make_pool(PROCESSES * EACH);
    char(*ids)[EACH][CAY_ID_MAX] =
        mmap(NULL, sizeof *ids * PROCESSES, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[PROCESSES];
    int status;

    ASSERT(ids != MAP_FAILED);
    for (size_t i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        for (size_t j = 0; j < EACH; j++) {
            AUTO(cay_sandbox) sandbox = claim(pool, NULL);
            run(sandbox, "test ! -e /tmp/mark && touch /tmp/mark");
            ASSERT_INT(result.exit_code, 0);
            memcpy(ids[i][j], cay_sandbox_id(sandbox), CAY_ID_MAX);
        }
        _exit(0);
    }
    for (size_t i = 0; i < PROCESSES; i++)
        ASSERT(waitpid(children[i], &status, 0) == children[i] && status == 0);
    for (size_t a = 0; a < PROCESSES * EACH; a++)
        for (size_t b = 0; b < a; b++)
            ASSERT(strcmp(ids[a / EACH][a % EACH], ids[b / EACH][b % EACH]) != 0);
    for (int i = 0; i < PATIENCE_MS && claimed(pool) <= PROCESSES; i++)
        rest_ms(1);
    ASSERT(claimed(pool) > PROCESSES);
    (void)munmap(ids, sizeof *ids * PROCESSES);
}

/* Files in the runtime directory, its uid range and cgroups. */
static size_t count_remains(const char *id)
{
    char path[300], target[64];
    size_t count = count_names(runtime_path(), id) + count_groups(id);

    snprintf(path, sizeof path, "%s/ranges", runtime_path());
    DIR *list = opendir(path);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        ssize_t len = readlinkat(dirfd(list), entry->d_name, target, sizeof target);
        count += len == (ssize_t)strlen(id) && memcmp(target, id, (size_t)len) == 0;
    }
    if (list)
        (void)closedir(list);
    return count;
}

static void await_no_remains(const char *id)
{
    for (int i = 0; i < PATIENCE_MS && count_remains(id) > 0; i++)
        rest_ms(1);
    ASSERT_INT(count_remains(id), 0);
}

/* As if the claiming process were killed right after it removed the offer. */
TEST(a_pool_ends_a_spare_whose_claim_was_given_up)
{
    AUTO(cay_pool) pool = make_pool(1);
    char path[300], id[CAY_ID_MAX] = "";
    struct cay_pool_stats stats;

    snprintf(path, sizeof path, "%s/spares", runtime_path());
    DIR *list = opendir(path);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strlen(entry->d_name) > 17) {
            snprintf(id, sizeof id, "%s", entry->d_name + 17);
            ASSERT(unlinkat(dirfd(list), entry->d_name, 0) == 0);
        }
    (void)closedir(list);
    for (int i = 0; i < PATIENCE_MS; i++) {
        cay_pool_get_stats(pool, &stats);
        if (stats.created > 1 && stats.ready == 1)
            break;
        rest_ms(1);
    }
    ASSERT_INT(stats.created, 2);
    ASSERT_INT(stats.claimed, 0);
    await_no_remains(id);
}

TEST(a_spare_that_was_killed_is_replaced)
{
    AUTO(cay_pool) pool = make_pool(1);
    struct cay_sandbox_info *infos = NULL;
    struct cay_pool_stats stats;
    size_t count = 0;
    char path[300] = "";

    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        if (infos[i].state == CAY_STATE_SPARE && infos[i].init_pid > 0) {
            (void)kill(infos[i].init_pid, SIGKILL);
            snprintf(path, sizeof path, "%s/%s", runtime_path(), infos[i].id);
        }
    cay_free(infos);
    for (int i = 0; i < PATIENCE_MS; i++) {
        cay_pool_get_stats(pool, &stats);
        if (stats.created > 1 && stats.ready == 1)
            break;
        rest_ms(1);
    }
    ASSERT_INT(stats.claimed, 0);
    ASSERT(access(path, F_OK) != 0 && errno == ENOENT); /* removed before the next one */
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    await_claims(pool, 1);
    run(sandbox, "true");
}

TEST(a_pool_keeps_to_its_memory_limit)
{
    const struct cay_sandbox_options sandbox = {.size = sizeof sandbox,
                                                .level = wanted_level()};
    const struct cay_pool_options options = {
        .size = sizeof options, .sandbox = &sandbox, .count = 8, .memory_bytes = 1};
    AUTO(cay_pool) pool = NULL;
    struct cay_pool_stats stats;

    need_root();
    if (wanted_level())
        SKIP("memory is counted for root's sandboxes only");
    ASSERT_OK(cay_pool_create(&options, &pool, &err));
    ASSERT_INT(cay_pool_wait(pool, 8, PATIENCE_MS, &err), CAY_E_LIMIT);
    cay_pool_get_stats(pool, &stats);
    ASSERT(stats.is_full && stats.ready <= 1);
}

TEST(a_shared_pool_serves_other_programs_and_can_be_stopped)
{
    AUTO(cay_pool) pool = make_pool_of(NULL, 2, true);
    AUTO(cay_pool) own = make_pool(1);
    struct cay_pool_info *infos = NULL;
    size_t count = 0, found = 0;
    int status;

    ASSERT_STR(cay_pool_name(pool), "");
    pid_t child = fork();
    if (child == 0) {
        AUTO(cay_sandbox) sandbox = claim(pool, NULL);
        run(sandbox, "true");
        _exit(result.exit_code);
    }
    ASSERT(waitpid(child, &status, 0) == child && status == 0);
    await_claims(pool, 1);
    ASSERT_OK(cay_pool_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++) {
        if (infos[i].pid != getpid())
            continue;
        found++;
        ASSERT_STR(infos[i].template_name, "host");
        int code = cay_pool_stop(infos[i].id, &err);
        ASSERT_INT(code, infos[i].is_shared ? CAY_OK : CAY_E_DENIED);
    }
    cay_free(infos);
    ASSERT_INT(found, 2);
    ASSERT_OK(cay_pool_wait_stop(pool, PATIENCE_MS, &err));
    ASSERT_INT(cay_pool_wait_stop(own, 1, &err), CAY_E_TIMEOUT);
    ASSERT_INT(cay_pool_stop("p-0000000000000000", &err), CAY_E_NOT_FOUND);
    ASSERT_INT(cay_pool_stop("../p-1", &err), CAY_E_NOT_FOUND);
}

TEST(options_that_cannot_be_made_ahead_are_refused)
{
    const struct cay_sandbox_options disk = {.size = sizeof disk,
                                             .storage = CAY_STORAGE_DISK};
    const struct cay_sandbox_options landlock = {.size = sizeof landlock,
                                                 .level = CAY_LEVEL_LANDLOCK};
    struct cay_pool_options options = {.size = sizeof options, .sandbox = &disk};
    cay_pool *pool = NULL;

    need_root();
    if (wanted_level())
        SKIP("the same at every level");
    ASSERT_INT(cay_pool_create(&options, &pool, &err), CAY_E_UNSUPPORTED);
    options.sandbox = &landlock;
    ASSERT_INT(cay_pool_create(&options, &pool, &err), CAY_E_UNSUPPORTED);
    options.sandbox = NULL;
    options.count = CAY_POOL_COUNT_MAX + 1;
    ASSERT_INT(cay_pool_create(&options, &pool, &err), CAY_E_INVALID);
}

TEST(a_name_that_is_taken_is_refused_and_costs_no_sandbox)
{
    AUTO(cay_pool) pool = make_pool(1);
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .name = "twice",
                                                .pool = cay_pool_name(pool),
                                                .level = wanted_level(),
                                                .ephemeral = true};
    AUTO(cay_sandbox) first = make_sandbox(&options);
    cay_sandbox *second = NULL;
    struct cay_pool_stats stats;

    run(first, "true");
    await_claims(pool, 1);
    ASSERT_OK(cay_pool_wait(pool, 1, PATIENCE_MS, &err));
    ASSERT_INT(cay_sandbox_create(&options, &second, &err), CAY_E_EXISTS);
    rest_ms(1500); /* the pool has looked after its offers */
    cay_pool_get_stats(pool, &stats);
    ASSERT_INT(stats.created, 2);
    ASSERT_INT(stats.ready, 1);
    AUTO(cay_sandbox) third = claim(pool, NULL);
    await_claims(pool, 2);
    run(third, "true");
}

TEST(an_environment_is_checked_as_without_a_pool_and_may_be_too_large_for_a_spare)
{
    AUTO(cay_pool) pool = make_pool(1);
    static char large[70 << 10] = "LARGE=";
    const char *const invalid[] = {"NO_VALUE", NULL}, *const many[] = {large, NULL};
    struct cay_sandbox_options options = {.size = sizeof options,
                                          .env = invalid,
                                          .pool = cay_pool_name(pool),
                                          .level = wanted_level(),
                                          .ephemeral = true};
    cay_sandbox *refused = NULL;
    struct cay_pool_stats stats;

    ASSERT_INT(cay_sandbox_create(&options, &refused, &err), CAY_E_INVALID);
    memset(large + 6, 'x', sizeof large - 7);
    options.env = many;
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run(sandbox, "echo ${#LARGE}");
    ASSERT_STR(result.out, "71673\n");
    cay_pool_get_stats(pool, &stats);
    ASSERT_INT(stats.created, 1);
    ASSERT_INT(stats.claimed, 0);
}

/* Any hierarchy will do: what limits the program limits its sandboxes. */
TEST(a_program_in_another_cgroup_gets_a_new_sandbox)
{
    static const char group[] = "/sys/fs/cgroup/freezer/cay-test-pool";
    AUTO(cay_pool) pool = make_pool(1);
    int status;

    if (geteuid() != 0 || (mkdir(group, 0755) != 0 && errno != EEXIST))
        SKIP("needs root and the v1 hierarchy of the freezer");
    pid_t child = fork();
    if (child == 0) {
        FILE *tasks = fopen("/sys/fs/cgroup/freezer/cay-test-pool/tasks", "we");
        ASSERT(tasks && fputs("0", tasks) >= 0 && fclose(tasks) == 0);
        AUTO(cay_sandbox) sandbox = claim(pool, NULL);
        run(sandbox, "true");
        _exit(result.exit_code);
    }
    ASSERT(waitpid(child, &status, 0) == child);
    for (int i = 0; i < PATIENCE_MS && rmdir(group) != 0 && errno == EBUSY; i++)
        rest_ms(1);
    ASSERT_INT(status, 0);
    ASSERT_INT(claimed(pool), 0);
}

/* --- The end of a claimed sandbox --- */

static bool is_listed(const char *id)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;
    bool is_found = false;

    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        is_found |= strcmp(infos[i].id, id) == 0;
    cay_free(infos);
    return is_found;
}

TEST(a_killed_sandbox_is_gone_at_once_and_the_pool_removes_the_rest)
{
    AUTO(cay_pool) pool = make_pool(2);
    const struct cay_sandbox_options options = {.size = sizeof options, .name = "brief"};
    char ids[5][CAY_ID_MAX];

    for (size_t i = 0; i < 5; i++) {
        AUTO(cay_sandbox) sandbox = claim(pool, &options);
        cay_sandbox *again = NULL;
        struct cay_sandbox_info info;
        memcpy(ids[i], cay_sandbox_id(sandbox), CAY_ID_MAX);
        ASSERT_OK(cay_sandbox_set_note(ids[i], "note", 4, &err));
        run(sandbox, "sleep 1000 >/dev/null 2>&1 &");
        ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        ASSERT(!is_listed(ids[i]));
        ASSERT_INT(cay_sandbox_open(ids[i], &again, &err), CAY_E_NOT_FOUND);
        ASSERT_INT(cay_sandbox_open("brief", &again, &err), CAY_E_NOT_FOUND);
        void *note = NULL;
        size_t len = 0;
        ASSERT_INT(cay_sandbox_get_note(ids[i], &note, &len, &err), CAY_E_NOT_FOUND);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err)); /* once more */
    }
    for (size_t i = 0; i < 5; i++)
        await_no_remains(ids[i]);
}

TEST(an_owner_removes_everything_itself_if_the_pool_has_ended)
{
    cay_pool *pool = make_pool(1);
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    char id[CAY_ID_MAX];

    memcpy(id, cay_sandbox_id(sandbox), sizeof id);
    run(sandbox, "true");
    cay_pool_free(pool);
    ASSERT(count_remains(id) > 0);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_remains(id), 0);
}

TEST(a_freed_pool_has_removed_what_its_owners_left)
{
    for (int i = 0; i < 5; i++) {
        cay_pool *pool = make_pool(2);
        AUTO(cay_sandbox) sandbox = claim(pool, NULL);
        char id[CAY_ID_MAX];
        memcpy(id, cay_sandbox_id(sandbox), sizeof id);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        cay_pool_free(pool);
        ASSERT_INT(count_remains(id), 0);
    }
}

TEST(a_pool_removes_more_sandboxes_than_it_watches)
{
    enum { COUNT = 80 };
    AUTO(cay_pool) pool = make_pool(4);
    static cay_sandbox *sandboxes[COUNT];
    static char ids[COUNT][CAY_ID_MAX];

    if (wanted_level())
        SKIP("the same at every level");
    for (size_t i = 0; i < COUNT; i++) {
        ASSERT_OK(cay_pool_wait(pool, 1, PATIENCE_MS, &err));
        sandboxes[i] = claim(pool, NULL);
        memcpy(ids[i], cay_sandbox_id(sandboxes[i]), CAY_ID_MAX);
    }
    for (size_t i = 0; i < COUNT; i++)
        auto_cay_sandbox(&sandboxes[i]);
    for (size_t i = 0; i < COUNT; i++)
        await_no_remains(ids[i]);
}

/* A program with a pool, which is stopped or killed. */
struct other {
    pid_t pid;
    char pool[64]; /* its name */
};

static struct other *start_other(uint32_t count)
{
    struct other *other = mmap(NULL, sizeof *other, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ends[2];
    char byte;

    need_root();
    if (wanted_level() == CAY_LEVEL_LANDLOCK)
        SKIP("a pool needs namespaces");
    ASSERT(other != MAP_FAILED && pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        cay_pool *pool = make_pool(count);
        snprintf(other->pool, sizeof other->pool, "%s", cay_pool_name(pool));
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    (void)close(ends[1]);
    ASSERT(read(ends[0], &byte, 1) == 1);
    (void)close(ends[0]);
    other->pid = pid;
    return other;
}

static void kill_other(struct other *other)
{
    ASSERT(kill(other->pid, SIGKILL) == 0);
    ASSERT(waitpid(other->pid, NULL, 0) == other->pid);
    (void)munmap(other, sizeof *other);
}

/* Claims a spare of it, not a new sandbox. */
static cay_sandbox *claim_of(const struct other *other, const char *name)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .pool = other->pool, .name = name};
    cay_sandbox *sandbox = make_sandbox(&options);
    struct record record;

    ASSERT_OK(runtime_load(cay_sandbox_id(sandbox), &record, &err));
    ASSERT_STR(record.pool, other->pool);
    return sandbox;
}

TEST(a_pool_killed_before_it_removed_the_rest_leaves_it_to_collect)
{
    struct other *other = start_other(2);
    char id[CAY_ID_MAX];
    size_t count = 0;
    int status;

    ASSERT(kill(other->pid, SIGSTOP) == 0);
    ASSERT(waitpid(other->pid, &status, WUNTRACED) == other->pid && WIFSTOPPED(status));
    AUTO(cay_sandbox) sandbox = claim_of(other, "left");
    memcpy(id, cay_sandbox_id(sandbox), sizeof id);
    run(sandbox, "true");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT(count_remains(id) > 0); /* the pool seems to run, and cannot */
    ASSERT(!is_listed(id));
    AUTO(cay_sandbox) next = claim_of(other, "left");
    kill_other(other);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_INT(count_remains(id), 0);
    ASSERT(is_listed(cay_sandbox_id(next)));
    run(next, "true");
}

TEST(a_sandbox_that_ended_with_its_last_command_is_left_to_the_pool)
{
    AUTO(cay_pool) pool = make_pool(2);
    const char *const argv[] = {"true", NULL};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true,
                                                .level = wanted_level(),
                                                .pool = cay_pool_name(pool)};
    const struct cay_exec_options exec = {
        .size = sizeof exec, .argv = argv, .flags = CAY_EXEC_LAST};
    AUTO(cay_sandbox) sandbox = NULL;
    cay_process *process = NULL;
    char id[CAY_ID_MAX];

    ASSERT_OK(cay_sandbox_run(&options, &exec, &sandbox, &process, &err));
    memcpy(id, cay_sandbox_id(sandbox), sizeof id);
    cay_exec_done(&result);
    ASSERT_OK(cay_process_wait(process, PATIENCE_MS, &result, &err));
    ASSERT_INT(result.exit_code, 0);
    cay_process_free(process);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT(!is_listed(id));
    await_no_remains(id);
    await_claims(pool, 1);
}

TEST(a_claim_counts_if_the_pool_is_killed_right_after_it)
{
    for (int i = 0; i < 20; i++) {
        struct other *other = start_other(1);
        AUTO(cay_sandbox) sandbox = claim_of(other, NULL);
        kill_other(other);
        run(sandbox, "echo here");
        ASSERT_STR(result.out, "here\n");
    }
}

/* The pool may be killed at any moment of the claims. */
TEST(every_request_gets_a_sandbox_while_the_pool_is_killed)
{
    for (int i = 0; i < 10; i++) {
        struct other *other = start_other(4);
        const struct cay_sandbox_options options = {.size = sizeof options,
                                                    .pool = other->pool};
        pid_t killer = fork();
        if (killer == 0) {
            const struct timespec moment = {.tv_nsec = 100000L * i};
            (void)nanosleep(&moment, NULL);
            _exit(kill(other->pid, SIGKILL) != 0);
        }
        for (int j = 0; j < 4; j++) {
            AUTO(cay_sandbox) sandbox = make_sandbox(&options);
            run(sandbox, "echo here");
            ASSERT_STR(result.out, "here\n");
        }
        ASSERT(waitpid(killer, NULL, 0) == killer);
        kill_other(other);
    }
}

static size_t count_fds(const char *part)
{
    char target[128];
    DIR *list = opendir("/proc/self/fd");
    size_t count = 0;

    for (struct dirent *entry; list && (entry = readdir(list));) {
        ssize_t len = readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1);
        target[len > 0 ? len : 0] = '\0';
        count += strstr(target, part) != NULL;
    }
    (void)closedir(list);
    return count;
}

TEST(a_program_has_no_descriptor_of_mounts_that_a_fork_would_copy)
{
    AUTO(cay_pool) pool = make_pool(3);
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);

    run(sandbox, "true");
    await_claims(pool, 1);
    ASSERT_INT(count_fds("mnt:["), 0);
}

/* Memory in files of a tmpfs, of the whole machine. */
static long shmem_mib(void)
{
    long kib = 0;
    char line[128];
    FILE *info = fopen("/proc/meminfo", "re");

    while (info && fgets(line, sizeof line, info))
        if (strncmp(line, "Shmem:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (info)
        fclose(info);
    return kib / 1024;
}

TEST(the_files_of_a_killed_sandbox_go_while_the_pool_runs)
{
    AUTO(cay_pool) pool = make_pool(2);
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);

    if (wanted_level())
        SKIP("the same at every level");
    long before = shmem_mib();
    run(sandbox, "head -c 200M /dev/zero > /tmp/large");
    ASSERT_INT(result.exit_code, 0);
    ASSERT(shmem_mib() > before + 100); /* other programs use such memory, too */
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    for (int i = 0; i < PATIENCE_MS && shmem_mib() > before + 100; i++)
        rest_ms(1);
    ASSERT(shmem_mib() <= before + 100);
}

TEST(a_spare_has_a_child_ready_for_the_first_command)
{
    AUTO(cay_pool) pool = make_pool(1);
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, found = 0;
    char path[64];

    if (wanted_level())
        SKIP("needs a cgroup2");
    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++) {
        if (infos[i].state != CAY_STATE_SPARE)
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", infos[i].init_pid,
                 infos[i].init_pid);
        for (int j = 0; j < 1000 && !found; j++) {
            char byte;
            FILE *children = fopen(path, "re");
            found += children && fread(&byte, 1, 1, children) == 1;
            if (children)
                fclose(children);
            rest_ms(1);
        }
    }
    cay_free(infos);
    ASSERT(found > 0);
    rest_ms(1200); /* longer than the child of a sandbox in use waits */
    AUTO(cay_sandbox) sandbox = claim(pool, NULL);
    run(sandbox, "echo $$");
    ASSERT_STR(result.out, "2\n");
}
