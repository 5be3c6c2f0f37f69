/* SPDX-License-Identifier: Apache-2.0 */

/* COPY and ADD.  The sources are walked twice: first for the key of the step, and if no
 * layer has that key, to copy them.  Every name is looked up from a descriptor.  A link
 * named as a source is followed inside its directory; those below a source are copied. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/build/build.h"
#include "native/record/users.h"
#include "sys/copy.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"

enum { PIECE = 64 << 10 };

struct walker {
    const struct build_copy *copy;
    struct sha256_ctx *hash; /* NULL: copy */
    unsigned uid, gid;
    bool keeps_owner; /* COPY --from */
    uint64_t entries;
    struct build_layer *layer;
    char path[PATH_MAX]; /* below the directory of the build, for .dockerignore */
};

static int fail(const struct walker *walker, int error, const char *path,
                struct cay_error *err)
{
    (void)walker;
    return cay_fail_errno(err, error, BUILD_OP, path);
}

static int fail_special(const struct walker *walker, const struct stat *st,
                        struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, BUILD_OP,
                    build_subject(walker->copy->build, walker->copy->instruction),
                    S_ISFIFO(st->st_mode) ? "a FIFO cannot be copied"
                                          : "a device cannot be copied",
                    "%s: remove it, or name it in .dockerignore", walker->path);
}

/* Sockets are left out. */
static int walk_entry(struct walker *walker, int held, const struct stat *st, int to,
                      const char *name, unsigned depth, struct cay_error *err);

/* --- Directories --- */

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorted, since the order of readdir(3) would change the key. */
static int read_names(int dir, struct build_texts *ret_names)
{
    AUTO_FD real = path_reopen(dir, O_RDONLY | O_DIRECTORY);
    AUTO_DIR list = real < 0 ? NULL : path_list(real);

    if (!list)
        return real < 0 ? TAKE_FD(real) : -errno;
    for (struct dirent *entry; (entry = path_next(list));)
        if (!build_texts_add(ret_names, entry->d_name, strlen(entry->d_name)))
            return -ENOMEM;
    if (ret_names->count)
        qsort(ret_names->list, ret_names->count, sizeof *ret_names->list, by_name);
    return 0;
}

static bool is_left_out(const struct walker *walker, bool is_directory)
{
    const struct ignore *ignore = &walker->copy->build->ignore;

    return !walker->copy->from && ignore_matches(ignore, walker->path) &&
           !(is_directory && ignore_has_exceptions(ignore));
}

/* What a directory contains, into the directory `to`. */
static int walk_directory(struct walker *walker, int from, int to, unsigned depth,
                          struct cay_error *err)
{
    struct build_texts names = {0};
    size_t len = strlen(walker->path);
    int error = depth > TEMPLATE_DEPTH_MAX ? -ELOOP : read_names(from, &names);
    int code = error ? fail(walker, -error, walker->path, err) : CAY_OK;

    for (size_t i = 0; !code && i < names.count; i++) {
        const char *name = names.list[i];
        struct stat st;
        if (len + strlen(name) + 2 > sizeof walker->path) {
            code = fail(walker, ENAMETOOLONG, name, err);
            break;
        }
        snprintf(walker->path + len, sizeof walker->path - len, "%s%s", len ? "/" : "",
                 name);
        AUTO_FD held = path_open(from, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH);
        if (held < 0 || fstat(held, &st) != 0)
            code = fail(walker, held < 0 ? -held : errno, walker->path, err);
        else if (!is_left_out(walker, S_ISDIR(st.st_mode)))
            code = walk_entry(walker, held, &st, to, name, depth, err);
        walker->path[len] = '\0';
    }
    build_texts_done(&names);
    return code;
}

static unsigned owner_of(const struct walker *walker, unsigned own, unsigned given)
{
    return walker->keeps_owner ? own : given;
}

