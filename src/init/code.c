/* SPDX-License-Identifier: Apache-2.0 */

/* One process, one poll loop, no blocking call.  The service relays: it looks only at
 * driver lines that are short enough to be "ready" or "done", and passes everything else
 * on as bytes.  It reads from an interpreter only while the client has room, so its
 * memory is bounded, and an interpreter with a slow client waits in write(2).
 *
 * What an interpreter writes to its stdout and stderr belongs to the execution that runs
 * at that moment; between executions it is counted and dropped. */
#include "init/code.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sys/rights.h"

enum {
    LISTEN = 0,  /* the socket to PID 1 */
    NOTHING = 3, /* /dev/null; in an interpreter the channel to the service */
    OUT_MAX = 4 << 20,
    OUT_LOW = CODE_PIECE, /* with more unsent bytes the interpreter waits */
    HEAD_MAX = 256,       /* bytes of a "ready" or "done" line, at most */
    DRAIN_PIECES = 4,     /* what a pipe can hold when an execution ends */
    REST_PIECES = 16,     /* and the channel of an interpreter that has ended */
    CREATE_MAX = 1 << 20,
    AGAIN_MS = 1000,  /* then again: the first signal may come before the code runs */
    KILL_MS = 5000,   /* between an interrupt and the kill */
    START_MS = 60000, /* until an interpreter is ready */
    OOM_SCORE_RAISE = 100,
    OOM_SCORE_MAX = 1000
};

extern char **environ;

struct driver {
    struct driver *next;
    char language[CODE_NAME_MAX];
    char *payload; /* what these point into */
    char **argv;
    const char *tail; /* of each execute line of a context that it was created for */
    const char *body;
    size_t body_len;
    uint64_t interrupt_ms; /* between signals, if one is not enough; 0: it is */
};

/* A request, or the part of it that has arrived. */
struct message {
    struct code_request head;
    size_t got;    /* bytes of head and payload */
    char *payload; /* allocated when the head is complete */
    const char *id, *language, *cwd;
    char **words; /* NULL-terminated */
    const char *body;
    size_t body_len;
};

enum link_state { LINK_READING, LINK_NEEDS_DRIVER, LINK_WAITING, LINK_RUNNING };

/* A connection of a client. */
struct link {
    struct link *next;
    struct link *behind; /* in the queue of the context */
    int fd, slot;
    bool gone;
    enum link_state state;
    struct message incoming, request;
    struct context *context; /* while it waits or runs */
    uint64_t deadline_ns;    /* UINT64_MAX: none */
    struct buf out;
    size_t sent;
};

struct context {
    struct context *next;
    char id[CODE_NAME_MAX], language[CODE_NAME_MAX];
    bool is_default, gone, removing;
    struct message created; /* cwd and environment, or nothing */
    pid_t pid;              /* 0: no interpreter */
    int fds[3];             /* channel, stdout, stderr */
    int slots[3];
    bool ready, was_ready, busy;
    struct link *running; /* NULL while busy: the client is gone */
    struct link *queue;
    uint64_t execution;
    uint64_t again_ns, kill_ns, start_ns; /* UINT64_MAX: never */
    bool timed_out, interrupted;
    bool heard;      /* the driver has reported something since the execution began */
    uint32_t ending; /* why the service killed it: enum code_loss */
    uint32_t loss;   /* why the one before ended */
    int status;
    uint32_t start_reason;
    int start_error;
    uint64_t dropped;
    struct buf input; /* for the driver */
    size_t sent;
    char head[HEAD_MAX]; /* the beginning of the line that is being read */
    size_t head_len;
    bool is_long, skips; /* the line; skips: it began before this execution */
};

static struct driver *drivers;
static struct context *contexts, **last_context = &contexts;
static struct link *links;
static size_t link_count, context_count, pending;
static struct pollfd polled[2 + CODE_REQUESTS_MAX + 3 * CODE_CONTEXTS_MAX];
static char piece[CODE_PIECE];

static void advance(struct context *context);

/* --- Messages --- */

static void message_done(struct message *message)
{
    if (message->payload)
        pending -= message->head.len;
    free(message->payload);
    free(message->words);
    *message = (struct message){0};
}

static const char *next_string(const char **at, const char *end)
{
    const char *string = *at;
    const char *stop = memchr(string, 0, (size_t)(end - string));

    if (!stop)
        return NULL;
    *at = stop + 1;
    return string;
}

