/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"

/* All of it takes at most WAIT_SECONDS. */
enum { MESSAGE_MAX = 1 << 16, WAIT_SECONDS = 5, STEP_NS = 1000000 };

/* The cgroup of this process in cgroup2; false if it is not known. */
static bool read_cgroup(char *path, size_t room)
{
    char text[4096];
    AUTO_FD fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    text[len > 0 ? len : 0] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "0::", 3) == 0) {
            snprintf(path, room, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
            return true;
        }
    }
    return false;
}

static bool is_in_session(void)
{
    char path[4096], slice[64];

    snprintf(slice, sizeof slice, "/user.slice/user-%u.slice/session-",
             (unsigned)geteuid());
    return read_cgroup(path, sizeof path) && strncmp(path, slice, strlen(slice)) == 0;
}

/* --- A message of D-Bus, little-endian --- */

static void align(struct buf *out, size_t boundary)
{
    static const char zeros[8];

    buf_append(out, zeros, (boundary - out->len % boundary) % boundary);
}

static void put_number(struct buf *out, uint32_t value)
{
    const unsigned char bytes[] = {(unsigned char)value, (unsigned char)(value >> 8),
                                   (unsigned char)(value >> 16),
                                   (unsigned char)(value >> 24)};

    align(out, 4);
    buf_append(out, bytes, sizeof bytes);
}

static void put_string(struct buf *out, const char *text)
{
    put_number(out, (uint32_t)strlen(text));
    buf_append(out, text, strlen(text) + 1);
}

static void put_signature(struct buf *out, const char *text)
{
    const char len = (char)strlen(text);

    buf_append(out, &len, 1);
    buf_append(out, text, strlen(text) + 1);
}

/* Sets the length of an array whose elements begin at `from`. */
static void end_array(struct buf *out, size_t at, size_t from)
{
    if (out->failed)
        return;
    for (size_t i = 0; i < 4; i++)
        out->data[at + i] = (char)((out->len - from) >> 8 * i);
}

static void put_property(struct buf *out, const char *name, const char *signature)
{
    align(out, 8);
    put_string(out, name);
    put_signature(out, signature);
}

/* The arguments of StartTransientUnit(name, mode, properties, other units). */
static void put_body(struct buf *out, const char *name)
{
    put_string(out, name);
    put_string(out, "fail");
    put_number(out, 0);
    size_t at = out->len - 4;
    align(out, 8);
    size_t from = out->len;
    put_property(out, "Description", "s");
    put_string(out, "cay");
    put_property(out, "PIDs", "au");
    put_number(out, 4);
    put_number(out, (uint32_t)getpid());
    put_property(out, "Delegate", "b");
    put_number(out, 1);
    put_property(out, "CollectMode", "s");
    put_string(out, "inactive-or-failed");
    end_array(out, at, from);
    put_number(out, 0);
    align(out, 8);
}

static void put_field(struct buf *out, char code, const char *signature,
                      const char *value)
{
    align(out, 8);
    buf_append(out, &code, 1);
    put_signature(out, signature);
    if (*signature == 'g')
        put_signature(out, value);
    else
        put_string(out, value);
}

static void put_call(struct buf *out, const char *name)
{
    AUTO_BUF body;

    buf_init(&body, MESSAGE_MAX);
    put_body(&body, name);
    buf_append(out, "l\1\0\1", 4); /* a method call, version 1 */
    put_number(out, (uint32_t)body.len);
    put_number(out, 1);
    put_number(out, 0);
    put_field(out, 1, "o", "/org/freedesktop/systemd1");
    put_field(out, 2, "s", "org.freedesktop.systemd1.Manager");
    put_field(out, 3, "s", "StartTransientUnit");
    put_field(out, 6, "s", "org.freedesktop.systemd1");
    put_field(out, 8, "g", "ssa(sv)a(sa(sv))");
    end_array(out, 12, 16);
    align(out, 8);
    buf_append(out, body.data, body.len);
    out->failed |= body.failed;
}

/* --- The connection --- */

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int connect_manager(void)
{
    const struct timeval wait = {.tv_sec = WAIT_SECONDS};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "/run/user/%u/systemd/private",
             (unsigned)geteuid());
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) != 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    return TAKE_FD(fd);
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t done = send(fd, data, len, MSG_NOSIGNAL);
        if (done < 0 && errno != EINTR)
            return false;
        if (done > 0) {
            data += done;
            len -= (size_t)done;
        }
    }
    return true;
}

static bool receive(int fd, int64_t until, void *data, size_t len)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    char *at = data;

    while (len > 0) {
        int64_t left = until - now_ns();
        if (left <= 0)
            return false;
        (void)poll(&input, 1, (int)(left / 1000000) + 1);
        ssize_t done = recv(fd, at, len, MSG_DONTWAIT);
        if (done == 0 || (done < 0 && errno != EINTR && errno != EAGAIN))
            return false;
        if (done > 0) {
            at += done;
            len -= (size_t)done;
        }
    }
    return true;
}

/* The user is the one that the kernel reports for the socket; the manager checks it. */
static bool authenticate(int fd, int64_t until)
{
    char user[16], text[64], line[128];
    size_t len = 0;

    snprintf(user, sizeof user, "%u", (unsigned)geteuid());
    len += (size_t)snprintf(text, sizeof text, "%cAUTH EXTERNAL ", '\0');
    for (const char *at = user; *at; at++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%02x", *at);
    len += (size_t)snprintf(text + len, sizeof text - len, "\r\n");
    if (!send_all(fd, text, len))
        return false;
    for (len = 0; len < sizeof line - 1; len++) {
        if (!receive(fd, until, line + len, 1))
            return false;
        if (line[len] == '\n')
            break;
    }
    return strncmp(line, "OK ", 3) == 0 && send_all(fd, "BEGIN\r\n", 7);
}

static uint32_t get_number(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* True if the reply is not an error; signals may come before it. */
static bool read_reply(int fd, int64_t until)
{
    enum { RETURN = 2, ERROR = 3 };
    unsigned char header[16], rest[4096];

    for (;;) {
        if (!receive(fd, until, header, sizeof header) || header[0] != 'l')
            return false;
        uint64_t left =
            ((uint64_t)get_number(header + 12) + 7) / 8 * 8 + get_number(header + 4);
        if (left > MESSAGE_MAX)
            return false;
        for (; left > 0; left -= left < sizeof rest ? left : sizeof rest)
            if (!receive(fd, until, rest, left < sizeof rest ? left : sizeof rest))
                return false;
        if (header[1] == RETURN || header[1] == ERROR)
            return header[1] == RETURN;
    }
}

/* The reply comes before the process is moved. */
static void wait_for(const char *name, int64_t until)
{
    const struct timespec step = {.tv_nsec = STEP_NS};
    char path[4096];

    while (now_ns() < until) {
        if (!read_cgroup(path, sizeof path) || strstr(path, name))
            return;
        (void)nanosleep(&step, NULL);
    }
}

void scope_join(void)
{
    char name[64];
    AUTO_BUF call;

    buf_init(&call, MESSAGE_MAX);
    if (geteuid() == 0 || !is_in_session())
        return;
    int64_t now = now_ns(), until = now + WAIT_SECONDS * INT64_C(1000000000);
    AUTO_FD fd = connect_manager();
    if (fd < 0)
        return;
    snprintf(name, sizeof name, "cay-%d-%" PRIx64 ".scope", (int)getpid(), (uint64_t)now);
    put_call(&call, name);
    if (!call.failed && authenticate(fd, until) && send_all(fd, call.data, call.len) &&
        read_reply(fd, until))
        wait_for(name, until);
}
