/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "native/record/remove.h"
#include "native/record/state.h"
#include "native/record/storage.h"
#include "native/template/template.h"
#include "sys/path.h"

static const char op[] = "template.open";

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789-_.";

/* NAME or NAME:TAG. */
static bool is_name(const char *name)
{
    size_t len = strspn(name, letters), tag = name[len] == ':' ? len + 1 : 0;
    size_t end = tag + strspn(name + tag, letters);

    return len > 0 && end < TEMPLATE_NAME_MAX && !name[end] && end > tag &&
           name[0] != '.' && name[0] != '-' && name[tag] != '.' && name[tag] != '-';
}

const char *template_plain_name(const char *name, char ret_name[TEMPLATE_NAME_MAX])
{
    static const char usual[] = ":latest";
    size_t len = strlen(name), cut = strlen(usual);

    if (len < cut || len - cut >= TEMPLATE_NAME_MAX ||
        strcmp(name + len - cut, usual) != 0)
        return name;
    memcpy(ret_name, name, len - cut);
    ret_name[len - cut] = '\0';
    return ret_name;
}

int template_check_name(const char *name, const char *who, struct cay_error *err)
{
    char plain[TEMPLATE_NAME_MAX];

    name = name ? template_plain_name(name, plain) : "";
    size_t len = strcspn(name, ":");
    bool is_built_in =
        len == 4 && (strncmp(name, "host", 4) == 0 || strncmp(name, "base", 4) == 0);
    if (is_name(name) && !is_built_in)
        return CAY_OK;
    return cay_fail(
        err, CAY_E_INVALID, 0, who, name, "invalid template name",
        "use NAME or NAME:TAG, up to %d letters, digits, \"-\", \"_\" and \".\", "
        "starting with a letter, a digit or \"_\"; \"host\" and \"base\" are built in",
        TEMPLATE_NAME_MAX - 1);
}

/* Names of templates in the store, sorted. */
static int pick(const struct dirent *entry)
{
    return is_name(entry->d_name);
}

static int read_names(int store, struct dirent ***ret_names)
{
    char path[32];

    *ret_names = NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", store);
    int count = scandir(path, ret_names, pick, alphasort);
    return count < 0 ? 0 : count;
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static int fail_unknown(int store, const char *who, const char *name, int error,
                        struct cay_error *err)
{
    if (cay_errno_is_shortage(error))
        return cay_fail_errno(err, error, who, name);
    char list[400] = "base, host";
    struct dirent **names;
    int count = store < 0 ? 0 : read_names(store, &names);

    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);
        if (strncmp(names[i]->d_name, "e2b.", 4) == 0)
            continue; /* of the server, and one of its tenants may read this */
        snprintf(list + used, sizeof list - used, ", %s", names[i]->d_name);
    }
    if (count)
        free_names(names, count);
    return cay_fail(err, CAY_E_NOT_FOUND, 0, who, name, "there is no such template",
                    "available templates: %s", list);
}

bool template_own_map(char ret_map[IDMAP_TEXT])
{
    struct subids users, groups;
    struct idmap map;

    ret_map[0] = '\0';
    if (!subids_find(&users, &groups))
        return false;
    idmap_for_range(&map, users.first, groups.first);
    idmap_text(&map, ret_map);
    return true;
}

/* With another map its files would belong to other users inside, or to none. */
static int check_map(const struct template_info *info, const char *name,
                     struct cay_error *err)
{
    char own[IDMAP_TEXT] = "";
    bool is_known = geteuid() == 0 || template_own_map(own);

    if (!is_known)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, name,
                        "this user has no range of subordinate ids in /etc/subuid and "
                        "/etc/subgid, to which the template's files belong",
                        "sudo $(which cay) setup adds one");
    if (strcmp(own, info->map) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, name,
                    "the template's files belong to other user ids than those of this "
                    "user's sandboxes",
                    "remove the template and create it again as this user, or restore "
                    "the former range in /etc/subuid and /etc/subgid");
}

