/* SPDX-License-Identifier: Apache-2.0 */

/* Certificates are verified in every configuration. */
#include <stdio.h>
#include <unistd.h>

#include "peer.h"

static int create(const char *host)
{
    cay_config *config = NULL;
    void *box = NULL;
    char text[1024];
    const char *port = strrchr(peer_url(), ':');
    int len = snprintf(text, sizeof text,
                       "type: e2b\napi_url: https://%s%s\nsandbox_url: https://%s%s\n"
                       "api_key: e2b_5ec2e7\nmax_retries: 0\nforce_http: true\n",
                       host, port, host, port);

    ASSERT_OK(cay_config_parse(text, (size_t)len, "test", NULL, &config, &err));
    int code = backend_e2b.create(NULL, config, &box, &err);
    if (!code)
        code = run_script(box, "echo over TLS", 0, &err);
    if (box)
        backend_e2b.free(box);
    cay_config_free(config);
    return code;
}

WITH_PEER(server_without_a_trusted_certificate_does_not_get_the_key)
{
    const char *file = scratch_path("authority.pem");

    if (strcmp(peer_request("{\"tls\": \"%s\"}", scratch()), "true") != 0)
        SKIP("there is no openssl to make a certificate");
    (void)unsetenv("SSL_CERT_FILE");
    ASSERT_CODE(create("localhost"), CAY_E_UNAVAILABLE);
    ASSERT_HAS(err.message, "certificate");
    ASSERT_INT(setenv("SSL_CERT_FILE", file, 1), 0);
    int trusted = create("localhost"), misnamed = create("127.0.0.1");
    (void)unsetenv("SSL_CERT_FILE");
    ASSERT_INT(trusted, CAY_OK);
    ASSERT_STR(result.out, "over TLS\n");
    ASSERT_INT(misnamed, CAY_E_UNAVAILABLE);
    ASSERT_INT(count_requests("POST /v2/sandboxes"), 1);
}
