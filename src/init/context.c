/* SPDX-License-Identifier: Apache-2.0 */

/* Interpreters, their executions, and the lines of their drivers. */
#include "init/context.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "init/oom.h"
#include "init/warm.h"

enum {
    DRAIN_PIECES = 4, /* what a pipe can hold when an execution ends */
    REST_PIECES = 16, /* and the channel of an interpreter that has ended */
    INPUT_MAX = CODE_BODY_MAX + (1 << 20),
    AGAIN_MS = 1000,  /* then again: the first signal may come before the code runs */
    KILL_MS = 5000,   /* between an interrupt and the kill */
    CLOSED_MS = 1000, /* between the end of the channel and the kill */
    START_MS = 60000, /* until an interpreter is ready */
    OOM_SCORE_RAISE = 100
};

static struct driver *drivers;
static struct context *contexts, **last_context = &contexts;
static size_t count;
static bool is_again; /* there was a service before this one */
static char piece[CODE_PIECE];

struct context *context_first(void)
{
    return contexts;
}

size_t context_count(void)
{
    return count;
}

void driver_add(struct driver *driver)
{
    driver->next = drivers;
    drivers = driver;
}

/* --- The queue of a context --- */

void context_queue(struct context *context, struct link *link, bool first)
{
    struct link **at = &context->queue;

    while (*at && !first)
        at = &(*at)->behind;
    link->behind = *at;
    *at = link;
    link->context = context;
    link->state = LINK_WAITING;
}

void context_unqueue(struct link *link)
{
    struct link **at = &link->context->queue;

    while (*at && *at != link)
        at = &(*at)->behind;
    if (*at)
        *at = link->behind;
    link->behind = NULL;
}

void context_fail_queue(struct context *context, uint32_t reason)
{
    while (context->queue) {
        struct link *link = context->queue;
        context_unqueue(link);
        link_end_for(link, reason, 0);
    }
}

/* --- Contexts --- */

struct context *context_find(const char *id)
{
    struct context *context = contexts;

    while (context &&
           (context->gone || context->removing || strcmp(context->id, id) != 0))
        context = context->next;
    return context;
}

struct context *context_find_default(const char *language)
{
    struct context *context = contexts;

    while (context && (context->gone || context->removing || !context->is_default ||
                       strcmp(context->language, language) != 0))
        context = context->next;
    return context;
}

struct driver *driver_find(const char *language)
{
    struct driver *driver = drivers;

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
struct context *context_add(const char *language, bool is_default)
{
    struct context *context = calloc(1, sizeof *context);

