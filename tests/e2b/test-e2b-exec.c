/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that the caller waits for: failures of the connection and the server, which
 * the conformance suite cannot cause. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "peer.h"

static void expect_start(const char *envelopes)
{
    (void)peer_request("{\"rule\": {\"on\": \"POST /process.Process/Start\", "
                       "\"envelopes\": [%s]}}",
                       envelopes);
}

#define MESSAGE(json) "[0, \"" json "\"]"
#define START         MESSAGE("{\\\"event\\\":{\\\"start\\\":{\\\"pid\\\":7}}}")
#define END           MESSAGE("{\\\"event\\\":{\\\"end\\\":{\\\"exited\\\":true}}}")
#define OUT(base64)                                                                      \
    MESSAGE("{\\\"event\\\":{\\\"data\\\":{\\\"stdout\\\":\\\"" base64 "\\\"}}}")
#define TRAILER "[2, \"{}\"]"
#define REFUSAL(code, message)                                                           \
    "[2, \"{\\\"error\\\":{\\\"code\\\":\\\"" code "\\\",\\\"message\\\":\\\"" message   \
    "\\\"}}\"]"

/* --- Streams --- */

WITH_PEER(stream_events_become_the_result)
{
    void *box = make_box(NULL);

    expect_start(
        START
        "," OUT("aGk=") "," MESSAGE("{\\\"event\\\":{\\\"keepalive\\\":{}}}") "," MESSAGE(
            "{\\\"later\\\":1}") "," OUT("") "," OUT("Cg==") "," END "," TRAILER);
    ASSERT_OK(run_script(box, "true", 0, &err));
    ASSERT_STR(result.out, "hi\n");
    ASSERT_INT(result.exit_code, 0);
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
}

WITH_PEER(stream_without_trailer_is_valid_after_the_end_event)
{
    void *box = make_box(NULL);

    expect_start(START "," END);
    ASSERT_OK(run_script(box, "true", 0, &err));
    ASSERT_INT(result.cause, CAY_CAUSE_EXITED);
}

WITH_PEER(malformed_streams_are_refused)
{
    static const char *const streams[] = {
        "",
        TRAILER,
        START,
        START "," TRAILER,
        START "," OUT("aGk="),
        OUT("aGk=") "," END,
        END,
        START "," START "," END,
        START "," OUT("!!!!") "," END,
        START "," OUT("aGk") "," END,
        "[1, \"{}\"]",
        "[128, \"{}\"]",
        START ",[1, \"{}\"]",
        MESSAGE(""),
        MESSAGE("[]"),
        MESSAGE("{\\\"event\\\":7}"),
        MESSAGE("{\\\"event\\\":{\\\"start\\\":{}}}"),
        MESSAGE("{\\\"event\\\":{\\\"start\\\":{\\\"pid\\\":-1}}}"),
        MESSAGE("{\\\"event\\\":{\\\"start\\\":{\\\"pid\\\":99999999999}}}"),
        MESSAGE("{\\\"event\\\":{\\\"start\\\":{\\\"pid\\\":\\\"x\\\"}}}"),
        START "," MESSAGE("{\\\"event\\\":{\\\"data\\\":[]}}"),
        START "," MESSAGE("{\\\"event\\\":{\\\"data\\\":{\\\"stdout\\\":1}}}"),
        START "," MESSAGE("{\\\"event\\\":{\\\"end\\\":true}}"),
        START "," MESSAGE("{\\\"event\\\":{\\\"end\\\":{\\\"exitCode\\\":-7}}}"),
        START ",[2, \"no\"]",
        START ",[2, \"{\\\"error\\\":1}\"]",
        START "," REFUSAL("internal", "x"),
    };
    void *box = make_box("max_retries: 0\n");

    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        expect_start(streams[i]);
        int code = run_script(box, "true", 0, &err);
        if (code != CAY_E_PROTOCOL)
            harness_fail(__FILE__, __LINE__, "%s is %d", streams[i], code);
        ASSERT(*err.hint && *err.message);
    }
    ASSERT_STR(output_of(box, "echo and on it goes"), "and on it goes");
}

