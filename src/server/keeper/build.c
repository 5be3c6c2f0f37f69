/* SPDX-License-Identifier: Apache-2.0 */

/* A build of a template, in a keeper without a sandbox, which exits afterwards.  The
 * commands of the steps run in sandboxes of cay_build().  If the broker exits, the build
 * is cancelled: the next server reports it as failed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "cay/snapshot.h"
#include "server/keeper/keeper.h"
#include "server/keeper/script.h"
#include "sys/io.h"
#include "sys/state-home.h"

static const char op[] = "server.build";

enum {
    BUILD_MS = 3600 * 1000, /* for all steps */
    LOG_MAX = 4 << 20,      /* bytes */
    LOG_DAYS = 30,          /* until a log is removed */
    LINE_MAX_LEN = 2000,    /* of the output of a command */
    TEMPLATE_GIB = 16,      /* of all files of a template */
    FREE_MIB = 512,         /* of the disk, which are left */
    FILES = 64              /* different archives */
};

struct work {
    struct keeper *keeper;
    const struct keeper_request *request;
    const char *const *steps; /* as script_next() reads them */
    size_t step_strings;
    unsigned step_count;
    int64_t end_ms;
    int builds, log, files; /* descriptors */
    size_t logged;
    unsigned shown; /* the last step in the log */
    struct buf line;
    const char *cause; /* why it was cancelled */
    struct script script;
};

/* --- The log --- */

/* Entries are lines: milliseconds since 1970, level, step and message, with tabs. */
static void note(struct work *work, const char *level, unsigned step, const char *text,
                 size_t len)
{
    AUTO_BUF entry = {.max = LOG_MAX};

    (void)buf_format(&entry, "%lld\t%s\t%u\t", (long long)clock_since_1970_ms(), level,
                     step);
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];
        (void)buf_append(&entry, byte < ' ' || byte == 0x7f ? " " : text + i, 1);
    }
    (void)buf_text(&entry, "\n");
    if (entry.failed || work->logged > LOG_MAX)
        return;
    work->logged += entry.len;
    if (work->logged > LOG_MAX) {
        static const char cut[] = "the log is too long; the rest is left out";
        work->logged = 0;
        note(work, "warn", step, cut, strlen(cut));
        work->logged = LOG_MAX + 1;
        return;
    }
    (void)io_write(work->log, entry.data, entry.len);
}

static void note_output(struct work *work, unsigned step, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n')
            (void)buf_append(&work->line, data + i, 1);
        if (data[i] != '\n' && work->line.len < LINE_MAX_LEN)
            continue;
        note(work, "info", step, work->line.data ? work->line.data : "", work->line.len);
        work->line.len = 0;
    }
}

static void note_step(struct work *work, unsigned step, bool is_cached)
{
    char text[SCRIPT_STEP_TEXT + 64], shown[SCRIPT_STEP_TEXT];
    struct script_step found = {.type = ""};

    if (step == 0 || step == work->shown)
        return;
    for (size_t at = 0, i = 0; i < step; i++)
        (void)script_next(work->steps, work->step_strings, &at, &found);
    script_show(&found, shown);
    int len = snprintf(text, sizeof text, "%s[builder %u/%u] %s",
                       is_cached ? "CACHED " : "", step, work->step_count, shown);
    note(work, "info", step, text, (size_t)len);
    work->shown = step;
}

/* --- Limits --- */

static bool is_cancelled(void *cookie)
{
    struct work *work = cookie;
    struct pollfd broker = {.fd = work->keeper->socket, .events = POLLIN};
    struct statvfs space;

    if (poll(&broker, 1, 0) != 0)
        work->cause = "the server was stopped";
    else if (keeper_now_ms() > work->end_ms)
        work->cause = "the build took longer than an hour";
    else if (fstatvfs(work->builds, &space) == 0 &&
             (uint64_t)space.f_bavail * space.f_frsize < (uint64_t)FREE_MIB << 20)
        work->cause = "the disk of the server is full";
    return work->cause != NULL;
}

