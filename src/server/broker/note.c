/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/note.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/clock.h"
#include "server/broker/keepers.h"

static const char kind[] = "cay-serve 1";

enum { WITHOUT_END_MS = 300000 }; /* for one that is paused at its end: it has no other */

void note_done(struct note *note)
{
    record_done(&note->row);
}

uint32_t note_write(struct registry *registry, const struct record_row *row,
                    struct buf *strings)
{
    char numbers[96];
    uint32_t count = 6;

    snprintf(numbers, sizeof numbers, "%" PRId64 " %" PRIu32 " %" PRIu32, row->started_ms,
             row->flags, row->token_version);
    strings_add(strings, kind);
    strings_add(strings, registry_identity(registry));
    strings_add(strings, registry_path(registry));
    strings_add(strings, row->tenant);
    strings_add(strings, row->template_name);
    strings_add(strings, numbers);
    (void)buf_append(strings, row->metadata.data, row->metadata.len);
    for (size_t i = 0; i < row->metadata.len; i++)
        count += row->metadata.data[i] == '\0';
    return count;
}

/* The next string, and where the one after it begins; NULL if there is none. */
static const char *take(const char **at, const char *end)
{
    const char *text = *at;
    const char *nul = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;

    *at = nul ? nul + 1 : end;
    return nul ? text : NULL;
}

static bool parse(const char *data, size_t len, struct note *note)
{
    const char *at = data, *end = data + len, *texts[6];

    for (int i = 0; i < 6; i++)
        if (!(texts[i] = take(&at, end)))
            return false;
    char *numbers = NULL;
    note->row.started_ms = strtoll(texts[5], &numbers, 10);
    note->row.flags = (uint32_t)strtoul(numbers, &numbers, 10);
    note->row.token_version = (uint32_t)strtoul(numbers, &numbers, 10);
    if (strcmp(texts[0], kind) != 0 || *numbers || !note->row.token_version)
        return false;
    cay_copy_text(note->store, sizeof note->store, texts[1]);
    cay_copy_text(note->path, sizeof note->path, texts[2]);
    cay_copy_text(note->row.tenant, TENANT_MAX, texts[3]);
    cay_copy_text(note->row.template_name, TEMPLATE_MAX, texts[4]);
    return buf_append(&note->row.metadata, at, (size_t)(end - at));
}

int64_t note_left_ms(const struct cay_sandbox_info *info, uint32_t max_timeout_s)
{
    uint64_t max_ms = max_timeout_s * UINT64_C(1000) + KEEPER_GRACE_MS;

    if (!info->ttl_left_ms)
        return WITHOUT_END_MS;
    return (int64_t)(info->ttl_left_ms < max_ms ? info->ttl_left_ms : max_ms) -
           KEEPER_GRACE_MS;
}

bool note_read(const struct cay_sandbox_info *info, uint32_t max_timeout_s,
               struct note *ret_note)
{
    void *data = NULL;
    size_t len = 0;
    int64_t now_ms = server_clock_ms();

    *ret_note = (struct note){0};
    record_init(&ret_note->row);
    if ((info->state != CAY_STATE_RUNNING && info->state != CAY_STATE_PAUSED) ||
        strlen(info->id) < 4 ||
        cay_sandbox_get_note(info->id, &data, &len, NULL) != CAY_OK)
        return false;
    bool is_ours = parse(data, len, ret_note);
    cay_free(data);
    struct record_row *row = &ret_note->row;
    cay_copy_text(row->id, sizeof row->id, info->id + 3);
    bool is_paused = info->state == CAY_STATE_PAUSED;
    row->state = is_paused ? RECORD_PAUSED : RECORD_RUNNING;
    row->end_ms = now_ms;
    if (!is_paused)
        row->end_ms += note_left_ms(info, max_timeout_s);
    return is_ours && record_is_id(row->id);
}

enum note_origin note_origin(struct registry *registry, const struct note *note)
{
    if (strcmp(note->store, registry_identity(registry)) == 0)
        return NOTE_OF_STORE;
    return *note->path == '/' && strcmp(note->path, registry_path(registry)) == 0
               ? NOTE_OF_PATH
               : NOTE_FOREIGN;
}
