/* SPDX-License-Identifier: Apache-2.0 */
/* cay run: one command in a fresh sandbox that is gone when the command is. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cay/sandbox.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "json/json.h"

/* What a shell expects of a program that runs another one. */
enum { STATUS_TIMEOUT = 124, STATUS_OURS = 125, INPUT_MAX = 1 << 30, ENV_MAX = 256 };

struct wish {
    struct cay_sandbox_options sandbox;
    struct cay_exec_options exec;
    const char *env[ENV_MAX + 1];
    size_t env_count;
    bool as_json, interactive, help;
};

static const struct option options[] = {
    {"memory", required_argument, NULL, 'm'},
    {"cpus", required_argument, NULL, 'c'},
    {"pids", required_argument, NULL, 'P'},
    {"disk", required_argument, NULL, 'D'},
    {"timeout", required_argument, NULL, 'T'},
    {"env", required_argument, NULL, 'e'},
    {"workdir", required_argument, NULL, 'w'},
    {"user", required_argument, NULL, 'u'},
    {"network", required_argument, NULL, 'N'},
    {"interactive", no_argument, NULL, 'i'},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "Usage: cay run [OPTION]... -- COMMAND [ARGUMENT]...\n"
    "Run a command in a fresh sandbox, and leave nothing behind.\n\n"
    "  -m, --memory SIZE     most memory: 512M, 2G (default 1G)\n"
    "      --disk SIZE       most files written, in memory (default 512M)\n"
    "      --pids N          most processes (default 512)\n"
    "      --cpus N          most CPUs: 0.5, 2 (default: all)\n"
    "      --timeout TIME    kill it after: 500ms, 30, 2m (default: never)\n"
    "  -e, --env NAME=VALUE  set a variable; NAME alone passes yours on\n"
    "  -w, --workdir DIR     start there (default /home/user)\n"
    "  -u, --user USER       run as user, root, a name or a number inside\n"
    "      --network MODE    none (default) or host\n"
    "  -i, --interactive     pass standard input on\n"
    "  -o, --output json     tell the outcome as JSON on standard output\n\n"
    "The exit status is the command's; 124 after a timeout, 125 if cay fails,\n"
    "126 or 127 if the command cannot be run or found.\n";

static int fail_value(const char *option, const char *value, const char *hint,
                      struct cay_error *err)
{
    char message[64];

    snprintf(message, sizeof message, "--%s does not take this value", option);
    return cay_fail(err, CAY_E_INVALID, 0, "cli.run", value, message, "%s", hint);
}

/* A number with one of the suffixes; `scales` are theirs. */
static bool parse_scaled(const char *text, const char *const *suffixes,
                         const double *scales, double *ret_value)
{
    char *end;

    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !(value >= 0) || value > 1e15)
        return false;
    for (size_t i = 0; suffixes[i]; i++)
        if (strcmp(end, suffixes[i]) == 0) {
            *ret_value = value * scales[i];
            return true;
        }
    return false;
}

static int take_size(const char *option, const char *text, uint64_t *ret_bytes,
                     struct cay_error *err)
{
    static const char *const suffixes[] = {"", "K", "M", "G", "KiB", "MiB", "GiB", NULL};
    static const double scales[] = {1,    1024,    1048576,   1073741824,
                                    1024, 1048576, 1073741824};
    double bytes;

    if (!parse_scaled(text, suffixes, scales, &bytes) || bytes < 1)
        return fail_value(option, text, "write a size like 512M or 2G", err);
    *ret_bytes = (uint64_t)bytes;
    return CAY_OK;
}

static int take_time(const char *text, uint64_t *ret_ms, struct cay_error *err)
{
    static const char *const suffixes[] = {"", "ms", "s", "m", "h", NULL};
    static const double scales[] = {1000, 1, 1000, 60000, 3600000};
    double ms;

    if (!parse_scaled(text, suffixes, scales, &ms) || ms < 1)
        return fail_value("timeout", text, "write a time like 500ms, 30 or 2m", err);
    *ret_ms = (uint64_t)ms;
    return CAY_OK;
}

static int take_count(const char *option, const char *text, double scale, uint32_t *ret,
                      struct cay_error *err)
{
    static const char *const suffixes[] = {"", NULL};
    double value;

    if (!parse_scaled(text, suffixes, &scale, &value) || value < 1 || value > 1e6)
        return fail_value(option, text, "write a number above 0", err);
    *ret = (uint32_t)value;
    return CAY_OK;
}