/* "HTTP/1.1 200 OK", chunked, and a message of 4 GiB less one byte. */
WITH_PEER(message_of_a_stream_has_a_size_limit)
{
    void *box = make_box("max_retries: 0\n");

    (void)peer_request(
        "{\"rule\": {\"on\": \"POST /process.Process/Start\", \"raw\": "
        "\"SFRUUC8xLjEgMjAwIE9LDQpDb250ZW50LUxlbmd0aDogMTAwMA0KDQoA/////w==\"}}");
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_PROTOCOL);
    ASSERT_HAS(err.message, "length");
}

/* Wherever the connection breaks, the command runs at most once, and the caller gets a
 * complete result or an error. */
WITH_PEER(broken_stream_gives_no_result_and_no_second_run)
{
    void *box = make_box("max_retries: 3\n");
    bool whole = false;

    for (int cut = 0; !whole; cut += cut < 100 ? 7 : 3) {
        ASSERT(cut < 3000);
        (void)output_of(box, "rm -f runs");
        (void)peer_request("{\"rule\": {\"on\": \"POST /process.Process/Start\", "
                           "\"cut\": %d}}",
                           cut);
        int code = run_script(box, "echo once >> runs; echo out; exit 3", 0, &err);
        whole = code == CAY_OK;
        if (whole) {
            ASSERT_STR(result.out, "out\n");
            ASSERT_INT(result.exit_code, 3);
        } else {
            ASSERT_INT(code, CAY_E_PROTOCOL);
        }
        /* The client kills the command, perhaps before it wrote the file. */
        const char *runs = output_of(box, "cat runs 2>/dev/null || :");
        ASSERT(strcmp(runs, "once") == 0 || (!whole && !*runs));
    }
}

WITH_PEER(start_that_had_no_effect_is_retried)
{
    void *box = make_box("max_retries: 2\n");

    (void)peer_request(
        "{\"rule\": {\"on\": \"POST /process.Process/Start\", \"status\": 429, "
        "\"headers\": {\"Retry-After\": \"0\"}, \"times\": 2}}");
    ASSERT_STR(output_of(box, "echo x >> runs; cat runs"), "x");
}

WITH_PEER(start_that_may_have_had_effect_is_not_retried)
{
    static const char *const rules[] = {"\"status\": 503", "\"status\": 500",
                                        "\"close\": true"};
    static const int codes[] = {CAY_E_UNAVAILABLE, CAY_E_UNAVAILABLE, CAY_E_PROTOCOL};
    void *box = make_box("max_retries: 3\n");

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        (void)peer_request("{\"rule\": {\"on\": \"POST /process.Process/Start\", %s}}",
                           rules[i]);
        ASSERT_CODE(run_script(box, "echo x >> runs", 0, &err), codes[i]);
    }
    ASSERT_STR(output_of(box, "test -e runs || echo none"), "none");
}

/* --- Refusals --- */

WITH_PEER(failed_exec_is_a_result)
{
    static const struct {
        const char *trailer;
        int error, exit_code;
    } all[] = {
        {REFUSAL("not_found", ""), ENOENT, 127},
        {REFUSAL("unknown", "fork/exec /x: no such file or directory"), ENOENT, 127},
        {REFUSAL("internal", "fork/exec /x: permission denied"), EACCES, 126},
        {REFUSAL("invalid_argument", "cwd '/x' does not exist"), ENOENT, 127},
        {REFUSAL("unknown", "fork/exec /x: exec format error"), ENOEXEC, 126},
    };
    void *box = make_box(NULL);

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        expect_start(all[i].trailer);
        ASSERT_OK(run_script(box, "true", 0, &err));
        ASSERT_INT(result.cause, CAY_CAUSE_NOT_STARTED);
        ASSERT_INT(result.exec_errno, all[i].error);
        ASSERT_INT(result.exit_code, all[i].exit_code);
        ASSERT_INT(result.out_len + result.error_len, 0);
    }
}

WITH_PEER(other_refusals_are_errors)
{
    void *box = make_box("max_retries: 0\n");

    expect_start(REFUSAL("resource_exhausted", "too many"));
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_LIMIT);
    expect_start(REFUSAL("unimplemented", ""));
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_UNSUPPORTED);
    expect_start(REFUSAL("unauthenticated", ""));
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_DENIED);
    (void)peer_request("{\"rule\": {\"on\": \"POST /process.Process/Start\", "
                       "\"status\": 401, \"body\": \"{\\\"code\\\": 401}\"}}");
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_DENIED);
}

