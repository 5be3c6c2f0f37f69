/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "policies.h"

static struct cay_page page;

static int read_page(cay_files *files, const char *path, unsigned flags, uint64_t offset,
                     uint64_t max)
{
    const struct cay_read_options options = {
        .size = sizeof options, .flags = flags, .offset = offset, .max = max};

    return cay_files_read(files, path, &options, &page, &err);
}

static void expect(const char *text, uint64_t count, uint64_t total, bool truncated)
{
    ASSERT_STR(page.text, text);
    ASSERT_INT(page.len, strlen(text));
    ASSERT_INT(page.count, count);
    ASSERT_INT(page.total, total);
    ASSERT_INT(page.truncated, truncated);
    cay_page_done(&page);
}

TEST(a_page_counts_characters_not_bytes)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a.txt", "héllo 漢字!");
    ASSERT_OK(read_page(files, "data/a.txt", 0, 1, 6));
    expect("éllo 漢", 6, 9, true);
    ASSERT_OK(read_page(files, "data/a.txt", 0, 7, 20));
    expect("字!", 2, 9, false);
}

TEST(past_the_end_there_is_nothing_and_nothing_more)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "abc");
    ASSERT_OK(read_page(files, "data/a", 0, 10, 5));
    expect("", 0, 3, false);
    ASSERT_OK(read_page(files, "data/a", 0, 3, 5));
    expect("", 0, 3, false);
}

TEST(a_maximum_of_zero_is_an_empty_page_with_more_to_come)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "abc");
    put_file("data/empty", "");
    ASSERT_OK(read_page(files, "data/a", 0, 0, 0));
    expect("", 0, 3, true);
    ASSERT_OK(read_page(files, "data/empty", 0, 0, 0));
    expect("", 0, 0, false);
}

TEST(newlines_are_kept_unless_universal_ones_are_asked_for)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "a\r\nb\rc\n");
    ASSERT_OK(read_page(files, "data/a", 0, 0, 100));
    expect("a\r\nb\rc\n", 7, 7, false);
    ASSERT_OK(read_page(files, "data/a", CAY_READ_UNIVERSAL_NEWLINES, 0, 100));
    expect("a\nb\nc\n", 6, 6, false);
    ASSERT_OK(read_page(files, "data/a", CAY_READ_UNIVERSAL_NEWLINES, 1, 2));
    expect("\nb", 2, 6, true);
}

TEST(a_byte_order_mark_is_a_character_like_others)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "\xEF\xBB\xBFx");
    ASSERT_OK(read_page(files, "data/a", 0, 0, 10));
    expect("\xEF\xBB\xBFx", 2, 2, false);
}

TEST(what_is_not_utf8_is_refused_wherever_the_bad_byte_is)
{
    AUTO(cay_files) files = open_data();
    AUTO_FREE char *big = malloc(300000);

    memset(big, 'a', 300000);
    big[299999] = '\xC3';
    put_bytes("data/big", big, 300000);
    put_bytes("data/small", "ab\xFF", 3);
    ASSERT_CODE(read_page(files, "data/small", 0, 0, 1), CAY_E_NOT_TEXT);
    ASSERT_CODE(read_page(files, "data/big", 0, 0, 1), CAY_E_NOT_TEXT);
    ASSERT_CODE(read_page(files, "data/big", 0, 0, UINT64_MAX), CAY_E_NOT_TEXT);
}

/* A large text of every kind of character and line end, and its pages cut out plainly. */
static size_t make_large(char *text, size_t room)
{
    static const char *const pieces[] = {"ascii line\n", "é",  "漢",   "\xF0\x9F\x98\x80",
                                         "\r\n",         "\r", "word "};
    size_t len = 0;
    uint32_t seed = 3;

    while (len + 16 < room) {
        seed = seed * 1664525u + 1013904223u;
        const char *piece = pieces[(seed >> 16) % 7];
        memcpy(text + len, piece, strlen(piece));
        len += strlen(piece);
    }
    return len;
}

