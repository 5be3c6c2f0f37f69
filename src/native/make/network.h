/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_NETWORK_H
#define NATIVE_MAKE_NETWORK_H

#include "native/make/launch.h"
#include "native/record/runtime.h"
#include "network/rules.h"
#include "relay/relay.h"

/* A cay-net that is being started, beside PID 1: see relay/relay.h.  Zeroed: none. */
struct network {
    const struct network_rules *rules; /* NULL: the network is not relayed */
    struct network_rules *own;         /* the same, if no policy owns them */
    struct starter *starter;           /* NULL: not started */
    int socket;                        /* to cay-net */
    bool is_serving, has_owners;
    /* The same of cay-net-tls, if requests are to be read. */
    bool is_inspected;
    struct starter *opener;
    int opener_socket;
    int links;       /* from cay-net to cay-net-tls; -1: none */
    char *authority; /* of cay-net-tls, as text */
    bool has_headers;
    char *secrets;    /* in the form of tls/secret.h; NULL: none */
    char *opened;     /* their hosts, a line for each */
    char *variables;  /* "NAME=placeholder", a text after the other */
    const char **env; /* of the sandbox, instead of that of the options; or NULL */
};

/* The rules of the options, if they request a network by rules, or of the stopped sandbox
 * `start` on disk.  They belong to the policy, or are freed by network_drop_rules(). */
int network_take_rules(const struct cay_sandbox_options *options, const char *start,
                       struct network *network, struct cay_error *err);
enum cay_network network_kind(const struct network_rules *rules);
void network_drop_rules(struct network *network);

/* Starts cay-net, and cay-net-tls if it is needed, in the cgroup `group` (-1: ours) and
 * returns at once.  They are not children of this process, and exit unless network_send()
 * follows. */
int network_start(int group, const struct record *record, struct network *network,
                  struct cay_error *err);

/* Waits until cay-net-tls, if it is needed, is confined, and takes its authority. */
int network_wait_authority(struct network *network, struct cay_error *err);

/* Sends the sockets of the sandbox's network and the rules.  cay-net then serves until
 * PID 1 ends.  The record gets its pid. */
int network_send(struct network *network, const struct launch *launch,
                 struct record *record, struct cay_error *err);

/* Waits until it is confined and serves. */
int network_wait(struct network *network, struct cay_error *err);

/* To be called after network_start(); cay-net ends unless it serves. */
void network_done(struct network *network);

/* Stores the rules with a sandbox on disk, for its next start. */
int network_store(const struct network_rules *rules, const char *id,
                  struct cay_error *err);

/* Gives a running sandbox other rules: connections that they do not allow are cut before
 * this returns.  The caller holds the record's lock. */
int network_change(struct record *record, const struct network_rules *rules,
                   struct cay_error *err);

/* Sends an order with `len` bytes of text after it to a serving cay-net. */
int network_request(const char *id, enum relay_order order, const char *text, size_t len,
                    struct relay_reply *ret_reply, struct cay_error *err);

/* The destinations that wait for approval. */
int network_list_asked(const char *id, struct relay_asked *ret_asked,
                       struct cay_error *err);

#endif
