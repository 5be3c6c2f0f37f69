/* SPDX-License-Identifier: Apache-2.0 */

/* How commands and sandboxes of the backend "local" end, and how they outlive those who
 * made them: as all others do. */
#include "local.h"

/* --- Trees --- */

static void kill_trees(void)
{
    AUTO(cay_sandbox) sandbox = make_local();

    run_as(sandbox, NULL,
           "trap '' TERM INT HUP; echo before; setsid sleep 1000 & "
           "(setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &); "
           "setsid setsid sh -c 'setsid sleep 1000 & exit 0'; sleep 1000",
           700);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_INT(result.exit_code, 124);
    ASSERT_STR(result.out, "before\n");
    ASSERT_INT(count_marked(), 0);
    /* What a command leaves behind when it ends by itself lives on. */
    run(sandbox, "setsid sleep 1000 & (sleep 1000 &); exit 0");
    ASSERT_INT(result.exit_code, 0);
    await(2, "sleep");
    /* And the end of another command is not theirs. */
    run_as(sandbox, NULL, "sleep 1000 & sleep 1000", 300);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_INT(count_marked(), 2);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_marked(), 0);
}

TEST(a_timeout_kills_the_whole_tree_and_a_kill_all_of_them)
{
    as_both(kill_trees);
}

/* Never the same process for long, and never where its parent was. */
static void kill_hoppers(void)
{
    static const char hopper[] = "import os, sys\n"
                                 "sys.stdout.write('up\\n'); sys.stdout.flush()\n"
                                 "for i in range(3):\n"
                                 "    if os.fork() == 0: break\n"
                                 "while True:\n"
                                 "    if os.fork(): os._exit(0)\n"
                                 "    os.setsid()\n";
    AUTO(cay_sandbox) sandbox = make_local();
    const char *const argv[] = {"python3", "-c", hopper, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_BACKGROUND};
    struct heard heard = {0};
    cay_process *process = NULL;

    ASSERT_OK(cay_process_start(sandbox, &options, &process, &err));
    hear_until(process, &heard, 1, "up");
    rest_ms(50);
    ASSERT_OK(cay_process_kill(process, &err));
    ASSERT_INT(count_marked(), 0);
    cay_process_free(process);
}

TEST(processes_that_run_away_from_their_parents_are_caught)
{
    as_both(kill_hoppers);
}

static void end_in_time(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    enum cay_state state;

    run(sandbox, "setsid sleep 1000 & exit 0");
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 100, &err));
    await(0, "");
    uint64_t end = now_ms() + PATIENCE_MS;
    while (cay_sandbox_state(sandbox, &state, &err) == CAY_OK && now_ms() < end)
        rest_ms(5);
    ASSERT_CODE(cay_sandbox_state(sandbox, &state, &err), CAY_E_NOT_FOUND);
}

TEST(the_end_of_its_time_is_the_end_of_all)
{
    as_both(end_in_time);
}

/* --- Those that outlive their makers --- */

static void attach_elsewhere(const char *id)
{
    AUTO(cay_sandbox) sandbox = reach(id);
    AUTO(cay_process) process = attach(sandbox, "worker");
    struct heard heard = {0};
    char pid[16];
    size_t written = 0;

    hear_until(process, &heard, 1, "started");
    ASSERT_OK(cay_process_write(process, "hello\n", 6, &written, &err));
    hear_until(process, &heard, 1, "got hello");
    snprintf(pid, sizeof pid, "%d", cay_process_pid(process));
    AUTO(cay_process) same = attach(sandbox, pid);
    ASSERT_INT(cay_process_pid(same), cay_process_pid(process));
    run(sandbox, "echo also here");
    ASSERT_STR(result.out, "also here\n");
    cay_exec_done(&result);
}

static void list_elsewhere(const char *id)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    cay_sandbox *sandbox = reach(id);
    size_t count = 0;

    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(infos[0].tag, "worker");
    ASSERT(infos[0].is_background && infos[0].is_command && !infos[0].has_ended);
    ASSERT_INT(infos[0].uid, geteuid());
    cay_sandbox_free(sandbox);
}

