/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are not waited for, and who asks about them. */
#include <sys/wait.h>

#include "agent.h"

static int start_with(cay_sandbox *sandbox, const char *command,
                      struct cay_command_options options)
{
    options.flags |= CAY_COMMAND_BACKGROUND;
    bash_with(sandbox, command, options);
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    ASSERT_INT(answer.exit_code, 0);
    ASSERT(answer.background_pid > 1);
    return answer.background_pid;
}

static int start(cay_sandbox *sandbox, const char *command)
{
    return start_with(sandbox, command, (struct cay_command_options){0});
}

static void status_with(cay_sandbox *sandbox, int pid, struct cay_command_options options)
{
    options.size = sizeof options;
    clear_answer();
    ASSERT_OK(cay_background_poll(sandbox, pid, &options, &answer, &err));
    ASSERT_INT(answer.background_pid, pid);
}

static void status(cay_sandbox *sandbox, int pid)
{
    status_with(sandbox, pid, (struct cay_command_options){0});
}

/* Until it has ended. */
static void await_end(cay_sandbox *sandbox, int pid)
{
    uint64_t begin = clock_ms();

    for (status(sandbox, pid); answer.status == CAY_STATUS_RUNNING; rest_ms(2)) {
        ASSERT(clock_ms() - begin < PATIENCE_MS);
        status(sandbox, pid);
    }
}

/* Until it has written that. */
static void await_text(cay_sandbox *sandbox, int pid, const char *text)
{
    uint64_t begin = clock_ms();

    for (status(sandbox, pid); !strstr(answer.out, text); rest_ms(2)) {
        ASSERT(clock_ms() - begin < PATIENCE_MS);
        status(sandbox, pid);
    }
}

static void stop(cay_sandbox *sandbox, int pid)
{
    char text[128];

    clear_answer();
    ASSERT_OK(cay_background_kill(sandbox, pid, &answer, &err));
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    ASSERT_INT(answer.exit_code, 0);
    snprintf(text, sizeof text, "Background task (pid=%d) killed successfully", pid);
    ASSERT_STR(answer.out, text);
}

BOTH(a_start_names_the_number_and_the_directory)
{
    char text[512];

    int pid = start(sandbox, "sleep 98765");
    snprintf(text, sizeof text,
             "Background task started (pid: %d)\nOutput will be saved to %s/\n", pid,
             answer.output_dir);
    ASSERT_STR(answer.out, text);
    ASSERT_HAS(answer.out_file, "/stdout.txt");
    ASSERT_HAS(answer.error_file, "/stderr.txt");
    stop(sandbox, pid);
    clear_answer();
}

BOTH(what_runs_is_running_and_shows_what_it_has_written_so_far)
{
    int pid = start(sandbox, "echo one; echo bad >&2; while ! [ -e go ]; do sleep 0.01; "
                             "done; echo two; exit 5");

    await_text(sandbox, pid, "one\n");
    ASSERT_INT(answer.status, CAY_STATUS_RUNNING);
    ASSERT_INT(answer.exit_code, -1);
    ASSERT_STR(answer.out, "one\n");
    ASSERT_STR(answer.message, "");
    put_inside(sandbox, "go", "");
    await_end(sandbox, pid);
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.exit_code, 5);
    ASSERT_STR(answer.message, "Command failed with exit code 5");
    ASSERT_STR(answer.out, "one\ntwo\n");
    ASSERT_STR(answer.error, "bad\n");
    clear_answer();
}

BOTH(the_end_can_be_asked_for_again_and_again_and_its_duration_stands_still)
{
    int pid = start(sandbox, "echo done");

    await_end(sandbox, pid);
    uint64_t duration = answer.duration_ms;
    for (int i = 0; i < 3; i++) {
        rest_ms(20);
        status(sandbox, pid);
        ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
        ASSERT_INT(answer.exit_code, 0);
        ASSERT_STR(answer.out, "done\n");
        ASSERT_INT(answer.duration_ms, duration);
    }
    clear_answer();
}

