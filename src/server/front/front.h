/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FRONT_H
#define SERVER_FRONT_FRONT_H

#include <jansson.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "server/wire/channel.h"
#include "server/wire/warn.h"
#include "json/json.h"

/* The front: the process that speaks HTTP, with one thread, one loop and no rights.  It
 * has the listening socket, a socket to the broker and possibly a log, and cannot open
 * anything. */

struct exchange;
struct fields;
struct mcp_session;

/* Histograms of times, for GET /metrics (metrics.c): until the head of the response. */
enum front_kind {
    FRONT_OTHER = 0,
    FRONT_CREATE,
    FRONT_EXEC,
    FRONT_FILE,
    FRONT_PORT,
    FRONT_KINDS
};
enum { FRONT_BOUNDS = 13 };
struct front_times {
    uint64_t counts[FRONT_BOUNDS + 1]; /* of each bucket alone */
    uint64_t sum_us;
};
enum front_kind front_kind_of(const struct exchange *exchange);
void front_observe(struct front_times *times, uint64_t took_us);

/* A route. */
struct handler {
    const char *method;
    /* "/sandboxes/{id}/timeout": a name in braces matches any one name, stored as `part`.
     */
    const char *path;
    size_t body_max; /* 0: no body is needed; a small one is ignored */
    /* For a body that is not collected: begin() at the headers, feed() for each piece.
     * They return false to stop. */
    bool (*begin)(struct exchange *exchange);
    bool (*feed)(struct exchange *exchange, const char *data, size_t len);
    /* The request is complete. */
    void (*act)(struct exchange *exchange);
    enum op op;           /* the request that act() sends */
    enum front_kind kind; /* whose time is measured; 0: by the operation */
    /* Fills it from the fields of a JSON body. */
    bool (*fill)(struct fields *fields, struct request *request, struct buf *strings);
    /* A reply that is an error; NULL: on_reply() handles it. */
    void (*on_error)(struct exchange *exchange, const struct reply_packet *reply);
    /* A reply from the broker or keeper; called until there is a response. */
    void (*on_reply)(struct exchange *exchange, struct reply_packet *reply);
    /* Of a stream that is not made of replies: appends to exchange->out, or ends it.
     * False if there is nothing to read: exchange_wait_for() then resumes it. */
    bool (*pull)(struct exchange *exchange);
    /* Called every second while there is no response, or NULL. */
    void (*overdue)(struct exchange *exchange);
    unsigned flags; /* for the handler */
    /* Changes nothing although the method is not GET: repeated if the reply is lost. */
    bool is_read;
    /* Of connect_call(): the body is an envelope, the response a stream. */
    bool is_stream;
    bool ignores_session;        /* the cookie is no credential for it */
    const char *missing_feature; /* name of the unsupported feature: missing.c */
};

enum plane {
    PLANE_CONTROL = 1, /* no sandbox in the host name */
    PLANE_ENVD = 2,    /* the envd of a sandbox, port 49983 */
    PLANE_PORT = 3,    /* another port of a sandbox */
    PLANE_CODE = 4     /* the code interpreter of a sandbox, port 49999 */
};

enum { ENVD_PORT = 49983, CODE_PORT = 49999, PART_MAX = 256 };

/* Limits of JSON bodies: calls that name a process, requests about sandboxes, and
 * commands or input.  Bodies are read before the credentials are checked. */
enum { BODY_SMALL = 64 << 10, BODY_CONTROL = 1 << 20, BODY_COMMAND = 8 << 20 };

struct route {
    enum plane plane;
    char sandbox[SANDBOX_ID_MAX];
    uint16_t port;
    char part[PART_MAX]; /* the value of {id} in the path */
};

/* A descriptor that an exchange often waits for, in an epoll set of the front: a
 * uv_poll_t needs seven system calls from start to close, this one or two. */
struct wake {
    struct exchange *exchange;
    void (*ready)(struct exchange *exchange, unsigned events);
};

enum { REASON_ROOM = 160 };

