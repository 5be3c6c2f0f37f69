/* SPDX-License-Identifier: Apache-2.0 */

/* Commands, files and users of the backend "local": those of this machine, and nothing
 * keeps them in. */
#include <sys/resource.h>

#include "cay/code.h"
#include "local.h"

/* --- Commands --- */

static void run_on_the_host(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    char expected[PATH_MAX + 64], script[128];

    run(sandbox, "pwd; id -u; cat; echo wrong >&2; exit 3");
    snprintf(expected, sizeof expected, "%s\n%u\n", place, (unsigned)geteuid());
    ASSERT_STR(result.out, expected);
    ASSERT_STR(result.error, "wrong\n");
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
    ASSERT_INT(result.exit_code, 3);
    run(sandbox, "kill -9 $$");
    ASSERT_INT(result.cause, CAY_CAUSE_SIGNALLED);
    ASSERT_INT(result.exit_code, 128 + SIGKILL);
    /* What is outside is there for it. */
    snprintf(script, sizeof script, "kill -0 %d && ls -d /tmp && hostname",
             (int)getpid());
    run(sandbox, script);
    ASSERT_STR(result.error, "");
    ASSERT_HAS(result.out, "/tmp\n");
}

TEST(commands_run_on_the_host_as_the_caller_in_the_working_directory)
{
    as_both(run_on_the_host);
}

static void run_code(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    const struct cay_code_options options = {.size = sizeof options, .language = "bash"};
    struct cay_code_execution execution = {0};

    ASSERT_OK(cay_code_execute(sandbox, "x=6", 3, &options, &execution, &err));
    cay_code_execution_done(&execution);
    ASSERT_OK(cay_code_execute(sandbox, "echo $((x*7))", 13, &options, &execution, &err));
    ASSERT_STR(execution.out, "42\n");
    cay_code_execution_done(&execution);
}

TEST(contexts_of_a_local_sandbox_keep_their_variables)
{
    as_both(run_code);
}

static void say_where(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    const char *const argv[] = {"pwd", NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv, .cwd = "/"};

    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_STR(result.out, "/\n");
    cay_exec_done(&result);
    options.cwd = "nowhere";
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "nowhere");
}

TEST(a_command_may_start_in_any_directory)
{
    as_both(say_where);
}

static void limit_output(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    const char *const argv[] = {"sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); done",
                                NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .output_limit = 1000,
                                             .flags = CAY_EXEC_FAIL_ON_LIMIT};

    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_INT(result.cause, CAY_CAUSE_OUTPUT_LIMIT);
    ASSERT_INT(result.out_len, 1000);
    ASSERT(result.out_dropped > 0);
    await(0, "");
}

TEST(output_has_its_limit)
{
    as_both(limit_output);
}

static void type_on_a_terminal(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    cay_process *process = NULL;
    struct heard heard = {0};
    size_t written = 0;

    ASSERT_OK(start_script(
        sandbox, "tty -s && stty size && read -r word && echo got $word",
        (struct cay_exec_options){
            .flags = CAY_EXEC_TTY | CAY_EXEC_INPUT, .rows = 11, .columns = 22},
        &process));
    hear_until(process, &heard, 1, "11 22");
    ASSERT_OK(cay_process_write(process, "word\n", 5, &written, &err));
    hear_until(process, &heard, 1, "got word");
    wait_for(process);
    ASSERT_INT(result.exit_code, 0);
    cay_process_free(process);
}

TEST(a_command_can_have_a_terminal)
{
    as_both(type_on_a_terminal);
}

static void keep_limits(const char *unused)
{
    const struct rlimit odd = {333, 4444};
    AUTO(cay_sandbox) sandbox = NULL;

    (void)unused;
    umask(027);
    ASSERT(setrlimit(RLIMIT_NOFILE, &odd) == 0);
    sandbox = make_local();
    run(sandbox, "ulimit -Sn; ulimit -Hn; umask");
    ASSERT_STR(result.out, "333\n4444\n0027\n");
}

/* What is set there is not for the other tests. */
static void keep_limits_elsewhere(void)
{
    elsewhere(keep_limits, "");
}

TEST(commands_have_the_limits_that_the_caller_has)
{
    as_both(keep_limits_elsewhere);
}

/* --- The environment --- */

