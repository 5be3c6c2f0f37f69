/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "native/build/build.h"
#include "native/record/storage.h"
#include "sys/fs.h"
#include "sys/path.h"

enum { BUILD_PIDS = 4096, POLL_MS = 200 };

static inline void auto_cay_sandbox(cay_sandbox **sandbox)
{
    cay_sandbox_free(*sandbox);
}

/* --- The configuration --- */

const char *build_config_text(const json_t *config, const char *key)
{
    const char *text = json_string_value(json_object_get(config, key));

    return text ? text : "";
}

const char **build_env(const json_t *config, const char *key, size_t more)
{
    const json_t *env = json_object_get(config, key);
    size_t count = json_array_size(env), used = 0;
    const char **list = calloc(count + more + 1, sizeof *list);

    for (size_t i = 0; list && i < count; i++)
        list[used++] = json_string_value(json_array_get(env, i));
    return list;
}

static int set(json_t *config, const char *key, json_t *value, struct cay_error *err)
{
    return json_object_set_new(config, key, value) == 0 ? CAY_OK
                                                        : cay_fail_memory(err, BUILD_OP);
}

static json_t *child(json_t *config, const char *key, json_t *(*create)(void))
{
    json_t *value = json_object_get(config, key);

    if (!value && json_object_set_new(config, key, create()) == 0)
        value = json_object_get(config, key);
    return value;
}

static json_t *array_of(const struct build_texts *words, size_t from)
{
    json_t *array = json_array();

    for (size_t i = from; i < words->count; i++)
        (void)json_array_append_new(array, json_string(words->list[i]));
    return array;
}

/* The array of an exec form, or the shell with the text as its last argument. */
static json_t *command_of(const struct build_stage_state *stage,
                          const struct build_instruction *instruction, size_t from)
{
    const json_t *shell = json_object_get(stage->config, "Shell");

    if (instruction->is_exec)
        return array_of(&instruction->words, from);
    json_t *array = shell ? json_deep_copy(shell) : json_pack("[ss]", "/bin/sh", "-c");
    (void)json_array_append_new(array, json_string(instruction->words.list[from]));
    return array;
}

static int set_env(json_t *config, const char *name, const char *value,
                   struct cay_error *err)
{
    json_t *env = child(config, "Env", json_array);
    AUTO_BUF text = {.max = 2 * BUILD_VALUE_MAX};
    size_t i = 0, len = strlen(name);

    if (!buf_format(&text, "%s=%s", name, value) || !env)
        return cay_fail_memory(err, BUILD_OP);
    for (; i < json_array_size(env); i++) {
        const char *old = json_string_value(json_array_get(env, i));
        if (old && strncmp(old, name, len) == 0 && old[len] == '=')
            break;
    }
    json_t *entry = json_string(text.data);
    int result = i < json_array_size(env) ? json_array_set_new(env, i, entry)
                                          : json_array_append_new(env, entry);
    return result == 0
               ? CAY_OK
               : cay_fail(err, CAY_E_INVALID, 0, BUILD_OP, name,
                          "the value of a variable is not UTF-8", "write it as UTF-8");
}

/* ENV and LABEL. */
static int set_pairs(struct build *build, struct build_stage_state *stage,
                     const struct build_instruction *instruction, struct cay_error *err)
{
    const struct build_texts *words = &instruction->words;

    for (size_t i = 0; i + 1 < words->count; i += 2) {
        AUTO_FREE char *name = NULL, *value = NULL;
        TRY(build_word(build, stage, instruction, words->list[i], &name, err));
        TRY(build_word(build, stage, instruction, words->list[i + 1], &value, err));
        if (instruction->kind == BUILD_ENV)
            TRY(set_env(stage->config, name, value, err));
        else
            TRY(set(child(stage->config, "Labels", json_object), name, json_string(value),
                    err));
    }
    return CAY_OK;
}

static int set_ports(struct build *build, struct build_stage_state *stage,
                     const struct build_instruction *instruction, struct cay_error *err)
{
    for (size_t i = 0; i < instruction->words.count; i++) {
        AUTO_FREE char *port = NULL;
        char text[64];
        TRY(build_word(build, stage, instruction, instruction->words.list[i], &port,
                       err));
        size_t digits = strspn(port, "0123456789-");
        if (!digits || (port[digits] && port[digits] != '/') || strlen(port) > 40)
            return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP,
                            build_subject(build, instruction), "invalid port of EXPOSE",
                            "write a number, for example 8080 or 53/udp");
        snprintf(text, sizeof text, "%s%s", port, port[digits] ? "" : "/tcp");
        TRY(set(child(stage->config, "ExposedPorts", json_object), text, json_object(),
                err));
    }
    return CAY_OK;
}

