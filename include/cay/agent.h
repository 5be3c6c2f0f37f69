/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_AGENT_H
#define CAY_AGENT_H

#include "cay/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operations of an agent on a sandbox of any backend: shell commands, code and files.
 *
 * A command that fails is a result.  A function returns a code other than CAY_OK only for
 * failures that the caller must know about: a missing file, a sandbox that is gone, an
 * invalid request.  No function builds a shell line from a path: names may contain
 * spaces, quotes, newlines and leading dashes.  Relative paths start at the working
 * directory. */

#define CAY_COMMAND_TIMEOUT_MS 120000u
#define CAY_TIMEOUT_NONE       UINT64_MAX
#define CAY_TIMEOUT_AT_ONCE    (UINT64_MAX - 1)

enum cay_status {
    CAY_STATUS_SUCCESS = 1,
    CAY_STATUS_ERROR = 2,
    CAY_STATUS_TIMEOUT = 3,
    CAY_STATUS_RUNNING = 4,
    CAY_STATUS_STOPPED = 5 /* killed on request */
};
CAY_PUBLIC const char *cay_status_slug(enum cay_status status); /* "success" */

enum cay_command_flag {
    CAY_COMMAND_BACKGROUND = 1 << 0,
    /* Clean the output for reading: escape sequences, overwritten lines and repeated
     * lines are removed, and if both streams together have `threshold_chars` or more,
     * each stream that is longer than its head and tail is cut in the middle.  If that
     * changes anything, the raw bytes are kept in files inside the sandbox, named in the
     * result. */
    CAY_COMMAND_CLEAN = 1 << 1,
    /* Keep the command and all its output in files inside, whatever their size: the
     * result names output_dir, which contains command.txt, stdout.txt and stderr.txt.  If
     * they cannot be written, the result names none. */
    CAY_COMMAND_KEEP = 1 << 2
};

#define CAY_THRESHOLD_CHARS 10000u
#define CAY_HEAD_CHARS      5000u
#define CAY_TAIL_CHARS      5000u

struct cay_command_options {
    size_t size;
    unsigned flags;      /* enum cay_command_flag */
    uint64_t timeout_ms; /* 0: CAY_COMMAND_TIMEOUT_MS; in the background 0: no timeout */
    const char *cwd, *user;
    const char *const *env;
    /* With CAY_COMMAND_CLEAN.  All 0: the defaults above. */
    uint32_t threshold_chars, head_chars, tail_chars;
    const char *tag; /* name of a background command, or NULL */
};

/* Sets the options for output from a configuration: CAY_COMMAND_CLEAN from clean_output,
 * and the numbers of characters to keep. */
CAY_PUBLIC void cay_command_configure(const cay_config *config,
                                      struct cay_command_options *options);

/* Free with cay_command_done(). */
struct cay_command_result {
    enum cay_status status;
    enum cay_cause cause; /* for a command that has ended */
    int exit_code; /* -N for signal N; -1 while it runs or if nothing ran; 0 for a start
                    */
    int background_pid; /* 0: none */
    uint64_t duration_ms;
    char *out, *error; /* NUL-terminated; bytes, or UTF-8 with CAY_COMMAND_CLEAN */
    size_t out_len, error_len;
    bool truncated; /* out or error is incomplete; the files have everything */
    /* Bytes; if cleaned, characters before anything was cut or removed as repeated. */
    uint64_t original_out_len, original_error_len;
    char *output_dir, *out_file, *error_file; /* inside; NULL if there are none */
    /* Why the status is not SUCCESS: "Command failed with exit code 3"; and why the
     * output could not be kept, if it is truncated and there are no files. */
    char message[512];
};
CAY_PUBLIC void cay_command_done(struct cay_command_result *result);

/* Runs `bash -c`, or sh if there is no bash, with a command of any length.  If a stream
 * exceeds CAY_OUTPUT_DEFAULT, all of it is kept in a file inside, which the result names,
 * and the result contains only the tail.  The files belong to the user and are accessible
 * only to that user, below a directory /tmp/cay-results-...; they count against the
 * sandbox's disk limit and stay there.  If the sandbox has no root of its own, they are
 * below /tmp/cay-ID/ on the host and are removed with the sandbox.
 *
 * A background command has status SUCCESS when it has started.  It writes its output to
 * files inside from the beginning, next to command.txt. */
