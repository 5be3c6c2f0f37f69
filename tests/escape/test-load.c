/* SPDX-License-Identifier: Apache-2.0 */

/* Resources: what one sandbox takes, the host and its neighbour must not miss.  The
 * control of each is the same load in a sandbox whose limit is higher. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init/filters.h"
#include "neighbour.h"
#include "world.h"

#define MIB (1ull << 20)

static void report(const char *row, const char *verdict)
{
    printf("# probe %s as user: %s made %ld, %s\n", row, verdict, world_made(),
           world_errno() > 0 ? strerrorname_np(world_errno()) : "killed");
}

static void report_control(const char *row, const char *without)
{
    printf("# control %s without %s: ESCAPE made %ld\n", row, without, world_made());
}

/* Waits for those that are on their way out. */
static void must_be_quiet(const cay_sandbox *sandbox)
{
    const struct timespec moment = {.tv_nsec = 10000000};

    for (int tries = 0; world_processes(sandbox) > 0 && tries < 2000; tries++)
        nanosleep(&moment, NULL);
    ASSERT_INT(world_processes(sandbox), 0);
}

static void must_answer(cay_sandbox *sandbox)
{
    world_run(sandbox, NULL, "echo alive");
    ASSERT_STR(result.out, "alive\n");
}

static cay_sandbox *with_pids(unsigned pids)
{
    const struct cay_sandbox_options options = {.size = sizeof options, .pids = pids};

    return world_sandbox(&options);
}

static void limited_processes(const char *row, const char *kind, long amount)
{
    world_begin();
    cay_sandbox *sandbox = with_pids(64);
    neighbour_begin();
    world_load(sandbox, kind, amount, 60000);
    report(row, "LIMITED");
    ASSERT(world_made() > 0 && world_made() < 64);
    ASSERT_INT(world_errno(), EAGAIN);
    neighbour_end(row);
    must_be_quiet(sandbox);
    must_answer(sandbox);
    cay_sandbox *roomy = with_pids(512);
    world_load(roomy, kind, amount, 60000);
    report_control(row, "the limit");
    ASSERT_INT(world_made(), amount);
    world_end();
}

TEST(B01_processes_end_at_their_limit)
{
    limited_processes("B01_processes", "processes", 200);
}

TEST(B02_threads_end_at_their_limit)
{
    limited_processes("B02_threads", "threads", 200);
}

TEST(B02_zombies_count_and_are_reaped_when_orphaned)
{
    limited_processes("B02_zombies", "zombies", 200);
}

TEST(B01_a_fork_bomb_burns_out_and_leaves_the_sandbox_usable)
{
    world_begin();
    cay_sandbox *sandbox = with_pids(128);
    neighbour_begin();
    world_load(sandbox, "bomb", 300, 60000);
    report("B01_bomb", "LIMITED");
    ASSERT(world_made() > 0); /* refusals, here */
    ASSERT_INT(world_errno(), EAGAIN);
    neighbour_end("B01_bomb");
    must_be_quiet(sandbox);
    must_answer(sandbox);
    world_end();
}

TEST(B01_a_fork_bomb_can_be_killed_while_it_goes_off)
{
    world_begin();
    cay_sandbox *sandbox = with_pids(128);
    double before = world_now();
    world_load(sandbox, "bomb", 600000, 500);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    printf("# a fork bomb with a timeout of 500 ms was dead after %.0f ms\n",
           (world_now() - before) * 1e3);
    must_be_quiet(sandbox);
    must_answer(sandbox);
    world_end();
}

/* --- Memory --- */

static cay_sandbox *with_memory(uint64_t memory, uint64_t disk)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .memory_bytes = memory, .disk_bytes = disk};

    return world_sandbox(&options);
}

