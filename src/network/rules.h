/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NETWORK_RULES_H
#define NETWORK_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cay/error.h"
#include "network/address.h"

/* Which hosts a sandbox may reach: an immutable table of rules and the functions that
 * decide by it.  Pure: it opens no socket, looks nothing up and needs only base/, so a
 * confined program can link it.
 *
 * A rule is
 *     [!][METHOD[,METHOD] ]HOST[:PORT[-PORT]][/PATH]
 * "!" denies.  HOST is a name, "*.name" (one or more labels before it, never the name
 * itself), "*" (every name), an address or a range of addresses ("10.1.0.0/16",
 * "[2001:db8::/32]:443").  PORT "*" is every port; without a port a rule allows 80 and
 * 443, and denies every port.  Methods and a path ("*" in it takes any characters) apply
 * to the requests of plain HTTP and of opened TLS.  A word without a dot is a group of
 * rules (groups.h).
 *
 * Whatever a table allows, private addresses (address.h) stay out of reach, unless a rule
 * names a range within theirs. */

#define NETWORK_NAME_MAX  254  /* including the NUL */
#define NETWORK_PATH_MAX  256  /* of a rule, including the NUL */
#define NETWORK_RULE_MAX  640  /* a rule's text, with its group, including the NUL */
#define NETWORK_GROUP_MAX 32   /* the name of a group, including the NUL */
#define NETWORK_RULES_MAX 1024 /* of a table, with the line before them */
#define NETWORK_TEXT_MAX  (64 << 10) /* the serialised form */
#define NETWORK_MAGIC     "cay-network 1 "

#define NETWORK_CONNECTIONS_MAX 256          /* a limit on connections */
#define NETWORK_RATE_MIN        1024         /* a limit on bytes a second */
#define NETWORK_LIMIT_MAX       (1ull << 50) /* every limit */
#define NETWORK_ASK_MAX_MS      (7ull * 24 * 3600 * 1000)

enum network_mode {
    NETWORK_RULES = 1, /* only what a rule allows; a rule that denies comes first */
    NETWORK_OPEN = 2,  /* every public address, but for rules that deny */
    NETWORK_E2B = 3,   /* as NETWORK_OPEN, but a rule that allows comes first, a rule for
                          addresses covers every port, and none opens private ones */
};

/* What a sandbox may use of its network, in both directions together; 0: no limit. */
enum network_limit {
    NETWORK_CONNECTIONS, /* at a time */
    NETWORK_BYTES,       /* in all */
    NETWORK_RATE,        /* bytes a second */
    NETWORK_LIMITS
};

struct network_limits {
    uint64_t at[NETWORK_LIMITS];
};

struct network_rules;
struct network_groups;

/* `texts` are rules as a user writes them.  `groups` NULL or empty: the built-in ones.
 * CAY_E_INVALID names the rule and what is allowed instead. */
int network_rules_new(enum network_mode mode, const char *const *texts, size_t count,
                      const struct network_groups *groups,
                      struct network_rules **ret_rules, struct cay_error *err);

/* The same with the rules of `first`, unless it is NULL, before them. */
int network_rules_add(const struct network_rules *first, enum network_mode mode,
                      const char *const *texts, size_t count,
                      const struct network_groups *groups,
                      struct network_rules **ret_rules, struct cay_error *err);
int network_rules_copy(const struct network_rules *rules, struct network_rules **ret_copy,
                       struct cay_error *err);
void network_rules_free(struct network_rules *rules); /* NULL is allowed */

static inline void auto_network_rules(struct network_rules *const *rules)
{
    network_rules_free(*rules);
}
#define AUTO_NETWORK_RULES                                                               \
    __attribute__((cleanup(auto_network_rules))) struct network_rules *

/* The serialised form, to send and to store: lines of text, a version and the mode
 * first, groups expanded.  Reading checks everything that network_rules_new() checks. */
