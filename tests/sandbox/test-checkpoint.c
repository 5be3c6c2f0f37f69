/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints, rollbacks and forks. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "cay/diff.h"
#include "checkpoints.h"
#include "native/layer/squash.h"
#include "templates.h"

/* What is mounted inside, but for the root. */
static void list_mounts(cay_sandbox *sandbox, char *text, size_t room)
{
    run_as(sandbox, "root",
           "awk '$5 != \"/\" { print $5, $6 }' /proc/self/mountinfo | sort", PATIENCE_MS);
    snprintf(text, room, "%s", result.out);
}

static void change_and_return(const struct cay_sandbox_options *options)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(options);

    expect_output(sandbox, "echo one > /a; mkdir /d; echo x > /d/x; chmod 700 /d", "");
    ASSERT_INT(seal(sandbox, "first").id, 1);
    expect_output(sandbox,
                  "cat /a; echo two > /a; rm -r /d; mkdir /d; echo y > /d/y; "
                  "ln -s a /link; chmod 755 /d",
                  "one\n");
    struct cay_checkpoint second = seal(sandbox, NULL);
    ASSERT_INT(second.parent, 1);
    expect_output(sandbox, "rm /a /link; mv /d /e", "");
    struct cay_checkpoint undone = back(sandbox, "first");
    ASSERT_STR(undone.cause, "rollback");
    ASSERT_INT(undone.parent, second.id);
    expect_output(sandbox, "cat /a; ls /d; stat -c %a /d; ls -d /e /link 2>/dev/null",
                  "one\nx\n700\n");
    char which[16];
    snprintf(which, sizeof which, "%u", second.id);
    ASSERT_INT(back(sandbox, which).id, 0);
    expect_output(sandbox, "cat /a /link; ls /d; stat -c %a /d", "two\ntwo\ny\n755\n");
    snprintf(which, sizeof which, "%u", undone.id);
    ASSERT_INT(back(sandbox, which).id, 0);
    expect_output(sandbox, "ls /e; ls -d /a /d /link 2>/dev/null", "y\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(rollbacks_restore_the_files_of_a_checkpoint)
{
    need_store();
    change_and_return(NULL);
}

TEST(rollbacks_restore_the_files_over_a_template)
{
    static const struct cay_sandbox_options base = {.size = sizeof base,
                                                    .template_name = "base"};

    need_store();
    change_and_return(&base);
}

TEST(rollbacks_restore_the_files_on_disk)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .storage = CAY_STORAGE_DISK, .ephemeral = true};
    const struct cay_sandbox_options base = {.size = sizeof base,
                                             .template_name = "base",
                                             .storage = CAY_STORAGE_DISK,
                                             .ephemeral = true};

    need_store();
    use_own_home();
    change_and_return(&options);
    change_and_return(&base);
}

/* A child of a killed process may have the lock for a moment. */
static void restart(cay_sandbox *sandbox)
{
    int code = CAY_E_BUSY;

    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    for (int i = 0; code == CAY_E_BUSY && i < PATIENCE_MS / 10; i++) {
        err = (struct cay_error){0};
        code = cay_sandbox_start(sandbox, &err);
        if (code == CAY_E_BUSY)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    ASSERT_OK(code);
}

static void stop_and_start(const char *template_name)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = template_name,
                                                .storage = CAY_STORAGE_DISK,
                                                .ephemeral = true};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);

    expect_output(sandbox, "echo one > /a; mkdir /d; echo x > /d/x; chown user /d/x", "");
    (void)seal(sandbox, "first");
    expect_output(sandbox, "echo two > /a; rm -r /d; mkdir /d", "");
    (void)seal(sandbox, "second");
    expect_output(sandbox, "echo three > /a", "");
    restart(sandbox);
    expect_output(sandbox, "cat /a; ls /d; echo four > /a", "three\n");
    (void)seal(sandbox, NULL);
    restart(sandbox);
    expect_output(sandbox, "cat /a", "four\n");
    (void)back(sandbox, "first");
    restart(sandbox);
    expect_output(sandbox, "cat /a; ls /d; stat -c %U /d/x; echo x > /usr/x 2>/dev/null",
                  "one\nx\nuser\n");
    restart(sandbox);
    struct cay_checkpoint *list;
    size_t count;
    ASSERT_OK(cay_sandbox_checkpoints(sandbox, &list, &count, &err));
    ASSERT(count >= 3); /* a start may write /etc/hosts, which the rollback undid */
    ASSERT_STR(list[1].name, "second");
    ASSERT(list[0].is_current);
    cay_free(list);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_INT(count_names(scratch_path("home/sandboxes"), "sb-"), 0);
}

TEST(a_sandbox_on_disk_has_its_checkpoints_after_a_start)
{
    need_store();
    use_own_home();
    stop_and_start(NULL);
    stop_and_start("base");
    make_template("tar");
    stop_and_start("tiny");
}

