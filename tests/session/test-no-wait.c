/* SPDX-License-Identifier: Apache-2.0 */

/* Starts and pauses that nobody waits for. */
#include <signal.h>

#include "session/manager.h"
#include "sessions.h"

TEST(a_start_goes_on_while_nobody_waits)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    ASSERT_OK(cay_manager_start_no_wait(manager, &err)); /* again is fine */
    ASSERT_OK(cay_manager_wait(manager, &err));
    ASSERT(cay_manager_is_running(manager));
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id,
               cay_sandbox_id(sandbox_of(manager)));
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_start_no_wait(manager, &err)); /* it runs */
    cay_sandbox *sandbox = sandbox_of(manager);
    ASSERT_OK(cay_manager_pause_no_wait(manager, &err));
    ASSERT_OK(cay_manager_wait(manager, &err));
    ASSERT_INT(get_session(store, "ann", "s")->state, CAY_STATE_PAUSED);
    ASSERT(!cay_manager_is_running(manager));
    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    ASSERT(sandbox_of(manager) == sandbox);
    ASSERT_STR(told(sandbox, "echo on"), "on");
    ASSERT_OK(cay_manager_pause_no_wait(manager, &err));
    ASSERT_STR(told(sandbox_of(manager), "echo again"), "again");
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

TEST(is_running_becomes_true_without_a_wait)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    for (int i = 0; i < 60000 && !cay_manager_is_running(manager); i++)
        nanosleep(&moment, NULL);
    ASSERT(cay_manager_is_running(manager));
    ASSERT_OK(cay_manager_stop(manager, &err));
    assert_empty_world();
}

TEST(a_manager_that_is_freed_meanwhile_has_started_its_session)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    cay_manager *manager = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    cay_manager_free(manager);
    ASSERT_INT(state_of(get_session(store, "ann", "s")->sandbox_id), CAY_STATE_RUNNING);
    manager = manage(store, "s", NULL);
    ASSERT_OK(cay_manager_stop(manager, &err));
    cay_manager_free(manager);
    assert_empty_world();
}

TEST(a_store_in_memory_and_none_will_do)
{
    need_own_world();
    AUTO(cay_store) store = NULL;
    ASSERT_OK(cay_store_open(":memory:", &store, &err));
    AUTO(cay_manager) kept = manage(store, "s", NULL);
    AUTO(cay_manager) lost = manage(NULL, NULL, NULL);

    ASSERT_OK(cay_manager_start_no_wait(kept, &err));
    ASSERT_OK(cay_manager_start_no_wait(lost, &err));
    ASSERT_STR(told(sandbox_of(kept), "echo kept"), "kept");
    ASSERT_STR(told(sandbox_of(lost), "echo lost"), "lost");
    ASSERT_STR(get_session(store, "ann", "s")->sandbox_id,
               cay_sandbox_id(sandbox_of(kept)));
    ASSERT_OK(cay_manager_pause_no_wait(lost, &err));
    ASSERT_OK(cay_manager_stop(kept, &err));
    ASSERT_OK(cay_manager_stop(lost, &err));
    assert_empty_world();
}

TEST(managers_that_start_one_session_share_its_sandbox)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) one = manage(store, "s", NULL);
    AUTO(cay_manager) other = manage(store, "s", NULL);
    cay_session_lock *lock = NULL;

    ASSERT_OK(cay_session_lock_take(store, "ann", "s", 0, &lock, &err));
    ASSERT_OK(cay_manager_start_no_wait(one, &err)); /* must not wait for the lock */
    cay_session_lock_free(lock);
    ASSERT_OK(cay_manager_start_no_wait(other, &err));
    ASSERT_STR(cay_sandbox_id(sandbox_of(one)), cay_sandbox_id(sandbox_of(other)));
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_session_lock_take(store, "ann", "s", 0, &lock, &err));
    ASSERT_OK(cay_manager_pause_no_wait(one, &err));
    cay_session_lock_free(lock);
    ASSERT_OK(cay_manager_wait(one, &err));
    ASSERT_INT(get_session(store, "ann", "s")->state, CAY_STATE_PAUSED);
    ASSERT_OK(cay_manager_stop(one, &err));
    assert_empty_world();
}

/* Between the end of the child and the wait, anybody may start the session. */
TEST(a_start_that_nobody_has_waited_for_gives_way)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) one = manage(store, "s", NULL);
    AUTO(cay_manager) other = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_start_no_wait(one, &err));
    ASSERT_STR(told(sandbox_of(other), "echo mine > file; cat file"), "mine");
    ASSERT_STR(told(sandbox_of(one), "cat file"), "mine");
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_stop(one, &err));
    assert_empty_world();
}

TEST(a_child_that_dies_is_told_and_leaves_nothing)
{
    need_own_world();
    AUTO(cay_store) store = open_store();
    AUTO(cay_manager) manager = manage(store, "s", NULL);

    ASSERT_OK(cay_manager_start_no_wait(manager, &err));
    ASSERT_INT(kill(manager->away.pid, SIGKILL), 0);
    int code = cay_manager_wait(manager, &err); /* it may have been quicker */
    ASSERT(code == CAY_E_KILLED || code == CAY_OK);
    ASSERT_STR(told(sandbox_of(manager), "echo up"), "up");
    ASSERT_INT(count_sandboxes(), 1);
    ASSERT_OK(cay_manager_stop(manager, &err));
}
