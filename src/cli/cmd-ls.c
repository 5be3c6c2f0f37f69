/* SPDX-License-Identifier: Apache-2.0 */
/* cay ls and cay inspect. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/network.h"
#include "cli/output.h"
#include "json/json.h"

static const char *storage_of(const struct cay_sandbox_info *info)
{
    return info->storage == CAY_STORAGE_DISK ? "disk"
           : info->layers & CAY_LAYER_MOUNT  ? "memory"
                                             : "files";
}

/* --- For programs --- */

static void set_uint_if(struct json *json, const char *key, bool is_known, uint64_t value)
{
    json_put_key(json, key);
    if (is_known)
        json_put_uint(json, value);
    else
        json_put_null(json);
}

/* Whether the limit is enforced, or will be once the sandbox is started. */
static bool has_limit(const struct cay_sandbox_info *info, unsigned layer)
{
    return info->state == CAY_STATE_STOPPED || info->layers & layer;
}

static bool has_pids_limit(const struct cay_sandbox_info *info)
{
    for (size_t i = 0; i < info->enforced_count; i++)
        if (info->enforced[i].layer == CAY_LAYER_PIDS)
            return true;
    return has_limit(info, CAY_LAYER_PIDS);
}

static void put_limits(struct json *json, const struct cay_sandbox_info *info)
{
    json_put_key(json, "limits");
    json_put_object(json);
    set_uint_if(json, "memory_bytes", has_limit(info, CAY_LAYER_MEMORY),
                info->memory_bytes);
    set_uint_if(json, "disk_bytes", info->disk_bytes && has_limit(info, CAY_LAYER_DISK),
                info->disk_bytes);
    set_uint_if(json, "pids", has_pids_limit(info), info->pids);
    set_uint_if(json, "cpu_percent", info->cpu_percent, info->cpu_percent);
    json_put_end(json);
    json_put_key(json, "used");
    json_put_object(json);
    json_set_uint(json, "memory_bytes", info->memory_used);
    set_uint_if(json, "disk_bytes", info->layers & CAY_LAYER_DISK, info->disk_used);
    json_set_uint(json, "pids", info->pids_used);
    set_uint_if(json, "cpu_us", info->layers & CAY_LAYER_CGROUP, info->cpu_us);
    json_put_end(json);
}

static void put_layers(struct json *json, const struct cay_sandbox_info *info)
{
    json_put_key(json, "layers");
    json_put_array(json);
    for (unsigned layer = 1; cay_layer_slug(layer); layer <<= 1)
        if (info->layers & layer)
            json_put_text(json, cay_layer_slug(layer));
    json_put_end(json);
    json_put_key(json, "enforced");
    json_put_array(json);
    for (size_t i = 0; i < info->enforced_count && i < CAY_LAYERS_MAX; i++) {
        json_put_object(json);
        json_set_text(json, "layer", cay_layer_slug(info->enforced[i].layer));
        json_set_text(json, "by", info->enforced[i].by);
        json_put_end(json);
    }
    json_put_end(json);
}

/* The rules of a relayed network; an empty list if the sandbox has just ended. */
static void put_network(struct json *json, const struct cay_sandbox_info *info)
{
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO(cay_policy) policy = NULL;

    json_set_text(json, "network", network_slug(info->network));
    if (info->network > CAY_NETWORK_HOST &&
        cay_sandbox_open(info->id, &sandbox, NULL) == CAY_OK &&
        cay_sandbox_get_network(sandbox, &policy, NULL) == CAY_OK)
        network_put_rules(json, policy);
}

static void put_words(struct json *json, const char *key, const char *words)
{
    char word[CAY_NETWORKS_MAX];

    json_put_key(json, key);
    json_put_array(json);
    for (words += strspn(words, " "); *words; words += strspn(words, " ")) {
        size_t len = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)len, words);
        json_put_text(json, word);
        words += len;
    }
    json_put_end(json);
}

