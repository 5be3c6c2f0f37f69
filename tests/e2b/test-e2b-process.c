/* SPDX-License-Identifier: Apache-2.0 */

/* Processes that the caller drives, beyond the conformance suite. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "peer.h"

enum { PATIENCE_MS = 60000 };

static const struct cay_process_backend *calls(void)
{
    return backend_e2b.processes;
}

static void auto_handle(void **process)
{
    calls()->free(*process);
}
#define AUTO_HANDLE __attribute__((cleanup(auto_handle))) void *

static int try_to_start(void *box, const char *script, struct cay_exec_options options,
                        void **ret_process)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    options.size = sizeof options;
    options.argv = argv;
    return calls()->start(box, &options, ret_process, &err);
}

static void *start(void *box, unsigned flags, const char *script)
{
    void *process = NULL;

    ASSERT_OK(
        try_to_start(box, script, (struct cay_exec_options){.flags = flags}, &process));
    return process;
}

static void wait_for(void *process)
{
    cay_exec_done(&result);
    ASSERT_OK(calls()->wait(process, PATIENCE_MS, &result, &err));
}

/* Reads until the process is over or has written this text. */
static void hear(void *process, const char *part, char *text, size_t room)
{
    size_t used = strlen(text);

    for (;;) {
        struct pollfd waiting = {.fd = calls()->fd(process), .events = POLLIN};
        size_t len = 0;
        int stream = 0;
        if (part && strstr(text, part))
            return;
        ASSERT(poll(&waiting, 1, PATIENCE_MS) > 0);
        ASSERT_OK(calls()->read(process, &stream, text + used, room - used - 1, &len,
                                NULL, &err));
        if (stream < 0)
            return;
        used += len;
        text[used] = '\0';
    }
}

/* --- Input --- */

WITH_PEER(input_of_any_size_is_written_in_pieces)
{
    enum { LEN = 3 << 20 };
    void *box = make_box(NULL);
    AUTO_FREE char *bytes = malloc(LEN);
    size_t done = 0;

    ASSERT(bytes);
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    AUTO_HANDLE process = start(box, CAY_EXEC_INPUT, "cat > file; cksum < file");
    while (done < LEN) {
        size_t put = 0;
        ASSERT_OK(calls()->write(process, bytes + done, LEN - done, &put, &err));
        done += put;
    }
    ASSERT_OK(calls()->close_input(process, &err));
    wait_for(process);
    ASSERT_HAS(result.out, " 3145728\n");
    ASSERT_CODE(calls()->write(process, "x", 1, &done, &err), CAY_E_INVALID);
}

/* A pipe has room for 64 KiB. */
WITH_PEER(full_pipe_of_a_command_does_not_block_the_writer)
{
    enum { LEN = 256 << 10 };
    void *box = make_box(NULL);
    AUTO_FREE char *bytes = calloc(1, LEN);
    size_t put = 1, total = 0;

    ASSERT(bytes);
    AUTO_HANDLE process = start(box, CAY_EXEC_INPUT, "echo up; exec sleep 86400");
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(calls()->write(process, bytes, LEN, &put, &err));
        total += put;
    }
    ASSERT_INT(put, 0);
    ASSERT(total <= LEN);
    char text[64] = "";
    hear(process, "up\n", text, sizeof text); /* it is still heard */
    ASSERT_OK(calls()->kill(process, &err));
    wait_for(process);
    ASSERT_INT(result.signal, SIGKILL);
}

WITH_PEER(closed_input_of_a_command_is_reported)
{
    void *box = make_box(NULL);
    size_t put = 0;
    int code = CAY_OK;

    AUTO_HANDLE process = start(box, CAY_EXEC_INPUT, "exec <&-; echo shut; sleep 86400");
    char text[64] = "";
    hear(process, "shut\n", text, sizeof text);
    for (int i = 0; i < 10 && !code; i++)
        code = calls()->write(process, "x", 1, &put, &err);
    ASSERT_INT(code, CAY_E_IO);
}

WITH_PEER(process_without_input_refuses_bytes)
{
    void *box = make_box(NULL);
    size_t put = 0;

    AUTO_HANDLE process = start(box, 0, "cat; echo end");
    ASSERT_CODE(calls()->write(process, "x", 1, &put, &err), CAY_E_INVALID);
    ASSERT_OK(calls()->close_input(process, &err));
    wait_for(process);
    ASSERT_STR(result.out, "end\n");
}

