/* SPDX-License-Identifier: Apache-2.0 */

/* Directories that clients watch.
 *
 * The sandbox's init opens a directory and passes it out; the kernel is then asked here
 * to tell of changes to it.  All watches of a sandbox share one inotify instance, of
 * which a user has few.  A watch has a node for each directory it covers, and the same
 * directory may be under several watches: the kernel then has one number for it.
 *
 * Changes go to a stream as they come, or wait in a queue until they are asked for.  A
 * reader who does not keep up loses the newest: queues are bounded.  Who asks is told of
 * that, and a stream ends with it. */
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
    char below[]; /* the watched directory, with a slash at its end; "" is that itself */
};

struct event {
    struct event *next;
    enum change change;
    char name[]; /* below the watched directory */
};

struct watch {
    struct task task; /* of a stream */
    struct watch *next;
    struct keep_source client;
    struct node *nodes;
    struct node *found; /* still to be covered: a tree may be deeper than the stack */
    struct event *events, **last;
    size_t event_count;
    unsigned flags;
    bool is_stream, is_blocked;
    bool has_lost; /* changes, and nobody was told of that */
    int missed;    /* why a directory is not covered, if nobody was told; an errno */
    char *id;      /* of one that is asked for its changes */
    char user[USER_MAX];
    char path[PATH_MAX];
};

struct watching {
    struct keep_source source;
    int inotify;
    struct watch *watches;
    size_t watch_count, node_count, event_bytes;
    unsigned numbers;
};

enum {
    QUEUE_MAX = 4096,      /* changes of one watch, which are asked for all at once */
    STREAM_MAX = 65536,    /* of a stream, which is told as it reads */
    QUEUES_MAX = 64 << 20, /* bytes, of all watches together */
    NODES_MAX = 8192,      /* directories, of all watches together */
    WATCHES_MAX = 256,
    /* Opening and closing are not reported.  But the kernel merges an event with the last
     * one in its queue if both are equal: these come between the writes of two openings.
     */
    MASK = IN_OPEN | IN_CLOSE_WRITE | IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM |
           IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
};

/* --- Nodes --- */

static bool is_shared(const struct watching *watching, int wd)
{
    unsigned count = 0;

    for (const struct watch *watch = watching->watches; watch; watch = watch->next)
        for (const struct node *node = watch->nodes; node; node = node->next)
            count += node->wd == wd;
    return count > 1;
}

static void drop_node(struct watching *watching, struct node **link)
{
    struct node *node = *link;

    if (!is_shared(watching, node->wd))
        (void)inotify_rm_watch(watching->inotify, node->wd);
    *link = node->next;
    watching->node_count--;
    free(node);
}

static bool push_node(struct watching *watching, struct node **list, const char *below,
                      int wd)
{
    size_t len = strlen(below) + 1;
    struct node *node = malloc(sizeof *node + len);

    if (!node)
        return false;
    node->next = *list;
    node->wd = wd;
    memcpy(node->below, below, len);
    *list = node;
    watching->node_count++;
    return true;
}

static int fail_full(const char *what, unsigned most, struct cay_error *err)
{
    char message[80];

    snprintf(message, sizeof message, "at most %u %s can be there in a sandbox", most,
             what);
    return cay_fail(err, CAY_E_LIMIT, 0, "files.watch", NULL, message,
                    "watch fewer, or not what is below them");
}

/* A directory cannot be watched; E2BIG: there are as many as there may be. */
static int watch_fail(const struct watch *watch, int error, struct cay_error *err)
{
    if (error == E2BIG)
        return fail_full("directories that are watched", NODES_MAX, err);
    if (error == ENOSPC)
        return cay_fail(err, CAY_E_LIMIT, error, "files.watch", NULL,
                        "this machine cannot watch more directories",
                        "raise fs.inotify.max_user_watches");
    return cay_fail_errno(err, error, "files.watch", watch->path);
}

/* There were more changes than it has room for. */
static int watch_fail_lost(const struct watch *watch, struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, "files.watch", watch->path,
                    "more has changed than is remembered",
                    "look at the directory; what is remembered is told");
}

