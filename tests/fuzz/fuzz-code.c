/* SPDX-License-Identifier: Apache-2.0 */

/* What the code service of a sandbox sends, which a program inside may have replaced: an
 * execution, and a list of contexts.  Text is always UTF-8, and limits hold. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cay/code.h"
#include "sandbox/backend.h"

enum { LIMIT = 4096, INPUT_MAX = 64 << 10 };

struct input {
    const uint8_t *data;
    size_t len;
};

static void demand(bool truth)
{
    if (!truth)
        abort();
}

/* A service that has sent everything and hung up. */
static int dial(void *cookie, const char *user, int *ret_fd, uint64_t *ret_memory_kills,
                const char **ret_template, struct cay_error *err)
{
    const struct input *input = cookie;
    int ends[2];

    (void)user;
    (void)err;
    demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    (void)!write(ends[1], input->data, input->len);
    (void)shutdown(ends[1], SHUT_WR);
    (void)close(ends[1]);
    *ret_memory_kills = 0;
    *ret_template = NULL;
    *ret_fd = ends[0];
    return CAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct cay_backend backend = {
        .size = sizeof backend, .name = "fuzz", .code = dial};
    struct input input = {data, size < INPUT_MAX ? size : INPUT_MAX};
    cay_sandbox sandbox = {&backend, &input};
    const struct cay_code_options options = {.size = sizeof options,
                                             .output_limit = LIMIT};
    struct cay_code_execution execution = {0};
    struct cay_context_infos infos = {0};
    struct cay_error err = {0};

    if (cay_code_execute(&sandbox, "1", 1, &options, &execution, &err) == CAY_OK) {
        demand(execution.status >= CAY_CODE_SUCCESS && execution.status <= CAY_CODE_LOST);
        demand(execution.out_len <= LIMIT && execution.error_len <= LIMIT);
        demand(utf8_is_valid(execution.out, execution.out_len));
        demand(utf8_is_valid(execution.error, execution.error_len));
        demand(execution.status != CAY_CODE_ERROR || execution.error_name);
        for (size_t i = 0; i < execution.value_count; i++)
            demand(execution.values[i].part_count > 0);
        cay_code_execution_done(&execution);
    } else {
        demand(err.code && *err.message && *err.hint);
    }
    if (cay_context_list(&sandbox, NULL, &infos, &err) == CAY_OK)
        cay_context_infos_done(&infos);
    return 0;
}
