/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "field.h"
#include "plain.h"

/* A large text read 20,000 characters at a time, each side the same page in turn. */
struct paging {
    const struct field *field;
    cay_reader *reader;
    int fd;
    uint64_t chars, pages;
    uint64_t page_bytes; /* on average */
    uint64_t next[2];    /* number of the page, each side its own */
};

static const char name[] = "pages.txt";

static cay_reader *open_reader(const struct field *field)
{
    cay_reader *reader = NULL;
    struct cay_error err;

    if (!field_ok(cay_reader_open(field->files, name, &reader, &err), &err))
        contest_die(name);
    return reader;
}

/* Nothing is remembered yet: a handle of its own, and the file has just been opened. */
static bool ours_first(void *cookie)
{
    const struct paging *paging = cookie;
    cay_reader *reader = open_reader(paging->field);
    struct cay_page page = {0};
    struct cay_error err;

    bool ok = field_ok(cay_reader_page(reader, NULL, &page, &err), &err);
    cay_page_done(&page);
    cay_reader_free(reader);
    return ok;
}

static bool plain_first(void *cookie)
{
    const struct paging *paging = cookie;

    return plain_pass(paging->field->dir, name);
}

/* An index is remembered by the file's times, so new ones make it forgotten. */
static void touch(void *cookie, enum side side)
{
    const struct paging *paging = cookie;

    if (side == OURS && futimens(paging->fd, NULL) != 0)
        contest_die("futimens");
}

/* Pages in an order that jumps about the file and meets every one of them. */
static uint64_t next_page(struct paging *paging, enum side side)
{
    uint64_t number = paging->next[side]++ * 7919;

    return number % paging->pages;
}

static bool take_page(const struct paging *paging, int code, struct cay_page *page,
                      const struct cay_error *err)
{
    bool ok = field_ok(code, err) && page->count == CAY_READ_CHARS &&
              page->total == paging->chars;

    cay_page_done(page);
    return ok;
}

static bool ours_by_reader(void *cookie)
{
    struct paging *paging = cookie;
    const struct cay_read_options options = {.size = sizeof options,
                                             .offset =
                                                 next_page(paging, OURS) * CAY_READ_CHARS,
                                             .max = CAY_READ_CHARS};
    struct cay_page page = {0};
    struct cay_error err;

    return take_page(paging, cay_reader_page(paging->reader, &options, &page, &err),
                     &page, &err);
}

static bool ours_by_path(void *cookie)
{
    struct paging *paging = cookie;
    const struct cay_read_options options = {.size = sizeof options,
                                             .offset =
                                                 next_page(paging, OURS) * CAY_READ_CHARS,
                                             .max = CAY_READ_CHARS};
    struct cay_page page = {0};
    struct cay_error err;

    return take_page(paging,
                     cay_files_read(paging->field->files, name, &options, &page, &err),
                     &page, &err);
}

static bool plain_by_fd(void *cookie)
{
    struct paging *paging = cookie;

    return plain_page_of(paging->fd, next_page(paging, PLAIN) * paging->page_bytes,
                         paging->page_bytes);
}

static bool plain_by_path(void *cookie)
{
    struct paging *paging = cookie;

    return plain_page(paging->field->dir, name,
                      next_page(paging, PLAIN) * paging->page_bytes, paging->page_bytes);
}

static uint64_t count_characters(const struct field *field)
{
    uint64_t chars = 0;

    for (uint64_t i = 0; i < field->bytes; i++)
        chars += ((unsigned char)field->text[i] & 0xC0) != 0x80;
    return chars;
}

static void run(struct paging *paging, struct contest contest)
{
    contest.part = "paging";
    contest.bytes = paging->field->bytes;
    contest.cookie = paging;
    paging->next[OURS] = paging->next[PLAIN] = 0;
    contest_run(&contest);
}

static void run_pages(struct field *field, bool mixed)
{
    struct paging paging = {.field = field};

    field->text = field_lines(field->bytes, mixed);
    paging.chars = count_characters(field);
    paging.pages = paging.chars / CAY_READ_CHARS;
    paging.page_bytes = field->bytes * CAY_READ_CHARS / paging.chars;
    field_make(field, name);
    free(field->text);
    paging.fd = openat(field->dir, name, O_RDONLY | O_CLOEXEC);
    if (paging.fd < 0)
        contest_die(name);
    field_settle(field);

    run(&paging,
        (struct contest){.op = mixed ? "first page, mixed UTF-8" : "first page, ASCII",
                         .floor = "open, read all by 256 KiB, close",
                         .rounds = field_rounds(field, field->bytes),
                         .run = {ours_first, plain_first},
                         .before = touch});
    field_settle(field);
    paging.reader = open_reader(field);
    unsigned rounds = field->quick ? 100 : 1000;
    run(&paging, (struct contest){.op = mixed ? "later page by reader, mixed UTF-8"
                                              : "later page by reader, ASCII",
                                  .floor = "malloc, pread",
                                  .rounds = rounds,
                                  .run = {ours_by_reader, plain_by_fd}});
    run(&paging, (struct contest){.op = mixed ? "later page by path, mixed UTF-8"
                                              : "later page by path, ASCII",
                                  .floor = "open, malloc, pread, close",
                                  .rounds = rounds,
                                  .run = {ours_by_path, plain_by_path}});
    cay_reader_free(paging.reader);
    close(paging.fd);
    field_remove(field, name);
}

void paging_contests(struct field *field, uint64_t bytes)
{
    field->bytes = bytes;
    run_pages(field, false);
    run_pages(field, true);
}