static int add_node(struct watching *watching, struct watch *watch, int fd,
                    const char *below, struct cay_error *err)
{
    char path[64];

    if (watching->node_count >= NODES_MAX)
        return watch_fail(watch, E2BIG, err);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int wd = inotify_add_watch(watching->inotify, path, MASK);
    if (wd < 0)
        return watch_fail(watch, errno, err);
    for (const struct node *node = watch->nodes; node; node = node->next)
        if (node->wd == wd)
            return CAY_OK;
    return push_node(watching, &watch->nodes, below, wd)
               ? CAY_OK
               : cay_fail_memory(err, "files.watch");
}

/* --- Events --- */

static size_t event_size(const char *below, const char *name)
{
    return sizeof(struct event) + strlen(below) + strlen(name) + 1;
}

static void add_event(struct watching *watching, struct watch *watch, enum change change,
                      const char *below, const char *name)
{
    size_t size = event_size(below, name), room = size - sizeof(struct event);
    size_t most = watch->is_stream ? STREAM_MAX : QUEUE_MAX;
    bool fits = watch->event_count < most && watching->event_bytes + size <= QUEUES_MAX;
    bool is_ending =
        watch->is_stream && watch->has_lost; /* there is no gap in a stream */
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
    watching->event_bytes += size;
}

static void watch_drop_event(struct watching *watching, struct watch *watch)
{
    struct event *event = watch->events;

    watch->events = event->next;
    if (!watch->events)
        watch->last = &watch->events;
    watch->event_count--;
    watching->event_bytes -= event_size("", event->name);
    free(event);
}

/* What it is now, if that is asked for and it is still there. */
static void add_entry(struct keep *keep, const struct watch *watch,
                      const struct event *event, struct tell *tell, struct buf *strings)
{
    struct names names;
    char path[PATH_MAX];
    size_t before = strings->len;
    cay_files *files = keep_files(keep, watch->user, NULL);
    int len = snprintf(path, sizeof path, "%s/%s",
                       strcmp(watch->path, "/") == 0 ? "" : watch->path, event->name);

    if (!files || len < 0 || len >= PATH_MAX || event->change == CHANGE_REMOVE ||
        event->change == CHANGE_RENAME)
        return;
    names_read(files, &names);
    if (entry_describe(files, &names, &(struct entry){path, path, NULL},
                       tell->numbers + CHANGE_ENTRY, strings, &tell->count,
                       NULL) != CAY_OK)
        strings->len = before;
}

/* Tells the first of its changes: 0, or a negative errno. */
static int watch_tell(struct keep *keep, int channel, const struct watch *watch)
{
    const struct event *event = watch->events;
    struct tell tell = {
        .kind = TELL_CHANGE, .count = 1, .numbers = {[CHANGE_WHAT] = event->change}};
    AUTO_BUF strings = {0};

    buf_init(&strings, CHANNEL_PACKET);
    strings_add(&strings, event->name);
    if (watch->flags & WATCH_ENTRIES)
        add_entry(keep, watch, event, &tell, &strings);
    return tell_send(channel, &tell, &strings, -1);
}

/* --- Covering a directory and what is below it --- */

static bool is_directory(DIR *dir, const struct dirent *found)
{
    struct stat st;

    if (found->d_type != DT_UNKNOWN)
        return found->d_type == DT_DIR;
    return fstatat(dirfd(dir), found->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

/* Takes the descriptor.  What lies in a directory that is new was made before we watched
 * it, and is told now. */
static void cover_names(struct watching *watching, struct watch *watch, const char *below,
                        bool is_news, int fd)
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
        if (is_news)
            add_event(watching, watch, CHANGE_CREATE, below, entry->d_name);
        int len = snprintf(deeper, sizeof deeper, "%s%s/", below, entry->d_name);
        if (watch->flags & WATCH_RECURSIVE && len > 0 && len < PATH_MAX &&
            is_directory(dir, entry)) {
            if (watching->node_count >= NODES_MAX)
                watch->missed = E2BIG;
            else if (!push_node(watching, &watch->found, deeper, -1))
                watch->missed = ENOMEM;
        }
    }
    (void)closedir(dir);
}

