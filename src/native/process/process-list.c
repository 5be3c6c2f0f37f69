/* SPDX-License-Identifier: Apache-2.0 */

/* Init reports which processes are commands and passes a descriptor of its /proc, in
 * which every process has its pid inside, grandchildren included, whatever cgroup it is
 * in.  The files are read here and not by init, since a process can make reading its
 * memory slow.
 *
 * Names and arguments are any bytes; they are converted to text without control
 * characters. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/process/process.h"
#include "native/record/idmap.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/rights.h"

static const char op[] = "process.list";

enum { PROCESSES_MAX = 65536 };

struct listing {
    int proc; /* /proc inside, or -1 */
    struct list_entry *commands;
    size_t command_count;
    struct cay_process_info *infos;
    size_t count, room;
    struct idmap_shown users;
    int64_t boot_ms; /* since 1970 */
    struct limit_events events;
    int spare; /* the prefork process, not listed, like PID 1 */
};

/* --- Commands, from init --- */

/* Whether the entry is valid; texts that are only displayed are converted. */
static bool take_entry(struct list_entry *entry)
{
    int64_t now = clock_since_1970_ms();

    if (entry->pid <= 0 ||
        (entry->flags & LIST_ENDED &&
         (entry->cause < CAY_CAUSE_EXITED || entry->cause > CAY_CAUSE_NOT_STARTED)))
        return false;
    if (entry->started_ms < 0 || entry->started_ms > now)
        entry->started_ms = now;
    entry->tag[TAG_MAX - 1] = entry->words[WORDS_MAX - 1] = '\0';
    wire_make_text(entry->tag, strlen(entry->tag));
    wire_make_text(entry->words, strlen(entry->words));
    return true;
}

/* Adds the entries of a page; false if it is invalid. */
static bool take_page(struct listing *listing, struct packet *packet, uint64_t *after,
                      size_t *ret_count)
{
    struct list_head head;

    if (packet->head.kind != MESSAGE_LISTED || packet->head.len < sizeof head)
        return false;
    memcpy(&head, packet->payload, sizeof head);
    size_t size = (packet->head.len - sizeof head) / sizeof *listing->commands;
    if (head.count != size ||
        packet->head.len != sizeof head + size * sizeof *listing->commands)
        return false;
    listing->spare = head.prefork;
    struct statfs fs;
    if (packet->head.fd_count == 1 && listing->proc < 0 &&
        fstatfs(packet->fds[0], &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
        listing->proc = TAKE_FD(packet->fds[0]);
    struct list_entry *more =
        realloc(listing->commands,
                (listing->command_count + size + 1) * sizeof *listing->commands);
    if (!more)
        return false;
    listing->commands = more;
    more += listing->command_count;
    memcpy(more, packet->payload + sizeof head, size * sizeof *more);
    for (size_t i = 0; i < size; i++) {
        if (more[i].number <= *after || !take_entry(&more[i]))
            return false;
        *after = more[i].number;
    }
    listing->command_count += size;
    *ret_count = size;
    return true;
}

static int request_page(struct native *native, struct listing *listing,
                        struct cay_error *err)
{
    AUTO_FREE struct packet *packet = calloc(1, sizeof *packet);
    uint64_t after = 0, end = clock_ms() + (uint64_t)native->reply_ms;
    size_t count = 1;
    int code = packet ? native_connect(native, err) : cay_fail_memory(err, op);

    while (!code && count > 0 && listing->command_count < PROCESSES_MAX) {
        int error =
            packet_send(native->socket, MESSAGE_LIST, &after, sizeof after, NULL, 0);
        if (error) {
            code = wire_fail_send(native->socket, op, native->record.id, -error, err);
            break;
        }
        code = clock_ms() < end ? wire_wait(native->socket, native->reply_ms, op,
                                            native->record.id, err)
                                : wire_fail_silent(op, native->record.id, err);
        int got = code ? 0 : packet_poll(native->socket, packet);
        if (!code && got != 1)
            code = wire_fail_gone(op, native->record.id, got < 0 ? -got : 0, err);
        if (code)
            break;
        if (packet->head.kind == MESSAGE_FAILED)
            code = wire_error(packet->payload, packet->head.len, err);
        else if (!take_page(listing, packet, &after, &count))
            code = wire_error(NULL, 0, err);
        wire_close_fds(packet->fds);
    }
    if (code && native->socket >= 0) {
        rights_hang_up(native->socket);
        native->socket = -1;
    }
    return code;
}

/* --- Processes, from /proc --- */

/* Just after execve a process has a name but no arguments yet. */
static void read_command(int directory, const char *name, size_t name_len,
                         bool has_memory, struct cay_process_info *info)
{
    char text[2 * sizeof info->command];
    ssize_t len = io_read_text(directory, "cmdline", text, sizeof text);

    for (int tries = 0; len == 0 && has_memory && tries < 3; tries++) {
        clock_sleep_ms(1);
        len = io_read_text(directory, "cmdline", text, sizeof text);
    }
    while (len > 0 && text[len - 1] == '\0')
        len--;
    if (len <= 0) /* a zombie, or a process that has overwritten its arguments */
        len = snprintf(text, sizeof text, "[%.*s]", (int)name_len, name);
    wire_make_text(text, (size_t)len);
    text[len] = '\0';
    cay_copy_text(info->command, sizeof info->command, text);
}

/* "12 (name) S 1 ...": the name may contain any byte, so the last ")" ends it. */
static bool read_stat(const struct listing *listing, int directory,
                      struct cay_process_info *info)
{
    unsigned long long fields[22];
    char text[1024];
    long tick = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);

    if (io_read_text(directory, "stat", text, sizeof text) <= 0)
        return false;
    const char *name = strchr(text, '(');
    char *at = strrchr(text, ')');
    if (!name || !at || at < name || at[1] != ' ' || !at[2])
        return false;
    info->state = at[2];
    const char *name_end = at;
    at += 3;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) /* from ppid, field 4 */
        fields[i] = strtoull(at, &at, 10);
    info->parent = (int)fields[0];
    info->cpu_us = (fields[10] + fields[11]) * (1000000ull / (unsigned long long)tick);
    info->started_ms =
        listing->boot_ms + (int64_t)(fields[18] * 1000 / (unsigned long long)tick);
    info->memory_bytes = fields[20] * (unsigned long long)page;
    bool has_memory = info->state != 'Z' && fields[19] > 0;
    read_command(directory, name + 1, (size_t)(name_end - name - 1), has_memory, info);
    return true;
}

