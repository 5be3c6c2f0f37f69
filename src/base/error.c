/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

_Static_assert(sizeof(struct cay_error) == 1320, "struct cay_error is ABI");
_Static_assert(sizeof(struct cay_error) < PIPE_BUF, "one write must be atomic");

const char *cay_code_slug(int code)
{
    switch (code) {
    case CAY_OK:
        return "ok";
#define X(name, value, slug, meaning)                                                    \
    case CAY_E_##name:                                                                   \
        return slug;
        CAY_CODES(X)
#undef X
    default:
        return "unknown";
    }
}

int cay_code_exit(int code)
{
    return code == CAY_OK ? 0 : 1 - code;
}

void cay_free(void *memory)
{
    free(memory);
}

const char *cay_version(void)
{
    return CAY_VERSION;
}

static void cut_between_characters(char *text, size_t len)
{
    size_t start = len;

    while (start > 0 && len - start < 4 && utf8_is_tail(text[start - 1]))
        start--;
    if (start > 0 && (unsigned char)text[start - 1] >= 0xC0)
        text[start - 1] = '\0';
}

void cay_copy_text(char *field, size_t room, const char *text)
{
    size_t len = text ? strnlen(text, room) : 0;
    bool fits = len < room;

    if (room == 0)
        return;
    if (!fits)
        len--;
    if (len > 0)
        memcpy(field, text, len);
    memset(field + len, 0, room - len);
    if (!fits)
        cut_between_characters(field, len);
}

int cay_fail(struct cay_error *err, int code, int sys_errno, const char *op,
             const char *subject, const char *message, const char *hint, ...)
{
    if (!err)
        return code;

    char text[2 * sizeof err->hint];
    va_list args;

    va_start(args, hint);
    vsnprintf(text, sizeof text, hint, args);
    va_end(args);

    err->code = code;
    err->sys_errno = sys_errno;
    cay_copy_text(err->op, sizeof err->op, op);
    cay_copy_text(err->subject, sizeof err->subject, subject);
    cay_copy_text(err->message, sizeof err->message, message);
    cay_copy_text(err->hint, sizeof err->hint, text);
    return code;
}

int cay_fail_memory(struct cay_error *err, const char *op)
{
    return cay_fail(err, CAY_E_NO_MEMORY, ENOMEM, op, NULL, "out of memory",
                    "free some memory, or request less at a time");
}

const char *cay_errno_words(int sys_errno)
{
#ifdef __GLIBC__
    const char *words = strerrordesc_np(sys_errno);
#else
    /* allow: strerror musl's are constants */
    const char *words = strerror(sys_errno);
#endif
    return words ? words : "unknown error";
}

bool cay_errno_is_shortage(int sys_errno)
{
    return sys_errno == EMFILE || sys_errno == ENFILE || sys_errno == ENOMEM ||
           sys_errno == ENOBUFS;
}

int cay_fail_errno(struct cay_error *err, int sys_errno, const char *op,
                   const char *subject)
{
    static const struct {
        int sys_errno, code;
        const char *message, *hint;
    } known[] = {
        {ENOENT, CAY_E_NOT_FOUND, "not found", "list the directory to see what is there"},
        {EACCES, CAY_E_DENIED, "permission denied by the file's mode or owner",
         "use a path that the calling user may access"},
        {EPERM, CAY_E_DENIED, "the operating system does not permit this",
         "use a path that the calling user may access"},
        {EROFS, CAY_E_DENIED, "the file system is mounted read-only",
         "write to a path on a writable file system"},
        {EEXIST, CAY_E_EXISTS, "already exists", "choose a name that is not taken"},
        {ENOTEMPTY, CAY_E_EXISTS, "the directory is not empty",
         "delete its content first, or delete recursively"},
        {EISDIR, CAY_E_NOT_A_FILE, "is a directory, not a file", "name a file inside it"},
        {ENOTDIR, CAY_E_NOT_A_DIRECTORY, "a part of the path is not a directory",
         "list the parent directory to see what is there"},
        {ELOOP, CAY_E_INVALID, "symbolic links form a loop",
         "name the file itself instead of the link"},
        {ENAMETOOLONG, CAY_E_INVALID, "the name is too long",
         "a name may have 255 bytes and a whole path 4,095"},
        {ENOSPC, CAY_E_NO_SPACE, "no space left on the device", "free some space first"},
        {EDQUOT, CAY_E_NO_SPACE, "the disk quota is used up", "free some space first"},
        {EFBIG, CAY_E_NO_SPACE,
         "the file would exceed the file size limit of this process",
         "write a smaller file, or raise the limit: ulimit -f"},
        {EXDEV, CAY_E_UNSUPPORTED, "the two names are on different file systems",
         "copy the file and delete the original"},
        {ENOMEM, CAY_E_NO_MEMORY, "out of memory", "request less at a time"},
        {EMFILE, CAY_E_UNAVAILABLE, "this process has too many files open",
         "close some, or raise the limit with ulimit -n"},
        {ENFILE, CAY_E_UNAVAILABLE, "the system has too many files open",
         "try again later"},
        {EAGAIN, CAY_E_BUSY, "the path is being changed at this moment", "try again"},
        {EBUSY, CAY_E_BUSY, "the file is in use", "try again later"},
        {ETXTBSY, CAY_E_BUSY, "the program file is being executed", "try again later"},
        {EBADF, CAY_E_IO, "the descriptor is closed, or not open for this operation",
         "pass an open descriptor"},
        {EIO, CAY_E_IO, "the storage device reported an error",
         "check the disk; see the kernel log (dmesg)"},
        {ENOSYS, CAY_E_UNSUPPORTED, "this kernel lacks a required system call",
         "use Linux 6.1 or newer, with openat2 allowed"},
        {EOPNOTSUPP, CAY_E_UNSUPPORTED, "this file system does not support the operation",
         "use a directory on another file system"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].sys_errno == sys_errno)
            return cay_fail(err, known[i].code, sys_errno, op, subject, known[i].message,
                            "%s", known[i].hint);
    return cay_fail(err, CAY_E_IO, sys_errno, op, subject, cay_errno_words(sys_errno),
                    "errno is %d", sys_errno);
}

int cay_fail_as(struct cay_error *err, int code, const struct cay_error *why)
{
    if (code && err)
        *err = *why;
    return code;
}

int cay_take_struct(void *known, size_t known_size, const void *given, const char *op,
                    struct cay_error *err)
{
    size_t given_size;

    memset(known, 0, known_size);
    if (!given)
        return CAY_OK;
    memcpy(&given_size, given, sizeof given_size);
    if (given_size < sizeof given_size || given_size > 65536)
        return cay_fail(err, CAY_E_INVALID, 0, op, "size", "the struct's size is not set",
                        "set its first member to its sizeof");
    for (size_t i = known_size; i < given_size; i++)
        if (((const char *)given)[i])
            return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "size",
                            "the caller uses options that this library does not know",
                            "this is libcay %s; use a newer one", CAY_VERSION);
    memcpy(known, given, given_size < known_size ? given_size : known_size);
    return CAY_OK;
}