CAY_PUBLIC CAY_NODISC int cay_bash_run(cay_sandbox *sandbox, const char *command,
                                       const struct cay_command_options *options,
                                       struct cay_command_result *ret_result,
                                       struct cay_error *err);

/* A background command by its pid, also from another process.  The status is RUNNING,
 * STOPPED or how the command ended; the output is what it has written so far.  May be
 * called any number of times.  CAY_E_NOT_FOUND if this sandbox never had a background
 * command with that pid. */
CAY_PUBLIC CAY_NODISC int cay_background_poll(cay_sandbox *sandbox, int pid,
                                              const struct cay_command_options *options,
                                              struct cay_command_result *ret_result,
                                              struct cay_error *err);
/* Kills the command and its whole tree, which is dead when this returns.  This includes
 * background children of a command that has ended by itself.  The result is SUCCESS. */
CAY_PUBLIC CAY_NODISC int cay_background_kill(cay_sandbox *sandbox, int pid,
                                              struct cay_command_result *ret_result,
                                              struct cay_error *err);

/* Free with cay_code_done(). */
struct cay_code_result {
    enum cay_status status;
    char language[32];
    struct cay_command_result command; /* streams, exit code, duration */
    char error_type[64];               /* "ExecutionError", "ValueError"; "" if none */
    char error_value[512];
};
CAY_PUBLIC void cay_code_done(struct cay_code_result *result);

/* Runs code in a fresh interpreter: python, javascript, bash and other languages that the
 * sandbox has (cay_code_language() lists them).  The code is passed on stdin or as a file
 * outside the working directory, which is removed afterwards.  C, C++, Go and Rust are
 * compiled beside that file first; a failure of the compiler is that of the code.  An
 * unknown or missing language is a result with error_type "ValueError". */
CAY_PUBLIC CAY_NODISC int cay_code_run(cay_sandbox *sandbox, const char *code, size_t len,
                                       const char *language,
                                       const struct cay_command_options *options,
                                       struct cay_code_result *ret_result,
                                       struct cay_error *err);
CAY_PUBLIC const char *cay_code_language(size_t index); /* NULL past the last */

/* --- Files ------------------------------------------------------------------------ */

struct cay_content {
    char *data; /* followed by a NUL; free with cay_free() */
    size_t len;
};
CAY_PUBLIC CAY_NODISC int cay_file_read(cay_sandbox *sandbox, const char *user,
                                        const char *path, struct cay_content *ret_content,
                                        struct cay_error *err);
/* `flags` are those of enum cay_write_flag. */
CAY_PUBLIC CAY_NODISC int cay_file_write(cay_sandbox *sandbox, const char *user,
                                         const char *path, const void *data, size_t len,
                                         unsigned flags, struct cay_error *err);
/* Deletes a directory with everything below it.  Deletes a symbolic link itself, not its
 * target. */
CAY_PUBLIC CAY_NODISC int cay_file_delete(cay_sandbox *sandbox, const char *user,
                                          const char *path, struct cay_error *err);

struct cay_file_info {
    char *path;              /* as given by the caller; in lists absolute */
    bool exists;             /* if false, the fields below are not valid */
    struct cay_stat stat;    /* links followed */
    char *link_target;       /* if the name is a symbolic link, else NULL */
    bool readable, writable; /* by the given user; in lists according to the mode */
    char encoding[16]; /* "utf-8", "utf-16", "latin-1", "binary"; "" if not a file */
};
struct cay_file_infos {
    struct cay_file_info *items; /* sorted by path */
    size_t count;
};
CAY_PUBLIC void cay_file_info_done(struct cay_file_info *info);
CAY_PUBLIC void cay_file_infos_done(struct cay_file_infos *infos);

CAY_PUBLIC CAY_NODISC int cay_file_inspect(cay_sandbox *sandbox, const char *user,
                                           const char *path,
                                           struct cay_file_info *ret_info,
                                           struct cay_error *err);
/* Returns 1, 0 or a code. */
CAY_PUBLIC CAY_NODISC int cay_file_exists(cay_sandbox *sandbox, const char *user,
                                          const char *path, struct cay_error *err);
