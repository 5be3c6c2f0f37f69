/* SPDX-License-Identifier: Apache-2.0 */

/* Interpreters that start as copies of a saved one. */
#include <dirent.h>
#include <fcntl.h>

#include "cay/code.h"
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
    ASSERT_OK(cay_code_warm(NULL, &err));
}

static void name_image(char path[PATH_MAX])
{
    DIR *list = opendir(scratch_path("home/warm"));
    struct dirent *entry;

    ASSERT(list != NULL);
    path[0] = '\0';
    while ((entry = readdir(list)))
        if (entry->d_name[0] != '.')
            snprintf(path, PATH_MAX, "%s/%s", scratch_path("home/warm"), entry->d_name);
    closedir(list);
}

TEST(copies_answer_and_have_nothing_of_each_other)
{
    static const char random[] = "import random, uuid, os, tempfile\n"
                                 "print(random.random(), uuid.uuid4(), os.urandom(4))";
    AUTO_FREE char *first = NULL;

    make_warm();
    ASSERT_OK(cay_code_warm("host", &err)); /* there is one */
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
    ASSERT(strcmp(first, done.out) != 0);
    expect(two,
           "import os\n"
           "print(sorted(map(int, os.listdir('/proc/self/fd')))[:3],\n"
           "      len(os.listdir('/proc/self/fd')))",
           "[0, 1, 2] 5\n");
    expect(two, "print('cay-init' in open('/proc/self/maps').read())", "False\n");
}

/* The service, which has the file open, and the copies run with the rights of the code.
 */
TEST(neither_the_path_of_the_file_is_visible_inside_nor_can_it_be_written)
{
    make_warm();
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
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
                    "        for flags in os.O_RDWR, os.O_WRONLY | os.O_TRUNC:\n"
                    "            try: os.open(name, flags); found += 1\n"
                    "            except OSError: pass\n"
                    "print(home in text, '/warm/' in text, tried, found)",
                    '"', scratch_path("home"), '"') > 0);
    execute(sandbox, NULL, code);
    ASSERT_STR(done.error_value, NULL);
    ASSERT(done.is_warm);
    ASSERT_STR(done.out, "False False 1 0\n");
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
    char path[PATH_MAX];

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

    /* A file that is damaged is removed. */
    name_image(path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ASSERT(fd >= 0 && pwrite(fd, "????", 4, 0) == 4 && close(fd) == 0);
    AUTO(cay_sandbox) other = make_sandbox(NULL);
    expect(other, "print(1)", "1\n");
    ASSERT(!done.is_warm);
    name_image(path);
    ASSERT_STR(path, "");
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

TEST(a_template_without_python_has_no_copies_and_nothing_is_left)
{
    char path[PATH_MAX];

    use_own_home();
    ASSERT_CODE(cay_code_warm("no-such-template", &err), CAY_E_NOT_FOUND);
    name_image(path);
    ASSERT_STR(path, "");
}

static void warm_as_ordinary(void)
{
    char home[] = "/tmp/cay-warm-XXXXXX", below[64];

    ASSERT(mkdtemp(home) != NULL && setenv("CAY_HOME", home, 1) == 0);
    ASSERT_CODE(cay_code_warm(NULL, &err), CAY_E_UNSUPPORTED);
    snprintf(below, sizeof below, "%s/warm", home);
    ASSERT(rmdir(below) == 0 && rmdir(home) == 0); /* no draft is left */
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    expect(sandbox, "print(1)", "1\n");
    ASSERT(!done.is_warm);
}

TEST(an_ordinary_user_has_no_copies)
{
    need_root();
    as_ordinary(ordinary_user(false), warm_as_ordinary);
}
