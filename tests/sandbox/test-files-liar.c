/* SPDX-License-Identifier: Apache-2.0 */

/* An init that lies to the library, and a library that lies to init. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "backend/native/files.h"
#include "backend/native/native.h"
#include "init/packet.h"
#include "inside.h"
#include "sys/fs.h"

/* --- An init that says what a test wants it to --- */

struct liar {
    int socket;
    /* Answers one question about files, after an honest beginning. */
    void (*answer)(const struct liar *liar, const struct file_request *question);
    /* Instead of the honest beginning, if set. */
    void (*begin)(const struct liar *liar);
    int which; /* for tests that go through many lies */
    pthread_t thread;
};

static void *lie(void *cookie)
{
    const struct liar *liar = cookie;
    AUTO_FREE struct packet *packet = malloc(sizeof *packet);
    struct file_request question;

    while (packet && packet_receive(liar->socket, packet) == 1) {
        packet_close_fds(packet);
        if (packet->head.kind == MESSAGE_FILES && liar->begin) {
            liar->begin(liar);
        } else if (packet->head.kind == MESSAGE_FILES) {
            (void)packet_send(liar->socket, MESSAGE_FILES_READY, "/\0user", 7, NULL, 0);
        } else {
            memcpy(&question, packet->payload, sizeof question);
            liar->answer(liar, &question);
        }
    }
    close(liar->socket);
    return NULL;
}

static int meet(struct liar *liar, cay_files **ret_files)
{
    struct files_of sandbox = {.user = "user",
                               .users = {2, {{0, 1000000, 1000}, {1000, 0, 1}}},
                               .groups = {1, {{77, 0, 1}}},
                               .answer_ms = 300};
    int ends[2];

    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    liar->socket = ends[0];
    sandbox.socket = ends[1];
    ASSERT(pthread_create(&liar->thread, NULL, lie, liar) == 0);
    return files_of_sandbox(&sandbox, ret_files, &err);
}

static void part(struct liar *liar, cay_files *files)
{
    cay_files_free(files);
    ASSERT(pthread_join(liar->thread, NULL) == 0);
}

static size_t open_fds(void)
{
    return count_names("/proc/self/fd", "");
}

/* --- Descriptors --- */

static void answer_with(const struct liar *liar, uint32_t flags, const int *fds,
                        size_t count)
{
    const struct file_answer answer = {.flags = flags, .write_error = 1};

    (void)packet_send(liar->socket, MESSAGE_FILE_DONE, &answer, sizeof answer, fds,
                      count);
}

enum kind {
    A_PIPE,
    A_SOCKET,
    A_DIRECTORY,
    A_DEVICE,
    AN_EPOLL,
    A_WAITING_FILE,
    A_WRITABLE_FILE,
    A_HELD_FILE,
    OF_PROC,
    KINDS
};

