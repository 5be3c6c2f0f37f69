/* SPDX-License-Identifier: Apache-2.0 */

/* Where there are no user namespaces: what landlock and seccomp keep out of reach, and
 * what is refused because they cannot do it.  And what is refused on the level above. */
#include <errno.h>
#include <time.h>

#include "ladder.h"

/* --- Refusals --- */

static void refuse_users(void)
{
    static const char *const others[] = {"root", "0", "1001", "nobody", "nonexistent"};
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    struct cay_sandbox_options wish = {
        .size = sizeof wish, .level = level_here, .user = "root"};
    const char *const argv[] = {"id", NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    bool is_single = level_here == CAY_LEVEL_SINGLE;
    const char *help = is_single ? "/etc/subuid" : "allow user namespaces";
    cay_sandbox *none = NULL;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        options.user = others[i];
        ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err),
                    CAY_E_UNSUPPORTED);
        ASSERT_HAS(err.hint, help);
    }
    options.user = "1000";
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_CODE(cay_sandbox_create(&wish, &none, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, help);
    cay_exec_done(&result);
}

TEST(other_users_are_refused_where_there_is_one)
{
    on_level(CAY_LEVEL_SINGLE, refuse_users);
    on_level(CAY_LEVEL_LANDLOCK, refuse_users);
}

