/* SPDX-License-Identifier: Apache-2.0 */

/* Output that is long, and output that is to be read. */
#include "agent.h"

enum { MIB = 1 << 20 };

static const struct cay_command_options clean = {.flags = CAY_COMMAND_CLEAN};

/* The size of a file inside, and that nobody else may look at it. */
static void expect_kept(cay_sandbox *sandbox, const char *file, uint64_t bytes)
{
    struct cay_file_info info = {0};
    char command[512];

    ASSERT(file);
    ASSERT_OK(cay_file_inspect(sandbox, NULL, file, &info, &err));
    ASSERT(info.exists);
    ASSERT_INT(info.stat.bytes, bytes);
    cay_file_info_done(&info);
    run_as(sandbox, "1234", "ls -d /tmp/cay-results-* && ! ls /tmp/cay-results-*/",
           PATIENCE_MS);
    ASSERT_INT(result.exit_code, 0);
    snprintf(command, sizeof command, "stat -c %%a $(dirname $(dirname '%s'))", file);
    run_as(sandbox, "root", command, PATIENCE_MS);
    ASSERT_STR(result.out, "700\n");
    cay_exec_done(&result);
}

TEST(of_output_over_the_limit_the_tail_is_here_and_all_of_it_inside)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char command[512];

    bash(sandbox, "echo first; head -c 12000000 /dev/zero | tr '\\0' x; echo; echo last; "
                  "echo small >&2");
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    ASSERT(answer.truncated);
    ASSERT_INT(answer.out_len, 10 * MIB);
    ASSERT_INT(answer.original_out_len, 12000012);
    ASSERT_STR(answer.out + answer.out_len - 7, "x\nlast\n");
    ASSERT_STR(answer.error, "small\n");
    ASSERT_HAS(answer.output_dir, "/tmp/cay-results-");
    expect_kept(sandbox, answer.out_file, 12000012);
    expect_inside(sandbox, answer.error_file, "small\n");
    snprintf(
        command, sizeof command,
        "head -1 %s; tr -d x <%s | sha256sum; printf 'first\\n\\nlast\\n' | sha256sum",
        answer.out_file, answer.out_file);
    const char *said = says(sandbox, command);
    ASSERT_MEM(said, 6, "first\n", 6);
    ASSERT_MEM(said + 6, 64, strchr(said + 6, '\n') + 1, 64);
    clear_answer();
}

TEST(both_streams_can_be_over_the_limit_at_once)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    bash(sandbox, "yes out | head -c 11000000 & yes error | head -c 11500000 >&2; wait");
    ASSERT(answer.truncated);
    ASSERT_INT(answer.original_out_len, 11000000);
    ASSERT_INT(answer.original_error_len, 11500000);
    expect_kept(sandbox, answer.out_file, 11000000);
    expect_kept(sandbox, answer.error_file, 11500000);
    clear_answer();
}

TEST(output_that_the_disk_has_no_room_for_is_told_and_leaves_none_of_it)
{
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .disk_bytes = 16 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);

    bash(sandbox, "head -c 40000000 /dev/zero; exit 3");
    ASSERT_INT(answer.status, CAY_STATUS_ERROR);
    ASSERT_INT(answer.exit_code, 3);
    ASSERT_HAS(answer.message, "Command failed with exit code 3. "
                               "The whole output could not be stored: ");
    ASSERT(answer.truncated && !answer.output_dir && !answer.out_file);
    ASSERT_INT(answer.out_len, 10 * MIB);
    ASSERT_INT(answer.original_out_len, 40000000);
    ASSERT_STR(says(sandbox, "find /tmp -type f | wc -l"), "0");
    clear_answer();
}

TEST(a_far_sandbox_keeps_long_output_as_well)
{
    AUTO(cay_sandbox) native = make_sandbox(NULL);
    __attribute__((cleanup(auto_far))) cay_sandbox *sandbox = far_new(native);

    bash(sandbox, "echo first; head -c 12000000 /dev/zero; echo last");
    ASSERT(answer.truncated);
    expect_kept(native, answer.out_file, 12000011);
    expect_kept(native, answer.error_file, 0);
    clear_answer();
}

