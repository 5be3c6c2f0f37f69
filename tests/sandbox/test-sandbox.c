/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "ledger.h"

static int exec(cay_sandbox *sandbox, struct cay_exec_options *options)
{
    options->size = sizeof *options;
    cay_exec_done(&result);
    return cay_sandbox_exec(sandbox, options, &result, &err);
}

TEST(a_command_runs_as_user_in_its_home_and_its_streams_are_separate)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    run(sandbox, "id -un; pwd; echo to-stderr >&2; exit 7");
    ASSERT_STR(result.out, "user\n/home/user\n");
    ASSERT_STR(result.error, "to-stderr\n");
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.exit_code, 7);
    cay_exec_done(&result);
}

TEST(the_umask_of_the_maker_is_not_seen_inside)
{
    static const mode_t masks[] = {0, 022, 027, 077};
    static const char look[] = "umask; stat -c '%n %a %U %G' / /etc /etc/ld.so.cache "
                               "/etc/passwd /tmp /home/user "
                               "/root /dev /dev/null /dev/shm /run /var/tmp";
    AUTO_FREE char *usual = NULL;
    mode_t before = umask(0);

    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        umask(masks[i]);
        AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
        run(sandbox, look);
        ASSERT_INT(result.exit_code, 0);
        if (!usual)
            usual = strdup(result.out);
        ASSERT_STR(result.out, usual);
    }
    umask(before);
    ASSERT_HAS(usual, "0022\n/ 755 ");
    cay_exec_done(&result);
}

TEST(a_handle_serves_many_commands_one_after_the_other)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 50; i++) {
        run(sandbox, "echo $$");
        ASSERT_INT(result.exit_code, 0);
    }
    cay_exec_done(&result);
}

TEST(what_a_command_writes_the_next_one_finds)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    run(sandbox, "echo kept > file");
    run(sandbox, "cat file");
    ASSERT_STR(result.out, "kept\n");
    cay_exec_done(&result);
}

TEST(arguments_are_no_shell_and_a_megabyte_of_them_passes)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { PIECE = 64 << 10, PIECES = 16 };
    const char *argv[PIECES + 4] = {"printf", "%s"};
    struct cay_exec_options options = {.argv = argv};
    AUTO_FREE char *piece = malloc(PIECE + 1);

    memset(piece, 'x', PIECE);
    piece[PIECE] = '\0';
    for (int i = 0; i < PIECES; i++)
        argv[2 + i] = piece;
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_INT(result.out_len, PIECE * PIECES);
    argv[2] = "$HOME `id` ; |";
    argv[3] = NULL;
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "$HOME `id` ; |");
    cay_exec_done(&result);
}

TEST(input_of_any_size_goes_in_while_output_comes_out)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    enum { LEN = 50 << 20 };
    AUTO_FREE char *input = malloc(LEN);
    const char *const count[] = {"wc", "-c", NULL}, *const echo[] = {"cat", NULL};
    struct cay_exec_options options = {.argv = count, .input = input, .input_len = LEN};

    memset(input, 'x', LEN);
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "52428800\n");
    options.argv = echo;
    options.output_limit = LEN;
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_INT(result.out_len, LEN);
    options.input_len = 0;
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "");
    cay_exec_done(&result);
}

TEST(bytes_are_bytes_in_both_directions)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"cat", NULL};
    struct cay_exec_options options = {
        .argv = argv, .input = "\0\xFF\r\n", .input_len = 4};

    ASSERT_OK(exec(sandbox, &options));
    ASSERT_MEM(result.out, result.out_len, "\0\xFF\r\n", 4);
    cay_exec_done(&result);
}

TEST(output_over_the_limit_keeps_the_tail_and_counts_the_rest)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"seq", "1", "100000", NULL};
    struct cay_exec_options options = {.argv = argv, .output_limit = 14};

    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "\n99999\n100000\n");
    ASSERT_INT(result.out_dropped, 588895 - 14);
    ASSERT_INT(result.exit_code, 0);
    cay_exec_done(&result);
}