static int on_progress(void *cookie, const struct cay_build_progress *progress)
{
    struct work *work = cookie;
    unsigned at = progress->step > 0 ? progress->step - 1 : 0;
    unsigned step = at < work->script.changes ? work->script.change_steps[at] : 0;

    if (progress->event == CAY_BUILD_OUTPUT) {
        note_output(work, step, progress->text, progress->len);
    } else if (strncmp(progress->text, "ADD ", 4) != 0) {
        note_output(work, work->shown, "\n", work->line.len ? 1 : 0);
        note_step(work, step, progress->event == CAY_BUILD_CACHED);
    }
    return is_cancelled(work);
}

/* --- Files --- */

static void remove_files(int builds, const char *name)
{
    AUTO_FD dir = openat(builds, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = dir < 0 ? NULL : fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 3));
    const struct dirent *entry;

    while (list && (entry = readdir(list)))
        (void)unlinkat(dir, entry->d_name, 0);
    if (list)
        (void)closedir(list);
    (void)unlinkat(builds, name, AT_REMOVEDIR);
}

/* Directories of builds whose process was killed: no process has them locked. */
static void sweep(int builds)
{
    DIR *list = fdopendir(fcntl(builds, F_DUPFD_CLOEXEC, 3));
    const struct dirent *entry;

    if (list)
        rewinddir(list);
    while (list && (entry = readdir(list))) {
        if (!strstr(entry->d_name, ".files"))
            continue;
        AUTO_FD dir = openat(builds, entry->d_name,
                             O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir >= 0 && flock(dir, LOCK_EX | LOCK_NB) == 0)
            remove_files(builds, entry->d_name);
    }
    if (list)
        (void)closedir(list);
    state_home_sweep(KEEPER_BUILDS, (time_t)LOG_DAYS * 24 * 3600);
}

static int open_files(struct work *work, const char *name, struct cay_error *err)
{
    char path[PATH_MAX + 32];

    snprintf(path, sizeof path, "%s/" KEEPER_BUILDS, work->keeper->options->home);
    work->builds = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work->builds < 0 || flock(work->builds, LOCK_EX) != 0)
        return cay_fail_errno(err, errno, op, "builds");
    sweep(work->builds);
    if (mkdirat(work->builds, name, 0700) == 0)
        work->files =
            openat(work->builds, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = work->files < 0 || flock(work->files, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    (void)flock(work->builds, LOCK_UN);
    return error ? cay_fail_errno(err, error, op, "files") : CAY_OK;
}

/* A later upload of the same hash is another file, so that what a key was computed from
 * is what is unpacked. */
static int link_files(struct work *work, struct cay_error *err)
{
    char path[PATH_MAX + 64];
    struct script_step step;

    snprintf(path, sizeof path, "%s/" KEEPER_UPLOADS "/%s", work->keeper->options->home,
             work->request->strings[work->request->head.count - 1]);
    AUTO_FD uploads = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t at = 0; script_next(work->steps, work->step_strings, &at, &step);) {
        work->script.step++;
        if (strcmp(step.type, "COPY") != 0 || !script_is_hash(step.hash))
            continue; /* script_write() refuses it */
        if (uploads < 0 || (linkat(uploads, step.hash, work->files, step.hash, 0) != 0 &&
                            errno != EEXIST))
            return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL,
                            "the files of COPY were not uploaded",
                            "upload them, and build the template again");
        (void)utimensat(uploads, step.hash, NULL, 0);
    }
    return CAY_OK;
}

/* --- The build --- */

/* Snapshots are their owners': a tenant may only name those of its own, by their ids. */
static int check_image(struct work *work, const char *name, struct cay_error *err)
{
    struct cay_snapshot_info info;

    if (cay_snapshot_inspect(name, &info, NULL) != CAY_OK)
        return CAY_OK;
    work->script.step = 0;
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL,
                    "there is no template with the name of this image",
                    "GET /templates lists your templates");
}