TEST(a_diff_of_a_sandbox_on_disk_has_the_changes_of_all_layers)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "tiny",
                                                .storage = CAY_STORAGE_DISK,
                                                .ephemeral = true};
    const struct cay_diff_options how = {.size = sizeof how};
    cay_diff *diff = NULL;
    size_t count;

    need_store();
    use_own_home();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    expect_output(sandbox, "echo one > /root/a; echo b > /root/b", "");
    (void)seal(sandbox, NULL);
    expect_output(sandbox, "rm /root/b; echo c > /root/c", "");
    ASSERT_OK(cay_sandbox_diff(cay_sandbox_id(sandbox), &how, &diff, &err));
    const struct cay_change *changes = cay_diff_changes(diff, &count);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        ASSERT(strcmp(changes[i].path, "root/b") != 0);
        found += strcmp(changes[i].path, "root/a") == 0 ||
                 strcmp(changes[i].path, "root/c") == 0;
    }
    ASSERT_INT(found, 2);
    cay_diff_free(diff);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(a_rollback_restores_the_writable_usr_of_base_and_sudo_works_after_it)
{
    static const struct cay_sandbox_options base = {.size = sizeof base,
                                                    .template_name = "base"};

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&base);
    expect_output(sandbox, "echo one > /usr/bin/made; rm /usr/bin/env", "");
    (void)seal(sandbox, "first");
    expect_output(sandbox, "cat /usr/bin/made; echo two > /usr/bin/made; ls /usr/bin/env",
                  "one\n");
    run(sandbox, "sudo id -u");
    ASSERT_STR(result.out, "0\n");
    (void)back(sandbox, "first");
    expect_output(sandbox, "cat /usr/bin/made; ls /usr/bin/env 2>&1 | grep -c No",
                  "one\n1\n");
    run(sandbox, "sudo id -u");
    ASSERT_STR(result.out, "0\n");
}

TEST(every_mount_is_there_after_a_hundred_checkpoints)
{
    char before[16384], after[16384];

    need_store();
    put_file("shared/file", "host\n");
    const struct cay_bind binds[] = {{scratch_path("shared"), "/mnt/a b", true}};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = binds, .bind_count = 1};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    list_mounts(sandbox, before, sizeof before);
    ASSERT(strstr(before, "/etc/.host") && strstr(before, "/proc/sys"));
    for (int i = 0; i < 100; i++) {
        AUTO(cay_files) files = files_of(sandbox, "root");
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        put(files, "/counter", text);
        ASSERT_INT(seal(sandbox, NULL).id, i + 1);
    }
    list_mounts(sandbox, after, sizeof after);
    ASSERT_STR(after, before);
    expect_output(sandbox, "cat /counter '/mnt/a b/file'; echo x > /dev/shm/x && echo ok",
                  "99host\nok\n");
    (void)back(sandbox, "7");
    expect_output(sandbox, "cat /counter /dev/shm/x", "6x\n");
}

