/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_FILES_H
#define CAY_FILES_H

#include "cay/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* File tools under a policy.
 *
 * A cay_files has an open descriptor of each directory of its policy, and every operation
 * walks down from there with openat2(2): a name is looked up once and checked, and the
 * operation acts on the descriptor that was found.  Symbolic links that stay below their
 * directory work; a link that leads out is CAY_E_OUTSIDE.  Only regular files are opened,
 * never a FIFO, a socket or a device.
 *
 * Paths follow the policy's style (policy.h).  Results and errors use the same spelling
 * and never contain a host path.  Several threads may use a handle at once.
 *
 * Input structs start with `size`: zero the struct and set size to its sizeof.  Unknown
 * flags, and a larger struct whose unknown tail is not zero, are CAY_E_UNSUPPORTED.  NULL
 * options mean the defaults.  The caller frees memory in results. */
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

/* A pending operation, described for the approver. */
struct cay_approval {
    size_t size;
    enum cay_op op;
    const char *path;    /* as the caller spelled it */
    const char *other;   /* the destination of a move or copy, else NULL */
    const char *summary; /* "Write 12 chars to notes/a.txt" */
    const char *before;  /* the current content (edits up to 1 MiB), else NULL */
    size_t before_len;
    const char *after; /* new content (edits up to 1 MiB), appended bytes, or NULL */
    size_t after_len;
};

enum cay_verdict {
    CAY_VERDICT_DENY = 0,
    CAY_VERDICT_APPROVE = 1,
    /* Approve, and do not request approval again for this path and access during the life
     * of this handle or of one derived from it. */
    CAY_VERDICT_REMEMBER = 2
};

#define CAY_NOTE_MAX 256

/* Called before anything is changed.  `note` receives the reason for a denial, which
 * becomes part of the caller's error.  After an approval the operation acts on exactly
 * what was shown: if the file has been changed or replaced meanwhile, the operation fails
 * with CAY_E_CHANGED.  The callback may use the same handle. */
typedef enum cay_verdict (*cay_approver)(void *cookie, const struct cay_approval *request,
                                         char note[CAY_NOTE_MAX]);

/* --- The handle ----------------------------------------------------------------- */

enum cay_files_flag {
    CAY_FILES_CREATE_ALL = 1 << 0, /* create missing read-only roots too */
    /* The caller obtains approvals itself.  Without this flag and without an approver, an
     * operation that needs approval is CAY_E_NOT_APPROVED. */
    CAY_FILES_APPROVED_OUTSIDE = 1 << 1
};

struct cay_files_options {
    size_t size;
    unsigned flags; /* enum cay_files_flag */
    cay_approver approver;
    void *cookie;
};

/* Opens the policy's directories.  Missing writable ones are created, with parents.  A
 * missing read-only one is CAY_E_NOT_FOUND, one inside another is CAY_E_INVALID; on
 * failure no created directory is left behind.  The policy is copied.  The caller owns
 * the result. */
CAY_PUBLIC CAY_NODISC int cay_files_open(const cay_policy *policy,
                                         const struct cay_files_options *options,
                                         cay_files **ret_files, struct cay_error *err);
CAY_PUBLIC void cay_files_free(cay_files *files); /* NULL is allowed */

enum cay_readonly { CAY_READONLY_UNSET, CAY_READONLY_TRUE, CAY_READONLY_FALSE };

/* A narrower view.  `allow_write` alone also allows reading the same directories.
 * `allow_read` alone allows no writing.  Neither allows nothing, unless `inherit` is set:
 * then the view has what the parent has.  A NULL list means "not given"; an empty list is
 * not NULL.  Entries are directories, which need not exist yet.  What they cover is fixed
 * by this call, by what they resolve to now. */
struct cay_derive {
    size_t size;
    const char *const *allow_read;
    size_t allow_read_count;
    const char *const *allow_write;
    size_t allow_write_count;
    enum cay_readonly readonly;
    bool inherit;
};

