/* SPDX-License-Identifier: Apache-2.0 */

/* Overlays are mounted from outside, by host root: an overlay mounted in the sandbox's
 * user namespace could not store its whiteouts of removed directories, and dpkg would
 * fail on it.
 *
 * The template, and a persistent disk, have the owners as inside; the overlay gets
 * idmapped mounts of them, so that one template serves any number of sandboxes and a disk
 * can be used under any range of ids.  Features that files in a layer control (redirects,
 * metadata of others) are disabled.
 *
 * The host's /usr is writable through two overlays, one above the other.  Root inside
 * must own what it replaces, so host root is mapped to it; but then files that only host
 * root may read would be readable too.  The lower overlay prevents that: an overlay
 * accesses its layers with the credentials of its mounter, and this one is mounted with a
 * uid that owns nothing and without the capabilities that override modes.  So it shows
 * only what every user of the host may read, whatever the host changes later. */
#include "native/make/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/build.h"
#include "native/make/store.h"
#include "sys/clone.h"
#include "sys/fsid.h"
#include "sys/path.h"
#include "sys/shift.h"

static bool set(int context, const char *name, const char *value)
{
    return syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, name, value, 0) == 0;
}

static bool set_fd(int context, const char *name, int fd)
{
    return syscall(SYS_fsconfig, context, FSCONFIG_SET_FD, name, NULL, fd) == 0;
}

static int finish(int context, uint64_t attributes)
{
    if (!set(context, "redirect_dir", "nofollow") || !set(context, "metacopy", "off") ||
        !set(context, "index", "off") || !set(context, "xino", "off") ||
        syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        return -errno;
    int fd = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | attributes);
    return fd < 0 ? -errno : fd;
}

/* A user id that owns no files; with it the kernel removes CAP_DAC_OVERRIDE and similar
 * capabilities from the effective set. */
enum { OWNS_NOTHING = -2 };

static int finish_public(int context)
{
    int fd =
        fsid_take((uint32_t)OWNS_NOTHING) ? finish(context, MOUNT_ATTR_RDONLY) : -EPERM;

    if (fsid_take(0) || fd < 0)
        return fd;
    (void)close(fd);
    return -EPERM;
}

static bool set_upper(int context, int top, const char *upper, const char *work)
{
    AUTO_FD upper_fd = path_open(top, upper, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_FD work_fd = path_open(top, work, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);

    return set_fd(context, "upperdir", upper_fd) && set_fd(context, "workdir", work_fd);
}

int overlay_create(const int *lowers, size_t count, int top, const char *upper,
                   const char *work)
{
    AUTO_FD context = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);

    if (context < 0)
        return -errno;
    for (size_t i = 0; i < count; i++)
        if (!set_fd(context, "lowerdir+", lowers[i]))
            return -errno;
    return set_upper(context, top, upper, work) ? finish(context, 0) : -errno;
}

static int create_public(int usr, int host)
{
    AUTO_FD context = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);

    if (context < 0 || !set_fd(context, "lowerdir+", usr) ||
        !set_fd(context, "lowerdir+", host))
        return -errno;
    return finish_public(context);
}

static int create_usr(const struct overlay_layers *layers)
{
    AUTO_FD public = create_public(layers->usr, layers->host);
    int lowers[LAYER_DEPTH_MAX + 2];
    size_t count = 0;

    if (public < 0)
        return TAKE_FD(public);
    for (; count < layers->usr_count; count++)
        lowers[count] = layers->usr_lowers[count];
    if (layers->usr_above >= 0)
        lowers[count++] = layers->usr_above;
    lowers[count++] = public;
    return overlay_create(lowers, count, layers->top, "usr", "usr-work");
}

static int create(const struct overlay_layers *layers, int *ret_usr)
{
    AUTO_FD root =
        overlay_create(layers->lowers, layers->lower_count, layers->top, "upper", "work");

    /* Linux 6.5 to 6.12 does not accept O_PATH descriptors. */
    if (root == -EBADF || root == -EINVAL || root == -EOPNOTSUPP) {
        struct overlay_layers mounts = *layers;
        AUTO_FD part = build_part(layers->top, ".", 0); /* of a store */
        if (part >= 0)
            mounts.top = part;
        return overlay_by_path(&mounts, ret_usr);
    }
    if (root < 0)
        return TAKE_FD(root);
    if (layers->host >= 0) {
        *ret_usr = create_usr(layers);
        if (*ret_usr < 0)
            return *ret_usr;
    }
    return TAKE_FD(root);
}