/* The members of one sandbox, into the object that is open. */
static void put_sandbox(struct json *json, const void *item)
{
    const struct cay_sandbox_info *info = item;

    json_set_text(json, "id", info->id);
    json_set_text(json, "name", info->name[0] ? info->name : NULL);
    json_set_text(json, "type", info->type);
    json_set_text(json, "state", show_state(info->state));
    json_set_text(json, "level",
                  info->state == CAY_STATE_STOPPED ? NULL : cay_level_slug(info->level));
    json_set_text(json, "template", info->template_name);
    json_set_text(json, "user", info->user);
    json_set_text(json, "workdir", info->workdir);
    put_network(json, info);
    put_words(json, "networks", info->networks);
    put_words(json, "volumes", info->volumes);
    json_set_text(json, "storage", storage_of(info));
    json_set_bool(json, "ephemeral", info->ephemeral);
    json_set_int(json, "created_ms", info->created_ms);
    set_uint_if(json, "ttl_left_ms", info->ttl_left_ms, info->ttl_left_ms);
    json_set_int(json, "init_pid", info->init_pid);
    json_set_uint(json, "id_base", info->id_base);
    json_set_uint(json, "id_count", info->id_count);
    put_limits(json, info);
    put_layers(json, info);
}

/* --- ls --- */

static void add_row(struct table *table, const void *item)
{
    const struct cay_sandbox_info *info = item;
    char room[QUANTITY_ROOM], memory[QUANTITY_ROOM];

    table_cell(table, "%s", info->id);
    table_cell(table, "%s", info->name);
    table_cell(table, "%s", info->type);
    table_cell(table, "%s", show_state(info->state));
    table_cell(table, "%s", quantity_age(info->created_ms, room));
    table_cell(table, "%s",
               info->ttl_left_ms ? quantity_time(info->ttl_left_ms, room) : "");
    if (info->layers & CAY_LAYER_MEMORY)
        table_cell(table, "%s / %s", quantity_bytes(info->memory_used, room),
                   quantity_bytes(info->memory_bytes, memory));
    else if (info->state == CAY_STATE_STOPPED && info->memory_bytes)
        table_cell(table, "%s", quantity_bytes(info->memory_bytes, memory));
    else
        table_cell(table, "no limit");
    table_cell(table, "%" PRIu32, info->pids_used);
    table_cell(table, "%s", info->template_name);
}

static void add_joined_row(struct table *table, const void *item)
{
    add_row(table, item);
    table_cell(table, "%s", ((const struct cay_sandbox_info *)item)->networks);
}

static bool any_is_joined(const struct cay_sandbox_info *infos, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (infos[i].networks[0])
            return true;
    return false;
}

static const char *id_of(const void *item)
{
    return ((const struct cay_sandbox_info *)item)->id;
}

static void put_warm(struct json *json, const void *item)
{
    const struct cay_warm_info *info = item;

    json_set_text(json, "id", info->id);
    json_set_text(json, "template", info->template_name);
    json_set_text(json, "language", info->language);
    json_set_text(json, "preload", info->preload);
    json_set_uint(json, "bytes", info->bytes);
    json_set_int(json, "created_ms", info->created_ms);
    json_set_int(json, "used_ms", info->used_ms);
    json_set_text(json, "failure", *info->failure ? info->failure : NULL);
}

static void add_warm_row(struct table *table, const void *item)
{
    const struct cay_warm_info *info = item;
    char room[QUANTITY_ROOM];

    table_cell(table, "%s", info->id);
    table_cell(table, "%s", info->language);
    table_cell(table, "%s", *info->preload ? info->preload : "-");
    table_cell(table, "%s", info->bytes ? quantity_bytes(info->bytes, room) : "-");
    table_cell(table, "%s", quantity_age(info->created_ms, room));
    table_cell(table, "%s", quantity_age(info->used_ms, room));
    table_cell(table, "%s", info->template_name);
    table_cell(table, "%s", *info->failure ? info->failure : "saved");
}

/* A second list. */
static int list_warm(struct call *call, const struct cay_warm_info *infos, size_t count,
                     struct cay_error *err)
{
    static const struct call_list interpreters = {
        "interpreters", "INTERPRETER|LANGUAGE|PRELOAD|SIZE|AGE|LAST USE|TEMPLATE|STATE",
        sizeof *infos,  put_warm,
        add_warm_row,   NULL};

