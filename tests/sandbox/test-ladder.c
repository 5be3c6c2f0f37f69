/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes of ordinary users, level by level.  What a level cannot do it refuses, what
 * it does not keep it does not claim.  Most tests run in a process that is such a user;
 * the one it comes from is root. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/stat.h>
#include <time.h>

#include "ladder.h"

/* --- The ordinary tests, on each level --- */

static void print_as_comment(int fd)
{
    FILE *lines = fdopen(fd, "re");
    char line[1024];

    ASSERT(lines);
    while (fgets(line, sizeof line, lines))
        if (strncmp(line, "ok ", 3) != 0)
            printf("# %s", line);
    fclose(lines);
}

static void execute_as(const struct ordinary *user, const char *program, int output)
{
    char path[PATH_MAX], *argv[] = {path, NULL};
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 32);

    if (len < 0)
        _exit(3);
    path[len] = '\0';
    snprintf(strrchr(path, '/') + 1, 32, "%s", program);
    /* By descriptor: the user need not be able to go where it lies. */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || dup2(output, 1) < 0)
        _exit(4);
    become_ordinary(user);
    unsetenv("TMPDIR");
    (void)fexecve(fd, argv, environ);
    _exit(5);
}

/* Left out are tests of what the level does not have; this file has others for that. */
static void run_program(const char *program, enum cay_level level, const char *left_out)
{
    const struct ordinary *user = ordinary_user(level == CAY_LEVEL_RANGE);
    int ends[2], status;

    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        setenv("CAY_TEST_LEVEL", cay_level_slug(level), 1);
        setenv("CAY_LEAVE_OUT", left_out, 1);
        execute_as(user, program, ends[1]);
    }
    (void)close(ends[1]);
    print_as_comment(ends[0]);
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
}

/* Of test-code: what needs a memory limit, two users, and a list of processes. */
static const char without_memory[] =
    "an_interpreter_without_memory_* contexts_of_two_users_* a_service_that_was_killed_* "
    "services_that_have_ended_*";

TEST(commands_run_on_the_level_range)
{
    run_program("test-sandbox", CAY_LEVEL_RANGE, "the_memory_limit_* an_idle_sandbox_*");
    run_program("test-process", CAY_LEVEL_RANGE, "the_memory_limit_*");
    run_program("test-background", CAY_LEVEL_RANGE, "kept_output_*");
    run_program("test-terminal", CAY_LEVEL_RANGE, "");
    run_program("test-files-inside", CAY_LEVEL_RANGE, "files_are_there_while_*");
    run_program("test-files-rights", CAY_LEVEL_RANGE, "what_lies_on_the_host_*");
    run_program("test-code", CAY_LEVEL_RANGE, without_memory);
}

TEST(commands_run_on_the_level_single)
{
    run_program("test-sandbox", CAY_LEVEL_SINGLE,
                "the_memory_limit_* users_* the_working_directory_* an_idle_sandbox_*");
    run_program("test-process", CAY_LEVEL_SINGLE, "the_memory_limit_* what_cannot_*");
    run_program("test-background", CAY_LEVEL_SINGLE, "the_list_* kept_output_*");
    run_program("test-terminal", CAY_LEVEL_SINGLE, "a_command_has_* root_can_become_*");
    run_program("test-code", CAY_LEVEL_SINGLE, without_memory);
}

/* Left out: what only root can do outside, what needs a directory with files of several
 * owners, and what lies in root's own directories. */
TEST(templates_and_disks_work_on_the_level_range)
{
    run_program("test-template", CAY_LEVEL_RANGE,
                "a_directory_is_copied_* what_lies_on_other_* a_host_that_ignores_*");
    run_program("test-template-root", CAY_LEVEL_RANGE,
                "the_default_user_and_others_* a_directory_can_be_used_* "
                "an_overlay_can_be_made_* an_overlay_by_path_* kernels_that_want_paths_* "
                "one_that_has_put_a_link_*");
    run_program("test-build", CAY_LEVEL_RANGE, /* images of users have one root */
                "images_share_* the_lowest_layers_* hostile_layers_*");
    run_program("test-storage", CAY_LEVEL_RANGE,
                "one_whose_root_was_moved_* a_maker_that_died_before_* "
                "a_disk_that_is_just_* tidying_*");
}

