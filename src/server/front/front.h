/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FRONT_H
#define SERVER_FRONT_FRONT_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "server/wire/channel.h"
#include "server/wire/warn.h"
#include "json/json.h"

/* The half that speaks HTTP: one thread, one loop, no rights.  It has the listening
 * socket, a socket to the broker, perhaps a log, and can open nothing else. */

struct exchange;

/* What is done with one kind of request. */
struct handler {
    const char *method;
    /* "/sandboxes/{id}/timeout": a braced part is any one name, kept as `part`. */
    const char *path;
    size_t body_max; /* 0: none is needed, and a little of it is not looked at */
    /* The body as it comes, if it is not to be collected: false if it was enough. */
    bool (*begin)(struct exchange *exchange);
    bool (*feed)(struct exchange *exchange, const char *data, size_t len);
    /* All of the request is here. */
    void (*act)(struct exchange *exchange);
    /* An answer to what was asked; called until the reply was made. */
    void (*on_reply)(struct exchange *exchange, struct reply_packet *reply);
    unsigned flags; /* the handler's own */
    /* It changes nothing, though its method is not GET: a lost request is tried again. */
    bool is_read;
    const char *missing_feature; /* the feature that a route would need: e2b-missing.c */
};

enum plane {
    PLANE_CONTROL = 1, /* no sandbox is named */
    PLANE_ENVD = 2,    /* a sandbox's own service, port 49983 */
    PLANE_PORT = 3     /* what listens inside */
};

enum { ENVD_PORT = 49983, PART_MAX = 128 };

/* The largest bodies of JSON: a call that names a process, a request for a sandbox, and a
 * command with its arguments, or input.  All of it is read before the credentials are
 * checked. */
enum { BODY_SMALL = 64 << 10, BODY_CONTROL = 1 << 20, BODY_COMMAND = 8 << 20 };

struct route {
    enum plane plane;
    char sandbox[SANDBOX_ID_MAX];
    uint16_t port;
    char part[PART_MAX]; /* what stands for {id} in the path */
};

/* A descriptor that an exchange waits for, many times a second: in a set of our own,
 * since a uv_poll_t takes seven system calls from its start to its end, and this one or
 * two. */
struct wake {
    struct exchange *exchange;
    void (*ready)(struct exchange *exchange, unsigned events);
};

/* One request and its reply. */
struct exchange {
    struct exchange *next, **link; /* of all */
    struct front *front;
    struct MHD_Connection *connection;
    const struct handler *handler;
    const char *method, *url;
    char *target; /* of the request line, as it came */
    struct route route;
    int socket; /* of the client */
    uint64_t began_ms, body_ms;
    uint64_t body_bytes, body_seen; /* now, and when it was looked at last */
    size_t body_left; /* of a piece: what handler->feed() wants to see again */
    struct buf body;
    size_t body_charged;      /* of the body, in whatever place: exchange_charge_body() */
    size_t charged;           /* of the rest of it: exchange_charge_client() */
    uint64_t charged_to;      /* whom */
    bool has_begun, is_again; /* a first call that was suspended is made again */
    bool has_body, is_suspended, is_stream, is_queued;
    bool is_last;        /* of its connection */
    bool is_refused;     /* its reply was sent though the body goes on */
    size_t unread;       /* of the body since then */
    unsigned references; /* MHD's request, and its response if it is a stream */

    int channel;
    struct wake reply_wake; /* of the channel */
    unsigned losses;  /* how often it was closed without one; it is being asked why */
    unsigned retries; /* of the whole request, after losses */

    struct MHD_Response *response; /* to be queued */
    unsigned status;

    /* Streams */
    struct buf out;
    size_t out_at;
    bool is_over, is_cut; /* no more comes; and it is to be seen that it was cut */
    uint64_t heard_ms, keepalive_ms, deadline_ms; /* deadline: 0 for none */
    void (*keepalive)(struct exchange *exchange);
    struct wake client; /* tells when the client has left */
    bool has_client;    /* it is waited for */

    void *state; /* the handler's */
    void (*state_done)(struct exchange *exchange);
};

struct front_options {
    int listener, broker, log; /* log: -1 for none */
    const char *domain, *host; /* names that this server has, with or without a port */
    char *tls_cert, *tls_key;  /* their content, or NULL */
    const char *version;
    _Atomic uint64_t *beats; /* counts up as long as it serves; NULL: nothing looks */
};

/* Why a request had no reply from the broker or a keeper. */
enum loss {
    LOSS_CLOSED = 0,    /* the channel was closed before the last packet */
    LOSS_MALFORMED = 1, /* a packet that is invalid */
    LOSS_ERROR = 2,     /* the channel could not be read */
    LOSS_KINDS = 3
};

