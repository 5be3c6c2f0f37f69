/* SPDX-License-Identifier: Apache-2.0 */

/* A library that lies to init. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "init/packet.h"
#include "inside.h"
#include "kinds.h"
#include "native/native.h"
#include "sys/fs.h"

static int dial(cay_sandbox *sandbox)
{
    struct record record;
    int socket = -1;

    ASSERT_OK(runtime_load(cay_sandbox_id(sandbox), &record, &err));
    ASSERT_OK(native_connect_init(&record, NATIVE_REPLY_MS, &socket, &err));
    return socket;
}

static struct packet reply;

/* What init answers: its error, or 1 if it hung up. */
static int question(int socket, const struct file_request *head, const char *strings,
                    size_t len, const int *fds, size_t fd_count)
{
    char payload[sizeof *head + 2 * PATH_MAX];
    struct file_reply answer;

    memcpy(payload, head, sizeof *head);
    memcpy(payload + sizeof *head, strings, len);
    ASSERT(packet_send(socket, MESSAGE_FILE, payload, sizeof *head + len, fds,
                       fd_count) == 0);
    int got = packet_receive(socket, &reply);
    if (got == 0)
        return 1;
    ASSERT_INT(got, 1);
    ASSERT_INT(reply.head.kind, MESSAGE_FILE_DONE);
    memcpy(&answer, reply.payload, sizeof answer);
    packet_close_fds(&reply);
    return answer.error;
}

static int begin_as(cay_sandbox *sandbox, const char *user)
{
    int socket = dial(sandbox);

    ASSERT(packet_send(socket, MESSAGE_FILES, user, strlen(user) + 1, NULL, 0) == 0);
    ASSERT_INT(packet_receive(socket, &reply), 1);
    ASSERT_INT(reply.head.kind, MESSAGE_FILES_READY);
    return socket;
}

TEST(init_hangs_up_on_questions_of_the_wrong_shape)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const struct {
        struct file_request head;
        const char *strings;
        size_t len, fds;
    } wrong[] = {
        {{.op = 0, .at_root = 1}, "\0", 2, 0},
        {{.op = 99, .at_root = 1}, "\0", 2, 0},
        {{.op = FILE_FIND, .at_root = 1}, "x", 1, 0},
        {{.op = FILE_FIND, .at_root = 1}, "x\0y", 3, 0},
        {{.op = FILE_FIND, .at_root = 1}, "x\0\0\0", 4, 0},
        {{.op = FILE_FIND}, "x\0", 3, 0},
        {{.op = FILE_FIND, .at_root = 1}, "x\0", 3, 1},
        {{.op = FILE_REMOVE, .at_root = 1}, "a/b\0", 5, 0},
        {{.op = FILE_REMOVE, .at_root = 1}, "..\0", 4, 0},
        {{.op = FILE_REMOVE, .at_root = 1}, "\0", 2, 0},
        {{.op = FILE_RENAME, .at_root = 3}, "a\0b/c", 6, 0},
        {{.op = FILE_RENAME, .at_root = 1}, "a\0b", 4, 0},
        {{.op = FILE_COMMIT, .at_root = 3}, "a\0../b", 7, 0},
        {{.op = FILE_LOOK, .at_root = 1}, "a\0b", 4, 0},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        AUTO_FD socket = begin_as(sandbox, "root");
        AUTO_FD fd = make(A_HELD_FILE);
        ASSERT_INT(question(socket, &wrong[i].head, wrong[i].strings, wrong[i].len, &fd,
                            wrong[i].fds),
                   1);
    }
    AUTO_FD early = dial(sandbox);
    ASSERT_INT(question(early, &(struct file_request){.op = FILE_FIND, .at_root = 1},
                        "x\0", 3, NULL, 0),
               1);
    AUTO_FD twice = begin_as(sandbox, "root");
    ASSERT(packet_send(twice, MESSAGE_FILES, "user", 5, NULL, 0) == 0);
    ASSERT_INT(packet_receive(twice, &reply), 0);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    cay_exec_done(&result);
}

TEST(init_opens_nothing_but_files_and_directories_whoever_asks)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO_FD socket = begin_as(sandbox, "root");
    const struct file_request reopen = {.op = FILE_REOPEN, .flags = O_RDONLY};
    const enum kind kinds[] = {A_PIPE, A_SOCKET, A_DEVICE, A_DIRECTORY};
    struct file_request open_request = {.op = FILE_OPEN, .at_root = 1};
    const uint64_t flags[] = {O_RDONLY, O_RDWR | O_CREAT, O_WRONLY | O_TRUNC,
                              O_PATH | O_CREAT};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        AUTO_FD fd = make(kinds[i]);
        ASSERT_INT(question(socket, &reopen, "\0", 2, &fd, 1), -ENXIO);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        open_request.flags = flags[i];
        ASSERT_INT(question(socket, &open_request, "etc/passwd\0", 12, NULL, 0), -EINVAL);
    }
}

TEST(init_looks_only_at_names)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO_FD socket = begin_as(sandbox, "root");
    const struct file_request look = {.op = FILE_LOOK, .at_root = 1};
    char many[2 * (FILE_LOOKS_MAX + 1) + 1] = "";

    ASSERT_INT(question(socket, &look, "etc/usr\0", 9, NULL, 0), 0);
    ASSERT_INT(question(socket, &look, "etc//usr\0", 10, NULL, 0), -EINVAL);
    ASSERT_INT(question(socket, &look, "../..\0", 7, NULL, 0), -EINVAL);
    ASSERT_INT(question(socket, &look, "\0", 2, NULL, 0), -EINVAL);
    for (size_t i = 0; i <= FILE_LOOKS_MAX; i++)
        memcpy(many + 2 * i, "x/", 2);
    many[sizeof many - 2] = '\0'; /* one too many, each of them fine */
    ASSERT_INT(question(socket, &look, many, sizeof many, NULL, 0), -EINVAL);
    ASSERT_INT(question(socket, &look, many + 2, sizeof many - 2, NULL, 0), 0);
}

TEST(init_keeps_no_descriptor_of_ours)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    char path[64];
    struct record record;

    ASSERT_OK(runtime_load(cay_sandbox_id(sandbox), &record, &err));
    snprintf(path, sizeof path, "/proc/%d/fd", (int)record.init);
    run(sandbox, "true");
    (void)usleep(50000); /* then it is at rest */
    size_t before = count_names(path, "");
    ASSERT(before > 3);
    for (int i = 0; i < 100; i++) {
        put(files, "/root/d/f", "x");
        expect(files, "/root/d/f", "x");
        ASSERT_CODE(read_code(files, "/root/none"), CAY_E_NOT_FOUND);
        ASSERT_CODE(write_code(files, "/proc/cpuinfo"), CAY_E_DENIED);
        (void)read_code(files, "/proc/cpuinfo");
        ASSERT_OK(cay_files_delete(files, "/root/d/f", NULL, &err));
    }
    run(sandbox, "true");
    /* It prepares the next command a moment later, which takes descriptors. */
    for (int i = 0; i < PATIENCE_MS && count_names(path, "") != before; i++)
        (void)usleep(1000);
    ASSERT_INT(count_names(path, ""), before);
    cay_exec_done(&result);
}