/* An HTTP request and its response. */
struct exchange {
    struct exchange *next, **link; /* list of all exchanges */
    struct front *front;
    struct MHD_Connection *connection;
    const struct handler *handler;
    const char *method, *url;
    char *target; /* of the request line, undecoded */
    struct route route;
    int socket;  /* of the client */
    uint64_t id; /* of this request, for clients and logs */
    char tenant[TENANT_MAX], reason[REASON_ROOM]; /* for the log */
    char session[CREDENTIAL_MAX]; /* of the cookie, if that is the credential; or "" */
    uint64_t sent; /* bytes of the response's body, as far as they were read */
    uint64_t began_ns, began_ms, body_ms;
    uint64_t body_bytes, body_seen; /* received, and at the previous check */
    size_t body_left;               /* bytes of a piece that feed() wants to see again */
    struct buf body;
    size_t body_charged;      /* body in memory: exchange_charge_body() */
    size_t charged;           /* other memory: exchange_charge_client() */
    uint64_t charged_to;      /* hash of the client's credential */
    bool has_begun, is_again; /* libmicrohttpd repeats a first call that was suspended */
    bool has_body, is_suspended, is_stream, is_queued;
    bool is_last;        /* last request of its connection */
    bool is_own_host;    /* the host name is that of the server */
    bool has_csrf;       /* the header of its session is right */
    bool is_refused;     /* the response was sent although the body continues */
    size_t unread;       /* bytes of the body since then */
    unsigned references; /* MHD's request, and the response of a stream */

    int channel;
    struct wake reply_wake; /* for the channel */
    unsigned losses;  /* closed channels without a reply; checks the sandbox if > 0 */
    unsigned retries; /* of the whole request, after losses */

    struct MHD_Response *response; /* not queued yet */
    unsigned status;

    struct buf out;   /* of a stream, or of a JSON response while it is written */
    struct json json; /* exchange_json() */

    /* Streams */
    size_t out_at;
    bool is_over, is_cut; /* the stream has ended; it is aborted, not closed normally */
    bool has_more;        /* pull() returned false, but has more to read */
    uint64_t heard_ms, keepalive_ms, deadline_ms; /* deadline: 0 for none */
    void (*keepalive)(struct exchange *exchange);
    struct wake client; /* detects that the client disconnected */
    bool has_client;    /* the wake is active */

    void *state; /* of the handler */
    void (*state_done)(struct exchange *exchange);
};

struct front_options {
    int listener, broker, log; /* log: -1: none */
    const char *domain;        /* host name of this server, with or without port */
    const char *ui;            /* folder with the files of the dashboard */
    bool has_ui;               /* otherwise /ui is 404 */
    char *tls_cert, *tls_key;  /* PEM text, or NULL */
    bool log_is_text;
    uint64_t mcp_idle_ms;    /* after which an MCP session ends; 0: there are none */
    _Atomic uint64_t *beats; /* counter that shows progress; NULL: none */
};

/* Why a request had no reply from the broker or a keeper. */
enum loss {
    LOSS_CLOSED = 0,    /* the channel was closed before the last packet */
    LOSS_MALFORMED = 1, /* an invalid packet */
    LOSS_ERROR = 2,     /* the channel could not be read */
    LOSS_KINDS = 3
};

struct front {
    const struct front_options *options;
    struct MHD_Daemon *daemon;
    uv_loop_t loop;
    int wakes; /* edge-triggered epoll set of struct wake */
    uv_poll_t daemon_poll, broker_poll, wakes_poll, listener_poll;
    uv_timer_t daemon_timer, sweep_timer;
    uv_prepare_t before_waiting;
    bool is_draining; /* refuse new requests, and exit after the last exchange */
    bool has_resumed; /* the daemon must run for resumed connections */
    struct exchange *exchanges;
    struct mcp_session *mcp;
    struct front_ui *ui; /* NULL: --no-ui */
    struct visit *visits;
    uint64_t requests, streams, status[6];
    struct front_times times[FRONT_KINDS];
    uint64_t first_id; /* random; the others follow it */
    uint64_t connections, refused;
    uint64_t lost[LOSS_KINDS], retried;
    struct warn loss_warn;
    unsigned connections_max, stalled;
    bool is_listening, was_full;
    int shortage; /* errno of the last accept4(); 0: success */
    uint64_t accepted, accepted_before;
    struct warn accept_warn;
    size_t body_charged; /* sum over all exchanges */
    struct buf log;      /* lines that are not written yet */
    struct reply_packet reply;
};

