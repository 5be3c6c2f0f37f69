/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_INSIDE_H
#define INIT_INSIDE_H

/* What it is to be apart from the host in, besides processes and users. */
enum inside_kind {
    INSIDE_NETWORK = 1, /* everything */
    INSIDE_FILES = 2,   /* everything but the network */
    INSIDE_NOTHING = 3, /* nothing at all: no namespaces */
    INSIDE_HOST = 4     /* the same, and nothing else keeps it in either */
};

/* Becomes the sandbox. */
_Noreturn void inside_begin(enum inside_kind kind);

#endif
