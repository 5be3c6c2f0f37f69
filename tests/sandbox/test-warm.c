/* SPDX-License-Identifier: Apache-2.0 */

/* Interpreters that start as copies of a saved one. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cay/code.h"
#include "cay/pool.h"
#include "ordinary.h"
#include "templates.h"

static struct cay_code_execution done;

static void forget_done(void)
{
    cay_code_execution_done(&done);
}

static void execute(cay_sandbox *sandbox, const struct cay_code_options *given,
                    const char *code)
{
    struct cay_code_options options = {.size = sizeof options, .timeout_ms = PATIENCE_MS};

    harness_at_end(forget_done);
    cay_code_execution_done(&done);
    if (given)
        options = *given;
    ASSERT_OK(cay_code_execute(sandbox, code, strlen(code), &options, &done, &err));
}

static void expect(cay_sandbox *sandbox, const char *code, const char *out)
{
    execute(sandbox, NULL, code);
    ASSERT_STR(done.error_value, NULL);
    ASSERT_STR(done.out, out);
}

static void make_warm(void)
{
    use_own_home();
    ASSERT_OK(cay_warm_create(NULL, NULL, &err));
}

/* The only one there is, or one without an id. */
static struct cay_warm_info find_warm(void)
{
    struct cay_warm_info *infos = NULL, found = {0};
    size_t count = 0;

    ASSERT_OK(cay_warm_list(&infos, &count, &err));
    ASSERT(count <= 1);
    if (count)
        found = infos[0];
    cay_free(infos);
    return found;
}

static void name_file(char path[PATH_MAX], const char *suffix)
{
    snprintf(path, PATH_MAX, "%s/%s%s", scratch_path("home/warm"), find_warm().id,
             suffix);
}

/* Not used for so long. */
static void set_idle(time_t seconds)
{
    char image[PATH_MAX], about[PATH_MAX];
    const struct timespec then = {.tv_sec = time(NULL) - seconds};
    const struct timespec times[] = {then, then};

    name_file(image, "");
    name_file(about, ".json");
    ASSERT_INT(utimensat(AT_FDCWD, image, times, 0), 0);
    ASSERT_INT(utimensat(AT_FDCWD, about, times, 0), 0);
}

/* Waits for an event of the directory whose name has this suffix. */
static void wait_for_event(int watch, const char *suffix)
{
    _Alignas(struct inotify_event) char room[4096];
    size_t len = strlen(suffix);

    for (;;) {
        ssize_t got = read(watch, room, sizeof room); /* the harness has a timeout */
        ASSERT(got > 0);
        for (char *at = room; at < room + got;) {
            const struct inotify_event *event = (const void *)at;
            size_t name = strlen(event->name);
            if (name >= len && strcmp(event->name + name - len, suffix) == 0)
                return;
            at += sizeof *event + event->len;
        }
    }
}

static int watch_home(uint32_t events)
{
    int watch = inotify_init1(IN_CLOEXEC);

    ASSERT(watch >= 0 && inotify_add_watch(watch, scratch_path("home/warm"), events) > 0);
    return watch;
}

/* Each of the first lines differs; each other line is the same. */
static void expect_other_lines(const char *one, const char *other, int count)
{
    for (int i = 0; *one && *other; i++) {
        size_t len = strcspn(one, "\n"), other_len = strcspn(other, "\n");
        bool is_same = len == other_len && memcmp(one, other, len) == 0;
        if (is_same != (i >= count))
            harness_fail(__FILE__, __LINE__, "line %d: %.*s", i, (int)len, one);
        one += len + 1;
        other += other_len + 1;
    }
}