/* Sets up everything that confinement would deny; run the loop afterwards. */
bool front_open(struct front *front, const struct front_options *options);

/* Serves until the broker exits, or exits if it cannot start. */
_Noreturn void front_run(const struct front_options *options);

/* Maximum number of connections for the limit of open files. */
unsigned front_connections_limit(void);
/* Called once a second.  False if the front is stalled. */
bool front_accept_sweep(struct front *front);

/* The version of envd whose protocol this server speaks. */
#define FRONT_ENVD_VERSION "0.6.13"

/* --- For handlers (exchange.c) --- */

const char *exchange_header(const struct exchange *exchange, const char *name);

/* Whether the client reaches the server by TLS, possibly of a proxy. */
bool exchange_is_secure(const struct exchange *exchange);
/* The number in a header, if it is valid. */
int64_t exchange_number(const struct exchange *exchange, const char *name,
                        int64_t unless_given);
const char *exchange_query(const struct exchange *exchange, const char *name);

/* Charges `len` bytes of the request's body in memory.  False if all bodies together
 * exceed their limit; the client is not authenticated yet. */
bool exchange_charge_body(struct exchange *exchange, size_t len);

/* Charges `len` bytes for strings of the request, or for a response that is being written
 * or read.  False if the requests with the same credential exceed CLIENT_CHARGE_MAX, or
 * all of them their limit. */
enum { CLIENT_CHARGE_MAX = 128 << 20 };
bool exchange_charge_client(struct exchange *exchange, size_t len);

/* Initializes a request about the sandbox of the exchange, with its credentials. */
void exchange_init_request(const struct exchange *exchange, enum op op,
                           struct request *ret_request);
/* Sends it; replies go to handler->on_reply().  0 or a negative errno: EAGAIN if the
 * broker has too many requests. */
int exchange_try_send(struct exchange *exchange, struct request *request,
                      const struct buf *strings);
/* Refuses the exchange on failure. */
void exchange_send(struct exchange *exchange, struct request *request,
                   const struct buf *strings);
/* Sends handler->op without strings. */
void exchange_send_plain(struct exchange *exchange);

/* No more replies are needed. */
void exchange_close_channel(struct exchange *exchange);

/* Whether the request changes nothing, and can be repeated if its reply is lost. */
bool exchange_is_read(const struct exchange *exchange);

/* Hands the channel over to the caller. */
int exchange_take_channel(struct exchange *exchange);
/* Takes the channel back, and waits for another reply. */
void exchange_await_reply(struct exchange *exchange, int channel);

/* Sets the response, which is taken over, and resumes the connection. */
void exchange_respond(struct exchange *exchange, unsigned status,
                      struct MHD_Response *response);
/* Begins a JSON response of at most `max` bytes in exchange->out; it may be written reply
 * by reply.  exchange_end_json() ends the outermost object or array, and responds. */
struct json *exchange_json(struct exchange *exchange, size_t max);
void exchange_end_json(struct exchange *exchange, unsigned status);
void exchange_respond_text(struct exchange *exchange, unsigned status, const char *type,
                           struct buf *text);
void exchange_respond_empty(struct exchange *exchange, unsigned status);
void exchange_on_done(struct exchange *exchange, struct reply_packet *reply); /* 204 */

/* {"code": status, "message": ...}, or an HTML page for a browser that opens a port. */
void exchange_refuse(struct exchange *exchange, unsigned status, const char *message);
void exchange_refuse_and_close(struct exchange *exchange, unsigned status,
                               const char *message);
/* The same while the body arrives, when libmicrohttpd accepts no response.  False if it
 * cannot be sent; then close the connection. */
bool exchange_refuse_now(struct exchange *exchange, unsigned status, const char *message);
/* Refuses with the error of a reply. */
void exchange_refuse_with(struct exchange *exchange, const struct reply_packet *reply);

