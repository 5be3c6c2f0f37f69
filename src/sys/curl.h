/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_CURL_H
#define SYS_CURL_H

#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

struct cay_error;

/* libcurl has two dozen dependencies, so it is loaded by the first program that needs it.
 * A call that is used is a line here; it is called as libcurl.curl_easy_init(). */
#define LIBCURL_CALLS(X)                                                                 \
    X(curl_easy_cleanup)                                                                 \
    X(curl_easy_getinfo)                                                                 \
    X(curl_easy_init)                                                                    \
    X(curl_easy_pause)                                                                   \
    X(curl_easy_perform)                                                                 \
    X(curl_easy_setopt)                                                                  \
    X(curl_easy_strerror)                                                                \
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
extern struct libcurl libcurl; /* only after curl_load() */

/* Loads and initializes libcurl, once in a process: CAY_E_UNAVAILABLE. */
int curl_load(const char *op, struct cay_error *err);

#endif
