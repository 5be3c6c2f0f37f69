/* SPDX-License-Identifier: Apache-2.0 */

/* `cay serve --haproxy NODE=ADDRESS...`: the configuration of HAProxy for these servers.
 * docs/design/scale.md has the reason for each line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/commands.h"

static const char op[] = "serve.haproxy";

enum { NODES_MAX = 4096 };

/* "naaa=10.0.0.1:3000/3001": with the port of --agent. */
struct target {
    char node[NODE_LEN + 1];
    char address[256];
    unsigned agent; /* 0: none */
    bool is_name;   /* of the DNS, not an address */
};

static int fail_node(const char *text, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid node",
                    "give NODE=HOST:PORT, or NODE=HOST:PORT/AGENT: "
                    "naaa=10.0.0.1:3000/3001");
}

static bool is_port(const char *text, unsigned *ret_port)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);

    *ret_port = (unsigned)port;
    return end != text && *text != '-' && !*end && port > 0 && port <= UINT16_MAX;
}

/* Nothing that would be more than one word of the configuration. */
static bool is_host(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789.-_:[]";

    return *text && strspn(text, letters) == strlen(text);
}

static int parse(const char *text, unsigned agent, struct target *ret,
                 struct cay_error *err)
{
    unsigned port;

    *ret = (struct target){.agent = agent};
    if (strlen(text) <= NODE_LEN + 1 || text[NODE_LEN] != '=' ||
        strlen(text) >= sizeof ret->address)
        return fail_node(text, err);
    memcpy(ret->node, text, NODE_LEN);
    cay_copy_text(ret->address, sizeof ret->address, text + NODE_LEN + 1);
    char *slash = strchr(ret->address, '/');
    if (slash)
        *slash++ = '\0';
    const char *colon = strrchr(ret->address, ':');
    if (!options_is_node(ret->node) || (slash && !is_port(slash, &ret->agent)) ||
        !colon || !is_port(colon + 1, &port) || !is_host(ret->address))
        return fail_node(text, err);
    size_t len = (size_t)(colon - ret->address);
    ret->is_name = ret->address[0] != '[' && strspn(ret->address, "0123456789.:") < len;
    return CAY_OK;
}

static bool has_names(const struct serve_options *options)
{
    struct target target;

    for (char *const *node = options->nodes; *node; node++)
        if (parse(*node, options->agent_port, &target, NULL) == CAY_OK && target.is_name)
            return true;
    return false;
}

/* Without these HAProxy would resolve names once, and not start while one is unknown: a
 * server that is not there yet, or that moves to another address. */
static void put_resolvers(struct buf *text)
{
    buf_text(text, "resolvers system\n"
                   "    parse-resolv-conf\n"
                   "    accepted_payload_size 8192\n"
                   "    hold valid 2s\n"
                   "    hold other 10s\n"
                   "    hold nx 2s\n\n");
}

static void put_head(const struct serve_options *options, struct buf *text)
{
    static const struct {
        int status;
        const char *message;
    } errors[] = {{400, "the request is malformed"},
                  {408, "the request took too long"},
                  {500, "the proxy has failed"},
                  {502, "the server closed the connection; try again"},
                  {503, "no server is ready; try again in a moment"},
                  {504, "the server did not answer in time"}};

    buf_text(
        text,
        "# Printed by cay serve --haproxy.  docs/design/scale.md has the reasons.\n");
    if (has_names(options))
        put_resolvers(text);
    buf_text(text, "defaults\n"
                   "    mode http\n"
                   "    timeout connect 2s\n"
                   "    timeout http-request 10s\n"
                   "    timeout client 75s\n"
                   "    timeout queue 5s\n"
                   "    timeout server 1h   # commands and ports may be silent for long\n"
                   "    timeout tunnel 24h  # WebSockets\n"
                   "    # SDKs parse errors as JSON.\n");
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        buf_format(text,
                   "    http-error status %d content-type application/json string "
                   "'{\"code\":%d,\"message\":\"%s\"}'\n",
                   errors[i].status, errors[i].status, errors[i].message);
    buf_format(text, "\nfrontend e2b\n    bind %s%s:%u%s%s%s\n",
               strchr(options->address, ':') ? "ipv6@" : "", options->address,
               options->port, options->tls_cert ? " ssl crt " : "",
               options->tls_cert ? options->tls_cert : "",
               options->tls_cert ? " alpn h2,http/1.1" : "");
    /* The server marks the cookies of sessions for TLS, and limits logins by address.
     * Without a certificate something before HAProxy may speak TLS, and say so. */
    buf_format(text, "    http-request set-header X-Forwarded-For %%[src]\n%s",
               options->tls_cert ? "    http-request set-header X-Forwarded-Proto https\n"
                                 : "");
}

/* The id of a sandbox: in the host name PORT-ID.DOMAIN, a header of the SDKs, or a path.
 * The link of an upload names the server that gave it, and has no key. */
