/* SPDX-License-Identifier: Apache-2.0 */

/* Two processes: PID 1, which serves the socket, and the program `sudo`, a copy of
 * cay-init under that name, run by `user` without privileges.  The program accepts the
 * options of sudo(8) that scripts use and requests PID 1 to start the command with its
 * own standard streams.  On a terminal PID 1 opens another one for the command, so that
 * job control works, and the program relays between the two. */
#include "init/sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/error.h"
#include "init/process.h"
#include "sys/io.h"

/* --- PID 1 --- */

/* If the socket cannot be created, the sandbox has no sudo. */
int sudo_listen(const struct plan *plan)
{
    const struct sockaddr_un address = {AF_UNIX, SUDO_SOCKET};

    if (!plan->has_sudo)
        return -1;
    (void)unlink(SUDO_SOCKET); /* of an earlier start */
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(SUDO_SOCKET, 0666) != 0 || listen(fd, SUDO_PEERS_MAX) != 0)
        return -1;
    return TAKE_FD(fd);
}

bool sudo_may_connect(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == 0 || peer.uid == PLAN_USER);
}

/* close(2) of the last descriptor of a network connection can wait, and PID 1 with it. */
static bool may_be_closed(int fd)
{
    struct stat st;
    int domain = AF_UNIX;
    socklen_t len = sizeof domain;

    if (fstat(fd, &st) != 0)
        return false;
    return !S_ISSOCK(st.st_mode) ||
           (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
            domain == AF_UNIX);
}

/* Unsealed, it could be a file on a slow file system, or change while it is read. */
static bool is_sealed(int fd)
{
    const int needed = F_SEAL_SHRINK | F_SEAL_WRITE;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & needed) == needed;
}

static bool is_proper(const struct packet *packet)
{
    const unsigned allowed = EXEC_INPUT | EXEC_TTY | EXEC_IN_MEMFD;
    struct exec_request request;

    if (packet->head.len < sizeof request)
        return false;
    memcpy(&request, packet->payload, sizeof request);
    for (uint32_t i = 0; i < packet->head.fd_count; i++)
        if (!may_be_closed(packet->fds[i]))
            return false;
    bool in_memfd = request.flags & EXEC_IN_MEMFD;
    if (in_memfd && (packet->head.fd_count == 0 ||
                     !is_sealed(packet->fds[packet->head.fd_count - 1])))
        return false;
    return !(request.flags & ~allowed) && !request.timeout_ms;
}

bool sudo_handle(struct peer *peer, struct packet *packet)
{
    if (packet->head.kind == MESSAGE_EXEC)
        return !peer->process && is_proper(packet) && process_execute(peer, packet);
    if (packet->head.kind == MESSAGE_SIGNAL)
        return packet->head.fd_count == 0 && control_signal(peer, packet);
    return false;
}

/* --- The program: its command line --- */

#define SAFE_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

extern char **environ;

struct options {
    const char *user, *directory;
    bool keeps_env, sets_home, is_login, is_shell, is_check;
    const char *kept; /* names with commas between them, or NULL */
    char **set;       /* VAR=value before the command */
    size_t set_count;
    char **argv;
};

static int complain(const char *what, const char *why)
{
    char line[1024];
    int len = snprintf(line, sizeof line, "sudo: %.400s: %.400s\n", what, why);

    (void)!write(2, line, (size_t)len);
    return 1;
}

static const char usage[] =
    "usage: sudo [-EHSin] [-u user] [-D directory] [VAR=value] command [argument...]\n"
    "       sudo -v | -l | -k\n"
    "This sudo needs no password; PID 1 of the sandbox starts the command.\n";

/* False for an unknown option. */
static bool take_letter(struct options *options, char letter)
{
    if (letter == 'E')
        options->keeps_env = true;
    else if (letter == 'H')
        options->sets_home = true;
    else if (letter == 'i')
        options->is_login = true;
    else if (letter == 's')
        options->is_shell = true;
    else if (strchr("vlk", letter))
        options->is_check = true;
    else
        return strchr("nSAPBNK", letter); /* no effect here, most are about passwords */
    return true;
}