/* A request for anything the parent does not have, or CAY_READONLY_FALSE when the parent
 * can write nowhere, is CAY_E_ESCALATION. sys_errno is EACCES for an entry that is not
 * readable; EROFS for one that is not writable, or for the readonly flag.  ".." in the
 * lists is CAY_E_INVALID.  A file in the lists is CAY_E_INVALID in the mounts style; in
 * the other styles it stands for its directory.  The child is independent: the parent may
 * be freed first. */
CAY_PUBLIC CAY_NODISC int cay_files_derive(const cay_files *files,
                                           const struct cay_derive *derive,
                                           cay_files **ret_child, struct cay_error *err);

/* The same view with other options: the same directories and grants, another approver, no
 * remembered approvals.  It is independent, too. */
CAY_PUBLIC CAY_NODISC int cay_files_clone(const cay_files *files,
                                          const struct cay_files_options *options,
                                          cay_files **ret_files, struct cay_error *err);

/* --- Queries ------------------------------------------------------------------- */

/* Where a path leads, and the rules that apply there.  Pointers live as long as the
 * handle, except host and path, which cay_location_done() frees. */
struct cay_location {
    size_t size;
    size_t mount;     /* index into the policy's mounts */
    const char *name; /* that mount's name: "docs", "/docs" or "/" */
    char *host;       /* the host path, links resolved; not to be shown to the caller */
    char *path;       /* the same in the policy's spelling */
    unsigned access;  /* what is granted: enum cay_access */
    bool exists;
    bool read_approval;
    bool write_approval;
};

/* `access` is the intended access: CAY_E_OUTSIDE or CAY_E_READ_ONLY if it is not granted.
 * The path need not exist. */
CAY_PUBLIC CAY_NODISC int cay_files_locate(cay_files *files, const char *path,
                                           unsigned access,
                                           struct cay_location *ret_location,
                                           struct cay_error *err);
CAY_PUBLIC void cay_location_done(struct cay_location *location);

CAY_PUBLIC bool cay_files_can(cay_files *files, const char *path, unsigned access);

/* Also false if the access is not granted at all. */
CAY_PUBLIC bool cay_files_needs_approval(cay_files *files, const char *path,
                                         unsigned access);

/* One sentence: which rule applies to this path and what it grants.  Free it with
 * cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_files_explain(cay_files *files, const char *path,
                                            char **ret_sentence, struct cay_error *err);

/* A list of strings.  Free it with cay_strings_done(). */
struct cay_strings {
    char **items;
    size_t count;
};
CAY_PUBLIC void cay_strings_done(struct cay_strings *strings);

/* The topmost directories that may be read (CAY_ACCESS_READ) or written
 * (CAY_ACCESS_WRITE). */
CAY_PUBLIC CAY_NODISC int cay_files_roots(const cay_files *files, unsigned access,
                                          struct cay_strings *ret_roots,
                                          struct cay_error *err);

/* Checks a file name against the mount's suffix rule, and a number of bytes against its
 * size rule. */
