/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_COMMAND_H
#define NATIVE_PROCESS_COMMAND_H

#include "base/tail.h"
#include "native/process/wire.h"

/* A command as its caller sees it: the connection on which init tells of it, and for a
 * foreground one the pipes or the terminal that run straight between the two.  A
 * background one's output comes from init, a packet at a time. */
enum {
    COMMAND_SOCKET = 1 << 2,
    COMMAND_PIECES =
        16 /* at a time: who writes without end is not all there is to look at */
};

struct command {
    int socket;
    pid_t owner;    /* who connected it, and no child of a fork */
    const char *id; /* of the sandbox */
    int reply_ms;   /* how long init may take to answer */
    unsigned late;  /* answers that nobody waits for any more */
    bool is_background, has_tty;
    bool started, ended, gone, killed;
    int input;        /* our end of its stdin, or -1 */
    int streams[2];   /* our ends of its output, or -1 */
    int hung_up;      /* a terminal that nobody has open inside, or -1 */
    int watch;        /* the epoll that watches the streams, or -1 */
    uint64_t left[2]; /* once it has ended: what may still be read of them */
    unsigned turn;    /* which one is read next */
    unsigned idle;    /* bit i: stream i was seen to have nothing; bit 2: the socket */
    unsigned unheard; /* pieces that were read since init was last listened to */
    const char *data; /* still to be written to its stdin, which then ends */
    size_t data_len;
    unsigned ends_left;    /* ^D still to be written, to a terminal */
    struct packet *packet; /* room for one; background: the output that is not read yet */
    bool has_output;
    size_t output_at;
    struct output_head output;
    struct exec_started begin;
    struct exec_end end;
    struct cay_error failure; /* of the start */
};

void command_init(struct command *command, int socket, const char *id, int reply_ms,
                  struct packet *packet);
void command_close(struct command *command); /* all but the socket */

/* stdin, stdout and stderr as the options want them: our ends into `run`, the others and
 * the flags that name them into `exec`, whose descriptors the caller closes once they are
 * sent.  `waits`: the caller will feed the input itself, as long as that takes; else it
 * goes in at once. */
int command_open_stdio(struct command *command, bool waits, struct wire_exec *exec,
                       struct cay_error *err);

/* Asks init about this command and waits for the answer. */
int command_request(struct command *command, const char *op, enum message_kind kind,
                    const void *payload, size_t payload_len, enum message_kind want,
                    void *ret_reply, size_t len, struct cay_error *err);

/* Waits until it has started, or its failure. */
int command_wait_start(struct command *command, const char *op, struct cay_error *err);

/* A background command's next output; command_take() does it after each packet. */
void command_request_output(struct command *command);

/* What there is of one stream (1 or 2), without waiting; stream 0 if there is nothing,
 * -1 if there will not be any more.  0 or a negative errno. */
int command_take(struct command *command, int *ret_stream, void *data, size_t room,
                 size_t *ret_len, uint64_t *ret_dropped);

/* From now on these bytes, and then the end, are its input. */
void command_set_input(struct command *command, const void *data, size_t len);

/* Writes what fits of that. */
void command_feed(struct command *command);

void command_kill(struct command *command); /* without waiting */

/* The result but for its output. */
int command_result(const struct command *command, const struct limit_events *events,
                   bool over_limit, struct cay_exec_result *ret_result,
                   struct cay_error *err);

/* What the kernel has counted until now, in one number, for a command to carry; as it was
 * in `earlier` where that cannot be read.  And how much of it came between two of them.
 */
uint64_t command_mark(const struct limit_events *events, uint64_t earlier);
uint32_t command_memory_kills(uint64_t mark, uint64_t earlier);

/* Whether one that ended so was killed for the memory limit. */
bool command_is_oom(int status, uint32_t cause, bool killed, uint32_t memory_kills);

#endif