static void inherit(void)
{
    AUTO(cay_config)
    config =
        configure("{\"type\": \"local\", \"work_dir\": \"%s\", \"ephemeral\": true,"
                  " \"envs\": {\"LOCAL_GIVEN\": \"given\", \"LOCAL_BOTH\": \"given\"}}",
                  place);
    const char *const argv[] = {
        "sh", "-c", "echo $LOCAL_OWN $LOCAL_GIVEN $LOCAL_BOTH; echo $HOME", NULL};
    const char *const env[] = {"LOCAL_BOTH=call", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .env = env};

    ASSERT(setenv("LOCAL_OWN", "own", 1) == 0 && setenv("LOCAL_BOTH", "own", 1) == 0);
    ASSERT(setenv("HOME", "/nonexistent/home", 1) == 0);
    AUTO(cay_sandbox) sandbox = make(config);
    /* Of when it was made. */
    ASSERT(setenv("LOCAL_OWN", "later", 1) == 0);
    run(sandbox, argv[2]);
    ASSERT_STR(result.out, "own given given\n/nonexistent/home\n");
    cay_exec_done(&result);
    ASSERT_OK(cay_sandbox_exec(sandbox, &options, &result, &err));
    ASSERT_STR(result.out, "own given call\n/nonexistent/home\n");
    ASSERT(unsetenv("LOCAL_OWN") == 0 && unsetenv("LOCAL_BOTH") == 0);
}

TEST(the_environment_is_that_of_the_maker_and_what_is_given_wins)
{
    char *home = strdup(getenv("HOME") ? getenv("HOME") : "/");

    as_both(inherit);
    ASSERT(setenv("HOME", home, 1) == 0);
    free(home);
}

static void inherit_nothing(void)
{
    AUTO(cay_config)
    config = configure("{\"type\": \"local\", \"work_dir\": \"%s\", \"ephemeral\": true,"
                       " \"inherit_env\": false, \"envs\": {\"LOCAL_GIVEN\": \"given\"}}",
                       place);
    AUTO(cay_sandbox) sandbox = make(config);
    const struct passwd *self = getpwuid(geteuid());
    char expected[256];

    run(sandbox, "env | sort | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=");
    snprintf(expected, sizeof expected,
             "HOME=%s\nLANG=C.UTF-8\nLOCAL_GIVEN=given\nLOGNAME=%s\nPATH=/usr/local/sbin:"
             "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nUSER=%s\n",
             self->pw_dir, self->pw_name, self->pw_name);
    ASSERT_STR(result.out, expected);
}

TEST(without_inheritance_there_is_only_what_every_program_needs)
{
    as_both(inherit_nothing);
}

static void inherit_too_much(void)
{
    AUTO(cay_config)
    config = configure("{\"type\": \"local\", \"work_dir\": \"%s/new\"}", place);
    AUTO_FREE char *large = malloc(200 << 10);

    ASSERT(large);
    memset(large, 'x', 200 << 10);
    large[(200 << 10) - 1] = '\0';
    ASSERT(setenv("LOCAL_LARGE", large, 1) == 0);
    expect_refusal(config, CAY_E_LIMIT, "inherit_env: false");
    ASSERT(unsetenv("LOCAL_LARGE") == 0);
    ASSERT_INT(count_names(place, "new"), 0);
    expect_no_records();
}

TEST(an_environment_that_is_too_large_is_refused)
{
    as_both(inherit_too_much);
}

/* --- The working directory --- */

static void expect_pwd(const char *config_text, const char *expected)
{
    AUTO(cay_config) config = configure("%s", config_text);
    AUTO(cay_sandbox) sandbox = make(config);
    char line[PATH_MAX + 2];

    run(sandbox, "pwd -P");
    snprintf(line, sizeof line, "%s\n", expected);
    ASSERT_STR(result.out, line);
    struct cay_sandbox_info now;
    ASSERT_OK(cay_sandbox_inspect(sandbox, &now, &err));
    ASSERT(now.workdir[0] == '/');
}

static void find_from_base(void)
{
    static const char text[] = "{type: local, ephemeral: true, work_dir: below}";
    cay_config *parsed = NULL;

    ASSERT_OK(cay_config_parse(text, strlen(text), "test", place, &parsed, &err));
    AUTO(cay_config) config = parsed;
    AUTO(cay_sandbox) sandbox = make(config);
    run(sandbox, "pwd");
    ASSERT_HAS(result.out, place);
    ASSERT_HAS(result.out, "/below\n");
}

