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
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "init/context.h"
#include "sys/rights.h"

enum { LISTEN = 0 /* the socket to PID 1 */ };

static struct link *links;
static size_t link_count, pending;
static struct pollfd polled[2 + CODE_REQUESTS_MAX + 3 * CODE_CONTEXTS_MAX];

/* --- Messages --- */

static void message_done(struct code_message *message)
{
    if (message->payload)
        pending -= message->head.len;
    free(message->payload);
    free(message->words);
    *message = (struct code_message){0};
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
static bool parse(struct code_message *message)
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

void link_put(struct link *link, uint32_t kind, const void *payload, size_t len)
{
    const struct code_event event = {kind, (uint32_t)len, since_1970_ns()};

    if (!link || link->gone)
        return;
    buf_append(&link->out, &event, sizeof event);
    buf_append(&link->out, payload, len);
    link->gone |= link->out.failed;
}

void link_flush(struct link *link)
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
    if (link->out.room > 2 * LINK_OUT_LOW) {
        buf_done(&link->out);
        buf_init(&link->out, LINK_OUT_MAX);
    }
    link->out.len = link->sent = 0;
}

/* The request is over; the connection may send another. */
void link_end(struct link *link, const struct code_end *how)
{
    if (!link)
        return;
    link_put(link, CODE_EVENT_END, how, sizeof *how);
    message_done(&link->request);
    auto_close(&link->kept);
    link->kept = -1;
    link->state = LINK_READING;
    link->context = NULL;
    link->deadline_ns = UINT64_MAX;
    link_flush(link);
}

void link_end_for(struct link *link, uint32_t reason, int error)
{
    const struct code_end how = {.reason = reason, .error = error};

    link_end(link, &how);
}

void link_describe(struct link *link, const struct context *context)
{
    struct code_context about = {
        .is_default = context->is_default, .is_busy = context->busy, .pid = context->pid};

    memcpy(about.id, context->id, sizeof about.id);
    memcpy(about.language, context->language, sizeof about.language);
    if (context->created.cwd)
        cay_copy_text(about.cwd, sizeof about.cwd, context->created.cwd);
    for (const struct link *one = context->queue; one; one = one->behind)
        about.waiting++;
    link_put(link, CODE_EVENT_CONTEXT, &about, sizeof about);
}

/* --- Requests --- */

/* For EXECUTE and CREATE: a new context, if the limit and the drivers allow it. */
static struct context *create(struct link *link, bool is_default)
{
    if (!driver_find(link->request.language)) {
        link->state = LINK_NEEDS_DRIVER;
        link_put(link, CODE_EVENT_NEED, NULL, 0);
        link_flush(link);
        return NULL;
    }
    struct context *context = context_count() < CODE_CONTEXTS_MAX
                                  ? context_add(link->request.language, is_default)
                                  : NULL;
    if (!context)
        link_end_for(link, CODE_TOO_MANY, 0);
    return context;
}

/* Cwd and environment of a default context, from the request that creates it.  The rest
 * of the request, the code, is still needed. */
static bool remember(struct context *context, const struct code_message *request)
{
    struct code_message *created = &context->created;
    size_t len = (size_t)(request->body - request->payload);

    created->head = request->head;
    created->head.len = (uint32_t)len;
    created->payload = malloc(len);
    if (!created->payload)
        return false;
    memcpy(created->payload, request->payload, len);
    bool is_valid = parse(created);
    created->head.len = 0; /* it is not pending */
    return is_valid;
}

static void execute(struct link *link)
{
    const struct code_message *request = &link->request;
    struct context *context = *request->id ? context_find(request->id)
                                           : context_find_default(request->language);

    if (!context && *request->id) {
        link_end_for(link, CODE_UNKNOWN, 0);
        return;
    }
    if (!context && (context = create(link, true)) != NULL &&
        !remember(context, request)) {
        context->gone = true;
        link_end_for(link, CODE_NO_FORK, ENOMEM);
        return;
    }
    if (!context)
        return;
    context_queue(context, link, false);
    context_advance(context);
}

/* With the directory and the environment. */
static void keep_request(struct context *context, struct link *link)
{
    context->created = link->request;
    pending -= link->request.head.len;
    context->created.head.len = 0; /* it is not pending any more */
    link->request = (struct code_message){.head = context->created.head};
}

static void create_context(struct link *link)
{
    struct context *context = create(link, false);

    if (!context)
        return;
    keep_request(context, link);
    context_queue(context, link, false);
    context_advance(context);
}

/* A context that waits or has no interpreter has nothing to save. */
static void save(struct context *context, struct link *link)
{
    if (link->kept < 0 || context->busy || context->queue || !context->ready) {
        link_end_for(link, CODE_BUSY, 0);
        return;
    }
    context_queue(context, link, false);
    context_advance(context);
}

