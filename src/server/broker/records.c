/* SPDX-License-Identifier: Apache-2.0 */

/* Records as they are: what could not be written yet counts before what was. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/errand.h"

enum { AGAIN_MS = 1000 };

struct unwritten {
    struct unwritten *next;
    struct record_row row; /* without its metadata, which does not change */
};

static struct unwritten **find_unwritten(struct broker *broker, const char *id)
{
    struct unwritten **link = &broker->unwritten;

    while (*link && strcmp((*link)->row.id, id) != 0)
        link = &(*link)->next;
    return link;
}

static void drop_unwritten(struct unwritten **link)
{
    struct unwritten *old = *link;

    if (old)
        *link = old->next;
    free(old);
}

/* What the system did cannot be undone because a disk is full: it is remembered. */
static void keep_unwritten(struct broker *broker, const struct record_row *row,
                           const struct cay_error *error)
{
    struct unwritten **link = find_unwritten(broker, row->id);

    if (!*link) {
        if (broker->complain)
            broker->complain(row->id, error);
        *link = calloc(1, sizeof **link);
    }
    if (*link) {
        (*link)->row = *row;
        (*link)->row.metadata = (struct buf){0};
    }
    broker_note_end(broker, broker_now_ms() + AGAIN_MS);
}

void broker_write(struct broker *broker, const struct record_row *row)
{
    struct cay_error error;

    if (registry_update(broker->registry, row, &error) == CAY_OK)
        drop_unwritten(find_unwritten(broker, row->id));
    else
        keep_unwritten(broker, row, &error);
}

/* Of a store that was opened on a full disk. */
static void recover(struct broker *broker)
{
    struct cay_error note;

    if (!registry_is_alone(broker->registry))
        return;
    if (!registry_recover(broker->registry)) {
        broker_note_end(broker, broker_now_ms() + AGAIN_MS);
        return;
    }
    cay_fail(&note, CAY_E_NO_SPACE, 0, "server", NULL, "the disk has room again",
             "sandboxes can be created");
    if (broker->complain)
        broker->complain("store", &note);
}

void broker_write_again(struct broker *broker)
{
    struct unwritten **link = &broker->unwritten;

    recover(broker);
    if (!*link)
        return;
    registry_set_patience(broker->registry, false); /* others wait for us meanwhile */
    while (*link && registry_update(broker->registry, &(*link)->row, NULL) == CAY_OK)
        drop_unwritten(link);
    registry_set_patience(broker->registry, true);
    if (*link)
        broker_note_end(broker, broker_now_ms() + AGAIN_MS);
}

void broker_current(struct broker *broker, struct record_row *row)
{
    const struct unwritten *unwritten = *find_unwritten(broker, row->id);
    struct buf metadata = row->metadata;

    if (!unwritten)
        return;
    *row = unwritten->row;
    row->metadata = metadata;
}

int broker_find(struct broker *broker, const char *id, struct record_row *ret_row,
                struct cay_error *err)
{
    int code = registry_find(broker->registry, id, ret_row, err);

    if (!code)
        broker_current(broker, ret_row);
    return code;
}

const char *broker_fate(const struct broker *broker, const struct record_row *row)
{
    const struct errand *kill = errand_of(broker, OP_KILL, row->id);

    if (row->state == RECORD_GONE)
        return row->reason;
    return kill ? kill->row.reason : NULL;
}

/* --- Replies --- */

enum {
    LIST_MAX = 100,
    BESIDE_METADATA = 8 << 10 /* all else that is told of a sandbox */
};

static void fill_sandbox(struct broker *broker, const struct record_row *row,
                         struct tell *tell, struct buf *strings)
{
    const struct serve_options *options = broker->options;
    char token[TOKEN_MAX], traffic[TOKEN_MAX] = "";
    int64_t step_ms = server_clock_step_ms();

    secrets_token(&broker->secrets, TOKEN_ENVD, row->id, row->token_version, token);
    if (row->flags & CREATE_PRIVATE_TRAFFIC)
        secrets_token(&broker->secrets, TOKEN_TRAFFIC, row->id, row->token_version,
                      traffic);
    *tell = (struct tell){.kind = TELL_SANDBOX};
    tell->numbers[SANDBOX_STATE] = row->state;
    tell->numbers[SANDBOX_STARTED_MS] = row->started_ms + step_ms;
    tell->numbers[SANDBOX_END_MS] = row->end_ms + step_ms;
    tell->numbers[SANDBOX_FLAGS] = row->flags;
    tell->numbers[SANDBOX_CPUS] = sysconf(_SC_NPROCESSORS_ONLN);
    tell->numbers[SANDBOX_MEMORY_MB] = (int64_t)(options->memory_bytes >> 20);
    if (options->storage != CAY_STORAGE_DISK) /* which nothing limits */
        tell->numbers[SANDBOX_DISK_MB] = (int64_t)(options->disk_bytes >> 20);
    strings_add(strings, row->id);
    strings_add(strings, row->template_name);
    strings_add(strings, token);
    strings_add(strings, traffic);
    strings_add(strings, broker->domain);
    (void)buf_append(strings, row->metadata.data, row->metadata.len);
    for (size_t i = 0; i < strings->len; i++)
        tell->count += strings->data[i] == '\0';
}

