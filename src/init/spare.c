/* SPDX-License-Identifier: Apache-2.0 */
#include "init/spare.h"

#include <signal.h>

#include "base/clock.h"

enum { LEAVES = 8, WAIT_MS = 1000 };

static unsigned next_leaf;
static struct leaf leaves[LEAVES];
static size_t leaf_count;

static bool is_wanted;
static struct child {
    struct birth *birth; /* NULL if there is none */
    struct leaf leaf;
    pid_t pid;
    uint64_t until_ns;
    bool leaving; /* it was told to end */
} child = {.leaf = LEAF_NONE};

int spare_take_leaf(struct leaf *ret_leaf)
{
    if (leaf_count > 0) {
        *ret_leaf = leaves[--leaf_count];
        return 0;
    }
    return leaf_open(next_leaf++, ret_leaf);
}

void spare_keep_leaf(struct leaf *leaf)
{
    if (leaf_count < LEAVES)
        leaves[leaf_count++] = *leaf;
    else
        leaf_close(leaf);
}

struct birth *spare_birth(void)
{
    return child.leaving ? NULL : child.birth;
}

pid_t spare_take(struct leaf *ret_leaf)
{
    struct birth *birth = child.birth;
    pid_t pid = child.pid;

    *ret_leaf = child.leaf;
    child = (struct child){.leaf = LEAF_NONE};
    birth_go(birth);
    return pid;
}

pid_t spare_pid(void)
{
    return child.birth ? child.pid : 0;
}

void spare_want(void)
{
    is_wanted = true;
}

bool spare_is_wanted(void)
{
    return is_wanted && !child.birth;
}

void spare_make(void)
{
    struct birth *birth = birth_new();
    struct leaf leaf = LEAF_NONE;

    is_wanted = false;
    if (!birth || spare_take_leaf(&leaf) != 0) {
        birth_free(birth);
        return;
    }
    pid_t pid = birth_begin(birth, &leaf);
    if (pid < 0) {
        birth_free(birth);
        spare_keep_leaf(&leaf);
        return;
    }
    child = (struct child){birth, leaf, pid, clock_ns() + WAIT_MS * 1000000ull, false};
}

static void dismiss(void)
{
    child.leaving = true;
    (void)kill(child.pid, SIGKILL);
}

bool spare_reaped(pid_t pid)
{
    if (!child.birth || pid != child.pid)
        return false;
    birth_free(child.birth);
    spare_keep_leaf(&child.leaf);
    child = (struct child){.leaf = LEAF_NONE};
    return true;
}

void spare_tend(void)
{
    if (child.birth && !child.leaving && clock_ns() >= child.until_ns)
        dismiss();
}

uint64_t spare_next_ns(void)
{
    return child.birth && !child.leaving ? child.until_ns : UINT64_MAX;
}