CAY_PUBLIC CAY_NODISC int cay_files_check_suffix(const cay_files *files, size_t mount,
                                                 const char *path, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_files_check_size(const cay_files *files, size_t mount,
                                               const char *path, uint64_t bytes,
                                               struct cay_error *err);

/* --- Pins: act on exactly what was approved ------------------------------------ */

/* The identity of what a path led to at one moment (for a link that leads out: the link
 * itself), taken with cay_files_pin() when approval is obtained elsewhere.  An operation
 * with a pin fails with CAY_E_CHANGED if the path leads elsewhere or the file was changed
 * since. */
struct cay_pin {
    uint64_t words[8];
};
CAY_PUBLIC CAY_NODISC int cay_files_pin(cay_files *files, const char *path,
                                        struct cay_pin *ret_pin, struct cay_error *err);

/* --- Reading -------------------------------------------------------------------- */

#define CAY_READ_MAX   (100u << 20) /* most bytes one call returns by default */
#define CAY_READ_CHARS 20000u       /* characters in a page by default */

enum cay_read_flag {
    CAY_READ_UNIVERSAL_NEWLINES =
        1 << 0,              /* "\r\n" and "\r" are read, and counted, as "\n" */
    CAY_READ_LARGE = 1 << 1, /* more than CAY_READ_MAX may be returned */
};

struct cay_read_options {
    size_t size;
    unsigned flags;  /* enum cay_read_flag */
    uint64_t offset; /* first character (pages), line from 0 (lines), byte (bytes) */
    uint64_t max;    /* at most this many of them; UINT64_MAX for all */
    const struct cay_pin *pin;
    /* If set, provides the memory for the text of a whole file of 1 MiB and more.  Called
     * at most once with the file's size; returns room for one byte more.  If page.text is
     * then this memory, it stays the caller's and the page must not be freed. */
    char *(*allocate)(void *cookie, size_t len);
    void *cookie;
};

/* A page of text.  Characters are code points.  Free it with cay_page_done(). */
struct cay_page {
    char *text; /* NUL-terminated */
    size_t len; /* bytes in text */
    uint64_t offset;
    uint64_t count; /* characters, lines or bytes in text */
    uint64_t total; /* number of them in the file */
    bool truncated; /* more follow */
    /* Pages of characters: the smallest of 0x7F, 0xFF, 0xFFFF, 0x10FFFF that no character
     * exceeds. */
    uint32_t highest;
};
CAY_PUBLIC void cay_page_done(struct cay_page *page);

/* For languages whose strings are arrays of code points: writes a page of characters to
 * `to` as `page->count` numbers of `width` bytes each, in the machine's byte order.  The
 * width is 1, 2 or 4, and enough for `page->highest`. */
CAY_PUBLIC CAY_NODISC int cay_page_widen(const struct cay_page *page, unsigned width,
                                         void *to, struct cay_error *err);

/* CAY_E_NOT_TEXT if any part of the file is not UTF-8.  The first page of a file scans
 * all of it to count; later pages read only their own part, since the handle remembers
 * the offsets of characters in the last few files. */
CAY_PUBLIC CAY_NODISC int cay_files_read(cay_files *files, const char *path,
                                         const struct cay_read_options *options,
                                         struct cay_page *ret_page,
                                         struct cay_error *err);

/* Whole lines, with their line ends: "\n" or "\r\n".  Whatever the flags, a "\r" alone is
 * part of its line. options->max 0 means 2,000. */
CAY_PUBLIC CAY_NODISC int cay_files_read_lines(cay_files *files, const char *path,
                                               const struct cay_read_options *options,
                                               struct cay_page *ret_page,
                                               struct cay_error *err);

/* Any bytes.  CAY_E_LIMIT if more than CAY_READ_MAX would be returned. */
CAY_PUBLIC CAY_NODISC int cay_files_read_bytes(cay_files *files, const char *path,
                                               const struct cay_read_options *options,
                                               struct cay_page *ret_page,
                                               struct cay_error *err);

/* Copies a whole file of any length to the descriptor `fd`: as many bytes as the file has
 * when the call starts.  *ret_stat (may be NULL) describes the file at that time. */
struct cay_stat;
CAY_PUBLIC CAY_NODISC int cay_files_read_to(cay_files *files, const char *path, int fd,
                                            struct cay_stat *ret_stat,
                                            struct cay_error *err);

/* One open file, for many pages.  The reader uses the file it opened, even if the name
 * later means another file.  If that file is changed, it is scanned again. */
typedef struct cay_reader cay_reader;
CAY_PUBLIC CAY_NODISC int cay_reader_open(cay_files *files, const char *path,
                                          cay_reader **ret_reader, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_reader_page(cay_reader *reader,
                                          const struct cay_read_options *options,
                                          struct cay_page *ret_page,
                                          struct cay_error *err);
CAY_PUBLIC void cay_reader_free(cay_reader *reader);

/* Many files in one call.  Each has its own result; the call fails only if memory is
 * exhausted.  Pages are those of cay_files_read_bytes(). */
struct cay_read_item {
    const char *path;
    struct cay_page page;
    struct cay_error error; /* code CAY_OK if the page is valid */
};
CAY_PUBLIC CAY_NODISC int cay_files_read_many(cay_files *files,
                                              struct cay_read_item *items, size_t count,
                                              struct cay_error *err);

/* --- Writing -------------------------------------------------------------------- */

enum cay_write_flag {
    CAY_WRITE_IN_PLACE = 1 << 0, /* overwrite the existing file's bytes, keep its inode */
    CAY_WRITE_APPEND = 1 << 1,
    CAY_WRITE_NEW = 1 << 2,     /* CAY_E_EXISTS if the path exists */
    CAY_WRITE_DURABLE = 1 << 3, /* fsync the file and its directory before returning */
    CAY_WRITE_NO_PARENTS = 1 << 4,
    /* cay_files_write_from() only, for a source that is a file: set its mode (no
     * set-user-id) and time.  CAY_E_CHANGED if it becomes shorter meanwhile. */
    CAY_WRITE_KEEP = 1 << 5
};

struct cay_write_options {
    size_t size;
    unsigned flags; /* enum cay_write_flag */
    const struct cay_pin *pin;
};

/* By default the content goes to a nameless file that then takes the name: readers see
 * the old file or the new one, and a failure leaves the old one unchanged.  An existing
 * file keeps its mode and owner; if the caller cannot give a new file that owner, the
 * file is overwritten in place, as with CAY_WRITE_IN_PLACE.  A new file gets 0666 less
 * the umask.  Missing parent directories are created, and removed again if the write
 * fails.  A failed append removes the bytes it added, unless other writers have appended
 * since: the hint reports that. */
CAY_PUBLIC CAY_NODISC int cay_files_write(cay_files *files, const char *path,
                                          const void *data, size_t len,
                                          const struct cay_write_options *options,
                                          struct cay_error *err);

/* The same with the content of the descriptor `fd`, from its current position to its end:
 * a file, a pipe or a socket, of any length.  When writing in place or appending, a
 * failure can leave part of the content.  *ret_bytes (may be NULL) is the number of
 * bytes. */
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

/* Many files in one call, in order.  Each is written or fails independently. */
CAY_PUBLIC CAY_NODISC int cay_files_write_many(cay_files *files,
                                               struct cay_write_item *items, size_t count,
                                               const struct cay_write_options *options,
                                               struct cay_error *err);

/* Replaces `old_text`, which must occur exactly once, or with CAY_EDIT_ALL at least once
 * (it must then not be empty).  "\n" in it also matches "\r\n" and "\r".  In a file whose
 * first line ends in "\r\n" (or "\r"), each "\n" of new_text is written that way: line
 * ends survive an edit based on text that was read with universal newlines.
 * CAY_EDIT_EXACT switches that off, and so does a "\r" in old_text that no "\n"
 * follows. */
enum cay_edit_flag { CAY_EDIT_ALL = 1 << 0, CAY_EDIT_EXACT = 1 << 1 };

struct cay_edit {
    const char *old_text;
    size_t old_len;
    const char *new_text;
    size_t new_len;
    unsigned flags; /* enum cay_edit_flag */
};

struct cay_edit_result {
    uint64_t replaced; /* occurrences, in all edits */
    uint64_t bytes;    /* new size of the file */
};

/* Applies the edits in order, each to the result of the one before, and then replaces the
 * file: all edits or none.  CAY_E_NO_MATCH reports which edit failed and how often its
 * text was found. */
CAY_PUBLIC CAY_NODISC int cay_files_edit(cay_files *files, const char *path,
                                         const struct cay_edit *edits, size_t count,
                                         const struct cay_write_options *options,
                                         struct cay_edit_result *ret_result,
                                         struct cay_error *err);

/* --- Names ---------------------------------------------------------------------- */

enum cay_name_flag {
    CAY_NAME_RECURSIVE = 1 << 0,  /* delete: a directory and everything below it */
    CAY_NAME_NO_PARENTS = 1 << 1, /* mkdir, move, copy: parents must exist */
    CAY_NAME_EXIST_OK = 1 << 2,   /* mkdir: an existing directory is not an error */
    CAY_NAME_DIRECTORY = 1 << 3,  /* move: directories too */
    CAY_NAME_REPLACE = 1 << 4     /* move: replace an existing destination */
};

struct cay_name_options {
    size_t size;
    unsigned flags; /* enum cay_name_flag */
    const struct cay_pin *pin;
    const struct cay_pin *other_pin; /* pin of the destination */
    uint32_t mode; /* mkdir: permission bits, less the umask; 0: 0777. Not for parents */
};

/* Deletes the name: a symbolic link itself, not its target; also a FIFO, a socket or a
 * device. */
CAY_PUBLIC CAY_NODISC int cay_files_delete(cay_files *files, const char *path,
                                           const struct cay_name_options *options,
                                           struct cay_error *err);

/* The destination must not exist (CAY_E_EXISTS), unless CAY_NAME_REPLACE is set; then the
 * rules of rename(2) apply.  A move that fails leaves the destination unchanged.  Needs
 * write access at both ends, and read access at the source (between mounts, also its
 * approval) if the destination can be read.  Between file systems a file is copied and
 * then removed.  A directory cannot be moved to a mount that limits suffixes, nor to
 * another mount that limits sizes. */
CAY_PUBLIC CAY_NODISC int cay_files_move(cay_files *files, const char *source,
                                         const char *destination,
                                         const struct cay_name_options *options,
                                         struct cay_error *err);

/* Copies content, mode and times of a file.  The destination must not exist. */
CAY_PUBLIC CAY_NODISC int cay_files_copy(cay_files *files, const char *source,
                                         const char *destination,
                                         const struct cay_name_options *options,
                                         struct cay_error *err);

CAY_PUBLIC CAY_NODISC int cay_files_mkdir(cay_files *files, const char *path,
                                          const struct cay_name_options *options,
                                          struct cay_error *err);

enum cay_attribute {
    CAY_ATTRIBUTE_MODE = 1 << 0,
    CAY_ATTRIBUTE_OWNER = 1 << 1,
    CAY_ATTRIBUTE_GROUP = 1 << 2
};

struct cay_attributes {
    size_t size;
    unsigned flags; /* enum cay_attribute: the members that are set */
    uint32_t mode;  /* permission bits, and 01000 */
    uint32_t uid, gid;
};

/* Changes the mode, the owner and the group of a file or directory.  A link is not
 * followed: it can have another owner, but no mode (CAY_E_INVALID).  The kernel decides
 * whether the user of the handle may do it: CAY_E_DENIED. */
CAY_PUBLIC CAY_NODISC int cay_files_set_attributes(cay_files *files, const char *path,
                                                   const struct cay_attributes *wanted,
                                                   struct cay_error *err);

enum cay_type {
    CAY_TYPE_FILE = 1,
    CAY_TYPE_DIRECTORY = 2,
    CAY_TYPE_LINK = 3,
    CAY_TYPE_OTHER = 4 /* a FIFO, socket or device: has a name, is never opened */
};

struct cay_stat {
    enum cay_type type;
    uint32_t mode; /* permission bits */
    uint32_t uid, gid;
    uint64_t bytes;
    uint64_t links;
    int64_t mtime_ns;
};

/* Follows links that stay inside; with `no_follow` describes the link itself. */
CAY_PUBLIC CAY_NODISC int cay_files_stat(cay_files *files, const char *path,
                                         bool no_follow, struct cay_stat *ret_stat,
                                         struct cay_error *err);

/* The text of a symbolic link; free it with cay_free().  CAY_E_INVALID if the path is not
 * a link.  If the text would reveal a host path, returns the location it leads to in the
 * policy's spelling, or CAY_E_OUTSIDE. */
CAY_PUBLIC CAY_NODISC int cay_files_read_link(cay_files *files, const char *path,
                                              char **ret_target, struct cay_error *err);

/* The access that the policy and the permissions of an existing file or directory allow
 * (links followed): bits of enum cay_access, 0 for none; or a code. */
CAY_PUBLIC CAY_NODISC int cay_files_access(cay_files *files, const char *path,
                                           struct cay_error *err);

/* Returns 1, 0 or a code: an unreadable path is an error, not 0. */
CAY_PUBLIC CAY_NODISC int cay_files_exists(cay_files *files, const char *path,
                                           struct cay_error *err);

enum cay_descriptor {
    CAY_DESCRIPTOR_READ = 1,
    /* Created if missing, with its parents; truncated. */
    CAY_DESCRIPTOR_WRITE = 2,
    CAY_DESCRIPTOR_DIRECTORY = 3, /* for reading its entries */
    /* As CAY_DESCRIPTOR_WRITE, but not truncated; the caller truncates. */
    CAY_DESCRIPTOR_UPDATE = 4
};

/* A descriptor of the file itself, for callers that transfer its bytes with system calls.
 * CAY_E_UNSUPPORTED if the policy has rules for approval, suffixes or sizes, since they
 * cannot be checked on a descriptor. */
CAY_PUBLIC CAY_NODISC int cay_files_descriptor(cay_files *files, const char *path,
                                               enum cay_descriptor what, int *ret_fd,
                                               struct cay_error *err);

/* Reserves space in the file `fd`, a descriptor for writing from this handle, before the
 * caller writes to it: `bytes` from `offset` on.  The size of the file does not change.
 * For a file in the memory of a sandbox, the bytes then count against the sandbox's
 * memory limit instead of the cgroup of the writing process; for other files nothing is
 * reserved.  The caller frees unused space with ftruncate(2) to the file's size, or with
 * fallocate(2) and FALLOC_FL_PUNCH_HOLE if other processes write to the file.
 * CAY_E_NO_SPACE beyond the memory limit or on a full disk; then what the call reserved
 * beyond the end of the file is freed. */
CAY_PUBLIC CAY_NODISC int cay_files_reserve(cay_files *files, int fd, uint64_t offset,
                                            uint64_t bytes, struct cay_error *err);

/* --- Listing and searching ------------------------------------------------------ */

enum cay_list_flag {
    CAY_LIST_FILES = 1 << 0,
    CAY_LIST_DIRECTORIES = 1 << 1,
    CAY_LIST_LINKS = 1 << 2, /* links themselves, also those that lead out or nowhere */
    CAY_LIST_OTHER = 1 << 3,
    CAY_LIST_STAT = 1 << 4 /* fill in cay_entry.stat beyond the type */
};

struct cay_list_options {
    size_t size;
    unsigned flags;      /* 0 means CAY_LIST_FILES */
    const char *pattern; /* NULL or "" means every name at any depth */
    const char *const
        *exclude; /* patterns; a match is skipped with everything below it */
    size_t exclude_count;
    const char *after;    /* only entries that sort after this path: the next page */
    uint64_t max_entries; /* 0 means 100,000 */
    uint32_t max_depth;   /* no entries below this depth; 0 means no limit */
    uint32_t timeout_ms;  /* 0 means no deadline; CAY_E_TIMEOUT after it */
};

struct cay_entry {
    char *path; /* in the policy's spelling */
    struct cay_stat stat;
};

struct cay_listing {
    struct cay_entry *entries; /* sorted by path, as bytes */
    size_t count;
    bool truncated;   /* more follow: call again with `after` set to the last path */
    uint64_t skipped; /* entries up to here that no path can name */
};
CAY_PUBLIC void cay_listing_done(struct cay_listing *listing);

/* Lists what is below `path` and matches: "*" and "?" match within one name, "[a-z]" and
 * "[!a-z]" one character, "**" any number of directories.  Names that start with a dot
 * are ordinary.  A "/" at the end matches directories only.  "**" does not follow links
 * to directories; a plain name or "*" does.  `path` "/", "." or "" lists everything
 * readable.  A missing directory gives an empty listing.  An unreadable directory is
 * CAY_E_DENIED if `path` names it; otherwise it is left out.  A pattern that is absolute
 * or climbs is CAY_E_INVALID.  Entries that no path can name, see cay-files(1), are left
 * out.  Memory use grows with max_entries, not with the tree. */
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
    uint64_t files_skipped; /* including directories: not text, not allowed, no path can
                               name it */
    bool truncated;
};
CAY_PUBLIC void cay_matches_done(struct cay_matches *matches);

/* Finds lines that match the regular expression (PCRE2 syntax, bounded in time and
 * memory) in the text files below `path`, or in `path` itself if it is a file. */
CAY_PUBLIC CAY_NODISC int cay_files_grep(cay_files *files, const char *path,
                                         const char *regex,
                                         const struct cay_grep_options *options,
                                         struct cay_matches *ret_matches,
                                         struct cay_error *err);

/* --- Whole directories as tar streams ------------------------------------------- */

enum cay_tar_flag {
    /* Export from a sandbox: every symbolic link unchanged, FIFOs, owners and all mode
     * bits, so that the stream can become a template.  CAY_E_UNSUPPORTED elsewhere. */
    CAY_TAR_WHOLE = 1 << 0
};

struct cay_tar_options {
    size_t size;
    uint64_t max_entries; /* 0 means 1,000,000 */
    uint64_t max_bytes;   /* of file content; 0 means 16 GiB */
    uint32_t max_depth;   /* 0 means 256 */
    uint32_t flags;       /* enum cay_tar_flag */
};

struct cay_tar_result {
    uint64_t entries; /* files, directories and links transferred */
    uint64_t bytes;   /* of file content */
    uint64_t skipped; /* special files, links that lead out, entries that rules exclude */
    uint64_t files;   /* regular files among the entries */
};

/* Writes the directory `path` to `fd` as a pax tar stream.  Unreadable entries are left
 * out; then the call returns CAY_E_DENIED after the stream is complete. */
CAY_PUBLIC CAY_NODISC int cay_files_export(cay_files *files, const char *path, int fd,
                                           const struct cay_tar_options *options,
                                           struct cay_tar_result *ret_result,
                                           struct cay_error *err);

/* Unpacks a tar stream (plain or gzip) from `fd` below the directory `path`, which is
 * created if missing.  A confined process parses the bytes; each entry is then written
 * under the policy like any other write.  Setuid bits, owners, xattrs, devices and FIFOs
 * are ignored; an entry that climbs or leads through any link is CAY_E_OUTSIDE.  An error
 * stops the import; entries unpacked so far stay and are counted. */
CAY_PUBLIC CAY_NODISC int cay_files_import(cay_files *files, const char *path, int fd,
                                           const struct cay_tar_options *options,
                                           struct cay_tar_result *ret_result,
                                           struct cay_error *err);

/* --- Whole directories between two handles --------------------------------------- */

struct cay_tree_result {
    uint64_t files, directories, links; /* transferred */
    uint64_t bytes;                     /* of file content */
    /* Special files, links that lead out of the directory, and what the source's policy
     * does not allow to be read. */
    uint64_t skipped;
};

/* Copies the content of the directory `source` into the directory `destination` of
 * another handle (or the same), which is created if missing.  Existing entries stay, but
 * a file of the same name is replaced.  Modes and times are preserved; owners and
 * set-user-id bits are not.  A link is copied if it can only lead below the directory.
 * Files appear complete, one by one.  An error stops the copy; what was copied so far
 * stays and is counted.  If the source's permissions make an entry unreadable, everything
 * else is copied and the call returns CAY_E_DENIED.  The options are those of tar
 * streams. */
CAY_PUBLIC CAY_NODISC int cay_files_copy_tree(cay_files *files, const char *source,
                                              cay_files *other, const char *destination,
                                              const struct cay_tar_options *options,
                                              struct cay_tree_result *ret_result,
                                              struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
