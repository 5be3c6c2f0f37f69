/* SPDX-License-Identifier: Apache-2.0 */

/* The pool of --pool, in a process of its own: cay/pool.h starts a thread, and the broker
 * forks.  The pool ends with the broker, and keepers claim its spares by its name. */
#include "cay/pool.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "server/keeper/keeper.h"
#include "server/wire/warn.h"

enum { RETRY_MS = 1000, RETRY_MAX_MS = 60000 };

struct cay_sandbox_options keeper_sandbox_options(const struct serve_options *options)
{
    return (struct cay_sandbox_options){
        .size = sizeof(struct cay_sandbox_options),
        .template_name = KEEPER_TEMPLATE,
        .id_prefix = *options->node ? options->node : NULL,
        .memory_bytes = options->has_memory ? options->memory_bytes : 0,
        .disk_bytes = options->has_disk ? options->disk_bytes : 0,
        .storage = options->storage,
        .network =
            options->internet > CAY_NETWORK_HOST ? CAY_NETWORK_RULES : CAY_NETWORK_NONE,
    };
}

/* The broker sends nothing: it closes the socket. */
static bool has_broker(int socket, int wait_ms)
{
    struct pollfd broker = {.fd = socket, .events = POLLIN};

    return poll(&broker, 1, wait_ms) == 0;
}

_Noreturn void pool_run(int socket, const struct serve_options *options)
{
    static struct warn warn;
    const struct cay_sandbox_options sandbox = keeper_sandbox_options(options);
    const struct cay_pool_options wanted = {
        .size = sizeof wanted, .sandbox = &sandbox, .count = options->pool};
    struct cay_error error;
    cay_pool *pool = NULL;
    int wait_ms = RETRY_MS;

    while (cay_pool_create(&wanted, &pool, &error) != CAY_OK) {
        warn_line(&warn, "--pool: %s (%s)", error.message, error.hint);
        if (!has_broker(socket, wait_ms))
            _exit(0);
        wait_ms = wait_ms < RETRY_MAX_MS / 2 ? 2 * wait_ms : RETRY_MAX_MS;
    }
    const char *name = cay_pool_name(pool);
    (void)send(socket, name, strlen(name) + 1, MSG_NOSIGNAL);
    (void)has_broker(socket, -1);
    cay_pool_free(pool);
    _exit(0);
}
