/* SPDX-License-Identifier: Apache-2.0 */

/* Directory watches of clients.
 *
 * PID 1 of the sandbox opens a directory and passes the descriptor to the keeper, which
 * adds it to an inotify instance.  All watches share one instance, since a user may have
 * only a few.  A watch has a node for each directory it covers.  If several watches cover
 * a directory, their nodes share one watch descriptor.
 *
 * Events are sent to a stream at once, or are queued until the client requests them.
 * Queues are bounded: if the client is too slow, the newest events are lost.  The next
 * request then fails once, and a stream ends with an error. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "server/keeper/keeper.h"

struct node {
    struct node *next;
    int wd;
    char below[]; /* relative path with a trailing slash; "": the watched directory itself
                   */
};

struct event {
    struct event *next;
    enum change change;
    char name[]; /* relative path */
};

struct watch {
    struct task task; /* for a stream */
    struct watch *next;
    struct keeper_source client;
    struct node *nodes;
    struct node *found; /* directories to be covered; a list, since recursion could
                           exhaust the stack */
    struct event *events, **last;
    size_t event_count;
    unsigned flags;
    bool is_stream, is_blocked;
    bool has_lost; /* events were lost, and the client was not informed */
    int missed; /* errno why a directory is not covered, if the client was not informed */
    char *id;   /* of a watcher */
    char user[USER_MAX];
    char path[PATH_MAX];
};

/* All watches of this keeper. */
static struct watch_set {
    struct keeper_source source;
    int inotify;
    struct watch *watches;
    size_t watch_count, node_count, event_bytes;
    struct watcher_ids ids;
} set = {.inotify = -1};

enum {
    QUEUE_MAX = 4096,      /* events of a watcher, which are requested at once */
    STREAM_MAX = 65536,    /* of a stream */
    QUEUES_MAX = 64 << 20, /* bytes, for all watches */
    NODES_MAX = 8192,      /* directories, for all watches */
    WATCHES_MAX = 256,
    /* Opening and closing are not reported.  But the kernel merges an event with the last
     * one in its queue if both are equal; these events separate the writes of two
     * openings. */
    MASK = IN_OPEN | IN_CLOSE_WRITE | IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM |
           IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
};

/* --- Nodes --- */

static void drop_node(struct node **link)
{
    struct node *node = *link;
    unsigned users = 0;

    for (const struct watch *watch = set.watches; watch; watch = watch->next)
        for (const struct node *other = watch->nodes; other; other = other->next)
            users += other->wd == node->wd;
    if (users <= 1)
        (void)inotify_rm_watch(set.inotify, node->wd);
    *link = node->next;
    set.node_count--;
    free(node);
}

static bool push_node(struct node **list, const char *below, int wd)
{
    size_t len = strlen(below) + 1;
    struct node *node = malloc(sizeof *node + len);

    if (!node)
        return false;
    node->next = *list;
    node->wd = wd;
    memcpy(node->below, below, len);
    *list = node;
    set.node_count++;
    return true;
}

static int fail_full(const char *what, unsigned most, struct cay_error *err)
{
    char message[80];

    snprintf(message, sizeof message, "at most %u %s per sandbox", most, what);
    return cay_fail(err, CAY_E_LIMIT, 0, "files.watch", NULL, message,
                    "watch fewer directories, or not recursively");
}

/* The error for a directory that cannot be watched; E2BIG: the limit of this keeper. */
static int watch_fail(const struct watch *watch, int error, struct cay_error *err)
{
    if (error == E2BIG)
        return fail_full("watched directories", NODES_MAX, err);
    if (error == ENOSPC)
        return cay_fail(err, CAY_E_LIMIT, error, "files.watch", NULL,
                        "too many watched directories on this machine",
                        "raise fs.inotify.max_user_watches");
    return cay_fail_errno(err, error, "files.watch", watch->path);
}

/* The error for lost events. */
static int watch_fail_lost(const struct watch *watch, struct cay_error *err)
{
    return cay_fail(
        err, CAY_E_LIMIT, 0, "files.watch", watch->path,
        "too many events: some were lost",
        "list the directory; the next request returns the events that were kept");
}

