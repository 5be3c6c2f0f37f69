/* SPDX-License-Identifier: Apache-2.0 */

/* Random trees below real overlays.  The model is the kernel: the mounted overlay is read
 * before and after some random operations, and the difference of these two is what
 * cay_diff_compare() must find in the layers.  git apply and patch then make the second
 * tree from the first by the unified output. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cay/diff.h"
#include "harness.h"
#include "not-under-valgrind.h"

NOT_UNDER_VALGRIND("it has no overlays in a namespace of their own")

static uint32_t seed;

static uint32_t draw(uint32_t limit)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % limit;
}

/* --- What a tree has --- */

struct node {
    char path[256];
    struct stat st;
    char *data; /* of a file or a link */
    size_t len;
    char xattr[8];
};

struct snapshot {
    struct node nodes[2000];
    size_t count;
};

static struct snapshot *filling;
static size_t root_len;

static int note(const char *path, const struct stat *st, int type, struct FTW *where)
{
    struct node *node = &filling->nodes[filling->count];

    (void)type;
    if (where->level == 0)
        return 0;
    ASSERT(filling->count < sizeof filling->nodes / sizeof *filling->nodes);
    *node = (struct node){.st = *st};
    snprintf(node->path, sizeof node->path, "%s", path + root_len + 1);
    node->data = calloc(1, (size_t)st->st_size + 1);
    if (S_ISREG(st->st_mode)) {
        AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
        node->len = (size_t)st->st_size;
        ASSERT_INT(read(fd, node->data, node->len), node->len);
        (void)!fgetxattr(fd, "user.test", node->xattr, sizeof node->xattr - 1);
    } else if (S_ISLNK(st->st_mode)) {
        node->len = (size_t)readlink(path, node->data, (size_t)st->st_size);
    }
    filling->count++;
    return 0;
}

static int by_path(const void *left, const void *right)
{
    return strcmp(((const struct node *)left)->path, ((const struct node *)right)->path);
}

static struct snapshot *take(const char *root)
{
    filling = calloc(1, sizeof *filling);
    root_len = strlen(root);
    ASSERT_INT(nftw(root, note, 16, FTW_PHYS), 0);
    if (filling->count)
        qsort(filling->nodes, filling->count, sizeof *filling->nodes, by_path);
    return filling;
}

static void drop(struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count; i++)
        free(snapshot->nodes[i].data);
    free(snapshot);
}

/* --- What should be found --- */

struct expected {
    enum cay_change_kind kind;
    unsigned parts;
    const struct node *before, *after;
};

static bool compare_nodes(const struct node *a, const struct node *b,
                          struct expected *ret_expected)
{
    unsigned parts = 0;

    *ret_expected = (struct expected){CAY_CHANGE_TYPE, CAY_CHANGED_CONTENT, a, b};
    if ((a->st.st_mode ^ b->st.st_mode) & S_IFMT)
        return true;
    if (a->len != b->len || memcmp(a->data, b->data, a->len) != 0)
        parts |= CAY_CHANGED_CONTENT;
    if (a->st.st_mode != b->st.st_mode)
        parts |= CAY_CHANGED_MODE;
    if (a->st.st_uid != b->st.st_uid || a->st.st_gid != b->st.st_gid)
        parts |= CAY_CHANGED_OWNER;
    if (strcmp(a->xattr, b->xattr) != 0)
        parts |= CAY_CHANGED_XATTRS;
    ret_expected->parts = parts;
    ret_expected->kind =
        parts & CAY_CHANGED_CONTENT ? CAY_CHANGE_MODIFIED : CAY_CHANGE_MODE;
    return parts != 0;
}

static size_t expect(const struct snapshot *old, const struct snapshot *new,
                     struct expected *expected)
{
    size_t i = 0, j = 0, count = 0;

    while (i < old->count || j < new->count) {
        const struct node *a = i < old->count ? &old->nodes[i] : NULL;
        const struct node *b = j < new->count ? &new->nodes[j] : NULL;
        int order = !a ? 1 : !b ? -1 : strcmp(a->path, b->path);
        if (order < 0)
            expected[count++] = (struct expected){CAY_CHANGE_DELETED, 0, a, NULL};
        else if (order > 0)
            expected[count++] = (struct expected){CAY_CHANGE_ADDED, 0, NULL, b};
        else if (compare_nodes(a, b, &expected[count]))
            count++;
        i += order <= 0;
        j += order >= 0;
    }
    return count;
}

