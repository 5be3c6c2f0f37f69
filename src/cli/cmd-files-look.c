/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that tell about a path: resolve, explain, roots, stat, exists. */
#include "cli/cmd-files.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "json/json.h"

static void end_line(struct output *output, const char *name)
{
    output_name(output, name);
    fputc('\n', output->file);
}

int cmd_files_resolve(struct files_run *run, struct cay_error *err)
{
    struct cay_location location = {.size = sizeof location};
    int rc = cay_files_locate(run->files, run->line.arguments[0], CAY_ACCESS_READ,
                              &location, err);

    if (rc)
        return rc;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", location.path);
        json_set_text(&json, "mount", location.name);
        json_set_text(&json, "access", location.access & CAY_ACCESS_WRITE ? "rw" : "ro");
        json_set_bool(&json, "exists", location.exists);
        json_set_bool(&json, "read_approval", location.read_approval);
        json_set_bool(&json, "write_approval", location.write_approval);
        if (run->options.host)
            json_set_text(&json, "host", location.host);
        output_end_json(&run->output, &json);
    } else {
        end_line(&run->output, run->options.host ? location.host : location.path);
    }
    cay_location_done(&location);
    return 0;
}

int cmd_files_explain(struct files_run *run, struct cay_error *err)
{
    char *sentence;
    int rc = cay_files_explain(run->files, run->line.arguments[0], &sentence, err);

    if (rc)
        return rc;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", run->line.arguments[0]);
        json_set_text(&json, "explanation", sentence);
        output_end_json(&run->output, &json);
    } else {
        end_line(&run->output, sentence);
    }
    cay_free(sentence);
    return 0;
}

static void put_roots(struct json *json, const char *key, const struct cay_strings *roots)
{
    json_put_key(json, key);
    json_put_array(json);
    for (size_t i = 0; i < roots->count; i++)
        json_put_text(json, roots->items[i]);
    json_put_end(json);
}

static bool contains(const struct cay_strings *strings, const char *text)
{
    for (size_t i = 0; i < strings->count; i++)
        if (strcmp(strings->items[i], text) == 0)
            return true;
    return false;
}

static void show_roots(struct files_run *run, const struct cay_strings *readable,
                       const struct cay_strings *writable)
{
    struct json json;

    if (!run->options.as_json) {
        for (size_t i = 0; i < readable->count; i++) {
            fputs(contains(writable, readable->items[i]) ? "rw " : "ro ",
                  run->output.file);
            end_line(&run->output, readable->items[i]);
        }
        return;
    }
    output_begin_json(&run->output, &json);
    put_roots(&json, "readable", readable);
    put_roots(&json, "writable", writable);
    output_end_json(&run->output, &json);
}

int cmd_files_roots(struct files_run *run, struct cay_error *err)
{
    struct cay_strings readable, writable;
    int rc = cay_files_roots(run->files, CAY_ACCESS_READ, &readable, err);

    if (rc)
        return rc;
    rc = cay_files_roots(run->files, CAY_ACCESS_WRITE, &writable, err);
    if (!rc) {
        show_roots(run, &readable, &writable);
        cay_strings_done(&writable);
    }
    cay_strings_done(&readable);
    return rc;
}

const char *cmd_files_type(enum cay_type type)
{
    switch (type) {
    case CAY_TYPE_FILE:
        return "file";
    case CAY_TYPE_DIRECTORY:
        return "directory";
    case CAY_TYPE_LINK:
        return "link";
    case CAY_TYPE_OTHER:
        break;
    }
    return "other";
}

const char *cmd_files_time(const struct cay_stat *stat, char room[TIME_ROOM])
{
    int64_t second = INT64_C(1000000000);
    time_t seconds = stat->mtime_ns / second - (stat->mtime_ns % second < 0);
    struct tm parts;

    if (!gmtime_r(&seconds, &parts) ||
        strftime(room, TIME_ROOM, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        return "?";
    return room;
}

void cmd_files_put_stat(struct json *json, const struct cay_stat *stat)
{
    char mode[16];

    snprintf(mode, sizeof mode, "%04" PRIo32, stat->mode);
    json_set_text(json, "type", cmd_files_type(stat->type));
    json_set_uint(json, "bytes", stat->bytes);
    json_set_text(json, "mode", mode);
    json_set_uint(json, "uid", stat->uid);
    json_set_uint(json, "gid", stat->gid);
    json_set_uint(json, "links", stat->links);
    json_set_int(json, "mtime_ns", stat->mtime_ns);
}

int cmd_files_stat(struct files_run *run, struct cay_error *err)
{
    char time[TIME_ROOM];
    struct cay_stat stat;
    int rc = cay_files_stat(run->files, run->line.arguments[0], run->options.no_follow,
                            &stat, err);

    if (rc)
        return rc;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", run->line.arguments[0]);
        cmd_files_put_stat(&json, &stat);
        output_end_json(&run->output, &json);
        return 0;
    }
    fprintf(run->output.file,
            "type: %s\nbytes: %" PRIu64 "\nmode: %04" PRIo32 "\nuid: %" PRIu32
            "\ngid: %" PRIu32 "\nlinks: %" PRIu64 "\nmodified: %s\n",
            cmd_files_type(stat.type), stat.bytes, stat.mode, stat.uid, stat.gid,
            stat.links, cmd_files_time(&stat, time));
    return 0;
}

int cmd_files_exists(struct files_run *run, struct cay_error *err)
{
    int exists = cay_files_exists(run->files, run->line.arguments[0], err);

    if (exists < 0)
        return exists;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", run->line.arguments[0]);
        json_set_bool(&json, "exists", exists);
        output_end_json(&run->output, &json);
    } else {
        fputs(exists ? "true\n" : "false\n", run->output.file);
    }
    return exists ? 0 : cay_code_exit(CAY_E_NOT_FOUND);
}
