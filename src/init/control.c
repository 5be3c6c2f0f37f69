/* SPDX-License-Identifier: Apache-2.0 */

/* False: the message is one that the library never sends, and the connection is closed. A
 * caller's mistake gets an error reply. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/prefork.h"
#include "init/process.h"
#include "relay/relay.h"
#include "sys/rights.h"

enum {
    LIST_PAGE = (MESSAGE_MAX - sizeof(struct list_head)) / sizeof(struct list_entry),
    DIAL_MS = 20
};

static const char end_of_input = 4; /* ^D, to a terminal */

static bool fail(struct peer *peer, int code, int sys_errno, const char *op,
                 const char *subject, const char *message, const char *hint)
{
    struct cay_error error = {0};

    cay_fail(&error, code, sys_errno, op, subject, message, "%s", hint);
    peer_fail(peer, &error);
    return true;
}

static bool done(struct peer *peer)
{
    peer_reply(peer, MESSAGE_DONE, NULL, 0);
    return true;
}

/* --- Attaching --- */

/* By pid, or by tag unless the tag is "". */
static struct process *find(pid_t pid, const char *tag)
{
    struct process *found = NULL;

    for (struct process *process = process_first(); process; process = process->next) {
        /* A command whose background children still run can be found until they end. */
        if (!(process->flags & EXEC_BACKGROUND) || process->is_own ||
            (process->fetched &&
             (process->cgroup.fd < 0 || exec_cgroup_is_empty(&process->cgroup))) ||
            (*tag ? strcmp(process->tag, tag) != 0 : process->pid != pid))
            continue;
        if (!found || found->ended) /* a running one, else the one started last */
            found = process;
    }
    return found;
}

static bool fail_unknown(struct peer *peer, const char *which)
{
    char hint[320] = "background commands: none";
    const size_t start = strlen("background commands: "), most = 280;
    size_t used = start;

    /* "web (12), 17" */
    for (const struct process *process = process_first(); process && used < most;
         process = process->next) {
        if (!(process->flags & EXEC_BACKGROUND) || process->fetched)
            continue;
        bool has_tag = *process->tag;
        int len = snprintf(hint + used, sizeof hint - used, "%s%s%s%d%s",
                           used > start ? ", " : "", process->tag, has_tag ? " (" : "",
                           (int)process->pid, has_tag ? ")" : "");
        used += len > 0 ? (size_t)len : 0;
    }
    return fail(peer, CAY_E_NOT_FOUND, 0, "process.attach", which,
                "no background command has this pid or tag", hint);
}

/* Plain decimal digits are a pid; anything else is a tag. */
static pid_t parse_pid(const char *text)
{
    char *end;

    if (*text < '1' || *text > '9' || strlen(text) > 9)
        return 0;
    long pid = strtol(text, &end, 10);
    return *end ? 0 : (pid_t)pid;
}

bool control_attach(struct peer *peer, const struct packet *packet)
{
    char which[TAG_MAX];
    size_t len = packet->head.len;

    if (peer->process || len == 0 || len >= sizeof which ||
        memchr(packet->payload, 0, len))
        return false;
    memcpy(which, packet->payload, len);
    which[len] = '\0';
    pid_t pid = parse_pid(which);
    struct process *process = find(pid, pid ? "" : which);
    if (!process)
        return fail_unknown(peer, which);
    process_attach(process, peer);
    const struct exec_started started = {process->pid, process->flags};
    peer_reply(peer, MESSAGE_STARTED, &started, sizeof started);
    return true;
}

/* --- Terminals --- */

enum { ROWS = 24, COLUMNS = 80, TERMINAL_MODE = 0620 };

static dev_t terminals; /* of /dev/pts; 0: there are none */
static const char *maker = "ptmx";

/* A checkpoint replaces the mounts, and Landlock denies all below one that is not in the
 * root any more: a descriptor of /dev/pts cannot be kept. */
static int open_terminals(void)
{
    struct statfs fs;
    struct stat st;
    AUTO_FD dir =
        openat(AT_FDCWD, "/dev/pts", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0)
        return -errno;
    if (fstatfs(dir, &fs) != 0 || fs.f_type != DEVPTS_SUPER_MAGIC || fstat(dir, &st) != 0)
        return -ENODEV;
    if (!terminals)
        terminals = st.st_dev;
    return terminals == st.st_dev ? TAKE_FD(dir) : -ENODEV;
}

void control_prepare_terminals(bool are_ours)
{
    /* Only our own devpts has a ptmx with mode 0666. */
    if (!are_ours)
        maker = "/dev/ptmx";
    AUTO_FD unused = open_terminals();
}

static int resize(int master, uint16_t rows, uint16_t columns)
{
    const struct winsize size = {.ws_row = rows ? rows : ROWS,
                                 .ws_col = columns ? columns : COLUMNS};

    return ioctl(master, TIOCSWINSZ, &size) == 0 ? 0 : -errno;
}