BOTH(nothing_is_kept_that_is_shown_byte_by_byte)
{
    bash_with(sandbox, "printf 'plain\\ntext\\n'", clean);
    ASSERT_STR(answer.out, "plain\ntext\n");
    ASSERT(!answer.truncated && !answer.output_dir);
    ASSERT_INT(answer.original_out_len, 11);
    ASSERT_STR(says(sandbox, "ls /tmp"), "");
    clear_answer();
}

BOTH(what_cleaning_takes_away_is_in_the_files)
{
    static const char raw[] = "\x1b[32mok\x1b[0m\r\n\xFF\xC3\xA9\n";

    bash_with(sandbox, "printf '\\033[32mok\\033[0m\\r\\n\\377\\303\\251\\n'; echo e >&2",
              clean);
    ASSERT_STR(answer.out, "ok\n\xEF\xBF\xBD\xC3\xA9\n");
    ASSERT_INT(answer.original_out_len, 6);
    ASSERT(!answer.truncated);
    expect_inside(sandbox, answer.out_file, raw);
    expect_inside(sandbox, answer.error_file, "e\n");
    ASSERT_INT(strncmp(answer.out_file, answer.output_dir, strlen(answer.output_dir)), 0);
    clear_answer();
}

BOTH(without_being_asked_nothing_is_cleaned)
{
    bash(sandbox, "printf '\\033[32mok\\033[0m\\r\\n\\377'; yes | head -20 >&2");
    ASSERT_MEM(answer.out, answer.out_len, "\x1b[32mok\x1b[0m\r\n\xFF", 14);
    ASSERT_INT(answer.error_len, 40);
    ASSERT(!answer.truncated);
    clear_answer();
}

/* Section 6 of issue 15: output_dir was NULL for commands in the foreground. */
BOTH(files_of_the_command_and_its_output_are_kept_on_request)
{
    const struct cay_command_options keep = {.flags = CAY_COMMAND_KEEP};
    char path[512];

    bash_with(sandbox, "echo out; echo error >&2; exit 3", keep);
    ASSERT_INT(answer.exit_code, 3);
    ASSERT_STR(answer.out, "out\n");
    ASSERT(!answer.truncated && answer.output_dir);
    snprintf(path, sizeof path, "%s/command.txt", answer.output_dir);
    expect_inside(sandbox, path, "echo out; echo error >&2; exit 3");
    expect_inside(sandbox, answer.out_file, "out\n");
    expect_inside(sandbox, answer.error_file, "error\n");
    clear_answer();
    bash_with(sandbox, "true", keep);
    expect_inside(sandbox, answer.out_file, "");
    clear_answer();
    bash(sandbox, "true");
    ASSERT(!answer.output_dir);
    clear_answer();
}

TEST(files_that_cannot_be_kept_on_request_are_not_named)
{
    const struct cay_command_options keep = {.flags = CAY_COMMAND_KEEP};
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .disk_bytes = 4 * MIB};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);

    bash_with(sandbox, "head -c 8000000 /dev/zero >/tmp/full 2>/dev/null; echo here",
              keep);
    ASSERT_INT(answer.status, CAY_STATUS_SUCCESS);
    ASSERT_STR(answer.out, "here\n");
    ASSERT_STR(answer.message, "");
    ASSERT(!answer.output_dir && !answer.truncated);
    clear_answer();
}

