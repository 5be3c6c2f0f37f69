/* SPDX-License-Identifier: Apache-2.0 */

/* An init that lies to the library. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "init/packet.h"
#include "inside.h"
#include "kinds.h"
#include "native/native.h"
#include "native/process/files.h"
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
    struct files_target sandbox = {.user = "user",
                                   .users = {2, {{0, 1000000, 1000}, {1000, 0, 1}}},
                                   .groups = {1, {{77, 0, 1}}},
                                   .reply_ms = 300};
    int ends[2];

    ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    liar->socket = ends[0];
    sandbox.socket = ends[1];
    ASSERT(pthread_create(&liar->thread, NULL, lie, liar) == 0);
    return files_open_sandbox(&sandbox, ret_files, &err);
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
    const struct file_reply answer = {.flags = flags, .write_error = 1};

    (void)packet_send(liar->socket, MESSAGE_FILE_DONE, &answer, sizeof answer, fds,
                      count);
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
    struct file_reply answer;
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

static const struct {
    struct file_look look;
    int more; /* bytes */
    uint32_t flags;
} looks[] = {
    {{.mode = S_IFREG, .bytes = 7}, 0, 0}, /* as it should be */
    {{.mode = S_IFREG}, sizeof(struct file_look), 0},
    {{.mode = S_IFREG}, -(int)sizeof(struct file_look), 0},
    {{.mode = S_IFREG}, -1, 0},
    {{.mode = S_IFREG}, 0, FILE_HAS_TEXT},
    {{.error = 1}, 0, 0},
    {{.error = -5000}, 0, 0},
    {{.bytes = UINT64_MAX}, 0, 0},
    {{.mtime_nanoseconds = 1000000000}, 0, 0},
};

/* Honest until names are to be looked at. */
static void look_wrong(const struct liar *liar, const struct file_request *question)
{
    struct {
        struct file_reply answer;
        struct file_look looks[2];
    } whole = {{.flags = looks[liar->which].flags, .write_error = 1},
               {looks[liar->which].look}};
    size_t len = sizeof whole.answer + sizeof whole.looks[0];
    AUTO_FD held = open(scratch(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD dir = open(scratch(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (question->op != FILE_LOOK)
        answer_with(liar, FILE_HAS_FD, question->op == FILE_FIND ? &held : &dir, 1);
    else
        (void)packet_send(liar->socket, MESSAGE_FILE_DONE, &whole,
                          len + (size_t)looks[liar->which].more, NULL, 0);
}

TEST(a_look_at_names_is_taken_only_as_it_should_be)
{
    const struct cay_list_options options = {.size = sizeof options,
                                             .flags = CAY_LIST_FILES | CAY_LIST_STAT};

    put_file("f", "");
    for (int which = 0; which < (int)(sizeof looks / sizeof *looks); which++) {
        struct liar liar = {.answer = look_wrong, .which = which};
        struct cay_listing listing = {0};
        cay_files *files;
        ASSERT_OK(meet(&liar, &files));
        ASSERT_CODE(cay_files_list(files, "/", &options, &listing, &err),
                    which ? CAY_E_PROTOCOL : CAY_OK);
        ASSERT_INT(listing.count ? listing.entries[0].stat.bytes : 0, which ? 0 : 7);
        cay_listing_done(&listing);
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