/* "1m30s" in nanoseconds, as images have it; -1 if it is invalid. */
static json_int_t duration_of(const char *text)
{
    double total = 0;

    while (*text) {
        char *end;
        double number = strtod(text, &end);
        size_t len = strcspn(end, "0123456789.");
        double unit = strncmp(end, "ms", 2) == 0 ? 1e6
                      : len == 1 && *end == 's'  ? 1e9
                      : len == 1 && *end == 'm'  ? 60e9
                      : len == 1 && *end == 'h'  ? 3600e9
                                                 : -1;
        if (end == text || unit < 0 || number < 0 || number > 1e6)
            return -1;
        total += number * unit;
        text = end + len;
    }
    return (json_int_t)total;
}

static int set_healthcheck(struct build *build, struct build_stage_state *stage,
                           const struct build_instruction *instruction,
                           struct cay_error *err)
{
    static const struct {
        const char *flag, *key;
    } flags[] = {{"interval", "Interval"},
                 {"timeout", "Timeout"},
                 {"start-period", "StartPeriod"},
                 {"start-interval", "StartInterval"},
                 {"retries", "Retries"}};
    bool is_none = strcmp(instruction->words.list[0], "NONE") == 0;
    json_t *test = is_none ? json_array() : array_of(&instruction->words, 1);
    const char *kind = is_none ? "NONE" : instruction->is_exec ? "CMD" : "CMD-SHELL";

    if (json_array_insert_new(test, 0, json_string(kind)) != 0)
        return cay_fail_memory(err, BUILD_OP);
    json_t *check = json_pack("{so}", "Test", test);
    int code = set(stage->config, "Healthcheck", check, err);
    for (size_t i = 0; !code && i < sizeof flags / sizeof *flags; i++) {
        const char *value = build_flag(instruction, flags[i].flag);
        bool is_count = strcmp(flags[i].flag, "retries") == 0;
        json_int_t number = !value     ? 0
                            : is_count ? (json_int_t)strtoll(value, NULL, 10)
                                       : duration_of(value);
        if (value && number < (is_count ? 1 : 0))
            return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP,
                            build_subject(build, instruction),
                            "invalid time or number of HEALTHCHECK",
                            "write a time as 30s or 1m30s, and a number from 1");
        if (value)
            code = set(check, flags[i].key, json_integer(number), err);
    }
    return code;
}

/* The value that an argument was given: by the caller, or in a stage by one before the
 * first FROM; NULL if there is none. */
static const char *given_value(const struct build *build, bool is_in_stage,
                               const char *name, size_t len)
{
    const char *value = NULL;

    for (const char *const *arg = build->options->args; arg && *arg; arg++)
        if (strncmp(*arg, name, len) == 0 && (*arg)[len] == '=')
            value = *arg + len + 1;
    for (size_t i = 0; is_in_stage && !value && !name[len] && i < build->args.count; i++)
        if (strncmp(build->args.list[i], name, len) == 0 &&
            build->args.list[i][len] == '=')
            value = build->args.list[i] + len + 1;
    return value;
}

int build_args(struct build *build, struct build_stage_state *stage,
               const struct build_instruction *instruction, struct cay_error *err)
{
    struct build_texts *args = stage ? &stage->args : &build->args;

    for (size_t i = 0; i < instruction->words.count; i++) {
        const char *word = instruction->words.list[i];
        size_t len = strcspn(word, "=");
        const char *given = given_value(build, stage != NULL, word, len);
        AUTO_FREE char *value = NULL;
        AUTO_BUF text = {.max = 2 * BUILD_VALUE_MAX};
        if (!given && !word[len])
            continue;
        if (!given)
            TRY(build_word(build, stage, instruction, word + len + 1, &value, err));
        if (!buf_format(&text, "%.*s=%s", (int)len, word, given ? given : value) ||
            !build_texts_add(args, text.data, text.len))
            return cay_fail_memory(err, BUILD_OP);
    }
    return CAY_OK;
}

/* --- Layers --- */