/* Watches an open directory. */
static int add_node(struct watch *watch, int fd, const char *below, struct cay_error *err)
{
    char path[64];

    if (set.node_count >= NODES_MAX)
        return watch_fail(watch, E2BIG, err);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int wd = inotify_add_watch(set.inotify, path, MASK);
    if (wd < 0)
        return watch_fail(watch, errno, err);
    for (const struct node *node = watch->nodes; node; node = node->next)
        if (node->wd == wd)
            return CAY_OK;
    return push_node(&watch->nodes, below, wd) ? CAY_OK
                                               : cay_fail_memory(err, "files.watch");
}

/* --- Events --- */

static size_t event_size(const char *below, const char *name)
{
    return sizeof(struct event) + strlen(below) + strlen(name) + 1;
}

static void add_event(struct watch *watch, enum change change, const char *below,
                      const char *name)
{
    size_t size = event_size(below, name), room = size - sizeof(struct event);
    size_t most = watch->is_stream ? STREAM_MAX : QUEUE_MAX;
    bool fits = watch->event_count < most && set.event_bytes + size <= QUEUES_MAX;
    bool is_ending = watch->is_stream && watch->has_lost; /* a stream has no gaps */
    struct event *event = fits && !is_ending ? malloc(size) : NULL;

    if (!event) {
        watch->has_lost = true;
        return;
    }
    event->next = NULL;
    event->change = change;
    snprintf(event->name, room, "%s%s", below, name);
    *watch->last = event;
    watch->last = &event->next;
    watch->event_count++;
    set.event_bytes += size;
}

static void watch_drop_event(struct watch *watch)
{
    struct event *event = watch->events;

    watch->events = event->next;
    if (!watch->events)
        watch->last = &watch->events;
    watch->event_count--;
    set.event_bytes -= event_size("", event->name);
    free(event);
}

/* Sends the first event of the queue, with the entry of the file if it is requested and
 * still exists: 0 or a negative errno. */
static int watch_send(struct keeper *keeper, int channel, const struct watch *watch)
{
    const struct event *event = watch->events;
    struct reply reply = {
        .kind = REPLY_CHANGE, .count = 1, .numbers = {[CHANGE_WHAT] = event->change}};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    bool has_entry = watch->flags & WATCH_ENTRIES && event->change != CHANGE_REMOVE &&
                     event->change != CHANGE_RENAME;
    cay_files *files = has_entry ? keeper_files(keeper, watch->user, NULL) : NULL;
    struct names names;
    char path[2 * PATH_MAX];

    strings_add(&strings, event->name);
    size_t before = strings.len;
    int len = snprintf(path, sizeof path, "%s/%s",
                       strcmp(watch->path, "/") == 0 ? "" : watch->path, event->name);
    if (len > 0 && len < PATH_MAX && files) {
        names_read(files, &names);
        if (entry_describe(files, &names, &(struct entry){path, path, NULL},
                           reply.numbers + CHANGE_ENTRY, &strings, &reply.count,
                           NULL) != CAY_OK)
            strings.len = before;
    }
    return reply_send(channel, &reply, &strings, -1);
}

/* --- Covering a directory tree --- */

