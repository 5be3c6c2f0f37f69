/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SETUP_H
#define INIT_SETUP_H

/* What it is to be apart from the host in, besides processes and users. */
enum setup_kind {
    SETUP_NETWORK = 1, /* everything */
    SETUP_FILES = 2,   /* everything but the network */
    SETUP_NOTHING = 3, /* nothing at all: no namespaces */
    SETUP_HOST = 4     /* the same, and nothing else keeps it in either */
};

/* Becomes the sandbox. */
_Noreturn void setup_run(enum setup_kind kind);

#endif