static void check_side(const struct cay_change_side *side, const struct node *node)
{
    ASSERT_INT(side->mode, node ? node->st.st_mode : 0);
    if (!node)
        return;
    ASSERT_INT(side->uid, node->st.st_uid);
    ASSERT_INT(side->gid, node->st.st_gid);
    if (S_ISREG(side->mode))
        ASSERT_INT(side->size, node->len);
}

static const struct node *find_node(const struct snapshot *snapshot, const char *path)
{
    struct node key;

    snprintf(key.path, sizeof key.path, "%s", path);
    return snapshot->count ? bsearch(&key, snapshot->nodes, snapshot->count,
                                     sizeof *snapshot->nodes, by_path)
                           : NULL;
}

static void check_exact(const cay_diff *diff, const struct snapshot *old,
                        const struct snapshot *new)
{
    static struct expected expected[4000];
    size_t expected_count = expect(old, new, expected), count;
    const struct cay_change *changes = cay_diff_changes(diff, &count);

    ASSERT_INT(cay_diff_cut(diff), 0);
    for (size_t i = 0; i < count || i < expected_count; i++) {
        ASSERT_STR(i < count ? changes[i].path : NULL, i >= expected_count ? NULL
                                                       : expected[i].before
                                                           ? expected[i].before->path
                                                           : expected[i].after->path);
        ASSERT_INT(changes[i].kind, expected[i].kind);
        ASSERT_INT(changes[i].parts, expected[i].parts);
        check_side(&changes[i].before, expected[i].before);
        check_side(&changes[i].after, expected[i].after);
        if (changes[i].hard_link) {
            const struct node *other = find_node(new, changes[i].hard_link);
            /* In a user namespace the overlay may show two numbers of one inode. */
            ASSERT(other && other->st.st_nlink > 1 &&
                   other->len == changes[i].after.size &&
                   memcmp(other->data, expected[i].after->data, other->len) == 0);
        }
    }
}

/* A renamed file stands for a deleted and an added one. */
static void check_renames(const cay_diff *diff, const struct snapshot *old,
                          const struct snapshot *new, size_t exact_count)
{
    size_t count, renamed = 0;
    const struct cay_change *changes = cay_diff_changes(diff, &count);

    for (size_t i = 0; i < count; i++) {
        const struct cay_change *change = &changes[i];
        ASSERT(i == 0 || strcmp(changes[i - 1].path, change->path) < 0);
        if (change->kind != CAY_CHANGE_RENAMED)
            continue;
        const struct node *a = find_node(old, change->old_path),
                          *b = find_node(new, change->path);
        struct expected expected;
        renamed++;
        ASSERT(a && b && !find_node(new, change->old_path) &&
               !find_node(old, change->path));
        (void)compare_nodes(a, b, &expected);
        ASSERT_INT(change->parts, expected.parts);
        ASSERT_INT(change->similarity == 100, !(expected.parts & CAY_CHANGED_CONTENT));
    }
    ASSERT_INT(count + renamed, exact_count);
}

/* --- git apply and patch --- */

struct out {
    FILE *file;
    bool has_patches; /* and not only comments */
};

static int write_out(void *cookie, enum cay_diff_line line, const char *text, size_t len)
{
    struct out *out = cookie;

    out->has_patches |= line == CAY_DIFF_LINE_HEADER;
    return fwrite(text, 1, len, out->file) == len ? 0 : errno;
}

/* Files and links of a snapshot below `root`, with directories as far as they need them:
 * git stores nothing else. */
static void check_out(const struct snapshot *snapshot, const char *root)
{
    char path[PATH_MAX + sizeof snapshot->nodes->path];

    ASSERT_INT(mkdir(root, 0755), 0);
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct node *node = &snapshot->nodes[i];
        if (!S_ISREG(node->st.st_mode) && !S_ISLNK(node->st.st_mode))
            continue;
        snprintf(path, sizeof path, "%s/%s", root, node->path);
        for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
             slash = strchr(slash + 1, '/')) {
            *slash = '\0';
            (void)!mkdir(path, 0755);
            *slash = '/';
        }
        if (S_ISLNK(node->st.st_mode)) {
            ASSERT_INT(symlink(node->data, path), 0);
            continue;
        }
        AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        ASSERT_INT(write(fd, node->data, node->len), node->len);
        ASSERT_INT(fchmod(fd, node->st.st_mode & 0100 ? 0755 : 0644), 0);
    }
}

