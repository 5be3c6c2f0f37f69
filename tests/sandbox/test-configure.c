/* SPDX-License-Identifier: Apache-2.0 */

/* Native sandboxes made by a configuration. */
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "processes.h"

#include "cay/backend.h"

static cay_config *parse(const char *text)
{
    cay_config *config = NULL;

    ASSERT_OK(cay_config_parse(text, strlen(text), "test", NULL, &config, &err));
    return config;
}

static void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

static cay_sandbox *make_as(const char *text)
{
    AUTO(cay_config) config = parse(text);
    cay_sandbox *sandbox = NULL;

    need_root();
    ASSERT_OK(cay_backend_create(config, &sandbox, &err));
    return sandbox;
}

/* The code of making one that cannot be, of which nothing may be left. */
static int refused(const char *text)
{
    AUTO(cay_config) config = parse(text);
    cay_sandbox *sandbox = NULL;

    need_root();
    size_t before = count_names(runtime_path(), "sb-");
    int code = cay_backend_create(config, &sandbox, &err);
    ASSERT(!sandbox);
    for (int ms = 0; ms < PATIENCE_MS && count_names(runtime_path(), "sb-") > before;
         ms += 10)
        usleep(10000); /* others of this machine have some, too, for a while */
    ASSERT(count_names(runtime_path(), "sb-") <= before);
    return code;
}

static const char *says(cay_sandbox *sandbox, const char *script)
{
    run(sandbox, script);
    ASSERT_STR(result.error, "");
    ASSERT_INT(result.exit_code, 0);
    return result.out;
}

/* --- Fields ----------------------------------------------------------------------- */

TEST(without_a_word_it_is_as_without_a_configuration)
{
    AUTO(cay_sandbox) sandbox = make_as("type: native\nephemeral: true\n");
    struct cay_sandbox_info info;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_STR(info.template_name, "host");
    ASSERT_STR(info.user, "user");
    ASSERT_INT(info.network, CAY_NETWORK_NONE);
    ASSERT_INT(info.storage, CAY_STORAGE_MEMORY);
    ASSERT_INT(info.memory_bytes, CAY_MEMORY_DEFAULT);
    ASSERT_INT(info.pids, CAY_PIDS_DEFAULT);
    ASSERT_INT(info.cpu_percent, 0);
    ASSERT_INT(info.ttl_left_ms, 0);
    ASSERT(info.ephemeral);
    ASSERT_STR(says(sandbox, "pwd; id -un"), "/home/user\nuser\n");
    ASSERT_STR(cay_sandbox_backend(sandbox)->name, "native");
}

TEST(every_field_reaches_the_sandbox)
{
    AUTO(cay_sandbox)
    sandbox = make_as("type: native\n"
                      "template: host\n"
                      "limits: {memory: 300M, disk: 64 MiB, pids: 77, cpu: 150}\n"
                      "network: host\n"
                      "user: root\n"
                      "hostname: workshop\n"
                      "timeout: 600.5\n"
                      "require: [seccomp, mount]\n"
                      "level: root\n"
                      "ephemeral: yes\n"
                      "env: {ONE: 'a \"b', TWO: ''}\n");
    struct cay_sandbox_info info;

    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(info.memory_bytes, 300 << 20);
    ASSERT_INT(info.disk_bytes, 64 << 20);
    ASSERT_INT(info.pids, 77);
    ASSERT_INT(info.cpu_percent, 150);
    ASSERT_INT(info.network, CAY_NETWORK_HOST);
    ASSERT_INT(info.level, CAY_LEVEL_ROOT);
    ASSERT(info.ttl_left_ms > 0 && info.ttl_left_ms <= 600500);
    ASSERT(info.ephemeral);
    ASSERT_STR(says(sandbox, "id -un; hostname; echo \"[$ONE][${TWO-unset}]\"; pwd"),
               "root\nworkshop\n[a \"b][]\n/home/user\n");
}