/* Starts a stream: data that handler->on_reply() appends to exchange->out is sent at
 * once. */
void exchange_stream(struct exchange *exchange, const char *content_type,
                     uint64_t keepalive_ms, void (*keepalive)(struct exchange *exchange));
/* Ends a stream; `cut`: the client sees that it was aborted. */
void exchange_end(struct exchange *exchange, bool cut);

/* For a state that is one allocation. */
void exchange_free_state(struct exchange *exchange);

/* For suspended exchanges. */
void exchange_resume(struct exchange *exchange);
void exchange_suspend(struct exchange *exchange);

/* Calls `ready` for an edge of these events, until exchange_stop_waiting().  Closing a
 * descriptor is not enough if another process had it before. */
bool exchange_wait_for(struct exchange *exchange, int fd, unsigned events,
                       struct wake *wake,
                       void (*ready)(struct exchange *exchange, unsigned events));

void exchange_stop_waiting(const struct exchange *exchange, int fd);

/* Detects that the client disconnects: a response that has begun is aborted, a request
 * without one is dropped. */
void exchange_watch_client(struct exchange *exchange);

void exchange_free(void *cls); /* an exchange */
void exchange_forget_client(struct exchange *exchange);
/* Handles front->wakes. */
void exchange_on_wakes(uv_poll_t *poll, int status, int events);

/* --- Routing (route.c) --- */

/* The error of an invalid request head, with its status, or NULL. */
const char *route_check(struct exchange *exchange, unsigned *ret_status);

enum host_kind {
    HOST_FOREIGN,   /* not a name of this server */
    HOST_MALFORMED, /* below the domain, but not PORT-ID */
    HOST_SERVER,
    HOST_SANDBOX /* route has its id and port */
};

/* Parses a Host header; `domain` is the name of this server, possibly with a port. */
enum host_kind route_host(const char *text, const char *domain, struct route *route);

/* Determines the plane, and the sandbox if there is one. */
const char *route_find(struct exchange *exchange, unsigned *ret_status);

/* A name in an HTTP header. */
bool route_is_token(const char *text, size_t len);

/* Whether an undecoded path matches the pattern; `part` is its last variable name,
 * decoded.  An encoded slash belongs to a name. */
bool route_matches(const char *pattern, const char *path, char part[PART_MAX]);
/* The first variable name of a path that matches, decoded. */
bool route_first(const char *pattern, const char *path, char ret_part[PART_MAX]);

/* --- Connect (connect.c) --- */

/* The HTTP status and Connect code of an error. */
const char *connect_code(const struct reply_packet *reply, unsigned *ret_status);
void connect_refuse_with(struct exchange *exchange, const struct reply_packet *reply);

/* Charges a response that has grown.  False if it is too large, or if too many responses
 * are unread: the request is refused. */
bool connect_charge(struct exchange *exchange);

/* Begin and end of an envelope. */
size_t connect_open(struct buf *out);
void connect_close(struct buf *out, size_t begin);
/* Begins a stream with the first reply; false if that refuses the request instead. */
bool connect_begin_stream(struct exchange *exchange, const struct reply_packet *reply,
                          void (*keepalive)(struct exchange *exchange));
/* Begins one before the first reply, with a header more; `keepalive` may be NULL. */
void connect_begin_waiting(struct exchange *exchange, const char *header,
                           const char *value,
                           void (*keepalive)(struct exchange *exchange));
void connect_end_stream(struct exchange *exchange, const struct reply_packet *failure);
void connect_end_with(struct exchange *exchange, const char *code, const char *message);

/* The whole response of a stream: an empty message, or only an error with `code`. Streams
 * always have the HTTP status 200. */
void connect_respond_stream(struct exchange *exchange, const char *code,
                            const char *message);

/* Sends handler->op with what handler->fill() adds to the request, which has one string
 * unless fill() sets another count.  Refuses an invalid body or user. */
void connect_call(struct exchange *exchange);

/* "2026-01-31T12:00:00.500Z", with this many digits of the second's fraction. */
void connect_put_time(struct json *json, const char *key, int64_t seconds,
                      int64_t fraction, int digits);