/* A path is followed to its last name, but what is found below it is no link. */
static int cover_one(struct keep *keep, struct watch *watch, const char *below,
                     bool is_news, struct cay_error *err)
{
    char path[2 * PATH_MAX];
    AUTO_FD fd = -1;
    cay_files *files = keep_files(keep, watch->user, err);

    if (!files)
        return err ? err->code : CAY_E_UNAVAILABLE;
    snprintf(path, sizeof path, "%s/%s", watch->path, below);
    int code = cay_files_descriptor(files, path, CAY_DESCRIPTOR_DIRECTORY, &fd, err);
    if (!code)
        code = add_node(keep->watching, watch, fd, below, err);
    if (!code && (watch->flags & WATCH_RECURSIVE || is_news))
        cover_names(keep->watching, watch, below, is_news, TAKE_FD(fd));
    return code;
}

/* What has gone, or may not be looked at, has nothing to tell; what is too much has. */
static void note_missed(struct watch *watch, const struct cay_error *error)
{
    if (error->code == CAY_E_LIMIT)
        watch->missed = error->sys_errno ? error->sys_errno : E2BIG;
    else if (error->code == CAY_E_NO_MEMORY)
        watch->missed = ENOMEM;
}

static int cover(struct keep *keep, struct watch *watch, const char *below, bool is_news,
                 struct cay_error *err)
{
    int code = cover_one(keep, watch, below, is_news, err);

    while (watch->found) {
        AUTO_FREE struct node *node = watch->found;
        watch->found = node->next;
        keep->watching->node_count--;
        struct cay_error error;
        if (cover_one(keep, watch, node->below, is_news, &error) != CAY_OK)
            note_missed(watch, &error);
    }
    return code;
}

/* --- What the kernel tells --- */

static void send_events(struct keep *keep, struct watch *watch);

static void note(struct keep *keep, struct watch *watch, struct node *node,
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

    /* Of a directory below, the one that it is in tells the same. */
    if (!*name && *node->below)
        return;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (event->mask & changes[i].mask)
            add_event(keep->watching, watch, changes[i].change, node->below, name);
    int len = snprintf(below, sizeof below, "%s%s/", node->below, name);
    if (*name && event->mask & IN_ISDIR && event->mask & (IN_CREATE | IN_MOVED_TO) &&
        watch->flags & WATCH_RECURSIVE && len > 0 && len < PATH_MAX &&
        cover(keep, watch, below, true, &error) != CAY_OK)
        note_missed(watch, &error);
}

static void pass_on(struct keep *keep, const struct inotify_event *event)
{
    for (struct watch *watch = keep->watching->watches; watch; watch = watch->next) {
        watch->has_lost |= event->mask & IN_Q_OVERFLOW;
        struct node **link = &watch->nodes;
        while (*link && (*link)->wd != event->wd)
            link = &(*link)->next;
        if (!*link)
            continue;
        if (event->mask & IN_IGNORED)
            drop_node(keep->watching, link);
        else
            note(keep, watch, *link, event);
    }
}

/* Some of what the kernel has to say until now; false if there was nothing. */
static bool watching_hear(struct keep *keep)
{
    _Alignas(struct inotify_event) char room[16 << 10];
    ssize_t len = read(keep->watching->inotify, room, sizeof room);

    for (ssize_t at = 0; at < len;) {
        const struct inotify_event *event = (const struct inotify_event *)(room + at);
        pass_on(keep, event);
        at += (ssize_t)(sizeof *event + event->len);
    }
    for (struct watch *watch = keep->watching->watches; watch; watch = watch->next)
        if (watch->is_stream)
            send_events(keep, watch);
    return len > 0;
}

static void hear_kernel(struct keep *keep, struct keep_source *source, unsigned events)
{
    (void)source;
    (void)events;
    (void)watching_hear(keep);
}

static int begin(struct keep *keep, struct cay_error *err)
{
    if (keep->watching)
        return CAY_OK;
    struct watching *watching = calloc(1, sizeof *watching);
    if (!watching)
        return cay_fail_memory(err, "files.watch");
    watching->source.ready = hear_kernel;
    watching->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watching->inotify < 0 ||
        !keep_watch(keep, watching->inotify, EPOLLIN, &watching->source)) {
        int code = cay_fail(err, CAY_E_LIMIT, errno, "files.watch", NULL,
                            "this machine cannot watch for more sandboxes",
                            "raise fs.inotify.max_user_instances");
        if (watching->inotify >= 0)
            (void)close(watching->inotify);
        free(watching);
        return code;
    }
    keep->watching = watching;
    return CAY_OK;
}