static void check_checked_out(const char *root, const struct snapshot *new)
{
    struct snapshot *made = take(root);
    size_t at = 0;

    for (size_t i = 0; i < new->count; i++) {
        const struct node *node = &new->nodes[i];
        if (!S_ISREG(node->st.st_mode) && !S_ISLNK(node->st.st_mode))
            continue;
        while (at < made->count && S_ISDIR(made->nodes[at].st.st_mode))
            at++;
        ASSERT_STR(at < made->count ? made->nodes[at].path : NULL, node->path);
        ASSERT_MEM(made->nodes[at].data, made->nodes[at].len, node->data, node->len);
        ASSERT_INT(made->nodes[at].st.st_mode & (S_IFMT | 0100),
                   node->st.st_mode & (S_IFMT | 0100));
        at++;
    }
    while (at < made->count && S_ISDIR(made->nodes[at].st.st_mode))
        at++;
    ASSERT_INT(at, made->count);
    drop(made);
}

static void run(const char *const *argv)
{
    pid_t pid;
    int status;

    ASSERT_INT(
        posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ),
        0);
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    if (status != 0)
        harness_fail(__FILE__, __LINE__, "%s: status %d", argv[0], status);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    (void)!remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_PHYS | FTW_DEPTH);
}

static bool uses_patch; /* instead of git apply, and the names are plain */

static bool changes_type(const cay_diff *diff)
{
    size_t count;
    const struct cay_change *changes = cay_diff_changes(diff, &count);

    while (count > 0)
        if (changes[--count].kind == CAY_CHANGE_TYPE)
            return true;
    return false;
}

static void check_patch(cay_diff *diff, const struct snapshot *old,
                        const struct snapshot *new)
{
    char root[PATH_MAX], file[PATH_MAX + 8];
    const char *const git[] = {"git", "-C", root, "apply", "--whitespace=nowarn",
                               file,  NULL};
    const char *const patch[] = {"patch", "-p1", "-s", "-f", "-d",
                                 root,    "-i",  file, NULL};

    snprintf(root, sizeof root, "%s/applied", scratch());
    snprintf(file, sizeof file, "%s.patch", root);
    /* patch cannot delete a file and make a directory of that name. */
    if (uses_patch && changes_type(diff))
        return;
    struct out out = {.file = fopen(file, "we")};
    ASSERT(out.file);
    ASSERT_OK(cay_diff_print(diff, CAY_DIFF_UNIFIED, write_out, &out, &err));
    ASSERT_INT(fclose(out.file), 0);
    check_out(old, root);
    if (out.has_patches)
        run(uses_patch ? patch : git);
    check_checked_out(root, new);
    remove_tree(root);
    (void)unlink(file);
}

/* --- Random operations --- */

static bool may_chown;

static const char *random_name(void)
{
    static const char *const names[] = {
        "a",         "b",       "c d",    "e.txt",        "f",
        "new\nline", "q\"uote", "back\\", "\xc3\xa9\xff", "-dash"};

    return names[draw(uses_patch ? 5 : sizeof names / sizeof *names)];
}

static void random_path(char *path, size_t room)
{
    int depth = 1 + (int)draw(3);

    *path = '\0';
    while (depth-- > 0) {
        size_t len = strlen(path);
        snprintf(path + len, room - len, "%s%s", len ? "/" : "", random_name());
    }
}

static void random_content(int fd)
{
    FILE *file = fdopen(dup(fd), "w");

    if (draw(10) == 0)
        fwrite(!uses_patch && draw(2) ? "\0\x01\xff" : "xyz", 1, 3, file);
    for (uint32_t i = draw(30); i > 0; i--)
        fprintf(file, "line %u\n", draw(200));
    if (draw(5) == 0)
        fputs("no newline", file);
    fclose(file);
}

static void write_file(const char *path, int flags)
{
    AUTO_FD fd = open(
        path, flags | O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        random_content(fd);
}

/* Copies a file up without changing it. */
static void touch(const char *path)
{
    char byte;
    AUTO_FD fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0 && pread(fd, &byte, 1, 0) == 1)
        (void)!pwrite(fd, &byte, 1, 0);
}

