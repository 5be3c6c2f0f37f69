/* SPDX-License-Identifier: Apache-2.0 */

/* The code service, with a driver that these tests bring: each command of the code is one
 * step of it.  Drivers of data/code have their own tests. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include "code/client.h"
#include "processes.h"

/* The code is Python; `say` writes lines to the channel as a driver does, or anything. */
static const char fake_source[] =
    "import json, os, socket, sys, time, signal\n"
    "os.set_inheritable(3, False)\n"
    "channel = socket.socket(fileno=3)\n"
    "lines = channel.makefile('rb')\n"
    "def raw(data): channel.sendall(data)\n"
    "def say(**line): raw(json.dumps(line).encode() + b'\\n')\n"
    "busy = False\n"
    "def stop(number, frame):\n"
    "    global busy\n"
    "    if busy:\n"
    "        busy = False\n"
    "        raise KeyboardInterrupt\n"
    "signal.signal(signal.SIGINT, stop)\n"
    "state = {'raw': raw, 'say': say, 'os': os, 'sys': sys, 'time': time,\n"
    "         'signal': signal}\n"
    "say(type='ready', version='1')\n"
    "for count, line in enumerate(lines, 1):\n"
    "    line = json.loads(line)\n"
    "    say(type='count', count=count)\n"
    "    state['env'] = line['env']\n"
    "    try:\n"
    "        busy = True\n"
    "        exec(line['code'], state)\n"
    "        busy = False\n"
    "    except BaseException as error:\n"
    "        busy = False\n"
    "        say(type='error', name=type(error).__name__, value=str(error),\n"
    "            traceback='T')\n"
    "    say(type='done', id=line['id'])\n";
static const unsigned long fake_size = sizeof fake_source - 1;

static const struct code_language fake = {
    .names = {"fake"},
    .kernel = "fake",
    .argv = {"python3", "-c"},
    .loader = {fake_source, &fake_size},
};

static struct cay_code_execution done;
static struct cay_context_infos infos;

static void forget(void)
{
    cay_code_execution_done(&done);
    cay_context_infos_done(&infos);
}

static int try_code(cay_sandbox *sandbox, const struct cay_code_options *options,
                    const char *code)
{
    struct cay_code_options own = {.size = sizeof own, .timeout_ms = PATIENCE_MS};

    harness_at_end(forget);
    cay_code_execution_done(&done);
    if (options)
        own = *options;
    if (!own.context && !own.language)
        own.language = "fake";
    return code_execute(sandbox, code, strlen(code), &own, own.context ? NULL : &fake,
                        &done, &err);
}

static void execute(cay_sandbox *sandbox, const char *code)
{
    ASSERT_OK(try_code(sandbox, NULL, code));
}

static void expect_value(cay_sandbox *sandbox, const char *expression, const char *value)
{
    char code[512];

    snprintf(code, sizeof code, "say(type='stdout', text=str(%s))", expression);
    execute(sandbox, code);
    ASSERT_STR(done.error_value, NULL);
    ASSERT_STR(done.out, value);
}

/* --- Results --- */

TEST(a_context_keeps_its_variables)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "x = 41");
    ASSERT_INT(done.status, CAY_CODE_SUCCESS);
    ASSERT_INT(done.count, 1);
    ASSERT_STR(done.language, "fake");
    ASSERT_STR(done.restarted, NULL);
    expect_value(sandbox, "x + 1", "42");
    ASSERT_INT(done.count, 2);
}

TEST(an_execution_has_text_values_and_an_error)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "say(type='stdout', text='out\\n')\n"
                     "say(type='stderr', text='warn\\n')\n"
                     "say(type='result', main=False, data={'image/png': 'aGk='})\n"
                     "say(type='result', main=True, data={'text/plain': '1',\n"
                     "    'application/json': {'a': [1, None]}})\n"
                     "1 / 0");
    ASSERT_INT(done.status, CAY_CODE_ERROR);
    ASSERT_STR(done.out, "out\n");
    ASSERT_STR(done.error, "warn\n");
    ASSERT_STR(done.error_name, "ZeroDivisionError");
    ASSERT_STR(done.error_value, "division by zero");
    ASSERT_STR(done.traceback, "T");
    ASSERT_INT(done.value_count, 2);
    ASSERT(!done.values[0].is_main && done.values[1].is_main);
    ASSERT(done.values[0].time_ns > 1600000000000000000);
    ASSERT_STR(done.values[0].parts[0].mime, "image/png");
    ASSERT_MEM(done.values[0].parts[0].data, done.values[0].parts[0].len, "hi", 2);
    ASSERT_INT(done.values[1].part_count, 2);
    ASSERT(done.values[1].parts[1].is_json);
    ASSERT_STR(done.values[1].parts[1].data, "{\"a\":[1,null]}");
}

