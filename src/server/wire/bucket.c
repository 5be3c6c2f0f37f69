/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/bucket.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

static const char op[] = "serve.bucket";

enum { FILE_MAX = 8 << 10 };

#define SCHEME  "s3://"
#define SMALL   "abcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"
#define LETTERS SMALL "ABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS
#define REGION  "us-east-1"

static int fail(const char *option, const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, option, "invalid value", "%s", hint);
}

bool bucket_is(const char *shared)
{
    return shared && strncmp(shared, SCHEME, strlen(SCHEME)) == 0;
}

/* --- The place --- */

static bool is_of(const char *text, size_t len, const char *letters)
{
    return strspn(text, letters) >= len;
}

/* Only characters that a URL and a signature show alike; no part is "." or "..". */
static bool is_prefix(const char *part)
{
    for (;;) {
        size_t len = strcspn(part, "/");
        if (!len || len == strspn(part, ".") || !is_of(part, len, LETTERS "-_."))
            return false;
        if (!part[len])
            return true;
        part += len + 1;
    }
}

static int parse_place(const char *shared, struct bucket *bucket, struct cay_error *err)
{
    static const char hint[] =
        "give s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits and -_.";
    const char *name = shared + strlen(SCHEME);
    size_t len = strcspn(name, "/"), rest = strlen(name + len);

    if (len < 3 || len > 63 || *name == '.' || !is_of(name, len, SMALL DIGITS "-."))
        return fail("--shared", hint, err);
    snprintf(bucket->path, sizeof bucket->path, "/%.*s", (int)len, name);
    if (rest > 1 && name[len + rest - 1] == '/')
        rest--;
    if (rest <= 1)
        return CAY_OK;
    if (rest > 256)
        return fail("--shared", hint, err);
    snprintf(bucket->prefix, sizeof bucket->prefix, "%.*s", (int)(rest - 1),
             name + len + 1);
    if (!is_prefix(bucket->prefix))
        return fail("--shared", hint, err);
    bucket->prefix[rest - 1] = '/';
    bucket->prefix[rest] = '\0';
    return CAY_OK;
}

static bool is_loopback(const char *host)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        size_t len = strlen(hosts[i]);
        if (strncasecmp(host, hosts[i], len) == 0 && (!host[len] || host[len] == ':'))
            return true;
    }
    return false;
}

static bool is_host(const char *host)
{
    size_t len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    const char *letters = *host == '[' ? "[]:" LETTERS : LETTERS "-.";

    if (!len || len > strlen(host) || !is_of(host, len, letters))
        return false;
    const char *port = host + len;
    return !*port || (*port == ':' && port[1] && strlen(port) <= 6 &&
                      is_of(port + 1, strlen(port + 1), DIGITS));
}

static int parse_endpoint(const char *endpoint, struct bucket *bucket,
                          struct cay_error *err)
{
    static const char hint[] = "give https://HOST or https://HOST:PORT; http:// is for "
                               "a store on this machine";
    size_t len = strlen(endpoint);

    bucket->is_plain = strncmp(endpoint, "http://", 7) == 0;
    if (!bucket->is_plain && strncmp(endpoint, "https://", 8) != 0)
        return fail("--shared-endpoint", hint, err);
    len -= endpoint[len - 1] == '/';
    if (len >= sizeof bucket->endpoint)
        return fail("--shared-endpoint", hint, err);
    snprintf(bucket->endpoint, sizeof bucket->endpoint, "%.*s", (int)len, endpoint);
    bucket->host = bucket->endpoint + (bucket->is_plain ? 7 : 8);
    bucket->is_remote = !is_loopback(bucket->host);
    return is_host(bucket->host) ? CAY_OK : fail("--shared-endpoint", hint, err);
}

int bucket_parse(const struct serve_options *options, struct bucket *ret_bucket,
                 struct cay_error *err)
{
    char usual[128];
    const char *region = options->shared_region ? options->shared_region : REGION;

    *ret_bucket = (struct bucket){0};
    TRY(parse_place(options->shared, ret_bucket, err));
    if (!*region || strlen(region) >= sizeof ret_bucket->region ||
        !is_of(region, strlen(region), LETTERS "-"))
        return fail("--shared-region", "give the region of the bucket: eu-west-1", err);
    cay_copy_text(ret_bucket->region, sizeof ret_bucket->region, region);
    snprintf(usual, sizeof usual, "https://s3.%s.amazonaws.com", region);
    return parse_endpoint(options->shared_endpoint ? options->shared_endpoint : usual,
                          ret_bucket, err);
}

/* --- Credentials --- */

static const struct name {
    const char *variable, *line;
    size_t at, room;
} names[] = {
#define AT(name)                                                                         \
    offsetof(struct bucket_access, name), sizeof((struct bucket_access *)NULL)->name
    {"AWS_ACCESS_KEY_ID", "aws_access_key_id", AT(key)},
    {"AWS_SECRET_ACCESS_KEY", "aws_secret_access_key", AT(secret)},
    {"AWS_SESSION_TOKEN", "aws_session_token", AT(token)},
#undef AT
};