/* Whether the layer of the next step is cached. */
static int begin_step(struct build *build, const struct build_instruction *instruction,
                      const char *key, bool *ret_cached, uint64_t *ret_bytes,
                      struct cay_error *err)
{
    build->step++;
    *ret_cached = !build->options->no_cache && build_layer_exists(build, key, ret_bytes);
    return build_report(build, *ret_cached ? CAY_BUILD_CACHED : CAY_BUILD_STEP,
                        instruction->text, strlen(instruction->text), err);
}

/* Adds the layer of a key, from the cache if it is there. */
static int step_layer(struct build *build, struct build_stage_state *stage,
                      const struct build_instruction *instruction, const char *key,
                      build_fill *fill, void *cookie, struct cay_error *err)
{
    uint64_t bytes = 0;
    bool is_cached;

    TRY(build_chain_squash(build, &stage->chain, err));
    TRY(begin_step(build, instruction, key, &is_cached, &bytes, err));
    if (!is_cached)
        TRY(build_layer_make(build, &stage->chain, instruction->text, key, true, fill,
                             cookie, &bytes, err));
    return build_chain_add(&stage->chain, key, bytes, err);
}

static void key_begin(struct sha256_ctx *hash, const struct build_stage_state *stage,
                      const struct build_instruction *instruction)
{
    char kind[16];

    sha256_init(hash);
    snprintf(kind, sizeof kind, "1 %d", (int)instruction->kind);
    build_key_add(hash, kind);
    build_key_add(hash, stage->chain.identity);
}

/* An absolute path; `raw` may be relative to the working directory. */
static int absolute(struct build *build, const struct build_stage_state *stage,
                    const struct build_instruction *instruction, const char *raw,
                    char **ret_path, struct cay_error *err)
{
    AUTO_FREE char *word = NULL;
    AUTO_BUF path = {.max = PATH_MAX - 1};
    const char *workdir = build_config_text(stage->config, "WorkingDir");

    TRY(build_word(build, stage, instruction, raw, &word, err));
    if (*word != '/')
        (void)buf_format(&path, "%s/", strcmp(workdir, "/") == 0 ? "" : workdir);
    (void)buf_text(&path, word);
    *ret_path = buf_take(&path);
    return *ret_path ? CAY_OK
                     : cay_fail(err, CAY_E_LIMIT, 0, BUILD_OP,
                                build_subject(build, instruction), "a path is too long",
                                "the limit is %d bytes", PATH_MAX);
}

static int make_directory(void *cookie, struct build_layer *layer, struct cay_error *err)
{
    const char *path = cookie;
    AUTO_FD dir = template_make_path(layer->root, path, 0, 0);

    return dir < 0 ? cay_fail(err, CAY_E_INVALID, -dir, BUILD_OP, path,
                              "cannot create the working directory",
                              "its path exists and is not a directory")
                   : CAY_OK;
}

static int step_workdir(struct build *build, struct build_stage_state *stage,
                        const struct build_instruction *instruction,
                        struct cay_error *err)
{
    AUTO_FREE char *path = NULL;
    char key[TEMPLATE_KEY + 1];
    struct sha256_ctx hash;

    TRY(absolute(build, stage, instruction, instruction->words.list[0], &path, err));
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
        path[len - 1] = '\0';
    TRY(set(stage->config, "WorkingDir", json_string(path), err));
    key_begin(&hash, stage, instruction);
    build_key_add(&hash, path);
    build_key_end(&hash, key);
    return step_layer(build, stage, instruction, key, make_directory, path, err);
}

/* --- COPY and ADD --- */

static int take_copy(struct build_copy *copy, struct build_stage_state *stage,
                     struct cay_error *err)
{
    const struct build_instruction *instruction = copy->instruction;
    const struct build_texts *words = &instruction->words;
    const char *owner = build_flag(instruction, "chown");
    const char *mode = build_flag(instruction, "chmod");
    AUTO_FREE char *text = NULL;
    char *end = NULL;