TEST(output_of_child_processes_belongs_to_the_execution)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "os.system('echo child; echo wrong >&2')");
    ASSERT_STR(done.out, "child\n");
    ASSERT_STR(done.error, "wrong\n");
    execute(sandbox,
            "os.write(1, b'caf\\xc3'); time.sleep(0.05); os.write(1, b'\\xa9 \\xff')");
    ASSERT_STR(done.out, "caf\xC3\xA9 \xEF\xBF\xBD");
}

TEST(a_context_has_the_environment_and_rights_of_a_command)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const env[] = {"FOR_ONE_CALL=1", NULL};
    const struct cay_code_options options = {.size = sizeof options, .env = env};

    run(sandbox,
        "cd; env | grep -v '^_=\\|^SHLVL=\\|^PWD=\\|^OLDPWD=' | sort; id; pwd; "
        "grep -e ^Cap -e Seccomp: -e NoNewPrivs /proc/self/status; ls /proc/self/fd"
        " | wc -l; ulimit -a");
    AUTO_FREE char *expected = strdup(result.out);
    execute(sandbox,
            "os.system(\"\"\"env | grep -v '^_=\\|^SHLVL=\\|^PWD=\\|^OLDPWD=\\|^LC_' "
            "| sort; id; pwd; grep -e ^Cap -e Seccomp: -e NoNewPrivs "
            "/proc/self/status; ls /proc/self/fd | wc -l; ulimit -a\"\"\")");
    ASSERT_STR(done.out, expected);
    /* The service itself, too. */
    run(sandbox, "grep -e ^Uid -e ^Cap -e Seccomp -e NoNewPrivs /proc/self/status");
    free(expected);
    expected = strdup(result.out);
    execute(sandbox, "os.system('grep -e ^Uid -e ^Cap -e Seccomp -e NoNewPrivs '\n"
                     "          f'/proc/{os.getppid()}/status')");
    ASSERT_STR(done.out, expected);
    /* No path of the host. */
    execute(sandbox, "os.system(f'readlink /proc/{os.getppid()}/exe')");
    ASSERT_STR(done.out, "/memfd:cay-code (deleted)\n");
    ASSERT_OK(
        try_code(sandbox, &options, "say(type='stdout', text=env['FOR_ONE_CALL'])"));
    ASSERT_STR(done.out, "1");
}

struct heard_code {
    int texts, values;
    bool stops;
};

static int hear_text(void *cookie, int stream, const char *text, size_t len,
                     int64_t time_ns)
{
    struct heard_code *heard = cookie;

    ASSERT(stream == 1 && time_ns > 0);
    ASSERT_MEM(text, len, "hello\n", 6);
    heard->texts++;
    return heard->stops;
}

static int hear_value(void *cookie, const struct cay_code_value *value)
{
    ASSERT_STR(value->parts[0].data, "v");
    ((struct heard_code *)cookie)->values++;
    return 0;
}

TEST(callbacks_get_text_and_values_as_they_happen)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct heard_code heard = {0};
    const struct cay_code_options options = {.size = sizeof options,
                                             .on_text = hear_text,
                                             .on_value = hear_value,
                                             .cookie = &heard};

    ASSERT_OK(try_code(sandbox, &options,
                       "say(type='stdout', text='hello\\n')\n"
                       "say(type='result', data={'text/plain': 'v'})"));
    ASSERT_INT(heard.texts, 1);
    ASSERT_INT(heard.values, 1);
    ASSERT_INT(done.value_count, 0);
    ASSERT_STR(done.out, "");
    heard.stops = true;
    ASSERT_OK(try_code(sandbox, &options,
                       "say(type='stdout', text='hello\\n'); time.sleep(1000)"));
    ASSERT_INT(done.status, CAY_CODE_INTERRUPTED);
    expect_value(sandbox, "1", "1");
}