/* Points into the payload; false if it is malformed. */
static bool parse(struct message *message)
{
    const char *at = message->payload, *end = at + message->head.len;

    message->id = next_string(&at, end);
    message->language = message->id ? next_string(&at, end) : NULL;
    message->cwd = message->language ? next_string(&at, end) : NULL;
    if (!message->cwd || strlen(message->id) >= CODE_NAME_MAX ||
        strlen(message->language) >= CODE_NAME_MAX ||
        strlen(message->cwd) >= sizeof((struct code_context *)0)->cwd)
        return false;
    message->words = calloc(message->head.words + 1, sizeof *message->words);
    for (uint32_t i = 0; message->words && i < message->head.words; i++) {
        const char *word = next_string(&at, end);
        if (!word)
            return false;
        message->words[i] = (char *)(uintptr_t)word;
    }
    message->body = at;
    message->body_len = (size_t)(end - at);
    return message->words != NULL;
}

/* --- Events --- */

static int64_t since_1970_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void put(struct link *link, uint32_t kind, const void *payload, size_t len)
{
    const struct code_event event = {kind, (uint32_t)len, since_1970_ns()};

    if (!link || link->gone)
        return;
    buf_append(&link->out, &event, sizeof event);
    buf_append(&link->out, payload, len);
    link->gone |= link->out.failed;
}

static void flush(struct link *link)
{
    while (!link->gone && link->sent < link->out.len) {
        ssize_t len = send(link->fd, link->out.data + link->sent,
                           link->out.len - link->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (len < 0 && errno == EAGAIN)
            return;
        if (len <= 0)
            link->gone = true;
        else
            link->sent += (size_t)len;
    }
    if (link->out.room > 2 * OUT_LOW) {
        buf_done(&link->out);
        buf_init(&link->out, OUT_MAX);
    }
    link->out.len = link->sent = 0;
}

/* The request is over; the connection may send another. */
static void end(struct link *link, const struct code_end *how)
{
    if (!link)
        return;
    put(link, CODE_EVENT_END, how, sizeof *how);
    message_done(&link->request);
    link->state = LINK_READING;
    link->context = NULL;
    link->deadline_ns = UINT64_MAX;
    flush(link);
}

static void end_for(struct link *link, uint32_t reason, int error)
{
    const struct code_end how = {.reason = reason, .error = error};

    end(link, &how);
}

static void describe(struct link *link, const struct context *context)
{
    struct code_context about = {
        .is_default = context->is_default, .is_busy = context->busy, .pid = context->pid};

    memcpy(about.id, context->id, sizeof about.id);
    memcpy(about.language, context->language, sizeof about.language);
    if (context->created.cwd)
        cay_copy_text(about.cwd, sizeof about.cwd, context->created.cwd);
    for (const struct link *one = context->queue; one; one = one->behind)
        about.waiting++;
    put(link, CODE_EVENT_CONTEXT, &about, sizeof about);
}

/* --- The queue of a context --- */

static void queue_add(struct context *context, struct link *link, bool first)
{
    struct link **at = &context->queue;

    while (*at && !first)
        at = &(*at)->behind;
    link->behind = *at;
    *at = link;
    link->context = context;
    link->state = LINK_WAITING;
}

static void queue_remove(struct link *link)
{
    struct link **at = &link->context->queue;

    while (*at && *at != link)
        at = &(*at)->behind;
    if (*at)
        *at = link->behind;
    link->behind = NULL;
}

static void fail_queue(struct context *context, uint32_t reason)
{
    while (context->queue) {
        struct link *link = context->queue;
        queue_remove(link);
        end_for(link, reason, 0);
    }
}

/* --- Contexts --- */

static struct context *find_context(const char *id)
{
    struct context *context = contexts;

    while (context &&
           (context->gone || context->removing || strcmp(context->id, id) != 0))
        context = context->next;
    return context;
}

static struct context *find_default(const char *language)
{
    struct context *context = contexts;

    while (context && (context->gone || context->removing || !context->is_default ||
                       strcmp(context->language, language) != 0))
        context = context->next;
    return context;
}

static const struct driver *find_driver(const char *language)
{
    const struct driver *driver = drivers;

    while (driver && strcmp(driver->language, language) != 0)
        driver = driver->next;
    return driver;
}

static bool make_id(char id[CODE_NAME_MAX])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char random[16];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return false;
    memcpy(id, "ctx-", 4);
    for (size_t i = 0; i < sizeof random; i++)
        id[4 + i] = letters[random[i] % 32];
    return true;
}

/* In the order of their creation. */
static struct context *add_context(const char *language, bool is_default)
{
    struct context *context = calloc(1, sizeof *context);

