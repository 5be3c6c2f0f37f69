/* SPDX-License-Identifier: Apache-2.0 */

/* Packages on top of a template: a build whose only step is apt-get in a sandbox of its
 * own, so that package scripts have no rights on the host. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/build/build.h"
#include "sys/path.h"

static const char op[] = "template.install";

enum { TEXT_MAX = 64 << 10, PACKAGE_MAX = 128 };

/* A name of Debian, "NAME=VERSION" or "NAME/SUITE": nothing that a shell would expand. */
static bool is_package(const char *text, size_t len)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-.+:=~/";

    return len > 1 && len <= PACKAGE_MAX && strspn(text, allowed) >= len &&
           strchr("abcdefghijklmnopqrstuvwxyz0123456789", text[0]);
}

static int fail_package(const char *list, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, list, "invalid name of a package",
                    "use names of Debian's packages: git, python3-numpy");
}

static int add_packages(const char *list, struct buf *text, struct cay_error *err)
{
    for (const char *at = list;; at++) {
        size_t len = strcspn(at, ",");
        if (!is_package(at, len))
            return fail_package(list, err);
        buf_format(text, " %.*s", (int)len, at);
        at += len;
        if (!*at)
            return CAY_OK;
    }
}

/* The highest layer that has the name decides: it may be a whiteout. */
static bool has_apt(const struct template *template)
{
    for (size_t i = 0; i <= template->below_count; i++) {
        struct stat st;
        AUTO_FD fd =
            path_open(i ? template->below[i - 1] : template->root, "usr/bin/apt-get",
                      O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
        if (fd >= 0 && fstat(fd, &st) == 0)
            return S_ISREG(st.st_mode) && st.st_mode & 0111;
    }
    return false;
}

static int check_base(const char *name, char ret_user[64], struct cay_error *err)
{
    struct template template = TEMPLATE_NONE;

    TRY(template_open(name, false, &template, err));
    bool is_debian = has_apt(&template);
    cay_copy_text(ret_user, 64, template.info.shown.user);
    template_done(&template);
    return is_debian ? CAY_OK
                     : cay_fail(err, CAY_E_UNSUPPORTED, 0, op, name,
                                "the template has no apt-get, and packages are Debian's",
                                "use a Debian-like system: --debootstrap bookworm");
}

static int write_steps(const struct cay_install_options *options, struct buf *text,
                       struct cay_error *err)
{
    char user[64];

    TRY(check_base(options->from, user, err));
    buf_format(text, "FROM %s\n", options->from);
    if (*user)
        buf_text(text, "USER 0\n");
    buf_text(text, "RUN [\"/bin/sh\", \"-ec\", \"export DEBIAN_FRONTEND=noninteractive; "
                   "apt-get -q update; apt-get -qy --no-install-recommends install --");
    for (size_t i = 0; options->packages[i]; i++)
        TRY(add_packages(options->packages[i], text, err));
    buf_text(text, "; apt-get clean; rm -rf /var/lib/apt/lists/*\"]\n");
    if (*user)
        buf_format(text, "USER %s\n", user);
    return text->failed ? cay_fail(err, CAY_E_LIMIT, 0, op, options->name,
                                   "too many packages", "install fewer at a time")
                        : CAY_OK;
}

static int check_new(const char *name, struct cay_error *err)
{
    struct cay_template_info info;
    AUTO_FREE char *config = NULL;

    TRY(template_check_name(name, op, err));
    return cay_template_inspect(name, &info, &config, NULL) == CAY_OK
               ? cay_fail(err, CAY_E_EXISTS, 0, op, name,
                          "a template with this name exists",
                          "remove it first, or use another name")
               : CAY_OK;
}

int cay_template_install(const struct cay_install_options *options, struct cay_error *err)
{
    struct cay_install_options known;
    AUTO_BUF text = {.max = TEXT_MAX};

    TRY(cay_take_struct(&known, sizeof known, options, op, err));
    TRY(check_new(known.name, err));
    if (!known.packages || !known.packages[0])
        return cay_fail(err, CAY_E_INVALID, 0, op, known.name, "no packages given",
                        "name at least one package");
    TRY(write_steps(&known, &text, err));
    const struct cay_build_options build = {.size = sizeof build,
                                            .name = known.name,
                                            .policy = known.policy,
                                            .memory_bytes = known.memory_bytes,
                                            .no_cache = true, /* the archive changes */
                                            .on_progress = known.on_progress,
                                            .cookie = known.cookie};
    return build_from_text(&build, text.data, text.len, err);
}
