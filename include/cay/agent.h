/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_AGENT_H
#define CAY_AGENT_H

#include "cay/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an agent does with a sandbox of any backend: shell commands, code and files.
 *
 * A command that fails is a result.  A function returns a code other than CAY_OK only
 * for what the caller must know about: a missing file, a sandbox that is gone, a request
 * that makes no sense.  No function makes a shell line of a path: names may hold spaces,
 * quotes, newlines and leading dashes.  Relative paths start at the working directory. */

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
    /* Make the output fit to read: escape sequences, overwritten and repeated lines are
     * taken out, and if both streams together have `threshold_chars` or more, each that
     * has more than its head and tail is cut in the middle.  If that changes anything,
     * the raw bytes are kept in files inside, named in the result. */
    CAY_COMMAND_CLEAN = 1 << 1,
    /* Keep the command and all its output in files inside, whatever their size: the
     * result names output_dir, which has command.txt, stdout.txt and stderr.txt.  If they
     * cannot be written, the result names none. */
    CAY_COMMAND_KEEP = 1 << 2
};

#define CAY_THRESHOLD_CHARS 10000u
#define CAY_HEAD_CHARS      5000u
#define CAY_TAIL_CHARS      5000u

struct cay_command_options {
    size_t size;
    unsigned flags;      /* enum cay_command_flag */
    uint64_t timeout_ms; /* 0: CAY_COMMAND_TIMEOUT_MS.  In the background 0: none */
    const char *cwd, *user;
    const char *const *env;
    /* With CAY_COMMAND_CLEAN; all 0: the defaults above. */
    uint32_t threshold_chars, head_chars, tail_chars;
    const char *tag; /* of a background command, or NULL */
};

/* Sets what a configuration says of output: CAY_COMMAND_CLEAN by its clean_output, and
 * how much is then kept. */
CAY_PUBLIC void cay_command_configure(const cay_config *config,
                                      struct cay_command_options *options);

/* cay_command_done() frees it. */
struct cay_command_result {
    enum cay_status status;
    enum cay_cause cause; /* of a command that has ended */
    int exit_code; /* -N for signal N; -1 while it runs or if nothing ran; of a start 0 */
    int background_pid; /* 0: none */
    uint64_t duration_ms;
    char *out, *error; /* NUL-terminated; bytes, or UTF-8 with CAY_COMMAND_CLEAN */
    size_t out_len, error_len;
    bool truncated; /* something is missing from out or error; the files have it all */
    /* Bytes; if cleaned, characters before anything was cut or left out as repeated. */
    uint64_t original_out_len, original_error_len;
    char *output_dir, *out_file, *error_file; /* inside; NULL if there are none */
    /* Why it is not a success: "Command failed with exit code 3"; and why the output
     * could not be kept, if it is truncated and there are no files. */
    char message[512];
};
CAY_PUBLIC void cay_command_done(struct cay_command_result *result);

/* bash -c, or sh where there is no bash; a command of any length.  Whatever is over
 * CAY_OUTPUT_DEFAULT per stream is kept in files inside, which the result names, and only
 * its tail here.  The files are the user's own and nobody else's, below a directory
 * /tmp/cay-results-...; they take their room from the sandbox's disk and stay there.  Of
 * a sandbox that has no root of its own they are below /tmp/cay-ID/ of the host, and go
 * with it, too.
 *
 * One that is to run in the background has status SUCCESS when it has started; it writes
 * its output to files inside from the beginning, beside command.txt. */
CAY_PUBLIC CAY_NODISC int cay_execute_bash(cay_sandbox *sandbox, const char *command,
                                           const struct cay_command_options *options,
                                           struct cay_command_result *ret_result,
                                           struct cay_error *err);

/* A background command by its pid, also from another process.  Status RUNNING, STOPPED or
 * how it ended; what it has written so far; may be asked again and again. CAY_E_NOT_FOUND
 * if this sandbox never had one of that number. */
CAY_PUBLIC CAY_NODISC int cay_background_status(cay_sandbox *sandbox, int pid,
                                                const struct cay_command_options *options,
                                                struct cay_command_result *ret_result,
                                                struct cay_error *err);
/* With its whole tree, which is dead when this returns, also what one that has ended by
 * itself left running.  The result is SUCCESS. */
CAY_PUBLIC CAY_NODISC int cay_background_kill(cay_sandbox *sandbox, int pid,
                                              struct cay_command_result *ret_result,
                                              struct cay_error *err);

/* cay_code_done() frees it. */
struct cay_code_result {
    enum cay_status status;
    char language[32];
    struct cay_command_result command; /* streams, exit code, duration */
    char error_type[64];               /* "ExecutionError", "ValueError"; "" if none */
    char error_value[512];
};
CAY_PUBLIC void cay_code_done(struct cay_code_result *result);

/* A fresh interpreter each time: python, javascript, bash and what else the sandbox has
 * (cay_code_language() lists them).  The code goes in as input or as a file outside the
 * working directory, which is gone afterwards.  A language that is not known or not
 * there is a result with error_type "ValueError". */
CAY_PUBLIC CAY_NODISC int cay_execute_code(cay_sandbox *sandbox, const char *code,
                                           size_t len, const char *language,
                                           const struct cay_command_options *options,
                                           struct cay_code_result *ret_result,
                                           struct cay_error *err);
CAY_PUBLIC const char *cay_code_language(size_t index); /* NULL past the last */

/* --- Files ------------------------------------------------------------------------ */

struct cay_content {
    char *data; /* and a NUL behind it; cay_free() it */
    size_t len;
};
CAY_PUBLIC CAY_NODISC int cay_read_file(cay_sandbox *sandbox, const char *user,
                                        const char *path, struct cay_content *ret_content,
                                        struct cay_error *err);
