/* SPDX-License-Identifier: Apache-2.0 */

/* Requests to the service: create, find, pause, kill, and malformed replies. */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

static const char key[] = "e2b_5ec2e7";

static int create(const char *more)
{
    void *box = NULL;
    int code = backend_e2b.create(NULL, configure(more), &box, &err);

    if (!code)
        backend_e2b.free(box);
    return code;
}

static void rest_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* No part of the error contains the key or the token. */
static void assert_no_secret(const char *secret)
{
    ASSERT(!strstr(err.message, secret) && !strstr(err.hint, secret) &&
           !strstr(err.subject, secret));
}

/* --- Create --- */

WITH_PEER(create_sends_the_configuration)
{
    void *box = make_box("template: mine\ntimeout: 77\nmetadata: {who: \"a \\\"b\\\"\"}\n"
                         "envs: {ONE: \"x y\"}\nstatus_after_run: pause\n");
    const char *all = peer_request("{\"boxes\": null}");
    ASSERT_HAS(all, "\"templateID\": \"mine\"");
    ASSERT_HAS(all, "\"timeout\": 77");
    ASSERT_HAS(all, "\"autoPause\": true");
    ASSERT_HAS(all, "\"metadata\": {\"who\": \"a \\\"b\\\"\"}");
    ASSERT_HAS(all, "\"envVars\": {\"ONE\": \"x y\"}");
    ASSERT_HAS(all, backend_e2b.id(box));
    ASSERT(!strstr(all, "secure"));
    ASSERT_STR(output_of(box, "echo $ONE"), "x y");
}

WITH_PEER(sandbox_with_status_stop_has_no_auto_pause)
{
    (void)make_box("status_after_run: stop\npersist_sandbox: false\n");
    ASSERT_HAS(peer_request("{\"boxes\": null}"), "\"autoPause\": false");
}

WITH_PEER(old_service_gets_requests_without_v2)
{
    (void)peer_request("{\"set\": {\"old\": true}}");
    void *box = make_box(NULL);
    ASSERT_HAS(peer_request("{\"boxes\": null}"), "\"secure\": true");
    ASSERT_OK(backend_e2b.pause(box, &err));
    ASSERT_OK(backend_e2b.resume(box, &err));
    ASSERT_STR(output_of(box, "echo yes"), "yes");
    ASSERT_INT(count_requests("POST /sandboxes/.*/connect"), 1);
}

WITH_PEER(working_directory_is_created)
{
    void *box = make_box("work_dir: /home/user/a b/c\n");
    ASSERT_HAS(output_of(box, "pwd"), "/home/user/a b/c");
}

/* envd reports permission denied, so root creates the directory. */
WITH_PEER(root_creates_the_working_directory_for_the_user)
{
    if (strcmp(peer_request("{\"apart\": null}"), "true") != 0)
        SKIP("commands have the host's /home");
    (void)peer_request("{\"rule\": {\"on\": \"POST /filesystem.Filesystem/MakeDir\", "
                       "\"status\": 403, \"body\": \"{\\\"code\\\": "
                       "\\\"permission_denied\\\"}\"}}");
    void *box = make_box("work_dir: /home/user/given\n");
    ASSERT_STR(output_of(box, "pwd -P"), "/home/user/given");
    ASSERT_STR(output_of(box, "test -O . && echo mine"), "mine");
}

TEST(missing_key_is_an_error_with_a_hint)
{
    cay_config *config = NULL;
    void *box = NULL;
    static const char text[] = "type: e2b\n";

    (void)unsetenv("E2B_API_KEY");
    ASSERT_OK(cay_config_parse(text, sizeof text - 1, "test", NULL, &config, &err));
    ASSERT_CODE(backend_e2b.create(NULL, config, &box, &err), CAY_E_DENIED);
    ASSERT_HAS(err.hint, "E2B_API_KEY");
    cay_config_free(config);
}

WITH_PEER(key_can_come_from_the_environment)
{
    char text[512];
    cay_config *config = NULL;
    void *box = NULL;

    ASSERT_INT(setenv("E2B_API_KEY", key, 1), 0);
    ASSERT_INT(setenv("E2B_API_URL", peer_url(), 1), 0);
    ASSERT_INT(setenv("E2B_SANDBOX_URL", peer_url(), 1), 0);
    int len = snprintf(text, sizeof text, "type: e2b\n");
    ASSERT_OK(cay_config_parse(text, (size_t)len, "test", NULL, &config, &err));
    int code = backend_e2b.create(NULL, config, &box, &err);
    cay_config_free(config);
    (void)unsetenv("E2B_API_KEY");
    (void)unsetenv("E2B_API_URL");
    (void)unsetenv("E2B_SANDBOX_URL");
    ASSERT_INT(code, CAY_OK);
    backend_e2b.free(box);
}