TEST(a_checkpoint_of_unchanged_files_is_the_last_one)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_INT(seal(sandbox, NULL).id, 1);
    ASSERT_INT(seal(sandbox, "again").id, 1);
    struct cay_checkpoint *list;
    size_t count;
    ASSERT_OK(cay_sandbox_checkpoints(sandbox, &list, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(list[0].name, "again");
    ASSERT(list[0].is_current && list[0].files > 10 && list[0].bytes > 0);
    cay_free(list);
}

TEST(an_unknown_checkpoint_and_an_invalid_name_are_refused)
{
    const struct cay_checkpoint_options bad = {.size = sizeof bad, .name = "12"};
    struct cay_checkpoint checkpoint;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_CODE(cay_sandbox_checkpoint(sandbox, &bad, &checkpoint, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_sandbox_rollback(sandbox, "1", &checkpoint, &err), CAY_E_NOT_FOUND);
}

TEST(forged_whiteouts_and_marks_inside_hide_nothing_of_other_layers)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_output(sandbox,
                  "mkdir /d; echo x > /d/x; mknod /d/w c 0 0 2>/dev/null; "
                  "python3 -c 'import os\n"
                  "for n in (\"user.overlay.opaque\", \"trusted.overlay.opaque\"):\n"
                  "  try: os.setxattr(\"/d\", n, b\"y\")\n"
                  "  except OSError: pass'",
                  "");
    (void)seal(sandbox, NULL);
    expect_output(sandbox,
                  "mkdir -p /d; echo y > /d/y; python3 -c 'import os\n"
                  "for n in (\"user.overlay.opaque\", \"trusted.overlay.opaque\"):\n"
                  "  try: os.setxattr(\"/d\", n, b\"y\")\n"
                  "  except OSError: pass'",
                  "");
    (void)seal(sandbox, NULL);
    expect_output(sandbox, "ls /d | grep -v w", "x\ny\n");
}

/* The parent's death at any moment of a checkpoint leaves a sandbox that works and whose
 * next checkpoint has everything. */
static void kill_checkpoints(const struct cay_sandbox_options *options)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(options);
    const char *id = cay_sandbox_id(sandbox);

    int times = options ? 25 : 2 * SQUASH_DEPTH;
    for (int i = 0; i < times; i++) {
        char script[64];
        snprintf(script, sizeof script, "echo %d > /f%d", i, i);
        run_as(sandbox, "root", script, PATIENCE_MS);
        pid_t child = fork();
        if (child == 0) {
            cay_sandbox *own = NULL;
            struct cay_checkpoint checkpoint;
            if (cay_sandbox_open(id, &own, NULL) == CAY_OK)
                (void)!cay_sandbox_checkpoint(own, NULL, &checkpoint, NULL);
            _exit(0);
        }
        struct timespec wait = {.tv_nsec = i * (options ? 200000 : 60000)};
        nanosleep(&wait, NULL);
        (void)kill(child, SIGKILL);
        ASSERT(waitpid(child, NULL, 0) == child);
        if (options && i % 2)
            restart(sandbox);
    }
    (void)seal(sandbox, "all");
    expect_output(sandbox, "rm /f*; ls / | grep -c ^f", "0\n");
    (void)back(sandbox, "all");
    expect_output(sandbox, "cat /f* | wc -l", options ? "25\n" : "64\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(a_killed_checkpoint_loses_nothing)
{
    need_store();
    kill_checkpoints(NULL);
}

TEST(a_killed_checkpoint_on_disk_loses_nothing_after_a_start)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .storage = CAY_STORAGE_DISK, .ephemeral = true};

    need_store();
    use_own_home();
    kill_checkpoints(&options);
}

TEST(nothing_inside_reaches_the_store)
{
    struct stat st;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_output(sandbox,
                  "ls -d /store /../store /proc/1/root/../store 2>/dev/null; echo no",
                  "no\n");
    const struct native *native = sandbox->cookie;
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    ASSERT(store >= 0 && fstat(store, &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0700);
    ASSERT_INT(st.st_uid, 0);
}

/* --- Forks --- */

static cay_sandbox *fork_of(cay_sandbox *sandbox, const char *checkpoint)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    cay_sandbox *made = NULL;

    ASSERT_OK(cay_sandbox_fork(sandbox, checkpoint, &options, 1, &made, NULL, &err));
    return made;
}

TEST(a_fork_has_the_files_and_owners_of_the_sandbox_and_shares_no_change)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_output(
        sandbox,
        "echo one > /a; mkdir /d; echo x > /d/x; chown user:users /d; rm -r /srv; "
        "chmod 751 /; ln /a /hard; ln -s a /soft",
        "");
    AUTO(cay_sandbox) made = fork_of(sandbox, NULL);
    expect_output(made,
                  "cat /a /soft /d/x; stat -c '%n %u %g %a' /d /a /; ls -d /srv 2>&1 | "
                  "grep -c No; test $(hostname) = $(cat /etc/hostname) && echo named",
                  "one\none\nx\n/d 1000 100 755\n/a 0 0 644\n/ 0 0 751\n1\nnamed\n");
    run(made, "printf %s $(cat /etc/hostname)");
    ASSERT_STR(result.out, cay_sandbox_id(made));
    expect_output(made, "echo child > /a; rm -r /d; echo new > /new", "");
    expect_output(sandbox, "cat /a /d/x; ls /new 2>&1 | grep -c No; echo parent > /d/x",
                  "one\nx\n1\n");
    expect_output(made, "cat /a; ls -d /d 2>&1 | grep -c No", "child\n1\n");
    run(made, "touch ~/mine && stat -c %U ~/mine");
    ASSERT_STR(result.out, "user\n");
    const struct native *one = sandbox->cookie, *other = made->cookie;
    ASSERT(one->record.id_base != other->record.id_base);
}

TEST(a_fork_of_a_fork_outlives_both_and_has_checkpoints_of_its_own)
{
    need_store();
    AUTO(cay_sandbox) first = make_sandbox(NULL);
    expect_output(first, "echo one > /a; mkdir /d; echo x > /d/x; chown user /d", "");
    AUTO(cay_sandbox) second = fork_of(first, NULL);
    expect_output(second, "echo two > /a; rm -r /d; mkdir /d; echo y > /d/y", "");
    ASSERT_INT(seal(second, "two").id, 1);
    expect_output(second, "rm /d/y; chown user /d/", "");
    AUTO(cay_sandbox) third = fork_of(second, "two");
    ASSERT_OK(cay_sandbox_kill(first, &err));
    ASSERT_OK(cay_sandbox_kill(second, &err));
    expect_output(third, "cat /a; ls /d; stat -c %u /d; echo three > /a", "two\ny\n0\n");
    (void)seal(third, "three");
    expect_output(third, "cat /a; echo four > /a; touch /d/z", "three\n");
    (void)back(third, "three");
    expect_output(third, "cat /a; ls /d", "three\ny\n");
    AUTO(cay_sandbox) fourth = fork_of(third, "three");
    expect_output(fourth, "cat /a; ls /d; stat -c %u /d /a", "three\ny\n0\n0\n");
}

