/* SPDX-License-Identifier: Apache-2.0 */
#include "network/rule.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const char op[] = "network.rules";

static const char *const methods[] = {"GET",   "HEAD",   "POST",   "PUT",
                                      "PATCH", "DELETE", "OPTIONS"};
enum { METHODS = sizeof methods / sizeof *methods, GET = 1 << 0, HEAD = 1 << 1 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* --- Names --- */

/* "80", "0x7f": the last label of an address that some programs read as IPv4. */
static bool is_number(const char *label)
{
    if (label[0] == '0' && label[1] == 'x')
        return strspn(label + 2, "0123456789abcdef") == strlen(label + 2);
    return strspn(label, "0123456789") == strlen(label);
}

static const char *check_labels(const char *name)
{
    for (const char *label = name;; label++) {
        size_t len = strcspn(label, ".");
        if (len == 0)
            return "a label is empty";
        if (len > 63)
            return "a label has more than 63 bytes";
        if (label[0] == '-' || label[len - 1] == '-')
            return "a label starts or ends with \"-\"";
        if (!label[len])
            return is_number(label) ? "its last label is a number" : NULL;
        label += len;
    }
}

const char *network_name_clean(const char *text, size_t len,
                               char ret_name[NETWORK_NAME_MAX])
{
    if (len > 1 && text[len - 1] == '.')
        len--;
    ret_name[0] = '\0';
    if (len == 0)
        return "it is empty";
    if (len >= NETWORK_NAME_MAX)
        return "it has more than 253 bytes";
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if ((unsigned char)c >= 0x80)
            return "it has letters outside ASCII (write it as DNS does: xn--...)";
        if (!is_letter(c) && !is_digit(c) && !memchr("-_.", c, 3))
            return "a name has only letters, digits, \"-\", \"_\" and dots";
        ret_name[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    ret_name[len] = '\0';
    return check_labels(ret_name);
}

/* --- Paths --- */

static int hex(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The character that a %XX stands for if it need not be encoded, 0 if it must be; -1 if
 * it hides something. */
static int decode(const char *at)
{
    int high = hex(at[1]), low = high < 0 ? -1 : hex(at[2]);
    int value = high * 16 + low;

    if (low < 0 || value < 0x20 || value == 0x7F || value == '/' || value == '\\')
        return -1;
    char c = (char)value;
    return value < 0x80 && (is_letter(c) || is_digit(c) || memchr("-._~", c, 4)) ? c : 0;
}

/* Whether the last segment is "", "." or "..". */
static bool ends_hidden(const struct buf *path)
{
    const char *slash = path->len ? memrchr(path->data, '/', path->len) : NULL;

    return slash && (!slash[1] || strcmp(slash, "/.") == 0 || strcmp(slash, "/..") == 0);
}

bool network_path_clean(const char *path, char *ret_path, size_t room)
{
    size_t end = strcspn(path, "?#");
    struct buf clean;

    buf_borrow(&clean, room - 1, ret_path, room);
    for (size_t i = 0; i < end; i++) {
        bool encoded = path[i] == '%';
        int c = encoded ? decode(path + i) : path[i];
        if (c < 0 || (c <= ' ' && !encoded) || c >= 0x7F || c == '\\' ||
            (c == '/' ? ends_hidden(&clean) : i == 0))
            return false;
        if (c)
            buf_append(&clean, &(char){(char)c}, 1);
        else
            buf_format(&clean, "%%%X%X", (unsigned)hex(path[i + 1]),
                       (unsigned)hex(path[i + 2]));
        i += encoded ? 2 : 0;
    }
    return !clean.failed && clean.len &&
           (clean.data[clean.len - 1] == '/' || !ends_hidden(&clean));
}

/* --- Reading a rule --- */

uint8_t network_method_bit(const char *method, size_t len)
{
    for (unsigned i = 0; i < METHODS; i++)
        if (strlen(methods[i]) == len && memcmp(methods[i], method, len) == 0)
            return (uint8_t)(1u << i);
    return 0;
}

static int parse_methods(const char *text, struct network_rule *rule,
                         struct cay_error *err)
{
    while (*text) {
        size_t len = strcspn(text, ",");
        uint8_t bit = network_method_bit(text, len);
        if (!bit)
            return cay_fail(err, CAY_E_INVALID, 0, op, text, "unknown HTTP method",
                            "write methods as GET,POST before the host; allowed: GET, "
                            "HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        rule->methods |= bit == GET ? GET | HEAD : bit;
        text += len + (text[len] == ',');
    }
    return CAY_OK;
}

static const char *parse_port(const char *text, uint16_t *ret_port)
{
    unsigned port = 0;

    for (; is_digit(*text) && port <= UINT16_MAX; text++)
        port = port * 10 + (unsigned)(*text - '0');
    *ret_port = port <= UINT16_MAX ? (uint16_t)port : 0;
    return text;
}

static int parse_ports(const char *text, struct network_rule *rule, struct cay_error *err)
{
    const char *end = text;

    if (strcmp(text, "*") == 0) {
        rule->low = 1;
        rule->high = UINT16_MAX;
        return CAY_OK;
    }
    end = parse_port(text, &rule->low);
    rule->high = rule->low;
    if (*end == '-')
        end = parse_port(end + 1, &rule->high);
    if (*end || !rule->low || rule->high < rule->low)
        return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid port",
                        "write a port from 1 to 65535 (host:443), a range "
                        "(host:8000-8010) or all ports (host:*)");
    return CAY_OK;
}

static int parse_path(char *path, struct network_rule *rule, struct cay_error *err)
{
    char clean[NETWORK_PATH_MAX];

    if (rule->kind == NETWORK_RANGE && strcmp(path, "/udp") == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "UDP cannot be allowed",
                        "only TCP leaves a sandbox, and names are answered inside: leave "
                        "out /udp, or use a server with a TCP port");
    if (rule->kind == NETWORK_RANGE)
        return cay_fail(err, CAY_E_INVALID, 0, op, path,
                        "a rule for addresses has no path",
                        "write a host name before the path: api.example.com/v1/*");
    if (!network_path_clean(path, clean, sizeof clean) || strlen(clean) > strlen(path) ||
        strpbrk(path, "?#"))
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "invalid path",
                        "write /v1/* or /v1/models: up to %d bytes of ASCII without "
                        "\"..\", \"//\", \"?\", \"#\" and blanks",
                        NETWORK_PATH_MAX - 1);
    memcpy(path + 1, clean + 1, strlen(clean));
    *path = '\0'; /* it ends the host or the port */
    rule->path = path + 1;
    return CAY_OK;
}

/* `text` is "ADDRESS" or "ADDRESS/BITS". */
static int parse_range(char *text, struct network_rule *rule, struct cay_error *err)
{
    char *slash = strchr(text, '/');
    uint16_t bits = 0;

    if (slash)
        *slash = '\0';
    if (!network_address_parse(text, &rule->range))
        return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid address",
                        "write 192.0.2.1, 192.0.2.0/24, [2001:db8::1] or "
                        "[2001:db8::/32]");
    unsigned most = 8u * rule->range.len;
    if (slash && (!is_digit(slash[1]) || *parse_port(slash + 1, &bits) || bits > most))
        return cay_fail(err, CAY_E_INVALID, 0, op, slash + 1, "invalid prefix length",
                        "write a number from 0 to %u after the address: %s/%u", most,
                        text, most * 3 / 4);
    rule->kind = NETWORK_RANGE;
    rule->bits = (uint8_t)(slash ? bits : most);
    network_address_mask(&rule->range, rule->bits);
    const struct network_class *class = network_class_find(&rule->range);
    if (class && class->opens == 255 && rule->bits >= class->bits && !rule->denies)
        return cay_fail(
            err, CAY_E_INVALID, 0, op, text, "no rule opens this address",
            "%s is %s; write the IPv4 or IPv6 address of one host, or a range",
            class->text, class->what);
    return CAY_OK;
}

static int parse_name(char *text, struct network_rule *rule, struct cay_error *err)
{
    char clean[NETWORK_NAME_MAX];
    bool below = strncmp(text, "*.", 2) == 0;

    if (strcmp(text, "*") == 0) {
        rule->kind = NETWORK_ANY;
        return CAY_OK;
    }
    char *name = below ? text + 2 : text;
    const char *fault = network_name_clean(name, strlen(name), clean);
    if (fault)
        return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid host",
                        "%s; write api.example.com, *.example.com, *, 192.0.2.1 or "
                        "192.0.2.0/24",
                        fault);
    memcpy(name, clean, strlen(clean) + 1);
    rule->kind = below ? NETWORK_BELOW : NETWORK_NAME;
    rule->name = below ? text + 1 : name;
    return CAY_OK;
}

