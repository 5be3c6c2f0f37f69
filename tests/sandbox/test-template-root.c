/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes whose root is a template. */
#include "templates.h"

#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "native/make/overlay.h"

TEST(a_template_is_the_root_and_stays_as_it_is)
{
    use_own_home();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_tiny();
    run_as(sandbox, "root",
           "cat /etc/motd; echo changed > /etc/motd; rm -r /srv; mkdir /srv; "
           "mv /home/user /home/moved; ls /srv; cat /etc/motd; id -u; stat -c %u /bin",
           PATIENCE_MS);
    ASSERT_STR(result.error, "");
    ASSERT_STR(result.out, "lower\nchanged\n0\n0\n");
    ASSERT_STR(get_file("home/templates/tiny/root/etc/motd"), "lower\n");
    ASSERT(stat_in_tiny("srv/owned").st_mode);
    AUTO(cay_sandbox) other = make_tiny();
    run(other, "cat /etc/motd; ls /srv | wc -l");
    ASSERT_STR(result.out, "lower\n5\n");
}

TEST(the_default_user_and_others_are_who_they_are_inside)
{
    use_own_home();
    make_template("directory");
    AUTO(cay_sandbox) sandbox = make_tiny();
    run(sandbox, "id -un; id -u; cd; pwd; touch here && stat -c '%u %g' here");
    ASSERT_STR(result.out, "user\n1000\n/home/user\n1000 1000\n");
    run(sandbox, "stat -c '%u %g %a' /srv/owned /etc/motd; cat /srv/owned");
    ASSERT_HAS(result.out, "33 33 640\n65534 65534 644\n");
    ASSERT_HAS(result.error, "denied");
    run_as(sandbox, "33", "cat /srv/owned", PATIENCE_MS);
    ASSERT_STR(result.out, "33\n");
}

TEST(users_can_be_added_inside)
{
    use_own_home();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_tiny();
    run_as(sandbox, "root",
           "echo worker:x:1001:1001::/home/worker:/bin/sh >> /etc/passwd && "
           "mkdir /home/worker && chown worker /home/worker && stat -c %U /home/worker",
           PATIENCE_MS);
    ASSERT_STR(result.error, "");
    ASSERT_STR(result.out, "worker\n");
    run_as(sandbox, "worker", "whoami; touch ~/x && stat -c %U ~/x", PATIENCE_MS);
    ASSERT_STR(result.out, "worker\nworker\n");
}

TEST(the_root_has_proc_dev_and_names_of_its_own)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .template_name = "tiny", .hostname = "box"};

    use_own_home();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run(sandbox, "cat /etc/hostname /etc/hosts; hostname; head -c 3 /dev/zero | wc -c; "
                 "cat /proc/1/comm; touch /tmp/x /dev/shm/x && echo made");
    ASSERT_STR(result.out,
               "box\n127.0.0.1 localhost box\n::1 localhost\nbox\n3\ncay-init\nmade\n");
    run_as(sandbox, "root", "echo x > /proc/sys/kernel/hostname", PATIENCE_MS);
    ASSERT(result.exit_code != 0);
}

TEST(what_is_written_has_a_limit)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .template_name = "tiny", .disk_bytes = 8 << 20};

    use_own_home();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    ASSERT(cay_sandbox_layers(sandbox) & CAY_LAYER_DISK);
    run(sandbox, "dd if=/dev/zero of=/tmp/big bs=1M count=64 2>&1; stat -c %s /tmp/big");
    ASSERT_HAS(result.out, "No space left");
    run(sandbox, "i=0; while echo x > /tmp/f$i; do i=$((i+1)); "
                 "[ $i -lt 20000 ] || break; done; echo $i");
    ASSERT(strtol(result.out, NULL, 10) < 20000);
}