static int make(enum kind kind)
{
    const char *exe = "/proc/self/exe";
    int pair[2] = {-1, -1};

    switch (kind) {
    case A_PIPE:
        ASSERT(pipe2(pair, O_CLOEXEC | O_NONBLOCK) == 0);
        close(pair[1]);
        return pair[0];
    case A_SOCKET:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    case A_DIRECTORY:
        return open("/", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    case A_DEVICE:
        return open("/dev/zero", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    case AN_EPOLL:
        return epoll_create1(EPOLL_CLOEXEC);
    case A_WAITING_FILE:
        return open(exe, O_RDONLY | O_CLOEXEC);
    case A_WRITABLE_FILE:
        return open(scratch(), O_TMPFILE | O_WRONLY | O_NONBLOCK | O_CLOEXEC, 0600);
    case A_HELD_FILE:
        return open(exe, O_PATH | O_CLOEXEC);
    case OF_PROC:
        return open("/proc/self/status", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    case KINDS:
        break;
    }
    return -1;
}

/* One of the kinds, said to be a file that is open for reading. */
static void pass_as_file(const struct liar *liar, const struct file_request *question)
{
    AUTO_FD fd = make((enum kind)liar->which);

    (void)question;
    answer_with(liar, FILE_HAS_FD | FILE_IS_OPEN, &fd, 1);
}

TEST(what_is_not_a_file_open_for_reading_is_refused)
{
    size_t before = open_fds();

    for (int kind = 0; kind < KINDS; kind++) {
        struct liar liar = {.answer = pass_as_file, .which = kind};
        cay_files *files;
        ASSERT_OK(meet(&liar, &files));
        ASSERT_CODE(read_code(files, "x"), CAY_E_PROTOCOL);
        /* And nothing is asked any more. */
        ASSERT_CODE(read_code(files, "x"), CAY_E_PROTOCOL);
        ASSERT_CODE(write_code(files, "x"), CAY_E_PROTOCOL);
        part(&liar, files);
        ASSERT_INT(open_fds(), before);
    }
}

static void pass_good_file(const struct liar *liar, const struct file_request *question)
{
    bool is_open = question->flags & FS_AND_READ;
    AUTO_FD fd = open(scratch_path("f"),
                      is_open ? O_RDONLY | O_NONBLOCK | O_CLOEXEC : O_PATH | O_CLOEXEC);

    answer_with(liar, FILE_HAS_FD | (is_open ? FILE_IS_OPEN : 0u), &fd, 1);
}

TEST(a_file_as_it_should_be_is_read)
{
    struct liar liar = {.answer = pass_good_file};
    struct cay_stat stat;
    cay_files *files;

    put_file("f", "honest");
    ASSERT_OK(meet(&liar, &files));
    expect(files, "x", "honest");
    ASSERT_OK(cay_files_stat(files, "x", false, &stat, &err));
    ASSERT_INT(stat.uid, geteuid() == 0 ? 1000 : 65534); /* as the maps say */
    ASSERT_INT(stat.gid, geteuid() == 0 ? 77 : 65534);
    part(&liar, files);
}

/* Something open where a directory to be held was asked for, for writing. */
static void pass_as_directory(const struct liar *liar,
                              const struct file_request *question)
{
    AUTO_FD fd = make((enum kind)liar->which);

    if (question->op == FILE_FIND)
        answer_with(liar, FILE_HAS_DIR, &fd, 1);
    else
        answer_with(liar, FILE_HAS_FD, &fd, 1);
}

TEST(what_is_not_a_directory_that_is_held_is_refused)
{
    size_t before = open_fds();

    for (int kind = 0; kind < KINDS; kind++) {
        struct liar liar = {.answer = pass_as_directory, .which = kind};
        cay_files *files;
        ASSERT_OK(meet(&liar, &files));
        ASSERT_CODE(write_code(files, "x"), CAY_E_PROTOCOL);
        part(&liar, files);
        ASSERT_INT(open_fds(), before);
    }
}

/* Honest about the place, but then a draft of any kind. */
static void pass_as_draft(const struct liar *liar, const struct file_request *question)
{
    AUTO_FD dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD fd = make((enum kind)liar->which);

    if (question->op == FILE_FIND)
        answer_with(liar, FILE_HAS_DIR, &dir, 1);
    else
        answer_with(liar, FILE_HAS_FD, &fd, 1);
}

TEST(what_is_not_a_fresh_file_is_not_written_to)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct liar liar = {.answer = pass_as_draft, .which = kind};
        cay_files *files;
        ASSERT_OK(meet(&liar, &files));
        ASSERT_CODE(write_code(files, "x"), CAY_E_PROTOCOL);
        part(&liar, files);
    }
}

/* --- Too many, too few, too short --- */

static void send_raw(const struct liar *liar, const void *data, size_t len, size_t fds)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(32 * sizeof(int))];
    } control;
    struct iovec part = {(void *)(uintptr_t)data, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    AUTO_FD fd = make(A_HELD_FILE);

    memset(&control, 0, sizeof control);
    if (fds) {
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds * sizeof(int));
        for (size_t i = 0; i < fds; i++)
            memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
    }
    (void)!sendmsg(liar->socket, &message, MSG_NOSIGNAL);
}