WITH_PEER(input_of_the_start_is_delivered_after_the_handle_is_freed)
{
    void *box = make_box(NULL);
    void *process = NULL;

    ASSERT_OK(try_to_start(box, "cat > got; mv got all",
                           (struct cay_exec_options){.flags = CAY_EXEC_BACKGROUND,
                                                     .input = "first\n",
                                                     .input_len = 6},
                           &process));
    calls()->free(process);
    ASSERT_STR(output_of(box, "while ! test -e all; do sleep 0.05; done; cat all"),
               "first");
}

/* --- Terminals --- */

WITH_PEER(closed_input_is_end_of_file_on_a_terminal)
{
    void *box = make_box(NULL);
    const char *const argv[] = {"sh", "-c", "cat; echo END $TERM", NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .flags = CAY_EXEC_TTY,
                                             .input = "line\nrest",
                                             .input_len = 9,
                                             .timeout_ms = PATIENCE_MS};

    ASSERT_OK(backend_e2b.exec(box, &options, &result, &err));
    ASSERT_INT(result.exit_code, 0);
    ASSERT_HAS(result.out, "END xterm-256color");
    ASSERT_HAS(result.out, "rest");
}

WITH_PEER(attached_client_can_write_to_a_background_terminal)
{
    void *box = make_box(NULL);
    char pid[16], text[512] = "";
    size_t put = 0;

    AUTO_HANDLE first = start(box, CAY_EXEC_TTY | CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT,
                              "read line; echo got $line");
    snprintf(pid, sizeof pid, "%d", calls()->pid(first));
    AUTO_HANDLE second = NULL;
    ASSERT_OK(calls()->attach(box, pid, &second, &err));
    ASSERT_OK(calls()->write(second, "it\n", 3, &put, &err));
    hear(second, "got it", text, sizeof text);
    ASSERT_HAS(text, "got it");
}

WITH_PEER(process_without_terminal_cannot_be_resized)
{
    void *box = make_box(NULL);

    AUTO_HANDLE process = start(box, 0, "sleep 86400");
    ASSERT_CODE(calls()->resize(process, 3, 4, &err), CAY_E_INVALID);
}

/* --- In the background --- */

WITH_PEER(attached_reader_gets_the_last_mebibyte_of_output)
{
    void *box = make_box(NULL);
    char pid[16];

    /* 2,000,000 bytes, of which the last 1,048,576 are read later. */
    void *process = start(box, CAY_EXEC_BACKGROUND,
                          "yes 1234567 | head -c 2000000; echo e >&2; touch done; "
                          "sleep 86400");
    snprintf(pid, sizeof pid, "%d", calls()->pid(process));
    calls()->free(process);
    (void)output_of(box, "while ! test -e done; do sleep 0.05; done");
    AUTO_HANDLE again = NULL;
    ASSERT_OK(calls()->attach(box, pid, &again, &err));
    ASSERT_CODE(calls()->wait(again, 1000, &result, &err), CAY_E_TIMEOUT);
    ASSERT_OK(calls()->kill(again, &err));
    wait_for(again);
    ASSERT_INT(result.out_len, 1 << 20);
    ASSERT_INT(result.out_dropped, 2000000 - (1 << 20));
    ASSERT_STR(result.error, "e\n");
    ASSERT_STR(output_of(box, "ls /tmp/.cay-output | grep -c . || :"),
               "0"); /* fetched: gone */
}

WITH_PEER(list_shows_the_original_arguments)
{
    static const char *const commands[][6] = {
        {"sh", "-c", "sleep 86400", "text", NULL},
        {"sh", "-c", "sleep 86400", "\\0101", "\xc3\xa9", NULL}};
    static const char *const shown[] = {"sh -c sleep 86400 text",
                                        "sh -c sleep 86400 \\0101 \xc3\xa9"};
    static const unsigned flags[] = {0, CAY_EXEC_BACKGROUND};
    void *box = make_box(NULL);

    for (size_t i = 0; i < 4; i++) {
        const struct cay_exec_options options = {.size = sizeof options,
                                                 .argv = commands[i / 2],
                                                 .flags = flags[i % 2],
                                                 .tag = "it"};
        struct cay_process_info *infos = NULL;
        size_t count = 0;
        AUTO_HANDLE process = NULL;
        ASSERT_OK(calls()->start(box, &options, &process, &err));
        ASSERT_OK(calls()->list(box, &infos, &count, &err));
        ASSERT_INT(count, 1);
        ASSERT_STR(infos[0].tag, "it");
        ASSERT_STR(infos[0].command, shown[i / 2]);
        free(infos);
        ASSERT_OK(calls()->kill(process, &err));
        wait_for(process);
    }
}

