/* SPDX-License-Identifier: Apache-2.0 */

/* Shell commands that are waited for. */
#include "agent.h"

TEST(a_command_that_succeeds_has_its_streams_apart)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    bash(sandbox, "echo out; echo error >&2");
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    ASSERT_INT(answer.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(answer.exit_code, 0);
    ASSERT_STR(answer.out, "out\n");
    ASSERT_STR(answer.error, "error\n");
    ASSERT_STR(answer.message, "");
    ASSERT(!answer.truncated && !answer.output_dir && !answer.out_file);
    ASSERT_INT(answer.original_out_len, 4);
    ASSERT_INT(answer.background_pid, 0);
    clear_answer();
}

TEST(a_command_that_fails_says_its_exit_code)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    bash(sandbox, "echo partly; exit 3");
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.exit_code, 3);
    ASSERT_STR(answer.message, "Command failed with exit code 3");
    ASSERT_STR(answer.out, "partly\n");
    bash(sandbox, "no-such-command-at-all");
    ASSERT_INT(answer.exit_code, 127);
    clear_answer();
}

TEST(death_by_a_signal_is_a_negative_exit_code)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    bash(sandbox, "kill -9 $$");
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.cause, CAY_CAUSE_SIGNALLED);
    ASSERT_INT(answer.exit_code, -9);
    ASSERT_STR(answer.message, "Command failed with exit code -9");
    bash(sandbox, "kill -15 $$");
    ASSERT_INT(answer.exit_code, -15);
    bash(sandbox, "exit 137");
    ASSERT_INT(answer.exit_code, 137);
    clear_answer();
}

TEST(it_is_bash_that_runs_the_command_and_nothing_is_made_of_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    ASSERT_STR(says(sandbox, "x=(1 2 3); echo ${#x[@]} $BASH_VERSION | cut -c1-2"), "3 ");
    ASSERT_STR(says(sandbox, "cat <<'END'\n$HOME `id` 'x'\nEND"), "$HOME `id` 'x'");
    ASSERT_STR(says(sandbox, "echo $((1<<3))"), "8");
    bash(sandbox, "-rf /");
    ASSERT_INT(answer.exit_code, 127);
    ASSERT_HAS(answer.error, "-rf");
    bash(sandbox, "");
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    clear_answer();
}

/* Patterns are for what the caller wrote, however it is passed to a shell. */
TEST(a_command_waits_for_approval_in_each_form)
{
    static const char *const patterns[] = {"git push*", NULL};
    static const unsigned flags[] = {0, CAY_COMMAND_BACKGROUND};
    const struct cay_sandbox_options asks = {.size = sizeof asks,
                                             .ephemeral = true,
                                             .level = wanted_level(),
                                             .approve = patterns,
                                             .approve_timeout_ms = 1};
    enum { LONG = 200 << 10 };
    AUTO_FREE char *longer = malloc(LONG + 1);

    ASSERT(setenv("CAY_HOME", scratch_path("home"), 1) == 0); /* with the queue */
    AUTO(cay_sandbox) sandbox = make_sandbox(&asks);
    memset(longer, ' ', LONG);
    longer[LONG] = '\0';
    memcpy(longer, "git push", strlen("git push"));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const struct cay_command_options options = {.size = sizeof options,
                                                    .flags = flags[i]};
        ASSERT_CODE(cay_bash_run(sandbox, "git push", &options, &answer, &err),
                    CAY_E_NOT_APPROVED);
        ASSERT_HAS(err.message, "no reply");
        ASSERT_CODE(cay_bash_run(sandbox, longer, &options, &answer, &err),
                    CAY_E_NOT_APPROVED);
        ASSERT_HAS(err.message, "too long");
    }
    memcpy(longer, "echo git", strlen("echo git"));
    ASSERT_STR(says(sandbox, longer), "git");
    clear_answer();
}

TEST(where_there_is_no_bash_sh_runs_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const char *const path[] = {"PATH=/home/user/bin", NULL};
    const struct cay_command_options options = {.env = path};

    ASSERT_STR(says(sandbox, "mkdir bin && ln -s /bin/sh bin/sh"), "");
    bash_with(sandbox, "echo $0", options);
    ASSERT_STR(answer.out, "sh\n");
    ASSERT_STR(says(sandbox, "rm bin/sh"), "");
    bash_with(sandbox, "echo never", options);
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.exit_code, -1);
    ASSERT_STR(answer.message, "Execution failed: the sandbox has neither bash nor sh");
    clear_answer();
}

TEST(directory_user_and_environment_are_those_asked_for)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const char *const env[] = {"GREETING=it's \"me\"", NULL};

    ASSERT_STR(says(sandbox, "mkdir -p \"a b/'c\" && pwd && id -un"), "/home/user\nuser");
    bash_with(sandbox, "pwd; echo \"$GREETING\"; id -un",
              (struct cay_command_options){.cwd = "a b/'c", .env = env, .user = "root"});
    ASSERT_INT(answer.status, CAY_STATUS_ERROR); /* root starts at home */
    bash_with(sandbox, "pwd; echo \"$GREETING\"; id -un",
              (struct cay_command_options){
                  .cwd = "/home/user/a b/'c", .env = env, .user = "root"});
    ASSERT_STR(answer.out, "/home/user/a b/'c\nit's \"me\"\nroot\n");
    clear_answer();
}