TEST(a_configuration_asks_for_it)
{
    static const char text[] = "clean_output: true\noutput_char_threshold: 30\n"
                               "truncate_head_chars: 4\ntruncate_tail_chars: 5\n";
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct cay_command_options options = {.size = sizeof options};
    cay_config *config = NULL;

    ASSERT_OK(cay_config_parse("clean_output: no", 16, "test", NULL, &config, &err));
    cay_command_configure(config, &options);
    cay_config_free(config);
    bash_with(sandbox, "printf '\\033[32mok\\033[0m'", options);
    ASSERT_STR(answer.out, "\x1b[32mok\x1b[0m");
    clear_answer();
    ASSERT_OK(cay_config_parse(text, strlen(text), "test", NULL, &config, &err));
    cay_command_configure(config, &options);
    cay_config_free(config);
    bash_with(sandbox, "printf '\\033[32mok\\033[0m'; seq -s '' 1 100", options);
    ASSERT_INT(strncmp(answer.out, "ok12\n", 5), 0);
    ASSERT_HAS(answer.out, "characters omitted");
    ASSERT_STR(answer.out + answer.out_len - 5, "9100\n");
    ASSERT(answer.truncated && answer.out_file);
    clear_answer();
}

BOTH(lines_left_out_are_told_as_missing)
{
    bash_with(sandbox, "yes same | head -100; echo other", clean);
    ASSERT_STR(answer.out, "same\n... [98 similar lines collapsed]\nsame\nother\n");
    ASSERT(answer.truncated);
    ASSERT_INT(answer.original_out_len, 506);
    ASSERT(answer.out_file);
    clear_answer();
}

/* seq gives no two lines that are the same. */
BOTH(what_is_over_the_threshold_is_cut_in_the_middle)
{
    char marker[512];

    bash_with(sandbox, "seq 100000 999999 | head -c 200000; echo; echo END", clean);
    ASSERT(answer.truncated);
    ASSERT_INT(answer.original_out_len, 200005);
    ASSERT(strncmp(answer.out, "100000\n100001\n", 14) == 0);
    ASSERT_STR(answer.out + answer.out_len - 5, "\nEND\n");
    snprintf(marker, sizeof marker,
             "\n\n[... 190,005 characters omitted ...]\n[The whole output: %s]\n\n",
             answer.out_file);
    ASSERT_HAS(answer.out, marker);
    ASSERT_INT(answer.out_len, 10000 + strlen(marker));
    ASSERT_INT(strstr(answer.out, marker) - answer.out, 5000);
    struct cay_content content = {0};
    ASSERT_OK(cay_file_read(sandbox, NULL, answer.out_file, &content, &err));
    ASSERT_INT(content.len, 200005);
    cay_free(content.data);
    clear_answer();
}

BOTH(exactly_as_much_as_is_allowed_is_not_cut)
{
    bash_with(sandbox, "seq 100000 999999 | head -c 9999; echo", clean);
    ASSERT_INT(answer.out_len, 10000);
    ASSERT(!answer.truncated && !answer.output_dir);
    bash_with(sandbox, "seq 100000 999999 | head -c 10000; echo", clean);
    ASSERT(answer.truncated);
    ASSERT_HAS(answer.out, "[... 1 characters omitted ...]");
    clear_answer();
}

BOTH(as_much_as_the_threshold_is_cut_if_it_is_more_than_head_and_tail)
{
    const struct cay_command_options options = {.flags = CAY_COMMAND_CLEAN,
                                                .threshold_chars = 100,
                                                .head_chars = 10,
                                                .tail_chars = 5};

    bash_with(sandbox, "seq 100000 999999 | head -c 90; seq 5 9 >&2", options);
    ASSERT_HAS(answer.out, "[... 75 characters omitted ...]");
    ASSERT_INT(answer.error_len, 10);
    bash_with(sandbox, "seq 100000 999999 | head -c 89; seq 5 9 >&2", options);
    ASSERT_INT(answer.out_len, 89);
    ASSERT(!answer.truncated);
    clear_answer();
}

BOTH(two_streams_that_are_each_short_enough_stay_whole)
{
    bash_with(sandbox,
              "seq 100000 999999 | head -c 9000; seq 100000 999999 | head -c 1500 >&2",
              clean);
    ASSERT_INT(answer.out_len, 9000);
    ASSERT_INT(answer.error_len, 1500);
    ASSERT(!answer.truncated);
    clear_answer();
}