/* Of test-pool-same: what needs root outside. */
#define BY_ROOT                                                                          \
    "a_program_with_another_seccomp_* a_program_in_other_groups_* "                      \
    "a_mount_that_is_read_only_* "

TEST(claimed_sandboxes_are_the_same_on_the_levels_with_namespaces)
{
    run_program("test-pool-same", CAY_LEVEL_RANGE, BY_ROOT);
    run_program("test-pool-same", CAY_LEVEL_SINGLE, BY_ROOT "*_to_root_inside");
}

TEST(commands_run_on_the_level_landlock)
{
    need_landlock();
    run_program(
        "test-sandbox", CAY_LEVEL_LANDLOCK,
        "a_command_runs_as_user_* a_program_that_cannot_* a_command_ends_with_* "
        "the_memory_limit_* the_limit_on_processes_* the_disk_* users_* "
        "the_working_directory_* the_environment_* the_umask_* an_idle_sandbox_*");
    run_program("test-process", CAY_LEVEL_LANDLOCK,
                "the_end_is_the_first_* the_memory_limit_* what_cannot_*");
    run_program("test-background", CAY_LEVEL_LANDLOCK,
                "so_many_run_* the_list_* kept_output_*");
    /* Its terminals are the host's, and have numbers among those. */
    run_program("test-terminal", CAY_LEVEL_LANDLOCK,
                "a_command_has_* root_can_become_* nothing_of_the_callers_* "
                "exec_can_have_a_terminal_* terminals_are_numbered_*");
    run_program("test-code", CAY_LEVEL_LANDLOCK, without_memory);
}

/* --- What is enforced, and by what --- */

TEST(root_is_told_exactly_what_is_enforced)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .cpu_percent = 150, .pids = 77, .ttl_ms = 60000};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    char ids[64];

    run(sandbox, "head -c 3000000 /dev/zero > file; sleep 100 & exit 0");
    look(sandbox);
    ASSERT_STR(info.id, cay_sandbox_id(sandbox));
    ASSERT_INT(info.state, CAY_STATE_RUNNING);
    ASSERT_INT(info.level, CAY_LEVEL_ROOT);
    ASSERT_INT(info.layers, cay_sandbox_layers(sandbox));
    snprintf(ids, sizeof ids, "user ids 0x%x+65536", info.id_base);
    ASSERT_STR(by(CAY_LAYER_USER), ids);
    ASSERT_STR(by(CAY_LAYER_NETWORK), "network namespace, loopback only");
    ASSERT_HAS(by(CAY_LAYER_MEMORY), "cgroup v");
    ASSERT_HAS(by(CAY_LAYER_PIDS), "cgroup v");
    ASSERT_HAS(by(CAY_LAYER_CPU), "cgroup v");
    ASSERT_HAS(by(CAY_LAYER_SECCOMP), " calls allowed");
    ASSERT_STR(by(CAY_LAYER_DISK), "tmpfs size");
    ASSERT_INT(info.pids, 77);
    ASSERT_INT(info.cpu_percent, 150);
    ASSERT_INT(info.memory_bytes, CAY_MEMORY_DEFAULT);
    ASSERT_STR(info.template_name, "host");
    ASSERT_STR(info.user, "user");
    ASSERT(info.ephemeral);
    ASSERT(info.ttl_left_ms > 0 && info.ttl_left_ms <= 60000);
    ASSERT(info.disk_used >= 3000000 && info.disk_used < 6000000);
    ASSERT(info.memory_used > 0 && info.cpu_us > 0);
    ASSERT(info.pids_used >= 2);
    ASSERT(kill(info.init_pid, 0) == 0);
    ASSERT(info.created_ms / 1000 > time(NULL) - 60);
    cay_exec_done(&result);
}

TEST(a_sandbox_on_the_hosts_network_does_not_claim_one_of_its_own)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .network = CAY_NETWORK_HOST};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);

    look(sandbox);
    ASSERT_STR(by(CAY_LAYER_NETWORK), "");
    ASSERT_INT(info.network, CAY_NETWORK_HOST);
}

