/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_BACKEND_H
#define CAY_BACKEND_H

#include "cay/config.h"
#include "cay/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A backend runs sandboxes of one type: a table of functions.  "native", "local" and
 * "e2b" are built in; a program registers others, or loads them from a shared object.
 *
 * `cookie` is the backend's state for one handle.  One thread at a time uses a handle;
 * several threads may use several handles.  A function that a backend does not support is
 * NULL, and the library returns CAY_E_UNSUPPORTED to callers. create, connect, free, id,
 * state, exec, kill and one of open_files and files are mandatory.  Everything else is as
 * defined in sandbox.h.
 *
 * Every table starts with its `size`.  A shorter table, from an older header, lacks the
 * functions it does not cover.  In a longer table, from a newer header, the library does
 * not call the functions it does not know.  Memory that a function returns is allocated
 * with malloc() and owned by the caller.  A function that fails fills in *err, unless
 * `err` is NULL, and changes none of its results. */

/* Processes that run without a waiting caller.  `process` is the backend's state for one
 * process. start, free, pid, fd, read, kill and wait are mandatory.  In a backend without
 * processes, background children of a command may end with the command. */
struct cay_process_backend {
    size_t size;
    int (*start)(void *cookie, const struct cay_exec_options *options, void **ret_process,
                 struct cay_error *err);
    int (*attach)(void *cookie, const char *which, void **ret_process,
                  struct cay_error *err);
    int (*list)(void *cookie, struct cay_process_info **ret_infos, size_t *ret_count,
                struct cay_error *err);
    void (*free)(void *process);
    int (*pid)(const void *process);
    int (*fd)(const void *process);
    int (*read)(void *process, int *ret_stream, void *data, size_t room, size_t *ret_len,
                uint64_t *ret_dropped, struct cay_error *err);
    int (*write)(void *process, const void *data, size_t len, size_t *ret_written,
                 struct cay_error *err);
    int (*close_input)(void *process, struct cay_error *err);
    int (*resize)(void *process, uint16_t rows, uint16_t columns, struct cay_error *err);
    int (*signal)(void *process, int signal, struct cay_error *err);
    int (*kill)(void *process, struct cay_error *err);
    int (*wait)(void *process, uint64_t timeout_ms, struct cay_exec_result *ret_result,
                struct cay_error *err);
    int (*skip)(void *process, struct cay_error *err);
};

/* Files, for backends that cannot return a cay_files.  Content passes through
 * descriptors, so that a file of any size needs no memory.  A descriptor may be a pipe
 * and remains the caller's.  Paths are absolute or start at the working directory; `user`
 * NULL is the default user.  All functions up to `move` are mandatory. */
struct cay_file_backend {
    size_t size;
    int (*stat)(void *cookie, const char *user, const char *path, bool no_follow,
                struct cay_stat *ret_stat, struct cay_error *err);
    int (*read)(void *cookie, const char *user, const char *path, int fd,
                struct cay_error *err);
    /* `flags` are those of enum cay_write_flag.  Writes everything from `fd` until its
     * end. */
    int (*write)(void *cookie, const char *user, const char *path, int fd, unsigned flags,
                 struct cay_error *err);
    /* `depth` 1 lists the directory itself, 0 everything below it.  Entries are sorted by
     * path. */
    int (*list)(void *cookie, const char *user, const char *path, uint32_t depth,
                struct cay_listing *ret_listing, struct cay_error *err);
    int (*mkdir)(void *cookie, const char *user, const char *path, unsigned flags,
                 struct cay_error *err); /* enum cay_name_flag */
    int (*remove)(void *cookie, const char *user, const char *path, unsigned flags,
                  struct cay_error *err);
    int (*move)(void *cookie, const char *user, const char *source,
                const char *destination, struct cay_error *err);
    /* Whole directories as tar streams, as cay_files_export() and cay_files_import().
     * May be NULL: then the library transfers file by file. */
    int (*export_tar)(void *cookie, const char *user, const char *path, int fd,
                      struct cay_tar_result *ret_result, struct cay_error *err);
    int (*import_tar)(void *cookie, const char *user, const char *path, int fd,
                      struct cay_tar_result *ret_result, struct cay_error *err);
    /* The target of a symbolic link; the caller frees it with cay_free(). */
    int (*read_link)(void *cookie, const char *user, const char *path, char **ret_target,
                     struct cay_error *err);
};

