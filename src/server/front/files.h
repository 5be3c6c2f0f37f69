/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FILES_H
#define SERVER_FRONT_FILES_H

#include "server/front/front.h"

/* /files of E2B's envd: whole files, up and down.
 *
 * The keeper opens the file and passes the descriptor out; bytes then go straight between
 * the client's socket and the file. */

/* By token, or else by signature.  False if the request was refused. */
bool front_file_init_request(struct exchange *exchange, enum op op,
                             struct request *request);

/* With the statuses that this resource has for what a keeper refuses. */
void front_file_refuse(struct exchange *exchange, const struct reply_packet *reply);

const char *front_file_base_name(const char *path);

bool front_file_upload_begin(struct exchange *exchange);
bool front_file_upload_feed(struct exchange *exchange, const char *data, size_t len);
void front_file_upload_finish(struct exchange *exchange);
void front_file_on_upload(struct exchange *exchange, struct reply_packet *reply);

#endif
