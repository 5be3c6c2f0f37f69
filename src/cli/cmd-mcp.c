/* SPDX-License-Identifier: Apache-2.0 */
/* cay mcp: tools for a client of the Model Context Protocol, in a sandbox. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/nearest.h"
#include "cli/cmd-sandbox.h"
#include "cli/hint.h"
#include "cli/signals.h"
#include "mcp/mcp.h"

static const char op[] = "cli.mcp";

/* --- Serving --- */

static int publish(void *cookie, cay_sandbox *sandbox, struct cay_error *err)
{
    const struct call *call = cookie;

    if (!call->options.quiet)
        hint_level(sandbox, call->options.require);
    if (call->options.approve_egress)
        TRY(sandbox_program.watch_egress(sandbox, err));
    return forward_publish(sandbox, &call->options.ports, err);
}

/* With --keep a name alone finds the sandbox again. */
static int check_keep(const struct options *options, const struct sandbox_plan *plan,
                      struct cay_error *err)
{
    if (options->keep && !plan->sandbox.name)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--keep",
                        "a sandbox that stays needs a name", "add --name NAME");
    if (!options->keep && plan->sandbox.ttl_ms)
        return cay_fail(err, CAY_E_INVALID, 0, op, "ttl",
                        "the sandbox of a session ends with it", "add --keep");
    return CAY_OK;
}

static int serve(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    struct sandbox_plan plan;
    int signal = 0;

    if (options->url)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--url",
                        "cay mcp itself has a sandbox on this machine",
                        "usage: cay mcp install CLIENT --url URL");
    TRY(sandbox_plan(options, call->configured, NULL, &plan, err));
    const struct mcp_options served = {
        .sandbox = plan.sandbox,
        .keep = options->keep,
        .tools = options->tools,
        .read_only = options->read_only,
        .asks_egress = options->approve_egress,
        .approve_writes =
            options->approve_writes.count ? options->approve_writes.items : NULL,
        .sandboxes = options->sandboxes,
        .roots = options->roots < 0 ? MCP_ROOTS_NONE : (enum mcp_roots)options->roots,
        .created = publish,
        .cookie = call,
        .mask = signals_mask(),
        .take_signal = signals_take};
    int code = check_keep(options, &plan, err);
    if (!code)
        code = mcp_check(&served, err);
    if (!code && isatty(STDIN_FILENO) && !options->quiet)
        fputs(
            "cay: waits for messages of an MCP client; cay mcp install CLIENT configures "
            "one\n",
            stderr);
    if (!code) {
        signals_catch();
        code = mcp_serve(&served, STDIN_FILENO, STDOUT_FILENO, &signal, err);
    }
    sandbox_plan_done(&plan);
    if (signal)
        signals_die(signal);
    return code;
}

/* --- install --- */

struct client {
    const char *name;
    const char *variable, *folder; /* the folder, or $variable/below instead */
    const char *below;
    const char *file;
    const char *key;     /* of the servers in a JSON file; NULL: the file is TOML */
    const char *api_key; /* how the file refers to the key of a server */
    const char *type;    /* of a server with a URL; NULL: the URL says it */
};

#define API_KEY    "E2B_API_KEY" /* the variable that cay serve prints */
#define INPUT_NAME "cay-api-key" /* VS Code asks for it once, and stores it */

static const struct client clients[] = {
    {"claude", NULL, "", NULL, ".claude.json", "mcpServers", "${" API_KEY "}", "http"},
    {"codex", "CODEX_HOME", ".codex", "", "config.toml", NULL, API_KEY, NULL},
    {"cursor", NULL, ".cursor", NULL, "mcp.json", "mcpServers", "${env:" API_KEY "}",
     NULL},
    {"vscode", "XDG_CONFIG_HOME", ".config/Code/User", "Code/User", "mcp.json", "servers",
     "${input:" INPUT_NAME "}", "http"},
};

#define CLIENT_COUNT (sizeof clients / sizeof *clients)

