/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes on disk: stopped, started again and removed. */
#include "templates.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "native/record/runtime.h"

static cay_sandbox *make_on_disk(struct cay_sandbox_options *options)
{
    cay_sandbox *sandbox = NULL;

    options->size = sizeof *options;
    options->storage = CAY_STORAGE_DISK;
    options->ephemeral = true; /* a test that fails leaves nothing that runs */
    ASSERT_OK(cay_sandbox_create(options, &sandbox, &err));
    return sandbox;
}

static size_t count_stored(void)
{
    size_t names = count_names(scratch_path("home/sandboxes"), "");

    return names ? names - 2 : 0;
}

static void assert_survives(const char *template_name)
{
    struct cay_sandbox_options options = {.template_name = template_name,
                                          .hostname = "box"};
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);

    run(sandbox, "echo mine > ~/file; chmod 600 ~/file; mkdir ~/dir; echo x > /tmp/x; "
                 "echo shm > /dev/shm/x");
    ASSERT_INT(result.exit_code, 0);
    run_as(sandbox, "root",
           "echo 'worker:x:1001:1001::/home/worker:/bin/sh' >> /etc/passwd; "
           "mkdir -p /srv/new /etc/gone; echo root > /srv/new/file; rm -r /etc/gone; "
           "mkdir /home/worker && chown 1001 /home/worker",
           PATIENCE_MS);
    ASSERT_STR(result.error, "");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox,
        "cat ~/file; stat -c '%a %U' ~/file ~/dir /srv/new; cat /tmp/x; "
        "cat /srv/new/file; ls -d /etc/gone /dev/shm/x; hostname; cat /etc/hostname");
    ASSERT_STR(result.out, "mine\n600 user\n755 user\n755 root\nx\nroot\nbox\nbox\n");
    run_as(sandbox, "worker", "id -u; cd; pwd; touch here && stat -c %U here",
           PATIENCE_MS);
    ASSERT_STR(result.out, "1001\n/home/worker\nworker\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_INT(count_stored(), 0);
}

TEST(what_was_written_on_the_hosts_view_survives)
{
    use_own_home();
    assert_survives(NULL);
}

TEST(what_was_written_over_a_template_survives)
{
    use_own_home();
    make_template("tar");
    assert_survives("tiny");
    ASSERT_STR(get_file("home/templates/tiny/root/etc/motd"), "lower\n");
}

