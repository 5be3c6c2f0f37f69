/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/error.h"

static struct termios original;
static bool is_raw, is_known;

int terminal_require(const char *what, const char *hint, struct cay_error *err)
{
    if (isatty(STDIN_FILENO))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "cli.terminal", what,
                    "standard input is not a terminal", "%s", hint);
}

bool terminal_size(uint16_t *ret_rows, uint16_t *ret_columns)
{
    struct winsize size;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col) {
            *ret_rows = size.ws_row;
            *ret_columns = size.ws_col;
            return true;
        }
    return false;
}

void terminal_make_raw(void)
{
    struct termios raw;

    if (!is_known && tcgetattr(STDIN_FILENO, &original) != 0)
        return;
    is_known = true;
    raw = original;
    cfmakeraw(&raw);
    is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

void terminal_restore(void)
{
    if (is_raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &original);
    is_raw = false;
}
