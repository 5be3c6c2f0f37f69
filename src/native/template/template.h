/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_TEMPLATE_TEMPLATE_H
#define NATIVE_TEMPLATE_TEMPLATE_H

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

#include "cay/sandbox.h"
#include "native/record/idmap.h"

/* Templates are in STATE/templates/NAME/: "root", a directory with the owners as inside
 * (0 to 65535), which a sandbox sees shifted into its own range, and "info", its
 * metadata.  The files of an ordinary user's template belong to the subordinate ids that
 * its sandboxes have as well.  They are created in a directory ".new-..." and renamed
 * when complete, and renamed to ".old-..." before they are removed. */

#define TEMPLATE_OP "template.create"

enum {
    TEMPLATE_NAME_MAX = 64,   /* NAME or NAME:TAG, with its NUL */
    TEMPLATE_LAYERS_MAX = 60, /* below the root */
    TEMPLATE_NOBODY = 65534,  /* the owner of files whose owner is above 65535 */
    TEMPLATE_ENTRIES_MAX = 1000000,
    TEMPLATE_DEPTH_MAX = 200
};
#define TEMPLATE_BYTES_MAX ((uint64_t)64 << 30)

struct template_info {
    struct cay_template_info shown;
    char **env;           /* "NAME=value" of an image, NULL-terminated, or NULL */
    char map[IDMAP_TEXT]; /* of an ordinary user's template; else "" */
    /* Layers below the root, the highest first: names in STATE/layers, NULL-terminated,
     * or NULL; and the template below all of them, or "".  If that is "base", the
     * directory "usr" beside the root has changes of /usr. */
    char **layers;
    char base[TEMPLATE_NAME_MAX];
    char *config; /* the image's configuration: JSON, or NULL */
    /* The template of the sandbox, if these are the files of one, or "". */
    char origin[256];
};

#define TEMPLATE_SNAPSHOT "snapshot" /* the source of a snapshot */
#define TEMPLATE_BUILD    "build"    /* of a template of cay_build() */

/* What sandboxes have of the configuration's Env if the build hides its own. */
#define TEMPLATE_IMAGE_ENV "ImageEnv"

/* The map that this user's templates have: idmap_text() of the level range.  False if
 * there is none. */
bool template_own_map(char ret_map[IDMAP_TEXT]);
void template_info_done(struct template_info *info);
int template_info_save(int dir, const struct template_info *info, struct cay_error *err);
/* The caller fills in the name. */
int template_info_load(int dir, struct template_info *ret_info, struct cay_error *err);

/* The sizes of all files below a root together; `who` is the operation in an error. */
int template_count_bytes(const char *who, int root, uint64_t *ret_bytes,
                         struct cay_error *err);

/* A template in use.  It cannot be removed while `dir` is open. */
struct template
{
    int dir;    /* its directory, locked; -1 for a directory used as a template */
    int root;   /* the root file system */
    int *below; /* layers under it, the highest first */
    size_t below_count;
    int usr;       /* of "base": a layer above the host's /usr; else -1 */
    int usr_above; /* of a snapshot above "base": a layer above both; else -1 */
    bool is_host;  /* of a snapshot above "host": the host's files are mounted on it */
    dev_t dev;
    ino_t ino; /* of root */
    struct template_info info;
};
#define TEMPLATE_NONE                                                                    \
    {                                                                                    \
        .dir = -1, .root = -1, .usr = -1, .usr_above = -1                                \
    }
/* `name` is the name of a template or the absolute path of a directory; CAY_E_NOT_FOUND
 * lists the available ones.  `is_known`: the path comes from path_name(), so symbolic
 * links are not followed. */
int template_open(const char *name, bool is_known, struct template *ret_template,
                  struct cay_error *err);
void template_done(struct template *template);

/* Layers of builds are in STATE/layers/KEY/, with "root" and "info" as templates have
 * them; the name "@KEY" opens a layer and everything below it as a template.  KEY is a
 * SHA-256 in hexadecimal digits: of everything that the layer was made from. */