TEST(a_descriptor_cancels_an_execution)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    int ends[2];

    execute(sandbox, "x = 1");
    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    ASSERT_INT(write(ends[1], "x", 1), 1);
    const struct cay_code_options options = {.size = sizeof options,
                                             .cancel_fd = ends[0]};
    ASSERT_OK(try_code(sandbox, &options, "time.sleep(1000)"));
    ASSERT_INT(done.status, CAY_CODE_INTERRUPTED);
    ASSERT_STR(done.error_name, "KeyboardInterrupt");
    (void)close(ends[0]);
    (void)close(ends[1]);
    expect_value(sandbox, "x", "1");
}

TEST(text_beyond_the_limit_is_cut_and_counted)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options options = {.size = sizeof options, .output_limit = 10};

    ASSERT_OK(try_code(sandbox, &options,
                       "say(type='stdout', text='123456789\xC3\xA9')\n"
                       "say(type='stdout', text='x')\n"
                       "os.write(2, b'y' * 100000)"));
    ASSERT_STR(done.out, "123456789");
    ASSERT_INT(done.out_dropped, 3);
    ASSERT_STR(done.error, "yyyyyyyyyy");
    ASSERT_INT(done.error_dropped, 99990);
}

/* --- The end of an execution --- */

TEST(a_timeout_interrupts_and_keeps_the_variables)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options options = {.size = sizeof options, .timeout_ms = 300};

    execute(sandbox, "x = 1");
    ASSERT_OK(try_code(sandbox, &options, "x = 2; time.sleep(1000)"));
    ASSERT_INT(done.status, CAY_CODE_TIMEOUT);
    ASSERT_STR(done.error_name, "KeyboardInterrupt");
    expect_value(sandbox, "x", "2");
    ASSERT_STR(done.restarted, NULL);
}

TEST(an_interpreter_that_ignores_the_interrupt_is_killed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options options = {.size = sizeof options, .timeout_ms = 500};

    execute(sandbox, "x = 1");
    ASSERT_OK(try_code(sandbox, &options,
                       "signal.signal(2, signal.SIG_IGN); time.sleep(1000)"));
    ASSERT_INT(done.status, CAY_CODE_TIMEOUT);
    ASSERT_STR(done.error_name, "ContextRestarting");
    expect_value(sandbox, "'x' in dir()", "False");
    ASSERT_HAS(done.restarted, "did not react");
}

static void lose(cay_sandbox *sandbox, const char *code, const char *cause)
{
    execute(sandbox, "x = 1");
    execute(sandbox, code);
    ASSERT_INT(done.status, CAY_CODE_LOST);
    ASSERT_STR(done.error_name, "ContextRestarting");
    ASSERT_HAS(done.error_value, cause);
    expect_value(sandbox, "'x' in dir()", "False");
    ASSERT_HAS(done.restarted, cause);
    expect_value(sandbox, "1", "1");
    ASSERT_STR(done.restarted, NULL);
}

TEST(a_crash_is_an_error_with_its_cause_and_the_next_call_gets_a_new_interpreter)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    lose(sandbox, "os.kill(os.getpid(), 11)", "signal 11 (SIGSEGV)");
    lose(sandbox, "os._exit(7)", "exited with status 7");
    execute(sandbox, "os.write(1, b'last words'); os._exit(0)");
    ASSERT_STR(done.out, "last words");
    ASSERT_HAS(done.error_value, "exited with status 0");
}

TEST(an_interpreter_without_memory_is_an_error_that_names_it)
{
    const struct cay_sandbox_options small = {.size = sizeof small,
                                              .memory_bytes = 64 << 20};
    AUTO(cay_sandbox) sandbox = make_sandbox(&small);

    execute(sandbox, "x = 1");
    execute(sandbox, "x = bytearray(1 << 30)");
    ASSERT_INT(done.status, CAY_CODE_LOST);
    ASSERT_HAS(done.error_value, "out of memory");
    expect_value(sandbox, "1", "1");
    ASSERT_HAS(done.restarted, "signal 9");
}

TEST(a_death_between_executions_is_reported_by_the_next)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "import threading\n"
                     "threading.Timer(0.05, lambda: os._exit(3)).start()");
    for (int i = 0; i < PATIENCE_MS / 20 && !done.restarted; i++) {
        rest_ms(20);
        execute(sandbox, "pass");
    }
    /* If the timer is slow, it hits an execution. */
    ASSERT(done.restarted || done.error_name);
}