static void set_attributes(const char *path)
{
    static const mode_t modes[] = {0644, 0755, 0600, 0700, 0711, 04755};
    struct stat st;

    if (lstat(path, &st) != 0 || S_ISLNK(st.st_mode))
        return;
    switch (draw(3)) {
    case 0:
        (void)!chmod(path, modes[draw(6)]);
        break;
    case 1:
        if (may_chown)
            (void)!lchown(path, draw(3), draw(3));
        break;
    default:
        if (S_ISREG(st.st_mode))
            (void)!setxattr(path, "user.test", draw(2) ? "one" : "two", 3, 0);
    }
}

static void operate(void)
{
    char path[200], other[200];

    random_path(path, sizeof path);
    random_path(other, sizeof other);
    switch (draw(15)) {
    case 0 ... 2:
        write_file(path, O_TRUNC);
        break;
    case 3:
        write_file(path, O_APPEND);
        break;
    case 4:
        touch(path);
        break;
    case 5:
        (void)!unlink(path);
        break;
    case 6 ... 7:
        (void)!rename(path, other);
        break;
    case 8:
        (void)!link(path, other);
        break;
    case 9:
        (void)!symlink(draw(2) ? "target one" : "two", path);
        break;
    case 10:
        set_attributes(path);
        break;
    case 11: /* a file becomes a directory */
        (void)!unlink(path);
        (void)!mkdir(path, 0755);
        break;
    case 12: /* a directory becomes a file, or a new, opaque directory */
        remove_tree(path);
        if (draw(2))
            write_file(path, O_EXCL);
        else
            (void)!mkdir(path, draw(2) ? 0755 : 0700);
        break;
    case 13:
        (void)!mkdir(path, 0755);
        break;
    default:
        if (draw(8) == 0)
            (void)!mkfifo(path, 0600);
        else
            touch(path);
    }
}

static void operate_in(const char *root, uint32_t count)
{
    ASSERT_INT(chdir(root), 0);
    while (count-- > 0)
        operate();
    ASSERT_INT(chdir("/"), 0);
}

/* --- Layers --- */

enum { LAYERS = 5 };

static const char *layer_path(const char *what, int number)
{
    static char paths[16][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 16];

    snprintf(path, PATH_MAX, "%s/m/%s%d", scratch(), what, number);
    return path;
}

/* Mounts an overlay of these layers, the uppermost first, which becomes the upper one;
 * operates in it; and reads it before and after. */
static void fill_layer(const int *stack, size_t count, bool is_user,
                       struct snapshot **ret_before, struct snapshot **ret_after)
{
    char options[8 * PATH_MAX] = "lowerdir=";
    const char *merged = layer_path("merged", 0), *work = layer_path("work", stack[0]);

    ASSERT_INT(mkdir(layer_path("layer", stack[0]), 0755), 0);
    ASSERT_INT(mkdir(work, 0755), 0);
    for (size_t i = 1; i < count; i++)
        snprintf(options + strlen(options), sizeof options - strlen(options), "%s%s",
                 i > 1 ? ":" : "", layer_path("layer", stack[i]));
    snprintf(options + strlen(options), sizeof options - strlen(options),
             ",upperdir=%s,workdir=%s%s", layer_path("layer", stack[0]), work,
             is_user ? ",userxattr" : ",redirect_dir=nofollow,metacopy=off,index=off");
    if (mount("overlay", merged, "overlay", 0, options) != 0)
        harness_fail(__FILE__, __LINE__, "mount: %s: %s", strerror(errno), options);
    *ret_before = take(merged);
    operate_in(merged, 5 + draw(40));
    *ret_after = take(merged);
    ASSERT_INT(umount(merged), 0);
}

static cay_diff *diff_stacks(const int *before, size_t before_count, const int *after,
                             size_t after_count, bool is_user, unsigned flags)
{
    const struct cay_diff_options options = {.size = sizeof options, .flags = flags};
    struct cay_diff_layer layers[2][LAYERS];
    const int *stacks[2] = {before, after};
    const size_t counts[2] = {before_count, after_count};
    cay_diff *diff = NULL;

    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < counts[side]; i++)
            layers[side][i] = (struct cay_diff_layer){
                .fd = open(layer_path("layer", stacks[side][i]), O_RDONLY | O_CLOEXEC),
                .marks = is_user ? CAY_DIFF_MARKS_USER : CAY_DIFF_MARKS_TRUSTED};
    ASSERT_OK(cay_diff_compare(&(struct cay_diff_tree){layers[0], before_count},
                               &(struct cay_diff_tree){layers[1], after_count}, &options,
                               &diff, &err));
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < counts[side]; i++)
            (void)close(layers[side][i].fd);
    return diff;
}