TEST(copies_answer_and_have_nothing_of_each_other)
{
    static const char random[] =
        "import numpy, os, random, secrets, ssl, tempfile, uuid\n"
        "for value in (random.random(), numpy.random.rand(), uuid.uuid4(), "
        "uuid.uuid1(),\n"
        "              os.urandom(8), secrets.token_hex(8), ssl.RAND_bytes(8),\n"
        "              os.path.basename(tempfile.mktemp()), hash('x')): print(value)";
    AUTO_FREE char *first = NULL;

    make_warm();
    ASSERT_OK(cay_warm_create("host", NULL, &err)); /* there is one */
    AUTO(cay_sandbox) one = make_sandbox(NULL);
    AUTO(cay_sandbox) two = make_sandbox(NULL);
    expect(one, "x = 41\nprint(x + 1)", "42\n");
    ASSERT(done.is_warm);
    ASSERT_INT(done.count, 1);
    expect(one, "print(x)", "41\n");
    ASSERT_INT(done.count, 2);
    expect(two, "print('x' in dir())", "False\n");
    ASSERT(done.is_warm);
    execute(one, NULL, random);
    first = strdup(done.out);
    execute(two, NULL, random);
    expect_other_lines(first, done.out, 8);
    expect(two,
           "import os\n"
           "print(sorted(map(int, os.listdir('/proc/self/fd')))[:3],\n"
           "      len(os.listdir('/proc/self/fd')))",
           "[0, 1, 2] 5\n");
    expect(two, "print('cay-init' in open('/proc/self/maps').read())", "False\n");
}

TEST(copies_draw_different_numbers)
{
    static const char *const draws[] = {
        "import random; print(random.random())",
        "import random; print(random.gauss(0, 1))",
        "try:\n"
        "    import numpy\n"
        "    print(numpy.random.get_state()[2:], numpy.random.random(700)[-1])\n"
        "except ImportError:\n"
        "    import os; print(os.urandom(8))",
        "try:\n"
        "    import numpy\n"
        "    print(numpy.random.normal())\n"
        "except ImportError:\n"
        "    import os; print(os.urandom(8))",
    };

    make_warm();
    AUTO(cay_sandbox) one = make_sandbox(NULL);
    AUTO(cay_sandbox) two = make_sandbox(NULL);
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        execute(one, NULL, draws[i]);
        ASSERT_STR(done.error_value, NULL);
        AUTO_FREE char *first = strdup(done.out);
        execute(two, NULL, draws[i]);
        ASSERT_STR(done.error_value, NULL);
        ASSERT(strcmp(first, done.out) != 0);
    }
}

TEST(a_copy_is_an_interpreter_like_any_other)
{
    const struct cay_context_options context = {
        .size = sizeof context, .cwd = "/tmp", .env = (const char *const[]){"A=1", NULL}};
    struct cay_context_info info;

    make_warm();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_OK(cay_context_create(sandbox, &context, &info, &err));
    const struct cay_code_options inside = {
        .size = sizeof inside, .context = info.id, .timeout_ms = PATIENCE_MS};
    execute(sandbox, &inside,
            "import os, subprocess, threading\n"
            "print(os.getcwd(), os.environ['A'], os.getuid())\n"
            "print(subprocess.run(['sh', '-c', 'echo $A'], capture_output=True).stdout)\n"
            "t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()\n"
            "def depth(n): return n and 1 + depth(n - 1)\n"
            "import sys; sys.setrecursionlimit(9000); print(depth(8000))\n"
            "print(len(bytearray(100 << 20)))");
    ASSERT_STR(done.error_value, NULL);
    ASSERT_STR(done.out, "/tmp 1 1000\nb'1\\n'\nthread\n8000\n104857600\n");
    ASSERT(done.is_warm);
    cay_context_info_done(&info);

    const struct cay_code_options brief = {.size = sizeof brief, .timeout_ms = 300};
    expect(sandbox, "y = 5", "");
    execute(sandbox, &brief, "while True: pass");
    ASSERT_INT(done.status, CAY_CODE_TIMEOUT);
    expect(sandbox, "print(y)", "5\n");
    execute(sandbox, NULL, "import ctypes; ctypes.string_at(0)");
    ASSERT_STR(done.error_name, "ContextRestarting");
    expect(sandbox, "print('y' in dir())", "False\n");
    ASSERT(done.is_warm && done.restarted);
}

