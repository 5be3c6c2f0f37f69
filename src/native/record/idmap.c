/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "init/plan.h"
#include "sys/io.h"
#include "sys/spawn.h"

enum { OVERFLOW_ID = 65534 };

struct wanted_line {
    unsigned long id, count, above;
    bool found;
};

static void match_line(void *cookie, char *line)
{
    struct wanted_line *wanted = cookie;
    unsigned long inside = strtoul(line, &line, 10);
    unsigned long above = strtoul(line, &line, 10);
    unsigned long many = strtoul(line, &line, 10);

    if (wanted->found || inside > wanted->id ||
        inside + many < wanted->id + wanted->count)
        return;
    wanted->found = true;
    wanted->above = above + (wanted->id - inside);
}

/* Whether the line of uid_map that contains `id` covers `count` ids, and its first id in
 * the parent namespace; negative if the map cannot be read. */
static int find_line(unsigned long id, unsigned long count, unsigned long *ret_above)
{
    struct wanted_line wanted = {.id = id, .count = count};
    int error = io_each_line("/proc/self/uid_map", match_line, &wanted);

    *ret_above = wanted.above;
    return error ? error : wanted.found;
}

void idmap_read(int dir, const char *path, struct idmap_shown *ret_shown)
{
    const size_t room = sizeof ret_shown->lines / sizeof *ret_shown->lines;
    char text[512], *at = text;

    (void)io_read_text(dir, path, text, sizeof text);
    ret_shown->count = 0;
    while (*at && ret_shown->count < room) {
        struct idmap_line *line = &ret_shown->lines[ret_shown->count];
        line->inside = (uint32_t)strtoul(at, &at, 10);
        line->outside = (uint32_t)strtoul(at, &at, 10);
        line->count = (uint32_t)strtoul(at, &at, 10);
        if (*at++ != '\n')
            return;
        ret_shown->count++;
    }
}

uint32_t idmap_inside(const struct idmap_shown *shown, uint32_t outside)
{
    for (size_t i = 0; i < shown->count; i++) {
        const struct idmap_line *line = &shown->lines[i];
        if (outside - line->outside < line->count)
            return outside - line->outside + line->inside;
    }
    return OVERFLOW_ID;
}

/* Cached: the map of a process does not change, and reading it takes a while. */
static int has_all_ranges(void)
{
    static _Atomic pid_t
        looked; /* the process that read it, negative if it maps all ids */
    pid_t self = getpid();
    unsigned long above;

    if (looked != self && looked != -self) {
        int found = find_line(0x70000000, 0x0FFF0000, &above);
        if (found < 0)
            return found;
        looked = found ? -self : self;
    }
    return looked == -self;
}

bool idmap_is_root(void)
{
    return geteuid() == 0 && has_all_ranges() > 0;
}

int idmap_check(void)
{
    int found = geteuid() == 0 ? has_all_ranges() : 0;

    return found < 0 ? found : 0;
}

/* If uid_map is unreadable, assume host root. */
bool idmap_is_host_root(void)
{
    unsigned long above = 0;

    return geteuid() == 0 && find_line(0, 1, &above) != 0 && above == 0;
}

void idmap_for_root(struct idmap *ret_map, uint32_t base)
{
    *ret_map = (struct idmap){.users = {{0, base, IDMAP_COUNT}},
                              .groups = {{0, base, IDMAP_COUNT}},
                              .count = 1};
}

static void fill_range(struct idmap_line lines[IDMAP_LINES], uint32_t first, uint32_t own)
{
    lines[0] = (struct idmap_line){0, first, PLAN_USER};
    lines[1] = (struct idmap_line){PLAN_USER, own, 1};
    lines[2] = (struct idmap_line){PLAN_USER + 1, first + PLAN_USER,
                                   IDMAP_COUNT - PLAN_USER - 1};
}

void idmap_for_range(struct idmap *ret_map, uint32_t users, uint32_t groups)
{
    *ret_map = (struct idmap){.count = IDMAP_LINES, .by_helper = true};
    fill_range(ret_map->users, users, geteuid());
    fill_range(ret_map->groups, groups, getegid());
}

void idmap_for_single(struct idmap *ret_map, uid_t uid, gid_t gid, bool own)
{
    *ret_map = (struct idmap){.users = {{PLAN_USER, uid, 1}},
                              .groups = {{PLAN_USER, gid, 1}},
                              .count = 1,
                              .no_groups = own};
}

