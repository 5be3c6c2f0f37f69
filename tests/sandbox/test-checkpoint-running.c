/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints and rollbacks of a sandbox in which processes run. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoints.h"
#include "native/layer/restore.h"
#include "templates.h"

static const char sleeper[] = "setsid sleep 1000 > /dev/null 2>&1 < /dev/null & "
                              "until pgrep -x sleep > /dev/null; do :; done";

/* Starts a program in the background and waits until it has created the file /ready. */
static void start_python(cay_sandbox *sandbox, const char *program)
{
    char script[4096];

    snprintf(script, sizeof script,
             "rm -f /ready; setsid python3 -c '%s' > /dev/null 2>/log < /dev/null & "
             "until test -e /ready || test -s /log; do sleep 0.01; done; cat /log",
             program);
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.out, "");
}

TEST(a_checkpoint_in_mode_idle_is_busy_while_a_process_runs_and_stop_ends_it)
{
    const struct cay_checkpoint_options idle = {.size = sizeof idle,
                                                .mode = CAY_CHECKPOINT_IDLE};
    const struct cay_checkpoint_options stop = {.size = sizeof stop,
                                                .mode = CAY_CHECKPOINT_STOP};
    struct cay_checkpoint checkpoint;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    run(sandbox, sleeper);
    ASSERT_CODE(cay_sandbox_checkpoint(sandbox, &idle, &checkpoint, &err), CAY_E_BUSY);
    run(sandbox, "pgrep sleep > /dev/null && echo alive");
    ASSERT_STR(result.out, "alive\n");
    ASSERT_OK(cay_sandbox_checkpoint(sandbox, &stop, &checkpoint, &err));
    ASSERT_INT(checkpoint.processes, 0);
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

TEST(a_file_that_is_open_for_writing_is_copied_or_makes_a_checkpoint_busy)
{
    const struct cay_checkpoint_options idle = {.size = sizeof idle,
                                                .mode = CAY_CHECKPOINT_IDLE};
    struct cay_checkpoint checkpoint;
    int fd = -1;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    AUTO(cay_files) files = files_of(sandbox, "root");
    ASSERT_OK(cay_files_descriptor(files, "/upload", CAY_DESCRIPTOR_WRITE, &fd, &err));
    ASSERT_CODE(cay_sandbox_checkpoint(sandbox, &idle, &checkpoint, &err), CAY_E_BUSY);
    expect_output(sandbox, "echo works > /file; cat /file", "works\n");
    ASSERT(write(fd, "half", 4) == 4);
    ASSERT_INT(seal(sandbox, "half").processes, 0);
    ASSERT(write(fd, "whole", 5) == 5);
    ASSERT(close(fd) == 0);
    (void)seal(sandbox, "whole");
    (void)back(sandbox, "half");
    expect_output(sandbox, "cat /upload /file", "halfworks\n");
    (void)back(sandbox, "whole");
    expect_output(sandbox, "cat /upload /file", "halfwholeworks\n");
}

/* The program writes a number to one file and then to another: no checkpoint has a state
 * in which the second is ahead, or more than one behind. */
static void checkpoint_a_writer(const struct cay_sandbox_options *options)
{
    enum { TIMES = 12 };
    uint32_t ids[TIMES];
    char which[16], last[32] = "";
    AUTO(cay_sandbox) sandbox = make_sandbox(options);

    start_python(sandbox, "import os\n"
                          "os.mkdir(\"/w\"); os.chdir(\"/w\")\n"
                          "a = open(\"a\", \"w\"); b = open(\"b\", \"w\"); n = 0\n"
                          "while True:\n"
                          "  n += 1\n"
                          "  for f in (a, b):\n"
                          "    os.pwrite(f.fileno(), b\"%012d\" % n, 0)\n"
                          "  open(\"c%d\" % (n % 9), \"w\").write(str(n))\n"
                          "  if n == 50: open(\"/ready\", \"w\")\n");
    for (int i = 0; i < TIMES; i++) {
        struct cay_checkpoint made = seal(sandbox, NULL);
        ASSERT(made.processes >= 1 && made.is_current);
        ASSERT_INT(made.parent, i ? ids[i - 1] : 0);
        ids[i] = made.id;
        /* The process continues, and in the same directory. */
        expect_output(sandbox,
                      "n=$(cat /w/a); until test $(cat /w/a) -gt $n; do sleep 0.01; "
                      "done; pgrep -c python3",
                      "1\n");
    }
    for (int i = 0; i < TIMES; i++) {
        snprintf(which, sizeof which, "%u", ids[i]);
        (void)back(sandbox, which);
        run_as(sandbox, "root",
               "a=$(cat /w/a); b=$(cat /w/b); d=$(expr $a - $b); "
               "test $d -le 1 && test $d -ge 0 && echo $a",
               PATIENCE_MS);
        ASSERT(strcmp(result.out, last) > 0);
        snprintf(last, sizeof last, "%s", result.out);
    }
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(a_checkpoint_of_running_processes_has_the_files_of_one_moment)
{
    const struct cay_sandbox_options memory = {.size = sizeof memory};
    const struct cay_sandbox_options base = {.size = sizeof base,
                                             .template_name = "base",
                                             .storage = CAY_STORAGE_DISK,
                                             .ephemeral = true};

    need_store();
    use_own_home();
    checkpoint_a_writer(&memory);
    checkpoint_a_writer(&base);
}

TEST(a_copied_checkpoint_has_links_holes_owners_modes_and_whiteouts)
{
    static const struct cay_sandbox_options base = {.size = sizeof base,
                                                    .template_name = "base"};
    static const char look[] =
        "cd /w; stat -c '%n %F %a %u %g %s' *; test x -ef y && echo linked; stat -c %b "
        "hole; cat x y; "
        "readlink link; python3 -c 'import os; print(os.getxattr(\"x\", \"user.k\"))'; "
        "ls -d /usr/bin/env /etc/skel 2>/dev/null; ls -A /opt; cat /usr/bin/made";
    char before[4096];

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&base);
    expect_output(
        sandbox,
        "mkdir /w; cd /w; echo x > x; chown 5:6 x; chmod 4751 x; ln x y; "
        "ln -s nowhere link; mkfifo fifo; truncate -s 1G hole; mkdir -m 1777 d; "
        "python3 -c 'import os; os.setxattr(\"x\", \"user.k\", b\"v\")'; "
        "rm -r /usr/bin/env /etc/skel; echo u > /usr/bin/made; "
        "rm -rf /opt; mkdir /opt; echo o > /opt/o",
        "");
    run(sandbox, sleeper);
    run_as(sandbox, "root", look, PATIENCE_MS);
    snprintf(before, sizeof before, "%s", result.out);
    ASSERT(strstr(before, "x regular file 4751 5 6 2\n") &&
           strstr(before, "hole regular file 644 0 0 1073741824\n") &&
           strstr(before, "linked\n0\n") && strstr(before, "b'v'\no\nu\n"));
    ASSERT_INT(seal(sandbox, "copied").processes, 1);
    expect_output(sandbox, "echo more > /w/x; touch /etc/skel; rm /usr/bin/made", "");
    (void)seal(sandbox, "changed");
    expect_output(sandbox, "rm -rf /w /opt/o", "");
    (void)seal(sandbox, "removed");
    (void)back(sandbox, "copied");
    run_as(sandbox, "root", look, PATIENCE_MS);
    ASSERT_STR(result.out, before);
    (void)back(sandbox, "changed");
    expect_output(sandbox,
                  "cat /w/y; stat -c %h /w/x; ls -d /etc/skel /usr/bin/made "
                  "/usr/bin/env 2>/dev/null",
                  "more\n2\n/etc/skel\n");
    (void)back(sandbox, "removed");
    expect_output(sandbox, "ls -A /opt; ls -d /w 2>/dev/null", "");
}

TEST(a_checkpoint_of_unchanged_files_is_the_last_one_while_processes_run)
{
    struct cay_checkpoint *list;
    size_t count;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    run(sandbox, "mkdir d; echo 1 > d/f; ln -s d l");
    run(sandbox, sleeper);
    struct cay_checkpoint first = seal(sandbox, "a");
    ASSERT_INT(seal(sandbox, "b").id, first.id);
    run(sandbox, "chmod 600 d/f");
    struct cay_checkpoint second = seal(sandbox, "c");
    ASSERT(second.id != first.id);
    ASSERT_INT(second.parent, first.id);
    run(sandbox, "pkill sleep");
    struct cay_checkpoint third = seal(sandbox, "d");
    ASSERT_INT(third.parent, second.id);
    ASSERT_OK(cay_sandbox_checkpoints(sandbox, &list, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_STR(list[0].name, "b");
    ASSERT_STR(list[2].name, "d");
    ASSERT(list[2].is_current && !list[2].processes && list[1].processes == 1);
    cay_free(list);
    (void)back(sandbox, "b");
    run(sandbox, "stat -c %a d/f");
    ASSERT_STR(result.out, "644\n");
}

/* The second write is to a page that is dirty already, so no time of the file changes;
 * before the third checkpoint the file is unmapped. */
TEST(a_checkpoint_has_what_a_process_wrote_through_a_mapping)
{
    static const char *const names[] = {"one", "two", "end"};
    static const char *const signals[] = {"USR1", "USR2"};

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    start_python(
        sandbox,
        "import mmap, os, signal\n"
        "f = open(\"/m\", \"w+b\"); f.truncate(8192)\n"
        "m = mmap.mmap(f.fileno(), 8192); m[:3] = b\"one\"; f.close()\n"
        "def done(): open(\"/ready\", \"w\")\n"
        "def two(*_): m[:3] = b\"two\"; done()\n"
        "def end(*_): m[:3] = b\"end\"; m.close(); done()\n"
        "signal.signal(signal.SIGUSR1, two); signal.signal(signal.SIGUSR2, end)\n"
        "done()\n"
        "while True: signal.pause()\n");
    ASSERT_INT(seal(sandbox, "one").processes, 1);
    for (size_t i = 0; i < 2; i++) {
        char script[128];
        snprintf(script, sizeof script,
                 "rm /ready; pkill -%s python3; until test -e /ready; do sleep 0.01; "
                 "done",
                 signals[i]);
        expect_output(sandbox, script, "");
        ASSERT_INT(seal(sandbox, names[i + 1]).processes, 1);
    }
    for (size_t i = 0; i < 3; i++) {
        (void)back(sandbox, names[i]);
        run_as(sandbox, "root", "head -c 3 /m", PATIENCE_MS);
        ASSERT_STR(result.out, names[i]);
    }
}

TEST(a_killed_checkpoint_leaves_no_process_frozen)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *id = cay_sandbox_id(sandbox);
    start_python(sandbox, "import os, time\n"
                          "for i in range(300):\n"
                          "  open(\"/f%d\" % i, \"w\").write(\"x\" * 9999)\n"
                          "n = 0\n"
                          "while True:\n"
                          "  n += 1; open(\"/n\", \"w\").write(str(n))\n"
                          "  if n == 5: open(\"/ready\", \"w\")\n"
                          "  time.sleep(0.001)\n");
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            cay_sandbox *own = NULL;
            struct cay_checkpoint checkpoint;
            if (cay_sandbox_open(id, &own, NULL) == CAY_OK)
                (void)!cay_sandbox_checkpoint(own, NULL, &checkpoint, NULL);
            _exit(0);
        }
        struct timespec wait = {.tv_nsec = i * 500000};
        nanosleep(&wait, NULL);
        (void)kill(child, SIGKILL);
        ASSERT(waitpid(child, NULL, 0) == child);
        expect_output(sandbox,
                      "n=$(stat -c %z /n); until test \"$n\" != \"$(stat -c %z /n)\"; "
                      "do sleep 0.01; done; echo runs",
                      "runs\n");
    }
    ASSERT(seal(sandbox, "all").processes >= 1);
    (void)back(sandbox, "all");
    expect_output(sandbox, "cat /f* | wc -c", "2999700\n");
}

