/* SPDX-License-Identifier: Apache-2.0 */

/* The same on the host itself, which has no root of its own and a /tmp that is
 * everybody's. */
#include <sys/stat.h>

#include "agent.h"

static cay_sandbox *make_local(const char *work)
{
    AUTO_FREE char *text = NULL;
    cay_config *config = NULL;
    cay_sandbox *sandbox = NULL;

    ASSERT(asprintf(&text, "{type: local, ephemeral: true, work_dir: \"%s\"}",
                    scratch_path(work)) > 0);
    ASSERT_OK(cay_config_parse(text, strlen(text), "test", NULL, &config, &err));
    ASSERT_OK(cay_backend_create(config, &sandbox, &err));
    cay_config_free(config);
    return sandbox;
}

/* Its own directory; until the next. */
static const char *home_of(const cay_sandbox *sandbox, const char *below)
{
    static char path[64];

    snprintf(path, sizeof path, "/tmp/cay-%s%s", cay_sandbox_id(sandbox), below);
    return path;
}

TEST(commands_and_code_run)
{
    AUTO(cay_sandbox) sandbox = make_local("work");
    struct cay_code_result code = {0};

    ASSERT_STR(says(sandbox, "pwd"), scratch_path("work"));
    bash_with(sandbox, "printf '\\033[1mx\\n'; exit 3",
              (struct cay_command_options){.flags = CAY_COMMAND_CLEAN});
    ASSERT_STR(answer.out, "x\n");
    ASSERT_INT(answer.exit_code, 3);
    ASSERT_HAS(answer.out_file, home_of(sandbox, "/tmp/cay-results-"));
    expect_inside(sandbox, answer.out_file, "\x1b[1mx\n");
    ASSERT_OK(cay_code_run(sandbox, "print(6*7)", 10, "python", NULL, &code, &err));
    ASSERT_STR(code.command.out, "42\n");
    cay_code_done(&code);
    ASSERT_INT(count_names(home_of(sandbox, "/tmp"), "cay-code-"), 0);
    clear_answer();
}

TEST(what_commands_leave_goes_with_the_sandbox)
{
    AUTO(cay_sandbox) one = make_local("work");
    AUTO(cay_sandbox) other = make_local("work");
    cay_sandbox *const both[] = {one, other};
    const struct cay_command_options options = {
        .flags = CAY_COMMAND_BACKGROUND, .user = geteuid() ? NULL : "nobody", .cwd = "/"};
    struct stat st;

    for (int i = 0; i < 2; i++) {
        clear_answer();
        bash_with(both[i], "echo kept", options);
        for (int tries = 0; stat(answer.out_file, &st) != 0 && tries < 1000; tries++)
            rest_ms(10); /* it is the command itself that makes it */
        ASSERT_INT(stat(answer.out_file, &st), 0);
        ASSERT(st.st_uid != 0);
        ASSERT_INT(count_names(home_of(both[i], "/tmp"), "cay-results-"), 1);
    }
    ASSERT_OK(cay_sandbox_remove(one, &err));
    ASSERT(lstat(home_of(one, ""), &st) != 0);
    ASSERT_INT(stat(answer.out_file, &st), 0); /* the other's */
    ASSERT_OK(cay_sandbox_remove(other, &err));
    clear_answer();
}

TEST(background_commands_belong_to_their_sandbox)
{
    AUTO(cay_sandbox) one = make_local("one");
    AUTO(cay_sandbox) other = make_local("other");

    bash_with(one, "echo up; sleep 98765",
              (struct cay_command_options){.flags = CAY_COMMAND_BACKGROUND});
    int pid = answer.background_pid;
    clear_answer();
    ASSERT_CODE(cay_background_poll(other, pid, NULL, &answer, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_background_kill(other, pid, &answer, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_background_poll(one, pid, NULL, &answer, &err));
    ASSERT_INT(answer.status, CAY_STATUS_RUNNING);
    clear_answer();
    ASSERT_OK(cay_background_kill(one, pid, &answer, &err));
    clear_answer();
    ASSERT_OK(cay_background_poll(one, pid, NULL, &answer, &err));
    ASSERT_INT(answer.status, CAY_STATUS_STOPPED);
    ASSERT(kill(pid, 0) != 0);
    clear_answer();
}

TEST(files_are_those_of_the_machine)
{
    AUTO(cay_sandbox) sandbox = make_local("work");
    struct cay_file_info info = {0};
    struct cay_strings paths = {0};
    struct cay_transfer transfer;
    enum cay_edit_kind kind;

    put_inside(sandbox, "dir/a b.txt", "old text");
    ASSERT_STR(get_file("work/dir/a b.txt"), "old text");
    ASSERT_OK(
        cay_file_edit(sandbox, NULL, "dir/a b.txt", "old", 3, "new", 3, &kind, &err));
    ASSERT_STR(get_file("work/dir/a b.txt"), "new text");
    ASSERT_OK(cay_file_glob(sandbox, NULL, "**/*.txt", true, &paths, &err));
    ASSERT_INT(paths.count, 1);
    ASSERT_STR(paths.items[0], "dir/a b.txt");
    cay_strings_done(&paths);
    ASSERT_OK(cay_file_inspect(sandbox, NULL, "dir/a b.txt", &info, &err));
    ASSERT(info.exists && info.readable && info.writable);
    cay_file_info_done(&info);
    ASSERT_OK(cay_directory_upload(sandbox, NULL, scratch_path("work/dir"), "copy",
                                   &transfer, &err));
    ASSERT_STR(get_file("work/copy/a b.txt"), "new text");
    ASSERT_OK(cay_file_delete(sandbox, NULL, "copy", &err));
}
