/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_FILES_H
#define CAY_FILES_H

#include "cay/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* File tools under a policy.
 *
 * A cay_files holds an open descriptor of each of its policy's directories, and every
 * operation walks down from there with openat2(2): a name is looked up once, checked, and
 * the descriptor so found is what is read or written.  Symbolic links that stay below
 * their directory work; a link that leads out is CAY_E_OUTSIDE.  Only regular files are
 * opened: a FIFO, a socket or a device never is.
 *
 * Paths are spelled as the policy's style says (policy.h), and results and errors name
 * files in the same spelling; no host path appears in them.  A handle may be used from
 * several threads at once.
 *
 * Input structs start with `size`: zero the struct and set size to its sizeof.  Unknown
 * flags, and a larger struct whose unknown tail is not zero, are CAY_E_UNSUPPORTED.
 * NULL options mean the defaults.  Memory in results is the caller's to free. */
typedef struct cay_files cay_files;

/* --- Approval ------------------------------------------------------------------- */

enum cay_op {
    CAY_OP_READ = 1,
    CAY_OP_WRITE = 2,
    CAY_OP_EDIT = 3,
    CAY_OP_DELETE = 4,
    CAY_OP_MOVE = 5,
    CAY_OP_COPY = 6,
    CAY_OP_LIST = 7,
    CAY_OP_SEARCH = 8,
    CAY_OP_MKDIR = 9,
    CAY_OP_APPEND = 10,
    CAY_OP_EXPORT = 11,
    CAY_OP_IMPORT = 12
};

/* What is about to happen, in the words a person is shown. */
struct cay_approval {
    size_t size;
    enum cay_op op;
    const char *path;    /* as the caller spelled it */
    const char *other;   /* the destination of a move or copy, else NULL */
    const char *summary; /* "Write 12 chars to notes/a.txt" */
    const char *before;  /* the file as it is (edits up to 1 MiB), else NULL */
    size_t before_len;
    const char *after; /* as it will be (edits up to 1 MiB), what is appended, or NULL */
    size_t after_len;
};

enum cay_verdict {
    CAY_VERDICT_DENY = 0,
    CAY_VERDICT_APPROVE = 1,
    CAY_VERDICT_REMEMBER = 2 /* approve, and do not ask again for this path and access
                                while this handle (or one derived from it) lives */
};

#define CAY_NOTE_MAX 256

/* Asked before anything is touched.  `note` takes the reason for a denial; it reaches the
 * caller's error.  After a yes the operation acts on exactly what was shown: if the file
 * has been changed or replaced meanwhile it fails with CAY_E_CHANGED.  The callback may
 * use the same handle. */
typedef enum cay_verdict (*cay_approver)(void *cookie, const struct cay_approval *request,
                                         char note[CAY_NOTE_MAX]);

/* --- The handle ----------------------------------------------------------------- */

enum cay_files_flag {
    CAY_FILES_CREATE_ALL = 1 << 0,      /* create missing read-only roots too */
    CAY_FILES_APPROVED_OUTSIDE = 1 << 1 /* the caller asks for approvals itself; without
                                           this flag and without an approver, what needs
                                           one is CAY_E_NOT_APPROVED */
};

struct cay_files_options {
    size_t size;
    unsigned flags; /* enum cay_files_flag */
    cay_approver approver;
    void *cookie;
};

/* Opens the policy's directories.  Missing writable ones are created, with parents; a
 * missing read-only one is CAY_E_NOT_FOUND; one inside another CAY_E_INVALID, and none is
 * left behind.  The policy is copied.  The caller owns the result. */
CAY_PUBLIC CAY_NODISC int cay_files_open(const cay_policy *policy,
                                         const struct cay_files_options *options,
                                         cay_files **ret_files, struct cay_error *err);
CAY_PUBLIC void cay_files_free(cay_files *files); /* NULL is fine */

enum cay_readonly { CAY_READONLY_UNSET, CAY_READONLY_TRUE, CAY_READONLY_FALSE };