/* The slave is opened through its master (TIOCGPTPEER), never by name. */
int control_open_terminal(uid_t owner, uint16_t rows, uint16_t columns, int *ret_master,
                          int *ret_slave)
{
    struct termios settings;
    int locked = 0;

    AUTO_FD dir = terminals ? open_terminals() : -ENODEV;
    if (dir < 0)
        return TAKE_FD(dir);
    AUTO_FD master = openat(dir, maker, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &locked) != 0)
        return -errno;
    AUTO_FD slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || fchown(slave, owner, (gid_t)-1) != 0 ||
        fchmod(slave, TERMINAL_MODE) != 0 || tcgetattr(slave, &settings) != 0)
        return -errno;
    settings.c_iflag |= IUTF8;
    if (tcsetattr(slave, TCSANOW, &settings) != 0)
        return -errno;
    int error = resize(master, rows, columns);
    if (error)
        return error;
    *ret_master = TAKE_FD(master);
    *ret_slave = TAKE_FD(slave);
    return 0;
}

/* --- Input and terminal --- */

static int input_of(const struct process *process)
{
    if (!process || !(process->flags & EXEC_KEEP_INPUT))
        return -1;
    return process->flags & EXEC_TTY ? process->outputs[0].fd : process->input;
}

bool control_write(struct peer *peer, const struct packet *packet)
{
    int fd = input_of(peer->process);

    if (!peer->process)
        return false;
    if (fd < 0)
        return fail(peer, CAY_E_INVALID, 0, "process.write", NULL,
                    "the command's input is not open",
                    "start the command with CAY_EXEC_INPUT; a closed input cannot be "
                    "reopened");
    ssize_t put = write(fd, packet->payload, packet->head.len);
    if (put < 0 && errno != EAGAIN && errno != EINTR)
        return fail(peer, CAY_E_IO, errno, "process.write", NULL,
                    "no process reads the command's input any more",
                    "check whether the command has ended");
    uint32_t written = put > 0 ? (uint32_t)put : 0;
    peer_reply(peer, MESSAGE_WRITTEN, &written, sizeof written);
    return true;
}

bool control_close_input(struct peer *peer)
{
    struct process *process = peer->process;

    if (!process)
        return false;
    if (process->flags & EXEC_TTY && process->outputs[0].fd >= 0)
        (void)!write(process->outputs[0].fd, &end_of_input, 1);
    else if (process->input >= 0)
        (void)close(process->input);
    process->input = -1;
    process->flags &= ~(unsigned)EXEC_KEEP_INPUT;
    return done(peer);
}

bool control_skip(struct peer *peer)
{
    struct process *process = peer->process;

    if (!process)
        return false;
    for (int i = 0; i < 2; i++)
        peer->at[i] = process->outputs[i].ring.end;
    output_resume(process);
    return done(peer);
}

bool control_resize(struct peer *peer, const struct packet *packet)
{
    struct resize_request size;

    if (!peer->process || packet->head.len != sizeof size)
        return false;
    memcpy(&size, packet->payload, sizeof size);
    int fd = peer->process->flags & EXEC_TTY ? peer->process->outputs[0].fd : -1;
    if (fd < 0 || resize(fd, size.rows, size.columns) != 0)
        return fail(peer, CAY_E_INVALID, 0, "process.resize", NULL,
                    "the command has no terminal", "start the command with CAY_EXEC_TTY");
    return done(peer);
}

/* --- Signals and kill --- */

bool control_signal(struct peer *peer, const struct packet *packet)
{
    struct process *process = peer->process;
    char pid[16];
    int32_t number;

    if (!process || packet->head.len != sizeof number)
        return false;
    memcpy(&number, packet->payload, sizeof number);
    if (number < 1 || number > SIGRTMAX)
        return fail(peer, CAY_E_INVALID, 0, "process.signal", NULL, "invalid signal",
                    "pass a signal number from 1 to 64");
    bool requests_end = number == SIGTERM || number == SIGKILL;
    /* For EXEC_PIPED the first process may have ended while others still write. */
    bool is_awaited = process->ended && !process->finished && process->flags & EXEC_PIPED;
    /* The pid is not reused before PID 1 has waited for it. */
    if (!(is_awaited && requests_end) &&
        (process->ended || kill(process->pid, number) != 0)) {
        snprintf(pid, sizeof pid, "%d", (int)process->pid);
        return fail(peer, CAY_E_NOT_FOUND, ESRCH, "process.signal",
                    *process->tag ? process->tag : pid, "the command has ended",
                    "its output and its result can still be read");
    }
    process->end_requested |= requests_end;
    return done(peer);
}

/* Also kills background children of an ended command: its cgroup stays as long as they
 * run. */
bool control_kill(struct peer *peer, const struct packet *packet)
{
    uint32_t wants_reply;

    if (packet->head.len != sizeof wants_reply)
        return false;
    memcpy(&wants_reply, packet->payload, sizeof wants_reply);
    if (peer->process)
        process_kill(peer->process);
    if (wants_reply && !peer->process)
        return done(peer);
    peer->wants_kill_reply = wants_reply;
    return true;
}

