/* SPDX-License-Identifier: Apache-2.0 */

/* Snapshots: files of sandboxes that outlive them. */
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cay/snapshot.h"
#include "inside.h"
#include "native/template/template.h"
#include "templates.h"

/* Checkpoints, which a snapshot begins with, need Linux 6.15. */
static void need_store(void)
{
    use_own_home();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct cay_checkpoint checkpoint;
    int code = cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err);
    if (code == CAY_E_UNSUPPORTED)
        SKIP("this kernel or this user has no checkpoints");
    ASSERT_OK(code);
}

static int try_snapshot(cay_sandbox *sandbox, const char *checkpoint, const char *name)
{
    const struct cay_snapshot_options options = {
        .size = sizeof options, .name = name, .checkpoint = checkpoint};

    return cay_snapshot_create(sandbox, &options, NULL, &err);
}

static cay_sandbox *make_from(const char *name, enum cay_storage storage)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .from = name, .storage = storage};

    return make_sandbox(&options);
}

static cay_sandbox *make_over(const char *template_name, enum cay_storage storage)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .template_name = template_name, .storage = storage};

    return make_sandbox(&options);
}

static void expect_output(cay_sandbox *sandbox, const char *script, const char *text)
{
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.out, text);
}

static struct cay_snapshot_info inspect(const char *name)
{
    struct cay_snapshot_info info = {0};

    ASSERT_OK(cay_snapshot_inspect(name, &info, &err));
    return info;
}

static size_t count_snapshots(void)
{
    struct cay_snapshot_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_snapshot_list(&infos, &count, &err));
    cay_free(infos);
    return count;
}

/* --- Files --- */

static const char changes[] =
    "mkdir -p /data/new /srv; echo one > /data/new/file; chmod 640 /data/new/file;"
    "chown 1000:1000 /data/new/file; ln /data/new/file /data/hard;"
    "ln -s new/file /data/soft; chmod 1777 /data; rm -rf /etc/motd; echo x > /root/gone";

/* Without the number of links: those of files on disk are also those of snapshots. */
static const char look[] =
    "cd /data; ls -ldn . * new/* | awk '{ print $1, $3, $4, $9, $10, $11 }';"
    "cat new/file; ls /root; ls -d /etc/motd 2>&1 | sed s/.*motd//";

/* A sandbox of a snapshot has the same files, however often it was copied. */
static void store_and_return(const char *template_name, enum cay_storage storage)
{
    char before[2048];

    need_store();
    AUTO(cay_sandbox) first = make_over(template_name, storage);
    run_as(first, "root", changes, PATIENCE_MS);
    ASSERT_OK(cay_sandbox_checkpoint(first, NULL, &(struct cay_checkpoint){0}, &err));
    run_as(first, "root", "rm /root/gone", PATIENCE_MS);
    ASSERT_OK(try_snapshot(first, "1", "early"));
    ASSERT_OK(try_snapshot(first, NULL, "late:1"));
    run_as(first, "root", look, PATIENCE_MS);
    snprintf(before, sizeof before, "%s", result.out);
    run_as(first, "root", "echo two > /data/new/file", PATIENCE_MS);
    ASSERT_OK(cay_sandbox_remove(first, &err));

    AUTO(cay_sandbox) second = make_from("late:1", storage);
    expect_output(second, look, before);
    expect_output(second, "ls -i /data/hard /data/new/file | sort -u -k1,1 | wc -l",
                  "1\n");
    run_as(second, "root", "echo three > /data/new/file; rm /data/soft", PATIENCE_MS);
    AUTO(cay_sandbox) other = make_from("late:1", CAY_STORAGE_MEMORY);
    expect_output(other, look, before);
    AUTO(cay_sandbox) early = make_from("early", CAY_STORAGE_MEMORY);
    expect_output(early, "cat /root/gone /data/new/file", "x\none\n");

    ASSERT_OK(try_snapshot(second, NULL, "next"));
    ASSERT_OK(cay_sandbox_remove(second, &err));
    ASSERT_OK(cay_sandbox_remove(other, &err));
    ASSERT_OK(cay_sandbox_remove(early, &err));
    ASSERT_OK(cay_snapshot_remove("late:1", &err));
    ASSERT_OK(cay_snapshot_remove("early", &err));
    AUTO(cay_sandbox) third = make_from("next", CAY_STORAGE_MEMORY);
    expect_output(third, "cat /data/new/file; ls /data", "three\nhard\nnew\n");
    ASSERT_OK(cay_sandbox_remove(third, &err));
    ASSERT_OK(cay_snapshot_remove("next", &err));
    ASSERT_INT(count_snapshots(), 0);
}

