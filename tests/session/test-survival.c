/* SPDX-License-Identifier: Apache-2.0 */

/* One program starts a session and is killed; another one goes on with it. */
#include <fcntl.h>
#include <signal.h>

#include "sessions.h"

static const char config_text[] =
    "type: native\nenvs: {MOOD: calm, PLACE: \"here and there\"}\n"
    "work_dir: /home/user/work\n";

/* Everything that the next program is to find. */
static void work(cay_sandbox *sandbox)
{
    const char *const argv[] = {"sh", "-c",
                                "while :; do date +%s%N > beat; sleep 0.05; done", NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .flags = CAY_EXEC_BACKGROUND,
                                             .tag = "heart"};
    cay_process *process = NULL;

    (void)told(sandbox, "mkdir deep; echo kept > deep/file; echo all > /tmp/shared; "
                        "ln -s deep/file link; chmod 640 deep/file");
    ASSERT_OK(cay_process_start(sandbox, &options, &process, &err));
    (void)told(sandbox, "until [ -s beat ]; do :; done");
    cay_process_free(process);
}

enum moment { IDLE, IN_A_COMMAND, PAUSED };

static void be_first_program(enum moment moment, int pipe)
{
    cay_store *store = open_store();
    cay_manager *manager = manage(store, "s", config_of(config_text));

    work(sandbox_of(manager));
    if (moment == PAUSED)
        ASSERT_OK(cay_manager_pause(manager, &err));
    ASSERT_INT(write(pipe, "", 1), 1);
    if (moment == IN_A_COMMAND)
        (void)told(sandbox_of(manager), "sleep 50");
    for (;;)
        pause();
}

static void run_first_program(enum moment moment)
{
    int ends[2];
    char up;

    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        be_first_program(moment, ends[1]);
    ASSERT_INT(read(ends[0], &up, 1), 1);
    ASSERT_INT(kill(pid, SIGKILL), 0);
    ASSERT(WIFSIGNALED(end_of(pid)));
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* It knows nothing but the ids. */
static void be_second_program(void *cookie)
{
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);
    cay_sandbox *sandbox = sandbox_of(manager);
    cay_process *process = NULL;
    struct cay_process_info *infos = NULL;
    size_t count = 0, beating = 0;

    (void)cookie;
    ASSERT_STR(cay_sandbox_id(sandbox), get_session(store, "ann", "s")->sandbox_id);
    ASSERT_STR(told(sandbox, "cat link /tmp/shared; stat -c %a deep/file; pwd"),
               "kept\nall\n640\n/home/user/work");
    ASSERT_STR(told(sandbox, "echo \"$MOOD $PLACE\""), "calm here and there");
    (void)told(sandbox, "a=$(cat beat); until [ \"$(cat beat)\" != \"$a\" ]; do :; done");
    ASSERT_OK(cay_process_attach(sandbox, "heart", &process, &err));
    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        beating += strcmp(infos[i].tag, "heart") == 0 && !infos[i].has_ended;
    ASSERT_INT(beating, 1);
    cay_free(infos);
    ASSERT_OK(cay_process_kill(process, &err));
    cay_process_free(process);
    ASSERT_OK(cay_manager_stop(manager, &err));
    ASSERT_INT(count_sandboxes(), 0);
}

static void survive_kill(enum moment moment)
{
    need_own_world();
    run_first_program(moment);
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_INT(end_of(in_child(be_second_program, NULL)), 0);
    assert_empty_world();
}

TEST(a_session_survives_the_program_that_made_it)
{
    survive_kill(IDLE);
}

TEST(a_session_survives_a_program_that_is_killed_in_a_command)
{
    survive_kill(IN_A_COMMAND);
}

TEST(a_paused_session_survives_its_program)
{
    survive_kill(PAUSED);
}
