/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_BACKEND_H
#define CAY_BACKEND_H

#include "cay/config.h"
#include "cay/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What runs sandboxes of one kind: a table of functions.  "native", "local" and "e2b" are
 * always there; others are registered by a program or loaded from a shared object.
 *
 * `cookie` is the backend's own state for one handle; a handle is used by one thread at
 * a time, several handles by several.  What a backend cannot do is NULL, and callers hear
 * that it is unsupported; create, connect, free, id, state, exec, kill and one of
 * open_files and files must be there.  All else is as sandbox.h says.
 *
 * Every table starts with its `size`.  A shorter one, of an older header, lacks what it
 * does not cover; of a longer one, of a newer header, nobody calls what is not known.
 * Memory that a function hands out is malloc()ed and no longer the backend's.  A function
 * that fails fills in *err, unless `err` is NULL, and touches none of its results. */

/* Processes that are not waited for.  `process` is the backend's state for one.  start,
 * free, pid, fd, read, kill and wait must be there.  Where there are no processes, what a
 * command leaves running may end with it. */
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

/* Files, for backends that cannot give a cay_files.  Content goes through descriptors, so
 * that a file of any size needs no memory: they may be pipes, and stay the caller's.
 * Paths are absolute or start at the working directory; `user` NULL is the default.  All
 * up to `move` must be there. */
struct cay_file_backend {
    size_t size;
    int (*stat)(void *cookie, const char *user, const char *path, bool no_follow,
                struct cay_stat *ret_stat, struct cay_error *err);
    int (*read)(void *cookie, const char *user, const char *path, int fd,
                struct cay_error *err);
    /* `flags` are those of enum cay_write_flag; what comes from `fd` until its end. */
    int (*write)(void *cookie, const char *user, const char *path, int fd, unsigned flags,
                 struct cay_error *err);
    /* `depth` 1 is the directory itself, 0 everything below; entries sorted by path. */
    int (*list)(void *cookie, const char *user, const char *path, uint32_t depth,
                struct cay_listing *ret_listing, struct cay_error *err);
    int (*mkdir)(void *cookie, const char *user, const char *path, unsigned flags,
                 struct cay_error *err); /* enum cay_name_flag */
    int (*remove)(void *cookie, const char *user, const char *path, unsigned flags,
                  struct cay_error *err);
    int (*move)(void *cookie, const char *user, const char *source,
                const char *destination, struct cay_error *err);
    /* Whole directories as tar streams, as cay_files_export() and _import().  May be
     * NULL: then they go file by file. */
    int (*export_tar)(void *cookie, const char *user, const char *path, int fd,
                      struct cay_tar_result *ret_result, struct cay_error *err);
    int (*import_tar)(void *cookie, const char *user, const char *path, int fd,
                      struct cay_tar_result *ret_result, struct cay_error *err);
    /* The target of a symbolic link; cay_free() it. */
    int (*read_link)(void *cookie, const char *user, const char *path, char **ret_target,
                     struct cay_error *err);
};

struct cay_backend {
    size_t size;
    const char *name;  /* as `type:` says it: a letter, then letters, digits, "-", "_" */
    const char *about; /* one line */
    const struct cay_field *fields; /* beside those that every backend has */
    size_t field_count;
    void *data; /* handed to create and connect */

    /* The configuration is not there any more when they have returned. */
    int (*create)(void *data, const cay_config *config, void **ret_cookie,
                  struct cay_error *err);
    /* Reaches one that exists, and lets it run if it was paused or stopped.
     * CAY_E_NOT_FOUND if it is gone. */
    int (*connect)(void *data, const cay_config *config, const char *id,
                   void **ret_cookie, struct cay_error *err);
    void (*free)(void *cookie); /* the handle only */
    const char *(*id)(const void *cookie);
    unsigned (*layers)(const void *cookie);
    /* CAY_E_NOT_FOUND if it is gone for good. */
    int (*state)(void *cookie, enum cay_state *ret_state, struct cay_error *err);
    int (*inspect)(void *cookie, struct cay_sandbox_info *ret_info,
                   struct cay_error *err);
    int (*pause)(void *cookie, struct cay_error *err);
    int (*resume)(void *cookie, struct cay_error *err);
    int (*set_ttl)(void *cookie, uint64_t ttl_ms, struct cay_error *err);
    int (*kill)(void *cookie, struct cay_error *err);
    int (*start)(void *cookie, struct cay_error *err);
    int (*remove)(void *cookie, struct cay_error *err); /* NULL: kill leaves nothing */
    int (*exec)(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err);
    int (*open_files)(void *cookie, const char *user, cay_files **ret_files,
                      struct cay_error *err);
    const struct cay_file_backend *files;
    const struct cay_process_backend *processes;

    /* Both or neither: as create, but one that is found again by its mark, though its
     * maker may have died before it heard the id; and the one of that mark, whatever
     * state it is in.  A mark is 16 random letters a to z and digits 2 to 7. */
    int (*create_marked)(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err);
    int (*find_marked)(void *data, const cay_config *config, const char *mark,
                       void **ret_cookie, struct cay_error *err);

    int (*dial)(void *cookie, uint16_t port, int *ret_fd, struct cay_error *err);

    /* Whether create would refuse the configuration, as far as that can be known without
     * making or reaching anything. */
    int (*check)(void *data, const cay_config *config, struct cay_error *err);

    /* For so long after create_marked was called, find_marked may not find yet what its
     * dead maker has asked for elsewhere.  0: what it does not find is not there. */
    uint64_t late_ms;
};

/* The table and what it points to must live as long as the process; the library works
 * with a complete copy of it, which is what it hands out.  A name that is taken is
 * CAY_E_EXISTS, a table that is not whole CAY_E_INVALID.  From any thread. */
CAY_PUBLIC CAY_NODISC int cay_backend_register(const struct cay_backend *backend,
                                               struct cay_error *err);

/* Loads a shared object, which has `const struct cay_backend *cay_backend_entry(void)`,
 * and registers what that gives; again for the same file changes nothing.  A
 * configuration says `library:` to have this done. */
#define CAY_BACKEND_ENTRY "cay_backend_entry"
CAY_PUBLIC CAY_NODISC int cay_backend_load(const char *file,
                                           const struct cay_backend **ret_backend,
                                           struct cay_error *err);

/* By its name, and one after the other; NULL if there is none. */
CAY_PUBLIC const struct cay_backend *cay_backend_find(const char *name);
CAY_PUBLIC const struct cay_backend *cay_backend_at(size_t index);

/* Whether there could be such a sandbox here and now: what its backend knows beyond the
 * values of the fields.  CAY_OK where the backend cannot tell. */
CAY_PUBLIC CAY_NODISC int cay_backend_check(const cay_config *config,
                                            struct cay_error *err);

/* What a configuration of type "native" comes to, for those who want to change some of it
 * before cay_sandbox_create(); CAY_E_UNSUPPORTED for another type.  It points into the
 * configuration, which must outlive it. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_options_new(const cay_config *config,
                        struct cay_sandbox_options **ret_options, struct cay_error *err);
CAY_PUBLIC void
cay_sandbox_options_free(struct cay_sandbox_options *options); /* NULL is fine */

/* Makes a sandbox by the configuration's backend, or reaches the one of that id.  The
 * functions of sandbox.h work on it as far as the backend has them. */
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