/* --- Watches --- */

static struct watching *ours; /* for tasks, which know only themselves */

static void watch_free(struct watching *watching, struct watch *watch)
{
    struct watch **link = &watching->watches;

    while (*link && *link != watch)
        link = &(*link)->next;
    while (watch->nodes)
        drop_node(watching, &watch->nodes);
    if (*link) {
        *link = watch->next;
        watching->watch_count--;
    }
    while (watch->events)
        watch_drop_event(watching, watch);
    free(watch->id);
    free(watch);
}

/* Covers what the question names; to be freed. */
static int watch_new(struct keep *keep, const struct question *question,
                     struct watch **ret_watch, struct cay_error *err)
{
    int code = begin(keep, err);

    if (code)
        return code;
    struct watching *watching = ours = keep->watching;
    if (watching->watch_count >= WATCHES_MAX)
        return fail_full("watches", WATCHES_MAX, err);
    struct watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return cay_fail_memory(err, "files.watch");
    watch->last = &watch->events;
    watch->task.channel = -1;
    watch->flags = question->head.flags;
    cay_copy_text(watch->user, USER_MAX, question->head.user);
    watch->next = watching->watches;
    watching->watches = watch;
    watching->watch_count++;
    code = entry_path(keep, watch->user, question->strings[0], watch->path, err);
    if (!code)
        code = cover(keep, watch, "", false, err);
    if (!code && watch->missed)
        code = watch_fail(watch, watch->missed, err);
    if (code)
        watch_free(watching, watch);
    else
        *ret_watch = watch;
    return code;
}

/* --- Streams --- */

static void stream_done(struct task *task)
{
    watch_free(ours, (struct watch *)task);
}

static void end_stream(struct keep *keep, struct watch *watch)
{
    if (!watch->task.is_over)
        keep_forget(keep, watch->task.channel);
    watch->task.is_over = true;
}

/* Who has heard of all changes so far is not to take silence for peace. */
static void end_partly(struct keep *keep, struct watch *watch)
{
    struct cay_error error = {0};

    if (watch->missed)
        (void)watch_fail(watch, watch->missed, &error);
    else
        (void)watch_fail_lost(watch, &error);
    int sent = tell_failed(watch->task.channel, 0, &error);
    watch->is_blocked = sent == -EAGAIN || sent == -ENOBUFS;
    if (!watch->is_blocked)
        end_stream(keep, watch);
}

static void send_events(struct keep *keep, struct watch *watch)
{
    bool was_blocked = watch->is_blocked;

    watch->is_blocked = false;
    while (watch->events && !watch->task.is_over && !watch->is_blocked) {
        int error = watch_tell(keep, watch->task.channel, watch);
        watch->is_blocked = error == -EAGAIN || error == -ENOBUFS;
        if (!watch->is_blocked)
            watch_drop_event(keep->watching, watch);
        if (error && !watch->is_blocked)
            end_stream(keep, watch);
    }
    bool is_partial = watch->missed || watch->has_lost;
    if (is_partial && !watch->task.is_over && !watch->is_blocked)
        end_partly(keep, watch);
    if (!watch->task.is_over && was_blocked != watch->is_blocked)
        keep_change(keep, watch->task.channel,
                    EPOLLRDHUP | (watch->is_blocked ? (unsigned)EPOLLOUT : 0u),
                    &watch->client);
}

static void hear_client(struct keep *keep, struct keep_source *source, unsigned events)
{
    struct watch *watch =
        (struct watch *)((char *)source - offsetof(struct watch, client));

    if (watch->task.is_over)
        return;
    if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        end_stream(keep, watch);
    else
        send_events(keep, watch);
}

int keep_watch_dir(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct tell tell = {.kind = TELL_STARTED};
    struct watch *watch = NULL;
    int code = watch_new(keep, question, &watch, err);

    if (code)
        return code;
    watch->is_stream = true;
    watch->client.ready = hear_client;
    watch->task.done = stream_done;
    watch->task.channel = question->channel;
    question->channel = -1;
    keep_add(keep, &watch->task);
    if (tell_send(watch->task.channel, &tell, NULL, -1) != 0 ||
        !keep_watch(keep, watch->task.channel, EPOLLRDHUP, &watch->client))
        end_stream(keep, watch);
    return CAY_OK;
}

