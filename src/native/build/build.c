/* SPDX-License-Identifier: Apache-2.0 */
#include "native/build/build.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "native/record/state.h"
#include "native/record/userns.h"
#include "native/record/users.h"
#include "sys/path.h"

const char *build_subject(struct build *build,
                          const struct build_instruction *instruction)
{
    snprintf(build->subject, sizeof build->subject, "%.255s:%u", build->name,
             instruction->line);
    return build->subject;
}

int build_report(const struct build *build, enum cay_build_event event, const char *text,
                 size_t len, struct cay_error *err)
{
    const struct cay_build_options *options = build->options;
    const struct cay_build_progress progress = {event, (unsigned)build->step,
                                                (unsigned)build->step_count, text, len};

    if (!options->on_progress || options->on_progress(options->cookie, &progress) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_CANCELLED, 0, BUILD_OP, build->name,
                    "the build was cancelled", "steps before this one are cached");
}

/* --- Variables --- */

struct lookup {
    const struct build *build;
    const struct build_stage_state *stage;
    char platform[64];
};

static const char *value_in(const char *assignment, const char *name, size_t len)
{
    return assignment && strncmp(assignment, name, len) == 0 && assignment[len] == '='
               ? assignment + len + 1
               : NULL;
}

static const char *own_platform(char platform[64])
{
    struct utsname name;
    const char *machine = uname(&name) == 0 ? name.machine : "unknown";

    snprintf(platform, 64, "linux/%.40s",
             strcmp(machine, "x86_64") == 0    ? "amd64"
             : strcmp(machine, "aarch64") == 0 ? "arm64"
                                               : machine);
    return platform;
}

/* ENV, then ARG, the last one first. */
static const char *look_up(void *cookie, const char *name, size_t len)
{
    struct lookup *lookup = cookie;
    const struct build_stage_state *stage = lookup->stage;
    const struct build_texts *args = stage ? &stage->args : &lookup->build->args;
    const json_t *env = stage ? json_object_get(stage->config, "Env") : NULL;
    const char *value = NULL;

    for (size_t i = json_array_size(env); !value && i-- > 0;)
        value = value_in(json_string_value(json_array_get(env, i)), name, len);
    for (size_t i = args->count; !value && i-- > 0;)
        value = value_in(args->list[i], name, len);
    bool is_platform =
        len > 8 && strncmp(name + len - 8, "PLATFORM", 8) == 0 &&
        (strncmp(name, "BUILD", 5) == 0 || strncmp(name, "TARGET", 6) == 0);
    return value || !is_platform || stage ? value : own_platform(lookup->platform);
}

int build_word(struct build *build, const struct build_stage_state *stage,
               const struct build_instruction *instruction, const char *raw,
               char **ret_text, struct cay_error *err)
{
    struct lookup lookup = {.build = build, .stage = stage};

    return build_expand(raw, build->file.escape, look_up, &lookup,
                        build_subject(build, instruction), ret_text, err);
}

/* --- Where a stage starts --- */

static int report_pull(void *cookie, const char *step, uint64_t bytes)
{
    (void)step;
    (void)bytes;
    return build_report(cookie, CAY_BUILD_OUTPUT, "", 0, NULL);
}

static int pull(struct build *build, const char *reference, const char *name,
                struct cay_error *err)
{
    const struct cay_template_options options = {.size = sizeof options,
                                                 .name = name,
                                                 .source = CAY_TEMPLATE_IMAGE,
                                                 .from = reference,
                                                 .on_progress = report_pull,
                                                 .cookie = build};
    AUTO_BUF text = {.max = PATH_MAX};

    if (!buf_format(&text, "downloading %s\n", reference))
        return cay_fail_memory(err, BUILD_OP);
    TRY(build_report(build, CAY_BUILD_OUTPUT, text.data, text.len, err));
    return cay_template_create(&options, err);
}

/* The template of an image, which other references may give the same name. */
static int open_image(struct build *build, const char *reference,
                      char ret_name[TEMPLATE_NAME_MAX], struct template *ret_template,
                      struct cay_error *err)
{
    if (!template_image_name(reference, ret_name))
        return CAY_E_NOT_FOUND;
    int code = template_open(ret_name, false, ret_template, err);
    if (code == CAY_E_NOT_FOUND && build->options->pull) {
        TRY(pull(build, reference, ret_name, err));
        code = template_open(ret_name, false, ret_template, err);
    }
    if (code || strcmp(ret_template->info.shown.from, reference) == 0)
        return code;
    template_done(ret_template);
    return cay_fail(err, CAY_E_EXISTS, 0, BUILD_OP, ret_name,
                    "the template with the name of this image is of another source",
                    "remove it, or create a template with another name and use that");
}

