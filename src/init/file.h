/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_FILE_H
#define INIT_FILE_H

#include <stdbool.h>

#include "init/packet.h"
#include "init/plan.h"

/* The user of a connection's file operations. */
struct file_user;

/* Handles MESSAGE_FILES and MESSAGE_FILE; *user is NULL until the former, and the
 * connection frees it.  False if the peer violated the protocol or is gone. */
bool file_handle(int socket, const struct packet *packet, struct file_user **user);

/* Call it first. */
void file_prepare(const struct plan *plan);

/* After another root may have been mounted. */
void file_forget_root(void);

#endif
