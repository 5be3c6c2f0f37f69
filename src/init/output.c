/* SPDX-License-Identifier: Apache-2.0 */

/* Nothing here blocks: pipes and terminals are non-blocking and read piece by piece, and
 * a peer gets one packet per READ.  A peer that does not READ is overtaken by the ring;
 * its next packet has the number of lost bytes.  For an EXEC_PIPED command the stream is
 * not read while the ring is full of unread bytes, so that the command blocks in
 * write(2). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "init/process.h"
#include "init/serve.h"
#include "sys/io.h"

enum { PIECE = MESSAGE_MAX - sizeof(struct output_head) };

static LARGE char piece[PIECE];

/* The output of ended commands is dropped before that of running ones. */
static bool make_room(struct ring *ring, size_t len)
{
    while (!ring_reserve(ring, len)) {
        struct process *oldest = NULL;
        for (struct process *process = process_first(); process; process = process->next)
            if (process->finished &&
                (process->outputs[0].ring.room || process->outputs[1].ring.room) &&
                (!oldest || process->finished_number < oldest->finished_number))
                oldest = process;
        if (!oldest)
            return false;
        ring_empty(&oldest->outputs[0].ring);
        ring_empty(&oldest->outputs[1].ring);
    }
    return true;
}

/* How many bytes can be read without a reader losing any. */
static size_t room_for_more(struct output *output)
{
    const struct process *process = output->process;
    size_t stream = (size_t)(output - process->outputs);
    uint64_t behind = 0;
    bool is_read = false;

    for (const struct peer *peer = process->peers; peer; peer = peer->next) {
        uint64_t at = peer->at[stream];
        if (at < output->ring.begin)
            at = output->ring.begin;
        if (peer->reads && output->ring.end - at > behind)
            behind = output->ring.end - at;
        is_read |= peer->reads;
    }
    if (!(process->flags & EXEC_PIPED) || !is_read ||
        (behind == 0 && ring_is_affordable(&output->ring, PIECE)))
        return PIECE;
    (void)make_room(&output->ring, PIECE);
    if (output->ring.room ==
        0) /* no memory for one page: drop bytes rather than block for ever */
        return PIECE;
    if (behind >= output->ring.room)
        return 0;
    uint64_t room = output->ring.room - behind;
    return room < PIECE ? (size_t)room : PIECE;
}

/* Reads at most `room` bytes into the ring: how many, 0 if none are ready, -1 at end of
 * file. */
static ssize_t fill(struct output *output, size_t room)
{
    ssize_t len = output->fd < 0 ? 0 : io_read_some(output->fd, piece, room);

    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (len <= 0) /* a terminal ends with EIO */
        return -1;
    (void)make_room(&output->ring, (size_t)len);
    ring_add(&output->ring, piece, (size_t)len);
    return len;
}

void output_close(struct output *output)
{
    if (output->fd >= 0)
        serve_close(output->fd);
    output->fd = -1;
    output->held = false;
}

static void ready(struct source *source)
{
    struct output *output = (struct output *)source;
    size_t room = room_for_more(output);

    if (room == 0) {
        serve_forget(output->fd);
        output->held = true;
        return;
    }
    ssize_t len = fill(output, room);

    /* A program may close its terminal and run on: closing the master would kill it by
     * SIGHUP. */
    if (len < 0 && output->process->flags & EXEC_TTY)
        serve_forget(output->fd);
    else if (len < 0)
        output_close(output);
    else if (len > 0)
        output_reply(output->process);
}

int output_open(struct output *output, struct process *process, int fd)
{
    output->source.ready = ready;
    output->process = process;
    output->fd = fd;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        return -errno;
    return serve_watch(fd, &output->source);
}

/* Reads the rest of the pipe, at most OUTPUT_KEPT bytes; output of background children
 * after that is not waited for. */
void output_finish(struct output *output)
{
    size_t taken = 0;

    while (output->fd >= 0 && taken < OUTPUT_KEPT) {
        ssize_t len = fill(output, sizeof piece);
        if (len <= 0)
            break;
        taken += (size_t)len;
    }
    output_close(output);
}

bool output_is_held(const struct process *process)
{
    return process->outputs[0].held || process->outputs[1].held;
}

void output_resume(struct process *process)
{
    for (int i = 0; i < 2; i++) {
        struct output *output = &process->outputs[i];
        if (output->held && room_for_more(output) &&
            serve_watch(output->fd, &output->source) == 0)
            output->held = false;
    }
}

/* True if a packet was sent. */
static bool send_output(struct peer *peer, const struct process *process)
{
    static LARGE char message[MESSAGE_MAX];
    struct output_head head = {0};

    for (unsigned i = 0; i < 2; i++) {
        unsigned stream = (peer->turn + i) % 2;
        const struct ring *ring = &process->outputs[stream].ring;
        uint64_t *at = &peer->at[stream];
        if (*at == ring->end)
            continue;
        if (*at < ring->begin) {
            head.dropped = ring->begin - *at;
            *at = ring->begin;
        }
        head.stream = stream + 1;
        memcpy(message, &head, sizeof head);
        size_t len = ring_copy(ring, *at, message + sizeof head, PIECE);
        *at += len;
        peer->turn = stream + 1;
        peer_reply(peer, MESSAGE_OUTPUT, message, sizeof head + len);
        return true;
    }
    return false;
}

static void reply(struct peer *peer, const struct process *process)
{
    if (send_output(peer, process)) {
        peer->wants_output = false;
    } else if (process->finished) {
        peer->wants_output = false;
        peer_reply(peer, MESSAGE_ENDED, &process->end, sizeof process->end);
    }
}

void output_reply(struct process *process)
{
    for (struct peer *peer = process->peers; peer; peer = peer->next)
        if (peer->wants_output)
            reply(peer, process);
}

bool output_read(struct peer *peer)
{
    struct process *process = peer->process;

    if (!process || !(process->flags & EXEC_BACKGROUND) || peer->wants_output)
        return false;
    peer->wants_output = peer->reads = true;
    reply(peer, process);
    output_resume(process);
    return true;
}