/* --- Layers --- */

static int fail_layer(const char *name, const char *layer, int error,
                      struct cay_error *err)
{
    if (cay_errno_is_shortage(error))
        return cay_fail_errno(err, error, op, name);
    return cay_fail(err, CAY_E_IO, error, op, name, "a layer of the template is missing",
                    "remove the template and build it again; the layer is %s", layer);
}

static int open_root(int store, const char *name)
{
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    return dir < 0 ? TAKE_FD(dir)
                   : path_open(dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
}

/* A snapshot above "base": the root of that, and both layers above /usr. */
static int open_base(struct template *template, const char *name, struct cay_error *err)
{
    struct template base;
    int code = template_base_open(false, &base, err);

    if (!code && base.root < 0)
        code =
            cay_fail(err, CAY_E_UNSUPPORTED, 0, op, name,
                     "the snapshot stands on the template \"base\", which this machine "
                     "does not have",
                     "use it as root, on a system whose programs are all in /usr");
    if (!code) {
        template->below[template->below_count++] = TAKE_FD(base.root);
        template->usr = TAKE_FD(base.usr);
        template->usr_above =
            path_open(template->dir, "usr", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (template->usr_above < 0)
            code = fail_layer(name, "usr", -template->usr_above, err);
    }
    template_done(&base);
    return code;
}

static int open_template_below(struct template *template, const char *name,
                               struct cay_error *err)
{
    const char *base = template->info.base;

    template->is_host = strcmp(base, "host") == 0;
    if (!*base || template->is_host)
        return CAY_OK;
    if (strcmp(base, "base") == 0)
        return open_base(template, name, err);
    AUTO_FD store = state_open("templates", false, err);
    if (store < 0)
        return store;
    int fd = open_root(store, base);
    if (fd < 0)
        return fail_layer(name, base, -fd, err);
    template->below[template->below_count++] = fd;
    return CAY_OK;
}

/* Everything below the template's own root. */
static int open_below(struct template *template, const char *name, struct cay_error *err)
{
    char *const *layers = template->info.layers;
    const char *base = template->info.base;
    size_t count = env_count((const char *const *)layers);

    if (count + (*base != '\0') > TEMPLATE_LAYERS_MAX)
        return fail_layer(name, "one of too many", 0, err);
    template->below = calloc(count + 1, sizeof *template->below);
    if (!template->below)
        return cay_fail_memory(err, op);
    AUTO_FD stored = count ? state_open(TEMPLATE_LAYERS, false, err) : -1;
    if (count && stored < 0)
        return stored;
    for (size_t i = 0; i < count; i++) {
        int fd = open_root(stored, layers[i]);
        if (fd < 0)
            return fail_layer(name, layers[i], -fd, err);
        template->below[template->below_count++] = fd;
    }
    return open_template_below(template, name, err);
}

int template_layer_with(const struct template *template, const char *path)
{
    struct stat st;

    if (template->root < 0 ||
        fstatat(template->root, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return template->root;
    for (size_t i = 0; i < template->below_count; i++)
        if (fstatat(template->below[i], path, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return template->below[i];
    return template->root;
}

/* A template, or with "@" the layer of a build. */
static int open_stored(const char *name, struct template *template, struct cay_error *err)
{
    char plain[TEMPLATE_NAME_MAX];
    bool is_layer = *name == '@';
    AUTO_FD store = state_open(is_layer ? TEMPLATE_LAYERS : "templates", false, err);

    if (store == CAY_E_NOT_FOUND)
        return fail_unknown(-1, op, name, ENOENT, err);
    if (store < 0)
        return store;
    name = is_layer ? name + 1 : template_plain_name(name, plain);
    template->dir = template_is_layer(name) || is_name(name)
                        ? path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN)
                        : -ENOENT;
    if (template->dir < 0 || flock(template->dir, LOCK_SH | LOCK_NB) != 0)
        return fail_unknown(store, op, name, template->dir < 0 ? -template->dir : ENOENT,
                            err);
    template->root =
        path_open(template->dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (template->root < 0)
        return fail_unknown(store, op, name, -template->root, err);
    TRY(template_info_load(template->dir, &template->info, err));
    if (*template->info.map)
        TRY(check_map(&template->info, name, err));
    return template->info.layers ? open_below(template, name, err) : CAY_OK;
}

static int open_directory(const char *path, bool is_known, struct template *template,
                          struct cay_error *err)
{
    /* Code inside the sandbox may write to the parent directory and may have put the link
     * there. */
    template->root = path_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0,
                               is_known ? RESOLVE_NO_SYMLINKS : 0);
    int error = template->root < 0 ? -template->root : 0;
    if (cay_errno_is_shortage(error))
        return cay_fail_errno(err, error, op, path);
    if (is_known && error == ELOOP)
        return cay_fail(err, CAY_E_OUTSIDE, ELOOP, op, path,
                        "the template is now a symbolic link, or below one",
                        "restore the original path, or create a new sandbox");
    if (error)
        return cay_fail(err, error == ENOTDIR ? CAY_E_NOT_A_DIRECTORY : CAY_E_NOT_FOUND,
                        error, op, path, "this directory cannot be used as a template",
                        "use the name of a template, or an existing directory with a "
                        "complete root file system");
    cay_copy_text(template->info.shown.source, sizeof template->info.shown.source, "dir");
    return CAY_OK;
}

int template_open(const char *name, bool is_known, struct template *ret_template,
                  struct cay_error *err)
{
    struct stat st;

    *ret_template = (struct template)TEMPLATE_NONE;
    int code = *name == '/' ? open_directory(name, is_known, ret_template, err)
                            : open_stored(name, ret_template, err);
    if (!code && fstat(ret_template->root, &st) != 0)
        code = cay_fail_errno(err, errno, op, "root");
    if (!code) {
        ret_template->dev = st.st_dev;
        ret_template->ino = st.st_ino;
    }
    cay_copy_text(ret_template->info.shown.name, sizeof ret_template->info.shown.name,
                  name);
    if (code)
        template_done(ret_template);
    return code;
}

void template_done(struct template *template)
{
    auto_close(&template->dir);
    auto_close(&template->root);
    auto_close(&template->usr);
    auto_close(&template->usr_above);
    for (size_t i = 0; i < template->below_count; i++)
        auto_close(&template->below[i]);
    free(template->below);
    template->below = NULL;
    template->below_count = 0;
    template_info_done(&template->info);
    template->dir = template->root = template->usr = template->usr_above = -1;
}

size_t template_sweep(void)
{
    AUTO_FD store = state_open("templates", false, NULL);
    AUTO_FD layers = state_open(TEMPLATE_LAYERS, false, NULL);
    size_t count = store < 0 ? 0 : template_base_sweep(store);
    const int stores[] = {store, layers};

    if (layers >= 0)
        count += template_sweep_runs(layers);
    for (size_t i = 0; i < 2; i++)
        if (stores[i] >= 0)
            count += state_sweep(stores[i], ".new-") + state_sweep(stores[i], ".old-");
    return count;
}

int cay_template_list(struct cay_template_info **ret_infos, size_t *ret_count,
                      struct cay_error *err)
{
    struct dirent **names = NULL;
    struct cay_error own;
    AUTO_FD store = state_open("templates", false, &own);

    if (store < 0 && store != CAY_E_NOT_FOUND) {
        if (err)
            *err = own;
        return store;
    }
    int count = store < 0 ? 0 : read_names(store, &names);
    struct cay_template_info *infos = calloc((size_t)count + 2, sizeof *infos);
    *ret_count = 0;
    if (infos) {
        infos[0] = (struct cay_template_info){.name = "host", .source = "builtin"};
        infos[1] = (struct cay_template_info){.name = "base", .source = "builtin"};
        *ret_count = 2;
    }
    for (int i = 0; infos && i < count; i++) {
        struct template_info info;
        AUTO_FD dir =
            path_open(store, names[i]->d_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir < 0 || template_info_load(dir, &info, NULL) != CAY_OK)
            continue;
        cay_copy_text(info.shown.name, sizeof info.shown.name, names[i]->d_name);
        if (strcmp(info.shown.source, TEMPLATE_SNAPSHOT) != 0)
            infos[(*ret_count)++] = info.shown;
        template_info_done(&info);
    }
    free_names(names, count);
    *ret_infos = infos;
    return infos ? CAY_OK : cay_fail_memory(err, "template.list");
}

bool template_is_snapshot(const char *name)
{
    char plain[TEMPLATE_NAME_MAX];
    struct template_info info;
    AUTO_FD store = state_open("templates", false, NULL);

    name = template_plain_name(name, plain);
    if (store < 0 || !is_name(name))
        return false;
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (dir < 0 || template_info_load(dir, &info, NULL) != CAY_OK)
        return false;
    bool is_snapshot = strcmp(info.shown.source, TEMPLATE_SNAPSHOT) == 0;
    template_info_done(&info);
    return is_snapshot;
}

static int load(const char *name, struct template_info *ret_info, struct cay_error *err)
{
    static const char who[] = "template.inspect";
    char plain[TEMPLATE_NAME_MAX];
    struct cay_template_info *shown = &ret_info->shown;

    name = template_plain_name(name ? name : "", plain);
    if (strcmp(name, "host") == 0 || strcmp(name, "base") == 0) {
        *ret_info = (struct template_info){.shown = {.source = "builtin"}};
    } else {
        TRY(template_check_name(name, who, err));
        AUTO_FD store = state_open("templates", false, err);
        if (store < 0)
            return store == CAY_E_NOT_FOUND ? fail_unknown(-1, who, name, ENOENT, err)
                                            : store;
        AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir < 0)
            return fail_unknown(store, who, name, -dir, err);
        TRY(template_info_load(dir, ret_info, err));
    }
    cay_copy_text(shown->name, sizeof shown->name, name);
    return CAY_OK;
}

int cay_template_inspect(const char *name, struct cay_template_info *ret_info,
                         char **ret_config, struct cay_error *err)
{
    struct template_info info = {0};

    TRY(load(name, &info, err));
    *ret_info = info.shown;
    *ret_config = info.config ? TAKE_PTR(info.config) : strdup("{}");
    template_info_done(&info);
    return *ret_config ? CAY_OK : cay_fail_memory(err, "template.inspect");
}

struct template_query {
    const char *name;
    dev_t dev;
    ino_t ino;
    char id[CAY_ID_MAX];     /* the result, or "" */
    struct cay_error unsure; /* why there may be another one, or no error */
};

/* If a sandbox cannot be checked, the template may be in use. */
static void doubt(struct template_query *template_query, const struct cay_error *why)
{
    if (cay_errno_is_shortage(why->sys_errno))
        template_query->unsure = *why;
}

static void check_one(const char *id, void *cookie)
{
    struct template_query *template_query = cookie;
    struct record record;
    struct cay_error why;

    int code = runtime_load(id, &record, &why);
    if (code == CAY_E_INTERNAL && record_recover(id, &record) != 0)
        cay_copy_text(template_query->id, sizeof template_query->id,
                      id); /* it may use this template */
    else if (code)
        doubt(template_query, &why);
    else if (record.template_dev == template_query->dev &&
             record.template_ino == template_query->ino && runtime_is_alive(&record))
        memcpy(template_query->id, record.id, sizeof template_query->id);
}

/* A stopped sandbox on disk could not be started any more. */
static void check_stored(const char *id, void *cookie)
{
    struct template_query *template_query = cookie;
    struct storage_saved saved;
    struct cay_error why;

    if (storage_load(id, &saved, &why) != CAY_OK) {
        doubt(template_query, &why);
        return;
    }
    const char *name = saved.options.template_name;
    char plain[TEMPLATE_NAME_MAX];
    if (name && strcmp(template_plain_name(name, plain), template_query->name) == 0)
        cay_copy_text(template_query->id, sizeof template_query->id, id);
    storage_saved_done(&saved);
}

/* A creator holds the lock of the template until its sandbox has a record. */
int template_check_unused(int dir, const char *who, const char *name,
                          struct cay_error *err)
{
    struct template_query template_query = {.name = name};
    struct stat st;

    if (flock(dir, LOCK_EX | LOCK_NB) != 0)
        return cay_fail(err, CAY_E_BUSY, 0, who, name,
                        "a sandbox is being created from this template", "try again");
    if (fstatat(dir, "root", &st, AT_SYMLINK_NOFOLLOW) != 0)
        return CAY_OK;
    template_query.dev = st.st_dev;
    template_query.ino = st.st_ino;
    int code = runtime_visit(check_one, &template_query, err);
    if (!code)
        code = storage_visit(check_stored, &template_query, err);
    if (code)
        return code;
    if (!template_query.id[0]) {
        if (template_query.unsure.code && err)
            *err = template_query.unsure;
        return template_query.unsure.code;
    }
    return cay_fail(err, CAY_E_BUSY, 0, who, name, "a sandbox uses this template",
                    "remove the sandbox first: %s", template_query.id);
}

/* Unless a sandbox uses the template of that name. */
static int exchange(int store, const char *draft, const char *name, const char *who,
                    struct cay_error *err)
{
    AUTO_FD old = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (old < 0)
        return cay_fail_errno(err, -old, who, name);
    TRY(template_check_unused(old, who, name, err));
    int error = path_rename(store, draft, store, name, RENAME_EXCHANGE);
    return error ? cay_fail_errno(err, -error, who, name)
                 : state_remove(store, draft, who, err);
}

int template_publish(int store, int dir, const char *draft, const char *name,
                     bool replaces, const char *who, struct cay_error *err)
{
    if (syncfs(dir) != 0)
        return cay_fail_errno(err, errno, who, name);
    /* From now on it may be used, but not be swept. */
    (void)flock(dir, LOCK_SH);
    int error = path_rename(store, draft, store, name, RENAME_NOREPLACE);
    if (error == -EEXIST && replaces)
        return exchange(store, draft, name, who, err);
    if (error == -EEXIST)
        return cay_fail(err, CAY_E_EXISTS, 0, who, name,
                        "a template or a snapshot with this name exists",
                        "remove it first, or use another name");
    return error ? cay_fail_errno(err, -error, who, name) : CAY_OK;
}

int cay_template_remove(const char *name, struct cay_error *err)
{
    static const char who[] = "template.remove";
    char plain[TEMPLATE_NAME_MAX];
    int code = template_check_name(name, who, err);
    if (code)
        return code;
    name = template_plain_name(name, plain);
    AUTO_FD store = state_open("templates", false, err);
    if (store < 0)
        return store == CAY_E_NOT_FOUND ? fail_unknown(-1, who, name, ENOENT, err)
                                        : store;
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (dir < 0)
        return fail_unknown(store, who, name, -dir, err);
    code = template_check_unused(dir, who, name, err);
    if (code)
        return code;
    return template_remove(store, dir, name, err);
}

/* --- The file "info" --- */

enum { INFO_MAX = 1 << 20, ENV_MAX = 512 };

static const char info_op[] = "template.info";

static void free_list(char **list)
{
    for (char **each = list; each && *each; each++)
        free(*each);
    free(list);
}

void template_info_done(struct template_info *info)
{
    free_list(info->env);
    free_list(info->layers);
    free(info->config);
    *info = (struct template_info){0};
}

int template_info_save(int dir, const struct template_info *info, struct cay_error *err)
{
    const struct cay_template_info *shown = &info->shown;
    struct buf file;

    kvfile_begin(&file, INFO_MAX);
    kvfile_add(&file, "source", shown->source);
    kvfile_add(&file, "from", shown->from);
    kvfile_add_number(&file, "created_ms", (uint64_t)shown->created_ms);
    kvfile_add_number(&file, "bytes", shown->bytes);
    kvfile_add(&file, "user", shown->user);
    kvfile_add(&file, "workdir", shown->workdir);
    kvfile_add(&file, "map", *info->map ? info->map : NULL);
    for (char **env = info->env; env && *env; env++)
        kvfile_add(&file, "env", *env);
    for (char **layer = info->layers; layer && *layer; layer++)
        kvfile_add(&file, "layer", *layer);
    kvfile_add(&file, "base", info->layers ? info->base : NULL);
    kvfile_add(&file, "config", info->config);
    kvfile_add(&file, "origin", *info->origin ? info->origin : NULL);
    int code = file.failed ? cay_fail(err, CAY_E_LIMIT, 0, info_op, shown->from,
                                      "the template's metadata is too large",
                                      "use a source with fewer environment variables")
                           : state_write(dir, "info", file.data, file.len, err);
    buf_done(&file);
    return code;
}

static void copy_value(const struct kvfile *kvfile, const char *key, char *field,
                       size_t room)
{
    const char *text = kvfile_text(kvfile, key);

    cay_copy_text(field, room, text ? text : "");
}

static int take_list(const struct kvfile *kvfile, const char *key, char ***ret_list,
                     struct cay_error *err)
{
    size_t count = kvfile_count(kvfile, key);
    const char *last = NULL;

    if (count > ENV_MAX)
        count = ENV_MAX;
    *ret_list = calloc(count + 1, sizeof **ret_list);
    if (!*ret_list)
        return cay_fail_memory(err, info_op);
    for (size_t i = 0; i < count; i++) {
        last = kvfile_next(kvfile, key, last);
        (*ret_list)[i] = strdup(last);
        if (!(*ret_list)[i])
            return cay_fail_memory(err, info_op);
    }
    return CAY_OK;
}

/* The key "base" is there, and may be "", if the template was built. */
static int take_layers(const struct kvfile *kvfile, struct template_info *info,
                       struct cay_error *err)
{
    const char *config = kvfile_text(kvfile, "config");

    info->config = config ? strdup(config) : NULL;
    if (config && !info->config)
        return cay_fail_memory(err, info_op);
    if (!kvfile_text(kvfile, "base"))
        return CAY_OK;
    copy_value(kvfile, "base", info->base, sizeof info->base);
    return take_list(kvfile, "layer", &info->layers, err);
}

int template_info_load(int dir, struct template_info *ret_info, struct cay_error *err)
{
    struct kvfile kvfile = {0};
    AUTO_FREE char *data = state_read(dir, "info", INFO_MAX, &kvfile.len);
    struct cay_template_info *shown = &ret_info->shown;

    *ret_info = (struct template_info){0};
    kvfile.data = data;
    if (!data || !kvfile_is_valid(&kvfile))
        return cay_fail(err, CAY_E_IO, data ? 0 : errno, info_op, "info",
                        "the template is damaged, or from another version of cay",
                        "remove it and create it again");
    copy_value(&kvfile, "source", shown->source, sizeof shown->source);
    copy_value(&kvfile, "from", shown->from, sizeof shown->from);
    copy_value(&kvfile, "user", shown->user, sizeof shown->user);
    copy_value(&kvfile, "workdir", shown->workdir, sizeof shown->workdir);
    copy_value(&kvfile, "map", ret_info->map, sizeof ret_info->map);
    copy_value(&kvfile, "origin", ret_info->origin, sizeof ret_info->origin);
    shown->created_ms = (int64_t)kvfile_number(&kvfile, "created_ms");
    shown->bytes = kvfile_number(&kvfile, "bytes");
    int code = take_list(&kvfile, "env", &ret_info->env, err);
    if (!code)
        code = take_layers(&kvfile, ret_info, err);
    if (code)
        template_info_done(ret_info);
    return code;
}