static int set_metadata(const struct walker *walker, int to, const char *name,
                        const struct stat *st)
{
    unsigned mode =
        walker->copy->mode < 0 ? st->st_mode & 07777 : (unsigned)walker->copy->mode;

    return fchownat(to, name, owner_of(walker, st->st_uid, walker->uid),
                    owner_of(walker, st->st_gid, walker->gid),
                    AT_SYMLINK_NOFOLLOW) == 0 &&
                   (S_ISLNK(st->st_mode) || fchmodat(to, name, mode, 0) == 0)
               ? 0
               : -errno;
}

static int copy_directory(struct walker *walker, int held, const struct stat *st, int to,
                          const char *name, unsigned depth, struct cay_error *err)
{
    bool is_new = mkdirat(to, name, 0755) == 0;
    int error = is_new || errno == EEXIST ? 0 : -errno;
    AUTO_FD below =
        error ? error
              : path_open(to, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, PATH_PLAIN);

    if (below == -ELOOP || below == -ENOTDIR)
        return cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, BUILD_OP, walker->path,
                        "a directory would replace a file or a link of the image",
                        "copy what it contains to the directory that is meant");
    if (below < 0)
        return fail(walker, -below, walker->path, err);
    TRY(walk_directory(walker, held, below, depth + 1, err));
    error = is_new ? set_metadata(walker, to, name, st) : 0;
    return error ? fail(walker, -error, walker->path, err) : CAY_OK;
}

/* --- Files and links --- */

static int copy_file(const struct walker *walker, int held, const struct stat *st, int to,
                     const char *name)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
    uint64_t copied;
    AUTO_FD from = path_reopen(held, O_RDONLY);

    if (from < 0)
        return TAKE_FD(from);
    if (unlinkat(to, name, 0) != 0 && errno != ENOENT)
        return -errno;
    AUTO_FD file =
        openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return -errno;
    int error = copy_bytes(from, file, TEMPLATE_BYTES_MAX, &copied);
    if (!error)
        error = set_metadata(walker, to, name, st);
    return error || futimens(file, times) == 0 ? error : -errno;
}

static int copy_link(const struct walker *walker, int held, const struct stat *st, int to,
                     const char *name)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(held, "", target, sizeof target - 1);

    if (len < 0 || (unlinkat(to, name, 0) != 0 && errno != ENOENT))
        return -errno;
    target[len] = '\0';
    return symlinkat(target, to, name) == 0 ? set_metadata(walker, to, name, st) : -errno;
}

static int hash_file(struct sha256_ctx *hash, int held)
{
    AUTO_FD from = path_reopen(held, O_RDONLY);
    AUTO_FREE uint8_t *piece = malloc(PIECE);

    if (from < 0 || !piece)
        return from < 0 ? TAKE_FD(from) : -ENOMEM;
    for (;;) {
        ssize_t len = read(from, piece, PIECE);
        if (len == 0)
            return 0;
        if (len < 0 && errno != EINTR)
            return -errno;
        if (len > 0)
            sha256_update(hash, (size_t)len, piece);
    }
}

static int hash_entry(struct walker *walker, int held, const struct stat *st,
                      const char *name)
{
    char text[PATH_MAX + 64];

    snprintf(text, sizeof text, "%o %s %s %lld", st->st_mode, walker->path, name,
             S_ISREG(st->st_mode) ? (long long)st->st_size : 0);
    build_key_add(walker->hash, text);
    if (S_ISREG(st->st_mode))
        return hash_file(walker->hash, held);
    if (!S_ISLNK(st->st_mode))
        return 0;
    ssize_t len = readlinkat(held, "", text, sizeof text - 1);
    if (len < 0)
        return -errno;
    text[len] = '\0';
    build_key_add(walker->hash, text);
    return 0;
}