TEST(a_snapshot_has_the_files_of_a_sandbox_of_host)
{
    store_and_return(NULL, CAY_STORAGE_MEMORY);
}

TEST(a_snapshot_has_the_files_of_a_sandbox_of_host_on_disk)
{
    store_and_return("host", CAY_STORAGE_DISK);
}

TEST(a_snapshot_has_the_files_of_a_sandbox_of_base)
{
    store_and_return("base", CAY_STORAGE_MEMORY);
}

TEST(a_snapshot_has_the_files_of_a_sandbox_of_base_on_disk)
{
    store_and_return("base", CAY_STORAGE_DISK);
}

TEST(a_snapshot_has_the_files_over_a_template)
{
    need_store();
    make_template("tar");
    store_and_return("tiny", CAY_STORAGE_MEMORY);
    ASSERT_OK(cay_template_remove("tiny", &err));
}

TEST(a_snapshot_has_the_files_over_a_template_on_disk)
{
    need_store();
    make_template("tar");
    store_and_return("tiny", CAY_STORAGE_DISK);
}

TEST(a_snapshot_of_base_has_the_changed_usr)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_over("base", CAY_STORAGE_MEMORY);
    run_as(sandbox, "root", "echo x > /usr/local/new; rm /usr/bin/cut", PATIENCE_MS);
    ASSERT_OK(try_snapshot(sandbox, NULL, "s"));
    AUTO(cay_sandbox) other = make_from("s", CAY_STORAGE_MEMORY);
    expect_output(other, "cat /usr/local/new; ls /usr/bin/cut 2>/dev/null", "x\n");
    run_as(other, "root", "rm /usr/local/new; echo y > /usr/bin/cut", PATIENCE_MS);
    struct cay_checkpoint checkpoint;
    ASSERT_OK(cay_sandbox_checkpoint(other, NULL, &checkpoint, &err));
    expect_output(other, "cat /usr/bin/cut; ls /usr/local/new 2>/dev/null", "y\n");
    ASSERT_OK(try_snapshot(other, NULL, "t"));
    AUTO(cay_sandbox) third = make_from("t", CAY_STORAGE_DISK);
    ASSERT_OK(cay_sandbox_kill(third, &err));
    ASSERT_OK(cay_sandbox_start(third, &err));
    expect_output(third, "cat /usr/bin/cut; ls /usr/local/new 2>/dev/null", "y\n");
    ASSERT_OK(cay_sandbox_remove(third, &err));
}