static int run_words(void *box, const char *const *argv, const char *user,
                     const char *cwd)
{
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = user, .cwd = cwd};

    cay_exec_done(&result);
    return backend_e2b.exec(box, &options, &result, &err);
}

WITH_PEER(missing_program_did_not_start)
{
    static const char *const paths[] = {"/no/such/program", "no-such-program", "./none"};
    void *box = make_box(NULL);

    for (size_t i = 0; i < 3; i++) {
        const char *const argv[] = {paths[i], NULL};
        ASSERT_OK(run_words(box, argv, NULL, NULL));
        ASSERT_INT(result.cause, CAY_CAUSE_NOT_STARTED);
        ASSERT_INT(result.exec_errno, ENOENT);
        ASSERT_INT(result.exit_code, 127);
        ASSERT_INT(result.error_len, 0);
    }
    const char *const directory[] = {"/tmp", NULL}, *const file[] = {"./plain", NULL};
    (void)output_of(box, "echo > plain");
    ASSERT_OK(run_words(box, directory, NULL, NULL));
    ASSERT_INT(result.exec_errno, EACCES);
    ASSERT_OK(run_words(box, file, NULL, NULL));
    ASSERT_INT(result.exec_errno, EACCES);
    ASSERT_INT(result.exit_code, 126);
}

WITH_PEER(command_of_an_unknown_user_fails)
{
    void *box = make_box(NULL);
    const char *const argv[] = {"true", NULL};

    ASSERT_CODE(run_words(box, argv, "no-such-user", NULL), CAY_E_NOT_FOUND);
    ASSERT_CODE(run_words(box, argv, "\xff", NULL), CAY_E_UNSUPPORTED);
    ASSERT_CODE(run_words(box, argv, NULL, "\xff"), CAY_E_UNSUPPORTED);
    ASSERT_CODE(run_words(box, argv, NULL, "no/such/directory"), CAY_E_NOT_FOUND);
}

WITH_PEER(user_can_be_given_by_number)
{
    void *box = make_box(NULL);
    const char *const argv[] = {"sh", "-c", "echo $USER", NULL};

    ASSERT_OK(run_words(box, argv, "1", NULL));
    ASSERT_STR(result.out, "daemon\n");
    ASSERT_CODE(run_words(box, argv, "4294967294", NULL), CAY_E_NOT_FOUND);
}

WITH_PEER(last_variable_of_a_name_is_used)
{
    const char *const argv[] = {"sh", "-c", "printf '[%s][%s]' \"$A\" \"$B\"", NULL};
    const char *const env[] = {"A=1", "B=\xc3\xa9\n", "A=last", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .env = env};
    const char *const bad[] = {"NONAME", NULL};
    struct cay_exec_options other = options;
    void *box = make_box(NULL);

    ASSERT_OK(backend_e2b.exec(box, &options, &result, &err));
    ASSERT_STR(result.out, "[last][\xc3\xa9\n]");
    other.env = bad;
    ASSERT_CODE(backend_e2b.exec(box, &other, &result, &err), CAY_E_INVALID);
}