static size_t plain_page(const char *text, size_t len, bool universal, uint64_t offset,
                         uint64_t max, char *out)
{
    uint64_t chars = 0;
    size_t used = 0;

    for (size_t i = 0; i < len;) {
        size_t size = 1;
        while (i + size < len && ((unsigned char)text[i + size] & 0xC0) == 0x80)
            size++;
        bool pair = universal && text[i] == '\r' && i + 1 < len && text[i + 1] == '\n';
        if (pair)
            size = 2;
        if (chars >= offset && chars - offset < max) {
            if (universal && text[i] == '\r') {
                out[used++] = '\n';
            } else {
                memcpy(out + used, text + i, size);
                used += size;
            }
        }
        chars++;
        i += size;
    }
    return used;
}

static void compare_pages(cay_files *files, const char *text, size_t len, unsigned flags)
{
    AUTO_FREE char *out = malloc(len + 1);

    for (uint64_t offset = 0; offset < len; offset += 61213) {
        size_t want = plain_page(text, len, flags, offset, 20000, out);
        ASSERT_OK(read_page(files, "data/big", flags, offset, 20000));
        ASSERT_MEM(page.text, page.len, out, want);
        cay_page_done(&page);
    }
}

TEST(pages_of_a_large_file_are_those_a_plain_cut_gives)
{
    AUTO(cay_files) files = open_data();
    enum { ROOM = 700000 };
    AUTO_FREE char *text = malloc(ROOM);
    size_t len = make_large(text, ROOM);

    put_bytes("data/big", text, len);
    compare_pages(files, text, len, 0);
    compare_pages(files, text, len, CAY_READ_UNIVERSAL_NEWLINES);
}

TEST(pages_begin_and_end_right_at_every_place_around_a_block_border)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 200000, BORDER = 65536 };
    AUTO_FREE char *text = malloc(LEN), *out = malloc(LEN);
    static const char *const at_border[] = {"\xF0\x9F\x98\x80", "\r\n", "漢", "\r"};

    for (size_t kind = 0; kind < 4; kind++)
        for (size_t shift = 0; shift < 5; shift++) {
            memset(text, 'a', LEN);
            memcpy(text + BORDER - shift, at_border[kind], strlen(at_border[kind]));
            put_bytes("data/big", text, LEN);
            for (uint64_t offset = BORDER - 6; offset < BORDER + 4; offset++) {
                size_t want = plain_page(text, LEN, true, offset, 3, out);
                ASSERT_OK(
                    read_page(files, "data/big", CAY_READ_UNIVERSAL_NEWLINES, offset, 3));
                ASSERT_MEM(page.text, page.len, out, want);
                cay_page_done(&page);
            }
        }
}

static uint64_t bytes_read_so_far(void)
{
    char text[512];
    FILE *io = fopen("/proc/self/io", "re");
    size_t len = io ? fread(text, 1, sizeof text - 1, io) : 0;

    ASSERT(len > 0);
    fclose(io);
    text[len] = '\0';
    return strtoull(strstr(text, "rchar:") + 6, NULL, 10);
}

static void settle(void)
{
    const struct timespec pause = {.tv_nsec = 150000000};

    nanosleep(&pause, NULL);
}

TEST(after_the_first_pass_a_page_costs_only_itself)
{
    AUTO(cay_files) files = open_data();
    AUTO(cay_reader) reader = NULL;
    enum { LEN = 16 << 20 };
    AUTO_FREE char *text = malloc(LEN);
    const struct cay_read_options options = {
        .size = sizeof options, .offset = 9000000, .max = 20000};

    memset(text, 'x', LEN);
    put_bytes("data/big", text, LEN);
    settle();
    ASSERT_OK(cay_reader_open(files, "data/big", &reader, &err));
    ASSERT_OK(cay_reader_page(reader, &options, &page, &err));
    cay_page_done(&page);

    uint64_t before = bytes_read_so_far();
    ASSERT_OK(cay_reader_page(reader, &options, &page, &err));
    cay_page_done(&page);
    ASSERT_OK(read_page(files, "data/big", 0, 12000000, 20000));
    cay_page_done(&page);
    ASSERT(bytes_read_so_far() - before < 1 << 20);
}