/* --- Before Linux 6.13 an overlay takes only paths ---
 *
 * So a child in its own mount namespace mounts the layers at paths that exist on every
 * host, and creates the overlay from these.  The child shares the memory and descriptors
 * of this process, touches only its `struct detour`, and has ended when this process
 * continues. */

struct path_mounts {
    const struct overlay_layers *layers;
    int places; /* a tmpfs with a directory for each of several lower layers */
    int root, usr;
    char stack[16 << 10] __attribute__((aligned(16)));
};

static bool put(int mount, const char *path)
{
    return syscall(SYS_move_mount, mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) ==
           0;
}

static int create_by_path(const char *lower, const char *upper, const char *work)
{
    int context = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
    int fd;

    if (context < 0 || !set(context, "lowerdir", lower) ||
        (upper && (!set(context, "upperdir", upper) || !set(context, "workdir", work))))
        fd = -errno;
    else
        fd = upper ? finish(context, 0) : finish_public(context);
    auto_close(&context);
    return fd;
}

static int create_usr_by_path(const struct overlay_layers *layers)
{
    if (!put(layers->usr, "/etc") || !put(layers->host, "/dev"))
        return -errno;
    int public = create_by_path("/etc:/dev", NULL, NULL);
    if (public < 0)
        return public;
    int fd = put(public, "/usr") ? create_by_path("/usr", "/tmp/usr", "/tmp/usr-work")
                                 : -errno;
    (void)close(public);
    return fd;
}

/* The name of a place is short, since the list of all lower layers is an option of at
 * most 255 bytes. */
static void name_place(size_t i, char name[3])
{
    snprintf(name, 3, "%02x", (unsigned)i & 0xFF);
}

/* One lower layer is attached at /usr, several below it.  `ret_list` names them. */
IN_CLONE static bool put_lowers(const struct path_mounts *path_mounts, char ret_list[256])
{
    const struct overlay_layers *layers = path_mounts->layers;
    size_t used = 0;
    char name[3];

    snprintf(ret_list, 256, "/usr");
    if (layers->lower_count == 1)
        return put(layers->lowers[0], "/usr");
    if (!put(path_mounts->places, "/usr") || chdir("/usr") != 0)
        return false;
    for (size_t i = 0; i < layers->lower_count; i++) {
        name_place(i, name);
        if (!put(layers->lowers[i], name))
            return false;
        used += (size_t)snprintf(ret_list + used, 256 - used, "%s%s", i ? ":" : "", name);
    }
    return true;
}

IN_CLONE static void mount_by_path(void *cookie)
{
    struct path_mounts *path_mounts = cookie;
    const struct overlay_layers *layers = path_mounts->layers;
    char list[256];

    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        !put_lowers(path_mounts, list) || !put(layers->top, "/tmp"))
        path_mounts->root = -errno;
    else
        path_mounts->root = create_by_path(list, "/tmp/upper", "/tmp/work");
    if (path_mounts->root >= 0 && layers->host >= 0)
        path_mounts->usr = create_usr_by_path(layers);
    _exit(0);
}

/* A tmpfs with a directory for each layer. */
static int make_places(size_t count)
{
    const struct plan_step step = {.kind = PLAN_TREE, .mode = 0700, .number = 1 << 20};
    AUTO_FD places = build_tree(&step, 0, 0);
    char name[3];

    for (size_t i = 0; places >= 0 && i < count; i++) {
        name_place(i, name);
        if (mkdirat(places, name, 0700) != 0)
            return -errno;
    }
    return TAKE_FD(places);
}

