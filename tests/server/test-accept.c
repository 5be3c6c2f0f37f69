/* SPDX-License-Identifier: Apache-2.0 */

/* M1: descriptors of the front. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "server/front/front.h"

TEST(connections_leave_room_for_uploads)
{
    struct rlimit before;

    ASSERT(getrlimit(RLIMIT_NOFILE, &before) == 0);
    struct rlimit few = {.rlim_cur = 128, .rlim_max = before.rlim_max};
    ASSERT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    unsigned limit = front_connections_limit();
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    ASSERT_INT(limit, 32); /* with a socket, a file and a channel each, and 32 others */
}

/* A front after EMFILE, with a client that waits. */
static int start_short(struct front *front, struct front_options *options)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT(bind(listener, (struct sockaddr *)&address, len) == 0 &&
           listen(listener, 4) == 0 &&
           getsockname(listener, (struct sockaddr *)&address, &len) == 0 &&
           connect(client, (struct sockaddr *)&address, len) == 0);
    *options = (struct front_options){.listener = listener, .log = -1};
    *front = (struct front){.options = options,
                            .connections_max = 8,
                            .is_listening = true,
                            .shortage = EMFILE};
    return client;
}

TEST(front_without_descriptors_ends_only_when_no_request_is_open)
{
    static struct front front;
    static struct exchange exchange;
    struct front_options options;

    int client = start_short(&front, &options);
    front.exchanges = &exchange;
    for (int i = 0; i < 200; i++)
        ASSERT(front_accept_sweep(&front));
    front.exchanges = NULL;
    int sweeps = 1;
    while (front_accept_sweep(&front))
        sweeps++;
    ASSERT_INT(sweeps, 30);
    close(client);
    close(options.listener);
}