/* A narrower view.  `allow_write` alone allows reading the same; `allow_read` alone
 * allows no writing; neither allows nothing unless `inherit`, which keeps what the parent
 * has.  A NULL list is "not given"; an empty one is not NULL.  Entries are directories,
 * which need not exist yet; what they cover is fixed now, by what they resolve to now. */
struct cay_derive {
    size_t size;
    const char *const *allow_read;
    size_t allow_read_count;
    const char *const *allow_write;
    size_t allow_write_count;
    enum cay_readonly readonly;
    bool inherit;
};

/* Anything the parent does not have, and CAY_READONLY_FALSE when the parent can write
 * nowhere, is CAY_E_ESCALATION; sys_errno tells which: EACCES, an entry that is not
 * readable; EROFS, one that is not writable, or the readonly flag.  ".." in the lists is
 * CAY_E_INVALID, as is a file in the mounts style; in the others it means its directory.
 * The child stands alone: the parent may be freed first. */
CAY_PUBLIC CAY_NODISC int cay_files_derive(const cay_files *files,
                                           const struct cay_derive *derive,
                                           cay_files **ret_child, struct cay_error *err);

/* The same view under other options: the same directories and grants, another approver,
 * nothing remembered.  It stands alone, too. */
CAY_PUBLIC CAY_NODISC int cay_files_clone(const cay_files *files,
                                          const struct cay_files_options *options,
                                          cay_files **ret_files, struct cay_error *err);

/* --- Questions ------------------------------------------------------------------ */

/* Where a path leads and under which rules.  Pointers live as long as the handle, except
 * host and path, which cay_location_done() frees. */
struct cay_location {
    size_t size;
    size_t mount;     /* index into the policy's mounts */
    const char *name; /* that mount's name: "docs", "/docs" or "/" */
    char *host;       /* the host path, links resolved.  For the host's eyes only */
    char *path;       /* the same in the policy's spelling */
    unsigned access;  /* what is granted: enum cay_access */
    bool exists;
    bool read_approval;
    bool write_approval;
};

/* `access` is what the caller is about to do: CAY_E_OUTSIDE or CAY_E_READ_ONLY if that is
 * not granted.  The path need not exist. */
CAY_PUBLIC CAY_NODISC int cay_files_locate(cay_files *files, const char *path,
                                           unsigned access,
                                           struct cay_location *ret_location,
                                           struct cay_error *err);
CAY_PUBLIC void cay_location_done(struct cay_location *location);

CAY_PUBLIC bool cay_files_can(cay_files *files, const char *path, unsigned access);

/* False also when the access is not granted at all. */
CAY_PUBLIC bool cay_files_needs_approval(cay_files *files, const char *path,
                                         unsigned access);

/* One sentence: which rule decides about this path and what it grants.  cay_free() it. */
CAY_PUBLIC CAY_NODISC int cay_files_explain(cay_files *files, const char *path,
                                            char **ret_sentence, struct cay_error *err);

/* A list of strings; cay_strings_done() frees it. */
struct cay_strings {
    char **items;
    size_t count;
};
CAY_PUBLIC void cay_strings_done(struct cay_strings *strings);

/* The tops of what may be read (CAY_ACCESS_READ) or written (CAY_ACCESS_WRITE). */
CAY_PUBLIC CAY_NODISC int cay_files_roots(const cay_files *files, unsigned access,
                                          struct cay_strings *ret_roots,
                                          struct cay_error *err);