static int write_script(struct work *work, struct cay_error *err)
{
    const struct keeper_request *request = work->request;
    const char *const *strings = request->strings;
    struct cay_template_info info = {0};
    char *config = NULL;
    struct script_source source = {.name = strings[BUILD_SOURCE],
                                   .is_own = request->head.flags & BUILD_IS_OWN,
                                   .is_forced = request->head.flags & BUILD_FORCED,
                                   .user = info.user,
                                   .build = strings[BUILD_ID]};

    if (!source.is_own)
        TRY(check_image(work, source.name, err));
    if (source.is_own)
        TRY(cay_template_inspect(source.name, &info, &config, err));
    cay_free(config);
    TRY(script_write(&source, work->steps, work->step_strings, &work->script, err));
    AUTO_FD file =
        openat(work->files, "Dockerfile", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error =
        file < 0 ? -errno : io_write(file, work->script.text.data, work->script.text.len);
    return error ? cay_fail_errno(err, -error, op, "Dockerfile") : CAY_OK;
}

/* The policy with the network of --internet, or NULL. */
static int make_policy(const struct serve_options *options, cay_policy **ret_policy,
                       struct cay_error *err)
{
    struct keeper_network network;

    if (options->internet <= CAY_NETWORK_HOST)
        return CAY_OK;
    int code = keeper_network_init(options, true, 0, NULL, 0, &network, err);
    if (!code)
        code = cay_policy_add_network(NULL, &network.config, ret_policy, err);
    keeper_network_done(&network);
    return code;
}

static int run_steps(struct work *work, const cay_policy *policy, struct cay_error *err)
{
    const struct serve_options *options = work->keeper->options;
    char dir[PATH_MAX + 128];
    const struct cay_build_options wanted = {
        .size = sizeof wanted,
        .dir = dir,
        .name = work->request->strings[BUILD_TEMPLATE],
        .policy = policy,
        .memory_bytes = options->has_memory ? options->memory_bytes : 0,
        .no_cache = work->request->head.flags & BUILD_FORCED,
        .on_progress = on_progress,
        .cookie = work,
        .hides_env = true};

    snprintf(dir, sizeof dir, "%s/" KEEPER_BUILDS "/%s.files", options->home,
             work->request->strings[BUILD_ID]);
    TRY(cay_build(&wanted, err));
    struct cay_template_info info;
    char *config = NULL;
    TRY(cay_template_inspect(wanted.name, &info, &config, err));
    cay_free(config);
    return info.bytes <= (uint64_t)TEMPLATE_GIB << 30
               ? CAY_OK
               : cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                          "the files of the template are too large",
                          "the limit is %d GiB", TEMPLATE_GIB);
}

