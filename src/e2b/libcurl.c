/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/libcurl.h"

#include "base/error.h"
#include "sys/library.h"

struct libcurl libcurl;

static CURLcode begun = CURLE_FAILED_INIT;

static void begin(void)
{
    begun = libcurl.curl_global_init(CURL_GLOBAL_DEFAULT);
}

int libcurl_load(const char *op, struct cay_error *err)
{
    static const struct library_call calls[] = {
#define X(name) {#name, offsetof(struct libcurl, name)},
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
        (void)pthread_once(&once, begin);
    return begun == CURLE_OK ? CAY_OK
                             : cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "libcurl",
                                        "the library that speaks HTTP is not there",
                                        "install it: apt-get install libcurl3-gnutls");
}