struct front {
    const struct front_options *options;
    struct MHD_Daemon *daemon;
    uv_loop_t loop;
    int wakes; /* an epoll set of struct wake, by edges */
    uv_poll_t daemon_poll, broker_poll, wakes_poll, listener_poll;
    uv_timer_t daemon_timer, sweep_timer;
    uv_prepare_t before_waiting;
    bool is_draining; /* no new requests; the process ends with the last exchange */
    bool has_resumed; /* connections that the daemon does not hear of by itself */
    struct exchange *exchanges;
    struct visit *visits;
    uint64_t requests, streams, status[6];
    uint64_t connections, refused;
    uint64_t lost[LOSS_KINDS], retried;
    struct warn loss_warn;
    /* accept.c */
    unsigned connections_max, stalled;
    bool is_listening, was_full;
    int shortage; /* errno of the last accept4(); 0: it succeeded */
    uint64_t accepted, accepted_before;
    struct warn accept_warn;
    size_t body_charged; /* of all exchanges */
    struct buf log;      /* lines that are still to be written */
    struct reply_packet reply;
};

/* All that it needs before it is confined; its loop is to be run then. */
bool front_open(struct front *front, const struct front_options *options);

/* Serves until the broker is gone; then, or if it cannot begin, ends the process. */
_Noreturn void front_run(const struct front_options *options);

/* --- Connections (accept.c) --- */

/* How many fit the limit of open files. */
unsigned accept_limit(void);
bool accept_open(struct front *front);
/* A connection was closed. */
void accept_resume(struct front *front);
bool accept_is_full(const struct front *front);
/* Whether clients wait to be accepted. */
bool accept_has_waiting(const struct front *front);
/* Once a second.  False if connections are not accepted any more. */
bool accept_sweep(struct front *front);

/* --- What handlers use (exchange.c) --- */

const char *exchange_header(const struct exchange *exchange, const char *name);
/* That of a header, if it is one. */
int64_t exchange_number(const struct exchange *exchange, const char *name,
                        int64_t unless_given);
const char *exchange_query(const struct exchange *exchange, const char *name);

/* Whether so much of its body may be held in memory until all of it is there, or is
 * passed on: it is not yet known whose it is, and there is an end to what all hold
 * together. */
bool exchange_charge_body(struct exchange *exchange, size_t len);

/* Whether so much may be kept for it, of what it asks or of a reply that is put together
 * or waits to be read: all of one client, that is who shows the same token or key, have
 * CLIENT_CHARGE_MAX, and there is an end to what all clients have together. */
enum { CLIENT_CHARGE_MAX = 128 << 20 };
bool exchange_charge_client(struct exchange *exchange, size_t len);

/* Starts an ask about the request's sandbox with its credentials. */
void exchange_init_request(const struct exchange *exchange, enum op op,
                           struct request *ret_request);
/* Sends it; its answers go to handler->on_reply(). */
void exchange_send(struct exchange *exchange, struct request *request,
                   const struct buf *strings);
/* The same for a stream, which is not refused: 0, or a negative errno. */
int exchange_try_send(struct exchange *exchange, struct request *request,
                      const struct buf *strings);

/* All answers that are of interest have come, though there is no reply yet. */
void exchange_close_channel(struct exchange *exchange);

/* Its channel has ended: with reply_receive()'s result, and the reply of the sandbox that
 * is asked about then (exchange-loss.c). */
void exchange_on_loss(struct exchange *exchange, int got);
void exchange_on_loss_reply(struct exchange *exchange, const struct reply_packet *reply);
void exchange_end_lost_stream(struct exchange *exchange,
                              const struct reply_packet *reply);

/* Whether its request changes nothing, and can be made again if its reply is lost. */
bool exchange_is_read(const struct exchange *exchange);

/* The channel, which is the caller's then and not waited for. */
int exchange_take_channel(struct exchange *exchange);
/* Waits for more answers on a channel that was taken.  Takes it over. */
void exchange_await_reply(struct exchange *exchange, int channel);

/* The reply: the request goes on when this returns.  Takes the response. */
void exchange_respond(struct exchange *exchange, unsigned status,
                      struct MHD_Response *response);
void exchange_respond_json(struct exchange *exchange, unsigned status, struct buf *text);
void exchange_respond_text(struct exchange *exchange, unsigned status, const char *type,
                           struct buf *text);
void exchange_respond_empty(struct exchange *exchange, unsigned status);

/* {"code": status, "message": ...}, of the control plane and of proxies; a page for a
 * browser that looks at a port. */
void exchange_refuse(struct exchange *exchange, unsigned status, const char *message);
void exchange_refuse_and_close(struct exchange *exchange, unsigned status,
                               const char *message);