TEST(a_file_that_was_changed_is_counted_anew)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 300000 };
    AUTO_FREE char *text = malloc(LEN);

    memset(text, 'x', LEN);
    put_bytes("data/big", text, LEN);
    settle();
    ASSERT_OK(read_page(files, "data/big", 0, 0, 10));
    ASSERT_INT(page.total, LEN);
    cay_page_done(&page);
    memcpy(text + 1000, "é", 2);
    put_bytes("data/big", text, LEN);
    ASSERT_OK(read_page(files, "data/big", 0, 0, 10));
    ASSERT_INT(page.total, LEN - 1);
    cay_page_done(&page);
}

TEST(an_open_reader_stays_with_its_file_when_the_name_moves_on)
{
    AUTO(cay_files) files = open_data();
    AUTO(cay_reader) reader = NULL;

    put_file("data/a", "old");
    ASSERT_OK(cay_reader_open(files, "data/a", &reader, &err));
    ASSERT_INT(rename(scratch_path("data/a"), scratch_path("data/b")), 0);
    put_file("data/a", "new");
    ASSERT_OK(cay_reader_page(reader, NULL, &page, &err));
    expect("old", 3, 3, false);
}

TEST(lines_come_whole_with_their_ends)
{
    AUTO(cay_files) files = open_data();
    struct cay_read_options options = {.size = sizeof options, .offset = 1, .max = 2};

    put_file("data/a", "one\ntwo\r\nth\ree\nfour");
    ASSERT_OK(cay_files_read_lines(files, "data/a", &options, &page, &err));
    expect("two\r\nth\ree\n", 2, 4, true);
    options.flags = CAY_READ_UNIVERSAL_NEWLINES;
    options.max = UINT64_MAX;
    ASSERT_OK(cay_files_read_lines(files, "data/a", &options, &page, &err));
    expect("two\nth\ree\nfour", 3, 4, false);
}

TEST(lines_of_a_large_file_are_found_across_blocks)
{
    AUTO(cay_files) files = open_data();
    enum { LINES = 40000 };
    AUTO_BUF text;
    struct cay_read_options options = {.size = sizeof options, .offset = 0, .max = 1};
    char line[32];

    buf_init(&text, 1 << 24);
    for (int i = 0; i < LINES; i++)
        buf_format(&text, "line number %d\n", i);
    put_bytes("data/a", text.data, text.len);
    for (int i = 0; i < LINES; i += 997) {
        options.offset = (uint64_t)i;
        ASSERT_OK(cay_files_read_lines(files, "data/a", &options, &page, &err));
        snprintf(line, sizeof line, "line number %d\n", i);
        expect(line, 1, LINES, i < LINES - 1);
    }
}

TEST(bytes_are_bytes)
{
    AUTO(cay_files) files = open_data();
    const struct cay_read_options options = {
        .size = sizeof options, .offset = 1, .max = 3};

    put_bytes("data/a", "\0\xFF\r\n\0", 5);
    ASSERT_OK(cay_files_read_bytes(files, "data/a", &options, &page, &err));
    ASSERT_MEM(page.text, page.len, "\xFF\r\n", 3);
    ASSERT_INT(page.total, 5);
    ASSERT(page.truncated);
    cay_page_done(&page);
}

TEST(a_huge_sparse_file_is_refused_without_memory_for_it)
{
    AUTO(cay_files) files = open_data();

    put_file("data/huge", "");
    ASSERT_INT(truncate(scratch_path("data/huge"), 1L << 40), 0);
    ASSERT_CODE(cay_files_read_bytes(files, "data/huge", NULL, &page, &err), CAY_E_LIMIT);
    ASSERT_HAS(err.hint, "offset");
}

