/* SPDX-License-Identifier: Apache-2.0 */

/* conformance TYPE [CONFIG] [--lacks THING,...] [PATTERN...]
 *
 * Runs the cases against the backend TYPE, with the configuration in the file CONFIG or
 * with its defaults.  TAP on stdout.  A case whose subject the backend lacks says so
 * ("unsupported"); THINGs are those that it is known to lack: another one, or one of
 * these that is there after all, is a failure.
 *
 * conformance TYPE CONFIG --act NAME ID ARGUMENT is what cases start to be somebody
 * else. */
#include "conformance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANDLES_MAX = 16, IDS_MAX = 16, ACTS_MAX = 32, THINGS_MAX = 32 };

struct cay_exec_result result;

static const char *type, *config_file;
static cay_config *config;

static cay_sandbox *handles[HANDLES_MAX];
static char *ids[IDS_MAX]; /* of the sandboxes that this case has made */
static size_t id_count;

static const struct act *acts[ACTS_MAX];
static size_t act_count;

static struct {
    char *name;
    bool is_missing;
} things[THINGS_MAX];
static size_t thing_count;
static bool is_left_out;

const struct cay_backend *backend(void)
{
    return cay_backend_find(type);
}

const cay_config *configuration(void)
{
    return config;
}

/* --- Sandboxes --- */

static cay_sandbox *hold(cay_sandbox *sandbox)
{
    for (size_t i = 0; i < HANDLES_MAX; i++)
        if (!handles[i])
            return handles[i] = sandbox;
    harness_fail(__FILE__, __LINE__, "a case has at most %d handles", HANDLES_MAX);
}

void note_made(const char *id)
{
    ids[id_count++] = strdup(id);
}

cay_sandbox *make(void)
{
    cay_sandbox *sandbox = NULL;

    ASSERT(id_count < IDS_MAX);
    memset(&err, 0, sizeof err);
    int code = cay_backend_create(config, &sandbox, &err);
    if (!code) { /* whatever comes, it is removed */
        note_made(cay_sandbox_id(sandbox));
        (void)hold(sandbox);
    }
    harness_code(__FILE__, __LINE__, "cay_backend_create()", code, CAY_OK, &err);
    return sandbox;
}

cay_sandbox *reach(const char *id)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_backend_connect(config, id, &sandbox, &err));
    return hold(sandbox);
}

int try_to_reach(const char *id)
{
    cay_sandbox *sandbox = NULL;
    int code = cay_backend_connect(config, id, &sandbox, &err);

    cay_sandbox_free(sandbox);
    return code;
}

void let_go(cay_sandbox *sandbox)
{
    for (size_t i = 0; i < HANDLES_MAX; i++)
        if (handles[i] == sandbox)
            handles[i] = NULL;
    cay_sandbox_free(sandbox);
}

static void remove_by_id(const char *id)
{
    cay_sandbox *sandbox = NULL;

    if (cay_backend_connect(config, id, &sandbox, NULL) == CAY_OK)
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
}

void end_case(void)
{
    for (size_t i = 0; i < HANDLES_MAX; i++) {
        cay_sandbox_free(handles[i]);
        handles[i] = NULL;
    }
    while (id_count) {
        remove_by_id(ids[--id_count]);
        free(ids[id_count]);
    }
    cay_exec_done(&result);
}

void begin_case(void)
{
    if (is_left_out)
        harness_remark("left out: the level landlock needs Linux 6.2");
    harness_at_end(end_case);
}

/* --- What is lacking --- */

_Noreturn void report_unsupported(const char *what)
{
    char remark[128];

    for (size_t i = 0; i < thing_count; i++)
        if (strcmp(things[i].name, what) == 0) {
            things[i].is_missing = true;
            snprintf(remark, sizeof remark, "unsupported: %s", what);
            harness_remark(remark);
        }
    harness_fail(__FILE__, __LINE__, "%s is unsupported, and --lacks does not say so",
                 what);
}

static void expect_lack(const char *list)
{
    while (list && *list && thing_count < THINGS_MAX) {
        size_t len = strcspn(list, ",");
        things[thing_count++].name = strndup(list, len);
        list += len + (list[len] == ',');
    }
}

/* Known only when all the others have run. */
static void check_lacks(void)
{
    for (size_t i = 0; i < thing_count && !is_left_out; i++)
        if (!things[i].is_missing)
            harness_fail(__FILE__, __LINE__, "%s is said to be lacking, and is there",
                         things[i].name);
}

/* --- Commands --- */

void run_with(cay_sandbox *sandbox, const char *script, struct cay_exec_options options)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    options.size = sizeof options;
    options.argv = argv;
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
}

void run(cay_sandbox *sandbox, const char *script)
{
    run_with(sandbox, script, (struct cay_exec_options){.timeout_ms = PATIENCE_MS});
    if (result.cause == CAY_CAUSE_TIMEOUT)
        harness_fail(__FILE__, __LINE__, "%s: does not end", script);
}

const char *told(cay_sandbox *sandbox, const char *script)
{
    run(sandbox, script);
    if (result.exit_code != 0)
        harness_fail(__FILE__, __LINE__, "%s: exit %d: %s", script, result.exit_code,
                     result.error);
    if (result.out_len && result.out[result.out_len - 1] == '\n')
        result.out[--result.out_len] = '\0';
    return result.out;
}

/* --- Processes --- */

const char *new_mark(void)
{
    static char mark[64];
    static int count;

    snprintf(mark, sizeof mark, "%d.%d%06d", 86400 + count++, 9, (int)getpid());
    return mark;
}

