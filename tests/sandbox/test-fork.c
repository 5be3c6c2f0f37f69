/* SPDX-License-Identifier: Apache-2.0 */

/* Forks from and to disk, several at a time, and what each has of its own. */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cay/code.h"
#include "inside.h"
#include "native/make/visit.h"
#include "native/native.h"
#include "sandbox/backend.h"
#include "sys/path.h"
#include "sys/shift.h"
#include "templates.h"

/* Checkpoints need Linux 6.15. */
static void need_store(void)
{
    need_root();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct native *native = sandbox->cookie;
    AUTO_FD namespace = visit_open(native->record.init);
    AUTO_FD store = visit_open_store(namespace, VISIT_OWN_STORE);
    if (store == -ENOENT)
        SKIP("this kernel cannot mount parts of a detached tmpfs");
}

static void expect_output(cay_sandbox *sandbox, const char *script, const char *text)
{
    run_as(sandbox, "root", script, PATIENCE_MS);
    ASSERT_STR(result.out, text);
}

static struct cay_checkpoint seal(cay_sandbox *sandbox, const char *name)
{
    const struct cay_checkpoint_options options = {.size = sizeof options, .name = name};
    struct cay_checkpoint checkpoint = {0};

    ASSERT_OK(cay_sandbox_checkpoint(sandbox, &options, &checkpoint, &err));
    return checkpoint;
}

static cay_sandbox *fork_to(cay_sandbox *sandbox, const char *checkpoint,
                            enum cay_storage storage)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .storage = storage, .ephemeral = true};
    cay_sandbox *made = NULL;

    ASSERT_OK(cay_sandbox_fork(sandbox, checkpoint, &options, 1, &made, NULL, &err));
    return made;
}

static size_t count_sandboxes(void)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0;

    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_OK(cay_sandbox_list_brief(&infos, &count, &err));
    cay_free(infos);
    return count;
}

/* --- Disks --- */

static cay_sandbox *make_on(enum cay_storage storage, const char *template_name)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .template_name = template_name,
                                                .storage = storage,
                                                .ephemeral = true};

    return make_sandbox(&options);
}

static const char changes[] =
    "echo one > /a; mkdir /d; echo x > /d/x; chown user:users /d/x; chmod 4750 /d/x; "
    "ln -s a /soft; mkfifo /pipe; chmod 751 /; rm -r /srv; "
    "touch -d 2001-02-03 /d/x";
static const char shown[] =
    "cat /a /soft /d/x; stat -c '%n %u %g %a %F %Y' /d/x /pipe / | sed 's/ 17[0-9]*$//'; "
    "ls -d /srv 2>&1 | grep -c No";
static const char wanted[] = "one\none\nx\n/d/x 1000 100 4750 regular file 981158400\n";

static void expect_files(cay_sandbox *sandbox)
{
    run_as(sandbox, "root", shown, PATIENCE_MS);
    ASSERT(strncmp(result.out, wanted, strlen(wanted)) == 0);
    ASSERT(strstr(result.out, "/pipe 0 0 644 fifo"));
    ASSERT(strstr(result.out, "/ 0 0 751 directory"));
    ASSERT(strstr(result.out, "\n1\n"));
}

static void fork_between(enum cay_storage from, enum cay_storage to,
                         const char *template_name)
{
    AUTO(cay_sandbox) sandbox = make_on(from, template_name);

    expect_output(sandbox, changes, "");
    (void)seal(sandbox, "first");
    expect_output(sandbox, "echo two > /a; rm -r /d; mkdir /d", "");
    AUTO(cay_sandbox) old = fork_to(sandbox, "first", to);
    expect_files(old);
    AUTO(cay_sandbox) now = fork_to(sandbox, NULL, to);
    expect_output(now, "cat /a; ls -A /d; echo child > /a; chmod 700 /pipe", "two\n");
    expect_output(sandbox, "cat /a; stat -c %a /pipe; echo parent > /a", "two\n644\n");
    expect_output(now, "cat /a", "child\n");
    (void)seal(now, NULL);
    expect_output(now, "cat /a; rm /a", "child\n");
    const struct native *one = sandbox->cookie, *other = now->cookie;
    ASSERT(one->record.id_base != other->record.id_base);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    expect_files(old);
    AUTO(cay_sandbox) again = fork_to(old, NULL, from);
    ASSERT_OK(cay_sandbox_remove(old, &err));
    expect_files(again);
    ASSERT_OK(cay_sandbox_remove(again, &err));
    ASSERT_OK(cay_sandbox_remove(now, &err));
}