enum { NAMES = sizeof names / sizeof *names };

/* What no header can have, or what is not complete, is refused before it is sent. */
static bool is_access(const struct bucket_access *access)
{
    const char *const texts[] = {access->key, access->secret, access->token};

    for (size_t i = 0; i < NAMES; i++)
        for (const char *at = texts[i]; *at; at++)
            if (*at <= ' ' || *at > '~')
                return false;
    return is_of(access->key, strlen(access->key), LETTERS "-_.") && *access->key &&
           *access->secret;
}

/* One "name = value" of the format of AWS's own file; false: it is too long. */
static bool read_line(char *line, struct bucket_access *access)
{
    char *value = strchr(line, '=');

    if (!value)
        return true;
    size_t len = strcspn(line, " \t=");
    value += 1 + strspn(value + 1, " \t");
    value[strcspn(value, " \t\r")] = '\0';
    for (size_t i = 0; i < NAMES; i++)
        if (len == strlen(names[i].line) && strncasecmp(line, names[i].line, len) == 0) {
            if (strlen(value) >= names[i].room)
                return false;
            memcpy((char *)access + names[i].at, value, strlen(value) + 1);
        }
    return true;
}

/* Other profiles than [default] are not for this server. */
static bool parse_file(char *text, struct bucket_access *access)
{
    bool is_ours = true;

    for (char *line; (line = strsep(&text, "\n"));) {
        line += strspn(line, " \t");
        if (*line == '[')
            is_ours = strncmp(line, "[default]", 9) == 0;
        else if (is_ours && *line != '#' && *line != ';' && !read_line(line, access))
            return false;
    }
    return is_access(access);
}

static int read_file(const char *path, struct bucket_access *access,
                     struct cay_error *err)
{
    static const char option[] = "--shared-credentials-file";
    char text[FILE_MAX + 1];
    struct stat st;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, op, option);
    if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
        st.st_mode & 037)
        return cay_fail(err, CAY_E_DENIED, 0, op, option,
                        "other users can read or write this file",
                        "restrict it: chmod 0600");
    ssize_t len = read(fd, text, FILE_MAX);
    text[len > 0 ? len : 0] = '\0';
    bool is_valid = len > 0 && len < FILE_MAX && !memchr(text, '\0', (size_t)len) &&
                    parse_file(text, access);
    explicit_bzero(text, sizeof text);
    return is_valid ? CAY_OK
                    : cay_fail(err, CAY_E_INVALID, 0, op, option,
                               "the file has no credentials of S3",
                               "it needs the lines aws_access_key_id = ... and "
                               "aws_secret_access_key = ...");
}

static struct bucket_access *taken; /* in a mapping of its own; NULL: none */

static int read_environment(struct bucket_access *access, struct cay_error *err)
{
    bool fits = true;

    for (size_t i = 0; i < NAMES; i++) {
        const char *value = getenv(names[i].variable);
        size_t len = value ? strlen(value) : 0;
        fits &= len < names[i].room;
        if (value && fits)
            memcpy((char *)access + names[i].at, value, len + 1);
    }
    return fits && is_access(access)
               ? CAY_OK
               : cay_fail(err, CAY_E_INVALID, 0, op, "--shared",
                          "there are no credentials of the S3 store",
                          "give --shared-credentials-file FILE, or the variables "
                          "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
}

int bucket_find_access(const struct serve_options *options,
                       struct bucket_access *ret_access, struct cay_error *err)
{
    const char *file = options->shared_credentials_file;

    *ret_access = (struct bucket_access){0};
    if (file || !taken)
        return file ? read_file(file, ret_access, err)
                    : read_environment(ret_access, err);
    *ret_access = *taken;
    return CAY_OK;
}

int bucket_take_access(const struct serve_options *options, struct cay_error *err)
{
    struct bucket_access access;

    if (!bucket_is(options->shared))
        return CAY_OK;
    int code = bucket_find_access(options, &access, err);
    void *map = MAP_FAILED;
    if (!code && !options->shared_credentials_file)
        map = mmap(NULL, sizeof *taken, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED) {
        (void)madvise(map, sizeof *taken, MADV_DONTDUMP);
        taken = map;
        *taken = access;
    } else if (!code && !options->shared_credentials_file)
        code = cay_fail_memory(err, op);
    explicit_bzero(&access, sizeof access);
    for (size_t i = 0; i < NAMES; i++) {
        char *value = getenv(names[i].variable);
        if (value)
            explicit_bzero(value, strlen(value));
        (void)unsetenv(names[i].variable);
    }
    return code;
}

void bucket_drop_access(void)
{
    if (taken)
        (void)munmap(taken, sizeof *taken);
    taken = NULL;
}
