/* SPDX-License-Identifier: Apache-2.0 */

/* Tools that run commands and code. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/signal.h"
#include "cay/agent.h"
#include "cay/code.h"
#include "mcp/session.h"

enum {
    WAIT_MAX_MS = 60000,
    TIMEOUT_MAX_MS = 24 * 3600 * 1000,
    OUTPUT_MAX = 256 << 10, /* bytes of each stream in a result */
    PROGRESS_MAX = 4096,    /* bytes of output in a message about progress */
};

static const char op[] = "mcp.run";

static void put_bytes(struct json *json, const char *key, const char *data, size_t len)
{
    json_put_key(json, key);
    json_put_bytes(json, data ? data : "", len);
}

/* --- run_command --- */

static const struct mcp_field command_input[] = {
    {"command", "a command line for bash, or sh if there is no bash", MCP_STRING, true},
    {"cwd", "working directory inside (default: the sandbox's)", MCP_STRING},
    {"env", "additional environment variables", MCP_MAP},
    {"timeout_ms", "kill the command after this time", MCP_INTEGER, false, 1,
     TIMEOUT_MAX_MS, NULL, "120000"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field command_output[] = {
    {"status", "how it ended", MCP_STRING, true, .choices = "success|error|timeout"},
    {"exit_code", "-N for signal N", MCP_INTEGER, true, -128, 255},
    {"stdout", "output, cut in the middle if it is long", MCP_STRING, true},
    {"stderr", "error output, cut in the same way", MCP_STRING, true},
    {"truncated", "whether output was cut; the files have all of it", MCP_BOOLEAN, true},
    {"stdout_file", "a file inside with all output", MCP_STRING},
    {"stderr_file", "a file inside with all error output", MCP_STRING},
    {"message", "why the status is not success", MCP_STRING},
    {"duration_ms", "how long it ran", MCP_INTEGER, true},
    {.name = NULL},
};

/* For a model: the output, then what is wrong. */
static void put_text(struct mcp_call *call, const struct cay_command_result *result)
{
    struct buf *text = call->text;

    (void)buf_append(text, result->out ? result->out : "", result->out_len);
    if (result->error_len) {
        (void)buf_text(text, text->len && text->data[text->len - 1] != '\n' ? "\n" : "");
        (void)buf_text(text, "[stderr]\n");
        (void)buf_append(text, result->error, result->error_len);
    }
    if (*result->message)
        (void)buf_format(text, "%s[%s]",
                         text->len && text->data[text->len - 1] != '\n' ? "\n" : "",
                         result->message);
    if (result->truncated && result->out_file)
        (void)buf_format(text, "\n[all output is in %s]", result->out_file);
    if (!text->len)
        (void)buf_text(text, "[no output]");
}

static int run_command(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    char **env = mcp_env(call, "env");
    const struct cay_command_options options = {
        .size = sizeof options,
        .flags = CAY_COMMAND_CLEAN,
        .timeout_ms = (uint64_t)mcp_number(call, "timeout_ms", CAY_COMMAND_TIMEOUT_MS),
        .cwd = mcp_text(call, "cwd", NULL),
        .env = (const char *const *)env};
    struct cay_command_result result = {0};
    int code = cay_bash_run(call->box->sandbox, mcp_text(call, "command", ""), &options,
                            &result, err);

    mcp_free_env(env);
    if (code)
        return code;
    json_set_text(data, "status", cay_status_slug(result.status));
    json_set_int(data, "exit_code", result.exit_code);
    put_bytes(data, "stdout", result.out, result.out_len);
    put_bytes(data, "stderr", result.error, result.error_len);
    json_set_bool(data, "truncated", result.truncated);
    if (result.out_file)
        json_set_text(data, "stdout_file", result.out_file);
    if (result.error_file)
        json_set_text(data, "stderr_file", result.error_file);
    if (*result.message)
        json_set_text(data, "message", result.message);
    json_set_uint(data, "duration_ms", result.duration_ms);
    put_text(call, &result);
    cay_command_done(&result);
    return CAY_OK;
}

/* --- run_code --- */

static const struct mcp_field code_input[] = {
    {"code", "the code; its last expression is a result", MCP_BYTES, true},
    {"language",
     "python (default), javascript, typescript, bash, r, java, or another one that the "
     "sandbox has",
     MCP_STRING},
    {"timeout_ms", "interrupt the code after this time", MCP_INTEGER, false, 1,
     TIMEOUT_MAX_MS, NULL, "120000"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field code_result[] = {
    {"types", "MIME types of its representations", MCP_STRINGS, true},
    {"main", "whether it is the value of the last expression", MCP_BOOLEAN, true},
    {"text", "as text", MCP_STRING},
    {"html", "as HTML", MCP_STRING},
    {"markdown", "as Markdown", MCP_STRING},
    {"chart", "the data of a chart", MCP_OBJECT},
    {.name = NULL},
};

static const struct mcp_field code_error[] = {
    {"name", "the type of the exception", MCP_STRING, true},
    {"value", "its message", MCP_STRING, true},
    {"traceback", "where it was raised", MCP_STRING},
    {.name = NULL},
};

static const struct mcp_field code_output[] = {
    {"status", "how it ended", MCP_STRING, true,
     .choices = "success|error|timeout|interrupted|lost"},
    {"language", "the language", MCP_STRING, true},
    {"stdout", "output", MCP_STRING, true},
    {"stderr", "error output", MCP_STRING, true},
    {"truncated", "whether output was cut, after 256 KiB of a stream", MCP_BOOLEAN, true},
    {"results", "displayed values; pictures are content of their own", MCP_LIST, true,
     .fields = code_result},
    {"error", "the exception", MCP_OBJECT, .fields = code_error},
    {"note", "why the interpreter has no variables", MCP_STRING},
    {.name = NULL},
};

/* Output of code while it runs, which is progress, too. */
struct output {
    struct mcp_call *call;
    struct buf streams[2];
    bool is_cut;
};

static int take_text(void *cookie, int stream, const char *text, size_t len,
                     int64_t time_ns)
{
    struct output *output = cookie;
    struct buf *kept = &output->streams[stream - 1];

    (void)time_ns;
    size_t room = OUTPUT_MAX - kept->len;
    (void)buf_append(kept, text, len < room ? len : room);
    output->is_cut = output->is_cut || len > room;
    if (output->call->progress)
        output->call->progress(output->call, text,
                               len < PROGRESS_MAX ? len : PROGRESS_MAX);
    return 0;
}

static bool is_picture(const char *mime)
{
    return strcmp(mime, "image/png") == 0 || strcmp(mime, "image/jpeg") == 0;
}

static void put_part(struct mcp_call *call, struct json *data,
                     const struct cay_code_part *part)
{
    static const struct {
        const char *mime, *key;
    } texts[] = {
        {"text/plain", "text"}, {"text/html", "html"}, {"text/markdown", "markdown"}};

    if (is_picture(part->mime)) {
        AUTO_FREE char *base64 = mcp_base64(part->data, part->len);
        mcp_put_image(call, part->mime, base64);
    } else if (part->is_json && strcmp(part->mime, "e2b/chart") == 0) {
        json_put_key(data, "chart");
        json_put_raw(data, part->data);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!part->is_json && strcmp(part->mime, texts[i].mime) == 0)
            put_bytes(data, texts[i].key, part->data, part->len);
}

static void put_value(struct mcp_call *call, struct json *data,
                      const struct cay_code_value *value)
{
    json_put_object(data);
    json_put_key(data, "types");
    json_put_array(data);
    for (size_t i = 0; i < value->part_count; i++)
        json_put_text(data, value->parts[i].mime);
    json_put_end(data);
    json_set_bool(data, "main", value->is_main);
    for (size_t i = 0; i < value->part_count; i++) {
        put_part(call, data, &value->parts[i]);
        if (strcmp(value->parts[i].mime, "text/plain") == 0) {
            (void)buf_append(call->text, value->parts[i].data, value->parts[i].len);
            (void)buf_text(call->text, "\n");
        }
    }
    json_put_end(data);
}

static void put_error(struct json *data, const char *name, const char *value,
                      const char *traceback)
{
    json_put_key(data, "error");
    json_put_object(data);
    json_set_text(data, "name", name);
    json_set_text(data, "value", value ? value : "");
    if (traceback)
        json_set_text(data, "traceback", traceback);
    json_put_end(data);
}

static void put_execution(struct mcp_call *call, struct json *data,
                          const struct cay_code_execution *execution,
                          const struct output *output)
{
    static const char *const statuses[] = {[CAY_CODE_SUCCESS] = "success",
                                           [CAY_CODE_ERROR] = "error",
                                           [CAY_CODE_TIMEOUT] = "timeout",
                                           [CAY_CODE_INTERRUPTED] = "interrupted",
                                           [CAY_CODE_LOST] = "lost"};

    json_set_text(data, "status", statuses[execution->status]);
    json_set_text(data, "language", execution->language);
    const struct buf *streams = output->streams;
    put_bytes(data, "stdout", streams[0].data, streams[0].len);
    put_bytes(data, "stderr", streams[1].data, streams[1].len);
    json_set_bool(data, "truncated", output->is_cut);
    for (size_t i = 0; i < 2; i++)
        (void)buf_append(call->text, streams[i].data ? streams[i].data : "",
                         streams[i].len);
    json_put_key(data, "results");
    json_put_array(data);
    for (size_t i = 0; i < execution->value_count; i++)
        put_value(call, data, &execution->values[i]);
    json_put_end(data);
    if (execution->error_name) {
        put_error(data, execution->error_name, execution->error_value,
                  execution->traceback);
        (void)buf_text(call->text, execution->traceback && *execution->traceback
                                       ? execution->traceback
                                       : execution->error_name);
    }
    if (execution->restarted) {
        json_set_text(data, "note", execution->restarted);
        (void)buf_format(call->text, "\n[%s]", execution->restarted);
    }
    if (!call->text->len)
        (void)buf_format(call->text, "[%s]", statuses[execution->status]);
}

/* A language without contexts, in a fresh interpreter. */
static int run_once(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    size_t len;
    const char *code_text = mcp_bytes(call, "code", &len);
    const struct cay_command_options options = {
        .size = sizeof options,
        .flags = CAY_COMMAND_CLEAN,
        .timeout_ms = (uint64_t)mcp_number(call, "timeout_ms", CAY_COMMAND_TIMEOUT_MS)};
    struct cay_code_result result = {0};

    TRY(cay_code_run(call->box->sandbox, code_text, len, mcp_text(call, "language", NULL),
                     &options, &result, err));
    if (strcmp(result.error_type, "ValueError") == 0) {
        int code = cay_fail(err, CAY_E_UNSUPPORTED, 0, op, mcp_text(call, "language", ""),
                            "the sandbox cannot run this language", "%s",
                            *result.error_value ? result.error_value : "use python");
        cay_code_done(&result);
        return code;
    }
    json_set_text(data, "status", cay_status_slug(result.status));
    json_set_text(data, "language", result.language);
    put_bytes(data, "stdout", result.command.out, result.command.out_len);
    put_bytes(data, "stderr", result.command.error, result.command.error_len);
    json_set_bool(data, "truncated", result.command.truncated);
    json_put_key(data, "results");
    json_put_array(data);
    json_put_end(data);
    if (*result.error_type)
        put_error(data, result.error_type, result.error_value, NULL);
    put_text(call, &result.command);
    cay_code_done(&result);
    return CAY_OK;
}

static int run_code(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    struct output output = {.call = call};
    size_t len;
    const char *text = mcp_bytes(call, "code", &len);
    const struct cay_code_options options = {
        .size = sizeof options,
        .language = mcp_text(call, "language", NULL),
        .timeout_ms = (uint64_t)mcp_number(call, "timeout_ms", CAY_COMMAND_TIMEOUT_MS),
        .on_text = take_text,
        .cookie = &output};
    struct cay_code_execution execution = {0};

    buf_init(&output.streams[0], 2 * (size_t)OUTPUT_MAX);
    buf_init(&output.streams[1], 2 * (size_t)OUTPUT_MAX);
    int code = cay_code_execute(call->box->sandbox, text, len, &options, &execution, err);
    if (code == CAY_OK) {
        put_execution(call, data, &execution, &output);
        cay_code_execution_done(&execution);
    } else if (code == CAY_E_UNSUPPORTED && options.language) {
        code = run_once(call, data, err);
    }
    buf_done(&output.streams[0]);
    buf_done(&output.streams[1]);
    return code;
}

/* --- Processes --- */

#define PROCESS_FIELD                                                                    \
    {                                                                                    \
        "process", "its PID, as text, or its tag", MCP_STRING, true                      \
    }

static const struct mcp_field start_input[] = {
    {"command", "a command line for bash, or sh if there is no bash", MCP_STRING, true},
    {"cwd", "working directory inside (default: the sandbox's)", MCP_STRING},
    {"env", "additional environment variables", MCP_MAP},
    {"tag", "a name for it: a letter, then letters, digits, -, _ and .", MCP_STRING},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field start_output[] = {
    {"pid", "for the other tools", MCP_INTEGER, true},
    {.name = NULL},
};

static int start_process(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const char *argv[] = {"bash", "-c", mcp_text(call, "command", ""), NULL};
    char **env = mcp_env(call, "env");
    const struct cay_exec_options options = {.size = sizeof options,
                                             .flags =
                                                 CAY_EXEC_BACKGROUND | CAY_EXEC_INPUT,
                                             .argv = argv,
                                             .env = (const char *const *)env,
                                             .cwd = mcp_text(call, "cwd", NULL),
                                             .tag = mcp_text(call, "tag", NULL)};
    cay_process *process = NULL;
    struct cay_error failure = {0};
    int code = cay_process_start(call->box->sandbox, &options, &process, &failure);

    if (code == CAY_E_EXEC_FAILED && failure.sys_errno == ENOENT) {
        argv[0] = "sh";
        code = cay_process_start(call->box->sandbox, &options, &process, &failure);
    }
    mcp_free_env(env);
    if (code)
        return cay_fail_as(err, code, &failure);
    json_set_int(data, "pid", cay_process_pid(process));
    cay_process_free(process);
    return CAY_OK;
}

static const struct mcp_field read_input[] = {
    PROCESS_FIELD,
    {"after", "\"next\" of the read before: only output since then", MCP_STRING},
    {"wait_ms", "wait this long for output or the end", MCP_INTEGER, false, 0,
     WAIT_MAX_MS, NULL, "0"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field read_output[] = {
    {"running", "whether it still runs", MCP_BOOLEAN, true},
    {"exit_code", "of an ended process, reported once; 128 + N for signal N", MCP_INTEGER,
     false, 0, 255},
    {"stdout", "output", MCP_STRING, true},
    {"stderr", "error output", MCP_STRING, true},
    {"dropped", "bytes that were lost: the last MiB of each stream is kept", MCP_INTEGER,
     true},
    {"next", "for \"after\" of the next read", MCP_STRING, true},
    {.name = NULL},
};

/* What a read has of one stream. */
struct stream {
    struct buf text;
    uint64_t at, from, dropped; /* bytes of it so far; those that are not wanted */
};

static void take_output(struct stream *stream, const char *data, size_t len,
                        uint64_t dropped)
{
    if (stream->at + dropped > stream->from)
        stream->dropped += stream->at + dropped -
                           (stream->at > stream->from ? stream->at : stream->from);
    stream->at += dropped;
    size_t skip = stream->at < stream->from ? (size_t)(stream->from - stream->at) : 0;
    skip = skip < len ? skip : len;
    stream->at += len;
    (void)buf_append(&stream->text, data + skip, len - skip);
}

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Everything up to now; if that is nothing, the first that comes until `until_ms`.
 * *ret_ended: the command has ended. */
static int read_streams(cay_process *process, struct stream *streams, int64_t until_ms,
                        bool *ret_ended, struct cay_error *err)
{
    char data[16 << 10];
    int which;
    size_t len;
    uint64_t dropped;

    for (;;) {
        TRY(cay_process_read(process, &which, data, sizeof data, &len, &dropped, err));
        *ret_ended = which < 0;
        if (which < 0)
            return CAY_OK;
        if (which > 0) {
            take_output(&streams[which - 1], data, len, dropped);
            if (streams[which - 1].text.len < OUTPUT_MAX)
                continue;
            return CAY_OK;
        }
        int64_t left = until_ms - now_ms();
        if (streams[0].text.len || streams[1].text.len || left <= 0)
            return CAY_OK;
        struct pollfd fd = {cay_process_fd(process), POLLIN, 0};
        (void)poll(&fd, 1, (int)left);
    }
}

static int put_streams(struct mcp_call *call, struct json *data, cay_process *process,
                       struct stream *streams, struct cay_error *err)
{
    int64_t until = now_ms() + mcp_number(call, "wait_ms", 0);
    bool has_ended = false;
    char next[64];
    int exit_code = 0;

    TRY(read_streams(process, streams, until, &has_ended, err));
    if (has_ended) {
        struct cay_exec_result result;
        TRY(cay_process_wait(process, 0, &result, err));
        exit_code = result.exit_code;
        cay_exec_done(&result);
    }
    json_set_bool(data, "running", !has_ended);
    if (has_ended)
        json_set_int(data, "exit_code", exit_code);
    put_bytes(data, "stdout", streams[0].text.data, streams[0].text.len);
    put_bytes(data, "stderr", streams[1].text.data, streams[1].text.len);
    json_set_uint(data, "dropped", streams[0].dropped + streams[1].dropped);
    snprintf(next, sizeof next, "%llu-%llu", (unsigned long long)streams[0].at,
             (unsigned long long)streams[1].at);
    json_set_text(data, "next", next);
    return CAY_OK;
}

/* "N-N", the bytes of each stream. */
static bool parse_after(const char *text, struct stream *streams)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    streams[0].from = strtoull(text, &end, 10);
    if (*end != '-' || end[1] < '0' || end[1] > '9')
        return false;
    streams[1].from = strtoull(end + 1, &end, 10);
    return !*end && !errno;
}

static int read_process(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const char *after = mcp_text(call, "after", NULL);
    struct stream streams[2] = {0};
    cay_process *process = NULL;

    if (after && !parse_after(after, streams))
        return cay_fail(err, CAY_E_INVALID, 0, op, after, "invalid position",
                        "pass \"next\" of an earlier read, or leave it out");
    buf_init(&streams[0].text, OUTPUT_MAX + (64 << 10));
    buf_init(&streams[1].text, OUTPUT_MAX + (64 << 10));
    int code = cay_process_attach(call->box->sandbox, mcp_text(call, "process", ""),
                                  &process, err);
    if (!code)
        code = put_streams(call, data, process, streams, err);
    cay_process_free(process);
    buf_done(&streams[0].text);
    buf_done(&streams[1].text);
    return code;
}

static const struct mcp_field write_input[] = {
    PROCESS_FIELD,
    {"text", "what to write to its standard input", MCP_BYTES},
    {"close", "end its standard input afterwards", MCP_BOOLEAN, .fallback = "false"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field write_output[] = {
    {"written", "bytes", MCP_INTEGER, true},
    {.name = NULL},
};

/* The pipe takes 64 KiB; the rest waits until the process reads. */
static int write_process(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    enum { PATIENCE_MS = 10000 };
    size_t len, at = 0, done = 0;
    const char *text = mcp_bytes(call, "text", &len);
    int64_t until = now_ms() + PATIENCE_MS;
    cay_process *process = NULL;
    int code = cay_process_attach(call->box->sandbox, mcp_text(call, "process", ""),
                                  &process, err);

    while (!code && at < len) {
        code = cay_process_write(process, text + at, len - at, &done, err);
        at += code ? 0 : done;
        if (!code && at < len && !done && now_ms() > until)
            break;
        if (!code && at < len && !done)
            (void)poll(NULL, 0, 10);
    }
    if (!code && at == len && mcp_flag(call, "close"))
        code = cay_process_close_input(process, err);
    cay_process_free(process);
    if (!code)
        json_set_uint(data, "written", at);
    return code;
}

static const struct mcp_field stop_input[] = {
    PROCESS_FIELD,
    {"signal", "send this signal to it instead of killing its whole tree", MCP_STRING,
     .choices = "INT|TERM|HUP|USR1|USR2|STOP|CONT|KILL"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field stop_output[] = {
    {"stopped", "its whole tree is dead", MCP_BOOLEAN, true},
    {.name = NULL},
};

static int stop_process(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const char *signal = mcp_text(call, "signal", NULL);
    cay_process *process = NULL;

    TRY(cay_process_attach(call->box->sandbox, mcp_text(call, "process", ""), &process,
                           err));
    int code = signal ? cay_process_signal(process, signal_by_name(signal), err)
                      : cay_process_kill(process, err);
    cay_process_free(process);
    if (!code)
        json_set_bool(data, "stopped", !signal);
    return code;
}

static const struct mcp_field no_input[] = {MCP_SANDBOX_FIELD, {.name = NULL}};

static const struct mcp_field process_entry[] = {
    {"pid", "inside", MCP_INTEGER, true},
    {"parent", "its parent; 0: started from outside", MCP_INTEGER, true},
    {"command", "its arguments", MCP_STRING, true},
    {"tag", "its name, if it has one", MCP_STRING},
    {"background", "started by start_process", MCP_BOOLEAN, true},
    {"running", "false: it has ended, and has not been read", MCP_BOOLEAN, true},
    {.name = NULL},
};

static const struct mcp_field list_output[] = {
    {"processes", "ordered by PID", MCP_LIST, true, .fields = process_entry},
    {.name = NULL},
};

static int list_processes(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    size_t count = 0;

    TRY(cay_process_list(call->box->sandbox, &infos, &count, err));
    json_put_key(data, "processes");
    json_put_array(data);
    for (size_t i = 0; i < count; i++) {
        json_put_object(data);
        json_set_int(data, "pid", infos[i].pid);
        json_set_int(data, "parent", infos[i].parent);
        json_set_text(data, "command", infos[i].command);
        if (*infos[i].tag)
            json_set_text(data, "tag", infos[i].tag);
        json_set_bool(data, "background", infos[i].is_background);
        json_set_bool(data, "running", !infos[i].has_ended);
        json_put_end(data);
    }
    json_put_end(data);
    return CAY_OK;
}

const struct mcp_tool mcp_run_tools[] = {
    {"run_command", "Run a command",
     "Run a shell command in the sandbox and wait for it. For servers and other long "
     "programs use start_process.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS, command_input, command_output, run_command},
    {"run_code", "Run code",
     "Run code in an interpreter in the sandbox that keeps its variables from call to "
     "call. "
     "Pictures and charts are returned as images.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS, code_input, code_output, run_code},
    {"start_process", "Start a process",
     "Start a shell command in the background. Its standard input stays open.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS, start_input, start_output, start_process},
    {"read_process", "Read a process",
     "Read the output of a background process, and whether it has ended.",
     MCP_TOOL_WAITS | MCP_TOOL_READS, read_input, read_output, read_process},
    {"write_process", "Write to a process",
     "Write to the standard input of a background process.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS, write_input, write_output, write_process},
    {"stop_process", "Stop a process",
     "Kill a background process with all its descendants, or send it a signal.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS, stop_input, stop_output, stop_process},
    {"list_processes", "List processes", "List the processes of the sandbox.",
     MCP_TOOL_READS, no_input, list_output, list_processes},
    {.name = NULL},
};