static void check_pair(const int *before, size_t before_count, const struct snapshot *old,
                       const int *after, size_t after_count, const struct snapshot *new,
                       bool is_user)
{
    cay_diff *diff = diff_stacks(before, before_count, after, after_count, is_user,
                                 CAY_DIFF_NO_RENAMES | CAY_DIFF_BINARY);
    size_t count;

    check_exact(diff, old, new);
    (void)cay_diff_changes(diff, &count);
    cay_diff_free(diff);
    diff =
        diff_stacks(before, before_count, after, after_count, is_user, CAY_DIFF_BINARY);
    check_renames(diff, old, new, count);
    check_patch(diff, old, new);
    cay_diff_free(diff);
}

/* A base; a layer above it; two branches above both. */
static void try_tree(bool is_user)
{
    static const int first[] = {1, 0}, left[] = {2, 1, 0}, right[] = {3, 1, 0};
    struct snapshot *base, *one, *again, *two, *three;

    ASSERT_INT(mkdir(layer_path("layer", 0), 0755), 0);
    ASSERT_INT(mkdir(layer_path("merged", 0), 0755), 0);
    operate_in(layer_path("layer", 0), 60);
    fill_layer(first, 2, is_user, &base, &one);
    fill_layer(left, 3, is_user, &again, &two);
    drop(again);
    fill_layer(right, 3, is_user, &again, &three);
    drop(again);

    check_pair(first + 1, 1, base, first, 2, one, is_user);
    check_pair(left + 1, 2, one, left, 3, two, is_user);
    check_pair(left, 3, two, right, 3, three, is_user);
    check_pair(left, 3, two, first + 1, 1, base, is_user);
    check_pair(first + 1, 1, base, right, 3, three, is_user);
    drop(base);
    drop(one);
    drop(two);
    drop(three);
}

/* --- The places --- */

static void write_text(const char *path, const char *text)
{
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);

    ASSERT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void enter_namespaces(bool is_user)
{
    char map[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();

    ASSERT_INT(unshare(CLONE_NEWNS | (is_user ? CLONE_NEWUSER : 0)), 0);
    if (is_user) {
        write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", uid);
        write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", gid);
        write_text("/proc/self/gid_map", map);
    }
    ASSERT_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
}

static void try_trees(bool is_user, bool is_memory, uint32_t first, uint32_t count)
{
    const char *place = scratch_path("m");

    ASSERT_INT(mkdir(place, 0755), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        umask(022);
        enter_namespaces(is_user);
        may_chown = !is_user;
        for (uint32_t round = first; round < first + count; round++) {
            seed = round * 2654435761u;
            printf("# tree %u\n", round);
            if (is_memory)
                ASSERT_INT(mount("tmpfs", place, "tmpfs", 0, "mode=755"), 0);
            try_tree(is_user);
            if (is_memory)
                ASSERT_INT(umount(place), 0);
            else
                remove_tree(place), ASSERT_INT(mkdir(place, 0755), 0);
        }
        fflush(stdout);
        _exit(0);
    }
    int status;
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_INT(status, 0);
}

/* CAY_TREES multiplies the number of trees. */
static uint32_t trees(uint32_t count)
{
    const char *times = getenv("CAY_TREES");

    return times ? count * (uint32_t)strtoul(times, NULL, 10) : count;
}

static void need_root(void)
{
    if (geteuid() != 0)
        SKIP("mounting an overlay with trusted marks needs root");
}

TEST(diffs_of_overlays_in_memory_are_those_of_the_mounted_trees)
{
    need_root();
    try_trees(false, true, 10001, trees(20));
}

TEST(diffs_of_overlays_on_disk_are_those_of_the_mounted_trees)
{
    need_root();
    try_trees(false, false, 20001, trees(10));
}

TEST(diffs_of_overlays_in_a_user_namespace_are_those_of_the_mounted_trees)
{
    try_trees(true, true, 30001, trees(10));
}

TEST(the_unified_output_is_one_that_patch_reads)
{
    uses_patch = true;
    try_trees(true, true, 40001, trees(10));
    uses_patch = false;
}