TEST(a_paused_sandbox_stays_paused_after_a_checkpoint)
{
    struct cay_sandbox_info info;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    run(sandbox, "echo one > a");
    run(sandbox, sleeper);
    ASSERT_OK(cay_sandbox_pause(sandbox, &err));
    ASSERT_INT(seal(sandbox, "paused").processes, 1);
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(info.state, CAY_STATE_PAUSED);
    const struct native *native = sandbox->cookie;
    char path[PATH_MAX], frozen[8] = "";
    snprintf(path, sizeof path, "%s/work/cgroup.freeze", native->record.cgroup.unified);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ASSERT(read(fd, frozen, sizeof frozen - 1) > 0);
    ASSERT_STR(frozen, "1\n");
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    run(sandbox, "cat a; pgrep -c sleep");
    ASSERT_STR(result.out, "one\n1\n");
}

TEST(a_copy_that_exceeds_the_disk_limit_fails_and_changes_nothing)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .disk_bytes = 16u << 20};
    const struct cay_checkpoint_options stop = {.size = sizeof stop,
                                                .mode = CAY_CHECKPOINT_STOP};
    struct cay_checkpoint checkpoint, *list;
    size_t count;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run(sandbox, "head -c 10M /dev/urandom > big");
    run(sandbox, sleeper);
    ASSERT_CODE(cay_sandbox_checkpoint(sandbox, NULL, &checkpoint, &err), CAY_E_NO_SPACE);
    ASSERT_OK(cay_sandbox_checkpoints(sandbox, &list, &count, &err));
    ASSERT_INT(count, 0);
    cay_free(list);
    run(sandbox, "head -c 4M /dev/zero > more && pgrep -c sleep");
    ASSERT_STR(result.out, "1\n");
    ASSERT_OK(cay_sandbox_checkpoint(sandbox, &stop, &checkpoint, &err));
    ASSERT_INT(checkpoint.id, 1);
}

