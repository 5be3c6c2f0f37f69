/* SPDX-License-Identifier: Apache-2.0 */

/* kill -9 at each system call of a claim, and at each step of a pool: no claim is lost or
 * doubled, and nothing is left. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../session/steps.h"
#include "native/make/spare.h"
#include "native/record/runtime.h"
#include "pools.h"

enum { SPARES = 64, POINTS_MAX = 1000 };

/* --- What is left --- */

static size_t count_offers(void)
{
    char path[300];

    snprintf(path, sizeof path, "%s/spares", runtime_path());
    return count_names(path, "-sb-");
}

static size_t count_pools(void)
{
    char path[300];

    snprintf(path, sizeof path, "%s/pools", runtime_path());
    return count_names(path, "p-");
}

static size_t count_sandboxes(bool are_spares)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, found = 0;

    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        found += (infos[i].state == CAY_STATE_SPARE) == are_spares;
    cay_free(infos);
    return found;
}

struct left {
    size_t sandboxes, spares, offers, pools;
};

static struct left look_for_leftovers(void)
{
    size_t count;

    ASSERT_OK(cay_sandbox_collect(&count, &err));
    return (struct left){count_sandboxes(false), count_sandboxes(true), count_offers(),
                         count_pools()};
}

/* Within the time that a pool gives a claim, and some more. */
static bool is_more(const struct left *now, const struct left *before)
{
    return now->sandboxes > before->sandboxes || now->spares > before->spares ||
           now->offers > before->offers || now->pools > before->pools;
}

static void nothing_more_than(const struct left *before)
{
    struct left now = look_for_leftovers();

    for (int i = 0; i < 200 && is_more(&now, before); i++) {
        rest_ms(100);
        now = look_for_leftovers();
    }
    ASSERT(!is_more(&now, before));
}

static void need_pools(void)
{
#ifdef __SANITIZE_ADDRESS__
    harness_remark(
        "the sanitizer's locks are not released in a child of a thread's program");
#endif
    need_root();
    if (wanted_level() == CAY_LEVEL_LANDLOCK)
        SKIP("a pool needs namespaces");
}

/* --- Claims --- */

/* `from` NULL: not a fork */
static pid_t start_claim(cay_pool *pool, const char *from, const char *name)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0) {
        const struct cay_sandbox_options options = {.size = sizeof options,
                                                    .level = wanted_level(),
                                                    .name = name,
                                                    .from = from,
                                                    .pool = cay_pool_name(pool)};
        cay_sandbox *sandbox = NULL;
        be_stepped();
        _exit(cay_sandbox_create(&options, &sandbox, &err) == CAY_OK ? 0 : 1);
    }
    return child;
}

/* What has the name is a sandbox, or was about to become one; either can be killed. */
static bool end_claimed(const char *name, bool is_over)
{
    cay_sandbox *sandbox = NULL;
    bool is_found = cay_sandbox_open(name, &sandbox, &err) == CAY_OK;

    if (is_over) {
        ASSERT(is_found);
        run(sandbox, "true");
        ASSERT_INT(result.exit_code, 0);
    }
    if (is_found)
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
    return is_found;
}

/* The pool ends a spare that was claimed halfway, and with that releases its name, some
 * seconds later. */
static cay_sandbox *claim_name(cay_pool *pool, const char *name)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .level = wanted_level(),
                                                .name = name,
                                                .pool = cay_pool_name(pool)};
    cay_sandbox *sandbox = NULL;
    int code = CAY_E_EXISTS;

    for (int i = 0; i < 300 && code == CAY_E_EXISTS; i++) {
        code = cay_sandbox_create(&options, &sandbox, &err);
        if (code == CAY_E_EXISTS)
            rest_ms(100);
    }
    ASSERT_OK(code);
    return sandbox;
}

/* Also those that were claimed halfway are replaced, and no name is lost. */
static void claim_names_again(cay_pool *pool, unsigned steps)
{
    char name[32];

    ASSERT_OK(cay_pool_wait(pool, SPARES, PATIENCE_MS, &err));
    for (unsigned i = 1; i < steps; i += 10) {
        snprintf(name, sizeof name, "crash-%u", i);
        AUTO(cay_sandbox) sandbox = claim_name(pool, name);
        run(sandbox, "test ! -e /tmp/mark && touch /tmp/mark");
        ASSERT_INT(result.exit_code, 0);
    }
}

static void kill_claims(const char *from, unsigned width)
{
    unsigned steps = 1;
    char name[32];
    bool is_over = false;
    const struct cay_sandbox_options options = {.size = sizeof options, .from = from};
    cay_pool *pool = make_pool_of(&options, SPARES, false);

    for (; !is_over && steps < POINTS_MAX; steps += width) {
        ASSERT_OK(cay_pool_wait(pool, 1, PATIENCE_MS, &err));
        snprintf(name, sizeof name, "crash-%u", steps);
        is_over = run_for(start_claim(pool, from, name), steps);
        (void)end_claimed(name, is_over);
    }
    ASSERT(is_over && steps > 40);
    printf("# %u system calls\n", steps);
    claim_names_again(pool, steps);
    cay_pool_free(pool);
}

TEST(a_claim_can_be_killed_at_every_system_call)
{
    struct left before;

    need_pools();
    before = look_for_leftovers();
    kill_claims(NULL, 1);
    nothing_more_than(&before);
}

