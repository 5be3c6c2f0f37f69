/* SPDX-License-Identifier: Apache-2.0 */
#include "native/snapshot/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "native/native.h"
#include "native/record/state.h"
#include "native/record/storage.h"
#include "sandbox/backend.h"
#include "sys/path.h"

static const char op[] = "snapshot.create";

/* --- Drafts --- */

int snapshot_begin(const char *who, const char *name, bool replaces,
                   struct snapshot_draft *ret_draft, struct cay_error *err)
{
    struct stat st;

    *ret_draft = (struct snapshot_draft){
        .op = who, .name = name, .replaces = replaces, .dir = -1, .layers = -1};
    ret_draft->store = state_open("templates", true, err);
    if (ret_draft->store < 0)
        return ret_draft->store;
    if (!replaces && fstatat(ret_draft->store, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return cay_fail(err, CAY_E_EXISTS, 0, who, name,
                        "a template or a snapshot with this name exists",
                        "remove it first, or use another name");
    (void)template_sweep();
    ret_draft->layers = state_open(TEMPLATE_LAYERS, true, err);
    if (ret_draft->layers < 0)
        return ret_draft->layers;
    if (flock(ret_draft->layers, LOCK_SH) != 0)
        return cay_fail_errno(err, errno, who, TEMPLATE_LAYERS);
    ret_draft->dir = state_draft(ret_draft->store, ".new-", ret_draft->draft, err);
    return ret_draft->dir < 0 ? ret_draft->dir : CAY_OK;
}

int snapshot_publish(struct snapshot_draft *draft, struct cay_error *err)
{
    draft->info.shown.created_ms = clock_since_1970_ms();
    TRY(template_info_save(draft->dir, &draft->info, err));
    TRY(template_publish(draft->store, draft->dir, draft->draft, draft->name,
                         draft->replaces, draft->op, err));
    draft->draft[0] = '\0';
    return CAY_OK;
}

void snapshot_end(struct snapshot_draft *draft)
{
    if (draft->dir >= 0 && draft->draft[0])
        (void)!state_remove_tree(draft->store, draft->draft, draft->op, draft->draft,
                                 NULL);
    auto_close(&draft->dir);
    auto_close(&draft->layers);
    auto_close(&draft->store);
    template_info_done(&draft->info);
}

int snapshot_mkdir(const struct snapshot_draft *draft, const char *name,
                   struct cay_error *err)
{
    int fd = mkdirat(draft->dir, name, 0755) == 0 ? 0 : -errno;

    if (!fd)
        fd = path_open(draft->dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return fd < 0 ? cay_fail_errno(err, -fd, draft->op, name) : fd;
}

/* --- Files --- */

/* What becomes one layer, and what stays below it. */
struct parts {
    struct merge_source own[LAYER_DEPTH_MAX + TEMPLATE_LAYERS_MAX + 4];
    struct merge_source below[TEMPLATE_LAYERS_MAX + 4];
    size_t own_count, below_count;
};

static void add(struct merge_source *list, size_t *count, int fd)
{
    if (fd >= 0)
        list[(*count)++] = (struct merge_source){.fd = fd, .is_shared = true};
}

static int fail_merge(const struct snapshot_draft *draft, int error,
                      struct cay_error *err)
{
    bool is_deep = error == -ELOOP;

    if (error != -E2BIG && error != -EFBIG && !is_deep)
        return cay_fail_errno(err, -error, draft->op, draft->name);
    return cay_fail(err, CAY_E_LIMIT, -error, draft->op, draft->name,
                    is_deep ? "the sandbox's directories are nested too deeply"
                    : error == -E2BIG
                        ? "the sandbox has too many files for a snapshot"
                        : "the sandbox's files are too large for a snapshot",
                    is_deep ? "the limit is %d directories" : "the limit is %d files",
                    is_deep ? TEMPLATE_DEPTH_MAX : TEMPLATE_ENTRIES_MAX);
}

static int merge_into(struct snapshot_draft *draft, const struct parts *parts,
                      const char *name, struct cay_error *err)
{
    struct merge merge = {.own = parts->own,
                          .own_count = parts->own_count,
                          .below = parts->below,
                          .below_count = parts->below_count,
                          .copies = true,
                          .end_ms = UINT64_MAX,
                          .max_entries = TEMPLATE_ENTRIES_MAX,
                          .max_bytes = TEMPLATE_BYTES_MAX};
    AUTO_FD to = snapshot_mkdir(draft, name, err);

    if (to < 0)
        return TAKE_FD(to);
    int error = merge_trees(&merge, to);
    draft->info.shown.bytes += merge.bytes;
    return error ? fail_merge(draft, error, err) : CAY_OK;
}

int snapshot_clean(const struct snapshot_draft *draft, struct cay_error *err)
{
    static const char *const names[] = {"hosts", "hostname", "resolv.conf"};
    AUTO_FD etc =
        path_open(draft->dir, "root/etc", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    for (size_t i = 0; etc >= 0 && i < sizeof names / sizeof *names; i++)
        if (unlinkat(etc, names[i], 0) != 0 && errno != ENOENT && errno != EISDIR)
            return cay_fail_errno(err, errno, draft->op, names[i]);
    return CAY_OK;
}

/* What is above /usr, over the view of the host's. */
static int merge_usr(struct snapshot_draft *draft, const struct checkpoint_files *files,
                     struct parts *parts, struct cay_error *err)
{
    AUTO_FD host = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (host < 0)
        return cay_fail_errno(err, errno, draft->op, "/usr");
    memcpy(parts->own, files->usr, files->usr_count * sizeof *files->usr);
    parts->own_count = files->usr_count;
    parts->below_count = 0;
    add(parts->own, &parts->own_count, files->template->usr_above);
    add(parts->below, &parts->below_count, files->template->usr);
    add(parts->below, &parts->below_count, host);
    return merge_into(draft, parts, "usr", err);
}

/* A template from a sandbox has all files in one root, unless some are this machine's. */
static bool is_whole(const struct snapshot_draft *draft, const struct template *template)
{
    return strcmp(draft->op, op) != 0 && template->root >= 0 && template->usr < 0 &&
           !template->is_host;
}

static int merge_files(struct snapshot_draft *draft, const struct checkpoint_files *files,
                       struct cay_error *err)
{
    const struct template *template = files->template;
    AUTO_FREE struct parts *parts = calloc(1, sizeof *parts);
    bool is_all = is_whole(draft, template);
    bool takes_root = is_all || template->info.layers;

    if (!parts)
        return cay_fail_memory(err, draft->op);
    memcpy(parts->own, files->upper, files->count * sizeof *files->upper);
    parts->own_count = files->count;
    if (takes_root)
        add(parts->own, &parts->own_count, template->root);
    else
        add(parts->below, &parts->below_count, template->root);
    for (size_t i = 0; i < template->below_count; i++)
        if (is_all)
            add(parts->own, &parts->own_count, template->below[i]);
        else
            add(parts->below, &parts->below_count, template->below[i]);
    TRY(merge_into(draft, parts, "root", err));
    TRY(snapshot_clean(draft, err));
    return template->usr >= 0 ? merge_usr(draft, files, parts, err) : CAY_OK;
}

/* --- Metadata --- */

static int copy_list(char *const *from, char ***ret_list, struct cay_error *err)
{
    size_t count = env_count((const char *const *)from);

    *ret_list = calloc(count + 1, sizeof **ret_list);
    for (size_t i = 0; from && *ret_list && i < count; i++)
        if (!((*ret_list)[i] = strdup(from[i])))
            return cay_fail_memory(err, op);
    return *ret_list ? CAY_OK : cay_fail_memory(err, op);
}

/* The layers below, and the template below these. */
static int set_below(struct snapshot_draft *draft, const struct template *template,
                     struct cay_error *err)
{
    struct template_info *info = &draft->info;
    const char *name = template->root < 0 ? "host" : template->info.shown.name;
    char plain[TEMPLATE_NAME_MAX];

    cay_copy_text(info->origin, sizeof info->origin,
                  *template->info.origin ? template->info.origin : name);
    if (template->root >= 0 && template->usr < 0)
        TRY(copy_list(template->info.env, &info->env, err));
    if (template->info.config && !(info->config = strdup(template->info.config)))
        return cay_fail_memory(err, draft->op);
    if (is_whole(draft, template))
        return CAY_OK;
    if (template->info.layers)
        memcpy(info->base, template->info.base, sizeof info->base);
    else
        cay_copy_text(info->base, sizeof info->base, template_plain_name(name, plain));
    return copy_list(template->info.layers, &info->layers, err);
}

struct creation {
    struct snapshot_draft *draft;
    const char *id, *user, *workdir;
};

/* The template is locked here: it cannot be removed before the snapshot names it. */
static int create(void *cookie, const struct checkpoint_files *files,
                  struct cay_error *err)
{
    const struct creation *creation = cookie;
    struct snapshot_draft *draft = creation->draft;
    struct cay_template_info *shown = &draft->info.shown;
    const struct template *template = files->template;

    if (template->root >= 0 && template->dir < 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, draft->op, template->info.shown.name,
                        "the sandbox's template is a directory, which may change",
                        "create a template from it, and the sandbox from that");
    cay_copy_text(shown->source, sizeof shown->source,
                  strcmp(draft->op, op) == 0 ? TEMPLATE_SNAPSHOT : "sandbox");
    cay_copy_text(shown->from, sizeof shown->from, creation->id);
    cay_copy_text(shown->user, sizeof shown->user, creation->user);
    cay_copy_text(shown->workdir, sizeof shown->workdir, creation->workdir);
    TRY(set_below(draft, template, err));
    TRY(merge_files(draft, files, err));
    return snapshot_publish(draft, err);
}

static int create_stopped(struct creation *creation, const char *checkpoint,
                          struct cay_error *err)
{
    struct storage_saved saved;

    if (checkpoint)
        return cay_fail(err, CAY_E_BUSY, 0, creation->draft->op, creation->id,
                        "the sandbox is stopped, and its checkpoints cannot be used",
                        "start it first, or create the snapshot of its files as they "
                        "are");
    TRY(storage_load(creation->id, &saved, err));
    creation->user = saved.options.user ? saved.options.user : "";
    creation->workdir = saved.options.workdir ? saved.options.workdir : "";
    int code = checkpoint_visit_stopped(creation->id, creation->draft->op, create,
                                        creation, err);
    storage_saved_done(&saved);
    return code;
}

static int create_from(struct native *native, const char *checkpoint,
                       enum cay_checkpoint_mode mode, struct snapshot_draft *draft,
                       struct cay_error *err)
{
    struct creation creation = {.draft = draft,
                                .id = native->record.id,
                                .user = native->record.user,
                                .workdir = native->record.workdir};
    enum cay_state state;

    TRY(native_get_state(native, &state, err));
    if (state == CAY_STATE_STOPPED)
        return create_stopped(&creation, checkpoint, err);
    return checkpoint_visit(native, draft->op, checkpoint, mode, create, &creation, err);
}

int cay_snapshot_create(cay_sandbox *sandbox, const struct cay_snapshot_options *options,
                        struct cay_snapshot_info *ret_info, struct cay_error *err)
{
    struct cay_snapshot_options known;
    struct snapshot_draft draft;
    char plain[TEMPLATE_NAME_MAX];

    if (sandbox->backend->checkpoint != native_checkpoint)
        return backend_lacks(sandbox->backend, op, err);
    TRY(cay_take_struct(&known, sizeof known, options, op, err));
    TRY(template_check_name(known.name, op, err));
    const char *name = template_plain_name(known.name, plain);
    int code = snapshot_begin(op, name, known.replace, &draft, err);
    if (!code)
        code = create_from(sandbox->cookie, known.checkpoint, known.mode, &draft, err);
    snapshot_end(&draft);
    if (!code && ret_info)
        code = cay_snapshot_inspect(name, ret_info, err);
    return code;
}

/* --- Templates --- */

static int template_of_snapshot(const char *from, struct snapshot_draft *draft,
                                struct cay_error *err)
{
    AUTO_FREE struct checkpoint_files *files = calloc(1, sizeof *files);
    struct template template;
    struct creation creation = {.draft = draft, .id = from};

    if (!files)
        return cay_fail_memory(err, draft->op);
    TRY(template_open(from, false, &template, err));
    creation.user = template.info.shown.user;
    creation.workdir = template.info.shown.workdir;
    files->template = &template;
    int code = create(&creation, files, err);
    template_done(&template);
    return code;
}

static int template_of_sandbox(const char *from, struct snapshot_draft *draft,
                               struct cay_error *err)
{
    AUTO_FREE char *id = strdup(from);
    void *native = NULL;

    if (!id)
        return cay_fail_memory(err, draft->op);
    char *colon = strchr(id, ':');
    if (colon)
        *colon = '\0';
    TRY(native_open(id, false, &native, err));
    int code =
        create_from(native, colon ? colon + 1 : NULL, CAY_CHECKPOINT_IDLE, draft, err);
    native_free(native);
    return code;
}

int snapshot_template(const struct cay_template_options *options, struct cay_error *err)
{
    struct cay_template_options known;
    struct snapshot_draft draft;
    char plain[TEMPLATE_NAME_MAX];

    TRY(cay_take_struct(&known, sizeof known, options, TEMPLATE_OP, err));
    TRY(template_check_name(known.name, TEMPLATE_OP, err));
    if (!known.from || !*known.from)
        return cay_fail(err, CAY_E_INVALID, 0, TEMPLATE_OP, known.name,
                        "no sandbox or snapshot given", "pass the id or the name of one");
    const char *name = template_plain_name(known.name, plain);
    int code = snapshot_begin(TEMPLATE_OP, name, false, &draft, err);
    if (!code)
        code = template_is_snapshot(known.from)
                   ? template_of_snapshot(known.from, &draft, err)
                   : template_of_sandbox(known.from, &draft, err);
    snapshot_end(&draft);
    return code;
}

/* --- List, inspect, remove --- */

/* A sandbox uses a snapshot by the root of that. */
struct use {
    struct cay_snapshot_info *infos;
    dev_t *devs;
    ino_t *inos;
    size_t count;
};

static void count_running(const char *id, void *cookie)
{
    struct use *use = cookie;
    struct record record;

    if (runtime_load(id, &record, NULL) != CAY_OK || !runtime_is_alive(&record))
        return;
    for (size_t i = 0; i < use->count; i++)
        use->infos[i].sandboxes +=
            record.template_dev == use->devs[i] && record.template_ino == use->inos[i];
}

static void count_stopped(const char *id, void *cookie)
{
    struct use *use = cookie;
    struct record record;
    struct storage_saved saved;
    char plain[TEMPLATE_NAME_MAX];

    if ((runtime_load(id, &record, NULL) == CAY_OK && runtime_is_alive(&record)) ||
        storage_load(id, &saved, NULL) != CAY_OK)
        return;
    const char *name = saved.options.template_name;
    name = name ? template_plain_name(name, plain) : "";
    for (size_t i = 0; i < use->count; i++)
        use->infos[i].sandboxes += strcmp(use->infos[i].name, name) == 0;
    storage_saved_done(&saved);
}

/* Whether it is a snapshot. */
static bool load(int store, const char *name, struct use *use, struct cay_error *err)
{
    struct cay_snapshot_info *info = &use->infos[use->count];
    struct template_info found;
    struct stat st;
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir < 0 || name[0] == '.' || template_info_load(dir, &found, err) != CAY_OK)
        return false;
    bool is_snapshot = strcmp(found.shown.source, TEMPLATE_SNAPSHOT) == 0 &&
                       fstatat(dir, "root", &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_snapshot) {
        *info = (struct cay_snapshot_info){.created_ms = found.shown.created_ms,
                                           .bytes = found.shown.bytes};
        cay_copy_text(info->name, sizeof info->name, name);
        cay_copy_text(info->sandbox, sizeof info->sandbox, found.shown.from);
        cay_copy_text(info->template_name, sizeof info->template_name, found.origin);
        memcpy(info->user, found.shown.user, sizeof info->user);
        memcpy(info->workdir, found.shown.workdir, sizeof info->workdir);
        use->devs[use->count] = st.st_dev;
        use->inos[use->count++] = st.st_ino;
    }
    template_info_done(&found);
    return is_snapshot;
}

static int count_use(struct use *use, struct cay_error *err)
{
    TRY(runtime_visit(count_running, use, err));
    return storage_visit(count_stopped, use, err);
}

static int fail_unknown(const char *who, const char *name, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, who, name, "there is no such snapshot",
                    "cay snapshot ls lists them");
}

int snapshot_check(const char *who, const char *name, struct cay_error *err)
{
    return template_is_snapshot(name) ? CAY_OK : fail_unknown(who, name, err);
}

int cay_snapshot_inspect(const char *name, struct cay_snapshot_info *ret_info,
                         struct cay_error *err)
{
    static const char who[] = "snapshot.inspect";
    char plain[TEMPLATE_NAME_MAX];
    dev_t dev;
    ino_t ino;
    struct use use = {ret_info, &dev, &ino, 0};
    struct cay_error own = {0};

    TRY(template_check_name(name, who, err));
    AUTO_FD store = state_open("templates", false, &own);
    if (store < 0)
        return store == CAY_E_NOT_FOUND ? fail_unknown(who, name, err)
                                        : cay_fail_as(err, store, &own);
    if (load(store, template_plain_name(name, plain), &use, &own))
        return count_use(&use, err);
    return own.code ? cay_fail_as(err, own.code, &own) : fail_unknown(who, name, err);
}

static int by_name(const void *left, const void *right)
{
    const struct cay_snapshot_info *a = left, *b = right;

    return strcmp(a->name, b->name);
}

static int list_all(int store, struct use *use, struct cay_error *err)
{
    AUTO_DIR list = path_list(store);
    size_t room = 0;

    if (!list)
        return cay_fail_errno(err, errno, "snapshot.list", "templates");
    while (path_next(list))
        room++;
    rewinddir(list);
    use->infos = calloc(room + 1, sizeof *use->infos);
    use->devs = calloc(room + 1, sizeof *use->devs);
    use->inos = calloc(room + 1, sizeof *use->inos);
    if (!use->infos || !use->devs || !use->inos)
        return cay_fail_memory(err, "snapshot.list");
    for (struct dirent *entry; use->count < room && (entry = path_next(list));)
        (void)load(store, entry->d_name, use, NULL);
    return count_use(use, err);
}

int cay_snapshot_list(struct cay_snapshot_info **ret_infos, size_t *ret_count,
                      struct cay_error *err)
{
    struct use use = {.count = 0};
    struct cay_error own = {0};
    AUTO_FD store = state_open("templates", false, &own);
    int code = store >= 0 ? list_all(store, &use, err) : CAY_OK;

    if (store < 0 && store != CAY_E_NOT_FOUND)
        return cay_fail_as(err, store, &own);
    if (!code && !use.infos && !(use.infos = calloc(1, sizeof *use.infos)))
        code = cay_fail_memory(err, "snapshot.list");
    free(use.devs);
    free(use.inos);
    if (code) {
        free(use.infos);
        return code;
    }
    qsort(use.infos, use.count, sizeof *use.infos, by_name);
    *ret_infos = use.infos;
    *ret_count = use.count;
    return CAY_OK;
}

int cay_snapshot_remove(const char *name, struct cay_error *err)
{
    static const char who[] = "snapshot.remove";

    TRY(template_check_name(name, who, err));
    TRY(snapshot_check(who, name, err));
    return cay_template_remove(name, err);
}