/* False for an unknown option.  `*at` is left at the last word that was used. */
static bool take_letters(struct options *options, char ***at)
{
    for (const char *letter = **at + 1; *letter; letter++) {
        if (strchr("ugpCDhTrtR", *letter)) {
            char which = *letter;
            const char *value = letter[1] ? letter + 1 : *++*at; /* in the next word */
            if (!value || strchr("hrtR", which))
                return false;
            if (which == 'u')
                options->user = value;
            if (which == 'D')
                options->directory = value;
            return true;
        }
        if (!take_letter(options, *letter))
            return false;
    }
    return true;
}

static bool take_word(struct options *options, const char *word)
{
    static const struct {
        const char *word;
        char letter;
    } words[] = {
        {"preserve-env", 'E'}, {"set-home", 'H'},        {"login", 'i'},
        {"shell", 's'},        {"validate", 'v'},        {"list", 'l'},
        {"stdin", 'S'},        {"non-interactive", 'n'}, {"reset-timestamp", 'k'}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0)
            return take_letter(options, words[i].letter);
    if (strncmp(word, "user=", 5) == 0)
        options->user = word + 5;
    else if (strncmp(word, "chdir=", 6) == 0)
        options->directory = word + 6;
    else if (strncmp(word, "preserve-env=", 13) == 0)
        options->kept = word + 13;
    else
        return false;
    return true;
}

static bool is_assignment(const char *word)
{
    return strchr(word, '=') && *word != '=' && *word != '/';
}

/* Options and assignments may follow each other in any order. */
static bool parse(char **argv, struct options *ret_options)
{
    char **at = argv + 1;

    *ret_options = (struct options){.user = "root", .set = argv};
    for (; *at; at++) {
        bool is_option = **at == '-' && (*at)[1];
        if (strcmp(*at, "--") == 0) {
            at++;
            break;
        }
        if (!is_option && !is_assignment(*at))
            break;
        if (!is_option)
            ret_options->set[ret_options->set_count++] = *at;
        else if ((*at)[1] == '-' ? !take_word(ret_options, *at + 2)
                                 : !take_letters(ret_options, &at))
            return false;
    }
    ret_options->argv = at;
    return *at || ret_options->is_login || ret_options->is_shell || ret_options->is_check;
}

/* --- The request --- */

struct strings {
    struct buf bytes;
    uint32_t argc, envc;
};

static void add(struct buf *bytes, const char *text)
{
    buf_append(bytes, text, strlen(text) + 1);
}

/* "-i" and "-s": the shell of the user, which gets the words as one command. */
static void add_shell(const struct options *options, struct strings *strings)
{
    AUTO_BUF line = {0};
    const char *shell = "/bin/bash";
    FILE *file = fopen("/etc/passwd", "re");
    const struct passwd *entry;

    while (file && (entry = fgetpwent(file)))
        if (strcmp(entry->pw_name, options->user) == 0 && *entry->pw_shell)
            shell = strdup(entry->pw_shell);
    if (file)
        (void)fclose(file);
    add(&strings->bytes, shell ? shell : "/bin/sh");
    strings->argc = 1;
    if (options->is_login && ++strings->argc)
        add(&strings->bytes, "-l");
    if (!*options->argv)
        return;
    buf_init(&line, EXEC_STRINGS_MAX);
    for (char **word = options->argv; *word; word++) {
        buf_append(&line, " ", word != options->argv);
        for (const char *at = *word; *at; at++) {
            bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                            (*at >= '0' && *at <= '9') || strchr("_-$", *at) ||
                            *at & 0x80;
            buf_append(&line, "\\", !is_plain);
            buf_append(&line, at, 1);
        }
    }
    buf_append(&line, "", 1);
    add(&strings->bytes, "-c");
    buf_append(&strings->bytes, line.data, line.len);
    strings->argc += 2;
}

static bool is_named(const char *assignment, const char *list)
{
    size_t len = strcspn(assignment, "=");

    for (; list && *list; list += strcspn(list, ",") + (list[strcspn(list, ",")] != 0))
        if (strcspn(list, ",") == len && strncmp(list, assignment, len) == 0)
            return true;
    return false;
}

/* As sudo(8) does by default: few variables are kept, PATH never. */
static bool is_kept(const struct options *options, const char *assignment)
{
    static const char by_default[] =
        "TERM,COLORTERM,LANG,LANGUAGE,TZ,DISPLAY,XAUTHORITY,http_proxy,https_proxy,"
        "no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY";

    if (is_named(assignment, "PATH,USER,LOGNAME,SHELL") ||
        (options->sets_home && is_named(assignment, "HOME")))
        return false;
    return options->keeps_env || strncmp(assignment, "LC_", 3) == 0 ||
           is_named(assignment, by_default) || is_named(assignment, options->kept);
}