static bool read_process(const struct listing *listing, const char *name,
                         struct cay_process_info *info)
{
    char text[4096];
    AUTO_FD directory =
        openat(listing->proc, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    *info = (struct cay_process_info){.pid = (int)strtol(name, NULL, 10)};
    if (directory < 0 || !read_stat(listing, directory, info) ||
        io_read_text(directory, "status", text, sizeof text) <= 0)
        return false;
    const char *uid = strstr(text, "\nUid:");
    unsigned long outside = uid ? strtoul(uid + 5, NULL, 10) : UINT32_MAX;
    info->uid = idmap_inside(&listing->users, (uint32_t)outside);
    return true;
}

static struct cay_process_info *add(struct listing *listing)
{
    return array_reserve(&listing->infos, &listing->room, listing->count + 1,
                         sizeof *listing->infos)
               ? &listing->infos[listing->count]
               : NULL;
}

static int walk_proc(struct listing *listing, struct cay_error *err)
{
    AUTO_DIR directory = path_list(listing->proc);

    if (!directory)
        return cay_fail_errno(err, errno, op, "/proc");
    struct timespec now, up;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    listing->boot_ms =
        (int64_t)(now.tv_sec - up.tv_sec) * 1000 + (now.tv_nsec - up.tv_nsec) / 1000000;
    idmap_read(listing->proc, "1/uid_map", &listing->users);
    int code = CAY_OK;
    for (struct dirent *entry; !code && (entry = path_next(directory));) {
        const char *name = entry->d_name;
        if (strspn(name, "0123456789") != strlen(name) || strcmp(name, "1") == 0)
            continue;
        struct cay_process_info *info = add(listing);
        if (!info || listing->count == PROCESSES_MAX)
            code = cay_fail_memory(err, op);
        else if (read_process(listing, name, info) && info->pid != listing->spare)
            listing->count++;
    }
    return code;
}

/* --- Which processes are inside --- */

static int by_pid(const void *left, const void *right)
{
    const struct cay_process_info *a = left, *b = right;

    return a->pid != b->pid ? (a->pid < b->pid ? -1 : 1)
                            : (int)b->has_ended - (int)a->has_ended;
}

/* After the sort. */
static struct cay_process_info *find(struct listing *listing, int pid)
{
    const struct cay_process_info wanted = {.pid = pid};