struct cay_backend {
    size_t size;
    const char *name; /* the value of `type:`: a letter, then letters, digits, "-", "_" */
    const char *about;              /* one line */
    const struct cay_field *fields; /* in addition to those that every backend has */
    size_t field_count;
    void *data; /* passed to create and connect */

    /* The configuration is valid only until these functions return. */
    int (*create)(void *data, const cay_config *config, void **ret_cookie,
                  struct cay_error *err);
    /* Reaches an existing sandbox, and resumes or starts it if it is paused or stopped.
     * CAY_E_NOT_FOUND if it is gone. */
    int (*connect)(void *data, const cay_config *config, const char *id,
                   void **ret_cookie, struct cay_error *err);
    void (*free)(void *cookie); /* the handle only */
    const char *(*id)(const void *cookie);
    unsigned (*layers)(const void *cookie);
    /* CAY_E_NOT_FOUND if the sandbox is gone for good. */
    int (*state)(void *cookie, enum cay_state *ret_state, struct cay_error *err);
    int (*inspect)(void *cookie, struct cay_sandbox_info *ret_info,
                   struct cay_error *err);
    int (*pause)(void *cookie, struct cay_error *err);
    int (*resume)(void *cookie, struct cay_error *err);
    int (*set_ttl)(void *cookie, uint64_t ttl_ms, struct cay_error *err);
    int (*kill)(void *cookie, struct cay_error *err);
    int (*start)(void *cookie, struct cay_error *err);
    int (*remove)(void *cookie,
                  struct cay_error *err); /* NULL: kill leaves nothing behind */
    int (*exec)(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err);
    int (*open_files)(void *cookie, const char *user, cay_files **ret_files,
                      struct cay_error *err);
    const struct cay_file_backend *files;
    const struct cay_process_backend *processes;

    /* Both or neither. create_marked is create with a mark, by which find_marked finds
     * the sandbox in any state, even if the creator died before it received the id.  A
     * mark is 16 random letters a to z and digits 2 to 7, and is used once. */
    int (*create_marked)(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err);
    int (*find_marked)(void *data, const cay_config *config, const char *mark,
                       void **ret_cookie, struct cay_error *err);

    int (*dial)(void *cookie, uint16_t port, int *ret_fd, struct cay_error *err);

    /* Whether create would refuse the configuration, as far as that can be known without
     * creating or reaching anything. */
    int (*check)(void *data, const cay_config *config, struct cay_error *err);

    /* After a call of create_marked whose caller died, find_marked may miss a sandbox
     * that is still being created elsewhere for this long. 0: a sandbox that it does not
     * find does not exist. */
    uint64_t late_ms;

    /* As create, or as create_marked if `mark` is not NULL; uses a spare of the pool if
     * one fits (cay_sandbox_options.pool).  NULL: the backend has no pools. */
    int (*create_pooled)(void *data, const cay_config *config, const char *mark,
                         const char *pool, void **ret_cookie, struct cay_error *err);
    /* A stream socket to the process inside that serves code contexts (cay/code.h) for
     * the user, NULL: the default user.  Its protocol is internal; a backend that is not
     * built in has NULL here.  *ret_memory_kills: how many processes the kernel has
     * killed so far for the memory limit.  *ret_template: the template's name, as long as
     * the handle exists; NULL if interpreters cannot be copied (cay_warm_create). */
    int (*code)(void *cookie, const char *user, int *ret_fd, uint64_t *ret_memory_kills,
                const char **ret_template, struct cay_error *err);

