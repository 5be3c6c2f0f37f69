/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/show.h"
#include "json/json.h"

int output_write(int fd, const void *data, size_t len)
{
    const char *next = data;

    while (len > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        ssize_t written = write(fd, next, len);
        /* Somebody else who has it may have made it so that it does not wait. */
        if (written < 0 && errno == EAGAIN)
            (void)poll(&ready, 1, -1);
        else if (written < 0 && errno != EINTR)
            return errno;
        if (written > 0) {
            next += written;
            len -= (size_t)written;
        }
    }
    return 0;
}

/* stdio forgets the errno of a failed write by the time one asks; this remembers it. */
static ssize_t write_out(void *cookie, const char *data, size_t len)
{
    struct output *output = cookie;

    if (!output->sys_errno)
        output->sys_errno = output_write(STDOUT_FILENO, data, len);
    return output->sys_errno ? 0 : (ssize_t)len;
}

int output_open(struct output *output, struct cay_error *err)
{
    *output = (struct output){.is_terminal = isatty(STDOUT_FILENO)};
    output->file = fopencookie(output, "w", (cookie_io_functions_t){.write = write_out});
    if (!output->file)
        return cay_fail_memory(err, "cli.output");
    setvbuf(output->file, NULL, output->is_terminal ? _IOLBF : _IOFBF, 65536);
    return CAY_OK;
}

void output_name(struct output *output, const char *name)
{
    if (output->is_terminal)
        show_name(output->file, name);
    else
        fputs(name, output->file);
}

void output_begin_json(struct output *output, struct json *json)
{
    json_to_file(json, output->file);
    json_put_object(json);
}

void output_end_json(struct output *output, struct json *json)
{
    json_put_end(json);
    json_finish(json);
    fputc('\n', output->file);
}

int output_finish(struct output *output, struct cay_error *err)
{
    fflush(output->file);
    if (output->sys_errno)
        return cay_fail_errno(err, output->sys_errno, "cli.output", "standard output");
    return CAY_OK;
}

void output_close(struct output *output)
{
    if (output->file)
        fclose(output->file);
    output->file = NULL;
}

static void error_as_json(const struct cay_error *err)
{
    struct json json;

    json_to_file(&json, stderr);
    json_put_object(&json);
    json_put_key(&json, "error");
    json_put_object(&json);
    json_set_int(&json, "code", err->code);
    json_set_text(&json, "slug", cay_code_slug(err->code));
    json_set_int(&json, "errno", err->sys_errno);
    json_set_text(&json, "op", err->op);
    json_set_text(&json, "subject", err->subject);
    json_set_text(&json, "message", err->message);
    json_set_text(&json, "hint", err->hint);
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', stderr);
}

static void error_as_line(const struct cay_error *err)
{
    fprintf(stderr, "cay: %s: ", cay_code_slug(err->code));
    if (err->subject[0]) {
        show_name(stderr, err->subject);
        fputs(": ", stderr);
    }
    show_name(stderr, err->message);
    fputs(" (", stderr);
    show_name(stderr, err->hint);
    fputs(")\n", stderr);
}

int output_error(const struct cay_error *err, bool as_json)
{
    if (as_json)
        error_as_json(err);
    else
        error_as_line(err);
    return cay_code_exit(err->code);
}
