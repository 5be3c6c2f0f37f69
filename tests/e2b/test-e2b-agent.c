/* SPDX-License-Identifier: Apache-2.0 */

/* The agent API on a remote sandbox. */
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cay/agent.h"
#include "peer.h"

static void auto_cay_sandbox(cay_sandbox **sandbox)
{
    cay_sandbox_free(*sandbox);
}

static cay_sandbox *make(void)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_backend_create(configure(NULL), &sandbox, &err));
    return sandbox;
}

static void auto_answer(struct cay_command_result *answer)
{
    cay_command_done(answer);
}
#define ANSWER __attribute__((cleanup(auto_answer))) struct cay_command_result

WITH_PEER(shell_commands_are_run)
{
    AUTO(cay_sandbox) sandbox = make();
    const struct cay_command_options options = {.size = sizeof options,
                                                .timeout_ms = 500};
    ANSWER answer = {0};
    ANSWER late = {0};

    ASSERT_OK(cay_bash_run(sandbox, "echo \"it's $((6 * 7))\"; echo no >&2; exit 3", NULL,
                           &answer, &err));
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.exit_code, 3);
    ASSERT_STR(answer.out, "it's 42\n");
    ASSERT_STR(answer.error, "no\n");
    ASSERT_OK(cay_bash_run(sandbox, "echo before; sleep 86400", &options, &late, &err));
    ASSERT_INT(late.status, CAY_STATUS_TIMEOUT);
}

WITH_PEER(background_commands_keep_running)
{
    AUTO(cay_sandbox) sandbox = make();
    const struct cay_command_options options = {.size = sizeof options,
                                                .flags = CAY_COMMAND_BACKGROUND};
    ANSWER started = {0};

    ASSERT_OK(cay_bash_run(sandbox,
                           "echo one; while ! test -e go; do sleep 0.05; done; "
                           "echo two; exit 5",
                           &options, &started, &err));
    ASSERT(started.background_pid > 0);
    /* A second handle knows only the pid. */
    AUTO(cay_sandbox) other = NULL;
    ASSERT_OK(
        cay_backend_connect(configure(NULL), cay_sandbox_id(sandbox), &other, &err));
    ASSERT_OK(cay_file_write(other, NULL, "go", "", 0, 0, &err));
    for (;;) {
        ANSWER now = {0};
        ASSERT_OK(cay_background_poll(other, started.background_pid, NULL, &now, &err));
        if (now.status == CAY_STATUS_RUNNING)
            continue;
        ASSERT_INT(now.exit_code, 5);
        ASSERT_STR(now.out, "one\ntwo\n");
        break;
    }
}

WITH_PEER(background_commands_can_be_killed)
{
    AUTO(cay_sandbox) sandbox = make();
    const struct cay_command_options options = {.size = sizeof options,
                                                .flags = CAY_COMMAND_BACKGROUND};
    ANSWER started = {0};
    ANSWER killed = {0};

    ASSERT_OK(cay_bash_run(sandbox, "setsid sleep 86400 & sleep 86400", &options,
                           &started, &err));
    ASSERT_OK(cay_background_kill(sandbox, started.background_pid, &killed, &err));
    ASSERT_INT(killed.status, CAY_STATUS_SUCCESS);
    await_silence();
}

WITH_PEER(code_is_executed)
{
    AUTO(cay_sandbox) sandbox = make();
    static const char code[] = "print('out')\nraise ValueError('odd')\n";
    struct cay_code_result result_ = {0};

    ASSERT_OK(
        cay_code_run(sandbox, code, sizeof code - 1, "python", NULL, &result_, &err));
    ASSERT_STR(result_.command.out, "out\n");
    ASSERT_INT(result_.status, CAY_STATUS_ERROR);
    ASSERT_HAS(result_.error_value, "odd");
    cay_code_done(&result_);
}

WITH_PEER(files_are_read_written_edited_and_found)
{
    AUTO(cay_sandbox) sandbox = make();
    struct cay_content content = {0};
    struct cay_strings paths = {0};
    struct cay_file_info info = {0};
    enum cay_edit_kind kind;

    ASSERT_OK(cay_file_write(sandbox, NULL, "d/a 'b'\n.txt", "old text", 8, 0, &err));
    ASSERT_OK(
        cay_file_edit(sandbox, NULL, "d/a 'b'\n.txt", "old", 3, "new", 3, &kind, &err));
    ASSERT_OK(cay_file_read(sandbox, NULL, "d/a 'b'\n.txt", &content, &err));
    ASSERT_STR(content.data, "new text");
    cay_free(content.data);
    ASSERT_OK(cay_file_glob(sandbox, NULL, "**/*.txt", true, &paths, &err));
    ASSERT_INT(paths.count, 1);
    ASSERT_STR(paths.items[0], "d/a 'b'\n.txt");
    cay_strings_done(&paths);
    ASSERT_OK(cay_file_inspect(sandbox, NULL, "d/a 'b'\n.txt", &info, &err));
    ASSERT(info.exists && info.readable && info.writable);
    ASSERT_INT(info.stat.bytes, 8);
    cay_file_info_done(&info);
    ASSERT_OK(cay_file_delete(sandbox, NULL, "d", &err));
    ASSERT_INT(cay_file_exists(sandbox, NULL, "d", &err), 0);
}

WITH_PEER(directories_can_be_uploaded_and_downloaded)
{
    AUTO(cay_sandbox) sandbox = make();
    struct cay_transfer transfer = {0};

    put_file("up/one", "1");
    put_file("up/deep/two words", "2");
    ASSERT_INT(chmod(scratch_path("up/one"), 0750), 0);
    ASSERT_OK(cay_directory_upload(sandbox, NULL, scratch_path("up"), "there", &transfer,
                                   &err));
    ASSERT_INT(transfer.files, 2);
    ASSERT_INT(transfer.bytes, 2);
    ANSWER answer = {0};
    ASSERT_OK(cay_bash_run(sandbox, "stat -c %a there/one; ls -A /tmp | grep tar", NULL,
                           &answer, &err));
    ASSERT_STR(answer.out, "750\n");
    ASSERT_OK(cay_directory_download(sandbox, NULL, "there", scratch_path("down"),
                                     &transfer, &err));
    ASSERT_STR(get_file("down/one"), "1");
    ASSERT_STR(get_file("down/deep/two words"), "2");
}