    for (size_t i = 0; i + 1 < words->count; i++) {
        AUTO_FREE char *source = NULL;
        TRY(build_word(copy->build, stage, instruction, words->list[i], &source, err));
        if (!build_texts_add(&copy->sources, source, strlen(source)))
            return cay_fail_memory(err, BUILD_OP);
    }
    TRY(absolute(copy->build, stage, instruction, words->list[words->count - 1],
                 &copy->target, err));
    if (owner)
        TRY(build_word(copy->build, stage, instruction, owner, &copy->owner, err));
    if (mode)
        TRY(build_word(copy->build, stage, instruction, mode, &text, err));
    copy->mode = mode ? (int)strtoul(text, &end, 8) : -1;
    if (mode && (end == text || *end || copy->mode > 07777))
        return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP,
                        build_subject(copy->build, instruction),
                        "invalid mode of --chmod", "write it as 755 or 0644");
    return CAY_OK;
}

static int copy_layer(struct build_copy *copy, struct build_stage_state *stage,
                      struct cay_error *err)
{
    struct sha256_ctx hash;
    char key[TEMPLATE_KEY + 1], mode[16];

    TRY(take_copy(copy, stage, err));
    TRY(build_copy_digest(copy, err));
    key_begin(&hash, stage, copy->instruction);
    build_key_add(&hash, copy->key);
    build_key_add(&hash, copy->target);
    build_key_add(&hash, copy->owner ? copy->owner : "");
    snprintf(mode, sizeof mode, "%o", (unsigned)copy->mode);
    build_key_add(&hash, mode);
    build_key_end(&hash, key);
    return step_layer(copy->build, stage, copy->instruction, key, build_copy_fill, copy,
                      err);
}

static int step_copy(struct build *build, size_t number,
                     const struct build_instruction *instruction, struct cay_error *err)
{
    struct build_stage_state *stage = &build->stages[number];
    struct build_copy copy = {.build = build,
                              .instruction = instruction,
                              .unpacks = instruction->kind == BUILD_ADD};
    struct build_chain chain = {.bytes = 0};
    struct template template = TEMPLATE_NONE;
    json_t *config = NULL;
    AUTO_FREE char *from = NULL;
    const char *raw = build_flag(instruction, "from");
    int code = CAY_OK;

    if (raw) {
        TRY(build_word(build, stage, instruction, raw, &from, err));
        code = build_source(build, number, instruction, from, &chain, &config, err);
        json_decref(config);
        if (!code)
            code = build_chain_open(&chain, &template, err);
        copy.from = &template;
        copy.from_identity = chain.identity;
    }
    if (!code)
        code = copy_layer(&copy, stage, err);
    template_done(&template);
    build_chain_done(&chain);
    build_texts_done(&copy.sources);
    free(copy.target);
    free(copy.owner);
    return code;
}

/* --- RUN --- */

struct run {
    struct build *build;
    struct build_stage_state *stage;
    const struct build_instruction *instruction;
    const char **argv, **env;
    struct storage storage; /* of the sandbox, once it has ended */
};