    return bsearch(&wanted, listing->infos, listing->count, sizeof wanted, by_pid);
}

/* Without a PID namespace /proc is the host's: only descendants of init are inside. */
static bool comes_from(struct listing *listing, const struct cay_process_info *info,
                       int init)
{
    for (size_t steps = 0; info && steps < listing->count; steps++) {
        if (info->parent == init)
            return true;
        info = find(listing, info->parent);
    }
    return false;
}

/* Without cgroups the children of init are subreapers, which are not listed, like
 * init. */
static void keep_own(struct listing *listing, const struct record *record)
{
    bool alone = !runtime_has_namespaces(record);
    bool held = !record->cgroup.unified[0];
    int init = alone ? record->init : 1;
    size_t kept = 0;

    if ((!alone && !held) || listing->count == 0)
        return;
    qsort(listing->infos, listing->count, sizeof *listing->infos, by_pid);
    AUTO_FREE bool *is_kept = calloc(listing->count + 1, sizeof *is_kept);
    AUTO_FREE bool *is_adopted = calloc(listing->count + 1, sizeof *is_adopted);
    for (size_t i = 0; is_kept && is_adopted && i < listing->count; i++) {
        const struct cay_process_info *info = &listing->infos[i];
        const struct cay_process_info *parent = find(listing, info->parent);
        is_kept[i] = !(held && info->parent == init) &&
                     (!alone || comes_from(listing, info, init));
        is_adopted[i] = held && parent && parent->parent == init;
    }
    for (size_t i = 0; is_kept && is_adopted && i < listing->count; i++) {
        if (!is_kept[i])
            continue;
        listing->infos[kept] = listing->infos[i];
        if (is_adopted[i])
            listing->infos[kept].parent = init;
        kept++;
    }
    listing->count = kept;
}

/* --- The merged list --- */

static void describe(const struct list_entry *entry, struct cay_process_info *info)
{
    info->is_command = true;
    info->parent = 0;
    info->is_background = entry->flags & LIST_BACKGROUND;
    info->has_terminal = entry->flags & LIST_TERMINAL;
    info->started_ms = entry->started_ms;
    cay_copy_text(info->tag, sizeof info->tag, entry->tag);
}

static int exit_code_of(const struct list_entry *entry)
{
    if (entry->cause == CAY_CAUSE_TIMEOUT)
        return 124;
    return WIFSIGNALED(entry->status) ? 128 + WTERMSIG(entry->status)
                                      : WEXITSTATUS(entry->status);
}

static enum cay_cause cause_of(const struct listing *listing,
                               const struct list_entry *entry)
{
    uint64_t mark = command_mark(&listing->events, entry->mark);
    uint32_t kills = command_memory_kills(mark, entry->mark);

    return command_is_oom(entry->status, entry->cause, entry->killed, kills)
               ? CAY_CAUSE_MEMORY
               : (enum cay_cause)entry->cause;
}

/* A command that is no longer in /proc. */
static int add_command(struct listing *listing, const struct list_entry *entry,
                       struct cay_error *err)
{
    struct cay_process_info *info = add(listing);
    bool ended = entry->flags & LIST_ENDED;

    if (!info)
        return cay_fail_memory(err, op);
    *info = (struct cay_process_info){.pid = entry->pid,
                                      .uid = entry->uid,
                                      .has_ended = ended,
                                      .exit_code = ended ? exit_code_of(entry) : 0,
                                      .state = ended ? 'X' : 'Z',
                                      .cause = ended ? cause_of(listing, entry) : 0};
    describe(entry, info);
    cay_copy_text(info->command, sizeof info->command, entry->words);
    listing->count++;
    return CAY_OK;
}

/* A command may have died since the reply of init, or its end may be about to be
 * reported. */
static int merge(struct listing *listing, struct cay_error *err)
{
    size_t running = listing->count;
    int code = CAY_OK;

    for (size_t i = 0; i < listing->command_count && !code; i++) {
        const struct list_entry *entry = &listing->commands[i];
        bool found = false;
        for (size_t k = 0; k < running && !(entry->flags & LIST_ENDED); k++)
            if (listing->infos[k].pid == entry->pid) {
                describe(entry, &listing->infos[k]);
                found = true;
            }
        if (!found && entry->flags & LIST_BACKGROUND)
            code = add_command(listing, entry, err);
    }
    return code;
}

int process_list(void *cookie, struct cay_process_info **ret_infos, size_t *ret_count,
                 struct cay_error *err)
{
    struct native *native = cookie;
    struct listing listing = {.proc = -1};
    int code = native_prepare_exec(native, err);

    listing.events = native->events;
    if (!code)
        code = request_page(native, &listing, err);

    if (!code && listing.proc >= 0)
        code = walk_proc(&listing, err);
    if (!code)
        keep_own(&listing, &native->record);
    if (!code)
        code = merge(&listing, err);
    if (!code && !add(&listing)) /* an empty result needs an array too */
        code = cay_fail_memory(err, op);
    if (!code) {
        qsort(listing.infos, listing.count, sizeof *listing.infos, by_pid);
        *ret_infos = TAKE_PTR(listing.infos);
        *ret_count = listing.count;
    }
    auto_close(&listing.proc);
    free(listing.commands);
    free(listing.infos);
    return code;
}
