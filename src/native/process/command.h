/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_COMMAND_H
#define NATIVE_PROCESS_COMMAND_H

#include "base/tail.h"
#include "native/process/wire.h"

/* A command as its caller sees it: the connection to init, and for a foreground command
 * the pipes or the terminal that connect it directly to the caller.  Output of a
 * background command comes from init, one packet at a time. */
enum {
    COMMAND_SOCKET = 1 << 2,
    COMMAND_PIECES =
        16 /* read at a time, so that one endless writer does not block the rest */
};

struct command {
    int socket;
    pid_t owner;    /* the process that connected it, not a child of fork(2) */
    const char *id; /* of the sandbox */
    int reply_ms;   /* how long init may take to reply */
    unsigned late;  /* replies that are not waited for any more */
    bool is_background, has_tty;
    bool started, ended, gone, killed;
    int input;        /* our end of stdin, or -1 */
    int streams[2];   /* our ends of its output, or -1 */
    int hung_up;      /* a terminal that no process inside has open, or -1 */
    int watch;        /* the epoll that watches the streams, or -1 */
    uint64_t left[2]; /* after its end: bytes that may still be read */
    unsigned turn;    /* the stream that is read next */
    unsigned idle;    /* bit i: stream i had no data; bit 2: the socket */
    unsigned unheard; /* pieces read since the last check for messages of init */
    const char *data; /* still to be written to stdin, which is then closed */
    size_t data_len;
    unsigned ends_left;    /* ^D still to be written to a terminal */
    struct packet *packet; /* buffer; background: unread output */
    bool has_output;
    size_t output_at;
    struct output_head output;
    struct exec_started begin;
    struct exec_end end;
    struct cay_error failure; /* of the start */
};

void command_init(struct command *command, int socket, const char *id, int reply_ms,
                  struct packet *packet);
void command_close(struct command *command); /* everything except the socket */

/* Opens stdin, stdout and stderr according to the options: our ends go into `command`,
 * the others and their flags into `exec`, whose descriptors the caller closes after
 * sending. `waits`: the caller feeds the input itself; otherwise all of it must fit at
 * once. */
int command_open_stdio(struct command *command, bool waits, struct wire_exec *exec,
                       struct cay_error *err);

/* Sends a request about this command to init and waits for the reply. */
int command_request(struct command *command, const char *op, enum message_kind kind,
                    const void *payload, size_t payload_len, enum message_kind want,
                    void *ret_reply, size_t len, struct cay_error *err);

/* Waits until the command has started or failed to start. */
int command_wait_start(struct command *command, const char *op, struct cay_error *err);

/* Requests the next output of a background command; command_take() does so after each
 * packet. */
void command_request_output(struct command *command);

/* Reads from one stream (1 or 2) without waiting; stream 0 if there is no data, -1 at the
 * end of all streams.  0 or a negative errno. */
int command_take(struct command *command, int *ret_stream, void *data, size_t room,
                 size_t *ret_len, uint64_t *ret_dropped);

/* Sets the rest of the input, after which stdin is closed. */
void command_set_input(struct command *command, const void *data, size_t len);

/* Writes as much of the input as fits. */
void command_feed(struct command *command);

void command_kill(struct command *command); /* without waiting */

/* The result without the output. */
int command_result(const struct command *command, const struct limit_events *events,
                   bool over_limit, struct cay_exec_result *ret_result,
                   struct cay_error *err);

/* command_mark() combines the kernel's counters into one number, which a command carries;
 * a counter that cannot be read keeps its value of `earlier`.  command_memory_kills() is
 * the difference of two marks. */
uint64_t command_mark(const struct limit_events *events, uint64_t earlier);
uint32_t command_memory_kills(uint64_t mark, uint64_t earlier);

/* Whether a command that ended like this was killed for the memory limit. */
bool command_is_oom(int status, uint32_t cause, bool killed, uint32_t memory_kills);

#endif