/* --- Rollbacks that keep processes --- */

static struct cay_rollback back_keeping(cay_sandbox *sandbox, const char *which)
{
    const struct cay_rollback_options keep = {.size = sizeof keep, .keep = true};
    struct cay_rollback rollback;

    ASSERT_OK(cay_sandbox_rollback_with(sandbox, which, &keep, &rollback, &err));
    return rollback;
}

static void keep_processes(const struct cay_sandbox_options *options)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(options);

    expect_output(
        sandbox,
        "mkdir -p /w/d/e /k; cd /w; echo one > a; echo x > d/e/x; chmod 750 d; "
        "ln -s a l; echo h > h1; ln h1 h2; chown 5:6 a; echo t > t; echo k > /k/k",
        "");
    (void)seal(sandbox, "first");
    expect_output(
        sandbox,
        "cd /w; echo two > a; rm -r d h1 h2; echo new > n; mkdir m; echo y > m/y; "
        "rm l t; mkdir t; touch t/u; ln -s / l; chmod 700 /k",
        "");
    run_as(sandbox, "root",
           "cd /k; setsid sleep 1111 < /k/k > /dev/null 2>&1 & "
           "cd /w/m; setsid sleep 2222 < /dev/null > /dev/null 2>&1 & "
           "cd /; setsid sleep 3333 < /w/n > /dev/null 2>&1 & "
           "until test $(pgrep -c -x sleep) = 3; do :; done",
           PATIENCE_MS);
    struct cay_rollback done = back_keeping(sandbox, "first");
    ASSERT_INT(done.kept_count, 1);
    ASSERT_INT(done.ended_count, 2);
    ASSERT(strstr("sleep 2222 sleep 3333", done.ended[0].command));
    cay_free(done.ended);
    ASSERT(done.undone.id && strcmp(done.undone.cause, "rollback") == 0);
    static const char look[] = "cd /w; cat a d/e/x l h1 t; stat -c '%n %F %a %u %g' *; "
                               "test h1 -ef h2 && echo linked; stat -c %a /k; ls -A / | "
                               "grep -c cay";
    static const char first[] =
        "one\nx\none\nh\nt\na regular file 644 5 6\nd directory 750 0 0\n"
        "h1 regular file 644 0 0\nh2 regular file 644 0 0\n"
        "l symbolic link 777 0 0\nt regular file 644 0 0\nlinked\n755\n0\n";
    expect_output(sandbox, look, first);
    expect_output(sandbox, "pgrep -a sleep | cut -d' ' -f2-", "sleep 1111\n");
    struct cay_checkpoint again = seal(sandbox, "again");
    ASSERT(again.processes == 1);
    char undone[16];
    snprintf(undone, sizeof undone, "%u", done.undone.id);
    done = back_keeping(sandbox, undone);
    ASSERT_INT(done.kept_count, 1);
    cay_free(done.ended);
    expect_output(sandbox, "cd /w; cat a n m/y; ls; ls t; readlink l; stat -c %a /k",
                  "two\nnew\ny\na\nl\nm\nn\nt\nu\n/\n700\n");
    (void)back(sandbox, "again");
    expect_output(sandbox, look, first);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}

