/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <libfyaml.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "base/words.h"

struct yaml {
    struct fy_diag *diag;
    struct fy_parser *parser;
    struct fy_event *event; /* the last one: its text is in use */
    struct yaml_origin origin;
    const char *input;
    unsigned line, depth, documents;
    bool tolerant;
    struct yaml_source source; /* if there is no parser: a replay */
    char key[256];
};

int yaml_fail(struct cay_error *err, const struct yaml *yaml, unsigned line,
              const char *message, const char *hint, ...)
{
    struct cay_error words;
    va_list args;

    snprintf(words.message, sizeof words.message, "line %u: %s%s%s", line, yaml->key,
             *yaml->key ? ": " : "", message);
    va_start(args, hint);
    vsnprintf(words.hint, sizeof words.hint, hint, args);
    va_end(args);
    return cay_fail(err, CAY_E_INVALID, 0, yaml->origin.op, yaml->origin.name,
                    words.message, "%s", words.hint);
}

int yaml_fail_memory(struct cay_error *err, const struct yaml *yaml)
{
    return cay_fail_memory(err, yaml->origin.op);
}

/* A key that does not fit or has control characters is left out of the error. */
static size_t add_key(struct yaml *yaml, const char *before, const char *key,
                      const char *after)
{
    size_t mark = strlen(yaml->key);
    char text[128];

    cay_copy_text(text, sizeof text / 2, key);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    if (mark + strlen(text) + 8 < sizeof yaml->key)
        snprintf(yaml->key + mark, sizeof yaml->key - mark, "%s%s%s", before, text,
                 after);
    return mark;
}

size_t yaml_enter(struct yaml *yaml, const char *key)
{
    return add_key(yaml, *yaml->key ? "." : "", key, "");
}

size_t yaml_enter_index(struct yaml *yaml, size_t index)
{
    char text[24];

    snprintf(text, sizeof text, "%zu", index);
    return add_key(yaml, "[", text, "]");
}

void yaml_leave(struct yaml *yaml, size_t mark)
{
    yaml->key[mark] = '\0';
}

const char *yaml_key(const struct yaml *yaml)
{
    return yaml->key;
}

const struct yaml_origin *yaml_origin(const struct yaml *yaml)
{
    return &yaml->origin;
}

void yaml_tolerate(struct yaml *yaml)
{
    yaml->tolerant = true;
}

/* libfyaml takes time with the square of the empty lines in a row, and of directives. */
enum { EMPTY_LINES_MAX = 100, DIRECTIVES_MAX = 16 };

struct tally {
    unsigned breaks; /* of lines, with nothing between them */
    unsigned directives;
};

static int check_pace(struct yaml *yaml, unsigned line, const char *text, size_t len,
                      struct tally *tally, struct cay_error *err)
{
    tally->directives += *text == '%';
    if (tally->directives > DIRECTIVES_MAX)
        return yaml_fail(err, yaml, line, "there are too many directives",
                         "remove lines that start with \"%%\"");
    for (size_t i = 0; i < len; i++) {
        bool ends =
            text[i] == '\n' || (text[i] == '\r' && (i + 1 == len || text[i + 1] != '\n'));
        if (ends && tally->breaks++ > EMPTY_LINES_MAX)
            return yaml_fail(err, yaml, line, "there are too many empty lines in a row",
                             "%d are allowed", EMPTY_LINES_MAX);
        if (!strchr(" \t\r\n", text[i]))
            tally->breaks = 0;
    }
    return CAY_OK;
}

static int check_bytes(struct yaml *yaml, const char *text, size_t len,
                       struct cay_error *err)
{
    struct utf8_scan scan = {.chars = 0};
    struct tally tally = {0};

    for (unsigned line = 1; len > 0; line++) {
        const char *end = memchr(text, '\n', len);
        size_t step = end ? (size_t)(end - text) + 1 : len;

        if (memchr(text, '\0', step))
            return yaml_fail(err, yaml, line, "the text contains a NUL byte",
                             "write plain UTF-8 text");
        if (!utf8_scan(&scan, text, step) || (step == len && !utf8_scan_complete(&scan)))
            return yaml_fail(err, yaml, line, "the text is not UTF-8",
                             "save the file as UTF-8");
        TRY(check_pace(yaml, line, text, step, &tally, err));
        text += step;
        len -= step;
    }
    return CAY_OK;
}