/* Cay's own files, which each sandbox gets anew. */
static int clean(int dir, struct cay_error *err)
{
    static const char *const names[] = {"hosts", "hostname", "resolv.conf"};
    AUTO_FD etc = path_open(dir, "root/etc", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    for (size_t i = 0; etc >= 0 && i < sizeof names / sizeof *names; i++)
        if (unlinkat(etc, names[i], 0) != 0 && errno != ENOENT && errno != EISDIR)
            return cay_fail_errno(err, errno, BUILD_OP, names[i]);
    return CAY_OK;
}

/* What the sandbox wrote becomes the layer. */
static int take_files(void *cookie, struct build_layer *layer, struct cay_error *err)
{
    const struct run *run = cookie;

    TRY(storage_take(&run->storage, layer->dir, "root", err));
    return clean(layer->dir, err);
}

static int check_result(struct run *run, const struct cay_exec_result *result,
                        struct cay_error *err)
{
    const char *subject = build_subject(run->build, run->instruction);

    if (result->cause == CAY_CAUSE_EXITED && result->exit_code == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_EXEC_FAILED, 0, BUILD_OP, subject,
                    "a command of RUN failed",
                    result->cause == CAY_CAUSE_MEMORY
                        ? "it reached the memory limit (exit code %d): pass --memory"
                        : "exit code %d; without --allow it has no network",
                    result->exit_code);
}

/* Reports the output as it comes, and asks now and then whether to cancel. */
static int follow(const struct run *run, cay_process *process, struct cay_error *err)
{
    struct pollfd ready = {.fd = cay_process_fd(process), .events = POLLIN};
    char data[16 << 10];
    int stream;
    size_t len;

    for (;;) {
        TRY(cay_process_read(process, &stream, data, sizeof data, &len, NULL, err));
        if (stream < 0)
            return CAY_OK;
        TRY(build_report(run->build, CAY_BUILD_OUTPUT, data, len, err));
        if (stream == 0)
            (void)poll(&ready, 1, POLL_MS);
    }
}

static int run_command(struct run *run, cay_sandbox *sandbox, struct cay_error *err)
{
    struct cay_exec_options exec = {.size = sizeof exec, .argv = run->argv};
    struct cay_exec_result result;
    struct cay_error why;
    cay_process *process = NULL;

    int code = cay_process_start(sandbox, &exec, &process, &why);
    if (code == CAY_E_EXEC_FAILED)
        return cay_fail(err, code, why.sys_errno, BUILD_OP,
                        build_subject(run->build, run->instruction),
                        "a program of RUN cannot be started", "%s: %s", run->argv[0],
                        why.message);
    if (code)
        return cay_fail_as(err, code, &why);
    code = follow(run, process, err);
    if (!code)
        code = cay_process_wait(process, UINT64_MAX, &result, err);
    if (!code) {
        code = check_result(run, &result, err);
        cay_exec_done(&result);
    }
    cay_process_free(process);
    return code ? code : cay_sandbox_kill(sandbox, err);
}

static int create_sandbox(const struct run *run, cay_sandbox **ret_sandbox,
                          struct cay_error *err)
{
    const struct cay_build_options *options = run->build->options;
    const char *user = build_config_text(run->stage->config, "User");
    const char *workdir = build_config_text(run->stage->config, "WorkingDir");
    char name[TEMPLATE_KEY + 2];
    const struct cay_sandbox_options sandbox = {
        .size = sizeof sandbox,
        .template_name = build_chain_name(&run->stage->chain, name),
        .storage = CAY_STORAGE_DISK,
        .ephemeral = true,
        .policy = options->policy,
        .memory_bytes = options->memory_bytes,
        .pids = BUILD_PIDS,
        .user = *user ? user : "root",
        .workdir = *workdir ? workdir : "/",
        .env = run->env,
    };

    if (!*sandbox.template_name)
        return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP,
                        build_subject(run->build, run->instruction),
                        "RUN has no files to run",
                        "copy a program first, or use another "
                        "image than scratch");
    return cay_sandbox_create(&sandbox, ret_sandbox, err);
}

/* A directory that names the sandbox for gc, locked; a descriptor or a code. */
static int mark(const struct build *build, const char *id, char ret_name[NAME_MAX + 1],
                struct cay_error *err)
{
    snprintf(ret_name, NAME_MAX + 1, TEMPLATE_RUN "%s", id);
    AUTO_FD dir =
        mkdirat(build->store, ret_name, 0700) == 0
            ? path_open(build->store, ret_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN)
            : -errno;
    if (dir < 0 || flock(dir, LOCK_EX) != 0)
        return cay_fail_errno(err, dir < 0 ? -dir : errno, BUILD_OP, ret_name);
    return TAKE_FD(dir);
}

static int run_in(struct run *run, cay_sandbox *sandbox, const char *key,
                  uint64_t *ret_bytes, struct cay_error *err)
{
    TRY(run_command(run, sandbox, err));
    TRY(storage_lock(cay_sandbox_id(sandbox), &run->storage, err));
    return build_layer_make(run->build, &run->stage->chain, run->instruction->text, key,
                            false, take_files, run, ret_bytes, err);
}

/* The sandbox has ended when its files are taken, and is removed in any case. */
static int run_layer(struct run *run, const char *key, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;
    struct build *build = run->build;
    char name[NAME_MAX + 1];
    uint64_t bytes = 0;
    bool is_cached;

    TRY(build_chain_squash(build, &run->stage->chain, err));
    TRY(begin_step(build, run->instruction, key, &is_cached, &bytes, err));
    if (!is_cached) {
        TRY(create_sandbox(run, &sandbox, err));
        AUTO_FD mine = mark(build, cay_sandbox_id(sandbox), name, err);
        int code = mine < 0 ? mine : run_in(run, sandbox, key, &bytes, err);
        storage_done(&run->storage);
        int removed = cay_sandbox_remove(sandbox, code ? NULL : err);
        if (mine >= 0 && !removed)
            (void)unlinkat(build->store, name, AT_REMOVEDIR);
        TRY(code ? code : removed);
    }
    return build_chain_add(&run->stage->chain, key, bytes, err);
}

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int run_key(const struct run *run, char ret_key[TEMPLATE_KEY + 1],
                   struct cay_error *err)
{
    const json_t *config = run->stage->config;
    AUTO_FREE const char **env = build_env(config, "Env", 0);
    size_t count = json_array_size(json_object_get(config, "Env"));
    struct sha256_ctx hash;

