/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_STARTED_H
#define SERVER_KEEPER_STARTED_H

#include "server/keeper/keep.h"

/* A command of ours: how it was started, and for a while how it ended. */
struct started {
    struct started *next;
    int pid;
    char tag[64];
    bool has_pty;
    uint32_t argc, envc, count;
    struct buf strings;  /* cwd, argv, env */
    int64_t deadline_ms; /* 0: none */
    int64_t ended_ms;    /* 0: it runs, as far as we know */
    struct tell end;
    char status[128];
};

/* By number or tag: where the pointer to it is, which points to NULL if there is none. */
struct started **started_find(struct keep *keep, const char *which);

void started_add(struct keep *keep, const struct question *question, int pid);

/* Forgets those that ended some time ago. */
void started_tidy(struct keep *keep);

/* The handle of a stream that reads it, or NULL. */
cay_process *started_handle(struct keep *keep, int pid);

#endif