TEST(a_fork_has_the_changed_usr_of_base)
{
    static const struct cay_sandbox_options base = {.size = sizeof base,
                                                    .template_name = "base"};

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&base);
    expect_output(sandbox, "echo one > /usr/bin/made; rm /usr/bin/env; echo e > /etc/e",
                  "");
    AUTO(cay_sandbox) made = fork_of(sandbox, NULL);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    expect_output(made,
                  "cat /usr/bin/made /etc/e; ls /usr/bin/env 2>&1 | grep -c No; "
                  "echo two > /usr/bin/made",
                  "one\ne\n1\n");
    (void)seal(made, NULL);
    expect_output(made, "cat /usr/bin/made; rm /usr/bin/made", "two\n");
    (void)back(made, "1");
    expect_output(made, "cat /usr/bin/made", "two\n");
    run(made, "sudo id -u");
    ASSERT_STR(result.out, "0\n");
}

TEST(a_sandbox_is_created_from_a_checkpoint_with_the_limits_of_its_sandbox)
{
    const struct cay_sandbox_options limited = {.size = sizeof limited,
                                                .memory_bytes = 300u << 20,
                                                .pids = 77,
                                                .workdir = "/tmp"};
    struct cay_sandbox_info info;
    char from[64];

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&limited);
    expect_output(sandbox, "echo one > /a", "");
    (void)seal(sandbox, "first");
    expect_output(sandbox, "echo two > /a", "");
    run(sandbox, "setsid sleep 1000 > /dev/null 2>&1 < /dev/null & echo started");
    snprintf(from, sizeof from, "%s:first", cay_sandbox_id(sandbox));
    const struct cay_sandbox_options options = {
        .size = sizeof options, .from = from, .pids = 55};
    AUTO(cay_sandbox) made = make_sandbox(&options);
    expect_output(made, "cat /a; pwd; pgrep sleep", "one\n/tmp\n");
    ASSERT_OK(cay_sandbox_inspect(made, &info, &err));
    ASSERT_INT(info.memory_bytes, 300u << 20);
    ASSERT_INT(info.pids, 55);
    struct cay_sandbox_options now = {.size = sizeof now,
                                      .from = cay_sandbox_id(sandbox)};
    AUTO(cay_sandbox) live = make_sandbox(&now);
    expect_output(live, "cat /a; pgrep sleep", "two\n");
    run(sandbox, "pgrep -c sleep");
    ASSERT_STR(result.out, "1\n");
}

TEST(forks_of_what_is_not_there_and_with_other_templates_are_refused)
{
    char from[64];
    cay_sandbox *none = NULL;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *id = cay_sandbox_id(sandbox);
    struct cay_sandbox_options options = {.size = sizeof options, .from = from};
    snprintf(from, sizeof from, "%s:nothing", id);
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_NOT_FOUND);
    snprintf(from, sizeof from, "%s:", id);
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_INVALID);
    snprintf(from, sizeof from, ":1");
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_INVALID);
    snprintf(from, sizeof from, "no-such-sandbox");
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_NOT_FOUND);
    snprintf(from, sizeof from, "%s", id);
    options.template_name = "base";
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_INVALID);
}

/* A working directory that no sandbox of another test has. */
static const char *own_workdir(void)
{
    static char path[64];

    snprintf(path, sizeof path, "/here-%d", (int)getpid());
    return path;
}

static size_t count_own(void)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, own = 0;

    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        own += strcmp(infos[i].workdir, own_workdir()) == 0;
    cay_free(infos);
    return own;
}

