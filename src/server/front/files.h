/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FILES_H
#define SERVER_FRONT_FILES_H

#include "server/front/front.h"

/* /files of E2B's envd: uploads and downloads.
 *
 * The keeper opens the file and passes the descriptor to the front, which copies between
 * the client's socket and the file. */

/* Authenticates by token, or else by signature.  False if the request was refused. */
bool front_file_init_request(struct exchange *exchange, enum op op,
                             struct request *request);

/* Refuses with the status codes of this route. */
void front_file_refuse(struct exchange *exchange, const struct reply_packet *reply);

const char *front_file_base_name(const char *path);

bool front_file_upload_begin(struct exchange *exchange);
bool front_file_upload_feed(struct exchange *exchange, const char *data, size_t len);
void front_file_upload_finish(struct exchange *exchange);
void front_file_on_upload(struct exchange *exchange, struct reply_packet *reply);

#endif