static void expect_range(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_RANGE);

    look(sandbox);
    ASSERT_HAS(by(CAY_LAYER_USER), " of /etc/subuid");
    ASSERT_INT(info.id_count, 65536);
    ASSERT_STR(by(CAY_LAYER_PIDS), "RLIMIT_NPROC per user inside");
    ASSERT_STR(by(CAY_LAYER_MEMORY), "");
    ASSERT_STR(by(CAY_LAYER_CGROUP), "");
    ASSERT_STR(by(CAY_LAYER_DISK), "tmpfs size");
    run(sandbox, "awk '{print $1, $3}' /proc/self/uid_map; id -u; exit 0");
    ASSERT_STR(result.out, "0 1000\n1000 1\n1001 64535\n1000\n");
    run_as(sandbox, "root", "id -u; touch /root/x && stat -c %u /root/x", PATIENCE_MS);
    ASSERT_STR(result.out, "0\n0\n");
    cay_exec_done(&result);
}

TEST(a_user_with_subordinate_ids_has_all_users_inside)
{
    as_ordinary(ordinary_user(true), expect_range);
}

static void expect_single(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_SINGLE);
    char ids[64];

    look(sandbox);
    snprintf(ids, sizeof ids, "user namespace with one user id, %u", (unsigned)getuid());
    ASSERT_STR(by(CAY_LAYER_USER), ids);
    ASSERT_INT(info.id_base, getuid());
    ASSERT_INT(info.id_count, 1);
    ASSERT_STR(by(CAY_LAYER_PIDS), "RLIMIT_NPROC per user inside");
    ASSERT_STR(by(CAY_LAYER_CGROUP), "");
    run(sandbox, "id -u; cat /proc/self/uid_map | wc -l; "
                 "grep CapEff /proc/self/status | cut -f2");
    ASSERT_STR(result.out, "1000\n1\n0000000000000000\n");
    cay_exec_done(&result);
}

TEST(a_user_without_is_alone_inside)
{
    as_ordinary(ordinary_user(false), expect_single);
}

static void expect_landlock(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
    char script[128];

    look(sandbox);
    ASSERT_INT(info.layers, CAY_LAYER_SECCOMP | CAY_LAYER_LANDLOCK | CAY_LAYER_NETWORK);
    ASSERT_HAS(by(CAY_LAYER_LANDLOCK), "landlock ABI ");
    ASSERT_STR(by(CAY_LAYER_NETWORK), "seccomp: no sockets");
    ASSERT_INT(info.id_base, getuid());
    snprintf(script, sizeof script, "[ $(id -u) = %u ] && echo it is us", getuid());
    run(sandbox, script);
    ASSERT_STR(result.out, "it is us\n");
    cay_exec_done(&result);
}

TEST(without_user_namespaces_there_is_landlock_and_seccomp_and_no_more)
{
    need_landlock();
    as_ordinary(ordinary_user(false), expect_landlock);
}

/* Root's programs do not run as root even where nothing is mapped. */
TEST(root_lends_a_user_id_of_its_own_to_the_lower_levels)
{
    static const enum cay_level levels[] = {CAY_LEVEL_SINGLE, CAY_LEVEL_LANDLOCK};

    need_landlock();
    for (size_t i = 0; i < 2; i++) {
        cay_sandbox *sandbox = make_on(levels[i]);
        look(sandbox);
        ASSERT(info.id_base >= 0x70000000);
        ASSERT_INT(info.id_base & 0xFFFF, 1000);
        ASSERT_INT(info.id_count, 1);
        run(sandbox, "id -u; id -G; cat /etc/shadow 2>/dev/null | grep -c '^root:[$]'");
        ASSERT(strncmp(result.out, "0\n", 2) != 0);
        ASSERT_HAS(result.out, "\n0\n"); /* no line of the host's shadow */
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        cay_sandbox_free(sandbox);
    }
    cay_exec_done(&result);
}

/* --- Falling, and not falling --- */

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    ASSERT(file);
    ASSERT(fputs(text, file) >= 0);
    ASSERT(fclose(file) == 0);
}