/* The mark comes in the environment, so that nobody who counts is counted. */
static int count_inside(cay_sandbox *sandbox, const char *mark)
{
    static const char script[] = "count=0\n"
                                 "for file in /proc/[0-9]*/cmdline; do\n"
                                 "    case $(tr '\\0' ' ' < $file 2>/dev/null) in\n"
                                 "    *\"$MARK\"*) count=$((count + 1)) ;;\n"
                                 "    esac\n"
                                 "done 2>/dev/null\n"
                                 "echo $count";
    char assignment[80];
    const char *const env[] = {assignment, NULL};

    snprintf(assignment, sizeof assignment, "MARK=%s", mark);
    run_with(sandbox, script,
             (struct cay_exec_options){.env = env, .timeout_ms = PATIENCE_MS});
    ASSERT_INT(result.exit_code, 0);
    return (int)strtol(result.out, NULL, 10);
}

static bool has_mark(const char *pid, const char *mark)
{
    char path[64], line[8192];

    snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    return len > 0 && memmem(line, (size_t)len, mark, strlen(mark));
}

int count_marked_here(const char *mark)
{
    DIR *directory = opendir("/proc");
    int count = 0;

    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            count += has_mark(entry->d_name, mark);
    closedir(directory);
    return count;
}

/* Programs inside may not see each other, and we not those of another machine. */
int count_marked(cay_sandbox *sandbox, const char *mark)
{
    int here = count_marked_here(mark), inside = count_inside(sandbox, mark);

    return here > inside ? here : inside;
}

void await_marked(cay_sandbox *sandbox, const char *mark, int count)
{
    uint64_t end = now_ms() + PATIENCE_MS;

    for (;;) {
        int now = count_marked(sandbox, mark);
        if (count ? now >= count : now == 0)
            return;
        if (now_ms() > end)
            harness_fail(__FILE__, __LINE__, "there are %d processes %s, not %d", now,
                         mark, count);
        rest_ms(50);
    }
}

void rest_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- Somebody else --- */

void register_act(const struct act *act)
{
    if (act_count < ACTS_MAX)
        acts[act_count++] = act;
}

void elsewhere(const char *act, const char *id, const char *argument)
{
    const char *const words[] = {"conformance", type, config_file ? config_file : "",
                                 "--act",       act,  id,
                                 argument,      NULL};
    char *argv[sizeof words / sizeof *words];
    int status = 0;
    pid_t child;

    memcpy(argv, words, sizeof argv);
    fflush(stdout);
    ASSERT_INT(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    ASSERT_INT(waitpid(child, &status, 0), child);
    if (status != 0)
        harness_fail(__FILE__, __LINE__, "%s, in another process, fails", act);
}

static int run_act(const char *name, const char *id, const char *argument)
{
    cay_sandbox *sandbox = reach(id);

    for (size_t i = 0; i < act_count; i++)
        if (strcmp(acts[i]->name, name) == 0) {
            acts[i]->run(sandbox, argument);
            cay_exec_done(&result);
            let_go(sandbox);
            cay_config_free(config);
            return 0;
        }
    printf("# there is no act %s\n", name);
    return 1;
}

/* --- The program --- */

static int load_config(void)
{
    struct cay_error error = {0};
    char text[128];
    int len = snprintf(text, sizeof text, "type: %.64s\n", type);
    int code = config_file ? cay_config_load(config_file, &config, &error)
                           : cay_config_parse(text, (size_t)len, "conformance", NULL,
                                              &config, &error);

    if (!code && strcmp(cay_config_type(config), type) == 0)
        return 0;
    fprintf(stderr, "conformance: %s: %s: %s (%s)\n", config_file ? config_file : type,
            error.subject, code ? error.message : "is of another type", error.hint);
    return 2;
}

static int remove_name(const char *path, const struct stat *st, int kind,
                       struct FTW *place)
{
    (void)st;
    (void)kind;
    (void)place;
    return remove(path);
}

/* What backends without walls wrote in an earlier run. */
static void clear_folders(void)
{
    const char *folders = getenv("FOLDERS");

    if (folders)
        (void)nftw(folders, remove_name, 16, FTW_DEPTH | FTW_PHYS);
}

/* Our own oldest kernel is older than the oldest that this one of our levels needs. */
static bool lacks_landlock(void)
{
    struct cay_error error = {0};
    cay_sandbox *sandbox = NULL;
    int code = cay_backend_create(config, &sandbox, &error);

    if (!code)
        (void)!cay_sandbox_remove(sandbox, NULL);
    cay_sandbox_free(sandbox);
    return code == CAY_E_UNAVAILABLE && strcmp(error.subject, "landlock") == 0;
}

int main(int argc, char **argv)
{
    int next = 2;

    if (argc < 2) {
        fprintf(stderr, "usage: conformance TYPE [CONFIG] [--lacks THING,...] "
                        "[PATTERN...]\n");
        return 2;
    }
    type = argv[1];
    if (next < argc && (!argv[next][0] || strchr(argv[next], '.'))) {
        config_file = argv[next][0] ? argv[next] : NULL;
        next++;
    }
    if (load_config() != 0)
        return 2;
    if (next + 4 == argc && strcmp(argv[next], "--act") == 0)
        return run_act(argv[next + 1], argv[next + 2], argv[next + 3]);
    clear_folders();
    is_left_out = strcmp(type, "native") == 0 && lacks_landlock();
    if (next + 2 <= argc && strcmp(argv[next], "--lacks") == 0) {
        expect_lack(argv[next + 1]);
        next += 2;
    }
    if (next == argc)
        harness_register("what_is_said_to_be_lacking_is_lacking", check_lacks);
    int status = harness_run(argc - next, argv + next);
    while (thing_count)
        free(things[--thing_count].name);
    cay_config_free(config);
    return status;
}
