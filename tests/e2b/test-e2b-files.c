/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peer.h"

static const struct cay_file_backend *calls(void)
{
    return backend_e2b.files;
}

static int memory(const void *data, size_t len)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    ASSERT(fd >= 0 && write(fd, data, len) == (ssize_t)len &&
           lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static int put(void *box, const char *path, const char *text, unsigned flags)
{
    AUTO_FD fd = memory(text, strlen(text));

    return calls()->write(box, NULL, path, fd, flags, &err);
}

/* The content, or NULL and `err`. */
static const char *get(void *box, const char *path)
{
    static char text[1 << 16];
    AUTO_FD fd = memory("", 0);

    if (calls()->read(box, NULL, path, fd, &err))
        return NULL;
    ssize_t len = pread(fd, text, sizeof text - 1, 0);
    ASSERT(len >= 0);
    text[len] = '\0';
    return text;
}

/* --- Names --- */

static const char *const names[] = {
    "plain",
    "with space",
    "quo'te\"s",
    "new\nline",
    "-dash",
    "--",
    "per%cent",
    "%2e%2e",
    "plus+and&amp=x",
    "hash#x",
    "what?",
    "semi;colon",
    "back\\slash",
    "dollar$(id)`id`",
    "tab\there",
    "*",
    "[a-z]",
    "~",
    "~root",
    "...",
    ".hidden",
    "h\xc3\xa9llo",
    "\xf0\x9f\x8e\x88",
    "trailing ",
    " leading",
    "a:b",
    "{\"json\": 1}",
    "\x01\x1f\x7f",
    "CON",
    "colon:x@y",
};

WITH_PEER(special_characters_in_names_are_escaped)
{
    void *box = make_box(NULL);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cay_stat stat;
        struct cay_listing listing = {0};
        char folder[128], file[256], moved[256];
        snprintf(folder, sizeof folder, "d/%s", names[i]);
        snprintf(file, sizeof file, "%s/%s", folder, names[i]);
        snprintf(moved, sizeof moved, "%s/moved %s", folder, names[i]);
        ASSERT_OK(calls()->mkdir(box, NULL, folder, 0, &err));
        ASSERT_OK(put(box, file, names[i], 0));
        ASSERT_STR(get(box, file), names[i]);
        ASSERT_OK(calls()->stat(box, NULL, file, false, &stat, &err));
        ASSERT_INT(stat.type, CAY_TYPE_FILE);
        ASSERT_INT(stat.bytes, strlen(names[i]));
        ASSERT_OK(calls()->move(box, NULL, file, moved, &err));
        ASSERT_OK(calls()->list(box, NULL, folder, 1, &listing, &err));
        ASSERT_INT(listing.count, 1);
        ASSERT(strlen(listing.entries[0].path) > strlen(moved) &&
               strcmp(listing.entries[0].path + strlen(listing.entries[0].path) -
                          strlen(moved),
                      moved) == 0);
        cay_listing_done(&listing);
        ASSERT_OK(calls()->remove(box, NULL, moved, 0, &err));
        ASSERT_CODE(calls()->stat(box, NULL, moved, false, &stat, &err), CAY_E_NOT_FOUND);
        ASSERT_OK(calls()->remove(box, NULL, folder, CAY_NAME_RECURSIVE, &err));
    }
    ASSERT_STR(output_of(box, "ls -A d"), "");
}