/* A host whose administrator does not want user namespaces.  In it we are called root,
 * and are still nobody special. */
static void forbid_namespaces(void)
{
    char users[64], groups[64];

    snprintf(users, sizeof users, "0 %u 1", (unsigned)getuid());
    snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getgid());
    ASSERT(unshare(CLONE_NEWUSER) == 0);
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", users);
    write_text("/proc/self/gid_map", groups);
    write_text("/proc/sys/user/max_user_namespaces", "0");
}

static void fall_to_landlock(void)
{
    const struct cay_sandbox_options best = {.size = sizeof best, .ephemeral = true};
    struct cay_sandbox_options demand = best;
    cay_sandbox *sandbox = NULL;

    forbid_namespaces();
    ASSERT_OK(cay_sandbox_create(&best, &sandbox, &err));
    look(sandbox);
    ASSERT_INT(info.level, CAY_LEVEL_LANDLOCK);
    run(sandbox, "echo it runs");
    ASSERT_STR(result.out, "it runs\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
    demand.require = CAY_LAYER_PID | CAY_LAYER_MOUNT;
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "require");
    ASSERT_HAS(err.hint, "cay doctor");
    demand = best;
    demand.hostname = "elsewhere";
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "hostname");
    cay_exec_done(&result);
}

TEST(a_host_without_user_namespaces_gives_the_level_landlock)
{
    need_landlock();
    as_ordinary(ordinary_user(false), fall_to_landlock);
}

/* PID 1 finds out when it is about to begin; the command goes to the next one. */
static void fall_with_a_command(void)
{
    static const char *const argv[] = {"echo", "it runs", NULL};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    const struct cay_exec_options exec = {.size = sizeof exec, .argv = argv};
    cay_sandbox *sandbox = NULL;
    cay_process *process = NULL;

    ASSERT_OK(cay_sandbox_run(&options, &exec, &sandbox, &process, &err));
    look(sandbox);
    ASSERT_INT(info.level, CAY_LEVEL_LANDLOCK);
    ASSERT_OK(cay_process_wait(process, UINT64_MAX, &result, &err));
    ASSERT_STR(result.out, "it runs\n");
    cay_exec_done(&result);
    cay_process_free(process);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
}

TEST(a_first_command_falls_with_its_sandbox)
{
    need_landlock();
    in_own_mounts("/proc/cmdline", ordinary_user(false), fall_with_a_command);
}

static void require_layers(void)
{
    struct cay_sandbox_options demand = {.size = sizeof demand, .ephemeral = true};
    cay_sandbox *sandbox = NULL;

    demand.require = CAY_LAYER_MEMORY | CAY_LAYER_CPU | CAY_LAYER_SECCOMP;
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "require");
    ASSERT_HAS(err.hint, "missing: memory, cpu; no cgroup is delegated");
    demand.level = CAY_LEVEL_LANDLOCK;
    demand.require = CAY_LAYER_PID | CAY_LAYER_USER;
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint,
               "missing: user, pid; user namespaces are not available: run cay doctor");
    ASSERT_INT(count_names(runtime_path(), "sb-"), 0);
    demand.level = CAY_LEVEL_BEST;
    demand.require = CAY_LAYER_PID | CAY_LAYER_USER | CAY_LAYER_PIDS | CAY_LAYER_DISK |
                     CAY_LAYER_SECCOMP | CAY_LAYER_LANDLOCK;
    ASSERT_OK(cay_sandbox_create(&demand, &sandbox, &err));
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
}

