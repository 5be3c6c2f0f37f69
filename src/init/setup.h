/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SETUP_H
#define INIT_SETUP_H

/* The namespaces to create, besides the PID and user namespace. */
enum setup_kind {
    SETUP_NETWORK = 1, /* all */
    SETUP_FILES = 2,   /* all but the network namespace */
    SETUP_RELAY = 3,   /* all, and the network's sockets go to the library */
    SETUP_NOTHING = 4, /* none */
    SETUP_HOST = 5     /* none, and no other isolation either */
};

/* Sets the sandbox up, confines PID 1 and serves. */
_Noreturn void setup_run(enum setup_kind kind);

#endif