/* The peer repeats the key in its refusal. */
WITH_PEER(wrong_key_is_never_shown)
{
    (void)peer_request(
        "{\"rule\": {\"on\": \"POST /v2\", \"status\": 401, \"body\": "
        "\"{\\\"code\\\": 401, \\\"message\\\": \\\"bad key %s\\\\u001b[0m\\\"}"
        "\"}}",
        key);
    ASSERT_CODE(create("max_retries: 0\n"), CAY_E_DENIED);
    ASSERT_HAS(err.hint, "E2B_API_KEY");
    ASSERT_HAS(err.message, "bad key ***");
    ASSERT(!strchr(err.message, '\x1b'));
    assert_no_secret(key);
}

WITH_PEER(token_is_never_shown)
{
    (void)peer_request(
        "{\"set\": {\"reply\": {\"envdAccessToken\": \"wrong-token-77\"}}}");
    void *box = make_box(NULL);
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_DENIED);
    ASSERT_HAS(err.message, "unauthorized");
    assert_no_secret("wrong-token-77");
}

WITH_PEER(error_names_a_missing_template)
{
    ASSERT_CODE(create("template: no-such-template\n"), CAY_E_NOT_FOUND);
    ASSERT_STR(err.subject, "no-such-template");
}

TEST(urls_with_users_queries_or_odd_characters_are_refused)
{
    static const char *const urls[] = {
        "ftp://host",        "http://user:secret@host",
        "https://host/?x=1", "https://host/#x",
        "http://",           "http://ho st",
        "http://host:99999", "http://host:0",
        "http://[::1",       "http://-host",
        "http://host:80x",   "host",
    };

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        cay_config *config = NULL;
        void *box = NULL;
        char text[512];
        int len = snprintf(text, sizeof text, "type: e2b\napi_key: k\napi_url: \"%s\"\n",
                           urls[i]);
        ASSERT_OK(cay_config_parse(text, (size_t)len, "test", NULL, &config, &err));
        ASSERT_CODE(backend_e2b.create(NULL, config, &box, &err), CAY_E_INVALID);
        ASSERT_STR(err.subject, "api_url");
        assert_no_secret("secret");
        cay_config_free(config);
    }
}

WITH_PEER(host_name_is_looked_up_without_a_thread)
{
    int tasks = 0;

    char text[512];
    cay_config *config = NULL;
    void *box = NULL;
    int len = snprintf(text, sizeof text,
                       "type: e2b\napi_url: http://localhost%s\ndomain: localhost%s\n"
                       "force_http: true\napi_key: %s\n",
                       strrchr(peer_url(), ':'), strrchr(peer_url(), ':'), key);
    ASSERT_OK(cay_config_parse(text, (size_t)len, "test", NULL, &config, &err));
    int code = backend_e2b.create(NULL, config, &box, &err);
    cay_config_free(config);
    ASSERT_INT(code, CAY_OK);
    code = run_script(box, "echo at 49983-ID.localhost", 0, &err);
    DIR *directory = opendir("/proc/self/task");
    while (directory && readdir(directory))
        tasks++;
    closedir(directory);
    backend_e2b.free(box);
    ASSERT_INT(code, CAY_OK);
    ASSERT_INT(tasks, 3); /* ".", ".." and us */
}

/* --- Retries --- */

WITH_PEER(status_429_is_retried_after_the_given_time)
{
    struct timespec begin, end;

    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 429, "
                       "\"headers\": {\"Retry-After\": \"1\"}}}");
    clock_gettime(CLOCK_MONOTONIC, &begin);
    ASSERT_OK(create("max_retries: 1\n"));
    clock_gettime(CLOCK_MONOTONIC, &end);
    ASSERT(end.tv_sec - begin.tv_sec >= 1 || end.tv_nsec > begin.tv_nsec);
    ASSERT_INT(count_requests("POST /v2/sandboxes"), 2);
}