TEST(several_forks_are_all_created_or_each_failure_is_reported)
{
    cay_sandbox *made[5] = {NULL};
    struct cay_error errors[5];
    struct cay_sandbox_options options = {
        .size = sizeof options, .ephemeral = true, .workdir = own_workdir()};

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_output(sandbox, "echo one > /a", "");
    ASSERT_CODE(cay_sandbox_fork(sandbox, NULL, &options, 5, made, NULL, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_sandbox_fork(sandbox, NULL, &options, 5, made, errors, &err),
                CAY_E_NOT_FOUND);
    for (int i = 0; i < 5; i++)
        ASSERT(!made[i] && errors[i].code == CAY_E_NOT_FOUND);
    ASSERT_INT(count_own(), 0);
    options.workdir = "/tmp";
    ASSERT_OK(cay_sandbox_fork(sandbox, NULL, &options, 5, made, errors, &err));
    for (int i = 0; i < 5; i++) {
        ASSERT_INT(errors[i].code, CAY_OK);
        expect_output(made[i], "cat /a; echo $$ > /a", "one\n");
        cay_sandbox_free(made[i]);
    }
    struct cay_checkpoint *list;
    size_t count;
    ASSERT_OK(cay_sandbox_checkpoints(sandbox, &list, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_STR(list[0].cause, "fork");
    cay_free(list);
}

TEST(a_killed_fork_leaves_nothing_and_the_sandbox_works)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *id = cay_sandbox_id(sandbox);
    for (int i = 0; i < 25; i++) {
        char script[128];
        snprintf(script, sizeof script, "mkdir -p %s; echo %d > /f%d", own_workdir(), i,
                 i);
        run_as(sandbox, "root", script, PATIENCE_MS);
        pid_t child = fork();
        if (child == 0) {
            const struct cay_sandbox_options options = {.size = sizeof options,
                                                        .from = id,
                                                        .ephemeral = true,
                                                        .workdir = own_workdir()};
            cay_sandbox *own = NULL;
            (void)!cay_sandbox_create(&options, &own, NULL);
            _exit(0);
        }
        struct timespec wait = {.tv_nsec = i * 300000};
        nanosleep(&wait, NULL);
        (void)kill(child, SIGKILL);
        ASSERT(waitpid(child, NULL, 0) == child);
    }
    AUTO(cay_sandbox) made = fork_of(sandbox, NULL);
    expect_output(made, "cat /f* | wc -l", "25\n");
    for (int i = 0; i < PATIENCE_MS / 10 && count_own() > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ASSERT_INT(count_own(), 0);
}

TEST(a_chain_of_forks_has_a_limit)
{
    need_store();
    cay_sandbox *last = make_sandbox(NULL), *next = NULL;
    int code = CAY_OK, length = 0;
    for (; !code && length < 2 * INHERIT_STORES_MAX; length++) {
        const struct cay_sandbox_options options = {.size = sizeof options,
                                                    .ephemeral = true};
        expect_output(last, "echo x >> /a", "");
        code = cay_sandbox_fork(last, NULL, &options, 1, &next, NULL, &err);
        if (!code) {
            (void)!cay_sandbox_kill(last, NULL);
            cay_sandbox_free(last);
            last = next;
        }
    }
    ASSERT_CODE(code, CAY_E_LIMIT);
    ASSERT_INT(length, INHERIT_STORES_MAX + 1);
    expect_output(last, "wc -l < /a", "65\n");
    (void)!cay_sandbox_kill(last, NULL);
    cay_sandbox_free(last);
}

TEST(nothing_inside_reaches_the_stores_of_ancestors)
{
    struct stat st;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_sandbox) made = fork_of(sandbox, NULL);
    expect_output(made,
                  "grep -c ancestors /proc/self/mountinfo; ls -d /store "
                  "/proc/1/root/../store 2>/dev/null; echo no",
                  "0\nno\n");
    const struct native *native = made->cookie;
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, 0);
    ASSERT(store >= 0 && fstat(store, &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0700);
    ASSERT_INT(st.st_uid, 0);
    ASSERT(mkdirat(store, "x", 0700) != 0 && errno == EROFS);
    ASSERT(fstatat(store, "upper", &st, 0) == 0);
    ASSERT_INT(st.st_uid, native->record.id_base);
}

/* --- Many layers --- */

/* Random changes in two trees, and a hash of everything in them. */
static const char changes[] =
    "import os, random, shutil, sys, hashlib\n"
    "random.seed(int(sys.argv[1]))\n"
    "tops = [t for t in ('/w', '/usr/local/w') if os.access(os.path.dirname(t), "
    "os.W_OK)]\n"
    "def pick(): return os.path.join(random.choice(tops), *random.choices('abcd', "
    "k=random.randint(1, 4)))\n"
    "def drop(p): shutil.rmtree(p) if os.path.isdir(p) and not os.path.islink(p) else "
    "os.unlink(p)\n"
    "def change(p, q, kind):\n"
    "  if kind == 'write': open(p, 'a').write(str(random.random()))\n"
    "  if kind == 'make': os.makedirs(p)\n"
    "  if kind == 'drop': drop(p)\n"
    "  if kind == 'again': drop(p); os.mkdir(p)\n"
    "  if kind == 'file': drop(p); open(p, 'w').write('f')\n"
    "  if kind == 'move': shutil.move(p, q)\n"
    "  if kind == 'link': os.link(p, q)\n"
    "  if kind == 'soft': os.symlink(q, p)\n"
    "  if kind == 'mode': os.chmod(p, random.choice((0o755, 0o700, 0o644)))\n"
    "  if kind == 'owner': os.chown(p, random.randint(0, 3), 1, follow_symlinks=False)\n"
    "  if kind == 'attribute': os.setxattr(p, 'user.x', str(random.random()).encode())\n"
    "kinds = ['write'] * 4 + ['make'] * 4 + ['drop', 'again', 'file', 'move', 'link', "
    "'soft', 'mode', 'owner', 'attribute']\n"
    "for t in tops: os.makedirs(t, exist_ok=True)\n"
    "if sys.argv[2] != '0': open('/w/n', 'w').write(sys.argv[1])\n"
    "for i in range(int(sys.argv[2])):\n"
    "  try: change(pick(), pick(), random.choice(kinds))\n"
    "  except (OSError, shutil.Error): pass\n"
    "found = []\n"
    "for t in tops:\n"
    "  for d, ds, fs in os.walk(t):\n"
    "    for n in ['.'] + ds + fs:\n"
    "      p = os.path.join(d, n); s = os.lstat(p)\n"
    "      link = os.path.islink(p)\n"
    "      found.append((p, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, link and "
    "os.readlink(p), os.path.isfile(p) and not link and open(p).read(), not link and "
    "[(x, os.getxattr(p, x)) for x in os.listxattr(p)]))\n"
    "print(hashlib.sha256(repr(sorted(found, key=lambda f: f[0])).encode()).hexdigest(), "
    "len(found))\n";

static void change_randomly(cay_sandbox *sandbox, int seed, int count, char hash[128])
{
    char script[sizeof changes + 64];

    snprintf(script, sizeof script, "python3 - %d %d <<'END'\n%sEND\n", seed, count,
             changes);
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.error, "");
    snprintf(hash, 128, "%s", result.out);
}

static size_t depth_of(cay_sandbox *sandbox)
{
    run_as(sandbox, "root", "awk '$5 == \"/\"' /proc/self/mountinfo", PATIENCE_MS);
    size_t count = 0;
    for (const char *at = result.out; (at = strstr(at, "lowerdir+=")); at++)
        count++;
    return count;
}

static void pile_up(const struct cay_sandbox_options *options)
{
    enum { STEPS = 3 * SQUASH_DEPTH };
    static const int back_to[] = {STEPS,
                                  1,
                                  2 * SQUASH_DEPTH + 1,
                                  SQUASH_DEPTH - 1,
                                  SQUASH_DEPTH,
                                  SQUASH_DEPTH + 1,
                                  2 * SQUASH_DEPTH};
    static char hashes[STEPS + 1][128];
    char which[16], hash[128];
    AUTO(cay_sandbox) sandbox = make_sandbox(options);

    for (int i = 1; i <= STEPS; i++) {
        change_randomly(sandbox, i, 20, hashes[i]);
        ASSERT_INT(seal(sandbox, NULL).id, i);
    }
    change_randomly(sandbox, 0, 0, hash);
    ASSERT_STR(hash, hashes[STEPS]);
    for (size_t i = 0; i < sizeof back_to / sizeof *back_to; i++) {
        snprintf(which, sizeof which, "%d", back_to[i]);
        (void)back(sandbox, which);
        change_randomly(sandbox, 0, 0, hash);
        ASSERT_STR(hash, hashes[back_to[i]]);
        ASSERT(depth_of(sandbox) <= SQUASH_DEPTH + 4);
    }
    if (options->storage == CAY_STORAGE_MEMORY) {
        AUTO(cay_sandbox) made = fork_of(sandbox, "70");
        change_randomly(made, 0, 0, hash);
        ASSERT_STR(hash, hashes[70]);
    }
    change_randomly(sandbox, 1000, 20, hash);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(a_hundred_layers_of_random_changes_are_few_and_show_the_same)
{
    const struct cay_sandbox_options memory = {.size = sizeof memory};
    const struct cay_sandbox_options base = {.size = sizeof base,
                                             .template_name = "base",
                                             .storage = CAY_STORAGE_DISK,
                                             .ephemeral = true};

    need_store();
    use_own_home();
    pile_up(&memory);
    pile_up(&base);
}

TEST(a_checkpoint_replaces_a_layer_that_a_crash_has_left)
{
    struct stat st;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    (void)seal(sandbox, "first");
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    ASSERT(mkdirat(store, "layers/3", 0700) == 0);
    ASSERT(mkdirat(store, "layers/3/upper", 0700) == 0);
    ASSERT(mkdirat(store, "layers/3/upper/left", 0700) == 0);
    ASSERT(mkdirat(store, "layers/77", 0700) == 0);
    expect_output(sandbox, "echo two > /a", "");
    ASSERT_INT(seal(sandbox, NULL).id, 2);
    expect_output(sandbox, "cat /a; ls -d /left 2>/dev/null", "two\n");
    ASSERT_OK(cay_sandbox_remove_checkpoint(sandbox, "first", NULL, &err));
    ASSERT(fstatat(store, "layers/77", &st, 0) != 0 && errno == ENOENT);
    ASSERT(fstatat(store, "layers/3", &st, 0) == 0);
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* The fastest of many does not depend on what else the machine does. */
TEST(checkpoints_and_rollbacks_at_depth_500_work_and_take_no_longer)
{
    enum { DEPTH = 500, PART = 60 };
    uint64_t first = UINT64_MAX, last = UINT64_MAX, first_back = UINT64_MAX,
             last_back = UINT64_MAX;
    char which[16], text[16];

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    for (int i = 1; i <= DEPTH; i++) {
        snprintf(text, sizeof text, "%d", i);
        put(files, "/number", text);
        put(files, i % 2 ? "/odd" : "/even", text);
        uint64_t begin = now_us();
        ASSERT_INT(seal(sandbox, NULL).id, i);
        uint64_t *best = i <= PART ? &first : i > DEPTH - PART ? &last : NULL;
        if (best && now_us() - begin < *best)
            *best = now_us() - begin;
    }
    ASSERT(depth_of(sandbox) <= SQUASH_DEPTH + DEPTH / SQUASH_DEPTH + 1);
    for (int i = 1; i <= PART; i++) {
        int target = i % 2 ? i : DEPTH - i;
        snprintf(which, sizeof which, "%d", target);
        uint64_t begin = now_us(), *best = i % 2 ? &first_back : &last_back;
        (void)back(sandbox, which);
        if (now_us() - begin < *best)
            *best = now_us() - begin;
        if (i % 10 < 2) {
            snprintf(text, sizeof text, "%d\n", target);
            expect_output(sandbox,
                          "cat /number; echo; cat /odd /even 2>/dev/null | wc -c "
                          "> /dev/null",
                          text);
        }
    }
    ASSERT(last < 3 * first + 500);
    ASSERT(last_back < 3 * first_back + 500);
    AUTO(cay_sandbox) made = fork_of(sandbox, "499");
    expect_output(made, "cat /number /odd /even", "499499498");
    (void)back(sandbox, "500");
    expect_output(sandbox, "cat /number /odd /even", "500499500");
}

/* --- Removing --- */

static uint64_t drop(cay_sandbox *sandbox, const char *which)
{
    uint64_t freed = 0;

    ASSERT_OK(cay_sandbox_remove_checkpoint(sandbox, which, &freed, &err));
    return freed;
}

static void expect_list(cay_sandbox *sandbox, const char *text)
{
    struct cay_checkpoint *list;
    char found[256] = "";
    size_t count;

    ASSERT_OK(cay_sandbox_checkpoints(sandbox, &list, &count, &err));
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(found), parent = 0;
        while (parent < count && list[parent].id != list[i].parent)
            parent++;
        snprintf(found + len, sizeof found - len, "%s<%s%s ", list[i].name,
                 parent < count ? list[parent].name : "", list[i].is_current ? "*" : "");
    }
    cay_free(list);
    ASSERT_STR(found, text);
}

static uint64_t used(cay_sandbox *sandbox)
{
    struct cay_sandbox_info info;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    return info.disk_used;
}

TEST(a_removed_checkpoint_gives_its_space_back_when_nothing_is_on_it)
{
    enum { MIB = 1 << 20 };

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        char script[64];
        snprintf(script, sizeof script, "head -c 1M /dev/urandom > /%s", names[i]);
        expect_output(sandbox, script, "");
        (void)seal(sandbox, names[i]);
    }
    expect_list(sandbox, "a< b<a c<b* ");
    ASSERT_INT(drop(sandbox, "c"), 0);
    expect_list(sandbox, "a< b<a* ");
    expect_output(sandbox, "ls /a /b /c | wc -l", "3\n");
    ASSERT_INT(seal(sandbox, "again").id, 3); /* the files of now are that layer */
    expect_list(sandbox, "a< b<a again<b* ");
    ASSERT_INT(drop(sandbox, "b"), 0);
    expect_list(sandbox, "a< again<a* ");
    (void)back(sandbox, "a");
    uint64_t before = used(sandbox);
    ASSERT(drop(sandbox, "again") >= 2 * MIB);
    ASSERT(used(sandbox) + 2 * MIB <= before);
    expect_list(sandbox, "a<* ");
    expect_output(sandbox, "ls /a /b /c 2>/dev/null", "/a\n");
    expect_output(sandbox, "head -c 1M /dev/urandom > /d", "");
    (void)seal(sandbox, "d");
    (void)back(sandbox, "a");
    AUTO(cay_sandbox) made = fork_of(sandbox, "d");
    ASSERT_INT(drop(sandbox, "d"), 0);
    expect_output(sandbox, "echo e > /e", "");
    (void)seal(sandbox, "e");
    expect_output(made, "stat -c %s /d; echo f > /f", "1048576\n");
    (void)seal(made, NULL);
    expect_output(made, "cat /f; stat -c %s /d", "f\n1048576\n");
}

TEST(removed_copies_give_back_what_no_other_copy_has)
{
    enum { MIB = 1 << 20 };

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    run(sandbox, "setsid sleep 1000 > /dev/null 2>&1 < /dev/null & "
                 "until pgrep -x sleep > /dev/null; do :; done; "
                 "head -c 1M /dev/urandom > big");
    (void)seal(sandbox, "a");
    run(sandbox, "echo b > b");
    uint64_t before = used(sandbox);
    (void)seal(sandbox, "b");
    ASSERT(used(sandbox) < before + MIB); /* big is a link */
    run(sandbox, "head -c 2M /dev/urandom > c");
    (void)seal(sandbox, "c");
    expect_list(sandbox, "a< b<a c<b* ");
    ASSERT(drop(sandbox, "a") < MIB);
    ASSERT(drop(sandbox, "c") >= 2 * MIB);
    expect_list(sandbox, "b<* ");
    (void)seal(sandbox, "d");
    expect_list(sandbox, "b< d<b* ");
    ASSERT(drop(sandbox, "b") >= MIB); /* nothing was left to link to */
    (void)back(sandbox, "d");
    run(sandbox, "stat -c %s big c; cat b");
    ASSERT_STR(result.out, "1048576\n2097152\nb\n");
}

/* --- Differences --- */

static void expect_names(cay_sandbox *sandbox, const char *before, const char *after,
                         const char *names)
{
    const struct cay_diff_options how = {.size = sizeof how};
    cay_diff *diff = NULL;
    char text[1024] = "";
    size_t count;

    ASSERT_OK(cay_sandbox_diff_checkpoints(cay_sandbox_id(sandbox), before, after, &how,
                                           &diff, &err));
    ASSERT_OK(cay_diff_measure(diff, &err));
    const struct cay_change *found = cay_diff_changes(diff, &count);
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%c %s +%d\n", "ADMMTR"[found[i].kind],
                 found[i].path, (int)found[i].insertions);
    }
    cay_diff_free(diff);
    ASSERT_STR(text, names);
}

