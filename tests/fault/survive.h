/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SURVIVE_H
#define TESTS_SURVIVE_H

#include "../unit/harness.h"

/* An operation is run again and again: the first time its first allocation fails, then
 * its second, and so on until a run meets no failure.  A run that fails must say
 * CAY_E_NO_MEMORY and leave the files as they were, byte for byte; one that succeeds all
 * the same must have done its whole work; none may leave memory, descriptors or stray
 * names. */

enum { LARGE = 300000 };

/* What the operations act on: data/, other/ and docs/, made anew for each run. */
extern char world[4096];
extern cay_policy *policy;
extern cay_files *files;
extern char large[LARGE]; /* the content of data/large.txt */
extern bool far_apart;    /* as if the mounts were on two file systems */
extern const struct cay_files_options asking;

void make_world(void);
void open_world(void);
void close_world(void);

/* Where a name in the world is on the host; valid until the next call. */
const char *place(const char *name);

enum wholeness {
    WHOLE, /* all or nothing */
    PARTS  /* made of parts, each of which is all or nothing */
};

/* `run` returns a code, frees what it was given, and fills in `*error` if it fails. */
void survive(int (*run)(void), enum wholeness wholeness, struct cay_error *error);

/* Defines an operation and the test that it survives. */
#define SURVIVES(name, wholeness)                                                        \
    static int name(void);                                                               \
    TEST(name##_survives_any_failing_allocation)                                         \
    {                                                                                    \
        survive(name, wholeness, &err);                                                  \
    }                                                                                    \
    static int name(void)

#endif