TEST(output_over_the_limit_can_end_the_command)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"yes", NULL};
    struct cay_exec_options options = {
        .argv = argv, .output_limit = 1000, .flags = CAY_EXEC_FAIL_ON_LIMIT};

    ASSERT_OK(exec(sandbox, &options));
    ASSERT_INT(result.cause, CAY_CAUSE_OUTPUT_LIMIT);
    ASSERT_INT(result.out_len, 1000);
    cay_exec_done(&result);
}

static int stop_at_three(void *cookie, int stream, const void *data, size_t len)
{
    int *calls = cookie;

    (void)data;
    ASSERT(len > 0 && (stream == 1 || stream == 2));
    return ++*calls == 3;
}

TEST(output_can_be_streamed_and_the_reader_can_stop_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"yes", NULL};
    int calls = 0;
    struct cay_exec_options options = {
        .argv = argv, .on_output = stop_at_three, .cookie = &calls};

    ASSERT_OK(exec(sandbox, &options));
    ASSERT(calls >= 3);
    ASSERT_INT(result.signal, SIGKILL);
    ASSERT_INT(result.out_len, 0);
    cay_exec_done(&result);
}

struct nest {
    cay_sandbox *sandbox;
    unsigned calls;
    bool told;
};

/* Every piece of the outer command's output runs one of its own. */
static int run_another(void *cookie, int stream, const void *data, size_t len)
{
    const char *const argv[] = {"sh", "-c", "head -c 100000 /dev/zero | tr '\\0' n",
                                NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    struct nest *nest = cookie;
    struct cay_exec_result inner;

    if (stream == 1 && nest->calls < 3) {
        ASSERT_OK(cay_sandbox_exec(nest->sandbox, &options, &inner, &err));
        ASSERT_INT(inner.out_len, 100000);
        cay_exec_done(&inner);
        nest->calls++;
    }
    nest->told = nest->told || memchr(data, 'n', len);
    return 0;
}

TEST(a_callback_may_run_other_commands)
{
    const char *const argv[] = {"sh", "-c",
                                "for i in 1 2 3 4; do echo $i; sleep 0.05; done", NULL};
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct nest nest = {.sandbox = sandbox};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .on_output = run_another, .cookie = &nest};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.exit_code, 0);
    ASSERT(nest.calls >= 1 && !nest.told);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
}

TEST(a_signal_is_128_and_its_number)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    run(sandbox, "kill -TERM $$");
    ASSERT_INT(result.cause, CAY_CAUSE_SIGNALLED);
    ASSERT_INT(result.exit_code, 143);
    cay_exec_done(&result);
}

TEST(a_program_that_cannot_be_executed_is_a_result_told_by_errno)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const struct {
        const char *program;
        int code, error;
    } cases[] = {
        {"no-such-program", 127, ENOENT},
        {"/etc/passwd", 126, EACCES},
        {"/home/user/text", 126, ENOEXEC},
        {"/home/user", 126, EACCES},
    };

    run(sandbox, "echo text > text; chmod +x text");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const argv[] = {cases[i].program, NULL};
        struct cay_exec_options options = {.argv = argv};
        ASSERT_OK(exec(sandbox, &options));
        ASSERT_INT(result.cause, CAY_CAUSE_NOT_STARTED);
        ASSERT_INT(result.exit_code, cases[i].code);
        ASSERT_INT(result.exec_errno, cases[i].error);
    }
    cay_exec_done(&result);
}

TEST(a_timeout_kills_the_whole_tree_and_keeps_the_output)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    run_as(sandbox, NULL,
           "trap '' TERM INT HUP; echo before; setsid sleep 1000 & "
           "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 1000",
           500);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_INT(result.exit_code, 124);
    ASSERT_STR(result.out, "before\n");
    run(sandbox, "ps -eo comm | grep -c sleep");
    ASSERT_STR(result.out, "0\n");
    cay_exec_done(&result);
}

TEST(a_command_ends_with_its_leader_and_background_children_live_on)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct timespec start, end;

    clock_gettime(CLOCK_MONOTONIC, &start);
    run(sandbox, "sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; "
                 "echo started");
    clock_gettime(CLOCK_MONOTONIC, &end);
    ASSERT_STR(result.out, "started\n");
    ASSERT(end.tv_sec - start.tv_sec < 100);
    run(sandbox, "ps -eo comm | grep -c sleep");
    ASSERT_STR(result.out, "1\n");
    run_as(sandbox, NULL, "sleep 1000", 300);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    run(sandbox, "ps -eo comm | grep -c sleep");
    ASSERT_STR(result.out, "1\n");
    cay_exec_done(&result);
}