/* No directory of a sandbox is left in the own home of the test. */
static void expect_no_disks(void)
{
    char path[PATH_MAX];
    size_t count;

    ASSERT_OK(cay_sandbox_collect(&count, &err));
    snprintf(path, sizeof path, "%s/sandboxes", getenv("CAY_HOME"));
    AUTO_FD dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_DIR list = path_list(dir);
    for (struct dirent *entry; (entry = path_next(list));)
        ASSERT(!runtime_is_id(entry->d_name));
}

TEST(forks_of_a_sandbox_on_disk_are_in_memory_or_on_disk)
{
    need_store();
    use_own_home();
    fork_between(CAY_STORAGE_DISK, CAY_STORAGE_MEMORY, NULL);
    fork_between(CAY_STORAGE_DISK, CAY_STORAGE_DISK, NULL);
    expect_no_disks();
}

TEST(forks_of_a_sandbox_in_memory_are_on_disk)
{
    need_store();
    use_own_home();
    fork_between(CAY_STORAGE_MEMORY, CAY_STORAGE_DISK, NULL);
    expect_no_disks();
}

TEST(forks_between_disk_and_memory_have_the_changed_usr_of_base)
{
    static const enum cay_storage kinds[] = {CAY_STORAGE_DISK, CAY_STORAGE_MEMORY};

    need_store();
    use_own_home();
    for (size_t i = 0; i < 2; i++) {
        AUTO(cay_sandbox) sandbox = make_on(kinds[i], "base");
        expect_output(sandbox,
                      "echo one > /usr/bin/made; rm /usr/bin/env; echo e > /etc/e", "");
        for (size_t j = 0; j < 2; j++) {
            AUTO(cay_sandbox) made = fork_to(sandbox, NULL, kinds[j]);
            expect_output(made,
                          "cat /usr/bin/made /etc/e; ls /usr/bin/env 2>&1 | grep -c No; "
                          "echo two > /usr/bin/made",
                          "one\ne\n1\n");
            run(made, "sudo id -u");
            ASSERT_STR(result.out, "0\n");
            ASSERT_OK(cay_sandbox_remove(made, &err));
        }
        expect_output(sandbox, "cat /usr/bin/made", "one\n");
        ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    }
    expect_no_disks();
}

TEST(a_fork_on_disk_is_started_again_without_the_sandbox_it_comes_from)
{
    static const enum cay_storage kinds[] = {CAY_STORAGE_DISK, CAY_STORAGE_MEMORY};

    need_store();
    use_own_home();
    for (size_t i = 0; i < 2; i++) {
        AUTO(cay_sandbox) sandbox = make_on(kinds[i], NULL);
        expect_output(sandbox, changes, "");
        AUTO(cay_sandbox) made = fork_to(sandbox, NULL, CAY_STORAGE_DISK);
        ASSERT_OK(cay_sandbox_remove(sandbox, &err));
        expect_output(made, "echo own > /own", "");
        ASSERT_OK(cay_sandbox_kill(made, &err));
        ASSERT_OK(cay_sandbox_start(made, &err));
        expect_files(made);
        expect_output(made, "cat /own", "own\n");
        ASSERT_OK(cay_sandbox_remove(made, &err));
    }
    expect_no_disks();
}