TEST(a_required_layer_that_is_missing_is_an_error_that_names_it)
{
    struct cay_sandbox_options demand = {
        .size = sizeof demand, .network = CAY_NETWORK_HOST, .require = CAY_LAYER_NETWORK};
    cay_sandbox *sandbox = NULL;

    need_landlock();
    need_root();
    ASSERT_CODE(cay_sandbox_create(&demand, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "missing: network; network is set to host");
    as_ordinary(ordinary_user(false), require_layers);
}

/* --- Looking at all of them --- */

TEST(a_list_of_sandboxes_is_by_age_and_has_only_the_living)
{
    const struct timespec moment = {.tv_nsec = 3000000};
    cay_sandbox *sandboxes[3];
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, found = 0;

    for (size_t i = 0; i < 3; i++) {
        sandboxes[i] = make_sandbox(NULL);
        nanosleep(&moment, NULL);
    }
    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        if (found < 3 && strcmp(infos[i].id, cay_sandbox_id(sandboxes[found])) == 0)
            found++;
    ASSERT_INT(found, 3);
    cay_free(infos);
    ASSERT_OK(cay_sandbox_kill(sandboxes[1], &err));
    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        ASSERT(strcmp(infos[i].id, cay_sandbox_id(sandboxes[1])) != 0);
    cay_free(infos);
    ASSERT_CODE(cay_sandbox_inspect(sandboxes[1], &info, &err), CAY_E_NOT_FOUND);
    for (size_t i = 0; i < 3; i++) {
        ASSERT_OK(cay_sandbox_kill(sandboxes[i], &err));
        cay_sandbox_free(sandboxes[i]);
    }
}

static void list_nobody_elses(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_SINGLE);
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(infos[0].id, cay_sandbox_id(sandbox));
    cay_free(infos);
}

TEST(a_user_sees_its_own_sandboxes_only)
{
    AUTO(cay_sandbox) roots = make_sandbox(NULL);

    look(roots);
    as_ordinary(ordinary_user(false), list_nobody_elses);
}

TEST(a_record_that_is_not_sound_is_not_believed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char path[PATH_MAX];
    cay_sandbox *again = NULL;
    uint32_t version = 0;

    snprintf(path, sizeof path, "%s/%s", runtime_path(), cay_sandbox_id(sandbox));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ASSERT(fd >= 0);
    ASSERT(pread(fd, &version, sizeof version, 0) == sizeof version);
    uint32_t other = version + 1;
    ASSERT(pwrite(fd, &other, sizeof other, 0) == sizeof other);
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err)); /* to kill it */
    ASSERT_OK(cay_sandbox_inspect(again, &info, &err));
    ASSERT_INT(info.state, CAY_STATE_DAMAGED);
    cay_sandbox_free(again);
    ASSERT(pwrite(fd, &version, sizeof version, 0) == sizeof version);
    (void)close(fd);
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
    cay_sandbox_free(again);
}

static bool lists_two_sleeps(cay_sandbox *sandbox)
{
    struct cay_process_info *processes = NULL;
    size_t count = 0, found = 0;

    ASSERT_OK(cay_process_list(sandbox, &processes, &count, &err));
    for (size_t i = 0; i < count; i++)
        found += strncmp(processes[i].command, "sleep 100", 9) == 0;
    cay_free(processes);
    return count == 2 && found == 2;
}

/* Those between fork and exec still have other names. */
static void list_own(void)
{
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    const struct timespec moment = {.tv_nsec = 10000000};
    int tries = 0;

    run(sandbox, "sleep 1000 & (setsid sleep 1001 &); exit 0");
    while (!lists_two_sleeps(sandbox) && tries++ < 1000)
        nanosleep(&moment, NULL);
    ASSERT(tries < 1000);
    cay_exec_done(&result);
}

TEST(a_list_has_what_runs_inside_and_nothing_else)
{
    on_every_level(list_own);
}

/* --- Ids --- */

TEST(two_homes_never_share_a_range)
{
    enum { EACH = 8 };
    cay_sandbox *sandboxes[2 * EACH];
    uint32_t bases[2 * EACH];

    need_root();
    for (size_t i = 0; i < 2 * EACH; i++) {
        setenv("CAY_HOME", scratch_path(i % 2 ? "one" : "other"), 1);
        sandboxes[i] = make_sandbox(NULL);
        look(sandboxes[i]);
        bases[i] = info.id_base;
        ASSERT(bases[i] >= 0x70000000 && bases[i] < 0x7FFF0000);
        ASSERT_INT(bases[i] % 65536, 0);
        for (size_t k = 0; k < i; k++)
            ASSERT(bases[k] != bases[i]);
    }
    unsetenv("CAY_HOME");
    for (size_t i = 0; i < 2 * EACH; i++) {
        ASSERT_OK(cay_sandbox_kill(sandboxes[i], &err));
        cay_sandbox_free(sandboxes[i]);
    }
}