TEST(the_memory_limit_kills_inside_and_is_told_as_such)
{
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .memory_bytes = 64 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);

    run(sandbox, "exec tail /dev/zero");
    ASSERT_INT(result.cause, CAY_CAUSE_MEMORY);
    ASSERT_INT(result.exit_code, 137);
    ASSERT_INT(result.memory_kills, 1);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    ASSERT_INT(result.memory_kills, 0);
    cay_exec_done(&result);
}

TEST(the_memory_limit_and_that_of_processes_are_told_if_a_child_meets_them)
{
    const struct cay_sandbox_options small = {
        .size = sizeof small, .memory_bytes = 64 << 20, .pids = 8};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);

    run(sandbox, "tail /dev/zero; echo went on");
    ASSERT_STR(result.out, "went on\n");
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.memory_kills, 1);
    ASSERT_INT(result.refused_forks, 0);
    run(sandbox, "for i in 1 2 3 4 5 6 7 8 9; do sleep 100 & done");
    ASSERT_INT(result.memory_kills, 0);
    ASSERT(result.refused_forks > 0);
    cay_exec_done(&result);
}

TEST(the_limit_on_processes_stops_a_fork_bomb)
{
    const struct cay_sandbox_options few = {.size = sizeof few, .pids = 32};
    AUTO(cay_sandbox) sandbox = make_sandbox(&few);

    run_as(sandbox, NULL, "i=0; while [ $i -lt 100 ]; do sleep 100 & i=$((i+1)); done",
           5000);
    run(sandbox, "echo never mind");
    ASSERT(result.cause == CAY_CAUSE_EXITED || result.cause == CAY_CAUSE_SIGNALLED);
    cay_exec_done(&result);
}

TEST(the_disk_has_a_size)
{
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .disk_bytes = 16 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);

    run(sandbox, "dd if=/dev/zero of=big bs=1M count=64 2>&1 | tail -1; stat -c %s big");
    ASSERT_HAS(result.error[0] ? result.error : result.out, "");
    run(sandbox, "[ $(stat -c %s big) -le 16777216 ] && echo kept");
    ASSERT_STR(result.out, "kept\n");
    cay_exec_done(&result);
}

TEST(users_are_those_of_the_sandbox)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"id", "-u", NULL};
    struct cay_exec_options options = {.argv = argv, .user = "root"};

    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "0\n");
    options.user = "1234";
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "1234\n");
    static const char long_group[] =
        "user:abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789";
    static const char *const wrong[] = {"nonexistent", "00",       "-1", " 0",
                                        "65536",       "1000:",    ":0", "4294967295",
                                        "1e3",         "root\n",   "",   "user:none",
                                        "none:user",   long_group, ":"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.user = wrong[i];
        ASSERT_CODE(exec(sandbox, &options), CAY_E_NOT_FOUND);
        ASSERT_STR(err.subject, wrong[i]);
    }
    cay_exec_done(&result);
}

TEST(users_added_inside_can_be_used)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    run_as(sandbox, "root", "useradd -m alice && id -un alice", PATIENCE_MS);
    ASSERT_STR(result.out, "alice\n");
    run_as(sandbox, "alice", "whoami; pwd; touch mine && ls", PATIENCE_MS);
    ASSERT_STR(result.out, "alice\n/home/alice\nmine\n");
    cay_exec_done(&result);
}

TEST(the_working_directory_is_relative_to_home)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"pwd", NULL};
    struct cay_exec_options options = {.argv = argv, .cwd = "sub"};

    run(sandbox, "mkdir sub");
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "/home/user/sub\n");
    options.cwd = "/usr/bin";
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "/usr/bin\n");
    static const struct {
        const char *path;
        int code;
    } wrong[] = {{"/no/such/place", CAY_E_NOT_FOUND},
                 {"/etc/passwd", CAY_E_NOT_A_DIRECTORY},
                 {"/root", CAY_E_DENIED}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.cwd = wrong[i].path;
        ASSERT_CODE(exec(sandbox, &options), wrong[i].code);
        ASSERT_STR(err.op, "exec.cwd");
        ASSERT_STR(err.subject, wrong[i].path);
    }
    cay_exec_done(&result);
}

