/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_FILE_H
#define INIT_FILE_H

#include <stdbool.h>

#include "init/packet.h"
#include "init/plan.h"

/* Whose rights a connection's file operations have. */
struct file_user;

/* Answers MESSAGE_FILES and MESSAGE_FILE; *user is NULL until the former came, and the
 * connection's to free().  False if the peer broke the rules or is gone. */
bool file_handle(int socket, const struct packet *packet, struct file_user **user);

/* Before the first. */
void file_prepare(const struct plan *plan);

#endif