/* Its directory stays until the forks in memory have ended. */
TEST(a_removed_sandbox_on_disk_leaves_its_files_to_forks_in_memory)
{
    cay_sandbox *gone = NULL;
    size_t count;

    need_store();
    use_own_home();
    AUTO(cay_sandbox) sandbox = make_on(CAY_STORAGE_DISK, NULL);
    char id[CAY_ID_MAX];
    snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
    expect_output(sandbox, changes, "");
    AUTO(cay_sandbox) child = fork_to(sandbox, NULL, CAY_STORAGE_MEMORY);
    AUTO(cay_sandbox) grandchild = fork_to(child, NULL, CAY_STORAGE_MEMORY);
    ASSERT_OK(cay_sandbox_remove(sandbox, &err));
    ASSERT_CODE(cay_sandbox_open(id, &gone, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_sandbox_remove(child, &err));
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    expect_files(grandchild);
    AUTO(cay_sandbox) last = fork_to(grandchild, NULL, CAY_STORAGE_DISK);
    ASSERT_OK(cay_sandbox_remove(grandchild, &err));
    expect_files(last);
    ASSERT_OK(cay_sandbox_remove(last, &err));
    expect_no_disks();
}

/* --- Several --- */

enum { MANY = 40 };

TEST(many_forks_are_created_at_a_time)
{
    static cay_sandbox *made[MANY];
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};

    need_store();
    size_t before = count_sandboxes();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_output(sandbox, "echo one > /a", "");
    ASSERT_OK(cay_sandbox_fork(sandbox, NULL, &options, MANY, made, NULL, &err));
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < i; j++)
            ASSERT(strcmp(cay_sandbox_id(made[i]), cay_sandbox_id(made[j])) != 0);
        expect_output(made[i], "cat /a; echo $$ > /a", "one\n");
    }
    expect_output(sandbox, "cat /a", "one\n");
    for (int i = 0; i < MANY; i++) {
        ASSERT_OK(cay_sandbox_remove(made[i], &err));
        cay_sandbox_free(made[i]);
    }
    ASSERT_INT(count_sandboxes(), before + 1);
}

static void *make_maps(void *cookie)
{
    bool *ok = cookie;

    for (int i = 0; i < 100 && *ok; i++) {
        AUTO_FD map = shift_map("0 100000 65536\n", "0 100000 65536\n");
        *ok = map >= 0;
    }
    return NULL;
}

/* Each has a process that ends with a pipe, which no other such process may have open. */
TEST(id_maps_are_created_by_several_threads_at_a_time)
{
    pthread_t threads[4];
    bool ok[4] = {true, true, true, true};

    need_root();
    for (int i = 0; i < 4; i++)
        ASSERT(pthread_create(&threads[i], NULL, make_maps, &ok[i]) == 0);
    for (int i = 0; i < 4; i++) {
        ASSERT(pthread_join(threads[i], NULL) == 0);
        ASSERT(ok[i]);
    }
}

static unsigned count_descriptors(void)
{
    AUTO_FD dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_DIR list = path_list(dir);
    unsigned count = 0;

    while (path_next(list))
        count++;
    return count;
}

/* Each sandbox needs descriptors, and there are too few for all. */
TEST(a_report_of_each_fork_tells_those_that_were_created_and_why_the_others_were_not)
{
    static cay_sandbox *made[MANY];
    static struct cay_error errors[MANY];
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .ephemeral = true};
    struct rlimit before, few;
    unsigned created = 0, failed = 0;

    need_store();
    size_t others = count_sandboxes();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_output(sandbox, "echo one > /a", "");
    ASSERT(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    few.rlim_cur = count_descriptors() + 110;
    ASSERT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int code = cay_sandbox_fork(sandbox, NULL, &options, MANY, made, errors, &err);
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    for (int i = 0; i < MANY; i++) {
        ASSERT((made[i] != NULL) == (errors[i].code == CAY_OK));
        created += made[i] != NULL;
        failed += !made[i] && errors[i].message[0] && errors[i].hint[0];
        if (!made[i])
            continue;
        expect_output(made[i], "cat /a", "one\n");
        ASSERT_OK(cay_sandbox_remove(made[i], &err));
        cay_sandbox_free(made[i]);
    }
    ASSERT(code != CAY_OK && created > 0 && failed > 0);
    ASSERT_INT(created + failed, MANY);
    ASSERT_INT(count_sandboxes(), others + 1);
    /* Without a report it is all or none. */
    ASSERT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    code = cay_sandbox_fork(sandbox, NULL, &options, MANY, made, NULL, &err);
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    ASSERT(code != CAY_OK);
    for (int i = 0; i < MANY; i++)
        ASSERT(!made[i]);
    ASSERT_INT(count_sandboxes(), others + 1);
}

