/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/image.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/idmap.h"
#include "sys/loop.h"
#include "sys/path.h"
#include "sys/spawn.h"

#define SIZE_MIN       (UINT64_C(16) << 20)
#define SIZE_MAX_BYTES (UINT64_C(16) << 40)

static const char file[] = "image";
static const char *const places[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"};
enum { PLACES = sizeof places / sizeof *places };

int image_check(uint64_t bytes, const char *who, const char *what, struct cay_error *err)
{
    if (!idmap_is_root())
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, who, what,
                        "only root can limit the size of files on disk",
                        "leave the size out, or run the command as root");
    if (bytes >= SIZE_MIN && bytes <= SIZE_MAX_BYTES)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, who, what, "invalid size limit on disk",
                    "use 16 MiB to 16 TiB");
}

static int fail_no_loop(const char *who, const char *what, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, EOPNOTSUPP, who, what,
                    "a size limit on disk needs loop devices and ext4",
                    "load the kernel module loop, or leave the size out");
}

static int fail_no_mkfs(const char *who, const char *what, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, ENOENT, who, what,
                    "a size limit on disk needs mkfs.ext4",
                    "install e2fsprogs, or leave the size out");
}

int image_check_host(const char *who, const char *what, struct cay_error *err)
{
    TRY(image_check(SIZE_MIN, who, what, err));
    if (access("/dev/loop-control", R_OK | W_OK) != 0)
        return fail_no_loop(who, what, err);
    for (size_t i = 0; i < PLACES; i++)
        if (access(places[i], X_OK) == 0)
            return CAY_OK;
    return fail_no_mkfs(who, what, err);
}

static int format(int dir, const char *who, const char *what, struct cay_error *err)
{
    char words[][32] = {"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", "image"};
    char *argv[] = {words[0], words[1], words[2], words[3], words[4],
                    words[5], words[6], words[7], NULL};
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *env[] = {path, NULL};
    struct spawn spawn = {.argv = argv, .env = env, .dir = dir, .streams = {-1, -1, -1}};
    int status = 0, error = -ENOENT;
    pid_t pid;

    for (size_t i = 0; i < PLACES && error == -ENOENT; i++) {
        spawn.program = places[i];
        error = spawn_program(&spawn, &pid);
    }
    if (error == -ENOENT)
        return fail_no_mkfs(who, what, err);
    if (error)
        return cay_fail_errno(err, -error, who, "mkfs.ext4");
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0 ? CAY_OK
                       : cay_fail(err, CAY_E_IO, 0, who, what, "mkfs.ext4 failed",
                                  "run cay doctor, and see the kernel's log");
}

/* fallocate(2) would fill the disk before it fails. */
static int check_space(int dir, uint64_t bytes, const char *who, const char *what,
                       struct cay_error *err)
{
    struct statvfs space;

    if (fstatvfs(dir, &space) != 0)
        return cay_fail_errno(err, errno, who, what);
    if (bytes / space.f_frsize < space.f_bavail)
        return CAY_OK;
    return cay_fail(err, CAY_E_NO_SPACE, 0, who, what,
                    "the host has no space for a limit of this size, which is reserved",
                    "use a smaller size, or none");
}

/* The space is reserved: a host without space would cause errors in the file system. */
int image_create(int dir, uint64_t bytes, const char *who, const char *what,
                 struct cay_error *err)
{
    TRY(image_check(bytes, who, what, err));
    TRY(check_space(dir, bytes, who, what, err));
    AUTO_FD image = path_open(dir, file, O_RDWR | O_CREAT | O_EXCL, 0600, PATH_PLAIN);

    if (image < 0 || fallocate(image, 0, 0, (off_t)bytes) != 0)
        return cay_fail_errno(err, image < 0 ? -image : errno, who, what);
    TRY(format(dir, who, what, err));
    int root = image_mount(dir, who, what, err);
    if (root >= 0)
        (void)unlinkat(root, "lost+found", AT_REMOVEDIR);
    return root;
}

int image_mount(int dir, const char *who, const char *what, struct cay_error *err)
{
    AUTO_FD image = path_open(dir, file, O_RDWR, 0, PATH_PLAIN);
    int mount = image < 0 ? image : loop_mount(image);

    if (mount == -EOPNOTSUPP)
        return fail_no_loop(who, what, err);
    return mount < 0 ? cay_fail_errno(err, -mount, who, what) : mount;
}
