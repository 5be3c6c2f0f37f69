/* SPDX-License-Identifier: Apache-2.0 */

/* A command's input, piece by piece: a piece is sent when the one before was answered, so
 * that they keep their order; the answer comes when the command has read it, or a pipe
 * has taken it. */
#include <nettle/base64.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/command.h"

enum { PIECE = 256 << 10 };

void e2b_input_init(struct e2b_input *input)
{
    *input = (struct e2b_input){0};
    buf_init(&input->body, BASE64_ENCODE_RAW_LENGTH(PIECE) + 256);
}

void e2b_input_done(struct e2b_input *input)
{
    e2b_request_done(&input->request);
    buf_done(&input->body);
    free(input->own);
    *input = (struct e2b_input){0};
}

bool e2b_input_pending(const struct e2b_input *input)
{
    return input->is_busy || (input->is_open && (input->left || input->ends));
}

static void stop(struct e2b_input *input)
{
    input->is_open = input->ends = false;
    input->left = 0;
}

/* `method` with what is in the body now. */
static void send_body(struct e2b_command *command, const char *method)
{
    struct e2b_input *input = &command->input;
    struct e2b_request *request = &input->request;

    e2b_request_done(request);
    e2b_request_init(request, "process.write", "POST", &command->e2b->envd);
    buf_format(&request->path, "/process.Process/%s", method);
    request->body = input->body.data;
    request->body_len = input->body.len;
    e2b_envd_headers(command->e2b, request, NULL);
    e2b_request_header(request, "Content-Type", "application/json");
    e2b_request_header(request, "Connect-Protocol-Version", "1");
    request->is_out_of_memory |= input->body.failed;
    input->is_busy = true;
    if (e2b_http_begin(&command->e2b->http, request, &input->failure))
        stop(input);
}

static void send_bytes(struct e2b_command *command, const char *data, size_t len)
{
    struct buf *body = &command->input.body;

    body->len = 0;
    buf_format(body, "{\"process\":{\"pid\":%d},\"input\":{\"%s\":\"", command->pid,
               command->has_tty ? "pty" : "stdin");
    if (buf_reserve(body, BASE64_ENCODE_RAW_LENGTH(len))) {
        base64_encode_raw(body->data + body->len, len, (const uint8_t *)data);
        body->len += BASE64_ENCODE_RAW_LENGTH(len);
    }
    buf_text(body, "\"}}");
    send_body(command, "SendInput");
}

static void send_end(struct e2b_command *command)
{
    struct e2b_input *input = &command->input;

    if (command->has_tty) {
        input->is_open = input->ends = input->ends_left > 1;
        input->ends_left = 1;
        send_bytes(command, "\x04", 1);
        return;
    }
    input->is_open = input->ends = false;
    input->body.len = 0;
    buf_format(&input->body, "{\"process\":{\"pid\":%d}}", command->pid);
    send_body(command, "CloseStdin");
}

int e2b_input_can_end(const struct e2b_command *command, struct cay_error *err)
{
    if (command->has_tty || command->e2b->version >= E2B_HAS_CLOSE_STDIN)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, command->op, command->e2b->id,
                    "this sandbox is too old to be told where an input ends",
                    "rebuild its template to have a newer one");
}

/* A refusal says that nobody reads it any more, which happens; silence is a failure. */
static void take_answer(struct e2b_command *command)
{
    struct e2b_input *input = &command->input;
    const struct e2b_request *request = &input->request;

    input->is_busy = false;
    if (e2b_http_check(request, &input->failure)) {
        stop(input);
    } else if (request->status == 429 || request->status >= 502) {
        (void)e2b_reply_check(command->e2b, request, command->e2b->id, CAY_E_IO,
                              &input->failure);
        stop(input);
    } else if (request->status < 200 || request->status >= 300) {
        /* Nobody told us whether it has a terminal; so it does. */
        bool guessed = command->is_attached && !command->has_tty && input->sent;
        input->data -= guessed ? input->sent : 0;
        input->left += guessed ? input->sent : 0;
        if (!guessed)
            stop(input);
        command->has_tty = command->has_tty || guessed;
    }
    input->sent = 0;
}

void e2b_input_feed(struct e2b_command *command)
{
    struct e2b_input *input = &command->input;

    if (input->is_busy && input->request.ended)
        take_answer(command);
    if (!input->is_open || input->is_busy || !command->pid || command->is_over)
        return;
    if (input->left) {
        size_t len = input->left < PIECE ? input->left : PIECE;
        /* In the midst of a line the first ^D only hands over the line. */
        input->ends_left = input->data[len - 1] == '\n' ? 1 : 2;
        send_bytes(command, input->data, len);
        input->data += len;
        input->left -= len;
        input->sent = len;
    } else if (input->ends) {
        send_end(command);
    }
}