static void limited_memory(const char *row, const char *kind, long amount)
{
    world_begin();
    cay_sandbox *sandbox = with_memory(48 * MIB, 16 * MIB);
    neighbour_begin();
    world_load(sandbox, kind, amount, 60000);
    bool killed = result.cause == CAY_CAUSE_MEMORY || result.signal == SIGKILL ||
                  result.cause == CAY_CAUSE_GONE;
    report(row, "LIMITED");
    if (!killed) {
        ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
        ASSERT(world_made() >= 0 && world_made() < amount && world_errno() > 0);
    }
    neighbour_end(row);
    cay_sandbox *roomy = with_memory(512 * MIB, 16 * MIB);
    world_load(roomy, kind, amount, 60000);
    report_control(row, "the limit");
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(world_made(), amount);
    world_end();
}

TEST(B03_private_memory_ends_at_the_limit)
{
    limited_memory("B03_private", "private", 96);
}

TEST(B03_shared_memory_ends_at_the_limit)
{
    limited_memory("B03_shared", "shared", 96);
}

TEST(B03_memory_files_end_at_the_limit)
{
    limited_memory("B03_memfd", "memfd", 96);
}

TEST(B03_system_v_segments_end_at_the_limit)
{
    limited_memory("B03_segments", "segments", 96);
}

TEST(B03_page_tables_end_at_the_limit)
{
    limited_memory("B03_tables", "tables", 96);
}

TEST(B04_pipes_end_at_the_limit)
{
    limited_memory("B04_pipes", "pipes", 1000);
}

TEST(B04_sockets_end_at_the_limit)
{
    limited_memory("B04_sockets", "sockets", 500);
}

/* Where the kernel counts these apart (cgroup v1) there may be a quarter on top. */
TEST(B04_tcp_buffers_end_at_the_limit)
{
    limited_memory("B04_tcp", "tcp", 64);
}

/* The machine has some thousands for all. */
TEST(B04_terminals_are_not_all_for_one)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    world_load(sandbox, "terminals", 1000, 60000);
    report("B04_terminals", "LIMITED");
    ASSERT(world_made() > 0 && world_made() < 1000);
    ASSERT_INT(world_errno(), ENOSPC);
    world_load(sandbox, "terminals", 200, 60000);
    report_control("B04_terminals", "reaching it");
    ASSERT_INT(world_made(), 200);
    world_end();
}

/* What the kernel limits for each user it limits for each sandbox, since no two share
 * one: what one has used up, the other still has. */
TEST(B04_limits_of_a_user_are_not_shared_by_two_sandboxes)
{
    world_begin();
    cay_sandbox *one = world_sandbox(NULL), *other = world_sandbox(NULL);
    const char *const argv[] = {"/tmp/probe", "load", "watchers", "100000", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    world_run(one, NULL,
              "/tmp/probe load watchers 100000; "
              "(exec 9>/tmp/done; python3 -c 'import ctypes,time\n"
              "libc=ctypes.CDLL(None)\n"
              "while libc.inotify_init1(0)>=0: pass\n"
              "open(\"/tmp/full\",\"w\"); time.sleep(60)' &) >/dev/null 2>&1; "
              "while [ ! -e /tmp/full ]; do sleep 0.01; done");
    long most = world_made();
    report("B04_watchers", "LIMITED");
    ASSERT(most > 0 && world_errno() == EMFILE);
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(other, &options, &result, &err));
    ASSERT_INT(world_made(), most);
    world_end();
}

/* Finding S3: the kernel's memory for seccomp filters is in no cgroup, and all sandboxes
 * of a machine share one limit on it. */

/* The control has no sandbox around it at all. */
static long filters_without_sandbox(const char *amount)
{
    char output[64] = "";
    int ends[2];

    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execl(world_probe_path(), world_probe_path(), "load", "filters", amount, NULL);
        _exit(127);
    }
    close(ends[1]);
    ASSERT(read(ends[0], output, sizeof output - 1) > 0);
    close(ends[0]);
    ASSERT(waitpid(child, NULL, 0) == child);
    ASSERT(strncmp(output, "made ", 5) == 0);
    return strtol(output + 5, NULL, 10);
}