/* Ends the host and returns what follows it: "", ":PORT" or "/PATH". */
static char *split_host(char **host, bool *ret_is_range, char *ret_next)
{
    struct network_address address;
    char *text = *host, *end;

    *ret_is_range = true;
    if (text[0] == '[' && (end = strchr(text, ']'))) {
        *host = text + 1;
        *end++ = '\0';
    } else if (strspn(text, "0123456789abcdefABCDEF:.") == strcspn(text, "/") &&
               strchr(text, ':') != strrchr(text, ':')) {
        end = text + strlen(text);
    } else {
        end = text + strcspn(text, ":/");
        char next = *end;
        *end = '\0';
        *ret_is_range = network_address_parse(text, &address);
        *end = next;
        if (*ret_is_range && next == '/')
            end += 1 + strspn(end + 1, "0123456789");
    }
    *ret_next = *end;
    *end = '\0';
    return end;
}

int network_rule_parse(char *text, struct network_rule *ret_rule, struct cay_error *err)
{
    struct network_rule rule = {.kind = NETWORK_NAME};
    bool is_range;
    char next;

    if (strstr(text, "://"))
        return cay_fail(err, CAY_E_INVALID, 0, op, text, "a rule has no scheme",
                        "leave out https:// and write the host: api.example.com:443");
    if (*text == '!') {
        rule.denies = true;
        text++;
    }
    char *blank = strchr(text, ' ');
    if (blank) {
        *blank = '\0';
        TRY(parse_methods(text, &rule, err));
        text = blank + 1 + strspn(blank + 1, " ");
    }
    char *host = text, *rest = split_host(&host, &is_range, &next);
    TRY((is_range ? parse_range : parse_name)(host, &rule, err));
    if (next == ':') {
        size_t len = strcspn(rest + 1, "/");
        next = rest[1 + len];
        rest[1 + len] = '\0';
        TRY(parse_ports(rest + 1, &rule, err));
        rest += 1 + len;
    }
    if (next == '/') {
        *rest = '/';
        TRY(parse_path(rest, &rule, err));
    } else if (next) {
        return cay_fail(err, CAY_E_INVALID, 0, op, host, "invalid text after the host",
                        "after the host comes a port (:443) or a path (/v1/*)");
    }
    if (rule.methods && is_range)
        return cay_fail(err, CAY_E_INVALID, 0, op, host,
                        "a rule for addresses has no methods",
                        "write a host name after the methods: GET api.example.com");
    *ret_rule = rule;
    return CAY_OK;
}

