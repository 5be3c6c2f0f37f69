/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NETWORK_RULE_H
#define NETWORK_RULE_H

/* One rule, between the files of network/. */

#include "network/rules.h"

enum network_kind { NETWORK_NAME, NETWORK_BELOW, NETWORK_ANY, NETWORK_RANGE };

struct network_rule {
    enum network_kind kind;
    bool denies;
    uint8_t bits;       /* of a range */
    uint8_t methods;    /* a bit for each; 0: all */
    uint16_t low, high; /* ports; low 0: the default ones */
    struct network_address range;
    const char *name;  /* of NAME; of BELOW with its dot: ".example.com" */
    const char *path;  /* without its first "/", or NULL */
    const char *group; /* or NULL */
};

struct network_rules {
    enum network_mode mode;
    struct network_limits limits;
    uint64_t ask_ms;
    char *text; /* what the rules point into */
    size_t count;
    struct network_rule at[];
};

/* Cuts `text` into the parts that the rule then points to. */
int network_rule_parse(char *text, struct network_rule *ret_rule, struct cay_error *err);

/* The rule in its one spelling, without its group. */
void network_rule_format(const struct network_rule *rule,
                         char ret_text[NETWORK_RULE_MAX]);

/* 0: none that a rule can name. */
uint8_t network_method_bit(const char *method, size_t len);

/* A path as it is compared: cut at "?", what need not be percent-encoded decoded.  False
 * if servers may take it for another path ("..", "//", an encoded slash), or it does not
 * fit. */
bool network_path_clean(const char *path, char *ret_path, size_t room);

#endif