    if (!context || !make_id(context->id)) {
        free(context);
        return NULL;
    }
    cay_copy_text(context->language, sizeof context->language, language);
    context->is_default = is_default;
    for (int i = 0; i < 3; i++)
        context->fds[i] = context->slots[i] = -1;
    context->again_ns = context->kill_ns = context->start_ns = UINT64_MAX;
    buf_init(&context->input, CODE_BODY_MAX + (1 << 20));
    *last_context = context;
    last_context = &context->next;
    context_count++;
    return context;
}

static void close_fds(struct context *context)
{
    for (int i = 0; i < 3; i++) {
        if (context->fds[i] >= 0)
            (void)close(context->fds[i]);
        context->fds[i] = -1;
    }
}

static void kill_interpreter(struct context *context, uint32_t loss)
{
    context->ending = loss;
    context->ready = false;
    context->again_ns = context->kill_ns = context->start_ns = UINT64_MAX;
    if (context->pid)
        (void)kill(-context->pid, SIGKILL);
}

static void interrupt(struct context *context)
{
    if (!context->busy || !context->ready)
        return;
    uint64_t now = clock_ns();
    uint64_t again_ms = find_driver(context->language)->interrupt_ms;
    (void)kill(-context->pid, SIGINT);
    if (context->kill_ns == UINT64_MAX)
        context->kill_ns = now + KILL_MS * 1000000ull;
    if (again_ms || !context->heard)
        context->again_ns = now + (again_ms ? again_ms : AGAIN_MS) * 1000000ull;
}

/* --- Starting an interpreter --- */

/* The kernel kills interpreters before the service. */
static void raise_oom_score(void)
{
    char text[16] = "";
    AUTO_FD fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return;
    long score = strtol(text, NULL, 10) + OOM_SCORE_RAISE;
    int len =
        snprintf(text, sizeof text, "%ld", score < OOM_SCORE_MAX ? score : OOM_SCORE_MAX);
    (void)!pwrite(fd, text, (size_t)len, 0);
}

static _Noreturn void fail_start(const char *step)
{
    char line[32];
    int len = snprintf(line, sizeof line, "!%s %d\n", step, errno);

    (void)!write(NOTHING, line, (size_t)len);
    _exit(127);
}

static bool place(int fd, int at)
{
    return dup3(fd, at, 0) == at; /* allow: cloexec the interpreter inherits it */
}

/* In the new process: stdin is /dev/null, which is at NOTHING until the channel is. */
static _Noreturn void become_interpreter(const struct context *context,
                                         const struct driver *driver, const int ends[3])
{
    sigset_t none;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* without the service it is of no use */
    raise_oom_score();
    if (!place(NOTHING, 0) || !place(ends[1], 1) || !place(ends[2], 2) ||
        !place(ends[0], NOTHING))
        _exit(127);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (char **word = context->created.words; word && *word; word++)
        if (putenv(*word) != 0)
            fail_start("exec");
    if (context->created.cwd && *context->created.cwd && chdir(context->created.cwd) != 0)
        fail_start("cwd");
    (void)execvp(driver->argv[0], driver->argv);
    fail_start("exec");
}

/* Ours and the interpreter's, of the channel and the two pipes. */
static int open_ends(int ours[3], int theirs[3])
{
    for (int i = 0; i < 3; i++) {
        int ends[2];
        int error = i ? pipe2(ends, O_CLOEXEC)
                      : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
        if (error != 0)
            return -errno;
        ours[i] = ends[0];
        theirs[i] = ends[1];
        if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0)
            return -errno;
    }
    return 0;
}