BOTH(an_unknown_number_is_not_found)
{
    int pid = start(sandbox, "sleep 98765");

    clear_answer();
    ASSERT_CODE(cay_background_poll(sandbox, 99999, NULL, &answer, &err),
                CAY_E_NOT_FOUND);
    ASSERT_STR(err.message, "Background task not found: pid=99999");
    ASSERT_CODE(cay_background_kill(sandbox, 99999, &answer, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.message, "Background task not found: pid=99999");
    ASSERT_CODE(cay_background_poll(sandbox, 1, NULL, &answer, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_background_poll(sandbox, -1, NULL, &answer, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_background_kill(sandbox, 0, &answer, &err), CAY_E_NOT_FOUND);
    stop(sandbox, pid);
    clear_answer();
}

BOTH(a_kill_takes_the_whole_tree_and_the_output_stays)
{
    int pid = start(sandbox, "echo up; setsid sleep 98765 & trap '' TERM; sleep 98765");

    await_text(sandbox, pid, "up\n");
    stop(sandbox, pid);
    ASSERT_STR(says(sandbox, "ps ax | grep -c '[9]8765' || true"), "0");
    status(sandbox, pid);
    ASSERT_INT(answer.status, CAY_STATUS_STOPPED);
    ASSERT_INT(answer.exit_code, -9);
    ASSERT_STR(answer.out, "up\n");
    ASSERT_HAS(answer.message, "was killed");
    stop(sandbox, pid); /* again is fine */
    clear_answer();
}

BOTH(killing_what_has_ended_is_a_success_and_changes_nothing)
{
    int pid = start(sandbox, "exit 4");

    await_end(sandbox, pid);
    stop(sandbox, pid);
    status(sandbox, pid);
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.exit_code, 4);
    clear_answer();
}

BOTH(an_exit_code_is_no_signal)
{
    int pid = start(sandbox, "exit 137");

    await_end(sandbox, pid);
    ASSERT_INT(answer.exit_code, 137);
    clear_answer();
    pid = start(sandbox, "kill -9 $$");
    await_end(sandbox, pid);
    ASSERT_INT(answer.exit_code, -9);
    clear_answer();
}

BOTH(a_kill_takes_what_a_command_that_ended_has_left_running)
{
    int pid = start(sandbox, "setsid sleep 98765 & sleep 98765 & echo left");

    await_end(sandbox, pid);
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    status(sandbox, pid);
    ASSERT_STR(says(sandbox, "ps ax | grep -c '[9]8765'"), "2");
    stop(sandbox, pid);
    ASSERT_STR(says(sandbox, "ps ax | grep -c '[9]8765' || true"), "0");
    clear_answer();
}

TEST(the_number_is_that_of_the_command_itself)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char text[32];
    int pid = start(sandbox, "echo $$; kill -15 $$");

    await_end(sandbox, pid);
    snprintf(text, sizeof text, "%d\n", pid);
    ASSERT_STR(answer.out, text);
    ASSERT_INT(answer.exit_code, -15);
    ASSERT_INT(answer.cause, CAY_CAUSE_SIGNALLED);
    clear_answer();
}

/* Looked up without attaching: one who is attached when it ends learns how it ended. */
static bool is_listed_as_running(cay_sandbox *sandbox, int pid)
{
    struct cay_process_info *infos;
    size_t count;
    bool runs = false;

    ASSERT_OK(cay_process_list(sandbox, &infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        runs = runs || (infos[i].pid == pid && !infos[i].has_ended);
    cay_free(infos);
    return runs;
}

BOTH(there_is_no_time_limit_unless_one_is_given)
{
    int late = start_with(sandbox, "echo up; sleep 98765",
                          (struct cay_command_options){.timeout_ms = 200});

    for (uint64_t begin = clock_ms(); is_listed_as_running(sandbox, late); rest_ms(2))
        ASSERT(clock_ms() - begin < PATIENCE_MS);
    await_end(sandbox, late);
    ASSERT_INT(answer.status, CAY_STATUS_TIMEOUT);
    ASSERT_STR(answer.message, "Command timed out after 200ms");
    ASSERT(answer.duration_ms >= 200);
    ASSERT_STR(says(sandbox, "ps ax | grep -c '[9]8765' || true"), "0");
    bash_with(sandbox, "touch ran",
              (struct cay_command_options){.flags = CAY_COMMAND_BACKGROUND,
                                           .timeout_ms = CAY_TIMEOUT_AT_ONCE});
    ASSERT_INT(answer.status, CAY_STATUS_TIMEOUT);
    ASSERT_INT(answer.background_pid, 0);
    clear_answer();
}

BOTH(options_hold_in_the_background_too)
{
    static const char *const env[] = {"WORD=it's", NULL};

    ASSERT_STR(says(sandbox, "mkdir 'a b'"), "");
    int pid = start_with(sandbox, "pwd; echo \"$WORD\"; id -un",
                         (struct cay_command_options){
                             .cwd = "/home/user/a b", .env = env, .user = "root"});
    await_end(sandbox, pid);
    ASSERT_STR(answer.out, "/home/user/a b\nit's\nroot\n");
    bash_with(
        sandbox, "true",
        (struct cay_command_options){.flags = CAY_COMMAND_BACKGROUND, .cwd = "/no/such"});
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.background_pid, 0);
    ASSERT_HAS(answer.message, "Execution failed: /no/such: ");
    if (!cay_sandbox_backend(sandbox)->open_files)
        return clear_answer();
    bash_with(
        sandbox, "true",
        (struct cay_command_options){.flags = CAY_COMMAND_BACKGROUND, .user = "who"});
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_HAS(answer.message, "Execution failed: who: ");
    clear_answer();
}

BOTH(one_of_another_user_is_found_by_its_number_alone)
{
    int pid = start_with(sandbox, "echo mine; sleep 98765",
                         (struct cay_command_options){.user = "root"});
    int own = start(sandbox, "echo own; sleep 98765");

    await_text(sandbox, pid, "mine\n");
    await_text(sandbox, own, "own\n");
    stop(sandbox, pid);
    stop(sandbox, own);
    clear_answer();
}

TEST(a_tag_names_it_for_others_as_well)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_command_options options = {.tag = "web"};
    int pid = start_with(sandbox, "sleep 98765", options);
    cay_process *process = NULL;

    ASSERT_OK(cay_process_attach(sandbox, "web", &process, &err));
    ASSERT_INT(cay_process_pid(process), pid);
    cay_process_free(process);
    stop(sandbox, pid);
    int next = start_with(sandbox, "sleep 98765", options);
    status(sandbox, pid);
    ASSERT_INT(answer.status, CAY_STATUS_STOPPED);
    stop(sandbox, next);
    clear_answer();
}

BOTH(a_long_command_runs_in_the_background_too)
{
    enum { LEN = 200000 };
    AUTO_FREE char *command = malloc(LEN + 32);

    memset(command, ' ', LEN);
    memcpy(command, "echo long", 9);
    memcpy(command + LEN, "; exit 6", 9);
    int pid = start(sandbox, command);
    await_end(sandbox, pid);
    ASSERT_STR(answer.out, "long\n");
    ASSERT_INT(answer.exit_code, 6);
    clear_answer();
}

BOTH(output_can_be_cleaned_on_every_look)
{
    const struct cay_command_options clean = {.flags = CAY_COMMAND_CLEAN};
    int pid = start(sandbox, "printf '\\033[1mup\\n'; seq 100000 999999 | head -c 50000");

    await_end(sandbox, pid);
    ASSERT_INT(answer.out_len, 50007);
    for (int i = 0; i < 2; i++) {
        status_with(sandbox, pid, clean);
        ASSERT(strncmp(answer.out, "up\n100000\n", 10) == 0);
        ASSERT_HAS(answer.out, "characters omitted");
        ASSERT(answer.truncated);
    }
    clear_answer();
}

TEST(of_much_output_the_tail_is_shown_and_all_of_it_kept)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    int pid = start(sandbox, "head -c 12000000 /dev/zero | tr '\\0' x; echo last");

    await_end(sandbox, pid);
    ASSERT_INT(answer.out_len, 10 << 20);
    ASSERT_INT(answer.original_out_len, 12000005);
    ASSERT(answer.truncated);
    ASSERT_STR(answer.out + answer.out_len - 6, "xlast\n");
    clear_answer();
}

