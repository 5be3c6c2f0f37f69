/* SPDX-License-Identifier: Apache-2.0 */
#include "init/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"

enum { ROWS = 24, COLUMNS = 80, MODE = 0620 };

static int directory = -1;
static const char *maker = "ptmx";

void pty_prepare(bool are_ours)
{
    struct statfs fs;

    /* Only our own devpts has a ptmx with mode 0666. */
    if (!are_ours)
        maker = "/dev/ptmx";
    directory = open("/dev/pts", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0 &&
        (fstatfs(directory, &fs) != 0 || fs.f_type != DEVPTS_SUPER_MAGIC)) {
        (void)close(directory);
        directory = -1;
    }
}

int pty_resize(int master, uint16_t rows, uint16_t columns)
{
    const struct winsize size = {.ws_row = rows ? rows : ROWS,
                                 .ws_col = columns ? columns : COLUMNS};

    return ioctl(master, TIOCSWINSZ, &size) == 0 ? 0 : -errno;
}

/* The slave is opened through its master (TIOCGPTPEER), never by name. */
int pty_open(uid_t owner, uint16_t rows, uint16_t columns, int *ret_master,
             int *ret_slave)
{
    struct termios settings;
    int locked = 0;

    if (directory < 0)
        return -ENODEV;
    AUTO_FD master = openat(directory, maker, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &locked) != 0)
        return -errno;
    AUTO_FD slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || fchown(slave, owner, (gid_t)-1) != 0 || fchmod(slave, MODE) != 0 ||
        tcgetattr(slave, &settings) != 0)
        return -errno;
    settings.c_iflag |= IUTF8;
    if (tcsetattr(slave, TCSANOW, &settings) != 0)
        return -errno;
    int error = pty_resize(master, rows, columns);
    if (error)
        return error;
    *ret_master = TAKE_FD(master);
    *ret_slave = TAKE_FD(slave);
    return 0;
}