/* The command with its whole path, since programs on a desktop may have another PATH. */
static char *find_cay(void)
{
    const char *path = getenv("PATH");

    for (const char *at = path ? path : ""; *at;) {
        size_t len = strcspn(at, ":");
        char *file = NULL;
        if (*at == '/' && asprintf(&file, "%.*s/cay", (int)len, at) >= 0 &&
            access(file, X_OK) == 0)
            return file;
        free(file);
        at += len + (at[len] == ':');
    }
    return strdup("cay");
}

static json_t *server_entry(const struct client *client, const char *cay,
                            const char *const *words)
{
    json_t *args = json_pack("[s]", "mcp");

    for (; args && *words; words++)
        if (json_array_append_new(args, json_string(*words)) != 0) {
            json_decref(args);
            return NULL;
        }
    json_t *entry = json_pack("{s:s, s:o}", "command", cay, "args", args);
    if (entry && strcmp(client->name, "vscode") == 0)
        (void)json_object_set_new(entry, "type", json_string("stdio"));
    return entry;
}

/* A server of `cay serve --mcp`; `sandbox` NULL: each session has its own. */
static json_t *remote_entry(const struct client *client, const char *url,
                            const char *sandbox)
{
    json_t *headers = json_pack("{s:s}", "X-API-Key", client->api_key);
    json_t *entry = json_object();
    bool is_done = headers && entry &&
                   (!client->type ||
                    json_object_set_new(entry, "type", json_string(client->type)) == 0) &&
                   json_object_set_new(entry, "url", json_string(url)) == 0 &&
                   (!sandbox || json_object_set_new(headers, "Cay-Sandbox",
                                                    json_string(sandbox)) == 0) &&
                   json_object_set(entry, "headers", headers) == 0;

    json_decref(headers);
    if (is_done)
        return entry;
    json_decref(entry);
    return NULL;
}

/* What VS Code asks the user for, unless the file has it. */
static bool add_input(const struct client *client, json_t *tree, const json_t *entry)
{
    json_t *inputs = json_object_get(tree, "inputs"), *input;
    size_t i;

    if (strcmp(client->name, "vscode") != 0 || !json_object_get(entry, "url"))
        return true;
    if (!inputs) {
        inputs = json_array();
        if (json_object_set_new(tree, "inputs", inputs) != 0)
            return false;
    }
    json_array_foreach(inputs, i, input)
    {
        const char *id = json_string_value(json_object_get(input, "id"));
        if (id && strcmp(id, INPUT_NAME) == 0)
            return true;
    }
    return json_array_append_new(inputs,
                                 json_pack("{s:s, s:s, s:s, s:b}", "type", "promptString",
                                           "id", INPUT_NAME, "description",
                                           "API key of cay serve", "password", 1)) == 0;
}

static bool put_remote_toml(struct buf *text, const struct client *client,
                            const json_t *entry)
{
    AUTO_FREE char *url = json_dumps(json_object_get(entry, "url"), JSON_ENCODE_ANY);
    const char *sandbox = json_string_value(
        json_object_get(json_object_get(entry, "headers"), "Cay-Sandbox"));

    return url &&
           buf_format(text,
                      "[mcp_servers.cay]\nurl = %s\nbearer_token_env_var = \"%s\"\n", url,
                      client->api_key) &&
           (!sandbox ||
            buf_format(text, "http_headers = { \"Cay-Sandbox\" = \"%s\" }\n", sandbox));
}

/* A JSON string is a basic string of TOML, too, but for DEL, which no word has. */
static bool put_toml(struct buf *text, const struct client *client, const json_t *entry)
{
    if (json_object_get(entry, "url"))
        return put_remote_toml(text, client, entry);
    AUTO_FREE char *command =
        json_dumps(json_object_get(entry, "command"), JSON_ENCODE_ANY);
    AUTO_FREE char *args = json_dumps(json_object_get(entry, "args"), 0);

    return command && args &&
           buf_format(text, "[mcp_servers.cay]\ncommand = %s\nargs = %s\n", command,
                      args);
}