static void write_input(struct context *context)
{
    while (context->fds[0] >= 0 && context->sent < context->input.len) {
        ssize_t len =
            send(context->fds[0], context->input.data + context->sent,
                 context->input.len - context->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (len < 0 && errno == EAGAIN)
            return;
        if (len <= 0)
            break; /* it has ended, which on_exit() will find */
        context->sent += (size_t)len;
    }
    if (context->input.room > 2 * OUT_LOW || context->input.failed) {
        buf_done(&context->input);
        buf_init(&context->input, CODE_BODY_MAX + (1 << 20));
    }
    context->input.len = context->sent = 0;
}

/* 0 or a negative errno. */
static int start_interpreter(struct context *context)
{
    const struct driver *driver = find_driver(context->language);
    int ours[3] = {-1, -1, -1}, theirs[3] = {-1, -1, -1};
    int error = open_ends(ours, theirs);
    pid_t pid = error ? -1 : fork(); /* allow: fork the service is a small process */

    if (pid == 0)
        become_interpreter(context, driver, theirs);
    if (!error && pid < 0)
        error = -errno;
    for (int i = 0; i < 3; i++) {
        if (theirs[i] >= 0)
            (void)close(theirs[i]);
        if (error && ours[i] >= 0)
            (void)close(ours[i]);
    }
    if (error)
        return error;
    (void)setpgid(pid, pid); /* whichever process is first */
    memcpy(context->fds, ours, sizeof ours);
    context->pid = pid;
    context->head_len = 0;
    context->is_long = context->skips = false;
    context->start_reason = context->start_error = 0;
    context->ending = CODE_LOSS_NONE;
    context->start_ns = clock_ns() + START_MS * 1000000ull;
    context->input.len = context->sent = 0;
    if (driver->body_len) {
        buf_append(&context->input, driver->body, driver->body_len);
        write_input(context);
    }
    return 0;
}

/* --- An execution --- */

static void begin(struct context *context, struct link *link)
{
    struct code_started started = {
        .dropped = context->dropped, .loss = context->loss, .status = context->status};

    context->running = link;
    context->busy = true;
    link->state = LINK_RUNNING;
    context->timed_out = context->interrupted = context->heard = false;
    context->dropped = 0;
    context->loss = CODE_LOSS_NONE;
    context->skips = context->head_len > 0 || context->is_long;
    memcpy(started.id, context->id, sizeof started.id);
    memcpy(started.language, context->language, sizeof started.language);
    put(link, CODE_EVENT_STARTED, &started, sizeof started);
    buf_format(&context->input, "{\"type\":\"execute\",\"id\":%llu,",
               (unsigned long long)++context->execution);
    buf_append(&context->input, link->request.body, link->request.body_len);
    if (*link->request.id)
        buf_text(&context->input, find_driver(context->language)->tail);
    buf_append(&context->input, "}\n", 2);
    if (context->input.failed) /* no memory: the interpreter got none of it */
        kill_interpreter(context, CODE_LOSS_KILLED);
    flush(link); /* first: a client without this event may send the request again */
    write_input(context);
}

/* Output of an execution, or of none. */
static void pass(struct context *context, uint32_t kind, const char *data, size_t len)
{
    if (context->running)
        put(context->running, kind, data, len);
    else if (!context->busy && context->was_ready)
        context->dropped += len;
}

/* One read of a pipe; false if it is empty. */
static bool read_pipe(struct context *context, int stream)
{
    ssize_t len = read(context->fds[stream], piece, sizeof piece);

    if (len > 0)
        pass(context, stream == 1 ? CODE_EVENT_OUT : CODE_EVENT_ERROR, piece,
             (size_t)len);
    if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR)) {
        (void)close(context->fds[stream]);
        context->fds[stream] = -1;
    }
    return len > 0;
}

static void drain(struct context *context)
{
    for (int stream = 1; stream <= 2; stream++)
        for (int i = 0; i < DRAIN_PIECES && context->fds[stream] >= 0; i++)
            if (!read_pipe(context, stream))
                break;
}

/* Ends the execution; the caller then calls advance(). */
static void finish(struct context *context, const struct code_end *how)
{
    struct code_end all = *how;

    all.timed_out = context->timed_out;
    all.interrupted = context->interrupted;
    context->busy = false;
    context->again_ns = context->kill_ns = UINT64_MAX;
    struct link *link = context->running;
    context->running = NULL;
    end(link, &all);
}

/* --- Lines of a driver --- */

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* A flat JSON object with plain strings, as drivers write "ready" and "done".  Whether
 * its type is `type`; *ret_id is its id. */
static bool is_line(const char *line, const char *type, uint64_t *ret_id)
{
    const char *at = skip_space(line);
    bool is_type = false;

    if (*at++ != '{')
        return false;
    for (at = skip_space(at); *at == '"'; at = skip_space(at)) {
        const char *key = ++at;
        at += strcspn(at, "\"\\");
        size_t key_len = (size_t)(at - key);
        if (*at != '"')
            return false;
        at = skip_space(at + 1);
        if (*at++ != ':')
            return false;
        at = skip_space(at);
        const char *value = at + (*at == '"');
        size_t len = *at == '"' ? strcspn(value, "\"\\") : strcspn(value, ",} \t\r\n");
        if (*at == '"' && value[len] != '"')
            return false;
        if (key_len == 4 && memcmp(key, "type", 4) == 0)
            is_type = len == strlen(type) && memcmp(value, type, len) == 0;
        if (key_len == 2 && memcmp(key, "id", 2) == 0)
            *ret_id = strtoull(value, NULL, 10);
        at = skip_space(value + len + (*at == '"'));
        if (*at == ',')
            at++;
    }
    return is_type && *at == '}';
}