WITH_PEER(request_does_not_wait_for_a_long_retry_after)
{
    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 429, "
                       "\"headers\": {\"Retry-After\": \"3600\"}}}");
    ASSERT_CODE(create("max_retries: 5\n"), CAY_E_LIMIT);
    ASSERT_INT(count_requests("POST /v2/sandboxes"), 1);
}

/* The first number of seconds overflows to a few milliseconds. */
WITH_PEER(retry_after_does_not_overflow)
{
    static const char *const seconds[] = {"18446744073709552", "9223372036854775807",
                                          "99999999999999999999999"};

    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 429, "
                           "\"headers\": {\"Retry-After\": \"%s\"}}}",
                           seconds[i]);
        ASSERT_CODE(create("max_retries: 5\n"), CAY_E_LIMIT);
        ASSERT_INT(count_requests("POST /v2/sandboxes"), 1);
    }
}

WITH_PEER(request_that_may_have_had_effect_is_not_retried)
{
    static const char *const rules[] = {"\"status\": 503", "\"status\": 502",
                                        "\"status\": 500", "\"close\": true",
                                        "\"lose\": true"};
    static const int codes[] = {CAY_E_UNAVAILABLE, CAY_E_UNAVAILABLE, CAY_E_UNAVAILABLE,
                                CAY_E_PROTOCOL, CAY_E_PROTOCOL};

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", %s}}", rules[i]);
        ASSERT_CODE(create("max_retries: 3\n"), codes[i]);
        ASSERT_INT(count_requests("POST /v2/sandboxes"), 1);
    }
}

WITH_PEER(should_retry_of_the_service_is_obeyed)
{
    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 503, "
                       "\"headers\": {\"Should-Retry\": \"true\"}}}");
    ASSERT_OK(create("max_retries: 1\n"));
    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 429, "
                       "\"headers\": {\"Should-Retry\": \"false\"}}}");
    ASSERT_CODE(create("max_retries: 1\n"), CAY_E_LIMIT);
}

/* libcurl by itself sends a request again if a kept connection turns out to be closed. */
WITH_PEER(closed_connection_does_not_repeat_a_request)
{
    void *box = make_box("max_retries: 3\n");
    ASSERT_STR(output_of(box, "echo one >> runs; cat runs"), "one");
    (void)peer_request("{\"rule\": {\"on\": \"POST /process.Process/Start\", \"lose\": "
                       "true}}");
    (void)count_requests(".");
    ASSERT_CODE(run_script(box, "echo two >> runs", 0, &err), CAY_E_PROTOCOL);
    ASSERT_STR(output_of(box, "grep -c two runs"), "1");
}

WITH_PEER(repeatable_requests_are_retried)
{
    static const char *const rules[] = {"\"status\": 503", "\"status\": 502",
                                        "\"close\": true", "\"cut\": 40"};
    enum cay_state state;

    void *box = make_box("max_retries: 1\n");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        (void)peer_request("{\"rule\": {\"on\": \"GET /sandboxes\", %s}}", rules[i]);
        ASSERT_OK(backend_e2b.state(box, &state, &err));
        ASSERT_INT(state, CAY_STATE_RUNNING);
        ASSERT_INT(count_requests("GET /sandboxes"), 2);
    }
    (void)peer_request("{\"rule\": {\"on\": \"GET /sandboxes\", \"status\": 503, "
                       "\"times\": 2}}");
    ASSERT_CODE(backend_e2b.state(box, &state, &err), CAY_E_UNAVAILABLE);
}

WITH_PEER(refused_connection_is_reported)
{
    (void)configure(NULL);
    cay_config *config = NULL;
    void *box = NULL;
    static const char text[] = "type: e2b\napi_key: k\napi_url: http://127.0.0.1:1\n"
                               "max_retries: 1\n";
    ASSERT_OK(cay_config_parse(text, sizeof text - 1, "test", NULL, &config, &err));
    ASSERT_CODE(backend_e2b.create(NULL, config, &box, &err), CAY_E_UNAVAILABLE);
    ASSERT_HAS(err.hint, "api_url");
    cay_config_free(config);
}

/* --- Malformed replies --- */

WITH_PEER(redirections_are_not_followed)
{
    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 307, "
                       "\"headers\": {\"Location\": \"%s/elsewhere\"}}}",
                       peer_url());
    ASSERT_CODE(create(NULL), CAY_E_PROTOCOL);
    ASSERT_INT(count_requests(".*elsewhere"), 0);
}