static void find_work_dir(void)
{
    char before[PATH_MAX], text[2 * PATH_MAX], expected[2 * PATH_MAX];

    ASSERT(getcwd(before, sizeof before) && chdir(place) == 0);
    expect_pwd("{\"type\": \"local\", \"ephemeral\": true}", place);
    snprintf(expected, sizeof expected, "%s/made/as needed", place);
    expect_pwd("{\"type\": \"local\", \"ephemeral\": true, \"work_dir\": "
               "\"made/as needed\"}",
               expected);
    snprintf(
        text, sizeof text,
        "{\"type\": \"local\", \"ephemeral\": true, \"work_dir\": \"%s/./made/../b\"}",
        place);
    snprintf(expected, sizeof expected, "%s/b", place);
    expect_pwd(text, expected);
    snprintf(expected, sizeof expected, "%s/from the environment", place);
    ASSERT(setenv("SANDBOX_WORK_DIR", expected, 1) == 0);
    expect_pwd("{\"type\": \"local\", \"ephemeral\": true}", expected);
    ASSERT(unsetenv("SANDBOX_WORK_DIR") == 0);
    find_from_base();
    /* The sandboxes are gone, what they worked on is not. */
    ASSERT(access(expected, F_OK) == 0 && chdir(before) == 0);
}

TEST(the_working_directory_is_found_or_made)
{
    as_both(find_work_dir);
}

static void refuse_work_dirs(void)
{
    char long_name[1100], file[PATH_MAX + 8];
    AUTO(cay_config)
    in_the_way =
        configure("{\"type\": \"local\", \"work_dir\": \"%s/file/below\"}", place);
    memset(long_name, 'x', sizeof long_name);
    for (size_t i = 0; i < sizeof long_name; i += 100)
        long_name[i] = '/';
    long_name[sizeof long_name - 1] = '\0';
    AUTO(cay_config)
    too_long = configure("{\"type\": \"local\", \"work_dir\": \"%s\"}", long_name);
    AUTO(cay_config)
    kernel = configure("{\"type\": \"local\", \"work_dir\": \"/proc/cay\"}");
    cay_sandbox *sandbox = NULL;

    snprintf(file, sizeof file, "%s/file", place);
    FILE *stream = fopen(file, "we");
    ASSERT(stream && fclose(stream) == 0);
    ASSERT_CODE(cay_backend_create(in_the_way, &sandbox, &err), CAY_E_NOT_A_DIRECTORY);
    expect_refusal(too_long, CAY_E_INVALID, "1023");
    ASSERT_CODE(cay_backend_create(kernel, &sandbox, &err), CAY_E_DENIED);
    if (geteuid() != 0) {
        AUTO(cay_config)
        others = configure("{\"type\": \"local\", \"work_dir\": \"/root/cay/test\"}");
        ASSERT_CODE(cay_backend_create(others, &sandbox, &err), CAY_E_DENIED);
    }
    expect_no_records();
}

TEST(what_cannot_be_a_working_directory_is_refused_and_leaves_nothing)
{
    as_both(refuse_work_dirs);
}

/* --- Files --- */

static void expect_text(cay_files *files, const char *path, const char *text)
{
    struct cay_page page = {0};

    ASSERT_OK(cay_files_read_bytes(files, path, NULL, &page, &err));
    ASSERT_MEM(page.text, page.len, text, strlen(text));
    cay_page_done(&page);
}

static void use_files(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    cay_files *opened = NULL;
    char path[PATH_MAX + 16], number[32];
    struct cay_page page = {0};

    ASSERT_OK(cay_sandbox_files(sandbox, NULL, &opened, &err));
    AUTO(cay_files) files = opened;
    ASSERT_OK(cay_files_write(files, "a/b", "text", 4, NULL, &err));
    run(sandbox, "cat a/b; ln -s a link; ln -s $PWD/a absolute; mkdir -p x/y");
    ASSERT_STR(result.out, "text");
    snprintf(path, sizeof path, "%s/a/b", place);
    expect_text(files, path, "text");
    expect_text(files, "link/b", "text");
    expect_text(files, "absolute/b", "text");
    expect_text(files, "x/y/../../a/b", "text");
    ASSERT_OK(cay_files_write(files, "link/../c", "here", 4, NULL, &err));
    expect_text(files, "c", "here");
    /* What the kernel has of this machine is read, and never written. */
    snprintf(path, sizeof path, "/proc/%d/stat", (int)getpid());
    ASSERT_OK(cay_files_read_bytes(files, path, NULL, &page, &err));
    snprintf(number, sizeof number, "%d (", (int)getpid());
    ASSERT_HAS(page.text, number);
    cay_page_done(&page);
    ASSERT_CODE(cay_files_write(files, "/proc/self/comm", "x", 1, NULL, &err),
                CAY_E_DENIED);
    if (geteuid() != 0) {
        ASSERT_CODE(cay_files_read_bytes(files, "/etc/shadow", NULL, &page, &err),
                    CAY_E_DENIED);
        ASSERT_CODE(cay_files_write(files, "/etc/cay-test", "x", 1, NULL, &err),
                    CAY_E_DENIED);
    }
}