/* A context of the sandbox that this one is a fork of.  Its interpreter starts with the
 * first request for it. */
static void adopt(struct link *link)
{
    const struct code_message *request = &link->request;

    if (!*request->id || context_find(request->id) ||
        (request->head.is_default && context_find_default(request->language))) {
        link_end_for(link, CODE_BUSY, 0);
        return;
    }
    struct context *context = create(link, request->head.is_default);
    if (!context)
        return;
    cay_copy_text(context->id, sizeof context->id, request->id);
    context->image = TAKE_FD(link->kept);
    context->loss = context->image < 0 ? CODE_LOSS_FORK : CODE_LOSS_NONE;
    keep_request(context, link);
    link_end_for(link, CODE_DONE, 0);
}

static void list(struct link *link)
{
    for (const struct context *context = context_first(); context;
         context = context->next)
        if (!context->gone && !context->removing)
            link_describe(link, context);
    link_end_for(link, CODE_DONE, 0);
}

static void restart(struct context *context, struct link *link)
{
    context_queue(context, link, true);
    context_kill(context, CODE_LOSS_RESTARTED);
    context_advance(context);
}

static void discard(struct context *context)
{
    const struct code_end removed = {.reason = CODE_REMOVED};

    if (context->busy)
        context_finish(context, &removed);
    context_fail_queue(context, CODE_REMOVED);
    context_kill(context, CODE_LOSS_RESTARTED);
    context->removing = context->pid != 0;
    context->gone = context->pid == 0;
}

static void remove_context(struct context *context, struct link *link)
{
    discard(context);
    if (context->removing)
        context_queue(context, link, true);
    else
        link_end_for(link, CODE_DONE, 0);
}

static void on_request(struct link *link)
{
    uint32_t op = link->request.head.op;
    struct context *context = context_find(link->request.id);

    if (link->request.head.timeout_ms &&
        link->request.head.timeout_ms < UINT64_MAX / 4000000)
        link->deadline_ns = clock_ns() + link->request.head.timeout_ms * 1000000;
    if (op == CODE_EXECUTE)
        execute(link);
    else if (op == CODE_CREATE)
        create_context(link);
    else if (op == CODE_LIST)
        list(link);
    else if (op == CODE_ADOPT)
        adopt(link);
    else if (!context)
        link_end_for(link, CODE_UNKNOWN, 0);
    else if (op == CODE_SAVE)
        save(context, link);
    else if (op == CODE_RESTART)
        restart(context, link);
    else if (op == CODE_REMOVE)
        remove_context(context, link);
    else {
        context->interrupted |= context->busy;
        context_interrupt(context);
        link_end_for(link, CODE_DONE, 0);
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
    driver->image = TAKE_FD(link->image);
    driver->body = link->incoming.body;
    driver->body_len = link->incoming.body_len;
    driver_add(driver);
    pending -= link->incoming.head.len;
    link->incoming = (struct code_message){0};
    link->state = LINK_READING;
    if (!driver_find(link->request.language))
        link->gone = true;
    else
        on_request(link);
}

/* --- Connections --- */

/* The head of a message has arrived: room for the rest, if it is sensible. */
static bool admit(struct link *link)
{
    struct code_message *message = &link->incoming;
    const struct code_request *head = &message->head;
    bool is_driver = link->state == LINK_NEEDS_DRIVER;

    if (head->op < CODE_EXECUTE || head->op > CODE_ADOPT ||
        is_driver != (head->op == CODE_DRIVER) || head->words > CODE_STRINGS_MAX ||
        head->len > (head->op == CODE_CREATE || head->op == CODE_ADOPT ? CODE_CREATE_MAX
                                                                       : CODE_BODY_MAX))
        return false;
    if (pending + head->len <= CODE_PENDING_MAX)
        message->payload = malloc(head->len + 1u);
    if (message->payload) {
        pending += head->len;
        return true;
    }
    link_end_for(link, CODE_FULL, 0); /* and hang up: the payload was not read */
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
        link->incoming = (struct code_message){0};
        auto_close(&link->kept);
        link->kept = TAKE_FD(link->image);
        on_request(link);
    }
}

/* The head of a message may have a descriptor with it. */
static ssize_t receive(struct link *link, char *to, size_t len, bool in_head)
{
    struct iovec part = {to, len};
    size_t count;
    int fd = -1;

    if (!in_head) {
        ssize_t got = recv(link->fd, to, len, MSG_DONTWAIT);
        return got < 0 ? -errno : got;
    }
    ssize_t got = rights_receive(link->fd, &part, 1, &fd, 1, &count, MSG_DONTWAIT);
    if (fd >= 0) {
        auto_close(&link->image);
        link->image = fd;
    }
    return got;
}