WITH_PEER(arguments_and_variables_that_are_not_utf8_are_refused_before_a_request)
{
    const char *const words[] = {"echo", "\xff", NULL}, *const program[] = {"\xff", NULL};
    const char *const fine[] = {"true", NULL}, *const env[] = {"A=\xff", NULL};
    struct cay_exec_options options = {.size = sizeof options, .argv = fine, .env = env};
    void *box = make_box(NULL);

    ASSERT_CODE(run_words(box, words, NULL, NULL), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "argv");
    ASSERT(strstr(err.hint, "UTF-8"));
    ASSERT_CODE(run_words(box, program, NULL, NULL), CAY_E_UNSUPPORTED);
    ASSERT_CODE(backend_e2b.exec(box, &options, &result, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(err.subject, "env");
    ASSERT_INT(count_requests("POST /process.Process/Start"), 0);
}

/* --- Ends --- */

WITH_PEER(commands_end_with_their_sandbox)
{
    void *box = make_box("status_after_run: stop\npersist_sandbox: false\n"
                         "keepalive_interval: 0\n");

    ASSERT_OK(backend_e2b.set_ttl(box, 1000, &err));
    ASSERT_OK(run_script(box, "echo before; sleep 86400", 0, &err));
    ASSERT_INT(result.cause, CAY_CAUSE_GONE);
    ASSERT_INT(result.exit_code, 128 + SIGKILL);
    ASSERT_STR(result.out, "before\n");
}

WITH_PEER(commands_survive_a_pause_of_their_sandbox)
{
    void *box = make_box("keepalive_interval: 0\n");

    ASSERT_OK(backend_e2b.set_ttl(box, 1000, &err));
    ASSERT_CODE(run_script(box, "echo before; sleep 86400", 0, &err), CAY_E_BUSY);
    ASSERT_HAS(err.message, "paused");
}

/* The server does not reply. */
WITH_PEER(timeout_covers_the_start_of_a_command)
{
    void *box = make_box("max_retries: 0\n");

    (void)peer_request("{\"rule\": {\"on\": \"POST /process.Process/Start\", "
                       "\"delay\": 1.0}}");
    ASSERT_OK(run_script(box, "echo x > ran; sleep 86400", 100, &err));
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_INT(result.exit_code, 124);
    ASSERT(result.wall_us < 60000000);
    await_silence();
}

WITH_PEER(timeout_of_the_server_is_a_timeout)
{
    void *box = make_box("max_retries: 0\n");

    expect_start(START "," OUT("aGk=") "," REFUSAL("deadline_exceeded", ""));
    ASSERT_OK(run_script(box, "true", 60000, &err));
    ASSERT_INT(result.cause, CAY_CAUSE_TIMEOUT);
    ASSERT_STR(result.out, "hi");
}

WITH_PEER(lost_input_is_an_error)
{
    const char *const argv[] = {"cat", NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .input = "hello",
                                             .input_len = 5,
                                             .timeout_ms = 60000};
    static const char *const rules[] = {"\"close\": true", "\"status\": 503"};
    static const int codes[] = {CAY_E_PROTOCOL, CAY_E_UNAVAILABLE};
    void *box = make_box("max_retries: 3\n");

    for (size_t i = 0; i < 2; i++) {
        (void)peer_request(
            "{\"rule\": {\"on\": \"POST /process.Process/SendInput\", %s}}", rules[i]);
        ASSERT_CODE(backend_e2b.exec(box, &options, &result, &err), codes[i]);
        ASSERT_INT(count_requests("POST /process.Process/SendInput"), 1);
    }
    await_silence();
}

WITH_PEER(old_envd_cannot_close_the_input)
{
    const char *const argv[] = {"cat", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .input = "x", .input_len = 1};

    (void)peer_request("{\"set\": {\"version\": \"0.3.9\"}}");
    void *box = make_box(NULL);
    (void)count_requests(".");
    ASSERT_CODE(backend_e2b.exec(box, &options, &result, &err), CAY_E_UNSUPPORTED);
    ASSERT_STR(output_of(box, "echo but this"), "but this");
    ASSERT_HAS(peer_request("{\"log\": \"POST /process.Process/Start\"}"),
               "\"Authorization\": \"Basic dXNlcjo=\"");
}

/* --- Output callbacks --- */

struct nested {
    void *box;
    char text[64];
    int code;
};

/* A callback uses the handle of its sandbox. */
static int look_meanwhile(void *cookie, int stream, const void *data, size_t len)
{
    struct nested *nested = cookie;
    struct cay_stat stat;

    (void)stream;
    if (len < sizeof nested->text)
        memcpy(nested->text, data, len);
    nested->code = backend_e2b.files->stat(nested->box, NULL, "file", false, &stat, NULL);
    return 0;
}

WITH_PEER(output_callback_may_use_the_sandbox)
{
    struct nested nested = {.box = make_box(NULL), .code = 1};
    const char *const argv[] = {"sh", "-c", "echo > file; echo now; sleep 0.1", NULL};
    const struct cay_exec_options options = {.size = sizeof options,
                                             .argv = argv,
                                             .on_output = look_meanwhile,
                                             .cookie = &nested};

    ASSERT_OK(backend_e2b.exec(nested.box, &options, &result, &err));
    ASSERT_STR(nested.text, "now\n");
    ASSERT_INT(nested.code, CAY_OK);
}
