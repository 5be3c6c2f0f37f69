/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/sigpipe.h"

#include <time.h>

void sigpipe_block(sigset_t *ret_before)
{
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, ret_before);
}

void sigpipe_restore(const sigset_t *before)
{
    const struct timespec now = {0};
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!sigismember(before, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &now) > 0)
            continue;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
