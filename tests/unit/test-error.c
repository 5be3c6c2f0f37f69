/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <limits.h>

#include "harness.h"

/* Numbers and slugs are ABI.  This list is written by hand on purpose: it must not follow
 * CAY_CODES when that is changed by mistake.  Append only. */
static const struct {
    int code;
    const char *slug;
} frozen[] = {
    {0, "ok"},
    {-1, "invalid"},
    {-2, "denied"},
    {-3, "not-found"},
    {-4, "no-memory"},
    {-5, "exists"},
    {-6, "busy"},
    {-7, "timeout"},
    {-8, "cancelled"},
    {-9, "limit"},
    {-10, "no-space"},
    {-11, "unsupported"},
    {-12, "unavailable"},
    {-13, "protocol"},
    {-14, "exec-failed"},
    {-15, "killed"},
    {-16, "internal"},
    {-17, "outside"},
    {-18, "read-only"},
    {-19, "escalation"},
    {-20, "suffix"},
    {-21, "too-large"},
    {-22, "no-match"},
    {-23, "not-a-file"},
    {-24, "not-a-directory"},
    {-25, "not-text"},
    {-26, "not-approved"},
    {-27, "changed"},
    {-28, "io"},
};
#define FROZEN_COUNT (sizeof frozen / sizeof *frozen)

TEST(numbers_and_slugs_are_frozen)
{
    for (size_t i = 0; i < FROZEN_COUNT; i++)
        ASSERT_STR(cay_code_slug(frozen[i].code), frozen[i].slug);
}

TEST(every_code_is_in_the_frozen_list)
{
    size_t count = 1;

#define X(name, value, slug, meaning)                                                    \
    ASSERT(count < FROZEN_COUNT);                                                        \
    ASSERT_INT(frozen[count].code, CAY_E_##name);                                        \
    count++;
    CAY_CODES(X)
#undef X
    ASSERT_INT(count, FROZEN_COUNT);
}

TEST(what_is_no_code_has_the_slug_unknown)
{
    ASSERT_STR(cay_code_slug(1), "unknown");
    ASSERT_STR(cay_code_slug(frozen[FROZEN_COUNT - 1].code - 1), "unknown");
    ASSERT_STR(cay_code_slug(INT_MIN), "unknown");
}

TEST(each_code_has_an_exit_status_of_its_own_that_a_shell_can_tell_from_a_signal)
{
    bool seen[256] = {0};

    for (size_t i = 0; i < FROZEN_COUNT; i++) {
        int status = cay_code_exit(frozen[i].code);
        ASSERT(status >= 0 && status < 126);
        ASSERT(!seen[status]);
        seen[status] = true;
    }
    ASSERT_INT(cay_code_exit(CAY_OK), 0);
    ASSERT_INT(cay_code_exit(CAY_E_INVALID), 2);
    ASSERT(!seen[1]);
}

TEST(the_layout_of_the_error_struct_is_frozen)
{
    ASSERT_INT(sizeof(struct cay_error), 1320);
    ASSERT_INT(offsetof(struct cay_error, code), 0);
    ASSERT_INT(offsetof(struct cay_error, sys_errno), 4);
    ASSERT_INT(offsetof(struct cay_error, op), 8);
    ASSERT_INT(offsetof(struct cay_error, subject), 40);
    ASSERT_INT(offsetof(struct cay_error, message), 296);
    ASSERT_INT(offsetof(struct cay_error, hint), 808);
    ASSERT(sizeof(struct cay_error) < PIPE_BUF);
}

TEST(a_failure_fills_every_field_and_returns_its_code)
{
    ASSERT_CODE(cay_fail(&err, CAY_E_BUSY, EAGAIN, "files.read", "a/b", "it moves",
                         "try %d times", 3),
                CAY_E_BUSY);
    ASSERT_INT(err.code, CAY_E_BUSY);
    ASSERT_INT(err.sys_errno, EAGAIN);
    ASSERT_STR(err.op, "files.read");
    ASSERT_STR(err.subject, "a/b");
    ASSERT_STR(err.message, "it moves");
    ASSERT_STR(err.hint, "try 3 times");
}

TEST(a_failure_needs_nobody_to_tell_it_to)
{
    ASSERT_INT(cay_fail(NULL, CAY_E_IO, 0, "op", "x", "m", "h"), CAY_E_IO);
    ASSERT_INT(cay_fail_errno(NULL, ENOENT, "op", "x"), CAY_E_NOT_FOUND);
    ASSERT_INT(cay_fail_memory(NULL, "op"), CAY_E_NO_MEMORY);
}

TEST(a_missing_subject_is_empty_text)
{
    ASSERT_CODE(cay_fail(&err, CAY_E_IO, 0, "op", NULL, "m", "h"), CAY_E_IO);
    ASSERT_STR(err.subject, "");
}

TEST(a_percent_sign_in_message_and_subject_is_only_text)
{
    ASSERT_CODE(cay_fail(&err, CAY_E_IO, 0, "op", "100%s", "%n is no format", "h"),
                CAY_E_IO);
    ASSERT_STR(err.subject, "100%s");
    ASSERT_STR(err.message, "%n is no format");
}

static bool is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    while (*p) {
        int more = *p < 0x80 ? 0 : *p >= 0xF0 ? 3 : *p >= 0xE0 ? 2 : *p >= 0xC0 ? 1 : -1;
        if (more < 0)
            return false;
        p++;
        for (; more > 0; more--, p++)
            if ((*p & 0xC0) != 0x80)
                return false;
    }
    return true;
}