    if (call->options.as_json) {
        json_put_end(&call->output.json);
        json_put_key(&call->output.json, interpreters.key);
        json_put_array(&call->output.json);
        for (size_t i = 0; i < count; i++) {
            json_put_object(&call->output.json);
            put_warm(&call->output.json, &infos[i]);
            json_put_end(&call->output.json);
        }
        return CAY_OK;
    }
    if (call->options.quiet || !count)
        return CAY_OK;
    fputc('\n', call->output.file);
    return call_list(call, &interpreters, infos, count, err);
}

int cmd_ls(struct call *call, struct cay_error *err)
{
    struct call_list sandboxes = {"sandboxes",
                                  "ID|NAME|TYPE|STATE|AGE|TTL|MEMORY|PROCESSES|TEMPLATE",
                                  sizeof(struct cay_sandbox_info),
                                  put_sandbox,
                                  add_row,
                                  id_of};
    AUTO_FREE struct cay_sandbox_info *infos = NULL;
    AUTO_FREE struct cay_warm_info *warm = NULL;
    size_t count = 0, warm_count = 0;
    bool is_brief = call->options.quiet && !call->options.as_json;

    if (call->options.all)
        TRY(sandbox_program.list_warm(&warm, &warm_count, err));
    TRY(is_brief ? cay_sandbox_list_brief(&infos, &count, err)
                 : cay_sandbox_list(&infos, &count, err));
    if (!call->options.all)
        count = drop_spares(infos, count);
    if (any_is_joined(infos, count)) {
        sandboxes.headings =
            "ID|NAME|TYPE|STATE|AGE|TTL|MEMORY|PROCESSES|TEMPLATE|NETWORKS";
        sandboxes.row = add_joined_row;
    }
    TRY(call_list(call, &sandboxes, infos, count, err));
    return call->options.all ? list_warm(call, warm, warm_count, err) : CAY_OK;
}

/* --- inspect --- */

static void print_limits(FILE *file, const struct cay_sandbox_info *info)
{
    char used[QUANTITY_ROOM], limit[QUANTITY_ROOM];

    if (info->level == CAY_LEVEL_NONE) {
        fprintf(file, "processes: %" PRIu32 ", with %s; no limits\n", info->pids_used,
                quantity_bytes(info->memory_used, used));
        return;
    }
    if (info->layers & CAY_LAYER_MEMORY)
        fprintf(file, "memory:    %s of %s\n", quantity_bytes(info->memory_used, used),
                quantity_bytes(info->memory_bytes, limit));
    else
        fputs("memory:    no limit\n", file);
    if (info->layers & CAY_LAYER_DISK)
        fprintf(file, "disk:      %s of %s, in %s\n",
                quantity_bytes(info->disk_used, used),
                quantity_bytes(info->disk_bytes, limit),
                info->storage == CAY_STORAGE_DISK ? "files" : "memory");
    else
        fputs("disk:      in files; no limit\n", file);
    fprintf(file, "processes: %" PRIu32, info->pids_used);
    if (has_pids_limit(info))
        fprintf(file, " of %" PRIu32 "\n", info->pids);
    else
        fputs("; no limit\n", file);
    if (!(info->layers & CAY_LAYER_CGROUP)) {
        fputs("cpu:       not measured\n", file);
        return;
    }
    fprintf(file, "cpu:       %" PRIu64 ".%03u s used, ", info->cpu_us / 1000000,
            (unsigned)(info->cpu_us / 1000 % 1000));
    if (info->cpu_percent)
        fprintf(file, "at most %" PRIu32 "%% of one CPU\n", info->cpu_percent);
    else
        fputs("no limit\n", file);
}

static void print_stopped(FILE *file, const struct cay_sandbox_info *info)
{
    char limit[QUANTITY_ROOM];

    if (info->disk_bytes)
        fprintf(file, "disk:      at most %s, in files\n",
                quantity_bytes(info->disk_bytes, limit));
    fprintf(file,
            "limits:    %s of memory and %" PRIu32 " processes, once it is started\n",
            quantity_bytes(info->memory_bytes, limit), info->pids);
}