TEST(the_large_flag_lifts_the_read_limit)
{
    AUTO(cay_files) files = open_data();
    const size_t size = CAY_READ_MAX + 1;

    put_file("data/large", "");
    ASSERT_INT(truncate(scratch_path("data/large"), (off_t)size), 0);
    ASSERT_CODE(read_page(files, "data/large", 0, 0, size), CAY_E_LIMIT);
    for (unsigned offset = 0; offset < 2; offset++) {
        ASSERT_OK(read_page(files, "data/large", CAY_READ_LARGE, offset, size));
        ASSERT_INT(page.len, size - offset);
        cay_page_done(&page);
    }
}

TEST(only_regular_files_are_opened)
{
    AUTO(cay_files) files = open_data();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    AUTO_FD sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT_INT(mkfifo(scratch_path("data/fifo"), 0600), 0);
    ASSERT_INT(mkdir(scratch_path("data/dir"), 0700), 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", scratch_path("data/sock"));
    ASSERT_INT(bind(sock, (const struct sockaddr *)&address, sizeof address), 0);
    ASSERT_CODE(read_page(files, "data/fifo", 0, 0, 1), CAY_E_NOT_A_FILE);
    ASSERT_HAS(err.message, "FIFO");
    ASSERT_CODE(read_page(files, "data/sock", 0, 0, 1), CAY_E_NOT_A_FILE);
    ASSERT_CODE(read_page(files, "data/dir", 0, 0, 1), CAY_E_NOT_A_FILE);
    ASSERT_HAS(err.message, "directory");
    ASSERT_CODE(read_page(files, "data", 0, 0, 1), CAY_E_NOT_A_FILE);
    ASSERT_CODE(read_page(files, "data/none", 0, 0, 1), CAY_E_NOT_FOUND);
    ASSERT_CODE(read_page(files, "data/dir/none", 0, 0, 1), CAY_E_NOT_FOUND);
}

TEST(many_files_are_read_in_one_call_each_with_its_own_outcome)
{
    AUTO(cay_files) files = open_data();
    struct cay_read_item items[] = {
        {.path = "data/a"}, {.path = "etc/x"}, {.path = "data/b"}};

    put_file("data/a", "A");
    put_file("data/b", "B");
    ASSERT_OK(cay_files_read_many(files, items, 3, &err));
    ASSERT_STR(items[0].page.text, "A");
    ASSERT_INT(items[1].error.code, CAY_E_OUTSIDE);
    ASSERT_STR(items[2].page.text, "B");
    cay_page_done(&items[0].page);
    cay_page_done(&items[2].page);
}

TEST(unknown_flags_and_unknown_options_are_refused)
{
    AUTO(cay_files) files = open_data();
    struct {
        struct cay_read_options options;
        uint64_t from_the_future;
    } larger = {.options = {.size = sizeof larger, .max = 1}, .from_the_future = 1};

    put_file("data/a", "A");
    ASSERT_CODE(read_page(files, "data/a", 1u << 30, 0, 1), CAY_E_UNSUPPORTED);
    ASSERT_CODE(cay_files_read(files, "data/a", &larger.options, &page, &err),
                CAY_E_UNSUPPORTED);
    larger.from_the_future = 0;
    ASSERT_OK(cay_files_read(files, "data/a", &larger.options, &page, &err));
    cay_page_done(&page);
}

TEST(rules_are_checked_in_order_and_say_what_is_allowed)
{
    static const char *const suffixes[] = {".txt", ".MD"};
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "docs";
    mount.host = "docs";
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 2;
    mount.max_file_bytes = 4;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    put_file("docs/a.png", "x");
    put_file("docs/big.md", "12345");
    put_file("docs/fits.txt", "1234");
    ASSERT_INT(symlink("a.png", scratch_path("docs/link.txt")), 0);
    ASSERT_CODE(read_page(files, "docs/none.png", 0, 0, 1), CAY_E_NOT_FOUND);
    ASSERT_CODE(read_page(files, "docs/a.png", 0, 0, 1), CAY_E_SUFFIX);
    ASSERT_HAS(err.message, "suffix '.png' not allowed");
    ASSERT_HAS(err.hint, ".txt");
    ASSERT_CODE(read_page(files, "docs/link.txt", 0, 0, 1), CAY_E_SUFFIX);
    ASSERT_CODE(read_page(files, "docs/big.md", 0, 0, 1), CAY_E_TOO_LARGE);
    ASSERT_OK(read_page(files, "docs/fits.txt", 0, 0, 9));
    expect("1234", 4, 4, false);
}

TEST(no_host_path_appears_in_an_error)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.host = "root";
    mount.writable = true;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_ROOT, &mount, 1);
    ASSERT_INT(symlink("/etc/passwd", scratch_path("root/out")), 0);
    ASSERT_INT(symlink("loop", scratch_path("root/loop")), 0);
    ASSERT_INT(mkdir(scratch_path("root/dir"), 0700), 0);
    static const char *const paths[] = {"/out", "/loop", "/none/x",
                                        "/dir", "/../x", "~/x"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        ASSERT(read_page(files, paths[i], 0, 0, 1) < 0);
        ASSERT_STR(err.subject, paths[i]);
        ASSERT(!strstr(err.message, scratch()) && !strstr(err.hint, scratch()));
        ASSERT(!strstr(err.message, "passwd") && !strstr(err.hint, "passwd"));
    }
}

