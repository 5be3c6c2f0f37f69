/* SPDX-License-Identifier: Apache-2.0 */

/* bench-mcp [--quick] CAY: calls of tools of `CAY mcp` over standard input and output,
 * against the functions of the library that do the same in the same sandbox, in turns.
 * The client writes a prepared line and waits for the end of the reply's line. */
#include <cay/sandbox.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contest.h"

extern char **environ;

enum { REPLY_MAX = 64 << 10, TEXT_LINES = 256, READ_ROUNDS = 1000, RUN_ROUNDS = 300 };

#define LINE "one line of text"
#define CALL                                                                             \
    "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":"

static int to_server, from_server;
static char reply[REPLY_MAX + 1];
static cay_sandbox *sandbox;
static cay_files *files;

static void need(int code, const struct cay_error *err)
{
    if (!code)
        return;
    fprintf(stderr, "bench: %s: %s: %s (%s)\n", err->op, err->subject, err->message,
            err->hint);
    exit(1);
}

static pid_t start(const char *cay, const char *name)
{
    const char *argv[] = {cay, "mcp", "--name", name, NULL};
    posix_spawn_file_actions_t actions;
    int in[2], out[2];
    pid_t pid;

    if (pipe(in) != 0 || pipe(out) != 0)
        contest_die("pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    for (int i = 0; i < 2; i++) {
        posix_spawn_file_actions_addclose(&actions, in[i]);
        posix_spawn_file_actions_addclose(&actions, out[i]);
    }
    errno =
        posix_spawn(&pid, cay, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    if (errno)
        contest_die(cay);
    posix_spawn_file_actions_destroy(&actions);
    (void)close(in[0]);
    (void)close(out[1]);
    to_server = in[1];
    from_server = out[0];
    return pid;
}

static void send_line(const char *line)
{
    size_t len = strlen(line);

    if (write(to_server, line, len) != (ssize_t)len)
        contest_die("write to cay mcp");
}

/* One line, in `reply`. */
static void receive(void)
{
    size_t len = 0;

    do {
        ssize_t got = read(from_server, reply + len, REPLY_MAX - len);
        if (got <= 0)
            contest_die("read from cay mcp");
        len += (size_t)got;
    } while (reply[len - 1] != '\n' && len < REPLY_MAX);
    reply[len] = '\0';
}

static bool call(const char *line, const char *expected)
{
    send_line(line);
    receive();
    if (strstr(reply, expected) && !strstr(reply, "\"isError\":true"))
        return true;
    fprintf(stderr, "bench: %s", reply);
    return false;
}

static bool call_read(void *cookie)
{
    (void)cookie;
    return call(CALL "\"read_file\",\"arguments\":{\"path\":\"/tmp/text\"}}}\n",
                LINE "\\n" LINE);
}

static bool read_lines(void *cookie)
{
    const struct cay_read_options options = {.size = sizeof options};
    struct cay_error err;
    struct cay_page page;

    (void)cookie;
    need(cay_files_read_lines(files, "/tmp/text", &options, &page, &err), &err);
    bool ok = page.count == TEXT_LINES;
    cay_page_done(&page);
    return ok;
}

static bool call_run(void *cookie)
{
    (void)cookie;
    return call(CALL "\"run_command\",\"arguments\":{\"command\":\"true\"}}}\n",
                "\"exit_code\":0");
}

static bool run_shell(void *cookie)
{
    static const char *const argv[] = {"/bin/sh", "-c", "true", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    struct cay_exec_result result;
    struct cay_error err;

    (void)cookie;
    need(cay_sandbox_exec(sandbox, &options, &result, &err), &err);
    bool ok = result.exit_code == 0;
    cay_exec_done(&result);
    return ok;
}

static void begin(const char *name)
{
    struct cay_error err;

    send_line("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":"
              "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},"
              "\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}\n");
    receive();
    send_line("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    if (!call(CALL "\"run_command\",\"arguments\":{\"command\":"
                   "\"yes " LINE " | head -n 256 > /tmp/text\"}}}\n",
              "\"exit_code\":0"))
        exit(1);
    need(cay_sandbox_open(name, &sandbox, &err), &err);
    need(cay_sandbox_files(sandbox, NULL, &files, &err), &err);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    char name[32];

    if (argc != 2 + quick) {
        fprintf(stderr, "usage: bench-mcp [--quick] CAY\n");
        return 2;
    }
    snprintf(name, sizeof name, "bench-%d", getpid());
    pid_t pid = start(argv[1 + quick], name);
    begin(name);
    contest_run(&(struct contest){.part = "agents",
                                  .op = "MCP read_file",
                                  .floor = "cay_files_read_lines()",
                                  .bytes = TEXT_LINES * sizeof LINE,
                                  .rounds = quick ? 20 : READ_ROUNDS,
                                  .run = {call_read, read_lines}});
    contest_run(&(struct contest){.part = "agents",
                                  .op = "MCP run_command, true",
                                  .floor = "cay_sandbox_exec() of sh -c true",
                                  .rounds = quick ? 20 : RUN_ROUNDS,
                                  .run = {call_run, run_shell}});
    cay_files_free(files);
    cay_sandbox_free(sandbox);
    (void)close(to_server); /* the server ends, and its sandbox */
    return waitpid(pid, NULL, 0) == pid ? 0 : 1;
}