static void share_own_files(void)
{
    char source[128], file[160];
    snprintf(source, sizeof source, "%s/shared", getenv("XDG_RUNTIME_DIR"));
    ASSERT(mkdir(source, 0700) == 0);
    const struct cay_bind bind = {source, "/mnt", true};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .level = level_here, .binds = &bind, .bind_count = 1};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    struct stat st;

    run(sandbox, "echo text > /mnt/file && stat -c %U /mnt/file");
    ASSERT_STR(result.out, "user\n");
    snprintf(file, sizeof file, "%s/file", source);
    ASSERT(stat(file, &st) == 0);
    ASSERT_INT(st.st_uid, getuid());
    ASSERT(unlink(file) == 0 && rmdir(source) == 0);
    cay_exec_done(&result);
}

TEST(what_a_user_shows_inside_belongs_to_user_there)
{
    on_level(CAY_LEVEL_RANGE, share_own_files);
    on_level(CAY_LEVEL_SINGLE, share_own_files);
}

/* --- What stays outside --- */

static void find_in(pid_t pid, const char *what)
{
    char path[64], link[320], target[256];

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    ASSERT(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        snprintf(link, sizeof link, "%s/%s", path, entry->d_name);
        ssize_t len = readlink(link, target, sizeof target - 1);
        target[len > 0 ? len : 0] = '\0';
        if (strstr(target, what))
            harness_fail(__FILE__, __LINE__, "%d has %s", (int)pid, target);
    }
    closedir(directory);
}

/* Init, and without a PID namespace the command by its number too. */
TEST(the_callers_terminal_and_log_file_do_not_go_inside)
{
    static const enum cay_level levels[] = {CAY_LEVEL_ROOT, CAY_LEVEL_SINGLE,
                                            CAY_LEVEL_LANDLOCK};
    int log = open(scratch_path("the.log"), O_RDWR | O_CREAT | O_APPEND, 0600);
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    const char *const argv[] = {"sleep", "1000", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .flags = CAY_EXEC_BACKGROUND};

    need_landlock();
    need_root();
    ASSERT(log >= 0 && terminal >= 0);
    for (size_t i = 0; i < 3; i++) {
        cay_process *process = NULL;
        cay_sandbox *sandbox = make_on(levels[i]);
        ASSERT_OK(cay_process_start(sandbox, &options, &process, &err));
        look(sandbox);
        find_in(info.init_pid, "the.log");
        find_in(info.init_pid, "/dev/ptmx");
        if (levels[i] == CAY_LEVEL_LANDLOCK) {
            find_in(cay_process_pid(process), "the.log");
            find_in(cay_process_pid(process), "ptmx");
        }
        ASSERT(getsid(info.init_pid) != getsid(0));
        cay_process_free(process);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        cay_sandbox_free(sandbox);
    }
    (void)close(log);
    (void)close(terminal);
    ASSERT_STR(get_file("the.log"), "");
}

/* --- The runtime directory --- */

static void use_fallback(void)
{
    char path[64];
    struct stat st;

    unsetenv("XDG_RUNTIME_DIR");
    snprintf(path, sizeof path, "/tmp/cay-%u", (unsigned)getuid());
    cay_sandbox *sandbox = make_on(CAY_LEVEL_SINGLE);
    ASSERT(lstat(path, &st) == 0 && S_ISDIR(st.st_mode));
    ASSERT_INT(st.st_mode & 0777, 0700);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
    ASSERT(rmdir(path) == 0);
    /* Not what somebody else has put there. */
    ASSERT(symlink(scratch(), path) == 0);
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .level = CAY_LEVEL_SINGLE};
    int code = cay_sandbox_create(&options, &sandbox, &err);
    ASSERT(unlink(path) == 0);
    ASSERT(rmdir(scratch()) == 0);
    ASSERT_INT(code, CAY_E_UNAVAILABLE);
    ASSERT_HAS(err.message, "does not belong to this user alone");
}

TEST(without_a_runtime_directory_there_is_a_private_one)
{
    as_ordinary(ordinary_user(false), use_fallback);
}