TEST(an_image_sets_the_environment)
{
    const char *const env[] = {"FROM_IMAGE=no", "OWN=1", NULL};
    struct cay_sandbox_options options = {.size = sizeof options,
                                          .template_name = "tiny"};

    use_own_home();
    make_template("saved");
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run(sandbox, "echo $FROM_IMAGE $PATH");
    ASSERT_STR(result.out, "yes /bin:/from-image\n");
    options.env = env;
    AUTO(cay_sandbox) other = make_sandbox(&options);
    run(other, "env | grep -c FROM_IMAGE; echo $FROM_IMAGE $OWN $PATH");
    ASSERT_STR(result.out, "1\nno 1 /bin:/from-image\n");
}

TEST(an_image_says_who_runs_commands_and_where)
{
    struct cay_sandbox_options options = {.size = sizeof options,
                                          .template_name = "tiny"};
    struct cay_sandbox_info info;

    use_own_home();
    make_template("saved");
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run(sandbox, "id -u; id -G; pwd");
    ASSERT_STR(result.out, "33\n33\n/srv\n");
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_STR(info.user, "33:33");
    ASSERT_STR(info.workdir, "/srv");
    options.user = "root";
    options.workdir = "/tmp";
    AUTO(cay_sandbox) other = make_sandbox(&options);
    run(other, "id -u; pwd");
    ASSERT_STR(result.out, "0\n/tmp\n");
}

TEST(where_commands_of_an_image_start_is_made_if_no_layer_has_it)
{
    use_own_home();
    umask(0077);
    make_template("saved-workdir");
    umask(0022);
    AUTO(cay_sandbox) sandbox = make_tiny();
    run(sandbox, "pwd -P; stat -c '%u %a' .");
    ASSERT_STR(result.out, "/srv/a/c\n0 755\n");
}

TEST(where_commands_of_an_image_start_may_be_named_from_the_root)
{
    use_own_home();
    make_template("saved-workdir-relative");
    AUTO(cay_sandbox) sandbox = make_tiny();
    run(sandbox, "pwd");
    ASSERT_STR(result.out, "/app/here\n");
}

TEST(a_directory_can_be_used_as_it_is)
{
    use_own_home();
    const char *path = make_image("directory");
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = path};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run(sandbox, "id -un; touch ~/x && echo made; stat -c %u /srv/owned");
    ASSERT_STR(result.out, "user\nmade\n33\n");
    run_as(sandbox, "root", "rm /etc/motd; echo x > /new; ls /", PATIENCE_MS);
    ASSERT_HAS(result.out, "new\n");
    ASSERT_STR(get_file("directory/etc/motd"), "lower\n");
    ASSERT(access(scratch_path("directory/new"), F_OK) != 0);
    ASSERT(access(scratch_path("directory/home/user"), F_OK) != 0);
    ASSERT(!strstr(get_file("directory/etc/passwd"), "user:"));
}

TEST(an_unknown_template_lists_those_there_are)
{
    struct cay_sandbox_options options = {.size = sizeof options,
                                          .template_name = "debian"};
    cay_sandbox *sandbox = NULL;

    use_own_home();
    make_template("tar");
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NOT_FOUND);
    ASSERT_HAS(err.hint, "host, tiny");
    options.template_name = "/nonexistent";
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NOT_FOUND);
    options.template_name = "/etc/passwd";
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NOT_A_DIRECTORY);
    options.template_name = "..";
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_NOT_FOUND);
}

TEST(a_template_in_use_is_not_removed)
{
    use_own_home();
    make_template("tar");
    AUTO(cay_sandbox) sandbox = make_tiny();
    ASSERT_CODE(cay_template_remove("tiny", &err), CAY_E_BUSY);
    run(sandbox, "cat /etc/motd");
    ASSERT_STR(result.out, "lower\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_OK(cay_template_remove("tiny", &err));
}

static void assert_no_root_from(const char *kind)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = "tiny"};
    cay_sandbox *sandbox = NULL;

    make_template(kind);
    ASSERT_CODE(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
    ASSERT_OK(cay_template_remove("tiny", &err));
    assert_canary();
}

