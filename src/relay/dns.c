/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/dns.h"

#include <string.h>
#include <strings.h>

enum {
    HEADER = 12,
    LABEL_MAX = 63,
    TYPE_CNAME = 5,
    TYPE_OPT = 41,
    CLASS_INTERNET = 1,
    FLAG_REPLY = 0x8000,
    FLAG_OPCODE = 0x7800,
    FLAG_TRUNCATED = 0x0200,
    FLAG_RECURSION = 0x0100,
    FLAG_AVAILABLE = 0x0080,
    TTL_S = 60,
    OPTION_ERROR = 15, /* RFC 8914 */
    ERROR_PROHIBITED = 18,
    POINTER = 0xC0
};

static unsigned get_short(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static uint32_t get_long(const uint8_t *at)
{
    return (uint32_t)get_short(at) << 16 | get_short(at + 2);
}

/* --- Reading --- */

/* Each byte that is not of a plain name makes the whole name "?". */
static void put_label(char *name, size_t *len, const uint8_t *label, size_t size)
{
    if (*len == SIZE_MAX)
        return;
    if (*len)
        name[(*len)++] = '.';
    for (size_t i = 0; i < size; i++) {
        if (label[i] <= ' ' || label[i] >= 0x7F || label[i] == '.') {
            *len = SIZE_MAX;
            return;
        }
        name[(*len)++] = (char)label[i];
    }
}

/* The name of a question is never compressed.  The offset behind it, or 0. */
static size_t read_name(const uint8_t *message, size_t len, size_t at,
                        char ret_name[NETWORK_NAME_MAX])
{
    size_t used = 0, wire = 0;

    for (; at < len && message[at]; at += 1u + message[at]) {
        size_t size = message[at];
        wire += size + 1;
        if (size > LABEL_MAX || at + 1 + size > len || wire >= NETWORK_NAME_MAX)
            return 0;
        put_label(ret_name, &used, message + at + 1, size);
    }
    if (at >= len)
        return 0;
    if (used == SIZE_MAX) {
        ret_name[0] = '?';
        used = 1;
    }
    ret_name[used] = '\0';
    return at + 1;
}

/* The offset behind a name, which may end in a pointer, or 0. */
static size_t skip_name(const uint8_t *message, size_t len, size_t at)
{
    while (at < len && message[at]) {
        if (message[at] >= POINTER)
            return at + 2 <= len ? at + 2 : 0;
        if (message[at] > LABEL_MAX)
            return 0;
        at += 1u + message[at];
    }
    return at < len ? at + 1 : 0;
}

struct record {
    unsigned type, class, size;
    uint32_t ttl;
    const uint8_t *data;
};

/* The offset behind the record, or 0. */
static size_t read_record(const uint8_t *message, size_t len, size_t at,
                          struct record *ret_record)
{
    enum { FIXED = 10 };

    at = skip_name(message, len, at);
    if (!at || len - at < FIXED)
        return 0;
    *ret_record = (struct record){.type = get_short(message + at),
                                  .class = get_short(message + at + 2),
                                  .ttl = get_long(message + at + 4),
                                  .size = get_short(message + at + 8),
                                  .data = message + at + FIXED};
    at += FIXED;
    return len - at < ret_record->size ? 0 : at + ret_record->size;
}

static bool has_extensions(const uint8_t *message, size_t len, size_t at)
{
    struct record record;
    unsigned count =
        get_short(message + 6) + get_short(message + 8) + get_short(message + 10);

    for (; count && at; count--) {
        at = read_record(message, len, at, &record);
        if (at && record.type == TYPE_OPT)
            return true;
    }
    return false;
}

bool dns_read_question(const uint8_t *message, size_t len,
                       struct dns_question *ret_question)
{
    if (len < HEADER || get_short(message + 2) & (FLAG_REPLY | FLAG_OPCODE) ||
        get_short(message + 4) != 1)
        return false;
    size_t at = read_name(message, len, HEADER, ret_question->name);
    if (!at || len - at < 4)
        return false;
    ret_question->type = (uint16_t)get_short(message + at);
    ret_question->is_internet = get_short(message + at + 2) == CLASS_INTERNET;
    ret_question->end = at + 4;
    ret_question->has_extensions = has_extensions(message, len, at + 4);
    return true;
}

static void take_record(const struct record *record, unsigned type,
                        struct dns_addresses *addresses)
{
    unsigned size = type == DNS_TYPE_A ? 4 : 16;

    if (record->class != CLASS_INTERNET ||
        (record->type != type && record->type != TYPE_CNAME))
        return;
    if (record->ttl < addresses->ttl_s)
        addresses->ttl_s = record->ttl;
    if (record->type != type || record->size != size ||
        addresses->count == DNS_ADDRESSES_MAX)
        return;
    struct network_address *address = &addresses->at[addresses->count++];
    *address = (struct network_address){.len = (uint8_t)size};
    memcpy(address->bytes, record->data, size);
}

/* Names are repeated as they were asked, up to their case. */
static bool is_same_question(const uint8_t *message, const uint8_t *question, size_t len)
{
    for (size_t i = HEADER; i < len; i++) {
        unsigned one = message[i], other = question[i];
        one += one >= 'A' && one <= 'Z' ? 32u : 0u;
        other += other >= 'A' && other <= 'Z' ? 32u : 0u;
        if (one != other)
            return false;
    }
    return true;
}

bool dns_read_reply(const uint8_t *message, size_t len, const uint8_t *question,
                    size_t question_len, struct dns_addresses *ret_addresses)
{
    char name[NETWORK_NAME_MAX];
    size_t at = read_name(question, question_len, HEADER, name);
    struct record record;

    if (!at || question_len - at < 4)
        return false;
    unsigned type = get_short(question + at);
    at += 4;
    if (len < at || get_short(message) != get_short(question) ||
        !(get_short(message + 2) & FLAG_REPLY) || get_short(message + 4) != 1 ||
        !is_same_question(message, question, at))
        return false;
    *ret_addresses =
        (struct dns_addresses){.code = (enum dns_code)(get_short(message + 2) & 0xF),
                               .is_truncated = get_short(message + 2) & FLAG_TRUNCATED,
                               .ttl_s = UINT32_MAX};
    for (unsigned count = get_short(message + 6); count && at; count--) {
        at = read_record(message, len, at, &record);
        if (at)
            take_record(&record, type, ret_addresses);
    }
    return true;
}

uint32_t dns_reverse_address(const char *name)
{
    uint32_t address = 0;

    for (unsigned part = 0; part < 4; part++) {
        unsigned value = 0, digits = 0;
        for (; *name >= '0' && *name <= '9' && digits < 3; digits++)
            value = 10 * value + (unsigned)(*name++ - '0');
        if (!digits || value > 255 || *name++ != '.')
            return 0;
        address |= value << 8 * part;
    }
    return strcasecmp(name, "in-addr.arpa") == 0 ? address : 0;
}

/* --- Writing --- */

struct writer {
    uint8_t *data;
    size_t len;
};

static void put_short(struct writer *writer, unsigned value)
{
    writer->data[writer->len++] = (uint8_t)(value >> 8);
    writer->data[writer->len++] = (uint8_t)value;
}

static void put_long(struct writer *writer, uint32_t value)
{
    put_short(writer, value >> 16);
    put_short(writer, value & 0xFFFF);
}

/* Of a clean name. */
static void put_name(struct writer *writer, const char *name)
{
    while (*name) {
        size_t size = strcspn(name, ".");
        writer->data[writer->len++] = (uint8_t)size;
        memcpy(writer->data + writer->len, name, size);
        writer->len += size;
        name += size + (name[size] == '.');
    }
    writer->data[writer->len++] = 0;
}

static void put_extensions(struct writer *writer, bool is_forbidden)
{
    writer->data[writer->len++] = 0; /* the root's name */
    put_short(writer, TYPE_OPT);
    put_short(writer, DNS_MESSAGE_MAX);
    put_long(writer, 0);
    put_short(writer, is_forbidden ? 6 : 0);
    if (is_forbidden) {
        put_short(writer, OPTION_ERROR);
        put_short(writer, 2);
        put_short(writer, ERROR_PROHIBITED);
    }
}

static void put_record(struct writer *writer, const struct dns_answer *answer)
{
    put_short(writer, POINTER << 8 | HEADER); /* the question's name */
    put_short(writer, answer->name ? DNS_TYPE_PTR : DNS_TYPE_A);
    put_short(writer, CLASS_INTERNET);
    put_long(writer, TTL_S);
    if (!answer->name) {
        put_short(writer, 4);
        put_long(writer, answer->address);
        return;
    }
    size_t size_at = writer->len;
    put_short(writer, 0);
    put_name(writer, answer->name);
    size_t size = writer->len - size_at - 2;
    writer->data[size_at] = (uint8_t)(size >> 8);
    writer->data[size_at + 1] = (uint8_t)size;
}

size_t dns_write_reply(const uint8_t *message, const struct dns_question *question,
                       const struct dns_answer *answer,
                       uint8_t ret_reply[DNS_MESSAGE_MAX])
{
    struct writer writer = {.data = ret_reply};
    bool has_record = answer->address || answer->name;

    put_short(&writer, get_short(message));
    put_short(&writer, FLAG_REPLY | (get_short(message + 2) & FLAG_RECURSION) |
                           FLAG_AVAILABLE | answer->code);
    put_short(&writer, 1);
    put_short(&writer, has_record);
    put_short(&writer, 0);
    put_short(&writer, question->has_extensions);
    memcpy(writer.data + writer.len, message + HEADER, question->end - HEADER);
    writer.len = question->end;
    if (has_record)
        put_record(&writer, answer);
    if (question->has_extensions)
        put_extensions(&writer, answer->is_forbidden);
    return writer.len;
}

size_t dns_write_question(uint16_t id, const char *name, uint16_t type,
                          bool has_extensions, uint8_t ret_message[DNS_MESSAGE_MAX])
{
    struct writer writer = {.data = ret_message};

    put_short(&writer, id);
    put_short(&writer, FLAG_RECURSION);
    put_short(&writer, 1);
    put_long(&writer, 0);
    put_short(&writer, has_extensions);
    put_name(&writer, name);
    put_short(&writer, type);
    put_short(&writer, CLASS_INTERNET);
    if (has_extensions)
        put_extensions(&writer, false);
    return writer.len;
}