static void refuse_pause(void)
{
    AUTO(cay_sandbox) sandbox = make_on(level_here);

    ASSERT_CODE(cay_sandbox_pause(sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "delegated cgroup");
    run(sandbox, "echo goes on");
    ASSERT_STR(result.out, "goes on\n");
    cay_exec_done(&result);
}

TEST(a_pause_is_refused_where_no_cgroup_can_be_frozen)
{
    on_every_level(refuse_pause);
}

static void refuse_wish(const struct cay_sandbox_options *wish, const char *subject)
{
    struct cay_sandbox_options own = *wish;
    cay_sandbox *sandbox = NULL;

    own.size = sizeof own;
    own.level = CAY_LEVEL_LANDLOCK;
    ASSERT_CODE(cay_sandbox_create(&own, &sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, subject);
}

static void refuse_wishes(void)
{
    const struct cay_bind elsewhere = {"/usr", "/data", false};

    refuse_wish(&(struct cay_sandbox_options){.hostname = "x"}, "hostname");
    refuse_wish(&(struct cay_sandbox_options){.storage = CAY_STORAGE_DISK}, "storage");
    refuse_wish(&(struct cay_sandbox_options){.binds = &elsewhere, .bind_count = 1},
                "bind");
    refuse_wish(&(struct cay_sandbox_options){.network = CAY_NETWORK_RULES}, "network");
    ASSERT_HAS(err.message, "no network namespace");
}

TEST(what_needs_a_root_of_its_own_is_refused_on_the_level_landlock)
{
    need_landlock();
    as_ordinary(ordinary_user(false), refuse_wishes);
}

/* --- Network rules --- */

/* Without a network outside: names have addresses, and other connections are refused. */
static void use_network_rules(void)
{
    static const char *const rules[] = {"allowed.test"};
    const struct cay_network_config network = {
        .size = sizeof network, .rules = rules, .rule_count = 1};
    struct cay_sandbox_options wish = {.size = sizeof wish, .level = level_here};
    cay_policy *policy = NULL;
    cay_sandbox *made = NULL;

    ASSERT_OK(cay_policy_add_network(NULL, &network, &policy, &err));
    wish.policy = policy;
    int code = cay_sandbox_create(&wish, &made, &err);
    AUTO(cay_sandbox) sandbox = made;
    cay_policy_free(policy);
    ASSERT_INT(code, CAY_OK);
    run(sandbox,
        "getent hosts allowed.test other.test; echo $?; curl -si http://192.0.2.1/");
    ASSERT_HAS(result.out, "198.18.0.1      allowed.test\n2\n");
    ASSERT_HAS(result.out, "HTTP/1.1 403 Forbidden");
    ASSERT_HAS(result.out, "192.0.2.1:80 is not allowed");
    cay_exec_done(&result);
}

TEST(network_rules_apply_on_the_levels_with_namespaces)
{
    on_level(CAY_LEVEL_RANGE, use_network_rules);
    on_level(CAY_LEVEL_SINGLE, use_network_rules);
    level_here = CAY_LEVEL_ROOT;
    use_network_rules();
    level_here = CAY_LEVEL_SINGLE; /* root lends a user id */
    use_network_rules();
}

/* mv(1) would copy where rename(2) fails. */
static void rename_to_another_directory(void)
{
    AUTO(cay_sandbox) sandbox = make_on(level_here);

    run(sandbox, "cd && mkdir -p a/b && echo 1 > a/b/f && ln a/b/f a/l && "
                 "python3 -c 'import os; os.rename(\"a/b/f\", \"a/f\")' && cat a/f");
    ASSERT_STR(result.out, "1\n");
    cay_exec_done(&result);
}

TEST(files_can_be_renamed_to_another_directory)
{
    on_every_level(rename_to_another_directory);
}

/* --- The walls of the level landlock --- */

static void must_fail(cay_sandbox *sandbox, const char *script)
{
    run(sandbox, script);
    if (strstr(result.out, "ESCAPE") || result.cause != CAY_CAUSE_EXITED)
        harness_fail(__FILE__, __LINE__, "%s\n# out: %s\n# err: %s", script, result.out,
                     result.error);
}

static void climb_the_walls(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
    char script[1200], file[128];

    /* Something of the same user's, outside. */
    snprintf(file, sizeof file, "%s/secret", getenv("XDG_RUNTIME_DIR"));
    FILE *secret = fopen(file, "we");
    ASSERT(secret && fputs("secret", secret) >= 0 && fclose(secret) == 0);
    pid_t victim = fork();
    ASSERT(victim >= 0);
    if (victim == 0) {
        pause();
        _exit(0);
    }
    snprintf(script, sizeof script,
             "cat %s && echo ESCAPE; echo x > %s && echo ESCAPE; "
             ": > %s && echo ESCAPE; rm %s && echo ESCAPE; mv %s $HOME && echo ESCAPE; "
             "ln %s $HOME/l && echo ESCAPE; ls $XDG_RUNTIME_DIR/.. && true",
             file, file, file, file, file, file);
    must_fail(sandbox, script);
    must_fail(sandbox, "echo x > /tmp/x$$ && echo ESCAPE; ls /home && echo ESCAPE; "
                       "cat /etc/hostname && echo ESCAPE; ls /tmp && echo ESCAPE; "
                       "cat /proc/self/environ && echo ESCAPE; ls /proc && echo ESCAPE; "
                       "ls /sys && echo ESCAPE; ls /run && echo ESCAPE; true");
    snprintf(script, sizeof script,
             "kill -9 %d && echo ESCAPE; kill -STOP %d && echo ESCAPE; "
             "renice -n 5 -p %d && echo ESCAPE; "
             "prlimit --pid %d --nofile=1:1 && echo ESCAPE; "
             "cat /proc/%d/environ && echo ESCAPE; true",
             victim, victim, victim, victim, victim);
    must_fail(sandbox, script);
    ASSERT(kill(victim, SIGKILL) == 0);
    ASSERT_INT(waitpid(victim, NULL, 0), victim);
    FILE *after = fopen(file, "re");
    char text[16] = "";
    ASSERT(after && fgets(text, sizeof text, after));
    fclose(after);
    ASSERT_STR(text, "secret");
    ASSERT(unlink(file) == 0);
    /* Its own directory is its own. */
    run(sandbox, "cd && mkdir d && echo 1 > d/f && mv d e && cat e/f && rm -r e && "
                 "mktemp > /dev/null && echo fine");
    ASSERT_STR(result.out, "1\nfine\n");
    cay_exec_done(&result);
}

TEST(landlock_alone_keeps_files_and_processes_of_the_same_user_out_of_reach)
{
    need_landlock();
    as_ordinary(ordinary_user(false), climb_the_walls);
}

static void try_calls(void)
{
    static const char program[] =
        "import ctypes, os, platform, socket\n"
        "for family in (1, 2, 10, 16, 17, 38):\n"
        "    try:\n"
        "        socket.socket(family, socket.SOCK_DGRAM); print('ESCAPE', family)\n"
        "    except OSError: pass\n"
        "a, b = socket.socketpair(); a.send(b'pairs work'); print(b.recv(99).decode())\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "x = platform.machine() == 'x86_64'\n"
        "n = dict(ptrace=101, process_vm_readv=310, shmget=29, msgget=68, semget=64,"
        " kcmp=312) if x else dict(ptrace=117, process_vm_readv=270, shmget=194,"
        " msgget=186, semget=190, kcmp=272)\n"
        "for name in n:\n"
        "    r = c.syscall(n[name], 0, 0, 0, 0, 0, 0)\n"
        "    if r != -1 or ctypes.get_errno() != 1: print('ESCAPE', name, r)\n";
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
    const char *const argv[] = {"python3", "-c", program, NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_STR(result.error, "");
    ASSERT_STR(result.out, "pairs work\n");
    cay_exec_done(&result);
}

TEST(sockets_and_the_memory_of_others_are_refused_on_the_level_landlock)
{
    need_landlock();
    as_ordinary(ordinary_user(false), try_calls);
}

/* --- Files --- */

static cay_files *open_files(cay_sandbox *sandbox)
{
    cay_files *files = NULL;

    ASSERT_OK(cay_sandbox_files(sandbox, NULL, &files, &err));
    return files;
}

static void expect_text(cay_files *files, const char *path, const char *text)
{
    struct cay_page page = {0};

    ASSERT_OK(cay_files_read_bytes(files, path, NULL, &page, &err));
    ASSERT_MEM(page.text, page.len, text, strlen(text));
    cay_page_done(&page);
}

static void expect_refusal(cay_files *files, const char *path)
{
    struct cay_page page = {0};

    ASSERT_CODE(cay_files_read_bytes(files, path, NULL, &page, &err), CAY_E_DENIED);
}

static void use_files(void)
{
    AUTO(cay_sandbox) sandbox = make_on(level_here);
    AUTO(cay_files) files = open_files(sandbox);
    cay_files *others = NULL;

    ASSERT_OK(cay_files_write(files, "a/b", "text", 4, NULL, &err));
    expect_text(files, "a/b", "text");
    run(sandbox, "cat a/b; printf more > a/c");
    ASSERT_STR(result.out, "text");
    expect_text(files, "a/c", "more");
    /* Its rights are the user's, who may forbid something to itself. */
    run(sandbox, "chmod 0 a/c");
    expect_refusal(files, "a/c");
    ASSERT_CODE(cay_sandbox_files(sandbox, "root", &others, &err), CAY_E_UNSUPPORTED);
    cay_exec_done(&result);
}

TEST(files_go_in_and_out_with_the_rights_of_the_one_user)
{
    on_level(CAY_LEVEL_SINGLE, use_files);
    on_level(CAY_LEVEL_LANDLOCK, use_files);
}

static void use_forbidden_files(void)
{
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
    AUTO(cay_files) files = open_files(sandbox);
    char secret[128], stat[64];

    snprintf(secret, sizeof secret, "%s/secret", getenv("XDG_RUNTIME_DIR"));
    FILE *file = fopen(secret, "we");
    ASSERT(file && fputs("secret", file) >= 0 && fclose(file) == 0);
    snprintf(stat, sizeof stat, "/proc/%d/cmdline", (int)getpid());
    expect_refusal(files, secret);
    expect_refusal(files, stat);
    expect_refusal(files, "/proc/self/environ");
    expect_refusal(files, "/etc/hostname");
    ASSERT_CODE(cay_files_write(files, secret, "x", 1, NULL, &err), CAY_E_DENIED);
    ASSERT_CODE(cay_files_write(files, "/tmp/test-landlock", "x", 1, NULL, &err),
                CAY_E_DENIED);
    run(sandbox, "ln -s /etc/hostname link");
    expect_refusal(files, "link");
    ASSERT(unlink(secret) == 0);
    cay_exec_done(&result);
}

TEST(the_file_functions_reach_no_further_than_commands)
{
    on_level(CAY_LEVEL_LANDLOCK, use_forbidden_files);
}

/* --- What it leaves --- */

static bool is_left(const char *id)
{
    char path[64];

    snprintf(path, sizeof path, "/tmp/cay-%s", id);
    return access(path, F_OK) == 0;
}

static void leave_closed_directories(void)
{
    static const char *const scripts[] = {
        "mkdir d && : > d/f && chmod 000 .",
        "mkdir -p d/e && : > d/e/f && chmod 000 d/e && chmod 500 d",
        "i=0; while [ $i -lt 300 ]; do mkdir d && cd d || exit 1; i=$((i + 1)); done; "
        ": > f; while [ $i -gt 0 ]; do chmod 000 . && cd .. || exit 1; "
        "i=$((i - 1)); done",
    };

    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
        run(sandbox, scripts[i]);
        ASSERT_INT(result.exit_code, 0);
        cay_exec_done(&result);
        ASSERT(is_left(cay_sandbox_id(sandbox)));
        ASSERT_OK(cay_sandbox_kill(sandbox, &err));
        ASSERT(!is_left(cay_sandbox_id(sandbox)));
    }
}

TEST(directories_that_are_closed_to_their_owner_are_removed)
{
    on_level(CAY_LEVEL_LANDLOCK, leave_closed_directories);
}

TEST(a_directory_that_cannot_be_removed_yet_is_told_and_removed_later)
{
    if (geteuid() != 0)
        SKIP("only root can mount something there");
    need_landlock();
    AUTO(cay_sandbox) sandbox = make_on(CAY_LEVEL_LANDLOCK);
    char place[64];

    snprintf(place, sizeof place, "/tmp/cay-%s/tmp", cay_sandbox_id(sandbox));
    ASSERT(mount("tmpfs", place, "tmpfs", 0, NULL) == 0);
    ASSERT_CODE(cay_sandbox_kill(sandbox, &err), CAY_E_BUSY);
    ASSERT_HAS(err.hint, "unmount");
    ASSERT(is_left(cay_sandbox_id(sandbox)));
    ASSERT(umount(place) == 0);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT(!is_left(cay_sandbox_id(sandbox)));
}
