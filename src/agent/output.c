/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/text.h"
#include "agent/transfer.h"
#include "base/auto.h"
#include "base/error.h"
#include "cay/backend.h"
#include "sys/io.h"

/* --- Result files ----------------------------------------------------------------------
 */

#define PREFIX "cay-results"

static const char results_op[] = "command.results";

enum { TRIES = 8, DIGITS = 16 };

void results_hex(char *text, unsigned digits)
{
    unsigned char random[8];

    /* Up to 256 bytes are never cut short, once the pool is initialized. */
    while (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        continue;
    for (unsigned i = 0; i < digits / 2; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", random[i]);
}

void results_done(struct results *results)
{
    free(results->base);
    free(results->dir);
    free(results->files[0]);
    free(results->files[1]);
    *results = (struct results){0};
}

int results_at(const char *base, const char *name, struct results *ret_results,
               struct cay_error *err)
{
    struct results *results = ret_results;

    *results = (struct results){.base = strdup(base), .dir = userfs_join(base, name)};
    if (results->dir) {
        results->files[0] = userfs_join(results->dir, "stdout.txt");
        results->files[1] = userfs_join(results->dir, "stderr.txt");
    }
    if (results->base && results->files[0] && results->files[1])
        return CAY_OK;
    results_done(results);
    return cay_fail_memory(err, results_op);
}

int results_name(const struct results *results, struct cay_command_result *result,
                 struct cay_error *err)
{
    result->output_dir = strdup(results->dir);
    result->out_file = strdup(results->files[0]);
    result->error_file = strdup(results->files[1]);
    return result->output_dir && result->out_file && result->error_file
               ? CAY_OK
               : cay_fail_memory(err, results_op);
}

/* --- Base directories -----------------------------------------------------------------
 */

void results_bases_done(struct results_bases *bases)
{
    for (size_t i = 0; i < bases->count; i++)
        free(bases->items[i].path);
    free(bases->items);
    *bases = (struct results_bases){0};
}

static bool is_base(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    const size_t prefix = strlen(PREFIX "-");

    return strncmp(name, PREFIX "-", prefix) == 0 && strlen(name + prefix) == DIGITS &&
           strspn(name + prefix, hex) == DIGITS;
}

/* A directory that other users can read or write is not a base. */
static int add_base(struct userfs *fs, const char *name, const struct identity *identity,
                    struct results_bases *bases, struct cay_error *err)
{
    AUTO_FREE char *path = userfs_join(userfs_temp(fs), name);
    struct cay_stat stat;

    if (!path)
        return cay_fail_memory(err, results_op);
    if (userfs_stat(fs, path, true, &stat, NULL) != CAY_OK ||
        stat.type != CAY_TYPE_DIRECTORY || stat.mode & 077)
        return CAY_OK;
    struct results_base *grown =
        reallocarray(bases->items, bases->count + 1, sizeof *bases->items);
    if (!grown)
        return cay_fail_memory(err, results_op);
    bases->items = grown;
    size_t at = bases->count++;
    if (!identity->is_known || identity->uid == stat.uid) {
        size_t others = at - bases->own_count;
        at = bases->own_count++;
        memmove(&grown[at + 1], &grown[at], others * sizeof *grown);
    }
    grown[at] = (struct results_base){TAKE_PTR(path), stat.uid};
    return CAY_OK;
}

int results_bases(struct userfs *fs, struct results_bases *ret_bases,
                  struct cay_error *err)
{
    const struct identity identity = userfs_identity(fs);
    struct cay_listing listing = {0};
    AUTO_BASES bases = {0};

    if (!userfs_temp(fs))
        return cay_fail_memory(err, results_op);
    int code = userfs_list(fs, userfs_temp(fs), false, false, &listing, err);
    for (size_t i = 0; !code && i < listing.count; i++)
        if (is_base(listing.entries[i].path))
            code = add_base(fs, listing.entries[i].path, &identity, &bases, err);
    cay_listing_done(&listing);
    if (code)
        return code;
    *ret_bases = bases;
    bases = (struct results_bases){0};
    return CAY_OK;
}

int results_private(struct userfs *fs, const char *prefix, char **ret_path,
                    struct cay_error *err)
{
    const char *top = userfs_temp(fs);
    char name[64], hex[DIGITS + 1];

    if (!top)
        return cay_fail_memory(err, results_op);
    for (int i = 0; i < TRIES; i++) {
        results_hex(hex, DIGITS);
        snprintf(name, sizeof name, "%s-%s", prefix, hex);
        AUTO_FREE char *path = userfs_join(top, name);
        int code =
            path ? userfs_mkdir_private(fs, path, err) : cay_fail_memory(err, results_op);
        if (!code)
            *ret_path = TAKE_PTR(path);
        if (code != CAY_E_EXISTS)
            return code;
    }
    return CAY_E_EXISTS;
}

static int find_base(struct userfs *fs, char **ret_base, struct cay_error *err)
{
    AUTO_BASES bases = {0};
    int code = results_bases(fs, &bases, err);

    if (code)
        return code;
    if (!bases.own_count)
        return results_private(fs, PREFIX, ret_base, err);
    *ret_base = TAKE_PTR(bases.items[0].path);
    return CAY_OK;
}

int results_new(struct userfs *fs, struct results *ret_results, struct cay_error *err)
{
    AUTO_FREE char *base = NULL;
    AUTO_RESULTS results = {0};
    char name[RESULTS_NAME];

    int code = find_base(fs, &base, err);
    for (int i = 0; !code && i < TRIES; i++) {
        results_done(&results);
        results_hex(name, RESULTS_NAME - 1);
        code = results_at(base, name, &results, err);
        if (!code)
            code = userfs_mkdir(fs, results.dir, CAY_NAME_NO_PARENTS, err);
        if (code == CAY_E_EXISTS && i + 1 < TRIES)
            code = CAY_OK;
        else
            break;
    }
    if (code)
        return code;
    *ret_results = results;
    results = (struct results){0};
    return CAY_OK;
}

int results_keep_command(struct userfs *fs, const struct results *results,
                         const char *command, char **ret_path, struct cay_error *err)
{
    AUTO_FREE char *path = userfs_join(results->dir, RESULTS_COMMAND);

    if (!path)
        return cay_fail_memory(err, results_op);
    int code = userfs_write(fs, path, command, strlen(command), 0, NULL, err);
    if (!code && ret_path)
        *ret_path = TAKE_PTR(path);
    return code;
}

/* --- Scripts ---------------------------------------------------------------------------
 */

int script_create(cay_sandbox *sandbox, const char *user, const char *name,
                  const void *text, size_t len, struct script *ret_script,
                  struct cay_error *err)
{
    struct script *script = ret_script;

    *script = (struct script){0};
    int code = userfs_open(sandbox, user, &script->fs, err);
    if (!code)
        code = results_private(&script->fs, "cay-code", &script->dir, err);
    if (code)
        return code;
    script->path = userfs_join(script->dir, name);
    if (!script->path)
        return cay_fail_memory(err, "code.script");
    return userfs_write(&script->fs, script->path, text, len,
                        CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS, NULL, err);
}

void script_done(struct script *script)
{
    if (script->dir)
        (void)!userfs_remove(&script->fs, script->dir, NULL);
    free(script->dir);
    free(script->path);
    userfs_close(&script->fs);
    *script = (struct script){0};
}

/* --- Output ----------------------------------------------------------------------------
 */

static const char op[] = "command.output";

#define SPOOL_MAX (256ull << 20)

enum { HEAD_BYTES = 1 << 20 };

void output_done(struct output *output)
{
    free(output->raw[0].data);
    free(output->raw[1].data);
    output->raw[0].data = output->raw[1].data = NULL;
}

/* --- The files ------------------------------------------------------------------------
 */

/* If the files cannot be written, the result still has the tail of the output. */
static void keep(struct output *output, struct cay_command_result *result)
{
    struct cay_error why = {0};
    size_t used = strlen(result->message);
    char text[sizeof why.message + 64];

    if (output->results || !output->keep || output->failed ||
        output->keep(output->cookie, output, &why) == CAY_OK)
        return;
    output->failed = true;
    snprintf(text, sizeof text, "%sThe whole output could not be stored: %s",
             *result->message ? ". " : "", why.message);
    cay_copy_text(result->message + used, sizeof result->message - used, text);
}

/* --- Cleaning -------------------------------------------------------------------------
 */

struct text {
    char *text;
    size_t len, chars;
};

/* A cleaned stream.  One that was too long for memory has two parts, with a gap between
 * them. */
struct cleaned {
    struct text parts[2];
    uint64_t gap;      /* bytes */
    uint64_t original; /* characters before anything was cut */
    bool is_short;     /* something was cut */
    bool differs;      /* from the bytes */
};

static void cleaned_done(struct cleaned *cleaned)
{
    free(cleaned->parts[0].text);
    free(cleaned->parts[1].text);
}

static int clean_part(struct cleaned *cleaned, int part, const char *data, size_t len,
                      struct cay_error *err)
{
    struct text *text = &cleaned->parts[part];
    size_t tidied;
    bool missing = false;
    AUTO_FREE char *copy = text_decode(data, len, &tidied);

    if (copy) {
        tidied = text_resolve_cr(copy, text_strip_ansi(copy, tidied));
        text->text = text_collapse(copy, tidied, TEXT_MIN_RUN, &text->len, &missing);
    }
    if (!text->text)
        return cay_fail_memory(err, op);
    text->chars = text_chars(text->text, text->len);
    cleaned->original += text_chars(copy, tidied);
    cleaned->is_short = cleaned->is_short || missing;
    cleaned->differs = cleaned->differs || text->len != len ||
                       (len && memcmp(text->text, data, len) != 0);
    return CAY_OK;
}

static int clean(const struct output *output, int stream, struct cleaned *cleaned,
                 struct cay_error *err)
{
    const struct raw *raw = &output->raw[stream];
    uint64_t before = raw->total - raw->len, total;
    struct cay_content head = {0};

    if (before && output->results)
        (void)userfs_read(output->fs, output->results->files[stream], 0,
                          before < HEAD_BYTES ? before : HEAD_BYTES, &head, &total, NULL);
    cleaned->gap = before - head.len;
    cleaned->original = cleaned->gap;
    cleaned->is_short = cleaned->differs = cleaned->gap > 0;
    int code = clean_part(cleaned, 0, head.len ? head.data : "", head.len, err);
    if (!code)
        code = clean_part(cleaned, 1, raw->data, raw->len, err);
    free(head.data);
    return code;
}

/* --- Cutting --------------------------------------------------------------------------
 */

/* "1,234,567" */
static const char *with_commas(uint64_t number, char text[32])
{
    char *at = text + 31;

    *at = '\0';
    for (unsigned digits = 0; number || !digits; digits++, number /= 10) {
        if (digits && digits % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + number % 10);
    }
    return at;
}

struct cut {
    size_t head, tail; /* characters */
    const char *file;  /* or NULL */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void put_marker(struct buf *out, uint64_t omitted, const char *file)
{
    char number[32];

    buf_format(out, "\n\n[... %s characters omitted ...]\n",
               with_commas(omitted, number));
    if (file)
        buf_format(out, "[The whole output: %s]\n", file);
    buf_text(out, "\n");
}

/* The beginning and the end, and a marker with the number of characters between them. */
static char *join(const struct cleaned *cleaned, const struct cut *cut, size_t *ret_len)
{
    const struct text *first = &cleaned->parts[0], *last = &cleaned->parts[1];
    const struct text *front = first->chars ? first : last;
    bool no_head = cleaned->gap && !first->chars;
    size_t head = no_head ? 0 : least(cut->head, front->chars);
    size_t tail = least(cut->tail, front == last ? last->chars - head : last->chars);
    uint64_t omitted = first->chars + cleaned->gap + last->chars - head - tail;
    size_t start = text_offset(last->text, last->len, last->chars - tail);
    AUTO_BUF out;

    buf_init(&out, SIZE_MAX / 2);
    buf_append(&out, front->text, text_offset(front->text, front->len, head));
    if (omitted)
        put_marker(&out, omitted, cut->file);
    buf_append(&out, last->text + start, last->len - start);
    *ret_len = out.len;
    return buf_take(&out);
}

static int put_stream(struct cleaned *cleaned, bool over, const struct cut *cut,
                      char **ret_text, size_t *ret_len, struct cay_error *err)
{
    struct text *first = &cleaned->parts[0], *last = &cleaned->parts[1];
    size_t chars = first->chars + last->chars;
    bool cuts = cleaned->gap || (over && chars > (uint64_t)cut->head + cut->tail);
    const struct cut nothing = {chars, chars, NULL};

    cleaned->is_short = cleaned->is_short || cuts;
    if (!cuts && !first->len) {
        *ret_text = TAKE_PTR(last->text);
        *ret_len = last->len;
        return CAY_OK;
    }
    *ret_text = join(cleaned, cuts ? cut : &nothing, ret_len);
    return *ret_text ? CAY_OK : cay_fail_memory(err, op);
}

/* --- Results --------------------------------------------------------------------------
 */

static struct cut cut_of(const struct cay_command_options *options, uint32_t *ret_least)
{
    if (!options->threshold_chars && !options->head_chars && !options->tail_chars) {
        *ret_least = CAY_THRESHOLD_CHARS;
        return (struct cut){CAY_HEAD_CHARS, CAY_TAIL_CHARS, NULL};
    }
    *ret_least = options->threshold_chars;
    return (struct cut){options->head_chars, options->tail_chars, NULL};
}

static int put_both(const struct output *output,
                    const struct cay_command_options *options, struct cleaned cleaned[2],
                    struct cay_command_result *result, struct cay_error *err)
{
    char **texts[] = {&result->out, &result->error};
    size_t *lens[] = {&result->out_len, &result->error_len};
    uint64_t *originals[] = {&result->original_out_len, &result->original_error_len};
    uint64_t chars = 0;
    uint32_t least;
    struct cut cut = cut_of(options, &least);

    for (int i = 0; i < 2; i++)
        chars += cleaned[i].gap + cleaned[i].parts[0].chars + cleaned[i].parts[1].chars;
    for (int i = 0; i < 2; i++) {
        cut.file = output->results ? output->results->files[i] : NULL;
        int code = put_stream(&cleaned[i], chars >= least, &cut, texts[i], lens[i], err);
        if (code)
            return code;
        *originals[i] = cleaned[i].original;
        result->truncated = result->truncated || cleaned[i].is_short;
    }
    return CAY_OK;
}

/* Whether the result differs from the raw bytes, so that the files are needed. */
static bool is_changed(const struct cay_command_options *options,
                       const struct cleaned cleaned[2])
{
    uint32_t least;
    struct cut cut = cut_of(options, &least);
    uint64_t chars = cleaned[0].original + cleaned[1].original;

    for (int i = 0; i < 2; i++)
        if (cleaned[i].differs ||
            (chars >= least && cleaned[i].original > (uint64_t)cut.head + cut.tail))
            return true;
    return false;
}

static int show_clean(struct output *output, const struct cay_command_options *options,
                      struct cay_command_result *result, struct cay_error *err)
{
    struct cleaned cleaned[2] = {0};

    if (output->raw[0].total > output->raw[0].len ||
        output->raw[1].total > output->raw[1].len)
        keep(output, result);
    int code = clean(output, 0, &cleaned[0], err);
    if (!code)
        code = clean(output, 1, &cleaned[1], err);
    if (!code && is_changed(options, cleaned))
        keep(output, result);
    if (!code)
        code = put_both(output, options, cleaned, result, err);
    cleaned_done(&cleaned[0]);
    cleaned_done(&cleaned[1]);
    return code;
}

static void show_raw(struct output *output, struct cay_command_result *result)
{
    const struct raw *raw = output->raw;

    result->truncated = raw[0].total > raw[0].len || raw[1].total > raw[1].len;
    if (result->truncated)
        keep(output, result);
    result->out_len = raw[0].len;
    result->error_len = raw[1].len;
    result->original_out_len = raw[0].total;
    result->original_error_len = raw[1].total;
    result->out = TAKE_PTR(output->raw[0].data);
    result->error = TAKE_PTR(output->raw[1].data);
}

int output_show(struct output *output, const struct cay_command_options *options,
                struct cay_command_result *result, struct cay_error *err)
{
    /* Without the files nothing is missing from the result. */
    if (options->flags & CAY_COMMAND_KEEP && !output->results && output->keep)
        (void)!output->keep(output->cookie, output, NULL);
    if (options->flags & CAY_COMMAND_CLEAN) {
        int code = show_clean(output, options, result, err);
        if (code)
            return code;
    } else {
        show_raw(output, result);
    }
    return output->results ? results_name(output->results, result, err) : CAY_OK;
}

/* --- Capturing a running command ------------------------------------------------------
 */

void capture_init(struct capture *capture, cay_sandbox *sandbox, const char *user,
                  const char *command)
{
    *capture = (struct capture){.sandbox = sandbox, .user = user, .command = command};
    for (int i = 0; i < 2; i++) {
        tail_init(&capture->streams[i].tail, OUTPUT_MAX);
        capture->streams[i].spool = -1;
    }
}

void capture_done(struct capture *capture)
{
    for (int i = 0; i < 2; i++) {
        tail_done(&capture->streams[i].tail);
        if (capture->streams[i].spool >= 0)
            (void)close(capture->streams[i].spool);
    }
    userfs_close(&capture->fs);
    results_done(&capture->results);
}

/* Creates the directory of the files on first use. */
static int open_results(struct capture *capture, struct cay_error *err)
{
    int code = CAY_OK;

    if (!capture->fs.sandbox)
        code = userfs_open(capture->sandbox, capture->user, &capture->fs, err);
    if (!code && !capture->results.dir)
        code = results_new(&capture->fs, &capture->results, err);
    return code;
}

static int append_here(struct capture *capture, int stream, const char *data, size_t len,
                       struct cay_error *err)
{
    int *spool = &capture->streams[stream].spool;

    if (*spool < 0)
        *spool = transfer_spool("/tmp");
    if (*spool < 0)
        return cay_fail_errno(err, errno, op, "spool");
    if (capture->streams[stream].total + len > SPOOL_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "the output exceeds 256 MiB, the limit for a remote sandbox",
                        "redirect the output to a file in the sandbox");
    int error = io_write(*spool, data, len);
    return error ? cay_fail_errno(err, -error, op, "spool") : CAY_OK;
}

static void append(struct capture *capture, int stream, const char *data, size_t len)
{
    struct cay_error *err = &capture->failure;
    int code;

    if (err->code || !len)
        return;
    if (!cay_sandbox_backend(capture->sandbox)->open_files) {
        code = append_here(capture, stream, data, len, err);
    } else {
        code = open_results(capture, err);
        if (!code)
            code = userfs_write(&capture->fs, capture->results.files[stream], data, len,
                                CAY_WRITE_APPEND, NULL, err);
    }
    capture->streams[stream].is_kept = code == CAY_OK;
    /* A partial file is useless, and may be what fills the disk. */
    if (code && capture->results.dir)
        (void)!userfs_remove(&capture->fs, capture->results.dir, NULL);
}

int capture_take(void *cookie, int stream, const void *data, size_t len)
{
    struct capture *capture = cookie;
    struct tail *tail = &capture->streams[stream - 1].tail;

    if (capture->streams[stream - 1].total + len > OUTPUT_MAX) {
        /* Nothing was dropped yet: the tail is the whole output so far. */
        if (!capture->streams[stream - 1].is_kept && !tail->dropped)
            append(capture, stream - 1, tail->data, tail->len);
        append(capture, stream - 1, data, len);
    }
    capture->streams[stream - 1].total += len;
    if (tail_add(tail, data, len))
        return 0;
    capture->no_memory = true;
    return 1;
}

/* --- Storing the output of an ended one -----------------------------------------------
 */

static int keep_stream(struct capture *capture, const struct output *output, int stream,
                       struct cay_error *err)
{
    struct userfs *fs = &capture->fs;
    const struct raw *raw = &output->raw[stream];
    const char *file = capture->results.files[stream];
    int spool = capture->streams[stream].spool;

    if (spool < 0 && capture->streams[stream].is_kept)
        return CAY_OK;
    if (spool < 0)
        return userfs_write(fs, file, raw->data, raw->len, 0, NULL, err);
    if (lseek(spool, 0, SEEK_SET) < 0)
        return cay_fail_errno(err, errno, op, "spool");
    return userfs_write_from(fs, file, spool, 0, NULL, err);
}

static int keep_all(void *cookie, struct output *output, struct cay_error *err)
{
    struct capture *capture = cookie;

    if (capture->failure.code)
        return cay_fail_as(err, capture->failure.code, &capture->failure);
    int code = open_results(capture, err);
    if (!code && capture->command)
        code = results_keep_command(&capture->fs, &capture->results, capture->command,
                                    NULL, err);
    for (int i = 0; !code && i < 2; i++)
        code = keep_stream(capture, output, i, err);
    if (code && capture->results.dir)
        (void)!userfs_remove(&capture->fs, capture->results.dir, NULL);
    if (code)
        return code;
    output->fs = &capture->fs;
    output->results = &capture->results;
    return CAY_OK;
}

int capture_output(struct capture *capture, struct output *ret_output,
                   struct cay_error *err)
{
    *ret_output = (struct output){.keep = keep_all, .cookie = capture};
    for (int i = 0; i < 2; i++) {
        struct raw *raw = &ret_output->raw[i];
        raw->total = capture->streams[i].total;
        raw->data = tail_take(&capture->streams[i].tail, &raw->len);
        if (!raw->data) {
            output_done(ret_output);
            return cay_fail_memory(err, op);
        }
    }
    return CAY_OK;
}