TEST(output_between_executions_is_dropped_and_counted)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "pass");
    execute(sandbox,
            "import subprocess\n"
            "p = subprocess.Popen(['sh', '-c', 'read x; head -c 300000 /dev/zero'],"
            " stdin=subprocess.PIPE)\n"
            "import threading\n"
            "threading.Timer(0.2, p.stdin.close).start()");
    for (int i = 0; i < PATIENCE_MS / 20 && !done.background_dropped; i++) {
        rest_ms(400);
        execute(sandbox, "pass");
    }
    ASSERT(done.background_dropped > 0 || done.out_len > 0);
}

/* --- Several clients --- */

struct caller {
    const char *id; /* of the sandbox */
    const char *code;
    const char *context; /* NULL: the default */
    struct cay_code_execution execution;
    int failure;
    pthread_t thread;
};

static void *call(void *cookie)
{
    struct caller *caller = cookie;
    const struct cay_code_options options = {.size = sizeof options,
                                             .context = caller->context,
                                             .language = caller->context ? NULL : "fake",
                                             .timeout_ms = PATIENCE_MS};
    cay_sandbox *sandbox = NULL;

    caller->failure = cay_sandbox_open(caller->id, &sandbox, NULL);
    if (!caller->failure)
        caller->failure =
            code_execute(sandbox, caller->code, strlen(caller->code), &options,
                         caller->context ? NULL : &fake, &caller->execution, NULL);
    cay_sandbox_free(sandbox);
    return NULL;
}

TEST(executions_of_several_clients_run_one_after_the_other)
{
    enum { CALLERS = 20 };
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct caller callers[CALLERS];

    execute(sandbox, "log = []");
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){
            .id = cay_sandbox_id(sandbox),
            .code = "log.append('in'); time.sleep(0.005); log.append('out')\n"
                    "say(type='stdout', text='mine')"};
        ASSERT_INT(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        ASSERT_INT(callers[i].failure, 0);
        ASSERT_STR(callers[i].execution.out, "mine");
        cay_code_execution_done(&callers[i].execution);
    }
    expect_value(sandbox, "log == ['in', 'out'] * 20", "True");
}

/* A request that stays without a reader: the connection. */
static struct code_client send_only(cay_sandbox *sandbox, const char *code)
{
    struct code_client client;
    char message[1024];
    struct code_request head = {.op = CODE_EXECUTE};

    ASSERT_OK(code_connect(&client, sandbox, NULL, "test", &err));
    int len = snprintf(message + sizeof head, sizeof message - sizeof head,
                       "%cfake%c%c\"code\":\"%s\",\"env\":{}", 0, 0, 0, code);
    head.len = (uint32_t)len;
    memcpy(message, &head, sizeof head);
    ASSERT_INT(send(client.fd, message, sizeof head + (size_t)len, MSG_NOSIGNAL),
               (ssize_t)sizeof head + len);
    return client;
}

static void list_contexts(cay_sandbox *sandbox)
{
    harness_at_end(forget);
    cay_context_infos_done(&infos);
    ASSERT_OK(cay_context_list(sandbox, NULL, &infos, &err));
}

static void wait_until_busy(cay_sandbox *sandbox, bool busy, unsigned waiting)
{
    for (int i = 0; i < PATIENCE_MS / 5; i++) {
        list_contexts(sandbox);
        if (infos.items[0].is_busy == busy && infos.items[0].waiting == waiting)
            return;
        rest_ms(5);
    }
    harness_fail(__FILE__, __LINE__, "the context does not change");
}

TEST(a_client_that_hangs_up_interrupts_its_execution_and_the_queue_goes_on)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "x = 0");
    struct code_client first = send_only(sandbox, "x += 1; time.sleep(1000)");
    wait_until_busy(sandbox, true, 0);
    struct code_client second = send_only(sandbox, "x += 10");
    struct code_client third = send_only(sandbox, "x += 100");
    wait_until_busy(sandbox, true, 2);
    code_hang_up(&second); /* it waits: its code never runs */
    wait_until_busy(sandbox, true, 1);
    code_hang_up(&first);
    wait_until_busy(sandbox, false, 0);
    code_hang_up(&third);
    expect_value(sandbox, "x", "101");
    ASSERT_STR(done.restarted, NULL);
}

