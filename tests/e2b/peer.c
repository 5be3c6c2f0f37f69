/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_ = 1 << 20, BOXES_MAX = 8, CONFIGS_MAX = 64 };

struct cay_exec_result result;

static pid_t peer;
static FILE *to_peer, *from_peer;
static char url[256], *line;
static void *boxes[BOXES_MAX];
static cay_config *configs[CONFIGS_MAX];

void stop_peer(void)
{
    cay_exec_done(&result);
    for (size_t i = 0; i < BOXES_MAX; i++) {
        if (boxes[i])
            backend_e2b.free(boxes[i]);
        boxes[i] = NULL;
    }
    for (size_t i = 0; i < CONFIGS_MAX; i++) {
        cay_config_free(configs[i]);
        configs[i] = NULL;
    }
    if (to_peer)
        (void)fclose(to_peer); /* the peer ends with its stdin */
    if (from_peer)
        (void)fclose(from_peer);
    if (peer > 0)
        (void)waitpid(peer, NULL, 0);
    free(line);
    line = NULL;
    to_peer = from_peer = NULL;
    peer = 0;
}

static const char *read_line(void)
{
    if (!line)
        line = malloc(LINE_MAX_);
    ASSERT(line && fgets(line, LINE_MAX_, from_peer));
    line[strcspn(line, "\n")] = '\0';
    return line;
}

void start_peer(void)
{
    const char *const words[] = {"python3", getenv("PEER"), NULL};
    char *argv[sizeof words / sizeof *words];
    posix_spawn_file_actions_t actions;
    int in[2], out[2];

    harness_at_end(stop_peer);
    (void)unsetenv("E2B_API_KEY");
    ASSERT(words[1]);
    memcpy(argv, words, sizeof argv);
    ASSERT(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    int error = posix_spawnp(&peer, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_peer = fdopen(in[1], "w");
    from_peer = fdopen(out[0], "r");
    ASSERT_INT(error, 0);
    snprintf(url, sizeof url, "%s", read_line());
    ASSERT_HAS(url, "http://127.0.0.1:");
}

const char *peer_url(void)
{
    return url;
}

const char *peer_request(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(to_peer, format, arguments);
    va_end(arguments);
    fputc('\n', to_peer);
    fflush(to_peer);
    return read_line();
}

int count_requests(const char *regex)
{
    const char *at = peer_request("{\"log\": \"%s\"}", regex);
    int count = 0;

    while ((at = strstr(at, "\"method\": "))) {
        count++;
        at++;
    }
    return count;
}

void await_silence(void)
{
    const struct timespec pause = {0, 20000000};

    for (int i = 0; i < 3000; i++) {
        if (strcmp(peer_request("{\"pids\": null}"), "0") == 0)
            return;
        nanosleep(&pause, NULL);
    }
    harness_fail(__FILE__, __LINE__, "a process is still running");
}

const cay_config *configure(const char *more)
{
    char text[8192];
    size_t i = 0;

    while (i < CONFIGS_MAX && configs[i])
        i++;
    ASSERT(i < CONFIGS_MAX);
    int len = snprintf(text, sizeof text,
                       "type: e2b\napi_url: %s\nsandbox_url: %s\napi_key: e2b_5ec2e7\n%s",
                       url, url, more ? more : "max_retries: 2\n");
    ASSERT_OK(cay_config_parse(text, (size_t)len, "test", NULL, &configs[i], &err));
    return configs[i];
}

void *make_box(const char *more)
{
    const cay_config *config = configure(more);
    size_t i = 0;

    while (i < BOXES_MAX && boxes[i])
        i++;
    ASSERT(i < BOXES_MAX);
    ASSERT_OK(backend_e2b.create(NULL, config, &boxes[i], &err));
    return boxes[i];
}

int run_script(void *box, const char *script, uint64_t timeout_ms,
               struct cay_error *error)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = timeout_ms};

    cay_exec_done(&result);
    return backend_e2b.exec(box, &options, &result, error);
}

const char *output_of(void *box, const char *script)
{
    ASSERT_OK(run_script(box, script, 120000, &err));
    if (result.exit_code != 0)
        harness_fail(__FILE__, __LINE__, "%s: exit %d: %s", script, result.exit_code,
                     result.error);
    if (result.out_len && result.out[result.out_len - 1] == '\n')
        result.out[--result.out_len] = '\0';
    return result.out;
}