/* --- Writing a rule --- */

static void put_host(const struct network_rule *rule, struct buf *text)
{
    char address[NETWORK_ADDRESS_TEXT];

    if (rule->kind == NETWORK_RANGE) {
        bool six = rule->range.len == 16;
        network_address_format(&rule->range, address);
        buf_format(text, "%s%s", six ? "[" : "", address);
        if (rule->bits != 8 * rule->range.len)
            buf_format(text, "/%d", rule->bits);
        buf_text(text, six ? "]" : "");
        return;
    }
    buf_text(text, rule->kind == NETWORK_NAME ? "" : "*");
    buf_text(text, rule->kind == NETWORK_ANY ? "" : rule->name);
}

void network_rule_format(const struct network_rule *rule, char ret_text[NETWORK_RULE_MAX])
{
    struct buf text;
    const char *separator = rule->denies ? "!" : "";
    unsigned named =
        rule->methods & GET ? rule->methods & ~(unsigned)HEAD : rule->methods;

    buf_borrow(&text, NETWORK_RULE_MAX - 1, ret_text, NETWORK_RULE_MAX);
    if (!named)
        buf_text(&text, separator);
    for (unsigned i = 0; i < METHODS; i++) {
        if (named & 1u << i) {
            buf_format(&text, "%s%s", separator, methods[i]);
            separator = ",";
        }
    }
    buf_text(&text, named ? " " : "");
    put_host(rule, &text);
    if (rule->low == 1 && rule->high == UINT16_MAX)
        buf_text(&text, ":*");
    else if (rule->low && rule->low == rule->high)
        buf_format(&text, ":%d", rule->low);
    else if (rule->low)
        buf_format(&text, ":%d-%d", rule->low, rule->high);
    if (rule->path)
        buf_format(&text, "/%s", rule->path);
    buf_done(&text);
}
