/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/curl.h"

#include "base/error.h"
#include "sys/library.h"

struct libcurl libcurl;

static CURLcode global_init = CURLE_FAILED_INIT;

static void init_libcurl(void)
{
    global_init = libcurl.curl_global_init(CURL_GLOBAL_DEFAULT);
}

int curl_load(const char *op, struct cay_error *err)
{
    static const struct library_call calls[] = {
#define X(name) LIBRARY_CALL(struct libcurl, name),
        LIBCURL_CALLS(X)
#undef X
    };
    static struct library library = {.file = "libcurl-gnutls.so.4",
                                     .calls = calls,
                                     .call_count = sizeof calls / sizeof *calls,
                                     .table = &libcurl,
                                     .mutex = PTHREAD_MUTEX_INITIALIZER};
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (library_load(&library))
        (void)pthread_once(&once, init_libcurl);
    if (global_init == CURLE_OK)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "libcurl",
                    "libcurl-gnutls.so.4 cannot be loaded",
                    "install it: apt-get install libcurl3-gnutls");
}