WITH_PEER(malformed_replies_are_refused)
{
    static const char *const bodies[] = {
        "",
        "not JSON",
        "[]",
        "{}",
        "{\\\"sandboxID\\\": 7}",
        "{\\\"sandboxID\\\": \\\"\\\"}",
        "{\\\"sandboxID\\\": \\\"../x\\\"}",
        "{\\\"sandboxID\\\": \\\"a b\\\"}",
        "{\\\"sandboxID\\\": \\\"x\\\", \\\"envdAccessToken\\\": \\\"a\\\\nX:\\\"}",
        "{\\\"sandboxID\\\": \\\"x\\\", \\\"envdAccessToken\\\": \\\"\\\\u00e9\\\"}",
    };

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 201, "
                           "\"body\": \"%s\"}}",
                           bodies[i]);
        ASSERT_CODE(create(NULL), CAY_E_PROTOCOL);
    }
}

WITH_PEER(sandbox_with_an_invalid_domain_is_killed)
{
    static const char *const domains[] = {"evil.com/x", "a@b", "x y", "e:80:90", "-x"};

    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        cay_config *config = NULL;
        void *box = NULL;
        char text[512];
        (void)peer_request("{\"set\": {\"reply\": {\"domain\": \"%s\"}}}", domains[i]);
        int len = snprintf(text, sizeof text, "type: e2b\napi_url: %s\napi_key: %s\n",
                           peer_url(), key);
        ASSERT_OK(cay_config_parse(text, (size_t)len, "test", NULL, &config, &err));
        ASSERT_CODE(backend_e2b.create(NULL, config, &box, &err), CAY_E_PROTOCOL);
        cay_config_free(config);
        ASSERT_STR(peer_request("{\"boxes\": null}"), "{}");
    }
}

WITH_PEER(reply_has_a_size_limit)
{
    (void)peer_request(
        "{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"large\": 3000000}}");
    ASSERT_CODE(create(NULL), CAY_E_PROTOCOL);
    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 201, "
                       "\"headers\": {\"X-A\": \"%060000d\", \"X-B\": \"%060000d\"}}}",
                       1, 2);
    ASSERT_CODE(create(NULL), CAY_E_PROTOCOL);
    (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"status\": 400, "
                       "\"body\": \"%0100000d\"}}",
                       1);
    ASSERT_CODE(create(NULL), CAY_E_INVALID);
}

/* Parts of "HTTP/1.1 200 OK", and bytes that are not HTTP. */
WITH_PEER(reply_that_is_not_http_is_refused)
{
    static const char *const raw[] = {
        "", "AAECAwQ=", "aGVsbG8NCg0K", "SFRUUC8xLjEg", "SFRUUC8xLjEgMjAwIE9LDQpD",
    };

    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        (void)peer_request(
            "{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"raw\": \"%s\"}}", raw[i]);
        ASSERT_CODE(create(NULL), CAY_E_PROTOCOL);
    }
}

WITH_PEER(incomplete_reply_is_refused)
{
    const cay_config *config;

    config = configure("max_retries: 0\n");
    for (int cut = 0;; cut++) {
        void *box = NULL;
        (void)peer_request("{\"rule\": {\"on\": \"POST /v2/sandboxes\", \"cut\": %d}}",
                           cut);
        int code = backend_e2b.create(NULL, config, &box, &err);
        if (!code) { /* the complete reply */
            backend_e2b.free(box);
            ASSERT(cut > 200);
            return;
        }
        ASSERT_INT(code, CAY_E_PROTOCOL);
        ASSERT(cut < 2000 && *err.hint);
    }
}

/* --- Lifetime --- */

WITH_PEER(sandbox_is_found_by_its_exact_id)
{
    static const char *const ids[] = {"inosuchsandbox", "", "../x", "a b", "a/b", "%41"};
    void *other = NULL;

    void *box = make_box(NULL);
    const cay_config *config = configure(NULL);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ASSERT_CODE(backend_e2b.connect(NULL, config, ids[i], &other, &err),
                    CAY_E_NOT_FOUND);
    ASSERT_OK(backend_e2b.connect(NULL, config, backend_e2b.id(box), &other, &err));
    ASSERT_STR(backend_e2b.id(other), backend_e2b.id(box));
    backend_e2b.free(other);
}

