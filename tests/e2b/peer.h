/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_E2B_PEER_H
#define TESTS_E2B_PEER_H

#include "../unit/harness.h"
#include "cay/backend.h"
#include "sandbox/backend.h"

/* A test with a peer.py of its own. */
#define WITH_PEER(name)                                                                  \
    static void with_##name(void);                                                       \
    TEST(name)                                                                           \
    {                                                                                    \
        start_peer();                                                                    \
        with_##name();                                                                   \
        stop_peer();                                                                     \
    }                                                                                    \
    static void with_##name(void)

void start_peer(void);
void stop_peer(void);
const char *peer_url(void);

/* Sends a line to the peer (see Control in peer.py); the reply is valid until the next.
 */
const char *peer_request(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The number of requests that matched since the last call. */
int count_requests(const char *regex);

/* Waits until no process runs in the peer's sandboxes: the helper that watched a command
 * exits a moment after it. */
void await_silence(void);

/* A configuration for the peer with these lines added; stop_peer() frees it. */
const cay_config *configure(const char *more);

/* A sandbox of that configuration; stop_peer() frees it. */
void *make_box(const char *more);

/* The standard output of a script that succeeds; valid until the next command. */
const char *output_of(void *box, const char *script);

extern struct cay_exec_result result; /* of the last command */

/* Runs `sh -c script` and returns the code. */
int run_script(void *box, const char *script, uint64_t timeout_ms,
               struct cay_error *error);

#endif