static void differ(const struct cay_sandbox_options *options)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(options);

    expect_output(sandbox, "mkdir /w; echo one > /w/a; echo b > /w/b; chown user /w/b",
                  "");
    (void)seal(sandbox, "first");
    expect_output(sandbox, "echo two > /w/a; rm /w/b; echo c > /w/c", "");
    (void)seal(sandbox, "second");
    expect_output(sandbox, "echo now > /w/now", "");
    expect_names(sandbox, "first", "second",
                 "M w/a +1\n"
                 "D w/b +0\nA w/c +1\n");
    expect_names(sandbox, "second", "first",
                 "M w/a +1\nA w/b +1\n"
                 "D w/c +0\n");
    expect_names(sandbox, "2", NULL, "A w/now +1\n");
    expect_names(sandbox, "1", "1", "");
    (void)back(sandbox, "first");
    expect_output(sandbox, "echo d > /w/d", "");
    (void)seal(sandbox, "branch");
    expect_names(sandbox, "second", "branch",
                 "M w/a +1\nA w/b +1\n"
                 "D w/c +0\nA w/d +1\n");
    if (options->storage == CAY_STORAGE_MEMORY) {
        AUTO(cay_sandbox) made = fork_of(sandbox, "second");
        (void)seal(made, "start");
        expect_output(made, "rm /w/a; echo e > /w/c; chmod 700 /w", "");
        expect_names(made, "start", NULL,
                     "M w +0\n"
                     "D w/a +0\nM w/c +1\n");
    }
    const struct cay_diff_options how = {.size = sizeof how};
    cay_diff *diff = NULL;
    ASSERT_CODE(cay_sandbox_diff_checkpoints(cay_sandbox_id(sandbox), "none", NULL, &how,
                                             &diff, &err),
                CAY_E_NOT_FOUND);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(differences_of_checkpoints_are_those_of_their_files)
{
    const struct cay_sandbox_options memory = {.size = sizeof memory};
    const struct cay_sandbox_options disk = {.size = sizeof disk,
                                             .template_name = "tiny",
                                             .storage = CAY_STORAGE_DISK,
                                             .ephemeral = true};

    need_store();
    use_own_home();
    make_template("tar");
    differ(&memory);
    differ(&disk);
}

TEST(a_checkpoint_of_a_sandbox_that_has_ended_closes_no_descriptor_of_the_caller)
{
    struct cay_checkpoint checkpoint;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    if (fcntl(0, F_GETFD) < 0)
        (void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT(cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err) != CAY_OK);
    ASSERT(fcntl(0, F_GETFD) >= 0);
}