TEST(mounts_are_shown_as_they_say)
{
    char text[2048];

    put_file("data/file", "shown\n");
    need_root();
    snprintf(text, sizeof text,
             "type: native\nephemeral: true\nmounts:\n  - '%s:/rw dir'\n  - %s:/ro:ro\n"
             "  - %s:/file:rw\n",
             scratch_path("data"), scratch_path("data"), scratch_path("data/file"));
    AUTO(cay_sandbox) sandbox = make_as(text);
    ASSERT_STR(says(sandbox, "cat '/rw dir/file' /ro/file; echo new > '/rw dir/new'; "
                             "echo changed > /file; cat /ro/new /ro/file; "
                             "touch /ro/x 2>/dev/null || echo no"),
               "shown\nshown\nnew\nchanged\nno\n");
}

TEST(a_policy_is_shown_too)
{
    char text[2048];

    put_file("docs/a.md", "a\n");
    snprintf(
        text, sizeof text,
        "type: native\nephemeral: true\npolicy:\n  paths:\n    docs:\n      root: %s\n"
        "      mode: ro\n",
        scratch_path("docs"));
    AUTO(cay_sandbox) sandbox = make_as(text);
    ASSERT_STR(says(sandbox, "cat /docs/a.md; touch /docs/b 2>/dev/null || echo no"),
               "a\nno\n");
}

TEST(what_no_field_can_say_is_refused_and_leaves_nothing)
{
    static const char *const mounts[] = {"/tmp",  "./tmp:/x",   "/tmp:x",
                                         ":/x",   "/tmp:/x:rx", "/tmp:/x:ro:rw",
                                         "/tmp:", "/tmp:/x:"};
    static const char *const times[] = {"0", "-1", "1e300", ".inf", ".nan"};
    char text[256];

    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        snprintf(text, sizeof text, "type: native\nmounts: ['%s']\n", mounts[i]);
        ASSERT_CODE(refused(text), CAY_E_INVALID);
        ASSERT_STR(err.subject, mounts[i]);
        ASSERT_HAS(err.hint, "/SRC:/DST");
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        cay_config *config = NULL;
        int len = snprintf(text, sizeof text, "type: native\nttl: %s\n", times[i]);
        if (cay_config_parse(text, (size_t)len, "t", NULL, &config, &err) != CAY_OK)
            continue; /* it may say so itself */
        cay_config_free(config);
        ASSERT_CODE(refused(text), CAY_E_INVALID);
        ASSERT_STR(err.subject, "ttl");
    }
    ASSERT_CODE(refused("type: native\nrequire: [seccomp, moat]\n"), CAY_E_INVALID);
    ASSERT_STR(err.subject, "moat");
    ASSERT_HAS(err.hint, "landlock");
    ASSERT_CODE(refused("type: native\nstorage: disk\nlimits: {disk: 1M}\n"),
                CAY_E_INVALID);
    ASSERT_HAS(err.hint, "16 MiB");
    ASSERT_CODE(refused("type: native\ntemplate: no-such-template\n"), CAY_E_NOT_FOUND);
    ASSERT_CODE(refused("type: native\nmounts: ['/no/such/place:/x']\n"),
                CAY_E_NOT_FOUND);
}

/* --- The working directory -------------------------------------------------------- */

TEST(a_working_directory_is_made_and_is_the_users)
{
    static const char *const places[] = {"/home/user/a/b c", "/tmp/x", "/srv/deep/er",
                                         "/project"};
    char text[256], expected[256];

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(text, sizeof text, "type: native\nephemeral: true\nwork_dir: '%s'\n",
                 places[i]);
        AUTO(cay_sandbox) sandbox = make_as(text);
        snprintf(expected, sizeof expected, "%s\nuser\n", places[i]);
        ASSERT_STR(says(sandbox, "pwd; touch mine; stat -c %U ."), expected);
    }
}

TEST(a_working_directory_belongs_to_the_default_user_also_where_none_is_named)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true,
                                                .workdir = "/opt/here",
                                                .make_workdir = true};
    AUTO(cay_sandbox) sandbox = NULL;

    need_root();
    ASSERT_OK(cay_sandbox_create(&options, &sandbox, &err));
    ASSERT_STR(says(sandbox, "pwd; stat -c %U ."), "/opt/here\nuser\n");
}

TEST(a_working_directory_that_is_there_stays_as_it_is)
{
    AUTO(cay_sandbox)
    sandbox = make_as("type: native\nephemeral: true\n_work_dir: /var\n");

    ASSERT_STR(says(sandbox, "pwd; stat -c %U ."), "/var\nroot\n");
}