TEST(what_does_not_fit_starts_as_usual)
{
    const struct cay_context_options context = {
        .size = sizeof context, .env = (const char *const[]){"PYTHONPATH=/tmp", NULL}};
    const struct cay_code_options by_root = {
        .size = sizeof by_root, .user = "root", .timeout_ms = PATIENCE_MS};
    struct cay_context_info info;

    make_warm();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    execute(sandbox, &by_root, "print(1)");
    ASSERT(!done.is_warm);
    ASSERT_OK(cay_context_create(sandbox, &context, &info, &err));
    const struct cay_code_options inside = {
        .size = sizeof inside, .context = info.id, .timeout_ms = PATIENCE_MS};
    execute(sandbox, &inside, "import sys; print('/tmp' in sys.path)");
    ASSERT_STR(done.out, "True\n");
    ASSERT(!done.is_warm);
    cay_context_info_done(&info);
}

static ino_t find_inode(void)
{
    char path[PATH_MAX];
    struct stat st;

    name_file(path, "");
    ASSERT_INT(stat(path, &st), 0);
    return st.st_ino;
}

static void expect_cold(const char *const *env)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .ephemeral = true, .env = env};
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);

    expect(sandbox, "print(1)", "1\n");
    ASSERT(!done.is_warm);
}

static void use_again(void)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    expect(sandbox, "print(1)", "1\n");
}

TEST(a_file_is_replaced_only_if_it_does_not_fit_a_sandbox_of_our_own)
{
    static const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[PATH_MAX];

    make_warm();
    ASSERT_INT(setenv("CAY_WARM", "on", 1), 0);
    ino_t first = find_inode();
    int watch = watch_home(IN_DELETE);
    expect_cold((const char *const[]){"PYTHONPATH=/tmp", NULL});
    wait_for_event(watch, ".new"); /* the check has ended */
    (void)close(watch);
    ASSERT(find_inode() == first);
    use_again();
    ASSERT(done.is_warm);

    name_file(path, "");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ASSERT(fd >= 0 && pwrite(fd, "????", 4, 0) == 4 && close(fd) == 0);
    expect_cold(NULL); /* not checked again within a minute */
    ASSERT(find_inode() == first);
    name_file(path, ".check");
    ASSERT_INT(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    name_file(path, "");
    watch = watch_home(IN_MOVED_TO);
    expect_cold(NULL);
    wait_for_event(watch, strrchr(path, '/') + 1);
    (void)close(watch);
    use_again();
    ASSERT(done.is_warm);
    ASSERT_INT(setenv("CAY_WARM", "off", 1), 0);
}

TEST(a_template_that_was_replaced_has_another_file)
{
    struct cay_warm_info infos[2];

    use_own_home();
    put_file("from/usr/text", "no system\n");
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(try_template("tiny", CAY_TEMPLATE_DIR, scratch_path("from")));
        ASSERT(cay_warm_create("tiny", NULL, &err) != CAY_OK);
        infos[i] = find_warm();
        ASSERT_STR(infos[i].template_name, "tiny");
        ASSERT_OK(cay_warm_remove(NULL, &err));
        ASSERT_OK(cay_template_remove("tiny", &err));
    }
    ASSERT(strcmp(infos[0].id, infos[1].id) != 0);
}

TEST(an_interpreter_that_starts_neither_as_a_copy_nor_anew_is_an_error)
{
    const struct cay_context_options context = {
        .size = sizeof context,
        .timeout_ms = PATIENCE_MS,
        .env = (const char *const[]){"PYTHONHOME=/nowhere", NULL}};
    struct cay_context_info info;

    make_warm();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    ASSERT_CODE(cay_context_create(sandbox, &context, &info, &err), CAY_E_EXEC_FAILED);
    expect(sandbox, "print(1)", "1\n"); /* other contexts still start as copies */
    ASSERT(done.is_warm);
}