static void put_routes(struct buf *text)
{
    buf_text(text,
             "    acl named hdr(host) -m reg ^[1-9][0-9]*-[a-z2-7]{16}\\.\n"
             "    http-request set-var(txn.id) hdr(host),field(1,.),field(2,-) if named\n"
             "    http-request set-var(txn.id) hdr(E2b-Sandbox-Id) if !named "
             "{ hdr(E2b-Sandbox-Id) -m found }\n"
             "    http-request set-var(txn.id) path,field(3,/) "
             "if !{ var(txn.id) -m found } { path -m beg /sandboxes/ }\n"
             "    http-request set-var(txn.id) path,field(4,/) "
             "if !{ var(txn.id) -m found } { path -m reg ^/v[0-9]+/sandboxes/ }\n"
             "    http-request set-var(txn.node) var(txn.id),bytes(0,4) "
             "if { var(txn.id) -m reg ^[a-z2-7]{16}$ }\n"
             "    http-request set-var(txn.node) url_param(node) "
             "if !{ var(txn.node) -m found } { path -m beg /templates/uploads/ } "
             "{ url_param(node) -m reg ^[a-z2-7]{4}$ }\n"
             "    acl creates path /sandboxes /v2/sandboxes\n"
             "    acl templates path -m reg ^(/v[0-9]+)?/templates(/|$)\n"
             "    use_backend one if { var(txn.node) -m found }\n"
             "    use_backend templates if templates\n"
             "    use_backend new if creates METH_POST\n"
             "    default_backend api\n\n");
}

enum check { CHECK_NONE, CHECK_HTTP, CHECK_AGENT };

static void put_servers(const struct serve_options *options, enum check check,
                        struct buf *text)
{
    struct target target;

    for (char *const *node = options->nodes; *node; node++) {
        if (parse(*node, options->agent_port, &target, NULL) != CAY_OK)
            continue;
        buf_format(text, "    server %s %s", target.node, target.address);
        if (check == CHECK_NONE)
            buf_format(text, " track api/%s", target.node);
        else
            buf_text(text, " weight 100 check inter 2s fall 2 rise 1");
        if (check == CHECK_AGENT && target.agent)
            buf_format(text, " agent-check agent-port %u agent-inter 2s", target.agent);
        if (target.is_name)
            buf_text(text, " resolvers system init-addr none");
        buf_text(text, "\n");
    }
}

static void put_backends(const struct serve_options *options, struct buf *text)
{
    buf_text(
        text,
        "# The server that holds the sandbox, draining or not.  Another one gets a "
        "request only if it is\n# down, and replies 503.  No request is sent twice.\n"
        "backend one\n"
        "    balance hash var(txn.id)\n"
        "    hash-type consistent\n"
        "    use-server %[var(txn.node)] if TRUE\n"
        "    retries 3\n"
        "    retry-on conn-failure\n");
    put_servers(options, CHECK_NONE, text);
    buf_text(
        text,
        "\n# Creates: a server with room, by load.  A full one replies 503 before it "
        "creates anything.\n"
        "backend new\n"
        "    balance random(2)\n"
        "    option http-buffer-request\n"
        "    option httpchk\n"
        "    http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost\n"
        "    http-check disable-on-404\n"
        "    retries 3\n"
        "    option redispatch 1\n"
        "    retry-on conn-failure 503\n");
    put_servers(options, CHECK_AGENT, text);
    buf_text(
        text,
        "\n# Templates: one server for all requests of a key, since a build has many.\n"
        "backend templates\n"
        "    http-request set-var(txn.key) src\n"
        "    http-request set-var(txn.key) hdr(Authorization) "
        "if { hdr(Authorization) -m found }\n"
        "    http-request set-var(txn.key) hdr(X-API-KEY) "
        "if { hdr(X-API-KEY) -m found }\n"
        "    balance hash var(txn.key)\n"
        "    hash-type consistent\n"
        "    retries 3\n"
        "    retry-on conn-failure\n");
    put_servers(options, CHECK_NONE, text);
    buf_text(text,
             "\n# Everything else: lists.\n"
             "backend api\n"
             "    balance roundrobin\n"
             "    option httpchk\n"
             "    http-check send meth GET uri /health ver HTTP/1.1 hdr Host localhost\n"
             "    retries 3\n"
             "    option redispatch 1\n"
             "    retry-on conn-failure 503\n"
             "    http-request disable-l7-retry unless METH_GET\n");
    put_servers(options, CHECK_HTTP, text);
}

int haproxy_print(const struct serve_options *options, struct cay_error *err)
{
    struct target target;
    AUTO_BUF text = {.max = 4 << 20};
    size_t count = 0;

    for (char *const *node = options->nodes; node && *node; node++, count++)
        TRY(parse(*node, options->agent_port, &target, err));
    if (!count || count > NODES_MAX)
        return fail_node("--haproxy", err);
    if (options->tls_cert && strpbrk(options->tls_cert, " \t\n'\"\\#"))
        return cay_fail(err, CAY_E_INVALID, 0, op, "--tls-cert",
                        "HAProxy cannot read this name", "use a path without spaces");
    put_head(options, &text);
    put_routes(&text);
    put_backends(options, &text);
    if (text.failed)
        return cay_fail_memory(err, op);
    (void)fwrite(text.data, 1, text.len, stdout);
    return commands_finish_output(err);
}
