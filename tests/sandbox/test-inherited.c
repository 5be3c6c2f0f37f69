/* SPDX-License-Identifier: Apache-2.0 */

/* What a process has from who started it (limits, priorities, the umask), and what of
 * that comes into a sandbox. */
#include <fcntl.h>
#include <sys/stat.h>

#include "ladder.h"

/* --- The umask --- */

static void forbid_it_oneself(void)
{
    static const mode_t masks[] = {0777, 0277, 0077};

    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        cay_sandbox *again = NULL;
        umask(masks[i]);
        AUTO(cay_sandbox) sandbox = make_on(rung_here);
        ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
        run(again, "umask; stat -c %a /tmp .");
        ASSERT_STR(result.out, "0022\n1777\n755\n");
        cay_sandbox_free(again);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        char path[200];
        snprintf(path, sizeof path, "%s/cay/ranges", getenv("XDG_RUNTIME_DIR"));
        (void)rmdir(path);
        *strrchr(path, '/') = '\0';
        ASSERT_INT(rmdir(path), 0); /* so that the next one makes it again */
    }
    cay_exec_done(&result);
}

TEST(who_makes_a_sandbox_may_have_any_umask)
{
    on_rung(CAY_RUNG_RANGE, forbid_it_oneself);
    on_rung(CAY_RUNG_SINGLE, forbid_it_oneself);
}