TEST(changes_of_a_template_are_seen_again)
{
    struct cay_sandbox_options options = {.template_name = "tiny"};

    use_own_home();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    run_as(sandbox, "root",
           "rm /etc/motd; rm -r /srv; mkdir /srv; mv /opt/hidden /opt/shown; "
           "chown 5 /opt/shown; rm /etc/hosts",
           PATIENCE_MS);
    ASSERT_STR(result.error, "");
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        ASSERT_OK(cay_sandbox_start(sandbox, &err));
        run(sandbox, "ls /etc/motd; ls /srv /opt; stat -c '%u %g' /opt/shown; "
                     "cat /etc/hosts | head -c 9");
        ASSERT_STR(result.out, "/opt:\nshown\n\n/srv:\n5 0\n127.0.0.1");
    }
    ASSERT_CODE(cay_template_remove("tiny", &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    /* It could not be started any more. */
    ASSERT_CODE(cay_template_remove("tiny", &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_OK(cay_template_remove("tiny", &err));
}

TEST(a_stopped_sandbox_is_found_by_its_id_and_runs_nothing)
{
    struct cay_sandbox_options options = {0};
    const char *const argv[] = {"true", NULL};
    const struct cay_exec_options command = {.size = sizeof command, .argv = argv};
    cay_sandbox *found = NULL;
    char id[CAY_ID_MAX];

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    memcpy(id, cay_sandbox_id(sandbox), sizeof id);
    run(sandbox, "echo x > ~/file");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_CODE(cay_sandbox_exec(sandbox, &command, &result, &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_open(id, &found, &err));
    AUTO(cay_sandbox) other = found;
    ASSERT_STR(cay_sandbox_id(other), id);
    ASSERT_CODE(cay_sandbox_exec(other, &command, &result, &err), CAY_E_BUSY);
    cay_files *none = NULL;
    cay_process *nobody = NULL;
    ASSERT_CODE(cay_sandbox_files(other, NULL, &none, &err), CAY_E_BUSY);
    ASSERT_CODE(cay_process_start(other, &command, &nobody, &err), CAY_E_BUSY);
    ASSERT_CODE(cay_sandbox_pause(other, &err), CAY_E_BUSY);
    ASSERT_CODE(cay_sandbox_resume(other, &err), CAY_E_BUSY);
    ASSERT_CODE(cay_sandbox_set_ttl(other, 1000, &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_start(other, &err));
    ASSERT_OK(cay_sandbox_start(other, &err));
    run(other, "cat ~/file");
    ASSERT_STR(result.out, "x\n");
    /* The first handle sees that somebody else has started it. */
    run(sandbox, "cat ~/file");
    ASSERT_STR(result.out, "x\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_kill(other, &err));
    ASSERT_OK(cay_sandbox_remove(other, &err));
    ASSERT_CODE(cay_sandbox_start(sandbox, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_sandbox_open(id, &found, &err), CAY_E_NOT_FOUND);
}

TEST(a_sandbox_starts_with_the_options_it_was_made_with)
{
    use_own_home();
    put_file("shared/file", "host\n");
    put_file("other/file", "other\n");
    char shared[PATH_MAX];
    snprintf(shared, sizeof shared, "%s", scratch_path("shared"));
    const char *const env[] = {"OWN=value", "BYTES=\xff\n=\xc3\xa4", "EMPTY=", NULL};
    const struct cay_bind binds[] = {{shared, "/src", true},
                                     {scratch_path("other"), "/other", false}};
    struct cay_sandbox_options options = {
        .env = env, .binds = binds, .bind_count = 2, .pids = 77};
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "echo $OWN; cat /src/file; touch /src/new && echo made; "
                 "cat /other/file; touch /other/new || echo not; echo \"$BYTES$EMPTY\"");
    ASSERT_STR(result.out, "value\nhost\nmade\nother\nnot\n\xff\n=\xc3\xa4\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_STR(get_file("shared/new"), "");
}

TEST(one_whose_root_was_moved_about_starts_again)
{
    struct cay_sandbox_options options = {0};

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    run_as(sandbox, "root",
           "mkdir /new && cp -a /etc/passwd /etc/group /etc/shadow /new && mv /etc /old "
           "&& mv /new /etc",
           PATIENCE_MS);
    ASSERT_STR(result.error, "");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "id -un; test -d /etc/ssl && test -d /etc/.host && echo shown");
    ASSERT_STR(result.out, "user\nshown\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

/* Whatever root inside has put there, what it has can be reached again. */
static void spoil(struct cay_sandbox_options *options, const char *script)
{
    AUTO(cay_sandbox) sandbox = make_on_disk(options);
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.error, "");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run_as(sandbox, "0", "echo alive", PATIENCE_MS);
    ASSERT_STR(result.out, "alive\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(one_whose_root_is_spoiled_starts_again)
{
    static const char *const scripts[] = {
        "mv /etc /old && touch /etc", "mv /etc /old && ln -s etc /etc",
        "rm -f /etc/hosts && mkdir /etc/hosts", "mv /var /old && ln -s /nowhere /var",
        "mv /home /old && touch /home"};
    struct cay_sandbox_options host = {0}, tiny = {.template_name = "tiny"};

    use_own_home();
    make_template("tar");
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        spoil(&host, scripts[i]);
        spoil(&tiny, scripts[i]);
    }
}

TEST(options_that_are_none_are_told_as_damaged)
{
    static const char *const texts[] = {"", "version=1", "{}", "version=2"};
    struct cay_sandbox_options options = {0};
    char name[128];

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    snprintf(name, sizeof name, "home/sandboxes/%s/options", cay_sandbox_id(sandbox));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put_file(name, texts[i]);
        ASSERT_CODE(cay_sandbox_start(sandbox, &err), CAY_E_IO);
        ASSERT_HAS(err.message, "damaged");
    }
    cay_sandbox *again = NULL;
    ASSERT_OK(cay_sandbox_open(cay_sandbox_id(sandbox), &again, &err));
    ASSERT_CODE(cay_sandbox_start(again, &err), CAY_E_IO);
    ASSERT_OK(cay_sandbox_remove(again, &err));
    cay_sandbox_free(again);
    ASSERT_INT(count_stored(), 0);
}

TEST(a_sandbox_is_opened_by_its_name_until_it_is_removed)
{
    struct cay_sandbox_options options = {.name = "test-storage.name"};
    struct cay_sandbox_info info;
    cay_sandbox *other = NULL;

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    ASSERT_CODE(cay_sandbox_create(&options, &other, &err), CAY_E_EXISTS);
    ASSERT_HAS(err.message, cay_sandbox_id(sandbox));
    for (int stopped = 0; stopped < 2; stopped++) {
        ASSERT_OK(cay_sandbox_open(options.name, &other, &err));
        ASSERT_STR(cay_sandbox_id(other), cay_sandbox_id(sandbox));
        ASSERT_OK(cay_sandbox_inspect(other, &info, &err));
        ASSERT_STR(info.name, options.name);
        ASSERT_INT(info.state, stopped ? CAY_STATE_STOPPED : CAY_STATE_RUNNING);
        ASSERT_OK(cay_sandbox_kill(other, &err));
        cay_sandbox_free(other);
    }
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    ASSERT_CODE(cay_sandbox_create(&options, &other, &err), CAY_E_EXISTS);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_CODE(cay_sandbox_open(options.name, &other, &err), CAY_E_NOT_FOUND);
    options.name = "sb-abc";
    ASSERT_CODE(cay_sandbox_create(&options, &other, &err), CAY_E_INVALID);
}

TEST(a_limit_that_nothing_keeps_is_refused)
{
    struct cay_sandbox_options options = {
        .size = sizeof options, .storage = CAY_STORAGE_DISK, .disk_bytes = 1 << 20};
    cay_sandbox *sandbox = NULL;

    use_own_home();
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err),
                geteuid() == 0 ? CAY_E_INVALID : CAY_E_UNSUPPORTED);
    options.disk_bytes = 0;
    options.require = CAY_LAYER_DISK;
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_INT(count_stored(), 0);
    options.require = 0;
    AUTO(cay_sandbox) made = make_on_disk(&options);
    ASSERT(!(cay_sandbox_layers(made) & CAY_LAYER_DISK));
    ASSERT_OK(cay_sandbox_remove(made, &err));
}

TEST(one_whose_time_is_over_is_stopped)
{
    struct cay_sandbox_options options = {.ttl_ms = 3000};
    const char *const argv[] = {"sleep", "20", NULL};
    const struct cay_exec_options command = {.size = sizeof command, .argv = argv};

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    cay_exec_done(&result);
    (void)!cay_sandbox_exec(sandbox, &command, &result, &err);
    ASSERT_INT(result.cause, CAY_CAUSE_GONE);
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 0, &err));
    run(sandbox, "echo again");
    ASSERT_STR(result.out, "again\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

/* A kill must not remove the files of the sandbox that was started meanwhile. */
TEST(one_that_is_killed_and_started_at_once_is_never_lost)
{
    struct cay_sandbox_options options = {0};
    char id[CAY_ID_MAX];

    use_own_home();
    cay_sandbox *sandbox = make_on_disk(&options);
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    for (int i = 0; i < 60; i++) {
        cay_sandbox *other = NULL;
        ASSERT_OK(cay_sandbox_open(id, &other, &err));
        pid_t killer = fork();
        if (killer == 0)
            _exit(cay_sandbox_kill(other, NULL) != CAY_OK);
        const struct timespec moment = {.tv_nsec = 37000 * (i % 40)};
        nanosleep(&moment, NULL);
        ASSERT_OK(cay_sandbox_start(sandbox, &err));
        int status;
        ASSERT(waitpid(killer, &status, 0) == killer && status == 0);
        cay_sandbox_free(other);
        ASSERT_OK(cay_sandbox_start(sandbox, &err));
        run(sandbox, "echo alive");
        ASSERT_STR(result.out, "alive\n");
    }
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    cay_sandbox_free(sandbox);
    ASSERT_INT(count_names(runtime_path(), id), 0);
    ASSERT_INT(count_groups(id), 0);
}

/* Neither may it live on without its disk, nor may anything of it be left. */
TEST(one_that_is_removed_while_it_is_started_is_gone)
{
    struct cay_sandbox_options options = {0};
    char id[CAY_ID_MAX], record[PATH_MAX];

    use_own_home();
    for (int i = 0; i < 10; i++) {
        cay_sandbox *sandbox = make_on_disk(&options);
        snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
        snprintf(record, sizeof record, "%s/%s", runtime_path(), id);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        pid_t starter = fork();
        if (starter == 0) {
            (void)!cay_sandbox_start(sandbox, NULL);
            (void)sleep(PATIENCE_MS / 1000); /* it would end with us */
            _exit(1);
        }
        while (access(record, F_OK) != 0)
            continue;
        ASSERT_OK(cay_sandbox_remove(sandbox, &err));
        cay_sandbox_free(sandbox);
        ASSERT_INT(count_names(runtime_path(), id), 0);
        ASSERT_INT(count_groups(id), 0);
        ASSERT_INT(count_stored(), 0);
        ASSERT(kill(starter, SIGKILL) == 0 && waitpid(starter, NULL, 0) == starter);
    }
}

/* By who has it open, whatever became of its record. */
TEST(one_whose_record_is_damaged_or_gone_can_be_ended)
{
    const char *const argv[] = {"true", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    char path[PATH_MAX], record[4096];
    size_t count;
    ssize_t len = 0;

    for (int gone = 0; gone < 2; gone++) {
        cay_sandbox *sandbox = make_sandbox(NULL);
        snprintf(path, sizeof path, "%s/%s", runtime_path(), cay_sandbox_id(sandbox));
        int fd = open(path, O_RDWR | O_CLOEXEC);
        len = fd < 0 ? -1 : read(fd, record, sizeof record);
        ASSERT(len > 0);
        ASSERT(gone ? unlink(path) == 0 : pwrite(fd, "????", 4, 0) == 4);
        (void)close(fd);
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_NOT_FOUND);
        cay_sandbox_free(sandbox);
        ASSERT(access(path, F_OK) != 0);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && write(fd, record, (size_t)len) == len);
    (void)close(fd);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT(access(path, F_OK) != 0);
}

TEST(a_socket_without_a_record_is_in_nobodys_way)
{
    struct cay_sandbox_options options = {0};
    char path[PATH_MAX];

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    snprintf(path, sizeof path, "%s/%s.control", runtime_path(), cay_sandbox_id(sandbox));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ASSERT(fd >= 0);
    (void)close(fd);
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT(access(path, F_OK) != 0);
}

TEST(a_sandbox_in_memory_cannot_be_started_again)
{
    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_CODE(cay_sandbox_start(sandbox, &err), CAY_E_UNSUPPORTED);
}

/* Its end may be seen at once or a moment later; its disk is there either way. */
TEST(one_that_ends_by_itself_is_stopped)
{
    struct cay_sandbox_options options = {0};
    struct cay_sandbox_info info;
    size_t ended;

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    run(sandbox, "echo kept > ~/file; sync");
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
        struct pollfd end = {(int)syscall(SYS_pidfd_open, info.init_pid, 0), POLLIN, 0};
        ASSERT(kill(info.init_pid, SIGKILL) == 0);
        ASSERT(poll(&end, 1, PATIENCE_MS) == 1);
        ASSERT(close(end.fd) == 0);
        if (i > 0) {
            ASSERT_OK(cay_sandbox_kill(sandbox, &err));
            ASSERT_OK(cay_sandbox_collect(&ended, &err));
        }
        ASSERT_OK(cay_sandbox_start(sandbox, &err));
        run(sandbox, "cat ~/file");
        ASSERT_STR(result.out, "kept\n");
    }
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_INT(count_stored(), 0);
}

TEST(what_a_crash_left_on_disk_is_collected)
{
    struct cay_sandbox_options options = {0};
    size_t count;

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    put_file("home/sandboxes/sb-aaaaaaaaaaaaaaaa/disk/upper/x", "x");
    put_file("home/sandboxes/.old-0123456789abcdef/sb-a/disk/upper/x", "x");
    ASSERT_INT(count_stored(), 3);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT(count >= 2);
    ASSERT_INT(count_stored(), 1);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

/* In a process of its own, which says so when it is done. */
static pid_t begin_making(bool ephemeral, int *ret_done)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .storage = CAY_STORAGE_DISK, .ephemeral = ephemeral};
    cay_sandbox *sandbox = NULL;
    int ends[2];

    ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        ASSERT_OK(cay_sandbox_create(&options, &sandbox, &err));
        (void)!write(ends[1], "", 1);
        pause();
        _exit(0);
    }
    ASSERT(close(ends[1]) == 0);
    *ret_done = ends[0];
    return pid;
}

/* Until what the dead one started is dead, too. */
static void collect_until_quiet(void)
{
    size_t count = 1;

    for (int quiet = 0; quiet < 3; quiet = count ? 0 : quiet + 1) {
        ASSERT_OK(cay_sandbox_collect(&count, &err));
        usleep(20000);
    }
}

TEST(a_maker_that_dies_at_any_moment_leaves_what_can_be_collected)
{
    use_own_home();
    for (int i = 0; i < 24; i++) {
        AUTO_FD done = -1;
        pid_t pid = begin_making(false, &done);
        usleep((useconds_t)i * 400);
        ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        char byte;
        bool was_made = read(done, &byte, 1) == 1;
        collect_until_quiet();
        /* What is left can be removed, and is whole if the maker could say so. */
        ASSERT(count_stored() <= 1 && (count_stored() == 1 || !was_made));
        DIR *directory = opendir(scratch_path("home/sandboxes"));
        for (struct dirent *entry; directory && (entry = readdir(directory));) {
            cay_sandbox *sandbox = NULL;
            if (entry->d_name[0] == '.')
                continue;
            ASSERT_OK(cay_sandbox_open(entry->d_name, &sandbox, &err));
            if (was_made) {
                ASSERT_OK(cay_sandbox_kill(sandbox, &err));
                ASSERT_OK(cay_sandbox_start(sandbox, &err));
            }
            ASSERT_OK(cay_sandbox_remove(sandbox, &err));
            cay_sandbox_free(sandbox);
        }
        if (directory)
            closedir(directory);
    }
    ASSERT_INT(count_stored(), 0);
}

TEST(what_dies_with_its_maker_leaves_no_disk)
{
    use_own_home();
    for (int i = 0; i < 24; i++) {
        AUTO_FD done = -1;
        pid_t pid = begin_making(true, &done);
        usleep((useconds_t)i * 400);
        ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        for (int k = 0; k < PATIENCE_MS / 10 && count_stored(); k++)
            collect_until_quiet();
        ASSERT_INT(count_stored(), 0);
    }
}

/* The first bytes of a sandbox's record. */
static void copy_start(const char *id, const char *path, size_t len)
{
    char from[PATH_MAX], record[4096];

    snprintf(from, sizeof from, "%s/%s", runtime_path(), id);
    int source = open(from, O_RDONLY | O_CLOEXEC);
    ASSERT(source >= 0 && read(source, record, sizeof record) > (ssize_t)len);
    (void)close(source);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && write(fd, record, len) == (ssize_t)len);
    (void)close(fd);
}

TEST(a_maker_that_died_before_its_record_is_forgotten_after_a_while)
{
    static const char file[] = "/run/cay/sb-testaaaaaaaaaaaa";
    static const char range[] = "/run/cay/ranges/test";
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    /* As if the clock had been set back since. */
    const struct timespec ahead[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};
    size_t count;

    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    for (size_t part = 0; part <= 512; part += 256) { /* written of it so far */
        copy_start(cay_sandbox_id(sandbox), file, part);
        ASSERT(symlink(file + 9, range) == 0);
        ASSERT_OK(cay_sandbox_collect(&count, &err));
        ASSERT(access(file, F_OK) == 0);
        ASSERT(utimensat(AT_FDCWD, file, part == 512 ? ahead : old, 0) == 0);
        ASSERT_OK(cay_sandbox_collect(&count, &err));
        struct stat st;
        ASSERT(access(file, F_OK) != 0 && lstat(range, &st) != 0);
    }
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
}

/* Its maker has the record's lock, and has not come to the disk's: gc must not be faster.
 */
TEST(a_disk_that_is_just_being_made_is_left_alone)
{
    static const char file[] = "/run/cay/sb-testbbbbbbbbbbbb";
    struct cay_sandbox_options options = {0};
    size_t count;

    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on_disk(&options);
    copy_start(cay_sandbox_id(sandbox), file, 0);
    put_file("home/sandboxes/sb-testbbbbbbbbbbbb/disk/upper/x", "x");
    int lock = runtime_lock(file + 9);
    ASSERT(lock >= 0);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_INT(count_stored(), 2);
    (void)close(lock);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_INT(count_stored(), 1);
    ASSERT(unlink(file) == 0);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(tidying_looks_once_in_a_second_and_not_for_every_start)
{
    static const char file[] = "/run/cay/sb-testaaaaaaaaaaab";
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_nsec = UTIME_OMIT}};
    struct timespec ahead[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    struct timespec mtime[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};

    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    copy_start(cay_sandbox_id(sandbox), file, 0);
    ASSERT(utimensat(AT_FDCWD, file, mtime, 0) == 0);
    clock_gettime(CLOCK_REALTIME, &ahead[0]);
    ASSERT(utimensat(AT_FDCWD, "/run/cay", ahead, 0) == 0);
    cay_sandbox_tidy();
    if (access(file, F_OK) != 0) { /* a second went by just now */
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        ASSERT(now.tv_sec > ahead[0].tv_sec);
        copy_start(cay_sandbox_id(sandbox), file, 0);
        ASSERT(utimensat(AT_FDCWD, file, mtime, 0) == 0);
    }
    ASSERT(utimensat(AT_FDCWD, "/run/cay", old, 0) == 0);
    cay_sandbox_tidy();
    ASSERT(access(file, F_OK) != 0);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
}

/* Records that their creators left empty, long ago. */
static void leave_records(unsigned count)
{
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char path[64];

    for (unsigned i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/run/cay/sb-testcccccccccc%c%c", 'a' + i / 26,
                 'a' + i % 26);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        ASSERT(fd >= 0 && futimens(fd, old) == 0);
        (void)close(fd);
    }
}

