/* SPDX-License-Identifier: Apache-2.0 */

/* Directories and files of the host that are shown inside, one by one and by a policy. */
#include "templates.h"

#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>

#include "sys/path.h"

enum { OWNER = 4242 };

/* SCRATCH/shared, of somebody who is neither root nor 1000. */
static const char *make_shared(void)
{
    put_file("shared/file", "host\n");
    put_file("shared/foreign", "foreign\n");
    put_file("shared/sub/x", "x\n");
    ASSERT(chown(scratch_path("shared"), OWNER, OWNER) == 0);
    ASSERT(chown(scratch_path("shared/file"), OWNER, OWNER) == 0);
    ASSERT(chmod(scratch_path("shared/foreign"), 0666) == 0);
    /* So that nothing but the mount is what lets somebody in. */
    ASSERT(chmod(scratch(), 0700) == 0);
    return scratch_path("shared");
}

static cay_sandbox *make_with(const struct cay_bind *binds, size_t count,
                              const char *template_name)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .binds = binds,
                                                .bind_count = count,
                                                .template_name = template_name};

    return make_sandbox(&options);
}

static int try_bind(const char *source, const char *target)
{
    const struct cay_bind bind = {source, target, true};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = &bind, .bind_count = 1, .ephemeral = true};
    cay_sandbox *sandbox = NULL;
    int code = cay_sandbox_create(&options, &sandbox, &err);

    if (sandbox)
        (void)!cay_sandbox_kill(sandbox, NULL);
    cay_sandbox_free(sandbox);
    return code;
}

/* How much is mounted below the scratch directory, as everybody on the host sees it. */
static int count_mounts(void)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    int count = 0;

    ASSERT(file);
    while (fgets(line, sizeof line, file))
        count += strstr(line, scratch()) != NULL;
    (void)fclose(file);
    return count;
}

static struct stat stat_of(const char *name)
{
    struct stat st = {0};

    ASSERT_INT(lstat(scratch_path(name), &st), 0);
    return st;
}

TEST(the_owner_of_what_is_mounted_is_user_inside)
{
    need_root();
    const struct cay_bind bind = {make_shared(), "/src", true};
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, NULL);
    run(sandbox,
        "cd /src && stat -c '%U %G' . file foreign && cat file && echo new > new "
        "&& echo changed > file && mkdir dir && mv new dir/ && echo done");
    ASSERT_STR(result.error, "");
    ASSERT_STR(result.out, "user user\nuser user\nnobody nogroup\nhost\ndone\n");
    ASSERT_STR(get_file("shared/dir/new"), "new\n");
    ASSERT_STR(get_file("shared/file"), "changed\n");
    ASSERT_INT(stat_of("shared/dir/new").st_uid, OWNER);
    ASSERT_INT(stat_of("shared/dir/new").st_gid, OWNER);
    ASSERT_INT(stat_of("shared/dir").st_uid, OWNER);
}

TEST(the_owner_may_be_root_who_is_still_nobody_inside)
{
    need_root();
    put_file("roots/file", "host\n");
    ASSERT(chmod(scratch_path("roots/file"), 0600) == 0);
    const struct cay_bind bind = {scratch_path("roots"), "/src", true};
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, NULL);
    run(sandbox, "cat /src/file; echo x > /src/new; stat -c %U /src/new");
    ASSERT_STR(result.out, "host\nuser\n");
    ASSERT_INT(stat_of("roots/new").st_uid, 0);
    /* Root inside has no number there, and cannot leave anything. */
    run_as(sandbox, "root", "touch /src/by-root", PATIENCE_MS);
    ASSERT(result.exit_code != 0);
    run_as(sandbox, "daemon", "touch /src/by-daemon", PATIENCE_MS);
    ASSERT(result.exit_code != 0);
    ASSERT_INT(count_names(scratch_path("roots"), "by-"), 0);
}

TEST(read_only_is_kept_by_the_kernel_even_from_root_inside)
{
    static const char *const users[] = {"user", "root"};

    need_root();
    const struct cay_bind bind = {make_shared(), "/src", false};
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, NULL);
    for (size_t i = 0; i < 2; i++) {
        run_as(sandbox, users[i],
               "cd /src; cat file; for try in 'echo x > file' 'touch new' 'rm file' "
               "'chmod 777 file' 'mount -o remount,rw /src'; do "
               "sh -c \"$try\" && echo wrong; done; true",
               PATIENCE_MS);
        ASSERT_STR(result.out, "host\n");
        ASSERT_HAS(result.error, "Read-only file system");
    }
    ASSERT_STR(get_file("shared/file"), "host\n");
}