/* *ret_name is the name in the store. */
static int open_source(struct build *build, const struct build_instruction *instruction,
                       const char *name, char ret_name[TEMPLATE_NAME_MAX],
                       struct template *ret_template, struct cay_error *err)
{
    struct cay_error why;

    if (strcmp(name, "host") == 0 || strcmp(name, "base") == 0 || *name == '/')
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, BUILD_OP, name,
                        "only templates of this machine and \"scratch\" can be the "
                        "start of a build",
                        "cay template create makes a template");
    int code = template_open(name, false, ret_template, &why);
    cay_copy_text(ret_name, TEMPLATE_NAME_MAX, name);
    if (code == CAY_E_NOT_FOUND)
        code = open_image(build, name, ret_name, ret_template, &why);
    if (code == CAY_E_NOT_FOUND)
        return cay_fail(err, code, 0, BUILD_OP, build_subject(build, instruction),
                        "there is no template with the name of this image",
                        "%s: create it with cay template create, or pass --pull", name);
    return code ? cay_fail_as(err, code, &why) : CAY_OK;
}

static int use_template(struct build *build, const struct build_instruction *instruction,
                        const char *name, struct build_chain *ret_chain,
                        json_t **ret_config, struct cay_error *err)
{
    struct template template;
    struct template_info *info = &template.info;
    char stored[TEMPLATE_NAME_MAX], plain[TEMPLATE_NAME_MAX];
    int code = CAY_OK;

    TRY(open_source(build, instruction, name, stored, &template, err));
    cay_copy_text(ret_chain->base, sizeof ret_chain->base,
                  info->layers ? info->base : template_plain_name(stored, plain));
    for (char **layer = info->layers; !code && layer && *layer; layer++)
        if (!build_texts_add(&ret_chain->layers, *layer, strlen(*layer)))
            code = cay_fail_memory(err, BUILD_OP);
    if (ret_chain->layers.count)
        cay_copy_text(ret_chain->identity, sizeof ret_chain->identity,
                      ret_chain->layers.list[0]);
    else
        snprintf(ret_chain->identity, sizeof ret_chain->identity, "%s %lld %llu",
                 ret_chain->base, (long long)info->shown.created_ms,
                 (unsigned long long)template.ino);
    ret_chain->bytes = info->shown.bytes;
    *ret_config = info->config ? json_loads(info->config, 0, NULL) : NULL;
    if (!*ret_config)
        *ret_config = json_object();
    template_done(&template);
    return code;
}

int build_source(struct build *build, size_t before,
                 const struct build_instruction *instruction, const char *name,
                 struct build_chain *ret_chain, json_t **ret_config,
                 struct cay_error *err)
{
    int stage = build_find_stage(&build->file, name, before);

    *ret_chain = (struct build_chain){.bytes = 0};
    *ret_config = NULL;
    if (stage >= 0) {
        *ret_config = json_deep_copy(build->stages[stage].config);
        return build_chain_copy(ret_chain, &build->stages[stage].chain, err);
    }
    if (strcmp(name, "scratch") == 0) {
        *ret_config = json_object();
        cay_copy_text(ret_chain->identity, sizeof ret_chain->identity, name);
        return CAY_OK;
    }
    return use_template(build, instruction, name, ret_chain, ret_config, err);
}

static int check_platform(struct build *build,
                          const struct build_instruction *instruction,
                          struct cay_error *err)
{
    const char *raw = build_flag(instruction, "platform");
    AUTO_FREE char *platform = NULL;
    char own[64];

    if (!raw)
        return CAY_OK;
    TRY(build_word(build, NULL, instruction, raw, &platform, err));
    if (strcmp(platform, own_platform(own)) == 0)
        return CAY_OK;
    return cay_fail(
        err, CAY_E_UNSUPPORTED, 0, BUILD_OP, build_subject(build, instruction),
        "the platform is not that of this machine", "use %s, or no --platform", own);
}