TEST(commands_heed_the_signals_that_the_maker_ignores)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGPIPE, SIGUSR1};
    sighandler_t before[4];

    for (size_t i = 0; i < 4; i++)
        before[i] = signal(numbers[i], SIG_IGN);
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    run(sandbox, "grep -E '^Sig(Ign|Blk)' /proc/self/status | grep -v 0000000000000000");
    for (size_t i = 0; i < 4; i++)
        (void)signal(numbers[i], before[i]);
    ASSERT_STR(result.out, "");
    ASSERT_INT(result.exit_code, 1);
}

TEST(the_environment_is_the_sandboxs_and_the_commands_never_the_hosts)
{
    static const char *const shared[] = {"A=sandbox", "B=sandbox", NULL};
    static const char *const own[] = {"B=command", "PATH=/usr/bin:/bin", NULL};
    const struct cay_sandbox_options with_env = {.size = sizeof with_env, .env = shared};
    AUTO(cay_sandbox) sandbox = make_sandbox(&with_env);
    const char *const argv[] = {"sh", "-c", "echo $A $B $HOME; env | grep -c SECRET",
                                NULL};
    struct cay_exec_options options = {.argv = argv, .env = own};

    ASSERT_INT(setenv("SECRET", "token", 1), 0);
    ASSERT_OK(exec(sandbox, &options));
    ASSERT_STR(result.out, "sandbox command /home/user\n0\n");
    cay_exec_done(&result);
}

TEST(another_process_reaches_the_sandbox_by_its_id)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_sandbox *again = NULL;

    run(sandbox, "echo here > file");
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
    run(again, "cat file");
    ASSERT_STR(result.out, "here\n");
    cay_exec_done(&result);
    cay_sandbox_free(again);
    ASSERT_CODE(cay_sandbox_open("sb-aaaaaaaaaaaaaaaa", &again, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_sandbox_open("../../etc", &again, &err), CAY_E_INVALID);
}

TEST(a_killed_sandbox_leaves_nothing_behind)
{
    cay_sandbox *sandbox = make_sandbox(NULL);
    char id[CAY_ID_MAX];
    char range[32];
    struct cay_sandbox_info info;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    snprintf(range, sizeof range, "%x", info.id_base >> 16);
    run(sandbox, "sleep 1000 & setsid sleep 1000 & exit 0");
    ASSERT_INT(count_names(runtime_path(), id), 2); /* record and socket */
    if (geteuid() == 0)
        ASSERT_INT(count_names("/run/cay/ranges", range), 1);
    if (info.layers & CAY_LAYER_CGROUP)
        ASSERT(count_groups(id) > 0);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_names(runtime_path(), id), 0);
    ASSERT_INT(count_names("/run/cay/ranges", range), 0);
    ASSERT_INT(count_names("/tmp", id), 0);
    ASSERT_INT(count_groups(id), 0);
    const char *const argv[] = {"true", NULL};
    struct cay_exec_options options = {.argv = argv};
    ASSERT_CODE(exec(sandbox, &options), CAY_E_NOT_FOUND);
    cay_exec_done(&result);
    cay_sandbox_free(sandbox);
}

TEST(an_ephemeral_sandbox_ends_with_its_leash)
{
    const struct cay_sandbox_options brief = {.size = sizeof brief, .ephemeral = true};
    cay_sandbox *sandbox = make_sandbox(&brief);
    char id[CAY_ID_MAX];
    cay_sandbox *again = NULL;
    const struct timespec pause = {.tv_nsec = 10000000};
    int code = CAY_OK;

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    cay_sandbox_free(sandbox);
    for (int i = 0; i < PATIENCE_MS / 10 && code == CAY_OK; i++) {
        nanosleep(&pause, NULL);
        code = cay_sandbox_open(id, &again, NULL);
        if (code == CAY_OK)
            cay_sandbox_free(again);
    }
    ASSERT_INT(code, CAY_E_NOT_FOUND);
    size_t count;
    /* PID 1 closes its socket before it ends; a collect waits for the end. */
    for (int i = 0; i < PATIENCE_MS / 10 && count_names(runtime_path(), id) > 0; i++) {
        nanosleep(&pause, NULL);
        ASSERT_OK(cay_sandbox_collect(&count, &err));
    }
    ASSERT_INT(count_names(runtime_path(), id), 0);
    ASSERT_INT(count_groups(id), 0);
}