TEST(what_others_own_is_out_of_reach_of_root_inside)
{
    need_root();
    const struct cay_bind bind = {make_shared(), "/src", true};
    ASSERT(chmod(scratch_path("shared/foreign"), 0600) == 0);
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, NULL);
    run_as(sandbox, "root", "cat /src/foreign || chown user /src/foreign || echo no",
           PATIENCE_MS);
    ASSERT_STR(result.out, "no\n");
    ASSERT_INT(stat_of("shared/foreign").st_uid, 0);
}

TEST(a_set_user_id_bit_there_means_nothing)
{
    need_root();
    make_shared();
    char *argv[] = {(char[]){"cp"}, (char[]){"/usr/bin/id"},
                    strdupa(scratch_path("shared/id")), NULL};
    ASSERT_INT(run_program(argv), 0);
    ASSERT(chown(scratch_path("shared/id"), OWNER, OWNER) == 0);
    ASSERT(chmod(scratch_path("shared/id"), 04755) == 0);
    const struct cay_bind bind = {scratch_path("shared"), "/src", false};
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, NULL);
    run_as(sandbox, "daemon", "stat -c %a /src/id; /src/id -u", PATIENCE_MS);
    ASSERT_STR(result.out, "4755\n1\n");
}

TEST(single_files_can_be_mounted)
{
    need_root();
    make_shared();
    const struct cay_bind binds[] = {
        {scratch_path("shared/file"), "/etc/deep/down/config", true},
        {scratch_path("shared/foreign"), "/etc/hosts", false}};
    AUTO(cay_sandbox) sandbox = make_with(binds, 2, NULL);
    run(sandbox, "cat /etc/deep/down/config /etc/hosts; echo more >> "
                 "/etc/deep/down/config; echo x >> /etc/hosts || echo refused");
    ASSERT_STR(result.out, "host\nforeign\nrefused\n");
    ASSERT_STR(get_file("shared/file"), "host\nmore\n");
}

TEST(mounts_can_lie_in_mounts_and_in_what_is_missing)
{
    need_root();
    make_shared();
    put_file("other/y", "y\n");
    ASSERT(chown(scratch_path("other"), OWNER, OWNER) == 0);
    const struct cay_bind binds[] = {{scratch_path("other"), "/a/b/src/new", false},
                                     {scratch_path("other"), "/a/b/src//./sub/", true},
                                     {scratch_path("other"), "/home/user/x/y", false},
                                     {scratch_path("shared"), "/a/b/src", true}};
    AUTO(cay_sandbox) sandbox = make_with(binds, 4, NULL);
    run(sandbox, "cat /a/b/src/file /a/b/src/sub/y /a/b/src/new/y ~/x/y/y; "
                 "touch ~/x/own && echo made; touch /a/b/src/new/z || echo refused");
    ASSERT_STR(result.out, "host\ny\ny\ny\nmade\nrefused\n");
    /* A mount needs a place: it is made where the owner may make it. */
    ASSERT_INT(stat_of("shared/new").st_uid, OWNER);
}

TEST(mounts_can_lie_in_mounts_of_whoever_runs_commands)
{
    static const char *const users[] = {"root", "1234", "1000:5", "1234:5"};

    need_root();
    make_shared();
    const struct cay_bind binds[] = {{scratch_path("shared"), "/src", true},
                                     {scratch_path("shared/sub"), "/src/new", true}};
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        const struct cay_sandbox_options options = {
            .size = sizeof options, .binds = binds, .bind_count = 2, .user = users[i]};
        AUTO(cay_sandbox) sandbox = make_sandbox(&options);
        run_as(sandbox, NULL, "cat /src/new/x", PATIENCE_MS);
        ASSERT_STR(result.out, "x\n");
        ASSERT_INT(stat_of("shared/new").st_uid, OWNER);
        ASSERT_INT(stat_of("shared/new").st_gid, OWNER);
        ASSERT_INT(rmdir(scratch_path("shared/new")), 0);
    }
}

static char mounted[PATH_MAX];

static void unmount(void)
{
    (void)umount2(mounted, MNT_DETACH);
}

TEST(what_lies_on_another_mount_below_stays_outside)
{
    need_root();
    const struct cay_bind bind = {make_shared(), "/host", false};
    put_file("shared/below/under", "");
    snprintf(mounted, sizeof mounted, "%s", scratch_path("shared/below"));
    ASSERT(mount("none", mounted, "tmpfs", 0, NULL) == 0);
    harness_at_end(unmount);
    put_file("shared/below/over", "");
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, NULL);
    run(sandbox, "cd /host; ls below; cat file");
    ASSERT_STR(result.out, "under\nhost\n");
}

