/* SPDX-License-Identifier: Apache-2.0 */

/* The files of a sandbox against what a program in it can put there. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "init/packet.h"
#include "inside.h"

/* --- Every descriptor that comes out is looked at --- */

enum { IDS_FIRST = 0x70000000, IDS_LAST = 0x7FFFFFFF };

static uint64_t looked_at;
static bool is_racing;

/* The linker puts this in front of the library's own. */
int __real_packet_receive(int socket, struct packet *ret_packet);
int __wrap_packet_receive(int socket, struct packet *ret_packet);

int __wrap_packet_receive(int socket, struct packet *ret_packet)
{
    int got = __real_packet_receive(socket, ret_packet);
    struct stat st;

    for (size_t i = 0; is_racing && got == 1 && i < ret_packet->head.fd_count; i++) {
        ASSERT(fstat(ret_packet->fds[i], &st) == 0);
        ASSERT(st.st_uid >= IDS_FIRST && st.st_uid <= IDS_LAST);
        looked_at++;
    }
    return got;
}

/* --- Programs that run inside: this one, when it is called by another name --- */

static void flip(const char *a, const char *b)
{
    for (;;)
        if (syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) != 0)
            _exit(1);
}

static void grow_and_shrink(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char piece[4096];

    memset(piece, 'x', sizeof piece);
    for (;;) {
        for (int i = 0; i < 64; i++)
            if (write(fd, piece, sizeof piece) < 0)
                _exit(1);
        if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0)
            _exit(1);
    }
}

static void take_lease(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    _exit(fd < 0                                  ? 2
          : fcntl(fd, F_SETLEASE, F_WRLCK) == 0   ? 3
          : errno != EPERM                        ? 4
          : fcntl(fd, 1040 /* F_SETDELEG */) == 0 ? 5
          : errno != EPERM                        ? 6
                                                  : 0);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--flip") == 0)
        flip(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "--grow") == 0)
        grow_and_shrink(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--lease") == 0)
        take_lease(argv[2]);
    return harness_run(argc - 1, argv + 1);
}

/* Puts this program there as /tmp/enemy. */
static void bring_enemy(cay_sandbox *sandbox)
{
    AUTO(cay_files) files = files_of(sandbox, "root");
    AUTO_FD fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat st;

    ASSERT(fd >= 0 && fstat(fd, &st) == 0);
    AUTO_FREE char *program = malloc((size_t)st.st_size);
    ASSERT(program && pread(fd, program, (size_t)st.st_size, 0) == st.st_size);
    ASSERT_OK(
        cay_files_write(files, "/tmp/enemy", program, (size_t)st.st_size, NULL, &err));
    (void)told(sandbox, "chmod 755 /tmp/enemy");
}

static const char count_enemies[] = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c enemy";

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* --- Links --- */

TEST(a_link_means_what_it_means_inside)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    AUTO(cay_files) as_root = files_of(sandbox, "root");

    put_file("outside", "the host's"); /* in a directory that the sandbox has not got */
    (void)told(sandbox, "cd /home/user; ln -s /etc/shadow shadow; "
                        "ln -s ../../../../../../../../etc/hostname up; "
                        "ln -s ../../../../../../../.. root; ln -s / top");
    ASSERT_CODE(read_code(files, "shadow"), CAY_E_DENIED);
    expect(as_root, "/home/user/shadow",
           "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n");
    char hostname[128];
    snprintf(hostname, sizeof hostname, "%s\n", cay_sandbox_id(sandbox));
    expect(files, "up", hostname);
    expect(files, "root/etc/hostname", hostname);
    expect(files, "top/home/user/top/etc/hostname", hostname);
    char path[8192];
    snprintf(path, sizeof path, "top%s", scratch_path("outside"));
    ASSERT_CODE(read_code(files, path), CAY_E_NOT_FOUND);
    struct cay_stat stat;
    ASSERT_OK(cay_files_stat(files, "up", true, &stat, &err));
    ASSERT_INT(stat.type, CAY_TYPE_LINK);
    ASSERT_OK(cay_files_stat(files, "up", false, &stat, &err));
    ASSERT_INT(stat.type, CAY_TYPE_FILE);
    /* Writing through it as well: the sandbox's own file is written. */
    put(as_root, "/home/user/up", "renamed\n");
    ASSERT_STR(told(sandbox, "cat /etc/hostname; test -L /home/user/up"), "renamed");
    cay_exec_done(&result);
}

