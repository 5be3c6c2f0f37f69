/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_JOIN_H
#define NATIVE_MAKE_JOIN_H

#include "init/protocol.h"
#include "native/record/runtime.h"

/* Named networks: see docs/design/network.md. */

/* Whether `networks` of the options are valid, and what the sandbox `name` (its id, if it
 * has none) is called in them: "NETWORK:NAME NETWORK:NAME". */
int join_plan(const char *const *networks, const char *name,
              char ret_text[CAY_NETWORKS_MAX], struct cay_error *err);

/* A connection to PID 1 on which it serves one kind of request alone, MESSAGE_DIAL_ONLY
 * or MESSAGE_OWNERS_ONLY; or a negative errno. */
int join_connect(const char *id, enum message_kind kind);

/* Connects the sandbox, whose cay-net serves, with the other members of its networks.
 * CAY_E_EXISTS: another member has its name. */
int join_networks(const struct record *record, struct cay_error *err);

#endif
