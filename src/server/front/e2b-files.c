/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/e2b-files.h"

#include <string.h>

#include "base/error.h"
#include "server/wire/filter.h"

const char *front_file_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool front_file_begin_ask(struct exchange *exchange, enum op op, struct ask *ask)
{
    const char *user = exchange_query(exchange, "username");
    const char *signature = exchange_query(exchange, "signature");
    const char *expires = exchange_query(exchange, "signature_expiration");

    exchange_begin_ask(exchange, op, ask);
    ask->numbers[FILE_EXPIRES] = -1;
    if (user && strlen(user) >= USER_MAX) {
        exchange_refuse(exchange, 401, "there is no such user");
        return false;
    }
    if (user) {
        cay_copy_text(ask->user, USER_MAX, user);
    } else if (!connect_user(exchange, ask->user)) {
        exchange_refuse(exchange, 401, "Authorization is to be Basic");
        return false;
    }
    if (exchange_header(exchange, "X-Access-Token"))
        return true;
    if (!signature) {
        exchange_refuse(exchange, 401, "missing signature query parameter");
        return false;
    }
    ask->flags |= FILE_SIGNED;
    if (strlen(signature) < CREDENTIAL_MAX)
        cay_copy_text(ask->credential, CREDENTIAL_MAX, signature);
    if (expires && *expires &&
        !filter_number(expires, 0, INT64_MAX, &ask->numbers[FILE_EXPIRES])) {
        exchange_refuse(exchange, 401, "invalid signature expiration");
        return false;
    }
    return true;
}

void front_file_refuse(struct exchange *exchange, const struct told *told)
{
    const char *message = told_next(told, NULL);

    if (told->head.status)
        exchange_refuse_told(exchange, told);
    else if (told->head.code == CAY_E_DENIED)
        exchange_refuse(exchange, 403, message);
    else
        exchange_refuse_told(exchange, told);
}

const struct handler file_handlers[] = {
    {.method = "GET",
     .path = "/files",
     .act = front_file_download,
     .told = front_file_told_download},
    {.method = "HEAD",
     .path = "/files",
     .act = front_file_download,
     .told = front_file_told_download},
    {.method = "POST",
     .path = "/files",
     .begin = front_file_upload_begin,
     .feed = front_file_upload_feed,
     .act = front_file_upload_finish,
     .told = front_file_told_upload},
    {0},
};