TEST(links_that_go_round_and_links_of_proc_are_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    const char *const magic[] = {"/proc/1/root/etc/passwd",
                                 "/proc/self/root/etc/passwd",
                                 "/proc/1/cwd/etc/passwd",
                                 "/proc/self/fd/5",
                                 "/proc/self/exe",
                                 "/dev/stdin",
                                 "/dev/fd/0",
                                 "/root/fd/5",
                                 "/root/away/etc/passwd"};

    (void)told(sandbox, "cd /root; ln -s a b; ln -s b a; ln -s loop/x loop; "
                        "ln -s /proc/self/fd fd; ln -s /proc/1/root away");
    ASSERT_CODE(read_code(files, "a"), CAY_E_INVALID);
    ASSERT_CODE(write_code(files, "a"), CAY_E_INVALID);
    ASSERT_CODE(read_code(files, "loop"), CAY_E_INVALID);
    for (size_t i = 0; i < sizeof magic / sizeof *magic; i++) {
        int code = read_code(files, magic[i]);
        if (code != CAY_E_INVALID && code != CAY_E_NOT_FOUND)
            harness_fail(__FILE__, __LINE__, "%s: %d", magic[i], code);
        ASSERT(write_code(files, magic[i]) < 0);
    }
    ASSERT_OK(cay_files_delete(files, "a", NULL, &err)); /* the link itself */
    cay_exec_done(&result);
}

/* --- What is not a file --- */

TEST(fifos_sockets_and_devices_are_refused_at_once)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    const char *const kinds[] = {"/root/fifo", "/root/socket", "/root/to-fifo",
                                 "/dev/null",  "/dev/zero",    "/dev/tty",
                                 "/dev/ptmx",  "/dev/pts/ptmx"};
    struct cay_stat stat;

    (void)told(sandbox, "cd /root; mkfifo fifo; ln -s fifo to-fifo; python3 -c \""
                        "import socket; socket.socket(socket.AF_UNIX).bind('socket')\"");
    const char *before = told(sandbox, "ls /dev/pts");
    char terminals[256];
    snprintf(terminals, sizeof terminals, "%s", before);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double start = now_ms();
        ASSERT_CODE(read_code(files, kinds[i]), CAY_E_NOT_A_FILE);
        ASSERT_CODE(write_code(files, kinds[i]), CAY_E_NOT_A_FILE);
        ASSERT(now_ms() - start < 1000);
        ASSERT_OK(cay_files_stat(files, kinds[i], false, &stat, &err));
        ASSERT_INT(stat.type, CAY_TYPE_OTHER);
    }
    ASSERT_STR(told(sandbox, "ls /dev/pts"), terminals);
    cay_exec_done(&result);
}

TEST(a_process_inside_cannot_delay_an_open_with_a_file_lease)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");

    bring_enemy(sandbox);
    put(files, "/tmp/f", "x");
    (void)told(sandbox, "/tmp/enemy --lease /tmp/f"); /* refused to take one */
    cay_exec_done(&result);
}

/* --- The kernel's own files --- */

TEST(files_of_proc_are_read_as_they_are_inside)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_page page;
    struct cay_matches matches;
    char name[128];

    ASSERT_OK(cay_files_read(files, "/proc/cpuinfo", NULL, &page, &err));
    ASSERT_HAS(page.text, "processor");
    cay_page_done(&page);
    /* Read outside this would be the host's. */
    snprintf(name, sizeof name, "%s\n", cay_sandbox_id(sandbox));
    expect(files, "/proc/sys/kernel/hostname", name);
    ASSERT_OK(cay_files_grep(files, "/proc/sys/kernel", cay_sandbox_id(sandbox), NULL,
                             &matches, &err));
    ASSERT_INT(matches.count, 1);
    cay_matches_done(&matches);
    ASSERT_OK(cay_files_copy(files, "/proc/meminfo", "copy", NULL, &err));
    ASSERT_HAS(told(sandbox, "cat /home/user/copy"), "MemTotal");
    cay_exec_done(&result);
}

TEST(nothing_is_written_to_proc)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    const struct cay_write_options ways[] = {
        {.size = sizeof *ways},
        {.size = sizeof *ways, .flags = CAY_WRITE_IN_PLACE},
        {.size = sizeof *ways, .flags = CAY_WRITE_APPEND}};
    const char *const paths[] = {"/proc/1/oom_score_adj", "/proc/1/comm",
                                 "/proc/sys/kernel/hostname", "/proc/new",
                                 "/dev/pts/new"};

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        for (size_t j = 0; j < sizeof ways / sizeof *ways; j++)
            ASSERT_CODE(cay_files_write(files, paths[i], "0", 1, &ways[j], &err),
                        CAY_E_DENIED);
    ASSERT_CODE(cay_files_mkdir(files, "/proc/d", NULL, &err), CAY_E_DENIED);
    ASSERT_CODE(cay_files_delete(files, "/proc/cpuinfo", NULL, &err), CAY_E_DENIED);
}

TEST(a_walk_from_above_passes_proc_by)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_list_options options = {.size = sizeof options, .max_depth = 2};
    struct cay_listing listing;

    ASSERT_OK(cay_files_list(files, "/", &options, &listing, &err));
    ASSERT(listing.count > 0 && !listing.truncated);
    for (size_t i = 0; i < listing.count; i++)
        ASSERT(strncmp(listing.entries[i].path, "/proc/", 6) != 0);
    cay_listing_done(&listing);
    options.max_depth = 1;
    ASSERT_OK(cay_files_list(files, "/proc", &options, &listing, &err));
    ASSERT(listing.count > 10);
    cay_listing_done(&listing);
}