static void print_sandbox(FILE *file, const struct cay_sandbox_info *info)
{
    char room[QUANTITY_ROOM], when[32] = "";
    time_t seconds = (time_t)(info->created_ms / 1000);
    struct tm tm;

    if (gmtime_r(&seconds, &tm))
        (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    fprintf(file, "id:        %s\n", info->id);
    if (info->name[0])
        fprintf(file, "name:      %s\n", info->name);
    fprintf(file, "type:      %s\nstate:     %s\n", info->type, show_state(info->state));
    fprintf(file, "created:   %s, %s ago", when, quantity_age(info->created_ms, room));
    fputs(info->ephemeral ? ", ends with the process that created it\n" : "\n", file);
    if (info->ttl_left_ms)
        fprintf(file, "ends in:   %s\n", quantity_time(info->ttl_left_ms, room));
    fputs("template:  ", file);
    show_name(file, info->template_name);
    fputs("\nuser:      ", file);
    show_name(file, info->user);
    fputs(" in ", file);
    show_name(file, info->workdir[0] ? info->workdir : "its home");
    fprintf(file, "\nnetwork:   %s\n", network_slug(info->network));
    if (info->networks[0])
        fprintf(file, "networks:  %s\n", info->networks);
    if (info->volumes[0])
        fprintf(file, "volumes:   %s\n", info->volumes);
    if (info->state == CAY_STATE_STOPPED) {
        print_stopped(file, info);
        return;
    }
    print_limits(file, info);
    if (info->level == CAY_LEVEL_NONE) {
        fprintf(file,
                "host:      first process %d\nisolation: none: processes run directly on "
                "this machine\n",
                info->init_pid);
        return;
    }
    fprintf(file,
            "host:      first process %d, user IDs from %" PRIu32 ", %" PRIu32
            " of them\n",
            info->init_pid, info->id_base, info->id_count);
    fprintf(file, "isolation: level %s\n", cay_level_slug(info->level));
    for (size_t i = 0; i < info->enforced_count && i < CAY_LAYERS_MAX; i++) {
        fprintf(file, "  %-9s", cay_layer_slug(info->enforced[i].layer));
        show_name(file, info->enforced[i].by);
        fputc('\n', file);
    }
    for (unsigned layer = 1; cay_layer_slug(layer); layer <<= 1)
        if (!(info->layers & layer))
            fprintf(file, "  %-9s%s\n", cay_layer_slug(layer),
                    layer == CAY_LAYER_CPU && !info->cpu_percent ? "no limit requested"
                                                                 : "not active");
}

/* Not of a paused sandbox: the process that counts is paused with it. */
static bool count_network(cay_sandbox *sandbox, const struct cay_sandbox_info *info,
                          struct cay_network_counts *ret_counts)
{
    return info->network > CAY_NETWORK_HOST && info->state == CAY_STATE_RUNNING &&
           cay_sandbox_count_network(sandbox, ret_counts, NULL) == CAY_OK;
}

static void print_counts(FILE *file, const struct cay_network_counts *counts)
{
    char up[QUANTITY_ROOM], down[QUANTITY_ROOM];

    fprintf(file,
            "traffic:   %" PRIu64 " connections, %" PRIu64 " refused, %s up, %s down\n",
            counts->allowed, counts->refused, quantity_bytes(counts->up_bytes, up),
            quantity_bytes(counts->down_bytes, down));
}

int cmd_inspect(struct call *call, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;
    struct cay_sandbox_info info;
    struct cay_network_counts counts;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    TRY(cay_sandbox_inspect(sandbox, &info, err));
    bool has_counts = count_network(sandbox, &info, &counts);
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        put_sandbox(json, &info);
        if (has_counts)
            network_put_counts(json, "network_counts", &counts);
        return CAY_OK;
    }
    print_sandbox(call->output.file, &info);
    if (has_counts)
        print_counts(call->output.file, &counts);
    return CAY_OK;
}