/* --- The plan --- */

/* Marks the stages that `stage` needs.  What --from names may depend on variables; a
 * stage before it with that text as its name is enough to know here. */
static int mark_needed(struct build *build, size_t stage, struct cay_error *err)
{
    const struct build_stage *plan = &build->file.stages[stage];

    if (build->stages[stage].is_needed)
        return CAY_OK;
    build->stages[stage].is_needed = true;
    for (size_t i = 0; i < plan->count; i++) {
        const struct build_instruction *instruction = &build->file.list[plan->first + i];
        const char *raw =
            i == 0 ? instruction->words.list[0] : build_flag(instruction, "from");
        AUTO_FREE char *name = NULL;
        if (!raw)
            continue;
        TRY(build_word(build, NULL, instruction, raw, &name, err));
        int other = build_find_stage(&build->file, name, stage);
        if (other >= 0)
            TRY(mark_needed(build, (size_t)other, err));
    }
    return CAY_OK;
}

/* Everything that can be refused is refused before the first step. */
static int check_stages(struct build *build, struct cay_error *err)
{
    for (size_t i = 0; i < build->file.stage_count; i++) {
        const struct build_stage *stage = &build->file.stages[i];
        const struct build_instruction *from = &build->file.list[stage->first];
        struct build_chain chain;
        json_t *config = NULL;
        AUTO_FREE char *name = NULL;
        if (!build->stages[i].is_needed)
            continue;
        TRY(check_platform(build, from, err));
        TRY(build_word(build, NULL, from, from->words.list[0], &name, err));
        if (build_find_stage(&build->file, name, i) < 0) {
            int code = build_source(build, i, from, name, &chain, &config, err);
            build_chain_done(&chain);
            json_decref(config);
            TRY(code);
        }
        for (size_t k = 1; k < stage->count; k++) {
            enum build_kind kind = from[k].kind;
            build->step_count += kind == BUILD_RUN || kind == BUILD_COPY ||
                                 kind == BUILD_ADD || kind == BUILD_WORKDIR;
        }
    }
    return CAY_OK;
}

static int find_target(const struct build *build, size_t *ret_stage,
                       struct cay_error *err)
{
    const char *target = build->options->target;
    int stage = target ? build_find_stage(&build->file, target, build->file.stage_count)
                       : (int)build->file.stage_count - 1;

    if (stage < 0)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, BUILD_OP, target,
                        "the Dockerfile has no stage with this name",
                        "use a name after AS, or the number of a stage from 0");
    *ret_stage = (size_t)stage;
    return CAY_OK;
}

static int build_stage(struct build *build, size_t number, struct cay_error *err)
{
    const struct build_stage *plan = &build->file.stages[number];
    const struct build_instruction *from = &build->file.list[plan->first];
    struct build_stage_state *stage = &build->stages[number];
    AUTO_FREE char *name = NULL;

    TRY(build_word(build, NULL, from, from->words.list[0], &name, err));
    TRY(build_source(build, number, from, name, &stage->chain, &stage->config, err));
    if (build->options->hides_env &&
        !json_object_get(stage->config, TEMPLATE_IMAGE_ENV)) {
        json_t *env = json_deep_copy(json_object_get(stage->config, "Env"));
        if (json_object_set_new(stage->config, TEMPLATE_IMAGE_ENV,
                                env ? env : json_array()) != 0)
            return cay_fail_memory(err, BUILD_OP);
    }
    for (size_t i = 1; i < plan->count; i++)
        TRY(build_step(build, number, &from[i], err));
    return CAY_OK;
}

/* --- The template --- */

struct result {
    struct build *build;
    struct build_stage_state *stage;
    int dir;
    bool has_users;
};