/* With so many descriptors more than are open. */
static int remove_with(int spare)
{
    struct rlimit before;
    int next = dup(0);

    (void)close(next);
    ASSERT(next >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit now = {(rlim_t)next + (rlim_t)spare, before.rlim_max};
    ASSERT(setrlimit(RLIMIT_NOFILE, &now) == 0);
    int code = cay_template_remove("tiny", &err);
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    return code;
}

TEST(a_template_is_not_removed_if_its_sandboxes_cannot_be_listed)
{
    static const enum cay_storage storages[] = {CAY_STORAGE_MEMORY, CAY_STORAGE_DISK};

    use_own_home();
    make_template("tar");
    for (size_t i = 0; i < 2; i++) {
        const struct cay_sandbox_options options = {
            .size = sizeof options, .storage = storages[i], .template_name = "tiny"};
        AUTO(cay_sandbox) sandbox = make_sandbox(&options);
        if (storages[i] == CAY_STORAGE_DISK)
            ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        for (int spare = 0; spare < 12; spare++) {
            int code = remove_with(spare);
            ASSERT(code == CAY_E_UNAVAILABLE || code == CAY_E_BUSY);
            ASSERT(access(in_tiny("bin"), F_OK) == 0);
        }
        ASSERT_INT(remove_with(12), CAY_E_BUSY);
        ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    }
    ASSERT_OK(cay_template_remove("tiny", &err));
}

TEST(an_image_whose_dev_or_proc_leads_out_is_refused)
{
    use_own_home();
    assert_no_root_from("dev-link");
    assert_no_root_from("proc-link");
    assert_no_root_from("sys-link");
}

TEST(an_image_whose_tmp_or_run_leads_out_stays_inside)
{
    static const char *const kinds[] = {"tmp-link", "run-link", "hosts-link",
                                        "dev-null-link"};

    use_own_home();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_template(kinds[i]);
        AUTO(cay_sandbox) sandbox = make_tiny();
        run_as(sandbox, "root",
               "echo x > /tmp/canary; echo x > /run/canary; echo x > /dev/null; "
               "cat /etc/hosts | head -c 9; test -c /dev/null && echo real",
               PATIENCE_MS);
        ASSERT_STR(result.out, "127.0.0.1real\n");
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        ASSERT_OK(cay_template_remove("tiny", &err));
        assert_canary();
    }
}