static void limited_filters(const char *row, const char *kind)
{
    world_begin();
    const struct cay_sandbox_options options = {
        .size = sizeof options, .memory_bytes = 64 * MIB, .pids = 2000};
    /* Where these two can be limited. */
    cay_sandbox *sandbox = world_sandbox(geteuid() == 0 ? &options : NULL);
    for (int round = 0; round < 2; round++) {
        world_load(sandbox, kind, 1200, 60000);
        report(row, "LIMITED");
        ASSERT(world_made() >= FILTERS_MAX / 2 && world_made() <= FILTERS_MAX);
        ASSERT_INT(world_errno(), ENOMEM);
        must_be_quiet(sandbox);
    }
    /* Those of processes that have ended do not count. */
    world_load(sandbox, "filters-again", 3 * FILTERS_MAX, 60000);
    ASSERT_INT(world_made(), 3 * FILTERS_MAX);
    must_answer(sandbox);
    if (geteuid() == 0) {
        long made = filters_without_sandbox("300");
        printf("# control %s without the count: ESCAPE made %ld\n", row, made);
        ASSERT_INT(made, 300);
    }
    world_end();
}

TEST(B04_S3_filters_of_system_calls_end_at_their_limit)
{
    limited_filters("B04_filters", "filters");
}

TEST(B04_S3_filters_inherited_from_dead_processes_count)
{
    limited_filters("B04_filters_orphaned", "filters-orphaned");
}

TEST(B04_S3_filters_of_threads_count)
{
    limited_filters("B04_filters_threads", "filters-threads");
}

/* Finding A3: root inside chooses how long its /proc/PID/status is. */
TEST(B04_A3_filters_of_processes_in_many_groups_count)
{
    if (geteuid() != 0)
        SKIP("needs root inside that may choose its groups");
    world_begin();
    const struct cay_sandbox_options options = {
        .size = sizeof options, .memory_bytes = 64 * MIB, .pids = 2000};
    cay_sandbox *sandbox = world_sandbox(&options);
    world_load_as(sandbox, "root", "filters-in-groups", 300, 60000);
    report("B04_filters_groups", "LIMITED");
    ASSERT(world_made() >= FILTERS_MAX / 2 && world_made() <= FILTERS_MAX);
    ASSERT_INT(world_errno(), ENOMEM);
    must_be_quiet(sandbox);
    long made = filters_without_sandbox("300");
    printf("# control B04_filters_groups without the count: ESCAPE made %ld\n", made);
    ASSERT_INT(made, 300);
    world_end();
}

/* Finding A6: at the limit PID 1 does not look at all processes for every request. */
TEST(B04_A6_requests_at_the_limit_of_filters_do_not_keep_PID_1_busy)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    world_load(sandbox, "filters-asked-for", 100000, 60000);
    ASSERT_INT(world_errno(), ENOMEM);
    must_answer(sandbox);
    world_end();
}

/* --- Files --- */

static void limited_disk(const char *row, const char *kind, long amount)
{
    world_begin();
    cay_sandbox *sandbox = with_memory(128 * MIB, 8 * MIB);
    neighbour_begin();
    world_load(sandbox, kind, amount, 60000);
    report(row, "LIMITED");
    ASSERT(world_made() >= 0 && world_made() < amount);
    ASSERT_INT(world_errno(), ENOSPC);
    neighbour_end(row);
    must_answer(sandbox);
    cay_sandbox *roomy = with_memory(512 * MIB, 256 * MIB);
    world_load(roomy, kind, amount, 60000);
    report_control(row, "the limit");
    ASSERT_INT(world_made(), amount);
    world_end();
}

TEST(B05_the_disk_is_as_large_as_it_was_made)
{
    limited_disk("B05_disk", "/home/user/fill", 32);
}

TEST(B06_the_disk_has_as_many_files_as_it_was_made_for)
{
    limited_disk("B06_inodes", "files", 6000);
}

TEST(B07_more_than_the_disk_cannot_be_allocated)
{
    limited_disk("B07_allocate", "allocate", 64);
}

TEST(B08_every_place_that_can_be_written_has_the_limit)
{
    static const char *const places[] = {"/tmp/fill", "/var/tmp/fill", "/dev/shm/fill"};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        limited_disk("B08_places", places[i], 32);
}

