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
    ASSERT(claimed(pool) > PROCESSES);
    (void)munmap(ids, sizeof *ids * PROCESSES);
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
    cay_sandbox *sandbox = NULL;
    ASSERT_INT(cay_sandbox_open(id, &sandbox, &err), CAY_E_NOT_FOUND);
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
