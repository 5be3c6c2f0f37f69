/* SPDX-License-Identifier: Apache-2.0 */

/* Forks from and to disk, several at a time, and what each has of its own. */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

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

TEST(the_first_command_of_a_fork_needs_the_approval_of_its_source)
{
    use_own_home(); /* with the queue */
    need_store();
    const char *const patterns[] = {"true", NULL}, *const argv[] = {"true", NULL};
    const struct cay_sandbox_options asks = {.size = sizeof asks,
                                             .ephemeral = true,
                                             .approve = patterns,
                                             .approve_timeout_ms = 1};
    AUTO(cay_sandbox) sandbox = make_sandbox(&asks);
    AUTO(cay_sandbox) made = NULL;
    cay_process *process = NULL;
    const struct cay_sandbox_options options = {
        .size = sizeof options, .ephemeral = true, .from = cay_sandbox_id(sandbox)};
    const struct cay_exec_options exec = {.size = sizeof exec, .argv = argv};

    ASSERT_CODE(cay_sandbox_run(&options, &exec, &made, &process, &err),
                CAY_E_NOT_APPROVED);
    ASSERT(made && !process);
    expect_output(made, "echo other", "other\n");
}

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

/* --- Contexts that go on --- */

/* Forks the present with the contexts of the default user. */
static cay_sandbox *fork_with_contexts(cay_sandbox *sandbox,
                                       cay_saved_contexts **ret_saved)
{
    ASSERT_OK(cay_contexts_save(sandbox, NULL, ret_saved, &err));
    cay_sandbox *made = fork_to(sandbox, NULL, CAY_STORAGE_MEMORY);
    ASSERT_OK(cay_contexts_restore(made, *ret_saved, &err));
    return made;
}

/* The only context, which is not saved for this reason; NULL: it is saved. */
static void expect_reason(const cay_saved_contexts *saved, const char *reason)
{
    size_t count = 0;
    const struct cay_saved_context *items = cay_saved_contexts_items(saved, &count);

    ASSERT_INT(count, 1);
    if (reason) {
        ASSERT(strstr(items[0].reason, reason));
        ASSERT(!items[0].is_saved);
    } else {
        ASSERT_STR(items[0].reason, "");
        ASSERT(items[0].is_saved && items[0].bytes > 0);
    }
}

TEST(contexts_of_a_fork_go_on_with_their_variables)
{
    cay_saved_contexts *saved = NULL;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_value(sandbox,
                 "import os, json\n"
                 "def double(x): return 2 * x\n"
                 "numbers = (n for n in range(5)); next(numbers)\n"
                 "text = 'x' * 3_000_000\n"
                 "os.environ['OWN'] = 'mine'; os.makedirs('/tmp/d'); os.chdir('/tmp/d')\n"
                 "out = open('log', 'w'); out.write('first'); os.umask(0o27)\n"
                 "print(double(21))",
                 "42\n");
    AUTO(cay_sandbox) made = fork_with_contexts(sandbox, &saved);
    expect_reason(saved, NULL);
    AUTO(cay_sandbox) other = fork_to(sandbox, NULL, CAY_STORAGE_MEMORY);
    ASSERT_OK(cay_contexts_restore(other, saved, &err));
    cay_saved_contexts_free(saved);
    expect_value(made,
                 "print(double(4), next(numbers), len(text), os.environ['OWN'], "
                 "os.getcwd(), json.dumps([1]), oct(os.umask(0)))",
                 "8 1 3000000 mine /tmp/d [1] 0o27\n");
    expect_value(made, "_ = out.write(' fork'); out.flush(); print(open('log').read())",
                 "first fork\n");
    expect_value(other, "print(next(numbers), open('log').read() == '')", "1 True\n");
    expect_value(sandbox, "print(next(numbers)); out.close(); print(open('log').read())",
                 "1\nfirst\n");
    expect_value(made, "print(next(numbers), len(text))", "2 3000000\n");
}