TEST(a_snapshot_of_a_stopped_sandbox_does_not_change_with_it)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_over("host", CAY_STORAGE_DISK);
    run(sandbox, "echo one > ~/file");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_CODE(try_snapshot(sandbox, "1", "s"), CAY_E_BUSY);
    ASSERT_OK(try_snapshot(sandbox, NULL, "s"));
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "echo two >> ~/file");
    AUTO(cay_sandbox) other = make_from("s", CAY_STORAGE_MEMORY);
    expect_output(other, "cat ~user/file", "one\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(a_snapshot_removes_no_file_of_the_host_by_a_link_in_place_of_etc)
{
    char script[512];

    need_store();
    put_file("canary/hosts", "alive\n");
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_over("tiny", CAY_STORAGE_MEMORY);
    snprintf(script, sizeof script, "rm -rf /etc && ln -s %s /etc",
             scratch_path("canary"));
    run_as(sandbox, "root", script, PATIENCE_MS);
    (void)!try_snapshot(sandbox, NULL, "s");
    ASSERT_STR(get_file("canary/hosts"), "alive\n");
}

TEST(a_template_from_a_sandbox_or_a_snapshot_has_all_files)
{
    need_store();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_over("tiny", CAY_STORAGE_MEMORY);
    run_as(sandbox, "root", "rm /etc/motd; echo new > /root/new", PATIENCE_MS);
    ASSERT_OK(try_template("one", CAY_TEMPLATE_SANDBOX, cay_sandbox_id(sandbox)));
    ASSERT_OK(try_snapshot(sandbox, NULL, "s"));
    ASSERT_OK(try_template("two", CAY_TEMPLATE_SANDBOX, "s"));
    ASSERT_CODE(try_template("two", CAY_TEMPLATE_SANDBOX, "s"), CAY_E_EXISTS);
    ASSERT_CODE(try_template("three", CAY_TEMPLATE_SANDBOX, "none"), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_OK(cay_snapshot_remove("s", &err));
    ASSERT_OK(cay_template_remove("tiny", &err));
    for (int i = 0; i < 2; i++) {
        AUTO(cay_sandbox) other = make_over(i ? "two" : "one", CAY_STORAGE_MEMORY);
        expect_output(other, "cat /root/new; ls /etc/motd 2>/dev/null; ls /bin/sh",
                      "new\n/bin/sh\n");
    }
    AUTO(cay_sandbox) of_host = make_sandbox(NULL);
    run(of_host, "echo x > ~/file");
    ASSERT_OK(try_template("host2", CAY_TEMPLATE_SANDBOX, cay_sandbox_id(of_host)));
    AUTO(cay_sandbox) again = make_over("host2", CAY_STORAGE_MEMORY);
    expect_output(again, "cat ~user/file", "x\n");
}

/* --- The store --- */

TEST(a_snapshot_that_a_sandbox_uses_is_not_removed)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_OK(try_snapshot(sandbox, NULL, "s:tag"));
    ASSERT_INT(inspect("s:tag").sandboxes, 0);
    AUTO(cay_sandbox) running = make_from("s:tag", CAY_STORAGE_MEMORY);
    AUTO(cay_sandbox) stopped = make_from("s:tag", CAY_STORAGE_DISK);
    ASSERT_OK(cay_sandbox_kill(stopped, &err));
    struct cay_snapshot_info info = inspect("s:tag");
    ASSERT_INT(info.sandboxes, 2);
    ASSERT_STR(info.sandbox, cay_sandbox_id(sandbox));
    ASSERT_STR(info.template_name, "host");
    ASSERT_STR(info.user, "user");
    ASSERT_CODE(cay_snapshot_remove("s:tag", &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_kill(running, &err));
    ASSERT_CODE(cay_snapshot_remove("s:tag", &err), CAY_E_BUSY);
    ASSERT_HAS(err.hint, cay_sandbox_id(stopped));
    ASSERT_OK(cay_sandbox_remove(stopped, &err));
    ASSERT_OK(cay_snapshot_remove("s:tag", &err));
    ASSERT_CODE(cay_snapshot_remove("s:tag", &err), CAY_E_NOT_FOUND);
}

TEST(names_of_snapshots_are_unique_and_can_be_replaced)
{
    struct cay_snapshot_options options = {
        .size = sizeof options, .name = "s", .replace = true};

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_CODE(try_snapshot(sandbox, NULL, "a/b"), CAY_E_INVALID);
    ASSERT_CODE(try_snapshot(sandbox, NULL, "host"), CAY_E_INVALID);
    ASSERT_CODE(try_snapshot(sandbox, "none", "s"), CAY_E_NOT_FOUND);
    ASSERT_INT(count_snapshots(), 0);
    run(sandbox, "echo one > ~/file");
    ASSERT_OK(try_snapshot(sandbox, NULL, "s:latest"));
    ASSERT_CODE(try_snapshot(sandbox, NULL, "s"), CAY_E_EXISTS);
    run(sandbox, "echo two > ~/file");
    ASSERT_OK(cay_snapshot_create(sandbox, &options, NULL, &err));
    ASSERT_INT(count_snapshots(), 1);
    AUTO(cay_sandbox) other = make_from("s", CAY_STORAGE_MEMORY);
    expect_output(other, "cat ~user/file", "two\n");
    ASSERT_CODE(cay_snapshot_create(sandbox, &options, NULL, &err), CAY_E_BUSY);
}

TEST(what_is_not_a_snapshot_is_not_found_as_one)
{
    struct cay_snapshot_info info;
    struct cay_template_info *infos = NULL;
    cay_sandbox *none = NULL;
    size_t count;
    const struct cay_sandbox_options unknown = {.size = sizeof unknown, .from = "none"};
    const struct cay_sandbox_options both = {
        .size = sizeof both, .from = "s", .template_name = "base"};

    need_store();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_OK(try_snapshot(sandbox, NULL, "s"));
    ASSERT_CODE(try_snapshot(sandbox, NULL, "tiny"), CAY_E_EXISTS);
    ASSERT_CODE(cay_snapshot_inspect("tiny", &info, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_snapshot_remove("tiny", &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_template_list(&infos, &count, &err));
    ASSERT_INT(count, 3); /* host, base and tiny */
    cay_free(infos);
    ASSERT_CODE(cay_sandbox_create(&unknown, &none, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_sandbox_create(&both, &none, &err), CAY_E_INVALID);
}

TEST(a_name_of_a_sandbox_and_a_snapshot_is_ambiguous)
{
    const struct cay_sandbox_options named = {.size = sizeof named, .name = "both"};
    const struct cay_sandbox_options from = {.size = sizeof from, .from = "both"};
    cay_sandbox *none = NULL;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&named);
    ASSERT_OK(try_snapshot(sandbox, NULL, "both"));
    ASSERT_CODE(cay_sandbox_create(&from, &none, &err), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "id");
}

/* --- kill -9 --- */

/* Runs `act` in a process that is killed after so many system calls; false if it has
 * ended before. */
static bool dies_after(void (*act)(void), int calls)
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
            _exit(1);
        act();
        _exit(0);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    for (int stops = 0; WIFSTOPPED(status) && stops < 2 * calls; stops++) {
        ASSERT(ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0);
        ASSERT(waitpid(pid, &status, 0) == pid);
    }
    if (!WIFSTOPPED(status)) {
        ASSERT_INT(status, 0);
        return false;
    }
    ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    return true;
}

static char source[CAY_ID_MAX];

static void create_s(void)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_sandbox_open(source, &sandbox, &err));
    ASSERT_OK(try_snapshot(sandbox, NULL, "s"));
    cay_sandbox_free(sandbox);
}

static void remove_s(void)
{
    ASSERT_OK(cay_snapshot_remove("s", &err));
}

static size_t is_over_tiny; /* the template is in the store */
static const char *store, *kept;

static void name_paths(void)
{
    store = scratch_path("home/templates");
    kept = scratch_path("home/templates/s/root/home/user/dir/file");
}

static size_t count_stored(void)
{
    size_t names = count_names(store, "");

    return names ? names - 2 - is_over_tiny : 0;
}

/* After a sweep there is nothing but "s", which is whole, or nothing at all.  A process
 * that visited the sandbox for the killed one shares its locks, and ends a bit later. */
static bool has_whole_snapshot(void)
{
    size_t count = count_snapshots();

    for (uint64_t end = clock_ms() + PATIENCE_MS; clock_ms() < end; clock_sleep_ms(1)) {
        (void)template_sweep();
        if (count_stored() == count)
            break;
    }
    ASSERT_INT(count_stored(), count);
    ASSERT(!count || access(kept, F_OK) == 0);
    return count;
}

static void kill_creators(enum cay_storage storage)
{
    int calls = 0;

    need_store();
    make_template("tar");
    is_over_tiny = 1;
    AUTO(cay_sandbox) sandbox = make_over("tiny", storage);
    memcpy(source, cay_sandbox_id(sandbox), sizeof source);
    run(sandbox, "mkdir ~/dir; echo kept > ~/dir/file");
    name_paths();
    while (dies_after(create_s, ++calls)) {
        if (has_whole_snapshot())
            remove_s();
        run(sandbox, "cat ~/dir/file");
        ASSERT_STR(result.out, "kept\n");
    }
    ASSERT(has_whole_snapshot());
    ASSERT(calls > 100);
    AUTO(cay_sandbox) other = make_from("s", CAY_STORAGE_MEMORY);
    expect_output(other, "cat ~user/dir/file", "kept\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(a_creator_killed_at_any_system_call_leaves_a_whole_snapshot_or_none)
{
    kill_creators(CAY_STORAGE_MEMORY);
}

TEST(a_creator_killed_on_disk_leaves_a_whole_snapshot_or_none)
{
    kill_creators(CAY_STORAGE_DISK);
}

TEST(a_remover_killed_at_any_system_call_leaves_a_whole_snapshot_or_none)
{
    int calls = 0;

    need_store();
    is_over_tiny = 0;
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    memcpy(source, cay_sandbox_id(sandbox), sizeof source);
    run(sandbox, "mkdir ~/dir; echo kept > ~/dir/file");
    name_paths();
    do
        if (!has_whole_snapshot())
            create_s();
    while (dies_after(remove_s, ++calls));
    ASSERT(!has_whole_snapshot());
    ASSERT(calls > 10);
}

/* Only some calls: importing takes many. */
enum { STRIDE = 61 };

static const char *archive_path;

static void import_s(void)
{
    int fd = open(archive_path, O_RDONLY | O_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT_OK(cay_snapshot_import(fd, "s", NULL, &err));
    (void)close(fd);
}

TEST(an_importer_killed_at_system_calls_leaves_a_whole_snapshot_or_none)
{
    int calls = 1;

    need_store();
    make_template("tar");
    is_over_tiny = 0;
    AUTO(cay_sandbox) sandbox = make_over("tiny", CAY_STORAGE_MEMORY);
    run(sandbox, "mkdir ~/dir; echo kept > ~/dir/file");
    ASSERT_OK(try_snapshot(sandbox, NULL, "s"));
    archive_path = scratch_path("s.tar");
    int fd = open(archive_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT(fd >= 0);
    ASSERT_OK(cay_snapshot_export("s", fd, &err));
    (void)close(fd);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_OK(cay_snapshot_remove("s", &err));
    ASSERT_OK(cay_template_remove("tiny", &err));
    name_paths();
    for (; dies_after(import_s, calls); calls += STRIDE)
        if (has_whole_snapshot())
            remove_s();
    ASSERT(has_whole_snapshot());
    ASSERT(calls > 10 * STRIDE);
    AUTO(cay_sandbox) other = make_from("s", CAY_STORAGE_MEMORY);
    expect_output(other, "cat ~user/dir/file", "kept\n");
    ASSERT_OK(cay_sandbox_remove(other, &err));
    remove_s();
    size_t count;
    uint64_t bytes;
    ASSERT_OK(cay_template_prune(&count, &bytes, &err));
    ASSERT_INT(count_names(scratch_path("home/layers"), ""), 2);
}

/* --- Pauses without memory --- */

TEST(a_pause_to_disk_keeps_the_files_and_a_resume_starts_afresh)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .storage = CAY_STORAGE_DISK};
    struct cay_sandbox_info info;
    cay_sandbox *created = NULL;

    use_own_home();
    ASSERT_OK(cay_sandbox_create(&options, &created, &err));
    AUTO(cay_sandbox) sandbox = created;
    run(sandbox, "echo kept > ~/file; sleep 1000 > /dev/null 2>&1 &");
    ASSERT_OK(cay_sandbox_pause_disk(sandbox, &err));
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(info.state, CAY_STATE_STOPPED);
    ASSERT_CODE(cay_sandbox_pause_disk(sandbox, &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    run(sandbox, "cat ~/file; pidof sleep");
    ASSERT_STR(result.out, "kept\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err)); /* not a pause */
    ASSERT_CODE(cay_sandbox_resume(sandbox, &err), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    AUTO(cay_sandbox) other = make_sandbox(NULL);
    ASSERT_CODE(cay_sandbox_pause_disk(other, &err), CAY_E_UNSUPPORTED);
}