/* Memory of the caller's for a whole file. */
struct place {
    char *memory;
    size_t asked;
    int calls;
};

static char *give(void *cookie, size_t len)
{
    struct place *place = cookie;

    place->calls++;
    place->asked = len;
    place->memory = malloc(len + 1);
    return place->memory;
}

TEST(a_whole_large_file_is_read_into_the_callers_own_memory)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 3 << 20 };
    AUTO_FREE char *text = malloc(LEN + 1);
    struct place place = {0};
    struct cay_read_options options = {
        .size = sizeof options, .max = UINT64_MAX, .allocate = give, .cookie = &place};

    memset(text, 'x', LEN);
    memcpy(text + 1000, "\r\n\xC3\xA9", 4);
    put_bytes("data/big", text, LEN);
    ASSERT_OK(cay_files_read(files, "data/big", &options, &page, &err));
    ASSERT(page.text == place.memory && place.calls == 1 && place.asked == LEN);
    ASSERT_MEM(page.text, page.len, text, LEN);
    ASSERT_INT(page.total, LEN - 1);
    free(place.memory);

    options.flags = CAY_READ_UNIVERSAL_NEWLINES;
    ASSERT_OK(cay_files_read(files, "data/big", &options, &page, &err));
    ASSERT(page.text == place.memory);
    ASSERT_INT(page.len, LEN - 1);
    ASSERT_INT(page.count, LEN - 2);
    free(place.memory);

    text[LEN - 1] = '\xC3';
    put_bytes("data/big", text, LEN);
    ASSERT_CODE(cay_files_read(files, "data/big", &options, &page, &err), CAY_E_NOT_TEXT);
    free(place.memory);
}

TEST(the_callers_memory_is_not_asked_for_small_files_or_parts)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 2 << 20 };
    AUTO_FREE char *text = malloc(LEN);
    struct place place = {0};
    struct cay_read_options options = {
        .size = sizeof options, .max = 100, .allocate = give, .cookie = &place};

    memset(text, 'x', LEN);
    put_bytes("data/big", text, LEN);
    put_file("data/small", "x");
    ASSERT_OK(cay_files_read(files, "data/big", &options, &page, &err));
    cay_page_done(&page);
    options.max = UINT64_MAX;
    ASSERT_OK(cay_files_read(files, "data/small", &options, &page, &err));
    cay_page_done(&page);
    ASSERT_INT(place.calls, 0);
}

static char *grow_the_file(void *cookie, size_t len)
{
    FILE *file = fopen(scratch_path("data/big"), "ae");

    ASSERT(file && fputs("more", file) >= 0 && fclose(file) == 0);
    return give(cookie, len);
}

