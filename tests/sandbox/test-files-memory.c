/* SPDX-License-Identifier: Apache-2.0 */

/* Finding S4: what is written from outside counts against the memory limit. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "inside.h"

enum { MIB = 1 << 20 };

static cay_sandbox *with_memory(uint64_t bytes)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .memory_bytes = bytes, .disk_bytes = bytes};

    return make_sandbox(&options);
}

static uint64_t memory_used(cay_sandbox *sandbox)
{
    struct cay_sandbox_info info;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    return info.memory_used;
}

/* Not all of one byte: that would be kept as a hole. */
static char *content(size_t len)
{
    char *data = malloc(len);

    ASSERT(data);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    return data;
}

TEST(S4_files_written_from_outside_count_against_the_memory_limit)
{
    AUTO(cay_sandbox) sandbox = with_memory(64 * MIB);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO_FREE char *data = content(8 * MIB);
    (void)told(sandbox, "true");
    /* The kernel counts in batches, and its own memory goes up and down. */
    uint64_t before = memory_used(sandbox) - 2 * MIB;
    int ends[2];

    ASSERT_OK(cay_files_write(files, "whole", data, 8 * MIB, NULL, &err));
    ASSERT(memory_used(sandbox) >= before + 8 * MIB);
    const struct cay_write_options more = {.size = sizeof more,
                                           .flags = CAY_WRITE_APPEND};
    ASSERT_OK(cay_files_write(files, "whole", data, 4 * MIB, &more, &err));
    ASSERT(memory_used(sandbox) >= before + 12 * MIB);
    ASSERT_OK(cay_files_copy(files, "whole", "copied", NULL, &err));
    ASSERT(memory_used(sandbox) >= before + 24 * MIB);
    int from = memfd_create("stream", MFD_CLOEXEC);
    ASSERT(write(from, data, 8 * MIB) == 8 * MIB && lseek(from, 0, SEEK_SET) == 0);
    ASSERT_OK(cay_files_write_from(files, "stream", from, NULL, NULL, &err));
    close(from);
    ASSERT(memory_used(sandbox) >= before + 32 * MIB);
    /* A pipe does not tell how much comes: what was taken for more is given back. */
    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    ASSERT(write(ends[1], "short", 5) == 5);
    close(ends[1]);
    ASSERT_OK(cay_files_write_from(files, "short", ends[0], NULL, NULL, &err));
    close(ends[0]);
    ASSERT_STR(told(sandbox, "cd /home/user; stat -c '%s %b' short && cmp copied whole"),
               "5 8");
    cay_exec_done(&result);
}

TEST(S4_a_file_beyond_the_memory_limit_is_refused_and_ends_no_command)
{
    AUTO(cay_sandbox) sandbox = with_memory(32 * MIB);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO_FREE char *data = content(40 * MIB);

    (void)told(sandbox, "cd /home/user; sleep 60 >/dev/null 2>&1 & echo $! > /root/pid");
    put(files, "f", "old");
    ASSERT_INT(cay_files_write(files, "f", data, 40 * MIB, NULL, &err), CAY_E_NO_SPACE);
    ASSERT(strstr(err.message, "memory limit") && strstr(err.hint, "-m"));
    expect(files, "f", "old");
    ASSERT_INT(cay_files_write(files, "new", data, 40 * MIB, NULL, &err), CAY_E_NO_SPACE);
    ASSERT_OK(cay_files_write(files, "fits", data, 8 * MIB, NULL, &err));
    ASSERT_STR(told(sandbox, "ls /home/user; kill -0 $(cat /root/pid) && echo alive"),
               "f\nfits\nalive");
    /* Files inside and those from outside share the limit. */
    cay_exec_done(&result);
    (void)told(sandbox, "cd /home/user; head -c 20000000 /dev/zero > inside; true");
    ASSERT_INT(cay_files_write(files, "new", data, 8 * MIB, NULL, &err), CAY_E_NO_SPACE);
    cay_exec_done(&result);
}

TEST(S4_holes_stay_holes)
{
    AUTO(cay_sandbox) sandbox = with_memory(32 * MIB);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    int from = memfd_create("sparse", MFD_CLOEXEC);

    ASSERT(ftruncate(from, 1ll << 30) == 0 && pwrite(from, "end", 3, 1 << 29) == 3);
    ASSERT_OK(cay_files_write_from(files, "sparse", from, NULL, NULL, &err));
    close(from);
    ASSERT_STR(told(sandbox, "cd /home/user; stat -c '%s %b' sparse"), "1073741824 8");
    cay_exec_done(&result);
}

TEST(S4_space_reserved_for_a_descriptor_counts_until_it_is_freed)
{
    AUTO(cay_sandbox) sandbox = with_memory(32 * MIB);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO_FD fd = -1;
    (void)told(sandbox, "true");
    uint64_t before = memory_used(sandbox);

    ASSERT_OK(cay_files_descriptor(files, "f", CAY_DESCRIPTOR_WRITE, &fd, &err));
    ASSERT(write(fd, "begun", 5) == 5);
    ASSERT_OK(cay_files_reserve(files, fd, 5, 8 * MIB, &err));
    ASSERT(memory_used(sandbox) + 2 * MIB >= before + 8 * MIB);
    cay_exec_done(&result);
    ASSERT_STR(told(sandbox, "stat -c '%s' /home/user/f"), "5");
    ASSERT(ftruncate(fd, 5) == 0);
    cay_exec_done(&result);
    ASSERT_STR(told(sandbox, "stat -c '%s %b' /home/user/f"), "5 8");
    ASSERT_INT(cay_files_reserve(files, fd, 5, 40 * MIB, &err), CAY_E_NO_SPACE);
    ASSERT(strstr(err.message, "memory limit"));
    cay_exec_done(&result);
    ASSERT_STR(told(sandbox, "stat -c '%s %b' /home/user/f"), "5 8");
    ASSERT_OK(cay_files_reserve(files, fd, 0, 0, &err));
    ASSERT_INT(cay_files_reserve(files, fd, UINT64_MAX, 1, &err), CAY_E_INVALID);
    ASSERT_INT(cay_files_reserve(files, fd, 1, UINT64_MAX, &err), CAY_E_INVALID);
    ASSERT(cay_files_reserve(files, -1, 0, 1, &err) != CAY_OK && err.sys_errno == EBADF);
    cay_exec_done(&result);
}

TEST(M4_reservation_that_fails_frees_only_its_own_space)
{
    AUTO(cay_sandbox) sandbox = with_memory(32 * MIB);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO_FD fd = -1;

    ASSERT_OK(cay_files_descriptor(files, "f", CAY_DESCRIPTOR_WRITE, &fd, &err));
    ASSERT(write(fd, "begun", 5) == 5);
    ASSERT_OK(cay_files_reserve(files, fd, 0, 4 * MIB, &err));
    ASSERT_INT(cay_files_reserve(files, fd, 8 * MIB, 40 * MIB, &err), CAY_E_NO_SPACE);
    ASSERT_STR(told(sandbox, "stat -c '%s %b' /home/user/f"), "5 8192");
    cay_exec_done(&result);
}
