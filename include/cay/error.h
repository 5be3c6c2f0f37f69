/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_ERROR_H
#define CAY_ERROR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAY_PUBLIC __attribute__((visibility("default")))
#define CAY_NODISC __attribute__((warn_unused_result))

/* Every failure has one of these codes.  They are ABI: append only, never renumber, never
 * reuse.  The columns are name, value, slug and meaning.  The enum, cay_code_slug(), the
 * exit status of the command, the Python exceptions and cay-errors(7) are all generated
 * from this list. */
#define CAY_CODES(X)                                                                     \
    X(INVALID, -1, "invalid", "The request is invalid; a retry does not help.")          \
    X(DENIED, -2, "denied", "The operating system or a rule denies access.")             \
    X(NOT_FOUND, -3, "not-found", "The file, sandbox or other object does not exist.")   \
    X(NO_MEMORY, -4, "no-memory", "There is not enough memory.")                         \
    X(EXISTS, -5, "exists", "An object with this name already exists.")                  \
    X(BUSY, -6, "busy", "Another process uses or changes the object; try again.")        \
    X(TIMEOUT, -7, "timeout", "The operation exceeded its timeout.")                     \
    X(CANCELLED, -8, "cancelled", "The caller cancelled the operation.")                 \
    X(LIMIT, -9, "limit", "The operation exceeds a limit; request less at a time.")      \
    X(NO_SPACE, -10, "no-space", "The disk or a quota is full; nothing was changed.")    \
    X(UNSUPPORTED, -11, "unsupported",                                                   \
      "The kernel, file system, backend or build does not support the operation.")       \
    X(UNAVAILABLE, -12, "unavailable",                                                   \
      "The operation needs a facility or service that is not available.")                \
    X(PROTOCOL, -13, "protocol", "The peer sent a malformed message.")                   \
    X(EXEC_FAILED, -14, "exec-failed", "The program could not be executed.")             \
    X(KILLED, -15, "killed", "The process was killed before it finished.")               \
    X(INTERNAL, -16, "internal", "A bug in Cay; please report it.")                      \
    X(OUTSIDE, -17, "outside", "The path is outside the directories of the policy.")     \
    X(READ_ONLY, -18, "read-only",                                                       \
      "The policy allows reading this path, but not writing.")                           \
    X(ESCALATION, -19, "escalation",                                                     \
      "A derived policy requests more access than its parent.")                          \
    X(SUFFIX, -20, "suffix", "The policy does not allow files with this suffix.")        \
    X(TOO_LARGE, -21, "too-large", "The file exceeds the policy's size limit.")          \
    X(NO_MATCH, -22, "no-match", "The text to replace does not occur exactly once.")     \
    X(NOT_A_FILE, -23, "not-a-file", "The path is not a regular file.")                  \
    X(NOT_A_DIRECTORY, -24, "not-a-directory", "The path is not a directory.")           \
    X(NOT_TEXT, -25, "not-text", "The file is not UTF-8 text.")                          \
    X(NOT_APPROVED, -26, "not-approved",                                                 \
      "The operation needs approval and did not get it.")                                \
    X(CHANGED, -27, "changed", "The object has changed since it was read or approved.")  \
    X(IO, -28, "io", "Reading from or writing to storage failed.")

enum cay_code {
    CAY_OK = 0,
#define X(name, value, slug, meaning) CAY_E_##name = value,
    CAY_CODES(X)
#undef X
};

/* One failure, described for programs, people and models.  Plain data without pointers
 * and smaller than PIPE_BUF, so a child process reports it to its parent in one atomic
 * write(2).  Text is NUL-terminated.  Text that is too long is cut, never inside a UTF-8
 * character.
 *
 * Every function that can fail takes a `struct cay_error *err` as its last argument and
 * returns CAY_OK or a negative code.  `err` may be NULL; on success it is not changed. */
struct cay_error {
    int32_t code;      /* enum cay_code */
    int32_t sys_errno; /* errno of the call that failed, or 0 */
    char op[32];       /* the step that failed: "files.read", "policy.parse" */
    char subject[256]; /* what the step failed on, as the caller spelled it */
    char message[512]; /* one sentence: what happened */
    char hint[512];    /* one sentence: what is allowed, or what to do next */
};

/* "not-found" for CAY_E_NOT_FOUND, "ok" for 0, "unknown" for an invalid code. */
CAY_PUBLIC const char *cay_code_slug(int code);

/* The exit status of the `cay` command for this code: 0 for CAY_OK, 2 for "invalid" and
 * so on upwards. */
CAY_PUBLIC int cay_code_exit(int code);

/* Frees memory that the library returned as a plain pointer.  NULL is allowed. */
CAY_PUBLIC void cay_free(void *memory);

/* "0.1.0" */
CAY_PUBLIC const char *cay_version(void);

#ifdef __cplusplus
}
#endif
#endif