TEST(waiting_executions_run_in_the_order_of_their_requests)
{
    enum { CLIENTS = 20 };
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct code_client clients[CLIENTS];
    char code[64];

    execute(sandbox, "order = []");
    struct code_client first = send_only(sandbox, "time.sleep(1000)");
    wait_until_busy(sandbox, true, 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        snprintf(code, sizeof code, "order.append(%u)", i);
        clients[i] = send_only(sandbox, code);
        wait_until_busy(sandbox, true, i + 1);
    }
    code_hang_up(&first);
    wait_until_busy(sandbox, false, 0);
    for (unsigned i = 0; i < CLIENTS; i++)
        code_hang_up(&clients[i]);
    expect_value(sandbox, "order == list(range(20))", "True");
}

TEST(an_execution_is_interrupted_if_its_client_is_killed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "x = 0");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        cay_sandbox *own = NULL;
        if (cay_sandbox_open(cay_sandbox_id(sandbox), &own, NULL) == CAY_OK)
            (void)try_code(own, NULL, "x = 1; time.sleep(1000)");
        _exit(1);
    }
    wait_until_busy(sandbox, true, 0);
    ASSERT_INT(kill(pid, SIGKILL), 0);
    ASSERT_INT(waitpid(pid, NULL, 0), pid);
    wait_until_busy(sandbox, false, 0);
    expect_value(sandbox, "x", "1");
}

TEST(a_waiting_execution_can_time_out)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options options = {.size = sizeof options, .timeout_ms = 200};

    execute(sandbox, "x = 0");
    struct code_client first = send_only(sandbox, "time.sleep(1000)");
    wait_until_busy(sandbox, true, 0);
    ASSERT_OK(try_code(sandbox, &options, "x = 1"));
    ASSERT_INT(done.status, CAY_CODE_TIMEOUT);
    ASSERT_STR(done.error_name, "TimeoutError");
    code_hang_up(&first);
    expect_value(sandbox, "x", "0");
}

/* --- Contexts --- */

static const char *default_id(cay_sandbox *sandbox)
{
    list_contexts(sandbox);
    ASSERT(infos.count > 0);
    return infos.items[0].id;
}

TEST(a_request_interrupts_restarts_or_removes_a_context)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    char id[CAY_CONTEXT_MAX];

    execute(sandbox, "x = 5");
    memcpy(id, default_id(sandbox), sizeof id);
    ASSERT(infos.items[0].is_default && infos.items[0].pid > 1);
    ASSERT_STR(infos.items[0].language, "fake");

    struct caller caller = {.id = cay_sandbox_id(sandbox), .code = "time.sleep(1000)"};
    ASSERT_INT(pthread_create(&caller.thread, NULL, call, &caller), 0);
    wait_until_busy(sandbox, true, 0);
    ASSERT_OK(cay_context_interrupt(sandbox, NULL, id, &err));
    pthread_join(caller.thread, NULL);
    ASSERT_INT(caller.execution.status, CAY_CODE_INTERRUPTED);
    cay_code_execution_done(&caller.execution);
    expect_value(sandbox, "x", "5");

    ASSERT_INT(pthread_create(&caller.thread, NULL, call, &caller), 0);
    wait_until_busy(sandbox, true, 0);
    ASSERT_OK(cay_context_restart(sandbox, NULL, id, &err));
    pthread_join(caller.thread, NULL);
    ASSERT_INT(caller.execution.status, CAY_CODE_LOST);
    ASSERT_HAS(caller.execution.error_value, "restarted");
    cay_code_execution_done(&caller.execution);
    expect_value(sandbox, "'x' in dir()", "False");
    ASSERT_STR(done.context, id);
    ASSERT_STR(done.restarted, NULL);

    ASSERT_OK(cay_context_remove(sandbox, NULL, id, &err));
    list_contexts(sandbox);
    ASSERT_INT(infos.count, 0);
    ASSERT_CODE(cay_context_restart(sandbox, NULL, id, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_context_remove(sandbox, NULL, "nobody", &err), CAY_E_NOT_FOUND);
    const struct cay_code_options options = {.size = sizeof options, .context = id};
    ASSERT_CODE(try_code(sandbox, &options, "1"), CAY_E_NOT_FOUND);
}

static int create(cay_sandbox *sandbox, const struct code_query *about, uint32_t *reason)
{
    struct code_query query = *about;
    struct code_client client;
    struct code_end end = {0};

    query.op = CODE_CREATE;
    int code = code_connect(&client, sandbox, NULL, "test", &err);
    if (!code)
        code = code_request(&client, &query, NULL, NULL, NULL, &end, &err);
    code_hang_up(&client);
    *reason = end.reason;
    return code;
}