BOTH(characters_are_counted_and_never_cut_apart)
{
    bash_with(
        sandbox,
        "python3 -c \"print(''.join(chr(0x4e00 + i) for i in range(300)), end='')\"",
        (struct cay_command_options){.flags = CAY_COMMAND_CLEAN,
                                     .threshold_chars = 100,
                                     .head_chars = 10,
                                     .tail_chars = 5});
    ASSERT_INT(answer.original_out_len, 300);
    ASSERT_HAS(answer.out, "\xE4\xB8\x89\n\n[... 285 characters omitted ...]\n");
    ASSERT_INT(strstr(answer.out, "\n\n[") - answer.out, 30);
    size_t len;
    AUTO_FREE char *again = cay_text_clean(answer.out, answer.out_len, &len);
    ASSERT_MEM(again, len, answer.out, answer.out_len);
    clear_answer();
}

BOTH(a_tail_of_no_characters_is_none)
{
    bash_with(sandbox, "seq 100000 999999 | head -c 1000",
              (struct cay_command_options){
                  .flags = CAY_COMMAND_CLEAN, .threshold_chars = 100, .head_chars = 20});
    ASSERT_HAS(answer.out, "[... 980 characters omitted ...]");
    ASSERT_INT(strncmp(answer.out, "100000\n100001\n100002\n\n[...", 25), 0);
    ASSERT_STR(answer.out + answer.out_len - 3, "]\n\n");
    clear_answer();
}

BOTH(head_and_tail_are_shown_of_what_memory_did_not_hold)
{
    bash_with(sandbox,
              "echo FIRST; seq 1000000 9999999 | head -c 15000000; echo; echo LAST",
              clean);
    ASSERT(answer.truncated);
    ASSERT_INT(strncmp(answer.out, "FIRST\n1000000\n", 14), 0);
    ASSERT_STR(answer.out + answer.out_len - 5, "LAST\n");
    ASSERT_HAS(answer.out, "[... 14,990,012 characters omitted ...]");
    ASSERT_INT(answer.original_out_len, 15000012);
    clear_answer();
}

BOTH(cleaning_holds_for_a_command_that_fails_or_is_late)
{
    bash_with(sandbox, "printf '\\033[1mx\\n'; exit 2", clean);
    ASSERT_STR(answer.out, "x\n");
    ASSERT_STR(answer.message, "Command failed with exit code 2");
    bash_late(
        sandbox, "printf '\\033[1mx\\n'; sleep 100",
        (struct cay_command_options){.flags = CAY_COMMAND_CLEAN, .timeout_ms = 500});
    ASSERT_STR(answer.out, "x\n");
    ASSERT(answer.out_file);
    clear_answer();
}

BOTH(every_command_has_its_own_files_in_one_place_of_its_user)
{
    char first[256];

    bash_with(sandbox, "printf '\\033[1mone'", clean);
    snprintf(first, sizeof first, "%s", answer.out_file);
    bash_with(sandbox, "printf '\\033[1mtwo'", clean);
    ASSERT(strcmp(first, answer.out_file) != 0);
    expect_inside(sandbox, first, "\x1b[1mone");
    expect_inside(sandbox, answer.out_file, "\x1b[1mtwo");
    ASSERT_STR(says(sandbox, "ls -d /tmp/cay-results-* | wc -l"), "1");
    clear_answer();
}

TEST(a_directory_that_others_have_prepared_is_not_used)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    run_as(sandbox, "1234",
           "mkdir -m 700 /tmp/cay-results-0123456789abcdef; "
           "mkdir -m 777 /tmp/cay-results-0123456789abcde0; "
           "ln -s /tmp/x /tmp/cay-results-0123456789abcde1",
           PATIENCE_MS);
    ASSERT_INT(result.exit_code, 0);
    bash_with(sandbox, "printf '\\033[1mone'", clean);
    ASSERT(answer.out_file && !strstr(answer.out_file, "cay-results-0123456789"));
    cay_exec_done(&result);
    clear_answer();
}