static bool put_json(struct buf *text, json_t *tree)
{
    AUTO_FREE char *dumped = json_dumps(tree, JSON_INDENT(2));

    return dumped && buf_text(text, dumped) && buf_text(text, "\n");
}

/* The file with the entry in it. */
static int merge_json(const struct client *client, const struct cay_page *old,
                      json_t *entry, const char *name, struct buf *ret_text,
                      struct cay_error *err)
{
    json_t *tree = old->len ? json_loadb(old->text, old->len, 0, NULL) : json_object();
    json_t *servers = json_object_get(tree, client->key);
    bool is_done = json_is_object(tree) && (!servers || json_is_object(servers));

    if (is_done && !servers) {
        servers = json_object();
        is_done = json_object_set_new(tree, client->key, servers) == 0;
    }
    is_done = is_done && json_object_set(servers, "cay", entry) == 0 &&
              add_input(client, tree, entry) && put_json(ret_text, tree);
    json_decref(tree);
    return is_done ? CAY_OK
                   : cay_fail(err, CAY_E_INVALID, 0, op, name,
                              "the file is not plain JSON with an object of servers",
                              "leave out --write, and add the printed lines yourself");
}

static int merge_toml(const struct client *client, const struct cay_page *old,
                      const json_t *entry, const char *name, struct buf *ret_text,
                      struct cay_error *err)
{
    if (old->len && strstr(old->text, "[mcp_servers.cay]"))
        return cay_fail(err, CAY_E_EXISTS, 0, op, name,
                        "the file has a section [mcp_servers.cay]",
                        "remove that section first, or change it yourself");
    if ((old->len && !buf_append(ret_text, old->text, old->len)) ||
        (old->len && !buf_text(ret_text, "\n")) || !put_toml(ret_text, client, entry))
        return cay_fail_memory(err, op);
    return CAY_OK;
}

static int write_entry(const struct client *client, cay_files *files, json_t *entry,
                       struct cay_error *err)
{
    struct cay_error failure = {0};
    struct cay_page old = {0};
    AUTO_BUF text = {0};

    buf_init(&text, 64 << 20);
    int code = cay_files_read_bytes(
        files, client->file,
        &(struct cay_read_options){.size = sizeof(struct cay_read_options),
                                   .max = UINT64_MAX},
        &old, &failure);
    if (code && code != CAY_E_NOT_FOUND)
        return cay_fail_as(err, code, &failure);
    code = client->key ? merge_json(client, &old, entry, client->file, &text, err)
                       : merge_toml(client, &old, entry, client->file, &text, err);
    cay_page_done(&old);
    return code ? code
                : cay_files_write(files, client->file, text.data, text.len, NULL, err);
}

/* The folder of the client's configuration, for the caller to free. */
static int find_folder(const struct client *client, char **ret_folder,
                       struct cay_error *err)
{
    const char *set = client->variable ? getenv(client->variable) : NULL;
    const char *home = getenv("HOME");

    *ret_folder = NULL;
    if (!(set && *set == '/') && !(home && *home == '/'))
        return cay_fail(err, CAY_E_INVALID, 0, op, "HOME", "HOME is not set",
                        "set HOME, or leave out --write");
    int len = set && *set == '/' ? asprintf(ret_folder, "%s/%s", set, client->below)
                                 : asprintf(ret_folder, "%s/%s", home, client->folder);
    return len < 0 ? cay_fail_memory(err, op) : CAY_OK;
}

static int write_file(struct call *call, const struct client *client, json_t *entry,
                      struct cay_error *err)
{
    AUTO_FREE char *folder = NULL;
    cay_policy *policy = NULL;
    cay_files *files = NULL;

    TRY(find_folder(client, &folder, err));
    const struct cay_mount mount = {.size = sizeof mount,
                                    .host = folder,
                                    .writable = true,
                                    .max_file_bytes = CAY_NO_LIMIT};
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_ROOT,
                                             .mounts = &mount,
                                             .mount_count = 1};
    int code = cay_policy_new(&config, &policy, err);
    if (!code)
        code = cay_files_open(policy, NULL, &files, err);
    if (!code)
        code = write_entry(client, files, entry, err);
    if (!code)
        fprintf(call->output.file, "%s%s%s\n", folder,
                folder[strlen(folder) - 1] == '/' ? "" : "/", client->file);
    cay_files_free(files);
    cay_policy_free(policy);
    return code;
}