/* --- Watchers --- */

/* Watches that are asked now and then. */

/* "KEEPER.NUMBER.FLAGS.USER/PATH": a keeper that comes after this one, when the server
 * was started again, can make the watcher anew. */
static bool name_watcher(struct watching *watching, struct watch *watch)
{
    bool is_text = utf8_is_valid(watch->path, strlen(watch->path));

    if (asprintf(&watch->id, "%d.%u.%u.%s%s", getpid(), ++watching->numbers, watch->flags,
                 watch->user, is_text ? watch->path : "") < 0)
        watch->id = NULL;
    return watch->id;
}

int keep_watcher_new(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct tell tell = {.kind = TELL_TEXT, .count = 1};
    struct watch *watch = NULL;
    AUTO_BUF strings = {0};
    int code = watch_new(keep, question, &watch, err);

    if (code)
        return code;
    if (!name_watcher(keep->watching, watch)) {
        watch_free(keep->watching, watch);
        return cay_fail_memory(err, "files.watcher");
    }
    buf_init(&strings, CHANNEL_PACKET);
    strings_add(&strings, watch->id);
    (void)tell_send(question->channel, &tell, &strings, -1);
    (void)tell_done(question->channel);
    return CAY_OK;
}

/* One that an earlier keeper had.  What happened since is not told. */
static int find_again(struct keep *keep, const char *id, struct watch **ret_watch,
                      struct cay_error *err)
{
    const char *path = strchr(id, '/');
    struct question question = {.strings = &path};
    char *end;
    long keeper = strtol(id, &end, 10);
    (void)strtoul(*end == '.' ? end + 1 : "", &end, 10);
    question.head.flags = (uint32_t)strtoul(*end == '.' ? end + 1 : "", &end, 10);

    if (*end != '.' || !path || keeper == getpid() || path - end > USER_MAX ||
        question.head.flags & ~(uint32_t)(WATCH_RECURSIVE | WATCH_ENTRIES))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "files.watcher", id,
                        "there is no such watcher", "make one with CreateWatcher");
    memcpy(question.head.user, end + 1, (size_t)(path - end) - 1);
    AUTO_FREE char *kept = strdup(id);
    if (!kept)
        return cay_fail_memory(err, "files.watcher");
    int code = watch_new(keep, &question, ret_watch, err);
    if (!code)
        (*ret_watch)->id = TAKE_PTR(kept);
    return code;
}

static int find_watcher(struct keep *keep, const char *id, struct watch **ret_watch,
                        struct cay_error *err)
{
    struct watch *watch = keep->watching ? keep->watching->watches : NULL;

    for (; watch; watch = watch->next)
        if (watch->id && strcmp(watch->id, id) == 0) {
            *ret_watch = watch;
            return CAY_OK;
        }
    return find_again(keep, id, ret_watch, err);
}

/* What has happened until now is among them. */
int keep_watcher_events(struct keep *keep, struct question *question,
                        struct cay_error *err)
{
    struct watch *watch = NULL;
    int code = find_watcher(keep, question->strings[0], &watch, err);

    if (code)
        return code;
    /* All of a full queue (16,384 events), but no more of what goes on meanwhile. */
    for (int i = 0; i < 64 && watching_hear(keep); i++)
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
        code = keep_wait(question->channel, err);
        if (code)
            return code;
        int error = watch_tell(keep, question->channel, watch);
        if (error == -EAGAIN || error == -ENOBUFS)
            continue;
        if (error)
            return cay_fail_errno(err, -error, "files.watcher", question->strings[0]);
        watch_drop_event(keep->watching, watch);
    }
    (void)tell_done(question->channel);
    return CAY_OK;
}

int keep_watcher_remove(struct keep *keep, struct question *question,
                        struct cay_error *err)
{
    struct watch *watch = NULL;
    int code = find_watcher(keep, question->strings[0], &watch, err);

    if (code)
        return code;
    watch_free(keep->watching, watch);
    (void)tell_done(question->channel);
    return CAY_OK;
}
