/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/trust.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "native/make/jks.h"
#include "sys/io.h"
#include "sys/path.h"

#define DIRECTORY "etc/cay"
#define BUNDLE    DIRECTORY "/ca-certificates.crt" /* every certificate */
#define OWN       DIRECTORY "/ca.crt"              /* the authority alone */
#define JAVA      DIRECTORY "/cacerts"             /* every certificate, for Java */

enum { BUNDLE_MAX = 384 << 10 };

/* Where systems have their certificates; the first is Debian's. */
static const char *const places[] = {"etc/ssl/certs/ca-certificates.crt",
                                     "etc/pki/tls/certs/ca-bundle.crt",
                                     "etc/ssl/cert.pem", "etc/ssl/ca-bundle.pem"};

/* Where installations of Java have theirs: Debian's, Fedora's, that of images. */
static const char *const java_places[] = {"etc/ssl/certs/java/cacerts",
                                          "etc/pki/ca-trust/extracted/java/cacerts",
                                          "opt/java/openjdk/lib/security/cacerts"};

/* Most programs with certificates of their own take others from one of these. */
static const char *const variables[] = {
    "SSL_CERT_FILE=/" BUNDLE,
    "REQUESTS_CA_BUNDLE=/" BUNDLE,
    "PIP_CERT=/" BUNDLE,
    "CURL_CA_BUNDLE=/" BUNDLE,
    "GIT_SSL_CAINFO=/" BUNDLE,
    "AWS_CA_BUNDLE=/" BUNDLE,
    "CARGO_HTTP_CAINFO=/" BUNDLE,
    "NIX_SSL_CERT_FILE=/" BUNDLE,
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=/" BUNDLE,
    "DENO_CERT=/" BUNDLE,
    "NODE_EXTRA_CA_CERTS=/" OWN, /* in addition to its own */
};

enum { VARIABLES = sizeof variables / sizeof *variables };

/* A descriptor of the first place that `root` has, or -1; "/" is also its working
 * directory. */
static int open_bundle(int root)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int fd = path_open(root, places[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0,
                           RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

int trust_open_host(void)
{
    AUTO_FD root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return root < 0 ? -1 : open_bundle(root);
}

int trust_env(const char *const *env, size_t more, const char ***ret_env,
              struct cay_error *err)
{
    const char **all = calloc(env_count(env) + VARIABLES + more + 1, sizeof *all);
    size_t count = 0;

    if (!all)
        return cay_fail_memory(err, "sandbox.network");
    for (size_t i = 0; i < VARIABLES; i++)
        if (!env_sets(env, variables[i]))
            all[count++] = variables[i];
    for (; env && *env; env++)
        all[count++] = *env;
    *ret_env = all;
    return CAY_OK;
}

/* --- Files --- */

static bool read_bundle(int fd, struct buf *text)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        st.st_size > BUNDLE_MAX || !buf_reserve(text, (size_t)st.st_size))
        return false;
    ssize_t got = io_pread(fd, text->data, (size_t)st.st_size, 0);
    text->len = got < 0 ? 0 : (size_t)got;
    return got > 0;
}

static void add_directory(struct root_plan *root_plan, enum plan_kind kind,
                          const char *path)
{
    root_plan_add(root_plan, kind, path)->mode = 0755;
}

static void add_file(struct root_plan *root_plan, enum plan_kind kind, const char *path,
                     const char *text, size_t len)
{
    root_plan_add_data(root_plan, kind, path, text, len)->mode = 0644;
}

static bool has_file(int root, const char *path)
{
    struct stat st;
    AUTO_FD fd = path_open(root, path, O_PATH | O_CLOEXEC, 0,
                           RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);

    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* Java reads neither the bundle nor variables.  Programs on an installation that has its
 * own place need -Djavax.net.ssl.trustStore=/etc/cay/cacerts. */
static void add_java(struct root_plan *root_plan, enum plan_kind directory,
                     enum plan_kind file, int template_root, const struct buf *bundle)
{
    bool is_host = template_root < 0;
    AUTO_FD host = is_host ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int root = is_host ? host : template_root;
    size_t count = is_host ? 1 : sizeof java_places / sizeof *java_places;
    bool has_java = has_file(root, "usr/bin/java");
    AUTO_BUF store;

    for (size_t i = 0; i < count; i++)
        has_java |= has_file(root, java_places[i]);
    buf_init(&store, BUNDLE_MAX);
    if (!has_java || !jks_write(bundle->data, bundle->len, &store))
        return;
    add_file(root_plan, file, JAVA, store.data, store.len);
    for (size_t i = 0; i < count; i++) {
        if (!has_file(root, java_places[i]))
            continue;
        if (is_host) /* the sandbox has an /etc/ssl/certs of its own */
            add_directory(root_plan, directory, "etc/ssl/certs/java");
        add_file(root_plan, file, java_places[i], store.data, store.len);
    }
}

void trust_plan(struct root_plan *root_plan, int template_root, const char *authority)
{
    bool is_host = template_root < 0;
    bool is_new = is_host && !root_plan->is_copy;
    enum plan_kind directory = is_new ? PLAN_DIRECTORY : PLAN_NEED;
    enum plan_kind file = is_new ? PLAN_FILE : PLAN_REPLACE;
    AUTO_FD fd = is_host ? trust_open_host() : open_bundle(template_root);
    AUTO_BUF text;

    buf_init(&text, BUNDLE_MAX + (16 << 10));
    if (read_bundle(fd, &text) && text.data[text.len - 1] != '\n')
        buf_text(&text, "\n");
    buf_text(&text, authority);
    add_directory(root_plan, directory, DIRECTORY);
    add_file(root_plan, file, BUNDLE, text.data, text.len);
    add_file(root_plan, file, OWN, authority, strlen(authority));
    if (!is_host) {
        add_directory(root_plan, directory, "etc/ssl");
        add_directory(root_plan, directory, "etc/ssl/certs");
    }
    add_file(root_plan, file, places[0], text.data, text.len);
    add_java(root_plan, directory, file, template_root, &text);
}