    if (!context || !make_id(context->id)) {
        free(context);
        return NULL;
    }
    cay_copy_text(context->language, sizeof context->language, language);
    context->is_default = is_default;
    context->image = -1;
    for (int i = 0; i < 3; i++)
        context->fds[i] = context->slots[i] = -1;
    context->again_ns = context->kill_ns = context->start_ns = UINT64_MAX;
    buf_init(&context->input, INPUT_MAX);
    *last_context = context;
    last_context = &context->next;
    count++;
    return context;
}

void context_note_loss(void)
{
    is_again = true;
}

static void close_fds(struct context *context)
{
    for (int i = 0; i < 3; i++) {
        if (context->fds[i] >= 0)
            (void)close(context->fds[i]);
        context->fds[i] = -1;
    }
}

/* To its process group, and to an interpreter that has joined another. */
static void send_signal(const struct context *context, int number)
{
    (void)kill(-context->pid, number);
    if (getpgid(context->pid) != context->pid)
        (void)kill(context->pid, number);
}

void context_kill(struct context *context, uint32_t loss)
{
    context->ending = loss;
    context->ready = false;
    context->again_ns = context->kill_ns = context->start_ns = UINT64_MAX;
    if (context->pid)
        send_signal(context, SIGKILL);
}

void context_interrupt(struct context *context)
{
    if (!context->busy || !context->ready)
        return;
    uint64_t now = clock_ns();
    uint64_t again_ms = driver_find(context->language)->interrupt_ms;
    send_signal(context, SIGINT);
    if (context->kill_ns == UINT64_MAX)
        context->kill_ns = now + KILL_MS * 1000000ull;
    if (again_ms || !context->heard)
        context->again_ns = now + (again_ms ? again_ms : AGAIN_MS) * 1000000ull;
}

/* --- Starting an interpreter --- */

static _Noreturn void fail_start(const char *step)
{
    char line[32];
    int len = snprintf(line, sizeof line, "!%s %d\n", step, errno);

    (void)!write(CONTEXT_NOTHING, line, (size_t)len);
    _exit(127);
}

static bool place(int fd, int at)
{
    return dup3(fd, at, 0) == at; /* allow: cloexec the interpreter inherits it */
}

static int write_env(void)
{
    int fd = memfd_create("environment", MFD_CLOEXEC);

    for (char **one = environ; fd >= 0 && *one; one++)
        (void)!write(fd, *one, strlen(*one) + 1);
    return fd;
}

/* Becomes a copy of an interpreter that has started already, or exits if the file does
 * not fit this sandbox.  No execve(2) closes the other descriptors. */
static _Noreturn void become_copy(int image)
{
    int env = fcntl(write_env(), F_DUPFD_CLOEXEC, CONTEXT_IMAGE + 1);
    int high = fcntl(image, F_DUPFD_CLOEXEC, CONTEXT_IMAGE + 1);

    if (env >= 0 && high >= 0 && place(env, CONTEXT_ENV) &&
        dup3(high, CONTEXT_IMAGE, O_CLOEXEC) == CONTEXT_IMAGE) {
        (void)syscall(SYS_close_range, CONTEXT_IMAGE + 1, ~0U, 0);
        (void)warm_start(CONTEXT_IMAGE);
    }
    _exit(WARM_EXIT);
}

/* In the new process: stdin is /dev/null, which is at CONTEXT_NOTHING until the channel
 * is. */
static _Noreturn void become_interpreter(const struct context *context,
                                         const struct driver *driver, const int ends[3])
{
    sigset_t none;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* without the service it is of no use */
    oom_raise(OOM_SCORE_RAISE);             /* before the service */
    if (!place(CONTEXT_NOTHING, 0) || !place(ends[1], 1) || !place(ends[2], 2) ||
        !place(ends[0], CONTEXT_NOTHING))
        _exit(127);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (char **word = context->created.words; word && *word; word++)
        if (putenv(*word) != 0)
            fail_start("exec");
    if (context->created.cwd && *context->created.cwd && chdir(context->created.cwd) != 0)
        fail_start("cwd");
    if (context->is_warm)
        become_copy(context->image >= 0 ? context->image : driver->image);
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

void context_write(struct context *context)
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
    if (context->input.room > 2 * LINK_OUT_LOW || context->input.failed) {
        buf_done(&context->input);
        buf_init(&context->input, INPUT_MAX);
    }
    context->input.len = context->sent = 0;
}

/* 0 or a negative errno. */
static int start_interpreter(struct context *context)
{
    struct driver *driver = driver_find(context->language);
    int ours[3] = {-1, -1, -1}, theirs[3] = {-1, -1, -1};
    int error = open_ends(ours, theirs);

    context->is_warm = context->image >= 0 || (driver->image >= 0 && !context->is_cold);
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
    context->start_reason = CODE_DONE;
    context->start_error = 0;
    context->ending = CODE_LOSS_NONE;
    context->start_ns = clock_ns() + START_MS * 1000000ull;
    context->input.len = context->sent = 0;
    if (driver->body_len && !context->is_warm) { /* a copy has it */
        buf_append(&context->input, driver->body, driver->body_len);
        context_write(context);
    }
    return 0;
}

/* --- An execution --- */

/* Why the context is not what the client knows. */
static uint32_t find_loss(const struct context *context)
{
    struct driver *driver = driver_find(context->language);
    bool is_first = context->is_default && !driver->was_used;

    driver->was_used |= context->is_default;
    return !context->loss && is_first && is_again ? CODE_LOSS_SERVICE : context->loss;
}

/* SAVE leaves what the next execution reports. */
static struct code_started describe_start(struct context *context, bool is_save)
{
    struct code_started started = {.status = context->status,
                                   .is_warm = context->is_warm};

    if (!is_save) {
        started.dropped = context->dropped;
        started.loss = find_loss(context);
        context->dropped = 0;
        context->loss = CODE_LOSS_NONE;
    }
    memcpy(started.id, context->id, sizeof started.id);
    memcpy(started.language, context->language, sizeof started.language);
    return started;
}

static void begin(struct context *context, struct link *link)
{
    const bool is_save = link->request.head.op == CODE_SAVE;
    const struct code_started started = describe_start(context, is_save);

    context->running = link;
    context->busy = true;
    link->state = LINK_RUNNING;
    context->timed_out = context->interrupted = context->heard = false;
    context->skips = context->head_len > 0 || context->is_long;
    link_put(link, CODE_EVENT_STARTED, &started, sizeof started);
    buf_format(&context->input, "{\"type\":\"execute\",\"id\":%llu,",
               (unsigned long long)++context->execution);
    buf_append(&context->input, link->request.body, link->request.body_len);
    if (is_save) /* a process of the same user may open it there */
        buf_format(&context->input, ",\"image\":\"/proc/%d/fd/%d\"", (int)getpid(),
                   link->kept);
    else if (*link->request.id)
        buf_text(&context->input, driver_find(context->language)->tail);
    buf_append(&context->input, "}\n", 2);
    if (context->input.failed) /* no memory: the interpreter got none of it */
        context_kill(context, CODE_LOSS_KILLED);
    link_flush(link); /* first: a client without this event may send the request again */
    context_write(context);
}

/* Output of an execution, or of none. */
static void pass(struct context *context, uint32_t kind, const char *data, size_t len)
{
    if (context->running)
        link_put(context->running, kind, data, len);
    else if (!context->busy && context->was_ready)
        context->dropped += len;
}

/* One read of a pipe; false if it is empty. */
bool context_read_pipe(struct context *context, int stream)
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
            if (!context_read_pipe(context, stream))
                break;
}

