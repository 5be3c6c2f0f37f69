/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_KEEPER_WATCH_H
#define SERVER_KEEPER_WATCH_H

#include <limits.h>

#include "server/keeper/keep.h"

/* Directories that clients watch: keep-watch.c. */

struct node {
    struct node *next;
    int wd;
    char below[]; /* the watched directory, with a slash at its end; "" is that itself */
};

struct event {
    struct event *next;
    enum change change;
    char name[]; /* below the watched directory */
};

struct watch {
    struct task task; /* of a stream */
    struct watch *next;
    struct keep_source client;
    struct node *nodes;
    struct node *found; /* still to be covered: a tree may be deeper than the stack */
    struct event *events, **last;
    size_t event_count;
    unsigned flags;
    bool is_stream, is_blocked;
    bool has_lost; /* changes, and nobody was told of that */
    int missed;    /* why a directory is not covered, if nobody was told; an errno */
    char *id;      /* of one that is asked for its changes */
    char user[USER_MAX];
    char path[PATH_MAX];
};

struct watching {
    struct keep_source source;
    int inotify;
    struct watch *watches;
    size_t watch_count, node_count, event_bytes;
    unsigned numbers;
};

/* Covers what the question names; to be freed. */
int watch_new(struct keep *keep, const struct question *question,
              struct watch **ret_watch, struct cay_error *err);
void watch_free(struct watching *watching, struct watch *watch);

/* A directory cannot be watched; E2BIG: there are as many as there may be. */
int watch_fail(const struct watch *watch, int error, struct cay_error *err);

/* There were more changes than it has room for. */
int watch_fail_lost(const struct watch *watch, struct cay_error *err);

/* Tells the first of its changes: 0, or a negative errno. */
int watch_tell(struct keep *keep, int channel, const struct watch *watch);
void watch_drop_event(struct watching *watching, struct watch *watch);

/* Some of what the kernel has to say until now; false if there was nothing. */
bool watching_hear(struct keep *keep);

#endif