WITH_PEER(file_names_that_are_not_utf8_are_refused)
{
    static const char name[] = "d/odd\xff";
    void *box = make_box(NULL);
    struct cay_listing listing = {0};
    struct cay_stat stat;
    char *target = NULL;

    (void)output_of(box,
                    "mkdir d && printf x > \"$(printf 'd/odd\\377')\" && echo y > fine");
    ASSERT_CODE(calls()->mkdir(box, NULL, name, 0, &err), CAY_E_UNSUPPORTED);
    ASSERT(strstr(err.hint, "UTF-8"));
    ASSERT_CODE(put(box, name, "bytes", 0), CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->read(box, NULL, name, -1, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->stat(box, NULL, name, false, &stat, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->list(box, NULL, name, 1, &listing, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->read_link(box, NULL, name, &target, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->move(box, NULL, name, "text", &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->move(box, NULL, "fine", name, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->remove(box, NULL, name, 0, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(output_of(box, "cat d/*"), "x");
    /* The peer fails to encode such a name, as envd does. */
    ASSERT_CODE(calls()->list(box, NULL, "d", 1, &listing, &err), CAY_E_UNSUPPORTED);
    ASSERT(strstr(err.message, "UTF-8"));
    ASSERT_OK(calls()->remove(box, NULL, "d", CAY_NAME_RECURSIVE, &err));
}

WITH_PEER(relative_paths_start_at_the_working_directory)
{
    void *box = make_box("work_dir: /home/user/work\n");

    ASSERT_OK(put(box, "a/./b//../c", "here", 0));
    ASSERT_STR(get(box, "/home/user/work/a/c"), "here");
    ASSERT_STR(get(box, "../work/a/c"), "here");
    ASSERT_STR(output_of(box, "cat a/c"), "here");
}

/* --- Content --- */

WITH_PEER(content_survives_a_round_trip)
{
    enum { LEN = 5 << 20 };
    void *box = make_box(NULL);
    AUTO_FREE char *bytes = malloc(LEN), *back = malloc(LEN + 1);

    ASSERT(bytes && back);
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)(i * 2654435761u >> 11);
    AUTO_FD from = memory(bytes, LEN);
    AUTO_FD to = memory("", 0);
    ASSERT_OK(calls()->write(box, NULL, "large", from, 0, &err));
    ASSERT_OK(calls()->read(box, NULL, "large", to, &err));
    ASSERT_INT(pread(to, back, LEN + 1, 0), LEN);
    ASSERT(memcmp(bytes, back, LEN) == 0);
    ASSERT_OK(put(box, "empty", "", 0));
    ASSERT_STR(get(box, "empty"), "");
    ASSERT_OK(put(box, "large", "small", 0));
    ASSERT_STR(get(box, "large"), "small");
}

struct feeder {
    int fd;
    size_t len;
};

static void *feed(void *cookie)
{
    const struct feeder *feeder = cookie;
    char piece[10000];

    memset(piece, 'p', sizeof piece);
    for (size_t done = 0; done < feeder->len; done += sizeof piece)
        if (write(feeder->fd, piece, sizeof piece) != sizeof piece)
            break;
    close(feeder->fd);
    return NULL;
}

WITH_PEER(content_of_unknown_size_can_be_read_from_a_pipe)
{
    static const char *const versions[] = {"0.6.13", "0.5.6", "0.3.9"};

    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        (void)peer_request("{\"set\": {\"version\": \"%s\"}}", versions[i]);
        void *box = make_box(NULL);
        struct cay_stat stat;
        pthread_t thread;
        int ends[2];
        ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
        struct feeder feeder = {ends[1], 1000000};
        ASSERT_INT(pthread_create(&thread, NULL, feed, &feeder), 0);
        int code = calls()->write(box, NULL, "piped", ends[0], 0, &err);
        close(ends[0]);
        pthread_join(thread, NULL);
        ASSERT_INT(code, CAY_OK);
        ASSERT_OK(calls()->stat(box, NULL, "piped", false, &stat, &err));
        ASSERT_INT(stat.bytes, 1000000);
        ASSERT_OK(put(box, "known", "of known size\r\n--x", 0));
        ASSERT_STR(get(box, "known"), "of known size\r\n--x");
    }
}

WITH_PEER(closed_descriptor_of_the_reader_is_an_error)
{
    void *box = make_box(NULL);
    int ends[2];

    ASSERT_OK(put(box, "file", "content", 0));
    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    int code = calls()->read(box, NULL, "file", ends[1], &err);
    close(ends[1]);
    ASSERT(code != CAY_OK);
    ASSERT_INT(err.sys_errno, EPIPE);
}

WITH_PEER(incomplete_content_is_an_error)
{
    void *box = make_box("max_retries: 2\n");

    ASSERT_OK(put(box, "file", "0123456789", 0));
    for (int cut = 0; cut < 400; cut += 13) {
        AUTO_FD fd = memory("", 0);
        char text[64];
        (void)peer_request("{\"rule\": {\"on\": \"GET /files\", \"cut\": %d}}", cut);
        int code = calls()->read(box, NULL, "file", fd, &err);
        ssize_t len = pread(fd, text, sizeof text, 0);
        if (code) /* some bytes arrived, so it is not retried */
            ASSERT(code == CAY_E_PROTOCOL && len > 0 && len < 10);
        else
            ASSERT_MEM(text, (size_t)len, "0123456789", 10);
    }
}

/* A closed connection does not prove that the file is complete. */
WITH_PEER(content_without_a_length_is_refused)
{
    void *box = make_box("max_retries: 0\n");
    AUTO_FD fd = memory("", 0);

    (void)peer_request("{\"rule\": {\"on\": \"GET /files\", \"raw\": "
                       "\"SFRUUC8xLjEgMjAwIE9LDQoNCmhhbGY=\"}}");
    ASSERT_CODE(calls()->read(box, NULL, "file", fd, &err), CAY_E_PROTOCOL);
}

WITH_PEER(an_upload_is_not_repeated_once_it_was_read)
{
    void *box = make_box("max_retries: 3\n");

    (void)peer_request("{\"rule\": {\"on\": \"POST /files\", \"status\": 429}}");
    ASSERT_CODE(put(box, "file", "x", 0), CAY_E_LIMIT);
    ASSERT_INT(count_requests("POST /files"), 1);
    (void)peer_request("{\"rule\": {\"on\": \"POST /files\", \"status\": 507}}");
    ASSERT_CODE(put(box, "file", "x", 0), CAY_E_NO_SPACE);
    AUTO_FD nothing = open("/", O_PATH | O_CLOEXEC);
    ASSERT(calls()->write(box, NULL, "file", nothing, 0, &err) != CAY_OK);
    ASSERT_INT(err.sys_errno, EBADF);
}

WITH_PEER(transfer_does_not_wait_for_a_long_retry_after)
{
    void *box = make_box("max_retries: 2\n");

    ASSERT_OK(put(box, "file", "here", 0));
    (void)peer_request("{\"rule\": {\"on\": \"GET /files\", \"status\": 429, "
                       "\"headers\": {\"Retry-After\": \"3600\"}}}");
    ASSERT(!get(box, "file"));
    ASSERT_INT(err.code, CAY_E_LIMIT);
    (void)peer_request("{\"rule\": {\"on\": \"GET /files\", \"status\": 429, "
                       "\"headers\": {\"Retry-After\": \"1\"}}}");
    ASSERT_STR(get(box, "file"), "here");
}

/* --- Stat and list --- */

WITH_PEER(stat_describes_the_file)
{
    void *box = make_box(NULL);
    struct cay_stat stat, there;

    ASSERT_OK(put(box, "file", "12345", 0));
    (void)output_of(box,
                    "chmod 750 file; touch -d '2020-02-03 04:05:06.5 UTC' file; "
                    "ln -s file link; ln -s nowhere broken; mkdir dir; ln -s dir way");
    ASSERT_OK(calls()->stat(box, NULL, "file", false, &stat, &err));
    ASSERT_INT(stat.type, CAY_TYPE_FILE);
    ASSERT_INT(stat.mode, 0750);
    ASSERT_INT(stat.bytes, 5);
    ASSERT_INT(stat.uid, getuid());
    ASSERT_INT(stat.gid, getgid());
    ASSERT_INT(stat.mtime_ns, 1580702706500000000);
    ASSERT_OK(calls()->stat(box, NULL, "link", false, &there, &err));
    ASSERT_INT(there.type, CAY_TYPE_FILE);
    ASSERT_OK(calls()->stat(box, NULL, "link", true, &there, &err));
    ASSERT_INT(there.type, CAY_TYPE_LINK);
    ASSERT_OK(calls()->stat(box, NULL, "way", false, &there, &err));
    ASSERT_INT(there.type, CAY_TYPE_DIRECTORY);
    ASSERT_CODE(calls()->stat(box, NULL, "broken", false, &there, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(calls()->stat(box, NULL, "broken", true, &there, &err));
    ASSERT_INT(there.type, CAY_TYPE_LINK);
}

WITH_PEER(owners_are_reported_by_number)
{
    void *box = make_box(NULL);
    struct cay_stat stat;

    ASSERT_OK(calls()->stat(box, NULL, "/etc/passwd", false, &stat, &err));
    ASSERT_INT(stat.uid, 0);
    if (getuid() != 0)
        return;
    (void)output_of(box, "echo > file; chown daemon:mail file");
    ASSERT_OK(calls()->stat(box, NULL, "file", false, &stat, &err));
    ASSERT_INT(stat.uid, 1);
    ASSERT_INT(stat.gid, 8);
}

WITH_PEER(links_report_their_targets)
{
    void *box = make_box(NULL);
    char *target = NULL;

    (void)output_of(box, "mkdir dir; ln -s dir way; echo > file");
    ASSERT_OK(calls()->read_link(box, NULL, "way", &target, &err));
    ASSERT_STR(target, "dir");
    cay_free(target);
    (void)output_of(box, "ln -s no/where broken");
    ASSERT_OK(calls()->read_link(box, NULL, "broken", &target, &err));
    ASSERT_STR(target, "no/where");
    cay_free(target);
    ASSERT_CODE(calls()->read_link(box, NULL, "file", &target, &err), CAY_E_INVALID);
    ASSERT_CODE(calls()->read_link(box, NULL, "none", &target, &err), CAY_E_NOT_FOUND);
}

WITH_PEER(listing_is_sorted_and_has_the_requested_depth)
{
    void *box = make_box(NULL);
    struct cay_listing listing = {0};

    (void)output_of(box,
                    "mkdir -p top/b/c; echo > top/a; echo > top/b/c/d; ln -s a top/l");
    ASSERT_OK(calls()->list(box, NULL, "top", 1, &listing, &err));
    ASSERT_INT(listing.count, 3);
    ASSERT_STR(listing.entries[0].path, "/home/user/top/a");
    ASSERT_STR(listing.entries[1].path, "/home/user/top/b");
    ASSERT_INT(listing.entries[1].stat.type, CAY_TYPE_DIRECTORY);
    ASSERT_INT(listing.entries[2].stat.type, CAY_TYPE_LINK);
    cay_listing_done(&listing);
    /* Entries have the caller's spelling of an absolute path. */
    ASSERT_OK(calls()->list(box, NULL, "/home/user/x/../top/", 0, &listing, &err));
    ASSERT_INT(listing.count, 5);
    ASSERT_STR(listing.entries[3].path, "/home/user/x/../top/b/c/d");
    cay_listing_done(&listing);
    ASSERT_CODE(calls()->list(box, NULL, "top/a", 1, &listing, &err),
                CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(calls()->list(box, NULL, "none", 1, &listing, &err), CAY_E_NOT_FOUND);
}

WITH_PEER(entries_outside_of_the_directory_are_refused)
{
    static const char *const paths[] = {
        "/etc/passwd",
        "/home/user",
        "/home/user/top",
        "/home/user/top/",
        "top/a",
        "/home/user/topx",
        "/home/user/top/../x",
        "/home/user/top/..",
        "/home/user/top//x",
        "/home/user/top/./x",
        "",
    };
    void *box = make_box("max_retries: 0\n");
    struct cay_listing listing = {0};

    (void)output_of(box, "mkdir top");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        (void)peer_request(
            "{\"rule\": {\"on\": \"POST /filesystem.Filesystem/ListDir\", "
            "\"status\": 200, \"body\": \"{\\\"entries\\\": [{\\\"path\\\": "
            "\\\"%s\\\", \\\"type\\\": \\\"FILE_TYPE_FILE\\\"}]}\"}}",
            paths[i]);
        ASSERT_CODE(calls()->list(box, NULL, "top", 0, &listing, &err), CAY_E_PROTOCOL);
        ASSERT(!listing.entries);
    }
}

WITH_PEER(malformed_entries_are_refused)
{
    static const char *const bodies[] = {
        "",
        "[]",
        "{}",
        "{\\\"entry\\\": 1}",
        "{\\\"entry\\\": {}}",
        "{\\\"entry\\\": {\\\"path\\\": \\\"/x\\\", \\\"size\\\": \\\"-5\\\"}}",
        "{\\\"entry\\\": {\\\"path\\\": 5}}",
    };
    void *box = make_box("max_retries: 0\n");
    struct cay_stat stat;

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        (void)peer_request("{\"rule\": {\"on\": \"POST /filesystem.Filesystem/Stat\", "
                           "\"status\": 200, \"body\": \"%s\"}}",
                           bodies[i]);
        ASSERT_CODE(calls()->stat(box, NULL, "x", false, &stat, &err), CAY_E_PROTOCOL);
    }
}

/* --- Changing --- */

WITH_PEER(directories_cannot_be_read_or_written)
{
    void *box = make_box(NULL);

    (void)output_of(box, "mkdir dir");
    ASSERT(!get(box, "dir"));
    ASSERT_INT(err.code, CAY_E_NOT_A_FILE);
    ASSERT(!get(box, "none"));
    ASSERT_INT(err.code, CAY_E_NOT_FOUND);
    ASSERT_CODE(put(box, "dir", "x", 0), CAY_E_NOT_A_FILE);
}

WITH_PEER(write_flags_are_applied)
{
    void *box = make_box(NULL);

    ASSERT_OK(put(box, "file", "one", CAY_WRITE_NEW));
    ASSERT_CODE(put(box, "file", "two", CAY_WRITE_NEW), CAY_E_EXISTS);
    ASSERT_STR(get(box, "file"), "one");
    ASSERT_CODE(put(box, "no/file", "x", CAY_WRITE_NO_PARENTS), CAY_E_NOT_FOUND);
    ASSERT_CODE(put(box, "file/x", "x", CAY_WRITE_NO_PARENTS), CAY_E_NOT_A_DIRECTORY);
    ASSERT_OK(put(box, "yes/file", "x", 0));
    ASSERT_OK(put(box, "yes/file", "y", CAY_WRITE_NO_PARENTS | CAY_WRITE_IN_PLACE));
    ASSERT_CODE(put(box, "file", "x", CAY_WRITE_APPEND), CAY_E_UNSUPPORTED);
    ASSERT_CODE(put(box, "file", "x", CAY_WRITE_DURABLE), CAY_E_UNSUPPORTED);
    ASSERT_CODE(put(box, "file", "x", 1u << 30), CAY_E_UNSUPPORTED);
}

WITH_PEER(mkdir_and_remove_apply_their_flags)
{
    void *box = make_box(NULL);

    ASSERT_OK(calls()->mkdir(box, NULL, "a/b", 0, &err));
    ASSERT_CODE(calls()->mkdir(box, NULL, "a/b", 0, &err), CAY_E_EXISTS);
    ASSERT_OK(calls()->mkdir(box, NULL, "a/b", CAY_NAME_EXIST_OK, &err));
    ASSERT_CODE(calls()->mkdir(box, NULL, "x/y", CAY_NAME_NO_PARENTS, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(put(box, "file", "x", 0));
    ASSERT_CODE(calls()->mkdir(box, NULL, "file", CAY_NAME_EXIST_OK, &err), CAY_E_EXISTS);
    ASSERT_CODE(calls()->mkdir(box, NULL, "c", CAY_NAME_RECURSIVE, &err),
                CAY_E_UNSUPPORTED);
    ASSERT_CODE(calls()->remove(box, NULL, "a", 0, &err), CAY_E_NOT_A_FILE);
    ASSERT_OK(calls()->remove(box, NULL, "a", CAY_NAME_RECURSIVE, &err));
    ASSERT_CODE(calls()->remove(box, NULL, "a", CAY_NAME_RECURSIVE, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(calls()->remove(box, NULL, "/", CAY_NAME_RECURSIVE, &err), CAY_E_INVALID);
    (void)output_of(box, "mkdir kept; ln -s kept way");
    ASSERT_OK(calls()->remove(box, NULL, "way", 0, &err)); /* the link */
    ASSERT_STR(output_of(box, "ls -d kept way 2>/dev/null || :"), "kept");
}

WITH_PEER(move_does_not_replace_a_file)
{
    void *box = make_box(NULL);

    ASSERT_OK(put(box, "one", "1", 0));
    ASSERT_OK(put(box, "two", "2", 0));
    ASSERT_CODE(calls()->move(box, NULL, "one", "two", &err), CAY_E_EXISTS);
    ASSERT_STR(err.subject, "two");
    ASSERT_CODE(calls()->move(box, NULL, "none", "three", &err), CAY_E_NOT_FOUND);
    ASSERT_OK(calls()->move(box, NULL, "one", "new/three", &err));
    ASSERT_STR(get(box, "new/three"), "1");
}

WITH_PEER(errno_texts_of_envd_become_codes)
{
    static const struct {
        const char *words;
        int code;
    } all[] = {{"permission denied", CAY_E_DENIED},
               {"no space left on device", CAY_E_NO_SPACE},
               {"something odd", CAY_E_IO}};
    void *box = make_box("max_retries: 0\n");

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        (void)peer_request(
            "{\"rule\": {\"on\": \"POST /filesystem.Filesystem/MakeDir\", "
            "\"status\": 500, \"body\": \"{\\\"code\\\": \\\"internal\\\", "
            "\\\"message\\\": \\\"mkdir: %s\\\"}\"}}",
            all[i].words);
        ASSERT_CODE(calls()->mkdir(box, NULL, "x", 0, &err), all[i].code);
        ASSERT_HAS(err.message, all[i].words);
    }
}