/* What kernels before 6.13 need; here it is only looked at. */
TEST(an_overlay_can_be_made_by_path)
{
    need_root();
    put_file("lower/a", "lower\n");
    put_file("top/upper/b", "upper\n");
    put_file("top/work/x", "");
    ASSERT(unlink(scratch_path("top/work/x")) == 0);
    int lower = (int)syscall(SYS_open_tree, AT_FDCWD, scratch_path("lower"),
                             OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    int top = (int)syscall(SYS_open_tree, AT_FDCWD, scratch_path("top"),
                           OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    ASSERT(lower >= 0 && top >= 0);
    int usr;
    const struct overlay_layers layers = {.lowers = &lower,
                                          .lower_count = 1,
                                          .top = top,
                                          .usr = -1,
                                          .host = -1,
                                          .usr_above = -1};
    AUTO_FD merged = overlay_by_path(&layers, &usr);
    ASSERT(merged >= 0);
    ASSERT(close(lower) == 0 && close(top) == 0);
    ASSERT_INT(faccessat(merged, "a", F_OK, 0), 0);
    ASSERT_INT(faccessat(merged, "b", F_OK, 0), 0);
    AUTO_FD made = openat(merged, "c", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT(made >= 0);
    ASSERT_STR(get_file("top/upper/c"), "");
    /* Nothing of it is seen by us. */
    ASSERT(access("/usr/bin", F_OK) == 0);
    ASSERT(access("/tmp/upper", F_OK) != 0);
}

TEST(an_overlay_by_path_has_as_many_layers_as_a_template)
{
    enum { COUNT = OVERLAY_BELOW_MAX + 1 };
    int lowers[COUNT], usr;

    need_root();
    put_file("top/upper/b", "");
    put_file("top/work/x", "");
    ASSERT(unlink(scratch_path("top/work/x")) == 0);
    for (int i = 0; i < COUNT; i++) {
        char path[64];
        snprintf(path, sizeof path, "lower%d/own%d", i, i);
        put_file(path, "");
        snprintf(path, sizeof path, "lower%d/common", i);
        put_file(path, i ? "low\n" : "high\n");
        snprintf(path, sizeof path, "lower%d", i);
        lowers[i] = (int)syscall(SYS_open_tree, AT_FDCWD, scratch_path(path),
                                 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        ASSERT(lowers[i] >= 0);
    }
    int top = (int)syscall(SYS_open_tree, AT_FDCWD, scratch_path("top"),
                           OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    const struct overlay_layers layers = {.lowers = lowers,
                                          .lower_count = COUNT,
                                          .top = top,
                                          .usr = -1,
                                          .host = -1,
                                          .usr_above = -1};
    AUTO_FD merged = overlay_by_path(&layers, &usr);
    ASSERT(merged >= 0);
    char text[8] = "";
    AUTO_FD common = openat(merged, "common", O_RDONLY | O_CLOEXEC);
    ASSERT_INT(read(common, text, sizeof text - 1), 5);
    ASSERT_STR(text, "high\n");
    for (int i = 0; i < COUNT; i++) {
        char path[64];
        snprintf(path, sizeof path, "own%d", i);
        ASSERT_INT(faccessat(merged, path, F_OK, 0), 0);
        ASSERT(close(lowers[i]) == 0);
    }
    ASSERT(close(top) == 0);
}

/* As fsconfig(2) does to a descriptor. */
static void refuse_descriptors(unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsconfig, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FSCONFIG_SET_FD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    ASSERT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST(kernels_that_want_paths_for_an_overlay_are_given_them)
{
    /* That of Linux 6.1 to 6.4, that of 6.5 to 6.12, and one to be sure. */
    static const unsigned errors[] = {EOPNOTSUPP, EBADF, EINVAL};

    need_root();
    use_own_home();
    make_template("tar");
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        int status;
        fflush(stdout);
        pid_t pid = fork();
        ASSERT(pid >= 0);
        if (pid == 0) {
            refuse_descriptors(errors[i]);
            cay_sandbox *sandbox = make_tiny();
            run(sandbox, "cat /etc/motd");
            ASSERT_STR(result.out, "lower\n");
            ASSERT_OK(cay_sandbox_kill(sandbox, &err));
            _exit(0);
        }
        ASSERT_INT(waitpid(pid, &status, 0), pid);
        ASSERT_INT(status, 0);
    }
}

TEST(one_that_has_put_a_link_in_place_of_its_template_is_not_started)
{
    use_own_home();
    make_template("directory");
    ASSERT(mkdir(scratch_path("shared"), 0755) == 0);
    ASSERT(rename(scratch_path("directory"), scratch_path("shared/root")) == 0);
    ASSERT(symlink("shared", scratch_path("other-name")) == 0);
    const struct cay_bind bind = {scratch_path("shared"), "/src", true};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .storage = CAY_STORAGE_DISK,
                                                .binds = &bind,
                                                .bind_count = 1,
                                                .template_name =
                                                    scratch_path("other-name/root")};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    /* What the caller followed itself is of no account. */
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "mv /src/root /src/old && ln -s / /src/root");
    ASSERT_STR(result.error, "");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_CODE(cay_sandbox_start(sandbox, &err), CAY_E_OUTSIDE);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}