    if (!env)
        return cay_fail_memory(err, BUILD_OP);
    qsort(env, count, sizeof *env, by_text);
    key_begin(&hash, run->stage, run->instruction);
    for (const char **arg = run->argv; *arg; arg++)
        build_key_add(&hash, *arg);
    build_key_add(&hash, build_config_text(config, "User"));
    build_key_add(&hash, build_config_text(config, "WorkingDir"));
    for (size_t i = 0; i < run->stage->args.count; i++)
        build_key_add(&hash, run->stage->args.list[i]);
    for (size_t i = 0; i < count; i++)
        build_key_add(&hash, env[i]);
    build_key_end(&hash, ret_key);
    return CAY_OK;
}

static int step_run(struct build *build, struct build_stage_state *stage,
                    const struct build_instruction *instruction, struct cay_error *err)
{
    json_t *command = command_of(stage, instruction, 0);
    size_t argc = json_array_size(command), args = stage->args.count;
    AUTO_FREE const char **argv = calloc(argc + 1, sizeof *argv);
    AUTO_FREE const char **env = build_env(stage->config, "Env", args);
    struct run run = {build, stage, instruction, argv, env, STORAGE_NONE};
    char key[TEMPLATE_KEY + 1];
    int code = argc && argv && env ? CAY_OK : cay_fail_memory(err, BUILD_OP);

    for (size_t i = 0; !code && i < argc; i++)
        argv[i] = json_string_value(json_array_get(command, i));
    if (!code) { /* ENV wins over ARG: the last value counts */
        memmove(env + args, env,
                json_array_size(json_object_get(stage->config, "Env")) * sizeof *env);
        for (size_t i = 0; i < args; i++)
            env[i] = stage->args.list[i];
        code = run_key(&run, key, err);
    }
    if (!code)
        code = run_layer(&run, key, err);
    json_decref(command);
    return code;
}

/* --- All instructions --- */

static int step_user(struct build *build, struct build_stage_state *stage,
                     const struct build_instruction *instruction, struct cay_error *err)
{
    AUTO_FREE char *user = NULL;

    TRY(build_word(build, stage, instruction, instruction->words.list[0], &user, err));
    if (!*user || strlen(user) >= sizeof((struct cay_template_info *)0)->user)
        return cay_fail(err, CAY_E_INVALID, 0, BUILD_OP,
                        build_subject(build, instruction), "invalid USER",
                        "use a name of /etc/passwd or a number");
    return set(stage->config, "User", json_string(user), err);
}

int build_step(struct build *build, size_t number,
               const struct build_instruction *instruction, struct cay_error *err)
{
    struct build_stage_state *stage = &build->stages[number];

    switch (instruction->kind) {
    case BUILD_ARG:
        return build_args(build, stage, instruction, err);
    case BUILD_ENV:
    case BUILD_LABEL:
        return set_pairs(build, stage, instruction, err);
    case BUILD_EXPOSE:
        return set_ports(build, stage, instruction, err);
    case BUILD_HEALTHCHECK:
        return set_healthcheck(build, stage, instruction, err);
    case BUILD_CMD:
        return set(stage->config, "Cmd", command_of(stage, instruction, 0), err);
    case BUILD_ENTRYPOINT: /* the image's CMD was for its ENTRYPOINT */
        (void)json_object_del(stage->config, "Cmd");
        return set(stage->config, "Entrypoint", command_of(stage, instruction, 0), err);
    case BUILD_SHELL:
        return set(stage->config, "Shell", array_of(&instruction->words, 0), err);
    case BUILD_USER:
        return step_user(build, stage, instruction, err);
    case BUILD_WORKDIR:
        return step_workdir(build, stage, instruction, err);
    case BUILD_ADD:
    case BUILD_COPY:
        return step_copy(build, number, instruction, err);
    case BUILD_RUN:
        return step_run(build, stage, instruction, err);
    case BUILD_FROM:
    case BUILD_KINDS:
        break;
    }
    return CAY_OK;
}