static int walk_entry(struct walker *walker, int held, const struct stat *st, int to,
                      const char *name, unsigned depth, struct cay_error *err)
{
    int error = 0;

    if (++walker->entries > TEMPLATE_ENTRIES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, BUILD_OP, walker->path,
                        "too many files are copied", "the limit is %d",
                        TEMPLATE_ENTRIES_MAX);
    if (S_ISFIFO(st->st_mode) || S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
        return fail_special(walker, st, err);
    if (walker->hash) {
        error = hash_entry(walker, held, st, name);
        if (!error && S_ISDIR(st->st_mode))
            return walk_directory(walker, held, -1, depth + 1, err);
    } else if (S_ISDIR(st->st_mode)) {
        return copy_directory(walker, held, st, to, name, depth, err);
    } else if (S_ISREG(st->st_mode)) {
        error = copy_file(walker, held, st, to, name);
    } else if (S_ISLNK(st->st_mode)) {
        error = copy_link(walker, held, st, to, name);
    }
    return error ? fail(walker, -error, walker->path, err) : CAY_OK;
}

/* --- Sources --- */

/* "a/b" of "/a/./b/"; false if it climbs above the top. */
static bool clean_path(const char *path, char ret_path[PATH_MAX])
{
    size_t used = 0;

    ret_path[0] = '\0';
    for (; *path; path += strspn(path, "/")) {
        size_t len = strcspn(path, "/");
        if (len == 2 && strncmp(path, "..", 2) == 0)
            return false;
        if (len && !(len == 1 && *path == '.')) {
            if (used + len + 2 > PATH_MAX)
                return false;
            used += (size_t)snprintf(ret_path + used, PATH_MAX - used, "%s%.*s",
                                     used ? "/" : "", (int)len, path);
        }
        path += len;
    }
    return true;
}

typedef int take_source(struct walker *walker, int held, const struct stat *st,
                        const char *name, void *cookie, struct cay_error *err);

static int visit_path(struct walker *walker, int top, const char *path, take_source *take,
                      void *cookie, struct cay_error *err)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    AUTO_FD held = path_open(top, *path ? path : ".", O_PATH, 0,
                             RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);

    cay_copy_text(walker->path, sizeof walker->path, path);
    if (held < 0 || fstat(held, &st) != 0 ||
        (*path && is_left_out(walker, S_ISDIR(st.st_mode))))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, BUILD_OP,
                        build_subject(walker->copy->build, walker->copy->instruction),
                        "a source of COPY or ADD does not exist",
                        "%s: it is missing, or .dockerignore leaves it out",
                        *path ? path : ".");
    return take(walker, held, &st, slash ? slash + 1 : path, cookie, err);
}

struct matching {
    struct glob glob;
    take_source *take;
    void *cookie;
    int top;
    size_t count;
};

/* Every path below `dir` that matches, in order. */
static int visit_matches(struct walker *walker, struct matching *matching, int dir,
                         const char *path, size_t component, struct cay_error *err)
{
    struct build_texts names = {0};
    int error = read_names(dir, &names);
    int code = error ? fail(walker, -error, path, err) : CAY_OK;

    for (size_t i = 0; !code && i < names.count; i++) {
        char below[PATH_MAX];
        if (!glob_match_component(&matching->glob, component, names.list[i]))
            continue;
        if (snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "",
                     names.list[i]) >= (int)sizeof below)
            continue;
        if (component + 1 == matching->glob.count) {
            cay_copy_text(walker->path, sizeof walker->path, below);
            if (is_left_out(walker, false))
                continue;
            matching->count++;
            code = visit_path(walker, matching->top, below, matching->take,
                              matching->cookie, err);
            continue;
        }
        AUTO_FD next = path_open(dir, names.list[i], O_PATH | O_DIRECTORY | O_NOFOLLOW, 0,
                                 RESOLVE_BENEATH);
        if (next >= 0)
            code = visit_matches(walker, matching, next, below, component + 1, err);
    }
    build_texts_done(&names);
    return code;
}

static int visit_source(struct walker *walker, int top, const char *source,
                        take_source *take, void *cookie, struct cay_error *err)
{
    char path[PATH_MAX];
    const char *subject = build_subject(walker->copy->build, walker->copy->instruction);

    if (!clean_path(source, path))
        return cay_fail(err, CAY_E_OUTSIDE, 0, BUILD_OP, subject,
                        "a source of COPY or ADD is outside of its directory",
                        "%s: sources are below the directory of the build", source);
    if (!path[strcspn(path, "*?[")])
        return visit_path(walker, top, path, take, cookie, err);
    struct matching matching = {.take = take, .cookie = cookie, .top = top};
    TRY(glob_split(BUILD_OP, path, GLOB_NO_DEPTH, &matching.glob, err));
    int code = visit_matches(walker, &matching, top, "", 0, err);
    glob_done(&matching.glob);
    if (!code && !matching.count)
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, BUILD_OP, subject,
                        "no file matches a source of COPY or ADD", "%s", source);
    return code;
}