/* Reads as much of the request as there is.  Nothing may arrive while a request runs. */
static void on_readable(struct link *link)
{
    struct code_message *message = &link->incoming;
    bool expects = link->state == LINK_READING || link->state == LINK_NEEDS_DRIVER;

    while (!link->gone) {
        bool in_head = message->got < sizeof message->head;
        size_t all = sizeof message->head + (in_head ? 0 : message->head.len);
        char *to = in_head ? (char *)&message->head + message->got
                           : message->payload + message->got - sizeof message->head;
        ssize_t len = receive(link, to, all - message->got, in_head);
        if (len == -EAGAIN || len == -EINTR)
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
    char is_again = 0;
    struct iovec part = {&is_again, 1};
    int fd = -1;
    size_t count;
    ssize_t len = rights_receive(LISTEN, &part, 1, &fd, 1, &count, MSG_DONTWAIT);

    if (len == 0)
        _exit(0); /* PID 1 has closed it: there will be no more requests */
    if (len < 0 || fd < 0)
        return;
    if (is_again)
        context_note_loss();
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
    link->slot = link->image = link->kept = -1;
    link->deadline_ns = UINT64_MAX;
    buf_init(&link->out, LINK_OUT_MAX);
    link->next = links;
    links = link;
    link_count++;
    on_readable(link); /* the request is usually there already */
}

/* A waiting request ends, and with CREATE the context: its client does not know the id.
 */
static void withdraw(struct link *link)
{
    context_unqueue(link);
    if (link->request.head.op == CODE_CREATE)
        discard(link->context);
}

/* The client is gone: its request is removed, or its execution interrupted. */
static void abandon(struct link *link)
{
    if (link->state == LINK_WAITING)
        withdraw(link);
    if (link->state == LINK_RUNNING) {
        link->context->running = NULL;
        context_interrupt(link->context);
    }
    (void)close(link->fd);
    auto_close(&link->image);
    auto_close(&link->kept);
    message_done(&link->incoming);
    message_done(&link->request);
    buf_done(&link->out);
    free(link);
    link_count--;
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
    context_sweep();
}

/* --- The loop --- */

static void expire_link(struct link *link)
{
    link->deadline_ns = UINT64_MAX;
    if (link->state == LINK_RUNNING) {
        link->context->timed_out = true;
        context_interrupt(link->context);
    } else if (link->state == LINK_WAITING) {
        withdraw(link);
        link_end_for(link, CODE_EXPIRED, 0);
    }
}

static void expire(void)
{
    uint64_t now = clock_ns();

    for (struct link *link = links; link; link = link->next)
        if (link->deadline_ns <= now)
            expire_link(link);
    for (struct context *context = context_first(); context; context = context->next) {
        if (context->again_ns <= now) {
            context->again_ns = UINT64_MAX;
            context->heard = true; /* once more is enough */
            context_interrupt(context);
        }
        if (context->kill_ns <= now)
            context_kill(context,
                         context->fds[0] < 0 ? CODE_LOSS_CLOSED : CODE_LOSS_KILLED);
        if (context->start_ns <= now)
            context_kill(context, CODE_LOSS_SILENT);
    }
}

static int time_left_ms(void)
{
    uint64_t soonest = UINT64_MAX;

    for (const struct link *link = links; link; link = link->next)
        if (link->deadline_ns < soonest)
            soonest = link->deadline_ns;
    for (const struct context *context = context_first(); context;
         context = context->next) {
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
    for (struct context *context = context_first(); context; context = context->next) {
        const struct link *link = context->running;
        bool has_room = !link || link->out.len - link->sent < LINK_OUT_LOW;
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
            (void)context_read_pipe(context, i);
    if (ready[0]) {
        context_write(context);
        (void)context_read_channel(context);
    }
    context_advance(context);
    if (context->running)
        link_flush(context->running);
}

static void serve_links(void)
{
    for (struct link *link = links; link; link = link->next) {
        short events = link->slot >= 0 ? polled[link->slot].revents : 0;
        link->slot = -1;
        if (events & POLLOUT)
            link_flush(link);
        if (events & ~POLLOUT)
            on_readable(link);
    }
}

int code_main(void)
{
    sigset_t child;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    /* Only what an interpreter gets at its start may be inherited. */
    if (null < 0 ||
        (null != CONTEXT_NOTHING && dup3(null, CONTEXT_NOTHING, O_CLOEXEC) < 0) ||
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
            context_reap();
        }
        serve_links();
        for (struct context *context = context_first(); context; context = context->next)
            if (!context->gone)
                serve_context(context);
        if (polled[0].revents)
            accept_link();
        expire();
        sweep();
    }
}