TEST(an_interpreter_that_cannot_start_is_an_error)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const unsigned long none = 0;
    struct code_language bad = {.argv = {"no-such-interpreter"}, .loader = {"", &none}};
    struct code_query query = {.language = "bad", .driver = &bad};
    uint32_t reason;

    ASSERT_OK(create(sandbox, &query, &reason));
    ASSERT_INT(reason, CODE_NO_EXEC);
    bad.argv[0] = "false";
    query.language = "worse";
    ASSERT_OK(create(sandbox, &query, &reason));
    ASSERT_INT(reason, CODE_NO_START);
    query = (struct code_query){.language = "fake", .driver = &fake, .cwd = "/no/where"};
    ASSERT_OK(create(sandbox, &query, &reason));
    ASSERT_INT(reason, CODE_NO_CWD);
    list_contexts(sandbox);
    ASSERT_INT(infos.count, 0);
    ASSERT_CODE(cay_context_create(
                    sandbox,
                    &(struct cay_context_options){
                        .size = sizeof(struct cay_context_options), .language = "pyhton"},
                    &(struct cay_context_info){0}, &err),
                CAY_E_UNSUPPORTED);
    ASSERT_HAS(err.hint, "python");
}

static const char slow_source[] = "sleep 1000";
static const unsigned long slow_size = sizeof slow_source - 1;
static const struct code_language slow = {.argv = {"sh", "-c"},
                                          .loader = {slow_source, &slow_size}};

static void wait_until_slow_is_gone(cay_sandbox *sandbox)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        list_contexts(sandbox);
        run(sandbox, "pgrep -x sleep");
        if (infos.count == 0 && result.exit_code == 1)
            return;
        rest_ms(10);
    }
    harness_fail(__FILE__, __LINE__, "the context is still there");
}

TEST(a_context_that_never_gets_ready_ends_with_its_timeout)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct code_query query = {
        .language = "slow", .driver = &slow, .timeout_ms = 300};
    uint32_t reason;

    ASSERT_OK(create(sandbox, &query, &reason));
    ASSERT_INT(reason, CODE_EXPIRED);
    wait_until_slow_is_gone(sandbox);
}

static void send_raw(struct code_client *client, cay_sandbox *sandbox,
                     const struct code_request *head, const char *strings)
{
    ASSERT_OK(code_connect(client, sandbox, NULL, "test", &err));
    ASSERT_INT(send(client->fd, head, sizeof *head, MSG_NOSIGNAL), sizeof *head);
    ASSERT_INT(send(client->fd, strings, head->len, MSG_NOSIGNAL), head->len);
}

/* Its id is not known to its client, but to others: their executions wait. */
TEST(a_context_whose_client_hangs_up_too_early_is_removed)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct code_query query = {
        .language = "slow", .driver = &slow, .timeout_ms = 1};
    const struct code_request head = {.op = CODE_CREATE, .len = 7};
    struct code_client client;
    struct caller callers[2];
    char id[CODE_NAME_MAX];
    uint32_t reason;

    ASSERT_OK(create(sandbox, &query, &reason)); /* the service has the driver */
    wait_until_slow_is_gone(sandbox);
    send_raw(&client, sandbox, &head, "\0slow\0");
    while (infos.count == 0)
        list_contexts(sandbox);
    memcpy(id, infos.items[0].id, sizeof id);
    for (int i = 0; i < 2; i++) {
        callers[i] =
            (struct caller){.id = cay_sandbox_id(sandbox), .context = id, .code = "1"};
        ASSERT_INT(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    wait_until_busy(sandbox, false, 3);
    code_hang_up(&client);
    for (int i = 0; i < 2; i++) {
        pthread_join(callers[i].thread, NULL);
        ASSERT_INT(callers[i].failure, 0);
        ASSERT_STR(callers[i].execution.error_name, "ContextRemoved");
        cay_code_execution_done(&callers[i].execution);
    }
    wait_until_slow_is_gone(sandbox);
}

TEST(more_contexts_than_the_limit_are_refused)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    static const char text[] = "echo '{\"type\":\"ready\"}' >&3; exec sleep 1000";
    static const unsigned long len = sizeof text - 1;
    const struct code_language cheap = {.argv = {"sh", "-c"}, .loader = {text, &len}};
    const struct code_query query = {.language = "cheap", .driver = &cheap};
    uint32_t reason = 0;

    /* Each event is a context, which this client does not expect: so do not read it. */
    for (int i = 0; i < 1000 && reason != CODE_TOO_MANY; i++)
        if (create(sandbox, &query, &reason) != CAY_OK)
            ASSERT_INT(err.code, CAY_E_PROTOCOL);
    ASSERT_INT(reason, CODE_TOO_MANY);
    list_contexts(sandbox);
    ASSERT_INT(infos.count, CODE_CONTEXTS_MAX);
}