TEST(templates_have_mounts_too_and_links_in_them_do_not_lead_out)
{
    use_own_home();
    make_template("mount-link");
    make_shared();
    /* The link "zlink" leads to the canary's path, which is nothing inside... */
    struct cay_bind binds[] = {{scratch_path("shared"), "/srv", true},
                               {scratch_path("shared"), "/zlink/src", true}};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = binds, .bind_count = 2, .template_name = "tiny"};
    cay_sandbox *none = NULL;
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_EXISTS);
    ASSERT_STR(err.subject, "/zlink/src");
    assert_canary();
    /* ...unless something is made there. */
    binds[0].target = strdupa(scratch_path("canary"));
    AUTO(cay_sandbox) sandbox = make_with(binds, 2, "tiny");
    run(sandbox,
        "cat /zlink/file /zlink/src/file; echo new > /zlink/new && cat /zlink/src/new");
    ASSERT_STR(result.out, "host\nhost\nnew\n");
    assert_canary();
}

TEST(the_owner_may_be_one_that_only_the_template_knows)
{
    need_root();
    use_own_home();
    make_template("mount-link");
    make_shared();
    const struct cay_bind bind = {scratch_path("shared"), "/srv", true};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .binds = &bind,
                                                .bind_count = 1,
                                                .user = "daemon",
                                                .template_name = "tiny"};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    run_as(sandbox, NULL, "id -u; echo new > /srv/new && cat /srv/new", PATIENCE_MS);
    ASSERT_STR(result.out, "1\nnew\n");
    ASSERT_INT(stat_of("shared/new").st_uid, OWNER);
    ASSERT_INT(stat_of("shared/new").st_gid, OWNER);
}

TEST(the_files_api_has_the_rights_of_user_there_too)
{
    use_own_home();
    make_template("tar");
    const struct cay_bind bind = {make_shared(), "/src", true};
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, "tiny");
    cay_files *opened = NULL;
    ASSERT_OK(cay_sandbox_files(sandbox, NULL, &opened, &err));
    AUTO(cay_files) files = opened;
    ASSERT_OK(cay_files_write(files, "/src/new", "by api", 6, NULL, &err));
    ASSERT_STR(get_file("shared/new"), "by api");
    ASSERT_INT(stat_of("shared/new").st_uid, OWNER);
    ASSERT_CODE(cay_files_write(files, "/etc/motd", "x", 1, NULL, &err), CAY_E_DENIED);
    ASSERT_OK(cay_files_write(files, "/home/user/own", "x", 1, NULL, &err));
    run(sandbox, "cat ~/own; stat -c %U ~/own");
    ASSERT_STR(result.out, "xuser\n");
}

TEST(what_cannot_be_mounted_is_told)
{
    need_root();
    make_shared();
    ASSERT_CODE(try_bind("/nonexistent", "/x"), CAY_E_NOT_FOUND);
    ASSERT_CODE(try_bind(scratch_path("shared"), "relative"), CAY_E_INVALID);
    ASSERT_CODE(try_bind(scratch_path("shared"), "/a/../b"), CAY_E_INVALID);
    ASSERT_CODE(try_bind(scratch_path("shared"), "/"), CAY_E_INVALID);
    ASSERT_CODE(try_bind(scratch_path("shared"), "/proc/x"), CAY_E_INVALID);
    ASSERT_CODE(try_bind(scratch_path("shared"), "/dev"), CAY_E_INVALID);
    ASSERT_CODE(try_bind(scratch_path("shared"), NULL), CAY_E_INVALID);
    ASSERT_CODE(try_bind("", "/x"), CAY_E_INVALID);
    ASSERT_CODE(try_bind("/dev/null", "/x"), CAY_E_NOT_A_FILE);
    ASSERT_CODE(try_bind("/proc/self", "/x"), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.message, "idmapped");
    /* The host's programs are not ours to make directories in. */
    ASSERT_CODE(try_bind(scratch_path("shared"), "/usr/nonexistent"), CAY_E_DENIED);
    ASSERT_CODE(try_bind(scratch_path("shared"), "/etc/passwd"), CAY_E_NOT_A_DIRECTORY);
}

/* A process that reaches them can run commands in every sandbox, and in local ones on the
 * host. */