TEST(a_claim_of_a_fork_can_be_killed_at_every_system_call)
{
    struct cay_checkpoint checkpoint;
    char from[CAY_ID_MAX + 16];
    struct left before;

    need_pools();
    if (wanted_level() > CAY_LEVEL_ROOT)
        SKIP("checkpoints need the isolation level \"root\"");
    AUTO(cay_sandbox) source = make_sandbox(NULL);
    before = look_for_leftovers();
    run(source, "echo one > /tmp/one");
    if (cay_sandbox_checkpoint(source, NULL, &checkpoint, &err) == CAY_E_UNSUPPORTED)
        SKIP("checkpoints need Linux 6.15");
    snprintf(from, sizeof from, "%s:%u", cay_sandbox_id(source), checkpoint.id);
    kill_claims(from, step_width());
    run(source, "cat /tmp/one");
    ASSERT_STR(result.out, "one\n");
    nothing_more_than(&before);
}

/* --- Pools --- */

TEST(the_creation_of_a_pool_can_be_killed_at_every_system_call)
{
    const unsigned width = step_width() * 3;
    struct left before;
    bool is_over = false;

    need_pools();
    before = look_for_leftovers();
    for (unsigned steps = 1 + (unsigned)getpid() % width; !is_over; steps += width) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            const struct cay_sandbox_options sandbox = {.size = sizeof sandbox,
                                                        .level = wanted_level()};
            const struct cay_pool_options options = {
                .size = sizeof options, .sandbox = &sandbox, .count = 2};
            cay_pool *pool = NULL;
            be_stepped();
            _exit(cay_pool_create(&options, &pool, &err) == CAY_OK ? 0 : 1);
        }
        is_over = run_for(child, steps);
    }
    nothing_more_than(&before);
}

/* While it refills, offers, and its spares are claimed. */
TEST(a_pool_can_be_killed_at_any_time)
{
    struct left before;
    char name[CAY_POOL_ID_MAX];
    int ends[2], status;

    need_pools();
    before = look_for_leftovers();
    for (unsigned i = 0; i < 40; i++) {
        ASSERT(pipe(ends) == 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            cay_pool *pool = make_pool(3);
            (void)!write(ends[1], cay_pool_name(pool), sizeof name);
            for (;;)
                pause();
        }
        ASSERT(read(ends[0], name, sizeof name) == sizeof name);
        const struct cay_sandbox_options options = {.size = sizeof options, .pool = name};
        AUTO(cay_sandbox) first = make_sandbox(&options);
        (void)usleep(i * 500);
        ASSERT(kill(child, SIGKILL) == 0);
        AUTO(cay_sandbox) second = make_sandbox(&options); /* a spare or a new one */
        ASSERT(waitpid(child, &status, 0) == child);
        run(first, "echo lives");
        ASSERT_STR(result.out, "lives\n");
        run(second, "echo lives");
        ASSERT_STR(result.out, "lives\n");
        (void)close(ends[0]);
        (void)close(ends[1]);
    }
    nothing_more_than(&before);
}

/* --- Races --- */

/* Two processes, one offer: unlink(2) decides. */
TEST(exactly_one_of_two_processes_takes_an_offer)
{
    enum { ROUNDS = 1000 };
    static const struct spare_key key = {"0123456789abcdef"};
    struct shared {
        _Atomic unsigned round, taken, done;
    } *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[2];
    char id[CAY_ID_MAX];
    int status;

    need_pools();
    ASSERT(shared != MAP_FAILED);
    for (size_t i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        for (unsigned round = 1; round <= ROUNDS; round++) {
            while (shared->round < round)
                (void)sched_yield();
            struct spare_offers offers;
            shared->taken += spare_open_offers(&offers) && spare_take(&offers, &key, id);
            spare_close_offers(&offers);
            shared->done++;
        }
        _exit(0);
    }
    for (unsigned round = 1; round <= ROUNDS; round++) {
        ASSERT_OK(spare_offer(&key, "sb-aaaaaaaaaaaaaaaa", &err));
        shared->round = round;
        while (shared->done < 2 * round)
            (void)sched_yield();
        ASSERT_INT(shared->taken, round);
    }
    for (size_t i = 0; i < 2; i++)
        ASSERT(waitpid(children[i], &status, 0) == children[i] && status == 0);
    (void)munmap(shared, sizeof *shared);
}

struct worker {
    pthread_t thread;
    char pool[CAY_POOL_ID_MAX];
    char ids[5][CAY_ID_MAX];
    size_t count;
};

static void *claim_some(void *cookie)
{
    struct worker *worker = cookie;
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .level = wanted_level(),
                                                .ephemeral = true,
                                                .pool = worker->pool};

    for (size_t i = 0; i < 5; i++) {
        cay_sandbox *sandbox = NULL;
        if (cay_sandbox_create(&options, &sandbox, NULL) != CAY_OK)
            break;
        snprintf(worker->ids[i], CAY_ID_MAX, "%s", cay_sandbox_id(sandbox));
        worker->count += cay_sandbox_kill(sandbox, NULL) == CAY_OK;
        cay_sandbox_free(sandbox);
    }
    return NULL;
}

/* The pool ends while they claim. */
TEST(eight_threads_claim_while_the_pool_is_freed)
{
    struct worker workers[8] = {0};
    struct left before;

    need_pools();
    before = look_for_leftovers();
    cay_pool *pool = make_pool(8);
    for (size_t i = 0; i < 8; i++) {
        snprintf(workers[i].pool, sizeof workers[i].pool, "%s", cay_pool_name(pool));
        ASSERT(pthread_create(&workers[i].thread, NULL, claim_some, &workers[i]) == 0);
    }
    rest_ms(20);
    cay_pool_free(pool);
    for (size_t i = 0; i < 8; i++) {
        ASSERT(pthread_join(workers[i].thread, NULL) == 0);
        ASSERT_INT(workers[i].count, 5);
    }
    for (size_t a = 0; a < 40; a++)
        for (size_t b = 0; b < a; b++)
            ASSERT(strcmp(workers[a / 5].ids[a % 5], workers[b / 5].ids[b % 5]) != 0);
    nothing_more_than(&before);
}