static size_t count_left(void)
{
    return count_names("/run/cay", "sb-testcccccccccc");
}

TEST(tidying_checks_a_part_of_many_sandboxes_and_a_collect_all)
{
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_nsec = UTIME_OMIT}};
    size_t count, left = 300;

    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    leave_records(300);
    for (int i = 0; i < 3; i++) { /* most of 32 that are drawn are of these */
        ASSERT(utimensat(AT_FDCWD, "/run/cay", old, 0) == 0);
        cay_sandbox_tidy();
        ASSERT(count_left() < left && count_left() + 32 >= left);
        left = count_left();
    }
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_INT(count_left(), 0);
    leave_records(20); /* so few that all are checked */
    ASSERT(utimensat(AT_FDCWD, "/run/cay", old, 0) == 0);
    cay_sandbox_tidy();
    ASSERT_INT(count_left(), 0);
    run(sandbox, "echo alive");
    ASSERT_STR(result.out, "alive\n");
}

static void end_by_itself(cay_sandbox *sandbox)
{
    struct cay_sandbox_info info;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(kill(info.init_pid, SIGKILL), 0);
    for (int i = 0; i < PATIENCE_MS && runtime_is_running(cay_sandbox_id(sandbox)); i++)
        usleep(1000);
}

TEST(the_name_of_a_sandbox_that_has_ended_is_free_before_a_collect)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .name = "test-ended"};
    cay_sandbox *other = NULL;

    need_root();
    AUTO(cay_sandbox) first = make_sandbox(&options);
    ASSERT_CODE(cay_sandbox_create(&options, &other, &err), CAY_E_EXISTS);
    end_by_itself(first);
    ASSERT_CODE(cay_sandbox_open("test-ended", &other, &err), CAY_E_NOT_FOUND);
    AUTO(cay_sandbox) second = make_sandbox(&options);
    ASSERT_CODE(cay_sandbox_open(cay_sandbox_id(first), &other, &err), CAY_E_NOT_FOUND);
    ASSERT_INT(count_names(runtime_path(), cay_sandbox_id(first)), 0);
    ASSERT_OK(cay_sandbox_open("test-ended", &other, &err));
    ASSERT_STR(cay_sandbox_id(other), cay_sandbox_id(second));
    cay_sandbox_free(other);
    ASSERT_OK(cay_sandbox_kill(second, &err));
}