/* The first execution in the fork says that the interpreter is a new one. */
static void expect_restarted(cay_sandbox *sandbox)
{
    struct cay_code_execution execution;

    ASSERT_OK(cay_code_execute(sandbox, "x", 1, NULL, &execution, &err));
    ASSERT_STR(execution.error_name, "NameError");
    ASSERT(strstr(execution.restarted, "did not come along"));
    cay_code_execution_done(&execution);
    ASSERT_OK(cay_code_execute(sandbox, "x = 2", 5, NULL, &execution, &err));
    ASSERT(!execution.restarted);
    cay_code_execution_done(&execution);
}

static void refuse_context(const char *code, const char *reason)
{
    cay_saved_contexts *saved = NULL;
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    expect_value(sandbox, code, "");
    AUTO(cay_sandbox) made = fork_with_contexts(sandbox, &saved);
    expect_reason(saved, reason);
    cay_saved_contexts_free(saved);
    expect_restarted(made);
    expect_value(sandbox, "print(x)", "1\n");
}

TEST(contexts_that_cannot_be_saved_begin_anew_and_say_so)
{
    need_store();
    refuse_context(
        "import threading, time\nx = 1\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "it has threads");
    refuse_context(
        "import subprocess\nx = 1\nchild = subprocess.Popen(['sleep', '1000'])",
        "it has child processes");
    refuse_context("import socket\nx = 1\nserver = socket.socket()", "is open: socket:");
    refuse_context("import tempfile\nx = 1\nfile = tempfile.TemporaryFile()",
                   "is open: ");
    refuse_context("import mmap\nx = 1\nshared = mmap.mmap(-1, 4096)",
                   "it shares memory that can be written to");
    refuse_context("import signal\nx = 1\nsignal.alarm(1000)", "it has a timer");
}

/* Code that replaces fork() of the driver: `body` runs in the child that should write the
 * memory, with `file` open. */
static void refuse_written(const char *body, const char *reason)
{
    cay_saved_contexts *saved = NULL;
    char code[4096];

    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    snprintf(
        code, sizeof code,
        "import os, sys, struct, mmap\nreal_fork, x = os.fork, 1\n"
        "def other_fork():\n"
        "    file = os.open(sys._getframe(1).f_locals['options']['image'], os.O_RDWR)\n"
        "    child = real_fork()\n"
        "    if child:\n"
        "        os.close(file)\n"
        "        return child\n"
        "    %s\n"
        "    os._exit(0)\n"
        "os.fork = other_fork",
        body);
    expect_value(sandbox, code, "");
    AUTO(cay_sandbox) made = fork_with_contexts(sandbox, &saved);
    if (reason)
        expect_reason(saved, reason);
    cay_saved_contexts_free(saved);
    expect_restarted(made);
    expect_output(made, "echo lives", "lives\n");
}

/* The head of warm.h, and what it says about the rest is wrong. */
TEST(a_context_that_writes_garbage_begins_anew_in_the_fork)
{
    need_store();
    refuse_written("os.write(file, os.urandom(100000))", NULL);
    refuse_written(
        "os.write(file, struct.pack('8sIIIIQQ', b'cay-warm', 2, 4096, 4096, 512, "
        "131072, 4096) + os.urandom(1 << 20))",
        NULL);
    refuse_written(
        "os.write(file, struct.pack('8sIIIIQQ', b'cay-warm', 2, 4096, 1, 0, 0, "
        "(1 << 64) - 4096) + bytes(1 << 20))",
        NULL);
    refuse_written(
        "os.write(file, struct.pack('8sIIIIQQ24QQ11QQQQ', b'cay-warm', 2, 4096, 1, "
        "0, 0, 4096, *[0] * 25, *[0] * 11, 0x10000, 0, 0).ljust(4096, b'x') + "
        "struct.pack('QQQIIII', 0x10000, 1 << 47, 0, 1, 7, 0, 0))",
        NULL);
    refuse_written("pass", "code has changed it"); /* an empty file */
    refuse_written("os.write(file, b'x'); os.setsid(); os.kill(os.getppid(), 9)",
                   "its interpreter ended meanwhile");
}

/* Another process keeps a mapping of the file, through which it could change what forks
 * share. */
TEST(a_context_whose_file_can_still_be_written_to_is_not_saved)
{
    need_store();
    refuse_written("os.write(file, bytes(4096)); kept = mmap.mmap(file, 4096); "
                   "pid = real_fork()\n"
                   "    if pid == 0: os.setsid(); os.close(1); os.close(2); "
                   "__import__('time').sleep(1000)",
                   "code has changed it");
}

/* Saving needs as much memory again. */
TEST(a_context_too_large_for_the_memory_limit_keeps_its_variables)
{
    const struct cay_sandbox_options options = {.size = sizeof options,
                                                .memory_bytes = 256u << 20};
    cay_saved_contexts *saved = NULL;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    expect_value(sandbox, "import os\nx = 1\nlarge = os.urandom(160 << 20)", "");
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(cay_contexts_save(sandbox, NULL, &saved, &err));
        expect_reason(saved, "the sandbox may lack memory");
        cay_saved_contexts_free(saved);
        expect_value(sandbox, "print(x, len(large) >> 20)", "1 160\n");
    }
    expect_value(sandbox, "del large", "");
    ASSERT_OK(cay_contexts_save(sandbox, NULL, &saved, &err));
    expect_reason(saved, NULL);
    cay_saved_contexts_free(saved);
}