/* Lists a directory, or everything below it: dot files too, but no dangling links.
 * Encodings are not filled in.  `pattern` (may be NULL) matches names ("*.py") or paths
 * below the directory ("src/[a-m]*.py"); with `recursive` at any depth. */
CAY_PUBLIC CAY_NODISC int cay_file_list(cay_sandbox *sandbox, const char *user,
                                        const char *path, bool recursive,
                                        const char *pattern,
                                        struct cay_file_infos *ret_infos,
                                        struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_directory_create(cay_sandbox *sandbox, const char *user,
                                               const char *path, bool parents,
                                               struct cay_error *err);

enum cay_edit_kind { CAY_EDIT_CREATE = 1, CAY_EDIT_UPDATE = 2, CAY_EDIT_REMOVE = 3 };

/* old_text "" creates a new file (CAY_E_EXISTS if there is one), new_text "" removes the
 * old text; otherwise the old text is replaced.  It must occur exactly once
 * (CAY_E_NO_MATCH).  The texts are UTF-8.  The file keeps its encoding and its line ends,
 * and "\n" also matches "\r\n".  If a text is found only with one backslash less before
 * n, t and r, as programs write it that quote twice, that text is used. */
CAY_PUBLIC CAY_NODISC int cay_file_edit(cay_sandbox *sandbox, const char *user,
                                        const char *path, const char *old_text,
                                        size_t old_len, const char *new_text,
                                        size_t new_len, enum cay_edit_kind *ret_kind,
                                        struct cay_error *err);
/* As Python's glob.glob(): "*", "?", "[a-z]", and "**" if recursive; dot files only if
 * the pattern has the dot.  The result is sorted, and relative to the working directory
 * for files below it.  A pattern has at most 63 components.  CAY_E_LIMIT if there are too
 * many matches or too many entries to search. */
CAY_PUBLIC CAY_NODISC int cay_file_glob(cay_sandbox *sandbox, const char *user,
                                        const char *pattern, bool recursive,
                                        struct cay_strings *ret_paths,
                                        struct cay_error *err);

/* --- Between the host and the sandbox ----------------------------------------------- */

struct cay_transfer {
    uint64_t files, bytes;
    uint64_t skipped; /* special files, and links that lead out */
};

/* Host paths are used as they are.  Missing parents are created.  Modes and times are
 * preserved; set-user-id bits and owners are not.  A file appears complete or not at
 * all. */
CAY_PUBLIC CAY_NODISC int cay_file_upload(cay_sandbox *sandbox, const char *user,
                                          const char *local, const char *inside,
                                          struct cay_transfer *ret_transfer,
                                          struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_file_download(cay_sandbox *sandbox, const char *user,
                                            const char *inside, const char *local,
                                            struct cay_transfer *ret_transfer,
                                            struct cay_error *err);
/* Copies the content of one directory into the other, without removing what is there.
 * Links that can only lead below the directory are copied too.  Remote backends may
 * preserve less. */
CAY_PUBLIC CAY_NODISC int cay_directory_upload(cay_sandbox *sandbox, const char *user,
                                               const char *local, const char *inside,
                                               struct cay_transfer *ret_transfer,
                                               struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_directory_download(cay_sandbox *sandbox, const char *user,
                                                 const char *inside, const char *local,
                                                 struct cay_transfer *ret_transfer,
                                                 struct cay_error *err);

/* --- Text ----------------------------------------------------------------------------
 */

/* The steps of CAY_COMMAND_CLEAN as separate functions.  Each returns new text to free
 * with cay_free(), or NULL if memory is exhausted.  Input is any bytes; invalid UTF-8
 * becomes U+FFFD. resolve_cr keeps what follows the last carriage return of a line.
 * collapse reduces `min_run` or more equal lines (at least 3, and not blank) to the first
 * and the last, with the number of lines between them. */
CAY_PUBLIC char *cay_text_strip_ansi(const char *text, size_t len, size_t *ret_len);
CAY_PUBLIC char *cay_text_resolve_cr(const char *text, size_t len, size_t *ret_len);
CAY_PUBLIC char *cay_text_collapse(const char *text, size_t len, uint32_t min_run,
                                   size_t *ret_len);
CAY_PUBLIC char *cay_text_clean(const char *text, size_t len, size_t *ret_len);

#ifdef __cplusplus
}
#endif
#endif