/* --- Hostile drivers and clients --- */

/* It has joined the process group of the service. */
TEST(an_interpreter_that_leaves_its_process_group_is_killed)
{
    static const char leave[] = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                                "os.setpgid(0, os.getpgid(os.getppid()))\n"
                                "say(type='stdout', text='left')\n"
                                "while True: time.sleep(1000)";
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options options = {.size = sizeof options, .timeout_ms = 500};

    ASSERT_OK(try_code(sandbox, &options, leave));
    ASSERT_STR(done.out, "left");
    ASSERT_INT(done.status, CAY_CODE_TIMEOUT);
    ASSERT_HAS(done.error_value, "did not react to the interrupt and was killed");
    expect_value(sandbox, "1", "1");
}

TEST(bytes_of_a_hostile_driver_are_survived)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "raw(b'\\xff\\xfe\\n{\\n[]\\n\\n\"x\"\\n{\"type\":1}\\nnull\\n')\n"
                     "raw(b'{\"type\":\"stdout\",\"text\":{}}\\n')\n"
                     "raw(b'{\"type\":\"stdout\",\"text\":\"\\xff\"}\\n')\n"
                     "raw(b'{\"type\":\"result\",\"data\":{\"image/png\":\"!\"}}\\n')\n"
                     "raw(b'{\"type\":\"done\",\"id\":99999}\\n')\n"
                     "raw(b'[' * 100000 + b'\\n')\n"
                     "say(type='stdout', text='a\\0b')\n");
    ASSERT_MEM(done.out, done.out_len, "a\0b", 3);
    ASSERT_INT(done.values_dropped, 1);
    /* The end of the execution, forged: the rest is dropped. */
    execute(sandbox, "raw(b'{\"type\":\"done\",\"id\":2}\\n'); time.sleep(0.05)\n"
                     "raw(b'half of a li')\n");
    ASSERT_INT(done.status, CAY_CODE_SUCCESS);
    execute(sandbox, "say(type='stdout', text='end of the line')");
    expect_value(sandbox, "2", "2");
}

TEST(an_interpreter_that_closes_its_channel_is_an_error_that_says_so)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "os.closerange(3, 64); time.sleep(1000)");
    ASSERT_INT(done.status, CAY_CODE_LOST);
    ASSERT_HAS(done.error_value, "closed its connection");
    expect_value(sandbox, "1", "1");
    ASSERT_HAS(done.restarted, "closed its connection");
}

/* The end of the channel is that of the interpreter: the next one is not killed for it.
 */
TEST(an_interpreter_outlives_the_end_of_the_one_before)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "import threading\n"
                     "threading.Timer(0.05, lambda: os._exit(3)).start()");
    do
        list_contexts(sandbox);
    while (infos.items[0].pid);
    execute(sandbox, "time.sleep(2)");
    ASSERT_INT(done.status, CAY_CODE_SUCCESS);
    ASSERT_HAS(done.restarted, "exited with status 3");
}

TEST(a_line_that_is_too_long_is_dropped)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "for i in range(36): raw(b'x' * (1 << 20))\n"
                     "raw(b'\\n'); say(type='stdout', text='after')");
    ASSERT_STR(done.out, "after");
    ASSERT_INT(done.values_dropped, 1);
    execute(sandbox, "say(type='result', data={'text/plain': 'x' * (20 << 20)})");
    ASSERT_INT(done.value_count, 1);
    ASSERT_INT(done.values[0].parts[0].len, 20 << 20);
}

TEST(a_flood_of_output_ends_with_the_timeout)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options options = {
        .size = sizeof options, .timeout_ms = 1000, .output_limit = 1000};

    ASSERT_OK(try_code(sandbox, &options, "while True: os.write(1, b'x' * 65536)"));
    ASSERT_INT(done.status, CAY_CODE_TIMEOUT);
    ASSERT_INT(done.out_len, 1000);
    ASSERT(done.out_dropped > 0);
    expect_value(sandbox, "1", "1");
    ASSERT_STR(done.restarted, NULL);
}

