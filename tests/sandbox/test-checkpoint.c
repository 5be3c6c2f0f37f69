/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints and rollbacks of a sandbox in memory. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "inside.h"
#include "native/layer/switch.h"
#include "native/native.h"
#include "sandbox/backend.h"
#include "templates.h"

/* Checkpoints need Linux 6.15. */
static void need_store(void)
{
    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    AUTO_FD namespace = switch_open(native->record.init);
    AUTO_FD store = switch_open_store(namespace);
    if (store == -ENOENT)
        SKIP("this kernel cannot mount parts of a detached tmpfs");
}

static struct cay_checkpoint seal(cay_sandbox *sandbox, const char *name)
{
    const struct cay_checkpoint_options options = {.size = sizeof options, .name = name};
    struct cay_checkpoint checkpoint = {0};

    ASSERT_OK(cay_sandbox_checkpoint(sandbox, &options, &checkpoint, &err));
    return checkpoint;
}

static struct cay_checkpoint back(cay_sandbox *sandbox, const char *which)
{
    struct cay_checkpoint undone;

    ASSERT_OK(cay_sandbox_rollback(sandbox, which, &undone, &err));
    return undone;
}

static void expect_output(cay_sandbox *sandbox, const char *script, const char *text)
{
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.out, text);
}

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

TEST(a_running_process_makes_a_checkpoint_busy_unless_it_is_stopped)
{
    const struct cay_checkpoint_options stop = {.size = sizeof stop,
                                                .mode = CAY_CHECKPOINT_STOP};
    struct cay_checkpoint checkpoint;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    run(sandbox, "setsid sleep 1000 > /dev/null 2>&1 < /dev/null & echo started");
    ASSERT_CODE(cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err), CAY_E_BUSY);
    run(sandbox, "pgrep sleep > /dev/null && echo alive");
    ASSERT_STR(result.out, "alive\n");
    ASSERT_OK(cay_sandbox_checkpoint(sandbox, &stop, &checkpoint, &err));
    run(sandbox, "pgrep sleep; echo none");
    ASSERT_STR(result.out, "none\n");
}

TEST(a_rollback_ends_the_processes)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    (void)seal(sandbox, "start");
    run(sandbox,
        "(while :; do echo x >> /tmp/log; done) > /dev/null 2>&1 & echo started");
    (void)back(sandbox, "start");
    run(sandbox, "pgrep -x sh; ls /tmp");
    ASSERT(!strstr(result.out, "log"));
}

TEST(a_file_that_is_open_for_writing_makes_a_checkpoint_busy)
{
    struct cay_checkpoint checkpoint;
    int fd = -1;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    ASSERT_OK(cay_files_descriptor(files, "/upload", CAY_DESCRIPTOR_WRITE, &fd, &err));
    ASSERT_CODE(cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err), CAY_E_BUSY);
    expect_output(sandbox, "echo works > /file; cat /file", "works\n");
    ASSERT(close(fd) == 0);
    ASSERT_INT(seal(sandbox, NULL).id, 1);
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
TEST(a_killed_checkpoint_loses_nothing)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *id = cay_sandbox_id(sandbox);
    for (int i = 0; i < 25; i++) {
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
        struct timespec wait = {.tv_nsec = i * 60000};
        nanosleep(&wait, NULL);
        (void)kill(child, SIGKILL);
        ASSERT(waitpid(child, NULL, 0) == child);
    }
    (void)seal(sandbox, "all");
    expect_output(sandbox, "rm /f*; ls / | grep -c ^f", "0\n");
    (void)back(sandbox, "all");
    expect_output(sandbox, "cat /f* | wc -l", "25\n");
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
    AUTO_FD namespace = switch_open(native->record.init);
    AUTO_FD store = switch_open_store(namespace);
    ASSERT(store >= 0 && fstat(store, &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0700);
    ASSERT_INT(st.st_uid, 0);
}