static int take_variable(struct wish *wish, const char *text, struct cay_error *err)
{
    if (wish->env_count == ENV_MAX)
        return fail_value("env", text, "at most 256 variables", err);
    if (*text == '=' || !*text)
        return fail_value("env", text, "write NAME=VALUE", err);
    if (!strchr(text, '=')) {
        /* The name alone passes on what the caller has; what it has not stays unset. */
        size_t len = strlen(text);
        for (char **own = environ; *own; own++)
            if (strncmp(*own, text, len) == 0 && (*own)[len] == '=')
                wish->env[wish->env_count++] = *own;
        return CAY_OK;
    }
    wish->env[wish->env_count++] = text;
    return CAY_OK;
}

static int take_word(struct wish *wish, int letter, const char *value,
                     struct cay_error *err)
{
    switch (letter) {
    case 'm':
        return take_size("memory", value, &wish->sandbox.memory_bytes, err);
    case 'D':
        return take_size("disk", value, &wish->sandbox.disk_bytes, err);
    case 'P':
        return take_count("pids", value, 1, &wish->sandbox.pids, err);
    case 'c':
        return take_count("cpus", value, 100, &wish->sandbox.cpu_percent, err);
    case 'T':
        return take_time(value, &wish->exec.timeout_ms, err);
    case 'e':
        return take_variable(wish, value, err);
    case 'w':
        wish->exec.cwd = value;
        return CAY_OK;
    case 'u':
        wish->exec.user = value;
        return CAY_OK;
    case 'N':
        if (strcmp(value, "none") != 0 && strcmp(value, "host") != 0)
            return fail_value("network", value, "the modes are none and host", err);
        wish->sandbox.network =
            strcmp(value, "host") == 0 ? CAY_NETWORK_HOST : CAY_NETWORK_NONE;
        return CAY_OK;
    case 'i':
        wish->interactive = true;
        return CAY_OK;
    case 'o':
        wish->as_json = strcmp(value, "json") == 0;
        return wish->as_json || strcmp(value, "text") == 0
                   ? CAY_OK
                   : fail_value("output", value, "the forms are text and json", err);
    case 'h':
        wish->help = true;
        return CAY_OK;
    default:
        return cay_fail(err, CAY_E_INVALID, 0, "cli.run", "option",
                        "an option is unknown or lacks its value",
                        "cay run --help lists them");
    }
}

static int parse(char *const *argv, struct wish *wish, struct cay_error *err)
{
    int count = 1;
    int letter;

    while (argv[count - 1])
        count++;
    opterr = 0;
    optind = 1;
    /* getopt begins at the second word: ours is the command's name. */
    char *const *words = argv - 1;
    while ((letter = getopt_long(count, words, "+:m:c:e:w:u:io:h", options, NULL)) !=
           -1) {
        int code = take_word(wish, letter, optarg, err);
        if (code)
            return code;
    }
    wish->exec.argv = (const char *const *)(words + optind);
    wish->exec.env = wish->env;
    if (!wish->help && !wish->exec.argv[0])
        return cay_fail(err, CAY_E_INVALID, 0, "cli.run", "command",
                        "the command to run is missing",
                        "write it after --: cay run -- python3 -c 'print(6*7)'");
    return CAY_OK;
}

static int pass_on(void *cookie, int stream, const void *data, size_t len)
{
    (void)cookie;
    return output_write(stream, data, len);
}

static int read_input(struct wish *wish, char **ret_input, struct cay_error *err)
{
    size_t room = 64 << 10, len = 0;
    char *input = malloc(room);

    *ret_input = input;
    for (ssize_t got = 1; input && got > 0; len += (size_t)got) {
        if (room - len < 4096) {
            char *grown = len < INPUT_MAX ? realloc(input, room *= 2) : NULL;
            if (!grown)
                return cay_fail_memory(err, "cli.run");
            *ret_input = input = grown;
        }
        do
            got = read(STDIN_FILENO, input + len, room - len);
        while (got < 0 && errno == EINTR);
        if (got < 0)
            return cay_fail_errno(err, errno, "cli.run", "standard input");
    }
    wish->exec.input = input;
    wish->exec.input_len = len;
    return input ? CAY_OK : cay_fail_memory(err, "cli.run");
}