bool network_rules_write(const struct network_rules *rules, struct buf *text);
int network_rules_read(const char *text, size_t len, struct network_rules **ret_rules,
                       struct cay_error *err);

enum network_mode network_rules_mode(const struct network_rules *rules);
const struct network_limits *network_rules_limits(const struct network_rules *rules);

/* For a table that is not used yet. */
int network_rules_set_limits(struct network_rules *rules,
                             const struct network_limits *limits, struct cay_error *err);

/* How long a connection that no rule allows or denies waits for approval; 0: it is
 * refused.  With NETWORK_E2B such connections then are not allowed, either. */
int network_rules_set_ask(struct network_rules *rules, uint64_t ms,
                          struct cay_error *err);
uint64_t network_rules_ask(const struct network_rules *rules);
const char *network_limit_slug(enum network_limit limit); /* "bytes" */
const char *network_mode_slug(enum network_mode mode);    /* "rules", "open", "e2b" */
size_t network_rules_count(const struct network_rules *rules);

/* A rule in its one spelling, without its group. */
void network_rules_text(const struct network_rules *rules, size_t index,
                        char ret_text[NETWORK_RULE_MAX]);

/* The group that it comes from, or NULL. */
const char *network_rules_group(const struct network_rules *rules, size_t index);

/* --- Verdicts --- */

enum network_verdict {
    NETWORK_DENY = 0,
    NETWORK_ALLOW = 1,
    NETWORK_INSPECT = 2, /* each request needs network_check_request(); what is not HTTP,
                            or TLS that stays closed, must be refused */
};

struct network_answer {
    enum network_verdict verdict;
    bool may_ask; /* with DENY: no rule denies it, and it may wait for approval */
    char rule[NETWORK_RULE_MAX]; /* the rule that decides, or "default" */
    char why[768];               /* one or two sentences for people and models */
};

/* Before a lookup.  `name` may be in any case and end in a dot; a name that is none is
 * denied.  (Bytes from a packet may contain NUL: network_name_clean() takes a length.)
 * `port` 0: some port, for a question of DNS. */
void network_check_name(const struct network_rules *rules, const char *name,
                        uint16_t port, struct network_answer *ret_answer);

/* An address that no name led to.  `own` are addresses of the host, which only a rule for
 * exactly that address allows. */
void network_check_address(const struct network_rules *rules,
                           const struct network_address *address, uint16_t port,
                           const struct network_addresses *own,
                           struct network_answer *ret_answer);

/* An address that the lookup of a name returned.  Includes network_check_name(). */
void network_check_resolved(const struct network_rules *rules, const char *name,
                            const struct network_address *address, uint16_t port,
                            const struct network_addresses *own,
                            struct network_answer *ret_answer);

/* One request to a host for which the verdict was NETWORK_INSPECT (or NETWORK_ALLOW).
 * `path` is the request's target from its first "/"; what follows "?" does not count. */
void network_check_request(const struct network_rules *rules, const char *name,
                           uint16_t port, const char *method, const char *path,
                           struct network_answer *ret_answer);

/* The names for which some rule has methods or a path, at most `room`, into `ret_names`;
 * those below a name are the name.  False if that may be any name. */
bool network_rules_inspected(const struct network_rules *rules, const char **ret_names,
                             size_t room, size_t *ret_count);

/* "pypi, api.example.com:443, and 12 more": what is allowed, for messages. */
struct words_list;
const char *network_rules_list(const struct network_rules *rules,
                               struct words_list *list);

/* --- Names --- */

/* Whether the name of a group may be this: lower-case letters, digits, "-" and "_". */
bool network_is_group(const char *word);

/* Lower case and without a final dot.  NULL if `text` is a host name, else what is wrong
 * with it: letters, digits, "-" and "_" in labels of up to 63 bytes, 253 in all, the last
 * label no number (that is an address in disguise). */
const char *network_name_clean(const char *text, size_t len,
                               char ret_name[NETWORK_NAME_MAX]);

#endif