TEST(what_lives_is_not_collected)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    size_t count;

    ASSERT_OK(cay_sandbox_collect(&count, &err));
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    cay_exec_done(&result);
}

TEST(one_sandbox_that_ended_is_collected_with_its_last_state)
{
    cay_sandbox *sandbox = make_sandbox(NULL);
    struct cay_sandbox_info info;
    char id[CAY_ID_MAX];
    const struct timespec pause = {.tv_nsec = 10000000};
    int code = CAY_E_BUSY;

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    ASSERT_CODE(cay_sandbox_collect_one(id, &info, &err), CAY_E_BUSY);
    ASSERT_CODE(cay_sandbox_collect_one("sb-aaaaaaaaaaaaaaaa", &info, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 1, &err));
    cay_sandbox_free(sandbox);
    for (int i = 0; i < PATIENCE_MS / 10 && code == CAY_E_BUSY; i++) {
        nanosleep(&pause, NULL);
        code = cay_sandbox_collect_one(id, &info, &err);
    }
    ASSERT_INT(code, CAY_OK);
    ASSERT_STR(info.id, id);
    ASSERT_INT(info.state, CAY_STATE_STOPPED);
    ASSERT_INT(info.memory_kills, 0);
    ASSERT_INT(count_names(runtime_path(), id), 0);
    ASSERT_INT(count_groups(id), 0);
}

TEST(wrong_wishes_are_refused_with_a_reason)
{
    cay_sandbox *sandbox = NULL;
    struct cay_sandbox_options wish = {
        .size = sizeof wish, .memory_bytes = 1 << 20, .disk_bytes = 2 << 20};

    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "memory limit");
    wish = (struct cay_sandbox_options){.size = sizeof wish, .template_name = "nope"};
    ASSERT_CODE(cay_sandbox_create(&wish, &sandbox, &err), CAY_E_NOT_FOUND);
}

/* --- Memory of an idle sandbox --- */

static bool maps_of_init_name(cay_sandbox *sandbox, const char *part)
{
    struct cay_sandbox_info info;
    char path[64], line[512];
    bool is_there = false;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    snprintf(path, sizeof path, "/proc/%d/maps", info.init_pid);
    FILE *maps = fopen(path, "re");
    ASSERT(maps);
    while (fgets(line, sizeof line, maps))
        is_there |= strstr(line, part) != NULL;
    fclose(maps);
    return is_there;
}

TEST(an_idle_sandbox_has_neither_a_heap_nor_its_plan)
{
    static const char *const env[] = {"COLOR=blue", NULL};
    const struct cay_sandbox_options plain = {.size = sizeof plain, .workdir = "/tmp"};
    const struct cay_sandbox_options with_env = {.size = sizeof with_env, .env = env};

    need_root();
    if (wanted_level() != CAY_LEVEL_BEST && wanted_level() != CAY_LEVEL_ROOT)
        SKIP("with one user inside, the plan is needed");
    AUTO(cay_sandbox) sandbox = make_sandbox(&plain);
    ASSERT(!maps_of_init_name(sandbox, "cay-plan"));
    ASSERT(!maps_of_init_name(sandbox, "[heap]"));
    run(sandbox, "pwd; id -un");
    ASSERT_STR(result.out, "/tmp\nuser\n");
    ASSERT(!maps_of_init_name(sandbox, "[heap]"));
    AUTO(cay_sandbox) other = make_sandbox(&with_env);
    ASSERT(maps_of_init_name(other, "cay-plan")); /* the environment points into it */
    run(other, "echo $COLOR");
    ASSERT_STR(result.out, "blue\n");
}