/* The script that creates the files may be slower than the client that attaches. */
WITH_PEER(reader_that_attaches_before_the_output_files_exist_misses_nothing)
{
    void *box = make_box(NULL);
    char pid[16], text[256] = "";

    AUTO_HANDLE process = start(box, CAY_EXEC_BACKGROUND, "echo one; sleep 86400");
    snprintf(pid, sizeof pid, "%d", calls()->pid(process));
    peer_request(
        "{\"rule\": {\"on\": \"POST /filesystem.Filesystem/Stat\", \"status\": 404, "
        "\"body\": \"{\\\"code\\\":\\\"not_found\\\"}\"}}");
    AUTO_HANDLE again = NULL;
    ASSERT_OK(calls()->attach(box, pid, &again, &err));
    ASSERT_INT(count_requests("POST /filesystem.Filesystem/Stat"), 1);
    hear(again, "one\n", text, sizeof text);
    ASSERT_STR(text, "one\n");
    ASSERT_OK(calls()->kill(again, &err));
}

WITH_PEER(background_output_can_be_read_while_the_command_runs)
{
    void *box = make_box(NULL);
    char text[256] = "";

    AUTO_HANDLE process =
        start(box, CAY_EXEC_BACKGROUND,
              "echo one; while ! test -e go; do sleep 0.05; done; echo two; exit 4");
    hear(process, "one\n", text, sizeof text);
    (void)output_of(box, "touch go");
    hear(process, NULL, text, sizeof text);
    ASSERT_STR(text, "one\ntwo\n");
    wait_for(process);
    ASSERT_INT(result.exit_code, 4);
}

WITH_PEER(tag_of_a_running_command_is_unique)
{
    void *box = make_box(NULL);
    void *other = NULL;
    static const char *const bad[] = {
        "", "1x", "a b", "-x",
        "a123456789012345678901234567890123456789012345678901234567890123"};
    struct cay_exec_options options = {.flags = CAY_EXEC_BACKGROUND, .tag = "mine"};

    AUTO_HANDLE process = NULL;
    ASSERT_OK(try_to_start(box, "sleep 86400", options, &process));
    ASSERT_CODE(try_to_start(box, "true", options, &other), CAY_E_EXISTS);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.tag = bad[i];
        ASSERT_CODE(try_to_start(box, "true", options, &other), CAY_E_INVALID);
        ASSERT_CODE(calls()->attach(box, bad[i], &other, &err), CAY_E_NOT_FOUND);
    }
    ASSERT_OK(calls()->kill(process, &err));
    wait_for(process);
    options.tag = "mine";
    ASSERT_OK(try_to_start(box, "true", options, &other));
    calls()->free(other);
}

