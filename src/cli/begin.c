/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"

/* With a standard descriptor closed, the next file opened would take its number and get
 * what was meant for the user.  These make such reads and writes fail instead. */
static void open_standard_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            /* allow: cloexec it is to be inherited like any standard descriptor */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static void note_nothing(int number)
{
    (void)number;
}

void cli_begin(void)
{
    /* Like any filter: when nobody reads on, end without a word, whatever we inherited.
     */
    struct sigaction quiet_end = {.sa_handler = SIG_DFL};
    /* A limit on the size of files (ulimit -f) makes writing fail, and no more. */
    struct sigaction told = {.sa_handler = note_nothing};

    open_standard_fds();
    sigaction(SIGPIPE, &quiet_end, NULL);
    sigaction(SIGXFSZ, &told, NULL);
    setvbuf(stderr, NULL, _IOLBF, 4096);
}
