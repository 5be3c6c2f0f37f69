/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_LIBCURL_H
#define E2B_LIBCURL_H

#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

#include "cay/error.h"

/* libcurl brings two dozen libraries along.  It is loaded with the first sandbox that
 * is not on this machine. */

#define LIBCURL_CALLS(X)                                                                 \
    X(curl_easy_cleanup)                                                                 \
    X(curl_easy_getinfo)                                                                 \
    X(curl_easy_init)                                                                    \
    X(curl_easy_pause)                                                                   \
    X(curl_easy_setopt)                                                                  \
    X(curl_getdate)                                                                      \
    X(curl_global_init)                                                                  \
    X(curl_multi_add_handle)                                                             \
    X(curl_multi_cleanup)                                                                \
    X(curl_multi_info_read)                                                              \
    X(curl_multi_init)                                                                   \
    X(curl_multi_remove_handle)                                                          \
    X(curl_multi_setopt)                                                                 \
    X(curl_multi_socket_action)                                                          \
    X(curl_slist_append)                                                                 \
    X(curl_slist_free_all)

struct libcurl {
#define X(name) typeof(&name) name;
    LIBCURL_CALLS(X)
#undef X
};

/* Filled in once libcurl_load() has succeeded, for good. */
extern struct libcurl libcurl;

int libcurl_load(const char *op, struct cay_error *err);

#endif
