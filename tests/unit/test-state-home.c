/* SPDX-License-Identifier: Apache-2.0 */

/* Directories of our own, where modes cannot be set: fchmodat(2) is replaced by one that
 * is refused. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"
#include "sys/state-home.h"

static int asked;

int fchmodat(int fd, const char *file, mode_t mode, int flag)
{
    (void)fd, (void)file, (void)mode, (void)flag;
    asked++;
    errno = EPERM;
    return -1;
}

TEST(a_mode_is_set_only_where_the_umask_has_taken_some_of_it)
{
    struct stat st;
    mode_t before = umask(0022);

    ASSERT_INT(state_home_make(AT_FDCWD, scratch_path("one")), 0);
    ASSERT(stat(scratch_path("one"), &st) == 0 && (st.st_mode & 07777) == 0700);
    ASSERT_INT(asked, 0);
    ASSERT_INT(state_home_make(AT_FDCWD, scratch_path("one")), -EEXIST);
    (void)umask(0277);
    ASSERT_INT(state_home_make(AT_FDCWD, scratch_path("other")), -EPERM);
    ASSERT_INT(asked, 1);
    (void)umask(before);
}