TEST(files_are_those_of_the_host_with_the_rights_of_the_caller)
{
    as_both(use_files);
}

/* --- Users --- */

static void be_oneself(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    const struct passwd *self = getpwuid(geteuid());
    char number[16];
    cay_files *files = NULL;

    snprintf(number, sizeof number, "%u", (unsigned)geteuid());
    run_as(sandbox, self->pw_name, "id -un", PATIENCE_MS);
    ASSERT_HAS(result.out, self->pw_name);
    run_as(sandbox, number, "id -u", PATIENCE_MS);
    ASSERT_HAS(result.out, number);
    ASSERT_OK(cay_sandbox_files(sandbox, self->pw_name, &files, &err));
    cay_files_free(files);
}

TEST(the_caller_may_be_named)
{
    as_both(be_oneself);
}

static void be_somebody_else(void)
{
    static const char *const others[] = {"root", "0", "nobody", "65534", "4000000000"};
    AUTO(cay_sandbox) sandbox = make_local();
    const char *const argv[] = {"id", NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    cay_files *files = NULL;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        options.user = others[i];
        ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err),
                    CAY_E_UNSUPPORTED);
        ASSERT_HAS(err.hint, "as root");
        ASSERT_CODE(cay_sandbox_files(sandbox, others[i], &files, &err),
                    CAY_E_UNSUPPORTED);
    }
    options.user = "nonexistent";
    ASSERT_CODE(cay_sandbox_exec(sandbox, &options, &result, &err), CAY_E_NOT_FOUND);
}

TEST(an_ordinary_user_cannot_be_anybody_else)
{
    const struct ordinary *user = ordinary_user(false);

    ASSERT(chmod(scratch(), 0711) == 0);
    snprintf(place, sizeof place, "%s", scratch_path("ordinary"));
    ASSERT(mkdir(place, 0755) == 0 && chown(place, user->uid, user->gid) == 0);
    as_ordinary(user, be_somebody_else);
}

/* A process whose groups are not what /etc/group says. */
static void be_others_as_root(const char *unused)
{
    const gid_t groups[] = {0, 4242};
    cay_files *opened = NULL;

    (void)unused;
    ASSERT(setgroups(2, groups) == 0);
    AUTO(cay_sandbox) sandbox = make_local();
    run(sandbox, "id -u; id -G");
    ASSERT_STR(result.out, "0\n0 4242\n");
    run_as(sandbox, "nobody",
           "id -G; id -un; echo $HOME $USER $LOGNAME; "
           "echo x > made; setsid sleep 1000 & exit 0",
           PATIENCE_MS);
    ASSERT_STR(result.out, "65534\nnobody\n/nonexistent nobody nobody\n");
    ASSERT_HAS(result.error, "ermission denied");
    run_late(sandbox, "123456789", "id -u; sleep 1000");
    ASSERT_STR(result.out, "123456789\n");
    await(1, "sleep");
    ASSERT_OK(cay_sandbox_files(sandbox, "nobody", &opened, &err));
    AUTO(cay_files) files = opened;
    ASSERT_CODE(cay_files_write(files, "file", "x", 1, NULL, &err), CAY_E_DENIED);
    /* Root's own are as they were. */
    run(sandbox, "id -u; id -G");
    ASSERT_STR(result.out, "0\n0 4242\n");
    ASSERT_OK(cay_sandbox_kill(sandbox, &err));
    ASSERT_INT(count_marked(), 0);
}

TEST(root_can_be_anybody)
{
    need_root();
    ASSERT(chmod(scratch(), 0711) == 0);
    snprintf(place, sizeof place, "%s", scratch());
    set_mark();
    elsewhere(be_others_as_root, "");
}

/* --- What nothing keeps in, and says so --- */