static bool is_directory(DIR *dir, const struct dirent *found)
{
    struct stat st;

    if (found->d_type != DT_UNKNOWN)
        return found->d_type == DT_DIR;
    return fstatat(dirfd(dir), found->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

/* Takes over the descriptor.  Entries of a new directory were created before the watch,
 * so they are reported here. */
static void cover_names(struct watch *watch, const char *below, bool is_new, int fd)
{
    const struct dirent *entry;
    char deeper[PATH_MAX];
    DIR *dir = fdopendir(fd);

    if (!dir) {
        (void)close(fd);
        return;
    }
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (is_new)
            add_event(watch, CHANGE_CREATE, below, entry->d_name);
        int len = snprintf(deeper, sizeof deeper, "%s%s/", below, entry->d_name);
        if (watch->flags & WATCH_RECURSIVE && len > 0 && len < PATH_MAX &&
            is_directory(dir, entry)) {
            if (set.node_count >= NODES_MAX)
                watch->missed = E2BIG;
            else if (!push_node(&watch->found, deeper, -1))
                watch->missed = ENOMEM;
        }
    }
    (void)closedir(dir);
}

/* The watched path may be a link, but paths below it are not. */
static int cover_one(struct keeper *keeper, struct watch *watch, const char *below,
                     bool is_new, struct cay_error *err)
{
    char path[2 * PATH_MAX];
    AUTO_FD fd = -1;
    cay_files *files = keeper_files(keeper, watch->user, err);

    if (!files)
        return err ? err->code : CAY_E_UNAVAILABLE;
    snprintf(path, sizeof path, "%s/%s", watch->path, below);
    int code = cay_files_descriptor(files, path, CAY_DESCRIPTOR_DIRECTORY, &fd, err);
    if (!code)
        code = add_node(watch, fd, below, err);
    if (!code && (watch->flags & WATCH_RECURSIVE || is_new))
        cover_names(watch, below, is_new, TAKE_FD(fd));
    return code;
}

/* A directory that disappeared or is not readable is not an error, but a reached limit
 * is. */
static void record_missed(struct watch *watch, const struct cay_error *error)
{
    if (error->code == CAY_E_LIMIT)
        watch->missed = error->sys_errno ? error->sys_errno : E2BIG;
    else if (error->code == CAY_E_NO_MEMORY)
        watch->missed = ENOMEM;
}

static int cover(struct keeper *keeper, struct watch *watch, const char *below,
                 bool is_new, struct cay_error *err)
{
    int code = cover_one(keeper, watch, below, is_new, err);

    while (watch->found) {
        AUTO_FREE struct node *node = watch->found;
        watch->found = node->next;
        set.node_count--;
        struct cay_error error;
        if (cover_one(keeper, watch, node->below, is_new, &error) != CAY_OK)
            record_missed(watch, &error);
    }
    return code;
}

/* --- Kernel events --- */

static void send_events(struct keeper *keeper, struct watch *watch);

static void handle_event(struct keeper *keeper, struct watch *watch, struct node *node,
                         const struct inotify_event *event)
{
    static const struct {
        uint32_t mask;
        enum change change;
    } changes[] = {
        {IN_CREATE | IN_MOVED_TO, CHANGE_CREATE},
        {IN_MOVED_FROM | IN_MOVE_SELF, CHANGE_RENAME},
        {IN_ATTRIB, CHANGE_CHMOD},
        {IN_MODIFY, CHANGE_WRITE},
        {IN_DELETE | IN_DELETE_SELF, CHANGE_REMOVE},
    };
    const char *name = event->len ? event->name : "";
    struct cay_error error;
    char below[PATH_MAX];

    /* Events of a subdirectory itself are also reported by its parent. */
    if (!*name && *node->below)
        return;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (event->mask & changes[i].mask)
            add_event(watch, changes[i].change, node->below, name);
    int len = snprintf(below, sizeof below, "%s%s/", node->below, name);
    if (*name && event->mask & IN_ISDIR && event->mask & (IN_CREATE | IN_MOVED_TO) &&
        watch->flags & WATCH_RECURSIVE && len > 0 && len < PATH_MAX &&
        cover(keeper, watch, below, true, &error) != CAY_OK)
        record_missed(watch, &error);
}

/* Reads one buffer of events from the kernel; false if there were none. */
static bool watch_set_read(struct keeper *keeper)
{
    _Alignas(struct inotify_event) char room[16 << 10];
    ssize_t len = read(set.inotify, room, sizeof room);

    for (ssize_t at = 0; at < len;) {
        const struct inotify_event *event = (const struct inotify_event *)(room + at);
        for (struct watch *watch = set.watches; watch; watch = watch->next) {
            struct node **link = &watch->nodes;
            watch->has_lost |= event->mask & IN_Q_OVERFLOW;
            while (*link && (*link)->wd != event->wd)
                link = &(*link)->next;
            if (*link && event->mask & IN_IGNORED)
                drop_node(link);
            else if (*link)
                handle_event(keeper, watch, *link, event);
        }
        at += (ssize_t)(sizeof *event + event->len);
    }
    for (struct watch *watch = set.watches; watch; watch = watch->next)
        if (watch->is_stream)
            send_events(keeper, watch);
    return len > 0;
}

static void on_inotify(struct keeper *keeper, struct keeper_source *source,
                       unsigned events)
{
    (void)source;
    (void)events;
    (void)watch_set_read(keeper);
}

static int begin(struct keeper *keeper, struct cay_error *err)
{
    if (set.inotify >= 0)
        return CAY_OK;
    set.source.ready = on_inotify;
    set.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (set.inotify >= 0 && keeper_poll_add(keeper, set.inotify, EPOLLIN, &set.source))
        return CAY_OK;
    int code = cay_fail(err, CAY_E_LIMIT, errno, "files.watch", NULL,
                        "too many inotify instances on this machine",
                        "raise fs.inotify.max_user_instances");
    if (set.inotify >= 0)
        (void)close(TAKE_FD(set.inotify));
    return code;
}

/* --- Watches --- */

static void watch_free(struct watch *watch)
{
    struct watch **link = &set.watches;

    while (*link && *link != watch)
        link = &(*link)->next;
    while (watch->nodes)
        drop_node(&watch->nodes);
    if (*link) {
        *link = watch->next;
        set.watch_count--;
    }
    while (watch->events)
        watch_drop_event(watch);
    free(watch->id);
    free(watch);
}

/* Creates a watch for the path of a request. */
static int watch_new(struct keeper *keeper, const struct keeper_request *request,
                     struct watch **ret_watch, struct cay_error *err)
{
    int code = begin(keeper, err);

    if (code)
        return code;
    if (set.watch_count >= WATCHES_MAX)
        return fail_full("watches", WATCHES_MAX, err);
    struct watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return cay_fail_memory(err, "files.watch");
    watch->last = &watch->events;
    watch->task.channel = -1;
    watch->flags = request->head.flags;
    cay_copy_text(watch->user, USER_MAX, request->head.user);
    watch->next = set.watches;
    set.watches = watch;
    set.watch_count++;
    code = entry_path(keeper, watch->user, request->strings[0], watch->path, err);
    if (!code)
        code = cover(keeper, watch, "", false, err);
    if (!code && watch->missed)
        code = watch_fail(watch, watch->missed, err);
    if (code)
        watch_free(watch);
    else
        *ret_watch = watch;
    return code;
}

/* --- Streams --- */

static void stream_done(struct task *task)
{
    watch_free((struct watch *)task);
}

static void end_stream(struct keeper *keeper, struct watch *watch)
{
    if (!watch->task.is_over)
        keeper_poll_remove(keeper, watch->task.channel);
    watch->task.is_over = true;
}

/* If events were lost, ends the stream with an error. */
static void send_events(struct keeper *keeper, struct watch *watch)
{
    struct cay_error error = {0};
    bool was_blocked = watch->is_blocked;

    watch->is_blocked = false;
    while (watch->events && !watch->task.is_over && !watch->is_blocked) {
        int sent = watch_send(keeper, watch->task.channel, watch);
        watch->is_blocked = sent == -EAGAIN || sent == -ENOBUFS;
        if (!watch->is_blocked)
            watch_drop_event(watch);
        if (sent && !watch->is_blocked)
            end_stream(keeper, watch);
    }
    bool is_partial = watch->missed || watch->has_lost;
    if (is_partial && !watch->task.is_over && !watch->is_blocked) {
        if (watch->missed)
            (void)watch_fail(watch, watch->missed, &error);
        else
            (void)watch_fail_lost(watch, &error);
        int sent = reply_send_error(watch->task.channel, 0, &error);
        watch->is_blocked = sent == -EAGAIN || sent == -ENOBUFS;
        if (!watch->is_blocked)
            end_stream(keeper, watch);
    }
    if (!watch->task.is_over && was_blocked != watch->is_blocked)
        keeper_poll_modify(keeper, watch->task.channel,
                           EPOLLRDHUP | (watch->is_blocked ? (unsigned)EPOLLOUT : 0u),
                           &watch->client);
}

static void on_client(struct keeper *keeper, struct keeper_source *source,
                      unsigned events)
{
    struct watch *watch =
        (struct watch *)((char *)source - offsetof(struct watch, client));

    if (watch->task.is_over)
        return;
    if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        end_stream(keeper, watch);
    else
        send_events(keeper, watch);
}

int keeper_op_watch_dir(struct keeper *keeper, struct keeper_request *request,
                        struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_STARTED};
    struct watch *watch = NULL;
    int code = watch_new(keeper, request, &watch, err);

    if (code)
        return code;
    watch->is_stream = true;
    watch->client.ready = on_client;
    watch->task.done = stream_done;
    watch->task.channel = request->channel;
    request->channel = -1;
    keeper_add_task(keeper, &watch->task);
    if (reply_send(watch->task.channel, &reply, NULL, -1) != 0 ||
        !keeper_poll_add(keeper, watch->task.channel, EPOLLRDHUP, &watch->client))
        end_stream(keeper, watch);
    return CAY_OK;
}