/* The mount's suffix rule for a file name, and its size rule for a number of bytes. */
CAY_PUBLIC CAY_NODISC int cay_files_check_suffix(const cay_files *files, size_t mount,
                                                 const char *path, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_files_check_size(const cay_files *files, size_t mount,
                                               const char *path, uint64_t bytes,
                                               struct cay_error *err);

/* --- Pins: act on exactly what somebody saw ------------------------------------- */

/* What a path led to at one moment (of a link that leads out: the link), taken with
 * cay_files_pin() when approval is asked for elsewhere.  An operation that is given it
 * fails with CAY_E_CHANGED if the path leads elsewhere or the file was changed since. */
struct cay_pin {
    uint64_t words[8];
};
CAY_PUBLIC CAY_NODISC int cay_files_pin(cay_files *files, const char *path,
                                        struct cay_pin *ret_pin, struct cay_error *err);

/* --- Reading -------------------------------------------------------------------- */

#define CAY_READ_MAX   (100u << 20) /* most bytes one call returns unless told */
#define CAY_READ_CHARS 20000u       /* characters in a page unless told */

enum cay_read_flag {
    CAY_READ_UNIVERSAL_NEWLINES = 1 << 0, /* "\r\n" and "\r" are read, counted, as "\n" */
    CAY_READ_LARGE = 1 << 1,              /* more than CAY_READ_MAX may be returned */
};

struct cay_read_options {
    size_t size;
    unsigned flags;  /* enum cay_read_flag */
    uint64_t offset; /* first character (pages), line from 0 (lines), byte (bytes) */
    uint64_t max;    /* at most so many of them; UINT64_MAX for all */
    const struct cay_pin *pin;
    /* Where the text of a whole file of 1 MiB and more is to go, if set: asked at most
     * once for the file's size, gives room for one byte more.  If page.text is then what
     * it gave, that memory stays the caller's and the page must not be freed. */
    char *(*allocate)(void *cookie, size_t len);
    void *cookie;
};

/* A page of text.  Characters are code points.  cay_page_done() frees it. */
struct cay_page {
    char *text; /* NUL-terminated */
    size_t len; /* bytes in text */
    uint64_t offset;
    uint64_t count; /* characters, lines or bytes in text */
    uint64_t total; /* of them in the file */
    bool truncated; /* more follow */
    /* Pages of characters: none is above, the least of 0x7F, 0xFF, 0xFFFF, 0x10FFFF. */
    uint32_t highest;
};
CAY_PUBLIC void cay_page_done(struct cay_page *page);

/* For languages whose strings are arrays of code points: a page of characters as numbers
 * of `width` bytes each, in the machine's byte order, `page->count` of them at `to`.  The
 * width is 1, 2 or 4, and enough for `page->highest`. */
CAY_PUBLIC CAY_NODISC int cay_page_widen(const struct cay_page *page, unsigned width,
                                         void *to, struct cay_error *err);

/* CAY_E_NOT_TEXT if the file is not UTF-8 throughout.  The first page of a file passes
 * over all of it to count; later pages cost only themselves, for the handle remembers
 * where the characters of the last few files are. */
CAY_PUBLIC CAY_NODISC int cay_files_read(cay_files *files, const char *path,
                                         const struct cay_read_options *options,
                                         struct cay_page *ret_page,
                                         struct cay_error *err);

/* Whole lines, with their line ends: "\n" or "\r\n"; with every flag a "\r" alone is part
 * of its line.  options->max 0 means 2,000. */
CAY_PUBLIC CAY_NODISC int cay_files_read_lines(cay_files *files, const char *path,
                                               const struct cay_read_options *options,
                                               struct cay_page *ret_page,
                                               struct cay_error *err);

/* Any bytes.  CAY_E_LIMIT if more than CAY_READ_MAX would be returned. */
CAY_PUBLIC CAY_NODISC int cay_files_read_bytes(cay_files *files, const char *path,
                                               const struct cay_read_options *options,
                                               struct cay_page *ret_page,
                                               struct cay_error *err);

/* All of a file to the descriptor `fd`, whatever its length: as many bytes as the file
 * has when this begins.  *ret_stat (may be NULL) describes it as it was then. */
struct cay_stat;
CAY_PUBLIC CAY_NODISC int cay_files_read_to(cay_files *files, const char *path, int fd,
                                            struct cay_stat *ret_stat,
                                            struct cay_error *err);

/* One open file, for many pages.  It sees the file it opened, whatever the name comes to
 * mean later; if that file is changed it is counted anew. */
typedef struct cay_reader cay_reader;
CAY_PUBLIC CAY_NODISC int cay_reader_open(cay_files *files, const char *path,
                                          cay_reader **ret_reader, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_reader_page(cay_reader *reader,
                                          const struct cay_read_options *options,
                                          struct cay_page *ret_page,
                                          struct cay_error *err);
CAY_PUBLIC void cay_reader_free(cay_reader *reader);

/* Many files in one call.  Each has its own outcome; the call fails only for lack of
 * memory.  Pages as by cay_files_read_bytes(). */
struct cay_read_item {
    const char *path;
    struct cay_page page;
    struct cay_error error; /* code CAY_OK if the page is good */
};
CAY_PUBLIC CAY_NODISC int cay_files_read_many(cay_files *files,
                                              struct cay_read_item *items, size_t count,
                                              struct cay_error *err);

/* --- Writing -------------------------------------------------------------------- */

enum cay_write_flag {
    CAY_WRITE_IN_PLACE = 1 << 0, /* overwrite the existing file's bytes, keep its inode */
    CAY_WRITE_APPEND = 1 << 1,
    CAY_WRITE_NEW = 1 << 2,     /* CAY_E_EXISTS if something is there */
    CAY_WRITE_DURABLE = 1 << 3, /* fsync the file and its directory before returning */
    CAY_WRITE_NO_PARENTS = 1 << 4,
    /* cay_files_write_from() only: mode (no set-user-id) and time of what it reads. */
    CAY_WRITE_KEEP = 1 << 5
};

struct cay_write_options {
    size_t size;
    unsigned flags; /* enum cay_write_flag */
    const struct cay_pin *pin;
};

/* By default the content goes to a nameless file that then takes the name: readers see
 * the old file or the new one, and a failure leaves the old one as it was.  An existing
 * file keeps its mode and owner; one whose owner we cannot give a new file is overwritten
 * in place, as with CAY_WRITE_IN_PLACE.  A new one gets 0666 less the umask.  Missing
 * parent directories are made, and taken away again if the write fails; so is what an
 * append has added, unless others have added to the file since: the hint says so. */
CAY_PUBLIC CAY_NODISC int cay_files_write(cay_files *files, const char *path,
                                          const void *data, size_t len,
                                          const struct cay_write_options *options,
                                          struct cay_error *err);

/* The same with what comes from the descriptor `fd`, from where it stands to its end: a
 * file, a pipe or a socket, of any length.  In place or appending, a failure can leave
 * part of it.  *ret_bytes (may be NULL) is how much it was. */
CAY_PUBLIC CAY_NODISC int cay_files_write_from(cay_files *files, const char *path, int fd,
                                               const struct cay_write_options *options,
                                               uint64_t *ret_bytes,
                                               struct cay_error *err);

struct cay_write_item {
    const char *path;
    const void *data;
    size_t len;
    struct cay_error error; /* code CAY_OK if written */
};

/* Many files in one call; each is written or not by itself, in order. */
CAY_PUBLIC CAY_NODISC int cay_files_write_many(cay_files *files,
                                               struct cay_write_item *items, size_t count,
                                               const struct cay_write_options *options,
                                               struct cay_error *err);

/* Replaces `old_text`, which must occur exactly once unless CAY_EDIT_ALL (then at least
 * once, and is not empty).  "\n" in it also matches "\r\n" and "\r", and in a file whose
 * first line ends in "\r\n" (or "\r") the "\n" of new_text are written so: line ends
 * survive an edit made from text that was read with universal newlines.  CAY_EDIT_EXACT
 * switches that off, and so does a "\r" in old_text that no "\n" follows. */
enum cay_edit_flag { CAY_EDIT_ALL = 1 << 0, CAY_EDIT_EXACT = 1 << 1 };

struct cay_edit {
    const char *old_text;
    size_t old_len;
    const char *new_text;
    size_t new_len;
    unsigned flags; /* enum cay_edit_flag */
};

struct cay_edit_result {
    uint64_t replaced; /* occurrences, all edits together */
    uint64_t bytes;    /* size of the file now */
};

/* Applies the edits one after the other, each to the outcome of the one before, and then
 * replaces the file: all of them or none.  CAY_E_NO_MATCH says which edit failed and how
 * often its text was found. */
CAY_PUBLIC CAY_NODISC int cay_files_edit(cay_files *files, const char *path,
                                         const struct cay_edit *edits, size_t count,
                                         const struct cay_write_options *options,
                                         struct cay_edit_result *ret_result,
                                         struct cay_error *err);

/* --- Names ---------------------------------------------------------------------- */

enum cay_name_flag {
    CAY_NAME_RECURSIVE = 1 << 0,  /* delete: a directory and all below it */
    CAY_NAME_NO_PARENTS = 1 << 1, /* mkdir, move, copy: parents must exist */
    CAY_NAME_EXIST_OK = 1 << 2,   /* mkdir: an existing directory is fine */
    CAY_NAME_DIRECTORY = 1 << 3,  /* move: a directory may be moved too */
    CAY_NAME_REPLACE = 1 << 4     /* move: the destination may exist, and is replaced */
};

struct cay_name_options {
    size_t size;
    unsigned flags; /* enum cay_name_flag */
    const struct cay_pin *pin;
    const struct cay_pin *other_pin; /* of the destination */
    uint32_t mode; /* mkdir: permission bits, less the umask; 0: 0777.  Not of parents */
};

/* Deletes the name: of a symbolic link the link, not what it points to; also of a FIFO, a
 * socket or a device. */
CAY_PUBLIC CAY_NODISC int cay_files_delete(cay_files *files, const char *path,
                                           const struct cay_name_options *options,
                                           struct cay_error *err);

/* The destination must not exist: CAY_E_EXISTS; with CAY_NAME_REPLACE it may, as
 * rename(2) has it.  A move that fails leaves it as it was.  Needs writing at both ends,
 * and reading at the source (between mounts, its approval) if the destination can be
 * read.  Between file systems a file is copied and then removed.  No directory goes where
 * suffixes are limited, nor to another mount that limits sizes. */
CAY_PUBLIC CAY_NODISC int cay_files_move(cay_files *files, const char *source,
                                         const char *destination,
                                         const struct cay_name_options *options,
                                         struct cay_error *err);

/* Copies content, mode and times of a file; the destination must not exist. */
CAY_PUBLIC CAY_NODISC int cay_files_copy(cay_files *files, const char *source,
                                         const char *destination,
                                         const struct cay_name_options *options,
                                         struct cay_error *err);

CAY_PUBLIC CAY_NODISC int cay_files_mkdir(cay_files *files, const char *path,
                                          const struct cay_name_options *options,
                                          struct cay_error *err);

enum cay_type {
    CAY_TYPE_FILE = 1,
    CAY_TYPE_DIRECTORY = 2,
    CAY_TYPE_LINK = 3,
    CAY_TYPE_OTHER = 4 /* a FIFO, socket or device: can be named, never opened */
};

struct cay_stat {
    enum cay_type type;
    uint32_t mode; /* permission bits */
    uint32_t uid, gid;
    uint64_t bytes;
    uint64_t links;
    int64_t mtime_ns;
};

/* Follows links that stay inside; with `no_follow` describes a link itself. */
CAY_PUBLIC CAY_NODISC int cay_files_stat(cay_files *files, const char *path,
                                         bool no_follow, struct cay_stat *ret_stat,
                                         struct cay_error *err);

/* What the text of a symbolic link says; cay_free() it.  CAY_E_INVALID for what is no
 * link.  Where that would tell a host path, it is the place itself that is told, in the
 * policy's spelling, or CAY_E_OUTSIDE. */
CAY_PUBLIC CAY_NODISC int cay_files_read_link(cay_files *files, const char *path,
                                              char **ret_target, struct cay_error *err);

/* What can be done with a file or directory that is there, by the policy and by its own
 * permissions (links followed): bits of enum cay_access, 0 for nothing; or a code. */
CAY_PUBLIC CAY_NODISC int cay_files_access(cay_files *files, const char *path,
                                           struct cay_error *err);

/* 1, 0, or a code: an unreadable path is an error, not a no. */
CAY_PUBLIC CAY_NODISC int cay_files_exists(cay_files *files, const char *path,
                                           struct cay_error *err);

enum cay_descriptor {
    CAY_DESCRIPTOR_READ = 1,
    /* Made if it is not there, with its parents, and empty. */
    CAY_DESCRIPTOR_WRITE = 2,
    CAY_DESCRIPTOR_DIRECTORY = 3, /* for reading its names */
    /* As CAY_DESCRIPTOR_WRITE, but with its content, which the caller truncates. */
    CAY_DESCRIPTOR_UPDATE = 4
};

/* The file itself, for who moves its bytes with system calls.  Only where the policy asks
 * for no approvals, suffixes or sizes, which nobody would look at: CAY_E_UNSUPPORTED. */
CAY_PUBLIC CAY_NODISC int cay_files_descriptor(cay_files *files, const char *path,
                                               enum cay_descriptor what, int *ret_fd,
                                               struct cay_error *err);

/* Reserves space in the file `fd`, a descriptor for writing of this handle, before the
 * caller writes to it: `bytes` from `offset` on.  The size of the file stays.  For a file
 * in the memory of a sandbox the sandbox's memory limit counts them then, instead of the
 * cgroup of the process that writes; elsewhere nothing is reserved.  What is left over is
 * freed by ftruncate(2) to the file's size, or by fallocate(2) with FALLOC_FL_PUNCH_HOLE
 * if other processes write to the file.  CAY_E_NO_SPACE beyond the memory limit or on a
 * full disk; then what the call reserved beyond the end of the file is freed. */
CAY_PUBLIC CAY_NODISC int cay_files_reserve(cay_files *files, int fd, uint64_t offset,
                                            uint64_t bytes, struct cay_error *err);

/* --- Listing and searching ------------------------------------------------------ */

enum cay_list_flag {
    CAY_LIST_FILES = 1 << 0,
    CAY_LIST_DIRECTORIES = 1 << 1,
    CAY_LIST_LINKS = 1 << 2, /* as themselves, also those that lead out or nowhere */
    CAY_LIST_OTHER = 1 << 3,
    CAY_LIST_STAT = 1 << 4 /* fill in cay_entry.stat beyond the type */
};

struct cay_list_options {
    size_t size;
    unsigned flags;             /* 0 means CAY_LIST_FILES */
    const char *pattern;        /* NULL or "" means every name at any depth */
    const char *const *exclude; /* patterns; what matches is skipped with all below it */
    size_t exclude_count;
    const char *after;    /* only entries that sort after this path: the next page */
    uint64_t max_entries; /* 0 means 100,000 */
    uint32_t max_depth;   /* nothing further down is listed; 0 means no limit */
    uint32_t timeout_ms;  /* 0 means no deadline; CAY_E_TIMEOUT past it */
};

struct cay_entry {
    char *path; /* in the policy's spelling */
    struct cay_stat stat;
};

struct cay_listing {
    struct cay_entry *entries; /* sorted by path, as bytes */
    size_t count;
    bool truncated;   /* more follow: call again with `after` set to the last path */
    uint64_t skipped; /* names that no path means, of those up to here */
};
CAY_PUBLIC void cay_listing_done(struct cay_listing *listing);

/* What lies below `path` and matches: "*" and "?" within one name, "[a-z]" and "[!a-z]",
 * "**" for any number of directories; names that start with a dot are ordinary, and a "/"
 * at the end means directories only.  "**" does not pass through links to directories, a
 * plain name or "*" does.  "/", "." and "" mean everything readable.  A missing directory
 * gives an empty listing; one that may not be read is CAY_E_DENIED if it was named, else
 * left out.  A pattern that is absolute or climbs is CAY_E_INVALID.  What no path can
 * name, see cay-files(1), is left out.  Memory grows with max_entries, not the tree. */
CAY_PUBLIC CAY_NODISC int cay_files_list(cay_files *files, const char *path,
                                         const struct cay_list_options *options,
                                         struct cay_listing *ret_listing,
                                         struct cay_error *err);

enum cay_grep_flag { CAY_GREP_IGNORE_CASE = 1 << 0, CAY_GREP_FIXED = 1 << 1 };

struct cay_grep_options {
    size_t size;
    unsigned flags;      /* enum cay_grep_flag */
    const char *pattern; /* which files, as in cay_list_options */
    const char *const *exclude;
    size_t exclude_count;
    uint32_t max_matches;    /* 0 means 1,000 */
    uint32_t max_line_bytes; /* longer lines are cut around the match; 0 means 500 */
    uint64_t max_file_bytes; /* larger files are skipped; 0 means 100 MiB */
    uint32_t timeout_ms;     /* 0 means 10,000 */
};

struct cay_match {
    char *path;
    uint64_t line;   /* from 1 */
    uint64_t column; /* byte in the line, from 1 */
    char *text;      /* the line, without its end; not always UTF-8 */
};

struct cay_matches {
    struct cay_match *items; /* by path, then line: one per matching line */
    size_t count;
    uint64_t files_searched;
    uint64_t files_skipped; /* also directories: not text, not allowed, not nameable */
    bool truncated;
};
CAY_PUBLIC void cay_matches_done(struct cay_matches *matches);

/* Lines that match the regular expression (PCRE2 syntax, bounded in time and memory) in
 * the text files below `path`, or in `path` itself if it is a file. */
CAY_PUBLIC CAY_NODISC int cay_files_grep(cay_files *files, const char *path,
                                         const char *regex,
                                         const struct cay_grep_options *options,
                                         struct cay_matches *ret_matches,
                                         struct cay_error *err);

/* --- Whole directories as tar streams ------------------------------------------- */

enum cay_tar_flag {
    CAY_TAR_WHOLE = 1 << 0 /* export from a sandbox: every symbolic link as it is, FIFOs,
                              owners and all mode bits, so that the stream can become a
                              template.  CAY_E_UNSUPPORTED elsewhere */
};

struct cay_tar_options {
    size_t size;
    uint64_t max_entries; /* 0 means 1,000,000 */
    uint64_t max_bytes;   /* of file content; 0 means 16 GiB */
    uint32_t max_depth;   /* 0 means 256 */
    uint32_t flags;       /* enum cay_tar_flag */
};

struct cay_tar_result {
    uint64_t entries; /* files, directories and links that went through */
    uint64_t bytes;   /* of file content */
    uint64_t skipped; /* special files, links that lead out, what rules keep out */
    uint64_t files;   /* of the entries, the regular files */
};

/* Writes the directory `path` to `fd` as a pax tar stream.  What may not be read is left
 * out, and CAY_E_DENIED when the stream is complete. */
CAY_PUBLIC CAY_NODISC int cay_files_export(cay_files *files, const char *path, int fd,
                                           const struct cay_tar_options *options,
                                           struct cay_tar_result *ret_result,
                                           struct cay_error *err);

/* Unpacks a tar stream (plain or gzip) from `fd` below the directory `path`, which is
 * made if need be.  The bytes are parsed in a confined process; each entry is then
 * written under the policy like any other write: setuid bits, owners, xattrs, devices and
 * FIFOs are not taken over, an entry that climbs or leads through any link is
 * CAY_E_OUTSIDE. An error stops it; what was unpacked until then stays and is counted. */
CAY_PUBLIC CAY_NODISC int cay_files_import(cay_files *files, const char *path, int fd,
                                           const struct cay_tar_options *options,
                                           struct cay_tar_result *ret_result,
                                           struct cay_error *err);

/* --- Whole directories between two handles --------------------------------------- */

struct cay_tree_result {
    uint64_t files, directories, links; /* that went through */
    uint64_t bytes;                     /* of file content */
    uint64_t skipped; /* special files, links that lead out of the directory, and what
                         the source's policy keeps from being read */
};

/* What is in the directory `source` comes to be in the directory `destination` of another
 * handle (or the same), which is made if need be, beside what is there; a file of the
 * same name is replaced.  Modes and times are kept, owners and set-user-id bits are not;
 * a link is kept if it can only lead below the directory.  Files appear whole, one by
 * one; an error stops it, and what was copied until then stays and is counted.  What the
 * source's permissions keep from being read is CAY_E_DENIED, when all else was copied.
 * The options are those of tar streams. */
CAY_PUBLIC CAY_NODISC int cay_files_copy_tree(cay_files *files, const char *source,
                                              cay_files *other, const char *destination,
                                              const struct cay_tar_options *options,
                                              struct cay_tree_result *ret_result,
                                              struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