void idmap_for_probe(struct idmap *ret_map)
{
    bool root = idmap_is_root();

    *ret_map = (struct idmap){.users = {{0, root ? IDMAP_PROBE : geteuid(), 1}},
                              .groups = {{0, root ? IDMAP_PROBE : getegid(), 1}},
                              .count = 1,
                              .no_groups = !root};
}

/* Only the maps of ordinary users: root's files have the owners as inside. */
void idmap_text(const struct idmap *map, char ret_text[IDMAP_TEXT])
{
    ret_text[0] = '\0';
    if (map->by_helper)
        snprintf(ret_text, IDMAP_TEXT, "%u:%u:%u:%u", map->users[0].outside,
                 map->groups[0].outside, map->users[1].outside, map->groups[1].outside);
    else if (map->no_groups)
        snprintf(ret_text, IDMAP_TEXT, "%u:%u", map->users[0].outside,
                 map->groups[0].outside);
}

static int put(pid_t pid, const char *name, const char *text)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return io_write_text(path, text);
}

static int put_lines(pid_t pid, const char *name, const struct idmap_line *lines,
                     size_t count)
{
    char text[IDMAP_LINES * 40];
    size_t len = 0;

    for (size_t i = 0; i < count; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%u %u %u\n",
                                lines[i].inside, lines[i].outside, lines[i].count);
    return put(pid, name, text);
}

/* Starts the program with an empty environment and no descriptors of this process. */
static int start_program(const char *name, pid_t pid, const struct idmap_line *lines,
                         size_t count, pid_t *ret_child)
{
    char words[1 + IDMAP_LINES * 3][16], *argv[3 + IDMAP_LINES * 3], *env[] = {NULL};
    const char *program = subids_program(name);
    size_t used = 0;

    if (!program)
        return -ENOENT;
    argv[0] = (char *)(uintptr_t)program;
    snprintf(words[used++], 16, "%d", (int)pid);
    for (size_t i = 0; i < count; i++) {
        snprintf(words[used++], 16, "%u", lines[i].inside);
        snprintf(words[used++], 16, "%u", lines[i].outside);
        snprintf(words[used++], 16, "%u", lines[i].count);
    }
    for (size_t i = 0; i < used; i++)
        argv[1 + i] = words[i];
    argv[1 + used] = NULL;
    const struct spawn spawn = {program, argv, env, -1, {-1, -1, -1}};
    return spawn_program(&spawn, ret_child);
}

void idmap_begin(const struct idmap *map, pid_t pid, struct idmap_helpers *ret_helpers)
{
    *ret_helpers = (struct idmap_helpers){0};
    ret_helpers->error =
        start_program("newuidmap", pid, map->users, map->count, &ret_helpers->users);
    if (!ret_helpers->error)
        ret_helpers->error = start_program("newgidmap", pid, map->groups, map->count,
                                           &ret_helpers->groups);
}

int idmap_finish(struct idmap_helpers *helpers)
{
    const pid_t children[] = {helpers->users, helpers->groups};
    int error = helpers->error;

    for (size_t i = 0; i < 2; i++) {
        int status = 0, got;
        if (children[i] <= 0)
            continue;
        do
            got = waitpid(children[i], &status, 0);
        while (got < 0 && errno == EINTR);
        /* ECHILD: this process ignores SIGCHLD, and the map inside shows the result. */
        int one = got < 0 ? (errno == ECHILD ? 0 : -errno) : status ? -EPERM : 0;
        if (!error)
            error = one;
    }
    *helpers = (struct idmap_helpers){0};
    return error;
}

int idmap_write(const struct idmap *map, pid_t pid)
{
    struct idmap_helpers helpers;

    if (map->by_helper) {
        idmap_begin(map, pid, &helpers);
        return idmap_finish(&helpers);
    }
    int error = map->no_groups ? put(pid, "setgroups", "deny") : 0;
    if (!error)
        error = put_lines(pid, "uid_map", map->users, map->count);
    if (!error)
        error = put_lines(pid, "gid_map", map->groups, map->count);
    return error;
}

/* --- Subordinate ids --- */

