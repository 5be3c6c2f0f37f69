/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/kept.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "e2b/entry.h"

enum { PAUSE_MIN_MS = 20, PAUSE_MAX_MS = 500 };

static const char op[] = "process.read";

static void name_file(const struct output_files *kept, int stream, char *ret_path,
                      size_t room)
{
    snprintf(ret_path, room, E2B_OUTPUT_DIR "/%d%s", kept->pid,
             stream == 1   ? "/out"
             : stream == 2 ? "/err"
                           : "");
}

void output_files_init(struct output_files *kept, int pid)
{
    *kept = (struct output_files){.is_there = true, .pid = pid, .pause_ms = PAUSE_MIN_MS};
}

static void look(struct e2b *e2b, struct output_files *kept, int pid)
{
    char path[128];

    output_files_init(kept, pid);
    for (int stream = 1; stream <= 2 && kept->is_there; stream++) {
        struct e2b_entry entry;
        name_file(kept, stream, path, sizeof path);
        kept->is_there =
            e2b_envd_stat(e2b, op, "root", path, path, &entry, NULL) == CAY_OK;
        if (kept->is_there && entry.stat.bytes > E2B_KEPT_MAX)
            kept->at[stream - 1] = kept->skipped[stream - 1] =
                entry.stat.bytes - E2B_KEPT_MAX;
    }
}

/* One that has just started makes them in a moment, or is over by now and has made them.
 */
void output_files_find(struct e2b *e2b, struct output_files *kept, int pid)
{
    look(e2b, kept, pid);
    if (kept->is_there)
        return;
    if (e2b_process_will_keep(e2b, pid))
        output_files_init(kept, pid);
    else
        look(e2b, kept, pid);
}

/* Some servers send the whole file whatever they are asked for. */
struct range {
    const struct e2b_request *request;
    uint64_t skip;
    struct buf data;
};

static enum e2b_verdict take(void *cookie, const char *data, size_t len)
{
    struct range *range = cookie;

    if (range->request->status == 200 && range->skip) {
        size_t skip = range->skip < len ? (size_t)range->skip : len;
        range->skip -= skip;
        data += skip;
        len -= skip;
    }
    if (len > range->data.max - range->data.len)
        len = range->data.max - range->data.len;
    return buf_append(&range->data, data, len) ? E2B_ACCEPT : E2B_ABORT;
}

/* 1 if there was something. */
static int fetch(struct e2b *e2b, struct output_files *kept, int stream,
                 struct e2b_event *ret_event)
{
    E2B_REQUEST request;
    struct range range = {.request = &request, .skip = kept->at[stream - 1]};
    char path[128], bytes[64];

    name_file(kept, stream, path, sizeof path);
    e2b_request_init(&request, op, "GET", &e2b->envd);
    buf_text(&request.path, "/files?path=");
    e2b_request_escape(&request, path);
    buf_text(&request.path, "&username=root");
    e2b_envd_headers(e2b, &request, "root");
    snprintf(bytes, sizeof bytes, "bytes=%llu-%llu", (unsigned long long)range.skip,
             (unsigned long long)(range.skip + E2B_KEPT_PIECE - 1));
    e2b_request_header(&request, "Range", bytes);
    buf_init(&range.data, E2B_KEPT_PIECE);
    request.on_body = take;
    request.cookie = &range;
    request.repeatable = true;
    int code = e2b_http_send(&e2b->http, &request, e2b->settings.retries,
                             clock_ms() + E2B_REPLY_MS, NULL);
    size_t len = range.data.len;
    if (!code && len) {
        *ret_event = (struct e2b_event){.kind = E2B_EVENT_OUTPUT,
                                        .stream = stream,
                                        .data = buf_take(&range.data),
                                        .len = len};
        kept->at[stream - 1] += len;
    }
    buf_done(&range.data);
    return !code && len && ret_event->data;
}

int output_files_next(struct e2b *e2b, struct output_files *kept, bool is_last,
                      struct e2b_event *ret_event)
{
    if (!kept->is_there)
        return is_last ? -1 : 0;
    if (!is_last && clock_ms() < kept->next_ms)
        return 0;
    for (int i = 0; i < 2; i++) {
        int stream = (int)(kept->turn++ % 2) + 1;
        if (fetch(e2b, kept, stream, ret_event)) {
            kept->pause_ms = PAUSE_MIN_MS;
            kept->next_ms = 0;
            return 1;
        }
    }
    kept->next_ms = clock_ms() + kept->pause_ms;
    kept->pause_ms =
        2 * kept->pause_ms < PAUSE_MAX_MS ? 2 * kept->pause_ms : PAUSE_MAX_MS;
    return is_last ? -1 : 0;
}

void output_files_remove(struct e2b *e2b, struct output_files *kept)
{
    char path[128];

    if (!kept->is_there)
        return;
    kept->is_there = false;
    name_file(kept, 0, path, sizeof path);
    (void)e2b_files.remove(e2b, "root", path, CAY_NAME_RECURSIVE, NULL);
}