#define TEMPLATE_LAYERS "layers"
enum { TEMPLATE_KEY = 64 };
static inline bool template_is_layer(const char *key)
{
    return strspn(key, "0123456789abcdef") == TEMPLATE_KEY && !key[TEMPLATE_KEY];
}

/* STATE/layers/.run-ID is a directory that a build locks while it uses the sandbox of
 * that ID.  Between the end of the sandbox and the new layer, nothing else tells gc that
 * the sandbox's disk is of no use. */
#define TEMPLATE_RUN ".run-"
size_t template_sweep_runs(int layers);

/* The layer of a template that has this path, the highest one; its root if none has. */
int template_layer_with(const struct template *template, const char *path);

/* The template "base": see base.c.  Its root is -1 if this machine does not support
 * it. */
int template_base_open(bool is_offline, struct template *ret_template,
                       struct cay_error *err);

/* Adds the variables that commands in "base" have. */
int template_base_env(bool is_offline, struct template *template, struct cay_error *err);

/* Removes versions that are neither used nor current. */
size_t template_base_sweep(int store);

/* Common to "host" and "base": directories, links from / into /usr, and texts in /etc. */
struct template_directory {
    const char *path;
    unsigned mode, owner;
};
enum { TEMPLATE_DIRECTORIES = 24, TEMPLATE_USR_LINKS = 6 };
extern const struct template_directory template_directories[TEMPLATE_DIRECTORIES];
extern const char *const template_usr_links[TEMPLATE_USR_LINKS];
extern const char template_profile[];
#define TEMPLATE_PASSWD_SYSTEM                                                           \
    "root:x:0:0:root:/root:/bin/bash\n"                                                  \
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
#define TEMPLATE_PASSWD_USERS                                                            \
    "user:x:1000:1000:user:/home/user:/bin/bash\n"                                       \
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
#define TEMPLATE_SHADOW "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n"
#define TEMPLATE_SHELLS "/bin/sh\n/bin/bash\n"

/* CAY_E_BUSY if a sandbox uses it or is being created from it; `dir` is locked
 * afterwards. */
int template_check_unused(int dir, const char *who, const char *name,
                          struct cay_error *err);

/* Gives the complete draft, whose locked directory is `dir`, its name; with `replaces`
 * also if a template has it, unless a sandbox uses that.  It is on the disk by then. */
int template_publish(int store, int dir, const char *draft, const char *name,
                     bool replaces, const char *who, struct cay_error *err);

/* Whether there is a snapshot of this name. */
bool template_is_snapshot(const char *name);

/* Removes the template `name` in the store, whose locked directory is `dir`, and layers
 * that no other template has.  CAY_E_BUSY if another template was built from it. */
int template_remove(int store, int dir, const char *name, struct cay_error *err);

/* Removes those of the layers that no template has, unless a build is running. */
void template_drop_layers(const char *const *keys, size_t count);

/* Removes what crashed processes left. */
size_t template_sweep(void);

/* The name without ":latest", in `ret_name` if it had that. */
const char *template_plain_name(const char *name, char ret_name[TEMPLATE_NAME_MAX]);
int template_check_name(const char *name, const char *who, struct cay_error *err);

struct template_draft;

/* Keeps the layers of an image apart; see native/build/image.c. */
struct template_layers {
    /* Adds the layer of a key, filled by `fill` on top of those before; if it is there
     * already, `fill` is not called, and *ret_bytes is its size, else 0. */
    int (*add)(struct template_layers *layers, const char *key, const char *text,
               int (*fill)(void *cookie, int root, struct cay_error *err), void *cookie,
               uint64_t *ret_bytes, struct cay_error *err);
    /* Makes the draft's root a view of all layers, whose changes go above them. */
    int (*open_root)(struct template_layers *layers, struct template_draft *draft,
                     struct cay_error *err);
    /* The changes become the root, and the layers are listed in the draft's info. */
    int (*close_root)(struct template_layers *layers, struct template_draft *draft,
                      struct cay_error *err);
};