static int print_entry(struct call *call, const struct client *client, json_t *entry,
                       struct cay_error *err)
{
    AUTO_BUF text = {0};
    json_t *tree = client->key ? json_pack("{s:{s:O}}", client->key, "cay", entry) : NULL;

    buf_init(&text, 16 << 20);
    bool is_done = client->key
                       ? tree && add_input(client, tree, entry) && put_json(&text, tree)
                       : put_toml(&text, client, entry);
    json_decref(tree);
    if (!is_done)
        return cay_fail_memory(err, op);
    fputs(text.data, call->output.file);
    return CAY_OK;
}

static int find_client(const char *name, const struct client **ret_client,
                       struct cay_error *err)
{
    for (size_t i = 0; i < CLIENT_COUNT; i++)
        if (strcmp(clients[i].name, name) == 0) {
            *ret_client = &clients[i];
            return CAY_OK;
        }
    const char *near =
        nearest_name(name, &clients[0].name, sizeof *clients, CLIENT_COUNT);
    return cay_fail(err, CAY_E_INVALID, 0, op, name, "unknown client",
                    "%s%s%sthe clients are claude, codex, cursor and vscode",
                    near ? "did you mean " : "", near ? near : "", near ? "? " : "");
}

/* What the words after the client say. */
struct wanted {
    const char **words;           /* of `cay mcp`: all but --write */
    bool writes, keeps, has_more; /* more: options of the sandbox */
    const char *url, *name;
};

/* NAME or NAME=VALUE */
static bool is_option(const char *word, const char *name)
{
    size_t len = strlen(name);

    return strncmp(word, name, len) == 0 && (!word[len] || word[len] == '=');
}

static bool has_more(const char *const *words)
{
    for (; *words; words++) {
        if (!is_option(*words, "--url") && !is_option(*words, "--name") &&
            !is_option(*words, "--keep"))
            return true;
        words += !strchr(*words, '=') && !is_option(*words, "--keep") && words[1];
    }
    return false;
}

/* The words after the client are options of `cay mcp`, but for --write. */
static int take_words(const char **words, struct wanted *ret, struct cay_error *err)
{
    char mcp[] = "mcp";
    struct call call = {.line = {.count = 0}};
    size_t count = 0;

    for (size_t i = 0; words[i]; i++)
        if (strcmp(words[i], "--write") == 0)
            ret->writes = true;
        else
            words[count++] = words[i];
    words[count] = NULL;
    ret->words = words;
    ret->has_more = has_more(words);
    char **argv = calloc(count + 2, sizeof *argv);
    if (!argv)
        return cay_fail_memory(err, op);
    argv[0] = mcp;
    for (size_t i = 0; i < count; i++)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    int code = options_parse(&sandbox_grammar, argv, &call, err);
    if (!code && call.line.count)
        code = cay_fail(err, CAY_E_INVALID, 0, op, call.line.arguments[0],
                        "too many arguments",
                        "usage: cay mcp install CLIENT [OPTION of cay mcp]...");
    if (!code && call.options.url) {
        ret->url = call.options.url;
        ret->name = call.options.name;
        ret->keeps = call.options.keep;
    }
    options_done(&call);
    free(argv);
    return code;
}

/* The address of the server, with /mcp if it has no path.  A file of a client must not
 * have the key, and "$" would be a variable there. */