/* --- Watchers --- */

/* Watches without a stream: the client requests the events. */

struct watcher_ids *keeper_watcher_ids(void)
{
    if (!set.ids.owner)
        set.ids.owner = (int32_t)getpid();
    return &set.ids;
}

bool keeper_has_watchers(void)
{
    return set.watch_count > 0;
}

/* The id is "PID.NUMBER.FLAGS.USER/PATH": a later keeper, after a restart of the server,
 * can restore the watcher from it. */
int keeper_op_watcher_new(struct keeper *keeper, struct keeper_request *request,
                          struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_TEXT, .count = 1};
    struct watch *watch = NULL;
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    int code = watch_new(keeper, request, &watch, err);

    if (code)
        return code;
    bool is_text = utf8_is_valid(watch->path, strlen(watch->path));
    struct watcher_ids *ids = keeper_watcher_ids();
    if (asprintf(&watch->id, "%d.%u.%u.%s%s", (int)ids->owner, ++ids->numbers,
                 watch->flags, watch->user, is_text ? watch->path : "") < 0) {
        watch->id = NULL;
        watch_free(watch);
        return cay_fail_memory(err, "files.watcher");
    }
    strings_add(&strings, watch->id);
    (void)reply_send(request->channel, &reply, &strings, -1);
    return KEEPER_DONE;
}