static _Noreturn void save_and_exit(const char *id)
{
    cay_sandbox *sandbox;
    cay_saved_contexts *saved;
    int code = cay_sandbox_open(id, &sandbox, &err);

    if (!code)
        code = cay_contexts_save(sandbox, NULL, &saved, &err);
    _exit(code != CAY_OK);
}

/* Waits until the context has a child, which saves it. */
static void await_saver(cay_sandbox *sandbox)
{
    run_as(
        sandbox, "root",
        "for i in $(seq 1000); do test \"$(pgrep -c python3)\" = 2 && echo two && exit; "
        "sleep 0.01; done",
        PATIENCE_MS);
    ASSERT_STR(result.out, "two\n");
}

TEST(a_context_goes_on_if_the_program_that_saves_it_is_killed)
{
    cay_saved_contexts *saved = NULL;
    int status;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_value(sandbox,
                 "import os, time\nx = 1\nreal_fork = os.fork\n"
                 "def slow_fork():\n"
                 "    child = real_fork()\n"
                 "    if child == 0: time.sleep(1000)\n"
                 "    return child\n"
                 "os.fork = slow_fork",
                 "");
    pid_t pid = fork();
    if (pid == 0)
        save_and_exit(cay_sandbox_id(sandbox));
    await_saver(sandbox);
    ASSERT(kill(pid, SIGKILL) == 0);
    ASSERT(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    expect_value(sandbox, "os.fork = real_fork; print(x)", "1\n");
    expect_output(sandbox, "pgrep -c python3", "1\n");
    ASSERT_OK(cay_contexts_save(sandbox, NULL, &saved, &err));
    expect_reason(saved, NULL);
    cay_saved_contexts_free(saved);
}

static void *run_long(void *cookie)
{
    cay_sandbox *sandbox = cookie;
    struct cay_code_execution execution;
    struct cay_error own;
    static const char code[] = "import time\nx = 1\n"
                               "while not __import__('os').path.exists('/tmp/go'): "
                               "time.sleep(0.01)";

    if (cay_code_execute(sandbox, code, strlen(code), NULL, &execution, &own) == CAY_OK)
        cay_code_execution_done(&execution);
    return NULL;
}

TEST(a_context_that_runs_code_begins_anew_and_is_not_waited_for)
{
    cay_saved_contexts *saved = NULL;
    struct cay_context_infos infos;
    bool is_busy = false;
    pthread_t thread;

    need_store();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT(pthread_create(&thread, NULL, run_long, sandbox) == 0);
    while (!is_busy) {
        ASSERT_OK(cay_context_list(sandbox, NULL, &infos, &err));
        is_busy = infos.count == 1 && infos.items[0].is_busy;
        cay_context_infos_done(&infos);
    }
    AUTO(cay_sandbox) made = fork_with_contexts(sandbox, &saved);
    expect_reason(saved, "code runs in it");
    ASSERT_CODE(cay_contexts_restore(made, saved, &err), CAY_E_EXISTS);
    cay_saved_contexts_free(saved);
    expect_restarted(made);
    expect_output(sandbox, "touch /tmp/go", "");
    ASSERT(pthread_join(thread, NULL) == 0);
}