static void work_in_background(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    cay_process *process = NULL;

    ASSERT_OK(
        start_script(sandbox, "echo started; while read -r line; do echo got $line; done",
                     (struct cay_exec_options){
                         .flags = CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT, .tag = "worker"},
                     &process));
    cay_process_free(process);
    await(1, "sh");
    elsewhere(list_elsewhere, cay_sandbox_id(sandbox));
    ASSERT_INT(count_marked(), 1);
}

TEST(background_commands_are_listed_from_another_process)
{
    as_both(work_in_background);
}

/* The id of a sandbox that a process made which then was killed. */
static void make_and_die(char ret_id[CAY_ID_MAX])
{
    int ends[2], status = 0;

    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        AUTO(cay_config)
        config =
            configure("{\"type\": \"local\", \"work_dir\": \"%s\", \"ttl\": 300}", place);
        cay_sandbox *sandbox = make(config);
        cay_process *process = NULL;
        ASSERT_OK(start_script(
            sandbox, "echo started; while read -r line; do echo got $line; done",
            (struct cay_exec_options){.flags = CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT,
                                      .tag = "worker"},
            &process));
        ASSERT(write(ends[1], cay_sandbox_id(sandbox), CAY_ID_MAX) == CAY_ID_MAX);
        (void)kill(getpid(), SIGKILL);
    }
    (void)close(ends[1]);
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFSIGNALED(status));
    ASSERT_INT(read(ends[0], ret_id, CAY_ID_MAX), CAY_ID_MAX);
    (void)close(ends[0]);
}

static void survive(void)
{
    char id[CAY_ID_MAX];
    size_t count = 0;

    make_and_die(id);
    await(1, "sh");
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    {
        AUTO(cay_sandbox) sandbox = reach(id);
        run(sandbox, "pwd");
        ASSERT_HAS(result.out, place);
    }
    ASSERT_INT(count_marked(), 0);
    ASSERT_INT(count_names(runtime_path(), id), 0);
}

TEST(a_sandbox_survives_the_process_that_made_it)
{
    as_both(survive);
}

static void restore(void)
{
    char id[CAY_ID_MAX];

    make_and_die(id);
    attach_elsewhere(id);
    ASSERT_INT(count_marked(), 0);
}

TEST(background_commands_are_found_again_with_their_output)
{
    as_both(restore);
}

static void lose_init(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    struct cay_sandbox_info now;
    enum cay_state state;
    cay_sandbox *again = NULL;
    AUTO(cay_config) config = configure("{\"type\": \"local\"}");
    char id[CAY_ID_MAX];
    size_t count = 0;

    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    run(sandbox, "setsid sleep 1000 & (setsid sleep 1000 &); exit 0");
    await(2, "sleep");
    ASSERT_OK(cay_sandbox_inspect(sandbox, &now, &err));
    ASSERT(kill(now.init_pid, SIGKILL) == 0);
    await(0, "");
    ASSERT_CODE(cay_sandbox_state(sandbox, &state, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_backend_connect(config, id, &again, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_INT(count_names(runtime_path(), id), 0);
}

TEST(the_death_of_init_is_the_death_of_all_and_nothing_is_left)
{
    as_both(lose_init);
}

static void share_a_directory(void)
{
    AUTO(cay_sandbox) one = make_local();
    AUTO(cay_sandbox) other = make_local();
    char file[PATH_MAX + 8];

    ASSERT(strcmp(cay_sandbox_id(one), cay_sandbox_id(other)) != 0);
    run(one, "echo one > shared; setsid sleep 1000 & exit 0");
    run(other, "cat shared; setsid sleep 1000 & exit 0");
    ASSERT_STR(result.out, "one\n");
    await(2, "sleep");
    ASSERT_OK(cay_sandbox_kill(one, &err));
    ASSERT_INT(count_marked(), 1);
    run(other, "cat shared");
    ASSERT_STR(result.out, "one\n");
    ASSERT_OK(cay_sandbox_kill(other, &err));
    ASSERT_INT(count_marked(), 0);
    snprintf(file, sizeof file, "%s/shared", place);
    ASSERT(access(file, F_OK) == 0);
    expect_no_records();
}

TEST(two_sandboxes_share_a_directory_and_nothing_else)
{
    as_both(share_a_directory);
}
