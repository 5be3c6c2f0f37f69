/* SPDX-License-Identifier: Apache-2.0 */

/* A mode is set where the filter of a container refuses fchmodat2(2). */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"
#include "sys/path.h"

int fchmodat(int fd, const char *file, mode_t mode, int flag)
{
    (void)fd, (void)file, (void)mode, (void)flag;
    errno = EPERM;
    return -1;
}

static unsigned mode_of(const char *path)
{
    struct stat st;

    ASSERT_INT(stat(path, &st), 0);
    return st.st_mode & 07777;
}

TEST(a_mode_is_set_without_fchmodat2)
{
    ASSERT_INT(mkdir(scratch_path("directory"), 0700), 0);
    ASSERT_INT(path_chmod(AT_FDCWD, scratch_path("directory"), 01751), 0);
    ASSERT_INT(mode_of(scratch_path("directory")), 01751);
    ASSERT_INT(path_chmod(AT_FDCWD, scratch_path("missing"), 0700), -ENOENT);
}

TEST(a_link_is_not_followed_without_fchmodat2)
{
    ASSERT_INT(mkdir(scratch_path("target"), 0700), 0);
    ASSERT_INT(symlink("target", scratch_path("link")), 0);
    (void)path_chmod(AT_FDCWD, scratch_path("link"), 0755);
    ASSERT_INT(mode_of(scratch_path("target")), 0700);
}