TEST(a_failure_is_remembered_with_its_reason)
{
    use_own_home();
    ASSERT_CODE(cay_warm_create("no-such-template", NULL, &err), CAY_E_NOT_FOUND);
    struct cay_warm_info info = find_warm();
    ASSERT_STR(info.template_name, "no-such-template");
    ASSERT(strstr(info.failure, "template") != NULL);
    ASSERT_INT(info.bytes, 0);
    ASSERT_OK(cay_warm_remove(info.id, &err));
    ASSERT_STR(find_warm().id, "");
    ASSERT_CODE(cay_warm_remove(info.id, &err), CAY_E_NOT_FOUND);
    ASSERT_OK(cay_warm_remove(NULL, &err));
}

TEST(each_list_of_modules_has_its_own_file)
{
    static const char *const invalid[] = {",",    "numpy,", "1x",  "a b",
                                          "a..b", "a,,b",   "a/b", ".a"};
    static const char code[] = "import sys; print('json' in sys.modules, "
                               "'fractions' in sys.modules)";
    struct cay_code_options with = {.size = sizeof with,
                                    .timeout_ms = PATIENCE_MS,
                                    .preload = "fractions,no_such_module"};
    struct cay_warm_info *infos = NULL;
    size_t count = 0;

    use_own_home();
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        ASSERT_CODE(cay_warm_create(NULL, invalid[i], &err), CAY_E_INVALID);
    ASSERT_OK(cay_warm_create(NULL, "fractions,no_such_module", &err));
    ASSERT_OK(cay_warm_create(NULL, "", &err));
    ASSERT_OK(cay_warm_list(&infos, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_STR(infos[0].preload, "fractions,no_such_module");
    ASSERT_STR(infos[0].language, "python");
    ASSERT_STR(infos[0].template_name, "host");
    ASSERT_STR(infos[1].preload, "");
    ASSERT(infos[0].bytes > 1 << 20 && infos[0].created_ms && !*infos[0].failure);
    cay_free(infos);
    AUTO(cay_sandbox) one = make_sandbox(NULL);
    execute(one, &with, code);
    ASSERT(done.is_warm && strstr(done.out, "True\n"));
    AUTO(cay_sandbox) two = make_sandbox(NULL);
    with.preload = "";
    execute(two, &with, code);
    ASSERT(done.is_warm && strstr(done.out, "False\n"));
    AUTO(cay_sandbox) three = make_sandbox(NULL);
    expect(three, "print(1)", "1\n"); /* the default list has no file */
    ASSERT(!done.is_warm);
    with.preload = "a b";
    ASSERT_CODE(cay_code_execute(three, "1", 1, &with, &done, &err), CAY_E_INVALID);
    ASSERT_INT(setenv("CAY_PRELOAD", "fractions,no_such_module", 1), 0);
    AUTO(cay_sandbox) four = make_sandbox(NULL);
    execute(four, NULL, code);
    ASSERT(done.is_warm && strstr(done.out, "True\n"));
    ASSERT_INT(unsetenv("CAY_PRELOAD"), 0);
}

TEST(a_file_goes_ten_minutes_after_its_last_use)
{
    size_t count;

    make_warm();
    set_idle(590);
    use_again();
    ASSERT(done.is_warm);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT(find_warm().bytes > 0);
    set_idle(601);
    ASSERT_OK(cay_sandbox_collect(&count, &err));
    ASSERT_STR(find_warm().id, "");
}

static bool sleep_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 20000000};

    nanosleep(&moment, NULL);
    return true;
}

static void wait_for_warm(void)
{
    while (!find_warm().bytes && !*find_warm().failure) /* the harness has a timeout */
        sleep_a_moment();
}