int overlay_by_path(const struct overlay_layers *layers, int *ret_usr)
{
    AUTO_FD places = layers->lower_count > 1 ? make_places(layers->lower_count) : -1;
    struct path_mounts path_mounts = {
        .layers = layers, .places = places, .root = -EIO, .usr = -1};
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES,
        .stack = (__u64)(uintptr_t)path_mounts.stack,
        .stack_size = sizeof path_mounts.stack,
    };
    sigset_t all, before;

    if (layers->lower_count > 1 && places < 0)
        return places;
    if (layers->usr_above >= 0)
        return -EOPNOTSUPP;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, mount_by_path, &path_mounts);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return (int)pid;
    while (waitpid((pid_t)pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
    AUTO_FD root = path_mounts.root;
    if (root >= 0 && layers->host >= 0 && path_mounts.usr < 0)
        return path_mounts.usr;
    *ret_usr = path_mounts.usr;
    return TAKE_FD(root);
}

/* A directory of the disk, which may be a detached mount. */
static int show_disk(int disk, const char *path, int map)
{
    static const uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    AUTO_FD fd = path_open(disk, path, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    int mount = fd < 0 ? fd : shift_mount(fd, map, attributes);

    return fd >= 0 && mount == -EINVAL ? shift_mount_below(disk, path, map, attributes)
                                       : mount;
}

/* The overlay creates files there as host root, which therefore needs an id on the disk:
 * one that no user inside has. */
int overlay_open_disk(int disk, uint32_t id_base)
{
    char ids[64];

    snprintf(ids, sizeof ids, "0 %u 65536\n65536 0 1\n", id_base);
    AUTO_FD map = shift_map(ids, ids);
    return map < 0 ? map : show_disk(disk, ".", map);
}

/* The directories an overlay writes to; on a disk they may exist already. */
static int make_pair(int top, const char *upper, const char *work, uint32_t id_base)
{
    int error = store_mkdir(top, upper, 0755, id_base);

    if (!error || error == -EEXIST)
        error = store_mkdir(top, work, 0755, id_base);
    return error == -EEXIST ? 0 : error;
}

/* In memory the tmpfs has a fixed size, so that the disk limit is enforced. */
static int open_memory(const struct overlay *overlay)
{
    const struct plan_step step = {
        .kind = PLAN_TREE, .mode = 0700, .number = overlay->size};

    if (overlay->store < 0)
        return build_tree(&step, 0, 0);
    int fd = fcntl(overlay->store, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

static int open_top(const struct overlay *overlay, uint32_t id_base)
{
    bool is_memory = overlay->disk < 0;
    AUTO_FD top =
        is_memory ? open_memory(overlay) : overlay_open_disk(overlay->disk, id_base);
    int error = top < 0 ? top : 0;

    /* The root of a fork has the owner and the mode that it had before. */
    if (!error && overlay->layer_count)
        error = store_mkdir_like(top, "upper", overlay->layers[0]);
    if (!error && is_memory)
        error = make_pair(top, "upper", "work", id_base);
    if (!error && overlay->layer_count && overlay->usr >= 0)
        error = store_mkdir_like(top, "usr", overlay->usr_layers[0]);
    if (!error && overlay->usr >= 0)
        error = make_pair(top, "usr", "usr-work", id_base);
    return error ? error : TAKE_FD(top);
}

static int show_below(int fd, int map)
{
    return shift_mount(fd, map, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY);
}

static int show_host(int map)
{
    AUTO_FD place = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return place < 0 ? -errno : show_below(place, map);
}

/* The template's layers, the highest first; the caller closes them also after an error.
 */
static int show_layers(const struct overlay *overlay, int map, int *ret_lowers,
                       size_t *ret_count)
{
    int fd = overlay->below_count > OVERLAY_BELOW_MAX ? -E2BIG : 0;

    for (*ret_count = 0; fd >= 0 && *ret_count <= overlay->below_count; ++*ret_count) {
        fd =
            show_below(*ret_count ? overlay->below[*ret_count - 1] : overlay->lower, map);
        ret_lowers[*ret_count] = fd;
    }
    return fd < 0 ? fd : 0;
}

int overlay_below(const struct overlay *overlay, int map, struct overlay_below *ret_below)
{
    ret_below->usr_count = 0;
    int fd = show_layers(overlay, map, ret_below->lowers, &ret_below->count);
    if (fd || overlay->usr < 0)
        return fd;
    if (overlay->usr_above >= 0)
        fd = ret_below->usr[ret_below->usr_count++] = show_below(overlay->usr_above, map);
    if (fd < 0)
        return fd;
    AUTO_FD usr = show_below(overlay->usr, map);
    AUTO_FD host = usr < 0 ? usr : show_host(map);
    fd = host < 0 ? host : create_public(usr, host);
    ret_below->usr[ret_below->usr_count++] = fd;
    return fd < 0 ? fd : 0;
}

void overlay_below_done(struct overlay_below *below)
{
    while (below->count > 0)
        auto_close(&below->lowers[--below->count]);
    while (below->usr_count > 0)
        auto_close(&below->usr[--below->usr_count]);
}

static int mount_over(const struct overlay *overlay, const int *lowers, size_t count,
                      int top, int map, int *ret_usr)
{
    AUTO_FD usr = overlay->usr < 0 ? -1 : show_below(overlay->usr, map);
    AUTO_FD host = overlay->usr < 0 ? -1 : show_host(map);
    AUTO_FD above = overlay->usr_above < 0 ? -1 : show_below(overlay->usr_above, map);
    const struct overlay_layers layers = {.lowers = lowers,
                                          .lower_count = count,
                                          .top = top,
                                          .usr = usr,
                                          .host = host,
                                          .usr_above = above,
                                          .usr_lowers = overlay->usr_layers,
                                          .usr_count = overlay->layer_count};

    if (overlay->usr >= 0 && (usr < 0 || host < 0))
        return usr < 0 ? TAKE_FD(usr) : TAKE_FD(host);
    if (overlay->usr_above >= 0 && above < 0)
        return TAKE_FD(above);
    return create(&layers, ret_usr);
}

static int mount_layers(const struct overlay *overlay, int top, int map, int *ret_usr)
{
    int lowers[LAYER_DEPTH_MAX + OVERLAY_BELOW_MAX + 1];
    size_t above = overlay->layer_count, count = 0;
    int fd = overlay->lower < 0
                 ? 0
                 : show_layers(overlay, map, lowers + overlay->layer_count, &count);

    for (size_t i = 0; i < above; i++)
        lowers[i] = overlay->layers[i];
    if (!fd)
        fd = mount_over(overlay, lowers, above + count, top, map, ret_usr);
    for (size_t i = 0; i < count; i++)
        auto_close(&lowers[above + i]);
    return fd;
}

int overlay_mount(const struct overlay *overlay, int map, uint32_t id_base, int *ret_usr)
{
    *ret_usr = -1;
    if (overlay->lower < 0 &&
        !overlay->layer_count) /* no template below: the disk is the root */
        return show_disk(overlay->disk, "upper", map);
    if (overlay->top >= 0)
        return mount_layers(overlay, overlay->top, map, ret_usr);
    AUTO_FD top = open_top(overlay, id_base);
    return top < 0 ? TAKE_FD(top) : mount_layers(overlay, top, map, ret_usr);
}

static int clone_mount(int fd)
{
    int clone = (int)syscall(SYS_open_tree, fd, "",
                             AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    return clone < 0 ? -errno : clone;
}

int overlay_mount_plain(const int *lowers, size_t count, int top)
{
    int clones[OVERLAY_BELOW_MAX + 1], usr;
    size_t used = 0;
    AUTO_FD above = clone_mount(top);
    int fd = count > OVERLAY_BELOW_MAX + 1 ? -E2BIG : above;

    for (; fd >= 0 && used < count; used++)
        fd = clones[used] = clone_mount(lowers[used]);
    const struct overlay_layers layers = {.lowers = clones,
                                          .lower_count = count,
                                          .top = above,
                                          .usr = -1,
                                          .host = -1,
                                          .usr_above = -1};
    if (fd >= 0)
        fd = create(&layers, &usr);
    for (size_t i = 0; i < used; i++)
        auto_close(&clones[i]);
    return fd;
}

int overlay_mount_copy(int lower, int top)
{
    const struct overlay_layers layers = {.lowers = &lower,
                                          .lower_count = 1,
                                          .top = top,
                                          .usr = -1,
                                          .host = -1,
                                          .usr_above = -1};
    int usr;

    return create(&layers, &usr);
}