TEST(a_rollback_keeps_the_processes_whose_files_do_not_change)
{
    const struct cay_sandbox_options memory = {.size = sizeof memory};
    const struct cay_sandbox_options disk = {
        .size = sizeof disk, .storage = CAY_STORAGE_DISK, .ephemeral = true};

    need_store();
    use_own_home();
    keep_processes(&memory);
    keep_processes(&disk);
}

TEST(files_that_cannot_be_copied_in_time_change_nothing)
{
    static const struct cay_change changes[] = {
        {.kind = CAY_CHANGE_MODIFIED,
         .path = "d/file",
         .before.mode = S_IFREG | 0644,
         .after.mode = S_IFREG | 0644},
        {.kind = CAY_CHANGE_DELETED, .path = "gone", .before.mode = S_IFREG | 0644}};

    need_root();
    put_file("root/d/file", "now");
    put_file("root/gone", "now");
    put_file("root/.cay-rollback/0/file", "from inside");
    put_file("after/d/file", "then");
    AUTO_FD root = open(scratch_path("root"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD after = open(scratch_path("after"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct cay_diff_layer layer = {.fd = after};
    struct restore restore = {
        .root = root, .after = &layer, .after_count = 1, .changes = changes, .count = 2};

    ASSERT_INT(restore_init(&restore), 0);
    ASSERT_INT(restore_stage(&restore, 0), -ETIME);
    restore_done(&restore);
    ASSERT_STR(get_file("root/d/file"), "now");
    ASSERT_STR(get_file("root/gone"), "now");
    ASSERT(access(scratch_path("root/.cay-rollback"), F_OK) != 0);

    ASSERT_INT(restore_init(&restore), 0);
    ASSERT_INT(restore_stage(&restore, UINT64_MAX), 0);
    ASSERT_STR(get_file("root/d/file"), "now");
    ASSERT_INT(restore_apply(&restore), 0);
    restore_done(&restore);
    ASSERT_STR(get_file("root/d/file"), "then");
    ASSERT(access(scratch_path("root/gone"), F_OK) != 0);
    ASSERT(access(scratch_path("root/.cay-rollback"), F_OK) != 0);
}

/* --- Traps of the switch --- */

/* A landlock rule is about an inode: a rule on the old root would allow nothing in the
 * new one. */
TEST(landlock_allows_the_same_after_a_checkpoint_and_a_rollback)
{
    static const char look[] =
        "echo x > ~/f && cat ~/f && ls / > /dev/null && "
        "! echo x 2>/dev/null > /proc/sys/kernel/hostname && id -un";

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT(cay_sandbox_layers(sandbox) & CAY_LAYER_LANDLOCK);
    for (int i = 0; i < 3; i++) {
        run(sandbox, look);
        ASSERT_STR(result.out, "x\nuser\n");
        if (i == 0)
            (void)seal(sandbox, "first");
        else
            (void)back(sandbox, "first");
    }
}

/* umount(2) without MNT_DETACH would fail, and would wait for every cached file. */
TEST(a_descriptor_of_the_old_root_prevents_no_checkpoint)
{
    char path[64];
    struct stat st;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    snprintf(path, sizeof path, "/proc/%d/root", (int)native->record.init);
    for (int i = 1; i < 4; i++) {
        AUTO_FD held = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT(held >= 0);
        expect_output(sandbox, "echo x >> /a", "");
        ASSERT_INT(seal(sandbox, NULL).id, i);
        ASSERT(mkdirat(held, "late", 0700) != 0 && errno == EROFS);
        ASSERT(fstatat(held, "a", &st, 0) == 0);
    }
    expect_output(sandbox, "wc -l < /a; ls -d /late 2>/dev/null", "3\n");
}

TEST(a_layer_with_marks_of_the_other_kind_is_refused)
{
    struct cay_checkpoint checkpoint;
    char text[512];

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    (void)seal(sandbox, "first");
    expect_output(sandbox, "echo two > /a", "");
    (void)seal(sandbox, "second");
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    AUTO_FD record = openat(store, "layers/2/layer", O_RDWR | O_CLOEXEC);
    ssize_t len = read(record, text, sizeof text);
    static const char own[] = "marks=trusted", other[] = "marks=xattrus";
    char *marks = len > 0 ? memmem(text, (size_t)len, own, strlen(own)) : NULL;
    ASSERT(marks);
    memcpy(marks, other, strlen(other));
    ASSERT(pwrite(record, text, (size_t)len, 0) == len);
    ASSERT_CODE(cay_sandbox_rollback(sandbox, "2", &checkpoint, &err), CAY_E_UNSUPPORTED);
    expect_output(sandbox, "cat /a", "two\n");
}
