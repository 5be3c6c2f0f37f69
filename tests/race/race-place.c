/* SPDX-License-Identifier: Apache-2.0 */

/* A file of this machine is written over while somebody swaps its name with a link to
 * what is no file: whatever was looked at is what is replaced. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "agent/transfer.h"
#include "cli/local-file.h"

enum { ROUNDS = 5000, ROUNDS_EACH = 64, EXCHANGE = 2 };

static char out[256], other[256], fifo[256];
static atomic_bool over;

static void *swap(void *cookie)
{
    (void)cookie;
    while (!atomic_load(&over))
        (void)syscall(SYS_renameat2, AT_FDCWD, out, AT_FDCWD, other, EXCHANGE);
    return NULL;
}

static void begin(pthread_t *thread)
{
    snprintf(out, sizeof out, "%s", scratch_path("out"));
    snprintf(other, sizeof other, "%s", scratch_path("other"));
    snprintf(fifo, sizeof fifo, "%s", scratch_path("fifo"));
    (void)unlink(out);
    (void)unlink(other);
    (void)unlink(fifo);
    put_file("out", "");
    ASSERT(symlink(fifo, other) == 0 && mkfifo(fifo, 0644) == 0);
    atomic_store(&over, false);
    ASSERT(pthread_create(thread, NULL, swap, NULL) == 0);
}

static void race(bool (*write_over)(void))
{
    int written = 0;

    for (int i = 0; i < ROUNDS / ROUNDS_EACH; i++) {
        pthread_t thread;
        struct stat st;
        begin(&thread);
        for (int k = 0; k < ROUNDS_EACH; k++)
            written += write_over();
        atomic_store(&over, true);
        ASSERT(pthread_join(thread, NULL) == 0);
        ASSERT(lstat(fifo, &st) == 0 && S_ISFIFO(st.st_mode));
    }
    ASSERT(written > 0);
}

static bool by_cp(void)
{
    AUTO_LOCAL_FILE file = LOCAL_FILE_NONE;

    return local_file_create(out, 0644, &file, &err) == CAY_OK &&
           local_file_commit(&file, out, &err) == CAY_OK;
}

TEST(a_copy_replaces_what_it_looked_at)
{
    race(by_cp);
}

static bool by_download(void)
{
    AUTO_HOST_FILE file = HOST_FILE_NONE;
    const struct cay_stat stat = {.mode = 0644};

    return host_file_open(out, &file, &err) == CAY_OK &&
           host_file_commit(&file, out, &stat, &err) == CAY_OK;
}

TEST(a_download_replaces_what_it_looked_at)
{
    race(by_download);
}
