/* SPDX-License-Identifier: Apache-2.0 */

/* What a server needs of its sandboxes: output that waits for who reads it, ports, and
 * descriptors of files. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "processes.h"

static cay_process *start_piped(cay_sandbox *sandbox, unsigned flags, const char *script)
{
    return start(sandbox, flags | CAY_EXEC_BACKGROUND | CAY_EXEC_PIPED, script);
}

TEST(a_command_waits_for_a_slow_reader_and_nothing_is_lost)
{
    enum { LEN = 20000000 };
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    process = start_piped(sandbox, 0, "head -c 20000000 /dev/zero; touch /tmp/over");
    struct heard heard = {0};

    ASSERT(poll_process(process, PATIENCE_MS));
    rest_ms(50); /* however long: it cannot end */
    run(sandbox, "test -e /tmp/over");
    ASSERT_INT(result.exit_code, 1);
    hear_all(process, &heard);
    ASSERT_INT(heard.len[0], LEN);
    ASSERT_INT(heard.dropped[0], 0);
}

TEST(readers_who_hold_all_the_memory_for_output_make_nobody_lose_any)
{
    enum { COUNT = 12, LEN = 3000000 };
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .memory_bytes = 32 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);
    cay_process *processes[COUNT];

    for (int i = 0; i < COUNT; i++) {
        processes[i] = start_piped(sandbox, 0, "exec head -c 3000000 /dev/zero");
        ASSERT(poll_process(processes[i], PATIENCE_MS));
    }
    rest_ms(50); /* for the rings to fill; nothing depends on whether they do */
    for (int i = COUNT; i-- > 0;) {
        struct heard heard = {0};
        hear_all(processes[i], &heard);
        ASSERT_INT(heard.len[0], LEN);
        ASSERT_INT(heard.dropped[0], 0);
        cay_process_free(processes[i]);
    }
}

TEST(not_even_the_first_bytes_are_lost)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    for (int i = 0; i < 20; i++) {
        AUTO(cay_process)
        process = start_piped(sandbox, 0, "exec head -c 3000000 /dev/zero");
        struct heard heard = {0};
        hear_all(process, &heard);
        ASSERT_INT(heard.len[0], 3000000);
        ASSERT_INT(heard.dropped[0], 0);
    }
}

TEST(it_goes_on_when_its_reader_leaves)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *process =
        start_piped(sandbox, 0, "head -c 20000000 /dev/zero; touch /tmp/over");
    bool over = false;

    ASSERT(poll_process(process, PATIENCE_MS));
    cay_process_free(process);
    for (int i = 0; i < PATIENCE_MS / 5 && !over; i++) {
        run(sandbox, "test -e /tmp/over");
        over = result.exit_code == 0;
        if (!over)
            rest_ms(5);
    }
    ASSERT(over);
}

TEST(it_ends_when_the_last_writer_closes)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    process = start_piped(sandbox, 0,
                          "mkfifo /tmp/f; (read x < /tmp/f; echo late) & echo soon; "
                          "exit 3");
    struct heard heard = {0};

    hear_until(process, &heard, 1, "soon\n");
    ASSERT_CODE(cay_process_wait(process, 50, &result, &err), CAY_E_TIMEOUT);
    run(sandbox, "echo > /tmp/f");
    hear_until(process, &heard, 1, "late\n");
    wait_for(process);
    ASSERT_INT(result.exit_code, 3);
}

TEST(it_ends_at_once_when_it_was_told_to)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) process = start_piped(sandbox, 0, "sleep 1000 & exec sleep 1000");

    ASSERT_OK(cay_process_signal(process, SIGTERM, &err));
    wait_for(process);
    ASSERT_INT(result.signal, SIGTERM);
}

TEST(it_can_be_told_to_end_when_only_its_children_live)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process) process = start_piped(sandbox, 0, "sleep 1000 & exit 3");

    for (int i = 0;
         i < PATIENCE_MS / 5 && cay_process_signal(process, SIGWINCH, &err) == CAY_OK;
         i++)
        rest_ms(5);
    ASSERT_CODE(cay_process_signal(process, SIGWINCH, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_process_signal(process, SIGTERM, &err));
    wait_for(process);
    ASSERT_INT(result.exit_code, 3);
    ASSERT_CODE(cay_process_signal(process, SIGTERM, &err), CAY_E_NOT_FOUND);
}

TEST(its_time_is_over_even_if_only_its_children_live)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *process = NULL;

    ASSERT_OK(start_script(
        sandbox, "sleep 1000 & exit 0",
        (struct cay_exec_options){.flags = CAY_EXEC_BACKGROUND | CAY_EXEC_PIPED,
                                  .timeout_ms = 100},
        &process));
    wait_for(process);
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    cay_process_free(process);
}