TEST(malformed_requests_end_only_their_connection)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct code_request bad[] = {
        {.op = 99, .len = 10},
        {.op = CODE_EXECUTE, .len = UINT32_MAX},
        {.op = CODE_LIST, .len = 10, .words = UINT32_MAX},
        {.op = CODE_DRIVER, .len = 10},
        {.op = CODE_EXECUTE, .len = 2},
        {.op = CODE_CREATE, .len = 16 << 20},
    };

    execute(sandbox, "x = 1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct code_client client;
        char rest[16] = "xxxxxxxxxxxxxxx";
        ASSERT_OK(code_connect(&client, sandbox, NULL, "test", &err));
        ASSERT(send(client.fd, &bad[i], sizeof bad[i], MSG_NOSIGNAL) > 0);
        (void)send(client.fd, rest, sizeof rest, MSG_NOSIGNAL);
        struct pollfd end = {.fd = client.fd, .events = POLLIN};
        ASSERT_INT(poll(&end, 1, PATIENCE_MS), 1);
        ASSERT(recv(client.fd, rest, sizeof rest, MSG_DONTWAIT) <= 0);
        code_hang_up(&client);
    }
    expect_value(sandbox, "x", "1");
}

TEST(a_service_that_was_killed_is_started_again)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);

    execute(sandbox, "x = 1");
    int failure = try_code(sandbox, NULL, "os.kill(os.getppid(), 9); time.sleep(1000)");
    ASSERT_INT(failure, CAY_E_KILLED);
    expect_value(sandbox, "'x' in dir()", "False");
    ASSERT_HAS(done.restarted, "serves code contexts in the sandbox has ended");
    expect_value(sandbox, "1", "1");
    ASSERT_STR(done.restarted, NULL);
    /* No interpreter outlives its service. */
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        run(sandbox, "pgrep -c python3");
        if (strcmp(result.out, "1\n") == 0)
            return;
        rest_ms(10);
    }
    harness_fail(__FILE__, __LINE__, "%s interpreters", result.out);
}

TEST(contexts_of_two_users_are_separate)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const struct cay_code_options root = {
        .size = sizeof root, .user = "root", .language = "fake"};

    execute(sandbox, "x = 1");
    ASSERT_OK(try_code(sandbox, &root,
                       "say(type='stdout', text=str((os.getuid(), 'x' in dir())))"));
    ASSERT_STR(done.out, "(0, False)");
    const struct cay_code_options other = {
        .size = sizeof other, .user = "nobody-here", .language = "fake"};
    ASSERT_CODE(try_code(sandbox, &other, "1"), CAY_E_NOT_FOUND);
}

/* 16 users at a time may have a service; users whose service has ended do not count. */
TEST(services_that_have_ended_make_room_for_other_users)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    const char *const argv[] = {"pkill", "-9", "-f", "^" CODE_PROGRAM "$", NULL};
    char user[16];

    for (int uid = 2000; uid < 2040; uid++) {
        snprintf(user, sizeof user, "%d", uid);
        ASSERT_OK(cay_context_list(sandbox, user, &infos, &err));
        cay_context_infos_done(&infos);
        const struct cay_exec_options kill = {
            .size = sizeof kill, .user = user, .argv = argv, .timeout_ms = PATIENCE_MS};
        struct cay_exec_result killed = {0};
        ASSERT_OK(cay_sandbox_exec(sandbox, &kill, &killed, &err));
        cay_exec_done(&killed);
    }
}

TEST(contexts_pause_with_the_sandbox_and_are_listed_as_processes)
{
    AUTO(cay_sandbox) sandbox = make_sandbox(NULL);
    struct cay_process_info *processes = NULL;
    size_t count = 0, found = 0;

    execute(sandbox, "x = 1");
    ASSERT_OK(cay_process_list(sandbox, &processes, &count, &err));
    for (size_t i = 0; i < count; i++)
        found += strstr(processes[i].command, CODE_PROGRAM) == processes[i].command ||
                 strstr(processes[i].command, "python3") != NULL;
    cay_free(processes);
    ASSERT_INT(found, 2);
    int paused = cay_sandbox_pause(sandbox, &err);
    if (paused == CAY_E_UNSUPPORTED)
        return;
    ASSERT_INT(paused, CAY_OK);
    ASSERT_CODE(try_code(sandbox, NULL, "1"), CAY_E_BUSY);
    ASSERT_OK(cay_sandbox_resume(sandbox, &err));
    expect_value(sandbox, "x", "1");
}