/* `flags` are those of enum cay_write_flag. */
CAY_PUBLIC CAY_NODISC int cay_write_file(cay_sandbox *sandbox, const char *user,
                                         const char *path, const void *data, size_t len,
                                         unsigned flags, struct cay_error *err);
/* A directory goes with all below it; of a link the link. */
CAY_PUBLIC CAY_NODISC int cay_delete_file(cay_sandbox *sandbox, const char *user,
                                          const char *path, struct cay_error *err);

struct cay_file_info {
    char *path;              /* as asked for; in lists absolute */
    bool exists;             /* if not, nothing below means anything */
    struct cay_stat stat;    /* links followed */
    char *link_target;       /* if the name is a symbolic link, else NULL */
    bool readable, writable; /* by the user asking; in lists as the mode says */
    char encoding[16];       /* "utf-8", "utf-16", "latin-1", "binary"; "" for no file */
};
struct cay_file_infos {
    struct cay_file_info *items; /* sorted by path */
    size_t count;
};
CAY_PUBLIC void cay_file_info_done(struct cay_file_info *info);
CAY_PUBLIC void cay_file_infos_done(struct cay_file_infos *infos);

CAY_PUBLIC CAY_NODISC int cay_get_file_info(cay_sandbox *sandbox, const char *user,
                                            const char *path,
                                            struct cay_file_info *ret_info,
                                            struct cay_error *err);
/* 1, 0 or a code. */
CAY_PUBLIC CAY_NODISC int cay_file_exists(cay_sandbox *sandbox, const char *user,
                                          const char *path, struct cay_error *err);
/* Everything in a directory, or all below it: dot files too, but no links that lead
 * nowhere; encodings are left out.  `pattern` (may be NULL) is for names ("*.py"), or for
 * paths below the directory ("src/[a-m]*.py"); with `recursive` at any depth. */
CAY_PUBLIC CAY_NODISC int cay_list_files(cay_sandbox *sandbox, const char *user,
                                         const char *path, bool recursive,
                                         const char *pattern,
                                         struct cay_file_infos *ret_infos,
                                         struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_create_directory(cay_sandbox *sandbox, const char *user,
                                               const char *path, bool parents,
                                               struct cay_error *err);

enum cay_edit_kind { CAY_EDIT_CREATE = 1, CAY_EDIT_UPDATE = 2, CAY_EDIT_REMOVE = 3 };

/* old_text "" makes a new file (CAY_E_EXISTS if there is one), new_text "" takes the old
 * text out; otherwise it is replaced, and must be there exactly once (CAY_E_NO_MATCH).
 * The texts are UTF-8; the file keeps its encoding and its line ends, and "\n" also means
 * its "\r\n".  A text that is found only with one backslash less before n, t and r, as
 * programs that quote twice write it, is taken for that. */
CAY_PUBLIC CAY_NODISC int cay_edit_file(cay_sandbox *sandbox, const char *user,
                                        const char *path, const char *old_text,
                                        size_t old_len, const char *new_text,
                                        size_t new_len, enum cay_edit_kind *ret_kind,
                                        struct cay_error *err);
/* As Python's glob.glob(): "*", "?", "[a-z]", and "**" if recursive; no dot files unless
 * the pattern has the dot; sorted, relative to the working directory when below it.
 * CAY_E_LIMIT if there is too much to be found or looked through. */
CAY_PUBLIC CAY_NODISC int cay_glob(cay_sandbox *sandbox, const char *user,
                                   const char *pattern, bool recursive,
                                   struct cay_strings *ret_paths, struct cay_error *err);

/* --- Between the host and the sandbox ----------------------------------------------- */

struct cay_transfer {
    uint64_t files, bytes;
    uint64_t skipped; /* special files, and links that lead out */
};

/* Host paths are the caller's own, used as they are.  Missing parents are made.  Modes
 * and times are kept, set-user-id bits and owners are not; a file appears whole. */
CAY_PUBLIC CAY_NODISC int cay_upload_file(cay_sandbox *sandbox, const char *user,
                                          const char *local, const char *inside,
                                          struct cay_transfer *ret_transfer,
                                          struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_download_file(cay_sandbox *sandbox, const char *user,
                                            const char *inside, const char *local,
                                            struct cay_transfer *ret_transfer,
                                            struct cay_error *err);
/* What is in the one directory comes to be in the other, beside what is there; links that
 * can only lead below it too.  Backends elsewhere may keep less of that. */
CAY_PUBLIC CAY_NODISC int cay_upload_directory(cay_sandbox *sandbox, const char *user,
                                               const char *local, const char *inside,
                                               struct cay_transfer *ret_transfer,
                                               struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_download_directory(cay_sandbox *sandbox, const char *user,
                                                 const char *inside, const char *local,
                                                 struct cay_transfer *ret_transfer,
                                                 struct cay_error *err);

/* --- Text ----------------------------------------------------------------------------
 */

/* The parts of CAY_COMMAND_CLEAN by themselves; each returns new text to cay_free(), NULL
 * for lack of memory.  Input is any bytes; what is not UTF-8 becomes U+FFFD.  Of a line
 * that was written over, what is after its last carriage return stays; of `min_run` and
 * more lines that are the same (at least 3, and not blank) the first and the last, with
 * the number of those between them. */
CAY_PUBLIC char *cay_text_strip_ansi(const char *text, size_t len, size_t *ret_len);
CAY_PUBLIC char *cay_text_resolve_cr(const char *text, size_t len, size_t *ret_len);
CAY_PUBLIC char *cay_text_collapse(const char *text, size_t len, uint32_t min_run,
                                   size_t *ret_len);
CAY_PUBLIC char *cay_text_clean(const char *text, size_t len, size_t *ret_len);

#ifdef __cplusplus
}
#endif
#endif
