/* SPDX-License-Identifier: Apache-2.0 */

/* Starts a warm interpreter, without a sandbox: warm-run FILE */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "init/warm.h"

int main(int argc, char **argv)
{
    int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    int error = warm_start(fd);

    printf("not started: %s\n", strerror(-error));
    return 3;
}
