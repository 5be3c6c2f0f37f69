/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_WORLD_H
#define ESCAPE_WORLD_H

#include <sys/types.h>

#include "../unit/harness.h"
#include "cay/sandbox.h"

/* The host as the probes would find it if they got out: a file with a secret, a process,
 * sockets.  world_begin() makes it in the test's scratch directory and takes the ledger;
 * world_end() takes it down and fails the test if anything is not as it was. */
void world_begin(void);
void world_end(void);

extern char world_token[33]; /* must never be read inside, or come out of there */
extern int world_canary_fd;  /* the directory with the secret in it */

/* "NAME=value" for the probes' environment: where everything would be. */
char *const *world_facts(void);

/* The static program; its bytes are there for the asking. */
const char *world_probe_path(void);
extern int world_probe_fd;
extern const char *world_probe;
extern size_t world_probe_len;

/* How many connections and datagrams reached the host. */
int world_visits(void);

/* A sandbox at the level that CAY_ESCAPE_LEVEL names (root, range, single, landlock; the
 * best there is if it is not set) and with the probe in it.  If CAY_ESCAPE_POOL is set,
 * it is claimed from a pool.  Killed by world_end(), which then looks for leftovers;
 * several may live. */
cay_sandbox *world_sandbox(const struct cay_sandbox_options *options);
enum cay_level world_level(void);
const char *
world_level_name(void); /* " on range", " on pooled range", or "" if it is the best */

const char *world_inside(void); /* where the probe is there */

/* The same without the probe.  May fail, with its code. */
int world_bare_sandbox(const struct cay_sandbox_options *options,
                       cay_sandbox **ret_sandbox);

/* That run in it, without PID 1 and its helpers; those that are dead do not count. */
size_t world_processes(const cay_sandbox *sandbox);
size_t world_outside_cgroup(const cay_sandbox *sandbox); /* those that got out of it */

/* Its PID 1, as the host knows it; -1 if there is none. */
pid_t world_init(const cay_sandbox *sandbox);

/* Of what was run last, until the next or the end of the world. */
extern struct cay_exec_result result;

/* A script, a probe or a load, as `user` (NULL: the default). */
void world_run(cay_sandbox *sandbox, const char *user, const char *script);
void world_probe_as(cay_sandbox *sandbox, const char *user, const char *name);
void world_load(cay_sandbox *sandbox, const char *kind, long amount, uint64_t timeout_ms);
void world_load_as(cay_sandbox *sandbox, const char *user, const char *kind, long amount,
                   uint64_t timeout_ms);
long world_made(void); /* of the load that ran last, and */
int world_errno(void); /* what stopped it */

/* A second thread of control: runs `what` in a child process, which ends with its return
 * value; world_join() waits for it and asserts 0. */
pid_t world_fork(int (*what)(void *cookie), void *cookie);
void world_join(pid_t child);

double world_now(void);

#endif