/* The root is empty, above the layers; it has users if these have none. */
static int make_root(void *cookie, struct cay_error *err)
{
    const struct result *result = cookie;

    if (mkdirat(result->dir, "root", 0755) != 0 ||
        fchmodat(result->dir, "root", 0755, 0) != 0)
        return cay_fail_errno(err, errno, BUILD_OP, "root");
    AUTO_FD root = path_open(result->dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (root < 0)
        return cay_fail_errno(err, -root, BUILD_OP, "root");
    return result->has_users ? CAY_OK : users_add(root, err);
}

static int save_result(const struct result *result, struct cay_error *err)
{
    static char *none[] = {NULL};
    const struct build_stage_state *stage = result->stage;
    const char *workdir = build_config_text(stage->config, "WorkingDir");
    const char *user = build_config_text(stage->config, "User");
    bool hides_env = result->build->options->hides_env;
    AUTO_FREE const char **env =
        build_env(stage->config, hides_env ? TEMPLATE_IMAGE_ENV : "Env", 0);
    AUTO_FREE char *config = json_dumps(stage->config, JSON_COMPACT);
    struct template_info info = {
        .shown = {.source = TEMPLATE_BUILD,
                  .created_ms = clock_since_1970_ms(),
                  .bytes = stage->chain.bytes},
        .layers = stage->chain.layers.count ? stage->chain.layers.list : none,
        .config = config};

    if (!env || !config)
        return cay_fail_memory(err, BUILD_OP);
    info.env = (char **)(uintptr_t)env;
    memcpy(info.base, stage->chain.base, sizeof info.base);
    cay_copy_text(info.shown.from, sizeof info.shown.from, result->build->name);
    cay_copy_text(info.shown.user, sizeof info.shown.user, user);
    cay_copy_text(info.shown.workdir, sizeof info.shown.workdir, workdir);
    if (result->build->is_user)
        (void)template_own_map(info.map);
    return template_info_save(result->dir, &info, err);
}

/* Whether the template of this name is what the build would make. */
static bool is_same(int store, const char *name, const struct build_stage_state *stage)
{
    struct template_info info;
    const struct build_texts *layers = &stage->chain.layers;
    AUTO_FREE char *config = json_dumps(stage->config, JSON_COMPACT);
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir < 0 || !config || template_info_load(dir, &info, NULL) != CAY_OK)
        return false;
    size_t count = env_count((const char *const *)info.layers);
    bool same = info.layers && info.config && count == layers->count &&
                strcmp(info.config, config) == 0 &&
                strcmp(info.base, stage->chain.base) == 0;
    for (size_t i = 0; same && i < count; i++)
        same = strcmp(info.layers[i], layers->list[i]) == 0;
    template_info_done(&info);
    return same;
}

static int make_template(struct build *build, struct build_stage_state *stage,
                         struct cay_error *err)
{
    struct result result = {.build = build, .stage = stage};
    struct template template;
    char draft[NAME_MAX + 1], plain[TEMPLATE_NAME_MAX];
    const char *name = template_plain_name(build->options->name, plain);
    struct stat st;
    AUTO_FD store = state_open("templates", true, err);

    if (store < 0 || is_same(store, name, stage))
        return store < 0 ? store : CAY_OK;
    TRY(build_chain_open(&stage->chain, &template, err));
    result.has_users =
        template.root >= 0 && fstatat(template_layer_with(&template, "etc/passwd"),
                                      "etc/passwd", &st, AT_SYMLINK_NOFOLLOW) == 0;
    template_done(&template);
    result.dir = state_draft(store, ".new-", draft, err);
    if (result.dir < 0)
        return result.dir;
    int code =
        build->is_user ? userns_run(make_root, &result, err) : make_root(&result, err);
    if (!code)
        code = save_result(&result, err);
    if (!code)
        code = template_publish(store, result.dir, draft, name, true, BUILD_OP, err);
    if (code)
        (void)state_remove_tree(store, draft, BUILD_OP, draft, NULL);
    (void)close(result.dir);
    return code;
}

/* --- The build --- */

static int read_text(struct build *build, const char *path, bool is_needed,
                     char **ret_text, size_t *ret_len, struct cay_error *err)
{
    AUTO_FD file = is_needed && strchr(path, '/')
                       ? open(path, O_RDONLY | O_CLOEXEC)
                       : openat(build->context, path, O_RDONLY | O_CLOEXEC);
    AUTO_BUF text = {.max = BUILD_TEXT_MAX};

    *ret_text = NULL;
    *ret_len = 0;
    if (file < 0 && errno == ENOENT && !is_needed)
        return CAY_OK;
    if (file < 0)
        return cay_fail_errno(err, errno, BUILD_OP, path);
    for (;;) {
        if (!buf_reserve(&text, 4096))
            return cay_fail(err, CAY_E_LIMIT, 0, BUILD_OP, path, "the file is too large",
                            "the limit is %d bytes", BUILD_TEXT_MAX);
        ssize_t len = read(file, text.data + text.len, 4096);
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return cay_fail_errno(err, errno, BUILD_OP, path);
        if (len == 0)
            break;
        text.len += (size_t)len;
    }
    *ret_len = text.len;
    text.data[text.len] = '\0';
    *ret_text = buf_take(&text);
    return *ret_text ? CAY_OK : cay_fail_memory(err, BUILD_OP);
}