TEST(how_many_ended_since_does_not_matter_once_it_was_asked)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    int first = start(sandbox, "echo first; exit 9"), last = 0;

    await_end(sandbox, first);
    for (int i = 0; i < 70; i++)
        last = start(sandbox, "true");
    await_end(sandbox, last);
    status(sandbox, first);
    ASSERT_INT(answer.exit_code, 9);
    ASSERT_STR(answer.out, "first\n");
    clear_answer();
}

/* In another process, which starts one and ends. */
static void start_elsewhere(const char *id, int report)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_sandbox_open(id, &sandbox, &err));
    int pid = start(sandbox, "echo hello; sleep 98765");
    ASSERT_INT(write(report, &pid, sizeof pid), sizeof pid);
    clear_answer();
    cay_sandbox_free(sandbox);
}

TEST(a_background_command_outlives_the_process_that_started_it)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    int ends[2], pid = 0, status_of_child;

    ASSERT_INT(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        start_elsewhere(cay_sandbox_id(sandbox), ends[1]);
        _exit(0);
    }
    ASSERT_INT(waitpid(child, &status_of_child, 0), child);
    ASSERT_INT(status_of_child, 0);
    ASSERT_INT(read(ends[0], &pid, sizeof pid), sizeof pid);
    close(ends[0]);
    close(ends[1]);
    await_text(sandbox, pid, "hello\n");
    ASSERT_INT(answer.status, CAY_STATUS_RUNNING);
    stop(sandbox, pid);
    clear_answer();
}