/* "!exec 2": a process that could not become the interpreter. */
static void note_failure(struct context *context, const char *line)
{
    bool is_cwd = strncmp(line, "!cwd ", 5) == 0;

    context->start_reason = is_cwd ? CODE_NO_CWD : CODE_NO_EXEC;
    context->start_error = (int)strtol(line + (is_cwd ? 5 : 6), NULL, 10);
}

/* A whole line has arrived.  True if it ends the execution. */
static bool take_line(struct context *context)
{
    uint64_t id = 0;
    char line[HEAD_MAX + 1];

    if (context->is_long)
        return false;
    memcpy(line, context->head, context->head_len);
    line[context->head_len] = '\0';
    if (context->busy)
        return is_line(line, "done", &id) && id == context->execution;
    if (context->ready || context->start_ns == UINT64_MAX)
        return false;
    if (line[0] == '!') {
        note_failure(context, line);
    } else if (is_line(line, "ready", &id)) {
        context->ready = context->was_ready = true;
        context->start_ns = UINT64_MAX;
    }
    return false;
}

static void note_head(struct context *context, const char *data, size_t len)
{
    if (context->is_long || len > sizeof context->head - context->head_len) {
        context->is_long = true;
        return;
    }
    memcpy(context->head + context->head_len, data, len);
    context->head_len += len;
}

static void take_lines(struct context *context, const char *data, size_t len)
{
    const struct code_end done = {.reason = CODE_DONE};
    const char *from = data, *stop = data + len; /* from: not passed on yet */

    context->heard = true;
    for (const char *at = data; at < stop;) {
        const char *newline = memchr(at, '\n', (size_t)(stop - at));
        const char *next = newline ? newline + 1 : stop;
        note_head(context, at, (size_t)(next - at));
        at = next;
        if (!newline)
            break;
        if (context->skips) {
            context->skips = false;
            from = at;
        } else if (take_line(context)) {
            drain(context);
            pass(context, CODE_EVENT_LINES, from, (size_t)(at - from));
            finish(context, &done);
            from = at;
        }
        context->head_len = 0;
        context->is_long = false;
    }
    if (from < stop && !context->skips)
        pass(context, CODE_EVENT_LINES, from, (size_t)(stop - from));
}

/* One read of the channel; false if it is empty. */
static bool read_channel(struct context *context)
{
    static char lines[CODE_PIECE]; /* not `piece`: the end of an execution drains pipes */
    ssize_t len = recv(context->fds[0], lines, sizeof lines, MSG_DONTWAIT);

    if (len > 0)
        take_lines(context, lines, (size_t)len);
    if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR)) {
        /* Without its channel an interpreter is of no use. */
        (void)close(context->fds[0]);
        context->fds[0] = -1;
        if (context->pid)
            (void)kill(-context->pid, SIGKILL);
    }
    return len > 0;
}

/* --- The end of an interpreter --- */

static void fail_starting(struct context *context)
{
    struct code_end how = {.reason = context->start_reason, .status = context->status};
    struct link *link = context->queue;

    how.error = context->start_error;
    how.loss = context->loss;
    if (!how.reason)
        how.reason = CODE_NO_START;
    if (link) {
        queue_remove(link);
        end(link, &how);
    }
    if (!context->was_ready && !context->queue)
        context->gone = true;
}

static void on_exit_of(struct context *context, int status)
{
    bool was_starting = !context->ready && context->start_ns != UINT64_MAX;

    for (int i = 0; i < REST_PIECES && context->fds[0] >= 0; i++)
        if (!read_channel(context))
            break;
    drain(context);
    close_fds(context);
    context->pid = 0;
    context->ready = false;
    context->start_ns = UINT64_MAX;
    context->status = status;
    context->loss = context->ending ? context->ending : CODE_LOSS_DIED;
    if (context->busy) {
        const struct code_end lost = {
            .reason = CODE_LOST, .loss = context->loss, .status = status};
        finish(context, &lost);
    }
    if (context->removing) {
        end_for(context->queue, CODE_DONE, 0); /* the request to remove it */
        context->queue = NULL;
        context->gone = true;
    } else if (was_starting || context->loss == CODE_LOSS_SILENT) {
        fail_starting(context);
    }
    advance(context);
}

/* An interpreter that has ended stays a zombie until its process group is killed: the
 * group's number is not used again before that. */