/* Restores a watcher of an earlier keeper if necessary; events since then are lost. */
static int find_watcher(struct keeper *keeper, const char *id, struct watch **ret_watch,
                        struct cay_error *err)
{
    struct watch *watch = set.watches;

    for (; watch; watch = watch->next)
        if (watch->id && strcmp(watch->id, id) == 0) {
            *ret_watch = watch;
            return CAY_OK;
        }
    const char *path = strchr(id, '/');
    struct keeper_request request = {.strings = &path};
    char *end;
    long pid = strtol(id, &end, 10);
    (void)strtoul(*end == '.' ? end + 1 : "", &end, 10);
    request.head.flags = (uint32_t)strtoul(*end == '.' ? end + 1 : "", &end, 10);

    if (*end != '.' || !path || pid == keeper_watcher_ids()->owner ||
        path - end > USER_MAX ||
        request.head.flags & ~(uint32_t)(WATCH_RECURSIVE | WATCH_ENTRIES))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "files.watcher", id, "unknown watcher",
                        "create one with CreateWatcher");
    memcpy(request.head.user, end + 1, (size_t)(path - end) - 1);
    AUTO_FREE char *self = strdup(id);
    if (!self)
        return cay_fail_memory(err, "files.watcher");
    int code = watch_new(keeper, &request, ret_watch, err);
    if (!code)
        (*ret_watch)->id = TAKE_PTR(self);
    return code;
}

/* Includes all events up to now. */
int keeper_op_watcher_events(struct keeper *keeper, struct keeper_request *request,
                             struct cay_error *err)
{
    struct watch *watch = NULL;
    int code = find_watcher(keeper, request->strings[0], &watch, err);

    if (code)
        return code;
    /* A full kernel queue has 16,384 events; do not read newer ones. */
    for (int i = 0; i < 64 && watch_set_read(keeper); i++)
        ;
    if (watch->has_lost) {
        watch->has_lost = false;
        return watch_fail_lost(watch, err);
    }
    if (watch->missed) {
        code = watch_fail(watch, watch->missed, err);
        watch->missed = 0;
        return code;
    }
    while (watch->events) {
        code = keeper_wait_writable(request->channel, err);
        if (code)
            return code;
        int error = watch_send(keeper, request->channel, watch);
        if (error == -EAGAIN || error == -ENOBUFS)
            continue;
        if (error)
            return cay_fail_errno(err, -error, "files.watcher", request->strings[0]);
        watch_drop_event(watch);
    }
    return KEEPER_DONE;
}

int keeper_op_watcher_remove(struct keeper *keeper, struct keeper_request *request,
                             struct cay_error *err)
{
    struct watch *watch = NULL;
    int code = find_watcher(keeper, request->strings[0], &watch, err);

    if (code)
        return code;
    watch_free(watch);
    return KEEPER_DONE;
}