/* --- The key --- */

static int hash_source(struct walker *walker, int held, const struct stat *st,
                       const char *name, void *cookie, struct cay_error *err)
{
    (void)cookie;
    return walk_entry(walker, held, st, -1, name, 0, err);
}

int build_copy_digest(struct build_copy *copy, struct cay_error *err)
{
    struct sha256_ctx hash;
    AUTO_FREE struct walker *walker = calloc(1, sizeof *walker);

    if (!walker)
        return cay_fail_memory(err, BUILD_OP);
    sha256_init(&hash);
    walker->copy = copy;
    walker->hash = &hash;
    if (copy->from) /* its identity stands for its files */
        build_key_add(&hash, copy->from_identity);
    for (size_t i = 0; i < copy->sources.count; i++) {
        build_key_add(&hash, copy->sources.list[i]);
        if (!copy->from)
            TRY(visit_source(walker, copy->build->context, copy->sources.list[i],
                             hash_source, NULL, err));
    }
    build_key_end(&hash, copy->key);
    return CAY_OK;
}

/* --- The copy --- */

struct destination {
    struct build_layer *layer;
    bool is_directory; /* its path says so, or there are several sources */
};

/* The directory that a source goes to, and its name there; "" for what a directory
 * contains. */
static int open_target(const struct walker *walker, const struct destination *target,
                       bool is_directory, const char *name, char ret_name[NAME_MAX + 1])
{
    const char *path = walker->copy->target;
    int root = target->layer->root;
    char parent[PATH_MAX];

    ret_name[0] = '\0';
    if (is_directory)
        return template_make_path(root, path, walker->uid, walker->gid);
    AUTO_FD there = path_open(root, path, O_PATH | O_DIRECTORY, 0,
                              RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    if (target->is_directory || there >= 0) {
        snprintf(ret_name, NAME_MAX + 1, "%s", name);
        return template_make_path(root, path, walker->uid, walker->gid);
    }
    cay_copy_text(parent, sizeof parent, path);
    char *slash = strrchr(parent, '/');
    if (!slash || strlen(slash + 1) > NAME_MAX)
        return -ENAMETOOLONG;
    snprintf(ret_name, NAME_MAX + 1, "%s", slash + 1);
    *slash = '\0';
    return template_make_path(root, parent, walker->uid, walker->gid);
}

/* A file of ADD that is an archive is unpacked: true if it begins like one. */
static bool is_archive(int held)
{
    static const struct {
        const char *bytes;
        size_t at, len;
    } marks[] = {{"ustar", 257, 5},
                 {"\x1F\x8B", 0, 2},
                 {"BZh", 0, 3},
                 {"\xFD"
                  "7zXZ",
                  0, 5},
                 {"\x28\xB5\x2F\xFD", 0, 4}};
    char head[512] = {0};
    AUTO_FD file = path_reopen(held, O_RDONLY);
    ssize_t len = file < 0 ? 0 : io_pread(file, head, sizeof head, 0);

    for (size_t i = 0; len > 0 && i < sizeof marks / sizeof *marks; i++)
        if (memcmp(head + marks[i].at, marks[i].bytes, marks[i].len) == 0)
            return true;
    return false;
}

static int unpack(const struct walker *walker, int held, int root, struct cay_error *err)
{
    const struct cay_template_options none = {.size = sizeof none, .name = "build"};
    struct template_draft draft = {.options = &none, .dir = walker->layer->dir};
    AUTO_FD file = path_reopen(held, O_RDONLY);
    AUTO_FD real = path_reopen(root, O_RDONLY | O_DIRECTORY);

    if (file < 0 || real < 0)
        return fail(walker, file < 0 ? -file : -real, walker->path, err);
    return template_unpack(&draft, real, file, TEMPLATE_WHOLE, err);
}

static int copy_source(struct walker *walker, int held, const struct stat *st,
                       const char *name, void *cookie, struct cay_error *err)
{
    const struct destination *target = cookie;
    char called[NAME_MAX + 1];
    bool unpacks = walker->copy->unpacks && S_ISREG(st->st_mode) && is_archive(held);
    AUTO_FD to =
        open_target(walker, target, S_ISDIR(st->st_mode) || unpacks, name, called);

    if (to < 0)
        return cay_fail(err, CAY_E_INVALID, -to, BUILD_OP,
                        build_subject(walker->copy->build, walker->copy->instruction),
                        "cannot create the target of COPY or ADD", "%s: %s",
                        walker->copy->target, cay_errno_words(-to));
    if (unpacks)
        return unpack(walker, held, to, err);
    return *called ? walk_entry(walker, held, st, to, called, 0, err)
                   : walk_directory(walker, held, to, 0, err);
}

/* --chown=USER[:GROUP]: numbers, or names of the files so far. */
static int find_owner(struct walker *walker, int root, struct cay_error *err)
{
    const char *owner = walker->copy->owner;
    uint32_t uid = 0, gid = 0;
    char *end;

    if (!owner || !*owner)
        return CAY_OK;
    size_t len = strcspn(owner, ":");
    const char *group = owner[len] ? owner + len + 1 : "";
    bool is_known = isdigit((unsigned char)*owner);
    if (is_known) {
        uid = gid = (uint32_t)strtoul(owner, &end, 10);
        is_known = end == owner + len && uid <= UINT16_MAX;
    } else {
        is_known = users_find(root, owner, len, &uid, &gid);
    }
    if (isdigit((unsigned char)*group)) {
        gid = (uint32_t)strtoul(group, &end, 10);
        is_known = is_known && !*end && gid <= UINT16_MAX;
    } else if (*group) {
        is_known = is_known && users_find_group(root, group, &gid);
    }
    walker->uid = uid;
    walker->gid = gid;
    walker->keeps_owner = false;
    return is_known
               ? CAY_OK
               : cay_fail(err, CAY_E_INVALID, 0, BUILD_OP,
                          build_subject(walker->copy->build, walker->copy->instruction),
                          "unknown user or group of --chown",
                          "%s: use numbers up to 65535, or names of the image's "
                          "/etc/passwd and /etc/group",
                          owner);
}

static int count_source(struct walker *walker, int held, const struct stat *st,
                        const char *name, void *cookie, struct cay_error *err)
{
    (void)walker;
    (void)held;
    (void)st;
    (void)name;
    (void)err;
    ++*(size_t *)cookie;
    return CAY_OK;
}

int build_copy_fill(void *cookie, struct build_layer *layer, struct cay_error *err)
{
    struct build_copy *copy = cookie;
    struct destination target = {.layer = layer};
    size_t count = 0;
    AUTO_FREE struct walker *walker = calloc(1, sizeof *walker);
    AUTO_FD from = copy->from ? build_view(layer, copy->from, "from", err)
                              : fcntl(copy->build->context, F_DUPFD_CLOEXEC, 3);

    if (from < 0 || !walker)
        return from < 0 && copy->from ? TAKE_FD(from) : cay_fail_memory(err, BUILD_OP);
    walker->copy = copy;
    walker->layer = layer;
    walker->keeps_owner = copy->from != NULL;
    TRY(find_owner(walker, layer->root, err));
    for (size_t i = 0; i < copy->sources.count; i++)
        TRY(visit_source(walker, from, copy->sources.list[i], count_source, &count, err));
    target.is_directory = count > 1 || copy->target[strlen(copy->target) - 1] == '/';
    for (size_t i = 0; i < copy->sources.count; i++)
        TRY(visit_source(walker, from, copy->sources.list[i], copy_source, &target, err));
    return CAY_OK;
}