TEST(over_long_text_is_cut_between_characters_wherever_the_limit_falls)
{
    static const char *const letters[] = {"a", "\u00e9", "\u20ac", "\U0001F600"};

    for (size_t letter = 0; letter < 4; letter++) {
        size_t width = strlen(letters[letter]);
        for (size_t room = 2; room < 24; room++) {
            char text[64] = "", field[24];
            for (size_t i = 0; i + width < sizeof text; i += width)
                memcpy(text + i, letters[letter], width);
            memset(field, 'x', sizeof field);
            cay_copy_text(field, room, text);
            ASSERT(strlen(field) < room);
            ASSERT(is_utf8(field));
            ASSERT(strncmp(text, field, strlen(field)) == 0);
            ASSERT(strlen(field) + 2 * width >= room - 1);
        }
    }
}

TEST(text_that_just_fits_is_kept_whole)
{
    char field[8];

    cay_copy_text(field, sizeof field, "1234567");
    ASSERT_STR(field, "1234567");
    cay_copy_text(field, sizeof field, "12345\u00e9");
    ASSERT_STR(field, "12345\u00e9");
    cay_copy_text(field, sizeof field, "12345678");
    ASSERT_STR(field, "1234567");
}

TEST(no_old_bytes_are_left_behind_the_end_of_a_shorter_text)
{
    char field[8], zero[8] = "ab";

    memset(field, 'x', sizeof field);
    cay_copy_text(field, sizeof field, "ab");
    ASSERT_MEM(field, sizeof field, zero, sizeof zero);
    cay_copy_text(field, 0, "nothing has room here");
    ASSERT_STR(field, "ab");
    cay_copy_text(field, sizeof field, NULL);
    ASSERT_STR(field, "");
}

TEST(an_over_long_hint_is_cut_between_characters_too)
{
    char euros[3 * 600 + 1] = "";

    for (size_t i = 0; i + 3 < sizeof euros; i += 3)
        memcpy(euros + i, "\u20ac", 3);
    ASSERT_CODE(cay_fail(&err, CAY_E_IO, 0, "op", euros, euros, "%s", euros), CAY_E_IO);
    ASSERT(is_utf8(err.subject) && strlen(err.subject) >= sizeof err.subject - 7);
    ASSERT(is_utf8(err.message) && strlen(err.message) >= sizeof err.message - 7);
    ASSERT(is_utf8(err.hint) && strlen(err.hint) >= sizeof err.hint - 7);
}