/* Metadata as an object; `at` is its first key. */
void connect_put_pairs(struct json *json, const struct reply_packet *reply,
                       const char *at);

/* The user from Basic authorization; "": none.  False if it is invalid. */
bool connect_user(const struct exchange *exchange, char ret_user[USER_MAX]);

/* The body of a unary call, or the only message of a stream; NULL if invalid. */
json_t *connect_parse(const char *text, size_t len);
json_t *connect_body(struct exchange *exchange, bool is_stream);

/* As base64_encode_raw() of nettle, in less than half the time: writes
 * BASE64_ENCODE_RAW_LENGTH(len) characters. */
void connect_base64(char *to, const void *from, size_t len);

/* --- Bodies (connect.c) --- */

/* Fields of a JSON object, named in camelCase; snake_case is accepted as well.  A field
 * that is null is treated as missing; one of the wrong type is an error. */

struct fields {
    const json_t *object;
    struct fields *top; /* the outermost object; NULL: this one */
    const char *wrong;  /* in the outermost object: the first invalid field */
};

/* Marks a field as invalid; always false. */
bool field_reject(struct fields *fields, const char *name);

/* The error message for the first invalid field. */
enum { FIELDS_ERROR_MAX = 128 };
const char *fields_error(const struct fields *fields, char ret_text[FIELDS_ERROR_MAX]);

json_t *field_get(struct fields *fields, const char *name);
const char *field_text(struct fields *fields, const char *name); /* NULL: missing */
bool field_bool(struct fields *fields, const char *name, bool unless_given);

/* An integer, or text that is one, within the limits; otherwise the field is invalid. */
int64_t field_int(struct fields *fields, const char *name, int64_t least, int64_t most,
                  int64_t unless_given);

/* The object with this name, or an empty one. */
struct fields field_object(struct fields *fields, const char *name);

/* Adds the strings of an array, or the pairs of an object as "key", "value" (`joined`: as
 * "key=value"), and returns their number. */
int64_t field_add_array(struct fields *fields, const char *name, struct buf *strings);
int64_t field_add_pairs(struct fields *fields, const char *name, bool joined,
                        struct buf *strings);

/* --- The network of a sandbox (network.c) --- */

struct front_egress {
    struct buf rules; /* strings for the keeper: rules of Cay */
    int64_t count;
    struct buf headers;   /* the same: host, name and value of each */
    int64_t header_count; /* strings */
    struct buf shown;     /* the fields as JSON, for RECORD_EGRESS */
    unsigned status;      /* of an error */
};
void front_egress_init(struct front_egress *egress);
void front_egress_done(struct front_egress *egress);

/* allowOut, denyOut and rules of an object: the message of an error, or NULL.  Fields of
 * a wrong type are in `fields`. */
const char *front_take_egress(struct fields *fields, bool has_internet,
                              struct front_egress *ret_egress);

/* maskRequestHost: the message of an error, or NULL; *ret_mask NULL: none. */
const char *front_take_mask(struct fields *network, const char **ret_mask);
void front_put_mask(const char *mask, unsigned port, struct buf *to);

/* The key "network". */
void front_put_network(struct json *json, const char *egress, const char *mask,
                       bool is_public);

/* --- Volumes (volumes.c) --- */

/* volumeMounts of a new sandbox: name and path of each, and the text of RECORD_VOLUMES;
 * the number of strings. */
int64_t front_take_volumes(struct fields *fields, struct buf *strings, struct buf *shown);

/* The same from the text of RECORD_VOLUMES, which may be NULL. */
int64_t front_add_volumes(const char *shown, struct buf *strings);

/* The key "volumeMounts"; `shown` may be NULL. */
void front_put_volumes(struct json *json, const char *shown);

/* --- Approvals (approvals.c) --- */

/* "approvals" of a new sandbox: adds the text of RECORD_APPROVE if anything waits.  True:
 * connections do, too. */
bool front_take_approvals(struct fields *fields, struct buf *text);

/* The key "approvals" from that text. */
void front_put_approvals(struct json *json, const char *text, bool egress);

/* PUT /sandboxes/{id}/network */
void front_change_network(struct exchange *exchange);

