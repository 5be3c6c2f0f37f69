/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_REQUEST_H
#define INIT_REQUEST_H

#include "init/packet.h"
#include "init/plan.h"
#include "init/user.h"

/* A parsed and checked EXEC message. */
struct request {
    char **argv, **env;
    const char *cwd;  /* as requested */
    const char *base; /* what a relative cwd is relative to; "": home */
    const char *tag;  /* "": none */
    struct user user;
    unsigned flags; /* enum exec_flag */
    uint64_t timeout_ms, mark;
    uint16_t rows, columns;
    int stdio[3];   /* the request's own, or -1 */
    int keep_input; /* the same */
    char *strings;  /* what the above points into */
    char *defaults; /* HOME=, USER=, ... */
    bool is_own;    /* the program is PID 1's own image; argv[0] selects its part */
};

/* Sets the default user, directory and environment; both pointers must stay valid.  False
 * if they are malformed. */
bool request_set_defaults(const struct plan_defaults *defaults, const char *env);
const char *request_default_user(void);
const char *request_workdir(void); /* "": the user's home */

void request_init(struct request *request); /* empty */

/* Into an empty request; call request_done() in any case. */
int request_parse(struct packet *packet, struct request *ret_request,
                  struct cay_error *err);
void request_done(struct request *request);

/* The same for a part of PID 1's own image, called `name`.  `user` "": the default. */
int request_make_own(struct request *request, const char *user, const char *name,
                     struct cay_error *err);

#endif
