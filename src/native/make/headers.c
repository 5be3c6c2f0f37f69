/* SPDX-License-Identifier: Apache-2.0 */

/* Headers go to cay-net-tls in a file without a name: cay-net passes the descriptor on
 * and gets only the names of the hosts. */
#include "native/make/headers.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/error.h"
#include "native/process/handle.h"
#include "native/record/runtime.h"
#include "relay/relay.h"
#include "sys/io.h"
#include "sys/rights.h"
#include "tls/secret.h"

static const char op[] = "sandbox.headers";

static bool is_line(const char *text)
{
    return text && !strpbrk(text, "\t\n");
}

/* In the form of tls/secret.h, whose reader checks the rest. */
static int write_headers(const struct cay_header *headers, size_t count, struct buf *text,
                         struct cay_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct cay_header *header = &headers[i];
        bool is_valid =
            is_line(header->host) && is_line(header->name) && is_line(header->value);
        for (size_t j = 0; is_valid && j < header->secret_count; j++)
            is_valid = is_line(header->secrets[j]);
        if (!is_valid)
            return cay_fail(err, CAY_E_INVALID, 0, op, "headers",
                            "a part of a header is missing or has several lines",
                            "use text without control characters");
        buf_format(text, "+%s\t%s\t%s\n", header->host, header->name, header->value);
        for (size_t j = 0; j < header->secret_count; j++)
            buf_format(text, "*%s\n", header->secrets[j]);
    }
    return text->failed ? cay_fail(err, CAY_E_LIMIT, 0, op, "headers",
                                   "the headers are too large", "the limit is 64 KiB")
                        : CAY_OK;
}

static int make_file(const struct buf *text, struct cay_error *err)
{
    AUTO_FD fd = memfd_create("cay-headers", MFD_CLOEXEC);
    int error = fd < 0 ? -errno : io_write(fd, text->data, text->len);

    return error ? cay_fail_errno(err, -error, op, "headers") : TAKE_FD(fd);
}

static int send_headers(const char *id, const struct buf *hosts, int file,
                        struct cay_error *err)
{
    struct relay_request head = {RELAY_VERSION, RELAY_HEADERS};
    const struct iovec parts[] = {{&head, sizeof head}, {hosts->data, hosts->len}};
    const struct timeval limit = {NATIVE_REPLY_MS / 1000, 0};
    struct relay_reply reply = {0};
    struct sockaddr_un address;

    TRY(runtime_relay_address(id, &address, err));
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        return cay_fail_errno(err, errno, op, id);
    ssize_t got = -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        rights_send(fd, parts, 2, &file, 1, 0) == 0)
        do
            got = recv(fd, &reply, sizeof reply, 0);
        while (got < 0 && errno == EINTR);
    if (got != sizeof reply || reply.version != RELAY_VERSION)
        return cay_fail(err, CAY_E_UNAVAILABLE, got < 0 ? errno : EPROTO, op, id,
                        "the process that relays the sandbox's network does not reply",
                        "the sandbox has no network until it is started again");
    if (reply.code == CAY_OK)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, id,
                    "the sandbox was created without headers for its requests",
                    "give it some when it is created");
}

int headers_set(const char *id, const struct cay_header *headers, size_t count,
                struct cay_error *err)
{
    struct secrets *checked = NULL;
    AUTO_BUF text;
    AUTO_BUF hosts;

    buf_init(&text, SECRETS_TEXT_MAX);
    buf_init(&hosts, NETWORK_TEXT_MAX);
    int code = write_headers(headers, count, &text, err);
    if (!code)
        code = secrets_read(text.data ? text.data : "", text.len, &checked, err);
    for (size_t i = 0; !code && i < checked->header_count; i++)
        buf_format(&hosts, "%s\n", checked->headers[i].host);
    secrets_free(checked);
    AUTO_FD file = code ? -1 : make_file(&text, err);
    if (text.data)
        explicit_bzero(text.data, text.len);
    if (code || file < 0)
        return code ? code : file;
    return hosts.failed ? cay_fail_memory(err, op) : send_headers(id, &hosts, file, err);
}
