/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/archive.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/command.h"
#include "e2b/entry.h"

enum { OUTPUT_MAX = 256 << 20 };

static const char op[] = "files.import";

/* "-rw-r--r-- user/group 123 2026-01-31 10:00 name", as `tar -vv` writes it. */
static void count_line(const char *line, struct cay_tar_result *result)
{
    bool is_file = *line == '-';

    if (!is_file && *line != 'l' && *line != 'h')
        return;
    result->entries++;
    result->files += *line != 'l';
    for (int field = 0; field < 2; field++) {
        line += strcspn(line, " \n");
        line += strspn(line, " ");
    }
    if (is_file && isdigit((unsigned char)*line))
        result->bytes += strtoull(line, NULL, 10);
}

static void count_lines(const char *text, struct cay_tar_result *result)
{
    while (text && *text) {
        count_line(text, result);
        text = strchr(text, '\n');
        text += text != NULL;
    }
}

static int unpack(struct e2b *e2b, const char *user, const char *archive,
                  const char *directory, struct cay_tar_result *result,
                  struct cay_error *err)
{
    const char *const argv[] = {"tar", "-x",    "-p", "-vv",     "--no-same-owner",
                                "-f",  archive, "-C", directory, NULL};
    int exit_code = 0;
    AUTO_BUF out;

    buf_init(&out, OUTPUT_MAX);
    int code = e2b_script_words(e2b, op, user, argv, &out, &exit_code, err);
    if (code)
        return code;
    if (exit_code == 126 || exit_code == 127)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, e2b->id,
                        "there is no tar in the sandbox", "copy file by file");
    if (exit_code)
        return cay_fail(err, CAY_E_IO, 0, op, directory,
                        "not everything could be unpacked in the sandbox",
                        "see whether its disk is full, and who may write there");
    count_lines(out.data, result);
    return CAY_OK;
}

int e2b_archive_import(void *cookie, const char *user, const char *path, int fd,
                       struct cay_tar_result *ret_result, struct cay_error *err)
{
    struct e2b *e2b = cookie;
    struct cay_tar_result result = {0};
    AUTO_FREE char *whole = NULL;
    uint64_t number[2];
    char archive[64];

    if (getrandom(number, sizeof number, 0) != sizeof number)
        return cay_fail_errno(err, errno, op, "getrandom");
    snprintf(archive, sizeof archive, "/tmp/.cay-%016llx%016llx.tar",
             (unsigned long long)number[0], (unsigned long long)number[1]);
    int code = e2b_path(e2b, op, path, &whole, err);
    if (!code)
        code = e2b_files.mkdir(e2b, user, whole, CAY_NAME_EXIST_OK, err);
    if (code)
        return code;
    code = e2b_file_write(e2b, user, archive, fd, CAY_WRITE_NEW, err);
    if (!code)
        code = unpack(e2b, user, archive, whole, &result, err);
    (void)e2b_files.remove(e2b, user, archive, 0, NULL);
    if (!code)
        *ret_result = result;
    return code;
}