/* The same while the body comes, when libmicrohttpd takes no reply.  False if it cannot
 * be sent; then there is nothing left but to close. */
bool exchange_refuse_now(struct exchange *exchange, unsigned status, const char *message);
/* What the broker or a keeper refused. */
void exchange_refuse_with(struct exchange *exchange, const struct reply_packet *reply);

/* From here on what is put into exchange->out is sent as it comes, and
 * handler->on_reply() puts it there. */
void exchange_stream(struct exchange *exchange, const char *content_type,
                     uint64_t keepalive_ms, void (*keepalive)(struct exchange *exchange));
/* All of a stream is in exchange->out; `cut`: the client is to see that it broke off. */
void exchange_end(struct exchange *exchange, bool cut);

/* Something happened elsewhere that lets a suspended exchange go on. */
void exchange_resume(struct exchange *exchange);
void exchange_suspend(struct exchange *exchange);

/* From here on it is noticed when the client leaves: a reply that has begun is cut then,
 * and what has none is dropped. */
void exchange_watch_client(struct exchange *exchange);

void exchange_free(struct exchange *exchange);
void exchange_forget_client(struct exchange *exchange);
/* Some of front->wakes are ready. */
void exchange_on_wakes(uv_poll_t *poll, int status, int events);
void exchange_stop_watching(uv_poll_t **watch);
uv_poll_t *exchange_watch(struct exchange *exchange, int fd, int events,
                          uv_poll_cb ready);

/* --- Routing (route.c) --- */

/* What is wrong with how the request is framed, or NULL; with the status to refuse it. */
const char *route_check(struct exchange *exchange, unsigned *ret_status);

enum host_kind {
    HOST_FOREIGN,   /* nobody here has that name */
    HOST_MALFORMED, /* it is below ours, but is no sandbox's */
    HOST_SERVER,
    HOST_SANDBOX /* then the route has its id and port */
};

/* What a Host names, where ours is `domain`, perhaps with a port. */
enum host_kind route_host(const char *text, const char *domain, struct route *route);

/* Which sandbox is meant, if one is. */
const char *route_find(struct exchange *exchange, unsigned *ret_status);

/* Whether a path, as it stands in the request line, is of the pattern; then `part` is the
 * last of its names, decoded.  An encoded slash is part of a name. */
bool route_matches(const char *pattern, const char *path, char part[PART_MAX]);

/* --- Connect (connect.c) --- */

/* The HTTP status and the name for a failure. */
const char *connect_code(const struct reply_packet *reply, unsigned *ret_status);
void connect_refuse_with(struct exchange *exchange, const struct reply_packet *reply);
void connect_refuse(struct exchange *exchange, unsigned status, const char *code,
                    const char *message);

/* A reply has grown.  False if it is too large, or too much waits to be read: then it is
 * dropped, and the request refused. */
bool connect_charge(struct exchange *exchange, struct buf *text);

/* One envelope around what `write` puts. */
size_t connect_open(struct buf *out);
void connect_close(struct buf *out, size_t begin);
/* The first answer begins it; false if that refuses the request instead. */
bool connect_begin_stream(struct exchange *exchange, const struct reply_packet *reply,
                          void (*keepalive)(struct exchange *exchange));
void connect_end_stream(struct exchange *exchange, const struct reply_packet *failure);
void connect_end_late(struct exchange *exchange);
/* The sandbox is gone. */
void connect_end_gone(struct exchange *exchange, const char *message);
void connect_end_drained(struct exchange *exchange);

/* All of a stream's reply at once: an empty message, or with a code nothing but that it
 * failed, since streams always begin with success. */
void connect_respond_stream(struct exchange *exchange, const char *code,
                            const char *message);

/* The stream is to end when the client says that it will not wait any more. */
void connect_set_deadline(struct exchange *exchange);

/* The user whom Basic authorization names; "" for none.  False if it is none. */
bool connect_user(const struct exchange *exchange, char ret_user[USER_MAX]);

/* The body of a unary call, or of a stream's only message; NULL if it is none. */
struct json_t;
struct json_t *connect_parse(const char *text, size_t len);
struct json_t *connect_body(struct exchange *exchange, bool is_stream);

/* As base64_encode_raw() of nettle, in less than half the time: writes
 * BASE64_ENCODE_RAW_LENGTH(len) characters. */
void connect_base64(char *to, const void *from, size_t len);

/* --- Resources --- */

extern const struct handler sandbox_handlers[], missing_handlers[], process_handlers[],
    filesystem_handlers[], file_handlers[], envd_handlers[];
extern const struct handler port_handler;

/* --- Confinement (confine.c) --- */

/* From here on this process can open nothing and reach nobody new. */
int confine(struct cay_error *err);

#endif