WITH_PEER(list_has_no_helper_scripts)
{
    void *box = make_box(NULL);
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0;

    AUTO_HANDLE one = start(box, 0, "sleep 86401");
    AUTO_HANDLE two = start(box, CAY_EXEC_BACKGROUND, "sleep 86402");
    /* By now a helper watches the first command. */
    ASSERT_CODE(calls()->wait(one, 1500, &result, &err), CAY_E_TIMEOUT);
    ASSERT_OK(calls()->list(box, &infos, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_STR(infos[0].command, "sh -c sleep 86401");
    ASSERT_STR(infos[1].command, "sh -c sleep 86402");
    ASSERT(infos[0].is_command && infos[0].pid == calls()->pid(one));
    ASSERT_INT(infos[1].pid, calls()->pid(two));
}

/* --- Signals and the end --- */

WITH_PEER(every_signal_is_delivered)
{
    void *box = make_box(NULL);
    char text[256] = "";

    AUTO_HANDLE process =
        start(box, 0,
              "trap 'echo usr' USR1; trap 'echo int; exit 5' INT; echo up; "
              "while :; do sleep 0.05; done");
    hear(process, "up\n", text, sizeof text);
    ASSERT_OK(calls()->signal(process, SIGUSR1, &err));
    hear(process, "usr\n", text, sizeof text);
    ASSERT_CODE(calls()->signal(process, 4711, &err), CAY_E_INVALID);
    ASSERT_OK(calls()->signal(process, SIGINT, &err));
    wait_for(process);
    ASSERT_INT(result.exit_code, 5);
    ASSERT_CODE(calls()->signal(process, SIGUSR1, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(calls()->kill(process, &err));
}

WITH_PEER(descriptor_is_not_readable_without_an_event)
{
    void *box = make_box(NULL);
    char byte;
    size_t len;
    int stream, wakes = 0;

    AUTO_HANDLE process = start(box, 0, "sleep 86400");
    for (int i = 0; i < 100; i++) {
        struct pollfd waiting = {.fd = calls()->fd(process), .events = POLLIN};
        if (poll(&waiting, 1, 30) > 0)
            wakes++;
        ASSERT_OK(calls()->read(process, &stream, &byte, 1, &len, NULL, &err));
        ASSERT_INT(stream, 0);
    }
    ASSERT(wakes < 30);
    ASSERT_CODE(calls()->read(process, &stream, &byte, 0, &len, NULL, &err),
                CAY_E_INVALID);
}

static double cpu_seconds(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

WITH_PEER(wait_uses_no_processor_time)
{
    static const unsigned flags[] = {0, CAY_EXEC_BACKGROUND, CAY_EXEC_TTY};
    void *box = make_box(NULL);

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        AUTO_HANDLE process = start(box, flags[i], "sleep 86400");
        double before = cpu_seconds();
        ASSERT_CODE(calls()->wait(process, 3000, &result, &err), CAY_E_TIMEOUT);
        ASSERT(cpu_seconds() - before < 1.5);
        ASSERT_OK(calls()->kill(process, &err));
    }
}

WITH_PEER(process_handle_outlives_the_handle_of_the_sandbox)
{
    void *box = NULL, *process = NULL;
    const cay_config *config = configure(NULL);

    ASSERT_OK(backend_e2b.create(NULL, config, &box, &err));
    ASSERT_OK(try_to_start(box, "echo on", (struct cay_exec_options){0}, &process));
    backend_e2b.free(box);
    wait_for(process);
    calls()->free(process);
    ASSERT_STR(result.out, "on\n");
}

WITH_PEER(broken_stream_is_reported_after_its_output)
{
    void *box = make_box("max_retries: 0\n");
    char data[64];
    size_t len = 0;
    int stream = 0, code = CAY_OK;

    (void)peer_request(
        "{\"rule\": {\"on\": \"POST /process.Process/Start\", \"envelopes\": "
        "[[0, \"{\\\"event\\\":{\\\"start\\\":{\\\"pid\\\":1}}}\"], [0, "
        "\"{\\\"event\\\":{\\\"data\\\":{\\\"stdout\\\":\\\"aGk=\\\"}}}\"]]}}");
    AUTO_HANDLE process = start(box, CAY_EXEC_BACKGROUND | CAY_EXEC_TTY, "true");
    ASSERT_OK(calls()->read(process, &stream, data, sizeof data, &len, NULL, &err));
    ASSERT_INT(len, 2);
    while (!code && stream >= 0)
        code = calls()->read(process, &stream, data, sizeof data, &len, NULL, &err);
    ASSERT_INT(code, CAY_E_PROTOCOL);
    ASSERT_CODE(calls()->wait(process, 0, &result, &err), CAY_E_PROTOCOL);
}

WITH_PEER(unread_output_pauses_the_command)
{
    void *box = make_box(NULL);
    char text[8192] = "";
    size_t len = 0;
    int stream = 0;

    AUTO_HANDLE process = start(box, 0, "yes");
    hear(process, "y\n", text, 16);
    for (int i = 0; i < 2000; i++) /* a little of a great deal */
        ASSERT_OK(calls()->read(process, &stream, text, sizeof text, &len, NULL, &err));
    ASSERT_OK(calls()->kill(process, &err));
    wait_for(process);
    ASSERT_INT(result.signal, SIGKILL);
    ASSERT(result.out_len > 0);
}