static void discard(struct fy_diag *diag, void *user, const char *text, size_t len)
{
    (void)diag;
    (void)user;
    (void)text;
    (void)len;
}

/* libfyaml does not survive a failed allocation, so find out before it starts: it takes
 * up to 380 bytes for a byte of text.  Without volatile the compiler takes it all out. */
static bool has_memory_for(size_t len)
{
    void *volatile reserve = malloc(((size_t)1 << 20) + 400 * len);

    free(reserve);
    return reserve != NULL;
}

static bool start(struct yaml *yaml, const char *text, size_t len)
{
    struct fy_diag_cfg diag;

    if (!has_memory_for(len))
        return false;
    fy_diag_cfg_default(&diag);
    diag.fp = NULL;
    diag.output_fn = discard;
    diag.colorize = false;
    yaml->diag = fy_diag_create(&diag);
    if (!yaml->diag)
        return false;
    fy_diag_set_collect_errors(yaml->diag, true);
    struct fy_parse_cfg config = {
        .search_path = "",
        .flags = FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
        .diag = yaml->diag,
    };
    yaml->parser = fy_parser_create(&config);
    return yaml->parser && fy_parser_set_string(yaml->parser, text, len) == 0;
}

int yaml_open(const char *text, size_t len, const struct yaml_origin *origin,
              struct yaml **ret_yaml, struct cay_error *err)
{
    AUTO_YAML *yaml = calloc(1, sizeof *yaml);

    if (!yaml)
        return cay_fail_memory(err, origin->op);
    yaml->origin = *origin;
    yaml->input = text;
    yaml->line = 1;
    TRY(check_bytes(yaml, text, len, err));
    if (!start(yaml, text, len))
        return cay_fail_memory(err, origin->op);
    *ret_yaml = TAKE_PTR(yaml);
    return CAY_OK;
}

int yaml_open_source(const struct yaml_source *source, const struct yaml_origin *origin,
                     struct yaml **ret_yaml, struct cay_error *err)
{
    struct yaml *yaml = calloc(1, sizeof *yaml);

    if (!yaml)
        return cay_fail_memory(err, origin->op);
    yaml->origin = *origin;
    yaml->source = *source;
    *ret_yaml = yaml;
    return CAY_OK;
}

static void drop_event(struct yaml *yaml)
{
    if (yaml->event)
        fy_parser_event_free(yaml->parser, yaml->event);
    yaml->event = NULL;
}

void yaml_free(struct yaml *yaml)
{
    if (!yaml)
        return;
    drop_event(yaml);
    if (yaml->parser)
        fy_parser_destroy(yaml->parser);
    if (yaml->diag)
        fy_diag_destroy(yaml->diag);
    free(yaml);
}

/* libfyaml does not always report a reason. */
static int fail_syntax(const struct yaml *yaml, struct cay_error *err)
{
    const struct fy_diag_error *error;
    const char *message = "invalid YAML";
    unsigned line = yaml->line;

    for (void *at = NULL; (error = fy_diag_errors_iterate(yaml->diag, &at));) {
        if (error->type < FYET_ERROR || !error->msg)
            continue;
        message = error->msg;
        if (error->line > 0)
            line = (unsigned)error->line;
        break;
    }
    return yaml_fail(err, yaml, line, message, "the text must be YAML or JSON");
}

static const struct yaml_refusal no_alias = {"aliases are not allowed",
                                             "write the value out where it is used"};
static const struct yaml_refusal no_anchor = {"anchors are not allowed",
                                              "write the value out where it is used"};
static const struct yaml_refusal no_tag = {"tags are not allowed",
                                           "write the value out where it is used"};
static const struct yaml_refusal no_quotes = {
    "two consecutive quotes are not supported inside single quotes",
    "write the text in double quotes"};

static int enter_level(struct yaml *yaml, struct cay_error *err)
{
    if (++yaml->depth <= YAML_DEPTH_MAX)
        return CAY_OK;
    return yaml_fail(err, yaml, yaml->line, "the text is nested too deeply",
                     "%d levels are allowed", YAML_DEPTH_MAX);
}