struct whole {
    struct message head;
    struct file_answer answer;
    char text[PATH_MAX + 64];
};

static void send_wrong(const struct liar *liar, const struct file_request *question)
{
    struct whole whole = {
        .head = {PROTOCOL_VERSION, MESSAGE_FILE_DONE, sizeof whole.answer, 0},
        .answer = {.write_error = 1}};
    size_t len = sizeof whole.head + sizeof whole.answer, fds = 0;
    static const struct {
        size_t sent, said; /* descriptors */
        uint32_t flags;
    } counts[] = {{0, 0, FILE_HAS_FD},  {1, 1, 0},
                  {2, 2, FILE_HAS_FD},  {1, 2, FILE_HAS_FD | FILE_HAS_DIR},
                  {3, 3, FILE_HAS_FD},  {3, 1, FILE_HAS_FD},
                  {30, 1, FILE_HAS_FD}, {30, 30, FILE_HAS_FD}};
    const int count = sizeof counts / sizeof *counts;

    (void)question;
    if (liar->which < count) {
        fds = counts[liar->which].sent;
        whole.head.fd_count = (uint32_t)counts[liar->which].said;
        whole.answer.flags = counts[liar->which].flags;
    } else if (liar->which == count) {
        len = sizeof whole.head - 1;
    } else if (liar->which == count + 1) {
        len -= 1;
    } else if (liar->which == count + 2) {
        whole.head.version = 99;
    } else if (liar->which == count + 3) {
        whole.head.kind = MESSAGE_ENDED;
    } else if (liar->which == count + 4) {
        whole.answer.error = 5;
    } else if (liar->which == count + 5) {
        whole.answer.error = -EACCES;
        whole.answer.flags = FILE_HAS_FD;
        whole.head.fd_count = 1;
        fds = 1;
    } else if (liar->which == count + 6) {
        whole.answer.flags = FILE_HAS_TEXT;
        whole.answer.text_len = UINT32_MAX;
    } else {
        return;
    }
    send_raw(liar, &whole, len, fds);
}

TEST(an_answer_of_the_wrong_shape_is_none)
{
    size_t before = open_fds();

    for (int which = 0; which < 15; which++) {
        struct liar liar = {.answer = send_wrong, .which = which};
        cay_files *files;
        ASSERT_OK(meet(&liar, &files));
        ASSERT_CODE(read_code(files, "x"), CAY_E_PROTOCOL);
        part(&liar, files);
        ASSERT_INT(open_fds(), before);
    }
}

static const char *const places[] = {"..", "a/../b", "/etc", "a//b", "a/",
                                     ".",  "a/./b",  "\0no", NULL /* too long */};

static void send_place(const struct liar *liar, const struct file_request *question)
{
    struct whole whole = {.head = {PROTOCOL_VERSION, MESSAGE_FILE_DONE, 0, 0},
                          .answer = {.write_error = 1, .flags = FILE_HAS_TEXT}};
    const char *place = places[liar->which];
    size_t len = place ? strlen(place) : 300;

    (void)question;
    if (place)
        memcpy(whole.text, place, len);
    else
        memset(whole.text, 'n', len);
    if (place && !len) { /* a NUL in its middle */
        len = 3;
        memcpy(whole.text, place, len);
    }
    whole.answer.text_len = (uint32_t)len;
    whole.head.len = (uint32_t)(sizeof whole.answer + len + 1);
    send_raw(liar, &whole, sizeof whole.head + whole.head.len, 0);
}

TEST(a_place_that_is_no_plain_path_is_refused)
{
    for (int which = 0; which < (int)(sizeof places / sizeof *places); which++) {
        struct liar liar = {.answer = send_place, .which = which};
        cay_files *files;
        ASSERT_OK(meet(&liar, &files));
        ASSERT_CODE(write_code(files, "x"), CAY_E_PROTOCOL);
        part(&liar, files);
    }
}

