/* SPDX-License-Identifier: Apache-2.0 */

/* What a command writes just before its end.  The kernel looks for something to be read
 * first and for somebody who could write after that; who writes and closes in between
 * makes poll(2) say POLLHUP alone, and read(2) of a terminal EIO.  Here both do so every
 * time that they can. */
#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ledger.h"

static bool poll_lies, read_lies;

static bool is_terminal(int fd)
{
    unsigned number;

    return ioctl(fd, TIOCGPTN, &number) == 0;
}

static bool is_pipe(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

static int wait_for(struct pollfd *fds, nfds_t count)
{
    return (int)syscall(SYS_ppoll, fds, count, NULL, NULL, 8L);
}

/* Until nobody has the other side. */
static void await_end(int fd)
{
    struct pollfd end = {.fd = fd};

    ASSERT_INT(wait_for(&end, 1), 1);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    struct timespec time = {timeout / 1000, timeout % 1000 * 1000000L};

    for (nfds_t i = 0; poll_lies && i < count; i++)
        if (fds[i].events & POLLIN && (is_pipe(fds[i].fd) || is_terminal(fds[i].fd)))
            await_end(fds[i].fd);
    int ready = (int)syscall(SYS_ppoll, fds, count, timeout < 0 ? NULL : &time, NULL, 8L);
    for (nfds_t i = 0; poll_lies && i < count; i++)
        if (fds[i].revents & POLLHUP)
            fds[i].revents = POLLHUP;
    return ready;
}

ssize_t read(int fd, void *data, size_t room)
{
    if (!read_lies || !is_terminal(fd))
        return syscall(SYS_read, fd, data, room);
    await_end(fd);
    read_lies = false;
    errno = EIO;
    return -1;
}

static void say_last_words(unsigned flags)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"sh", "-c", "echo last; echo words >&2", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = flags};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    poll_lies = false;
    ASSERT_STR(result.out, flags ? "last\r\nwords\r\n" : "last\n");
    ASSERT_STR(result.error, flags ? "" : "words\n");
    cay_exec_done(&result);
}

TEST(nothing_that_was_written_to_a_pipe_is_lost)
{
    poll_lies = true;
    say_last_words(0);
}

TEST(nothing_that_was_written_to_a_terminal_is_lost)
{
    poll_lies = true;
    say_last_words(CAY_EXEC_TTY);
}

TEST(a_terminal_that_is_said_to_have_ended_is_asked_again)
{
    read_lies = true;
    say_last_words(CAY_EXEC_TTY);
    ASSERT(!read_lies);
}