TEST(the_first_execution_saves_one_in_the_background)
{
    int ends[2];
    char byte;

    use_own_home();
    ASSERT_INT(setenv("CAY_WARM", "sometimes", 1), 0);
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options options = {.size = sizeof options,
                                             .timeout_ms = PATIENCE_MS};
    ASSERT_CODE(cay_code_execute(sandbox, "1", 1, &options, &done, &err), CAY_E_INVALID);
    ASSERT_INT(setenv("CAY_WARM", "on", 1), 0);
    ASSERT_INT(pipe2(ends, 0), 0);
    expect(sandbox, "print(1)", "1\n");
    ASSERT(!done.is_warm);
    use_again(); /* it is saved once, whoever comes meanwhile */
    (void)close(ends[1]);
    ASSERT_INT(read(ends[0], &byte, 1), 0); /* the other process has no descriptor */
    (void)close(ends[0]);
    wait_for_warm();
    ASSERT_STR(find_warm().failure, "");
    ASSERT_STR(find_warm().preload, CAY_PRELOAD_DEFAULT);
    use_again();
    ASSERT(done.is_warm);
    ASSERT_INT(setenv("CAY_WARM", "off", 1), 0);
}

TEST(a_spare_of_a_pool_starts_from_a_saved_interpreter)
{
    const struct cay_pool_options wish = {.size = sizeof wish, .count = 1};
    struct cay_sandbox_options options = {.size = sizeof options, .ephemeral = true};
    struct cay_pool_stats stats;
    cay_pool *pool = NULL;

    make_warm();
    ASSERT_OK(cay_pool_create(&wish, &pool, &err));
    options.pool = cay_pool_name(pool);
    AUTO(cay_sandbox) sandbox = make_sandbox(&options);
    expect(sandbox, "print(1)", "1\n");
    ASSERT(done.is_warm);
    do
        cay_pool_get_stats(pool, &stats); /* counted by the thread of the pool */
    while (!stats.claimed && sleep_a_moment());
    cay_pool_free(pool);
}

static void expect_unchangeable(cay_sandbox *sandbox, const char *home)
{
    AUTO_FREE char *code = NULL;

    ASSERT(asprintf(&code,
                    "import os\n"
                    "home = %c%s%c\n"
                    "text = open('/proc/self/maps').read()\n"
                    "found = tried = 0\n"
                    "for pid in os.getppid(), os.getpid():\n"
                    "    for fd in os.listdir(f'/proc/{pid}/fd'):\n"
                    "        name = f'/proc/{pid}/fd/{fd}'\n"
                    "        try:\n"
                    "            text += os.readlink(name)\n"
                    "            if os.stat(name).st_size < 1 << 20: continue\n"
                    "        except OSError: continue\n"
                    "        tried += 1\n"
                    "        try: os.chmod(name, 0o666); found += 1\n"
                    "        except OSError: pass\n"
                    "        for flags in os.O_RDWR, os.O_WRONLY | os.O_TRUNC:\n"
                    "            try: os.open(name, flags); found += 1\n"
                    "            except OSError: pass\n"
                    "print(home in text, '/warm/' in text, tried, found)",
                    '"', home, '"') > 0);
    execute(sandbox, NULL, code);
    ASSERT_STR(done.error_value, NULL);
    ASSERT(done.is_warm);
    ASSERT_STR(done.out, "False False 1 0\n");
}

/* The service, which has the file open, and the copies run with the rights of the code.
 */
TEST(neither_the_path_of_the_file_is_visible_inside_nor_can_it_be_written)
{
    make_warm();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_unchangeable(sandbox, scratch_path("home"));
}

static void warm_as_ordinary(void)
{
    char home[] = "/tmp/cay-warm-XXXXXX", below[64];

    ASSERT(mkdtemp(home) != NULL && setenv("CAY_HOME", home, 1) == 0);
    ASSERT_OK(cay_warm_create(NULL, "", &err));
    ASSERT_INT(setenv("CAY_PRELOAD", "", 1), 0);
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect_unchangeable(sandbox, home);
    ASSERT_OK(cay_warm_remove(NULL, &err));
    snprintf(below, sizeof below, "%s/warm", home);

    ASSERT_INT(rmdir(below), 0); /* no draft is left */
    ASSERT_INT(rmdir(home), 0);
}

TEST(an_ordinary_user_has_copies_that_cannot_change_the_file)
{
    need_root();
    as_ordinary(ordinary_user(true), warm_as_ordinary);
    as_ordinary(ordinary_user(false), warm_as_ordinary);
}