/* The start command has to become ready once. */
static int try_start(struct work *work, const cay_policy *policy, struct cay_error *err)
{
    const char *const *strings = work->request->strings;
    struct cay_sandbox_options wanted = keeper_sandbox_options(work->keeper->options);
    cay_sandbox *sandbox = NULL;

    if (!*strings[BUILD_START] && !*strings[BUILD_READY_COMMAND])
        return CAY_OK;
    wanted.template_name = strings[BUILD_TEMPLATE];
    wanted.ephemeral = true;
    wanted.network = CAY_NETWORK_NONE; /* or that of the policy */
    wanted.policy = policy;
    note(work, "info", 0, "running the start command",
         strlen("running the start command"));
    TRY(cay_sandbox_create(&wanted, &sandbox, err));
    int code =
        keeper_start_command(sandbox, strings[BUILD_TEMPLATE], strings[BUILD_START],
                             strings[BUILD_READY_COMMAND], is_cancelled, work, err);
    (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    return code;
}

static int run(struct work *work, struct cay_error *err)
{
    cay_policy *policy = NULL;

    TRY(link_files(work, err));
    TRY(write_script(work, err));
    TRY(make_policy(work->keeper->options, &policy, err));
    int code = run_steps(work, policy, err);
    if (!code) {
        work->script.step = work->step_count + 1;
        code = try_start(work, policy, err);
        if (code)
            (void)!cay_template_remove(work->request->strings[BUILD_TEMPLATE], NULL);
    }
    cay_policy_free(policy);
    return code;
}

/* --- Its result --- */

/* The step of an error: cay_build() names the line. */
static unsigned failed_step(const struct work *work, const struct cay_error *error)
{
    const char *colon = strrchr(error->subject, ':');
    unsigned long line = colon ? strtoul(colon + 1, NULL, 10) : 0;

    return strncmp(error->subject, "Dockerfile:", strlen("Dockerfile:")) == 0 &&
                   line <= work->script.lines
               ? work->script.line_steps[line]
               : work->script.step;
}

static void describe(const struct work *work, unsigned step,
                     const struct cay_error *error, struct buf *message)
{
    struct script_step found = {.type = ""};
    const char *user = work->script.user;

    for (size_t at = 0, i = 0; i < step; i++)
        if (!script_next(work->steps, work->step_strings, &at, &found))
            found = (struct script_step){.type = ""};
    if (work->cause) {
        (void)buf_text(message, work->cause);
        return;
    }
    if (strcmp(found.type, "RUN") != 0 || !found.count) {
        (void)buf_format(message, "%s: %s", error->message, error->hint);
        return;
    }
    (void)buf_format(message, "failed to run command '%.300s': ", found.args[0]);
    if (error->code == CAY_E_NOT_FOUND)
        (void)buf_format(message,
                         "command failed: unauthenticated: invalid username: '%.64s'",
                         found.count > 1 && *found.args[1] ? found.args[1] : user);
    else
        (void)buf_format(message, "%s: %.*s", error->message,
                         (int)strcspn(error->hint, ";"), error->hint);
}

static void reply_failure(struct work *work, const struct cay_error *error)
{
    struct reply reply = {.kind = REPLY_TEXT, .count = 2};
    AUTO_BUF strings = {.max = CHANNEL_PACKET}, message = {.max = 4096};
    unsigned step = failed_step(work, error);
    char text[16];

    describe(work, step <= work->step_count ? step : 0, error, &message);
    if (step == 0)
        snprintf(text, sizeof text, "base");
    else if (step > work->step_count)
        snprintf(text, sizeof text, "finalize");
    else
        snprintf(text, sizeof text, "%u", step);
    note(work, "error", step, message.data, message.len);
    strings_add(&strings, text);
    strings_add(&strings, message.data ? message.data : "the build failed");
    (void)reply_send(work->request->channel, &reply, &strings, -1);
}

int keeper_op_build(struct keeper *keeper, struct keeper_request *request,
                    struct cay_error *err)
{
    static const char done[] = "the template is ready";
    struct work *work = calloc(1, sizeof *work);
    char name[64], path[PATH_MAX + 128];

    if (!work || request->head.count < BUILD_STEPS + 1)
        return cay_fail_memory(err, op);
    (void)prctl(PR_SET_NAME, "cay-build");
    *work = (struct work){.keeper = keeper,
                          .request = request,
                          .steps = request->strings + BUILD_STEPS,
                          .step_strings = request->head.count - BUILD_STEPS - 1,
                          .end_ms = keeper_now_ms() + BUILD_MS,
                          .builds = -1,
                          .files = -1,
                          .line = {.max = LINE_MAX_LEN + 1}};
    struct script_step step;
    for (size_t at = 0; script_next(work->steps, work->step_strings, &at, &step);)
        work->step_count++;
    snprintf(path, sizeof path, "%s/" KEEPER_BUILDS "/%s.log", keeper->options->home,
             request->strings[BUILD_ID]);
    snprintf(name, sizeof name, "%s.files", request->strings[BUILD_ID]);
    work->log = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    int code = open_files(work, name, err);
    if (!code)
        code = run(work, err);
    note_output(work, work->shown, "\n", work->line.len ? 1 : 0);
    remove_files(work->builds, name);
    if (code)
        reply_failure(work, err);
    else {
        note(work, "info", 0, done, strlen(done));
        (void)reply_send_done(request->channel);
    }
    _exit(0);
}

int keeper_remove_templates(const char *const *names, size_t count, struct cay_error *err)
{
    int code = CAY_OK;

    for (size_t i = 0; !code && i < count; i++) {
        code = cay_template_remove(names[i], err);
        if (code == CAY_E_NOT_FOUND)
            code = CAY_OK;
    }
    return code;
}

/* Removes templates of Cay; the broker has checked that they are the tenant's. */
int keeper_op_remove_template(struct keeper *keeper, struct keeper_request *request,
                              struct cay_error *err)
{
    int code = keeper_remove_templates(request->strings, request->head.count, err);

    (void)keeper;
    if (code)
        (void)reply_send_error(request->channel, code == CAY_E_BUSY ? 400 : 0, err);
    else
        (void)reply_send_done(request->channel);
    _exit(0);
}