static int read_files(struct build *build, struct cay_error *err)
{
    const struct cay_build_options *options = build->options;
    const char *path = options->file ? options->file : "Dockerfile";
    const char *slash = strrchr(path, '/');
    AUTO_FREE char *text = NULL, *ignore = NULL;
    size_t len;

    build->name = slash ? slash + 1 : path;
    build->context = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (build->context < 0)
        return cay_fail_errno(err, errno, BUILD_OP, options->dir);
    TRY(read_text(build, path, true, &text, &len, err));
    TRY(dockerfile_parse(build->name, text, len, &build->file, err));
    TRY(read_text(build, ".dockerignore", false, &ignore, &len, err));
    return ignore ? ignore_parse(ignore, len, &build->ignore, err) : CAY_OK;
}

static int run(struct build *build, struct cay_error *err)
{
    size_t target = 0;

    TRY(find_target(build, &target, err));
    build->store = state_open(TEMPLATE_LAYERS, true, err);
    if (build->store < 0)
        return build->store;
    if (flock(build->store, LOCK_SH) != 0)
        return cay_fail_errno(err, errno, BUILD_OP, "layers");
    (void)state_sweep(build->store, ".new-");
    for (size_t i = 0; i < build->file.stages[0].first; i++)
        TRY(build_args(build, NULL, &build->file.list[i], err));
    build->stages = calloc(build->file.stage_count, sizeof *build->stages);
    if (!build->stages)
        return cay_fail_memory(err, BUILD_OP);
    TRY(mark_needed(build, target, err));
    TRY(check_stages(build, err));
    for (size_t i = 0; i <= target; i++)
        if (build->stages[i].is_needed)
            TRY(build_stage(build, i, err));
    return build->options->name ? make_template(build, &build->stages[target], err)
                                : CAY_OK;
}

static void done(struct build *build)
{
    for (size_t i = 0; build->stages && i < build->file.stage_count; i++) {
        build_chain_done(&build->stages[i].chain);
        build_texts_done(&build->stages[i].args);
        json_decref(build->stages[i].config);
    }
    free(build->stages);
    build_texts_done(&build->args);
    dockerfile_done(&build->file);
    ignore_done(&build->ignore);
    auto_close(&build->context);
    auto_close(&build->store);
}

static int check_user(const struct build *build, struct cay_error *err)
{
    char map[IDMAP_TEXT];

    if (!build->is_user || template_own_map(map))
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, BUILD_OP, build->options->name,
                    "the files of a template have several owners, and this user has no "
                    "range of subordinate ids in /etc/subuid and /etc/subgid",
                    "sudo cay setup adds one");
}

int build_from_text(const struct cay_build_options *options, const char *text, size_t len,
                    struct cay_error *err)
{
    struct build build = {.options = options,
                          .name = "packages",
                          .context = -1,
                          .store = -1,
                          .is_user = geteuid() != 0};

    TRY(check_user(&build, err));
    int code = dockerfile_parse(build.name, text, len, &build.file, err);
    if (!code)
        code = run(&build, err);
    done(&build);
    return code;
}

int cay_build(const struct cay_build_options *options, struct cay_error *err)
{
    struct cay_build_options known;
    struct build build = {
        .options = &known, .context = -1, .store = -1, .is_user = geteuid() != 0};

    TRY(cay_take_struct(&known, sizeof known, options, BUILD_OP, err));
    if (!known.dir || !*known.dir)
        return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP, "dir",
                        "no directory of the build given",
                        "pass the directory that has the Dockerfile");
    if (known.name)
        TRY(template_check_name(known.name, BUILD_OP, err));
    TRY(check_user(&build, err));
    int code = read_files(&build, err);
    if (!code)
        code = run(&build, err);
    done(&build);
    return code;
}
