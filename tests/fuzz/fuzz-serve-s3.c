/* SPDX-License-Identifier: Apache-2.0 */
/* The input is the reply of an S3 store to the request for a list.  Each element that is
 * noted has a path and a value within their limits, and was in the text. */
#include <string.h>

#include "front.h"
#include "server/keeper/s3.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct heard {
    size_t size, values;
};

static bool note(void *cookie, const char *path, const char *value)
{
    struct heard *heard = cookie;

    heard->values += strlen(value);
    CHECK(*path && *path != '/' && strlen(path) < 256 && strlen(value) <= 4096);
    CHECK(strlen(path) <= heard->size && heard->values <= heard->size);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct heard heard = {.size = size};

    if (s3_read_xml((const char *)data, size, note, &heard))
        CHECK(size >= 4 && memchr(data, '<', size));
    return 0;
}