/* --- Sizes and depths --- */

TEST(a_file_made_of_nothing_is_not_read_for_ever)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_read_options some = {.size = sizeof some, .offset = 1 << 20, .max = 10};
    struct cay_page page;
    struct cay_matches matches;
    cay_reader *reader;

    (void)told(sandbox, "cd /home/user; truncate -s 1G gib; truncate -s 7E most");
    ASSERT_CODE(cay_files_read_bytes(files, "gib", NULL, &page, &err), CAY_E_LIMIT);
    ASSERT_OK(cay_files_read_bytes(files, "gib", &some, &page, &err));
    ASSERT_INT(page.len, 10);
    cay_page_done(&page);
    double start = now_ms();
    ASSERT_CODE(cay_files_read(files, "most", NULL, &page, &err), CAY_E_LIMIT);
    ASSERT_CODE(cay_files_read_lines(files, "most", NULL, &page, &err), CAY_E_LIMIT);
    ASSERT_OK(cay_reader_open(files, "most", &reader, &err));
    ASSERT_CODE(cay_reader_page(reader, NULL, &page, &err), CAY_E_LIMIT);
    cay_reader_free(reader);
    ASSERT_OK(cay_files_grep(files, "/home/user", "x", NULL, &matches, &err));
    ASSERT_INT(matches.files_skipped, 2);
    cay_matches_done(&matches);
    /* A copy is made of as much. */
    ASSERT_OK(cay_files_copy(files, "most", "copy", NULL, &err));
    ASSERT_STR(told(sandbox, "stat -c %b:%s /home/user/copy"), "0:8070450532247928832");
    ASSERT(now_ms() - start < 5000);
    cay_exec_done(&result);
}

TEST(a_file_that_grows_and_shrinks_is_read_or_not_but_never_kills)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    struct cay_page page = {0};
    int good = 0;

    bring_enemy(sandbox);
    (void)told(sandbox, "touch /home/user/f");
    start(sandbox, "/tmp/enemy --grow /home/user/f");
    for (int i = 0; i < 3000; i++) {
        int code = i % 2 ? cay_files_read(files, "f", NULL, &page, &err)
                         : cay_files_read_bytes(files, "f", NULL, &page, &err);
        ASSERT(code == CAY_OK || code == CAY_E_BUSY);
        good += code == CAY_OK;
        ASSERT(code || page.len <= 64 * 4096);
        if (!code)
            cay_page_done(&page);
    }
    ASSERT(good > 100);
    ASSERT_STR(told(sandbox, count_enemies), "1");
    cay_exec_done(&result);
}

TEST(a_tree_of_five_thousand_levels_is_deleted)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, NULL);
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_RECURSIVE};

    run_as(
        sandbox, NULL,
        "python3 -c \"import os\nos.mkdir('deep')\nos.chdir('deep')\n"
        "for i in range(5000):\n os.mkdir('d'); open('f','w').close(); os.chdir('d')\"",
        PATIENCE_MS);
    ASSERT_INT(result.exit_code, 0);
    ASSERT_OK(cay_files_delete(files, "deep", &options, &err));
    ASSERT_STR(told(sandbox, "ls -A /home/user"), "");
    cay_exec_done(&result);
}

/* --- Somebody is faster --- */

TEST(swapping_directories_and_links_leads_nowhere_else)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    enum { OPERATIONS = 20000 };
    uint64_t done = 0;
    struct stat st;

    /* What it would look like, had one got away. */
    ASSERT(stat("/etc/hostname", &st) == 0 && st.st_uid < IDS_FIRST);
    bring_enemy(sandbox);
    /* /etc is there on both sides; of what is on the host only its owner differs. */
    (void)told(sandbox, "mkdir -p /srv/d /srv/e; echo inside > /srv/d/hostname; "
                        "ln -s /etc /srv/away; ln -s ../../../../../etc /srv/up; "
                        "echo inside > /srv/f; ln -s /etc/hostname /srv/l");
    start(sandbox, "/tmp/enemy --flip /srv/d /srv/away");
    start(sandbox, "/tmp/enemy --flip /srv/e /srv/up");
    start(sandbox, "/tmp/enemy --flip /srv/f /srv/l");
    is_racing = true;
    looked_at = 0;
    for (int i = 0; i < OPERATIONS; i++) {
        static const char *const paths[] = {"/srv/d/hostname", "/srv/f", "/srv/e/new",
                                            "/srv/away/hostname"};
        const char *path = paths[i % 4];
        int code = i / 4 % 2 ? write_code(files, path) : read_code(files, path);
        ASSERT(code == CAY_OK || code == CAY_E_BUSY || code == CAY_E_NOT_FOUND ||
               code == CAY_E_INVALID);
        done += code == CAY_OK;
    }
    is_racing = false;
    ASSERT_STR(told(sandbox, count_enemies), "3"); /* to the end */
    ASSERT(done > OPERATIONS / 20 && looked_at > OPERATIONS / 10);
    cay_exec_done(&result);
}