TEST(an_errno_becomes_the_code_that_says_what_it_means)
{
    static const struct {
        int sys_errno, code;
    } pairs[] = {
        {ENOENT, CAY_E_NOT_FOUND},   {EACCES, CAY_E_DENIED},
        {EPERM, CAY_E_DENIED},       {EROFS, CAY_E_DENIED},
        {EEXIST, CAY_E_EXISTS},      {ENOTEMPTY, CAY_E_EXISTS},
        {EISDIR, CAY_E_NOT_A_FILE},  {ENOTDIR, CAY_E_NOT_A_DIRECTORY},
        {ELOOP, CAY_E_INVALID},      {ENAMETOOLONG, CAY_E_INVALID},
        {ENOSPC, CAY_E_NO_SPACE},    {EDQUOT, CAY_E_NO_SPACE},
        {EFBIG, CAY_E_NO_SPACE},     {ENOMEM, CAY_E_NO_MEMORY},
        {EMFILE, CAY_E_UNAVAILABLE}, {ENFILE, CAY_E_UNAVAILABLE},
        {EAGAIN, CAY_E_BUSY},        {EBUSY, CAY_E_BUSY},
        {ETXTBSY, CAY_E_BUSY},       {EIO, CAY_E_IO},
        {ENOSYS, CAY_E_UNSUPPORTED}, {EOPNOTSUPP, CAY_E_UNSUPPORTED},
        {EXDEV, CAY_E_UNSUPPORTED},  {EPROTO, CAY_E_IO},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        ASSERT_CODE(cay_fail_errno(&err, pairs[i].sys_errno, "op", "x"), pairs[i].code);
        ASSERT_INT(err.sys_errno, pairs[i].sys_errno);
        ASSERT_STR(err.subject, "x");
    }
}

TEST(an_errno_nobody_knows_still_gets_words)
{
    ASSERT_CODE(cay_fail_errno(&err, 99999, "op", "x"), CAY_E_IO);
    ASSERT_HAS(err.hint, "99999");
}

TEST(freeing_nothing_is_fine)
{
    cay_free(NULL);
}

/* What the library knows, and the same struct of a newer caller. */
struct known {
    size_t size;
    int a, b;
};
struct newer {
    struct known known;
    int c;
};

TEST(no_struct_means_all_defaults)
{
    struct known known = {1, 2, 3}, zero = {0};

    ASSERT_OK(cay_take_struct(&known, sizeof known, NULL, "op", &err));
    ASSERT_MEM(&known, sizeof known, &zero, sizeof zero);
}

TEST(a_struct_of_the_same_size_is_copied)
{
    struct known known, given = {sizeof given, 4, 5};

    ASSERT_OK(cay_take_struct(&known, sizeof known, &given, "op", &err));
    ASSERT_INT(known.a, 4);
    ASSERT_INT(known.b, 5);
}

TEST(what_an_older_caller_does_not_know_is_zero)
{
    struct known known = {9, 9, 9}, given = {offsetof(struct known, b), 4, 5};

    ASSERT_OK(cay_take_struct(&known, sizeof known, &given, "op", &err));
    ASSERT_INT(known.a, 4);
    ASSERT_INT(known.b, 0);
}

TEST(a_newer_caller_who_uses_nothing_new_is_served)
{
    struct known known;
    struct newer given = {.known = {sizeof given, 4, 5}};

    ASSERT_OK(cay_take_struct(&known, sizeof known, &given, "op", &err));
    ASSERT_INT(known.b, 5);
}

TEST(a_newer_caller_who_uses_something_new_is_told_so)
{
    struct known known;
    struct newer given = {.known = {sizeof given, 4, 5}, .c = 1};

    ASSERT_CODE(cay_take_struct(&known, sizeof known, &given, "op", &err),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, cay_version());
}

TEST(a_struct_whose_size_was_forgotten_is_invalid)
{
    struct known known, given = {0, 4, 5};

    ASSERT_CODE(cay_take_struct(&known, sizeof known, &given, "op", &err), CAY_E_INVALID);
    given.size = sizeof given.size - 1;
    ASSERT_CODE(cay_take_struct(&known, sizeof known, &given, "op", &err), CAY_E_INVALID);
    given.size = SIZE_MAX;
    ASSERT_CODE(cay_take_struct(&known, sizeof known, &given, "op", &err), CAY_E_INVALID);
}