static void add_env(const struct options *options, struct strings *strings)
{
    for (size_t i = 0; i < options->set_count; i++, strings->envc++)
        add(&strings->bytes, options->set[i]);
    for (char **at = environ; !options->is_login && *at; at++)
        if (is_kept(options, *at) && ++strings->envc)
            add(&strings->bytes, *at);
    add(&strings->bytes, SAFE_PATH);
    buf_format(&strings->bytes, "SUDO_USER=%s%cSUDO_UID=%u%cSUDO_GID=%u%c",
               getuid() ? "user" : "root", 0, getuid(), 0, getgid(), 0);
    strings->envc += 4;
}

static void add_directory(const struct options *options, struct buf *bytes)
{
    char here[4096];

    if (options->directory)
        add(bytes, options->directory);
    else if (options->is_login)
        add(bytes, strcmp(options->user, "root") == 0 ? "/root" : "");
    else
        add(bytes, getcwd(here, sizeof here) && *here == '/' ? here : "/");
}

static void write_strings(const struct options *options, struct strings *ret_strings)
{
    buf_init(&ret_strings->bytes, EXEC_STRINGS_MAX);
    add_directory(options, &ret_strings->bytes);
    add(&ret_strings->bytes, options->user);
    add(&ret_strings->bytes, "");
    if (options->is_login || options->is_shell)
        add_shell(options, ret_strings);
    else
        for (char **word = options->argv; *word; word++, ret_strings->argc++)
            add(&ret_strings->bytes, *word);
    add_env(options, ret_strings);
}

static int send_request(int socket, const struct strings *strings, bool tty)
{
    static LARGE char payload[MESSAGE_MAX];
    struct exec_request request = {
        .argc = strings->argc,
        .envc = strings->envc,
        .strings_len = (uint32_t)strings->bytes.len,
        .flags = tty ? EXEC_TTY : EXEC_INPUT,
    };
    struct winsize size = {0};
    int fds[4] = {0, 1, 2};
    size_t count = tty ? 0 : 3, len = sizeof request;
    AUTO_FD memfd = -1;

    if (tty && ioctl(0, TIOCGWINSZ, &size) == 0) {
        request.rows = size.ws_row;
        request.columns = size.ws_col;
    }
    if (strings->bytes.len <= MESSAGE_MAX - sizeof request) {
        memcpy(payload + len, strings->bytes.data, strings->bytes.len);
        len += strings->bytes.len;
    } else {
        memfd = io_memfd("sudo", 0, strings->bytes.data, strings->bytes.len);
        if (memfd < 0)
            return memfd;
        request.flags |= EXEC_IN_MEMFD;
        fds[count++] = memfd;
    }
    memcpy(payload, &request, sizeof request);
    return packet_send(socket, MESSAGE_EXEC, payload, len, fds, count);
}

/* --- While it runs --- */