/* libfyaml 0.7.12 turns two consecutive quotes into three, and leaks memory. */
static bool is_misread(const struct yaml *yaml, struct fy_token *token)
{
    if (fy_token_scalar_style(token) != FYSS_SINGLE_QUOTED)
        return false;
    const struct fy_mark *start = fy_token_start_mark(token);
    const struct fy_mark *end = fy_token_end_mark(token);
    return !start || !end ||
           memmem(yaml->input + start->input_pos, end->input_pos - start->input_pos,
                  "''''", 4);
}

static int take_scalar(struct yaml *yaml, struct yaml_event *event, struct cay_error *err)
{
    struct fy_token *token = yaml->event->scalar.value;

    event->plain = !token || fy_token_scalar_style(token) == FYSS_PLAIN;
    event->text = "";
    if (!token)
        return CAY_OK;
    if (is_misread(yaml, token)) {
        event->refusal = &no_quotes;
        return CAY_OK;
    }
    event->text = fy_token_get_text0(token);
    event->len = fy_token_get_text_length(token);
    return event->text ? CAY_OK : yaml_fail_memory(err, yaml);
}

/* The kinds that libfyaml only frames the document with are left to the caller. */
static int take_event(struct yaml *yaml, struct yaml_event *event, struct cay_error *err)
{
    const struct fy_event *from = yaml->event;
    const struct fy_token *anchor = NULL, *tag = NULL;
    int code = CAY_OK;

    switch ((int)from->type) {
    case FYET_ALIAS:
        *event = (struct yaml_event){
            .kind = YAML_SCALAR, .line = yaml->line, .text = "", .refusal = &no_alias};
        break;
    case FYET_SCALAR:
        event->kind = YAML_SCALAR;
        anchor = from->scalar.anchor;
        tag = from->scalar.tag;
        code = take_scalar(yaml, event, err);
        break;
    case FYET_MAPPING_START:
        event->kind = YAML_MAP;
        anchor = from->mapping_start.anchor;
        tag = from->mapping_start.tag;
        code = enter_level(yaml, err);
        break;
    case FYET_SEQUENCE_START:
        event->kind = YAML_LIST;
        anchor = from->sequence_start.anchor;
        tag = from->sequence_start.tag;
        code = enter_level(yaml, err);
        break;
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        event->kind = from->type == FYET_MAPPING_END ? YAML_MAP_END : YAML_LIST_END;
        yaml->depth--;
        break;
    default:
        break;
    }
    if (anchor || tag)
        event->refusal = anchor ? &no_anchor : &no_tag;
    if (!code && event->refusal && !yaml->tolerant)
        return yaml_fail(err, yaml, yaml->line, event->refusal->message, "%s",
                         event->refusal->hint);
    return code;
}

int yaml_next(struct yaml *yaml, struct yaml_event *ret_event, struct cay_error *err)
{
    enum fy_event_type type;

    if (yaml->source.next)
        return yaml->source.next(yaml->source.cookie, yaml, ret_event, err);
    do {
        drop_event(yaml);
        yaml->event = fy_parser_parse(yaml->parser);
        if (!yaml->event && fy_parser_get_stream_error(yaml->parser))
            return fail_syntax(yaml, err);
        if (!yaml->event)
            break;
        const struct fy_mark *mark = fy_event_start_mark(yaml->event);
        if (mark)
            yaml->line = (unsigned)mark->line + 1;
        type = yaml->event->type;
        if (type == FYET_DOCUMENT_START && yaml->documents++)
            return yaml_fail(err, yaml, yaml->line, "a second document starts here",
                             "one text is one document; remove the \"---\" line");
    } while (type == FYET_STREAM_START || type == FYET_DOCUMENT_START ||
             type == FYET_DOCUMENT_END || type == FYET_NONE);

    *ret_event = (struct yaml_event){.kind = YAML_END, .line = yaml->line};
    return yaml->event ? take_event(yaml, ret_event, err) : CAY_OK;
}

int yaml_skip(struct yaml *yaml, enum yaml_kind first, struct cay_error *err)
{
    struct yaml_event event;

    if (first != YAML_MAP && first != YAML_LIST)
        return CAY_OK;
    if (yaml->source.skip) {
        yaml->source.skip(yaml->source.cookie);
        return CAY_OK;
    }
    for (unsigned outside = yaml->depth - 1; yaml->depth > outside;)
        TRY(yaml_next(yaml, &event, err));
    return CAY_OK;
}