TEST(the_control_sockets_of_sandboxes_stay_outside)
{
    need_root();
    AUTO(cay_sandbox) other = make_with(NULL, 0, NULL);
    char parent[PATH_MAX], own[PATH_MAX];

    snprintf(parent, sizeof parent, "%s/..", runtime_path());
    snprintf(own, sizeof own, "%s/%s", runtime_path(), cay_sandbox_id(other));
    ASSERT(symlink(runtime_path(), scratch_path("link")) == 0);
    const char *const sources[] = {runtime_path(), own, scratch_path("link"), parent};
    struct stat above, there; /* what is mounted below a source is not shown inside */
    ASSERT(stat(parent, &above) == 0 && stat(runtime_path(), &there) == 0);
    size_t count = sizeof sources / sizeof *sources - (above.st_dev != there.st_dev);
    for (size_t i = 0; i < count; i++) {
        ASSERT_CODE(try_bind(sources[i], "/x"), CAY_E_INVALID);
        ASSERT_HAS(err.message, "control sockets");
        ASSERT_STR(err.subject, sources[i]);
    }
}

/* Exchanges a directory and a link to the canary, without end. */
static pid_t begin_flipping(void)
{
    const char *a = scratch_path("shared/a"), *b = scratch_path("shared/b");
    pid_t pid = fork();

    ASSERT(pid >= 0);
    while (pid == 0)
        (void)path_rename(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
    return pid;
}

TEST(a_place_that_changes_into_a_link_meanwhile_leads_nowhere_else)
{
    need_root();
    make_shared();
    put_file("canary/canary", "alive\n");
    put_file("shared/a/x", "x\n");
    put_file("other/canary", "mounted\n");
    ASSERT(symlink(scratch_path("canary"), scratch_path("shared/b")) == 0);
    const struct cay_bind binds[] = {{scratch_path("shared"), "/src", true},
                                     {scratch_path("other"), "/src/a", true}};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .binds = binds, .bind_count = 2, .ephemeral = true};
    pid_t pid = begin_flipping();
    int made = 0;
    for (int i = 0; i < 60; i++) {
        cay_sandbox *sandbox = NULL;
        made += cay_sandbox_create(&options, &sandbox, NULL) == CAY_OK;
        if (sandbox)
            (void)!cay_sandbox_kill(sandbox, NULL);
        cay_sandbox_free(sandbox);
    }
    ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    ASSERT(made > 0);
    assert_canary();
    ASSERT_INT(count_mounts(), 0);
}

TEST(nothing_is_mounted_on_the_host)
{
    use_own_home();
    make_template("tar");
    const struct cay_bind bind = {make_shared(), "/src", true};
    AUTO(cay_sandbox) sandbox = make_with(&bind, 1, "tiny");
    run(sandbox, "cat /src/file");
    ASSERT_STR(result.out, "host\n");
    ASSERT_INT(count_mounts(), 0);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_mounts(), 0);
}

/* As systemd has it, and most machines. */
static void share_mounts(void)
{
    ASSERT(unshare(CLONE_NEWNS) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ASSERT(mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) == 0);
}

static void mount_on_both_sides(void)
{
    make_shared();
    put_file("other/y", "y\n");
    put_file("shared/late/under", "");
    const struct cay_bind binds[] = {{scratch_path("shared"), "/src", true},
                                     {scratch_path("other"), "/src/sub", false}};
    share_mounts();
    cay_sandbox *sandbox = make_with(binds, 2, NULL);
    ASSERT_INT(count_mounts(), 0);
    ASSERT(mount("none", scratch_path("shared/late"), "tmpfs", 0, NULL) == 0);
    ASSERT(mount("none", "/usr/bin", "tmpfs", 0, NULL) == 0);
    run(sandbox, "cat /src/sub/y; echo /src/late/*; test -x /usr/bin/env && echo there");
    ASSERT_STR(result.out, "y\n/src/late/under\nthere\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
}

TEST(where_mounts_are_shared_none_is_seen_on_the_other_side)
{
    int status;

    need_root();
    (void)scratch(); /* ours, so that it is removed by us */
    fflush(stdout);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        mount_on_both_sides();
        _exit(0);
    }
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    ASSERT_INT(status, 0);
}

static cay_policy *parse(const char *text)
{
    cay_policy *policy = NULL;

    ASSERT_OK(cay_policy_parse(text, strlen(text), "policy", scratch(), &policy, &err));
    return policy;
}

static cay_sandbox *make_under(const cay_policy *policy)
{
    const struct cay_sandbox_options options = {.size = sizeof options, .policy = policy};

    return make_sandbox(&options);
}