TEST(a_reader_that_skips_gets_only_later_output)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_process)
    first = start_piped(sandbox, CAY_EXEC_INPUT, "echo before; read x; echo after");
    struct heard heard[2] = {0};
    char pid[16];
    size_t put;

    hear_until(first, &heard[0], 1, "before\n");
    snprintf(pid, sizeof pid, "%d", cay_process_pid(first));
    AUTO(cay_process) second = attach(sandbox, pid);
    ASSERT_OK(cay_process_skip(second, &err));
    ASSERT_OK(cay_process_write(second, "\n", 1, &put, &err));
    hear_all(second, &heard[1]);
    ASSERT_STR(heard[1].text[0], "after\n");
    ASSERT_INT(heard[1].dropped[0], 0);
}

TEST(piped_goes_with_background_only)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_process *process = NULL;

    ASSERT_CODE(start_script(sandbox, "true",
                             (struct cay_exec_options){.flags = CAY_EXEC_PIPED},
                             &process),
                CAY_E_INVALID);
}

/* It may still be connecting, and be refused then. */
static bool is_connected(int fd)
{
    struct pollfd waiting = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t len = sizeof error;

    ASSERT_INT(poll(&waiting, 1, PATIENCE_MS), 1);
    ASSERT_INT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    return !error;
}

static int dial(cay_sandbox *sandbox, uint16_t port)
{
    for (int i = 0; i < PATIENCE_MS / 5; i++, rest_ms(5)) {
        int fd = -1;
        if (cay_sandbox_dial(sandbox, port, &fd, &err) != CAY_OK)
            ASSERT_INT(err.code, CAY_E_NOT_FOUND);
        else if (is_connected(fd))
            return fd;
        else
            close(fd);
    }
    harness_fail(__FILE__, __LINE__, "no process listens on the port");
}

TEST(a_port_inside_is_reached_by_a_socket)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    int fd = -1;

    if (!(cay_sandbox_layers(sandbox) & CAY_LAYER_NETWORK)) {
        ASSERT_CODE(cay_sandbox_dial(sandbox, 8000, &fd, &err), CAY_E_UNSUPPORTED);
        return;
    }
    ASSERT_CODE(cay_sandbox_dial(sandbox, 8000, &fd, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "8000");
    AUTO(cay_process)
    server =
        start(sandbox, 0,
              "exec python3 -c 'import socket; s = socket.create_server((\"\", 8000)); "
              "c, a = s.accept(); c.sendall(c.recv(9).upper())'");
    ASSERT(server);
    fd = dial(sandbox, 8000);
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    char text[16] = "";
    ASSERT_INT(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
    ASSERT(poll(&waiting, 1, PATIENCE_MS) == 1);
    ASSERT_INT(recv(fd, text, sizeof text - 1, 0), 5);
    ASSERT_STR(text, "HELLO");
    close(fd);
}

TEST(a_file_is_handed_out_to_be_read_and_written)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    cay_files *files = NULL;
    char text[16] = "";
    int fd = -1;

    ASSERT_OK(cay_sandbox_files(sandbox, NULL, &files, &err));
    ASSERT_CODE(cay_files_descriptor(files, "a/b.txt", CAY_DESCRIPTOR_READ, &fd, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(cay_files_descriptor(files, "a/b.txt", CAY_DESCRIPTOR_WRITE, &fd, &err));
    ASSERT_INT(write(fd, "hello", 5), 5);
    close(fd);
    run(sandbox, "cat a/b.txt; stat -c %U a/b.txt");
    ASSERT_STR(result.out, "hellouser\n");
    ASSERT_OK(cay_files_descriptor(files, "a/b.txt", CAY_DESCRIPTOR_READ, &fd, &err));
    ASSERT_INT(read(fd, text, sizeof text), 5);
    ASSERT_INT(write(fd, "x", 1), -1);
    close(fd);
    ASSERT_OK(cay_files_descriptor(files, "a/b.txt", CAY_DESCRIPTOR_WRITE, &fd, &err));
    run(sandbox, "stat -c %s a/b.txt");
    ASSERT_STR(result.out, "0\n");
    ASSERT_INT(write(fd, "content", 7), 7);
    close(fd);
    ASSERT_OK(cay_files_descriptor(files, "a/b.txt", CAY_DESCRIPTOR_UPDATE, &fd, &err));
    ASSERT_INT(lseek(fd, 0, SEEK_END), 7);
    close(fd);
    ASSERT_CODE(cay_files_descriptor(files, "a", CAY_DESCRIPTOR_READ, &fd, &err),
                CAY_E_NOT_A_FILE);
    ASSERT_OK(cay_files_descriptor(files, "a", CAY_DESCRIPTOR_DIRECTORY, &fd, &err));
    close(fd);
    ASSERT_CODE(
        cay_files_descriptor(files, "a/b.txt", CAY_DESCRIPTOR_DIRECTORY, &fd, &err),
        CAY_E_NOT_A_DIRECTORY);
    cay_files_free(files);
}