static int take_url(const char *given, char **ret_url, struct cay_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-._~:/[]%?&=";
    size_t scheme = strncmp(given, "https://", 8) == 0  ? 8
                    : strncmp(given, "http://", 7) == 0 ? 7
                                                        : 0;
    size_t host = strcspn(given + scheme, "/?");
    const char *path = given + scheme + host;

    if (!scheme || !host || strspn(given, letters) != strlen(given))
        return cay_fail(err, CAY_E_INVALID, 0, op, "--url", "invalid address of a server",
                        "give it as https://HOST:PORT, without a key: clients read that "
                        "from " API_KEY);
    if (asprintf(ret_url, "%.*s%s%s", (int)(scheme + host), given,
                 *path == '/' && path[1] ? "" : "/mcp",
                 *path == '/' && !path[1] ? "" : path) < 0)
        return cay_fail_memory(err, op);
    return CAY_OK;
}

static int remote(const struct client *client, const struct wanted *wanted,
                  json_t **ret_entry, struct cay_error *err)
{
    AUTO_FREE char *url = NULL;
    const char *name = wanted->name;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";

    if (wanted->has_more)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--url",
                        "the server decides about sandboxes and tools",
                        "leave out the other options, or give them to cay serve");
    if (!name != !wanted->keeps)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--keep",
                        "a sandbox that stays needs a name",
                        "give --keep and --name NAME, or none of them");
    if (name && (!*name || strlen(name) > 32 || strspn(name, letters) != strlen(name)))
        return cay_fail(err, CAY_E_INVALID, 0, op, "--name", "invalid name of a sandbox",
                        "use up to 32 letters, digits, \".\", \"_\" and \"-\"");
    TRY(take_url(wanted->url, &url, err));
    *ret_entry = remote_entry(client, url, name);
    return *ret_entry ? CAY_OK : cay_fail_memory(err, op);
}

static int install(struct call *call, struct cay_error *err)
{
    const char **words = call->line.arguments + 1;
    const struct client *client = NULL;
    struct wanted wanted = {.writes = call->options.write};
    json_t *entry = NULL;
    int code = CAY_OK;

    if (!*words)
        return cay_fail(err, CAY_E_INVALID, 0, op, "install", "missing argument",
                        "usage: cay mcp install claude|codex|cursor|vscode");
    TRY(find_client(*words++, &client, err));
    TRY(take_words(words, &wanted, err));
    AUTO_FREE char *cay = find_cay();
    if (wanted.url)
        code = remote(client, &wanted, &entry, err);
    else
        entry = cay ? server_entry(client, cay, wanted.words) : NULL;
    if (!code && !entry)
        code = cay_fail_memory(err, op);
    if (!code)
        code = wanted.writes ? write_file(call, client, entry, err)
                             : print_entry(call, client, entry, err);
    json_decref(entry);
    return code;
}

/* --- wrap --- */

/* A third-party server: its standard streams are ours. */
static int wrap(struct call *call, struct cay_error *err)
{
    if (call->line.count < 2)
        return cay_fail(err, CAY_E_INVALID, 0, op, "wrap", "no command given",
                        "usage: cay mcp wrap [OPTION]... -- COMMAND [ARGUMENT]...");
    if (call->options.tools || call->options.read_only || call->options.sandboxes ||
        call->options.roots > 0 || call->options.keep ||
        call->options.approve_writes.count)
        return cay_fail(
            err, CAY_E_INVALID, 0, op, "wrap", "the wrapped server has tools of its own",
            "leave out --tools, --read-only, --sandboxes, --roots, --keep and "
            "--approve-writes");
    call->line.arguments++;
    call->line.count--;
    call->options.interactive = true;
    int status = run_in_new(call, NULL, NULL, NULL, err);
    call->line.arguments--;
    call->line.count++;
    return status;
}

int cmd_mcp(struct call *call, struct cay_error *err)
{
    const char *word = call->line.count ? call->line.arguments[0] : NULL;

    if (word && strcmp(word, "wrap") == 0)
        return wrap(call, err);
    if (word && strcmp(word, "install") == 0)
        return install(call, err);
    if (word)
        return cay_fail(
            err, CAY_E_INVALID, 0, op, word, "unknown command",
            "usage: cay mcp [wrap|install]; cay mcp --help lists the options");
    return serve(call, err);
}