static void reap(void)
{
    for (struct context *context = contexts; context; context = context->next) {
        siginfo_t info = {0};
        int status = 0;
        if (!context->pid ||
            waitid(P_PID, (id_t)context->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != context->pid)
            continue;
        (void)kill(-context->pid, SIGKILL);
        if (waitpid(context->pid, &status, 0) == context->pid)
            on_exit_of(context, status);
    }
}

/* --- Requests --- */

static void advance(struct context *context)
{
    while (!context->gone && !context->removing && !context->busy && context->queue) {
        struct link *link = context->queue;
        if (!context->pid) {
            int error = start_interpreter(context);
            if (!error)
                return;
            context->start_reason = CODE_NO_FORK;
            context->start_error = -error;
            fail_starting(context);
            continue;
        }
        if (!context->ready)
            return;
        queue_remove(link);
        if (link->request.head.op == CODE_EXECUTE) {
            begin(context, link);
            return;
        }
        describe(link, context);
        end_for(link, CODE_DONE, 0);
    }
}

/* For EXECUTE and CREATE: a new context, if the limit and the drivers allow it. */
static struct context *create(struct link *link, bool is_default)
{
    if (!find_driver(link->request.language)) {
        link->state = LINK_NEEDS_DRIVER;
        put(link, CODE_EVENT_NEED, NULL, 0);
        flush(link);
        return NULL;
    }
    struct context *context = context_count < CODE_CONTEXTS_MAX
                                  ? add_context(link->request.language, is_default)
                                  : NULL;
    if (!context)
        end_for(link, CODE_TOO_MANY, 0);
    return context;
}

static void execute(struct link *link)
{
    const struct message *request = &link->request;
    struct context *context =
        *request->id ? find_context(request->id) : find_default(request->language);

    if (!context && *request->id) {
        end_for(link, CODE_UNKNOWN, 0);
        return;
    }
    if (!context)
        context = create(link, true);
    if (!context)
        return;
    queue_add(context, link, false);
    advance(context);
}

static void create_context(struct link *link)
{
    struct context *context = create(link, false);

    if (!context)
        return;
    context->created = link->request;
    pending -= link->request.head.len;
    context->created.head.len = 0; /* it is not pending any more */
    link->request = (struct message){.head = context->created.head};
    queue_add(context, link, false);
    advance(context);
}

static void list(struct link *link)
{
    for (const struct context *context = contexts; context; context = context->next)
        if (!context->gone && !context->removing)
            describe(link, context);
    end_for(link, CODE_DONE, 0);
}

static void restart(struct context *context, struct link *link)
{
    queue_add(context, link, true);
    kill_interpreter(context, CODE_LOSS_RESTARTED);
    advance(context);
}

static void remove_context(struct context *context, struct link *link)
{
    const struct code_end removed = {.reason = CODE_REMOVED};

    if (context->busy)
        finish(context, &removed);
    fail_queue(context, CODE_REMOVED);
    kill_interpreter(context, CODE_LOSS_RESTARTED);
    context->removing = context->pid != 0;
    context->gone = context->pid == 0;
    if (context->removing)
        queue_add(context, link, true);
    else
        end_for(link, CODE_DONE, 0);
}

static void on_request(struct link *link)
{
    uint32_t op = link->request.head.op;
    struct context *context = find_context(link->request.id);

    if (link->request.head.timeout_ms &&
        link->request.head.timeout_ms < UINT64_MAX / 4000000)
        link->deadline_ns = clock_ns() + link->request.head.timeout_ms * 1000000;
    if (op == CODE_EXECUTE)
        execute(link);
    else if (op == CODE_CREATE)
        create_context(link);
    else if (op == CODE_LIST)
        list(link);
    else if (!context)
        end_for(link, CODE_UNKNOWN, 0);
    else if (op == CODE_RESTART)
        restart(context, link);
    else if (op == CODE_REMOVE)
        remove_context(context, link);
    else {
        context->interrupted |= context->busy;
        interrupt(context);
        end_for(link, CODE_DONE, 0);
    }
}

/* DRIVER, the answer to NEED: then the request goes on. */
static void add_driver(struct link *link)
{
    struct driver *driver = calloc(1, sizeof *driver);

    if (!driver || !link->incoming.head.words) {
        free(driver);
        link->gone = true;
        return;
    }
    cay_copy_text(driver->language, sizeof driver->language, link->incoming.language);
    driver->payload = link->incoming.payload;
    driver->argv = link->incoming.words;
    driver->tail = link->incoming.cwd;
    driver->interrupt_ms = link->incoming.head.timeout_ms;
    driver->body = link->incoming.body;
    driver->body_len = link->incoming.body_len;
    driver->next = drivers;
    drivers = driver;
    pending -= link->incoming.head.len;
    link->incoming = (struct message){0};
    link->state = LINK_READING;
    if (!find_driver(link->request.language))
        link->gone = true;
    else
        on_request(link);
}

/* --- Connections --- */

/* The head of a message has arrived: room for the rest, if it is sensible. */
static bool admit(struct link *link)
{
    struct message *message = &link->incoming;
    const struct code_request *head = &message->head;
    bool is_driver = link->state == LINK_NEEDS_DRIVER;

    if (head->op < CODE_EXECUTE || head->op > CODE_DRIVER ||
        is_driver != (head->op == CODE_DRIVER) || head->words > CODE_STRINGS_MAX ||
        head->len > (head->op == CODE_CREATE ? CREATE_MAX : CODE_BODY_MAX))
        return false;
    if (pending + head->len <= CODE_PENDING_MAX)
        message->payload = malloc(head->len + 1u);
    if (message->payload) {
        pending += head->len;
        return true;
    }
    end_for(link, CODE_FULL, 0); /* and hang up: the payload was not read */
    return false;
}

static void on_message(struct link *link)
{
    if (!parse(&link->incoming)) {
        link->gone = true;
    } else if (link->state == LINK_NEEDS_DRIVER) {
        add_driver(link);
    } else {
        link->request = link->incoming;
        link->incoming = (struct message){0};
        on_request(link);
    }
}

/* Reads as much of the request as there is.  Nothing may arrive while a request runs. */
static void on_readable(struct link *link)
{
    struct message *message = &link->incoming;
    bool expects = link->state == LINK_READING || link->state == LINK_NEEDS_DRIVER;

    while (!link->gone) {
        bool in_head = message->got < sizeof message->head;
        size_t all = sizeof message->head + (in_head ? 0 : message->head.len);
        char *to = in_head ? (char *)&message->head + message->got
                           : message->payload + message->got - sizeof message->head;
        ssize_t len = recv(link->fd, to, all - message->got, MSG_DONTWAIT);
        if (len < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (len <= 0 || !expects) {
            link->gone = true;
            return;
        }
        message->got += (size_t)len;
        if (message->got == sizeof message->head && !admit(link))
            link->gone = true;
        else if (message->got > sizeof message->head &&
                 message->got == sizeof message->head + message->head.len) {
            on_message(link);
            return;
        }
    }
}

static void accept_link(void)
{
    char byte;
    struct iovec part = {&byte, 1};
    int fd = -1;
    size_t count;
    ssize_t len = rights_receive(LISTEN, &part, 1, &fd, 1, &count, MSG_DONTWAIT);

    if (len == 0)
        _exit(0); /* PID 1 has closed it: there will be no more requests */
    if (len < 0 || fd < 0)
        return;
    struct link *link = link_count < CODE_REQUESTS_MAX ? calloc(1, sizeof *link) : NULL;
    if (!link) {
        const struct code_event event = {CODE_EVENT_END, sizeof(struct code_end), 0};
        const struct code_end full = {.reason = CODE_FULL};
        (void)send(fd, &event, sizeof event, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)send(fd, &full, sizeof full, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)close(fd);
        return;
    }
    link->fd = fd;
    link->slot = -1;
    link->deadline_ns = UINT64_MAX;
    buf_init(&link->out, OUT_MAX);
    link->next = links;
    links = link;
    link_count++;
    on_readable(link); /* the request is usually there already */
}

/* The client is gone: its request is removed, or its execution interrupted. */
static void abandon(struct link *link)
{
    struct context *context = link->context;

    if (link->state == LINK_WAITING)
        queue_remove(link);
    if (link->state == LINK_RUNNING) {
        context->running = NULL;
        interrupt(context);
    }
    (void)close(link->fd);
    message_done(&link->incoming);
    message_done(&link->request);
    buf_done(&link->out);
    free(link);
    link_count--;
}

static void free_context(struct context *context)
{
    fail_queue(context, CODE_REMOVED);
    close_fds(context);
    free(context->created.payload);
    free(context->created.words);
    buf_done(&context->input);
    free(context);
    context_count--;
}

static void sweep(void)
{
    for (struct link **at = &links; *at;) {
        struct link *link = *at;
        if (link->gone) {
            *at = link->next;
            abandon(link);
        } else {
            at = &link->next;
        }
    }
    last_context = &contexts;
    while (*last_context) {
        struct context *context = *last_context;
        if (context->gone) {
            *last_context = context->next;
            free_context(context);
        } else {
            last_context = &context->next;
        }
    }
}

/* --- The loop --- */

static void expire_link(struct link *link)
{
    struct context *context = link->context;

    link->deadline_ns = UINT64_MAX;
    if (link->state == LINK_RUNNING) {
        context->timed_out = true;
        interrupt(context);
    } else if (link->state == LINK_WAITING) {
        queue_remove(link);
        if (link->request.head.op == CODE_CREATE) {
            kill_interpreter(context, CODE_LOSS_RESTARTED);
            context->gone = context->pid == 0;
            context->removing = !context->gone;
        }
        end_for(link, CODE_EXPIRED, 0);
    }
}

static void expire(void)
{
    uint64_t now = clock_ns();

    for (struct link *link = links; link; link = link->next)
        if (link->deadline_ns <= now)
            expire_link(link);
    for (struct context *context = contexts; context; context = context->next) {
        if (context->again_ns <= now) {
            context->again_ns = UINT64_MAX;
            context->heard = true; /* once more is enough */
            interrupt(context);
        }
        if (context->kill_ns <= now)
            kill_interpreter(context, CODE_LOSS_KILLED);
        if (context->start_ns <= now)
            kill_interpreter(context, CODE_LOSS_SILENT);
    }
}

static int time_left_ms(void)
{
    uint64_t soonest = UINT64_MAX;

    for (const struct link *link = links; link; link = link->next)
        if (link->deadline_ns < soonest)
            soonest = link->deadline_ns;
    for (const struct context *context = contexts; context; context = context->next) {
        if (context->again_ns < soonest)
            soonest = context->again_ns;
        if (context->kill_ns < soonest)
            soonest = context->kill_ns;
        if (context->start_ns < soonest)
            soonest = context->start_ns;
    }
    if (soonest == UINT64_MAX)
        return -1;
    uint64_t now = clock_ns();
    uint64_t left = soonest > now ? (soonest - now + 999999) / 1000000 : 0;
    return left > 3600000 ? 3600000 : (int)left;
}

static size_t fill_polled(int signal_fd)
{
    size_t count = 2;

    polled[0] = (struct pollfd){.fd = LISTEN, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    for (struct link *link = links; link; link = link->next) {
        link->slot = (int)count;
        polled[count++] = (struct pollfd){
            .fd = link->fd,
            .events = link->sent < link->out.len ? POLLIN | POLLOUT : POLLIN};
    }
    for (struct context *context = contexts; context; context = context->next) {
        const struct link *link = context->running;
        bool has_room = !link || link->out.len - link->sent < OUT_LOW;
        for (int i = 0; i < 3; i++) {
            short events = has_room ? POLLIN : 0;
            if (i == 0 && context->sent < context->input.len)
                events |= POLLOUT;
            context->slots[i] = (int)count;
            polled[count++] =
                (struct pollfd){.fd = events ? context->fds[i] : -1, .events = events};
        }
    }
    return count;
}

/* Pipes before the channel: a child's output before what the driver reports next. */
static void serve_context(struct context *context)
{
    bool ready[3];

    for (int i = 0; i < 3; i++) {
        int slot = context->slots[i];
        ready[i] = slot >= 0 && context->fds[i] >= 0 && polled[slot].revents;
        context->slots[i] = -1;
    }
    if (!ready[0] && !ready[1] && !ready[2])
        return;
    for (int i = 1; i < 3; i++)
        if (ready[i] && context->fds[i] >= 0)
            (void)read_pipe(context, i);
    if (ready[0]) {
        write_input(context);
        (void)read_channel(context);
    }
    advance(context);
    if (context->running)
        flush(context->running);
}

static void serve_links(void)
{
    for (struct link *link = links; link; link = link->next) {
        short events = link->slot >= 0 ? polled[link->slot].revents : 0;
        link->slot = -1;
        if (events & POLLOUT)
            flush(link);
        if (events & ~POLLOUT)
            on_readable(link);
    }
}

int code_main(void)
{
    sigset_t child;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    /* Only what an interpreter gets at its start may be inherited. */
    if (null < 0 || (null != NOTHING && dup3(null, NOTHING, O_CLOEXEC) < 0) ||
        fcntl(LISTEN, F_SETFD, FD_CLOEXEC) != 0)
        return 1;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &child, NULL);
    int signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0)
        return 1;
    for (;;) {
        struct signalfd_siginfo ignored;
        size_t count = fill_polled(signal_fd);
        if (poll(polled, count, time_left_ms()) < 0 && errno != EINTR)
            return 1;
        if (polled[1].revents) {
            while (read(signal_fd, &ignored, sizeof ignored) > 0)
                ;
            reap();
        }
        serve_links();
        for (struct context *context = contexts; context; context = context->next)
            if (!context->gone)
                serve_context(context);
        if (polled[0].revents)
            accept_link();
        expire();
        sweep();
    }
}