int broker_tell_sandbox(struct broker *broker, int channel, const struct record_row *row,
                        bool resumed)
{
    AUTO_BUF strings = {0};
    struct tell tell;

    buf_init(&strings, CHANNEL_PACKET);
    fill_sandbox(broker, row, &tell, &strings);
    tell.numbers[SANDBOX_RESUMED] = resumed;
    return tell_send(channel, &tell, &strings, -1);
}

struct listing {
    struct broker *broker;
    struct asked *asked;
    const char **wanted; /* metadata: key, value, ... */
    int64_t pairs, left, sent;
    unsigned states;
    int error; /* of sending, a negative errno */
    bool more;
};

static bool has_metadata(const struct record_row *row, const char *key, const char *value)
{
    const char *at = row->metadata.data, *end = at + row->metadata.len;

    while (at && at < end) {
        const char *text = at + strlen(at) + 1;
        if (text >= end)
            return false;
        if (strcmp(at, key) == 0)
            return strcmp(text, value) == 0;
        at = text + strlen(text) + 1;
    }
    return false;
}

/* Whether the channel takes one more, and an end behind it.  The kernel counts more than
 * the bytes, but not twice as much. */
static bool has_room(int channel, const struct record_row *row)
{
    int sent = 0, most = 0;
    socklen_t len = sizeof most;

    return ioctl(channel, SIOCOUTQ, &sent) != 0 ||
           getsockopt(channel, SOL_SOCKET, SO_SNDBUF, &most, &len) != 0 || sent == 0 ||
           (size_t)sent + 2 * (row->metadata.len + BESIDE_METADATA) < (size_t)most;
}

static bool list_one(const struct record_row *written, void *cookie)
{
    struct listing *listing = cookie;
    struct record_row now = *written, *row = &now;

    broker_current(listing->broker, row);
    if (broker_fate(listing->broker, row) || !(listing->states >> row->state & 1))
        return true;
    for (int64_t i = 0; i < listing->pairs; i++)
        if (!has_metadata(row, listing->wanted[2 * i], listing->wanted[2 * i + 1]))
            return true;
    if (listing->left-- == 0 || !has_room(listing->asked->channel, row)) {
        listing->more = true;
        return false;
    }
    listing->error =
        broker_tell_sandbox(listing->broker, listing->asked->channel, row, false);
    listing->sent += !listing->error;
    if (listing->error == -EAGAIN && listing->sent > 0) { /* the next page has it */
        listing->error = 0;
        listing->more = true;
        return false;
    }
    return !listing->error;
}

/* A time from a client, by the clock of the rows; 0 is none. */
static int64_t since_start(int64_t shown_ms)
{
    return shown_ms ? shown_ms - server_clock_step_ms() : 0;
}

void broker_list(struct broker *broker, struct asked *asked, const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = ask_strings(asked, &room);
    const struct ask *head = &asked->head;
    struct cay_error error = {0};
    struct tell last = {.kind = TELL_DONE};
    /* A page of sandboxes with all their metadata.  Who is not root may not have so much,
     * and then pages are smaller. */
    int buffer = 32 << 20;

    if (!strings || head->numbers[LIST_LIMIT] < 1 ||
        head->numbers[LIST_LIMIT] > LIST_MAX || head->numbers[LIST_METADATA] < 0 ||
        2 + 2 * head->numbers[LIST_METADATA] != head->count) {
        broker_refuse(asked, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    (void)setsockopt(asked->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
    struct registry_filter filter = {
        .tenant = tenant,
        .template_name = *strings[0] ? strings[0] : NULL,
        .started_after_ms = since_start(head->numbers[LIST_STARTED_AFTER_MS]),
        .oldest_first = head->flags & LIST_OLDEST_FIRST,
        .after_ms = since_start(head->numbers[LIST_AFTER_MS]),
        .after_id = strings[1],
    };
    if (head->flags & LIST_RUNNING)
        filter.states |= 1u << RECORD_RUNNING;
    if (head->flags & LIST_PAUSED)
        filter.states |= 1u << RECORD_PAUSED;
    struct listing listing = {.broker = broker,
                              .asked = asked,
                              .wanted = strings + 2,
                              .pairs = head->numbers[LIST_METADATA],
                              .states = filter.states,
                              .left = head->numbers[LIST_LIMIT]};
    int code = registry_visit(broker->registry, &filter, list_one, &listing, &error);
    if (!code)
        code = registry_count_running(broker->registry, tenant,
                                      &last.numbers[LISTED_RUNNING], &error);
    if (!code && listing.error)
        code = cay_fail_errno(&error, -listing.error, "server.list", "the reply");
    if (!code) {
        last.numbers[LISTED_HAS_MORE] = listing.more;
        (void)tell_send(asked->channel, &last, NULL, -1);
    } else {
        (void)tell_failed(asked->channel, 0, &error);
    }
    asked_done(asked);
}