/* --- Sandboxes (sandboxes.c) --- */

/* The body as JSON, which is optional.  Refuses an invalid one, and returns NULL. */
json_t *front_take_body(struct exchange *exchange);

/* Charges a response that has grown.  False if the request was refused instead. */
bool front_charge_page(struct exchange *exchange);

/* Begins the object of a REPLY_SANDBOX, as of a create. */
void front_put_sandbox(struct json *json, const struct reply_packet *reply);

/* The value of a key of a REPLY_SANDBOX that clients do not see, or NULL. */
const char *front_find_hidden(const struct reply_packet *reply, const char *key);

/* --- Query parameters (sandboxes.c) --- */

/* "running,paused": LIST_RUNNING and LIST_PAUSED; NULL and "": both.  0 if invalid. */
uint32_t front_parse_states(const char *text);

/* "1699999999999-abc": the end of the previous page.  NULL and "": the first page. */
bool front_parse_page(const char *text, int64_t *ret_ms, char ret_id[SANDBOX_ID_MAX]);

/* "2026-01-31T12:00:00.5+01:00": milliseconds since 1970. */
bool front_parse_time(const char *text, int64_t *ret_ms);

/* Parses digits; false if the number is out of range. */
bool front_parse_number(const char *text, int64_t least, int64_t most,
                        int64_t *ret_number);

/* "key=value&...", each part escaped twice: adds the pairs and returns their number.
 * NULL: none. */
int64_t front_parse_metadata(const char *text, struct buf *strings);

/* --- Files (files.c, upload.c) --- */

/* Authenticates by token, or else by signature.  False if the request was refused. */
bool front_file_init_request(struct exchange *exchange, enum op op,
                             struct request *request);

const char *front_file_base_name(const char *path);

void front_file_on_download(struct exchange *exchange, struct reply_packet *reply);

bool front_file_upload_begin(struct exchange *exchange);
bool front_file_upload_feed(struct exchange *exchange, const char *data, size_t len);
void front_file_upload_finish(struct exchange *exchange);
void front_file_on_upload(struct exchange *exchange, struct reply_packet *reply);

/* --- Files of volumes (content.c) --- */

/* Initializes a request about the path of the query.  False if it was refused. */
bool front_content_init(struct exchange *exchange, enum op op, struct request *request,
                        struct buf *strings);

/* The entry, or an error. */
void front_content_respond(struct exchange *exchange, const struct reply_packet *reply);

/* --- MCP (mcp-session.c) --- */

/* Ends sessions that were idle.  Called every second. */
void front_mcp_sweep(struct front *front);
/* Ends those without an open request. */
void front_mcp_drain(struct front *front);

/* --- The dashboard (ui.c) --- */

/* Reads the files; false if memory is exhausted.  Without files /ui is 404. */
bool front_ui_open(struct front *front);

/* Adds the headers that keep content of others from running as a page of this origin. */
void front_ui_protect(const struct exchange *exchange, struct MHD_Response *response);

/* --- Sessions of browsers (session.c) --- */

/* Takes the session from the cookie if it is the credential of the request: the message
 * of a 403, or NULL. */
const char *front_session_take(struct exchange *exchange);

/* Appends the header Cookie for a program in a sandbox, without the session. */
void front_session_copy_cookies(const char *header, struct buf *to);

/* --- Resources --- */

extern const struct handler sandbox_handlers[], missing_handlers[], process_handlers[],
    filesystem_handlers[], file_handlers[], code_handlers[], secret_handlers[],
    volume_handlers[], content_handlers[], fork_handlers[], checkpoint_handlers[],
    snapshot_handlers[], template_handlers[], metrics_handlers[], usage_handlers[],
    log_handlers[], mcp_handlers[], ui_handlers[], session_handlers[],
    approval_handlers[], key_handlers[];
extern const struct handler port_handler;

/* --- Confinement (confine.c) --- */

/* Before front_open(): newer versions of libuv create an io_uring with the loop if they
 * can, and the filter of confine() does not allow its calls. */
int confine_deny_rings(struct cay_error *err);

/* From here on the process cannot open files or reach new peers. */
int confine(struct cay_error *err);

#endif
