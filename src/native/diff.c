/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a sandbox on disk against its template. */
#include "cay/diff.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/storage.h"
#include "native/template/template.h"
#include "sys/path.h"

static const char op[] = "sandbox.diff";

static int fail_unsupported(const char *id, const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, id, message,
                    "create the sandbox as root, with storage on disk and a template of "
                    "cay template create");
}

/* Only a stored template, or a directory, is the one layer below the disk. */
static int check_template(const char *id, const char *name, struct cay_error *err)
{
    if (geteuid() != 0)
        return fail_unsupported(id, "only root can read the layers of a sandbox", err);
    if (!name || strcmp(name, "host") == 0 || strcmp(name, "base") == 0)
        return fail_unsupported(id, "the sandbox has no layer above a stored template",
                                err);
    return CAY_OK;
}

static int open_upper(const char *id, struct cay_error *err)
{
    struct storage storage;

    TRY(storage_lock(id, &storage, err));
    int upper = path_open(storage.disk, "upper", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    storage_done(&storage);
    return upper < 0 ? cay_fail_errno(err, -upper, op, id) : upper;
}

static int compare(const char *id, const char *template_name,
                   const struct cay_diff_options *options, cay_diff **ret_diff,
                   struct cay_error *err)
{
    struct template template = TEMPLATE_NONE;

    TRY(check_template(id, template_name, err));
    AUTO_FD upper = open_upper(id, err);
    if (upper < 0)
        return TAKE_FD(upper);
    TRY(template_open(template_name, true, &template, err));
    const struct cay_diff_layer layers[] = {
        {.fd = upper, .marks = CAY_DIFF_MARKS_TRUSTED},
        {.fd = template.root, .marks = CAY_DIFF_MARKS_TRUSTED}};
    int code =
        cay_diff_compare(&(struct cay_diff_tree){layers + 1, 1},
                         &(struct cay_diff_tree){layers, 2}, options, ret_diff, err);
    template_done(&template);
    return code;
}

int cay_sandbox_diff(const char *id, const struct cay_diff_options *options,
                     cay_diff **ret_diff, struct cay_error *err)
{
    struct storage_saved saved;

    *ret_diff = NULL;
    TRY(storage_load(id, &saved, err));
    int code = compare(id, saved.options.template_name, options, ret_diff, err);
    storage_saved_done(&saved);
    return code;
}