    /* Network rules of a running sandbox: see sandbox.h. */
    int (*get_network)(void *cookie, cay_policy **ret_policy, struct cay_error *err);
    int (*change_network)(void *cookie, const struct cay_network_config *config,
                          bool replace, struct cay_error *err);
    int (*count_network)(void *cookie, struct cay_network_counts *ret_counts,
                         struct cay_error *err);
    int (*network_events)(void *cookie, uint64_t after,
                          struct cay_network_event **ret_events, size_t *ret_count,
                          struct cay_error *err);

    /* Checkpoints: all four or none.  The options are complete, never NULL. */
    int (*checkpoint)(void *cookie, const struct cay_checkpoint_options *options,
                      struct cay_checkpoint *ret_checkpoint, struct cay_error *err);
    int (*rollback)(void *cookie, const char *which,
                    const struct cay_rollback_options *options,
                    struct cay_rollback *ret_rollback, struct cay_error *err);
    int (*checkpoints)(void *cookie, struct cay_checkpoint **ret_list, size_t *ret_count,
                       struct cay_error *err);
    int (*remove_checkpoint)(void *cookie, const char *which, uint64_t *ret_freed,
                             struct cay_error *err);
    /* Whether each command begins with a checkpoint; may be missing. */
    bool (*checkpoint_each)(const void *cookie);
    /* What the sandbox was created with as cay_sandbox_options.approve, if there is
     * something: the scope, the timeout in milliseconds and the patterns, with a NUL
     * after each; the caller frees the text.  May be missing. */
    int (*approve)(void *cookie, char **ret_text, size_t *ret_len, struct cay_error *err);
};

/* The table and what it points to must live as long as the process.  The library uses a
 * complete copy of the table and returns that copy to callers.  CAY_E_EXISTS if the name
 * is in use, CAY_E_INVALID if a mandatory function is missing.  May be called from any
 * thread. */
CAY_PUBLIC CAY_NODISC int cay_backend_register(const struct cay_backend *backend,
                                               struct cay_error *err);

/* Loads a shared object with a function `const struct cay_backend
 * *cay_backend_entry(void)` and registers the backend it returns.  Loading the same file
 * again changes nothing.  The key `library:` of a configuration does the same. */
#define CAY_BACKEND_ENTRY "cay_backend_entry"
CAY_PUBLIC CAY_NODISC int cay_backend_load(const char *file,
                                           const struct cay_backend **ret_backend,
                                           struct cay_error *err);

/* A backend by name, and by index; NULL if there is none. */
CAY_PUBLIC const struct cay_backend *cay_backend_find(const char *name);
CAY_PUBLIC const struct cay_backend *cay_backend_at(size_t index);

/* Whether such a sandbox could be created here and now: checks what the backend knows
 * beyond the values of the fields.  CAY_OK if the backend cannot check. */
CAY_PUBLIC CAY_NODISC int cay_backend_check(const cay_config *config,
                                            struct cay_error *err);

/* Converts a configuration of type "native" to options that the caller can change before
 * cay_sandbox_create().  CAY_E_UNSUPPORTED for another type.  The options point into the
 * configuration, which must outlive them. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_options_new(const cay_config *config,
                        struct cay_sandbox_options **ret_options, struct cay_error *err);
CAY_PUBLIC void
cay_sandbox_options_free(struct cay_sandbox_options *options); /* NULL is allowed */

/* Creates a sandbox with the configuration's backend, or reaches the sandbox with that
 * id.  The functions of sandbox.h work on it as far as the backend supports them. */
CAY_PUBLIC CAY_NODISC int cay_backend_create(const cay_config *config,
                                             cay_sandbox **ret_sandbox,
                                             struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_backend_connect(const cay_config *config, const char *id,
                                              cay_sandbox **ret_sandbox,
                                              struct cay_error *err);
CAY_PUBLIC const struct cay_backend *cay_sandbox_backend(const cay_sandbox *sandbox);
CAY_PUBLIC CAY_NODISC int
cay_sandbox_state(cay_sandbox *sandbox, enum cay_state *ret_state, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