static void look_honestly(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    const struct cay_backend *backend = cay_sandbox_backend(sandbox);
    struct cay_sandbox_info now, *all = NULL;
    size_t count = 0;
    enum cay_state state;

    ASSERT_STR(backend->name, "local");
    ASSERT_INT(strncmp(backend->about, "warning: ", 9), 0);
    ASSERT_HAS(backend->about, "without isolation");
    ASSERT_INT(cay_sandbox_layers(sandbox), 0);
    ASSERT_OK(cay_sandbox_inspect(sandbox, &now, &err));
    ASSERT_STR(now.type, "local");
    ASSERT_INT(now.level, CAY_LEVEL_NONE);
    ASSERT_STR(cay_level_slug(now.level), "none");
    ASSERT_INT(now.layers, 0);
    ASSERT_INT(now.enforced_count, 0);
    ASSERT_INT(now.network, CAY_NETWORK_HOST);
    ASSERT_STR(now.workdir, place);
    ASSERT_STR(now.user, getpwuid(geteuid())->pw_name);
    ASSERT_OK(cay_sandbox_state(sandbox, &state, &err));
    ASSERT_INT(state, CAY_STATE_RUNNING);
    ASSERT_OK(cay_sandbox_list(&all, &count, &err));
    size_t at = 0;
    while (at < count && strcmp(all[at].id, cay_sandbox_id(sandbox)) != 0)
        at++;
    ASSERT(at < count);
    ASSERT_STR(all[at].type, "local");
    ASSERT_INT(all[at].level, CAY_LEVEL_NONE);
    cay_free(all);
    ASSERT_CODE(cay_sandbox_pause(sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(cay_sandbox_resume(sandbox, &err), CAY_E_UNSUPPORTED);
    ASSERT_CODE(cay_sandbox_start(sandbox, &err), CAY_E_UNSUPPORTED);
}

TEST(it_is_listed_as_what_it_is)
{
    as_both(look_honestly);
}

static void ask_for_it_otherwise(void)
{
    struct cay_sandbox_options options = {.size = sizeof options,
                                          .level = CAY_LEVEL_NONE};
    AUTO(cay_sandbox) local = make_local();
    AUTO(cay_config) config = configure("{\"type\": \"local\"}");
    cay_sandbox *none = NULL;
    struct cay_sandbox_info now;

    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_INVALID);
    ASSERT_STR(err.subject, "level");
    options.require = CAY_LAYER_SECCOMP;
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_INVALID);
    options.level = (enum cay_level)6;
    ASSERT_CODE(cay_sandbox_create(&options, &none, &err), CAY_E_INVALID);
    /* Nor is one reached by who thinks that something keeps it in, or the other way. */
    ASSERT_CODE(cay_sandbox_open(cay_sandbox_id(local), &none, &err), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "\"local\"");
    AUTO(cay_sandbox) native = make_sandbox(NULL);
    ASSERT_OK(cay_sandbox_inspect(native, &now, &err));
    ASSERT_STR(now.type, "native");
    ASSERT(now.level != CAY_LEVEL_NONE && now.layers & CAY_LAYER_SECCOMP);
    ASSERT_CODE(cay_backend_connect(config, cay_sandbox_id(native), &none, &err),
                CAY_E_INVALID);
    ASSERT_HAS(err.hint, "\"native\"");
    ASSERT(!none);
}

TEST(it_is_never_had_by_asking_for_something_else)
{
    as_both(ask_for_it_otherwise);
}

/* A program that only root could end would outlive every timeout. */
static void gain_nothing(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    char script[PATH_MAX + 32], expected[32];

    snprintf(script, sizeof script, "%s/../set-user-id -u", place);
    run(sandbox, script);
    snprintf(expected, sizeof expected, "%u\n", (unsigned)geteuid());
    ASSERT_STR(result.out, expected);
    run(sandbox, "grep NoNewPrivs /proc/self/status");
    ASSERT_STR(result.out, geteuid() ? "NoNewPrivs:\t1\n" : "NoNewPrivs:\t0\n");
    run(sandbox, "grep Seccomp: /proc/self/status");
    ASSERT_STR(result.out, "Seccomp:\t0\n");
}

TEST(set_user_id_programs_give_an_ordinary_user_nothing)
{
    char copy[] = "cp", from[] = "/usr/bin/id";
    const char *to = scratch_path("set-user-id");
    char *const argv[] = {copy, from, (char *)(uintptr_t)to, NULL};

    need_root();
    ASSERT_INT(ordinary_spawn(argv), 0);
    ASSERT(chmod(to, 04755) == 0);
    as_both(gain_nothing);
}

static void tell_capabilities(void)
{
    AUTO(cay_sandbox) sandbox = make_local();
    char own[256] = "", line[256];
    size_t used = 0;
    FILE *status = fopen("/proc/self/status", "re");

    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "CapInh", 6) == 0 || strncmp(line, "CapBnd", 6) == 0 ||
            strncmp(line, "CapAmb", 6) == 0)
            used += (size_t)snprintf(own + used, sizeof own - used, "%s", line);
    ASSERT(status && fclose(status) == 0);
    run(sandbox, "grep -e CapInh -e CapBnd -e CapAmb /proc/self/status");
    ASSERT_STR(result.out, own);
}

TEST(commands_have_the_capabilities_that_the_caller_passes_on)
{
    as_both(tell_capabilities);
}