/* Ends the execution; the caller then calls context_advance(). */
void context_finish(struct context *context, const struct code_end *how)
{
    struct code_end all = *how;

    all.timed_out = context->timed_out;
    all.interrupted = context->interrupted;
    context->busy = false;
    context->again_ns = context->kill_ns = UINT64_MAX;
    struct link *link = context->running;
    context->running = NULL;
    link_end(link, &all);
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

static void drop_image(struct context *context)
{
    auto_close(&context->image);
    context->image = -1;
}

/* A whole line has arrived.  True if it ends the execution. */
static bool take_line(struct context *context)
{
    uint64_t id = 0;
    char line[CONTEXT_HEAD_MAX + 1];

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
        drop_image(context);
        context->is_warm = strstr(line, "\"warm\"") != NULL;
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
            context_finish(context, &done);
            from = at;
        }
        context->head_len = 0;
        context->is_long = false;
    }
    if (from < stop && !context->skips)
        pass(context, CODE_EVENT_LINES, from, (size_t)(stop - from));
}

/* One read of the channel; false if it is empty. */
bool context_read_channel(struct context *context)
{
    static char lines[CODE_PIECE]; /* not `piece`: the end of an execution drains pipes */
    ssize_t len = recv(context->fds[0], lines, sizeof lines, MSG_DONTWAIT);

    if (len > 0)
        take_lines(context, lines, (size_t)len);
    if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR)) {
        /* Without its channel an interpreter is of no use.  But usually it is ending, and
         * the cause is that of its own end. */
        (void)close(context->fds[0]);
        context->fds[0] = -1;
        context->kill_ns = clock_ns() + CLOSED_MS * 1000000ull;
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
        context_unqueue(link);
        link_end(link, &how);
    }
    if (!context->was_ready && !context->queue)
        context->gone = true;
}

/* A copy that does not fit: whether another start of the interpreter may succeed. */
static bool replace_copy(struct context *context)
{
    if (context->removing || (context->ending && context->image < 0))
        return false;
    if (context->image >= 0)
        context->loss = CODE_LOSS_FORK;
    else
        context->is_cold = true;
    drop_image(context);
    return true;
}

static void on_exit_of(struct context *context, int status)
{
    bool was_starting = !context->ready && context->start_ns != UINT64_MAX;

    for (int i = 0; i < REST_PIECES && context->fds[0] >= 0; i++)
        if (!context_read_channel(context))
            break;
    drain(context);
    close_fds(context);
    context->pid = 0;
    context->ready = false;
    context->again_ns = context->kill_ns = context->start_ns = UINT64_MAX;
    if (was_starting && context->is_warm && replace_copy(context)) {
        context_advance(context);
        return;
    }
    context->status = status;
    context->loss = context->ending ? context->ending : CODE_LOSS_DIED;
    if (context->busy) {
        const struct code_end lost = {
            .reason = CODE_LOST, .loss = context->loss, .status = status};
        context_finish(context, &lost);
    }
    if (context->removing) {
        link_end_for(context->queue, CODE_DONE, 0); /* the request to remove it */
        context->queue = NULL;
        context->gone = true;
    } else if (was_starting || context->loss == CODE_LOSS_SILENT) {
        fail_starting(context);
    }
    context_advance(context);
}

/* An interpreter that has ended stays a zombie until its process group is killed: the
 * group's number is not used again before that. */
void context_reap(void)
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

void context_advance(struct context *context)
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
        context_unqueue(link);
        if (link->request.head.op == CODE_EXECUTE || link->request.head.op == CODE_SAVE) {
            begin(context, link);
            return;
        }
        link_describe(link, context);
        link_end_for(link, CODE_DONE, 0);
    }
}

static void free_context(struct context *context)
{
    context_fail_queue(context, CODE_REMOVED);
    close_fds(context);
    drop_image(context);
    free(context->created.payload);
    free(context->created.words);
    buf_done(&context->input);
    free(context);
    count--;
}

void context_sweep(void)
{
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