static const char *cause_of(const struct cay_exec_result *result)
{
    static const char *const words[] = {
        [CAY_CAUSE_EXITED] = "exited",
        [CAY_CAUSE_SIGNALLED] = "signalled",
        [CAY_CAUSE_TIMEOUT] = "timeout",
        [CAY_CAUSE_MEMORY] = "memory",
        [CAY_CAUSE_OUTPUT_LIMIT] = "output-limit",
        [CAY_CAUSE_GONE] = "sandbox-gone",
        [CAY_CAUSE_NOT_STARTED] = "not-started",
    };

    return words[result->cause];
}

static int tell_json(const struct cay_exec_result *result, struct cay_error *err)
{
    struct output output;
    struct json json;

    int code = output_open(&output, err);
    if (code)
        return code;
    output_begin_json(&output, &json);
    json_set_text(&json, "cause", cause_of(result));
    json_set_int(&json, "exit_code", result->exit_code);
    json_set_int(&json, "signal", result->signal);
    json_put_key(&json, "stdout");
    json_put_bytes(&json, result->out, result->out_len);
    json_put_key(&json, "stderr");
    json_put_bytes(&json, result->error, result->error_len);
    json_set_int(&json, "stdout_dropped", (int64_t)result->out_dropped);
    json_set_int(&json, "stderr_dropped", (int64_t)result->error_dropped);
    json_set_int(&json, "wall_us", (int64_t)result->wall_us);
    json_set_int(&json, "user_us", (int64_t)result->user_us);
    json_set_int(&json, "system_us", (int64_t)result->system_us);
    json_set_int(&json, "peak_memory", (int64_t)result->peak_memory);
    output_end_json(&output, &json);
    code = output_finish(&output, err);
    output_close(&output);
    return code;
}

/* Says why, where a bare number would leave people guessing. */
static void tell_text(const struct wish *wish, const struct cay_exec_result *result)
{
    unsigned long long memory =
        wish->sandbox.memory_bytes ? wish->sandbox.memory_bytes : CAY_MEMORY_DEFAULT;

    if (result->cause == CAY_CAUSE_MEMORY)
        fprintf(stderr, "cay: killed: memory limit %llu MiB (raise it with -m)\n",
                memory >> 20);
    else if (result->cause == CAY_CAUSE_TIMEOUT)
        fprintf(stderr, "cay: killed: timeout of %llu ms (raise it with --timeout)\n",
                (unsigned long long)wish->exec.timeout_ms);
    else if (result->cause == CAY_CAUSE_NOT_STARTED)
        fprintf(stderr,
                "cay: %s: %s (only programs below /usr and what you bring are inside)\n",
                wish->exec.argv[0], strerrordesc_np(result->exec_errno));
}

static int run_in(cay_sandbox *sandbox, struct wish *wish, int *ret_status,
                  struct cay_error *err)
{
    struct cay_exec_result result;

    if (!wish->as_json)
        wish->exec.on_output = pass_on;
    int code = cay_sandbox_exec(sandbox, &wish->exec, &result, err);
    if (code)
        return code;
    *ret_status = result.exit_code;
    if (wish->as_json)
        code = tell_json(&result, err);
    else
        tell_text(wish, &result);
    cay_exec_done(&result);
    return code;
}

static int run(struct wish *wish, int *ret_status, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;
    char *input = NULL;
    int code = CAY_OK;
    size_t collected;

    /* After others that could not clean up; if that fails it is not this run's business.
     */
    (void)!cay_sandbox_collect(&collected, NULL);
    wish->sandbox.size = sizeof wish->sandbox;
    wish->sandbox.ephemeral = true;
    wish->exec.size = sizeof wish->exec;
    if (wish->interactive)
        code = read_input(wish, &input, err);
    if (!code)
        code = cay_sandbox_create(&wish->sandbox, &sandbox, err);
    if (!code)
        code = run_in(sandbox, wish, ret_status, err);
    if (sandbox)
        (void)!cay_sandbox_kill(sandbox, NULL);
    cay_sandbox_free(sandbox);
    free(input);
    return code;
}

int cmd_run(char *const *argv)
{
    struct wish wish = {.as_json = false};
    struct cay_error err;
    int status = 0;

    int code = parse(argv, &wish, &err);
    if (!code && wish.help) {
        fputs(usage, stdout);
        return fflush(stdout) == 0 ? 0 : STATUS_OURS;
    }
    if (!code)
        code = run(&wish, &status, &err);
    if (!code)
        return status;
    (void)output_error(&err, wish.as_json);
    return STATUS_OURS;
}