TEST(what_keeps_a_command_from_starting_is_a_result)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    bash_with(sandbox, "true", (struct cay_command_options){.cwd = "/no/such"});
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.exit_code, -1);
    ASSERT_STR(answer.message, "Execution failed: /no/such: No such file or directory");
    ASSERT_STR(answer.out, "");
    bash_with(sandbox, "true", (struct cay_command_options){.user = "nobody-knows"});
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_HAS(answer.message, "Execution failed: nobody-knows: ");
    clear_answer();
}

TEST(a_request_that_makes_no_sense_is_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct cay_command_options options = {.size = sizeof options, .flags = 1 << 9};
    struct cay_command_result untouched = {.exit_code = 77};

    ASSERT_CODE(cay_bash_run(sandbox, NULL, NULL, &untouched, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_bash_run(sandbox, "true", &options, &untouched, &err), CAY_E_INVALID);
    options = (struct cay_command_options){.size = sizeof options, .tag = "web"};
    ASSERT_CODE(cay_bash_run(sandbox, "true", &options, &untouched, &err), CAY_E_INVALID);
    ASSERT_INT(untouched.exit_code, 77);
}

TEST(a_sandbox_that_is_gone_is_an_error_and_no_result)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct cay_command_result untouched = {.exit_code = 77};

    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    memset(&err, 0, sizeof err);
    int code = cay_bash_run(sandbox, "true", NULL, &untouched, &err);
    ASSERT(code == CAY_E_NOT_FOUND || code == CAY_E_UNAVAILABLE);
    ASSERT_INT(untouched.exit_code, 77);
}

TEST(a_timeout_kills_the_tree_and_keeps_what_was_written)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char message[64];
    uint64_t limit = bash_late(
        sandbox,
        "trap '' TERM; setsid sleep 98765 & echo before; sleep 98765; echo after",
        (struct cay_command_options){.timeout_ms = 300});

    snprintf(message, sizeof message, "Command timed out after %ums", (unsigned)limit);
    ASSERT_INT(answer.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_STR(answer.message, message);
    ASSERT_STR(answer.out, "before\n");
    ASSERT_INT(answer.exit_code, -9);
    ASSERT(answer.duration_ms >= limit);
    bash(sandbox, "ps ax | grep -c '[9]8765'");
    ASSERT_STR(answer.out, "0\n");
    clear_answer();
}

TEST(a_timeout_below_a_second_is_one)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    uint64_t begin = clock_ms();

    bash_with(sandbox, "sleep 100", (struct cay_command_options){.timeout_ms = 1});
    ASSERT_INT(answer.status, CAY_STATUS_TIMEOUT);
    ASSERT_STR(answer.message, "Command timed out after 1ms");
    ASSERT(clock_ms() - begin < 60000);
    clear_answer();
}

TEST(a_timeout_at_once_runs_nothing)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    bash_with(sandbox, "touch ran",
              (struct cay_command_options){.timeout_ms = CAY_TIMEOUT_AT_ONCE});
    ASSERT_INT(answer.status, CAY_STATUS_TIMEOUT);
    ASSERT_INT(answer.exit_code, -1);
    ASSERT_STR(answer.message, "Command timed out after 0ms");
    ASSERT_INT(cay_file_exists(sandbox, NULL, "ran", &err), 0);
    bash_with(sandbox, "echo on",
              (struct cay_command_options){.timeout_ms = CAY_TIMEOUT_NONE});
    ASSERT_STR(answer.out, "on\n");
    clear_answer();
}

TEST(a_command_returns_while_its_descendants_run)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    bash(sandbox, "sleep 98765 & echo $!");
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    bash(sandbox, "ps ax | grep -c '[9]8765'");
    ASSERT_STR(answer.out, "1\n");
    clear_answer();
}

TEST(a_command_over_the_memory_limit_reports_the_limit)
{
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .memory_bytes = 64 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);

    if (!(cay_sandbox_layers(sandbox) & CAY_LAYER_MEMORY))
        SKIP("nothing limits memory here");
    bash(sandbox, "exec python3 -c 'x = bytearray(300 << 20)'");
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.cause, CAY_CAUSE_MEMORY);
    ASSERT_INT(answer.exit_code, -9);
    ASSERT_STR(answer.message, "Command killed: memory limit of 64 MiB reached");
    clear_answer();
}

BOTH(a_command_longer_than_an_argument_can_be_is_run)
{
    enum { LEN = 300000 };
    AUTO_FREE char *command = malloc(LEN + 32);

    memcpy(command, "echo $(( 1", 10);
    for (size_t i = 10; i < LEN; i += 2)
        memcpy(command + i, "+1", 2);
    memcpy(command + LEN, " ))", 4);
    ASSERT_STR(says(sandbox, command), "149996");
    ASSERT_STR(says(sandbox, "ls -A /tmp"), "");
    clear_answer();
}

BOTH(input_is_at_its_end_from_the_beginning)
{
    ASSERT_STR(says(sandbox, "cat; echo over"), "over");
    clear_answer();
}