/* cay_template_create(); `layers` may be NULL: all files go into the root. */
int template_create(const struct cay_template_options *options,
                    struct template_layers *layers, struct cay_error *err);

/* A template that is being created. */
struct template_draft {
    const struct cay_template_options *options;
    struct template_layers *layers; /* or NULL */
    int dir;                        /* the draft directory, also for temporary files */
    int root;                       /* the root in it */
    struct template_info info;
    char
        image[PATH_MAX]; /* of CAY_TEMPLATE_IMAGE: its path, or "" if it was downloaded */
    char tag[128];       /* the image of that name in an OCI layout, or "" */
    struct template_archive *archive; /* of template_import(), else NULL */
    uint64_t entries, bytes;
    uint64_t made;        /* directories that the archive lacked */
    uint64_t reported_ns; /* when the progress was last reported */
};

/* Reports progress to the caller, rate-limited; CAY_E_CANCELLED if the caller cancels. */
int template_report(struct template_draft *draft, const char *step,
                    struct cay_error *err);

/* Of this machine, as images name it. */
const char *template_architecture(void);

/* Copies a directory into the draft's root: files, directories and links, with owners,
 * modes and times; hard links are kept. */
int template_copy(struct template_draft *draft, int from, struct cay_error *err);

int template_from_image(struct template_draft *draft, struct cay_error *err);

/* The name of the template of a registry's image: the name of the image with "_" for "/",
 * and 16 digits of a digest as its tag; false if the reference is invalid or too long. */
bool template_image_name(const char *reference, char ret_name[TEMPLATE_NAME_MAX]);

/* Finds the image that CAY_TEMPLATE_IMAGE names; one of a registry is downloaded to
 * "image" in the draft.  Not in a user namespace: skopeo has the caller's rights. */
int template_find_image(struct template_draft *draft, struct cay_error *err);

/* What the archive of a snapshot says about it (native/snapshot/archive.h).  All of it
 * was checked, and may still be false. */
struct template_archive {
    char name[TEMPLATE_NAME_MAX];  /* or "" */
    char plain[TEMPLATE_NAME_MAX]; /* room for it without ":latest" */
    char base[TEMPLATE_NAME_MAX];  /* "host", "base", or "": it has all files */
    char origin[256], sandbox[CAY_ID_MAX];
};

/* Labels of the image.  One with TEMPLATE_LABEL_BASE has only what differs from that
 * template of this machine. */
#define TEMPLATE_LABEL         "cay."
#define TEMPLATE_LABEL_ORIGIN  TEMPLATE_LABEL "snapshot.template"
#define TEMPLATE_LABEL_SANDBOX TEMPLATE_LABEL "snapshot.sandbox"
#define TEMPLATE_LABEL_BASE    TEMPLATE_LABEL "snapshot.base"
#define TEMPLATE_REF_NAME      "org.opencontainers.image.ref.name"

/* Unpacks the archive of a snapshot from `fd` into the draft: its own layer becomes the
 * root, and with "base" also the directory "usr"; those below are added to the draft's
 * layers. */
int template_import(struct template_draft *draft, int fd, struct cay_error *err);

/* Opens (O_PATH) a directory below `root`, with the directories on the way that are
 * missing; `uid` and `gid` own new ones.  Links are resolved inside the root.  A negative
 * errno on failure. */
int template_make_path(int root, const char *path, unsigned uid, unsigned gid);

/* Unpacks an archive below `root`. */
enum template_unpack_mode {
    TEMPLATE_WHOLE = 1,     /* everything */
    TEMPLATE_WHITEOUTS = 2, /* of a layer: remove what it hides of lower layers */
    TEMPLATE_LAYER = 3,     /* of a layer: add its files */
    TEMPLATE_MARKS = 4      /* after those: write what it hides as an overlay's marks, and
                               set the times of directories */
};
int template_unpack(struct template_draft *draft, int root, int fd,
                    enum template_unpack_mode mode, struct cay_error *err);

#endif