bool control_forget(struct peer *peer)
{
    if (!peer->process)
        return false;
    if (peer->process->finished)
        peer->process->fetched = true;
    return true;
}

/* --- The list --- */

void control_count(struct state *state)
{
    for (const struct process *process = process_first(); process;
         process = process->next)
        if (!process->finished && !process->is_own)
            ++*(process->flags & EXEC_BACKGROUND ? &state->background
                                                 : &state->foreground);
        else if (process->flags & EXEC_BACKGROUND && !process->fetched)
            state->ended++;
}

static void describe(const struct process *process, struct list_entry *entry)
{
    *entry = (struct list_entry){
        .number = process->number,
        .pid = process->pid,
        .uid = process->uid,
        .flags = (process->flags & EXEC_BACKGROUND ? (unsigned)LIST_BACKGROUND : 0) |
                 (process->finished ? (unsigned)LIST_ENDED : 0) |
                 (process->flags & EXEC_TTY ? (unsigned)LIST_TERMINAL : 0),
        .status = process->end.status,
        .cause = process->end.cause,
        .killed = process->end.killed,
        .mark = process->end.mark,
        .started_ms = process->started_ms,
    };
    memcpy(entry->tag, process->tag, sizeof entry->tag);
    memcpy(entry->words, process->words, sizeof entry->words);
}

bool control_list(struct peer *peer, const struct packet *packet, int proc)
{
    static LARGE struct {
        struct list_head head;
        struct list_entry entries[LIST_PAGE];
    } page;
    uint64_t after;

    if (packet->head.len != sizeof after)
        return false;
    memcpy(&after, packet->payload, sizeof after);
    /* The library reads /proc next; it must know the pid of the preforked child to leave
     * it out. */
    if (prefork_is_wanted() && !process_is_paused)
        process_prefork();
    page.head.count = 0;
    page.head.prefork = prefork_pid();
    for (const struct process *process = process_first();
         process && page.head.count < LIST_PAGE; process = process->next) {
        bool gone = process->finished &&
                    (process->fetched || !(process->flags & EXEC_BACKGROUND));
        if (process->number > after && !gone && !process->is_own)
            describe(process, &page.entries[page.head.count++]);
    }
    peer_send(peer, MESSAGE_LISTED, &page,
              sizeof page.head + page.head.count * sizeof *page.entries,
              after == 0 ? proc : -1);
    return true;
}

/* --- Ports inside --- */

/* On loopback a connection succeeds or is refused at once, or a moment later on a busy
 * machine.  If the listener's backlog is full it stays pending: then the receiver of the
 * socket waits, not PID 1. */
static int dial(const struct sockaddr *address, socklen_t len, int wait_ms)
{
    AUTO_FD fd =
        socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, address, len) != 0) {
        if (errno != EINPROGRESS)
            return -errno;
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, wait_ms);
    }
    int error = 0; /* of a refusal that arrived before connect(2) returned */
    socklen_t error_len = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) != 0 || error)
        return error ? -error : -errno;
    return TAKE_FD(fd);
}

/* For another sandbox, which must not make PID 1 wait, nor reach servers that listen on
 * 127.0.0.1 alone. */
bool control_dial_own(int socket)
{
    struct relay_dial request;
    struct relay_dialled reply = {0};
    struct iovec in = {&request, sizeof request}, out = {&reply, sizeof reply};
    size_t count;
    ssize_t got = rights_receive(socket, &in, 1, NULL, 0, &count, MSG_DONTWAIT);

    if (got == -EAGAIN)
        return true;
    if (got != sizeof request || request.port > UINT16_MAX)
        return false;
    const struct sockaddr_in own = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)request.port),
                                    .sin_addr.s_addr = htonl(COLLECT_OWN)};
    AUTO_FD fd = dial((const struct sockaddr *)&own, sizeof own, 0);
    if (fd < 0)
        reply.error = fd;
    return rights_send(socket, &out, 1, &fd, fd >= 0, MSG_DONTWAIT) == 0;
}

bool control_dial(struct peer *peer, const struct packet *packet)
{
    uint16_t port;
    char text[8];

    if (packet->head.len != sizeof port)
        return false;
    memcpy(&port, packet->payload, sizeof port);
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_port = htons(port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                                     .sin6_port = htons(port),
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    AUTO_FD fd = dial((const struct sockaddr *)&four, sizeof four, DIAL_MS);
    if (fd < 0)
        fd = dial((const struct sockaddr *)&six, sizeof six, DIAL_MS);
    if (fd >= 0) {
        peer_send(peer, MESSAGE_DIALLED, NULL, 0, fd);
        return true;
    }
    snprintf(text, sizeof text, "%u", port);
    return fail(peer, CAY_E_NOT_FOUND, -fd, "sandbox.dial", text,
                "nothing listens on this port in the sandbox",
                "start a server inside, on 127.0.0.1 or on all addresses");
}