/* A terabyte that is not there costs nothing and is not read as one. */
TEST(B07_a_sparse_file_takes_no_room)
{
    world_begin();
    cay_sandbox *sandbox = with_memory(64 * MIB, 8 * MIB);
    world_run(sandbox, NULL, "truncate -s 1T f && stat -c '%s %b' f && rm f");
    ASSERT_STR(result.out, "1099511627776 0\n");
    must_answer(sandbox);
    world_end();
}

TEST(B09_descriptors_end_at_their_limit_and_only_there)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    neighbour_begin();
    world_load(sandbox, "descriptors", 200000, 60000);
    report("B09_descriptors", "LIMITED");
    ASSERT(world_made() > 0 && world_made() <= 65536);
    ASSERT_INT(world_errno(), EMFILE);
    neighbour_end("B09_descriptors");
    world_load(sandbox, "descriptors", 1000, 60000);
    report_control("B09_descriptors", "reaching it");
    ASSERT_INT(world_made(), 1000);
    world_end();
}

/* --- Output and time --- */

static void flood(cay_sandbox *sandbox, uint64_t limit)
{
    const char *const argv[] = {world_inside(), "load", "flood", "20000001", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 60000, .output_limit = limit};

    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.exit_code, 0);
    ASSERT_INT(result.out_len + result.out_dropped, 20000001);
    ASSERT_INT(result.error_len + result.error_dropped, 10000000);
}

TEST(B10_a_flood_of_output_is_counted_to_the_byte)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    flood(sandbox, 1 << 20);
    ASSERT_INT(result.out_len, 1 << 20);
    ASSERT_INT(result.error_len, 1 << 20);
    printf("# probe B10_flood as user: LIMITED kept %zu, dropped %llu\n", result.out_len,
           (unsigned long long)result.out_dropped);
    flood(sandbox, 32 << 20);
    ASSERT_INT(result.out_dropped + result.error_dropped, 0);
    printf("# control B10_flood without the limit: ESCAPE kept %zu\n", result.out_len);
    world_end();
}

TEST(B11_a_grandchild_that_holds_the_pipe_does_not_hold_the_caller)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    world_load(sandbox, "hold", 3600, 0);
    ASSERT_INT(result.exit_code, 0);
    ASSERT_INT(world_made(), 1);
    ASSERT(world_processes(sandbox) >= 1); /* it is there, and holds it */
    printf("# probe B11_pipe as user: LIMITED returned with the leader\n");
    world_end();
}

TEST(B12_nothing_survives_a_timeout)
{
    world_begin();
    cay_sandbox *sandbox = world_sandbox(NULL);
    world_load(sandbox, "background", 10, 0);
    ASSERT_INT(world_made(), 10);
    ASSERT(world_processes(sandbox) >= 10); /* an ordinary end lets them live: control */
    printf("# control B12_survivors without a timeout: ESCAPE %zu live on\n",
           world_processes(sandbox));
    cay_sandbox *other = world_sandbox(NULL);
    world_load(other, "survivors", 10, 1500);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_INT(world_made(), 10);
    ASSERT_INT(world_processes(other), 0); /* at once, not after a while */
    printf("# probe B12_survivors as user: LIMITED none live on\n");
    world_end();
}

/* Only an upper bound can be asserted; a slow machine stays below it. */
TEST(B15_a_share_of_the_processor_is_kept)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .cpu_percent = 20};
    double limited, plain;

    world_begin();
    cay_sandbox *sandbox = world_sandbox(&options);
    if (!(cay_sandbox_layers(sandbox) & CAY_LAYER_CPU))
        SKIP("there is no cpu controller");
    neighbour_begin();
    world_load(sandbox, "spin", 4, 60000);
    limited = (double)(result.user_us + result.system_us) / (double)result.wall_us;
    neighbour_end("B15_share");
    world_load(world_sandbox(NULL), "spin", 4, 60000);
    plain = (double)(result.user_us + result.system_us) / (double)result.wall_us;
    printf("# probe B15_share as user: LIMITED %.0f %% of a processor\n", limited * 100);
    printf("# control B15_share without the limit: ESCAPE %.0f %%\n", plain * 100);
    ASSERT(limited < 0.4);
    ASSERT(plain > limited);
    world_end();
}
