/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_INSIDE_H
#define INIT_INSIDE_H

#include <stdbool.h>

/* Becomes the sandbox, with a network of its own or the host's. */
_Noreturn void inside_begin(bool own_network);

#endif
