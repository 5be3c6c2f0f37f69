/* SPDX-License-Identifier: Apache-2.0 */
#include "server/commands.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "base/error.h"

static struct serve_options options = {.address = "127.0.0.1", .port = 3000};

TEST(live_file_is_removed_by_the_server_that_wrote_it)
{
    struct live live;

    cay_copy_text(options.home, sizeof options.home, scratch());
    live_write(&options, "store");
    ASSERT_INT(live_find(options.home, "store", &live), 1);
    live_remove();
    ASSERT_INT(live_find(options.home, "store", &live), 0);
}

/* L1: the same port, at another address. */
TEST(live_file_of_another_server_is_not_removed)
{
    static const char line[] = "127.0.0.2 3000 0 -\nstore\n";
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX + 32];
    struct live live;

    cay_copy_text(options.home, sizeof options.home, scratch());
    snprintf(path, sizeof path, "%s/serve-3000.live", options.home);
    int other = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT(other >= 0 && fcntl(other, F_OFD_SETLK, &lock) == 0);
    ASSERT_INT(write(other, line, sizeof line - 1), sizeof line - 1);
    live_write(&options, "store");
    live_remove();
    ASSERT_INT(live_find(options.home, "store", &live), 1);
    ASSERT_STR(live.address, "127.0.0.2");
    close(other);
}
