/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "tls/opener.h"

/* HTTP/1.1 only: later versions are not read. */
static int set_protocol(gnutls_session_t session)
{
    unsigned char name[] = "http/1.1";
    const gnutls_datum_t protocol = {name, sizeof name - 1};

    return gnutls_alpn_set_protocols(session, &protocol, 1, GNUTLS_ALPN_MANDATORY);
}

static ssize_t pull(gnutls_transport_ptr_t pointer, void *bytes, size_t len)
{
    struct end *end = pointer;
    ssize_t got = recv(end->fd, bytes, len, 0);

    end->is_empty = got < 0 && errno == EAGAIN;
    return got;
}

static int init_session(struct opener *opener, struct end *end, unsigned kind,
                        gnutls_certificate_credentials_t credentials)
{
    int code = gnutls_init(&end->session, kind | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);

    if (code < 0) {
        end->session = NULL;
        return code;
    }
    code = gnutls_priority_set(end->session, opener->priorities);
    if (code >= 0)
        code = gnutls_credentials_set(end->session, GNUTLS_CRD_CERTIFICATE, credentials);
    if (code >= 0)
        code = set_protocol(end->session);
    gnutls_transport_set_ptr2(end->session, end,
                              (gnutls_transport_ptr_t)(intptr_t)end->fd);
    gnutls_transport_set_pull_function(end->session, pull);
    return code;
}

int end_init_client(struct opener *opener, const char *name, struct end *end)
{
    gnutls_certificate_credentials_t credentials;
    bool is_own;
    int code = authority_find(&opener->authority, name, &credentials, &is_own);

    if (code < 0)
        return code;
    end->own = is_own ? credentials : NULL;
    end->sends_ticket = true;
    code = init_session(opener, end, GNUTLS_SERVER | GNUTLS_NO_AUTO_SEND_TICKET,
                        credentials);
    return code < 0
               ? code
               : gnutls_session_ticket_enable_server(end->session, &opener->ticket_key);
}

/* The certificates of the host are read for the first server: they take 4 MiB. */
static int load_roots(struct opener *opener)
{
    enum { MOST = 16 << 20 };
    AUTO_BUF text;
    struct stat st;

    buf_init(&text, MOST);
    int code = gnutls_certificate_allocate_credentials(&opener->trust);
    if (code < 0)
        return code;
    AUTO_FD roots = TAKE_FD(opener->roots);
    if (roots < 0 || fstat(roots, &st) != 0 || !buf_reserve(&text, (size_t)st.st_size))
        return 0; /* no server is valid */
    for (ssize_t got; text.len < (size_t)st.st_size; text.len += (size_t)got) {
        got = pread(roots, text.data + text.len, (size_t)st.st_size - text.len,
                    (off_t)text.len);
        if (got <= 0)
            break;
    }
    const gnutls_datum_t all = {(unsigned char *)text.data, (unsigned)text.len};
    code =
        gnutls_certificate_set_x509_trust_mem(opener->trust, &all, GNUTLS_X509_FMT_PEM);
    return code < 0 && code != GNUTLS_E_NO_CERTIFICATE_FOUND ? code : 0;
}

int end_init_server(struct opener *opener, const char *name, struct end *end)
{
    int code = opener->trust ? 0 : load_roots(opener);

    if (code >= 0)
        code = init_session(opener, end, GNUTLS_CLIENT, opener->trust);
    if (code >= 0)
        code = gnutls_server_name_set(end->session, GNUTLS_NAME_DNS, name, strlen(name));
    if (code >= 0)
        gnutls_session_set_verify_cert(end->session, name, 0);
    return code;
}

void end_done(struct end *end)
{
    if (end->session)
        gnutls_deinit(end->session);
    if (end->own)
        gnutls_certificate_free_credentials(end->own);
    auto_close(&end->fd);
    *end = (struct end){.fd = -1};
}

/* A ticket also acknowledges the client's last message: without it a client with Nagle's
 * algorithm waits 40 ms before its first request.  GnuTLS alone sends it too early. */
static int send_ticket(struct end *end)
{
    int code = 0;

    if (end->sends_ticket && gnutls_protocol_get_version(end->session) == GNUTLS_TLS1_3)
        code = gnutls_session_ticket_send(end->session, 1, 0);
    end->sends_ticket &= code == GNUTLS_E_AGAIN;
    return code;
}

int end_handshake(struct end *end, int *ret_code)
{
    int code;

    if (!end->session || end->is_ready) {
        end->is_ready = true;
        return 0;
    }
    do
        code = end->is_shaken ? 0 : gnutls_handshake(end->session);
    while (code < 0 && !gnutls_error_is_fatal(code) && code != GNUTLS_E_AGAIN);
    end->is_shaken = code >= 0;
    if (end->is_shaken)
        code = send_ticket(end);
    if (code < 0 && code != GNUTLS_E_AGAIN)
        (void)gnutls_alert_send_appropriate(end->session, code);
    *ret_code = code;
    end->is_ready = code >= 0;
    return code >= 0 ? 0 : code == GNUTLS_E_AGAIN ? -EAGAIN : -EPROTO;
}

const char *end_fault(const struct end *end, int code, char *text, size_t room)
{
    gnutls_datum_t words;

    snprintf(text, room, "%s", gnutls_strerror(code));
    if (code != GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR ||
        gnutls_certificate_verification_status_print(
            gnutls_session_get_verify_cert_status(end->session), GNUTLS_CRT_X509, &words,
            0) < 0)
        return text;
    snprintf(text, room, "%s", (const char *)words.data);
    gnutls_free(words.data);
    return text;
}

ssize_t end_receive(struct end *end, void *bytes, size_t len)
{
    if (!end->session) {
        ssize_t got = recv(end->fd, bytes, len, 0);
        return got < 0 ? -errno : got;
    }
    /* GnuTLS also returns AGAIN after a message that is not data, and epoll does not
     * report the bytes behind it again. */
    ssize_t got;
    do {
        end->is_empty = false;
        got = gnutls_record_recv(end->session, bytes, len);
    } while (got < 0 && !gnutls_error_is_fatal((int)got) && !end->is_empty);
    if (got >= 0)
        return got;
    return gnutls_error_is_fatal((int)got) ? -EPROTO : -EAGAIN;
}

ssize_t end_send(struct end *end, const void *bytes, size_t len)
{
    if (!end->session) {
        ssize_t sent = send(end->fd, bytes, len, MSG_NOSIGNAL);
        return sent < 0 ? -errno : sent;
    }
    ssize_t sent = gnutls_record_send(end->session, bytes, len);
    if (sent >= 0)
        return sent;
    return gnutls_error_is_fatal((int)sent) ? -EPROTO : -EAGAIN;
}

void end_shut(struct end *end)
{
    if (end->is_shut)
        return;
    end->is_shut = true;
    if (end->session && end->is_ready)
        (void)gnutls_bye(end->session, GNUTLS_SHUT_WR);
    (void)shutdown(end->fd, SHUT_WR);
}