int yaml_next_key(struct yaml *yaml, struct yaml_event *ret_key, struct cay_error *err)
{
    TRY(yaml_next(yaml, ret_key, err));
    if (ret_key->kind == YAML_MAP_END)
        return CAY_OK;
    if (ret_key->kind != YAML_SCALAR)
        return yaml_fail(err, yaml, ret_key->line, "a key must be a plain word",
                         "write \"key: value\"");
    return yaml_check_nul(yaml, ret_key, err);
}

int yaml_fail_unknown(struct yaml *yaml, unsigned line, const char *key,
                      const char *const *keys, struct cay_error *err)
{
    struct words_list known = {.len = 0};
    size_t count = 0;

    for (; keys[count]; count++)
        words_add(&known, keys[count]);
    const char *nearest = nearest_name(key, keys, sizeof *keys, count);
    yaml_enter(yaml, key);
    return yaml_fail(err, yaml, line, "unknown key", "%s%s%sthe keys here are %s",
                     nearest ? "did you mean " : "", nearest ? nearest : "",
                     nearest ? "? " : "", words_end(&known));
}

/* --- Scalars --- */

bool yaml_is_word(const struct yaml_event *event, const char *word)
{
    return event->kind == YAML_SCALAR && event->len == strlen(word) &&
           strcmp(event->text, word) == 0;
}

bool yaml_is_null(const struct yaml_event *event)
{
    return event->kind == YAML_SCALAR && event->plain && !event->written &&
           (yaml_is_word(event, "null") || yaml_is_word(event, "~"));
}

bool yaml_is_nothing(const struct yaml_event *event)
{
    return yaml_is_null(event) || event->is_missing ||
           (event->kind == YAML_SCALAR && event->plain && !event->written &&
            event->len == 0);
}

static bool is_number(const char *text)
{
    text += *text == '-' || *text == '+';
    return *text >= '0' && *text <= '9' && text[strspn(text, "0123456789.")] == '\0';
}

bool yaml_is_text(const struct yaml_event *event)
{
    if (event->kind != YAML_SCALAR)
        return false;
    return !event->plain || event->written ||
           (!yaml_is_nothing(event) && !yaml_is_word(event, "true") &&
            !yaml_is_word(event, "false") && !is_number(event->text));
}

int yaml_check_nul(const struct yaml *yaml, const struct yaml_event *event,
                   struct cay_error *err)
{
    if (strlen(event->text) == event->len)
        return CAY_OK;
    return yaml_fail(err, yaml, event->line, "the text contains a NUL character",
                     "remove the \"\\0\"");
}

int yaml_take_text(const struct yaml *yaml, const struct yaml_event *event,
                   char **ret_text, struct cay_error *err)
{
    if (!yaml_is_text(event))
        return yaml_fail(err, yaml, event->line, "must be a string",
                         "put quotes around it if it is meant as text");
    TRY(yaml_check_nul(yaml, event, err));
    *ret_text = strdup(event->text);
    return *ret_text ? CAY_OK : yaml_fail_memory(err, yaml);
}

/* --- Files --- */

enum { FILE_STEP = 65536 };

static int read_all(int fd, const char *file, const char *op, struct buf *text,
                    struct cay_error *err)
{
    while (text->len <= YAML_TEXT_MAX) {
        if (!buf_reserve(text, FILE_STEP))
            return cay_fail_memory(err, op);
        ssize_t got = read(fd, text->data + text->len, FILE_STEP);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cay_fail_errno(err, errno, op, file);
        if (got == 0)
            break;
        text->len += (size_t)got;
    }
    return CAY_OK;
}

int yaml_load_file(const char *file, const char *op, struct buf *text,
                   char **ret_directory, struct cay_error *err)
{
    /* O_NONBLOCK: opening a FIFO must not block before fstat shows what it is. */
    AUTO_FD fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *slash = strrchr(file, '/');
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, op, file);
    if (!S_ISREG(st.st_mode))
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, file, "is not a regular file",
                        "name a YAML or JSON file");
    text->max = YAML_TEXT_MAX + 2 * FILE_STEP;
    TRY(read_all(fd, file, op, text, err));
    if (!slash)
        return CAY_OK;
    *ret_directory = strndup(file, slash > file ? (size_t)(slash - file) : 1);
    return *ret_directory ? CAY_OK : cay_fail_memory(err, op);
}
