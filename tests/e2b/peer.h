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

/* Sends it a line (see Control in peer.py); its answer lives until the next one. */
const char *tell_peer(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* How many requests matched since the last time anybody asked. */
int count_requests(const char *regex);

/* Until nothing runs in its sandboxes any more: somebody who watched a command that was
 * ended notices a moment later. */
void await_silence(void);

/* A configuration for it with these lines beside; the suite's. */
const cay_config *configure(const char *more);

/* A sandbox of that, by the backend's own table; freed, and gone, with the peer. */
void *make_box(const char *more);

/* What `script` writes to stdout; it must be a success.  Until the next command. */
const char *told(void *box, const char *script);

extern struct cay_exec_result result; /* of the last command */

/* `sh -c script`; the code. */
int run_script(void *box, const char *script, uint64_t timeout_ms,
               struct cay_error *error);

#endif