TEST(a_working_directory_that_cannot_be_is_refused_and_leaves_nothing)
{
    ASSERT_CODE(refused("type: native\nwork_dir: relative/path\n"), CAY_E_INVALID);
    ASSERT(refused("type: native\nwork_dir: /etc/passwd\n") != CAY_OK);
    ASSERT(refused("type: native\nwork_dir: /etc/passwd/below\n") != CAY_OK);
    ASSERT(refused("type: native\nwork_dir: /proc/x\n") != CAY_OK);
    ASSERT(refused("type: native\nstorage: disk\nwork_dir: /usr/x\n") != CAY_OK);
    /* Not even on disk. */
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;
    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        ASSERT(strcmp(infos[i].workdir, "/usr/x") != 0);
    cay_free(infos);
}

static void copy_busybox(const char *name)
{
    struct stat st;
    AUTO_FD fd = open("/bin/busybox", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        SKIP("busybox-static is not installed");
    ASSERT(fstat(fd, &st) == 0);
    AUTO_FREE char *program = malloc((size_t)st.st_size);
    ASSERT(program && read(fd, program, (size_t)st.st_size) == st.st_size);
    put_bytes(name, program, (size_t)st.st_size);
    ASSERT(chmod(scratch_path(name), 0755) == 0);
}

/* A root directory whose shell is a script. */
static const char *config_with_shell(const char *script)
{
    static char text[PATH_MAX + 64];

    copy_busybox("root/bin/busybox");
    put_file("root/etc/passwd", "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n");
    put_file("root/bin/sh", script);
    ASSERT(chmod(scratch_path("root/bin/sh"), 0755) == 0);
    snprintf(text, sizeof text, "type: native\ntemplate: %s\nwork_dir: /opt/x\n",
             scratch_path("root"));
    return text;
}

/* Others make sandboxes meanwhile. */
static void expect_none_of(const char *template)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_sandbox_list(&infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        ASSERT(strcmp(infos[i].template_name, template) != 0);
    cay_free(infos);
}

static void expect_no_workdir(const char *shell)
{
    AUTO(cay_config) config = parse(config_with_shell(shell));
    cay_sandbox *sandbox = NULL;

    ASSERT_CODE(cay_backend_create(config, &sandbox, &err), CAY_E_INVALID);
    ASSERT_STR(err.subject, "/opt/x");
    expect_none_of(scratch_path("root"));
}

TEST(a_template_cannot_keep_who_makes_a_sandbox_waiting)
{
    need_root();
    expect_no_workdir("#!/bin/busybox sh\nwhile :; do /bin/busybox sleep 9; done\n");
    expect_no_workdir("#!/bin/not-there\n");
}

TEST(a_working_directory_that_cannot_be_is_what_is_told_where_there_is_no_root)
{
    int code = refused("type: native\nlevel: landlock\nwork_dir: /opt/cay-test/x\n");

    if (code == CAY_E_UNAVAILABLE && strcmp(err.subject, "landlock") == 0)
        harness_remark("left out: the level landlock needs Linux 6.2");
    ASSERT_INT(code, CAY_E_INVALID);
    ASSERT_STR(err.subject, "/opt/cay-test/x");
}

/* --- Without descriptors ----------------------------------------------------------- */

/* What could not be read for lack of them is read again when there are some: nobody is
 * taken for another than root, and no limit is lost. */
static void lack_descriptors(const char *layers)
{
    AUTO(cay_config) config = parse("type: native\nephemeral: true\n");
    struct rlimit before, none;
    struct cay_check *checks = NULL;
    cay_sandbox *sandbox = NULL;
    size_t count = 0;

    ASSERT(getrlimit(RLIMIT_NOFILE, &before) == 0);
    AUTO_FD next = open("/", O_PATH | O_CLOEXEC);
    ASSERT(next >= 0);
    none = (struct rlimit){(rlim_t)next, before.rlim_max};
    ASSERT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    ASSERT(cay_backend_create(config, &sandbox, NULL) != CAY_OK);
    (void)!cay_doctor(&checks, &count, NULL);
    cay_free(checks);
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    ASSERT_OK(cay_backend_create(config, &sandbox, &err));
    ASSERT_INT(cay_sandbox_layers(sandbox), strtoul(layers, NULL, 10));
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
}

TEST(a_moment_without_descriptors_does_not_last)
{
    AUTO(cay_sandbox) sandbox = make_as("type: native\nephemeral: true\n");
    char layers[16];

    snprintf(layers, sizeof layers, "%u", cay_sandbox_layers(sandbox));
    elsewhere(lack_descriptors, layers);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
}

/* --- One that exists -------------------------------------------------------------- */

static enum cay_state state_of(cay_sandbox *sandbox)
{
    enum cay_state state = 0;

    ASSERT_OK(cay_sandbox_state(sandbox, &state, &err));
    return state;
}

TEST(one_on_disk_is_stopped_when_it_is_killed_and_connecting_starts_it)
{
    AUTO(cay_config)
    config = parse("type: native\nstorage: disk\n"
                   "work_dir: /home/user/kept\n");
    cay_sandbox *sandbox = NULL, *again = NULL;
    enum cay_state state;
    char id[CAY_ID_MAX];

    need_root();
    setenv("CAY_HOME", scratch_path("home"), 1);
    ASSERT_OK(cay_backend_create(config, &sandbox, &err));
    memcpy(id, cay_sandbox_id(sandbox), sizeof id);
    ASSERT_STR(says(sandbox, "pwd; echo kept > file"), "/home/user/kept\n");
    ASSERT_INT(state_of(sandbox), CAY_STATE_RUNNING);
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(state_of(sandbox), CAY_STATE_STOPPED);
    ASSERT_OK(cay_backend_connect(config, id, &again, &err));
    ASSERT_INT(state_of(again), CAY_STATE_RUNNING);
    ASSERT_STR(says(sandbox, "cat file"), "kept\n"); /* the older handle sees it, too */
    ASSERT_INT(state_of(sandbox), CAY_STATE_RUNNING);
    ASSERT_STR(says(again, "cat file"), "kept\n");
    ASSERT_OK(cay_sandbox_remove(again, &err));
    ASSERT_CODE(cay_sandbox_state(sandbox, &state, &err), CAY_E_NOT_FOUND);
    cay_sandbox_free(again);
    again = NULL;
    ASSERT_CODE(cay_backend_connect(config, id, &again, &err), CAY_E_NOT_FOUND);
    cay_sandbox_free(sandbox);
    unsetenv("CAY_HOME");
}

static void stop_it(const char *id)
{
    cay_sandbox *sandbox = open_sandbox(id);

    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    cay_sandbox_free(sandbox);
}

static void start_it(const char *id)
{
    cay_sandbox *sandbox = open_sandbox(id);

    ASSERT_OK(cay_sandbox_start(sandbox, &err));
    cay_sandbox_free(sandbox);
}

static int try_echo(cay_sandbox *sandbox)
{
    static const char *const argv[] = {"echo", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    struct cay_exec_result done = {0};
    int code = cay_sandbox_exec(sandbox, &options, &done, &err);

    cay_exec_done(&done);
    return code;
}

/* A handle keeps its connection, but it is not taken for gone what only was away. */
TEST(one_that_others_stop_and_start_is_stopped_and_runs_again)
{
    need_root();
    setenv("CAY_HOME", scratch_path("home"), 1);
    AUTO(cay_sandbox) sandbox = make_as("type: native\nstorage: disk\n");
    ASSERT_OK(try_echo(sandbox));
    elsewhere(stop_it, cay_sandbox_id(sandbox));
    ASSERT_CODE(try_echo(sandbox), CAY_E_BUSY);
    ASSERT_CODE(cay_sandbox_set_ttl(sandbox, 60000, &err), CAY_E_BUSY);
    elsewhere(start_it, cay_sandbox_id(sandbox));
    ASSERT_OK(try_echo(sandbox));
    elsewhere(stop_it, cay_sandbox_id(sandbox));
    elsewhere(start_it, cay_sandbox_id(sandbox));
    ASSERT_OK(cay_sandbox_set_ttl(sandbox, 60000, &err));
    ASSERT_OK(try_echo(sandbox));
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    unsetenv("CAY_HOME");
}

TEST(connecting_to_what_cannot_be_an_id_is_refused)
{
    AUTO(cay_config) config = parse("type: native\n");
    cay_sandbox *sandbox = NULL;

    need_root();
    ASSERT_CODE(cay_backend_connect(config, "../etc", &sandbox, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_backend_connect(config, "", &sandbox, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_backend_connect(config, "sb-abcdefgh234567xy", &sandbox, &err),
                CAY_E_NOT_FOUND);
}

/* --- Before it is made ------------------------------------------------------------ */

TEST(what_making_it_would_refuse_is_known_before)
{
    static const char *const bad[] = {
        "limits: {memory: 64M, disk: 128M}\n",
        "storage: disk\nlimits: {disk: 1M}\n",
        "template: no-such\n",
        "mounts: ['/no/such:/x']\n",
        "mounts: ['/usr:/proc']\n",
        "require: [nothing]\n",
        "ttl: 0\n",
        "work_dir: relative\n",
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int made = refused(bad[i]);
        struct cay_error why = err;
        AUTO(cay_config) config = parse(bad[i]);
        ASSERT(made);
        ASSERT_CODE(cay_backend_check(config, &err), made);
        ASSERT_STR(err.message, why.message);
        ASSERT_STR(err.hint, why.hint);
    }
}

TEST(looking_ahead_makes_nothing)
{
    AUTO(cay_config) config = parse("storage: disk\nmounts: ['/usr:/x:ro']\n");

    need_root();
    size_t before = count_names(runtime_path(), "");
    ASSERT_OK(cay_backend_check(config, &err));
    ASSERT_INT(count_names(runtime_path(), ""), before);
}

TEST(a_configuration_comes_to_options_that_can_be_changed)
{
    AUTO(cay_config)
    config = parse("limits: {memory: 300M, pids: 77}\nephemeral: true\n"
                   "work_dir: /srv/deep/down\nenvs: {A: b}\n");
    struct cay_sandbox_options *options = NULL;
    AUTO(cay_sandbox) sandbox = NULL;
    struct cay_sandbox_info info;

    need_root();
    ASSERT_OK(cay_sandbox_options_new(config, &options, &err));
    ASSERT_INT(options->memory_bytes, 300 << 20);
    ASSERT_STR(options->env[0], "A=b");
    options->pids = 88;
    ASSERT_OK(cay_sandbox_create(options, &sandbox, &err));
    cay_sandbox_options_free(options);
    cay_sandbox_options_free(NULL);
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info, &err));
    ASSERT_INT(info.memory_bytes, 300 << 20);
    ASSERT_INT(info.pids, 88);
    ASSERT_STR(says(sandbox, "pwd; stat -c %U .; echo $A"), "/srv/deep/down\nuser\nb\n");
}

TEST(a_command_that_comes_with_its_sandbox_waits_for_the_directory)
{
    AUTO(cay_config) config = parse("work_dir: /srv/deep/down\nephemeral: true\n");
    struct cay_sandbox_options *options = NULL;
    AUTO(cay_sandbox) sandbox = NULL;
    cay_process *process = NULL;
    const char *const argv[] = {"sh", "-c", "test \"$PWD\" = /srv/deep/down", NULL};
    const struct cay_exec_options exec = {.size = sizeof exec, .argv = argv};
    struct cay_exec_result end = {0};

    need_root();
    ASSERT_OK(cay_sandbox_options_new(config, &options, &err));
    ASSERT_OK(cay_sandbox_run(options, &exec, &sandbox, &process, &err));
    cay_sandbox_options_free(options);
    ASSERT_OK(cay_process_wait(process, PATIENCE_MS, &end, &err));
    ASSERT_INT(end.exit_code, 0);
    cay_exec_done(&end);
    cay_process_free(process);
}

TEST(another_type_has_no_such_options)
{
    AUTO(cay_config) config = parse("type: local\n");
    struct cay_sandbox_options *options = NULL;

    ASSERT_CODE(cay_sandbox_options_new(config, &options, &err), CAY_E_UNSUPPORTED);
    ASSERT(!options);
    ASSERT_OK(cay_backend_check(config, &err));
}