TEST(a_policys_paths_appear_by_name_with_their_modes)
{
    need_root();
    make_shared();
    put_file("docs/some/a.txt", "a\n");
    AUTO(cay_policy)
    policy = parse("paths:\n"
                   "  ro: {root: shared, mode: ro}\n"
                   "  rw: {root: docs/rw, mode: rw, write_approval: false}\n"
                   "  asks: {root: docs/asks, mode: rw, write_approval: true}\n"
                   "  some: {root: docs/some, mode: rw, write_approval: false, "
                   "suffixes: [.txt]}\n"
                   "  small: {root: docs/small, mode: rw, write_approval: false, "
                   "max_file_bytes: 10}\n"
                   "  trusted: {root: docs/trusted, mode: rw, exec: rw}\n"
                   "  kept: {root: docs/kept, mode: rw, write_approval: false, "
                   "exec: ro}\n");
    AUTO(cay_sandbox) sandbox = make_under(policy);
    run(sandbox, "cat /ro/file /some/a.txt; for d in ro rw asks some small trusted kept; "
                 "do touch /$d/by-$d 2>/dev/null && echo $d; done");
    ASSERT_STR(result.out, "host\na\nrw\ntrusted\n");
    ASSERT_INT(count_names(scratch_path("docs/rw"), "by-"), 1);
    ASSERT_INT(count_names(scratch_path("docs/trusted"), "by-"), 1);
}

TEST(a_policy_that_the_file_functions_refuse_is_refused_for_programs_too)
{
    static const char *const wrong[] = {
        "paths:\n  a: {root: shared, mode: rw, write_approval: false}\n"
        "  b: {root: shared/dir, mode: ro}\n",
        "paths:\n  a: {root: shared}\n  b: {root: shared, mode: rw}\n",
    };

    need_root();
    make_shared();
    put_file("shared/dir/file", "stays\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        AUTO(cay_policy) policy = parse(wrong[i]);
        const struct cay_sandbox_options options = {.size = sizeof options,
                                                    .policy = policy};
        cay_sandbox *sandbox = NULL;
        ASSERT_INT(cay_sandbox_create(&options, &sandbox, &err), CAY_E_INVALID);
        ASSERT_HAS(err.message, "overlaps");
    }
}

TEST(a_policys_single_root_is_the_workspace)
{
    need_root();
    make_shared();
    AUTO(cay_policy)
    policy = parse("root: {root: shared, exec: rw}");
    AUTO(cay_sandbox) sandbox = make_under(policy);
    run(sandbox, "cat /workspace/file; echo x > /workspace/new && echo made");
    ASSERT_STR(result.out, "host\nmade\n");
    ASSERT_INT(stat_of("shared/new").st_uid, OWNER);
    AUTO(cay_policy) careful = parse("root: shared");
    AUTO(cay_sandbox) other = make_under(careful);
    run(other, "cat /workspace/file; echo x > /workspace/new || echo refused");
    ASSERT_STR(result.out, "host\nrefused\n");
}

TEST(a_policys_mount_points_are_where_they_are)
{
    need_root();
    make_shared();
    put_file("docs/a.txt", "a\n");
    AUTO(cay_policy)
    policy = parse("mounts:\n  - {mount_point: /data, host_path: shared}\n"
                   "  - {mount_point: /data/sub, host_path: docs}\n");
    AUTO(cay_sandbox) sandbox = make_under(policy);
    run(sandbox, "cat /data/file /data/sub/a.txt");
    ASSERT_STR(result.out, "host\na\n");
}

/* Where it can be written to from inside, there may be a link by now. */
TEST(one_that_has_put_a_link_where_something_was_shown_from_is_not_started)
{
    char shared[PATH_MAX], script[PATH_MAX + 64];

    use_own_home();
    put_file("shared/sub/file", "host\n");
    put_file("secret/file", "secret\n");
    snprintf(shared, sizeof shared, "%s", scratch_path("shared"));
    const struct cay_bind binds[] = {{shared, "/src", true},
                                     {scratch_path("shared/sub"), "/sub", false}};
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .storage = CAY_STORAGE_DISK,
                                                .binds = binds,
                                                .bind_count = 2};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    snprintf(script, sizeof script, "mv /src/sub /src/old && ln -s %s /src/sub",
             scratch_path("secret"));
    run(sandbox, script);
    ASSERT_STR(result.error, "");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_CODE(cay_sandbox_start(sandbox, &err), CAY_E_OUTSIDE);
    ASSERT_STR(err.subject, scratch_path("shared/sub"));
    ASSERT(unlink(scratch_path("shared/sub")) == 0);
    ASSERT(rename(scratch_path("shared/old"), scratch_path("shared/sub")) == 0);
    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    run(sandbox, "cat /sub/file");
    ASSERT_STR(result.out, "host\n");
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
}
