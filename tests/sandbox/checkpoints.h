/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CHECKPOINTS_H
#define TESTS_CHECKPOINTS_H

#include "inside.h"
#include "native/make/visit.h"
#include "native/native.h"
#include "sandbox/backend.h"

/* Checkpoints need Linux 6.15. */
static inline void need_store(void)
{
    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    if (store == -ENOENT)
        SKIP("this kernel cannot mount parts of a detached tmpfs");
}

static inline struct cay_checkpoint seal(cay_sandbox *sandbox, const char *name)
{
    const struct cay_checkpoint_options options = {.size = sizeof options, .name = name};
    struct cay_checkpoint checkpoint = {0};

    ASSERT_OK(cay_sandbox_checkpoint(sandbox, &options, &checkpoint, &err));
    return checkpoint;
}

static inline struct cay_checkpoint back(cay_sandbox *sandbox, const char *which)
{
    struct cay_checkpoint undone;

    ASSERT_OK(cay_sandbox_rollback(sandbox, which, &undone, &err));
    return undone;
}

static inline void expect_output(cay_sandbox *sandbox, const char *script,
                                 const char *text)
{
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.out, text);
}

#endif