WITH_PEER(requests_to_a_paused_sandbox_fail)
{
    struct cay_stat stat;
    enum cay_state state;

    void *box = make_box(NULL);
    ASSERT_OK(backend_e2b.pause(box, &err));
    ASSERT_OK(backend_e2b.pause(box, &err)); /* it is paused already */
    ASSERT_OK(backend_e2b.state(box, &state, &err));
    ASSERT_INT(state, CAY_STATE_PAUSED);
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_BUSY);
    ASSERT_CODE(backend_e2b.files->stat(box, NULL, "x", false, &stat, &err), CAY_E_BUSY);
    ASSERT_OK(backend_e2b.resume(box, &err));
    ASSERT_STR(output_of(box, "echo on"), "on");
}

WITH_PEER(requests_to_an_ended_sandbox_fail)
{
    struct cay_stat stat;
    enum cay_state state;

    void *box = make_box(NULL);
    ASSERT_OK(backend_e2b.kill(box, &err));
    ASSERT_OK(backend_e2b.kill(box, &err));
    ASSERT_CODE(backend_e2b.state(box, &state, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(run_script(box, "true", 0, &err), CAY_E_UNAVAILABLE);
    ASSERT_CODE(backend_e2b.files->stat(box, NULL, "x", false, &stat, &err),
                CAY_E_UNAVAILABLE);
    ASSERT_CODE(backend_e2b.resume(box, &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(backend_e2b.pause(box, &err), CAY_E_NOT_FOUND);
}

static double seconds_left(void)
{
    const char *left = strstr(peer_request("{\"boxes\": null}"), "\"left\": ");

    ASSERT(left);
    return strtod(left + 8, NULL);
}

WITH_PEER(time_to_live_can_be_set)
{
    struct cay_sandbox_info info;

    void *box = make_box("timeout: 300\n");
    ASSERT_OK(backend_e2b.set_ttl(box, 1000500, &err));
    ASSERT(seconds_left() > 900 && seconds_left() <= 1001);
    ASSERT_OK(backend_e2b.inspect(box, &info, &err));
    ASSERT(info.ttl_left_ms > 900000 && info.ttl_left_ms <= 1002000);
    ASSERT_STR(info.id, backend_e2b.id(box));
    ASSERT_STR(info.template_name, "base");
    ASSERT_INT(info.memory_bytes, 512 << 20);
    ASSERT_INT(info.cpu_percent, 200);
    ASSERT(info.created_ms > 1600000000000);
    ASSERT_CODE(backend_e2b.set_ttl(box, 0, &err), CAY_E_UNSUPPORTED);
}

/* Runs commands until the client extends the lifetime. */
static void use_until_extended(void *box, const char *regex)
{
    for (int i = 0; i < 600; i++) {
        (void)output_of(box, "true");
        if (count_requests(regex) > 0)
            return;
        rest_ms(100);
    }
    harness_fail(__FILE__, __LINE__, "the lifetime was not extended");
}

WITH_PEER(use_extends_the_lifetime_and_never_shortens_it)
{
    static const char *const ways[] = {"true", "false"};
    static const char *const requests[] = {"POST /sandboxes/.*/refreshes",
                                           "GET /sandboxes/"};

    for (size_t i = 0; i < 2; i++) {
        void *box = make_box("timeout: 100\nkeepalive_interval: 1\n");
        (void)peer_request("{\"set\": {\"refreshes\": %s}}", ways[i]);
        ASSERT_OK(backend_e2b.set_ttl(box, 1000000, &err));
        use_until_extended(box, requests[i]);
        ASSERT(seconds_left() > 500);
        ASSERT_OK(backend_e2b.set_ttl(box, 30000, &err));
        use_until_extended(box, requests[i]);
        ASSERT(seconds_left() > 50);
        ASSERT_OK(backend_e2b.kill(box, &err));
    }
}

WITH_PEER(long_command_extends_the_lifetime)
{
    void *box = make_box("timeout: 100\nkeepalive_interval: 1\n");
    (void)count_requests(".");
    (void)output_of(box, "sleep 3");
    ASSERT(count_requests("POST /sandboxes/.*/refreshes") > 0);
}

WITH_PEER(keepalive_interval_0_sends_no_request)
{
    void *box = make_box("timeout: 100\nkeepalive_interval: 0\n");
    (void)count_requests(".");
    (void)output_of(box, "sleep 2");
    ASSERT_INT(count_requests(".*(refreshes|timeout)"), 0);
}