static void put_record(cay_sandbox *sandbox, const char *path, const char *tag)
{
    char record[256];

    snprintf(record, sizeof record, "01234567 %s 1 0 %s\n", tag, cay_sandbox_id(sandbox));
    put_inside(sandbox, path, record);
}

/* The kernel reuses PIDs.  A record with the PID of another process, even with its tag,
 * is the record of an ended command. */
TEST(a_process_with_the_reused_pid_of_an_ended_command_is_not_killed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char path[256];
    int old = start(sandbox, "sleep 98765");

    snprintf(path, sizeof path, "%s/../", answer.output_dir);
    stop(sandbox, old);
    int stranger =
        (int)strtol(says(sandbox, "sleep 98765 >/dev/null & echo $!"), NULL, 10);
    int other =
        start_with(sandbox, "sleep 98765", (struct cay_command_options){.tag = "t"});
    snprintf(path + strlen(path), sizeof path - strlen(path), "pid-%d", stranger);
    put_record(sandbox, path, "gone");
    stop(sandbox, stranger);
    put_record(sandbox, path, "t");
    stop(sandbox, stranger);
    ASSERT_STR(says(sandbox, "ps ax | grep -c '[9]8765'"), "2");
    stop(sandbox, other);
    clear_answer();
}

TEST(records_that_somebody_has_tampered_with_lead_nowhere)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const char *const records[] = {
        "",
        "\n",
        "../../etc tag 1 2\n",
        "0123456 tag 1 2\n",
        "01234567\n",
        "01234567 tag\n",
        "01234567 tag x y\n",
        "01234567 tag 1 2",
        "01234567 tag 1 2 sb-another0sandbox\n",
    };
    int pid = start(sandbox, "sleep 98765");
    char path[256];

    snprintf(path, sizeof path, "%s/../pid-%d", answer.output_dir, pid);
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        put_inside(sandbox, path, records[i]);
        clear_answer();
        ASSERT_CODE(cay_background_poll(sandbox, pid, NULL, &answer, &err),
                    CAY_E_NOT_FOUND);
    }
    put_record(sandbox, path, "no-such-tag");
    status(sandbox, pid);
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_HAS(answer.message, "its exit code is unknown");
    ASSERT_STR(answer.out, "");
    clear_answer();
}

/* Section 6 of issue 15. */
BOTH(the_command_of_a_task_is_in_command_txt)
{
    char path[512];

    bash_with(sandbox, "echo 'a b'",
              (struct cay_command_options){.flags = CAY_COMMAND_BACKGROUND});
    snprintf(path, sizeof path, "%s/command.txt", answer.output_dir);
    expect_inside(sandbox, path, "echo 'a b'");
    clear_answer();
}