TEST(a_file_that_grows_meanwhile_is_read_whole_into_other_memory)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 2 << 20 };
    AUTO_FREE char *text = malloc(LEN);
    struct place place = {0};
    struct cay_read_options options = {.size = sizeof options,
                                       .max = UINT64_MAX,
                                       .allocate = grow_the_file,
                                       .cookie = &place};

    memset(text, 'x', LEN);
    put_bytes("data/big", text, LEN);
    ASSERT_OK(cay_files_read(files, "data/big", &options, &page, &err));
    ASSERT(page.text != place.memory);
    ASSERT_INT(page.len, LEN + 4);
    cay_page_done(&page);
    free(place.memory);
}

TEST(a_page_says_how_high_its_characters_are_and_can_be_widened)
{
    static const char text[] = "plain\r\ncaf\xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80!";
    static const struct {
        uint64_t offset, max;
        uint32_t highest;
    } cases[] = {{0, 9, 0x7F}, {0, 10, 0xFF}, {8, 4, 0xFFFF}, {8, 6, 0x10FFFF}};
    AUTO(cay_files) files = open_data();
    struct cay_read_options options = {.size = sizeof options,
                                       .flags = CAY_READ_UNIVERSAL_NEWLINES};
    uint32_t wide[16];

    put_file("data/x", text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        options.offset = cases[i].offset;
        options.max = cases[i].max;
        ASSERT_OK(cay_files_read(files, "data/x", &options, &page, &err));
        ASSERT_INT(page.highest, cases[i].highest);
        ASSERT_INT(page.count, cases[i].max);
        ASSERT_OK(cay_page_widen(&page, 4, wide, &err));
        ASSERT_INT(wide[0], cases[i].offset ? 'f' : 'p');
        if (cases[i].highest == 0x10FFFF) {
            ASSERT_INT(wide[5], 0x1F600);
            ASSERT_CODE(cay_page_widen(&page, 2, wide, &err), CAY_E_INVALID);
            ASSERT_HAS(err.hint, "a width of 4");
        }
        ASSERT_CODE(cay_page_widen(&page, 3, wide, &err), CAY_E_INVALID);
        cay_page_done(&page);
    }
}

TEST(only_pages_of_characters_can_be_widened)
{
    AUTO(cay_files) files = open_data();
    uint32_t wide[16];

    put_file("data/x", "caf\xC3\xA9\n");
    ASSERT_OK(cay_files_read_lines(files, "data/x", NULL, &page, &err));
    ASSERT_CODE(cay_page_widen(&page, 4, wide, &err), CAY_E_INVALID);
    cay_page_done(&page);
    ASSERT_OK(cay_files_read_bytes(files, "data/x", NULL, &page, &err));
    ASSERT_CODE(cay_page_widen(&page, 4, wide, &err), CAY_E_INVALID);
    cay_page_done(&page);
}

TEST(large_pages_are_widened_piece_by_piece)
{
    AUTO(cay_files) files = open_data();
    enum { TIMES = 200000 };
    static const char unit[] = "ab\xE6\x97\xA5\xC3\xA9"; /* no piece ends with one */
    AUTO_FREE char *text = malloc(TIMES * (sizeof unit - 1));
    AUTO_FREE uint16_t *wide = malloc(TIMES * 4 * sizeof *wide);
    struct cay_read_options options = {.size = sizeof options, .max = UINT64_MAX};

    for (size_t i = 0; i < TIMES; i++)
        memcpy(text + i * (sizeof unit - 1), unit, sizeof unit - 1);
    put_bytes("data/x", text, TIMES * (sizeof unit - 1));
    ASSERT_OK(cay_files_read(files, "data/x", &options, &page, &err));
    ASSERT_INT(page.count, TIMES * 4);
    ASSERT_OK(cay_page_widen(&page, 2, wide, &err));
    for (size_t i = 0; i < TIMES; i++)
        ASSERT(wide[4 * i] == 'a' && wide[4 * i + 1] == 'b' &&
               wide[4 * i + 2] == 0x65E5 && wide[4 * i + 3] == 0xE9);
    cay_page_done(&page);
}