static void say_nothing(const struct liar *liar, const struct file_request *question)
{
    (void)liar;
    (void)question;
}

static void hang_up(const struct liar *liar, const struct file_request *question)
{
    (void)question;
    (void)shutdown(liar->socket, SHUT_RDWR);
}

TEST(silence_and_hanging_up_are_told_apart)
{
    struct liar silent = {.answer = say_nothing}, gone = {.answer = hang_up};
    cay_files *files;

    ASSERT_OK(meet(&silent, &files));
    ASSERT_CODE(read_code(files, "x"), CAY_E_TIMEOUT);
    part(&silent, files);
    ASSERT_OK(meet(&gone, &files));
    ASSERT_CODE(read_code(files, "x"), CAY_E_UNAVAILABLE);
    part(&gone, files);
}

/* --- A beginning without an end --- */

static void begin_wrong(const struct liar *liar)
{
    struct cay_error error;
    char home[PATH_MAX + 2];
    AUTO_FD fd = make(A_PIPE);

    memset(&error, 'e', sizeof error); /* not a NUL in it */
    memset(home, '/', sizeof home);
    if (liar->which == 0) {
        (void)packet_send(liar->socket, MESSAGE_FAILED, &error, sizeof error, NULL, 0);
    } else if (liar->which == 1) {
        error.code = 0;
        (void)packet_send(liar->socket, MESSAGE_FAILED, &error, sizeof error, NULL, 0);
    } else if (liar->which == 2) {
        (void)packet_send(liar->socket, MESSAGE_FAILED, &error, 10, NULL, 0);
    } else if (liar->which == 3) {
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, home, sizeof home, NULL, 0);
    } else if (liar->which == 4) {
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, "home\0user", 10, NULL, 0);
    } else if (liar->which == 5) {
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, "/\0user", 7, &fd, 1);
    } else if (liar->which == 6) {
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, "/x\0user", 7, NULL, 0);
    } else if (liar->which == 7) {
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, "/x", 3, NULL, 0);
    } else if (liar->which == 8) {
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, "/x\0user\0", 9, NULL, 0);
    } else if (liar->which == 9) {
        home[1] = home[1 + 100] = '\0'; /* a user of that length */
        (void)packet_send(liar->socket, MESSAGE_FILES_READY, home, 102, NULL, 0);
    } else {
        (void)packet_send(liar->socket, MESSAGE_PONG, NULL, 0, NULL, 0);
    }
}

TEST(a_wrong_beginning_is_refused)
{
    for (int which = 0; which < 11; which++) {
        struct liar liar = {.begin = begin_wrong, .answer = say_nothing, .which = which};
        cay_files *files = NULL;
        ASSERT_CODE(meet(&liar, &files), CAY_E_PROTOCOL);
        ASSERT(!files);
        part(&liar, NULL);
    }
}

/* --- A library that lies to init --- */

static int dial(cay_sandbox *sandbox)
{
    struct record record;
    int socket = -1;

    ASSERT_OK(runtime_load(cay_sandbox_id(sandbox), &record, &err));
    ASSERT_OK(native_dial(&record, &socket, &err));
    return socket;
}

static struct packet reply;

/* What init answers: its error, or 1 if it hung up. */
static int question(int socket, const struct file_request *head, const char *strings,
                    size_t len, const int *fds, size_t fd_count)
{
    char payload[sizeof *head + 2 * PATH_MAX];
    struct file_answer answer;

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

TEST(init_keeps_no_descriptor_of_ours)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    char path[64];
    struct record record;

    ASSERT_OK(runtime_load(cay_sandbox_id(sandbox), &record, &err));
    snprintf(path, sizeof path, "/proc/%d/fd", (int)record.init);
    run(sandbox, "true"); /* after which it is at rest */
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
    ASSERT_INT(count_names(path, ""), before);
    cay_exec_done(&result);
}