/* --- What each fork has of its own --- */

TEST(forks_have_uid_ranges_networks_and_limits_of_their_own)
{
    const struct cay_sandbox_options parent = {.size = sizeof parent,
                                               .memory_bytes = 300u << 20,
                                               .disk_bytes = 64u << 20,
                                               .pids = 77,
                                               .cpu_percent = 150};
    const struct cay_sandbox_options options = {
        .size = sizeof options, .ephemeral = true, .memory_bytes = 200u << 20};
    cay_sandbox *made[3] = {NULL};
    struct cay_sandbox_info info[4];

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&parent);
    expect_output(sandbox, "head -c 40M /dev/zero > /big", "");
    ASSERT_OK(cay_sandbox_fork(sandbox, NULL, &options, 3, made, NULL, &err));
    ASSERT_OK(cay_sandbox_inspect(sandbox, &info[3], &err));
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(cay_sandbox_inspect(made[i], &info[i], &err));
        ASSERT_INT(info[i].memory_bytes, 200u << 20);
        ASSERT_INT(info[i].disk_bytes, 64u << 20);
        ASSERT_INT(info[i].pids, 77);
        ASSERT_INT(info[i].cpu_percent, 150);
        for (int j = 0; j < i; j++)
            ASSERT(info[i].id_base != info[j].id_base);
        ASSERT(info[i].id_base != info[3].id_base);
        /* The inherited bytes count in the sandbox that wrote them, its own in each. */
        expect_output(made[i], "head -c 40M /dev/zero > /own && stat -c %s /big /own",
                      "41943040\n41943040\n");
        run_as(made[i], "root", "head -c 40M /dev/zero > /more", PATIENCE_MS);
        ASSERT(result.exit_code != 0);
    }
    run_as(made[0], "root",
           "python3 -c 'import socket, os\n"
           "s = socket.socket(); s.bind((\"127.0.0.1\", 4321)); s.listen()\n"
           "if os.fork() == 0: os.setsid(); os.close(1); os.close(2); s.accept()'",
           PATIENCE_MS);
    for (int i = 0; i < 3; i++) {
        run_as(made[i], "root",
               "python3 -c 'import socket; s = socket.socket(); "
               "print(s.connect_ex((\"127.0.0.1\", 4321)) == 0)'",
               PATIENCE_MS);
        ASSERT_STR(result.out, i == 0 ? "True\n" : "False\n");
    }
    for (int i = 0; i < 3; i++)
        cay_sandbox_free(made[i]);
}

/* --- Processes --- */

TEST(a_fork_of_a_running_sandbox_has_its_files_and_none_of_its_processes)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_output(
        sandbox,
        "echo one > /a; (echo two > /b; exec setsid sleep 98765) > /dev/null 2>&1 "
        "< /dev/null & while ! pgrep -x sleep > /dev/null; do :; done",
        "");
    AUTO(cay_sandbox) made = fork_to(sandbox, NULL, CAY_STORAGE_MEMORY);
    expect_output(made, "cat /a /b; pgrep -c sleep; echo three > /a", "one\ntwo\n0\n");
    expect_output(sandbox, "cat /a; pgrep -c -x sleep", "one\n1\n");
}

/* What an execution in the default context of Python returns, or the name of its error.
 */
static void expect_value(cay_sandbox *sandbox, const char *code, const char *text)
{
    struct cay_code_execution execution;

    ASSERT_OK(cay_code_execute(sandbox, code, strlen(code), NULL, &execution, &err));
    ASSERT_STR(execution.status == CAY_CODE_SUCCESS ? execution.out
                                                    : execution.error_name,
               text);
    cay_code_execution_done(&execution);
}

TEST(contexts_of_a_fork_begin_anew_with_its_files)
{
    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_value(sandbox, "x = 1; open('/tmp/x', 'w').write('y'); print(x)", "1\n");
    AUTO(cay_sandbox) made = fork_to(sandbox, NULL, CAY_STORAGE_MEMORY);
    expect_value(made, "print(x)", "NameError");
    expect_value(made, "print(open('/tmp/x').read())", "y\n");
    expect_value(sandbox, "print(x)", "1\n");
}
