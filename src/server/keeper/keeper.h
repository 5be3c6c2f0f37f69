/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_KEEPER_H
#define SERVER_KEEPER_KEEPER_H

#include "server/wire/options.h"
#include "server/wire/record.h"

enum {
    KEEPER_SANDBOX_GONE = 3, /* exit status: the sandbox has ended by itself */
    KEEPER_OUT_OF_MEMORY = 4 /* and the kernel had killed in it for its memory */
};

/* PID 1 ends a sandbox so long after its time, if there is no broker to do it. */
enum { KEEPER_GRACE_MS = 3000 };

/* The sandbox that a keeper is started for; "": it will create one. */
struct keeper_of_whom {
    char id[SANDBOX_ID_MAX], template_name[TEMPLATE_MAX], tenant[TENANT_MAX];
};

/* What a keeper does all its life (keeper.c). */
_Noreturn void keeper_run(int socket, const struct keeper_of_whom *whom,
                          const struct serve_options *options);

#endif