static const int passed[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                             SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
enum { PASSED = sizeof passed / sizeof *passed };

static struct termios before;
static bool is_raw;

/* Read from a signalfd, so that none is lost. */
static int open_signals(void)
{
    sigset_t all;

    sigemptyset(&all);
    for (size_t i = 0; i < PASSED; i++)
        sigaddset(&all, passed[i]);
    int fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    sigaddset(&all, SIGPIPE);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return fd;
}

static void pass_signals(int signals, int socket, int terminal)
{
    struct signalfd_siginfo info;
    struct winsize size;

    while (read(signals, &info, sizeof info) == sizeof info) {
        int32_t number = (int32_t)info.ssi_signo;
        if (number == SIGWINCH && terminal >= 0 && ioctl(0, TIOCGWINSZ, &size) == 0)
            (void)ioctl(terminal, TIOCSWINSZ, &size);
        else if (number != SIGWINCH)
            (void)packet_send(socket, MESSAGE_SIGNAL, &number, sizeof number, NULL, 0);
    }
}

static void make_raw(void)
{
    struct termios raw;

    if (tcgetattr(0, &before) != 0)
        return;
    raw = before;
    cfmakeraw(&raw);
    is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

static void restore_terminal(void)
{
    if (is_raw)
        (void)tcsetattr(0, TCSADRAIN, &before);
    is_raw = false;
}

/* False at end of file. */
static bool relay(int from, int to)
{
    char bytes[4096];
    ssize_t len = read(from, bytes, sizeof bytes);

    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    return len > 0 && io_write(to, bytes, (size_t)len) == 0;
}

static int fail_start(const struct options *options, const struct cay_error *error)
{
    const char *what = *options->argv ? *options->argv : "shell";

    if (error->sys_errno == ENOENT && error->code == CAY_E_EXEC_FAILED)
        return complain(what, "command not found");
    return complain(*error->subject ? error->subject : what, error->message);
}

static int end_like(int status)
{
    restore_terminal();
    if (WIFSIGNALED(status)) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        (void)raise(WTERMSIG(status));
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}

/* What the command wrote last. */
static void drain(int terminal)
{
    struct pollfd poll_fd = {.fd = terminal, .events = POLLIN};

    while (terminal >= 0 && poll(&poll_fd, 1, 0) > 0 && relay(terminal, 1))
        continue;
}

/* The status to exit with, or -1 to go on. */
static int take_reply(const struct options *options, int socket, int *terminal)
{
    static LARGE struct packet packet;
    struct exec_end end;
    struct cay_error error;

    if (packet_receive(socket, &packet) != 1) {
        restore_terminal();
        return complain(SUDO_SOCKET, "PID 1 closed the connection");
    }
    if (packet.head.kind == MESSAGE_STARTED && packet.head.fd_count == 1) {
        *terminal = TAKE_FD(packet.fds[0]);
        make_raw();
    }
    packet_close_fds(&packet);
    if (packet.head.kind == MESSAGE_ENDED && packet.head.len == sizeof end) {
        memcpy(&end, packet.payload, sizeof end);
        drain(*terminal);
        return end_like(end.status);
    }
    if (packet.head.kind == MESSAGE_FAILED && packet.head.len == sizeof error) {
        memcpy(&error, packet.payload, sizeof error);
        /* Ignore the error of a signal that arrived after the end. */
        return strncmp(error.op, "process.", 8) == 0 ? -1 : fail_start(options, &error);
    }
    return -1;
}

static int attend(const struct options *options, int socket, int signals)
{
    int terminal = -1, status = -1;
    bool reads = true;

    while (status < 0) {
        struct pollfd fds[4] = {
            {.fd = socket, .events = POLLIN},
            {.fd = signals, .events = POLLIN},
            {.fd = terminal, .events = POLLIN},
            {.fd = terminal >= 0 && reads ? 0 : -1, .events = POLLIN}};
        if (poll(fds, 4, -1) <= 0)
            continue;
        pass_signals(signals, socket, terminal);
        if (fds[2].revents && !relay(terminal, 1)) {
            (void)close(terminal);
            terminal = -1;
        }
        if (fds[3].revents && terminal >= 0)
            reads = relay(0, terminal);
        if (fds[0].revents)
            status = take_reply(options, socket, &terminal);
    }
    return status;
}

/* --- */

static int connect_to_init(void)
{
    const struct sockaddr_un address = {AF_UNIX, SUDO_SOCKET};
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return -errno;
    return TAKE_FD(fd);
}

/* Otherwise the socket could get a number of 0 to 2. */
static void open_streams(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd < 3);
    if (fd > 2)
        (void)close(fd);
}

static int print(int fd, const char *text)
{
    return io_write(fd, text, strlen(text)) != 0;
}

int sudo_main(char **argv)
{
    const char *first = argv[1] ? argv[1] : "";
    struct strings strings = {0};
    struct options options;

    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0)
        return print(1, "sudo of Cay " CAY_VERSION "\n");
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return print(1, usage);
    if (!parse(argv, &options)) {
        (void)print(2, usage);
        return 1;
    }
    if (options.is_check && !*options.argv)
        return 0;
    open_streams();
    write_strings(&options, &strings);
    if (strings.bytes.failed)
        return complain("command", "the arguments and environment are too long");
    AUTO_FD socket = connect_to_init();
    if (socket < 0)
        return complain(SUDO_SOCKET, cay_errno_words(-socket));
    AUTO_FD signals = open_signals();
    /* In the foreground of a terminal; else the command gets our own streams. */
    bool tty = isatty(0) && isatty(1) && isatty(2) && tcgetpgrp(0) == getpgrp();
    int error = send_request(socket, &strings, tty);
    buf_done(&strings.bytes);
    return error ? complain(SUDO_SOCKET, cay_errno_words(-error))
                 : attend(&options, socket, signals);
}