/* Parses "name:first:count"; false for any other line. */
static bool parse(char *line, const char **ret_name, struct subids *ret_subids)
{
    char *first = strchr(line, ':');
    char *count = first ? strchr(first + 1, ':') : NULL;
    char *end;

    if (!count)
        return false;
    *first++ = '\0';
    *count++ = '\0';
    unsigned long long from = strtoull(first, &end, 10);
    if (end == first || *end || from > UINT32_MAX)
        return false;
    unsigned long long many = strtoull(count, &end, 10);
    if (end == count || (*end && *end != '\n') || many > UINT32_MAX - from)
        return false;
    *ret_name = line;
    *ret_subids = (struct subids){(uint32_t)from, (uint32_t)many};
    return true;
}

const char *subids_user(char *name, size_t room)
{
    char text[4096];
    struct passwd entry, *found = NULL;

    if (getpwuid_r(getuid(), &entry, text, sizeof text, &found) == 0 && found)
        snprintf(name, room, "%s", found->pw_name);
    else
        snprintf(name, room, "%u", (unsigned)getuid());
    return name;
}

/* Calls `visit` with each line until it returns false. */
static void read_lines(const char *file,
                       bool (*visit)(const char *name, struct subids ids, void *cookie),
                       void *cookie)
{
    FILE *stream = fopen(file, "re");
    struct subids ids;
    const char *name;
    char line[512];

    while (stream && fgets(line, sizeof line, stream))
        if (parse(line, &name, &ids) && !visit(name, ids, cookie))
            break;
    if (stream)
        fclose(stream);
}

struct search {
    char name[64], number[16]; /* a line may have a name or a number */
    struct subids best;
};

static bool keep_longest(const char *name, struct subids ids, void *cookie)
{
    struct search *search = cookie;

    if (ids.count > search->best.count &&
        (strcmp(name, search->name) == 0 || strcmp(name, search->number) == 0))
        search->best = ids;
    return true;
}

bool subids_own(const char *file, struct subids *ret_subids)
{
    struct search search = {.best = {0}};

    (void)subids_user(search.name, sizeof search.name);
    snprintf(search.number, sizeof search.number, "%u", (unsigned)getuid());
    read_lines(file, keep_longest, &search);
    *ret_subids = search.best;
    return search.best.count > 0;
}

static bool stop_at_overlap(const char *name, struct subids ids, void *cookie)
{
    struct subids *run = cookie;

    (void)name;
    if (ids.first < run->first + run->count && run->first < ids.first + ids.count)
        run->count = 0;
    return run->count > 0;
}

bool subids_overlap(const char *file, uint32_t first, uint32_t count)
{
    struct subids run = {first, count};

    read_lines(file, stop_at_overlap, &run);
    return run.count == 0;
}

const char *subids_program(const char *name)
{
    static const char *const places[][2] = {
        {"/usr/bin/newuidmap", "/usr/bin/newgidmap"},
        {"/usr/local/bin/newuidmap", "/usr/local/bin/newgidmap"},
        {"/run/wrappers/bin/newuidmap", "/run/wrappers/bin/newgidmap"},
    };
    bool groups = strcmp(name, "newgidmap") == 0;
    struct stat st;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (stat(places[i][groups], &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0 &&
            access(places[i][groups], X_OK) == 0)
            return places[i][groups];
    return NULL;
}

const char *subids_obstacle(const char *program)
{
    struct statvfs mount;
    struct stat st;

    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        return "no_new_privs is set for this process";
    if (statvfs(program, &mount) == 0 && mount.f_flag & ST_NOSUID)
        return "the program is on a file system mounted nosuid";
    if (stat(program, &st) != 0 ||
        (!(st.st_mode & S_ISUID) &&
         getxattr(program, "security.capability", NULL, 0) <= 0))
        return "the program is neither setuid nor has file capabilities";
    return NULL;
}

bool subids_find(struct subids *ret_users, struct subids *ret_groups)
{
    const char *programs[] = {subids_program("newuidmap"), subids_program("newgidmap")};

    return subids_own(SUBIDS_USERS, ret_users) && ret_users->count >= IDMAP_COUNT &&
           subids_own(SUBIDS_GROUPS, ret_groups) && ret_groups->count >= IDMAP_COUNT &&
           programs[0] && programs[1] && !subids_obstacle(programs[0]) &&
           !subids_obstacle(programs[1]);
}
